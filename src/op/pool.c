/* SPDX-License-Identifier: Apache-2.0
 * Poolings over sliding windows, over whole images, and the inverse of MaxPool. */
#include <math.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/lowerings.h"
#include "op/range.h"
#include "op/values.h"
#include "op/vjp.h"
#include "op/window.h"

static tacit_status float_pool_infer(op_infer *c)
{
    op_window w;
    ir_shape y;
    TRY(op_need_float(c, 0));
    TRY(op_window_pooled(c, &w, &y));
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

/* --- MaxPool ---------------------------------------------------------------------------------- */

/* A window over padding alone has no maximum. Later windows of an axis begin further on: the last
 * one tells of the end, and of those that begin in the padding only dilated ones step over. */
static tacit_status max_pool_windows(const op_window *w, tacit_error *err)
{
    for (int32_t i = 0; w->out_size > 0 && i < w->rank; i++) {
        int64_t last = (w->out[i] - 1) * w->stride[i] - w->pad_begin[i];
        bool empty = last >= w->in[i];
        for (int64_t start = -w->pad_begin[i]; start < 0 && start <= last && !empty;
             start += w->stride[i]) {
            int64_t tap = (w->dilation[i] - 1 - start) / w->dilation[i];
            empty = tap >= w->kernel[i] || start + tap * w->dilation[i] >= w->in[i];
            if (w->dilation[i] == 1)
                break;
        }
        if (empty)
            return error_set(err, TACIT_ERR_VALUE, "a window of axis %d lies in padding alone", i);
    }
    return TACIT_OK;
}

static tacit_status max_pool_infer(op_infer *c)
{
    op_window w;
    ir_shape y;
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_window_pooled(c, &w, &y));
    TRY(max_pool_windows(&w, c->err));
    op_set_out(c, 0, c->in[0]->dtype, &y);
    op_set_out(c, 1, TACIT_I64, &y);
    return TACIT_OK;
}

/* Row-major spatial offset → column-major. */
static int64_t column_major(const op_window *w, int64_t offset)
{
    int64_t index[IR_MAX_RANK], linear = 0;
    op_window_unravel(w->rank, w->in, offset, index);
    for (int32_t i = w->rank; i-- > 0;)
        linear = linear * w->in[i] + index[i];
    return linear;
}

static double lowest(tacit_dtype d)
{
    return ir_dtype_is_float(d)                      ? -INFINITY
           : ir_dtype_classify(d) == IR_CLASS_SIGNED ? -ldexp(1, (int)tacit_dtype_bits(d) - 1)
                                                     : 0;
}

static tacit_status max_pool_eval(op_eval *c)
{
    const ir_tensor *t = op_in(c, 0);
    bool by_column = ir_attr_int(c->node, "storage_order", 0) == 1;
    op_window w;
    double *x, *y;
    int64_t *offsets, *where, planes = t->shape.dims[0] * t->shape.dims[1];
    TRY(op_window_read(c->node, &t->shape, NULL, &w, c->err));
    TRY(max_pool_windows(&w, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_i64(c, w.taps, &offsets));
    TRY(op_scratch_f64(c, planes * w.out_size, &y));
    TRY(op_scratch_i64(c, planes * w.out_size, &where));
    for (int64_t at = 0; at < w.out_size; at++) {
        op_window_offsets(&w, at, offsets);
        for (int64_t p = 0; p < planes; p++) {
            double best = lowest(t->dtype);
            int64_t from = -1;
            for (int64_t k = 0; k < w.taps; k++) {
                if (offsets[k] < 0)
                    continue;
                double v = x[p * w.in_size + offsets[k]];
                if (from < 0 || v > best || (v != v && best == best)) {
                    best = v;
                    from = offsets[k];
                }
            }
            y[p * w.out_size + at] = best;
            where[p * w.out_size + at] =
                p * w.in_size + (by_column ? column_major(&w, from) : from);
        }
    }
    op_output_f64(c, 0, y);
    op_output_i64(c, 1, where);
    return TACIT_OK;
}

/* --- AveragePool, LpPool ---------------------------------------------------------------------- */

/* Taps of the window at `at` that lie in the input or its declared padding (a ceil_mode window may
 * reach beyond both). */
static int64_t padded_taps(const op_window *w, int64_t at)
{
    int64_t o[IR_MAX_RANK], count = 1;
    op_window_unravel(w->rank, w->out, at, o);
    for (int32_t i = 0; i < w->rank; i++) {
        int64_t inside = 0;
        for (int64_t k = 0; k < w->kernel[i]; k++) {
            int64_t x = o[i] * w->stride[i] - w->pad_begin[i] + k * w->dilation[i];
            inside += x < w->in[i] + w->pad_end[i];
        }
        count *= inside;
    }
    return count;
}

/* Sum of f(x) over each window, then g(sum, taps). */
typedef struct sum_pool {
    double p;  /* power; 0: plain sum */
    bool mean; /* divide by the number of taps */
    bool include_pad;
} sum_pool;

static tacit_status sum_pool_eval(op_eval *c, const sum_pool *rule)
{
    const ir_tensor *t = op_in(c, 0);
    op_window w;
    double *x, *y;
    int64_t *offsets, planes = t->shape.dims[0] * t->shape.dims[1];
    TRY(op_window_read(c->node, &t->shape, NULL, &w, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_i64(c, w.taps, &offsets));
    TRY(op_scratch_f64(c, planes * w.out_size, &y));
    for (int64_t at = 0; at < w.out_size; at++) {
        op_window_offsets(&w, at, offsets);
        int64_t inside = 0;
        for (int64_t k = 0; k < w.taps; k++)
            inside += offsets[k] >= 0;
        int64_t count = rule->include_pad ? padded_taps(&w, at) : inside;
        for (int64_t p = 0; p < planes; p++) {
            double sum = 0;
            for (int64_t k = 0; k < w.taps; k++)
                if (offsets[k] >= 0) {
                    double v = x[p * w.in_size + offsets[k]];
                    sum += rule->p > 0 ? pow(fabs(v), rule->p) : v;
                }
            y[p * w.out_size + at] = rule->mean    ? (count ? sum / (double)count : 0)
                                     : rule->p > 0 ? pow(sum, 1 / rule->p)
                                                   : sum;
        }
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

static tacit_status average_pool_eval(op_eval *c)
{
    return sum_pool_eval(
        c, &(sum_pool){.mean = true,
                       .include_pad = ir_attr_int(c->node, "count_include_pad", 0) != 0});
}

static tacit_status lp_pool_eval(op_eval *c)
{
    int64_t p = ir_attr_int(c->node, "p", 2);
    if (p < 1)
        return error_set(c->err, TACIT_ERR_VALUE, "p is %lld", (long long)p);
    return sum_pool_eval(c, &(sum_pool){.p = (double)p});
}

/* --- global poolings -------------------------------------------------------------------------- */

static tacit_status global_infer(op_infer *c)
{
    ir_shape y = c->in[0]->shape;
    TRY(op_need_float(c, 0));
    if (y.rank < 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "the input needs a batch and a channel axis");
    for (int32_t i = 2; i < y.rank; i++)
        y.dims[i] = 1;
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

typedef enum global_kind { GLOBAL_MEAN, GLOBAL_MAX, GLOBAL_LP } global_kind;

static tacit_status global_eval(op_eval *c, global_kind kind)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    int64_t planes = s->dims[0] * s->dims[1], p = ir_attr_int(c->node, "p", 2);
    int64_t size = planes ? ir_tensor_count(op_in(c, 0)) / planes : 0;
    double *x, *y;
    if (kind == GLOBAL_LP && p < 1)
        return error_set(c->err, TACIT_ERR_VALUE, "p is %lld", (long long)p);
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_f64(c, planes, &y));
    for (int64_t i = 0; i < planes; i++) {
        double sum = 0, top = -INFINITY;
        for (int64_t k = 0; k < size; k++) {
            double v = x[i * size + k];
            sum += kind == GLOBAL_LP ? pow(fabs(v), (double)p) : v;
            top = v > top || v != v ? v : top;
        }
        y[i] = kind == GLOBAL_MEAN  ? sum / (double)size
               : kind == GLOBAL_MAX ? top
                                    : pow(sum, 1 / (double)p);
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

static tacit_status global_average_eval(op_eval *c)
{
    return global_eval(c, GLOBAL_MEAN);
}
static tacit_status global_max_eval(op_eval *c)
{
    return global_eval(c, GLOBAL_MAX);
}
static tacit_status global_lp_eval(op_eval *c)
{
    return global_eval(c, GLOBAL_LP);
}

/* --- MaxUnpool -------------------------------------------------------------------------------- */

tacit_status op_unpool_natural(const ir_node *node, const ir_shape *x, ir_shape *y,
                               tacit_error *err)
{
    uint32_t count;
    const int64_t *kernel = ir_attr_ints(node, "kernel_shape", &count);
    op_window w = {.rank = x->rank - 2};
    if (x->rank < 3 || !kernel || count != (uint32_t)w.rank)
        return error_set(err, TACIT_ERR_SHAPE, "kernel_shape does not fit the input");
    TRY(op_window_attributes(node, &w, err));
    *y = *x;
    for (int32_t i = 0; i < w.rank; i++) {
        y->dims[i + 2] =
            (x->dims[i + 2] - 1) * w.stride[i] + kernel[i] - w.pad_begin[i] - w.pad_end[i];
        if (y->dims[i + 2] < 0)
            return error_set(err, TACIT_ERR_SHAPE, "axis %d of the result would be negative", i);
    }
    return TACIT_OK;
}

static tacit_status unpool_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape;
    ir_shape y;
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_need_shape(c, 1, x->rank, x->dims));
    TRY(op_unpool_natural(c->node, x, &y, c->err));
    if (op_in_type(c, 2)) {
        uint32_t count = 0;
        y = ir_shape_of(x->rank, x->dims);
        for (int32_t i = 0; i < y.rank; i++)
            y.dims[i] = IR_DIM_UNKNOWN;
        if (op_in_value(c, 2)) {
            TRY(op_read_ints(op_in_value(c, 2), y.dims, IR_MAX_RANK, &count, c->err));
            if (count != (uint32_t)x->rank)
                return error_set(c->err, TACIT_ERR_SHAPE, "output_shape has %u entries, not %d",
                                 count, x->rank);
            for (int32_t i = 0; i < y.rank; i++)
                if (y.dims[i] < 0)
                    return error_set(c->err, TACIT_ERR_VALUE, "output_shape has a negative entry");
        }
    }
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

static tacit_status unpool_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *where = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    ir_shape from;
    TRY(op_unpool_natural(c->node, &x->shape, &from, c->err));
    if (!y->data)
        TRY(op_eval_alloc(c, 0, x->dtype, &y->shape));
    memset(y->data, 0, y->bytes);
    /* Indices count in the shape the windows imply, which may differ from the wanted one. */
    int64_t total = ir_shape_size(&from), strides[IR_MAX_RANK];
    ir_shape_strides(&y->shape, strides);
    for (int64_t i = 0; i < ir_tensor_count(x); i++) {
        int64_t at = ir_load_i64(where->dtype, where->data, i), to = 0, index[IR_MAX_RANK];
        if (at < 0 || at >= total)
            return error_set(c->err, TACIT_ERR_VALUE, "index %lld is outside 0…%lld", (long long)at,
                             (long long)total - 1);
        op_window_unravel(from.rank, from.dims, at, index);
        for (int32_t d = 0; d < from.rank; d++) {
            if (index[d] >= y->shape.dims[d])
                return error_set(c->err, TACIT_ERR_VALUE, "index %lld is outside output_shape",
                                 (long long)at);
            to += index[d] * strides[d];
        }
        ir_copy_element(x->dtype, y->data, to, x->data, i);
    }
    return TACIT_OK;
}

/* --- MaxRoiPool ------------------------------------------------------------------------------- */

static tacit_status roi_pool_infer(op_infer *c)
{
    uint32_t count;
    const int64_t *pooled = ir_attr_ints(c->node, "pooled_shape", &count);
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_need_rank(c, 0, 4));
    TRY(op_need_rank(c, 1, 2));
    if (c->in[1]->shape.dims[1] != 5 || !pooled || count != 2 || pooled[0] < 1 || pooled[1] < 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "rois must be [n,5] and pooled_shape two sizes");
    op_set_out_dims(
        c, 0, c->in[0]->dtype, 4,
        (int64_t[]){c->in[1]->shape.dims[0], c->in[0]->shape.dims[1], pooled[0], pooled[1]});
    return TACIT_OK;
}

static int64_t clip_to(double v, int64_t high)
{
    return v < 0 || v != v ? 0 : v > (double)high ? high : (int64_t)v;
}

static tacit_status roi_pool_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape, *o = &op_out(c, 0)->shape;
    double scale = ir_attr_float(c->node, "spatial_scale", 1), *x, *rois, *y;
    int64_t h = s->dims[2], w = s->dims[3], ph = o->dims[2], pw = o->dims[3];
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &rois));
    TRY(op_scratch_f64(c, ir_shape_size(o), &y));
    for (int64_t r = 0; r < o->dims[0]; r++) {
        const double *roi = rois + r * 5;
        double x0 = round(roi[1] * scale), y0 = round(roi[2] * scale);
        double rw = fmax(round(roi[3] * scale) - x0 + 1, 1) / (double)pw;
        double rh = fmax(round(roi[4] * scale) - y0 + 1, 1) / (double)ph;
        if (!(roi[0] >= 0 && roi[0] < (double)s->dims[0]))
            return error_set(c->err, TACIT_ERR_VALUE, "roi %lld names batch %g", (long long)r,
                             roi[0]);
        for (int64_t at = 0; at < o->dims[1] * ph * pw; at++) {
            int64_t ch = at / (ph * pw), i = at / pw % ph, j = at % pw;
            int64_t top = clip_to(floor((double)i * rh) + y0, h);
            int64_t bottom = clip_to(ceil((double)(i + 1) * rh) + y0, h);
            int64_t left = clip_to(floor((double)j * rw) + x0, w);
            int64_t right = clip_to(ceil((double)(j + 1) * rw) + x0, w);
            double best = bottom > top && right > left ? -INFINITY : 0;
            const double *plane = x + ((int64_t)roi[0] * s->dims[1] + ch) * h * w;
            for (int64_t a = top; a < bottom; a++)
                for (int64_t b = left; b < right; b++)
                    best = plane[a * w + b] > best ? plane[a * w + b] : best;
            y[r * o->dims[1] * ph * pw + at] = best;
        }
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

#define POOL(op, inputs, outputs, infer_rule, eval_rule, lower_rule, accepts_rule, ...)            \
    {                                                                                              \
        .name = op, .min_in = inputs, .max_in = inputs, .min_out = 1, .max_out = outputs,          \
        .infer = infer_rule, .eval = eval_rule, .lower = lower_rule, .accepts = accepts_rule,      \
        __VA_ARGS__                                                                                \
    }

const op_def op_rows_pool[] = {
    POOL("MaxPool", 1, 2, max_pool_infer, max_pool_eval, op_lower_pool, NULL,
         .vjp = op_vjp_max_pool, .batch = op_batch_samples, .range = op_bounds_max_pool),
    POOL("AveragePool", 1, 1, float_pool_infer, average_pool_eval, op_lower_pool, NULL,
         .vjp = op_vjp_average_pool, .batch = op_batch_samples, .range = op_bounds_average_pool),
    POOL("LpPool", 1, 1, float_pool_infer, lp_pool_eval, op_lower_lp_pool, NULL,
         .spell = op_spell_lp_pool),
    POOL("GlobalAveragePool", 1, 1, global_infer, global_average_eval, op_lower_reduce,
         op_accepts_reduce, .vjp = op_vjp_global_average, .batch = op_batch_samples,
         .range = op_bounds_mean),
    POOL("GlobalMaxPool", 1, 1, global_infer, global_max_eval, op_lower_reduce, op_accepts_reduce,
         .vjp = op_vjp_global_max, .batch = op_batch_samples, .range = op_bounds_mean),
    POOL("GlobalLpPool", 1, 1, global_infer, global_lp_eval, op_lower_reduce, op_accepts_reduce,
         .spell = op_spell_global_lp_pool),
    POOL("MaxRoiPool", 2, 1, roi_pool_infer, roi_pool_eval, op_lower_max_roi_pool, NULL,
         .spell = op_spell_max_roi_pool),
    {.name = "MaxUnpool",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = unpool_infer,
     .eval = unpool_eval,
     .lower = op_lower_max_unpool,
     .spell = op_spell_max_unpool},
    {0},
};
