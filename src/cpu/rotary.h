/* SPDX-License-Identifier: Apache-2.0
 * Rotary embedding: pairs of each head vector are turned by the angle of their position. */
#ifndef CPU_ROTARY_H
#define CPU_ROTARY_H

#include <stdbool.h>

#include "cpu/isa.h"

/* A tile is one head of one batch. y may be x. */
typedef struct cpu_rotary_args {
    const float *x, *cosine, *sine; /* tables: [rows, half], dense */
    const int64_t *ids;             /* row of the tables for (batch, position); NULL: in order */
    float *y;
    cpu_fault *fault; /* CPU_FAULT_INDEX: an id outside the tables */
    int64_t heads, positions, depth, half, rows;
    int64_t x_stride[3], y_stride[3]; /* batch, head, position; in elements */
    bool interleaved;                 /* pairs are (2i, 2i+1), not (i, i+half) */
} cpu_rotary_args;

CPU_DECLARE(cpu_rotary_f32);

#endif
