/* SPDX-License-Identifier: Apache-2.0
 * Past keys and values kept in the session: step by step the same results as the model gives when
 * the past goes in and out by hand, on both executors, with one and several new positions. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "tacit/tacit.h"

enum { HEADS = 2, DEPTH = 4, WIDTH = 8, CAPACITY = 12, VALUES = HEADS * DEPTH };

/* One attention of two heads; x makes query, key and value by being itself. The mask is cut from a
 * triangle behind `past` positions, as exporters do. */
static const char *const model_text = "tacit 1\n"
                                      "graph \"main\" {\n"
                                      "  symbol \"past\"\n"
                                      "  symbol \"seq\"\n"
                                      "  in %x : f32[1,seq,8]\n"
                                      "  in %past_k : f32[1,2,past,4]\n"
                                      "  in %past_v : f32[1,2,past,4]\n"
                                      "  const %shape : i64[4] = [0, 0, 2, 4]\n"
                                      "  const %flat : i64[3] = [0, 0, 8]\n"
                                      "  const %two : i64[1] = [2]\n"
                                      "  const %one : i64[1] = [1]\n"
                                      "  const %zero : i64[1] = [0]\n"
                                      "  const %three : i64[1] = [3]\n"
                                      "  const %least : f32[] = [-1e30]\n"
                                      "  const %half : f32[] = [0.5]\n"
                                      "  const %ones : f32[1] = [1.0]\n"
                                      "  const %n : i64[4] = [1, 1, 16, 16]\n"
                                      "  %heads = Reshape(%x, %shape) @n_heads\n"
                                      "  %q = Transpose(%heads) perm=[0, 2, 1, 3] @n_q\n"
                                      "  %k = Concat(%past_k, %q) axis=2 @n_k\n"
                                      "  %v = Concat(%past_v, %q) axis=2 @n_v\n"
                                      "  %kt = Transpose(%k) perm=[0, 1, 3, 2] @n_kt\n"
                                      "  %s = MatMul(%q, %kt) @n_s\n"
                                      "  %scaled = Mul(%s, %half) @n_scaled\n"
                                      "  %sizes = Shape(%past_k) @n_sizes\n"
                                      "  %held = Gather(%sizes, %two) axis=0 @n_held\n"
                                      "  %xs = Shape(%x) @n_xs\n"
                                      "  %new = Gather(%xs, %one) axis=0 @n_new\n"
                                      "  %all = Add(%held, %new) @n_all\n"
                                      "  %full = Expand(%ones, %n) @n_full\n"
                                      "  %triangle = Trilu(%full) upper=0 @n_triangle\n"
                                      "  %rows = Slice(%triangle, %held, %all, %two) @n_rows\n"
                                      "  %cut = Slice(%rows, %zero, %all, %three) @n_cut\n"
                                      "  %seen = Cast(%cut) to=9 @n_seen\n"
                                      "  %masked = Where(%seen, %scaled, %least) @n_masked\n"
                                      "  %p = Softmax(%masked) axis=-1 @n_p\n"
                                      "  %mixed = MatMul(%p, %v) @n_mixed\n"
                                      "  %back = Transpose(%mixed) perm=[0, 2, 1, 3] @n_back\n"
                                      "  %y = Reshape(%back, %flat) @n_y\n"
                                      "  out %y\n"
                                      "  out %k\n"
                                      "  out %v\n"
                                      "}\n";

static tacit_model *load(const char *text)
{
    tacit_error err = {TACIT_OK, ""};
    tacit_model *m = NULL;
    if (tacit_model_load_memory(text, strlen(text), NULL, &m, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return m;
}

static tacit_session *open_session(const tacit_model *m, const tacit_compile_options *o)
{
    tacit_error err = {TACIT_OK, ""};
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    if (tacit_compile(m, o, &p, &err) != TACIT_OK || tacit_session_create(p, &s, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_program_free(p);
    return s;
}

static tacit_tensor rows(const char *name, int64_t heads, int64_t n, int64_t d, float *data)
{
    tacit_tensor t = {.name = name, .dtype = TACIT_F32, .rank = heads ? 4 : 3, .data = data};
    int64_t whole[4] = {1, heads, n, d}, flat[3] = {1, n, d};
    memcpy(t.dims, heads ? whole : flat, sizeof(int64_t) * (size_t)t.rank);
    t.bytes = sizeof(float) * (size_t)((heads ? heads : 1) * n * d);
    return t;
}

/* `seq` new positions at a time, the past carried by hand from run to run. */
static void by_hand(const tacit_model *m, int64_t seq, int64_t steps, float *x, float *out)
{
    static float past[2][2][VALUES * CAPACITY];
    tacit_error err = {TACIT_OK, ""};
    for (int64_t i = 0; i < steps; i++) {
        tacit_dim dims[] = {{"past", i * seq}, {"seq", seq}};
        tacit_compile_options o = {.dims = dims, .n_dims = 2, .executor = TACIT_EXEC_REFERENCE};
        tacit_session *s = open_session(m, &o);
        tacit_tensor in[] = {rows("x", 0, seq, WIDTH, x + i * seq * WIDTH),
                             rows("past_k", HEADS, i * seq, DEPTH, past[0][i % 2]),
                             rows("past_v", HEADS, i * seq, DEPTH, past[1][i % 2])};
        tacit_tensor y[] = {rows("y", 0, seq, WIDTH, out + i * seq * WIDTH),
                            rows("k", HEADS, (i + 1) * seq, DEPTH, past[0][1 - i % 2]),
                            rows("v", HEADS, (i + 1) * seq, DEPTH, past[1][1 - i % 2])};
        if (tacit_run(s, in, 3, y, 3, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        tacit_session_free(s);
    }
}

static void step(tacit_session *s, int64_t seq, float *x, const float *want)
{
    float y[CAPACITY * WIDTH];
    tacit_error err = {TACIT_OK, ""};
    tacit_tensor in = rows("x", 0, seq, WIDTH, x), out = rows("y", 0, seq, WIDTH, y);
    if (tacit_run(s, &in, 1, &out, 1, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (int64_t i = 0; i < seq * WIDTH; i++)
        if (fabsf(y[i] - want[i]) > 1e-5f)
            fail_msg("element %lld is %g, by hand %g", (long long)i, (double)y[i], (double)want[i]);
}

static void same_as_by_hand(void **state)
{
    (void)state;
    tacit_model *m = load(model_text);
    rng r = rng_seed(5);
    for (int64_t seq = 1; seq <= 4; seq++)
        for (int exec = 0; exec < 2; exec++) {
            float x[CAPACITY * WIDTH], want[CAPACITY * WIDTH];
            int64_t steps = CAPACITY / seq;
            for (int i = 0; i < CAPACITY * WIDTH; i++)
                x[i] = (float)rng_range(&r, -1, 1);
            by_hand(m, seq, steps, x, want);
            tacit_dim dims[] = {{"seq", seq}};
            tacit_compile_options o = {.dims = dims,
                                       .n_dims = 1,
                                       .cache_capacity = CAPACITY,
                                       .executor = exec ? TACIT_EXEC_TASKS : TACIT_EXEC_SERIAL,
                                       .threads = 2};
            tacit_session *s = open_session(m, &o);
            for (int round = 0; round < 2; round++) {
                for (int64_t i = 0; i < steps; i++) {
                    assert_int_equal(tacit_session_cache_length(s), i * seq);
                    step(s, seq, x + i * seq * WIDTH, want + i * seq * WIDTH);
                }
                tacit_error err = {TACIT_OK, ""};
                assert_int_equal(tacit_session_cache_rewind(s, 0, &err), TACIT_OK);
            }
            tacit_session_free(s);
        }
    tacit_model_free(m);
}

static void full_rewound_and_filled(void **state)
{
    (void)state;
    tacit_model *m = load(model_text);
    tacit_error err = {TACIT_OK, ""};
    tacit_dim dims[] = {{"seq", 1}};
    tacit_compile_options o = {.dims = dims, .n_dims = 1, .cache_capacity = 3};
    tacit_session *s = open_session(m, &o);
    float x[4 * WIDTH], want[4 * WIDTH], y[WIDTH], k[VALUES * 2];
    rng r = rng_seed(6);
    for (int i = 0; i < 4 * WIDTH; i++)
        x[i] = (float)rng_range(&r, -1, 1);
    by_hand(m, 1, 4, x, want);
    for (int i = 0; i < 3; i++)
        step(s, 1, x + i * WIDTH, want + i * WIDTH);
    tacit_tensor in = rows("x", 0, 1, WIDTH, x), out = rows("y", 0, 1, WIDTH, y);
    assert_int_equal(tacit_run(s, &in, 1, &out, 1, &err), TACIT_ERR_LIMIT);
    assert_non_null(strstr(err.message, "holds 3 of 3 positions"));
    assert_int_equal(tacit_session_cache_rewind(s, 4, &err), TACIT_ERR_ARGUMENT);
    assert_int_equal(tacit_session_cache_rewind(s, 1, &err), TACIT_OK);
    step(s, 1, x + WIDTH, want + WIDTH);
    for (int h = 0; h < HEADS; h++) /* the keys and values of the first two positions */
        for (int i = 0; i < 2; i++)
            memcpy(k + (h * 2 + i) * DEPTH, x + i * WIDTH + h * DEPTH, DEPTH * sizeof *k);
    tacit_tensor past[] = {rows("past_k", HEADS, 2, DEPTH, k), rows("past_v", HEADS, 2, DEPTH, k)};
    assert_int_equal(tacit_session_cache_fill(s, past, 1, &err), TACIT_ERR_ARGUMENT);
    assert_int_equal(tacit_session_cache_fill(s, past, 2, &err), TACIT_OK);
    assert_int_equal(tacit_session_cache_length(s), 2);
    step(s, 1, x + 2 * WIDTH, want + 2 * WIDTH);
    past[1].name = "x";
    assert_int_equal(tacit_session_cache_fill(s, past, 2, &err), TACIT_ERR_ARGUMENT);
    tacit_tensor unknown = rows("past_k", HEADS, 2, DEPTH, k);
    assert_int_equal(tacit_run(s, &unknown, 1, &out, 1, &err), TACIT_ERR_ARGUMENT);
    tacit_session_free(s);
    tacit_model_free(m);
}

/* `text` with every `from` in it replaced; in static memory, the latest two stay. */
static const char *edited(const char *text, const char *from, const char *to)
{
    static char room[2][8192];
    static int turn;
    char *out = room[turn ^= 1];
    size_t at = 0;
    for (const char *p = text; *p;) {
        bool hit = strncmp(p, from, strlen(from)) == 0;
        int n = hit ? snprintf(out + at, sizeof room[0] - at, "%s", to)
                    : snprintf(out + at, sizeof room[0] - at, "%c", *p);
        at += (size_t)n;
        p += hit ? strlen(from) : 1;
        assert_true(at < sizeof room[0]);
    }
    out[at] = 0;
    return out;
}

/* The model in half precision, with caches of its own type or in f32: the results of the f32 one,
 * since it is computed as that is. */
static void halves(bool all, tacit_dtype dtype, const char *name, const char *code)
{
    char cast[80], typed[32], between[160];
    snprintf(typed, sizeof typed, ": %s[", name);
    snprintf(cast, sizeof cast, "  %%xh = Cast(%%x) to=%s @n_xh\n  %%heads = Reshape(%%xh,", code);
    const char *text = edited(model_text, ": f32[", typed);
    snprintf(between, sizeof between, "in %%x : %s", name);
    text = edited(text, between, "in %x : f32");
    text = edited(text, "  %heads = Reshape(%x,", cast);
    text = edited(text, "  %y = Reshape(%back, %flat) @n_y\n",
                  "  %yh = Reshape(%back, %flat) @n_yh\n  %y = Cast(%yh) to=1 @n_y\n");
    if (!all) { /* casts around the caches */
        snprintf(between, sizeof between, "in %%past_k : %s", name);
        text = edited(text, between, "in %past_k : f32");
        snprintf(between, sizeof between, "in %%past_v : %s", name);
        text = edited(text, between, "in %past_v : f32");
        snprintf(between, sizeof between,
                 "  %%pk = Cast(%%past_k) to=%s @n_pk\n  %%kh = Concat(%%pk,", code);
        text = edited(text, "  %k = Concat(%past_k,", between);
        snprintf(between, sizeof between,
                 "  %%pv = Cast(%%past_v) to=%s @n_pv\n  %%vh = Concat(%%pv,", code);
        text = edited(text, "  %v = Concat(%past_v,", between);
        text = edited(text, "Transpose(%k)", "Transpose(%kh)");
        text = edited(text, "MatMul(%p, %v)", "MatMul(%p, %vh)");
        text = edited(text, "  out %y\n",
                      "  %k = Cast(%kh) to=1 @n_ck\n  %v = Cast(%vh) to=1 @n_cv\n  out %y\n");
    }
    tacit_model *m = load(text), *plain = load(model_text);
    tacit_error err = {TACIT_OK, ""};
    tacit_dim dims[] = {{"seq", 1}};
    tacit_compile_options o = {.dims = dims, .n_dims = 1, .cache_capacity = 4};
    tacit_session *s = open_session(m, &o);
    float x[4 * WIDTH], want[4 * WIDTH];
    uint16_t k[VALUES * 2];
    rng r = rng_seed(8);
    for (int i = 0; i < 4 * WIDTH; i++) /* halves hold them */
        x[i] = (float)((int)rng_below(&r, 33) - 16) / 16;
    by_hand(plain, 1, 4, x, want);
    for (int i = 0; i < 4; i++)
        step(s, 1, x + i * WIDTH, want + i * WIDTH);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < 2 * DEPTH; i++)
            k[h * 2 * DEPTH + i] =
                half_encode(dtype == TACIT_F16 ? HALF_F16 : HALF_BF16,
                            (double)x[i / DEPTH * WIDTH + h * DEPTH + i % DEPTH], false);
    tacit_tensor past[] = {rows("past_k", HEADS, 2, DEPTH, NULL),
                           rows("past_v", HEADS, 2, DEPTH, NULL)};
    for (int i = 0; i < 2; i++) {
        past[i].dtype = dtype;
        past[i].data = k;
        past[i].bytes = sizeof k;
    }
    if (tacit_session_cache_fill(s, past, 2, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    step(s, 1, x + 2 * WIDTH, want + 2 * WIDTH);
    past[0].bytes--;
    assert_int_equal(tacit_session_cache_fill(s, past, 2, &err), TACIT_ERR_SHAPE);
    past[0].bytes++;
    past[0].dtype = TACIT_I16;
    assert_int_equal(tacit_session_cache_fill(s, past, 2, &err), TACIT_ERR_SHAPE);
    tacit_session_free(s);
    tacit_model_free(m);
    tacit_model_free(plain);
}

static void half_precision(void **state)
{
    (void)state;
    halves(true, TACIT_F16, "f16", "10");
    halves(false, TACIT_F16, "f16", "10");
    halves(true, TACIT_BF16, "bf16", "16");
    halves(false, TACIT_BF16, "bf16", "16");
}

static void refused(const char *text, int64_t capacity, tacit_executor exec, tacit_status status,
                    const char *message)
{
    tacit_model *m = load(text);
    tacit_program *p = NULL;
    tacit_error err = {TACIT_OK, ""};
    tacit_dim dims[] = {{"seq", 1}};
    tacit_compile_options o = {
        .dims = dims, .n_dims = 1, .cache_capacity = capacity, .executor = exec};
    assert_int_equal(tacit_compile(m, &o, &p, &err), status);
    if (!strstr(err.message, message))
        fail_msg("'%s' does not say '%s'", err.message, message);
    tacit_model_free(m);
}

/* The model's text with one line in the place of another. */
static const char *changed(char *buffer, size_t size, const char *line, const char *replacement)
{
    const char *at = strstr(model_text, line);
    assert_non_null(at);
    snprintf(buffer, size, "%.*s%s%s", (int)(at - model_text), model_text, replacement,
             at + strlen(line));
    return buffer;
}

static void what_cannot_be_a_cache(void **state)
{
    (void)state;
    char text[4096];
    refused(model_text, 1, TACIT_EXEC_SERIAL, TACIT_ERR_ARGUMENT, "a cache of 1 positions");
    refused(model_text, 8, TACIT_EXEC_REFERENCE, TACIT_ERR_ARGUMENT, "reference executor");
    /* A result that depends on the length in another way than attention does. */
    refused(changed(text, sizeof text, "  out %y\n",
                    "  %count = Cast(%held) to=1 @c\n  %z = Mul(%y, %count) @z\n  out %z\n"),
            8, TACIT_EXEC_SERIAL, TACIT_ERR_UNSUPPORTED, "depends on its length");
    /* Keys that something else reads. */
    refused(
        changed(text, sizeof text, "  out %y\n", "  %r = ReduceSum(%k) @r\n  out %y\n  out %r\n"),
        8, TACIT_EXEC_SERIAL, TACIT_ERR_UNSUPPORTED, "cannot be a cache");
    refused(
        "tacit 1\ngraph \"main\" {\n  symbol \"seq\"\n  in %x : f32[seq,4]\n  %y = Relu(%x) @n\n"
        "  out %y\n}\n",
        8, TACIT_EXEC_SERIAL, TACIT_ERR_UNSUPPORTED, "has no cache");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_as_by_hand),
        cmocka_unit_test(full_rewound_and_filled),
        cmocka_unit_test(half_precision),
        cmocka_unit_test(what_cannot_be_a_cache),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
