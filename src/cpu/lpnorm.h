/* SPDX-License-Identifier: Apache-2.0
 * Lines of f32 divided by their lengths. */
#ifndef CPU_LPNORM_H
#define CPU_LPNORM_H

#include <stdbool.h>

#include "cpu/isa.h"

/* y = x / √Σx², or x / Σ|x|, over `length` elements `inner` apart; zeros stay zeros. Element
 * (o, l, i) lies at (o·length + l)·inner + i; x may be y. With inner 1 a tile is `tile` lines; else
 * it is one o and CPU_LPNORM_COLUMNS of the i. */
enum { CPU_LPNORM_COLUMNS = 64 };
typedef struct cpu_lpnorm_args {
    const float *x;
    float *y;
    int64_t outer, length, inner;
    int64_t tile;
    bool absolute; /* Σ|x| */
} cpu_lpnorm_args;

CPU_DECLARE(cpu_lpnorm_f32);

#endif
