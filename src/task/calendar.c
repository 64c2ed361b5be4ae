/* SPDX-License-Identifier: Apache-2.0
 * Runs of graphs whose nodes say where they want to run. Each worker has a list and goes through it
 * in order; a node waits for the "done" marks of its producers, so handing data to another core
 * costs one cache line and nothing else. Whoever waits too long takes the next node of another list
 * instead: claims make that safe, and the first unclaimed node of the graph never has to wait for
 * an unclaimed one, so somebody always gets on. */
#include "task/graph.h"

enum { EAGER_LOOKS = 24, PATIENCE = 128, LINE_WORDS = 16 };

/* ---- building ----------------------------------------------------------------------------- */

static uint32_t home_of(const tacit_task_graph *g, uint32_t node, const uint32_t *homes)
{
    const task_node_info *info = &g->info.data[node];
    if (info->home)
        return (info->home - 1) % g->rt->threads;
    return info->dep_count ? homes[g->deps.data[info->first_dep]] : 0;
}

/* Only when every node with work has a home. */
static bool wants_calendar(const tacit_task_graph *g)
{
    for (uint32_t i = 0; i < g->count; i++)
        if (!g->info.data[i].home && !(g->info.data[i].flags & TASK_NODE_JOIN))
            return false;
    return g->count > 0 && g->rt->threads > 1;
}

bool task_calendar_build(tacit_task_graph *g)
{
    if (!wants_calendar(g))
        return true;
    arena *a = &g->memory;
    task_calendar *c = &g->calendar;
    uint32_t threads = g->rt->threads, *homes = ARENA_ARRAY(a, g->count, uint32_t);
    uint32_t *place_of = ARENA_ARRAY(a, g->count, uint32_t);
    c->begin = ARENA_ARRAY(a, threads, uint32_t);
    c->end = ARENA_ARRAY(a, threads, uint32_t);
    if (!homes || !place_of || !c->begin || !c->end)
        return false;
    for (uint32_t i = 0; i < g->count; i++)
        c->end[homes[i] = home_of(g, i, homes)]++;
    uint32_t places = 0;
    for (uint32_t w = 0; w < threads; w++) { /* lists start on cache lines of their own */
        uint32_t count = c->end[w];
        c->begin[w] = c->end[w] = places;
        places += (count + LINE_WORDS - 1) / LINE_WORDS * LINE_WORDS;
    }
    c->node = ARENA_ARRAY(a, places, uint32_t);
    c->first = ARENA_ARRAY(a, places + 1, uint32_t);
    c->producers = ARENA_ARRAY(a, g->edges + 1, uint32_t);
    size_t bytes = (size_t)places * sizeof(uint32_t);
    c->claimed = arena_alloc_aligned(a, bytes, 64);
    c->done = arena_alloc_aligned(a, bytes, 64);
    if (!c->node || !c->first || !c->producers || !c->claimed || !c->done)
        return false;
    for (uint32_t i = 0; i < g->count; i++)
        c->node[place_of[i] = c->end[homes[i]]++] = i;
    uint32_t used = 0;
    for (uint32_t p = 0, w = 0; p < places; p++) {
        STORE(&c->claimed[p], 0, RELAXED);
        STORE(&c->done[p], 0, RELAXED);
        c->first[p] = used;
        while (w + 1 < threads && p >= c->begin[w + 1])
            w++;
        const task_node_info *info = &g->info.data[c->node[p]];
        for (uint32_t k = 0; p < c->end[w] && k < info->dep_count; k++)
            c->producers[used++] = place_of[g->deps.data[info->first_dep + k]];
    }
    c->first[places] = used;
    c->used = true;
    return true;
}

/* ---- running ------------------------------------------------------------------------------ */

static inline bool place_ready(const task_calendar *c, uint32_t p)
{
    for (uint32_t k = c->first[p]; k < c->first[p + 1]; k++)
        if (LOAD(&c->done[c->producers[k]], MO_WAIT) != c->epoch)
            return false;
    return true;
}

bool task_calendar_ready(const tacit_task_graph *g, const task_worker *w)
{
    uint32_t p = LOAD(&w->cursor, RELAXED);
    return p < g->calendar.end[w->index] && place_ready(&g->calendar, p);
}

/* False when somebody else has it. Relaxed: the producers' marks order everything. */
static inline bool place_claim(task_calendar *c, uint32_t p)
{
    uint32_t before = c->epoch - 1;
    return atomic_compare_exchange_strong_explicit(&c->claimed[p], &before, c->epoch, RELAXED,
                                                   RELAXED);
}

static inline void place_run(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g,
                             uint32_t p)
{
    task_graph_node(rt, w, g, g->calendar.node[p]);
    STORE(&g->calendar.done[p], g->calendar.epoch, MO_DONE);
    w->node_count++;
    task_publish_fence(rt);
    if (UNLIKELY(LOAD(&rt->orchestrator_asleep, RELAXED)))
        task_wake_orchestrator(rt);
}

/* The next node of another worker's list, if its producers are done. Returns that worker, or NULL.
 */
static task_worker *help_list(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g)
{
    task_calendar *c = &g->calendar;
    for (uint32_t i = 1; i < rt->threads; i++) {
        uint32_t v = w->index + i < rt->threads ? w->index + i : w->index + i - rt->threads;
        uint32_t p = LOAD(&rt->workers[v].cursor, RELAXED);
        while (p < c->end[v] && LOAD(&c->claimed[p], RELAXED) == c->epoch)
            p++;
        if (p >= c->end[v] || !place_ready(c, p) || !place_claim(c, p))
            continue;
        task_bump(&w->steals);
        place_run(rt, w, g, p);
        task_notify(rt, w); /* its owner may have fallen asleep */
        return &rt->workers[v];
    }
    return NULL;
}

/* Somebody whose list we helped with and who has not moved since: not worth waiting for. */
typedef struct absentee {
    task_worker *who;
    uint32_t cursor;
} absentee;

static bool still_away(absentee *a)
{
    if (a->who && LOAD(&a->who->cursor, RELAXED) != a->cursor)
        a->who = NULL;
    return a->who != NULL;
}

/* Goes on with this worker's list. False: nothing could be done for some while. */
bool task_calendar_work(tacit_task_runtime *rt, task_worker *w, tacit_task_graph *g)
{
    task_calendar *c = &g->calendar;
    uint32_t p = LOAD(&w->cursor, RELAXED), end = c->end[w->index], spins = 0;
    bool worked = false;
    absentee away = {NULL, 0};
    while (p < end) {
        if (LOAD(&c->claimed[p], RELAXED) == c->epoch) {
            STORE(&w->cursor, ++p, RELAXED);
        } else if (place_ready(c, p)) {
            if (place_claim(c, p)) {
                place_run(rt, w, g, p);
                worked = true;
            }
            STORE(&w->cursor, ++p, RELAXED);
            spins = 0;
            if (g->in_stints && (w->tired = task_stint_over(rt, w)))
                return true;
        } else if (++spins < EAGER_LOOKS) {
            continue;
        } else if (spins < PATIENCE && !still_away(&away)) {
            TASK_PAUSE();
        } else if ((away.who = help_list(rt, w, g))) {
            away.cursor = LOAD(&away.who->cursor, RELAXED);
            worked = true;
            spins = 0;
        } else if (spins >= PATIENCE) {
            return worked;
        }
    }
    return help_list(rt, w, g) || worked;
}
