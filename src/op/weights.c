/* SPDX-License-Identifier: Apache-2.0
 * tacit products with compressed or adapted weights: DequantMatMul, DequantizeGguf, LoraMatMul,
 * GroupedMatMul and its routing. */
#include <math.h>
#include <string.h>

#include "op/activation.h"
#include "op/build.h"
#include "op/gemm.h"
#include "op/lowerings.h"
#include "op/narrow.h"
#include "op/strip.h"
#include "op/values.h"
#include "op/vjp.h"

/* --- DequantMatMul(x, w, scale?, zero?, bias?, residual?) ---------------------------------------
 */

static tacit_status dequant_infer(op_infer *c)
{
    op_narrow s;
    op_activation act;
    const ir_shape *x = &c->in[0]->shape;
    TRY(op_need_float(c, 0));
    if (x->rank < 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "x must have at least one axis");
    TRY(op_narrow_read(c->node, x->dims[x->rank - 1], &s, c->err));
    TRY(op_narrow_check(c, &s));
    TRY(op_activation_read(c->node, &act, c->err));
    ir_shape y = *x;
    y.dims[y.rank - 1] = s.n;
    TRY(op_need_shape(c, 4, 1, &s.n));
    TRY(op_need_shape(c, 5, y.rank, y.dims));
    for (uint32_t i = 4; i < 6; i++)
        if (op_in_type(c, i) && op_in_type(c, i)->dtype != c->in[0]->dtype)
            return error_set(c->err, TACIT_ERR_TYPE, "input %u is not of x's type", i);
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

/* x as its kernel sees it: every group of 32 rounded to 127 steps of its largest magnitude. */
static void round_rows(double *x, int64_t rows, int64_t k)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t g = 0; g < k; g += CPU_QGROUP) {
            double *v = x + i * k + g;
            int64_t n = k - g < CPU_QGROUP ? k - g : CPU_QGROUP;
            float most = 0;
            for (int64_t e = 0; e < n; e++)
                most = fmaxf(most, fabsf((float)v[e]));
            float factor = most > 0 ? 127.0f / most : 0, step = most / 127.0f;
            for (int64_t e = 0; e < n; e++)
                v[e] = isfinite(v[e]) ? op_round_even((float)v[e] * factor) * step : NAN;
        }
}

static tacit_status dequant_eval(op_eval *c)
{
    op_narrow s;
    op_activation act;
    const ir_tensor *x = op_in(c, 0);
    double *matrix, *row, *y, *rows, *bias, *residual;
    double alpha = ir_attr_float(c->node, "alpha", 1);
    bool last = ir_attr_int(c->node, "activation_last", 0) != 0;
    TRY(op_narrow_read(c->node, x->shape.dims[x->shape.rank - 1], &s, c->err));
    TRY(op_activation_read(c->node, &act, c->err));
    TRY(op_scratch_f64(c, s.k * s.n, &matrix));
    TRY(op_scratch_f64(c, s.k, &row));
    op_narrow_data d = {op_in(c, 1), op_in(c, 2), op_in(c, 3), op_in(c, 1)->data};
    op_narrow_decode(&s, &d, row, matrix);
    TRY(op_input_f64(c, 0, &rows));
    TRY(op_input_f64(c, 4, &bias));
    TRY(op_input_f64(c, 5, &residual));
    if (s.int8_rows)
        round_rows(rows, ir_tensor_count(x) / s.k, s.k);
    ir_shape shape = ir_shape_of(2, (int64_t[]){s.k, s.n});
    ir_tensor a = ir_tensor_view(TACIT_F64, &x->shape, rows);
    ir_tensor b = ir_tensor_view(TACIT_F64, &shape, matrix);
    op_matmul p = {0};
    TRY(op_matmul_plan(&p, &x->shape, &shape, c->err));
    int64_t count = ir_shape_size(&p.y);
    TRY(op_scratch_f64(c, count, &y));
    TRY(op_matmul_f64(c, &p, &a, &b, y));
    for (int64_t i = 0; i < count; i++) {
        double v = alpha * y[i] + (bias ? bias[i % s.n] : 0), r = residual ? residual[i] : 0;
        y[i] = last ? op_activation_apply(&act, v + r) : op_activation_apply(&act, v) + r;
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

/* --- DequantizeGguf(bytes): attributes type and (or row by row) shape → f32
 * ---------------------------------------- */

static tacit_status unpack_infer(op_infer *c)
{
    uint32_t rank;
    const int64_t *dims = ir_attr_ints(c->node, "shape", &rank);
    const op_gguf_type *t = op_gguf_by_name(ir_attr_string(c->node, "type", NULL));
    const ir_shape *x = &c->in[0]->shape;
    if (!t || c->in[0]->dtype != TACIT_U8 || x->rank < 1)
        return error_set(c->err, TACIT_ERR_VALUE, "needs u8 bytes and a known type");
    ir_shape y = *x; /* without a shape: each row of bytes is a row of values */
    if (dims && (rank < 1 || rank > IR_MAX_RANK))
        return error_set(c->err, TACIT_ERR_VALUE, "needs a shape of 1 to %d axes", IR_MAX_RANK);
    if (dims)
        y = ir_shape_of((int32_t)rank, dims);
    else
        y.dims[y.rank - 1] = y.dims[y.rank - 1] / t->bytes * t->elements;
    int64_t count;
    if (!ir_shape_is_static(&y) || !ir_shape_count(&y, &count) ||
        y.dims[y.rank - 1] % t->elements || (!dims && x->dims[x->rank - 1] % t->bytes) ||
        ir_shape_size(x) != count / t->elements * t->bytes)
        return error_set(c->err, TACIT_ERR_SHAPE, "%lld bytes of %s do not make the shape",
                         (long long)ir_shape_size(x), t->name);
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
                                 op_narrow *s, int64_t *experts, tacit_error *err)
{
    if (x->rank != 2)
        return error_set(err, TACIT_ERR_SHAPE, "x must be [rows, k]");
    if (!ir_attr_find(node, "scheme")) {
        if (w->shape.rank != 3 || w->shape.dims[1] != x->dims[1])
            return error_set(err, TACIT_ERR_SHAPE, "W must be [experts, %lld, n]",
                             (long long)x->dims[1]);
        *s = (op_narrow){.k = x->dims[1], .n = w->shape.dims[2]};
        *experts = w->shape.dims[0];
        return TACIT_OK;
    }
    TRY(op_narrow_read(node, x->dims[1], s, err));
    int64_t bytes = s->gguf ? op_narrow_size(s) : 0, have = ir_shape_size(&w->shape);
    if (s->kind != OP_NARROW_GGUF || w->dtype != TACIT_U8 || have % bytes)
        return error_set(err, TACIT_ERR_VALUE,
                         "experts must be packed as gguf blocks of %lld bytes", (long long)bytes);
    *experts = have / bytes;
    return TACIT_OK;
}

static tacit_status grouped_infer(op_infer *c)
{
    op_narrow s;
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
static void expert_matrix(const ir_tensor *w, const op_narrow *s, int64_t expert, double *row,
                          double *out)
{
    if (s->gguf)
        op_narrow_decode(
            s,
            &(op_narrow_data){.w = w,
                              .bytes = (const uint8_t *)w->data + expert * op_narrow_size(s)},
            row, out);
    else
        op_strip_load_f64(w->dtype, w->data, expert * s->k * s->n, 1, s->k * s->n, out);
}

static tacit_status grouped_eval(op_eval *c)
{
    op_narrow s;
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
    ROW("DequantMatMul", 2, 6, 1, dequant_infer, dequant_eval, .lower = op_lower_narrow,
        .spell = op_spell_dequant_matmul, .vjp = op_vjp_packed_matmul),
    ROW("DequantizeGguf", 1, 1, 1, unpack_infer, unpack_eval, .flags = OP_NOT_DIFFERENTIABLE),
    ROW("LoraMatMul", 4, 4, 1, lora_infer, lora_eval, .decompose = lora_decompose),
    ROW("GroupedMatMul", 3, 3, 1, grouped_infer, grouped_eval, .vjp = op_vjp_grouped_matmul),
    ROW("MoeRoute", 1, 1, 2, route_infer, route_eval, .spell = op_spell_moe_route),
    {0},
};
