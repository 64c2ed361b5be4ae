/* SPDX-License-Identifier: Apache-2.0
 * Strings and the ai.onnx.ml tables. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

static void expect_strings(op_case *c, uint32_t i, ir_shape shape, const char *const *want)
{
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    const ir_tensor *t = &c->out[i];
    assert_int_equal(t->dtype, TACIT_STRING);
    assert_string_equal(ir_shape_text(&t->shape, a), ir_shape_text(&shape, b));
    for (int64_t k = 0; k < ir_shape_size(&shape); k++)
        assert_string_equal(((const ir_string *)t->data)[k].data, want[k]);
}

static void concat_broadcasts(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "StringConcat");
    op_case_strings(&c, SHAPE(2, 1), (const char *[]){"a", ""});
    op_case_strings(&c, SHAPE(2), (const char *[]){"x", "\xe4\xb8\xad"});
    op_case_run(&c, 1);
    expect_strings(&c, 0, SHAPE(2, 2),
                   (const char *[]){"ax", "a\xe4\xb8\xad", "x", "\xe4\xb8\xad"});
    op_case_end(&c);
}

static void split_by_delimiter_and_space(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "StringSplit");
    op_case_strings(&c, SHAPE(2), (const char *[]){"a--b-", ""});
    op_case_string(&c, "delimiter", "-");
    op_case_run(&c, 2);
    expect_strings(&c, 0, SHAPE(2, 4), (const char *[]){"a", "", "b", "", "", "", "", ""});
    op_case_expect(&c, 1, TACIT_I64, SHAPE(2), (double[]){4, 1}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "StringSplit");
    op_case_strings(&c, SHAPE(3), (const char *[]){"  a b\tc ", " \n", "x"});
    op_case_run(&c, 2);
    expect_strings(&c, 0, SHAPE(3, 3), (const char *[]){"a", "b", "c", "", "", "", "x", "", ""});
    op_case_expect(&c, 1, TACIT_I64, SHAPE(3), (double[]){3, 0, 1}, 0);
    op_case_end(&c);
    op_case_begin(&c, "", "StringSplit");
    op_case_strings(&c, SHAPE(1), (const char *[]){" a b c "});
    op_case_int(&c, "maxsplit", 1);
    op_case_run(&c, 2);
    expect_strings(&c, 0, SHAPE(1, 2), (const char *[]){"a", "b c "});
    op_case_end(&c);
    op_case_begin(&c, "", "StringSplit");
    op_case_strings(&c, SHAPE(0), NULL);
    op_case_run(&c, 2);
    expect_strings(&c, 0, SHAPE(0, 0), NULL);
    op_case_end(&c);
}

static void normalizer_drops_and_maps(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "", "StringNormalizer");
    op_case_strings(&c, SHAPE(1, 3), (const char *[]){"Monday", "\xc3\xa9t\xc3\xa9", "x"});
    op_case_strings_attr(&c, "stopwords", 1, (const char *[]){"MONDAY"});
    op_case_string(&c, "case_change_action", "UPPER");
    op_case_run(&c, 1);
    expect_strings(&c, 0, SHAPE(1, 2), (const char *[]){"\xc3\x89T\xc3\x89", "X"});
    op_case_end(&c);
    op_case_begin(&c, "", "StringNormalizer");
    op_case_strings(&c, SHAPE(1), (const char *[]){"a"});
    op_case_strings_attr(&c, "stopwords", 1, (const char *[]){"a"});
    op_case_run(&c, 1);
    expect_strings(&c, 0, SHAPE(1), (const char *[]){""});
    op_case_end(&c);
}

/* Results own their bytes: the inputs may be gone when they are read. */
static void results_outlive_their_inputs(void **state)
{
    (void)state;
    const char *const moves[] = {"Identity", "Transpose", "Flatten"};
    for (int i = 0; i < 3; i++) {
        char text[] = "alive";
        op_case c;
        op_case_begin(&c, "", moves[i]);
        op_case_strings(&c, SHAPE(1, 1), (const char *[]){text});
        op_case_run(&c, 1);
        memset(text, '!', 5);
        expect_strings(&c, 0, SHAPE(1, 1), (const char *[]){"alive"});
        op_case_end(&c);
    }
}

static void labels_map(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "ai.onnx.ml", "LabelEncoder");
    op_case_strings(&c, SHAPE(3), (const char *[]){"b", "a", "z"});
    op_case_strings_attr(&c, "keys_strings", 3, (const char *[]){"a", "b", "a"});
    op_case_ints(&c, "values_int64s", 3, (int64_t[]){1, 2, 3});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_I64, SHAPE(3), (double[]){2, 3, -1}, 0); /* the last key counts */
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "ArrayFeatureExtractor");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 3), (double[]){0, 1, 2, 3, 4, 5});
    op_case_i64(&c, TACIT_I64, SHAPE(2), (int64_t[]){2, 0});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 2), (double[]){2, 0, 5, 3}, 0);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "ArrayFeatureExtractor");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 3), (double[]){0, 1, 2, 3, 4, 5});
    op_case_i64(&c, TACIT_I64, SHAPE(1), (int64_t[]){3});
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "outside");
    op_case_end(&c);
}

static void tree(op_case *c, const double *x, int64_t next)
{
    op_case_begin(c, "ai.onnx.ml", "TreeEnsemble");
    op_case_f64(c, TACIT_F32, SHAPE(2, 1), x);
    op_case_int(c, "n_targets", 2);
    op_case_ints(c, "tree_roots", 1, (int64_t[]){0});
    op_case_ints(c, "nodes_featureids", 2, (int64_t[]){0, 0});
    op_case_ints(c, "nodes_truenodeids", 2, (int64_t[]){0, 1});
    op_case_ints(c, "nodes_falsenodeids", 2, (int64_t[]){1, next});
    op_case_ints(c, "nodes_trueleafs", 2, (int64_t[]){1, 1});
    op_case_ints(c, "nodes_falseleafs", 2, (int64_t[]){0, next == 2});
    op_case_ints(c, "leaf_targetids", 3, (int64_t[]){0, 1, 1});
    op_case_tensor_attr(c, "nodes_modes", TACIT_U8, 2, (double[]){0, 6});
    op_case_tensor_attr(c, "nodes_splits", TACIT_F32, 2, (double[]){1, 0});
    op_case_tensor_attr(c, "leaf_weights", TACIT_F32, 3, (double[]){10, 20, 30});
    op_case_tensor_attr(c, "membership_values", TACIT_F32, 3, (double[]){4, 5, NAN});
}

static void trees_walk_and_cycles_end(void **state)
{
    (void)state;
    op_case c;
    tree(&c, (double[]){0.5, 5}, 2);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 2), (double[]){10, 0, 0, 20}, 0);
    op_case_end(&c);
    tree(&c, (double[]){7, 7}, 0); /* node 1 leads back to node 0 */
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "cycle");
    op_case_end(&c);
    tree(&c, (double[]){7, 7}, 9);
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "malformed");
    op_case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(concat_broadcasts),
        cmocka_unit_test(split_by_delimiter_and_space),
        cmocka_unit_test(normalizer_drops_and_maps),
        cmocka_unit_test(results_outlive_their_inputs),
        cmocka_unit_test(labels_map),
        cmocka_unit_test(trees_walk_and_cycles_end),
    };
    return cmocka_run_group_tests_name("text and tables", tests, NULL, NULL);
}
