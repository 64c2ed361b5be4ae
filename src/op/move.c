/* SPDX-License-Identifier: Apache-2.0
 * Ops that only look at or re-label their input: views, and the ops that tell a shape. */
#include <string.h>

#include "op/elementwise.h"
#include "op/range.h"
#include "op/strip.h"
#include "op/view.h"
#include "op/vjp.h"

static tacit_status copy_eval(op_eval *c)
{
    return op_eval_copy(c, op_out(c, 0), op_in(c, 0));
}

/* Same elements in the same order under the output's own shape. */
static tacit_status relabel_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    ir_shape shape = y->shape;
    /* A rank of 0 is known before the shape or axes that lead to it. */
    if (ir_shape_size(&shape) != ir_tensor_count(x))
        return error_set(c->err, TACIT_ERR_SHAPE, "%lld elements do not fit the result's %lld",
                         (long long)ir_tensor_count(x), (long long)ir_shape_size(&shape));
    TRY(op_eval_copy(c, y, x));
    y->shape = shape;
    return TACIT_OK;
}

static tacit_status identity_infer(op_infer *c)
{
    return op_infer_same(c);
}

static tacit_status out_of_count(op_infer *c, const ir_shape *to)
{
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    return error_set(c->err, TACIT_ERR_SHAPE, "%s cannot be reshaped to %s",
                     ir_shape_text(&c->in[0]->shape, a), ir_shape_text(to, b));
}

/* 0 copies the input's dim (unless allowzero), one -1 takes what is left. */
static tacit_status reshape_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_INT));
    const ir_shape *x = &c->in[0]->shape;
    if (!op_in_value(c, 1))
        return op_infer_open(c, c->in[0]->dtype, ir_shape_size(&c->in[1]->shape));
    int64_t dims[IR_MAX_RANK], count, known = 1;
    uint32_t rank;
    int32_t rest = -1;
    bool allow_zero = ir_attr_int(c->node, "allowzero", 0) != 0;
    TRY(op_read_ints(op_in_value(c, 1), dims, IR_MAX_RANK, &rank, c->err));
    for (uint32_t i = 0; i < rank; i++) {
        if (dims[i] == 0 && !allow_zero) {
            if ((int32_t)i >= x->rank)
                return error_set(c->err, TACIT_ERR_SHAPE, "dim %u copies a dim the input lacks", i);
            dims[i] = x->dims[i];
        }
        if (dims[i] < -1 || (dims[i] == -1 && rest >= 0))
            return error_set(c->err, TACIT_ERR_VALUE, "bad dim %lld in the target shape",
                             (long long)dims[i]);
        if (dims[i] == -1)
            rest = (int32_t)i;
        else if (__builtin_mul_overflow(known, dims[i], &known))
            return error_set(c->err, TACIT_ERR_LIMIT, "the target shape is too large");
    }
    ir_shape to = ir_shape_of((int32_t)rank, dims);
    if (!ir_shape_count(x, &count))
        return error_set(c->err, TACIT_ERR_LIMIT, "the input is too large");
    if (rest >= 0) {
        if (known == 0 || count % known != 0)
            return out_of_count(c, &to);
        to.dims[rest] = count / known;
        known = count;
    }
    if (known != count)
        return out_of_count(c, &to);
    c->out[0] = ir_type_tensor(c->in[0]->dtype, to.rank, to.dims);
    return TACIT_OK;
}

static tacit_status flatten_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    const ir_shape *x = &c->in[0]->shape;
    int64_t axis = ir_attr_int(c->node, "axis", 1);
    if (axis < -(int64_t)x->rank || axis > x->rank)
        return error_set(c->err, TACIT_ERR_VALUE, "axis %lld is outside [-%d, %d]", (long long)axis,
                         x->rank, x->rank);
    int64_t dims[2] = {1, 1}, split = axis < 0 ? axis + x->rank : axis;
    for (int32_t d = 0; d < x->rank; d++)
        dims[d >= split] *= x->dims[d];
    c->out[0] = ir_type_tensor(c->in[0]->dtype, 2, dims);
    return TACIT_OK;
}

static tacit_status squeeze_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    const ir_type *x = c->in[0];
    op_axes axes = {0};
    if (op_in_type(c, 1))
        TRY(op_check_class(c, 1, OP_INT));
    if (op_in_type(c, 1) && !op_in_value(c, 1)) {
        TRY(op_infer_open(c, x->dtype, x->shape.rank - ir_shape_size(&c->in[1]->shape)));
        if (c->out[0].shape.rank == 0)
            c->out[0].shape.rank = -1; /* a scalar only if the axes turn out to be right */
        return TACIT_OK;
    }
    if (op_in_value(c, 1))
        TRY(op_read_axes(op_in_value(c, 1), x->shape.rank, &axes, c->err));
    ir_shape y = {.rank = 0};
    for (int32_t d = 0; d < x->shape.rank; d++) {
        bool named = axes.mask & 1u << d;
        if (named && x->shape.dims[d] != 1)
            return error_set(c->err, TACIT_ERR_SHAPE, "axis %d has size %lld, not 1", d,
                             (long long)x->shape.dims[d]);
        if (op_in_type(c, 1) ? !named : x->shape.dims[d] != 1)
            y.dims[y.rank++] = x->shape.dims[d];
    }
    c->out[0] = ir_type_tensor(x->dtype, y.rank, y.dims);
    return TACIT_OK;
}

static tacit_status unsqueeze_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_INT));
    const ir_type *x = c->in[0];
    int64_t rank = x->shape.rank + ir_shape_size(&c->in[1]->shape);
    TRY(op_infer_open(c, x->dtype, rank));
    if (!op_in_value(c, 1))
        return TACIT_OK;
    op_axes axes;
    TRY(op_read_axes(op_in_value(c, 1), (int32_t)rank, &axes, c->err));
    int32_t from = 0;
    for (int32_t d = 0; d < rank; d++)
        c->out[0].shape.dims[d] = axes.mask & 1u << d ? 1 : x->shape.dims[from++];
    return TACIT_OK;
}

/* perm of the node, or the reversal. */
static tacit_status read_perm(const ir_node *node, int32_t rank, op_axes *perm, tacit_error *err)
{
    uint32_t n;
    const int64_t *values = ir_attr_ints(node, "perm", &n);
    if (!values) {
        *perm = (op_axes){.count = (uint32_t)rank};
        for (int32_t d = 0; d < rank; d++)
            perm->list[d] = rank - 1 - d;
        return TACIT_OK;
    }
    if ((int64_t)n != rank)
        return error_set(err, TACIT_ERR_SHAPE, "perm has %u entries for rank %d", n, rank);
    return op_make_axes(values, n, rank, perm, err);
}

static tacit_status transpose_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    op_axes perm;
    const ir_shape *x = &c->in[0]->shape;
    TRY(read_perm(c->node, x->rank, &perm, c->err));
    c->out[0] = *c->in[0];
    for (int32_t d = 0; d < x->rank; d++)
        c->out[0].shape.dims[d] = x->dims[perm.list[d]];
    return TACIT_OK;
}

static tacit_status transpose_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    op_axes perm;
    int64_t strides[IR_MAX_RANK], moved[IR_MAX_RANK];
    TRY(read_perm(c->node, x->shape.rank, &perm, c->err));
    ir_shape_strides(&x->shape, strides);
    for (int32_t d = 0; d < x->shape.rank; d++)
        moved[d] = strides[perm.list[d]];
    op_copy_view(x->dtype, y->data, 0, x->data, 0, &y->shape, moved);
    return TACIT_OK;
}

static bool transpose_alias(const ir_node *node, uint32_t in, const op_operand *source,
                            uint32_t out, op_view *view)
{
    op_axes perm;
    if (in != 0 || out != 0 || tacit_dtype_bits(source->type.dtype) < 8 ||
        read_perm(node, source->type.shape.rank, &perm, NULL) != TACIT_OK)
        return false;
    view->offset = 0;
    for (int32_t d = 0; d < source->type.shape.rank; d++)
        view->strides[d] = source->strides[perm.list[d]];
    return true;
}

static tacit_status expand_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_INT));
    const ir_type *x = c->in[0];
    int64_t n = ir_shape_size(&c->in[1]->shape);
    if (!op_in_value(c, 1))
        return op_infer_open(c, x->dtype, n > x->shape.rank ? n : x->shape.rank);
    ir_shape to;
    TRY(op_read_shape(op_in_value(c, 1), &to, c->err));
    TRY(ir_shape_broadcast(&x->shape, &to, &to, c->err));
    c->out[0] = ir_type_tensor(x->dtype, to.rank, to.dims);
    return TACIT_OK;
}

/* Strides of a source seen as `to`: 0 where it repeats. */
static void expand_strides(const ir_shape *from, const int64_t *strides, const ir_shape *to,
                           int64_t *out)
{
    int32_t shift = to->rank - from->rank;
    for (int32_t d = 0; d < to->rank; d++)
        out[d] = d < shift || from->dims[d - shift] == 1 ? 0 : strides[d - shift];
}

static tacit_status expand_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    int64_t dense[IR_MAX_RANK], strides[IR_MAX_RANK];
    ir_shape_strides(&x->shape, dense);
    expand_strides(&x->shape, dense, &y->shape, strides);
    op_copy_view(x->dtype, y->data, 0, x->data, 0, &y->shape, strides);
    return TACIT_OK;
}

static bool expand_alias(const ir_node *node, uint32_t in, const op_operand *source, uint32_t out,
                         op_view *view)
{
    if (in != 0 || out != 0 || tacit_dtype_bits(source->type.dtype) < 8)
        return false;
    view->offset = 0;
    expand_strides(&source->type.shape, source->strides, &node->outputs[0]->type.shape,
                   view->strides);
    return true;
}

/* An i64 tensor that types alone tell. */
static tacit_status set_known(op_infer *c, int32_t rank, int64_t n, const int64_t *values)
{
    c->out[0] = ir_type_tensor(TACIT_I64, rank, &n);
    ir_tensor *t = ir_tensor_new(c->memory, TACIT_I64, &c->out[0].shape);
    if (!t)
        return error_memory(c->err, "a known shape");
    if (n)
        memcpy(t->data, values, (size_t)n * sizeof *values);
    c->known[0] = t;
    return TACIT_OK;
}

static void shape_range(const ir_node *node, int64_t rank, int64_t *start, int64_t *end)
{
    *start = ir_attr_int(node, "start", 0);
    *end = ir_attr_int(node, "end", rank);
    *start = *start < 0 ? *start + rank : *start;
    *end = *end < 0 ? *end + rank : *end;
    *start = *start < 0 ? 0 : *start > rank ? rank : *start;
    *end = *end > rank ? rank : *end < *start ? *start : *end;
}

static tacit_status shape_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    int64_t start, end;
    shape_range(c->node, c->in[0]->shape.rank, &start, &end);
    return set_known(c, 1, end - start, c->in[0]->shape.dims + start);
}

static tacit_status shape_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    int64_t start, end;
    shape_range(c->node, x->shape.rank, &start, &end);
    for (int64_t d = start; d < end; d++)
        ((int64_t *)op_out(c, 0)->data)[d - start] = x->shape.dims[d];
    return TACIT_OK;
}

static tacit_status size_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    int64_t n;
    if (!ir_shape_count(&c->in[0]->shape, &n))
        return error_set(c->err, TACIT_ERR_LIMIT, "the input is too large");
    TRY(set_known(c, 0, 1, &n));
    return TACIT_OK;
}

static tacit_status size_eval(op_eval *c)
{
    *(int64_t *)op_out(c, 0)->data = ir_tensor_count(op_in(c, 0));
    return TACIT_OK;
}

bool op_alias_first(const ir_node *node, uint32_t in, const op_operand *source, uint32_t out,
                    op_view *view)
{
    (void)node;
    if (in != 0 || out != 0)
        return false;
    view->offset = 0;
    memcpy(view->strides, source->strides, sizeof view->strides);
    return true;
}

#define VIEW_ROW(NAME, MIN, MAX, INFER, EVAL, ALIAS, ...)                                          \
    {                                                                                              \
        .name = NAME, .min_in = MIN, .max_in = MAX, .min_out = 1, .max_out = 1, .infer = INFER,    \
        .eval = EVAL, .alias = ALIAS, .lower = op_lower_view, .accepts = op_accepts_view,          \
        __VA_ARGS__                                                                                \
    }

const op_def op_rows_move[] = {
    {.name = "Identity",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_ANY_KIND,
     .infer = identity_infer,
     .eval = copy_eval,
     .alias = op_alias_first,
     .lower = op_lower_view,
     .accepts = op_accepts_view,
     .vjp = op_vjp_identity,
     .range = op_bounds_same},
    VIEW_ROW("Reshape", 2, 2, reshape_infer, relabel_eval, op_alias_reshape, .vjp = op_vjp_relabel,
             .batch = op_batch_relabel, .range = op_bounds_same),
    VIEW_ROW("Flatten", 1, 1, flatten_infer, relabel_eval, op_alias_reshape, .vjp = op_vjp_relabel,
             .batch = op_batch_relabel, .range = op_bounds_same),
    VIEW_ROW("Squeeze", 1, 2, squeeze_infer, relabel_eval, op_alias_reshape, .vjp = op_vjp_relabel,
             .batch = op_batch_relabel, .range = op_bounds_same),
    VIEW_ROW("Unsqueeze", 2, 2, unsqueeze_infer, relabel_eval, op_alias_reshape,
             .vjp = op_vjp_relabel, .batch = op_batch_relabel, .range = op_bounds_same),
    VIEW_ROW("Transpose", 1, 1, transpose_infer, transpose_eval, transpose_alias,
             .vjp = op_vjp_transpose, .batch = op_batch_transpose, .range = op_bounds_same),
    VIEW_ROW("Expand", 2, 2, expand_infer, expand_eval, expand_alias, .vjp = op_vjp_expand,
             .batch = op_batch_expand, .range = op_bounds_same),
    VIEW_ROW("Shape", 1, 1, shape_infer, shape_eval, NULL, .flags = OP_NOT_DIFFERENTIABLE),
    VIEW_ROW("Size", 1, 1, size_infer, size_eval, NULL, .flags = OP_NOT_DIFFERENTIABLE),
    {0},
};
