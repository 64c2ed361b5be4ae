/* SPDX-License-Identifier: Apache-2.0
 * Batching: every node that depends on a batched input is replaced by its batched form. */
#include <string.h>

#include "diff/diff.h"

typedef struct batching {
    ir_graph *graph;
    arena scratch;
    ir_value **batched; /* by value id of the original graph: its batched form, NULL: shared */
    uint32_t values;
    int64_t size;
    tacit_error *err;
} batching;

/* The input gains a leading axis under its own name; nodes that read it keep the old type until
 * they are replaced. */
static tacit_status batch_input(batching *b, const char *name)
{
    ir_value *v = ir_value_find(b->graph, name);
    if (!v || !v->is_input)
        return error_set(b->err, TACIT_ERR_ARGUMENT, "'%s' is not an input of the graph", name);
    if (v->type.shape.rank >= IR_MAX_RANK)
        return error_set(b->err, TACIT_ERR_LIMIT, "'%s' has too many axes to batch", name);
    ir_value *old = arena_copy(b->graph->memory, v, sizeof *v);
    if (!old)
        return error_memory(b->err, "a batched graph");
    for (uint32_t i = 0; i < b->graph->nodes.count; i++) {
        ir_node *n = b->graph->nodes.data[i];
        for (uint32_t k = 0; k < n->n_inputs; k++)
            if (n->inputs[k] == v)
                n->inputs[k] = old;
    }
    ir_shape *s = &v->type.shape;
    memmove(s->dims + 1, s->dims, (size_t)s->rank * sizeof *s->dims);
    s->dims[0] = b->size;
    s->rank++;
    b->batched[v->id] = v;
    return TACIT_OK;
}

static ir_value *batched_form(const batching *b, const ir_value *v)
{
    return v && v->id < b->values ? b->batched[v->id] : NULL;
}

static tacit_status visit(batching *b, ir_node *n)
{
    op_batch c = {.node = n, .size = b->size};
    c.build = (op_diff){.graph = b->graph, .node = n, .err = b->err};
    c.in = ARENA_ARRAY(&b->scratch, n->n_inputs + 1u, ir_value *);
    c.out = ARENA_ARRAY(&b->scratch, n->n_outputs + 1u, ir_value *);
    bool *batched = ARENA_ARRAY(&b->scratch, n->n_inputs + 1u, bool);
    if (!c.in || !c.out || !batched)
        return error_memory(b->err, "a batched graph");
    bool any = false;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        ir_value *form = batched_form(b, n->inputs[i]);
        batched[i] = form != NULL;
        any |= batched[i];
        c.in[i] = form ? form : n->inputs[i];
    }
    if (!any)
        return TACIT_OK;
    c.batched = batched;
    tacit_status status;
    if (n->op->batch)
        status = n->op->batch(&c);
    else if (n->op->flags & OP_ELEMENTWISE)
        status = op_batch_elementwise(&c);
    else if (n->op->flags & (OP_RANDOM | OP_DATA_SHAPE))
        return op_no_rule(n, "batch", b->err);
    else
        status = op_batch_unroll(&c);
    if (status != TACIT_OK)
        return status;
    for (uint32_t i = 0; i < n->n_outputs; i++)
        if (n->outputs[i])
            b->batched[n->outputs[i]->id] = c.out[i];
    ir_node_kill(n);
    return TACIT_OK;
}

static tacit_status set_outputs(batching *b)
{
    ir_graph *g = b->graph;
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        ir_value *v = g->outputs.data[i], *form = batched_form(b, v);
        if (!form) { /* shared by all entries */
            op_batch c = {.in = &v, .batched = (bool[]){false}, .size = b->size};
            c.build = (op_diff){.graph = g, .err = b->err};
            form = op_batch_input(&c, 0);
            if (!form)
                return c.build.status;
        }
        g->outputs.data[i] = form;
        if (form != v && !v->is_input && !form->is_input) { /* outputs keep their public names */
            const char *name = v->name;
            v->name = form->name;
            form->name = name;
            (void)map_put(&g->value_names, name, form);
            (void)map_put(&g->value_names, v->name, v);
        }
    }
    TRY(ir_graph_sort(g, b->err));
    return op_infer_graph(g, b->err);
}

static tacit_status run(batching *b, uint32_t n, const char *const *names)
{
    ir_graph *g = b->graph;
    b->values = g->values.count;
    b->batched = ARENA_ARRAY(&b->scratch, b->values + 1u, ir_value *);
    if (!b->batched)
        return error_memory(b->err, "a batched graph");
    for (uint32_t i = 0; i < n; i++)
        TRY(batch_input(b, names[i]));
    uint32_t nodes = g->nodes.count;
    for (uint32_t i = 0; i < nodes; i++)
        TRY(visit(b, g->nodes.data[i]));
    return set_outputs(b);
}

tacit_status diff_vmap(ir_graph *g, uint32_t n, const char *const *names, int64_t size,
                       tacit_error *err)
{
    if (size < 1)
        return error_set(err, TACIT_ERR_ARGUMENT, "the batch size must be at least 1");
    batching b = {.graph = g, .size = size, .err = err};
    arena_init(&b.scratch, g->memory->allocator);
    tacit_status status = run(&b, n, names);
    arena_free(&b.scratch);
    return status;
}
