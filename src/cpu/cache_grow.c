/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cache_grow.h"

#include <string.h>

static void grow_head(const cpu_cache_grow_args *p, int64_t first, const float *past,
                      const float *fresh, float *y)
{
    size_t row = (size_t)p->depth * sizeof *y;
    int64_t kept = first < p->past_rows ? first : p->past_rows, end = first + p->fresh_rows;
    if (kept > 0)
        memcpy(y, past, (size_t)kept * row);
    memset(y + kept * p->depth, 0, (size_t)(first - kept) * row);
    for (int64_t i = 0; i < p->fresh_rows; i++)
        memcpy(y + (first + i) * p->depth, fresh + i * p->fresh_stride[2], row);
    memset(y + end * p->depth, 0, (size_t)(p->size - end) * row);
}

void cpu_cache_grow(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_cache_grow_args *p = args;
    for (uint32_t t = begin; t < end; t++) {
        int64_t b = t / p->heads, h = t % p->heads, first = p->first[b];
        if (first < 0 || first > p->size - p->fresh_rows) {
            cpu_report(p->fault, CPU_FAULT_VALUE, first);
            return;
        }
        grow_head(p, first, p->past + t * p->past_rows * p->depth,
                  p->fresh + b * p->fresh_stride[0] + h * p->fresh_stride[1],
                  p->y + t * p->size * p->depth);
    }
}
