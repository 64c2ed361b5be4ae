/* SPDX-License-Identifier: Apache-2.0
 * Sliding windows over the spatial axes of [N, C, D1 … Dn]: convolutions and poolings share this.
 */
#ifndef OP_WINDOW_H
#define OP_WINDOW_H

#include "op/op.h"

typedef struct op_window {
    int32_t rank; /* spatial axes */
    int64_t in[IR_MAX_RANK], out[IR_MAX_RANK];
    int64_t kernel[IR_MAX_RANK], stride[IR_MAX_RANK], dilation[IR_MAX_RANK];
    int64_t pad_begin[IR_MAX_RANK], pad_end[IR_MAX_RANK];
    int64_t taps;              /* product of kernel */
    int64_t in_size, out_size; /* products of in, out */
} op_window;

/* Fills everything from `x` ([N, C, …]) and the attributes kernel_shape (or `kernel`, when not
 * NULL), strides, dilations, pads, auto_pad and ceil_mode. */
tacit_status op_window_read(const ir_node *node, const ir_shape *x, const int64_t *kernel,
                            op_window *w, tacit_error *err);
/* The same for a pooling of input 0; `y` is the shape of what it pools. */
tacit_status op_window_pooled(const op_infer *c, op_window *w, ir_shape *y);
/* Strides, dilations and pads only: `rank`, `in` and `kernel` are set already. */
tacit_status op_window_attributes(const ir_node *node, op_window *w, tacit_error *err);
/* One or two spatial axes as vertical and horizontal; a single axis is horizontal. */
typedef struct op_plane {
    int64_t in[2], out[2], kernel[2], stride[2], dilation[2], pad[2], pad_after[2];
} op_plane;
/* False: more axes, or padding that crops. */
bool op_plane_of(const op_window *w, op_plane *p);
/* The axis before those of a plane; one position with one tap where there is none. */
typedef struct op_depth {
    int64_t in, out, kernel, stride, dilation, pad, pad_after;
} op_depth;
/* One to three spatial axes. False: more axes, or padding that crops. */
bool op_volume_of(const op_window *w, op_plane *p, op_depth *z);
/* The shape that the attributes of a MaxUnpool of `x` imply. */
tacit_status op_unpool_natural(const ir_node *node, const ir_shape *x, ir_shape *y,
                               tacit_error *err);
/* Recomputes the products; false when one overflows. */
bool op_window_products(op_window *w);
/* For output position `at` (linear), the input's linear spatial offset under each tap; −1 where the
 * tap lies in the padding. */
void op_window_offsets(const op_window *w, int64_t at, int64_t *offsets);
/* Position `linear` of a space of `rank` axes as coordinates. */
void op_window_unravel(int32_t rank, const int64_t *dims, int64_t linear, int64_t *index);

#endif
