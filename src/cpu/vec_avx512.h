/* SPDX-License-Identifier: Apache-2.0
 * The vector vocabulary of kernel bodies (*.inc), for AVX-512. A body is written once over these
 * names and compiled once per ISA; vec_avx2.h and vec_portable.h define the same names. */
#ifndef CPU_VEC_AVX512_H
#define CPU_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define CPU_NAME(name) name##_avx512
#define CPU_ISA_TEXT "avx512"
enum { VL = 16, GEMM_MR = 14 };

typedef __m512 vf;
typedef int32_t vi __attribute__((vector_size(64)));
typedef uint32_t vu __attribute__((vector_size(64)));
typedef __mmask16 vm;

static inline vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
static inline vf vf_zero(void)
{
    return _mm512_setzero_ps();
}
static inline vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
static inline void vf_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
/* Read once, though several instructions want it: the compiler would let each read memory, and of
 * whole vectors one is read in a cycle. */
static inline __attribute__((always_inline)) vf vf_load_once(const float *p)
{
    vf v = _mm512_loadu_ps(p);
    __asm__("" : "+v"(v));
    return v;
}
/* The first n (0…VL) elements; the others read as 0 and are not written. */
static inline vf vf_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static inline void vf_store_n(float *p, vf v, int64_t n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf vf_fnma(vf a, vf b, vf c) /* c - a·b */
{
    return _mm512_fnmadd_ps(a, b, c);
}
/* When either is NaN the result is b: put the operand whose NaN must survive second. */
static inline vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
static inline vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
static inline vf vf_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}
static inline vf vf_abs(vf a)
{
    return _mm512_abs_ps(a);
}
static inline vf vf_neg(vf a)
{
    return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f));
}
static inline vf vf_round(vf a) /* to nearest, ties to even */
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf vf_floor(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
static inline vf vf_ceil(vf a)
{
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
/* x · 2^n for integral n, correct into the subnormals and to infinity. */
static inline vf vf_scale(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}
/* … and 0 where `gone`, which takes no part in it: results below 2^-126 take Intel's processors a
 * hundred cycles. */
static inline vf vf_scale_unless(vm gone, vf x, vf n)
{
    return _mm512_maskz_scalef_ps((__mmask16)~gone, x, n);
}
static inline vi vf_to_int(vf a) /* rounds to nearest */
{
    return (vi)_mm512_cvtps_epi32(a);
}
static inline vf vf_from_int(vi a)
{
    return _mm512_cvtepi32_ps((__m512i)a);
}
static inline vm vf_lt(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static inline vm vf_le(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
static inline vm vf_eq(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
static inline vm vf_isnan(vf a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}
static inline vf vf_select(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
static inline vm vm_or(vm a, vm b)
{
    return (vm)(a | b);
}
static inline int vm_any(vm m)
{
    return m != 0;
}
/* One byte (0 or 1) per element, and back. */
static inline void vm_store_bytes(uint8_t *p, vm m)
{
    _mm_storeu_si128((__m128i *)p, _mm_maskz_set1_epi8(m, 1));
}
static inline vm vm_load_bytes(const uint8_t *p)
{
    __m128i bytes = _mm_loadu_si128((const __m128i *)p);
    return _mm_test_epi8_mask(bytes, bytes);
}
static inline float vf_sum(vf a)
{
    return _mm512_reduce_add_ps(a);
}
static inline float vf_hmax(vf a)
{
    return _mm512_reduce_max_ps(a);
}
static inline float vf_hmin(vf a)
{
    return _mm512_reduce_min_ps(a);
}
static inline vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
static inline void vf_store_f16(uint16_t *p, vf v)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline vf vf_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
/* VL elements of a followed by b, from element 1 or 2 on. */
static inline vf vf_shift1(vf a, vf b)
{
    return _mm512_castsi512_ps(
        _mm512_alignr_epi32(_mm512_castps_si512(b), _mm512_castps_si512(a), 1));
}
static inline vf vf_shift2(vf a, vf b)
{
    return _mm512_castsi512_ps(
        _mm512_alignr_epi32(_mm512_castps_si512(b), _mm512_castps_si512(a), 2));
}
/* Elements 0, 2, 4, … and 1, 3, 5, … of a followed by b. */
static inline void vf_deinterleave(vf a, vf b, vf *even, vf *odd)
{
    const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b);
}
/* a0 b0 a1 b1 …, the first half of it and the second. */
static inline void vf_interleave(vf a, vf b, vf *low, vf *high)
{
    const __m512i l = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *low = _mm512_permutex2var_ps(a, l, b);
    *high = _mm512_permutex2var_ps(a, _mm512_add_epi32(l, _mm512_set1_epi32(8)), b);
}
/* |x|, but no more than `most`; most where x is NaN. */
static inline vf vf_abs_up_to(vf x, vf most)
{
    return _mm512_range_ps(x, most, 0xa);
}
/* Of 32 elements those whose numbers are the low five bits of `at`. */
static inline vf vf_look32(vf low, vf high, vf at)
{
    return _mm512_permutex2var_ps(low, _mm512_castps_si512(at), high);
}
/* x less the next multiple of 1/32; the even one of two. */
static inline vf vf_rest32(vf x)
{
    return _mm512_reduce_ps(x, 5 << 4);
}
/* The elements of pairs, first and second ones, of a and b: in each lane of four a's before b's. */
static inline void vf_split_pairs(vf a, vf b, vf *first, vf *second)
{
    *first = _mm512_shuffle_ps(a, b, 0x88);
    *second = _mm512_shuffle_ps(a, b, 0xdd);
}
/* The first half of a, then that of b. */
static inline vf vf_halves(vf a, vf b)
{
    return _mm512_shuffle_f32x4(a, b, 0x44);
}
/* The first element everywhere. */
static inline vf vf_first(vf a)
{
    return _mm512_broadcastss_ps(_mm512_castps512_ps128(a));
}
/* The elements of each pair change places. */
static inline vf vf_swap(vf a)
{
    return _mm512_permute_ps(a, 0xb1);
}
/* v + *x, v - *x, v · *x, v · *x + c and v · f + *c. The compiler would keep *x in a register, and
 * filling one takes the pipe that adds; as an operand in memory it costs nothing. */
static inline __attribute__((always_inline)) vf vf_add_at(vf v, const float *x)
{
    vf y;
    __asm__("vaddps %2%{1to16%}, %1, %0" : "=v"(y) : "v"(v), "m"(*x));
    return y;
}
static inline __attribute__((always_inline)) vf vf_sub_at(vf v, const float *x)
{
    vf y;
    __asm__("vsubps %2%{1to16%}, %1, %0" : "=v"(y) : "v"(v), "m"(*x));
    return y;
}
static inline __attribute__((always_inline)) vf vf_mul_at(vf v, const float *x)
{
    vf y;
    __asm__("vmulps %2%{1to16%}, %1, %0" : "=v"(y) : "v"(v), "m"(*x));
    return y;
}
static inline __attribute__((always_inline)) vf vf_fma_at(vf v, const float *x, vf c)
{
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(v), "m"(*x));
    return c;
}
/* c[v] += *x · y[v] of two vectors, *x read once. One statement: left to itself the compiler lets
 * sums wander from register to register. */
static inline __attribute__((always_inline)) void vf_fma_both(const float *x, const vf y[2],
                                                              vf c[2])
{
    vf s;
    __asm__("vbroadcastss %[x], %[s]\n\t"
            "vfmadd231ps %[s], %[y0], %[c0]\n\t"
            "vfmadd231ps %[s], %[y1], %[c1]"
            : [c0] "+&v"(c[0]), [c1] "+v"(c[1]), [s] "=&v"(s)
            : [x] "m"(*x), [y0] "v"(y[0]), [y1] "v"(y[1]));
}
static inline __attribute__((always_inline)) vf vf_fma_plus(vf v, vf f, const float *c)
{
    __asm__("vfmadd213ps %2%{1to16%}, %1, %0" : "+v"(v) : "v"(f), "m"(*c));
    return v;
}
/* The sums, and the largest elements, of n ≤ VL vectors side by side. */
#define VF_FOLD(name, op)                                                                          \
    static inline __attribute__((always_inline)) vf name(const float x[][VL], const int n)         \
    {                                                                                              \
        vf a[8], b[4], c[2];                                                                       \
        for (int i = 0; i < 8; i++) {                                                              \
            a[i] = vf_zero();                                                                      \
            if (2 * i < n) {                                                                       \
                vf p = vf_load(x[2 * i]), q = 2 * i + 1 < n ? vf_load(x[2 * i + 1]) : vf_zero();   \
                a[i] = op(_mm512_unpacklo_ps(p, q), _mm512_unpackhi_ps(p, q));                     \
            }                                                                                      \
        }                                                                                          \
        for (int i = 0; i < 4; i++) {                                                              \
            vf p = a[2 * i], q = a[2 * i + 1];                                                     \
            b[i] = p;                                                                              \
            if (4 * i < n)                                                                         \
                b[i] = op(_mm512_shuffle_ps(p, q, 0x44), _mm512_shuffle_ps(p, q, 0xee));           \
        }                                                                                          \
        for (int i = 0; i < 2; i++) {                                                              \
            vf p = b[2 * i], q = b[2 * i + 1];                                                     \
            c[i] = op(_mm512_shuffle_f32x4(p, q, 0x88), _mm512_shuffle_f32x4(p, q, 0xdd));         \
        }                                                                                          \
        return op(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd)); \
    }
VF_FOLD(vf_sums, _mm512_add_ps)
VF_FOLD(vf_tops, _mm512_max_ps)
#undef VF_FOLD
/* The sums of VL vectors two by two, and then of what became of all pairs of them. */
static inline __attribute__((always_inline)) vf vf_sums_two(vf p, vf q)
{
    return _mm512_unpacklo_ps(p, q) + _mm512_unpackhi_ps(p, q);
}
static inline __attribute__((always_inline)) vf vf_sums_end(const vf a[VL / 2])
{
    vf b[4], c[2];
    for (int i = 0; i < 4; i++)
        b[i] = _mm512_shuffle_ps(a[2 * i], a[2 * i + 1], 0x44) +
               _mm512_shuffle_ps(a[2 * i], a[2 * i + 1], 0xee);
    for (int i = 0; i < 2; i++)
        c[i] = _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88) +
               _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd);
    return _mm512_shuffle_f32x4(c[0], c[1], 0x88) + _mm512_shuffle_f32x4(c[0], c[1], 0xdd);
}
/* y[i][j] = x[j][i], VL by VL, rows xs and ys elements apart. Rows of y are stored in their order:
 * where they overlap the later one stays. */
static inline void vf_transpose(const float *x, int64_t xs, float *y, int64_t ys)
{
    __m512 r[16], t[16];
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_loadu_ps(x + i * xs);
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++)
        _mm512_storeu_ps(y + i * ys, _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88));
    for (int i = 0; i < 8; i++)
        _mm512_storeu_ps(y + (i + 8) * ys, _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd));
}

#endif
