/* SPDX-License-Identifier: Apache-2.0
 * What a caller who runs a graph without workers does instead of its nodes, one after another. */
#ifndef TASK_ALONE_H
#define TASK_ALONE_H

#include "tacit/task.h"

/* Does what all nodes do, but need not cut the work into as many pieces. */
typedef void task_alone_fn(void *context);
/* Before the first run; the graph has no asynchronous nodes, and none that can fail. */
void task_graph_alone(tacit_task_graph *g, task_alone_fn *fn, void *context);

#endif
