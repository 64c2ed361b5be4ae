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

/* Where the heap's tail stands once everything before `id` is gone. */
static uint64_t heap_start(const tacit_task_runtime *rt, uint64_t id)
{
    return id == rt->next ? rt->heap.top : rt->cold[task_index(rt, id)].heap_start;
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
    rt->dep_tail = rt->cold[task_index(rt, tail - 1)].dep_end;
    task_heap_release(&rt->heap, heap_start(rt, tail));
    rt->fanin.tail = tail;
    if (UNLIKELY(task_tracing(rt) >= 3))
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
    uint32_t records;
} need;

/* The first resource that is short. */
static tacit_task_resource short_now(const tacit_task_runtime *rt, const need *n)
{
    if (rt->next - rt->fanin.tail >= rt->capacity)
        return TACIT_TASK_RING_SLOTS;
    if (n->bytes && !task_heap_fits(&rt->heap, rt->heap.tail, n->bytes))
        return TACIT_TASK_RING_HEAP;
    if (rt->dep_top - rt->dep_tail + rt->fanin.count > rt->dep_capacity)
        return TACIT_TASK_RING_DEPENDENCES;
    if (rt->map.used + n->records > rt->map.capacity)
        return TACIT_TASK_RING_RECORDS;
    return TACIT_TASK_RESOURCES;
}

/* Leave out producers that completed while submit waited for room; one that failed hands its
 * status on. A retired one must go before the new task takes its slot. */
static void drop_completed(tacit_task_runtime *rt)
{
    task_fanin *f = &rt->fanin;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        uint32_t p = f->producers[i];
        const task_slot *s = &rt->slots[p & ~TASK_DEP_DATA];
        uint8_t status = 0;
        if (!task_alive(rt, s->id))
            status = task_failures_find(&rt->failures, s->id);
        else if ((uint32_t)(LOAD(&s->word, MO_SEEN) >> 32) == TASK_SEALED)
            status = s->status;
        else
            f->producers[kept++] = p;
        if (status && (p & TASK_DEP_DATA))
            f->inherited = status & 0x7f;
    }
    f->count = kept;
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
                     r == TACIT_TASK_RING_SLOTS ? "slots (window)" : "bytes (heap_bytes)");
}

/* All that was submitted completes some day. Then only tasks from the pin on are left, so slots or
 * bytes that are short with the tail at the pin stay short: no clock and no luck decides this.
 * Records die with completion, pinned or not, and a completed producer needs no dependence node:
 * for those two waiting always helps. */
static tacit_status check_deadlock(tacit_task_runtime *rt, const need *n, tacit_error *err)
{
    uint64_t pin = task_pin(rt), tail = heap_start(rt, pin);
    if (rt->next - pin >= rt->capacity)
        return deadlock(rt, TACIT_TASK_RING_SLOTS, pin,
                        rt->next - pin + 1 + (rt->window - rt->capacity), err);
    /* A heap of the sufficient size has not wrapped since the pin, so it needs no padding. */
    if (!task_heap_fits(&rt->heap, tail, n->bytes))
        return deadlock(rt, TACIT_TASK_RING_HEAP, pin, rt->heap.top - tail + n->bytes, err);
    return TACIT_OK;
}

static tacit_status too_large(tacit_task_runtime *rt, const need *n, tacit_error *err)
{
    if (n->bytes > rt->heap.size)
        return error_set(err, TACIT_ERR_LIMIT,
                         "task %" PRIu64 " needs %" PRIu64 " bytes, the whole heap has %" PRIu64,
                         rt->next, n->bytes, rt->heap.size);
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
    if (task_tracing(rt) >= 3)
        task_trace_add(&rt->workers[0].trace, task_ticks(), TASK_EV_STALL, r, rt->next,
                       (uint32_t)(ns / 1000));
}

static tacit_status wait_for_room(tacit_task_runtime *rt, need *n, tacit_error *err)
{
    TRY(too_large(rt, n, err));
    task_reclaim(rt);
    drop_completed(rt);
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
            drop_completed(rt);
            if (r == TACIT_TASK_RING_RECORDS)
                task_map_sweep_all(&rt->map);
        }
        while (r == TACIT_TASK_RING_SLOTS && rt->next - rt->fanin.tail + easy > rt->capacity &&
               rt->fanin.tail != task_pin(rt) && task_help(rt, &rt->workers[0]))
            task_reclaim(rt);
        drop_completed(rt);
        stalled(rt, r, since);
    }
}

tacit_status task_reserve_slowly(tacit_task_runtime *rt, uint64_t bytes, uint32_t records,
                                 tacit_error *err)
{
    need n = {bytes, records};
    if (UNLIKELY(rt->next % TASK_RECLAIM_EVERY == 0)) {
        task_reclaim(rt);
        drop_completed(rt);
        task_map_sweep(&rt->map, TASK_RECLAIM_EVERY / 4);
        measure(rt);
    }
    if (LIKELY(short_now(rt, &n) == TACIT_TASK_RESOURCES))
        return TACIT_OK;
    return wait_for_room(rt, &n, err);
}
