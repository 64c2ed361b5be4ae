/* SPDX-License-Identifier: Apache-2.0
 * Compiled programs under hard conditions: slices absorbed by their readers (H1, H2), and gradients
 * with the same bits serially and as tasks, run after run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tacit/tacit.h"

enum { MOST = 8 };

static tacit_model *load(const char *body)
{
    static char text[8192];
    tacit_model *m;
    tacit_error err;
    snprintf(text, sizeof text, "tacit 1\ngraph \"g\" {\n%s\n}\n", body);
    if (tacit_model_load_memory(text, strlen(text), NULL, &m, &err) != TACIT_OK)
        fail_msg("%s in\n%s", err.message, text);
    return m;
}

static void noise(tacit_tensor *t, uint64_t state)
{
    for (size_t k = 0; k < t->bytes / sizeof(float); k++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ((float *)t->data)[k] = (float)(state >> 40) * 0x1p-23f - 1;
    }
}

static tacit_tensor buffer(const tacit_port *port)
{
    tacit_tensor t = {.dtype = port->dtype, .rank = port->rank, .bytes = port->bytes};
    memcpy(t.dims, port->dims, sizeof t.dims);
    t.data = calloc(1, port->bytes + 1);
    assert_non_null(t.data);
    return t;
}

/* Columns [64·part, 64·part + 64) of rows of 192. */
static void cut(const tacit_tensor *from, tacit_tensor *to, size_t part)
{
    for (size_t i = 0; i < to->bytes / sizeof(float); i++)
        ((float *)to->data)[i] = ((float *)from->data)[i / 64 * 192 + 64 * part + i % 64];
}

/* The inputs: the same numbers every time. Inputs q, k and v are the parts of the qkv that a graph
 * with that input gets. */
static void fill(const char *name, const tacit_port *port, tacit_tensor *t)
{
    const char *part = strlen(name) == 1 ? strchr("qkv", name[0]) : NULL;
    uint64_t hash = 5381;
    for (const char *c = name; *c; c++)
        hash = hash * 33 + (unsigned char)*c;
    if (!part || port->dims[port->rank - 1] != 64) {
        noise(t, hash);
        return;
    }
    tacit_port whole = *port;
    whole.dims[port->rank - 1] = 192;
    whole.bytes = 3 * port->bytes;
    tacit_tensor all = buffer(&whole);
    fill("qkv", &whole, &all);
    cut(&all, t, (size_t)(part - "qkv"));
    free(all.data);
}

/* All outputs of one run, one behind the other, to be freed. */
static char *run(const tacit_model *m, const tacit_compile_options *options, size_t *bytes)
{
    tacit_program *p;
    tacit_session *s;
    tacit_error err;
    tacit_tensor in[MOST], out[MOST];
    tacit_port port;
    if (tacit_compile(m, options, &p, &err) != TACIT_OK ||
        tacit_session_create(p, &s, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    uint32_t n_in = tacit_program_input_count(p), n_out = tacit_program_output_count(p);
    assert_true(n_in <= MOST && n_out <= MOST);
    *bytes = 0;
    for (uint32_t i = 0; i < n_in; i++) {
        assert_int_equal(tacit_program_input(p, i, &port), TACIT_OK);
        in[i] = buffer(&port);
        fill(port.name, &port, &in[i]);
    }
    for (uint32_t i = 0; i < n_out; i++) {
        assert_int_equal(tacit_program_output(p, i, &port), TACIT_OK);
        out[i] = buffer(&port);
        *bytes += port.bytes;
    }
    if (tacit_run(s, in, n_in, out, n_out, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    char *all = malloc(*bytes + 1), *to = all;
    for (uint32_t i = 0; i < n_out; i++) {
        memcpy(to, out[i].data, out[i].bytes);
        to += out[i].bytes;
        free(out[i].data);
    }
    for (uint32_t i = 0; i < n_in; i++)
        free(in[i].data);
    tacit_session_free(s);
    tacit_program_free(p);
    return all;
}

static void same_bits(const char *what, const tacit_model *m, const tacit_compile_options *a,
                      const tacit_model *other, const tacit_compile_options *b)
{
    size_t n, k;
    char *first = run(m, a, &n), *second = run(other, b, &k);
    assert_int_equal(n, k);
    assert_true(n > 0);
    if (memcmp(first, second, n) != 0)
        fail_msg("%s: bits differ", what);
    free(first);
    free(second);
}

/* --- H1 and H2
 * ------------------------------------------------------------------------------------ */

static const char *const every_pass[] = {"all"};
static const tacit_compile_options plain = {.disabled_passes = every_pass, .n_disabled_passes = 1};

#define SLICE(NAME, FROM, TO)                                                                      \
    "const %" NAME "f : i64[1] = [" FROM "]\nconst %" NAME "t : i64[1] = [" TO "]\n%" NAME         \
    " = Slice(%qkv, %" NAME "f, %" NAME "t, %two) @" NAME "\n"
#define HEADS(NAME)                                                                                \
    "%" NAME "h = Reshape(%" NAME ", %shape) @" NAME "h\n%" NAME "p = Transpose(%" NAME            \
    "h) perm=[0, 2, 1, 3] @" NAME "p\n"
#define ROPE "%r = tacit.Rope(%q, %cos, %sin) head_dim=16 @r\nout %r\n"
#define ATTENTION                                                                                  \
    HEADS("q")                                                                                     \
    HEADS("k") HEADS("v") "%a = tacit.Attention(%qp, %kp, %vp, %mask) scale=0.25 @a\nout %a\n"

/* The same computation on slices of one input, and on inputs that are the slices. */
static const char *const sliced[2] = {
    "in %qkv : f32[16,8,192]\nin %cos : f32[8,8]\nin %sin : f32[8,8]\nconst %two : i64[1] = "
    "[2]\n" SLICE("q", "0", "64") ROPE,
    "in %qkv : f32[8,16,192]\nin %mask : f32[8,1,1,16]\nconst %two : i64[1] = [2]\nconst %shape : "
    "i64[4] = [8, 16, 4, 16]\n" SLICE("q", "0", "64") SLICE("k", "64", "128")
        SLICE("v", "128", "192") ATTENTION};
static const char *const apart[2] = {
    "in %q : f32[16,8,64]\nin %cos : f32[8,8]\nin %sin : f32[8,8]\n" ROPE,
    "in %q : f32[8,16,64]\nin %k : f32[8,16,64]\nin %v : f32[8,16,64]\nin %mask : "
    "f32[8,1,1,16]\nconst %shape : i64[4] = [8, 16, 4, 16]\n" ATTENTION};

/* What may read the slice besides. */
static const char *const readers[] = {
    "out %q",
    "%y = Relu(%q) @y\nout %y",
    "%y = Exp(%q) @y\nout %y",
    "%y = Add(%q, %q) @y\nout %y",
    "%y = Softmax(%q) @y\nout %y",
    "%y = ReduceSum(%q) @y\nout %y",
    "%y = Transpose(%q) perm=[2, 0, 1] @y\nout %y",
    "%y = Concat(%q, %q) axis=1 @y\nout %y",
    "%turned = Transpose(%q) perm=[0, 2, 1] @turned\n%y = MatMul(%q, %turned) @y\nout %y",
    "const %i : i64[2] = [3, 1]\n%y = Gather(%q, %i) axis=1 @y\nout %y",
    "const %p : i64[6] = [0, 1, 0, 0, 0, 2]\n%y = Pad(%q, %p) @y\nout %y",
    "%y = Cast(%q) to=11 @y\nout %y",
    "%y = CumSum(%q, %axis) @y\nout %y",
    "const %s : i64[2] = [32, 32]\n%y, %z = Split(%q, %s) axis=2 @y\nout %y\nout %z",
};

static void with_and_without(const char *what, const char *a, const char *b, const char *tail)
{
    char body[4096];
    snprintf(body, sizeof body, "const %%axis : i64[] = [1]\n%s%s", a, tail);
    tacit_model *m = load(body);
    snprintf(body, sizeof body, "const %%axis : i64[] = [1]\n%s%s", b, tail);
    tacit_model *other = load(body);
    same_bits(what, m, NULL, other, NULL);
    same_bits(what, m, &plain, other, &plain);
    tacit_model_free(m);
    tacit_model_free(other);
}

static void H1_slices_absorbed_or_not(void **state)
{
    (void)state;
    for (size_t g = 0; g < 2; g++) {
        with_and_without("alone", sliced[g], apart[g], "");
        for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
            with_and_without(readers[i], sliced[g], apart[g], readers[i]);
    }
}

/* The sliced value is a temporary, and values of its size are made before the slice is read. */
static void H2_parents_outlive_their_slices(void **state)
{
    (void)state;
    static const char head[] = "in %qkv : f32[16,8,192]\nconst %two : i64[1] = [2]\n%m = Mul(%qkv, "
                               "%qkv) @m\n";
    static const char tail[] =
        "%b = Exp(%qkv) @b\n%c = Tanh(%b) @c\n%d = Sqrt(%b) @d\n%e = Mul(%c, %d) @e\n%f = Sin(%e) "
        "@f\n%s = ReduceSum(%f, %two) keepdims=1 @s\n%u = Mul(%q, %s) @u\n%y = Add(%u, %k) @y\nout "
        "%y";
    static const char late[] = "const %zero : i64[1] = [0]\nconst %n : i64[1] = [64]\nconst %nn : "
                               "i64[1] = [128]\n%q = Slice(%m, %zero, %n, %two) @q\n%k = Slice(%m, "
                               "%n, %nn, %two) @k\n";
    static const char copied[] =
        "const %zero : i64[1] = [0]\nconst %n : i64[1] = [64]\nconst %nn : i64[1] = [128]\n%p = "
        "Slice(%qkv, %zero, %n, %two) @p\n%l = Slice(%qkv, %n, %nn, %two) @l\n%q = Mul(%p, %p) "
        "@q\n%k = Mul(%l, %l) @k\n";
    char body[4096];
    snprintf(body, sizeof body, "%s%s%s", head, late, tail);
    tacit_model *m = load(body);
    snprintf(body, sizeof body, "%s%s%s", head, copied, tail);
    tacit_model *other = load(body);
    same_bits("slices of a temporary", m, NULL, other, NULL);
    same_bits("slices of a temporary", m, NULL, m, &plain);
    tacit_model_free(m);
    tacit_model_free(other);
}

/* --- gradients
 * ------------------------------------------------------------------------------------ */

static const char convnet[] =
    "in %wc : f32[8,3,3,3]\nin %bc : f32[8]\nin %wf : f32[392,10]\nin %bf : f32[10]\nin %x : "
    "f32[4,3,16,16]\nconst %t : i64[4] = [1, 7, 0, 3]\nconst %f : i64[2] = [4, 392]\nconst %ratio "
    ": "
    "f32[] = [0.25]\nconst %train : bool[] = [true]\n%c = Conv(%x, %wc, %bc) @c\n%r = Relu(%c) @r\n"
    "%m = MaxPool(%r) kernel_shape=[2, 2] strides=[2, 2] @m\n%v = Reshape(%m, %f) @v\n%d = "
    "Dropout(%v, %ratio, %train) seed=5 @d\n%p = MatMul(%d, %wf) @p\n%l = Add(%p, %bf) @l\n%loss = "
    "SoftmaxCrossEntropyLoss(%l, %t) @loss\nout %loss";
static const char transformer[] =
    "in %w : f32[32,96]\nin %g : f32[32]\nin %b : f32[32]\nin %x : f32[2,24,32]\nconst %two : "
    "i64[1] = [2]\nconst %shape : i64[4] = [2, 24, 4, 8]\n%h = LayerNormalization(%x, %g, %b) "
    "axis=-1 @h\n%qkv = MatMul(%h, %w) @qkv\n" SLICE("q", "0", "32") SLICE("k", "32", "64")
        SLICE("v", "64", "96") HEADS("q") HEADS("k")
            HEADS("v") "%a = tacit.Attention(%qp, %kp, %vp) scale=0.35 causal=1 @a\n%e = Gelu(%a) "
                       "@e\n%s = "
                       "Mul(%e, %e) @s\n%loss = ReduceMean(%s) keepdims=0 @loss\nout %loss";

/* The gradient graph gives the same bits every time, on one thread and on several. */
static void gradients_have_the_same_bits_everywhere(void **state)
{
    (void)state;
    static const char *const graphs[] = {convnet, transformer};
    static const char *const names[2][4] = {{"wc", "bc", "wf", "bf"}, {"w", "g", "b", "x"}};
    for (int g = 0; g < 2; g++) {
        tacit_model *m = load(graphs[g]), *d;
        tacit_error err;
        tacit_grad_options o = {.with_loss = 1, .seed_ones = 1};
        if (tacit_grad(m, 4, names[g], &o, &d, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        same_bits("serial again", d, NULL, d, NULL);
        for (uint32_t threads = 1; threads <= 3; threads++) {
            tacit_compile_options tasks = {.executor = TACIT_EXEC_TASKS, .threads = threads};
            for (int i = 0; i < 3; i++)
                same_bits("tasks", d, NULL, d, &tasks);
        }
        tacit_model_free(d);
        tacit_model_free(m);
    }
}

/* Branches and loops, compiled: gradients of both against the formulas. */
static void control_flow_compiles(void **state)
{
    (void)state;
    tacit_model *m = load("in %x : f32[2]\nconst %z : f32[] = [0.0]\n%s = ReduceSum(%x) keepdims=0 "
                          "@s\n%p = Greater(%s, %z) @p\n%r = If(%p | %x) then_branch=graph \"t\" "
                          "{\ncapture %a : f32[2]\n%m = Mul(%a, %a) @m\nout %m\n} "
                          "else_branch=graph \"e\" {\ncapture %a : f32[2]\n%n = Exp(%a) @n\nout "
                          "%n\n} @if\n%loss = ReduceSum(%r) keepdims=0 @loss\nout %loss"),
                *d;
    tacit_error err;
    const char *wrt = "x";
    tacit_grad_options o = {.seed_ones = 1};
    if (tacit_grad(m, 1, &wrt, &o, &d, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (int positive = 0; positive < 2; positive++) {
        float x[2] = {positive ? 1.5f : -1.5f, 0.25f}, dx[2] = {0};
        tacit_tensor in = {.dtype = TACIT_F32, .rank = 1, .dims = {2}, .data = x, .bytes = 8};
        tacit_tensor out = {.dtype = TACIT_F32, .rank = 1, .dims = {2}, .data = dx, .bytes = 8};
        tacit_program *p;
        tacit_session *s;
        if (tacit_compile(d, NULL, &p, &err) != TACIT_OK ||
            tacit_session_create(p, &s, &err) != TACIT_OK ||
            tacit_run(s, &in, 1, &out, 1, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        assert_float_equal(dx[0], positive ? 3.0f : 0.22313016f, 1e-5);
        assert_float_equal(dx[1], positive ? 0.5f : 1.2840254f, 1e-5);
        tacit_session_free(s);
        tacit_program_free(p);
    }
    tacit_model_free(d);
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(H1_slices_absorbed_or_not),
        cmocka_unit_test(H2_parents_outlive_their_slices),
        cmocka_unit_test(gradients_have_the_same_bits_everywhere),
        cmocka_unit_test(control_flow_compiles),
    };
    return cmocka_run_group_tests_name("programs under hard conditions", tests, NULL, NULL);
}
