/* SPDX-License-Identifier: Apache-2.0
 * Where there is no better way than by other names: vectors too short to fold several at once,
 * instructions without a repeated number as operand. Included by their vec_*.h. */
#ifndef CPU_VEC_PLAIN_H
#define CPU_VEC_PLAIN_H

/* x · 2^n, and 0 where `gone`, which takes no part in it: results below 2^-126 are slow. */
static inline vf vf_scale_unless(vm gone, vf x, vf n)
{
    return vf_select(gone, vf_zero(), vf_scale(x, vf_select(gone, vf_zero(), n)));
}

/* v + *x, v - *x, v · *x, v · *x + c and v · f + *c */
static inline vf vf_add_at(vf v, const float *x)
{
    return v + vf_set1(*x);
}
static inline vf vf_sub_at(vf v, const float *x)
{
    return v - vf_set1(*x);
}
static inline vf vf_mul_at(vf v, const float *x)
{
    return v * vf_set1(*x);
}
static inline vf vf_fma_at(vf v, const float *x, vf c)
{
    return vf_fma(v, vf_set1(*x), c);
}
static inline void vf_fma_both(const float *x, const vf y[2], vf c[2]) /* c[v] += *x · y[v] */
{
    c[0] = vf_fma(vf_set1(*x), y[0], c[0]);
    c[1] = vf_fma(vf_set1(*x), y[1], c[1]);
}
static inline vf vf_fma_plus(vf v, vf f, const float *c)
{
    return vf_fma(v, f, vf_set1(*c));
}

/* Read once, though several instructions want it. */
static inline vf vf_load_once(const float *p)
{
    return vf_load(p);
}

/* The sums, and the largest elements, of n ≤ VL vectors side by side. */
static inline vf vf_sums(const float x[][VL], int n)
{
    float y[VL] = {0};
    for (int i = 0; i < n; i++)
        y[i] = vf_sum(vf_load(x[i]));
    return vf_load(y);
}
static inline vf vf_tops(const float x[][VL], int n)
{
    float y[VL] = {0};
    for (int i = 0; i < n; i++)
        y[i] = vf_hmax(vf_load(x[i]));
    return vf_load(y);
}
/* The sums of VL vectors two by two, and then of what became of all pairs of them. */
static inline vf vf_sums_two(vf p, vf q)
{
    float x[VL], y[VL];
    vf_store(x, p);
    vf_store(y, q);
    for (int i = 0; i < VL; i += 2) {
        x[i] += x[i + 1];
        x[i + 1] = y[i] + y[i + 1];
    }
    return vf_load(x);
}
static inline vf vf_sums_end(const vf a[VL / 2])
{
    float x[VL], y[VL] = {0};
    for (int i = 0; i < VL / 2; i++) {
        vf_store(x, a[i]);
        for (int j = 0; j < VL; j++)
            y[2 * i + j % 2] += x[j];
    }
    return vf_load(y);
}

#endif
