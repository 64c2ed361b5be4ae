/* SPDX-License-Identifier: Apache-2.0 */
#include "op/view.h"

#include <string.h>

bool op_reshape_strides(const ir_shape *shape, const int64_t *strides, const ir_shape *target,
                        int64_t *out)
{
    /* Walk both shapes in groups of axes with equal element counts; inside a group the source
     * must lie like one axis. */
    int64_t dims[IR_MAX_RANK], steps[IR_MAX_RANK];
    int32_t n = 0;
    for (int32_t d = 0; d < shape->rank; d++)
        if (shape->dims[d] != 1) {
            dims[n] = shape->dims[d];
            steps[n++] = strides[d];
        }
    if (ir_shape_size(target) == 0) {
        ir_shape_strides(target, out);
        return true;
    }
    int32_t s = 0, t = 0;
    while (s < n && t < target->rank) {
        int64_t have = dims[s], want = target->dims[t];
        int32_t s_end = s + 1, t_end = t + 1;
        while (have != want) {
            if (want < have) {
                if (t_end >= target->rank)
                    return false;
                want *= target->dims[t_end++];
            } else {
                if (s_end >= n)
                    return false;
                have *= dims[s_end++];
            }
        }
        for (int32_t k = s; k + 1 < s_end; k++)
            if (steps[k] != steps[k + 1] * dims[k + 1])
                return false;
        int64_t step = steps[s_end - 1];
        for (int32_t k = t_end; k-- > t;) {
            out[k] = step;
            step *= target->dims[k];
        }
        s = s_end;
        t = t_end;
    }
    for (; t < target->rank; t++)
        out[t] = 1; /* only axes of size 1 are left */
    return s == n;
}

bool op_alias_reshape(const ir_node *node, uint32_t in, const op_operand *source, uint32_t out,
                      op_view *view)
{
    if (in != 0 || out != 0)
        return false;
    const ir_shape *target = &node->outputs[0]->type.shape;
    if (tacit_dtype_bits(source->type.dtype) < 8 && !source->dense)
        return false;
    view->offset = 0;
    return op_reshape_strides(&source->type.shape, source->strides, target, view->strides);
}

tacit_status op_infer_open(op_infer *c, tacit_dtype dtype, int64_t rank)
{
    if (rank < 0 || rank > IR_MAX_RANK)
        return error_set(c->err, TACIT_ERR_LIMIT, "rank %lld is outside [0, %d]", (long long)rank,
                         IR_MAX_RANK);
    ir_type *t = &c->out[0];
    *t = (ir_type){.kind = IR_TENSOR, .dtype = dtype, .shape.rank = (int32_t)rank};
    for (int64_t d = 0; d < rank; d++)
        t->shape.dims[d] = IR_DIM_UNKNOWN;
    return TACIT_OK;
}

tacit_status op_make_axes(const int64_t *values, uint32_t n, int32_t rank, op_axes *out,
                          tacit_error *err)
{
    *out = (op_axes){0};
    for (uint32_t i = 0; i < n; i++) {
        int32_t axis;
        TRY(ir_axis(values[i], rank, &axis, err));
        if (out->mask & 1u << axis)
            return error_set(err, TACIT_ERR_VALUE, "axis %lld is given twice",
                             (long long)values[i]);
        out->mask |= 1u << axis;
        out->list[out->count++] = axis;
    }
    return TACIT_OK;
}

tacit_status op_read_axes(const ir_tensor *t, int32_t rank, op_axes *out, tacit_error *err)
{
    int64_t values[IR_MAX_RANK];
    uint32_t n;
    TRY(op_read_ints(t, values, IR_MAX_RANK, &n, err));
    return op_make_axes(values, n, rank, out, err);
}

tacit_status op_read_shape(const ir_tensor *t, ir_shape *out, tacit_error *err)
{
    int64_t values[IR_MAX_RANK];
    uint32_t n;
    TRY(op_read_ints(t, values, IR_MAX_RANK, &n, err));
    for (uint32_t i = 0; i < n; i++)
        if (values[i] < 0)
            return error_set(err, TACIT_ERR_VALUE, "dimension %u is negative: %lld", i,
                             (long long)values[i]);
    *out = ir_shape_of((int32_t)n, values);
    return TACIT_OK;
}

tacit_status op_read_int(const ir_tensor *t, int64_t *out, tacit_error *err)
{
    uint32_t n = 0;
    if (ir_tensor_count(t) != 1)
        return error_set(err, TACIT_ERR_SHAPE, "expected one integer, got %lld",
                         (long long)ir_tensor_count(t));
    return op_read_ints(t, out, 1, &n, err);
}
