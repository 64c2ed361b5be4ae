/* SPDX-License-Identifier: Apache-2.0
 * AttributeProto: every kind, references to a function's attributes, graphs inside. */
#include <string.h>

#include "load/onnx_reader.h"

/* AttributeProto.AttributeType */
enum {
    TYPE_UNDEFINED,
    TYPE_FLOAT,
    TYPE_INT,
    TYPE_STRING,
    TYPE_TENSOR,
    TYPE_GRAPH,
    TYPE_FLOATS,
    TYPE_INTS,
    TYPE_STRINGS,
    TYPE_TENSORS,
    TYPE_GRAPHS,
    TYPE_SPARSE_TENSOR,
    TYPE_SPARSE_TENSORS,
    TYPE_TYPE,
    TYPE_TYPES,
};

typedef struct attr_proto {
    wire_span all, s, t, g, sparse, tp;
    const char *name, *reference;
    int64_t type, i;
    float f;
    int64_t guessed; /* the type that the fields present suggest (files before IR version 2) */
    onnx_spans strings, tensors, graphs;
    uint64_t n_ints, n_floats;
} attr_proto;

static tacit_status push(onnx_reader *r, const wire *w, const wire_field *f, onnx_spans *list)
{
    wire_span bytes;
    TRY(wire_bytes(w, f, &bytes, r->err));
    TRY(onnx_charge(r, 0));
    return vec_push(r->scratch, list, bytes) ? TACIT_OK : error_memory(r->err, "an attribute");
}

static tacit_status count_numbers(onnx_reader *r, const wire *w, const wire_field *f,
                                  wire_type element, uint64_t *count)
{
    wire_packed p;
    uint64_t n;
    TRY(wire_packed_open(w, f, element, &p, r->err));
    if (!wire_packed_count(&p, &n))
        return error_set(r->err, TACIT_ERR_FORMAT, "attribute: a list of numbers is cut short");
    *count += n;
    return TACIT_OK;
}

static tacit_status attr_text(onnx_reader *r, const wire *w, const wire_field *f, const char **out)
{
    wire_span bytes;
    TRY(wire_bytes(w, f, &bytes, r->err));
    return onnx_text(r, bytes, out);
}

static tacit_status attr_field(onnx_reader *r, const wire *w, const wire_field *f, attr_proto *a)
{
    static const uint8_t type_of_field[24] = {
        [2] = TYPE_FLOAT,    [3] = TYPE_INT,     [4] = TYPE_STRING, [5] = TYPE_TENSOR,
        [6] = TYPE_GRAPH,    [7] = TYPE_FLOATS,  [8] = TYPE_INTS,   [9] = TYPE_STRINGS,
        [10] = TYPE_TENSORS, [11] = TYPE_GRAPHS, [14] = TYPE_TYPE,  [22] = TYPE_SPARSE_TENSOR,
    };
    if (f->number < 24 && type_of_field[f->number])
        a->guessed = type_of_field[f->number];
    switch (f->number) {
    case 1:
        return attr_text(r, w, f, &a->name);
    case 21:
        return attr_text(r, w, f, &a->reference);
    case 20:
        return wire_int(w, f, &a->type, r->err);
    case 2:
        return wire_f32(w, f, &a->f, r->err);
    case 3:
        return wire_int(w, f, &a->i, r->err);
    case 4:
        return wire_bytes(w, f, &a->s, r->err);
    case 5:
        return wire_bytes(w, f, &a->t, r->err);
    case 6:
        return wire_bytes(w, f, &a->g, r->err);
    case 7:
        return count_numbers(r, w, f, WIRE_FIXED32, &a->n_floats);
    case 8:
        return count_numbers(r, w, f, WIRE_VARINT, &a->n_ints);
    case 9:
        return push(r, w, f, &a->strings);
    case 10:
        return push(r, w, f, &a->tensors);
    case 11:
        return push(r, w, f, &a->graphs);
    case 14:
        return wire_bytes(w, f, &a->tp, r->err);
    case 22:
        return wire_bytes(w, f, &a->sparse, r->err);
    default:
        return TACIT_OK;
    }
}

static tacit_status scan_attr(onnx_reader *r, wire_span proto, attr_proto *a)
{
    *a = (attr_proto){.all = proto, .name = "", .reference = ""};
    wire w = wire_open(proto, "attribute");
    wire_field f;
    while (wire_next(&w, &f, r->err))
        TRY(attr_field(r, &w, &f, a));
    TRY(wire_status(&w));
    if (!*a->name)
        return error_set(r->err, TACIT_ERR_FORMAT, "an attribute has no name");
    if (a->type == TYPE_UNDEFINED)
        a->type = a->guessed;
    return TACIT_OK;
}

/* ints and floats: one walk over the message fills the array that the scan counted. */
static tacit_status number_list(onnx_reader *r, const attr_proto *a, ir_attr *out)
{
    bool ints = a->type == TYPE_INTS;
    uint64_t n = ints ? a->n_ints : a->n_floats, k = 0;
    TRY(onnx_charge(r, n * 8));
    int64_t *list = ARENA_ARRAY(r->memory, n + 1, int64_t);
    double *floats = (double *)list;
    if (!list || n > UINT32_MAX)
        return error_memory(r->err, "a list of numbers");
    wire w = wire_open(a->all, "attribute");
    wire_field f;
    while (wire_next(&w, &f, r->err)) {
        wire_packed p;
        uint64_t value;
        if (f.number != (ints ? 8u : 7u))
            continue;
        TRY(wire_packed_open(&w, &f, ints ? WIRE_VARINT : WIRE_FIXED32, &p, r->err));
        while (wire_packed_next(&p, &value)) {
            uint32_t bits = (uint32_t)value;
            float single;
            memcpy(&single, &bits, sizeof single);
            if (ints)
                list[k++] = (int64_t)value;
            else
                floats[k++] = single;
        }
    }
    TRY(wire_status(&w));
    out->kind = ints ? IR_ATTR_INTS : IR_ATTR_FLOATS;
    out->count = (uint32_t)n;
    if (ints)
        out->ints = list;
    else
        out->floats = floats;
    return TACIT_OK;
}

static tacit_status keep_string(onnx_reader *r, wire_span s, ir_string *out)
{
    TRY(onnx_charge(r, s.size));
    out->data = arena_strndup(r->memory, s.size ? (const char *)s.data : "", s.size);
    out->length = s.size;
    return out->data ? TACIT_OK : error_memory(r->err, "a string");
}

static tacit_status string_list(onnx_reader *r, const attr_proto *a, ir_attr *out)
{
    ir_string *list = ARENA_ARRAY(r->memory, a->strings.count + 1u, ir_string);
    if (!list)
        return error_memory(r->err, "a list of strings");
    for (uint32_t i = 0; i < a->strings.count; i++)
        TRY(keep_string(r, a->strings.data[i], &list[i]));
    out->kind = IR_ATTR_STRINGS;
    out->count = a->strings.count;
    out->strings = list;
    return TACIT_OK;
}

static tacit_status keep_tensor(onnx_reader *r, wire_span proto, bool sparse, const ir_tensor **out)
{
    ir_tensor *t = ARENA_NEW(r->memory, ir_tensor);
    if (!t)
        return error_memory(r->err, "a tensor");
    TRY(sparse ? onnx_sparse_tensor(r, proto, t, NULL) : onnx_tensor(r, proto, t, NULL));
    *out = t;
    return TACIT_OK;
}

static tacit_status tensor_list(onnx_reader *r, const attr_proto *a, ir_attr *out)
{
    const ir_tensor **list = ARENA_ARRAY(r->memory, a->tensors.count + 1u, const ir_tensor *);
    if (!list)
        return error_memory(r->err, "a list of tensors");
    for (uint32_t i = 0; i < a->tensors.count; i++)
        TRY(keep_tensor(r, a->tensors.data[i], false, &list[i]));
    out->kind = IR_ATTR_TENSORS;
    out->count = a->tensors.count;
    out->tensors = list;
    return TACIT_OK;
}

static tacit_status read_subgraph(onnx_reader *r, onnx_scope *outer, ir_node *owner,
                                  wire_span proto, ir_graph **out)
{
    if (!owner)
        return error_set(r->err, TACIT_ERR_UNSUPPORTED,
                         "graphs as attributes of functions are not supported");
    if (r->nesting >= ONNX_MAX_NESTING)
        return error_set(r->err, TACIT_ERR_LIMIT, "graphs are nested more than %d deep",
                         ONNX_MAX_NESTING);
    ir_graph *g = ir_graph_new(r->memory, "body");
    if (!g)
        return error_memory(r->err, "a subgraph");
    g->parent = outer->graph;
    onnx_scope scope = {.graph = g,
                        .parent = outer,
                        .owner = owner,
                        .opsets = outer->opsets,
                        .n_opsets = outer->n_opsets,
                        .call_attrs = outer->call_attrs,
                        .n_call_attrs = outer->n_call_attrs,
                        .function = outer->function};
    map_init(&scope.names, r->scratch);
    map_init(&scope.promised, r->scratch);
    r->nesting++;
    tacit_status status = onnx_graph(r, proto, &scope, ONNX_DIMS_OPEN);
    r->nesting--;
    *out = g;
    return status;
}

static tacit_status graph_list(onnx_reader *r, onnx_scope *scope, ir_node *owner,
                               const attr_proto *a, ir_attr *out)
{
    ir_graph **list = ARENA_ARRAY(r->memory, a->graphs.count + 1u, ir_graph *);
    if (!list)
        return error_memory(r->err, "a list of graphs");
    for (uint32_t i = 0; i < a->graphs.count; i++)
        TRY(read_subgraph(r, scope, owner, a->graphs.data[i], &list[i]));
    out->kind = IR_ATTR_GRAPHS;
    out->count = a->graphs.count;
    out->graphs = list;
    return TACIT_OK;
}

static tacit_status attr_value(onnx_reader *r, onnx_scope *scope, ir_node *owner,
                               const attr_proto *a, ir_attr *out)
{
    switch (a->type) {
    case TYPE_FLOAT:
        out->kind = IR_ATTR_FLOAT;
        out->f = a->f;
        return TACIT_OK;
    case TYPE_INT:
        out->kind = IR_ATTR_INT;
        out->i = a->i;
        return TACIT_OK;
    case TYPE_STRING:
        out->kind = IR_ATTR_STRING;
        return keep_string(r, a->s, &out->s);
    case TYPE_TENSOR:
        out->kind = IR_ATTR_TENSOR;
        return keep_tensor(r, a->t, false, &out->tensor);
    case TYPE_SPARSE_TENSOR:
        out->kind = IR_ATTR_TENSOR;
        return keep_tensor(r, a->sparse, true, &out->tensor);
    case TYPE_GRAPH:
        out->kind = IR_ATTR_GRAPH;
        return read_subgraph(r, scope, owner, a->g, &out->graph);
    case TYPE_TYPE:
        out->kind = IR_ATTR_TYPE;
        return onnx_type(r, a->tp, ONNX_DIMS_OPEN, a->name, &out->type);
    case TYPE_FLOATS:
    case TYPE_INTS:
        return number_list(r, a, out);
    case TYPE_STRINGS:
        return string_list(r, a, out);
    case TYPE_TENSORS:
        return tensor_list(r, a, out);
    case TYPE_GRAPHS:
        return graph_list(r, scope, owner, a, out);
    default:
        return error_set(r->err, TACIT_ERR_UNSUPPORTED, "kind %lld is not supported",
                         (long long)a->type);
    }
}

tacit_status onnx_attribute(onnx_reader *r, onnx_scope *scope, ir_node *owner, wire_span proto,
                            ir_attr *out, bool *present)
{
    attr_proto a;
    *present = true;
    TRY(scan_attr(r, proto, &a));
    const char *name = arena_strdup(r->memory, a.name);
    if (!name)
        return error_memory(r->err, "an attribute");
    *out = (ir_attr){.name = name};
    if (!*a.reference) {
        tacit_status status = attr_value(r, scope, owner, &a, out);
        return status == TACIT_OK || !onnx_may_explain(r)
                   ? status
                   : error_context(r->err, status, "attribute '%s'", a.name);
    }
    if (!scope->function)
        return error_set(r->err, TACIT_ERR_GRAPH,
                         "attribute '%s' refers to '%s' outside of any function", a.name,
                         a.reference);
    *present = false;
    for (uint32_t i = 0; i < scope->n_call_attrs && !*present; i++)
        if (strcmp(scope->call_attrs[i].name, a.reference) == 0) {
            *out = scope->call_attrs[i];
            out->name = name;
            *present = true;
        }
    return TACIT_OK;
}
