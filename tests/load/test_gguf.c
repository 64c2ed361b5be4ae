/* SPDX-License-Identifier: Apache-2.0
 * GGUF: a small llama written here, read back, and run against its formulas in plain C; damaged
 * files are refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "load/gguf.h"
#include "support/gguf_writer.h"
#include "tacit/tacit.h"

enum { WIDTH = 32, HEADS = 2, KV = 1, DEPTH = 16, FFN = 64, VOCABULARY = 10, TOKENS = 4 };

typedef struct weight {
    const char *name;
    int64_t rows, columns; /* rows 0: a vector */
    float *data;           /* as the file means it */
} weight;

static weight weights[] = {
    {"token_embd.weight", VOCABULARY, WIDTH, NULL},
    {"blk.0.attn_norm.weight", 0, WIDTH, NULL},
    {"blk.0.attn_q.weight", HEADS *DEPTH, WIDTH, NULL},
    {"blk.0.attn_k.weight", KV *DEPTH, WIDTH, NULL},
    {"blk.0.attn_v.weight", KV *DEPTH, WIDTH, NULL},
    {"blk.0.attn_output.weight", WIDTH, HEADS *DEPTH, NULL},
    {"blk.0.ffn_norm.weight", 0, WIDTH, NULL},
    {"blk.0.ffn_gate.weight", FFN, WIDTH, NULL},
    {"blk.0.ffn_up.weight", FFN, WIDTH, NULL},
    {"blk.0.ffn_down.weight", WIDTH, FFN, NULL},
    {"output_norm.weight", 0, WIDTH, NULL},
    {"output.weight", VOCABULARY, WIDTH, NULL},
};
enum { WEIGHTS = sizeof weights / sizeof *weights };

/* --- writing -----------------------------------------------------------------------------------
 */

/* One row as Q8_0; `row` becomes what those blocks say. */
static void put_q8_0(sbuf *b, float *row, int64_t n)
{
    for (int64_t g = 0; g < n; g += 32) {
        float top = 0;
        for (int i = 0; i < 32; i++)
            top = fmaxf(top, fabsf(row[g + i]));
        uint16_t half = half_encode(HALF_F16, top / 127, false);
        float scale = half_to_f32(half);
        sbuf_bytes(b, &half, sizeof half);
        for (int i = 0; i < 32; i++) {
            int8_t q = (int8_t)rintf(scale > 0 ? row[g + i] / scale : 0);
            sbuf_char(b, (char)q);
            row[g + i] = (float)q * scale;
        }
    }
}

/* `window`: keys that a query sees, or 0; only some architectures read it. */
static void write_file(sbuf *b, bool packed, const char *arch, uint32_t window)
{
    static const char *const tokens[] = {"a", "bc"}; /* arrays to step over */
    static const int32_t kinds[] = {1, -6};
    char key[64];
#define KEY(name) (snprintf(key, sizeof key, "%s." name, arch), key)
    rng r = rng_seed(17);
    sbuf data;
    sbuf_init(&data, NULL);
    gguf_begin(b);
    gguf_string(b, "general.architecture", arch);
    gguf_number(b, KEY("block_count"), 1);
    gguf_number(b, KEY("embedding_length"), WIDTH);
    gguf_number(b, KEY("attention.head_count"), HEADS);
    gguf_number(b, KEY("attention.head_count_kv"), KV);
    gguf_number(b, KEY("context_length"), 64);
    gguf_float(b, KEY("attention.layer_norm_rms_epsilon"), 1e-5f);
    gguf_float(b, KEY("rope.freq_base"), 10000);
    gguf_number(b, KEY("attention.sliding_window"), window ? window : 1);
#undef KEY
    gguf_strings(b, "tokenizer.ggml.tokens", tokens, 2);
    gguf_ints(b, "tokenizer.ggml.token_type", kinds, 2);
    for (int i = 0; i < WEIGHTS; i++) {
        weight *w = &weights[i];
        int64_t rows = w->rows ? w->rows : 1, count = rows * w->columns;
        free(w->data);
        w->data = malloc((size_t)count * sizeof *w->data);
        for (int64_t k = 0; k < count; k++)
            w->data[k] = (float)(w->rows ? rng_range(&r, -0.4, 0.4) : rng_range(&r, 0.8, 1.2));
        gguf_pad(&data);
        bool blocks = packed && w->rows;
        gguf_tensor(b, w->name, w->rows ? 2 : 1, (const int64_t[]){w->columns, w->rows},
                    blocks ? 8 : 0, data.length);
        for (int64_t k = 0; k < rows; k++)
            if (blocks)
                put_q8_0(&data, w->data + k * w->columns, w->columns);
            else
                sbuf_bytes(&data, w->data + k * w->columns, (size_t)w->columns * sizeof(float));
    }
    gguf_pad(b);
    sbuf_bytes(b, data.data, data.length);
    sbuf_free(&data);
}

/* --- the formulas ------------------------------------------------------------------------------
 */

static void product(const weight *w, const double *x, double *y)
{
    for (int64_t i = 0; i < w->rows; i++) {
        y[i] = 0;
        for (int64_t k = 0; k < w->columns; k++)
            y[i] += (double)w->data[i * w->columns + k] * x[k];
    }
}
static void normed(const weight *w, const double *x, double *y)
{
    double sum = 0;
    for (int i = 0; i < WIDTH; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < WIDTH; i++)
        y[i] = x[i] / sqrt(sum / WIDTH + 1e-5) * (double)w->data[i];
}
static void turned(double *x, int heads, int position)
{
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < DEPTH / 2; i++) {
            double *p = x + h * DEPTH + 2 * i, a = position * pow(10000, -2.0 * i / DEPTH);
            double re = p[0] * cos(a) - p[1] * sin(a), im = p[0] * sin(a) + p[1] * cos(a);
            p[0] = re;
            p[1] = im;
        }
}

static void expected(const int64_t *tokens, double out[TOKENS][VOCABULARY])
{
    static double keys[TOKENS][DEPTH], values[TOKENS][DEPTH];
    for (int t = 0; t < TOKENS; t++) {
        double x[WIDTH], h[WIDTH], q[HEADS * DEPTH], mixed[HEADS * DEPTH] = {0}, y[WIDTH];
        double gate[FFN], up[FFN];
        for (int i = 0; i < WIDTH; i++)
            x[i] = (double)weights[0].data[tokens[t] * WIDTH + i];
        normed(&weights[1], x, h);
        product(&weights[2], h, q);
        product(&weights[3], h, keys[t]);
        product(&weights[4], h, values[t]);
        turned(q, HEADS, t);
        turned(keys[t], KV, t);
        for (int head = 0; head < HEADS; head++) {
            double s[TOKENS], sum = 0;
            for (int k = 0; k <= t; k++) {
                s[k] = 0;
                for (int i = 0; i < DEPTH; i++)
                    s[k] += q[head * DEPTH + i] * keys[k][i] / sqrt(DEPTH);
                sum += s[k] = exp(s[k]);
            }
            for (int k = 0; k <= t; k++)
                for (int i = 0; i < DEPTH; i++)
                    mixed[head * DEPTH + i] += s[k] / sum * values[k][i];
        }
        product(&weights[5], mixed, y);
        for (int i = 0; i < WIDTH; i++)
            x[i] += y[i];
        normed(&weights[6], x, h);
        product(&weights[7], h, gate);
        product(&weights[8], h, up);
        for (int i = 0; i < FFN; i++)
            up[i] *= gate[i] / (1 + exp(-gate[i]));
        product(&weights[9], up, y);
        for (int i = 0; i < WIDTH; i++)
            x[i] += y[i];
        normed(&weights[10], x, h);
        product(&weights[11], h, out[t]);
    }
}

/* --- tests -------------------------------------------------------------------------------------
 */

static void read_back(void **state)
{
    (void)state;
    sbuf b;
    arena memory;
    load_gguf_file f;
    tacit_error err = {TACIT_OK, ""};
    write_file(&b, true, "llama", 0);
    arena_init(&memory, NULL);
    if (load_gguf(b.data, b.length, &memory, &f, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(f.version, 3);
    assert_int_equal(f.tensors.count, WEIGHTS);
    assert_string_equal(load_gguf_find(&f, "general.architecture")->text, "llama");
    const load_gguf_pair *tokens = load_gguf_find(&f, "tokenizer.ggml.tokens");
    const uint8_t *at = tokens->items;
    size_t length;
    assert_int_equal(tokens->count, 2);
    assert_true(load_gguf_strings(tokens) && !load_gguf_numbers(tokens));
    assert_memory_equal(load_gguf_next(&at, &length), "a", 1);
    assert_memory_equal(load_gguf_next(&at, &length), "bc", 2);
    assert_int_equal(length, 2);
    const load_gguf_pair *kinds = load_gguf_find(&f, "tokenizer.ggml.token_type");
    assert_true(load_gguf_numbers(kinds) && !load_gguf_strings(kinds));
    assert_int_equal(kinds->number, 1);
    assert_int_equal((int)load_gguf_number(kinds, 1), -6);
    const load_gguf_tensor *t = load_gguf_tensor_find(&f, "blk.0.ffn_down.weight");
    assert_string_equal(t->type, "Q8_0");
    assert_int_equal(t->shape.dims[0], WIDTH);
    assert_int_equal(t->shape.dims[1], FFN);
    assert_int_equal(t->bytes, WIDTH * FFN / 32 * 34);
    arena_free(&memory);
    sbuf_free(&b);
}

/* What a file says in words and numbers is the model's metadata, and so is how far it reaches. */
static void metadata(void **state)
{
    (void)state;
    static const char *const want[][2] = {{"tacit.positions", "64"},
                                          {"general.architecture", "llama"},
                                          {"llama.embedding_length", "32"},
                                          {"llama.rope.freq_base", "10000"}};
    sbuf b;
    tacit_error err = {TACIT_OK, ""};
    tacit_model *model = NULL;
    tacit_about about;
    write_file(&b, true, "llama", 0);
    if (tacit_model_load_memory(b.data, b.length, NULL, &model, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_model_about(model, &about);
    assert_int_equal(about.metadata_count, 1 + 9); /* of 11 in the file two are arrays */
    uint32_t found = 0;
    for (uint32_t i = 0; i < about.metadata_count; i++) {
        const char *key, *value;
        assert_int_equal(tacit_model_metadata(model, i, &key, &value), TACIT_OK);
        for (size_t k = 0; k < sizeof want / sizeof *want; k++)
            found += strcmp(key, want[k][0]) == 0 && strcmp(value, want[k][1]) == 0;
    }
    assert_int_equal(found, sizeof want / sizeof *want);
    tacit_model_free(model);
    sbuf_free(&b);
}

/* All tokens at once, and one by one into a cache. */
static void runs_as_the_formulas_say(void **state)
{
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        sbuf b;
        tacit_error err = {TACIT_OK, ""};
        tacit_model *model = NULL;
        write_file(&b, packed, "llama", 0);
        if (tacit_model_load_memory(b.data, b.length, NULL, &model, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        int64_t tokens[TOKENS] = {3, 1, 9, 3}, positions[TOKENS] = {0, 1, 2, 3};
        double want[TOKENS][VOCABULARY];
        expected(tokens, want);
        for (int one = 0; one < 2; one++) {
            int64_t seq = one ? 1 : TOKENS;
            tacit_dim dims[] = {{"seq", seq}};
            tacit_compile_options o = {.dims = dims, .n_dims = 1, .cache_capacity = 8};
            tacit_program *p = NULL;
            tacit_session *s = NULL;
            if (tacit_compile(model, &o, &p, &err) != TACIT_OK ||
                tacit_session_create(p, &s, &err) != TACIT_OK)
                fail_msg("%s", err.message);
            double error = 0, power = 0; /* blocks: rows are rounded to bytes, too */
            for (int64_t at = 0; at < TOKENS; at += seq) {
                float y[TOKENS * VOCABULARY];
                size_t bytes = (size_t)seq * 8;
                tacit_tensor in[] = {
                    {.name = "input_ids", .dims = {1, seq}, .data = tokens + at},
                    {.name = "position_ids", .dims = {1, seq}, .data = positions + at}};
                for (int i = 0; i < 2; i++) {
                    in[i].dtype = TACIT_I64;
                    in[i].rank = 2;
                    in[i].bytes = bytes;
                }
                tacit_tensor out = {.name = "logits",
                                    .dtype = TACIT_F32,
                                    .rank = 3,
                                    .dims = {1, seq, VOCABULARY},
                                    .data = y,
                                    .bytes = sizeof y};
                if (tacit_run(s, in, 2, &out, 1, &err) != TACIT_OK)
                    fail_msg("%s", err.message);
                for (int64_t i = 0; i < seq * VOCABULARY; i++) {
                    double w = want[at + i / VOCABULARY][i % VOCABULARY];
                    error += ((double)y[i] - w) * ((double)y[i] - w);
                    power += w * w;
                    if (fabs((double)y[i] - w) > (packed ? 0.15 : 1e-5) * (1 + fabs(w)))
                        fail_msg("packed %d, one %d: logit %lld is %g, expected %g", packed, one,
                                 (long long)i, (double)y[i], w);
                }
            }
            assert_true(sqrt(error / power) < 0.04);
            tacit_session_free(s);
            tacit_program_free(p);
        }
        tacit_model_free(model);
        sbuf_free(&b);
    }
}

static void run_logits(tacit_session *s, int64_t *tokens, int64_t first, int64_t seq, float *y)
{
    int64_t positions[TOKENS];
    tacit_error err = {TACIT_OK, ""};
    for (int64_t i = 0; i < seq; i++)
        positions[i] = first + i;
    tacit_tensor in[] = {{.name = "input_ids", .data = tokens + first},
                         {.name = "position_ids", .data = positions}};
    for (int i = 0; i < 2; i++) {
        in[i].dtype = TACIT_I64;
        in[i].rank = 2;
        in[i].dims[0] = 1;
        in[i].dims[1] = seq;
        in[i].bytes = (size_t)seq * 8;
    }
    tacit_tensor out = {.name = "logits",
                        .dtype = TACIT_F32,
                        .rank = 3,
                        .dims = {1, seq, VOCABULARY},
                        .data = y,
                        .bytes = (size_t)seq * VOCABULARY * sizeof(float)};
    if (tacit_run(s, in, 2, &out, 1, &err) != TACIT_OK)
        fail_msg("%s", err.message);
}

/* Logits of all tokens, `seq` at a time into a cache that is longer than the window. */
static void cached_logits(const tacit_model *model, int64_t seq, float *y)
{
    int64_t tokens[TOKENS] = {3, 1, 9, 3};
    tacit_dim dims[] = {{"seq", seq}};
    tacit_compile_options o = {.dims = dims, .n_dims = 1, .cache_capacity = 8};
    tacit_error err = {TACIT_OK, ""};
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    if (tacit_compile(model, &o, &p, &err) != TACIT_OK ||
        tacit_session_create(p, &s, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (int64_t at = 0; at < TOKENS; at += seq)
        run_logits(s, tokens, at, seq, y + at * VOCABULARY);
    tacit_session_free(s);
    tacit_program_free(p);
}

/* Tokens one by one, in pairs and all at once see the same windows; without one the last token
 * sees more. */
static void windows_hold_in_caches(void **state)
{
    (void)state;
    float y[2][3][TOKENS * VOCABULARY]; /* by file: with a window, without; by tokens in a run */
    for (int file = 0; file < 2; file++) {
        sbuf b;
        tacit_error err = {TACIT_OK, ""};
        tacit_model *model = NULL;
        write_file(&b, false, file ? "qwen2" : "phi3", 2);
        if (tacit_model_load_memory(b.data, b.length, NULL, &model, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        for (int i = 0; i < 3; i++)
            cached_logits(model, (int64_t[]){1, 2, TOKENS}[i], y[file][i]);
        tacit_model_free(model);
        sbuf_free(&b);
    }
    for (int i = 0; i < TOKENS * VOCABULARY; i++)
        for (int k = 0; k < 4; k++)
            assert_float_equal(y[k / 2][k % 2][i], y[k / 2][2][i], 1e-5f);
    double apart[2] = {0, 0}; /* of tokens that see all, of the last */
    for (int i = 0; i < TOKENS * VOCABULARY; i++)
        if (i < 2 * VOCABULARY || i >= 3 * VOCABULARY)
            apart[i >= 3 * VOCABULARY] += fabs((double)(y[0][0][i] - y[1][0][i]));
    assert_true(apart[0] < 1e-4 && apart[1] > 1e-2);
}

static tacit_status try_bytes(const void *data, size_t size)
{
    arena memory;
    load_gguf_file f;
    ir_graph *g;
    tacit_error err = {TACIT_OK, ""};
    arena_init(&memory, NULL);
    tacit_status status = load_gguf(data, size, &memory, &f, &err);
    if (status == TACIT_OK)
        status = load_gguf_graph(&f, &memory, &g, &err);
    assert_true(status == TACIT_OK || err.message[0]);
    arena_free(&memory);
    return status;
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    sbuf b;
    write_file(&b, true, "llama", 0);
    size_t whole = b.length;
    for (size_t n = 0; n < whole; n += n < 2000 ? 1 : 37)
        assert_int_not_equal(try_bytes(b.data, n), TACIT_OK);
    assert_int_equal(try_bytes(b.data, whole), TACIT_OK);
    rng r = rng_seed(18);
    char *copy = malloc(whole);
    for (int i = 0; i < 4000; i++) { /* headers that lie: any answer, no crash */
        memcpy(copy, b.data, whole);
        for (uint64_t k = 0; k <= rng_below(&r, 4); k++)
            copy[4 + rng_below(&r, 1600)] = (char)rng_below(&r, 256);
        (void)try_bytes(copy, whole);
    }
    free(copy);
    sbuf_free(&b);
    for (int i = 0; i < WEIGHTS; i++) {
        free(weights[i].data);
        weights[i].data = NULL;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_back),
        cmocka_unit_test(metadata),
        cmocka_unit_test(runs_as_the_formulas_say),
        cmocka_unit_test(windows_hold_in_caches),
        cmocka_unit_test(damaged_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
