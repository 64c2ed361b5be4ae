/* SPDX-License-Identifier: Apache-2.0
 *
 * ONNX Runtime's quantiser and optimiser write operators of their own (com.microsoft) into files.
 * Most are short for a few operators of ONNX; they are spelled out while loading, so that every
 * pass, executor and transform knows them. Byte operators become the same between DequantizeLinear
 * and QuantizeLinear, which the passes for int8 models look for.
 */
#include "load/contrib.h"

#include <string.h>

#include "load/rewrite.h"
#include "load/upgrade.h"

/* A rule builds on and on; the first failure makes everything behind it nothing. */
typedef struct spelling {
    rewrite u;
    bool failed;
} spelling;

static ir_value *in(const spelling *s, uint32_t i)
{
    return rewrite_input(&s->u, i);
}

static ir_value *put(spelling *s, const char *type, uint32_t n, ir_value *const *inputs)
{
    while (n && !inputs[n - 1])
        n--;
    ir_value *v = s->failed ? NULL : rewrite_add(&s->u, type, n, inputs);
    s->failed |= !v;
    return v;
}

static ir_value *put2(spelling *s, const char *type, ir_value *a, ir_value *b)
{
    return put(s, type, 2, (ir_value *[]){a, b});
}

static void set_int(spelling *s, const ir_value *v, const char *name, int64_t value)
{
    s->failed |= s->failed || !ir_attr_set_int(s->u.g, v->producer, name, value);
}

static void set_float(spelling *s, const ir_value *v, const char *name, double value)
{
    s->failed |= s->failed || !ir_attr_set_float(s->u.g, v->producer, name, value);
}

/* The attributes of the node that `v`'s producer knows by the same name. */
static void set_like(spelling *s, const ir_value *v, uint32_t n, const char *const *names)
{
    for (uint32_t i = 0; i < n && !s->failed; i++) {
        const ir_attr *a = ir_attr_find(s->u.node, names[i]);
        s->failed |= a && !ir_attr_set(s->u.g, v->producer, a);
    }
}

/* The node becomes this one and gives its result. */
static tacit_status become(spelling *s, const char *domain, const char *type, uint32_t n,
                           ir_value *const *inputs)
{
    ir_node *node = s->u.node;
    while (n && !inputs[n - 1])
        n--;
    ir_value **list = ARENA_ARRAY(s->u.g->memory, n + 1, ir_value *);
    if (s->failed || !list)
        return rewrite_no_memory(&s->u);
    memcpy(list, inputs, n * sizeof *inputs);
    node->inputs = list;
    node->n_inputs = node->n_explicit = n;
    node->n_attrs = 0;
    node->domain = domain;
    return rewrite_type(&s->u, type);
}

/* … of com.microsoft that has the same attributes. */
static tacit_status become_other(spelling *s, const char *type, uint32_t n, ir_value *const *inputs)
{
    ir_node *node = s->u.node;
    const ir_attr *attrs = node->attrs;
    uint32_t n_attrs = node->n_attrs;
    TRY(become(s, "com.microsoft", type, n, inputs));
    node->attrs = attrs;
    node->n_attrs = n_attrs;
    return TACIT_OK;
}

static tacit_status become_value(spelling *s, ir_value *v)
{
    return become(s, "", "Identity", 1, &v);
}

static ir_value *scalar(spelling *s, const char *name, double value, ir_value *like)
{
    ir_value *v = s->failed ? NULL : rewrite_scalar(&s->u, name, value, like);
    s->failed |= !v;
    return v;
}

static ir_value *floats(spelling *s, const char *name, double value)
{
    ir_value f32 = {.type.dtype = TACIT_F32};
    return scalar(s, name, value, &f32);
}

/* --- bytes ------------------------------------------------------------------------------------ */

static ir_value *dequantized(spelling *s, ir_value *x, ir_value *scale, ir_value *zero)
{
    return put(s, "DequantizeLinear", 3, (ir_value *[]){x, scale, zero});
}

/* Inputs i, i + 1 and i + 2 are bytes, their scale and their zero point. */
static ir_value *triple(spelling *s, uint32_t i)
{
    return dequantized(s, in(s, i), in(s, i + 1), in(s, i + 2));
}

/* The node becomes bytes like `like` from `x`, by the scale at input i and the zero point behind.
 */
static tacit_status quantize(spelling *s, ir_value *x, uint32_t i, ir_value *like)
{
    ir_value *zero = in(s, i + 1) ? in(s, i + 1) : scalar(s, "zero", 0, like);
    return become(s, "", "QuantizeLinear", 3, (ir_value *[]){x, in(s, i), zero});
}

static tacit_status q_binary(spelling *s, const char *type)
{
    ir_value *y = put2(s, type, triple(s, 0), triple(s, 3));
    return quantize(s, y, 6, in(s, 0));
}

static tacit_status q_add(spelling *s)
{
    return q_binary(s, "Add");
}

static tacit_status q_mul(spelling *s)
{
    return q_binary(s, "Mul");
}

static tacit_status q_sigmoid(spelling *s)
{
    ir_value *x = triple(s, 0);
    return quantize(s, put(s, "Sigmoid", 1, &x), 3, in(s, 0));
}

static tacit_status q_leaky_relu(spelling *s)
{
    ir_value *x = triple(s, 0), *y = put(s, "LeakyRelu", 1, &x);
    set_like(s, y, 1, (const char *[]){"alpha"});
    return quantize(s, y, 3, in(s, 0));
}

static tacit_status q_softmax(spelling *s)
{
    ir_value *x = triple(s, 0), *y = put(s, "Softmax", 1, &x);
    set_like(s, y, 1, (const char *[]){"axis"});
    if (s->failed)
        return rewrite_no_memory(&s->u);
    TRY(load_upgrade(s->u.g, y->producer, ir_attr_int(s->u.node, "opset", 13), s->u.err));
    return quantize(s, y, 3, in(s, 0));
}

static tacit_status channels_first(spelling *s)
{
    if (ir_attr_int(s->u.node, "channels_last", 0) == 0)
        return TACIT_OK;
    return error_set(s->u.err, TACIT_ERR_UNSUPPORTED,
                     "channels_last is not supported; write the model without layout optimisation");
}

static tacit_status q_average_pool(spelling *s)
{
    static const char *const names[] = {"auto_pad",     "ceil_mode", "count_include_pad",
                                        "kernel_shape", "pads",      "strides"};
    TRY(channels_first(s));
    ir_value *x = triple(s, 0), *y = put(s, "AveragePool", 1, &x);
    set_like(s, y, sizeof names / sizeof *names, names);
    return quantize(s, y, 3, in(s, 0));
}

static tacit_status q_global_average_pool(spelling *s)
{
    TRY(channels_first(s));
    ir_value *x = triple(s, 0);
    return quantize(s, put(s, "GlobalAveragePool", 1, &x), 3, in(s, 0));
}

static tacit_status q_where(spelling *s)
{
    ir_value *y = put(s, "Where", 3, (ir_value *[]){in(s, 0), triple(s, 1), triple(s, 4)});
    return quantize(s, y, 7, in(s, 1));
}

static tacit_status q_concat(spelling *s)
{
    uint32_t n = s->u.node->n_explicit, count = (n - 2) / 3;
    if (n < 5 || (n - 2) % 3 != 0)
        return error_set(s->u.err, TACIT_ERR_GRAPH,
                         "bytes, scales and zero points do not come in threes");
    ir_value **parts = ARENA_ARRAY(s->u.g->memory, count, ir_value *);
    if (!parts)
        return rewrite_no_memory(&s->u);
    for (uint32_t k = 0; k < count; k++)
        parts[k] = triple(s, 2 + 3 * k);
    ir_value *y = put(s, "Concat", count, parts);
    set_like(s, y, 1, (const char *[]){"axis"});
    return quantize(s, y, 0, in(s, 2));
}

/* The right side may have a scale for every column. */
static ir_value *columns(spelling *s, uint32_t i, ir_value *scale, ir_value *zero, int64_t axis)
{
    ir_value *b = dequantized(s, in(s, i), scale, zero);
    set_int(s, b, "axis", axis);
    return b;
}

/* The bias is in units of both scales and alpha. */
static tacit_status q_gemm(spelling *s)
{
    const ir_node *node = s->u.node;
    bool trans_b = ir_attr_int(node, "transB", 0) != 0;
    double alpha = ir_attr_float(node, "alpha", 1);
    ir_value *a = triple(s, 0), *b = columns(s, 3, in(s, 4), in(s, 5), trans_b ? 0 : 1);
    ir_value *bias = NULL;
    if (in(s, 6)) {
        ir_value *unit = put2(s, "Mul", in(s, 1), in(s, 4));
        ir_value *whole = put2(s, "CastLike", in(s, 6), in(s, 1));
        bias = put2(s, "Mul", whole, put2(s, "Mul", unit, floats(s, "alpha", alpha)));
    }
    ir_value *y = put(s, "Gemm", 3, (ir_value *[]){a, b, bias});
    set_like(s, y, 3, (const char *[]){"transA", "transB", "alpha"});
    return in(s, 7) ? quantize(s, y, 7, in(s, 0)) : become_value(s, y);
}

/* Sums of bytes to numbers: times both scales, plus a bias. */
static tacit_status scaled(spelling *s, ir_value *sums, ir_value *a, ir_value *b, ir_value *bias)
{
    ir_value *y = put2(s, "Mul", put2(s, "CastLike", sums, a), put2(s, "Mul", a, b));
    return become(s, "", bias ? "Add" : "Identity", 2, (ir_value *[]){y, bias});
}

static tacit_status integer_to_float(spelling *s)
{
    ir_value *sums =
        put(s, "MatMulInteger", 4, (ir_value *[]){in(s, 0), in(s, 1), in(s, 4), in(s, 5)});
    return scaled(s, sums, in(s, 2), in(s, 3), in(s, 6));
}

static tacit_status dynamic_matmul(spelling *s)
{
    ir_value *x = in(s, 0);
    ir_node *q = ir_node_new(s->u.g, "DynamicQuantizeLinear", "", s->u.node->name, 1, &x, 3, NULL);
    if (!q)
        return rewrite_no_memory(&s->u);
    op_resolve(NULL, q);
    ir_node_inherit_notes(s->u.g, q, s->u.node);
    ir_value *sums = put(s, "MatMulInteger", 4,
                         (ir_value *[]){q->outputs[0], in(s, 1), q->outputs[2], in(s, 3)});
    return scaled(s, sums, q->outputs[1], in(s, 2), in(s, 4));
}

/* --- fused by the optimiser ------------------------------------------------------------------- */

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
        return become_value(s, x);
    if (strcmp(type, "Clip") == 0 && n == 2)
        return become(s, "", "Clip", 3,
                      (ir_value *[]){x, floats(s, "low", p[0]), floats(s, "high", p[1])});
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].type, type) != 0)
            continue;
        ir_value *y = put(s, type, 1, &x);
        if (known[i].first)
            set_float(s, y, known[i].first, n > 0 ? p[0] : known[i].a);
        if (known[i].second)
            set_float(s, y, known[i].second, n > 1 ? p[1] : known[i].b);
        return become_value(s, y);
    }
    return error_set(s->u.err, TACIT_ERR_UNSUPPORTED, "activation '%s' is not supported", type);
}

static tacit_status fused_conv(spelling *s)
{
    static const char *const names[] = {"auto_pad",     "dilations", "group",
                                        "kernel_shape", "pads",      "strides"};
    uint32_t n = 0;
    const double *p = ir_attr_floats(s->u.node, "activation_params", &n);
    ir_value *y = put(s, "Conv", 3, (ir_value *[]){in(s, 0), in(s, 1), in(s, 2)});
    set_like(s, y, sizeof names / sizeof *names, names);
    if (in(s, 3))
        y = put2(s, "Add", y, in(s, 3));
    return activate(s, y, n, p);
}

static tacit_status fused_gemm(spelling *s)
{
    const ir_node *node = s->u.node;
    const ir_attr *a = ir_attr_find(node, "activation_alpha");
    const ir_attr *b = ir_attr_find(node, "activation_beta");
    double p[2] = {ir_attr_float(node, "activation_alpha", 0),
                   ir_attr_float(node, "activation_beta", 0)};
    ir_value *y = put(s, "Gemm", 3, (ir_value *[]){in(s, 0), in(s, 1), in(s, 2)});
    set_like(s, y, 4, (const char *[]){"alpha", "beta", "transA", "transB"});
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

static tacit_status expand_dims(spelling *s)
{
    ir_value *all = rewrite_ints(&s->u, "axis", 1, (int64_t[]){-1});
    s->failed |= !all;
    return become(s, "", "Unsqueeze", 2,
                  (ir_value *[]){in(s, 0), put2(s, "Reshape", in(s, 1), all)});
}

/* --- transformers in bytes -------------------------------------------------------------------- */

static tacit_status q_attention(spelling *s)
{
    ir_value *x = dequantized(s, in(s, 0), in(s, 3), in(s, 6));
    ir_value *w = columns(s, 1, in(s, 4), in(s, 7), 1);
    return become_other(s, "Attention", 5, (ir_value *[]){x, w, in(s, 2), in(s, 5), in(s, 8)});
}

static tacit_status q_embed(spelling *s)
{
    ir_value *inputs[8] = {in(s, 0), in(s, 1), NULL, NULL, NULL, NULL, NULL, in(s, 7)};
    for (uint32_t k = 0; k < 5; k++)
        if (in(s, 2 + k))
            inputs[2 + k] = dequantized(s, in(s, 2 + k), in(s, 8 + k), in(s, 13 + k));
    return become_other(s, "EmbedLayerNormalization", 8, inputs);
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct {
    const char *type;
    tacit_status (*rule)(spelling *s);
    uint64_t needed; /* inputs, as bits */
} rows[] = {
    {"DequantizeLinear", in_onnx, 0x3},
    {"DynamicQuantizeMatMul", dynamic_matmul, 0x7},
    {"ExpandDims", expand_dims, 0x3},
    {"FusedConv", fused_conv, 0x3},
    {"FusedGemm", fused_gemm, 0x3},
    {"GatherND", in_onnx, 0x3},
    {"MatMulIntegerToFloat", integer_to_float, 0xf},
    {"Pad", in_onnx, 0x3},
    {"QAttention", q_attention, 0x1f},
    {"QEmbedLayerNormalization", q_embed, 0x1b6d},
    {"QGemm", q_gemm, 0x1b},
    {"QLinearAdd", q_add, 0x5b},
    {"QLinearAveragePool", q_average_pool, 0xb},
    {"QLinearConcat", q_concat, 0xd},
    {"QLinearGlobalAveragePool", q_global_average_pool, 0xb},
    {"QLinearLeakyRelu", q_leaky_relu, 0xb},
    {"QLinearMul", q_mul, 0x5b},
    {"QLinearSigmoid", q_sigmoid, 0xb},
    {"QLinearSoftmax", q_softmax, 0xb},
    {"QLinearWhere", q_where, 0xb7},
    {"QuantizeLinear", in_onnx, 0x3},
    {"Range", in_onnx, 0x3},
    {"TransposeMatMul", transpose_matmul, 0x3},
    {"Trilu", in_onnx, 0x1},
};

const char *load_contrib_name(size_t index)
{
    return index < sizeof rows / sizeof *rows ? rows[index].type : NULL;
}

tacit_status load_contrib(ir_graph *g, ir_node *node, tacit_error *err)
{
    if (node->op || strcmp(node->domain, "com.microsoft") != 0)
        return TACIT_OK;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].type, node->type) != 0)
            continue;
        spelling s = {.u = {g, node, 1, err}};
        for (uint32_t k = 0; rows[i].needed >> k; k++)
            if ((rows[i].needed >> k & 1) && !in(&s, k))
                return error_set(err, TACIT_ERR_GRAPH, "input %u is missing", k);
        ir_node_note(g, node, "load", "com.microsoft.%s spelled out", rows[i].type);
        return rows[i].rule(&s);
    }
    return TACIT_OK;
}
