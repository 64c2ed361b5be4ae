/* SPDX-License-Identifier: Apache-2.0
 * For vectors too short to fold several at once; included by their vec_*.h. */
#ifndef CPU_VEC_FOLD_H
#define CPU_VEC_FOLD_H

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
