/* SPDX-License-Identifier: Apache-2.0
 * What the tests of products of one row share. */
#ifndef CPU_ONE_ROW_TEST_H
#define CPU_ONE_ROW_TEST_H

#include "cpu/gemm.h"

/* Tiles of two panels; right side and results are to be set. */
static inline cpu_gemm_args one_row_args(const float *a, const float *bias, int64_t n, int64_t k,
                                         cpu_isa isa, cpu_act act)
{
    cpu_gemm_args p = {.a = a,
                       .bias = bias,
                       .m = 1,
                       .n = n,
                       .k = k,
                       .a_row = k,
                       .a_col = 1,
                       .c_row = n,
                       .row_tiles = 1,
                       .tile_rows = 1,
                       .tile_cols = 2 * cpu_gemm_width(isa),
                       .kc = k,
                       .epilogue = {.alpha = 1, .act = act, .bias = CPU_BIAS_COLUMN}};
    p.col_tiles = (uint32_t)((n + p.tile_cols - 1) / p.tile_cols);
    return p;
}

#endif
