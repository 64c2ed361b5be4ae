/* SPDX-License-Identifier: Apache-2.0
 * A language model from what a GGUF file says about it (load/gguf_model.h): blocks of grouped
 * attention and a feed-forward layer. Weights stay in their blocks. Every tensor of the file must
 * have found its place: one that has not would mean another model than ours. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "load/gguf_model.h"
#include "op/build.h"

/* What layers with and without a window share. */
typedef struct positions_of {
    ir_value *cosine, *sine, *mask;
} positions_of;

typedef struct graph_maker {
    const load_gguf_file *f;
    ir_graph *g;
    load_gguf_shape m;
    ir_value *tokens, *positions;
    positions_of all, local;
    bool *used; /* by tensor of the file */
    tacit_error *err;
    tacit_status status; /* the first failure; values are NULL from then on */
} graph_maker;

static ir_value *fail(graph_maker *k, tacit_status status)
{
    if (k->status == TACIT_OK)
        k->status = status;
    return NULL;
}

static ir_value *checked(graph_maker *k, ir_value *v)
{
    if (k->status != TACIT_OK)
        return NULL;
    return v ? v : fail(k, error_memory(k->err, "the graph"));
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
    if (t)
        k->used[t - k->f->tensors.data] = true;
    else if (required)
        fail(k, error_set(k->err, TACIT_ERR_FORMAT, "tensor '%s' is missing", full));
    return t;
}

/* Tensor `stem`.weight or `stem`.bias of a layer (or of none: -1). */
static const load_gguf_tensor *find_part(graph_maker *k, int64_t layer, const char *stem,
                                         const char *part, bool required)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", stem, part);
    return find(k, layer, name, required);
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

/* A vector of f32, or NULL where there is none. */
static ir_value *vector(graph_maker *k, const load_gguf_tensor *t, int64_t n)
{
    if (!t)
        return NULL;
    if (t->shape.rank != 1 || t->shape.dims[0] != n || t->dtype != TACIT_F32)
        return fail(k, error_set(k->err, TACIT_ERR_FORMAT, "tensor '%s' is not f32 [%lld]", t->name,
                                 (long long)n));
    return in_place(k, t, TACIT_F32, 1, &n);
}

/* x·Wᵀ: W [out, in] as the file has it. */
static ir_value *product(graph_maker *k, ir_value *x, const load_gguf_tensor *t, int64_t in,
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

/* With a bias where the file has one. */
static ir_value *linear(graph_maker *k, ir_value *x, int64_t layer, const char *stem, int64_t in,
                        int64_t out)
{
    ir_value *y = product(k, x, find_part(k, layer, stem, "weight", true), in, out);
    ir_value *bias = vector(k, find_part(k, layer, stem, "bias", false), out);
    return y && bias ? checked(k, op_build2(k->g, "Add", y, bias)) : y;
}

/* `x` with rows of n elements, normalised. */
static ir_value *normed(graph_maker *k, ir_value *x, const load_gguf_tensor *weight,
                        const load_gguf_tensor *offset, int64_t n)
{
    ir_value *scale = vector(k, weight, n), *bias = vector(k, offset, n);
    bool layer = k->m.is->layer_norm;
    if (bias && !layer)
        return fail(k, error_set(k->err, TACIT_ERR_UNSUPPORTED,
                                 "tensor '%s': a norm of the root mean square has no bias",
                                 offset->name));
    ir_value *y = NULL;
    if (x && scale)
        y = bias    ? op_build3(k->g, "LayerNormalization", x, scale, bias)
            : layer ? op_build2(k->g, "LayerNormalization", x, scale)
                    : op_build2(k->g, "RMSNormalization", x, scale);
    if (y && (!ir_attr_set_int(k->g, y->producer, "axis", -1) ||
              !ir_attr_set_float(k->g, y->producer, "epsilon", k->m.epsilon)))
        y = NULL;
    return checked(k, y);
}

static ir_value *norm(graph_maker *k, ir_value *x, int64_t layer, const char *stem)
{
    const load_gguf_tensor *weight = find_part(k, layer, stem, "weight", true);
    return normed(k, x, weight, find_part(k, layer, stem, "bias", false), k->m.width);
}

static ir_value *times(graph_maker *k, ir_value *x, double factor)
{
    if (factor == 1 || !x)
        return x;
    return checked(k, op_build2(k->g, "Mul", x, op_build_scalar(k->g, TACIT_F32, factor)));
}

/* cap·tanh(x / cap) */
static ir_value *capped(graph_maker *k, ir_value *x, double cap)
{
    return cap > 0 ? times(k, op_build1(k->g, "Tanh", times(k, x, 1 / cap)), cap) : x;
}

/* Rows of a table: bytes are gathered, then decoded. */
static ir_value *rows_of(graph_maker *k, const load_gguf_tensor *t, ir_value *which)
{
    if (!t)
        return NULL;
    if (t->shape.rank != 2 || t->shape.dims[1] != k->m.width || t->shape.dims[0] < 1)
        return fail(
            k, error_set(k->err, TACIT_ERR_FORMAT, "tensor '%s' does not fit the width", t->name));
    if (t->dtype != TACIT_U8) {
        ir_value *x = op_build2(k->g, "Gather", in_place(k, t, t->dtype, 2, t->shape.dims), which);
        return checked(k, t->dtype == TACIT_F32 ? x : op_build_cast(k->g, x, TACIT_F32));
    }
    int64_t dims[2] = {t->shape.dims[0], (int64_t)t->bytes / t->shape.dims[0]};
    ir_value *rows = op_build2(k->g, "Gather", in_place(k, t, TACIT_U8, 2, dims), which);
    ir_node *n =
        rows ? ir_node_new(k->g, "DequantizeGguf", "tacit", t->name, 1, &rows, 1, NULL) : NULL;
    return n && ir_attr_set_string(k->g, n, "type", t->type) ? n->outputs[0] : checked(k, NULL);
}

/* --- positions ---------------------------------------------------------------------------------
 */

/* The file's own divisors of speeds, or NULL: one vector, or one for short and one for long texts,
 * of which the short ones are taken (positions end there: see make_positions). */
static tacit_status find_factors(graph_maker *k, const float **out)
{
    static const char *const names[] = {"rope_freqs.weight", "rope_factors_short.weight",
                                        "rope_factors_long.weight"};
    *out = NULL;
    for (int i = 0; i < 3; i++) {
        const load_gguf_tensor *t = find(k, -1, names[i], false);
        ir_value *v = vector(k, t, k->m.rotated / 2);
        TRY(k->status);
        if (v && !*out)
            *out = ir_value_known(v)->data;
    }
    return TACIT_OK;
}

/* Row p holds cos and sin of p times each speed. From row to row by turning once more, in double:
 * 2¹⁷ steps lose nothing that an f32 would show. */
static tacit_status fill_table(graph_maker *k, const double *speeds, double magnitude,
                               positions_of *out)
{
    int64_t half = k->m.rotated / 2;
    ir_shape s = ir_shape_of(2, (int64_t[]){k->m.context, half});
    ir_tensor *cosine = ir_tensor_new(k->g->memory, TACIT_F32, &s);
    ir_tensor *sine = ir_tensor_new(k->g->memory, TACIT_F32, &s);
    double *turn = ARENA_ARRAY(k->g->memory, 4 * (size_t)half, double);
    if (!cosine || !sine || !turn)
        return error_memory(k->err, "the graph");
    double *step_c = turn, *step_s = turn + half, *at_c = turn + 2 * half, *at_s = turn + 3 * half;
    for (int64_t i = 0; i < half; i++) {
        step_c[i] = cos(speeds[i]);
        step_s[i] = sin(speeds[i]);
        at_c[i] = magnitude;
        at_s[i] = 0;
    }
    float *c = cosine->data, *z = sine->data;
    for (int64_t p = 0; p < k->m.context; p++, c += half, z += half)
        for (int64_t i = 0; i < half; i++) {
            double re = at_c[i], im = at_s[i];
            c[i] = (float)re;
            z[i] = (float)im;
            at_c[i] = re * step_c[i] - im * step_s[i];
            at_s[i] = re * step_s[i] + im * step_c[i];
        }
    out->cosine = ir_constant_new(k->g, "rotary.cos", cosine);
    out->sine = ir_constant_new(k->g, "rotary.sin", sine);
    return out->cosine && out->sine ? TACIT_OK : error_memory(k->err, "the graph");
}

static tacit_status make_positions(graph_maker *k)
{
    const float *factors;
    double magnitude;
    if (k->m.is->rotary == LOAD_GGUF_LEARNED)
        return TACIT_OK;
    double *speeds = ARENA_ARRAY(k->g->memory, (size_t)k->m.rotated / 2, double);
    if (!speeds)
        return error_memory(k->err, "the graph");
    TRY(find_factors(k, &factors));
    if (load_gguf_tensor_find(k->f, "rope_factors_long.weight")) { /* not for short texts */
        double trained = load_gguf_of(k->f, &k->m, "rope.scaling.original_context_length", 0);
        if (trained >= 1 && trained < (double)k->m.context)
            k->m.context = (int64_t)trained;
    }
    TRY(load_gguf_angles(k->f, &k->m, false, factors, speeds, &magnitude, k->err));
    TRY(fill_table(k, speeds, magnitude, &k->all));
    k->local = k->all;
    if (!k->m.window || k->m.is->local_base == 0)
        return TACIT_OK;
    TRY(load_gguf_angles(k->f, &k->m, true, factors, speeds, &magnitude, k->err));
    return fill_table(k, speeds, magnitude, &k->local);
}

/* Key j is seen by the query at position past + i when j ≤ past + i, and with a window when
 * j > past + i - window. */
static void make_masks(graph_maker *k, ir_value *past)
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
    k->all.mask = checked(k, op_build2(g, "LessOrEqual", keys, queries));
    k->local.mask = k->all.mask;
    if (!k->m.window)
        return;
    ir_value *first =
        op_build2(g, "Sub", queries, op_build_scalar(g, TACIT_I64, (double)k->m.window));
    k->local.mask =
        checked(k, op_build2(g, "And", k->all.mask, op_build2(g, "Greater", keys, first)));
}

/* --- the parts of a block ----------------------------------------------------------------------
 */

static bool every(int64_t layer, int64_t period)
{
    return period > 0 && layer % period == period - 1;
}

static bool is_local(const graph_maker *k, int64_t layer)
{
    int64_t period = k->m.is->window_period;
    return k->m.window && (period == 1 || !every(layer, period));
}

/* [B,S,H·D] → [B,H,S,D] */
static ir_value *split(graph_maker *k, ir_value *x, int64_t heads, int64_t depth)
{
    int64_t dims[4] = {0, 0, heads, depth};
    ir_value *y = x ? op_build2(k->g, "Reshape", x, op_build_ints(k->g, 4, dims)) : NULL;
    return y ? op_build_transpose(k->g, y, 4, (int64_t[]){0, 2, 1, 3}) : NULL;
}

static ir_value *rotate(graph_maker *k, ir_value *x, int64_t layer)
{
    const positions_of *at = is_local(k, layer) ? &k->local : &k->all;
    ir_value *in[] = {x, at->cosine, at->sine, k->positions};
    if (k->m.is->rotary == LOAD_GGUF_LEARNED || every(layer, k->m.is->still_period))
        return x;
    ir_node *n = x ? op_node(k->g, "RotaryEmbedding", NULL, 4, in) : NULL;
    if (!n || !ir_attr_set_int(k->g, n, "interleaved", k->m.is->rotary == LOAD_GGUF_NEIGHBOURS) ||
        (k->m.rotated != k->m.depth &&
         !ir_attr_set_int(k->g, n, "rotary_embedding_dim", k->m.rotated)))
        return NULL;
    return n->outputs[0];
}

/* Queries or keys by heads: normalised where the file has a norm for them, of a head or of all. */
static ir_value *heads_of(graph_maker *k, ir_value *x, int64_t layer, const char *stem,
                          int64_t heads)
{
    const load_gguf_tensor *t = find_part(k, layer, stem, "weight", false);
    int64_t n = t && t->shape.rank == 1 ? t->shape.dims[0] : 0;
    if (t && n == heads * k->m.depth && heads > 1)
        return split(k, normed(k, x, t, NULL, n), heads, k->m.depth);
    ir_value *y = split(k, x, heads, k->m.depth);
    return t && y ? normed(k, y, t, NULL, k->m.depth) : y;
}

/* Every key head for its group of query heads. */
static ir_value *repeat(graph_maker *k, ir_value *x, int64_t depth)
{
    int64_t group = k->m.heads / k->m.kv_heads;
    if (group == 1 || !x)
        return x;
    ir_value *y = op_build2(k->g, "Unsqueeze", x, op_build_ints(k->g, 1, (int64_t[]){2}));
    y = op_build2(k->g, "Expand", y, op_build_ints(k->g, 5, (int64_t[]){1, 1, group, 1, 1}));
    int64_t dims[4] = {0, k->m.heads, -1, depth};
    return y ? op_build2(k->g, "Reshape", y, op_build_ints(k->g, 4, dims)) : NULL;
}

static ir_value *past_input(graph_maker *k, int64_t layer, const char *what, int64_t depth)
{
    char name[64];
    snprintf(name, sizeof name, "past_key_values.%lld.%s", (long long)layer, what);
    int64_t past = ir_symbol_index(k->g, "past");
    int64_t dims[4] = {1, k->m.kv_heads, IR_DIM_SYMBOL(past), depth};
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

/* Part [begin, end) of the last axis. */
static ir_value *columns(graph_maker *k, ir_value *x, int64_t begin, int64_t end)
{
    ir_value *in[] = {x, op_build_ints(k->g, 1, &begin), op_build_ints(k->g, 1, &end),
                      op_build_ints(k->g, 1, (int64_t[]){-1})};
    ir_node *n = x && in[1] && in[2] && in[3] ? op_node(k->g, "Slice", NULL, 4, in) : NULL;
    return checked(k, n ? n->outputs[0] : NULL);
}

/* Queries, keys and values of a layer, from weights of their own or joined ones. */
static void project(graph_maker *k, ir_value *h, int64_t layer, ir_value *out[3])
{
    static const char *const stems[] = {"attn_q", "attn_k", "attn_v"};
    const load_gguf_shape *m = &k->m;
    int64_t sizes[3] = {m->heads * m->depth, m->kv_heads * m->depth, m->kv_heads * m->value_depth};
    ir_value *joined = NULL;
    if (find(k, layer, "attn_qkv.weight", false))
        joined = linear(k, h, layer, "attn_qkv", m->width, sizes[0] + sizes[1] + sizes[2]);
    int64_t at = 0;
    for (int i = 0; i < 3; at += sizes[i++])
        out[i] = joined ? columns(k, joined, at, at + sizes[i])
                        : linear(k, h, layer, stems[i], m->width, sizes[i]);
}

static ir_value *attend(graph_maker *k, ir_value *h, int64_t layer)
{
    const load_gguf_shape *m = &k->m;
    ir_graph *g = k->g;
    ir_value *x[3];
    project(k, h, layer, x);
    ir_value *past_k = past_input(k, layer, "key", m->depth);
    ir_value *past_v = past_input(k, layer, "value", m->value_depth);
    if (layer == 0 && past_k)
        make_masks(k, past_k);
    ir_value *q = rotate(k, heads_of(k, x[0], layer, "attn_q_norm", m->heads), layer);
    ir_value *key = rotate(k, heads_of(k, x[1], layer, "attn_k_norm", m->kv_heads), layer);
    ir_value *value = split(k, x[2], m->kv_heads, m->value_depth);
    key = repeat(k, grow(k, past_k, key, layer, "key"), m->depth);
    value = repeat(k, grow(k, past_v, value, layer, "value"), m->value_depth);
    ir_value *s =
        key ? op_build2(g, "MatMul", q, op_build_transpose(g, key, 4, (int64_t[]){0, 1, 3, 2}))
            : NULL;
    s = capped(k, times(k, s, m->scores), m->softcap);
    s = op_build3(g, "Where", is_local(k, layer) ? k->local.mask : k->all.mask, s,
                  op_build_scalar(g, TACIT_F32, -3.4028234663852886e38));
    ir_value *p = op_build1(g, "Softmax", s);
    if (!p || !ir_attr_set_int(g, p->producer, "axis", -1))
        return checked(k, NULL);
    ir_value *y = op_build2(g, "MatMul", p, value);
    y = y ? op_build_transpose(g, y, 4, (int64_t[]){0, 2, 1, 3}) : NULL;
    int64_t wide = m->heads * m->value_depth, dims[3] = {0, 0, wide};
    y = y ? op_build2(g, "Reshape", y, op_build_ints(g, 3, dims)) : NULL;
    return linear(k, y, layer, "attn_output", wide, m->width);
}

static ir_value *activate(graph_maker *k, ir_value *x)
{
    ir_value *y = NULL;
    switch (k->m.is->activation) {
    case LOAD_GGUF_SILU:
        y = op_build2(k->g, "Mul", x, op_build1(k->g, "Sigmoid", x));
        break;
    case LOAD_GGUF_GELU:
        y = op_build1(k->g, "Gelu", x);
        if (y && !ir_attr_set_string(k->g, y->producer, "approximate", "tanh"))
            y = NULL;
        break;
    case LOAD_GGUF_RELU_SQUARED:
        y = op_build1(k->g, "Relu", x);
        y = op_build2(k->g, "Mul", y, y);
        break;
    }
    return checked(k, y);
}

/* Gates are weights of their own, joined with `ffn_up`, or not there. */
static ir_value *feed_forward(graph_maker *k, ir_value *h, int64_t layer)
{
    const load_gguf_tensor *up = find(k, layer, "ffn_up.weight", true);
    int64_t ffn = up && up->shape.rank == 2 ? up->shape.dims[0] : 0, hidden = ffn;
    ir_value *wide = linear(k, h, layer, "ffn_up", k->m.width, ffn), *gate = NULL;
    if (find(k, layer, "ffn_gate.weight", false)) {
        gate = linear(k, h, layer, "ffn_gate", k->m.width, ffn);
    } else if (k->m.is->joined_gate) {
        hidden = ffn / 2;
        gate = columns(k, wide, 0, hidden);
        wide = columns(k, wide, hidden, ffn);
    }
    wide = gate ? op_build2(k->g, "Mul", activate(k, gate), wide) : activate(k, wide);
    return linear(k, wide, layer, "ffn_down", hidden, k->m.width);
}

/* --- the whole ---------------------------------------------------------------------------------
 */

static ir_value *add(graph_maker *k, ir_value *x, ir_value *y)
{
    return op_build2(k->g, "Add", x, times(k, y, k->m.residual));
}

/* Both layers read x; one norm serves both where there is no second one. A file may have one for
 * attention alone beside that of the feed-forward layer. */
static ir_value *parallel_block(graph_maker *k, ir_value *x, int64_t layer)
{
    ir_value *h = norm(k, x, layer, "attn_norm"), *own = h, *fed = h;
    if (find(k, layer, "attn_norm_2.weight", false))
        own = norm(k, x, layer, "attn_norm_2");
    if (find(k, layer, "ffn_norm.weight", false))
        fed = norm(k, x, layer, "ffn_norm");
    return add(k, add(k, x, attend(k, own, layer)), feed_forward(k, fed, layer));
}

static ir_value *block(graph_maker *k, ir_value *x, int64_t layer)
{
    load_gguf_order order = k->m.order;
    if (order == LOAD_GGUF_PARALLEL || (order == LOAD_GGUF_PRE && k->m.is->layer_norm &&
                                        !find(k, layer, "ffn_norm.weight", false)))
        return parallel_block(k, x, layer);
    bool before = order != LOAD_GGUF_POST, behind = order != LOAD_GGUF_PRE;
    ir_value *y = attend(k, before ? norm(k, x, layer, "attn_norm") : x, layer);
    x = add(k, x, behind ? norm(k, y, layer, "post_attention_norm") : y);
    y = feed_forward(k, before ? norm(k, x, layer, "ffn_norm") : x, layer);
    return add(k, x, behind ? norm(k, y, layer, "post_ffw_norm") : y);
}

static ir_value *embed(graph_maker *k)
{
    ir_value *x =
        times(k, rows_of(k, find(k, -1, "token_embd.weight", true), k->tokens), k->m.embedding);
    if (k->m.is->rotary == LOAD_GGUF_LEARNED)
        x = op_build2(k->g, "Add", x,
                      rows_of(k, find(k, -1, "position_embd.weight", true), k->positions));
    return checked(k, x);
}

/* Without a head of its own the embedding's rows are it. */
static ir_value *logits(graph_maker *k, ir_value *x)
{
    const load_gguf_tensor *head = find(k, -1, "output.weight", false);
    head = head ? head : find(k, -1, "token_embd.weight", true);
    int64_t tokens = head && head->shape.rank == 2 ? head->shape.dims[0] : 0;
    x = product(k, norm(k, x, -1, "output_norm"), head, k->m.width, tokens);
    ir_value *bias = vector(k, find(k, -1, "output.bias", false), tokens);
    x = bias ? op_build2(k->g, "Add", x, bias) : x;
    return capped(k, times(k, x, k->m.logits), k->m.final_softcap);
}

static tacit_status all_used(const graph_maker *k)
{
    for (uint32_t i = 0; i < k->f->tensors.count; i++)
        if (!k->used[i])
            return error_set(k->err, TACIT_ERR_UNSUPPORTED,
                             "tensor '%s' has no place in the graph that is made for '%s'",
                             k->f->tensors.data[i].name, k->m.is->name);
    return TACIT_OK;
}

static tacit_status make(graph_maker *k)
{
    TRY(load_gguf_read_shape(k->f, &k->m, k->err));
    int64_t seq = ir_symbol_index(k->g, "seq");
    ir_type ids = ir_type_tensor(TACIT_I64, 2, (int64_t[]){1, IR_DIM_SYMBOL(seq)});
    k->tokens = seq < 0 ? NULL : ir_input_new(k->g, "input_ids", &ids);
    k->positions = seq < 0 ? NULL : ir_input_new(k->g, "position_ids", &ids);
    k->used = ARENA_ARRAY(k->g->memory, k->f->tensors.count, bool);
    if (!k->tokens || !k->positions || !k->used)
        return error_memory(k->err, "the graph");
    TRY(make_positions(k));
    ir_value *x = embed(k);
    for (int64_t i = 0; i < k->m.layers && k->status == TACIT_OK; i++)
        x = block(k, x, i);
    x = logits(k, x);
    TRY(k->status);
    TRY(all_used(k));
    ir_node *named =
        x ? ir_node_new(k->g, "Identity", "", "logits", 1, &x, 1, (const char *const[]){"logits"})
          : NULL;
    if (!named || !ir_output_add(k->g, named->outputs[0]))
        return error_memory(k->err, "the graph");
    return TACIT_OK;
}

/* How many positions the graph has, which may be fewer than the file says, and what the file says
 * in single words and numbers; vocabularies are arrays. */
static tacit_status tell_metadata(graph_maker *k)
{
    const load_gguf_tensor *learned = load_gguf_tensor_find(k->f, "position_embd.weight");
    int64_t rows = learned && learned->shape.rank == 2 ? learned->shape.dims[0] : INT64_MAX;
    const char *positions =
        arena_printf(k->g->memory, "%lld", (long long)(rows < k->m.context ? rows : k->m.context));
    if (!positions || !ir_metadata_add(k->g, "tacit.positions", positions))
        return error_memory(k->err, "the graph");
    for (uint32_t i = 0; i < k->f->pairs.count; i++) {
        const load_gguf_pair *p = &k->f->pairs.data[i];
        const char *text = p->kind == LOAD_GGUF_STRING ? p->text
                           : p->kind == LOAD_GGUF_NUMBER
                               ? arena_printf(k->g->memory, "%.17g", p->number)
                               : "";
        if (p->kind != LOAD_GGUF_ARRAY && (!text || !ir_metadata_add(k->g, p->key, text)))
            return error_memory(k->err, "the graph");
    }
    return TACIT_OK;
}

tacit_status load_gguf_graph(const load_gguf_file *f, arena *memory, ir_graph **out,
                             tacit_error *err)
{
    graph_maker k = {.f = f, .g = ir_graph_new(memory, "gguf"), .err = err, .status = TACIT_OK};
    if (!k.g)
        return error_memory(err, "the graph");
    TRY(make(&k));
    TRY(tell_metadata(&k));
    *out = k.g;
    return TACIT_OK;
}
