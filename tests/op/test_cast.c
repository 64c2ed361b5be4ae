/* SPDX-License-Identifier: Apache-2.0
 * Casts: rounding, saturation and wrap-around by hand-written values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

static void cast(tacit_dtype from, int64_t n, const double *x, tacit_dtype to, int64_t saturate,
                 const char *round_mode, const double *want)
{
    op_case c;
    op_case_begin(&c, "", "Cast");
    op_case_f64(&c, from, SHAPE(n), x);
    op_case_int(&c, "to", ir_dtype_to_onnx(to));
    op_case_int(&c, "saturate", saturate);
    if (round_mode)
        op_case_string(&c, "round_mode", round_mode);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, to, SHAPE(n), want, 0);
    op_case_end(&c);
}

static void floats_round_to_nearest_even(void **state)
{
    (void)state;
    const double inf = INFINITY;
    cast(TACIT_F32, 4, (double[]){1.0625, 1.1875, 449, 1e9}, TACIT_F8E4M3FN, 1, NULL,
         (double[]){1, 1.25, 448, 448});
    cast(TACIT_F32, 3, (double[]){464, 465, inf}, TACIT_F8E4M3FN, 0, NULL,
         (double[]){448, NAN, NAN});
    cast(TACIT_F32, 3, (double[]){57344, 1e9, -inf}, TACIT_F8E5M2, 0, NULL,
         (double[]){57344, inf, -inf});
    cast(TACIT_F32, 3, (double[]){57344, 1e9, -inf}, TACIT_F8E5M2, 1, NULL,
         (double[]){57344, 57344, -57344});
    cast(TACIT_F32, 3, (double[]){241, -0.0, 1e9}, TACIT_F8E4M3FNUZ, 1, NULL,
         (double[]){240, 0, 240});
    cast(TACIT_F32, 5, (double[]){0.25, 0.75, 2.5, 5, 100}, TACIT_F4E2M1, 1, NULL,
         (double[]){0, 1, 2, 4, 6});
    cast(TACIT_F64, 2, (double[]){65520, 65519}, TACIT_F16, 1, NULL, (double[]){inf, 65504});
    cast(TACIT_F32, 2, (double[]){1.00390625, 1.01171875}, TACIT_BF16, 1, NULL,
         (double[]){1, 1.015625});
}

static void powers_of_two_round_as_asked(void **state)
{
    (void)state;
    const double x[] = {1, 1.25, 1.5, 3, 0x1p-140, 0x1p127};
    cast(TACIT_F64, 6, x, TACIT_F8E8M0, 1, "up", (double[]){1, 2, 2, 4, 0x1p-127, 0x1p127});
    cast(TACIT_F64, 6, x, TACIT_F8E8M0, 1, "down", (double[]){1, 1, 1, 2, 0x1p-127, 0x1p127});
    cast(TACIT_F64, 6, x, TACIT_F8E8M0, 1, "nearest", (double[]){1, 1, 2, 4, 0x1p-127, 0x1p127});
    cast(TACIT_F64, 3, (double[]){0x1p128, INFINITY, NAN}, TACIT_F8E8M0, 1, "up",
         (double[]){0x1p127, 0x1p127, NAN});
    cast(TACIT_F64, 3, (double[]){0x1p128, INFINITY, 0}, TACIT_F8E8M0, 0, "nearest",
         (double[]){NAN, NAN, NAN});
}

static void integers_wrap(void **state)
{
    (void)state;
    cast(TACIT_I16, 2, (double[]){200, -129}, TACIT_I8, 1, NULL, (double[]){-56, 127});
    cast(TACIT_I32, 3, (double[]){-1, 17, 8}, TACIT_I4, 1, NULL, (double[]){-1, 1, -8});
    cast(TACIT_I32, 4, (double[]){-1, 2, 3, 5}, TACIT_U2, 1, NULL, (double[]){3, 2, 3, 1});
    cast(TACIT_F32, 4, (double[]){-1.9, 1.9, 0, NAN}, TACIT_I32, 1, NULL, (double[]){-1, 1, 0, 0});
    cast(TACIT_F32, 3, (double[]){0, -0.0, 0.1}, TACIT_BOOL, 1, NULL, (double[]){0, 0, 1});
    op_case c;
    op_case_begin(&c, "", "Cast"); /* 64 bits go to f32 with one rounding */
    op_case_i64(&c, TACIT_I64, SHAPE(1), (int64_t[]){(INT64_C(1) << 54) + (INT64_C(1) << 30) + 1});
    op_case_int(&c, "to", 1);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(1), (double[]){0x1p54 + 0x1p31}, 0);
    op_case_end(&c);
}

static void every_pair_agrees_with_the_element_functions(void **state)
{
    (void)state;
    for (int from = 1; from < TACIT_DTYPE_COUNT; from++)
        for (int to = 1; to < TACIT_DTYPE_COUNT; to++) {
            if (from == TACIT_STRING || to == TACIT_STRING || to == TACIT_F8E8M0)
                continue;
            op_case c;
            op_case_begin(&c, "", "Cast");
            ir_tensor *x = op_case_f64(&c, (tacit_dtype)from, SHAPE(4), (double[]){0, 1, 1, 0});
            op_case_int(&c, "to", ir_dtype_to_onnx((tacit_dtype)to));
            op_case_run(&c, 1);
            for (int i = 0; i < 4; i++)
                if (from != TACIT_F8E8M0 || i == 1 || i == 2)
                    assert_true(ir_load_f64((tacit_dtype)from, x->data, i) ==
                                ir_load_f64((tacit_dtype)to, c.out[0].data, i));
            op_case_end(&c);
        }
}

static void strings_and_numbers(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "Cast");
    op_case_strings(&c, SHAPE(5), (const char *[]){"3.5", "-1e-3", "+INF", "nan", "7"});
    op_case_int(&c, "to", 1);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(5), (double[]){3.5, -1e-3f, INFINITY, NAN, 7}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "Cast");
    op_case_strings(&c, SHAPE(1), (const char *[]){"Hello"});
    op_case_int(&c, "to", 1);
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "'Hello'");
    op_case_end(&c);
    op_case_begin(&c, "", "Cast");
    op_case_f64(&c, TACIT_F32, SHAPE(3), (double[]){0.1f, -2, INFINITY});
    op_case_int(&c, "to", 8);
    op_case_run(&c, 1);
    const ir_string *s = c.out[0].data;
    assert_string_equal(s[0].data, "0.1");
    assert_string_equal(s[1].data, "-2");
    assert_string_equal(s[2].data, "INF");
    op_case_end(&c);
}

static void bit_cast_keeps_bits(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "BitCast");
    op_case_f64(&c, TACIT_F32, SHAPE(2), (double[]){1, -0.0});
    op_case_int(&c, "to", ir_dtype_to_onnx(TACIT_U32));
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_U32, SHAPE(2), (double[]){0x3f800000, 0x80000000u}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "BitCast");
    op_case_f64(&c, TACIT_F32, SHAPE(2), (double[]){1, -0.0});
    op_case_int(&c, "to", ir_dtype_to_onnx(TACIT_F64));
    op_case_refuses(&c, 1, TACIT_ERR_TYPE, "same width");
    op_case_end(&c);
    op_case_begin(&c, "", "Cast");
    op_case_f64(&c, TACIT_F32, SHAPE(1), (double[]){1});
    op_case_int(&c, "to", 99);
    op_case_refuses(&c, 1, TACIT_ERR_TYPE, "'to'");
    op_case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_round_to_nearest_even),
        cmocka_unit_test(powers_of_two_round_as_asked),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(every_pair_agrees_with_the_element_functions),
        cmocka_unit_test(strings_and_numbers),
        cmocka_unit_test(bit_cast_keeps_bits),
    };
    return cmocka_run_group_tests_name("casts", tests, NULL, NULL);
}
