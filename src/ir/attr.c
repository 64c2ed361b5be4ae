/* SPDX-License-Identifier: Apache-2.0
 * Node attributes. */
#include <string.h>

#include "ir/graph.h"

const ir_attr *ir_attr_find(const ir_node *node, const char *name)
{
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].name[0] == name[0] && strcmp(node->attrs[i].name, name) == 0)
            return &node->attrs[i];
    return NULL;
}

static const ir_attr *find_kind(const ir_node *node, const char *name, ir_attr_kind kind)
{
    const ir_attr *a = ir_attr_find(node, name);
    return a && a->kind == kind ? a : NULL;
}

int64_t ir_attr_int(const ir_node *node, const char *name, int64_t fallback)
{
    const ir_attr *a = find_kind(node, name, IR_ATTR_INT);
    return a ? a->i : fallback;
}

double ir_attr_float(const ir_node *node, const char *name, double fallback)
{
    const ir_attr *a = find_kind(node, name, IR_ATTR_FLOAT);
    return a ? a->f : fallback;
}

const char *ir_attr_string(const ir_node *node, const char *name, const char *fallback)
{
    const ir_attr *a = find_kind(node, name, IR_ATTR_STRING);
    return a ? a->s.data : fallback;
}

const int64_t *ir_attr_ints(const ir_node *node, const char *name, uint32_t *count)
{
    const ir_attr *a = find_kind(node, name, IR_ATTR_INTS);
    *count = a ? a->count : 0;
    return a ? a->ints : NULL;
}

const double *ir_attr_floats(const ir_node *node, const char *name, uint32_t *count)
{
    const ir_attr *a = find_kind(node, name, IR_ATTR_FLOATS);
    *count = a ? a->count : 0;
    return a ? a->floats : NULL;
}

const ir_string *ir_attr_strings(const ir_node *node, const char *name, uint32_t *count)
{
    const ir_attr *a = find_kind(node, name, IR_ATTR_STRINGS);
    *count = a ? a->count : 0;
    return a ? a->strings : NULL;
}

const ir_tensor *ir_attr_tensor(const ir_node *node, const char *name)
{
    const ir_attr *a = find_kind(node, name, IR_ATTR_TENSOR);
    return a ? a->tensor : NULL;
}

ir_graph *ir_attr_graph(const ir_node *node, const char *name)
{
    const ir_attr *a = find_kind(node, name, IR_ATTR_GRAPH);
    return a ? a->graph : NULL;
}

bool ir_attr_set(ir_graph *g, ir_node *node, const ir_attr *attr)
{
    ir_attr *larger = ARENA_ARRAY(g->memory, node->n_attrs + 1u, ir_attr);
    const char *name = arena_strdup(g->memory, attr->name);
    if (!larger || !name)
        return false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(node->attrs[i].name, name) != 0)
            larger[n++] = node->attrs[i];
    larger[n] = *attr;
    larger[n++].name = name;
    node->attrs = larger;
    node->n_attrs = n;
    return true;
}

bool ir_attr_set_int(ir_graph *g, ir_node *node, const char *name, int64_t value)
{
    return ir_attr_set(g, node, &(ir_attr){.name = name, .kind = IR_ATTR_INT, .i = value});
}

bool ir_attr_set_float(ir_graph *g, ir_node *node, const char *name, double value)
{
    return ir_attr_set(g, node, &(ir_attr){.name = name, .kind = IR_ATTR_FLOAT, .f = value});
}

bool ir_attr_set_string(ir_graph *g, ir_node *node, const char *name, const char *value)
{
    ir_string s = {arena_strdup(g->memory, value), strlen(value)};
    return s.data && ir_attr_set(g, node, &(ir_attr){.name = name, .kind = IR_ATTR_STRING, .s = s});
}

bool ir_attr_set_ints(ir_graph *g, ir_node *node, const char *name, uint32_t count,
                      const int64_t *values)
{
    const int64_t *copy = arena_copy(g->memory, values, count * sizeof *values);
    ir_attr a = {.name = name, .kind = IR_ATTR_INTS, .count = count, .ints = copy};
    return copy && ir_attr_set(g, node, &a);
}

bool ir_attr_copy_all(ir_graph *g, ir_node *to, const ir_node *from)
{
    for (uint32_t i = 0; i < from->n_attrs; i++)
        if (!ir_attr_set(g, to, &from->attrs[i]))
            return false;
    return true;
}

void ir_attr_remove(ir_node *node, const char *name)
{
    ir_attr *attrs = (ir_attr *)node->attrs;
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (strcmp(attrs[i].name, name) != 0)
            attrs[n++] = attrs[i];
    node->n_attrs = n;
}

tacit_status ir_node_subgraphs(const ir_node *node,
                               tacit_status (*visit)(void *context, ir_graph *sub), void *context)
{
    for (uint32_t i = 0; i < node->n_attrs; i++) {
        const ir_attr *a = &node->attrs[i];
        if (a->kind == IR_ATTR_GRAPH)
            TRY(visit(context, a->graph));
        if (a->kind == IR_ATTR_GRAPHS)
            for (uint32_t k = 0; k < a->count; k++)
                TRY(visit(context, a->graphs[k]));
    }
    return TACIT_OK;
}

bool ir_node_has_subgraph(const ir_node *node)
{
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].kind == IR_ATTR_GRAPH || node->attrs[i].kind == IR_ATTR_GRAPHS)
            return true;
    return false;
}
