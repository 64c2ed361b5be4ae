/* SPDX-License-Identifier: Apache-2.0
 * ai.onnx.ml: LabelEncoder, Binarizer, ArrayFeatureExtractor, TreeEnsemble. */
#include <math.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/index.h"
#include "op/strip.h"

#define ML "ai.onnx.ml"

/* --- LabelEncoder ----------------------------------------------------------------------------- */

/* One of prefix_strings, prefix_int64s, prefix_floats, prefix_tensor, as a 1-D tensor. */
static tacit_status read_table(const ir_node *node, const char *const names[4], arena *memory,
                               ir_tensor *out, tacit_error *err)
{
    for (int k = 0; k < 4; k++) {
        const ir_attr *a = ir_attr_find(node, names[k]);
        if (!a)
            continue;
        if (a->kind == IR_ATTR_TENSOR) {
            *out = *a->tensor;
            return TACIT_OK;
        }
        ir_shape shape = ir_shape_of(1, (int64_t[]){a->count});
        if (a->kind == IR_ATTR_STRINGS)
            *out = ir_tensor_view(TACIT_STRING, &shape, a->strings);
        else if (a->kind == IR_ATTR_INTS)
            *out = ir_tensor_view(TACIT_I64, &shape, a->ints);
        if (a->kind == IR_ATTR_STRINGS || a->kind == IR_ATTR_INTS)
            return TACIT_OK;
        ir_tensor *t = ir_tensor_new(memory, TACIT_F32, &shape);
        if (!t)
            return error_memory(err, "a label table");
        for (uint32_t i = 0; a->kind == IR_ATTR_FLOATS && i < a->count; i++)
            ((float *)t->data)[i] = (float)a->floats[i];
        *out = *t;
        return TACIT_OK;
    }
    return error_set(err, TACIT_ERR_GRAPH, "none of %s, %s, … is given", names[0], names[1]);
}

static const char *const key_names[4] = {"keys_strings", "keys_int64s", "keys_floats",
                                         "keys_tensor"};
static const char *const value_names[4] = {"values_strings", "values_int64s", "values_floats",
                                           "values_tensor"};

static tacit_status label_tables(const ir_node *node, arena *memory, ir_tensor *keys,
                                 ir_tensor *values, tacit_error *err)
{
    TRY(read_table(node, key_names, memory, keys, err));
    TRY(read_table(node, value_names, memory, values, err));
    if (ir_tensor_count(keys) != ir_tensor_count(values))
        return error_set(err, TACIT_ERR_SHAPE, "%lld keys for %lld values",
                         (long long)ir_tensor_count(keys), (long long)ir_tensor_count(values));
    return TACIT_OK;
}

static tacit_status label_infer(op_infer *c)
{
    ir_tensor keys, values;
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(label_tables(c->node, c->memory, &keys, &values, c->err));
    if ((keys.dtype == TACIT_STRING) != (c->in[0]->dtype == TACIT_STRING))
        return error_set(c->err, TACIT_ERR_TYPE, "the keys do not fit a %s input",
                         tacit_dtype_text(c->in[0]->dtype));
    c->out[0] = *c->in[0];
    c->out[0].dtype = values.dtype;
    return TACIT_OK;
}

static bool key_equal(const ir_tensor *keys, int64_t k, const ir_tensor *x, int64_t i)
{
    if (keys->dtype == TACIT_STRING) {
        const ir_string *a = (const ir_string *)keys->data + k, *b = (const ir_string *)x->data + i;
        return a->length == b->length && (!a->length || memcmp(a->data, b->data, a->length) == 0);
    }
    if (!ir_dtype_is_float(keys->dtype) && !ir_dtype_is_float(x->dtype))
        return ir_load_i64(keys->dtype, keys->data, k) == ir_load_i64(x->dtype, x->data, i);
    double a = ir_load_f64(keys->dtype, keys->data, k), b = ir_load_f64(x->dtype, x->data, i);
    return a == b || (isnan(a) && isnan(b));
}

static void store_default(op_eval *c, ir_tensor *y, int64_t i)
{
    const ir_tensor *given = ir_attr_tensor(c->node, "default_tensor");
    const ir_attr *text = ir_attr_find(c->node, "default_string");
    if (given && given->dtype == y->dtype && ir_tensor_count(given) > 0)
        ir_copy_element(y->dtype, y->data, i, given->data, 0);
    else if (y->dtype == TACIT_STRING)
        ((ir_string *)y->data)[i] =
            text && text->kind == IR_ATTR_STRING ? text->s : (ir_string){"_Unused", 7};
    else if (ir_dtype_is_float(y->dtype))
        ir_store_f64(y->dtype, y->data, i, ir_attr_float(c->node, "default_float", -0.0));
    else
        ir_store_i64(y->dtype, y->data, i, ir_attr_int(c->node, "default_int64", -1));
}

static tacit_status label_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0), keys, values;
    TRY(label_tables(c->node, c->scratch, &keys, &values, c->err));
    for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++) {
        int64_t k = ir_tensor_count(&keys); /* of repeated keys the last one counts */
        while (k > 0 && !key_equal(&keys, k - 1, x, i))
            k--;
        if (k > 0)
            ir_copy_element(y->dtype, y->data, i, values.data, k - 1);
        else
            store_default(c, y, i);
    }
    return TACIT_OK;
}

/* --- Binarizer -------------------------------------------------------------------------------- */

static double binarize_f64(double x, const double *p)
{
    return x > p[0];
}
static int64_t binarize_i64(int64_t x, const double *p)
{
    return (double)x > p[0];
}
static tacit_status binarize_eval(op_eval *c)
{
    double threshold = ir_attr_float(c->node, "threshold", 0);
    return op_eval_unary(c, &(op_unary_rule){.f64 = binarize_f64, .i64 = binarize_i64}, &threshold);
}

/* --- ArrayFeatureExtractor -------------------------------------------------------------------- */

static tacit_status extract_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_INT));
    ir_shape y = c->in[0]->shape;
    if (y.rank < 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "a scalar has no features");
    if (y.rank == 1)
        y = ir_shape_of(2, (int64_t[]){1, y.dims[0]});
    y.dims[y.rank - 1] = ir_shape_size(&c->in[1]->shape);
    c->out[0] = ir_type_tensor(c->in[0]->dtype, y.rank, y.dims);
    return TACIT_OK;
}

static tacit_status extract_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *index = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    int32_t axis = x->shape.rank - 1;
    int64_t features = x->shape.dims[axis], n = ir_tensor_count(index), k;
    int64_t rows = features ? ir_tensor_count(x) / features : 0;
    for (int64_t i = 0; i < n; i++) {
        TRY(op_index_at(index, i, features, axis, &k, c->err));
        op_strip_copy(x->dtype, y->data, i, n, x->data, k, features, rows);
    }
    return TACIT_OK;
}

/* --- TreeEnsemble ----------------------------------------------------------------------------- */

typedef struct forest {
    uint32_t n_nodes, n_leaves, n_roots;
    const int64_t *feature, *true_id, *false_id, *true_leaf, *false_leaf, *missing, *roots, *target;
    const ir_tensor *mode, *split, *weight, *members;
    int64_t *member_start; /* by node, for membership tests */
    int64_t n_targets, aggregate, transform;
} forest;

enum { MODE_LEQ, MODE_LT, MODE_GTE, MODE_GT, MODE_EQ, MODE_NEQ, MODE_MEMBER };

static tacit_status node_list(const ir_node *node, const char *name, uint32_t n,
                              const int64_t **out, tacit_error *err)
{
    uint32_t count;
    *out = ir_attr_ints(node, name, &count);
    if (!*out || count != n)
        return error_set(err, TACIT_ERR_GRAPH, "%s must have %u entries", name, n);
    return TACIT_OK;
}

static tacit_status check_branch(const forest *f, uint32_t i, tacit_error *err)
{
    int64_t t = f->true_id[i], e = f->false_id[i];
    bool fits = f->feature[i] >= 0 && t >= 0 && e >= 0 &&
                t < (f->true_leaf[i] ? f->n_leaves : f->n_nodes) &&
                e < (f->false_leaf[i] ? f->n_leaves : f->n_nodes) &&
                ir_load_i64(f->mode->dtype, f->mode->data, i) <= MODE_MEMBER;
    return fits ? TACIT_OK : error_set(err, TACIT_ERR_VALUE, "tree node %u is malformed", i);
}

/* Sets of members are delimited by NaN, one for each membership node in order. */
static tacit_status find_members(forest *f, arena *memory, tacit_error *err)
{
    int64_t at = 0, n = f->members ? ir_tensor_count(f->members) : 0;
    f->member_start = ARENA_ARRAY(memory, f->n_nodes + 1u, int64_t);
    if (!f->member_start)
        return error_memory(err, "a tree ensemble");
    for (uint32_t i = 0; i < f->n_nodes; i++) {
        if (ir_load_i64(f->mode->dtype, f->mode->data, i) != MODE_MEMBER)
            continue;
        f->member_start[i] = at;
        while (at < n && !isnan(ir_load_f64(f->members->dtype, f->members->data, at)))
            at++;
        at++;
    }
    return TACIT_OK;
}

static tacit_status read_forest(const ir_node *node, arena *memory, forest *f, tacit_error *err)
{
    *f = (forest){.n_targets = ir_attr_int(node, "n_targets", 1),
                  .aggregate = ir_attr_int(node, "aggregate_function", 1),
                  .transform = ir_attr_int(node, "post_transform", 0),
                  .mode = ir_attr_tensor(node, "nodes_modes"),
                  .split = ir_attr_tensor(node, "nodes_splits"),
                  .weight = ir_attr_tensor(node, "leaf_weights"),
                  .members = ir_attr_tensor(node, "membership_values")};
    uint32_t n_missing;
    f->roots = ir_attr_ints(node, "tree_roots", &f->n_roots);
    f->feature = ir_attr_ints(node, "nodes_featureids", &f->n_nodes);
    f->target = ir_attr_ints(node, "leaf_targetids", &f->n_leaves);
    f->missing = ir_attr_ints(node, "nodes_missing_value_tracks_true", &n_missing);
    TRY(node_list(node, "nodes_truenodeids", f->n_nodes, &f->true_id, err));
    TRY(node_list(node, "nodes_falsenodeids", f->n_nodes, &f->false_id, err));
    TRY(node_list(node, "nodes_trueleafs", f->n_nodes, &f->true_leaf, err));
    TRY(node_list(node, "nodes_falseleafs", f->n_nodes, &f->false_leaf, err));
    if (!f->roots || !f->mode || !f->split || !f->weight ||
        ir_tensor_count(f->mode) != f->n_nodes || ir_tensor_count(f->split) != f->n_nodes ||
        ir_tensor_count(f->weight) != f->n_leaves || (f->missing && n_missing != f->n_nodes) ||
        !ir_dtype_is_int(f->mode->dtype))
        return error_set(err, TACIT_ERR_GRAPH, "the tree's attributes do not fit each other");
    for (uint32_t i = 0; i < f->n_nodes; i++)
        TRY(check_branch(f, i, err));
    for (uint32_t i = 0; i < f->n_leaves; i++)
        if (f->target[i] < 0 || f->target[i] >= f->n_targets)
            return error_set(err, TACIT_ERR_VALUE, "leaf %u has target %lld of %lld", i,
                             (long long)f->target[i], (long long)f->n_targets);
    for (uint32_t i = 0; i < f->n_roots; i++)
        if (f->roots[i] < 0 || f->roots[i] >= f->n_nodes)
            return error_set(err, TACIT_ERR_VALUE, "root %u is no node", i);
    if (f->n_targets < 1 || f->aggregate < 0 || f->aggregate > 3 || f->transform < 0 ||
        f->transform > 4)
        return error_set(err, TACIT_ERR_VALUE,
                         "bad n_targets, aggregate_function or "
                         "post_transform");
    return find_members(f, memory, err);
}

static tacit_status forest_infer(op_infer *c)
{
    forest f;
    TRY(op_check_class(c, 0, OP_FLOAT));
    TRY(read_forest(c->node, c->memory, &f, c->err));
    const ir_shape *x = &c->in[0]->shape;
    if (x->rank != 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "the input must be [N, F]");
    for (uint32_t i = 0; i < f.n_nodes; i++)
        if (f.feature[i] >= x->dims[1])
            return error_set(c->err, TACIT_ERR_VALUE, "node %u reads feature %lld of %lld", i,
                             (long long)f.feature[i], (long long)x->dims[1]);
    c->out[0] = ir_type_tensor(c->in[0]->dtype, 2, (int64_t[]){x->dims[0], f.n_targets});
    return TACIT_OK;
}

static bool is_member(const forest *f, int64_t node, double v)
{
    int64_t n = f->members ? ir_tensor_count(f->members) : 0;
    for (int64_t i = f->member_start[node]; i < n; i++) {
        double m = ir_load_f64(f->members->dtype, f->members->data, i);
        if (isnan(m))
            return false;
        if (m == v)
            return true;
    }
    return false;
}

static bool take_true(const forest *f, int64_t i, double v)
{
    double split = ir_load_f64(f->split->dtype, f->split->data, i);
    if (isnan(v) && f->missing && f->missing[i])
        return true;
    switch (ir_load_i64(f->mode->dtype, f->mode->data, i)) {
    case MODE_LEQ:
        return v <= split;
    case MODE_LT:
        return v < split;
    case MODE_GTE:
        return v >= split;
    case MODE_GT:
        return v > split;
    case MODE_EQ:
        return v == split;
    case MODE_NEQ:
        return v != split;
    default:
        return is_member(f, i, v);
    }
}

/* The leaf that row `row` of x reaches; -1 when the tree has a cycle. */
static int64_t find_leaf(const forest *f, const ir_tensor *x, int64_t row, int64_t node)
{
    for (uint32_t steps = 0; steps <= f->n_nodes; steps++) {
        double v = ir_load_f64(x->dtype, x->data, row * x->shape.dims[1] + f->feature[node]);
        bool yes = take_true(f, node, v);
        int64_t next = yes ? f->true_id[node] : f->false_id[node];
        if (yes ? f->true_leaf[node] : f->false_leaf[node])
            return next;
        node = next;
    }
    return -1;
}

/* The inverse of the normal distribution's error function, as PROBIT wants it. */
static double probit(double p)
{
    double w = log(4 * p * (1 - p)), a = 2 / (3.14159265358979 * 0.147) + w / 2;
    double r = sqrt(sqrt(a * a - w / 0.147) - a);
    return 1.41421356237310 * (2 * p - 1 < 0 ? -r : r);
}

static void post_transform(int64_t kind, double *v, int64_t n)
{
    if (kind == 2 || kind == 4) {
        for (int64_t i = 0; i < n; i++)
            v[i] = kind == 2 ? 1 / (1 + exp(-v[i])) : probit(v[i]);
    } else if (kind == 1 || kind == 3) {
        double most = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++)
            most = fmax(most, v[i]);
        for (int64_t i = 0; i < n; i++) {
            v[i] = kind == 3 && v[i] == 0 ? 0 : exp(v[i] - most); /* SOFTMAX_ZERO leaves zeros */
            sum += v[i];
        }
        for (int64_t i = 0; i < n; i++)
            v[i] = sum > 0 ? v[i] / sum : v[i];
    }
}

static tacit_status forest_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    forest f;
    TRY(read_forest(c->node, c->scratch, &f, c->err));
    double *score = op_eval_scratch(c, (size_t)f.n_targets * sizeof *score);
    bool *set = op_eval_scratch(c, (size_t)f.n_targets);
    if (!score || !set)
        return error_memory(c->err, "a tree ensemble");
    for (int64_t row = 0; row < x->shape.dims[0]; row++) {
        memset(score, 0, (size_t)f.n_targets * sizeof *score);
        memset(set, 0, (size_t)f.n_targets);
        for (uint32_t r = 0; r < f.n_roots; r++) {
            int64_t leaf = find_leaf(&f, x, row, f.roots[r]);
            if (leaf < 0)
                return error_set(c->err, TACIT_ERR_VALUE, "tree %u has a cycle", r);
            double w = ir_load_f64(f.weight->dtype, f.weight->data, leaf);
            double *s = &score[f.target[leaf]];
            bool first = !set[f.target[leaf]];
            set[f.target[leaf]] = true;
            if (f.aggregate >= 2)
                *s = first ? w : f.aggregate == 2 ? fmin(*s, w) : fmax(*s, w);
            else
                *s += w;
        }
        for (int64_t k = 0; f.aggregate == 0 && k < f.n_targets; k++)
            score[k] /= f.n_roots;
        post_transform(f.transform, score, f.n_targets);
        op_strip_store_f64(y->dtype, y->data, row * f.n_targets, f.n_targets, score);
    }
    return TACIT_OK;
}

#define ML_ROW(NAME, IN, INFER, EVAL, ...)                                                         \
    {                                                                                              \
        .name = NAME, .domain = ML, .min_in = IN, .max_in = IN, .min_out = 1, .max_out = 1,        \
        .flags = OP_NOT_DIFFERENTIABLE, .infer = INFER, .eval = EVAL, __VA_ARGS__                  \
    }

const op_def op_rows_ml[] = {
    ML_ROW("LabelEncoder", 1, label_infer, label_eval),
    ML_ROW("Binarizer", 1, op_infer_same_real, binarize_eval),
    ML_ROW("ArrayFeatureExtractor", 2, extract_infer, extract_eval),
    ML_ROW("TreeEnsemble", 1, forest_infer, forest_eval),
    {0},
};
