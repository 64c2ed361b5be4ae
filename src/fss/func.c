/* SPDX-License-Identifier: Apache-2.0 */
#include "fss/func.h"

#include <math.h>
#include <string.h>

double fss_gelu(double x)
{
    return 0.5 * x * erfc(-x * M_SQRT1_2);
}
double fss_gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}
double fss_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
double fss_silu(double x)
{
    return x * fss_sigmoid(x);
}
double fss_exp_neg(double x)
{
    return exp(-x);
}
double fss_recip(double x)
{
    return 1 / x;
}
double fss_rsqrt(double x)
{
    return 1 / sqrt(x);
}

enum { SPLINE_DEGREE = 3, FIT_POINTS = 33 };

/* The nearest ring word; a value no ring could hold becomes 0 and shows in the measured error. */
static uint64_t word_of(double value)
{
    return fabs(value) < 0x1p62 ? (uint64_t)(int64_t)nearbyint(value) : 0;
}

/* What fn leaves over after the terms power[from] x^from and above. */
static double rest_of(const fss_spline *s, const double *power, unsigned from, double x)
{
    double rest = s->fn(x);
    for (unsigned k = from; k <= s->degree; k++)
        rest -= power[k] * pow(x, k);
    return rest;
}

/* The leading coefficient of the polynomial of this degree that meets the rest at the Chebyshev
 * nodes of [a, b]: its highest divided difference. */
static double leading(const fss_spline *s, const double *power, unsigned degree, double a, double b)
{
    double node[SPLINE_DEGREE + 1], newton[SPLINE_DEGREE + 1];
    for (unsigned j = 0; j <= degree; j++) {
        node[j] = (a + b) / 2 + (b - a) / 2 * cos((2 * j + 1) * M_PI / (2 * (degree + 1)));
        newton[j] = rest_of(s, power, degree + 1, node[j]);
    }
    for (unsigned k = 1; k <= degree; k++)
        for (unsigned j = degree; j >= k; j--)
            newton[j] = (newton[j] - newton[j - 1]) / (node[j] - node[j - k]);
    return newton[degree];
}

/* From the highest coefficient down: fit, round, and let the lower ones make up for the rounding;
 * the constant is centred on what is left. */
static void fit_segment(const fss_spline *s, double a, double b, size_t index, uint64_t *table)
{
    double power[SPLINE_DEGREE + 1], least = INFINITY, most = -INFINITY;
    size_t size = (size_t)1 << s->index_bits;
    for (unsigned k = s->degree; k > 0; k--) {
        double unit = ldexp(1, (int)(s->out_frac - k * s->in_frac));
        table[k * size + index] = word_of(leading(s, power, k, a, b) * unit);
        power[k] = (double)(int64_t)table[k * size + index] / unit;
    }
    for (int p = 0; p < FIT_POINTS; p++) {
        double rest = rest_of(s, power, 1, a + (b - a) * p / (FIT_POINTS - 1));
        least = fmin(least, rest);
        most = fmax(most, rest);
    }
    table[index] = word_of(ldexp((least + most) / 2, (int)s->out_frac));
}

static double spline_value(const fss_spline *s, const uint64_t *table, int64_t x, int64_t segment)
{
    uint64_t size = (uint64_t)1 << s->index_bits, index = (uint64_t)segment & (size - 1), sum = 0;
    for (unsigned k = s->degree + 1; k-- > 0;)
        sum = sum * (uint64_t)x + table[k * size + index];
    return ldexp((double)(int64_t)sum, -(int)s->out_frac);
}

static fss_error spline_error(const fss_spline *s, const uint64_t *table)
{
    int64_t first = (int64_t)ceil(ldexp(s->low, (int)s->in_frac));
    int64_t last = (int64_t)ceil(ldexp(s->high, (int)s->in_frac)) - 1;
    fss_error error = {0, 0};
    double count = 0;
    for (int64_t x = first; x <= last; x++) {
        int64_t segment = x >> s->shift;
        double want = s->fn(ldexp((double)x, -(int)s->in_frac));
        bool both = s->dither && fss_low((uint64_t)x, s->shift);
        for (int next = 0; next <= both; next++) {
            double e = fabs(spline_value(s, table, x, segment + next) - want);
            error.max = fmax(error.max, e);
            error.mean += e;
            count++;
        }
    }
    error.mean /= fmax(count, 1);
    return error;
}

tacit_status fss_spline_build(const fss_spline *s, uint64_t *table, fss_error *error,
                              tacit_error *err)
{
    unsigned domain = s->index_bits + s->shift;
    if (s->degree > SPLINE_DEGREE || s->index_bits < 1 || s->index_bits > FSS_FULL_BITS ||
        domain > 24 || s->out_frac > 60 || s->out_frac < s->degree * s->in_frac)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "spline of degree %u, %u + %u bits, scales %u and %u", s->degree,
                         s->index_bits, s->shift, s->in_frac, s->out_frac);
    double width = ldexp(1, (int)s->shift - (int)s->in_frac);
    double begin = s->is_signed ? -ldexp(1, (int)domain - 1 - (int)s->in_frac) : 0;
    double end = begin + ldexp(1, (int)domain - (int)s->in_frac);
    if (!(s->low < s->high) || s->low < begin || s->high > end)
        return error_set(err, TACIT_ERR_ARGUMENT, "spline for [%g, %g) over the domain [%g, %g)",
                         s->low, s->high, begin, end);
    int64_t segments = (int64_t)1 << s->index_bits, base = s->is_signed ? -segments / 2 : 0;
    for (int64_t i = base; i < base + segments; i++) {
        double b = ((double)i + 1) * width, a = (double)i * width - (s->dither ? width : 0);
        a = fmin(fmax(a, s->low), s->high - width);
        b = fmax(fmin(b, s->high), s->low + width);
        fit_segment(s, a, b, (size_t)((uint64_t)i & ((uint64_t)segments - 1)), table);
    }
    *error = spline_error(s, table);
    return isfinite(error->max)
               ? TACIT_OK
               : error_set(err, TACIT_ERR_VALUE, "spline: the function is not finite on [%g, %g)",
                           s->low, s->high);
}

/* ---- activations ---- */

static const struct {
    fss_real_fn fn;
    int range_log2; /* beyond it the tails are right to 2^-18 or better */
    int slope_above;
} activation_rows[FSS_ACTIVATIONS] = {
    [FSS_GELU] = {fss_gelu, 3, 1}, [FSS_GELU_TANH] = {fss_gelu_tanh, 3, 1},
    [FSS_SILU] = {fss_silu, 4, 1}, [FSS_SIGMOID] = {fss_sigmoid, 4, 0},
    [FSS_TANH] = {tanh, 3, 0},
};

static tacit_status activation_clip(fss_activation *a, unsigned bits, unsigned eff_bits,
                                    unsigned frac, int slope_above, arena *memory, tacit_error *err)
{
    int64_t *threshold = ARENA_ARRAY(memory, 2, int64_t);
    uint64_t *slope = ARENA_ARRAY(memory, 6, uint64_t), *base = ARENA_ARRAY(memory, 6, uint64_t);
    if (!threshold || !slope || !base)
        return error_memory(err, "activation tables");
    int64_t range = (int64_t)ldexp(a->range, (int)frac);
    int64_t top = (int64_t)ldexp(a->spline.high, (int)frac);
    threshold[0] = -range;
    threshold[1] = top;
    slope[1] = 1;
    slope[5] = (uint64_t)slope_above;
    base[0] = (uint64_t)-range;
    base[2] = (uint64_t)(top - 1);
    base[5] = (uint64_t)(-slope_above * (top - 1));
    a->clip = (fss_gate){.kind = FSS_PIECES,
                         .in_bits = (uint8_t)bits,
                         .eff_bits = (uint8_t)eff_bits,
                         .rows = 2,
                         .thresholds = 2,
                         .threshold = threshold,
                         .slope = slope,
                         .base = base};
    return TACIT_OK;
}

tacit_status fss_activation_build(fss_activation_kind kind, unsigned bits, unsigned eff_bits,
                                  unsigned frac, unsigned segment, unsigned degree,
                                  unsigned out_frac, bool dither, arena *memory,
                                  fss_activation *out, tacit_error *err)
{
    if ((unsigned)kind >= FSS_ACTIVATIONS || segment > frac)
        return error_set(err, TACIT_ERR_ARGUMENT, "activation %d with segments of 2^-%u at %u bits",
                         (int)kind, segment, frac);
    int log_range = activation_rows[kind].range_log2;
    memset(out, 0, sizeof *out);
    out->range = ldexp(1, log_range);
    /* a dithered index may be one segment too high: the last one must not wrap around */
    double room = dither ? ldexp(1, -(int)segment) : 0;
    out->spline = (fss_spline){.fn = activation_rows[kind].fn,
                               .in_frac = frac,
                               .shift = frac - segment,
                               .index_bits = segment + (unsigned)log_range + 1,
                               .degree = degree,
                               .out_frac = out_frac,
                               .is_signed = true,
                               .dither = dither,
                               .low = -out->range,
                               .high = out->range - room};
    if (out->spline.index_bits > FSS_FULL_BITS || out_frac + (unsigned)log_range + 2 > bits)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "activation: %u index bits, results of %u fraction bits in a ring of %u",
                         out->spline.index_bits, out_frac, bits);
    uint64_t *table = arena_array(memory, (size_t)(degree + 1) << out->spline.index_bits, 8);
    if (!table)
        return error_memory(err, "activation tables");
    TRY(fss_spline_build(&out->spline, table, &out->error, err));
    int above = activation_rows[kind].slope_above;
    double top = out->spline.high, bottom = -out->range;
    out->tail = fmax(fabs(out->spline.fn(top) - (above ? top : 1)),
                     fabs(out->spline.fn(bottom) - (kind == FSS_TANH ? -1 : 0)));
    out->gate = (fss_gate){.kind = FSS_SPLINE,
                           .in_bits = (uint8_t)bits,
                           .index_bits = (uint8_t)out->spline.index_bits,
                           .degree = (uint8_t)degree,
                           .table = table};
    return activation_clip(out, bits, eff_bits, frac, above, memory, err);
}

/* ---- exponential ---- */

static fss_error exp_error(const fss_exp *e, unsigned frac, unsigned int_bits, bool dither)
{
    fss_error error = {0, 0};
    double count = 0;
    const fss_gate *g = &e->gate;
    uint64_t hi_mask = ((uint64_t)1 << g->index_bits) - 1,
             lo_mask = ((uint64_t)1 << g->index2_bits) - 1;
    for (int64_t d = 0; d < (int64_t)1 << (frac + int_bits); d++)
        for (int up = 0; up <= (dither && fss_low((uint64_t)d, e->lo_bits)); up++) {
            int64_t hi = (d >> e->lo_bits) + up, lo = d - hi * ((int64_t)1 << e->lo_bits);
            double y = (double)g->table[(uint64_t)hi & hi_mask] *
                       (double)g->table2[(uint64_t)lo & lo_mask];
            double off = fabs(ldexp(y, -(int)e->out_frac) - exp(-ldexp((double)d, -(int)frac)));
            error.max = fmax(error.max, off);
            error.mean += off;
            count++;
        }
    error.mean /= count;
    return error;
}

tacit_status fss_exp_build(unsigned out_bits, unsigned frac, unsigned int_bits, unsigned out_frac,
                           bool dither, arena *memory, fss_exp *out, tacit_error *err)
{
    unsigned total = frac + int_bits, lo = total / 2, hi = total - lo + dither;
    if (total < 2 || total > 22 || out_frac + 2 > out_bits || out_frac < 2)
        return error_set(err, TACIT_ERR_ARGUMENT, "exp of %u + %u bits to scale %u in a ring of %u",
                         int_bits, frac, out_frac, out_bits);
    unsigned frac1 = out_frac / 2, frac0 = out_frac - frac1, lo_index = lo + dither;
    uint64_t *table = arena_array(memory, (size_t)1 << hi, 8);
    uint64_t *table2 = arena_array(memory, (size_t)1 << lo_index, 8);
    if (!table || !table2)
        return error_memory(err, "exp tables");
    for (uint64_t i = 0; i < (uint64_t)1 << hi; i++)
        table[i] =
            (uint64_t)nearbyint(ldexp(exp(-ldexp((double)i, (int)lo - (int)frac)), (int)frac1));
    for (uint64_t i = 0; i < (uint64_t)1 << lo_index; i++) {
        double v = dither ? (double)fss_signed(i, lo_index) : (double)i;
        table2[i] = (uint64_t)nearbyint(ldexp(exp(-ldexp(v, -(int)frac)), (int)frac0));
    }
    *out = (fss_exp){.gate = {.kind = FSS_LUT2,
                              .index_bits = (uint8_t)hi,
                              .index2_bits = (uint8_t)lo_index,
                              .out_bits = (uint8_t)out_bits,
                              .table = table,
                              .table2 = table2},
                     .lo_bits = lo,
                     .hi_bits = hi,
                     .out_frac = out_frac};
    out->error = exp_error(out, frac, int_bits, dither);
    return TACIT_OK;
}

/* ---- normalised reciprocal and reciprocal square root ---- */

static double mantissa_table(fss_real_fn fn, unsigned b, unsigned v_frac, uint64_t *table)
{
    double worst = 0, size = ldexp(1, (int)b);
    for (size_t i = 0; i < (size_t)1 << b; i++) {
        double a = fn(1 + (double)i / size), z = fn(1 + ((double)i + 1) / size);
        /* the value whose relative error is the same at both ends */
        table[i] = (uint64_t)nearbyint(ldexp(2 * a * z / (a + z), (int)v_frac));
        double v = ldexp((double)table[i], -(int)v_frac);
        worst = fmax(worst, fmax(fabs(v / a - 1), fabs(v / z - 1)));
    }
    return worst;
}

tacit_status fss_normal_build(fss_real_fn fn, unsigned in_bits, unsigned in_frac, unsigned bits,
                              unsigned mantissa_bits, unsigned v_frac, unsigned g_frac,
                              arena *memory, fss_normal *out, tacit_error *err)
{
    if (in_bits < 2 || in_bits > 62 || bits <= in_bits || bits > 64 || mantissa_bits < 1 ||
        mantissa_bits > FSS_FULL_BITS || mantissa_bits >= in_bits || v_frac + g_frac >= bits)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "normalising %u bits by %u-bit mantissas in a ring of %u", in_bits,
                         mantissa_bits, bits);
    unsigned steps = in_bits - 1; /* thresholds 2, 4, .. 2^(in_bits-1) */
    int64_t *threshold = ARENA_ARRAY(memory, steps, int64_t);
    uint64_t *base = arena_array(memory, 2 * (size_t)in_bits, 8);
    uint64_t *table = arena_array(memory, (size_t)1 << mantissa_bits, 8);
    if (!threshold || !base || !table)
        return error_memory(err, "normalisation tables");
    for (unsigned e = 0; e < in_bits; e++) {
        if (e)
            threshold[e - 1] = (int64_t)1 << e;
        double g = ldexp(fn(ldexp(1, (int)e - (int)in_frac)), (int)g_frac);
        if (log2(g) + v_frac >= bits - 1)
            return error_set(err, TACIT_ERR_LIMIT,
                             "2^%d needs more than a ring of %u bits at scale %u",
                             (int)e - (int)in_frac, bits, v_frac + g_frac);
        base[e] = (uint64_t)1 << (in_bits - 1 - e);
        base[in_bits + e] = (uint64_t)nearbyint(g);
    }
    out->relative = mantissa_table(fn, mantissa_bits, v_frac, table);
    out->mantissa_bits = mantissa_bits;
    out->v_frac = v_frac;
    out->g_frac = g_frac;
    out->scale = (fss_gate){.kind = FSS_PIECES,
                            .in_bits = (uint8_t)bits,
                            .eff_bits = (uint8_t)(in_bits + 1),
                            .rows = 2,
                            .thresholds = (uint16_t)steps,
                            .threshold = threshold,
                            .base = base};
    out->lut = (fss_gate){.kind = FSS_LUT,
                          .index_bits = (uint8_t)mantissa_bits,
                          .out_bits = (uint8_t)bits,
                          .table = table};
    return TACIT_OK;
}
