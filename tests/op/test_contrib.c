/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/one_node.h"

static void nbits_unpacks_low_nibble_first(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "com.microsoft", "MatMulNBits");
    one_node_in(&t, TACIT_F32, DIMS(1, 3), V(1, 10, 100));
    /* one row, two blocks of two; the second has one column too many */
    one_node_in(&t, TACIT_U8, DIMS(1, 2, 1), V(0x9a, 0xf7));
    one_node_in(&t, TACIT_F32, DIMS(2), V(2, 3));
    one_node_int(&t, "K", 3);
    one_node_int(&t, "N", 1);
    one_node_int(&t, "block_size", 2);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 1), V(2 * 2 + 10 * 1 * 2 + 100 * -1 * 3), 0);
    one_node_end(&t);
}

static void attention_masks_by_length(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "com.microsoft", "Attention");
    one_node_in(&t, TACIT_F32, DIMS(1, 2, 1), V(1, 3));
    one_node_in(&t, TACIT_F32, DIMS(1, 3), V(0, 0, 2)); /* equal scores, V = 2x */
    one_node_in(&t, TACIT_F32, DIMS(3), V(0, 0, 1));
    one_node_in(&t, TACIT_I32, DIMS(1), V(1));
    one_node_int(&t, "num_heads", 1);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(1, 2, 1), V(3, 3), 1e-6);
    one_node_end(&t);
}

static void packed_forms_agree(void **state)
{
    (void)state;
    const double q[] = {1, 0.5}, k[] = {0.25, -1}, v[] = {4, 8};
    one_node a, b, c;
    one_node_begin(&a, "com.microsoft", "MultiHeadAttention");
    one_node_in(&a, TACIT_F32, DIMS(1, 2, 1), q);
    one_node_in(&a, TACIT_F32, DIMS(1, 2, 1), k);
    one_node_in(&a, TACIT_F32, DIMS(1, 2, 1), v);
    one_node_begin(&b, "com.microsoft", "MultiHeadAttention");
    one_node_in(&b, TACIT_F32, DIMS(1, 2, 1, 3, 1), V(q[0], k[0], v[0], q[1], k[1], v[1]));
    one_node_begin(&c, "com.microsoft", "MultiHeadAttention");
    one_node_in(&c, TACIT_F32, DIMS(1, 2, 1), q);
    one_node_in(&c, TACIT_F32, DIMS(1, 2, 1, 2, 1), V(k[0], v[0], k[1], v[1]));
    one_node *all[] = {&a, &b, &c};
    double want[2];
    for (int i = 0; i < 2; i++) {
        double x = exp(q[i] * k[0]), y = exp(q[i] * k[1]);
        want[i] = (4 * x + 8 * y) / (x + y);
    }
    for (int i = 0; i < 3; i++) {
        one_node_int(all[i], "num_heads", 1);
        assert_int_equal(one_node_run(all[i], 1), TACIT_OK);
        one_node_expect(all[i], 0, DIMS(1, 2, 1), want, 1e-6);
        one_node_end(all[i]);
    }
}

/* A cache of two rows for the first batch and one for the second grows by one row each. */
static void group_query_cache_is_ragged(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "com.microsoft", "GroupQueryAttention");
    one_node_in(&t, TACIT_F32, DIMS(2, 1, 2), V(0, 0, 0, 0));
    one_node_in(&t, TACIT_F32, DIMS(2, 1, 1), V(7, 8));
    one_node_in(&t, TACIT_F32, DIMS(2, 1, 1), V(30, 50));
    one_node_in(&t, TACIT_F32, DIMS(2, 1, 2, 1), V(1, 2, 3, 99));
    one_node_in(&t, TACIT_F32, DIMS(2, 1, 2, 1), V(0, 60, 10, 99));
    one_node_in(&t, TACIT_I32, DIMS(2), V(2, 1));
    one_node_in(&t, TACIT_I32, DIMS(1), V(3));
    one_node_int(&t, "num_heads", 2);
    one_node_int(&t, "kv_num_heads", 1);
    assert_int_equal(one_node_run(&t, 3), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2, 1, 2), V(30, 30, 30, 30), 1e-6);
    one_node_expect(&t, 1, DIMS(2, 1, 3, 1), V(1, 2, 7, 3, 8, 0), 0);
    one_node_expect(&t, 2, DIMS(2, 1, 3, 1), V(0, 60, 30, 10, 50, 0), 0);
    one_node_end(&t);
}

static void a_cache_without_room_is_refused(void **state)
{
    (void)state;
    for (int first = -1; first < 3; first += 3) {
        one_node t;
        one_node_begin(&t, "tacit", "GrowCache");
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 2, 1), V(1, 2));
        one_node_in(&t, TACIT_F32, DIMS(1, 1, 1, 1), V(3));
        one_node_in(&t, TACIT_I64, DIMS(1), V(first));
        one_node_int(&t, "size", 2);
        one_node_expect_error(&t, 1, TACIT_ERR_VALUE, "no room for 1 rows behind");
        one_node_end(&t);
    }
}

static void embedding_refuses_an_index_outside(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "com.microsoft", "EmbedLayerNormalization");
    one_node_in(&t, TACIT_I32, DIMS(1, 1), V(2));
    one_node_in(&t, TACIT_I32, DIMS(1, 1), NULL);
    one_node_in(&t, TACIT_F32, DIMS(2, 2), V(1, 2, 3, 4));
    one_node_in(&t, TACIT_F32, DIMS(1, 2), V(0, 0));
    one_node_in(&t, TACIT_F32, DIMS(1, 2), NULL);
    one_node_in(&t, TACIT_F32, DIMS(2), V(1, 1));
    one_node_in(&t, TACIT_F32, DIMS(2), V(0, 0));
    one_node_expect_error(&t, 2, TACIT_ERR_VALUE, "index 2 is outside table 2 of 2 rows");
    one_node_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nbits_unpacks_low_nibble_first),
        cmocka_unit_test(attention_masks_by_length),
        cmocka_unit_test(packed_forms_agree),
        cmocka_unit_test(group_query_cache_is_ragged),
        cmocka_unit_test(a_cache_without_room_is_refused),
        cmocka_unit_test(embedding_refuses_an_index_outside),
    };
    return cmocka_run_group_tests_name("op contrib", tests, NULL, NULL);
}
