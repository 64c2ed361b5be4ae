/* SPDX-License-Identifier: Apache-2.0
 * Building graphs: values, nodes, names. */
#include "ir/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ir_graph *ir_graph_new(arena *memory, const char *name)
{
    ir_graph *g = ARENA_NEW(memory, ir_graph);
    if (!g)
        return NULL;
    g->memory = memory;
    g->name = arena_strdup(memory, name ? name : "graph");
    g->doc = "";
    ir_about_clear(g);
    map_init(&g->value_names, memory);
    map_init(&g->node_names, memory);
    return g->name ? g : NULL;
}

bool ir_graph_reserve(ir_graph *g, uint32_t values, uint32_t nodes)
{
    /* About: with its name, its places in tables, and its type or its attributes. */
    enum { BYTES_EACH = 512 };
    arena_expect(g->memory, ((size_t)values + nodes) * BYTES_EACH);
    return map_reserve(&g->value_names, values) && map_reserve(&g->node_names, nodes) &&
           vec_reserve(g->memory, &g->values, values) && vec_reserve(g->memory, &g->nodes, nodes);
}

void ir_about_clear(ir_graph *g)
{
    g->about = (ir_about){.producer = "", .producer_version = "", .domain = "", .doc = ""};
}

bool ir_metadata_add(ir_graph *g, const char *key, const char *value)
{
    ir_pair pair = {arena_strdup(g->memory, key), arena_strdup(g->memory, value)};
    return pair.key && pair.value && vec_push(g->memory, &g->about.metadata, pair);
}

/* A name not yet in `names`: the stem itself, or the stem with a number. */
static const char *unique_name(ir_graph *g, const map *names, const char *stem)
{
    if (stem && *stem && !map_get(names, stem))
        return arena_strdup(g->memory, stem);
    for (;;) {
        const char *name = arena_printf(g->memory, "%s_%u", stem && *stem ? stem : "v", g->fresh++);
        if (!name || !map_get(names, name))
            return name;
    }
}

const char *ir_fresh_name(ir_graph *g, const char *stem)
{
    return unique_name(g, &g->value_names, stem);
}

const char *ir_fresh_node_name(ir_graph *g, const char *stem)
{
    return unique_name(g, &g->node_names, stem);
}

ir_value *ir_value_new(ir_graph *g, const char *name, const ir_type *type)
{
    ir_value *v = ARENA_NEW(g->memory, ir_value);
    if (!v)
        return NULL;
    v->name = ir_fresh_name(g, name);
    if (type)
        v->type = *type;
    else
        v->type.shape.rank = -1;
    v->id = g->values.count;
    g->version++;
    if (!v->name || !vec_push(g->memory, &g->values, v) || !map_put(&g->value_names, v->name, v))
        return NULL;
    return v;
}

ir_value *ir_input_new(ir_graph *g, const char *name, const ir_type *type)
{
    ir_value *v = ir_value_new(g, name, type);
    if (!v || !vec_push(g->memory, &g->inputs, v))
        return NULL;
    v->is_input = true;
    return v;
}

ir_value *ir_constant_new(ir_graph *g, const char *name, const ir_tensor *data)
{
    ir_type type = ir_tensor_type(data);
    ir_value *v = ir_value_new(g, name, &type);
    if (!v)
        return NULL;
    v->constant = data;
    v->is_initializer = true;
    return v;
}

ir_value *ir_constant_i64(ir_graph *g, const char *name, int32_t rank, int64_t count,
                          const int64_t *values)
{
    ir_shape shape = ir_shape_of(rank, &count);
    ir_tensor *t = ir_tensor_new(g->memory, TACIT_I64, &shape);
    if (!t)
        return NULL;
    if (count)
        memcpy(t->data, values, (size_t)count * sizeof *values);
    return ir_constant_new(g, name, t);
}

ir_value *ir_constant_f32(ir_graph *g, const char *name, float value)
{
    ir_tensor *t = ir_tensor_new(g->memory, TACIT_F32, &(ir_shape){.rank = 0});
    if (!t)
        return NULL;
    *(float *)t->data = value;
    return ir_constant_new(g, name, t);
}

bool ir_output_add(ir_graph *g, ir_value *value)
{
    g->version++;
    return vec_push(g->memory, &g->outputs, value);
}

static bool make_outputs(ir_graph *g, ir_node *n, const char *const *names)
{
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        if (names && !names[i])
            continue;
        ir_value *v = ir_value_new(g, names ? names[i] : n->name, NULL);
        if (!v)
            return false;
        v->producer = n;
        v->output_index = i;
        n->outputs[i] = v;
    }
    return true;
}

ir_node *ir_node_new(ir_graph *g, const char *type, const char *domain, const char *name,
                     uint32_t n_inputs, ir_value *const *inputs, uint32_t n_outputs,
                     const char *const *output_names)
{
    ir_node *n = ARENA_NEW(g->memory, ir_node);
    if (!n)
        return NULL;
    n->type = arena_strdup(g->memory, type);
    n->domain = arena_strdup(g->memory, domain ? domain : "");
    n->name = ir_fresh_node_name(g, name && *name ? name : type);
    n->n_inputs = n->n_explicit = n_inputs;
    n->n_outputs = n_outputs;
    n->inputs = ARENA_ARRAY(g->memory, n_inputs, ir_value *);
    n->outputs = ARENA_ARRAY(g->memory, n_outputs, ir_value *);
    if (!n->type || !n->domain || !n->name || !n->inputs || !n->outputs)
        return NULL;
    if (n_inputs)
        memcpy(n->inputs, inputs, n_inputs * sizeof *inputs);
    n->id = g->nodes.count;
    g->version++;
    if (!make_outputs(g, n, output_names) || !map_put(&g->node_names, n->name, n) ||
        !vec_push(g->memory, &g->nodes, n))
        return NULL;
    return n;
}

bool ir_node_append_capture(ir_graph *g, ir_node *node, ir_value *outer)
{
    ir_value **larger = ARENA_ARRAY(g->memory, node->n_inputs + 1u, ir_value *);
    if (!larger)
        return false;
    if (node->n_inputs)
        memcpy(larger, node->inputs, node->n_inputs * sizeof *larger);
    larger[node->n_inputs++] = outer;
    g->version++;
    node->inputs = larger;
    return true;
}

void ir_node_note(ir_graph *g, ir_node *node, const char *pass, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    ir_note *note = ARENA_NEW(g->memory, ir_note);
    const char *copy = arena_strdup(g->memory, text);
    if (!note || !copy)
        return;
    *note = (ir_note){.next = node->notes, .pass = pass, .text = copy};
    node->notes = note;
}

static void inherit_oldest_first(ir_graph *g, ir_node *to, const ir_note *n)
{
    if (!n)
        return;
    inherit_oldest_first(g, to, n->next);
    ir_node_note(g, to, n->pass, "%s", n->text);
}

void ir_node_inherit_notes(ir_graph *g, ir_node *to, const ir_node *from)
{
    inherit_oldest_first(g, to, from->notes);
}

int64_t ir_symbol_index(ir_graph *g, const char *name)
{
    ir_graph *top = g;
    while (top->parent)
        top = top->parent;
    for (uint32_t i = 0; i < top->symbols.count; i++)
        if (strcmp(top->symbols.data[i].name, name) == 0)
            return i;
    const char *copy = arena_strdup(top->memory, name);
    if (!copy || !vec_push(top->memory, &top->symbols, (ir_symbol){copy, -1}))
        return -1;
    return top->symbols.count - 1;
}

ir_value *ir_value_find(const ir_graph *g, const char *name)
{
    return map_get(&g->value_names, name);
}
