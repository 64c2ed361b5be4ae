/* SPDX-License-Identifier: Apache-2.0
 * Ordering elements of any dtype. */
#ifndef OP_ORDER_H
#define OP_ORDER_H

#include "op/op.h"

/* -1, 0, 1 for element a before, same as, after element b. NaN comes after every number and is
 * the same as NaN; strings compare by bytes; complex by real part, then imaginary. */
int op_compare(const ir_tensor *t, int64_t a, int64_t b);

/* Sorts `n` items (any meaning) with `less`-like `compare`, stable. `spare` has room for n. */
void op_sort(int64_t *items, int64_t *spare, int64_t n,
             int (*compare)(const void *context, int64_t a, int64_t b), const void *context);

#endif
