/* SPDX-License-Identifier: Apache-2.0
 *
 * Images of bytes whose channels lie inside, [N][height][width][channels]: convolutions, sums and
 * poolings from bytes to bytes. The images are unsigned (signed ones are moved up by 128 as they
 * are copied), the weights signed and without a zero point, so that one VNNI instruction adds four
 * products and neither side needs sums of its own.
 *
 * Sums become bytes in registers. The definition is in double; f32 gives the same byte except very
 * near to a tie, and such vectors are done again in double.
 */
#ifndef CPU_QIMAGE_H
#define CPU_QIMAGE_H

#include "cpu/nd.h"
#include "cpu/qmm.h"

/* What sums become: round((begin + sum)·x_scale·scale + bias, cut to [least, most], over y_scale) +
 * zero, cut to [low, high]. Tables have an entry for each channel, filled up to whole panels.
 *
 * In f32 the result is sum·factor + add, where add has CPU_QROUND_LIFT, the zero point (of
 * unsigned bytes), a half, and the largest error that f32 can make here. The bits of so large a
 * number are fixed point of 15 binary places. Cut to [least_fixed, most_fixed], its whole part is
 * the byte, unless its fraction, in 16 places, is below `unsure`, twice that error: then it lies
 * too near to a tie, and the byte is made again. */
#define CPU_QROUND_ONE 32768.0     /* as fixed point */
#define CPU_QROUND_LIFT 8388608.0f /* 2²³: the last place of what is larger is 1 */
typedef struct cpu_qround {
    const int32_t *begin;
    const float *factor, *add, *scale, *bias;
    double x_scale, y_scale, least, most;
    int32_t zero, low, high;
    float least_fixed, most_fixed;
    int32_t unsure;
    uint8_t flip; /* 0x80: signed bytes */
} cpu_qround;

/* --- convolutions ------------------------------------------------------------------------------
 */

/* Columns of a panel (the last may have fewer vectors) and rows of a register tile. */
static inline int64_t cpu_qconv_width(const cpu_features *cpu)
{
    return cpu_qmm_vnni(cpu) ? 64 : cpu->isa >= CPU_AVX2 ? 16 : 8;
}
static inline int64_t cpu_qconv_vector(const cpu_features *cpu)
{
    return cpu_qmm_vnni(cpu) ? 16 : cpu->isa >= CPU_AVX2 ? 8 : 4;
}

/* Images [n][rows][columns][channels], whose channels lie inside already. */
typedef struct cpu_qborder_args {
    const uint8_t *x;
    uint8_t *to;
    cpu_qcopy copy;
    uint8_t zero; /* as copied */
} cpu_qborder_args;
void cpu_qborder(const void *args, uint32_t begin, uint32_t end);

/* Windows times weights. Pieces of windows are multiples of four bytes. The weights are panels of
 * [pieces][piece/4][columns][4]. Tile t: row block t % row_tiles, column block t / row_tiles. */
enum { CPU_QCONV_ROWS = 256 }; /* most rows of a tile */
typedef struct cpu_qconv_args {
    cpu_qwindow w;
    const int8_t *weights;
    uint8_t *y; /* [m][n] */
    int64_t m, n;
    cpu_qround round;
    uint32_t row_tiles, col_tiles;
    int64_t tile_rows, tile_panels;
} cpu_qconv_args;
CPU_QMM_DECLARE(cpu_qconv);

/* One input channel for each output channel. Channels go in blocks of 4·vector; in a block vector q
 * of the tables and weights has channels 16·l + 4·q … + 3 for l = 0, 1 …: how bytes of four taps
 * fall when they are interleaved. Weights: [block][⌈taps/4⌉][4][vector][4]. What lies beside the
 * image is read from `beside`, a block longer than the channels. Where the stride along
 * rows is 1, neighbours lie side by side before and after: `together` of them are like one pixel of
 * as many channels more, which fill whole blocks; tables and weights repeat for each. Tile t:
 * `tile` pixels. */
enum { CPU_QCHANNEL_TAPS = 64 }; /* most */
typedef struct cpu_qchannel_args {
    const uint8_t *x, *beside;
    uint8_t *y;
    const int8_t *weights;
    int64_t n, channels, rows, columns, out_rows, out_columns;
    int64_t kernel[2], stride[2], dilation[2], pad[2];
    int64_t tile, together; /* the latter 1: one by one */
    cpu_qround round;
} cpu_qchannel_args;
CPU_QMM_DECLARE(cpu_qchannel);
static inline int64_t cpu_qchannel_of(int64_t q, int64_t lane)
{
    return lane / 4 * 16 + q * 4 + lane % 4;
}

/* --- between convolutions ----------------------------------------------------------------------
 */

/* y = round(((a − a_zero)·a_scale + (b − b_zero)·b_scale, cut) / y_scale) + zero. Zero points are
 * of the bytes as unsigned ones (signed: 128 higher). Tile t: `tile` elements. */
typedef struct cpu_qadd_args {
    const uint8_t *a, *b;
    uint8_t *y;
    int64_t count, tile;
    int32_t a_zero, b_zero;
    double a_scale, b_scale;
    float a_factor, b_factor, add; /* as in cpu_qround */
    cpu_qround round;              /* without tables */
    bool a_flip, b_flip;
    bool exact; /* f32 holds every sum: no half is in `add`, ties go to the even one */
} cpu_qadd_args;
CPU_QMM_DECLARE(cpu_qadd);

/* y = round(((a − a_zero)·a_scale · (b − b_zero)·b_scale) / y_scale) + zero, every step rounded to
 * f32. Zero points and flips as in cpu_qadd_args. nd's operands: a, b, y; along the last axis they
 * step by 1 or, a and b, by 0. */
typedef struct cpu_qmul_args {
    const uint8_t *a, *b;
    uint8_t *y;
    int32_t a_zero, b_zero, lift; /* of y: its zero point, as of unsigned bytes */
    float a_scale, b_scale, y_scale;
    bool a_flip, b_flip, y_flip;
    cpu_nd nd;
} cpu_qmul_args;
CPU_QMM_DECLARE(cpu_qmul);

/* The largest of each window. Tile t: `tile` pixels. */
typedef struct cpu_qmax_args {
    const uint8_t *x;
    uint8_t *y;
    int64_t n, channels, rows, columns, out_rows, out_columns;
    int64_t kernel[2], stride[2], dilation[2], pad[2];
    int64_t tile;
    bool is_signed;
} cpu_qmax_args;
CPU_QMM_DECLARE(cpu_qmax);

/* The mean of each channel: y [n][channels]. Tile t: image t. */
enum { CPU_QMEAN_CHANNELS = 256 }; /* done at a time */
typedef struct cpu_qmean_args {
    const uint8_t *x;
    uint8_t *y;
    int64_t channels, plane;
    int64_t x_channel, x_pixel; /* strides */
    double x_scale, y_scale;
    int32_t x_zero, zero, low, high;
    bool is_signed;
} cpu_qmean_args;
CPU_QMM_DECLARE(cpu_qmean);

#endif
