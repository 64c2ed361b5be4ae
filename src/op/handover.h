/* SPDX-License-Identifier: Apache-2.0
 * What a thunk can hand over to the next one where both run whole, one right behind the other, and
 * nobody else reads it: it is not stored and read again. The bits are the same either way. */
#ifndef OP_HANDOVER_H
#define OP_HANDOVER_H

#include "op/lower.h"

typedef enum op_handover {
    OP_HANDS_NOTHING,
    OP_HANDS_ROWS,       /* the second normalises the rows it reads: the first need not run */
    OP_HANDS_ACTIVATION, /* the second activates what the first has summed */
} op_handover;

/* `second` reads what `first` writes as its input 0, in the same shape. */
op_handover op_handover_find(const op_thunk *first, const op_thunk *second);
/* Then runs the second, and the first where it hands over an activation: its arguments are
 * cpu_paired_handed_args (cpu/paired.h). */
cpu_kernel op_handover_kernel(void);

#endif
