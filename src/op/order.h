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

/* The same by numbers that say the order: op_key's, each beside what it stands for. */
typedef struct op_keyed {
    uint64_t key;
    int64_t item;
} op_keyed;
void op_sort_keyed(op_keyed *items, op_keyed *spare, int64_t n);
/* Keys of a tensor's elements are ordered, and equal, as op_compare says. Strings and complex
 * numbers have none. */
bool op_has_key(tacit_dtype dtype);
uint64_t op_key(const ir_tensor *t, int64_t i);

#endif
