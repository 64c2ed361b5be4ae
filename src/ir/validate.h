/* SPDX-License-Identifier: Apache-2.0
 * Checks of a graph's structure. */
#ifndef IR_VALIDATE_H
#define IR_VALIDATE_H

#include "ir/graph.h"

/* Ids, names, producers and lists agree; every input of a node is made before it; no cycle; no
 * dangling value. Subgraphs included. The error names node or value. */
tacit_status ir_validate(const ir_graph *g, tacit_error *err);

#endif
