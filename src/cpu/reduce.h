/* SPDX-License-Identifier: Apache-2.0
 * Reductions of f32 over any set of axes. */
#ifndef CPU_REDUCE_H
#define CPU_REDUCE_H

#include <stdbool.h>

#include "cpu/isa.h"
#include "cpu/nd.h"

typedef enum cpu_reduction {
    CPU_REDUCE_SUM,
    CPU_REDUCE_MEAN,
    CPU_REDUCE_MAX,
    CPU_REDUCE_MIN,
    CPU_REDUCE_PROD,
    CPU_REDUCE_L1,
    CPU_REDUCE_L2,
    CPU_REDUCE_SQUARES,
    CPU_REDUCE_LOG_SUM,
    CPU_REDUCE_LOG_SUM_EXP, /* after taking the largest away */
} cpu_reduction;

/* The kept axes are an index space over (x, y); at each of its positions the reduced axes are
 * walked. With `along` the innermost kept axis runs by one through both x and y, and whole vectors
 * of results grow side by side; without it every result is found alone. */
typedef struct cpu_reduce_args {
    const float *x;
    float *y;
    cpu_nd nd;    /* operands: x, y */
    int32_t rank; /* of the reduced axes, outermost first; ≥ 1 */
    int64_t dims[CPU_ND_RANK], strides[CPU_ND_RANK];
    int64_t count; /* elements behind one result */
    cpu_reduction op;
    bool along;
} cpu_reduce_args;

CPU_DECLARE(cpu_reduce_f32);

#endif
