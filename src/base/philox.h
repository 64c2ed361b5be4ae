/* SPDX-License-Identifier: Apache-2.0
 * Philox4x32-10: random numbers as a function of (key, counter). Any element of any run can be
 * drawn alone, in any order, on any thread. NOT cryptographic. */
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include <stdint.h>

static inline void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0, p1 = UINT64_C(0xCD9E8D57) * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* A stream: `seed` is the key, `step` the run, so that no two runs share a draw. */
typedef struct philox {
    uint64_t seed, step;
} philox;

/* The two 64-bit draws number `index` of the stream. */
static inline void philox_u64(const philox *p, uint64_t index, uint64_t out[2])
{
    uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)p->step,
                           (uint32_t)(p->step >> 32)};
    uint32_t key[2] = {(uint32_t)p->seed, (uint32_t)(p->seed >> 32)}, r[4];
    philox4x32(counter, key, r);
    out[0] = r[0] | (uint64_t)r[1] << 32;
    out[1] = r[2] | (uint64_t)r[3] << 32;
}

/* Uniform in [0, 1) with 53 bits. */
static inline double philox_uniform(const philox *p, uint64_t index)
{
    uint64_t r[2];
    philox_u64(p, index, r);
    return (double)(r[0] >> 11) * 0x1p-53;
}

#endif
