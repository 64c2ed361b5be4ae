/* SPDX-License-Identifier: Apache-2.0
 * The problem as flat tables: groups, real readers, dependences. */
#include "plan/work.h"

static tacit_status number_groups(plan_work *w, arena *memory, tacit_error *err)
{
    const plan_problem *p = w->p;
    const ir_graph *g = p->graph;
    uint32_t total = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++)
        total += p->nodes[i]->n_outputs;
    w->groups = ARENA_ARRAY(memory, total + 1u, plan_group);
    if (!w->groups)
        return error_memory(err, "the memory plan");
    for (uint32_t i = 0; i < p->n_nodes; i++)
        for (uint32_t k = 0; k < p->nodes[i]->n_outputs; k++) {
            const ir_value *v = p->nodes[i]->outputs[k];
            size_t bytes;
            if (!v || p->views[v->id].source)
                continue;
            if (!ir_type_bytes(&v->type, &bytes) || bytes > SIZE_MAX / 4)
                return error_set(err, TACIT_ERR_LIMIT, "value '%s' is too large to plan", v->name);
            w->group_of[v->id] = w->n_groups;
            w->groups[w->n_groups++] = (plan_group){.value = v,
                                                    .bytes = align_up(bytes, PLAN_ALIGN),
                                                    .exact = bytes,
                                                    .maker = i,
                                                    .output = PLAN_NO_SLOT};
        }
    for (uint32_t i = 0; i < g->values.count; i++) {
        const ir_value *s = p->views[i].source;
        if (s)
            w->group_of[i] = w->group_of[s->id];
        if (p->pinned && p->pinned[i] && w->group_of[i] != PLAN_NO_SLOT)
            w->groups[w->group_of[i]].stays = true;
    }
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        uint32_t group = w->group_of[g->outputs.data[i]->id];
        if (group == PLAN_NO_SLOT)
            continue; /* made after the planned nodes */
        w->groups[group].output = i;
        w->groups[group].stays = true;
        w->groups[group].updates = p->updates && p->updates[i];
    }
    return TACIT_OK;
}

/* Calls for every group that node `i` really reads, each once. Alias nodes read nothing. */
#define FOR_READ_GROUPS(w, i, group)                                                               \
    for (uint32_t k_ = 0, group; !(w)->is_alias[i] && k_ < (w)->p->nodes[i]->n_inputs; k_++)       \
        if ((group = read_group((w), (i), k_)) != PLAN_NO_SLOT)

static uint32_t read_group(const plan_work *w, uint32_t i, uint32_t k)
{
    const ir_node *node = w->p->nodes[i];
    uint32_t group = node->inputs[k] ? w->group_of[node->inputs[k]->id] : PLAN_NO_SLOT;
    for (uint32_t j = 0; j < k && group != PLAN_NO_SLOT; j++)
        if (node->inputs[j] && w->group_of[node->inputs[j]->id] == group)
            return PLAN_NO_SLOT;
    return group;
}

static tacit_status list_readers(plan_work *w, arena *memory, tacit_error *err)
{
    const plan_problem *p = w->p;
    uint32_t total = 0;
    for (uint32_t i = 0; i < p->n_nodes; i++)
        FOR_READ_GROUPS(w, i, group)
        {
            w->groups[group].reads++;
            total++;
        }
    w->readers = ARENA_ARRAY(memory, total + 1u, uint32_t);
    if (!w->readers)
        return error_memory(err, "the memory plan");
    for (uint32_t g = 0, at = 0; g < w->n_groups; g++) {
        w->groups[g].first = at;
        at += w->groups[g].reads;
        w->groups[g].reads = 0;
    }
    for (uint32_t i = 0; i < p->n_nodes; i++)
        FOR_READ_GROUPS(w, i, group)
        {
            plan_group *at = &w->groups[group];
            w->readers[at->first + at->reads++] = i;
        }
    return TACIT_OK;
}

static uint32_t maker_position(const plan_work *w, const ir_value *v)
{
    return v && v->producer && !plan_is_constant(v) ? w->position[v->producer->id] : PLAN_NO_SLOT;
}

static bool reads_input(const plan_work *w, uint32_t i, const ir_value *input)
{
    const ir_node *node = w->p->nodes[i];
    for (uint32_t k = 0; !w->is_alias[i] && k < node->n_inputs; k++)
        if (node->inputs[k] && plan_source(w->p->views, node->inputs[k]) == input)
            return true;
    return false;
}

/* By writer of an update: who reads what it overwrites. */
static tacit_status list_early(plan_work *w, arena *memory, tacit_error *err)
{
    const plan_problem *p = w->p;
    const ir_graph *g = p->graph;
    w->early_first = ARENA_ARRAY(memory, p->n_nodes + 2u, uint32_t);
    if (!w->early_first)
        return error_memory(err, "the memory plan");
    for (int walk = 0; p->updates && walk < 2; walk++) {
        for (uint32_t o = 0; o < g->outputs.count; o++) {
            uint32_t writer = p->updates[o] ? maker_position(w, g->outputs.data[o]) : PLAN_NO_SLOT;
            for (uint32_t i = 0; writer != PLAN_NO_SLOT && i < p->n_nodes; i++) {
                if (i == writer || !reads_input(w, i, p->updates[o]))
                    continue;
                uint32_t at = w->early_first[writer + 1]++;
                if (walk)
                    w->early[at] = i;
            }
        }
        if (walk)
            break;
        uint32_t total = 0;
        for (uint32_t i = 1; i <= p->n_nodes; i++) {
            uint32_t count = w->early_first[i];
            w->early_first[i] = total;
            total += count;
        }
        w->early = ARENA_ARRAY(memory, total + 1u, uint32_t);
        if (!w->early)
            return error_memory(err, "the memory plan");
    }
    return TACIT_OK;
}

static void follow(plan_work *w, uint32_t from, uint32_t to, bool fill)
{
    uint32_t at = w->next_start[from + 1]++;
    if (fill)
        w->next[at] = to;
    else
        w->needs[to]++;
}

static tacit_status list_followers(plan_work *w, arena *memory, tacit_error *err)
{
    const plan_problem *p = w->p;
    w->next_start = ARENA_ARRAY(memory, p->n_nodes + 2u, uint32_t);
    w->needs = ARENA_ARRAY(memory, p->n_nodes + 1u, uint32_t);
    if (!w->next_start || !w->needs)
        return error_memory(err, "the memory plan");
    for (int walk = 0; walk < 2; walk++) {
        for (uint32_t i = 0; i < p->n_nodes; i++) {
            for (uint32_t k = 0; k < p->nodes[i]->n_inputs; k++) {
                uint32_t from = maker_position(w, p->nodes[i]->inputs[k]);
                if (from != PLAN_NO_SLOT)
                    follow(w, from, i, walk != 0);
            }
            for (uint32_t k = w->early_first[i]; k < w->early_first[i + 1]; k++)
                follow(w, w->early[k], i, walk != 0);
        }
        if (walk)
            break;
        uint32_t total = 0;
        for (uint32_t i = 1; i <= p->n_nodes; i++) {
            uint32_t count = w->next_start[i];
            w->next_start[i] = total;
            total += count;
        }
        w->next = ARENA_ARRAY(memory, total + 1u, uint32_t);
        if (!w->next)
            return error_memory(err, "the memory plan");
    }
    return TACIT_OK;
}

static void add_ancestors(plan_work *w, uint32_t i, uint32_t from)
{
    uint64_t *row = w->before + (size_t)i * w->row_words;
    const uint64_t *other = w->before + (size_t)from * w->row_words;
    for (uint32_t x = 0; x < w->row_words; x++)
        row[x] |= other[x];
    row[from / 64] |= 1ull << (from % 64);
}

/* Ancestors as bit rows; nodes are in topological order, so one walk is enough. */
static tacit_status close_transitively(plan_work *w, arena *memory, tacit_error *err)
{
    const plan_problem *p = w->p;
    w->row_words = p->n_nodes / 64 + 1;
    size_t words;
    if (!size_mul(w->row_words, p->n_nodes + 1u, &words))
        return error_memory(err, "the memory plan");
    w->before = ARENA_ARRAY(memory, words, uint64_t);
    if (!w->before)
        return error_memory(err, "the memory plan");
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        for (uint32_t k = 0; k < p->nodes[i]->n_inputs; k++) {
            uint32_t from = maker_position(w, p->nodes[i]->inputs[k]);
            if (from != PLAN_NO_SLOT)
                add_ancestors(w, i, from);
        }
        for (uint32_t k = w->early_first[i]; k < w->early_first[i + 1]; k++)
            add_ancestors(w, i, w->early[k]);
    }
    return TACIT_OK;
}

tacit_status plan_work_open(plan_work *w, const plan_problem *p, arena *memory, tacit_error *err)
{
    *w = (plan_work){.p = p};
    const ir_graph *g = p->graph;
    w->position = ARENA_ARRAY(memory, g->nodes.count + 1u, uint32_t);
    w->group_of = ARENA_ARRAY(memory, g->values.count + 1u, uint32_t);
    w->is_alias = ARENA_ARRAY(memory, p->n_nodes + 1u, bool);
    w->scratch = ARENA_ARRAY(memory, p->n_nodes + 1u, uint64_t);
    if (!w->position || !w->group_of || !w->is_alias || !w->scratch)
        return error_memory(err, "the memory plan");
    for (uint32_t i = 0; i < g->nodes.count; i++)
        w->position[i] = PLAN_NO_SLOT;
    for (uint32_t i = 0; i < g->values.count; i++)
        w->group_of[i] = PLAN_NO_SLOT;
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        w->position[p->nodes[i]->id] = i;
        w->is_alias[i] = plan_is_alias_node(p->views, p->nodes[i]);
        w->scratch[i] = p->scratch ? align_up(p->scratch[i], PLAN_ALIGN) : 0;
    }
    TRY(number_groups(w, memory, err));
    TRY(list_readers(w, memory, err));
    TRY(list_early(w, memory, err));
    TRY(list_followers(w, memory, err));
    return p->parallel ? close_transitively(w, memory, err) : TACIT_OK;
}
