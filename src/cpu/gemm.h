/* SPDX-License-Identifier: Apache-2.0
 *
 * C = epilogue(A·B) in f32, any strides, batched with broadcasting.
 *
 * B is read as panels of `cpu_gemm_width` columns. A constant B is packed once at compile time
 * (cpu_gemm_pack): K is cut in blocks of kc, each block holds its panels one after
 * another, each panel is kc rows of width columns, zero-padded. So a tile streams B in order, and a
 * block of A stays in L2 while it does. A B that changes from run to run is packed block by block
 * onto the stack of the tile that uses it. Partial sums over K blocks live in C itself.
 */
#ifndef CPU_GEMM_H
#define CPU_GEMM_H

#include "cpu/epilogue.h"
#include "cpu/isa.h"

enum {
    CPU_GEMM_KC = 384,
    CPU_GEMM_BATCH_RANK = 6,
    CPU_GEMM_SLACK = 32,
    CPU_GEMM_ROWS = 144,        /* most rows of a tile */
    CPU_GEMM_ROWS_WINDOW = 288, /* of a convolution, whose panels cost more to pack */
    CPU_GEMM_ROWS_COPIED = 48,  /* most rows of a tile that copies its A (copy_a) */
};

typedef struct cpu_gemm_args {
    const float *a, *b, *bias, *residual; /* b unused when packed is set */
    /* Sums grow in c, the finished result is in y. They are the same memory unless the epilogue
     * needs the residual after the sums are complete (cpu_late_residual): y may lie over the
     * residual, c may not. Both have the strides of C. */
    float *c, *y;
    const float *packed;
    int64_t m, n, k;
    int64_t a_row, a_col; /* strides in elements */
    int64_t b_row, b_col;
    int64_t c_row; /* columns of C and of the residual are adjacent */
    int64_t residual_row;
    uint32_t batch_rank;
    int64_t batch_dims[CPU_GEMM_BATCH_RANK];
    int64_t a_batch[CPU_GEMM_BATCH_RANK], b_batch[CPU_GEMM_BATCH_RANK];
    int64_t c_batch[CPU_GEMM_BATCH_RANK], residual_batch[CPU_GEMM_BATCH_RANK];
    int64_t bias_batch[CPU_GEMM_BATCH_RANK];
    /* Tile t: row block t % row_tiles, column block (t / row_tiles) % col_tiles, then batch. */
    uint32_t row_tiles, col_tiles;
    int64_t tile_rows, tile_cols; /* tile_cols: a multiple of the panel width */
    int64_t kc;                   /* of the blocks of a packed B; 0: CPU_GEMM_KC */
    bool ordered;                 /* K step by step, however few rows: same bits for any m */
    /* A packed B comes from memory, not from a cache; of windows: their rows lie so far apart that
     * the next panel must be asked for. */
    bool streamed;
    bool wide;   /* cpu_features.wide_pipes */
    bool copy_a; /* rows of A collide in L1 or are strided: compact them */
    /* A convolution: A is the weights, column j of B is what the window over output pixel j sees.
     * Row k of it lies taps[k] elements after the pixel's origin, which is
     * y · pixel_row + j % out_width for the pixel's row y = j / out_width, and in a volume (else
     * pixel_plane is 0) y / out_height · pixel_plane + y % out_height · pixel_row + j % out_width.
     * Reads up to CPU_GEMM_SLACK elements too far. */
    const int32_t *taps; /* NULL: a plain product */
    int64_t out_width, out_height, pixel_row, pixel_plane;
    cpu_epilogue epilogue;
} cpu_gemm_args;

CPU_DECLARE(cpu_gemm_f32);

/* Packs a constant B; tile t is panel t of every K block. */
typedef struct cpu_gemm_pack_args {
    const float *b;
    float *packed;
    int64_t n, k, b_row, b_col;
    int64_t k_begin, k_end; /* only these rows of B */
    int64_t kc;             /* 0: CPU_GEMM_KC */
} cpu_gemm_pack_args;

CPU_DECLARE(cpu_gemm_pack_f32);

/* A convolution over few pixels: they are the rows and the channels are the columns, so that
 * neither is cut in the middle of a vector. The weights are packed as the B of k × channels. Sums
 * grow as [pixel][channel] in `sums` (CPU_PIXELS_SLACK rows longer than they are), results go to
 * [channel][pixel]. Tile t: channel block t % col_tiles of image t / col_tiles. */
enum { CPU_PIXELS_SLACK = 16 };
typedef struct cpu_pixels_args {
    const float *x; /* the image, or its padded copy when taps is set */
    const float *packed, *bias, *residual;
    float *y, *sums;
    const int32_t *taps; /* as in cpu_gemm_args; NULL: pointwise */
    int64_t out_width, out_height, pixel_row, pixel_plane;
    int64_t pixels, channels, k;
    int64_t image_step; /* elements between images of x */
    int64_t tile_cols;
    uint32_t col_tiles;
    cpu_epilogue epilogue; /* bias by row: the channel */
} cpu_pixels_args;

CPU_DECLARE(cpu_pixels_f32);

/* Columns of a panel and rows of a register tile. */
static inline int64_t cpu_gemm_width(cpu_isa isa)
{
    return isa == CPU_AVX512 ? 32 : isa == CPU_AVX2 ? 16 : 8;
}
static inline int64_t cpu_gemm_height(cpu_isa isa)
{
    return isa == CPU_AVX512 ? 14 : 6;
}

#endif
