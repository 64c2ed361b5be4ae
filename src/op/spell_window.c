/* SPDX-License-Identifier: Apache-2.0
 * Windows, crops and pools in simpler ops. */
#include <math.h>
#include <string.h>

#include "op/spell.h"
#include "op/vjp.h"
#include "op/window.h"

/* (Σ over a window of channels)·: a band matrix times the squares. */
tacit_status op_spell_lrn(op_diff *c, ir_value **out)
{
    ir_value *x = c->node->inputs[0];
    const ir_shape *s = &x->type.shape;
    int64_t size = ir_attr_int(c->node, "size", 1), n = s->dims[1];
    int64_t below = (size - 1) / 2, above = size - 1 - below, inner = 1;
    double factor = ir_attr_float(c->node, "alpha", 1e-4) / (double)size;
    double *band = op_spell_scratch(c, (size_t)(n * n) * sizeof *band);
    for (int64_t i = 0; band && i < n * n; i++) {
        int64_t k = i % n - i / n;
        band[i] = k >= -below && k <= above ? factor : 0;
    }
    for (int32_t i = 2; i < s->rank; i++)
        inner *= s->dims[i];
    if (!band)
        return c->status;
    ir_value *m = op_spell_floats(c, x->type.dtype, 2, (int64_t[]){n, n}, band);
    ir_value *square =
        op_spell_shaped(c, op_spell_mul(c, x, x), 3, (int64_t[]){s->dims[0], n, inner});
    ir_value *sum = op_diff_reshape(c, op_spell_matmul(c, m, square), s);
    sum = op_spell_shift(c, sum, ir_attr_float(c->node, "bias", 1));
    ir_value *power = op_diff_scalar(c, x->type.dtype, -ir_attr_float(c->node, "beta", 0.75));
    out[0] = op_spell_mul(c, x, op_diff2(c, "Pow", sum, power));
    return c->status;
}

/* v^(1/p) with slope zero, not infinity, at zero. */
static ir_value *root(op_diff *c, ir_value *v, int64_t p)
{
    if (!v || p == 1)
        return v;
    ir_value *zero = op_diff_scalar(c, v->type.dtype, 0), *some = op_diff2(c, "Greater", v, zero);
    ir_value *safe = op_diff3(c, "Where", some, v, op_diff_scalar(c, v->type.dtype, 1));
    ir_value *y = op_diff2(c, "Pow", safe, op_diff_scalar(c, v->type.dtype, 1 / (double)p));
    return op_diff3(c, "Where", some, y, zero);
}

static ir_value *power(op_diff *c, ir_value *x, int64_t p)
{
    ir_value *a = op_diff1(c, "Abs", x);
    return p == 1   ? a
           : p == 2 ? op_spell_mul(c, x, x)
                    : op_diff2(c, "Pow", a, op_diff_scalar(c, x->type.dtype, (double)p));
}

/* Sums of windows are a convolution with ones, channel by channel. */
tacit_status op_spell_lp_pool(op_diff *c, ir_value **out)
{
    ir_value *x = c->node->inputs[0];
    const ir_shape *s = &x->type.shape;
    op_window w;
    TRY(op_window_read(c->node, s, NULL, &w, c->err));
    int64_t p = ir_attr_int(c->node, "p", 2), pads[2 * IR_MAX_RANK];
    uint32_t rank = (uint32_t)w.rank;
    ir_shape kernel = {.rank = s->rank, .dims = {s->dims[1], 1}};
    memcpy(kernel.dims + 2, w.kernel, rank * sizeof *kernel.dims);
    for (int32_t i = 0; i < w.rank; i++) {
        int64_t span = (w.out[i] - 1) * w.stride[i] + (w.kernel[i] - 1) * w.dilation[i] + 1;
        int64_t after = span - w.in[i] - w.pad_begin[i];
        pads[i] = w.pad_begin[i];
        pads[i + w.rank] = after > 0 ? after : 0; /* ceil_mode may reach past the padding */
    }
    ir_value *ones = op_diff_expand(c, op_diff_scalar(c, x->type.dtype, 1), &kernel);
    ir_value *y = op_diff_open(c, "Conv", 2, (ir_value *[]){power(c, x, p), ones});
    if (!y)
        return c->status;
    if (!ir_attr_set_ints(c->graph, y->producer, "strides", rank, w.stride) ||
        !ir_attr_set_ints(c->graph, y->producer, "dilations", rank, w.dilation) ||
        !ir_attr_set_ints(c->graph, y->producer, "pads", 2 * rank, pads))
        return c->status = error_memory(c->err, "a derivative graph");
    out[0] = root(c, op_diff_attr_int(c, y, "group", s->dims[1]), p);
    return c->status;
}

tacit_status op_spell_global_lp_pool(op_diff *c, ir_value **out)
{
    ir_value *x = c->node->inputs[0];
    int64_t p = ir_attr_int(c->node, "p", 2), axes[IR_MAX_RANK];
    uint32_t n = 0;
    for (int32_t i = 2; i < x->type.shape.rank; i++)
        axes[n++] = i;
    out[0] = root(c, op_diff_sum(c, power(c, x, p), n, axes, true), p);
    return c->status;
}

/* --- Im2Col and Col2Im: one axis after the other ------------------------------------------------
 */

/* Places kernel·position of axis i in the padded input: [kernel · out]. */
static ir_value *axis_places(op_diff *c, const op_window *w, int32_t i)
{
    int64_t n = w->kernel[i] * w->out[i];
    int64_t *at = op_spell_scratch(c, (size_t)(n + 1) * sizeof *at);
    for (int64_t k = 0; at && k < n; k++)
        at[k] = k / w->out[i] * w->dilation[i] + k % w->out[i] * w->stride[i];
    return at ? op_spell_ints(c, 1, &n, at) : NULL;
}

/* How far the windows reach beyond the input and its leading padding. */
static int64_t reach(const op_window *w, int32_t i)
{
    int64_t span = (w->out[i] - 1) * w->stride[i] + (w->kernel[i] - 1) * w->dilation[i] + 1;
    int64_t after = span - w->in[i] - w->pad_begin[i];
    return after > 0 ? after : 0;
}

/* [N, C, k₀·o₀, k₁·o₁ …] ↔ [N, C, k₀, o₀, k₁, o₁ …] with all kernels, or all outputs, first. */
static ir_shape paired(const op_window *w, int64_t n, int64_t ch)
{
    ir_shape s = {.rank = 2 + 2 * w->rank, .dims = {n, ch}};
    for (int32_t i = 0; i < w->rank; i++) {
        s.dims[2 + 2 * i] = w->kernel[i];
        s.dims[3 + 2 * i] = w->out[i];
    }
    return s;
}

tacit_status op_spell_im2col(op_diff *c, ir_value **out)
{
    ir_value *x = c->node->inputs[0];
    const ir_shape *s = &x->type.shape;
    op_window w;
    TRY(op_window_read(c->node, s, NULL, &w, c->err));
    if (2 + 2 * w.rank > IR_MAX_RANK)
        return op_diff_fail(c, TACIT_ERR_LIMIT, "too many axes for its gradient");
    for (int32_t i = 0; i < w.rank; i++) {
        x = op_spell_padded(c, x, i + 2, w.pad_begin[i], reach(&w, i));
        x = op_spell_gather(c, x, axis_places(c, &w, i), i + 2);
    }
    ir_shape split = paired(&w, s->dims[0], s->dims[1]);
    int64_t perm[IR_MAX_RANK] = {0};
    for (int32_t i = 0; i < w.rank; i++) { /* [N, positions…, C, taps…] */
        perm[1 + i] = 3 + 2 * i;
        perm[2 + w.rank + i] = 2 + 2 * i;
    }
    perm[1 + w.rank] = 1;
    x = op_diff_transpose(c, op_diff_reshape(c, x, &split), perm);
    out[0] = op_diff_reshape(c, x, &c->node->outputs[0]->type.shape);
    return c->status;
}

tacit_status op_spell_col2im(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *x = n->inputs[0];
    const ir_tensor *image = ir_value_known(n->inputs[1]), *block = ir_value_known(n->inputs[2]);
    op_window w = {.rank = 0};
    uint32_t rank, blocks;
    if (!image || !block)
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "its sizes are not known when compiling");
    TRY(op_read_ints(image, w.in, IR_MAX_RANK - 2, &rank, c->err));
    TRY(op_read_ints(block, w.kernel, IR_MAX_RANK - 2, &blocks, c->err));
    w.rank = (int32_t)rank;
    if (2 + 2 * w.rank > IR_MAX_RANK)
        return op_diff_fail(c, TACIT_ERR_LIMIT, "too many axes for its gradient");
    TRY(op_window_attributes(n, &w, c->err));
    for (int32_t i = 0; i < w.rank; i++)
        w.out[i] =
            (w.in[i] + w.pad_begin[i] + w.pad_end[i] - (w.kernel[i] - 1) * w.dilation[i] - 1) /
                w.stride[i] +
            1;
    if (!op_window_products(&w))
        return op_diff_fail(c, TACIT_ERR_LIMIT, "it is too large");
    int64_t batch = x->type.shape.dims[0], ch = x->type.shape.dims[1] / w.taps;
    ir_shape split = {.rank = 2 + 2 * w.rank, .dims = {batch, ch}}, lines = {.rank = 2 + w.rank};
    int64_t perm[IR_MAX_RANK] = {0, 1};
    lines.dims[0] = batch;
    lines.dims[1] = ch;
    for (int32_t i = 0; i < w.rank; i++) {
        split.dims[2 + i] = w.kernel[i];
        split.dims[2 + w.rank + i] = w.out[i];
        perm[2 + 2 * i] = 2 + i;
        perm[3 + 2 * i] = 2 + w.rank + i;
        lines.dims[2 + i] = w.kernel[i] * w.out[i];
    }
    x = op_diff_transpose(c, op_diff_reshape(c, x, &split), perm);
    x = op_diff_reshape(c, x, &lines);
    for (int32_t i = 0; i < w.rank; i++) {
        int64_t full = w.in[i] + w.pad_begin[i] + reach(&w, i);
        ir_value *sum =
            op_diff_open(c, "tacit.ScatterAdd", 2, (ir_value *[]){x, axis_places(c, &w, i)});
        sum = sum && ir_attr_set_int(c->graph, sum->producer, "dim", full)
                  ? op_diff_attr_int(c, sum, "axis", i + 2)
                  : NULL;
        x = op_spell_slice(c, sum, i + 2, w.pad_begin[i], w.pad_begin[i] + w.in[i]);
    }
    out[0] = x;
    return c->status;
}

/* --- MaxUnpool -------------------------------------------------------------------------------- */

/* Indices count in the shape that the windows imply; what lies beyond output_shape is refused when
 * run, as the op itself does. */
tacit_status op_spell_max_unpool(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *x = n->inputs[0];
    const ir_shape *s = &x->type.shape, *y = &n->outputs[0]->type.shape;
    uint32_t count;
    const int64_t *kernel = ir_attr_ints(n, "kernel_shape", &count);
    op_window w = {.rank = s->rank - 2};
    ir_shape natural = *s;
    TRY(op_window_attributes(n, &w, c->err));
    for (int32_t i = 0; i < w.rank; i++)
        natural.dims[i + 2] =
            (s->dims[i + 2] - 1) * w.stride[i] + kernel[i] - w.pad_begin[i] - w.pad_end[i];
    if (!ir_shape_is_static(y))
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "its sizes are not known when compiling");
    int64_t total = ir_shape_size(&natural), size = ir_shape_size(s);
    ir_type flat = ir_type_tensor(x->type.dtype, 1, &total);
    ir_value *where = op_diff_cast(c, n->inputs[1], TACIT_I64);
    where = op_spell_shaped(c, where, 2, (int64_t[]){size, 1});
    ir_value *v =
        op_diff3(c, "ScatterND", op_diff_zeros(c, &flat), where, op_spell_shaped(c, x, 1, &size));
    v = op_diff_reshape(c, v, &natural);
    for (int32_t i = 0; v && i < s->rank; i++) {
        int64_t have = natural.dims[i], want = y->dims[i];
        v = have > want ? op_spell_slice(c, v, i, 0, want)
                        : op_spell_padded(c, v, i, 0, want - have);
    }
    out[0] = v;
    return c->status;
}

/* --- MaxRoiPool ------------------------------------------------------------------------------- */

/* Which of `n` pixels lie in bins [R, bins] of boxes from..to (rounded, [R]): bool [R, bins, n]. */
static ir_value *bin_mask(op_diff *c, ir_value *from, ir_value *to, int64_t bins, int64_t n)
{
    if (!from || !to)
        return NULL;
    tacit_dtype dtype = from->type.dtype;
    int64_t rois = from->type.shape.dims[0], count = bins > n ? bins : n;
    double *steps = op_spell_scratch(c, (size_t)(count + 1) * sizeof *steps);
    for (int64_t i = 0; steps && i < count; i++)
        steps[i] = (double)i;
    if (!steps)
        return NULL;
    ir_value *pixel = op_spell_floats(c, dtype, 3, (int64_t[]){1, 1, n}, steps);
    ir_value *bin = op_spell_floats(c, dtype, 2, (int64_t[]){1, bins}, steps);
    ir_value *span = op_spell_shift(c, op_spell_sub(c, to, from), 1);
    span = op_diff2(c, "Max", span, op_diff_scalar(c, dtype, 1));
    span = op_spell_shaped(c, op_diff_scale(c, span, 1 / (double)bins), 2, (int64_t[]){rois, 1});
    from = op_spell_shaped(c, from, 2, (int64_t[]){rois, 1});
    ir_value *low = op_diff1(c, "Floor", op_spell_mul(c, bin, span));
    ir_value *high = op_diff1(c, "Ceil", op_spell_mul(c, op_spell_shift(c, bin, 1), span));
    low = op_spell_unsqueeze(c, op_spell_add(c, low, from), 2);
    high = op_spell_unsqueeze(c, op_spell_add(c, high, from), 2);
    return op_diff2(c, "And", op_diff2(c, "GreaterOrEqual", pixel, low),
                    op_diff2(c, "Less", pixel, high));
}

static ir_value *roi_edge(op_diff *c, ir_value *rois, int64_t i, double scale)
{
    int64_t n = rois->type.shape.dims[0];
    ir_value *v = op_spell_shaped(c, op_spell_slice(c, rois, 1, i, i + 1), 1, &n);
    if (scale != 1)
        v = op_diff_scale(c, v, scale);
    /* half away from zero: sign·floor(|v| + ½) */
    ir_value *size = op_diff1(c, "Floor", op_spell_shift(c, op_diff1(c, "Abs", v), 0.5));
    return op_spell_mul(c, op_diff1(c, "Sign", v), size);
}

/* Maxima along rows first, then along columns; an empty bin is zero. */
tacit_status op_spell_max_roi_pool(op_diff *c, ir_value **out)
{
    ir_value *x = c->node->inputs[0], *rois = c->node->inputs[1];
    const int64_t *d = x->type.shape.dims, *o = c->node->outputs[0]->type.shape.dims;
    double scale = ir_attr_float(c->node, "spatial_scale", 1);
    ir_value *image = op_spell_slice(c, rois, 1, 0, 1);
    image = op_diff_cast(c, op_spell_shaped(c, image, 1, o), TACIT_I64);
    ir_value *columns = bin_mask(c, roi_edge(c, rois, 1, scale), roi_edge(c, rois, 3, scale), o[3],
                                 d[3]); /* [R, pw, W] */
    ir_value *rows = bin_mask(c, roi_edge(c, rois, 2, scale), roi_edge(c, rois, 4, scale), o[2],
                              d[2]); /* [R, ph, H] */
    columns = op_spell_shaped(c, columns, 5, (int64_t[]){o[0], 1, 1, o[3], d[3]});
    rows = op_spell_shaped(c, rows, 5, (int64_t[]){o[0], 1, o[2], 1, d[2]});
    ir_value *least = op_diff_scalar(c, x->type.dtype, -INFINITY);
    ir_value *v = op_spell_gather(c, x, image, 0);
    v = op_spell_shaped(c, v, 5, (int64_t[]){o[0], d[1], d[2], 1, d[3]});
    v = op_spell_reduce(c, "ReduceMax", op_diff3(c, "Where", columns, v, least), 4, false);
    v = op_diff_swap_last(c, v); /* [R, C, pw, H] */
    v = op_spell_shaped(c, v, 5, (int64_t[]){o[0], d[1], 1, o[3], d[2]});
    v = op_spell_reduce(c, "ReduceMax", op_diff3(c, "Where", rows, v, least), 4, false);
    ir_value *empty = op_diff2(c, "Equal", v, least);
    out[0] = op_diff3(c, "Where", empty, op_diff_scalar(c, x->type.dtype, 0), v);
    return c->status;
}

/* --- crops and orders ------------------------------------------------------------------------- */

tacit_status op_spell_center_crop_pad(op_diff *c, ir_value **out)
{
    ir_value *x = c->node->inputs[0];
    const ir_shape *s = &x->type.shape, *y = &c->node->outputs[0]->type.shape;
    if (!ir_shape_is_static(y))
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "its sizes are not known when compiling");
    for (int32_t i = 0; x && i < s->rank; i++) {
        int64_t n = s->dims[i], m = y->dims[i];
        x = n > m ? op_spell_slice(c, x, i, (n - m) / 2, (n - m) / 2 + m)
                  : op_spell_padded(c, x, i, (m - n) / 2, m - n - (m - n) / 2);
    }
    out[0] = x;
    return c->status;
}

/* Every element says where it comes from. */
tacit_status op_spell_reverse_sequence(op_diff *c, ir_value **out)
{
    ir_value *x = c->node->inputs[0], *lengths = op_diff_cast(c, c->node->inputs[1], TACIT_I64);
    const ir_shape *s = &x->type.shape;
    int64_t time = ir_attr_int(c->node, "time_axis", 0), steps = s->dims[time];
    int64_t *count = op_spell_scratch(c, (size_t)(steps + 1) * sizeof *count);
    ir_shape by_time = {.rank = s->rank}, by_sample = {.rank = s->rank};
    for (int32_t i = 0; i < s->rank; i++) {
        by_time.dims[i] = i == time ? steps : 1;
        by_sample.dims[i] = i == 1 - time ? s->dims[i] : 1;
    }
    for (int64_t i = 0; count && i < steps; i++)
        count[i] = i;
    if (!count)
        return c->status;
    ir_value *t = op_spell_ints(c, s->rank, by_time.dims, count);
    lengths = op_diff_reshape(c, lengths, &by_sample);
    ir_value *turned = op_spell_sub(c, op_spell_shift(c, lengths, -1), t);
    ir_value *from = op_diff3(c, "Where", op_diff2(c, "Less", t, lengths), turned, t);
    out[0] = op_spell_gather_elements(c, x, op_diff_expand(c, from, s), time);
    return c->status;
}

/* The Resize that Upsample became; scales are its second input. */
tacit_status op_spell_upsample(op_diff *c, ir_value **out)
{
    const char *mode = ir_attr_string(c->node, "mode", "nearest");
    ir_node *n = op_spell_sibling(c, "Resize", "", 3,
                                  (ir_value *[]){c->node->inputs[0], NULL, c->node->inputs[1]}, 1);
    ir_value *y = n ? n->outputs[0] : NULL;
    y = op_spell_attr_string(c, y, "coordinate_transformation_mode", "asymmetric");
    y = op_spell_attr_string(c, y, "mode", strcmp(mode, "bilinear") ? mode : "linear");
    out[0] = op_spell_attr_string(c, y, "nearest_mode", "floor");
    return c->status;
}

/* Rows of the update go to consecutive places, round the end where the cache is circular. */
tacit_status op_spell_tensor_scatter(op_diff *c, ir_value **out)
{
    ir_value *x = c->node->inputs[0], *update = c->node->inputs[1], *start = op_spell_input(c, 2);
    const ir_shape *s = &x->type.shape, *u = &update->type.shape;
    int64_t axis = ir_attr_int(c->node, "axis", -2);
    axis += axis < 0 ? s->rank : 0;
    ir_shape line = {.rank = s->rank}, samples = {.rank = s->rank};
    for (int32_t i = 0; i < s->rank; i++) {
        line.dims[i] = i == axis ? u->dims[i] : 1;
        samples.dims[i] = i == 0 ? s->dims[0] : 1;
    }
    int64_t *count = op_spell_scratch(c, (size_t)(u->dims[axis] + 1) * sizeof *count);
    for (int64_t i = 0; count && i < u->dims[axis]; i++)
        count[i] = i;
    ir_value *to = count ? op_spell_ints(c, s->rank, line.dims, count) : NULL;
    if (start)
        to = op_spell_add(c, to, op_diff_reshape(c, op_diff_cast(c, start, TACIT_I64), &samples));
    if (strcmp(ir_attr_string(c->node, "mode", "linear"), "circular") == 0)
        to = op_diff2(c, "Mod", to, op_diff_scalar(c, TACIT_I64, (double)s->dims[axis]));
    ir_value *in[3] = {x, op_diff_expand(c, to, u), update};
    out[0] = op_diff_attr_int(c, op_diff_open(c, "ScatterElements", 3, in), "axis", axis);
    return c->status;
}
