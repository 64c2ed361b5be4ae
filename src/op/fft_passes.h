/* SPDX-License-Identifier: Apache-2.0
 *
 * The passes of a mixed-radix transform in the precision REAL; names are made by FFT(name).
 * Stockham's arrangement: a pass of radix p reads x[i, j, k] (i < inner, j < p, k < done) and
 * writes y[i, k, m], the transform over j turned by the m·i·done-th root, so no reordering is left.
 */
#include <stddef.h>
#include <stdint.h>

typedef struct FFT(pair) {
    REAL re, im;
} FFT(pair);

static inline FFT(pair) FFT(add)(FFT(pair) a, FFT(pair) b)
{
    return (FFT(pair)){a.re + b.re, a.im + b.im};
}

static inline FFT(pair) FFT(sub)(FFT(pair) a, FFT(pair) b)
{
    return (FFT(pair)){a.re - b.re, a.im - b.im};
}

static inline FFT(pair) FFT(mul)(FFT(pair) a, FFT(pair) b)
{
    return (FFT(pair)){a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

/* i·a·s */
static inline FFT(pair) FFT(turn)(FFT(pair) a, REAL s)
{
    return (FFT(pair)){-s * a.im, s * a.re};
}

static inline void FFT(radix3)(FFT(pair) * x, REAL sign)
{
    const REAL half = (REAL)-0.5, sine = sign * (REAL)0.86602540378443864676;
    FFT(pair) sum = FFT(add)(x[1], x[2]), difference = FFT(turn)(FFT(sub)(x[1], x[2]), sine);
    FFT(pair) middle = {x[0].re + half * sum.re, x[0].im + half * sum.im};
    x[0] = FFT(add)(x[0], sum);
    x[1] = FFT(add)(middle, difference);
    x[2] = FFT(sub)(middle, difference);
}

static inline void FFT(radix4)(FFT(pair) * x, REAL sign)
{
    FFT(pair) even = FFT(add)(x[0], x[2]), even_gap = FFT(sub)(x[0], x[2]);
    FFT(pair) odd = FFT(add)(x[1], x[3]), odd_gap = FFT(turn)(FFT(sub)(x[1], x[3]), sign);
    x[0] = FFT(add)(even, odd);
    x[1] = FFT(add)(even_gap, odd_gap);
    x[2] = FFT(sub)(even, odd);
    x[3] = FFT(sub)(even_gap, odd_gap);
}

static inline void FFT(radix5)(FFT(pair) * x, REAL sign)
{
    const REAL c1 = (REAL)0.30901699437494742410, s1 = sign * (REAL)0.95105651629515357212;
    const REAL c2 = (REAL)-0.80901699437494742410, s2 = sign * (REAL)0.58778525229247312917;
    FFT(pair) a = FFT(add)(x[1], x[4]), d = FFT(sub)(x[1], x[4]);
    FFT(pair) b = FFT(add)(x[2], x[3]), e = FFT(sub)(x[2], x[3]);
    FFT(pair) near = {x[0].re + c1 * a.re + c2 * b.re, x[0].im + c1 * a.im + c2 * b.im};
    FFT(pair) far = {x[0].re + c2 * a.re + c1 * b.re, x[0].im + c2 * a.im + c1 * b.im};
    FFT(pair) near_turn = {-(s1 * d.im + s2 * e.im), s1 * d.re + s2 * e.re};
    FFT(pair) far_turn = {-(s2 * d.im - s1 * e.im), s2 * d.re - s1 * e.re};
    x[0] = FFT(add)(FFT(add)(x[0], a), b);
    x[1] = FFT(add)(near, near_turn);
    x[4] = FFT(sub)(near, near_turn);
    x[2] = FFT(add)(far, far_turn);
    x[3] = FFT(sub)(far, far_turn);
}

/* The roots are those of n = p·step. */
static inline void FFT(radix_any)(FFT(pair) * x, uint32_t p, const FFT(pair) * roots, int64_t step,
                                  REAL sign)
{
    FFT(pair) y[FFT_LARGEST];
    for (uint32_t m = 0; m < p; m++) {
        y[m] = x[0];
        for (uint32_t j = 1; j < p; j++) {
            FFT(pair) w = roots[(int64_t)(j * m % p) * step];
            w.im *= sign;
            y[m] = FFT(add)(y[m], FFT(mul)(x[j], w));
        }
    }
    for (uint32_t m = 0; m < p; m++)
        x[m] = y[m];
}

static void FFT(pass)(const FFT(pair) * from, FFT(pair) * to, uint32_t p, int64_t done,
                      int64_t inner, const FFT(pair) * roots, REAL sign)
{
    FFT(pair) x[FFT_LARGEST];
    for (int64_t k = 0; k < done; k++)
        for (int64_t i = 0; i < inner; i++) {
            for (uint32_t j = 0; j < p; j++)
                x[j] = from[i + inner * (j + p * k)];
            if (p == 2) {
                FFT(pair) t = x[1];
                x[1] = FFT(sub)(x[0], t);
                x[0] = FFT(add)(x[0], t);
            } else if (p == 3) {
                FFT(radix3)(x, sign);
            } else if (p == 4) {
                FFT(radix4)(x, sign);
            } else if (p == 5) {
                FFT(radix5)(x, sign);
            } else {
                FFT(radix_any)(x, p, roots, done * inner, sign);
            }
            for (uint32_t m = 0; m < p; m++) {
                FFT(pair) w = roots[i && m ? m * i * done : 0];
                w.im *= sign;
                to[i + inner * (k + done * m)] = i && m ? FFT(mul)(x[m], w) : x[m];
            }
        }
}

/* x[n] in place; work[n]. Roots are e^(+2πi·t/n). */
static void FFT(transform)(FFT(pair) * x, FFT(pair) * work, int64_t n, uint32_t n_factors,
                           const uint32_t *factors, const FFT(pair) * roots, bool inverse)
{
    FFT(pair) *from = x, *to = work;
    int64_t done = 1;
    for (uint32_t f = 0; f < n_factors; f++) {
        FFT(pass)(from, to, factors[f], done, n / done / factors[f], roots, inverse ? 1 : -1);
        done *= factors[f];
        FFT(pair) *t = from;
        from = to;
        to = t;
    }
    if (from != x)
        for (int64_t i = 0; i < n; i++)
            x[i] = from[i];
}

/* e^(±2πi·jk/n) = chirp[j]·chirp[k]·conj(chirp[k−j]) with chirp[j] = e^(±πi·j²/n). `a[m]` and
 * work[m] are the smooth length's; `filter` is the transform of the conjugate chirp, divided by m.
 */
static void FFT(convolve)(FFT(pair) * x, int64_t n, FFT(pair) * a, FFT(pair) * work, int64_t m,
                          uint32_t n_factors, const uint32_t *factors, const FFT(pair) * roots,
                          const FFT(pair) * chirp, const FFT(pair) * filter, bool inverse)
{
    REAL sign = inverse ? 1 : -1; /* the chirp is stored for the inverse; forward is conjugate */
    for (int64_t j = 0; j < m; j++)
        a[j] = (FFT(pair)){0, 0};
    for (int64_t j = 0; j < n; j++)
        a[j] = FFT(mul)((FFT(pair)){x[j].re, sign * x[j].im}, chirp[j]);
    FFT(transform)(a, work, m, n_factors, factors, roots, false);
    for (int64_t j = 0; j < m; j++)
        a[j] = FFT(mul)(a[j], filter[j]);
    FFT(transform)(a, work, m, n_factors, factors, roots, true);
    for (int64_t j = 0; j < n; j++) {
        x[j] = FFT(mul)(a[j], chirp[j]);
        x[j].im *= sign;
    }
}
