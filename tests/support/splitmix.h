/* SPDX-License-Identifier: Apache-2.0
 * The generator of the acceptance cases, S(seed): portable, exact in f32. */
#ifndef SUPPORT_SPLITMIX_H
#define SUPPORT_SPLITMIX_H

#include <stdint.h>

typedef struct splitmix {
    uint64_t state;
} splitmix;

static inline float splitmix_unit(splitmix *s)
{
    uint64_t z = s->state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (float)(z >> 40) * 0x1p-24f;
}

/* Zero mean, unit variance. */
static inline float splitmix_sym(splitmix *s)
{
    return (2 * splitmix_unit(s) - 1) * 1.7320508f;
}

static inline void splitmix_fill(splitmix *s, double *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = splitmix_sym(s);
}

#endif
