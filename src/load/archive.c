/* SPDX-License-Identifier: Apache-2.0
 * A model as a safetensors file: the graph as text in the metadata, its weights as the tensors, so
 * that they are mapped and used in place. Weights that safetensors cannot hold stay in the text. */
#include <string.h>

#include "ir/text.h"
#include "load/load.h"

static const char graph_key[] = "tacit.graph";
enum { INLINE_ELEMENTS = 16 }; /* shorter constants are better read in the text */

/* Calls `visit` for every weight of the graph and its subgraphs, with a key of its own: the nodes
 * and attributes on the way in, then the value's name. */
typedef struct archive_walk {
    arena *memory;
    tacit_status (*visit)(struct archive_walk *w, ir_value *v, const char *key);
    load_tensors *tensors;
    map by_name; /* reading: key → ir_tensor */
    tacit_error *err;
} archive_walk;

static tacit_status walk(archive_walk *w, ir_graph *g, const char *prefix);

static tacit_status walk_attr(archive_walk *w, const ir_node *n, const ir_attr *a,
                              const char *prefix)
{
    uint32_t count = a->kind == IR_ATTR_GRAPH ? 1 : a->kind == IR_ATTR_GRAPHS ? a->count : 0;
    for (uint32_t k = 0; k < count; k++) {
        const char *inner = arena_printf(w->memory, "%s%s/%s.%u/", prefix, n->name, a->name, k);
        if (!inner)
            return error_memory(w->err, "a model file");
        TRY(walk(w, a->kind == IR_ATTR_GRAPH ? a->graph : a->graphs[k], inner));
    }
    return TACIT_OK;
}

static tacit_status walk(archive_walk *w, ir_graph *g, const char *prefix)
{
    for (uint32_t i = 0; i < g->values.count; i++) {
        ir_value *v = g->values.data[i];
        if (!v->is_initializer || !v->constant)
            continue;
        const char *key = arena_printf(w->memory, "%s%s", prefix, v->name);
        if (!key)
            return error_memory(w->err, "a model file");
        TRY(w->visit(w, v, key));
    }
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        for (uint32_t k = 0; k < n->n_attrs; k++)
            TRY(walk_attr(w, n, &n->attrs[k], prefix));
    }
    return TACIT_OK;
}

/* Writing: the weight's data moves from the graph (a copy) to the tensors. */
static tacit_status take_out(archive_walk *w, ir_value *v, const char *key)
{
    const ir_tensor *t = v->constant;
    if (!t->data)
        return error_set(w->err, TACIT_ERR_STATE, "weight '%s' has no data", v->name);
    if (t->kind != IR_TENSOR || ir_tensor_count(t) <= INLINE_ELEMENTS ||
        !load_safetensors_holds(t->dtype))
        return TACIT_OK;
    ir_tensor *empty = arena_copy(w->memory, t, sizeof *t);
    if (!empty || !vec_push(w->memory, &w->tensors->items, (load_named){key, *t}))
        return error_memory(w->err, "a model file");
    empty->data = NULL;
    v->constant = empty;
    return TACIT_OK;
}

/* Reading: the other way around. */
static tacit_status put_in(archive_walk *w, ir_value *v, const char *key)
{
    if (v->constant->data)
        return TACIT_OK;
    const ir_tensor *t = map_get(&w->by_name, key);
    if (!t)
        return error_set(w->err, TACIT_ERR_FORMAT, "the weight '%s' is not in the file", key);
    if (t->dtype != v->constant->dtype || !ir_shape_equal(&t->shape, &v->constant->shape))
        return error_set(w->err, TACIT_ERR_FORMAT,
                         "the weight '%s' has another type in the graph than in the file", key);
    v->constant = t;
    return TACIT_OK;
}

tacit_status load_archive(const void *data, size_t size, arena *memory, ir_graph **out,
                          tacit_error *err)
{
    load_tensors *tensors = ARENA_NEW(memory, load_tensors);
    if (!tensors)
        return error_memory(err, "a model file");
    TRY(load_safetensors(data, size, memory, tensors, err));
    const char *text = NULL;
    for (uint32_t i = 0; i < tensors->metadata.count; i++)
        if (strcmp(tensors->metadata.data[i].key, graph_key) == 0)
            text = tensors->metadata.data[i].value;
    if (!text)
        return error_set(err, TACIT_ERR_FORMAT,
                         "the safetensors file holds weights but no graph ('%s')", graph_key);
    TRY(ir_graph_parse(text, strlen(text), memory, out, err));
    archive_walk w = {.memory = memory, .visit = put_in, .tensors = tensors, .err = err};
    map_init(&w.by_name, memory);
    for (uint32_t i = 0; i < tensors->items.count; i++)
        if (!map_put(&w.by_name, tensors->items.data[i].name, &tensors->items.data[i].tensor))
            return error_memory(err, "a model file");
    return walk(&w, *out, "");
}

static tacit_status write_with(const ir_graph *g, const char *path, arena *scratch, sbuf *text,
                               tacit_error *err)
{
    load_tensors tensors = {0};
    ir_graph *copy = ir_graph_clone(g, scratch);
    if (!copy)
        return error_memory(err, "a copy of the graph");
    archive_walk w = {.memory = scratch, .visit = take_out, .tensors = &tensors, .err = err};
    TRY(walk(&w, copy, ""));
    ir_graph_print(copy, NULL, text);
    if (!sbuf_str(text) ||
        !vec_push(scratch, &tensors.metadata, (load_pair){graph_key, sbuf_str(text)}))
        return error_memory(err, "the graph's text");
    return load_safetensors_write(&tensors, path, err);
}

tacit_status load_archive_write(const ir_graph *g, const char *path, tacit_error *err)
{
    arena scratch;
    sbuf text;
    arena_init(&scratch, NULL);
    sbuf_init(&text, NULL);
    tacit_status status = write_with(g, path, &scratch, &text, err);
    sbuf_free(&text);
    arena_free(&scratch);
    return status;
}
