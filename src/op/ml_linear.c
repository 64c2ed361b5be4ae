/* SPDX-License-Identifier: Apache-2.0
 * ai.onnx.ml: LinearRegressor and LinearClassifier: a product with coefficients, spelled as such
 * where there are kernels for it. */
#include <string.h>

#include "op/build.h"
#include "op/elementwise.h"
#include "op/scores.h"
#include "op/strip.h"
#include "op/values.h"

typedef struct linear {
    const double *coefficients; /* [targets, features] */
    const double *intercepts;   /* NULL: none */
    int64_t targets;
    cpu_post post;
    op_labels labels; /* of a classifier */
} linear;

static bool is_classifier(const ir_node *node)
{
    return strcmp(node->type, "LinearClassifier") == 0;
}

/* A classifier with one row of coefficients and two labels tells the two apart by the sign. */
static bool has_second_class(const linear *l)
{
    return l->labels.count == 2 && l->targets == 1;
}

static tacit_status read_linear(const ir_node *node, int64_t features, linear *l, tacit_error *err)
{
    uint32_t n, n_intercepts;
    *l = (linear){.coefficients = ir_attr_floats(node, "coefficients", &n),
                  .intercepts = ir_attr_floats(node, "intercepts", &n_intercepts)};
    n_intercepts = l->intercepts ? n_intercepts : 0;
    if (!l->coefficients || !n)
        return error_set(err, TACIT_ERR_GRAPH, "there are no coefficients");
    TRY(op_read_post(node, &l->post, err));
    if (is_classifier(node)) {
        TRY(op_read_labels(node, "classlabels_strings", "classlabels_ints", &l->labels, err));
        l->targets = n_intercepts ? n_intercepts : features ? n / features : 0;
    } else {
        l->targets = ir_attr_int(node, "targets", 1);
    }
    if (!n_intercepts)
        l->intercepts = NULL;
    if (l->targets < 1 || features < 1 || l->targets > n || l->targets * features != n ||
        (n_intercepts && n_intercepts != l->targets))
        return error_set(err, TACIT_ERR_GRAPH,
                         "%u coefficients and %u intercepts for %lld targets of %lld features", n,
                         n_intercepts, (long long)l->targets, (long long)features);
    if (is_classifier(node) && l->targets > 1 && l->labels.count < l->targets)
        return error_set(err, TACIT_ERR_GRAPH, "%u labels for %lld classes", l->labels.count,
                         (long long)l->targets);
    return TACIT_OK;
}

static tacit_status linear_infer(op_infer *c)
{
    linear l;
    int64_t rows, features;
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_rows_of(&c->in[0]->shape, &rows, &features, c->err));
    TRY(read_linear(c->node, features, &l, c->err));
    if (is_classifier(c->node))
        op_set_out_dims(c, 0, op_labels_dtype(&l.labels), 1, &rows);
    op_set_out_dims(c, is_classifier(c->node) ? 1 : 0, TACIT_F32, 2,
                    (int64_t[]){rows, l.targets + has_second_class(&l)});
    return TACIT_OK;
}

static void dot_row(const linear *l, const double *x, int64_t features, double *y)
{
    for (int64_t t = 0; t < l->targets; t++) {
        y[t] = l->intercepts ? l->intercepts[t] : 0;
        for (int64_t f = 0; f < features; f++)
            y[t] += l->coefficients[t * features + f] * x[f];
    }
}

static tacit_status regressor_eval(op_eval *c)
{
    linear l;
    int64_t rows, features;
    double *x, *y;
    TRY(op_rows_of(&op_in(c, 0)->shape, &rows, &features, c->err));
    TRY(read_linear(c->node, features, &l, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_f64(c, rows * l.targets, &y));
    for (int64_t r = 0; r < rows; r++) {
        dot_row(&l, x + r * features, features, y + r * l.targets);
        if (l.targets > 1 || l.post == CPU_POST_PROBIT) /* as trees have it */
            cpu_post_transform(l.post, y + r * l.targets, l.targets);
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

/* The winner by the plain scores, which then become what post_transform says. `y` has room for the
 * second class. As ONNX Runtime has it: of two classes told apart by one score, that is taken for
 * the probability of the second, unless it becomes one. */
static int64_t finish_row(const linear *l, double *y)
{
    int64_t best = 0;
    if (l->targets == 1) {
        double score = y[0];
        best = score > 0;
        if (has_second_class(l)) {
            y[1] = score;
            y[0] = l->post == CPU_POST_LOGISTIC ? -score : 1 - score;
            if (l->post == CPU_POST_LOGISTIC || l->post == CPU_POST_PROBIT)
                cpu_post_transform(l->post, y, 2);
        } else if (l->post == CPU_POST_PROBIT) {
            cpu_post_transform(l->post, y, 1);
        }
        return best;
    }
    for (int64_t k = 1; k < l->targets; k++)
        if (y[k] > y[best])
            best = k;
    cpu_post_transform(l->post, y, l->targets);
    return best;
}

/* Of one score and other than two labels: 1 and 0. */
static void store_label(const linear *l, int64_t best, ir_tensor *to, int64_t i)
{
    if (l->targets > 1 || l->labels.count == 2)
        op_store_label(&l->labels, best, to, i);
    else if (to->dtype == TACIT_STRING)
        ((ir_string *)to->data)[i] = best ? (ir_string){"1", 1} : (ir_string){"0", 1};
    else
        ((int64_t *)to->data)[i] = best;
}

static tacit_status classifier_eval(op_eval *c)
{
    linear l;
    int64_t rows, features;
    double *x, *y;
    ir_tensor *labels = op_out(c, 0);
    TRY(op_rows_of(&op_in(c, 0)->shape, &rows, &features, c->err));
    TRY(read_linear(c->node, features, &l, c->err));
    int64_t width = l.targets + has_second_class(&l);
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_f64(c, rows * width, &y));
    for (int64_t r = 0; r < rows; r++) {
        dot_row(&l, x + r * features, features, y + r * width);
        int64_t best = finish_row(&l, y + r * width);
        if (labels)
            store_label(&l, best, labels, r);
    }
    op_output_f64(c, 1, y);
    return TACIT_OK;
}

/* --- by products ------------------------------------------------------------------------------ */

static ir_value *constant(ir_graph *g, int32_t rank, const int64_t *dims, const double *values)
{
    ir_shape shape = ir_shape_of(rank, dims);
    ir_tensor *t = ir_tensor_new(g->memory, TACIT_F32, &shape);
    if (!t)
        return NULL;
    op_strip_store_f64(TACIT_F32, t->data, 0, ir_shape_size(&shape), values);
    return ir_constant_new(g, "coefficients", t);
}

/* X·coefficientsᵀ + intercepts. */
static ir_value *build_scores(ir_graph *g, ir_node *node, const linear *l, int64_t rows,
                              int64_t features)
{
    ir_value *x = node->inputs[0], *in[3];
    if (x->type.dtype != TACIT_F32)
        x = op_build_cast(g, x, TACIT_F32);
    in[0] = node->inputs[0]->type.shape.rank == 2
                ? x
                : op_build_reshape(g, x, 2, (int64_t[]){rows, features});
    in[1] = constant(g, 2, (int64_t[]){l->targets, features}, l->coefficients);
    in[2] = l->intercepts ? constant(g, 1, &l->targets, l->intercepts) : NULL;
    if (!in[0] || !in[1] || (l->intercepts && !in[2]))
        return NULL;
    ir_node *gemm = op_node(g, "Gemm", NULL, l->intercepts ? 3 : 2, in);
    return gemm && ir_attr_set_int(g, gemm, "transB", 1) ? gemm->outputs[0] : NULL;
}

static ir_value *build_post(ir_graph *g, cpu_post post, ir_value *x)
{
    if (post == CPU_POST_LOGISTIC)
        return op_build1(g, "Sigmoid", x);
    return post == CPU_POST_SOFTMAX ? op_build1(g, "Softmax", x) : x;
}

static tacit_status read_spelling(ir_node *node, int64_t *rows, int64_t *features, linear *l,
                                  tacit_error *err)
{
    TRY(op_rows_of(&node->inputs[0]->type.shape, rows, features, err));
    TRY(read_linear(node, *features, l, err));
    if (l->post == CPU_POST_SOFTMAX_ZERO || l->post == CPU_POST_PROBIT)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "the transform of '%s' has no plain form",
                         node->name);
    return TACIT_OK;
}

static tacit_status regressor_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    linear l;
    int64_t rows, features;
    TRY(read_spelling(node, &rows, &features, &l, err));
    ir_value *y = build_scores(g, node, &l, rows, features);
    TRY(op_build_finish(g, node, 0, l.targets > 1 ? build_post(g, l.post, y) : y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* The label of the larger score, or by the sign of the only one. */
static ir_value *build_labels(ir_graph *g, const linear *l, ir_value *scores, int64_t rows)
{
    if (l->targets == 1) {
        ir_value *wins = op_build2(g, "Greater", op_build_reshape(g, scores, 1, &rows),
                                   op_build_scalar(g, TACIT_F32, 0));
        return op_build3(g, "Where", wins, op_labels_constant(g, &l->labels, 1, 1, 0),
                         op_labels_constant(g, &l->labels, 0, 1, 0));
    }
    ir_value *best = op_build1(g, "ArgMax", scores);
    if (!best || !ir_attr_set_int(g, best->producer, "axis", 1) ||
        !ir_attr_set_int(g, best->producer, "keepdims", 0))
        return NULL;
    return op_build2(g, "Gather", op_labels_constant(g, &l->labels, 0, l->labels.count, 1), best);
}

/* The scores of both classes from that of the second. */
static ir_value *build_both(ir_graph *g, cpu_post post, ir_value *score)
{
    ir_value *first = post == CPU_POST_LOGISTIC
                          ? op_build1(g, "Neg", score)
                          : op_build2(g, "Sub", op_build_scalar(g, TACIT_F32, 1), score);
    if (!first || !score)
        return NULL;
    ir_value *both = op_build2(g, "Concat", first, score);
    if (!both || !ir_attr_set_int(g, both->producer, "axis", 1))
        return NULL;
    return post == CPU_POST_LOGISTIC ? op_build1(g, "Sigmoid", both) : both;
}

static tacit_status classifier_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    linear l;
    int64_t rows, features;
    TRY(read_spelling(node, &rows, &features, &l, err));
    if (l.targets == 1 && l.labels.count != 2)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "'%s' has one class", node->name);
    ir_value *scores = build_scores(g, node, &l, rows, features);
    TRY(op_build_finish(g, node, 0, build_labels(g, &l, scores, rows), err));
    TRY(op_build_finish(
        g, node, 1,
        has_second_class(&l) ? build_both(g, l.post, scores) : build_post(g, l.post, scores), err));
    ir_node_kill(node);
    return TACIT_OK;
}

const op_def op_rows_ml_linear[] = {
    {.name = "LinearRegressor",
     .domain = "ai.onnx.ml",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = linear_infer,
     .eval = regressor_eval,
     .decompose = regressor_decompose},
    {.name = "LinearClassifier",
     .domain = "ai.onnx.ml",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 2,
     .infer = linear_infer,
     .eval = classifier_eval,
     .decompose = classifier_decompose},
    {0},
};
