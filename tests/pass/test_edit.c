/* SPDX-License-Identifier: Apache-2.0
 * Use lists: kept while the graph stays as it is, made anew after every kind of edit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "pass/edit.h"
#include "support/pass_check.h"

static const char text[] = "tacit 1\n"
                           "graph \"g\" {\n"
                           "  in %x : f32[3]\n"
                           "  in %y : f32[3]\n"
                           "  %a = Add(%x, %y) @sum\n"
                           "  %b = Mul(%a, %a) @square\n"
                           "  %c = Exp(%b) @exp\n"
                           "  %d = Sin(%a) @sin\n"
                           "  out %c\n"
                           "  out %d\n"
                           "}\n";

/* Each branch adds more than the spare room of lists made before. */
static const char branches[] = "tacit 1\n"
                               "graph \"g\" {\n"
                               "  in %x : f32[3]\n"
                               "  const %yes : bool[] = [true]\n"
                               "  %y = If(%yes | %x) then_branch=graph \"then\" {\n"
                               "  capture %a : f32[3]\n"
                               "  %b = Exp(%a) @exp\n"
                               "  %c = Sin(%b) @sin\n"
                               "  %d = Mul(%b, %c) @product\n"
                               "  %e = Add(%d, %a) @sum\n"
                               "  out %e\n"
                               "  } else_branch=graph \"else\" {\n"
                               "  capture %a : f32[3]\n"
                               "  out %a\n"
                               "  } @choose\n"
                               "  %z = If(%yes | %y) then_branch=graph \"then\" {\n"
                               "  capture %f : f32[3]\n"
                               "  %g = Cos(%f) @cos\n"
                               "  out %g\n"
                               "  } else_branch=graph \"else\" {\n"
                               "  capture %f : f32[3]\n"
                               "  out %f\n"
                               "  } @choose_again\n"
                               "  out %z\n"
                               "}\n";

typedef struct world {
    arena memory, scratch, lists;
    pass_edit kept;
    const op_def *ops[PASS_OP_COUNT];
    tacit_error err;
    pass_context c;
} world;

static void begin(world *w, const char *graph)
{
    *w = (world){0};
    arena_init(&w->memory, NULL);
    arena_init(&w->scratch, NULL);
    arena_init(&w->lists, NULL);
    pass_ops_find(w->ops);
    w->c = (pass_context){.graph = pass_check_parse(&w->memory, graph, strlen(graph)),
                          .name = "test",
                          .ops = w->ops,
                          .scratch = &w->scratch,
                          .lists = &w->lists,
                          .kept = &w->kept,
                          .err = &w->err};
}

static void end(world *w)
{
    arena_free(&w->memory);
    arena_free(&w->scratch);
    arena_free(&w->lists);
}

static bool lists_use(const pass_edit *e, const ir_value *v, const ir_node *node, uint32_t index)
{
    for (const pass_use *u = pass_first_use(e, v); u; u = pass_next_use(e, u))
        if (u->node == node && u->index == index)
            return true;
    return false;
}

/* The lists hold every reading of the graph, and nothing else. */
static void check(const pass_edit *e, const ir_graph *g)
{
    uint32_t uses = 0, listed = 0;
    assert_int_equal(e->head.count, g->values.count);
    assert_int_equal(e->first.count, g->nodes.count);
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        for (uint32_t k = 0; n->type && k < n->n_inputs; k++, uses++)
            assert_true(lists_use(e, n->inputs[k], n, k));
    }
    for (uint32_t i = 0; i < g->outputs.count; i++, uses++)
        assert_true(lists_use(e, g->outputs.data[i], NULL, i));
    for (uint32_t i = 0; i < g->values.count; i++)
        listed += pass_uses(e, g->values.data[i]);
    assert_int_equal(listed, uses);
}

typedef void edit_fn(pass_edit *e);

static void add_node(pass_edit *e)
{
    ir_value *x = e->g->inputs.data[0];
    assert_non_null(op_node(e->g, "Neg", "new", 1, &x));
}

static void add_output(pass_edit *e)
{
    assert_true(ir_output_add(e->g, e->g->nodes.data[1]->outputs[0]));
}

static void add_constant(pass_edit *e)
{
    assert_non_null(ir_constant_f32(e->g, "k", 1));
}

static void set_input(pass_edit *e)
{
    pass_set_input(e, pass_check_find(e->g, "Sin"), 0, e->g->inputs.data[1]);
}

static void replace(pass_edit *e)
{
    pass_replace(e, pass_check_find(e->g, "Add")->outputs[0], e->g->inputs.data[0]);
}

static void replace_everywhere(pass_edit *e)
{
    ir_replace_uses(e->g, pass_check_find(e->g, "Add")->outputs[0], e->g->inputs.data[0]);
}

static void kill_and_sort(pass_edit *e)
{
    ir_node *add = pass_check_find(e->g, "Add");
    pass_replace(e, add->outputs[0], e->g->inputs.data[0]);
    pass_kill(e, add);
    assert_int_equal(ir_graph_sort(e->g, e->c->err), TACIT_OK);
}

static void lists_are_made_anew_after_an_edit(void **state)
{
    (void)state;
    edit_fn *const edits[] = {add_node, add_output,         add_constant, set_input,
                              replace,  replace_everywhere, kill_and_sort};
    for (uint32_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        world w;
        pass_edit before, after;
        begin(&w, text);
        assert_int_equal(pass_edit_begin(&before, &w.c), TACIT_OK);
        check(&before, w.c.graph);
        uint64_t version = w.c.graph->version;
        edits[i](&before);
        assert_true(w.c.graph->version > version);
        assert_int_equal(pass_edit_begin(&after, &w.c), TACIT_OK);
        check(&after, w.c.graph);
        end(&w);
    }
}

static void lists_are_kept_without_one(void **state)
{
    (void)state;
    world w;
    pass_edit before, after;
    begin(&w, text);
    assert_int_equal(pass_edit_begin(&before, &w.c), TACIT_OK);
    assert_int_equal(pass_edit_begin(&after, &w.c), TACIT_OK);
    assert_ptr_equal(before.uses.data, after.uses.data);
    check(&after, w.c.graph);
    end(&w);
}

/* The pass asks for lists, inlines all branches that there are, and asks once more to see that
 * there is none left: then they are those of the graph as it is. */
static void two_branches_are_inlined_by_one_pass(void **state)
{
    (void)state;
    world w;
    begin(&w, branches);
    assert_int_equal(pass_inline_if(&w.c), TACIT_OK);
    assert_int_equal(w.c.rewrites, 2);
    assert_int_equal(pass_check_count(w.c.graph, "If"), 0);
    check(&w.kept, w.c.graph);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_made_anew_after_an_edit),
        cmocka_unit_test(lists_are_kept_without_one),
        cmocka_unit_test(two_branches_are_inlined_by_one_pass),
    };
    return cmocka_run_group_tests_name("pass edit", tests, NULL, NULL);
}
