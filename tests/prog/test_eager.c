/* SPDX-License-Identifier: Apache-2.0
 * Kernels under the interpreter: behind shapes that only the data tell, in bodies of loops; built
 * once where types stay, again where they change, left alone where nothing is gained. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "api/compare.h"
#include "ir/text.h"
#include "prog/eager.h"
#include "support/splitmix.h"

enum { ROWS = 24, WIDTH = 48 };

typedef struct fixture {
    arena memory;
    ir_graph *graph;
    prog_program *program;
    prog_session *session;
    tacit_error err;
} fixture;

static void need(const fixture *f, tacit_status status)
{
    if (status != TACIT_OK)
        fail_msg("%s", f->err.message);
}

static tacit_status resolve(void *context, ir_graph *g)
{
    (void)context;
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        op_resolve(NULL, g->nodes.data[i]);
        TRY(ir_node_subgraphs(g->nodes.data[i], resolve, NULL));
    }
    return TACIT_OK;
}

static ir_tensor *random_tensor(arena *a, uint64_t seed, int64_t rows, int64_t columns)
{
    ir_shape shape = ir_shape_of(2, (int64_t[]){rows, columns});
    ir_tensor *t = ir_tensor_new(a, TACIT_F32, &shape);
    splitmix s = {seed};
    for (int64_t i = 0; i < rows * columns; i++)
        ((float *)t->data)[i] = 0.2f * splitmix_sym(&s);
    return t;
}

static void open_program(fixture *f)
{
    need(f, ir_graph_sort(f->graph, &f->err));
    need(f, op_infer_graph(f->graph, &f->err));
    need(f, prog_build(f->graph, &(prog_options){0}, &f->program, &f->err));
    need(f, prog_session_create(f->program, &f->session, &f->err));
}

static void close_program(fixture *f)
{
    prog_session_free(f->session);
    prog_free(f->program);
    arena_free(&f->memory);
}

/* The program's outputs are the reference's. */
static void agree(fixture *f, const ir_tensor *const *inputs)
{
    ir_tensor want[4], got[4];
    need(f, interp_run(f->graph, inputs, want, &f->memory, 0, &f->err));
    need(f, prog_run_values(f->session, inputs, got, &f->memory, &f->err));
    for (uint32_t i = 0; i < f->graph->outputs.count; i++)
        need(f, compare_values(&want[i], &got[i], &f->err));
}

/* relu(kept rows · w): how many rows are kept, the data say. */
static void open_kept_rows(fixture *f)
{
    *f = (fixture){0};
    arena_init(&f->memory, NULL);
    f->graph = ir_graph_new(&f->memory, "kept");
    ir_type x_type = ir_type_tensor(TACIT_F32, 2, (int64_t[]){ROWS, WIDTH});
    ir_type keep_type = ir_type_tensor(TACIT_BOOL, 1, (int64_t[]){ROWS});
    ir_value *x = ir_input_new(f->graph, "x", &x_type);
    ir_value *keep = ir_input_new(f->graph, "keep", &keep_type);
    ir_value *w = ir_constant_new(f->graph, "w", random_tensor(&f->memory, 1, WIDTH, WIDTH));
    ir_node *kept = op_node(f->graph, "Compress", "kept", 2, (ir_value *[]){x, keep});
    assert_true(ir_attr_set_int(f->graph, kept, "axis", 0));
    ir_node *y = op_node(f->graph, "MatMul", "y", 2, (ir_value *[]){kept->outputs[0], w});
    ir_node *z = op_node(f->graph, "Relu", "z", 1, y->outputs);
    assert_true(ir_output_add(f->graph, z->outputs[0]));
    open_program(f);
    assert_int_equal(f->program->n_tail, 3);
}

static void agree_on_rows(fixture *f, int64_t rows)
{
    ir_shape shape = ir_shape_of(1, (int64_t[]){ROWS});
    ir_tensor *keep = ir_tensor_new(&f->memory, TACIT_BOOL, &shape);
    for (int64_t i = 0; i < ROWS; i++)
        ((uint8_t *)keep->data)[i] = i < rows;
    agree(f,
          (const ir_tensor *[]){random_tensor(&f->memory, 7 + (uint64_t)rows, ROWS, WIDTH), keep});
}

static void shapes_from_data(void **state)
{
    (void)state;
    fixture f;
    open_kept_rows(&f);
    agree_on_rows(&f, ROWS); /* the product and 4.5 KB for Relu */
    assert_int_equal(eager_builds(f.session->eager), 2);
    agree_on_rows(&f, ROWS);
    assert_int_equal(eager_builds(f.session->eager), 2);
    agree_on_rows(&f, 3); /* the weights alone are worth a kernel, Relu is not */
    assert_int_equal(eager_builds(f.session->eager), 3);
    agree_on_rows(&f, 0);
    assert_int_equal(eager_builds(f.session->eager), 4);
    close_program(&f);
}

static void few_bytes_are_worth_it_in_time(void **state)
{
    (void)state;
    fixture f;
    open_kept_rows(&f);
    for (int turn = 0; turn < 3; turn++) {
        agree_on_rows(&f, 3); /* the product */
        assert_int_equal(eager_builds(f.session->eager), 1);
    }
    for (int turn = 0; turn < 3; turn++) {
        agree_on_rows(&f, 3); /* and Relu, which has run three times */
        assert_int_equal(eager_builds(f.session->eager), 2);
    }
    close_program(&f);
}

static void ever_changing_shapes_are_not_built_for_ever(void **state)
{
    (void)state;
    fixture f;
    open_kept_rows(&f);
    for (int64_t turn = 0; turn < 60; turn++)
        agree_on_rows(&f, turn % 20);
    assert_in_range(eager_builds(f.session->eager), 20, 40);
    close_program(&f);
}

static const char *const loop_text =
    "tacit 1\n"
    "graph \"main\" {\n"
    "  in %x : f32[24,48]\n"
    "  in %w : f32[48,48]\n"
    "  const %trips : i64[] = [7]\n"
    "  const %go : bool[] = [true]\n"
    "  %last, %all = Loop(%trips, %go, %x | %w) body=graph \"body\" {\n"
    "    in %i : i64[]\n"
    "    in %k : bool[]\n"
    "    in %s : f32[24,48]\n"
    "    capture %v : f32[48,48]\n"
    "    %product = MatMul(%s, %v) @product\n"
    "    %next = Tanh(%product) @next\n"
    "    out %k\n"
    "    out %next\n"
    "    out %next\n"
    "  } @loop\n"
    "  out %last\n"
    "  out %all\n"
    "}\n";

static void a_body_is_lowered_once(void **state)
{
    (void)state;
    fixture f = {0};
    arena_init(&f.memory, NULL);
    need(&f, ir_graph_parse(loop_text, strlen(loop_text), &f.memory, &f.graph, &f.err));
    need(&f, resolve(NULL, f.graph));
    open_program(&f);
    for (uint64_t seed = 1; seed < 4; seed++)
        agree(&f, (const ir_tensor *[]){random_tensor(&f.memory, seed, ROWS, WIDTH),
                                        random_tensor(&f.memory, seed + 9, WIDTH, WIDTH)});
    assert_int_equal(eager_builds(f.session->eager), 2); /* of 3 · 7 iterations */
    close_program(&f);
}

/* What a kernel finds at run time is reported with the node's name. */
static void faults_keep_their_node(void **state)
{
    (void)state;
    fixture f = {0};
    arena_init(&f.memory, NULL);
    f.graph = ir_graph_new(&f.memory, "fault");
    ir_type x_type = ir_type_tensor(TACIT_F32, 2, (int64_t[]){ROWS, WIDTH});
    ir_type keep_type = ir_type_tensor(TACIT_BOOL, 1, (int64_t[]){ROWS});
    ir_type index_type = ir_type_tensor(TACIT_I64, 1, (int64_t[]){2});
    ir_value *x = ir_input_new(f.graph, "x", &x_type);
    ir_value *keep = ir_input_new(f.graph, "keep", &keep_type);
    ir_value *index = ir_input_new(f.graph, "index", &index_type);
    ir_node *kept = op_node(f.graph, "Compress", "kept", 2, (ir_value *[]){x, keep});
    assert_true(ir_attr_set_int(f.graph, kept, "axis", 0));
    ir_node *pick = op_node(f.graph, "Gather", "pick", 2, (ir_value *[]){kept->outputs[0], index});
    assert_true(ir_output_add(f.graph, pick->outputs[0]));
    open_program(&f);
    ir_shape two = ir_shape_of(1, (int64_t[]){2}), rows = ir_shape_of(1, (int64_t[]){ROWS});
    ir_tensor *all = ir_tensor_new(&f.memory, TACIT_BOOL, &rows);
    memset(all->data, 1, ROWS);
    int64_t where[2] = {1, ROWS};
    ir_tensor at = ir_tensor_view(TACIT_I64, &two, where), out;
    const ir_tensor *in[] = {random_tensor(&f.memory, 1, ROWS, WIDTH), all, &at};
    assert_int_equal(prog_run_values(f.session, in, &out, &f.memory, &f.err), TACIT_ERR_VALUE);
    assert_non_null(strstr(f.err.message, "'pick'"));
    assert_non_null(strstr(f.err.message, "24"));
    assert_int_equal(eager_builds(f.session->eager), 1);
    where[1] = ROWS - 1;
    agree(&f, in);
    close_program(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_from_data),
        cmocka_unit_test(few_bytes_are_worth_it_in_time),
        cmocka_unit_test(ever_changing_shapes_are_not_built_for_ever),
        cmocka_unit_test(a_body_is_lowered_once),
        cmocka_unit_test(faults_keep_their_node),
    };
    return cmocka_run_group_tests_name("eager", tests, NULL, NULL);
}
