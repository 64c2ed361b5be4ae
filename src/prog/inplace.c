/* SPDX-License-Identifier: Apache-2.0
 * Training steps that update their parameters where they lie: output NAME.next may be given the
 * buffer of input NAME. For that the node that writes the output comes after every reader of the
 * input; where a reader needs what the writer made, or the writer's kernel cannot work in place,
 * a copy at the end writes the output instead. The plan is ordered accordingly and checked
 * (plan/verify.c). */
#include <string.h>

#include "prog/program.h"

typedef struct edge {
    uint32_t early, late; /* node ids */
} edge;

typedef struct updates {
    prog_program *p;
    arena scratch;
    VEC(edge) edges;
    VEC(uint32_t) readers; /* node ids */
    bool *seen;            /* by node id, nodes added here included */
    uint32_t room;         /* of seen */
    tacit_error *err;
} updates;

static tacit_status no_memory(const updates *u)
{
    return error_memory(u->err, "updates in place");
}

/* The input that output `i` updates, or NULL. */
static ir_value *updated_input(const prog_program *p, uint32_t i)
{
    static const char suffix[] = ".next";
    const ir_graph *g = p->graph;
    const char *name = p->output_names[i];
    const ir_value *out = g->outputs.data[i];
    size_t length = strlen(name), tail = sizeof suffix - 1;
    if (length <= tail || strcmp(name + length - tail, suffix) != 0 || !out->producer)
        return NULL;
    for (uint32_t k = 0; k < g->inputs.count; k++) {
        ir_value *in = g->inputs.data[k];
        if (strlen(in->name) == length - tail && memcmp(in->name, name, length - tail) == 0)
            return ir_type_is_static(&in->type) && ir_type_equal(&in->type, &out->type) ? in : NULL;
    }
    return NULL;
}

/* Nodes that may read the bytes of `x`: also through what may be a view of it. */
static tacit_status find_readers(updates *u, const ir_value *x)
{
    const ir_graph *g = u->p->graph;
    bool *shows = ARENA_ARRAY(&u->scratch, g->values.count + 1u, bool);
    if (!shows)
        return no_memory(u);
    u->readers.count = 0;
    shows[x->id] = true;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        bool reads = false;
        for (uint32_t k = 0; k < n->n_inputs; k++)
            reads |= n->inputs[k] && shows[n->inputs[k]->id];
        if (!reads)
            continue;
        if (!vec_push(&u->scratch, &u->readers, n->id))
            return no_memory(u);
        for (uint32_t k = 0; n->op->alias && k < n->n_outputs; k++)
            if (n->outputs[k])
                shows[n->outputs[k]->id] = true;
    }
    return TACIT_OK;
}

/* Marks what must run after the node `from`: by data, and by the edges so far. */
static tacit_status mark_after(updates *u, const ir_node *from)
{
    const ir_graph *g = u->p->graph;
    memset(u->seen, 0, u->room * sizeof *u->seen);
    u->seen[from->id] = true;
    /* Nodes are in order but for those that edges push back: repeat until nothing changes. */
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < g->nodes.count; i++) {
            const ir_node *n = g->nodes.data[i];
            bool after = false;
            for (uint32_t k = 0; k < n->n_inputs && !u->seen[i]; k++)
                after |=
                    n->inputs[k] && n->inputs[k]->producer && u->seen[n->inputs[k]->producer->id];
            again |= after;
            u->seen[i] |= after;
        }
        for (uint32_t i = 0; i < u->edges.count; i++) {
            edge e = u->edges.data[i];
            again |= u->seen[e.early] && !u->seen[e.late];
            u->seen[e.late] |= u->seen[e.early];
        }
    }
    return TACIT_OK;
}

/* May the writer's kernel write `y` over its own operand `x`? */
static bool writes_over(const ir_node *writer, const ir_value *x, const ir_value *y)
{
    for (uint32_t k = 0; k < writer->n_inputs; k++) {
        if (writer->inputs[k] != x)
            continue;
        bool each = writer->op->flags & OP_INPLACE_EACH && k == y->output_index;
        bool first = y->output_index == 0 && k < 32 && writer->op->inplace >> k & 1;
        if (!each && !first)
            return false;
    }
    return true;
}

static bool needs_copy(updates *u, const ir_value *x, const ir_value *y)
{
    const ir_node *writer = y->producer;
    bool reads = false;
    for (uint32_t k = 0; k < writer->n_inputs; k++)
        reads |= writer->inputs[k] == x;
    if (writer->op->alias || (reads && !writes_over(writer, x, y)))
        return true;
    for (uint32_t i = 0; i < u->readers.count; i++) {
        uint32_t id = u->readers.data[i];
        /* The writer may read x itself, not something that may be a view of it. */
        if (id == writer->id ? !reads : u->seen[id])
            return true;
    }
    /* … nor both. */
    for (uint32_t k = 0; reads && k < writer->n_inputs; k++) {
        const ir_value *v = writer->inputs[k];
        if (v && v != x && v->producer && v->producer->op->alias)
            for (uint32_t i = 0; i < u->readers.count; i++)
                if (u->readers.data[i] == v->producer->id)
                    return true;
    }
    return false;
}

static tacit_status add_copy(updates *u, uint32_t output)
{
    ir_graph *g = u->p->graph;
    ir_value *y = g->outputs.data[output];
    ir_node *copy = op_node(g, "Identity", "update", 1, &y);
    if (!copy)
        return no_memory(u);
    copy->outputs[0]->type = y->type;
    ir_node_note(g, copy, "lower", "the parameter is still read where its update is made");
    g->outputs.data[output] = copy->outputs[0];
    return TACIT_OK;
}

static tacit_status order_update(updates *u, uint32_t output, ir_value *x)
{
    const ir_graph *g = u->p->graph;
    TRY(find_readers(u, x));
    TRY(mark_after(u, g->outputs.data[output]->producer));
    if (needs_copy(u, x, g->outputs.data[output]))
        TRY(add_copy(u, output));
    const ir_node *writer = g->outputs.data[output]->producer;
    for (uint32_t i = 0; i < u->readers.count; i++) {
        edge e = {u->readers.data[i], writer->id};
        if (e.early != e.late && !vec_push(&u->scratch, &u->edges, e))
            return no_memory(u);
    }
    u->p->updates[output] = x;
    return TACIT_OK;
}

/* Nodes that edges push back go to the end of what they wait for; the others keep their order. */
static tacit_status sort_nodes(updates *u)
{
    ir_graph *g = u->p->graph;
    uint32_t n = g->nodes.count, done = 0;
    ir_node **order = ARENA_ARRAY(&u->scratch, n + 1u, ir_node *);
    bool *placed = ARENA_ARRAY(&u->scratch, n + 1u, bool);
    uint32_t *waits = ARENA_ARRAY(&u->scratch, n + 1u, uint32_t);
    if (!order || !placed || !waits)
        return no_memory(u);
    for (uint32_t i = 0; i < u->edges.count; i++)
        waits[u->edges.data[i].late]++;
    while (done < n) {
        uint32_t before = done;
        for (uint32_t i = 0; i < n; i++) {
            ir_node *node = g->nodes.data[i];
            bool ready = !placed[i] && !waits[i];
            for (uint32_t k = 0; ready && k < node->n_inputs; k++)
                ready = !node->inputs[k] || !node->inputs[k]->producer ||
                        placed[node->inputs[k]->producer->id];
            if (!ready)
                continue;
            placed[i] = true;
            order[done++] = node;
        }
        if (done == before)
            return error_set(u->err, TACIT_ERR_INTERNAL, "updates in place wait for each other");
        for (uint32_t i = 0; i < n; i++)
            waits[i] = 0;
        for (uint32_t i = 0; i < u->edges.count; i++)
            waits[u->edges.data[i].late] += !placed[u->edges.data[i].early];
    }
    memcpy(g->nodes.data, order, n * sizeof *order);
    for (uint32_t i = 0; i < n; i++)
        g->nodes.data[i]->id = i;
    return TACIT_OK;
}

static tacit_status order_all(updates *u)
{
    prog_program *p = u->p;
    u->room = p->graph->nodes.count + p->graph->outputs.count + 1u;
    u->seen = ARENA_ARRAY(&u->scratch, u->room, bool);
    p->updates = ARENA_ARRAY(&p->memory, p->graph->outputs.count + 1u, ir_value *);
    if (!u->seen || !p->updates)
        return no_memory(u);
    for (uint32_t i = 0; i < p->graph->outputs.count; i++) {
        ir_value *x = updated_input(p, i);
        for (uint32_t k = 0; x && k < i; k++)
            if (p->updates[k] == x)
                x = NULL;
        if (x)
            TRY(order_update(u, i, x));
    }
    return sort_nodes(u);
}

tacit_status prog_order_updates(prog_program *p, tacit_error *err)
{
    updates u = {.p = p, .err = err};
    arena_init(&u.scratch, p->allocator);
    tacit_status status = order_all(&u);
    arena_free(&u.scratch);
    return status;
}
