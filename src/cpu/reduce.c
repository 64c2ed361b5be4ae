/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/reduce.h"

/* Is `a` before `b` as the winner so far? A NaN wins over numbers, the first one stays. */
static inline bool beats(const cpu_argmax_args *p, float a, float b)
{
    if (b != b)
        return false;
    if (a != a)
        return true;
    float x = p->smallest ? b : a, y = p->smallest ? a : b;
    return p->last ? x >= y : x > y;
}

void cpu_argmax_f32(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_argmax_args *p = args;
    int64_t all = p->outer * p->inner;
    int64_t last = end * p->tile < all ? end * p->tile : all;
    for (int64_t t = begin * p->tile; t < last; t++) {
        const float *x = p->x + t / p->inner * p->length * p->inner + t % p->inner;
        int64_t best = 0;
        for (int64_t l = 1; l < p->length; l++)
            if (beats(p, x[l * p->inner], x[best * p->inner]))
                best = l;
        p->y[t] = best;
    }
}
