/* SPDX-License-Identifier: Apache-2.0
 * Copying a graph's structure into another arena; constant data is shared. */
#include <string.h>

#include "ir/graph.h"

static bool clone_about(const ir_about *from, ir_graph *g)
{
    ir_about *to = &g->about;
    to->producer = arena_strdup(g->memory, from->producer);
    to->producer_version = arena_strdup(g->memory, from->producer_version);
    to->domain = arena_strdup(g->memory, from->domain);
    to->doc = arena_strdup(g->memory, from->doc);
    to->version = from->version;
    for (uint32_t i = 0; i < from->metadata.count; i++)
        if (!ir_metadata_add(g, from->metadata.data[i].key, from->metadata.data[i].value))
            return false;
    return to->producer && to->producer_version && to->domain && to->doc;
}

static ir_graph *clone_into(const ir_graph *g, arena *memory, ir_graph *parent);

static bool clone_attrs(const ir_node *from, ir_node *to, ir_graph *g)
{
    ir_attr *attrs = arena_copy(g->memory, from->attrs, from->n_attrs * sizeof *attrs);
    if (!attrs)
        return false;
    for (uint32_t i = 0; i < from->n_attrs; i++) {
        ir_attr *a = &attrs[i];
        a->name = arena_strdup(g->memory, a->name);
        if (!a->name)
            return false;
        if (a->kind == IR_ATTR_GRAPH && !(a->graph = clone_into(a->graph, g->memory, g)))
            return false;
        if (a->kind == IR_ATTR_GRAPHS) {
            ir_graph **subs = ARENA_ARRAY(g->memory, a->count, ir_graph *);
            for (uint32_t k = 0; subs && k < a->count; k++)
                if (!(subs[k] = clone_into(a->graphs[k], g->memory, g)))
                    return false;
            if (!subs)
                return false;
            a->graphs = subs;
        }
    }
    to->attrs = attrs;
    to->n_attrs = from->n_attrs;
    return true;
}

/* `values` maps the old graph's value ids to new values. */
static ir_node *clone_node(const ir_node *from, ir_graph *g, ir_value **values)
{
    ir_node *n = ARENA_NEW(g->memory, ir_node);
    if (!n)
        return NULL;
    *n = *from;
    n->type = arena_strdup(g->memory, from->type);
    n->domain = arena_strdup(g->memory, from->domain);
    n->name = arena_strdup(g->memory, from->name);
    n->inputs = ARENA_ARRAY(g->memory, n->n_inputs, ir_value *);
    n->outputs = ARENA_ARRAY(g->memory, n->n_outputs, ir_value *);
    if (!n->type || !n->domain || !n->name || !n->inputs || !n->outputs || !clone_attrs(from, n, g))
        return NULL;
    for (uint32_t i = 0; i < n->n_inputs; i++)
        n->inputs[i] = from->inputs[i] ? values[from->inputs[i]->id] : NULL;
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        n->outputs[i] = from->outputs[i] ? values[from->outputs[i]->id] : NULL;
        if (n->outputs[i])
            n->outputs[i]->producer = n;
    }
    n->notes = NULL;
    ir_node_inherit_notes(g, n, from);
    return n;
}

static bool clone_values(const ir_graph *from, ir_graph *g, ir_value **values)
{
    for (uint32_t i = 0; i < from->values.count; i++) {
        const ir_value *old = from->values.data[i];
        ir_value *v = ir_value_new(g, old->name, &old->type);
        if (!v)
            return false;
        v->output_index = old->output_index;
        v->constant = old->constant;
        v->is_initializer = old->is_initializer;
        v->is_input = old->is_input;
        values[i] = v;
    }
    return true;
}

static bool clone_lists(const ir_graph *from, ir_graph *g, ir_value **values)
{
    for (uint32_t i = 0; i < from->inputs.count; i++)
        if (!vec_push(g->memory, &g->inputs, values[from->inputs.data[i]->id]))
            return false;
    for (uint32_t i = 0; i < from->outputs.count; i++)
        if (!vec_push(g->memory, &g->outputs, values[from->outputs.data[i]->id]))
            return false;
    for (uint32_t i = 0; i < from->captures.count; i++) {
        ir_value *old = from->captures.data[i];
        if (!vec_push(g->memory, &g->captures, old ? values[old->id] : NULL))
            return false;
    }
    for (uint32_t i = 0; i < from->symbols.count; i++) {
        int64_t k = ir_symbol_index(g, from->symbols.data[i].name);
        if (k < 0)
            return false;
        if (!g->parent)
            g->symbols.data[k].value = from->symbols.data[i].value;
    }
    for (uint32_t i = 0; i < from->opsets.count; i++) {
        ir_opset o = from->opsets.data[i];
        o.domain = arena_strdup(g->memory, o.domain);
        if (!o.domain || !vec_push(g->memory, &g->opsets, o))
            return false;
    }
    return true;
}

static ir_graph *clone_into(const ir_graph *from, arena *memory, ir_graph *parent)
{
    ir_graph *g = ir_graph_new(memory, from->name);
    ir_value **values = ARENA_ARRAY(memory, from->values.count, ir_value *);
    if (!g || !values)
        return NULL;
    g->parent = parent;
    g->doc = arena_strdup(memory, from->doc);
    g->fresh = from->fresh;
    if (!g->doc || !clone_about(&from->about, g) ||
        !ir_graph_reserve(g, from->values.count, from->nodes.count) ||
        !clone_values(from, g, values) || !clone_lists(from, g, values))
        return NULL;
    for (uint32_t i = 0; i < from->nodes.count; i++) {
        if (!from->nodes.data[i]->type)
            continue; /* killed, not yet swept */
        ir_node *n = clone_node(from->nodes.data[i], g, values);
        if (!n || !vec_push(memory, &g->nodes, n) || !map_put(&g->node_names, n->name, n))
            return NULL;
        n->id = g->nodes.count - 1;
    }
    return g;
}

ir_graph *ir_graph_clone(const ir_graph *g, arena *memory)
{
    return clone_into(g, memory, NULL);
}
