/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in 16 bits as the model has them (f16 or bf16), for products of one row that wait for
 * their weights: they are widened in registers, so half as many bytes are read. Products and sums
 * are the same bits as those of cpu_gemm_f32 with the weights widened before.
 *
 * Layout: panels as in cpu/gemm.h, one behind the other, each all of K, a row of a panel one half
 * for each column. f16: columns in order. bf16: word i of a row is column i (its low half) and
 * column i + width / 2 (its high half), so one read, a shift and a mask are two vectors.
 */
#ifndef CPU_HALF_H
#define CPU_HALF_H

#include <stddef.h>

#include "cpu/gemm.h"

static inline size_t cpu_half_bytes(int64_t panels, int64_t width, int64_t k)
{
    return (size_t)(panels * width * k) * sizeof(uint16_t);
}

/* Packs a constant B, of which rows or columns are adjacent (a stride is 1); tile t is panel t. */
typedef struct cpu_half_pack_args {
    const char *b; /* halves, at any address */
    uint16_t *packed;
    int64_t n, k, b_row, b_col;
    int64_t k_begin, k_end; /* only these rows of B */
} cpu_half_pack_args;

CPU_DECLARE(cpu_half_pack_f16);
CPU_DECLARE(cpu_half_pack_bf16);

/* The product, with cpu_gemm_args: m and row_tiles 1, a_col 1, no bias by row, `packed` as above.
 */
CPU_DECLARE(cpu_half_f16);
CPU_DECLARE(cpu_half_bf16);

#endif
