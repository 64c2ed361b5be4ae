/* SPDX-License-Identifier: Apache-2.0
 * Interval arithmetic over operators: what values can be, given what the inputs can be. Proofs, not
 * hints: every result of exact arithmetic lies in the interval. Rounding is the caller's to add.
 *
 * The rule of an operator is in its row (op_def.range); rules that serve several rows are in
 * range_rules.c. The functions on intervals are what they are made of. Private inference asks the
 * rules for what fixed-point values can be, and adds its rounding. */
#ifndef OP_RANGE_H
#define OP_RANGE_H

#include "op/op.h"

typedef struct op_interval {
    double lo, hi;
    double norm; /* bounds the Euclidean norm along the last axis; 0: only by lo and hi */
    /* of a second operand [.., k, n]: the largest sums of |x| and norms over a column, and the norm
     * of all of it; of filters: over what makes one output channel. 0: not known */
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

/* Rules of rows. */
op_range_fn op_bounds_same; /* nothing but elements of input 0 */
op_range_fn op_bounds_joined, op_bounds_cast, op_bounds_dropout, op_bounds_max_pool;
op_range_fn op_bounds_add, op_bounds_subtract, op_bounds_multiply, op_bounds_divide;
op_range_fn op_bounds_max, op_bounds_min, op_bounds_total_of, op_bounds_mean_of;
op_range_fn op_bounds_negate, op_bounds_absolute, op_bounds_leaky, op_bounds_clip;
op_range_fn op_bounds_relu, op_bounds_gelu, op_bounds_sigmoid, op_bounds_tanh, op_bounds_swish;
op_range_fn op_bounds_softmax, op_bounds_norm, op_bounds_fused_norm;
op_range_fn op_bounds_matmul, op_bounds_gemm, op_bounds_conv;
op_range_fn op_bounds_fused_matmul, op_bounds_fused_conv, op_bounds_gated;
op_range_fn op_bounds_fused_attention, op_bounds_rotary;
op_range_fn op_bounds_mean, op_bounds_average_pool, op_bounds_sum, op_bounds_arg;

#endif
