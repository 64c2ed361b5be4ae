/* SPDX-License-Identifier: Apache-2.0
 * Mistakes in derivatives that our notes list (D: the catalogue, E: the executor, L: the lowering),
 * each a test that we do better. Others stand with their families: E5 and E24 as H3 and in
 * test_scan, E13 and E28's rounding in op/. */
#include <math.h>

#include "diff/harness.h"

#define WRT(...)                                                                                   \
    (sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[])                     \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define DATA(...) ((const double *[]){__VA_ARGS__})

/* The gradient is cut where the value was: with the scale that the forward pass used. */
static void E12_fake_quantising_cuts_where_it_clipped(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double x[4] = {0.45, 1, 2, 4}, s[1] = {0.2}, g[4] = {1, 2, 3, 4};
    /* bits 3: Q = 3. The data would say 4/3; the state goes half way: (0.2 + 4/3)/2. */
    double scale = (0.2 + 4.0 / 3) / 2, y[4], dx[4];
    for (int i = 0; i < 4; i++) {
        double q = nearbyint(x[i] / scale);
        y[i] = fmin(q, 3) * scale;
        dx[i] = x[i] / scale <= 3 ? g[i] : 0;
    }
    assert_true(dx[2] == 3 && dx[3] == 0);
    ir_tensor *got = harness_grad(&a,
                                  "in %x : f64[4]\nin %s : f64[1]\n%y = tacit.FakeQuantize(%x, %s) "
                                  "mode=\"ema\" decay=0.5 bits=3 @y\nout %y",
                                  WRT("x"), DATA(x, s), g);
    harness_all_near("y", &got[0], y, 1e-12);
    harness_all_near("dx", &got[1], dx, 1e-12);
    const double fixed[4] = {1, 0, 0, 0}, cut[4] = {0.4, 0.6, 0.6, 0.6};
    got = harness_grad(&a,
                       "in %x : f64[4]\nin %s : f64[1]\n%y = tacit.FakeQuantize(%x, %s) "
                       "mode=\"fixed\" bits=3 @y\nout %y",
                       WRT("x"), DATA(x, s), g);
    harness_all_near("y, fixed", &got[0], cut, 1e-12);
    harness_all_near("dx, fixed", &got[1], fixed, 1e-12);
    arena_free(&a);
}

/* Rows of indices of both widths, one of them twice, and from the end. */
static void E18_gathered_gradients_go_where_integers_say(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    static const char *const types[] = {"i64", "i32"};
    const double t[8] = {1, 2, 3, 4, 5, 6, 7, 8}, i[3] = {2, -1, 2};
    const double by_row[6] = {1, 2, 10, 20, 100, 200}, by_column[6] = {1, 2, 4, 10, 20, 40};
    const double rows[8] = {0, 0, 0, 0, 101, 202, 10, 20}, columns[8] = {0, 0, 5, 2, 0, 0, 50, 20};
    for (int k = 0; k < 2; k++) {
        char body[256];
        snprintf(body, sizeof body,
                 "in %%t : f64[4,2]\nin %%i : %s[3]\n%%y = Gather(%%t, %%i) @y\nout %%y", types[k]);
        ir_tensor *got = harness_grad(&a, body, WRT("t"), DATA(t, i), by_row);
        harness_all_near("rows", &got[1], rows, 0);
        snprintf(body, sizeof body,
                 "in %%t : f64[2,4]\nin %%i : %s[3]\n%%y = Gather(%%t, %%i) axis=1 @y\nout %%y",
                 types[k]);
        got = harness_grad(&a, body, WRT("t"), DATA(t, i), by_column);
        harness_all_near("columns", &got[1], columns, 0);
    }
    arena_free(&a);
}

/* In double, where the two forms of Gelu differ by far more than the rounding. */
static void E28_each_gelu_has_its_own_slope(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double x[3] = {-1.3, 0.4, 2.1}, one[3] = {1, 1, 1}, pi = acos(-1);
    double tanhed[3], exact[3];
    for (int i = 0; i < 3; i++) {
        double c = sqrt(2 / pi), u = c * (x[i] + 0.044715 * x[i] * x[i] * x[i]), t = tanh(u);
        tanhed[i] = (1 + t) / 2 + x[i] / 2 * (1 - t * t) * c * (1 + 3 * 0.044715 * x[i] * x[i]);
        exact[i] = (1 + erf(x[i] / sqrt(2))) / 2 + x[i] * exp(-x[i] * x[i] / 2) / sqrt(2 * pi);
        assert_true(fabs(tanhed[i] - exact[i]) > 1e-6);
    }
    ir_tensor *got =
        harness_grad(&a, "in %x : f64[3]\n%y = Gelu(%x) approximate=\"tanh\" @y\nout %y", WRT("x"),
                     DATA(x), one);
    harness_all_near("tanh", &got[1], tanhed, 1e-12);
    got = harness_grad(&a, "in %x : f64[3]\n%y = Gelu(%x) @y\nout %y", WRT("x"), DATA(x), one);
    harness_all_near("exact", &got[1], exact, 1e-12);
    arena_free(&a);
}

/* Attention's gradient knows a mask from none: the masked key gets nothing. */
static void E15_masks_count_in_gradients(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double q[1] = {0}, k[2] = {1, 2}, v[2] = {2, 6}, m[2] = {0, 1}, g[1] = {1};
    for (int masked = 0; masked < 2; masked++) {
        char body[512];
        snprintf(body, sizeof body,
                 "in %%q : f64[1,1,1,1]\nin %%k : f64[1,1,2,1]\nin %%v : f64[1,1,2,1]\nin %%m : "
                 "bool[1,1,1,2]\n%%y = tacit.Attention(%%q, %%k, %%v%s) scale=1.0 @y\nout %%y",
                 masked ? ", %m" : "");
        ir_tensor *got = harness_grad(&a, body, WRT("q", "v"), DATA(q, k, v, m), g);
        harness_all_near("y", &got[0], masked ? (double[]){6} : (double[]){4}, 1e-12);
        harness_all_near("dq", &got[1], masked ? (double[]){0} : (double[]){1}, 1e-12);
        harness_all_near("dv", &got[2], masked ? (double[]){0, 1} : (double[]){.5, .5}, 1e-12);
    }
    arena_free(&a);
}

/* A label that the loss refuses, its gradient refuses too. */
static void E30_gradients_refuse_the_same_labels(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        arena a;
        arena_init(&a, NULL);
        tacit_error err = {0};
        ir_graph *g = harness_graph(&a, "in %x : f64[1,3]\nin %l : i64[1]\n%y = "
                                        "SoftmaxCrossEntropyLoss(%x, %l) @y\nout %y");
        const char *wrt = "x";
        assert_int_equal(diff_grad(g, 1, &wrt, &(diff_grad_options){.ones_seed = true}, &err),
                         TACIT_OK);
        assert_int_equal(g->outputs.count, 1); /* the gradient alone */
        const double x[3] = {0, 0, 0}, label[1] = {bad ? 3 : 1};
        const ir_tensor *in[] = {harness_tensor(&a, &g->inputs.data[0]->type, x),
                                 harness_tensor(&a, &g->inputs.data[1]->type, label)};
        ir_tensor out;
        assert_int_equal(interp_run(g, in, &out, &a, 0, &err), bad ? TACIT_ERR_VALUE : TACIT_OK);
        if (!bad)
            harness_all_near("dx", &out, (double[]){1.0 / 3, -2.0 / 3, 1.0 / 3}, 1e-12);
        arena_free(&a);
    }
}

/* Two carries, an outer value and a scanned one: (c, d) ← (c·w + u, d + c). All four gradients come
 * out of one sweep. */
static void L24_scans_give_all_their_gradients(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double c = 2, d = 1, w = 3, u[2] = {5, 7}, one[1] = {1};
    ir_tensor *got = harness_grad(
        &a,
        "in %c : f64[]\nin %d : f64[]\nin %u : f64[2]\nin %w : f64[]\n%p, %q = Scan(%c, %d, %u | "
        "%w) body=graph \"b\" {\nin %e : f64[]\nin %f : f64[]\nin %g : f64[]\ncapture %h : "
        "f64[]\n%m = Mul(%e, %h) @m\n%n = Add(%m, %g) @n\n%o = Add(%f, %e) @o\nout %n\nout %o\n} "
        "num_scan_inputs=1 @s\n%y = Mul(%p, %q) @y\nout %y",
        WRT("c", "d", "u", "w"), DATA(&c, &d, u, &w), one);
    /* p = w²c + w·u0 + u1 = 40, q = d + c + (w·c + u0) = 14 */
    harness_near("y", harness_at(&got[0], 0), 560, 1e-12);
    harness_near("dc", harness_at(&got[1], 0), 9 * 14 + 4 * 40, 1e-12);
    harness_near("dd", harness_at(&got[2], 0), 40, 1e-12);
    harness_all_near("du", &got[3], (double[]){3 * 14 + 40, 14}, 1e-12);
    harness_near("dw", harness_at(&got[4], 0), (2 * 3 * 2 + 5) * 14 + 2 * 40, 1e-12);
    arena_free(&a);
}

/* A group norm of rank 3 has the gradient of the same numbers in rank 4. */
static void L1_6_group_norm_gradients_of_any_rank(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double x[8] = {1, 3, -1, 2, 0, 5, -2, 4}, g[8] = {1, 2, 3, 4, 5, 6, 7, 9};
    ir_tensor *got[2];
    for (int k = 0; k < 2; k++) {
        char body[512];
        snprintf(body, sizeof body,
                 "in %%x : f64[2,2,2%s]\nconst %%s : f64[2] = [1, 2]\nconst %%b : f64[2] = [0, "
                 "1]\n%%y = GroupNormalization(%%x, %%s, %%b) num_groups=2 epsilon=0.5 @y\nout %%y",
                 k ? ",1" : "");
        got[k] = harness_grad(&a, body, WRT("x"), DATA(x), g);
    }
    for (int i = 0; i < 8; i += 2) { /* two numbers per group */
        double m = (x[i] - x[i + 1]) / 2, r = 1 / sqrt(m * m + 0.5), s = i % 4 ? 2 : 1;
        double want = s * (g[i] - g[i + 1]) / 2 * r * r * r * 0.5;
        for (int k = 0; k < 2; k++) {
            harness_near("first of a group", harness_at(&got[k][1], i), want, 1e-12);
            harness_near("second of a group", harness_at(&got[k][1], i + 1), -want, 1e-12);
        }
    }
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(E12_fake_quantising_cuts_where_it_clipped),
        cmocka_unit_test(E18_gathered_gradients_go_where_integers_say),
        cmocka_unit_test(E28_each_gelu_has_its_own_slope),
        cmocka_unit_test(E15_masks_count_in_gradients),
        cmocka_unit_test(E30_gradients_refuse_the_same_labels),
        cmocka_unit_test(L24_scans_give_all_their_gradients),
        cmocka_unit_test(L1_6_group_norm_gradients_of_any_rank),
    };
    return cmocka_run_group_tests_name("listed defects of derivatives", tests, NULL, NULL);
}
