/* SPDX-License-Identifier: Apache-2.0
 * Lower rules of convolution and pooling over three spatial axes against their evaluators. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/case_window.h"
#include "support/lower_check.h"

typedef struct volume {
    int64_t kernel[3], stride[3], dilation[3], pads[6];
} volume;

static volume volume_random(rng *r)
{
    volume v;
    for (int i = 0; i < 3; i++) {
        v.kernel[i] = 1 + (int64_t)rng_below(r, 3);
        v.stride[i] = 1 + (int64_t)rng_below(r, 3);
        v.dilation[i] = 1 + (int64_t)rng_below(r, 2);
        uint64_t reach = (uint64_t)((v.kernel[i] - 1) * v.dilation[i]);
        v.pads[i] = (int64_t)rng_below(r, reach + 1);
        v.pads[i + 3] = (int64_t)rng_below(r, reach + 1);
    }
    return v;
}

static void volume_set(op_case *c, const volume *v)
{
    op_case_ints(c, "kernel_shape", 3, v->kernel);
    op_case_ints(c, "strides", 3, v->stride);
    op_case_ints(c, "dilations", 3, v->dilation);
    op_case_ints(c, "pads", 6, v->pads);
}

static int64_t volume_out(const volume *v, int i, int64_t in)
{
    int64_t room = in + v->pads[i] + v->pads[i + 3] - (v->kernel[i] - 1) * v->dilation[i] - 1;
    return room / v->stride[i] + 1;
}

/* in: images, groups, input and output channels of a group, depth, height, width. */
static void check_conv(rng *r, const volume *v, const int64_t in[7], uint32_t variant,
                       uint32_t known, double eps)
{
    bool fused = variant & 1;
    int64_t m = in[1] * in[3];
    op_case c;
    op_case_begin(&c, fused ? "tacit" : "", "Conv");
    op_case_random(&c, r, TACIT_F32, SHAPE(in[0], in[1] * in[2], in[4], in[5], in[6]), -1, 1);
    op_case_random(&c, r, TACIT_F32, SHAPE(m, in[2], v->kernel[0], v->kernel[1], v->kernel[2]), -1,
                   1);
    if (variant & 2)
        op_case_random(&c, r, TACIT_F32, SHAPE(m), -1, 1);
    else if (fused)
        op_case_give(&c, NULL);
    if (fused && variant & 4)
        op_case_random(&c, r, TACIT_F32,
                       SHAPE(in[0], m, volume_out(v, 0, in[4]), volume_out(v, 1, in[5]),
                             volume_out(v, 2, in[6])),
                       -1, 1);
    volume_set(&c, v);
    op_case_int(&c, "group", in[1]);
    if (fused)
        case_activation(&c, variant >> 3);
    lower_check(&c, r, 1, known, eps);
    op_case_end(&c);
}

static void convolutions(void **state)
{
    (void)state;
    rng r = rng_seed(60);
    for (uint32_t round = 0; round < 64; round++) {
        volume v = volume_random(&r);
        const int64_t in[7] = {1 + (int64_t)rng_below(&r, 2), rng_below(&r, 4) ? 1 : 3,
                               1 + (int64_t)rng_below(&r, 9), 1 + (int64_t)rng_below(&r, 30),
                               5 + (int64_t)rng_below(&r, 4), 5 + (int64_t)rng_below(&r, 6),
                               5 + (int64_t)rng_below(&r, 30)};
        bool known = round & 8; /* Winograd's transforms need known weights, and round more */
        check_conv(&r, &v, in, round, known ? 2 : 0, known ? 2e-4 : 2e-5);
    }
}

/* Pointwise, strided and padded pointwise, one plane, kernels larger than the volume, few pixels,
 * one channel a group. */
static void edges(void **state)
{
    (void)state;
    rng r = rng_seed(61);
    const volume point = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}},
                 strided = {{1, 1, 1}, {2, 2, 2}, {1, 1, 1}, {0}},
                 bordered = {{1, 1, 1}, {1, 2, 1}, {1, 1, 1}, {1, 0, 2, 0, 1, 1}},
                 around = {{3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}},
                 large = {{5, 5, 7}, {1, 1, 1}, {1, 1, 1}, {2, 2, 3, 2, 2, 3}},
                 deep = {{3, 1, 1}, {1, 1, 1}, {2, 1, 1}, {2, 0, 0, 2, 0, 0}};
    const volume *all[] = {&point, &strided, &bordered, &around, &large, &deep};
    const int64_t sizes[][7] = {{2, 1, 20, 40, 4, 7, 9},
                                {1, 1, 33, 35, 1, 3, 5},
                                {1, 1, 70, 40, 2, 2, 2},
                                {2, 6, 1, 2, 3, 6, 17}};
    for (uint32_t i = 0; i < 6; i++)
        for (uint32_t s = 0; s < 4; s++)
            for (uint32_t variant = 0; variant < 4; variant++)
                check_conv(&r, all[i], sizes[s], variant * 5, variant & 2, 1e-4);
}

/* Enough channels and pixels for Winograd: planes with every padding and ragged edges; depths with
 * strides and dilations. */
static void three_by_three(void **state)
{
    (void)state;
    rng r = rng_seed(62);
    for (uint32_t round = 0; round < 24; round++) {
        volume v = volume_random(&r);
        for (int i = 1; i < 3; i++) {
            v.kernel[i] = 3;
            v.stride[i] = v.dilation[i] = 1;
            v.pads[i] = (int64_t)rng_below(&r, 3);
            v.pads[i + 3] = (int64_t)rng_below(&r, 3);
        }
        const int64_t in[7] = {1,
                               1,
                               16 + (int64_t)rng_below(&r, 30),
                               16 + (int64_t)rng_below(&r, 25),
                               5 + (int64_t)rng_below(&r, 3),
                               8 + (int64_t)rng_below(&r, 9),
                               8 + (int64_t)rng_below(&r, 30)};
        check_conv(&r, &v, in, round * 5, 2, 5e-4);
    }
}

static void pooling(void **state)
{
    (void)state;
    rng r = rng_seed(63);
    for (int round = 0; round < 60; round++) {
        volume v = volume_random(&r);
        bool max = round & 1;
        for (int i = 0; i < 6; i++) /* a window always meets the volume */
            v.pads[i] = v.pads[i] < v.kernel[i % 3] ? v.pads[i] : v.kernel[i % 3] - 1;
        op_case c;
        op_case_begin(&c, "", max ? "MaxPool" : "AveragePool");
        op_case_random(&c, &r, TACIT_F32,
                       SHAPE(2, 3, 5 + (int64_t)rng_below(&r, 6), 5 + (int64_t)rng_below(&r, 9),
                             5 + (int64_t)rng_below(&r, 40)),
                       -1, 1);
        volume_set(&c, &v);
        op_case_int(&c, "ceil_mode", round >> 1 & 1);
        if (!max)
            op_case_int(&c, "count_include_pad", round >> 2 & 1);
        lower_check(&c, &r, max && round % 3 == 0 ? 2 : 1, 0, 1e-5);
        op_case_end(&c);
    }
}

static void windows_on_the_result(void **state)
{
    (void)state;
    rng r = rng_seed(64);
    for (int round = 0; round < 40; round++) {
        volume v = volume_random(&r);
        int64_t group = round % 3 == 2 ? 3 : 1, cg = 1 + (int64_t)rng_below(&r, 9);
        int64_t mg = 1 + (int64_t)rng_below(&r, 5);
        op_case c;
        op_case_begin(&c, "", "ConvTranspose");
        op_case_random(&c, &r, TACIT_F32,
                       SHAPE(2, group * cg, 3 + (int64_t)rng_below(&r, 4),
                             3 + (int64_t)rng_below(&r, 5), 3 + (int64_t)rng_below(&r, 30)),
                       -1, 1);
        op_case_random(&c, &r, TACIT_F32,
                       SHAPE(group * cg, mg, v.kernel[0], v.kernel[1], v.kernel[2]), -1, 1);
        if (round & 1)
            op_case_random(&c, &r, TACIT_F32, SHAPE(group * mg), -1, 1);
        volume_set(&c, &v);
        op_case_int(&c, "group", group);
        if (round & 2)
            op_case_ints(&c, "output_padding", 3,
                         (int64_t[]){v.stride[0] - 1, v.stride[1] - 1, v.stride[2] - 1});
        lower_check(&c, &r, 1, round & 4 ? 2 : 0, 1e-5);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),          cmocka_unit_test(edges),
        cmocka_unit_test(three_by_three),        cmocka_unit_test(pooling),
        cmocka_unit_test(windows_on_the_result),
    };
    return cmocka_run_group_tests_name("lowering of windows in volumes", tests, NULL, NULL);
}
