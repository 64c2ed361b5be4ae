/* SPDX-License-Identifier: Apache-2.0
 * Gather and scatter: against plain loops, and indices that must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

enum { SHAPES = 200 };

static void gather_reads_slices(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SHAPES; seed++) {
        rng r = rng_seed(seed);
        op_case c;
        op_case_begin(&c, "", "Gather");
        ir_shape s = random_shape(&r, 5), q = random_shape(&r, 3);
        if (s.rank == 0)
            s = SHAPE(4);
        int64_t axis = (int64_t)rng_below(&r, (uint64_t)s.rank), n = s.dims[axis];
        if (n == 0)
            s.dims[axis] = n = 2;
        tacit_dtype dtype = seed % 3 ? TACIT_I16 : TACIT_U4;
        const ir_tensor *x = op_case_random(&c, &r, dtype, s, 0, 15);
        const ir_tensor *index = op_case_random(&c, &r, TACIT_I64, q, (double)-n, (double)n);
        op_case_int(&c, "axis", axis - s.rank);
        op_case_run(&c, 1);
        const ir_shape *y = &c.out[0].shape;
        assert_int_equal(y->rank, s.rank - 1 + q.rank);
        int64_t at[IR_MAX_RANK] = {0}, from[IR_MAX_RANK], k = 0;
        if (ir_shape_size(y))
            do {
                int64_t i = ((int64_t *)index->data)[broadcast_index(&q, at + axis, &q)];
                for (int64_t d = 0; d < s.rank; d++)
                    from[d] = d < axis    ? at[d]
                              : d == axis ? (i < 0 ? i + n : i)
                                          : at[d + q.rank - 1];
                int64_t want = ir_load_i64(dtype, x->data, broadcast_index(&s, from, &s));
                if (ir_load_i64(dtype, c.out[0].data, k++) != want)
                    fail_msg("seed %llu", (unsigned long long)seed);
            } while (next_index(y, at));
        op_case_end(&c);
    }
}

static void scatter_undoes_gather_elements(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SHAPES; seed++) {
        rng r = rng_seed(seed);
        op_case g, s;
        int64_t rows = 1 + (int64_t)rng_below(&r, 4), n = 1 + (int64_t)rng_below(&r, 6);
        int64_t perm[32];
        for (int64_t row = 0; row < rows; row++)
            for (int64_t d = 0; d < n; d++) {
                int64_t k = (int64_t)rng_below(&r, (uint64_t)d + 1);
                perm[row * n + d] = perm[row * n + k];
                perm[row * n + k] = d;
            }
        op_case_begin(&g, "", "GatherElements");
        const ir_tensor *x = op_case_random(&g, &r, TACIT_F32, SHAPE(rows, n), -5, 5);
        const ir_tensor *index = op_case_i64(&g, TACIT_I32, SHAPE(rows, n), perm);
        op_case_int(&g, "axis", 1);
        op_case_run(&g, 1);
        op_case_begin(&s, "", "ScatterElements");
        op_case_random(&s, &r, TACIT_F32, SHAPE(rows, n), 50, 60);
        op_case_give(&s, index);
        op_case_give(&s, &g.out[0]);
        op_case_int(&s, "axis", -1);
        op_case_run(&s, 1);
        assert_true(ir_tensor_identical(x, &s.out[0]));
        op_case_end(&g);
        op_case_end(&s);
    }
}

static void scatter_reduces_duplicates(void **state)
{
    (void)state;
    const struct {
        const char *how;
        double want[3];
    } cases[] = {{"add", {1, 12, 3}}, {"mul", {1, 48, 3}}, {"max", {1, 6, 3}}, {"min", {1, 2, 3}}};
    for (size_t i = 0; i < 4; i++) {
        op_case c;
        op_case_begin(&c, "", "ScatterElements");
        op_case_f64(&c, TACIT_F16, SHAPE(3), (double[]){1, 2, 3});
        op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){1, -2});
        op_case_f64(&c, TACIT_F16, SHAPE(2), (double[]){4, 6});
        op_case_string(&c, "reduction", cases[i].how);
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_F16, SHAPE(3), cases[i].want, 0);
        op_case_end(&c);
        op_case_begin(&c, "", "ScatterND");
        op_case_f64(&c, TACIT_I32, SHAPE(3), (double[]){1, 2, 3});
        op_case_i64(&c, TACIT_I64, SHAPE(2, 1), (int64_t[]){1, 1});
        op_case_f64(&c, TACIT_I32, SHAPE(2), (double[]){4, 6});
        op_case_string(&c, "reduction", cases[i].how);
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_I32, SHAPE(3), cases[i].want, 0);
        op_case_end(&c);
    }
}

static void gather_nd_with_batches(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "GatherND");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2, 2), (double[]){0, 1, 2, 3, 4, 5, 6, 7});
    op_case_i64(&c, TACIT_I64, SHAPE(2, 1), (int64_t[]){1, 0});
    op_case_int(&c, "batch_dims", 1);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 2), (double[]){2, 3, 4, 5}, 0);
    op_case_end(&c);
}

static void tensor_scatter_writes_the_cache(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "TensorScatter");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 3, 1), (double[]){1, 2, 3, 4, 5, 6});
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2, 1), (double[]){7, 8, 9, 10});
    op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){1, 2});
    op_case_string(&c, "mode", "circular");
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 3, 1), (double[]){1, 7, 8, 10, 5, 9}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "TensorScatter");
    op_case_f64(&c, TACIT_F32, SHAPE(1, 3, 1), (double[]){1, 2, 3});
    op_case_f64(&c, TACIT_F32, SHAPE(1, 2, 1), (double[]){7, 8});
    op_case_i64(&c, TACIT_I64, SHAPE(1), (int64_t[]){2});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "write index 2");
    op_case_end(&c);
}

static void indices_outside_are_named(void **state)
{
    (void)state;
    const int64_t bad[] = {3, -4, INT64_MAX, INT64_MIN};
    for (int i = 0; i < 4; i++) {
        op_case c;
        op_case_begin(&c, "", "Gather");
        op_case_f64(&c, TACIT_F32, SHAPE(3), (double[]){1, 2, 3});
        op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){0, bad[i]});
        op_case_refuses(&c, 1, TACIT_ERR_VALUE, "entry 1");
        op_case_end(&c);
        op_case_begin(&c, "", "GatherElements");
        op_case_f64(&c, TACIT_F32, SHAPE(3), (double[]){1, 2, 3});
        op_case_i64(&c, TACIT_I64, SHAPE(1), &bad[i]);
        op_case_refuses(&c, 1, TACIT_ERR_VALUE, "outside");
        op_case_end(&c);
        op_case_begin(&c, "", "GatherND");
        op_case_f64(&c, TACIT_F32, SHAPE(3), (double[]){1, 2, 3});
        op_case_i64(&c, TACIT_I64, SHAPE(1, 1), &bad[i]);
        op_case_refuses(&c, 1, TACIT_ERR_VALUE, "outside");
        op_case_end(&c);
        op_case_begin(&c, "", "ScatterND");
        op_case_f64(&c, TACIT_F32, SHAPE(3), (double[]){1, 2, 3});
        op_case_i64(&c, TACIT_I64, SHAPE(1, 1), &bad[i]);
        op_case_f64(&c, TACIT_F32, SHAPE(1), (double[]){1});
        op_case_refuses(&c, 1, TACIT_ERR_VALUE, "outside");
        op_case_end(&c);
        op_case_begin(&c, "", "ScatterElements");
        op_case_f64(&c, TACIT_F32, SHAPE(3), (double[]){1, 2, 3});
        op_case_i64(&c, TACIT_I64, SHAPE(1), &bad[i]);
        op_case_f64(&c, TACIT_F32, SHAPE(1), (double[]){1});
        op_case_refuses(&c, 1, TACIT_ERR_VALUE, "outside");
        op_case_end(&c);
    }
    op_case c;
    op_case_begin(&c, "", "Gather"); /* an empty axis has no valid index at all */
    op_case_f64(&c, TACIT_F32, SHAPE(0), NULL);
    op_case_i64(&c, TACIT_I64, SCALAR, (int64_t[]){0});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "outside");
    op_case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_reads_slices),
        cmocka_unit_test(scatter_undoes_gather_elements),
        cmocka_unit_test(scatter_reduces_duplicates),
        cmocka_unit_test(gather_nd_with_batches),
        cmocka_unit_test(tensor_scatter_writes_the_cache),
        cmocka_unit_test(indices_outside_are_named),
    };
    return cmocka_run_group_tests_name("indexing", tests, NULL, NULL);
}
