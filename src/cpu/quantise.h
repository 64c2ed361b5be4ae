/* SPDX-License-Identifier: Apache-2.0
 * Between floats and bytes: with one scale and zero point, or with one for every place of an axis,
 * or for every block of it. */
#ifndef CPU_QUANTISE_H
#define CPU_QUANTISE_H

#include <stdbool.h>

#include "cpu/isa.h"
#include "cpu/nd.h"

enum { CPU_QUANTISE_TILE = 32768 }; /* elements of a tile */

/* Least and largest (with 0) of each tile. */
typedef struct cpu_extent_args {
    const float *x;
    float *low, *high; /* [tiles] */
    int64_t count;
} cpu_extent_args;
CPU_DECLARE(cpu_extent_f32);

/* DynamicQuantizeLinear's scale and zero point from the extents; one tile. */
typedef struct cpu_dynamic_args {
    const float *low, *high;
    float *scale;
    uint8_t *zero;
    int64_t tiles;
} cpu_dynamic_args;
void cpu_dynamic_scale(const void *args, uint32_t begin, uint32_t end);

/* y = saturate(round(x/scale) + zero); zero NULL: 0. scale 0: y is the zero point. nd's operands:
 * x and y, which lie alike, and the scale and zero point. */
typedef struct cpu_quantise_args {
    const float *x, *scale;
    const uint8_t *zero;
    uint8_t *y;
    cpu_nd nd;
    bool is_signed;
} cpu_quantise_args;
CPU_DECLARE(cpu_quantise_f32);

/* y = (x − zero)·scale */
typedef struct cpu_dequantise_args {
    const uint8_t *x;
    const float *scale;
    const uint8_t *zero;
    float *y;
    cpu_nd nd;
    bool is_signed;
} cpu_dequantise_args;
CPU_DECLARE(cpu_dequantise_f32);

#endif
