/* SPDX-License-Identifier: Apache-2.0
 * The vector vocabulary of kernel bodies for AVX2 + FMA + F16C; see vec_avx512.h. */
#ifndef CPU_VEC_AVX2_H
#define CPU_VEC_AVX2_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define CPU_NAME(name) name##_avx2
#define CPU_ISA_TEXT "avx2"
enum { VL = 8, GEMM_MR = 6 };

typedef __m256 vf;
typedef int32_t vi __attribute__((vector_size(32)));
typedef uint32_t vu __attribute__((vector_size(32)));
typedef __m256 vm; /* all bits set or none, per element */

static inline vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
static inline vf vf_zero(void)
{
    return _mm256_setzero_ps();
}
static inline vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
static inline void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
static inline __m256i vi_first(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf vf_load_n(const float *p, int64_t n)
{
    return _mm256_maskload_ps(p, vi_first(n));
}
static inline void vf_store_n(float *p, vf v, int64_t n)
{
    _mm256_maskstore_ps(p, vi_first(n), v);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf vf_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
static inline vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
static inline vf vf_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}
static inline vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
static inline vf vf_neg(vf a)
{
    return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f));
}
static inline vf vf_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf vf_floor(vf a)
{
    return _mm256_floor_ps(a);
}
static inline vf vf_ceil(vf a)
{
    return _mm256_ceil_ps(a);
}
static inline vi vf_to_int(vf a)
{
    return (vi)_mm256_cvtps_epi32(a);
}
static inline vf vf_from_int(vi a)
{
    return _mm256_cvtepi32_ps((__m256i)a);
}
static inline vf vf_pow2(vi n) /* n in [-126, 127] */
{
    return (vf)((vu)(n + 127) << 23);
}
/* Two steps, so that results below 2^-126 and intermediate overflow come out right. */
static inline vf vf_scale(vf x, vf n)
{
    vi whole = vf_to_int(vf_max(_mm256_set1_ps(-252.0f), vf_min(_mm256_set1_ps(252.0f), n)));
    vi half = whole >> 1;
    return x * vf_pow2(half) * vf_pow2(whole - half);
}
static inline vm vf_lt(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
static inline vm vf_le(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}
static inline vm vf_eq(vf a, vf b)
{
    return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
static inline vm vf_isnan(vf a)
{
    return _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
}
static inline vf vf_select(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, m);
}
static inline vm vm_or(vm a, vm b)
{
    return _mm256_or_ps(a, b);
}
static inline int vm_any(vm m)
{
    return _mm256_movemask_ps(m) != 0;
}
static inline void vm_store_bytes(uint8_t *p, vm m)
{
    __m256i ones = _mm256_srli_epi32(_mm256_castps_si256(m), 31);
    __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(ones), _mm256_extracti128_si256(ones, 1));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(words, words));
}
static inline vm vm_load_bytes(const uint8_t *p)
{
    __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(wide, _mm256_setzero_si256()));
}
static inline float vf_sum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline float vf_hmax(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
static inline float vf_hmin(vf a)
{
    __m128 s = _mm_min_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_min_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_min_ss(s, _mm_movehdup_ps(s)));
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline void vf_store_f16(uint16_t *p, vf v)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline vf vf_shift1(vf a, vf b)
{
    __m256i middle = _mm256_castps_si256(_mm256_permute2f128_ps(a, b, 0x21));
    return _mm256_castsi256_ps(_mm256_alignr_epi8(middle, _mm256_castps_si256(a), 4));
}
static inline vf vf_shift2(vf a, vf b)
{
    __m256i middle = _mm256_castps_si256(_mm256_permute2f128_ps(a, b, 0x21));
    return _mm256_castsi256_ps(_mm256_alignr_epi8(middle, _mm256_castps_si256(a), 8));
}
static inline void vf_deinterleave(vf a, vf b, vf *even, vf *odd)
{
    __m256 e = _mm256_shuffle_ps(a, b, 0x88), o = _mm256_shuffle_ps(a, b, 0xdd);
    *even = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(e), 0xd8));
    *odd = _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(o), 0xd8));
}
static inline void vf_interleave(vf a, vf b, vf *low, vf *high)
{
    __m256 l = _mm256_unpacklo_ps(a, b), h = _mm256_unpackhi_ps(a, b);
    *low = _mm256_permute2f128_ps(l, h, 0x20);
    *high = _mm256_permute2f128_ps(l, h, 0x31);
}
/* The elements of pairs, first and second ones, of a and b: in each lane of four a's before b's. */
static inline void vf_split_pairs(vf a, vf b, vf *first, vf *second)
{
    *first = _mm256_shuffle_ps(a, b, 0x88);
    *second = _mm256_shuffle_ps(a, b, 0xdd);
}
/* The first half of a, then that of b. */
static inline vf vf_halves(vf a, vf b)
{
    return _mm256_permute2f128_ps(a, b, 0x20);
}
/* The first element everywhere. */
static inline vf vf_first(vf a)
{
    return _mm256_broadcastss_ps(_mm256_castps256_ps128(a));
}
/* The elements of each pair change places. */
static inline vf vf_swap(vf a)
{
    return _mm256_permute_ps(a, 0xb1);
}
#include "cpu/vec_plain.h"
static inline void vf_transpose(const float *x, int64_t xs, float *y, int64_t ys)
{
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_loadu_ps(x + i * xs);
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++)
        _mm256_storeu_ps(y + i * ys, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    for (int i = 0; i < 4; i++)
        _mm256_storeu_ps(y + (i + 4) * ys, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
}

#endif
