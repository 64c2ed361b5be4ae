/* SPDX-License-Identifier: Apache-2.0
 * tacit Function(inputs…) → outputs…: a graph with derivatives of its own. Attributes: body; vjp, a
 * graph of (inputs…, outputs…, cotangents of the outputs…) that gives a cotangent per input; jvp, a
 * graph of (inputs…, their tangents…) that gives a tangent per output. Programs see it inlined. */
#include <string.h>

#include "op/spell.h"
#include "op/vjp.h"

static tacit_status body_of(const ir_node *n, ir_graph **out, tacit_error *err)
{
    *out = ir_attr_graph(n, "body");
    if (!*out || n->n_inputs != n->n_explicit)
        return error_set(err, TACIT_ERR_GRAPH,
                         "node '%s' (Function): a body that reads its inputs alone is needed",
                         n->name);
    if ((*out)->inputs.count != n->n_inputs || (*out)->outputs.count != n->n_outputs)
        return error_set(
            err, TACIT_ERR_GRAPH,
            "node '%s' (Function): the body takes %u and gives %u values, the node has "
            "%u and %u",
            n->name, (*out)->inputs.count, (*out)->outputs.count, n->n_inputs, n->n_outputs);
    return TACIT_OK;
}

static tacit_status function_infer(op_infer *c)
{
    ir_graph *body;
    TRY(body_of(c->node, &body, c->err));
    for (uint32_t i = 0; i < c->n_in; i++)
        if (c->in[i])
            body->inputs.data[i]->type = *c->in[i];
    TRY(op_infer_graph(body, c->err));
    for (uint32_t i = 0; i < c->n_out; i++)
        c->out[i] = body->outputs.data[i]->type;
    return TACIT_OK;
}

static bool copy_attrs(ir_graph *g, ir_node *to, const ir_node *from)
{
    if (!ir_attr_copy_all(g, to, from))
        return false;
    for (uint32_t i = 0; i < from->n_attrs; i++) {
        ir_attr a = from->attrs[i];
        if (a.kind != IR_ATTR_GRAPH)
            continue;
        a.graph = ir_graph_clone(a.graph, g->memory); /* each copy is inferred on its own */
        if (!a.graph)
            return false;
        a.graph->parent = g;
        if (!ir_attr_set(g, to, &a))
            return false;
    }
    return true;
}

/* The nodes of `body` in `g`, its inputs being `args`; results[i] is its output i. */
tacit_status op_inline_graph(ir_graph *g, const ir_graph *body, ir_value *const *args,
                             ir_value **results, tacit_error *err)
{
    ir_value **copies = ARENA_ARRAY(g->memory, body->values.count + 1u, ir_value *);
    ir_value **in = copies ? ARENA_ARRAY(g->memory, body->values.count + 1u, ir_value *) : NULL;
    bool ok = copies && in;
    for (uint32_t i = 0; ok && i < body->inputs.count; i++)
        copies[body->inputs.data[i]->id] = args[i];
    for (uint32_t i = 0; ok && i < body->captures.count; i++)
        if (body->captures.data[i])
            copies[body->captures.data[i]->id] = args[body->inputs.count + i];
    for (uint32_t i = 0; ok && i < body->values.count; i++) {
        const ir_value *v = body->values.data[i];
        if (!v->producer && !copies[i] && v->constant)
            ok = (copies[i] = ir_constant_new(g, v->name, v->constant)) != NULL;
    }
    for (uint32_t i = 0; ok && i < body->nodes.count; i++) {
        const ir_node *from = body->nodes.data[i];
        if (!from->type)
            continue;
        if (from->n_inputs > body->values.count)
            return error_set(err, TACIT_ERR_LIMIT, "node '%s' has too many inputs", from->name);
        for (uint32_t k = 0; k < from->n_inputs; k++)
            in[k] = from->inputs[k] ? copies[from->inputs[k]->id] : NULL;
        ir_node *n = ir_node_new(g, from->type, from->domain, from->name, from->n_inputs, in,
                                 from->n_outputs, NULL);
        if (!n || !copy_attrs(g, n, from))
            return error_memory(err, "a function");
        n->n_explicit = from->n_explicit;
        op_resolve(NULL, n);
        if (from->op)
            n->op = from->op;
        TRY(op_infer_node(g, n, err));
        for (uint32_t k = 0; k < from->n_outputs; k++)
            if (from->outputs[k])
                copies[from->outputs[k]->id] = n->outputs[k];
    }
    for (uint32_t i = 0; ok && i < body->outputs.count; i++)
        ok = (results[i] = copies[body->outputs.data[i]->id]) != NULL;
    return ok ? TACIT_OK : error_memory(err, "a function");
}

static tacit_status function_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_graph *body;
    TRY(body_of(node, &body, err));
    ir_value **results = ARENA_ARRAY(g->memory, node->n_outputs + 1u, ir_value *);
    if (!results)
        return error_memory(err, "a function");
    TRY(op_inline_graph(g, body, node->inputs, results, err));
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        if (!node->outputs[i])
            continue;
        ir_value *v = results[i];
        if (!v->producer) { /* outputs of a graph keep their names: give them a node */
            ir_node *same = op_node(g, "Identity", NULL, 1, &v);
            if (!same)
                return error_memory(err, "a function");
            TRY(op_infer_node(g, same, err));
            v = same->outputs[0];
        }
        ir_replace_uses(g, node->outputs[i], v);
    }
    ir_node_kill(node);
    return TACIT_OK;
}

static ir_value *or_zeros(op_diff *c, ir_value *v, const ir_value *like)
{
    return v ? v : op_diff_zeros(c, &like->type);
}

/* Runs rule graph `name` on the node's inputs, then what the caller put behind them. */
static tacit_status apply(op_diff *c, const char *name, uint32_t n_args, ir_value **args,
                          uint32_t n_results, ir_value **results)
{
    const ir_graph *rule = ir_attr_graph(c->node, name);
    if (c->status != TACIT_OK)
        return c->status;
    if (rule->inputs.count != n_args || rule->outputs.count != n_results || rule->captures.count)
        return c->status = error_set(c->err, TACIT_ERR_GRAPH,
                                     "node '%s' (Function): its %s takes %u and gives %u values, "
                                     "expected %u and %u",
                                     c->node->name, name, rule->inputs.count, rule->outputs.count,
                                     n_args, n_results);
    return c->status = op_inline_graph(c->graph, rule, args, results, c->err);
}

tacit_status op_vjp_function(op_diff *c)
{
    const ir_node *n = c->node;
    uint32_t count = n->n_inputs + 2 * n->n_outputs, at = 0;
    ir_value **args = ARENA_ARRAY(c->graph->memory, count + 1u, ir_value *);
    if (!args)
        return c->status = error_memory(c->err, "a function");
    for (uint32_t i = 0; i < n->n_inputs; i++)
        args[at++] = n->inputs[i];
    for (uint32_t i = 0; i < n->n_outputs; i++)
        args[at++] = n->outputs[i];
    for (uint32_t i = 0; i < n->n_outputs; i++)
        args[at++] = or_zeros(c, c->out_grad[i], n->outputs[i]);
    return apply(c, "vjp", count, args, n->n_inputs, c->in_grad);
}

tacit_status op_jvp_function(op_diff *c)
{
    const ir_node *n = c->node;
    ir_value **args = ARENA_ARRAY(c->graph->memory, 2 * n->n_inputs + 1u, ir_value *);
    if (!args)
        return c->status = error_memory(c->err, "a function");
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        args[i] = n->inputs[i];
        args[n->n_inputs + i] = or_zeros(c, c->in_tangent[i], n->inputs[i]);
    }
    return apply(c, "jvp", 2 * n->n_inputs, args, n->n_outputs, c->out_tangent);
}

const op_def op_rows_function[] = {
    {.name = "Function",
     .domain = "tacit",
     .min_in = 0,
     .max_in = -1,
     .min_out = 1,
     .max_out = -1,
     .infer = function_infer,
     .decompose = function_decompose,
     .vjp = op_vjp_function,
     .jvp = op_jvp_function},
    {0},
};
