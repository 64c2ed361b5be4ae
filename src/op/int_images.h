/* SPDX-License-Identifier: Apache-2.0
 * Images of bytes whose channels lie inside, [N, H, W, C]. */
#ifndef OP_INT_IMAGES_H
#define OP_INT_IMAGES_H

#include "op/op.h"

/* tacit.IntConv's attribute `inside`. */
enum { OP_INSIDE_X = 1, OP_INSIDE_Y = 2 };

/* [N, H, W, C] as [N, C, H, W], and back. */
static inline ir_shape op_outside(const ir_shape *s)
{
    ir_shape out = *s;
    out.dims[1] = s->dims[3];
    out.dims[2] = s->dims[1];
    out.dims[3] = s->dims[2];
    return out;
}
static inline ir_shape op_inside(const ir_shape *s)
{
    ir_shape out = *s;
    out.dims[1] = s->dims[2];
    out.dims[2] = s->dims[3];
    out.dims[3] = s->dims[1];
    return out;
}
/* Do weights of that type lie around the middle: 0 of signed ones, 128 of unsigned? By their zero
 * points; NULL: 0. */
static inline bool op_is_centred(tacit_dtype weights, const ir_tensor *zero)
{
    uint8_t middle = weights == TACIT_I8 ? 0 : 128, differs = 0;
    if (!zero)
        return middle == 0;
    const uint8_t *bytes = zero->data; /* they have the type of the weights */
    for (int64_t i = 0, count = ir_tensor_count(zero); i < count; i++)
        differs |= bytes[i] ^ middle;
    return !differs;
}
/* Where element i of [N, C, plane] lies when its channels lie inside. */
static inline int64_t op_inside_at(int64_t i, int64_t channels, int64_t plane)
{
    int64_t image = i / (channels * plane), c = i / plane % channels;
    return (image * plane + i % plane) * channels + c;
}

#endif
