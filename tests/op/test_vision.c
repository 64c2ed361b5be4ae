/* SPDX-License-Identifier: Apache-2.0
 * Acceptance cases of int8 kernels, vision and position ops, and Gaussian splatting. */
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

static double clamp8(double v)
{
    return v < -128 ? -128 : v > 127 ? 127 : v;
}

static void quantised(splitmix *s, double *to, int64_t count, float scale)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = clamp8(roundf(splitmix_sym(s) / scale));
}

/* With the source's zero points, then with others and a bias. */
static void T44_int8_conv(void **state)
{
    (void)state;
    enum { C = 2, H = 5, M = 3, K = 3 };
    const float multiplier = .04f * .02f / .5f;
    for (int hard = 0; hard < 2; hard++) {
        splitmix s = {2099};
        double x[C * H * H], w[M * C * K * K], bias[M] = {0}, want[M * H * H];
        int xz = hard ? 5 : 0, wz = hard ? -3 : 0, yz = hard ? 11 : 0;
        quantised(&s, x, C * H * H, .04f);
        quantised(&s, w, M * C * K * K, .02f);
        for (int m = 0; hard && m < M; m++)
            bias[m] = 1000 * (m - 1);
        for (int at = 0; at < M * H * H; at++) {
            int m = at / (H * H), i = at / H % H, j = at % H, acc = (int)bias[m];
            for (int k = 0; k < C * K * K; k++) {
                int c = k / (K * K), a = i + k / K % K - 1, b = j + k % K - 1;
                if (a >= 0 && a < H && b >= 0 && b < H)
                    acc += ((int)x[(c * H + a) * H + b] - xz) * ((int)w[m * C * K * K + k] - wz);
            }
            want[at] = clamp8(roundf((float)acc * multiplier) + (float)yz);
        }
        one_node t;
        one_node_begin(&t, "tacit", "QConv");
        one_node_in(&t, TACIT_I8, DIMS(1, C, H, H), x);
        one_node_in(&t, TACIT_I8, DIMS(M, C, K, K), w);
        one_node_in(&t, TACIT_I32, DIMS(M), bias);
        one_node_ints(&t, "pads", 4, (int64_t[]){1, 1, 1, 1});
        one_node_float(&t, "multiplier", multiplier);
        one_node_int(&t, "x_zero", xz);
        one_node_int(&t, "w_zero", wz);
        one_node_int(&t, "y_zero", yz);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(1, M, H, H), want, 0);
        one_node_end(&t);
    }
}

static void T45_int8_matmul(void **state)
{
    (void)state;
    enum { M = 3, K = 8, N = 5 };
    const float multiplier = .05f * .03f / .4f;
    for (int hard = 0; hard < 2; hard++) {
        splitmix s = {2031};
        double x[M * K], w[K * N], bias[N] = {0}, want[M * N];
        int xz = hard ? -7 : 0, wz = hard ? 2 : 0, yz = hard ? -20 : 0;
        quantised(&s, x, M * K, .05f);
        quantised(&s, w, K * N, .03f);
        for (int j = 0; hard && j < N; j++)
            bias[j] = 300 * j;
        for (int at = 0; at < M * N; at++) {
            int acc = (int)bias[at % N];
            for (int p = 0; p < K; p++)
                acc += ((int)x[at / N * K + p] - xz) * ((int)w[p * N + at % N] - wz);
            want[at] = clamp8(roundf((float)acc * multiplier) + (float)yz);
        }
        one_node t;
        one_node_begin(&t, "tacit", "QMatMul");
        one_node_in(&t, TACIT_I8, DIMS(M, K), x);
        one_node_in(&t, TACIT_I8, DIMS(K, N), w);
        one_node_in(&t, TACIT_I32, DIMS(N), bias);
        one_node_float(&t, "multiplier", multiplier);
        one_node_int(&t, "x_zero", xz);
        one_node_int(&t, "w_zero", wz);
        one_node_int(&t, "y_zero", yz);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(M, N), want, 0);
        one_node_end(&t);
    }
}

/* QuantizeLinear then DequantizeLinear. */
static void round_trip(int32_t rank, const int64_t *dims, const double *x, int64_t channels,
                       const double *scale, const double *zero, double *back)
{
    one_node q, d;
    int32_t s_rank = channels > 1 ? 1 : 0;
    int64_t count = 1;
    for (int32_t i = 0; i < rank; i++)
        count *= dims[i];
    one_node_begin(&q, "", "QuantizeLinear");
    one_node_in(&q, TACIT_F32, rank, dims, x);
    one_node_in(&q, TACIT_F32, s_rank, &channels, scale);
    one_node_in(&q, TACIT_I8, s_rank, &channels, zero);
    one_node_int(&q, "axis", 0);
    assert_int_equal(one_node_run(&q, 1), TACIT_OK);
    for (int64_t i = 0; i < count; i++)
        back[i] = one_node_at(&q, 0, i);
    one_node_begin(&d, "", "DequantizeLinear");
    one_node_in(&d, TACIT_I8, rank, dims, back);
    one_node_in(&d, TACIT_F32, s_rank, &channels, scale);
    one_node_in(&d, TACIT_I8, s_rank, &channels, zero);
    one_node_int(&d, "axis", 0);
    assert_int_equal(one_node_run(&d, 1), TACIT_OK);
    for (int64_t i = 0; i < count; i++)
        back[i] = one_node_at(&d, 0, i);
    one_node_end(&q);
    one_node_end(&d);
}

static void T46_quantise_round_trip(void **state)
{
    (void)state;
    splitmix s = {2027};
    double x[64], back[64], scale = .05f, zero = 3;
    splitmix_fill(&s, x, 64);
    x[0] = 999;
    x[1] = -999;
    round_trip(DIMS(64), x, 1, &scale, &zero, back);
    assert_true(fabs(back[0] - 6.2) < 1e-6 && fabs(back[1] + 6.55) < 1e-6);
    for (int i = 2; i < 64; i++)
        assert_true(fabs(back[i] - x[i]) <= scale + 1e-5);
}

static void T47_quantise_per_channel(void **state)
{
    (void)state;
    static const double sizes[] = {.01, .5, 5, 50};
    double x[20], scale[4], zero[4] = {0}, back[20];
    for (int c = 0; c < 4; c++) {
        const double row[] = {-1, 0, 1, 1000, -1000};
        scale[c] = (float)(sizes[c] / 127);
        for (int i = 0; i < 5; i++)
            x[c * 5 + i] = row[i] * sizes[c];
    }
    round_trip(DIMS(4, 5), x, 4, scale, zero, back);
    for (int c = 0; c < 4; c++) {
        for (int i = 0; i < 3; i++)
            assert_true(fabs(back[c * 5 + i] - x[c * 5 + i]) <= scale[c] + 1e-5);
        assert_true(fabs(back[c * 5 + 3] - 127 * scale[c]) < 1e-5);
        assert_true(fabs(back[c * 5 + 4] + 128 * scale[c]) < 1e-5);
    }
}

static void H16_quantising_infinities(void **state)
{
    (void)state;
    double back[5], scale = .05f, zero = 0;
    round_trip(DIMS(5), V(INFINITY, -INFINITY, NAN, 3e38, -3e38), 1, &scale, &zero, back);
    const double want[] = {127, -128, 0, 127, -128};
    for (int i = 0; i < 5; i++)
        assert_true(fabs(back[i] - want[i] * scale) < 1e-5);
}

static void fake_quantise_modes(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "tacit", "FakeQuantize");
    one_node_in(&t, TACIT_F64, DIMS(2, 2), V(7, 1.4, -.7, .32));
    one_node_int(&t, "bits", 4);
    one_node_int(&t, "axis", 0);
    assert_int_equal(one_node_run(&t, 2), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2, 2), V(7, 1, -.7, .3), 1e-12);
    one_node_expect(&t, 1, DIMS(2), V(1, .1), 1e-12);
    one_node_end(&t);
    one_node_begin(&t, "tacit", "FakeQuantize");
    one_node_in(&t, TACIT_F64, DIMS(2), V(7, 1.4));
    one_node_in(&t, TACIT_F64, DIMS(1), V(3));
    one_node_int(&t, "bits", 4);
    one_node_string(&t, "mode", "ema");
    one_node_float(&t, "decay", 0.5);
    assert_int_equal(one_node_run(&t, 2), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2), V(8, 2), 1e-12); /* scale (3 + 1)/2 = 2 */
    one_node_expect(&t, 1, DIMS(1), V(2), 1e-12);
    one_node_end(&t);
    one_node_begin(&t, "tacit", "FakeQuantize");
    one_node_in(&t, TACIT_F64, DIMS(3), V(100, -100, 2.6));
    one_node_in(&t, TACIT_F64, DIMS(1), V(5));
    one_node_int(&t, "bits", 2);
    one_node_string(&t, "mode", "fixed");
    assert_int_equal(one_node_run(&t, 2), TACIT_OK);
    one_node_expect(&t, 0, DIMS(3), V(5, -5, 5), 1e-12);
    one_node_end(&t);
}

static void T12_layer_norm2d_and_conv_transpose(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "tacit", "LayerNorm2d");
    one_node_in(&t, TACIT_F32, DIMS(1, 2, 2, 2), V(1, 2, 3, 4, 5, 6, 7, 8));
    one_node_in(&t, TACIT_F32, DIMS(2), V(1, 1));
    one_node_in(&t, TACIT_F32, DIMS(2), V(0, 0));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    const double u = 0.99999875;
    one_node_expect(&t, 0, DIMS(1, 2, 2, 2), V(-u, -u, -u, -u, u, u, u, u), 1e-6);
    one_node_end(&t);
    one_node_begin(&t, "", "ConvTranspose");
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 1, 1), V(2));
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 2, 2), V(1, 0, 0, 1));
    one_node_ints(&t, "strides", 2, (int64_t[]){2, 2});
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 1, 2, 2), V(2, 0, 0, 2), 0);
    one_node_end(&t);
}

static void im2col_golden(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "tacit", "Im2Col");
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 3, 3), V(1, 2, 3, 4, 5, 6, 7, 8, 9));
    one_node_ints(&t, "kernel_shape", 2, (int64_t[]){2, 2});
    one_node_ints(&t, "strides", 2, (int64_t[]){2, 2});
    one_node_ints(&t, "pads", 4, (int64_t[]){1, 1, 1, 1});
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    /* rows are positions here: the columns of the notes' matrix */
    one_node_expect(&t, 0, DIMS(4, 4), V(0, 0, 0, 1, 0, 0, 2, 3, 0, 4, 0, 7, 5, 6, 8, 9), 0);
    one_node_end(&t);
}

static void rope_turns_half_pairs(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "tacit", "Rope");
    one_node_in(&t, TACIT_F64, DIMS(2, 1, 4), V(1, 2, 3, 4, 5, 6, 7, 8));
    one_node_in(&t, TACIT_F64, DIMS(2, 2), V(9, 9, 0, 9));
    one_node_in(&t, TACIT_F64, DIMS(2, 2), V(9, 9, 1, 9));
    one_node_int(&t, "head_dim", 4);
    one_node_int(&t, "rotated", 2);
    one_node_int(&t, "offset", 1);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2, 1, 4), V(-2, 1, 3, 4, -6, 5, 7, 8), 1e-12);
    one_node_end(&t);
    one_node_begin(&t, "tacit", "Rope");
    one_node_in(&t, TACIT_F64, DIMS(2, 4), V(1, 2, 3, 4, 5, 6, 7, 8));
    one_node_in(&t, TACIT_F64, DIMS(1, 2), V(1, 1));
    one_node_in(&t, TACIT_F64, DIMS(1, 2), V(0, 0));
    one_node_int(&t, "head_dim", 4);
    one_node_expect_error(&t, 1, TACIT_ERR_SHAPE, "do not fit"); /* tables too short: no wrapping */
    one_node_end(&t);
}

/* The second batch is computed like the first. */
static void D4_batches_beyond_the_first(void **state)
{
    (void)state;
    double x[2 * 4 * 8];
    for (int i = 0; i < 32; i++)
        x[i] = x[32 + i] = sin(i);
    for (int kind = 0; kind < 3; kind++) {
        one_node t;
        one_node_begin(&t, kind == 0 ? "tacit" : "",
                       kind == 0   ? "AxialRope2d"
                       : kind == 1 ? "GroupNormalization"
                                   : "Resize");
        if (kind == 0) {
            one_node_in(&t, TACIT_F64, DIMS(2, 4, 8), x);
            one_node_int(&t, "head_dim", 4);
            one_node_int(&t, "end_x", 2);
            one_node_int(&t, "end_y", 2);
        } else if (kind == 1) {
            one_node_in(&t, TACIT_F64, DIMS(2, 4, 8), x);
            one_node_in(&t, TACIT_F64, DIMS(4), V(1, 2, 3, 4));
            one_node_in(&t, TACIT_F64, DIMS(4), V(1, 2, 3, 4));
            one_node_int(&t, "num_groups", 2);
        } else {
            one_node_in(&t, TACIT_F64, DIMS(2, 2, 4, 4), x);
            one_node_in(&t, TACIT_F32, DIMS(0), NULL);
            one_node_in(&t, TACIT_F32, DIMS(4), V(1, 1, 2, 2));
            one_node_string(&t, "coordinate_transformation_mode", "asymmetric");
            one_node_string(&t, "nearest_mode", "floor");
        }
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        int64_t half = ir_tensor_count(&t.out[0]) / 2;
        bool moved = false;
        for (int64_t i = 0; i < half; i++) {
            assert_true(one_node_at(&t, 0, i) == one_node_at(&t, 0, half + i));
            moved = moved || one_node_at(&t, 0, i) != x[i];
        }
        assert_true(moved);
        if (kind == 2) /* out[y, x] = in[y/2, x/2] */
            for (int64_t i = 0; i < 2 * half; i++)
                assert_true(one_node_at(&t, 0, i) == x[i / 64 * 16 + i / 16 % 4 * 4 + i % 8 / 2]);
        one_node_end(&t);
    }
}

static void axial_rope_turns_by_column_then_row(void **state)
{
    (void)state;
    double x[4 * 4];
    for (int i = 0; i < 16; i++)
        x[i] = i % 2 ? 0 : 1; /* pairs (1, 0) become (cos, sin) */
    one_node t;
    one_node_begin(&t, "tacit", "AxialRope2d");
    one_node_in(&t, TACIT_F64, DIMS(1, 4, 4), x);
    one_node_int(&t, "head_dim", 4);
    one_node_int(&t, "end_x", 2);
    one_node_int(&t, "end_y", 2);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    const double c = cos(1), s = sin(1);
    one_node_expect(&t, 0, DIMS(1, 4, 4), V(1, 0, 1, 0, c, s, 1, 0, 1, 0, c, s, c, s, c, s), 1e-12);
    one_node_end(&t);
}

/* Scale and soft-cap are applied; the layout is stated, not guessed, when S equals H. */
static void D9_attention_scale_and_softcap(void **state)
{
    (void)state;
    for (int cap = 0; cap < 2; cap++) {
        one_node t;
        one_node_begin(&t, "tacit", "Attention");
        one_node_in(&t, TACIT_F64, DIMS(1, 1, 1, 1), V(2));
        one_node_in(&t, TACIT_F64, DIMS(1, 1, 2, 1), V(0, 3));
        one_node_in(&t, TACIT_F64, DIMS(1, 1, 2, 1), V(0, 1));
        one_node_float(&t, "scale", 0.25);
        one_node_float(&t, "softcap", cap);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        double score = cap ? tanh(1.5) : 1.5, want = exp(score) / (1 + exp(score));
        one_node_expect(&t, 0, DIMS(1, 1, 1, 1), &want, 1e-12);
        one_node_end(&t);
    }
}

static void D7_E16_attention_layout_is_stated(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "tacit", "Attention"); /* two heads, two positions */
    one_node_in(&t, TACIT_F64, DIMS(1, 2, 2, 1), V(0, 0, 0, 0));
    one_node_in(&t, TACIT_F64, DIMS(1, 2, 2, 1), V(0, 0, 0, 0));
    one_node_in(&t, TACIT_F64, DIMS(1, 2, 2, 1), V(1, 3, 10, 30));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 2, 2, 1), V(2, 2, 20, 20), 1e-12);
    one_node_end(&t);
}

static void D9_softmax_of_a_middle_axis(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "Softmax");
    one_node_in(&t, TACIT_F64, DIMS(1, 2, 2), V(0, log(3), 0, 0));
    one_node_int(&t, "axis", 1);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 2, 2), V(.5, .75, .5, .25), 1e-12);
    one_node_end(&t);
}

static void D10_matmul_broadcasts_a_matrix_over_batches(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "MatMul");
    one_node_in(&t, TACIT_F32, DIMS(1, 2), V(1, 2));
    one_node_in(&t, TACIT_F32, DIMS(3, 2, 1), V(1, 1, 2, 2, 3, 3));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(3, 1, 1), V(3, 6, 9), 0);
    one_node_end(&t);
}

/* --- splatting
 * -------------------------------------------------------------------------------------- */

/* A camera at the origin looking along +z; one pixel is a unit at depth 1 with this focal length.
 */
static const double camera[20] = {1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 10, 10, 4, 4};
static const double sh0 = 0.28209479177387814;

static void splat_gaussians(one_node *t, const char *type, int64_t n, const double *position,
                            const double *opacity, const double *colour)
{
    double scale[24], rotation[32] = {0}, sh[24];
    for (int64_t i = 0; i < 3 * n; i++) {
        scale[i] = 0.05;
        sh[i] = (colour[i] - 0.5) / sh0;
    }
    for (int64_t i = 0; i < n; i++)
        rotation[4 * i] = 2; /* normalised inside */
    one_node_begin(t, "tacit", type);
    one_node_in(t, TACIT_F64, DIMS(n, 3), position);
    one_node_in(t, TACIT_F64, DIMS(n, 3), scale);
    one_node_in(t, TACIT_F64, DIMS(n, 4), rotation);
    if (opacity)
        one_node_in(t, TACIT_F64, DIMS(n), opacity);
    one_node_in(t, TACIT_F64, DIMS(n, 1, 3), sh);
    one_node_in(t, TACIT_F64, DIMS(20), camera);
}

static void splat_projection(void **state)
{
    (void)state;
    one_node t;
    splat_gaussians(&t, "SplatProject", 2, V(.5, 0, 1, 0, 0, -1), NULL, V(1, 0, .5, 1, 1, 1));
    assert_int_equal(one_node_run(&t, 5), TACIT_OK);
    /* x: (fx/z)² s² (1 + x²/z²) + low pass; y: the same without the last factor */
    double xx = 100 * .0025 * 1.25 + .3, yy = 100 * .0025 + .3;
    one_node_expect(&t, 0, DIMS(2, 2), V(9, 4, 0, 0), 1e-12);
    one_node_expect(&t, 1, DIMS(2, 3), V(1 / xx, 0, 1 / yy, 0, 0, 0), 1e-12);
    one_node_expect(&t, 2, DIMS(2), V(1, -1), 1e-12);
    one_node_expect(&t, 3, DIMS(2), V(ceil(3 * sqrt(xx)), 0), 1e-12); /* behind: not seen */
    one_node_expect(&t, 4, DIMS(2, 3), V(1, 0, .5, 1, 1, 1), 1e-12);
    one_node_end(&t);
}

/* The value of pixel (x, y) for Gaussians given front to back, by the blending formula alone. */
static double blended(int n, const double *depth, const double *opacity, const double *value,
                      double x, double y, double background)
{
    double through = 1, sum = 0;
    for (int i = 0; i < n; i++) {
        double f = 10 / depth[i], var = f * f * .0025 + .3;
        double dx = x + .5 - 4, dy = y + .5 - 4;
        double alpha = fmin(.99, opacity[i] * exp(-.5 * (dx * dx + dy * dy) / var));
        if (alpha < 1. / 255)
            continue;
        if (through * (1 - alpha) < 1e-4)
            break;
        sum += value[i] * alpha * through;
        through *= 1 - alpha;
    }
    return sum + through * background;
}

static void splats_blend_front_to_back_in_any_tiling(void **state)
{
    (void)state;
    static const int64_t tiles[] = {1, 3, 16};
    for (int k = 0; k < 3; k++) {
        one_node t;
        /* given back to front: sorting must turn them */
        splat_gaussians(&t, "GaussianSplat", 2, V(0, 0, 4, 0, 0, 2), V(.9, .6),
                        V(1, 0, 0, 0, 1, 0));
        one_node_in(&t, TACIT_F64, DIMS(3), V(.1, .1, .1));
        one_node_int(&t, "width", 8);
        one_node_int(&t, "height", 8);
        one_node_int(&t, "tile", tiles[k]);
        assert_int_equal(one_node_run(&t, 2), TACIT_OK);
        for (int y = 0; y < 8; y++)
            for (int x = 0; x < 8; x++) {
                if (fabs(x - 3.5) > 2 || fabs(y - 3.5) > 2) /* the radius cuts further out */
                    continue;
                double red = blended(2, V(2, 4), V(.6, .9), V(0, 1), x, y, .1);
                double green = blended(2, V(2, 4), V(.6, .9), V(1, 0), x, y, .1);
                assert_true(fabs(one_node_at(&t, 0, (y * 8 + x) * 3) - red) < 1e-12);
                assert_true(fabs(one_node_at(&t, 0, (y * 8 + x) * 3 + 1) - green) < 1e-12);
            }
        one_node_end(&t);
    }
}

static void splats_stop_when_nothing_shines_through(void **state)
{
    (void)state;
    one_node t;
    splat_gaussians(&t, "GaussianSplat", 3, V(0, 0, 2, 0, 0, 3, 0, 0, 4), V(1, 1, 1),
                    V(1, 1, 1, 1, 1, 1, 9, 9, 9));
    one_node_int(&t, "width", 8);
    one_node_int(&t, "height", 8);
    one_node_float(&t, "transmittance", 0.3);
    assert_int_equal(one_node_run(&t, 2), TACIT_OK);
    double f = exp(-.25 / (25 * .0025 + .3)); /* half a pixel off in x and y, at depth 2 */
    assert_true(fabs(one_node_at(&t, 0, (4 * 8 + 4) * 3) - f) < 1e-12);
    assert_true(fabs(one_node_at(&t, 1, 4 * 8 + 4) - (1 - f)) < 1e-12);
    one_node_end(&t);
}

static void staged_splatting_equals_one_step(void **state)
{
    (void)state;
    double position[12], opacity[4], colour[12];
    rng r = rng_seed(9);
    for (int i = 0; i < 12; i++) {
        position[i] = i % 3 == 2 ? rng_range(&r, 1, 3) : rng_range(&r, -.4, .4);
        colour[i] = rng_f64(&r);
        opacity[i % 4] = rng_f64(&r);
    }
    one_node whole, project, draw;
    splat_gaussians(&whole, "GaussianSplat", 4, position, opacity, colour);
    one_node_int(&whole, "width", 8);
    one_node_int(&whole, "height", 8);
    assert_int_equal(one_node_run(&whole, 2), TACIT_OK);
    splat_gaussians(&project, "SplatProject", 4, position, NULL, colour);
    assert_int_equal(one_node_run(&project, 5), TACIT_OK);
    one_node_begin(&draw, "tacit", "SplatRasterize");
    for (int i = 0; i < 5; i++)
        draw.in[draw.n_in++] = &project.out[i];
    one_node_in(&draw, TACIT_F64, DIMS(4), opacity);
    one_node_int(&draw, "width", 8);
    one_node_int(&draw, "height", 8);
    assert_int_equal(one_node_run(&draw, 2), TACIT_OK);
    for (int i = 0; i < 192; i++)
        assert_true(one_node_at(&draw, 0, i) == one_node_at(&whole, 0, i));
    one_node_end(&draw);
    one_node_end(&project);
    one_node_end(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T44_int8_conv),
        cmocka_unit_test(T45_int8_matmul),
        cmocka_unit_test(T46_quantise_round_trip),
        cmocka_unit_test(T47_quantise_per_channel),
        cmocka_unit_test(H16_quantising_infinities),
        cmocka_unit_test(fake_quantise_modes),
        cmocka_unit_test(T12_layer_norm2d_and_conv_transpose),
        cmocka_unit_test(im2col_golden),
        cmocka_unit_test(rope_turns_half_pairs),
        cmocka_unit_test(D4_batches_beyond_the_first),
        cmocka_unit_test(axial_rope_turns_by_column_then_row),
        cmocka_unit_test(D9_attention_scale_and_softcap),
        cmocka_unit_test(D7_E16_attention_layout_is_stated),
        cmocka_unit_test(D9_softmax_of_a_middle_axis),
        cmocka_unit_test(D10_matmul_broadcasts_a_matrix_over_batches),
        cmocka_unit_test(splat_projection),
        cmocka_unit_test(splats_blend_front_to_back_in_any_tiling),
        cmocka_unit_test(splats_stop_when_nothing_shines_through),
        cmocka_unit_test(staged_splatting_equals_one_step),
    };
    return cmocka_run_group_tests_name("op vision", tests, NULL, NULL);
}
