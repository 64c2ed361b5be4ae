/* SPDX-License-Identifier: Apache-2.0
 * Activations by name, normalisation, softmax, attention, rotary positions. */
#include <math.h>

#include "op/attention.h"
#include "secure/rules.h"

tacit_status rule_unary(op_secure *c)
{
    sec_builder *b = c->b;
    const char *type = c->node->type;
    if (strcmp(type, "Relu") == 0) {
        const sec_tensor *x = st_in_scaled(b, 0);
        TRY(b->status);
        st_out(b, 0, sb_relu(b, x));
        return b->status;
    }
    const sec_tensor *x = st_in(b, 0);
    TRY(b->status);
    const char *name = strcmp(type, "Sigmoid") == 0 ? "sigmoid"
                       : strcmp(type, "Tanh") == 0  ? "tanh"
                                                    : "silu";
    if (strcmp(type, "Swish") == 0 && ir_attr_float(c->node, "alpha", 1) != 1)
        return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                         "Op Swish in node '%s' has no secure rule for alpha", c->node->name);
    st_out(b, 0, sb_activation(b, x, name));
    return b->status;
}

tacit_status rule_gelu(op_secure *c)
{
    const sec_tensor *x = st_in(c->b, 0);
    TRY(c->b->status);
    bool tanh_form = strcmp(ir_attr_string(c->node, "approximate", "none"), "tanh") == 0;
    st_out(c->b, 0, sb_activation(c->b, x, tanh_form ? "gelu_tanh" : "gelu"));
    return c->b->status;
}

tacit_status rule_gated(op_secure *c)
{
    sec_builder *b = c->b;
    const sec_tensor *gate = st_in(b, 0), *up = st_in_scaled(b, 1);
    TRY(b->status);
    sec_tensor a = sb_activation(b, gate, ir_attr_string(c->node, "activation", "silu"));
    TRY(b->status);
    st_out(b, 0, sb_product(b, &a, up));
    return b->status;
}

static double bound_input(const ir_node *node, uint32_t i, double fallback)
{
    const ir_tensor *t = i < node->n_inputs ? ir_value_known(node->inputs[i]) : NULL;
    return t && t->data ? ir_load_f64(t->dtype, t->data, 0) : fallback;
}

tacit_status rule_clip(op_secure *c)
{
    sec_builder *b = c->b;
    const sec_tensor *x = st_in_scaled(b, 0);
    TRY(b->status);
    double low = bound_input(c->node, 1, -HUGE_VAL), high = bound_input(c->node, 2, HUGE_VAL);
    st_out(b, 0, sb_clip(b, x, fmax(low, -1e12), fmin(high, 1e12)));
    return b->status;
}

/* relu(x) times 1 - a, plus a x: also |x| with a = -1. */
static tacit_status two_slopes(sec_builder *b, double a)
{
    const sec_tensor *x = st_in_scaled(b, 0);
    TRY(b->status);
    sec_tensor up = sb_relu(b, x);
    up = sb_times_scalar(b, &up, 1 - a);
    sec_tensor down = sb_times_scalar(b, x, a);
    sec_tensor r = sb_add(b, &up, &down, 1);
    /* each factor is rounded to so many digits */
    double lift = ldexp(1, r.frac - x->frac), digits = ldexp(1, -b->p->mode.weight_frac);
    double off = lift * st_bound(x) * (fabs(1 - a) + fabs(a)) * digits + 2;
    op_interval in = st_interval(x), exact = op_range_scale(sb_range(b, &in), lift);
    exact.lo -= off;
    exact.hi += off;
    exact.norm = 0;
    st_bounds(&r, exact);
    st_out(b, 0, r);
    return b->status;
}
tacit_status rule_leaky(op_secure *c)
{
    return two_slopes(c->b, ir_attr_float(c->node, "alpha", 0.01));
}
tacit_status rule_abs(op_secure *c)
{
    return two_slopes(c->b, -1);
}

/* ---- normalisation ----
 * With s = sum x over a row of k, k x - s is k times the centred value, exactly. It is rounded
 * once, to c; sum c^2 is the power, and c / sqrt(power) has a norm of at most one whatever the
 * rounding did. So one truncation precedes the root, and its certificate is tight. */

typedef struct norm_parts {
    size_t rows, k;
    sec_wire_id centred; /* c, of `frac` fraction bits, times `scale` what is normalised */
    int frac;
    double scale, bound, norm;
} norm_parts;

static uint32_t *run_offsets(sec_builder *b, size_t rows, size_t k)
{
    uint32_t *offset = sb_alloc(b, rows + 1, 4);
    for (size_t i = 0; offset && i <= rows; i++)
        offset[i] = (uint32_t)(i * k);
    return offset;
}

static sec_wire_id spread_rows(sec_builder *b, sec_wire_id x, size_t rows, size_t k)
{
    int32_t *index = sb_alloc(b, rows * k, 4);
    for (size_t i = 0; index && i < rows * k; i++)
        index[i] = (int32_t)(i / k);
    return sb_gather(b, 1, &x, rows * k, index);
}

/* Rounded to as many fraction bits as the squares leave room for, at most the usual number. */
static norm_parts centre(sec_builder *b, const sec_tensor *x, bool rms)
{
    size_t k = (size_t)x->shape.dims[x->shape.rank - 1];
    norm_parts p = {.k = k, .rows = (size_t)ir_shape_size(&x->shape) / k, .frac = x->frac};
    double most = fmin(2 * st_bound(x), st_norm(x));
    p.centred = x->wire;
    p.scale = 1;
    p.norm = st_norm(x);
    /* small values are kept finer: normalising makes them large */
    int finer = (int)floor(3 - log2(ldexp(st_bound(x), -x->frac) + 1e-9));
    finer = finer < 0 ? 0 : finer > 6 ? 6 : finer;
    int drop = x->frac - b->p->mode.frac - finer;
    if (!rms) {
        sec_wire_id s = sb_sum(b, x->wire, p.rows, run_offsets(b, p.rows, k));
        int e = (int)floor(log2((double)k));
        p.centred = sb_linear(b, 2, (sec_wire_id[]){x->wire, spread_rows(b, s, p.rows, k)},
                              (int64_t[]){(int64_t)k, -1}, 0);
        p.scale = (double)k / ldexp(1, e); /* the power of two goes into the scale */
        p.frac += e;
        drop += e;
        p.norm *= (double)k;
    } else
        most = st_bound(x);
    p.bound = rms ? most : most * (double)k;
    while (drop < 60 && 2 * log2(ldexp(p.norm, -drop) + sqrt((double)k)) > 60)
        drop++;
    if (drop > 0) {
        sec_wire_id half = sb_linear(b, 1, &p.centred, (int64_t[]){1}, (int64_t)1 << (drop - 1));
        p.centred = sb_truncate(b, half, (unsigned)drop, p.bound + ldexp(1, drop));
        p.frac -= drop;
        p.bound = ldexp(p.bound, -drop) + 1;
        p.norm = ldexp(p.norm, -drop) + sqrt((double)k);
    }
    return p;
}

/* factor / sqrt(power), power = 2^-frac times the wire: returns its scale in *out_frac. Power and
 * mantissa's scale come from one gate: u = 2^.. and power u are pieces of the same function. */
static sec_wire_id inverse_root(sec_builder *b, sec_wire_id power, double bound, unsigned frac,
                                double factor, int *out_frac)
{
    unsigned in_bits = sb_bits(bound) - 1;
    if (in_bits < 14)
        in_bits = 14;
    if (in_bits > 62) {
        sb_fail(b, TACIT_ERR_LIMIT,
                "node '%s' (%s): the squares of values up to 2^%.1f do not fit 62 bits; lower "
                "--frac, bound the inputs (--bound), or use --calibrate",
                b->node->name, b->node->type, log2(bound) / 2);
        return power;
    }
    fss_normal f;
    unsigned v_frac = 12, g_frac = 20;
    /* the smallest power has the largest root: it must fit */
    while (g_frac > 8 && (double)g_frac + v_frac + frac / 2.0 > 60)
        g_frac--;
    if (b->status == TACIT_OK)
        b->status = fss_normal_build(fss_rsqrt, in_bits, frac, 64, 11, v_frac, g_frac,
                                     &b->p->memory, &f, b->err);
    size_t rows = b->status == TACIT_OK ? sb_wire(b, power)->count : 0;
    uint64_t *slope = sb_alloc(b, 2 * (size_t)in_bits, 8), *base = sb_alloc(b, 2u * in_bits, 8);
    uint64_t *table = sb_alloc(b, (size_t)2 << f.mantissa_bits, 8);
    int32_t *first = sb_alloc(b, rows, 4), *second = sb_alloc(b, rows, 4);
    if (b->status != TACIT_OK)
        return power;
    for (unsigned e = 0; e < in_bits; e++) {
        slope[e] = f.scale.base[e];
        base[in_bits + e] = (uint64_t)llrint((double)f.scale.base[in_bits + e] * factor);
    }
    memcpy(table + ((size_t)1 << f.mantissa_bits), f.lut.table, (size_t)8 << f.mantissa_bits);
    f.scale.slope = slope;
    f.scale.base = base;
    sec_wire_id both = sb_gate(b, f.scale, 1, &power, in_bits + 1)->out[0];
    for (size_t i = 0; i < rows; i++) {
        first[i] = (int32_t)i;
        second[i] = (int32_t)(rows + i);
    }
    sec_wire_id t = sb_gather(b, 1, &both, rows, first);
    sec_wire_id g = sb_gather(b, 1, &both, rows, second);
    sec_wire_id m = sb_shift_low(b, t, in_bits - 1 - f.mantissa_bits, f.mantissa_bits);
    fss_gate product = {
        .kind = FSS_SPLINE, .index_bits = (uint8_t)f.mantissa_bits, .degree = 1, .table = table};
    *out_frac = (int)(v_frac + g_frac);
    return sb_gate(b, product, 2, (sec_wire_id[]){g, m}, 0)->out[0];
}

static sec_tensor normalise(sec_builder *b, const sec_tensor *x, const ir_value *scale,
                            const ir_value *bias, double epsilon, bool rms)
{
    norm_parts p = centre(b, x, rms);
    size_t k = p.k;
    sec_instr *square = sb_gate(b, (fss_gate){.kind = FSS_SQUARE}, 1, &p.centred, 0);
    sb_keep(b, square, p.rows, NULL, run_offsets(b, p.rows, k));
    /* power 2^-(2 frac) / whole = the mean of the squares */
    double whole = p.scale * p.scale * (double)k;
    int even = 2 * (int)floor(log2(whole) / 2);
    /* below this a unit of rounding would be blown up: also what bounds the result */
    double least = ldexp(1, 2 - 2 * b->p->mode.frac), used = fmax(epsilon, least);
    double eps = ldexp(used * whole, 2 * p.frac) + 1;
    if (!(eps < 0x1p60)) {
        sb_fail(b, TACIT_ERR_LIMIT, "node '%s': epsilon is out of range", b->node->name);
        return *x;
    }
    sec_wire_id power = sb_linear(b, 1, &square->out[0], (int64_t[]){1}, (int64_t)llrint(eps));
    double factor = sqrt(whole / ldexp(1, even)) / p.scale;
    int up = (int)floor(log2(factor)), root_frac = 0;
    sec_wire_id root = inverse_root(b, power, p.norm * p.norm + eps, (unsigned)(2 * p.frac + even),
                                    ldexp(factor, -up), &root_frac);
    sec_tensor z = {.wire = p.centred, .shape = x->shape, .frac = p.frac};
    double gamma = 1, rounding = 0;
    if (scale) { /* while the root is found; a few bits finer than what it is made of */
        int wf = b->p->mode.weight_frac;
        sec_sizes size = sb_weight_sizes(b, scale, 1, k, NULL);
        gamma = size.max + ldexp(1, -wf);
        z.wire = sb_weight_product(b, z.wire, sb_weight(b, scale, k, NULL, 1, wf), (uint32_t)k);
        z.frac += wf;
        z.hi = p.bound * ldexp(gamma, wf);
        z.lo = -z.hi;
        z = st_rescale(b, &z, p.frac + 2);
        rounding = ldexp(1, -2) / sqrt(ldexp(used * whole, 2 * p.frac)) * sqrt((double)k);
    }
    sec_tensor y = z;
    y.wire = sb_multiply(b, z.wire, spread_rows(b, root, p.rows, k));
    y.frac = z.frac + root_frac - up;
    /* |normalised| <= sqrt(k), its norm too; the root is good to 2^-12 */
    double unit = ldexp(1, y.frac);
    op_interval in[4] = {st_interval(x), op_range_of(-gamma, gamma)};
    op_interval exact = op_range_scale(sb_range(b, in), 1.001 * unit);
    exact.lo -= rounding * unit;
    exact.hi += rounding * unit;
    if (exact.norm > 0) /* 0: nothing is known */
        exact.norm += rounding * sqrt((double)k) * unit;
    st_bounds(&y, exact);
    if (bias)
        y = sb_add_weight(b, &y, bias, 1);
    return y;
}

tacit_status rule_norm(op_secure *c)
{
    sec_builder *b = c->b;
    const ir_node *node = c->node;
    bool own = strcmp(node->domain, "tacit") == 0;
    bool rms = own ? ir_attr_int(node, "rms", 0) != 0 : strcmp(node->type, "RMSNormalization") == 0;
    sec_tensor x = *st_in(b, 0);
    TRY(b->status);
    int32_t axis;
    TRY(ir_axis(ir_attr_int(node, "axis", -1), x.shape.rank, &axis, b->err));
    bool extra = false;
    for (uint32_t i = 1; i < node->n_outputs; i++)
        extra |= node->outputs[i] != NULL;
    if (axis != x.shape.rank - 1 || (extra && !own))
        return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                         "Op %s in node '%s' has no secure rule for this axis or its statistics",
                         node->type, node->name);
    if (own && node->n_inputs > 3 && node->inputs[3]) {
        x = sb_add(b, &x, st_in(b, 3), 1);
        st_out(b, 1, x);
    }
    if (sb_bits(st_bound(&x) * (double)x.shape.dims[axis]) > 60)
        x = st_rescale(b, &x, b->p->mode.frac);
    const ir_value *scale = node->n_inputs > 1 ? node->inputs[1] : NULL;
    const ir_value *bias = node->n_inputs > 2 ? node->inputs[2] : NULL;
    st_out(b, 0, normalise(b, &x, scale, bias, ir_attr_float(node, "epsilon", 1e-5), rms));
    return b->status;
}

/* ---- softmax and attention ---- */

tacit_status rule_softmax(op_secure *c)
{
    sec_builder *b = c->b;
    sec_tensor x = *st_in(b, 0);
    TRY(b->status);
    int32_t axis;
    TRY(ir_axis(ir_attr_int(c->node, "axis", -1), x.shape.rank, &axis, b->err));
    if (axis != x.shape.rank - 1)
        return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                         "Op Softmax in node '%s' has no secure rule for an inner axis",
                         c->node->name);
    size_t k = (size_t)x.shape.dims[axis], rows = (size_t)ir_shape_size(&x.shape) / k;
    sec_softmax s = sb_softmax(b, &x, rows, run_offsets(b, rows, k));
    x.wire = sb_multiply(b, s.e, spread_rows(b, s.inverse, rows, k));
    x.frac = s.frac + s.inverse_frac;
    x.lo = -ldexp(1, x.frac - 8);
    x.hi = ldexp(1.05, x.frac);
    x.norm = ldexp(1.05, x.frac);
    st_out(b, 0, x);
    return b->status;
}

typedef struct heads {
    int64_t batch, q_heads, kv_heads, queries, keys, depth, v_depth;
} heads;

/* Which pairs (query, key) count: by head and query, the keys in order. */
static uint32_t *valid_pairs(sec_builder *b, const heads *h, int32_t **pair, size_t *rows)
{
    const ir_node *n = b->node;
    bool causal = ir_attr_int(n, "causal", 0) != 0;
    int64_t window = ir_attr_int(n, "window", 0), shift = ir_attr_int(n, "causal_offset", 0);
    *rows = (size_t)(h->batch * h->q_heads * h->queries);
    uint32_t *offset = sb_alloc(b, *rows + 1, 4);
    *pair = sb_alloc(b, *rows * (size_t)h->keys, 4);
    if (b->status != TACIT_OK)
        return NULL;
    uint32_t at = 0;
    for (size_t r = 0; r < *rows; r++) {
        int64_t q = (int64_t)(r % (size_t)h->queries);
        offset[r] = at;
        for (int64_t k = 0; k < h->keys; k++) {
            if (causal && k > q + shift)
                continue;
            if (window > 0 && q + shift - k >= window)
                continue;
            (*pair)[at++] = (int32_t)(r * (size_t)h->keys + (size_t)k);
        }
        if (at == offset[r])
            sb_fail(b, TACIT_ERR_UNSUPPORTED, "node '%s': query %lld sees no key", n->name,
                    (long long)q);
    }
    offset[*rows] = at;
    return offset;
}

static uint32_t *kv_map(sec_builder *b, const heads *h)
{
    uint32_t *lookup = sb_alloc(b, (size_t)(h->batch * h->q_heads), 4);
    for (int64_t i = 0; lookup && i < h->batch * h->q_heads; i++)
        lookup[i] =
            (uint32_t)(i / h->q_heads * h->kv_heads + i % h->q_heads * h->kv_heads / h->q_heads);
    return lookup;
}

/* Adds the mask's element to every pair; a mask of "infinities" gets a size that the scores can
 * never make up for. */
static sec_tensor add_mask(sec_builder *b, const sec_tensor *s, const sec_tensor *m,
                           const ir_shape *full, const int32_t *pair, size_t count)
{
    sec_tensor t = st_broadcast(b, m, full);
    t.wire = sb_gather(b, 1, &t.wire, count, pair);
    sec_tensor r = *s;
    if (!m->huge) {
        if (t.frac < s->frac)
            t = st_lift(b, &t, s->frac);
        if (t.frac > s->frac)
            t = st_rescale(b, &t, s->frac);
        r.wire = sb_linear(b, 2, (sec_wire_id[]){s->wire, t.wire}, (int64_t[]){1, 1}, 0);
        r.lo += t.lo;
        r.hi += t.hi;
        return r;
    }
    double reach = ldexp(s->hi - s->lo + ldexp(18, s->frac), -m->frac);
    if (!(reach < 0x1p60)) {
        sb_fail(b, TACIT_ERR_LIMIT, "node '%s': its mask is out of range", b->node->name);
        return r;
    }
    int64_t factor = (int64_t)ceil(reach);
    if (m->huge < 0)
        factor = -factor;
    r.wire = sb_linear(b, 2, (sec_wire_id[]){s->wire, t.wire}, (int64_t[]){1, factor}, 0);
    double ends[] = {(double)factor * m->lo, (double)factor * m->hi};
    r.lo += fmin(ends[0], ends[1]);
    r.hi += fmax(ends[0], ends[1]);
    return r;
}

/* Keys as [depth, keys] matrices. */
static sec_wire_id turn_keys(sec_builder *b, const sec_tensor *k, const heads *h)
{
    size_t count = (size_t)ir_shape_size(&k->shape), m = (size_t)(h->keys * h->depth);
    int32_t *index = sb_alloc(b, count, 4);
    for (size_t i = 0; index && i < count; i++) {
        size_t at = i % m;
        index[i] =
            (int32_t)(i / m * m + at % (size_t)h->keys * (size_t)h->depth + at / (size_t)h->keys);
    }
    return sb_gather(b, 1, &k->wire, count, index);
}

/* Row weights e back into full matrices (zero where no pair is), times V, times 1 / row sum. */
static sec_tensor mix(sec_builder *b, const heads *h, const sec_softmax *s, const int32_t *pair,
                      size_t count, size_t rows, const sec_tensor *v)
{
    size_t all = rows * (size_t)h->keys;
    int32_t *back = sb_alloc(b, all, 4);
    for (size_t i = 0; back && i < all; i++)
        back[i] = -1;
    for (size_t i = 0; back && i < count; i++)
        back[pair[i]] = (int32_t)i;
    sec_wire_id e = sb_gather(b, 1, &s->e, all, back);
    sec_tensor o = *v;
    o.wire = sb_matmul(b, e, v->wire, (size_t)h->queries, (size_t)h->keys, (size_t)h->v_depth,
                       (uint32_t)(h->batch * h->q_heads), NULL, kv_map(b, h), false)
                 ->out[0];
    o.frac = s->frac + v->frac;
    /* the weights of a row sum up to its sum, which is at most its length */
    double most = st_bound(v) * ldexp((double)h->keys * 1.01, s->frac);
    o.lo = -most;
    o.hi = most;
    o.norm = 0;
    o.shape = ir_shape_of(4, (int64_t[]){h->batch, h->q_heads, h->queries, h->v_depth});
    o = st_rescale(b, &o, b->p->mode.frac);
    o.wire = sb_multiply(b, o.wire, spread_rows(b, s->inverse, rows, (size_t)h->v_depth));
    o.frac += s->inverse_frac;
    op_interval in[4] = {[2] = st_interval(v)}; /* an average of values */
    most = (fmax(op_magnitude(sb_range(b, in)), 1) * 1.05 + 2) * ldexp(1, s->inverse_frac);
    o.lo = -most;
    o.hi = most;
    return o;
}

tacit_status rule_attention(op_secure *c)
{
    sec_builder *b = c->b;
    const ir_node *node = c->node;
    const int score_frac = b->p->mode.frac - SB_SLACK; /* of either factor: scores need no more */
    sec_tensor q = *st_in(b, 0), k = *st_in(b, 1), v = *st_in_scaled(b, 2);
    TRY(b->status);
    q = st_rescale(b, &q, score_frac);
    k = st_rescale(b, &k, score_frac);
    if (ir_attr_float(node, "softcap", 0) != 0)
        return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                         "Op Attention in node '%s' has no secure rule for softcap", node->name);
    heads h = {q.shape.dims[0], q.shape.dims[1], k.shape.dims[1], q.shape.dims[2],
               k.shape.dims[2], q.shape.dims[3], v.shape.dims[3]};
    int32_t *pair;
    size_t rows;
    uint32_t *offset = valid_pairs(b, &h, &pair, &rows);
    TRY(b->status);
    size_t count = offset[rows];
    sec_instr *product =
        sb_matmul(b, q.wire, turn_keys(b, &k, &h), (size_t)h.queries, (size_t)h.depth,
                  (size_t)h.keys, (uint32_t)(h.batch * h.q_heads), NULL, kv_map(b, &h), false);
    if (count < rows * (size_t)h.keys)
        sb_keep(b, product, count, pair, NULL);
    double bound = fmin(st_bound(&q) * st_bound(&k) * (double)h.depth, st_norm(&q) * st_norm(&k));
    sec_tensor s = {.wire = product->out[0],
                    .shape = ir_shape_of(1, (int64_t[]){(int64_t)count}),
                    .frac = q.frac + k.frac,
                    .lo = -bound,
                    .hi = bound};
    s = sb_times_scalar(b, &s, ir_attr_float(node, "scale", 1));
    ir_shape full = ir_shape_of(4, (int64_t[]){h.batch, h.q_heads, h.queries, h.keys});
    if (node->n_inputs > 3 && node->inputs[3]) {
        const sec_tensor *m = st_in(b, 3);
        TRY(b->status);
        s = add_mask(b, &s, m, &full, pair, count);
    }
    sec_softmax soft = sb_softmax(b, &s, rows, offset);
    sec_tensor o = mix(b, &h, &soft, pair, count, rows, &v);
    if (op_attention_bshd(node)) {
        size_t n = (size_t)ir_shape_size(&o.shape);
        int32_t *index = sb_alloc(b, n, 4);
        for (size_t i = 0; index && i < n; i++) {
            int64_t d = (int64_t)i % h.v_depth, rest = (int64_t)i / h.v_depth;
            int64_t head = rest % h.q_heads, at = rest / h.q_heads % h.queries;
            int64_t batch = rest / h.q_heads / h.queries;
            index[i] = (int32_t)(((batch * h.q_heads + head) * h.queries + at) * h.v_depth + d);
        }
        o = st_gathered(b, &o, &node->outputs[0]->type.shape, index);
    }
    st_out(b, 0, o);
    return b->status;
}

/* ---- rotary positions ---- */

tacit_status rule_rotary(op_secure *c)
{
    sec_builder *b = c->b;
    const ir_node *node = c->node;
    sec_tensor x = *st_in_scaled(b, 0);
    TRY(b->status);
    const ir_tensor *cosine = node->inputs[1]->constant, *sine = node->inputs[2]->constant;
    bool ids = node->n_inputs > 3 && node->inputs[3];
    if (!cosine || !cosine->data || !sine || !sine->data || ids || x.shape.rank != 4 ||
        cosine->shape.rank != 3)
        return error_set(b->err, TACIT_ERR_UNSUPPORTED,
                         "Op RotaryEmbedding in node '%s' has no secure rule for this form",
                         node->name);
    int64_t positions = x.shape.dims[2], d = x.shape.dims[3], half = cosine->shape.dims[2];
    int64_t per = x.shape.dims[1] * positions * d;
    bool interleaved = ir_attr_int(node, "interleaved", 0) != 0;
    size_t count = (size_t)ir_shape_size(&x.shape);
    int64_t *straight = sb_alloc(b, count, 8), *cross = sb_alloc(b, count, 8);
    int32_t *other = sb_alloc(b, count, 4);
    TRY(b->status);
    int wf = b->p->mode.weight_frac;
    for (size_t i = 0; i < count; i++) {
        int64_t at = (int64_t)i % d, batch = (int64_t)i / per, row = (int64_t)i / d % positions;
        int64_t pair = interleaved ? at / 2 : at % half;
        bool second = interleaved ? at % 2 == 1 : at >= half;
        other[i] = (int32_t)i;
        straight[i] = (int64_t)1 << wf;
        if (at >= 2 * half)
            continue;
        int64_t angle = ((cosine->shape.dims[0] == 1 ? 0 : batch) * positions + row) * half + pair;
        double cs = ir_load_f64(cosine->dtype, cosine->data, angle);
        double sn = ir_load_f64(sine->dtype, sine->data, angle);
        int64_t step = interleaved ? 1 : half;
        other[i] = (int32_t)((int64_t)i + (second ? -step : step));
        straight[i] = (int64_t)llrint(ldexp(cs, wf));
        cross[i] = (int64_t)llrint(ldexp(second ? sn : -sn, wf));
    }
    sec_wire_id turned = sb_gather(b, 1, &x.wire, count, other);
    x.wire =
        sb_linear(b, 2, (sec_wire_id[]){sb_scale(b, x.wire, straight), sb_scale(b, turned, cross)},
                  (int64_t[]){1, 1}, 0);
    /* of the angles as they are; rounded ones are off by half a unit each */
    op_interval in[4] = {st_interval(&x), op_range_of(-1, 1), op_range_of(-1, 1)};
    in[0].norm = x.norm;
    op_interval exact = op_range_scale(sb_range(b, in), ldexp(1, wf));
    double off = st_bound(&x) + 2, norm_off = 0.01 * ldexp(x.norm, wf);
    exact.lo -= off;
    exact.hi += off;
    exact.norm = x.norm > 0 ? exact.norm + norm_off : 0;
    x.frac += wf;
    st_bounds(&x, exact);
    st_out(b, 0, x);
    return b->status;
}
