/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise kernels. cpu_map1 is one operation on operands that are dense alike or scalar;
 * cpu_map is a program of operations on any strides and storage types, run strip by strip: each
 * step works on CPU_MAP_STRIP elements that stay in L1, so interpreting costs nothing and a chain
 * reads and writes memory once.
 */
#ifndef CPU_MAP_H
#define CPU_MAP_H

#include "cpu/nd.h"
#include "cpu/strip.h"

enum {
    CPU_MAP_STRIP = 512,
    CPU_MAP_SHORT = 256, /* innermost axes below are joined with the next (cpu_nd_repeat) */
    CPU_MAP_INPUTS = 6,
    CPU_MAP_REGISTERS = 8,
    CPU_MAP_CONSTANTS = 24,
    CPU_MAP_INPUT = 0x100, /* operand codes; below: registers */
    CPU_MAP_CONSTANT = 0x200,
};

typedef struct cpu_map1_args {
    const float *in[3];
    float *out;
    cpu_strip_fn *fn;
    uint32_t scalars;
    int64_t count, tile; /* elements */
} cpu_map1_args;

void cpu_map1(const void *args, uint32_t begin, uint32_t end);

/* How elements are stored; computing is always in f32. */
typedef enum cpu_store {
    CPU_STORE_F32,
    CPU_STORE_F16,
    CPU_STORE_BF16,
    CPU_STORE_BOOL,
} cpu_store;

typedef struct cpu_map_step {
    cpu_strip_fn *fn;
    uint16_t dst; /* register */
    uint16_t operands;
    uint16_t in[3];
} cpu_map_step;

typedef struct cpu_map_args {
    const void *in[CPU_MAP_INPUTS];
    void *out;
    const cpu_strips *strips;
    cpu_nd nd; /* operands: the inputs, then the output */
    uint32_t inputs, n_steps;
    cpu_store in_store[CPU_MAP_INPUTS], out_store;
    float constants[CPU_MAP_CONSTANTS];
    cpu_map_step steps[]; /* the last one gives the output */
} cpu_map_args;

void cpu_map(const void *args, uint32_t begin, uint32_t end);

#endif
