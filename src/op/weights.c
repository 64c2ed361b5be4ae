/* SPDX-License-Identifier: Apache-2.0
 * tacit products with compressed or adapted weights: DequantMatMul, DequantizeGguf, LoraMatMul,
 * GroupedMatMul and its routing. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "op/build.h"
#include "op/gemm.h"
#include "op/gguf.h"
#include "op/strip.h"
#include "op/values.h"
#include "op/vjp.h"

/* --- weight schemes ------------------------------------------------------------------------------
 * A weight matrix [k, n] in one of:
 *   int8   i8/u8 [k,n]; scale, zero [ceil(k/block), n]
 *   int4   u8, two to a byte in row-major order, low nibble first; zero 8 where none is given
 *   fp8    u8 [k,n]; format e4m3fn (OCP), e4m3_ieee (with infinities) or e5m2; scale [n] or [1]
 *   nvfp4  as int4 with E2M1 codes; scale u8/f8e4m3fn [ceil(k/16), n], global scale one f32
 *   gguf   packed blocks of `type`, each output's k values contiguous ([n,k])                   */

typedef enum scheme_kind {
    SCHEME_INT8,
    SCHEME_INT4,
    SCHEME_FP8,
    SCHEME_NVFP4,
    SCHEME_GGUF
} scheme_kind;

typedef struct scheme {
    scheme_kind kind;
    int64_t k, n, block, blocks;
    const op_gguf_type *gguf;
    int format; /* fp8: 0 e4m3fn, 1 e4m3_ieee, 2 e5m2 */
} scheme;

static int index_of(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static tacit_status scheme_read(const ir_node *node, int64_t k, scheme *s, tacit_error *err)
{
    static const char *const kinds[] = {"int8", "int4", "fp8", "nvfp4", "gguf"};
    static const char *const formats[] = {"e4m3fn", "e4m3_ieee", "e5m2"};
    const char *name = ir_attr_string(node, "scheme", "");
    int kind = index_of(kinds, 5, name);
    if (kind < 0)
        return error_set(err, TACIT_ERR_VALUE, "unknown scheme '%s'", name);
    *s = (scheme){.kind = (scheme_kind)kind, .k = k, .n = ir_attr_int(node, "n", 0)};
    s->block = kind == SCHEME_NVFP4 ? 16 : ir_attr_int(node, "block", k);
    s->format = index_of(formats, 3, ir_attr_string(node, "format", "e4m3fn"));
    s->gguf = op_gguf_by_name(ir_attr_string(node, "type", NULL));
    if (k < 1 || k > INT32_MAX || s->n < 1 || s->n > INT32_MAX || s->block < 1 || s->format < 0)
        return error_set(err, TACIT_ERR_VALUE, "k %lld, n %lld, block %lld or format", (long long)k,
                         (long long)s->n, (long long)s->block);
    s->blocks = (k + s->block - 1) / s->block;
    if (kind == SCHEME_GGUF && (!s->gguf || k % s->gguf->elements))
        return error_set(err, TACIT_ERR_VALUE, "type '%s' does not divide rows of %lld",
                         ir_attr_string(node, "type", ""), (long long)k);
    return TACIT_OK;
}

static int64_t scheme_bytes(const scheme *s)
{
    switch (s->kind) {
    case SCHEME_INT8:
    case SCHEME_FP8:
        return s->k * s->n;
    case SCHEME_INT4:
    case SCHEME_NVFP4:
        return (s->k * s->n + 1) / 2;
    case SCHEME_GGUF:
        break;
    }
    return s->k / s->gguf->elements * s->gguf->bytes * s->n;
}

/* Checks w, scale, zero (or the global scale) at inputs 1, 2, 3. */
static tacit_status scheme_check(const op_infer *c, const scheme *s)
{
    const ir_type *w = c->in[1], *scale = op_in_type(c, 2), *third = op_in_type(c, 3);
    bool narrow = w->dtype == TACIT_U8 || (w->dtype == TACIT_I8 && s->kind == SCHEME_INT8);
    if (!narrow || ir_shape_size(&w->shape) != scheme_bytes(s))
        return error_set(c->err, TACIT_ERR_SHAPE, "the weight must be %lld bytes, not %s of %lld",
                         (long long)scheme_bytes(s), tacit_dtype_text(w->dtype),
                         (long long)ir_shape_size(&w->shape));
    int64_t grid = s->blocks * s->n, scales = scale ? ir_shape_size(&scale->shape) : 0;
    bool fits = s->kind == SCHEME_GGUF  ? !scale && !third
                : s->kind == SCHEME_FP8 ? !third && (!scale || scales == 1 || scales == s->n)
                                        : scales == grid;
    if (fits && third)
        fits = ir_shape_size(&third->shape) == (s->kind == SCHEME_NVFP4 ? 1 : grid);
    return fits ? TACIT_OK
                : error_set(c->err, TACIT_ERR_SHAPE, "scales or zero points do not fit %lld×%lld",
                            (long long)s->blocks, (long long)s->n);
}

/* E4M3 as an IEEE format would read it: the largest exponent means infinity or NaN. */
static double e4m3_ieee(uint8_t b)
{
    int e = b >> 3 & 15, m = b & 7;
    double v = e == 15 ? (m ? NAN : INFINITY) : e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
    return b & 128 ? -v : v;
}

static double fp8(int format, uint8_t b)
{
    return format == 1   ? e4m3_ieee(b)
           : format == 2 ? half_decode(HALF_E5M2, b)
                         : half_decode(HALF_E4M3FN, b);
}

/* The whole matrix as [k, n]. `w`: its bytes. */
static void scheme_decode(const scheme *s, const ir_tensor *w, const uint8_t *bytes,
                          const ir_tensor *scale, const ir_tensor *third, double *out)
{
    double global =
        s->kind == SCHEME_NVFP4 && third ? ir_load_f64(third->dtype, third->data, 0) : 1;
    for (int64_t e = 0; e < s->k * s->n; e++) {
        int64_t p = e / s->n, j = e % s->n, at = p / s->block * s->n + j;
        int nib = s->kind == SCHEME_INT4 || s->kind == SCHEME_NVFP4
                      ? bytes[e / 2] >> (e % 2 * 4) & 15
                      : 0;
        double z = third && s->kind != SCHEME_NVFP4 ? ir_load_f64(third->dtype, third->data, at)
                   : s->kind == SCHEME_INT4         ? 8
                                                    : 0;
        if (s->kind == SCHEME_FP8) {
            bool one = !scale || ir_tensor_count(scale) == 1;
            out[e] = fp8(s->format, bytes[e]) *
                     (scale ? ir_load_f64(scale->dtype, scale->data, one ? 0 : j) : 1);
        } else if (s->kind == SCHEME_NVFP4) {
            double f = scale->dtype == TACIT_U8 ? fp8(0, ((const uint8_t *)scale->data)[at])
                                                : ir_load_f64(scale->dtype, scale->data, at);
            out[e] = half_decode(HALF_E2M1, (uint16_t)nib) * f * global;
        } else {
            double q = s->kind == SCHEME_INT4 ? nib
                       : w->dtype == TACIT_I8 ? (int8_t)bytes[e]
                                              : bytes[e];
            out[e] = (q - z) * ir_load_f64(scale->dtype, scale->data, at);
        }
    }
}

/* GGUF rows lie by output: transposes while decoding. `row`: k values of workspace. */
static void gguf_decode(const scheme *s, const uint8_t *bytes, double *row, double *out)
{
    int64_t blocks = s->k / s->gguf->elements;
    for (int64_t j = 0; j < s->n; j++) {
        for (int64_t b = 0; b < blocks; b++, bytes += s->gguf->bytes)
            s->gguf->decode(bytes, row + b * s->gguf->elements);
        for (int64_t p = 0; p < s->k; p++)
            out[p * s->n + j] = row[p];
    }
}

static tacit_status dequant_infer(op_infer *c)
{
    scheme s;
    const ir_shape *x = &c->in[0]->shape;
    TRY(op_need_float(c, 0));
    if (x->rank < 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "x must have at least one axis");
    TRY(scheme_read(c->node, x->dims[x->rank - 1], &s, c->err));
    TRY(scheme_check(c, &s));
    ir_shape y = *x;
    y.dims[y.rank - 1] = s.n;
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

static tacit_status dequant_eval(op_eval *c)
{
    scheme s;
    const ir_tensor *x = op_in(c, 0), *w = op_in(c, 1);
    double *matrix, *row, *y;
    TRY(scheme_read(c->node, x->shape.dims[x->shape.rank - 1], &s, c->err));
    TRY(op_scratch_f64(c, s.k * s.n, &matrix));
    TRY(op_scratch_f64(c, s.k, &row));
    if (s.kind == SCHEME_GGUF)
        gguf_decode(&s, w->data, row, matrix);
    else
        scheme_decode(&s, w, w->data, op_in(c, 2), op_in(c, 3), matrix);
    ir_shape shape = ir_shape_of(2, (int64_t[]){s.k, s.n});
    ir_tensor b = ir_tensor_view(TACIT_F64, &shape, matrix);
    op_matmul p = {0};
    TRY(op_matmul_plan(&p, &x->shape, &shape, c->err));
    TRY(op_scratch_f64(c, ir_shape_size(&p.y), &y));
    TRY(op_matmul_f64(c, &p, x, &b, y));
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

/* --- DequantizeGguf(bytes): attributes type and shape → f32
 * ---------------------------------------- */

static tacit_status unpack_infer(op_infer *c)
{
    uint32_t rank;
    const int64_t *dims = ir_attr_ints(c->node, "shape", &rank);
    const op_gguf_type *t = op_gguf_by_name(ir_attr_string(c->node, "type", NULL));
    if (!t || !dims || rank < 1 || rank > IR_MAX_RANK || c->in[0]->dtype != TACIT_U8)
        return error_set(c->err, TACIT_ERR_VALUE, "needs u8 bytes, a known type and a shape");
    ir_shape y = ir_shape_of((int32_t)rank, dims);
    int64_t count;
    if (!ir_shape_is_static(&y) || !ir_shape_count(&y, &count) || dims[rank - 1] % t->elements ||
        ir_shape_size(&c->in[0]->shape) != count / t->elements * t->bytes)
        return error_set(c->err, TACIT_ERR_SHAPE, "%lld bytes of %s do not make the shape",
                         (long long)ir_shape_size(&c->in[0]->shape), t->name);
    op_set_out(c, 0, TACIT_F32, &y);
    return TACIT_OK;
}

static tacit_status unpack_eval(op_eval *c)
{
    const op_gguf_type *t = op_gguf_by_name(ir_attr_string(c->node, "type", NULL));
    const uint8_t *from = op_in(c, 0)->data;
    float *to = op_out(c, 0)->data;
    double block[256];
    for (int64_t b = ir_tensor_count(op_out(c, 0)) / t->elements; b-- > 0; from += t->bytes) {
        t->decode(from, block);
        for (int i = 0; i < t->elements; i++)
            *to++ = (float)block[i];
    }
    return TACIT_OK;
}

/* --- LoraMatMul(x, W [k,n], A [k,r], B [r,n]): x·W + scale·(x·A)·B
 * ---------------------------------- */

static tacit_status lora_infer(op_infer *c)
{
    op_matmul main = {0};
    const ir_shape *w = &c->in[1]->shape, *a = &c->in[2]->shape;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    for (uint32_t i = 1; i < 4; i++)
        TRY(op_need_rank(c, i, 2));
    TRY(op_matmul_plan(&main, &c->in[0]->shape, w, c->err));
    TRY(op_need_shape(c, 2, 2, (int64_t[]){w->dims[0], a->dims[1]}));
    TRY(op_need_shape(c, 3, 2, (int64_t[]){a->dims[1], w->dims[1]}));
    op_set_out(c, 0, c->in[0]->dtype, &main.y);
    return TACIT_OK;
}

static tacit_status lora_eval(op_eval *c)
{
    op_matmul main = {0}, down = {0}, up = {0};
    const ir_tensor *x = op_in(c, 0);
    double scale = ir_attr_float(c->node, "scale", 1), *y, *low, *high;
    TRY(op_matmul_plan(&main, &x->shape, &op_in(c, 1)->shape, c->err));
    TRY(op_matmul_plan(&down, &x->shape, &op_in(c, 2)->shape, c->err));
    TRY(op_matmul_plan(&up, &down.y, &op_in(c, 3)->shape, c->err));
    int64_t count = ir_shape_size(&main.y);
    TRY(op_scratch_f64(c, count, &y));
    TRY(op_scratch_f64(c, count, &high));
    TRY(op_scratch_f64(c, ir_shape_size(&down.y), &low));
    TRY(op_matmul_f64(c, &main, x, op_in(c, 1), y));
    TRY(op_matmul_f64(c, &down, x, op_in(c, 2), low));
    ir_tensor middle = ir_tensor_view(TACIT_F64, &down.y, low);
    TRY(op_matmul_f64(c, &up, &middle, op_in(c, 3), high));
    for (int64_t i = 0; i < count; i++)
        y[i] += scale * high[i];
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

static tacit_status lora_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0],
             *scale = op_build_scalar(g, x->type.dtype, ir_attr_float(node, "scale", 1));
    ir_value *low = op_build2(g, "Mul", op_build2(g, "MatMul", x, node->inputs[2]), scale);
    ir_value *y = op_build2(g, "Add", op_build2(g, "MatMul", x, node->inputs[1]),
                            op_build2(g, "MatMul", low, node->inputs[3]));
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- GroupedMatMul(x [m,k], W [E,k,n], ids [m]): row i times matrix ids[i]
 * --------------------------- With scheme "gguf", W is the experts' packed bytes one after the
 * other. */

static tacit_status grouped_read(const ir_node *node, const ir_shape *x, const ir_type *w,
                                 scheme *s, int64_t *experts, tacit_error *err)
{
    if (x->rank != 2)
        return error_set(err, TACIT_ERR_SHAPE, "x must be [rows, k]");
    if (!ir_attr_find(node, "scheme")) {
        if (w->shape.rank != 3 || w->shape.dims[1] != x->dims[1])
            return error_set(err, TACIT_ERR_SHAPE, "W must be [experts, %lld, n]",
                             (long long)x->dims[1]);
        *s = (scheme){.k = x->dims[1], .n = w->shape.dims[2]};
        *experts = w->shape.dims[0];
        return TACIT_OK;
    }
    TRY(scheme_read(node, x->dims[1], s, err));
    int64_t bytes = s->gguf ? scheme_bytes(s) : 0, have = ir_shape_size(&w->shape);
    if (s->kind != SCHEME_GGUF || w->dtype != TACIT_U8 || have % bytes)
        return error_set(err, TACIT_ERR_VALUE,
                         "experts must be packed as gguf blocks of %lld bytes", (long long)bytes);
    *experts = have / bytes;
    return TACIT_OK;
}

static tacit_status grouped_infer(op_infer *c)
{
    scheme s;
    int64_t experts;
    TRY(op_need_float(c, 0));
    TRY(grouped_read(c->node, &c->in[0]->shape, c->in[1], &s, &experts, c->err));
    TRY(op_need_shape(c, 2, 1, c->in[0]->shape.dims));
    if (!ir_dtype_is_int(c->in[2]->dtype))
        return error_set(c->err, TACIT_ERR_TYPE, "expert ids must be integers");
    op_set_out_dims(c, 0, c->in[0]->dtype, 2, (int64_t[]){c->in[0]->shape.dims[0], s.n});
    return TACIT_OK;
}

/* One expert's matrix as [k, n] doubles. */
static void expert_matrix(const ir_tensor *w, const scheme *s, int64_t expert, double *row,
                          double *out)
{
    if (s->gguf)
        gguf_decode(s, (const uint8_t *)w->data + expert * scheme_bytes(s), row, out);
    else
        op_strip_load_f64(w->dtype, w->data, expert * s->k * s->n, 1, s->k * s->n, out);
}

static tacit_status grouped_eval(op_eval *c)
{
    scheme s;
    const ir_tensor *w = op_in(c, 1);
    ir_type type = ir_tensor_type(w);
    int64_t experts, rows = op_in(c, 0)->shape.dims[0], *ids;
    double *x, *matrix, *row, *y;
    TRY(grouped_read(c->node, &op_in(c, 0)->shape, &type, &s, &experts, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_i64(c, 2, &ids));
    TRY(op_scratch_f64(c, s.k * s.n, &matrix));
    TRY(op_scratch_f64(c, s.k, &row));
    TRY(op_scratch_f64(c, rows * s.n, &y));
    for (int64_t i = 0; i < rows; i++)
        if (ids[i] < 0 || ids[i] >= experts)
            return error_set(c->err, TACIT_ERR_VALUE, "row %lld asks for expert %lld of %lld",
                             (long long)i, (long long)ids[i], (long long)experts);
    for (int64_t e = 0; e < experts; e++) {
        bool used = false;
        for (int64_t i = 0; i < rows; i++) {
            if (ids[i] != e)
                continue;
            if (!used)
                expert_matrix(w, &s, e, row, matrix);
            used = true;
            for (int64_t p = 0; p < s.k; p++)
                for (int64_t j = 0; j < s.n; j++)
                    y[i * s.n + j] += x[i * s.k + p] * matrix[p * s.n + j];
        }
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

/* --- MoeRoute(logits [m,E]) → ids [m,k] i64, weights [m,k]: the k most probable experts
 * -------------- */

static tacit_status route_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape;
    int64_t k = ir_attr_int(c->node, "top_k", 1);
    TRY(op_need_float(c, 0));
    TRY(op_need_rank(c, 0, 2));
    if (k < 1 || k > x->dims[1])
        return error_set(c->err, TACIT_ERR_VALUE, "top_k %lld of %lld experts", (long long)k,
                         (long long)x->dims[1]);
    int64_t y[2] = {x->dims[0], k};
    op_set_out_dims(c, 0, TACIT_I64, 2, y);
    op_set_out_dims(c, 1, c->in[0]->dtype, 2, y);
    return TACIT_OK;
}

static tacit_status route_eval(op_eval *c)
{
    const int64_t *d = op_in(c, 0)->shape.dims;
    int64_t k = ir_attr_int(c->node, "top_k", 1), *ids;
    bool renormalise = ir_attr_int(c->node, "normalize", 1) != 0;
    double *x, *weights;
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_i64(c, d[0] * k, &ids));
    TRY(op_scratch_f64(c, d[0] * k, &weights));
    for (int64_t r = 0; r < d[0]; r++) {
        double *row = x + r * d[1], top = -INFINITY, sum = 0, kept = 0;
        for (int64_t e = 0; e < d[1]; e++) {
            if (row[e] != row[e])
                return error_set(c->err, TACIT_ERR_VALUE, "row %lld has a NaN", (long long)r);
            top = fmax(top, row[e]);
        }
        if (!isfinite(top))
            return error_set(c->err, TACIT_ERR_VALUE, "row %lld has no finite maximum",
                             (long long)r);
        for (int64_t e = 0; e < d[1]; e++)
            sum += row[e] = exp(row[e] - top);
        for (int64_t i = 0; i < k; i++) { /* ties go to the smaller index; −1 marks the taken */
            int64_t best = 0;
            for (int64_t e = 1; e < d[1]; e++)
                best = row[e] > row[best] ? e : best;
            ids[r * k + i] = best;
            weights[r * k + i] = row[best] / sum;
            kept += row[best] / sum;
            row[best] = -1;
        }
        for (int64_t i = 0; renormalise && i < k; i++)
            weights[r * k + i] /= kept;
    }
    op_output_i64(c, 0, ids);
    op_output_f64(c, 1, weights);
    return TACIT_OK;
}

#define ROW(op, least, most, outputs, infer_rule, eval_rule, ...)                                  \
    {                                                                                              \
        .name = op, .domain = "tacit", .min_in = least, .max_in = most, .min_out = 1,              \
        .max_out = outputs, .infer = infer_rule, .eval = eval_rule, __VA_ARGS__                    \
    }

const op_def op_rows_weights[] = {
    ROW("DequantMatMul", 2, 4, 1, dequant_infer, dequant_eval),
    ROW("DequantizeGguf", 1, 1, 1, unpack_infer, unpack_eval),
    ROW("LoraMatMul", 4, 4, 1, lora_infer, lora_eval, .decompose = lora_decompose),
    ROW("GroupedMatMul", 3, 3, 1, grouped_infer, grouped_eval, .vjp = op_vjp_grouped_matmul),
    ROW("MoeRoute", 1, 1, 2, route_infer, route_eval),
    {0},
};
