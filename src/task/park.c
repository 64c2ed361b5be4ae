/* SPDX-License-Identifier: Apache-2.0
 * Waiting without burning a shared machine. A sleeper announces itself, makes every other thread
 * of the process pass a barrier (membarrier), looks once more and sleeps; therefore whoever
 * publishes work needs no fence of its own before it looks for sleepers. */
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "task/prepare.h"
#include "task/task.h"

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

bool task_park_setup(void)
{
#if defined(__SANITIZE_THREAD__)
    return false;
#else
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
#endif
}

void task_prepare(void)
{
    (void)task_park_setup();
}

static void barrier_for_all(const tacit_task_runtime *rt)
{
    atomic_thread_fence(MO_FENCE);
    if (rt->asymmetric)
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

static bool work_visible(tacit_task_runtime *rt, const task_worker *w)
{
    if (LOAD(&rt->stop, RELAXED) || task_graph_work(rt, w))
        return true;
    for (uint32_t c = 0; c < rt->class_count; c++) {
        if (!(w->classes >> c & 1))
            continue;
        if (!task_inject_empty(&rt->inject[c]) || !task_shared_empty(&rt->shared[c]))
            return true;
        for (uint32_t i = 0; i < rt->threads; i++)
            if (task_deque_size(&rt->workers[i].deque[c]) > 0)
                return true;
    }
    return false;
}

void task_worker_sleep(tacit_task_runtime *rt, task_worker *w)
{
    uint32_t before = atomic_fetch_add_explicit(&rt->sleepers, 1, RELAXED);
    barrier_for_all(rt);
    uint32_t event = LOAD(&rt->event, MO_HEAR);
    /* A surplus worker sleeps although there is work: others have the CPUs. */
    bool sleep = before < rt->surplus ? !LOAD(&rt->stop, RELAXED) : !work_visible(rt, w);
    if (sleep) {
        task_bump(&w->parks);
        if (UNLIKELY(task_tracing(rt) >= 2))
            task_trace_add(&w->trace, task_ticks(), TASK_EV_PARK, 0, 0, 0);
        task_place_sleep(w);
        futex_wait(&rt->event, event);
        task_place_wake(w);
        w->stint = task_ticks();
        if (UNLIKELY(task_tracing(rt) >= 2))
            task_trace_add(&w->trace, task_ticks(), TASK_EV_WAKE, 0, 0, 0);
    }
    /* From here on this worker looks for work itself, so whatever was published while `waking` kept
     * others from calling is found. Relaxed, as is the announcement: before it sleeps again it
     * passes the barrier, and then sees what it has missed. */
    atomic_fetch_sub_explicit(&rt->sleepers, 1, RELAXED);
    STORE(&rt->waking, false, RELAXED);
}

/* A wake-up takes tens of microseconds; until it has happened more calls would be wasted. The one
 * that is called clears `waking` on every way out of its sleep. */
void task_wake(tacit_task_runtime *rt, task_worker *w)
{
    if (rt->uniform && atomic_exchange_explicit(&rt->waking, true, RELAXED))
        return;
    if (w)
        task_bump(&w->wakes);
    task_place_spread(rt);
    atomic_fetch_add_explicit(&rt->event, 1, MO_RING);
    futex_wake(&rt->event, rt->uniform ? 1 : INT_MAX);
}

/* Whether somebody without work since `since` should go on looking. In a run of a graph the next
 * node usually comes before a sleeper would be awake again, so patience is longer there; but then
 * others, the one who is waited for among them, may have the CPU. */
bool task_stay_awake(const tacit_task_runtime *rt, task_worker *w, uint64_t since, bool run)
{
    uint64_t waited = task_ticks() - since;
    if (waited <= rt->spin_ticks)
        return true;
    if (!run || rt->surplus || waited > rt->run_spin_ticks)
        return false;
    task_stint_end(w);
    return true;
}

/* As many as there are CPUs for. */
void task_wake_for_run(tacit_task_runtime *rt)
{
    uint32_t sleepers = LOAD(&rt->sleepers, RELAXED);
    if (sleepers <= rt->surplus)
        return;
    task_place_spread(rt);
    atomic_fetch_add_explicit(&rt->event, 1, MO_RING);
    futex_wake(&rt->event, (int)(sleepers - rt->surplus));
}

void task_wake_all(tacit_task_runtime *rt)
{
    atomic_fetch_add_explicit(&rt->event, 1, MO_RING);
    futex_wake(&rt->event, INT_MAX);
}

/* Relaxed: it only says "look again", and whoever looks in vain passes the barrier once more. */
void task_wake_orchestrator(tacit_task_runtime *rt)
{
    if (atomic_exchange_explicit(&rt->orchestrator_asleep, 0, RELAXED))
        futex_wake(&rt->orchestrator_asleep, 1);
}

/* Sleep until somebody completes something or there is work; `idle` says after the announcement
 * whether that is still to come. */
void task_orchestrator_sleep(tacit_task_runtime *rt, bool (*idle)(tacit_task_runtime *, uint64_t),
                             uint64_t argument)
{
    STORE(&rt->orchestrator_asleep, 1, RELAXED);
    barrier_for_all(rt);
    if (idle(rt, argument) && !work_visible(rt, &rt->workers[0]))
        futex_wait(&rt->orchestrator_asleep, 1);
    STORE(&rt->orchestrator_asleep, 0, RELAXED);
}

static bool nothing_completed(tacit_task_runtime *rt, uint64_t executed)
{
    return task_executed(rt) == executed;
}

/* Called in a loop around a condition that only completions can make true. */
void task_wait_step(tacit_task_runtime *rt, task_patience *p)
{
    if (task_help(rt, &rt->workers[0])) {
        p->spins = 0;
        return;
    }
    uint64_t executed = task_executed(rt);
    if (p->spins == 0 || p->executed != executed) {
        p->since = task_ticks();
        p->executed = executed;
        p->spins = 1;
        return; /* the condition is looked at once more after this count */
    }
    p->spins++;
    for (uint32_t i = 0; i < (p->spins < 8 ? p->spins : 8); i++)
        TASK_PAUSE();
    if (rt->surplus)
        sched_yield(); /* more threads than CPUs: let the one we wait for run */
    if (rt->idle != TACIT_TASK_IDLE_SPIN && task_ticks() - p->since > rt->spin_ticks) {
        task_orchestrator_sleep(rt, nothing_completed, executed);
        p->spins = 0;
    }
}
