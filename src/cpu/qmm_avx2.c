/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#include <stdbool.h>

#include "cpu/vec_avx2.h"
/* over it */
#include "cpu/vec_bytes.h"

#define QMR 4

static inline vb vb_load(const void *p)
{
    return (vb)_mm256_loadu_si256((const __m256i *)p);
}
static inline void vb_store(void *p, vb v)
{
    _mm256_storeu_si256((__m256i *)p, (__m256i)v);
}
static inline vb vb_high(vb v)
{
    return (vb)_mm256_and_si256(_mm256_srli_epi16((__m256i)v, 4), _mm256_set1_epi8(15));
}
static inline vb vb_two(vb v, int j)
{
    __m256i x = (__m256i)v;
    x = j == 0   ? _mm256_slli_epi16(x, 4)
        : j == 1 ? _mm256_slli_epi16(x, 2)
        : j == 3 ? _mm256_srli_epi16(x, 2)
                 : x;
    return (vb)_mm256_and_si256(x, _mm256_set1_epi8(0x30));
}
static inline vb vb_four(const int8_t *p)
{
    int32_t x;
    __builtin_memcpy(&x, p, 4);
    return (vb)_mm256_set1_epi32(x);
}
/* Pairs of products up to 2·63·128 fit the 16 bits between the two steps. */
static inline vi vi_dot_small(vi acc, vb u, vb s)
{
    __m256i pairs = _mm256_maddubs_epi16((__m256i)u, (__m256i)s);
    return acc + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
/* Pairs of whole bytes would saturate: nibble by nibble, the high ones times 16. */
static inline vi vi_dot(vi acc, vb u, vb s)
{
    __m256i high = _mm256_maddubs_epi16((__m256i)vb_high(u), (__m256i)s);
    return vi_dot_small(acc, vb_low(u), s) + (vi)_mm256_madd_epi16(high, _mm256_set1_epi16(16));
}
static inline int32_t vi_sum(vi v)
{
    __m256i x = (__m256i)v;
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
static inline void vi_bytes(int8_t *p, vi v)
{
    __m256i x = (__m256i)v;
    __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(half, half));
}
static inline vf vf_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
static inline vf vf_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* --- for images, see qimage.inc */
static inline vb vb_most(vb a, vb b)
{
    return (vb)_mm256_max_epu8((__m256i)a, (__m256i)b);
}
static inline void vb_interleave(vb a, vb b, vb c, vb d, vb *out)
{
    __m256i ab = _mm256_unpacklo_epi8((__m256i)a, (__m256i)b);
    __m256i cd = _mm256_unpacklo_epi8((__m256i)c, (__m256i)d);
    out[0] = (vb)_mm256_unpacklo_epi16(ab, cd);
    out[1] = (vb)_mm256_unpackhi_epi16(ab, cd);
    ab = _mm256_unpackhi_epi8((__m256i)a, (__m256i)b);
    cd = _mm256_unpackhi_epi8((__m256i)c, (__m256i)d);
    out[2] = (vb)_mm256_unpacklo_epi16(ab, cd);
    out[3] = (vb)_mm256_unpackhi_epi16(ab, cd);
}
/* Byte 2 of each lane. */
static inline __m256i byte_two(vi v)
{
    const char none = -1;
    const __m256i order = _mm256_setr_epi8(2, none, none, none, 6, none, none, none, 10, none, none,
                                           none, 14, none, none, none, 2, none, none, none, 6, none,
                                           none, none, 10, none, none, none, 14, none, none, none);
    return _mm256_shuffle_epi8((__m256i)v, order);
}
static inline vb vb_narrow(const vi *v)
{
    return (vb)_mm256_packus_epi16(_mm256_packus_epi32(byte_two(v[0]), byte_two(v[1])),
                                   _mm256_packus_epi32(byte_two(v[2]), byte_two(v[3])));
}
static inline vb vb_three(vb v)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15));
    return (vb)_mm256_shuffle_epi8((__m256i)v, order);
}
static inline vi vi_u8(const uint8_t *p)
{
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
static inline vi vi_least(vi a, vi b)
{
    return (vi)_mm256_min_epi32((__m256i)a, (__m256i)b);
}
static inline vi vi_most(vi a, vi b)
{
    return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b);
}
static inline vi vi_least_halves(vi a, vi b)
{
    return (vi)_mm256_min_epu16((__m256i)a, (__m256i)b);
}
static inline bool vi_below(vi v, vi limit)
{
    return vm_any((vm)(v < limit));
}
static inline __attribute__((always_inline)) void vi_store_fixed(uint8_t *p, const vi *v,
                                                                 const int vectors, int64_t n,
                                                                 vb flip)
{
#pragma GCC unroll 4
    for (int k = 0; k < vectors; k++) {
        __m256i x = byte_two(v[k]);
        __m128i half = _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
        half = _mm_xor_si128(_mm_packus_epi16(half, half), _mm256_castsi256_si128((__m256i)flip));
        int64_t left = n - 8 * k;
        if (left >= 8)
            _mm_storel_epi64((__m128i *)(p + 8 * k), half);
        else
            __builtin_memcpy(p + 8 * k, &half, left > 0 ? (size_t)left : 0);
    }
}

#include "cpu/qmm.inc"
/* over it */
#include "cpu/qimage.inc"
/* and over that */
#include "cpu/qturn.inc"
#endif
