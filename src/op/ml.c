/* SPDX-License-Identifier: Apache-2.0
 * ai.onnx.ml: LabelEncoder, Binarizer, ArrayFeatureExtractor. */
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

#define ML_ROW(NAME, IN, INFER, EVAL, ...)                                                         \
    {                                                                                              \
        .name = NAME, .domain = ML, .min_in = IN, .max_in = IN, .min_out = 1, .max_out = 1,        \
        .flags = OP_NOT_DIFFERENTIABLE, .infer = INFER, .eval = EVAL, __VA_ARGS__                  \
    }

const op_def op_rows_ml[] = {
    ML_ROW("LabelEncoder", 1, label_infer, label_eval),
    ML_ROW("Binarizer", 1, op_infer_same_real, binarize_eval),
    ML_ROW("ArrayFeatureExtractor", 2, extract_infer, extract_eval),
    {0},
};
