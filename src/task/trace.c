/* SPDX-License-Identifier: Apache-2.0 */
#include "task/task.h"

void task_trace_rings(tacit_task_runtime *rt)
{
    uint64_t now = task_ticks();
    uint64_t used[] = {rt->next - rt->fanin.tail, rt->heap.top - rt->heap.tail,
                       rt->dep_top - rt->dep_tail, rt->map.used};
    uint64_t size[] = {rt->capacity, rt->heap.size, rt->dep_capacity, rt->map.capacity};
    for (uint32_t r = 0; r < TACIT_TASK_RESOURCES; r++)
        task_trace_add(&rt->workers[0].trace, now, TASK_EV_RING, r, rt->next,
                       (uint32_t)(used[r] * 1000 / size[r]));
}
