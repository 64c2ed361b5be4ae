/* SPDX-License-Identifier: Apache-2.0
 * The blocked layout over whole graphs: the same answers, and moves at the edges only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "op/op.h"
#include "support/pass_check.h"

typedef struct writer {
    char text[1 << 18];
    size_t used;
    rng r;
} writer;

static void put(writer *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(w->text + w->used, sizeof w->text - w->used, format, args);
    va_end(args);
    assert_true(n > 0 && (size_t)n < sizeof w->text - w->used);
    w->used += (size_t)n;
}

/* A constant of values in [low, low + 1). */
static void constant(writer *w, const char *name, const char *shape, int count, double low)
{
    put(w, "  const %%%s : f32[%s] = [", name, shape);
    for (int i = 0; i < count; i++)
        put(w, "%s%.3f", i ? ", " : "", low + (double)rng_below(&w->r, 1000) / 1000);
    put(w, "]\n");
}

static writer *begin(uint64_t seed)
{
    writer *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->r = rng_seed(seed);
    put(w, "tacit 1\ngraph \"g\" {\n");
    return w;
}

static ir_graph *run(writer *w, arena *a, const char *only)
{
    put(w, "}\n");
    ir_graph *g = pass_check_parse(a, w->text, w->used);
    ir_graph *after = pass_check_run(g, only, NULL, 1e-4, NULL);
    free(w);
    return after;
}

/* Everything that follows into the layout, with channels that do not fill their blocks. */
static void a_region(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    writer *w = begin(1);
    put(w, "  in %%x : f32[2,3,12,11]\n");
    constant(w, "w1", "16,3,3,3", 16 * 27, -0.5);
    constant(w, "b1", "16", 16, -0.5);
    constant(w, "w2", "16,1,3,3", 16 * 9, -0.5);
    constant(w, "w3", "24,16,1,1", 24 * 16, -0.5);
    constant(w, "w4", "16,40,1,1", 16 * 40, -0.5);
    constant(w, "scale", "40", 40, 0.5);
    constant(w, "shift", "40", 40, -0.5);
    constant(w, "mean", "40", 40, -0.5);
    constant(w, "var", "40", 40, 0.5);
    constant(w, "per", "16,1,1", 16, -0.5);
    put(w, "  const %%half : f32[] = [0.5]\n");
    put(w, "  %%c1 = Conv(%%x, %%w1, %%b1) auto_pad=\"SAME_UPPER\" strides=[2, 2] @n_c1\n"
           "  %%r1 = Relu(%%c1) @n_r1\n"
           "  %%p1 = MaxPool(%%r1) kernel_shape=[3, 3] pads=[1, 1, 1, 1] @n_p1\n"
           "  %%d1 = Conv(%%p1, %%w2) group=16 pads=[1, 1, 1, 1] @n_d1\n"
           "  %%q1 = AveragePool(%%d1) kernel_shape=[2, 2] pads=[0, 0, 1, 1] ceil_mode=1 @n_q1\n"
           "  %%e1 = Conv(%%q1, %%w3) @n_e1\n"
           "  %%cat = Concat(%%q1, %%e1) axis=1 @n_cat\n"
           "  %%bn = BatchNormalization(%%cat, %%scale, %%shift, %%mean, %%var) @n_bn\n"
           "  %%r2 = Relu(%%bn) @n_r2\n"
           "  %%c4 = Conv(%%r2, %%w4) @n_c4\n"
           "  %%m4 = Mul(%%c4, %%per) @n_m4\n"
           "  %%h4 = Mul(%%m4, %%half) @n_h4\n"
           "  %%g4 = GlobalAveragePool(%%h4) @n_g4\n"
           "  %%s4 = Sigmoid(%%g4) @n_s4\n"
           "  %%k4 = Mul(%%h4, %%s4) @n_k4\n"
           "  %%t4 = Add(%%k4, %%q1) @n_t4\n"
           "  %%f4 = Flatten(%%g4) @n_f4\n"
           "  out %%t4\n  out %%f4\n  out %%e1\n");
    ir_graph *g = run(w, &a, "block-channels");
    assert_int_equal(pass_check_count(g, "Conv"), 0);
    assert_int_equal(pass_check_count(g, "tacit.BlockedConv"), 5); /* one was a norm */
    assert_int_equal(pass_check_count(g, "tacit.BlockedPool"), 2);
    assert_int_equal(pass_check_count(g, "BatchNormalization"), 0);
    assert_int_equal(pass_check_count(g, "Relu"), 1); /* the other went into the norm */
    assert_int_equal(pass_check_count(g, "tacit.Block"), 0);
    assert_int_equal(pass_check_count(g, "tacit.Unblock"), 2); /* t4 and e1; f4 needs none */
    arena_free(&a);
}

/* What cannot follow stands between two moves; values read twice move once. */
static void edges(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    writer *w = begin(2);
    put(w, "  in %%x : f32[1,16,6,6]\n  in %%other : f32[1,16,6,6]\n");
    constant(w, "w1", "16,16,1,1", 256, -0.5);
    constant(w, "w2", "16,16,3,3", 2304, -0.5);
    put(w, "  %%a = Conv(%%x, %%w1) @n_a\n"
           "  %%s = Softmax(%%a) axis=1 @n_s\n"
           "  %%b = Conv(%%s, %%w2) pads=[1, 1, 1, 1] @n_b\n"
           "  %%c = Conv(%%x, %%w1) @n_c\n"
           "  %%d = Add(%%b, %%other) @n_d\n"
           "  %%e = Add(%%b, %%c) @n_e\n"
           "  out %%d\n  out %%e\n");
    ir_graph *g = run(w, &a, "block-channels");
    assert_int_equal(pass_check_count(g, "tacit.BlockedConv"), 3);
    assert_int_equal(pass_check_count(g, "tacit.Block"), 2);   /* x and s */
    assert_int_equal(pass_check_count(g, "tacit.Unblock"), 3); /* a, b and e */
    arena_free(&a);
}

static void left_alone(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    writer *w = begin(3);
    put(w, "  in %%x : f32[1,16,6,6]\n  in %%free : f32[16,16,1,1]\n");
    constant(w, "w1", "16,16,1,1", 256, -0.5);
    constant(w, "few", "5,16,1,1", 80, -0.5);
    put(w, "  %%a = Conv(%%x, %%w1) @n_a\n  %%b = Conv(%%a, %%few) @n_b\n  %%c = Conv(%%a, %%free) "
           "@n_c\n"
           "  out %%b\n  out %%c\n");
    ir_graph *g = run(w, &a, "block-channels"); /* one that suits is too few */
    assert_int_equal(pass_check_count(g, "Conv"), 3);
    arena_free(&a);
}

/* Written out again, the ops are plain ones with the same answer. */
static void decomposed(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    writer *w = begin(4);
    put(w, "  in %%x : f32[1,3,9,9]\n");
    constant(w, "w1", "24,3,3,3", 24 * 27, -0.5);
    constant(w, "w2", "16,24,1,1", 16 * 24, -0.5);
    put(w,
        "  %%a = Conv(%%x, %%w1) pads=[1, 1, 1, 1] @n_a\n  %%p = MaxPool(%%a) kernel_shape=[2, 2] "
        "strides=[2, 2] @n_p\n  %%b = Conv(%%p, %%w2) @n_b\n  %%y = Add(%%b, %%b) @n_y\n  out "
        "%%y\n");
    ir_graph *g = run(w, &a, "block-channels");
    tacit_error err = {0};
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        ir_node *n = g->nodes.data[i];
        if (n->type && strcmp(n->domain, "tacit") == 0)
            assert_int_equal(n->op->decompose(g, n, &err), TACIT_OK);
    }
    assert_int_equal(ir_graph_sort(g, &err), TACIT_OK); /* sweeps what was taken apart */
    pass_check_prepare(g);
    assert_int_equal(pass_check_count(g, "Conv"), 2);
    assert_int_equal(pass_check_count(g, "MaxPool"), 1);
    assert_int_equal(pass_check_count(g, "tacit.BlockedConv"), 0);
    ir_graph *again = pass_check_run(g, NULL, NULL, 1e-4, NULL);
    assert_int_equal(pass_check_count(again, "tacit.BlockedConv"), 2);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_region),
        cmocka_unit_test(edges),
        cmocka_unit_test(left_alone),
        cmocka_unit_test(decomposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
