/* SPDX-License-Identifier: Apache-2.0
 * Graphs from text, run by the reference in double: what the tests of the transforms share. */
#ifndef TESTS_DIFF_HARNESS_H
#define TESTS_DIFF_HARNESS_H

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

/* A parsed, resolved, inferred graph. `body` is what stands between the braces. */
static inline ir_graph *harness_graph(arena *a, const char *body)
{
    tacit_error err = {0};
    ir_graph *g;
    const char *text = arena_printf(a, "tacit 1\ngraph \"g\" {\n%s\n}\n", body);
    if (ir_graph_parse(text, strlen(text), a, &g, &err) != TACIT_OK)
        fail_msg("%s in\n%s", err.message, text);
    for (uint32_t i = 0; i < g->nodes.count; i++)
        op_resolve(NULL, g->nodes.data[i]);
    if (ir_graph_sort(g, &err) != TACIT_OK || op_infer_graph(g, &err) != TACIT_OK)
        fail_msg("%s in\n%s", err.message, text);
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

#endif
