/* SPDX-License-Identifier: Apache-2.0
 * Softmax and normalisation kernels against double oracles. */
#include "cpu/kernel_test.h"

#include "cpu/rows.h"

static void check_softmax(rng *r, cpu_isa isa, int64_t outer, int64_t length, int64_t inner,
                          bool log_of)
{
    int64_t count = outer * length * inner;
    float *x = test_floats(r, count, -30, 30), *y = test_floats(r, count + 1, 777, 777);
    cpu_softmax_args p = {x, y, outer, length, inner, 3, log_of};
    uint32_t tiles =
        inner == 1 ? (uint32_t)((outer + 2) / 3)
                   : (uint32_t)(outer * ((inner + CPU_SOFTMAX_COLUMNS - 1) / CPU_SOFTMAX_COLUMNS));
    for (uint32_t t = tiles; t-- > 0;)
        CPU_PICK(isa, cpu_softmax_f32)(&p, t, t + 1);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            double top = -INFINITY, sum = 0;
            for (int64_t l = 0; l < length; l++)
                top = fmax(top, x[(o * length + l) * inner + i]);
            for (int64_t l = 0; l < length; l++)
                sum += exp(x[(o * length + l) * inner + i] - top);
            for (int64_t l = 0; l < length; l++) {
                int64_t at = (o * length + l) * inner + i;
                double want = log_of ? x[at] - top - log(sum) : exp(x[at] - top) / sum;
                test_close(cpu_isa_name(isa), at, y[at], want, 1e-6);
            }
        }
    assert_true(y[count] == 777);
    free(x), free(y);
}

static void softmax_over_any_axis(void **state)
{
    (void)state;
    rng r = rng_seed(9);
    const int64_t lengths[] = {1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 1000};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int log_of = 0; log_of < 2; log_of++) {
            check_softmax(&r, isa, 1, lengths[i], 1, log_of);
            check_softmax(&r, isa, 8, lengths[i], 1, log_of);
            check_softmax(&r, isa, 3, lengths[i], 5, log_of);
            check_softmax(&r, isa, 2, lengths[i], 133, log_of);
        }
}

static void check_norm(rng *r, cpu_isa isa, int64_t rows, int64_t n, uint32_t variant)
{
    bool rms = variant & 1, residual = variant & 2, sum = variant & 4, affine = variant & 8;
    float *x = test_floats(r, rows * n, -3, 5), *other = test_floats(r, rows * n, -3, 3);
    float *scale = test_floats(r, n, -2, 2), *bias = test_floats(r, n, -2, 2);
    float *y = test_floats(r, rows * n + 1, 777, 777), *s = test_floats(r, rows * n, 0, 0);
    cpu_norm_args p = {.x = x,
                       .residual = residual ? other : NULL,
                       .scale = affine ? scale : NULL,
                       .bias = affine && !rms ? bias : NULL,
                       .y = y,
                       .sum = sum ? s : NULL,
                       .rows = rows,
                       .length = n,
                       .tile_rows = 2,
                       .epsilon = 1e-5f,
                       .rms = rms};
    for (uint32_t t = (uint32_t)((rows + 1) / 2); t-- > 0;)
        CPU_PICK(isa, cpu_norm_f32)(&p, t, t + 1);
    /* Several rows side by side, then fewer, then one by one: the same bits. */
    float *all = test_floats(r, rows * n + 1, 777, 777);
    p.y = all;
    p.tile_rows = rows;
    CPU_PICK(isa, cpu_norm_f32)(&p, 0, 1);
    assert_memory_equal(all, y, (size_t)(rows * n + 1) * sizeof *y);
    free(all);
    for (int64_t i = 0; i < rows; i++) {
        double mean = 0, variance = 0;
        for (int64_t j = 0; j < n; j++)
            mean += x[i * n + j] + (residual ? other[i * n + j] : 0.0);
        mean = rms ? 0 : mean / (double)n;
        for (int64_t j = 0; j < n; j++) {
            double v = x[i * n + j] + (residual ? other[i * n + j] : 0.0);
            variance += (v - mean) * (v - mean) / (double)n;
        }
        for (int64_t j = 0; j < n; j++) {
            double v = x[i * n + j] + (residual ? other[i * n + j] : 0.0);
            double want = (v - mean) / sqrt(variance + p.epsilon);
            if (affine)
                want = want * scale[j] + (rms ? 0 : bias[j]);
            test_close(cpu_isa_name(isa), j, y[i * n + j], want, 5e-6);
            if (sum)
                test_close("sum", j, s[i * n + j], v, 1e-6);
        }
    }
    assert_true(y[rows * n] == 777);
    free(x), free(other), free(scale), free(bias), free(y), free(s);
}

static void normalisation_of_rows(void **state)
{
    (void)state;
    rng r = rng_seed(10);
    const int64_t lengths[] = {1, 3, 8, 16, 19, 63, 64, 65, 130, 768, 2048};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (uint32_t variant = 0; variant < 16; variant++)
            check_norm(&r, isa, 19, lengths[i], variant);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_over_any_axis),
        cmocka_unit_test(normalisation_of_rows),
    };
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
