/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/one_node.h"

static void softmax_survives_large_and_infinite_scores(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "Softmax");
    one_node_in(&t, TACIT_F32, DIMS(2, 2), V(10000, 10000, -INFINITY, 3));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2, 2), V(0.5, 0.5, 0, 1), 0);
    one_node_end(&t);
    one_node_begin(&t, "", "LogSoftmax");
    one_node_in(&t, TACIT_F64, DIMS(2, 1), V(0, log(3)));
    one_node_int(&t, "axis", 0);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2, 1), V(-log(4), log(0.75)), 1e-15);
    one_node_end(&t);
}

static void batch_norm_trains(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "BatchNormalization");
    one_node_in(&t, TACIT_F32, DIMS(2, 1, 2), V(1, 3, 5, 7));
    one_node_in(&t, TACIT_F32, DIMS(1), V(2));
    one_node_in(&t, TACIT_F32, DIMS(1), V(1));
    one_node_in(&t, TACIT_F32, DIMS(1), V(10));
    one_node_in(&t, TACIT_F32, DIMS(1), V(20));
    one_node_float(&t, "epsilon", 0);
    one_node_float(&t, "momentum", 0.5);
    one_node_int(&t, "training_mode", 1);
    assert_int_equal(one_node_run(&t, 3), TACIT_OK);
    double s = 2 / sqrt(5);
    one_node_expect(&t, 0, DIMS(2, 1, 2), V(1 - 3 * s, 1 - s, 1 + s, 1 + 3 * s), 1e-6);
    one_node_expect(&t, 1, DIMS(1), V(7), 0);
    one_node_expect(&t, 2, DIMS(1), V(12.5), 0);
    one_node_end(&t);
}

static void layer_norm_reports_statistics(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "LayerNormalization");
    one_node_in(&t, TACIT_F32, DIMS(1, 2, 2), V(1, 3, 5, 7));
    one_node_in(&t, TACIT_F32, DIMS(2, 2), V(1, 2, 1, 2));
    one_node_in(&t, TACIT_F32, DIMS(2), V(0, 1));
    one_node_int(&t, "axis", 1);
    one_node_float(&t, "epsilon", 4);
    assert_int_equal(one_node_run(&t, 3), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 2, 2), V(-1, 1 - 2. / 3, 1. / 3, 3), 1e-6);
    one_node_expect(&t, 1, DIMS(1, 1, 1), V(4), 0);
    one_node_expect(&t, 2, DIMS(1, 1, 1), V(1. / 3), 1e-7);
    one_node_end(&t);
}

static void rms_norm_of_hand_computed_values(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "RMSNormalization");
    one_node_in(&t, TACIT_F16, DIMS(1, 2), V(3, 4));
    one_node_in(&t, TACIT_F16, DIMS(2), V(1, 2));
    one_node_float(&t, "epsilon", 0);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 2), V(3 / sqrt(12.5), 8 / sqrt(12.5)), 1e-3);
    one_node_end(&t);
}

static void group_norm_scales_by_channel(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "GroupNormalization");
    one_node_in(&t, TACIT_F32, DIMS(1, 4, 1), V(1, 3, 10, 20));
    one_node_in(&t, TACIT_F32, DIMS(4), V(1, 2, 3, 4));
    one_node_in(&t, TACIT_F32, DIMS(4), V(0, 0, 1, 1));
    one_node_int(&t, "num_groups", 2);
    one_node_float(&t, "epsilon", 0);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 4, 1), V(-1, 2, -2, 5), 1e-6);
    one_node_end(&t);
    one_node_begin(&t, "", "GroupNormalization");
    one_node_in(&t, TACIT_F32, DIMS(1, 3, 1), V(1, 3, 10));
    one_node_in(&t, TACIT_F32, DIMS(3), V(1, 2, 3));
    one_node_in(&t, TACIT_F32, DIMS(3), V(0, 0, 1));
    one_node_int(&t, "num_groups", 2);
    one_node_expect_error(&t, 1, TACIT_ERR_SHAPE, "3 channels do not divide into 2 groups");
    one_node_end(&t);
}

static void lp_norm_keeps_a_zero_vector(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "LpNormalization");
    one_node_in(&t, TACIT_F32, DIMS(2, 2), V(0, 0, 3, 4));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2, 2), V(0, 0, 0.6, 0.8), 1e-7);
    one_node_end(&t);
}

static void fused_norm_gives_the_sum(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "tacit", "Norm");
    one_node_in(&t, TACIT_F32, DIMS(1, 2), V(1, 2));
    one_node_in(&t, TACIT_F32, DIMS(2), V(2, 2));
    one_node_in(&t, TACIT_F32, DIMS(2), V(1, 0));
    one_node_in(&t, TACIT_F32, DIMS(1, 2), V(4, 1));
    one_node_float(&t, "epsilon", 0);
    assert_int_equal(one_node_run(&t, 2), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 2), V(3, -2), 1e-6);
    one_node_expect(&t, 1, DIMS(1, 2), V(5, 3), 0);
    one_node_end(&t);
}

static void fused_attention_masks(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        one_node t;
        one_node_begin(&t, "tacit", "Attention");
        one_node_in(&t, TACIT_F32, DIMS(1, 2, 2, 1), V(1, 1, 1, 1));
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 2, 1), V(0, log(3)));
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 2, 1), V(4, 8));
        if (kind == 1)
            one_node_in(&t, TACIT_BOOL, DIMS(2, 2), V(1, 0, 1, 1));
        if (kind == 2)
            one_node_in(&t, TACIT_F32, DIMS(1, 1, 1, 2), V(-INFINITY, 0));
        one_node_int(&t, "causal", kind == 3);
        one_node_string(&t, "out_layout", "bshd");
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        double first = kind == 0 ? 7 : kind == 2 ? 8 : 4, second = kind == 2 ? 8 : 7;
        one_node_expect(&t, 0, DIMS(1, 2, 2, 1), V(first, first, second, second), 1e-6);
        one_node_end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_survives_large_and_infinite_scores),
        cmocka_unit_test(batch_norm_trains),
        cmocka_unit_test(layer_norm_reports_statistics),
        cmocka_unit_test(rms_norm_of_hand_computed_values),
        cmocka_unit_test(group_norm_scales_by_channel),
        cmocka_unit_test(lp_norm_keeps_a_zero_vector),
        cmocka_unit_test(fused_norm_gives_the_sum),
        cmocka_unit_test(fused_attention_masks),
    };
    return cmocka_run_group_tests_name("op norm", tests, NULL, NULL);
}
