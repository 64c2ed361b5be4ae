/* SPDX-License-Identifier: Apache-2.0
 * The runtime's parts. Who may touch what:
 *   orchestrator only  rings, scopes, tokens, map, publish buffer (plain memory)
 *   published          slot and cold fields: written before the slot is linked or queued
 *   shared             atomics; each group on its own cache line
 * There is no scheduler thread and no lock: completion runs on whoever finished the kernel, and
 * slots are recycled by the orchestrator alone, so a slot index never changes meaning under it. */
#ifndef TASK_TASK_H
#define TASK_TASK_H

#include <pthread.h>
#include <sched.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/status.h"
#include "tacit/task.h"
#include "task/map.h"
#include "task/queue.h"
#include "task/trace.h"

#define TASK_NIL 0xffffffffu /* no slot */

enum {
    TASK_INLINE_VALUES = 11,
    TASK_INLINE_RETAINS = 5,
    TASK_KERNELS = 256, /* distinct kernels with their own estimate; the rest share the last */
    TASK_BATCH = 128,   /* most ready tasks held back */
    TASK_RECLAIM_EVERY = 64,
};

enum task_flags {
    TASK_PREDICATED = 1,
    TASK_ASYNC = 2,
    TASK_SPILLED = 4, /* values and retains live in the task's heap block */
};

/* The hot line. */
typedef struct task_slot {
    alignas(64) _Atomic uint64_t word; /* high: newest successor node or SEALED; low: references */
    _Atomic int32_t pending;           /* producers not yet completed */
    uint16_t kernel;
    uint8_t class, flags;
    tacit_task_run run;
    void *user;
    uint64_t id;
    _Atomic uint8_t poison; /* status inherited from a failed producer */
    uint8_t retain_count, value_count;
    uint8_t status; /* TASK_INHERITED | tacit_status, written before the word is sealed */
    uint32_t retain[TASK_INLINE_RETAINS]; /* slots whose memory this task keeps alive */
} task_slot;
_Static_assert(sizeof(task_slot) == 64, "one cache line");
_Static_assert(offsetof(task_slot, status) == TASK_STATUS_OFFSET, "read by the map");

#define TASK_INHERITED 0x80u

typedef struct task_cold {
    uint64_t heap_start; /* of its block; without one, where the next block begins */
    const int64_t *predicate;
    void *spill;
    _Atomic uint64_t token; /* id + 1 while an asynchronous kernel is out */
    uint64_t dep_end;       /* top of the dependence ring after its links */
    tacit_task_value values[TASK_INLINE_VALUES];
} task_cold;
_Static_assert(sizeof(task_cold) == 128, "two cache lines");

/* The successor lists' nodes form a ring; a node is freed with the consumer it names. */
typedef struct task_dep {
    uint32_t task; /* slot; top bit: the consumer reads what the producer wrote */
    uint32_t next; /* 0: end */
} task_dep;

/* Virtual offsets grow for ever, physical = virtual % size; a block never straddles the end. */
typedef struct task_heap {
    unsigned char *memory;
    uint64_t size, top, tail;
} task_heap;

typedef struct task_scope {
    uint64_t begin;
    uint64_t heap_begin;
    const char *site;
    tacit_task_scope_mode mode;
} task_scope;

/* Nodes of a graph run that wait for nobody: [cursor, end) of its list have not been taken. */
typedef struct task_roots {
    alignas(64) _Atomic uint32_t cursor;
    alignas(64) _Atomic uint32_t end;
} task_roots;

typedef struct task_worker {
    task_deque deque[TACIT_TASK_TYPES]; /* per class */
    task_deque nodes;                   /* of the graph being run; its items belong to the graph */
    task_roots roots;                   /* of that, near to this worker */
    alignas(64) _Atomic uint64_t executed;
    _Atomic uint64_t current; /* id + 1 of the running task */
    _Atomic bool joined;      /* inside the graph run */
    _Atomic uint32_t cursor;  /* place in its list of a run by calendar */
    uint32_t index, classes;  /* bit per class served */
    bool generalist;          /* serves every type anybody serves: takes part in graph runs */
    uint32_t sample, victim;
    _Atomic uint64_t steals, parks, wakes; /* written by the worker, read by anybody */
    uint32_t run_seen;                     /* the last graph run this worker looked at */
    uint32_t ran;          /* the last node of this run that it ran; 0: none, or that */
    uint32_t ahead, asked; /* whose memory it asks for, and how many lines it has: see ahead.c */
    int64_t node_count;    /* finished nodes not yet subtracted from the run's remainder */
    uint64_t stint;        /* when it last had the CPU anew, about; see stint.c */
    bool tired;            /* should let others have the CPU */
    task_trace trace;
    struct tacit_task_runtime *rt;
    pthread_t thread;
    /* see place.c */
    _Atomic int tid, cpu; /* cpu: where it slept or woke */
    _Atomic bool asleep;
    _Atomic uint32_t ban;
    cpu_set_t allowed; /* to be restored after a ban */
} task_worker;

/* One resource's counters. */
typedef struct task_gauge {
    uint64_t high, stalls, stall_ns;
} task_gauge;

struct tacit_task_runtime {
    /* fixed at create */
    const tacit_allocator *allocator;
    task_slot *slots;
    task_cold *cold;
    task_dep *deps;
    _Atomic uint8_t *flags; /* per slot: 1 + lap parity once consumed, | 0x80 when failed */
    task_worker *workers;
    uint32_t window, mask, bits, capacity; /* capacity: window less the spare slot */
    uint32_t dep_capacity, threads, class_count;
    uint32_t surplus; /* workers that should sleep because there are not enough CPUs */
    uint8_t class_of[TACIT_TASK_TYPES];
    bool served[TACIT_TASK_TYPES];
    tacit_task_type dummy_type; /* where tasks without a kernel are finished */
    bool uniform;               /* everybody serves everything */
    bool eager, asymmetric;
    tacit_task_idle idle;
    uint64_t spin_ticks, run_spin_ticks, batch_ticks;
    uint64_t stint_ticks; /* how long to keep a CPU that others may want; see stint.c */
    uint32_t inline_ticks, inline_below; /* below: the same less one; 0: run nothing at once */
    double ticks_per_ns;
    uint64_t run_over; /* when the last graph run was; the runner's */
    const void *owner; /* task_thread() of the orchestrator */

    /* orchestrator only */
    alignas(64) uint64_t next;
    uint64_t pin; /* the oldest task an open scope may hold; see task_pin */
    uint64_t dep_top, dep_tail;
    uint32_t dep_place; /* dep_top modulo the capacity */
    task_heap heap;
    uint64_t heap_last; /* one past the newest task with a block */
    bool *token;        /* per slot: scope reference still held */
    task_map map;
    task_scope scopes[TACIT_TASK_MAX_SCOPES];
    uint32_t depth;
    uint32_t held[TASK_BATCH]; /* ready, not yet published */
    uint32_t held_count, since_publish;
    uint64_t held_ticks;
    bool held_unknown;
    task_fanin fanin;
    uint32_t retain_count;
    uint32_t retains[TACIT_TASK_MAX_PARAMS];
    task_region regions[TACIT_TASK_MAX_PARAMS];
    task_failures failures;
    const tacit_task_kernel *kernels[TASK_KERNELS];
    uint32_t kernel_count, kernel_last;
    task_gauge gauge[TACIT_TASK_RESOURCES];
    uint64_t pinned_slots, pinned_heap; /* most that one set of open scopes held */
    uint64_t edges, inline_runs, first_id;
    struct task_recorder *recorder;
    char node_names[TASK_KERNELS][32]; /* of traced graph nodes; the last stands for the rest */
    uint32_t node_name_count;

    /* shared, read by all, written rarely */
    alignas(64) _Atomic uint32_t sleepers;
    _Atomic uint32_t orchestrator_asleep;
    _Atomic bool waking; /* a woken worker is on its way: nobody need call again */
    _Atomic bool stop;
    _Atomic(struct tacit_task_graph *) graph;
    _Atomic uint32_t trace_level;
    uint32_t trace_nodes;               /* node numbers given out to traced graph runs */
    alignas(64) _Atomic uint32_t event; /* futex of sleeping workers */
    alignas(64) _Atomic uint32_t estimate[TASK_KERNELS]; /* ticks; 0: not measured yet */
    alignas(64) _Atomic uint64_t first_failure;          /* packed, lowest id wins */
    _Atomic uint64_t failed;                             /* how many */
    _Atomic uint64_t foreign_executed;
    _Atomic uint32_t foreign_inside; /* threads inside tacit_task_complete */
    _Atomic uint64_t submitted;      /* for threads that run graphs; written by the orchestrator */
    _Atomic uint32_t stall;          /* resource being waited for */
    /* graph runs */
    alignas(64) _Atomic int64_t nodes_left;
    task_roots roots; /* near to nobody */
    _Atomic uint32_t run_number;
    _Atomic bool running;
    _Atomic uint32_t returned; /* asynchronous nodes that came back, a list: node plus one */
    task_inject inject[TACIT_TASK_TYPES];
    task_shared shared[TACIT_TASK_TYPES];
};

/* ---- time */
static inline uint64_t task_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t t;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
    return t;
#else
    return clock_ns();
#endif
}

/* What tells the calling thread from all others. */
static inline const void *task_thread(void)
{
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
    return __builtin_thread_pointer();
#else
    return (const void *)pthread_self();
#endif
}

/* The trace level. Idle workers look at it too, while the orchestrator may change it. */
static inline uint32_t task_tracing(const tacit_task_runtime *rt)
{
    return LOAD(&rt->trace_level, RELAXED);
}

static inline void task_bump(_Atomic uint64_t *counter)
{
    STORE(counter, LOAD(counter, RELAXED) + 1, RELAXED);
}

static inline uint8_t task_lap(const tacit_task_runtime *rt, uint64_t id)
{
    return (uint8_t)(1 + ((id >> rt->bits) & 1));
}
static inline uint32_t task_index(const tacit_task_runtime *rt, uint64_t id)
{
    return (uint32_t)id & rt->mask;
}
static inline bool task_alive(const tacit_task_runtime *rt, uint64_t id)
{
    return id - rt->fanin.tail < rt->next - rt->fanin.tail;
}

/* heap.c: whether `bytes` fit with the heap's tail at `tail`; reserving cannot fail after that. */
void task_heap_open(task_heap *h, unsigned char *memory, uint64_t size);
void task_heap_close(task_heap *h);
bool task_heap_fits(const task_heap *h, uint64_t tail, uint64_t bytes);
void *task_heap_take(task_heap *h, uint64_t bytes);
void task_heap_release(task_heap *h, uint64_t tail);

/* run.c */
void task_publish(tacit_task_runtime *rt); /* hand over or run what is held back */
void task_hand_over(tacit_task_runtime *rt);
void task_run_inline(tacit_task_runtime *rt, uint32_t index);
bool task_help(tacit_task_runtime *rt, task_worker *w);
void task_finish_foreign(tacit_task_runtime *rt, uint32_t index, tacit_status status);
uint64_t task_executed(tacit_task_runtime *rt);
void task_drop(tacit_task_runtime *rt, uint32_t index);
void *task_worker_main(void *argument);
void task_fail(tacit_task_runtime *rt, uint64_t id, uint32_t kernel, uint8_t status);
static inline void task_ready(tacit_task_runtime *rt, uint32_t index);

/* reclaim.c */
void task_reclaim(tacit_task_runtime *rt);
uint64_t task_pin(tacit_task_runtime *rt);
tacit_status task_reserve_slowly(tacit_task_runtime *rt, uint64_t bytes, uint32_t records,
                                 tacit_error *err);

/* Room for a task with these needs. */
static inline tacit_status task_reserve(tacit_task_runtime *rt, uint64_t bytes, uint32_t records,
                                        tacit_error *err)
{
    bool fits = rt->next % TASK_RECLAIM_EVERY && rt->next - rt->fanin.tail < rt->capacity &&
                rt->dep_top - rt->dep_tail + rt->fanin.count <= rt->dep_capacity &&
                rt->map.used + records <= rt->map.capacity &&
                (!bytes || task_heap_fits(&rt->heap, rt->heap.tail, bytes));
    return LIKELY(fits) ? TACIT_OK : task_reserve_slowly(rt, bytes, records, err);
}

/* park.c */
typedef struct task_patience {
    uint64_t since, executed;
    uint32_t spins;
} task_patience;
void task_wait_step(tacit_task_runtime *rt, task_patience *p); /* orchestrator: help, spin, sleep */
void task_wake(tacit_task_runtime *rt, task_worker *w);        /* one worker, or all if mixed */
void task_wake_all(tacit_task_runtime *rt);
bool task_stay_awake(const tacit_task_runtime *rt, task_worker *w, uint64_t since, bool run);
void task_wake_for_run(tacit_task_runtime *rt);
void task_orchestrator_sleep(tacit_task_runtime *rt, bool (*idle)(tacit_task_runtime *, uint64_t),
                             uint64_t argument);
void task_wake_orchestrator(tacit_task_runtime *rt);
void task_worker_sleep(tacit_task_runtime *rt, task_worker *w);
bool task_park_setup(void); /* true when membarrier makes the waker's side free */

/* place.c: workers wake on CPUs of their own */
void task_place_enter(task_worker *w);
void task_place_sleep(task_worker *w);
void task_place_wake(task_worker *w);
void task_place_spread(tacit_task_runtime *rt); /* before a wake-up */

/* stint.c: nobody holds a node when his time on the CPU is over */
uint64_t task_stint_ns(void);
void task_stint_end(task_worker *w);                /* lets others have the CPU */
bool task_stint_room(const tacit_task_runtime *rt); /* for workers: CPUs that nobody uses */
static inline bool task_stint_over(const tacit_task_runtime *rt, const task_worker *w)
{
    return task_ticks() - w->stint > rt->stint_ticks;
}

/* After publishing work or a completion, before looking whether somebody sleeps. */
static inline void task_publish_fence(const tacit_task_runtime *rt)
{
    if (LIKELY(rt->asymmetric))
        atomic_signal_fence(MO_FENCE);
    else
        atomic_thread_fence(MO_FENCE);
}

static inline void task_notify(tacit_task_runtime *rt, task_worker *w)
{
    task_publish_fence(rt);
    if (UNLIKELY(LOAD(&rt->sleepers, RELAXED) > rt->surplus) && !LOAD(&rt->waking, RELAXED))
        task_wake(rt, w);
}

/* submit.c */
tacit_status task_check_owner(tacit_task_runtime *rt, tacit_error *err);
tacit_status task_check_desc(tacit_task_runtime *rt, const tacit_task_desc *desc, uint64_t *bytes,
                             uint32_t *records, tacit_error *err);

/* trace.c */
void task_trace_rings(tacit_task_runtime *rt);

/* record.c */
tacit_status task_record_submit(tacit_task_runtime *rt, const tacit_task_desc *desc,
                                tacit_task_id *id, tacit_error *err);
uint64_t task_record_count(const tacit_task_runtime *rt);
void task_record_scope_end(tacit_task_runtime *rt, uint64_t begin);
void task_record_cancel(tacit_task_runtime *rt);

/* async.c: a token of a graph run */
tacit_status task_async_complete(tacit_task_runtime *rt, tacit_task_id token, tacit_status status,
                                 tacit_error *err);

/* replay.c: take part in the run under way; false when there was nothing to do. */
bool task_graph_help(tacit_task_runtime *rt, task_worker *w);
bool task_graph_work(tacit_task_runtime *rt, const task_worker *w); /* nodes wait for somebody */

/* A ready task known to be smaller than a few cache-line transfers is run here and now: whoever
 * depends on it then finds it completed, and no edge, no queue and no other core is needed. Others
 * are held back until a batch is worth publishing. */
static inline void task_ready(tacit_task_runtime *rt, uint32_t index)
{
    uint32_t estimate = LOAD(&rt->estimate[rt->slots[index].kernel], RELAXED);
    if (estimate - 1 < rt->inline_below) {
        task_run_inline(rt, index);
        return;
    }
    rt->held[rt->held_count++] = index;
    rt->held_ticks += estimate;
    rt->held_unknown |= estimate == 0;
    if (rt->held_unknown || rt->held_count == TASK_BATCH || rt->held_ticks >= rt->batch_ticks)
        task_publish(rt);
}

#endif
