/* SPDX-License-Identifier: Apache-2.0
 * Asynchronous kernels in graph runs. A launched node is out until its token comes back, from any
 * thread; whoever brings it puts the node on a list, and the run's workers go on from there. A
 * token names run and node, so one that comes twice, or late, is refused. */
#include <inttypes.h>

#include "task/graph.h"

#define GRAPH_TOKEN ((uint64_t)1 << 63)

static uint64_t token_of(const tacit_task_runtime *rt, uint32_t node)
{
    return GRAPH_TOKEN | (uint64_t)(LOAD(&rt->run_number, RELAXED) & 0x7fffffff) << 32 | node;
}

/* TASK_OUT, or a status when the launch has failed and the node is over. */
uint8_t task_async_launch(tacit_task_runtime *rt, const task_worker *w, task_recorded *r)
{
    uint64_t token = token_of(rt, r->node);
    tacit_task_call call = {.values = r->values,
                            .user = r->user,
                            .id = token,
                            .count = r->count,
                            .worker = w->index,
                            .runtime = rt};
    STORE(&r->token, token, MO_PUSH);
    uint8_t status = (uint8_t)r->kernel->run(&call);
    if (status && atomic_compare_exchange_strong_explicit(&r->token, &token, 0, MO_SEAL, RELAXED))
        return status;
    return TASK_OUT;
}

uint32_t task_async_take(tacit_task_runtime *rt)
{
    if (LIKELY(!LOAD(&rt->returned, RELAXED)))
        return 0;
    return atomic_exchange_explicit(&rt->returned, 0, MO_STEAL);
}

static void bring_back(tacit_task_runtime *rt, task_recorded *r, tacit_status status)
{
    uint32_t head = LOAD(&rt->returned, RELAXED);
    r->status = (uint8_t)status;
    do {
        r->next = head;
    } while (!atomic_compare_exchange_weak_explicit(&rt->returned, &head, r->node + 1, MO_PUSH,
                                                    RELAXED));
    task_notify(rt, NULL);
    if (LOAD(&rt->orchestrator_asleep, RELAXED))
        task_wake_orchestrator(rt);
}

tacit_status task_async_complete(tacit_task_runtime *rt, tacit_task_id token, tacit_status status,
                                 tacit_error *err)
{
    /* Announce, then look: a run that ends clears `graph` and then waits until nobody is inside, so
     * that even a token that comes too often finds the graph it asks. */
    atomic_fetch_add_explicit(&rt->foreign_inside, 1, MO_ANNOUNCE);
    tacit_task_graph *g = LOAD(&rt->graph, MO_CHECK);
    uint32_t node = (uint32_t)token;
    bool known = g && node < g->count && (g->nodes[node].flags & TASK_NODE_ASYNC);
    task_recorded *r = known ? g->info.data[node].recorded : NULL;
    uint64_t expected = token;
    known =
        known && atomic_compare_exchange_strong_explicit(&r->token, &expected, 0, MO_SEAL, RELAXED);
    if (known)
        bring_back(rt, r, status);
    atomic_fetch_sub_explicit(&rt->foreign_inside, 1, MO_LEAVE);
    if (known)
        return TACIT_OK;
    return error_set(err, TACIT_ERR_STATE, "token %" PRIu64 " is not waiting for completion",
                     token);
}
