/* SPDX-License-Identifier: Apache-2.0
 * Running a sealed graph. Nodes count down their producers and set their counter back as they run;
 * a node with one producer needs no counter. Roots come in chunks from cursors, of each worker and
 * of all, everything else from work-stealing deques. No lock, no allocation. */
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "task/graph.h"

enum {
    STEAL_MOST = 16,
    SERIAL_NS = 2000,
    SERIAL_NODES = 64,
    TINY_TURNS = 100, /* turns of graphs of shorter nodes than below, in one of others */
    LOOK_NS = 300,    /* shorter nodes are not worth a look at the time after each */
};

/* ---- one node ----------------------------------------------------------------------------- */

static uint8_t call_recorded(tacit_task_runtime *rt, task_worker *w, const task_recorded *r)
{
    tacit_task_call call = {.values = r->values,
                            .user = r->user,
                            .id = r->node,
                            .count = r->count,
                            .worker = w->index,
                            .runtime = rt};
    return (uint8_t)r->kernel->run(&call);
}

static void fail_node(tacit_task_graph *g, uint32_t index, uint8_t status)
{
    uint64_t packed = (uint64_t)index << 8 | status, old = LOAD(&g->first_failure, RELAXED);
    while (packed < old && !atomic_compare_exchange_weak_explicit(&g->first_failure, &old, packed,
                                                                  RELAXED, RELAXED))
        ;
}

/* Everything but a plain tile: recorded calls, predicates, joins, poisoned nodes. */
static uint8_t run_special(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g,
                           task_node *n, uint32_t index)
{
    uint8_t status = LOAD(&n->poison, RELAXED);
    if (status) {
        STORE(&n->poison, 0, RELAXED); /* for the next run */
        fail_node(g, index, status | TASK_INHERITED);
        return status;
    }
    if ((n->flags & TASK_NODE_JOIN) ||
        ((n->flags & TASK_NODE_PREDICATED) && *g->info.data[index].predicate == 0))
        return 0;
    if (n->flags & TASK_NODE_ASYNC)
        status = task_async_launch(rt, w, g->info.data[index].recorded);
    else if (n->flags & TASK_NODE_CALL)
        status = call_recorded(rt, w, n->args);
    else
        n->tile(n->args, n->begin, n->end);
    if (status && status != TASK_OUT)
        fail_node(g, index, status);
    return status;
}

/* Traced, or measured by a graph that learns. */
static uint8_t run_watched(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g,
                           task_node *n, uint32_t index)
{
    uint64_t begin = task_ticks();
    uint8_t status = run_special(rt, w, g, n, index);
    uint64_t end = task_ticks();
    if (g->learning) {
        double ns = (double)(end - begin) / rt->ticks_per_ns;
        g->info.data[index].cost_ns = ns < 1 ? 1 : ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
    }
    if (task_tracing(rt) && w->trace.words) {
        uint32_t number = g->trace_base + index;
        task_trace_add(&w->trace, begin, TASK_EV_NODE, n->kernel, number, 0);
        task_trace_add(&w->trace, end, TASK_EV_END, n->kernel, number, status & 0x7f);
    }
    return status;
}

static inline uint8_t run_node(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g,
                               task_node *n, uint32_t index)
{
    if (UNLIKELY(task_tracing(rt) | g->learning))
        return run_watched(rt, w, g, n, index);
    if (UNLIKELY(n->flags || LOAD(&n->poison, RELAXED)))
        return run_special(rt, w, g, n, index);
    n->tile(n->args, n->begin, n->end);
    return 0;
}

void task_graph_node(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g, uint32_t index)
{
    task_node *n = &g->nodes[index];
    uint8_t status = run_node(rt, w, g, n, index);
    if (LIKELY(!status))
        return;
    const uint32_t *successors = task_successors(g, n);
    for (uint32_t i = 0; i < n->successor_count; i++)
        STORE(&g->nodes[TASK_SUCCESSOR(successors[i])].poison, status, RELAXED);
}

/* ---- in parallel -------------------------------------------------------------------------- */

static inline void offer(tacit_task_runtime *rt, task_worker *w, uint32_t node)
{
    task_deque_push(&w->nodes, node);
    task_notify(rt, w);
    if (UNLIKELY(LOAD(&rt->orchestrator_asleep, RELAXED)))
        task_wake_orchestrator(rt);
}

/* Count a successor down; true when it is ready. */
static inline bool successor_ready(tacit_task_graph *g, uint32_t entry, uint8_t status)
{
    task_node *c = &g->nodes[TASK_SUCCESSOR(entry)];
    if (UNLIKELY(status))
        STORE(&c->poison, status, RELAXED); /* carried by PEND */
    return c->indegree == 1 || task_count_down(&c->pending);
}

/* Thieves take what was offered first: that shall be what is near to others. */
static uint32_t release_near(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g,
                             const task_node *n, uint8_t status)
{
    const uint32_t *successors = task_successors(g, n);
    uint32_t own[32], count = 0, next = TASK_NIL;
    for (uint32_t i = 0; i < n->successor_count; i++) {
        uint32_t entry = successors[i], near = TASK_NEAR(entry);
        if (!successor_ready(g, entry, status))
            continue;
        if ((near && near != w->index + 1) || count == sizeof own / sizeof own[0]) {
            offer(rt, w, TASK_SUCCESSOR(entry));
            continue;
        }
        if (next != TASK_NIL)
            own[count++] = next;
        next = TASK_SUCCESSOR(entry);
    }
    for (uint32_t i = 0; i < count; i++)
        offer(rt, w, own[i]);
    return next;
}

/* A node is over: its counter starts anew, successors may begin. Returns one to run next. */
static inline uint32_t node_over(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g,
                                 task_node *n, uint8_t status)
{
    STORE(&n->pending, n->indegree, RELAXED); /* published to the next run by its start */
    if (g->has_near)
        return release_near(rt, w, g, n, status);
    const uint32_t *successors = task_successors(g, n);
    uint32_t count = n->successor_count, next = TASK_NIL;
    for (uint32_t i = 0; i < count; i++) {
        if (!successor_ready(g, successors[i], status))
            continue;
        if (next != TASK_NIL)
            offer(rt, w, next);
        next = successors[i];
    }
    return next;
}

/* `stints`: whose time on the CPU is over leaves the rest to others. */
static inline __attribute__((always_inline)) void run_chain(tacit_task_runtime *rt, task_worker *w,
                                                            tacit_task_graph *g, uint32_t index,
                                                            const bool stints)
{
    int64_t done = 0;
    while (index != TASK_NIL && !(stints && w->tired)) {
        task_node *n = &g->nodes[index];
        uint8_t status = run_node(rt, w, g, n, index);
        if (UNLIKELY(status == TASK_OUT))
            break;
        done++;
        w->ran = index;
        index = node_over(rt, w, g, n, status);
        if (stints)
            w->tired = task_stint_over(rt, w);
    }
    if (stints && w->tired && index != TASK_NIL)
        offer(rt, w, index);
    w->node_count += done;
}

static __attribute__((noinline)) void run_in_stint(tacit_task_runtime *rt, task_worker *w,
                                                   tacit_task_graph *g, uint32_t index)
{
    run_chain(rt, w, g, index, true);
}

static void run_nodes(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g, uint32_t index)
{
    if (LIKELY(g->in_stints))
        run_in_stint(rt, w, g, index);
    else
        run_chain(rt, w, g, index, false);
}

/* Go on behind asynchronous nodes whose tokens came back. */
static bool take_returned(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g)
{
    uint32_t at = task_async_take(rt);
    bool any = at != 0;
    while (at) {
        const task_recorded *r = g->info.data[at - 1].recorded;
        uint8_t status = r->status;
        if (status)
            fail_node(g, at - 1, status);
        uint32_t next = node_over(rt, w, g, &g->nodes[at - 1], status);
        if (next != TASK_NIL)
            offer(rt, w, next);
        w->node_count++;
        at = r->next;
    }
    return any;
}

/* Subtract what this worker finished; the last one wakes the caller. */
static void settle(tacit_task_runtime *rt, task_worker *w)
{
    int64_t n = w->node_count;
    if (!n)
        return;
    w->node_count = 0;
    if (atomic_fetch_sub_explicit(&rt->nodes_left, n, MO_COUNT) == n) {
        task_publish_fence(rt);
        if (LOAD(&rt->orchestrator_asleep, RELAXED))
            task_wake_orchestrator(rt);
    }
}

static bool steal_nodes(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g)
{
    uint32_t node, extra;
    for (uint32_t i = 0; i < rt->threads; i++) {
        uint32_t v = w->victim + i < rt->threads ? w->victim + i : w->victim + i - rt->threads;
        task_deque *d = &rt->workers[v].nodes;
        if (v == w->index || task_deque_size(d) <= 0 || !task_deque_steal(d, &node))
            continue;
        w->victim = v;
        task_bump(&w->steals);
        int64_t more = task_deque_size(d) / 2;
        for (int64_t k = 0; k < more && k < STEAL_MOST && task_deque_steal(d, &extra); k++)
            task_deque_push(&w->nodes, extra);
        run_nodes(rt, w, g, node);
        return true;
    }
    return false;
}

static inline bool roots_left(const task_roots *r)
{
    return LOAD(&r->cursor, RELAXED) < LOAD(&r->end, RELAXED);
}

static inline bool take_roots(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g,
                              task_roots *r)
{
    if (!roots_left(r))
        return false;
    uint32_t at = atomic_fetch_add_explicit(&r->cursor, g->root_chunk, RELAXED);
    uint32_t list_end = LOAD(&r->end, RELAXED), left = at < list_end ? list_end - at : 0;
    uint32_t end = at + (left < g->root_chunk ? left : g->root_chunk);
    for (uint32_t i = at; i < end; i++)
        run_nodes(rt, w, g, g->roots[i]);
    return at < end;
}

/* What is near to others, who may not be there. */
static bool take_far_roots(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g)
{
    for (uint32_t i = 0; i < rt->threads; i++)
        if (i != w->index && take_roots(rt, w, g, &rt->workers[i].roots))
            return true;
    return false;
}

static bool take_nodes(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g)
{
    uint32_t node;
    if (g->calendar.used)
        return task_calendar_work(rt, w, g);
    if (UNLIKELY(g->async_count) && take_returned(rt, w, g))
        return true;
    if (task_deque_pop(&w->nodes, &node)) {
        run_nodes(rt, w, g, node);
        return true;
    }
    return take_roots(rt, w, g, &w->roots) || take_roots(rt, w, g, &rt->roots) ||
           (g->has_near && take_far_roots(rt, w, g)) || steal_nodes(rt, w, g);
}

bool task_graph_work(tacit_task_runtime *rt, const task_worker *w)
{
    if (!LOAD(&rt->graph, RELAXED))
        return false;
    /* By calendar nobody is told about work: a worker looks once, and is woken by helpers. */
    if (w->run_seen != LOAD(&rt->run_number, RELAXED))
        return true;
    if (roots_left(&rt->roots) || LOAD(&rt->returned, RELAXED))
        return true;
    for (uint32_t i = 0; i < rt->threads; i++)
        if (roots_left(&rt->workers[i].roots) || task_deque_size(&rt->workers[i].nodes) > 0)
            return true;
    return false;
}

static void forget_run(task_worker *w)
{
    w->ran = 0;
    w->ahead = TASK_NIL;
}

static inline void wait_a_little(task_worker *w, const tacit_task_graph *g)
{
    if (g->ahead)
        task_ahead_ask(w, g);
    TASK_PAUSE();
}

bool task_graph_help(tacit_task_runtime *rt, task_worker *w)
{
    if (!w->generalist)
        return false;
    /* Announce, then look again: the caller clears `graph` and then waits for `joined`. */
    STORE(&w->joined, true, MO_ANNOUNCE);
    tacit_task_graph *g = LOAD(&rt->graph, MO_CHECK);
    bool worked = false;
    if (g) {
        uint32_t run = LOAD(&rt->run_number, RELAXED);
        if (w->run_seen != run)
            forget_run(w);
        w->run_seen = run;
        uint32_t spins = 0;
        while (LOAD(&rt->nodes_left, MO_OVER) > 0 && spins < 256 && !w->tired) {
            if (take_nodes(rt, w, g)) {
                worked = true;
                spins = 0;
                continue;
            }
            settle(rt, w);
            spins++;
            wait_a_little(w, g);
        }
        settle(rt, w);
    }
    STORE(&w->joined, false, MO_LEAVE);
    if (w->tired)
        task_stint_end(w);
    return worked;
}

static bool run_unfinished(tacit_task_runtime *rt, uint64_t unused)
{
    (void)unused;
    const tacit_task_graph *g = LOAD(&rt->graph, RELAXED);
    return LOAD(&rt->nodes_left, MO_OVER) > 0 &&
           !(g->calendar.used && task_calendar_ready(g, &rt->workers[0]));
}

static void offer_roots(tacit_task_runtime *rt, const tacit_task_graph *g)
{
    uint32_t begin = 0;
    for (uint32_t i = 0; i <= rt->threads; i++) {
        task_roots *r = i < rt->threads ? &rt->workers[i].roots : &rt->roots;
        STORE(&r->cursor, begin, RELAXED);
        begin = g->calendar.used ? 0 : g->root_ends[i];
        STORE(&r->end, begin, RELAXED);
    }
}

static void run_parallel(tacit_task_runtime *rt, tacit_task_graph *g)
{
    task_worker *w = &rt->workers[0];
    for (uint32_t i = 0; i < rt->threads; i++) {
        rt->workers[i].nodes.items = g->items[i];
        rt->workers[i].nodes.mask = g->deque_mask;
        if (g->calendar.used)
            STORE(&rt->workers[i].cursor, g->calendar.begin[i], RELAXED);
    }
    g->calendar.epoch++;
    w->run_seen = LOAD(&rt->run_number, RELAXED) + 1;
    forget_run(w);
    STORE(&rt->run_number, w->run_seen, RELAXED);
    STORE(&rt->nodes_left, (int64_t)g->count, RELAXED);
    offer_roots(rt, g);
    STORE(&rt->graph, g, MO_OPEN);
    task_wake_for_run(rt);
    uint64_t since = task_ticks();
    if (since - rt->run_over > rt->spin_ticks) /* the caller was elsewhere, perhaps asleep */
        w->stint = since;
    uint32_t spins = 0;
    while (LOAD(&rt->nodes_left, MO_OVER) > 0) {
        if (take_nodes(rt, w, g)) {
            spins = 0;
            if (UNLIKELY(w->tired)) {
                settle(rt, w);
                task_stint_end(w);
            }
            continue;
        }
        settle(rt, w);
        if (spins++ == 0)
            since = task_ticks();
        wait_a_little(w, g);
        if (rt->idle != TACIT_TASK_IDLE_SPIN && spins % 64 == 0 &&
            !task_stay_awake(rt, w, since, true)) {
            task_orchestrator_sleep(rt, run_unfinished, 0);
            w->stint = task_ticks();
            spins = 0;
        }
    }
    STORE(&rt->graph, NULL, MO_CLOSE);
    for (uint32_t i = 1; i < rt->threads; i++)
        for (uint32_t k = 0; LOAD(&rt->workers[i].joined, MO_LEFT); k++)
            if (k < 256)
                TASK_PAUSE();
            else
                sched_yield(); /* it lost its CPU on the way out */
    while (g->async_count && LOAD(&rt->foreign_inside, MO_LEFT))
        TASK_PAUSE();
}

/* ---- runs --------------------------------------------------------------------------------- */

/* In submit order, which is one of the orders the dependences allow. */
static void run_serial(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g)
{
    for (uint32_t i = 0; i < g->count; i++)
        task_graph_node(rt, w, g, i);
}

/* Number of a name in the runtime's table of traced nodes. */
static uint16_t name_number(tacit_task_runtime *rt, const char *name)
{
    if (!name)
        return TASK_KERNELS - 1;
    for (uint32_t i = 0; i < rt->node_name_count; i++)
        if (strncmp(rt->node_names[i], name, sizeof rt->node_names[i] - 1) == 0)
            return (uint16_t)i;
    if (rt->node_name_count == TASK_KERNELS - 1)
        return TASK_KERNELS - 1;
    strncpy(rt->node_names[rt->node_name_count], name, sizeof rt->node_names[0] - 1);
    return (uint16_t)rt->node_name_count++;
}

static void trace_run(tacit_task_runtime *rt, tacit_task_graph *g)
{
    for (uint32_t i = 0; i < g->count && !g->named; i++)
        g->nodes[i].kernel = name_number(rt, g->info.data[i].name);
    g->named = true;
    g->trace_base = rt->trace_nodes;
    rt->trace_nodes += g->count;
    uint64_t now = task_ticks();
    for (uint32_t i = 0; i < g->count && task_tracing(rt) >= 2; i++)
        for (uint32_t k = 0; k < g->info.data[i].dep_count; k++)
            task_trace_add(&rt->workers[0].trace, now, TASK_EV_NODE_EDGE, 0, g->trace_base + i,
                           g->trace_base + g->deps.data[g->info.data[i].first_dep + k]);
}

static bool worth_workers(const tacit_task_runtime *rt, const tacit_task_graph *g)
{
    if (g->async_count)
        return true; /* launches shall overlap, and only this way waits for tokens */
    if (rt->threads == 1 || g->count < 2)
        return false;
    double limit = SERIAL_NS * rt->ticks_per_ns;
    if (g->costs_known && g->total_cost < SERIAL_NS)
        return false;
    return !(g->last_ticks && g->count <= SERIAL_NODES && (double)g->last_ticks < limit);
}

static tacit_status run_result(tacit_task_graph *g, tacit_error *err)
{
    uint64_t failure = LOAD(&g->first_failure, RELAXED);
    if (LIKELY(failure == UINT64_MAX))
        return TACIT_OK;
    STORE(&g->first_failure, UINT64_MAX, RELAXED);
    uint32_t node = (uint32_t)(failure >> 8);
    const char *name = g->info.data[node].name;
    tacit_status status = (tacit_status)(failure & 0x7f);
    return error_set(err, status, "node %u (%s) failed: %s", node, name ? name : "unnamed",
                     tacit_status_text(status));
}

/* One run of a graph at a time, and one run on the workers at a time: `busy` when they are taken.
 */
static tacit_status run_begin(tacit_task_runtime *rt, tacit_task_graph *g, bool *busy,
                              tacit_error *err)
{
    *busy = false;
    if (UNLIKELY(!g->sealed || g->rt != rt))
        return error_set(err, TACIT_ERR_STATE, "the graph %s",
                         g->sealed ? "belongs to another runtime" : "is not sealed");
    if (UNLIKELY(atomic_exchange_explicit(&g->inuse, true, MO_ENTER)))
        return error_set(err, TACIT_ERR_STATE, "the graph is being run already");
    *busy = atomic_exchange_explicit(&rt->running, true, MO_ENTER);
    if (UNLIKELY(*busy)) {
        if (!g->async_count)
            return TACIT_OK;
        STORE(&g->inuse, false, MO_EXIT);
        return error_set(err, TACIT_ERR_STATE, "another graph is running on this runtime");
    }
    if (LIKELY(!rt->held_count && task_executed(rt) == LOAD(&rt->submitted, RELAXED)))
        return TACIT_OK;
    STORE(&rt->running, false, MO_EXIT);
    STORE(&g->inuse, false, MO_EXIT);
    return error_set(err, TACIT_ERR_STATE,
                     "tasks are in flight: wait for them before running a graph");
}

static tacit_status run_end(tacit_task_runtime *rt, tacit_task_graph *g, bool busy,
                            tacit_error *err)
{
    tacit_status status = run_result(g, err);
    if (UNLIKELY(g->learning) && --g->learning == 0 && status == TACIT_OK)
        task_graph_order(g);
    if (!busy)
        STORE(&rt->running, false, MO_EXIT);
    STORE(&g->inuse, false, MO_EXIT);
    return status;
}

void task_graph_alone(tacit_task_graph *g, task_alone_fn *fn, void *context)
{
    g->alone = fn;
    g->alone_context = context;
}

/* The caller does all of it; unless somebody wants to know about the nodes, any way he can. */
static void run_by_one(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g)
{
    if (g->alone && !g->learning && !task_tracing(rt))
        g->alone(g->alone_context);
    else
        run_serial(rt, w, g);
}

/* The workers are with another graph: the caller is a worker of its own. */
static __attribute__((noinline)) void run_alone(tacit_task_runtime *rt, tacit_task_graph *g)
{
    task_worker alone = {.rt = rt};
    run_by_one(rt, &alone, g);
}

static void run_anyhow(tacit_task_runtime *rt, tacit_task_graph *g, bool parallel)
{
    if (UNLIKELY(task_tracing(rt)))
        trace_run(rt, g);
    uint64_t begin = task_ticks();
    if (parallel)
        run_parallel(rt, g);
    else
        run_by_one(rt, &rt->workers[0], g);
    rt->run_over = task_ticks();
    g->last_ticks = rt->run_over - begin;
    g->in_stints = (double)g->last_ticks > LOOK_NS * rt->ticks_per_ns * (double)g->count;
}

/* With the workers, unless they are rather in the way: to neighbours, or because nodes are so tiny
 * that handing them over costs more than they do: these take short turns. */
static void run_together(tacit_task_runtime *rt, tacit_task_graph *g)
{
    task_pace *p = &g->pace;
    bool tiny = !g->in_stints;
    double second = 1e9 * rt->ticks_per_ns / (tiny ? TINY_TURNS : 1);
    run_anyhow(rt, g, !p->alone);
    if (tiny == g->in_stints)
        *p = (task_pace){0};
    else if (!g->async_count && !g->learning && task_pace_note(p, (double)g->last_ticks, second))
        task_pace_next(p, tiny || (p->alone && !p->crowded && task_stint_room(rt)), second);
}

tacit_status tacit_task_graph_run(tacit_task_runtime *rt, tacit_task_graph *g, tacit_error *err)
{
    bool busy;
    TRY(run_begin(rt, g, &busy, err));
    if (UNLIKELY(busy))
        run_alone(rt, g);
    else if (worth_workers(rt, g))
        run_together(rt, g);
    else
        run_anyhow(rt, g, false);
    return run_end(rt, g, busy, err);
}

tacit_status tacit_task_graph_measure(tacit_task_runtime *rt, tacit_task_graph *g, tacit_error *err)
{
    bool busy;
    TRY(run_begin(rt, g, &busy, err));
    g->learning = 1;
    if (UNLIKELY(busy))
        run_alone(rt, g);
    else
        run_anyhow(rt, g, g->async_count > 0);
    return run_end(rt, g, busy, err);
}

tacit_status tacit_task_graph_learn(tacit_task_graph *g, uint32_t runs, tacit_error *err)
{
    if (!g->sealed)
        return error_set(err, TACIT_ERR_STATE, "the graph is not sealed");
    g->learning = runs;
    return TACIT_OK;
}
