/* SPDX-License-Identifier: Apache-2.0
 * Which memory waiting workers ask for; see ahead.h. */
#include "task/ahead.h"

#include "task/graph.h"

enum {
    LINE = 64,
    LOOK_LINES = 24,  /* asked for between two looks for work: some 50 ns */
    MOST = 256 << 10, /* of one worker: what it runs before shall leave it in L2 */
};

void task_graph_ahead(tacit_task_graph *g, uint32_t node, const void *at, size_t bytes)
{
    task_node_info *info = &g->info.data[node];
    if (!info->near)
        return;
    info->ahead = at;
    info->ahead_bytes = bytes;
    g->has_ahead = true;
}

/* By worker and node: the first node behind that one that is near to the worker and reads. */
bool task_ahead_build(tacit_task_graph *g)
{
    if (!g->has_ahead)
        return true;
    g->ahead = ARENA_ARRAY(&g->memory, (size_t)g->rt->threads * g->count, uint32_t);
    for (uint32_t w = 0; g->ahead && w < g->rt->threads; w++) {
        uint32_t next = TASK_NIL;
        for (uint32_t i = g->count; i-- > 0;) {
            const task_node_info *info = &g->info.data[i];
            g->ahead[(size_t)w * g->count + i] = next;
            if (info->ahead && info->near == w + 1)
                next = i;
        }
    }
    return g->ahead != NULL;
}

void task_ahead_ask(task_worker *w, const tacit_task_graph *g)
{
    uint32_t first = g->ahead[(size_t)w->index * g->count + w->ran], nodes = 1;
    if (first == TASK_NIL)
        return;
    if (w->ahead != first) {
        w->ahead = first;
        w->asked = 0;
    }
    const task_node_info *info = &g->info.data[first];
    while (first + nodes < g->count && info[nodes].near == info->near &&
           info[nodes].args == info->args)
        nodes++;
    for (uint32_t k = 0; k < LOOK_LINES && w->asked < MOST / LINE; k++) {
        const task_node_info *one = &info[w->asked % nodes];
        size_t at = (size_t)(w->asked++ / nodes) * LINE;
        if (at < one->ahead_bytes)
            __builtin_prefetch((const char *)one->ahead + at, 0, 2);
    }
}
