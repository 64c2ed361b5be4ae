/* SPDX-License-Identifier: Apache-2.0
 * AES-NI: eight blocks in flight hide the latency of a round. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "fss/prg.h"

static inline __m128i sigma(__m128i x)
{
    __m128i swapped = _mm_shuffle_epi32(x, 0x4e);
    return _mm_xor_si128(swapped, _mm_and_si128(x, _mm_set_epi64x(-1, 0)));
}

static inline __attribute__((always_inline)) void rounds(const __m128i key[11], __m128i *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = _mm_xor_si128(x[i], key[0]);
    for (int r = 1; r < 10; r++)
        for (int i = 0; i < n; i++)
            x[i] = _mm_aesenc_si128(x[i], key[r]);
    for (int i = 0; i < n; i++)
        x[i] = _mm_aesenclast_si128(x[i], key[10]);
}

static inline void load_key(__m128i out[11], const fss_aes_key *key)
{
    for (int r = 0; r < 11; r++)
        out[r] = _mm_load_si128((const __m128i *)&key->round[r]);
}

void fss_aes_aesni(const fss_aes_key *key, const fss_block *in, fss_block *out, size_t n)
{
    __m128i k[11], x[8];
    load_key(k, key);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; j++)
            x[j] = _mm_loadu_si128((const __m128i *)(in + i + j));
        rounds(k, x, 8);
        for (int j = 0; j < 8; j++)
            _mm_storeu_si128((__m128i *)(out + i + j), x[j]);
    }
    for (; i < n; i++) {
        x[0] = _mm_loadu_si128((const __m128i *)(in + i));
        rounds(k, x, 1);
        _mm_storeu_si128((__m128i *)(out + i), x[0]);
    }
}

void fss_hash_aesni(const fss_prg *prg, unsigned role, const fss_block *in, fss_block *out,
                    size_t n)
{
    __m128i k[11], x[8], s[8];
    load_key(k, &prg->role[role]);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; j++)
            x[j] = s[j] = sigma(_mm_loadu_si128((const __m128i *)(in + i + j)));
        rounds(k, x, 8);
        for (int j = 0; j < 8; j++)
            _mm_storeu_si128((__m128i *)(out + i + j), _mm_xor_si128(x[j], s[j]));
    }
    for (; i < n; i++) {
        x[0] = s[0] = sigma(_mm_loadu_si128((const __m128i *)(in + i)));
        rounds(k, x, 1);
        _mm_storeu_si128((__m128i *)(out + i), _mm_xor_si128(x[0], s[0]));
    }
}
#endif
