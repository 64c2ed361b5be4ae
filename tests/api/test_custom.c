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

static void H12_their_errors_reach_the_caller(void **state)
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

/* --- rules: y = x³, whose runs are counted ---------------------------------------------------- */

static tacit_status same_infer(void *context, const tacit_custom_call *c, tacit_error *err)
{
    (void)context;
    (void)err;
    c->outputs[0].dtype = c->inputs[0].dtype;
    c->outputs[0].rank = c->inputs[0].rank;
    memcpy(c->outputs[0].dims, c->inputs[0].dims, sizeof c->inputs[0].dims);
    return TACIT_OK;
}

static tacit_status cube_run(void *context, const tacit_custom_call *c, tacit_error *err)
{
    const float *x = c->inputs[0].data;
    float *y = c->outputs[0].data;
    (void)err;
    ++*(int *)context;
    for (size_t i = 0; i < c->inputs[0].bytes / sizeof *x; i++)
        y[i] = x[i] * x[i] * x[i];
    return TACIT_OK;
}

/* 3x²·seed */
static tacit_value slope(const tacit_custom_rule *r)
{
    const float three = 3;
    tacit_value k = tacit_builder_constant(r->builder, NULL, TACIT_F32, 0, NULL, &three);
    tacit_value square = tacit_builder_node(r->builder, "Mul", 2,
                                            (tacit_value[]){r->inputs[0], r->inputs[0]}, 1, NULL);
    tacit_value factor =
        tacit_builder_node(r->builder, "Mul", 2, (tacit_value[]){k, square}, 1, NULL);
    return tacit_builder_node(r->builder, "Mul", 2, (tacit_value[]){factor, r->seeds[0]}, 1, NULL);
}

static tacit_status cube_derivative(void *context, const tacit_custom_rule *r, tacit_error *err)
{
    (void)context;
    (void)err;
    if (r->seeds[0])
        r->results[0] = slope(r);
    return TACIT_OK;
}

static tacit_status cube_batch(void *context, const tacit_custom_rule *r, tacit_error *err)
{
    (void)context;
    (void)err;
    if (r->batched[0] && r->batch_size == 3)
        r->results[0] = tacit_builder_node(r->builder, "my.Cube", 1, r->inputs, 1, NULL);
    return TACIT_OK;
}

static tacit_status bad_vjp(void *context, const tacit_custom_rule *r, tacit_error *err)
{
    (void)context;
    (void)err;
    r->results[0] = tacit_builder_node(r->builder, "ReduceSum", 1, r->seeds, 1, NULL);
    return TACIT_OK;
}

static tacit_custom_op cube(int *calls)
{
    return (tacit_custom_op){.domain = "my",
                             .name = "Cube",
                             .min_inputs = 1,
                             .max_inputs = 1,
                             .n_outputs = 1,
                             .context = calls,
                             .infer = same_infer,
                             .run = cube_run,
                             .vjp = cube_derivative,
                             .jvp = cube_derivative,
                             .batch = cube_batch};
}

static tacit_model *load_with(const tacit_custom_op *op, const char *graph)
{
    const tacit_custom_op *list[] = {op};
    tacit_load_options options = {.custom_ops = list, .n_custom_ops = 1};
    tacit_model *m = NULL;
    tacit_error err = {0};
    if (tacit_model_load_memory(graph, strlen(graph), &options, &m, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return m;
}

static const char cube_graph[] = "tacit 1\n"
                                 "graph \"m\" {\n"
                                 "  in %x : f32[2]\n"
                                 "  %y = my.Cube(%x) @cube\n"
                                 "  out %y\n"
                                 "}\n";

/* Runs `m` on these f32 inputs (by position) and frees it. */
static void run_model(tacit_model *m, uint32_t n, const tacit_tensor *in, uint32_t n_out,
                      tacit_tensor *out)
{
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    tacit_error err = {0};
    if (tacit_compile(m, NULL, &p, &err) != TACIT_OK ||
        tacit_session_create(p, &s, &err) != TACIT_OK ||
        tacit_run(s, in, n, out, n_out, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(m);
}

static tacit_tensor f32(int32_t rank, int64_t rows, int64_t columns, float *data)
{
    tacit_tensor t = {.dtype = TACIT_F32, .rank = rank, .data = data};
    t.dims[0] = rank == 2 ? rows : columns;
    t.dims[1] = columns;
    t.bytes = (size_t)(rows * columns) * sizeof *data;
    return t;
}

static void gradients_come_from_their_rules(void **state)
{
    (void)state;
    int calls = 0;
    tacit_custom_op op = cube(&calls);
    tacit_model *m = load_with(&op, cube_graph), *grad = NULL, *tangent = NULL;
    const char *wrt[] = {"x"};
    tacit_error err = {0};
    float x[2] = {2, -0.5f}, seed[2] = {1, 10}, y[2], dx[2], t[2];
    if (tacit_grad(m, 1, wrt, NULL, &grad, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_tensor dx_out = f32(1, 1, 2, dx);
    run_model(grad, 2, (tacit_tensor[]){f32(1, 1, 2, x), f32(1, 1, 2, seed)}, 1, &dx_out);
    assert_memory_equal(dx, ((float[]){12, 7.5f}), sizeof dx);
    assert_int_equal(tacit_jvp(m, 1, wrt, NULL, 0, &tangent, &err), TACIT_OK);
    run_model(tangent, 2, (tacit_tensor[]){f32(1, 1, 2, x), f32(1, 1, 2, seed)}, 2,
              (tacit_tensor[]){f32(1, 1, 2, y), f32(1, 1, 2, t)});
    assert_memory_equal(y, ((float[]){8, -0.125f}), sizeof y);
    assert_memory_equal(t, ((float[]){12, 7.5f}), sizeof t);
    tacit_model_free(m);
}

static void tangents_follow_from_the_vjp(void **state)
{
    (void)state;
    int calls = 0;
    tacit_custom_op op = cube(&calls);
    op.jvp = NULL;
    tacit_model *m = load_with(&op, cube_graph), *tangent = NULL;
    const char *wrt[] = {"x"};
    tacit_error err = {0};
    float x[2] = {2, -0.5f}, seed[2] = {1, 10}, y[2], t[2];
    if (tacit_jvp(m, 1, wrt, NULL, 0, &tangent, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    run_model(tangent, 2, (tacit_tensor[]){f32(1, 1, 2, x), f32(1, 1, 2, seed)}, 2,
              (tacit_tensor[]){f32(1, 1, 2, y), f32(1, 1, 2, t)});
    assert_memory_equal(t, ((float[]){12, 7.5f}), sizeof t);
    tacit_model_free(m);
}

/* With a batch rule the operator runs once for all entries, without one once for each. */
static void batches_come_from_their_rules(void **state)
{
    (void)state;
    for (int with_rule = 0; with_rule < 2; with_rule++) {
        int calls = 0;
        tacit_custom_op op = cube(&calls);
        op.batch = with_rule ? cube_batch : NULL;
        tacit_model *m = load_with(&op, cube_graph), *batched = NULL;
        const char *inputs[] = {"x"};
        tacit_error err = {0};
        float x[6] = {1, 2, 3, -1, -2, 0}, y[6];
        if (tacit_vmap(m, 1, inputs, 3, NULL, 0, &batched, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        tacit_tensor in = f32(2, 3, 2, x), out = f32(2, 3, 2, y);
        run_model(batched, 1, &in, 1, &out);
        assert_memory_equal(y, ((float[]){1, 8, 27, -1, -8, 0}), sizeof y);
        assert_int_equal(calls, with_rule ? 1 : 3);
        tacit_model_free(m);
    }
}

static void wrong_rules_are_named(void **state)
{
    (void)state;
    int calls = 0;
    tacit_custom_op op = cube(&calls);
    const char *wrt[] = {"x"};
    tacit_error err = {0};
    tacit_model *grad;
    op.vjp = bad_vjp;
    tacit_model *m = load_with(&op, cube_graph);
    assert_int_equal(tacit_grad(m, 1, wrt, NULL, &grad, &err), TACIT_ERR_SHAPE);
    assert_non_null(strstr(err.message, "'cube'"));
    assert_non_null(strstr(err.message, "vjp"));
    tacit_model_free(m);
    op.vjp = NULL;
    m = load_with(&op, cube_graph);
    assert_int_equal(tacit_grad(m, 1, wrt, NULL, &grad, &err), TACIT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "my.Cube has no vjp rule"));
    tacit_model_free(m);
}

/* --- H12: mixed types, bytes as attributes, complex numbers, names nobody knows --------------- */

/* y[i] = Σ values[index] over the indices of row i, plus the attribute's bytes; z is passed on. */
static tacit_status mixed_infer(void *context, const tacit_custom_call *c, tacit_error *err)
{
    (void)context;
    (void)err;
    c->outputs[0] = (tacit_tensor){.dtype = TACIT_F64, .rank = 1, .dims = {c->inputs[1].dims[0]}};
    c->outputs[1] = (tacit_tensor){.dtype = TACIT_C64, .rank = 0};
    return TACIT_OK;
}

static tacit_status mixed_run(void *context, const tacit_custom_call *c, tacit_error *err)
{
    const double *values = c->inputs[0].data;
    const int32_t *index = c->inputs[1].data;
    double *y = c->outputs[0].data;
    size_t size;
    const unsigned char *blob = tacit_custom_bytes(c, "blob", &size);
    (void)context;
    if (!blob || size != 3 || c->inputs[0].dtype != TACIT_F64 || c->inputs[1].dtype != TACIT_I32) {
        err->status = TACIT_ERR_VALUE;
        snprintf(err->message, sizeof err->message, "blob of %zu bytes", size);
        return TACIT_ERR_VALUE;
    }
    for (int64_t i = 0; i < c->inputs[1].dims[0]; i++)
        y[i] = values[index[i]] + blob[i % 3];
    memcpy(c->outputs[1].data, c->inputs[2].data, c->inputs[2].bytes);
    return TACIT_OK;
}

static void H12_mixed_types_and_bytes(void **state)
{
    (void)state;
    static const char graph[] = "tacit 1\n"
                                "graph \"m\" {\n"
                                "  in %v : f64[3]\n"
                                "  in %i : i32[4]\n"
                                "  in %z : c64[]\n"
                                "  %y, %w = my.Mixed(%v, %i, %z) blob=\"\\x01\\x00\\x05\" @n\n"
                                "  out %y\n"
                                "  out %w\n"
                                "}\n";
    tacit_custom_op op = {.domain = "my",
                          .name = "Mixed",
                          .min_inputs = 3,
                          .max_inputs = 3,
                          .n_outputs = 2,
                          .infer = mixed_infer,
                          .run = mixed_run};
    double v[3] = {0.5, 1e300, -2}, y[4];
    int32_t index[4] = {2, 1, 0, 0};
    float z[2] = {3, -4}, w[2];
    run_model(
        load_with(&op, graph), 3,
        (tacit_tensor[]){
            {.dtype = TACIT_F64, .rank = 1, .dims = {3}, .data = v, .bytes = sizeof v},
            {.dtype = TACIT_I32, .rank = 1, .dims = {4}, .data = index, .bytes = sizeof index},
            {.dtype = TACIT_C64, .rank = 0, .data = z, .bytes = sizeof z}},
        2,
        (tacit_tensor[]){{.dtype = TACIT_F64, .rank = 1, .dims = {4}, .data = y, .bytes = sizeof y},
                         {.dtype = TACIT_C64, .rank = 0, .data = w, .bytes = sizeof w}});
    assert_memory_equal(y, ((double[]){-1, 1e300, 5.5, 1.5}), sizeof y);
    assert_memory_equal(w, z, sizeof z); /* complex numbers pass as they are */
}

/* y = conj(x)·factor: an operator that computes with complex numbers. */
static tacit_status conjugate_infer(void *context, const tacit_custom_call *c, tacit_error *err)
{
    (void)context;
    (void)err;
    c->outputs[0] = c->inputs[0];
    return TACIT_OK;
}

static tacit_status conjugate_run(void *context, const tacit_custom_call *c, tacit_error *err)
{
    (void)context;
    (void)err;
    const float *x = c->inputs[0].data;
    float *y = c->outputs[0].data, factor = (float)tacit_custom_float(c, "factor", 1);
    for (size_t i = 0; i < c->inputs[0].bytes / sizeof *x; i++)
        y[i] = (i % 2 ? -factor : factor) * x[i];
    return TACIT_OK;
}

static void S23_complex_operands(void **state)
{
    (void)state;
    static const char graph[] = "tacit 1\n"
                                "graph \"m\" {\n"
                                "  in %x : c64[2]\n"
                                "  %y = my.Conjugate(%x) factor=2.0 @n\n"
                                "  %z = Add(%y, %x) @add\n"
                                "  out %z\n"
                                "}\n";
    tacit_custom_op op = {.domain = "my",
                          .name = "Conjugate",
                          .min_inputs = 1,
                          .max_inputs = 1,
                          .n_outputs = 1,
                          .infer = conjugate_infer,
                          .run = conjugate_run};
    float x[4] = {1, 2, -3, 0.5f}, z[4];
    tacit_tensor in = {.dtype = TACIT_C64, .rank = 1, .dims = {2}, .data = x, .bytes = sizeof x};
    tacit_tensor out = {.dtype = TACIT_C64, .rank = 1, .dims = {2}, .data = z, .bytes = sizeof z};
    run_model(load_with(&op, graph), 1, &in, 1, &out);
    assert_memory_equal(z, ((float[]){3, -2, -9, -0.5f}), sizeof z);
}

static void H12_unknown_names(void **state)
{
    (void)state;
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    tacit_error err = {0};
    tacit_status status = tacit_model_load_memory(cube_graph, strlen(cube_graph), NULL, &m, &err);
    if (status == TACIT_OK)
        status = tacit_compile(m, NULL, &p, &err);
    assert_int_equal(status, TACIT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "my.Cube"));
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(custom_ops_run_between_built_in_ones),
        cmocka_unit_test(H12_their_errors_reach_the_caller),
        cmocka_unit_test(incomplete_ones_are_refused),
        cmocka_unit_test(gradients_come_from_their_rules),
        cmocka_unit_test(tangents_follow_from_the_vjp),
        cmocka_unit_test(batches_come_from_their_rules),
        cmocka_unit_test(wrong_rules_are_named),
        cmocka_unit_test(H12_mixed_types_and_bytes),
        cmocka_unit_test(S23_complex_operands),
        cmocka_unit_test(H12_unknown_names),
    };
    return cmocka_run_group_tests_name("custom operators", tests, NULL, NULL);
}
