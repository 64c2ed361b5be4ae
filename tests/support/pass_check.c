/* SPDX-License-Identifier: Apache-2.0 */
#include "support/pass_check.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ir/text.h"
#include "prog/interp.h"

static void must(tacit_status status, const tacit_error *err)
{
    if (status != TACIT_OK)
        fail_msg("%s", err->message);
}

static tacit_status resolve(void *context, ir_graph *g)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        op_resolve(NULL, g->nodes.data[i]);
        TRY(ir_node_subgraphs(g->nodes.data[i], resolve, context));
    }
    return TACIT_OK;
}

void pass_check_prepare(ir_graph *g)
{
    tacit_error err = {0};
    must(resolve(NULL, g), &err);
    must(ir_graph_sort(g, &err), &err);
    must(op_infer_graph(g, &err), &err);
}

ir_graph *pass_check_parse(arena *a, const char *text, size_t length)
{
    tacit_error err = {0};
    ir_graph *g = NULL;
    must(ir_graph_parse(text, length, a, &g, &err), &err);
    pass_check_prepare(g);
    return g;
}

static ir_tensor *random_tensor(arena *a, const ir_type *type, rng *r)
{
    ir_tensor *t = ir_tensor_new(a, type->dtype, &type->shape);
    assert_non_null(t);
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        if (ir_dtype_is_float(t->dtype))
            ir_store_f64(t->dtype, t->data, i, rng_range(r, -2, 2));
        else
            ir_store_i64(t->dtype, t->data, i, (int64_t)rng_below(r, 2));
    }
    return t;
}

static void compare(const ir_value *v, const ir_tensor *want, const ir_tensor *got,
                    double tolerance)
{
    assert_int_equal(want->dtype, got->dtype);
    assert_true(ir_shape_equal(&want->shape, &got->shape));
    for (int64_t i = 0, n = ir_tensor_count(want); i < n; i++) {
        double x = ir_load_f64(want->dtype, want->data, i);
        double y = ir_load_f64(got->dtype, got->data, i);
        double size = fabs(x) > 1 ? fabs(x) : 1;
        if (!(fabs(x - y) <= tolerance * size) && !(isnan(x) && isnan(y)) && x != y)
            fail_msg("output '%s' element %lld: %.9g before the passes, %.9g after", v->name,
                     (long long)i, x, y);
    }
}

static void check_equal(const ir_graph *before, const ir_graph *after, double tolerance)
{
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    rng r = rng_seed(before->nodes.count + 1);
    uint32_t n = before->inputs.count, m = before->outputs.count;
    const ir_tensor **in = ARENA_ARRAY(&a, n + 1u, const ir_tensor *);
    ir_tensor *want = ARENA_ARRAY(&a, m + 1u, ir_tensor);
    ir_tensor *got = ARENA_ARRAY(&a, m + 1u, ir_tensor);
    assert_int_equal(after->inputs.count, n);
    assert_int_equal(after->outputs.count, m);
    for (uint32_t i = 0; i < n; i++)
        in[i] = random_tensor(&a, &before->inputs.data[i]->type, &r);
    must(interp_run(before, in, want, &a, 0, &err), &err);
    must(interp_run(after, in, got, &a, 0, &err), &err);
    for (uint32_t i = 0; i < m; i++) {
        assert_string_equal(before->outputs.data[i]->name, after->outputs.data[i]->name);
        compare(before->outputs.data[i], &want[i], &got[i], tolerance);
    }
    arena_free(&a);
}

/* What the passes promise: sorted, and every type as inference would find it. */
static void check_types(ir_graph *g)
{
    tacit_error err = {0};
    arena a;
    arena_init(&a, NULL);
    ir_graph *copy = ir_graph_clone(g, &a);
    assert_non_null(copy);
    must(op_infer_graph(copy, &err), &err);
    for (uint32_t i = 0; i < g->nodes.count; i++)
        for (uint32_t k = 0; k < g->nodes.data[i]->n_outputs; k++) {
            const ir_value *v = g->nodes.data[i]->outputs[k];
            if (v && !ir_type_equal(&v->type, &copy->nodes.data[i]->outputs[k]->type))
                fail_msg("the type of '%s' is not what inference says", v->name);
        }
    arena_free(&a);
}

ir_graph *pass_check_run(const ir_graph *g, const char *only, const char *disabled,
                         double tolerance, pass_report *report)
{
    tacit_error err = {0};
    pass_report mine;
    ir_graph *after = ir_graph_clone(g, g->memory);
    assert_non_null(after);
    pass_options options = {.only = only, .disabled = &disabled, .n_disabled = disabled ? 1 : 0};
    must(pass_pipeline(after, &options, g->memory, report ? report : &mine, &err), &err);
    check_types(after);
    check_equal(g, after, tolerance);
    return after;
}

static bool is_type(const ir_node *n, const char *type)
{
    char full[128];
    snprintf(full, sizeof full, "%s%s%s", n->domain, *n->domain ? "." : "", n->type);
    return strcmp(full, type) == 0;
}

uint32_t pass_check_count(const ir_graph *g, const char *type)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < g->nodes.count; i++)
        count += is_type(g->nodes.data[i], type);
    return count;
}

ir_node *pass_check_find(const ir_graph *g, const char *type)
{
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (is_type(g->nodes.data[i], type))
            return g->nodes.data[i];
    fail_msg("no %s in the graph", type);
    return NULL;
}

bool pass_check_noted(const ir_graph *g, const char *text)
{
    for (uint32_t i = 0; i < g->nodes.count; i++)
        for (const ir_note *n = g->nodes.data[i]->notes; n; n = n->next)
            if (strstr(n->text, text))
                return true;
    return false;
}
