/* SPDX-License-Identifier: Apache-2.0
 * com.microsoft: activations with a bias, and norms with a residual, as exported transformers
 * carry them. */
#include <math.h>
#include <string.h>

#include "op/build.h"
#include "op/loop.h"
#include "op/strip.h"
#include "op/values.h"
#include "op/vjp.h"

static const char microsoft[] = "com.microsoft";

/* --- Gelu, BiasGelu, FastGelu, QuickGelu -------------------------------------------------------
 */

typedef double unary_fn(double x, double alpha);

static double gelu_erf(double x, double alpha)
{
    (void)alpha;
    if (x == -INFINITY)
        return -0.0; /* the limit, not inf·0 */
    return 0.5 * x * (1 + erf(x * M_SQRT1_2));
}
static double gelu_tanh(double x, double alpha)
{
    (void)alpha;
    if (x == -INFINITY)
        return -0.0; /* the limit, not inf·0 */
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
static double gelu_quick(double x, double alpha)
{
    return x / (1 + exp(-alpha * x));
}

static tacit_status bias_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    if (op_in_type(c, 1) && x->rank < 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "a scalar takes no bias");
    if (op_in_type(c, 1))
        TRY(op_need_shape(c, 1, 1, &x->dims[x->rank - 1]));
    return op_infer_same(c);
}

static tacit_status eval_biased(op_eval *c, unary_fn *f)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    double alpha = ir_attr_float(c->node, "alpha", 1.702), *x, *bias;
    int64_t last = s->rank ? s->dims[s->rank - 1] : 1;
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &bias));
    for (int64_t i = 0; i < ir_shape_size(s); i++)
        x[i] = f(x[i] + (bias ? bias[i % last] : 0), alpha);
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

static tacit_status gelu_eval(op_eval *c)
{
    return eval_biased(c, gelu_erf);
}
static tacit_status fast_gelu_eval(op_eval *c)
{
    return eval_biased(c, gelu_tanh);
}
static tacit_status quick_gelu_eval(op_eval *c)
{
    return eval_biased(c, gelu_quick);
}

static tacit_status gelu_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0];
    if (node->n_inputs > 1 && node->inputs[1])
        x = op_build2(g, "Add", x, node->inputs[1]);
    ir_value *y = op_build1(g, "Gelu", x);
    if (y && strcmp(node->type, "FastGelu") == 0 &&
        !ir_attr_set_string(g, y->producer, "approximate", "tanh"))
        y = NULL;
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

static tacit_status quick_gelu_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0];
    ir_value *alpha = op_build_scalar(g, x->type.dtype, ir_attr_float(node, "alpha", 1.702));
    ir_value *gate = op_build1(g, "Sigmoid", op_build2(g, "Mul", x, alpha));
    TRY(op_build_finish(g, node, 0, op_build2(g, "Mul", x, gate), err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- SkipLayerNormalization, SkipSimplifiedLayerNormalization ----------------------------------
 */

/* One row: statistics, then scale and shift. */
static void norm_row(double *x, int64_t n, bool rms, double epsilon, const double *gamma,
                     const double *beta, double *mean, double *inverse)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; !rms && i < n; i++)
        sum += x[i];
    *mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += (x[i] - *mean) * (x[i] - *mean);
    *inverse = 1 / sqrt(squares / (double)n + epsilon);
    for (int64_t i = 0; i < n; i++)
        x[i] = (x[i] - *mean) * *inverse * gamma[i] + (beta ? beta[i] : 0);
}

static bool skip_is_rms(const ir_node *node)
{
    return strcmp(node->type, "SkipSimplifiedLayerNormalization") == 0;
}

static tacit_status skip_norm_infer(op_infer *c)
{
    const ir_type *x = c->in[0];
    const ir_shape *s = &x->shape;
    TRY(op_need_float(c, 0));
    if (s->rank < 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "a scalar has no last axis");
    ir_shape both;
    TRY(ir_shape_broadcast(s, &c->in[1]->shape, &both, c->err));
    if (!ir_shape_equal(&both, s))
        return error_set(c->err, TACIT_ERR_SHAPE, "skip does not broadcast to the input");
    for (uint32_t i = 2; i < c->n_in; i++)
        TRY(op_need_shape(c, i, 1, &s->dims[s->rank - 1]));
    ir_shape row = *s;
    row.dims[row.rank - 1] = 1;
    op_set_out(c, 0, x->dtype, s);
    op_set_out(c, 1, TACIT_F32, &row);
    op_set_out(c, 2, TACIT_F32, &row);
    op_set_out(c, 3, x->dtype, s);
    return TACIT_OK;
}

static tacit_status skip_norm_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    bool rms = skip_is_rms(c->node);
    double epsilon = ir_attr_float(c->node, "epsilon", rms ? 1e-6 : 1e-12);
    double *x, *skip, *gamma, *beta = NULL, *bias, *mean, *inverse;
    int64_t n = s->dims[s->rank - 1], rows = n ? ir_shape_size(s) / n : 0;
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &skip));
    TRY(op_input_f64(c, 2, &gamma));
    if (!rms)
        TRY(op_input_f64(c, 3, &beta));
    TRY(op_input_f64(c, rms ? 3 : 4, &bias));
    TRY(op_scratch_f64(c, rows, &mean));
    TRY(op_scratch_f64(c, rows, &inverse));
    op_loop l;
    op_loop_begin(&l, s);
    op_loop_broadcast(&l, &op_in(c, 1)->shape);
    for (; !op_loop_done(&l); op_loop_next(&l))
        x[l.linear] += skip[l.at[0]] + (bias ? bias[l.linear % n] : 0);
    op_output_f64(c, 3, x);
    for (int64_t r = 0; r < rows; r++)
        norm_row(x + r * n, n, rms, epsilon, gamma, beta, &mean[r], &inverse[r]);
    op_output_f64(c, 0, x);
    op_output_f64(c, 1, mean);
    op_output_f64(c, 2, inverse);
    return TACIT_OK;
}

/* Statistics of doubles are doubles. */
static bool keep_double(ir_graph *g, ir_node *norm, const ir_value *x)
{
    return x->type.dtype != TACIT_F64 ||
           ir_attr_set_int(g, norm, "stash_type", ir_dtype_to_onnx(TACIT_F64));
}

static tacit_status skip_norm_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    bool rms = skip_is_rms(node);
    uint32_t at = rms ? 3 : 4;
    ir_value *bias = node->n_inputs > at ? node->inputs[at] : NULL;
    ir_value *beta = !rms && node->n_inputs > 3 ? node->inputs[3] : NULL;
    bool stats =
        (node->n_outputs > 1 && node->outputs[1]) || (node->n_outputs > 2 && node->outputs[2]);
    if (rms && stats)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "the statistics of '%s' have no plain form",
                         node->name);
    ir_value *x = op_build2(g, "Add", node->inputs[0], node->inputs[1]);
    if (bias)
        x = op_build2(g, "Add", x, bias);
    if (!x)
        return error_memory(err, "decomposing a node");
    ir_value *in[3] = {x, node->inputs[2], beta};
    ir_node *norm = ir_node_new(g, rms ? "RMSNormalization" : "LayerNormalization", "", NULL,
                                beta ? 3 : 2, in, rms ? 1 : 3, NULL);
    if (!norm ||
        !ir_attr_set_float(g, norm, "epsilon",
                           ir_attr_float(node, "epsilon", rms ? 1e-6 : 1e-12)) ||
        !keep_double(g, norm, node->inputs[0]))
        return error_memory(err, "decomposing a node");
    op_resolve(NULL, norm);
    for (uint32_t i = 0; i < (rms ? 1u : 3u); i++)
        TRY(op_build_finish(g, node, i, norm->outputs[i], err));
    TRY(op_build_finish(g, node, 3, x, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- EmbedLayerNormalization -------------------------------------------------------------------
 */

static tacit_status embed_infer(op_infer *c)
{
    static const uint32_t needed[] = {0, 2, 3, 5, 6};
    for (uint32_t i = 0; i < 5; i++)
        if (!op_in_type(c, needed[i]))
            return error_set(c->err, TACIT_ERR_GRAPH, "input %u is missing", needed[i]);
    TRY(op_need_float(c, 2));
    const ir_shape *ids = &c->in[0]->shape, *words = &c->in[2]->shape;
    TRY(op_need_rank(c, 0, 2));
    TRY(op_need_rank(c, 2, 2));
    TRY(op_need_rank(c, 3, 2));
    TRY(op_need_rank(c, 4, 2));
    int64_t hidden = words->dims[1];
    for (uint32_t i = 3; i < 5; i++)
        if (op_in_type(c, i) && c->in[i]->shape.dims[1] != hidden)
            return error_set(c->err, TACIT_ERR_SHAPE, "table %u has another width", i);
    TRY(op_need_shape(c, 1, 2, ids->dims));
    TRY(op_need_shape(c, 5, 1, &hidden));
    TRY(op_need_shape(c, 6, 1, &hidden));
    TRY(op_need_shape(c, 7, 2, ids->dims));
    if (op_in_type(c, 1) && !op_in_type(c, 4))
        return error_set(c->err, TACIT_ERR_GRAPH, "segment_ids without a segment table");
    const ir_type *at = op_in_type(c, 8);
    if (at && (at->shape.rank != 2 || at->shape.dims[1] != ids->dims[1] ||
               (at->shape.dims[0] != 1 && at->shape.dims[0] != ids->dims[0])))
        return error_set(c->err, TACIT_ERR_SHAPE, "position_ids do not fit input_ids");
    int64_t y[3] = {ids->dims[0], ids->dims[1], hidden};
    op_set_out_dims(c, 0, c->in[2]->dtype, 3, y);
    op_set_out_dims(c, 1, TACIT_I32, 1, ids->dims);
    op_set_out_dims(c, 2, c->in[2]->dtype, 3, y);
    return TACIT_OK;
}

/* Adds row `id` of the table in input `table` to `to`, by way of `row`. */
static tacit_status add_row(op_eval *c, uint32_t table, int64_t id, int64_t n, double *row,
                            double *to)
{
    const ir_tensor *t = op_in(c, table);
    int64_t count = t->shape.dims[0];
    if (id < 0 || id >= count)
        return error_set(c->err, TACIT_ERR_VALUE, "index %lld is outside table %u of %lld rows",
                         (long long)id, table, (long long)count);
    op_strip_load_f64(t->dtype, t->data, id * n, 1, n, row);
    for (int64_t i = 0; i < n; i++)
        to[i] += row[i];
    return TACIT_OK;
}

static tacit_status embed_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    int64_t batch = s->dims[0], length = s->dims[1], n = op_in(c, 2)->shape.dims[1];
    int64_t *ids, *segments, *mask, *positions, *lengths;
    double *row, *gamma, *beta, *y, epsilon = ir_attr_float(c->node, "epsilon", 1e-12), skip[2];
    TRY(op_input_i64(c, 0, &ids));
    TRY(op_input_i64(c, 1, &segments));
    TRY(op_input_i64(c, 7, &mask));
    TRY(op_input_i64(c, 8, &positions));
    TRY(op_scratch_f64(c, n, &row));
    TRY(op_input_f64(c, 5, &gamma));
    TRY(op_input_f64(c, 6, &beta));
    TRY(op_scratch_f64(c, batch * length * n, &y));
    TRY(op_scratch_i64(c, batch, &lengths));
    bool shared = positions && op_in(c, 8)->shape.dims[0] == 1;
    for (int64_t r = 0; r < batch * length; r++) {
        int64_t at = positions ? positions[shared ? r % length : r] : r % length;
        TRY(add_row(c, 2, ids[r], n, row, y + r * n));
        TRY(add_row(c, 3, at, n, row, y + r * n));
        if (segments)
            TRY(add_row(c, 4, segments[r], n, row, y + r * n));
        lengths[r / length] += mask && mask[r] != 0;
    }
    op_output_f64(c, 2, y);
    for (int64_t r = 0; r < batch * length; r++)
        norm_row(y + r * n, n, false, epsilon, gamma, beta, &skip[0], &skip[1]);
    op_output_f64(c, 0, y);
    op_output_i64(c, 1, lengths);
    return TACIT_OK;
}

/* How many entries of each row of the mask are not 0. */
static ir_value *mask_lengths(ir_graph *g, ir_value *mask, int64_t batch)
{
    if (!mask) {
        ir_tensor *none =
            ir_tensor_new(g->memory, TACIT_I32, &(ir_shape){.rank = 1, .dims = {batch}});
        for (int64_t i = 0; none && i < batch; i++)
            ir_store_i64(TACIT_I32, none->data, i, 0);
        return none ? ir_constant_new(g, "lengths", none) : NULL;
    }
    ir_value *seen = op_build_cast(g, op_build_cast(g, mask, TACIT_BOOL), TACIT_I32);
    ir_value *y = op_build_reduce(g, "ReduceSum", seen, 1, (int64_t[]){1});
    return y && ir_attr_set_int(g, y->producer, "keepdims", 0) ? y : NULL;
}

/* A row of the table for every position, where the node does not say which: [1, S, H]. */
static ir_value *first_rows(ir_graph *g, ir_value *table, int64_t length)
{
    ir_value *in[3] = {table, op_build_ints(g, 1, (int64_t[]){0}), op_build_ints(g, 1, &length)};
    ir_node *rows = in[1] && in[2] ? op_node(g, "Slice", NULL, 3, in) : NULL;
    return rows ? op_build_reshape(g, rows->outputs[0], 3,
                                   (int64_t[]){1, length, table->type.shape.dims[1]})
                : NULL;
}

static tacit_status embed_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    const ir_shape *s = &node->inputs[0]->type.shape;
    ir_value *in[9] = {0};
    for (uint32_t i = 0; i < node->n_inputs; i++)
        in[i] = node->inputs[i];
    if (!in[8] && in[3]->type.shape.dims[0] < s->dims[1])
        return error_set(err, TACIT_ERR_UNSUPPORTED, "the table has too few positions");
    ir_value *sum = op_build2(g, "Gather", in[2], in[0]);
    sum =
        op_build2(g, "Add", sum,
                  in[8] ? op_build2(g, "Gather", in[3], in[8]) : first_rows(g, in[3], s->dims[1]));
    if (in[1])
        sum = op_build2(g, "Add", sum, op_build2(g, "Gather", in[4], in[1]));
    ir_value *y = op_build3(g, "LayerNormalization", sum, in[5], in[6]);
    if (y &&
        (!ir_attr_set_float(g, y->producer, "epsilon", ir_attr_float(node, "epsilon", 1e-12)) ||
         !keep_double(g, y->producer, in[2])))
        y = NULL;
    TRY(op_build_finish(g, node, 0, y, err));
    if (node->n_outputs > 1 && node->outputs[1])
        TRY(op_build_finish(g, node, 1, mask_lengths(g, in[7], s->dims[0]), err));
    TRY(op_build_finish(g, node, 2, sum, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- SimplifiedLayerNormalization: RMSNormalization under its older name -----------------------
 */

static tacit_status simplified_infer(op_infer *c)
{
    const ir_type *x = c->in[0];
    int32_t axis;
    TRY(op_need_float(c, 0));
    TRY(op_need_float(c, 1));
    TRY(ir_axis(ir_attr_int(c->node, "axis", -1), x->shape.rank, &axis, c->err));
    TRY(op_need_shape(c, 1, x->shape.rank - axis, x->shape.dims + axis));
    ir_shape kept = x->shape;
    for (int32_t i = axis; i < kept.rank; i++)
        kept.dims[i] = 1;
    op_set_out(c, 0, c->in[1]->dtype, &x->shape);
    op_set_out(c, 1, TACIT_F32, &kept);
    return TACIT_OK;
}

static tacit_status simplified_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    double *x, *scale, *inverse, mean;
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &scale));
    int32_t axis = s->rank - op_in(c, 1)->shape.rank;
    int64_t n = ir_tensor_count(op_in(c, 1)), rows = 1;
    for (int32_t i = 0; i < axis; i++)
        rows *= s->dims[i];
    TRY(op_scratch_f64(c, rows, &inverse));
    for (int64_t r = 0; r < rows; r++)
        norm_row(x + r * n, n, true, ir_attr_float(c->node, "epsilon", 1e-5), scale, NULL, &mean,
                 &inverse[r]);
    op_output_f64(c, 0, x);
    op_output_f64(c, 1, inverse);
    return TACIT_OK;
}

static tacit_status simplified_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    if (node->inputs[0]->type.dtype != node->inputs[1]->type.dtype ||
        (node->n_outputs > 1 && node->outputs[1]))
        return error_set(err, TACIT_ERR_UNSUPPORTED,
                         "mixed types or statistics have no plain form");
    ir_value *y = op_build2(g, "RMSNormalization", node->inputs[0], node->inputs[1]);
    if (y && (!ir_attr_set_float(g, y->producer, "epsilon", ir_attr_float(node, "epsilon", 1e-5)) ||
              !ir_attr_set_int(g, y->producer, "axis", ir_attr_int(node, "axis", -1)) ||
              !keep_double(g, y->producer, node->inputs[0])))
        y = NULL;
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

#define GELU(op, least, most, eval_rule, decompose_rule)                                           \
    {                                                                                              \
        .name = op, .domain = microsoft, .min_in = least, .max_in = most, .min_out = 1,            \
        .max_out = 1, .infer = bias_infer, .eval = eval_rule, .decompose = decompose_rule,         \
        .inplace = 1                                                                               \
    }

const op_def op_rows_contrib[] = {
    GELU("Gelu", 1, 1, gelu_eval, gelu_decompose),
    GELU("BiasGelu", 2, 2, gelu_eval, gelu_decompose),
    GELU("FastGelu", 1, 2, fast_gelu_eval, gelu_decompose),
    GELU("QuickGelu", 1, 1, quick_gelu_eval, quick_gelu_decompose),
    {.name = "SkipLayerNormalization",
     .domain = microsoft,
     .min_in = 3,
     .max_in = 5,
     .min_out = 1,
     .max_out = 4,
     .infer = skip_norm_infer,
     .eval = skip_norm_eval,
     .decompose = skip_norm_decompose},
    {.name = "SkipSimplifiedLayerNormalization",
     .domain = microsoft,
     .min_in = 3,
     .max_in = 4,
     .min_out = 1,
     .max_out = 4,
     .infer = skip_norm_infer,
     .eval = skip_norm_eval,
     .decompose = skip_norm_decompose},
    {.name = "EmbedLayerNormalization",
     .domain = microsoft,
     .min_in = 1,
     .max_in = 9,
     .min_out = 1,
     .max_out = 3,
     .infer = embed_infer,
     .eval = embed_eval,
     .decompose = embed_decompose,
     .spell = op_spell_embed},
    {.name = "SimplifiedLayerNormalization",
     .decompose = simplified_decompose,
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 2,
     .infer = simplified_infer,
     .eval = simplified_eval,
     .inplace = 1},
    {0},
};
