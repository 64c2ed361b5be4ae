/* SPDX-License-Identifier: Apache-2.0
 * Writing by index: ScatterElements, ScatterND, TensorScatter, ScatterAdd. */
#include <math.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/index.h"
#include "op/loop.h"
#include "op/strip.h"
#include "op/vjp.h"

static tacit_status scatter_elements_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_INT));
    TRY(op_check_class(c, 2, OP_ANY));
    const ir_shape *x = &c->in[0]->shape, *index = &c->in[1]->shape;
    int32_t axis;
    op_combine_kind kind;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), x->rank, &axis, c->err));
    TRY(op_read_reduction(c->node, &kind, c->err));
    if (c->in[0]->dtype != c->in[2]->dtype)
        return error_set(c->err, TACIT_ERR_TYPE, "data and updates differ in type");
    bool fits = x->rank == index->rank && ir_shape_equal(index, &c->in[2]->shape);
    for (int32_t d = 0; fits && d < x->rank; d++)
        fits = d == axis || index->dims[d] <= x->dims[d];
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    if (!fits)
        return error_set(c->err, TACIT_ERR_SHAPE, "indices %s do not fit data %s and the updates",
                         ir_shape_text(index, a), ir_shape_text(x, b));
    return op_infer_same(c);
}

/* The output begins as the data (which may already be its memory). */
static tacit_status start_from_data(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    if (y->data == x->data)
        return TACIT_OK;
    return op_eval_copy(c, y, x);
}

static tacit_status scatter_elements_eval(op_eval *c)
{
    const ir_tensor *index = op_in(c, 1), *update = op_in(c, 2);
    ir_tensor *y = op_out(c, 0);
    int32_t axis;
    int64_t strides[IR_MAX_RANK], k;
    op_combine_kind kind;
    TRY(start_from_data(c));
    TRY(op_read_reduction(c->node, &kind, c->err));
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), y->shape.rank, &axis, c->err));
    ir_shape_strides(&y->shape, strides);
    int64_t step = strides[axis];
    strides[axis] = 0;
    op_loop l;
    op_loop_begin(&l, &index->shape);
    op_loop_strided(&l, strides, 0);
    for (; !op_loop_done(&l); op_loop_next(&l)) {
        TRY(op_index_at(index, l.linear, y->shape.dims[axis], axis, &k, c->err));
        op_combine(kind, y->dtype, y->data, l.at[0] + k * step, update->data, l.linear);
    }
    return TACIT_OK;
}

static tacit_status scatter_nd_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_INT));
    TRY(op_check_class(c, 2, OP_ANY));
    const ir_shape *x = &c->in[0]->shape, *index = &c->in[1]->shape, *update = &c->in[2]->shape;
    op_combine_kind kind;
    TRY(op_read_reduction(c->node, &kind, c->err));
    if (c->in[0]->dtype != c->in[2]->dtype)
        return error_set(c->err, TACIT_ERR_TYPE, "data and updates differ in type");
    int64_t depth = index->rank > 0 ? index->dims[index->rank - 1] : 0;
    bool fits = depth >= 1 && depth <= x->rank && update->rank == index->rank - 1 + x->rank - depth;
    for (int32_t d = 0; fits && d < update->rank; d++)
        fits = update->dims[d] ==
               (d < index->rank - 1 ? index->dims[d] : x->dims[d - (index->rank - 1) + depth]);
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT], u[IR_SHAPE_TEXT];
    if (!fits)
        return error_set(c->err, TACIT_ERR_SHAPE, "indices %s and updates %s do not fit data %s",
                         ir_shape_text(index, a), ir_shape_text(update, u), ir_shape_text(x, b));
    return op_infer_same(c);
}

static tacit_status scatter_nd_eval(op_eval *c)
{
    const ir_tensor *index = op_in(c, 1), *update = op_in(c, 2);
    ir_tensor *y = op_out(c, 0);
    int64_t depth = index->shape.dims[index->shape.rank - 1], slice = 1, strides[IR_MAX_RANK];
    op_combine_kind kind;
    TRY(start_from_data(c));
    TRY(op_read_reduction(c->node, &kind, c->err));
    for (int64_t d = depth; d < y->shape.rank; d++)
        slice *= y->shape.dims[d];
    ir_shape_strides(&y->shape, strides);
    for (int64_t r = 0, rows = ir_tensor_count(index) / depth; r < rows; r++) {
        int64_t at = 0, k;
        for (int64_t j = 0; j < depth; j++) {
            TRY(op_index_at(index, r * depth + j, y->shape.dims[j], (int32_t)j, &k, c->err));
            at += k * strides[j];
        }
        if (kind == OP_COMBINE_SET)
            op_strip_copy(y->dtype, y->data, at, 1, update->data, r * slice, 1, slice);
        else
            for (int64_t i = 0; i < slice; i++)
                op_combine(kind, y->dtype, y->data, at + i, update->data, r * slice + i);
    }
    return TACIT_OK;
}

static tacit_status tensor_scatter_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_ANY));
    const ir_shape *x = &c->in[0]->shape, *update = &c->in[1]->shape;
    int32_t axis;
    TRY(ir_axis(ir_attr_int(c->node, "axis", -2), x->rank, &axis, c->err));
    bool fits = axis > 0 && update->rank == x->rank && c->in[0]->dtype == c->in[1]->dtype;
    for (int32_t d = 0; fits && d < x->rank; d++)
        fits = d == axis ? update->dims[d] <= x->dims[d] : update->dims[d] == x->dims[d];
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    if (!fits)
        return error_set(c->err, TACIT_ERR_SHAPE, "update %s does not fit cache %s (axis %d)",
                         ir_shape_text(update, a), ir_shape_text(x, b), axis);
    if (op_in_type(c, 2)) {
        TRY(op_check_class(c, 2, OP_INT));
        if (ir_shape_size(&c->in[2]->shape) != x->dims[0])
            return error_set(c->err, TACIT_ERR_SHAPE, "write_indices needs one entry per sample");
    }
    return op_infer_same(c);
}

static tacit_status tensor_scatter_eval(op_eval *c)
{
    const ir_tensor *update = op_in(c, 1), *start = op_in(c, 2);
    ir_tensor *y = op_out(c, 0);
    op_split_axis s;
    TRY(start_from_data(c));
    TRY(op_split_at(&y->shape, ir_attr_int(c->node, "axis", -2), &s, c->err));
    bool circular = strcmp(ir_attr_string(c->node, "mode", "linear"), "circular") == 0;
    int64_t length = update->shape.dims[s.axis], samples = y->shape.dims[0];
    for (int64_t o = 0; o < s.outer; o++) {
        int64_t sample = o / (s.outer / samples);
        int64_t first = start ? ir_load_i64(start->dtype, start->data, sample) : 0;
        if (first < 0 || (!circular && first > s.size - length))
            return error_set(c->err, TACIT_ERR_VALUE,
                             "write index %lld of sample %lld does not fit a cache of %lld",
                             (long long)first, (long long)sample, (long long)s.size);
        for (int64_t i = 0; i < length; i++) {
            int64_t to = circular ? (first % s.size + i) % s.size : first + i;
            op_strip_copy(y->dtype, y->data, (o * s.size + to) * s.inner, 1, update->data,
                          (o * length + i) * s.inner, 1, s.inner);
        }
    }
    return TACIT_OK;
}

/* --- tacit.ScatterAdd(updates, ids): zeros along `axis`, then updates added in order ---------- */

static tacit_status scatter_add_infer(op_infer *c)
{
    op_split_axis s;
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_check_class(c, 1, OP_REAL));
    int64_t dim = ir_attr_int(c->node, "dim", -1);
    TRY(op_split_at(&c->in[0]->shape, ir_attr_int(c->node, "axis", 0), &s, c->err));
    if (dim < 0)
        return error_set(c->err, TACIT_ERR_VALUE, "dim must say how many rows there are");
    if (ir_shape_size(&c->in[1]->shape) != s.size)
        return error_set(c->err, TACIT_ERR_SHAPE, "%lld ids for %lld updates",
                         (long long)ir_shape_size(&c->in[1]->shape), (long long)s.size);
    c->out[0] = *c->in[0];
    c->out[0].shape.dims[s.axis] = dim;
    return TACIT_OK;
}

static tacit_status scatter_add_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *ids = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    op_split_axis s;
    TRY(op_split_at(&x->shape, ir_attr_int(c->node, "axis", 0), &s, c->err));
    int64_t dim = y->shape.dims[s.axis], k;
    memset(y->data, 0, y->bytes);
    for (int64_t i = 0; i < s.size; i++) {
        if (ir_dtype_is_float(ids->dtype)) {
            double v = ir_load_f64(ids->dtype, ids->data, i);
            if (!(v == floor(v)))
                return error_set(c->err, TACIT_ERR_VALUE, "id %g (entry %lld) is no index", v,
                                 (long long)i);
        }
        TRY(op_index_at(ids, i, dim, s.axis, &k, c->err));
        for (int64_t o = 0; o < s.outer; o++)
            for (int64_t j = 0; j < s.inner; j++)
                op_combine(OP_COMBINE_ADD, y->dtype, y->data, (o * dim + k) * s.inner + j, x->data,
                           (o * s.size + i) * s.inner + j);
    }
    return TACIT_OK;
}

#define SCATTER_ROW(NAME, MIN, INFER, EVAL, ...)                                                   \
    {                                                                                              \
        .name = NAME, .min_in = MIN, .max_in = 3, .min_out = 1, .max_out = 1, .infer = INFER,      \
        .eval = EVAL, .inplace = 1, __VA_ARGS__                                                    \
    }

const op_def op_rows_scatter[] = {
    SCATTER_ROW("ScatterElements", 3, scatter_elements_infer, scatter_elements_eval,
                .lower = op_lower_scatter_elements, .vjp = op_vjp_scatter_elements),
    SCATTER_ROW("ScatterND", 3, scatter_nd_infer, scatter_nd_eval, .lower = op_lower_scatter_nd,
                .vjp = op_vjp_scatter_nd),
    SCATTER_ROW("TensorScatter", 2, tensor_scatter_infer, tensor_scatter_eval,
                .spell = op_spell_tensor_scatter),
    {.name = "ScatterAdd",
     .domain = "tacit",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = scatter_add_infer,
     .eval = scatter_add_eval,
     .lower = op_lower_scatter_add,
     .vjp = op_vjp_scatter_add},
    {0},
};
