/* SPDX-License-Identifier: Apache-2.0
 * Rows of a batch do not depend on their company: bit-identical for every batch size with
 * batch_invariant. And measured choices: kept, read, forced, and never wrong. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tacit/tacit.h"

static tacit_error err;

static float *randoms(rng *r, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)rng_below(r, 2001) / 1000.0f - 1.0f;
    return x;
}

static tacit_value weight(tacit_builder *b, rng *r, int32_t rank, const int64_t *dims)
{
    int64_t n = 1;
    for (int32_t i = 0; i < rank; i++)
        n *= dims[i];
    float *x = randoms(r, n);
    tacit_value v = tacit_builder_constant(b, NULL, TACIT_F32, rank, dims, x);
    free(x);
    return v;
}

static tacit_value op(tacit_builder *b, const char *name, tacit_value x, tacit_value y)
{
    return tacit_builder_node(b, name, y ? 2 : 1, (tacit_value[]){x, y}, 1, NULL);
}

static tacit_model *finish(tacit_builder *b, tacit_value y)
{
    tacit_model *m;
    tacit_builder_output(b, "y", y);
    assert_int_equal(tacit_builder_finish(b, &m, &err), TACIT_OK);
    tacit_builder_free(b);
    return m;
}

static tacit_model *layers(void)
{
    rng r = rng_seed(1);
    tacit_builder *b;
    assert_int_equal(tacit_builder_create("layers", NULL, &b, &err), TACIT_OK);
    const char *names[2] = {"batch", NULL};
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 2, (int64_t[]){-1, 600}, names);
    x = op(b, "MatMul", x, weight(b, &r, 2, (int64_t[]){600, 70}));
    x = op(b, "Relu", op(b, "Add", x, weight(b, &r, 1, (int64_t[]){70})), 0);
    x = op(b, "Softmax", op(b, "MatMul", x, weight(b, &r, 2, (int64_t[]){70, 33})), 0);
    return finish(b, x);
}

/* Wide enough for paired terms where the processor gains by them. */
static tacit_model *wide(void)
{
    rng r = rng_seed(5);
    tacit_builder *b;
    assert_int_equal(tacit_builder_create("wide", NULL, &b, &err), TACIT_OK);
    const char *names[2] = {"batch", NULL};
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 2, (int64_t[]){-1, 300}, names);
    x = op(b, "MatMul", x, weight(b, &r, 2, (int64_t[]){300, 400}));
    x = op(b, "Relu", op(b, "Add", x, weight(b, &r, 1, (int64_t[]){400})), 0);
    x = op(b, "MatMul", x, weight(b, &r, 2, (int64_t[]){400, 230}));
    return finish(b, x);
}

static tacit_model *images(void)
{
    rng r = rng_seed(2);
    tacit_builder *b;
    assert_int_equal(tacit_builder_create("images", NULL, &b, &err), TACIT_OK);
    const char *names[4] = {"batch", NULL, NULL, NULL};
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 4, (int64_t[]){-1, 3, 20, 20}, names);
    x = op(b, "Relu", op(b, "Conv", x, weight(b, &r, 4, (int64_t[]){32, 3, 3, 3})), 0);
    x = op(b, "Relu", op(b, "Conv", x, weight(b, &r, 4, (int64_t[]){32, 32, 3, 3})), 0);
    x = op(b, "Conv", x, weight(b, &r, 4, (int64_t[]){5, 32, 3, 3}));
    return finish(b, op(b, "GlobalAveragePool", x, 0));
}

/* Runs the first `batch` of the inputs; the caller frees the result. */
static float *run(const tacit_model *m, const tacit_compile_options *options, int64_t batch,
                  const float *x, int64_t *row)
{
    tacit_dim dim = {"batch", batch};
    tacit_compile_options o = *options;
    o.dims = &dim;
    o.n_dims = 1;
    tacit_program *p;
    tacit_session *s;
    assert_int_equal(tacit_compile(m, &o, &p, &err), TACIT_OK);
    assert_int_equal(tacit_session_create(p, &s, &err), TACIT_OK);
    tacit_port in, out;
    assert_int_equal(tacit_program_input(p, 0, &in), TACIT_OK);
    assert_int_equal(tacit_program_output(p, 0, &out), TACIT_OK);
    tacit_tensor tx = {.dtype = TACIT_F32, .rank = in.rank}, ty = {.dtype = TACIT_F32};
    ty.rank = out.rank;
    int64_t nx = 1, ny = 1;
    for (int32_t i = 0; i < in.rank; i++)
        nx *= tx.dims[i] = in.dims[i];
    for (int32_t i = 0; i < out.rank; i++)
        ny *= ty.dims[i] = out.dims[i];
    float *y = calloc((size_t)ny, sizeof *y);
    assert_non_null(y);
    tx.data = (void *)x;
    tx.bytes = (size_t)nx * sizeof *x;
    ty.data = y;
    ty.bytes = (size_t)ny * sizeof *y;
    assert_int_equal(tacit_run(s, &tx, 1, &ty, 1, &err), TACIT_OK);
    *row = ny / batch;
    tacit_session_free(s);
    tacit_program_free(p);
    return y;
}

static void check_invariant(tacit_model *m, int64_t width)
{
    static const int64_t batches[] = {1, 2, 3, 4, 5, 7, 14, 15, 32};
    rng r = rng_seed(3);
    float *x = randoms(&r, 32 * width);
    tacit_compile_options o = {.batch_invariant = 1};
    int64_t row;
    float *whole = run(m, &o, 32, x, &row);
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        float *y = run(m, &o, batches[i], x, &row);
        assert_memory_equal(y, whole, (size_t)(batches[i] * row) * sizeof *y);
        free(y);
    }
    free(whole);
    free(x);
    tacit_model_free(m);
}

static void rows_are_their_own(void **state)
{
    (void)state;
    check_invariant(layers(), 600);
}

static void wide_rows_are_their_own(void **state)
{
    (void)state;
    check_invariant(wide(), 300);
}

static void images_are_their_own(void **state)
{
    (void)state;
    check_invariant(images(), 3 * 20 * 20);
}

/* Every way gives the same answer within rounding. */
static void ways_agree(void **state)
{
    (void)state;
    char path[] = "/tmp/tacit-tuning-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    tacit_tuning *t;
    assert_int_equal(tacit_tuning_open(path, &t, &err), TACIT_OK);
    tacit_model *models[] = {layers(), images(), wide()};
    const int64_t widths[] = {600, 1200, 300};
    rng r = rng_seed(4);
    for (int k = 0; k < 3; k++) {
        float *x = randoms(&r, 20 * widths[k]);
        tacit_compile_options o = {.tuning = t};
        int64_t row;
        float *want = run(models[k], &o, 20, x, &row);
        for (int way = 0; way < 5; way++) {
            tacit_tuning_force(t, way);
            float *y = run(models[k], &o, 20, x, &row);
            assert_true(tacit_tuning_count(t) > 0);
            for (int64_t i = 0; i < 20 * row; i++)
                assert_true(fabsf(y[i] - want[i]) <= 2e-4f * (1 + fabsf(want[i])));
            free(y);
        }
        tacit_tuning_force(t, -1);
        free(want);
        free(x);
        tacit_model_free(models[k]);
    }
    assert_int_equal(tacit_tuning_set(t, "gemm 20 70 600", 2, &err), TACIT_OK);
    assert_int_equal(tacit_tuning_set(t, "gemm 20 70 600", 1, &err), TACIT_OK);
    assert_int_equal(tacit_tuning_save(t, &err), TACIT_OK);
    tacit_tuning_free(t);
    assert_int_equal(tacit_tuning_open(path, &t, &err), TACIT_OK);
    assert_int_equal(tacit_tuning_get(t, "gemm 20 70 600"), 1);
    assert_int_equal(tacit_tuning_get(t, "gemm 1 1 1"), 0);
    tacit_tuning_free(t);
    unlink(path);
}

/* The ways of a product that sum term by term give the bits of plain_sums; paired terms give their
 * own, and no others with more threads. */
static void plain_sums_are_plain(void **state)
{
    (void)state;
    enum { DEEP = 2, SHORT = 3, PAIRED = 4, BATCH = 40 };
    tacit_tuning *t;
    assert_int_equal(tacit_tuning_open("/nonexistent/tuning", &t, &err), TACIT_OK);
    tacit_model *m = wide();
    rng r = rng_seed(6);
    float *x = randoms(&r, BATCH * 300);
    int64_t row;
    tacit_compile_options plain = {.tuning = t, .plain_sums = 1}, o = {.tuning = t};
    float *want = run(m, &plain, BATCH, x, &row), *paired = NULL;
    size_t bytes = (size_t)(BATCH * row) * sizeof *want;
    for (int way = DEEP; way <= PAIRED; way++) {
        tacit_tuning_force(t, way);
        float *y = run(m, &o, BATCH, x, &row);
        assert_int_equal(memcmp(y, want, bytes) == 0, way != PAIRED);
        float *z = run(m, &plain, BATCH, x, &row);
        assert_memory_equal(z, want, bytes);
        free(z);
        paired = y;
        if (way != PAIRED)
            free(y);
    }
    o.executor = TACIT_EXEC_TASKS;
    for (o.threads = 1; o.threads <= 3; o.threads++) {
        float *y = run(m, &o, BATCH, x, &row);
        assert_memory_equal(y, paired, bytes);
        free(y);
    }
    free(want);
    free(paired);
    free(x);
    tacit_model_free(m);
    tacit_tuning_free(t);
}

/* Attention of everything to everything. */
static tacit_model *attending(void)
{
    tacit_builder *b;
    assert_int_equal(tacit_builder_create("attending", NULL, &b, &err), TACIT_OK);
    const char *names[4] = {"batch", NULL, NULL, NULL};
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 4, (int64_t[]){-1, 2, 40, 48}, names);
    return finish(b, tacit_builder_node(b, "Attention", 3, (tacit_value[]){x, x, x}, 1, NULL));
}

/* Attention pairs terms only where that is allowed, and then gives the same bits with any number of
 * threads. */
static void attention_is_plain_where_asked(void **state)
{
    (void)state;
    enum { PLAIN = 1, PAIRED = 2, BATCH = 5, ROW = 2 * 40 * 48 };
    tacit_tuning *t;
    assert_int_equal(tacit_tuning_open("/nonexistent/tuning", &t, &err), TACIT_OK);
    tacit_model *m = attending();
    rng r = rng_seed(11);
    float *x = randoms(&r, BATCH * ROW);
    int64_t row;
    tacit_compile_options plain = {.tuning = t, .plain_sums = 1}, o = {.tuning = t};
    tacit_compile_options alone = {.tuning = t, .batch_invariant = 1};
    size_t bytes = BATCH * ROW * sizeof *x;
    tacit_tuning_force(t, PLAIN);
    float *want = run(m, &o, BATCH, x, &row);
    assert_int_equal(row, ROW);
    tacit_tuning_force(t, PAIRED);
    float *paired = run(m, &o, BATCH, x, &row);
    assert_memory_not_equal(paired, want, bytes);
    for (int64_t i = 0; i < BATCH * ROW; i++)
        assert_true(fabsf(paired[i] - want[i]) <= 1e-6f);
    float *y = run(m, &plain, BATCH, x, &row), *z = run(m, &alone, BATCH, x, &row);
    assert_memory_equal(y, want, bytes);
    assert_memory_equal(z, want, bytes);
    free(y);
    free(z);
    o.executor = TACIT_EXEC_TASKS;
    for (o.threads = 1; o.threads <= 3; o.threads++) {
        y = run(m, &o, BATCH, x, &row);
        assert_memory_equal(y, paired, bytes);
        free(y);
    }
    free(want);
    free(paired);
    free(x);
    tacit_model_free(m);
    tacit_tuning_free(t);
}

/* x · w where any way may be taken, the one of paired terms first. */
static float *product(const float *w, const float *x, int64_t batch, int64_t in, int64_t out,
                      int64_t *row)
{
    enum { PAIRED = 4 };
    tacit_tuning *t;
    tacit_builder *b;
    assert_int_equal(tacit_tuning_open("/nonexistent/tuning", &t, &err), TACIT_OK);
    tacit_tuning_force(t, PAIRED);
    assert_int_equal(tacit_builder_create("product", NULL, &b, &err), TACIT_OK);
    const char *names[2] = {"batch", NULL};
    tacit_value left = tacit_builder_input(b, "x", TACIT_F32, 2, (int64_t[]){-1, in}, names);
    tacit_value right = tacit_builder_constant(b, NULL, TACIT_F32, 2, (int64_t[]){in, out}, w);
    tacit_model *m = finish(b, op(b, "MatMul", left, right));
    float *y = run(m, &(tacit_compile_options){.tuning = t}, batch, x, row);
    tacit_model_free(m);
    tacit_tuning_free(t);
    return y;
}

/* Equal columns of a weight give equal bits, wherever they lie: ties of logits stay ties. */
static void equal_columns_stay_equal(void **state)
{
    (void)state;
    enum { BATCH = 20, IN = 256, OUT = 192 };
    static const int64_t twins[] = {3, 20, 40, 100, 190};
    rng r = rng_seed(9);
    float *w = randoms(&r, IN * OUT), *x = randoms(&r, BATCH * IN);
    for (int64_t k = 0; k < IN; k++)
        for (size_t i = 1; i < sizeof twins / sizeof *twins; i++)
            w[k * OUT + twins[i]] = w[k * OUT + twins[0]];
    int64_t row;
    float *y = product(w, x, BATCH, IN, OUT, &row);
    for (int64_t i = 0; i < BATCH; i++)
        for (size_t k = 1; k < sizeof twins / sizeof *twins; k++)
            assert_memory_equal(&y[i * row + twins[k]], &y[i * row + twins[0]], sizeof *y);
    free(y);
    free(w);
    free(x);
}

/* An identity and a permutation: elements come out as they went in. */
static void what_is_picked_stays_as_it_is(void **state)
{
    (void)state;
    enum { BATCH = 20, N = 160 };
    rng r = rng_seed(10);
    float *x = randoms(&r, BATCH * N);
    for (int64_t step = 1; step < 8; step += 6) { /* 7 has no factor in common with N */
        float *w = calloc((size_t)N * N, sizeof *w);
        assert_non_null(w);
        for (int64_t j = 0; j < N; j++)
            w[j * step % N * N + j] = 1;
        int64_t row;
        float *y = product(w, x, BATCH, N, N, &row);
        for (int64_t i = 0; i < BATCH; i++)
            for (int64_t j = 0; j < N; j++)
                assert_memory_equal(&y[i * row + j], &x[i * N + j * step % N], sizeof *y);
        free(y);
        free(w);
    }
    free(x);
}

enum { SQUARE = 1000 };

/* `count` products by SQUARE × SQUARE; then, if given, by `narrow` and by `wide`. */
static tacit_model *chain(int64_t count, const float *const *squares, int64_t k,
                          const float *narrow, int64_t n, const float *wide)
{
    tacit_builder *b;
    assert_int_equal(tacit_builder_create("chain", NULL, &b, &err), TACIT_OK);
    const char *names[2] = {"batch", NULL};
    int64_t in = narrow ? SQUARE : k;
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 2, (int64_t[]){-1, in}, names);
    for (int64_t i = 0; i < count; i++)
        x = op(
            b, "MatMul", x,
            tacit_builder_constant(b, NULL, TACIT_F32, 2, (int64_t[]){SQUARE, SQUARE}, squares[i]));
    if (narrow)
        x = op(b, "MatMul", x,
               tacit_builder_constant(b, NULL, TACIT_F32, 2, (int64_t[]){SQUARE, k}, narrow));
    if (wide)
        x = op(b, "MatMul", x,
               tacit_builder_constant(b, NULL, TACIT_F32, 2, (int64_t[]){k, n}, wide));
    return finish(b, x);
}

/* Large weights are packed early and by columns where there is much else, alone piece by piece of
 * their rows: the same bits, beside the first run or before it. */
static void large_weights_are_packed_alike(void **state)
{
    (void)state;
    enum { BATCH = 40, MOST = 8, PAIRED = 4 };
    static const int64_t depth[] = {128, 2100}, width[] = {9000, 1100}, count[] = {4, MOST};
    tacit_tuning *t;
    assert_int_equal(tacit_tuning_open("/nonexistent/tuning", &t, &err), TACIT_OK);
    tacit_tuning_force(t, PAIRED);
    rng r = rng_seed(11);
    float *squares[MOST], *x = randoms(&r, (int64_t)BATCH * SQUARE);
    for (int i = 0; i < MOST; i++)
        squares[i] = randoms(&r, (int64_t)SQUARE * SQUARE);
    for (int i = 0; i < 2; i++) {
        int64_t k = depth[i], n = width[i], row;
        float *narrow = randoms(&r, SQUARE * k), *wide = randoms(&r, k * n);
        for (int64_t j = 0; j < k; j++) /* columns alike */
            wide[j * n + 700] = wide[j * n + n - 3] = wide[j * n + 5];
        const float *const *all = (const float *const *)squares;
        tacit_model *first = chain(count[i], all, k, narrow, n, NULL);
        tacit_model *second = chain(0, NULL, k, NULL, n, wide);
        tacit_model *whole = chain(count[i], all, k, narrow, n, wide);
        tacit_compile_options o = {.tuning = t};
        float *h = run(first, &o, BATCH, x, &row), *want = run(second, &o, BATCH, h, &row);
        for (int way = 0; way < 3; way++) {
            o.start_early = way > 0;
            o.executor = way == 2 ? TACIT_EXEC_TASKS : TACIT_EXEC_SERIAL;
            float *y = run(whole, &o, BATCH, x, &row);
            assert_int_equal(row, n);
            assert_memory_equal(y, want, (size_t)(BATCH * row) * sizeof *y);
            for (int64_t j = 0; j < BATCH; j++)
                assert_true(y[j * n + 5] == y[j * n + 700] && y[j * n + 5] == y[j * n + n - 3]);
            free(y);
        }
        tacit_model_free(first);
        tacit_model_free(second);
        tacit_model_free(whole);
        free(want);
        free(h);
        free(narrow);
        free(wide);
    }
    for (int i = 0; i < MOST; i++)
        free(squares[i]);
    free(x);
    tacit_tuning_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_their_own),
        cmocka_unit_test(wide_rows_are_their_own),
        cmocka_unit_test(images_are_their_own),
        cmocka_unit_test(ways_agree),
        cmocka_unit_test(plain_sums_are_plain),
        cmocka_unit_test(equal_columns_stay_equal),
        cmocka_unit_test(what_is_picked_stays_as_it_is),
        cmocka_unit_test(large_weights_are_packed_alike),
        cmocka_unit_test(attention_is_plain_where_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
