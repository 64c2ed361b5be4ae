/* SPDX-License-Identifier: Apache-2.0
 * Products with weights in few bits: every scheme and GGUF type through its lower rule, on every
 * ISA, against the evaluator, over random and edge shapes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "cpu/qmm.h"
#include "op/gguf.h"
#include "support/lower_check.h"

static const struct {
    int64_t m, k, n;
} shapes[] = {{1, 32, 1},   {1, 64, 33},  {2, 32, 16}, {3, 96, 31},  {4, 160, 40},
              {5, 256, 64}, {7, 512, 70}, {66, 64, 9}, {1, 1024, 97}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* Attributes and inputs every scheme has: epilogue by turns. */
static void finish(op_case *c, rng *r, const char *scheme, int64_t m, int64_t n, int turn)
{
    static const char *const acts[] = {"none", "relu", "gelu", "silu", "gelu_tanh"};
    while (c->n_in < 4)
        op_case_give(c, NULL);
    if (turn & 1)
        op_case_random(c, r, TACIT_F32, SHAPE(n), -1, 1);
    else
        op_case_give(c, NULL);
    if (turn & 2)
        op_case_random(c, r, TACIT_F32, SHAPE(m, n), -1, 1);
    op_case_string(c, "scheme", scheme);
    op_case_int(c, "n", n);
    op_case_string(c, "activation", acts[turn % 5]);
    op_case_int(c, "activation_last", turn & 4 ? 1 : 0);
}

static ir_tensor *bytes_input(op_case *c, rng *r, int64_t count)
{
    return op_case_random(c, r, TACIT_U8, SHAPE(count), 0, 256);
}

static void put_f16(ir_tensor *t, int64_t at, double value)
{
    uint16_t h = half_encode(HALF_F16, value, false);
    memcpy((char *)t->data + at, &h, 2);
}

static void every_gguf_type(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int half[2]; /* where a block keeps its f16 numbers; -1: none */
    } types[] = {{"Q4_0", {0, -1}},   {"Q4_1", {0, 2}},    {"Q5_0", {0, -1}},   {"Q5_1", {0, 2}},
                 {"Q8_0", {0, -1}},   {"Q8_1", {0, 2}},    {"Q2_K", {80, 82}},  {"Q3_K", {108, -1}},
                 {"Q4_K", {0, 2}},    {"Q5_K", {0, 2}},    {"Q6_K", {208, -1}}, {"Q8_K", {-1, -1}},
                 {"IQ4_NL", {0, -1}}, {"IQ4_XS", {0, -1}}, {"MXFP4", {-1, -1}}};
    rng r = rng_seed(71);
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int s = 0; s < SHAPES; s++) {
            const op_gguf_type *type = op_gguf_by_name(types[t].name);
            int64_t m = shapes[s].m, n = shapes[s].n;
            int64_t k = (shapes[s].k + type->elements - 1) / type->elements * type->elements;
            op_case c;
            op_case_begin(&c, "tacit", "DequantMatMul");
            op_case_random(&c, &r, TACIT_F32, SHAPE(m, k), -1, 1);
            int64_t blocks = n * k / type->elements;
            ir_tensor *w = bytes_input(&c, &r, blocks * type->bytes);
            for (int64_t b = 0; b < blocks; b++) {
                for (int h = 0; h < 2; h++)
                    if (types[t].half[h] >= 0)
                        put_f16(w, b * type->bytes + types[t].half[h], rng_range(&r, -0.01, 0.01));
                float d = (float)rng_range(&r, -0.01, 0.01);
                if (strcmp(type->name, "Q8_K") == 0)
                    memcpy((char *)w->data + b * type->bytes, &d, 4);
                if (strcmp(type->name, "MXFP4") == 0)
                    ((uint8_t *)w->data)[b * type->bytes] = (uint8_t)(120 + rng_below(&r, 8));
            }
            finish(&c, &r, "gguf", m, n, s);
            op_case_string(&c, "type", type->name);
            op_case_int(&c, "int8_activations", s % 4 != 3);
            lower_check(&c, &r, 1, 2, 2e-5 * sqrt((double)k));
            op_case_end(&c);
        }
}

static void blocks_of_bits(void **state)
{
    (void)state;
    static const int bits[] = {2, 4, 8};
    static const int blocks[] = {16, 32, 64, 128};
    rng r = rng_seed(72);
    for (int t = 0; t < 3 * 4 * 4; t++) {
        int zero_kind = t / 12, b = bits[t % 3], block = blocks[t / 3 % 4], s = t % SHAPES;
        int64_t m = shapes[s].m, n = shapes[s].n, k = shapes[s].k - (t % 5 == 4 ? 3 : 0);
        int64_t count = (k + block - 1) / block;
        op_case c;
        op_case_begin(&c, "tacit", "DequantMatMul");
        op_case_random(&c, &r, TACIT_F32, SHAPE(m, k), -1, 1);
        bytes_input(&c, &r, n * count * (block * b / 8));
        ir_tensor *scale = op_case_random(&c, &r, TACIT_F32, SHAPE(n, count), -0.02, 0.02);
        for (int64_t i = 0; t % 2 && i < n * count; i++) { /* what an f16 can say */
            float *x = (float *)scale->data + i;
            *x = half_to_f32(half_encode(HALF_F16, *x, false));
        }
        if (zero_kind == 1)
            op_case_random(&c, &r, TACIT_U8, SHAPE(n, (count * b + 7) / 8), 0, 256);
        if (zero_kind == 2)
            op_case_random(&c, &r, TACIT_F32, SHAPE(n, count), 0, 1 << b);
        finish(&c, &r, "nbits", m, n, t);
        op_case_int(&c, "bits", b);
        op_case_int(&c, "block", block);
        op_case_int(&c, "int8_activations", t % 7 != 6);
        lower_check(&c, &r, 1, 2 | 4 | 8, 2e-5 * sqrt((double)k));
        op_case_end(&c);
    }
}

static void linear_and_plain_schemes(void **state)
{
    (void)state;
    static const tacit_dtype types[] = {TACIT_I8, TACIT_U8, TACIT_I4, TACIT_U4};
    rng r = rng_seed(73);
    for (int t = 0; t < 64; t++) {
        int s = t % SHAPES, trans = t / 4 % 2, grain = t / 8 % 3;
        int64_t m = shapes[s].m, n = shapes[s].n, k = shapes[s].k;
        tacit_dtype d = types[t % 4];
        double low = d == TACIT_I8   ? -128
                     : d == TACIT_I4 ? -8
                                     : 0,
               span = d == TACIT_I8   ? 256
                      : d == TACIT_U8 ? 256
                                      : 16;
        int64_t block = grain == 2 ? 32 : k, count = (k + block - 1) / block;
        ir_shape whole = trans ? SHAPE(n, k) : SHAPE(k, n);
        ir_shape grid = grain == 0   ? SHAPE(1)
                        : grain == 1 ? SHAPE(n)
                        : trans      ? SHAPE(n, count)
                                     : SHAPE(count, n);
        op_case c;
        op_case_begin(&c, "tacit", "DequantMatMul");
        op_case_random(&c, &r, TACIT_F32, SHAPE(m, k), -1, 1);
        op_case_random(&c, &r, d, whole, low, low + span);
        op_case_random(&c, &r, TACIT_F32, grid, 0.001, 0.02);
        if (t % 5 > 2)
            op_case_random(&c, &r, d, grid, low, low + span);
        finish(&c, &r, "linear", m, n, t);
        op_case_int(&c, "block", block);
        op_case_int(&c, "trans_b", trans);
        op_case_int(&c, "int8_activations", t % 7 < 4);
        lower_check(&c, &r, 1, 2 | 4 | 8, 3e-5 * sqrt((double)k));
        op_case_end(&c);
    }
}

static void half_precision_weights(void **state)
{
    (void)state;
    rng r = rng_seed(74);
    for (int t = 0; t < 2 * SHAPES; t++) {
        int s = t % SHAPES;
        int64_t m = shapes[s].m, n = shapes[s].n, k = shapes[s].k;
        op_case c;
        op_case_begin(&c, "tacit", "DequantMatMul");
        op_case_random(&c, &r, TACIT_F32, SHAPE(m, k), -1, 1);
        op_case_random(&c, &r, t < SHAPES ? TACIT_F16 : TACIT_BF16,
                       t % 2 ? SHAPE(k, n) : SHAPE(n, k), -1, 1);
        finish(&c, &r, "float", m, n, t);
        op_case_int(&c, "trans_b", t % 2 ? 0 : 1);
        lower_check(&c, &r, 1, 2, 2e-6 * sqrt((double)k));
        op_case_end(&c);
    }
}

/* A row that is not finite must not come out finite. */
static void nothing_finite_from_nan(void **state)
{
    (void)state;
    rng r = rng_seed(75);
    op_case c;
    op_case_begin(&c, "tacit", "DequantMatMul");
    ir_tensor *x = op_case_random(&c, &r, TACIT_F32, SHAPE(3, 64), -1, 1);
    ((float *)x->data)[70] = NAN;
    bytes_input(&c, &r, 5 * 2 * 32);
    op_case_random(&c, &r, TACIT_F32, SHAPE(5, 2), 0.01, 0.02);
    finish(&c, &r, "nbits", 3, 5, 0);
    op_case_int(&c, "bits", 8);
    op_case_int(&c, "block", 32);
    op_case_int(&c, "int8_activations", 1);
    lower_check(&c, &r, 1, 2 | 4, 1e-4);
    for (int j = 0; j < 5; j++)
        assert_true(isnan(ir_load_f64(TACIT_F32, c.out[0].data, 5 + j)));
    op_case_end(&c);
}

/* Rows of every kind: zeros, numbers so small that 127 over them is infinite, no numbers. */
static float row_element(rng *r, int64_t group, int64_t i)
{
    float x = (float)rng_range(r, -1, 1);
    switch (group % 6) {
    case 1:
        return 0;
    case 2:
        return x * 1e-38f;
    case 3:
        return i % 32 == 7 ? INFINITY : x;
    case 4:
        return i % 32 == 20 ? NAN : x;
    case 5:
        return x * 1e30f;
    default:
        return x;
    }
}

static void check_rows(const cpu_qdot_rows_args *a)
{
    for (int64_t i = 0; i < a->m; i++)
        for (int64_t g = 0; g < a->groups; g++) {
            const int8_t *q = a->q + i * a->q_row + g * CPU_QGROUP;
            const int32_t *halves = a->halves + 2 * (i * a->groups + g);
            float scale = a->scale[i * a->groups + g], most = 0;
            bool finite = true;
            int sums[2] = {0, 0};
            for (int64_t k = 0; k < CPU_QGROUP; k++) {
                int64_t at = g * CPU_QGROUP + k;
                float x = at < a->k ? a->x[i * a->x_row + at] : 0;
                finite = finite && isfinite(x);
                most = fabsf(x) > most ? fabsf(x) : most;
                sums[k / (CPU_QGROUP / 2)] += q[k];
            }
            assert_int_equal(halves[0], sums[0]);
            assert_int_equal(halves[1], sums[1]);
            if (!finite) {
                assert_false(isfinite(scale));
                continue;
            }
            assert_true(scale == most / 127.0f);
            float factor = most > 0 ? 127.0f / most : 0;
            for (int64_t k = 0; isfinite(factor) && k < CPU_QGROUP; k++) {
                int64_t at = g * CPU_QGROUP + k;
                float x = at < a->k ? a->x[i * a->x_row + at] : 0;
                assert_int_equal(q[k], (int)rintf(x * factor));
            }
        }
}

static void rows_become_bytes(void **state)
{
    (void)state;
    enum { M = 3, K = 13 * CPU_QGROUP };
    static float x[M * K];
    cpu_features all = cpu_detect();
    rng r = rng_seed(76);
    for (int64_t k = 5; k <= K; k += 37)
        for (int level = 0; level < 3; level++) {
            cpu_features cpu = all;
            cpu.isa = level == 0                         ? CPU_PORTABLE
                      : level == 1 && all.isa > CPU_AVX2 ? CPU_AVX2
                                                         : cpu.isa;
            int8_t q[M * K] = {0};
            float scale[M * (K / CPU_QGROUP)];
            int32_t halves[2 * M * (K / CPU_QGROUP)];
            for (int64_t i = 0; i < M * k; i++)
                x[i] = row_element(&r, i % k / CPU_QGROUP, i % k);
            cpu_qdot_rows_args a = {.x = x,
                                    .q = q,
                                    .scale = scale,
                                    .halves = halves,
                                    .m = M,
                                    .k = k,
                                    .x_row = k,
                                    .q_row = K,
                                    .groups = (k + CPU_QGROUP - 1) / CPU_QGROUP,
                                    .tile_rows = 2};
            CPU_QMM_PICK(&cpu, cpu_qdot_rows)(&a, 1, 2);
            CPU_QMM_PICK(&cpu, cpu_qdot_rows)(&a, 0, 1);
            check_rows(&a);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_gguf_type),          cmocka_unit_test(blocks_of_bits),
        cmocka_unit_test(linear_and_plain_schemes), cmocka_unit_test(half_precision_weights),
        cmocka_unit_test(nothing_finite_from_nan),  cmocka_unit_test(rows_become_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
