/* SPDX-License-Identifier: Apache-2.0
 * ModelProto: versions, opsets, functions, then the graph. */
#include <string.h>

#include "load/onnx_reader.h"

enum { BUDGET_BASE = 256 << 20, BUDGET_PER_BYTE = 16 };

tacit_status onnx_charge(onnx_reader *r, size_t bytes)
{
    size_t used = r->memory->total + (r->scratch != r->memory ? r->scratch->total : 0);
    if (bytes <= r->budget && used <= r->budget - bytes)
        return TACIT_OK;
    return error_set(r->err, TACIT_ERR_LIMIT,
                     "the model unfolds to more than %zu MB, far beyond its file's size",
                     r->budget >> 20);
}

tacit_status onnx_text(onnx_reader *r, wire_span text, const char **out)
{
    if (text.size && memchr(text.data, 0, text.size))
        return error_set(r->err, TACIT_ERR_FORMAT, "a name has a NUL byte in it");
    TRY(onnx_charge(r, text.size));
    *out = arena_strndup(r->scratch, text.size ? (const char *)text.data : "", text.size);
    return *out ? TACIT_OK : error_memory(r->err, "a name");
}

bool onnx_may_explain(onnx_reader *r)
{
    return r->contexts++ < ONNX_MAX_CONTEXTS;
}

const char *onnx_domain(const char *domain)
{
    return strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

typedef struct model_proto {
    int64_t ir_version;
    wire_span graph, producer, producer_version, domain, doc;
    int64_t version;
    onnx_spans metadata;
    bool has_graph;
    onnx_opsets opsets;
    onnx_spans functions;
} model_proto;

static tacit_status model_field(onnx_reader *r, const wire *w, const wire_field *f, model_proto *m)
{
    wire_span bytes;
    switch (f->number) {
    case 1:
        return wire_int(w, f, &m->ir_version, r->err);
    case 2:
        return wire_bytes(w, f, &m->producer, r->err);
    case 3:
        return wire_bytes(w, f, &m->producer_version, r->err);
    case 4:
        return wire_bytes(w, f, &m->domain, r->err);
    case 5:
        return wire_int(w, f, &m->version, r->err);
    case 6:
        return wire_bytes(w, f, &m->doc, r->err);
    case 7:
        if (m->has_graph)
            return error_set(r->err, TACIT_ERR_FORMAT, "the model has two graphs");
        m->has_graph = true;
        return wire_bytes(w, f, &m->graph, r->err);
    case 8:
        TRY(wire_bytes(w, f, &bytes, r->err));
        return onnx_opset(r, bytes, &m->opsets);
    case 14:
        TRY(wire_bytes(w, f, &bytes, r->err));
        return vec_push(r->scratch, &m->metadata, bytes) ? TACIT_OK
                                                         : error_memory(r->err, "metadata");
    case 25:
        TRY(wire_bytes(w, f, &bytes, r->err));
        return vec_push(r->scratch, &m->functions, bytes) ? TACIT_OK
                                                          : error_memory(r->err, "functions");
    default:
        return TACIT_OK;
    }
}

static tacit_status scan_model(onnx_reader *r, wire_span proto, model_proto *m)
{
    wire w = wire_open(proto, "model");
    wire_field f;
    while (wire_next(&w, &f, r->err))
        TRY(model_field(r, &w, &f, m));
    TRY(wire_status(&w));
    if (!m->has_graph)
        return error_set(r->err, TACIT_ERR_FORMAT, "no graph in it: not an ONNX model");
    if (m->ir_version < ONNX_MIN_IR || m->ir_version > ONNX_MAX_IR)
        return error_set(r->err, TACIT_ERR_UNSUPPORTED,
                         "IR version %lld is not supported (%d to %d are)",
                         (long long)m->ir_version, ONNX_MIN_IR, ONNX_MAX_IR);
    if (m->opsets.count == 0)
        return error_set(r->err, TACIT_ERR_FORMAT, "the model imports no operator set");
    for (uint32_t i = 0; i < m->functions.count; i++)
        TRY(onnx_function_add(r, m->functions.data[i]));
    return TACIT_OK;
}

/* Words for people: what is behind a NUL byte is left out. */
static tacit_status keep_text(onnx_reader *r, wire_span span, const char **out)
{
    const void *end = span.size ? memchr(span.data, 0, span.size) : NULL;
    if (end)
        span.size = (size_t)((const uint8_t *)end - (const uint8_t *)span.data);
    TRY(onnx_text(r, span, out));
    *out = arena_strdup(r->memory, *out);
    return *out ? TACIT_OK : error_memory(r->err, "the model's header");
}

static tacit_status read_pair(onnx_reader *r, wire_span proto)
{
    wire w = wire_open(proto, "metadata");
    wire_field f;
    wire_span key = {0}, value = {0};
    while (wire_next(&w, &f, r->err)) {
        if (f.number == 1)
            TRY(wire_bytes(&w, &f, &key, r->err));
        else if (f.number == 2)
            TRY(wire_bytes(&w, &f, &value, r->err));
    }
    TRY(wire_status(&w));
    ir_pair pair;
    TRY(keep_text(r, key, &pair.key));
    TRY(keep_text(r, value, &pair.value));
    return vec_push(r->memory, &r->top->about.metadata, pair) ? TACIT_OK
                                                              : error_memory(r->err, "metadata");
}

static tacit_status set_header(onnx_reader *r, const model_proto *m)
{
    ir_about *about = &r->top->about;
    TRY(keep_text(r, m->producer, &about->producer));
    TRY(keep_text(r, m->producer_version, &about->producer_version));
    TRY(keep_text(r, m->domain, &about->domain));
    TRY(keep_text(r, m->doc, &about->doc));
    about->version = m->version;
    for (uint32_t i = 0; i < m->metadata.count; i++)
        TRY(read_pair(r, m->metadata.data[i]));
    for (uint32_t i = 0; i < m->opsets.count; i++) {
        ir_opset o = m->opsets.data[i];
        o.domain = arena_strdup(r->memory, o.domain);
        if (!o.domain || !vec_push(r->memory, &r->top->opsets, o))
            return error_memory(r->err, "opsets");
    }
    return TACIT_OK;
}

static tacit_status read_model(onnx_reader *r, wire_span proto)
{
    model_proto m = {0};
    r->top = ir_graph_new(r->memory, "graph");
    if (!r->top)
        return error_memory(r->err, "a graph");
    map_init(&r->symbols, r->scratch);
    map_init(&r->functions, r->scratch);
    TRY(scan_model(r, proto, &m));
    TRY(set_header(r, &m));
    onnx_scope scope = {.graph = r->top, .opsets = m.opsets.data, .n_opsets = m.opsets.count};
    map_init(&scope.names, r->scratch);
    map_init(&scope.promised, r->scratch);
    return onnx_graph(r, m.graph, &scope, ONNX_DIMS_INPUT);
}

tacit_status load_onnx(const void *data, size_t size, const load_options *options, arena *memory,
                       load_files *files, ir_graph **out, tacit_error *err)
{
    const load_options none = {0};
    tacit_error own;
    arena scratch;
    arena_init(&scratch, memory->allocator);
    onnx_reader r = {.memory = memory,
                     .scratch = &scratch,
                     .options = options ? options : &none,
                     .files = files,
                     .err = err ? err : &own};
    size_t extra;
    if (!size_mul(size, BUDGET_PER_BYTE, &extra) || !size_add(extra, BUDGET_BASE, &extra) ||
        !size_add(extra, memory->total, &r.budget))
        r.budget = SIZE_MAX;
    tacit_status status = read_model(&r, (wire_span){data, size});
    arena_free(&scratch);
    onnx_sort_copies(files);
    if (status == TACIT_OK)
        *out = r.top;
    else if (r.options->name)
        error_context(r.err, status, "%s", r.options->name);
    return status;
}

bool load_onnx_probe(const void *data, size_t size)
{
    wire w = wire_open((wire_span){data, size}, "model");
    wire_field f;
    bool graph = false, version = false;
    while (wire_next(&w, &f, NULL)) {
        graph |= f.number == 7 && f.type == WIRE_BYTES;
        version |= f.number == 1 && f.type == WIRE_VARINT;
    }
    return wire_status(&w) == TACIT_OK && graph && version;
}
