/* SPDX-License-Identifier: Apache-2.0
 * Reading by index: Gather, GatherElements, GatherND. */
#include "op/elementwise.h"
#include "op/index.h"
#include "op/loop.h"
#include "op/range.h"
#include "op/strip.h"
#include "op/vjp.h"

static tacit_status check_inputs(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    return op_check_class(c, 1, OP_INT);
}

static tacit_status too_high(op_infer *c)
{
    return error_set(c->err, TACIT_ERR_LIMIT, "the result's rank is above %d", IR_MAX_RANK);
}

static tacit_status gather_infer(op_infer *c)
{
    TRY(check_inputs(c));
    const ir_shape *x = &c->in[0]->shape, *index = &c->in[1]->shape;
    int32_t axis;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), x->rank, &axis, c->err));
    if (x->rank - 1 + index->rank > IR_MAX_RANK)
        return too_high(c);
    ir_shape y = {.rank = 0};
    for (int32_t d = 0; d < axis; d++)
        y.dims[y.rank++] = x->dims[d];
    for (int32_t d = 0; d < index->rank; d++)
        y.dims[y.rank++] = index->dims[d];
    for (int32_t d = axis + 1; d < x->rank; d++)
        y.dims[y.rank++] = x->dims[d];
    c->out[0] = ir_type_tensor(c->in[0]->dtype, y.rank, y.dims);
    return TACIT_OK;
}

static tacit_status gather_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *index = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    op_split_axis s;
    TRY(op_split_at(&x->shape, ir_attr_int(c->node, "axis", 0), &s, c->err));
    int64_t n = ir_tensor_count(y) ? ir_tensor_count(index) : 0, k; /* nothing is read: all fits */
    for (int64_t i = 0; i < n; i++) {
        TRY(op_index_at(index, i, s.size, s.axis, &k, c->err));
        for (int64_t o = 0; o < s.outer; o++)
            op_strip_copy(x->dtype, y->data, (o * n + i) * s.inner, 1, x->data,
                          (o * s.size + k) * s.inner, 1, s.inner);
    }
    return TACIT_OK;
}

static tacit_status gather_elements_infer(op_infer *c)
{
    TRY(check_inputs(c));
    const ir_shape *x = &c->in[0]->shape, *index = &c->in[1]->shape;
    int32_t axis;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), x->rank, &axis, c->err));
    bool fits = x->rank == index->rank;
    for (int32_t d = 0; fits && d < x->rank; d++)
        fits = d == axis || index->dims[d] <= x->dims[d];
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    if (!fits)
        return error_set(c->err, TACIT_ERR_SHAPE, "indices %s do not fit data %s",
                         ir_shape_text(index, a), ir_shape_text(x, b));
    c->out[0] = ir_type_tensor(c->in[0]->dtype, index->rank, index->dims);
    return TACIT_OK;
}

static tacit_status gather_elements_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *index = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    int32_t axis;
    int64_t strides[IR_MAX_RANK], k;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), x->shape.rank, &axis, c->err));
    ir_shape_strides(&x->shape, strides);
    int64_t step = strides[axis];
    strides[axis] = 0;
    op_loop l;
    op_loop_begin(&l, &index->shape);
    op_loop_strided(&l, strides, 0);
    for (; !op_loop_done(&l); op_loop_next(&l)) {
        TRY(op_index_at(index, l.linear, x->shape.dims[axis], axis, &k, c->err));
        ir_copy_element(x->dtype, y->data, l.linear, x->data, l.at[0] + k * step);
    }
    return TACIT_OK;
}

/* indices [batch…, more…, depth]: each row of `depth` names a slice of data[batch…]. */
static tacit_status gather_nd_infer(op_infer *c)
{
    TRY(check_inputs(c));
    const ir_shape *x = &c->in[0]->shape, *index = &c->in[1]->shape;
    int64_t batch = ir_attr_int(c->node, "batch_dims", 0);
    int64_t depth = index->rank > 0 ? index->dims[index->rank - 1] : 0;
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    bool fits = batch >= 0 && batch < index->rank && batch < x->rank && depth >= 1 &&
                depth <= x->rank - batch;
    for (int64_t d = 0; fits && d < batch; d++)
        fits = x->dims[d] == index->dims[d];
    if (!fits)
        return error_set(c->err, TACIT_ERR_SHAPE, "indices %s do not fit data %s (batch_dims %lld)",
                         ir_shape_text(index, a), ir_shape_text(x, b), (long long)batch);
    if (index->rank - 1 + x->rank - depth - batch > IR_MAX_RANK)
        return too_high(c);
    ir_shape y = {.rank = 0};
    for (int32_t d = 0; d + 1 < index->rank; d++)
        y.dims[y.rank++] = index->dims[d];
    for (int64_t d = batch + depth; d < x->rank; d++)
        y.dims[y.rank++] = x->dims[d];
    c->out[0] = ir_type_tensor(c->in[0]->dtype, y.rank, y.dims);
    return TACIT_OK;
}

static tacit_status gather_nd_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *index = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    int64_t batch = ir_attr_int(c->node, "batch_dims", 0), strides[IR_MAX_RANK];
    int64_t depth = index->shape.dims[index->shape.rank - 1];
    int64_t rows = 1, batches = 1, slice = 1;
    for (int32_t d = 0; d + 1 < index->shape.rank; d++)
        *(d < batch ? &batches : &rows) *= index->shape.dims[d];
    for (int64_t d = batch + depth; d < x->shape.rank; d++)
        slice *= x->shape.dims[d];
    ir_shape_strides(&x->shape, strides);
    for (int64_t r = 0; r < batches * rows; r++) {
        int64_t at = batch ? r / rows * strides[batch - 1] : 0, k;
        for (int64_t j = 0; j < depth; j++) {
            int32_t axis = (int32_t)(batch + j);
            TRY(op_index_at(index, r * depth + j, x->shape.dims[axis], axis, &k, c->err));
            at += k * strides[axis];
        }
        op_strip_copy(x->dtype, y->data, r * slice, 1, x->data, at, 1, slice);
    }
    return TACIT_OK;
}

const op_def op_rows_gather[] = {
    OP_ROW("Gather", 2, 2, gather_infer, gather_eval, .lower = op_lower_gather,
           .vjp = op_vjp_gather, .batch = op_batch_gather, .range = op_bounds_same),
    OP_ROW("GatherElements", 2, 2, gather_elements_infer, gather_elements_eval,
           .lower = op_lower_gather_elements, .accepts = op_accepts_gather_elements,
           .vjp = op_vjp_gather_elements),
    OP_ROW("GatherND", 2, 2, gather_nd_infer, gather_nd_eval, .lower = op_lower_gather_nd,
           .vjp = op_vjp_gather_nd),
    {0},
};
