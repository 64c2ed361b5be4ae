/* SPDX-License-Identifier: Apache-2.0
 * Seeded, reproducible, NOT cryptographic random numbers (weights of example models, test data).
 * Secrets never come from here: src/fss has its own generator. */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

typedef struct rng {
    uint64_t state;
} rng;

static inline rng rng_seed(uint64_t seed)
{
    return (rng){seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u};
}

/* splitmix64 */
static inline uint64_t rng_u64(rng *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [0, bound), bound > 0. */
static inline uint64_t rng_below(rng *r, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)rng_u64(r) * bound) >> 64);
}

/* Uniform in [0, 1). */
static inline double rng_f64(rng *r)
{
    return (double)(rng_u64(r) >> 11) * 0x1p-53;
}

/* Uniform in [low, high). */
static inline double rng_range(rng *r, double low, double high)
{
    return low + (high - low) * rng_f64(r);
}

/* Standard normal (Irwin-Hall of twelve would be cheaper but has no tails: Box-Muller). */
double rng_normal(rng *r);

#endif
