/* SPDX-License-Identifier: Apache-2.0
 * Functions out of gates, as several operators need them. */
#include <math.h>

#include "secure/build.h"

/* ---- sums and products ---- */

sec_tensor sb_add(sec_builder *b, const sec_tensor *x, const sec_tensor *y, int sign)
{
    int frac = x->frac > y->frac ? x->frac : y->frac;
    sec_tensor p = st_lift(b, x, frac), q = st_lift(b, y, frac), r = p;
    ir_shape shape;
    if (b->status == TACIT_OK)
        b->status = ir_shape_broadcast(&x->shape, &y->shape, &shape, b->err);
    if (b->status != TACIT_OK)
        return r;
    p = st_broadcast(b, &p, &shape);
    q = st_broadcast(b, &q, &shape);
    r.shape = shape;
    r.wire = sb_linear(b, 2, (sec_wire_id[]){p.wire, q.wire}, (int64_t[]){1, sign}, 0);
    op_interval x_range = st_interval(&p), y_range = st_interval(&q);
    st_bounds(&r, sign > 0 ? op_range_add(x_range, y_range) : op_range_sub(x_range, y_range));
    return r;
}

sec_tensor sb_add_weight(sec_builder *b, const sec_tensor *x, const ir_value *w, double factor)
{
    const ir_shape *s = &w->type.shape;
    size_t count = (size_t)ir_shape_size(s);
    sec_sizes size = sb_weight_sizes(b, w, s->rank ? (size_t)s->dims[s->rank - 1] : 1,
                                     s->rank ? count / (size_t)s->dims[s->rank - 1] : 1, NULL);
    double bound = ldexp(size.max * fabs(factor), x->frac) + 1;
    sec_tensor t = {.wire = sb_weight(b, w, count, NULL, factor, x->frac),
                    .shape = *s,
                    .frac = x->frac,
                    .lo = -bound,
                    .hi = bound};
    return sb_add(b, x, &t, 1);
}

sec_tensor sb_times_scalar(sec_builder *b, const sec_tensor *x, double c)
{
    sec_tensor r = *x;
    int e;
    double m = frexp(fabs(c), &e); /* |c| = m 2^e, m in [1/2, 1) */
    if (c == 0) {
        r.wire = sb_linear(b, 1, &x->wire, (int64_t[]){0}, 0);
        r.lo = r.hi = 0;
        return r;
    }
    int digits = m == 0.5 ? 0 : b->p->mode.weight_frac;
    if (m == 0.5)
        e--, m = 1;
    int64_t k = (int64_t)llrint(ldexp(m, digits));
    r.frac = x->frac + digits - e;
    if (r.frac < 0) { /* a factor larger than the scale can say */
        if (r.frac < -40) {
            sb_fail(b, TACIT_ERR_LIMIT, "node '%s': a factor of %g is out of range", b->node->name,
                    c);
            return r;
        }
        k <<= -r.frac;
        r.frac = 0;
    }
    if (c < 0)
        k = -k;
    if (k != 1)
        r.wire = sb_linear(b, 1, &x->wire, &k, 0);
    st_bounds(&r, op_range_scale(st_interval(x), (double)k));
    return r;
}

sec_tensor sb_product(sec_builder *b, const sec_tensor *x, const sec_tensor *y)
{
    sec_tensor r = *x;
    ir_shape shape;
    if (b->status == TACIT_OK)
        b->status = ir_shape_broadcast(&x->shape, &y->shape, &shape, b->err);
    if (b->status != TACIT_OK)
        return r;
    sec_tensor p = st_broadcast(b, x, &shape), q = st_broadcast(b, y, &shape);
    r.shape = shape;
    r.wire = sb_multiply(b, p.wire, q.wire);
    r.frac = x->frac + y->frac;
    st_bounds(&r, op_range_mul(st_interval(&p), st_interval(&q)));
    return r;
}

/* ---- straight pieces ---- */

sec_tensor sb_relu(sec_builder *b, const sec_tensor *x)
{
    sec_tensor r = *x;
    if (x->lo >= 0)
        return r;
    unsigned eff = sb_bits(st_bound(x));
    r.wire = sb_gate(b, (fss_gate){.kind = FSS_RELU, .eff_bits = (uint8_t)eff}, 1, &x->wire, eff)
                 ->out[0];
    st_bounds(&r, op_range_leaky(st_interval(x), 0));
    return r;
}

static fss_gate pieces(sec_builder *b, unsigned rows, unsigned thresholds, unsigned eff,
                       int64_t **t, uint64_t **slope, uint64_t **base)
{
    *t = sb_alloc(b, thresholds, sizeof **t);
    *slope = sb_alloc(b, (size_t)rows * (thresholds + 1), sizeof **slope);
    *base = sb_alloc(b, (size_t)rows * (thresholds + 1), sizeof **base);
    return (fss_gate){.kind = FSS_PIECES,
                      .eff_bits = (uint8_t)eff,
                      .rows = (uint16_t)rows,
                      .thresholds = (uint16_t)thresholds,
                      .threshold = *t,
                      .slope = *slope,
                      .base = *base};
}

sec_tensor sb_clip(sec_builder *b, const sec_tensor *x, double low, double high)
{
    sec_tensor r = *x;
    double lo = fmax(ceil(ldexp(low, x->frac)), x->lo),
           hi = fmin(floor(ldexp(high, x->frac)), x->hi);
    if (lo <= x->lo && hi >= x->hi)
        return r;
    unsigned eff = sb_bits(st_bound(x));
    int64_t *t;
    uint64_t *slope, *base;
    fss_gate g = pieces(b, 1, 2, eff, &t, &slope, &base);
    if (b->status != TACIT_OK)
        return r;
    if (hi <= lo)
        hi = lo + 1;
    t[0] = (int64_t)lo;
    t[1] = (int64_t)hi;
    base[0] = (uint64_t)(int64_t)lo;
    slope[1] = 1;
    base[2] = (uint64_t)(int64_t)hi;
    r.wire = sb_gate(b, g, 1, &x->wire, eff)->out[0];
    st_bounds(&r, op_range_clip(st_interval(x), lo, hi));
    return r;
}

/* ---- tournaments ---- */

static uint32_t longest(size_t rows, const uint32_t *offset)
{
    uint32_t most = 0;
    for (size_t i = 0; i < rows; i++)
        if (offset[i + 1] - offset[i] > most)
            most = offset[i + 1] - offset[i];
    return most;
}

/* One level: pairs of every row, then whoever is left over. */
typedef struct level {
    sec_wire_id x, index;
    uint32_t *offset;
} level;

static void play(sec_builder *b, level *v, size_t rows, unsigned eff, unsigned index_bits)
{
    size_t pairs = 0, total = v->offset[rows], at = 0, to = 0;
    for (size_t i = 0; i < rows; i++)
        pairs += (v->offset[i + 1] - v->offset[i]) / 2;
    int32_t *left = sb_alloc(b, pairs, 4), *right = sb_alloc(b, pairs, 4);
    int32_t *next = sb_alloc(b, total, 4);
    uint32_t *offset = sb_alloc(b, rows + 1, 4);
    if (b->status != TACIT_OK)
        return;
    for (size_t i = 0; i < rows; i++) {
        uint32_t n = v->offset[i + 1] - v->offset[i];
        offset[i] = (uint32_t)to;
        for (uint32_t j = 0; j + 1 < n; j += 2) {
            left[at] = (int32_t)(v->offset[i] + j);
            right[at] = left[at] + 1;
            next[to++] = (int32_t)at++;
        }
        if (n & 1)
            next[to++] = (int32_t)(pairs + v->offset[i] + n - 1);
    }
    offset[rows] = (uint32_t)to;
    fss_gate g = {.kind = FSS_MAX, .eff_bits = (uint8_t)eff, .index_bits = (uint8_t)index_bits};
    sec_wire_id in[4] = {sb_gather(b, 1, &v->x, pairs, left), sb_gather(b, 1, &v->x, pairs, right)};
    if (index_bits) {
        in[2] = sb_gather(b, 1, &v->index, pairs, left);
        in[3] = sb_gather(b, 1, &v->index, pairs, right);
    }
    const sec_instr *won = sb_gate(b, g, index_bits ? 4 : 2, in, eff);
    sec_wire_id winner[2] = {won->out[0], won->out[1]};
    v->x = sb_gather(b, 2, (sec_wire_id[]){winner[0], v->x}, to, next);
    if (index_bits)
        v->index = sb_gather(b, 2, (sec_wire_id[]){winner[1], v->index}, to, next);
    v->offset = offset;
}

sec_wire_id sb_row_max(sec_builder *b, sec_wire_id x, size_t rows, const uint32_t *offset,
                       double width, sec_wire_id *index)
{
    uint32_t most = longest(rows, offset);
    unsigned index_bits = 0;
    level v = {.x = x, .offset = (uint32_t *)offset};
    if (index) {
        for (index_bits = 1; ((uint32_t)1 << index_bits) < most; index_bits++)
            ;
        int64_t *number = sb_alloc(b, offset[rows], sizeof *number);
        for (size_t i = 0; number && i < rows; i++)
            for (uint32_t j = offset[i]; j < offset[i + 1]; j++)
                number[j] = j - offset[i];
        v.index = sb_const(b, offset[rows], number);
    }
    unsigned eff = sb_bits(width);
    while (b->status == TACIT_OK && longest(rows, v.offset) > 1)
        play(b, &v, rows, eff, index_bits);
    if (index)
        *index = v.index;
    return v.x;
}

/* ---- smooth activations ---- */

static int activation_kind(const char *name)
{
    static const char *const names[] = {"gelu", "gelu_tanh", "silu", "sigmoid", "tanh"};
    for (int i = 0; i < FSS_ACTIVATIONS; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

/* Bits x < -range and x < range, as wires. */
static void outside(sec_builder *b, const sec_tensor *x, double range, sec_wire_id bit[2])
{
    size_t count = b->status == TACIT_OK ? sb_wire(b, x->wire)->count : 0;
    int64_t *t = sb_alloc(b, 2, sizeof *t);
    int32_t *first = sb_alloc(b, count, 4), *second = sb_alloc(b, count, 4);
    unsigned eff = sb_bits(fmax(st_bound(x), range));
    if (b->status != TACIT_OK)
        return;
    t[0] = -(int64_t)range;
    t[1] = (int64_t)range;
    for (size_t i = 0; i < count; i++) {
        first[i] = (int32_t)i;
        second[i] = (int32_t)(count + i);
    }
    fss_gate g = {.kind = FSS_LESS, .eff_bits = (uint8_t)eff, .thresholds = 2, .threshold = t};
    sec_wire_id both = sb_gate(b, g, 1, &x->wire, eff)->out[0];
    bit[0] = sb_gather(b, 1, &both, count, first);
    bit[1] = sb_gather(b, 1, &both, count, second);
}

/* Straight lines left and right of the range: 0 or -1, and x or 1. */
static void lines(sec_builder *b, fss_gate *g, int kind, int in_frac, int out_frac)
{
    uint64_t *slope = sb_alloc(b, 2, 8), *base = sb_alloc(b, 2, 8), one = (uint64_t)1 << out_frac;
    if (!base)
        return;
    if (kind == FSS_TANH)
        base[0] = 0 - one;
    if (kind == FSS_TANH || kind == FSS_SIGMOID)
        base[1] = one;
    else
        slope[1] = (uint64_t)1 << (out_frac - in_frac);
    g->slope = slope;
    g->base = base;
}

/* Segments of 1/32, a line with slopes of 3 fraction bits on each: the constants make up for the
 * slopes' rounding in the middle of the segment, so that the result needs no truncation. */
sec_tensor sb_activation(sec_builder *b, const sec_tensor *in, const char *name)
{
    enum { SEGMENT = 5, SLOPE_FRAC = 3 };
    if (strcmp(name, "relu") == 0)
        return sb_relu(b, in);
    int kind = activation_kind(name);
    sec_tensor x = *in, r = *in;
    int frac = b->p->mode.frac, low_frac = frac - SB_SLACK, out_frac = low_frac + SLOPE_FRAC;
    if (kind < 0) {
        sb_fail(b, TACIT_ERR_UNSUPPORTED, "Op %s in node '%s' has no secure rule for '%s'",
                b->node->type, b->node->name, name);
        return r;
    }
    if (x.frac < low_frac)
        x = st_lift(b, &x, low_frac);
    if (low_frac < SEGMENT) {
        sb_fail(b, TACIT_ERR_LIMIT, "node '%s': %s needs at least %d fraction bits (--frac)",
                b->node->name, name, SEGMENT + SB_SLACK);
        return r;
    }
    fss_activation a;
    if (b->status == TACIT_OK) /* built in the widest ring: words are reduced to the real one */
        b->status =
            fss_activation_build((fss_activation_kind)kind, 64, 62, (unsigned)low_frac, SEGMENT, 1,
                                 (unsigned)out_frac, false, &b->p->memory, &a, b->err);
    if (b->status != TACIT_OK)
        return r;
    double range = ldexp(a.range, x.frac);
    bool inside = x.lo >= -range && x.hi < range;
    sec_wire_id gate_in[4] = {0};
    if (!inside)
        outside(b, &x, range, gate_in + 2);
    unsigned drop = (unsigned)(x.frac - low_frac);
    sec_wire_id near = x.wire;
    if (drop)
        near = sb_linear(b, 1, &x.wire, (int64_t[]){1}, (int64_t)1 << (drop - 1));
    gate_in[0] = sb_truncate(b, near, drop, st_bound(&x) + ldexp(1, (int)drop));
    gate_in[1] = sb_shift_low(b, x.wire, drop + a.spline.shift, a.spline.index_bits);
    a.gate.kind = inside ? FSS_SPLINE : FSS_CURVE;
    if (!inside)
        lines(b, &a.gate, kind, low_frac, out_frac);
    r.wire = sb_gate(b, a.gate, inside ? 2 : 4, gate_in, 0)->out[0];
    r.frac = out_frac;
    /* the function's own range, and the spline's error and the argument's rounding around it */
    double unit = ldexp(1, out_frac), slack = unit * (a.error.max + ldexp(2, -low_frac)) + 2;
    op_interval range_of_x = op_range_scale(st_interval(&x), ldexp(1, -x.frac)), y = range_of_x;
    if (!op_range_activation(name, range_of_x, &y))
        sb_fail(b, TACIT_ERR_UNSUPPORTED, "'%s' has no range rule", name);
    y = op_range_scale(y, unit);
    double k = r.shape.rank ? (double)r.shape.dims[r.shape.rank - 1] : 1;
    y.norm = y.norm > 0 ? y.norm + slack * sqrt(k) : 0;
    y.lo -= slack;
    y.hi += slack;
    st_bounds(&r, y);
    return r;
}

/* ---- softmax ---- */

enum { EXP_LO_BITS = 10, EXP_CLIP_BITS = 5 };

/* Tables of e^-h and of e^(l - 1), l the middle of its step. */
static fss_gate exp_tables(sec_builder *b, unsigned hi_bits, int hi_frac, int lo_frac)
{
    size_t n = (size_t)1 << hi_bits, m = (size_t)1 << EXP_LO_BITS;
    uint64_t *hi = sb_alloc(b, n, 8), *lo = sb_alloc(b, m, 8);
    for (size_t i = 0; hi && i < n; i++)
        hi[i] = (uint64_t)llrint(ldexp(exp(-(double)i), hi_frac));
    for (size_t i = 0; lo && i < m; i++)
        lo[i] = (uint64_t)llrint(ldexp(exp(((double)i + 0.5) / (double)m - 1), lo_frac));
    return (fss_gate){.kind = FSS_LUT2,
                      .index_bits = (uint8_t)hi_bits,
                      .index2_bits = EXP_LO_BITS,
                      .table = hi,
                      .table2 = lo};
}

/* Everything from `top` on is `top`. */
static sec_wire_id at_most(sec_builder *b, sec_wire_id x, unsigned eff, int64_t top)
{
    int64_t *t;
    uint64_t *slope, *base;
    fss_gate g = pieces(b, 1, 1, eff, &t, &slope, &base);
    if (b->status != TACIT_OK)
        return x;
    t[0] = top;
    slope[0] = 1;
    base[1] = (uint64_t)top;
    return sb_gate(b, g, 1, &x, eff)->out[0];
}

/* 1 / the sum of a row, which lies in [1/e, its length]. */
static sec_wire_id inverse_sum(sec_builder *b, sec_wire_id sum, int frac, uint32_t most,
                               int inverse_frac)
{
    int usual = b->p->mode.frac;
    unsigned whole = sb_bits((double)most + 1) - 1, segment = 6;
    while (segment > 2 && whole + segment > 14)
        segment--;
    fss_spline inverse = {.fn = fss_recip,
                          .in_frac = (unsigned)usual,
                          .shift = (unsigned)usual - segment,
                          .index_bits = whole + segment,
                          .degree = 1,
                          .out_frac = (unsigned)inverse_frac,
                          .low = 0.35,
                          .high = ldexp(1, (int)whole)};
    uint64_t *table = sb_alloc(b, (size_t)2 << inverse.index_bits, 8);
    fss_error error;
    if (b->status == TACIT_OK)
        b->status = fss_spline_build(&inverse, table, &error, b->err);
    unsigned drop = (unsigned)(frac - usual);
    sec_wire_id x = sb_truncate(b, sum, drop, ldexp((double)most + 1, frac));
    sec_wire_id at = sb_shift_low(b, sum, drop + inverse.shift, inverse.index_bits);
    fss_gate g = {
        .kind = FSS_SPLINE, .index_bits = (uint8_t)inverse.index_bits, .degree = 1, .table = table};
    return sb_gate(b, g, 2, (sec_wire_id[]){x, at}, 0)->out[0];
}

/* A score is q + l with q whole and 0 <= l < 1. The tournament is played with the q alone, in a
 * narrow ring, while the l's are cut to size; with M the winner, e^(s - M - 1) is e^-(M - q) times
 * e^(l - 1), two look-ups, and what is subtracted from all scores of a row does not matter. */
sec_softmax sb_softmax(sec_builder *b, const sec_tensor *s, size_t rows, const uint32_t *offset)
{
    int usual = b->p->mode.frac;
    sec_softmax r = {.frac = 2 * usual, .inverse_frac = usual + 9};
    sec_tensor x = *s;
    if (x.frac < EXP_LO_BITS)
        x = st_lift(b, &x, EXP_LO_BITS);
    size_t count = offset[rows];
    unsigned frac = (unsigned)x.frac, whole = sb_bits(ldexp(x.hi - x.lo, -x.frac) + 1);
    if (whole + frac > 64) {
        sb_fail(b, TACIT_ERR_LIMIT,
                "node '%s' (%s): scores in [%g, %g] at 2^-%u need %u bits and there are 64; lower "
                "--frac, bound the inputs (--bound), or use --calibrate",
                b->node->name, b->node->type, ldexp(x.lo, -x.frac), ldexp(x.hi, -x.frac), frac,
                whole + frac);
        return r;
    }
    int32_t *row = sb_alloc(b, count, 4);
    for (size_t i = 0; row && i < rows; i++)
        for (uint32_t j = offset[i]; j < offset[i + 1]; j++)
            row[j] = (int32_t)i;
    sec_wire_id q = sb_shift_low(b, x.wire, frac, whole);
    sec_wire_id lo = sb_shift_low(b, x.wire, frac - EXP_LO_BITS, EXP_LO_BITS);
    sec_wire_id top = sb_row_max(b, q, rows, offset, ldexp(x.hi - x.lo, -x.frac) + 1, NULL);
    sec_wire_id spread = sb_gather(b, 1, &top, count, row);
    sec_wire_id d = sb_linear(b, 2, (sec_wire_id[]){spread, q}, (int64_t[]){1, -1}, 0);
    unsigned hi_bits = whole > 1 ? whole - 1 : 1;
    if (hi_bits > FSS_LEAF_BITS) {
        hi_bits = EXP_CLIP_BITS;
        d = at_most(b, d, whole, ((int64_t)1 << EXP_CLIP_BITS) - 1);
    }
    fss_gate g = exp_tables(b, hi_bits, usual + SB_SLACK, usual - SB_SLACK);
    r.e = sb_gate(b, g, 2, (sec_wire_id[]){d, lo}, 0)->out[0];
    uint32_t most = longest(rows, offset);
    r.inverse = inverse_sum(b, sb_sum(b, r.e, rows, offset), r.frac, most, r.inverse_frac);
    return r;
}
