/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#include "cpu/vec_avx512.h"

#undef CPU_NAME
#define CPU_NAME(name) name##_vnni
#define QMR 12

typedef uint8_t vb __attribute__((vector_size(64)));

static inline vb vb_load(const void *p)
{
    return (vb)_mm512_loadu_si512(p);
}
static inline void vb_store(void *p, vb v)
{
    _mm512_storeu_si512(p, (__m512i)v);
}
static inline vb vb_flip(vb v)
{
    return v ^ (uint8_t)0x80;
}
static inline vb vb_low(vb v)
{
    return v & (uint8_t)15;
}
static inline vb vb_high(vb v)
{
    return (vb)_mm512_and_si512(_mm512_srli_epi16((__m512i)v, 4), _mm512_set1_epi8(15));
}
static inline vb vb_two(vb v, int j)
{
    __m512i x = (__m512i)v;
    x = j == 0   ? _mm512_slli_epi16(x, 4)
        : j == 1 ? _mm512_slli_epi16(x, 2)
        : j == 3 ? _mm512_srli_epi16(x, 2)
                 : x;
    return (vb)_mm512_and_si512(x, _mm512_set1_epi8(0x30));
}
static inline vb vb_four(const int8_t *p)
{
    int32_t x;
    __builtin_memcpy(&x, p, 4);
    return (vb)_mm512_set1_epi32(x);
}
static inline vi vi_dot(vi acc, vb u, vb s)
{
    return (vi)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)u, (__m512i)s);
}
static inline vi vi_dot_small(vi acc, vb u, vb s)
{
    return vi_dot(acc, u, s);
}
static inline void vi_bytes(int8_t *p, vi v)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)v));
}
static inline vf vf_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
static inline vf vf_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}

#include "cpu/qmm.inc"
#endif
