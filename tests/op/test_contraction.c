/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "support/one_node.h"

static void matmul_of_hand_computed_values(void **state)
{
    (void)state;
    static const tacit_dtype dtypes[] = {TACIT_F32, TACIT_F64, TACIT_F16, TACIT_BF16,
                                         TACIT_I32, TACIT_I64, TACIT_U32, TACIT_U64};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        one_node t;
        one_node_begin(&t, "", "MatMul");
        one_node_in(&t, dtypes[d], DIMS(2, 3), V(1, 2, 3, 4, 5, 6));
        one_node_in(&t, dtypes[d], DIMS(3, 2), V(7, 8, 9, 10, 11, 12));
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(2, 2), V(58, 64, 139, 154), 0);
        one_node_end(&t);
    }
}

static void matmul_broadcasts_batches_and_vectors(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "MatMul");
    one_node_in(&t, TACIT_F32, DIMS(2, 1, 1, 2), V(1, 2, 3, 4));
    one_node_in(&t, TACIT_F32, DIMS(2, 2, 1), V(1, 1, 10, 10));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2, 2, 1, 1), V(3, 30, 7, 70), 0);
    one_node_end(&t);
    one_node_begin(&t, "", "MatMul");
    one_node_in(&t, TACIT_F32, DIMS(2), V(1, 2));
    one_node_in(&t, TACIT_F32, DIMS(2), V(3, 4));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, SCALAR, V(11), 0);
    one_node_end(&t);
}

static void matmul_of_nothing_is_zero(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "MatMul");
    one_node_in(&t, TACIT_F32, DIMS(2, 0), V(0));
    one_node_in(&t, TACIT_F32, DIMS(0, 2), V(0));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2, 2), V(0, 0, 0, 0), 0);
    one_node_end(&t);
}

static void matmul_names_what_does_not_fit(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "MatMul");
    one_node_in(&t, TACIT_F32, DIMS(2, 3), V(1, 2, 3, 4, 5, 6));
    one_node_in(&t, TACIT_F32, DIMS(2, 2), V(1, 2, 3, 4));
    one_node_expect_error(&t, 1, TACIT_ERR_SHAPE, "[2,3] times [2,2]");
    one_node_end(&t);
    one_node_begin(&t, "", "MatMul");
    one_node_in(&t, TACIT_F32, SCALAR, V(1));
    one_node_in(&t, TACIT_F32, DIMS(1), V(1));
    one_node_expect_error(&t, 1, TACIT_ERR_SHAPE, "scalar");
    one_node_end(&t);
}

/* Any sizes agree with the definition. */
static void matmul_agrees_with_three_loops(void **state)
{
    (void)state;
    rng r = rng_seed(7);
    for (int round = 0; round < 200; round++) {
        int64_t m = (int64_t)rng_below(&r, 12), k = (int64_t)rng_below(&r, 20),
                n = (int64_t)rng_below(&r, 21);
        double a[12 * 20], b[20 * 21], y[12 * 21] = {0};
        for (int64_t i = 0; i < m * k; i++)
            a[i] = (double)rng_below(&r, 17) - 8;
        for (int64_t i = 0; i < k * n; i++)
            b[i] = (double)rng_below(&r, 17) - 8;
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++)
                for (int64_t p = 0; p < k; p++)
                    y[i * n + j] += a[i * k + p] * b[p * n + j];
        one_node t;
        one_node_begin(&t, "", "MatMul");
        one_node_in(&t, round & 1 ? TACIT_F32 : TACIT_I32, DIMS(m, k), a);
        one_node_in(&t, round & 1 ? TACIT_F32 : TACIT_I32, DIMS(k, n), b);
        assert_int_equal(one_node_run(&t, 1), TACIT_OK);
        one_node_expect(&t, 0, DIMS(m, n), y, 0);
        one_node_end(&t);
    }
}

static void gemm_transposes_scales_and_adds(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "Gemm");
    one_node_in(&t, TACIT_F32, DIMS(3, 2), V(1, 4, 2, 5, 3, 6));
    one_node_in(&t, TACIT_F32, DIMS(2, 3), V(7, 9, 11, 8, 10, 12));
    one_node_in(&t, TACIT_F32, DIMS(2, 1), V(1, 2));
    one_node_int(&t, "transA", 1);
    one_node_int(&t, "transB", 1);
    one_node_float(&t, "alpha", 0.5);
    one_node_float(&t, "beta", 2);
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(2, 2), V(31, 34, 73.5, 81), 0);
    one_node_end(&t);
}

static void matmul_integer_subtracts_zero_points(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "MatMulInteger");
    one_node_in(&t, TACIT_U8, DIMS(2, 2), V(11, 7, 3, 10));
    one_node_in(&t, TACIT_I8, DIMS(2, 2), V(1, -4, 2, 5));
    one_node_in(&t, TACIT_U8, DIMS(2), V(10, 3));
    one_node_in(&t, TACIT_I8, DIMS(2), V(0, 1));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    /* rows (1,−3) and (0,7) times columns (1,2) and (−5,4) */
    one_node_expect(&t, 0, DIMS(2, 2), V(-5, -17, 14, 28), 0);
    one_node_end(&t);
}

static void einsum_case(const char *equation, int32_t rank, const int64_t *dims, const double *want)
{
    one_node t;
    one_node_begin(&t, "", "Einsum");
    one_node_string(&t, "equation", equation);
    one_node_in(&t, TACIT_F32, DIMS(2, 2), V(1, 2, 3, 4));
    if (strchr(equation, ','))
        one_node_in(&t, TACIT_F32, DIMS(2, 2), V(5, 6, 7, 8));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, rank, dims, want, 0);
    one_node_end(&t);
}

static void einsum_equations(void **state)
{
    (void)state;
    einsum_case("ij,jk->ik", DIMS(2, 2), V(19, 22, 43, 50));
    einsum_case("ij , jk", DIMS(2, 2), V(19, 22, 43, 50));
    einsum_case("ii->i", DIMS(2), V(1, 4));
    einsum_case("ii", SCALAR, V(5));
    einsum_case("ij->ji", DIMS(2, 2), V(1, 3, 2, 4));
    einsum_case("...i,...i->...", DIMS(2), V(17, 53));
    einsum_case("i...->...", DIMS(2), V(4, 6));
    einsum_case("ij,kl->", SCALAR, V(260));
    one_node t;
    one_node_begin(&t, "", "Einsum");
    one_node_string(&t, "equation", "ij->ik");
    one_node_in(&t, TACIT_F32, DIMS(2, 2), V(1, 2, 3, 4));
    one_node_expect_error(&t, 1, TACIT_ERR_VALUE, "letter no input has");
    one_node_end(&t);
    one_node_begin(&t, "", "Einsum");
    one_node_string(&t, "equation", "i1->i");
    one_node_in(&t, TACIT_F32, DIMS(2, 2), V(1, 2, 3, 4));
    one_node_expect_error(&t, 1, TACIT_ERR_VALUE, "near '1->i'");
    one_node_end(&t);
}

static void determinants(void **state)
{
    (void)state;
    one_node t;
    one_node_begin(&t, "", "Det");
    one_node_in(&t, TACIT_F32, DIMS(3, 2, 2), V(1, 2, 3, 4, 0, 1, 1, 0, 1, 2, 2, 4));
    assert_int_equal(one_node_run(&t, 1), TACIT_OK);
    one_node_expect(&t, 0, DIMS(3), V(-2, -1, 0), 1e-6);
    one_node_end(&t);
    one_node_begin(&t, "", "Det");
    one_node_in(&t, TACIT_F32, DIMS(1, 2), V(1, 2));
    one_node_expect_error(&t, 1, TACIT_ERR_SHAPE, "square");
    one_node_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matmul_of_hand_computed_values),
        cmocka_unit_test(matmul_broadcasts_batches_and_vectors),
        cmocka_unit_test(matmul_of_nothing_is_zero),
        cmocka_unit_test(matmul_names_what_does_not_fit),
        cmocka_unit_test(matmul_agrees_with_three_loops),
        cmocka_unit_test(gemm_transposes_scales_and_adds),
        cmocka_unit_test(matmul_integer_subtracts_zero_points),
        cmocka_unit_test(einsum_equations),
        cmocka_unit_test(determinants),
    };
    return cmocka_run_group_tests_name("op contraction", tests, NULL, NULL);
}
