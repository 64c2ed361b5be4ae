/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sha256.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/cpu.h"

static const uint32_t round_constant[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

/* One round; the eight words take turns instead of moving. */
static inline void round_of(uint32_t v[8], int i, uint32_t w)
{
    uint32_t a = v[(64 - i) & 7], b = v[(65 - i) & 7], c = v[(66 - i) & 7];
    uint32_t e = v[(68 - i) & 7], f = v[(69 - i) & 7], g = v[(70 - i) & 7];
    uint32_t *d = &v[(67 - i) & 7], *h = &v[(71 - i) & 7];
    uint32_t t = *h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) +
                 round_constant[i] + w;
    *d += t;
    *h = t + (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
}

static void plain_block(sha256 *s, const uint8_t *p)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] +
               (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, s->state, sizeof v);
    for (int i = 0; i < 64; i += 8) {
        round_of(v, i, w[i]);
        round_of(v, i + 1, w[i + 1]);
        round_of(v, i + 2, w[i + 2]);
        round_of(v, i + 3, w[i + 3]);
        round_of(v, i + 4, w[i + 4]);
        round_of(v, i + 5, w[i + 5]);
        round_of(v, i + 6, w[i + 6]);
        round_of(v, i + 7, w[i + 7]);
    }
    for (int i = 0; i < 8; i++)
        s->state[i] += v[i];
}

static void plain_blocks(sha256 *s, const uint8_t *p, size_t count)
{
    for (; count; count--, p += 64)
        plain_block(s, p);
}

#if defined(__x86_64__)
/* Four rounds an iteration. The instructions want the eight words as a b e f and c d g h, from the
 * highest down. */
__attribute__((target("sha,sse4.1"))) static void own_blocks(sha256 *s, const uint8_t *p,
                                                             size_t count)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const void *)s->state), 0x1b);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const void *)(s->state + 4)), 0x1b);
    __m128i abef = _mm_unpackhi_epi64(efgh, abcd), cdgh = _mm_unpacklo_epi64(efgh, abcd);
    for (; count; count--, p += 64) {
        __m128i w[4], first = abef, second = cdgh;
        for (int i = 0; i < 4; i++)
            w[i] = _mm_shuffle_epi8(_mm_loadu_si128((const void *)(p + 16 * i)), swap);
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) {
            __m128i now = w[i % 4], after = w[(i + 3) % 4];
            __m128i sum =
                _mm_add_epi32(now, _mm_loadu_si128((const void *)(round_constant + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
            now = _mm_add_epi32(_mm_sha256msg1_epu32(now, w[(i + 1) % 4]),
                                _mm_alignr_epi8(after, w[(i + 2) % 4], 4));
            w[i % 4] = _mm_sha256msg2_epu32(now, after); /* the last four are not read */
        }
        abef = _mm_add_epi32(abef, first);
        cdgh = _mm_add_epi32(cdgh, second);
    }
    abcd = _mm_unpackhi_epi64(cdgh, abef);
    efgh = _mm_unpacklo_epi64(cdgh, abef);
    _mm_storeu_si128((void *)s->state, _mm_shuffle_epi32(abcd, 0x1b));
    _mm_storeu_si128((void *)(s->state + 4), _mm_shuffle_epi32(efgh, 0x1b));
}
#else
#define own_blocks plain_blocks
#endif

static void blocks(sha256 *s, const uint8_t *p, size_t count)
{
    static atomic_int
        asked; /* 0: not yet, 1: the processor has no instructions for it, 2: it has */
    int has = atomic_load_explicit(&asked, memory_order_relaxed);
    if (!has) {
        has = 1 + cpu_detect().sha;
        atomic_store_explicit(&asked, has, memory_order_relaxed);
    }
    (has == 2 ? own_blocks : plain_blocks)(s, p, count);
}

void sha256_init(sha256 *s)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->state, start, sizeof start);
    s->length = 0;
}

void sha256_add(sha256 *s, const void *data, size_t size)
{
    const uint8_t *p = data;
    if (s->length % 64 == 0 && size >= 64) {
        size_t whole = size / 64 * 64;
        blocks(s, p, whole / 64);
        p += whole, size -= whole, s->length += whole;
    }
    while (size) {
        size_t at = s->length % 64, n = 64 - at < size ? 64 - at : size;
        memcpy(s->block + at, p, n);
        s->length += n;
        p += n;
        size -= n;
        if (at + n == 64)
            blocks(s, s->block, 1);
    }
}

void sha256_end(sha256 *s, uint8_t out[32])
{
    uint64_t bits = s->length * 8;
    uint8_t tail[72] = {0x80};
    size_t pad = (s->length % 64 < 56 ? 56 : 120) - s->length % 64;
    for (int i = 0; i < 8; i++)
        tail[pad + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(s, tail, pad + 8);
    for (int i = 0; i < 32; i++)
        out[i] = (uint8_t)(s->state[i / 4] >> (24 - 8 * (i % 4)));
}
