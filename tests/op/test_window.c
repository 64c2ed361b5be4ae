/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/one_node.h"

static const double nine[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

static void conv_two_dimensions(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "Conv");
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 3, 3), nine);
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 2, 2), V(1, 0, 0, -1));
    one_node_in(&t, TACIT_F32, DIMS(1), V(10));
    one_node_ints(&t, "pads", INTS(0, 0, 1, 1));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 1, 3, 3), V(6, 6, 13, 6, 6, 16, 17, 18, 19), 0);
    one_node_end(&t);
}

static void conv_groups_strides_dilations(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "Conv");
    one_node_in(&t, TACIT_F32, DIMS(1, 2, 5), V(1, 2, 3, 4, 5, 10, 20, 30, 40, 50));
    one_node_in(&t, TACIT_F32, DIMS(2, 1, 2), V(1, 1, 1, -1));
    one_node_int(&t, "group", 2);
    one_node_ints(&t, "dilations", INTS(2));
    one_node_ints(&t, "strides", INTS(2));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 2, 2), V(4, 8, -20, -20), 0);
    one_node_end(&t);
}

static void conv_same_padding_sides(void **state)
{
    (void)state;
    static const char *const modes[] = {"SAME_UPPER", "SAME_LOWER"};
    static const double want[2][3] = {{3, 5, 3}, {1, 3, 5}};
    for (int i = 0; i < 2; i++) {
        one_node t;
        one_node_begin(&t, "", "Conv");
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 3), V(1, 2, 3));
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 2), V(1, 1));
        one_node_string(&t, "auto_pad", modes[i]);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(1, 1, 3), want[i], 0);
        one_node_end(&t);
    }
}

static void conv_refuses_bad_attributes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t values[2];
        const char *message;
    } bad[] = {{"strides", {0, 1}, "strides[0] is 0"},
               {"dilations", {1, -1}, "dilations[1] is -1"},
               {"kernel_shape", {2, 3}, "kernel_shape[1]"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        one_node t;
        one_node_begin(&t, "", "Conv");
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 3, 3), nine);
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 2, 2), V(1, 0, 0, -1));
        one_node_ints(&t, bad[i].name, 2, bad[i].values);
        assert_int_not_equal(one_node_run(&t, 1), TACIT_OK);
        assert_non_null(strstr(t.err.message, bad[i].message));
        one_node_end(&t);
    }
    one_node t;
    one_node_begin(&t, "", "Conv");
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 3, 3), nine);
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 2, 2), V(1, 0, 0, -1));
    one_node_ints(&t, "pads", INTS(-1, 0, 0, 0));
    one_node_expect_error(&t, 1, TACIT_ERR_VALUE, "pads[0] is -1");
    one_node_end(&t);
    one_node_begin(&t, "", "Conv");
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 1, 1), V(1));
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 2, 2), V(1, 0, 0, -1));
    one_node_expect_error(&t, 1, TACIT_ERR_SHAPE, "larger than the padded axis");
    one_node_end(&t);
}

static void conv_transpose_is_the_adjoint(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "ConvTranspose");
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 3), V(1, 2, 3));
    one_node_in(&t, TACIT_F32, DIMS(1, 2, 2), V(1, 10, 1, -1));
    one_node_ints(&t, "strides", INTS(2));
    one_node_ints(&t, "output_padding", INTS(1));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 2, 7), V(1, 10, 2, 20, 3, 30, 0, 1, -1, 2, -2, 3, -3, 0), 0);
    one_node_end(&t);
}

static void max_pool_values_and_indices(void **state)
{
    (void)state;
    for (int order = 0; order < 2; order++) {
        one_node t;
        one_node_begin(&t, "", "MaxPool");
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 3, 3), V(1, 9, 3, 4, 5, 6, 7, 8, 2));
        one_node_ints(&t, "kernel_shape", INTS(2, 2));
        one_node_int(&t, "storage_order", order);
        assert_int_equal(one_node_run(&t, 2), TACIT_OK);
        one_node_expect(&t, 0, DIMS(1, 1, 2, 2), V(9, 9, 8, 8), 0);
        one_node_expect(&t, 1, DIMS(1, 1, 2, 2), order ? V(3, 3, 5, 5) : V(1, 1, 7, 7), 0);
        one_node_end(&t);
    }
}

static void average_pool_counts_padding_as_asked(void **state)
{
    (void)state;
    for (int include = 0; include < 2; include++) {
        one_node t;
        one_node_begin(&t, "", "AveragePool");
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 4), V(2, 4, 6, 8));
        one_node_ints(&t, "kernel_shape", INTS(3));
        one_node_ints(&t, "strides", INTS(2));
        one_node_ints(&t, "pads", INTS(1, 0));
        one_node_int(&t, "ceil_mode", 1);
        one_node_int(&t, "count_include_pad", include);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(1, 1, 2), include ? V(2, 6) : V(3, 6), 1e-7);
        one_node_end(&t);
    }
}

static void unpool_refuses_a_wild_index(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "MaxUnpool");
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 1, 1), V(5));
    one_node_in(&t, TACIT_I64, DIMS(1, 1, 1, 1), V(4));
    one_node_ints(&t, "kernel_shape", INTS(2, 2));
    one_node_expect_error(&t, 1, TACIT_ERR_VALUE, "index 4");
    one_node_end(&t);
    one_node_begin(&t, "", "MaxUnpool");
    one_node_in(&t, TACIT_F32, DIMS(1, 1, 1, 1), V(5));
    one_node_in(&t, TACIT_I64, DIMS(1, 1, 1, 1), V(3));
    one_node_ints(&t, "kernel_shape", INTS(2, 2));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 1, 2, 2), V(0, 0, 0, 5), 0);
    one_node_end(&t);
}

static void fused_conv_adds_before_or_after_the_activation(void **state)
{
    (void)state;
    for (int last = 0; last < 2; last++) {
        one_node t;
        one_node_begin(&t, "tacit", "Conv");
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 3), V(1, -2, 3));
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 1), V(2));
        one_node_in(&t, TACIT_F32, DIMS(1), V(1));
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 3), V(-10, 10, 1));
        one_node_string(&t, "activation", "relu");
        one_node_int(&t, "activation_last", last);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(1, 1, 3), last ? V(0, 7, 8) : V(-7, 10, 8), 0);
        one_node_end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_two_dimensions),
        cmocka_unit_test(conv_groups_strides_dilations),
        cmocka_unit_test(conv_same_padding_sides),
        cmocka_unit_test(conv_refuses_bad_attributes),
        cmocka_unit_test(conv_transpose_is_the_adjoint),
        cmocka_unit_test(max_pool_values_and_indices),
        cmocka_unit_test(average_pool_counts_padding_as_asked),
        cmocka_unit_test(unpool_refuses_a_wild_index),
        cmocka_unit_test(fused_conv_adds_before_or_after_the_activation),
    };
    return cmocka_run_group_tests_name("op window", tests, NULL, NULL);
}
