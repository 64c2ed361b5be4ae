/* SPDX-License-Identifier: Apache-2.0
 * Transcendental functions on vectors, over the names of vec_*.h (include one of those first).
 *
 * Bounds over all finite floats, in units in the last place of the true value, held by
 * tests/cpu/test_vmath.c: exp 2, tanh 4, sigmoid 4, log 3, erf 4. gelu, gelu_tanh and silu are
 * within 64 ulp of the larger of |result| and 2^-16. Results below 2^-126 are within 2^-126.
 * NaN in, NaN out. The polynomials are near-minimax fits made for these intervals.
 */
#ifndef CPU_VMATH_H
#define CPU_VMATH_H

/* (e^r - 1 - r) / r² on |r| ≤ ln2/2. */
static inline vf vf_exp_tail(vf r)
{
    vf p = vf_set1(1.392637600e-03f);
    p = vf_fma(p, r, vf_set1(8.363333082e-03f));
    p = vf_fma(p, r, vf_set1(4.166655346e-02f));
    p = vf_fma(p, r, vf_set1(1.666657606e-01f));
    return vf_fma(p, r, vf_set1(0.5f));
}

/* x = n·ln2 + r: ln2 in two parts, so that n·high is exact. */
static inline vf vf_exp_reduce(vf x, vf *r)
{
    vf n = vf_round(x * vf_set1(1.44269504f));
    vf t = vf_fnma(n, vf_set1(0.693145752f), x);
    *r = vf_fnma(n, vf_set1(1.42860677e-06f), t);
    return n;
}

/* Below it e^x is less than 2^-126, and is 0 here. */
#define VF_EXP_LEAST (-87.33654f)

static inline vf vf_exp(vf x)
{
    vf r;
    vm gone = vf_lt(x, vf_set1(VF_EXP_LEAST));
    /* Beyond ±104 the result is 0 or infinity whatever x is; the bounds keep n small. */
    vf bounded = vf_max(vf_set1(-104.0f), vf_min(vf_set1(104.0f), x));
    vf n = vf_exp_reduce(bounded, &r);
    vf p = vf_fma(vf_exp_tail(r), r * r, r) + vf_set1(1.0f);
    return vf_scale_unless(gone, p, n);
}

/* For x ≤ 0 only (softmax after taking the maximum away): no upper bound to guard. */
static inline vf vf_exp_negative(vf x)
{
    vf r;
    vm gone = vf_lt(x, vf_set1(VF_EXP_LEAST));
    vf n = vf_exp_reduce(vf_max(vf_set1(-104.0f), x), &r);
    vf p = vf_fma(vf_exp_tail(r), r * r, r) + vf_set1(1.0f);
    return vf_scale_unless(gone, p, n);
}

/* tanh x = m / (m + 2) with m = e^2x - 1 kept relative to its own size. */
static inline vf vf_tanh(vf x)
{
    vf r, y = x + x;
    vf n = vf_exp_reduce(vf_max(vf_set1(-20.0f), vf_min(vf_set1(20.0f), y)), &r);
    vf tail = vf_fma(vf_exp_tail(r), r * r, r); /* e^r - 1 */
    vf scale = vf_scale(vf_set1(1.0f), n);
    vf m = vf_fma(scale, tail, scale - vf_set1(1.0f));
    return m / (m + vf_set1(2.0f));
}

static inline vf vf_sigmoid(vf x)
{
    return vf_set1(1.0f) / (vf_set1(1.0f) + vf_exp(vf_neg(x)));
}

/* erf x / x as a polynomial in u = x², on [0, 1]. */
static inline vf vf_erf_small(vf u)
{
    vf p = vf_set1(7.875875063e-05f);
    p = vf_fma(p, u, vf_set1(-8.016864287e-04f));
    p = vf_fma(p, u, vf_set1(5.189087423e-03f));
    p = vf_fma(p, u, vf_set1(-2.685421201e-02f));
    p = vf_fma(p, u, vf_set1(1.128359472e-01f));
    p = vf_fma(p, u, vf_set1(-3.761262667e-01f));
    return vf_fma(p, u, vf_set1(1.128379166e+00f));
}

/* log erfc t on [1, 4]. */
static inline vf vf_log_erfc(vf t)
{
    vf q = vf_set1(1.637151415e-06f);
    q = vf_fma(q, t, vf_set1(-4.605804269e-05f));
    q = vf_fma(q, t, vf_set1(5.968056257e-04f));
    q = vf_fma(q, t, vf_set1(-4.759596293e-03f));
    q = vf_fma(q, t, vf_set1(2.642113601e-02f));
    q = vf_fma(q, t, vf_set1(-1.100800829e-01f));
    q = vf_fma(q, t, vf_set1(-6.318260516e-01f));
    q = vf_fma(q, t, vf_set1(-1.130233435e+00f));
    return vf_fma(q, t, vf_set1(3.201380497e-04f));
}

static inline vf vf_erf(vf x)
{
    vf t = vf_abs(x), one = vf_set1(1.0f);
    vf small = x * vf_erf_small(x * x);
    vf large = one - vf_exp_negative(vf_log_erfc(vf_min(vf_set1(4.0f), t)));
    large = vf_select(vf_lt(x, vf_zero()), vf_neg(large), large);
    return vf_select(vf_lt(one, t), large, small);
}

/* 2^x within 2 ulp, |x| ≤ 126. */
static inline vf vf_exp2_small(vf x)
{
    vf n = vf_round(x), r = x - n, u = r * r;
    vf low = vf_fma(r, vf_set1(6.931469440e-01f), vf_set1(1.000000119e+00f));
    vf middle = vf_fma(r, vf_set1(5.550713465e-02f), vf_set1(2.402212024e-01f));
    vf high = vf_fma(r, vf_set1(1.327646663e-03f), vf_set1(9.675540961e-03f));
    return vf_scale(vf_fma(vf_fma(high, u, middle), u, low), n);
}

/* 2^x within 3 ulp, |x| ≤ 126. */
#if defined(CPU_VEC_AVX512_H)
/* 2^(i/32), less what i adds to the exponent below. */
static const union {
    uint32_t bits[32];
    float x[32];
} vf_roots __attribute__((aligned(64))) = {{
    0x3f800000u, 0x3f7ecd87u, 0x3f7daac3u, 0x3f7c980fu, 0x3f7b95c2u, 0x3f7aa43au, 0x3f79c3d3u,
    0x3f78f4f0u, 0x3f7837f0u, 0x3f778d3au, 0x3f76f532u, 0x3f767043u, 0x3f75fed7u, 0x3f75a15bu,
    0x3f75583fu, 0x3f7523f6u, 0x3f7504f3u, 0x3f74fbafu, 0x3f7508a4u, 0x3f752c4du, 0x3f75672au,
    0x3f75b9beu, 0x3f76248cu, 0x3f76a81eu, 0x3f7744fdu, 0x3f77fbb8u, 0x3f78ccdfu, 0x3f79b907u,
    0x3f7ac0c7u, 0x3f7be4bau, 0x3f7d257du, 0x3f7e83b3u,
}};

/* 2^r = 1 + r·VF_NEAR_1 + r²·VF_NEAR_2 for |r| ≤ 1/64. */
#define VF_NEAR_1 6.931573437e-01f
#define VF_NEAR_2 2.402265070e-01f

/* x = n + i/32 + r, |r| ≤ 1/64: adding 1.5 · 2^18 leaves 32n + i in the low bits. 2^x is the result
 * times *rest. */
static inline vf vf_exp2_parts(vf x, vf *rest)
{
    vf magic = vf_set1(0x1.8p18f), step = x + magic, r = x - (step - magic);
    vf root = vf_look32(vf_load(vf_roots.x), vf_load(vf_roots.x + VL), step);
    vf p = vf_fma(r, vf_set1(VF_NEAR_2), vf_set1(VF_NEAR_1));
    *rest = vf_fma(p, r, vf_set1(1.0f));
    return (vf)(((vu)step << 18) + (vu)root);
}
static inline vf vf_exp2_near(vf x)
{
    vf rest, root = vf_exp2_parts(x, &rest);
    return root * rest;
}
static inline vf vf_exp2_near_plus(vf x, vf c) /* 2^x + c */
{
    vf rest, root = vf_exp2_parts(x, &rest);
    return vf_fma(root, rest, c);
}
#else
static inline vf vf_exp2_near(vf x)
{
    return vf_exp2_small(x);
}
static inline vf vf_exp2_near_plus(vf x, vf c)
{
    return vf_exp2_small(x) + c;
}
#endif

#if defined(CPU_VEC_AVX512_H)
/* Φ(-a) for a within 1/8 of i/4: [degree][i], in powers of what is beyond i/4. */
static const union {
    uint32_t bits[6][32];
    float x[6][32];
} vf_phi __attribute__((aligned(64))) = {{
    {0x3f000000u, 0x3ecd765du, 0x3e9df8a2u, 0x3e681100u, 0x3e227686u, 0x3dd85ee9u, 0x3d88d237u,
     0x3d241512u, 0x3cba5e7cu, 0x3c484927u, 0x3bcb7a73u, 0x3b434822u, 0x3ab0ef10u, 0x3a17437fu,
     0x3973ede6u, 0x38b96cadu, 0x3804d6bfu, 0x373352e4u, 0x3664039eu, 0x358882c1u, 0x3499e529u,
     0x33a350d0u, 0x32a31ea0u, 0x319951dcu, 0x308798acu, 0x2f61a687u, 0x2e30a099u, 0x2d020c32u,
     0x2bb41edbu, 0x2a6aa058u, 0x290fb569u, 0x00000000u},
    {0xbecc422au, 0xbec5f95du, 0xbeb441e8u, 0xbe9a2eafu, 0xbe77c72cu, 0xbe3b085du, 0xbe04a043u,
     0xbdb0b22au, 0xbd5d25a2u, 0xbd020170u, 0xbc8f9783u, 0xbc14fd2au, 0xbb913909u, 0xbb04f9c5u,
     0xba64c4b8u, 0xb9b8dc8eu, 0xb90c54bau, 0xb8482562u, 0xb78614c6u, 0xb6a8c328u, 0xb5c78b55u,
     0xb4dda556u, 0xb3e7477bu, 0xb2e2b5b6u, 0xb1d0c435u, 0xb0b4988au, 0xaf92c2e6u, 0xae60145du,
     0xad20b38eu, 0xabd8886au, 0xaa890adbu, 0x00000000u},
    {0xb32e9cc9u, 0x3d45f916u, 0x3db441b0u, 0x3de745d0u, 0x3df7c708u, 0x3de9ca69u, 0x3dc6f070u,
     0x3d9a9bfcu, 0x3d5d25d3u, 0x3d1241c2u, 0x3cb37d88u, 0x3c4cdc2cu, 0x3bd9d570u, 0x3b581577u,
     0x3ac82b5cu, 0x3a2d4da5u, 0x398c5357u, 0x38d4a4b3u, 0x3816d461u, 0x374861dcu, 0x36796490u,
     0x35916d53u, 0x349ef740u, 0x33a2e604u, 0x329c8453u, 0x318d06f7u, 0x306e5bd2u, 0x2f3cf225u,
     0x2e0c81d9u, 0x2cc40f03u, 0x2b805823u, 0x00000000u},
    {0x3d882cd4u, 0x3d77771fu, 0x3d344140u, 0x3cb3e00eu, 0xb4839088u, 0xbc8c4618u, 0xbcdd0a5bu,
     0xbcf2f3f7u, 0xbcdd24afu, 0xbcb00bf4u, 0xbc7b488au, 0xbc22f4e3u, 0xbbc1a20du, 0xbb53efddu,
     0xbad67badu, 0xba493f8eu, 0xb9af700bu, 0xb90e5182u, 0xb8571c8du, 0xb7979cfcu, 0xb6c786eeu,
     0xb5f54844u, 0xb50ce9f0u, 0xb4176793u, 0xb3182fccu, 0xb20f294fu, 0xb0fc25c3u, 0xafcfeefbu,
     0xaea09c1du, 0xad687225u, 0xac1d9d7bu, 0x00000000u},
    {0xb7a19f00u, 0xbc411c74u, 0xbca4a5fbu, 0xbcbb53fcu, 0xbca4cca2u, 0xbc5fd406u, 0xbbc77028u,
     0x39be2fc3u, 0x3b926730u, 0x3bc858d5u, 0x3bc20e40u, 0x3b9bafe7u, 0x3b5a0010u, 0x3b0877d4u,
     0x3a9ad820u, 0x3a209110u, 0x399904efu, 0x39068d3fu, 0x385af795u, 0x37a54df6u, 0x36e7d302u,
     0x36173d37u, 0x3537cdc8u, 0x345042eau, 0x335c2cebu, 0x3259552du, 0x314869aeu, 0x302cbc91u,
     0x2f0b3735u, 0x2dd1e890u, 0x2c941443u, 0x00000000u},
    {0xbc21b39cu, 0xbc0a1205u, 0xbb94fc7du, 0x392ff129u, 0x3b8425c1u, 0x3bc39c1eu, 0x3bbf696eu,
     0x3b8c5ac0u, 0x3b120981u, 0x39ebf0e5u, 0xba2f82ddu, 0xba92cc3fu, 0xba90816eu, 0xba616a38u,
     0xba167870u, 0xb9b19f44u, 0xb93c9afcu, 0xb8b60495u, 0xb82259e3u, 0xb7859303u, 0xb6c8c890u,
     0xb60b9d5fu, 0xb534019du, 0xb4578461u, 0xb36fef7eu, 0xb278a90fu, 0xb1701da1u, 0xb058360du,
     0xaf35aa43u, 0xae0e8340u, 0xacd0de8du, 0x00000000u},
}};

static inline vf vf_phi_at(const int degree, vf step)
{
    return vf_look32(vf_load(vf_phi.x[degree]), vf_load(vf_phi.x[degree] + VL), step);
}

/* x·Φ(x) = max(x, 0) - a·Φ(-a) with a = |x|; Φ(-a) is a polynomial per quarter: adding 1.5 · 2^21
 * leaves its number in the low bits. At a = 7.75 the product is below 1e-13 and left out. */
static inline vf vf_gelu(vf x)
{
    vf a = vf_abs_up_to(x, vf_set1(7.75f)), magic = vf_set1(0x1.8p21f), step = a + magic;
    vf r = a - (step - magic), phi = vf_phi_at(5, step);
    phi = vf_fma(phi, r, vf_phi_at(4, step));
    phi = vf_fma(phi, r, vf_phi_at(3, step));
    phi = vf_fma(phi, r, vf_phi_at(2, step));
    phi = vf_fma(phi, r, vf_phi_at(1, step));
    phi = vf_fma(phi, r, vf_phi_at(0, step));
    return vf_fnma(a, phi, vf_max(vf_zero(), x)); /* NaN: the second operand of max */
}
#else
/* x·Φ(x) = max(x, 0) - a·Φ(-a) with a = |x|; log2 Φ(-a) is a polynomial. From a = 7 on the product
 * is below 1e-11 and left out. */
static inline vf vf_gelu(vf x)
{
    vf end = vf_set1(7.0f), a = vf_min(end, vf_abs(x)), u = a * a;
    vf even = vf_set1(-2.954697493e-06f), odd = vf_set1(1.198418005e-07f);
    even = vf_fma(even, u, vf_set1(-1.085340409e-04f));
    odd = vf_fma(odd, u, vf_set1(2.864356611e-05f));
    even = vf_fma(even, u, vf_set1(7.443579845e-03f));
    odd = vf_fma(odd, u, vf_set1(-3.756316728e-04f));
    even = vf_fma(even, u, vf_set1(-4.590801001e-01f));
    odd = vf_fma(odd, u, vf_set1(-5.281430110e-02f));
    even = vf_fma(even, u, vf_set1(-9.999995232e-01f));
    odd = vf_fma(odd, u, vf_set1(-1.151124597e+00f));
    vf tail = a * vf_exp2_near(vf_fma(odd, a, even));
    tail = vf_select(vf_lt(a, end), tail, vf_zero());
    return vf_max(vf_zero(), x) - tail; /* NaN: the second operand of max */
}
#endif

/* 0.5·x·(1 + tanh(√(2/π)(x + 0.044715x³))) = x·sigmoid of twice that argument. Below -10 it is
 * nothing, and above 10 it is x. The argument times -log₂e is a·VF_TANH_1 + a³·VF_TANH_3. */
#define VF_TANH_1 (-2.302208198e+00f)
#define VF_TANH_3 (-1.029432397e-01f)
static inline vf vf_gelu_tanh(vf x)
{
    vf bounded = vf_max(vf_set1(-10.0f), x), a = vf_min(vf_set1(10.0f), bounded);
    vf q = a * vf_fma(a * a, vf_set1(VF_TANH_3), vf_set1(VF_TANH_1));
    return bounded / vf_exp2_near_plus(q, vf_set1(1.0f));
}

static inline vf vf_silu(vf x)
{
    vf bounded = vf_max(vf_set1(-87.0f), x), a = vf_min(vf_set1(87.0f), bounded);
    return bounded / vf_exp2_near_plus(a * vf_set1(-1.442695041f), vf_set1(1.0f));
}

/* Natural logarithm: x = 2^e · m with m in [√½, √2), log m = f - f²/2 + f³·P(f), f = m - 1. */
static inline vf vf_log(vf x)
{
    vm tiny = vf_lt(x, vf_set1(0x1p-126f));
    vf lifted = vf_select(tiny, x * vf_set1(0x1p24f), x);
    vu bits = (vu)lifted;
    vi shifted = (vi)(bits - 0x3f3504f3u); /* bits of √½ */
    vf e = vf_from_int(shifted >> 23) - vf_select(tiny, vf_set1(24.0f), vf_zero());
    vf m = (vf)((shifted & 0x007fffff) + 0x3f3504f3);
    vf f = m - vf_set1(1.0f);
    vf p = vf_set1(6.971611471e-02f);
    p = vf_fma(p, f, vf_set1(-1.147973385e-01f));
    p = vf_fma(p, f, vf_set1(1.168541992e-01f));
    p = vf_fma(p, f, vf_set1(-1.242568733e-01f));
    p = vf_fma(p, f, vf_set1(1.424905765e-01f));
    p = vf_fma(p, f, vf_set1(-1.666780232e-01f));
    p = vf_fma(p, f, vf_set1(2.000071575e-01f));
    p = vf_fma(p, f, vf_set1(-2.499999696e-01f));
    p = vf_fma(p, f, vf_set1(3.333333118e-01f));
    vf u = f * f;
    vf low = vf_fma(e, vf_set1(1.42860677e-06f), vf_fma(p * f, u, u * vf_set1(-0.5f)));
    vf y = vf_fma(e, vf_set1(0.693145752f), f + low);
    y = vf_select(vf_eq(x, vf_set1(__builtin_inff())), x, y);
    y = vf_select(vf_lt(x, vf_zero()), vf_set1(__builtin_nanf("")), y);
    y = vf_select(vf_eq(x, vf_zero()), vf_set1(-__builtin_inff()), y);
    return vf_select(vf_isnan(x), x, y);
}

static inline vf vf_truth(vm m)
{
    return vf_select(m, vf_set1(1.0f), vf_zero());
}

static inline vf vf_not_zero(vf a)
{
    return vf_select(vf_eq(a, vf_zero()), vf_zero(), vf_set1(1.0f));
}

static inline vf vf_sign(vf a)
{
    vf positive = vf_truth(vf_lt(vf_zero(), a)), negative = vf_truth(vf_lt(a, vf_zero()));
    return vf_select(vf_isnan(a), a, positive - negative);
}

/* e^x - 1 relative to its own size, for x ≤ 0. */
static inline vf vf_expm1(vf x)
{
    vf r;
    vf n = vf_exp_reduce(vf_max(vf_set1(-30.0f), x), &r);
    vf tail = vf_fma(vf_exp_tail(r), r * r, r);
    vf scale = vf_scale(vf_set1(1.0f), n);
    return vf_fma(scale, tail, scale - vf_set1(1.0f));
}

/* log(1 + e^x) = max(x, 0) + log(1 + e), e = e^-|x|; what 1 + e rounds away is put back. */
static inline vf vf_softplus(vf x)
{
    vf e = vf_exp_negative(vf_neg(vf_abs(x))), one = vf_set1(1.0f), u = one + e;
    return vf_max(vf_zero(), x) + (vf_log(u) + (e - (u - one)) / u);
}

static inline vf vf_hard_swish(vf x)
{
    vf gate = vf_fma(x, vf_set1(1.0f / 6.0f), vf_set1(0.5f));
    return x * vf_max(vf_zero(), vf_min(vf_set1(1.0f), gate));
}

/* Multiplies n floats where they lie. */
static inline void vf_scale_run(float *x, int64_t n, float factor)
{
    vf f = vf_set1(factor);
    int64_t i = 0;
    for (; i + VL <= n; i += VL)
        vf_store(x + i, vf_load(x + i) * f);
    if (i < n)
        vf_store_n(x + i, vf_load_n(x + i, n - i) * f, n - i);
}

#endif
