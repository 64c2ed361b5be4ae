/* SPDX-License-Identifier: Apache-2.0 */
#include "op/range.h"

#include <math.h>
#include <string.h>

op_interval op_range_of(double lo, double hi)
{
    return (op_interval){.lo = lo, .hi = hi};
}

op_interval op_range_hull(op_interval x, op_interval y)
{
    op_interval r = op_range_of(fmin(x.lo, y.lo), fmax(x.hi, y.hi));
    r.norm = x.norm > 0 && y.norm > 0 ? fmax(x.norm, y.norm) : 0;
    return r;
}

op_interval op_range_add(op_interval x, op_interval y)
{
    op_interval r = op_range_of(x.lo + y.lo, x.hi + y.hi);
    bool nothing = y.lo == 0 && y.hi == 0;
    r.norm = nothing ? x.norm : x.norm > 0 && y.norm > 0 ? x.norm + y.norm : 0;
    return r;
}

op_interval op_range_scale(op_interval x, double c)
{
    op_interval r = c < 0 ? op_range_of(x.hi * c, x.lo * c) : op_range_of(x.lo * c, x.hi * c);
    r.norm = x.norm * fabs(c);
    return r;
}

op_interval op_range_sub(op_interval x, op_interval y)
{
    return op_range_add(x, op_range_scale(y, -1));
}

op_interval op_range_mul(op_interval x, op_interval y)
{
    double corner[] = {x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi};
    op_interval r = op_range_of(fmin(fmin(corner[0], corner[1]), fmin(corner[2], corner[3])),
                                fmax(fmax(corner[0], corner[1]), fmax(corner[2], corner[3])));
    if (x.norm > 0)
        r.norm = x.norm * op_magnitude(y);
    if (y.norm > 0 && (r.norm == 0 || y.norm * op_magnitude(x) < r.norm))
        r.norm = y.norm * op_magnitude(x);
    return r;
}

op_interval op_range_clip(op_interval x, double low, double high)
{
    return op_range_of(fmin(fmax(x.lo, low), high), fmin(fmax(x.hi, low), high));
}

op_interval op_range_leaky(op_interval x, double a)
{
    double down = a * fmin(x.lo, 0), up = fmax(x.hi, 0);
    double inner = a * fmin(x.hi, 0), outer = fmax(x.lo, 0);
    op_interval r =
        op_range_of(x.lo < 0 ? fmin(fmin(down, inner), up) : outer, fmax(fmax(down, inner), up));
    if (x.hi <= 0)
        r.hi = fmax(down, inner);
    r.norm = x.norm * fmax(1, fabs(a));
    return r;
}

bool op_range_activation(const char *name, op_interval x, op_interval *out)
{
    /* the least values of GELU (both forms) and of SiLU, rounded down */
    bool gelu = strcmp(name, "gelu") == 0 || strcmp(name, "gelu_tanh") == 0;
    bool silu = strcmp(name, "silu") == 0;
    if (strcmp(name, "relu") == 0)
        *out = op_range_leaky(x, 0);
    else if (gelu || silu) {
        double least = gelu ? -0.1701 : -0.2785;
        *out = op_range_of(fmax(least, fmin(x.lo, 0)), fmax(x.hi, 0));
        out->norm = x.norm;
    } else if (strcmp(name, "tanh") == 0) {
        *out = op_range_of(tanh(x.lo), tanh(x.hi));
        out->norm = x.norm;
    } else if (strcmp(name, "sigmoid") == 0)
        *out = op_range_of(1 / (1 + exp(-x.lo)), 1 / (1 + exp(-x.hi)));
    else
        return false;
    return true;
}

op_interval op_range_contract(op_interval x, op_interval w, double k, double n)
{
    double most = op_magnitude(x), norm = most * sqrt(k);
    if (x.norm > 0 && x.norm < norm)
        norm = x.norm;
    double l1 = w.l1 > 0 ? w.l1 : op_magnitude(w) * k;
    double l2 = w.l2 > 0 ? w.l2 : op_magnitude(w) * sqrt(k);
    double bound = fmin(most * l1, norm * l2);
    op_interval r = op_range_of(-bound, bound);
    r.norm = bound * sqrt(n);
    if (w.frobenius > 0)
        r.norm = fmin(r.norm, norm * w.frobenius);
    return r;
}

op_interval op_range_normal(double k, op_interval gamma)
{
    double most = sqrt(k) * op_magnitude(gamma);
    op_interval r = op_range_of(-most, most);
    r.norm = most;
    return r;
}

op_range_fn *op_range_rule(const ir_node *node)
{
    return node->op ? node->op->range : NULL;
}

tacit_status op_range_node(op_range *c)
{
    op_range_fn *rule = op_range_rule(c->node);
    return rule ? rule(c) : op_no_rule(c->node, "range", c->err);
}
