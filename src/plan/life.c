/* SPDX-License-Identifier: Apache-2.0
 * Lifetimes under one order: which groups share a slot (in-place) and from when to when each slot
 * is held. "Last reader" counts real readers of a group; a slot's death follows the sharing decided
 * here. */
#include "plan/work.h"

typedef struct living {
    const plan_work *w;
    const uint32_t *order;
    uint32_t *step_of;   /* by position */
    uint32_t *last_read; /* by group: step; n_steps when it stays */
    plan_life *life;
} living;

static void find_last_reads(living *l)
{
    const plan_work *w = l->w;
    uint32_t n = w->p->n_nodes;
    for (uint32_t i = 0; i < n; i++)
        l->step_of[l->order[i]] = i;
    for (uint32_t g = 0; g < w->n_groups; g++) {
        const plan_group *group = &w->groups[g];
        uint32_t last = l->step_of[group->maker];
        for (uint32_t i = 0; i < group->reads; i++) {
            uint32_t step = l->step_of[w->readers[group->first + i]];
            last = step > last ? step : last;
        }
        l->last_read[g] = group->stays ? n : last;
    }
}

/* In parallel plans the overwriting node must come after every other reader by data, and after the
 * maker, which it need not have read from where it read a part. */
static bool others_are_before(const plan_work *w, const plan_group *g, uint32_t position)
{
    if (!w->p->parallel)
        return true;
    if (!plan_is_before(w, g->maker, position))
        return false;
    for (uint32_t i = 0; i < g->reads; i++) {
        uint32_t reader = w->readers[g->first + i];
        if (reader != position && !plan_is_before(w, reader, position))
            return false;
    }
    return true;
}

/* Packed elements share bytes: their number must be the same too. */
static bool packed_apart(const ir_type *a, const ir_type *b)
{
    if (tacit_dtype_bits(a->dtype) >= 8 && tacit_dtype_bits(b->dtype) >= 8)
        return false;
    return a->dtype != b->dtype || ir_shape_size(&a->shape) != ir_shape_size(&b->shape);
}

/* May output 0 of the node at `step` be written over its input `k`? */
static bool may_overwrite(const living *l, uint32_t step, uint32_t k)
{
    const plan_work *w = l->w;
    const ir_node *node = w->p->nodes[l->order[step]];
    const ir_value *in = node->inputs[k];
    uint32_t g = in ? w->group_of[in->id] : PLAN_NO_SLOT;
    if (g == PLAN_NO_SLOT || l->last_read[g] != step || w->groups[g].maker == l->order[step])
        return false;
    const plan_view *view = &w->p->views[in->id];
    const plan_group *mine = &w->groups[w->group_of[node->outputs[0]->id]];
    size_t bytes;
    if (!view->dense || view->offset || !ir_type_bytes(&in->type, &bytes) ||
        bytes != w->groups[g].exact || bytes != mine->exact || bytes == 0 ||
        packed_apart(&in->type, &node->outputs[0]->type))
        return false;
    for (uint32_t j = 0; j < node->n_inputs; j++) {
        const ir_value *other = node->inputs[j];
        if (j == k || !other || w->group_of[other->id] != g)
            continue;
        if (other != in || !(node->op->inplace >> j & 1))
            return false;
    }
    return others_are_before(w, &w->groups[g], l->order[step]);
}

static uint32_t overwritten_group(const living *l, uint32_t step)
{
    const ir_node *node = l->w->p->nodes[l->order[step]];
    if (!node->n_outputs || !node->outputs[0] || l->w->p->views[node->outputs[0]->id].source)
        return PLAN_NO_SLOT;
    /* What it would overwrite would lie in the output's buffer: too early for an update. */
    if (l->w->groups[l->w->group_of[node->outputs[0]->id]].updates)
        return PLAN_NO_SLOT;
    for (uint32_t k = 0; k < node->n_inputs && k < 32; k++)
        if (node->op->inplace >> k & 1 && may_overwrite(l, step, k))
            return l->w->group_of[node->inputs[k]->id];
    return PLAN_NO_SLOT;
}

static uint32_t new_slot(living *l, uint64_t bytes, uint32_t step)
{
    plan_slot *s = &l->life->slots[l->life->n_slots];
    *s = (plan_slot){.bytes = bytes, .birth = step, .death = step};
    return l->life->n_slots++;
}

static void give_slots(living *l, uint32_t step, bool inplace)
{
    const plan_work *w = l->w;
    uint32_t position = l->order[step];
    const ir_node *node = w->p->nodes[position];
    uint32_t over = inplace ? overwritten_group(l, step) : PLAN_NO_SLOT;
    for (uint32_t k = 0; k < node->n_outputs; k++) {
        const ir_value *v = node->outputs[k];
        if (!v || plan_is_view(w->p->views, v))
            continue;
        uint32_t g = w->group_of[v->id];
        if (l->life->slot_of_group[g] != PLAN_NO_SLOT) { /* another part was made before */
            l->life->has_parts[l->life->slot_of_group[g]] = true;
            continue;
        }
        bool shares = k == 0 && over != PLAN_NO_SLOT;
        uint32_t at = shares ? l->life->slot_of_group[over] : new_slot(l, w->groups[g].bytes, step);
        plan_slot *s = &l->life->slots[at];
        s->value = s->value ? s->value : v;
        s->death = l->last_read[g];
        if (w->groups[g].output != PLAN_NO_SLOT) {
            s->place = PLAN_OUTPUT;
            s->output = w->groups[g].output;
        }
        l->life->slot_of_group[g] = at;
    }
    l->life->scratch_at[step] = PLAN_NO_SLOT;
    if (w->scratch[position]) {
        uint32_t at = new_slot(l, w->scratch[position], step);
        l->life->slots[at].scratch_of = node;
        l->life->scratch_at[step] = at;
    }
}

/* The largest sum of live arena slots over all steps. */
static tacit_status measure_live(living *l, arena *memory, tacit_error *err)
{
    uint32_t n = l->w->p->n_nodes;
    int64_t *change = ARENA_ARRAY(memory, n + 3u, int64_t);
    if (!change)
        return error_memory(err, "the memory plan");
    for (uint32_t i = 0; i < l->life->n_slots; i++) {
        const plan_slot *s = &l->life->slots[i];
        if (s->place != PLAN_ARENA)
            continue;
        change[s->birth] += (int64_t)s->bytes;
        change[s->death + 1] -= (int64_t)s->bytes;
    }
    int64_t now = 0, most = 0;
    for (uint32_t i = 0; i <= n; i++) {
        now += change[i];
        most = now > most ? now : most;
    }
    l->life->live_bytes = (uint64_t)most;
    return TACIT_OK;
}

/* Adds `position` to a slot's list; with no list yet, only counts. */
static void touch(plan_life *life, uint32_t slot, uint32_t position)
{
    uint32_t at = life->touch_first[slot + 1]++;
    if (life->touch)
        life->touch[at] = position;
}

static void touch_all(const living *l)
{
    const plan_work *w = l->w;
    for (uint32_t g = 0; g < w->n_groups; g++) {
        uint32_t slot = l->life->slot_of_group[g];
        touch(l->life, slot, w->groups[g].maker);
        for (uint32_t i = 0; i < w->groups[g].reads; i++)
            touch(l->life, slot, w->readers[w->groups[g].first + i]);
    }
    for (uint32_t i = 0; i < w->p->n_nodes; i++)
        for (uint32_t k = 0; k < w->p->nodes[i]->n_outputs; k++) {
            const ir_value *v = w->p->nodes[i]->outputs[k];
            if (v && w->p->views[v->id].joiner)
                touch(l->life, l->life->slot_of_group[w->group_of[v->id]], i);
        }
    for (uint32_t step = 0; step < w->p->n_nodes; step++)
        if (l->life->scratch_at[step] != PLAN_NO_SLOT)
            touch(l->life, l->life->scratch_at[step], l->order[step]);
}

/* Which positions touch which slot, for the conflicts of parallel plans: a counting sort. */
static tacit_status mark_touches(living *l, arena *memory, tacit_error *err)
{
    plan_life *life = l->life;
    life->touch_first = ARENA_ARRAY(memory, life->n_slots + 2u, uint32_t);
    if (!life->touch_first)
        return error_memory(err, "the memory plan");
    touch_all(l);
    uint32_t total = 0;
    for (uint32_t i = 1; i <= life->n_slots; i++) {
        uint32_t count = life->touch_first[i];
        life->touch_first[i] = total;
        total += count;
    }
    life->touch = ARENA_ARRAY(memory, total + 1u, uint32_t);
    if (!life->touch)
        return error_memory(err, "the memory plan");
    touch_all(l);
    return TACIT_OK;
}

tacit_status plan_live(const plan_work *w, const uint32_t *order, bool inplace, arena *memory,
                       plan_life *out, tacit_error *err)
{
    uint32_t n = w->p->n_nodes;
    living l = {.w = w, .order = order, .life = out};
    *out = (plan_life){0};
    l.step_of = ARENA_ARRAY(memory, n + 1u, uint32_t);
    l.last_read = ARENA_ARRAY(memory, w->n_groups + 1u, uint32_t);
    out->slots = ARENA_ARRAY(memory, (size_t)w->n_groups + n + 1u, plan_slot);
    out->has_parts = ARENA_ARRAY(memory, (size_t)w->n_groups + n + 1u, bool);
    out->slot_of_group = ARENA_ARRAY(memory, w->n_groups + 1u, uint32_t);
    out->scratch_at = ARENA_ARRAY(memory, n + 1u, uint32_t);
    if (!l.step_of || !l.last_read || !out->slots || !out->has_parts || !out->slot_of_group ||
        !out->scratch_at)
        return error_memory(err, "the memory plan");
    for (uint32_t g = 0; g < w->n_groups; g++)
        out->slot_of_group[g] = PLAN_NO_SLOT;
    find_last_reads(&l);
    for (uint32_t step = 0; step < n; step++)
        give_slots(&l, step, inplace);
    if (w->p->parallel)
        TRY(mark_touches(&l, memory, err));
    return measure_live(&l, memory, err);
}
