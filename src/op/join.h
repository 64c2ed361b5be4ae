/* SPDX-License-Identifier: Apache-2.0
 * Many tensors become one: what Concat does, for items known only at run time. */
#ifndef OP_JOIN_H
#define OP_JOIN_H

#include "op/op.h"

typedef struct op_join {
    int64_t axis;  /* may be negative, counted in the result's rank */
    bool new_axis; /* stack instead of concatenate */
    bool reverse;  /* last item first */
} op_join;

/* Output `out` becomes the joined items. With no items, `empty` tells dtype and shape of one. */
tacit_status op_join_items(op_eval *c, uint32_t out, uint32_t n, const ir_tensor *const *items,
                           const op_join *how, const ir_type *empty);

#endif
