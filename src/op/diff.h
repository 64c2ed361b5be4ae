/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of the transforms. A rule adds nodes to the graph that is being transformed, in which the
 * forward node already stands; nodes built through the functions below are inferred at once, so a
 * rule may read the shapes of what it built. After a failure every builder returns NULL and the
 * context remembers why: rules check once, by returning c->status at their end.
 */
#ifndef OP_DIFF_H
#define OP_DIFF_H

#include "op/op.h"

struct op_diff {
    ir_graph *graph;
    ir_node *node;          /* the forward node; its inputs and outputs may be used */
    ir_value **out_grad;    /* vjp in: cotangent of each output, NULL: zero */
    ir_value **in_grad;     /* vjp out: cotangent of each input, NULL: zero */
    const bool *wanted;     /* vjp: which inputs' cotangents will be used */
    ir_value **in_tangent;  /* jvp in: tangent of each input, NULL: zero */
    ir_value **out_tangent; /* jvp out: tangent of each output, NULL: zero */
    tacit_status status;
    tacit_error *err;
};

/* --- building --------------------------------------------------------------------------------- */
/* Any node with one output, "Softmax" or "tacit.Solve"; inputs may hold NULL for absent ones only
 * through op_diff_node. */
ir_value *op_diff_node(op_diff *c, const char *type, uint32_t n, ir_value *const *inputs);
/* The same, not yet inferred: for nodes whose attributes are set next (which infers them). NULL
 * when an input is NULL. */
ir_value *op_diff_open(op_diff *c, const char *type, uint32_t n, ir_value *const *inputs);
ir_value *op_diff1(op_diff *c, const char *type, ir_value *x);
ir_value *op_diff2(op_diff *c, const char *type, ir_value *x, ir_value *y);
ir_value *op_diff3(op_diff *c, const char *type, ir_value *x, ir_value *y, ir_value *z);
/* Attributes of the node that made `v`, then infer it again; `v` comes back (NULL on failure). */
ir_value *op_diff_attr_int(op_diff *c, ir_value *v, const char *name, int64_t value);
ir_value *op_diff_attr_ints(op_diff *c, ir_value *v, const char *name, uint32_t n,
                            const int64_t *values);
ir_value *op_diff_scalar(op_diff *c, tacit_dtype dtype, double value); /* rank 0 */
ir_value *op_diff_ints(op_diff *c, uint32_t n, const int64_t *values); /* rank 1, i64 */
ir_value *op_diff_scale(op_diff *c, ir_value *x, double factor);       /* x·factor, in x's dtype */
/* The conjugate where x is complex: cotangents are ∂/∂z̄, so slopes of holomorphic functions are
 * multiplied in conjugated. */
ir_value *op_diff_conj(op_diff *c, ir_value *x);
ir_value *op_diff_reshape(op_diff *c, ir_value *x, const ir_shape *shape);
ir_value *op_diff_expand(op_diff *c, ir_value *x, const ir_shape *shape);
ir_value *op_diff_transpose(op_diff *c, ir_value *x, const int64_t *perm); /* rank entries */
ir_value *op_diff_swap_last(op_diff *c, ir_value *x);                      /* last two axes */
ir_value *op_diff_sum(op_diff *c, ir_value *x, uint32_t n, const int64_t *axes, bool keep);
ir_value *op_diff_zeros(op_diff *c, const ir_type *type);
ir_value *op_diff_cast(op_diff *c, ir_value *x, tacit_dtype dtype);
/* Undo broadcasting: sums `x` down to `shape`. */
ir_value *op_diff_sum_to(op_diff *c, ir_value *x, const ir_shape *shape);
/* a + b where either may be NULL (zero). */
ir_value *op_diff_add(op_diff *c, ir_value *a, ir_value *b);
/* Fails with "node 'x' (Op): …". */
tacit_status op_diff_fail(op_diff *c, tacit_status status, const char *what);

/* --- batching --------------------------------------------------------------------------------- */
struct op_batch {
    op_diff build;       /* graph, status and error of the builders above */
    ir_node *node;       /* the original node */
    ir_value **in;       /* the new inputs; batched ones have a leading axis of size `size` */
    const bool *batched; /* which of them */
    ir_value **out;      /* to be set: every wanted output, all batched */
    int64_t size;
};
/* Rules shared by many rows. */
tacit_status op_batch_elementwise(op_batch *c); /* any broadcasting op */
tacit_status op_batch_unroll(op_batch *c); /* one copy of the node per batch entry: always right */
/* Rules by family (batch_rules.c). */
op_batch_fn op_batch_relabel, op_batch_transpose, op_batch_matmul, op_batch_reduce, op_batch_axis,
    op_batch_concat, op_batch_gather, op_batch_slice, op_batch_expand, op_batch_solve,
    op_batch_samples;
/* The input with a leading batch axis, made by expanding an unbatched one. */
ir_value *op_batch_input(op_batch *c, uint32_t i);
/* A copy of the node on other inputs (attributes included); its outputs are inferred. */
ir_node *op_batch_copy(op_batch *c, ir_value *const *inputs);

#endif
