/* SPDX-License-Identifier: Apache-2.0
 * Element-wise ops: values by hand, and by an independent index calculation on random shapes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

enum { SHAPES = 200 };

typedef double oracle2(double a, double b);
static double o_add(double a, double b)
{
    return a + b;
}
static double o_sub(double a, double b)
{
    return a - b;
}
static double o_mul(double a, double b)
{
    return a * b;
}
static double o_div(double a, double b)
{
    return a / b;
}
static double o_max(double a, double b)
{
    return a > b ? a : b;
}
static double o_min(double a, double b)
{
    return a < b ? a : b;
}
static double o_less(double a, double b)
{
    return a < b;
}
static double o_equal(double a, double b)
{
    return a == b;
}
static double o_ge(double a, double b)
{
    return a >= b;
}

static const struct {
    const char *type;
    oracle2 *f;
    bool test, integers;
} binary[] = {
    {"Add", o_add, false, true},          {"Sub", o_sub, false, true},
    {"Mul", o_mul, false, true},          {"Div", o_div, false, false},
    {"Max", o_max, false, true},          {"Min", o_min, false, true},
    {"Less", o_less, true, true},         {"Equal", o_equal, true, true},
    {"GreaterOrEqual", o_ge, true, true}, {"Sum", o_add, false, true},
};

static const tacit_dtype floats[] = {TACIT_F64, TACIT_F32, TACIT_F16, TACIT_BF16};
static const tacit_dtype integers[] = {TACIT_I8, TACIT_I16, TACIT_I32, TACIT_I64,
                                       TACIT_U8, TACIT_U16, TACIT_U32, TACIT_U64};

/* The op's result, rounded to `dtype`, is what the engine must give bit for bit. */
static void check_binary(size_t which, uint64_t seed, tacit_dtype dtype)
{
    rng generator = rng_seed(seed * 131 + which), *r = &generator;
    op_case c;
    op_case_begin(&c, "", binary[which].type);
    ir_shape s = random_shape(r, 8);
    ir_shape sa = random_broadcast(r, &s), sb = random_broadcast(r, &s), y;
    assert_int_equal(ir_shape_broadcast(&sa, &sb, &y, NULL), TACIT_OK);
    const ir_tensor *a = op_case_random(&c, r, dtype, sa, 1, 11);
    const ir_tensor *b = op_case_random(&c, r, dtype, sb, 1, 11);
    op_case_run(&c, 1);
    assert_true(ir_shape_equal(&c.out[0].shape, &y));
    assert_int_equal(c.out[0].dtype, binary[which].test ? TACIT_BOOL : dtype);
    int64_t index[IR_MAX_RANK] = {0}, k = 0;
    if (ir_shape_size(&y))
        do {
            double va = ir_load_f64(dtype, a->data, broadcast_index(&y, index, &sa));
            double vb = ir_load_f64(dtype, b->data, broadcast_index(&y, index, &sb));
            double want = binary[which].f(va, vb),
                   have = ir_load_f64(c.out[0].dtype, c.out[0].data, k);
            uint64_t cell = 0;
            ir_store_f64(c.out[0].dtype, &cell, 0, want);
            if (ir_dtype_is_int(dtype) && !binary[which].test)
                ir_store_i64(dtype, &cell, 0, (int64_t)want);
            if (have != ir_load_f64(c.out[0].dtype, &cell, 0))
                fail_msg("%s %s, seed %llu, element %lld: %.17g", binary[which].type,
                         tacit_dtype_text(dtype), (unsigned long long)seed, (long long)k, have);
            k++;
        } while (next_index(&y, index));
    op_case_end(&c);
}

static void binary_ops_broadcast_both_ways(void **state)
{
    (void)state;
    for (size_t which = 0; which < sizeof binary / sizeof *binary; which++)
        for (uint64_t seed = 0; seed < SHAPES; seed++) {
            tacit_dtype dtype =
                binary[which].integers && seed % 2 ? integers[seed / 2 % 8] : floats[seed / 2 % 4];
            if (ir_dtype_is_int(dtype) && strcmp(binary[which].type, "Div") == 0)
                continue;
            check_binary(which, seed, dtype);
        }
}

static void one(const char *type, tacit_dtype dtype, const double *x, int64_t n, const double *y,
                double eps)
{
    op_case c;
    op_case_begin(&c, "", type);
    op_case_f64(&c, dtype, SHAPE(n), x);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, dtype, SHAPE(n), y, eps);
    op_case_end(&c);
}

static void functions_have_their_values(void **state)
{
    (void)state;
    const double inf = INFINITY, nan = NAN;
    one("Abs", TACIT_F32, (double[]){-1.5, 0, 2, -inf, nan}, 5, (double[]){1.5, 0, 2, inf, nan}, 0);
    one("Round", TACIT_F32, (double[]){0.5, 1.5, 2.5, -0.5, -1.5}, 5, (double[]){0, 2, 2, 0, -2},
        0);
    one("Relu", TACIT_F32, (double[]){-1, 0, 3, nan, -inf}, 5, (double[]){0, 0, 3, nan, 0}, 0);
    one("Sigmoid", TACIT_F64, (double[]){0, -1000, 1000}, 3, (double[]){0.5, 0, 1}, 1e-15);
    one("Softplus", TACIT_F64, (double[]){0, 1000, -1000}, 3, (double[]){log(2), 1000, 0}, 1e-15);
    one("Sign", TACIT_F32, (double[]){-2, 0, 5, nan}, 4, (double[]){-1, 0, 1, nan}, 0);
    one("Sign", TACIT_U64, (double[]){0x1p63, 0}, 2, (double[]){1, 0}, 0);
    one("Neg", TACIT_I8, (double[]){-128, 3}, 2, (double[]){-128, -3}, 0); /* wraps */
    one("Gelu", TACIT_F64, (double[]){0, 1, -1, -40}, 4,
        (double[]){0, 0.841344746068543, -0.158655253931457, 0}, 1e-12);
    one("Mish", TACIT_F64, (double[]){0, 1}, 2, (double[]){0, 0.865098388267293}, 1e-12);
    one("HardSwish", TACIT_F64, (double[]){-4, 0, 1.5, 4}, 4, (double[]){0, 0, 1.125, 4}, 1e-15);
    one("Elu", TACIT_F64, (double[]){-1, 2}, 2, (double[]){exp(-1) - 1, 2}, 1e-15);
    one("Swish", TACIT_F64, (double[]){0, 1}, 2, (double[]){0, 1 / (1 + exp(-1))}, 1e-15);
    one("Shrink", TACIT_F32, (double[]){-2, -0.2, 0.4, 3}, 4, (double[]){-2, 0, 0, 3}, 0);
    one("ThresholdedRelu", TACIT_F32, (double[]){0.5, 1, 1.5}, 3, (double[]){0, 0, 1.5}, 0);
    one("BitwiseNot", TACIT_U8, (double[]){0, 255, 1}, 3, (double[]){255, 0, 254}, 0);
}

static void two(const char *type, tacit_dtype ta, const double *a, tacit_dtype tb, const double *b,
                int64_t n, tacit_dtype ty, const double *y)
{
    op_case c;
    op_case_begin(&c, "", type);
    op_case_f64(&c, ta, SHAPE(n), a);
    op_case_f64(&c, tb, SHAPE(n), b);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, ty, SHAPE(n), y, 0);
    op_case_end(&c);
}

static void arithmetic_follows_the_spec(void **state)
{
    (void)state;
    two("Div", TACIT_I32, (double[]){-7, 7, -2147483648.0}, TACIT_I32, (double[]){2, -2, -1}, 3,
        TACIT_I32, (double[]){-3, -3, -2147483648.0});
    two("Mod", TACIT_I32, (double[]){-7, 7, 7}, TACIT_I32, (double[]){3, -3, 3}, 3, TACIT_I32,
        (double[]){2, -2, 1});
    two("Pow", TACIT_I32, (double[]){2, -3, 5}, TACIT_F32, (double[]){3, 3, 0}, 3, TACIT_I32,
        (double[]){8, -27, 1});
    two("Pow", TACIT_F32, (double[]){2, 9, 0}, TACIT_I64, (double[]){-1, 2, 0}, 3, TACIT_F32,
        (double[]){0.5, 81, 1});
    two("Pow", TACIT_I64, (double[]){2, -1, 7}, TACIT_I64, (double[]){-1, -3, 2}, 3, TACIT_I64,
        (double[]){0, -1, 49});
    two("Add", TACIT_U8, (double[]){250, 1}, TACIT_U8, (double[]){10, 2}, 2, TACIT_U8,
        (double[]){4, 3});
    two("Max", TACIT_F32, (double[]){NAN, 1}, TACIT_F32, (double[]){1, NAN}, 2, TACIT_F32,
        (double[]){NAN, NAN});
    two("Less", TACIT_U64, (double[]){0x1p63, 1}, TACIT_U64, (double[]){1, 0x1p63}, 2, TACIT_BOOL,
        (double[]){0, 1});
    two("PRelu", TACIT_F32, (double[]){-2, 3}, TACIT_F32, (double[]){0.5, 9}, 2, TACIT_F32,
        (double[]){-1, 3});
}

static void integer_division_by_zero_is_refused(void **state)
{
    (void)state;
    const char *const types[] = {"Div", "Mod"};
    for (int i = 0; i < 2; i++) {
        op_case c;
        op_case_begin(&c, "", types[i]);
        op_case_i64(&c, TACIT_I32, SHAPE(2), (int64_t[]){1, 2});
        op_case_i64(&c, TACIT_I32, SHAPE(2), (int64_t[]){1, 0});
        op_case_refuses(&c, 1, TACIT_ERR_VALUE, "division by zero");
        op_case_end(&c);
    }
}

static void bad_operands_are_named(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "Add");
    op_case_f64(&c, TACIT_F32, SHAPE(2), (double[]){1, 2});
    op_case_f64(&c, TACIT_F32, SHAPE(3), (double[]){1, 2, 3});
    op_case_refuses(&c, 1, TACIT_ERR_SHAPE, "do not broadcast");
    op_case_end(&c);
    op_case_begin(&c, "", "Add");
    op_case_f64(&c, TACIT_F32, SHAPE(1), (double[]){1});
    op_case_f64(&c, TACIT_F64, SHAPE(1), (double[]){1});
    op_case_refuses(&c, 1, TACIT_ERR_TYPE, "f64");
    op_case_end(&c);
    op_case_begin(&c, "", "Sin");
    op_case_strings(&c, SHAPE(1), (const char *[]){"x"});
    op_case_refuses(&c, 1, TACIT_ERR_TYPE, "string");
    op_case_end(&c);
}

static void shifts_drop_what_leaves(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "BitShift");
    op_case_i64(&c, TACIT_U8, SHAPE(3), (int64_t[]){255, 1, 3});
    op_case_i64(&c, TACIT_U8, SHAPE(3), (int64_t[]){1, 7, 200});
    op_case_string(&c, "direction", "LEFT");
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_U8, SHAPE(3), (double[]){254, 128, 0}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "BitShift");
    op_case_i64(&c, TACIT_U64, SHAPE(2), (int64_t[]){-1, 8});
    op_case_i64(&c, TACIT_U64, SHAPE(2), (int64_t[]){63, 2});
    op_case_string(&c, "direction", "RIGHT");
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_U64, SHAPE(2), (double[]){1, 2}, 0);
    op_case_end(&c);
}

static void clip_takes_absent_and_crossed_bounds(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "Clip");
    op_case_f64(&c, TACIT_F32, SHAPE(3), (double[]){-5, 0.5, 9});
    op_case_give(&c, NULL);
    op_case_f64(&c, TACIT_F32, SCALAR, (double[]){2});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(3), (double[]){-5, 0.5, 2}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "Clip");
    op_case_i64(&c, TACIT_U64, SHAPE(3), (int64_t[]){-1, 5, 0});
    op_case_i64(&c, TACIT_U64, SCALAR, (int64_t[]){1});
    op_case_i64(&c, TACIT_U64, SCALAR, (int64_t[]){6});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_U64, SHAPE(3), (double[]){6, 5, 1}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "Clip");
    op_case_f64(&c, TACIT_F32, SHAPE(2), (double[]){0, 9});
    op_case_f64(&c, TACIT_F32, SCALAR, (double[]){5});
    op_case_f64(&c, TACIT_F32, SCALAR, (double[]){2});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2), (double[]){2, 2}, 0);
    op_case_end(&c);
}

static void where_selects_any_type(void **state)
{
    (void)state;
    const tacit_dtype types[] = {TACIT_F32, TACIT_F64, TACIT_U8, TACIT_I4, TACIT_F16, TACIT_C128};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (uint64_t seed = 0; seed < 40; seed++) {
            rng r = rng_seed(seed);
            op_case c;
            op_case_begin(&c, "", "Where");
            ir_shape s = random_shape(&r, 8), sc = random_broadcast(&r, &s);
            ir_shape sa = random_broadcast(&r, &s), sb = random_broadcast(&r, &s), y;
            const ir_tensor *test = op_case_random(&c, &r, TACIT_BOOL, sc, 0, 2);
            const ir_tensor *a = op_case_random(&c, &r, types[t], sa, -7, 7);
            const ir_tensor *b = op_case_random(&c, &r, types[t], sb, -7, 7);
            op_case_run(&c, 1);
            assert_int_equal(ir_shape_broadcast(&sa, &sb, &y, NULL), TACIT_OK);
            assert_int_equal(ir_shape_broadcast(&y, &sc, &y, NULL), TACIT_OK);
            assert_true(ir_shape_equal(&y, &c.out[0].shape));
            int64_t index[IR_MAX_RANK] = {0}, k = 0;
            if (ir_shape_size(&y))
                do {
                    bool first = ((uint8_t *)test->data)[broadcast_index(&y, index, &sc)];
                    const ir_tensor *from = first ? a : b;
                    int64_t at = broadcast_index(&y, index, first ? &sa : &sb);
                    assert_true(ir_load_f64(types[t], from->data, at) ==
                                ir_load_f64(types[t], c.out[0].data, k++));
                } while (next_index(&y, index));
            op_case_end(&c);
        }
}

static void complex_arithmetic(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "Mul");
    ir_tensor *a = op_case_f64(&c, TACIT_C64, SHAPE(1), (double[]){0});
    ir_tensor *b = op_case_f64(&c, TACIT_C64, SHAPE(1), (double[]){0});
    memcpy(a->data, (float[]){1, 2}, 8);
    memcpy(b->data, (float[]){3, -1}, 8);
    op_case_run(&c, 1);
    assert_memory_equal(c.out[0].data, ((float[]){5, 5}), 8);
    op_case_end(&c);
    op_case_begin(&c, "", "Sqrt");
    a = op_case_f64(&c, TACIT_C64, SHAPE(1), (double[]){0});
    memcpy(a->data, (float[]){-1, 0}, 8);
    op_case_run(&c, 1);
    const float *root = c.out[0].data;
    assert_true(root[0] == 0 && root[1] == 1); /* the principal root of -1 is +i */
    op_case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binary_ops_broadcast_both_ways),
        cmocka_unit_test(functions_have_their_values),
        cmocka_unit_test(arithmetic_follows_the_spec),
        cmocka_unit_test(integer_division_by_zero_is_refused),
        cmocka_unit_test(bad_operands_are_named),
        cmocka_unit_test(shifts_drop_what_leaves),
        cmocka_unit_test(clip_takes_absent_and_crossed_bounds),
        cmocka_unit_test(where_selects_any_type),
        cmocka_unit_test(complex_arithmetic),
    };
    return cmocka_run_group_tests_name("element-wise ops", tests, NULL, NULL);
}
