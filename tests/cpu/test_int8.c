/* SPDX-License-Identifier: Apache-2.0
 * Products of bytes and conversions to and from them, through their lower rules on every ISA,
 * against the evaluators. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/lower_check.h"

static const struct {
    int64_t m, k, n;
} shapes[] = {{1, 1, 1},    {1, 3, 5},     {2, 4, 16},  {5, 7, 33},  {12, 64, 32},
              {13, 65, 31}, {25, 130, 70}, {7, 768, 9}, {200, 20, 3}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static tacit_dtype byte_type(int turn)
{
    return turn & 1 ? TACIT_I8 : TACIT_U8;
}
static void bytes(op_case *c, rng *r, tacit_dtype d, ir_shape s)
{
    double low = d == TACIT_I8 ? -128 : 0;
    op_case_random(c, r, d, s, low, low + 256);
}

static void integer_products(void **state)
{
    (void)state;
    rng r = rng_seed(81);
    for (int t = 0; t < 8 * SHAPES; t++) {
        int s = t % SHAPES;
        int64_t m = shapes[s].m, k = shapes[s].k, n = shapes[s].n;
        tacit_dtype a = byte_type(t), b = byte_type(t / 2);
        op_case c;
        op_case_begin(&c, "", "MatMulInteger");
        bytes(&c, &r, a, t % 3 ? SHAPE(m, k) : SHAPE(1, m, k));
        bytes(&c, &r, b, SHAPE(k, n));
        if (t % 4 > 0)
            bytes(&c, &r, a, SCALAR);
        if (t % 4 > 1)
            bytes(&c, &r, b, t % 4 == 3 ? SHAPE(n) : SCALAR);
        /* The right side known, and packed per run; its zero points are always known. */
        lower_check(&c, &r, 1, t & 1 ? 2 | 8 : 8, 0);
        op_case_end(&c);
    }
}

static void quantised_results(void **state)
{
    (void)state;
    rng r = rng_seed(82);
    for (int t = 0; t < 4 * SHAPES; t++) {
        int s = t % SHAPES;
        int64_t m = shapes[s].m, k = shapes[s].k, n = shapes[s].n;
        tacit_dtype a = byte_type(t), b = byte_type(t / 2), y = byte_type(t / 4);
        op_case c;
        op_case_begin(&c, "", "QLinearMatMul");
        bytes(&c, &r, a, SHAPE(m, k));
        op_case_random(&c, &r, TACIT_F32, SCALAR, 0.01, 0.02);
        bytes(&c, &r, a, SCALAR);
        bytes(&c, &r, b, SHAPE(k, n));
        op_case_random(&c, &r, TACIT_F32, t % 3 ? SHAPE(n) : SCALAR, 0.01, 0.02);
        bytes(&c, &r, b, t % 3 ? SHAPE(n) : SCALAR);
        op_case_random(&c, &r, TACIT_F32, SCALAR, 0.1, 1);
        bytes(&c, &r, y, SCALAR);
        lower_check(&c, &r, 1, 8 | 16 | 32 | 64 | 128, 0);
        op_case_end(&c);
    }
}

static void float_results(void **state)
{
    (void)state;
    static const char *const acts[] = {"none", "relu", "gelu", "gelu_tanh", "silu"};
    rng r = rng_seed(83);
    for (int t = 0; t < 6 * SHAPES; t++) {
        int s = t % SHAPES, trans = t / 3 % 2;
        int64_t m = shapes[s].m, k = shapes[s].k, n = shapes[s].n;
        tacit_dtype a = byte_type(t), b = byte_type(t / 2);
        op_case c;
        op_case_begin(&c, "tacit", "IntMatMul");
        bytes(&c, &r, a, SHAPE(1, m, k));
        bytes(&c, &r, b, trans ? SHAPE(n, k) : SHAPE(k, n));
        op_case_random(&c, &r, TACIT_F32, SCALAR, 0.001, 0.01);
        if (t % 5)
            bytes(&c, &r, a, SCALAR);
        else
            op_case_give(&c, NULL);
        op_case_random(&c, &r, TACIT_F32, t % 3 ? SHAPE(n) : SCALAR, 0.001, 0.01);
        if (t % 4)
            bytes(&c, &r, b, t % 4 == 1 ? SHAPE(n) : SCALAR);
        else
            op_case_give(&c, NULL);
        op_case_random(&c, &r, TACIT_F32, SHAPE(n), -1, 1);
        if (t % 2)
            op_case_random(&c, &r, TACIT_F32, SHAPE(1, m, n), -1, 1);
        op_case_int(&c, "trans_b", trans);
        op_case_float(&c, "alpha", t % 7 ? 1 : 0.5);
        op_case_string(&c, "activation", acts[t % 5]);
        op_case_int(&c, "activation_last", t / 2 % 2);
        lower_check(&c, &r, 1, 2 | 16 | 32, 3e-6);
        op_case_end(&c);
    }
}

static void to_and_from_bytes(void **state)
{
    (void)state;
    rng r = rng_seed(84);
    static const int64_t counts[] = {1, 15, 16, 33, 1000, 70001};
    for (int t = 0; t < 24; t++) {
        int64_t n = counts[t % 6];
        tacit_dtype d = byte_type(t / 6);
        op_case c;
        op_case_begin(&c, "", "QuantizeLinear");
        op_case_random(&c, &r, TACIT_F32, SHAPE(n), -20, 20);
        op_case_random(&c, &r, TACIT_F32, SCALAR, 0.05, 0.2);
        if (t < 12)
            bytes(&c, &r, d, SCALAR);
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
        op_case_begin(&c, "", "DequantizeLinear");
        bytes(&c, &r, d, SHAPE(n));
        op_case_random(&c, &r, TACIT_F32, SCALAR, 0.05, 0.2);
        if (t < 12)
            bytes(&c, &r, d, SCALAR);
        lower_check(&c, &r, 1, 0, 1e-7);
        op_case_end(&c);
        op_case_begin(&c, "", "DynamicQuantizeLinear");
        op_case_random(&c, &r, TACIT_F32, SHAPE(n), t % 4 == 3 ? 1 : -3, t % 4 == 2 ? -1 : 5);
        lower_check(&c, &r, 3, 0, 0);
        op_case_end(&c);
    }
}

/* One scale for every place of an axis, or for every block of it. */
static void scales_along_axes(void **state)
{
    (void)state;
    rng r = rng_seed(86);
    for (int t = 0; t < 24; t++) {
        tacit_dtype d = byte_type(t);
        int64_t axis = t / 2 % 3, dims[3] = {6, 40, 70}, block = t >= 12 ? (axis == 2 ? 10 : 2) : 0;
        ir_shape x = ir_shape_of(3, dims), s = SHAPE(dims[axis]);
        if (block) {
            s = x;
            s.dims[axis] /= block;
        }
        for (int back = 0; back < 2; back++) {
            op_case c;
            op_case_begin(&c, "", back ? "DequantizeLinear" : "QuantizeLinear");
            if (back)
                bytes(&c, &r, d, x);
            else
                op_case_random(&c, &r, TACIT_F32, x, -20, 20);
            op_case_random(&c, &r, TACIT_F32, s, 0.05, 0.2);
            bytes(&c, &r, d, s);
            op_case_int(&c, "axis", axis);
            if (block)
                op_case_int(&c, "block_size", block);
            lower_check(&c, &r, 1, 0, back ? 1e-7 : 0);
            op_case_end(&c);
        }
    }
}

/* Convolutions: plain, in groups, one channel for each; every stride and zero point. */
static void convolutions(void **state)
{
    (void)state;
    static const struct {
        int64_t n, group, cg, mg, h, w, kernel, stride, dilation, pad;
    } cases[] = {{1, 1, 3, 40, 17, 19, 7, 2, 1, 3},   {2, 1, 70, 33, 9, 9, 1, 1, 1, 0},
                 {1, 1, 16, 8, 14, 14, 3, 1, 1, 1},   {2, 1, 9, 31, 11, 13, 3, 2, 2, 2},
                 {1, 3, 8, 5, 12, 9, 3, 1, 1, 1},     {2, 40, 1, 1, 10, 23, 3, 1, 1, 1},
                 {1, 33, 1, 1, 15, 15, 5, 2, 1, 2},   {3, 4, 1, 2, 8, 8, 2, 1, 1, 0},
                 {1, 1, 128, 64, 20, 20, 1, 2, 1, 0}, {1, 1, 5, 1, 1, 30, 1, 1, 1, 0}};
    rng r = rng_seed(85);
    for (int t = 0; t < 6 * (int)(sizeof cases / sizeof *cases); t++) {
        int s = t / 6, what = t % 3;
        static const char *const ops[] = {"ConvInteger", "QLinearConv", "IntConv"};
        tacit_dtype x = byte_type(t), w = byte_type(t / 2 + s), y = byte_type(t / 3);
        int64_t m = cases[s].group * cases[s].mg, k = cases[s].kernel;
        ir_shape xs = SHAPE(cases[s].n, cases[s].group * cases[s].cg, cases[s].h, cases[s].w);
        ir_shape ws = SHAPE(m, cases[s].cg, k, k);
        bool whole = t % 6 > 2;
        op_case c;
        op_case_begin(&c, what == 2 ? "tacit" : "", ops[what]);
        bytes(&c, &r, x, xs);
        if (what == 1) {
            op_case_random(&c, &r, TACIT_F32, SCALAR, 0.01, 0.02);
            bytes(&c, &r, x, SCALAR);
        }
        bytes(&c, &r, w, ws);
        if (what == 2) {
            op_case_random(&c, &r, TACIT_F32, SCALAR, 0.01, 0.02);
            bytes(&c, &r, x, SCALAR);
        }
        if (what > 0) {
            op_case_random(&c, &r, TACIT_F32, whole ? SCALAR : SHAPE(m), 0.01, 0.02);
            bytes(&c, &r, w, whole ? SCALAR : SHAPE(m));
        } else {
            bytes(&c, &r, x, SCALAR);
            bytes(&c, &r, w, whole ? SCALAR : SHAPE(m));
        }
        if (what == 2)
            op_case_random(&c, &r, TACIT_F32, SHAPE(m), -3, 3);
        if (what == 1 || (what == 2 && whole)) {
            op_case_random(&c, &r, TACIT_F32, SCALAR, 0.1, 0.3);
            bytes(&c, &r, y, SCALAR);
        }
        if (what == 1)
            op_case_random(&c, &r, TACIT_I32, SHAPE(m), -500, 500);
        op_case_int(&c, "group", cases[s].group);
        op_case_ints(&c, "strides", 2, (int64_t[]){cases[s].stride, cases[s].stride});
        op_case_ints(&c, "dilations", 2, (int64_t[]){cases[s].dilation, cases[s].dilation});
        int64_t pad = cases[s].pad;
        op_case_ints(&c, "pads", 4, (int64_t[]){pad, pad, pad, pad});
        if (what == 2)
            op_case_string(&c, "activation", t & 1 ? "relu" : "none");
        lower_check(&c, &r, 1, what == 0 ? 2 | 8 : what == 1 ? 0x1f8 : 0x1f2, 1e-6);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integer_products),  cmocka_unit_test(quantised_results),
        cmocka_unit_test(float_results),     cmocka_unit_test(to_and_from_bytes),
        cmocka_unit_test(scales_along_axes), cmocka_unit_test(convolutions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
