/* SPDX-License-Identifier: Apache-2.0
 * What ONNX Runtime's optimiser fuses, and operators of com.microsoft that ONNX has got since. */
#include <string.h>

#include "load/spelling.h"
#include "load/upgrade.h"

/* The node becomes the activation of `x`, whose numbers are in `p`. */
static tacit_status activate(spelling *s, ir_value *x, uint32_t n, const double *p)
{
    static const struct {
        const char *type, *first, *second; /* names of the numbers */
        double a, b;                       /* without them */
    } known[] = {{"Relu", NULL, NULL, 0, 0},
                 {"Tanh", NULL, NULL, 0, 0},
                 {"Sigmoid", NULL, NULL, 0, 0},
                 {"LeakyRelu", "alpha", NULL, 0.01, 0},
                 {"HardSigmoid", "alpha", "beta", 0.2, 0.5}};
    const char *type = ir_attr_string(s->u.node, "activation", "");
    if (!*type)
        return spelling_become_value(s, x);
    if (strcmp(type, "Clip") == 0 && n == 2)
        return spelling_become(
            s, "", "Clip", 3,
            (ir_value *[]){x, spelling_floats(s, "low", p[0]), spelling_floats(s, "high", p[1])});
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].type, type) != 0)
            continue;
        ir_value *y = spelling_put(s, type, 1, &x);
        if (known[i].first)
            spelling_set_float(s, y, known[i].first, n > 0 ? p[0] : known[i].a);
        if (known[i].second)
            spelling_set_float(s, y, known[i].second, n > 1 ? p[1] : known[i].b);
        return spelling_become_value(s, y);
    }
    return error_set(s->u.err, TACIT_ERR_UNSUPPORTED, "activation '%s' is not supported", type);
}

static tacit_status fused_conv(spelling *s)
{
    static const char *const names[] = {"auto_pad",     "dilations", "group",
                                        "kernel_shape", "pads",      "strides"};
    uint32_t n = 0;
    const double *p = ir_attr_floats(s->u.node, "activation_params", &n);
    ir_value *y = spelling_put(
        s, "Conv", 3, (ir_value *[]){spelling_in(s, 0), spelling_in(s, 1), spelling_in(s, 2)});
    spelling_set_like(s, y, sizeof names / sizeof *names, names);
    if (spelling_in(s, 3))
        y = spelling_put2(s, "Add", y, spelling_in(s, 3));
    return activate(s, y, n, p);
}

static tacit_status fused_gemm(spelling *s)
{
    const ir_node *node = s->u.node;
    const ir_attr *a = ir_attr_find(node, "activation_alpha");
    const ir_attr *b = ir_attr_find(node, "activation_beta");
    double p[2] = {ir_attr_float(node, "activation_alpha", 0),
                   ir_attr_float(node, "activation_beta", 0)};
    ir_value *y = spelling_put(
        s, "Gemm", 3, (ir_value *[]){spelling_in(s, 0), spelling_in(s, 1), spelling_in(s, 2)});
    spelling_set_like(s, y, 4, (const char *[]){"alpha", "beta", "transA", "transB"});
    return activate(s, y, a && b ? 2 : a ? 1 : 0, p);
}

static tacit_status transpose_matmul(spelling *s)
{
    return rewrite_type(&s->u, "FusedMatMul");
}

/* The same operator is in ONNX now. */
static tacit_status in_onnx(spelling *s)
{
    s->u.node->domain = "";
    return rewrite_type(&s->u, s->u.node->type);
}

/* … since opset 16, whose names of modes have changed. */
static tacit_status grid_sample(spelling *s)
{
    TRY(in_onnx(s));
    return load_upgrade(s->u.g, s->u.node, 16, s->u.err);
}

static tacit_status expand_dims(spelling *s)
{
    ir_value *all = spelling_ints(s, "axis", 1, (int64_t[]){-1});
    return spelling_become(
        s, "", "Unsqueeze", 2,
        (ir_value *[]){spelling_in(s, 0), spelling_put2(s, "Reshape", spelling_in(s, 1), all)});
}

/* Distances between the rows of two matrices, by |a|² + |b|² - 2ab. */
static tacit_status distances(spelling *s)
{
    const char *metric = ir_attr_string(s->u.node, "metric", "sqeuclidean");
    bool root = strcmp(metric, "euclidean") == 0;
    if (!root && strcmp(metric, "sqeuclidean") != 0)
        return error_set(s->u.err, TACIT_ERR_UNSUPPORTED,
                         "metric '%s' is not supported (sqeuclidean and euclidean are)", metric);
    ir_value *a = spelling_in(s, 0), *b = spelling_in(s, 1);
    ir_value *axis = spelling_ints(s, "axis", 1, (int64_t[]){1});
    ir_value *squares = spelling_put2(s, "ReduceSumSquare", b, axis);
    squares = spelling_put(s, "Transpose", 1, &squares);
    squares = spelling_put2(s, "Add", spelling_put2(s, "ReduceSumSquare", a, axis), squares);
    ir_value *products = spelling_put2(s, "MatMul", a, spelling_put(s, "Transpose", 1, &b));
    products = spelling_put2(s, "Mul", products, spelling_scalar(s, "two", 2, a));
    ir_value *d = spelling_put2(s, "Sub", squares, products);
    d = spelling_put(s, "Relu", 1, &d); /* rounding may leave less than nothing */
    return spelling_become(s, "", root ? "Sqrt" : "Identity", 1, &d);
}

/* The solution for the columns of the identity. */
static tacit_status inverse(spelling *s)
{
    ir_value *x = spelling_in(s, 0), i64 = {.type.dtype = TACIT_I64};
    ir_value *shape = spelling_put(s, "Shape", 1, &x), *zero = spelling_scalar(s, "zero", 0, &i64);
    ir_value *n = spelling_put2(s, "Gather", shape, spelling_scalar(s, "last", -1, &i64));
    ir_value *rows =
        spelling_put(s, "Range", 3, (ir_value *[]){zero, n, spelling_scalar(s, "one", 1, &i64)});
    ir_value *axis = spelling_ints(s, "axis", 1, (int64_t[]){1});
    ir_value *eye = spelling_put2(s, "Equal", rows, spelling_put2(s, "Unsqueeze", rows, axis));
    eye = spelling_put2(s, "Expand", spelling_put2(s, "CastLike", eye, x), shape);
    return spelling_become(s, "tacit", "Solve", 2, (ir_value *[]){x, eye});
}

/* --- the table -------------------------------------------------------------------------------- */

const spelling_row contrib_fused[] = {
    {"DequantizeLinear", in_onnx, 0x3},
    {"CDist", distances, 0x3},
    {"ExpandDims", expand_dims, 0x3},
    {"FusedConv", fused_conv, 0x3},
    {"FusedGemm", fused_gemm, 0x3},
    {"GatherND", in_onnx, 0x3},
    {"GridSample", grid_sample, 0x3},
    {"Inverse", inverse, 0x1},
    {"Pad", in_onnx, 0x3},
    {"QuantizeLinear", in_onnx, 0x3},
    {"Range", in_onnx, 0x3},
    {"TransposeMatMul", transpose_matmul, 0x3},
    {"Trilu", in_onnx, 0x1},
    {0},
};
