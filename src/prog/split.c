/* SPDX-License-Identifier: Apache-2.0
 * What is planned and lowered, what is left to the interpreter, and copies for outputs that cannot
 * be written where they are made. */
#include <string.h>

#include "prog/program.h"

static bool is_fixed(const ir_type *t)
{
    return ir_type_is_static(t) && t->dtype != TACIT_STRING;
}

/* A graph output must be a value of its own, made by a node: an input, a constant or a second
 * mention of another output is copied. */
static tacit_status copy_awkward_outputs(ir_graph *g, tacit_error *err)
{
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        ir_value *v = g->outputs.data[i];
        bool again = false;
        for (uint32_t k = 0; k < i; k++)
            again |= g->outputs.data[k] == v;
        if (!is_fixed(&v->type) || !(again || v->is_input || plan_is_constant(v)))
            continue;
        ir_node *copy = op_node(g, "Identity", "output_copy", 1, &v);
        if (!copy)
            return error_memory(err, "an output");
        copy->outputs[0]->type = v->type;
        ir_node_note(g, copy, "lower", "output %u is %s: copied into the caller's buffer", i,
                     again         ? "also another output"
                     : v->is_input ? "a graph input"
                                   : "a constant");
        g->outputs.data[i] = copy->outputs[0];
    }
    return TACIT_OK;
}

/* Nothing to run: every output is known. */
static bool is_settled(const ir_node *node)
{
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && !plan_is_constant(node->outputs[i]))
            return false;
    return true;
}

static bool is_static_node(const ir_node *node, const bool *in_tail)
{
    const op_def *op = node->op;
    if (!op || !op->infer || op->flags & OP_CONTROL || (!op->eval && !op->lower && !op->alias))
        return false;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const ir_value *v = node->inputs[i];
        if (v && (!is_fixed(&v->type) ||
                  (v->producer && !plan_is_constant(v) && in_tail[v->producer->id])))
            return false;
    }
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (node->outputs[i] && !is_fixed(&node->outputs[i]->type))
            return false;
    return true;
}

static tacit_status check_runnable(const ir_node *node, tacit_error *err)
{
    if (node->op && (node->op->eval || node->op->lower || node->op->alias))
        return TACIT_OK;
    return op_no_rule(node, "eval", err);
}

/* Values the tail needs from outside it, and values wanted from it. */
static tacit_status list_tail_ports(prog_program *p, const bool *in_tail, tacit_error *err)
{
    const ir_graph *g = p->graph;
    bool *seen = ARENA_ARRAY(&p->memory, g->values.count + 1u, bool);
    p->tail_given = ARENA_ARRAY(&p->memory, g->values.count + 1u, ir_value *);
    p->tail_wanted = ARENA_ARRAY(&p->memory, g->outputs.count + 1u, ir_value *);
    p->output_in_tail = ARENA_ARRAY(&p->memory, g->outputs.count + 1u, bool);
    if (!seen || !p->tail_given || !p->tail_wanted || !p->output_in_tail)
        return error_memory(err, "a program");
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        ir_value *v = g->outputs.data[i];
        p->output_in_tail[i] =
            !is_fixed(&v->type) || !v->producer || plan_is_constant(v) || in_tail[v->producer->id];
        TRY(ir_tensor_make(v->constant, err));
        if (p->output_in_tail[i])
            p->tail_wanted[p->n_tail_wanted++] = v;
    }
    for (uint32_t i = 0; i < p->n_tail; i++)
        for (uint32_t k = 0; k < p->tail[i]->n_inputs; k++) {
            ir_value *v = p->tail[i]->inputs[k];
            if (v)
                TRY(ir_tensor_make(v->constant, err));
            bool outside = v && !plan_is_constant(v) && (!v->producer || !in_tail[v->producer->id]);
            if (!outside || seen[v->id])
                continue;
            seen[v->id] = true;
            p->tail_given[p->n_tail_given++] = v;
            p->pinned[v->id] = !v->is_input;
        }
    /* The tail reads inputs when the thunks are done: those cannot be overwritten by thunks. */
    for (uint32_t i = 0; p->updates && i < g->outputs.count; i++)
        if (p->updates[i] && (seen[p->updates[i]->id] || p->output_in_tail[i]))
            p->updates[i] = NULL;
    /* An output that is an open-shaped input passes through the tail. */
    for (uint32_t i = 0; i < p->n_tail_wanted; i++)
        if (p->tail_wanted[i]->is_input && !seen[p->tail_wanted[i]->id]) {
            seen[p->tail_wanted[i]->id] = true;
            p->tail_given[p->n_tail_given++] = p->tail_wanted[i];
        }
    return TACIT_OK;
}

tacit_status prog_split(prog_program *p, tacit_error *err)
{
    ir_graph *g = p->graph;
    p->output_names = ARENA_ARRAY(&p->memory, g->outputs.count + 1u, const char *);
    if (!p->output_names)
        return error_memory(err, "a program");
    for (uint32_t i = 0; i < g->outputs.count; i++)
        p->output_names[i] = g->outputs.data[i]->name;
    bool reference = p->options.executor == TACIT_EXEC_REFERENCE;
    if (!reference)
        TRY(copy_awkward_outputs(g, err));
    TRY(ir_graph_sort(g, err));
    if (p->options.update_in_place)
        TRY(prog_order_updates(p, err));
    p->nodes = ARENA_ARRAY(&p->memory, g->nodes.count + 1u, ir_node *);
    p->tail = ARENA_ARRAY(&p->memory, g->nodes.count + 1u, ir_node *);
    p->pinned = ARENA_ARRAY(&p->memory, g->values.count + 1u, bool);
    bool *in_tail = ARENA_ARRAY(&p->memory, g->nodes.count + 1u, bool);
    if (!p->nodes || !p->tail || !p->pinned || !in_tail)
        return error_memory(err, "a program");
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        ir_node *node = g->nodes.data[i];
        if (is_settled(node))
            continue;
        TRY(check_runnable(node, err));
        in_tail[i] = reference || !is_static_node(node, in_tail);
        if (in_tail[i])
            p->tail[p->n_tail++] = node;
        else
            p->nodes[p->n_nodes++] = node;
    }
    return list_tail_ports(p, in_tail, err);
}
