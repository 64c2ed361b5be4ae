/* SPDX-License-Identifier: Apache-2.0
 * The vector vocabulary of kernel bodies in portable C: four-wide vectors of the compiler, which
 * every 64-bit target has. See vec_avx512.h. */
#ifndef CPU_VEC_PORTABLE_H
#define CPU_VEC_PORTABLE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

#define CPU_NAME(name) name##_portable
#define CPU_ISA_TEXT "portable"
enum { VL = 4, GEMM_MR = 6 };

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef vi vm; /* all bits set or none, per element */

static inline vf vf_set1(float x)
{
    return (vf){x, x, x, x};
}
static inline vf vf_zero(void)
{
    return (vf){0, 0, 0, 0};
}
static inline vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}
static inline vf vf_load_n(const float *p, int64_t n)
{
    vf v = vf_zero();
    for (int64_t i = 0; i < n; i++)
        v[i] = p[i];
    return v;
}
static inline void vf_store_n(float *p, vf v, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = v[i];
}
static inline vf vf_fma(vf a, vf b, vf c) /* not fused: the portable level has no FMA to count on */
{
    return a * b + c;
}
static inline vf vf_fnma(vf a, vf b, vf c)
{
    return c - a * b;
}
static inline vf vf_select(vm m, vf yes, vf no)
{
    return (vf)((m & (vi)yes) | (~m & (vi)no));
}
static inline vf vf_min(vf a, vf b)
{
    return vf_select(a < b, a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return vf_select(a > b, a, b);
}
static inline vf vf_sqrt(vf a)
{
    return (vf){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])};
}
static inline vf vf_abs(vf a)
{
    return (vf)((vi)a & 0x7fffffff);
}
static inline vf vf_neg(vf a)
{
    return (vf)((vi)a ^ (int32_t)0x80000000);
}
static inline vi vf_to_int(vf a)
{
    return (vi){(int32_t)rintf(a[0]), (int32_t)rintf(a[1]), (int32_t)rintf(a[2]),
                (int32_t)rintf(a[3])};
}
static inline vf vf_from_int(vi a)
{
    return __builtin_convertvector(a, vf);
}
/* Adding and taking away 1.5·2^23 rounds values below 2^22; larger ones are integral already. */
static inline vf vf_round(vf a)
{
    vf magnitude = vf_abs(a), big = vf_set1(0x1p23f);
    vf r = (magnitude + big) - big;
    r = (vf)((vi)r | ((vi)a & (int32_t)0x80000000));
    return vf_select(magnitude < big, r, a);
}
static inline vf vf_floor(vf a)
{
    vf r = vf_round(a), lower = r - vf_set1(1);
    return vf_select(r > a, lower, r);
}
static inline vf vf_ceil(vf a)
{
    return vf_neg(vf_floor(vf_neg(a)));
}
static inline vf vf_pow2(vi n)
{
    return (vf)((vu)(n + 127) << 23);
}
static inline vf vf_scale(vf x, vf n)
{
    vf bounded = vf_max(vf_set1(-252), vf_min(vf_set1(252), n));
    /* NaN counts: x carries the NaN to the result, and the conversion must stay defined. */
    vi whole = __builtin_convertvector(vf_select(bounded == bounded, bounded, vf_zero()), vi);
    vi half = whole >> 1;
    return x * vf_pow2(half) * vf_pow2(whole - half);
}
static inline vm vf_lt(vf a, vf b)
{
    return a < b;
}
static inline vm vf_le(vf a, vf b)
{
    return a <= b;
}
static inline vm vf_eq(vf a, vf b)
{
    return a == b;
}
static inline vm vf_isnan(vf a)
{
    return a != a;
}
static inline vm vm_or(vm a, vm b)
{
    return a | b;
}
static inline int vm_any(vm m)
{
    return (m[0] | m[1] | m[2] | m[3]) != 0;
}
static inline void vm_store_bytes(uint8_t *p, vm m)
{
    for (int i = 0; i < 4; i++)
        p[i] = m[i] ? 1 : 0;
}
static inline vm vm_load_bytes(const uint8_t *p)
{
    return (vm){-(p[0] != 0), -(p[1] != 0), -(p[2] != 0), -(p[3] != 0)};
}
static inline float vf_sum(vf a)
{
    return (a[0] + a[2]) + (a[1] + a[3]);
}
static inline float vf_hmax(vf a)
{
    float x = a[0] > a[2] ? a[0] : a[2], y = a[1] > a[3] ? a[1] : a[3];
    return x > y ? x : y;
}
static inline float vf_hmin(vf a)
{
    float x = a[0] < a[2] ? a[0] : a[2], y = a[1] < a[3] ? a[1] : a[3];
    return x < y ? x : y;
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return (vf){half_to_f32(p[0]), half_to_f32(p[1]), half_to_f32(p[2]), half_to_f32(p[3])};
}
static inline void vf_store_f16(uint16_t *p, vf v)
{
    for (int i = 0; i < 4; i++)
        p[i] = half_encode(HALF_F16, v[i], false);
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    return (vf)((vi){p[0], p[1], p[2], p[3]} << 16);
}
static inline vf vf_shift1(vf a, vf b)
{
    return (vf){a[1], a[2], a[3], b[0]};
}
static inline vf vf_shift2(vf a, vf b)
{
    return (vf){a[2], a[3], b[0], b[1]};
}
static inline void vf_deinterleave(vf a, vf b, vf *even, vf *odd)
{
    *even = (vf){a[0], a[2], b[0], b[2]};
    *odd = (vf){a[1], a[3], b[1], b[3]};
}
static inline void vf_interleave(vf a, vf b, vf *low, vf *high)
{
    *low = (vf){a[0], b[0], a[1], b[1]};
    *high = (vf){a[2], b[2], a[3], b[3]};
}
/* The elements of pairs, first and second ones, of a and b: in each lane of four a's before b's. */
static inline void vf_split_pairs(vf a, vf b, vf *first, vf *second)
{
    vf_deinterleave(a, b, first, second);
}
/* The first half of a, then that of b. */
static inline vf vf_halves(vf a, vf b)
{
    return (vf){a[0], a[1], b[0], b[1]};
}
/* The first element everywhere. */
static inline vf vf_first(vf a)
{
    return vf_set1(a[0]);
}
/* The elements of each pair change places. */
static inline vf vf_swap(vf a)
{
    return (vf){a[1], a[0], a[3], a[2]};
}
#include "cpu/vec_plain.h"
static inline void vf_transpose(const float *x, int64_t xs, float *y, int64_t ys)
{
    for (int i = 0; i < 4; i++) {
        vf column = {x[i], x[i + xs], x[i + 2 * xs], x[i + 3 * xs]};
        vf_store(y + i * ys, column);
    }
}

#endif
