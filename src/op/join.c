/* SPDX-License-Identifier: Apache-2.0 */
#include "op/join.h"

#include "op/index.h"
#include "op/strip.h"

static tacit_status check_item(op_eval *c, const ir_tensor *first, const ir_tensor *item,
                               int32_t free_axis, uint32_t i)
{
    bool fits = item->kind == IR_TENSOR && item->dtype == first->dtype &&
                item->shape.rank == first->shape.rank;
    for (int32_t d = 0; fits && d < first->shape.rank; d++)
        fits = d == free_axis || item->shape.dims[d] == first->shape.dims[d];
    if (fits)
        return TACIT_OK;
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    return error_set(c->err, TACIT_ERR_SHAPE, "item %u is %s %s, item 0 is %s %s", i,
                     tacit_dtype_text(item->dtype), ir_shape_text(&item->shape, a),
                     tacit_dtype_text(first->dtype), ir_shape_text(&first->shape, b));
}

/* The result's shape with zero along the joined axis. */
static tacit_status joined_shape(op_eval *c, const ir_shape *item, const op_join *how, ir_shape *y,
                                 int32_t *axis)
{
    int32_t rank = item->rank + how->new_axis;
    if (item->rank < 0 || rank > IR_MAX_RANK)
        return error_set(c->err, TACIT_ERR_LIMIT, "items of this rank cannot be joined");
    TRY(ir_axis(how->axis, rank, axis, c->err));
    y->rank = 0;
    for (int32_t d = 0, from = 0; d < rank; d++) {
        bool joined = d == *axis;
        int64_t size = joined && how->new_axis ? 0 : item->dims[from++];
        y->dims[y->rank++] = joined || size < 0 ? 0 : size;
    }
    return TACIT_OK;
}

tacit_status op_join_items(op_eval *c, uint32_t out, uint32_t n, const ir_tensor *const *items,
                           const op_join *how, const ir_type *empty)
{
    ir_shape y = {0};
    int32_t axis = 0;
    int64_t outer = 1, inner = 1, at = 0;
    if (!n && (!empty || empty->dtype == TACIT_DTYPE_NONE))
        return error_set(c->err, TACIT_ERR_VALUE, "nothing to join, and no type is known");
    TRY(joined_shape(c, n ? &items[0]->shape : &empty->shape, how, &y, &axis));
    for (uint32_t i = 0; i < n; i++) {
        TRY(check_item(c, items[0], items[i], how->new_axis ? -1 : axis, i));
        y.dims[axis] += how->new_axis ? 1 : items[i]->shape.dims[axis];
    }
    TRY(op_eval_alloc(c, out, n ? items[0]->dtype : empty->dtype, &y));
    for (int32_t d = 0; d < y.rank; d++) {
        outer *= d < axis ? y.dims[d] : 1;
        inner *= d > axis ? y.dims[d] : 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        const ir_tensor *item = items[how->reverse ? n - 1 - i : i];
        int64_t run = (how->new_axis ? 1 : item->shape.dims[axis]) * inner;
        const ir_tensor *owned = item;
        if (item->dtype == TACIT_STRING) /* the result owns its bytes */
            owned = ir_tensor_copy(c->memory, item);
        if (!owned)
            return error_memory(c->err, "joined strings");
        for (int64_t o = 0; o < outer; o++)
            op_strip_copy(item->dtype, op_out(c, out)->data, o * y.dims[axis] * inner + at, 1,
                          owned->data, o * run, 1, run);
        at += run;
    }
    return TACIT_OK;
}
