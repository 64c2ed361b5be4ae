/* SPDX-License-Identifier: Apache-2.0
 * Transforms of transforms, control flow, and small networks that learn: H10, H11, H14, H15. */
#include "diff/harness.h"

/* --- Loop and If ---------------------------------------------------------------------------------
 */

/* A loop of a known number of steps is a scan: c ← c·sin(c + i·w), with what each step gave out. */
static void loops_of_known_length(void **state)
{
    (void)state;
    double c[2] = {0.5, -0.8}, w[2] = {0.3, 0.7}, g[6] = {1, -2, 0.5, 0.3, -1, 2};
    static const char body[] =
        "in %c : f64[2]\nin %w : f64[2]\nconst %n : i64[] = [3]\nconst %t : bool[] = "
        "[true]\n%last, "
        "%all = Loop(%n, %t, %c | %w) body=graph \"b\" {\nin %i : i64[]\nin %go : bool[]\nin %s : "
        "f64[2]\ncapture %v : f64[2]\n%f = Cast(%i) to=11 @f\n%m = Mul(%f, %v) @m\n%a = Add(%s, "
        "%m) "
        "@a\n%e = Sin(%a) @e\n%u = Mul(%s, %e) @u\n%again = Identity(%go) @again\nout %again\nout "
        "%u\nout %e\n} @loop\n%x = Add(%all, %last) @x\nout %x";
    harness_differences(body, 2, (const char *[]){"c", "w"}, (double *[]){c, w}, g, 1e-7);
    tacit_error err = {0};
    arena a;
    arena_init(&a, NULL);
    ir_graph *loop = harness_graph(
        &a, "in %c : f64[2]\nin %t : bool[]\nconst %n : i64[] = [3]\n%last = Loop(%n, %t, %c) "
            "body=graph \"b\" {\nin %i : i64[]\nin %go : bool[]\nin %s : f64[2]\n%u = Sin(%s) "
            "@u\nout %go\nout %u\n} @while\nout %last");
    loop->outputs.data[0]->type = loop->inputs.data[0]->type;
    const char *wrt = "c";
    assert_int_equal(diff_grad(loop, 1, &wrt, &(diff_grad_options){0}, &err),
                     TACIT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "'while' (Loop)"));
    arena_free(&a);
}

/* Only the branch that ran is walked back: the other one would give NaN here. */
static void branches(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        double x[2] = {i ? 2.5 : -2.5, i ? 0.5 : -0.5}, y[2] = {0.7, 1.3}, g[2] = {1, -2};
        harness_differences(
            "in %x : f64[2]\nin %y : f64[2]\nconst %z : f64[] = [0.0]\nconst %k : i64[1] = [0]\n%s "
            "= "
            "ReduceSum(%x, %k) keepdims=0 @s\n%p = Greater(%s, %z) @p\n%r = If(%p | %x, %y) "
            "then_branch=graph \"t\" {\ncapture %a : f64[2]\ncapture %b : f64[2]\n%l = Log(%a) @l\n"
            "%m = Mul(%l, %b) @m\nout %m\n} else_branch=graph \"e\" {\ncapture %a : f64[2]\n"
            "capture _\n%n = Neg(%a) @n\n%q = Sqrt(%n) @q\nout %q\n} @if\n%o = Mul(%r, %r) @o\nout "
            "%o",
            2, (const char *[]){"x", "y"}, (double *[]){x, y}, g, 1e-6);
    }
    double x[2] = {2.5, 0.5}, g[2] = {1, -2}; /* known when compiling: the branch itself */
    harness_differences(
        "in %x : f64[2]\nconst %p : bool[] = [false]\n%r = If(%p | %x) "
        "then_branch=graph \"t\" {\ncapture %a : f64[2]\n%l = Log(%a) @l\nout %l\n} "
        "else_branch=graph \"e\" {\ncapture %a : f64[2]\n%n = Exp(%a) @n\nout %n\n} "
        "@if\nout %r",
        1, (const char *[]){"x"}, (double *[]){x}, g, 1e-6);
}

static void tangents_of_branches(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double x[2] = {0.4, 1.1}, t[2] = {1, -2};
    const char *body = "in %x : f64[2]\nin %p : bool[]\n%r = If(%p | %x) then_branch=graph \"t\" "
                       "{\ncapture %a : f64[2]\n%l = Log(%a) @l\nout %l\n} else_branch=graph \"e\" "
                       "{\ncapture %a : f64[2]\n%n = Exp(%a) @n\nout %n\n} @if\nout %r";
    for (int taken = 0; taken < 2; taken++) {
        ir_tensor *got = harness_jvp(&a, body, "x", (const double *[]){x, (double[]){taken}}, t);
        for (int i = 0; i < 2; i++)
            harness_near("tangent", harness_at(&got[1], i), t[i] * (taken ? 1 / x[i] : exp(x[i])),
                         1e-12);
    }
    arena_free(&a);
}

/* --- transforms of transforms --------------------------------------------------------------------
 */

/* A small network: tanh layers, squared error. */
static const char network[] =
    "in %w : f64[2,3]\nin %b : f64[3]\nin %v : f64[3]\nconst %x : f64[4,2] = [0.5, -1, 0.3, 0.8, "
    "-0.7, 0.2, 1.1, -0.4]\nconst %t : f64[4] = [0.2, -0.5, 0.9, 0.1]\n%p = MatMul(%x, %w) @p\n%q "
    "= "
    "Add(%p, %b) @q\n%h = Tanh(%q) @h\n%o = MatMul(%h, %v) @o\n%d = Sub(%o, %t) @d\n%e = Mul(%d, "
    "%d) "
    "@e\n%loss = ReduceMean(%e) keepdims=0 @loss\nout %loss";

enum { PARAMS = 12 }; /* 6 of w, 3 of b, 3 of v */
static const uint32_t first_of[3] = {0, 6, 9}, count_of[3] = {6, 3, 3};

static void net_inputs(arena *a, const ir_graph *g, const double *params, const ir_tensor **in)
{
    for (int i = 0; i < 3; i++)
        in[i] = harness_tensor(a, &g->inputs.data[i]->type, params + first_of[i]);
}

static ir_graph *net_gradient(arena *a)
{
    tacit_error err = {0};
    ir_graph *g = harness_graph(a, network);
    if (diff_grad(g, 3, (const char *[]){"w", "b", "v"}, &(diff_grad_options){.ones_seed = true},
                  &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return g;
}

/* jvp of grad is the Hessian times a vector; vmap of jvp gives all columns of a Jacobian. */
static void H11_hessian_vector_products(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    double params[PARAMS], along[PARAMS];
    splitmix s = {5};
    harness_fill(&s, params, PARAMS, 0.5), harness_fill(&s, along, PARAMS, 1);
    const char *names[3] = {"w", "b", "v"};
    ir_graph *g = net_gradient(&a), *h = ir_graph_clone(g, &a);
    if (diff_jvp(h, 3, names, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    const ir_tensor *in[6], *side[2][3];
    net_inputs(&a, h, params, in);
    for (int i = 0; i < 3; i++)
        in[3 + i] = harness_tensor(&a, &h->inputs.data[3 + i]->type, along + first_of[i]);
    ir_tensor *got = harness_run(&a, h, in), *grads[2];
    for (int k = 0; k < 2; k++) {
        double moved[PARAMS];
        for (int i = 0; i < PARAMS; i++)
            moved[i] = params[i] + (k ? 1e-5 : -1e-5) * along[i];
        net_inputs(&a, g, moved, side[k]);
        grads[k] = harness_run(&a, g, side[k]);
    }
    for (int i = 0; i < 3; i++)
        for (uint32_t e = 0; e < count_of[i]; e++)
            harness_near("Hv", harness_at(&got[3 + i], e),
                         (harness_at(&grads[1][i], e) - harness_at(&grads[0][i], e)) / 2e-5, 1e-6);
    arena_free(&a);
}

static void H11_jacobian_by_vmap_of_jvp(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    static const char body[] = "in %x : f64[3]\nconst %m : f64[3,2] = [1, 2, -1, 0.5, 3, -2]\n%p = "
                               "MatMul(%x, %m) @p\n%y = Sin(%p) @y\nout %y";
    const double m[6] = {1, 2, -1, 0.5, 3, -2}, x[3] = {0.3, -0.2, 0.5};
    const double units[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    ir_graph *g = harness_graph(&a, body);
    const char *wrt = "x", *seed = "tangent_x";
    if (diff_jvp(g, 1, &wrt, &err) != TACIT_OK || diff_vmap(g, 1, &seed, 3, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    const ir_tensor *in[2] = {harness_tensor(&a, &g->inputs.data[0]->type, x),
                              harness_tensor(&a, &g->inputs.data[1]->type, units)};
    ir_tensor *got = harness_run(&a, g, in);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            double p = x[0] * m[k] + x[1] * m[2 + k] + x[2] * m[4 + k];
            harness_near("J", harness_at(&got[1], 2 * i + k), cos(p) * m[2 * i + k], 1e-12);
        }
    /* jvp of vmap: tangents of three points at once. */
    ir_graph *v = harness_graph(&a, body);
    if (diff_vmap(v, 1, &wrt, 3, &err) != TACIT_OK || diff_jvp(v, 1, &wrt, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    double points[9], along[9];
    splitmix s = {8};
    harness_fill(&s, points, 9, 1), harness_fill(&s, along, 9, 1);
    in[0] = harness_tensor(&a, &v->inputs.data[0]->type, points);
    in[1] = harness_tensor(&a, &v->inputs.data[1]->type, along);
    got = harness_run(&a, v, in);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++) {
            const double *q = points + 3 * i, *t = along + 3 * i;
            double p = q[0] * m[k] + q[1] * m[2 + k] + q[2] * m[4 + k];
            double d = t[0] * m[k] + t[1] * m[2 + k] + t[2] * m[4 + k];
            harness_near("tangent", harness_at(&got[1], 2 * i + k), cos(p) * d, 1e-12);
        }
    arena_free(&a);
}

/* grad of grad of grad: x⁵. */
static void gradients_of_gradients(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g = harness_graph(&a, "in %x : f64[]\nconst %k : f64[] = [5.0]\n%y = Pow(%x, %k) "
                                    "@y\nout %y");
    const char *wrt = "x";
    const double want[3] = {5 * 16, 20 * 8, 60 * 4};
    for (int i = 0; i < 3; i++) {
        if (diff_grad(g, 1, &wrt, &(diff_grad_options){.ones_seed = true}, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        const ir_tensor *in[1] = {harness_tensor(&a, &g->inputs.data[0]->type, (double[]){2})};
        harness_near("derivative", harness_at(harness_run(&a, g, in), 0), want[i], 1e-9);
    }
    arena_free(&a);
}

/* vmap of grad of a scan with outer values, against a loop: per-sample gradients. */
static void vmap_of_grad_of_scan(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    static const char body[] =
        "in %init : f64[2]\nin %xs : f64[4,2]\nin %w : f64[2]\n%last = Scan(%init, %xs | %w) "
        "body=graph \"b\" {\nin %c : f64[2]\nin %x : f64[2]\ncapture %v : f64[2]\n%m = Mul(%c, %v) "
        "@m\n%t = Tanh(%m) @t\n%n = Add(%t, %x) @n\nout %n\n} num_scan_inputs=1 checkpoints=2 "
        "@scan\n%loss = ReduceSum(%last) keepdims=0 @loss\nout %loss";
    const char *names[3] = {"init", "xs", "w"};
    ir_graph *one = harness_graph(&a, body);
    if (diff_grad(one, 3, names, &(diff_grad_options){.ones_seed = true}, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    ir_graph *all = ir_graph_clone(one, &a);
    if (diff_vmap(all, 2, names, 3, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    double init[6], xs[24], w[2] = {0.7, -1.2};
    splitmix s = {77};
    harness_fill(&s, init, 6, 1), harness_fill(&s, xs, 24, 1);
    const ir_tensor *in[3] = {harness_tensor(&a, &all->inputs.data[0]->type, init),
                              harness_tensor(&a, &all->inputs.data[1]->type, xs),
                              harness_tensor(&a, &all->inputs.data[2]->type, w)};
    ir_tensor *got = harness_run(&a, all, in);
    for (int k = 0; k < 3; k++) {
        const ir_tensor *single[3] = {harness_tensor(&a, &one->inputs.data[0]->type, init + 2 * k),
                                      harness_tensor(&a, &one->inputs.data[1]->type, xs + 8 * k),
                                      in[2]};
        ir_tensor *want = harness_run(&a, one, single);
        for (int o = 0; o < 3; o++)
            for (int64_t i = 0; i < ir_tensor_count(&want[o]); i++)
                harness_near(names[o], harness_at(&got[o], k * ir_tensor_count(&want[o]) + i),
                             harness_at(&want[o], i), 1e-12);
    }
    arena_free(&a);
}

/* --- learning ------------------------------------------------------------------------------------
 */

/* One step of plain descent; returns the loss before it. */
static double descend(arena *a, const ir_graph *g, uint32_t n, double *const *params,
                      const int64_t *sizes, double rate)
{
    const ir_tensor *in[8];
    for (uint32_t i = 0; i < n; i++)
        in[i] = harness_tensor(a, &g->inputs.data[i]->type, params[i]);
    ir_tensor *out = harness_run(a, g, in);
    for (uint32_t i = 0; i < n; i++)
        for (int64_t e = 0; e < sizes[i]; e++)
            params[i][e] -= rate * harness_at(&out[1 + i], e);
    return harness_at(&out[0], 0);
}

static ir_graph *loss_and_gradients(arena *a, const char *body, uint32_t n,
                                    const char *const *names)
{
    tacit_error err = {0};
    ir_graph *g = harness_graph(a, body);
    if (diff_grad(g, n, names, &(diff_grad_options){.ones_seed = true, .with_loss = true}, &err) !=
        TACIT_OK)
        fail_msg("%s", err.message);
    return g;
}

/* Two steps lower the loss of a convolutional net; two hundred sort a separable set. */
static void H10_learning(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    double x[36], wc[18], bc[2] = {5.0, 5.1}, wfc[24], bfc[3];
    splitmix s = {34};
    harness_fill(&s, x, 36, 1), harness_fill(&s, wc, 18, 0.2), harness_fill(&s, wfc, 24, 0.5);
    harness_fill(&s, bfc, 3, 1);
    char image[800] = "";
    for (int i = 0; i < 36; i++)
        snprintf(image + strlen(image), sizeof image - strlen(image), "%s%.9g", i ? ", " : "",
                 x[i]);
    const char *net = arena_printf(
        &a,
        "in %%wc : f64[2,1,3,3]\nin %%bc : f64[2]\nin %%wfc : f64[8,3]\nin %%bfc : f64[3]\nconst "
        "%%x : f64[1,1,6,6] = [%s]\nconst %%f : i64[2] = [1, 8]\nconst %%t : i64[1] = [1]\n%%c = "
        "Conv(%%x, %%wc, %%bc) @c\n%%r = Relu(%%c) @r\n%%m = MaxPool(%%r) kernel_shape=[2, 2] "
        "strides=[2, 2] @m\n%%v = Reshape(%%m, %%f) @v\n%%p = MatMul(%%v, %%wfc) @p\n%%l = "
        "Add(%%p, "
        "%%bfc) @l\n%%y = SoftmaxCrossEntropyLoss(%%l, %%t) @y\nout %%y",
        image);
    ir_graph *g = loss_and_gradients(&a, net, 4, (const char *[]){"wc", "bc", "wfc", "bfc"});
    double *params[4] = {wc, bc, wfc, bfc}, losses[3];
    for (int i = 0; i < 3; i++)
        losses[i] = descend(&a, g, 4, params, (int64_t[]){18, 2, 24, 3}, 0.01);
    assert_true(losses[1] < losses[0] && losses[2] < losses[1]);
    /* Points left and right of a slanted line. */
    double points[64], w[2] = {0}, b[1] = {0};
    char data[2000] = "", labels[400] = "";
    for (int i = 0; i < 32; i++) {
        double u = (double)splitmix_sym(&s), side = i % 2 ? 1 : -1;
        points[2 * i] = u;
        points[2 * i + 1] = 0.5 * u + side * (0.3 + (double)splitmix_unit(&s));
        snprintf(data + strlen(data), sizeof data - strlen(data), "%s%.9g, %.9g", i ? ", " : "",
                 points[2 * i], points[2 * i + 1]);
        snprintf(labels + strlen(labels), sizeof labels - strlen(labels), "%s%d", i ? ", " : "",
                 i % 2);
    }
    const char *line = arena_printf(
        &a,
        "in %%w : f64[2]\nin %%b : f64[1]\nconst %%x : f64[32,2] = [%s]\nconst %%t : f64[32] = "
        "[%s]\n%%p = MatMul(%%x, %%w) @p\n%%q = Add(%%p, %%b) @q\n%%s = Softplus(%%q) @s\n%%m = "
        "Mul(%%q, %%t) @m\n%%d = Sub(%%s, %%m) @d\n%%y = ReduceMean(%%d) keepdims=0 @y\nout %%y",
        data, labels);
    g = loss_and_gradients(&a, line, 2, (const char *[]){"w", "b"});
    for (int i = 0; i < 200; i++)
        descend(&a, g, 2, (double *[]){w, b}, (int64_t[]){2, 1}, 2);
    for (int i = 0; i < 32; i++)
        assert_int_equal(w[0] * points[2 * i] + w[1] * points[2 * i + 1] + b[0] > 0, i % 2);
    arena_free(&a);
}

/* --- scans ---------------------------------------------------------------------------------------
 */

/* A carry of three floats with a cotangent for every step. */
static void H14_odd_f32_carry(void **state)
{
    (void)state;
    double init[3] = {0.3, -0.6, 0.9}, g[12];
    splitmix s = {3};
    harness_fill(&s, g, 12, 1);
    harness_differences("in %init : f32[3]\nconst %n : f32[4] = [0, 0, 0, 0]\n%last, %all = "
                        "Scan(%init, %n) body=graph \"b\" {\nin %c : f32[3]\nin %x : f32[]\n%u = "
                        "Sin(%c) @u\nout %u\nout %u\n} num_scan_inputs=1 @scan\nout %all",
                        1, (const char *[]){"init"}, (double *[]){init}, g, 1e-5);
}

/* Outer values of a scan: value and gradient, also through checkpoints. */
static void H15_outer_values(void **state)
{
    (void)state;
    for (int k = 0; k <= 3; k++) {
        char body[600];
        snprintf(body, sizeof body,
                 "in %%init : f64[2]\nin %%w : f64[2,2]\nin %%b : f64[2]\nconst %%n : f64[3] = [0, "
                 "0, 0]\n%%last = Scan(%%init, %%n | %%w, %%b) body=graph \"b\" {\nin %%c : "
                 "f64[2]\nin %%x : f64[]\ncapture %%m : f64[2,2]\ncapture %%d : f64[2]\n%%p = "
                 "MatMul(%%m, %%c) @p\n%%q = Add(%%p, %%d) @q\n%%u = Tanh(%%q) @u\nout %%u\n} "
                 "num_scan_inputs=1 checkpoints=%d @scan\nout %%last",
                 k);
        double init[2] = {0.4, -0.3}, w[4] = {0.9, -0.5, 0.3, 1.1}, b[2] = {0.1, -0.2};
        double g[2] = {1, -2};
        harness_differences(body, 3, (const char *[]){"init", "w", "b"}, (double *[]){init, w, b},
                            g, 1e-7);
    }
}

/* The gradient of a scan where parts of the forward pass are computed again. */
static void scans_between_checkpoints(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    static const char body[] =
        "in %x : f64[2]\nin %xs : f64[3,2]\n%e = Exp(%x) @e\n%i = Sin(%e) @i\n%last = Scan(%i, "
        "%xs) "
        "body=graph \"b\" {\nin %c : f64[2]\nin %t : f64[2]\n%m = Mul(%c, %t) @m\n%u = Tanh(%m) "
        "@u\nout %u\n} num_scan_inputs=1 @scan\n%l = Mul(%last, %e) @l\n%k = Cos(%l) @k\n%loss = "
        "ReduceSum(%k) keepdims=0 @loss\nout %loss";
    const double x[2] = {0.3, -0.4}, xs[6] = {1.2, 0.7, -0.9, 1.5, 0.8, 1.1};
    const char *names[2] = {"x", "xs"}, *marks[1] = {"l"};
    ir_tensor *got[2];
    for (int k = 0; k < 2; k++) {
        tacit_error err = {0};
        ir_graph *g = harness_graph(&a, body);
        diff_grad_options o = {
            .ones_seed = true, .checkpoints = marks, .n_checkpoints = (uint32_t)k};
        if (diff_grad(g, 2, names, &o, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        const ir_tensor *in[2] = {harness_tensor(&a, &g->inputs.data[0]->type, x),
                                  harness_tensor(&a, &g->inputs.data[1]->type, xs)};
        got[k] = harness_run(&a, g, in);
    }
    for (int o = 0; o < 2; o++)
        for (int64_t i = 0; i < ir_tensor_count(&got[0][o]); i++)
            harness_near(names[o], harness_at(&got[1][o], i), harness_at(&got[0][o], i), 1e-14);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loops_of_known_length),
        cmocka_unit_test(branches),
        cmocka_unit_test(tangents_of_branches),
        cmocka_unit_test(H11_hessian_vector_products),
        cmocka_unit_test(H11_jacobian_by_vmap_of_jvp),
        cmocka_unit_test(gradients_of_gradients),
        cmocka_unit_test(vmap_of_grad_of_scan),
        cmocka_unit_test(H10_learning),
        cmocka_unit_test(H14_odd_f32_carry),
        cmocka_unit_test(H15_outer_values),
        cmocka_unit_test(scans_between_checkpoints),
    };
    return cmocka_run_group_tests_name("transforms of transforms", tests, NULL, NULL);
}
