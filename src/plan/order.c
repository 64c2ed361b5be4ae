/* SPDX-License-Identifier: Apache-2.0
 * Orders. All but the naive one are list scheduling by a score in bytes: what running a node frees,
 * less (except freed-bytes) what it newly holds. They differ in when a score is brought up to date:
 * never, when it reaches the top, or as soon as something it depends on has changed. */
#include "plan/work.h"

typedef enum rescoring { NEVER, LAZY, EVENTS } rescoring;

typedef struct entry {
    int64_t score;
    uint32_t node, stamp; /* larger stamp: made later */
} entry;

typedef struct scheduler {
    const plan_work *w;
    rescoring mode;
    entry *heap;
    uint32_t count, stamps;
    uint32_t *left;   /* by group: readers still to run */
    uint32_t *needs;  /* by position: predecessors still to run */
    uint32_t *newest; /* by position: stamp of its valid entry; 0: not ready, or done */
} scheduler;

/* Higher score first; then, depth first, the one that became ready last. */
static bool precedes(const entry *a, const entry *b)
{
    return a->score != b->score ? a->score > b->score : a->stamp > b->stamp;
}

static void heap_push(scheduler *s, entry e)
{
    uint32_t i = s->count++;
    for (; i && precedes(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
}

static entry heap_pop(scheduler *s)
{
    entry top = s->heap[0], last = s->heap[--s->count];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= s->count)
            break;
        if (child + 1 < s->count && precedes(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!precedes(&s->heap[child], &last))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    if (s->count)
        s->heap[i] = last;
    return top;
}

static int64_t group_bytes(const plan_group *g)
{
    return g->output == PLAN_NO_SLOT ? (int64_t)g->bytes : 0;
}

static int64_t score_of(const scheduler *s, uint32_t i)
{
    const plan_work *w = s->w;
    const ir_node *node = w->p->nodes[i];
    if (w->is_alias[i])
        return INT64_MAX; /* free, and may let others run */
    int64_t score = 0;
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        uint32_t g = node->inputs[k] ? w->group_of[node->inputs[k]->id] : PLAN_NO_SLOT;
        bool again = false;
        for (uint32_t j = 0; j < k && !again; j++)
            again = node->inputs[j] && w->group_of[node->inputs[j]->id] == g;
        if (g != PLAN_NO_SLOT && !again && s->left[g] == 1 && !w->groups[g].stays)
            score += group_bytes(&w->groups[g]);
    }
    for (uint32_t k = 0; s->mode != NEVER && k < node->n_outputs; k++) {
        const ir_value *v = node->outputs[k];
        if (v && !w->p->views[v->id].source)
            score -= group_bytes(&w->groups[w->group_of[v->id]]);
    }
    return score;
}

static void make_ready(scheduler *s, uint32_t i)
{
    s->newest[i] = ++s->stamps;
    heap_push(s, (entry){score_of(s, i), i, s->stamps});
}

/* The next node to run: the top entry that is still valid and, when lazy, still on top with its
 * present score. */
static uint32_t choose(scheduler *s)
{
    for (;;) {
        entry e = heap_pop(s);
        if (s->newest[e.node] != e.stamp)
            continue;
        if (s->mode == LAZY) {
            e.score = score_of(s, e.node);
            if (s->count && precedes(&s->heap[0], &e)) {
                heap_push(s, e);
                continue;
            }
        }
        s->newest[e.node] = 0;
        return e.node;
    }
}

/* One reader of `group` is left: what running it would free has changed. */
static void rescore_last_reader(scheduler *s, uint32_t group)
{
    const plan_group *g = &s->w->groups[group];
    for (uint32_t i = 0; i < g->reads; i++) {
        uint32_t node = s->w->readers[g->first + i];
        if (s->newest[node])
            make_ready(s, node);
    }
}

static void finish(scheduler *s, uint32_t i)
{
    const plan_work *w = s->w;
    const ir_node *node = w->p->nodes[i];
    for (uint32_t k = 0; !w->is_alias[i] && k < node->n_inputs; k++) {
        uint32_t g = node->inputs[k] ? w->group_of[node->inputs[k]->id] : PLAN_NO_SLOT;
        bool again = false;
        for (uint32_t j = 0; j < k && !again; j++)
            again = node->inputs[j] && w->group_of[node->inputs[j]->id] == g;
        if (g != PLAN_NO_SLOT && !again && --s->left[g] == 1 && s->mode == EVENTS)
            rescore_last_reader(s, g);
    }
    /* Backwards: of followers with equal scores, the first in the graph shall come first. */
    for (uint32_t at = w->next_start[i + 1]; at-- > w->next_start[i];)
        if (--s->needs[w->next[at]] == 0)
            make_ready(s, w->next[at]);
}

static tacit_status schedule(const plan_work *w, rescoring mode, arena *scratch, uint32_t *order,
                             tacit_error *err)
{
    uint32_t n = w->p->n_nodes, reads = 0;
    for (uint32_t g = 0; g < w->n_groups; g++)
        reads += w->groups[g].reads;
    scheduler s = {.w = w, .mode = mode};
    s.heap = ARENA_ARRAY(scratch, (size_t)n + reads + 1u, entry); /* one entry per event at most */
    s.left = ARENA_ARRAY(scratch, w->n_groups + 1u, uint32_t);
    s.needs = ARENA_ARRAY(scratch, n + 1u, uint32_t);
    s.newest = ARENA_ARRAY(scratch, n + 1u, uint32_t);
    if (!s.heap || !s.left || !s.needs || !s.newest)
        return error_memory(err, "ordering nodes");
    for (uint32_t g = 0; g < w->n_groups; g++)
        s.left[g] = w->groups[g].reads;
    for (uint32_t i = 0; i < n; i++)
        s.needs[i] = w->needs[i];
    for (uint32_t i = n; i-- > 0;)
        if (!w->needs[i])
            make_ready(&s, i);
    for (uint32_t i = 0; i < n; i++) {
        order[i] = choose(&s);
        finish(&s, order[i]);
    }
    return TACIT_OK;
}

static tacit_status order_naive(const plan_work *w, arena *scratch, uint32_t *order,
                                tacit_error *err)
{
    (void)scratch;
    (void)err;
    for (uint32_t i = 0; i < w->p->n_nodes; i++)
        order[i] = i;
    return TACIT_OK;
}

static tacit_status order_freed(const plan_work *w, arena *scratch, uint32_t *order,
                                tacit_error *err)
{
    return schedule(w, NEVER, scratch, order, err);
}

static tacit_status order_delta(const plan_work *w, arena *scratch, uint32_t *order,
                                tacit_error *err)
{
    return schedule(w, LAZY, scratch, order, err);
}

static tacit_status order_events(const plan_work *w, arena *scratch, uint32_t *order,
                                 tacit_error *err)
{
    return schedule(w, EVENTS, scratch, order, err);
}

const plan_order_def plan_orders[] = {{"naive", order_naive},
                                      {"freed-bytes", order_freed},
                                      {"net-delta", order_delta},
                                      {"event-driven", order_events}};
const uint32_t plan_order_count = sizeof plan_orders / sizeof *plan_orders;
