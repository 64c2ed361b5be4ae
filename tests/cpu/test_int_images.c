/* SPDX-License-Identifier: Apache-2.0
 * Images of bytes whose channels lie inside, through their lower rules on every ISA, against the
 * evaluators: every byte is the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/lower_check.h"

static tacit_dtype byte_type(int turn)
{
    return turn & 1 ? TACIT_I8 : TACIT_U8;
}
static void bytes(op_case *c, rng *r, tacit_dtype d, ir_shape s)
{
    double low = d == TACIT_I8 ? -128 : 0;
    op_case_random(c, r, d, s, low, low + 256);
}
static void pair(op_case *c, rng *r, tacit_dtype d, double low, double high)
{
    op_case_random(c, r, TACIT_F32, SCALAR, low, high);
    bytes(c, r, d, SCALAR);
}
static void activation(op_case *c, int t)
{
    static const char *const names[] = {"none", "relu", "clip"};
    op_case_string(c, "activation", names[t % 3]);
    if (t % 3 == 2) {
        op_case_float(c, "act_min", -0.7);
        op_case_float(c, "act_max", 6);
    }
}

static const struct {
    int64_t n, c, m, h, w, kernel, stride, dilation, pad; /* m 0: one channel for each */
} cases[] = {
    {1, 3, 40, 17, 19, 7, 2, 1, 3},   {2, 72, 33, 9, 9, 1, 1, 1, 0},
    {1, 16, 8, 14, 14, 3, 1, 1, 1},   {2, 9, 31, 11, 13, 3, 2, 2, 2},
    {1, 128, 64, 20, 20, 1, 2, 1, 0}, {1, 5, 1, 1, 30, 1, 1, 1, 0},
    {1, 64, 200, 7, 7, 1, 1, 1, 0},   {1, 20, 130, 13, 5, 3, 1, 1, 0},
    {1, 260, 70, 5, 5, 3, 1, 1, 1},   {2, 40, 0, 10, 23, 3, 1, 1, 1},
    {1, 33, 0, 15, 15, 5, 2, 1, 2},   {1, 64, 0, 8, 8, 3, 2, 1, 1},
    {1, 129, 0, 6, 7, 3, 1, 2, 2},    {3, 3, 0, 8, 8, 2, 1, 1, 0},
    {1, 96, 0, 9, 4, 1, 1, 1, 0},     {2, 32, 0, 11, 12, 3, 1, 1, 1},
    {1, 144, 0, 6, 15, 3, 1, 1, 1},   {1, 16, 0, 7, 21, 3, 1, 2, 2},
    {2, 3, 18, 6, 97, 3, 2, 1, 1},    {1, 3, 5, 4, 64, 1, 1, 1, 0},
};
enum { CASES = sizeof cases / sizeof *cases };

static void convolutions(void **state)
{
    (void)state;
    rng r = rng_seed(91);
    for (int t = 0; t < 8 * CASES; t++) {
        int s = t / 8;
        int64_t group = cases[s].m ? 1 : cases[s].c, m = cases[s].m ? cases[s].m : cases[s].c;
        int64_t k = cases[s].kernel, n = cases[s].n, ch = cases[s].c, pad = cases[s].pad;
        tacit_dtype x = byte_type(t / 2), w = byte_type(1 + (t % 8 == 7)), y = byte_type(t / 4);
        bool x_inside = t % 4 != 3;
        op_case c;
        op_case_begin(&c, "tacit", "IntConv");
        bytes(&c, &r, x,
              x_inside ? SHAPE(n, cases[s].h, cases[s].w, ch)
                       : SHAPE(n, ch, cases[s].h, cases[s].w));
        bytes(&c, &r, w, SHAPE(m, ch / group, k, k));
        pair(&c, &r, x, 0.01, 0.02);
        op_case_random(&c, &r, TACIT_F32, t & 1 ? SHAPE(m) : SCALAR, 0.01, 0.02);
        if (w == TACIT_U8)
            op_case_random(&c, &r, w, SCALAR, 128, 129);
        else
            op_case_give(&c, NULL);
        if (t % 5)
            op_case_random(&c, &r, TACIT_F32, SHAPE(m), -3, 3);
        else
            op_case_give(&c, NULL);
        pair(&c, &r, y, 0.02, 0.3);
        op_case_int(&c, "group", group);
        op_case_int(&c, "inside", x_inside ? 3 : 2);
        op_case_ints(&c, "strides", 2, (int64_t[]){cases[s].stride, cases[s].stride});
        op_case_ints(&c, "dilations", 2, (int64_t[]){cases[s].dilation, cases[s].dilation});
        op_case_ints(&c, "pads", 4, (int64_t[]){pad, pad, pad, pad});
        activation(&c, t);
        lower_check(&c, &r, 1, 0x1fe, 0);
        op_case_end(&c);
    }
}

/* Scales by which many sums fall on ties, or so near that f32 cannot tell. */
static void ties(void **state)
{
    (void)state;
    static const double scales[] = {0.5, 0.25, 1.0 / 6, 0.1, 1.5};
    rng r = rng_seed(92);
    for (int t = 0; t < 20; t++) {
        tacit_dtype y = byte_type(t);
        double step = scales[t % 5], zero = t % 2 ? 3 : 7;
        op_case c;
        op_case_begin(&c, "tacit", "IntConv");
        op_case_random(&c, &r, TACIT_U8, SHAPE(1, 6, 6, 8), 0, 20);
        op_case_random(&c, &r, TACIT_I8, SHAPE(48, 8, 1, 1), -3, 4);
        op_case_f64(&c, TACIT_F32, SCALAR, &step);
        op_case_random(&c, &r, TACIT_U8, SCALAR, 0, 20);
        op_case_f64(&c, TACIT_F32, SCALAR, (double[]){1});
        op_case_give(&c, NULL);
        op_case_random(&c, &r, TACIT_F32, SHAPE(48), -8, 8);
        op_case_f64(&c, TACIT_F32, SCALAR, (double[]){1});
        op_case_f64(&c, y, SCALAR, &zero);
        op_case_int(&c, "inside", 3);
        lower_check(&c, &r, 1, 0x1fe, 0);
        op_case_end(&c);
    }
}

static void sums(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 15, 16, 33, 1000, 70001};
    rng r = rng_seed(93);
    for (int t = 0; t < 48; t++) {
        int64_t n = counts[t % 6];
        tacit_dtype a = byte_type(t / 6), b = byte_type(t / 12), y = byte_type(t / 24);
        op_case c;
        op_case_begin(&c, "tacit", "IntAdd");
        bytes(&c, &r, a, SHAPE(1, n));
        bytes(&c, &r, b, SHAPE(1, n));
        if (t % 4) {
            pair(&c, &r, a, 0.01, 0.1);
            pair(&c, &r, b, 0.01, 0.1);
        } else { /* ties */
            op_case_f64(&c, TACIT_F32, SCALAR, (double[]){0.125});
            bytes(&c, &r, a, SCALAR);
            op_case_f64(&c, TACIT_F32, SCALAR, (double[]){0.0625});
            bytes(&c, &r, b, SCALAR);
        }
        op_case_random(&c, &r, TACIT_F32, SCALAR, t % 4 ? 0.02 : 0.125, t % 4 ? 0.2 : 0.125);
        bytes(&c, &r, y, SCALAR);
        activation(&c, t);
        lower_check(&c, &r, 1, 0xfc, 0);
        op_case_end(&c);
    }
}

static void products(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 15, 16, 33, 1000, 70001};
    rng r = rng_seed(96);
    for (int t = 0; t < 96; t++) {
        int64_t n = counts[t % 6];
        tacit_dtype a = byte_type(t / 6), b = byte_type(t / 12), y = byte_type(t / 24);
        op_case c;
        op_case_begin(&c, "tacit", "IntMul");
        bytes(&c, &r, a, t % 5 == 4 ? SHAPE(2, 3, 1) : SHAPE(2, 3, n));
        bytes(&c, &r, b,
              t % 5 == 0   ? SHAPE(2, 3, n)
              : t % 5 == 1 ? SHAPE(3, 1)
              : t % 5 == 2 ? SCALAR
                           : SHAPE(n));
        pair(&c, &r, a, 0.01, 0.1);
        pair(&c, &r, b, 0.01, 0.1);
        pair(&c, &r, y, 0.001, 0.5);
        lower_check(&c, &r, 1, 0xfc, 0);
        op_case_end(&c);
    }
}

static void means(void **state)
{
    (void)state;
    rng r = rng_seed(94);
    for (int t = 0; t < 24; t++) {
        tacit_dtype x = byte_type(t), y = byte_type(t / 2);
        int64_t channels = (int64_t[]){1, 17, 300}[t / 4 % 3], inside = t / 12;
        op_case c;
        op_case_begin(&c, "tacit", "IntMean");
        bytes(&c, &r, x, inside ? SHAPE(2, 7, 5, channels) : SHAPE(2, channels, 7, 5));
        pair(&c, &r, x, 0.01, 0.1);
        pair(&c, &r, y, 0.01, 0.1);
        op_case_int(&c, "inside", inside);
        lower_check(&c, &r, 1, 0x1e, 0);
        op_case_end(&c);
    }
}

static void poolings(void **state)
{
    (void)state;
    rng r = rng_seed(95);
    for (int t = 0; t < 24; t++) {
        int64_t k = 2 + t % 3, stride = 1 + t / 3 % 2, pad = t / 6 % 2;
        op_case c;
        op_case_begin(&c, "tacit", "IntMaxPool");
        bytes(&c, &r, byte_type(t), SHAPE(2, 9, 11, (int64_t[]){1, 3, 64, 70}[t / 6]));
        op_case_ints(&c, "kernel_shape", 2, (int64_t[]){k, k});
        op_case_ints(&c, "strides", 2, (int64_t[]){stride, stride});
        op_case_ints(&c, "pads", 4, (int64_t[]){pad, pad, pad, pad});
        op_case_int(&c, "ceil_mode", t / 12);
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions), cmocka_unit_test(ties),  cmocka_unit_test(sums),
        cmocka_unit_test(products),     cmocka_unit_test(means), cmocka_unit_test(poolings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
