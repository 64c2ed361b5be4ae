/* SPDX-License-Identifier: Apache-2.0
 * Images read at computed places. The pixels of a place and their weights are found once and serve
 * all channels, which lie side by side where it pays to turn the images round first: then a pixel
 * is a few vectors. */
#ifndef CPU_SAMPLE_H
#define CPU_SAMPLE_H

#include <stdbool.h>

#include "cpu/isa.h"

enum {
    CPU_SAMPLE_PIXELS = 1 << 29, /* images are smaller */
    CPU_SAMPLE_RANK = 3,
    CPU_SAMPLE_POINTS = 64, /* places at a time */
};

/* Images of `channels` planes of `pixels`. */
typedef struct cpu_images {
    const float *x;
    int64_t channels, pixels;
    bool inside; /* [image][pixel][channel], else [image][channel][pixel] */
} cpu_images;

typedef enum cpu_grid_pad {
    CPU_GRID_ZEROS,
    CPU_GRID_BORDER,
    CPU_GRID_REFLECTION,
} cpu_grid_pad;
typedef enum cpu_grid_mode { CPU_GRID_NEAREST, CPU_GRID_LINEAR, CPU_GRID_CUBIC } cpu_grid_mode;

/* GridSample: y[image][channel][point]; grid[image][point][axis], the innermost axis first.
 * Tile t: `tile` points (a multiple of CPU_SAMPLE_POINTS) of image t / tiles. */
typedef struct cpu_grid_args {
    cpu_images from;
    const float *grid;
    float *y;
    int32_t rank;
    int64_t in[CPU_SAMPLE_RANK];
    int64_t points, tile;
    uint32_t tiles; /* of an image */
    cpu_grid_pad pad;
    cpu_grid_mode mode;
    bool corners;
} cpu_grid_args;

CPU_DECLARE(cpu_grid_f32);

/* What the windows of DeformConv see: columns[image][group][point][tap][channel of the group], of
 * the points [first, first + count) of each image. The offsets [image][set][tap][y, x][point] and
 * the mask [image][set][tap][point] are for channels / sets channels each. Tile t: `tile` points of
 * image t / tiles. */
typedef struct cpu_deform_args {
    cpu_images from;
    const float *offset, *mask; /* mask NULL: all 1 */
    float *columns;
    int64_t height, width, across, points; /* of an image, of a row of points, of all */
    int64_t kernel[2], stride[2], dilation[2], pad[2];
    int64_t groups, sets;
    int64_t first, count, tile;
    uint32_t tiles;
} cpu_deform_args;

CPU_DECLARE(cpu_deform_f32);

#endif
