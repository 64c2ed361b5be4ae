/* SPDX-License-Identifier: Apache-2.0
 *
 * 3×3 convolution by Winograd's F(4×4, 3×3): an output block of 4×4 costs 36 products instead of
 * 144. Three steps: windows of 6×6 are transformed (cpu_winograd_in), 36 plain products over the
 * channels (cpu/gemm.h, batch 36), blocks are transformed back (cpu_winograd_out). Errors are a few
 * times those of the direct sum: the transforms multiply by up to 8 and 1/24.
 */
#ifndef CPU_WINOGRAD_H
#define CPU_WINOGRAD_H

#include "cpu/epilogue.h"
#include "cpu/isa.h"

enum { CPU_WINOGRAD_POINTS = 36, CPU_WINOGRAD_WIDTH = 1024 };

/* In a volume every plane is transformed, and taps along the depth are more channels of the
 * products. From a padded copy in four phases (cpu/window.h) to values[36][channels][blocks]. */
typedef struct cpu_winograd_in_args {
    const float *x; /* padded planes */
    float *values;
    int64_t channels, rows, columns; /* planes; blocks down and across */
    int64_t plane, pitch, width;     /* of the padded copy: elements of a plane, row, phase */
    int64_t tile;                    /* channels */
} cpu_winograd_in_args;

CPU_DECLARE(cpu_winograd_in_f32);

/* From sums[36][channels][blocks] to the output planes, with the epilogue (bias by row). */
typedef struct cpu_winograd_out_args {
    const float *sums, *bias, *residual;
    float *y;
    int64_t channels, depth; /* planes in all, and of one bias */
    int64_t rows, columns;
    int64_t out_height, out_width;
    int64_t tile; /* channels */
    cpu_epilogue epilogue;
} cpu_winograd_out_args;

CPU_DECLARE(cpu_winograd_out_f32);

/* The 36 transformed weights of 3×3 kernels, `step` apart, those of n kernels side by side. */
void cpu_winograd_weights(const float *kernels, int64_t n, float *to, int64_t step);

#endif
