/* SPDX-License-Identifier: Apache-2.0
 * Running sums and products, and the largest elements in order, along an axis of f32. Element
 * (o, l, i) lies at (o·length + l)·inner + i. */
#ifndef CPU_ALONG_H
#define CPU_ALONG_H

#include <stdbool.h>

#include "cpu/isa.h"

/* Sums grow in double and are rounded once each. x may be y. */
typedef struct cpu_cumulate_args {
    const float *x;
    float *y;
    int64_t outer, length, inner;
    int64_t tile;  /* outer runs of a tile; with `split`: neighbours in it */
    int64_t split; /* tiles for each o; 0: a tile holds all neighbours of its outer runs */
    bool product, exclusive, reverse;
} cpu_cumulate_args;

CPU_DECLARE(cpu_cumulate_f32);

/* The first k in order of size; equal ones by index. NaN is above every number. */
typedef struct cpu_top_k_args {
    const float *x;
    float *values;
    int64_t *indices;
    int64_t outer, length, inner, k;
    int64_t tile; /* outer runs of a tile */
    bool smallest;
} cpu_top_k_args;

CPU_DECLARE(cpu_top_k_f32);

#endif
