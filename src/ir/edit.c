/* SPDX-License-Identifier: Apache-2.0
 * Editing graphs: replacing uses, sweeping, sorting, cloning, use lists. */
#include <string.h>

#include "ir/graph.h"

void ir_swap_names(ir_graph *g, ir_value *a, ir_value *b)
{
    const char *name = a->name;
    a->name = b->name;
    b->name = name;
    /* Both keys exist already, so these cannot run out of memory. */
    (void)map_put(&g->value_names, a->name, a);
    (void)map_put(&g->value_names, b->name, b);
}

void ir_replace_uses(ir_graph *g, ir_value *old, ir_value *replacement)
{
    g->version++;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        ir_node *n = g->nodes.data[i];
        for (uint32_t k = 0; n->type && k < n->n_inputs; k++)
            if (n->inputs[k] == old)
                n->inputs[k] = replacement;
    }
    bool renamed = false, taken = replacement->is_input || replacement->is_initializer;
    for (uint32_t i = 0; i < g->outputs.count; i++)
        taken |= g->outputs.data[i] == replacement;
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        if (g->outputs.data[i] != old)
            continue;
        g->outputs.data[i] = replacement;
        if (!renamed && !taken)
            ir_swap_names(g, old, replacement);
        renamed = true;
    }
}

void ir_node_kill(ir_node *node)
{
    node->type = NULL;
}

/* Marks values that are still part of the graph in `keep`. */
static void mark_live(const ir_graph *g, bool *keep)
{
    for (uint32_t i = 0; i < g->inputs.count; i++)
        keep[g->inputs.data[i]->id] = true;
    for (uint32_t i = 0; i < g->outputs.count; i++)
        keep[g->outputs.data[i]->id] = true;
    for (uint32_t i = 0; i < g->captures.count; i++)
        if (g->captures.data[i])
            keep[g->captures.data[i]->id] = true;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        for (uint32_t k = 0; n->type && k < n->n_inputs; k++)
            if (n->inputs[k])
                keep[n->inputs[k]->id] = true;
        for (uint32_t k = 0; n->type && k < n->n_outputs; k++)
            if (n->outputs[k])
                keep[n->outputs[k]->id] = true;
    }
}

tacit_status ir_graph_sweep(ir_graph *g, tacit_error *err)
{
    g->version++;
    for (uint32_t i = 0; i < g->values.count; i++)
        g->values.data[i]->id = i;
    bool *keep = mem_alloc_zero(g->memory->allocator, g->values.count + 1u);
    if (!keep)
        return error_memory(err, "sweeping the graph");
    mark_live(g, keep);
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->values.count; i++)
        if (keep[i])
            g->values.data[n++] = g->values.data[i];
        else
            (void)map_put(&g->value_names, g->values.data[i]->name, NULL);
    mem_release(g->memory->allocator, keep, g->values.count + 1u);
    g->values.count = n;
    for (uint32_t i = 0; i < n; i++)
        g->values.data[i]->id = i;
    n = 0;
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (g->nodes.data[i]->type)
            g->nodes.data[n++] = g->nodes.data[i];
        else
            (void)map_put(&g->node_names, g->nodes.data[i]->name, NULL);
    g->nodes.count = n;
    for (uint32_t i = 0; i < n; i++)
        g->nodes.data[i]->id = i;
    return TACIT_OK;
}

enum { UNSEEN, OPEN, DONE };

typedef struct sort_frame {
    ir_node *node;
    uint32_t next_input;
} sort_frame;

/* Depth-first from `root` over producers, without recursion: deep graphs must not eat the stack. */
static tacit_status sort_visit(ir_node *root, uint8_t *state, sort_frame *stack, ir_node **order,
                               uint32_t *count, tacit_error *err)
{
    uint32_t depth = 0;
    stack[depth++] = (sort_frame){root, 0};
    state[root->id] = OPEN;
    while (depth) {
        sort_frame *f = &stack[depth - 1];
        if (f->next_input == f->node->n_inputs) {
            state[f->node->id] = DONE;
            order[(*count)++] = f->node;
            depth--;
            continue;
        }
        ir_value *v = f->node->inputs[f->next_input++];
        ir_node *p = v ? v->producer : NULL;
        if (!p || state[p->id] == DONE)
            continue;
        if (state[p->id] == OPEN)
            return error_set(err, TACIT_ERR_GRAPH, "the graph has a cycle through node '%s' (%s)",
                             p->name, p->type);
        state[p->id] = OPEN;
        stack[depth++] = (sort_frame){p, 0};
    }
    return TACIT_OK;
}

tacit_status ir_graph_sort(ir_graph *g, tacit_error *err)
{
    TRY(ir_graph_sweep(g, err));
    uint32_t n = g->nodes.count, count = 0;
    arena scratch;
    arena_init(&scratch, g->memory->allocator);
    uint8_t *state = ARENA_ARRAY(&scratch, n + 1u, uint8_t);
    sort_frame *stack = ARENA_ARRAY(&scratch, n + 1u, sort_frame);
    ir_node **order = ARENA_ARRAY(&scratch, n + 1u, ir_node *);
    tacit_status status = TACIT_OK;
    if (!state || !stack || !order)
        status = error_memory(err, "sorting the graph");
    for (uint32_t i = 0; i < n && status == TACIT_OK; i++)
        if (state[i] == UNSEEN)
            status = sort_visit(g->nodes.data[i], state, stack, order, &count, err);
    if (status == TACIT_OK && n) {
        memcpy(g->nodes.data, order, n * sizeof *order);
        for (uint32_t i = 0; i < n; i++)
            g->nodes.data[i]->id = i;
    }
    arena_free(&scratch);
    return status;
}

tacit_status ir_uses_build(const ir_graph *g, arena *scratch, ir_uses *out, tacit_error *err)
{
    uint32_t n = g->values.count;
    uint32_t *start = ARENA_ARRAY(scratch, n + 2u, uint32_t);
    if (!start)
        return error_memory(err, "use lists");
    /* Counting sort in two walks; start[] is shifted by one during the second. */
    for (int walk = 0; walk < 2; walk++) {
        ir_use *all = (ir_use *)out->all;
        for (uint32_t i = 0; i < g->nodes.count; i++) {
            ir_node *node = g->nodes.data[i];
            for (uint32_t k = 0; node->type && k < node->n_inputs; k++) {
                if (!node->inputs[k])
                    continue;
                uint32_t *slot = &start[node->inputs[k]->id + 1];
                if (walk)
                    all[*slot] = (ir_use){node, k};
                ++*slot;
            }
        }
        for (uint32_t i = 0; i < g->outputs.count; i++) {
            uint32_t *slot = &start[g->outputs.data[i]->id + 1];
            if (walk)
                all[*slot] = (ir_use){NULL, i};
            ++*slot;
        }
        if (walk)
            break;
        uint32_t total = 0;
        for (uint32_t i = 1; i <= n; i++) {
            uint32_t uses = start[i];
            start[i] = total;
            total += uses;
        }
        out->all = ARENA_ARRAY(scratch, total + 1u, ir_use);
        if (!out->all)
            return error_memory(err, "use lists");
    }
    out->start = start;
    return TACIT_OK;
}

ir_node *ir_single_user(const ir_uses *u, const ir_value *v)
{
    return ir_use_count(u, v) == 1 ? u->all[u->start[v->id]].node : NULL;
}
