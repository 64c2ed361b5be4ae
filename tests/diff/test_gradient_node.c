/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "diff/diff.h"
#include "prog/interp.h"

typedef struct gradient_case {
    arena memory;
    ir_graph *graph;
    ir_node *node;
} gradient_case;

/* d = (a + b)·a, and Gradient of the value named `y` by a and b. */
static void begin(gradient_case *t, const char *y, const char *second)
{
    static const char training[] = "ai.onnx.preview.training";
    arena_init(&t->memory, NULL);
    ir_graph *g = t->graph = ir_graph_new(&t->memory, "g");
    ir_type scalar = ir_type_tensor(TACIT_F32, 0, NULL);
    ir_value *a = ir_input_new(g, "a", &scalar), *b = ir_input_new(g, "b", &scalar);
    ir_node *sum = op_node(g, "Add", "sum", 2, (ir_value *[]){a, b});
    ir_node *product = ir_node_new(g, "Mul", "", "product", 2, (ir_value *[]){sum->outputs[0], a},
                                   1, (const char *[]){"d"});
    op_resolve(NULL, product);
    t->node = ir_node_new(g, "Gradient", training, "gradient", 2, (ir_value *[]){a, b}, 2,
                          (const char *[]){"da", "db"});
    op_resolve(NULL, t->node);
    ir_string names[2] = {{"a", 1}, {second, strlen(second)}};
    const ir_string *xs = arena_copy(&t->memory, names, sizeof names); /* attributes keep it */
    assert_non_null(xs);
    assert_true(ir_attr_set(
        g, t->node, &(ir_attr){.name = "xs", .kind = IR_ATTR_STRINGS, .count = 2, .strings = xs}));
    assert_true(ir_attr_set_string(g, t->node, "y", y));
    assert_true(ir_output_add(g, product->outputs[0]));
    assert_true(ir_output_add(g, t->node->outputs[0]));
    assert_true(ir_output_add(g, t->node->outputs[1]));
    tacit_error err = {0};
    assert_int_equal(ir_graph_sort(g, &err), TACIT_OK);
    assert_int_equal(op_infer_graph(g, &err), TACIT_OK);
}

static void a_gradient_inside_a_graph(void **state)
{
    (void)state;
    gradient_case t;
    tacit_error err = {0};
    begin(&t, "d", "b");
    assert_int_equal(diff_gradient_nodes(t.graph, &err), TACIT_OK);
    assert_int_equal(t.graph->outputs.count, 3);
    assert_string_equal(t.graph->outputs.data[1]->name, "da");
    float a = 3, b = 5;
    ir_shape scalar = {0};
    ir_tensor at = ir_tensor_view(TACIT_F32, &scalar, &a),
              bt = ir_tensor_view(TACIT_F32, &scalar, &b);
    ir_tensor out[3];
    assert_int_equal(
        interp_run(t.graph, (const ir_tensor *const[]){&at, &bt}, out, &t.memory, 0, &err),
        TACIT_OK);
    const float want[] = {24, 11, 3}; /* (a+b)·a, 2a + b, a */
    for (int i = 0; i < 3; i++)
        assert_true(*(float *)out[i].data == want[i]);
    arena_free(&t.memory);
}

static void bad_names_are_refused(void **state)
{
    (void)state;
    gradient_case t;
    tacit_error err = {0};
    begin(&t, "nothing", "b");
    assert_int_equal(diff_gradient_nodes(t.graph, &err), TACIT_ERR_GRAPH);
    assert_non_null(strstr(err.message, "'nothing'"));
    arena_free(&t.memory);
    begin(&t, "d", "other");
    assert_int_equal(diff_gradient_nodes(t.graph, &err), TACIT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "'other'"));
    arena_free(&t.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gradient_inside_a_graph),
        cmocka_unit_test(bad_names_are_refused),
    };
    return cmocka_run_group_tests_name("diff gradient node", tests, NULL, NULL);
}
