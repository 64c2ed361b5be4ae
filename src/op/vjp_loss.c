/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of the losses over class scores. */
#include <string.h>

#include "op/vjp.h"

typedef struct loss {
    op_diff *c;
    ir_value *x, *labels, *weight; /* scores [N, C, d…], labels [N, 1, d…], weights [1, C, 1…] */
    ir_value *hot;                 /* 1 at the label's place, 0 elsewhere and for ignored labels */
    ir_value *weighted;            /* hot·weight */
} loss;

/* [C] as [1, C, 1…] */
static ir_value *along_classes(op_diff *c, ir_value *v, int32_t rank)
{
    ir_shape s = {.rank = rank};
    for (int32_t i = 0; i < rank; i++)
        s.dims[i] = i == 1 && v ? v->type.shape.dims[0] : 1;
    return op_diff_reshape(c, v, &s);
}

static void read_loss(loss *l)
{
    op_diff *c = l->c;
    const ir_node *n = c->node;
    l->x = n->inputs[0];
    int32_t rank = l->x->type.shape.rank;
    int64_t classes = l->x->type.shape.dims[1];
    const ir_attr *ignore = ir_attr_find(n, "ignore_index");
    ir_value *list =
        op_diff3(c, "Range", op_diff_scalar(c, TACIT_I64, 0),
                 op_diff_scalar(c, TACIT_I64, (double)classes), op_diff_scalar(c, TACIT_I64, 1));
    l->labels = op_diff2(c, "Unsqueeze", op_diff_cast(c, n->inputs[1], TACIT_I64),
                         op_diff_ints(c, 1, (int64_t[]){1}));
    ir_value *hit = op_diff2(c, "Equal", l->labels, along_classes(c, list, rank));
    if (ignore) {
        ir_value *skip =
            op_diff2(c, "Equal", l->labels, op_diff_scalar(c, TACIT_I64, (double)ignore->i));
        hit = op_diff2(c, "And", hit, op_diff1(c, "Not", skip));
    }
    l->hot = l->weighted = op_diff_cast(c, hit, l->x->type.dtype);
    if (n->n_inputs > 2 && n->inputs[2]) {
        l->weight = along_classes(c, n->inputs[2], rank);
        l->weighted = op_diff2(c, "Mul", l->hot, l->weight);
    }
}

static ir_value *sum_all(op_diff *c, ir_value *x)
{
    int64_t axes[IR_MAX_RANK];
    int32_t rank = x ? x->type.shape.rank : 0;
    for (int32_t i = 0; i < rank; i++)
        axes[i] = i;
    return op_diff_sum(c, x, (uint32_t)rank, axes, false);
}

/* The cotangent of the loss as a factor for every [N, C, d…], and the mean's divisor. */
static ir_value *factor(loss *l, ir_value **total)
{
    op_diff *c = l->c;
    const char *reduction = ir_attr_string(c->node, "reduction", "mean");
    ir_value *g = c->out_grad[0];
    *total = NULL;
    if (strcmp(reduction, "none") == 0)
        return op_diff2(c, "Unsqueeze", g, op_diff_ints(c, 1, (int64_t[]){1}));
    if (strcmp(reduction, "sum") == 0)
        return g;
    *total = sum_all(c, l->weighted);
    return op_diff2(c, "Div", g, *total);
}

/* With S_k = −Σ logp over the samples of class k and n_k their number: d loss / d w_k is S_k, and
 * for the mean (S_k − loss·n_k) / Σ w. */
static ir_value *weight_grad(loss *l, ir_value *logp, ir_value *gain, const ir_value *total)
{
    op_diff *c = l->c;
    ir_value *each = op_diff1(c, "Neg", op_diff2(c, "Mul", l->hot, logp));
    if (total)
        each = op_diff2(c, "Sub", each, op_diff2(c, "Mul", l->hot, c->node->outputs[0]));
    each = op_diff2(c, "Mul", each, gain);
    int64_t axes[IR_MAX_RANK] = {0};
    uint32_t n = 1;
    for (int32_t i = 2; i < l->x->type.shape.rank; i++)
        axes[n++] = i;
    return op_diff_sum(c, each, n, axes, false);
}

/* Cotangent of the log-probabilities `logp`; the class weights' on the way. */
static ir_value *log_probability_grad(loss *l, ir_value *logp)
{
    op_diff *c = l->c;
    ir_value *total;
    read_loss(l);
    ir_value *gain = factor(l, &total);
    if (l->weight && c->wanted[2])
        c->in_grad[2] = weight_grad(l, logp, gain, total);
    return op_diff2(c, "Mul", l->weighted, op_diff1(c, "Neg", gain));
}

tacit_status op_vjp_nll(op_diff *c)
{
    loss l = {.c = c};
    c->in_grad[0] = log_probability_grad(&l, c->node->inputs[0]);
    return c->status;
}

tacit_status op_vjp_cross_entropy(op_diff *c)
{
    loss l = {.c = c};
    ir_value *x = c->node->inputs[0], *d = c->node->n_outputs > 1 ? c->out_grad[1] : NULL;
    ir_value *logp = op_diff_attr_int(c, op_diff_open(c, "LogSoftmax", 1, &x), "axis", 1);
    if (c->out_grad[0])
        d = op_diff_add(c, log_probability_grad(&l, logp), d);
    ir_value *sum = op_diff_sum(c, d, 1, (int64_t[]){1}, true);
    ir_value *share = op_diff2(c, "Mul", op_diff1(c, "Exp", logp), sum);
    c->in_grad[0] = op_diff2(c, "Sub", d, share);
    return c->status;
}
