/* SPDX-License-Identifier: Apache-2.0
 * Operators of com.microsoft that are short for a few of ONNX: a table of (op, rule). */
#ifndef LOAD_CONTRIB_H
#define LOAD_CONTRIB_H

#include "op/op.h"

/* Spells `node` out if the table has it and nobody else claimed it. */
tacit_status load_contrib(ir_graph *g, ir_node *node, tacit_error *err);
/* The names in the table, in order; NULL behind the last. */
const char *load_contrib_name(size_t index);

#endif
