/* SPDX-License-Identifier: Apache-2.0
 * Acceptance cases T29 to T41: scans, their gradients in full and from checkpoints, and batches of
 * them. All in double. */
#include <math.h>

#include "diff/harness.h"

enum { MOST = 8 };

static ir_tensor *run(arena *a, const ir_graph *g, const double *const *data)
{
    const ir_tensor *all[MOST];
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        const ir_type *type = &g->inputs.data[i]->type;
        ir_tensor *t = ir_tensor_new(a, type->dtype, &type->shape);
        memcpy(t->data, data[i], t->bytes);
        all[i] = t;
    }
    return harness_run(a, g, all);
}

static ir_graph *grad_of(arena *a, const char *body, uint32_t n, const char *const *wrt)
{
    tacit_error err = {0};
    ir_graph *g = harness_graph(a, body);
    if (diff_grad(g, n, wrt, &(diff_grad_options){.with_loss = true}, &err) != TACIT_OK)
        fail_msg("%s in\n%s", err.message, body);
    return g;
}

static const double one[1] = {1};

/* Gradients of all named inputs against central differences. */
static void against_differences(arena *a, const char *body, uint32_t n, const char *const *wrt,
                                double *const *data)
{
    ir_graph *plain = harness_graph(a, body), *g = grad_of(a, body, n, wrt);
    const double *with_seed[MOST];
    for (uint32_t i = 0; i < plain->inputs.count; i++)
        with_seed[i] = data[i];
    with_seed[plain->inputs.count] = one;
    ir_tensor *got = run(a, g, with_seed);
    for (uint32_t w = 0; w < n; w++) {
        double *x = data[harness_input(plain, wrt[w])];
        for (int64_t i = 0; i < ir_tensor_count(&got[1 + w]); i++) {
            double keep = x[i], side[2];
            for (int k = 0; k < 2; k++) {
                x[i] = keep + (k ? 1e-6 : -1e-6);
                side[k] = harness_at(&run(a, plain, (const double *const *)data)[0], 0);
            }
            x[i] = keep;
            harness_near(wrt[w], harness_at(&got[1 + w], i), (side[1] - side[0]) / 2e-6, 1e-7);
        }
    }
}

/* Backward-Euler matrices: diagonal 1 + 2dt, off-diagonals −dt. */
#define HEAT_3 "const %M : f64[3,3] = [1.2, -0.1, 0, -0.1, 1.2, -0.1, 0, -0.1, 1.2]\n"
#define HEAT_4                                                                                     \
    "const %M : f64[4,4] = [1.1, -0.05, 0, 0, -0.05, 1.1, -0.05, 0, 0, -0.05, 1.1, -0.05, 0, 0, "  \
    "-0.05, 1.1]\n"
#define SUM "%loss = ReduceSum(%last) keepdims=0 @loss\nout %loss"

static void T29_T30_carries_and_xs(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_graph *g =
        harness_graph(&a, "in %init : f64[3]\nconst %steps : f64[10] = [0, 0, 0, 0, 0, 0, 0, 0, 0, "
                          "0]\n%last = Scan(%init, %steps) body=graph \"b\" {\nin %c : f64[3]\nin "
                          "%x : f64[]\nconst %k : f64[] = [0.1]\n%m = Mul(%c, %k) @m\n%n = Add(%c, "
                          "%m) @n\nout %n\n} num_scan_inputs=1 @scan\nout %last");
    double grown[3];
    for (int i = 0; i < 3; i++)
        grown[i] = pow(1.1, 10);
    harness_all_near("growth", &run(&a, g, (const double *[]){(double[]){1, 1, 1}})[0], grown,
                     1e-12);
    g = harness_graph(
        &a, "in %init : f64[3]\nin %xs : f64[4,3]\n%last = Scan(%init, %xs) body=graph \"b\" "
            "{\nin %c : f64[3]\nin %x : f64[3]\n%n = Add(%c, %x) @n\nout %n\n} "
            "num_scan_inputs=1 @scan\nout %last");
    const double zero[3] = {0}, xs[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    harness_all_near("sum", &run(&a, g, (const double *[]){zero, xs})[0], (double[]){22, 26, 30},
                     1e-12);
    arena_free(&a);
}

#define IMPLICIT(STEPS)                                                                            \
    HEAT_3 "in %init : f64[3]\nin %xs : f64[" STEPS ",3]\n%last = Scan(%init, %xs | %M) "          \
           "body=graph \"b\" {\nin %c : f64[3]\nin %x : f64[3]\ncapture %A : f64[3,3]\n%s = "      \
           "Add(%c, %x) @s\n%n = tacit.Solve(%A, %s) @n\nout %n\n} num_scan_inputs=1 @scan\n"

static void T31_implicit_steps(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = harness_graph(&a, IMPLICIT("4") "out %last");
    const double zero[3] = {0}, xs[12] = {1};
    harness_all_near("last", &run(&a, g, (const double *[]){zero, xs})[0],
                     (double[]){0.5174266431521038, 0.17236167886728943, 0.035173556732350814},
                     1e-12);
    arena_free(&a);
}

#define HEAT_SCAN(STEPS, ZEROS)                                                                    \
    HEAT_4 "in %init : f64[4]\nconst %steps : f64[" STEPS "] = [" ZEROS "]\n%last, %all = "        \
           "Scan(%init, %steps | %M) body=graph \"b\" {\nin %c : f64[4]\nin %x : f64[]\ncapture "  \
           "%A : f64[4,4]\n%n = tacit.Solve(%A, %c) @n\nout %n\nout %n\n} num_scan_inputs=1 "      \
           "@scan\n"

static void T32_T33_trajectory(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = harness_graph(&a, HEAT_SCAN("5", "0, 0, 0, 0, 0") "out %last\nout %all");
    const double init[4] = {0, 1, 0, 0};
    ir_tensor *got = run(&a, g, (const double *[]){init});
    const double last[4] = {0.14527740646990076, 0.6603510387571524, 0.14736458353847837,
                            0.019809376942063996};
    const double sums[5] = {.9978308026, .9937841437, .9881172289, .9810567449, .9728024057};
    harness_all_near("last", &got[0], last, 1e-12);
    for (int i = 0; i < 4; i++)
        harness_near("last row", harness_at(&got[1], 16 + i), harness_at(&got[0], i), 1e-15);
    const double first[4] = {0.04149395416765104, 0.9128669916883229, 0.041579862975451555,
                             0.0018899937716114344};
    for (int i = 0; i < 4; i++)
        harness_near("first row", harness_at(&got[1], i), first[i], 1e-12);
    for (int t = 0; t < 5; t++)
        harness_near("row sum",
                     harness_at(&got[1], 4 * t) + harness_at(&got[1], 4 * t + 1) +
                         harness_at(&got[1], 4 * t + 2) + harness_at(&got[1], 4 * t + 3),
                     sums[t], 1e-9);
    arena_free(&a);
}

/* c·k for six steps, each with its own factor drawn from the carry itself when `bent`. */
static const char *geometric(arena *a, int steps, const char *attrs, bool bent)
{
    char zeros[4000] = "";
    for (int i = 0; i < steps; i++)
        strcpy(zeros + (i ? 3 * i - 2 : 0), i ? ", 0" : "0");
    return arena_printf(a,
                        "in %%init : f64[2]\nconst %%steps : f64[%d] = [%s]\n%%last = Scan(%%init, "
                        "%%steps) body=graph \"b\" {\nin %%c : f64[2]\nin %%x : f64[]\nconst %%k : "
                        "f64[] = [1.05]\n%%m = Mul(%%c, %%k) @m\n%%s = Sin(%%m) @s\nout %%%s\n} "
                        "num_scan_inputs=1 %s @scan\n%s",
                        steps, zeros, bent ? "s" : "m", attrs, SUM);
}

static void T34_gradient_of_growth(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    double init[3] = {1, 1, 1};
    const char *wrt = "init";
    const char *body =
        "in %init : f64[3]\nconst %steps : f64[5] = [0, 0, 0, 0, 0]\n%last = Scan(%init, %steps) "
        "body=graph \"b\" {\nin %c : f64[3]\nin %x : f64[]\nconst %k : f64[] = [1.1]\n%m = "
        "Mul(%c, %k) @m\nout %m\n} num_scan_inputs=1 @scan\n" SUM;
    ir_graph *g = grad_of(&a, body, 1, &wrt);
    assert_int_equal(g->outputs.count, 2);
    ir_tensor *got = run(&a, g, (const double *[]){init, one});
    for (int i = 0; i < 3; i++)
        harness_near("d init", harness_at(&got[1], i), 1.61051, 1e-12);
    against_differences(&a, body, 1, &wrt, (double *[]){init});
    arena_free(&a);
}

static void T35_gradient_of_heat(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    double init[4] = {0, 1, 0, 0};
    const char *wrt = "init", *body = HEAT_SCAN("3", "0, 0, 0") SUM;
    against_differences(&a, body, 1, &wrt, (double *[]){init});
    ir_tensor *got = run(&a, grad_of(&a, body, 1, &wrt), (const double *[]){init, one});
    harness_all_near(
        "d init", &got[1],
        (double[]){0.8747789334198858, 0.9881172289101128, 0.9881172289101128, 0.8747789334198858},
        1e-10);
    arena_free(&a);
}

static void T36_T37_gradient_in_xs(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    double init[3] = {.5, 0, -.5}, xs[9];
    for (int i = 0; i < 9; i++)
        xs[i] = 0.1 * (i - 4);
    const char *wrt[2] = {"init", "xs"}, *body = IMPLICIT("3") SUM;
    against_differences(&a, body, 2, wrt, (double *[]){init, xs});
    ir_tensor *got = run(&a, grad_of(&a, body, 2, wrt), (const double *[]){init, xs, one});
    harness_near("loss", harness_at(&got[0], 0), 0.09739851527335008, 1e-10);
    const double d[9] = {0.7802218987401895, 0.9317958933924915, 0.7802218987401895,
                         0.8430866891489783, 0.9621106923229518, 0.8430866891489783,
                         0.9154929577464789, 0.9859154929577465, 0.9154929577464789};
    harness_all_near("d init", &got[1], d, 1e-10);
    harness_all_near("d xs", &got[2], d, 1e-10);
    /* Outer values get the sum over all steps. */
    char outer[512];
    snprintf(outer, sizeof outer, "in %%M : f64[3,3]\n%s", body + strlen(HEAT_3));
    double m[9] = {1.2, -.1, 0, -.1, 1.2, -.1, 0, -.1, 1.2};
    against_differences(&a, outer, 3, (const char *[]){"M", "init", "xs"},
                        (double *[]){m, init, xs});
    arena_free(&a);
}

static void T38_checkpoints(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    double init[2] = {.5, -.5};
    const char *wrt = "init";
    for (int bent = 0; bent < 2; bent++) { /* H3: a Jacobian that depends on the carry */
        ir_tensor *full = run(&a, grad_of(&a, geometric(&a, 6, "", bent), 1, &wrt),
                              (const double *[]){init, one});
        for (int k = 1; k <= 6; k++) {
            char attr[32];
            snprintf(attr, sizeof attr, "checkpoints=%d", k);
            ir_tensor *got = run(&a, grad_of(&a, geometric(&a, 6, attr, bent), 1, &wrt),
                                 (const double *[]){init, one});
            harness_near("loss", harness_at(&got[0], 0), harness_at(&full[0], 0), 1e-12);
            for (int i = 0; i < 2; i++)
                harness_near("d init", harness_at(&got[1], i), harness_at(&full[1], i), 1e-12);
        }
    }
    harness_near("closed form",
                 harness_at(&run(&a, grad_of(&a, geometric(&a, 6, "checkpoints=2", false), 1, &wrt),
                                 (const double *[]){init, one})[1],
                            0),
                 1.3400956406250004, 1e-12);
    /* Steps in unequal pieces, with per-step outputs. */
    const char *pieces =
        "in %init : f64[2]\nin %xs : f64[7,2]\n%last, %all = Scan(%init, %xs) body=graph \"b\" "
        "{\nin %c : f64[2]\nin %x : f64[2]\n%m = Mul(%c, %x) @m\n%s = Sin(%m) @s\n%n = Add(%c, %s) "
        "@n\nout %n\nout %s\n} num_scan_inputs=1 checkpoints=3 @scan\n%sq = Mul(%all, %all) "
        "@sq\n%p = ReduceSum(%sq) keepdims=0 @p\n%q = ReduceSum(%last) keepdims=0 @q\n%loss = "
        "Add(%p, %q) @l\nout %loss";
    double xs[14];
    for (int i = 0; i < 14; i++)
        xs[i] = 0.3 * sin(i + 1);
    against_differences(&a, pieces, 2, (const char *[]){"init", "xs"}, (double *[]){init, xs});
    tacit_error err = {0};
    ir_graph *g = harness_graph(&a, geometric(&a, 6, "checkpoints=7", false));
    assert_int_equal(diff_grad(g, 1, &wrt, &(diff_grad_options){0}, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "7 checkpoints for 6 steps"));
    g = harness_graph(&a, geometric(&a, 6, "checkpoints=-1", false));
    assert_int_equal(diff_grad(g, 1, &wrt, &(diff_grad_options){0}, &err), TACIT_ERR_ARGUMENT);
    arena_free(&a);
}

/* A cotangent for every step, in full and from two checkpoints. */
static void T39_upstream_per_step(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double init[2] = {.5, -.5};
    double upstream[8];
    for (int i = 0; i < 8; i++)
        upstream[i] = 0.1 * i;
    const char *wrt = "init";
    for (int k = 0; k < 3; k++) {
        char body[512];
        snprintf(body, sizeof body,
                 "in %%init : f64[2]\nconst %%steps : f64[4] = [0, 0, 0, 0]\n%%last, %%all = "
                 "Scan(%%init, %%steps) body=graph \"b\" {\nin %%c : f64[2]\nin %%x : f64[]\nconst "
                 "%%k : f64[] = [1.0]\n%%n = Add(%%c, %%k) @n\nout %%n\nout %%n\n} "
                 "num_scan_inputs=1 checkpoints=%d @scan\nout %%all",
                 k);
        ir_tensor *got = run(&a, grad_of(&a, body, 1, &wrt), (const double *[]){init, upstream});
        harness_all_near("trajectory", &got[0], (double[]){1.5, .5, 2.5, 1.5, 3.5, 2.5, 4.5, 3.5},
                         1e-12);
        harness_all_near("d init", &got[1], (double[]){1.2, 1.6}, 1e-12);
    }
    arena_free(&a);
}

/* c + 0.1·c²: the Jacobian depends on the carry, so a wrong stored carry shows. */
static const char *bent_body(arena *a, int n, int steps, const char *attrs)
{
    char zeros[128] = "";
    for (int i = 0; i < steps; i++)
        strcat(zeros, i ? ", 0" : "0");
    return arena_printf(
        a,
        "in %%init : f64[%d]\nconst %%steps : f64[%d] = [%s]\n%%last = Scan(%%init, %%steps) "
        "body=graph \"b\" {\nin %%c : f64[%d]\nin %%x : f64[]\nconst %%k : f64[] = [0.1]\n%%q = "
        "Mul(%%c, %%c) @q\n%%s = Mul(%%q, %%k) @s\n%%n = Add(%%c, %%s) @n\nout %%n\n} "
        "num_scan_inputs=1 %s @scan\n%s",
        n, steps, zeros, n, attrs, SUM);
}

/* A checkpointed scan that sized its carry by the number of steps would loop half of it. */
static void H3_E5_checkpointed_carry(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double init[2] = {.5, -.5};
    const char *wrt = "init";
    for (int recursive = 0; recursive < 2; recursive++)
        for (int k = 0; k <= 6; k++) {
            char attrs[64] = "";
            if (k)
                snprintf(attrs, sizeof attrs, "checkpoints=%d recursive=%d", k, recursive);
            ir_tensor *got = run(&a, grad_of(&a, bent_body(&a, 2, 6, attrs), 1, &wrt),
                                 (const double *[]){init, one});
            harness_near("loss", harness_at(&got[0], 0), 0.31757503135095555, 1e-12);
            harness_all_near("d init", &got[1], (double[]){1.9151433621215226, 0.5716530808996244},
                             1e-12);
        }
    /* What is kept between two pieces. */
    ir_graph *g = grad_of(&a, bent_body(&a, 2, 6, "checkpoints=2"), 1, &wrt);
    for (uint32_t i = 0, found = 0; i < g->nodes.count && found < 2; i++)
        if (diff_is_scan(g->nodes.data[i]) && g->outputs.count < 8) {
            g->outputs.data[found ? 0 : 1] = g->nodes.data[i]->outputs[0];
            found++;
        }
    ir_tensor *kept = run(&a, g, (const double *[]){init, one});
    harness_all_near("carry after 3", &kept[1], (double[]){0.583095031640625, -0.431967530859375},
                     1e-12);
    harness_all_near("carry after 6", &kept[0],
                     (double[]){0.6981011505323309, -0.38052611918137536}, 1e-12);
    ir_tensor *deep =
        run(&a, grad_of(&a, bent_body(&a, 1, 20, "checkpoints=1 recursive=1"), 1, &wrt),
            (const double *[]){init, one});
    harness_near("final", harness_at(&deep[0], 0), 4.776334010494816, 1e-11);
    harness_near("d init", harness_at(&deep[1], 0), 68.10920405579886, 68 * 1e-12);
    arena_free(&a);
}

static void H4_xs_that_bend(void **state)
{
    (void)state;
    const double init[1] = {.5}, xs[5] = {1.1, .9, 1.2, .8, 1.0};
    const double carries[5] = {.575, .5505625, .690986906640625, .600535815827378,
                               .6366001424365235};
    const double dxs[5] = {.6987123633374922, .7916445495942029, .5785760049128982,
                           .7739793837817178, .600535815827378};
    for (int k = 0; k <= 4; k++) {
        arena a;
        arena_init(&a, NULL);
        const char *body = arena_printf(
            &a,
            "in %%init : f64[1]\nin %%xs : f64[5]\n%%last, %%all = Scan(%%init, %%xs) body=graph "
            "\"b\" {\nin %%c : f64[1]\nin %%x : f64[]\nconst %%k : f64[] = [0.1]\n%%m = Mul(%%c, "
            "%%x) @m\n%%q = Mul(%%c, %%c) @q\n%%s = Mul(%%q, %%k) @s\n%%n = Add(%%m, %%s) @n\nout "
            "%%n\nout %%n\n} num_scan_inputs=1 checkpoints=%d @scan\n%s",
            k, SUM);
        ir_graph *plain = harness_graph(&a, body);
        plain->outputs.data[0] = plain->nodes.data[0]->outputs[1];
        harness_all_near("carries", run(&a, plain, (const double *[]){init, xs}), carries, 1e-12);
        ir_tensor *got = run(&a, grad_of(&a, body, 2, (const char *[]){"init", "xs"}),
                             (const double *[]){init, xs, one});
        harness_near("d init", harness_at(&got[1], 0), 1.6769096720099816, 1e-12);
        harness_all_near("d xs", &got[2], dxs, 1e-12);
        arena_free(&a);
    }
}

/* Only the carries between the pieces stay alive: no value of the forward part has one row per
 * step. */
static void checkpoints_keep_few_carries(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const char *wrt = "init";
    ir_graph *g = grad_of(&a, geometric(&a, 6, "checkpoints=3", true), 1, &wrt);
    uint32_t scans = 0, recorded = 0;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        if (!diff_is_scan(n))
            continue;
        scans++;
        for (uint32_t k = 0; k < n->n_outputs; k++)
            if (n->outputs[k]->type.shape.rank == 2) {
                recorded++;
                assert_true(n->outputs[k]->type.shape.dims[0] < 2);
            }
    }
    assert_int_equal(scans, 9); /* forward, again and back, for each of three pieces */
    assert_int_equal(recorded, 3);
    arena_free(&a);
}

/* H7. Forward steps that the gradient of one recursive piece runs: T(s) = s − 1 up to four, then
 * ⌊s/2⌋ + T(⌈s/2⌉) + T(⌊s/2⌋). */
static void H7_recursive_gradients(void **state)
{
    (void)state;
    static const int64_t runs[][2] = {{1, 0},   {4, 3},   {5, 5},    {6, 7},     {8, 10},
                                      {16, 28}, {32, 72}, {64, 176}, {100, 312}, {1000, 4700}};
    double init[2] = {.5, -.3};
    const char *wrt = "init";
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) {
        arena a;
        arena_init(&a, NULL);
        ir_graph *g =
            grad_of(&a, geometric(&a, (int)runs[r][0], "checkpoints=1 recursive=1", true), 1, &wrt);
        int64_t steps = 0;
        for (uint32_t i = 0; i < g->nodes.count; i++) {
            const ir_node *n = g->nodes.data[i];
            uint32_t count;
            if (diff_is_scan(n) && !ir_attr_ints(n, "scan_input_directions", &count))
                steps += n->inputs[1]->type.shape.dims[0];
        }
        assert_int_equal(steps, runs[r][0] + runs[r][1]);
        if (runs[r][0] > 100) {
            arena_free(&a);
            continue;
        }
        ir_tensor *got = run(&a, g, (const double *[]){init, one});
        ir_tensor *full = run(&a, grad_of(&a, geometric(&a, (int)runs[r][0], "", true), 1, &wrt),
                              (const double *[]){init, one});
        for (int i = 0; i < 2; i++)
            harness_near("d init", harness_at(&got[1], i), harness_at(&full[1], i), 1e-12);
        arena_free(&a);
    }
    arena a;
    arena_init(&a, NULL);
    const char *body =
        "in %init : f64[2]\nin %w : f64[2]\nin %xs : f64[11,2]\n%last, %all = Scan(%init, %xs | "
        "%w) body=graph \"b\" {\nin %c : f64[2]\nin %x : f64[2]\ncapture %v : f64[2]\n%m = "
        "Mul(%c, %x) @m\n%s = Sin(%m) @s\n%t = Mul(%s, %v) @t\n%n = Add(%c, %t) @n\nout %n\nout "
        "%s\n} num_scan_inputs=1 checkpoints=2 recursive=1 @scan\n%sq = Mul(%all, %all) @sq\n%p = "
        "ReduceSum(%sq) keepdims=0 @p\n%q = ReduceSum(%last) keepdims=0 @q\n%loss = Add(%p, %q) "
        "@l\nout %loss";
    double xs[22], w[2] = {.7, -1.2};
    for (int i = 0; i < 22; i++)
        xs[i] = 0.4 * cos(i);
    against_differences(&a, body, 3, (const char *[]){"init", "w", "xs"},
                        (double *[]){init, w, xs});
    arena_free(&a);
}

static void tangents_of_scans(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    double init[3] = {.5, .1, -.5}, xs[9], tangent[9], h = 1e-6;
    for (int i = 0; i < 9; i++) {
        xs[i] = 0.1 * (i - 4);
        tangent[i] = 0.2 * cos(i);
    }
    const char *body =
        "in %init : f64[3]\nin %xs : f64[3,3]\n%last, %all = Scan(%init, %xs) body=graph \"b\" "
        "{\nin %c : f64[3]\nin %x : f64[3]\n%m = Mul(%c, %x) @m\n%n = Sin(%m) @s\n%o = Add(%n, %c) "
        "@o\nout %o\nout %n\n} num_scan_inputs=1 @scan\n%e = Exp(%all) @e\n%f = Mul(%e, %last) "
        "@f\nout %f";
    ir_graph *g = harness_graph(&a, body), *plain = harness_graph(&a, body);
    const char *wrt = "xs";
    if (diff_jvp(g, 1, &wrt, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    ir_tensor *got = run(&a, g, (const double *[]){init, xs, tangent});
    double up[9], down[9];
    for (int i = 0; i < 9; i++) {
        up[i] = xs[i] + h * tangent[i];
        down[i] = xs[i] - h * tangent[i];
    }
    ir_tensor *high = run(&a, plain, (const double *[]){init, up});
    ir_tensor *low = run(&a, plain, (const double *[]){init, down});
    for (int i = 0; i < 9; i++)
        harness_near("tangent", harness_at(&got[1], i),
                     (harness_at(high, i) - harness_at(low, i)) / (2 * h), 1e-7);
    arena_free(&a);
}

static void T40_vmap_of_gradient_of_scan(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    const char *wrt = "init";
    const char *body =
        "in %init : f64[2]\nconst %steps : f64[3] = [0, 0, 0]\n%last = Scan(%init, "
        "%steps) body=graph \"b\" {\nin %c : f64[2]\nin %x : f64[]\nconst %k : f64[] "
        "= [1.0]\n%n = Add(%c, %k) @n\nout %n\n} num_scan_inputs=1 @scan\n" SUM;
    ir_graph *g = grad_of(&a, body, 1, &wrt);
    if (diff_vmap(g, 1, &wrt, 3, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    const double init[6] = {0, .5, 1, 1.5, 2, 2.5};
    ir_tensor *got = run(&a, g, (const double *[]){init, one});
    harness_all_near("d init", &got[1], (double[]){1, 1, 1, 1, 1, 1}, 1e-12);
    for (int k = 0; k < 3; k++)
        harness_near("loss", harness_at(&got[0], k), init[2 * k] + init[2 * k + 1] + 6, 1e-12);
    g = grad_of(&a, geometric(&a, 4, "", true), 1, &wrt); /* a Jacobian that differs per entry */
    ir_graph *single = grad_of(&a, geometric(&a, 4, "", true), 1, &wrt);
    if (diff_vmap(g, 1, &wrt, 3, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    got = run(&a, g, (const double *[]){init, one});
    for (int k = 0; k < 3; k++) {
        ir_tensor *want = run(&a, single, (const double *[]){init + 2 * k, one});
        for (int i = 0; i < 2; i++)
            harness_near("entry", harness_at(&got[1], 2 * k + i), harness_at(&want[1], i), 1e-12);
    }
    arena_free(&a);
}

static void T41_vmap_of_scan(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g =
        harness_graph(&a, "in %init : f64[2]\nin %xs : f64[4,2]\n%last, %all = Scan(%init, %xs) "
                          "body=graph \"b\" {\nin %c : f64[2]\nin %x : f64[2]\n%n = Add(%c, %x) "
                          "@n\nout %n\nout %n\n} num_scan_inputs=1 @scan\nout %last\nout %all");
    if (diff_vmap(g, 2, (const char *[]){"init", "xs"}, 3, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    double xs[24], init[6];
    for (int i = 0; i < 24; i++)
        xs[i] = 0.1 * i;
    for (int i = 0; i < 6; i++)
        init[i] = i + 1;
    ir_tensor *got = run(&a, g, (const double *[]){init, xs});
    harness_all_near("last", &got[0], (double[]){2.2, 3.6, 7.4, 8.8, 12.6, 14.0}, 1e-12);
    for (int k = 0; k < 3; k++) /* [entry, time, 2]: the last row is the last carry */
        for (int i = 0; i < 2; i++)
            harness_near("row", harness_at(&got[1], 8 * k + 6 + i), harness_at(&got[0], 2 * k + i),
                         1e-12);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T29_T30_carries_and_xs),
        cmocka_unit_test(T31_implicit_steps),
        cmocka_unit_test(T32_T33_trajectory),
        cmocka_unit_test(T34_gradient_of_growth),
        cmocka_unit_test(T35_gradient_of_heat),
        cmocka_unit_test(T36_T37_gradient_in_xs),
        cmocka_unit_test(T38_checkpoints),
        cmocka_unit_test(T39_upstream_per_step),
        cmocka_unit_test(H3_E5_checkpointed_carry),
        cmocka_unit_test(H4_xs_that_bend),
        cmocka_unit_test(checkpoints_keep_few_carries),
        cmocka_unit_test(H7_recursive_gradients),
        cmocka_unit_test(tangents_of_scans),
        cmocka_unit_test(T40_vmap_of_gradient_of_scan),
        cmocka_unit_test(T41_vmap_of_scan),
    };
    return cmocka_run_group_tests_name("scans under the transforms", tests, NULL, NULL);
}
