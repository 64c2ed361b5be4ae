/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing a model. All but the weights of the outermost graph is encoded in memory; those are
 * written straight from where they lie, at the end. Their bytes are aligned to 64 in the file by a
 * doc_string of spaces in front of them, so that a reader can use the mapped file in place.
 */
#include <string.h>

#include "load/onnx_writer.h"

enum { ALIGN = 64, ALIGN_FROM = 256 }; /* small tensors are not worth the padding */
static const uint64_t inside_limit = (uint64_t)2000 << 20;

typedef struct weight {
    const ir_tensor *tensor;
    const char *name;
    uint64_t offset; /* in the external file */
    uint32_t pad;    /* spaces of doc_string; UINT32_MAX: no such field */
} weight;

typedef struct model_file {
    onnx_writer w;
    arena scratch;
    ir_graph *graph;
    sbuf head, body; /* before the graph's length; the graph without its weights */
    weight *weights;
    uint32_t n_weights;
    const char *location; /* external data's file name, or NULL */
    uint64_t graph_size;
} model_file;

/* Where the bytes go. */
typedef struct sink {
    file_writer *file;
    sbuf *buffer;
    tacit_error *err;
} sink;

static tacit_status put(sink *s, const void *data, size_t size)
{
    if (s->file)
        return file_writer_write(s->file, data, size, s->err);
    sbuf_bytes(s->buffer, data, size);
    return s->buffer->failed ? error_memory(s->err, "an encoded model") : TACIT_OK;
}

/* --- what the file needs ---------------------------------------------------------------------- */

static int64_t opset_of_node(const ir_node *n)
{
    static const struct {
        const char *type;
        int64_t since;
    } later[] = {
        {"Attention", 23}, {"RMSNormalization", 23}, {"RotaryEmbedding", 23},
        {"Swish", 24},     {"TensorScatter", 24},    {"BitCast", 26},
        {"CumProd", 26},   {"LinearAttention", 27},  {"CausalConvWithState", 27},
    };
    if (*n->domain)
        return 22;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (strcmp(n->type, later[i].type) == 0)
            return later[i].since == 23 && n->n_explicit > 6 ? 24 : later[i].since;
    if (ir_attr_find(n, "stash_type") && strcmp(n->type, "Range") == 0)
        return 27;
    if (ir_attr_find(n, "round_mode"))
        return 24;
    if (ir_attr_find(n, "output_dtype") || ir_attr_find(n, "precision"))
        return 23;
    return 22;
}

static int64_t opset_of_dtype(tacit_dtype dtype)
{
    return dtype == TACIT_U2 || dtype == TACIT_I2 ? 25
           : dtype == TACIT_F8E8M0                ? 24
           : dtype == TACIT_F4E2M1                ? 23
                                                  : 22;
}

static tacit_status raise_opset(void *context, ir_graph *sub)
{
    int64_t *most = context, here = onnx_opset_needed(sub);
    *most = here > *most ? here : *most;
    return TACIT_OK;
}

int64_t onnx_opset_needed(const ir_graph *g)
{
    int64_t most = 22;
    for (uint32_t i = 0; i < g->values.count; i++) {
        int64_t here = opset_of_dtype(g->values.data[i]->type.dtype);
        most = here > most ? here : most;
    }
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        int64_t here = opset_of_node(n);
        if (strcmp(n->type, "Cast") == 0) {
            int64_t to = opset_of_dtype(ir_dtype_from_onnx(ir_attr_int(n, "to", 1)));
            here = to > here ? to : here;
        }
        most = here > most ? here : most;
        (void)ir_node_subgraphs(n, raise_opset, &most); /* raise_opset never fails */
    }
    return most;
}

int64_t onnx_ir_version(int64_t opset)
{
    return opset <= 22 ? 10 : opset == 23 ? 11 : opset == 24 ? 12 : 13;
}

/* --- preparing -------------------------------------------------------------------------------- */

static tacit_status decompose_own(ir_graph *g, tacit_error *err);

static tacit_status decompose_sub(void *context, ir_graph *sub)
{
    return decompose_own(sub, context);
}

/* Until no op of our own is left; a decomposition may use others, but each gets simpler. */
static tacit_status decompose_own(ir_graph *g, tacit_error *err)
{
    bool changed = false;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        ir_node *n = g->nodes.data[i];
        if (!n->type)
            continue;
        TRY(ir_node_subgraphs(n, decompose_sub, err));
        if (strcmp(n->domain, "tacit") != 0)
            continue;
        if (!n->op || !n->op->decompose)
            return op_no_rule(n, "decompose", err);
        TRY(n->op->decompose(g, n, err));
        changed = true;
    }
    return changed ? ir_graph_sort(g, err) : TACIT_OK;
}

static bool outputs_typed(const ir_graph *g)
{
    for (uint32_t i = 0; i < g->outputs.count; i++)
        if (g->outputs.data[i]->type.dtype == TACIT_DTYPE_NONE)
            return false;
    return true;
}

static tacit_status prepare(model_file *f, const ir_graph *g)
{
    f->graph = ir_graph_clone(g, &f->scratch);
    if (!f->graph)
        return error_memory(f->w.err, "a copy of the graph");
    TRY(decompose_own(f->graph, f->w.err));
    TRY(ir_graph_sort(f->graph, f->w.err));
    /* Peers insist on output types. What cannot be inferred (unbound symbols) stays untyped, which
     * the checker reports better than we could. */
    if (!outputs_typed(f->graph))
        (void)op_infer_graph(f->graph, NULL);
    f->w.top = f->graph;
    f->w.scratch = &f->scratch;
    map_init(&f->w.taken, &f->scratch);
    return TACIT_OK;
}

static tacit_status collect_weights(model_file *f, const write_scope *scope)
{
    const ir_graph *g = f->graph;
    f->weights = ARENA_ARRAY(&f->scratch, g->values.count + 1u, weight);
    if (!f->weights)
        return error_memory(f->w.err, "weights");
    for (uint32_t i = 0; i < g->values.count; i++) {
        const ir_value *v = g->values.data[i];
        if (!v->is_initializer)
            continue;
        if (!ir_value_data(v) || v->constant->kind != IR_TENSOR)
            return error_set(f->w.err, TACIT_ERR_STATE, "weight '%s' has no data", v->name);
        f->weights[f->n_weights++] =
            (weight){.tensor = v->constant, .name = scope->names[i], .pad = UINT32_MAX};
    }
    return TACIT_OK;
}

static void put_about(sbuf *head, const ir_about *about)
{
    wire_put_text(head, 2, "tacit");
    if (*about->domain)
        wire_put_text(head, 4, about->domain);
    if (about->version)
        wire_put_int(head, 5, about->version);
    if (*about->doc)
        wire_put_text(head, 6, about->doc);
    for (uint32_t i = 0; i < about->metadata.count; i++) {
        size_t start = wire_begin(head, 14);
        wire_put_text(head, 1, about->metadata.data[i].key);
        wire_put_text(head, 2, about->metadata.data[i].value);
        wire_end(head, start);
    }
}

static void put_opsets(model_file *f)
{
    static const char *const others[] = {"ai.onnx.ml", "ai.onnx.preview.training",
                                         "ai.onnx.preview", "com.microsoft"};
    const ir_graph *g = f->graph;
    size_t start = wire_begin(&f->head, 8);
    wire_put_text(&f->head, 1, "");
    wire_put_int(&f->head, 2, onnx_opset_needed(g));
    wire_end(&f->head, start);
    for (uint32_t i = 0; i < g->opsets.count; i++) {
        if (!*g->opsets.data[i].domain)
            continue;
        start = wire_begin(&f->head, 8);
        wire_put_text(&f->head, 1, g->opsets.data[i].domain);
        wire_put_int(&f->head, 2, g->opsets.data[i].version);
        wire_end(&f->head, start);
    }
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        bool listed = false, used = false;
        for (uint32_t i = 0; i < g->opsets.count; i++)
            listed |= strcmp(g->opsets.data[i].domain, others[k]) == 0;
        for (uint32_t i = 0; i < g->nodes.count; i++)
            used |= strcmp(g->nodes.data[i]->domain, others[k]) == 0;
        if (listed || !used)
            continue;
        start = wire_begin(&f->head, 8);
        wire_put_text(&f->head, 1, others[k]);
        wire_put_int(&f->head, 2, k == 0 ? 5 : 1);
        wire_end(&f->head, start);
    }
}

/* --- layout ----------------------------------------------------------------------------------- */

/* The TensorProto up to its bytes, without tag and length. */
static void put_weight_head(const model_file *f, const weight *x, sbuf *b)
{
    static const char spaces[ALIGN + 1] =
        "                                                                ";
    onnx_put_tensor_head(b, x->tensor, x->name);
    if (x->tensor->dtype == TACIT_STRING)
        return;
    if (f->location) {
        const uint64_t numbers[2] = {x->offset, x->tensor->bytes};
        const char *const keys[3] = {"location", "offset", "length"};
        for (int k = 0; k < 3; k++) {
            char text[24];
            size_t start = wire_begin(b, 13);
            snprintf(text, sizeof text, "%llu", k ? (unsigned long long)numbers[k - 1] : 0ull);
            wire_put_text(b, 1, keys[k]);
            wire_put_text(b, 2, k ? text : f->location);
            wire_end(b, start);
        }
        wire_put_int(b, 14, 1);
        return;
    }
    if (x->pad != UINT32_MAX)
        wire_put_bytes(b, 12, spaces, x->pad);
    wire_put_header(b, 9, x->tensor->bytes);
}

static size_t bytes_inside(const model_file *f, const weight *x)
{
    return f->location || x->tensor->dtype == TACIT_STRING ? 0 : x->tensor->bytes;
}

/* Size of the whole field when it starts at `at`; chooses the padding. */
static tacit_status place_weight(model_file *f, weight *x, uint64_t at, sbuf *b, uint64_t *size)
{
    size_t data = bytes_inside(f, x);
    x->pad = UINT32_MAX;
    size_t length_size = 1;
    /* The length's own size depends on the padding; two rounds settle it but for freak sizes,
     * which then stay unaligned. */
    for (int round = 0; round < 3; round++) {
        b->length = 0;
        put_weight_head(f, x, b);
        if (b->failed)
            return error_memory(f->w.err, "an encoded model");
        length_size = wire_varint_size(b->length + data);
        uint64_t start = at + 1 + length_size + b->length;
        *size = 1 + length_size + b->length + data;
        if (data < ALIGN_FROM || start % ALIGN == 0)
            break;
        if (x->pad == UINT32_MAX)
            start += 2; /* tag and length of the padding field */
        else
            start -= x->pad;
        x->pad = (uint32_t)((ALIGN - start % ALIGN) % ALIGN);
    }
    b->length = 0;
    put_weight_head(f, x, b);
    *size = 1 + wire_varint_size(b->length + data) + b->length + data;
    return b->failed ? error_memory(f->w.err, "an encoded model") : TACIT_OK;
}

static tacit_status layout(model_file *f)
{
    sbuf b;
    tacit_status status = TACIT_OK;
    sbuf_init(&b, NULL);
    /* The length of the graph stands before it and depends on the padding inside. */
    size_t length_size = wire_varint_size(f->body.length);
    for (int round = 0; round < 4 && status == TACIT_OK; round++) {
        uint64_t begin = f->head.length + 1 + length_size, at = begin + f->body.length, size = 0;
        for (uint32_t i = 0; i < f->n_weights && status == TACIT_OK; i++) {
            status = place_weight(f, &f->weights[i], at, &b, &size);
            at += size;
        }
        f->graph_size = at - begin;
        size_t now = wire_varint_size(f->graph_size);
        if (now == length_size)
            break;
        length_size = now;
    }
    sbuf_free(&b);
    return status;
}

static tacit_status write_weights(model_file *f, sink *s)
{
    sbuf b, tag;
    tacit_status status = TACIT_OK;
    sbuf_init(&b, NULL);
    sbuf_init(&tag, NULL);
    for (uint32_t i = 0; i < f->n_weights && status == TACIT_OK; i++) {
        const weight *x = &f->weights[i];
        size_t data = bytes_inside(f, x);
        b.length = tag.length = 0;
        put_weight_head(f, x, &b);
        wire_put_header(&tag, 5, b.length + data);
        status = b.failed || tag.failed ? error_memory(s->err, "an encoded model")
                                        : put(s, tag.data, tag.length);
        if (status == TACIT_OK)
            status = put(s, b.data, b.length);
        if (status == TACIT_OK && data)
            status = put(s, x->tensor->data, data);
    }
    sbuf_free(&b);
    sbuf_free(&tag);
    return status;
}

static tacit_status write_model(model_file *f, sink *s)
{
    TRY(layout(f));
    wire_put_header(&f->head, 7, f->graph_size);
    if (f->head.failed || f->body.failed)
        return error_memory(s->err, "an encoded model");
    TRY(put(s, f->head.data, f->head.length));
    TRY(put(s, f->body.data, f->body.length));
    return write_weights(f, s);
}

/* --- files ------------------------------------------------------------------------------------ */

static tacit_status model_open(model_file *f, const ir_graph *g, tacit_error *err)
{
    *f = (model_file){.w.err = err};
    arena_init(&f->scratch, NULL);
    sbuf_init(&f->head, NULL);
    sbuf_init(&f->body, NULL);
    write_scope scope;
    TRY(prepare(f, g));
    TRY(onnx_scope_open(&f->w, &scope, f->graph, NULL, NULL));
    TRY(collect_weights(f, &scope));
    TRY(onnx_put_graph(&f->w, &f->body, &scope));
    wire_put_int(&f->head, 1, onnx_ir_version(onnx_opset_needed(f->graph)));
    put_about(&f->head, &f->graph->about);
    put_opsets(f);
    return TACIT_OK;
}

static void model_close(model_file *f)
{
    sbuf_free(&f->head);
    sbuf_free(&f->body);
    arena_free(&f->scratch);
}

static uint64_t total_size(const model_file *f)
{
    uint64_t total = f->body.length;
    for (uint32_t i = 0; i < f->n_weights; i++)
        total += f->weights[i].tensor->bytes + 2 * ALIGN + strlen(f->weights[i].name) + 128;
    return total;
}

/* The weights into PATH.data, each at a multiple of 64. */
static tacit_status write_external(model_file *f, const char *path, tacit_error *err)
{
    static const char zeros[ALIGN];
    const char *full = arena_printf(&f->scratch, "%s.data", path);
    const char *slash = full ? strrchr(full, '/') : NULL;
    if (!full)
        return error_memory(err, "a path");
    file_writer w;
    uint64_t at = 0;
    TRY(file_writer_open(&w, full, err));
    tacit_status status = TACIT_OK;
    for (uint32_t i = 0; i < f->n_weights && status == TACIT_OK; i++) {
        weight *x = &f->weights[i];
        if (x->tensor->dtype == TACIT_STRING)
            continue;
        size_t gap = (size_t)((ALIGN - at % ALIGN) % ALIGN);
        x->offset = at + gap;
        at = x->offset + x->tensor->bytes;
        status = file_writer_write(&w, zeros, gap, err);
        if (status == TACIT_OK)
            status = file_writer_write(&w, x->tensor->data, x->tensor->bytes, err);
    }
    if (status != TACIT_OK) {
        file_writer_abort(&w);
        return status;
    }
    f->location = slash ? slash + 1 : full;
    return file_writer_commit(&w, err);
}

static tacit_status write_file(model_file *f, const char *path, tacit_error *err)
{
    if (total_size(f) > inside_limit)
        TRY(write_external(f, path, err));
    file_writer w;
    TRY(file_writer_open(&w, path, err));
    sink s = {.file = &w, .err = err};
    tacit_status status = write_model(f, &s);
    if (status != TACIT_OK) {
        file_writer_abort(&w);
        return status;
    }
    return file_writer_commit(&w, err);
}

tacit_status load_onnx_write(const ir_graph *g, const char *path, tacit_error *err)
{
    model_file f;
    tacit_status status = model_open(&f, g, err);
    if (status == TACIT_OK)
        status = write_file(&f, path, err);
    model_close(&f);
    return status == TACIT_OK ? status : error_context(err, status, "writing '%s'", path);
}

tacit_status load_onnx_encode(const ir_graph *g, sbuf *out, tacit_error *err)
{
    model_file f;
    tacit_status status = model_open(&f, g, err);
    if (status == TACIT_OK && total_size(&f) > inside_limit)
        status = error_set(err, TACIT_ERR_LIMIT, "the model is too large for one message");
    sink s = {.buffer = out, .err = err};
    if (status == TACIT_OK)
        status = write_model(&f, &s);
    model_close(&f);
    return status;
}
