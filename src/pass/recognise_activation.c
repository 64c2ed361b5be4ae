/* SPDX-License-Identifier: Apache-2.0
 * Activations spelled out: GELU by erf and by tanh, SiLU and its kin, HardSwish.
 *
 * All of them are products. A product is flattened into a coefficient and its factors, so one
 * description covers every order and grouping that exporters choose. */
#include <math.h>

#include "base/half.h"
#include "pass/edit.h"

enum { FACTORS = 4 };

typedef struct product {
    double coefficient;
    ir_value *factors[FACTORS];
    uint32_t count;
    bool too_many;
} product;

static bool near(double x, double expected)
{
    return fabs(x - expected) <= 1e-5 * fabs(expected);
}

/* Is it a constant of GELU, or what is left of one in a half, it or its reciprocal? The latter only
 * of a node that the model computes in halves: its own roundings move the result by far more than
 * that of a constant (docs/passes.md). */
static bool gelu_constant(const ir_node *n, double x, double expected)
{
    static const half_format formats[] = {HALF_F16, HALF_BF16};
    bool found = near(x, expected);
    for (size_t i = 0; !found && pass_was_half(n) && i < sizeof formats / sizeof *formats; i++) {
        half_format f = formats[i];
        double factor = half_decode(f, half_encode(f, expected, false));
        double divisor = half_decode(f, half_encode(f, 1 / expected, false));
        found = fabs(x - factor) <= 1e-7 * expected || fabs(x * divisor - 1) <= 1e-7;
    }
    return found;
}

/* Flattens `v` into `p`. Only values with a single reader are opened (the root apart): the operand
 * that a pattern reads several times stays whole. */
static void flatten(const pass_edit *e, ir_value *v, bool root, product *p, pass_set *s)
{
    ir_node *n = v->producer;
    ir_value *x;
    double c;
    bool open = root || pass_uses(e, v) == 1;
    if (open && (pass_with_scalar(e, n, PASS_MUL, &x, &c))) {
        p->coefficient *= c;
        pass_set_add(s, n);
        flatten(e, x, false, p, s);
    } else if (open && pass_with_scalar(e, n, PASS_DIV, &x, &c) && c != 0) {
        p->coefficient /= c;
        pass_set_add(s, n);
        flatten(e, x, false, p, s);
    } else if (open && pass_is(e, n, PASS_MUL) && !s->overflow && p->count < FACTORS) {
        pass_set_add(s, n);
        flatten(e, n->inputs[0], false, p, s);
        flatten(e, n->inputs[1], false, p, s);
    } else if (p->count < FACTORS) {
        p->factors[p->count++] = v;
    } else {
        p->too_many = true;
    }
}

static product product_of(const pass_edit *e, ir_value *v, bool root, pass_set *s)
{
    product p = {.coefficient = 1};
    flatten(e, v, root, &p, s);
    return p;
}

/* v = x·c (c may be 1): gives c. */
static bool scaled(const pass_edit *e, ir_value *v, const ir_value *x, double *c, pass_set *s)
{
    pass_set mine = *s;
    product p = {.coefficient = 1};
    if (v != x)
        p = product_of(e, v, false, &mine);
    else
        p.factors[p.count++] = v;
    if (p.count != 1 || p.factors[0] != x)
        return false;
    *c = p.coefficient;
    *s = mine;
    return true;
}

/* v = c·x^power, by Pow or repeated Mul: gives c. */
static bool power_of(const pass_edit *e, ir_value *v, const ir_value *x, uint32_t power, double *c,
                     pass_set *s)
{
    pass_set mine = *s;
    product p = product_of(e, v, true, &mine);
    uint32_t found = 0;
    for (uint32_t i = 0; i < p.count; i++) {
        ir_value *base;
        double exponent;
        ir_node *n = p.factors[i]->producer;
        if (p.factors[i] == x) {
            found++;
        } else if (pass_with_scalar(e, n, PASS_POW, &base, &exponent) && base == x &&
                   (exponent == 2 || exponent == 3)) {
            pass_set_add(&mine, n);
            found += (uint32_t)exponent;
        } else {
            /* x·x shared between two readers stays whole above */
            if (!pass_is(e, n, PASS_MUL) || n->inputs[0] != x || n->inputs[1] != x)
                return false;
            pass_set_add(&mine, n);
            found += 2;
        }
    }
    if (p.too_many || found != power)
        return false;
    *c = p.coefficient;
    *s = mine;
    return true;
}

/* tanh of u = sqrt(2/pi)·(x + 0.044715·x³), or the same as sqrt(2/pi)·x·(1 + 0.044715·x²)? */
static bool gelu_argument(const pass_edit *e, const ir_node *tanh, const ir_value *x, pass_set *s)
{
    const double root = 0.79788456080286535588, cubic = 0.044715;
    double c, k;
    product p = product_of(e, tanh->inputs[0], true, s);
    if (p.too_many || !gelu_constant(tanh, p.coefficient, root))
        return false;
    if (p.count == 1) {
        ir_node *add = pass_from(e, p.factors[0], PASS_ADD);
        ir_value *rest = add ? pass_other(add, x) : NULL;
        if (!rest || !power_of(e, rest, x, 3, &c, s) || !gelu_constant(tanh, c, cubic))
            return false;
        pass_set_add(s, add);
        return true;
    }
    for (uint32_t i = 0; p.count == 2 && i < 2; i++) {
        ir_value *rest;
        ir_node *add = p.factors[i]->producer;
        if (p.factors[1 - i] != x || !pass_with_scalar(e, add, PASS_ADD, &rest, &k) || k != 1 ||
            !power_of(e, rest, x, 2, &c, s) || !gelu_constant(tanh, c, cubic))
            continue;
        pass_set_add(s, add);
        return true;
    }
    return false;
}

typedef enum kind { NONE, GELU, GELU_TANH, SWISH, HARD_SWISH } kind;

/* What function of `x` the other factor is; *c holds its parameter or the coefficient it needs. */
static kind classify(const pass_edit *e, ir_value *v, const ir_value *x, double *coefficient,
                     double *alpha, pass_set *s)
{
    ir_value *inner;
    double c;
    ir_node *n = v->producer;
    if (!n || n->n_outputs != 1)
        return NONE;
    pass_set_add(s, n);
    if (pass_is(e, n, PASS_SIGMOID)) {
        *coefficient = 1;
        return scaled(e, n->inputs[0], x, alpha, s) ? SWISH : NONE;
    }
    if (pass_is(e, n, PASS_HARD_SIGMOID)) {
        *coefficient = 1;
        return n->inputs[0] == x && near(ir_attr_float(n, "alpha", 0.2), 1.0 / 6) &&
                       near(ir_attr_float(n, "beta", 0.5), 0.5)
                   ? HARD_SWISH
                   : NONE;
    }
    if (pass_is(e, n, PASS_CLIP) && n->n_inputs == 3 && pass_scalar_is(n->inputs[1], 0) &&
        pass_scalar_is(n->inputs[2], 6)) {
        *coefficient = 1.0 / 6;
        ir_node *add = n->inputs[0]->producer;
        pass_set_add(s, add);
        return pass_with_scalar(e, add, PASS_ADD, &inner, &c) && c == 3 && inner == x ? HARD_SWISH
                                                                                      : NONE;
    }
    if (!pass_with_scalar(e, n, PASS_ADD, &inner, &c) || c != 1)
        return NONE;
    *coefficient = 0.5;
    ir_node *f = inner->producer;
    if (!f)
        return NONE;
    pass_set_add(s, f);
    if (pass_is(e, f, PASS_ERF))
        return scaled(e, f->inputs[0], x, &c, s) && gelu_constant(f, c, 0.70710678118654752440)
                   ? GELU
                   : NONE;
    if (pass_is(e, f, PASS_TANH))
        return gelu_argument(e, f, x, s) ? GELU_TANH : NONE;
    return NONE;
}

static tacit_status replace(pass_edit *e, ir_node *root, kind k, ir_value *x, double alpha,
                            const pass_set *s)
{
    pass_fusion f = {.root = root, .nodes = *s, .n_inputs = 1, .n_outputs = 1};
    f.op = k == SWISH ? PASS_SWISH : k == HARD_SWISH ? PASS_HARD_SWISH : PASS_GELU;
    f.inputs[0] = x;
    f.outputs[0] = root->outputs[0];
    if (k == GELU_TANH)
        pass_fusion_string(&f, "approximate", "tanh");
    if (k == SWISH && alpha != 1)
        pass_fusion_float(&f, "alpha", alpha);
    return pass_fuse(e, &f);
}

/* x / (1 + exp(-x)) */
static tacit_status silu_by_exp(pass_edit *e, ir_node *root)
{
    ir_value *x = root->inputs[0], *inner;
    double c;
    ir_node *add = root->inputs[1]->producer;
    if (!pass_with_scalar(e, add, PASS_ADD, &inner, &c) || c != 1)
        return TACIT_OK;
    ir_node *exponential = pass_from(e, inner, PASS_EXP);
    ir_node *neg = exponential ? pass_from(e, exponential->inputs[0], PASS_NEG) : NULL;
    if (!neg || neg->inputs[0] != x || !pass_same_shape(x, root->outputs[0]))
        return TACIT_OK;
    pass_set s = {.nodes = {root, add, exponential, neg}, .count = 4};
    return replace(e, root, SWISH, x, 1, &s);
}

static tacit_status recognise(pass_edit *e, ir_node *root)
{
    if (pass_is(e, root, PASS_DIV) && pass_float(root->outputs[0]))
        TRY(silu_by_exp(e, root));
    if (!(pass_is(e, root, PASS_MUL) || pass_is(e, root, PASS_DIV)) ||
        !pass_float(root->outputs[0]))
        return TACIT_OK;
    pass_set base = {0};
    product p = product_of(e, root->outputs[0], true, &base);
    if (p.count != 2 || p.too_many || base.overflow)
        return TACIT_OK;
    for (uint32_t i = 0; i < 2; i++) {
        pass_set s = base;
        double coefficient = 0, alpha = 1;
        ir_value *x = p.factors[i];
        kind k = classify(e, p.factors[1 - i], x, &coefficient, &alpha, &s);
        if (k == NONE || !near(p.coefficient, coefficient) || !pass_same_shape(x, root->outputs[0]))
            continue;
        return replace(e, root, k, x, near(alpha, 1) ? 1 : alpha, &s);
    }
    return TACIT_OK;
}

tacit_status pass_recognise_activation(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++)
        TRY(recognise(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}
