/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>

#include "cpu/vec_portable.h"
/* over it */
#include "cpu/vec_bytes.h"

#define QMR 4

static inline vb vb_load(const void *p)
{
    vb v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}
static inline void vb_store(void *p, vb v)
{
    __builtin_memcpy(p, &v, sizeof v);
}
static inline vb vb_high(vb v)
{
    return v >> 4;
}
static inline vb vb_two(vb v, int j)
{
    return ((v >> 2 * j) & (uint8_t)3) << 4;
}
static inline vb vb_four(const int8_t *p)
{
    vb v;
    for (int i = 0; i < 16; i++)
        v[i] = (uint8_t)p[i % 4];
    return v;
}
static inline vi vi_dot(vi acc, vb u, vb s)
{
    for (int i = 0; i < 16; i++)
        acc[i / 4] += (int32_t)u[i] * (int8_t)s[i];
    return acc;
}
static inline vi vi_dot_small(vi acc, vb u, vb s)
{
    return vi_dot(acc, u, s);
}
static inline int32_t vi_sum(vi v)
{
    int32_t sum = 0;
    for (int i = 0; i < VL; i++)
        sum += v[i];
    return sum;
}
static inline void vi_bytes(int8_t *p, vi v)
{
    for (int i = 0; i < VL; i++)
        p[i] = (int8_t)v[i];
}
static inline vf vf_u8(const uint8_t *p)
{
    vf v;
    for (int i = 0; i < VL; i++)
        v[i] = (float)p[i];
    return v;
}
static inline vf vf_i8(const int8_t *p)
{
    vf v;
    for (int i = 0; i < VL; i++)
        v[i] = (float)p[i];
    return v;
}

/* --- for images, see qimage.inc */
static inline vb vb_most(vb a, vb b)
{
    vb less = (vb)(a < b);
    return (b & less) | (a & ~less);
}
static inline void vb_interleave(vb a, vb b, vb c, vb d, vb *out)
{
    for (int i = 0; i < 16; i++) {
        vb *to = &out[i / 4];
        (*to)[i % 4 * 4] = a[i];
        (*to)[i % 4 * 4 + 1] = b[i];
        (*to)[i % 4 * 4 + 2] = c[i];
        (*to)[i % 4 * 4 + 3] = d[i];
    }
}
static inline vb vb_narrow(const vi *v)
{
    vb out;
    for (int i = 0; i < 16; i++)
        out[i] = (uint8_t)(v[i / 4][i % 4] >> 16);
    return out;
}
static inline vb vb_three(vb v)
{
    vb out = {0};
    for (int i = 0; i < 12; i++)
        out[i] = v[i / 3 * 4 + i % 3];
    return out;
}
static inline vi vi_u8(const uint8_t *p)
{
    return (vi){p[0], p[1], p[2], p[3]};
}
static inline vi vi_least(vi a, vi b)
{
    vi less = a < b;
    return (a & less) | (b & ~less);
}
static inline vi vi_most(vi a, vi b)
{
    vi less = a < b;
    return (b & less) | (a & ~less);
}
static inline vi vi_least_halves(vi a, vi b)
{
    typedef uint16_t halves __attribute__((vector_size(sizeof(vi))));
    halves x = (halves)a, y = (halves)b, less = (halves)(x < y);
    return (vi)((x & less) | (y & ~less));
}
static inline bool vi_below(vi v, vi limit)
{
    return vm_any(v < limit);
}
static inline void vi_store_fixed(uint8_t *p, const vi *v, const int vectors, int64_t n, vb flip)
{
    for (int64_t i = 0; i < 4 * vectors && i < n; i++)
        p[i] = (uint8_t)(v[i / 4][i % 4] >> 16) ^ flip[0];
}

#include "cpu/qmm.inc"
/* over it */
#include "cpu/qimage.inc"
/* and over that */
#include "cpu/qturn.inc"
