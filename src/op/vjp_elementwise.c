/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of element-wise ops with more than one input. Broadcasting is undone by summing. */
#include "op/vjp.h"

static const ir_shape *shape_of(const op_diff *c, uint32_t i)
{
    return &c->node->inputs[i]->type.shape;
}

/* Input i gets `grad`, summed down to its shape. */
static void give(op_diff *c, uint32_t i, ir_value *grad)
{
    c->in_grad[i] = op_diff_sum_to(c, grad, shape_of(c, i));
}

tacit_status op_vjp_identity(op_diff *c)
{
    c->in_grad[0] = c->out_grad[0];
    return c->status;
}

/* Steps and signs: flat nearly everywhere, zero by convention at the jumps. */
tacit_status op_vjp_zero(op_diff *c)
{
    return c->status;
}

tacit_status op_vjp_add(op_diff *c)
{
    for (uint32_t i = 0; i < 2; i++)
        if (c->wanted[i])
            give(c, i, c->out_grad[0]);
    return c->status;
}

tacit_status op_vjp_sub(op_diff *c)
{
    if (c->wanted[0])
        give(c, 0, c->out_grad[0]);
    if (c->wanted[1])
        give(c, 1, op_diff1(c, "Neg", c->out_grad[0]));
    return c->status;
}

tacit_status op_vjp_mul(op_diff *c)
{
    for (uint32_t i = 0; i < 2; i++)
        if (c->wanted[i])
            give(c, i, op_diff2(c, "Mul", c->out_grad[0], op_diff_conj(c, c->node->inputs[1 - i])));
    return c->status;
}

/* d(a/b) = g/b and −g·y/b */
tacit_status op_vjp_div(op_diff *c)
{
    ir_value *below = op_diff_conj(c, c->node->inputs[1]), *y = c->node->outputs[0];
    ir_value *quotient = op_diff2(c, "Div", c->out_grad[0], below);
    if (c->wanted[0])
        give(c, 0, quotient);
    if (c->wanted[1])
        give(c, 1, op_diff1(c, "Neg", op_diff2(c, "Mul", quotient, op_diff_conj(c, y))));
    return c->status;
}

/* d(aᵇ): g·b·aᵇ⁻¹, and g·aᵇ·ln a where a > 0 (0 elsewhere, as the limit at a = 0 is). */
tacit_status op_vjp_pow(op_diff *c)
{
    ir_value *a = c->node->inputs[0], *b = c->node->inputs[1], *g = c->out_grad[0];
    tacit_dtype dtype = a->type.dtype;
    ir_value *exponent = op_diff_cast(c, b, dtype);
    if (c->wanted[0]) {
        ir_value *less = op_diff2(c, "Sub", exponent, op_diff_scalar(c, dtype, 1));
        ir_value *slope = op_diff2(c, "Mul", exponent, op_diff2(c, "Pow", a, less));
        give(c, 0, op_diff2(c, "Mul", g, slope));
    }
    if (c->wanted[1]) {
        ir_value *positive = op_diff2(c, "Greater", a, op_diff_scalar(c, dtype, 0));
        ir_value *safe = op_diff3(c, "Where", positive, a, op_diff_scalar(c, dtype, 1));
        ir_value *slope = op_diff2(c, "Mul", c->node->outputs[0], op_diff1(c, "Log", safe));
        give(c, 1, op_diff_cast(c, op_diff2(c, "Mul", g, slope), b->type.dtype));
    }
    return c->status;
}

/* Max and Min of any number of inputs: the first input that attains the result takes it all. */
tacit_status op_vjp_extremum(op_diff *c)
{
    ir_value *y = c->node->outputs[0], *left = NULL; /* left: not yet given away */
    ir_value *zero = op_diff_scalar(c, y->type.dtype, 0);
    for (uint32_t i = 0; i < c->node->n_inputs; i++) {
        ir_value *hit = op_diff2(c, "Equal", c->node->inputs[i], y);
        ir_value *mine = left ? op_diff2(c, "And", hit, left) : hit;
        if (c->wanted[i])
            give(c, i, op_diff3(c, "Where", mine, c->out_grad[0], zero));
        ir_value *miss = op_diff1(c, "Not", hit);
        left = left ? op_diff2(c, "And", left, miss) : miss;
    }
    return c->status;
}

tacit_status op_vjp_sum(op_diff *c)
{
    for (uint32_t i = 0; i < c->node->n_inputs; i++)
        if (c->wanted[i])
            give(c, i, c->out_grad[0]);
    return c->status;
}

tacit_status op_vjp_mean(op_diff *c)
{
    ir_value *share = op_diff_scale(c, c->out_grad[0], 1.0 / c->node->n_inputs);
    for (uint32_t i = 0; i < c->node->n_inputs; i++)
        if (c->wanted[i])
            give(c, i, share);
    return c->status;
}

tacit_status op_vjp_where(op_diff *c)
{
    ir_value *g = c->out_grad[0], *zero = op_diff_scalar(c, g->type.dtype, 0);
    ir_value *condition = c->node->inputs[0];
    if (c->wanted[1])
        give(c, 1, op_diff3(c, "Where", condition, g, zero));
    if (c->wanted[2])
        give(c, 2, op_diff3(c, "Where", condition, zero, g));
    return c->status;
}

/* The gradient passes where the bounds did not act; bounds get none. */
tacit_status op_vjp_clip(op_diff *c)
{
    ir_value *x = c->node->inputs[0], *pass = c->out_grad[0];
    ir_value *zero = op_diff_scalar(c, x->type.dtype, 0);
    static const char *const outside[] = {"Less", "Greater"};
    for (uint32_t i = c->node->n_inputs < 3 ? c->node->n_inputs : 3; i-- > 1;) {
        ir_value *limit = c->node->inputs[i]; /* the upper one has the last word */
        if (!limit)
            continue;
        ir_value *held = i == 1               ? x
                         : c->node->inputs[1] ? op_diff2(c, "Max", x, c->node->inputs[1])
                                              : x;
        ir_value *cut = op_diff2(c, outside[i - 1], held, limit);
        if (c->wanted[i])
            give(c, i, op_diff3(c, "Where", cut, pass, zero));
        pass = op_diff3(c, "Where", cut, zero, pass);
    }
    c->in_grad[0] = pass;
    return c->status;
}

tacit_status op_vjp_prelu(op_diff *c)
{
    ir_value *x = c->node->inputs[0], *slope = c->node->inputs[1], *g = c->out_grad[0];
    ir_value *zero = op_diff_scalar(c, x->type.dtype, 0);
    ir_value *negative = op_diff2(c, "Less", x, zero);
    if (c->wanted[0])
        give(c, 0, op_diff3(c, "Where", negative, op_diff2(c, "Mul", g, slope), g));
    if (c->wanted[1])
        give(c, 1, op_diff3(c, "Where", negative, op_diff2(c, "Mul", g, x), zero));
    return c->status;
}

/* a mod b = a − b·n with n = (a − y)/b constant nearly everywhere. */
tacit_status op_vjp_mod(op_diff *c)
{
    if (c->wanted[0])
        give(c, 0, c->out_grad[0]);
    if (c->wanted[1]) {
        ir_value *n =
            op_diff2(c, "Div", op_diff2(c, "Sub", c->node->outputs[0], c->node->inputs[0]),
                     c->node->inputs[1]);
        give(c, 1, op_diff2(c, "Mul", c->out_grad[0], op_diff1(c, "Round", n)));
    }
    return c->status;
}

tacit_status op_vjp_cast(op_diff *c)
{
    if (ir_dtype_is_float(c->node->outputs[0]->type.dtype))
        c->in_grad[0] = op_diff_cast(c, c->out_grad[0], c->node->inputs[0]->type.dtype);
    return c->status;
}
