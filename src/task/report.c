/* SPDX-License-Identifier: Apache-2.0
 * The text report: where the time went and how large the rings should be. */
#include <stdlib.h>

#include "base/sbuf.h"
#include "task/task.h"

enum { OVERHEAD_US = 1 }; /* shorter gaps between two kernels are the runtime's own work */

typedef struct lane {
    double busy, overhead, asleep, last;
    uint64_t tasks;
} lane;

/* When one task more, or less, is ready, or a worker turns busy or idle. */
typedef struct change {
    double at;
    int ready, busy;
} change;

static int by_begin(const void *a, const void *b)
{
    double x = (*(const task_slice *const *)a)->begin, y = (*(const task_slice *const *)b)->begin;
    return x < y ? -1 : x > y;
}

static int by_time(const void *a, const void *b)
{
    double x = ((const change *)a)->at, y = ((const change *)b)->at;
    return x < y ? -1 : x > y;
}

static void fill_lanes(const task_story *story, const task_slice **order, lane *lanes)
{
    for (size_t i = 0; i < story->slice_count; i++)
        order[i] = &story->slices[i];
    qsort(order, story->slice_count, sizeof *order, by_begin);
    for (size_t i = 0; i < story->slice_count; i++) {
        const task_slice *s = order[i];
        lane *l = &lanes[s->worker];
        if (l->tasks++ && s->begin - l->last < OVERHEAD_US && s->begin > l->last)
            l->overhead += s->begin - l->last;
        l->busy += s->end - s->begin;
        l->last = s->end;
    }
    for (size_t i = 0; i < story->mark_count; i++)
        if (story->marks[i].event == TASK_EV_PARK)
            lanes[story->marks[i].worker].asleep += story->marks[i].end - story->marks[i].at;
}

/* Worker-microseconds spent without a kernel while at least one task was ready and waiting. A task
 * is ready once it is submitted and its producers have ended. */
static double idle_while_ready(const tacit_task_runtime *rt, const task_story *story, change *c,
                               double *ready_at)
{
    size_t n = 0;
    for (size_t i = 0; i < story->slice_count; i++)
        ready_at[i] = story->slices[i].submitted ? story->slices[i].submit : 0;
    for (size_t i = 0; i < story->arrow_count; i++) {
        double end = story->slices[story->arrows[i].from].end;
        double *at = &ready_at[story->arrows[i].to];
        *at = *at < end ? end : *at;
    }
    for (size_t i = 0; i < story->slice_count; i++) {
        const task_slice *s = &story->slices[i];
        bool known = s->submitted && ready_at[i] < s->begin;
        c[n++] = (change){known ? ready_at[i] : s->begin, known, 0};
        c[n++] = (change){s->begin, -(int)known, 1};
        c[n++] = (change){s->end, 0, -1};
    }
    qsort(c, n, sizeof *c, by_time);
    double idle = 0;
    int ready = 0, busy = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && ready > 0 && busy < (int)rt->threads) {
            int spare = (int)rt->threads - busy;
            idle += (c[i].at - c[i - 1].at) * (spare < ready ? spare : ready);
        }
        ready += c[i].ready;
        busy += c[i].busy;
    }
    return idle;
}

static uint64_t round_up_power(uint64_t n)
{
    uint64_t p = 2;
    while (p < n)
        p *= 2;
    return p;
}

static void write_rings(tacit_task_runtime *rt, sbuf *b)
{
    tacit_task_stats s;
    tacit_task_stats_get(rt, &s);
    sbuf_text(b, "\nring            capacity   high water     stalls   stall us   suggested\n");
    for (int r = 0; r < TACIT_TASK_RESOURCES; r++) {
        const tacit_task_usage *u = &s.resource[r];
        /* Enough not to stall where it stalled, never less than the open scopes pinned. */
        uint64_t want = u->stalls ? u->capacity * 2 : u->high_water + u->high_water / 4 + 1;
        if (r == TACIT_TASK_RING_SLOTS)
            want = round_up_power(want > rt->pinned_slots + 1 ? want : rt->pinned_slots + 1);
        if (r == TACIT_TASK_RING_HEAP)
            want = align_up(want > rt->pinned_heap ? want : rt->pinned_heap, 4096);
        sbuf_printf(b, "%-12s %11llu  %11llu %10llu %10llu %11llu\n",
                    tacit_task_resource_name((tacit_task_resource)r),
                    (unsigned long long)u->capacity, (unsigned long long)u->high_water,
                    (unsigned long long)u->stalls, (unsigned long long)(u->stall_ns / 1000),
                    (unsigned long long)want);
    }
    sbuf_printf(b, "largest scope: %llu tasks, %llu heap bytes; deepest nesting now: %llu\n",
                (unsigned long long)rt->pinned_slots, (unsigned long long)rt->pinned_heap,
                (unsigned long long)s.scope_depth);
    sbuf_printf(b,
                "steals %llu, sleeps %llu, wake-ups %llu, run by the orchestrator as too small "
                "%llu\n",
                (unsigned long long)s.steals, (unsigned long long)s.parks,
                (unsigned long long)s.wakes, (unsigned long long)s.inline_runs);
}

static void write_lanes(const tacit_task_runtime *rt, const lane *lanes, double span, sbuf *b)
{
    sbuf_text(b, "worker      tasks     busy %  overhead %   asleep %     idle %\n");
    for (uint32_t w = 0; w < rt->threads; w++) {
        const lane *l = &lanes[w];
        double idle = span - l->busy - l->overhead - l->asleep;
        sbuf_printf(b, "%6u %10llu %10.1f %11.1f %10.1f %10.1f\n", w, (unsigned long long)l->tasks,
                    100 * l->busy / span, 100 * l->overhead / span, 100 * l->asleep / span,
                    100 * (idle > 0 ? idle : 0) / span);
    }
}

static void write_path(const task_story *story, double span, sbuf *b)
{
    const task_slice *longest = NULL;
    for (size_t i = 0; i < story->slice_count; i++)
        if (!longest || story->slices[i].path > longest->path)
            longest = &story->slices[i];
    if (!story->arrow_count)
        sbuf_text(b, "critical path: needs trace level 2\n");
    else
        sbuf_printf(b,
                    "critical path: %.1f us of kernels, ending with task %u; %.1f us of the "
                    "makespan are not on it\n",
                    longest->path, longest->task, span - longest->path);
}

static tacit_status write_report(tacit_task_runtime *rt, const task_story *story, sbuf *b,
                                 tacit_error *err)
{
    const tacit_allocator *a = rt->allocator;
    size_t n = story->slice_count;
    lane *lanes = mem_alloc_zero(a, rt->threads * sizeof *lanes);
    const task_slice **order = mem_alloc(a, (n + 1) * sizeof *order);
    change *changes = mem_alloc(a, (3 * n + 1) * sizeof *changes);
    double *ready_at = mem_alloc(a, (n + 1) * sizeof *ready_at);
    bool ok = lanes && order && changes && ready_at;
    if (ok && n) {
        fill_lanes(story, order, lanes);
        double first = order[0]->begin, last = 0;
        for (size_t i = 0; i < n; i++)
            last = story->slices[i].end > last ? story->slices[i].end : last;
        double span = last > first ? last - first : 1e-3;
        sbuf_printf(b, "%zu kernels in %.1f us on %u workers", n, span, rt->threads);
        sbuf_printf(b, story->lost ? ", %llu older records lost\n" : "\n",
                    (unsigned long long)story->lost);
        write_lanes(rt, lanes, span, b);
        double idle = idle_while_ready(rt, story, changes, ready_at);
        sbuf_printf(b, "idle while work was ready: %.1f us (%.1f %% of all workers' time)\n", idle,
                    100 * idle / span / rt->threads);
        write_path(story, span, b);
    } else if (ok) {
        sbuf_text(b, "no kernels traced\n");
    }
    write_rings(rt, b);
    mem_release(a, lanes, rt->threads * sizeof *lanes);
    mem_release(a, order, (n + 1) * sizeof *order);
    mem_release(a, changes, (3 * n + 1) * sizeof *changes);
    mem_release(a, ready_at, (n + 1) * sizeof *ready_at);
    return ok && sbuf_str(b) ? TACIT_OK : error_memory(err, "a trace report");
}

tacit_status tacit_task_trace_report(tacit_task_runtime *rt,
                                     void (*write)(void *context, const char *text, size_t length),
                                     void *context, tacit_error *err)
{
    task_story story;
    TRY(task_story_make(rt, &story, err));
    sbuf b;
    sbuf_init(&b, rt->allocator);
    tacit_status status = write_report(rt, &story, &b, err);
    if (status == TACIT_OK)
        write(context, b.data, b.length);
    sbuf_free(&b);
    task_story_free(rt, &story);
    return status;
}
