/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#include <stdbool.h>

#include "cpu/vec_avx512.h"
/* over it */
#include "cpu/vec_bytes.h"

#undef CPU_NAME
#define CPU_NAME(name) name##_vnni
#define QMR 12

static inline vb vb_load(const void *p)
{
    return (vb)_mm512_loadu_si512(p);
}
static inline void vb_store(void *p, vb v)
{
    _mm512_storeu_si512(p, (__m512i)v);
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
static inline int32_t vi_sum(vi v)
{
    return _mm512_reduce_add_epi32((__m512i)v);
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

/* --- for images, see qimage.inc */
static inline uint64_t first_bytes(int64_t n)
{
    return n >= 64 ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
}
static inline vb vb_load_n(const void *p, int64_t n)
{
    return (vb)_mm512_maskz_loadu_epi8(first_bytes(n), p);
}
static inline void vb_store_n(void *p, vb v, int64_t n)
{
    _mm512_mask_storeu_epi8(p, first_bytes(n), (__m512i)v);
}
static inline vb vb_most(vb a, vb b)
{
    return (vb)_mm512_max_epu8((__m512i)a, (__m512i)b);
}
static inline void vb_interleave(vb a, vb b, vb c, vb d, vb *out)
{
    __m512i ab = _mm512_unpacklo_epi8((__m512i)a, (__m512i)b);
    __m512i cd = _mm512_unpacklo_epi8((__m512i)c, (__m512i)d);
    out[0] = (vb)_mm512_unpacklo_epi16(ab, cd);
    out[1] = (vb)_mm512_unpackhi_epi16(ab, cd);
    ab = _mm512_unpackhi_epi8((__m512i)a, (__m512i)b);
    cd = _mm512_unpackhi_epi8((__m512i)c, (__m512i)d);
    out[2] = (vb)_mm512_unpacklo_epi16(ab, cd);
    out[3] = (vb)_mm512_unpackhi_epi16(ab, cd);
}
/* Byte 2 of four lanes, from lane 4n on of two vectors. */
#define BYTES_TWO(n) (0x0e0a0602 + 0x10101010 * (n))
/* Of four vectors; each two go where `order` says, the last two are what `last` says. */
static inline vb bytes_two(const vi *v, __m512i order, __mmask16 last)
{
    __m512i a = _mm512_permutex2var_epi8((__m512i)v[0], order, (__m512i)v[1]);
    __m512i b = _mm512_permutex2var_epi8((__m512i)v[2], order, (__m512i)v[3]);
    return (vb)_mm512_mask_mov_epi32(a, last, b);
}
static inline vb vb_narrow(const vi *v)
{
    const __m512i order = _mm512_setr_epi32(BYTES_TWO(0), BYTES_TWO(4), BYTES_TWO(0), BYTES_TWO(4),
                                            BYTES_TWO(1), BYTES_TWO(5), BYTES_TWO(1), BYTES_TWO(5),
                                            BYTES_TWO(2), BYTES_TWO(6), BYTES_TWO(2), BYTES_TWO(6),
                                            BYTES_TWO(3), BYTES_TWO(7), BYTES_TWO(3), BYTES_TWO(7));
    return bytes_two(v, order, 0xcccc);
}
static inline vb vb_three(vb v)
{
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15));
    return (vb)_mm512_shuffle_epi8((__m512i)v, order);
}
static inline vi vi_u8(const uint8_t *p)
{
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
static inline vi vi_least(vi a, vi b)
{
    return (vi)_mm512_min_epi32((__m512i)a, (__m512i)b);
}
static inline vi vi_most(vi a, vi b)
{
    return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b);
}
static inline vi vi_least_halves(vi a, vi b)
{
    return (vi)_mm512_min_epu16((__m512i)a, (__m512i)b);
}
static inline bool vi_below(vi v, vi limit)
{
    return _mm512_cmplt_epi32_mask((__m512i)v, (__m512i)limit) != 0;
}
static inline __attribute__((always_inline)) void vi_store_fixed(uint8_t *p, const vi *v,
                                                                 const int vectors, int64_t n,
                                                                 vb flip)
{
    const __m512i order = _mm512_setr_epi32(BYTES_TWO(0), BYTES_TWO(1), BYTES_TWO(2), BYTES_TWO(3),
                                            BYTES_TWO(4), BYTES_TWO(5), BYTES_TWO(6), BYTES_TWO(7),
                                            BYTES_TWO(0), BYTES_TWO(1), BYTES_TWO(2), BYTES_TWO(3),
                                            BYTES_TWO(4), BYTES_TWO(5), BYTES_TWO(6), BYTES_TWO(7));
    if (vectors == 4 && __builtin_expect(n >= 64, 1)) {
        vb_store(p, bytes_two(v, order, 0xff00) ^ flip);
        return;
    }
    if (vectors == 2 && __builtin_expect(n >= 32, 1)) {
        __m512i both = _mm512_permutex2var_epi8((__m512i)v[0], order, (__m512i)v[1]);
        _mm256_storeu_si256((__m256i *)p,
                            _mm512_castsi512_si256(_mm512_xor_si512(both, (__m512i)flip)));
        return;
    }
#pragma GCC unroll 4
    for (int k = 0; k < vectors; k++) {
        __m128i bytes = _mm512_cvtepi32_epi8(_mm512_srli_epi32((__m512i)v[k], 16));
        bytes = _mm_xor_si128(bytes, _mm512_castsi512_si128((__m512i)flip));
        if (n - 16 * k >= 16)
            _mm_storeu_si128((__m128i *)(p + 16 * k), bytes);
        else
            _mm_mask_storeu_epi8(p + 16 * k, (__mmask16)first_bytes(n - 16 * k), bytes);
    }
}

#undef BYTES_TWO

#include "cpu/qmm.inc"
/* over it */
#include "cpu/qimage.inc"
/* and over that */
#include "cpu/qturn.inc"
#endif
