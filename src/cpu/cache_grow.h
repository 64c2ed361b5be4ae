/* SPDX-License-Identifier: Apache-2.0
 * A cache of keys or values as a new tensor: what a batch has, then its new rows, then zeros. */
#ifndef CPU_CACHE_GROW_H
#define CPU_CACHE_GROW_H

#include "cpu/isa.h"

typedef struct cpu_cache_grow_args {
    const float *past, *fresh; /* past is dense: [batch, heads, past_rows, depth] */
    const int64_t *first;      /* how many rows of the past each batch keeps */
    float *y;                  /* dense: [batch, heads, size, depth] */
    cpu_fault *fault; /* a `first` that leaves no room is reported; its rows stay unwritten */
    int64_t heads, past_rows, fresh_rows, size, depth;
    int64_t fresh_stride[3]; /* batch, head, position */
} cpu_cache_grow_args;

/* Tile t: head t of all batches. */
void cpu_cache_grow(const void *args, uint32_t begin, uint32_t end);

#endif
