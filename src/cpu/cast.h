/* SPDX-License-Identifier: Apache-2.0
 * Conversions that lose nothing but range: from integers and truths to any number, and from any
 * number to truths. Floats to integers are left to the evaluator, whose rules are per type. */
#ifndef CPU_CAST_H
#define CPU_CAST_H

#include <stdbool.h>

#include "cpu/kernel.h"
#include "cpu/number.h"

typedef struct cpu_cast_args {
    const void *x;
    void *y;
    int64_t count, tile; /* elements */
    cpu_number from, to;
} cpu_cast_args;

/* Is there a loop for this pair? */
bool cpu_cast_knows(cpu_number from, cpu_number to);
void cpu_cast(const void *args, uint32_t begin, uint32_t end);

#endif
