/* SPDX-License-Identifier: Apache-2.0
 * Kernels that look at whole rows: softmax and the normalisations. */
#ifndef CPU_ROWS_H
#define CPU_ROWS_H

#include <stdbool.h>

#include "cpu/isa.h"

/* Over `length` elements `inner` apart: element (o, l, i) lies at (o·length + l)·inner + i. With
 * inner 1 a tile is tile_rows rows; else it is one o and CPU_SOFTMAX_COLUMNS of the i. */
enum { CPU_SOFTMAX_COLUMNS = 64 };
typedef struct cpu_softmax_args {
    const float *x;
    float *y;
    int64_t outer, length, inner;
    int64_t tile_rows;
    bool log;
} cpu_softmax_args;

CPU_DECLARE(cpu_softmax_f32);

/* sum = x + residual; y = (sum - mean)·rstd·scale + bias over each row (rms: without the mean). */
typedef struct cpu_norm_args {
    const float *x, *residual, *scale, *bias; /* all but x may be NULL */
    float *y, *sum;                           /* sum may be NULL */
    int64_t rows, length;
    int64_t tile_rows;
    float epsilon;
    bool rms;
} cpu_norm_args;

CPU_DECLARE(cpu_norm_f32);

#endif
