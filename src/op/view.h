/* SPDX-License-Identifier: Apache-2.0
 * Views: re-labelled shapes of existing elements, and axis lists. */
#ifndef OP_VIEW_H
#define OP_VIEW_H

#include "op/op.h"

/* Strides that read a source of `shape`/`strides` as `target` (same element count) without
 * moving anything; false where that is impossible. */
bool op_reshape_strides(const ir_shape *shape, const int64_t *strides, const ir_shape *target,
                        int64_t *out);
/* Alias rule of every op whose output has the input's elements in the same order. */
bool op_alias_reshape(const ir_node *node, uint32_t in, const op_operand *source, uint32_t out,
                      op_view *view);

/* Output 0 gets `rank` dims that only the data can tell. */
tacit_status op_infer_open(op_infer *c, tacit_dtype dtype, int64_t rank);

/* Reads a 1-D (or scalar) integer tensor of axes, normalised to [0, rank); refuses repeats.
 * `mask` bit d is set for axis d; `list` keeps their order. */
typedef struct op_axes {
    uint32_t count, mask;
    int32_t list[IR_MAX_RANK];
} op_axes;
tacit_status op_read_axes(const ir_tensor *t, int32_t rank, op_axes *out, tacit_error *err);
tacit_status op_make_axes(const int64_t *values, uint32_t n, int32_t rank, op_axes *out,
                          tacit_error *err);
/* Reads an integer tensor as a shape: at most IR_MAX_RANK entries, none negative. */
tacit_status op_read_shape(const ir_tensor *t, ir_shape *out, tacit_error *err);
/* The first element of an integer tensor that must have exactly one. */
tacit_status op_read_int(const ir_tensor *t, int64_t *out, tacit_error *err);

#endif
