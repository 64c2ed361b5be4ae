/* SPDX-License-Identifier: Apache-2.0
 * Reading images at computed places: GridSample, AffineGrid, RoiAlign; and NonMaxSuppression. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/lowerings.h"
#include "op/values.h"
#include "op/vjp.h"
#include "op/window.h"

/* --- GridSample ------------------------------------------------------------------------------- */

typedef enum pad_mode { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION } pad_mode;
typedef enum grid_mode { GRID_NEAREST, GRID_LINEAR, GRID_CUBIC } grid_mode;

typedef struct grid {
    pad_mode pad;
    grid_mode mode;
    bool corners;
    int32_t rank;
    int64_t in[IR_MAX_RANK];
} grid;

static tacit_status grid_read(const ir_node *node, const ir_shape *x, grid *g, tacit_error *err)
{
    const char *pad = ir_attr_string(node, "padding_mode", "zeros");
    const char *mode = ir_attr_string(node, "mode", "linear");
    g->corners = ir_attr_int(node, "align_corners", 0) != 0;
    g->rank = x->rank - 2;
    memcpy(g->in, x->dims + 2, (size_t)g->rank * sizeof *g->in);
    g->pad = strcmp(pad, "border") == 0       ? PAD_BORDER
             : strcmp(pad, "reflection") == 0 ? PAD_REFLECTION
                                              : PAD_ZEROS;
    g->mode = strcmp(mode, "nearest") == 0                                 ? GRID_NEAREST
              : strcmp(mode, "cubic") == 0 || strcmp(mode, "bicubic") == 0 ? GRID_CUBIC
                                                                           : GRID_LINEAR;
    if (g->pad == PAD_ZEROS && strcmp(pad, "zeros") != 0)
        return error_set(err, TACIT_ERR_VALUE, "unknown padding_mode '%s'", pad);
    if (g->mode == GRID_LINEAR && strcmp(mode, "linear") != 0 && strcmp(mode, "bilinear") != 0)
        return error_set(err, TACIT_ERR_VALUE, "unknown mode '%s'", mode);
    return TACIT_OK;
}

static tacit_status grid_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape, *at = &c->in[1]->shape;
    char xt[IR_SHAPE_TEXT], gt[IR_SHAPE_TEXT];
    grid g;
    TRY(op_check_class(c, 0, OP_REAL));
    if (x->rank < 3 || at->rank != x->rank || at->dims[0] != x->dims[0] ||
        at->dims[at->rank - 1] != x->rank - 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "input %s and grid %s do not fit",
                         ir_shape_text(x, xt), ir_shape_text(at, gt));
    TRY(op_need_float(c, 1));
    TRY(grid_read(c->node, x, &g, c->err));
    ir_shape y = *x;
    for (int32_t i = 2; i < y.rank; i++) {
        if (x->dims[i] == 0)
            return error_set(c->err, TACIT_ERR_SHAPE, "the image is empty");
        y.dims[i] = at->dims[i - 1];
    }
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

/* Folds x into [low, high] by mirrors at both ends. */
static double reflect(double x, double low, double high)
{
    double range = high - low;
    if (range <= 0)
        return low;
    double t = fmod(fabs(x - low), 2 * range);
    return low + (t > range ? 2 * range - t : t);
}

/* A coordinate brought inside as the padding mode says; zeros leave it alone. */
static double pad_coordinate(const grid *g, int32_t i, double x)
{
    double n = (double)g->in[i], edge = g->corners ? 0 : 0.5;
    if (g->pad == PAD_BORDER)
        return x < 0 ? 0 : x > n - 1 ? n - 1 : x;
    if (g->pad == PAD_REFLECTION)
        return reflect(x, -edge, n - 1 + edge);
    return x;
}

/* Index of a pixel after padding, or −1: zero. */
static int64_t pad_index(const grid *g, int32_t i, double x)
{
    double v = pad_coordinate(g, i, x);
    if (!(v > -1 && v < (double)g->in[i] + 1))
        return g->pad == PAD_ZEROS ? -1 : 0;
    int64_t k = (int64_t)op_round_even(v);
    if (k >= 0 && k < g->in[i])
        return k;
    return g->pad == PAD_ZEROS ? -1 : k < 0 ? 0 : g->in[i] - 1;
}

static double cubic_weight(double x)
{
    double t = fabs(x), a = -0.75;
    return t <= 1 ? ((a + 2) * t - (a + 3)) * t * t + 1 : ((a * t - 5 * a) * t + 8 * a) * t - 4 * a;
}

/* Taps and weights of one coordinate: up to 4. */
static int axis_taps(const grid *g, int32_t i, double x, int64_t *index, double *weight)
{
    if (g->mode == GRID_NEAREST) {
        index[0] = pad_index(g, i, op_round_even(x));
        weight[0] = 1;
        return 1;
    }
    if (g->mode == GRID_LINEAR)
        x = pad_coordinate(g, i, x);
    double low = floor(x);
    int first = g->mode == GRID_LINEAR ? 0 : -1, last = g->mode == GRID_LINEAR ? 1 : 2;
    for (int k = first; k <= last; k++) {
        double d = x - (low + k);
        index[k - first] = pad_index(g, i, low + k);
        weight[k - first] = g->mode == GRID_LINEAR ? 1 - fabs(d) : cubic_weight(d);
    }
    return last - first + 1;
}

static double grid_value(const grid *g, const double *plane, int64_t index[][4], double weight[][4],
                         const int *taps)
{
    double sum = 0;
    int64_t combos = 1;
    for (int32_t i = 0; i < g->rank; i++)
        combos *= taps[i];
    for (int64_t k = 0; k < combos; k++) {
        double w = 1;
        int64_t offset = 0, rest = k;
        for (int32_t i = g->rank; i-- > 0; rest /= taps[i])
            w *= weight[i][rest % taps[i]];
        rest = k;
        int64_t step = 1;
        for (int32_t i = g->rank; i-- > 0 && offset >= 0; rest /= taps[i]) {
            int64_t at = index[i][rest % taps[i]];
            offset = at < 0 ? -1 : offset + at * step;
            step *= g->in[i];
        }
        if (offset >= 0)
            sum += w * plane[offset];
    }
    return sum;
}

static tacit_status grid_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape, *o = &op_out(c, 0)->shape;
    grid g;
    double *x, *at, *y;
    TRY(grid_read(c->node, s, &g, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &at));
    TRY(op_scratch_f64(c, ir_shape_size(o), &y));
    int64_t places = 1, size = 1;
    for (int32_t i = 0; i < g.rank; i++) {
        places *= o->dims[i + 2];
        size *= g.in[i];
    }
    for (int64_t p = 0; p < s->dims[0] * places; p++) {
        int64_t index[IR_MAX_RANK][4];
        double weight[IR_MAX_RANK][4];
        int taps[IR_MAX_RANK];
        for (int32_t i = 0; i < g.rank; i++) { /* the grid lists the innermost axis first */
            double n = (double)g.in[i], v = at[p * g.rank + g.rank - 1 - i];
            double where = g.corners ? (v + 1) / 2 * (n - 1) : ((v + 1) * n - 1) / 2;
            taps[i] = axis_taps(&g, i, fabs(where) < 1e15 ? where : -1e15, index[i], weight[i]);
        }
        for (int64_t ch = 0; ch < s->dims[1]; ch++) {
            int64_t plane = p / places * s->dims[1] + ch;
            y[plane * places + p % places] = grid_value(&g, x + plane * size, index, weight, taps);
        }
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

/* --- AffineGrid ------------------------------------------------------------------------------- */

static tacit_status affine_infer(op_infer *c)
{
    const ir_shape *t = &c->in[0]->shape;
    const ir_tensor *size = op_in_value(c, 1);
    int64_t dims[IR_MAX_RANK];
    uint32_t n = 0;
    TRY(op_need_float(c, 0));
    if (t->rank != 3 || (t->dims[1] != 2 && t->dims[1] != 3) || t->dims[2] != t->dims[1] + 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "theta must be [N,2,3] or [N,3,4]");
    int32_t rank = (int32_t)t->dims[1] + 2;
    ir_shape y = {.rank = rank};
    y.dims[0] = t->dims[0];
    y.dims[rank - 1] = t->dims[1];
    if (size)
        TRY(op_read_ints(size, dims, IR_MAX_RANK, &n, c->err));
    if (size && (n != (uint32_t)rank || dims[0] != t->dims[0]))
        return error_set(c->err, TACIT_ERR_SHAPE, "size does not fit theta");
    for (int32_t i = 1; i < rank - 1; i++) {
        y.dims[i] = size ? dims[i + 1] : IR_DIM_UNKNOWN;
        if (size && dims[i + 1] < 0)
            return error_set(c->err, TACIT_ERR_VALUE, "size has a negative entry");
    }
    op_set_out(c, 0, c->in[0]->dtype, &y);
    return TACIT_OK;
}

static tacit_status affine_eval(op_eval *c)
{
    const ir_shape *t = &op_in(c, 0)->shape;
    int32_t rank = (int32_t)t->dims[1];
    int64_t size[IR_MAX_RANK];
    uint32_t n;
    TRY(op_read_ints(op_in(c, 1), size, IR_MAX_RANK, &n, c->err));
    ir_shape y = {.rank = rank + 2};
    y.dims[0] = t->dims[0];
    memcpy(y.dims + 1, size + 2, (size_t)rank * sizeof *size);
    y.dims[rank + 1] = rank;
    if (!op_out(c, 0)->data)
        TRY(op_eval_alloc(c, 0, op_in(c, 0)->dtype, &y));
    bool corners = ir_attr_int(c->node, "align_corners", 0) != 0;
    double *theta, *out;
    TRY(op_input_f64(c, 0, &theta));
    TRY(op_scratch_f64(c, ir_shape_size(&y), &out));
    int64_t places = 1;
    for (int32_t i = 0; i < rank; i++)
        places *= size[i + 2];
    for (int64_t p = 0; p < t->dims[0] * places; p++) {
        int64_t index[IR_MAX_RANK];
        double at[4] = {0};
        op_window_unravel(rank, size + 2, p % places, index);
        for (int32_t i = 0; i < rank; i++) { /* x is the innermost axis */
            double len = (double)size[i + 2], k = (double)index[i];
            at[rank - 1 - i] =
                corners ? (len > 1 ? 2 * k / (len - 1) - 1 : 0) : (2 * k + 1) / len - 1;
        }
        at[rank] = 1;
        for (int32_t r = 0; r < rank; r++)
            for (int32_t k = 0; k <= rank; k++)
                out[p * rank + r] += theta[(p / places * rank + r) * (rank + 1) + k] * at[k];
    }
    op_output_f64(c, 0, out);
    return TACIT_OK;
}

/* --- RoiAlign --------------------------------------------------------------------------------- */

static tacit_status roi_infer(op_infer *c)
{
    const ir_shape *rois = &c->in[1]->shape;
    int64_t h = ir_attr_int(c->node, "output_height", 1),
            w = ir_attr_int(c->node, "output_width", 1);
    const char *mode = ir_attr_string(c->node, "mode", "avg");
    TRY(op_need_float(c, 0));
    TRY(op_need_rank(c, 0, 4));
    if (rois->rank != 2 || rois->dims[1] != 4 || h < 1 || w < 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "rois must be [n,4], the output not empty");
    TRY(op_need_shape(c, 2, 1, rois->dims));
    if (strcmp(mode, "avg") != 0 && strcmp(mode, "max") != 0)
        return error_set(c->err, TACIT_ERR_VALUE, "unknown mode '%s'", mode);
    op_set_out_dims(c, 0, c->in[0]->dtype, 4,
                    (int64_t[]){rois->dims[0], c->in[0]->shape.dims[1], h, w});
    return TACIT_OK;
}

typedef struct roi_bins {
    int64_t h, w, out_h, out_w, ny, nx; /* image, output, samples per bin */
    double y0, x0, bin_h, bin_w;
    bool max;
} roi_bins;

/* The four pixels around a sample and their weights; all weights 0: outside. */
typedef struct roi_tap {
    int64_t at[4];
    double weight[4];
} roi_tap;

static roi_tap roi_corners(const roi_bins *b, double y, double x)
{
    roi_tap t = {0};
    if (!(y >= -1 && y <= (double)b->h && x >= -1 && x <= (double)b->w))
        return t;
    y = y < 0 ? 0 : y;
    x = x < 0 ? 0 : x;
    int64_t y0 = (int64_t)y, x0 = (int64_t)x, y1 = y0 + 1, x1 = x0 + 1;
    if (y0 >= b->h - 1) {
        y0 = y1 = b->h - 1;
        y = (double)y0;
    }
    if (x0 >= b->w - 1) {
        x0 = x1 = b->w - 1;
        x = (double)x0;
    }
    double fy = y - (double)y0, fx = x - (double)x0;
    return (roi_tap){.at = {y0 * b->w + x0, y0 * b->w + x1, y1 * b->w + x0, y1 * b->w + x1},
                     .weight = {(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx}};
}

/* Bin (i, j) of every channel, `out_step` apart: the mean of the samples, or the largest weighted
 * corner of any. */
static void roi_bin(const roi_bins *b, const double *image, int64_t channels, int64_t i, int64_t j,
                    double *out, int64_t out_step)
{
    for (int64_t ch = 0; ch < channels; ch++)
        out[ch * out_step] = b->max ? -INFINITY : 0;
    for (int64_t k = 0; k < b->ny * b->nx; k++) {
        int64_t y = k / b->nx, x = k % b->nx;
        double row = ((double)y + 0.5) / (double)b->ny, column = ((double)x + 0.5) / (double)b->nx;
        roi_tap t = roi_corners(b, b->y0 + ((double)i + row) * b->bin_h,
                                b->x0 + ((double)j + column) * b->bin_w);
        const double *plane = image;
        for (int64_t ch = 0; ch < channels; ch++, plane += b->h * b->w) {
            double *to = out + ch * out_step, v[4];
            for (int n = 0; n < 4; n++)
                v[n] = t.weight[n] * plane[t.at[n]];
            *to = b->max ? fmax(*to, fmax(fmax(v[0], v[1]), fmax(v[2], v[3])))
                         : *to + (v[0] + v[1] + v[2] + v[3]);
        }
    }
    for (int64_t ch = 0; !b->max && ch < channels; ch++)
        out[ch * out_step] /= (double)(b->ny * b->nx);
}

static tacit_status roi_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape, *o = &op_out(c, 0)->shape;
    double scale = ir_attr_float(c->node, "spatial_scale", 1), *x, *rois, *y;
    int64_t ratio = ir_attr_int(c->node, "sampling_ratio", 0), *batch;
    bool half = strcmp(ir_attr_string(c->node, "coordinate_transformation_mode", "half_pixel"),
                       "half_pixel") == 0;
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &rois));
    TRY(op_input_i64(c, 2, &batch));
    TRY(op_scratch_f64(c, ir_shape_size(o), &y));
    roi_bins b = {.h = s->dims[2], .w = s->dims[3], .out_h = o->dims[2], .out_w = o->dims[3]};
    b.max = strcmp(ir_attr_string(c->node, "mode", "avg"), "max") == 0;
    for (int64_t r = 0; r < o->dims[0]; r++) {
        double *q = rois + r * 4, shift = half ? 0.5 : 0;
        b.x0 = q[0] * scale - shift;
        b.y0 = q[1] * scale - shift;
        double width = q[2] * scale - shift - b.x0, height = q[3] * scale - shift - b.y0;
        if (!half) { /* the old form forces boxes of at least one pixel */
            width = fmax(width, 1);
            height = fmax(height, 1);
        }
        b.bin_w = width / (double)b.out_w;
        b.bin_h = height / (double)b.out_h;
        if (batch[r] < 0 || batch[r] >= s->dims[0] || !(fabs(b.bin_w) < 1e6) ||
            !(fabs(b.bin_h) < 1e6))
            return error_set(c->err, TACIT_ERR_VALUE, "roi %lld is not usable", (long long)r);
        b.ny = ratio > 0 ? ratio : (int64_t)ceil(b.bin_h);
        b.nx = ratio > 0 ? ratio : (int64_t)ceil(b.bin_w);
        b.ny = b.ny < 1 ? 1 : b.ny;
        b.nx = b.nx < 1 ? 1 : b.nx;
        int64_t bins = b.out_h * b.out_w, channels = s->dims[1];
        for (int64_t k = 0; k < bins; k++)
            roi_bin(&b, x + batch[r] * channels * b.h * b.w, channels, k / b.out_w, k % b.out_w,
                    y + r * channels * bins + k, bins);
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

const op_def op_rows_sample[] = {
    OP_ROW("GridSample", 2, 2, grid_infer, grid_eval, .lower = op_lower_grid_sample,
           .spell = op_spell_grid_sample),
    OP_ROW("AffineGrid", 2, 2, affine_infer, affine_eval, .spell = op_spell_affine_grid),
    OP_ROW("RoiAlign", 3, 3, roi_infer, roi_eval, .lower = op_lower_roi_align,
           .spell = op_spell_roi_align),
    {0},
};
