/* SPDX-License-Identifier: Apache-2.0
 *
 * Images whose channels lie in blocks: [N, blocks, H, W, 16] instead of [N, C, H, W]. The sixteen
 * channels of a pixel are neighbours, so a vector is a pixel (or a part of one), whatever the
 * width of the image, the stride and the padding. Sixteen on every ISA: the graph does not depend
 * on the processor. Channels beyond the last real one hold anything; nobody reads them.
 */
#ifndef CPU_BLOCKED_H
#define CPU_BLOCKED_H

#include "cpu/epilogue.h"
#include "cpu/isa.h"
#include "cpu/window.h"

enum {
    CPU_BLOCK = 16,
    CPU_BLOCKED_WIDTH = 1024, /* pixels of the widest row that pooling takes */
};

/* A convolution as sums over taps: output pixel p of unit u is
 *   Σ_t Σ_i x[u·x_step + origin(p) + taps[t] + i] · weights[t][i]
 * with `depth` values i to a tap, `last_depth` for the taps from `full` on. A unit is a group of
 * an image (or one of the points of a Winograd transform). Pixels of a row are `step` floats
 * apart, rows `row_step`; y is dense. */
typedef struct cpu_blocked_conv_args {
    const float *x, *residual; /* residual lies as y and may be y */
    const float *weights;      /* cpu_blocked_pack_f32 */
    const float *bias;         /* whole blocks; NULL: none */
    float *y;
    const int32_t *taps;
    int64_t n_taps, full, depth, last_depth;
    int64_t x_step, step, row_step;
    int64_t width, height; /* pixels of a row, rows */
    int64_t pixels;        /* of all rows; the last may be shorter than the others */
    int64_t channels;      /* output channels of a unit, in whole blocks */
    int64_t k;             /* inputs to a sum: full·depth + … */
    /* Windows whose rows may lie beside the image: they have so many rows of so many taps; 0:
     * every row is read. Row r of the output reads row r·stride + ky·dilation − pad. */
    int64_t tap_rows, tap_columns;
    int64_t tap_stride, tap_dilation, tap_pad, image_rows;
    int64_t weight_sets;         /* unit u uses set u % weight_sets */
    int64_t weight_step;         /* floats of a set */
    int64_t band, panels;        /* rows and panels of a tile */
    uint32_t bands, panel_tiles; /* tile: unit, band, panel_tile, the last fastest, … */
    bool bands_fastest;          /* … or unit, panel_tile, band */
    bool half;                   /* the last block of channels is at most half full */
    cpu_epilogue epilogue;
} cpu_blocked_conv_args;

CPU_DECLARE(cpu_blocked_conv_f32);

/* What lies under each tap of a window, image by image: y is [blocks][taps][pixels][16], with zeros
 * where a tap lies beside x. Tile: a tap of a block. */
typedef struct cpu_blocked_taps_args {
    const float *x;
    float *y;
    int64_t in[2], out[2], kernel[2], stride[2], dilation[2], pad[2];
} cpu_blocked_taps_args;
void cpu_blocked_taps(const void *args, uint32_t begin, uint32_t end);

/* Weights [channels][inputs][taps] of one set as panels of cpu_gemm_width(isa) output channels,
 * each k·width floats (the last may be narrower, a multiple of a vector); k runs over blocks of
 * `depth` inputs, taps, inputs. Tile: a panel. */
typedef struct cpu_blocked_pack_args {
    const float *from;
    float *to;
    int64_t channels, inputs, taps, depth;
} cpu_blocked_pack_args;

CPU_DECLARE(cpu_blocked_pack_f32);

/* Copies planes [planes, H, W, 16] with a border of zeros: cpu_window_pad_args with one phase and
 * steps of one. */
CPU_DECLARE(cpu_blocked_pad_f32);

/* --- every output block from one input block: depthwise convolution, pooling ------------------ */
typedef enum cpu_blocked_kind {
    CPU_BLOCKED_WEIGHTS,
    CPU_BLOCKED_MAX,
    CPU_BLOCKED_AVERAGE,     /* over the elements inside the image */
    CPU_BLOCKED_AVERAGE_ALL, /* over the whole window, padding counted */
} cpu_blocked_kind;

typedef struct cpu_blocked_window_args {
    const float *x, *residual;
    const float *weights; /* [blocks][taps][16] */
    const float *bias;    /* whole blocks; NULL: none */
    float *y;
    int64_t planes, blocks; /* in all, of an image */
    int64_t in[2], out[2], kernel[2], stride[2], dilation[2], pad[2], pad_after[2];
    int64_t tile;   /* planes of a tile where one tile has whole planes (bands is 1) */
    int64_t band;   /* output rows of a tile */
    uint32_t bands; /* tile: plane, band, the last fastest */
    cpu_blocked_kind kind;
    bool paired_rows; /* 3×3 sums of stride 1: two rows at a time, Winograd's F(2, 3) down */
    cpu_epilogue epilogue;
} cpu_blocked_window_args;

CPU_DECLARE(cpu_blocked_window_f32);

/* --- into the layout and out of it ------------------------------------------------------------ */
typedef struct cpu_blocked_move_args {
    const float *from;
    float *to;
    int64_t images, channels, pixels;
    int64_t tile; /* pixels; tile t: image, block, run of pixels, the last fastest */
    uint32_t runs;
} cpu_blocked_move_args;

CPU_DECLARE(cpu_blocked_enter_f32); /* [N, C, pixels] to [N, blocks, pixels, 16] */
CPU_DECLARE(cpu_blocked_leave_f32); /* and back */

/* --- Winograd F(4×4, 3×3) over blocks ---------------------------------------------------------
 * As cpu/winograd.h, but a vector is a block of channels: nothing is shuffled. Between the two
 * transforms stand 36 pointwise convolutions over the tiles (cpu_blocked_conv_f32, 36 weight
 * sets). */
enum { CPU_BLOCKED_POINTS = 36 };

/* x[images, blocks, H, W, 16] to values[images][36][blocks][tiles][16], a point `step` floats
 * behind the one before. A kernel's tile is `group` rows of tiles, counted through blocks and
 * images. */
typedef struct cpu_blocked_winograd_in_args {
    const float *x;
    float *values;
    int64_t images, blocks, in_height, in_width, pad_top, pad_left;
    int64_t first, rows, columns; /* rows of tiles [first, first + rows), all columns */
    int64_t step, group;
} cpu_blocked_winograd_in_args;

CPU_DECLARE(cpu_blocked_winograd_in_f32);

/* sums[images][36][blocks][tiles][16] to y[images, blocks, H, W, 16]. */
typedef struct cpu_blocked_winograd_out_args {
    const float *sums, *bias, *residual;
    float *y;
    int64_t images, blocks, height, width;
    int64_t first, rows, columns;
    int64_t group;
    cpu_epilogue epilogue;
} cpu_blocked_winograd_out_args;

CPU_DECLARE(cpu_blocked_winograd_out_f32);

/* The 36 transformed sets of weights [channels][inputs][9]. Tile: a panel of all sets. */
CPU_DECLARE(cpu_blocked_winograd_pack_f32); /* cpu_blocked_pack_args, taps 9 */

#endif
