/* SPDX-License-Identifier: Apache-2.0
 * Runners: sizes from the inputs, programs kept and dropped, buckets with padding. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tacit/tacit.h"

static tacit_error err;

#define OK(expr)                                                                                   \
    do {                                                                                           \
        if ((expr) != TACIT_OK)                                                                    \
            fail_msg("%s: %s", #expr, err.message);                                                \
    } while (0)

/* y[batch, n] = relu(x[batch, n]) + b[n], with both sizes open; b is an input of size n. */
static tacit_model *open_model(void)
{
    tacit_builder *b = NULL;
    tacit_model *m = NULL;
    const int64_t two[] = {-1, -1}, one[] = {-1};
    OK(tacit_builder_create("m", NULL, &b, &err));
    tacit_value x =
        tacit_builder_input(b, "x", TACIT_F32, 2, two, (const char *const[]){"batch", "n"});
    tacit_value c = tacit_builder_input(b, "b", TACIT_F32, 1, one, (const char *const[]){"n"});
    tacit_value r = tacit_builder_node(b, "Relu", 1, &x, 1, NULL);
    tacit_value y = tacit_builder_node(b, "Add", 2, (tacit_value[]){r, c}, 1, NULL);
    tacit_builder_output(b, "y", y);
    OK(tacit_builder_finish(b, &m, &err));
    tacit_builder_free(b);
    return m;
}

static tacit_tensor tensor(const char *name, float *data, int32_t rank, int64_t rows, int64_t n)
{
    tacit_tensor t = {.name = name, .dtype = TACIT_F32, .rank = rank, .data = data};
    t.dims[0] = rank == 2 ? rows : n;
    t.dims[1] = n;
    t.bytes = (size_t)(rank == 2 ? rows * n : n) * sizeof(float);
    return t;
}

/* Runs with these sizes and checks every element; `own` lets the runner keep the output. */
static void run_and_check(tacit_runner *r, int64_t rows, int64_t n, bool own)
{
    float x[64], b[64], y[64];
    for (int i = 0; i < 64; i++) {
        x[i] = (float)(i % 5) - 2;
        b[i] = (float)i * 10;
        y[i] = -1;
    }
    tacit_tensor in[] = {tensor("b", b, 1, 0, n), tensor("x", x, 2, rows, n)};
    tacit_tensor out = own ? (tacit_tensor){.name = "y"} : tensor("y", y, 2, rows, n);
    OK(tacit_runner_run(r, in, 2, &out, 1, &err));
    assert_int_equal(out.rank, 2);
    assert_int_equal(out.dims[0], rows);
    assert_int_equal(out.dims[1], n);
    const float *got = out.data;
    for (int64_t i = 0; i < rows * n; i++)
        assert_true(got[i] == (x[i] > 0 ? x[i] : 0) + b[i % n]);
    for (int64_t i = rows * n; !own && i < 64; i++)
        assert_true(y[i] == -1);
}

static void sizes_come_from_the_inputs(void **state)
{
    (void)state;
    tacit_model *m = open_model();
    tacit_runner *r = NULL;
    OK(tacit_runner_create(m, NULL, &r, &err));
    tacit_model_free(m); /* the runner keeps it */
    run_and_check(r, 2, 3, false);
    run_and_check(r, 5, 3, true);
    run_and_check(r, 2, 3, true);
    run_and_check(r, 5, 3, false);
    run_and_check(r, 0, 3, false);
    assert_int_equal(tacit_runner_compiled(r), 3);
    tacit_runner_free(r);
}

static void the_least_recently_used_program_leaves(void **state)
{
    (void)state;
    tacit_model *m = open_model();
    tacit_runner *r = NULL;
    OK(tacit_runner_create(m, &(tacit_runner_options){.capacity = 2}, &r, &err));
    tacit_model_free(m);
    run_and_check(r, 1, 2, false);
    run_and_check(r, 2, 2, false);
    run_and_check(r, 1, 2, false); /* now 2 is the older one */
    run_and_check(r, 3, 2, false); /* and leaves */
    assert_int_equal(tacit_runner_compiled(r), 3);
    run_and_check(r, 1, 2, false);
    assert_int_equal(tacit_runner_compiled(r), 3);
    run_and_check(r, 2, 2, false);
    assert_int_equal(tacit_runner_compiled(r), 4);
    tacit_runner_free(r);
}

static void buckets_pad_and_cut(void **state)
{
    (void)state;
    tacit_model *m = open_model();
    tacit_runner *r = NULL;
    const tacit_bucket buckets[] = {{"batch", 4}, {"n", 3}};
    OK(tacit_runner_create(m, &(tacit_runner_options){.buckets = buckets, .n_buckets = 2}, &r,
                           &err));
    tacit_model_free(m);
    for (int64_t rows = 1; rows <= 4; rows++)
        for (int64_t n = 4; n <= 6; n++)
            run_and_check(r, rows, n, (rows + n) % 2);
    assert_int_equal(tacit_runner_compiled(r), 1);
    run_and_check(r, 5, 6, false);
    assert_int_equal(tacit_runner_compiled(r), 2);
    tacit_runner_free(r);
}

static void programs_for_sessions_of_ones_own(void **state)
{
    (void)state;
    tacit_model *m = open_model();
    tacit_runner *r = NULL;
    OK(tacit_runner_create(m, &(tacit_runner_options){.capacity = 1}, &r, &err));
    tacit_model_free(m);
    float x[6] = {-1, 2, 3, 4, 5, 6}, b[3] = {10, 20, 30}, y[6];
    tacit_tensor in[] = {tensor("x", x, 2, 2, 3), tensor("b", b, 1, 0, 3)};
    tacit_tensor out = tensor("y", y, 2, 2, 3);
    tacit_program *first = NULL, *again = NULL, *other = NULL;
    OK(tacit_runner_program(r, in, 2, &first, &err));
    OK(tacit_runner_program(r, in, 2, &again, &err));
    assert_ptr_equal(first, again);
    in[0].dims[0] = 1;
    OK(tacit_runner_program(r, in, 2, &other, &err)); /* the first leaves the runner, not us */
    assert_ptr_not_equal(first, other);
    assert_int_equal(tacit_runner_compiled(r), 2);
    tacit_runner_free(r);
    in[0].dims[0] = 2;
    tacit_session *s = NULL;
    OK(tacit_session_create(first, &s, &err));
    OK(tacit_run(s, in, 2, &out, 1, &err));
    assert_true(y[0] == 10 && y[1] == 22 && y[5] == 36);
    tacit_session_free(s);
    tacit_program_free(first);
    tacit_program_free(again);
    tacit_program_free(other);
    assert_int_equal(tacit_runner_program(NULL, in, 2, &first, &err), TACIT_ERR_ARGUMENT);
}

static void wrong_use_is_told(void **state)
{
    (void)state;
    tacit_model *m = open_model();
    tacit_runner *r = NULL;
    float x[6] = {0}, b[6] = {0};
    const tacit_bucket unknown = {"width", 4}, zero = {"n", 0};
    assert_int_equal(tacit_runner_create(
                         m, &(tacit_runner_options){.buckets = &unknown, .n_buckets = 1}, &r, &err),
                     TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'width'"));
    assert_int_equal(
        tacit_runner_create(m, &(tacit_runner_options){.buckets = &zero, .n_buckets = 1}, &r, &err),
        TACIT_ERR_ARGUMENT);
    OK(tacit_runner_create(m, NULL, &r, &err));
    tacit_model_free(m);
    tacit_tensor in[] = {tensor("x", x, 2, 2, 3), tensor("b", b, 1, 0, 2)}, y = {.name = "y"};
    assert_int_equal(tacit_runner_run(r, in, 2, &y, 1, &err), TACIT_ERR_SHAPE);
    assert_non_null(strstr(err.message, "'n' is 3"));
    in[1] = tensor("z", b, 1, 0, 3);
    assert_int_equal(tacit_runner_run(r, in, 2, &y, 1, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'z'"));
    assert_int_equal(tacit_runner_run(r, &in[1], 1, &y, 1, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "no input tells the size of"));
    in[1] = tensor("b", b, 2, 1, 3);
    assert_int_equal(tacit_runner_run(r, in, 2, &y, 1, &err), TACIT_ERR_SHAPE);
    run_and_check(r, 2, 3, true); /* still usable */
    tacit_runner_free(r);
}

/* What one run lent is given to the next, whose sizes, session and program differ. */
static void lent_outputs_may_be_given_again(void **state)
{
    (void)state;
    static const tacit_bucket four = {"n", 4};
    for (int padded = 0; padded < 2; padded++) {
        tacit_model *m = open_model();
        tacit_runner *r = NULL;
        tacit_runner_options options = {
            .capacity = 1, .buckets = padded ? &four : NULL, .n_buckets = padded ? 1 : 0};
        OK(tacit_runner_create(m, &options, &r, &err));
        tacit_model_free(m);
        float x[64], b[64];
        tacit_tensor out = {.name = "y"};
        for (int64_t n = 1; n <= 9; n++) {
            for (int i = 0; i < 64; i++) {
                x[i] = (float)(i % 5 + n);
                b[i] = (float)i;
            }
            tacit_tensor in[] = {tensor("b", b, 1, 0, n), tensor("x", x, 2, 7, n)};
            OK(tacit_runner_run(r, in, 2, &out, 1, &err));
            assert_int_equal(out.dims[1], n);
            for (int64_t i = 0; i < 7 * n; i++)
                assert_true(((const float *)out.data)[i] == x[i] + b[i % n]);
        }
        tacit_runner_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_come_from_the_inputs),
        cmocka_unit_test(the_least_recently_used_program_leaves),
        cmocka_unit_test(buckets_pad_and_cut),
        cmocka_unit_test(programs_for_sessions_of_ones_own),
        cmocka_unit_test(wrong_use_is_told),
        cmocka_unit_test(lent_outputs_may_be_given_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
