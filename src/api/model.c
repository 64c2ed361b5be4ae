/* SPDX-License-Identifier: Apache-2.0
 * Models: loading, saving, looking at them. */
#include <libgen.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "ir/text.h"
#include "load/gguf.h"

tacit_model *api_model_new(const tacit_load_options *options)
{
    const tacit_allocator *allocator = alloc_or_default(options ? options->allocator : NULL);
    tacit_model *m = mem_alloc_zero(allocator, sizeof *m);
    if (!m)
        return NULL;
    atomic_init(&m->references, 1);
    m->allocator = *allocator;
    if (options && options->log)
        m->log = *options->log;
    arena_init(&m->memory, &m->allocator);
    return m;
}

void api_model_retain(const tacit_model *model)
{
    tacit_model *m = (tacit_model *)model;
    atomic_fetch_add_explicit(&m->references, 1, memory_order_relaxed);
}

void api_model_release(const tacit_model *model)
{
    tacit_model *m = (tacit_model *)model;
    /* Release our writes to whoever frees; acquire everyone's before freeing. */
    if (!m || atomic_fetch_sub_explicit(&m->references, 1, memory_order_acq_rel) != 1)
        return;
    const tacit_model *base = m->base;
    for (uint32_t i = 0; i < m->parts.count; i++)
        api_model_release(m->parts.data[i]);
    load_files_close(&m->external);
    file_map_close(&m->file);
    tacit_allocator allocator = m->allocator;
    arena_free(&m->memory);
    mem_release(&allocator, m, sizeof *m);
    api_model_release(base);
}

void tacit_model_free(tacit_model *model)
{
    api_model_release(model);
}

const ir_graph *api_model_graph(const tacit_model *model)
{
    return model->graph;
}

static const file_map *map_of(const tacit_model *m, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (; m; m = m->base) {
        if (m->file.data && at >= m->file.data && at + bytes <= m->file.data + m->file.size)
            return &m->file;
        for (const load_file *f = m->external.first; f; f = f->next)
            if (f->map.data && at >= f->map.data && at + bytes <= f->map.data + f->map.size)
                return &f->map;
    }
    return NULL;
}

void api_model_drop(void *model, const void *data, size_t bytes)
{
    const file_map *file = map_of(model, data, bytes);
    if (file)
        file_map_drop(file, data, bytes);
}

static void drop_large(const file_map *file)
{
    if (file->size >= FILE_SMALL)
        file_map_drop(file, file->data, file->size);
}

void api_model_drop_all(const tacit_model *m)
{
    for (; m; m = m->base) {
        drop_large(&m->file);
        for (const load_file *f = m->external.first; f; f = f->next)
            drop_large(&f->map);
    }
}

size_t api_model_mapped(const tacit_model *m, const void *data, size_t bytes)
{
    const file_map *file = map_of(m, data, bytes);
    return file ? file->size : 0;
}

bool api_model_place(void *model, const void *data, size_t bytes, file_place *out)
{
    const file_map *file = map_of(model, data, bytes);
    return file && file_map_place(file, data, bytes, out);
}

/* The file that the bytes are in or were copied from, and where they are there; NULL: none. */
static const file_map *origin_of(const tacit_model *m, const void *data, size_t bytes,
                                 uint64_t *offset)
{
    const unsigned char *at = data;
    const file_map *file = map_of(m, data, bytes);
    *offset = file ? (uint64_t)(at - file->data) : 0;
    for (; m && !file; m = m->base) {
        const load_moved *c = load_moved_of(&m->external, data, bytes);
        if (!c)
            continue;
        *offset = c->offset + (uint64_t)(at - c->data);
        file = c->file;
    }
    return file;
}

bool api_model_identify(void *model, const void *data, size_t bytes, sha256 *key)
{
    uint64_t offset;
    const file_map *file = origin_of(model, data, bytes, &offset);
    uint64_t place[2] = {file ? offset + 1 : 0, file ? file->size : bytes};
    sha256_add(key, place, sizeof place);
    if (file)
        sha256_add(key, file->identity, sizeof file->identity);
    else
        sha256_add(key, data, bytes);
    return !file || file->settled;
}

static bool is_text(const void *data, size_t size)
{
    return size >= 6 && memcmp(data, "tacit ", 6) == 0;
}

static void resolve_ops(const op_registry *registry, ir_graph *g)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        ir_node *n = g->nodes.data[i];
        op_resolve(registry, n);
        for (uint32_t k = 0; k < n->n_attrs; k++) {
            if (n->attrs[k].kind == IR_ATTR_GRAPH)
                resolve_ops(registry, n->attrs[k].graph);
            for (uint32_t s = 0; n->attrs[k].kind == IR_ATTR_GRAPHS && s < n->attrs[k].count; s++)
                resolve_ops(registry, n->attrs[k].graphs[s]);
        }
    }
}

static tacit_status read_graph(tacit_model *m, const void *data, size_t size, const char *name,
                               const char *dir, tacit_error *err)
{
    if (is_text(data, size)) {
        TRY(ir_graph_parse(data, size, &m->memory, &m->graph, err));
        resolve_ops(&m->registry, m->graph);
        return ir_graph_sort(m->graph, err);
    }
    if (load_safetensors_probe(data, size)) {
        TRY(load_archive(data, size, &m->memory, &m->graph, err));
        resolve_ops(&m->registry, m->graph);
        return ir_graph_sort(m->graph, err);
    }
    if (load_gguf_probe(data, size)) {
        load_gguf_file file;
        tacit_status status = load_gguf(data, size, &m->memory, &file, err);
        if (status == TACIT_OK)
            status = load_gguf_graph(&file, &m->memory, &m->graph, err);
        if (status != TACIT_OK)
            return name ? error_context(err, status, "%s", name) : status;
        resolve_ops(&m->registry, m->graph);
        return ir_graph_sort(m->graph, err);
    }
    load_options options = {
        .name = name, .dir = dir, .map = m->file.data ? &m->file : NULL, .registry = &m->registry};
    return load_onnx(data, size, &options, &m->memory, &m->external, &m->graph, err);
}

tacit_status tacit_model_load(const char *path, const tacit_load_options *options,
                              tacit_model **out, tacit_error *err)
{
    if (!path || !out)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "tacit_model_load: path and out must not be NULL");
    *out = NULL;
    tacit_model *m = api_model_new(options);
    if (!m)
        return error_memory(err, "a model");
    tacit_status status = api_custom_register(m, options, err);
    if (status == TACIT_OK)
        status = file_map_open(&m->file, path, err);
    char *copy = arena_strdup(&m->memory, path);
    if (status == TACIT_OK && !copy)
        status = error_memory(err, "a model");
    m->path = copy ? arena_strdup(&m->memory, path) : NULL;
    if (status == TACIT_OK && !m->path)
        status = error_memory(err, "a model");
    if (status == TACIT_OK && m->file.size == 0)
        status = error_set(err, TACIT_ERR_FORMAT, "'%s' is empty", path);
    else if (status == TACIT_OK) {
        status = read_graph(m, m->file.data, m->file.size, path, dirname(copy), err);
        if (status != TACIT_OK && err && !strstr(err->message, path))
            (void)error_context(err, status, "%s", path);
    }
    if (status != TACIT_OK) {
        api_model_release(m);
        return status;
    }
    /* Between weights there are headers, and where the system keeps a large file in huge pages each
     * has brought two megabytes into the resident set. */
    if (m->file.kept)
        file_map_drop(&m->file, m->file.data, m->file.size);
    *out = m;
    return TACIT_OK;
}

tacit_status tacit_model_load_memory(const void *data, size_t size,
                                     const tacit_load_options *options, tacit_model **out,
                                     tacit_error *err)
{
    if (!data || !out || !size)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "tacit_model_load_memory: data and out must not be NULL, size not 0");
    *out = NULL;
    tacit_model *m = api_model_new(options);
    if (!m)
        return error_memory(err, "a model");
    tacit_status status = api_custom_register(m, options, err);
    if (status == TACIT_OK)
        status = read_graph(m, data, size, NULL, options ? options->external_data_dir : NULL, err);
    if (status != TACIT_OK) {
        api_model_release(m);
        return status;
    }
    *out = m;
    return TACIT_OK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

tacit_status tacit_model_save(const tacit_model *model, const char *path, tacit_error *err)
{
    if (!model || !path)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "tacit_model_save: model and path must not be NULL");
    if (ends_with(path, ".onnx"))
        return load_onnx_write(model->graph, path, err);
    if (ends_with(path, ".safetensors"))
        return load_archive_write(model->graph, path, err);
    if (!ends_with(path, ".tacit"))
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "cannot save '%s': the name must end in .onnx, .safetensors or .tacit",
                         path);
    sbuf text;
    sbuf_init(&text, &model->allocator);
    ir_graph_print(model->graph, NULL, &text);
    tacit_status status = sbuf_str(&text) ? file_write_all(path, text.data, text.length, err)
                                          : error_memory(err, "the graph's text");
    sbuf_free(&text);
    return status;
}

tacit_status tacit_model_text(const tacit_model *model, int with_weights, char **out,
                              tacit_error *err)
{
    if (!model || !out)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "tacit_model_text: model and out must not be NULL");
    sbuf text;
    sbuf_init(&text, NULL);
    ir_graph_print(model->graph, &(ir_text_options){.elide_weights = !with_weights}, &text);
    *out = sbuf_str(&text) ? strdup(sbuf_str(&text)) : NULL;
    sbuf_free(&text);
    return *out ? TACIT_OK : error_memory(err, "the graph's text");
}

void tacit_text_free(char *text)
{
    free(text);
}

void api_port(const ir_graph *g, const ir_value *v, tacit_port *out)
{
    static const tacit_kind kinds[] = {[IR_TENSOR] = TACIT_KIND_TENSOR,
                                       [IR_SEQUENCE] = TACIT_KIND_SEQUENCE,
                                       [IR_OPTIONAL] = TACIT_KIND_OPTIONAL,
                                       [IR_OPTIONAL_SEQUENCE] = TACIT_KIND_OPTIONAL,
                                       [IR_MAP] = TACIT_KIND_MAP};
    *out = (tacit_port){.name = v->name,
                        .dtype = v->type.dtype,
                        .rank = v->type.shape.rank,
                        .kind = kinds[v->type.kind]};
    for (int32_t i = 0; i < out->rank; i++) {
        int64_t d = v->type.shape.dims[i];
        out->dims[i] = d >= 0 ? d : -1;
        if (ir_dim_is_symbol(d))
            out->dim_names[i] = g->symbols.data[-1 - d].name;
    }
    size_t bytes;
    if (v->type.dtype != TACIT_STRING && ir_type_bytes(&v->type, &bytes))
        out->bytes = bytes;
}

uint32_t tacit_model_input_count(const tacit_model *model)
{
    return model->graph->inputs.count;
}

uint32_t tacit_model_output_count(const tacit_model *model)
{
    return model->graph->outputs.count;
}

tacit_status tacit_model_input(const tacit_model *model, uint32_t index, tacit_port *out)
{
    if (index >= model->graph->inputs.count)
        return TACIT_ERR_ARGUMENT;
    api_port(model->graph, model->graph->inputs.data[index], out);
    return TACIT_OK;
}

void tacit_model_about(const tacit_model *model, tacit_about *out)
{
    const ir_graph *g = model->graph;
    *out = (tacit_about){.graph_name = g->name,
                         .graph_doc = g->doc,
                         .producer = g->about.producer,
                         .producer_version = g->about.producer_version,
                         .domain = g->about.domain,
                         .doc = g->about.doc,
                         .version = g->about.version,
                         .metadata_count = g->about.metadata.count};
}

tacit_status tacit_model_metadata(const tacit_model *model, uint32_t index, const char **key,
                                  const char **value)
{
    if (index >= model->graph->about.metadata.count)
        return TACIT_ERR_ARGUMENT;
    const ir_pair *pair = &model->graph->about.metadata.data[index];
    *key = pair->key;
    *value = pair->value;
    return TACIT_OK;
}

static bool is_weight(const ir_value *v)
{
    return v->is_initializer && !v->is_input;
}

uint32_t tacit_model_weight_count(const tacit_model *model)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->graph->values.count; i++)
        n += is_weight(model->graph->values.data[i]);
    return n;
}

tacit_status tacit_model_weight(const tacit_model *model, uint32_t index, tacit_port *out,
                                const void **data)
{
    const ir_graph *g = model->graph;
    for (uint32_t i = 0; i < g->values.count; i++) {
        const ir_value *v = g->values.data[i];
        if (!is_weight(v) || index--)
            continue;
        api_port(g, v, out);
        if (data)
            *data = v->constant ? v->constant->data : NULL;
        return TACIT_OK;
    }
    return TACIT_ERR_ARGUMENT;
}

tacit_status tacit_model_output(const tacit_model *model, uint32_t index, tacit_port *out)
{
    if (index >= model->graph->outputs.count)
        return TACIT_ERR_ARGUMENT;
    api_port(model->graph, model->graph->outputs.data[index], out);
    return TACIT_OK;
}
