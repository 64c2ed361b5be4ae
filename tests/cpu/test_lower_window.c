/* SPDX-License-Identifier: Apache-2.0
 * Lower rules of convolution and pooling against their evaluators. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/case_window.h"
#include "support/lower_check.h"

static void check_conv(rng *r, const case_window *w, int64_t n, int64_t group, int64_t cg,
                       int64_t mg, int64_t h, int64_t width, uint32_t variant, uint32_t known,
                       double eps)
{
    bool fused = variant & 1;
    op_case c;
    op_case_begin(&c, fused ? "tacit" : "", "Conv");
    op_case_random(&c, r, TACIT_F32, SHAPE(n, group * cg, h, width), -1, 1);
    op_case_random(&c, r, TACIT_F32, SHAPE(group * mg, cg, w->kernel[0], w->kernel[1]), -1, 1);
    if (variant & 2)
        op_case_random(&c, r, TACIT_F32, SHAPE(group * mg), -1, 1);
    else if (fused)
        op_case_give(&c, NULL);
    if (fused && variant & 4)
        op_case_random(&c, r, TACIT_F32,
                       SHAPE(n, group * mg, case_window_out(w, 0, h), case_window_out(w, 1, width)),
                       -1, 1);
    case_window_set(&c, w, 2);
    op_case_int(&c, "group", group);
    if (fused)
        case_activation(&c, variant >> 3);
    lower_check(&c, r, 1, known, eps);
    op_case_end(&c);
}

static void convolutions(void **state)
{
    (void)state;
    rng r = rng_seed(50);
    for (uint32_t round = 0; round < 96; round++) {
        case_window w = case_window_random(&r);
        int64_t h = 9 + (int64_t)rng_below(&r, 8), width = 9 + (int64_t)rng_below(&r, 40);
        int64_t group = rng_below(&r, 4) ? 1 : 3;
        check_conv(&r, &w, 1 + (int64_t)rng_below(&r, 2), group, 1 + (int64_t)rng_below(&r, 20),
                   1 + (int64_t)rng_below(&r, 30), h, width, round, round & 8 ? 2 : 0, 2e-5);
    }
}

static void pointwise_and_deep(void **state)
{
    (void)state;
    rng r = rng_seed(51);
    const case_window point = {{1, 1}, {1, 1}, {1, 1}, {0}},
                      strided = {{1, 1}, {2, 2}, {1, 1}, {0}};
    const case_window three = {{3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}};
    for (uint32_t variant = 0; variant < 4; variant++) {
        check_conv(&r, &point, 2, 1, 70, 40, 7, 7, variant, variant & 2, 2e-5);
        check_conv(&r, &strided, 2, 1, 70, 40, 8, 15, variant, variant & 2, 2e-5);
        check_conv(&r, &three, 1, 1, 130, 50, 7, 7, variant, variant & 2, 2e-5);
        check_conv(&r, &point, 1, 1, 1024, 30, 7, 7, variant, variant & 2, 2e-5);
    }
}

/* Enough channels and pixels for Winograd, with every padding and ragged edges. */
static void three_by_three(void **state)
{
    (void)state;
    rng r = rng_seed(55);
    for (uint32_t round = 0; round < 24; round++) {
        case_window w = {{3, 3}, {1, 1}, {1, 1}, {0}};
        for (int i = 0; i < 4; i++)
            w.pads[i] = (int64_t)rng_below(&r, 3);
        check_conv(&r, &w, 1, 1, 32 + (int64_t)rng_below(&r, 40), 32 + (int64_t)rng_below(&r, 20),
                   14 + (int64_t)rng_below(&r, 9), 14 + (int64_t)rng_below(&r, 70), round * 5, 2,
                   5e-4);
    }
}

static void depthwise(void **state)
{
    (void)state;
    rng r = rng_seed(52);
    for (uint32_t round = 0; round < 64; round++) {
        case_window w = case_window_random(&r);
        int64_t h = 9 + (int64_t)rng_below(&r, 8), width = 9 + (int64_t)rng_below(&r, 60);
        check_conv(&r, &w, 1 + (int64_t)rng_below(&r, 2), 5, 1, 1 + (int64_t)rng_below(&r, 2), h,
                   width, round, round & 8 ? 2 : 0, 2e-5);
    }
}

static void one_spatial_axis(void **state)
{
    (void)state;
    rng r = rng_seed(53);
    for (int round = 0; round < 12; round++) {
        case_window w = case_window_random(&r);
        op_case c;
        int64_t group = round % 3 == 0 ? 4 : 1;
        op_case_begin(&c, "", "Conv");
        op_case_random(&c, &r, TACIT_F32, SHAPE(2, 4, 50), -1, 1);
        op_case_random(&c, &r, TACIT_F32, SHAPE(8, 4 / group, w.kernel[0]), -1, 1);
        case_window_set(&c, &w, 1);
        op_case_int(&c, "group", group);
        lower_check(&c, &r, 1, 0, 1e-5);
        op_case_end(&c);
    }
}

static void pooling(void **state)
{
    (void)state;
    rng r = rng_seed(54);
    for (int round = 0; round < 60; round++) {
        case_window w = case_window_random(&r);
        bool max = round & 1;
        for (int i = 0; i < 4; i++) /* a window always meets the image */
            w.pads[i] = w.pads[i] < w.kernel[i & 1] ? w.pads[i] : w.kernel[i & 1] - 1;
        op_case c;
        op_case_begin(&c, "", max ? "MaxPool" : "AveragePool");
        op_case_random(&c, &r, TACIT_F32,
                       SHAPE(2, 5, 9 + (int64_t)rng_below(&r, 9), 9 + (int64_t)rng_below(&r, 70)),
                       -1, 1);
        case_window_set(&c, &w, 2);
        op_case_int(&c, "ceil_mode", round >> 1 & 1);
        if (!max)
            op_case_int(&c, "count_include_pad", round >> 2 & 1);
        lower_check(&c, &r, 1, 0, 1e-5);
        op_case_end(&c);
    }
}

/* Ties, infinities and NaNs: the place tells which one was taken. */
static void pooling_with_places(void **state)
{
    (void)state;
    rng r = rng_seed(55);
    for (int round = 0; round < 60; round++) {
        case_window w = case_window_random(&r);
        for (int i = 0; i < 4; i++)
            w.pads[i] = w.pads[i] < w.kernel[i & 1] ? w.pads[i] : w.kernel[i & 1] - 1;
        w.dilation[0] = w.dilation[1] = 1;
        op_case c;
        op_case_begin(&c, "", "MaxPool");
        ir_tensor *x = op_case_random(&c, &r, TACIT_F32,
                                      SHAPE(2, 3, 9 + (int64_t)rng_below(&r, 9),
                                            9 + (int64_t)rng_below(&r, round % 9 ? 70 : 3000)),
                                      -1, 1);
        float *v = x->data;
        for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++) {
            uint64_t what = rng_below(&r, 40);
            v[i] = what == 0 ? NAN : what == 1 ? -INFINITY : what < 20 ? 0.5f : v[i];
        }
        case_window_set(&c, &w, 2);
        op_case_int(&c, "ceil_mode", round >> 1 & 1);
        op_case_int(&c, "storage_order", round & 1);
        lower_check(&c, &r, 2, 0, 0);
        op_case_end(&c);
    }
}

static void pool_gradients(void **state)
{
    (void)state;
    rng r = rng_seed(53);
    static const case_window tiled = {{2, 2}, {2, 2}, {1, 1}, {0, 0, 0, 0}};
    for (int round = 0; round < 60; round++) {
        case_window w = round < 4 ? tiled : case_window_random(&r);
        bool max = round & 1;
        int64_t h = 8 + 2 * (int64_t)rng_below(&r, 5), width = 8 + 2 * (int64_t)rng_below(&r, 30);
        for (int i = 0; i < 4; i++)
            w.pads[i] = w.pads[i] < w.kernel[i & 1] ? w.pads[i] : w.kernel[i & 1] - 1;
        op_case c;
        op_case_begin(&c, "tacit", max ? "MaxPoolGrad" : "AveragePoolGrad");
        op_case_random(&c, &r, TACIT_F32, SHAPE(2, 5, h, width), -1, 1);
        op_case_random(&c, &r, TACIT_F32,
                       SHAPE(2, 5, case_window_out(&w, 0, h), case_window_out(&w, 1, width)), -1,
                       1);
        case_window_set(&c, &w, 2);
        if (!max)
            op_case_int(&c, "count_include_pad", round >> 2 & 1);
        lower_check(&c, &r, 1, 0, 1e-5);
        op_case_end(&c);
    }
}

/* ConvTranspose, and Col2Im, its second half: strides beside each other and over each other. */
static void windows_on_the_result(void **state)
{
    (void)state;
    rng r = rng_seed(29);
    for (int round = 0; round < 40; round++) {
        case_window w = case_window_random(&r);
        for (int i = 0; i < 2; i++)
            w.stride[i] = 1 + (int64_t)rng_below(&r, 3);
        int64_t group = round % 3 == 2 ? 3 : 1, cg = 1 + (int64_t)rng_below(&r, 9);
        int64_t mg = 1 + (int64_t)rng_below(&r, 5), h = 3 + (int64_t)rng_below(&r, 9);
        int64_t width = 3 + (int64_t)rng_below(&r, 40);
        op_case c;
        op_case_begin(&c, "", "ConvTranspose");
        op_case_random(&c, &r, TACIT_F32, SHAPE(2, group * cg, h, width), -1, 1);
        op_case_random(&c, &r, TACIT_F32, SHAPE(group * cg, mg, w.kernel[0], w.kernel[1]), -1, 1);
        if (round & 1)
            op_case_random(&c, &r, TACIT_F32, SHAPE(group * mg), -1, 1);
        case_window_set(&c, &w, 2);
        op_case_int(&c, "group", group);
        if (round & 2)
            op_case_ints(&c, "output_padding", 2, (int64_t[]){w.stride[0] - 1, w.stride[1] - 1});
        lower_check(&c, &r, 1, round & 4 ? 2 : 0, 1e-5);
        op_case_end(&c);

        int64_t in[2] = {h + 12, width + 12};
        op_case_begin(&c, "", "Col2Im");
        op_case_random(&c, &r, TACIT_F32,
                       SHAPE(2, 3 * w.kernel[0] * w.kernel[1],
                             case_window_out(&w, 0, in[0]) * case_window_out(&w, 1, in[1])),
                       -1, 1);
        op_case_i64(&c, TACIT_I64, SHAPE(2), in);
        op_case_i64(&c, TACIT_I64, SHAPE(2), w.kernel);
        op_case_ints(&c, "strides", 2, w.stride);
        op_case_ints(&c, "dilations", 2, w.dilation);
        op_case_ints(&c, "pads", 4, w.pads);
        lower_check(&c, &r, 1, 6, 1e-5);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(pooling_with_places),
        cmocka_unit_test(pool_gradients),
        cmocka_unit_test(pointwise_and_deep),
        cmocka_unit_test(depthwise),
        cmocka_unit_test(three_by_three),
        cmocka_unit_test(one_spatial_axis),
        cmocka_unit_test(pooling),
        cmocka_unit_test(windows_on_the_result),
    };
    return cmocka_run_group_tests_name("lowering of windows", tests, NULL, NULL);
}
