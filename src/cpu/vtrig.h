/* SPDX-License-Identifier: Apache-2.0
 * Circular and hyperbolic functions and their inverses on vectors; include vmath.h first.
 *
 * Bounds over all floats, in units in the last place of the true value, held by
 * tests/cpu/test_vmath.c: sin 2, cos 2, tan 4, asin 3, acos 2, atan 3, sinh 3, cosh 3, asinh 3,
 * acosh 3, atanh 3. NaN outside of a function's domain. Odd functions keep the sign of zero.
 */
#ifndef CPU_VTRIG_H
#define CPU_VTRIG_H

#include <math.h>

/* |y| (y ≥ 0 or NaN) with the sign of x. */
static inline vf vf_with_sign(vf y, vf x)
{
    return (vf)((vu)y | ((vu)x & 0x80000000u));
}

/* y, or -y where bit 31 of `flip` is set. */
static inline vf vf_flip(vf y, vu flip)
{
    return (vf)((vu)y ^ (flip & 0x80000000u));
}

/* --- sin, cos, tan ---------------------------------------------------------------------------- */

/* From here on an argument's quarter is not known well enough: the C library's turn, one by one. */
#define VF_TURN_LIMIT 0x1p17f

/* t = n·π/2 + r for 0 ≤ t < VF_TURN_LIMIT: r, a little beyond ±π/4 at most, within an ulp even next
 * to a multiple of π/2; n's low bits in *quarter. */
#if defined(CPU_VEC_PORTABLE_H)
static inline vf vf_turn(vf t, vu *quarter)
{
    typedef double wide __attribute__((vector_size(32)));
    typedef uint64_t bits __attribute__((vector_size(32)));
    wide x = __builtin_convertvector(t, wide);
    wide lifted = x * 0.6366197723675814 + 0x1.8p52, n = lifted - 0x1.8p52;
    *quarter = __builtin_convertvector((bits)lifted, vu);
    /* π/2 in two parts: n times the first is exact. */
    return __builtin_convertvector((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34, vf);
}
#else
static inline vf vf_turn(vf t, vu *quarter)
{
    vf n = vf_round(t * vf_set1(6.366197467e-01f));
    *quarter = (vu)vf_to_int(n);
    /* The first difference is exact: a multiple of 2^-23 (or t itself) below 1. */
    vf r = vf_fnma(n, vf_set1(1.570796371e+00f), t);
    r = vf_fnma(n, vf_set1(-4.371138829e-08f), r);
    return vf_fnma(n, vf_set1(-1.715124510e-15f), r);
}
#endif

/* For |r| ≤ 0.83. */
static inline vf vf_sin_near(vf r, vf u)
{
    vf p = vf_set1(2.713735284e-06f);
    p = vf_fma(p, u, vf_set1(-1.983882685e-04f));
    p = vf_fma(p, u, vf_set1(8.333328180e-03f));
    p = vf_fma(p, u, vf_set1(-1.666666716e-01f));
    return vf_fma(p, u * r, r);
}
static inline vf vf_cos_near(vf u)
{
    vf p = vf_set1(2.438966658e-05f);
    p = vf_fma(p, u, vf_set1(-1.388692064e-03f));
    p = vf_fma(p, u, vf_set1(4.166663811e-02f));
    return vf_fma(p * u, u, vf_fma(u, vf_set1(-0.5f), vf_set1(1.0f)));
}

static inline vm vf_odd(vu n)
{
    return vf_lt(vf_zero(), (vf)(n << 31 >> 1)); /* 2.0 or 0.0 */
}

/* y where |x| is below VF_TURN_LIMIT, else f(x). */
static __attribute__((noinline)) vf vf_turn_far(vf y, vf x, float (*f)(float))
{
    float from[VL], to[VL];
    vf_store(from, x);
    vf_store(to, y);
    for (int i = 0; i < VL; i++)
        if (fabsf(from[i]) >= VF_TURN_LIMIT)
            to[i] = f(from[i]);
    return vf_load(to);
}
static inline vm vf_is_far(vf t)
{
    return vf_le(vf_set1(VF_TURN_LIMIT), t);
}

/* sin(r + quarter·π/2) */
static inline vf vf_sin_of_turn(vf r, vu quarter)
{
    vf u = r * r;
    vf y = vf_select(vf_odd(quarter), vf_cos_near(u), vf_sin_near(r, u));
    return vf_flip(y, quarter << 30);
}

static inline vf vf_sin(vf x)
{
    vu quarter;
    vf t = vf_abs(x), r = vf_turn(t, &quarter);
    vf y = vf_flip(vf_sin_of_turn(r, quarter), (vu)x);
    return vm_any(vf_is_far(t)) ? vf_turn_far(y, x, sinf) : y;
}

static inline vf vf_cos(vf x)
{
    vu quarter;
    vf t = vf_abs(x), r = vf_turn(t, &quarter), y = vf_sin_of_turn(r, quarter + 1u);
    return vm_any(vf_is_far(t)) ? vf_turn_far(y, x, cosf) : y;
}

/* sin / cos, or -cos / sin. */
static inline vf vf_tan(vf x)
{
    vu quarter;
    vf t = vf_abs(x), r = vf_turn(t, &quarter), u = r * r;
    vf s = vf_sin_near(r, u), c = vf_cos_near(u);
    vm odd = vf_odd(quarter);
    vf y = vf_flip(vf_select(odd, c, s) / vf_select(odd, s, c), quarter << 31 ^ (vu)x);
    return vm_any(vf_is_far(t)) ? vf_turn_far(y, x, tanf) : y;
}

/* --- asin, acos, atan ------------------------------------------------------------------------- */

/* π/2 and π are sums of two floats. */
#define VF_HALF_PI 1.570796371e+00f
#define VF_HALF_PI_REST (-4.371138829e-08f)
#define VF_PI 3.141592741e+00f
#define VF_PI_REST (-8.742277657e-08f)

/* asin t for 0 ≤ t ≤ ½, else asin √((1 - t)/2), which is half of acos t. NaN beyond 1. */
static inline vf vf_asin_near(vf t, vm small)
{
    vf half = vf_set1(0.5f);
    vf u = vf_select(small, t * t, (vf_set1(1.0f) - t) * half);
    vf s = vf_select(small, t, vf_sqrt(u));
    vf p = vf_set1(4.216928780e-02f);
    p = vf_fma(p, u, vf_set1(2.417787537e-02f));
    p = vf_fma(p, u, vf_set1(4.547068477e-02f));
    p = vf_fma(p, u, vf_set1(7.495295256e-02f));
    p = vf_fma(p, u, vf_set1(1.666675210e-01f));
    return vf_fma(p * u, s, s);
}

static inline vf vf_asin(vf x)
{
    vf t = vf_abs(x);
    vm small = vf_le(t, vf_set1(0.5f));
    vf a = vf_asin_near(t, small);
    vf large = vf_set1(VF_HALF_PI) - (a + a - vf_set1(VF_HALF_PI_REST));
    return vf_with_sign(vf_select(small, a, large), x);
}

static inline vf vf_acos(vf x)
{
    vf t = vf_abs(x);
    vm small = vf_le(t, vf_set1(0.5f)), negative = vf_lt(x, vf_zero());
    vf a = vf_asin_near(t, small), twice = a + a;
    vf near = vf_set1(VF_HALF_PI) - (vf_flip(a, (vu)x) - vf_set1(VF_HALF_PI_REST));
    vf left = vf_set1(VF_PI) - (twice - vf_set1(VF_PI_REST));
    return vf_select(small, near, vf_select(negative, left, twice));
}

/* |x| beyond tan 3π/8 by -1/|x|, beyond tan π/8 by (|x| - 1)/(|x| + 1), a quarter or an eighth of a
 * turn away. */
static inline vf vf_atan(vf x)
{
    vf t = vf_abs(x), one = vf_set1(1.0f), zero = vf_zero();
    vm middle = vf_lt(vf_set1(4.142135680e-01f), t), large = vf_lt(vf_set1(2.414213657e+00f), t);
    vf above = vf_select(large, vf_set1(-1.0f), vf_select(middle, t - one, t));
    vf below = vf_select(large, t, vf_select(middle, t + one, one));
    vf base =
        vf_select(large, vf_set1(VF_HALF_PI), vf_select(middle, vf_set1(VF_HALF_PI / 2), zero));
    vf rest = vf_select(large, vf_set1(VF_HALF_PI_REST),
                        vf_select(middle, vf_set1(VF_HALF_PI_REST / 2), zero));
    vf s = above / below, u = s * s;
    vf p = vf_set1(-6.077990308e-02f);
    p = vf_fma(p, u, vf_set1(1.059372649e-01f));
    p = vf_fma(p, u, vf_set1(-1.424352229e-01f));
    p = vf_fma(p, u, vf_set1(1.999847144e-01f));
    p = vf_fma(p, u, vf_set1(-3.333331645e-01f));
    return vf_with_sign(base + (vf_fma(p * u, s, s) + rest), x);
}

/* --- hyperbolic ------------------------------------------------------------------------------- */

/* e^t / 2 for t ≥ 0, which is finite wherever sinh and cosh are. */
static inline vf vf_half_exp(vf t)
{
    vf r, n = vf_exp_reduce(vf_min(vf_set1(104.0f), t), &r);
    vf p = vf_fma(vf_exp_tail(r), r * r, r) + vf_set1(1.0f);
    return vf_scale(p, n - vf_set1(1.0f));
}

static inline vf vf_sinh(vf x)
{
    vf t = vf_abs(x), u = t * t, e = vf_half_exp(t);
    vf p = vf_set1(2.816951337e-06f);
    p = vf_fma(p, u, vf_set1(1.983615948e-04f));
    p = vf_fma(p, u, vf_set1(8.333349600e-03f));
    p = vf_fma(p, u, vf_set1(1.666666716e-01f));
    vf small = vf_fma(p * u, t, t), large = e - vf_set1(0.25f) / e;
    return vf_with_sign(vf_select(vf_lt(t, vf_set1(1.0f)), small, large), x);
}

static inline vf vf_cosh(vf x)
{
    vf e = vf_half_exp(vf_abs(x));
    return e + vf_set1(0.25f) / e;
}

/* log(1 + z) for z ≥ 0; what 1 + z rounds away is put back. */
static inline vf vf_log1p(vf z)
{
    vf one = vf_set1(1.0f), u = one + z, y = vf_log(u) + (z - (u - one)) / u;
    return vf_select(vf_eq(z, vf_set1(__builtin_inff())), z, y);
}

/* asinh and acosh of t, which is asked for beyond 2^30: log 2t; else log(1 + z). */
static inline vf vf_log_twice(vf t, vf z)
{
    vm large = vf_lt(vf_set1(0x1p30f), t);
    vf doubled = vf_select(large, vf_set1(6.931471825e-01f), vf_zero());
    return vf_log1p(vf_select(large, t, z)) + doubled;
}

/* log(t + √(t² + 1)), its distance from 1 kept relative to its own size. */
static inline vf vf_asinh(vf x)
{
    vf t = vf_abs(x), one = vf_set1(1.0f), u = t * t;
    vf z = t + u / (one + vf_sqrt(one + u));
    return vf_with_sign(vf_log_twice(t, z), x);
}

static inline vf vf_acosh(vf x)
{
    vf d = x - vf_set1(1.0f), z = d + vf_sqrt(d * (d + vf_set1(2.0f)));
    vf y = vf_log_twice(x, z);
    return vf_select(vf_lt(x, vf_set1(1.0f)), vf_set1(__builtin_nanf("")), y);
}

static inline vf vf_atanh(vf x)
{
    vf t = vf_abs(x), z = (t + t) / (vf_set1(1.0f) - t);
    return vf_with_sign(vf_set1(0.5f) * vf_log1p(z), x);
}

#endif
