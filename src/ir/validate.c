/* SPDX-License-Identifier: Apache-2.0 */
#include "ir/validate.h"

static tacit_status check_values(const ir_graph *g, tacit_error *err)
{
    for (uint32_t i = 0; i < g->values.count; i++) {
        const ir_value *v = g->values.data[i];
        if (v->id != i)
            return error_set(err, TACIT_ERR_GRAPH, "value '%s' has id %u at place %u", v->name,
                             v->id, i);
        if (ir_value_find(g, v->name) != v)
            return error_set(err, TACIT_ERR_GRAPH, "the name '%s' belongs to another value",
                             v->name);
        const ir_node *p = v->producer;
        if (p && (v->output_index >= p->n_outputs || p->outputs[v->output_index] != v))
            return error_set(err, TACIT_ERR_GRAPH, "value '%s' is not output %u of node '%s'",
                             v->name, v->output_index, p->name);
        if (p && (p->id >= g->nodes.count || g->nodes.data[p->id] != p))
            return error_set(err, TACIT_ERR_GRAPH,
                             "value '%s' is made by node '%s', which is not in the graph", v->name,
                             p->name);
        if (v->is_initializer && !v->constant)
            return error_set(err, TACIT_ERR_GRAPH, "weight '%s' has no contents", v->name);
    }
    return TACIT_OK;
}

static bool belongs(const ir_graph *g, const ir_value *v)
{
    return v->id < g->values.count && g->values.data[v->id] == v;
}

static bool is_capture(const ir_graph *g, const ir_value *v)
{
    for (uint32_t i = 0; i < g->captures.count; i++)
        if (g->captures.data[i] == v)
            return true;
    return false;
}

static tacit_status check_node(const ir_graph *g, const ir_node *n, tacit_error *err)
{
    for (uint32_t k = 0; k < n->n_inputs; k++) {
        const ir_value *v = n->inputs[k];
        if (!v)
            continue;
        if (!belongs(g, v))
            return error_set(err, TACIT_ERR_GRAPH, "node '%s': input %u is not in the graph",
                             n->name, k);
        if (v->producer && v->producer->id >= n->id)
            return error_set(err, TACIT_ERR_GRAPH, "node '%s' reads '%s' before node '%s' makes it",
                             n->name, v->name, v->producer->name);
        if (!v->producer && !v->is_input && !v->constant && !is_capture(g, v))
            return error_set(err, TACIT_ERR_GRAPH, "node '%s' reads '%s', which nothing makes",
                             n->name, v->name);
    }
    for (uint32_t k = 0; k < n->n_outputs; k++)
        if (n->outputs[k] && (!belongs(g, n->outputs[k]) || n->outputs[k]->producer != n))
            return error_set(err, TACIT_ERR_GRAPH, "node '%s': output %u does not point back",
                             n->name, k);
    return TACIT_OK;
}

static tacit_status check_subgraph(void *context, ir_graph *sub)
{
    return ir_validate(sub, context);
}

tacit_status ir_validate(const ir_graph *g, tacit_error *err)
{
    tacit_error local;
    err = err ? err : &local;
    TRY(check_values(g, err));
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        if (n->id != i || !n->type)
            return error_set(err, TACIT_ERR_GRAPH, "node at place %u is unsorted or removed", i);
        TRY(check_node(g, n, err));
        TRY(ir_node_subgraphs(n, check_subgraph, err));
    }
    for (uint32_t i = 0; i < g->inputs.count; i++)
        if (!belongs(g, g->inputs.data[i]) || !g->inputs.data[i]->is_input)
            return error_set(err, TACIT_ERR_GRAPH, "graph input %u is not one", i);
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        const ir_value *v = g->outputs.data[i];
        bool made = v->producer || v->is_input || v->constant || is_capture(g, v);
        if (!belongs(g, v) || !made)
            return error_set(err, TACIT_ERR_GRAPH, "graph output '%s' is dangling", v->name);
    }
    return TACIT_OK;
}
