/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/window.h"

#include <string.h>

static void fill(float *to, int64_t n, float value)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = value;
}

/* Phase `phase` of one row: columns phase, phase + phases, … of the padded row. */
static void pad_phase(const cpu_window_pad_args *a, const float *row, float *to, int64_t phase)
{
    int64_t step = a->column_step * a->phases, at = phase * a->column_step - a->pad_left;
    int64_t i = 0;
    for (; i < a->width && at < 0; i++, at += step)
        to[i] = a->value;
    int64_t inside = at < a->in_width ? (a->in_width - at + step - 1) / step : 0;
    int64_t end = i + inside < a->width ? i + inside : a->width;
    if (step == 1 && end > i) {
        memcpy(to + i, row + at, (size_t)(end - i) * sizeof *to);
        i = end;
    }
    for (; i < end; i++, at += step)
        to[i] = row[at];
    fill(to + end, a->width - end, a->value);
}

void cpu_window_pad(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_window_pad_args *a = args;
    int64_t last = end * a->tile < a->planes ? end * a->tile : a->planes;
    int64_t pitch = a->phases * a->width;
    for (int64_t plane = begin * a->tile; plane < last; plane++) {
        const float *from = a->x + plane * a->in_height * a->in_width;
        float *to = a->to + plane * a->height * pitch;
        for (int64_t r = 0; r < a->height; r++, to += pitch) {
            int64_t y = r * a->row_step - a->pad_top;
            if (y < 0 || y >= a->in_height) {
                fill(to, pitch, a->value);
                continue;
            }
            for (int64_t phase = 0; phase < a->phases; phase++)
                pad_phase(a, from + y * a->in_width, to + phase * a->width, phase);
        }
    }
}
