/* SPDX-License-Identifier: Apache-2.0
 * Walking index spaces in evaluators: an odometer over an output shape with any number of
 * strided operands beside it. */
#ifndef OP_LOOP_H
#define OP_LOOP_H

#include "ir/tensor.h"

enum { OP_LOOP_OPERANDS = 6 };

typedef struct op_loop {
    ir_shape shape;
    int64_t index[IR_MAX_RANK]; /* current position */
    int64_t linear;             /* current linear index in `shape` */
    int64_t count;
    uint32_t n;                                     /* operands */
    int64_t at[OP_LOOP_OPERANDS];                   /* current element offset of each operand */
    int64_t strides[OP_LOOP_OPERANDS][IR_MAX_RANK]; /* aligned to `shape`'s axes */
} op_loop;

void op_loop_begin(op_loop *l, const ir_shape *shape);
/* Adds a dense operand of `shape` that broadcasts to the loop's shape; returns its number. */
uint32_t op_loop_broadcast(op_loop *l, const ir_shape *shape);
/* Adds an operand with explicit strides per loop axis. */
uint32_t op_loop_strided(op_loop *l, const int64_t *strides, int64_t offset);
/* for (op_loop_begin…; !op_loop_done(&l); op_loop_next(&l)) */
static inline bool op_loop_done(const op_loop *l)
{
    return l->linear >= l->count;
}
static inline void op_loop_next(op_loop *l)
{
    l->linear++;
    for (int32_t d = l->shape.rank; d-- > 0;) {
        for (uint32_t k = 0; k < l->n; k++)
            l->at[k] += l->strides[k][d];
        if (++l->index[d] < l->shape.dims[d])
            return;
        for (uint32_t k = 0; k < l->n; k++)
            l->at[k] -= l->strides[k][d] * l->shape.dims[d];
        l->index[d] = 0;
    }
}

#endif
