/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "support/one_node.h"

static void decode(one_node *t, const uint8_t *bytes, size_t size, const char *format)
{
    double values[128];
    assert_true(size <= 128);
    for (size_t i = 0; i < size; i++)
        values[i] = bytes[i];
    one_node_begin(t, "", "ImageDecoder");
    one_node_in(t, TACIT_U8, DIMS((int64_t)size), values);
    one_node_string(t, "pixel_format", format);
    assert_int_equal(one_node_run(t, 1), TACIT_OK);
}

static const uint8_t pnm[] = "P6 # a comment\n2 1\n255\n\x0a\x14\x1e\xff\x00\x80";
static const uint8_t bmp[] = {'B', 'M', 62, 0, 0, 0, 0,  0,  0,  0,   54, 0,   0,  0, 40, 0,
                              0,   0,   2,  0, 0, 0, 1,  0,  0,  0,   1,  0,   24, 0, 0,  0,
                              0,   0,   0,  0, 0, 0, 0,  0,  0,  0,   0,  0,   0,  0, 0,  0,
                              0,   0,   0,  0, 0, 0, 30, 20, 10, 128, 0,  255, 0,  0};

static void small_images_decode(void **state)
{
    (void)state;
    one_node t;
    decode(&t, pnm, sizeof pnm - 1, "RGB");
    one_node_expect(&t, 0, DIMS(1, 2, 3), V(10, 20, 30, 255, 0, 128), 0);
    one_node_end(&t);
    decode(&t, bmp, sizeof bmp, "BGR");
    one_node_expect(&t, 0, DIMS(1, 2, 3), V(30, 20, 10, 128, 0, 255), 0);
    one_node_end(&t);
    decode(&t, pnm, sizeof pnm - 1, "Grayscale");
    one_node_expect(&t, 0, DIMS(1, 2, 1), V(18, 91), 0);
    one_node_end(&t);
}

/* Every cut and many bit flips give an image or an empty one, never a fault. */
static void broken_images_are_empty(void **state)
{
    (void)state;
    static const uint8_t *const files[] = {pnm, bmp};
    static const size_t sizes[] = {sizeof pnm - 1, sizeof bmp};
    rng r = rng_seed(3);
    for (int f = 0; f < 2; f++)
        for (int round = 0; round < 400; round++) {
            uint8_t copy[128];
            memcpy(copy, files[f], sizes[f]);
            size_t size = round & 1 ? sizes[f] : rng_below(&r, sizes[f]);
            for (int k = 0; k < round % 5; k++)
                copy[2 + rng_below(&r, sizes[f] - 2)] ^= (uint8_t)(1u << rng_below(&r, 8));
            one_node t;
            decode(&t, copy, size, "RGB");
            if (round % 10 == 0 && size < sizes[f] - 3)
                one_node_expect(&t, 0, DIMS(0, 0, 3), NULL, 0);
            one_node_end(&t);
        }
    one_node t;
    decode(&t, (const uint8_t *)"nothing", 7, "RGB");
    one_node_expect(&t, 0, DIMS(0, 0, 3), NULL, 0);
    one_node_end(&t);
}

static void resize_modes_on_a_line(void **state)
{
    (void)state;
    static const struct {
        const char *mode, *coordinates, *nearest;
        double want[4];
    } cases[] = {{"nearest", "asymmetric", "floor", {1, 1, 5, 5}},
                 {"nearest", "half_pixel", "round_prefer_floor", {1, 1, 5, 5}},
                 {"nearest", "asymmetric", "ceil", {1, 5, 5, 5}},
                 {"linear", "half_pixel", "", {1, 2, 4, 5}},
                 {"linear", "align_corners", "", {1, 1 + 4. / 3, 1 + 8. / 3, 5}},
                 {"linear", "asymmetric", "", {1, 3, 5, 5}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        one_node t;
        one_node_begin(&t, "", "Resize");
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 2), V(1, 5));
        one_node_in(&t, TACIT_F32, DIMS(0), NULL);
        one_node_in(&t, TACIT_F32, DIMS(3), V(1, 1, 2));
        one_node_string(&t, "mode", cases[i].mode);
        one_node_string(&t, "coordinate_transformation_mode", cases[i].coordinates);
        if (*cases[i].nearest)
            one_node_string(&t, "nearest_mode", cases[i].nearest);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(1, 1, 4), cases[i].want, 1e-6);
        one_node_end(&t);
    }
}

static void resize_refuses_bad_scales(void **state)
{
    (void)state;
    static const double bad[] = {0, -1, NAN, INFINITY};
    for (int i = 0; i < 4; i++) {
        one_node t;
        one_node_begin(&t, "", "Resize");
        one_node_in(&t, TACIT_F32, DIMS(2), V(1, 5));
        one_node_in(&t, TACIT_F32, DIMS(0), NULL);
        one_node_in(&t, TACIT_F32, DIMS(1), &bad[i]);
        one_node_expect_error(&t, 1, TACIT_ERR_VALUE, "scale");
        one_node_end(&t);
    }
}

static void grid_sample_pads(void **state)
{
    (void)state;
    static const char *const pads[] = {"zeros", "border", "reflection"};
    static const double want[3][3] = {{0, 2, 0}, {1, 2, 3}, {2, 2, 2}};
    for (int i = 0; i < 3; i++) {
        one_node t;
        one_node_begin(&t, "", "GridSample");
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 1, 3), V(1, 2, 3));
        /* x = −1, 1, 3 on a row of three with aligned corners; y = 0 */
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 3, 2), V(-2, 0, 0, 0, 2, 0));
        one_node_string(&t, "padding_mode", pads[i]);
        one_node_int(&t, "align_corners", 1);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(1, 1, 1, 3), want[i], 1e-6);
        one_node_end(&t);
    }
    one_node t;
    one_node_begin(&t, "", "GridSample");
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 1, 1), V(1));
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 3, 2), V(NAN, 0, INFINITY, -INFINITY, 1e30, 0));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 1, 1, 3), V(0, 0, 0), 0);
    one_node_end(&t);
}

static void suppression_keeps_boxes_at_the_threshold(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "NonMaxSuppression");
    one_node_in(&t, TACIT_F32, DIMS(1, 3, 4), V(0, 0, 2, 1, 1, 0, 3, 1, 5, 5, 6, 6));
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 3), V(0.5, 0.9, 0.2));
    one_node_in(&t, TACIT_I64, DIMS(1), V(9));
    one_node_in(&t, TACIT_F64, DIMS(1), V(1. / 3)); /* exactly the overlap of the first two */
    one_node_in(&t, TACIT_F32, DIMS(1), V(0.2));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2, 3), V(0, 0, 1, 0, 0, 0), 0);
    one_node_end(&t);
}

enum { NMS_BOXES = 60, NMS_CLASSES = 3, NMS_GROUPS = 2 * NMS_CLASSES };

/* As the operator is defined: the best of what is left, unless it overlaps one that was taken. */
static int64_t suppress_plainly(const double *boxes, const double *scores, int64_t n, double most,
                                double limit, double least, int64_t *taken)
{
    bool gone[NMS_BOXES] = {0};
    int64_t count = 0;
    while ((double)count < most) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++)
            if (!gone[i] && scores[i] > least && (best < 0 || scores[i] > scores[best]))
                best = i;
        if (best < 0)
            break;
        const double *a = boxes + best * 4;
        gone[best] = true;
        bool keep = true;
        for (int64_t k = 0; k < count; k++) {
            const double *b = boxes + taken[k] * 4;
            double h = fmin(a[2], b[2]) - fmax(a[0], b[0]), w = fmin(a[3], b[3]) - fmax(a[1], b[1]);
            double both = h > 0 && w > 0 ? h * w : 0;
            double either = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both;
            keep &= both <= limit * either;
        }
        if (keep)
            taken[count++] = best;
    }
    return count;
}

/* Corners and scores of few values: many are equal, and overlaps are exact. */
static void suppression_is_greedy(void **state)
{
    (void)state;
    rng r = rng_seed(12);
    for (int round = 0; round < 60; round++) {
        double boxes[2 * NMS_BOXES * 4], scores[NMS_GROUPS * NMS_BOXES], want[3 * 400];
        double most = round % 3 ? round % 7 : 1e9, least = 2;
        double limit = round % 10 == 9 ? -1 : round & 1 ? 0.5 : 0.125;
        int64_t found = 0, taken[NMS_BOXES];
        for (int i = 0; i < 2 * NMS_BOXES * 2; i++) {
            double *at = boxes + i / 2 * 4 + i % 2;
            /* also of some classes, moved apart, and across all of them */
            at[0] = (double)(rng_below(&r, 12) + (round % 4 == 3 ? 64 * rng_below(&r, 5) : 0));
            at[2] = at[0] + (double)(1 + rng_below(&r, round % 8 == 7 && i % 9 == 0 ? 300 : 6));
        }
        for (int i = 0; i < NMS_GROUPS * NMS_BOXES; i++)
            scores[i] = rng_below(&r, 15) ? (double)rng_below(&r, 9) : NAN;
        for (int g = 0; g < NMS_GROUPS; g++) {
            int64_t count =
                suppress_plainly(boxes + g / NMS_CLASSES * NMS_BOXES * 4, scores + g * NMS_BOXES,
                                 NMS_BOXES, most, limit, least, taken);
            for (int64_t k = 0; k < count; k++, found++) {
                want[found * 3] = g / NMS_CLASSES;
                want[found * 3 + 1] = g % NMS_CLASSES;
                want[found * 3 + 2] = (double)taken[k];
            }
        }
        one_node t;
        one_node_begin(&t, "", "NonMaxSuppression");
        one_node_in(&t, TACIT_F32, DIMS(2, NMS_BOXES, 4), boxes);
        one_node_in(&t, TACIT_F32, DIMS(2, NMS_CLASSES, NMS_BOXES), scores);
        one_node_in(&t, TACIT_I64, DIMS(1), &most);
        one_node_in(&t, TACIT_F32, DIMS(1), &limit);
        one_node_in(&t, TACIT_F32, DIMS(1), &least);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(found, 3), want, 0);
        one_node_end(&t);
    }
}

static void transforms_invert_at_any_length(void **state)
{
    (void)state;
    rng r = rng_seed(11);
    for (int64_t n = 1; n <= 40; n++) {
        double x[80], spectrum[80];
        for (int64_t i = 0; i < 2 * n; i++)
            x[i] = rng_range(&r, -1, 1);
        one_node t;
        one_node_begin(&t, "", "DFT");
        one_node_in(&t, TACIT_F64, DIMS(1, n, 2), x);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        for (int64_t k = 0; k < n; k++) {
            double re = 0, im = 0;
            for (int64_t j = 0; j < n; j++) {
                double angle = -2 * M_PI * (double)(j * k % n) / (double)n;
                re += x[2 * j] * cos(angle) - x[2 * j + 1] * sin(angle);
                im += x[2 * j] * sin(angle) + x[2 * j + 1] * cos(angle);
            }
            spectrum[2 * k] = re;
            spectrum[2 * k + 1] = im;
        }
        one_node_expect(&t, 0, DIMS(1, n, 2), spectrum, 1e-12);
        one_node_end(&t);
        one_node_begin(&t, "", "DFT");
        one_node_in(&t, TACIT_F64, DIMS(1, n, 2), spectrum);
        one_node_int(&t, "inverse", 1);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(1, n, 2), x, 1e-12);
        one_node_end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_images_decode),
        cmocka_unit_test(broken_images_are_empty),
        cmocka_unit_test(resize_modes_on_a_line),
        cmocka_unit_test(resize_refuses_bad_scales),
        cmocka_unit_test(grid_sample_pads),
        cmocka_unit_test(suppression_keeps_boxes_at_the_threshold),
        cmocka_unit_test(suppression_is_greedy),
        cmocka_unit_test(transforms_invert_at_any_length),
    };
    return cmocka_run_group_tests_name("op image", tests, NULL, NULL);
}
