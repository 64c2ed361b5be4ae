/* SPDX-License-Identifier: Apache-2.0
 * A node and what its decompose rule builds compute the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "support/one_node.h"

typedef struct random_inputs {
    rng r;
    double values[4096];
} random_inputs;

static void add(one_node *t, random_inputs *v, int32_t rank, const int64_t *dims)
{
    int64_t count = 1;
    for (int32_t i = 0; i < rank; i++)
        count *= dims[i];
    assert_true(count <= 4096);
    for (int64_t i = 0; i < count; i++)
        v->values[i] = rng_range(&v->r, -2, 2);
    one_node_in(t, TACIT_F32, rank, dims, v->values);
}

static void check(one_node *t, uint32_t n_out, double tolerance)
{
    if (one_node_run(t, n_out) != TACIT_OK)
        fail_msg("%s", t->err.message);
    one_node_expect_same_decomposed(t, tolerance);
    one_node_end(t);
}

static void norms(void **state)
{
    (void)state;
    random_inputs v = {rng_seed(1), {0}};
    one_node t;
    for (int axis = 0; axis < 3; axis++) {
        one_node_begin(&t, "", "LayerNormalization");
        add(&t, &v, DIMS(2, 3, 4));
        add(&t, &v, DIMS(4));
        add(&t, &v, DIMS(3, 4));
        one_node_int(&t, "axis", axis);
        check(&t, 3, 1e-5);
        one_node_begin(&t, "", "RMSNormalization");
        add(&t, &v, DIMS(2, 3, 4));
        add(&t, &v, DIMS(4));
        one_node_int(&t, "axis", axis);
        check(&t, 1, 1e-5);
        one_node_begin(&t, "", axis ? "Softmax" : "LogSoftmax");
        add(&t, &v, DIMS(2, 3, 4));
        one_node_int(&t, "axis", axis);
        check(&t, 1, 1e-5);
    }
    one_node_begin(&t, "", "MeanVarianceNormalization");
    add(&t, &v, DIMS(2, 3, 4, 5));
    check(&t, 1, 1e-5);
    for (int by_group = 0; by_group < 2; by_group++) {
        one_node_begin(&t, "", "GroupNormalization");
        add(&t, &v, DIMS(2, 6, 4));
        add(&t, &v, DIMS(by_group ? 3 : 6));
        add(&t, &v, DIMS(by_group ? 3 : 6));
        one_node_int(&t, "num_groups", 3);
        check(&t, 1, 1e-5);
    }
    one_node_begin(&t, "", "InstanceNormalization");
    add(&t, &v, DIMS(2, 3, 4));
    add(&t, &v, DIMS(3));
    add(&t, &v, DIMS(3));
    check(&t, 1, 1e-5);
}

static const char *const activations[] = {"none", "relu",    "gelu", "gelu_tanh",
                                          "silu", "sigmoid", "tanh", "clip"};

static void fused_contractions(void **state)
{
    (void)state;
    random_inputs v = {rng_seed(2), {0}};
    for (int k = 0; k < 8 * 4; k++) {
        bool ta = k & 1, tb = k >> 1 & 1, last = k & 1;
        one_node t;
        one_node_begin(&t, "tacit", "MatMul");
        add(&t, &v, 3, ta ? (int64_t[]){2, 4, 3} : (int64_t[]){2, 3, 4});
        add(&t, &v, 2, tb ? (int64_t[]){5, 4} : (int64_t[]){4, 5});
        add(&t, &v, DIMS(5));
        add(&t, &v, DIMS(2, 3, 5));
        one_node_int(&t, "trans_a", ta);
        one_node_int(&t, "trans_b", tb);
        one_node_float(&t, "alpha", k & 4 ? 0.5 : 1);
        one_node_string(&t, "activation", activations[k / 4]);
        one_node_float(&t, "act_min", -0.5);
        one_node_float(&t, "act_max", 0.75);
        one_node_int(&t, "activation_last", last);
        check(&t, 1, 1e-5);
    }
    for (int k = 0; k < 8; k++) {
        one_node t;
        one_node_begin(&t, "tacit", "Conv");
        add(&t, &v, DIMS(2, 4, 5, 5));
        add(&t, &v, DIMS(6, 2, 3, 3));
        if (k & 1)
            add(&t, &v, DIMS(6));
        one_node_int(&t, "group", 2);
        one_node_ints(&t, "pads", 4, (int64_t[]){1, 0, 1, 2});
        one_node_ints(&t, "strides", 2, (int64_t[]){2, 1});
        one_node_string(&t, "activation", activations[k]);
        check(&t, 1, 1e-5);
        one_node_begin(&t, "tacit", "Gated");
        add(&t, &v, DIMS(3, 4));
        add(&t, &v, DIMS(3, 4));
        one_node_string(&t, "activation", activations[k]);
        check(&t, 1, 1e-5);
    }
}

static void fused_attention_and_norm(void **state)
{
    (void)state;
    random_inputs v = {rng_seed(3), {0}};
    for (int k = 0; k < 16; k++) {
        one_node t;
        one_node_begin(&t, "tacit", "Attention");
        add(&t, &v, DIMS(2, 4, 3, 8));
        add(&t, &v, DIMS(2, k & 1 ? 2 : 4, 5, 8));
        add(&t, &v, DIMS(2, k & 1 ? 2 : 4, 5, 6));
        if (k & 2)
            add(&t, &v, DIMS(2, 1, 3, 5));
        one_node_float(&t, "scale", 0.35);
        one_node_float(&t, "softcap", k & 8 ? 1.5 : 0);
        one_node_int(&t, "causal", k >> 2 & 1);
        one_node_int(&t, "causal_offset", 2);
        one_node_int(&t, "window", k & 8 ? 2 : 0);
        one_node_string(&t, "out_layout", k & 4 ? "bshd" : "bhsd");
        check(&t, 1, 1e-5);
        one_node_begin(&t, "tacit", "Norm");
        add(&t, &v, DIMS(2, 3, 4));
        if (k & 1)
            add(&t, &v, DIMS(4));
        else
            one_node_in(&t, TACIT_F32, SCALAR, NULL);
        if (k & 2)
            add(&t, &v, DIMS(4));
        else
            one_node_in(&t, TACIT_F32, SCALAR, NULL);
        if (k & 4)
            add(&t, &v, DIMS(2, 3, 4));
        one_node_int(&t, "rms", k >> 3);
        check(&t, k & 4 ? 2 : 1, 1e-5);
    }
}

static void contributed_ops(void **state)
{
    (void)state;
    static const char *const gelus[] = {"Gelu", "QuickGelu", "BiasGelu", "FastGelu"};
    random_inputs v = {rng_seed(4), {0}};
    one_node t;
    for (int k = 0; k < 4; k++) {
        one_node_begin(&t, "com.microsoft", gelus[k]);
        add(&t, &v, DIMS(2, 3));
        if (k >= 2)
            add(&t, &v, DIMS(3));
        check(&t, 1, 1e-5);
    }
    for (int k = 0; k < 16; k++) {
        bool ta = k & 1, tb = k & 2, ba = k & 4, bb = k & 8;
        int64_t m = 3, n = 5, inner = 4, a_row = ta ? inner : m, a_last = ta ? m : inner;
        int64_t b_row = tb ? n : inner, b_last = tb ? inner : n;
        one_node_begin(&t, "com.microsoft", "FusedMatMul");
        add(&t, &v, 3, ba ? (int64_t[]){a_row, 2, a_last} : (int64_t[]){2, a_row, a_last});
        add(&t, &v, 3, bb ? (int64_t[]){b_row, 2, b_last} : (int64_t[]){2, b_row, b_last});
        one_node_int(&t, "transA", ta);
        one_node_int(&t, "transB", tb);
        one_node_int(&t, "transBatchA", ba);
        one_node_int(&t, "transBatchB", bb);
        one_node_float(&t, "alpha", 2);
        check(&t, 1, 1e-5);
    }
    one_node_begin(&t, "com.microsoft", "SkipLayerNormalization");
    add(&t, &v, DIMS(2, 3, 4));
    add(&t, &v, DIMS(2, 3, 4));
    for (int i = 0; i < 3; i++)
        add(&t, &v, DIMS(4));
    check(&t, 4, 1e-5);
    one_node_begin(&t, "com.microsoft", "SkipSimplifiedLayerNormalization");
    add(&t, &v, DIMS(2, 3, 4));
    add(&t, &v, DIMS(2, 3, 4));
    for (int i = 0; i < 2; i++)
        add(&t, &v, DIMS(4));
    check(&t, 1, 1e-5);
}

/* ONNX Attention in both ranks, with masks of every kind, a cache, grouped heads. */
static void attention_in_parts(void **state)
{
    (void)state;
    random_inputs v = {rng_seed(5), {0}};
    for (int k = 0; k < 32; k++) {
        bool packed = k & 1, past = k & 2, grouped = k & 4, causal = k & 8, masked = k & 16;
        int64_t kv = grouped ? 2 : 4, total = past ? 8 : 5;
        one_node t;
        one_node_begin(&t, "", "Attention");
        if (packed) {
            add(&t, &v, DIMS(2, 3, 4 * 8));
            add(&t, &v, DIMS(2, 5, kv * 8));
            add(&t, &v, DIMS(2, 5, kv * 6));
            one_node_int(&t, "q_num_heads", 4);
            one_node_int(&t, "kv_num_heads", kv);
        } else {
            add(&t, &v, DIMS(2, 4, 3, 8));
            add(&t, &v, DIMS(2, kv, 5, 8));
            add(&t, &v, DIMS(2, kv, 5, 6));
        }
        if (masked && causal)
            add(&t, &v, DIMS(3, total - 1)); /* shorter than the keys */
        else if (masked)
            one_node_in(&t, TACIT_BOOL, DIMS(1, total), (double[]){1, 1, 0, 1, 1, 0, 1, 1});
        else
            one_node_in(&t, TACIT_F32, SCALAR, NULL);
        if (past) {
            add(&t, &v, DIMS(2, kv, 3, 8));
            add(&t, &v, DIMS(2, kv, 3, 6));
        }
        one_node_int(&t, "is_causal", causal);
        one_node_float(&t, "softcap", grouped ? 2 : 0);
        check(&t, past ? 3 : 1, 1e-5);
    }
}

static void contributed_attention_in_parts(void **state)
{
    (void)state;
    random_inputs v = {rng_seed(6), {0}};
    for (int k = 0; k < 16; k++) {
        bool past = k & 1, masked = k & 2, biased = k & 4, causal = k & 8;
        int64_t total = past ? 7 : 4;
        double mask[2 * 7] = {1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1};
        one_node t;
        one_node_begin(&t, "com.microsoft", "Attention");
        add(&t, &v, DIMS(2, 4, 6));
        add(&t, &v, DIMS(6, 24));
        add(&t, &v, DIMS(24));
        one_node_in(&t, TACIT_I32, DIMS(2, total), masked ? mask : NULL);
        if (past)
            add(&t, &v, DIMS(2, 2, 2, 3, 4));
        else
            one_node_in(&t, TACIT_F32, SCALAR, NULL);
        if (biased)
            add(&t, &v, DIMS(1, 2, 4, total));
        one_node_int(&t, "num_heads", 2);
        one_node_int(&t, "unidirectional", causal);
        check(&t, past ? 2 : 1, 1e-5);
        one_node_begin(&t, "com.microsoft", "MultiHeadAttention");
        add(&t, &v, DIMS(2, 4, 8));
        add(&t, &v, DIMS(2, 4, 8));
        add(&t, &v, DIMS(2, 4, 8));
        if (biased)
            add(&t, &v, DIMS(24));
        else
            one_node_in(&t, TACIT_F32, SCALAR, NULL);
        one_node_in(&t, TACIT_I32, DIMS(2, total), masked ? mask : NULL);
        one_node_in(&t, TACIT_F32, SCALAR, NULL);
        if (past) {
            add(&t, &v, DIMS(2, 2, 3, 4));
            add(&t, &v, DIMS(2, 2, 3, 4));
        }
        one_node_int(&t, "num_heads", 2);
        one_node_int(&t, "unidirectional", causal);
        check(&t, past ? 3 : 1, 1e-5);
    }
    one_node t;
    one_node_begin(&t, "com.microsoft", "Attention"); /* lengths as its mask */
    add(&t, &v, DIMS(2, 4, 6));
    add(&t, &v, DIMS(6, 24));
    add(&t, &v, DIMS(24));
    one_node_in(&t, TACIT_I32, DIMS(2), V(3, 1));
    one_node_int(&t, "num_heads", 2);
    check(&t, 1, 1e-5);
    for (int k = 0; k < 4; k++) {
        bool start = k & 1, by_head = k & 2;
        one_node_begin(&t, "com.microsoft", "RotaryEmbedding");
        add(&t, &v, by_head ? 4 : 3, by_head ? (int64_t[]){2, 3, 4, 8} : (int64_t[]){2, 4, 24});
        if (start)
            one_node_in(&t, TACIT_I64, DIMS(1), (double[]){5});
        else
            one_node_in(&t, TACIT_I64, DIMS(2, 4), (double[]){3, 1, 4, 1, 5, 8, 2, 6});
        add(&t, &v, DIMS(9, by_head ? 3 : 4));
        add(&t, &v, DIMS(9, by_head ? 3 : 4));
        one_node_int(&t, "interleaved", by_head);
        check(&t, 1, 1e-5);
    }
    one_node_begin(&t, "", "SimplifiedLayerNormalization");
    add(&t, &v, DIMS(2, 3, 4));
    add(&t, &v, DIMS(4));
    check(&t, 1, 1e-5);
}

/* One step of GroupQueryAttention: `length` positions of `batch` rows behind a past of `past`
 * (none: no past is given), `total` in all, of which row b has last[b] + 1. */
typedef struct cache_step {
    int64_t batch, length, past, total;
    double last[2]; /* seqlens_k */
} cache_step;

static void add_if(one_node *t, random_inputs *v, bool given, int32_t rank, const int64_t *dims)
{
    if (given)
        add(t, v, rank, dims);
    else
        one_node_in(t, TACIT_F32, SCALAR, NULL);
}

/* Heads of 6, two for every one of the keys'. */
static void begin_group_query(one_node *t, random_inputs *v, const cache_step *s, bool packed,
                              bool rotary)
{
    one_node_begin(t, "com.microsoft", "GroupQueryAttention");
    add(t, v, DIMS(s->batch, s->length, packed ? 48 : 24));
    for (int i = 0; i < 2; i++)
        add_if(t, v, !packed, DIMS(s->batch, s->length, 12));
    for (int i = 0; i < 2; i++)
        add_if(t, v, s->past > 0, DIMS(s->batch, 2, s->past, 6));
    one_node_in(t, TACIT_I32, DIMS(s->batch), s->last);
    one_node_in(t, TACIT_I32, DIMS(1), (double[]){(double)s->total});
    for (int i = 0; i < 2; i++)
        add_if(t, v, rotary, DIMS(9, packed ? 3 : 2));
    one_node_int(t, "num_heads", 4);
    one_node_int(t, "kv_num_heads", 2);
    one_node_int(t, "do_rotary", rotary);
}

static void group_query_attention_in_parts(void **state)
{
    (void)state;
    random_inputs v = {rng_seed(11), {0}};
    static const cache_step steps[] = {
        {2, 4, 0, 4, {3, 1}}, /* a prompt, padded in its second row */
        {2, 4, 6, 4, {3, 1}}, /* the same where the cache has room for more */
        {2, 1, 5, 6, {5, 2}}, /* one position more, rows of several lengths */
        {2, 1, 8, 5, {4, 3}}, /* the same where the cache has room for more */
        {1, 3, 4, 7, {6}},    /* several positions more */
        {2, 3, 4, 7, {6, 3}},
    };
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (int k = 0; k < 16; k++) {
            bool packed = k & 1, rotary = k & 2;
            one_node t;
            begin_group_query(&t, &v, &steps[i], packed, rotary);
            if (rotary && (k & 8))
                one_node_in(&t, TACIT_I64, DIMS(steps[i].batch, steps[i].length),
                            (double[]){3, 1, 4, 1, 5, 8, 2, 6});
            one_node_int(&t, "rotary_interleaved", (k & 4) != 0);
            one_node_int(&t, "local_window_size", k & 4 ? 2 : -1);
            one_node_float(&t, "softcap", k & 8 ? 3 : 0);
            one_node_float(&t, "scale", k & 4 ? 0.25 : 0);
            check(&t, 3, 1e-5);
        }
}

/* These stay whole: the evaluator runs them. */
static void group_query_attention_without_parts(void **state)
{
    (void)state;
    random_inputs v = {rng_seed(12), {0}};
    const cache_step none = {1, 1, 0, 4, {3}}, later = {1, 1, 3, 4, {3}};
    for (int k = 0; k < 2; k++) {
        one_node t;
        begin_group_query(&t, &v, k ? &later : &none, true, true);
        one_node_int(&t, "smooth_softmax", k);
        assert_int_equal(one_node_run(&t, 3), TACIT_OK);
        assert_int_equal(t.node->op->decompose(t.graph, t.node, &t.err), TACIT_ERR_UNSUPPORTED);
        one_node_end(&t);
    }
}

static void embedding_in_parts(void **state)
{
    (void)state;
    random_inputs v = {rng_seed(13), {0}};
    for (int k = 0; k < 16; k++) {
        bool segments = k & 1, mask = k & 2, positions = k & 4, shared = k & 8;
        one_node t;
        one_node_begin(&t, "com.microsoft", "EmbedLayerNormalization");
        one_node_in(&t, TACIT_I32, DIMS(2, 3), V(4, 0, 2, 2, 1, 3));
        one_node_in(&t, TACIT_I32, DIMS(2, 3), segments ? V(0, 1, 1, 0, 0, 1) : NULL);
        add(&t, &v, DIMS(5, 4));
        add(&t, &v, DIMS(6, 4));
        add(&t, &v, DIMS(2, 4));
        add(&t, &v, DIMS(4));
        add(&t, &v, DIMS(4));
        one_node_in(&t, TACIT_I32, DIMS(2, 3), mask ? V(1, 1, 0, 2, 1, 1) : NULL);
        one_node_in(&t, TACIT_I32, DIMS(shared ? 1 : 2, 3), positions ? V(5, 0, 1, 2, 3, 4) : NULL);
        one_node_float(&t, "epsilon", 1e-3);
        check(&t, 3, 1e-5);
    }
}

static void families_in_parts(void **state)
{
    (void)state;
    random_inputs v = {rng_seed(7), {0}};
    one_node t;
    for (int flat = 0; flat < 2; flat++) {
        one_node_begin(&t, "tacit", "Rope");
        add(&t, &v, flat ? 2 : 3, flat ? (int64_t[]){3, 16} : (int64_t[]){2, 3, 16});
        add(&t, &v, DIMS(5, 4));
        add(&t, &v, DIMS(5, 4));
        one_node_int(&t, "head_dim", 8);
        one_node_int(&t, "rotated", flat ? 8 : 4);
        one_node_int(&t, "offset", 2);
        check(&t, 1, 1e-5);
    }
    one_node_begin(&t, "tacit", "AxialRope2d");
    add(&t, &v, DIMS(2, 12, 16));
    one_node_int(&t, "head_dim", 8);
    one_node_int(&t, "end_x", 3);
    one_node_int(&t, "end_y", 2);
    check(&t, 1, 1e-5);
    one_node_begin(&t, "tacit", "LayerNorm2d");
    add(&t, &v, DIMS(2, 5, 3, 4));
    add(&t, &v, DIMS(5));
    add(&t, &v, DIMS(5));
    check(&t, 1, 1e-5);
    one_node_begin(&t, "tacit", "BatchNormLast");
    add(&t, &v, DIMS(2, 3, 2));
    for (int i = 0; i < 3; i++)
        add(&t, &v, DIMS(2));
    one_node_in(&t, TACIT_F32, DIMS(2), (double[]){.5, 2});
    check(&t, 1, 1e-5);
    one_node_begin(&t, "tacit", "LoraMatMul");
    add(&t, &v, DIMS(2, 3, 4));
    add(&t, &v, DIMS(4, 5));
    add(&t, &v, DIMS(4, 2));
    add(&t, &v, DIMS(2, 5));
    one_node_float(&t, "scale", 0.5);
    check(&t, 1, 1e-5);
}

static void adam(void **state)
{
    (void)state;
    rng r = rng_seed(91);
    for (int variant = 0; variant < 16; variant++) {
        one_node t;
        double values[4][6], rate = 0.01, step = 3, scale = 2, enabled = (variant & 8) == 0;
        one_node_begin(&t, "tacit", "AdamStep");
        for (int i = 0; i < 4; i++) {
            for (int k = 0; k < 6; k++)
                values[i][k] = rng_range(&r, i == 2 ? 0 : -1, 1);
            one_node_in(&t, TACIT_F64, 2, (int64_t[]){2, 3}, values[i]);
        }
        one_node_in(&t, TACIT_F32, 0, NULL, &rate);
        one_node_in(&t, TACIT_F32, 0, NULL, &step);
        if (variant & 3)
            one_node_in(&t, TACIT_F32, 0, NULL, &scale);
        if (variant & 2)
            one_node_in(&t, TACIT_BOOL, 0, NULL, &enabled);
        one_node_int(&t, "decoupled", variant >> 2 & 1);
        one_node_float(&t, "weight_decay", 0.1);
        check(&t, 3, 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(adam),
        cmocka_unit_test(fused_contractions),
        cmocka_unit_test(fused_attention_and_norm),
        cmocka_unit_test(contributed_ops),
        cmocka_unit_test(attention_in_parts),
        cmocka_unit_test(group_query_attention_in_parts),
        cmocka_unit_test(group_query_attention_without_parts),
        cmocka_unit_test(embedding_in_parts),
        cmocka_unit_test(families_in_parts),
        cmocka_unit_test(contributed_attention_in_parts),
    };
    return cmocka_run_group_tests_name("op decompose", tests, NULL, NULL);
}
