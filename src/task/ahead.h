/* SPDX-License-Identifier: Apache-2.0
 * What nodes will read from memory. A worker that has nothing to do asks for the first lines of
 * what the next nodes near to it will read, so that memory does not rest where threads wait for
 * each other. */
#ifndef TASK_AHEAD_H
#define TASK_AHEAD_H

#include "tacit/task.h"

/* Before sealing, for nodes that are near to a worker: [at, at + bytes) is read in order. Several
 * of one worker, one behind the other and with the same arguments, are asked for side by side. */
void task_graph_ahead(tacit_task_graph *g, uint32_t node, const void *at, size_t bytes);

#endif
