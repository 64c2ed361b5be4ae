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

/* The input (or a body's outer value) gains a leading axis under its own name; nodes that read it
 * keep the old type until they are replaced. */
static tacit_status batch_value(batching *b, ir_value *v)
{
    if (v->type.shape.rank >= IR_MAX_RANK)
        return error_set(b->err, TACIT_ERR_LIMIT, "'%s' has too many axes to batch", v->name);
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

static tacit_status batch_input(batching *b, const char *name)
{
    ir_value *v = ir_value_find(b->graph, name);
    if (!v || !v->is_input)
        return error_set(b->err, TACIT_ERR_ARGUMENT, "'%s' is not an input of the graph", name);
    return batch_value(b, v);
}

static ir_value *batched_form(const batching *b, const ir_value *v)
{
    return v && v->id < b->values ? b->batched[v->id] : NULL;
}

static tacit_status batch_nodes(batching *b);

/* The body of a scan, batched in all carries, in the xs and outer values that are. */
static tacit_status batch_body(const op_batch *c, ir_graph *body, uint32_t states, tacit_error *err)
{
    const ir_node *n = c->node;
    batching inner = {.graph = body, .size = c->size, .values = body->values.count, .err = err};
    arena_init(&inner.scratch, body->memory->allocator);
    inner.batched = ARENA_ARRAY(&inner.scratch, inner.values + 1u, ir_value *);
    tacit_status status = inner.batched ? TACIT_OK : error_memory(err, "a batched graph");
    for (uint32_t i = 0; status == TACIT_OK && i < n->n_inputs; i++) {
        ir_value *formal =
            i < n->n_explicit ? body->inputs.data[i] : body->captures.data[i - n->n_explicit];
        if (formal && (i < states || c->batched[i]))
            status = batch_value(&inner, formal);
    }
    if (status == TACIT_OK)
        status = batch_nodes(&inner);
    arena_free(&inner.scratch);
    return status;
}

/* The first two axes change places: batch and time. */
static ir_value *swap_first(op_diff *c, ir_value *x)
{
    int64_t perm[IR_MAX_RANK];
    for (int32_t i = 0; i < IR_MAX_RANK; i++)
        perm[i] = i < 2 ? 1 - i : i;
    return op_diff_transpose(c, x, perm);
}

/* One scan whose steps take the whole batch: time stays the leading axis of what is scanned. */
static tacit_status batch_scan(batching *b, op_batch *c)
{
    ir_node *n = c->node;
    op_diff *d = &c->build;
    int64_t xs = ir_attr_int(n, "num_scan_inputs", 0);
    ir_graph *body = ir_attr_graph(n, "body");
    if (!body || xs < 1 || xs > (int64_t)n->n_explicit ||
        body->captures.count != n->n_inputs - n->n_explicit)
        return op_diff_fail(d, TACIT_ERR_GRAPH, "no body or no scan inputs");
    for (uint32_t i = 0; i < n->n_attrs; i++)
        if (n->attrs[i].kind == IR_ATTR_INTS && strstr(n->attrs[i].name, "_axes"))
            for (uint32_t k = 0; k < n->attrs[i].count; k++)
                if (n->attrs[i].ints[k] != 0)
                    return op_diff_fail(d, TACIT_ERR_UNSUPPORTED,
                                        "batching needs scans over axis 0");
    uint32_t states = n->n_explicit - (uint32_t)xs;
    body = ir_graph_clone(body, b->graph->memory);
    if (!body)
        return error_memory(b->err, "a batched graph");
    TRY(batch_body(c, body, states, b->err));
    for (uint32_t i = 0; i < n->n_explicit; i++) {
        if (i < states)
            c->in[i] = op_batch_input(c, i);
        else if (c->batched[i])
            c->in[i] = swap_first(d, c->in[i]);
    }
    if (d->status != TACIT_OK)
        return d->status;
    ir_node *all =
        ir_node_new(b->graph, "Scan", "", n->name, n->n_inputs, c->in, n->n_outputs, NULL);
    body->parent = b->graph;
    if (!all || !ir_attr_copy_all(b->graph, all, n) ||
        !ir_attr_set(b->graph, all,
                     &(ir_attr){.name = "body", .kind = IR_ATTR_GRAPH, .graph = body}))
        return error_memory(b->err, "a batched graph");
    all->op = n->op;
    all->n_explicit = n->n_explicit;
    TRY(op_infer_node(b->graph, all, b->err));
    for (uint32_t i = 0; i < n->n_outputs; i++)
        if (n->outputs[i])
            c->out[i] = i < states ? all->outputs[i] : swap_first(d, all->outputs[i]);
    return d->status;
}

static bool has_static_outputs(const ir_node *n)
{
    for (uint32_t i = 0; i < n->n_outputs; i++)
        if (n->outputs[i] && !ir_type_is_static(&n->outputs[i]->type))
            return false;
    return true;
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
    if (diff_is_scan(n))
        status = batch_scan(b, &c);
    else if (n->op->batch)
        status = n->op->batch(&c);
    else if (n->op->flags & OP_ELEMENTWISE)
        status = op_batch_elementwise(&c);
    else if ((n->op->flags & OP_CONTROL && !n->op->infer) || n->op->flags & OP_RANDOM ||
             (n->op->flags & OP_DATA_SHAPE && !has_static_outputs(n)))
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

/* All nodes, then the outputs. */
static tacit_status batch_nodes(batching *b)
{
    uint32_t nodes = b->graph->nodes.count;
    for (uint32_t i = 0; i < nodes; i++)
        TRY(visit(b, b->graph->nodes.data[i]));
    return set_outputs(b);
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
    return batch_nodes(b);
}

tacit_status diff_vmap(ir_graph *g, uint32_t n, const char *const *names, int64_t size,
                       tacit_error *err)
{
    if (size < 1)
        return error_set(err, TACIT_ERR_ARGUMENT, "the batch size must be at least 1");
    TRY(diff_inline_functions(g, NULL, NULL, err));
    TRY(diff_spell_control(g, err));
    batching b = {.graph = g, .size = size, .err = err};
    arena_init(&b.scratch, g->memory->allocator);
    tacit_status status = run(&b, n, names);
    arena_free(&b.scratch);
    return status;
}
