/* SPDX-License-Identifier: Apache-2.0
 * Images read at computed places: kernels against the evaluators. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/lower_check.h"

/* Here and there a value that is no place at all, and ones on an edge. */
static void odd_places(ir_tensor *t, rng *r)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 1e20f, -1, 1, 0, -0.0f, 0.5f, 3};
    for (int64_t i = 0; i < ir_tensor_count(t); i++)
        if (rng_below(r, 12) == 0)
            ((float *)t->data)[i] = odd[rng_below(r, 10)];
}

/* Image and points; few points leave the image as it lies. */
typedef struct grid_shape {
    int32_t rank;
    int64_t x[5], points[3];
} grid_shape;

static void grids(void **state)
{
    (void)state;
    static const grid_shape shapes[] = {
        {2, {1, 1, 1, 1}, {1, 1}},        {2, {2, 3, 5, 7}, {4, 9}},
        {2, {1, 70, 6, 4}, {9, 15}},      {2, {3, 33, 8, 8}, {8, 8}},
        {2, {1, 16, 1, 9}, {20, 20}},     {2, {2, 5, 30, 30}, {3, 2}},
        {2, {1, 130, 40, 30}, {70, 60}},  {1, {2, 20, 11}, {75}},
        {3, {1, 18, 3, 4, 5}, {3, 7, 4}}, {3, {2, 2, 2, 1, 3}, {1, 1, 2}},
    };
    static const char *modes[] = {"nearest", "linear", "cubic"};
    static const char *pads[] = {"zeros", "border", "reflection"};
    rng r = rng_seed(171);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < 18; i++) {
            const grid_shape *g = &shapes[s];
            int64_t grid[5] = {g->x[0]};
            for (int32_t d = 0; d < g->rank; d++)
                grid[d + 1] = g->points[d];
            grid[g->rank + 1] = g->rank;
            op_case c;
            op_case_begin(&c, "", "GridSample");
            op_case_random(&c, &r, TACIT_F32, ir_shape_of(g->rank + 2, g->x), -2, 2);
            ir_tensor *t =
                op_case_random(&c, &r, TACIT_F32, ir_shape_of(g->rank + 2, grid), -1.6, 1.6);
            odd_places(t, &r);
            op_case_string(&c, "mode", modes[i % 3]);
            op_case_string(&c, "padding_mode", pads[i / 3 % 3]);
            op_case_int(&c, "align_corners", i / 9);
            lower_check(&c, &r, 1, 0, i % 3 ? 1e-5 : 0);
            op_case_end(&c);
        }
}

/* A weight of zero times infinity is no number inside of an image; outside there is nothing. */
static void infinite_pixels(void **state)
{
    (void)state;
    rng r = rng_seed(172);
    for (int i = 0; i < 4; i++) {
        op_case c;
        op_case_begin(&c, "", "GridSample");
        op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 2, 2), (double[]){INFINITY, 1, 2, 3});
        op_case_f64(&c, TACIT_F32, SHAPE(1, 1, 4, 2),
                    (double[]){-1, -1, 1, 1, 2.5, 2.5, -0.25 * i, 0.5});
        op_case_int(&c, "align_corners", i & 1);
        op_case_string(&c, "padding_mode", i & 2 ? "zeros" : "border");
        lower_check(&c, &r, 1, 0, 1e-6);
        op_case_end(&c);
    }
}

typedef struct deform_shape {
    int64_t x[4], outputs, kernel[2], group, sets, stride, dilation, pad;
} deform_shape;

static void deform(op_case *c, rng *r, const deform_shape *s, bool bias, bool mask)
{
    int64_t out[2], taps = s->kernel[0] * s->kernel[1];
    for (int i = 0; i < 2; i++)
        out[i] = (s->x[2 + i] + 2 * s->pad - (s->kernel[i] - 1) * s->dilation - 1) / s->stride + 1;
    op_case_begin(c, "", "DeformConv");
    op_case_random(c, r, TACIT_F32, ir_shape_of(4, s->x), -1, 1);
    op_case_random(c, r, TACIT_F32,
                   SHAPE(s->outputs, s->x[1] / s->group, s->kernel[0], s->kernel[1]), -1, 1);
    odd_places(
        op_case_random(c, r, TACIT_F32, SHAPE(s->x[0], s->sets * taps * 2, out[0], out[1]), -3, 3),
        r);
    if (bias)
        op_case_random(c, r, TACIT_F32, SHAPE(s->outputs), -1, 1);
    else
        op_case_give(c, NULL);
    if (mask)
        op_case_random(c, r, TACIT_F32, SHAPE(s->x[0], s->sets * taps, out[0], out[1]), 0, 2);
    else
        op_case_give(c, NULL);
    op_case_ints(c, "kernel_shape", 2, s->kernel);
    op_case_ints(c, "strides", 2, (int64_t[]){s->stride, s->stride});
    op_case_ints(c, "dilations", 2, (int64_t[]){s->dilation, s->dilation});
    op_case_ints(c, "pads", 4, (int64_t[]){s->pad, s->pad, s->pad, s->pad});
    op_case_int(c, "group", s->group);
    op_case_int(c, "offset_group", s->sets);
}

static void deformed_windows(void **state)
{
    (void)state;
    static const deform_shape shapes[] = {
        {{1, 1, 1, 1}, 1, {1, 1}, 1, 1, 1, 1, 0},   {{2, 6, 5, 7}, 4, {3, 2}, 2, 3, 1, 1, 1},
        {{1, 64, 9, 9}, 20, {3, 3}, 1, 1, 1, 1, 1}, {{3, 12, 8, 6}, 6, {2, 2}, 3, 2, 2, 1, 0},
        {{1, 4, 20, 30}, 3, {3, 3}, 1, 4, 1, 2, 2}, {{2, 80, 7, 7}, 80, {3, 3}, 5, 2, 1, 1, 1},
        {{5, 40, 4, 5}, 7, {1, 1}, 1, 1, 1, 1, 0},  {{1, 96, 26, 26}, 9, {5, 5}, 1, 2, 1, 1, 2},
    };
    rng r = rng_seed(173);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < 4; i++) {
            op_case c;
            deform(&c, &r, &shapes[s], i & 1, i & 2);
            lower_check(&c, &r, 1, 2, 3e-5);
            op_case_end(&c);
        }
}

typedef struct roi_shape {
    int64_t x[4], regions, out[2];
} roi_shape;

static const roi_shape roi_shapes[] = {
    {{1, 1, 1, 1}, 1, {1, 1}},    {{2, 3, 9, 7}, 5, {3, 2}},    {{1, 64, 20, 20}, 9, {7, 7}},
    {{3, 70, 6, 30}, 4, {9, 10}}, {{1, 33, 40, 40}, 1, {2, 2}}, {{2, 5, 8, 8}, 0, {2, 2}},
};
enum { ROI_SHAPES = sizeof roi_shapes / sizeof *roi_shapes };

/* `columns` values a region, the last four its corners; what stands before them is its image. */
static ir_tensor *regions(op_case *c, rng *r, const roi_shape *s, int64_t columns)
{
    double most = (double)(s->x[2] > s->x[3] ? s->x[2] : s->x[3]) * 1.3;
    ir_tensor *t = op_case_random(c, r, TACIT_F32, SHAPE(s->regions, columns), -3, most);
    for (int64_t i = 0; columns == 5 && i < s->regions; i++)
        ((float *)t->data)[i * 5] = (float)rng_below(r, (uint64_t)s->x[0]);
    return t;
}

static void aligned_regions(void **state)
{
    (void)state;
    rng r = rng_seed(175);
    for (int i = 0; i < ROI_SHAPES * 12; i++) {
        const roi_shape *s = &roi_shapes[i / 12];
        int64_t images[16];
        for (int64_t k = 0; k < s->regions; k++)
            images[k] = (int64_t)rng_below(&r, (uint64_t)s->x[0]);
        op_case c;
        op_case_begin(&c, "", "RoiAlign");
        op_case_random(&c, &r, TACIT_F32, ir_shape_of(4, s->x), -1, 2);
        regions(&c, &r, s, 4);
        op_case_i64(&c, TACIT_I64, SHAPE(s->regions), images);
        op_case_int(&c, "output_height", s->out[0]);
        op_case_int(&c, "output_width", s->out[1]);
        op_case_int(&c, "sampling_ratio", i % 3 == 2 ? 40 : i % 3);
        op_case_float(&c, "spatial_scale", i & 1 ? 1 : 0.8);
        op_case_string(&c, "mode", i / 3 & 1 ? "max" : "avg");
        op_case_string(&c, "coordinate_transformation_mode",
                       i / 6 & 1 ? "half_pixel" : "output_half_pixel");
        lower_check(&c, &r, 1, 0, 2e-5);
        op_case_end(&c);
    }
}

static void largest_of_regions(void **state)
{
    (void)state;
    rng r = rng_seed(176);
    for (int i = 0; i < ROI_SHAPES * 4; i++) {
        const roi_shape *s = &roi_shapes[i / 4];
        op_case c;
        op_case_begin(&c, "", "MaxRoiPool");
        ir_tensor *x = op_case_random(&c, &r, TACIT_F32, ir_shape_of(4, s->x), -2, 1);
        for (int64_t k = 0; i & 2 && k < ir_tensor_count(x); k += 7)
            ((float *)x->data)[k] = NAN;
        regions(&c, &r, s, 5);
        op_case_ints(&c, "pooled_shape", 2, s->out);
        op_case_float(&c, "spatial_scale", i & 1 ? 1 : 0.7);
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
    }
}

static void norms_of_windows(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {
        {1, 1, 3, 3}, {2, 5, 9, 13}, {1, 20, 56, 56}, {3, 2, 4, 70}};
    rng r = rng_seed(177);
    for (int i = 0; i < 4 * 16; i++) {
        const int64_t *s = shapes[i / 16], step = 1 + (i >> 1 & 3);
        op_case c;
        op_case_begin(&c, "", "LpPool");
        op_case_random(&c, &r, TACIT_F32, ir_shape_of(4, s), -3, 3);
        op_case_int(&c, "p", 1 + (i & 1));
        op_case_ints(&c, "kernel_shape", 2, (int64_t[]){3, 2});
        op_case_ints(&c, "strides", 2, (int64_t[]){step, step});
        op_case_ints(&c, "pads", 4, i & 8 ? (int64_t[]){1, 0, 2, 1} : (int64_t[]){0, 0, 0, 0});
        op_case_int(&c, "ceil_mode", i >> 3 & 1);
        lower_check(&c, &r, 1, 0, 1e-5);
        op_case_end(&c);
        op_case_begin(&c, "", "GlobalLpPool");
        op_case_random(&c, &r, TACIT_F32, ir_shape_of(4, s), -3, 3);
        op_case_int(&c, "p", 1 + (i & 1));
        lower_check(&c, &r, 1, 0, 1e-5);
        op_case_end(&c);
    }
}

/* Of several values for one place the last one stays. */
static void pooling_undone(void **state)
{
    (void)state;
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {2, 3, 5, 7}, {1, 20, 28, 28}, {0, 2, 3, 3}};
    rng r = rng_seed(178);
    for (int i = 0; i < 4 * 4; i++) {
        const ir_shape s = ir_shape_of(4, shapes[i / 4]);
        int64_t count = ir_shape_size(&s), index[20 * 28 * 28];
        for (int64_t k = 0; k < count; k++)
            index[k] = i & 1 ? 4 * k + 3 : (int64_t)rng_below(&r, (uint64_t)(4 * count));
        op_case c;
        op_case_begin(&c, "", "MaxUnpool");
        op_case_random(&c, &r, i & 2 ? TACIT_I32 : TACIT_F32, s, -9, 9);
        op_case_i64(&c, TACIT_I64, s, index);
        op_case_ints(&c, "kernel_shape", 2, (int64_t[]){2, 2});
        op_case_ints(&c, "strides", 2, (int64_t[]){2, 2});
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
    }
}

static void what_is_left_to_the_evaluator(void **state)
{
    (void)state;
    static const deform_shape shape = {{1, 2, 3, 3}, 2, {2, 2}, 1, 1, 1, 1, 0};
    rng r = rng_seed(174);
    op_case c;
    deform(&c, &r, &shape, false, false);
    lower_check_none(&c, 1); /* weights that only the run knows */
    op_case_end(&c);
    op_case_begin(&c, "", "GridSample");
    op_case_random(&c, &r, TACIT_F64, SHAPE(1, 2, 3, 3), -1, 1);
    op_case_random(&c, &r, TACIT_F64, SHAPE(1, 2, 2, 2), -1, 1);
    lower_check_none(&c, 1);
    op_case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grids),
        cmocka_unit_test(infinite_pixels),
        cmocka_unit_test(deformed_windows),
        cmocka_unit_test(aligned_regions),
        cmocka_unit_test(largest_of_regions),
        cmocka_unit_test(norms_of_windows),
        cmocka_unit_test(pooling_undone),
        cmocka_unit_test(what_is_left_to_the_evaluator),
    };
    return cmocka_run_group_tests_name("lowering of sampled images", tests, NULL, NULL);
}
