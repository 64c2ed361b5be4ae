/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of complex values. The cotangent of z = x + iy is Wirtinger's ∂L/∂z̄, half of
 * (∂L/∂x) + i(∂L/∂y): real inputs of complex results get twice its parts, complex inputs of real
 * results half. */
#include "op/vjp.h"

/* re + i·im where one of them may be NULL (zero). */
static ir_value *make_complex(op_diff *c, ir_value *re, ir_value *im)
{
    const ir_value *given = re ? re : im;
    if (!given)
        return NULL;
    ir_value *zero = op_diff_scalar(c, given->type.dtype, 0);
    return op_diff2(c, "tacit.Complex", re ? re : zero, im ? im : zero);
}

tacit_status op_vjp_complex(op_diff *c)
{
    static const char *const parts[] = {"tacit.Real", "tacit.Imag"};
    for (uint32_t i = 0; i < 2; i++)
        if (c->wanted[i]) {
            ir_value *part = op_diff_scale(c, op_diff1(c, parts[i], c->out_grad[0]), 2);
            c->in_grad[i] = op_diff_sum_to(c, part, &c->node->inputs[i]->type.shape);
        }
    return c->status;
}

tacit_status op_vjp_real(op_diff *c)
{
    c->in_grad[0] = make_complex(c, op_diff_scale(c, c->out_grad[0], 0.5), NULL);
    return c->status;
}

tacit_status op_vjp_imag(op_diff *c)
{
    c->in_grad[0] = make_complex(c, NULL, op_diff_scale(c, c->out_grad[0], 0.5));
    return c->status;
}

tacit_status op_vjp_norm_sq(op_diff *c)
{
    c->in_grad[0] = op_diff2(c, "tacit.NormSqGrad", c->node->inputs[0], c->out_grad[0]);
    return c->status;
}

tacit_status op_vjp_conj(op_diff *c)
{
    c->in_grad[0] = op_diff1(c, "tacit.Conj", c->out_grad[0]);
    return c->status;
}

/* y = s·z with a real s: dz = s·g, ds = 2·Re(z̄·g). */
tacit_status op_vjp_norm_sq_grad(op_diff *c)
{
    ir_value *z = c->node->inputs[0], *s = c->node->inputs[1], *g = c->out_grad[0];
    if (c->wanted[0])
        c->in_grad[0] = op_diff2(c, "tacit.NormSqGrad", g, s);
    if (c->wanted[1]) {
        ir_value *product = op_diff2(c, "Mul", op_diff1(c, "tacit.Conj", z), g);
        c->in_grad[1] = op_diff_scale(c, op_diff1(c, "tacit.Real", product), 2);
    }
    return c->status;
}
