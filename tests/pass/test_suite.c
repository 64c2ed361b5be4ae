/* SPDX-License-Identifier: Apache-2.0
 * Every conformance model the interpreter can run gives the same answer after all passes and after
 * each pass alone. Without the data the test says so and checks nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/compare.h"
#include "load/load.h"
#include "pass/pass.h"
#include "prog/interp.h"
#include "support/suite.h"

enum { MAX_PORTS = 64, MAX_WEIGHTS = 1 << 22 };

typedef struct tally {
    uint32_t models, runs, skipped, changed;
} tally;

typedef struct model {
    arena memory;
    file_map map, data[MAX_PORTS];
    uint32_t n_data;
    load_files files;
    ir_graph *graph;
    const ir_tensor *in[MAX_PORTS];
    ir_tensor *want;
    tacit_error err;
} model;

static bool is_random(const ir_graph *g);

static tacit_status find_random(void *context, ir_graph *sub)
{
    *(bool *)context |= is_random(sub);
    return TACIT_OK;
}

static bool is_random(const ir_graph *g)
{
    bool random = false;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        random |= n->op && n->op->flags & OP_RANDOM;
        if (ir_node_subgraphs(n, find_random, &random) != TACIT_OK)
            return true;
    }
    return random;
}

static bool read_inputs(model *m, const char *path)
{
    const char *folder = arena_strndup(&m->memory, path, (size_t)(strrchr(path, '/') - path));
    ir_graph *g = m->graph;
    if (g->inputs.count > MAX_PORTS)
        return false;
    for (uint32_t k = 0; k < g->inputs.count; k++) {
        char name[4096];
        snprintf(name, sizeof name, "%s/test_data_set_0/input_%u.pb", folder, k);
        ir_tensor *t = ARENA_NEW(&m->memory, ir_tensor);
        if (file_map_open(&m->data[m->n_data], name, &m->err) != TACIT_OK)
            return false;
        const file_map *f = &m->data[m->n_data++];
        if (!t || load_onnx_value(f->data, f->size, g->inputs.data[k]->type.kind, &m->memory, t,
                                  &m->err) != TACIT_OK)
            return false;
        m->in[k] = t;
        if (t->kind == IR_TENSOR) /* symbols are bound by what is fed */
            g->inputs.data[k]->type = ir_tensor_type(t);
    }
    return true;
}

static bool small(const ir_graph *g)
{
    size_t total = 0;
    for (uint32_t i = 0; i < g->values.count; i++)
        total += g->values.data[i]->constant ? g->values.data[i]->constant->bytes : 0;
    return total <= MAX_WEIGHTS;
}

/* Loaded, typed and run once as it is; false when something of that is not supported. */
static bool prepare(model *m, const char *path)
{
    if (file_map_open(&m->map, path, &m->err) != TACIT_OK)
        return false;
    load_options o = {.name = path, .map = &m->map};
    if (load_onnx(m->map.data, m->map.size, &o, &m->memory, &m->files, &m->graph, &m->err) !=
            TACIT_OK ||
        !read_inputs(m, path) || !small(m->graph) || is_random(m->graph) ||
        ir_graph_sort(m->graph, &m->err) != TACIT_OK)
        return false;
    m->want = ARENA_ARRAY(&m->memory, m->graph->outputs.count + 1u, ir_tensor);
    if (!m->want || interp_run(m->graph, m->in, m->want, &m->memory, 0, &m->err) != TACIT_OK)
        return false;
    return op_infer_graph(m->graph, &m->err) == TACIT_OK;
}

static void check(model *m, const char *path, const char *only, tally *t)
{
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    pass_report report;
    ir_graph *g = ir_graph_clone(m->graph, &a);
    ir_tensor *got = ARENA_ARRAY(&a, m->graph->outputs.count + 1u, ir_tensor);
    assert_true(g && got);
    pass_options options = {.only = only};
    const char *what = only ? only : "all passes";
    if (pass_pipeline(g, &options, &a, &report, &err) != TACIT_OK)
        fail_msg("%s with %s: %s", path, what, err.message);
    t->runs++;
    t->changed += report.changes.count > 0;
    if (report.changes.count || !only) {
        if (interp_run(g, m->in, got, &a, 0, &err) != TACIT_OK)
            fail_msg("%s after %s: %s", path, what, err.message);
        for (uint32_t i = 0; i < g->outputs.count; i++) {
            assert_string_equal(g->outputs.data[i]->name, m->graph->outputs.data[i]->name);
            if (compare_values(&m->want[i], &got[i], &err) != TACIT_OK)
                fail_msg("%s after %s: output '%s': %s", path, what, g->outputs.data[i]->name,
                         err.message);
        }
    }
    arena_free(&a);
}

static void visit(void *context, const char *path)
{
    tally *t = context;
    const char *one = getenv("TACIT_CASE");
    if (one && !strstr(path, one))
        return;
    model m = {0};
    arena_init(&m.memory, NULL);
    t->models++;
    if (prepare(&m, path)) {
        check(&m, path, NULL, t);
        for (uint32_t i = 0; pass_at(i); i++)
            if (!pass_at(i)->required)
                check(&m, path, pass_at(i)->name, t);
    } else {
        if (one)
            print_message("%s: %s\n", path, m.err.message);
        t->skipped++;
    }
    load_files_close(&m.files);
    arena_free(&m.memory);
    for (uint32_t i = 0; i < m.n_data; i++)
        file_map_close(&m.data[i]);
    file_map_close(&m.map);
}

static void answers_do_not_change(void **state)
{
    (void)state;
    const char *folder = suite_folder();
    if (!folder)
        skip();
    tally t = {0};
    suite_each_model(folder, visit, &t);
    print_message("%u models, %u not run, %u runs of passes, %u of them changed the graph\n",
                  t.models, t.skipped, t.runs, t.changed);
    assert_true(t.models > 0);
    assert_true(getenv("TACIT_CASE") || t.skipped < t.models / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers_do_not_change)};
    return cmocka_run_group_tests_name("passes on the conformance suite", tests, NULL, NULL);
}
