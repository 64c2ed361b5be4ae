/* SPDX-License-Identifier: Apache-2.0
 * Sequences and optionals. Their types are only known when they run, so the rows have no infer
 * rule: the program interprets them. */
#include <string.h>

#include "op/index.h"
#include "op/join.h"
#include "op/strip.h"
#include "op/view.h"

static tacit_status want_sequence(op_eval *c, uint32_t i, const ir_tensor **out)
{
    const ir_tensor *t = op_in(c, i);
    if (!t || t->kind != IR_SEQUENCE)
        return error_set(c->err, TACIT_ERR_TYPE, "input %u must be a sequence", i);
    *out = t;
    return TACIT_OK;
}

/* A position in [-n, n); `end` allows n itself. */
static tacit_status read_position(op_eval *c, uint32_t i, int64_t n, bool end, int64_t *out)
{
    TRY(op_read_int(op_in(c, i), out, c->err));
    if (*out < -n || *out >= n + end)
        return error_set(c->err, TACIT_ERR_VALUE, "position %lld is outside a sequence of %lld",
                         (long long)*out, (long long)n);
    *out += *out < 0 ? n : 0;
    return TACIT_OK;
}

static tacit_status empty_eval(op_eval *c)
{
    tacit_dtype dtype = ir_dtype_from_onnx(ir_attr_int(c->node, "dtype", 1));
    if (dtype == TACIT_DTYPE_NONE)
        return error_set(c->err, TACIT_ERR_TYPE, "dtype names no element type");
    return op_eval_sequence(c, 0, dtype, 0);
}

static tacit_status construct_eval(op_eval *c)
{
    TRY(op_eval_sequence(c, 0, op_in(c, 0)->dtype, c->n_in));
    for (uint32_t i = 0; i < c->n_in; i++) {
        const ir_tensor *t = op_in(c, i);
        if (!t || t->kind != IR_TENSOR || t->dtype != op_in(c, 0)->dtype)
            return error_set(c->err, TACIT_ERR_TYPE, "input %u does not fit the sequence", i);
        TRY(op_eval_copy(c, &op_out(c, 0)->items[i], op_in(c, i)));
    }
    return TACIT_OK;
}

static tacit_status at_eval(op_eval *c)
{
    const ir_tensor *s = NULL;
    int64_t k;
    TRY(want_sequence(c, 0, &s));
    TRY(read_position(c, 1, s->count, false, &k));
    return op_eval_copy(c, op_out(c, 0), &s->items[k]);
}

static tacit_status length_eval(op_eval *c)
{
    const ir_tensor *s = NULL;
    ir_shape scalar = {.rank = 0};
    TRY(want_sequence(c, 0, &s));
    TRY(op_eval_alloc(c, 0, TACIT_I64, &scalar));
    *(int64_t *)op_out(c, 0)->data = s->count;
    return TACIT_OK;
}

static tacit_status erase_eval(op_eval *c)
{
    const ir_tensor *s = NULL;
    TRY(want_sequence(c, 0, &s));
    int64_t k = (int64_t)s->count - 1;
    if (op_in(c, 1))
        TRY(read_position(c, 1, s->count, false, &k));
    else if (s->count == 0)
        return error_set(c->err, TACIT_ERR_VALUE, "the sequence is empty");
    TRY(op_eval_sequence(c, 0, s->dtype, s->count - 1));
    for (uint32_t i = 0; i + 1 < s->count; i++)
        TRY(op_eval_copy(c, &op_out(c, 0)->items[i], &s->items[i < k ? i : i + 1]));
    return TACIT_OK;
}

static tacit_status insert_eval(op_eval *c)
{
    const ir_tensor *s = NULL, *item = op_in(c, 1);
    TRY(want_sequence(c, 0, &s));
    int64_t k = s->count;
    if (op_in(c, 2))
        TRY(read_position(c, 2, s->count, true, &k));
    if (item->kind != IR_TENSOR || (s->count && item->dtype != s->dtype))
        return error_set(c->err, TACIT_ERR_TYPE, "a %s does not fit a sequence of %s",
                         tacit_dtype_text(item->dtype), tacit_dtype_text(s->dtype));
    TRY(op_eval_sequence(c, 0, item->dtype, s->count + 1));
    for (uint32_t i = 0; i <= s->count; i++)
        TRY(op_eval_copy(c, &op_out(c, 0)->items[i],
                         i < k    ? &s->items[i]
                         : i == k ? item
                                  : &s->items[i - 1]));
    return TACIT_OK;
}

/* --- SplitToSequence -------------------------------------------------------------------------- */

/* Sizes of the parts: given one by one, or all alike with a smaller last one. */
typedef struct parts {
    const ir_tensor *given; /* 1-D, or NULL */
    int64_t chunk, n;
    uint32_t count;
} parts;

static int64_t part_size(const parts *p, uint32_t i)
{
    if (p->given)
        return ir_load_i64(p->given->dtype, p->given->data, i);
    int64_t left = p->n - p->chunk * i;
    return left < p->chunk ? left : p->chunk;
}

static tacit_status read_parts(op_eval *c, int64_t n, parts *p)
{
    const ir_tensor *split = op_in(c, 1);
    *p = (parts){.chunk = 1, .n = n};
    if (split && !ir_dtype_is_int(split->dtype))
        return error_set(c->err, TACIT_ERR_TYPE, "split must hold integers");
    if (split && split->shape.rank == 0)
        TRY(op_read_int(split, &p->chunk, c->err));
    else if (split)
        p->given = split;
    if (p->chunk < 1)
        return error_set(c->err, TACIT_ERR_VALUE, "split size %lld is not positive",
                         (long long)p->chunk);
    int64_t left = n, chunks = n > 0 ? (n - 1) / p->chunk + 1 : 0;
    int64_t count = p->given ? ir_tensor_count(p->given) : chunks;
    if (count > UINT32_MAX / 2)
        return error_set(c->err, TACIT_ERR_LIMIT, "too many parts");
    p->count = (uint32_t)count;
    for (uint32_t i = 0; i < p->count; i++) {
        int64_t size = part_size(p, i);
        if (size < 0 || size > left)
            return error_set(c->err, TACIT_ERR_VALUE, "split size %lld of part %u does not fit",
                             (long long)size, i);
        left -= size;
    }
    if (left)
        return error_set(c->err, TACIT_ERR_VALUE, "split sizes leave %lld unused", (long long)left);
    return TACIT_OK;
}

static tacit_status split_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    op_split_axis s;
    parts p;
    int64_t strides[IR_MAX_RANK], at = 0;
    if (x->kind != IR_TENSOR)
        return error_set(c->err, TACIT_ERR_TYPE, "input 0 must be a tensor");
    TRY(op_split_at(&x->shape, ir_attr_int(c->node, "axis", 0), &s, c->err));
    TRY(read_parts(c, s.size, &p));
    bool drop = !op_in(c, 1) && !ir_attr_int(c->node, "keepdims", 1);
    TRY(op_eval_sequence(c, 0, x->dtype, p.count));
    ir_shape_strides(&x->shape, strides);
    for (uint32_t i = 0; i < p.count; i++) {
        ir_shape shape = x->shape;
        shape.dims[s.axis] = part_size(&p, i);
        ir_tensor *item = ir_tensor_new(c->memory, x->dtype, &shape);
        if (!item)
            return error_memory(c->err, "a sequence");
        op_copy_view(x->dtype, item->data, 0, x->data, at * s.inner, &shape, strides);
        at += shape.dims[s.axis];
        for (int32_t d = s.axis; drop && d + 1 < shape.rank; d++)
            shape.dims[d] = shape.dims[d + 1];
        shape.rank -= drop;
        item->shape = shape;
        op_out(c, 0)->items[i] = *item;
    }
    return TACIT_OK;
}

static tacit_status concat_eval(op_eval *c)
{
    const ir_tensor *s = NULL;
    TRY(want_sequence(c, 0, &s));
    const ir_tensor **items = op_eval_scratch(c, (s->count + 1u) * sizeof *items);
    if (!items)
        return error_memory(c->err, "a sequence");
    for (uint32_t i = 0; i < s->count; i++)
        items[i] = &s->items[i];
    op_join how = {.axis = ir_attr_int(c->node, "axis", 0),
                   .new_axis = ir_attr_int(c->node, "new_axis", 0) != 0};
    return op_join_items(c, 0, s->count, items, &how, NULL);
}

/* --- SequenceMap ------------------------------------------------------------------------------ */

static tacit_status map_item(op_eval *c, const ir_graph *body, uint32_t i)
{
    uint32_t n = c->node->n_explicit;
    const ir_tensor **args = op_eval_scratch(c, (n + 1u) * sizeof *args);
    ir_tensor *results = op_eval_scratch(c, (c->n_out + 1u) * sizeof *results);
    if (!args || !results)
        return error_memory(c->err, "a sequence");
    for (uint32_t k = 0; k < n; k++) {
        const ir_tensor *t = op_in(c, k);
        if (!t)
            return error_set(c->err, TACIT_ERR_GRAPH, "input %u is missing", k);
        if (t->kind == IR_SEQUENCE && i >= t->count)
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u has only %u items", k, t->count);
        args[k] = t->kind == IR_SEQUENCE ? &t->items[i] : t;
    }
    TRY(c->run_graph(c, body, n, args, c->n_out, results));
    for (uint32_t k = 0; k < c->n_out; k++)
        if (op_out(c, k)) {
            op_out(c, k)->items[i] = results[k];
            op_out(c, k)->dtype = results[k].dtype;
        }
    return TACIT_OK;
}

static tacit_status map_eval(op_eval *c)
{
    const ir_tensor *s = NULL;
    const ir_graph *body = ir_attr_graph(c->node, "body");
    TRY(want_sequence(c, 0, &s));
    if (!body)
        return error_set(c->err, TACIT_ERR_GRAPH, "no body");
    for (uint32_t k = 0; k < c->n_out; k++)
        if (op_out(c, k))
            TRY(op_eval_sequence(c, k,
                                 k < body->outputs.count ? body->outputs.data[k]->type.dtype
                                                         : TACIT_DTYPE_NONE,
                                 s->count));
    for (uint32_t i = 0; i < s->count; i++)
        TRY(map_item(c, body, i));
    return TACIT_OK;
}

/* --- optionals -------------------------------------------------------------------------------- */

static bool is_optional(const ir_tensor *t)
{
    return t->kind == IR_OPTIONAL || t->kind == IR_OPTIONAL_SEQUENCE;
}

static tacit_status optional_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    const ir_attr *type = ir_attr_find(c->node, "type");
    if (!x) {
        if (!type || type->kind != IR_ATTR_TYPE)
            return error_set(c->err, TACIT_ERR_GRAPH, "neither an element nor its type is given");
        *y = (ir_tensor){.dtype = type->type.dtype, .shape = type->type.shape};
        y->kind = type->type.kind == IR_SEQUENCE ? IR_OPTIONAL_SEQUENCE : IR_OPTIONAL;
        return TACIT_OK;
    }
    TRY(op_eval_copy(c, y, x));
    if (!is_optional(x))
        y->kind = x->kind == IR_SEQUENCE ? IR_OPTIONAL_SEQUENCE : IR_OPTIONAL;
    y->present = true;
    return TACIT_OK;
}

static tacit_status get_element_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    if (is_optional(x) && !x->present)
        return error_set(c->err, TACIT_ERR_VALUE, "the optional is empty");
    TRY(op_eval_copy(c, op_out(c, 0), x));
    if (is_optional(x))
        op_out(c, 0)->kind = x->kind == IR_OPTIONAL ? IR_TENSOR : IR_SEQUENCE;
    return TACIT_OK;
}

static tacit_status has_element_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_shape scalar = {.rank = 0};
    TRY(op_eval_alloc(c, 0, TACIT_BOOL, &scalar));
    *(uint8_t *)op_out(c, 0)->data = x && (!is_optional(x) || x->present);
    return TACIT_OK;
}

#define SEQUENCE_ROW(NAME, MIN, MAX, EVAL, ...)                                                    \
    {                                                                                              \
        .name = NAME, .min_in = MIN, .max_in = MAX, .min_out = 1, .max_out = 1,                    \
        .flags = OP_DATA_SHAPE | OP_ANY_KIND, .eval = EVAL, __VA_ARGS__                            \
    }

const op_def op_rows_sequence[] = {
    SEQUENCE_ROW("SequenceEmpty", 0, 0, empty_eval),
    SEQUENCE_ROW("SequenceConstruct", 1, -1, construct_eval),
    SEQUENCE_ROW("SequenceAt", 2, 2, at_eval),
    SEQUENCE_ROW("SequenceLength", 1, 1, length_eval),
    SEQUENCE_ROW("SequenceErase", 1, 2, erase_eval),
    SEQUENCE_ROW("SequenceInsert", 2, 3, insert_eval),
    SEQUENCE_ROW("SplitToSequence", 1, 2, split_eval),
    SEQUENCE_ROW("ConcatFromSequence", 1, 1, concat_eval),
    SEQUENCE_ROW("Optional", 0, 1, optional_eval),
    SEQUENCE_ROW("OptionalGetElement", 1, 1, get_element_eval),
    SEQUENCE_ROW("OptionalHasElement", 0, 1, has_element_eval),
    {.name = "SequenceMap",
     .min_in = 1,
     .max_in = -1,
     .min_out = 1,
     .max_out = -1,
     .flags = OP_CONTROL | OP_ANY_KIND,
     .eval = map_eval},
    {0},
};
