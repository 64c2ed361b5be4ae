/* SPDX-License-Identifier: Apache-2.0
 * Older operator forms to the newest: a table of (op, version below which, rule). */
#ifndef LOAD_UPGRADE_H
#define LOAD_UPGRADE_H

#include "op/op.h"

/* Rewrites `node`, which the file wrote against `version` of its domain's opset, into the newest
 * form. May add nodes and constants to `g`. */
tacit_status load_upgrade(ir_graph *g, ir_node *node, int64_t version, tacit_error *err);
/* From which opset on files may use the operator, and from which on its form is the row's own. */
void load_opsets(const op_def *row, int64_t *first, int64_t *newest_form);

#endif
