/* SPDX-License-Identifier: Apache-2.0
 * Where a node came from, and why a fusion did not happen, is written on the node. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/pass_check.h"

static ir_graph *run(arena *a, const char *body, const char *only)
{
    char text[2048];
    int n = snprintf(text, sizeof text, "tacit 1\ngraph \"g\" {\n%s}\n", body);
    assert_true(n > 0 && (size_t)n < sizeof text);
    ir_graph *g = pass_check_parse(a, text, (size_t)n);
    return pass_check_run(g, only, NULL, 1e-5, NULL);
}

#define ATTENTION                                                                                  \
    "  in %q : f32[1,2,5,4]\n  in %k : f32[1,2,4,5]\n  in %v : f32[1,2,5,4]\n"                     \
    "  %s = MatMul(%q, %k) @scores\n  %p = Softmax(%s) axis=-1 @softmax\n"                         \
    "  %o = MatMul(%p, %v) @context\n  out %o\n"

static void a_fusion_names_its_nodes(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = run(&a, ATTENTION, NULL);
    const ir_node *n = pass_check_find(g, "tacit.Attention");
    assert_string_equal(n->name, "context");
    assert_non_null(n->notes);
    assert_string_equal(n->notes->pass, "fuse-attention");
    assert_non_null(strstr(n->notes->text, "softmax (Softmax)"));
    assert_non_null(strstr(n->notes->text, "scores (MatMul)"));
    arena_free(&a);
}

static void history_is_inherited(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = run(&a,
                      "  in %x : f32[2,3]\n  const %w : f32[4,3] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, "
                      "7.0, 8.0, 9.0, 10.0, 11.0, 12.0]\n  %t = Transpose(%w) @turn\n"
                      "  %m = MatMul(%x, %t) @product\n  %y = Relu(%m) @relu\n  out %y\n",
                      NULL);
    const ir_note *note = pass_check_find(g, "tacit.MatMul")->notes;
    assert_string_equal(note->pass, "fuse-matmul");
    assert_non_null(note->next);
    assert_string_equal(note->next->pass, "absorb-transpose");
    arena_free(&a);
}

static void another_use_is_named(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = run(&a, ATTENTION "  %z = Exp(%s) @other\n  out %z\n", "fuse-attention");
    assert_int_equal(pass_check_count(g, "tacit.Attention"), 0);
    assert_true(pass_check_noted(g, "value 's' has another use by 'other' (Exp)"));
    arena_free(&a);
}

static void a_graph_output_is_named(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = run(&a, ATTENTION "  out %p\n", "fuse-attention");
    assert_int_equal(pass_check_count(g, "tacit.Attention"), 0);
    assert_true(pass_check_noted(g, "value 'p' is a graph output"));
    arena_free(&a);
}

static void a_finite_fill_is_not_hidden(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    /* The condition is not known: a row hidden in full would give the mean of V, not NaN. */
    ir_graph *g = run(&a,
                      "  in %q : f32[1,2,5,4]\n  in %k : f32[1,2,4,5]\n  in %v : f32[1,2,5,4]\n"
                      "  in %c : bool[5,5]\n  const %never : f32[] = [-1e9]\n"
                      "  %s = MatMul(%q, %k) @scores\n  %w = Where(%c, %s, %never) @hide\n"
                      "  %p = Softmax(%w) axis=-1 @softmax\n  %o = MatMul(%p, %v) @context\n"
                      "  out %o\n",
                      NULL);
    assert_int_equal(pass_check_count(g, "tacit.Attention"), 0);
    assert_true(pass_check_noted(g, "masked in full"));
    arena_free(&a);
}

static void notes_do_not_pile_up(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = run(&a, ATTENTION "  out %p\n", NULL);
    uint32_t notes = 0;
    for (uint32_t i = 0; i < g->nodes.count; i++)
        for (const ir_note *n = g->nodes.data[i]->notes; n; n = n->next)
            notes += strstr(n->text, "graph output") != NULL;
    assert_int_equal(notes, 1);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fusion_names_its_nodes),    cmocka_unit_test(history_is_inherited),
        cmocka_unit_test(another_use_is_named),        cmocka_unit_test(a_graph_output_is_named),
        cmocka_unit_test(a_finite_fill_is_not_hidden), cmocka_unit_test(notes_do_not_pile_up),
    };
    return cmocka_run_group_tests_name("pass notes", tests, NULL, NULL);
}
