/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit/task.h: a task runtime with bounded memory.
 *
 * One thread, the orchestrator, submits kernels in program order. The runtime finds out from the
 * memory each kernel reads and writes which earlier kernels it has to wait for, allocates outputs,
 * runs ready kernels on worker threads and on the orchestrator itself when that has to wait, and
 * takes everything back when a scope ends. The result is what running the kernels one after the
 * other would have given. All memory is obtained by tacit_task_create; when a ring is full submit
 * waits, and when waiting could never end it says so at once.
 *
 *     tacit_task_runtime *rt;
 *     tacit_task_create(&(tacit_task_config){.threads = 2}, &rt, &err);
 *     tacit_task_scope_begin(rt, TACIT_TASK_AUTO, "demo", &err);
 *     tacit_task_buffer y;
 *     tacit_task_param params[] = {tacit_task_in(&x), tacit_task_new(&y, 4096)};
 *     tacit_task_submit(rt, &(tacit_task_desc){.kernel = &scale, .params = params,
 *                                             .param_count = 2}, NULL, &err);
 *     tacit_task_scope_end(rt, &err);
 *     tacit_task_wait_all(rt, &err);
 *     tacit_task_destroy(rt);
 *
 * Threads: every function that takes a runtime belongs to the orchestrator, the thread that created
 * it, except where said. A call from another thread is refused with TACIT_ERR_STATE.
 */
#ifndef TACIT_TASK_H
#define TACIT_TASK_H

#include <stdbool.h>

#include "tacit/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tacit_task_runtime tacit_task_runtime;

/* Task ids count upwards in submit order and are never reused. */
typedef uint64_t tacit_task_id;
#define TACIT_TASK_NONE UINT64_MAX

enum {
    TACIT_TASK_MAX_PARAMS = 64,
    TACIT_TASK_MAX_RANK = 8,
    TACIT_TASK_MAX_SCOPES = 64,
    TACIT_TASK_MAX_WORKERS = 64,
    TACIT_TASK_ALIGN = 64, /* of every allocated output */
};

/* ---- kernels ---------------------------------------------------------------------------- */

typedef enum tacit_task_type {
    TACIT_TASK_CUBE,        /* matrix work */
    TACIT_TASK_VECTOR,      /* element-wise work */
    TACIT_TASK_AI_CPU,      /* control work; the orchestrator runs it while it waits */
    TACIT_TASK_ACCELERATOR, /* starts something elsewhere; done when its token is completed */
    TACIT_TASK_TYPES
} tacit_task_type;

/* What a parameter looks like to the kernel: the address of its first byte, or the scalar. */
typedef union tacit_task_value {
    void *data;
    int64_t integer;
    double real;
} tacit_task_value;

typedef struct tacit_task_call {
    const tacit_task_value *values; /* one per parameter, in order */
    void *user;                     /* from the task's description */
    tacit_task_id id;               /* also the token of an ACCELERATOR task */
    uint32_t count;                 /* of values */
    uint32_t worker;                /* who runs it; 0 is the orchestrator */
    tacit_task_runtime *runtime;
} tacit_task_call;

/* Anything but TACIT_OK fails the task and, through what they would have read, its consumers. A
 * kernel runs to its end: it may not submit, wait for, or block on other tasks. */
typedef tacit_status (*tacit_task_run)(const tacit_task_call *call);

/* Describes a kind of kernel; must stay valid as long as the runtime. The address is its identity:
 * durations are learnt per kernel. */
typedef struct tacit_task_kernel {
    tacit_task_run run;
    const char *name; /* for traces; may be NULL */
    tacit_task_type type;
} tacit_task_kernel;

/* ---- memory and parameters ------------------------------------------------------------- */

/* A piece of storage. `data` is its identity: two different storages must not overlap in memory. */
typedef struct tacit_task_buffer {
    void *data;
    uint64_t bytes;
    tacit_task_id owner; /* the task that allocated it, or TACIT_TASK_NONE: the caller's memory */
} tacit_task_buffer;

static inline tacit_task_buffer tacit_task_memory(void *data, uint64_t bytes)
{
    tacit_task_buffer b = {data, bytes, TACIT_TASK_NONE};
    return b;
}

/* A strided box inside a storage: element (i0, i1, ...) starts at offset + sum i*stride bytes. */
typedef struct tacit_task_view {
    uint64_t offset;
    uint32_t rank, element; /* dimensions, bytes of one element */
    uint64_t shape[TACIT_TASK_MAX_RANK];
    int64_t stride[TACIT_TASK_MAX_RANK];
} tacit_task_view;

typedef enum tacit_task_access {
    TACIT_TASK_IN,     /* waits for writers */
    TACIT_TASK_OUT,    /* overwrites existing memory: waits for writers and readers */
    TACIT_TASK_NEW,    /* the runtime allocates; the buffer is filled in before submit returns */
    TACIT_TASK_INOUT,  /* reads and overwrites in place */
    TACIT_TASK_SCALAR, /* a 64-bit value */
    TACIT_TASK_NO_DEP, /* memory without ordering; kept alive while the task needs it */
} tacit_task_access;

typedef struct tacit_task_param {
    tacit_task_access access;
    bool no_war;                 /* IN: later writers need not wait for this read */
    tacit_task_buffer *buffer;   /* all but SCALAR */
    uint64_t offset, bytes;      /* part of the buffer (NEW: bytes to allocate) */
    const tacit_task_view *view; /* instead of offset and bytes; read during submit only */
    tacit_task_value scalar;
} tacit_task_param;

static inline tacit_task_param tacit_task_part(tacit_task_access access, tacit_task_buffer *buffer,
                                               uint64_t offset, uint64_t bytes)
{
    tacit_task_param p = {access, false, buffer, offset, bytes, NULL, {NULL}};
    return p;
}
static inline tacit_task_param tacit_task_box(tacit_task_access access, tacit_task_buffer *buffer,
                                              const tacit_task_view *view)
{
    tacit_task_param p = {access, false, buffer, 0, 0, view, {NULL}};
    return p;
}
static inline tacit_task_param tacit_task_in(tacit_task_buffer *b)
{
    return tacit_task_part(TACIT_TASK_IN, b, 0, b->bytes);
}
static inline tacit_task_param tacit_task_out(tacit_task_buffer *b)
{
    return tacit_task_part(TACIT_TASK_OUT, b, 0, b->bytes);
}
static inline tacit_task_param tacit_task_inout(tacit_task_buffer *b)
{
    return tacit_task_part(TACIT_TASK_INOUT, b, 0, b->bytes);
}
static inline tacit_task_param tacit_task_no_dep(tacit_task_buffer *b)
{
    return tacit_task_part(TACIT_TASK_NO_DEP, b, 0, b->bytes);
}
static inline tacit_task_param tacit_task_new(tacit_task_buffer *b, uint64_t bytes)
{
    return tacit_task_part(TACIT_TASK_NEW, b, 0, bytes);
}
static inline tacit_task_param tacit_task_scalar(int64_t value)
{
    tacit_task_param p = {TACIT_TASK_SCALAR, false, NULL, 0, 0, NULL, {NULL}};
    p.scalar.integer = value;
    return p;
}

/* ---- the runtime ------------------------------------------------------------------------- */

typedef enum tacit_task_idle {
    TACIT_TASK_IDLE_HYBRID, /* spin some 50 us, then sleep */
    TACIT_TASK_IDLE_SPIN,   /* never sleep */
    TACIT_TASK_IDLE_PARK,   /* sleep at once */
} tacit_task_idle;

typedef struct tacit_task_config {
    uint32_t threads;     /* with the orchestrator; 0: the CPUs this process may use */
    uint32_t window;      /* task slots, a power of two; 0: 4096 */
    uint64_t heap_bytes;  /* for allocated outputs; 0: 64 MiB */
    uint32_t dependences; /* dependence nodes; 0: 8 per slot */
    uint32_t records;     /* access records; 0: 8 per slot */
    bool spare_slot;      /* leave one slot of the window empty */
    bool oversubscribe;   /* let more workers be awake than there are CPUs */
    bool eager;           /* publish each ready task at once instead of in batches */
    tacit_task_idle idle;
    uint32_t trace_level;     /* 0 off, 1 kernels, 2 + submit, steal, sleep, 3 + stalls, rings */
    uint32_t trace_records;   /* per worker; 0: 65536 */
    const uint8_t *type_mask; /* per worker (0 is the orchestrator): bit t set: serves type t;
                                 NULL: everybody serves everything */
    tacit_task_id first_id;
    const tacit_allocator *allocator; /* NULL: libc */
} tacit_task_config;

TACIT_API TACIT_MUST_USE tacit_status tacit_task_create(const tacit_task_config *config,
                                                        tacit_task_runtime **out, tacit_error *err);
/* Runs what was submitted to its end, closes open scopes, stops the workers. NULL is allowed. */
TACIT_API void tacit_task_destroy(tacit_task_runtime *rt);
/* Makes the calling thread the orchestrator. Only while nothing is in flight and no scope is
 * open; the caller makes sure that the previous orchestrator no longer calls. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_adopt(tacit_task_runtime *rt, tacit_error *err);
TACIT_API uint32_t tacit_task_threads(const tacit_task_runtime *rt); /* any thread */

typedef enum tacit_task_scope_mode {
    TACIT_TASK_AUTO,   /* dependences from memory regions, plus explicit ones */
    TACIT_TASK_MANUAL, /* explicit ones only; an AUTO scope inside is refused */
} tacit_task_scope_mode;

/* An output allocated in a scope lives until that scope, the innermost one at its submit, has ended
 * and its consumers are done. `site` names the scope in diagnostics and must outlive it. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_scope_begin(tacit_task_runtime *rt,
                                                             tacit_task_scope_mode mode,
                                                             const char *site, tacit_error *err);
TACIT_API TACIT_MUST_USE tacit_status tacit_task_scope_end(tacit_task_runtime *rt,
                                                           tacit_error *err);
/* Ends a task's membership in its scope now: its outputs go when its consumers are done. Freeing
 * twice is allowed. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_free(tacit_task_runtime *rt, tacit_task_id id,
                                                      tacit_error *err);

typedef struct tacit_task_desc {
    const tacit_task_kernel *kernel; /* NULL only with `dummy` */
    void *user;
    const tacit_task_param *params;
    uint32_t param_count;
    uint32_t dep_count;
    const tacit_task_id *deps; /* further tasks to wait for; finished ones are skipped */
    const int64_t *predicate;  /* read when the task is about to run; 0 skips the kernel */
    bool dummy;                /* dependences only */
} tacit_task_desc;

/* Waits when a ring is full. TACIT_ERR_DEADLOCK: no amount of waiting would help, because open
 * scopes pin what is needed; the message names scope, resource and sufficient size. On any error
 * nothing was submitted and the runtime stays usable. `id` may be NULL. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_submit(tacit_task_runtime *rt,
                                                        const tacit_task_desc *desc,
                                                        tacit_task_id *id, tacit_error *err);
/* Completes an ACCELERATOR task. Any thread, exactly once per launched task, also from inside the
 * kernel. A token that is not waiting for completion is refused with TACIT_ERR_STATE. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_complete(tacit_task_runtime *rt,
                                                          tacit_task_id token, tacit_status status,
                                                          tacit_error *err);

/* Hands batched ready tasks to the workers now. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_flush(tacit_task_runtime *rt, tacit_error *err);
/* Returns the task's own status once it has completed (TACIT_OK for one long retired). */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_wait(tacit_task_runtime *rt, tacit_task_id id,
                                                      tacit_error *err);
/* Waits for everything submitted. Returns the failure with the lowest id since the last call, which
 * does not depend on timing, and forgets all failures. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_wait_all(tacit_task_runtime *rt, tacit_error *err);

/* ---- looking inside ---------------------------------------------------------------------- */

typedef enum tacit_task_state {
    TACIT_TASK_BUILDING,
    TACIT_TASK_PENDING,
    TACIT_TASK_READY,
    TACIT_TASK_RUNNING,
    TACIT_TASK_COMPLETED,
    TACIT_TASK_FAILED, /* by itself or through a producer */
    TACIT_TASK_CONSUMED,
} tacit_task_state;

TACIT_API tacit_task_state tacit_task_state_of(tacit_task_runtime *rt, tacit_task_id id);
TACIT_API const char *tacit_task_state_name(tacit_task_state state);

typedef enum tacit_task_resource {
    TACIT_TASK_RING_SLOTS,
    TACIT_TASK_RING_HEAP,
    TACIT_TASK_RING_DEPENDENCES,
    TACIT_TASK_RING_RECORDS,
    TACIT_TASK_RESOURCES
} tacit_task_resource;

typedef struct tacit_task_usage {
    uint64_t capacity, used, high_water; /* slots, bytes, nodes or records */
    uint64_t stalls, stall_ns;
} tacit_task_usage;

typedef struct tacit_task_stats {
    tacit_task_usage resource[TACIT_TASK_RESOURCES];
    tacit_task_id first_alive, next; /* tasks in between hold their slot */
    uint64_t submitted, executed, failed, edges;
    uint64_t inline_runs; /* tasks the orchestrator kept for itself as too small */
    uint64_t steals, parks, wakes;
    uint64_t scope_depth;
    uint64_t slot_hot_bytes, slot_cold_bytes;
} tacit_task_stats;

TACIT_API void tacit_task_stats_get(tacit_task_runtime *rt, tacit_task_stats *stats);
/* The resource submit is waiting for, or TACIT_TASK_RESOURCES. Any thread. */
TACIT_API tacit_task_resource tacit_task_current_stall(const tacit_task_runtime *rt);
TACIT_API const char *tacit_task_resource_name(tacit_task_resource resource);

/* ---- recorded graphs --------------------------------------------------------------------- */

typedef struct tacit_task_graph tacit_task_graph;

/* A tile kernel: does units [begin, end) of the work that `args` describes. */
typedef void (*tacit_task_tile)(const void *args, uint32_t begin, uint32_t end);

typedef struct tacit_task_node {
    tacit_task_tile tile; /* NULL: a node that only joins dependences */
    const void *args;
    uint32_t begin, end;
    const uint32_t *deps; /* earlier nodes */
    uint32_t dep_count;
    uint32_t cost_ns;         /* estimate; 0: unknown */
    uint32_t home;            /* preferred worker plus one; 0: any */
    uint32_t near;            /* worker plus one whose cache its data may be in; 0: nobody knows */
    const int64_t *predicate; /* as in tacit_task_desc */
    const char *name;
} tacit_task_node;

/* Graphs are built once, run often. Building allocates, running does not. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_graph_create(tacit_task_runtime *rt,
                                                              tacit_task_graph **out,
                                                              tacit_error *err);
TACIT_API void tacit_task_graph_destroy(tacit_task_graph *graph);
TACIT_API TACIT_MUST_USE tacit_status tacit_task_graph_add(tacit_task_graph *graph,
                                                           const tacit_task_node *node,
                                                           uint32_t *index, tacit_error *err);
/* Orders successors by longest path to an exit and fixes the graph. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_graph_seal(tacit_task_graph *graph,
                                                            tacit_error *err);
/* Runs every node once, on the calling thread and the workers; returns when all are done. Any
 * thread. Nothing submitted may be in flight. Graphs of one runtime may be run at the same time
 * from several threads: while the workers are with one, the others run on their callers alone,
 * except that a graph with ACCELERATOR nodes is then refused with TACIT_ERR_STATE. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_graph_run(tacit_task_runtime *rt,
                                                           tacit_task_graph *graph,
                                                           tacit_error *err);
/* Between runs: new arguments for one node. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_graph_patch_args(tacit_task_graph *graph,
                                                                  uint32_t node, const void *args,
                                                                  tacit_error *err);
TACIT_API TACIT_MUST_USE tacit_status tacit_task_graph_patch_cost(tacit_task_graph *graph,
                                                                  uint32_t node, uint32_t cost_ns,
                                                                  tacit_error *err);
/* After costs were patched: order successors and roots by the new longest paths. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_graph_prioritise(tacit_task_graph *graph,
                                                                  tacit_error *err);
/* Runs the graph once, in order, on the calling thread; keeps what each node took as its cost, and
 * prioritises. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_graph_measure(tacit_task_runtime *rt,
                                                               tacit_task_graph *graph,
                                                               tacit_error *err);
/* The next `runs` runs measure what nodes cost, on whichever worker; the last one prioritises. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_graph_learn(tacit_task_graph *graph, uint32_t runs,
                                                             tacit_error *err);
TACIT_API uint32_t tacit_task_graph_cost(const tacit_task_graph *graph, uint32_t node); /* ns */
TACIT_API uint32_t tacit_task_graph_nodes(const tacit_task_graph *graph);
TACIT_API uint64_t tacit_task_graph_edges(const tacit_task_graph *graph);

/* Between these two calls submit records instead of running: same checks, same dependences,
 * outputs get places in memory that belongs to the graph. The result is sealed. ACCELERATOR tasks
 * are launched anew by every run, each time with another token, and complete by it as ever. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_record_begin(tacit_task_runtime *rt,
                                                              tacit_error *err);
TACIT_API TACIT_MUST_USE tacit_status tacit_task_record_end(tacit_task_runtime *rt,
                                                            tacit_task_graph **out,
                                                            tacit_error *err);
/* Between runs: wherever the recording used the caller's storage `old_data`, use `new_data`, which
 * must hold at least as many bytes. Patch again by naming the same `old_data`. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_graph_patch_buffer(tacit_task_graph *graph,
                                                                    const void *old_data,
                                                                    void *new_data, uint64_t bytes,
                                                                    tacit_error *err);
TACIT_API TACIT_MUST_USE tacit_status tacit_task_graph_patch_scalar(tacit_task_graph *graph,
                                                                    uint32_t node, uint32_t param,
                                                                    tacit_task_value value,
                                                                    tacit_error *err);

/* ---- traces ------------------------------------------------------------------------------ */

/* While nothing is in flight. Level 0 stops; the records stay until the next start. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_trace_level(tacit_task_runtime *rt, uint32_t level,
                                                             tacit_error *err);
/* Chrome/Perfetto JSON: a lane per worker, dependence arrows, ring occupancy, stalls. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_trace_chrome(tacit_task_runtime *rt,
                                                              const char *path, tacit_error *err);
/* One self-contained page with the same lanes. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_trace_html(tacit_task_runtime *rt,
                                                            const char *path, tacit_error *err);
/* Busy, overhead and idle per worker, idle while work was ready, critical path, suggested sizes.
 * The text goes to `write` in pieces. */
TACIT_API TACIT_MUST_USE tacit_status tacit_task_trace_report(
    tacit_task_runtime *rt, void (*write)(void *context, const char *text, size_t length),
    void *context, tacit_error *err);

#ifdef __cplusplus
}
#endif
#endif
