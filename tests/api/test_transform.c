/* SPDX-License-Identifier: Apache-2.0
 * The transforms through the public API, compiled and run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tacit/tacit.h"

/* loss = Σ (w·x)², w a weight [2], x an input [N,2]. */
static tacit_model *make_model(void)
{
    static const char text[] = "tacit 1\n"
                               "graph \"m\" {\n"
                               "  symbol \"N\"\n"
                               "  in %x : f32[N,2]\n"
                               "  const %w : f32[2] = [3.0, -1.0]\n"
                               "  %p = MatMul(%x, %w) @p\n"
                               "  %s = Mul(%p, %p) @s\n"
                               "  %loss = ReduceSum(%s) keepdims=0 @sum\n"
                               "  out %loss\n"
                               "}\n";
    tacit_model *m;
    tacit_error err;
    if (tacit_model_load_memory(text, strlen(text), NULL, &m, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return m;
}

static void run(tacit_model *m, tacit_tensor *in, uint32_t n_in, tacit_tensor *out, uint32_t n_out)
{
    tacit_program *p;
    tacit_session *s;
    tacit_error err;
    if (tacit_compile(m, NULL, &p, &err) != TACIT_OK ||
        tacit_session_create(p, &s, &err) != TACIT_OK ||
        tacit_run(s, in, n_in, out, n_out, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_session_free(s);
    tacit_program_free(p);
}

static const tacit_dim two = {"N", 2};
static float x[4] = {1, 2, -1, 1}; /* w·x = 1, -4: loss 17 */

static tacit_tensor tensor(float *data, int32_t rank, int64_t a, int64_t b)
{
    tacit_tensor t = {.dtype = TACIT_F32, .rank = rank, .dims = {a, b}, .data = data};
    t.bytes = sizeof(float) * (size_t)((rank > 0 ? a : 1) * (rank > 1 ? b : 1));
    return t;
}

static void gradients_of_inputs_and_weights(void **state)
{
    (void)state;
    tacit_model *m = make_model(), *g;
    tacit_error err;
    tacit_grad_options o = {.dims = &two, .n_dims = 1, .with_loss = 1, .seed_ones = 1};
    assert_int_equal(tacit_grad(m, 2, (const char *[]){"x", "w"}, &o, &g, &err), TACIT_OK);
    tacit_model_free(m); /* the gradient model keeps the weights alive */
    float loss, dx[4], dw[2];
    tacit_tensor in = tensor(x, 2, 2, 2);
    tacit_tensor out[3] = {tensor(&loss, 0, 0, 0), tensor(dx, 2, 2, 2), tensor(dw, 1, 2, 0)};
    run(g, &in, 1, out, 3);
    assert_true(loss == 17);
    /* d/dx = 2p·w, d/dw = Σ 2p·x */
    assert_memory_equal(dx, ((float[]){6, -2, -24, 8}), sizeof dx);
    assert_memory_equal(dw, ((float[]){10, -4}), sizeof dw);
    tacit_model_free(g);
}

static void second_derivatives(void **state)
{
    (void)state;
    tacit_model *m = make_model(), *g, *hessian;
    tacit_error err;
    tacit_grad_options o = {.dims = &two, .n_dims = 1, .seed_ones = 1};
    assert_int_equal(tacit_grad(m, 1, (const char *[]){"w"}, &o, &g, &err), TACIT_OK);
    if (tacit_grad(g, 1, (const char *[]){"w"}, NULL, &hessian, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    float seed[2] = {1, 0}, row[2];
    tacit_tensor in[2] = {tensor(x, 2, 2, 2), tensor(seed, 1, 2, 0)};
    tacit_tensor out = tensor(row, 1, 2, 0);
    run(hessian, in, 2, &out, 1);
    /* H = 2·Σ x·xᵀ: first row 2·(1 + 1), 2·(2 − 1) */
    assert_memory_equal(row, ((float[]){4, 2}), sizeof row);
    tacit_model_free(hessian);
    tacit_model_free(g);
    tacit_model_free(m);
}

static void tangents_and_batches(void **state)
{
    (void)state;
    tacit_model *m = make_model(), *j, *v;
    tacit_error err;
    assert_int_equal(tacit_jvp(m, 1, (const char *[]){"x"}, &two, 1, &j, &err), TACIT_OK);
    float t[4] = {1, 0, 0, 1}, value, slope;
    tacit_tensor in[2] = {tensor(x, 2, 2, 2), tensor(t, 2, 2, 2)};
    tacit_tensor out[2] = {tensor(&value, 0, 0, 0), tensor(&slope, 0, 0, 0)};
    run(j, in, 2, out, 2);
    assert_true(value == 17 && slope == 6 + 8);
    assert_int_equal(tacit_vmap(m, 1, (const char *[]){"x"}, 2, &two, 1, &v, &err), TACIT_OK);
    float batch[8] = {1, 2, -1, 1, 0, 1, 1, 0}, losses[2];
    tacit_tensor bin = {
        .dtype = TACIT_F32, .rank = 3, .dims = {2, 2, 2}, .data = batch, .bytes = sizeof batch};
    tacit_tensor bout = tensor(losses, 1, 2, 0);
    run(v, &bin, 1, &bout, 1);
    assert_true(losses[0] == 17 && losses[1] == 1 + 9);
    tacit_model_free(v);
    tacit_model_free(j);
    tacit_model_free(m);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    tacit_model *m = make_model(), *g;
    tacit_error err;
    tacit_grad_options o = {.dims = &two, .n_dims = 1, .seed_ones = 1};
    assert_int_equal(tacit_grad(m, 1, (const char *[]){"q"}, &o, &g, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'q'"));
    assert_int_equal(tacit_grad(m, 1, (const char *[]){"x"}, NULL, &g, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'N'"));
    o.output = 3;
    assert_int_equal(tacit_grad(m, 1, (const char *[]){"x"}, &o, &g, &err), TACIT_ERR_ARGUMENT);
    assert_null(g);
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_inputs_and_weights),
        cmocka_unit_test(second_derivatives),
        cmocka_unit_test(tangents_and_batches),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests_name("transforms", tests, NULL, NULL);
}
