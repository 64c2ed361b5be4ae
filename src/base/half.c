/* SPDX-License-Identifier: Apache-2.0 */
#include "base/half.h"

#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef struct format_row {
    int exponent_bits, mantissa_bits, bias;
    bool has_inf;     /* all-ones exponent is Inf/NaN as in IEEE */
    bool nan_is_zero; /* FNUZ: the only NaN is the pattern of minus zero */
    bool has_nan;
} format_row;

static const format_row rows[] = {
    [HALF_F16] = {5, 10, 15, true, false, true},   [HALF_BF16] = {8, 7, 127, true, false, true},
    [HALF_E4M3FN] = {4, 3, 7, false, false, true}, [HALF_E4M3FNUZ] = {4, 3, 8, false, true, true},
    [HALF_E5M2] = {5, 2, 15, true, false, true},   [HALF_E5M2FNUZ] = {5, 2, 16, false, true, true},
    [HALF_E8M0] = {8, 0, 127, false, false, true}, [HALF_E2M1] = {2, 1, 1, false, false, false},
};

static double decode_e8m0(uint16_t bits)
{
    return bits == 0xff ? NAN : ldexp(1.0, (int)bits - 127);
}

double half_decode(half_format format, uint16_t bits)
{
    if (format == HALF_E8M0)
        return decode_e8m0(bits);
    const format_row *f = &rows[format];
    int width = f->exponent_bits + f->mantissa_bits;
    int exponent = (bits >> f->mantissa_bits) & ((1 << f->exponent_bits) - 1);
    int mantissa = bits & ((1 << f->mantissa_bits) - 1);
    bool negative = (bits >> width) & 1;
    bool all_ones = exponent == (1 << f->exponent_bits) - 1;
    double v;
    if (f->nan_is_zero && negative && exponent == 0 && mantissa == 0)
        return NAN;
    if (all_ones && f->has_inf)
        v = mantissa ? NAN : INFINITY;
    else if (all_ones && format == HALF_E4M3FN && mantissa == (1 << f->mantissa_bits) - 1)
        v = NAN;
    else if (exponent == 0)
        v = ldexp((double)mantissa, 1 - f->bias - f->mantissa_bits);
    else
        v = ldexp((double)(mantissa | (1 << f->mantissa_bits)),
                  exponent - f->bias - f->mantissa_bits);
    return negative ? -v : v;
}

/* Largest finite pattern without its sign. */
static uint16_t largest_finite(half_format format)
{
    const format_row *f = &rows[format];
    int width = f->exponent_bits + f->mantissa_bits;
    uint16_t all = (uint16_t)((1 << width) - 1);
    if (f->has_inf)
        return (uint16_t)(all - (1 << f->mantissa_bits));
    return format == HALF_E4M3FN ? (uint16_t)(all - 1) : all;
}

static uint16_t nan_pattern(half_format format, bool negative)
{
    const format_row *f = &rows[format];
    int width = f->exponent_bits + f->mantissa_bits;
    if (f->nan_is_zero)
        return (uint16_t)(1 << width);
    uint16_t sign = (uint16_t)(negative ? 1 << width : 0);
    uint16_t exponent = (uint16_t)(((1 << f->exponent_bits) - 1) << f->mantissa_bits);
    if (f->has_inf)
        return (uint16_t)(sign | exponent | (1 << (f->mantissa_bits - 1)));
    return (uint16_t)(sign | ((1 << width) - 1));
}

/* E8M0 holds only powers of two: round to nearest power, ties up. NaN for NaN and for negatives. */
static uint16_t encode_e8m0(double value, bool saturate)
{
    if (isnan(value) || value < 0)
        return 0xff;
    if (isinf(value))
        return saturate ? 0xfe : 0xff;
    if (value == 0)
        return 0;
    int exponent;
    double m = frexp(value, &exponent); /* value = m·2^exponent, m in [0.5, 1) */
    int e = exponent - 1 + (m >= 0.75) + 127;
    if (e > 0xfe)
        return saturate ? 0xfe : 0xff;
    return (uint16_t)(e < 0 ? 0 : e);
}

uint16_t half_encode(half_format format, double value, bool saturate)
{
    if (format == HALF_E8M0)
        return encode_e8m0(value, saturate);
    const format_row *f = &rows[format];
    int width = f->exponent_bits + f->mantissa_bits;
    bool negative = signbit(value);
    uint16_t sign = (uint16_t)(negative ? 1 << width : 0);
    uint16_t most = largest_finite(format);
    if (isnan(value)) /* without a NaN of its own a type gets the zero of the other sign */
        return f->has_nan ? nan_pattern(format, negative) : (uint16_t)(sign ^ (1 << width));
    double a = fabs(value);
    uint16_t magnitude;
    if (isinf(a)) {
        magnitude = (uint16_t)(most + 1);
    } else {
        int exponent;
        frexp(a, &exponent);
        int lowest = 1 - f->bias; /* exponent of the smallest normal */
        int e = a == 0 || exponent - 1 < lowest ? lowest : exponent - 1;
        double units = nearbyint(ldexp(a, f->mantissa_bits - e)); /* ties to even */
        /* units in [2^m, 2^(m+1)] for normals: adding carries into the exponent by itself. */
        double pattern = units + ldexp((double)(e - lowest), f->mantissa_bits);
        magnitude = pattern > most ? (uint16_t)(most + 1) : (uint16_t)pattern;
    }
    if (magnitude > most) {
        bool clamp = format == HALF_E2M1 || (saturate && format >= HALF_E4M3FN);
        if (clamp)
            magnitude = most;
        else if (!f->has_inf)
            return nan_pattern(format, negative);
    }
    if (f->nan_is_zero && magnitude == 0)
        return 0; /* FNUZ has no minus zero */
    return (uint16_t)(sign | magnitude);
}

/* --- many --------------------------------------------------------------------------------------
 */

static void widen_rest(half_format format, const void *from, int64_t done, int64_t n, float *to)
{
    for (int64_t i = done; i < n; i++) {
        uint16_t h = half_at(from, i);
        to[i] = format == HALF_F16 ? half_to_f32(h) : bf16_to_f32(h);
    }
}

#if defined(__x86_64__)
/* Returns how many were converted. */
__attribute__((target("avx2,f16c"))) static int64_t widen_vectors(half_format format,
                                                                  const char *from, int64_t n,
                                                                  float *to)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8, from += 8 * sizeof(uint16_t)) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)from);
        __m256 y = format == HALF_F16
                       ? _mm256_cvtph_ps(x)
                       : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
        _mm256_storeu_ps(to + i, y);
    }
    return i;
}
#endif

void half_widen(half_format format, const void *from, int64_t n, float *to)
{
    int64_t done = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) /* all that have it convert halves */
        done = widen_vectors(format, from, n, to);
#endif
    widen_rest(format, from, done, n, to);
}
