/* SPDX-License-Identifier: Apache-2.0
 * Tacit's own fused Attention and Norm. */
#include <math.h>

#include "op/attention.h"
#include "op/build.h"
#include "op/lowerings.h"
#include "op/range.h"
#include "op/values.h"

/* --- Attention(Q, K, V, mask?): [B,H,S,D] ----------------------------------------------------- */

static tacit_status attention_infer(op_infer *c)
{
    char text[3][IR_SHAPE_TEXT];
    const ir_shape *q = &c->in[0]->shape, *k = &c->in[1]->shape, *v = &c->in[2]->shape;
    const ir_type *mask = op_in_type(c, 3);
    TRY(op_need_float(c, 0));
    if (c->in[1]->dtype != c->in[0]->dtype || c->in[2]->dtype != c->in[0]->dtype)
        return error_set(c->err, TACIT_ERR_TYPE, "Q, K and V differ in type");
    if (q->rank != 4 || k->rank != 4 || v->rank != 4 || q->dims[0] != k->dims[0] ||
        k->dims[0] != v->dims[0] || k->dims[1] != v->dims[1] || k->dims[2] != v->dims[2] ||
        q->dims[3] != k->dims[3] || k->dims[1] < 1 || q->dims[1] % k->dims[1])
        return error_set(c->err, TACIT_ERR_SHAPE, "Q %s, K %s, V %s do not fit",
                         ir_shape_text(q, text[0]), ir_shape_text(k, text[1]),
                         ir_shape_text(v, text[2]));
    if (mask) {
        ir_shape all = ir_shape_of(4, (int64_t[]){q->dims[0], q->dims[1], q->dims[2], k->dims[2]});
        ir_shape both;
        TRY(ir_shape_broadcast(&all, &mask->shape, &both, c->err));
        if (!ir_shape_equal(&both, &all))
            return error_set(c->err, TACIT_ERR_SHAPE, "mask %s does not broadcast to %s",
                             ir_shape_text(&mask->shape, text[0]), ir_shape_text(&all, text[1]));
    }
    bool bshd = op_attention_bshd(c->node);
    op_set_out_dims(
        c, 0, c->in[0]->dtype, 4,
        (int64_t[]){q->dims[0], q->dims[bshd ? 2 : 1], q->dims[bshd ? 1 : 2], v->dims[3]});
    return TACIT_OK;
}

static tacit_status attention_eval(op_eval *c)
{
    const int64_t *q = op_in(c, 0)->shape.dims, *k = op_in(c, 1)->shape.dims;
    op_attention a;
    TRY(op_attention_of(c, 1, 2, &a));
    a.offset = ir_attr_int(c->node, "causal_offset", 0);
    TRY(op_attention_mask(c, op_in(c, 3), (int64_t[]){q[0], q[1], q[2], k[2]}, &a));
    TRY(op_attention_run(c, &a));
    op_output_f64(c, 0, a.y.data);
    return TACIT_OK;
}

/* Each key head repeated for its group of query heads. */
static ir_value *repeat_heads(ir_graph *g, ir_value *x, int64_t heads)
{
    const int64_t *d = x->type.shape.dims;
    int64_t group = heads / d[1];
    if (group == 1)
        return x;
    ir_value *y = op_build_reshape(g, x, 5, (int64_t[]){d[0], d[1], 1, d[2], d[3]});
    y = op_build2(g, "Expand", y, op_build_ints(g, 5, (int64_t[]){d[0], d[1], group, d[2], d[3]}));
    return op_build_reshape(g, y, 4, (int64_t[]){d[0], heads, d[2], d[3]});
}

/* What causality and the window hide, as an additive [sq, sk] constant. */
static ir_value *hidden_bias(ir_graph *g, const ir_node *node, tacit_dtype dtype, int64_t sq,
                             int64_t sk)
{
    ir_shape s = ir_shape_of(2, (int64_t[]){sq, sk});
    ir_tensor *t = ir_tensor_new(g->memory, dtype, &s);
    bool causal = ir_attr_int(node, "causal", 0) != 0;
    int64_t offset = ir_attr_int(node, "causal_offset", 0), window = ir_attr_int(node, "window", 0);
    for (int64_t i = 0; t && i < sq; i++)
        for (int64_t j = 0; j < sk; j++) {
            bool off = (causal && j > i + offset) || (window > 0 && j <= i + offset - window);
            ir_store_f64(dtype, t->data, i * sk + j, off ? -INFINITY : 0);
        }
    return t ? ir_constant_new(g, "hidden", t) : NULL;
}

static tacit_status attention_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *q = node->inputs[0], *k = node->inputs[1], *v = node->inputs[2];
    ir_value *mask = node->n_inputs > 3 ? node->inputs[3] : NULL;
    tacit_dtype dtype = q->type.dtype;
    int64_t heads = q->type.shape.dims[1], sq = q->type.shape.dims[2], sk = k->type.shape.dims[2];
    double cap = ir_attr_float(node, "softcap", 0);
    static const int64_t swap[] = {0, 1, 3, 2}, bshd[] = {0, 2, 1, 3};
    ir_value *s =
        op_build2(g, "MatMul", q, op_build_transpose(g, repeat_heads(g, k, heads), 4, swap));
    s = op_build2(g, "Mul", s, op_build_scalar(g, dtype, ir_attr_float(node, "scale", 1)));
    if (cap > 0) {
        ir_value *limit = op_build_scalar(g, dtype, cap);
        s = op_build2(g, "Mul", op_build1(g, "Tanh", op_build2(g, "Div", s, limit)), limit);
    }
    if (mask && mask->type.dtype == TACIT_BOOL)
        s = op_build3(g, "Where", mask, s, op_build_scalar(g, dtype, -INFINITY));
    else if (mask)
        s = op_build2(g, "Add", s, mask);
    if (ir_attr_int(node, "causal", 0) || ir_attr_int(node, "window", 0) > 0)
        s = op_build2(g, "Add", s, hidden_bias(g, node, dtype, sq, sk));
    ir_value *y = op_build2(g, "MatMul", op_build1(g, "Softmax", s), repeat_heads(g, v, heads));
    if (op_attention_bshd(node))
        y = op_build_transpose(g, y, 4, bshd);
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- Norm(X, scale?, bias?, residual?) → (Y, sum?) -------------------------------------------- */

static tacit_status norm_infer(op_infer *c)
{
    const ir_type *x = c->in[0];
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    if (x->shape.rank < 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "a scalar has no last axis");
    TRY(op_need_shape(c, 1, 1, &x->shape.dims[x->shape.rank - 1]));
    TRY(op_need_shape(c, 2, 1, &x->shape.dims[x->shape.rank - 1]));
    TRY(op_need_shape(c, 3, x->shape.rank, x->shape.dims));
    op_set_out(c, 0, x->dtype, &x->shape);
    op_set_out(c, 1, x->dtype, &x->shape);
    return TACIT_OK;
}

static tacit_status norm_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    double epsilon = ir_attr_float(c->node, "epsilon", 1e-5), *x, *scale, *bias, *residual;
    bool rms = ir_attr_int(c->node, "rms", 0) != 0;
    int64_t size = s->dims[s->rank - 1], rows = size ? ir_shape_size(s) / size : 0;
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &scale));
    TRY(op_input_f64(c, 2, &bias));
    TRY(op_input_f64(c, 3, &residual));
    for (int64_t i = 0; residual && i < rows * size; i++)
        x[i] += residual[i];
    op_output_f64(c, 1, x);
    for (int64_t r = 0; r < rows; r++) {
        double *row = x + r * size, mean = 0, squares = 0;
        for (int64_t i = 0; !rms && i < size; i++)
            mean += row[i] / (double)size;
        for (int64_t i = 0; i < size; i++)
            squares += (row[i] - mean) * (row[i] - mean);
        double f = 1 / sqrt(squares / (double)size + epsilon);
        for (int64_t i = 0; i < size; i++)
            row[i] = (row[i] - mean) * f * (scale ? scale[i] : 1) + (bias ? bias[i] : 0);
    }
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

/* A constant of ones, where the plain op insists on a scale. */
static ir_value *ones(ir_graph *g, tacit_dtype dtype, int64_t n)
{
    ir_shape s = ir_shape_of(1, &n);
    ir_tensor *t = ir_tensor_new(g->memory, dtype, &s);
    for (int64_t i = 0; t && i < n; i++)
        ir_store_f64(dtype, t->data, i, 1);
    return t ? ir_constant_new(g, "ones", t) : NULL;
}

static tacit_status norm_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0], *scale = node->n_inputs > 1 ? node->inputs[1] : NULL;
    ir_value *bias = node->n_inputs > 2 ? node->inputs[2] : NULL;
    const ir_shape *s = &x->type.shape;
    bool rms = ir_attr_int(node, "rms", 0) != 0;
    if (node->n_inputs > 3 && node->inputs[3])
        x = op_build2(g, "Add", x, node->inputs[3]);
    if (!scale)
        scale = ones(g, node->inputs[0]->type.dtype, s->dims[s->rank - 1]);
    ir_value *y = rms    ? op_build2(g, "RMSNormalization", x, scale)
                  : bias ? op_build3(g, "LayerNormalization", x, scale, bias)
                         : op_build2(g, "LayerNormalization", x, scale);
    if (y && !ir_attr_set_float(g, y->producer, "epsilon", ir_attr_float(node, "epsilon", 1e-5)))
        y = NULL;
    if (rms && bias)
        y = op_build2(g, "Add", y, bias);
    TRY(op_build_finish(g, node, 0, y, err));
    TRY(op_build_finish(g, node, 1, x, err));
    ir_node_kill(node);
    return TACIT_OK;
}

const op_def op_rows_fused_attention[] = {
    {.name = "Attention",
     .domain = "tacit",
     .min_in = 3,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = attention_infer,
     .eval = attention_eval,
     .decompose = attention_decompose,
     .lower = op_lower_attention,
     .accepts = op_accepts_attention,
     .range = op_bounds_fused_attention},
    {.name = "Norm",
     .domain = "tacit",
     .min_in = 1,
     .max_in = 4,
     .min_out = 1,
     .max_out = 2,
     .infer = norm_infer,
     .eval = norm_eval,
     .decompose = norm_decompose,
     .inplace = 9,
     .lower = op_lower_norm,
     .range = op_bounds_fused_norm},
    {0},
};
