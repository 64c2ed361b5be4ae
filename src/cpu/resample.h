/* SPDX-License-Identifier: Apache-2.0
 * Filters along one axis: y[p][o][q] = Σ_t weight[t][o]·x[p][index[t][o]][q]. */
#ifndef CPU_RESAMPLE_H
#define CPU_RESAMPLE_H

#include <stdbool.h>

#include "cpu/isa.h"

typedef struct cpu_resample_args {
    const float *x;
    float *y;
    const int32_t *index; /* [taps][out] */
    const float *weight;
    int64_t outer, in, out, inner, taps;
    /* Tile t: `tile` rows of `inner` values, over outer × out; where inner is 1, of `out` values,
     * over outer. */
    int64_t tile;
    bool copies; /* one tap, and its weight is 1 */
} cpu_resample_args;

CPU_DECLARE(cpu_resample_f32);

#endif
