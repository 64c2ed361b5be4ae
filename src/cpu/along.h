/* SPDX-License-Identifier: Apache-2.0
 * Running sums and products, the largest elements in order, and sums of neighbours, along an axis
 * of f32. Element (o, l, i) lies at (o·length + l)·inner + i. */
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

/* y = x / (bias + alpha·Σ x²)^beta over `below` and `above` neighbours along the axis. x may be y.
 * Tile t: strip t % strips of CPU_LRN_STRIP neighbours of outer run t / strips. */
enum { CPU_LRN_STRIP = 64, CPU_LRN_SIZE = 32 };
typedef struct cpu_lrn_args {
    const float *x;
    float *y;
    int64_t outer, length, inner, strips;
    int64_t below, above; /* below + above < CPU_LRN_SIZE */
    float alpha, beta, bias;
} cpu_lrn_args;

CPU_DECLARE(cpu_lrn_f32);

#endif
