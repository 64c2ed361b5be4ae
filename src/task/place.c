/* SPDX-License-Identifier: Apache-2.0
 * Waking a worker on a CPU of its own. The kernel likes to wake a thread where it slept or where
 * its waker runs; once both are the same CPU they stay there, taking turns, until the load balancer
 * comes by, which is longer than most runs take. So before waking a worker that fell asleep on the
 * waker's CPU, or on the one of another worker, forbid it those CPUs; when it is awake it lifts the
 * ban itself and the kernel is free again. */
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "task/task.h"

enum { FREE, BANNED, BEING_BANNED };

/* A ban costs three system calls. With more sleepers than this only those are banned that are sure
 * to be in the way: waking many is slow enough. */
enum { BAN_ALWAYS = 4 };

void task_place_enter(task_worker *w)
{
    STORE(&w->tid, (int)syscall(SYS_gettid), RELAXED);
    STORE(&w->cpu, sched_getcpu(), RELAXED);
}

void task_place_sleep(task_worker *w)
{
    STORE(&w->cpu, sched_getcpu(), RELAXED);
    STORE(&w->asleep, true, RELAXED);
}

void task_place_wake(task_worker *w)
{
    STORE(&w->asleep, false, RELAXED);
    if (LOAD(&w->ban, MO_STEAL) == BANNED) {
        (void)!sched_setaffinity(0, sizeof w->allowed, &w->allowed);
        STORE(&w->ban, FREE, MO_PUSH);
    }
    STORE(&w->cpu, sched_getcpu(), RELAXED);
}

/* Everybody's CPU but the sleeper's own. */
static void taken_cpus(tacit_task_runtime *rt, const task_worker *sleeper, int here,
                       cpu_set_t *taken)
{
    CPU_ZERO(taken);
    CPU_SET((unsigned)here, taken);
    for (uint32_t i = 1; i < rt->threads; i++) {
        int cpu = LOAD(&rt->workers[i].cpu, RELAXED);
        bool counts = i < sleeper->index || !LOAD(&rt->workers[i].asleep, RELAXED);
        if (i != sleeper->index && counts && cpu >= 0 && cpu < CPU_SETSIZE)
            CPU_SET((unsigned)cpu, taken);
    }
}

static void ban(task_worker *w, const cpu_set_t *taken)
{
    uint32_t before = FREE;
    /* Acquire: the worker is done with the mask of the ban before. */
    if (!atomic_compare_exchange_strong_explicit(&w->ban, &before, BEING_BANNED, MO_STEAL, RELAXED))
        return;
    cpu_set_t left;
    int tid = LOAD(&w->tid, RELAXED);
    bool done = false;
    if (tid && sched_getaffinity(tid, sizeof w->allowed, &w->allowed) == 0) {
        CPU_AND(&left, &w->allowed, taken);
        CPU_XOR(&left, &w->allowed, &left);
        done = CPU_COUNT(&left) && sched_setaffinity(tid, sizeof left, &left) == 0;
    }
    STORE(&w->ban, done ? BANNED : FREE, MO_PUSH);
}

void task_place_spread(tacit_task_runtime *rt)
{
    int here = sched_getcpu();
    for (uint32_t i = 1; here >= 0 && here < CPU_SETSIZE && i < rt->threads; i++) {
        task_worker *w = &rt->workers[i];
        int cpu = LOAD(&w->cpu, RELAXED);
        if (!LOAD(&w->asleep, RELAXED) || cpu < 0 || cpu >= CPU_SETSIZE)
            continue;
        cpu_set_t taken;
        taken_cpus(rt, w, here, &taken);
        if (rt->threads <= BAN_ALWAYS || CPU_ISSET((unsigned)cpu, &taken))
            ban(w, &taken);
    }
}
