/* SPDX-License-Identifier: Apache-2.0
 * Functions with derivatives of their own, T54 to T58, through the public API. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tacit/tacit.h"

static tacit_model *load(const char *body)
{
    static char text[2048]; /* the model may point into it */
    tacit_model *m;
    tacit_error err;
    snprintf(text, sizeof text, "tacit 1\ngraph \"m\" {\n%s\n}\n", body);
    if (tacit_model_load_memory(text, strlen(text), NULL, &m, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return m;
}

/* Runs a model whose inputs and outputs are f32; inputs and outputs by position. */
static void run(const tacit_model *m, float *const *in, float *const *out, uint32_t n_out)
{
    tacit_program *p;
    tacit_session *s;
    tacit_error err;
    tacit_tensor from[6] = {0}, to[6] = {0};
    assert_int_equal(tacit_model_output_count(m), n_out);
    if (tacit_compile(m, NULL, &p, &err) != TACIT_OK ||
        tacit_session_create(p, &s, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (uint32_t side = 0; side < 2; side++) {
        uint32_t n = side ? n_out : tacit_model_input_count(m);
        for (uint32_t i = 0; i < n; i++) {
            tacit_port port;
            assert_int_equal(side ? tacit_program_output(p, i, &port)
                                  : tacit_program_input(p, i, &port),
                             TACIT_OK);
            tacit_tensor *t = side ? &to[i] : &from[i];
            t->dtype = port.dtype;
            t->rank = port.rank;
            memcpy(t->dims, port.dims, sizeof t->dims);
            t->data = side ? out[i] : in[i];
            t->bytes = port.bytes;
        }
    }
    if (tacit_run(s, from, tacit_model_input_count(m), to, n_out, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_session_free(s);
    tacit_program_free(p);
}

static void T54_forward_only(void **state)
{
    (void)state;
    tacit_model *m = load("in %x : f32[3]\n%y = tacit.Function(%x) body=graph \"f\" {\nin %a : "
                          "f32[3]\nconst %one : f32[] = [1.0]\n%b = Add(%a, %one) @b\nout %b\n} "
                          "@f\nout %y");
    float x[3] = {10, 20, 30}, y[3];
    run(m, (float *[]){x}, (float *[]){y}, 1);
    assert_memory_equal(y, ((float[]){11, 21, 31}), sizeof y);
    /* Without a rule of its own the body is differentiated. */
    tacit_model *g;
    tacit_error err;
    assert_int_equal(tacit_grad(m, 1, (const char *[]){"x"}, NULL, &g, &err), TACIT_OK);
    float seed[3] = {1, 2, 3}, dx[3];
    run(g, (float *[]){x, seed}, (float *[]){dx}, 1);
    assert_memory_equal(dx, seed, sizeof dx);
    tacit_model_free(g);
    tacit_model_free(m);
}

#define IDENTITY "body=graph \"f\" {\nin %a : f32[1]\nout %a\n} "

static void T55_vjp_override(void **state)
{
    (void)state;
    tacit_model *g, *m = load("in %x : f32[1]\n%y = tacit.Function(%x) " IDENTITY
                              "vjp=graph \"v\" {\nin %a : f32[1]\nin %primal_output : f32[1]\nin "
                              "%d_output : f32[1]\nconst %two : f32[] = [2.0]\n%d = "
                              "Mul(%d_output, %two) @d\nout %d\n} @f\nout %y");
    tacit_error err;
    tacit_grad_options o = {.with_loss = 1};
    assert_int_equal(tacit_grad(m, 1, (const char *[]){"x"}, &o, &g, &err), TACIT_OK);
    float x = 7, one = 1, loss, dx;
    run(g, (float *[]){&x, &one}, (float *[]){&loss, &dx}, 2);
    assert_true(loss == 7 && dx == 2);
    tacit_model_free(g);
    /* Its transpose is the tangent where no jvp is given. */
    assert_int_equal(tacit_jvp(m, 1, (const char *[]){"x"}, NULL, 0, &g, &err), TACIT_OK);
    run(g, (float *[]){&x, &one}, (float *[]){&loss, &dx}, 2);
    assert_true(loss == 7 && dx == 2);
    tacit_model_free(g);
    tacit_model_free(m);
}

static void T56_two_inputs(void **state)
{
    (void)state;
    tacit_model *g, *m = load("in %a : f32[1]\nin %b : f32[1]\n%y = tacit.Function(%a, %b) "
                              "body=graph \"f\" {\nin %p : f32[1]\nin %q : f32[1]\n%r = Mul(%p, "
                              "%q) @r\nout %r\n} vjp=graph \"v\" {\nin %p : f32[1]\nin %q : "
                              "f32[1]\nin %o : f32[1]\nin %d : f32[1]\n%x = Mul(%q, %d) @x\n%z = "
                              "Mul(%p, %d) @z\nout %x\nout %z\n} @f\nout %y");
    tacit_error err;
    tacit_grad_options o = {.with_loss = 1};
    assert_int_equal(tacit_grad(m, 2, (const char *[]){"a", "b"}, &o, &g, &err), TACIT_OK);
    float a = 3, b = 5, one = 1, loss, da, db;
    run(g, (float *[]){&a, &b, &one}, (float *[]){&loss, &da, &db}, 3);
    assert_true(loss == 15 && da == 5 && db == 3);
    tacit_model_free(g);
    tacit_model_free(m);
}

static void T57_jvp_override(void **state)
{
    (void)state;
    tacit_model *g, *m = load("in %x_in : f32[1]\n%y = tacit.Function(%x_in) " IDENTITY
                              "jvp=graph \"j\" {\nin %a : f32[1]\nin %tangent_0 : f32[1]\nconst "
                              "%two : f32[] = [2.0]\n%t = Mul(%tangent_0, %two) @t\nout %t\n} "
                              "@f\nout %y");
    tacit_error err;
    assert_int_equal(tacit_jvp(m, 1, (const char *[]){"x_in"}, NULL, 0, &g, &err), TACIT_OK);
    tacit_port port;
    assert_int_equal(tacit_model_input(g, 1, &port), TACIT_OK);
    assert_string_equal(port.name, "tangent_x_in");
    float x = 7, one = 1, y, t;
    run(g, (float *[]){&x, &one}, (float *[]){&y, &t}, 2);
    assert_true(y == 7 && t == 2);
    tacit_model_free(g);
    tacit_model_free(m);
}

static void T58_several_outputs(void **state)
{
    (void)state;
    tacit_model *m = load("in %x : f32[3]\n%y, %z = tacit.Function(%x) body=graph \"f\" {\nin %a : "
                          "f32[3]\nconst %two : f32[] = [2.0]\n%s = Mul(%a, %a) @s\n%d = Mul(%a, "
                          "%two) @d\nout %s\nout %d\n} @f\nout %y\nout %z");
    float x[3] = {1, 2, 3}, y[3], z[3];
    run(m, (float *[]){x}, (float *[]){y, z}, 2);
    assert_memory_equal(y, ((float[]){1, 4, 9}), sizeof y);
    assert_memory_equal(z, ((float[]){2, 4, 6}), sizeof z);
    /* A batch of them. */
    tacit_model *v;
    tacit_error err;
    float xs[6] = {1, 2, 3, -1, 0, 1}, ys[6], zs[6];
    assert_int_equal(tacit_vmap(m, 1, (const char *[]){"x"}, 2, NULL, 0, &v, &err), TACIT_OK);
    run(v, (float *[]){xs}, (float *[]){ys, zs}, 2);
    assert_memory_equal(ys, ((float[]){1, 4, 9, 1, 0, 1}), sizeof ys);
    tacit_model_free(v);
    tacit_model_free(m);
}

static void rules_that_do_not_fit(void **state)
{
    (void)state;
    tacit_model *g, *m = load("in %x : f32[1]\n%y = tacit.Function(%x) " IDENTITY
                              "vjp=graph \"v\" {\nin %a : f32[1]\nout %a\n} @f\nout %y");
    tacit_error err;
    assert_int_equal(tacit_grad(m, 1, (const char *[]){"x"}, NULL, &g, &err), TACIT_ERR_GRAPH);
    assert_non_null(strstr(err.message, "vjp takes 1"));
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T54_forward_only),    cmocka_unit_test(T55_vjp_override),
        cmocka_unit_test(T56_two_inputs),      cmocka_unit_test(T57_jvp_override),
        cmocka_unit_test(T58_several_outputs), cmocka_unit_test(rules_that_do_not_fit),
    };
    return cmocka_run_group_tests_name("functions with rules", tests, NULL, NULL);
}
