/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of running products, Lp normalisation, fake quantisation, dropout and log-mel. */
#include <math.h>
#include <string.h>

#include "op/spell.h"
#include "op/vjp.h"

static tacit_status node_axis(op_diff *c, int64_t axis, int32_t *out)
{
    return ir_axis(axis, c->node->inputs[0]->type.shape.rank, out, c->err);
}

/* x with `axis` moved to the end, or back. */
static ir_value *move_axis(op_diff *c, ir_value *x, int32_t axis, bool back)
{
    int64_t perm[IR_MAX_RANK];
    int32_t rank = x ? x->type.shape.rank : 0, n = 0;
    if (axis == rank - 1)
        return x;
    for (int32_t i = 0; i < rank; i++)
        if (i != axis)
            perm[n++] = i;
    perm[n] = axis;
    if (!back)
        return op_diff_transpose(c, x, perm);
    int64_t inverse[IR_MAX_RANK];
    for (int32_t i = 0; i < rank; i++)
        inverse[perm[i]] = i;
    return op_diff_transpose(c, x, inverse);
}

/* Row i is the running product with x_i left out (one in its place): no division, so zeros are
 * fine. What does not depend on x_i is cut away. */
tacit_status op_vjp_cum_prod(op_diff *c)
{
    const ir_tensor *known = ir_value_known(c->node->inputs[1]);
    int32_t axis;
    if (!known)
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "the axis is not known when compiling");
    c->status = node_axis(c, ir_load_i64(known->dtype, known->data, 0), &axis);
    if (c->status != TACIT_OK)
        return c->status;
    bool reverse = ir_attr_int(c->node, "reverse", 0) != 0;
    bool exclusive = ir_attr_int(c->node, "exclusive", 0) != 0;
    ir_value *x = move_axis(c, c->node->inputs[0], axis, false);
    ir_value *g = move_axis(c, c->out_grad[0], axis, false);
    if (!x || !g)
        return c->status;
    int32_t rank = x->type.shape.rank;
    int64_t n = x->type.shape.dims[rank - 1], row = rank - 1;
    ir_value *rows = op_diff2(c, "Unsqueeze", x, op_diff_ints(c, 1, &row));
    ir_value *cotangent = op_diff2(c, "Unsqueeze", g, op_diff_ints(c, 1, &row));
    ir_value *count =
        op_diff3(c, "Range", op_diff_scalar(c, TACIT_I64, 0),
                 op_diff_scalar(c, TACIT_I64, (double)n), op_diff_scalar(c, TACIT_I64, 1));
    ir_shape column = ir_shape_of(2, (int64_t[]){n, 1});
    ir_value *index = op_diff_reshape(c, count, &column);
    ir_value *ones = op_diff_scalar(c, x->type.dtype, 1);
    ir_value *others = op_diff3(c, "Where", op_diff2(c, "Equal", index, count), ones, rows);
    ir_value *product = op_diff_open(
        c, "CumProd", 2, (ir_value *[]){others, op_diff_scalar(c, TACIT_I64, (double)rank)});
    product = op_diff_attr_int(c, product, "exclusive", exclusive);
    product = op_diff_attr_int(c, product, "reverse", reverse);
    ir_value *low = reverse ? count : index, *high = reverse ? index : count;
    ir_value *later = op_diff2(c, exclusive ? "Less" : "LessOrEqual", low, high);
    ir_value *each = op_diff2(c, "Mul", cotangent, product);
    each = op_diff2(c, "Mul", each, op_diff_cast(c, later, x->type.dtype));
    ir_value *d = op_diff_sum(c, each, 1, (int64_t[]){rank}, false);
    c->in_grad[0] = move_axis(c, d, axis, true);
    return c->status;
}

/* y = x/N: (g − s·Σ g·y)/N with s = y for p = 2 and sign x for p = 1; zero where N is. */
tacit_status op_vjp_lp_norm(op_diff *c)
{
    ir_value *x = c->node->inputs[0], *y = c->node->outputs[0], *g = c->out_grad[0];
    bool l1 = ir_attr_int(c->node, "p", 2) == 1;
    int32_t at;
    c->status = node_axis(c, ir_attr_int(c->node, "axis", -1), &at);
    if (c->status != TACIT_OK)
        return c->status;
    int64_t axis = at;
    ir_value *norm = op_diff2(c, l1 ? "ReduceL1" : "ReduceL2", x, op_diff_ints(c, 1, &axis));
    ir_value *zero = op_diff_scalar(c, x->type.dtype, 0);
    ir_value *positive = op_diff2(c, "Greater", norm, zero);
    norm = op_diff3(c, "Where", positive, norm, op_diff_scalar(c, x->type.dtype, 1));
    ir_value *dot = op_diff_sum(c, op_diff2(c, "Mul", g, y), 1, &axis, true);
    ir_value *along = op_diff2(c, "Mul", l1 ? op_diff1(c, "Sign", x) : y, dot);
    ir_value *d = op_diff2(c, "Div", op_diff2(c, "Sub", g, along), norm);
    c->in_grad[0] = op_diff3(c, "Where", positive, d, zero);
    return c->status;
}

/* Straight through, but nothing where the value was cut off. The scale that "batch" takes from the
 * data cuts nothing. */
tacit_status op_vjp_fake_quantize(op_diff *c)
{
    const ir_node *n = c->node;
    const char *mode = ir_attr_string(n, "mode", "batch");
    ir_value *x = n->inputs[0], *g = c->out_grad[0];
    if (!g || strcmp(mode, "batch") == 0) {
        c->in_grad[0] = g;
        return c->status;
    }
    ir_value *state = strcmp(mode, "fixed") == 0 ? n->inputs[1] : op_diff_output(c, 1);
    if (!state)
        return c->status;
    ir_shape s = {.rank = x->type.shape.rank};
    int32_t axis = -1;
    if (ir_attr_find(n, "axis")) {
        c->status = node_axis(c, ir_attr_int(n, "axis", 0), &axis);
        if (c->status != TACIT_OK)
            return c->status;
    }
    for (int32_t i = 0; i < s.rank; i++)
        s.dims[i] = i == axis ? x->type.shape.dims[i] : 1;
    double limit = (double)((1 << (ir_attr_int(n, "bits", 8) - 1)) - 1);
    ir_value *most = op_diff_scale(c, op_diff_reshape(c, state, &s), limit + 0.5);
    ir_value *inside = op_diff2(c, "Less", op_diff1(c, "Abs", x), most);
    c->in_grad[0] = op_diff2(c, "Mul", g, op_diff_cast(c, inside, x->type.dtype));
    return c->status;
}

/* What equals the maximum shares the cotangent. */
tacit_status op_vjp_global_max(op_diff *c)
{
    ir_value *x = c->node->inputs[0];
    int64_t axes[IR_MAX_RANK];
    uint32_t n = 0;
    for (int32_t i = 2; i < x->type.shape.rank; i++)
        axes[n++] = i;
    ir_value *hit = op_diff2(c, "Equal", x, c->node->outputs[0]);
    hit = op_diff_cast(c, hit, x->type.dtype);
    ir_value *share = op_diff2(c, "Div", c->out_grad[0], op_diff_sum(c, hit, n, axes, true));
    c->in_grad[0] = op_diff2(c, "Mul", hit, share);
    return c->status;
}

tacit_status op_vjp_cast_like(op_diff *c)
{
    c->in_grad[0] = op_diff_cast(c, c->out_grad[0], c->node->inputs[0]->type.dtype);
    return c->status;
}

/* The mask output says what was kept; without training nothing is dropped. */
tacit_status op_vjp_dropout(op_diff *c)
{
    const ir_node *n = c->node;
    ir_value *g = c->out_grad[0];
    const ir_value *mode = n->n_inputs > 2 ? n->inputs[2] : NULL;
    const ir_tensor *known = ir_value_known(mode);
    if (!g || !mode || (known && ir_load_i64(known->dtype, known->data, 0) == 0)) {
        c->in_grad[0] = g;
        return c->status;
    }
    tacit_dtype dtype = g->type.dtype;
    ir_value *ratio =
        n->inputs[1] ? op_diff_cast(c, n->inputs[1], dtype) : op_diff_scalar(c, dtype, 0.5);
    ir_value *kept = op_diff2(c, "Sub", op_diff_scalar(c, dtype, 1), ratio);
    if (!known) /* the mask is all true without training, and nothing is scaled */
        kept = op_diff3(c, "Where", n->inputs[2], kept, op_diff_scalar(c, dtype, 1));
    ir_value *mask = op_diff_cast(c, op_diff_output(c, 1), dtype);
    c->in_grad[0] = op_diff2(c, "Div", op_diff2(c, "Mul", g, mask), kept);
    return c->status;
}

static ir_value *cut(op_diff *c, ir_value *x, int64_t from, int64_t to)
{
    ir_value *in[4] = {x, op_diff_ints(c, 1, &from), op_diff_ints(c, 1, &to),
                       op_diff_ints(c, 1, (int64_t[]){-1})};
    return in[3] ? op_diff_node(c, "Slice", 4, in) : NULL;
}

/* y = log max(Σ_k f_mk·(re² + im²), floor) / unit */
tacit_status op_vjp_log_mel(op_diff *c)
{
    ir_value *x = c->node->inputs[0], *filter = c->node->inputs[1];
    const ir_shape *s = &x->type.shape;
    int64_t n = s->dims[s->rank - 1] / 2, bins = filter->type.shape.dims[1];
    tacit_dtype dtype = x->type.dtype;
    double base = ir_attr_float(c->node, "base", 10), unit = base == 0 ? 1 : log(base);
    ir_value *re = cut(c, x, 0, bins), *im = cut(c, x, n, n + bins);
    ir_value *power = op_diff2(c, "Add", op_diff2(c, "Mul", re, re), op_diff2(c, "Mul", im, im));
    ir_value *sum = op_diff2(c, "MatMul", power, op_diff_swap_last(c, filter));
    ir_value *least = op_diff_scalar(c, dtype, ir_attr_float(c->node, "floor", 1e-10));
    ir_value *slope =
        op_diff1(c, "Reciprocal", op_diff_scale(c, op_diff2(c, "Max", sum, least), unit));
    ir_value *above = op_diff_cast(c, op_diff2(c, "Greater", sum, least), dtype);
    ir_value *d = op_diff2(c, "Mul", c->out_grad[0], op_diff2(c, "Mul", slope, above));
    if (c->wanted[0] && d) {
        ir_value *two = op_diff_scale(c, op_diff2(c, "MatMul", d, filter), 2);
        ir_type rest = x->type;
        rest.shape.dims[s->rank - 1] = n - bins;
        ir_value *zeros = op_diff_zeros(c, &rest);
        ir_value *in[4] = {op_diff2(c, "Mul", two, re), zeros, op_diff2(c, "Mul", two, im), zeros};
        ir_value *all = op_diff_open(c, "Concat", 4, in);
        c->in_grad[0] = op_diff_attr_int(c, all, "axis", -1);
    }
    if (c->wanted[1] && d && power) {
        int64_t rows = ir_shape_size(&power->type.shape) / (bins ? bins : 1);
        ir_shape left = ir_shape_of(2, (int64_t[]){rows, filter->type.shape.dims[0]});
        ir_shape right = ir_shape_of(2, (int64_t[]){rows, bins});
        ir_value *flat = op_diff_swap_last(c, op_diff_reshape(c, d, &left));
        c->in_grad[1] = op_diff2(c, "MatMul", flat, op_diff_reshape(c, power, &right));
    }
    return c->status;
}
