/* SPDX-License-Identifier: Apache-2.0
 * From event rings to slices, arrows and marks. */
#include "task/trace.h"

#include <stdlib.h>

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

tacit_status tacit_task_trace_level(tacit_task_runtime *rt, uint32_t level, tacit_error *err)
{
    TRY(task_check_owner(rt, err));
    if (level > 3)
        return error_set(err, TACIT_ERR_ARGUMENT, "trace level %u: 0 to 3", level);
    if (task_executed(rt) != rt->next - rt->first_id)
        return error_set(err, TACIT_ERR_STATE, "tasks are in flight: wait before tracing starts");
    if (level && !task_tracing(rt))
        for (uint32_t w = 0; w < rt->threads; w++) {
            task_trace *t = &rt->workers[w].trace;
            t->first = LOAD(&t->count, RELAXED);
            t->start = task_ticks();
        }
    STORE(&rt->trace_level, level, RELAXED);
    return TACIT_OK;
}

/* ---- collecting --------------------------------------------------------------------------- */

/* A worker may note one more sleep while its ring is read: of a ring that has wrapped, the few
 * oldest records of workers other than the reader itself are left alone. */
enum { WRAP_MARGIN = 8 };

static double microseconds(const tacit_task_runtime *rt, uint64_t when)
{
    uint64_t ticks = (when - rt->workers[0].trace.start) & 0xffffffffffffu;
    /* A record from just before the start: a worker that fell asleep then. */
    return ticks >> 47 ? 0 : (double)ticks / rt->ticks_per_ns / 1000.0;
}

static task_trace_record record_at(const task_trace *t, uint64_t i)
{
    uint64_t at = 2 * (i & t->mask);
    uint64_t words[2] = {LOAD(&t->words[at], RELAXED), LOAD(&t->words[at + 1], RELAXED)};
    task_trace_record r;
    memcpy(&r, words, sizeof r);
    return r;
}

/* Which records are to be read; returns how many. */
static uint64_t open_ring(task_worker *w, task_story *story)
{
    task_trace *t = &w->trace;
    uint64_t room = t->mask + 1u, most = w->index && room > WRAP_MARGIN ? room - WRAP_MARGIN : room;
    t->to = LOAD(&t->count, MO_WAIT);
    t->from = t->to - t->first > most ? t->to - most : t->first;
    story->lost += t->from - t->first;
    return t->to - t->from;
}

static void read_ring(const tacit_task_runtime *rt, uint32_t w, task_story *story)
{
    const task_trace *t = &rt->workers[w].trace;
    task_mark *asleep = NULL;
    for (uint64_t i = t->from; i < t->to; i++) {
        task_trace_record r = record_at(t, i);
        double at = microseconds(rt, r.when);
        switch ((task_event)r.event) {
        case TASK_EV_BEGIN:
        case TASK_EV_NODE: {
            /* The end was written right behind it. */
            task_trace_record e = i + 1 < t->to ? record_at(t, i + 1) : (task_trace_record){0};
            if (e.event == TASK_EV_END)
                story->slices[story->slice_count++] = (task_slice){.task = r.task,
                                                                   .kernel = (uint32_t)r.kernel,
                                                                   .worker = w,
                                                                   .node = r.event == TASK_EV_NODE,
                                                                   .status = e.aux,
                                                                   .begin = at,
                                                                   .end = microseconds(rt, e.when)};
            break;
        }
        case TASK_EV_WAKE:
            if (asleep)
                asleep->end = at;
            asleep = NULL;
            break;
        case TASK_EV_PARK:
        case TASK_EV_STEAL:
        case TASK_EV_STALL:
        case TASK_EV_SCOPE:
        case TASK_EV_RING: {
            task_mark *m = &story->marks[story->mark_count++];
            *m = (task_mark){.event = (task_event)r.event,
                             .worker = w,
                             .what = (uint32_t)r.kernel,
                             .value = r.aux,
                             .at = at,
                             .end = at};
            if (r.event == TASK_EV_PARK)
                asleep = m;
            break;
        }
        default:
            break;
        }
    }
}

static int by_task(const void *a, const void *b)
{
    const task_slice *x = a, *y = b;
    if (x->node != y->node)
        return x->node - y->node;
    return x->task < y->task ? -1 : x->task > y->task;
}

static task_slice *find(const task_story *story, bool node, uint32_t task)
{
    task_slice key = {.node = node, .task = task};
    return bsearch(&key, story->slices, story->slice_count, sizeof key, by_task);
}

/* Submit times and dependence arrows; both ends have to be in the trace. */
static void read_links(const tacit_task_runtime *rt, task_story *story)
{
    const task_trace *t = &rt->workers[0].trace;
    for (uint64_t i = t->from; i < t->to; i++) {
        task_trace_record r = record_at(t, i);
        bool node = r.event == TASK_EV_NODE_EDGE;
        if (r.event == TASK_EV_SUBMIT) {
            task_slice *s = find(story, false, r.task);
            if (s) {
                s->submit = microseconds(rt, r.when);
                s->submitted = true;
            }
        } else if (r.event == TASK_EV_EDGE || node) {
            task_slice *from = find(story, node, r.aux), *to = find(story, node, r.task);
            if (from && to)
                story->arrows[story->arrow_count++] =
                    (task_arrow){(uint32_t)(from - story->slices), (uint32_t)(to - story->slices)};
        }
    }
}

static void find_paths(task_story *story)
{
    for (size_t i = 0; i < story->slice_count; i++)
        story->slices[i].path = story->slices[i].end - story->slices[i].begin;
    /* Arrows were written in submit order, so producers' paths are final when they are read. */
    for (size_t i = 0; i < story->arrow_count; i++) {
        const task_slice *from = &story->slices[story->arrows[i].from];
        task_slice *to = &story->slices[story->arrows[i].to];
        double path = from->path + to->end - to->begin;
        if (to->path < path)
            to->path = path;
    }
}

tacit_status task_story_make(tacit_task_runtime *rt, task_story *story, tacit_error *err)
{
    *story = (task_story){0};
    TRY(task_check_owner(rt, err));
    if (task_executed(rt) != rt->next - rt->first_id)
        return error_set(err, TACIT_ERR_STATE, "tasks are in flight: wait before reading a trace");
    size_t most = 1;
    for (uint32_t w = 0; w < rt->threads; w++)
        most += open_ring(&rt->workers[w], story);
    const tacit_allocator *a = rt->allocator;
    story->slice_room = story->arrow_room = story->mark_room = most;
    story->slices = mem_alloc(a, most * sizeof *story->slices);
    story->arrows = mem_alloc(a, most * sizeof *story->arrows);
    story->marks = mem_alloc(a, most * sizeof *story->marks);
    if (!story->slices || !story->arrows || !story->marks) {
        task_story_free(rt, story);
        return error_memory(err, "a trace");
    }
    for (uint32_t w = 0; w < rt->threads; w++)
        read_ring(rt, w, story);
    qsort(story->slices, story->slice_count, sizeof *story->slices, by_task);
    read_links(rt, story);
    find_paths(story);
    return TACIT_OK;
}

void task_story_free(tacit_task_runtime *rt, task_story *story)
{
    const tacit_allocator *a = rt->allocator;
    mem_release(a, story->slices, story->slice_room * sizeof *story->slices);
    mem_release(a, story->arrows, story->arrow_room * sizeof *story->arrows);
    mem_release(a, story->marks, story->mark_room * sizeof *story->marks);
    *story = (task_story){0};
}

const char *task_slice_name(const tacit_task_runtime *rt, const task_slice *s)
{
    if (s->node)
        return s->kernel < rt->node_name_count ? rt->node_names[s->kernel] : "node";
    const tacit_task_kernel *k = s->kernel < rt->kernel_count ? rt->kernels[s->kernel] : NULL;
    return k && k->name ? k->name : "unnamed";
}
