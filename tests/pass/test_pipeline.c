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

/* A constant whose elements count up. */
static ir_value *counted(ir_graph *g, arena *a, int32_t rank, const int64_t *dims)
{
    ir_shape shape = ir_shape_of(rank, dims);
    ir_tensor *t = ir_tensor_new(a, TACIT_F32, &shape);
    assert_non_null(t);
    for (int64_t i = 0; i < ir_tensor_count(t); i++)
        ((float *)t->data)[i] = (float)i;
    return ir_constant_new(g, "w", t);
}

static ir_value *one_int(ir_graph *g, int64_t value)
{
    return ir_constant_i64(g, "i", 1, 1, &value);
}

/* Exporters sort the gates of recurrent layers by slices and Concat, and these are large. */
static void what_is_made_of_views_is_folded(void **state)
{
    (void)state;
    enum { ROWS = 512, COLS = 128, HALF = ROWS * COLS / 2 };
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    pass_report report;
    ir_graph *g = ir_graph_new(&a, "g");
    ir_value *w = counted(g, &a, 2, (int64_t[]){ROWS, COLS}), *halves[2];
    for (int i = 0; i < 2; i++) { /* the second one first */
        ir_value *begin = one_int(g, (1 - i) * ROWS / 2), *end = one_int(g, (2 - i) * ROWS / 2);
        ir_node *n = op_node(g, "Slice", "s", 4, (ir_value *[]){w, begin, end, one_int(g, 0)});
        n = op_node(g, "Unsqueeze", "u", 2, (ir_value *[]){n->outputs[0], one_int(g, 0)});
        halves[i] = n->outputs[0];
    }
    ir_node *n = op_node(g, "Concat", "c", 2, halves);
    assert_true(ir_attr_set_int(g, n, "axis", 0));
    assert_true(ir_output_add(g, n->outputs[0]));
    pass_check_prepare(g);
    assert_int_equal(pass_pipeline(g, NULL, &a, &report, &err), TACIT_OK);
    assert_int_equal(g->nodes.count, 0);
    const ir_tensor *y = g->outputs.data[0]->constant;
    assert_non_null(y);
    for (int64_t i = 0; i < ROWS * COLS; i++)
        assert_true(((const float *)y->data)[i] == (float)((i + HALF) % (ROWS * COLS)));
    arena_free(&a);
}

/* The kernel of a recurrent layer wants constants; a product reads transposed weights in place. */
static void transposed_weights_are_folded_where_they_would_be_copied(void **state)
{
    (void)state;
    enum { IN = 256, HIDDEN = 32, GATES = 4 * HIDDEN };
    arena a;
    arena_init(&a, NULL);
    tacit_error err = {0};
    pass_report report;
    for (int recurrent = 0; recurrent < 2; recurrent++) {
        ir_graph *g = ir_graph_new(&a, "g");
        int64_t width = recurrent ? IN : GATES;
        ir_type type = {.dtype = TACIT_F32, .shape = ir_shape_of(3, (int64_t[]){2, 1, width})};
        ir_value *x = ir_input_new(g, "x", &type);
        ir_value *w = counted(g, &a, 3, (int64_t[]){1, IN, GATES});
        ir_node *n = op_node(g, "Transpose", "t", 1, &w);
        assert_true(ir_attr_set_ints(g, n, "perm", 3, (int64_t[]){0, 2, 1}));
        ir_value *r = counted(g, &a, 3, (int64_t[]){1, GATES, HIDDEN});
        n = op_node(g, recurrent ? "LSTM" : "MatMul", "n", recurrent ? 3 : 2,
                    (ir_value *[]){x, n->outputs[0], r});
        assert_true(!recurrent || ir_attr_set_int(g, n, "hidden_size", HIDDEN));
        assert_true(ir_output_add(g, n->outputs[0]));
        pass_check_prepare(g);
        pass_options options = {.only = "fold-constants", .fold_budget = 1 << 20};
        assert_int_equal(pass_pipeline(g, &options, &a, &report, &err), TACIT_OK);
        const ir_tensor *folded = ir_value_known(n->inputs[1]);
        assert_int_equal(folded != NULL, recurrent);
        for (int64_t i = 0; folded && i < GATES * IN; i++)
            assert_true(((const float *)folded->data)[i] == (float)(i % IN * GATES + i / IN));
    }
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
        cmocka_unit_test(what_is_made_of_views_is_folded),
        cmocka_unit_test(transposed_weights_are_folded_where_they_would_be_copied),
    };
    return cmocka_run_group_tests_name("pass pipeline", tests, NULL, NULL);
}
