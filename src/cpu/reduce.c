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

/* Results side by side, which compilers turn into vectors: rows of the axis are walked in order. */
enum { ARGMAX_STRIP = 64 };

#define ARGMAX_STRIP_LOOP(name, compare)                                                           \
    static void name(const float *x, int64_t inner, int64_t length, int n, int64_t *y)             \
    {                                                                                              \
        float top[ARGMAX_STRIP];                                                                   \
        int32_t best[ARGMAX_STRIP] = {0};                                                          \
        for (int i = 0; i < n; i++)                                                                \
            top[i] = x[i];                                                                         \
        for (int64_t l = 1; l < length; l++) {                                                     \
            const float *row = x + l * inner;                                                      \
            for (int i = 0; i < n; i++) {                                                          \
                float a = row[i], b = top[i];                                                      \
                int wins = ((a compare b) | (a != a)) & (b == b);                                  \
                top[i] = wins ? a : b;                                                             \
                best[i] = wins ? (int32_t)l : best[i];                                             \
            }                                                                                      \
        }                                                                                          \
        for (int i = 0; i < n; i++)                                                                \
            y[i] = best[i];                                                                        \
    }
ARGMAX_STRIP_LOOP(argmax_first, >)
ARGMAX_STRIP_LOOP(argmax_last, >=)
ARGMAX_STRIP_LOOP(argmin_first, <)
ARGMAX_STRIP_LOOP(argmin_last, <=)

static void argmax_strips(const cpu_argmax_args *p, int64_t t, int64_t last)
{
    while (t < last) {
        int64_t left = p->inner - t % p->inner, n = last - t;
        n = n < left ? n : left;
        n = n < ARGMAX_STRIP ? n : ARGMAX_STRIP;
        const float *x = p->x + t / p->inner * p->length * p->inner + t % p->inner;
        if (p->smallest)
            (p->last ? argmin_last : argmin_first)(x, p->inner, p->length, (int)n, p->y + t);
        else
            (p->last ? argmax_last : argmax_first)(x, p->inner, p->length, (int)n, p->y + t);
        t += n;
    }
}

void cpu_argmax_f32(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_argmax_args *p = args;
    int64_t all = p->outer * p->inner;
    int64_t last = end * p->tile < all ? end * p->tile : all;
    if (p->inner > 1 && p->length <= INT32_MAX) {
        argmax_strips(p, begin * p->tile, last);
        return;
    }
    for (int64_t t = begin * p->tile; t < last; t++) {
        const float *x = p->x + t / p->inner * p->length * p->inner + t % p->inner;
        int64_t best = 0;
        for (int64_t l = 1; l < p->length; l++)
            if (beats(p, x[l * p->inner], x[best * p->inner]))
                best = l;
        p->y[t] = best;
    }
}
