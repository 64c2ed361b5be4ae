/* SPDX-License-Identifier: Apache-2.0
 * Taking slots, heap, dependence nodes and records back, waiting for them, and proving when waiting
 * would be in vain. All of it belongs to the orchestrator. */
#include <inttypes.h>

#include "task/task.h"

static void remember_failure(tacit_task_runtime *rt, uint64_t id, uint8_t status)
{
    task_failures *f = &rt->failures;
    if (f->count < sizeof f->kept / sizeof f->kept[0]) {
        f->kept[f->count].id = id;
        f->kept[f->count++].status = status;
    } else {
        f->lost = id + 1;
    }
}

void task_reclaim(tacit_task_runtime *rt)
{
    uint64_t tail = rt->fanin.tail, start = tail;
    for (; tail != rt->next; tail++) {
        uint32_t index = task_index(rt, tail);
        uint8_t flag = LOAD(&rt->flags[index], MO_RETIRE);
        if ((flag & 0x7f) != task_lap(rt, tail))
            break;
        if (UNLIKELY(flag & 0x80))
            remember_failure(rt, tail, rt->slots[index].status);
    }
    if (tail == start)
        return;
    const task_cold *last = &rt->cold[task_index(rt, tail - 1)];
    rt->dep_tail = last->dep_end;
    task_heap_release(&rt->heap, last->heap_end);
    rt->fanin.tail = tail;
    if (UNLIKELY(rt->trace_level >= 3))
        task_trace_rings(rt);
}

/* The oldest task an open scope still holds, or `next`. Once everything submitted has completed,
 * the tail stops exactly here: nothing else can hold a task back for ever. Tokens are only given to
 * new tasks, so the search never has to step back. */
uint64_t task_pin(tacit_task_runtime *rt)
{
    if (rt->pin < rt->fanin.tail)
        rt->pin = rt->fanin.tail;
    while (rt->pin != rt->next && !rt->token[task_index(rt, rt->pin)])
        rt->pin++;
    return rt->pin;
}

typedef struct need {
    uint64_t bytes;
    uint32_t deps, records;
} need;

/* The first resource that is short, with everything below `tail` gone. */
static tacit_task_resource short_of(const tacit_task_runtime *rt, uint64_t tail, uint64_t heap_tail,
                                    uint64_t dep_tail, uint32_t records_used, const need *n)
{
    if (rt->next - tail >= rt->capacity)
        return TACIT_TASK_RING_SLOTS;
    if (!task_heap_fits(&rt->heap, heap_tail, n->bytes))
        return TACIT_TASK_RING_HEAP;
    if (rt->dep_top - dep_tail + n->deps > rt->dep_capacity)
        return TACIT_TASK_RING_DEPENDENCES;
    if (records_used + n->records > rt->map.capacity)
        return TACIT_TASK_RING_RECORDS;
    return TACIT_TASK_RESOURCES;
}

static tacit_task_resource short_now(const tacit_task_runtime *rt, const need *n)
{
    return short_of(rt, rt->fanin.tail, rt->heap.tail, rt->dep_tail, rt->map.used, n);
}

static tacit_status deadlock(tacit_task_runtime *rt, tacit_task_resource r, uint64_t pin,
                             uint64_t sufficient, tacit_error *err)
{
    /* The scope that holds the pinned task: the innermost one that had begun by then. */
    const task_scope *scope = NULL;
    for (uint32_t i = 0; i < rt->depth; i++)
        if (rt->scopes[i].begin <= pin)
            scope = &rt->scopes[i];
    return error_set(err, TACIT_ERR_DEADLOCK,
                     "scope \"%s\" pins task %" PRIu64 " and all %" PRIu64
                     " tasks after it, and the %s ring is full: submitting task %" PRIu64
                     " would wait for ever; %" PRIu64 " %s would be enough",
                     scope && scope->site ? scope->site : "?", pin, rt->next - pin - 1,
                     tacit_task_resource_name(r), rt->next, sufficient,
                     r == TACIT_TASK_RING_SLOTS  ? "slots (window)"
                     : r == TACIT_TASK_RING_HEAP ? "bytes (heap_bytes)"
                                                 : "nodes (dependences)");
}

/* All that was submitted completes some day. Then only tasks from the pin on are left, so what is
 * short with the tail at the pin stays short: no clock and no luck decides this. */
static tacit_status check_deadlock(tacit_task_runtime *rt, const need *n, tacit_error *err)
{
    uint64_t pin = task_pin(rt);
    uint64_t heap_tail = rt->heap.tail;
    uint64_t dep_tail = rt->dep_tail;
    if (pin != rt->fanin.tail) {
        const task_cold *before = &rt->cold[task_index(rt, pin - 1)];
        heap_tail = before->heap_end > heap_tail ? before->heap_end : heap_tail;
        dep_tail = before->dep_end;
    }
    /* Records die with completion, pinned or not. */
    tacit_task_resource r = short_of(rt, pin, heap_tail, dep_tail, 0, n);
    switch (r) {
    case TACIT_TASK_RING_SLOTS:
        return deadlock(rt, r, pin, rt->next - pin + 1 + (rt->window - rt->capacity), err);
    case TACIT_TASK_RING_HEAP:
        /* In a heap of this size nothing that is pinned has wrapped, so there is no padding. */
        return deadlock(rt, r, pin, rt->heap.top - heap_tail + n->bytes, err);
    case TACIT_TASK_RING_DEPENDENCES:
        return deadlock(rt, r, pin, rt->dep_top - dep_tail + n->deps, err);
    default:
        return TACIT_OK;
    }
}

static tacit_status too_large(tacit_task_runtime *rt, const need *n, tacit_error *err)
{
    if (n->bytes > rt->heap.size)
        return error_set(err, TACIT_ERR_LIMIT,
                         "task %" PRIu64 " needs %" PRIu64 " bytes, the whole heap has %" PRIu64,
                         rt->next, n->bytes, rt->heap.size);
    if (n->deps > rt->dep_capacity)
        return error_set(err, TACIT_ERR_LIMIT,
                         "task %" PRIu64 " waits for %u tasks, the dependence ring holds %u",
                         rt->next, n->deps, rt->dep_capacity);
    if (n->records > rt->map.capacity)
        return error_set(err, TACIT_ERR_LIMIT,
                         "task %" PRIu64 " needs %u access records, there are %u", rt->next,
                         n->records, rt->map.capacity);
    return TACIT_OK;
}

static void measure(tacit_task_runtime *rt)
{
    uint64_t used[] = {rt->next - rt->fanin.tail, rt->heap.top - rt->heap.tail,
                       rt->dep_top - rt->dep_tail, rt->map.used};
    for (int r = 0; r < TACIT_TASK_RESOURCES; r++)
        if (rt->gauge[r].high < used[r])
            rt->gauge[r].high = used[r];
}

static void stalled(tacit_task_runtime *rt, tacit_task_resource r, uint64_t since)
{
    uint64_t ns = clock_ns() - since;
    rt->gauge[r].stall_ns += ns;
    STORE(&rt->stall, TACIT_TASK_RESOURCES, RELAXED);
    if (rt->trace_level >= 3)
        task_trace_add(&rt->workers[0].trace, task_ticks(), TASK_EV_STALL, r, rt->next,
                       (uint32_t)(ns / 1000));
}

static __attribute__((noinline)) tacit_status reserve_slowly(tacit_task_runtime *rt, need *n,
                                                             tacit_error *err)
{
    TRY(too_large(rt, n, err));
    task_reclaim(rt);
    task_patience patience = {0};
    for (;;) {
        tacit_task_resource r = short_now(rt, n);
        if (r == TACIT_TASK_RESOURCES)
            return TACIT_OK;
        TRY(check_deadlock(rt, n, err));
        task_hand_over(rt);
        measure(rt);
        rt->gauge[r].stalls++;
        STORE(&rt->stall, r, RELAXED);
        uint64_t since = clock_ns();
        /* Once waiting, wait for an eighth of the window, so as not to stall at every submit. */
        uint64_t easy = rt->window / 8;
        if (r == TACIT_TASK_RING_RECORDS)
            task_map_sweep_all(&rt->map);
        while (short_now(rt, n) == r) {
            task_wait_step(rt, &patience);
            task_reclaim(rt);
            if (r == TACIT_TASK_RING_RECORDS)
                task_map_sweep_all(&rt->map);
        }
        while (r == TACIT_TASK_RING_SLOTS && rt->next - rt->fanin.tail + easy > rt->capacity &&
               rt->fanin.tail != task_pin(rt) && task_help(rt, &rt->workers[0]))
            task_reclaim(rt);
        stalled(rt, r, since);
    }
}

tacit_status task_reserve(tacit_task_runtime *rt, uint64_t bytes, uint32_t deps, uint32_t records,
                          tacit_error *err)
{
    need n = {bytes, deps, records};
    if (UNLIKELY(rt->next % TASK_RECLAIM_EVERY == 0)) {
        task_reclaim(rt);
        task_map_sweep(&rt->map, 2 * TASK_RECLAIM_EVERY);
        measure(rt);
    }
    if (LIKELY(short_now(rt, &n) == TACIT_TASK_RESOURCES))
        return TACIT_OK;
    return reserve_slowly(rt, &n, err);
}
