/* SPDX-License-Identifier: Apache-2.0
 * The messages of an ONNX file: tensors, types, attributes, nodes, graphs. */
#include <string.h>

#include "load/onnx_writer.h"

/* --- tensors and types ------------------------------------------------------------------------ */

void onnx_put_tensor_head(sbuf *b, const ir_tensor *t, const char *name)
{
    for (int32_t i = 0; i < t->shape.rank; i++)
        wire_put_int(b, 1, t->shape.dims[i]);
    wire_put_int(b, 2, ir_dtype_to_onnx(t->dtype));
    if (name && *name)
        wire_put_text(b, 8, name);
    const ir_string *strings = t->data;
    for (int64_t i = 0, n = t->dtype == TACIT_STRING ? ir_tensor_count(t) : 0; i < n; i++)
        wire_put_bytes(b, 6, strings[i].data ? strings[i].data : "", strings[i].length);
}

static void put_tensor_fields(sbuf *b, const ir_tensor *t, const char *name)
{
    onnx_put_tensor_head(b, t, name);
    if (t->dtype != TACIT_STRING)
        wire_put_bytes(b, 9, t->data, t->bytes);
}

void onnx_put_tensor(sbuf *b, uint32_t field, const ir_tensor *t, const char *name)
{
    size_t start = wire_begin(b, field);
    put_tensor_fields(b, t, name);
    wire_end(b, start);
}

static void put_sequence_fields(sbuf *b, const ir_tensor *t)
{
    wire_put_int(b, 2, 1); /* of tensors */
    for (uint32_t i = 0; i < t->count; i++)
        onnx_put_tensor(b, 3, &t->items[i], NULL);
}

tacit_status load_onnx_encode_value(const ir_tensor *t, sbuf *out, tacit_error *err)
{
    size_t start;
    switch (t->kind) {
    case IR_TENSOR:
        put_tensor_fields(out, t, NULL);
        break;
    case IR_SEQUENCE:
        put_sequence_fields(out, t);
        break;
    case IR_OPTIONAL:
        wire_put_int(out, 2, t->present ? 1 : 0);
        if (t->present)
            onnx_put_tensor(out, 3, t, NULL);
        break;
    case IR_OPTIONAL_SEQUENCE:
        wire_put_int(out, 2, t->present ? 3 : 0);
        if (!t->present)
            break;
        start = wire_begin(out, 5);
        put_sequence_fields(out, t);
        wire_end(out, start);
        break;
    default:
        return error_set(err, TACIT_ERR_UNSUPPORTED, "maps cannot be written");
    }
    return out->failed ? error_memory(err, "a tensor file") : TACIT_OK;
}

static void put_shape(const onnx_writer *w, sbuf *b, const ir_shape *s)
{
    size_t shape = wire_begin(b, 2);
    for (int32_t i = 0; i < s->rank; i++) {
        size_t dim = wire_begin(b, 1);
        if (s->dims[i] >= 0)
            wire_put_int(b, 1, s->dims[i]);
        else if (s->dims[i] != IR_DIM_UNKNOWN && -1 - s->dims[i] < w->top->symbols.count)
            wire_put_text(b, 2, w->top->symbols.data[-1 - s->dims[i]].name);
        wire_end(b, dim);
    }
    wire_end(b, shape);
}

static void put_tensor_type(const onnx_writer *w, sbuf *b, const ir_type *type)
{
    size_t start = wire_begin(b, 1);
    wire_put_int(b, 1, ir_dtype_to_onnx(type->dtype));
    if (type->shape.rank >= 0)
        put_shape(w, b, &type->shape);
    wire_end(b, start);
}

static void put_type_fields(const onnx_writer *w, sbuf *b, const ir_type *type)
{
    ir_type inner = *type;
    size_t outer, element;
    switch (type->kind) {
    case IR_TENSOR:
        put_tensor_type(w, b, type);
        return;
    case IR_SEQUENCE:
        inner.kind = IR_TENSOR;
        outer = wire_begin(b, 4);
        break;
    case IR_MAP: /* keys are not kept in the type: i64, as every op that makes maps */
        inner.kind = IR_TENSOR;
        outer = wire_begin(b, 5);
        wire_put_int(b, 1, ir_dtype_to_onnx(TACIT_I64));
        element = wire_begin(b, 2);
        put_tensor_type(w, b, &inner);
        wire_end(b, element);
        wire_end(b, outer);
        return;
    default:
        inner.kind = type->kind == IR_OPTIONAL ? IR_TENSOR : IR_SEQUENCE;
        outer = wire_begin(b, 9);
        break;
    }
    element = wire_begin(b, 1);
    put_type_fields(w, b, &inner);
    wire_end(b, element);
    wire_end(b, outer);
}

void onnx_put_type(const onnx_writer *w, sbuf *b, uint32_t field, const ir_type *type)
{
    size_t start = wire_begin(b, field);
    put_type_fields(w, b, type);
    wire_end(b, start);
}

void onnx_put_value_info(const onnx_writer *w, sbuf *b, uint32_t field, const char *name,
                         const ir_type *type)
{
    size_t start = wire_begin(b, field);
    wire_put_text(b, 1, name);
    if (type->dtype != TACIT_DTYPE_NONE)
        onnx_put_type(w, b, 2, type);
    wire_end(b, start);
}

/* --- names ------------------------------------------------------------------------------------ */

static const char *claim(onnx_writer *w, const char *name)
{
    const char *own = arena_strdup(w->scratch, name);
    while (own && map_get(&w->taken, own))
        own = arena_printf(w->scratch, "%s_%u", name, w->fresh++);
    return own && map_put(&w->taken, own, w) ? own : NULL;
}

tacit_status onnx_scope_open(onnx_writer *w, write_scope *s, const ir_graph *g,
                             const write_scope *parent, const char *const *captured)
{
    *s = (write_scope){.parent = parent, .graph = g};
    s->names = ARENA_ARRAY(w->scratch, g->values.count + 1u, const char *);
    if (!s->names)
        return error_memory(w->err, "names");
    for (uint32_t k = 0; k < g->captures.count; k++)
        if (g->captures.data[k])
            s->names[g->captures.data[k]->id] = captured[k];
    for (uint32_t i = 0; i < g->values.count; i++)
        if (!s->names[i] && !(s->names[i] = claim(w, g->values.data[i]->name)))
            return error_memory(w->err, "names");
    return TACIT_OK;
}

/* --- attributes ------------------------------------------------------------------------------- */

/* A subgraph with everything inside, its weights too. */
static tacit_status put_subgraph(onnx_writer *w, sbuf *b, uint32_t field, const write_scope *outer,
                                 const ir_node *node, const ir_graph *g)
{
    uint32_t n = node->n_inputs - node->n_explicit;
    const char **captured = ARENA_ARRAY(w->scratch, n + g->captures.count + 1u, const char *);
    if (!captured)
        return error_memory(w->err, "names");
    for (uint32_t k = 0; k < n; k++)
        if (node->inputs[node->n_explicit + k])
            captured[k] = outer->names[node->inputs[node->n_explicit + k]->id];
    write_scope inner;
    TRY(onnx_scope_open(w, &inner, g, outer, captured));
    size_t start = wire_begin(b, field);
    TRY(onnx_put_graph(w, b, &inner));
    for (uint32_t i = 0; i < g->values.count; i++) {
        const ir_value *v = g->values.data[i];
        if (!v->is_initializer)
            continue;
        if (!ir_value_known(v))
            return error_set(w->err, TACIT_ERR_STATE, "weight '%s' has no data", v->name);
        onnx_put_tensor(b, 5, v->constant, inner.names[i]);
    }
    wire_end(b, start);
    return TACIT_OK;
}

static void put_numbers(sbuf *b, const ir_attr *a)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (a->kind == IR_ATTR_INTS)
            wire_put_int(b, 8, a->ints[i]);
        else if (a->kind == IR_ATTR_FLOATS)
            wire_put_f32(b, 7, (float)a->floats[i]);
        else
            wire_put_bytes(b, 9, a->strings[i].data, a->strings[i].length);
}

static tacit_status put_attr_value(onnx_writer *w, sbuf *b, const write_scope *scope,
                                   const ir_node *node, const ir_attr *a)
{
    switch (a->kind) {
    case IR_ATTR_INT:
        wire_put_int(b, 3, a->i);
        return TACIT_OK;
    case IR_ATTR_FLOAT:
        wire_put_f32(b, 2, (float)a->f);
        return TACIT_OK;
    case IR_ATTR_STRING:
        wire_put_bytes(b, 4, a->s.data, a->s.length);
        return TACIT_OK;
    case IR_ATTR_TENSOR:
        onnx_put_tensor(b, 5, a->tensor, NULL);
        return TACIT_OK;
    case IR_ATTR_TYPE:
        onnx_put_type(w, b, 14, &a->type);
        return TACIT_OK;
    case IR_ATTR_TENSORS:
        for (uint32_t i = 0; i < a->count; i++)
            onnx_put_tensor(b, 10, a->tensors[i], NULL);
        return TACIT_OK;
    case IR_ATTR_GRAPH:
        return put_subgraph(w, b, 6, scope, node, a->graph);
    case IR_ATTR_GRAPHS:
        for (uint32_t i = 0; i < a->count; i++)
            TRY(put_subgraph(w, b, 11, scope, node, a->graphs[i]));
        return TACIT_OK;
    default:
        put_numbers(b, a);
        return TACIT_OK;
    }
}

static tacit_status put_attr(onnx_writer *w, sbuf *b, const write_scope *scope, const ir_node *node,
                             const ir_attr *a)
{
    static const uint8_t codes[] = {
        [IR_ATTR_INT] = 2,     [IR_ATTR_FLOAT] = 1,   [IR_ATTR_STRING] = 3,  [IR_ATTR_TENSOR] = 4,
        [IR_ATTR_GRAPH] = 5,   [IR_ATTR_TYPE] = 13,   [IR_ATTR_INTS] = 7,    [IR_ATTR_FLOATS] = 6,
        [IR_ATTR_STRINGS] = 8, [IR_ATTR_TENSORS] = 9, [IR_ATTR_GRAPHS] = 10,
    };
    size_t start = wire_begin(b, 5);
    wire_put_text(b, 1, a->name);
    wire_put_int(b, 20, codes[a->kind]);
    TRY(put_attr_value(w, b, scope, node, a));
    wire_end(b, start);
    return TACIT_OK;
}

/* --- nodes and graphs ------------------------------------------------------------------------- */

static void put_names(sbuf *b, uint32_t field, const write_scope *scope, ir_value *const *values,
                      uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        wire_put_text(b, field, values[i] ? scope->names[values[i]->id] : "");
}

static tacit_status put_node(onnx_writer *w, sbuf *b, const write_scope *scope, const ir_node *n)
{
    size_t start = wire_begin(b, 1);
    put_names(b, 1, scope, n->inputs, n->n_explicit);
    put_names(b, 2, scope, n->outputs, n->n_outputs);
    wire_put_text(b, 3, n->name);
    wire_put_text(b, 4, n->type);
    if (*n->domain)
        wire_put_text(b, 7, n->domain);
    for (uint32_t i = 0; i < n->n_attrs; i++)
        TRY(put_attr(w, b, scope, n, &n->attrs[i]));
    wire_end(b, start);
    return TACIT_OK;
}

static void put_identity(sbuf *b, const char *from, const char *to)
{
    size_t start = wire_begin(b, 1);
    wire_put_text(b, 1, from);
    wire_put_text(b, 2, to);
    wire_put_text(b, 4, "Identity");
    wire_end(b, start);
}

/* Peers want outputs that differ from each other, and inside subgraphs outputs that a node there
 * makes: an Identity stands in where the graph has it otherwise. */
static tacit_status put_outputs(onnx_writer *w, sbuf *b, const write_scope *scope)
{
    const ir_graph *g = scope->graph;
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        const ir_value *v = g->outputs.data[i];
        const char *name = scope->names[v->id];
        bool again = false;
        for (uint32_t k = 0; k < i && !again; k++)
            again = g->outputs.data[k] == v;
        if (again || (g->parent && !v->producer)) {
            const char *copy = claim(w, name);
            if (!copy)
                return error_memory(w->err, "names");
            put_identity(b, name, copy);
            name = copy;
        }
        onnx_put_value_info(w, b, 12, name, &v->type);
    }
    return TACIT_OK;
}

tacit_status onnx_put_graph(onnx_writer *w, sbuf *b, const write_scope *scope)
{
    const ir_graph *g = scope->graph;
    wire_put_text(b, 2, *g->name ? g->name : "graph");
    if (*g->doc)
        wire_put_text(b, 10, g->doc);
    for (uint32_t i = 0; i < g->inputs.count; i++)
        onnx_put_value_info(w, b, 11, scope->names[g->inputs.data[i]->id],
                            &g->inputs.data[i]->type);
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        tacit_status status = put_node(w, b, scope, g->nodes.data[i]);
        if (status != TACIT_OK)
            return error_context(w->err, status, "node '%s'", g->nodes.data[i]->name);
    }
    return put_outputs(w, b, scope);
}
