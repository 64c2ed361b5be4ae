/* SPDX-License-Identifier: Apache-2.0 */
#include "op/window.h"

#include <string.h>

/* Sizes past this would overflow the products below; no tensor has such an axis. */
static const int64_t limit = INT64_C(1) << 40;

static tacit_status read_list(const ir_node *node, const char *name, int32_t rank, int64_t fallback,
                              int64_t least, int64_t *out, tacit_error *err)
{
    uint32_t count;
    const int64_t *v = ir_attr_ints(node, name, &count);
    if (v && count != (uint32_t)rank)
        return error_set(err, TACIT_ERR_VALUE, "%s has %u entries, expected %d", name, count, rank);
    for (int32_t i = 0; i < rank; i++) {
        out[i] = v ? v[i] : fallback;
        if (out[i] < least || out[i] > limit)
            return error_set(err, TACIT_ERR_VALUE, "%s[%d] is %lld", name, i, (long long)out[i]);
    }
    return TACIT_OK;
}

tacit_status op_window_attributes(const ir_node *node, op_window *w, tacit_error *err)
{
    int64_t pads[2 * IR_MAX_RANK];
    TRY(read_list(node, "strides", w->rank, 1, 1, w->stride, err));
    TRY(read_list(node, "dilations", w->rank, 1, 1, w->dilation, err));
    TRY(read_list(node, "pads", 2 * w->rank, 0, 0, pads, err));
    memcpy(w->pad_begin, pads, (size_t)w->rank * sizeof *pads);
    memcpy(w->pad_end, pads + w->rank, (size_t)w->rank * sizeof *pads);
    return TACIT_OK;
}

bool op_window_products(op_window *w)
{
    w->taps = w->in_size = w->out_size = 1;
    for (int32_t i = 0; i < w->rank; i++)
        if (__builtin_mul_overflow(w->taps, w->kernel[i], &w->taps) ||
            __builtin_mul_overflow(w->in_size, w->in[i], &w->in_size) ||
            __builtin_mul_overflow(w->out_size, w->out[i], &w->out_size))
            return false;
    return true;
}

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Output length and padding of one axis. */
static tacit_status place_axis(op_window *w, int32_t i, const char *mode, bool ceiling,
                               tacit_error *err)
{
    int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1, stride = w->stride[i];
    if (strncmp(mode, "SAME_", 5) == 0) {
        w->out[i] = ceil_div(w->in[i], stride);
        int64_t total = (w->out[i] - 1) * stride + span - w->in[i];
        total = total < 0 ? 0 : total;
        w->pad_begin[i] = strcmp(mode, "SAME_LOWER") == 0 ? total - total / 2 : total / 2;
        w->pad_end[i] = total - w->pad_begin[i];
        return TACIT_OK;
    }
    if (strcmp(mode, "VALID") == 0)
        w->pad_begin[i] = w->pad_end[i] = 0;
    int64_t room = w->in[i] + w->pad_begin[i] + w->pad_end[i] - span;
    if (room < 0)
        return error_set(err, TACIT_ERR_SHAPE, "window of %lld is larger than the padded axis %d",
                         (long long)span, i);
    w->out[i] = (ceiling ? ceil_div(room, stride) : room / stride) + 1;
    /* A last window that starts beyond the input and its leading pad is dropped. */
    if (ceiling && (w->out[i] - 1) * stride >= w->in[i] + w->pad_begin[i])
        w->out[i]--;
    return TACIT_OK;
}

tacit_status op_window_read(const ir_node *node, const ir_shape *x, const int64_t *kernel,
                            op_window *w, tacit_error *err)
{
    memset(w, 0, sizeof *w);
    char text[IR_SHAPE_TEXT];
    if (x->rank < 3)
        return error_set(err, TACIT_ERR_SHAPE, "input %s has no spatial axes",
                         ir_shape_text(x, text));
    w->rank = x->rank - 2;
    memcpy(w->in, x->dims + 2, (size_t)w->rank * sizeof *w->in);
    if (!ir_attr_find(node, "kernel_shape") && !kernel)
        return error_set(err, TACIT_ERR_VALUE, "kernel_shape is missing");
    TRY(read_list(node, "kernel_shape", w->rank, 1, 1, w->kernel, err));
    for (int32_t i = 0; kernel && i < w->rank; i++) {
        if (ir_attr_find(node, "kernel_shape") && w->kernel[i] != kernel[i])
            return error_set(err, TACIT_ERR_SHAPE, "kernel_shape[%d] is %lld, the weight's %lld", i,
                             (long long)w->kernel[i], (long long)kernel[i]);
        w->kernel[i] = kernel[i];
        if (kernel[i] < 1)
            return error_set(err, TACIT_ERR_SHAPE, "the weight's spatial axis %d is empty", i);
    }
    TRY(op_window_attributes(node, w, err));
    const char *mode = ir_attr_string(node, "auto_pad", "NOTSET");
    if (strcmp(mode, "NOTSET") != 0 && strcmp(mode, "VALID") != 0 &&
        strcmp(mode, "SAME_UPPER") != 0 && strcmp(mode, "SAME_LOWER") != 0 && *mode)
        return error_set(err, TACIT_ERR_VALUE, "unknown auto_pad '%s'", mode);
    bool ceiling = ir_attr_int(node, "ceil_mode", 0) != 0;
    for (int32_t i = 0; i < w->rank; i++) {
        int64_t span;
        if (__builtin_mul_overflow(w->kernel[i], w->dilation[i], &span) || span > limit)
            return error_set(err, TACIT_ERR_VALUE, "the window of axis %d is too large", i);
        TRY(place_axis(w, i, mode, ceiling, err));
    }
    return op_window_products(w) ? TACIT_OK
                                 : error_set(err, TACIT_ERR_LIMIT, "the windows are too many");
}

tacit_status op_window_pooled(const op_infer *c, op_window *w, ir_shape *y)
{
    *y = c->in[0]->shape;
    TRY(op_window_read(c->node, y, NULL, w, c->err));
    memcpy(y->dims + 2, w->out, (size_t)w->rank * sizeof *y->dims);
    return TACIT_OK;
}

void op_window_unravel(int32_t rank, const int64_t *dims, int64_t linear, int64_t *index)
{
    for (int32_t i = rank; i-- > 0;) {
        index[i] = linear % dims[i];
        linear /= dims[i];
    }
}

void op_window_offsets(const op_window *w, int64_t at, int64_t *offsets)
{
    int64_t o[IR_MAX_RANK], k[IR_MAX_RANK] = {0};
    op_window_unravel(w->rank, w->out, at, o);
    for (int64_t t = 0; t < w->taps; t++) {
        int64_t offset = 0;
        for (int32_t i = 0; i < w->rank && offset >= 0; i++) {
            int64_t x = o[i] * w->stride[i] - w->pad_begin[i] + k[i] * w->dilation[i];
            offset = x < 0 || x >= w->in[i] ? -1 : offset * w->in[i] + x;
        }
        offsets[t] = offset;
        for (int32_t i = w->rank; i-- > 0;) {
            if (++k[i] < w->kernel[i])
                break;
            k[i] = 0;
        }
    }
}

bool op_volume_of(const op_window *w, op_plane *p, op_depth *z)
{
    if (w->rank < 1 || w->rank > 3)
        return false;
    *p = (op_plane){.in = {1}, .out = {1}, .kernel = {1}, .stride = {1}, .dilation = {1}};
    *z = (op_depth){.in = 1, .out = 1, .kernel = 1, .stride = 1, .dilation = 1};
    for (int32_t i = 0; i < w->rank; i++)
        if (w->pad_begin[i] < 0)
            return false;
    if (w->rank == 3)
        *z = (op_depth){.in = w->in[0],
                        .out = w->out[0],
                        .kernel = w->kernel[0],
                        .stride = w->stride[0],
                        .dilation = w->dilation[0],
                        .pad = w->pad_begin[0],
                        .pad_after = w->pad_end[0]};
    for (int32_t i = w->rank == 3; i < w->rank; i++) {
        int32_t d = i + 2 - w->rank;
        p->in[d] = w->in[i];
        p->out[d] = w->out[i];
        p->kernel[d] = w->kernel[i];
        p->stride[d] = w->stride[i];
        p->dilation[d] = w->dilation[i];
        p->pad[d] = w->pad_begin[i];
        p->pad_after[d] = w->pad_end[i];
    }
    return true;
}

bool op_plane_of(const op_window *w, op_plane *p)
{
    op_depth none;
    return w->rank <= 2 && op_volume_of(w, p, &none);
}
