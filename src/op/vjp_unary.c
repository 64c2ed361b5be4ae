/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of unary ops: a table from op name to the slope f'(x), built from x and y = f(x). */
#include <math.h>
#include <string.h>

#include "op/vjp.h"

typedef struct unary {
    op_diff *c;
    ir_value *x, *y;
} unary;

static ir_value *num(unary u, double v)
{
    return op_diff_scalar(u.c, u.x->type.dtype, v);
}
static ir_value *mul(unary u, ir_value *a, ir_value *b)
{
    return op_diff2(u.c, "Mul", a, b);
}
static ir_value *add(unary u, ir_value *a, double b)
{
    return op_diff2(u.c, "Add", a, num(u, b));
}
static ir_value *inverse(unary u, ir_value *a)
{
    return op_diff1(u.c, "Reciprocal", a);
}
static ir_value *less_from(unary u, double one, ir_value *a) /* one − a */
{
    return op_diff2(u.c, "Sub", num(u, one), a);
}
static ir_value *square(unary u, ir_value *a)
{
    return mul(u, a, a);
}
static ir_value *root(unary u, ir_value *a)
{
    return op_diff1(u.c, "Sqrt", a);
}
static ir_value *choose(unary u, const char *compare, double bound, ir_value *then, ir_value *other)
{
    return op_diff3(u.c, "Where", op_diff2(u.c, compare, u.x, num(u, bound)), then, other);
}
static double attr(unary u, const char *name, double fallback)
{
    return ir_attr_float(u.c->node, name, fallback);
}

static ir_value *d_neg(unary u)
{
    return num(u, -1);
}
static ir_value *d_abs(unary u)
{
    return op_diff1(u.c, "Sign", u.x);
}
static ir_value *d_exp(unary u)
{
    return u.y;
}
static ir_value *d_log(unary u)
{
    return inverse(u, u.x);
}
/* ½/√x, zero where √x is not positive. */
static ir_value *d_sqrt(unary u)
{
    if (!ir_dtype_is_float(u.x->type.dtype)) /* complex numbers have no order */
        return op_diff2(u.c, "Div", num(u, 0.5), u.y);
    ir_value *safe = choose(u, "Greater", 0, u.y, num(u, 1));
    return choose(u, "Greater", 0, op_diff2(u.c, "Div", num(u, 0.5), safe), num(u, 0));
}
static ir_value *d_reciprocal(unary u)
{
    return op_diff1(u.c, "Neg", square(u, u.y));
}
static ir_value *d_sin(unary u)
{
    return op_diff1(u.c, "Cos", u.x);
}
static ir_value *d_cos(unary u)
{
    return op_diff1(u.c, "Neg", op_diff1(u.c, "Sin", u.x));
}
static ir_value *d_tan(unary u)
{
    return add(u, square(u, u.y), 1);
}
static ir_value *d_asin(unary u)
{
    return inverse(u, root(u, less_from(u, 1, square(u, u.x))));
}
static ir_value *d_acos(unary u)
{
    return op_diff1(u.c, "Neg", d_asin(u));
}
static ir_value *d_atan(unary u)
{
    return inverse(u, add(u, square(u, u.x), 1));
}
static ir_value *d_sinh(unary u)
{
    return op_diff1(u.c, "Cosh", u.x);
}
static ir_value *d_cosh(unary u)
{
    return op_diff1(u.c, "Sinh", u.x);
}
static ir_value *d_tanh(unary u)
{
    return less_from(u, 1, square(u, u.y));
}
static ir_value *d_asinh(unary u)
{
    return inverse(u, root(u, add(u, square(u, u.x), 1)));
}
static ir_value *d_acosh(unary u)
{
    return inverse(u, root(u, add(u, square(u, u.x), -1)));
}
static ir_value *d_atanh(unary u)
{
    return inverse(u, less_from(u, 1, square(u, u.x)));
}
static ir_value *d_sigmoid(unary u)
{
    return mul(u, u.y, less_from(u, 1, u.y));
}
static ir_value *d_softplus(unary u)
{
    return op_diff1(u.c, "Sigmoid", u.x);
}
static ir_value *d_softsign(unary u)
{
    return inverse(u, square(u, add(u, op_diff1(u.c, "Abs", u.x), 1)));
}
/* 2/√π·exp(−x²) */
static ir_value *d_erf(unary u)
{
    ir_value *e = op_diff1(u.c, "Exp", op_diff1(u.c, "Neg", square(u, u.x)));
    return mul(u, e, num(u, 1.1283791670955126));
}
static ir_value *d_relu(unary u)
{
    return choose(u, "Greater", 0, num(u, 1), num(u, 0));
}
static ir_value *d_leaky(unary u)
{
    return choose(u, "Less", 0, num(u, attr(u, "alpha", 0.01)), num(u, 1));
}
static ir_value *d_thresholded(unary u)
{
    return choose(u, "Greater", attr(u, "alpha", 1), num(u, 1), num(u, 0));
}
/* α(eˣ − 1) for x < 0: slope y + α */
static ir_value *d_elu(unary u)
{
    return choose(u, "Less", 0, add(u, u.y, attr(u, "alpha", 1)), num(u, 1));
}
static ir_value *d_celu(unary u)
{
    double alpha = attr(u, "alpha", 1);
    ir_value *e = op_diff1(u.c, "Exp", op_diff2(u.c, "Div", u.x, num(u, alpha)));
    return choose(u, "Less", 0, e, num(u, 1));
}
static ir_value *d_selu(unary u)
{
    double alpha = attr(u, "alpha", 1.67326319217681884765625);
    double gamma = attr(u, "gamma", 1.05070102214813232421875);
    return choose(u, "Greater", 0, num(u, gamma), add(u, u.y, alpha * gamma));
}
static ir_value *d_hard_sigmoid(unary u)
{
    double alpha = attr(u, "alpha", 0.2), beta = attr(u, "beta", 0.5);
    ir_value *inner = choose(u, "Less", (1 - beta) / alpha, num(u, alpha), num(u, 0));
    return choose(u, "Greater", -beta / alpha, inner, num(u, 0));
}
static ir_value *d_hard_swish(unary u)
{
    ir_value *middle = add(u, op_diff_scale(u.c, u.x, 1.0 / 3), 0.5);
    ir_value *upper = choose(u, "GreaterOrEqual", 3, num(u, 1), middle);
    return choose(u, "LessOrEqual", -3, num(u, 0), upper);
}
/* x·s(αx): s + αx·s(1 − s) */
static ir_value *d_swish(unary u)
{
    double alpha = attr(u, "alpha", 1);
    ir_value *s = op_diff1(u.c, "Sigmoid", op_diff_scale(u.c, u.x, alpha));
    ir_value *bend = mul(u, op_diff_scale(u.c, u.x, alpha), mul(u, s, less_from(u, 1, s)));
    return op_diff2(u.c, "Add", s, bend);
}
/* x·tanh(softplus x) */
static ir_value *d_mish(unary u)
{
    ir_value *t = op_diff1(u.c, "Tanh", op_diff1(u.c, "Softplus", u.x));
    ir_value *s = op_diff1(u.c, "Sigmoid", u.x);
    ir_value *bend = mul(u, u.x, mul(u, s, less_from(u, 1, square(u, t))));
    return op_diff2(u.c, "Add", t, bend);
}
static ir_value *d_gelu_erf(unary u)
{
    ir_value *r = op_diff1(u.c, "Erf", op_diff_scale(u.c, u.x, 0.70710678118654752));
    ir_value *cdf = op_diff_scale(u.c, add(u, r, 1), 0.5);
    ir_value *e = op_diff1(u.c, "Exp", op_diff_scale(u.c, square(u, u.x), -0.5));
    ir_value *bell = op_diff_scale(u.c, e, 0.39894228040143267794);
    return op_diff2(u.c, "Add", cdf, mul(u, u.x, bell));
}
static ir_value *d_gelu_tanh(unary u)
{
    const double k = 0.79788456080286535588, q = 0.044715;
    ir_value *xx = square(u, u.x);
    ir_value *inner = mul(u, u.x, add(u, op_diff_scale(u.c, xx, k * q), k));
    ir_value *t = op_diff1(u.c, "Tanh", inner);
    ir_value *slope = add(u, op_diff_scale(u.c, xx, 3 * k * q), k);
    ir_value *bend = mul(u, mul(u, u.x, less_from(u, 1, square(u, t))), slope);
    return op_diff_scale(u.c, op_diff2(u.c, "Add", add(u, t, 1), bend), 0.5);
}
static ir_value *d_gelu(unary u)
{
    const char *kind = ir_attr_string(u.c->node, "approximate", "none");
    return strcmp(kind, "tanh") == 0 ? d_gelu_tanh(u) : d_gelu_erf(u);
}
/* Shrink moves values, it does not bend them: slope 1 outside the dead zone. */
static ir_value *d_shrink(unary u)
{
    double lambd = attr(u, "lambd", 0.5);
    ir_value *low = choose(u, "Less", -lambd, num(u, 1), num(u, 0));
    return choose(u, "Greater", lambd, num(u, 1), low);
}
static ir_value *d_straight_through(unary u)
{
    return num(u, 1);
}

static const struct {
    const char *op;
    ir_value *(*slope)(unary u);
} slopes[] = {
    {"Neg", d_neg},
    {"Abs", d_abs},
    {"Exp", d_exp},
    {"Log", d_log},
    {"Sqrt", d_sqrt},
    {"Reciprocal", d_reciprocal},
    {"Sin", d_sin},
    {"Cos", d_cos},
    {"Tan", d_tan},
    {"Asin", d_asin},
    {"Acos", d_acos},
    {"Atan", d_atan},
    {"Sinh", d_sinh},
    {"Cosh", d_cosh},
    {"Tanh", d_tanh},
    {"Asinh", d_asinh},
    {"Acosh", d_acosh},
    {"Atanh", d_atanh},
    {"Sigmoid", d_sigmoid},
    {"Softplus", d_softplus},
    {"Softsign", d_softsign},
    {"Erf", d_erf},
    {"Relu", d_relu},
    {"LeakyRelu", d_leaky},
    {"ThresholdedRelu", d_thresholded},
    {"Elu", d_elu},
    {"Celu", d_celu},
    {"Selu", d_selu},
    {"HardSigmoid", d_hard_sigmoid},
    {"HardSwish", d_hard_swish},
    {"Swish", d_swish},
    {"Mish", d_mish},
    {"Gelu", d_gelu},
    {"Shrink", d_shrink},
    {"Round", d_straight_through},
};

tacit_status op_vjp_unary(op_diff *c)
{
    unary u = {c, c->node->inputs[0], c->node->outputs[0]};
    for (size_t i = 0; i < sizeof slopes / sizeof *slopes; i++)
        if (strcmp(slopes[i].op, c->node->type) == 0) {
            ir_value *slope = op_diff_conj(c, slopes[i].slope(u));
            c->in_grad[0] = op_diff2(c, "Mul", c->out_grad[0], slope);
            return c->status;
        }
    return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "no derivative is known");
}
