/* SPDX-License-Identifier: Apache-2.0
 * Event rings, one per worker, sixteen bytes a record; the newest records win. */
#ifndef TASK_TRACE_H
#define TASK_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/alloc.h"
#include "base/status.h"
#include "task/order.h"

typedef enum task_event {
    TASK_EV_BEGIN = 1, /* level 1: kernel starts (task, kernel) */
    TASK_EV_END,       /* level 1 */
    TASK_EV_NODE,      /* level 1: as BEGIN, a node of a graph run */
    TASK_EV_SUBMIT,    /* level 2: aux: producers */
    TASK_EV_STEAL,     /* level 2 */
    TASK_EV_PARK,      /* level 2 */
    TASK_EV_WAKE,      /* level 2 */
    TASK_EV_EDGE,      /* level 2: aux: the producer */
    TASK_EV_STALL,     /* level 3: kernel: resource; aux: microseconds */
    TASK_EV_SCOPE,     /* level 3: aux: new depth */
    TASK_EV_RING,      /* level 3: kernel: resource; aux: per mille in use */
    TASK_EV_NODE_EDGE, /* level 2: as EDGE, between nodes */
} task_event;

typedef struct task_trace_record {
    uint64_t when : 48; /* ticks */
    uint64_t event : 8;
    uint64_t kernel : 8;
    uint32_t task; /* low half of the id, or the node */
    uint32_t aux;
} task_trace_record;
_Static_assert(sizeof(task_trace_record) == 16, "four to a cache line");

/* Written by its worker, which goes on to note its sleeps while the orchestrator reads: records are
 * words, and what is below `count` is complete. */
typedef struct task_trace {
    _Atomic uint64_t *words;
    _Atomic uint64_t count; /* records written ever; the ring holds the last mask + 1 */
    uint32_t mask;
    /* the reader's */
    uint64_t start; /* ticks when the trace began */
    uint64_t first; /* records before it belong to an older trace */
    uint64_t from, to;
} task_trace;

static inline void task_trace_add(task_trace *t, uint64_t ticks, task_event event, uint32_t kernel,
                                  uint64_t task, uint32_t aux)
{
    uint64_t n = LOAD(&t->count, RELAXED), at = 2 * (n & t->mask);
    task_trace_record r = {.when = ticks & 0xffffffffffffu,
                           .event = event,
                           .kernel = kernel,
                           .task = (uint32_t)task,
                           .aux = aux};
    uint64_t words[2];
    memcpy(words, &r, sizeof r);
    STORE(&t->words[at], words[0], RELAXED);
    STORE(&t->words[at + 1], words[1], RELAXED);
    STORE(&t->count, n + 1, MO_DONE);
}

/* ---- what a trace says, for exporters */

typedef struct task_slice {
    uint32_t task, kernel, worker;
    bool node;      /* of a graph run, not a submitted task */
    bool submitted; /* `submit` is known */
    uint32_t status;
    double begin, end;   /* microseconds since the trace began */
    double submit, path; /* path: longest chain of kernels up to this one's end */
} task_slice;

typedef struct task_arrow {
    uint32_t from, to; /* slices */
} task_arrow;

/* A sleep, stall, steal, scope or ring sample. */
typedef struct task_mark {
    task_event event;
    uint32_t worker, what, value;
    double at, end;
} task_mark;

typedef struct task_story {
    task_slice *slices; /* by kind, then task */
    task_arrow *arrows;
    task_mark *marks;
    size_t slice_count, arrow_count, mark_count;
    size_t slice_room, arrow_room, mark_room;
    uint64_t lost; /* records overwritten */
} task_story;

struct tacit_task_runtime;
tacit_status task_story_make(struct tacit_task_runtime *rt, task_story *story, tacit_error *err);
void task_story_free(struct tacit_task_runtime *rt, task_story *story);
const char *task_slice_name(const struct tacit_task_runtime *rt, const task_slice *s);

#endif
