/* SPDX-License-Identifier: Apache-2.0
 * Parts and wholes along an axis: Slice, Split, Concat, Tile. */
#include <string.h>

#include "op/elementwise.h"
#include "op/range.h"
#include "op/strip.h"
#include "op/view.h"
#include "op/vjp.h"

/* --- Slice ------------------------------------------------------------------------------------ */

typedef struct slice_plan {
    ir_shape out;
    int64_t start[IR_MAX_RANK], step[IR_MAX_RANK];
} slice_plan;

static int64_t clamp(int64_t v, int64_t low, int64_t high)
{
    return v < low ? low : v > high ? high : v;
}

/* One axis of size `n`: first element, step and count of [start, end) by step. */
static void slice_axis(slice_plan *p, int32_t axis, int64_t n, int64_t start, int64_t end,
                       int64_t step)
{
    start = start < 0 ? start + n : start;
    end = end < 0 ? end + n : end;
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    start = clamp(start, low, high);
    end = clamp(end, low, high);
    int64_t span = step > 0 ? end - start : start - end;
    uint64_t size = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    p->out.dims[axis] = span <= 0 ? 0 : (int64_t)((uint64_t)(span - 1) / size) + 1;
    p->start[axis] = span <= 0 ? 0 : start;
    p->step[axis] = p->out.dims[axis] > 1 ? step : 1;
}

static tacit_status make_slice(const ir_shape *x, const ir_tensor *starts, const ir_tensor *ends,
                               const ir_tensor *axes, const ir_tensor *steps, slice_plan *p,
                               tacit_error *err)
{
    int64_t start[IR_MAX_RANK], end[IR_MAX_RANK], step[IR_MAX_RANK];
    uint32_t n, n_end, n_step = 0;
    op_axes list = {0};
    TRY(op_read_ints(starts, start, IR_MAX_RANK, &n, err));
    TRY(op_read_ints(ends, end, IR_MAX_RANK, &n_end, err));
    if (steps)
        TRY(op_read_ints(steps, step, IR_MAX_RANK, &n_step, err));
    if (axes)
        TRY(op_read_axes(axes, x->rank, &list, err));
    for (uint32_t i = 0; !axes && i < n; i++)
        list.list[list.count++] = (int32_t)i;
    if (n_end != n || list.count != n || (steps && n_step != n) || (int64_t)n > x->rank)
        return error_set(err, TACIT_ERR_SHAPE,
                         "starts, ends, axes and steps do not have the same length");
    p->out = *x;
    for (int32_t d = 0; d < x->rank; d++) {
        p->start[d] = 0;
        p->step[d] = 1;
    }
    for (uint32_t i = 0; i < n; i++) {
        int64_t s = steps ? step[i] : 1;
        if (s == 0)
            return error_set(err, TACIT_ERR_VALUE, "step %u is zero", i);
        slice_axis(p, list.list[i], x->dims[list.list[i]], start[i], end[i], s);
    }
    return TACIT_OK;
}

static tacit_status slice_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    const ir_type *x = c->in[0];
    for (uint32_t i = 1; i < c->n_in; i++) {
        if (!c->in[i])
            continue;
        TRY(op_check_class(c, i, OP_INT));
        if (!c->value[i])
            return op_infer_open(c, x->dtype, x->shape.rank);
    }
    slice_plan p;
    TRY(make_slice(&x->shape, c->value[1], c->value[2], op_in_value(c, 3), op_in_value(c, 4), &p,
                   c->err));
    c->out[0] = ir_type_tensor(x->dtype, p.out.rank, p.out.dims);
    return TACIT_OK;
}

/* Offset and strides of the slice in a source with `strides`. */
static int64_t slice_strides(const slice_plan *p, const int64_t *strides, int64_t *out)
{
    int64_t offset = 0;
    for (int32_t d = 0; d < p->out.rank; d++) {
        offset += p->start[d] * strides[d];
        out[d] = p->step[d] * strides[d];
    }
    return offset;
}

static tacit_status slice_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    slice_plan p;
    int64_t dense[IR_MAX_RANK], strides[IR_MAX_RANK];
    TRY(make_slice(&x->shape, op_in(c, 1), op_in(c, 2), op_in(c, 3), op_in(c, 4), &p, c->err));
    ir_shape_strides(&x->shape, dense);
    int64_t offset = slice_strides(&p, dense, strides);
    op_copy_view(x->dtype, y->data, 0, x->data, offset, &p.out, strides);
    return TACIT_OK;
}

static bool slice_alias(const ir_node *node, uint32_t in, const op_operand *source, uint32_t out,
                        op_view *view)
{
    const ir_tensor *value[5] = {0};
    if (in != 0 || out != 0 || tacit_dtype_bits(source->type.dtype) < 8)
        return false;
    for (uint32_t i = 1; i < node->n_inputs && i < 5; i++) {
        value[i] = ir_value_known(node->inputs[i]);
        if (node->inputs[i] && !value[i])
            return false;
    }
    slice_plan p;
    if (make_slice(&source->type.shape, value[1], value[2], value[3], value[4], &p, NULL) !=
        TACIT_OK)
        return false;
    for (int32_t d = 0; d < p.out.rank; d++)
        if (p.step[d] < 0)
            return false; /* views only walk forward */
    view->offset = slice_strides(&p, source->strides, view->strides);
    return true;
}

/* --- Split ------------------------------------------------------------------------------------ */

/* Size of part `i` of `n` elements: as given, or equal parts of which the last may be smaller. */
static int64_t split_size(uint32_t parts, int64_t n, const ir_tensor *given, uint32_t i)
{
    if (given)
        return ir_load_i64(given->dtype, given->data, i);
    int64_t chunk = (n + parts - 1) / parts, left = n - chunk * i;
    return left < 0 ? 0 : left < chunk ? left : chunk;
}

static tacit_status split_check(const ir_node *node, uint32_t parts, int64_t n,
                                const ir_tensor *given, tacit_error *err)
{
    int64_t left = n, wanted = ir_attr_int(node, "num_outputs", parts);
    if (given && (ir_tensor_count(given) != parts || !ir_dtype_is_int(given->dtype)))
        return error_set(err, TACIT_ERR_SHAPE, "%lld split sizes for %u outputs",
                         (long long)ir_tensor_count(given), parts);
    if (wanted != parts)
        return error_set(err, TACIT_ERR_VALUE, "num_outputs is %lld, but there are %u outputs",
                         (long long)wanted, parts);
    for (uint32_t i = 0; i < parts; i++) {
        int64_t s = split_size(parts, n, given, i);
        if (s < 0 || s > left)
            return error_set(err, TACIT_ERR_VALUE, "split size %lld of part %u does not fit",
                             (long long)s, i);
        left -= s;
    }
    if (left)
        return error_set(err, TACIT_ERR_VALUE, "split sizes leave %lld of %lld unused",
                         (long long)left, (long long)n);
    return TACIT_OK;
}

static tacit_status split_infer(op_infer *c)
{
    int32_t axis;
    TRY(op_check_class(c, 0, OP_ANY));
    const ir_type *x = c->in[0];
    const ir_tensor *given = op_in_value(c, 1);
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), x->shape.rank, &axis, c->err));
    bool open = op_in_type(c, 1) && !given;
    int64_t n = x->shape.dims[axis];
    if (!open)
        TRY(split_check(c->node, c->n_out, n, given, c->err));
    for (uint32_t i = 0; i < c->n_out; i++) {
        c->out[i] = *x;
        c->out[i].shape.dims[axis] = open ? IR_DIM_UNKNOWN : split_size(c->n_out, n, given, i);
    }
    return TACIT_OK;
}

static tacit_status split_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *given = op_in(c, 1);
    int32_t axis;
    int64_t strides[IR_MAX_RANK], at = 0;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), x->shape.rank, &axis, c->err));
    int64_t n = x->shape.dims[axis];
    TRY(split_check(c->node, c->n_out, n, given, c->err));
    ir_shape_strides(&x->shape, strides);
    for (uint32_t i = 0; i < c->n_out; i++) {
        ir_tensor *y = op_out(c, i);
        if (y)
            op_copy_view(x->dtype, y->data, 0, x->data, at * strides[axis], &y->shape, strides);
        at += split_size(c->n_out, n, given, i);
    }
    return TACIT_OK;
}

static bool split_alias(const ir_node *node, uint32_t in, const op_operand *source, uint32_t out,
                        op_view *view)
{
    const ir_shape *x = &source->type.shape;
    bool has_sizes = node->n_inputs > 1 && node->inputs[1];
    const ir_tensor *given = has_sizes ? ir_value_known(node->inputs[1]) : NULL;
    int32_t axis;
    if (in != 0 || tacit_dtype_bits(source->type.dtype) < 8 || (has_sizes && !given) ||
        ir_axis(ir_attr_int(node, "axis", 0), x->rank, &axis, NULL) != TACIT_OK ||
        split_check(node, node->n_outputs, x->dims[axis], given, NULL) != TACIT_OK)
        return false;
    memcpy(view->strides, source->strides, sizeof view->strides);
    view->offset = 0;
    for (uint32_t i = 0; i < out; i++)
        view->offset +=
            split_size(node->n_outputs, x->dims[axis], given, i) * source->strides[axis];
    return true;
}

/* --- Concat ----------------------------------------------------------------------------------- */

static tacit_status concat_infer(op_infer *c)
{
    int32_t axis;
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_same_dtype(c));
    ir_type y = *c->in[0];
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), y.shape.rank, &axis, c->err));
    for (uint32_t i = 1; i < c->n_in; i++) {
        TRY(op_check_class(c, i, OP_ANY));
        const ir_shape *x = &c->in[i]->shape;
        bool fits = x->rank == y.shape.rank;
        for (int32_t d = 0; fits && d < x->rank; d++)
            fits = d == axis || x->dims[d] == y.shape.dims[d];
        char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
        if (!fits)
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u is %s, input 0 is %s (axis %d)", i,
                             ir_shape_text(x, a), ir_shape_text(&c->in[0]->shape, b), axis);
        if (__builtin_add_overflow(y.shape.dims[axis], x->dims[axis], &y.shape.dims[axis]))
            return error_set(c->err, TACIT_ERR_LIMIT, "the result is too large");
    }
    c->out[0] = y;
    return TACIT_OK;
}

/* Parts of what has one row lie behind each other. */
static bool concat_part(const ir_node *node, uint32_t in, int64_t *offset)
{
    const ir_shape *y = &node->outputs[0]->type.shape;
    int32_t axis;
    if (ir_axis(ir_attr_int(node, "axis", 0), y->rank, &axis, NULL) != TACIT_OK)
        return false;
    for (int32_t d = 0; d < axis; d++)
        if (y->dims[d] != 1)
            return false;
    *offset = 0;
    for (uint32_t i = 0; i < in; i++)
        *offset += ir_shape_size(&node->inputs[i]->type.shape);
    return true;
}

static tacit_status concat_eval(op_eval *c)
{
    ir_tensor *y = op_out(c, 0);
    int32_t axis;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), y->shape.rank, &axis, c->err));
    int64_t outer = 1, inner = 1, at = 0;
    for (int32_t d = 0; d < y->shape.rank; d++) {
        if (d < axis)
            outer *= y->shape.dims[d];
        if (d > axis)
            inner *= y->shape.dims[d];
    }
    int64_t row = y->shape.dims[axis] * inner;
    for (uint32_t i = 0; i < c->n_in; i++) {
        const ir_tensor *x = op_in(c, i);
        int64_t run = x->shape.dims[axis] * inner;
        for (int64_t o = 0; o < outer && run; o++)
            op_strip_copy(y->dtype, y->data, o * row + at, 1, x->data, o * run, 1, run);
        at += run;
    }
    return TACIT_OK;
}

/* --- Tile ------------------------------------------------------------------------------------- */

static tacit_status tile_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_INT));
    const ir_type *x = c->in[0];
    int64_t n = ir_shape_size(&c->in[1]->shape);
    if (n != x->shape.rank)
        return error_set(c->err, TACIT_ERR_SHAPE, "%lld repeats for rank %d", (long long)n,
                         x->shape.rank);
    if (!op_in_value(c, 1))
        return op_infer_open(c, x->dtype, x->shape.rank);
    ir_shape repeats;
    TRY(op_read_shape(op_in_value(c, 1), &repeats, c->err));
    c->out[0] = *x;
    for (int32_t d = 0; d < repeats.rank; d++)
        if (__builtin_mul_overflow(x->shape.dims[d], repeats.dims[d], &c->out[0].shape.dims[d]))
            return error_set(c->err, TACIT_ERR_LIMIT, "the result is too large");
    return TACIT_OK;
}

/* Axis d of the output repeats that of the input; the last axis goes by whole runs. */
static void tile_axis(const ir_tensor *x, ir_tensor *y, int32_t d, int64_t from, int64_t to,
                      const int64_t *in_step, const int64_t *out_step)
{
    int64_t n = x->shape.dims[d], total = y->shape.dims[d];
    bool last = d + 1 == x->shape.rank;
    for (int64_t i = 0; i < total && n; i += last ? n : 1) {
        if (last)
            op_strip_copy(x->dtype, y->data, to + i, 1, x->data, from, 1, n);
        else
            tile_axis(x, y, d + 1, from + i % n * in_step[d], to + i * out_step[d], in_step,
                      out_step);
    }
}

static tacit_status tile_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    int64_t in_step[IR_MAX_RANK], out_step[IR_MAX_RANK];
    if (x->shape.rank == 0)
        return op_eval_copy(c, y, x);
    ir_shape_strides(&x->shape, in_step);
    ir_shape_strides(&y->shape, out_step);
    tile_axis(x, y, 0, 0, 0, in_step, out_step);
    return TACIT_OK;
}

const op_def op_rows_slice[] = {
    {.name = "Slice",
     .min_in = 3,
     .max_in = 5,
     .min_out = 1,
     .max_out = 1,
     .infer = slice_infer,
     .eval = slice_eval,
     .alias = slice_alias,
     .lower = op_lower_view,
     .accepts = op_accepts_view,
     .vjp = op_vjp_slice,
     .batch = op_batch_slice,
     .range = op_bounds_same},
    {.name = "Split",
     .min_in = 1,
     .max_in = 2,
     .min_out = 1,
     .max_out = -1,
     .infer = split_infer,
     .eval = split_eval,
     .alias = split_alias,
     .lower = op_lower_view,
     .accepts = op_accepts_view,
     .vjp = op_vjp_split,
     .range = op_bounds_same},
    {.name = "Concat",
     .min_in = 1,
     .max_in = -1,
     .min_out = 1,
     .max_out = 1,
     .infer = concat_infer,
     .eval = concat_eval,
     .part = concat_part,
     .lower = op_lower_concat,
     .accepts = op_accepts_move,
     .vjp = op_vjp_concat,
     .batch = op_batch_concat,
     .range = op_bounds_joined},
    {.name = "Tile",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = tile_infer,
     .eval = tile_eval,
     .lower = op_lower_tile,
     .vjp = op_vjp_tile,
     .range = op_bounds_same},
    {0},
};
