/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/winograd.h"

#include <string.h>

enum { LANES = 8 };

static const double transform[6][3] = {
    {1.0 / 4, 0, 0},
    {-1.0 / 6, -1.0 / 6, -1.0 / 6},
    {-1.0 / 6, 1.0 / 6, -1.0 / 6},
    {1.0 / 24, 1.0 / 12, 1.0 / 6},
    {1.0 / 24, -1.0 / 12, 1.0 / 6},
    {0, 0, 1},
};

/* Sums of three by one row of the transform. */
static inline void times(const double *g, const double (*x)[LANES], int64_t apart, double *y)
{
    for (int l = 0; l < LANES; l++)
        y[l] = g[0] * x[0][l] + g[1] * x[apart][l] + g[2] * x[2 * apart][l];
}

void cpu_winograd_weights(const float *kernels, int64_t n, float *to, int64_t step)
{
    for (int64_t first = 0; first < n; first += LANES) {
        int64_t some = n - first < LANES ? n - first : LANES;
        double x[9][LANES] = {{0}}, half[3][LANES], sum[LANES];
        float y[LANES];
        for (int64_t l = 0; l < some; l++)
            for (int k = 0; k < 9; k++)
                x[k][l] = (double)kernels[(first + l) * 9 + k];
        for (int i = 0; i < 6; i++) {
            for (int b = 0; b < 3; b++)
                times(transform[i], (const double(*)[LANES])(x + b), 3, half[b]);
            for (int j = 0; j < 6; j++) {
                times(transform[j], (const double(*)[LANES])half, 1, sum);
                for (int l = 0; l < LANES; l++)
                    y[l] = (float)sum[l];
                memcpy(to + (i * 6 + j) * step + first, y, (size_t)some * sizeof *y);
            }
        }
    }
}
