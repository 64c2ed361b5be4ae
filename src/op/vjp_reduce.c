/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of reductions, softmax, running sums and selections along an axis. */
#include <string.h>

#include "op/spell.h"
#include "op/vjp.h"

typedef struct reduction {
    op_diff *c;
    ir_value *x;
    ir_value *y, *g; /* output and its cotangent, reduced axes kept as size 1 */
    int64_t axes[IR_MAX_RANK];
    uint32_t n_axes;
    double count; /* elements behind one result */
} reduction;

/* Which axes a Reduce* node reduces. Its axes input must be known. */
static tacit_status read_axes(op_diff *c, reduction *r)
{
    const ir_shape *s = &r->x->type.shape;
    const ir_value *axes = c->node->n_inputs > 1 ? c->node->inputs[1] : NULL;
    const ir_tensor *known = ir_value_known(axes);
    if (axes && !known)
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "the axes are not known when compiling");
    uint32_t n = 0;
    int64_t list[IR_MAX_RANK];
    if (known)
        TRY(op_read_ints(known, list, IR_MAX_RANK, &n, c->err));
    if (n == 0 && !ir_attr_int(c->node, "noop_with_empty_axes", 0))
        for (int32_t i = 0; i < s->rank; i++)
            list[n++] = i;
    r->count = 1;
    for (uint32_t i = 0; i < n; i++) {
        int32_t axis;
        TRY(ir_axis(list[i], s->rank, &axis, c->err));
        r->axes[r->n_axes++] = axis;
        r->count *= (double)s->dims[axis];
    }
    return TACIT_OK;
}

static ir_value *spread(const reduction *r, ir_value *v)
{
    return op_diff_expand(r->c, v, &r->x->type.shape);
}

static ir_value *sum_slope(reduction *r)
{
    return spread(r, r->g);
}
static ir_value *mean_slope(reduction *r)
{
    return spread(r, op_diff_scale(r->c, r->g, r->count ? 1 / r->count : 0));
}
/* Elements that attain the extremum share the gradient equally. */
static ir_value *extremum_slope(reduction *r)
{
    op_diff *c = r->c;
    ir_value *hit = op_diff_cast(c, op_diff2(c, "Equal", r->x, r->y), r->x->type.dtype);
    ir_value *ties = op_diff_sum(c, hit, r->n_axes, r->axes, true);
    return op_diff2(c, "Mul", hit, op_diff2(c, "Div", r->g, ties));
}
static ir_value *l1_slope(reduction *r)
{
    return op_diff2(r->c, "Mul", op_diff1(r->c, "Sign", r->x), r->g);
}
/* x/‖x‖, zero at the origin. */
static ir_value *l2_slope(reduction *r)
{
    op_diff *c = r->c;
    ir_value *zero = op_diff_scalar(c, r->x->type.dtype, 0);
    ir_value *one = op_diff_scalar(c, r->x->type.dtype, 1);
    ir_value *positive = op_diff2(c, "Greater", r->y, zero);
    ir_value *unit = op_diff2(c, "Div", r->g, op_diff3(c, "Where", positive, r->y, one));
    return op_diff2(c, "Mul", r->x, op_diff3(c, "Where", positive, unit, zero));
}
static ir_value *square_slope(reduction *r)
{
    return op_diff2(r->c, "Mul", op_diff_scale(r->c, r->x, 2), r->g);
}
static ir_value *log_slope(reduction *r)
{
    return spread(r, op_diff2(r->c, "Div", r->g, op_diff1(r->c, "Exp", r->y)));
}
static ir_value *log_exp_slope(reduction *r)
{
    op_diff *c = r->c;
    ir_value *share = op_diff1(c, "Exp", op_diff2(c, "Sub", r->x, r->y));
    return op_diff2(c, "Mul", share, r->g);
}

/* A running product along the last axis, exclusive. */
static ir_value *running_product(op_diff *c, ir_value *x, bool reverse)
{
    ir_value *axis = op_diff_scalar(c, TACIT_I64, 1);
    ir_value *y = op_diff_open(c, "CumProd", 2, (ir_value *[]){x, axis});
    y = op_diff_attr_int(c, y, "exclusive", 1);
    return op_diff_attr_int(c, y, "reverse", reverse);
}

/* The product of all others, without dividing: zeros must not become NaN. */
static ir_value *product_slope(reduction *r)
{
    op_diff *c = r->c;
    const ir_shape *s = &r->x->type.shape;
    int64_t perm[IR_MAX_RANK] = {0}, back[IR_MAX_RANK];
    bool reduced[IR_MAX_RANK] = {false};
    int32_t n = 0;
    for (uint32_t i = 0; i < r->n_axes; i++)
        reduced[r->axes[i]] = true;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < s->rank; i++)
            if (reduced[i] == (pass == 1))
                perm[n++] = i;
    ir_shape moved = {.rank = s->rank};
    for (int32_t i = 0; i < s->rank; i++) {
        moved.dims[i] = s->dims[perm[i]];
        back[perm[i]] = i;
    }
    int64_t inner = (int64_t)r->count, total = ir_shape_size(s);
    ir_shape rows = ir_shape_of(2, (int64_t[]){inner ? total / inner : 0, inner});
    ir_value *flat = op_diff_reshape(c, op_diff_transpose(c, r->x, perm), &rows);
    ir_value *others =
        op_diff2(c, "Mul", running_product(c, flat, false), running_product(c, flat, true));
    others = op_diff_transpose(c, op_diff_reshape(c, others, &moved), back);
    return op_diff2(c, "Mul", others, r->g);
}

static const struct {
    const char *op;
    ir_value *(*slope)(reduction *r);
} slopes[] = {
    {"ReduceSum", sum_slope},
    {"ReduceMean", mean_slope},
    {"ReduceMax", extremum_slope},
    {"ReduceMin", extremum_slope},
    {"ReduceL1", l1_slope},
    {"ReduceL2", l2_slope},
    {"ReduceSumSquare", square_slope},
    {"ReduceLogSum", log_slope},
    {"ReduceLogSumExp", log_exp_slope},
    {"ReduceProd", product_slope},
};

tacit_status op_vjp_reduce(op_diff *c)
{
    reduction r = {.c = c, .x = c->node->inputs[0]};
    TRY(read_axes(c, &r));
    ir_shape kept = r.x->type.shape;
    for (uint32_t i = 0; i < r.n_axes; i++)
        kept.dims[r.axes[i]] = 1;
    r.y = op_diff_reshape(c, c->node->outputs[0], &kept);
    r.g = op_diff_reshape(c, c->out_grad[0], &kept);
    for (size_t i = 0; c->status == TACIT_OK && i < sizeof slopes / sizeof *slopes; i++)
        if (strcmp(slopes[i].op, c->node->type) == 0) {
            c->in_grad[0] = slopes[i].slope(&r);
            return c->status;
        }
    return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "no derivative is known");
}

static int64_t axis_of(const op_diff *c, int64_t fallback)
{
    int64_t axis = ir_attr_int(c->node, "axis", fallback);
    return axis < 0 ? axis + c->node->inputs[0]->type.shape.rank : axis;
}

/* y·(g − Σ y·g) */
tacit_status op_vjp_softmax(op_diff *c)
{
    ir_value *y = c->node->outputs[0], *g = c->out_grad[0];
    int64_t axis = axis_of(c, -1);
    ir_value *dot = op_diff_sum(c, op_diff2(c, "Mul", y, g), 1, &axis, true);
    c->in_grad[0] = op_diff2(c, "Mul", y, op_diff2(c, "Sub", g, dot));
    return c->status;
}

/* g − softmax·Σg */
tacit_status op_vjp_log_softmax(op_diff *c)
{
    int64_t axis = axis_of(c, -1);
    ir_value *total = op_diff_sum(c, c->out_grad[0], 1, &axis, true);
    ir_value *p = op_diff1(c, "Exp", c->node->outputs[0]);
    c->in_grad[0] = op_diff2(c, "Sub", c->out_grad[0], op_diff2(c, "Mul", p, total));
    return c->status;
}

/* The running sum from the other end. */
tacit_status op_vjp_cumsum(op_diff *c)
{
    ir_value *d = op_diff_open(c, "CumSum", 2, (ir_value *[]){c->out_grad[0], c->node->inputs[1]});
    d = op_diff_attr_int(c, d, "exclusive", ir_attr_int(c->node, "exclusive", 0));
    c->in_grad[0] = op_diff_attr_int(c, d, "reverse", !ir_attr_int(c->node, "reverse", 0));
    return c->status;
}

/* The chosen elements get their gradient back; the indices have none. */
tacit_status op_vjp_top_k(op_diff *c)
{
    if (!c->out_grad[0])
        return c->status;
    ir_value *zeros = op_diff_zeros(c, &c->node->inputs[0]->type);
    ir_value *d = op_diff_open(c, "ScatterElements", 3,
                               (ir_value *[]){zeros, op_diff_output(c, 1), c->out_grad[0]});
    c->in_grad[0] = op_diff_attr_int(c, d, "axis", axis_of(c, -1));
    return c->status;
}
