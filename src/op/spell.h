/* SPDX-License-Identifier: Apache-2.0
 * What spellings (op_spell_fn) are made of, beyond op/diff.h. The same contract: a NULL argument or
 * an earlier failure gives NULL. */
#ifndef OP_SPELL_H
#define OP_SPELL_H

#include "op/diff.h"

ir_value *op_spell_add(op_diff *c, ir_value *a, ir_value *b);
ir_value *op_spell_sub(op_diff *c, ir_value *a, ir_value *b);
ir_value *op_spell_mul(op_diff *c, ir_value *a, ir_value *b);
ir_value *op_spell_div(op_diff *c, ir_value *a, ir_value *b);
ir_value *op_spell_matmul(op_diff *c, ir_value *a, ir_value *b);
/* x + offset and so on, in x's dtype. */
ir_value *op_spell_shift(op_diff *c, ir_value *x, double offset);
ir_value *op_spell_clip(op_diff *c, ir_value *x, double low, double high);
/* 1 where `a type b` holds ("Less", "Greater" …), in dtype. */
ir_value *op_spell_where(op_diff *c, const char *type, ir_value *a, double b, tacit_dtype dtype);

ir_value *op_spell_shaped(op_diff *c, ir_value *x, int32_t rank, const int64_t *dims);
ir_value *op_spell_expanded(op_diff *c, ir_value *x, int32_t rank, const int64_t *dims);
ir_value *op_spell_slice(op_diff *c, ir_value *x, int64_t axis, int64_t from, int64_t to);
/* Zeros before and after along one axis. */
ir_value *op_spell_padded(op_diff *c, ir_value *x, int64_t axis, int64_t before, int64_t after);
ir_value *op_spell_concat(op_diff *c, uint32_t n, ir_value *const *parts, int64_t axis);
ir_value *op_spell_unsqueeze(op_diff *c, ir_value *x, int64_t axis);
ir_value *op_spell_gather(op_diff *c, ir_value *x, ir_value *index, int64_t axis);
ir_value *op_spell_gather_elements(op_diff *c, ir_value *x, ir_value *index, int64_t axis);
/* Mean, sum, maximum … over one axis. */
ir_value *op_spell_reduce(op_diff *c, const char *type, ir_value *x, int64_t axis, bool keep);
ir_value *op_spell_attr_string(op_diff *c, ir_value *v, const char *name, const char *value);

/* Constants with given contents: floats in dtype, i64. */
ir_value *op_spell_floats(op_diff *c, tacit_dtype dtype, int32_t rank, const int64_t *dims,
                          const double *values);
ir_value *op_spell_ints(op_diff *c, int32_t rank, const int64_t *dims, const int64_t *values);
ir_value *op_spell_eye(op_diff *c, tacit_dtype dtype, int64_t n);
/* A node with the attributes of the one being spelled, inferred. NULL: failed. */
ir_node *op_spell_sibling(op_diff *c, const char *type, const char *domain, uint32_t n_in,
                          ir_value *const *in, uint32_t n_out);
/* Input i, or NULL. */
ir_value *op_spell_input(const op_diff *c, uint32_t i);
/* Output i of the node, which gains it where nobody asked for it. */
ir_value *op_diff_output(op_diff *c, uint32_t i);

/* Copies of the nodes of `body` in `g`, its inputs, then its outer values, bound to `args`;
 * `results` are its outputs. */
tacit_status op_inline_graph(ir_graph *g, const ir_graph *body, ir_value *const *args,
                             ir_value **results, tacit_error *err);
/* Scratch in the graph's memory; NULL sets the status. */
void *op_spell_scratch(op_diff *c, size_t bytes);

/* --- interpolation ---------------------------------------------------------------------------- */
/* The taps that one coordinate of a point meets: indices (i64, inside the axis) and weights, which
 * are zero where the tap lies outside; a NULL weight is one. */
typedef struct op_taps {
    ir_value *index[4], *weight[4];
    int count;
} op_taps;

enum { OP_TAP_COMBOS = 64 };

/* parts[k]: flat [A, C, size] at every combination of taps, times its weights: [A, C, P] each.
 * Indices and weights are [A, 1, P]. Returns how many parts there are, 0: failed. */
int op_spell_tap_parts(op_diff *c, ir_value *flat, int32_t rank, const int64_t *in,
                       const op_taps *taps, ir_value **parts);
/* Their sum. */
ir_value *op_spell_interpolate(op_diff *c, ir_value *flat, int32_t rank, const int64_t *in,
                               const op_taps *taps);
/* Linear taps of coordinate x on an axis of `n`; nothing lies outside. */
op_taps op_spell_linear_taps(op_diff *c, ir_value *x, int64_t n);

/* --- scans ------------------------------------------------------------------------------------ */
/* A scan being built: `body` builds inside; carries and xs are added on both sides at once, then
 * outer values, then the scan is closed. */
typedef struct op_scan_build {
    op_diff *outer;
    op_diff body;
    ir_value *in[16], *outer_values[8], *step[8];
    uint32_t n_carry, n_x, n_outer, n_step;
    ir_value *next[8];
    bool reverse;
} op_scan_build;

bool op_scan_begin(op_scan_build *b, op_diff *c);
ir_value *op_scan_carry(op_scan_build *b, ir_value *first);
ir_value *op_scan_x(op_scan_build *b, ir_value *xs); /* steps along axis 0 */
ir_value *op_scan_outer(op_scan_build *b, ir_value *value);
/* The Scan: outputs are the last carries, then `step` values along axis 0. NULL: failed. */
ir_node *op_scan_end(op_scan_build *b);

#endif
