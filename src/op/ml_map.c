/* SPDX-License-Identifier: Apache-2.0
 * ai.onnx.ml: maps. ZipMap makes a map of labels and scores for every row, DictVectorizer and
 * CastMap make tensors of maps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/scores.h"
#include "op/strip.h"

/* --- ZipMap ----------------------------------------------------------------------------------- */

/* `t` becomes a map of the labels and of the scores of row `row`. */
static tacit_status zip_row(op_eval *c, const op_labels *l, const ir_tensor *scores, int64_t row,
                            ir_tensor *t)
{
    ir_shape shape = ir_shape_of(1, (int64_t[]){l->count});
    ir_tensor *items = ARENA_ARRAY(c->memory, 2, ir_tensor);
    ir_tensor *keys = ir_tensor_new(c->memory, op_labels_dtype(l), &shape);
    ir_tensor *values = ir_tensor_new(c->memory, scores->dtype, &shape);
    if (!items || !keys || !values)
        return error_memory(c->err, "a map");
    if (l->strings)
        memcpy(keys->data, l->strings, l->count * sizeof *l->strings);
    else
        memcpy(keys->data, l->ints, l->count * sizeof *l->ints);
    op_strip_copy(scores->dtype, values->data, 0, 1, scores->data, row * l->count, 1, l->count);
    items[0] = *keys;
    items[1] = *values;
    *t = (ir_tensor){.kind = IR_MAP, .dtype = scores->dtype, .shape.rank = -1, .present = true};
    t->items = items;
    t->count = 2;
    return TACIT_OK;
}

static tacit_status zip_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    op_labels l;
    int64_t rows, columns;
    if (x->kind != IR_TENSOR || !ir_dtype_is_float(x->dtype))
        return error_set(c->err, TACIT_ERR_TYPE, "the scores must be a tensor of floats");
    TRY(op_rows_of(&x->shape, &rows, &columns, c->err));
    TRY(op_read_labels(c->node, "classlabels_strings", "classlabels_int64s", &l, c->err));
    if (l.count != columns || rows > INT32_MAX)
        return error_set(c->err, TACIT_ERR_SHAPE, "%u labels for %lld scores a row", l.count,
                         (long long)columns);
    TRY(op_eval_sequence(c, 0, x->dtype, (uint32_t)rows));
    for (int64_t r = 0; r < rows; r++)
        TRY(zip_row(c, &l, x, r, &op_out(c, 0)->items[r]));
    return TACIT_OK;
}

/* --- what is read from maps ------------------------------------------------------------------- */

/* The keys and values of input 0. */
static tacit_status want_map(op_eval *c, const ir_tensor **keys, const ir_tensor **values)
{
    const ir_tensor *given = op_in(c, 0);
    if (!given || given->kind != IR_MAP || given->count != 2 ||
        ir_tensor_count(&given->items[0]) != ir_tensor_count(&given->items[1]) ||
        (given->items[0].dtype != TACIT_I64 && given->items[0].dtype != TACIT_STRING))
        return error_set(c->err, TACIT_ERR_TYPE, "input 0 must be a map of i64 or strings");
    *keys = &given->items[0];
    *values = &given->items[1];
    return TACIT_OK;
}

static bool is_key(const op_labels *l, uint32_t i, const ir_tensor *keys, int64_t k)
{
    if (!l->strings)
        return ((const int64_t *)keys->data)[k] == l->ints[i];
    const ir_string *a = &l->strings[i], *b = (const ir_string *)keys->data + k;
    return a->length == b->length && (!a->length || memcmp(a->data, b->data, a->length) == 0);
}

static void store_nothing(ir_tensor *y, int64_t i)
{
    if (y->dtype == TACIT_STRING)
        ((ir_string *)y->data)[i] = (ir_string){"", 0};
    else
        ir_store_f64(y->dtype, y->data, i, 0);
}

/* Values in the order of the vocabulary; keys that it lacks are left out. */
static tacit_status vectorize_eval(op_eval *c)
{
    const ir_tensor *keys, *values;
    op_labels words;
    TRY(want_map(c, &keys, &values));
    TRY(op_read_labels(c->node, "string_vocabulary", "int64_vocabulary", &words, c->err));
    if (keys->dtype != op_labels_dtype(&words))
        return error_set(c->err, TACIT_ERR_TYPE, "the vocabulary does not fit keys of %s",
                         tacit_dtype_text(keys->dtype));
    ir_shape shape = ir_shape_of(2, (int64_t[]){1, words.count});
    TRY(op_eval_alloc(c, 0, values->dtype, &shape));
    ir_tensor *y = op_out(c, 0);
    for (uint32_t i = 0; i < words.count; i++) {
        int64_t k = 0, n = ir_tensor_count(keys);
        while (k < n && !is_key(&words, i, keys, k))
            k++;
        if (k < n)
            ir_copy_element(y->dtype, y->data, i, values->data, k);
        else
            store_nothing(y, i);
    }
    return TACIT_OK;
}

/* --- CastMap ---------------------------------------------------------------------------------- */

typedef struct entry {
    int64_t key, place;
} entry;

static int compare_entries(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    return (x->key > y->key) - (x->key < y->key);
}

static tacit_status read_target(const ir_node *node, tacit_dtype *out, tacit_error *err)
{
    static const char *const names[] = {"TO_FLOAT", "TO_STRING", "TO_INT64"};
    static const tacit_dtype types[] = {TACIT_F32, TACIT_STRING, TACIT_I64};
    const char *text = ir_attr_string(node, "cast_to", "TO_FLOAT");
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = types[i];
            return TACIT_OK;
        }
    return error_set(err, TACIT_ERR_VALUE, "cast_to '%s' is not known", text);
}

static tacit_status cast_value(op_eval *c, const ir_tensor *values, int64_t k, ir_tensor *y,
                               int64_t i)
{
    if (values->dtype == y->dtype) {
        ir_copy_element(y->dtype, y->data, i, values->data, k);
        return TACIT_OK;
    }
    if (values->dtype != TACIT_STRING && y->dtype != TACIT_STRING) {
        ir_store_f64(y->dtype, y->data, i, ir_load_f64(values->dtype, values->data, k));
        return TACIT_OK;
    }
    if (y->dtype == TACIT_STRING) {
        char *text = arena_printf(c->scratch, "%f", ir_load_f64(values->dtype, values->data, k));
        if (!text)
            return error_memory(c->err, "strings");
        ((ir_string *)y->data)[i] = (ir_string){text, strlen(text)};
        return TACIT_OK;
    }
    const ir_string *s = (const ir_string *)values->data + k;
    char *text = arena_strndup(c->scratch, s->data, s->length), *end;
    if (!text)
        return error_memory(c->err, "strings");
    double v = strtod(text, &end);
    if (end == text || *end)
        return error_set(c->err, TACIT_ERR_VALUE, "'%.40s' is no number", text);
    ir_store_f64(y->dtype, y->data, i, v);
    return TACIT_OK;
}

/* Entries in the order of their keys, or at the places that their keys are. */
static tacit_status cast_eval(op_eval *c)
{
    const ir_tensor *keys, *values;
    tacit_dtype dtype;
    bool sparse = strcmp(ir_attr_string(c->node, "map_form", "DENSE"), "SPARSE") == 0;
    TRY(want_map(c, &keys, &values));
    TRY(read_target(c->node, &dtype, c->err));
    int64_t n = ir_tensor_count(keys), size = sparse ? ir_attr_int(c->node, "max_map", 1) : n;
    entry *entries = op_eval_scratch(c, (size_t)(n + 1) * sizeof *entries);
    if (!entries)
        return error_memory(c->err, "a map");
    if (keys->dtype != TACIT_I64 || size < 0)
        return error_set(c->err, TACIT_ERR_TYPE, "keys must be i64 and max_map not below zero");
    for (int64_t i = 0; i < n; i++)
        entries[i] = (entry){((const int64_t *)keys->data)[i], i};
    qsort(entries, (size_t)n, sizeof *entries, compare_entries);
    ir_shape shape = ir_shape_of(2, (int64_t[]){1, size});
    TRY(op_eval_alloc(c, 0, dtype, &shape));
    ir_tensor *y = op_out(c, 0);
    for (int64_t i = 0; i < size; i++)
        store_nothing(y, i);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = sparse ? entries[i].key : i;
        if (at < 0 || at >= size)
            return error_set(c->err, TACIT_ERR_VALUE, "key %lld is beyond max_map, %lld",
                             (long long)at, (long long)size);
        TRY(cast_value(c, values, entries[i].place, y, at));
    }
    return TACIT_OK;
}

#define MAP_ROW(NAME, EVAL)                                                                        \
    {                                                                                              \
        .name = NAME, .domain = "ai.onnx.ml", .min_in = 1, .max_in = 1, .min_out = 1,              \
        .max_out = 1, .flags = OP_DATA_SHAPE | OP_ANY_KIND, .eval = EVAL                           \
    }

const op_def op_rows_ml_map[] = {
    MAP_ROW("ZipMap", zip_eval),
    MAP_ROW("DictVectorizer", vectorize_eval),
    MAP_ROW("CastMap", cast_eval),
    {0},
};
