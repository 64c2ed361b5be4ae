/* SPDX-License-Identifier: Apache-2.0
 * A sealed graph: nodes with their successors, ready to be run again and again. */
#ifndef TASK_GRAPH_H
#define TASK_GRAPH_H

#include "base/vec.h"
#include "task/ahead.h"
#include "task/alone.h"
#include "task/pace.h"
#include "task/task.h"

enum { TASK_INLINE_SUCCESSORS = 6 };

enum task_node_flags {
    TASK_NODE_CALL = 1, /* args is a task_recorded */
    TASK_NODE_PREDICATED = 2,
    TASK_NODE_JOIN = 4,  /* nothing to run */
    TASK_NODE_ASYNC = 8, /* a CALL that is over when its token comes back */
};

typedef struct task_node {
    alignas(64) tacit_task_tile tile;
    const void *args;
    uint32_t begin, end;
    _Atomic int32_t pending; /* set back to indegree when the node runs, so no reset pass */
    int32_t indegree;
    uint32_t successor_count;
    uint8_t flags;
    _Atomic uint8_t poison;
    uint16_t kernel;
    uint32_t successors[TASK_INLINE_SUCCESSORS]; /* or [0]: where they begin in the graph's list */
} task_node;

/* An entry of a list of successors: the node, and which worker it is near to plus one (0: none). */
#define TASK_SUCCESSOR(entry) ((entry)&0x0fffffffu)
#define TASK_NEAR(entry) ((entry) >> 28)
_Static_assert(sizeof(task_node) == 64, "one cache line");

typedef struct task_node_info {
    tacit_task_tile tile;
    const void *args;
    uint32_t begin, end;
    uint8_t flags;
    const int64_t *predicate;
    const char *name;
    uint32_t first_dep, dep_count; /* in the graph's deps */
    uint32_t cost_ns, home, near;
    uint64_t priority;              /* longest path to an exit */
    struct task_recorded *recorded; /* of a CALL */
    const void *ahead;              /* what it reads from memory; NULL: nothing to speak of */
    size_t ahead_bytes;
} task_node_info;

typedef struct task_recorded {
    const tacit_task_kernel *kernel;
    void *user;
    tacit_task_value *values;
    uint32_t count, node;
    /* of asynchronous kernels, see async.c */
    _Atomic uint64_t token; /* while it is out */
    uint32_t next;          /* in the list of those that came back: node plus one */
    uint8_t status;
} task_recorded;

/* One use of the caller's memory by a recorded task. */
typedef struct task_patch {
    const void *data; /* as recorded */
    uint64_t offset, high;
    tacit_task_value *value;
} task_patch;

/* Lists of nodes per worker; see calendar.c. A place is a node's position in its list. */
typedef struct task_calendar {
    bool used;
    uint32_t epoch;                   /* of the run */
    uint32_t *begin, *end;            /* per worker */
    uint32_t *node;                   /* per place */
    uint32_t *first, *producers;      /* places each place waits for */
    _Atomic uint32_t *claimed, *done; /* the epoch, once it is */
} task_calendar;

struct tacit_task_graph {
    tacit_task_runtime *rt;
    arena memory;
    VEC(task_node_info) info; /* what was asked for; the nodes are made from it */
    VEC(uint32_t) deps;
    VEC(task_patch) patches;
    task_node *nodes; /* aligned, after seal */
    uint32_t *adjacent, *roots;
    uint32_t *root_ends; /* of each worker's in `roots`; behind the last lie those near to nobody */
    uint32_t count, root_chunk, deque_mask;
    _Atomic uint32_t **items; /* per worker: storage of its deque */
    uint64_t edges, total_cost;
    task_calendar calendar;
    bool sealed, costs_known;
    bool in_stints;      /* nodes are long enough for looks at the time between them */
    bool has_near;       /* some nodes say whose data they work on */
    bool has_ahead;      /* … and what they read from memory */
    uint32_t *ahead;     /* see ahead.c; NULL: no node says that */
    uint64_t last_ticks; /* of the previous run */
    task_pace pace;
    task_alone_fn *alone; /* instead of the nodes; NULL: these */
    void *alone_context;
    bool named;          /* nodes know their names' numbers in traces */
    uint32_t trace_base; /* number of node 0 in the trace of this run */
    _Atomic uint64_t first_failure;
    uint32_t async_count;
    uint32_t learning;  /* runs yet that measure what nodes cost */
    _Atomic bool inuse; /* by a run */
};

/* A kernel's status when it is not over yet. */
#define TASK_OUT 0xffu

bool task_calendar_build(tacit_task_graph *g); /* false: out of memory */
bool task_calendar_ready(const tacit_task_graph *g, const task_worker *w); /* its next node */
bool task_calendar_work(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g);
void task_graph_order(tacit_task_graph *g); /* graph.c: priorities, and lists in their order */
/* replay.c: run a node's kernel to its end; a failure goes to its successors. */
void task_graph_node(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g, uint32_t index);
/* ahead.c */
bool task_ahead_build(tacit_task_graph *g); /* false: out of memory */
void task_ahead_ask(task_worker *w, const tacit_task_graph *g);
/* async.c */
uint8_t task_async_launch(tacit_task_runtime *rt, const task_worker *w, task_recorded *r);
uint32_t task_async_take(tacit_task_runtime *rt); /* first of the list, taken whole; 0: none */

static inline const uint32_t *task_successors(const tacit_task_graph *g, const task_node *n)
{
    return n->successor_count <= TASK_INLINE_SUCCESSORS ? n->successors
                                                        : g->adjacent + n->successors[0];
}

#endif
