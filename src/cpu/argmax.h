/* SPDX-License-Identifier: Apache-2.0
 * Where the largest (or smallest) element along an axis of f32 is. */
#ifndef CPU_ARGMAX_H
#define CPU_ARGMAX_H

#include <stdbool.h>

#include "cpu/isa.h"

/* Ties go to the first (or the last). A NaN is before every number, whichever is looked for.
 * Element (o, l, i) lies at (o·length + l)·inner + i, result (o, i) at o·inner + i. */
enum { CPU_ARGMAX_STRIP = 256 };
typedef struct cpu_argmax_args {
    const float *x;
    int64_t *y;
    int64_t outer, length, inner; /* length ≤ INT32_MAX */
    int64_t tile;                 /* results of a tile */
    bool smallest, last;
} cpu_argmax_args;

CPU_DECLARE(cpu_argmax_f32);

/* 1 where the first largest element is, else 0. With inner 1 a tile is `tile` rows; else it is one
 * o and CPU_ARGMAX_STRIP of the i. */
typedef struct cpu_hardmax_args {
    const float *x;
    float *y;
    int64_t outer, length, inner;
    int64_t tile;
} cpu_hardmax_args;

CPU_DECLARE(cpu_hardmax_f32);

#endif
