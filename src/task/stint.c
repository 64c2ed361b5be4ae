/* SPDX-License-Identifier: Apache-2.0
 * Giving a CPU away at a good moment. Who shares a CPU loses it when his slice is used up, at the
 * kernel's next tick: mostly in the middle of a node, and then everybody waits for that node until
 * he has the CPU again. So in a run of a graph a thread offers the CPU to others by itself, between
 * two nodes, a little before it would be taken. The share it gets is the same. Where nobody
 * wants the CPU, that costs a system call every few milliseconds. */
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "task/task.h"

enum { DEFAULT_TICK_NS = 4000000 };

/* As struct sched_attr of the kernel, which headers do not always have. */
typedef struct sched_attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} sched_attributes;

/* Half a tick before the one at which the slice is over. Others are given the CPU between two
 * ticks, then, and have it until their own slice is over. */
uint64_t task_stint_ns(void)
{
    struct timespec tick = {0};
    sched_attributes a = {0};
    uint64_t ns = DEFAULT_TICK_NS, slice = 0;
    if (clock_getres(CLOCK_MONOTONIC_COARSE, &tick) == 0 && tick.tv_sec == 0 && tick.tv_nsec > 0)
        ns = (uint64_t)tick.tv_nsec;
    if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) == 0)
        slice = a.runtime;
    return slice > ns ? slice - ns / 2 : ns / 2;
}

void task_stint_end(task_worker *w)
{
    (void)sched_yield();
    w->tired = false;
    w->stint = task_ticks();
}

/* Whether there is a CPU for each worker beside all that can run now, the caller being among them.
 * Where the kernel does not say what can run there is none. */
bool task_stint_room(const tacit_task_runtime *rt)
{
    char text[80];
    uint32_t running = 0;
    int file = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t n = read(file, text, sizeof text - 1);
    (void)close(file);
    text[n > 0 ? n : 0] = 0;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return sscanf(text, "%*s %*s %*s %" SCNu32 "/", &running) == 1 &&
           (int64_t)running + (rt->threads - rt->surplus - 1) <= cpus;
}
