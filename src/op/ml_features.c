/* SPDX-License-Identifier: Apache-2.0
 * ai.onnx.ml: what is done to features before a model: Scaler, Normalizer, Imputer, OneHotEncoder,
 * FeatureVectorizer, CategoryMapper. */
#include <math.h>
#include <string.h>

#include "op/build.h"
#include "op/elementwise.h"
#include "op/scores.h"
#include "op/strip.h"
#include "op/values.h"

/* --- Scaler ----------------------------------------------------------------------------------- */

/* offset and scale: none, one for all, or one for each feature. */
static tacit_status read_factors(const ir_node *node, const char *name, int64_t features,
                                 const double **out, uint32_t *count, tacit_error *err)
{
    *out = ir_attr_floats(node, name, count);
    *count = *out ? *count : 0;
    if (*count > 1 && *count != features)
        return error_set(err, TACIT_ERR_GRAPH, "%s has %u entries for %lld features", name, *count,
                         (long long)features);
    return TACIT_OK;
}

static int64_t features_of(const ir_shape *x)
{
    return x->rank ? x->dims[x->rank - 1] : 1;
}

static tacit_status scaler_infer(op_infer *c)
{
    const double *values;
    uint32_t n;
    int64_t features = features_of(&c->in[0]->shape);
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(read_factors(c->node, "offset", features, &values, &n, c->err));
    TRY(read_factors(c->node, "scale", features, &values, &n, c->err));
    op_set_out(c, 0, TACIT_F32, &c->in[0]->shape);
    return TACIT_OK;
}

static tacit_status scaler_eval(op_eval *c)
{
    const double *offset, *scale;
    uint32_t n_offset, n_scale;
    double *x;
    int64_t features = features_of(&op_in(c, 0)->shape);
    TRY(read_factors(c->node, "offset", features, &offset, &n_offset, c->err));
    TRY(read_factors(c->node, "scale", features, &scale, &n_scale, c->err));
    TRY(op_input_f64(c, 0, &x));
    for (int64_t i = 0, n = ir_tensor_count(op_in(c, 0)); i < n; i++) {
        int64_t k = i % features;
        x[i] -= n_offset ? offset[n_offset == 1 ? 0 : k] : 0;
        x[i] *= n_scale ? scale[n_scale == 1 ? 0 : k] : 1;
    }
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

static ir_value *constant_row(ir_graph *g, tacit_dtype dtype, const double *values, uint32_t n)
{
    if (n == 1) /* a scalar, which broadcasts to scalars too */
        return op_build_scalar(g, dtype, values[0]);
    ir_shape shape = ir_shape_of(1, (int64_t[]){n});
    ir_tensor *t = ir_tensor_new(g->memory, dtype, &shape);
    if (!t)
        return NULL;
    op_strip_store_f64(dtype, t->data, 0, n, values);
    return ir_constant_new(g, "factors", t);
}

/* What is not f32 is computed in f64. */
static ir_value *as_float(ir_graph *g, ir_value *x)
{
    bool is = x->type.dtype == TACIT_F32 || x->type.dtype == TACIT_F64;
    return is ? x : op_build_cast(g, x, TACIT_F64);
}
static ir_value *as_f32(ir_graph *g, ir_value *x, tacit_dtype dtype)
{
    return !x || dtype == TACIT_F32 ? x : op_build_cast(g, x, TACIT_F32);
}

static tacit_status scaler_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    const double *offset, *scale;
    uint32_t n_offset, n_scale;
    ir_value *x = node->inputs[0];
    int64_t features = features_of(&x->type.shape);
    TRY(read_factors(node, "offset", features, &offset, &n_offset, err));
    TRY(read_factors(node, "scale", features, &scale, &n_scale, err));
    tacit_dtype dtype = x->type.dtype == TACIT_F32 ? TACIT_F32 : TACIT_F64;
    x = as_float(g, x);
    if (n_offset)
        x = op_build2(g, "Sub", x, constant_row(g, dtype, offset, n_offset));
    if (n_scale)
        x = op_build2(g, "Mul", x, constant_row(g, dtype, scale, n_scale));
    x = as_f32(g, x, dtype);
    if (x == node->inputs[0])
        x = op_build1(g, "Identity", x);
    TRY(op_build_finish(g, node, 0, x, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- Normalizer ------------------------------------------------------------------------------- */

typedef enum norm_kind { NORM_MAX, NORM_L1, NORM_L2 } norm_kind;

static tacit_status read_norm(const ir_node *node, norm_kind *out, tacit_error *err)
{
    static const char *const names[] = {"MAX", "L1", "L2"};
    const char *text = ir_attr_string(node, "norm", "MAX");
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (norm_kind)i;
            return TACIT_OK;
        }
    return error_set(err, TACIT_ERR_VALUE, "norm '%s' is not known", text);
}

static tacit_status normalizer_infer(op_infer *c)
{
    norm_kind kind;
    int64_t rows, features;
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(read_norm(c->node, &kind, c->err));
    TRY(op_rows_of(&c->in[0]->shape, &rows, &features, c->err));
    op_set_out(c, 0, TACIT_F32, &c->in[0]->shape);
    return TACIT_OK;
}

/* Rows whose norm is zero stay as they are. */
static void normalize_row(norm_kind kind, double *x, int64_t n)
{
    double norm = kind == NORM_MAX ? -INFINITY : 0;
    for (int64_t i = 0; i < n; i++)
        norm = kind == NORM_MAX  ? fmax(norm, x[i])
               : kind == NORM_L1 ? norm + fabs(x[i])
                                 : norm + x[i] * x[i];
    norm = kind == NORM_L2 ? sqrt(norm) : norm;
    for (int64_t i = 0; norm != 0 && i < n; i++)
        x[i] /= norm;
}

static tacit_status normalizer_eval(op_eval *c)
{
    norm_kind kind;
    int64_t rows, features;
    double *x;
    TRY(read_norm(c->node, &kind, c->err));
    TRY(op_rows_of(&op_in(c, 0)->shape, &rows, &features, c->err));
    TRY(op_input_f64(c, 0, &x));
    for (int64_t r = 0; r < rows; r++)
        normalize_row(kind, x + r * features, features);
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

static tacit_status normalizer_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    static const char *const reductions[] = {"ReduceMax", "ReduceL1", "ReduceL2"};
    norm_kind kind;
    ir_value *x = node->inputs[0];
    TRY(read_norm(node, &kind, err));
    if (ir_shape_size(&x->type.shape) == 0)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "'%s' has no elements", node->name);
    int64_t last = x->type.shape.rank - 1;
    tacit_dtype dtype = x->type.dtype == TACIT_F32 ? TACIT_F32 : TACIT_F64;
    x = as_float(g, x);
    ir_value *norm = op_build_reduce(g, reductions[kind], x, 1, &last);
    ir_value *zero = op_build2(g, "Equal", norm, op_build_scalar(g, dtype, 0));
    norm = op_build3(g, "Where", zero, op_build_scalar(g, dtype, 1), norm);
    TRY(op_build_finish(g, node, 0, as_f32(g, op_build2(g, "Div", x, norm), dtype), err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- Imputer ---------------------------------------------------------------------------------- */

/* What stands for a missing value, and what takes its place: one for all or one a feature. */
typedef struct imputation {
    const double *floats;
    const int64_t *ints;
    uint32_t count;
} imputation;

static tacit_status read_imputation(const ir_node *node, tacit_dtype dtype, int64_t features,
                                    imputation *out, tacit_error *err)
{
    *out = (imputation){0};
    const char *name = ir_dtype_is_float(dtype) ? "imputed_value_floats" : "imputed_value_int64s";
    if (ir_dtype_is_float(dtype))
        out->floats = ir_attr_floats(node, name, &out->count);
    else
        out->ints = ir_attr_ints(node, name, &out->count);
    if (!out->floats && !out->ints)
        out->count = 0;
    if (out->count < 1 || (out->count > 1 && out->count != features))
        return error_set(err, TACIT_ERR_GRAPH, "%s has %u entries for %lld features of %s", name,
                         out->count, (long long)features, tacit_dtype_text(dtype));
    return TACIT_OK;
}

static tacit_status imputer_infer(op_infer *c)
{
    imputation m;
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(read_imputation(c->node, c->in[0]->dtype, features_of(&c->in[0]->shape), &m, c->err));
    return op_infer_same(c);
}

static tacit_status impute_floats(op_eval *c, const imputation *m, int64_t features)
{
    double *x, missing = ir_attr_float(c->node, "replaced_value_float", 0);
    TRY(op_input_f64(c, 0, &x));
    for (int64_t i = 0, n = ir_tensor_count(op_in(c, 0)); i < n; i++)
        if (x[i] == missing || (isnan(missing) && isnan(x[i])))
            x[i] = m->floats[m->count == 1 ? 0 : i % features];
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

static tacit_status impute_ints(op_eval *c, const imputation *m, int64_t features)
{
    int64_t *x, missing = ir_attr_int(c->node, "replaced_value_int64", 0);
    TRY(op_input_i64(c, 0, &x));
    for (int64_t i = 0, n = ir_tensor_count(op_in(c, 0)); i < n; i++)
        if (x[i] == missing)
            x[i] = m->ints[m->count == 1 ? 0 : i % features];
    op_output_i64(c, 0, x);
    return TACIT_OK;
}

static tacit_status imputer_eval(op_eval *c)
{
    imputation m;
    const ir_tensor *x = op_in(c, 0);
    int64_t features = features_of(&x->shape);
    TRY(read_imputation(c->node, x->dtype, features, &m, c->err));
    return m.floats ? impute_floats(c, &m, features) : impute_ints(c, &m, features);
}

static tacit_status imputer_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    imputation m;
    ir_value *x = node->inputs[0], *missing;
    double sought = ir_attr_float(node, "replaced_value_float", 0);
    tacit_dtype dtype = x->type.dtype;
    if (dtype != TACIT_F32 && dtype != TACIT_F64)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "'%s' is of %s", node->name,
                         tacit_dtype_text(dtype));
    TRY(read_imputation(node, dtype, features_of(&x->type.shape), &m, err));
    if (isnan(sought))
        missing = op_build1(g, "IsNaN", x);
    else
        missing = op_build2(g, "Equal", x, op_build_scalar(g, dtype, sought));
    ir_value *y = op_build3(g, "Where", missing, constant_row(g, dtype, m.floats, m.count), x);
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- OneHotEncoder ---------------------------------------------------------------------------- */

static bool strings_equal(const ir_string *a, const ir_string *b)
{
    return a->length == b->length && (!a->length || memcmp(a->data, b->data, a->length) == 0);
}

static tacit_status one_hot_infer(op_infer *c)
{
    op_labels cats;
    TRY(op_check_class(c, 0, OP_REAL | OP_STRING));
    TRY(op_read_labels(c->node, "cats_strings", "cats_int64s", &cats, c->err));
    if ((cats.strings != NULL) != (c->in[0]->dtype == TACIT_STRING))
        return error_set(c->err, TACIT_ERR_TYPE, "the categories do not fit a %s input",
                         tacit_dtype_text(c->in[0]->dtype));
    ir_shape y = c->in[0]->shape;
    if (y.rank == IR_MAX_RANK)
        return error_set(c->err, TACIT_ERR_SHAPE, "there is no room for an axis of categories");
    y.dims[y.rank++] = cats.count;
    op_set_out(c, 0, TACIT_F32, &y);
    return TACIT_OK;
}

/* Which category element i is; the number of categories: none. Numbers are cut to integers. */
static uint32_t category_of(const op_labels *cats, const ir_tensor *x, int64_t i)
{
    uint32_t k = 0;
    if (cats->strings) {
        while (k < cats->count && !strings_equal(&cats->strings[k], (ir_string *)x->data + i))
            k++;
        return k;
    }
    double v = ir_dtype_is_float(x->dtype) ? trunc(ir_load_f64(x->dtype, x->data, i)) : 0;
    int64_t whole = ir_dtype_is_float(x->dtype) ? 0 : ir_load_i64(x->dtype, x->data, i);
    while (k < cats->count &&
           (ir_dtype_is_float(x->dtype) ? (double)cats->ints[k] != v : cats->ints[k] != whole))
        k++;
    return k;
}

static tacit_status one_hot_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    float *y = op_out(c, 0)->data;
    bool zeros = ir_attr_int(c->node, "zeros", 1) != 0;
    op_labels cats;
    TRY(op_read_labels(c->node, "cats_strings", "cats_int64s", &cats, c->err));
    for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++) {
        uint32_t k = category_of(&cats, x, i);
        if (k == cats.count && !zeros)
            return error_set(c->err, TACIT_ERR_VALUE, "element %lld is none of %u categories",
                             (long long)i, cats.count);
        memset(y + i * cats.count, 0, cats.count * sizeof *y);
        if (k < cats.count)
            y[i * cats.count + k] = 1;
    }
    return TACIT_OK;
}

/* --- FeatureVectorizer ------------------------------------------------------------------------ */

/* How many columns input i gives. */
static tacit_status columns_of(const ir_node *node, uint32_t i, int64_t *out, tacit_error *err)
{
    uint32_t n;
    const int64_t *sizes = ir_attr_ints(node, "inputdimensions", &n);
    if (!sizes || i >= n || sizes[i] < 0)
        return error_set(err, TACIT_ERR_GRAPH, "inputdimensions says nothing of input %u", i);
    *out = sizes[i];
    return TACIT_OK;
}

static tacit_status vectorizer_infer(op_infer *c)
{
    int64_t dims[2] = {0, 0};
    for (uint32_t i = 0; i < c->n_in; i++) {
        int64_t columns;
        TRY(op_check_class(c, i, OP_REAL));
        TRY(columns_of(c->node, i, &columns, c->err));
        const ir_shape *x = &c->in[i]->shape;
        if (x->rank < 1)
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u is a scalar", i);
        /* A vector is a row, as in ONNX Runtime. */
        int64_t rows = x->rank == 1 ? 1 : x->dims[0];
        if (i && rows != dims[0])
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u has %lld rows, not %lld", i,
                             (long long)rows, (long long)dims[0]);
        dims[0] = rows;
        if (columns > INT64_MAX / 4 - dims[1])
            return error_set(c->err, TACIT_ERR_SHAPE, "too many columns");
        dims[1] += columns;
    }
    op_set_out_dims(c, 0, TACIT_F32, 2, dims);
    return TACIT_OK;
}

/* Columns that an input lacks are zero, those beyond are left out. */
static tacit_status vectorizer_eval(op_eval *c)
{
    ir_tensor *y = op_out(c, 0);
    int64_t rows = y->shape.dims[0], width = y->shape.dims[1], at = 0;
    memset(y->data, 0, (size_t)(rows * width) * sizeof(float));
    for (uint32_t i = 0; i < c->n_in; i++) {
        double *x;
        int64_t columns, own = rows ? ir_tensor_count(op_in(c, i)) / rows : 0;
        TRY(columns_of(c->node, i, &columns, c->err));
        TRY(op_input_f64(c, i, &x));
        for (int64_t r = 0; r < rows; r++)
            op_strip_store_f64(TACIT_F32, y->data, r * width + at, own < columns ? own : columns,
                               x + r * own);
        at += columns;
    }
    return TACIT_OK;
}

static ir_value *zeros(ir_graph *g, int64_t rows, int64_t columns)
{
    ir_shape shape = ir_shape_of(2, (int64_t[]){rows, columns});
    ir_tensor *t = ir_tensor_new(g->memory, TACIT_F32, &shape);
    if (!t)
        return NULL;
    memset(t->data, 0, t->bytes);
    return ir_constant_new(g, "zeros", t);
}

static ir_value *join(ir_graph *g, uint32_t n, ir_value *const *parts)
{
    for (uint32_t i = 0; i < n; i++)
        if (!parts[i])
            return NULL;
    ir_node *y = op_node(g, "Concat", NULL, n, parts);
    return y && ir_attr_set_int(g, y, "axis", 1) ? y->outputs[0] : NULL;
}

/* Input x as f32 [rows, columns], cut or filled up. */
static ir_value *as_columns(ir_graph *g, ir_value *x, int64_t rows, int64_t columns)
{
    int64_t own = ir_shape_size(&x->type.shape) / rows;
    x = as_f32(g, x, x->type.dtype);
    x = op_build_reshape(g, x, 2, (int64_t[]){rows, own});
    if (own < columns)
        return join(g, 2, (ir_value *[]){x, zeros(g, rows, columns - own)});
    if (own == columns || !x)
        return x;
    ir_value *in[4] = {x, op_build_ints(g, 1, (int64_t[]){0}), op_build_ints(g, 1, &columns),
                       op_build_ints(g, 1, (int64_t[]){1})};
    ir_node *cut = in[1] && in[2] && in[3] ? op_node(g, "Slice", NULL, 4, in) : NULL;
    return cut ? cut->outputs[0] : NULL;
}

static tacit_status vectorizer_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    int64_t rows = node->outputs[0]->type.shape.dims[0], columns;
    ir_value **parts = ARENA_ARRAY(g->memory, node->n_inputs, ir_value *);
    if (!parts)
        return error_memory(err, "decomposing a node");
    if (ir_shape_size(&node->outputs[0]->type.shape) == 0)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "'%s' has no elements", node->name);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        TRY(columns_of(node, i, &columns, err));
        parts[i] = as_columns(g, node->inputs[i], rows, columns);
    }
    TRY(op_build_finish(g, node, 0, join(g, node->n_inputs, parts), err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- CategoryMapper --------------------------------------------------------------------------- */

static tacit_status read_categories(const ir_node *node, const ir_string **strings,
                                    const int64_t **ints, uint32_t *count, tacit_error *err)
{
    uint32_t n_strings = 0, n_ints = 0;
    *strings = ir_attr_strings(node, "cats_strings", &n_strings);
    *ints = ir_attr_ints(node, "cats_int64s", &n_ints);
    if (!*strings || !*ints || n_strings != n_ints)
        return error_set(err, TACIT_ERR_GRAPH,
                         "cats_strings and cats_int64s must be lists of one length");
    *count = n_ints;
    return TACIT_OK;
}

static tacit_status mapper_infer(op_infer *c)
{
    const ir_string *strings;
    const int64_t *ints;
    uint32_t n;
    TRY(read_categories(c->node, &strings, &ints, &n, c->err));
    if (c->in[0]->dtype != TACIT_STRING && c->in[0]->dtype != TACIT_I64)
        return error_set(c->err, TACIT_ERR_TYPE, "the input must be strings or i64, not %s",
                         tacit_dtype_text(c->in[0]->dtype));
    op_set_out(c, 0, c->in[0]->dtype == TACIT_STRING ? TACIT_I64 : TACIT_STRING, &c->in[0]->shape);
    return TACIT_OK;
}

static tacit_status mapper_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    const ir_string *strings;
    const int64_t *ints;
    uint32_t n;
    TRY(read_categories(c->node, &strings, &ints, &n, c->err));
    const ir_attr *other = ir_attr_find(c->node, "default_string");
    bool given = other && other->kind == IR_ATTR_STRING;
    for (int64_t i = 0, count = ir_tensor_count(x); i < count; i++) {
        uint32_t k = 0;
        if (x->dtype == TACIT_STRING) {
            while (k < n && !strings_equal(&strings[k], (const ir_string *)x->data + i))
                k++;
            ((int64_t *)y->data)[i] = k < n ? ints[k] : ir_attr_int(c->node, "default_int64", -1);
        } else {
            while (k < n && ints[k] != ((const int64_t *)x->data)[i])
                k++;
            ((ir_string *)y->data)[i] = k < n   ? strings[k]
                                        : given ? other->s
                                                : (ir_string){"_Unused", 7};
        }
    }
    return TACIT_OK;
}

#define FEATURE_ROW(NAME, MAX_IN, FLAGS, INFER, EVAL, ...)                                         \
    {                                                                                              \
        .name = NAME, .domain = "ai.onnx.ml", .min_in = 1, .max_in = MAX_IN, .min_out = 1,         \
        .max_out = 1, .flags = FLAGS, .infer = INFER, .eval = EVAL, __VA_ARGS__                    \
    }

const op_def op_rows_ml_features[] = {
    FEATURE_ROW("Scaler", 1, 0, scaler_infer, scaler_eval, .decompose = scaler_decompose),
    FEATURE_ROW("Normalizer", 1, 0, normalizer_infer, normalizer_eval,
                .decompose = normalizer_decompose),
    FEATURE_ROW("Imputer", 1, 0, imputer_infer, imputer_eval, .decompose = imputer_decompose),
    FEATURE_ROW("OneHotEncoder", 1, OP_NOT_DIFFERENTIABLE, one_hot_infer, one_hot_eval),
    FEATURE_ROW("FeatureVectorizer", -1, 0, vectorizer_infer, vectorizer_eval,
                .decompose = vectorizer_decompose),
    FEATURE_ROW("CategoryMapper", 1, OP_NOT_DIFFERENTIABLE, mapper_infer, mapper_eval),
    {0},
};
