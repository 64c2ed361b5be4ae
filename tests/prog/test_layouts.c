/* SPDX-License-Identifier: Apache-2.0
 * Every conformance case again with its inputs made by other nodes: once as dying arena values, so
 * that nodes may work in place, once as strided views, so that kernels meet strides or get copies.
 * And once by the interpreter with kernels. Results must be those of the reference. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <unistd.h>

#include <cmocka.h>

#include "api/compare.h"
#include "api/internal.h"
#include "prog/eager.h"
#include "support/suite.h"

static tacit_status copy_eval(op_eval *c)
{
    return op_eval_copy(c, op_out(c, 0), op_in(c, 0));
}
/* A copy that no planner may turn into a view. */
static const op_def copy_row = {.name = "Copy",
                                .domain = "test",
                                .min_in = 1,
                                .max_in = 1,
                                .min_out = 1,
                                .max_out = 1,
                                .infer = op_infer_same,
                                .eval = copy_eval};

static tacit_status turn_infer(op_infer *c)
{
    c->out[0] = *c->in[0];
    int32_t rank = c->in[0]->shape.rank;
    for (int32_t d = 0; d < rank; d++)
        c->out[0].shape.dims[d] = c->in[0]->shape.dims[rank - 1 - d];
    return TACIT_OK;
}
/* All axes reversed, dense. */
static tacit_status turn_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    int64_t index[IR_MAX_RANK] = {0}, strides[IR_MAX_RANK];
    int32_t rank = x->shape.rank;
    ir_shape_strides(&x->shape, strides);
    for (int64_t i = 0, n = ir_tensor_count(y); i < n; i++) {
        int64_t from = 0;
        for (int32_t d = 0; d < rank; d++)
            from += index[d] * strides[rank - 1 - d];
        ir_copy_element(y->dtype, y->data, i, x->data, from);
        for (int32_t d = rank; d-- > 0 && ++index[d] == y->shape.dims[d];)
            index[d] = 0;
    }
    return TACIT_OK;
}
static const op_def turn_row = {.name = "Turn",
                                .domain = "test",
                                .min_in = 1,
                                .max_in = 1,
                                .min_out = 1,
                                .max_out = 1,
                                .infer = turn_infer,
                                .eval = turn_eval};

typedef struct sweep {
    uint32_t cases, planned, eager, wrong;
} sweep;

typedef struct one_case {
    arena memory;
    const ir_graph *graph;
    const ir_tensor **inputs;
    ir_tensor *expected;
    file_map maps[32];
    uint32_t n_maps;
    tacit_error err;
} one_case;

static bool is_plain(const ir_value *v)
{
    return v->type.kind == IR_TENSOR && v->type.dtype != TACIT_STRING;
}

static bool read_inputs(one_case *c, const char *folder)
{
    const ir_graph *g = c->graph;
    c->inputs = ARENA_ARRAY(&c->memory, g->inputs.count + 1u, const ir_tensor *);
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        char path[4200];
        ir_tensor *t = ARENA_NEW(&c->memory, ir_tensor);
        snprintf(path, sizeof path, "%s/test_data_set_0/input_%u.pb", folder, i);
        if (!is_plain(g->inputs.data[i]) || c->n_maps == 32 ||
            file_map_open(&c->maps[c->n_maps], path, &c->err) != TACIT_OK)
            return false;
        const file_map *m = &c->maps[c->n_maps++];
        if (load_onnx_value(m->data, m->size, IR_TENSOR, &c->memory, t, &c->err) != TACIT_OK)
            return false;
        c->inputs[i] = t;
    }
    return true;
}

/* A copy of the graph whose inputs have the types that are given. */
static ir_graph *typed_clone(one_case *c)
{
    ir_graph *g = ir_graph_clone(c->graph, &c->memory);
    for (uint32_t i = 0; i < g->inputs.count; i++)
        g->inputs.data[i]->type = ir_tensor_type(c->inputs[i]);
    return g;
}

static void read_instead(ir_graph *g, uint32_t n_nodes, const ir_value *x, ir_value *instead)
{
    for (uint32_t i = 0; i < n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes.data[i]->n_inputs; k++)
            if (g->nodes.data[i]->inputs[k] == x)
                g->nodes.data[i]->inputs[k] = instead;
}

static void make_inputs(ir_graph *g, bool strided)
{
    uint32_t n_nodes = g->nodes.count;
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        ir_value *x = g->inputs.data[i];
        int32_t rank = x->type.shape.rank;
        bool turn = strided && rank > 1;
        const op_def *row = turn ? &turn_row : &copy_row;
        ir_node *n = ir_node_new(g, row->name, "test", NULL, 1, &x, 1, NULL);
        n->op = row;
        ir_value *made = n->outputs[0];
        if (turn) {
            int64_t perm[IR_MAX_RANK];
            for (int32_t d = 0; d < rank; d++)
                perm[d] = rank - 1 - d;
            n = op_node(g, "Transpose", NULL, 1, &made);
            assert_true(ir_attr_set_ints(g, n, "perm", (uint32_t)rank, perm));
            made = n->outputs[0];
        }
        read_instead(g, n_nodes, x, made);
    }
}

static tacit_status run_variant(one_case *c, bool strided, bool parallel, sweep *s)
{
    ir_graph *g = typed_clone(c);
    make_inputs(g, strided);
    TRY(ir_graph_sort(g, &c->err));
    TRY(op_infer_graph(g, &c->err));
    prog_program *p = NULL;
    prog_session *session = NULL;
    prog_options options = {.plan = parallel ? TACIT_PLAN_MIN_TIME : TACIT_PLAN_MIN_MEMORY};
    TRY(prog_build(g, &options, &p, &c->err));
    s->planned += p->n_nodes > g->inputs.count;
    ir_tensor *got = ARENA_ARRAY(&c->memory, g->outputs.count + 1u, ir_tensor);
    tacit_status status = prog_session_create(p, &session, &c->err);
    if (status == TACIT_OK)
        status = prog_run_values(session, c->inputs, got, &c->memory, &c->err);
    for (uint32_t i = 0; status == TACIT_OK && i < g->outputs.count; i++)
        status = compare_values(&c->expected[i], &got[i], &c->err);
    prog_session_free(session);
    prog_free(p);
    return status;
}

/* By the interpreter, but with kernels for every node that has some. */
static tacit_status run_eager(one_case *c, sweep *s)
{
    ir_graph *g = typed_clone(c);
    TRY(ir_graph_sort(g, &c->err));
    eager_cache *cache = eager_open(&(prog_options){0}, 0);
    interp_env env = {.eager = cache};
    ir_tensor *got = ARENA_ARRAY(&c->memory, g->outputs.count + 1u, ir_tensor);
    tacit_status status = interp_run_env(g, c->inputs, got, &c->memory, &env, &c->err);
    for (uint32_t i = 0; status == TACIT_OK && i < g->outputs.count; i++)
        status = compare_values(&c->expected[i], &got[i], &c->err);
    s->eager += eager_builds(cache);
    eager_free(cache);
    return status;
}

static bool is_random(const ir_graph *g)
{
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (g->nodes.data[i]->op && g->nodes.data[i]->op->flags & OP_RANDOM)
            return true;
    return false;
}

static void visit(void *context, const char *path)
{
    sweep *s = context;
    one_case c = {0};
    tacit_model *m = NULL;
    char folder[4096];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (!strstr(folder, "/node/") || tacit_model_load(path, NULL, &m, &c.err) != TACIT_OK)
        return;
    arena_init(&c.memory, NULL);
    c.graph = api_model_graph(m);
    c.expected = ARENA_ARRAY(&c.memory, c.graph->outputs.count + 1u, ir_tensor);
    ir_graph *plain = NULL;
    if (!is_random(c.graph) && read_inputs(&c, folder) && (plain = typed_clone(&c)) &&
        ir_graph_sort(plain, &c.err) == TACIT_OK && op_infer_graph(plain, &c.err) == TACIT_OK &&
        interp_run(plain, c.inputs, c.expected, &c.memory, 0, &c.err) == TACIT_OK) {
        s->cases++;
        for (int v = 0; v < 3; v++) {
            if (run_variant(&c, v == 1, v == 2, s) == TACIT_OK)
                continue;
            if (s->wrong++ < 20)
                printf("%s%s: %s\n", folder, v == 1 ? " (strided)" : " (in place)", c.err.message);
        }
        if (run_eager(&c, s) != TACIT_OK && s->wrong++ < 20)
            printf("%s (eager): %s\n", folder, c.err.message);
    }
    for (uint32_t i = 0; i < c.n_maps; i++)
        file_map_close(&c.maps[i]);
    arena_free(&c.memory);
    tacit_model_free(m);
}

static void every_case_in_place_and_strided(void **state)
{
    (void)state;
    const char *suite = suite_folder();
    if (!suite)
        skip();
    sweep s = {0};
    (void)suite_each_model(suite, visit, &s);
    printf("%u cases, %u planned runs, %u nodes lowered while running, %u wrong\n", s.cases,
           s.planned, s.eager, s.wrong);
    assert_int_equal(s.wrong, 0);
    assert_true(s.cases > 1200 && s.planned > 3000 && s.eager > 900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_in_place_and_strided),
    };
    return cmocka_run_group_tests_name("layouts", tests, NULL, NULL);
}
