/* SPDX-License-Identifier: Apache-2.0
 * What gradients of scans keep and compute again: the body's runs counted by an operator of ours,
 * the memory by an allocator of ours. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tacit/tacit.h"

static tacit_error err;

/* --- counting runs of the body ---------------------------------------------------------------- */

static tacit_status count_infer(void *context, const tacit_custom_call *call, tacit_error *e)
{
    (void)context;
    (void)e;
    call->outputs[0].dtype = call->inputs[0].dtype;
    call->outputs[0].rank = call->inputs[0].rank;
    memcpy(call->outputs[0].dims, call->inputs[0].dims, sizeof call->inputs[0].dims);
    return TACIT_OK;
}

static tacit_status count_run(void *context, const tacit_custom_call *call, tacit_error *e)
{
    (void)e;
    ++*(uint64_t *)context;
    memcpy(call->outputs[0].data, call->inputs[0].data, call->inputs[0].bytes);
    return TACIT_OK;
}

/* The identity: its cotangent passes through. */
static tacit_status count_vjp(void *context, const tacit_custom_rule *rule, tacit_error *e)
{
    (void)context;
    (void)e;
    rule->results[0] = rule->seeds[0];
    return TACIT_OK;
}

/* T(s) of the notes: how often the body runs again for a segment of s steps. */
static uint64_t again(uint64_t s)
{
    return s == 1 ? 0 : s <= 4 ? s - 1 : s / 2 + again((s + 1) / 2) + again(s / 2);
}

/* --- counting bytes --------------------------------------------------------------------------- */

typedef struct meter {
    size_t now, most;
} meter;

static void *meter_alloc(void *context, size_t size, size_t align)
{
    meter *m = context;
    void *p = aligned_alloc(align, (size + align - 1) / align * align);
    m->now += p ? size : 0;
    m->most = m->now > m->most ? m->now : m->most;
    return p;
}

static void meter_release(void *context, void *memory, size_t size)
{
    ((meter *)context)->now -= memory ? size : 0;
    free(memory);
}

/* --- a scan ----------------------------------------------------------------------------------- */

static int64_t carry_width; /* elements of the carry */

/* c' = count(c)·x + 0.1·c² for a vector c and a number x. The gradient reads count(c): it runs once
 * a step there too. */
static tacit_model *body(const tacit_load_options *o)
{
    tacit_builder *b;
    tacit_model *m;
    int64_t width = carry_width, one = 1;
    double tenth = 0.1;
    assert_int_equal(tacit_builder_create("body", o, &b, &err), TACIT_OK);
    tacit_value c = tacit_builder_input(b, "c", TACIT_F64, 1, &width, NULL);
    tacit_value x = tacit_builder_input(b, "x", TACIT_F64, 1, &one, NULL);
    tacit_value k = tacit_builder_constant(b, "k", TACIT_F64, 0, NULL, &tenth);
    tacit_value seen = o ? tacit_builder_node(b, "test.Count", 1, &c, 1, NULL) : c;
    tacit_value p = tacit_builder_node(b, "Mul", 2, (tacit_value[]){seen, x}, 1, NULL);
    tacit_value q = tacit_builder_node(b, "Mul", 2, (tacit_value[]){c, c}, 1, NULL);
    q = tacit_builder_node(b, "Mul", 2, (tacit_value[]){q, k}, 1, NULL);
    tacit_builder_output(b, "next",
                         tacit_builder_node(b, "Add", 2, (tacit_value[]){p, q}, 1, NULL));
    if (tacit_builder_finish(b, &m, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_builder_free(b);
    return m;
}

/* Loss Σ of the last carry; checkpoints 0: all carries are kept. */
static tacit_model *scan(int64_t length, int64_t checkpoints, int recursive,
                         const tacit_load_options *o, const tacit_model *inner)
{
    tacit_builder *b;
    tacit_model *m;
    int64_t width = carry_width, rows[2] = {length, 1};
    assert_int_equal(tacit_builder_create("scan", o, &b, &err), TACIT_OK);
    tacit_value in[2] = {tacit_builder_input(b, "init", TACIT_F64, 1, &width, NULL),
                         tacit_builder_input(b, "xs", TACIT_F64, 2, rows, NULL)};
    tacit_value out[1], last = tacit_builder_scan(b, inner, 1, 1, 0, in, 1, out);
    if (checkpoints)
        tacit_builder_attr_int(b, "checkpoints", checkpoints);
    if (recursive)
        tacit_builder_attr_int(b, "recursive", 1);
    tacit_value loss = tacit_builder_node(b, "ReduceSum", 1, &last, 1, NULL);
    tacit_builder_attr_int(b, "keepdims", 0);
    tacit_builder_output(b, "loss", loss);
    if (tacit_builder_finish(b, &m, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_builder_free(b);
    return m;
}

typedef struct result {
    double *dinit, *dxs;
    uint64_t runs; /* of the body, forwards and again */
    size_t extra;  /* most bytes beyond those held before the run */
} result;

static result gradient(int64_t length, int64_t checkpoints, int recursive, bool counting,
                       uint32_t wanted)
{
    uint64_t runs = 0;
    meter bytes = {0};
    tacit_allocator allocator = {meter_alloc, meter_release, &bytes};
    tacit_custom_op op = {.domain = "test",
                          .name = "Count",
                          .min_inputs = 1,
                          .max_inputs = 1,
                          .n_outputs = 1,
                          .context = &runs,
                          .infer = count_infer,
                          .run = count_run,
                          .vjp = count_vjp};
    const tacit_custom_op *ops[] = {&op};
    tacit_load_options o = {.allocator = &allocator, .custom_ops = ops, .n_custom_ops = 1};
    if (!counting)
        o = (tacit_load_options){.allocator = &allocator};
    tacit_model *inner = body(counting ? &o : NULL);
    tacit_model *m = scan(length, checkpoints, recursive, &o, inner), *g = NULL;
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    tacit_grad_options grad = {.with_loss = 1, .seed_ones = 1};
    const char *both[] = {"init", "xs"};
    if (tacit_grad(m, wanted, both, &grad, &g, &err) != TACIT_OK ||
        tacit_compile(g, NULL, &p, &err) != TACIT_OK ||
        tacit_session_create(p, &s, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    size_t row = (size_t)carry_width * sizeof(double);
    size_t column = (size_t)length * sizeof(double);
    result r = {.dinit = malloc(row), .dxs = malloc(column)};
    double *init = malloc(row), *xs = malloc(column);
    assert_true(r.dinit && r.dxs && init && xs);
    for (int64_t i = 0; i < carry_width; i++)
        init[i] = 0.5 + 0.001 * (double)(i % 100);
    for (int64_t i = 0; i < length; i++)
        xs[i] = 0.7 + 0.2 * sin((double)i);
    tacit_tensor in[2] = {{.name = "init",
                           .dtype = TACIT_F64,
                           .rank = 1,
                           .dims = {carry_width},
                           .data = init,
                           .bytes = row},
                          {.name = "xs",
                           .dtype = TACIT_F64,
                           .rank = 2,
                           .dims = {length, 1},
                           .data = xs,
                           .bytes = column}};
    double loss;
    tacit_tensor out[3] = {{.dtype = TACIT_F64, .data = &loss, .bytes = sizeof loss}, in[0], in[1]};
    out[1].name = out[2].name = NULL;
    out[1].data = r.dinit;
    out[2].data = r.dxs;
    size_t before = bytes.most = bytes.now;
    runs = 0;
    if (tacit_run(s, in, 2, out, 1 + wanted, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    r.runs = runs;
    r.extra = bytes.most - before;
    free(init);
    free(xs);
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(g);
    tacit_model_free(m);
    tacit_model_free(inner);
    return r;
}

static void release(result *r)
{
    free(r->dinit);
    free(r->dxs);
}

static void same(const result *a, const result *b, int64_t length)
{
    for (int64_t i = 0; i < carry_width; i++)
        assert_true(fabs(a->dinit[i] - b->dinit[i]) <= 1e-12 * (1 + fabs(a->dinit[i])));
    for (int64_t i = 0; i < length; i++)
        assert_true(fabs(a->dxs[i] - b->dxs[i]) <= 1e-12 * (1 + fabs(a->dxs[i])));
}

/* --- the assertions --------------------------------------------------------------------------- */

/* Steps of piece k: it ends after step ceil((k+1)·L/K) − 1. */
static uint64_t piece(int64_t length, int64_t pieces, int64_t k)
{
    return (uint64_t)(((k + 1) * length + pieces - 1) / pieces -
                      (k * length + pieces - 1) / pieces);
}

/* Forwards once, again as promised, and once a step in the gradient; all xs in one sweep. */
static void runs_of_the_body(void **state)
{
    (void)state;
    carry_width = 16;
    static const int64_t lengths[] = {5, 6, 8, 16, 20, 64, 100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int64_t length = lengths[i];
        result all = gradient(length, 0, 0, true, 2);
        assert_int_equal(all.runs, 2 * length);
        for (int64_t k = 1; k <= 5; k += 2) {
            uint64_t once = 0, halved = 0;
            for (int64_t j = 0; j < k; j++) {
                once += piece(length, k, j) - 1;
                halved += again(piece(length, k, j));
            }
            result few = gradient(length, k, 0, true, 2), tree = gradient(length, k, 1, true, 2);
            result init = gradient(length, k, 1, true, 1);
            assert_int_equal(few.runs, 2 * (uint64_t)length + once);
            assert_int_equal(tree.runs, 2 * (uint64_t)length + halved);
            assert_int_equal(init.runs, tree.runs);
            same(&all, &few, length);
            same(&all, &tree, length);
            release(&few);
            release(&tree);
            release(&init);
        }
        release(&all);
    }
    assert_int_equal(again(8), 10);
    assert_int_equal(again(64), 176);
    assert_int_equal(again(1000), 4700);
}

/* Carries held at once: all, those between pieces and of one piece, one per level and a leaf. */
static void memory_is_bounded(void **state)
{
    (void)state;
    enum { LENGTH = 256, PIECES = 16, SLACK = 24 };
    carry_width = 8192; /* so that tables and slices of xs do not count */
    size_t row = (size_t)carry_width * sizeof(double);
    result all = gradient(LENGTH, 0, 0, false, 1);
    result few = gradient(LENGTH, PIECES, 0, false, 1), tree = gradient(LENGTH, 1, 1, false, 1);
    if (all.extra < LENGTH * row)
        fail_msg("a full trajectory in %zu rows", all.extra / row);
    /* The rows of a piece: in a list, stacked, and behind the first. */
    if (few.extra > (PIECES + 4 * LENGTH / PIECES + SLACK) * row)
        fail_msg("%d checkpoints: %zu rows of carries", PIECES, few.extra / row);
    if (tree.extra > (2 * 8 + 4 + SLACK) * row) /* log2 of the length: 8 */
        fail_msg("recursive: %zu rows of carries", tree.extra / row);
    for (int64_t i = 0; i < carry_width; i++) {
        assert_true(fabs(all.dinit[i] - few.dinit[i]) <= 1e-12 * (1 + fabs(all.dinit[i])));
        assert_true(fabs(all.dinit[i] - tree.dinit[i]) <= 1e-12 * (1 + fabs(all.dinit[i])));
    }
    release(&all);
    release(&few);
    release(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_of_the_body),
        cmocka_unit_test(memory_is_bounded),
    };
    return cmocka_run_group_tests_name("what gradients of scans keep", tests, NULL, NULL);
}
