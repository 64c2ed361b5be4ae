/* SPDX-License-Identifier: Apache-2.0
 * One step of Adam: parameter, mean and mean square in one pass. */
#ifndef CPU_ADAM_H
#define CPU_ADAM_H

#include <stdbool.h>

#include "cpu/isa.h"

/* Tile t: elements [t·tile, (t+1)·tile). Every output may be its input. */
typedef struct cpu_adam_args {
    const float *x, *mean, *square, *grad;
    const float *rate, *step, *scale; /* scale: NULL means 1; the gradient is multiplied by it */
    const uint8_t *enabled;           /* NULL means yes; otherwise 0 leaves everything as it is */
    float *x_next, *mean_next, *square_next;
    int64_t count, tile;
    double beta1, beta2, epsilon, decay;
    bool decoupled; /* decay shrinks x instead of joining the gradient */
} cpu_adam_args;

CPU_DECLARE(cpu_adam_f32);

#endif
