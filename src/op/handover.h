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
/* Then runs the second, and the first where it hands over an activation. */
cpu_kernel op_handover_kernel(void);
/* Its arguments: `own`, of a thunk to which one with arguments `before` hands over `what`; it
 * `leaves` its own activation to the next or not. NULL: no memory. */
const void *op_handover_args(arena *memory, const void *own, op_handover what, const void *before,
                             bool leaves);

#endif
