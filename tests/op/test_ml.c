/* SPDX-License-Identifier: Apache-2.0
 * The classical models of ai.onnx.ml: cases worked out by hand, and attributes that do not fit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/op_case.h"

static void floats_attr(op_case *c, const char *name, uint32_t n, const double *values)
{
    const double *list = arena_copy(&c->memory, values, n * sizeof *values);
    assert_non_null(list);
    ir_attr a = {.name = name, .kind = IR_ATTR_FLOATS, .count = n, .floats = list};
    op_case_int(c, "unused", 0); /* makes the node */
    assert_true(ir_attr_set(c->graph, c->node, &a));
}

#define V(...) ((const double[]){__VA_ARGS__})
#define I(...) ((const int64_t[]){__VA_ARGS__})

/* --- trees ------------------------------------------------------------------------------------ */

/* Two trees over [x0, x1]. The first: x1 <mode> 1 ? leaf 1 : (x0 <= 0 ? leaf 3 : leaf 4); the
 * second: x0 <= 2 ? leaf 11 : leaf 12. Ids are not places. */
static const int64_t tree_ids[] = {5, 5, 5, 5, 5, 2, 2, 2};
static const int64_t node_ids[] = {0, 1, 2, 3, 4, 10, 11, 12};

static void put_nodes(op_case *c, const char *mode)
{
    op_case_ints(c, "nodes_treeids", 8, tree_ids);
    op_case_ints(c, "nodes_nodeids", 8, node_ids);
    op_case_ints(c, "nodes_featureids", 8, I(1, 0, 0, 0, 0, 0, 0, 0));
    op_case_ints(c, "nodes_truenodeids", 8, I(1, 0, 3, 0, 0, 11, 0, 0));
    op_case_ints(c, "nodes_falsenodeids", 8, I(2, 0, 4, 0, 0, 12, 0, 0));
    floats_attr(c, "nodes_values", 8, V(1, 0, 0, 0, 0, 2, 0, 0));
    op_case_strings_attr(
        c, "nodes_modes", 8,
        (const char *[]){mode, "LEAF", "BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LEQ", "LEAF", "LEAF"});
}

enum { ROWS = 5 };
static const double rows_of_x[ROWS * 2] = {-1, 0, -1, 1, 3, 2, 3, NAN, 0.5, 1.5};

static void begin_regressor(op_case *c, const char *mode)
{
    op_case_begin(c, "ai.onnx.ml", "TreeEnsembleRegressor");
    op_case_f64(c, TACIT_F32, SHAPE(ROWS, 2), rows_of_x);
    put_nodes(c, mode);
    op_case_ints(c, "target_treeids", 5, I(5, 5, 5, 2, 2));
    op_case_ints(c, "target_nodeids", 5, I(1, 3, 4, 11, 12));
    op_case_ints(c, "target_ids", 5, I(0, 0, 0, 0, 0));
    floats_attr(c, "target_weights", 5, V(1, 10, 100, 1000, 2000));
}

static void expect_regression(const char *mode, const double *want)
{
    op_case c;
    begin_regressor(&c, mode);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(ROWS, 1), want, 0);
    op_case_end(&c);
}

static void every_mode_branches(void **state)
{
    (void)state;
    /* x1 is 0, 1, 2, NaN, 1.5 */
    expect_regression("BRANCH_LEQ", V(1001, 1001, 2100, 2100, 1100));
    expect_regression("BRANCH_LT", V(1001, 1010, 2100, 2100, 1100));
    expect_regression("BRANCH_GTE", V(1010, 1001, 2001, 2100, 1001));
    expect_regression("BRANCH_GT", V(1010, 1010, 2001, 2100, 1001));
    expect_regression("BRANCH_EQ", V(1010, 1001, 2100, 2100, 1100));
    expect_regression("BRANCH_NEQ", V(1001, 1010, 2001, 2001, 1001));
}

static void missing_values_take_their_branch(void **state)
{
    (void)state;
    op_case c;
    begin_regressor(&c, "BRANCH_GTE");
    op_case_ints(&c, "nodes_missing_value_tracks_true", 8, I(1, 0, 0, 0, 0, 0, 0, 0));
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(ROWS, 1), V(1010, 1001, 2001, 2001, 1001), 0);
    op_case_end(&c);
}

static void sums_are_aggregated(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double want[ROWS];
    } cases[] = {{"AVERAGE", {500.75, 500.75, 1050.25, 1050.25, 550.25}},
                 {"MIN", {1.25, 1.25, 100.25, 100.25, 100.25}},
                 {"MAX", {1000.25, 1000.25, 2000.25, 2000.25, 1000.25}}};
    for (int i = 0; i < 3; i++) {
        op_case c;
        begin_regressor(&c, "BRANCH_LEQ");
        op_case_string(&c, "aggregate_function", cases[i].name);
        floats_attr(&c, "base_values", 1, V(0.25));
        op_case_run(&c, 1);
        op_case_expect(&c, 0, TACIT_F32, SHAPE(ROWS, 1), cases[i].want, 0);
        op_case_end(&c);
    }
}

/* Values in double, which f32 cannot tell apart. */
static void values_may_be_tensors(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "ai.onnx.ml", "TreeEnsembleRegressor");
    op_case_f64(&c, TACIT_F64, SHAPE(2, 1), V(1 + 1e-12, 1 + 3e-12));
    op_case_ints(&c, "nodes_treeids", 3, I(0, 0, 0));
    op_case_ints(&c, "nodes_nodeids", 3, I(0, 1, 2));
    op_case_ints(&c, "nodes_featureids", 3, I(0, 0, 0));
    op_case_ints(&c, "nodes_truenodeids", 3, I(1, 0, 0));
    op_case_ints(&c, "nodes_falsenodeids", 3, I(2, 0, 0));
    op_case_strings_attr(&c, "nodes_modes", 3, (const char *[]){"BRANCH_LEQ", "LEAF", "LEAF"});
    op_case_tensor_attr(&c, "nodes_values_as_tensor", TACIT_F64, 3, V(1 + 2e-12, 0, 0));
    op_case_ints(&c, "target_treeids", 2, I(0, 0));
    op_case_ints(&c, "target_nodeids", 2, I(1, 2));
    op_case_ints(&c, "target_ids", 2, I(0, 1));
    op_case_tensor_attr(&c, "target_weights_as_tensor", TACIT_F64, 2, V(3, 5));
    op_case_tensor_attr(&c, "base_values_as_tensor", TACIT_F64, 2, V(0.5, 0.25));
    op_case_int(&c, "n_targets", 2);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 2), V(3.5, 0.25, 0.5, 5.25), 0);
    op_case_end(&c);
}

/* x <= 0 ? weights a : weights b, for the classes `ids`. */
static void begin_classifier(op_case *c, uint32_t n, const int64_t *ids, const double *weights)
{
    op_case_begin(c, "ai.onnx.ml", "TreeEnsembleClassifier");
    op_case_f64(c, TACIT_F32, SHAPE(2, 1), V(-1, 1));
    op_case_ints(c, "nodes_treeids", 3, I(0, 0, 0));
    op_case_ints(c, "nodes_nodeids", 3, I(0, 1, 2));
    op_case_ints(c, "nodes_featureids", 3, I(0, 0, 0));
    op_case_ints(c, "nodes_truenodeids", 3, I(1, 0, 0));
    op_case_ints(c, "nodes_falsenodeids", 3, I(2, 0, 0));
    op_case_strings_attr(c, "nodes_modes", 3, (const char *[]){"BRANCH_LEQ", "LEAF", "LEAF"});
    floats_attr(c, "nodes_values", 3, V(0, 0, 0));
    op_case_ints(c, "class_treeids", n, I(0, 0, 0, 0, 0, 0));
    op_case_ints(c, "class_nodeids", n,
                 n == 2   ? I(1, 2)
                 : n == 4 ? I(1, 1, 2, 2)
                          : I(1, 1, 1, 2, 2, 2));
    op_case_ints(c, "class_ids", n, ids);
    floats_attr(c, "class_weights", n, weights);
}

static void expect_classes(op_case *c, const double *labels, int64_t n, const double *scores)
{
    op_case_run(c, 2);
    op_case_expect(c, 0, TACIT_I64, SHAPE(2), labels, 0);
    op_case_expect(c, 1, TACIT_F32, SHAPE(2, n), scores, 1e-6);
    op_case_end(c);
}

/* What ONNX Runtime 1.31 gives for the same nodes. */
static void two_classes_by_one_score(void **state)
{
    (void)state;
    op_case c;
    begin_classifier(&c, 2, I(0, 0), V(0.3, 0.9)); /* a probability */
    op_case_ints(&c, "classlabels_int64s", 2, I(5, 7));
    expect_classes(&c, V(5, 7), 2, V(0.7, 0.3, 0.1, 0.9));
    begin_classifier(&c, 2, I(0, 0), V(0.3, 0.9));
    op_case_ints(&c, "classlabels_int64s", 2, I(5, 7));
    floats_attr(&c, "base_values", 1, V(0.25));
    expect_classes(&c, V(7, 7), 2, V(0.45, 0.55, -0.15, 1.15));
    begin_classifier(&c, 2, I(0, 0), V(-0.3, 0.9)); /* a margin */
    op_case_ints(&c, "classlabels_int64s", 2, I(5, 7));
    expect_classes(&c, V(5, 7), 2, V(0.3, -0.3, -0.9, 0.9));
    begin_classifier(&c, 2, I(0, 0), V(-0.3, 0.9));
    op_case_ints(&c, "classlabels_int64s", 2, I(5, 7));
    op_case_string(&c, "post_transform", "LOGISTIC");
    expect_classes(&c, V(5, 7), 2, V(0.5744425, 0.4255575, 0.2890505, 0.7109495));
    begin_classifier(&c, 2, I(1, 1), V(-0.3, 0.9)); /* of the second class */
    op_case_ints(&c, "classlabels_int64s", 2, I(5, 7));
    op_case_string(&c, "post_transform", "LOGISTIC");
    expect_classes(&c, V(5, 7), 2, V(0.5, 0.4255575, 0.5, 0.7109495));
}

static void one_and_many_classes(void **state)
{
    (void)state;
    op_case c;
    begin_classifier(&c, 2, I(0, 0), V(-0.3, 0.9));
    op_case_ints(&c, "classlabels_int64s", 1, I(5));
    expect_classes(&c, V(0, 1), 1, V(-0.3, 0.9));
    begin_classifier(&c, 4, I(0, 1, 0, 1), V(0.3, 0.7, 0.9, 0.1));
    op_case_ints(&c, "classlabels_int64s", 2, I(5, 7));
    expect_classes(&c, V(7, 5), 2, V(0.3, 0.7, 0.9, 0.1));
    begin_classifier(&c, 6, I(0, 1, 2, 0, 1, 2), V(0.3, 0.4, 0.1, 0.9, 0, 0.1));
    op_case_ints(&c, "classlabels_int64s", 3, I(5, 7, 9));
    op_case_string(&c, "post_transform", "SOFTMAX");
    expect_classes(&c, V(7, 5), 3,
                   V(0.3420088, 0.3779781, 0.2800131, 0.5388225, 0.2190689, 0.2421086));
    begin_classifier(&c, 6, I(0, 1, 2, 0, 1, 2), V(0.3, 0.4, 0.1, 0.9, 0, 0.1));
    op_case_ints(&c, "classlabels_int64s", 3, I(5, 7, 9));
    op_case_string(&c, "post_transform", "SOFTMAX_ZERO");
    expect_classes(&c, V(7, 5), 3, V(0.3420088, 0.3779781, 0.2800131, 0.6899744, 0, 0.3100255));
    begin_classifier(&c, 6, I(0, 1, 2, 0, 1, 2), V(0.3, 0.4, 0.1, 0.9, 0.5, 0.1));
    op_case_ints(&c, "classlabels_int64s", 3, I(5, 7, 9));
    op_case_string(&c, "post_transform", "PROBIT");
    expect_classes(&c, V(7, 5), 3, V(-0.5244459, -0.2533535, -1.2817129, 1.2817129, 0, -1.2817129));
}

static void labels_may_be_strings(void **state)
{
    (void)state;
    op_case c;
    begin_classifier(&c, 2, I(0, 0), V(0.3, 0.9));
    op_case_strings_attr(&c, "classlabels_strings", 2, (const char *[]){"no", "yes"});
    op_case_run(&c, 2);
    assert_int_equal(c.out[0].dtype, TACIT_STRING);
    assert_string_equal(((const ir_string *)c.out[0].data)[0].data, "no");
    assert_string_equal(((const ir_string *)c.out[0].data)[1].data, "yes");
    op_case_end(&c);
}

static void broken_trees_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t n;
        int64_t values[8];
        tacit_status status;
        const char *text;
    } cases[] = {
        {"nodes_truenodeids", 8, {2, 0, 0, 0, 0, 11, 0, 0}, TACIT_ERR_VALUE, "cycle"},
        {"nodes_truenodeids", 8, {0, 0, 3, 0, 0, 11, 0, 0}, TACIT_ERR_VALUE, "cycle"},
        {"nodes_truenodeids", 8, {1, 0, 77, 0, 0, 11, 0, 0}, TACIT_ERR_VALUE, "node 77"},
        {"nodes_falsenodeids", 8, {11, 0, 4, 0, 0, 12, 0, 0}, TACIT_ERR_VALUE, "node 11"},
        {"nodes_falsenodeids", 7, {2, 0, 4, 0, 0, 12, 0, 0}, TACIT_ERR_GRAPH, "7 entries for 8"},
        {"nodes_treeids", 3, {5, 5, 5}, TACIT_ERR_GRAPH, "3 entries for 8"},
        {"nodes_nodeids", 8, {0, 1, 2, 3, 3, 10, 11, 12}, TACIT_ERR_VALUE, "twice"},
        {"nodes_featureids", 8, {2, 0, 0, 0, 0, 0, 0, 0}, TACIT_ERR_VALUE, "feature 2 of 2"},
        {"nodes_featureids", 8, {-1, 0, 0, 0, 0, 0, 0, 0}, TACIT_ERR_VALUE, "feature -1"},
        {"nodes_missing_value_tracks_true", 2, {1, 1}, TACIT_ERR_GRAPH, "must have 8"},
        {"target_ids", 5, {0, 0, 1, 0, 0}, TACIT_ERR_VALUE, "target 1 of 1"},
        {"target_ids", 5, {0, 0, -1, 0, 0}, TACIT_ERR_VALUE, "target -1 of 1"},
        {"target_ids", 4, {0, 0, 0, 0}, TACIT_ERR_GRAPH, "4 entries for 5"},
        {"target_nodeids", 5, {1, 3, 4, 11, 99}, TACIT_ERR_VALUE, "node 99 of tree 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_case c;
        begin_regressor(&c, "BRANCH_LEQ");
        op_case_ints(&c, cases[i].name, cases[i].n, cases[i].values);
        if (i == 0) /* node 2 leads to node 0, which leads to it */
            op_case_ints(&c, "nodes_falsenodeids", 8, I(2, 0, 4, 0, 0, 12, 0, 0));
        op_case_refuses(&c, 1, cases[i].status, cases[i].text);
        op_case_end(&c);
    }
}

static void other_attributes_are_refused(void **state)
{
    (void)state;
    op_case c;
    begin_regressor(&c, "BRANCH_MAYBE");
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "mode 'BRANCH_MAYBE'");
    op_case_end(&c);
    begin_regressor(&c, "BRANCH_LEQ");
    op_case_string(&c, "aggregate_function", "MEDIAN");
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "MEDIAN");
    op_case_end(&c);
    begin_regressor(&c, "BRANCH_LEQ");
    op_case_string(&c, "post_transform", "TANH");
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "TANH");
    op_case_end(&c);
    begin_regressor(&c, "BRANCH_LEQ");
    floats_attr(&c, "base_values", 2, V(1, 2));
    op_case_refuses(&c, 1, TACIT_ERR_GRAPH, "base_values has 2");
    op_case_end(&c);
    begin_regressor(&c, "BRANCH_LEQ");
    op_case_int(&c, "n_targets", -3);
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "n_targets -3");
    op_case_end(&c);
    begin_regressor(&c, "BRANCH_LEQ");
    floats_attr(&c, "nodes_values", 3, V(1, 2, 3));
    op_case_refuses(&c, 1, TACIT_ERR_GRAPH, "must have 8");
    op_case_end(&c);
    begin_classifier(&c, 2, I(0, 2), V(0.3, 0.9));
    op_case_ints(&c, "classlabels_int64s", 2, I(5, 7));
    op_case_refuses(&c, 2, TACIT_ERR_VALUE, "target 2 of 2");
    op_case_end(&c);
    begin_classifier(&c, 2, I(0, 0), V(0.3, 0.9));
    op_case_refuses(&c, 2, TACIT_ERR_GRAPH, "must name the classes");
    op_case_end(&c);
}

/* --- linear models and vectors ---------------------------------------------------------------- */

static void linear_models(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "ai.onnx.ml", "LinearRegressor");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2), V(1, 2, 3, 4));
    floats_attr(&c, "coefficients", 4, V(1, 10, 0.5, -1));
    floats_attr(&c, "intercepts", 2, V(100, 0));
    op_case_int(&c, "targets", 2);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 2), V(121, -1.5, 143, -2.5), 0);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "LinearClassifier");
    op_case_f64(&c, TACIT_F32, SHAPE(3, 1), V(-1, 0, 1));
    floats_attr(&c, "coefficients", 1, V(0.5));
    floats_attr(&c, "intercepts", 1, V(0.1));
    op_case_ints(&c, "classlabels_ints", 2, I(5, 7));
    op_case_run(&c, 2);
    op_case_expect(&c, 0, TACIT_I64, SHAPE(3), V(5, 7, 7), 0);
    op_case_expect(&c, 1, TACIT_F32, SHAPE(3, 2), V(1.4, -0.4, 0.9, 0.1, 0.4, 0.6), 1e-6);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "LinearRegressor");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2), V(1, 2, 3, 4));
    floats_attr(&c, "coefficients", 3, V(1, 10, 0.5));
    op_case_refuses(&c, 1, TACIT_ERR_GRAPH, "3 coefficients");
    op_case_end(&c);
}

static void vector_machines(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "ai.onnx.ml", "SVMRegressor");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 1), V(0, 1));
    floats_attr(&c, "support_vectors", 2, V(0, 2));
    floats_attr(&c, "coefficients", 2, V(1, -1));
    floats_attr(&c, "rho", 1, V(0.5));
    floats_attr(&c, "kernel_params", 3, V(0.5, 0, 0));
    op_case_int(&c, "n_supports", 2);
    op_case_string(&c, "kernel_type", "RBF");
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 1), V(1.5 - exp(-2), 0.5), 1e-6);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "SVMClassifier");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 1), V(-1, 2));
    floats_attr(&c, "support_vectors", 2, V(1, -1));
    floats_attr(&c, "coefficients", 2, V(1, -1));
    floats_attr(&c, "rho", 1, V(0.5));
    op_case_ints(&c, "vectors_per_class", 2, I(1, 1));
    op_case_ints(&c, "classlabels_ints", 2, I(3, 4));
    op_case_run(&c, 2);
    op_case_expect(&c, 0, TACIT_I64, SHAPE(2), V(4, 3), 0);
    op_case_expect(&c, 1, TACIT_F32, SHAPE(2, 2), V(1.5, -1.5, -4.5, 4.5), 0);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "SVMClassifier");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 1), V(-1, 2));
    floats_attr(&c, "support_vectors", 2, V(1, -1));
    floats_attr(&c, "coefficients", 2, V(1, -1));
    floats_attr(&c, "rho", 1, V(0.5));
    op_case_ints(&c, "vectors_per_class", 2, I(2, 1));
    op_case_ints(&c, "classlabels_ints", 2, I(3, 4));
    op_case_refuses(&c, 2, TACIT_ERR_GRAPH, "2 entries for 3 vectors");
    op_case_end(&c);
}

/* --- features --------------------------------------------------------------------------------- */

static void features_are_prepared(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "ai.onnx.ml", "Scaler");
    op_case_i64(&c, TACIT_I64, SHAPE(2, 2), I(1, 2, 3, 4));
    floats_attr(&c, "offset", 2, V(1, 0.5));
    floats_attr(&c, "scale", 1, V(2));
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 2), V(0, 3, 4, 7), 0);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "Scaler");
    op_case_f64(&c, TACIT_F32, SHAPE(1, 2), V(1, 2));
    floats_attr(&c, "offset", 3, V(1, 0.5, 2));
    op_case_refuses(&c, 1, TACIT_ERR_GRAPH, "offset has 3 entries for 2");
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "Normalizer");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2), V(3, -4, 0, 0));
    op_case_string(&c, "norm", "L2");
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 2), V(0.6, -0.8, 0, 0), 1e-7);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "Imputer");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2), V(NAN, 1, 2, NAN));
    floats_attr(&c, "imputed_value_floats", 2, V(7, 8));
    op_case_float(&c, "replaced_value_float", NAN);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 2), V(7, 1, 2, 8), 0);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "FeatureVectorizer");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 1), V(1, 2));
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2), V(3, 4, 5, 6));
    op_case_ints(&c, "inputdimensions", 2, I(2, 1));
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(2, 3), V(1, 0, 3, 2, 0, 5), 0);
    op_case_end(&c);
}

static void categories_are_found(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "ai.onnx.ml", "OneHotEncoder");
    op_case_strings(&c, SHAPE(3), (const char *[]){"b", "z", "a"});
    op_case_strings_attr(&c, "cats_strings", 2, (const char *[]){"a", "b"});
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(3, 2), V(0, 1, 0, 0, 1, 0), 0);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "OneHotEncoder");
    op_case_i64(&c, TACIT_I64, SHAPE(1), I(9));
    op_case_ints(&c, "cats_int64s", 2, I(1, 2));
    op_case_int(&c, "zeros", 0);
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "none of 2 categories");
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "CategoryMapper");
    op_case_strings(&c, SHAPE(2), (const char *[]){"b", "z"});
    op_case_strings_attr(&c, "cats_strings", 2, (const char *[]){"a", "b"});
    op_case_ints(&c, "cats_int64s", 2, I(10, 20));
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_I64, SHAPE(2), V(20, -1), 0);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "CategoryMapper");
    op_case_i64(&c, TACIT_I64, SHAPE(2), I(10, 30));
    op_case_strings_attr(&c, "cats_strings", 2, (const char *[]){"a", "b"});
    op_case_ints(&c, "cats_int64s", 2, I(10, 20));
    op_case_run(&c, 1);
    assert_string_equal(((const ir_string *)c.out[0].data)[0].data, "a");
    assert_string_equal(((const ir_string *)c.out[0].data)[1].data, "_Unused");
    op_case_end(&c);
}

/* --- maps ------------------------------------------------------------------------------------- */

static void rows_become_maps(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "ai.onnx.ml", "ZipMap");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2), V(0.25, 0.75, 1, 0));
    op_case_strings_attr(&c, "classlabels_strings", 2, (const char *[]){"no", "yes"});
    op_case_run(&c, 1);
    assert_int_equal(c.out[0].kind, IR_SEQUENCE);
    assert_int_equal(c.out[0].count, 2);
    const ir_tensor *first = &c.out[0].items[0];
    assert_int_equal(first->kind, IR_MAP);
    assert_string_equal(((const ir_string *)first->items[0].data)[1].data, "yes");
    assert_true(((const float *)first->items[1].data)[1] == 0.75f);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "ZipMap");
    op_case_f64(&c, TACIT_F32, SHAPE(2, 2), V(0.25, 0.75, 1, 0));
    op_case_ints(&c, "classlabels_int64s", 3, I(1, 2, 3));
    op_case_refuses(&c, 1, TACIT_ERR_SHAPE, "3 labels for 2 scores");
    op_case_end(&c);
}

/* A map of i64 to f32. */
static void give_map(op_case *c, int64_t n, const int64_t *keys, const double *values)
{
    ir_shape shape = SHAPE(n);
    ir_tensor *items = ARENA_ARRAY(&c->memory, 2, ir_tensor);
    ir_tensor *k = ir_tensor_new(&c->memory, TACIT_I64, &shape);
    ir_tensor *v = ir_tensor_new(&c->memory, TACIT_F32, &shape);
    ir_tensor *t = ARENA_NEW(&c->memory, ir_tensor);
    assert_true(items && k && v && t);
    for (int64_t i = 0; i < n; i++) {
        ir_store_i64(TACIT_I64, k->data, i, keys[i]);
        ir_store_f64(TACIT_F32, v->data, i, values[i]);
    }
    items[0] = *k;
    items[1] = *v;
    *t = (ir_tensor){.kind = IR_MAP, .dtype = TACIT_F32, .shape.rank = -1, .present = true};
    t->items = items;
    t->count = 2;
    op_case_give(c, t);
}

static void maps_become_tensors(void **state)
{
    (void)state;
    op_case c;
    op_case_begin(&c, "ai.onnx.ml", "DictVectorizer");
    give_map(&c, 3, I(7, 2, 9), V(0.5, 1.5, 2.5));
    op_case_ints(&c, "int64_vocabulary", 3, I(2, 4, 7));
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(1, 3), V(1.5, 0, 0.5), 0);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "CastMap");
    give_map(&c, 3, I(3, 0, 2), V(0.5, 1.5, 2.5));
    op_case_string(&c, "cast_to", "TO_FLOAT");
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_F32, SHAPE(1, 3), V(1.5, 2.5, 0.5), 0);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "CastMap");
    give_map(&c, 3, I(3, 0, 2), V(5, 15, 25));
    op_case_string(&c, "cast_to", "TO_INT64");
    op_case_string(&c, "map_form", "SPARSE");
    op_case_int(&c, "max_map", 5);
    op_case_run(&c, 1);
    op_case_expect(&c, 0, TACIT_I64, SHAPE(1, 5), V(15, 0, 25, 5, 0), 0);
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "CastMap");
    give_map(&c, 3, I(3, 0, 2), V(5, 15, 25));
    op_case_string(&c, "map_form", "SPARSE");
    op_case_int(&c, "max_map", 3);
    op_case_refuses(&c, 1, TACIT_ERR_VALUE, "key 3");
    op_case_end(&c);
    op_case_begin(&c, "ai.onnx.ml", "CastMap");
    op_case_f64(&c, TACIT_F32, SHAPE(1), V(1));
    op_case_refuses(&c, 1, TACIT_ERR_TYPE, "must be a map");
    op_case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mode_branches),
        cmocka_unit_test(missing_values_take_their_branch),
        cmocka_unit_test(sums_are_aggregated),
        cmocka_unit_test(values_may_be_tensors),
        cmocka_unit_test(two_classes_by_one_score),
        cmocka_unit_test(one_and_many_classes),
        cmocka_unit_test(labels_may_be_strings),
        cmocka_unit_test(broken_trees_are_refused),
        cmocka_unit_test(other_attributes_are_refused),
        cmocka_unit_test(linear_models),
        cmocka_unit_test(vector_machines),
        cmocka_unit_test(features_are_prepared),
        cmocka_unit_test(categories_are_found),
        cmocka_unit_test(rows_become_maps),
        cmocka_unit_test(maps_become_tensors),
    };
    return cmocka_run_group_tests_name("op ml", tests, NULL, NULL);
}
