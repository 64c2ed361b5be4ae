/* SPDX-License-Identifier: Apache-2.0
 * Indices that come from data: checked before they touch anything. */
#ifndef OP_INDEX_H
#define OP_INDEX_H

#include "op/op.h"

/* indices[i] in [-n, n) → [0, n); the error names the index and the axis. */
tacit_status op_index_at(const ir_tensor *indices, int64_t i, int64_t n, int32_t axis, int64_t *out,
                         tacit_error *err);

/* The error for indices[entry] = index, outside [-n, n) of the axis. */
tacit_status op_index_refused(int64_t index, int64_t entry, int64_t n, int32_t axis,
                              tacit_error *err);

typedef enum op_combine_kind {
    OP_COMBINE_SET,
    OP_COMBINE_ADD,
    OP_COMBINE_MUL,
    OP_COMBINE_MAX,
    OP_COMBINE_MIN,
} op_combine_kind;
/* The node's attribute `reduction`. */
tacit_status op_read_reduction(const ir_node *node, op_combine_kind *out, tacit_error *err);
/* to[at] becomes to[at] ∘ from[from_at]. */
void op_combine(op_combine_kind kind, tacit_dtype dtype, void *to, int64_t at, const void *from,
                int64_t from_at);

/* Elements before and after an axis: a tensor seen as [outer, dims[axis], inner]. */
typedef struct op_split_axis {
    int32_t axis;
    int64_t outer, size, inner;
} op_split_axis;
tacit_status op_split_at(const ir_shape *s, int64_t axis, op_split_axis *out, tacit_error *err);

#endif
