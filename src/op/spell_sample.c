/* SPDX-License-Identifier: Apache-2.0
 * Reading images at computed places, in simpler ops: places and pixels both get their derivative
 * through gathers and the weights of the taps. */
#include <math.h>
#include <string.h>

#include "op/conv.h"
#include "op/spell.h"
#include "op/vjp.h"

/* --- GridSample ------------------------------------------------------------------------------- */

typedef struct grid {
    bool border, reflect, nearest, cubic, corners;
    int64_t n; /* size of the axis at hand */
} grid;

/* Mirrored at both ends into [low, high]. */
static ir_value *reflected(op_diff *c, ir_value *x, double low, double high)
{
    double range = high - low;
    tacit_dtype dtype = x->type.dtype;
    if (range <= 0)
        return op_spell_shift(c, op_diff_scale(c, x, 0), low);
    ir_value *away = op_diff1(c, "Abs", op_spell_shift(c, x, -low));
    ir_value *in[2] = {away, op_diff_scalar(c, dtype, 2 * range)};
    ir_value *t = op_diff_attr_int(c, op_diff_open(c, "Mod", 2, in), "fmod", 1);
    ir_value *back = op_spell_shift(c, op_diff1(c, "Neg", t), 2 * range);
    ir_value *far = op_diff2(c, "Greater", t, op_diff_scalar(c, dtype, range));
    return op_spell_shift(c, op_diff3(c, "Where", far, back, t), low);
}

static ir_value *inside(op_diff *c, const grid *g, ir_value *x)
{
    double edge = g->corners ? 0 : 0.5;
    if (!x || (!g->border && !g->reflect))
        return x;
    return g->border ? op_spell_clip(c, x, 0, (double)g->n - 1)
                     : reflected(c, x, -edge, (double)g->n - 1 + edge);
}

/* The pixel at integral coordinate x. */
static void add_tap(op_diff *c, const grid *g, ir_value *x, ir_value *weight, op_taps *t)
{
    double last = (double)g->n - 1;
    ir_value *at = op_spell_clip(c, op_diff1(c, "Round", inside(c, g, x)), 0, last);
    if (x && !g->border && !g->reflect) { /* zeros outside */
        ir_value *seen = op_spell_mul(c, op_spell_where(c, "Greater", x, -0.5, x->type.dtype),
                                      op_spell_where(c, "Less", x, last + 0.5, x->type.dtype));
        weight = weight ? op_spell_mul(c, weight, seen) : seen;
    }
    t->weight[t->count] = weight;
    t->index[t->count++] = op_diff_cast(c, at, TACIT_I64);
}

/* Keys' cubic with a = −0.75 at distance t: below one, or between one and two. */
static ir_value *cubic(op_diff *c, ir_value *t, bool near)
{
    const double a = -0.75, close[4] = {1, 0, -(a + 3), a + 2}, far[4] = {-4 * a, 8 * a, -5 * a, a};
    const double *k = near ? close : far;
    ir_value *y = op_spell_shift(c, op_diff_scale(c, t, k[3]), k[2]);
    y = op_spell_shift(c, op_spell_mul(c, y, t), k[1]);
    return op_spell_shift(c, op_spell_mul(c, y, t), k[0]);
}

static op_taps grid_taps(op_diff *c, const grid *g, ir_value *x)
{
    op_taps t = {.count = 0};
    if (g->nearest) {
        add_tap(c, g, op_diff1(c, "Floor", op_diff1(c, "Round", x)), NULL, &t);
        return t;
    }
    if (!g->cubic)
        x = inside(c, g, x);
    ir_value *low = op_diff1(c, "Floor", x), *d = op_spell_sub(c, x, low);
    ir_value *rest = op_spell_shift(c, op_diff1(c, "Neg", d), 1); /* 1 − d */
    if (g->cubic) {
        add_tap(c, g, op_spell_shift(c, low, -1), cubic(c, op_spell_shift(c, d, 1), false), &t);
        add_tap(c, g, low, cubic(c, d, true), &t);
        add_tap(c, g, op_spell_shift(c, low, 1), cubic(c, rest, true), &t);
        add_tap(c, g, op_spell_shift(c, low, 2), cubic(c, op_spell_shift(c, rest, 1), false), &t);
    } else {
        add_tap(c, g, low, rest, &t);
        add_tap(c, g, op_spell_shift(c, low, 1), d, &t);
    }
    return t;
}

tacit_status op_spell_grid_sample(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    const char *pad = ir_attr_string(n, "padding_mode", "zeros");
    const char *mode = ir_attr_string(n, "mode", "linear");
    grid g = {.border = strcmp(pad, "border") == 0,
              .reflect = strcmp(pad, "reflection") == 0,
              .nearest = strcmp(mode, "nearest") == 0,
              .cubic = strstr(mode, "cubic") != NULL,
              .corners = ir_attr_int(n, "align_corners", 0) != 0};
    ir_value *x = n->inputs[0], *at = op_diff_cast(c, n->inputs[1], x->type.dtype);
    const ir_shape *s = &x->type.shape, *y = &n->outputs[0]->type.shape;
    int32_t rank = s->rank - 2;
    int64_t size = 1, places = 1;
    op_taps taps[IR_MAX_RANK];
    for (int32_t i = 0; i < rank; i++) {
        size *= s->dims[i + 2];
        places *= y->dims[i + 2];
    }
    at = op_spell_shaped(c, at, 3, (int64_t[]){s->dims[0], places, rank});
    for (int32_t i = 0; i < rank; i++) { /* the grid lists the innermost axis first */
        g.n = s->dims[i + 2];
        ir_value *v = op_spell_slice(c, at, 2, rank - 1 - i, rank - i);
        v = op_spell_shaped(c, v, 3, (int64_t[]){s->dims[0], 1, places});
        double half = (double)(g.corners ? g.n - 1 : g.n) / 2;
        v = op_spell_shift(c, op_diff_scale(c, v, half), g.corners ? half : half - 0.5);
        taps[i] = grid_taps(c, &g, v);
    }
    ir_value *flat = op_spell_shaped(c, x, 3, (int64_t[]){s->dims[0], s->dims[1], size});
    out[0] = op_diff_reshape(c, op_spell_interpolate(c, flat, rank, s->dims + 2, taps), y);
    return c->status;
}

/* --- AffineGrid: a constant grid of places times theta ---------------------------------------- */

tacit_status op_spell_affine_grid(op_diff *c, ir_value **out)
{
    ir_value *theta = c->node->inputs[0];
    const ir_shape *y = &c->node->outputs[0]->type.shape;
    int32_t rank = (int32_t)theta->type.shape.dims[1];
    bool corners = ir_attr_int(c->node, "align_corners", 0) != 0;
    int64_t places = 1;
    if (!ir_shape_is_static(y))
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "its sizes are not known when compiling");
    for (int32_t i = 0; i < rank; i++)
        places *= y->dims[i + 1];
    double *base = op_spell_scratch(c, (size_t)(places * (rank + 1)) * sizeof *base);
    for (int64_t p = 0; base && p < places; p++) {
        int64_t index[IR_MAX_RANK];
        op_window_unravel(rank, y->dims + 1, p, index);
        for (int32_t i = 0; i < rank; i++) {
            double len = (double)y->dims[i + 1], k = (double)index[i];
            base[p * (rank + 1) + rank - 1 - i] =
                corners ? (len > 1 ? 2 * k / (len - 1) - 1 : 0) : (2 * k + 1) / len - 1;
        }
        base[p * (rank + 1) + rank] = 1;
    }
    ir_value *grid_places =
        base ? op_spell_floats(c, theta->type.dtype, 2, (int64_t[]){places, rank + 1}, base) : NULL;
    out[0] = op_spell_matmul(c, grid_places, op_diff_swap_last(c, theta));
    out[0] = op_diff_reshape(c, out[0], y);
    return c->status;
}

/* --- RoiAlign --------------------------------------------------------------------------------- */

/* Bilinear taps that stay on the border; points more than one pixel outside count nothing. */
static op_taps roi_taps(op_diff *c, ir_value *x, int64_t n)
{
    op_taps t = {.count = 2};
    double last = (double)n - 1;
    tacit_dtype dtype = x ? x->type.dtype : TACIT_F32;
    ir_value *seen = op_spell_mul(c, op_spell_where(c, "GreaterOrEqual", x, -1, dtype),
                                  op_spell_where(c, "LessOrEqual", x, (double)n, dtype));
    ir_value *v = op_spell_clip(c, x, 0, last), *low = op_diff1(c, "Floor", v);
    ir_value *part = op_spell_sub(c, v, low);
    ir_value *high = op_spell_clip(c, op_spell_shift(c, low, 1), 0, last);
    t.weight[0] = op_spell_mul(c, op_spell_shift(c, op_diff1(c, "Neg", part), 1), seen);
    t.weight[1] = op_spell_mul(c, part, seen);
    t.index[0] = op_diff_cast(c, low, TACIT_I64);
    t.index[1] = op_diff_cast(c, high, TACIT_I64);
    return t;
}

/* Places start + (bin + (sample + ½)/samples)·size along one axis: [K, out, samples]. */
static ir_value *roi_places(op_diff *c, ir_value *start, ir_value *size, int64_t out,
                            int64_t samples)
{
    double *at = op_spell_scratch(c, (size_t)(out * samples) * sizeof *at);
    for (int64_t i = 0; at && i < out * samples; i++) {
        int64_t cell = i / samples;
        at[i] = (double)cell + ((double)(i % samples) + 0.5) / (double)samples;
    }
    if (!at || !start)
        return NULL;
    ir_value *steps = op_spell_floats(c, start->type.dtype, 3, (int64_t[]){1, out, samples}, at);
    return op_spell_add(c, start, op_spell_mul(c, steps, size));
}

typedef struct roi_plan {
    int64_t c, h, w, oh, ow, ny, nx;
    bool max;
} roi_plan;

/* K boxes that take ny·nx samples per bin: [K, C, oh, ow]. `flat`: their images [K, C, h·w]. */
static ir_value *roi_boxes(op_diff *c, const roi_plan *p, ir_value *flat, ir_value *rois)
{
    double scale = ir_attr_float(c->node, "spatial_scale", 1);
    bool half = strcmp(ir_attr_string(c->node, "coordinate_transformation_mode", "half_pixel"),
                       "half_pixel") == 0;
    int64_t k = rois ? rois->type.shape.dims[0] : 0, size[2] = {p->h, p->w};
    ir_value *place[2]; /* y, x */
    for (int i = 0; i < 2; i++) {
        int64_t bins = i ? p->ow : p->oh, samples = i ? p->nx : p->ny;
        ir_value *edge[2];
        for (int e = 0; e < 2; e++) {
            edge[e] = op_spell_slice(c, rois, 1, 2 * e + (1 - i), 2 * e + (1 - i) + 1);
            edge[e] = op_spell_shaped(c, edge[e], 3, (int64_t[]){k, 1, 1});
            edge[e] = op_spell_shift(c, op_diff_scale(c, edge[e], scale), half ? -0.5 : 0);
        }
        ir_value *span = op_spell_sub(c, edge[1], edge[0]);
        if (!half)
            span = span ? op_diff2(c, "Max", span, op_diff_scalar(c, span->type.dtype, 1)) : NULL;
        place[i] = roi_places(c, edge[0], op_diff_scale(c, span, 1 / (double)bins), bins, samples);
    }
    /* every y with every x: [K, oh, ow, ny, nx] */
    int64_t all[5] = {k, p->oh, p->ow, p->ny, p->nx}, line[3] = {k, 1, 0};
    line[2] = p->oh * p->ow * p->ny * p->nx;
    ir_value *y = op_spell_shaped(c, place[0], 5, (int64_t[]){k, p->oh, 1, p->ny, 1});
    ir_value *x = op_spell_shaped(c, place[1], 5, (int64_t[]){k, 1, p->ow, 1, p->nx});
    y = op_spell_shaped(c, op_spell_expanded(c, y, 5, all), 3, line);
    x = op_spell_shaped(c, op_spell_expanded(c, x, 5, all), 3, line);
    op_taps taps[2] = {roi_taps(c, y, p->h), roi_taps(c, x, p->w)};
    ir_value *parts[OP_TAP_COMBOS], *v = NULL;
    int n = op_spell_tap_parts(c, flat, 2, size, taps, parts);
    for (int i = 0; i < n; i++)
        v = v ? op_diff2(c, p->max ? "Max" : "Add", v, parts[i]) : parts[i];
    v = op_spell_shaped(c, v, 5, (int64_t[]){k, p->c, p->oh, p->ow, p->ny * p->nx});
    return op_spell_reduce(c, p->max ? "ReduceMax" : "ReduceMean", v, 4, false);
}

static int64_t adaptive(double from, double to, double scale, bool half, int64_t bins)
{
    double span = to * scale - from * scale;
    span = (half ? span : fmax(span, 1)) / (double)bins;
    return span > 1 ? (int64_t)ceil(span) : 1;
}

tacit_status op_spell_roi_align(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *x = n->inputs[0], *rois = op_diff_cast(c, n->inputs[1], x->type.dtype);
    const int64_t *d = x->type.shape.dims, *o = n->outputs[0]->type.shape.dims;
    int64_t ratio = ir_attr_int(n, "sampling_ratio", 0);
    roi_plan p = {d[1], d[2], d[3], o[2], o[3], ratio, ratio, false};
    p.max = strcmp(ir_attr_string(n, "mode", "avg"), "max") == 0;
    ir_value *flat = op_spell_shaped(c, x, 3, (int64_t[]){d[0], d[1], d[2] * d[3]});
    flat = op_spell_gather(c, flat, n->inputs[2], 0);
    if (ratio > 0) {
        out[0] = roi_boxes(c, &p, flat, rois);
        return c->status;
    }
    const ir_tensor *known = ir_value_known(n->inputs[1]);
    if (!known || o[0] > 4096)
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED,
                            "without sampling_ratio its gradient needs boxes known when compiling");
    double scale = ir_attr_float(n, "spatial_scale", 1);
    bool half = strcmp(ir_attr_string(n, "coordinate_transformation_mode", "half_pixel"),
                       "half_pixel") == 0;
    ir_value **each = op_spell_scratch(c, (size_t)(o[0] + 1) * sizeof(ir_value *));
    for (int64_t r = 0; each && r < o[0]; r++) {
        double q[4];
        for (int i = 0; i < 4; i++)
            q[i] = ir_load_f64(known->dtype, known->data, r * 4 + i);
        p.nx = adaptive(q[0], q[2], scale, half, p.ow);
        p.ny = adaptive(q[1], q[3], scale, half, p.oh);
        each[r] = roi_boxes(c, &p, op_spell_slice(c, flat, 0, r, r + 1),
                            op_spell_slice(c, rois, 0, r, r + 1));
    }
    out[0] = each ? op_spell_concat(c, (uint32_t)o[0], each, 0) : NULL;
    return c->status;
}

/* --- DeformConv: columns read at offset places, then a product with the weights ----------------
 */

/* Where each tap lies without its offset: [1, 1, taps, rank, positions]. */
static ir_value *tap_places(op_diff *c, const op_window *w, tacit_dtype dtype)
{
    int64_t count = w->taps * w->rank * w->out_size;
    double *at = op_spell_scratch(c, (size_t)count * sizeof *at);
    for (int64_t i = 0; at && i < count; i++) {
        int64_t k[IR_MAX_RANK], o[IR_MAX_RANK];
        int32_t axis = (int32_t)(i / w->out_size % w->rank);
        op_window_unravel(w->rank, w->kernel, i / w->out_size / w->rank, k);
        op_window_unravel(w->rank, w->out, i % w->out_size, o);
        at[i] =
            (double)(o[axis] * w->stride[axis] - w->pad_begin[axis] + k[axis] * w->dilation[axis]);
    }
    return at ? op_spell_floats(c, dtype, 5, (int64_t[]){1, 1, w->taps, w->rank, w->out_size}, at)
              : NULL;
}

tacit_status op_spell_deform_conv(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *x = n->inputs[0], *weight = n->inputs[1], *bias = op_spell_input(c, 3);
    ir_value *mask = op_spell_input(c, 4);
    op_conv p;
    int64_t groups = ir_attr_int(n, "offset_group", 1);
    TRY(op_conv_plan(n, &x->type.shape, &weight->type.shape, &p, c->err));
    int64_t taps = p.w.taps, size = p.w.out_size, ch = p.c / groups, rank = p.w.rank;
    ir_value *at = op_spell_shaped(c, n->inputs[2], 5, (int64_t[]){p.n, groups, taps, rank, size});
    at = op_spell_add(c, at, tap_places(c, &p.w, x->type.dtype));
    op_taps along[IR_MAX_RANK];
    for (int32_t i = 0; i < rank; i++) {
        ir_value *v = op_spell_slice(c, at, 3, i, i + 1);
        v = op_spell_shaped(c, v, 3, (int64_t[]){p.n * groups, 1, taps * size});
        if (!v)
            return c->status;
        along[i] = op_spell_linear_taps(c, v, p.w.in[i]);
    }
    ir_value *flat = op_spell_shaped(c, x, 3, (int64_t[]){p.n * groups, ch, p.w.in_size});
    ir_value *columns = op_spell_interpolate(c, flat, (int32_t)rank, p.w.in, along);
    if (mask) {
        columns = op_spell_shaped(c, columns, 5, (int64_t[]){p.n, groups, ch, taps, size});
        mask = op_spell_shaped(c, mask, 5, (int64_t[]){p.n, groups, 1, taps, size});
        columns = op_spell_mul(c, columns, mask);
    }
    int64_t inner = p.c / p.group * taps;
    columns = op_spell_shaped(c, columns, 4, (int64_t[]){p.n, p.group, inner, size});
    weight = op_spell_shaped(c, weight, 4, (int64_t[]){1, p.group, p.m / p.group, inner});
    ir_value *y = op_diff_reshape(c, op_spell_matmul(c, weight, columns), &p.y);
    if (bias) {
        ir_shape s = {.rank = p.y.rank};
        for (int32_t i = 0; i < s.rank; i++)
            s.dims[i] = i == 1 ? p.m : 1;
        y = op_spell_add(c, y, op_diff_reshape(c, bias, &s));
    }
    out[0] = y;
    return c->status;
}
