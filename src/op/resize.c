/* SPDX-License-Identifier: Apache-2.0
 * Resize (every mode) and Upsample: separable, one axis at a time. */
#include <math.h>
#include <string.h>

#include "op/build.h"
#include "op/elementwise.h"
#include "op/resize.h"
#include "op/values.h"
#include "op/vjp.h"

static tacit_status read_modes(const ir_node *node, bool upsample, op_resize *r, tacit_error *err)
{
    const char *mode = ir_attr_string(node, "mode", "nearest");
    if (strcmp(mode, "nearest") == 0)
        r->kind = OP_FILTER_NEAREST;
    else if (strcmp(mode, "linear") == 0 || strcmp(mode, "bilinear") == 0)
        r->kind = OP_FILTER_LINEAR;
    else if (strcmp(mode, "cubic") == 0)
        r->kind = OP_FILTER_CUBIC;
    else
        return error_set(err, TACIT_ERR_VALUE, "unknown mode '%s'", mode);
    r->coordinates = upsample
                         ? "asymmetric"
                         : ir_attr_string(node, "coordinate_transformation_mode", "half_pixel");
    r->nearest = upsample ? "floor" : ir_attr_string(node, "nearest_mode", "round_prefer_floor");
    r->antialias = ir_attr_int(node, "antialias", 0) != 0;
    r->exclude_outside = ir_attr_int(node, "exclude_outside", 0) != 0;
    r->cubic_a = ir_attr_float(node, "cubic_coeff_a", -0.75);
    r->extrapolation = ir_attr_float(node, "extrapolation_value", 0);
    return TACIT_OK;
}

static tacit_status read_axes(const ir_node *node, int32_t rank, int32_t *axes, uint32_t *n,
                              tacit_error *err)
{
    uint32_t count;
    const int64_t *given = ir_attr_ints(node, "axes", &count);
    *n = given ? count : (uint32_t)rank;
    if (*n > IR_MAX_RANK)
        return error_set(err, TACIT_ERR_VALUE, "too many axes");
    for (uint32_t i = 0; i < *n; i++)
        if (given)
            TRY(ir_axis(given[i], rank, &axes[i], err));
        else
            axes[i] = (int32_t)i;
    return TACIT_OK;
}

/* Output size from wanted sizes and the aspect policy. */
static void apply_sizes(const ir_node *node, const ir_shape *x, const int32_t *axes, uint32_t n,
                        const ir_tensor *sizes, op_resize *r)
{
    const char *policy = ir_attr_string(node, "keep_aspect_ratio_policy", "stretch");
    bool larger = strcmp(policy, "not_smaller") == 0, smaller = strcmp(policy, "not_larger") == 0;
    double common = smaller ? INFINITY : 0;
    for (uint32_t i = 0; i < n; i++) {
        int64_t want = ir_load_i64(sizes->dtype, sizes->data, i), have = x->dims[axes[i]];
        double s = have ? (double)want / (double)have : 1;
        r->y.dims[axes[i]] = want;
        r->scale[axes[i]] = s;
        common = smaller ? fmin(common, s) : fmax(common, s);
    }
    for (uint32_t i = 0; (larger || smaller) && i < n; i++) {
        r->scale[axes[i]] = common;
        r->y.dims[axes[i]] = (int64_t)floor(common * (double)x->dims[axes[i]] + 0.5);
    }
}

/* Inputs: roi, scales, sizes where known; false when the shape needs one that is not. */
tacit_status op_resize_read(const ir_node *node, const ir_shape *x, const ir_tensor *roi,
                            const ir_tensor *scales, const ir_tensor *sizes, bool upsample,
                            op_resize *r, tacit_error *err)
{
    int32_t axes[IR_MAX_RANK];
    uint32_t n;
    memset(r, 0, sizeof *r);
    TRY(read_modes(node, upsample, r, err));
    TRY(read_axes(node, x->rank, axes, &n, err));
    r->y = *x;
    for (int32_t i = 0; i < x->rank; i++) {
        r->scale[i] = r->roi_end[i] = 1;
    }
    bool crop = strcmp(r->coordinates, "tf_crop_and_resize") == 0;
    if (crop && roi && ir_tensor_count(roi) != 2 * (int64_t)n)
        return error_set(err, TACIT_ERR_SHAPE, "roi has %lld entries, expected %u",
                         (long long)ir_tensor_count(roi), 2 * n);
    for (uint32_t i = 0; crop && roi && i < n; i++) {
        r->roi_start[axes[i]] = ir_load_f64(roi->dtype, roi->data, i);
        r->roi_end[axes[i]] = ir_load_f64(roi->dtype, roi->data, n + i);
    }
    const ir_tensor *used = sizes ? sizes : scales;
    if (ir_tensor_count(used) != (int64_t)n)
        return error_set(err, TACIT_ERR_SHAPE, "%s has %lld entries, expected %u",
                         sizes ? "sizes" : "scales", (long long)ir_tensor_count(used), n);
    if (sizes)
        apply_sizes(node, x, axes, n, sizes, r);
    for (uint32_t i = 0; !sizes && i < n; i++) {
        float s = (float)ir_load_f64(scales->dtype, scales->data, i);
        int32_t d = axes[i];
        float extent = crop ? (float)(r->roi_end[d] - r->roi_start[d]) : 1;
        float length = floorf((float)x->dims[d] * extent * s);
        if (!(s > 0) || !(length >= 0) || length > 1e12f)
            return error_set(err, TACIT_ERR_VALUE, "scale %g of axis %d", (double)s, d);
        r->scale[d] = s;
        r->y.dims[d] = (int64_t)length;
    }
    for (int32_t i = 0; i < x->rank; i++)
        if (r->y.dims[i] < 0 || (r->y.dims[i] > 0 && x->dims[i] == 0))
            return error_set(err, TACIT_ERR_VALUE, "axis %d cannot become %lld", i,
                             (long long)r->y.dims[i]);
    return TACIT_OK;
}

static bool wanted(const op_infer *c, uint32_t i)
{
    const ir_type *t = op_in_type(c, i);
    return t && ir_shape_size(&t->shape) > 0;
}

static tacit_status resize_infer(op_infer *c)
{
    bool upsample = strcmp(c->node->type, "Upsample") == 0;
    uint32_t scales = upsample ? 1 : 2;
    bool by_size = !upsample && wanted(c, 3), by_scale = wanted(c, scales);
    const char *mode = ir_attr_string(c->node, "coordinate_transformation_mode", "half_pixel");
    bool crop = !upsample && strcmp(mode, "tf_crop_and_resize") == 0 && wanted(c, 1);
    op_resize r;
    if (strcmp(ir_attr_string(c->node, "mode", "nearest"), "nearest") != 0)
        TRY(op_check_class(c, 0, OP_REAL)); /* the others compute */
    if (by_size == by_scale)
        return error_set(c->err, TACIT_ERR_GRAPH, "exactly one of scales and sizes is needed");
    const ir_tensor *used = op_in_value(c, by_size ? 3 : scales);
    const ir_tensor *roi = crop ? op_in_value(c, 1) : NULL;
    if (used && (!crop || roi || by_size)) {
        TRY(op_resize_read(c->node, &c->in[0]->shape, roi, by_size ? NULL : used,
                           by_size ? used : NULL, upsample, &r, c->err));
    } else {
        r.y = c->in[0]->shape;
        for (int32_t i = 0; i < r.y.rank; i++)
            r.y.dims[i] = IR_DIM_UNKNOWN;
    }
    op_set_out(c, 0, c->in[0]->dtype, &r.y);
    return TACIT_OK;
}

/* Source coordinate of output position `at` on axis `d`. */
static double source_of(const op_resize *r, int32_t d, int64_t at, int64_t in, int64_t out)
{
    const char *m = r->coordinates;
    double x = (double)at, n = (double)in, scale = r->scale[d], length = scale * n;
    if (strcmp(m, "asymmetric") == 0)
        return x / scale;
    if (strcmp(m, "align_corners") == 0)
        return length == 1 ? 0 : x * (n - 1) / (length - 1);
    if (strcmp(m, "pytorch_half_pixel") == 0)
        return length == 1 ? -0.5 : (x + 0.5) / scale - 0.5;
    if (strcmp(m, "half_pixel_symmetric") == 0)
        return n / 2 * (1 - (double)out / length) + (x + 0.5) / scale - 0.5;
    if (strcmp(m, "tf_crop_and_resize") == 0) {
        double extent = (r->roi_end[d] - r->roi_start[d]) * (n - 1);
        double first = r->roi_start[d] * (n - 1);
        return out == 1 ? first + extent / 2 : first + x * extent / ((double)out - 1);
    }
    return (x + 0.5) / scale - 0.5;
}

static int64_t nearest_of(const op_resize *r, double x)
{
    if (strcmp(r->nearest, "round_prefer_ceil") == 0)
        return (int64_t)floor(x + 0.5);
    if (strcmp(r->nearest, "floor") == 0)
        return (int64_t)floor(x);
    if (strcmp(r->nearest, "ceil") == 0)
        return (int64_t)ceil(x);
    return (int64_t)ceil(x - 0.5);
}

static double kernel_at(const op_resize *r, double x)
{
    double t = fabs(x), a = r->cubic_a;
    if (r->kind == OP_FILTER_LINEAR)
        return t < 1 ? 1 - t : 0;
    if (t <= 1)
        return ((a + 2) * t - (a + 3)) * t * t + 1;
    return t < 2 ? ((a * t - 5 * a) * t + 8 * a) * t - 4 * a : 0;
}

static int64_t clamped(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* One line of an axis: in[] (step apart) at source coordinate x. */
static double sample_line(const op_resize *r, int32_t d, const double *line, int64_t step,
                          int64_t n, double x)
{
    if (r->kind == OP_FILTER_NEAREST)
        return line[clamped(nearest_of(r, x), n) * step];
    double shrink = r->antialias && r->scale[d] < 1 ? r->scale[d] : 1;
    double reach = (r->kind == OP_FILTER_LINEAR ? 1 : 2) / shrink, sum = 0, total = 0;
    for (int64_t i = (int64_t)floor(x - reach); i <= (int64_t)ceil(x + reach); i++) {
        double w = kernel_at(r, ((double)i - x) * shrink);
        if (w == 0 || (r->exclude_outside && (i < 0 || i >= n)))
            continue;
        sum += w * line[clamped(i, n) * step];
        total += w;
    }
    /* The plain filters already sum to 1. */
    return r->exclude_outside || shrink < 1 ? sum / total : sum;
}

int32_t op_resize_taps(const op_resize *r, int32_t d, int64_t at, int64_t in, int32_t most,
                       int32_t *index, float *weight)
{
    double x = source_of(r, d, at, in, r->y.dims[d]), total = 0, weights[64];
    int32_t n = 0;
    if (!(fabs(x) < 1e15) || in > INT32_MAX)
        return -1;
    if (r->kind == OP_FILTER_NEAREST) {
        index[0] = (int32_t)clamped(nearest_of(r, x), in);
        weight[0] = 1;
        return 1;
    }
    double shrink = r->antialias && r->scale[d] < 1 ? r->scale[d] : 1;
    double reach = (r->kind == OP_FILTER_LINEAR ? 1 : 2) / shrink;
    for (int64_t i = (int64_t)floor(x - reach); i <= (int64_t)ceil(x + reach); i++) {
        double w = kernel_at(r, ((double)i - x) * shrink);
        if (w == 0 || (r->exclude_outside && (i < 0 || i >= in)))
            continue;
        if (n == most || n == 64)
            return -1;
        index[n] = (int32_t)clamped(i, in);
        weights[n++] = w;
        total += w;
    }
    bool normal = r->exclude_outside || shrink < 1;
    for (int32_t i = 0; i < n; i++)
        weight[i] = (float)(normal ? weights[i] / total : weights[i]);
    return n > 0 ? n : -1;
}

/* Resizes axis `d` of x (shape s, updated) into fresh memory. */
static tacit_status resize_axis(op_eval *c, const op_resize *r, int32_t d, ir_shape *s, double **x)
{
    int64_t in = s->dims[d], out = r->y.dims[d], outer = 1, inner = 1;
    for (int32_t i = 0; i < d; i++)
        outer *= s->dims[i];
    for (int32_t i = d + 1; i < s->rank; i++)
        inner *= s->dims[i];
    double *y;
    TRY(op_scratch_f64(c, outer * out * inner, &y));
    for (int64_t o = 0; o < out; o++) {
        double at = source_of(r, d, o, in, out);
        if (!(fabs(at) < 1e15))
            return error_set(c->err, TACIT_ERR_VALUE, "axis %d is sampled at %g", d, at);
        for (int64_t p = 0; p < outer; p++)
            for (int64_t q = 0; q < inner; q++)
                y[(p * out + o) * inner + q] =
                    sample_line(r, d, *x + p * in * inner + q, inner, in, at);
    }
    s->dims[d] = out;
    *x = y;
    return TACIT_OK;
}

/* Positions whose source lies outside the image take the extrapolation value. */
static void extrapolate(const op_resize *r, const ir_shape *x, double *y)
{
    int64_t strides[IR_MAX_RANK], count = ir_shape_size(&r->y);
    ir_shape_strides(&r->y, strides);
    for (int32_t d = 0; d < x->rank; d++)
        for (int64_t o = 0; o < r->y.dims[d]; o++) {
            double at = source_of(r, d, o, x->dims[d], r->y.dims[d]);
            if (at >= 0 && at <= (double)(x->dims[d] - 1))
                continue;
            for (int64_t i = 0; i < count; i++)
                if (i / strides[d] % r->y.dims[d] == o)
                    y[i] = r->extrapolation;
        }
}

static tacit_status resize_eval(op_eval *c)
{
    bool upsample = strcmp(c->node->type, "Upsample") == 0;
    const ir_tensor *x = op_in(c, 0);
    const ir_tensor *roi = upsample ? NULL : op_resize_filled(op_in(c, 1));
    const ir_tensor *scales = op_resize_filled(op_in(c, upsample ? 1 : 2));
    const ir_tensor *sizes = upsample ? NULL : op_resize_filled(op_in(c, 3));
    op_resize r;
    double *v;
    TRY(op_resize_read(c->node, &x->shape, roi, scales, sizes, upsample, &r, c->err));
    if (!op_out(c, 0)->data)
        TRY(op_eval_alloc(c, 0, x->dtype, &r.y));
    TRY(op_input_f64(c, 0, &v));
    bool crop = strcmp(r.coordinates, "tf_crop_and_resize") == 0;
    ir_shape s = x->shape;
    for (int32_t d = 0; d < s.rank; d++)
        if (r.scale[d] != 1 || r.y.dims[d] != x->shape.dims[d] || crop)
            TRY(resize_axis(c, &r, d, &s, &v));
    if (crop)
        extrapolate(&r, &x->shape, v);
    op_output_f64(c, 0, v);
    return TACIT_OK;
}

/* --- spelled out for kernels: one or two Gathers an axis ----------------------------------------
 */

static ir_value *gathered(ir_graph *g, ir_value *x, int32_t axis, int64_t n, const int64_t *at)
{
    ir_value *y = op_build2(g, "Gather", x, op_build_ints(g, n, at));
    return y && ir_attr_set_int(g, y->producer, "axis", axis) ? y : NULL;
}

/* The weights of one axis, shaped to broadcast over the axes behind it. */
static ir_value *axis_weights(ir_graph *g, tacit_dtype dtype, int32_t behind, int64_t n,
                              const double *weights, bool of_next)
{
    ir_shape s = {.rank = behind + 1};
    s.dims[0] = n;
    for (int32_t i = 1; i < s.rank; i++)
        s.dims[i] = 1;
    ir_tensor *t = ir_tensor_new(g->memory, dtype, &s);
    for (int64_t i = 0; t && i < n; i++)
        ir_store_f64(dtype, t->data, i, of_next ? weights[i] : 1 - weights[i]);
    return t ? ir_constant_new(g, "weights", t) : NULL;
}

/* Axis `d` of x, which is `in` long: the nearest entry, or two neighbours and their weights. */
static ir_value *spell_axis(ir_graph *g, const op_resize *r, tacit_dtype dtype, int32_t d,
                            int64_t in, ir_value *x)
{
    int64_t out = r->y.dims[d];
    int64_t *low = ARENA_ARRAY(g->memory, 2 * out + 1, int64_t), *high = low ? low + out : NULL;
    double *weights = ARENA_ARRAY(g->memory, out + 1, double);
    for (int64_t o = 0; low && weights && o < out; o++) {
        double at = source_of(r, d, o, in, out);
        if (r->kind == OP_FILTER_NEAREST) {
            low[o] = clamped(nearest_of(r, at), in);
            continue;
        }
        low[o] = clamped((int64_t)floor(at), in);
        high[o] = clamped((int64_t)floor(at) + 1, in);
        weights[o] = at - floor(at);
    }
    if (!low || !weights)
        return NULL;
    ir_value *first = gathered(g, x, d, out, low);
    if (r->kind == OP_FILTER_NEAREST)
        return first;
    int32_t behind = r->y.rank - 1 - d;
    first = op_build2(g, "Mul", first, axis_weights(g, dtype, behind, out, weights, false));
    ir_value *second = op_build2(g, "Mul", gathered(g, x, d, out, high),
                                 axis_weights(g, dtype, behind, out, weights, true));
    return op_build2(g, "Add", first, second);
}

static tacit_status resize_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0];
    const ir_tensor *known[4] = {0};
    for (uint32_t i = 1; i < node->n_inputs && i < 4; i++) {
        known[i] = op_resize_filled(ir_value_known(node->inputs[i]));
        if (node->inputs[i] && !ir_value_known(node->inputs[i]))
            return error_set(err, TACIT_ERR_UNSUPPORTED, "sizes are not known");
    }
    op_resize r;
    TRY(op_resize_read(node, &x->type.shape, NULL, known[2], known[3], false, &r, err));
    const char *crop = "tf_crop_and_resize";
    bool plain = (r.kind == OP_FILTER_NEAREST ||
                  (r.kind == OP_FILTER_LINEAR && ir_dtype_is_float(x->type.dtype))) &&
                 !r.exclude_outside && strcmp(r.coordinates, crop) != 0;
    for (int32_t d = 0; d < r.y.rank; d++) {
        plain &= !r.antialias || r.scale[d] >= 1;
        for (int64_t o = 0; plain && o<r.y.dims[d]; o += r.y.dims[d]> 1 ? r.y.dims[d] - 1 : 1)
            plain = fabs(source_of(&r, d, o, x->type.shape.dims[d], r.y.dims[d])) < 1e15;
    }
    if (!plain)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "this filter has no spelling");
    ir_value *y = x;
    for (int32_t d = 0; y && d < r.y.rank; d++)
        if (r.scale[d] != 1 || r.y.dims[d] != x->type.shape.dims[d])
            y = spell_axis(g, &r, x->type.dtype, d, x->type.shape.dims[d], y);
    if (y == x)
        y = op_build1(g, "Identity", x);
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

const op_def op_rows_resize[] = {
    {.name = "Resize",
     .min_in = 1,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = resize_infer,
     .eval = resize_eval,
     .lower = op_lower_resize,
     .decompose = resize_decompose,
     .vjp = op_vjp_resize},
    {.name = "Upsample",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = resize_infer,
     .eval = resize_eval,
     .lower = op_lower_resize,
     .spell = op_spell_upsample},
    {0},
};
