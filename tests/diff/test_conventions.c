/* SPDX-License-Identifier: Apache-2.0
 * What derivatives are by convention where mathematics leaves a choice: straight-through rounding,
 * dropout, functions with rules of their own, ops that stop the gradient; and what is refused. */
#include "diff/harness.h"

#define WRT(...)                                                                                   \
    (sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), (const char *[])                     \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* The error of a gradient that must fail. */
static void refused(const char *body, const char *wrt, bool ones, tacit_status status,
                    const char *says)
{
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g = harness_graph(&a, body);
    tacit_status got = diff_grad(g, 1, &wrt, &(diff_grad_options){.ones_seed = ones}, &err);
    if (got != status || !strstr(err.message, says))
        fail_msg("%s: '%s', expected '%s'", body, err.message, says);
    arena_free(&a);
}

/* --- straight-through ------------------------------------------------------------------------- */

static void rounding_is_straight_through(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double x[4] = {0.2, 1.5, -2.7, 3}, g[4] = {1, -2, 3, 0.5};
    ir_tensor *got = harness_grad(&a, "in %x : f64[4]\n%y = Round(%x) @y\nout %y", WRT("x"),
                                  (const double *[]){x}, g);
    harness_all_near("round", &got[1], g, 0);
    arena_free(&a);
}

/* Fixed scale 0.1, seven steps each way: what lies beyond 0.75 is cut and gets nothing. */
static void fake_quantisation(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double x[4] = {0.31, 0.9, -0.64, -2}, s[1] = {0.1}, g[4] = {1, 2, 3, 4};
    ir_tensor *got = harness_grad(&a,
                                  "in %x : f64[4]\nin %s : f64[1]\n%y = tacit.FakeQuantize(%x, %s) "
                                  "mode=\"fixed\" bits=4 @y\nout %y",
                                  WRT("x"), (const double *[]){x, s}, g);
    harness_all_near("y", &got[0], (double[]){0.3, 0.7, -0.6, -0.7}, 1e-12);
    harness_all_near("dx", &got[1], (double[]){1, 0, 3, 0}, 0);
    got = harness_grad(&a, "in %x : f64[4]\n%y = tacit.FakeQuantize(%x) @y\nout %y", WRT("x"),
                       (const double *[]){x}, g);
    harness_all_near("dx, scale from the data", &got[1], g, 0);
    got = harness_grad(&a,
                       "in %x : f64[4]\nin %s : f64[1]\n%y = tacit.FakeQuantize(%x, %s) "
                       "mode=\"ema\" decay=0.5 @y\nout %y",
                       WRT("x"), (const double *[]){x, s}, g);
    harness_near("dx, running scale", harness_at(&got[1], 0), 1, 0);
    arena_free(&a);
}

/* QuantizeLinear and DequantizeLinear as a pair: dx = g where nothing was cut, and the scale gets
 * (q − z) − x/s inside and the limit outside. */
static void quantise_and_back(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double x[4] = {0.26, -0.31, 40, -40}, s[1] = {0.1}, g[4] = {1, 2, 3, 4};
    const char *body =
        "in %x : f64[4]\nin %s : f64[1]\nconst %z : i8[1] = [3]\nconst %r : i64[0] = "
        "[]\n%t = Reshape(%s, %r) @t\n%u = Squeeze(%z) @u\n%q = QuantizeLinear(%x, "
        "%t, %u) @q\n%y = DequantizeLinear(%q, %t, %u) @y\nout %y";
    ir_tensor *got = harness_grad(&a, body, WRT("x", "s"), (const double *[]){x, s}, g);
    harness_all_near("y", &got[0], (double[]){0.3, -0.3, 12.4, -13.1}, 1e-12);
    harness_all_near("dx", &got[1], (double[]){1, 2, 0, 0}, 1e-12);
    double ds = 1 * (3 - 2.6) + 2 * (-3 + 3.1) + 3 * 124 + 4 * -131;
    harness_near("ds", harness_at(&got[2], 0), ds, 1e-9);
    /* By channel, and through a product of integers: refused, naming the node. */
    const double two[4] = {0.26, -0.31, 0.8, 40}, scales[2] = {0.1, 0.2};
    got = harness_grad(&a,
                       "in %x : f64[2,2]\nin %s : f64[2]\n%q = QuantizeLinear(%x, %s) axis=0 "
                       "output_dtype=3 @q\n%y = DequantizeLinear(%q, %s) axis=0 @y\nout %y",
                       WRT("x"), (const double *[]){two, scales}, g);
    harness_all_near("dx", &got[1], (double[]){1, 2, 3, 0}, 1e-12);
    refused(
        "in %x : f32[2,2]\nconst %s : f32[] = [0.1]\nconst %z : u8[] = [0]\nconst %w : u8[2,2] "
        "= [1, 2, 3, 4]\n%q = QuantizeLinear(%x, %s, %z) @q\n%p = QLinearMatMul(%q, %s, %z, %w, "
        "%s, %z, %s, %z) @p\n%y = DequantizeLinear(%p, %s, %z) @back\nout %y",
        "x", false, TACIT_ERR_UNSUPPORTED, "node 'back' (DequantizeLinear)");
    refused("in %x : f32[2]\n%q, %s, %z = DynamicQuantizeLinear(%x) @dq\n%y = DequantizeLinear(%q, "
            "%s, %z) @back\nout %y",
            "x", false, TACIT_ERR_UNSUPPORTED, "'back'");
    arena_free(&a);
}

/* --- dropout ---------------------------------------------------------------------------------- */

/* The gradient passes where the value did, with the same factor; the mask need not be asked for. */
static void dropout(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    double x[64], g[64];
    for (int i = 0; i < 64; i++) {
        x[i] = i + 1;
        g[i] = 1 + 0.1 * i;
    }
    int dropped = 0;
    ir_tensor *got = harness_grad(&a,
                                  "in %x : f64[64]\nconst %r : f64[] = [0.25]\nconst %t : bool[] = "
                                  "[true]\n%y = Dropout(%x, %r, %t) seed=3 @y\nout %y",
                                  WRT("x"), (const double *[]){x}, g);
    for (int i = 0; i < 64; i++) {
        double y = harness_at(&got[0], i);
        dropped += y == 0;
        harness_near("dropout", harness_at(&got[1], i), y == 0 ? 0 : g[i] / 0.75, 1e-12);
    }
    assert_in_range(dropped, 5, 30);
    got = harness_grad(&a, "in %x : f64[64]\n%y = Dropout(%x) @y\nout %y", WRT("x"),
                       (const double *[]){x}, g);
    harness_all_near("not training", &got[1], g, 0);
    arena_free(&a);
}

/* --- fused programs --------------------------------------------------------------------------- */

/* Elementwise knows f32 alone: its gradient is that of the ops it stands for, here (x + 1)·tanh y.
 */
static void fused_programs(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double x[3] = {0.5, -1, 2}, y[3] = {0.3, 0.1, -0.7}, g[3] = {1, 2, -1};
    char fused[400];
    snprintf(fused, sizeof fused,
             "in %%x : f32[3]\nin %%y : f32[3]\n%%z = tacit.Elementwise(%%x, %%y) program=[0, 0, "
             "%d, %d, 0, %d, 1, %d, 0, 0, 2, 2, 0, 1, 0] constants=[1.0] @z\nout %%z",
             0x100, 0x200, 24, 0x101);
    ir_tensor *got = harness_grad(&a, fused, WRT("x", "y"), (const double *[]){x, y}, g);
    for (int i = 0; i < 3; i++) {
        double t = tanh(y[i]);
        harness_near("value", harness_at(&got[0], i), (x[i] + 1) * t, 1e-6);
        harness_near("dx", harness_at(&got[1], i), g[i] * t, 1e-6);
        harness_near("dy", harness_at(&got[2], i), g[i] * (x[i] + 1) * (1 - t * t), 1e-6);
    }
    arena_free(&a);
}

/* --- what stops a gradient -------------------------------------------------------------------- */

static const char *const stopping[] = {
    "%k = ArgMax(%x) @k\n%n = Cast(%k) to=11 @n\n%s = ReduceSum(%n) keepdims=0 @s\n",
    "%k = Greater(%x, %h) @k\n%n = Cast(%k) to=11 @n\n%s = ReduceSum(%n) keepdims=0 @s\n",
    "%n = Floor(%x) @n\n%s = ReduceSum(%n) keepdims=0 @s\n",
    "%n = Ceil(%x) @n\n%s = ReduceSum(%n) keepdims=0 @s\n",
    "%n = Sign(%x) @n\n%s = ReduceSum(%n) keepdims=0 @s\n",
    "%k = Shape(%x) @k\n%n = Cast(%k) to=11 @n\n%s = ReduceSum(%n) keepdims=0 @s\n",
    "%n = Hardmax(%x) @n\n%s = ReduceSum(%n) keepdims=0 @s\n",
    "%n = RandomNormalLike(%x) seed=1.0 @n\n%s = ReduceSum(%n) keepdims=0 @s\n",
    "%k = Bernoulli(%b) seed=1.0 @k\n%n = Cast(%k) to=11 @n\n%s = ReduceSum(%n) keepdims=0 @s\n",
    "%k = IsNaN(%x) @k\n%n = Cast(%k) to=11 @n\n%s = ReduceSum(%n) keepdims=0 @s\n",
};

/* Beside a path that counts, each gives nothing more. */
static void conventions_stop_gradients(void **state)
{
    (void)state;
    const double x[3] = {0.25, -1.5, 2};
    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++) {
        arena a;
        arena_init(&a, NULL);
        char body[512];
        snprintf(body, sizeof body,
                 "in %%x : f64[3]\nconst %%h : f64[] = [0.5]\n%%b = Sigmoid(%%x) @b\n%s%%q = "
                 "Mul(%%x, %%x) @q\n%%y = Add(%%q, %%s) @y\nout %%y",
                 stopping[i]);
        ir_tensor *got = harness_grad(&a, body, WRT("x"), (const double *[]){x}, NULL);
        harness_all_near(stopping[i], &got[1], (double[]){0.5, -3, 4}, 1e-12);
        arena_free(&a);
    }
}

/* --- bad input -------------------------------------------------------------------------------- */

static void keep_line(void *context, tacit_log_level level, const char *line)
{
    char *text = context;
    if (level == TACIT_LOG_WARNING)
        snprintf(text, 200, "%s", line);
}

static void unreached_values_get_zeros_and_a_warning(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    char line[200] = "";
    tacit_error err = {0};
    tacit_log log = {.write = keep_line, .context = line, .level = TACIT_LOG_WARNING};
    ir_graph *g = harness_graph(&a, "in %x : f64[2]\nin %lost : f64[3]\n%u = Exp(%lost) @u\n%y = "
                                    "ReduceSum(%x) keepdims=0 @y\nout %y\nout %u");
    assert_int_equal(diff_grad(g, 2, (const char *[]){"x", "lost"},
                               &(diff_grad_options){.ones_seed = true, .log = &log}, &err),
                     TACIT_OK);
    assert_non_null(strstr(line, "'lost' does not reach the loss"));
    const double x[2] = {1, 2}, lost[3] = {3, 4, 5};
    const ir_tensor *in[2] = {harness_tensor(&a, &g->inputs.data[0]->type, x),
                              harness_tensor(&a, &g->inputs.data[1]->type, lost)};
    ir_tensor *out = harness_run(&a, g, in);
    harness_all_near("x", &out[0], (double[]){1, 1}, 0);
    harness_all_near("lost", &out[1], (double[]){0, 0, 0}, 0);
    assert_int_equal(ir_tensor_count(&out[1]), 3);
    arena_free(&a);
}

static void bad_requests_are_named(void **state)
{
    (void)state;
    refused("in %x : f64[2]\n%y = Exp(%x) @y\nout %y", "x", true, TACIT_ERR_SHAPE,
            "not a single number");
    refused("in %x : i64[2]\n%f = Cast(%x) to=11 @f\n%y = ReduceSum(%f) keepdims=0 @y\nout %y", "x",
            true, TACIT_ERR_TYPE, "'x': it is i64");
    refused("in %x : f64[2]\n%y = ArgMax(%x) @y\nout %y", "x", true, TACIT_ERR_TYPE,
            "the loss 'y' is i64");
    refused("in %x : f64[2]\n%y = ReduceSum(%x) keepdims=0 @y\nout %y", "nobody", true,
            TACIT_ERR_ARGUMENT, "'nobody' is not an input");
    refused("in %x : f64[2]\n%t = Exp(%x) @t\n%y = ReduceSum(%t) keepdims=0 @y\nout %y", "t", true,
            TACIT_ERR_ARGUMENT, "'t' is not an input");
    refused("in %x : f64[4]\nconst %i : i64[] = [0]\n%s = SplitToSequence(%x) @parts\n%y = "
            "SequenceAt(%s, %i) @y\n"
            "out %y",
            "x", false, TACIT_ERR_SHAPE, "no static shape");
}

/* A value that a step writes over must keep its shape. */
static void carries_keep_their_shape(void **state)
{
    (void)state;
    refused("in %x : f64[2]\nin %xs : f64[3,2]\n%y = Scan(%x, %xs) body=graph \"b\" {\nin %c : "
            "f64[2]\nin %t : f64[2]\n%u = Concat(%c, %t) axis=0 @u\nout %u\n} num_scan_inputs=1 "
            "@grow\nout %y",
            "x", false, TACIT_ERR_SHAPE, "'grow' (Scan): carry 0 enters a step as f64[2]");
    refused("in %x : f64[2]\nin %xs : f64[3,2]\n%y = Scan(%x, %xs) body=graph \"b\" {\nin %c : "
            "f64[2]\nin %t : f64[2]\n%u = Cast(%c) to=1 @u\nout %u\n} num_scan_inputs=1 "
            "@narrow\nout %y",
            "x", false, TACIT_ERR_SHAPE, "'narrow' (Scan): carry 0");
}

/* More checkpoints than steps, or fewer than none. */
static void checkpoint_counts_out_of_range(void **state)
{
    (void)state;
    static const char *const counts[] = {"-1", "4", "1000000"};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        char body[400];
        snprintf(
            body, sizeof body,
            "in %%x : f64[2]\nin %%xs : f64[3,2]\n%%y = Scan(%%x, %%xs) body=graph \"b\" {\nin "
            "%%c : f64[2]\nin %%t : f64[2]\n%%u = Add(%%c, %%t) @u\nout %%u\n} "
            "num_scan_inputs=1 checkpoints=%s @scan\nout %%y",
            counts[i]);
        refused(body, "x", false, TACIT_ERR_ARGUMENT, "checkpoints for 3 steps");
    }
}

/* Several outputs with rules of their own, which differ from the derivative of the body: the vjp
 * must win in reverse, the jvp in forward mode. Body: (x·y, x + y). */
static void functions_with_several_outputs(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    static const char body[] =
        "in %x : f64[2]\nin %y : f64[2]\n%p, %q = tacit.Function(%x, %y) body=graph \"f\" {\nin %a "
        ": f64[2]\nin %b : f64[2]\n%m = Mul(%a, %b) @m\n%s = Add(%a, %b) @s\nout %m\nout %s\n} "
        "vjp=graph \"v\" {\nin %a : f64[2]\nin %b : f64[2]\nin %m : f64[2]\nin %s : f64[2]\nin "
        "%dm : f64[2]\nin %ds : f64[2]\nconst %k : f64[] = [10.0]\n%u = Mul(%dm, %b) @u\n%da = "
        "Mul(%u, %k) @da\n%w = Mul(%ds, %m) @w\n%db = Mul(%w, %k) @db\nout %da\nout %db\n} "
        "jvp=graph \"j\" {\nin %a : f64[2]\nin %b : f64[2]\nin %ta : f64[2]\nin %tb : f64[2]\n%tm "
        "= Sub(%ta, %tb) @tm\n%ts = Mul(%ta, %b) @ts\nout %tm\nout %ts\n} @f\n%z = Concat(%p, %q) "
        "axis=0 @z\nout %z";
    const double x[2] = {2, 3}, y[2] = {5, -1}, g[4] = {1, 2, 3, 4}, t[2] = {0.5, 0.25};
    ir_tensor *got = harness_grad(&a, body, WRT("x", "y"), (const double *[]){x, y}, g);
    harness_all_near("values", &got[0], (double[]){10, -3, 7, 2}, 0);
    harness_all_near("dx", &got[1], (double[]){50, -20}, 1e-12);
    harness_all_near("dy", &got[2], (double[]){300, -120}, 1e-12);
    got = harness_jvp(&a, body, "x", (const double *[]){x, y}, t);
    harness_all_near("tangents", &got[1], (double[]){0.5, 0.25, 2.5, -0.25}, 1e-12);
    got = harness_jvp(&a, body, "y", (const double *[]){x, y}, t);
    harness_all_near("tangents", &got[1], (double[]){-0.5, -0.25, 0, 0}, 1e-12);
    arena_free(&a);
}

/* A row that has no rule is named, with its node. */
static void missing_rules_are_named(void **state)
{
    (void)state;
    refused("in %r : f32[]\nin %t : i64[]\nin %x : f32[2]\nin %g : f32[2]\nin %h : f32[2]\n%y, %s "
            "= ai.onnx.preview.training.Adagrad(%r, %t, %x, %g, %h) @update\nout %y",
            "x", false, TACIT_ERR_UNSUPPORTED, "node 'update'");
}

/* A graph with a cycle: the sort that every transform runs names a node on it. */
static void cycles_are_refused(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g =
        harness_graph(&a, "in %x : f64[2]\n%u = Exp(%x) @first\n%v = Tanh(%u) @second\n%y "
                          "= ReduceSum(%v) keepdims=0 @y\nout %y");
    g->nodes.data[0]->inputs[0] = g->nodes.data[1]->outputs[0];
    const char *wrt = "x";
    assert_int_not_equal(diff_grad(g, 1, &wrt, &(diff_grad_options){.ones_seed = true}, &err),
                         TACIT_OK);
    assert_true(strstr(err.message, "first") || strstr(err.message, "second"));
    /* And inside the body of a scan. */
    g = harness_graph(&a, "in %x : f64[2]\nin %xs : f64[3,2]\n%y = Scan(%x, %xs) body=graph \"b\" "
                          "{\nin %c : f64[2]\nin %t : f64[2]\n%u = Add(%c, %t) @one\n%v = Tanh(%u) "
                          "@two\nout %v\n} num_scan_inputs=1 @scan\nout %y");
    ir_graph *body = ir_attr_graph(g->nodes.data[0], "body");
    body->nodes.data[0]->inputs[0] = body->nodes.data[1]->outputs[0];
    assert_int_not_equal(diff_grad(g, 1, &wrt, &(diff_grad_options){0}, &err), TACIT_OK);
    assert_true(strstr(err.message, "one") || strstr(err.message, "two"));
    arena_free(&a);
}

/* Classical models give f32 whatever they are given: their spellings' derivatives, by hand. */
static void models_of_f32(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    const double x[4] = {1, 3, 2, 2}, g[2] = {1, 0.5}, four[4] = {1, 0, 0, 1};
    ir_tensor *got =
        harness_grad(&a,
                     "in %x : f64[2,2]\n%s = ai.onnx.ml.Scaler(%x) scale=[2.0, -1.0] @s\n%r = "
                     "ai.onnx.ml.LinearRegressor(%s) coefficients=[1.0, 10.0] @r\n%y = Cast(%r) "
                     "to=11 @y\nout %y",
                     WRT("x"), (const double *[]){x}, g);
    harness_all_near("y", &got[0], (double[]){-28, -16}, 1e-6);
    harness_all_near("dx", &got[1], (double[]){2, -10, 1, -5}, 1e-6);
    got = harness_grad(&a,
                       "in %x : f64[2,2]\n%n = ai.onnx.ml.Normalizer(%x) norm=\"L1\" @n\n%y = "
                       "Cast(%n) to=11 @y\nout %y",
                       WRT("x"), (const double *[]){x}, four);
    harness_all_near("dx", &got[1], (double[]){0.1875, -0.0625, -0.125, 0.125}, 1e-6);
    got = harness_grad(&a,
                       "in %x : f64[2,2]\n%v = ai.onnx.ml.FeatureVectorizer(%x, %x) "
                       "inputdimensions=[1, 3] @v\n%t = ReduceSum(%v) keepdims=0 @t\n%y = Cast(%t) "
                       "to=11 @y\nout %y",
                       WRT("x"), (const double *[]){x}, g);
    harness_all_near("dx", &got[1], (double[]){2, 1, 2, 1}, 1e-6);
    got = harness_grad(&a,
                       "in %x : f64[2,2]\n%l, %p = ai.onnx.ml.LinearClassifier(%x) "
                       "coefficients=[1.0, 2.0, 3.0, 4.0] intercepts=[0.0, 0.0] "
                       "classlabels_ints=[3, 4] @c\n%y = Cast(%p) to=11 @y\nout %y",
                       WRT("x"), (const double *[]){x}, four);
    harness_all_near("dx", &got[1], (double[]){1, 2, 3, 4}, 1e-6);
    arena_free(&a);
}

/* Trees are steps: no slope, however their classes are told. */
static void trees_are_flat(void **state)
{
    (void)state;
    static const char *const labels[] = {"classlabels_int64s=[4, 5]",
                                         "classlabels_strings=[\"no\", \"yes\"]"};
    const double x[2] = {1, 3}, g[2] = {1, 0.5};
    for (int i = 0; i < 2; i++) {
        arena a;
        arena_init(&a, NULL);
        char text[1024];
        snprintf(
            text, sizeof text,
            "in %%x : f64[1,2]\n%%l, %%p = ai.onnx.ml.TreeEnsembleClassifier(%%x) "
            "nodes_treeids=[0, 0, 0] nodes_nodeids=[0, 1, 2] nodes_featureids=[1, 0, 0] "
            "nodes_modes=[\"BRANCH_LEQ\", \"LEAF\", \"LEAF\"] nodes_values=[0.25, 0.0, 0.0] "
            "nodes_truenodeids=[1, 0, 0] nodes_falsenodeids=[2, 0, 0] class_treeids=[0, 0, 0, 0] "
            "class_nodeids=[1, 1, 2, 2] class_ids=[0, 1, 0, 1] class_weights=[0.5, 0.25, 2.0, "
            "3.0] %s @t\n%%d = Cast(%%p) to=11 @d\n%%y = Mul(%%d, %%x) @y\nout %%y",
            labels[i]);
        ir_tensor *got = harness_grad(&a, text, WRT("x"), (const double *[]){x}, g);
        harness_all_near("y", &got[0], (double[]){2, 9}, 1e-6);
        harness_all_near("dx", &got[1], (double[]){2, 1.5}, 1e-6);
        arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_is_straight_through),
        cmocka_unit_test(fake_quantisation),
        cmocka_unit_test(quantise_and_back),
        cmocka_unit_test(dropout),
        cmocka_unit_test(fused_programs),
        cmocka_unit_test(conventions_stop_gradients),
        cmocka_unit_test(unreached_values_get_zeros_and_a_warning),
        cmocka_unit_test(bad_requests_are_named),
        cmocka_unit_test(carries_keep_their_shape),
        cmocka_unit_test(checkpoint_counts_out_of_range),
        cmocka_unit_test(functions_with_several_outputs),
        cmocka_unit_test(missing_rules_are_named),
        cmocka_unit_test(cycles_are_refused),
        cmocka_unit_test(models_of_f32),
        cmocka_unit_test(trees_are_flat),
    };
    return cmocka_run_group_tests_name("conventions of the transforms", tests, NULL, NULL);
}
