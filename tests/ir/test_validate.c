/* SPDX-License-Identifier: Apache-2.0
 * Structural checks: each kind of damage to a graph is found and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/validate.h"
#include "op/op.h"

typedef struct sample {
    arena memory;
    ir_graph *g;
    ir_value *x;
    ir_node *a, *b;
} sample;

/* In place: the graph points to its arena. */
static void make(sample *s)
{
    arena_init(&s->memory, NULL);
    s->g = ir_graph_new(&s->memory, "g");
    ir_type type = ir_type_tensor(TACIT_F32, 1, (int64_t[]){2});
    s->x = ir_input_new(s->g, "x", &type);
    s->a = op_node(s->g, "Add", "a", 2, (ir_value *[]){s->x, s->x});
    s->b = op_node(s->g, "Relu", "b", 1, (ir_value *[]){s->a->outputs[0]});
    assert_true(ir_output_add(s->g, s->b->outputs[0]));
}

static void refused(sample *s, const char *what)
{
    tacit_error err = {0};
    assert_int_equal(ir_validate(s->g, &err), TACIT_ERR_GRAPH);
    if (!strstr(err.message, what))
        fail_msg("'%s' does not mention '%s'", err.message, what);
    assert_int_equal(ir_validate(s->g, NULL), TACIT_ERR_GRAPH);
    arena_free(&s->memory);
}

static void sound_graphs_pass(void **state)
{
    (void)state;
    sample s;
    make(&s);
    assert_int_equal(ir_validate(s.g, NULL), TACIT_OK);
    arena_free(&s.memory);
}

static void damage_is_named(void **state)
{
    (void)state;
    sample s;
    make(&s);
    s.b->outputs[0]->id = 7;
    refused(&s, "id 7");
    make(&s);
    s.a->outputs[0]->name = "b";
    refused(&s, "another value");
    make(&s);
    s.a->outputs[0]->producer = s.b;
    refused(&s, "is not output 0 of node 'b'");
    make(&s);
    s.a->outputs[0]->producer = NULL;
    refused(&s, "does not point back");
    make(&s);
    s.g->nodes.data[0] = s.b;
    s.g->nodes.data[1] = s.a;
    s.a->id = 1;
    s.b->id = 0;
    refused(&s, "before node 'a' makes it");
    make(&s);
    s.x->is_input = false;
    refused(&s, "'x', which nothing makes");
    make(&s);
    s.g->outputs.data[0] = ir_value_new(s.g, "loose", NULL);
    refused(&s, "'loose' is dangling");
    make(&s);
    ir_value *w = ir_value_new(s.g, "w", NULL);
    w->is_initializer = true;
    refused(&s, "weight 'w'");
    make(&s);
    ir_node_kill(s.b);
    refused(&s, "removed");
}

static void subgraphs_are_checked_too(void **state)
{
    (void)state;
    sample s, inner;
    make(&s);
    make(&inner);
    inner.a->outputs[0]->producer = NULL;
    assert_true(
        ir_attr_set(s.g, s.b, &(ir_attr){.name = "body", .kind = IR_ATTR_GRAPH, .graph = inner.g}));
    refused(&s, "does not point back");
    arena_free(&inner.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_graphs_pass),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(subgraphs_are_checked_too),
    };
    return cmocka_run_group_tests_name("graph validation", tests, NULL, NULL);
}
