/* SPDX-License-Identifier: Apache-2.0 */
#include "op/range.h"

#include <math.h>
#include <string.h>

/* ---- the rules as functions ---- */

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
    r.norm = x.norm > 0 && y.norm > 0 ? x.norm + y.norm : 0;
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

/* ---- by operator ---- */

static tacit_status same(op_range *c)
{
    for (uint32_t i = 0; i < c->node->n_outputs; i++) {
        c->out[i] = c->in[0];
        c->out[i].norm = 0; /* rows may have been cut or joined */
    }
    return TACIT_OK;
}

/* Towards zero. */
static tacit_status cast(op_range *c)
{
    op_interval x = c->in[0];
    c->out[0] = op_range_of(fmin(x.lo, trunc(x.lo)), fmax(x.hi, trunc(x.hi)));
    return TACIT_OK;
}

static bool given(const op_range *c, uint32_t i)
{
    return i < c->node->n_inputs && c->node->inputs[i];
}

static tacit_status joined(op_range *c)
{
    op_interval r = c->in[0];
    for (uint32_t i = 1; i < c->node->n_inputs; i++)
        r = op_range_hull(r, c->in[i]);
    r.norm = 0;
    c->out[0] = r;
    return TACIT_OK;
}

static tacit_status add(op_range *c)
{
    c->out[0] = op_range_add(c->in[0], c->in[1]);
    return TACIT_OK;
}
static tacit_status subtract(op_range *c)
{
    c->out[0] = op_range_sub(c->in[0], c->in[1]);
    return TACIT_OK;
}
static tacit_status multiply(op_range *c)
{
    c->out[0] = op_range_mul(c->in[0], c->in[1]);
    return TACIT_OK;
}
static tacit_status divide(op_range *c)
{
    op_interval y = c->in[1];
    if (y.lo <= 0 && y.hi >= 0)
        return error_set(c->err, TACIT_ERR_LIMIT, "node '%s': Div by an interval that holds zero",
                         c->node->name);
    c->out[0] = op_range_mul(c->in[0], op_range_of(1 / y.hi, 1 / y.lo));
    return TACIT_OK;
}
static tacit_status negate(op_range *c)
{
    c->out[0] = op_range_scale(c->in[0], -1);
    return TACIT_OK;
}
static tacit_status absolute(op_range *c)
{
    c->out[0] = op_range_leaky(c->in[0], -1);
    return TACIT_OK;
}
static tacit_status leaky(op_range *c)
{
    c->out[0] = op_range_leaky(c->in[0], ir_attr_float(c->node, "alpha", 0.01f));
    return TACIT_OK;
}
static tacit_status clip(op_range *c)
{
    double low = given(c, 1) ? c->in[1].lo : -HUGE_VAL, high = given(c, 2) ? c->in[2].hi : HUGE_VAL;
    c->out[0] = op_range_clip(c->in[0], low, high);
    return TACIT_OK;
}

static tacit_status activation(op_range *c)
{
    static const char *const names[][2] = {{"Relu", "relu"},
                                           {"Gelu", "gelu"},
                                           {"Sigmoid", "sigmoid"},
                                           {"Tanh", "tanh"},
                                           {"Swish", "silu"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(c->node->type, names[i][0]) == 0 &&
            (strcmp(names[i][1], "silu") != 0 || ir_attr_float(c->node, "alpha", 1) == 1) &&
            op_range_activation(names[i][1], c->in[0], &c->out[0]))
            return TACIT_OK;
    return op_no_rule(c->node, "range", c->err);
}

static tacit_status softmax(op_range *c)
{
    c->out[0] = op_range_of(0, 1);
    c->out[0].norm = 1;
    return TACIT_OK;
}

static double last_dim(const ir_value *v, uint32_t from_end)
{
    const ir_shape *s = &v->type.shape;
    return s->rank > (int32_t)from_end ? (double)s->dims[s->rank - 1 - (int32_t)from_end] : 1;
}

/* Sizes of the second operand are of its columns; a transposed one has only its entries. */
static tacit_status matmul(op_range *c)
{
    const ir_node *n = c->node;
    bool gemm = strcmp(n->type, "Gemm") == 0;
    bool ta = ir_attr_int(n, gemm ? "transA" : "trans_a", 0) != 0;
    bool tb = ir_attr_int(n, gemm ? "transB" : "trans_b", 0) != 0;
    op_interval x = c->in[0], w = c->in[1];
    if (ta)
        x.norm = 0;
    if (tb)
        w.l1 = w.l2 = 0;
    double k = last_dim(n->inputs[0], ta ? 1 : 0), columns = last_dim(n->outputs[0], 0);
    op_interval r = op_range_contract(x, w, k, columns);
    r = op_range_scale(r, ir_attr_float(n, "alpha", 1));
    if (gemm && given(c, 2))
        r = op_range_add(r, op_range_scale(c->in[2], ir_attr_float(n, "beta", 1)));
    c->out[0] = r;
    return TACIT_OK;
}

static tacit_status norm(op_range *c)
{
    op_interval gamma = given(c, 1) ? c->in[1] : op_range_of(1, 1);
    op_interval r = op_range_normal(last_dim(c->node->inputs[0], 0), gamma);
    if (given(c, 2))
        r = op_range_add(r, c->in[2]);
    c->out[0] = r;
    if (c->node->n_outputs > 1 && given(c, 3)) /* tacit.Norm: the sum that was normalised */
        c->out[1] = op_range_add(c->in[0], c->in[3]);
    return TACIT_OK;
}

/* Means lie among what they are taken of (padding counts as zero); sums are so many times that. */
static tacit_status mean(op_range *c)
{
    op_interval zero = op_range_of(0, 0);
    c->out[0] = strcmp(c->node->type, "AveragePool") == 0 ? op_range_hull(c->in[0], zero)
                                                          : op_range_of(c->in[0].lo, c->in[0].hi);
    return TACIT_OK;
}
static tacit_status total(op_range *c)
{
    double in = (double)ir_shape_size(&c->node->inputs[0]->type.shape);
    double out = (double)ir_shape_size(&c->node->outputs[0]->type.shape);
    c->out[0] = op_range_scale(op_range_of(c->in[0].lo, c->in[0].hi), out > 0 ? in / out : 1);
    return TACIT_OK;
}

static const struct {
    const char *domain, *type;
    op_range_fn *rule;
} table[] = {
    {"", "Abs", absolute},       {"", "Add", add},
    {"", "AveragePool", mean},   {"", "Cast", cast},
    {"", "Clip", clip},          {"", "Concat", joined},
    {"", "Div", divide},         {"", "Dropout", same},
    {"", "Expand", same},        {"", "Flatten", same},
    {"", "Gather", same},        {"", "Gelu", activation},
    {"", "Gemm", matmul},        {"", "GlobalAveragePool", mean},
    {"", "Identity", same},      {"", "LayerNormalization", norm},
    {"", "LeakyRelu", leaky},    {"", "MatMul", matmul},
    {"", "Max", joined},         {"", "MaxPool", same},
    {"", "Min", joined},         {"", "Mul", multiply},
    {"", "Neg", negate},         {"", "RMSNormalization", norm},
    {"", "ReduceMax", same},     {"", "ReduceMean", mean},
    {"", "ReduceMin", same},     {"", "ReduceSum", total},
    {"", "Relu", activation},    {"", "Reshape", same},
    {"", "Sigmoid", activation}, {"", "Slice", same},
    {"", "Softmax", softmax},    {"", "Split", same},
    {"", "Squeeze", same},       {"", "Sub", subtract},
    {"", "Swish", activation},   {"", "Tanh", activation},
    {"", "Tile", same},          {"", "Transpose", same},
    {"", "Unsqueeze", same},     {"tacit", "Norm", norm},
};

op_range_fn *op_range_rule(const ir_node *node)
{
    if (node->op && node->op->range)
        return node->op->range;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].type, node->type) == 0 && strcmp(table[i].domain, node->domain) == 0)
            return table[i].rule;
    return NULL;
}

tacit_status op_range_node(op_range *c)
{
    op_range_fn *rule = op_range_rule(c->node);
    return rule ? rule(c) : op_no_rule(c->node, "range", c->err);
}
