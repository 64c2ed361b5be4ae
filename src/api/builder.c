/* SPDX-License-Identifier: Apache-2.0
 * The C builder: graphs put together node by node. */
#include <string.h>

#include "api/internal.h"

tacit_status tacit_builder_create(const char *name, const tacit_load_options *options,
                                  tacit_builder **out, tacit_error *err)
{
    if (!out)
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_builder_create: out must not be NULL");
    *out = NULL;
    tacit_model *m = api_model_new(options);
    tacit_builder *b = m ? mem_alloc_zero(&m->allocator, sizeof *b) : NULL;
    if (!b || !(m->graph = ir_graph_new(&m->memory, name ? name : "model"))) {
        if (m)
            mem_release(&m->allocator, b, sizeof *b);
        api_model_release(m);
        return error_memory(err, "a builder");
    }
    tacit_status status = api_custom_register(m, options, err);
    if (status != TACIT_OK) {
        mem_release(&m->allocator, b, sizeof *b);
        api_model_release(m);
        return status;
    }
    m->graph->about.producer = "tacit";
    b->model = m;
    *out = b;
    return TACIT_OK;
}

void tacit_builder_free(tacit_builder *builder)
{
    if (!builder)
        return;
    tacit_model *m = builder->model;
    tacit_allocator allocator = m->allocator;
    api_model_release(m);
    mem_release(&allocator, builder, sizeof *builder);
}

static tacit_value fail(tacit_builder *b, tacit_status status, const char *what, const char *name)
{
    if (b->status == TACIT_OK)
        b->status = error_set(&b->error, status, "%s%s%s%s", what, name ? " '" : "",
                              name ? name : "", name ? "'" : "");
    return 0;
}

tacit_value api_builder_handle(tacit_builder *b, ir_value *v)
{
    if (!v || !vec_push(b->model->graph->memory, &b->values, v))
        return fail(b, TACIT_ERR_MEMORY, "out of memory: building a graph", NULL);
    return b->values.count;
}

static bool make_type(tacit_builder *b, const char *name, tacit_dtype dtype, int32_t rank,
                      const int64_t *dims, const char *const *dim_names, ir_type *out)
{
    if (tacit_dtype_bits(dtype) == 0 || rank < 0 || rank > IR_MAX_RANK || (rank && !dims)) {
        fail(b, TACIT_ERR_ARGUMENT, "invalid element type or rank of", name);
        return false;
    }
    *out = ir_type_tensor(dtype, rank, dims);
    for (int32_t i = 0; i < rank; i++) {
        if (dims[i] >= 0)
            continue;
        if (dims[i] != -1 || !dim_names || !dim_names[i]) {
            fail(b, TACIT_ERR_ARGUMENT, "a negative or nameless dimension of", name);
            return false;
        }
        int64_t k = ir_symbol_index(b->model->graph, dim_names[i]);
        if (k < 0) {
            fail(b, TACIT_ERR_MEMORY, "out of memory: building a graph", NULL);
            return false;
        }
        out->shape.dims[i] = IR_DIM_SYMBOL(k);
    }
    return true;
}

tacit_value tacit_builder_input(tacit_builder *b, const char *name, tacit_dtype dtype, int32_t rank,
                                const int64_t *dims, const char *const *dim_names)
{
    ir_type type = ir_type_tensor(TACIT_DTYPE_NONE, -1, NULL);
    bool unknown = dtype == TACIT_DTYPE_NONE && rank == -1;
    if (b->status != TACIT_OK ||
        (!unknown && !make_type(b, name, dtype, rank, dims, dim_names, &type)))
        return 0;
    if (!name || ir_value_find(b->model->graph, name))
        return fail(b, TACIT_ERR_ARGUMENT, "an input needs a name of its own, not", name);
    return api_builder_handle(b, ir_input_new(b->model->graph, name, &type));
}

static tacit_value add_constant(tacit_builder *b, const char *name, tacit_dtype dtype, int32_t rank,
                                const int64_t *dims, const void *data, bool copy)
{
    ir_type type;
    size_t bytes;
    if (b->status != TACIT_OK || !make_type(b, name, dtype, rank, dims, NULL, &type))
        return 0;
    if (!ir_type_bytes(&type, &bytes) || (bytes && !data))
        return fail(b, TACIT_ERR_ARGUMENT, "a constant without data or too large:", name);
    arena *memory = b->model->graph->memory;
    ir_tensor *t = copy ? ir_tensor_new(memory, dtype, &type.shape) : ARENA_NEW(memory, ir_tensor);
    if (!t)
        return fail(b, TACIT_ERR_MEMORY, "out of memory: a constant", name);
    if (copy)
        memcpy(t->data, data, bytes);
    else
        *t = ir_tensor_view(dtype, &type.shape, data);
    return api_builder_handle(b, ir_constant_new(b->model->graph, name ? name : "c", t));
}

tacit_value tacit_builder_constant(tacit_builder *b, const char *name, tacit_dtype dtype,
                                   int32_t rank, const int64_t *dims, const void *data)
{
    return add_constant(b, name, dtype, rank, dims, data, true);
}

tacit_value tacit_builder_weight(tacit_builder *b, const char *name, tacit_dtype dtype,
                                 int32_t rank, const int64_t *dims, const void *data)
{
    return add_constant(b, name, dtype, rank, dims, data, false);
}

/* The values behind handles; false when one is not of this builder. */
static bool find_values(tacit_builder *b, const char *op, uint32_t n, const tacit_value *handles,
                        ir_value **values)
{
    for (uint32_t i = 0; i < n; i++) {
        if (handles[i] > b->values.count) {
            fail(b, TACIT_ERR_ARGUMENT, "an input that is not a value of this builder, of", op);
            return false;
        }
        values[i] = handles[i] ? b->values.data[handles[i] - 1] : NULL;
    }
    return true;
}

tacit_value tacit_builder_node(tacit_builder *b, const char *op, uint32_t n_inputs,
                               const tacit_value *inputs, uint32_t n_outputs, tacit_value *outputs)
{
    for (uint32_t i = 0; outputs && i < n_outputs; i++)
        outputs[i] = 0;
    if (b->status != TACIT_OK)
        return 0;
    ir_graph *g = b->model->graph;
    const char *dot = strrchr(op, '.');
    const char *domain = dot ? arena_strndup(g->memory, op, (size_t)(dot - op)) : "";
    ir_value **values = ARENA_ARRAY(g->memory, n_inputs, ir_value *);
    if (!domain || !values)
        return fail(b, TACIT_ERR_MEMORY, "out of memory: building a graph", NULL);
    if (!find_values(b, op, n_inputs, inputs, values))
        return 0;
    const char *type = dot ? dot + 1 : op;
    ir_node *n = ir_node_new(g, type, domain, NULL, n_inputs, values, n_outputs, NULL);
    if (!n)
        return fail(b, TACIT_ERR_MEMORY, "out of memory: building a graph", NULL);
    op_resolve(&b->model->registry, n);
    if (!n->op)
        return fail(b, TACIT_ERR_UNSUPPORTED, "no operator is named", op);
    b->newest = n;
    tacit_value first = 0;
    for (uint32_t i = 0; i < n_outputs; i++) {
        tacit_value v = api_builder_handle(b, n->outputs[i]);
        if (outputs)
            outputs[i] = v;
        first = i ? first : v;
    }
    return first;
}

static ir_node *newest(tacit_builder *b, const char *attr)
{
    if (b->status == TACIT_OK && !b->newest)
        fail(b, TACIT_ERR_STATE, "an attribute before the first node:", attr);
    return b->status == TACIT_OK ? b->newest : NULL;
}

static void attr_result(tacit_builder *b, bool ok)
{
    if (!ok)
        fail(b, TACIT_ERR_MEMORY, "out of memory: an attribute", NULL);
}

void tacit_builder_attr_int(tacit_builder *b, const char *name, int64_t value)
{
    ir_node *n = newest(b, name);
    if (n)
        attr_result(b, ir_attr_set_int(b->model->graph, n, name, value));
}

void tacit_builder_attr_float(tacit_builder *b, const char *name, double value)
{
    ir_node *n = newest(b, name);
    if (n)
        attr_result(b, ir_attr_set_float(b->model->graph, n, name, value));
}

void tacit_builder_attr_string(tacit_builder *b, const char *name, const char *value)
{
    ir_node *n = newest(b, name);
    if (n)
        attr_result(b, ir_attr_set_string(b->model->graph, n, name, value));
}

void tacit_builder_attr_ints(tacit_builder *b, const char *name, uint32_t count,
                             const int64_t *values)
{
    ir_node *n = newest(b, name);
    if (n)
        attr_result(b, ir_attr_set_ints(b->model->graph, n, name, count, values));
}

/* The body's symbols are those of the same names here. */
static tacit_status adopt_symbols(void *context, ir_graph *sub)
{
    const int64_t *symbols = context;
    for (uint32_t i = 0; i < sub->values.count; i++) {
        ir_shape *s = &sub->values.data[i]->type.shape;
        for (int32_t d = 0; d < s->rank; d++)
            if (ir_dim_is_symbol(s->dims[d]))
                s->dims[d] = IR_DIM_SYMBOL(symbols[-1 - s->dims[d]]);
    }
    for (uint32_t i = 0; i < sub->nodes.count; i++)
        TRY(ir_node_subgraphs(sub->nodes.data[i], adopt_symbols, context));
    return TACIT_OK;
}

/* A copy of the model's graph inside the builder's, and the model as one of its parts. */
static ir_graph *adopt_graph(tacit_builder *b, const tacit_model *body)
{
    ir_graph *g = b->model->graph;
    ir_graph *sub = ir_graph_clone(body->graph, g->memory);
    int64_t *symbols = ARENA_ARRAY(g->memory, body->graph->symbols.count + 1u, int64_t);
    bool ok = sub && symbols;
    for (uint32_t i = 0; ok && i < body->graph->symbols.count; i++)
        ok = (symbols[i] = ir_symbol_index(g, body->graph->symbols.data[i].name)) >= 0;
    if (!ok || !vec_push(g->memory, &b->model->parts, body))
        return NULL;
    api_model_retain(body);
    sub->parent = g;
    return adopt_symbols(symbols, sub) == TACIT_OK ? sub : NULL;
}

static bool pad_captures(ir_graph *sub, uint32_t count)
{
    while (sub->captures.count < count)
        if (!vec_push(sub->memory, &sub->captures, NULL))
            return false;
    return true;
}

/* The last inputs of `sub` become captures, behind those that other subgraphs of the node have. */
static bool add_captures(tacit_builder *b, ir_node *n, ir_graph *sub, uint32_t n_outer,
                         ir_value *const *outer)
{
    uint32_t first = sub->inputs.count - n_outer;
    bool ok = pad_captures(sub, n->n_inputs - n->n_explicit);
    for (uint32_t i = 0; ok && i < n_outer; i++) {
        ir_value *v = sub->inputs.data[first + i];
        v->is_input = false;
        v->constant = outer[i]->constant;
        if (v->type.dtype == TACIT_DTYPE_NONE)
            v->type = outer[i]->type;
        ok = ir_node_append_capture(b->model->graph, n, outer[i]) &&
             vec_push(sub->memory, &sub->captures, v);
    }
    sub->inputs.count = first;
    for (uint32_t i = 0; ok && i < n->n_attrs; i++)
        if (n->attrs[i].kind == IR_ATTR_GRAPH)
            ok = pad_captures(n->attrs[i].graph, sub->captures.count);
    return ok;
}

void tacit_builder_attr_graph(tacit_builder *b, const char *name, const tacit_model *body,
                              uint32_t n_outer, const tacit_value *outer)
{
    ir_node *n = newest(b, name);
    if (!n)
        return;
    ir_graph *g = b->model->graph;
    if (!body || n_outer > body->graph->inputs.count || ir_attr_find(n, name)) {
        fail(b, TACIT_ERR_ARGUMENT,
             "a graph attribute without a body, given twice, or with more outer values than the "
             "body has inputs:",
             name);
        return;
    }
    ir_value **values = ARENA_ARRAY(g->memory, n_outer + 1u, ir_value *);
    if (values && !find_values(b, n->type, n_outer, outer, values))
        return;
    for (uint32_t i = 0; values && i < n_outer; i++)
        if (!values[i]) {
            fail(b, TACIT_ERR_ARGUMENT, "an absent outer value of", name);
            return;
        }
    ir_attr attr = {.name = name, .kind = IR_ATTR_GRAPH};
    bool ok = values && (attr.graph = adopt_graph(b, body)) != NULL;
    attr_result(b,
                ok && add_captures(b, n, attr.graph, n_outer, values) && ir_attr_set(g, n, &attr));
}

/* The value takes the public name; where that cannot be (an input, a second output) an Identity
 * node stands between. */
void tacit_builder_output(tacit_builder *b, const char *name, tacit_value value)
{
    ir_graph *g = b->model->graph;
    if (b->status != TACIT_OK)
        return;
    if (!name || !*name || value == 0 || value > b->values.count) {
        fail(b, TACIT_ERR_ARGUMENT, "an output needs a name and a value of this builder:", name);
        return;
    }
    if (ir_value_find(g, name)) {
        fail(b, TACIT_ERR_ARGUMENT, "an output needs a name of its own, not", name);
        return;
    }
    ir_value *v = b->values.data[value - 1];
    bool named = !v->producer;
    for (uint32_t i = 0; i < g->outputs.count; i++)
        named |= g->outputs.data[i] == v;
    if (named) {
        ir_node *n = ir_node_new(g, "Identity", "", NULL, 1, &v, 1, &name);
        if (n)
            op_resolve(NULL, n);
        v = n ? n->outputs[0] : NULL;
    } else {
        v->name = arena_strdup(g->memory, name);
        if (!v->name || !map_put(&g->value_names, v->name, v))
            v = NULL;
    }
    if (!v || !ir_output_add(g, v))
        fail(b, TACIT_ERR_MEMORY, "out of memory: an output", name);
}

tacit_status tacit_builder_finish(tacit_builder *b, tacit_model **out, tacit_error *err)
{
    if (!b || !out)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "tacit_builder_finish: builder and out must not be NULL");
    *out = NULL;
    if (b->status == TACIT_OK && b->model->graph->outputs.count == 0)
        fail(b, TACIT_ERR_GRAPH, "the graph has no output", NULL);
    if (b->status == TACIT_OK)
        b->status = ir_graph_sort(b->model->graph, &b->error);
    if (b->status != TACIT_OK) {
        if (err)
            *err = b->error;
        return b->status;
    }
    /* The builder goes on, empty, with a model of its own, so that freeing it stays simple. */
    tacit_load_options options = {.allocator = &b->model->allocator, .log = &b->model->log};
    tacit_model *fresh = api_model_new(&options);
    if (!fresh || !(fresh->graph = ir_graph_new(&fresh->memory, "model"))) {
        api_model_release(fresh);
        return error_memory(err, "finishing a model");
    }
    *out = b->model;
    *b = (tacit_builder){.model = fresh};
    return TACIT_OK;
}
