/* SPDX-License-Identifier: Apache-2.0
 * The pipeline itself: switching passes off, reports, stable results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "support/pass_check.h"

static const char chain[] = "tacit 1\n"
                            "graph \"g\" {\n"
                            "  in %x : f32[2,3]\n"
                            "  in %y : f32[2,3]\n"
                            "  const %zero : f32[1] = [0.0]\n"
                            "  const %one : f32[3] = [1.0, 2.0, 3.0]\n"
                            "  %a = Add(%x, %y) @first\n"
                            "  %b = Add(%y, %x) @second\n"
                            "  %c = Add(%a, %zero) @nothing\n"
                            "  %d = Add(%b, %c) @sum\n"
                            "  %k = Add(%one, %one) @known\n"
                            "  %e = Add(%d, %k) @last\n"
                            "  %dead = Add(%e, %e) @unread\n"
                            "  %out = Identity(%e) @copy\n"
                            "  out %out\n"
                            "}\n";

static void clean_up_leaves_what_is_needed(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = pass_check_parse(&a, chain, strlen(chain));
    pass_report report;
    ir_graph *after = pass_check_run(g, NULL, "fuse-elementwise", 0, &report);
    assert_int_equal(after->nodes.count, 3);
    assert_int_equal(pass_check_count(after, "Add"), 3);
    assert_true(report.changes.count > 0);
    for (uint32_t i = 0; i < report.changes.count; i++)
        assert_true(report.changes.data[i].rewrites > 0);
    arena_free(&a);
}

static void every_pass_can_be_switched_off_or_run_alone(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    ir_graph *g = pass_check_parse(&a, chain, strlen(chain));
    ir_graph *after = pass_check_run(g, NULL, "all", 0, NULL);
    assert_int_equal(after->nodes.count, g->nodes.count);
    for (uint32_t i = 0; pass_at(i); i++) {
        pass_report report;
        if (pass_at(i)->required)
            continue;
        pass_check_run(g, pass_at(i)->name, NULL, 0, &report);
        for (uint32_t k = 0; k < report.changes.count; k++)
            assert_string_equal(report.changes.data[k].pass, pass_at(i)->name);
        pass_check_run(g, NULL, pass_at(i)->name, 0, &report);
        for (uint32_t k = 0; k < report.changes.count; k++)
            assert_string_not_equal(report.changes.data[k].pass, pass_at(i)->name);
    }
    arena_free(&a);
}

static void unknown_names_are_refused(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    pass_report report;
    ir_graph *g = pass_check_parse(&a, chain, strlen(chain));
    pass_options options = {.only = "fuse-everything"};
    assert_int_equal(pass_pipeline(g, &options, &a, &report, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "'fuse-everything'"));
    arena_free(&a);
}

static void folding_stays_inside_its_budget(void **state)
{
    (void)state;
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    ir_graph *g = ir_graph_new(&a, "g");
    /* Above what inference computes by itself (64 KiB). */
    ir_shape shape = ir_shape_of(1, (int64_t[]){32 * 1024});
    ir_tensor *t = ir_tensor_new(&a, TACIT_F32, &shape);
    assert_non_null(t);
    memset(t->data, 0, t->bytes);
    ir_value *w = ir_constant_new(g, "w", t);
    ir_node *n = op_node(g, "Add", "n", 2, (ir_value *[]){w, w});
    assert_true(ir_output_add(g, n->outputs[0]));
    pass_check_prepare(g);
    pass_report report;
    pass_options tight = {.only = "fold-constants", .fold_budget = 1000};
    assert_int_equal(pass_pipeline(g, &tight, &a, &report, &err), TACIT_OK);
    assert_int_equal(g->nodes.count, 1);
    assert_true(pass_check_noted(g, "budget"));
    pass_options wide = {.only = "fold-constants", .fold_budget = 1 << 20};
    assert_int_equal(pass_pipeline(g, &wide, &a, &report, &err), TACIT_OK);
    assert_int_equal(g->nodes.count, 0);
    assert_non_null(g->outputs.data[0]->constant);
    arena_free(&a);
}

/* The square of a constant matrix of `n` rows, all elements 1 but for the diagonal, which is 2. */
static ir_graph *square(arena *a, tacit_dtype dtype, int64_t n)
{
    ir_graph *g = ir_graph_new(a, "g");
    ir_shape shape = ir_shape_of(2, (int64_t[]){n, n});
    ir_tensor *t = ir_tensor_new(a, dtype, &shape);
    assert_non_null(t);
    for (int64_t i = 0; i < n * n; i++)
        ir_store_i64(dtype, t->data, i, i % (n + 1) == 0 ? 2 : 1);
    ir_value *w = ir_constant_new(g, "w", t);
    ir_node *node = op_node(g, "MatMul", "n", 2, (ir_value *[]){w, w});
    assert_true(ir_output_add(g, node->outputs[0]));
    pass_check_prepare(g);
    return g;
}

static void large_products_are_folded_by_their_kernel(void **state)
{
    (void)state;
    enum { N = 1024 };
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    pass_report report;
    ir_graph *g = square(&a, TACIT_F32, N);
    assert_int_equal(pass_pipeline(g, NULL, &a, &report, &err), TACIT_OK);
    assert_int_equal(g->nodes.count, 0);
    const ir_tensor *y = g->outputs.data[0]->constant;
    assert_non_null(y);
    for (int64_t i = 0; i < N * N; i++)
        assert_true(((const float *)y->data)[i] == (float)(i % (N + 1) == 0 ? N + 3 : N + 2));
    /* Without one the reference would be at it for long. */
    g = square(&a, TACIT_I64, N);
    assert_int_equal(pass_pipeline(g, NULL, &a, &report, &err), TACIT_OK);
    assert_int_equal(g->nodes.count, 1);
    assert_true(pass_check_noted(g, "too long"));
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_up_leaves_what_is_needed),
        cmocka_unit_test(every_pass_can_be_switched_off_or_run_alone),
        cmocka_unit_test(unknown_names_are_refused),
        cmocka_unit_test(folding_stays_inside_its_budget),
        cmocka_unit_test(large_products_are_folded_by_their_kernel),
    };
    return cmocka_run_group_tests_name("pass pipeline", tests, NULL, NULL);
}
