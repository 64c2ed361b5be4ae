/* SPDX-License-Identifier: Apache-2.0
 * Fusions that other compilers make wrongly (our notes on lowering, sections 4.1 to 4.3 and rows 4
 * and 28 of their table): whole attention blocks and layers in all their variants, the optimised
 * graph held to the answer of the graph as it was. Numbers are compared, and something must have
 * been fused at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/sbuf.h"
#include "support/pass_check.h"

enum { NO_MASK, CAUSAL, PADDING, BIAS, MASKS };

typedef struct block {
    int length; /* of the sequence; batch 2, two heads of four */
    int mask;
    bool qkv_bias, out_bias, rotary, part_rotary, shared;
} block;

/* Names of a block's values end in its number, so that a graph may hold several. */
static void write_heads(sbuf *s, const block *b, int n, char part)
{
    char from = part;
    int first = part == 'q' ? 0 : part == 'k' ? 8 : 16;
    sbuf_printf(s, "const %%%cf%d : i64[1] = [%d]\nconst %%%ct%d : i64[1] = [%d]\n", part, n, first,
                part, n, first + 8);
    sbuf_printf(s, "%%%c%d = Slice(%%p%d, %%%cf%d, %%%ct%d, %%two) @%c%d\n", part, n, n, part, n,
                part, n, part, n);
    if (b->rotary && part != 'v') {
        sbuf_printf(s,
                    "%%%cr%d = tacit.Rope(%%%c%d, %%cos%d, %%sin%d) head_dim=4 rotated=%d "
                    "@%cr%d\n",
                    part, n, part, n, n, n, b->part_rotary ? 2 : 4, part, n);
        from = (char)(part - 'a' + 'A');
        sbuf_printf(s, "%%%c%d = Identity(%%%cr%d) @%c%d\n", from, n, part, n, from, n);
    }
    sbuf_printf(s,
                "%%%ch%d = Reshape(%%%c%d, %%split%d) @%ch%d\n%%%cp%d = Transpose(%%%ch%d) "
                "perm=[0, 2, %s] @%cp%d\n",
                part, n, from, n, n, part, n, part, n, part, n, part == 'k' ? "3, 1" : "1, 3", part,
                n);
}

static void write_inputs(sbuf *s, const block *b, int n)
{
    sbuf_printf(s, "in %%x%d : f32[2,%d,8]\nin %%wq%d : f32[8,24]\nin %%wo%d : f32[8,8]\n", n,
                b->length, n, n);
    sbuf_printf(s, "in %%bq%d : f32[24]\nin %%bo%d : f32[8]\nin %%cos%d : f32[%d,2]\n", n, n, n,
                b->length);
    sbuf_printf(s, "in %%sin%d : f32[%d,2]\nin %%pad%d : f32[2,1,1,%d]\n", n, b->length, n,
                b->length);
    sbuf_printf(s, "in %%bias%d : f32[2,2,%d,%d]\n", n, b->length, b->length);
    sbuf_printf(s,
                "const %%split%d : i64[4] = [2, %d, 2, 4]\nconst %%join%d : i64[3] = [2, %d, "
                "8]\n",
                n, b->length, n, b->length);
}

static void write_scores(sbuf *s, const block *b, int n)
{
    sbuf_printf(s, "%%s%d = MatMul(%%qp%d, %%kp%d) @s%d\n%%sc%d = Mul(%%s%d, %%half) @sc%d\n", n, n,
                n, n, n, n, n);
    if (b->mask == CAUSAL) {
        sbuf_printf(s, "const %%tri%d : bool[1,1,%d,%d] = [", n, b->length, b->length);
        for (int i = 0; i < b->length * b->length; i++)
            sbuf_printf(s, "%s%s", i ? ", " : "",
                        i % b->length <= i / b->length ? "true" : "false");
        sbuf_printf(s, "]\n%%m%d = Where(%%tri%d, %%sc%d, %%never) @m%d\n", n, n, n, n);
    } else if (b->mask != NO_MASK) {
        sbuf_printf(s, "%%m%d = Add(%%sc%d, %%%s%d) @m%d\n", n, n,
                    b->mask == PADDING ? "pad" : "bias", n, n);
    }
    sbuf_printf(s, "%%w%d = Softmax(%%%s%d) axis=-1 @w%d\n", n, b->mask == NO_MASK ? "sc" : "m", n,
                n);
}

static void write_block(sbuf *s, const block *b, int n)
{
    write_inputs(s, b, n);
    sbuf_printf(s, "%%%s%d = MatMul(%%x%d, %%wq%d) @qkv%d\n", b->qkv_bias ? "pm" : "p", n, n, n, n);
    if (b->qkv_bias)
        sbuf_printf(s, "%%p%d = Add(%%pm%d, %%bq%d) @p%d\n", n, n, n, n);
    write_heads(s, b, n, 'q');
    write_heads(s, b, n, 'k');
    write_heads(s, b, n, 'v');
    write_scores(s, b, n);
    sbuf_printf(s,
                "%%c%d = MatMul(%%w%d, %%vp%d) @c%d\n%%ct%d = Transpose(%%c%d) perm=[0, 2, 1, "
                "3] @ct%d\n%%cj%d = Reshape(%%ct%d, %%join%d) @cj%d\n",
                n, n, n, n, n, n, n, n, n, n, n);
    sbuf_printf(s, "%%o%d = MatMul(%%cj%d, %%wo%d) @o%d\n", n, n, n, n);
    if (b->out_bias)
        sbuf_printf(s, "%%ob%d = Add(%%o%d, %%bo%d) @ob%d\n", n, n, n, n);
    sbuf_printf(s, "out %%%s%d\n", b->out_bias ? "ob" : "o", n);
    if (b->shared) /* the projection is wanted for itself, and so is a slice of it */
        sbuf_printf(s, "out %%p%d\n%%vs%d = ReduceSum(%%v%d) @vs%d\nout %%vs%d\n", n, n, n, n, n);
}

static void check_blocks(int n, const block *blocks)
{
    arena a;
    arena_init(&a, NULL);
    sbuf s;
    sbuf_init(&s, NULL);
    sbuf_printf(&s, "tacit 1\ngraph \"g\" {\nconst %%two : i64[1] = [2]\nconst %%half : f32[] = "
                    "[0.5]\nconst %%never : f32[] = [-3.4028235e+38]\n");
    for (int i = 0; i < n; i++)
        write_block(&s, &blocks[i], i);
    sbuf_printf(&s, "}\n");
    ir_graph *g = pass_check_parse(&a, s.data, s.length);
    ir_graph *after = pass_check_run(g, NULL, NULL, 2e-5, NULL);
    assert_int_equal(pass_check_count(after, "tacit.Attention"), n);
    assert_int_equal(pass_check_count(after, "Softmax"), 0);
    sbuf_free(&s);
    arena_free(&a);
}

static void L4_2_attention_blocks_keep_masks_biases_and_rotations(void **state)
{
    (void)state;
    for (int i = 0; i < MASKS * 2 * 2 * 3 * 2; i++) {
        int rotary = i / MASKS / 4 % 3;
        block b = {.length = 5,
                   .mask = i % MASKS,
                   .qkv_bias = i / MASKS % 2,
                   .out_bias = i / MASKS / 2 % 2,
                   .rotary = rotary > 0,
                   .part_rotary = rotary == 2,
                   .shared = i / MASKS / 12 % 2};
        check_blocks(1, &b);
    }
}

/* A short sequence and a long one in one graph, each with its own mask. */
static void L4_1_one_small_attention_decides_nothing_for_others(void **state)
{
    (void)state;
    for (int mask = 0; mask < MASKS; mask++) {
        block both[2] = {{.length = 3, .mask = mask, .qkv_bias = true, .out_bias = true},
                         {.length = 40, .mask = (mask + 1) % MASKS, .rotary = true}};
        check_blocks(2, both);
    }
}

/* The second half of an encoder layer, with the residual from where it should be or from elsewhere,
 * the norm with a bias of its own or none, and the middle wanted for itself. */
static void L4_3_layers_keep_their_residuals_and_biases(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * 2 * 2 * 2; i++) {
        arena a;
        arena_init(&a, NULL);
        sbuf s;
        sbuf_init(&s, NULL);
        sbuf_printf(&s,
                    "tacit 1\ngraph \"g\" {\nin %%x : f32[2,3,8]\nin %%r : f32[2,3,8]\nin %%w : "
                    "f32[8,16]\nin %%b : f32[16]\nin %%u : f32[16,8]\nin %%c : f32[8]\nin %%g : "
                    "f32[8]\nin %%h : f32[8]\n%%n = LayerNormalization(%%x, %%g%s) axis=-1 @n\n%%m "
                    "= MatMul(%%n, %%w) @m\n%%mb = Add(%%m, %%b) @mb\n%%e = Gelu(%%mb) @e\n%%f = "
                    "MatMul(%%e, %%u) @f\n",
                    i & 1 ? ", %h" : "");
        if (i & 2)
            sbuf_printf(&s, "%%fb = Add(%%f, %%c) @fb\n");
        sbuf_printf(&s,
                    "%%z = Add(%%%s, %%%s) @z\n%%y = LayerNormalization(%%z, %%g%s) axis=-1 "
                    "@y\nout %%y\n%s}\n",
                    i & 2 ? "fb" : "f", i & 4 ? "r" : "n", i & 1 ? ", %h" : "",
                    i & 8 ? "out %z\nout %e\n" : "");
        ir_graph *g = pass_check_parse(&a, s.data, s.length);
        ir_graph *after = pass_check_run(g, NULL, NULL, 2e-5, NULL);
        assert_true(pass_check_count(after, "tacit.MatMul") > 0);
        sbuf_free(&s);
        arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(L4_1_one_small_attention_decides_nothing_for_others),
        cmocka_unit_test(L4_2_attention_blocks_keep_masks_biases_and_rotations),
        cmocka_unit_test(L4_3_layers_keep_their_residuals_and_biases),
    };
    return cmocka_run_group_tests_name("listed defects of fusions", tests, NULL, NULL);
}
