/* SPDX-License-Identifier: Apache-2.0
 * Acceptance cases of the transforms, T13 to T53: derivatives of single ops, gradients through
 * linear solves, batching, and whole small networks. */
#include <math.h>

#include "diff/harness.h"

/* --- single ops ------------------------------------------------------------------------------- */

static void T13_relu(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double x[7] = {-2, -0.1, 0, 0.1, 1, 3, -5}, dy[7] = {.5, 1.5, 2.5, -.7, 4, -1, 9};
    const double want[7] = {0, 0, 0, -.7, 4, -1, 0};
    ir_tensor *got = harness_grad(&a, "in %x : f32[7]\n%y = Relu(%x) @y\nout %y", 1,
                                  (const char *[]){"x"}, (const double *[]){x}, dy);
    harness_all_near("dx", &got[1], want, 1e-6);
    arena_free(&a);
}

static void T14_max_pool(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    double x[16], want[16] = {[5] = .5, [7] = 1, [13] = 2, [15] = 4};
    const double dy[4] = {.5, 1, 2, 4};
    for (int i = 0; i < 16; i++)
        x[i] = i + 1;
    ir_tensor *got = harness_grad(
        &a, "in %x : f32[1,1,4,4]\n%y = MaxPool(%x) kernel_shape=[2, 2] strides=[2, 2] @y\nout %y",
        1, (const char *[]){"x"}, (const double *[]){x}, dy);
    harness_all_near("dx", &got[1], want, 1e-6);
    arena_free(&a);
}

static void T15_T16_conv(void **state)
{
    (void)state;
    double x[64], w[54], dy[48];
    splitmix s = {7};
    harness_fill(&s, x, 32, 1), harness_fill(&s, w, 54, 1), harness_fill(&s, dy, 48, 1);
    harness_differences("in %x : f32[1,2,4,4]\nin %w : f32[3,2,3,3]\n%y = Conv(%x, %w) pads=[1, 1, "
                        "1, 1] @y\nout %y",
                        1, (const char *[]){"x"}, (double *[]){x, w}, dy, 5e-3);
    s.state = 11;
    harness_fill(&s, x, 64, 1), harness_fill(&s, w, 36, 1), harness_fill(&s, dy, 16, 1);
    harness_differences("in %x : f32[2,2,4,4]\nin %w : f32[2,2,3,3]\n%y = Conv(%x, %w) @y\nout %y",
                        1, (const char *[]){"w"}, (double *[]){x, w}, dy, 5e-3);
}

static void H9_conv_strides_dilations_groups(void **state)
{
    (void)state;
    double x[64], w[32], dy[24];
    splitmix s = {11};
    harness_fill(&s, x, 64, 1), harness_fill(&s, w, 32, 1), harness_fill(&s, dy, 24, 1);
    const char *wrt[2] = {"x", "w"};
    harness_differences("in %x : f32[1,4,4,4]\nin %w : f32[4,2,2,2]\n%y = Conv(%x, %w) strides=[2, "
                        "1] dilations=[1, 2] group=2 pads=[0, 1, 1, 0] @y\nout %y",
                        2, wrt, (double *[]){x, w}, dy, 5e-3);
    harness_differences("in %x : f64[1,4,4,4]\nin %w : f64[4,2,2,2]\n%y = Conv(%x, %w) strides=[2, "
                        "2] dilations=[2, 2] group=2 pads=[1, 0, 0, 2] @y\nout %y",
                        2, wrt, (double *[]){x, w}, dy, 1e-7);
}

static void T17_T18_cross_entropy(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double x[9] = {1, 2, 3, -1, 0, 4, 5, 5, 5};
    const double want[3] = {0.4076059644, 5.0247448901, 1.0986122887};
    const char *body = "in %x : f32[3,3]\nconst %t : i64[3] = [2, 0, 1]\n%y = "
                       "SoftmaxCrossEntropyLoss(%x, %t) reduction=\"none\" @y\nout %y";
    ir_tensor *got = harness_grad(&a, body, 1, (const char *[]){"x"}, (const double *[]){x}, NULL);
    harness_all_near("loss", &got[0], want, 1e-5);
    arena_free(&a);
    double logits[20], dy[4];
    splitmix s = {23};
    harness_fill(&s, logits, 20, 1), harness_fill(&s, dy, 4, 1);
    harness_differences("in %x : f32[4,5]\nconst %t : i64[4] = [0, 1, 2, 3]\n%y = "
                        "SoftmaxCrossEntropyLoss(%x, %t) reduction=\"none\" @y\nout %y",
                        1, (const char *[]){"x"}, (double *[]){logits}, dy, 5e-3);
}

/* One activation in f32 and, with the tolerance of doubles, in f64. */
static void one_activation(const char *call, double *x, double *dy)
{
    char body[200];
    const char *dtypes[2] = {"f32", "f64"};
    for (int d = 0; d < 2; d++) {
        snprintf(body, sizeof body, "in %%x : %s[32]\n%s @y\nout %%y", dtypes[d], call);
        harness_differences(body, 1, (const char *[]){"x"}, (double *[]){x}, dy, d ? 1e-7 : 5e-4);
    }
}

static void T19_activations(void **state)
{
    (void)state;
    static const char *const any[] = {"%y = Sigmoid(%x)",
                                      "%y = Tanh(%x)",
                                      "%y = Swish(%x)",
                                      "%y = Gelu(%x)",
                                      "%y = Gelu(%x) approximate=\"tanh\"",
                                      "%y = Exp(%x)",
                                      "%y = Neg(%x)",
                                      "%y = Sin(%x)",
                                      "%y = Cos(%x)",
                                      "%y = Atan(%x)"};
    static const char *const positive[] = {"%y = Log(%x)", "%y = Sqrt(%x)",
                                           "%r = Sqrt(%x) @r\n%y = Reciprocal(%r)", "%y = Relu(%x)",
                                           "%y = Abs(%x)"};
    double x[32], p[32], dy[32], small[32];
    splitmix s = {91};
    harness_fill(&s, p, 32, 1), harness_fill(&s, x, 32, 1), harness_fill(&s, dy, 32, 1);
    for (int i = 0; i < 32; i++) {
        p[i] = fabs(p[i]) + 0.5;
        small[i] = x[i] / 2;
    }
    for (size_t k = 0; k < sizeof any / sizeof *any; k++)
        one_activation(any[k], x, dy);
    for (size_t k = 0; k < sizeof positive / sizeof *positive; k++)
        one_activation(positive[k], p, dy);
    one_activation("%y = Tan(%x)", small, dy);
    for (int i = 0; i < 32; i++)
        p[i] = -p[i];
    one_activation("%y = Relu(%x)", p, dy);
    one_activation("%y = Abs(%x)", p, dy);
    arena a;
    arena_init(&a, NULL);
    ir_tensor *got = harness_grad(&a, "in %x : f32[32]\n%y = Round(%x) @y\nout %y", 1,
                                  (const char *[]){"x"}, (const double *[]){x}, dy);
    for (int i = 0; i < 32; i++)
        harness_near("round", harness_at(&got[1], i), (float)dy[i], 0);
    arena_free(&a);
}

/* --- linear solves ---------------------------------------------------------------------------- */

static const double A[9] = {2, 1, 0, 1, 3, 1, 0, 1, 2}, b3[3] = {1, 2, 3};
static const double B[6] = {1, 4, 2, -1, 3, 2};
static const char vector_body[] =
    "in %A : f64[3,3]\nin %b : f64[3]\n%x = tacit.Solve(%A, %b) @x\nout %x";
static const char columns_body[] =
    "in %A : f64[3,3]\nin %B : f64[3,2]\n%x = tacit.Solve(%A, %B) @x\nout %x";

static void T20_T21_solves(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_graph *g =
        harness_graph(&a, "in %A : f64[2,2]\nin %b : f64[2]\n%x = tacit.Solve(%A, %b) @x\nout %x");
    const ir_tensor *in[2] = {harness_tensor(&a, &g->inputs.data[0]->type, (double[]){2, 1, 1, 3}),
                              harness_tensor(&a, &g->inputs.data[1]->type, (double[]){5, 10})};
    harness_all_near("x", &harness_run(&a, g, in)[0], (double[]){1, 3}, 1e-12);
    double laplace[25] = {0};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 5; k++)
            laplace[5 * i + k] = i == k ? 2 : abs(i - k) == 1 ? -1 : 0;
    g = harness_graph(&a, "in %A : f64[5,5]\nin %b : f64[5]\n%x = tacit.Solve(%A, %b) @x\nout %x");
    in[0] = harness_tensor(&a, &g->inputs.data[0]->type, laplace);
    in[1] = harness_tensor(&a, &g->inputs.data[1]->type, (double[]){1, 2, 3, 4, 5});
    harness_all_near("x", &harness_run(&a, g, in)[0],
                     (double[]){35.0 / 6, 32.0 / 3, 27.0 / 2, 40.0 / 3, 55.0 / 6}, 1e-10);
    arena_free(&a);
}

static void T22_hello_resistor(void **state)
{
    (void)state;
    static const char body[] = "in %A : f64[3,3]\nin %b : f64[3]\n%x = tacit.Solve(%A, %b) @x\n"
                               "%loss = ReduceSum(%x) @s\nout %loss";
    arena a;
    arena_init(&a, NULL);
    const char *wrt[2] = {"A", "b"};
    ir_tensor *got = harness_grad(&a, body, 2, wrt, (const double *[]){A, b3}, NULL);
    harness_near("loss", harness_at(&got[0], 0), 2, 1e-10);
    harness_all_near("dA", &got[1], (double[]){-.25, 0, -.75, 0, 0, 0, -.25, 0, -.75}, 1e-10);
    harness_all_near("db", &got[2], (double[]){.5, 0, .5}, 1e-10);
    /* Not symmetric: a missing transpose shows. */
    const double skew[9] = {2, 1, 0, 0, 3, 1, 1, 0, 2};
    const double outer[9] = {20, 12, 68, 15, 9, 51, 25, 15, 85};
    got = harness_grad(&a, body, 2, wrt, (const double *[]){skew, b3}, NULL);
    harness_near("loss", harness_at(&got[0], 0), 25.0 / 13, 1e-10);
    for (int i = 0; i < 9; i++)
        harness_near("dA", harness_at(&got[1], i), -outer[i] / 169, 1e-10);
    harness_all_near("db", &got[2], (double[]){4.0 / 13, 3.0 / 13, 5.0 / 13}, 1e-10);
    arena_free(&a);
}

static void T23_T24_many_right_sides(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_tensor *got = harness_grad(&a, columns_body, 2, (const char *[]){"A", "B"},
                                  (const double *[]){A, B}, NULL);
    harness_all_near("X", &got[0], (double[]){.5, 3, 0, -2, 1.5, 2}, 1e-10);
    harness_all_near("dA", &got[1], (double[]){-1.75, 1, -1.75, 0, 0, 0, -1.75, 1, -1.75}, 1e-10);
    harness_all_near("dB", &got[2], (double[]){.5, .5, 0, 0, .5, .5}, 1e-10);
    arena_free(&a);
}

static void T25_T27_tangents(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_tensor *got = harness_jvp(&a, columns_body, "B", (const double *[]){A, B},
                                 (double[]){.5, 0, -.25, 1, 1, -.5});
    harness_all_near("tX", &got[1], (double[]){.5, -.3125, -.5, .625, .75, -.5625}, 1e-10);
    got = harness_jvp(&a, vector_body, "b", (const double *[]){A, b3}, (double[]){.5, -.25, 1});
    harness_all_near("x", &got[0], (double[]){.5, 0, 1.5}, 1e-10);
    harness_all_near("tx", &got[1], (double[]){.5, -.5, .75}, 1e-10);
    got = harness_jvp(&a, vector_body, "A", (const double *[]){A, b3},
                      (double[]){.10, -.05, .02, .03, .20, -.04, -.01, .07, .15});
    harness_all_near("tx", &got[1], (double[]){-0.08875, 0.0975, -0.15875}, 1e-10);
    arena_free(&a);
}

/* Four well-conditioned systems. */
static void draw_systems(splitmix *s, double *matrices, double *sides)
{
    for (int k = 0; k < 4; k++) {
        for (int i = 0; i < 9; i++)
            matrices[9 * k + i] = 0.1 * (double)splitmix_unit(s) + (i % 4 == 0 ? 4 : 0);
        for (int i = 0; i < 3; i++)
            sides[3 * k + i] = (double)splitmix_unit(s);
    }
}

static void T28_batched_solve(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    double matrices[36], sides[12];
    splitmix s = {0x57e1};
    draw_systems(&s, matrices, sides);
    const char *wrt[2] = {"A", "b"};
    ir_tensor *all = harness_grad(
        &a, "in %A : f64[4,3,3]\nin %b : f64[4,3]\n%x = tacit.Solve(%A, %b) @x\nout %x", 2, wrt,
        (const double *[]){matrices, sides}, NULL);
    for (int k = 0; k < 4; k++) {
        const double *slice[2] = {matrices + 9 * k, sides + 3 * k};
        ir_tensor *one = harness_grad(&a, vector_body, 2, wrt, slice, NULL);
        for (int i = 0; i < 9; i++)
            harness_near("dA", harness_at(&all[1], 9 * k + i), harness_at(&one[1], i), 1e-10);
        /* A·x = b and Aᵀ·db = 1 */
        for (int i = 0; i < 3; i++) {
            double left = 0, turned = 0;
            for (int j = 0; j < 3; j++) {
                left += slice[0][3 * i + j] * harness_at(&all[0], 3 * k + j);
                turned += slice[0][3 * j + i] * harness_at(&all[2], 3 * k + j);
            }
            harness_near("Ax", left, slice[1][i], 1e-10);
            harness_near("A'db", turned, 1, 1e-10);
        }
    }
    arena_free(&a);
}

/* --- batching --------------------------------------------------------------------------------- */

static ir_tensor *run_vmap(arena *a, const char *body, uint32_t n, const char *const *names,
                           int64_t size, const double *const *data)
{
    tacit_error err = {0};
    ir_graph *g = harness_graph(a, body);
    if (diff_vmap(g, n, names, size, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    const ir_tensor *all[HARNESS_MOST];
    for (uint32_t i = 0; i < g->inputs.count; i++)
        all[i] = harness_tensor(a, &g->inputs.data[i]->type, data[i]);
    return harness_run(a, g, all);
}

static void T42_vmap_of_solve(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    double matrices[36], sides[12];
    splitmix s = {0xb47c};
    draw_systems(&s, matrices, sides);
    ir_tensor *got = run_vmap(&a, vector_body, 2, (const char *[]){"A", "b"}, 4,
                              (const double *[]){matrices, sides});
    for (int k = 0; k < 12; k++) {
        double left = 0;
        for (int j = 0; j < 3; j++)
            left += matrices[3 * k + j] * harness_at(&got[0], k / 3 * 3 + j);
        harness_near("Ax", left, sides[k], 1e-12);
    }
    arena_free(&a);
}

static void T43_vmap_of_dense(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    double w[9], b[3], x[12];
    splitmix s = {0xc1c0};
    for (int i = 0; i < 24; i++)
        *(i < 9 ? &w[i] : i < 12 ? &b[i - 9] : &x[i - 12]) = (double)splitmix_unit(&s);
    ir_tensor *got =
        run_vmap(&a,
                 "in %x : f64[3]\nin %w : f64[3,3]\nin %b : f64[3]\nconst %r : i64[2] = [1, 3]\n"
                 "const %f : i64[1] = [3]\nconst %z : i64[1] = [0]\n%m = Reshape(%x, %r) @m\n%p = "
                 "MatMul(%m, %w) @p\n%q = Reshape(%p, %f) @q\n%t = Add(%q, %b) @t\n%y = "
                 "ReduceSum(%t, %z) keepdims=1 @y\nout %y",
                 1, (const char *[]){"x"}, 4, (const double *[]){x, w, b});
    for (int k = 0; k < 4; k++) {
        double sum = 0;
        for (int j = 0; j < 3; j++) {
            sum += b[j];
            for (int i = 0; i < 3; i++)
                sum += x[3 * k + i] * w[3 * i + j];
        }
        harness_near("row", harness_at(&got[0], k), sum, 1e-12);
    }
    arena_free(&a);
}

/* Batched indices, and no copies of nodes per entry. */
static void vmap_of_lookups(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double table[8] = {0, 1, 2, 3, 4, 5, 6, 7}, index[4] = {2, 0, 1, 3};
    const char *name = "i";
    const char *body = "in %i : i64[2]\nin %t : f64[2,4]\n%y = Gather(%t, %i) axis=1 @y\nout %y";
    ir_tensor *got = run_vmap(&a, body, 1, &name, 2, (const double *[]){index, table});
    harness_all_near("rows", &got[0], (double[]){2, 0, 6, 4, 1, 3, 5, 7}, 0);
    static const char *const bodies[] = {
        "in %i : f64[2,3]\nin %w : f64[3]\n%y = MatMul(%i, %w) @y\nout %y",
        "in %i : f64[2,3]\n%y = Softmax(%i) axis=0 @y\nout %y",
        "in %i : f64[1,2,4,4]\n%y = MaxPool(%i) kernel_shape=[2, 2] @y\nout %y",
        "in %i : f64[2,3]\n%y = ReduceSum(%i) @y\nout %y",
    };
    for (size_t k = 0; k < sizeof bodies / sizeof *bodies; k++) {
        tacit_error err = {0};
        ir_graph *g = harness_graph(&a, bodies[k]);
        const char *type = g->nodes.data[0]->type;
        uint32_t count = 0;
        assert_int_equal(diff_vmap(g, 1, &name, 5, &err), TACIT_OK);
        for (uint32_t i = 0; i < g->nodes.count; i++)
            count += g->nodes.data[i]->type && strcmp(g->nodes.data[i]->type, type) == 0;
        assert_int_equal(count, 1);
    }
    arena_free(&a);
}

/* --- reverse mode end to end ------------------------------------------------------------------ */

static void T48_batched_product(void **state)
{
    (void)state;
    double x[24], w[40];
    splitmix s = {101};
    harness_fill(&s, x, 24, 1), harness_fill(&s, w, 40, 1);
    const char *body = "in %a : f32[2,3,4]\nin %b : f32[2,4,5]\n%p = MatMul(%a, %b) @p\n%y = "
                       "ReduceSum(%p) keepdims=0 @y\nout %y";
    harness_differences(body, 2, (const char *[]){"a", "b"}, (double *[]){x, w}, NULL, 5e-3);
    arena a;
    arena_init(&a, NULL);
    ir_tensor *got =
        harness_grad(&a, body, 1, (const char *[]){"b"}, (const double *[]){x, w}, NULL);
    for (int i = 0; i < 40; i++) {
        double want = 0;
        for (int m = 0; m < 3; m++)
            want += x[i / 20 * 12 + m * 4 + i / 5 % 4];
        harness_near("db", harness_at(&got[1], i), want, 1e-5);
    }
    arena_free(&a);
}

static void T49_softmax(void **state)
{
    (void)state;
    double x[15], weights[15];
    splitmix s = {57};
    harness_fill(&s, x, 15, 1);
    const char *body = "in %x : f32[3,5]\n%y = Softmax(%x) axis=-1 @y\nout %y";
    harness_differences(body, 1, (const char *[]){"x"}, (double *[]){x}, NULL, 1e-6);
    harness_fill(&s, weights, 15, 1); /* H5: a gradient that is not zero */
    harness_differences(body, 1, (const char *[]){"x"}, (double *[]){x}, weights, 5e-3);
}

static void H5_weighted_softmax(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_tensor *got =
        harness_grad(&a, "in %x : f32[3]\n%y = Softmax(%x) @y\nout %y", 1, (const char *[]){"x"},
                     (const double *[]){(double[]){1, 2, 3}}, (double[]){1, 0, -1});
    harness_all_near("y", &got[0], (double[]){.09003057, .24472847, .66524096}, 1e-6);
    harness_all_near("dx", &got[1], (double[]){.14181709, .14077036, -.28258745}, 1e-6);
    arena_free(&a);
}

static void T50_layer_norm(void **state)
{
    (void)state;
    double x[18], scale[6], shift[6];
    splitmix s = {1009};
    harness_fill(&s, x, 18, 1), harness_fill(&s, scale, 6, 1), harness_fill(&s, shift, 6, 1);
    for (int i = 0; i < 6; i++)
        scale[i] = fabs(scale[i]) + 0.5;
    const char *body = "in %x : f32[3,6]\nin %g : f32[6]\nin %b : f32[6]\n%n = "
                       "LayerNormalization(%x, %g, %b) axis=-1 @n\n%y = ReduceSum(%n) keepdims=0 "
                       "@y\nout %y";
    const char *wrt[3] = {"x", "g", "b"};
    harness_differences(body, 3, wrt, (double *[]){x, scale, shift}, NULL, 5e-3);
    arena a;
    arena_init(&a, NULL);
    ir_tensor *got = harness_grad(&a, body, 3, wrt, (const double *[]){x, scale, shift}, NULL);
    harness_all_near("db", &got[3], (double[]){3, 3, 3, 3, 3, 3}, 1e-6);
    arena_free(&a);
}

static void T51_T52_dense(void **state)
{
    (void)state;
    double x[12], w[15], b[5];
    splitmix s = {7};
    harness_fill(&s, x, 12, 1), harness_fill(&s, w, 15, 1), harness_fill(&s, b, 5, 1);
    harness_differences("in %x : f32[4,3]\nin %w : f32[3,5]\nin %b : f32[5]\nconst %t : i64[4] = "
                        "[0, 1, 2, 3]\n%p = MatMul(%x, %w) @p\n%l = Add(%p, %b) @l\n%y = "
                        "SoftmaxCrossEntropyLoss(%l, %t) reduction=\"sum\" @y\nout %y",
                        2, (const char *[]){"w", "b"}, (double *[]){x, w, b}, NULL, 5e-3);
    s.state = 13;
    harness_fill(&s, x, 6, 1), harness_fill(&s, w, 8, 1);
    harness_differences("in %x : f32[3,2]\nin %w : f32[2,4]\nconst %t : i64[3] = [0, 1, 2]\n%p = "
                        "MatMul(%x, %w) @p\n%y = SoftmaxCrossEntropyLoss(%p, %t) @y\nout %y",
                        1, (const char *[]){"w"}, (double *[]){x, w}, NULL, 5e-3);
}

static void T53_conv_net(void **state)
{
    (void)state;
    double x[36], wc[18], bc[2] = {5.0, 5.1}, wfc[24], bfc[3];
    splitmix s = {34};
    harness_fill(&s, x, 36, 1), harness_fill(&s, wc, 18, 0.2), harness_fill(&s, wfc, 24, 0.5),
        harness_fill(&s, bfc, 3, 1);
    const char *body =
        "in %x : f32[1,1,6,6]\nin %wc : f32[2,1,3,3]\nin %bc : f32[2]\nin %wfc : f32[8,3]\nin %bfc "
        ": f32[3]\nconst %r : i64[4] = [1, 2, 1, 1]\nconst %e : i64[4] = [1, 2, 4, 4]\nconst %f : "
        "i64[2] = [1, 8]\nconst %t : i64[1] = [1]\n%c = Conv(%x, %wc) @c\n%br = Reshape(%bc, %r) "
        "@br\n%be = Expand(%br, %e) @be\n%s = Add(%c, %be) @s\n%a = Relu(%s) @a\n%m = MaxPool(%a) "
        "kernel_shape=[2, 2] strides=[2, 2] @m\n%v = Reshape(%m, %f) @v\n%p = MatMul(%v, %wfc) "
        "@p\n%l = Add(%p, %bfc) @l\n%y = SoftmaxCrossEntropyLoss(%l, %t) @y\nout %y";
    const char *wrt[4] = {"wc", "bc", "wfc", "bfc"};
    double *data[5] = {x, wc, bc, wfc, bfc};
    harness_differences(body, 4, wrt, data, NULL, 5e-3);
    arena a;
    arena_init(&a, NULL);
    ir_tensor *got = harness_grad(&a, body, 4, wrt, (const double *const *)data, NULL);
    harness_near("loss", harness_at(&got[0], 0), 0.7472959664, 1e-4);
    harness_all_near("d wc", &got[1],
                     (double[]){-.229397, -.387268, .035257, .288762, .635359, -.666104, .910841,
                                -.228465, -.596818, -.154508, .160152, -.082413, -.428770, -.226546,
                                -.228142, .153059, -.058246, .105093},
                     1e-4);
    harness_all_near("d bc", &got[2], (double[]){-.001791, .052913}, 1e-4);
    harness_all_near("d bfc", &got[4], (double[]){.112582, -.526354, .413773}, 1e-4);
    harness_near("d wfc[0,1]", harness_at(&got[3], 1), -2.953632, 1e-4);
    harness_near("d wfc[7,2]", harness_at(&got[3], 23), 2.331220, 1e-4);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T13_relu),
        cmocka_unit_test(T14_max_pool),
        cmocka_unit_test(T15_T16_conv),
        cmocka_unit_test(H9_conv_strides_dilations_groups),
        cmocka_unit_test(T17_T18_cross_entropy),
        cmocka_unit_test(T19_activations),
        cmocka_unit_test(T20_T21_solves),
        cmocka_unit_test(T22_hello_resistor),
        cmocka_unit_test(T23_T24_many_right_sides),
        cmocka_unit_test(T25_T27_tangents),
        cmocka_unit_test(T28_batched_solve),
        cmocka_unit_test(T42_vmap_of_solve),
        cmocka_unit_test(T43_vmap_of_dense),
        cmocka_unit_test(vmap_of_lookups),
        cmocka_unit_test(T48_batched_product),
        cmocka_unit_test(T49_softmax),
        cmocka_unit_test(H5_weighted_softmax),
        cmocka_unit_test(T50_layer_norm),
        cmocka_unit_test(T51_T52_dense),
        cmocka_unit_test(T53_conv_net),
    };
    return cmocka_run_group_tests_name("acceptance of the transforms", tests, NULL, NULL);
}
