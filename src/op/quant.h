/* SPDX-License-Identifier: Apache-2.0
 * Which scale belongs to which element: per tensor, per axis, or blocked along an axis. */
#ifndef OP_QUANT_H
#define OP_QUANT_H

#include "op/op.h"

typedef struct op_granularity {
    int32_t axis;
    int64_t block;                /* elements of the axis that share a scale */
    int64_t strides[IR_MAX_RANK]; /* of the scale, per axis of x; 0: shared */
} op_granularity;

tacit_status op_granularity_read(const ir_node *node, const ir_shape *x, const ir_shape *scale,
                                 op_granularity *g, tacit_error *err);
/* The scale's index for the element at `index`. */
int64_t op_granularity_at(const op_granularity *g, int32_t rank, const int64_t *index);
/* v rounded to what `dtype` holds. */
double op_round_to(tacit_dtype dtype, double v);
/* saturate(round(value) + zero) for integers; rounding to the format for small floats. */
double op_quantize(tacit_dtype dtype, double value, double zero, bool saturate);

#endif
