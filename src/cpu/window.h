/* SPDX-License-Identifier: Apache-2.0
 * Sliding windows over images [planes, H, W]: what a convolution needs before it is a GEMM
 * (cpu/gemm.h), depthwise convolution, and pooling. */
#ifndef CPU_WINDOW_H
#define CPU_WINDOW_H

#include "cpu/epilogue.h"
#include "cpu/isa.h"

/* Copies planes with their padding. A padded row is cut into `phases` (the horizontal stride): its
 * element j lies at j % phases · width + j / phases, so that windows a stride apart are neighbours.
 * Padded row r is source row r·row_step - pad_top, padded column j is j·column_step - pad_left.
 * A volume is `depth` padded planes, of which plane d is source plane d·depth_step - pad_front of
 * `in_depth`; images are volumes with a depth of 1. */
typedef struct cpu_window_pad_args {
    const float *x;
    float *to;
    int64_t planes; /* padded ones, of all volumes */
    int64_t in_depth, in_height, in_width;
    int64_t depth, height, width, phases; /* of the padded copy */
    int64_t depth_step, row_step, column_step;
    int64_t pad_front, pad_top, pad_left;
    int64_t tile; /* planes */
    float value;
} cpu_window_pad_args;

CPU_DECLARE(cpu_window_pad_f32);

typedef enum cpu_window_kind {
    CPU_WINDOW_WEIGHTS, /* depthwise convolution: output plane p has its own kernel */
    CPU_WINDOW_MAX,
    CPU_WINDOW_AVERAGE,     /* over the elements inside the image */
    CPU_WINDOW_AVERAGE_ALL, /* over the whole window, padding counted */
    CPU_WINDOW_L1,          /* the sum of magnitudes */
    CPU_WINDOW_L2,          /* the root of the sum of squares */
} cpu_window_kind;

/* Every output plane comes from one input plane (planes / multiplier of them). A band of input rows
 * is padded into a buffer on the stack, cut by phases of both strides, so that all windows of the
 * band lie `width` a row in one line and every tap is one shifted read of it. */
enum { CPU_WINDOW_BUFFER = 12 * 1024, CPU_WINDOW_TAPS = 256 };
typedef struct cpu_window_args {
    const float *x, *weights, *bias, *residual;
    float *y;
    int64_t planes, channels, multiplier; /* output planes in all, and of one image */
    int64_t in_height, in_width, out_height, out_width;
    int64_t kernel[2], stride[2], dilation[2], pad[2]; /* vertical, horizontal; pad before */
    int64_t pad_after[2];                              /* counted by CPU_WINDOW_AVERAGE_ALL */
    int64_t width;                                     /* of a phase of a padded row */
    int64_t band;                                      /* output rows at a time */
    int64_t tile;                                      /* planes */
    cpu_window_kind kind;
    cpu_epilogue epilogue; /* bias by plane: CPU_BIAS_ROW */
} cpu_window_args;

CPU_DECLARE(cpu_window_f32);

/* The largest of each window of volumes, and where it lies: `volume` elements for each volume
 * before it, and its place there, counted row by row or (by_column) with the first axis innermost.
 * The first of equal ones, the first NaN before all others. Axes: depth, height, width. Tile t:
 * `tile` rows of the result. */
typedef struct cpu_max_where_args {
    const float *x;
    float *y;
    int64_t *where;
    int64_t rows, tile, volume; /* volume < 2³¹ */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3];
    bool by_column;
} cpu_max_where_args;

CPU_DECLARE(cpu_max_where_f32);

/* The same without places, by rows: all rows under a row of the result become one, then its windows
 * are compared. At most CPU_MAX_ROWS rows and CPU_MAX_LINE columns with their padding. */
enum { CPU_MAX_ROWS = 64, CPU_MAX_LINE = 4096 };
CPU_DECLARE(cpu_max_volume_f32);

/* The adjoint of pooling: every dy goes to the window's first maximum, or in equal shares to all of
 * it. x is read for CPU_WINDOW_MAX only. Tile t: `tile` planes. */
typedef struct cpu_pool_grad_args {
    const float *x, *dy;
    float *dx;
    int64_t planes, tile;
    int64_t in_height, in_width, out_height, out_width;
    int64_t kernel[2], stride[2], dilation[2], pad[2];
    cpu_window_kind kind;
} cpu_pool_grad_args;

CPU_DECLARE(cpu_pool_grad_f32);

/* Windows that lie on the result: columns [planes][taps][positions] are added where their windows
 * cover the image, which starts as the bias. A row of the image is made in `stride[1]` phases, so
 * that every tap is one shifted addition. Tile t: `tile` rows of the image, over all planes. */
enum { CPU_COL2IM_BUFFER = 16 * 1024 }; /* floats of a row with its phases */
typedef struct cpu_depth {
    int64_t in, out, kernel, stride, dilation, pad; /* in: of the image, out: positions */
} cpu_depth;
typedef struct cpu_col2im_args {
    const float *columns, *bias; /* bias NULL: 0, else by plane % channels */
    float *y;
    int64_t planes, channels; /* volumes where there is a depth */
    cpu_depth depth;          /* all 1, pad 0: images */
    int64_t height, width;    /* of the image */
    int64_t across[2];        /* positions of windows */
    int64_t kernel[2], stride[2], dilation[2], pad[2];
    int64_t phase; /* floats of a phase */
    int64_t tile;
} cpu_col2im_args;

CPU_DECLARE(cpu_col2im_f32);

#endif
