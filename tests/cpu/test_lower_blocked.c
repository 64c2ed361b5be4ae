/* SPDX-License-Identifier: Apache-2.0
 * Lower rules over blocked channels against their evaluators, on every ISA. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/blocked.h"
#include "op/blocked.h"
#include "support/case_window.h"
#include "support/lower_check.h"

typedef struct conv_case {
    case_window w;
    int64_t n, group, cg, mg, height, width; /* cg, mg: channels of a group */
    uint32_t variant;                        /* 1 bias, 2 residual, 4 last, 24: activation */
    uint32_t known;
    bool plain; /* the input is [N, C, H, W] */
    double eps;
} conv_case;

static void check_conv(rng *r, const conv_case *k)
{
    op_case c;
    int64_t channels = k->group * k->cg, out = k->group * k->mg;
    op_case_begin(&c, "tacit", "BlockedConv");
    if (k->plain)
        op_case_random(&c, r, TACIT_F32, SHAPE(k->n, channels, k->height, k->width), -1, 1);
    else
        op_case_random(&c, r, TACIT_F32,
                       SHAPE(k->n, op_blocks(channels), k->height, k->width, OP_BLOCK), -1, 1);
    op_case_random(&c, r, TACIT_F32, SHAPE(out, k->cg, k->w.kernel[0], k->w.kernel[1]), -1, 1);
    if (k->variant & 1)
        op_case_random(&c, r, TACIT_F32, SHAPE(out), -1, 1);
    else
        op_case_give(&c, NULL);
    if (k->variant & 2)
        op_case_random(&c, r, TACIT_F32,
                       SHAPE(k->n, op_blocks(out), case_window_out(&k->w, 0, k->height),
                             case_window_out(&k->w, 1, k->width), OP_BLOCK),
                       -1, 1);
    case_window_set(&c, &k->w, 2);
    op_case_int(&c, "group", k->group);
    op_case_int(&c, "channels", channels);
    case_activation(&c, k->variant >> 2);
    lower_check(&c, r, 1, k->known, k->eps);
    op_case_end(&c);
}

static int64_t between(rng *r, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(r, (uint64_t)(high - low) + 1);
}

static void convolutions(void **state)
{
    (void)state;
    rng r = rng_seed(70);
    for (uint32_t round = 0; round < 64; round++) {
        conv_case k = {.w = case_window_random(&r),
                       .n = between(&r, 1, 2),
                       .group = 1,
                       .cg = between(&r, 1, 70),
                       .mg = between(&r, 1, 70),
                       .height = between(&r, 9, 16),
                       .width = between(&r, 9, 40),
                       .variant = round % 32,
                       .known = round & 32 ? 6 : 0,
                       .eps = 3e-5};
        check_conv(&r, &k);
    }
}

static void first_layers(void **state)
{
    (void)state;
    rng r = rng_seed(71);
    for (uint32_t round = 0; round < 16; round++) {
        conv_case k = {.w = case_window_random(&r),
                       .n = between(&r, 1, 2),
                       .group = 1,
                       .cg = between(&r, 1, 4),
                       .mg = between(&r, 10, 70),
                       .height = between(&r, 9, 30),
                       .width = between(&r, 9, 60),
                       .variant = round * 7 % 32,
                       .known = round & 1 ? 6 : 0,
                       .plain = true,
                       .eps = 2e-5};
        check_conv(&r, &k);
    }
}

/* Every number of pixels a register tile can have, rows that fold, and groups. */
static void tiles_and_groups(void **state)
{
    (void)state;
    rng r = rng_seed(72);
    const case_window point = {{1, 1}, {1, 1}, {1, 1}, {0}},
                      strided = {{1, 1}, {2, 2}, {1, 1}, {0}};
    const case_window three = {{3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}};
    for (int64_t width = 1; width <= 15; width++) {
        conv_case k = {.w = point,
                       .n = 1,
                       .group = 1,
                       .cg = 20,
                       .mg = 48,
                       .height = 5,
                       .width = width,
                       .variant = (uint32_t)width,
                       .known = 6,
                       .eps = 2e-5};
        check_conv(&r, &k);
        k.w = strided;
        check_conv(&r, &k);
        k.w = three;
        check_conv(&r, &k);
    }
    for (uint32_t group = 2; group < 4; group++) {
        conv_case k = {.w = three,
                       .n = 2,
                       .group = group,
                       .cg = 32,
                       .mg = 16,
                       .height = 7,
                       .width = 7,
                       .variant = 9 + group,
                       .known = 6,
                       .eps = 2e-5};
        check_conv(&r, &k);
    }
    conv_case large = {.w = point,
                       .n = 1,
                       .group = 1,
                       .cg = 300,
                       .mg = 70,
                       .height = 40,
                       .width = 27,
                       .variant = 15,
                       .known = 6,
                       .eps = 5e-5};
    check_conv(&r, &large);
}

/* Shapes that take paired terms where the processor suits: one block of rows or several, sums in
 * one block or several, channels that do not fill their last block. */
static void long_pointwise_sums(void **state)
{
    (void)state;
    rng r = rng_seed(76);
    case_window point = {{1, 1}, {1, 1}, {1, 1}, {0}};
    for (uint32_t round = 0; round < 32; round++) {
        conv_case k = {.w = point,
                       .n = 1,
                       .group = 1,
                       .cg = between(&r, 100, round % 4 ? 300 : 900),
                       .mg = between(&r, 95, 200),
                       .height = between(&r, 3, 9),
                       .width = between(&r, 5, round % 3 ? 9 : 40),
                       .variant = round,
                       .known = 6,
                       .eps = 5e-5};
        check_conv(&r, &k);
    }
}

/* The same with windows: what lies under each tap is copied first. Strides, dilations, padding that
 * leaves taps beside the image, one tap that takes some of the pixels. */
static void long_sums_over_windows(void **state)
{
    (void)state;
    rng r = rng_seed(80);
    for (uint32_t round = 0; round < 48; round++) {
        conv_case k = {.w = {{between(&r, 1, 3), between(&r, 1, 5)},
                             {between(&r, 1, 3), between(&r, 1, 2)},
                             {between(&r, 1, 2), between(&r, 1, 3)},
                             {0}},
                       .n = 1,
                       .group = 1,
                       .cg = OP_BLOCK * between(&r, 2, 8),
                       .mg = between(&r, 96, 150),
                       .height = between(&r, 5, 17),
                       .width = between(&r, 13, 20),
                       .variant = round,
                       .known = 6,
                       .eps = 5e-5};
        if (round % 4 == 0)
            k.w.kernel[0] = k.w.kernel[1] = 1, k.cg = OP_BLOCK * 8, k.w.stride[0] = 2;
        for (int i = 0; i < 4; i++)
            k.w.pads[i] = between(&r, 0, k.w.dilation[i % 2] * (k.w.kernel[i % 2] - 1));
        check_conv(&r, &k);
    }
}

/* What lies under each tap, by its definition. */
static void images_under_taps(void **state)
{
    (void)state;
    enum { BLOCKS = 2 };
    rng r = rng_seed(81);
    for (int round = 0; round < 60; round++) {
        cpu_blocked_taps_args a = {0};
        for (int i = 0; i < 2; i++) {
            a.in[i] = between(&r, 1, 9), a.kernel[i] = between(&r, 1, 4);
            a.stride[i] = between(&r, 1, 3), a.dilation[i] = between(&r, 1, 3);
            a.pad[i] = between(&r, 0, 9), a.out[i] = between(&r, 1, 9);
        }
        int64_t taps = a.kernel[0] * a.kernel[1], image = a.in[0] * a.in[1] * OP_BLOCK;
        int64_t count = BLOCKS * taps * a.out[0] * a.out[1] * OP_BLOCK, at = 0;
        float *x = malloc((size_t)(BLOCKS * image) * sizeof *x);
        float *y = malloc((size_t)count * sizeof *y);
        for (int64_t i = 0; i < BLOCKS * image; i++)
            x[i] = (float)i + 1;
        memset(y, 0xff, (size_t)count * sizeof *y);
        a.x = x, a.y = y;
        for (uint32_t t = (uint32_t)(BLOCKS * taps); t-- > 0;)
            cpu_blocked_taps(&a, t, t + 1);
        for (int64_t b = 0; b < BLOCKS * taps; b++)
            for (int64_t i = 0; i < a.out[0]; i++)
                for (int64_t j = 0; j < a.out[1] * OP_BLOCK; j++) {
                    int64_t tap = b % taps, row = i * a.stride[0] - a.pad[0];
                    int64_t column = j / OP_BLOCK * a.stride[1] - a.pad[1];
                    row += tap / a.kernel[1] * a.dilation[0];
                    column += tap % a.kernel[1] * a.dilation[1];
                    bool on = row >= 0 && row < a.in[0] && column >= 0 && column < a.in[1];
                    int64_t from = (row * a.in[1] + column) * OP_BLOCK + j % OP_BLOCK;
                    assert_true(y[at++] == (on ? x[b / taps * image + from] : 0));
                }
        free(x), free(y);
    }
}

/* Enough channels and pixels for Winograd, with every padding and ragged edges, in bands if there
 * is one thread. */
static void three_by_three(void **state)
{
    (void)state;
    rng r = rng_seed(73);
    for (uint32_t round = 0; round < 16; round++) {
        conv_case k = {.w = {{3, 3}, {1, 1}, {1, 1}, {0}},
                       .n = between(&r, 1, 2),
                       .group = 1,
                       .cg = 16 * between(&r, 2, 4),
                       .mg = between(&r, 32, 60),
                       .height = between(&r, 14, round % 4 ? 22 : 50),
                       .width = between(&r, 14, 40),
                       .variant = round * 5 % 32,
                       .known = 6,
                       .eps = 5e-4};
        for (int i = 0; i < 4; i++)
            k.w.pads[i] = between(&r, 0, 2);
        check_conv(&r, &k);
    }
}

static void depthwise(void **state)
{
    (void)state;
    rng r = rng_seed(74);
    for (uint32_t round = 0; round < 64; round++) {
        conv_case k = {.w = case_window_random(&r),
                       .n = between(&r, 1, 2),
                       .group = between(&r, 2, 40),
                       .cg = 1,
                       .mg = 1,
                       .height = between(&r, 9, 16),
                       .width = between(&r, 9, 60),
                       .variant = round % 32,
                       .known = round & 32 ? 6 : 0,
                       .eps = 2e-5};
        check_conv(&r, &k);
    }
}

/* Two rows at a time, with rows left over above, below and between, and runs of every length. */
static void depthwise_three_by_three(void **state)
{
    (void)state;
    rng r = rng_seed(77);
    for (uint32_t round = 0; round < 64; round++) {
        conv_case k = {.w = {{3, 3}, {1, 1}, {1, 1}, {0}},
                       .n = between(&r, 1, 2),
                       .group = between(&r, 2, 40),
                       .cg = 1,
                       .mg = 1,
                       .height = round < 16 ? between(&r, 43, 50) : between(&r, 3, 30),
                       .width = round < 16 ? 3 + round : between(&r, 3, 120),
                       .variant = round % 32,
                       .known = round % 3 ? 6 : 0,
                       .eps = 2e-5};
        for (int i = 0; i < 4; i++)
            k.w.pads[i] = round % 4 == 3 ? between(&r, 0, 2) : 1;
        check_conv(&r, &k);
    }
}

/* Blocks of channels that are at most half full. */
static void half_blocks(void **state)
{
    (void)state;
    rng r = rng_seed(78);
    for (uint32_t round = 0; round < 32; round++) {
        int64_t size = round % 3 ? 1 : 3;
        conv_case k = {.w = {{size, size}, {1, 1}, {1, 1}, {0}},
                       .n = between(&r, 1, 2),
                       .group = 1,
                       .cg = between(&r, 1, 60),
                       .mg = 16 * between(&r, 0, 3) + between(&r, 1, 9),
                       .height = between(&r, 5, 12),
                       .width = between(&r, 14, 40),
                       .variant = round,
                       .known = round % 5 ? 6 : 0,
                       .eps = 5e-5};
        check_conv(&r, &k);
    }
}

/* Rows of taps that lie beside the image for some rows of the output, or for all. */
static void far_windows(void **state)
{
    (void)state;
    rng r = rng_seed(79);
    for (uint32_t round = 0; round < 64; round++) {
        conv_case k = {.w = {{between(&r, 2, 4), between(&r, 1, 3)},
                             {between(&r, 1, 2), 1},
                             {between(&r, 2, 9), between(&r, 1, 4)},
                             {0}},
                       .n = 1,
                       .group = 1,
                       .cg = between(&r, 1, 40),
                       .mg = between(&r, 1, 70),
                       .height = between(&r, 3, 9),
                       .width = round % 3 ? between(&r, 12, 30) : 7,
                       .variant = round,
                       .known = round % 5 ? 6 : 0,
                       .eps = 5e-5};
        for (int i = 0; i < 4; i++)
            k.w.pads[i] = k.w.dilation[i % 2] * (k.w.kernel[i % 2] - 1) - (i == 2);
        k.w.pads[1] = k.w.pads[3] = k.w.pads[1] / 2;
        if (round % 3 == 0) /* two rows of seven make a tile */
            k.w.pads[1] = k.w.pads[3] = k.w.kernel[1] / 2, k.w.dilation[1] = 1;
        check_conv(&r, &k);
    }
}

static void pooling(void **state)
{
    (void)state;
    rng r = rng_seed(75);
    for (uint32_t round = 0; round < 32; round++) {
        case_window w = case_window_random(&r);
        for (int i = 0; i < 4; i++) /* a window must touch the image */
            w.pads[i] = w.pads[i] < w.kernel[i % 2] * w.dilation[i % 2] - 1 && w.kernel[i % 2] > 1
                            ? w.pads[i] / 2
                            : 0;
        op_case c;
        int64_t channels = between(&r, 1, 40);
        op_case_begin(&c, "tacit", "BlockedPool");
        op_case_random(
            &c, &r, TACIT_F32,
            SHAPE(2, op_blocks(channels), between(&r, 9, 14), between(&r, 9, 40), OP_BLOCK), -1, 1);
        if (round % 5 == 0)
            ((float *)c.in[0]->data)[rng_below(&r, 300)] = NAN;
        case_window_set(&c, &w, 2);
        op_case_int(&c, "channels", channels);
        op_case_int(&c, "average", round & 1);
        op_case_int(&c, "count_include_pad", round >> 1 & 1);
        op_case_int(&c, "ceil_mode", round >> 2 & 1);
        lower_check(&c, &r, 1, 0, 2e-5);
        op_case_end(&c);
    }
}

static void moves(void **state)
{
    (void)state;
    rng r = rng_seed(76);
    for (int64_t channels = 1; channels < 40; channels += 5) {
        op_case c;
        int64_t height = between(&r, 1, 9), width = between(&r, 1, 30);
        op_case_begin(&c, "tacit", "Block");
        op_case_random(&c, &r, TACIT_F32, SHAPE(2, channels, height, width), -1, 1);
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
        op_case_begin(&c, "tacit", "Unblock");
        op_case_random(&c, &r, TACIT_F32, SHAPE(2, op_blocks(channels), height, width, OP_BLOCK),
                       -1, 1);
        op_case_int(&c, "channels", channels);
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions),
        cmocka_unit_test(first_layers),
        cmocka_unit_test(tiles_and_groups),
        cmocka_unit_test(long_pointwise_sums),
        cmocka_unit_test(long_sums_over_windows),
        cmocka_unit_test(images_under_taps),
        cmocka_unit_test(three_by_three),
        cmocka_unit_test(depthwise),
        cmocka_unit_test(depthwise_three_by_three),
        cmocka_unit_test(half_blocks),
        cmocka_unit_test(far_windows),
        cmocka_unit_test(pooling),
        cmocka_unit_test(moves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
