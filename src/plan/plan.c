/* SPDX-License-Identifier: Apache-2.0
 * Trying everything and keeping the smallest. */
#include "plan/plan.h"

#include <string.h>

#include "plan/work.h"

typedef struct planner {
    const plan_work *w;
    arena *memory;  /* what the plan keeps */
    arena *scratch; /* emptied after each order */
    plan *plan;
    uint64_t budget; /* of all searching, in items visited */
    tacit_error *err;
} planner;

enum {
    SEARCH_VISITS = 100 * 1000,
    SEARCH_VISITS_PER_NODE = 10 * 1000,
    MANY_NODES = 3000, /* beyond this, parallel plans (quadratic) try fewer ways */
};

static bool all_before(const plan_work *w, const plan_life *life, uint32_t slot, uint32_t position)
{
    for (uint32_t i = life->touch_first[slot]; i < life->touch_first[slot + 1]; i++)
        if (!plan_is_before(w, life->touch[i], position))
            return false;
    return true;
}

/* Two slots conflict unless everything that touches one comes, by data, before the makers of the
 * other; `early` is the one that ends first in this order. */
static bool is_over_before(const plan_work *w, const plan_life *life, const uint32_t *order,
                           uint32_t early, uint32_t late)
{
    if (life->slots[early].death >= life->slots[late].birth)
        return false;
    if (!life->has_parts[late])
        return all_before(w, life, early, order[life->slots[late].birth]);
    for (uint32_t i = life->touch_first[late]; i < life->touch_first[late + 1]; i++)
        if (!all_before(w, life, early, life->touch[i]))
            return false;
    return true;
}

static tacit_status find_conflicts(planner *q, const plan_life *life, const uint32_t *order,
                                   plan_pack *k)
{
    k->row_words = k->n / 64 + 1;
    uint64_t *rows = ARENA_ARRAY(q->scratch, (size_t)k->n * k->row_words + 1u, uint64_t);
    if (!rows)
        return error_memory(q->err, "the memory plan");
    for (uint32_t a = 0; a < k->n; a++)
        for (uint32_t b = 0; b < a; b++) {
            uint32_t x = k->items[a].slot, y = k->items[b].slot;
            if (is_over_before(q->w, life, order, x, y) || is_over_before(q->w, life, order, y, x))
                continue;
            rows[(size_t)a * k->row_words + b / 64] |= 1ull << (b % 64);
            rows[(size_t)b * k->row_words + a / 64] |= 1ull << (a % 64);
        }
    k->conflicts = rows;
    return TACIT_OK;
}

static tacit_status list_items(planner *q, const plan_life *life, plan_pack *k)
{
    k->items = ARENA_ARRAY(q->scratch, life->n_slots + 1u, plan_item);
    if (!k->items)
        return error_memory(q->err, "the memory plan");
    for (uint32_t i = 0; i < life->n_slots; i++) {
        const plan_slot *s = &life->slots[i];
        if (s->place == PLAN_ARENA && s->bytes)
            k->items[k->n++] =
                (plan_item){.bytes = s->bytes, .birth = s->birth, .death = s->death, .slot = i};
    }
    k->bound = life->live_bytes;
    return TACIT_OK;
}

static tacit_status keep(planner *q, const plan_life *life, const uint32_t *order,
                         const plan_pack *k, const plan_trial *trial)
{
    plan *p = q->plan;
    const plan_work *w = q->w;
    uint32_t n = w->p->n_nodes;
    for (uint32_t i = 0; i < n; i++) {
        p->steps[i] = w->p->nodes[order[i]];
        p->scratch_at[i] = life->scratch_at[i];
    }
    memcpy(p->slots, life->slots, life->n_slots * sizeof *p->slots);
    p->n_slots = life->n_slots;
    for (uint32_t i = 0; i < k->n; i++)
        p->slots[k->items[i].slot].offset = k->items[i].offset;
    for (uint32_t i = 0; i < w->p->graph->values.count; i++)
        p->slot_of[i] =
            w->group_of[i] == PLAN_NO_SLOT ? PLAN_NO_SLOT : life->slot_of_group[w->group_of[i]];
    p->arena_bytes = trial->arena_bytes;
    p->best = *trial;
    return TACIT_OK;
}

static tacit_status try_packing(planner *q, const plan_life *life, const uint32_t *order,
                                plan_pack *k, plan_pack_fn *pack, plan_trial trial)
{
    TRY(pack(k, q->scratch, &trial.arena_bytes, q->err));
    if (!vec_push(q->memory, &q->plan->trials, trial))
        return error_memory(q->err, "the memory plan");
    k->best = trial.arena_bytes < k->best ? trial.arena_bytes : k->best;
    if (trial.arena_bytes < q->plan->arena_bytes)
        return keep(q, life, order, k, &trial);
    return TACIT_OK;
}

/* Searching is dear: it comes last, only for orders that could still win, against one budget. */
static tacit_status try_order(planner *q, const plan_order_def *def, bool inplace, bool searching)
{
    uint32_t *order = ARENA_ARRAY(q->scratch, q->w->p->n_nodes + 1u, uint32_t);
    if (!order)
        return error_memory(q->err, "the memory plan");
    TRY(def->run(q->w, q->scratch, order, q->err));
    plan_life life;
    TRY(plan_live(q->w, order, inplace, q->scratch, &life, q->err));
    if (life.live_bytes < q->plan->lower_bound)
        q->plan->lower_bound = life.live_bytes;
    if (life.live_bytes >= q->plan->arena_bytes && q->plan->trials.count)
        return TACIT_OK;
    plan_pack k = {.best = q->plan->arena_bytes, .budget = &q->budget};
    TRY(list_items(q, &life, &k));
    if (q->w->p->parallel)
        TRY(find_conflicts(q, &life, order, &k));
    TRY(plan_pack_open(&k, q->scratch, q->err));
    plan_trial trial = {.order = def->name, .inplace = inplace, .live_bytes = life.live_bytes};
    if (searching) {
        trial.packing = "search";
        return try_packing(q, &life, order, &k, plan_pack_search, trial);
    }
    for (uint32_t i = 0; i < plan_pack_count && k.best > k.bound; i++) {
        trial.packing = plan_packings[i].name;
        TRY(try_packing(q, &life, order, &k, plan_packings[i].run, trial));
    }
    return TACIT_OK;
}

static tacit_status try_all(planner *q)
{
    for (int searching = 0; searching < 2; searching++)
        for (uint32_t i = 0; i < plan_order_count * 2; i++) {
            if (q->w->p->parallel && q->w->p->n_nodes > MANY_NODES && (i || searching))
                continue;
            tacit_status status = try_order(q, &plan_orders[i / 2], i % 2 == 0, searching != 0);
            arena_reset(q->scratch);
            TRY(status);
        }
    return TACIT_OK;
}

static tacit_status plan_open(plan *out, const plan_work *w, arena *memory, tacit_error *err)
{
    uint32_t n = w->p->n_nodes;
    *out = (plan){.n_steps = n, .arena_bytes = UINT64_MAX, .lower_bound = UINT64_MAX};
    out->steps = ARENA_ARRAY(memory, n + 1u, ir_node *);
    out->scratch_at = ARENA_ARRAY(memory, n + 1u, uint32_t);
    out->slots = ARENA_ARRAY(memory, (size_t)w->n_groups + n + 1u, plan_slot);
    out->slot_of = ARENA_ARRAY(memory, w->p->graph->values.count + 1u, uint32_t);
    if (!out->steps || !out->scratch_at || !out->slots || !out->slot_of)
        return error_memory(err, "the memory plan");
    return TACIT_OK;
}

tacit_status plan_make(const plan_problem *p, arena *memory, plan *out, tacit_error *err)
{
    arena tables, scratch;
    arena_init(&tables, memory->allocator);
    arena_init(&scratch, memory->allocator);
    plan_work w;
    tacit_status status = plan_work_open(&w, p, &tables, err);
    if (status == TACIT_OK)
        status = plan_open(out, &w, memory, err);
    planner q = {.w = &w, .memory = memory, .scratch = &scratch, .plan = out, .err = err};
    q.budget = SEARCH_VISITS + (uint64_t)SEARCH_VISITS_PER_NODE * p->n_nodes;
    if (status == TACIT_OK)
        status = try_all(&q);
    arena_free(&scratch);
    arena_free(&tables);
    return status;
}
