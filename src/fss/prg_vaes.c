/* SPDX-License-Identifier: Apache-2.0
 * VAES-512: eight registers of four blocks in flight, and the whole comparison walk in registers.
 */
#if defined(__x86_64__)
#include <immintrin.h>

#include "fss/dpf.h"

#define INLINE static inline __attribute__((always_inline))

INLINE __m512i sigma(__m512i x)
{
    __m512i swapped = _mm512_permutex_epi64(x, 0xB1);
    return _mm512_mask_xor_epi64(swapped, 0xAA, swapped, x);
}

INLINE void load_key(__m512i out[11], const fss_aes_key *key)
{
    for (int r = 0; r < 11; r++)
        out[r] = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i *)&key->round[r]));
}

INLINE void rounds(const __m512i key[11], __m512i *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = _mm512_xor_si512(x[i], key[0]);
    for (int r = 1; r < 10; r++)
        for (int i = 0; i < n; i++)
            x[i] = _mm512_aesenc_epi128(x[i], key[r]);
    for (int i = 0; i < n; i++)
        x[i] = _mm512_aesenclast_epi128(x[i], key[10]);
}

/* Lanes of the i-th register that hold one of n blocks. */
INLINE __mmask8 lanes_left(size_t n, size_t i)
{
    size_t left = n > 4 * i ? n - 4 * i : 0;
    return left >= 4 ? 0xff : (__mmask8)((1u << (2 * left)) - 1);
}

INLINE void apply(const __m512i k[11], int hash, const fss_block *in, fss_block *out, size_t n)
{
    __m512i x[8], s[8];
    for (; n >= 32; n -= 32, in += 32, out += 32) {
        for (int j = 0; j < 8; j++) {
            s[j] = _mm512_loadu_si512(in + 4 * j);
            x[j] = s[j] = hash ? sigma(s[j]) : s[j];
        }
        rounds(k, x, 8);
        for (int j = 0; j < 8; j++)
            _mm512_storeu_si512(out + 4 * j, hash ? _mm512_xor_si512(x[j], s[j]) : x[j]);
    }
    for (; n; in += 4, out += 4) {
        __mmask8 m = lanes_left(n, 0);
        s[0] = _mm512_maskz_loadu_epi64(m, in);
        x[0] = s[0] = hash ? sigma(s[0]) : s[0];
        rounds(k, x, 1);
        _mm512_mask_storeu_epi64(out, m, hash ? _mm512_xor_si512(x[0], s[0]) : x[0]);
        n = n > 4 ? n - 4 : 0;
    }
}

void fss_aes_vaes(const fss_aes_key *key, const fss_block *in, fss_block *out, size_t n)
{
    __m512i k[11];
    load_key(k, key);
    apply(k, 0, in, out, n);
}

void fss_hash_vaes(const fss_prg *prg, unsigned role, const fss_block *in, fss_block *out, size_t n)
{
    __m512i k[11];
    load_key(k, &prg->role[role]);
    apply(k, 1, in, out, n);
}

/* The control bit of each node, repeated over both of its quadwords. */
INLINE __mmask8 control_bits(__m512i node)
{
    return _mm512_test_epi64_mask(_mm512_unpacklo_epi64(node, node), _mm512_set1_epi64(1));
}

/* Parity of the bits of `leaf` above position x mod 128, in bit 0 of both quadwords. */
INLINE __m512i parity_above(__m512i leaf, __m512i x)
{
    __m512i shift =
        _mm512_add_epi64(_mm512_and_si512(x, _mm512_set1_epi64(127)), _mm512_set1_epi64(1));
    __m512i ones = _mm512_set1_epi64(-1);
    __m512i high =
        _mm512_max_epi64(_mm512_sub_epi64(shift, _mm512_set1_epi64(64)), _mm512_setzero_si512());
    __m512i keep = _mm512_sllv_epi64(ones, _mm512_mask_mov_epi64(shift, 0xAA, high));
    __m512i v = _mm512_and_si512(leaf, keep);
    v = _mm512_xor_si512(v, _mm512_permutex_epi64(v, 0xB1));
    v = _mm512_xor_si512(v, _mm512_srli_epi64(v, 32));
    v = _mm512_xor_si512(v, _mm512_srli_epi64(v, 16));
    v = _mm512_xor_si512(v, _mm512_srli_epi64(v, 8));
    v = _mm512_xor_si512(v, _mm512_srli_epi64(v, 4));
    v = _mm512_xor_si512(v, _mm512_srli_epi64(v, 2));
    return _mm512_xor_si512(v, _mm512_srli_epi64(v, 1));
}

/* One level's hash of eight registers of nodes, with the correction words of the lanes in t already
 * added: both they and the feed-forward ride on the last round key. */
INLINE void corrected_hash(const __m512i key[11], const __m512i *node, const __mmask8 *t,
                           const uint8_t *words, __m512i *out)
{
    __m512i last[8];
    for (int i = 0; i < 8; i++) {
        __m512i q = sigma(node[i]);
        out[i] = _mm512_xor_si512(q, key[0]);
        q = _mm512_xor_si512(q, key[10]);
        last[i] = _mm512_mask_xor_epi64(q, t[i], q, _mm512_loadu_si512(words + 64 * i));
    }
    for (int r = 1; r < 10; r++)
        for (int i = 0; i < 8; i++)
            out[i] = _mm512_aesenc_epi128(out[i], key[r]);
    for (int i = 0; i < 8; i++)
        out[i] = _mm512_aesenclast_epi128(out[i], last[i]);
}

void fss_walk_vaes(const fss_prg *prg, unsigned bits, const fss_block *roots, const uint8_t *words,
                   const uint64_t *x, uint64_t *less)
{
    const __m512i spread = _mm512_set_epi64(3, 3, 2, 2, 1, 1, 0, 0);
    __m512i key[11], s[8], y[8], path[8], parity[8];
    __mmask8 t[8];
    load_key(key, &prg->role[FSS_ROLE_TREE]);
    for (int i = 0; i < 8; i++) {
        s[i] = _mm512_loadu_si512(roots + 4 * i);
        path[i] = _mm512_permutexvar_epi64(
            spread, _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(x + 4 * i))));
        t[i] = control_bits(s[i]);
        parity[i] = _mm512_setzero_si512();
    }
    for (unsigned level = bits; level > FSS_LEAF_BITS; level--, words += FSS_LANES * 16) {
        const __m512i bit = _mm512_set1_epi64((long long)(1ull << (level - 1)));
        corrected_hash(key, s, t, words, y);
        for (int i = 0; i < 8; i++) {
            __mmask8 right = _mm512_test_epi64_mask(path[i], bit);
            __mmask8 left = _mm512_testn_epi64_mask(path[i], bit);
            /* a skipped right sibling: parity of parent and left child, in the lowest bit */
            parity[i] = _mm512_mask_ternarylogic_epi64(parity[i], left, s[i], y[i], 0x96);
            s[i] = _mm512_mask_xor_epi64(y[i], right, y[i], s[i]);
            t[i] = control_bits(s[i]);
        }
    }
    load_key(key, &prg->role[FSS_ROLE_LEAF]);
    corrected_hash(key, s, t, words, y);
    for (int i = 0; i < 8; i++) {
        __m512i v = _mm512_xor_si512(parity_above(y[i], path[i]), parity[i]);
        v = _mm512_and_si512(v, _mm512_set1_epi64(1));
        v = _mm512_permutexvar_epi64(_mm512_set_epi64(6, 4, 2, 0, 6, 4, 2, 0), v);
        _mm256_storeu_si256((__m256i *)(less + 4 * i), _mm512_castsi512_si256(v));
    }
}
#endif
