/* SPDX-License-Identifier: Apache-2.0
 * Ops that say, axis by axis, which input element an output element is: Pad and CenterCropPad; and
 * the block and sequence shuffles. */
#include <string.h>

#include "op/build.h"
#include "op/elementwise.h"
#include "op/index.h"
#include "op/loop.h"
#include "op/pad.h"
#include "op/strip.h"
#include "op/view.h"
#include "op/vjp.h"

/* For each axis, the input index of every output index; -1 where the filler goes. */
typedef struct axis_maps {
    int64_t *axis[IR_MAX_RANK];
} axis_maps;

/* Fills y through the maps: runs of the last axis that are contiguous in x are copied at once. */
static void copy_mapped(const ir_tensor *x, ir_tensor *y, const axis_maps *maps, const void *filler)
{
    int32_t last = y->shape.rank - 1;
    int64_t n = y->shape.dims[last], strides[IR_MAX_RANK];
    const int64_t *index = maps->axis[last];
    ir_shape outer = y->shape;
    outer.rank = last;
    ir_shape_strides(&x->shape, strides);
    op_loop l;
    op_loop_begin(&l, &outer);
    for (; !op_loop_done(&l); op_loop_next(&l)) {
        int64_t row = 0, to = l.linear * n;
        bool outside = false;
        for (int32_t d = 0; d < last; d++) {
            int64_t i = maps->axis[d][l.index[d]];
            outside |= i < 0;
            row += i * strides[d];
        }
        for (int64_t i = 0, run; i < n; i += run) {
            bool fill = outside || index[i] < 0;
            for (run = 1; i + run < n; run++)
                if (fill ? !(outside || index[i + run] < 0) : index[i + run] != index[i] + run)
                    break;
            if (fill)
                op_strip_fill(y->dtype, y->data, to + i, run, filler, 0);
            else
                op_strip_copy(y->dtype, y->data, to + i, 1, x->data, row + index[i], 1, run);
        }
    }
}

static tacit_status new_maps(op_eval *c, const ir_shape *y, axis_maps *maps)
{
    for (int32_t d = 0; d < y->rank; d++) {
        maps->axis[d] = op_eval_scratch(c, (size_t)y->dims[d] * sizeof(int64_t) + 1);
        if (!maps->axis[d])
            return error_memory(c->err, "index maps");
    }
    return TACIT_OK;
}

/* The element that fills: all zero bits are 0, false and the empty string in every dtype. */
static const uint64_t zero_element[2] = {0, 0};

/* --- Pad -------------------------------------------------------------------------------------- */

tacit_status op_read_pad_mode(const ir_node *node, op_pad_mode *mode, tacit_error *err)
{
    static const char *const names[] = {"constant", "reflect", "edge", "wrap"};
    const char *text = ir_attr_string(node, "mode", "constant");
    for (int i = 0; i < 4; i++)
        if (strcmp(names[i], text) == 0) {
            *mode = (op_pad_mode)i;
            return TACIT_OK;
        }
    return error_set(err, TACIT_ERR_VALUE, "mode '%s' is not known", text);
}

/* Elements added before and after each axis. */
static tacit_status read_pads(const ir_tensor *pads, const ir_tensor *axes, int32_t rank,
                              int64_t *before, int64_t *after, tacit_error *err)
{
    int64_t values[2 * IR_MAX_RANK];
    uint32_t n;
    op_axes list = {0};
    TRY(op_read_ints(pads, values, 2 * IR_MAX_RANK, &n, err));
    if (axes)
        TRY(op_read_axes(axes, rank, &list, err));
    for (int32_t d = 0; !axes && d < rank; d++)
        list.list[list.count++] = d;
    if (n != 2 * list.count)
        return error_set(err, TACIT_ERR_SHAPE, "%u pads for %u axes", n, list.count);
    for (int32_t d = 0; d < rank; d++)
        before[d] = after[d] = 0;
    for (uint32_t i = 0; i < list.count; i++) {
        before[list.list[i]] = values[i];
        after[list.list[i]] = values[list.count + i];
    }
    return TACIT_OK;
}

static tacit_status pad_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_INT));
    const ir_type *x = c->in[0];
    int64_t before[IR_MAX_RANK] = {0}, after[IR_MAX_RANK] = {0};
    op_pad_mode mode = OP_PAD_CONSTANT;
    TRY(op_read_pad_mode(c->node, &mode, c->err));
    if (op_in_type(c, 3))
        TRY(op_check_class(c, 3, OP_INT));
    if (op_in_type(c, 2) && (c->in[2]->dtype != x->dtype || ir_shape_size(&c->in[2]->shape) != 1))
        return error_set(c->err, TACIT_ERR_TYPE, "constant_value must be one %s",
                         tacit_dtype_text(x->dtype));
    if (!c->value[1] || (op_in_type(c, 3) && !c->value[3]))
        return op_infer_open(c, x->dtype, x->shape.rank);
    TRY(read_pads(c->value[1], op_in_value(c, 3), x->shape.rank, before, after, c->err));
    c->out[0] = *x;
    for (int32_t d = 0; d < x->shape.rank; d++) {
        int64_t n = x->shape.dims[d], *y = &c->out[0].shape.dims[d];
        if (__builtin_add_overflow(n, before[d], y) || __builtin_add_overflow(*y, after[d], y))
            return error_set(c->err, TACIT_ERR_LIMIT, "axis %d becomes too large", d);
        if (*y < 0)
            return error_set(c->err, TACIT_ERR_VALUE, "pads %lld and %lld remove more than axis %d",
                             (long long)before[d], (long long)after[d], d);
        if (mode != OP_PAD_CONSTANT && n == 0 && *y > 0)
            return error_set(c->err, TACIT_ERR_VALUE, "axis %d is empty: nothing to repeat", d);
    }
    return TACIT_OK;
}

static int64_t floor_mod(int64_t a, int64_t n)
{
    int64_t r = a % n;
    return r < 0 ? r + n : r;
}

int64_t op_pad_source(op_pad_mode mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    if (mode == OP_PAD_CONSTANT)
        return -1;
    if (mode == OP_PAD_EDGE)
        return i < 0 ? 0 : n - 1;
    if (mode == OP_PAD_WRAP)
        return floor_mod(i, n);
    if (n == 1)
        return 0;
    i = floor_mod(i, 2 * (n - 1)); /* there and back without repeating the ends */
    return i < n ? i : 2 * (n - 1) - i;
}

static tacit_status pad_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *value = op_in(c, 2);
    ir_tensor *y = op_out(c, 0);
    int64_t before[IR_MAX_RANK] = {0}, after[IR_MAX_RANK] = {0};
    op_pad_mode mode = OP_PAD_CONSTANT;
    axis_maps maps;
    TRY(op_read_pad_mode(c->node, &mode, c->err));
    TRY(read_pads(op_in(c, 1), op_in(c, 3), x->shape.rank, before, after, c->err));
    if (x->shape.rank == 0)
        return op_eval_copy(c, y, x);
    TRY(new_maps(c, &y->shape, &maps));
    for (int32_t d = 0; d < y->shape.rank; d++)
        for (int64_t i = 0; i < y->shape.dims[d]; i++)
            maps.axis[d][i] = op_pad_source(mode, i - before[d], x->shape.dims[d]);
    copy_mapped(x, y, &maps, value ? value->data : zero_element);
    return TACIT_OK;
}

/* --- CenterCropPad ---------------------------------------------------------------------------- */

static tacit_status crop_axes(const ir_node *node, int32_t rank, op_axes *axes, tacit_error *err)
{
    uint32_t n;
    const int64_t *values = ir_attr_ints(node, "axes", &n);
    if (values && n > IR_MAX_RANK)
        return error_set(err, TACIT_ERR_LIMIT, "too many axes");
    if (values)
        return op_make_axes(values, n, rank, axes, err);
    *axes = (op_axes){.count = (uint32_t)rank};
    for (int32_t d = 0; d < rank; d++)
        axes->list[d] = d;
    return TACIT_OK;
}

static tacit_status crop_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_INT));
    const ir_type *x = c->in[0];
    op_axes axes;
    ir_shape to;
    TRY(crop_axes(c->node, x->shape.rank, &axes, c->err));
    int64_t sizes = ir_shape_size(&c->in[1]->shape);
    if (sizes != axes.count)
        return error_set(c->err, TACIT_ERR_SHAPE, "%lld sizes for %u axes", (long long)sizes,
                         axes.count);
    if (!c->value[1])
        return op_infer_open(c, x->dtype, x->shape.rank);
    TRY(op_read_shape(c->value[1], &to, c->err));
    c->out[0] = *x;
    for (uint32_t i = 0; i < axes.count; i++)
        c->out[0].shape.dims[axes.list[i]] = to.dims[i];
    return TACIT_OK;
}

static tacit_status crop_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    axis_maps maps;
    if (x->shape.rank == 0)
        return op_eval_copy(c, y, x);
    TRY(new_maps(c, &y->shape, &maps));
    for (int32_t d = 0; d < y->shape.rank; d++) {
        int64_t n = x->shape.dims[d], m = y->shape.dims[d];
        int64_t shift = n > m ? (n - m) / 2 : -((m - n) / 2);
        for (int64_t i = 0; i < m; i++)
            maps.axis[d][i] = i + shift >= 0 && i + shift < n ? i + shift : -1;
    }
    copy_mapped(x, y, &maps, zero_element);
    return TACIT_OK;
}

/* --- DepthToSpace, SpaceToDepth --------------------------------------------------------------- */

static tacit_status block_size(const ir_node *node, int64_t *b, tacit_error *err)
{
    *b = ir_attr_int(node, "blocksize", 0);
    if (*b < 1 || *b > INT32_MAX)
        return error_set(err, TACIT_ERR_VALUE, "blocksize %lld is not positive", (long long)*b);
    return TACIT_OK;
}

static tacit_status blocks_infer(op_infer *c, bool to_depth)
{
    int64_t b;
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(block_size(c->node, &b, c->err));
    ir_shape *y = &c->out[0].shape;
    c->out[0] = *c->in[0];
    if (y->rank != 4)
        return error_set(c->err, TACIT_ERR_SHAPE, "the input must have rank 4");
    bool fits = to_depth ? y->dims[2] % b == 0 && y->dims[3] % b == 0 : y->dims[1] % (b * b) == 0;
    char text[IR_SHAPE_TEXT];
    if (!fits)
        return error_set(c->err, TACIT_ERR_SHAPE, "%s does not divide into blocks of %lld",
                         ir_shape_text(y, text), (long long)b);
    y->dims[1] = to_depth ? y->dims[1] * b * b : y->dims[1] / (b * b);
    y->dims[2] = to_depth ? y->dims[2] / b : y->dims[2] * b;
    y->dims[3] = to_depth ? y->dims[3] / b : y->dims[3] * b;
    return TACIT_OK;
}

static tacit_status depth_to_space_infer(op_infer *c)
{
    return blocks_infer(c, false);
}
static tacit_status space_to_depth_infer(op_infer *c)
{
    return blocks_infer(c, true);
}

/* Output [n, c, h, i, w, j] reads channel (i, j, c) in DCR order, (c, i, j) in CRD order. */
static tacit_status depth_to_space_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    int64_t b, channels = y->shape.dims[1], h = x->shape.dims[2], w = x->shape.dims[3];
    TRY(block_size(c->node, &b, c->err));
    const char *mode = ir_attr_string(c->node, "mode", "DCR");
    bool crd = strcmp(mode, "CRD") == 0;
    if (!crd && strcmp(mode, "DCR") != 0)
        return error_set(c->err, TACIT_ERR_VALUE, "mode '%s' is neither DCR nor CRD", mode);
    int64_t dims[6] = {x->shape.dims[0], channels, h, b, w, b};
    int64_t step_c = crd ? b * b : 1, step_i = crd ? b : b * channels, step_j = crd ? 1 : channels;
    int64_t strides[6] = {
        x->shape.dims[1] * h * w, step_c * h * w, w, step_i * h * w, 1, step_j * h * w};
    ir_shape view = ir_shape_of(6, dims);
    op_copy_view(x->dtype, y->data, 0, x->data, 0, &view, strides);
    return TACIT_OK;
}

static tacit_status finish_blocks(ir_graph *g, ir_node *node, const int64_t *split,
                                  const int64_t *perm, tacit_error *err)
{
    const ir_shape *y = &node->outputs[0]->type.shape;
    ir_value *parts = op_build_reshape(g, node->inputs[0], 6, split);
    ir_value *turned = op_build_transpose(g, parts, 6, perm);
    TRY(op_build_finish(g, node, 0, op_build_reshape(g, turned, 4, y->dims), err));
    ir_node_kill(node);
    return TACIT_OK;
}

static tacit_status depth_to_space_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    const int64_t *d = node->inputs[0]->type.shape.dims;
    int64_t b;
    TRY(block_size(node, &b, err));
    int64_t c = d[1] / (b * b);
    if (strcmp(ir_attr_string(node, "mode", "DCR"), "CRD") == 0)
        return finish_blocks(g, node, (int64_t[]){d[0], c, b, b, d[2], d[3]},
                             (int64_t[]){0, 1, 4, 2, 5, 3}, err);
    return finish_blocks(g, node, (int64_t[]){d[0], b, b, c, d[2], d[3]},
                         (int64_t[]){0, 3, 4, 1, 5, 2}, err);
}

static tacit_status space_to_depth_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    const int64_t *d = node->inputs[0]->type.shape.dims;
    int64_t b;
    TRY(block_size(node, &b, err));
    return finish_blocks(g, node, (int64_t[]){d[0], d[1], d[2] / b, b, d[3] / b, b},
                         (int64_t[]){0, 3, 5, 1, 2, 4}, err);
}

/* Output [n, i, j, c, h, w] reads row h·b+i, column w·b+j. */
static tacit_status space_to_depth_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    int64_t b, channels = x->shape.dims[1], h = x->shape.dims[2], w = x->shape.dims[3];
    TRY(block_size(c->node, &b, c->err));
    int64_t dims[6] = {x->shape.dims[0], b, b, channels, h / b, w / b};
    int64_t strides[6] = {channels * h * w, w, 1, h * w, w * b, b};
    ir_shape view = ir_shape_of(6, dims);
    op_copy_view(x->dtype, y->data, 0, x->data, 0, &view, strides);
    return TACIT_OK;
}

/* --- ReverseSequence -------------------------------------------------------------------------- */

static tacit_status reverse_axes(const ir_node *node, int64_t *time, int64_t *batch,
                                 tacit_error *err)
{
    *time = ir_attr_int(node, "time_axis", 0);
    *batch = ir_attr_int(node, "batch_axis", 1);
    if ((*time != 0 && *time != 1) || *batch != 1 - *time)
        return error_set(err, TACIT_ERR_VALUE, "time_axis and batch_axis must be 0 and 1");
    return TACIT_OK;
}

static tacit_status reverse_infer(op_infer *c)
{
    int64_t time, batch;
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_INT));
    TRY(reverse_axes(c->node, &time, &batch, c->err));
    if (c->in[0]->shape.rank < 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "the input must have rank 2 or more");
    if (ir_shape_size(&c->in[1]->shape) != c->in[0]->shape.dims[batch])
        return error_set(c->err, TACIT_ERR_SHAPE, "one length per sample is needed");
    return op_infer_same(c);
}

static tacit_status reverse_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *lengths = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    int64_t time, batch, inner = 1, step[2];
    TRY(reverse_axes(c->node, &time, &batch, c->err));
    for (int32_t d = 2; d < x->shape.rank; d++)
        inner *= x->shape.dims[d];
    step[1] = inner;
    step[0] = inner * x->shape.dims[1];
    int64_t steps = x->shape.dims[time];
    for (int64_t b = 0; b < x->shape.dims[batch]; b++) {
        int64_t n = ir_load_i64(lengths->dtype, lengths->data, b);
        if (n < 0 || n > steps)
            return error_set(c->err, TACIT_ERR_VALUE, "length %lld of sample %lld is above %lld",
                             (long long)n, (long long)b, (long long)steps);
        for (int64_t t = 0; t < steps; t++) {
            int64_t from = t < n ? n - 1 - t : t;
            op_strip_copy(x->dtype, y->data, b * step[batch] + t * step[time], 1, x->data,
                          b * step[batch] + from * step[time], 1, inner);
        }
    }
    return TACIT_OK;
}

const op_def op_rows_pad[] = {
    OP_ROW("Pad", 2, 4, pad_infer, pad_eval, .lower = op_lower_pad, .vjp = op_vjp_pad),
    OP_ROW("CenterCropPad", 2, 2, crop_infer, crop_eval, .spell = op_spell_center_crop_pad),
    OP_ROW("DepthToSpace", 1, 1, depth_to_space_infer, depth_to_space_eval,
           .decompose = depth_to_space_decompose, .vjp = op_vjp_depth_to_space),
    OP_ROW("SpaceToDepth", 1, 1, space_to_depth_infer, space_to_depth_eval,
           .decompose = space_to_depth_decompose, .vjp = op_vjp_space_to_depth),
    OP_ROW("ReverseSequence", 2, 2, reverse_infer, reverse_eval,
           .spell = op_spell_reverse_sequence),
    {0},
};
