/* SPDX-License-Identifier: Apache-2.0
 * Acceptance cases of the families beyond ONNX: solves, scans, spectra, compressed weights, int8.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "support/one_node.h"
#include "support/splitmix.h"

static void S_is_the_documented_generator(void **state)
{
    (void)state;
    splitmix a = {31}, b = {31};
    assert_true(splitmix_unit(&a) == 0.8412107229232788f);
    assert_true(splitmix_sym(&b) == 1.1819885969161987f);
    assert_true(splitmix_sym(&b) == 0.8231503367424011f);
}

/* --- state-space --------------------------------------------------------------------------------
 */

static void T05_selective_scan(void **state)
{
    (void)state;
    enum { S = 4, H = 3, N = 2 };
    splitmix s = {13};
    double x[S * H], delta[S * H], a[H * N], b[S * N], c[S * N], y[S * H] = {0}, h[H * N] = {0};
    splitmix_fill(&s, x, S * H);
    for (int i = 0; i < S * H; i++)
        delta[i] = (splitmix_unit(&s) - 0.5f) * 0.1f;
    for (int i = 0; i < H * N; i++)
        a[i] = -(0.5f * splitmix_unit(&s) + 0.1f);
    splitmix_fill(&s, b, S * N);
    splitmix_fill(&s, c, S * N);
    for (int t = 0; t < S; t++)
        for (int k = 0; k < H; k++)
            for (int i = 0; i < N; i++) {
                double d = delta[t * H + k];
                h[k * N + i] =
                    exp(d * a[k * N + i]) * h[k * N + i] + d * b[t * N + i] * x[t * H + k];
                y[t * H + k] += c[t * N + i] * h[k * N + i];
            }
    one_node t;
    one_node_begin(&t, "tacit", "SelectiveScan");
    one_node_in(&t, TACIT_F32, DIMS(1, S, H), x);
    one_node_in(&t, TACIT_F32, DIMS(1, S, H), delta);
    one_node_in(&t, TACIT_F32, DIMS(H, N), a);
    one_node_in(&t, TACIT_F32, DIMS(1, S, N), b);
    one_node_in(&t, TACIT_F32, DIMS(1, S, N), c);
    assert_int_equal(one_node_run(&t, 2), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, S, H), y, 1e-6);
    one_node_expect(&t, 1, DIMS(1, H, N), h, 1e-6);
    one_node_end(&t);
    one_node_begin(&t, "tacit", "SelectiveScan");
    one_node_in(&t, TACIT_F32, DIMS(1, 2, 1), V(1, 2));
    one_node_in(&t, TACIT_F32, DIMS(1, 2, 1), V(.5, .25));
    one_node_in(&t, TACIT_F32, DIMS(1, 1), V(-1));
    one_node_in(&t, TACIT_F32, DIMS(1, 2, 1), V(2, 1));
    one_node_in(&t, TACIT_F32, DIMS(1, 2, 1), V(1, 3));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 2, 1), V(1, 3.8364023), 1e-6);
    one_node_end(&t);
}

static const double dq[] = {1, 2, .5, -1, 1, 1}, dk[] = {1, 0, .6, .8, 0, 1};
static const double dv[] = {3, 4, 1, -1, 2, .5}, dg[] = {-.1, -.2, 0}, db[] = {1, .5, .25};
static const double delta_y[] = {2.121320344, 2.828427125, 0.952136936,
                                 1.681994871, 1.889363189, 1.146185252};
static const double delta_s[] = {2.314077653, 2.38543687, 0.357885393, -0.764486142};

/* Steps [from, to) of the golden sequence. */
static void delta_part(one_node *t, int64_t from, int64_t to, const double *start)
{
    int64_t n = to - from;
    one_node_begin(t, "tacit", "GatedDeltaNet");
    one_node_in(t, TACIT_F64, DIMS(1, n, 1, 2), dq + 2 * from);
    one_node_in(t, TACIT_F64, DIMS(1, n, 1, 2), dk + 2 * from);
    one_node_in(t, TACIT_F64, DIMS(1, n, 1, 2), dv + 2 * from);
    one_node_in(t, TACIT_F64, DIMS(1, n, 1), dg + from);
    one_node_in(t, TACIT_F64, DIMS(1, n, 1), db + from);
    if (start)
        one_node_in(t, TACIT_F64, DIMS(1, 1, 2, 2), start);
    assert_int_equal(one_node_run(t, 2), TACIT_OK);
}

static void gated_delta_net_golden_and_split(void **state)
{
    (void)state;
    one_node t;
    delta_part(&t, 0, 3, NULL);
    one_node_expect(&t, 0, DIMS(1, 3, 1, 2), delta_y, 1e-8);
    one_node_expect(&t, 1, DIMS(1, 1, 2, 2), delta_s, 1e-8);
    one_node_end(&t);
    double middle[4];
    delta_part(&t, 0, 2, NULL);
    for (int i = 0; i < 4; i++)
        middle[i] = one_node_at(&t, 1, i);
    one_node_end(&t);
    delta_part(&t, 2, 3, middle);
    one_node_expect(&t, 0, DIMS(1, 1, 1, 2), delta_y + 4, 1e-8);
    one_node_expect(&t, 1, DIMS(1, 1, 2, 2), delta_s, 1e-8);
    one_node_end(&t);
}

/* --- dense solves --------------------------------------------------------------------------------
 */

static void T20_solve_two_by_two(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "tacit", "Solve");
    one_node_in(&t, TACIT_F64, DIMS(2, 2), V(2, 1, 1, 3));
    one_node_in(&t, TACIT_F64, DIMS(2), V(5, 10));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2), V(1, 3), 1e-12);
    one_node_end(&t);
}

static void T21_solve_laplacian(void **state)
{
    (void)state;
    double a[25] = {0};
    for (int i = 0; i < 5; i++) {
        a[i * 6] = 2;
        if (i)
            a[i * 5 + i - 1] = a[(i - 1) * 5 + i] = -1;
    }
    for (int f = 0; f < 2; f++) {
        one_node t;
        one_node_begin(&t, "tacit", "Solve");
        one_node_in(&t, f ? TACIT_F32 : TACIT_F64, DIMS(5, 5), a);
        one_node_in(&t, f ? TACIT_F32 : TACIT_F64, DIMS(5), V(1, 2, 3, 4, 5));
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(5), V(35. / 6, 32. / 3, 13.5, 40. / 3, 55. / 6),
                        f ? 1e-6 : 1e-12);
        one_node_end(&t);
    }
}

static void T23_solve_many_right_sides(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "tacit", "Solve");
    one_node_in(&t, TACIT_F64, DIMS(3, 3), V(2, 1, 0, 1, 3, 1, 0, 1, 2));
    one_node_in(&t, TACIT_F64, DIMS(3, 2), V(1, 4, 2, -1, 3, 2));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(3, 2), V(.5, 3, 0, -2, 1.5, 2), 1e-12);
    one_node_end(&t);
}

/* Both the small and the large path (a library where present), batched, against A·x = b. */
static void solves_are_batched_at_any_size(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 7, 33, 60};
    rng r = rng_seed(5);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int n = sizes[k];
        static double a[2 * 60 * 60], b[2 * 60];
        for (int i = 0; i < 2 * n * n; i++)
            a[i] = rng_range(&r, -1, 1);
        for (int i = 0; i < 2 * n; i++)
            b[i] = rng_range(&r, -1, 1);
        one_node t;
        one_node_begin(&t, "tacit", "Solve");
        one_node_in(&t, TACIT_F64, DIMS(2, n, n), a);
        one_node_in(&t, TACIT_F64, DIMS(2, n), b);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        for (int i = 0; i < 2 * n; i++) {
            double sum = 0;
            for (int j = 0; j < n; j++)
                sum += a[i * n + j] * one_node_at(&t, 0, i / n * n + j);
            assert_true(fabs(sum - b[i]) < 1e-9);
        }
        one_node_end(&t);
    }
}

static void H13_singular_matrices_are_named(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "tacit", "Solve");
    one_node_in(&t, TACIT_F64, DIMS(2, 2, 2), V(1, 0, 0, 1, 1, 2, 2, 4));
    one_node_in(&t, TACIT_F64, DIMS(2, 2), V(1, 1, 1, 1));
    one_node_expect_error(&t, 1, TACIT_ERR_VALUE, "matrix 1 of size 2 is singular");
    one_node_end(&t);
    double big[40 * 40] = {0};
    for (int i = 0; i < 39; i++)
        big[i * 41] = 1;
    one_node_begin(&t, "tacit", "Solve");
    one_node_in(&t, TACIT_F64, DIMS(40, 40), big);
    one_node_in(&t, TACIT_F64, DIMS(40), big);
    one_node_expect_error(&t, 1, TACIT_ERR_VALUE, "matrix 0 of size 40 is singular");
    one_node_end(&t);
    one_node_begin(&t, "tacit", "Solve");
    one_node_in(&t, TACIT_F64, DIMS(2, 3), V(1, 0, 0, 1, 1, 2));
    one_node_in(&t, TACIT_F64, DIMS(2), V(1, 1));
    one_node_expect_error(&t, 1, TACIT_ERR_SHAPE, "do not fit");
    one_node_end(&t);
}

/* --- spectra
 * -------------------------------------------------------------------------------------- */

/* Runs Fft over n complex numbers in one of three layouts. */
static void fft(one_node *t, tacit_dtype dtype, int64_t n, const double *pairs, bool inverse,
                const char *norm)
{
    static double values[4096];
    one_node_begin(t, "tacit", "Fft");
    if (dtype == TACIT_C64) {
        int64_t dims[] = {n};
        ir_shape s = ir_shape_of(1, dims);
        ir_tensor *x = ir_tensor_new(&t->memory, dtype, &s);
        for (int64_t i = 0; i < n; i++)
            ir_store_complex(dtype, x->data, i, pairs + 2 * i);
        t->in[t->n_in++] = x;
    } else {
        for (int64_t i = 0; i < n; i++) {
            values[i] = pairs[2 * i];
            values[n + i] = pairs[2 * i + 1];
        }
        one_node_in(t, dtype, DIMS(2 * n), values);
    }
    one_node_int(t, "inverse", inverse);
    one_node_string(t, "norm", norm);
    assert_int_equal(one_node_run(t, 1), TACIT_OK);
}

static void fft_value(const one_node *t, int64_t n, int64_t k, double out[2])
{
    const ir_tensor *y = &t->out[0];
    if (y->dtype == TACIT_C64) {
        ir_load_complex(y->dtype, y->data, k, out);
    } else {
        out[0] = one_node_at(t, 0, k);
        out[1] = one_node_at(t, 0, n + k);
    }
}

static void H6_fft_of_every_length_and_layout(void **state)
{
    (void)state;
    static const tacit_dtype dtypes[] = {TACIT_F64, TACIT_F32, TACIT_C64};
    static double x[2000], back[2000];
    rng r = rng_seed(6);
    for (int64_t at = 1; at <= 67; at++) {
        int64_t n = at <= 64 ? at : at == 65 ? 100 : at == 66 ? 127 : 1000;
        for (int64_t i = 0; i < 2 * n; i++)
            x[i] = (float)rng_range(&r, -1, 1);
        for (int d = 0; d < 3; d++) {
            double tolerance = d == 0 ? 1e-10 * (double)n : 1e-4, y[2];
            one_node t;
            fft(&t, dtypes[d], n, x, false, "none");
            for (int64_t k = 0; k < n; k++) {
                double re = 0, im = 0;
                for (int64_t j = 0; j < n; j++) {
                    double angle = -2 * M_PI * (double)(j * k % n) / (double)n;
                    re += x[2 * j] * cos(angle) - x[2 * j + 1] * sin(angle);
                    im += x[2 * j] * sin(angle) + x[2 * j + 1] * cos(angle);
                }
                fft_value(&t, n, k, y);
                assert_true(fabs(y[0] - re) <= tolerance && fabs(y[1] - im) <= tolerance);
                back[2 * k] = y[0];
                back[2 * k + 1] = y[1];
            }
            one_node_end(&t);
            fft(&t, dtypes[d], n, back, true, "none"); /* unscaled both ways: n·x */
            for (int64_t k = 0; k < n; k++) {
                fft_value(&t, n, k, y);
                assert_true(fabs(y[0] / (double)n - x[2 * k]) <= tolerance);
                assert_true(fabs(y[1] / (double)n - x[2 * k + 1]) <= tolerance);
            }
            one_node_end(&t);
        }
    }
}

static void H6_fft_of_ramps(void **state)
{
    (void)state;
    static const struct {
        int64_t n, first, k;
        double re, im;
    } want[] = {{8, 1, 0, 36, 0},           {8, 1, 1, -4, 9.656854}, {8, 1, 2, -4, 4},
                {8, 1, 3, -4, 1.656854},    {8, 1, 4, -4, 0},        {8, 1, 7, -4, -9.656854},
                {6, 1, 0, 21, 0},           {6, 1, 1, -3, 5.196152}, {6, 1, 2, -3, 1.732051},
                {6, 1, 3, -3, 0},           {17, 0, 0, 136, 0},      {17, 0, 1, -8.5, 45.470984},
                {17, 0, 2, -8.5, 21.941029}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        double x[34] = {0}, y[2];
        for (int64_t k = 0; k < want[i].n; k++)
            x[2 * k] = (double)(k + want[i].first);
        one_node t;
        fft(&t, TACIT_F64, want[i].n, x, false, "backward");
        fft_value(&t, want[i].n, want[i].k, y);
        assert_true(fabs(y[0] - want[i].re) < 1e-6 && fabs(y[1] - want[i].im) < 1e-6);
        one_node_end(&t);
    }
}

static void fft_normalisation_is_declared(void **state)
{
    (void)state;
    static const struct {
        const char *norm;
        double forward, inverse;
    } want[] = {{"none", 1, 1}, {"backward", 1, .25}, {"forward", .25, 1}, {"ortho", .5, .5}};
    for (size_t i = 0; i < 4; i++)
        for (int inverse = 0; inverse < 2; inverse++) {
            double x[8] = {1, 0}, y[2]; /* an impulse: every bin is the scale */
            one_node t;
            fft(&t, TACIT_F64, 4, x, inverse, want[i].norm);
            fft_value(&t, 4, 3, y);
            assert_true(fabs(y[0] - (inverse ? want[i].inverse : want[i].forward)) < 1e-15);
            one_node_end(&t);
        }
}

/* Stages over bit-reversed input make the whole transform. */
static void butterfly_stages_make_a_transform(void **state)
{
    (void)state;
    enum { N = 8 };
    double x[2 * N], now[2 * N];
    rng r = rng_seed(8);
    for (int i = 0; i < 2 * N; i++)
        x[i] = rng_range(&r, -1, 1);
    for (int i = 0; i < N; i++) {
        int j = (i & 1) << 2 | (i & 2) | i >> 2;
        now[2 * j] = x[2 * i];
        now[2 * j + 1] = x[2 * i + 1];
    }
    for (int stage = 0; stage < 3; stage++) {
        double ones[N / 2], zeros[N / 2] = {0}, re[N / 2], im[N / 2];
        for (int b = 0; b < N / 2; b++) {
            int stride = 1 << stage;
            double angle = -2 * M_PI * (b % stride) / (2 * stride);
            ones[b] = 1;
            re[b] = cos(angle);
            im[b] = sin(angle);
        }
        one_node t;
        one_node_begin(&t, "tacit", "FftButterflyStage");
        one_node_in(&t, TACIT_F64, DIMS(1, N, 2), now);
        one_node_in(&t, TACIT_F64, DIMS(N / 2), ones);
        one_node_in(&t, TACIT_F64, DIMS(N / 2), zeros);
        one_node_in(&t, TACIT_F64, DIMS(N / 2), re);
        one_node_in(&t, TACIT_F64, DIMS(N / 2), im);
        one_node_int(&t, "stage", stage);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        for (int i = 0; i < 2 * N; i++)
            now[i] = one_node_at(&t, 0, i);
        one_node_end(&t);
    }
    one_node t;
    double y[2];
    fft(&t, TACIT_F64, N, x, false, "none");
    for (int k = 0; k < N; k++) {
        fft_value(&t, N, k, y);
        assert_true(fabs(now[2 * k] - y[0]) < 1e-13 && fabs(now[2 * k + 1] - y[1]) < 1e-13);
    }
    one_node_end(&t);
    one_node_begin(&t, "tacit", "FftButterflyStage"); /* gate 0 passes, reverse swaps */
    one_node_in(&t, TACIT_F64, DIMS(1, 4, 2), V(1, 0, 2, 0, 3, 0, 5, 0));
    one_node_in(&t, TACIT_F64, DIMS(2), V(0, 1));
    one_node_in(&t, TACIT_F64, DIMS(2), V(0, 1));
    one_node_in(&t, TACIT_F64, DIMS(2), V(1, 1));
    one_node_in(&t, TACIT_F64, DIMS(2), V(0, 0));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 4, 2), V(1, 0, 2, 0, -2, 0, 8, 0), 0);
    one_node_end(&t);
}

static void log_mel_has_a_floor(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "tacit", "LogMel");
    one_node_in(&t, TACIT_F64, DIMS(2, 4), V(3, 1, 4, 0, 0, 0, 0, 0)); /* |.|² = 25, 1 */
    one_node_in(&t, TACIT_F64, DIMS(2, 2), V(4, 0, 0, 1));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2, 2), V(2, 0, -10, -10), 1e-12);
    one_node_end(&t);
}

/* --- compressed and adapted weights
 * ---------------------------------------------------------------- */

static void T06_int8_blocks(void **state)
{
    (void)state;
    enum { M = 3, K = 8, N = 4 };
    splitmix s = {99};
    double x[M * K], w[K * N], scale[2 * N], y[M * N] = {0};
    splitmix_fill(&s, x, M * K);
    for (int i = 0; i < K * N; i++)
        w[i] = (13 * i + 7) % 127 - 63;
    for (int i = 0; i < 2 * N; i++)
        scale[i] = (float)(0.01 + 0.001 * i);
    for (int i = 0; i < M; i++)
        for (int p = 0; p < K; p++)
            for (int j = 0; j < N; j++)
                y[i * N + j] += x[i * K + p] * w[p * N + j] * scale[p / 4 * N + j];
    for (int round = 0; round < 2; round++) {
        one_node t;
        one_node_begin(&t, "tacit", "DequantMatMul");
        one_node_in(&t, TACIT_F32, DIMS(round ? 1 : M, K), round ? V(1, 1, 1, 1, 1, 1, 1, 1) : x);
        one_node_in(&t, TACIT_I8, DIMS(K, N), w);
        one_node_in(&t, TACIT_F32, DIMS(2, N), scale);
        one_node_in(&t, TACIT_F32, DIMS(2, N), V(0, 0, 0, 0, 0, 0, 0, 0));
        one_node_string(&t, "scheme", "int8");
        one_node_int(&t, "block", 4);
        one_node_int(&t, "n", N);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        if (round)
            one_node_expect(&t, 0, DIMS(1, N), V(0.044, -0.517, -0.616, -1.269), 1e-6);
        else
            one_node_expect(&t, 0, DIMS(M, N), y, 1e-6);
        one_node_end(&t);
    }
}

static void T07_lora(void **state)
{
    (void)state;
    enum { M = 4, K = 8, N = 6, R = 2 };
    splitmix s = {42};
    double x[M * K], w[K * N], a[K * R], b[R * N], y[M * N] = {0};
    splitmix_fill(&s, x, M * K);
    splitmix_fill(&s, w, K * N);
    splitmix_fill(&s, a, K * R);
    splitmix_fill(&s, b, R * N);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++)
            for (int p = 0; p < K; p++) {
                y[i * N + j] += x[i * K + p] * w[p * N + j];
                for (int q = 0; q < R; q++)
                    y[i * N + j] += 0.5 * x[i * K + p] * a[p * R + q] * b[q * N + j];
            }
    one_node t;
    one_node_begin(&t, "tacit", "LoraMatMul");
    one_node_in(&t, TACIT_F32, DIMS(M, K), x);
    one_node_in(&t, TACIT_F32, DIMS(K, N), w);
    one_node_in(&t, TACIT_F32, DIMS(K, R), a);
    one_node_in(&t, TACIT_F32, DIMS(R, N), b);
    one_node_float(&t, "scale", 0.5);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(M, N), y, 1e-5);
    one_node_end(&t);
}

/* Nibbles of int4 are centred on 8 where no zero point is given; an odd width straddles bytes. */
static void D12_E13_int4_is_centred(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "tacit", "DequantMatMul");
    one_node_in(&t, TACIT_F32, DIMS(1, 2), V(1, 10));
    one_node_in(&t, TACIT_U8, DIMS(3), V(0x98, 0x0f, 0x8a)); /* 8 9 15 | 0 10 8 */
    one_node_in(&t, TACIT_F32, DIMS(1, 3), V(1, 2, 1));
    one_node_string(&t, "scheme", "int4");
    one_node_int(&t, "n", 3);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 3), V(-80, 2 + 40, 7), 0);
    one_node_end(&t);
}

static void D12_E13_fp8_is_the_open_standard(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        double want[4];
    } cases[] = {{"e4m3fn", {448, 1, -0.001953125, 256}},
                 {"e4m3_ieee", {NAN, 1, -0.001953125, INFINITY}},
                 {"e5m2", {NAN, 0.0078125, -1.52587890625e-5, 32768}}};
    for (int i = 0; i < 3; i++) {
        one_node t;
        one_node_begin(&t, "tacit", "DequantMatMul");
        one_node_in(&t, TACIT_F32, DIMS(1, 1), V(1));
        one_node_in(&t, TACIT_U8, DIMS(1, 4), V(0x7e, i == 2 ? 0x20 : 0x38, 0x81, 0x78));
        one_node_in(&t, TACIT_F32, DIMS(1), V(1)); /* one scale for the whole tensor */
        one_node_string(&t, "scheme", "fp8");
        one_node_string(&t, "format", cases[i].format);
        one_node_int(&t, "n", 4);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(1, 4), cases[i].want, 1e-9);
        one_node_end(&t);
    }
}

static void nvfp4_groups_of_sixteen(void **state)
{
    (void)state;
    double x[17], bytes[9], want = 0;
    static const double code[] = {0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6};
    for (int i = 0; i < 17; i++) {
        x[i] = i + 1;
        want += x[i] * code[i % 16] * (i < 16 ? 1.5 : 2) * 0.25;
    }
    for (int i = 0; i < 9; i++)
        bytes[i] = 2 * i % 16 | (i < 8 ? (2 * i + 1) << 4 : 0);
    one_node t;
    one_node_begin(&t, "tacit", "DequantMatMul");
    one_node_in(&t, TACIT_F64, DIMS(1, 17), x);
    one_node_in(&t, TACIT_U8, DIMS(9), bytes);
    one_node_in(&t, TACIT_F8E4M3FN, DIMS(2, 1), V(1.5, 2));
    one_node_in(&t, TACIT_F32, DIMS(1), V(0.25));
    one_node_string(&t, "scheme", "nvfp4");
    one_node_int(&t, "n", 1);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 1), &want, 1e-12);
    one_node_end(&t);
}

/* Checksums Σ (i+1)·y_i of one pseudo-random block, computed with the format's own Python package.
 */
static const struct gguf_case {
    const char *name;
    int halves, at[2]; /* 16-bit floats overwritten with tame values */
    double checksum;
} gguf_cases[] = {
    {"Q4_0", 1, {0, 0}, 22.265625},         {"Q4_1", 2, {0, 2}, 485.36767578125},
    {"Q5_0", 1, {0, 0}, -28.90625},         {"Q5_1", 2, {0, 2}, 879.99658203125},
    {"Q8_0", 1, {0, 0}, -405.76171875},     {"Q2_K", 2, {80, 82}, 19340.250244140625},
    {"Q3_K", 1, {108, 0}, 8036.328125},     {"Q4_K", 2, {0, 2}, 426671.04736328125},
    {"Q5_K", 2, {0, 2}, 1537929.341796875}, {"Q6_K", 1, {208, 0}, -220597.0703125},
    {"IQ4_NL", 1, {0, 0}, 371.97265625},    {"IQ4_XS", 1, {0, 0}, 49576.46484375},
    {"MXFP4", 0, {0, 0}, -77.25},
};

static void gguf_blocks_decode(void **state)
{
    (void)state;
    static const int sizes[] = {18, 20, 22, 24, 34, 84, 110, 144, 176, 210, 18, 136, 17};
    for (size_t i = 0; i < sizeof gguf_cases / sizeof *gguf_cases; i++) {
        const struct gguf_case *g = &gguf_cases[i];
        double bytes[210], sum = 0;
        rng r = rng_seed((uint64_t)sizes[i]);
        for (int k = 0; k < sizes[i]; k++)
            bytes[k] = (double)(rng_u64(&r) >> 56);
        for (int k = 0; k < g->halves; k++) {
            bytes[g->at[k]] = 0x40 + k;
            bytes[g->at[k] + 1] = 0x2e - 4 * k;
        }
        if (g->halves == 0)
            bytes[0] = 125;
        int64_t count = sizes[i] < 40 ? 32 : 256;
        one_node t;
        one_node_begin(&t, "tacit", "DequantizeGguf");
        one_node_in(&t, TACIT_U8, DIMS(sizes[i]), bytes);
        one_node_string(&t, "type", g->name);
        one_node_ints(&t, "shape", 1, &count);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        for (int64_t k = 0; k < count; k++)
            sum += one_node_at(&t, 0, k) * (double)(k + 1);
        if (fabs(sum - g->checksum) > 1e-6 * fabs(g->checksum))
            fail_msg("%s: checksum %.10g, expected %.10g", g->name, sum, g->checksum);
        one_node_end(&t);
    }
}

static void grouped_matmul_picks_experts(void **state)
{
    (void)state;
    one_node t;
    for (int wild = 0; wild < 2; wild++) {
        one_node_begin(&t, "tacit", "GroupedMatMul");
        one_node_in(&t, TACIT_F32, DIMS(3, 2), V(1, 2, 3, 4, 5, 6));
        one_node_in(&t, TACIT_F32, DIMS(2, 2, 1), V(1, 1, 10, 100));
        one_node_in(&t, TACIT_I64, DIMS(3), V(1, 0, wild ? 2 : 1));
        if (wild) {
            one_node_expect_error(&t, 1, TACIT_ERR_VALUE, "row 2 asks for expert 2 of 2");
        } else {
            assert_int_equal(one_node_run(&t, 1), TACIT_OK);
            one_node_expect(&t, 0, DIMS(3, 1), V(210, 7, 650), 0);
        }
        one_node_end(&t);
    }
    one_node_begin(&t, "tacit", "MoeRoute");
    one_node_in(&t, TACIT_F64, DIMS(1, 4), V(0, log(3), 0, log(6)));
    one_node_int(&t, "top_k", 3);
    assert_int_equal(one_node_run(&t, 2), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 3), V(3, 1, 0), 0);
    one_node_expect(&t, 1, DIMS(1, 3), V(.6, .3, .1), 1e-12);
    one_node_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(S_is_the_documented_generator),
        cmocka_unit_test(T05_selective_scan),
        cmocka_unit_test(gated_delta_net_golden_and_split),
        cmocka_unit_test(T20_solve_two_by_two),
        cmocka_unit_test(T21_solve_laplacian),
        cmocka_unit_test(T23_solve_many_right_sides),
        cmocka_unit_test(solves_are_batched_at_any_size),
        cmocka_unit_test(H13_singular_matrices_are_named),
        cmocka_unit_test(H6_fft_of_every_length_and_layout),
        cmocka_unit_test(H6_fft_of_ramps),
        cmocka_unit_test(fft_normalisation_is_declared),
        cmocka_unit_test(butterfly_stages_make_a_transform),
        cmocka_unit_test(log_mel_has_a_floor),
        cmocka_unit_test(T06_int8_blocks),
        cmocka_unit_test(T07_lora),
        cmocka_unit_test(D12_E13_int4_is_centred),
        cmocka_unit_test(D12_E13_fp8_is_the_open_standard),
        cmocka_unit_test(nvfp4_groups_of_sixteen),
        cmocka_unit_test(gguf_blocks_decode),
        cmocka_unit_test(grouped_matmul_picks_experts),
    };
    return cmocka_run_group_tests_name("op families", tests, NULL, NULL);
}
