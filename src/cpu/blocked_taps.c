/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cpu/blocked.h"

/* Pixels [*first, *last) of a row of the output lie on the image under a tap. */
static void on_image(const cpu_blocked_taps_args *a, int64_t tap, int64_t *first, int64_t *last)
{
    int64_t at = tap * a->dilation[1] - a->pad[1], step = a->stride[1];
    int64_t low = at < 0 ? (-at + step - 1) / step : 0;
    int64_t high = a->in[1] > at ? (a->in[1] - at - 1) / step + 1 : 0;
    *last = high < a->out[1] ? high : a->out[1];
    *first = low < *last ? low : *last;
}

static void copy_row(float *to, const float *from, int64_t pixels, int64_t step)
{
    enum { BYTES = CPU_BLOCK * sizeof(float) };
    if (step == 1) {
        memcpy(to, from, (size_t)pixels * BYTES);
        return;
    }
    for (int64_t i = 0; i < pixels; i++)
        memcpy(to + i * CPU_BLOCK, from + i * step * CPU_BLOCK, BYTES);
}

void cpu_blocked_taps(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_blocked_taps_args *a = args;
    const int64_t taps = a->kernel[0] * a->kernel[1], row = a->out[1] * CPU_BLOCK;
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t tap = tile % taps, ky = tap / a->kernel[1], kx = tap % a->kernel[1], first, last;
        const float *x = a->x + tile / taps * a->in[0] * a->in[1] * CPU_BLOCK;
        float *y = a->y + tile * a->out[0] * row;
        on_image(a, kx, &first, &last);
        for (int64_t r = 0; r < a->out[0]; r++, y += row) {
            int64_t from = r * a->stride[0] + ky * a->dilation[0] - a->pad[0];
            int64_t begins = first, ends = last;
            if (from < 0 || from >= a->in[0])
                begins = ends = a->out[1];
            memset(y, 0, (size_t)(begins * CPU_BLOCK) * sizeof *y);
            int64_t column = begins * a->stride[1] + kx * a->dilation[1] - a->pad[1];
            if (begins < ends)
                copy_row(y + begins * CPU_BLOCK, x + (from * a->in[1] + column) * CPU_BLOCK,
                         ends - begins, a->stride[1]);
            memset(y + ends * CPU_BLOCK, 0, (size_t)((a->out[1] - ends) * CPU_BLOCK) * sizeof *y);
        }
    }
}
