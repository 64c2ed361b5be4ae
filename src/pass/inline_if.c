/* SPDX-License-Identifier: Apache-2.0
 * An If whose condition is known becomes the nodes of the branch it takes. */
#include "pass/edit.h"

typedef struct moving {
    pass_edit *e;
    ir_graph *sub;
    ir_node *owner;
    ir_value **to; /* by the branch's value id */
} moving;

/* Where each value of the branch lives in the outer graph. */
static bool map_values(moving *m)
{
    ir_graph *g = m->e->g;
    for (uint32_t k = 0; k < m->sub->captures.count; k++)
        if (m->sub->captures.data[k])
            m->to[m->sub->captures.data[k]->id] = m->owner->inputs[m->owner->n_explicit + k];
    for (uint32_t i = 0; i < m->sub->values.count; i++) {
        const ir_value *old = m->sub->values.data[i];
        if (m->to[i])
            continue;
        ir_value *v = ir_value_new(g, old->name, &old->type);
        if (!v)
            return false;
        v->constant = old->constant;
        v->is_initializer = old->is_initializer;
        v->output_index = old->output_index;
        m->to[i] = v;
    }
    return true;
}

static bool adopt_node(moving *m, ir_node *n)
{
    ir_graph *g = m->e->g;
    for (uint32_t k = 0; k < n->n_inputs; k++)
        if (n->inputs[k])
            n->inputs[k] = m->to[n->inputs[k]->id];
    for (uint32_t k = 0; k < n->n_outputs; k++)
        if (n->outputs[k]) {
            n->outputs[k] = m->to[n->outputs[k]->id];
            n->outputs[k]->producer = n;
        }
    for (uint32_t k = 0; k < n->n_attrs; k++) {
        if (n->attrs[k].kind == IR_ATTR_GRAPH)
            n->attrs[k].graph->parent = g;
        for (uint32_t s = 0; n->attrs[k].kind == IR_ATTR_GRAPHS && s < n->attrs[k].count; s++)
            n->attrs[k].graphs[s]->parent = g;
    }
    n->name = ir_fresh_node_name(g, n->name);
    n->id = g->nodes.count;
    ir_node_note(g, n, m->e->c->name, "from the branch '%s' of %s", m->sub->name, m->owner->name);
    return n->name && map_put(&g->node_names, n->name, n) && vec_push(g->memory, &g->nodes, n);
}

/* The If's own output values are produced by Identity nodes, which the clean-up removes: simple,
 * and right for results that are captures, weights or used twice. */
static bool connect_outputs(moving *m)
{
    ir_graph *g = m->e->g;
    for (uint32_t k = 0; k < m->owner->n_outputs; k++) {
        ir_value *v = m->owner->outputs[k];
        if (!v)
            continue;
        ir_value *from = m->to[m->sub->outputs.data[k]->id];
        ir_node *id = op_node(g, "Identity", m->owner->name, 1, &from);
        if (!id)
            return false;
        m->owner->outputs[k] = NULL;
        v->producer = id;
        v->output_index = 0;
        id->outputs[0] = v;
    }
    return true;
}

static tacit_status inline_branch(pass_edit *e, ir_node *n, ir_graph *sub)
{
    if (sub->outputs.count < n->n_outputs || sub->inputs.count)
        return error_set(e->c->err, TACIT_ERR_GRAPH,
                         "node '%s': the branch has %u outputs and %u inputs, expected %u and 0",
                         n->name, sub->outputs.count, sub->inputs.count, n->n_outputs);
    TRY(ir_graph_sweep(sub, e->c->err)); /* value ids are then indices */
    moving m = {.e = e, .sub = sub, .owner = n};
    m.to = ARENA_ARRAY(e->c->scratch, sub->values.count + 1u, ir_value *);
    bool ok = m.to && map_values(&m);
    for (uint32_t i = 0; ok && i < sub->nodes.count; i++)
        ok = adopt_node(&m, sub->nodes.data[i]);
    if (!ok || !connect_outputs(&m))
        return error_memory(e->c->err, "inlining a branch");
    pass_kill(e, n);
    e->c->rewrites++;
    return TACIT_OK;
}

/* One If a call: use lists are rebuilt after it. */
static tacit_status inline_next(pass_context *c, bool *found)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    *found = false;
    for (uint32_t i = 0; i < c->graph->nodes.count; i++) {
        ir_node *n = c->graph->nodes.data[i];
        double condition;
        if (!pass_is(&e, n, PASS_IF) || !pass_scalar(n->inputs[0], &condition))
            continue;
        ir_graph *sub = ir_attr_graph(n, condition != 0 ? "then_branch" : "else_branch");
        if (!sub)
            continue;
        TRY(inline_branch(&e, n, sub));
        TRY(ir_graph_sort(c->graph, c->err));
        TRY(op_infer_graph(c->graph, c->err));
        *found = true;
        return TACIT_OK;
    }
    return TACIT_OK;
}

tacit_status pass_inline_if(pass_context *c)
{
    bool found = true;
    while (found)
        TRY(inline_next(c, &found));
    return TACIT_OK;
}
