/* SPDX-License-Identifier: Apache-2.0
 * Appending to a cache of keys and values; see attention.h. */
#include <string.h>

#include "cpu/attention.h"

static void append(const float *from, const int64_t *stride, float *to, int64_t positions,
                   int64_t depth)
{
    for (int64_t i = 0; i < positions; i++)
        memcpy(to + i * depth, from + i * stride[2], (size_t)depth * sizeof *to);
}

enum { LINE = 64 / sizeof(float), FIRST = 256 }; /* floats */

/* A cache begins at `run` and holds n numbers; as many as `more` will be written behind them. */
static void ask_for(const float *run, int64_t n, int64_t more)
{
    for (int64_t i = 0; i < (n < FIRST ? n : FIRST); i += LINE)
        __builtin_prefetch(run + i, 0, 2);
    for (int64_t i = n; i < n + (more < FIRST ? more : FIRST); i += LINE)
        __builtin_prefetch(run + i, 1, 3);
}

void cpu_cache_append(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_cache_args *p = args;
    int64_t length = *p->length;
    if (length < 0 || length > p->capacity - p->positions) {
        cpu_report(p->fault, CPU_FAULT_VALUE, length);
        return;
    }
    /* Attention comes next: the first rows of all heads at once, not one after another. */
    for (uint32_t t = begin; t < end; t++) {
        ask_for(p->k_cache + t * p->capacity * p->depth, length * p->depth,
                p->positions * p->depth);
        ask_for(p->v_cache + t * p->capacity * p->v_depth, length * p->v_depth,
                p->positions * p->v_depth);
    }
    for (uint32_t t = begin; t < end; t++) {
        int64_t b = t / p->heads, h = t % p->heads, row = t * p->capacity + length;
        append(p->k + b * p->k_stride[0] + h * p->k_stride[1], p->k_stride,
               p->k_cache + row * p->depth, p->positions, p->depth);
        append(p->v + b * p->v_stride[0] + h * p->v_stride[1], p->v_stride,
               p->v_cache + row * p->v_depth, p->positions, p->v_depth);
    }
}
