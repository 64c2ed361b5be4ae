/* SPDX-License-Identifier: Apache-2.0
 * Running and completing tasks: the code every worker, and the waiting orchestrator, lives in. */
#include <stdio.h>

#include "base/thread.h"
#include "task/task.h"

enum { TAKE_MOST = 16 };

/* ---- references --------------------------------------------------------------------------- */

static inline void set_consumed(tacit_task_runtime *rt, uint32_t index, uint32_t refs)
{
    /* The id may be read here: the slot is not recycled before the flag below is seen. */
    uint8_t failed = refs & TASK_FAILED_BIT ? 0x80 : 0;
    STORE(&rt->flags[index], task_lap(rt, rt->slots[index].id) | failed, MO_FLAG);
}

void task_drop(tacit_task_runtime *rt, uint32_t index)
{
    uint32_t refs = (uint32_t)atomic_fetch_sub_explicit(&rt->slots[index].word, 1, MO_DROP) - 1;
    if ((refs & ~TASK_FAILED_BIT) == 0)
        set_consumed(rt, index, refs);
}

/* Failures are rare: one word, the lowest id stays. */
void task_fail(tacit_task_runtime *rt, uint64_t id, uint32_t kernel, uint8_t status)
{
    uint64_t packed = id << 16 | (uint64_t)kernel << 8 | status;
    uint64_t old = LOAD(&rt->first_failure, RELAXED);
    while (packed < old && !atomic_compare_exchange_weak_explicit(&rt->first_failure, &old, packed,
                                                                  RELAXED, RELAXED))
        ;
    atomic_fetch_add_explicit(&rt->failed, 1, RELAXED);
}

/* ---- completion --------------------------------------------------------------------------- */

/* Put a task that became ready where somebody who serves its class finds it; the newest one that
 * this worker can run is returned to be run next, while its inputs are still in cache. */
static inline uint32_t release(tacit_task_runtime *rt, task_worker *w, uint32_t ready,
                               uint32_t next)
{
    uint32_t class = rt->slots[ready].class;
    if (LIKELY(w && (w->classes >> class & 1))) {
        if (next != TASK_NIL) {
            task_deque_push(&w->deque[rt->slots[next].class], next);
            task_notify(rt, w);
        }
        return ready;
    }
    task_shared_push(&rt->shared[class], ready);
    task_notify(rt, w);
    if (rt->workers[0].classes >> class & 1)
        task_wake_orchestrator(rt);
    return next;
}

/* Close the successor list and drop the execution reference in one step, then tell successors and
 * let go of retained producers. Returns a task to run next, or TASK_NIL. */
static inline uint32_t finish(tacit_task_runtime *rt, task_worker *w, uint32_t index,
                              uint8_t status)
{
    task_slot *s = &rt->slots[index];
    uint32_t retain_count = s->retain_count, inlined[TASK_INLINE_RETAINS];
    for (uint32_t i = 0; i < TASK_INLINE_RETAINS; i++)
        inlined[i] = s->retain[i];
    uint32_t failed = 0;
    if (UNLIKELY(status)) {
        s->status = status;
        failed = TASK_FAILED_BIT;
        task_fail(rt, s->id, s->kernel, status);
    }
    if (UNLIKELY(retain_count > TASK_INLINE_RETAINS)) {
        /* The list lives in this task's own heap block, which is gone once it is consumed: let go
         * first. The producers' memory is not read any more. */
        const uint32_t *spilled = rt->cold[index].spill;
        for (uint32_t i = 0; i < retain_count; i++)
            task_drop(rt, spilled[i]);
        retain_count = 0;
    }
    uint64_t old = LOAD(&s->word, RELAXED), sealed;
    do {
        sealed = (uint64_t)TASK_SEALED << 32 | failed | ((uint32_t)old - 1);
    } while (!atomic_compare_exchange_weak_explicit(&s->word, &old, sealed, MO_SEAL, RELAXED));
    if (((uint32_t)sealed & ~TASK_FAILED_BIT) == 0)
        set_consumed(rt, index, (uint32_t)sealed);
    uint32_t next = TASK_NIL;
    for (uint32_t node = (uint32_t)(old >> 32); node;) {
        task_dep d = rt->deps[node]; /* copied: the node goes with its consumer */
        task_slot *c = &rt->slots[d.task & ~TASK_DEP_DATA];
        if (UNLIKELY(failed) && (d.task & TASK_DEP_DATA))
            STORE(&c->poison, status & 0x7f, RELAXED); /* carried by PEND */
        if (task_count_down(&c->pending))
            next = release(rt, w, d.task & ~TASK_DEP_DATA, next);
        node = d.next;
    }
    for (uint32_t i = 0; i < retain_count; i++)
        task_drop(rt, inlined[i]);
    return next;
}

static void count_foreign(tacit_task_runtime *rt)
{
    atomic_fetch_add_explicit(&rt->foreign_executed, 1, MO_DONE);
    task_publish_fence(rt);
    if (LOAD(&rt->orchestrator_asleep, RELAXED))
        task_wake_orchestrator(rt);
}

void task_finish_foreign(tacit_task_runtime *rt, uint32_t index, tacit_status status)
{
    uint32_t next = finish(rt, NULL, index, (uint8_t)status);
    (void)next; /* without a worker everything went to the shared queues */
    count_foreign(rt);
}

/* ---- execution ---------------------------------------------------------------------------- */

static tacit_status call_kernel(tacit_task_runtime *rt, task_worker *w, const task_slot *s,
                                task_cold *cold)
{
    tacit_task_call call = {.values = UNLIKELY(s->flags & TASK_SPILLED)
                                          ? (const tacit_task_value *)cold->spill +
                                                (s->retain_count + 1) / 2
                                          : cold->values,
                            .user = s->user,
                            .id = s->id,
                            .count = s->value_count,
                            .worker = w->index,
                            .runtime = rt};
    return s->run(&call);
}

/* A quarter of each sample, but never more than a few times what was thought so far: a kernel that
 * was interrupted looks a thousand times longer than it is. */
static void learn(tacit_task_runtime *rt, uint32_t kernel, uint64_t took)
{
    const uint64_t clock_cost = 32, most = UINT32_MAX / 8;
    uint64_t old = LOAD(&rt->estimate[kernel], RELAXED);
    uint64_t new = took > clock_cost ? took - clock_cost : 1;
    uint64_t limit = old ? 4 * old + rt->inline_ticks : most;
    new = new < limit ? new : limit;
    new = old ? old - old / 4 + new / 4 + 1 : new + 1;
    STORE(&rt->estimate[kernel], (uint32_t)(new < most ? new : most), RELAXED);
}

static tacit_status call_measured(tacit_task_runtime *rt, task_worker *w, const task_slot *s,
                                  task_cold *cold)
{
    uint32_t kernel = s->kernel;
    uint64_t id = s->id, begin = task_ticks();
    tacit_status status = call_kernel(rt, w, s, cold);
    uint64_t end = task_ticks(), took = end - begin;
    if (task_tracing(rt)) {
        task_trace_add(&w->trace, begin, TASK_EV_BEGIN, kernel, id, 0);
        task_trace_add(&w->trace, end, TASK_EV_END, kernel, id, (uint32_t)status);
    }
    learn(rt, kernel, took);
    return status;
}

/* An asynchronous kernel owns its task until the token comes back; a launch that fails takes the
 * token itself. True when the task is to be finished here. */
static bool launch(tacit_task_runtime *rt, task_worker *w, task_slot *s, task_cold *cold,
                   uint8_t *status)
{
    uint64_t token = s->id + 1;
    STORE(&cold->token, token, MO_PUSH);
    *status = (uint8_t)call_measured(rt, w, s, cold);
    return *status &&
           atomic_compare_exchange_strong_explicit(&cold->token, &token, 0, MO_SEAL, RELAXED);
}

static inline bool skipped(const task_slot *s, const task_cold *cold)
{
    return !s->run || ((s->flags & TASK_PREDICATED) && *cold->predicate == 0);
}

/* Measured now and then, at first, and when traced. */
static inline uint8_t run_kernel(tacit_task_runtime *rt, task_worker *w, const task_slot *s,
                                 task_cold *cold)
{
    if (UNLIKELY(task_tracing(rt) || (++w->sample & 63) == 0 ||
                 !LOAD(&rt->estimate[s->kernel], RELAXED)))
        return (uint8_t)call_measured(rt, w, s, cold);
    return (uint8_t)call_kernel(rt, w, s, cold);
}

/* Runs `index` and then whatever it made ready, as long as there is something. */
static void run_chain(tacit_task_runtime *rt, task_worker *w, uint32_t index)
{
    do {
        task_slot *s = &rt->slots[index];
        task_cold *cold = &rt->cold[index];
        uint8_t status = LOAD(&s->poison, RELAXED);
        STORE(&w->current, s->id + 1, RELAXED);
        if (UNLIKELY(status)) {
            status |= TASK_INHERITED;
        } else if (LIKELY(!skipped(s, cold))) {
            if (UNLIKELY(s->flags & TASK_ASYNC)) {
                if (!launch(rt, w, s, cold, &status))
                    break;
            } else {
                status = run_kernel(rt, w, s, cold);
            }
        }
        index = finish(rt, w, index, status);
        STORE(&w->executed, LOAD(&w->executed, RELAXED) + 1, MO_DONE);
        task_publish_fence(rt);
        if (UNLIKELY(LOAD(&rt->orchestrator_asleep, RELAXED)))
            task_wake_orchestrator(rt);
    } while (index != TASK_NIL);
    STORE(&w->current, 0, RELAXED);
}

uint64_t task_executed(tacit_task_runtime *rt)
{
    uint64_t sum = LOAD(&rt->foreign_executed, MO_WAIT);
    for (uint32_t i = 0; i < rt->threads; i++)
        sum += LOAD(&rt->workers[i].executed, MO_WAIT);
    return sum;
}

/* ---- finding work ------------------------------------------------------------------------- */

static bool help_class(tacit_task_runtime *rt, task_worker *w, uint32_t class)
{
    uint32_t items[TAKE_MOST], item;
    if (task_deque_pop(&w->deque[class], &item)) {
        run_chain(rt, w, item);
        return true;
    }
    uint32_t n = task_inject_pop(&rt->inject[class], items, TAKE_MOST);
    if (n) {
        for (uint32_t i = n; i-- > 1;)
            task_deque_push(&w->deque[class], items[i]);
        run_chain(rt, w, items[0]);
        return true;
    }
    if (!task_shared_empty(&rt->shared[class]) && task_shared_pop(&rt->shared[class], &item)) {
        run_chain(rt, w, item);
        return true;
    }
    return false;
}

static bool steal_class(tacit_task_runtime *rt, task_worker *w, uint32_t class)
{
    uint32_t item;
    for (uint32_t i = 0; i < rt->threads; i++) {
        uint32_t v = w->victim + i < rt->threads ? w->victim + i : w->victim + i - rt->threads;
        task_deque *d = &rt->workers[v].deque[class];
        if (v == w->index || task_deque_size(d) <= 0 || !task_deque_steal(d, &item))
            continue;
        w->victim = v;
        task_bump(&w->steals);
        if (UNLIKELY(task_tracing(rt) >= 2))
            task_trace_add(&w->trace, task_ticks(), TASK_EV_STEAL, 0, rt->slots[item].id, v);
        /* Up to half of the rest comes along, so that thieves come back less often. */
        int64_t more = task_deque_size(d) / 2;
        uint32_t extra;
        for (int64_t k = 0; k < more && k < TAKE_MOST && task_deque_steal(d, &extra); k++)
            task_deque_push(&w->deque[class], extra);
        run_chain(rt, w, item);
        return true;
    }
    return false;
}

bool task_help(tacit_task_runtime *rt, task_worker *w)
{
    for (uint32_t c = 0; c < rt->class_count; c++)
        if ((w->classes >> c & 1) && help_class(rt, w, c))
            return true;
    for (uint32_t c = 0; c < rt->class_count; c++)
        if ((w->classes >> c & 1) && steal_class(rt, w, c))
            return true;
    return false;
}

/* ---- publication -------------------------------------------------------------------------- */

void task_hand_over(tacit_task_runtime *rt)
{
    uint32_t n = rt->held_count;
    if (!n)
        return;
    if (rt->class_count == 1) {
        task_inject_push(&rt->inject[0], rt->held, n);
    } else {
        for (uint32_t i = 0; i < n; i++)
            task_inject_push(&rt->inject[rt->slots[rt->held[i]].class], &rt->held[i], 1);
    }
    rt->held_count = 0;
    rt->held_ticks = 0;
    rt->held_unknown = false;
    rt->since_publish = 0;
    task_notify(rt, &rt->workers[0]);
}

/* Only the orchestrator knows this task: it is in no queue and has no successors, so it is finished
 * without exchanges. Whoever gets to see its writes later does so through a task the orchestrator
 * publishes after this. */
static inline void finish_inline(tacit_task_runtime *rt, uint32_t index, uint8_t status)
{
    task_slot *s = &rt->slots[index];
    const uint32_t *retains = UNLIKELY(s->retain_count > TASK_INLINE_RETAINS)
                                  ? (const uint32_t *)rt->cold[index].spill
                                  : s->retain;
    for (uint32_t i = 0; i < s->retain_count; i++)
        task_drop(rt, retains[i]);
    uint32_t refs = (uint32_t)LOAD(&s->word, RELAXED) - 1;
    if (UNLIKELY(status)) {
        s->status = status;
        refs |= TASK_FAILED_BIT;
        task_fail(rt, s->id, s->kernel, status);
    }
    STORE(&s->word, (uint64_t)TASK_SEALED << 32 | refs, RELAXED);
    if ((refs & ~TASK_FAILED_BIT) == 0)
        set_consumed(rt, index, refs);
}

void task_run_inline(tacit_task_runtime *rt, uint32_t index)
{
    task_worker *w = &rt->workers[0];
    task_slot *s = &rt->slots[index];
    task_cold *cold = &rt->cold[index];
    rt->inline_runs++;
    if (UNLIKELY(s->flags & TASK_ASYNC)) {
        run_chain(rt, w, index);
        return;
    }
    uint8_t status = LOAD(&s->poison, RELAXED);
    STORE(&w->current, s->id + 1, RELAXED);
    if (UNLIKELY(status))
        status |= TASK_INHERITED;
    else if (LIKELY(!skipped(s, cold)))
        status = run_kernel(rt, w, s, cold);
    finish_inline(rt, index, status);
    STORE(&w->executed, LOAD(&w->executed, RELAXED) + 1, MO_DONE);
    STORE(&w->current, 0, RELAXED);
}

/* Tasks smaller than a few cache-line transfers cost less to run here than to hand over. */
static void run_held(tacit_task_runtime *rt)
{
    uint32_t items[TASK_BATCH], n = rt->held_count, item;
    for (uint32_t i = 0; i < n; i++)
        items[i] = rt->held[i];
    rt->held_count = 0;
    rt->held_ticks = 0;
    rt->held_unknown = false;
    rt->since_publish = 0;
    rt->inline_runs += n;
    task_worker *w = &rt->workers[0];
    for (uint32_t i = 0; i < n; i++)
        run_chain(rt, w, items[i]);
    while (task_deque_pop(&w->deque[0], &item))
        run_chain(rt, w, item);
}

void task_publish(tacit_task_runtime *rt)
{
    bool small = !rt->held_unknown && rt->held_ticks < (uint64_t)rt->inline_ticks * rt->held_count;
    if (rt->uniform && !rt->eager && (small || rt->threads == 1))
        run_held(rt);
    else
        task_hand_over(rt);
}

/* ---- workers ------------------------------------------------------------------------------ */

static bool has_own(const tacit_task_runtime *rt, const task_worker *w)
{
    for (uint32_t c = 0; c < rt->class_count; c++)
        if (task_deque_size(&w->deque[c]) > 0)
            return true;
    return false;
}

void *task_worker_main(void *argument)
{
    task_worker *w = argument;
    tacit_task_runtime *rt = w->rt;
    uint64_t idle_since = 0;
    char name[24];
    snprintf(name, sizeof name, "tacit-%u", w->index);
    thread_name(name);
    uint32_t spins = 0;
    task_place_enter(w);
    while (!LOAD(&rt->stop, RELAXED)) {
        if (UNLIKELY(LOAD(&rt->sleepers, RELAXED) < rt->surplus) && !has_own(rt, w)) {
            task_worker_sleep(rt, w);
            continue;
        }
        bool run = LOAD(&rt->graph, RELAXED) != NULL;
        if (UNLIKELY(run) ? task_graph_help(rt, w) : task_help(rt, w)) {
            spins = 0;
            continue;
        }
        if (spins++ == 0)
            idle_since = task_ticks();
        for (uint32_t i = 0; i < (spins < 8 ? spins : 8); i++)
            TASK_PAUSE();
        if (rt->idle == TACIT_TASK_IDLE_SPIN)
            continue;
        if (rt->idle == TACIT_TASK_IDLE_PARK || !task_stay_awake(rt, w, idle_since, run)) {
            task_worker_sleep(rt, w);
            spins = 0;
        }
    }
    return NULL;
}
