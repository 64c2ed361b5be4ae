/* SPDX-License-Identifier: Apache-2.0
 * Graphs from text, run by the reference in double: what the tests of the transforms share. */
#ifndef TESTS_DIFF_HARNESS_H
#define TESTS_DIFF_HARNESS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "diff/diff.h"
#include "ir/text.h"
#include "prog/interp.h"
#include "support/splitmix.h"

static inline void harness_resolve(ir_graph *g);
static inline tacit_status harness_resolve_body(void *context, ir_graph *sub)
{
    (void)context;
    harness_resolve(sub);
    return TACIT_OK;
}
/* Rows for all nodes, also those of subgraphs. */
static inline void harness_resolve(ir_graph *g)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        op_resolve(NULL, g->nodes.data[i]);
        assert_int_equal(ir_node_subgraphs(g->nodes.data[i], harness_resolve_body, NULL), TACIT_OK);
    }
}

enum { HARNESS_MOST = 16 };

/* A parsed, resolved, inferred graph. `body` is what stands between the braces. */
static inline ir_graph *harness_graph(arena *a, const char *body)
{
    tacit_error err = {0};
    ir_graph *g;
    const char *text = arena_printf(a, "tacit 1\ngraph \"g\" {\n%s\n}\n", body);
    if (ir_graph_parse(text, strlen(text), a, &g, &err) != TACIT_OK)
        print_error("%s in\n%s", err.message, text), fail();
    harness_resolve(g);
    if (ir_graph_sort(g, &err) != TACIT_OK || op_infer_graph(g, &err) != TACIT_OK)
        print_error("%s in\n%s", err.message, text), fail();
    return g;
}

static inline ir_tensor *harness_random(arena *a, const ir_type *type, rng *r, double low,
                                        double high)
{
    ir_tensor *t = ir_tensor_new(a, type->dtype, &type->shape);
    assert_non_null(t);
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        if (ir_dtype_is_float(t->dtype))
            ir_store_f64(t->dtype, t->data, i, rng_range(r, low, high));
        else
            ir_store_i64(t->dtype, t->data, i, (int64_t)rng_below(r, 2));
    }
    return t;
}

/* Runs; `inputs` by the graph's input order. */
static inline ir_tensor *harness_run(arena *a, const ir_graph *g, const ir_tensor *const *inputs)
{
    tacit_error err = {0};
    ir_tensor *out = ARENA_ARRAY(a, g->outputs.count + 1u, ir_tensor);
    if (interp_run(g, inputs, out, a, 0, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return out;
}

static inline double harness_dot(const ir_tensor *a, const ir_tensor *b)
{
    double sum = 0;
    for (int64_t i = 0, n = ir_tensor_count(a); i < n; i++)
        sum += ir_load_f64(a->dtype, a->data, i) * ir_load_f64(b->dtype, b->data, i);
    return sum;
}

static inline uint32_t harness_input(const ir_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->inputs.count; i++)
        if (strcmp(g->inputs.data[i]->name, name) == 0)
            return i;
    fail_msg("no input %s", name);
    return 0;
}

static inline ir_tensor *harness_tensor(arena *a, const ir_type *type, const double *data)
{
    ir_tensor *t = ir_tensor_new(a, type->dtype, &type->shape);
    assert_non_null(t);
    for (int64_t i = 0; i < ir_tensor_count(t); i++)
        ir_store_f64(t->dtype, t->data, i, data[i]);
    return t;
}

static inline double harness_at(const ir_tensor *t, int64_t i)
{
    return ir_load_f64(t->dtype, t->data, i);
}

static inline void harness_near(const char *what, double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s: %.12g, wanted %.12g", what, got, want);
}

static inline void harness_all_near(const char *what, const ir_tensor *t, const double *want,
                                    double tolerance)
{
    for (int64_t i = 0; i < ir_tensor_count(t); i++)
        harness_near(what, harness_at(t, i), want[i], tolerance);
}

/* The gradient graph of `body`'s first output, run; outputs are the loss, then gradients. `seed`
 * NULL: ones. */
static inline ir_tensor *harness_grad(arena *a, const char *body, uint32_t n,
                                      const char *const *wrt, const double *const *data,
                                      const double *seed)
{
    tacit_error err = {0};
    ir_graph *g = harness_graph(a, body);
    uint32_t inputs = g->inputs.count;
    if (diff_grad(g, n, wrt, &(diff_grad_options){.with_loss = true}, &err) != TACIT_OK ||
        diff_inline_functions(g, NULL, NULL, &err) != TACIT_OK) /* as compiling does */
        fail_msg("%s", err.message);
    const ir_tensor *all[HARNESS_MOST];
    for (uint32_t i = 0; i < inputs; i++)
        all[i] = harness_tensor(a, &g->inputs.data[i]->type, data[i]);
    double ones[256];
    for (int i = 0; i < 256; i++)
        ones[i] = 1;
    assert_string_equal(g->inputs.data[inputs]->name, "d_output");
    all[inputs] = harness_tensor(a, &g->inputs.data[inputs]->type, seed ? seed : ones);
    return harness_run(a, g, all);
}

/* The body with every f32 turned into f64. */
static inline const char *harness_in_double(arena *a, const char *body)
{
    char *copy = arena_printf(a, "%s", body);
    for (char *p = copy; (p = strstr(p, "f32")) != NULL; p += 3)
        memcpy(p, "f64", 3);
    return copy;
}

static inline ir_tensor *harness_jvp(arena *a, const char *body, const char *wrt,
                                     const double *const *data, const double *tangent)
{
    tacit_error err = {0};
    ir_graph *g = harness_graph(a, body);
    uint32_t inputs = g->inputs.count;
    if (diff_jvp(g, 1, &wrt, &err) != TACIT_OK ||
        diff_inline_functions(g, NULL, NULL, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    const ir_tensor *all[HARNESS_MOST];
    for (uint32_t i = 0; i < inputs; i++)
        all[i] = harness_tensor(a, &g->inputs.data[i]->type, data[i]);
    all[inputs] = harness_tensor(a, &g->inputs.data[inputs]->type, tangent);
    return harness_run(a, g, all);
}

/* Gradients against central differences of the loss in double, whatever the body is in. */
static inline void harness_differences(const char *body, uint32_t n, const char *const *wrt,
                                       double *const *data, const double *seed, double tolerance)
{
    arena a;
    arena_init(&a, NULL);
    ir_tensor *got = harness_grad(&a, body, n, wrt, (const double *const *)data, seed);
    ir_graph *g = harness_graph(&a, harness_in_double(&a, body));
    for (uint32_t w = 0; w < n; w++) {
        uint32_t which = harness_input(g, wrt[w]);
        for (int64_t i = 0; i < ir_tensor_count(&got[1 + w]); i++) {
            double keep = data[which][i], value[2];
            for (int side = 0; side < 2; side++) {
                const ir_tensor *all[HARNESS_MOST];
                data[which][i] = keep + (side ? 1e-5 : -1e-5);
                for (uint32_t k = 0; k < g->inputs.count; k++)
                    all[k] = harness_tensor(&a, &g->inputs.data[k]->type, data[k]);
                ir_tensor *out = harness_run(&a, g, all);
                value[side] = 0;
                for (int64_t k = 0; k < ir_tensor_count(&out[0]); k++)
                    value[side] += harness_at(&out[0], k) * (seed ? seed[k] : 1);
            }
            data[which][i] = keep;
            harness_near(wrt[w], harness_at(&got[1 + w], i), (value[1] - value[0]) / 2e-5,
                         tolerance);
        }
    }
    arena_free(&a);
}

static inline void harness_fill(splitmix *s, double *to, int64_t n, double scale)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = scale * (double)splitmix_sym(s);
}

#endif
