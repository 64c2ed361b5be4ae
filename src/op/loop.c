/* SPDX-License-Identifier: Apache-2.0 */
#include "op/loop.h"

#include <string.h>

void op_loop_begin(op_loop *l, const ir_shape *shape)
{
    *l = (op_loop){.shape = *shape, .count = ir_shape_size(shape)};
}

uint32_t op_loop_strided(op_loop *l, const int64_t *strides, int64_t offset)
{
    memcpy(l->strides[l->n], strides, (size_t)l->shape.rank * sizeof *strides);
    l->at[l->n] = offset;
    return l->n++;
}

uint32_t op_loop_broadcast(op_loop *l, const ir_shape *shape)
{
    int64_t dense[IR_MAX_RANK], strides[IR_MAX_RANK] = {0};
    ir_shape_strides(shape, dense);
    int32_t shift = l->shape.rank - shape->rank;
    for (int32_t d = 0; d < shape->rank; d++)
        strides[d + shift] = shape->dims[d] == 1 ? 0 : dense[d];
    return op_loop_strided(l, strides, 0);
}
