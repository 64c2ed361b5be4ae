/* SPDX-License-Identifier: Apache-2.0
 * Acceptance cases by number: sampling (T08, T09, H8), prefix sums (T10), broadcasting (T11),
 * complex numbers (T59 to T76), scatter. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "op/sampling.h"
#include "support/op_case.h"

static double sample(int64_t n, const double *logits, int64_t top_k, double top_p,
                     double temperature, int64_t seed, uint64_t step)
{
    op_case c;
    op_case_begin(&c, "tacit", "Sample");
    op_case_f64(&c, TACIT_F32, SHAPE(1, n), logits);
    op_case_int(&c, "top_k", top_k);
    op_case_float(&c, "top_p", top_p);
    op_case_float(&c, "temperature", temperature);
    op_case_int(&c, "seed", seed);
    c.step = step;
    op_case_run(&c, 1);
    assert_int_equal(c.out[0].dtype, TACIT_I64);
    assert_int_equal(ir_tensor_count(&c.out[0]), 1);
    double token = ir_load_f64(TACIT_I64, c.out[0].data, 0);
    op_case_end(&c);
    return token;
}

static void T08_sampling_at_temperature_zero_is_the_largest(void **state)
{
    (void)state;
    const double logits[] = {.1, .2, .3, .4, .5, 9.0, .7, .8};
    for (uint64_t step = 0; step < 20; step++)
        assert_true(sample(8, logits, 0, 1, 1e-3, 42, step) == 5);
    assert_true(sample(8, logits, 0, 1, 0, 42, 0) == 5);
}

static void T09_sampling_with_top_k_one_is_the_largest(void **state)
{
    (void)state;
    for (uint64_t step = 0; step < 20; step++)
        assert_true(sample(4, (double[]){.1, 5, .3, .4}, 1, 1, 1, 7, step) == 1);
}

/* Draws of repeated runs differ, those of the same run and seed do not. */
static void sampling_steps_are_new_draws(void **state)
{
    (void)state;
    const double flat[64] = {0};
    int changes = 0;
    for (uint64_t step = 1; step < 50; step++) {
        changes += sample(64, flat, 0, 1, 1, 3, step) != sample(64, flat, 0, 1, 1, 3, step - 1);
        assert_true(sample(64, flat, 0, 1, 1, 3, step) == sample(64, flat, 0, 1, 1, 3, step));
    }
    assert_true(changes > 40);
}

static void H8_sampler(void **state)
{
    (void)state;
    int64_t order[16];
    double p[4] = {-INFINITY, 0, 0, -INFINITY};
    op_sampler plain = {.temperature = 1, .top_p = 1};
    assert_true(op_sampler_weigh(&plain, p, 4, order));
    assert_int_equal(op_sampler_pick(p, 4, 0), 1); /* r = 0 never gives a zero probability */
    assert_int_equal(op_sampler_pick(p, 4, 0.999999), 2);
    assert_int_equal(op_sampler_pick(p, 4, 1.0), 2);

    double tied[5] = {1, 3, 2, 2, 0}; /* the cut at k = 2 falls between equals: both stay */
    op_sampler top_k = {.temperature = 1, .top_k = 2, .top_p = 1};
    assert_true(op_sampler_weigh(&top_k, tied, 5, order));
    assert_true(tied[0] == 0 && tied[1] > 0 && tied[2] > 0 && tied[2] == tied[3] && tied[4] == 0);

    double mass[4] = {log(.1), log(.4), log(.3), log(.2)}; /* .4 + .3 reaches .6 */
    op_sampler top_p = {.temperature = 1, .top_p = .6};
    assert_true(op_sampler_weigh(&top_p, mass, 4, order));
    assert_true(mass[0] == 0 && mass[3] == 0);
    assert_true(fabs(mass[1] - .4 / .7) < 1e-12 && fabs(mass[2] - .3 / .7) < 1e-12);
    double one[2] = {0, 1};
    top_p.top_p = 0; /* keeps one token */
    assert_true(op_sampler_weigh(&top_p, one, 2, order));
    assert_true(one[0] == 0 && one[1] == 1);

    double bad[2] = {0, NAN}, none[2] = {-INFINITY, -INFINITY};
    assert_false(op_sampler_weigh(&plain, bad, 2, order));
    assert_false(op_sampler_weigh(&plain, none, 2, order));
}

/* 10^5 draws against their distribution: chi-square with 3 degrees of freedom, p = 1e-4. */
static void H8_sampler_matches_its_distribution(void **state)
{
    (void)state;
    enum { DRAWS = 100000 };
    const double p[4] = {.1, .2, .3, .4};
    op_case c;
    op_case_begin(&c, "tacit", "Sample");
    ir_shape shape = SHAPE(DRAWS, 4);
    ir_tensor *logits = ir_tensor_new(&c.memory, TACIT_F32, &shape);
    assert_non_null(logits);
    for (int64_t i = 0; i < DRAWS * 4; i++)
        ((float *)logits->data)[i] = (float)log(p[i % 4]);
    op_case_give(&c, logits);
    op_case_run(&c, 1);
    double count[4] = {0}, chi = 0;
    for (int64_t i = 0; i < DRAWS; i++)
        count[((int64_t *)c.out[0].data)[i]]++;
    for (int k = 0; k < 4; k++)
        chi += (count[k] - p[k] * DRAWS) * (count[k] - p[k] * DRAWS) / (p[k] * DRAWS);
    assert_true(chi < 21.1);
    op_case_end(&c);
}

static void sampling_refuses_nan(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "tacit", "Sample");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2), (double[]){0, 1, NAN, 0});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "row 1");
    op_case_end(&c);
}

static void T10_cumulative_sum(void **state)
{
    (void)state;
    for (int64_t exclusive = 0; exclusive < 2; exclusive++) {
        op_case c;
        op_case_begin(&c, "", "CumSum");
        op_case_f64(&c, TACIT_F32, SHAPE(2, 4), (double[]){1, 2, 3, 4, 10, 20, 30, 40});
        op_case_i64(&c, TACIT_I64, SCALAR, (int64_t[]){-1});
        op_case_int(&c, "exclusive", exclusive);
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 4),
                       exclusive ? (double[]){0, 1, 3, 6, 0, 10, 30, 60}
                                 : (double[]){1, 3, 6, 10, 10, 30, 60, 100},
                       0);
        op_case_end(&c);
    }
}

static void T11_broadcast_of_a_middle_axis(void **state)
{
    (void)state;
    double a[288], b[96], want[288];
    for (int i = 0; i < 288; i++)
        a[i] = 0.01 * i;
    for (int i = 0; i < 96; i++)
        b[i] = 0.01 * (i + 100);
    for (int i = 0; i < 288; i++)
        want[i] = a[i] + b[i / 12 * 4 + i % 4];
    op_case c;
    op_case_begin(&c, "", "Add");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 3, 4, 3, 4), a);
    op_case_f64(&c, TACIT_F32, SHAPE(2, 3, 4, 1, 4), b);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 3, 4, 3, 4), want, 1e-6);
    assert_true(fabs(((float *)c.out[0].data)[287] - 4.82) < 1e-5);
    op_case_end(&c);
}

static void T59_complex_type_facts(void **state)
{
    (void)state;
    assert_int_equal(tacit_dtype_bits(TACIT_C64), 64);
    assert_int_equal(ir_dtype_classify(TACIT_C64), IR_CLASS_COMPLEX);
    assert_false(ir_dtype_is_float(TACIT_C64));
    ir_type t = ir_type_tensor(TACIT_C64, 1, (int64_t[]){2});
    size_t bytes = 0;
    assert_true(ir_type_bytes(&t, &bytes));
    assert_int_equal(bytes, 16);
}

static ir_tensor *complex_input(op_case *c, int64_t n, const float *values)
{
    double zero[8] = {0};
    ir_tensor *t = op_case_f64(c, TACIT_C64, SHAPE(n), zero);
    memcpy(t->data, values, (size_t)n * 8);
    return t;
}

static void expect_floats(op_case *c, int64_t n, const float *want, double eps)
{
    const float *y = c->out[0].data;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)y[i] - want[i]) <= eps))
            fail_msg("%s: part %lld is %g, not %g", c->type, (long long)i, y[i], want[i]);
}

static void complex_case(const char *domain, const char *type, int64_t n, const float *a,
                         const float *b, const float *want, double eps)
{
    op_case c;
    op_case_begin(&c, domain, type);
    complex_input(&c, n, a);
    if (b)
        complex_input(&c, n, b);
    op_case_run(&c, 1);
    assert_int_equal(c.out[0].dtype, TACIT_C64);
    expect_floats(&c, 2 * n, want, eps);
    op_case_end(&c);
}

static void T60_complex_sum(void **state)
{
    (void)state;
    complex_case("", "Add", 2, (float[]){1, 2, 3, -1}, (float[]){4, -1, .5f, .5f},
                 (float[]){5, 1, 3.5f, -.5f}, 1e-6);
}

static void T61_complex_difference(void **state)
{
    (void)state;
    complex_case("", "Sub", 1, (float[]){5, 1}, (float[]){2, 3}, (float[]){3, -2}, 1e-6);
}

static void T62_complex_product(void **state)
{
    (void)state;
    complex_case("", "Mul", 1, (float[]){1, 2}, (float[]){3, 4}, (float[]){-5, 10}, 1e-5);
}

static void T63_complex_quotient(void **state)
{
    (void)state;
    complex_case("", "Div", 1, (float[]){1, 2}, (float[]){3, 4}, (float[]){.44f, .08f}, 1e-5);
}

static void T64_complex_times_one(void **state)
{
    (void)state;
    complex_case("", "Mul", 2, (float[]){3.5f, -1.25f, -2, 7}, (float[]){1, 0, 1, 0},
                 (float[]){3.5f, -1.25f, -2, 7}, 1e-6);
}

static void T65_complex_times_i(void **state)
{
    (void)state;
    complex_case("", "Mul", 1, (float[]){1, 0}, (float[]){0, 1}, (float[]){0, 1}, 1e-6);
}

static void T66_complex_over_itself(void **state)
{
    (void)state;
    complex_case("", "Div", 2, (float[]){2.5f, -1.5f, -.7f, 4.2f},
                 (float[]){2.5f, -1.5f, -.7f, 4.2f}, (float[]){1, 0, 1, 0}, 1e-5);
}

static void T67_complex_numbers_have_no_maximum(void **state)
{
    (void)state;
    const char *const types[] = {"Max", "Min", "Less"};
    for (int i = 0; i < 3; i++) {
        op_case c;
        op_case_begin(&c, "", types[i]);
        complex_input(&c, 1, (float[]){1, 2});
        complex_input(&c, 1, (float[]){3, 4});
        op_case_refuses(&c, 1, TACIT_ERR_TYPE, "not defined for complex numbers");
        op_case_end(&c);
    }
}

static void T68_complex_negation(void **state)
{
    (void)state;
    complex_case("", "Neg", 2, (float[]){3.5f, -1.25f, -2, 0}, NULL, (float[]){-3.5f, 1.25f, 2, 0},
                 1e-6);
}

static void T69_complex_exponential(void **state)
{
    (void)state;
    const float pi = 3.14159265f;
    complex_case("", "Exp", 2, (float[]){0, pi, 1, 0}, NULL, (float[]){-1, 0, 2.7182818f, 0}, 1e-5);
}

static void T70_complex_logarithm(void **state)
{
    (void)state;
    const float pi = 3.14159265f;
    complex_case("", "Log", 3, (float[]){1, 0, 0, 1, -1, 0}, NULL,
                 (float[]){0, 0, 0, pi / 2, 0, pi}, 1e-5);
}

static void T71_complex_root(void **state)
{
    (void)state;
    complex_case("", "Sqrt", 2, (float[]){4, 0, 3, 4}, NULL, (float[]){2, 0, 2, 1}, 1e-5);
}

static void complex_conjugate(void **state)
{
    (void)state;
    complex_case("tacit", "Conj", 1, (float[]){3, 4}, NULL, (float[]){3, -4}, 0);
}

static void T72_relu_has_no_complex_form(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "Relu");
    complex_input(&c, 1, (float[]){1, 2});
    op_case_refuses(&c, 1, TACIT_ERR_TYPE, "not defined for complex numbers");
    op_case_end(&c);
}

static double norm_sq_at(float re, float im)
{
    op_case c;
    op_case_begin(&c, "tacit", "NormSq");
    complex_input(&c, 1, (float[]){re, im});
    op_case_run(&c, 1);
    assert_int_equal(c.out[0].dtype, TACIT_F32);
    double v = *(float *)c.out[0].data;
    op_case_end(&c);
    return v;
}

static void norm_sq_grad(int64_t n, const float *z, const double *g, const float *want)
{
    op_case c;
    op_case_begin(&c, "tacit", "NormSqGrad");
    complex_input(&c, n, z);
    op_case_f64(&c, TACIT_F32, SHAPE(n), g);
    op_case_run(&c, 1);
    expect_floats(&c, 2 * n, want, 1e-6);
    op_case_end(&c);
}

static void T73_squared_magnitude(void **state)
{
    (void)state;
    assert_true(fabs(norm_sq_at(3, 4) - 25) < 1e-5);
    assert_true(norm_sq_at(1, 0) == 1 && norm_sq_at(0, 0) == 0);
}

static void T74_gradient_of_the_squared_magnitude(void **state)
{
    (void)state;
    norm_sq_grad(2, (float[]){3, 4, 1.5f, -2.5f}, (double[]){1, 1}, (float[]){3, 4, 1.5f, -2.5f});
}

static void T75_weighted_gradient_of_the_squared_magnitude(void **state)
{
    (void)state;
    norm_sq_grad(2, (float[]){2, 1, -1, 3}, (double[]){.5, -2}, (float[]){1, .5f, 2, -6});
}

static void T76_half_the_real_gradient(void **state)
{
    (void)state;
    const double eps = 1e-3, base = norm_sq_at(3, 4);
    assert_true(fabs((norm_sq_at(3 + (float)eps, 4) - base) / eps - 6) < 1e-2);
    assert_true(fabs((norm_sq_at(3, 4 + (float)eps) - base) / eps - 8) < 1e-2);
    norm_sq_grad(1, (float[]){3, 4}, (double[]){2}, (float[]){6, 8});
}

static void complex_parts_round_trip(void **state)
{
    (void)state;
    op_case c, re, im;
    op_case_begin(&c, "tacit", "Complex");
    op_case_f64(&c, TACIT_F64, SHAPE(2, 1), (double[]){1, 2});
    op_case_f64(&c, TACIT_F64, SHAPE(2), (double[]){3, 4});
    op_case_run(&c, 1);
    assert_int_equal(c.out[0].dtype, TACIT_C128);
    op_case_begin(&re, "tacit", "Real");
    op_case_give(&re, &c.out[0]);
    op_case_run(&re, 1);
    op_case_expect(&re, 0, TACIT_F64, SHAPE(2, 2), (double[]){1, 1, 2, 2}, 0);
    op_case_begin(&im, "tacit", "Imag");
    op_case_give(&im, &c.out[0]);
    op_case_run(&im, 1);
    op_case_expect(&im, 0, TACIT_F64, SHAPE(2, 2), (double[]){3, 4, 3, 4}, 0);
    op_case_end(&c);
    op_case_end(&re);
    op_case_end(&im);
}

static void scatter_add_accumulates_and_checks(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "tacit", "ScatterAdd");
    op_case_f64(&c, TACIT_F32, SHAPE(3, 2), (double[]){1, 2, 3, 4, 5, 6});
    op_case_f64(&c, TACIT_F32, SHAPE(3), (double[]){2, 0, 2});
    op_case_int(&c, "dim", 4);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(4, 2), (double[]){3, 4, 0, 0, 6, 8, 0, 0}, 0);
    op_case_end(&c);
    const double bad[] = {NAN, 0.5, 4, INFINITY};
    for (int i = 0; i < 4; i++) {
        op_case_begin(&c, "tacit", "ScatterAdd");
        op_case_f64(&c, TACIT_F32, SHAPE(1), (double[]){1});
        op_case_f64(&c, TACIT_F32, SHAPE(1), &bad[i]);
        op_case_int(&c, "dim", 4);
        assert_int_equal(op_case_try(&c, 1), TACIT_ERR_VALUE);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T08_sampling_at_temperature_zero_is_the_largest),
        cmocka_unit_test(T09_sampling_with_top_k_one_is_the_largest),
        cmocka_unit_test(sampling_steps_are_new_draws),
        cmocka_unit_test(H8_sampler),
        cmocka_unit_test(H8_sampler_matches_its_distribution),
        cmocka_unit_test(sampling_refuses_nan),
        cmocka_unit_test(T10_cumulative_sum),
        cmocka_unit_test(T11_broadcast_of_a_middle_axis),
        cmocka_unit_test(T59_complex_type_facts),
        cmocka_unit_test(T60_complex_sum),
        cmocka_unit_test(T61_complex_difference),
        cmocka_unit_test(T62_complex_product),
        cmocka_unit_test(T63_complex_quotient),
        cmocka_unit_test(T64_complex_times_one),
        cmocka_unit_test(T65_complex_times_i),
        cmocka_unit_test(T66_complex_over_itself),
        cmocka_unit_test(T67_complex_numbers_have_no_maximum),
        cmocka_unit_test(T68_complex_negation),
        cmocka_unit_test(T69_complex_exponential),
        cmocka_unit_test(T70_complex_logarithm),
        cmocka_unit_test(T71_complex_root),
        cmocka_unit_test(complex_conjugate),
        cmocka_unit_test(T72_relu_has_no_complex_form),
        cmocka_unit_test(T73_squared_magnitude),
        cmocka_unit_test(T74_gradient_of_the_squared_magnitude),
        cmocka_unit_test(T75_weighted_gradient_of_the_squared_magnitude),
        cmocka_unit_test(T76_half_the_real_gradient),
        cmocka_unit_test(complex_parts_round_trip),
        cmocka_unit_test(scatter_add_accumulates_and_checks),
    };
    return cmocka_run_group_tests_name("acceptance: sampling, sums, complex", tests, NULL, NULL);
}
