/* SPDX-License-Identifier: Apache-2.0
 * Reductions and ops along an axis: against plain loops on random shapes, and edge values. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "op/order.h"
#include "support/op_case.h"

enum { SHAPES = 200 };

/* What a reduction does to a list of values. */
static double reduce(const char *type, const double *v, int64_t n)
{
    double sum = 0, l1 = 0, square = 0, prod = 1, most = -INFINITY, least = INFINITY, e = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += v[i];
        l1 += fabs(v[i]);
        square += v[i] * v[i];
        prod *= v[i];
        most = fmax(most, v[i]);
        least = fmin(least, v[i]);
    }
    for (int64_t i = 0; i < n; i++)
        e += exp(v[i] - most);
    const struct {
        const char *type;
        double value;
    } all[] = {{"ReduceSum", sum},
               {"ReduceMean", sum / (double)n},
               {"ReduceL1", l1},
               {"ReduceL2", sqrt(square)},
               {"ReduceSumSquare", square},
               {"ReduceProd", prod},
               {"ReduceMax", most},
               {"ReduceMin", least},
               {"ReduceLogSum", log(sum)},
               {"ReduceLogSumExp", n ? most + log(e) : -INFINITY}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(all[i].type, type) == 0)
            return all[i].value;
    return NAN;
}

static void check_reduction(const char *type, uint64_t seed)
{
    rng r = rng_seed(seed);
    op_case c;
    op_case_begin(&c, "", type);
    ir_shape s = random_shape(&r, 8);
    tacit_dtype dtype = seed % 3 == 0 ? TACIT_F64 : seed % 3 == 1 ? TACIT_F32 : TACIT_I32;
    if (dtype == TACIT_I32 && strcmp(type, "ReduceSum") && strcmp(type, "ReduceMax"))
        dtype = TACIT_F64;
    const ir_tensor *x = op_case_random(&c, &r, dtype, s, dtype == TACIT_I32 ? -9 : 0.5, 3);
    int64_t axes[8], n_axes = 0;
    uint32_t mask = 0;
    for (int32_t d = 0; d < s.rank; d++)
        if (rng_below(&r, 2)) {
            axes[n_axes++] = rng_below(&r, 2) ? d : d - s.rank;
            mask |= 1u << d;
        }
    op_case_i64(&c, TACIT_I64, SHAPE(n_axes), axes);
    bool keep = rng_below(&r, 2), noop = rng_below(&r, 2);
    op_case_int(&c, "keepdims", keep);
    op_case_int(&c, "noop_with_empty_axes", noop);
    if (n_axes == 0 && !noop)
        mask = (1u << s.rank) - 1;
    if (ir_shape_size(&s) == 0 && dtype == TACIT_I32) { /* extrema of nothing: tested apart */
        op_case_end(&c);
        return;
    }
    op_case_run(&c, 1);
    /* The output in row-major order of the kept axes. */
    ir_shape kept = s, gone = s;
    for (int32_t d = 0; d < s.rank; d++) {
        kept.dims[d] = mask & 1u << d ? 1 : s.dims[d];
        gone.dims[d] = mask & 1u << d ? s.dims[d] : 1;
    }
    int64_t index[IR_MAX_RANK] = {0}, k = 0;
    assert_int_equal(ir_tensor_count(&c.out[0]), ir_shape_size(&kept));
    assert_int_equal(c.out[0].shape.rank, keep ? s.rank : s.rank - __builtin_popcount(mask));
    if (ir_shape_size(&kept))
        do {
            double values[512];
            int64_t inner[IR_MAX_RANK] = {0}, at[IR_MAX_RANK], n = 0;
            if (ir_shape_size(&gone))
                do {
                    for (int32_t d = 0; d < s.rank; d++)
                        at[d] = index[d] + inner[d];
                    values[n++] = ir_load_f64(dtype, x->data, broadcast_index(&s, at, &s));
                } while (next_index(&gone, inner));
            double want = reduce(type, values, n), have = ir_load_f64(dtype, c.out[0].data, k++);
            bool same = have == want || (isnan(have) && isnan(want)) ||
                        fabs(have - want) <= 1e-5 * (1 + fabs(want));
            if (!same)
                fail_msg("%s, seed %llu: %g, not %g", type, (unsigned long long)seed, have, want);
        } while (next_index(&kept, index));
    op_case_end(&c);
}

static void reductions_over_any_axes(void **state)
{
    (void)state;
    const char *const all[] = {"ReduceSum",       "ReduceMean",     "ReduceL1",  "ReduceL2",
                               "ReduceSumSquare", "ReduceProd",     "ReduceMax", "ReduceMin",
                               "ReduceLogSum",    "ReduceLogSumExp"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (uint64_t seed = 0; seed < SHAPES; seed++)
            check_reduction(all[i], seed);
}

static void extrema_of_nothing_and_of_nan(void **state)
{
    (void)state;
    const struct {
        const char *type;
        tacit_dtype dtype;
        double want;
    } cases[] = {{"ReduceMax", TACIT_I8, -128},       {"ReduceMin", TACIT_I8, 127},
                 {"ReduceMax", TACIT_U16, 0},         {"ReduceMin", TACIT_U16, 65535},
                 {"ReduceMax", TACIT_BOOL, 0},        {"ReduceMin", TACIT_BOOL, 1},
                 {"ReduceMax", TACIT_F32, -INFINITY}, {"ReduceProd", TACIT_F32, 1},
                 {"ReduceMean", TACIT_F32, NAN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_case c;
        op_case_begin(&c, "", cases[i].type);
        op_case_f64(&c, cases[i].dtype, SHAPE(2, 0), NULL);
        op_case_i64(&c, TACIT_I64, SHAPE(1), (int64_t[]){1});
        op_case_int(&c, "keepdims", 0);
        op_case_run(&c, 1);
        op_case_expect(&c, 0, cases[i].dtype, SHAPE(2), (double[]){cases[i].want, cases[i].want},
                       0);
        op_case_end(&c);
    }
    op_case c;
    op_case_begin(&c, "", "ReduceMax");
    op_case_f64(&c, TACIT_F32, SHAPE(3), (double[]){1, NAN, 2});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(1), (double[]){NAN}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "ReduceMax");
    op_case_i64(&c, TACIT_U64, SHAPE(2), (int64_t[]){-1, 5});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_U64, SHAPE(1), (double[]){0x1p64}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "ReduceLogSumExp");
    op_case_f64(&c, TACIT_F64, SHAPE(2), (double[]){1000, 1000});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F64, SHAPE(1), (double[]){1000 + log(2)}, 1e-15);
    op_case_end(&c);
    op_case_begin(&c, "", "ReduceSum");
    op_case_f64(&c, TACIT_F32, SHAPE(2), (double[]){1, 2});
    op_case_i64(&c, TACIT_I64, SHAPE(1), (int64_t[]){1});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "axis 1");
    op_case_end(&c);
}

static void arg_extrema(void **state)
{
    (void)state;
    for (int last = 0; last < 2; last++) {
        op_case c;
        op_case_begin(&c, "", "ArgMax");
        op_case_f64(&c, TACIT_F32, SHAPE(2, 3), (double[]){1, 5, 5, 7, 7, 2});
        op_case_int(&c, "axis", -1);
        op_case_int(&c, "keepdims", 0);
        op_case_int(&c, "select_last_index", last);
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_I64, SHAPE(2), last ? (double[]){2, 1} : (double[]){1, 0}, 0);
        op_case_end(&c);
    }
    op_case c;
    op_case_begin(&c, "", "ArgMin");
    op_case_f64(&c, TACIT_F32, SHAPE(3), (double[]){1, NAN, 0});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_I64, SHAPE(1), (double[]){1}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "ArgMax");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 0), NULL);
    op_case_int(&c, "axis", 1);
    op_case_refuses(&c, 1, TACIT_ERR_SHAPE, "empty");
    op_case_end(&c);
}

static void top_k_orders_and_keeps_first_indices(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "TopK");
    op_case_f64(&c, TACIT_F32, SHAPE(5), (double[]){3, 1, 3, NAN, 2});
    op_case_i64(&c, TACIT_I64, SHAPE(1), (int64_t[]){4});
    op_case_run(&c, 2);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(4), (double[]){NAN, 3, 3, 2}, 0);
    op_case_expect(&c, 1, TACIT_I64, SHAPE(4), (double[]){3, 0, 2, 4}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "TopK");
    op_case_f64(&c, TACIT_F32, SHAPE(2), (double[]){3, 1});
    op_case_i64(&c, TACIT_I64, SHAPE(1), (int64_t[]){3});
    op_case_refuses(&c, 2, TACIT_ERR_VALUE, "k is 3");
    op_case_end(&c);
    for (uint64_t seed = 0; seed < SHAPES; seed++) { /* sorted, distinct, and nothing larger left */
        rng r = rng_seed(seed);
        op_case_begin(&c, "", "TopK");
        int64_t n = 1 + (int64_t)rng_below(&r, 40), k = (int64_t)rng_below(&r, (uint64_t)n + 1);
        const ir_tensor *x = op_case_random(&c, &r, TACIT_I32, SHAPE(n), 0, 10);
        op_case_i64(&c, TACIT_I64, SHAPE(1), &k);
        op_case_run(&c, 2);
        const int32_t *v = x->data, *y = c.out[0].data;
        const int64_t *index = c.out[1].data;
        bool taken[64] = {0};
        for (int64_t i = 0; i < k; i++) {
            assert_int_equal(y[i], v[index[i]]);
            assert_false(taken[index[i]]);
            taken[index[i]] = true;
            if (i)
                assert_true(y[i - 1] > y[i] || (y[i - 1] == y[i] && index[i - 1] < index[i]));
        }
        for (int64_t i = 0; i < n && k; i++)
            assert_true(taken[i] || v[i] <= y[k - 1]);
        op_case_end(&c);
    }
}

/* Exclusive shifts, reverse mirrors, on every axis. */
static void cumulative_ops(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3, 4};
    const struct {
        const char *type;
        int64_t exclusive, reverse;
        double want[4];
    } cases[] = {{"CumSum", 0, 0, {1, 3, 6, 10}},  {"CumSum", 1, 0, {0, 1, 3, 6}},
                 {"CumSum", 0, 1, {10, 9, 7, 4}},  {"CumSum", 1, 1, {9, 7, 4, 0}},
                 {"CumProd", 0, 0, {1, 2, 6, 24}}, {"CumProd", 1, 1, {24, 12, 4, 1}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int axis = 0; axis < 2; axis++) {
            op_case c;
            op_case_begin(&c, "", cases[i].type);
            ir_shape s = axis ? SHAPE(1, 4) : SHAPE(4, 1);
            op_case_f64(&c, i % 2 ? TACIT_I32 : TACIT_F32, s, x);
            op_case_i64(&c, TACIT_I32, SCALAR, (int64_t[]){axis - 2});
            op_case_int(&c, "exclusive", cases[i].exclusive);
            op_case_int(&c, "reverse", cases[i].reverse);
            op_case_run(&c, 1);
            op_case_expect(&c, 0, i % 2 ? TACIT_I32 : TACIT_F32, s, cases[i].want, 0);
            op_case_end(&c);
        }
}

static void data_decides_the_shape(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "NonZero");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2), (double[]){1, 0, NAN, -0.0});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_I64, SHAPE(2, 2), (double[]){0, 1, 0, 0}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "Compress");
    op_case_f64(&c, TACIT_F32, SHAPE(3, 2), (double[]){1, 2, 3, 4, 5, 6});
    op_case_i64(&c, TACIT_BOOL, SHAPE(2), (int64_t[]){0, 1});
    op_case_int(&c, "axis", 0);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(1, 2), (double[]){3, 4}, 0);
    op_case_end(&c);
    for (int sorted = 0; sorted < 2; sorted++) {
        op_case_begin(&c, "", "Unique");
        op_case_f64(&c, TACIT_F32, SHAPE(6), (double[]){2, 1, 1, 3, 4, 3});
        op_case_int(&c, "sorted", sorted);
        op_case_run(&c, 4);
        op_case_expect(&c, 0, TACIT_F32, SHAPE(4),
                       sorted ? (double[]){1, 2, 3, 4} : (double[]){2, 1, 3, 4}, 0);
        op_case_expect(&c, 1, TACIT_I64, SHAPE(4),
                       sorted ? (double[]){1, 0, 3, 4} : (double[]){0, 1, 3, 4}, 0);
        op_case_expect(&c, 2, TACIT_I64, SHAPE(6),
                       sorted ? (double[]){1, 0, 0, 2, 3, 2} : (double[]){0, 1, 1, 2, 3, 2}, 0);
        op_case_expect(&c, 3, TACIT_I64, SHAPE(4),
                       sorted ? (double[]){2, 1, 2, 1} : (double[]){1, 2, 2, 1}, 0);
        op_case_end(&c);
    }
    op_case_begin(&c, "", "Unique");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 3), (double[]){1, 0, 1, 1, 0, 1});
    op_case_int(&c, "axis", 1);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 2), (double[]){0, 1, 0, 1}, 0);
    op_case_end(&c);
}

/* Many elements are sorted by their bytes: distinct ones in order, each where it was first. */
static void unique_of_many(void **state)
{
    (void)state;
    static const tacit_dtype types[] = {TACIT_F32, TACIT_I64, TACIT_U64, TACIT_I8, TACIT_F16};
    rng r = rng_seed(71);
    for (int t = 0; t < 10; t++) {
        enum { N = 3000 };
        op_case c;
        op_case_begin(&c, "", "Unique");
        ir_tensor *x = op_case_random(&c, &r, types[t % 5], SHAPE(N),
                                      types[t % 5] == TACIT_U64 ? 0 : -100, t < 5 ? 100 : 2);
        for (int64_t i = 0; t % 5 == 0 && i < N; i += 7)
            ((float *)x->data)[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? -0.0f : 0.0f;
        if (t % 5 == 1)
            ((int64_t *)x->data)[5] = INT64_MIN, ((int64_t *)x->data)[6] = INT64_MAX;
        op_case_run(&c, 4);
        const ir_tensor *y = &c.out[0];
        const int64_t *first = c.out[1].data, *which = c.out[2].data, *count = c.out[3].data;
        int64_t n = ir_tensor_count(y), all = 0;
        for (int64_t k = 0; k < n; k++, all += count[k - 1])
            assert_true(k == 0 || op_compare(y, k - 1, k) < 0);
        assert_int_equal(all, N);
        for (int64_t i = 0; i < N; i++) {
            assert_true(which[i] >= 0 && which[i] < n && first[which[i]] <= i);
            assert_int_equal(op_compare(x, i, first[which[i]]), 0);
        }
        op_case_end(&c);
    }
}

static void non_zeros_of_many(void **state)
{
    (void)state;
    static const tacit_dtype types[] = {TACIT_F32, TACIT_BOOL, TACIT_I64, TACIT_F16};
    rng r = rng_seed(72);
    for (int t = 0; t < 12; t++) {
        const ir_shape shapes[] = {SHAPE(40), SHAPE(7, 33), SHAPE(5, 1, 9)};
        op_case c;
        op_case_begin(&c, "", "NonZero");
        ir_tensor *x = op_case_random(&c, &r, types[t % 4], shapes[t / 4], 0, 2);
        for (int64_t i = 0; i < ir_tensor_count(x); i += 1 + t % 3)
            ir_store_f64(x->dtype, x->data, i, 0);
        op_case_run(&c, 1);
        const int64_t *y = c.out[0].data, n = c.out[0].shape.dims[1];
        int64_t found = 0;
        for (int64_t i = 0; i < ir_tensor_count(x); i++) {
            if (ir_load_f64(x->dtype, x->data, i) == 0)
                continue;
            int64_t at = 0;
            assert_true(found < n);
            for (int32_t d = 0; d < x->shape.rank; d++)
                at = at * x->shape.dims[d] + y[d * n + found];
            assert_int_equal(at, i);
            found++;
        }
        assert_int_equal(found, n);
        op_case_end(&c);
    }
}

static void made_from_little(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "Range");
    op_case_i64(&c, TACIT_I64, SCALAR, (int64_t[]){10});
    op_case_i64(&c, TACIT_I64, SCALAR, (int64_t[]){3});
    op_case_i64(&c, TACIT_I64, SCALAR, (int64_t[]){-3});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_I64, SHAPE(3), (double[]){10, 7, 4}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "Range");
    op_case_f64(&c, TACIT_F32, SCALAR, (double[]){0});
    op_case_f64(&c, TACIT_F32, SCALAR, (double[]){1});
    op_case_f64(&c, TACIT_F32, SCALAR, (double[]){0});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "no range");
    op_case_end(&c);
    op_case_begin(&c, "", "OneHot");
    op_case_i64(&c, TACIT_I64, SHAPE(3), (int64_t[]){1, -1, 7});
    op_case_i64(&c, TACIT_I64, SCALAR, (int64_t[]){3});
    op_case_f64(&c, TACIT_F32, SHAPE(2), (double[]){2, 5});
    op_case_int(&c, "axis", 0);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(3, 3), (double[]){2, 2, 2, 5, 2, 2, 2, 5, 2}, 0);
    op_case_end(&c);
    for (int upper = 0; upper < 2; upper++) {
        op_case_begin(&c, "", "Trilu");
        op_case_f64(&c, TACIT_F32, SHAPE(2, 3), (double[]){1, 2, 3, 4, 5, 6});
        op_case_i64(&c, TACIT_I64, SCALAR, (int64_t[]){upper ? 1 : INT64_MIN});
        op_case_int(&c, "upper", upper);
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 3),
                       upper ? (double[]){0, 2, 3, 0, 0, 6} : (double[]){0, 0, 0, 0, 0, 0}, 0);
        op_case_end(&c);
    }
    op_case_begin(&c, "", "EyeLike");
    op_case_f64(&c, TACIT_I32, SHAPE(2, 3), (double[]){0, 0, 0, 0, 0, 0});
    op_case_int(&c, "k", 1);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_I32, SHAPE(2, 3), (double[]){0, 1, 0, 0, 0, 1}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "ConstantOfShape");
    op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){2, -1});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "negative");
    op_case_end(&c);
    op_case_begin(&c, "", "Hardmax");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2), (double[]){1, 1, 0, 3});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 2), (double[]){1, 0, 0, 1}, 0);
    op_case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions_over_any_axes),
        cmocka_unit_test(extrema_of_nothing_and_of_nan),
        cmocka_unit_test(arg_extrema),
        cmocka_unit_test(top_k_orders_and_keeps_first_indices),
        cmocka_unit_test(cumulative_ops),
        cmocka_unit_test(data_decides_the_shape),
        cmocka_unit_test(unique_of_many),
        cmocka_unit_test(non_zeros_of_many),
        cmocka_unit_test(made_from_little),
    };
    return cmocka_run_group_tests_name("reductions", tests, NULL, NULL);
}
