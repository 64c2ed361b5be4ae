/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in 28 bits without loss, for products of one row that wait for their weights.
 *
 * The exponents of neighbouring weights are nearly always within sixteen of each other, so four of
 * their eight bits say nothing. A panel (cpu/gemm.h) is cut into groups of four rows, which are
 * eight vectors. Each of the first seven has, where those four bits would be, four bits of the
 * eighth: seven vectors are read where there were eight. Exponents become
 * CPU_SLIM_EXPONENT + 0 … 15, so a weight comes out scaled by a power of two, and the row is scaled
 * by its inverse first: products and sums are the same bits as those of plain weights (unless the
 * scaled row overflows, or becomes denormal).
 *
 * A group that does not fit (zeros, infinities, too wide a range) is kept whole: seven vectors in
 * their place, the eighth apart. So room is needed as for plain weights, whatever they are, but
 * only what is needed is read.
 *
 * Layout: seven vectors of every group, panel by panel; then the eighths, one for each group; then
 * the heads, one for each block of CPU_SLIM_GROUPS groups of a panel.
 */
#ifndef CPU_SLIM_H
#define CPU_SLIM_H

#include <stddef.h>

#include "cpu/gemm.h"

enum {
    CPU_SLIM_STEPS = 4, /* rows of B in a group */
    CPU_SLIM_GROUPS = 32,
    CPU_SLIM_ROWS = CPU_SLIM_STEPS * CPU_SLIM_GROUPS, /* of a block */
    CPU_SLIM_EXPONENT = 112,
    CPU_SLIM_FAR = 40, /* weights beyond 2^±this are kept whole */
};

typedef struct cpu_slim_head {
    float scale;    /* of the row, for groups that are slim */
    uint32_t whole; /* bit g: group g of the block is not */
} cpu_slim_head;

static inline int64_t cpu_slim_blocks(int64_t k)
{
    return (k + CPU_SLIM_ROWS - 1) / CPU_SLIM_ROWS;
}

/* Of a right side with k rows (a multiple of CPU_SLIM_STEPS) in panels of `width` columns. */
static inline size_t cpu_slim_bytes(int64_t panels, int64_t width, int64_t k)
{
    return (size_t)(panels * width * k) * sizeof(float) +
           (size_t)(panels * cpu_slim_blocks(k)) * sizeof(cpu_slim_head);
}

/* Packs a constant B; tile t is panel t. */
typedef struct cpu_slim_pack_args {
    const float *b;
    float *packed;
    int64_t n, k, b_row, b_col;
    int64_t k_begin, k_end; /* only these rows of B: whole blocks, or to the end */
} cpu_slim_pack_args;

CPU_DECLARE(cpu_slim_pack_f32);

/* The product, with cpu_gemm_args: m and row_tiles 1, a_col 1, no bias by row, `packed` as above.
 * The same bits as cpu_gemm_f32 with plain weights. With VBMI2 (AVX-512 that shifts one vector into
 * another) unpacking is faster than reading from any cache beyond the second. */
CPU_DECLARE(cpu_slim_f32);
#if defined(__x86_64__)
void cpu_slim_f32_vbmi2(const void *args, uint32_t begin, uint32_t end);
#endif

static inline bool cpu_slim_vbmi2(const cpu_features *cpu)
{
    return cpu->isa == CPU_AVX512 && cpu->avx512_vbmi2;
}
static inline cpu_kernel cpu_slim_kernel(const cpu_features *cpu)
{
#if defined(__x86_64__)
    if (cpu_slim_vbmi2(cpu))
        return cpu_slim_f32_vbmi2;
#endif
    return CPU_PICK(cpu->isa, cpu_slim_f32);
}
static inline const char *cpu_slim_name(const cpu_features *cpu)
{
    return cpu_slim_vbmi2(cpu) ? "slim_f32_vbmi2" : CPU_PICK_NAME(cpu->isa, slim_f32);
}

#endif
