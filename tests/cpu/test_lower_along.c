/* SPDX-License-Identifier: Apache-2.0
 * CumSum, CumProd and TopK: kernels against the evaluators, bit for bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/lower_check.h"

static const int64_t shapes[][3] = {{3, 5, 1},    {40, 17, 1},   {1, 1000, 1}, {2, 7, 3},
                                    {3, 4, 40},   {1, 300, 200}, {2, 600, 70}, {1, 1, 1},
                                    {70, 700, 1}, {2, 0, 3},     {0, 4, 1},    {3, 5000, 1}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static void running_sums_and_products(void **state)
{
    (void)state;
    rng r = rng_seed(71);
    for (int i = 0; i < SHAPES * 8; i++) {
        const int64_t *s = shapes[i / 8];
        op_case c;
        op_case_begin(&c, "", i & 4 ? "CumProd" : "CumSum");
        op_case_random(&c, &r, TACIT_F32, SHAPE(s[0], s[1], s[2]), -1.5, 1.5);
        op_case_i64(&c, TACIT_I64, SCALAR, (int64_t[]){i % 3 ? 1 : -2});
        op_case_int(&c, "exclusive", i & 1);
        op_case_int(&c, "reverse", i >> 1 & 1);
        lower_check(&c, &r, 1, 2, 0);
        op_case_end(&c);
    }
}

/* Ties, zeros of both signs, infinities and NaNs. */
static void largest_in_order(void **state)
{
    (void)state;
    static const float odd[] = {NAN, -0.0f, 0.0f, INFINITY, -INFINITY, -NAN};
    rng r = rng_seed(72);
    for (int i = 0; i < SHAPES * 12; i++) {
        const int64_t *s = shapes[i / 12];
        int64_t few = i & 8 ? 100 : 9, some = s[1] < few ? s[1] : few,
                k = i % 3 == 0   ? some
                    : i % 3 == 1 ? s[1]
                                 : s[1] > 0;
        op_case c;
        op_case_begin(&c, "", "TopK");
        ir_tensor *x =
            op_case_random(&c, &r, TACIT_F32, SHAPE(s[0], s[1], s[2]), 0, i & 2 ? 20 : 1e6);
        for (int64_t j = 0; j < ir_tensor_count(x); j++) {
            float *v = (float *)x->data + j;
            *v = rng_below(&r, 40) == 0 && i & 4 ? odd[rng_below(&r, 6)] : floorf(*v);
        }
        op_case_i64(&c, TACIT_I64, SHAPE(1), &k);
        op_case_int(&c, "axis", 1);
        op_case_int(&c, "largest", i & 1);
        lower_check(&c, &r, 2, 2, 0);
        op_case_end(&c);
    }
}

static void what_is_left_to_the_evaluator(void **state)
{
    (void)state;
    rng r = rng_seed(73);
    for (int i = 0; i < 3; i++) {
        op_case c;
        op_case_begin(&c, "", i < 2 ? "CumSum" : "TopK");
        op_case_random(&c, &r, i == 1 ? TACIT_F32 : TACIT_F64, SHAPE(3, 4), 0, 9);
        op_case_i64(&c, TACIT_I64, i < 2 ? SCALAR : SHAPE(1), (int64_t[]){1});
        lower_check_none(&c, i < 2 ? 1 : 2); /* i = 1: an axis that only the run knows */
        op_case_end(&c);
    }
}

static void neighbours_of_channels(void **state)
{
    (void)state;
    rng r = rng_seed(63);
    for (int64_t size = 1; size <= 8; size++)
        for (int k = 0; k < 3; k++) {
            static const int64_t images[3][4] = {{2, 5, 1, 1}, {1, 20, 9, 17}, {3, 3, 8, 70}};
            op_case c;
            op_case_begin(&c, "", "LRN");
            op_case_random(&c, &r, TACIT_F32, ir_shape_of(4, images[k]), -20, 20);
            op_case_int(&c, "size", size);
            op_case_float(&c, "alpha", 0.01);
            op_case_float(&c, "bias", 1.5);
            lower_check(&c, &r, 1, 0, 1e-5);
            op_case_end(&c);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(running_sums_and_products),
        cmocka_unit_test(largest_in_order),
        cmocka_unit_test(what_is_left_to_the_evaluator),
        cmocka_unit_test(neighbours_of_channels),
    };
    return cmocka_run_group_tests_name("lowering along an axis", tests, NULL, NULL);
}
