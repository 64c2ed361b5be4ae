/* SPDX-License-Identifier: Apache-2.0
 * Range rules of rows. */
#include <math.h>
#include <string.h>

#include "op/range.h"

static bool given(const op_range *c, uint32_t i)
{
    return i < c->node->n_inputs && c->node->inputs[i];
}

/* The interval without what is only known of its rows and columns. */
static op_interval plain(op_interval x)
{
    return op_range_of(x.lo, x.hi);
}

/* Size of an axis, counted from the last; 1 where there is none. */
static double last_dim(const ir_value *v, int32_t from_end)
{
    const ir_shape *s = &v->type.shape;
    return s->rank > from_end ? (double)s->dims[s->rank - 1 - from_end] : 1;
}

/* Input i as it is broadcast: a row of one element that is repeated has another norm. */
static op_interval broadcast(const op_range *c, uint32_t i)
{
    bool same = last_dim(c->node->inputs[i], 0) == last_dim(c->node->outputs[0], 0);
    return same ? c->in[i] : plain(c->in[i]);
}

static bool is_last_axis(const ir_node *node, int64_t fallback)
{
    int64_t axis = ir_attr_int(node, "axis", fallback);
    return axis == -1 || axis == node->inputs[0]->type.shape.rank - 1;
}

/* ---- moves ---- */

tacit_status op_bounds_same(op_range *c)
{
    for (uint32_t i = 0; i < c->node->n_outputs; i++)
        c->out[i] = plain(c->in[0]); /* rows may have been cut or joined */
    return TACIT_OK;
}

tacit_status op_bounds_joined(op_range *c)
{
    op_interval r = c->in[0];
    for (uint32_t i = 1; i < c->node->n_inputs; i++)
        r = op_range_hull(r, c->in[i]);
    c->out[0] = plain(r);
    return TACIT_OK;
}

/* Towards zero; types that round or wrap have no rule. */
tacit_status op_bounds_cast(op_range *c)
{
    op_interval x = c->in[0];
    tacit_dtype to = c->node->outputs[0]->type.dtype;
    c->out[0] = plain(x);
    if (to == TACIT_BOOL)
        c->out[0] = op_range_of(0, 1);
    else if (to == TACIT_I64 || to == TACIT_I32)
        c->out[0] = op_range_of(fmin(x.lo, trunc(x.lo)), fmax(x.hi, trunc(x.hi)));
    else if (to != TACIT_F32 && to != TACIT_F64)
        return op_no_rule(c->node, "range", c->err);
    return TACIT_OK;
}

/* While training what is kept grows; the mask is of bits. */
tacit_status op_bounds_dropout(op_range *c)
{
    if (given(c, 2) && !(c->in[2].lo == 0 && c->in[2].hi == 0))
        return op_no_rule(c->node, "range", c->err);
    c->out[0] = plain(c->in[0]);
    if (c->node->n_outputs > 1)
        c->out[1] = op_range_of(0, 1);
    return TACIT_OK;
}

tacit_status op_bounds_max_pool(op_range *c)
{
    c->out[0] = plain(c->in[0]);
    if (c->node->n_outputs > 1) /* places in the whole input */
        c->out[1] = op_range_of(0, (double)ir_shape_size(&c->node->inputs[0]->type.shape));
    return TACIT_OK;
}

tacit_status op_bounds_arg(op_range *c)
{
    const ir_shape *s = &c->node->inputs[0]->type.shape;
    int32_t axis;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), s->rank, &axis, c->err));
    c->out[0] = op_range_of(0, fmax((double)s->dims[axis] - 1, 0));
    return TACIT_OK;
}

/* ---- arithmetic ---- */

tacit_status op_bounds_add(op_range *c)
{
    c->out[0] = op_range_add(broadcast(c, 0), broadcast(c, 1));
    return TACIT_OK;
}
tacit_status op_bounds_subtract(op_range *c)
{
    c->out[0] = op_range_sub(broadcast(c, 0), broadcast(c, 1));
    return TACIT_OK;
}
tacit_status op_bounds_multiply(op_range *c)
{
    c->out[0] = op_range_mul(broadcast(c, 0), broadcast(c, 1));
    return TACIT_OK;
}
tacit_status op_bounds_divide(op_range *c)
{
    op_interval y = c->in[1];
    if (y.lo <= 0 && y.hi >= 0)
        return error_set(c->err, TACIT_ERR_LIMIT, "node '%s': Div by an interval that holds zero",
                         c->node->name);
    c->out[0] = op_range_mul(broadcast(c, 0), op_range_of(1 / y.hi, 1 / y.lo));
    if (!ir_dtype_is_float(c->node->outputs[0]->type.dtype)) /* towards zero */
        c->out[0] = op_range_of(fmin(c->out[0].lo, 0), fmax(c->out[0].hi, 0));
    return TACIT_OK;
}

static tacit_status extremum(op_range *c, double (*pick)(double, double))
{
    op_interval r = c->in[0];
    for (uint32_t i = 1; i < c->node->n_inputs; i++)
        r = op_range_of(pick(r.lo, c->in[i].lo), pick(r.hi, c->in[i].hi));
    c->out[0] = plain(r);
    return TACIT_OK;
}
tacit_status op_bounds_max(op_range *c)
{
    return extremum(c, fmax);
}
tacit_status op_bounds_min(op_range *c)
{
    return extremum(c, fmin);
}
tacit_status op_bounds_total_of(op_range *c)
{
    op_interval r = plain(c->in[0]);
    for (uint32_t i = 1; i < c->node->n_inputs; i++)
        r = op_range_add(r, plain(c->in[i]));
    c->out[0] = r;
    return TACIT_OK;
}
tacit_status op_bounds_mean_of(op_range *c)
{
    TRY(op_bounds_total_of(c));
    c->out[0] = op_range_scale(c->out[0], 1 / (double)c->node->n_inputs);
    return TACIT_OK;
}

tacit_status op_bounds_negate(op_range *c)
{
    c->out[0] = op_range_scale(c->in[0], -1);
    return TACIT_OK;
}
tacit_status op_bounds_absolute(op_range *c)
{
    c->out[0] = op_range_leaky(c->in[0], -1);
    return TACIT_OK;
}
tacit_status op_bounds_leaky(op_range *c)
{
    c->out[0] = op_range_leaky(c->in[0], ir_attr_float(c->node, "alpha", 0.01f));
    return TACIT_OK;
}
tacit_status op_bounds_clip(op_range *c)
{
    /* the limits may be anywhere in their own intervals; the upper one wins */
    op_interval r = plain(c->in[0]);
    if (given(c, 1))
        r = op_range_of(fmax(r.lo, c->in[1].lo), fmax(r.hi, c->in[1].hi));
    if (given(c, 2))
        r = op_range_of(fmin(r.lo, c->in[2].lo), fmin(r.hi, c->in[2].hi));
    c->out[0] = r;
    return TACIT_OK;
}

/* ---- activations ---- */

static tacit_status activation(op_range *c, const char *name)
{
    return op_range_activation(name, c->in[0], &c->out[0]) ? TACIT_OK
                                                           : op_no_rule(c->node, "range", c->err);
}
tacit_status op_bounds_relu(op_range *c)
{
    return activation(c, "relu");
}
tacit_status op_bounds_gelu(op_range *c)
{
    return activation(c, "gelu"); /* of both forms: the least value is rounded down */
}
tacit_status op_bounds_sigmoid(op_range *c)
{
    return activation(c, "sigmoid");
}
tacit_status op_bounds_tanh(op_range *c)
{
    return activation(c, "tanh");
}
tacit_status op_bounds_swish(op_range *c)
{
    return activation(c,
                      ir_attr_float(c->node, "alpha", 1) == 1 ? "silu" : "swish by another alpha");
}

/* ---- rows ---- */

tacit_status op_bounds_softmax(op_range *c)
{
    c->out[0] = op_range_of(0, 1);
    c->out[0].norm = is_last_axis(c->node, -1) ? 1 : 0;
    return TACIT_OK;
}

static op_interval scaled_and_moved(const op_range *c, op_interval r, uint32_t bias)
{
    return given(c, bias) ? op_range_add(r, broadcast(c, bias)) : r;
}

/* LayerNormalization (mean and inverse deviation beside it) and RMSNormalization. */
tacit_status op_bounds_norm(op_range *c)
{
    const ir_node *n = c->node;
    const ir_shape *s = &n->inputs[0]->type.shape;
    int32_t axis;
    TRY(ir_axis(ir_attr_int(n, "axis", -1), s->rank, &axis, c->err));
    double k = 1;
    for (int32_t i = axis; i < s->rank; i++)
        k *= (double)s->dims[i];
    op_interval r = op_range_normal(k, given(c, 1) ? c->in[1] : op_range_of(1, 1));
    c->out[0] = scaled_and_moved(c, r, 2);
    if (n->n_outputs > 1)
        c->out[1] = plain(c->in[0]);
    if (n->n_outputs > 2)
        c->out[2] = op_range_of(0, 1 / sqrt(ir_attr_float(n, "epsilon", 1e-5f)));
    return TACIT_OK;
}

/* tacit.Norm: the sum that was normalised beside it. */
tacit_status op_bounds_fused_norm(op_range *c)
{
    op_interval gamma = given(c, 1) ? c->in[1] : op_range_of(1, 1);
    op_interval r = op_range_normal(last_dim(c->node->inputs[0], 0), gamma);
    c->out[0] = scaled_and_moved(c, r, 2);
    if (c->node->n_outputs > 1)
        c->out[1] = scaled_and_moved(c, c->in[0], 3);
    return TACIT_OK;
}

/* ---- products ---- */

/* Sizes of the second operand are of its columns; a transposed one has only its entries. */
static op_interval product(const op_range *c, bool trans_a, bool trans_b)
{
    const ir_node *n = c->node;
    op_interval x = c->in[0], w = c->in[1];
    if (trans_a)
        x.norm = 0;
    if (trans_b || n->inputs[1]->type.shape.rank < 2)
        w.l1 = w.l2 = w.frobenius = 0;
    double k = last_dim(n->inputs[0], trans_a ? 1 : 0);
    op_interval r = op_range_contract(x, w, k, last_dim(n->outputs[0], 0));
    if (n->inputs[1]->type.shape.rank < 2)
        r.norm = 0;
    return op_range_scale(r, ir_attr_float(n, "alpha", 1));
}

tacit_status op_bounds_matmul(op_range *c)
{
    c->out[0] = product(c, false, false);
    return TACIT_OK;
}

tacit_status op_bounds_gemm(op_range *c)
{
    const ir_node *n = c->node;
    op_interval r = product(c, ir_attr_int(n, "transA", 0) != 0, ir_attr_int(n, "transB", 0) != 0);
    if (given(c, 2))
        r = op_range_add(r, op_range_scale(plain(c->in[2]), ir_attr_float(n, "beta", 1)));
    c->out[0] = r;
    return TACIT_OK;
}

/* What makes one output element: channels of the group times taps. */
static op_interval filtered(const op_range *c)
{
    const ir_shape *w = &c->node->inputs[1]->type.shape;
    double k = 1;
    for (int32_t i = 1; i < w->rank; i++)
        k *= (double)w->dims[i];
    /* padding reads zeros: the contraction's bound is of magnitudes, so they are in it */
    op_interval r = plain(op_range_contract(plain(c->in[0]), c->in[1], k, 1));
    return given(c, 2) ? op_range_add(r, plain(c->in[2])) : r;
}

tacit_status op_bounds_conv(op_range *c)
{
    c->out[0] = filtered(c);
    return TACIT_OK;
}

/* Activation and residual of the fused products. */
static tacit_status epilogue(op_range *c, op_interval r, uint32_t residual)
{
    const ir_node *n = c->node;
    const char *name = ir_attr_string(n, "activation", "none");
    bool last = ir_attr_int(n, "activation_last", 0) != 0;
    if (given(c, residual) && last)
        r = op_range_add(r, broadcast(c, residual));
    if (strcmp(name, "clip") == 0)
        r = op_range_clip(r, ir_attr_float(n, "act_min", -HUGE_VALF),
                          ir_attr_float(n, "act_max", HUGE_VALF));
    else if (strcmp(name, "none") != 0 && !op_range_activation(name, r, &r))
        return op_no_rule(n, "range", c->err);
    if (given(c, residual) && !last)
        r = op_range_add(r, broadcast(c, residual));
    c->out[0] = r;
    return TACIT_OK;
}

tacit_status op_bounds_fused_matmul(op_range *c)
{
    const ir_node *n = c->node;
    op_interval r =
        product(c, ir_attr_int(n, "trans_a", 0) != 0, ir_attr_int(n, "trans_b", 0) != 0);
    return epilogue(c, given(c, 2) ? op_range_add(plain(r), plain(c->in[2])) : r, 3);
}

tacit_status op_bounds_fused_conv(op_range *c)
{
    return epilogue(c, filtered(c), 3);
}

tacit_status op_bounds_gated(op_range *c)
{
    op_interval gate;
    if (!op_range_activation(ir_attr_string(c->node, "activation", "none"), c->in[0], &gate))
        return op_no_rule(c->node, "range", c->err);
    c->out[0] = op_range_mul(gate, c->in[1]);
    return TACIT_OK;
}

/* Averages of rows of V; zero where nothing is attended to. */
tacit_status op_bounds_fused_attention(op_range *c)
{
    c->out[0] = op_range_hull(plain(c->in[2]), op_range_of(0, 0));
    c->out[0].norm = c->in[2].norm;
    return TACIT_OK;
}

/* |x cos - y sin| <= |(x, y)| |(cos, sin)|; of angles that are not known only their sizes are. */
static double turn_size(const op_range *c)
{
    const ir_tensor *cosine = ir_value_known(c->node->inputs[1]);
    const ir_tensor *sine = ir_value_known(c->node->inputs[2]);
    if (!cosine || !sine || !cosine->data || !sine->data)
        return hypot(op_magnitude(c->in[1]), op_magnitude(c->in[2]));
    double most = 0;
    int64_t n = ir_tensor_count(cosine);
    for (int64_t i = 0; i < n && i < ir_tensor_count(sine); i++)
        most = fmax(most, hypot(ir_load_f64(cosine->dtype, cosine->data, i),
                                ir_load_f64(sine->dtype, sine->data, i)));
    return most;
}

tacit_status op_bounds_rotary(op_range *c)
{
    double size = fmax(turn_size(c), 1); /* what is not turned stays */
    double most = op_magnitude(c->in[0]) * size * sqrt(2);
    c->out[0] = op_range_of(-most, most);
    c->out[0].norm = c->node->inputs[0]->type.shape.rank == 4 ? c->in[0].norm * size : 0;
    return TACIT_OK;
}

/* ---- reductions ---- */

tacit_status op_bounds_mean(op_range *c)
{
    c->out[0] = plain(c->in[0]);
    return TACIT_OK;
}

/* Padding counts as zero. */
tacit_status op_bounds_average_pool(op_range *c)
{
    c->out[0] = op_range_hull(plain(c->in[0]), op_range_of(0, 0));
    return TACIT_OK;
}

tacit_status op_bounds_sum(op_range *c)
{
    double in = (double)ir_shape_size(&c->node->inputs[0]->type.shape);
    double out = (double)ir_shape_size(&c->node->outputs[0]->type.shape);
    c->out[0] = op_range_scale(plain(c->in[0]), out > 0 ? in / out : 1);
    return TACIT_OK;
}
