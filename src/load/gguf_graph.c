/* SPDX-License-Identifier: Apache-2.0
 * A language model from what a GGUF file says about it: pre-norm blocks with RMS norms, grouped
 * attention with rotary positions and a gated feed-forward layer. Weights stay in their blocks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "load/gguf.h"
#include "op/build.h"

enum {
    MOST_LAYERS = 4096,
    MOST_WIDTH = 1 << 20,
    MOST_POSITIONS = 131072, /* longer contexts are cut to this */
    MOST_TABLE = 1 << 24,
};

typedef struct shape_of_model {
    int64_t layers, width, heads, kv_heads, depth, rotated, context, vocabulary;
    double epsilon, base;
    bool halves; /* rotary pairs are (i, i + n/2), not neighbours */
} shape_of_model;

typedef struct graph_maker {
    const load_gguf_file *f;
    ir_graph *g;
    shape_of_model m;
    ir_value *tokens, *positions, *cosine, *sine, *mask;
    tacit_error *err;
    tacit_status status; /* the first failure; values are NULL from then on */
} graph_maker;

static ir_value *fail(graph_maker *k, tacit_status status)
{
    if (k->status == TACIT_OK)
        k->status = status;
    return NULL;
}

static double number(const graph_maker *k, const char *arch, const char *key, double fallback)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    const load_gguf_pair *p = load_gguf_find(k->f, name);
    return p && p->kind != LOAD_GGUF_STRING ? p->number : fallback;
}

static tacit_status read_count(const graph_maker *k, const char *arch, const char *key,
                               int64_t fallback, int64_t most, int64_t *out)
{
    double n = number(k, arch, key, (double)fallback);
    if (!(n >= 1) || n > (double)most || n != floor(n))
        return error_set(k->err, TACIT_ERR_FORMAT, "%s.%s is %g", arch, key, n);
    *out = (int64_t)n;
    return TACIT_OK;
}

static tacit_status read_shape(graph_maker *k)
{
    const load_gguf_pair *name = load_gguf_find(k->f, "general.architecture");
    const char *arch = name && name->kind == LOAD_GGUF_STRING ? name->text : "";
    shape_of_model *m = &k->m;
    if (strcmp(arch, "llama") != 0 && strcmp(arch, "qwen2") != 0)
        return error_set(k->err, TACIT_ERR_UNSUPPORTED,
                         "architecture '%s': graphs are made for llama and qwen2", arch);
    m->halves = strcmp(arch, "qwen2") == 0;
    TRY(read_count(k, arch, "block_count", 0, MOST_LAYERS, &m->layers));
    TRY(read_count(k, arch, "embedding_length", 0, MOST_WIDTH, &m->width));
    TRY(read_count(k, arch, "attention.head_count", 0, m->width, &m->heads));
    TRY(read_count(k, arch, "attention.head_count_kv", m->heads, m->heads, &m->kv_heads));
    TRY(read_count(k, arch, "context_length", 2048, INT32_MAX, &m->context));
    TRY(read_count(k, arch, "attention.key_length", m->width / m->heads, MOST_WIDTH, &m->depth));
    TRY(read_count(k, arch, "rope.dimension_count", m->depth, m->depth, &m->rotated));
    m->epsilon = number(k, arch, "attention.layer_norm_rms_epsilon", 1e-5);
    m->base = number(k, arch, "rope.freq_base", 10000);
    if (m->heads % m->kv_heads || m->rotated % 2 || !(m->base > 0) || !(m->epsilon >= 0))
        return error_set(k->err, TACIT_ERR_FORMAT, "%lld heads, %lld of keys, %lld rotated",
                         (long long)m->heads, (long long)m->kv_heads, (long long)m->rotated);
    m->context = m->context < MOST_POSITIONS ? m->context : MOST_POSITIONS;
    if (m->context * (m->rotated / 2) > MOST_TABLE)
        return error_set(k->err, TACIT_ERR_LIMIT, "%lld positions of %lld angles",
                         (long long)m->context, (long long)m->rotated / 2);
    return TACIT_OK;
}

/* --- weights -----------------------------------------------------------------------------------
 */

static const load_gguf_tensor *find(graph_maker *k, int64_t layer, const char *name, bool required)
{
    char full[256];
    if (k->status != TACIT_OK)
        return NULL;
    if (layer >= 0)
        snprintf(full, sizeof full, "blk.%lld.%s", (long long)layer, name);
    else
        snprintf(full, sizeof full, "%s", name);
    const load_gguf_tensor *t = load_gguf_tensor_find(k->f, full);
    if (!t && required)
        fail(k, error_set(k->err, TACIT_ERR_FORMAT, "tensor '%s' is missing", full));
    return t;
}

static ir_value *checked(graph_maker *k, ir_value *v)
{
    if (k->status != TACIT_OK)
        return NULL;
    return v ? v : fail(k, error_memory(k->err, "the graph"));
}

/* The tensor's bytes as a constant of this type, in place. */
static ir_value *in_place(graph_maker *k, const load_gguf_tensor *t, tacit_dtype dtype,
                          int32_t rank, const int64_t *dims)
{
    ir_tensor *c = k->status == TACIT_OK ? ARENA_NEW(k->g->memory, ir_tensor) : NULL;
    ir_shape shape = ir_shape_of(rank, dims);
    size_t align = ir_dtype_bytes(dtype, 1);
    if (!c)
        return checked(k, NULL);
    if ((uintptr_t)t->data % align == 0) {
        *c = ir_tensor_view(dtype, &shape, (void *)t->data);
    } else { /* a file that aligns to less */
        ir_tensor *copy = ir_tensor_new(k->g->memory, dtype, &shape);
        if (!copy)
            return fail(k, error_memory(k->err, "the graph"));
        memcpy(copy->data, t->data, copy->bytes);
        *c = *copy;
    }
    ir_value *v = ir_constant_new(k->g, t->name, c);
    return v ? v : fail(k, error_memory(k->err, "the graph"));
}

/* A vector of f32. */
static ir_value *vector(graph_maker *k, int64_t layer, const char *name, int64_t n, bool required)
{
    const load_gguf_tensor *t = find(k, layer, name, required);
    if (!t)
        return NULL;
    if (t->shape.rank != 1 || t->shape.dims[0] != n || t->dtype != TACIT_F32)
        return fail(k, error_set(k->err, TACIT_ERR_FORMAT, "tensor '%s' is not f32 [%lld]", t->name,
                                 (long long)n));
    return in_place(k, t, TACIT_F32, 1, &n);
}

/* x·Wᵀ (+ bias): W [n, k] as the file has it. */
static ir_value *linear(graph_maker *k, ir_value *x, const load_gguf_tensor *t, int64_t in,
                        int64_t out)
{
    if (!t || !x)
        return NULL;
    if (t->shape.rank != 2 || t->shape.dims[0] != out || t->shape.dims[1] != in)
        return fail(k, error_set(k->err, TACIT_ERR_FORMAT, "tensor '%s' is not [%lld,%lld]",
                                 t->name, (long long)out, (long long)in));
    if (t->dtype != TACIT_U8) {
        ir_value *w = in_place(k, t, t->dtype, 2, t->shape.dims);
        if (w && t->dtype != TACIT_F32)
            w = op_build_cast(k->g, w, TACIT_F32);
        return checked(
            k, op_build2(k->g, "MatMul", x, op_build_transpose(k->g, w, 2, (int64_t[]){1, 0})));
    }
    int64_t bytes = (int64_t)t->bytes;
    ir_value *inputs[2] = {x, in_place(k, t, TACIT_U8, 1, &bytes)};
    ir_node *n =
        inputs[1] ? ir_node_new(k->g, "DequantMatMul", "tacit", t->name, 2, inputs, 1, NULL) : NULL;
    if (!n || !ir_attr_set_string(k->g, n, "scheme", "gguf") ||
        !ir_attr_set_string(k->g, n, "type", t->type) || !ir_attr_set_int(k->g, n, "n", out) ||
        !ir_attr_set_int(k->g, n, "int8_activations", 1))
        return checked(k, NULL);
    return n->outputs[0];
}

static ir_value *layer_linear(graph_maker *k, ir_value *x, int64_t layer, const char *stem,
                              int64_t in, int64_t out)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", stem);
    ir_value *y = linear(k, x, find(k, layer, name, true), in, out);
    snprintf(name, sizeof name, "%s.bias", stem);
    ir_value *bias = vector(k, layer, name, out, false);
    return y && bias ? checked(k, op_build2(k->g, "Add", y, bias)) : y;
}

static ir_value *norm(graph_maker *k, ir_value *x, int64_t layer, const char *name)
{
    ir_value *scale = vector(k, layer, name, k->m.width, true);
    ir_value *y = x && scale ? op_build2(k->g, "RMSNormalization", x, scale) : NULL;
    if (y && (!ir_attr_set_int(k->g, y->producer, "axis", -1) ||
              !ir_attr_set_float(k->g, y->producer, "epsilon", k->m.epsilon)))
        y = NULL;
    return k->status == TACIT_OK ? checked(k, y) : NULL;
}

/* Rows of the embedding: bytes are gathered, then decoded. */
static ir_value *embed(graph_maker *k, const load_gguf_tensor *t)
{
    if (t->dtype != TACIT_U8) {
        ir_value *x =
            op_build2(k->g, "Gather", in_place(k, t, t->dtype, 2, t->shape.dims), k->tokens);
        return checked(k, t->dtype == TACIT_F32 ? x : op_build_cast(k->g, x, TACIT_F32));
    }
    int64_t dims[2] = {t->shape.dims[0], (int64_t)t->bytes / t->shape.dims[0]};
    ir_value *rows = op_build2(k->g, "Gather", in_place(k, t, TACIT_U8, 2, dims), k->tokens);
    ir_node *n =
        rows ? ir_node_new(k->g, "DequantizeGguf", "tacit", "embedding", 1, &rows, 1, NULL) : NULL;
    return n && ir_attr_set_string(k->g, n, "type", t->type) ? n->outputs[0] : checked(k, NULL);
}

/* --- the parts of a block ----------------------------------------------------------------------
 */

static tacit_status make_tables(graph_maker *k)
{
    int64_t half = k->m.rotated / 2;
    ir_shape s = ir_shape_of(2, (int64_t[]){k->m.context, half});
    ir_tensor *cosine = ir_tensor_new(k->g->memory, TACIT_F32, &s);
    ir_tensor *sine = ir_tensor_new(k->g->memory, TACIT_F32, &s);
    if (!cosine || !sine)
        return error_memory(k->err, "the graph");
    for (int64_t p = 0; p < k->m.context; p++)
        for (int64_t i = 0; i < half; i++) {
            double angle = (double)p * pow(k->m.base, -2.0 * (double)i / (double)k->m.rotated);
            ((float *)cosine->data)[p * half + i] = (float)cos(angle);
            ((float *)sine->data)[p * half + i] = (float)sin(angle);
        }
    k->cosine = ir_constant_new(k->g, "rotary.cos", cosine);
    k->sine = ir_constant_new(k->g, "rotary.sin", sine);
    return k->cosine && k->sine ? TACIT_OK : error_memory(k->err, "the graph");
}

/* [B,S,H·D] → [B,H,S,D] */
static ir_value *split(graph_maker *k, ir_value *x, int64_t heads)
{
    int64_t dims[4] = {0, 0, heads, k->m.depth};
    ir_value *y = x ? op_build2(k->g, "Reshape", x, op_build_ints(k->g, 4, dims)) : NULL;
    return y ? op_build_transpose(k->g, y, 4, (int64_t[]){0, 2, 1, 3}) : NULL;
}

static ir_value *rotate(graph_maker *k, ir_value *x)
{
    ir_value *in[] = {x, k->cosine, k->sine, k->positions};
    ir_node *n = x ? op_node(k->g, "RotaryEmbedding", NULL, 4, in) : NULL;
    if (!n || !ir_attr_set_int(k->g, n, "interleaved", k->m.halves ? 0 : 1) ||
        (k->m.rotated != k->m.depth &&
         !ir_attr_set_int(k->g, n, "rotary_embedding_dim", k->m.rotated)))
        return NULL;
    return n->outputs[0];
}

/* Every key head for its group of query heads. */
static ir_value *repeat(graph_maker *k, ir_value *x)
{
    int64_t group = k->m.heads / k->m.kv_heads;
    if (group == 1 || !x)
        return x;
    ir_value *y = op_build2(k->g, "Unsqueeze", x, op_build_ints(k->g, 1, (int64_t[]){2}));
    y = op_build2(k->g, "Expand", y, op_build_ints(k->g, 5, (int64_t[]){1, 1, group, 1, 1}));
    int64_t dims[4] = {0, k->m.heads, -1, k->m.depth};
    return y ? op_build2(k->g, "Reshape", y, op_build_ints(k->g, 4, dims)) : NULL;
}

static ir_value *past_input(graph_maker *k, int64_t layer, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "past_key_values.%lld.%s", (long long)layer, what);
    int64_t past = ir_symbol_index(k->g, "past");
    int64_t dims[4] = {1, k->m.kv_heads, IR_DIM_SYMBOL(past), k->m.depth};
    ir_type type = ir_type_tensor(TACIT_F32, 4, dims);
    return past < 0 ? NULL : ir_input_new(k->g, name, &type);
}

/* past, then new; the whole is an output. */
static ir_value *grow(graph_maker *k, ir_value *past, ir_value *new, int64_t layer,
                      const char *what)
{
    char name[64];
    const char *names[1] = {name};
    ir_value *in[2] = {past, new};
    snprintf(name, sizeof name, "present.%lld.%s", (long long)layer, what);
    ir_node *n = past && new ? ir_node_new(k->g, "Concat", "", NULL, 2, in, 1, names) : NULL;
    if (!n || !ir_attr_set_int(k->g, n, "axis", 2) || !ir_output_add(k->g, n->outputs[0]))
        return NULL;
    op_resolve(NULL, n);
    return n->outputs[0];
}

/* Key j is seen by the query at position past + i when j ≤ past + i. */
static ir_value *make_mask(graph_maker *k, ir_value *past)
{
    ir_graph *g = k->g;
    ir_value *two = ir_constant_i64(g, "axis", 0, 1, (int64_t[]){2});
    ir_value *one = ir_constant_i64(g, "axis", 0, 1, (int64_t[]){1});
    ir_value *zero = ir_constant_i64(g, "axis", 0, 1, (int64_t[]){0});
    ir_value *held = op_build2(g, "Gather", op_build1(g, "Shape", past), two);
    ir_value *new = op_build2(g, "Gather", op_build1(g, "Shape", k->tokens), one);
    ir_value *all = op_build2(g, "Add", held, new);
    ir_value *keys = op_build3(g, "Range", zero, all, one);
    ir_value *queries = op_build3(g, "Range", held, all, one);
    queries = op_build2(g, "Unsqueeze", queries, op_build_ints(g, 1, (int64_t[]){1}));
    return op_build2(g, "LessOrEqual", keys, queries);
}

static ir_value *attend(graph_maker *k, ir_value *h, int64_t layer)
{
    const shape_of_model *m = &k->m;
    ir_graph *g = k->g;
    int64_t wide = m->heads * m->depth, narrow = m->kv_heads * m->depth;
    ir_value *q = layer_linear(k, h, layer, "attn_q", m->width, wide);
    ir_value *key = layer_linear(k, h, layer, "attn_k", m->width, narrow);
    ir_value *value = layer_linear(k, h, layer, "attn_v", m->width, narrow);
    ir_value *past_k = past_input(k, layer, "key"), *past_v = past_input(k, layer, "value");
    if (layer == 0 && past_k)
        k->mask = make_mask(k, past_k);
    q = rotate(k, split(k, q, m->heads));
    key = repeat(k, grow(k, past_k, rotate(k, split(k, key, m->kv_heads)), layer, "key"));
    value = repeat(k, grow(k, past_v, split(k, value, m->kv_heads), layer, "value"));
    ir_value *s =
        key ? op_build2(g, "MatMul", q, op_build_transpose(g, key, 4, (int64_t[]){0, 1, 3, 2}))
            : NULL;
    s = op_build2(g, "Mul", s, op_build_scalar(g, TACIT_F32, 1 / sqrt((double)m->depth)));
    s = op_build3(g, "Where", k->mask, s, op_build_scalar(g, TACIT_F32, -3.4028234663852886e38));
    ir_value *p = op_build1(g, "Softmax", s);
    if (!p || !ir_attr_set_int(g, p->producer, "axis", -1))
        return k->status == TACIT_OK ? checked(k, NULL) : NULL;
    ir_value *y = op_build2(g, "MatMul", p, value);
    y = y ? op_build_transpose(g, y, 4, (int64_t[]){0, 2, 1, 3}) : NULL;
    int64_t dims[3] = {0, 0, wide};
    y = y ? op_build2(g, "Reshape", y, op_build_ints(g, 3, dims)) : NULL;
    return layer_linear(k, y, layer, "attn_output", wide, m->width);
}

static ir_value *feed_forward(graph_maker *k, ir_value *h, int64_t layer)
{
    const load_gguf_tensor *up = find(k, layer, "ffn_up.weight", true);
    int64_t ffn = up && up->shape.rank == 2 ? up->shape.dims[0] : 0;
    ir_value *gate = layer_linear(k, h, layer, "ffn_gate", k->m.width, ffn);
    ir_value *wide = layer_linear(k, h, layer, "ffn_up", k->m.width, ffn);
    gate = op_build2(k->g, "Mul", gate, op_build1(k->g, "Sigmoid", gate));
    return layer_linear(k, op_build2(k->g, "Mul", gate, wide), layer, "ffn_down", ffn, k->m.width);
}

static tacit_status make(graph_maker *k)
{
    TRY(read_shape(k));
    int64_t seq = ir_symbol_index(k->g, "seq");
    ir_type ids = ir_type_tensor(TACIT_I64, 2, (int64_t[]){1, IR_DIM_SYMBOL(seq)});
    k->tokens = seq < 0 ? NULL : ir_input_new(k->g, "input_ids", &ids);
    k->positions = seq < 0 ? NULL : ir_input_new(k->g, "position_ids", &ids);
    if (!k->tokens || !k->positions)
        return error_memory(k->err, "the graph");
    const load_gguf_tensor *table = find(k, -1, "token_embd.weight", true);
    TRY(k->status);
    if (table->shape.rank != 2 || table->shape.dims[1] != k->m.width || table->shape.dims[0] < 1)
        return error_set(k->err, TACIT_ERR_FORMAT, "token_embd.weight does not fit the width");
    TRY(make_tables(k));
    ir_value *x = embed(k, table);
    for (int64_t i = 0; i < k->m.layers && k->status == TACIT_OK; i++) {
        ir_value *a = attend(k, norm(k, x, i, "attn_norm.weight"), i);
        x = op_build2(k->g, "Add", x, a);
        ir_value *f = feed_forward(k, norm(k, x, i, "ffn_norm.weight"), i);
        x = op_build2(k->g, "Add", x, f);
    }
    TRY(k->status);
    const load_gguf_tensor *head = find(k, -1, "output.weight", false);
    x = linear(k, norm(k, x, -1, "output_norm.weight"), head ? head : table, k->m.width,
               table->shape.dims[0]);
    TRY(k->status);
    ir_node *named =
        x ? ir_node_new(k->g, "Identity", "", "logits", 1, &x, 1, (const char *const[]){"logits"})
          : NULL;
    if (!named || !ir_output_add(k->g, named->outputs[0]))
        return error_memory(k->err, "the graph");
    return TACIT_OK;
}

tacit_status load_gguf_graph(const load_gguf_file *f, arena *memory, ir_graph **out,
                             tacit_error *err)
{
    graph_maker k = {.f = f, .g = ir_graph_new(memory, "gguf"), .err = err, .status = TACIT_OK};
    if (!k.g)
        return error_memory(err, "the graph");
    TRY(make(&k));
    *out = k.g;
    return TACIT_OK;
}
