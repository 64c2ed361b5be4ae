/* SPDX-License-Identifier: Apache-2.0
 * MLP, transformer block, GPT-2, BERT and Llama, spelled node by node as exporters write them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/example.h"

static int64_t or_default(int64_t value, int64_t standard)
{
    return value > 0 ? value : standard;
}

static const char *name_of(char buffer[128], int64_t layer, const char *prefix, const char *rest)
{
    snprintf(buffer, 128, "%s.%lld.%s", prefix, (long long)layer, rest);
    return buffer;
}

/* [batch, seq] tokens or masks. */
static V token_input(example *e, const char *name)
{
    int64_t dims[2] = {or_default(e->size.batch, 1),
                       or_default(e->size.seq, e->size.decode ? 1 : 128)};
    const char *names[2] = {NULL, NULL};
    if (e->size.dynamic) {
        dims[0] = dims[1] = -1;
        names[0] = "batch";
        names[1] = "seq";
    }
    return tacit_builder_input(e->b, name, TACIT_I64, 2, dims, names);
}

/* The sequence length as a rank-0 i64, read off `tokens`. */
static V sequence_length(example *e, V tokens)
{
    V dims = example_op1(e, "Shape", tokens);
    return example_op2(e, "Gather", dims, example_int(e, 1));
}

static V positions(example *e, V length)
{
    return example_op3(e, "Range", example_int(e, 0), length, example_int(e, 1));
}

/* 0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), eight nodes. */
static V gelu_tanh(example *e, V x)
{
    V cube = example_op2(e, "Pow", x, example_scalar(e, 3));
    V inner = example_op2(e, "Add", x, example_op2(e, "Mul", cube, example_scalar(e, 0.044715)));
    V t = example_op1(e, "Tanh", example_op2(e, "Mul", inner, example_scalar(e, 0.7978845608)));
    V half = example_op2(e, "Mul", x, example_scalar(e, 0.5));
    return example_op2(e, "Mul", half, example_op2(e, "Add", t, example_scalar(e, 1)));
}

/* x·0.5·(1 + erf(x/√2)) */
static V gelu_erf(example *e, V x)
{
    V r = example_op1(e, "Erf", example_op2(e, "Div", x, example_scalar(e, 1.4142135623730951)));
    V y = example_op2(e, "Mul", x, example_op2(e, "Add", r, example_scalar(e, 1)));
    return example_op2(e, "Mul", y, example_scalar(e, 0.5));
}

/* [B,S,H·D] → [B,H,S,D] */
static V split_heads(example *e, V x, int64_t heads, int64_t depth)
{
    V y = example_reshape(e, x, 4, (int64_t[]){0, 0, heads, depth});
    return example_transpose(e, y, (int64_t[]){0, 2, 1, 3});
}

static V merge_heads(example *e, V x, int64_t width)
{
    V y = example_transpose(e, x, (int64_t[]){0, 2, 1, 3});
    return example_reshape(e, y, 3, (int64_t[]){0, 0, width});
}

/* Lower-triangular bool [1,1,n,n], cut to [1,1,length,length] where a length is given. */
static V causal_mask(example *e, int64_t n, V length)
{
    uint8_t *bits = (uint8_t *)example_floats(e, (n * n + 3) / 4);
    if (!bits)
        return 0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            bits[i * n + j] = j <= i;
    V mask = tacit_builder_weight(e->b, "attn.mask", TACIT_BOOL, 4, (int64_t[]){1, 1, n, n}, bits);
    if (!length)
        return mask;
    V end = example_op2(e, "Unsqueeze", length, example_ints(e, 1, (int64_t[]){0}));
    V ends = example_op2(e, "Concat", end, end);
    tacit_builder_attr_int(e->b, "axis", 0);
    V in[4] = {mask, example_ints(e, 2, (int64_t[]){0, 0}), ends,
               example_ints(e, 2, (int64_t[]){2, 3})};
    return tacit_builder_node(e->b, "Slice", 4, in, 1, NULL);
}

/* What attention of a block is given beside its input. */
typedef struct gpt_context {
    V mask;   /* 0: attend to everything */
    V past_k; /* [B,H,past,D], 0: no cache */
    V past_v;
} gpt_context;

/* `new` behind what the cache holds; the whole is an output. */
static V grow_cache(example *e, V past, V new, int64_t layer, const char *what)
{
    char n[128];
    if (!past)
        return new;
    V whole = example_op2(e, "Concat", past, new);
    tacit_builder_attr_int(e->b, "axis", 2);
    tacit_builder_output(e->b, name_of(n, layer, "present", what), whole);
    return whole;
}

/* Pre-norm GPT block. */
static V gpt_block(example *e, V x, const char *prefix, int64_t layer, int64_t layers,
                   int64_t width, int64_t heads, int64_t ffn, const gpt_context *c)
{
    char n[128];
    int64_t depth = width / heads;
    double out_deviation = 0.02 / sqrt(2.0 * (double)layers);
    V h = example_layer_norm(e, name_of(n, layer, prefix, "ln_1"), x, width, 1e-5);
    V qkv = example_linear(e, name_of(n, layer, prefix, "attn.c_attn"), h, width, 3 * width, 0.02,
                           true);
    V part[3], in[2] = {qkv, example_ints(e, 3, (int64_t[]){width, width, width})};
    tacit_builder_node(e->b, "Split", 2, in, 3, part);
    tacit_builder_attr_int(e->b, "axis", -1);
    V q = split_heads(e, part[0], heads, depth), v = split_heads(e, part[2], heads, depth), k;
    if (c->past_k) { /* caches hold keys by position, so they are turned behind the cache */
        k = grow_cache(e, c->past_k, split_heads(e, part[1], heads, depth), layer, "key");
        k = example_transpose(e, k, (int64_t[]){0, 1, 3, 2});
        v = grow_cache(e, c->past_v, v, layer, "value");
    } else {
        k = example_transpose(e, example_reshape(e, part[1], 4, (int64_t[]){0, 0, heads, depth}),
                              (int64_t[]){0, 2, 3, 1});
    }
    V scores = example_op2(e, "Div", example_op2(e, "MatMul", q, k),
                           example_scalar(e, sqrt((double)depth)));
    if (c->mask)
        scores =
            example_op3(e, "Where", c->mask, scores, example_scalar(e, -3.4028234663852886e38));
    V mixed = merge_heads(e, example_op2(e, "MatMul", example_softmax(e, scores), v), width);
    V a = example_linear(e, name_of(n, layer, prefix, "attn.c_proj"), mixed, width, width,
                         out_deviation, true);
    x = example_op2(e, "Add", x, a);
    h = example_layer_norm(e, name_of(n, layer, prefix, "ln_2"), x, width, 1e-5);
    h = example_linear(e, name_of(n, layer, prefix, "mlp.c_fc"), h, width, ffn, 0.02, true);
    h = example_linear(e, name_of(n, layer, prefix, "mlp.c_proj"), gelu_tanh(e, h), ffn, width,
                       out_deviation, true);
    return example_op2(e, "Add", x, h);
}

static V past_input(example *e, int64_t layer, const char *what, int64_t heads, int64_t depth)
{
    char n[128];
    const char *names[4] = {e->size.dynamic ? "batch" : NULL, NULL, "past", NULL};
    int64_t dims[4] = {e->size.dynamic ? -1 : or_default(e->size.batch, 1), heads, -1, depth};
    return tacit_builder_input(e->b, name_of(n, layer, "past_key_values", what), TACIT_F32, 4, dims,
                               names);
}

/* Rows [past, past + length) and columns [0, past + length) of the triangle. */
static V mask_behind(example *e, int64_t n, V past, V length)
{
    V first = example_op2(e, "Unsqueeze", past, example_ints(e, 1, (int64_t[]){0}));
    V end = example_op2(e, "Add", past, length);
    V last = example_op2(e, "Unsqueeze", end, example_ints(e, 1, (int64_t[]){0}));
    V rows[4] = {causal_mask(e, n, 0), first, last, example_ints(e, 1, (int64_t[]){2})};
    V cut = tacit_builder_node(e->b, "Slice", 4, rows, 1, NULL);
    V columns[4] = {cut, example_ints(e, 1, (int64_t[]){0}), last,
                    example_ints(e, 1, (int64_t[]){3})};
    return tacit_builder_node(e->b, "Slice", 4, columns, 1, NULL);
}

void example_gpt2(example *e)
{
    enum { POSITIONS = 1024 };
    int64_t width = or_default(e->size.hidden, 768), heads = or_default(e->size.heads, 12);
    int64_t layers = or_default(e->size.layers, 12), vocab = or_default(e->size.vocab, 50257);
    int64_t ffn = or_default(e->size.ffn, 4 * width);
    V tokens = token_input(e, "input_ids");
    V length = sequence_length(e, tokens);
    V wte = example_weight(e, "wte.weight", 2, (int64_t[]){vocab, width}, 0.02);
    const float *table = example_newest(e);
    V wpe = example_weight(e, "wpe.weight", 2, (int64_t[]){POSITIONS, width}, 0.02);
    V at = e->size.decode ? token_input(e, "position_ids") : positions(e, length);
    V x = example_op2(e, "Add", example_op2(e, "Gather", wte, tokens),
                      example_op2(e, "Gather", wpe, at));
    gpt_context c = {0};
    for (int64_t i = 0; i < layers; i++) {
        if (e->size.decode) {
            c.past_k = past_input(e, i, "key", heads, width / heads);
            c.past_v = past_input(e, i, "value", heads, width / heads);
        }
        if (i == 0 && e->size.decode) {
            V dims = example_op1(e, "Shape", c.past_k);
            c.mask = mask_behind(e, POSITIONS, example_op2(e, "Gather", dims, example_int(e, 2)),
                                 length);
        } else if (i == 0) {
            c.mask = causal_mask(e, POSITIONS, length);
        }
        x = gpt_block(e, x, "h", i, layers, width, heads, ffn, &c);
    }
    x = example_layer_norm(e, "ln_f", x, width, 1e-5);
    /* The output layer shares the embedding's numbers; exporters store it again, transposed. */
    float *head = example_floats(e, vocab * width);
    if (!head || !table)
        return;
    for (int64_t r = 0; r < vocab; r++)
        for (int64_t k = 0; k < width; k++)
            head[k * vocab + r] = table[r * width + k];
    V w =
        tacit_builder_weight(e->b, "lm_head.weight", TACIT_F32, 2, (int64_t[]){width, vocab}, head);
    tacit_builder_output(e->b, "logits", example_op2(e, "MatMul", x, w));
}

void example_block(example *e)
{
    int64_t width = or_default(e->size.hidden, 256), heads = or_default(e->size.heads, 4);
    int64_t dims[3] = {or_default(e->size.batch, 1), or_default(e->size.seq, 128), width};
    const char *names[3] = {NULL, NULL, NULL};
    if (e->size.dynamic) {
        dims[0] = dims[1] = -1;
        names[0] = "batch";
        names[1] = "seq";
    }
    V x = tacit_builder_input(e->b, "x", TACIT_F32, 3, dims, names);
    int64_t layers = or_default(e->size.layers, 1);
    const gpt_context all = {0};
    for (int64_t i = 0; i < layers; i++)
        x = gpt_block(e, x, "h", i, layers, width, heads, or_default(e->size.ffn, 4 * width), &all);
    tacit_builder_output(e->b, "y", x);
}

/* Attention alone, as exporters spell it; a constant triangular mask makes it causal. */
static void attention(example *e, bool causal)
{
    int64_t heads = or_default(e->size.heads, 4), seq = or_default(e->size.seq, 64);
    int64_t depth = or_default(e->size.hidden, heads * 64) / heads;
    int64_t dims[4] = {or_default(e->size.batch, 1), heads, seq, depth};
    V q = tacit_builder_input(e->b, "q", TACIT_F32, 4, dims, NULL);
    V k = tacit_builder_input(e->b, "k", TACIT_F32, 4, dims, NULL);
    V v = tacit_builder_input(e->b, "v", TACIT_F32, 4, dims, NULL);
    V scores = example_op2(e, "MatMul", q, example_transpose(e, k, (int64_t[]){0, 1, 3, 2}));
    scores = example_op2(e, "Div", scores, example_scalar(e, sqrt((double)depth)));
    float *mask = causal ? example_floats(e, seq * seq) : NULL;
    for (int64_t i = 0; mask && i < seq * seq; i++)
        mask[i] = i % seq > i / seq ? -INFINITY : 0.0f;
    if (mask)
        scores = example_op2(
            e, "Add", scores,
            tacit_builder_constant(e->b, "mask", TACIT_F32, 2, (int64_t[]){seq, seq}, mask));
    tacit_builder_output(e->b, "y", example_op2(e, "MatMul", example_softmax(e, scores), v));
}

void example_attention(example *e)
{
    attention(e, false);
}

void example_attention_causal(example *e)
{
    attention(e, true);
}

void example_mlp(example *e)
{
    int64_t width = or_default(e->size.width, 512), out = or_default(e->size.classes, width);
    int64_t dims[2] = {e->size.dynamic ? -1 : or_default(e->size.batch, 1), width};
    const char *names[2] = {e->size.dynamic ? "batch" : NULL, NULL};
    double deviation = sqrt(2.0 / (double)width);
    V x = tacit_builder_input(e->b, "x", TACIT_F32, 2, dims, names);
    x = example_op1(e, "Relu", example_linear(e, "fc1", x, width, width, deviation, true));
    x = example_op1(e, "Relu", example_linear(e, "fc2", x, width, width, deviation, true));
    tacit_builder_output(e->b, "y", example_linear(e, "fc3", x, width, out, deviation, true));
}

/* Post-norm encoder layer with separate Q, K, V and an additive mask. */
static V bert_layer(example *e, V x, int64_t layer, int64_t width, int64_t heads, int64_t ffn,
                    V mask)
{
    static const char prefix[] = "encoder.layer";
    char n[128];
    int64_t depth = width / heads;
    V q = example_linear(e, name_of(n, layer, prefix, "attention.self.query"), x, width, width,
                         0.05, true);
    V k = example_linear(e, name_of(n, layer, prefix, "attention.self.key"), x, width, width, 0.05,
                         true);
    V v = example_linear(e, name_of(n, layer, prefix, "attention.self.value"), x, width, width,
                         0.05, true);
    k = example_transpose(e, example_reshape(e, k, 4, (int64_t[]){0, 0, heads, depth}),
                          (int64_t[]){0, 2, 3, 1});
    V scores = example_op2(e, "MatMul", split_heads(e, q, heads, depth), k);
    scores = example_op2(e, "Div", scores, example_scalar(e, sqrt((double)depth)));
    scores = example_op2(e, "Add", scores, mask);
    V mixed = example_op2(e, "MatMul", example_softmax(e, scores), split_heads(e, v, heads, depth));
    V a = example_linear(e, name_of(n, layer, prefix, "attention.output.dense"),
                         merge_heads(e, mixed, width), width, width, 0.05, true);
    x = example_layer_norm(e, name_of(n, layer, prefix, "attention.output.LayerNorm"),
                           example_op2(e, "Add", a, x), width, 1e-12);
    V h = example_linear(e, name_of(n, layer, prefix, "intermediate.dense"), x, width, ffn, 0.05,
                         true);
    h = example_linear(e, name_of(n, layer, prefix, "output.dense"), gelu_erf(e, h), ffn, width,
                       0.05, true);
    return example_layer_norm(e, name_of(n, layer, prefix, "output.LayerNorm"),
                              example_op2(e, "Add", h, x), width, 1e-12);
}

/* (1 − mask)·lowest as [batch,1,1,seq] */
static V additive_mask(example *e, V mask)
{
    V m = example_op2(e, "Unsqueeze", mask, example_ints(e, 2, (int64_t[]){1, 2}));
    m = example_op1(e, "Cast", m);
    tacit_builder_attr_int(e->b, "to", 1);
    m = example_op2(e, "Sub", example_scalar(e, 1), m);
    return example_op2(e, "Mul", m, example_scalar(e, -3.4028234663852886e38));
}

void example_bert(example *e)
{
    int64_t width = or_default(e->size.hidden, 768), heads = or_default(e->size.heads, width / 64);
    int64_t layers = or_default(e->size.layers, 12), vocab = or_default(e->size.vocab, 30522);
    int64_t ffn = or_default(e->size.ffn, 4 * width);
    V tokens = token_input(e, "input_ids"), mask = token_input(e, "attention_mask");
    V types = token_input(e, "token_type_ids");
    V words = example_weight(e, "embeddings.word.weight", 2, (int64_t[]){vocab, width}, 0.05);
    V kinds = example_weight(e, "embeddings.token_type.weight", 2, (int64_t[]){2, width}, 0.05);
    V places = example_weight(e, "embeddings.position.weight", 2, (int64_t[]){512, width}, 0.05);
    V x = example_op2(e, "Add", example_op2(e, "Gather", words, tokens),
                      example_op2(e, "Gather", kinds, types));
    V at = positions(e, sequence_length(e, tokens));
    x = example_op2(e, "Add", x, example_op2(e, "Gather", places, at));
    x = example_layer_norm(e, "embeddings.LayerNorm", x, width, 1e-12);
    V additive = additive_mask(e, mask);
    for (int64_t i = 0; i < layers; i++)
        x = bert_layer(e, x, i, width, heads, ffn, additive);
    tacit_builder_output(e->b, "last_hidden_state", x);
    V first = example_op2(e, "Gather", x, example_int(e, 0));
    tacit_builder_attr_int(e->b, "axis", 1);
    V pooled =
        example_op1(e, "Tanh", example_linear(e, "pooler.dense", first, width, width, 0.05, true));
    tacit_builder_output(e->b, "pooler_output", pooled);
    if (e->size.classes > 0)
        tacit_builder_output(
            e->b, "logits",
            example_linear(e, "classifier", pooled, width, e->size.classes, 0.2, true));
}

/* x·rsqrt(mean(x²) + ε)·w, six nodes. */
static V rms_norm(example *e, const char *stem, V x, int64_t width)
{
    char name[140];
    snprintf(name, sizeof name, "%s.weight", stem);
    V square = example_op2(e, "Pow", x, example_scalar(e, 2));
    V mean = example_op2(e, "ReduceMean", square, example_ints(e, 1, (int64_t[]){-1}));
    V root = example_op1(e, "Sqrt", example_op2(e, "Add", mean, example_scalar(e, 1e-5)));
    V scaled = example_op2(e, "Mul", x, example_op1(e, "Reciprocal", root));
    return example_op2(e, "Mul", example_fill(e, name, width, 1, 0.1), scaled);
}

/* cos and sin of position·frequency, [n, depth], halves repeated. */
static V rotary_table(example *e, const char *name, int64_t n, int64_t depth, bool sine)
{
    float *t = example_floats(e, n * depth);
    if (!t)
        return 0;
    for (int64_t p = 0; p < n; p++)
        for (int64_t i = 0; i < depth; i++) {
            double angle =
                (double)p * pow(10000.0, -2.0 * (double)(i % (depth / 2)) / (double)depth);
            t[p * depth + i] = (float)(sine ? sin(angle) : cos(angle));
        }
    return tacit_builder_weight(e->b, name, TACIT_F32, 2, (int64_t[]){n, depth}, t);
}

/* x·cos + concat(−x₂, x₁)·sin */
static V rotate(example *e, V x, int64_t depth, V cosine, V sine)
{
    V axis = example_ints(e, 1, (int64_t[]){3}), zero = example_ints(e, 1, (int64_t[]){0});
    V half = example_ints(e, 1, (int64_t[]){depth / 2}),
      end = example_ints(e, 1, (int64_t[]){depth});
    V low = tacit_builder_node(e->b, "Slice", 4, (V[]){x, zero, half, axis}, 1, NULL);
    V high = tacit_builder_node(e->b, "Slice", 4, (V[]){x, half, end, axis}, 1, NULL);
    V turned = example_op2(e, "Concat", example_op1(e, "Neg", high), low);
    tacit_builder_attr_int(e->b, "axis", -1);
    return example_op2(e, "Add", example_op2(e, "Mul", x, cosine),
                       example_op2(e, "Mul", turned, sine));
}

/* Every key/value head is repeated for its group of query heads. */
static V repeat_heads(example *e, V x, int64_t kv_heads, int64_t groups, int64_t depth)
{
    if (groups == 1)
        return x;
    V y = example_op2(e, "Unsqueeze", x, example_ints(e, 1, (int64_t[]){2}));
    y = example_op2(e, "Expand", y, example_ints(e, 5, (int64_t[]){1, 1, groups, 1, 1}));
    return example_reshape(e, y, 4, (int64_t[]){0, kv_heads * groups, -1, depth});
}

typedef struct llama_shape {
    int64_t width, heads, kv_heads, depth, ffn;
    V cosine, sine, mask;
} llama_shape;

static V llama_layer(example *e, V x, int64_t layer, const llama_shape *s)
{
    static const char prefix[] = "model.layers";
    char n[128];
    int64_t kv_width = s->kv_heads * s->depth, groups = s->heads / s->kv_heads;
    V h = rms_norm(e, name_of(n, layer, prefix, "input_layernorm"), x, s->width);
    V q = example_linear(e, name_of(n, layer, prefix, "self_attn.q_proj"), h, s->width, s->width,
                         0.04, false);
    V k = example_linear(e, name_of(n, layer, prefix, "self_attn.k_proj"), h, s->width, kv_width,
                         0.04, false);
    V v = example_linear(e, name_of(n, layer, prefix, "self_attn.v_proj"), h, s->width, kv_width,
                         0.04, false);
    q = rotate(e, split_heads(e, q, s->heads, s->depth), s->depth, s->cosine, s->sine);
    k = rotate(e, split_heads(e, k, s->kv_heads, s->depth), s->depth, s->cosine, s->sine);
    k = repeat_heads(e, k, s->kv_heads, groups, s->depth);
    v = repeat_heads(e, split_heads(e, v, s->kv_heads, s->depth), s->kv_heads, groups, s->depth);
    k = example_transpose(e, k, (int64_t[]){0, 1, 3, 2});
    V scores = example_op2(e, "Mul", example_op2(e, "MatMul", q, k),
                           example_scalar(e, 1 / sqrt((double)s->depth)));
    scores = example_op2(e, "Add", scores, s->mask);
    V mixed = example_op2(e, "MatMul", example_softmax(e, scores), v);
    V a = example_linear(e, name_of(n, layer, prefix, "self_attn.o_proj"),
                         merge_heads(e, mixed, s->width), s->width, s->width, 0.02, false);
    x = example_op2(e, "Add", x, a);
    h = rms_norm(e, name_of(n, layer, prefix, "post_attention_layernorm"), x, s->width);
    V gate = example_linear(e, name_of(n, layer, prefix, "mlp.gate_proj"), h, s->width, s->ffn,
                            0.04, false);
    V up = example_linear(e, name_of(n, layer, prefix, "mlp.up_proj"), h, s->width, s->ffn, 0.04,
                          false);
    gate = example_op2(e, "Mul", gate, example_op1(e, "Sigmoid", gate));
    V down = example_linear(e, name_of(n, layer, prefix, "mlp.down_proj"),
                            example_op2(e, "Mul", gate, up), s->ffn, s->width, 0.02, false);
    return example_op2(e, "Add", x, down);
}

/* Additive causal mask from the boolean one: 0 where allowed, lowest elsewhere. */
static V llama_mask(example *e, V length)
{
    return example_op3(e, "Where", causal_mask(e, 2048, length), example_scalar(e, 0),
                       example_scalar(e, -3.4028234663852886e38));
}

void example_llama(example *e)
{
    llama_shape s = {.width = or_default(e->size.hidden, 576),
                     .heads = or_default(e->size.heads, 9),
                     .kv_heads = or_default(e->size.kv_heads, 3),
                     .ffn = or_default(e->size.ffn, 1536)};
    int64_t layers = or_default(e->size.layers, 30), vocab = or_default(e->size.vocab, 49152);
    s.depth = s.width / s.heads;
    V tokens = token_input(e, "input_ids");
    V length = sequence_length(e, tokens), at = positions(e, length);
    V x = example_op2(
        e, "Gather",
        example_weight(e, "model.embed_tokens.weight", 2, (int64_t[]){vocab, s.width}, 0.05),
        tokens);
    s.cosine = example_op2(e, "Gather", rotary_table(e, "rotary.cos", 2048, s.depth, false), at);
    s.sine = example_op2(e, "Gather", rotary_table(e, "rotary.sin", 2048, s.depth, true), at);
    s.mask = llama_mask(e, length);
    for (int64_t i = 0; i < layers; i++)
        x = llama_layer(e, x, i, &s);
    x = rms_norm(e, "model.norm", x, s.width);
    tacit_builder_output(e->b, "logits",
                         example_linear(e, "lm_head", x, s.width, vocab, 0.05, false));
}
