/* SPDX-License-Identifier: Apache-2.0
 * ai.onnx.ml: SVMRegressor and SVMClassifier. */
#include <math.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/scores.h"
#include "op/values.h"

typedef enum kernel_kind { KERNEL_LINEAR, KERNEL_POLY, KERNEL_RBF, KERNEL_SIGMOID } kernel_kind;

/* A list of numbers, empty where it is not given. */
typedef struct reals {
    const double *at;
    uint32_t count;
} reals;

typedef struct svm {
    kernel_kind kernel;
    double gamma, coef0, degree;
    reals coefficients, rho, vectors;
    int64_t n_vectors; /* 0: coefficients by features, without support vectors */
} svm;

static reals reals_of(const ir_node *node, const char *name)
{
    reals r;
    r.at = ir_attr_floats(node, name, &r.count);
    r.count = r.at ? r.count : 0;
    return r;
}

static tacit_status read_kernel(const ir_node *node, svm *s, tacit_error *err)
{
    static const char *const names[] = {"LINEAR", "POLY", "RBF", "SIGMOID"};
    const char *text = ir_attr_string(node, "kernel_type", "LINEAR");
    reals p = reals_of(node, "kernel_params");
    int k = 0;
    while (k < 4 && strcmp(text, names[k]) != 0)
        k++;
    if (k == 4)
        return error_set(err, TACIT_ERR_VALUE, "kernel_type '%s' is not known", text);
    if (p.count && p.count != 3)
        return error_set(err, TACIT_ERR_GRAPH, "kernel_params has %u entries, not 3", p.count);
    s->kernel = (kernel_kind)k;
    s->gamma = p.count ? p.at[0] : 0;
    s->coef0 = p.count ? p.at[1] : 0;
    s->degree = p.count ? p.at[2] : 0;
    return TACIT_OK;
}

static tacit_status read_svm(const ir_node *node, int64_t features, svm *s, tacit_error *err)
{
    s->coefficients = reals_of(node, "coefficients");
    s->rho = reals_of(node, "rho");
    s->vectors = reals_of(node, "support_vectors");
    TRY(read_kernel(node, s, err));
    if (!s->coefficients.count || !s->rho.count)
        return error_set(err, TACIT_ERR_GRAPH, "there are no coefficients or no rho");
    if (s->n_vectors < 0 || (s->n_vectors && (features < 1 || s->vectors.count % features ||
                                              s->vectors.count / features != s->n_vectors)))
        return error_set(err, TACIT_ERR_GRAPH,
                         "support_vectors has %u entries for %lld vectors of %lld features",
                         s->vectors.count, (long long)s->n_vectors, (long long)features);
    if (!s->n_vectors)
        s->kernel = KERNEL_LINEAR;
    return TACIT_OK;
}

static double kernel_dot(const svm *s, const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += s->kernel == KERNEL_RBF ? (a[i] - b[i]) * (a[i] - b[i]) : a[i] * b[i];
    switch (s->kernel) {
    case KERNEL_POLY:
        return pow(s->gamma * sum + s->coef0, s->degree);
    case KERNEL_RBF:
        return exp(-s->gamma * sum);
    case KERNEL_SIGMOID:
        return tanh(s->gamma * sum + s->coef0);
    case KERNEL_LINEAR:
        break;
    }
    return sum;
}

/* --- SVMRegressor ----------------------------------------------------------------------------- */

static tacit_status read_regressor(const ir_node *node, int64_t features, svm *s, tacit_error *err)
{
    cpu_post post;
    *s = (svm){.n_vectors = ir_attr_int(node, "n_supports", 0)};
    TRY(op_read_post(node, &post, err));
    TRY(read_svm(node, features, s, err));
    int64_t want = s->n_vectors ? s->n_vectors : features;
    if (s->coefficients.count != want)
        return error_set(err, TACIT_ERR_GRAPH, "coefficients has %u entries, not %lld",
                         s->coefficients.count, (long long)want);
    return TACIT_OK;
}

static tacit_status regressor_infer(op_infer *c)
{
    svm s;
    int64_t rows, features;
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_rows_of(&c->in[0]->shape, &rows, &features, c->err));
    TRY(read_regressor(c->node, features, &s, c->err));
    op_set_out_dims(c, 0, TACIT_F32, 2, (int64_t[]){rows, 1});
    return TACIT_OK;
}

static double regress(const svm *s, const double *x, int64_t features)
{
    double sum = s->rho.at[0];
    if (!s->n_vectors)
        return sum + kernel_dot(s, x, s->coefficients.at, features);
    for (int64_t v = 0; v < s->n_vectors; v++)
        sum += s->coefficients.at[v] * kernel_dot(s, x, s->vectors.at + v * features, features);
    return sum;
}

/* No transform follows, as in ONNX Runtime. */
static tacit_status regressor_eval(op_eval *c)
{
    svm s;
    int64_t rows, features;
    double *x, *y;
    bool one_class = ir_attr_int(c->node, "one_class", 0) != 0;
    TRY(op_rows_of(&op_in(c, 0)->shape, &rows, &features, c->err));
    TRY(read_regressor(c->node, features, &s, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_f64(c, rows, &y));
    for (int64_t r = 0; r < rows; r++) {
        y[r] = regress(&s, x + r * features, features);
        if (one_class)
            y[r] = y[r] > 0 ? 1 : -1;
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

/* --- SVMClassifier ---------------------------------------------------------------------------- */

typedef struct classifier {
    svm svm;
    op_labels labels;
    const int64_t *per_class; /* vectors of each class; NULL: none */
    int64_t classes, pairs;
    reals prob_a, prob_b;
    cpu_post post;
} classifier;

static bool has_probabilities(const classifier *k)
{
    return k->svm.n_vectors && k->prob_a.count;
}

/* Scores of a row. */
static int64_t width_of(const classifier *k)
{
    if (!k->svm.n_vectors || has_probabilities(k))
        return k->classes;
    return k->classes > 2 ? k->pairs : 2;
}

static tacit_status check_classifier(const classifier *k, int64_t features, tacit_error *err)
{
    const svm *s = &k->svm;
    int64_t want = s->n_vectors ? (k->classes - 1) * s->n_vectors : k->classes * features;
    if (s->coefficients.count != want)
        return error_set(err, TACIT_ERR_GRAPH, "coefficients has %u entries, not %lld",
                         s->coefficients.count, (long long)want);
    if (s->n_vectors &&
        (s->rho.count < k->pairs || (k->prob_a.count && k->prob_a.count < k->pairs)))
        return error_set(err, TACIT_ERR_GRAPH, "rho, prob_a and prob_b need %lld entries",
                         (long long)k->pairs);
    return TACIT_OK;
}

static tacit_status read_classifier(const ir_node *node, int64_t features, classifier *k,
                                    tacit_error *err)
{
    uint32_t n;
    *k = (classifier){.per_class = ir_attr_ints(node, "vectors_per_class", &n),
                      .prob_a = reals_of(node, "prob_a"),
                      .prob_b = reals_of(node, "prob_b")};
    TRY(op_read_labels(node, "classlabels_strings", "classlabels_ints", &k->labels, err));
    TRY(op_read_post(node, &k->post, err));
    k->classes = k->labels.count;
    if (k->classes > 65535)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "%lld classes", (long long)k->classes);
    k->pairs = k->classes * (k->classes - 1) / 2;
    n = k->per_class ? n : 0;
    for (uint32_t i = 0; i < n; i++) {
        if (k->per_class[i] < 0 || k->per_class[i] > INT32_MAX)
            return error_set(err, TACIT_ERR_VALUE, "vectors_per_class has %lld for class %u",
                             (long long)k->per_class[i], i);
        k->svm.n_vectors += k->per_class[i];
    }
    if ((k->svm.n_vectors && (n != k->classes || k->classes < 2)) ||
        k->prob_a.count != k->prob_b.count)
        return error_set(err, TACIT_ERR_GRAPH,
                         "%u entries in vectors_per_class, %u in prob_a and %u in prob_b for %lld "
                         "classes",
                         n, k->prob_a.count, k->prob_b.count, (long long)k->classes);
    TRY(read_svm(node, features, &k->svm, err));
    return check_classifier(k, features, err);
}

static tacit_status classifier_infer(op_infer *c)
{
    classifier k;
    int64_t rows, features;
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_rows_of(&c->in[0]->shape, &rows, &features, c->err));
    TRY(read_classifier(c->node, features, &k, c->err));
    op_set_out_dims(c, 0, op_labels_dtype(&k.labels), 1, &rows);
    op_set_out_dims(c, 1, TACIT_F32, 2, (int64_t[]){rows, width_of(&k)});
    return TACIT_OK;
}

/* Memory for one row. */
typedef struct workspace {
    double *kernels;       /* of the row with each vector */
    double *pairs, *votes; /* scores of pairs of classes */
    double *r, *q, *qp;    /* probabilities of pairs, and what solving for classes needs */
    double *scores;
} workspace;

static double weigh(const double *coefficients, const double *kernels, int64_t first, int64_t n)
{
    double sum = 0;
    for (int64_t i = first; i < first + n; i++)
        sum += coefficients[i] * kernels[i];
    return sum;
}

/* Each class against each: coefficients are [classes − 1, vectors], where those of a class against
 * itself are left out. */
static void score_pairs(const classifier *k, const workspace *w)
{
    int64_t n = k->svm.n_vectors, pair = 0, start_i = 0;
    const double *all = k->svm.coefficients.at;
    memset(w->votes, 0, (size_t)k->classes * sizeof *w->votes);
    for (int64_t i = 0; i < k->classes; start_i += k->per_class[i++])
        for (int64_t j = i + 1, start_j = start_i + k->per_class[i]; j < k->classes;
             start_j += k->per_class[j++], pair++) {
            w->pairs[pair] = k->svm.rho.at[pair] +
                             weigh(all + (j - 1) * n, w->kernels, start_i, k->per_class[i]) +
                             weigh(all + i * n, w->kernels, start_j, k->per_class[j]);
            w->votes[w->pairs[pair] > 0 ? i : j]++;
        }
}

/* Probabilities of classes from those of pairs: Wu, Lin and Weng's second method. */
static void couple(const workspace *w, int64_t n, double *p)
{
    const double *r = w->r;
    double *q = w->q, *qp = w->qp;
    for (int64_t t = 0; t < n; t++) {
        p[t] = 1 / (double)n;
        q[t * n + t] = 0;
        for (int64_t j = 0; j < n; j++) {
            if (j == t)
                continue;
            q[t * n + t] += r[j * n + t] * r[j * n + t];
            q[t * n + j] = -r[j * n + t] * r[t * n + j];
        }
    }
    for (int round = 0; round < 100; round++) {
        double whole = 0, worst = 0;
        for (int64_t t = 0; t < n; t++) {
            qp[t] = 0;
            for (int64_t j = 0; j < n; j++)
                qp[t] += q[t * n + j] * p[j];
            whole += p[t] * qp[t];
        }
        for (int64_t t = 0; t < n; t++)
            worst = fmax(worst, fabs(qp[t] - whole));
        if (worst < 0.005 / (double)n)
            return;
        for (int64_t t = 0; t < n; t++) {
            double d = (whole - qp[t]) / q[t * n + t];
            p[t] += d;
            whole = (whole + d * (d * q[t * n + t] + 2 * qp[t])) / ((1 + d) * (1 + d));
            for (int64_t j = 0; j < n; j++) {
                qp[j] = (qp[j] + d * q[t * n + j]) / (1 + d);
                p[j] /= 1 + d;
            }
        }
    }
}

static void pair_probabilities(const classifier *k, const workspace *w)
{
    int64_t pair = 0, n = k->classes;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++, pair++) {
            double v = w->pairs[pair] * k->prob_a.at[pair] + k->prob_b.at[pair];
            double p = fmin(fmax(1 - cpu_logistic(v), 1e-7), 1 - 1e-7);
            w->r[i * n + j] = p;
            w->r[j * n + i] = 1 - p;
        }
}

static int64_t best_of(const double *v, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

/* Support vectors: the votes of pairs decide. */
static int64_t classify_by_vectors(const classifier *k, const double *x, int64_t features,
                                   const workspace *w)
{
    for (int64_t v = 0; v < k->svm.n_vectors; v++)
        w->kernels[v] = kernel_dot(&k->svm, x, k->svm.vectors.at + v * features, features);
    score_pairs(k, w);
    if (has_probabilities(k)) {
        pair_probabilities(k, w);
        couple(w, k->classes, w->scores);
        cpu_post_transform(k->post, w->scores, k->classes);
    } else if (k->classes > 2) {
        memcpy(w->scores, w->pairs, (size_t)k->pairs * sizeof *w->scores);
        cpu_post_transform(k->post, w->scores, k->pairs);
    } else { /* as ONNX Runtime writes the one score of two classes */
        bool logistic = k->post == CPU_POST_LOGISTIC;
        w->scores[1] = w->pairs[0];
        w->scores[0] = logistic || k->post == CPU_POST_NONE ? -w->pairs[0] : 1 - w->pairs[0];
        if (logistic || k->post == CPU_POST_PROBIT)
            cpu_post_transform(k->post, w->scores, 2);
    }
    return best_of(w->votes, k->classes);
}

static int64_t classify_linear(const classifier *k, const double *x, int64_t features,
                               const workspace *w)
{
    for (int64_t j = 0; j < k->classes; j++)
        w->scores[j] = k->svm.rho.at[0] +
                       kernel_dot(&k->svm, x, k->svm.coefficients.at + j * features, features);
    int64_t best = best_of(w->scores, k->classes);
    if (k->classes > 1 || k->post == CPU_POST_PROBIT)
        cpu_post_transform(k->post, w->scores, k->classes);
    return best;
}

static tacit_status make_workspace(op_eval *c, const classifier *k, workspace *w)
{
    TRY(op_scratch_f64(c, k->svm.n_vectors, &w->kernels));
    TRY(op_scratch_f64(c, k->pairs, &w->pairs));
    TRY(op_scratch_f64(c, k->classes, &w->votes));
    TRY(op_scratch_f64(c, k->classes * k->classes, &w->r));
    TRY(op_scratch_f64(c, k->classes * k->classes, &w->q));
    return op_scratch_f64(c, k->classes, &w->qp);
}

static tacit_status classifier_eval(op_eval *c)
{
    classifier k;
    workspace w;
    int64_t rows, features;
    double *x, *scores;
    ir_tensor *labels = op_out(c, 0);
    TRY(op_rows_of(&op_in(c, 0)->shape, &rows, &features, c->err));
    TRY(read_classifier(c->node, features, &k, c->err));
    TRY(make_workspace(c, &k, &w));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_f64(c, rows * width_of(&k), &scores));
    for (int64_t r = 0; r < rows; r++) {
        const double *row = x + r * features;
        w.scores = scores + r * width_of(&k);
        int64_t best = k.svm.n_vectors ? classify_by_vectors(&k, row, features, &w)
                                       : classify_linear(&k, row, features, &w);
        if (labels && k.labels.strings)
            ((ir_string *)labels->data)[r] = k.labels.strings[best];
        else if (labels)
            ((int64_t *)labels->data)[r] = k.labels.ints[best];
    }
    op_output_f64(c, 1, scores);
    return TACIT_OK;
}

const op_def op_rows_ml_svm[] = {
    {.name = "SVMRegressor",
     .domain = "ai.onnx.ml",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = regressor_infer,
     .eval = regressor_eval},
    {.name = "SVMClassifier",
     .domain = "ai.onnx.ml",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 2,
     .infer = classifier_infer,
     .eval = classifier_eval},
    {0},
};
