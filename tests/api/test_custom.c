/* SPDX-License-Identifier: Apache-2.0
 * Operators of the caller's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tacit/tacit.h"

/* y = x·factor, and the sum of y, counting its calls in the context. */
static tacit_status scale_infer(void *context, const tacit_custom_call *c, tacit_error *err)
{
    (void)context;
    (void)err;
    c->outputs[0].dtype = c->outputs[1].dtype = c->inputs[0].dtype;
    c->outputs[0].rank = c->inputs[0].rank;
    memcpy(c->outputs[0].dims, c->inputs[0].dims, sizeof c->inputs[0].dims);
    c->outputs[1].rank = 0;
    return TACIT_OK;
}

static tacit_status scale_run(void *context, const tacit_custom_call *c, tacit_error *err)
{
    const float *x = c->inputs[0].data;
    float *y = c->outputs[0].data, *sum = c->outputs[1].data;
    double factor = tacit_custom_float(c, "factor", 1);
    if (factor == 0) {
        err->status = TACIT_ERR_VALUE;
        snprintf(err->message, sizeof err->message, "factor must not be zero");
        return TACIT_ERR_VALUE;
    }
    ++*(int *)context;
    *sum = 0;
    for (size_t i = 0; i < c->inputs[0].bytes / sizeof *x; i++)
        *sum += y[i] = (float)(x[i] * factor);
    return TACIT_OK;
}

static const char text[] = "tacit 1\n"
                           "graph \"m\" {\n"
                           "  in %x : f32[3]\n"
                           "  %p = Relu(%x) @relu\n"
                           "  %y, %s = my.Scale(%p) factor=%FACTOR @scale\n"
                           "  %z = Add(%y, %s) @add\n"
                           "  out %z\n"
                           "}\n";

static tacit_status run_with(const char *factor, int *calls, float *z, tacit_error *err)
{
    char graph[512];
    const char *at = strstr(text, "%FACTOR");
    snprintf(graph, sizeof graph, "%.*s%s%s", (int)(at - text), text, factor, at + 7);
    tacit_custom_op op = {.domain = "my",
                          .name = "Scale",
                          .min_inputs = 1,
                          .max_inputs = 1,
                          .n_outputs = 2,
                          .context = calls,
                          .infer = scale_infer,
                          .run = scale_run};
    const tacit_custom_op *list[] = {&op};
    tacit_load_options options = {.custom_ops = list, .n_custom_ops = 1};
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    float x[3] = {1, -1, 2};
    tacit_tensor in = {.dtype = TACIT_F32, .rank = 1, .dims = {3}, .data = x, .bytes = sizeof x};
    tacit_tensor out = {.dtype = TACIT_F32, .rank = 1, .dims = {3}, .data = z, .bytes = 12};
    tacit_status status = tacit_model_load_memory(graph, strlen(graph), &options, &m, err);
    if (status == TACIT_OK)
        status = tacit_compile(m, NULL, &p, err);
    if (status == TACIT_OK)
        status = tacit_session_create(p, &s, err);
    if (status == TACIT_OK)
        status = tacit_run(s, &in, 1, &out, 1, err);
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(m);
    return status;
}

static void custom_ops_run_between_built_in_ones(void **state)
{
    (void)state;
    int calls = 0;
    float z[3];
    tacit_error err = {0};
    if (run_with("2.0", &calls, z, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_memory_equal(z, ((float[]){8, 6, 10}), sizeof z); /* 2, 0, 4 and their sum 6 */
    assert_int_equal(calls, 1);
}

static void their_errors_reach_the_caller(void **state)
{
    (void)state;
    int calls = 0;
    float z[3];
    tacit_error err = {0};
    assert_int_equal(run_with("0.0", &calls, z, &err), TACIT_ERR_VALUE);
    assert_non_null(strstr(err.message, "factor must not be zero"));
    assert_non_null(strstr(err.message, "scale"));
}

static void incomplete_ones_are_refused(void **state)
{
    (void)state;
    tacit_custom_op op = {.domain = "my", .name = "Scale", .n_outputs = 1};
    const tacit_custom_op *list[] = {&op};
    tacit_load_options options = {.custom_ops = list, .n_custom_ops = 1};
    tacit_model *m;
    tacit_builder *b;
    tacit_error err = {0};
    assert_int_equal(tacit_model_load_memory(text, strlen(text), &options, &m, &err),
                     TACIT_ERR_ARGUMENT);
    assert_int_equal(tacit_builder_create("m", &options, &b, &err), TACIT_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(custom_ops_run_between_built_in_ones),
        cmocka_unit_test(their_errors_reach_the_caller),
        cmocka_unit_test(incomplete_ones_are_refused),
    };
    return cmocka_run_group_tests_name("custom operators", tests, NULL, NULL);
}
