/* SPDX-License-Identifier: Apache-2.0
 * What Resize and Upsample nodes say: a filter that is applied axis by axis. */
#ifndef OP_RESIZE_H
#define OP_RESIZE_H

#include "op/op.h"

typedef enum op_filter { OP_FILTER_NEAREST, OP_FILTER_LINEAR, OP_FILTER_CUBIC } op_filter;

typedef struct op_resize {
    op_filter kind;
    const char *coordinates, *nearest;
    bool antialias, exclude_outside;
    double cubic_a, extrapolation;
    double scale[IR_MAX_RANK], roi_start[IR_MAX_RANK], roi_end[IR_MAX_RANK];
    ir_shape y;
} op_resize;

/* An input that has elements; exporters pass empty tensors for "absent". */
static inline const ir_tensor *op_resize_filled(const ir_tensor *t)
{
    return t && ir_tensor_count(t) > 0 ? t : NULL;
}
/* From the node and its inputs (roi, scales and sizes; NULL: absent). */
tacit_status op_resize_read(const ir_node *node, const ir_shape *x, const ir_tensor *roi,
                            const ir_tensor *scales, const ir_tensor *sizes, bool upsample,
                            op_resize *r, tacit_error *err);
static inline bool op_resize_changes(const op_resize *r, const ir_shape *x, int32_t d)
{
    return r->scale[d] != 1 || r->y.dims[d] != x->dims[d];
}
/* Which of the `in` entries of axis d make entry `at` of the result, and with which weights; how
 * many, or −1 where they are more than `most` or the place is no number. */
int32_t op_resize_taps(const op_resize *r, int32_t d, int64_t at, int64_t in, int32_t most,
                       int32_t *index, float *weight);

#endif
