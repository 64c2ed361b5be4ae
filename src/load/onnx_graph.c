/* SPDX-License-Identifier: Apache-2.0
 *
 * GraphProto and NodeProto. Nodes are read in two walks, so that their order in the file does not
 * matter: the first makes every node and names its outputs, the second finds inputs, reads
 * attributes (subgraphs capture what the first walk named), inlines calls and upgrades old forms.
 */
#include <string.h>

#include "load/onnx_reader.h"
#include "load/upgrade.h"

tacit_status onnx_define(onnx_reader *r, onnx_scope *scope, const char *name, ir_value *value)
{
    if (!*name)
        return error_set(r->err, TACIT_ERR_GRAPH, "a value has no name");
    if (map_get(&scope->names, name))
        return error_set(r->err, TACIT_ERR_GRAPH, "two values are named '%s'", name);
    return map_put(&scope->names, name, value) ? TACIT_OK : error_memory(r->err, "a value");
}

/* `outer` as seen from inside `scope`: a capture of the node that owns the subgraph. */
static tacit_status capture(onnx_reader *r, onnx_scope *scope, const char *name, ir_value *outer,
                            ir_value **out)
{
    ir_node *owner = scope->owner;
    uint32_t k = owner->n_explicit;
    while (k < owner->n_inputs && owner->inputs[k] != outer)
        k++;
    TRY(onnx_charge(r, 0));
    if (k == owner->n_inputs && !ir_node_append_capture(scope->parent->graph, owner, outer))
        return error_memory(r->err, "a captured value");
    ir_graph *g = scope->graph;
    k -= owner->n_explicit;
    while (g->captures.count <= k)
        if (!vec_push(r->memory, &g->captures, NULL))
            return error_memory(r->err, "a captured value");
    ir_value *v = ir_value_new(g, name, &outer->type);
    if (!v)
        return error_memory(r->err, "a captured value");
    v->constant = outer->constant;
    g->captures.data[k] = v;
    *out = v;
    return onnx_define(r, scope, name, v);
}

tacit_status onnx_lookup(onnx_reader *r, onnx_scope *scope, const char *name, ir_value **out)
{
    ir_value *v = map_get(&scope->names, name);
    *out = v == ONNX_ABSENT ? NULL : v;
    if (v)
        return TACIT_OK;
    if (!scope->parent)
        return error_set(r->err, TACIT_ERR_GRAPH, "nothing produces the value '%s'", name);
    ir_value *outer;
    TRY(onnx_lookup(r, scope->parent, name, &outer));
    return outer ? capture(r, scope, name, outer, out) : TACIT_OK;
}

/* --- nodes ------------------------------------------------------------------------------------ */

typedef struct node_proto {
    const char *type, *domain, *overload, *name;
    onnx_spans inputs, outputs, attrs;
    onnx_function *function; /* a call, else NULL */
    ir_node *node;           /* made by the first walk; NULL for calls and Constants */
    ir_value **results;      /* of a call */
} node_proto;

static tacit_status node_text(onnx_reader *r, const wire *w, const wire_field *f, const char **out)
{
    wire_span bytes;
    TRY(wire_bytes(w, f, &bytes, r->err));
    return onnx_text(r, bytes, out);
}

static tacit_status node_field(onnx_reader *r, const wire *w, const wire_field *f, node_proto *n)
{
    wire_span bytes;
    onnx_spans *list;
    switch (f->number) {
    case 1:
        list = &n->inputs;
        break;
    case 2:
        list = &n->outputs;
        break;
    case 5:
        list = &n->attrs;
        break;
    case 3:
        return node_text(r, w, f, &n->name);
    case 4:
        return node_text(r, w, f, &n->type);
    case 7:
        TRY(node_text(r, w, f, &n->domain));
        n->domain = onnx_domain(n->domain);
        return TACIT_OK;
    case 8:
        return node_text(r, w, f, &n->overload);
    default:
        return TACIT_OK;
    }
    TRY(wire_bytes(w, f, &bytes, r->err));
    TRY(onnx_charge(r, 0));
    return vec_push(r->scratch, list, bytes) ? TACIT_OK : error_memory(r->err, "a node");
}

/* Lists that are as long as they will be: there are three for every node. */
static tacit_status make_lists(onnx_reader *r, wire_span proto, node_proto *n)
{
    uint32_t inputs = 0, outputs = 0, attrs = 0;
    wire w = wire_open(proto, "node");
    wire_field f;
    while (wire_next(&w, &f, r->err)) {
        inputs += f.number == 1;
        outputs += f.number == 2;
        attrs += f.number == 5;
    }
    TRY(wire_status(&w));
    bool made = vec_reserve(r->scratch, &n->inputs, inputs) &&
                vec_reserve(r->scratch, &n->outputs, outputs) &&
                vec_reserve(r->scratch, &n->attrs, attrs);
    return made ? TACIT_OK : error_memory(r->err, "a node");
}

static tacit_status scan_node(onnx_reader *r, wire_span proto, node_proto *n)
{
    *n = (node_proto){.type = "", .domain = "", .overload = "", .name = ""};
    TRY(make_lists(r, proto, n));
    wire w = wire_open(proto, "node");
    wire_field f;
    while (wire_next(&w, &f, r->err))
        TRY(node_field(r, &w, &f, n));
    TRY(wire_status(&w));
    if (!*n->type)
        return error_set(r->err, TACIT_ERR_FORMAT, "node '%s' has no operator", n->name);
    if (++r->nodes > ONNX_MAX_NODES)
        return error_set(r->err, TACIT_ERR_LIMIT, "the model unfolds to more than %d nodes",
                         ONNX_MAX_NODES);
    n->function = onnx_function_find(r, n->domain, n->type, n->overload);
    return TACIT_OK;
}

/* The value that output `k` of the node is to fill, under its name; NULL when nobody wants it. */
static tacit_status output_value(onnx_reader *r, onnx_scope *scope, const node_proto *n, uint32_t k,
                                 ir_value **out)
{
    const char *name;
    *out = NULL;
    TRY(onnx_text(r, n->outputs.data[k], &name));
    if (!*name)
        return TACIT_OK;
    ir_value *v = map_get(&scope->promised, name);
    if (!v)
        v = ir_value_new(scope->graph, name, NULL);
    if (!v)
        return error_memory(r->err, "a value");
    *out = v;
    return onnx_define(r, scope, name, v);
}

/* A one-element or one-dimensional tensor from a Constant's value_int, value_floats, … */
static tacit_status constant_list(onnx_reader *r, const ir_attr *a, const ir_tensor **out)
{
    bool list = a->kind >= IR_ATTR_INTS;
    int64_t n = list ? a->count : 1;
    ir_attr_kind kind = a->kind;
    tacit_dtype dtype = kind == IR_ATTR_INT || kind == IR_ATTR_INTS       ? TACIT_I64
                        : kind == IR_ATTR_FLOAT || kind == IR_ATTR_FLOATS ? TACIT_F32
                                                                          : TACIT_STRING;
    ir_shape shape = ir_shape_of(list ? 1 : 0, &n);
    TRY(onnx_charge(r, ir_dtype_bytes(dtype, n)));
    ir_tensor *t = ir_tensor_new(r->memory, dtype, &shape);
    if (!t)
        return error_memory(r->err, "a constant");
    for (int64_t i = 0; i < n; i++)
        if (dtype == TACIT_I64)
            ((int64_t *)t->data)[i] = list ? a->ints[i] : a->i;
        else if (dtype == TACIT_F32)
            ((float *)t->data)[i] = (float)(list ? a->floats[i] : a->f);
        else
            ((ir_string *)t->data)[i] = list ? a->strings[i] : a->s;
    *out = t;
    return TACIT_OK;
}

static tacit_status read_constant(onnx_reader *r, onnx_scope *scope, const node_proto *n)
{
    ir_attr a;
    bool present;
    ir_value *v;
    const ir_tensor *t = NULL;
    if (n->attrs.count != 1 || n->outputs.count != 1 || n->inputs.count)
        return error_set(r->err, TACIT_ERR_GRAPH, "needs one attribute and one output");
    TRY(onnx_attribute(r, scope, NULL, n->attrs.data[0], &a, &present));
    if (!present || a.kind == IR_ATTR_TYPE || a.kind == IR_ATTR_TENSORS)
        return error_set(r->err, TACIT_ERR_GRAPH, "the constant has no value");
    TRY(output_value(r, scope, n, 0, &v));
    if (a.kind == IR_ATTR_TENSOR)
        t = a.tensor;
    else
        TRY(constant_list(r, &a, &t));
    if (!v)
        return TACIT_OK;
    v->constant = t;
    v->type = ir_tensor_type(t);
    v->is_initializer = true;
    return TACIT_OK;
}

static tacit_status make_node(onnx_reader *r, onnx_scope *scope, node_proto *n)
{
    if (n->outputs.count > 4096)
        return error_set(r->err, TACIT_ERR_LIMIT, "%u outputs", n->outputs.count);
    n->results = ARENA_ARRAY(r->scratch, n->outputs.count + 1u, ir_value *);
    const char **none = ARENA_ARRAY(r->scratch, n->outputs.count + 1u, const char *);
    ir_value **unread = ARENA_ARRAY(r->scratch, n->inputs.count + 1u, ir_value *);
    if (!n->results || !none || !unread)
        return error_memory(r->err, "a node");
    for (uint32_t k = 0; k < n->outputs.count; k++)
        TRY(output_value(r, scope, n, k, &n->results[k]));
    if (n->function)
        return TACIT_OK;
    n->node = ir_node_new(scope->graph, n->type, n->domain, n->name, n->inputs.count, unread,
                          n->outputs.count, none);
    if (!n->node)
        return error_memory(r->err, "a node");
    for (uint32_t k = 0; k < n->outputs.count; k++) {
        ir_value *v = n->results[k];
        n->node->outputs[k] = v;
        if (!v)
            continue;
        v->producer = n->node;
        v->output_index = k;
    }
    if (scope->function)
        ir_node_note(scope->graph, n->node, "load", "from the body of function %s",
                     scope->function);
    return TACIT_OK;
}

static int64_t opset_of(const onnx_scope *scope, const char *domain)
{
    for (uint32_t i = 0; i < scope->n_opsets; i++)
        if (strcmp(scope->opsets[i].domain, domain) == 0)
            return scope->opsets[i].version;
    return -1;
}

static tacit_status read_inputs(onnx_reader *r, onnx_scope *scope, const node_proto *n,
                                ir_value **inputs)
{
    for (uint32_t k = 0; k < n->inputs.count; k++) {
        const char *name;
        TRY(onnx_text(r, n->inputs.data[k], &name));
        inputs[k] = NULL;
        if (*name)
            TRY(onnx_lookup(r, scope, name, &inputs[k]));
    }
    return TACIT_OK;
}

static tacit_status read_attrs(onnx_reader *r, onnx_scope *scope, const node_proto *n,
                               ir_attr **out, uint32_t *count)
{
    ir_attr *attrs = ARENA_ARRAY(r->memory, n->attrs.count + 1u, ir_attr);
    if (!attrs)
        return error_memory(r->err, "attributes");
    uint32_t filled = 0;
    if (n->attrs.count > 1024)
        return error_set(r->err, TACIT_ERR_LIMIT, "%u attributes", n->attrs.count);
    for (uint32_t i = 0; i < n->attrs.count; i++) {
        bool present;
        TRY(onnx_attribute(r, scope, n->node, n->attrs.data[i], &attrs[filled], &present));
        for (uint32_t k = 0; k < filled; k++)
            if (strcmp(attrs[k].name, attrs[filled].name) == 0)
                return error_set(r->err, TACIT_ERR_GRAPH, "attribute '%s' is given twice",
                                 attrs[k].name);
        filled += present;
    }
    *out = attrs;
    *count = filled;
    return TACIT_OK;
}

static tacit_status finish_call(onnx_reader *r, onnx_scope *scope, const node_proto *n)
{
    ir_attr *attrs;
    onnx_call call = {.name = *n->name ? n->name : n->type,
                      .n_inputs = n->inputs.count,
                      .n_outputs = n->outputs.count,
                      .outputs = n->results};
    ir_value **inputs = ARENA_ARRAY(r->scratch, n->inputs.count + 1u, ir_value *);
    if (!inputs)
        return error_memory(r->err, "a call");
    TRY(read_inputs(r, scope, n, inputs));
    TRY(read_attrs(r, scope, n, &attrs, &call.n_attrs));
    call.inputs = inputs;
    call.attrs = attrs;
    return onnx_inline(r, scope->graph, n->function, &call);
}

static tacit_status finish_node(onnx_reader *r, onnx_scope *scope, const node_proto *n)
{
    ir_attr *attrs;
    uint32_t count;
    TRY(read_inputs(r, scope, n, n->node->inputs));
    while (n->node->n_inputs && !n->node->inputs[n->node->n_inputs - 1])
        n->node->n_explicit = --n->node->n_inputs; /* absent at the end: as if not written */
    TRY(read_attrs(r, scope, n, &attrs, &count));
    n->node->attrs = attrs;
    n->node->n_attrs = count;
    int64_t version = opset_of(scope, n->domain);
    if (version < 0 && !*n->domain)
        return error_set(r->err, TACIT_ERR_GRAPH, "the model imports no opset for its domain");
    op_resolve(r->options->registry, n->node);
    return load_upgrade(scope->graph, n->node, version, r->err);
}

static bool is_constant(const node_proto *n)
{
    return !n->function && !*n->domain && strcmp(n->type, "Constant") == 0;
}

static tacit_status node_context(onnx_reader *r, const node_proto *n, tacit_status status)
{
    if (!onnx_may_explain(r))
        return status;
    return error_context(r->err, status, "node '%s' (%s)", *n->name ? n->name : "unnamed", n->type);
}

tacit_status onnx_nodes(onnx_reader *r, onnx_scope *scope, const onnx_spans *nodes)
{
    node_proto *all = ARENA_ARRAY(r->scratch, nodes->count + 1u, node_proto);
    if (!all)
        return error_memory(r->err, "nodes");
    for (uint32_t i = 0; i < nodes->count; i++) {
        TRY(scan_node(r, nodes->data[i], &all[i]));
        tacit_status status =
            is_constant(&all[i]) ? read_constant(r, scope, &all[i]) : make_node(r, scope, &all[i]);
        if (status != TACIT_OK)
            return node_context(r, &all[i], status);
    }
    for (uint32_t i = 0; i < nodes->count; i++) {
        if (is_constant(&all[i]))
            continue;
        tacit_status status =
            all[i].function ? finish_call(r, scope, &all[i]) : finish_node(r, scope, &all[i]);
        if (status != TACIT_OK)
            return node_context(r, &all[i], status);
    }
    return TACIT_OK;
}

/* --- graphs ----------------------------------------------------------------------------------- */

typedef struct graph_proto {
    onnx_spans nodes, inputs, outputs, initializers, sparse;
    wire_span name, doc;
} graph_proto;

static tacit_status scan_graph(onnx_reader *r, wire_span proto, graph_proto *g)
{
    *g = (graph_proto){0};
    wire w = wire_open(proto, "graph");
    wire_field f;
    while (wire_next(&w, &f, r->err)) {
        wire_span bytes;
        onnx_spans *list = f.number == 1    ? &g->nodes
                           : f.number == 5  ? &g->initializers
                           : f.number == 11 ? &g->inputs
                           : f.number == 12 ? &g->outputs
                           : f.number == 15 ? &g->sparse
                                            : NULL;
        if (f.number == 2)
            TRY(wire_bytes(&w, &f, &g->name, r->err));
        if (f.number == 10)
            TRY(wire_bytes(&w, &f, &g->doc, r->err));
        if (!list)
            continue;
        TRY(wire_bytes(&w, &f, &bytes, r->err));
        TRY(onnx_charge(r, 0));
        if (!vec_push(r->scratch, list, bytes))
            return error_memory(r->err, "a graph");
    }
    return wire_status(&w);
}

static tacit_status add_initializers(onnx_reader *r, onnx_scope *scope, const onnx_spans *protos,
                                     bool sparse)
{
    for (uint32_t i = 0; i < protos->count; i++) {
        const char *name;
        ir_tensor *t = ARENA_NEW(r->memory, ir_tensor);
        if (!t)
            return error_memory(r->err, "a tensor");
        TRY(sparse ? onnx_sparse_tensor(r, protos->data[i], t, &name)
                   : onnx_tensor(r, protos->data[i], t, &name));
        ir_value *v = ir_constant_new(scope->graph, name, t);
        if (!v)
            return error_memory(r->err, "a tensor");
        TRY(onnx_define(r, scope, name, v));
    }
    return TACIT_OK;
}

/* An input that also has an initializer is a weight: files before IR version 4 list both. */
static tacit_status add_inputs(onnx_reader *r, onnx_scope *scope, const onnx_spans *protos,
                               onnx_dims dims)
{
    for (uint32_t i = 0; i < protos->count; i++) {
        const char *name;
        ir_type type;
        bool has_type;
        TRY(onnx_value_info(r, protos->data[i], dims, &name, &type, &has_type));
        const ir_value *old = map_get(&scope->names, name);
        if (old && old->is_initializer)
            continue;
        ir_value *v = ir_input_new(scope->graph, name, &type);
        if (!v)
            return error_memory(r->err, "a graph input");
        TRY(onnx_define(r, scope, name, v));
    }
    return TACIT_OK;
}

static tacit_status add_outputs(onnx_reader *r, onnx_scope *scope, const onnx_spans *protos)
{
    onnx_dims dims = scope->parent ? ONNX_DIMS_OPEN : ONNX_DIMS_OUTPUT;
    for (uint32_t i = 0; i < protos->count; i++) {
        const char *name;
        ir_type type;
        bool has_type;
        ir_value *v;
        TRY(onnx_value_info(r, protos->data[i], dims, &name, &type, &has_type));
        tacit_status status = onnx_lookup(r, scope, name, &v);
        if (status == TACIT_OK && !v)
            status = error_set(r->err, TACIT_ERR_GRAPH, "'%s' has no value here", name);
        if (status != TACIT_OK)
            return error_context(r->err, status, "graph output %u", i);
        if (has_type && v->producer)
            v->type = type;
        if (!ir_output_add(scope->graph, v))
            return error_memory(r->err, "a graph output");
    }
    return TACIT_OK;
}

tacit_status onnx_graph(onnx_reader *r, wire_span proto, onnx_scope *scope, onnx_dims inputs)
{
    graph_proto p;
    const char *name, *doc;
    ir_graph *g = scope->graph;
    TRY(scan_graph(r, proto, &p));
    TRY(onnx_text(r, p.name, &name));
    TRY(onnx_text(r, p.doc, &doc));
    g->name = arena_strdup(r->memory, *name ? name : "graph");
    g->doc = arena_strdup(r->memory, doc);
    uint32_t values = p.initializers.count + p.sparse.count + p.inputs.count + p.nodes.count;
    if (!g->name || !g->doc || !ir_graph_reserve(g, values, p.nodes.count) ||
        !map_reserve(&scope->names, values))
        return error_memory(r->err, "a graph");
    TRY(add_initializers(r, scope, &p.initializers, false));
    TRY(add_initializers(r, scope, &p.sparse, true));
    TRY(add_inputs(r, scope, &p.inputs, inputs));
    TRY(onnx_nodes(r, scope, &p.nodes));
    TRY(add_outputs(r, scope, &p.outputs));
    return ir_graph_sort(g, r->err);
}
