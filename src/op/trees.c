/* SPDX-License-Identifier: Apache-2.0
 * ai.onnx.ml: TreeEnsemble and the two that it follows, TreeEnsembleRegressor and
 * TreeEnsembleClassifier. */
#include <math.h>
#include <string.h>

#include "op/build.h"
#include "op/elementwise.h"
#include "op/forest.h"
#include "op/strip.h"
#include "op/values.h"

static tacit_status check_features(const op_forest *f, int64_t features, tacit_error *err)
{
    for (uint32_t i = 0; i < f->n_nodes; i++)
        if (f->nodes[i].mode != OP_TREE_LEAF && f->nodes[i].feature >= features)
            return error_set(err, TACIT_ERR_VALUE, "tree node %u reads feature %lld of %lld", i,
                             (long long)f->nodes[i].feature, (long long)features);
    return TACIT_OK;
}

static tacit_status ensemble_infer(op_infer *c)
{
    op_forest f;
    const ir_shape *x = &c->in[0]->shape;
    TRY(op_check_class(c, 0, OP_FLOAT));
    TRY(op_read_forest(c->node, c->memory, &f, c->err));
    if (x->rank != 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "the input must be [N, F]");
    TRY(check_features(&f, x->dims[1], c->err));
    op_set_out_dims(c, 0, c->in[0]->dtype, 2, (int64_t[]){x->dims[0], f.scores.n});
    return TACIT_OK;
}

/* The forest of a node over rows of features; returns how many rows. */
static tacit_status infer_rows(op_infer *c, op_forest *f, int64_t *rows)
{
    int64_t features;
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_rows_of(&c->in[0]->shape, rows, &features, c->err));
    TRY(op_read_forest(c->node, c->memory, f, c->err));
    return check_features(f, features, c->err);
}

static tacit_status regressor_infer(op_infer *c)
{
    op_forest f;
    int64_t rows;
    TRY(infer_rows(c, &f, &rows));
    op_set_out_dims(c, 0, TACIT_F32, 2, (int64_t[]){rows, f.scores.n});
    return TACIT_OK;
}

static tacit_status classifier_infer(op_infer *c)
{
    op_forest f;
    int64_t rows;
    TRY(infer_rows(c, &f, &rows));
    op_set_out_dims(c, 0, op_labels_dtype(&f.labels), 1, &rows);
    op_set_out_dims(c, 1, TACIT_F32, 2, (int64_t[]){rows, f.scores.n});
    return TACIT_OK;
}

static bool is_member(const op_forest *f, const op_tree_node *n, double v)
{
    for (uint32_t i = n->begin; i < n->end; i++)
        if (ir_load_f64(f->members->dtype, f->members->data, i) == v)
            return true;
    return false;
}

static bool takes_true(const op_forest *f, const op_tree_node *n, double v)
{
    if (isnan(v) && n->missing)
        return true;
    switch (n->mode) {
    case OP_TREE_LEQ:
        return v <= n->split;
    case OP_TREE_LT:
        return v < n->split;
    case OP_TREE_GTE:
        return v >= n->split;
    case OP_TREE_GT:
        return v > n->split;
    case OP_TREE_EQ:
        return v == n->split;
    case OP_TREE_NEQ:
        return v != n->split;
    default:
        return is_member(f, n, v);
    }
}

static const op_tree_node *find_leaf(const op_forest *f, const double *x, uint32_t root)
{
    const op_tree_node *n = &f->nodes[root];
    while (n->mode != OP_TREE_LEAF)
        n = &f->nodes[takes_true(f, n, x[n->feature]) ? n->yes : n->no];
    return n;
}

static void add_weight(const op_forest *f, const op_tree_weight *w, double *sum, uint8_t *reached)
{
    bool first = !reached[w->target];
    double *s = &sum[w->target];
    reached[w->target] = 1;
    if (f->aggregate == OP_TREE_MIN)
        *s = first ? w->value : fmin(*s, w->value);
    else if (f->aggregate == OP_TREE_MAX)
        *s = first ? w->value : fmax(*s, w->value);
    else
        *s += w->value;
}

/* Returns the winning class of a classifier. */
static int64_t score_row(const op_forest *f, const double *x, double *sum, uint8_t *reached)
{
    memset(sum, 0, (size_t)f->scores.n * sizeof *sum);
    memset(reached, 0, (size_t)f->scores.n);
    for (uint32_t t = 0; t < f->n_trees; t++) {
        const op_tree_node *leaf = find_leaf(f, x, f->roots[t]);
        for (uint32_t i = leaf->begin; i < leaf->end; i++)
            add_weight(f, &f->weights[i], sum, reached);
    }
    return cpu_scores_finish(&f->scores, sum, reached);
}

static tacit_status forest_eval(op_eval *c, ir_tensor *labels, ir_tensor *scores)
{
    const ir_tensor *x = op_in(c, 0);
    op_forest f;
    int64_t rows, features;
    double *values, *sum;
    TRY(op_rows_of(&x->shape, &rows, &features, c->err));
    TRY(op_read_forest(c->node, c->scratch, &f, c->err));
    TRY(op_input_f64(c, 0, &values));
    TRY(op_scratch_f64(c, f.scores.n, &sum));
    uint8_t *reached = op_eval_scratch(c, (size_t)f.scores.n);
    if (!reached)
        return error_memory(c->err, "a tree ensemble");
    for (int64_t r = 0; r < rows; r++) {
        int64_t best = score_row(&f, values + r * features, sum, reached);
        if (labels)
            op_store_label(&f.labels, best, labels, r);
        if (scores)
            op_strip_store_f64(scores->dtype, scores->data, r * f.scores.n, f.scores.n, sum);
    }
    return TACIT_OK;
}

static tacit_status regressor_eval(op_eval *c)
{
    return forest_eval(c, NULL, op_out(c, 0));
}
static tacit_status classifier_eval(op_eval *c)
{
    return forest_eval(c, op_out(c, 0), op_out(c, 1));
}

/* No kernel writes strings: classes are told by their numbers then, and their labels looked up. */
static tacit_status classifier_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    op_labels labels;
    TRY(op_read_labels(node, "classlabels_strings", "classlabels_int64s", &labels, err));
    if (!labels.strings || labels.count < 2)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "'%s' is as plain as can be", node->name);
    int64_t *numbers = ARENA_ARRAY(g->memory, labels.count, int64_t);
    const char *name = ir_fresh_node_name(g, node->name);
    ir_node *n = ir_node_new(g, node->type, node->domain, name, 1, node->inputs, 2, NULL);
    if (!numbers || !n || !ir_attr_copy_all(g, n, node))
        return error_memory(err, "decomposing a node");
    for (uint32_t i = 0; i < labels.count; i++)
        numbers[i] = i;
    ir_attr_remove(n, "classlabels_strings");
    if (!ir_attr_set_ints(g, n, "classlabels_int64s", labels.count, numbers))
        return error_memory(err, "decomposing a node");
    op_resolve(NULL, n);
    ir_value *names = op_labels_constant(g, &labels, 0, labels.count, 1);
    TRY(op_build_finish(g, node, 0, names ? op_build2(g, "Gather", names, n->outputs[0]) : NULL,
                        err));
    TRY(op_build_finish(g, node, 1, n->outputs[1], err));
    ir_node_kill(node);
    return TACIT_OK;
}

#define TREE_ROW(NAME, OUT, INFER, EVAL, ...)                                                      \
    {                                                                                              \
        .name = NAME, .domain = "ai.onnx.ml", .min_in = 1, .max_in = 1, .min_out = 1,              \
        .max_out = OUT, .flags = OP_NOT_DIFFERENTIABLE, .infer = INFER, .eval = EVAL,              \
        .lower = op_lower_trees, __VA_ARGS__                                                       \
    }

const op_def op_rows_trees[] = {
    TREE_ROW("TreeEnsemble", 1, ensemble_infer, regressor_eval, .decompose = NULL),
    TREE_ROW("TreeEnsembleRegressor", 1, regressor_infer, regressor_eval, .decompose = NULL),
    TREE_ROW("TreeEnsembleClassifier", 2, classifier_infer, classifier_eval,
             .decompose = classifier_decompose),
    {0},
};
