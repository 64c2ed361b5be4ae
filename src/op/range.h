/* SPDX-License-Identifier: Apache-2.0
 * Interval arithmetic over operators: what values can be, given what the inputs can be. Proofs, not
 * hints: every result of exact arithmetic lies in the interval. Rounding is the caller's to add.
 *
 * A row of the op table may bring its own rule (op_def.range); the rest is the table in range.c.
 * The functions below are the rules themselves; private inference applies them to fixed-point
 * values. */
#ifndef OP_RANGE_H
#define OP_RANGE_H

#include "op/op.h"

typedef struct op_interval {
    double lo, hi;
    double norm; /* bounds the Euclidean norm along the last axis; 0: only by lo and hi */
    /* of a weight [.., k, n]: the largest sums over a column, and over all */
    double l1, l2, frobenius;
} op_interval;

struct op_range {
    const ir_node *node;
    const op_interval *in; /* by input; absent ones are not read */
    op_interval *out;      /* by output, to be filled in */
    tacit_error *err;
};

/* The rule of a node, or NULL. */
op_range_fn *op_range_rule(const ir_node *node);
/* Applies it; "node 'x': Erf has no range rule" where there is none. */
tacit_status op_range_node(op_range *c);

static inline double op_magnitude(op_interval x)
{
    return x.hi > -x.lo ? x.hi : -x.lo;
}
op_interval op_range_of(double lo, double hi);
op_interval op_range_hull(op_interval x, op_interval y);
op_interval op_range_add(op_interval x, op_interval y);
op_interval op_range_sub(op_interval x, op_interval y);
op_interval op_range_mul(op_interval x, op_interval y);
op_interval op_range_scale(op_interval x, double c);
op_interval op_range_clip(op_interval x, double low, double high);
/* a x below zero, x above; a = 0: relu, a = -1: |x|. */
op_interval op_range_leaky(op_interval x, double a);
/* "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "relu"; false: another name. */
bool op_range_activation(const char *name, op_interval x, op_interval *out);
/* Rows of x (length k) times columns of w (n of them), by the largest entry and by norms. */
op_interval op_range_contract(op_interval x, op_interval w, double k, double n);
/* Normalised to mean square one over k entries, times gamma. */
op_interval op_range_normal(double k, op_interval gamma);

#endif
