/* SPDX-License-Identifier: Apache-2.0
 * Scopes, early free, waiting, states. */
#include <inttypes.h>

#include "task/task.h"

static void trace_scope(tacit_task_runtime *rt)
{
    if (task_tracing(rt) >= 3)
        task_trace_add(&rt->workers[0].trace, task_ticks(), TASK_EV_SCOPE, 0, rt->next, rt->depth);
}

tacit_status tacit_task_scope_begin(tacit_task_runtime *rt, tacit_task_scope_mode mode,
                                    const char *site, tacit_error *err)
{
    TRY(task_check_owner(rt, err));
    if (rt->depth == TACIT_TASK_MAX_SCOPES)
        return error_set(err, TACIT_ERR_LIMIT, "scope \"%s\": %d scopes are open already",
                         site ? site : "?", TACIT_TASK_MAX_SCOPES);
    if (mode == TACIT_TASK_AUTO && rt->depth && rt->scopes[rt->depth - 1].mode != TACIT_TASK_AUTO)
        return error_set(err, TACIT_ERR_STATE,
                         "scope \"%s\": an automatic scope cannot stand inside manual scope \"%s\","
                         " whose tasks the map does not know",
                         site ? site : "?",
                         rt->scopes[rt->depth - 1].site ? rt->scopes[rt->depth - 1].site : "?");
    uint64_t here = rt->recorder ? task_record_count(rt) : rt->next;
    rt->scopes[rt->depth++] = (task_scope){here, rt->heap.top, site, mode};
    trace_scope(rt);
    return TACIT_OK;
}

static void drop_token(tacit_task_runtime *rt, uint64_t id)
{
    uint32_t index = task_index(rt, id);
    if (!rt->token[index])
        return; /* freed early, or owned by an inner scope that has ended */
    rt->token[index] = false;
    task_drop(rt, index);
}

tacit_status tacit_task_scope_end(tacit_task_runtime *rt, tacit_error *err)
{
    TRY(task_check_owner(rt, err));
    if (rt->depth == 0)
        return error_set(err, TACIT_ERR_STATE, "scope end without a scope begin");
    const task_scope *s = &rt->scopes[--rt->depth];
    if (rt->recorder) {
        task_record_scope_end(rt, s->begin);
        return TACIT_OK;
    }
    uint64_t held = rt->next - s->begin, bytes = rt->heap.top - s->heap_begin;
    rt->pinned_slots = rt->pinned_slots > held ? rt->pinned_slots : held;
    rt->pinned_heap = rt->pinned_heap > bytes ? rt->pinned_heap : bytes;
    uint64_t from = s->begin > rt->fanin.tail ? s->begin : rt->fanin.tail;
    for (uint64_t id = from; id != rt->next; id++)
        drop_token(rt, id);
    trace_scope(rt);
    if (rt->held_count)
        task_publish(rt);
    return TACIT_OK;
}

tacit_status tacit_task_free(tacit_task_runtime *rt, tacit_task_id id, tacit_error *err)
{
    TRY(task_check_owner(rt, err));
    if (rt->recorder)
        return TACIT_OK; /* a recorded graph owns its memory as a whole */
    if (id - rt->first_id >= rt->next - rt->first_id)
        return error_set(err, TACIT_ERR_ARGUMENT, "there is no task %" PRIu64 " to free", id);
    if (task_alive(rt, id))
        drop_token(rt, id);
    return TACIT_OK;
}

/* ---- waiting ------------------------------------------------------------------------------ */

tacit_status tacit_task_flush(tacit_task_runtime *rt, tacit_error *err)
{
    TRY(task_check_owner(rt, err));
    task_hand_over(rt);
    return TACIT_OK;
}

static const char *kernel_name(const tacit_task_runtime *rt, uint32_t kernel)
{
    const tacit_task_kernel *k = rt->kernels[kernel];
    return k && k->name ? k->name : "unnamed";
}

static tacit_status report_failure(const tacit_task_runtime *rt, uint64_t id, uint32_t kernel,
                                   uint8_t status, tacit_error *err)
{
    tacit_status code = (tacit_status)(status & 0x7f);
    if (status & TASK_INHERITED)
        return error_set(err, code, "task %" PRIu64 " (%s) was not run: a producer failed (%s)", id,
                         kernel_name(rt, kernel), tacit_status_text(code));
    return error_set(err, code, "task %" PRIu64 " (%s) failed: %s", id, kernel_name(rt, kernel),
                     tacit_status_text(code));
}

static bool task_sealed(const tacit_task_runtime *rt, uint64_t id)
{
    return (uint32_t)(LOAD(&rt->slots[task_index(rt, id)].word, MO_SEEN) >> 32) == TASK_SEALED;
}

tacit_status tacit_task_wait(tacit_task_runtime *rt, tacit_task_id id, tacit_error *err)
{
    TRY(task_check_owner(rt, err));
    if (rt->recorder)
        return error_set(err, TACIT_ERR_STATE, "nothing runs while a graph is recorded");
    if (id - rt->first_id >= rt->next - rt->first_id)
        return error_set(err, TACIT_ERR_ARGUMENT, "there is no task %" PRIu64 " to wait for", id);
    task_patience patience = {0};
    if (task_alive(rt, id) && !task_sealed(rt, id)) {
        task_publish(rt);
        while (!task_sealed(rt, id))
            task_wait_step(rt, &patience);
    }
    uint8_t status = task_alive(rt, id) ? rt->slots[task_index(rt, id)].status
                                        : task_failures_find(&rt->failures, id);
    if (status) {
        uint32_t kernel =
            task_alive(rt, id) ? rt->slots[task_index(rt, id)].kernel : TASK_KERNELS - 1;
        return report_failure(rt, id, kernel, status, err);
    }
    return TACIT_OK;
}

tacit_status tacit_task_wait_all(tacit_task_runtime *rt, tacit_error *err)
{
    TRY(task_check_owner(rt, err));
    if (rt->recorder)
        return error_set(err, TACIT_ERR_STATE, "nothing runs while a graph is recorded");
    if (rt->held_count)
        task_publish(rt);
    task_patience patience = {0};
    while (task_executed(rt) != rt->next - rt->first_id)
        task_wait_step(rt, &patience);
    task_reclaim(rt);
    rt->failures.count = 0;
    rt->failures.lost = 0;
    uint64_t failure = LOAD(&rt->first_failure, RELAXED);
    if (failure == UINT64_MAX)
        return TACIT_OK;
    STORE(&rt->first_failure, UINT64_MAX, RELAXED);
    return report_failure(rt, failure >> 16, (failure >> 8) & 0xff, (uint8_t)failure, err);
}

/* ---- looking inside ----------------------------------------------------------------------- */

static const char *const state_names[] = {"BUILDING",  "PENDING", "READY",   "RUNNING",
                                          "COMPLETED", "FAILED",  "CONSUMED"};
static const char *const resource_names[] = {"task", "heap", "dependence", "record", "none"};

const char *tacit_task_state_name(tacit_task_state state)
{
    return state_names[state];
}

const char *tacit_task_resource_name(tacit_task_resource resource)
{
    return resource_names[resource];
}

tacit_task_state tacit_task_state_of(tacit_task_runtime *rt, tacit_task_id id)
{
    if (id - rt->first_id >= rt->next - rt->first_id)
        return TACIT_TASK_BUILDING;
    uint32_t index = task_index(rt, id);
    if (!task_alive(rt, id) || (LOAD(&rt->flags[index], MO_RETIRE) & 0x7f) == task_lap(rt, id))
        return TACIT_TASK_CONSUMED;
    uint64_t word = LOAD(&rt->slots[index].word, MO_SEEN);
    if ((uint32_t)(word >> 32) == TASK_SEALED)
        return (uint32_t)word & TASK_FAILED_BIT ? TACIT_TASK_FAILED : TACIT_TASK_COMPLETED;
    for (uint32_t i = 0; i < rt->threads; i++)
        if (LOAD(&rt->workers[i].current, RELAXED) == id + 1)
            return TACIT_TASK_RUNNING;
    if (LOAD(&rt->cold[index].token, RELAXED) == id + 1)
        return TACIT_TASK_RUNNING;
    return LOAD(&rt->slots[index].pending, RELAXED) ? TACIT_TASK_PENDING : TACIT_TASK_READY;
}

tacit_task_resource tacit_task_current_stall(const tacit_task_runtime *rt)
{
    return (tacit_task_resource)LOAD(&rt->stall, RELAXED);
}

void tacit_task_stats_get(tacit_task_runtime *rt, tacit_task_stats *out)
{
    if (!rt->recorder)
        task_reclaim(rt);
    uint64_t capacity[] = {rt->capacity, rt->heap.size, rt->dep_capacity, rt->map.capacity};
    uint64_t used[] = {rt->next - rt->fanin.tail, rt->heap.top - rt->heap.tail,
                       rt->dep_top - rt->dep_tail, rt->map.used};
    *out = (tacit_task_stats){.first_alive = rt->fanin.tail,
                              .next = rt->next,
                              .submitted = rt->next - rt->first_id,
                              .executed = task_executed(rt),
                              .failed = LOAD(&rt->failed, RELAXED),
                              .edges = rt->edges,
                              .inline_runs = rt->inline_runs,
                              .scope_depth = rt->depth,
                              .slot_hot_bytes = sizeof(task_slot),
                              .slot_cold_bytes = sizeof(task_cold)};
    for (int r = 0; r < TACIT_TASK_RESOURCES; r++) {
        const task_gauge *g = &rt->gauge[r];
        out->resource[r] = (tacit_task_usage){
            capacity[r], used[r], g->high > used[r] ? g->high : used[r], g->stalls, g->stall_ns};
    }
    for (uint32_t i = 0; i < rt->threads; i++) {
        out->steals += LOAD(&rt->workers[i].steals, RELAXED);
        out->parks += LOAD(&rt->workers[i].parks, RELAXED);
        out->wakes += LOAD(&rt->workers[i].wakes, RELAXED);
    }
}
