/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/winograd.h"

void cpu_winograd_weights(const float *kernel, float *to, int64_t step)
{
    static const double g[6][3] = {
        {1.0 / 4, 0, 0},
        {-1.0 / 6, -1.0 / 6, -1.0 / 6},
        {-1.0 / 6, 1.0 / 6, -1.0 / 6},
        {1.0 / 24, 1.0 / 12, 1.0 / 6},
        {1.0 / 24, -1.0 / 12, 1.0 / 6},
        {0, 0, 1},
    };
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++) {
            double sum = 0;
            for (int a = 0; a < 3; a++)
                for (int b = 0; b < 3; b++)
                    sum += g[i][a] * kernel[a * 3 + b] * g[j][b];
            to[(i * 6 + j) * step] = (float)sum;
        }
}
