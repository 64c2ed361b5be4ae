/* SPDX-License-Identifier: Apache-2.0
 * What Pad puts beside an axis. */
#ifndef OP_PAD_H
#define OP_PAD_H

#include "ir/graph.h"

typedef enum op_pad_mode { OP_PAD_CONSTANT, OP_PAD_REFLECT, OP_PAD_EDGE, OP_PAD_WRAP } op_pad_mode;

tacit_status op_read_pad_mode(const ir_node *node, op_pad_mode *mode, tacit_error *err);
/* Position i, counted from the first element of an axis of n, as one of that axis; -1: the
 * constant. */
int64_t op_pad_source(op_pad_mode mode, int64_t i, int64_t n);

#endif
