/* SPDX-License-Identifier: Apache-2.0
 * Where there is no better way than by other names: vectors too short to fold several at once,
 * instructions without a repeated number as operand. Included by their vec_*.h. */
#ifndef CPU_VEC_PLAIN_H
#define CPU_VEC_PLAIN_H

/* v + *x, v - *x, v · *x and v · *x + c */
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

#endif
