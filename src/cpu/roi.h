/* SPDX-License-Identifier: Apache-2.0
 * Regions of images cut into bins: RoiAlign and MaxRoiPool. Channels lie inside or outside of the
 * images (cpu/sample.h). */
#ifndef CPU_ROI_H
#define CPU_ROI_H

#include "cpu/sample.h"

/* y[roi][channel][bin]: the mean of a bin's samples, or the largest weighted pixel of any. Each
 * sample is the weighted sum of the four pixels around it. Tile t: `tile` regions. */
typedef struct cpu_roi_align_args {
    cpu_images from;
    const float *rois;      /* [roi][x0, y0, x1, y1] */
    const int64_t *batches; /* [roi] */
    float *y;
    cpu_fault *fault;
    int64_t images, count, height, width;
    int64_t out_height, out_width;
    int64_t ratio; /* samples along each axis of a bin; 0: as many as it has pixels */
    int64_t tile;
    double scale;
    bool half, max; /* half a pixel is taken off; else regions have one pixel at least */
} cpu_roi_align_args;

CPU_DECLARE(cpu_roi_align_f32);

/* y[roi][channel][bin]: the largest pixel of each bin, whose edges are whole pixels; 0: none. Tile
 * t: `tile` regions. */
typedef struct cpu_roi_max_args {
    cpu_images from;
    const float *rois; /* [roi][batch, x0, y0, x1, y1] */
    float *y;
    cpu_fault *fault;
    int64_t images, count, height, width;
    int64_t out_height, out_width;
    int64_t tile;
    double scale;
} cpu_roi_max_args;

CPU_DECLARE(cpu_roi_max_f32);

#endif
