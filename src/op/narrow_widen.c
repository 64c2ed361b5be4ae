/* SPDX-License-Identifier: Apache-2.0
 * Weights in few bits as f32 panels: a block of values at a time is widened and then packed. */
#include <string.h>

#include "cpu/gemm.h"
#include "op/narrow_pack.h"

/* Values of a block: so many of a line, a stored row or column, and lines. */
enum { LONG = 256, LINES = 32 };

typedef struct widening {
    const op_narrow_widen_args *a;
    op_narrow_data d;
    double numbers[256]; /* what codes mean */
    /* Of the columns in work, where lines are rows: */
    int64_t block, first; /* of these… */
    double scale[LONG], zero[LONG];
    float values[LINES][LONG];
} widening;

static void begin_widening(widening *w, const op_narrow_widen_args *a)
{
    w->a = a;
    w->d = (op_narrow_data){a->d.w, a->d.scale, a->d.zero, a->bytes};
    w->block = -1;
    bool coded = a->s.kind != OP_NARROW_GGUF && a->s.kind != OP_NARROW_FLOAT;
    for (int i = 0; coded && i < (a->s.kind == OP_NARROW_NVFP4 ? 16 : 256); i++)
        w->numbers[i] = op_narrow_code(&a->s, &w->d, (uint8_t)i);
}

/* Packs the values, which stand for B from row k and the first panel on. */
static void pack_values(const widening *w, int64_t row, int64_t column, int64_t k, int64_t k_end,
                        uint32_t begin, uint32_t end)
{
    const op_narrow_widen_args *a = w->a;
    uintptr_t before = (uintptr_t)(k * row + begin * a->width * column) * sizeof(float);
    cpu_gemm_pack_args p = {.b = (const float *)((uintptr_t)w->values - before),
                            .packed = a->packed,
                            .n = a->s.n,
                            .k = a->s.k,
                            .b_row = row,
                            .b_col = column,
                            .k_begin = k,
                            .k_end = k_end};
    a->pack(&p, begin, end);
}

/* Rows [k, end) of column j. */
static void widen_column(const widening *w, int64_t j, int64_t k, int64_t end, float *out)
{
    const op_narrow *s = &w->a->s;
    if (s->kind == OP_NARROW_FLOAT) {
        for (int64_t i = k; i < end; i++)
            out[i - k] = (float)op_narrow_value(s, &w->d, i, j);
    } else if (s->kind == OP_NARROW_GGUF) {
        const op_gguf_type *t = s->gguf;
        const uint8_t *from = w->d.bytes + (j * s->k + k) / t->elements * t->bytes;
        double some[LONG];
        for (int64_t i = k; i < end; i += t->elements, from += t->bytes)
            t->decode(from, some + (i - k));
        for (int64_t i = k; i < end; i++)
            out[i - k] = (float)some[i - k];
    } else {
        op_narrow_line line = op_narrow_line_at(s, &w->d, j);
        uint8_t codes[LONG];
        op_narrow_codes(&line, k, end - k, codes);
        for (int64_t i = k, stop; i < end; i = stop) {
            int64_t b = i / s->block;
            double zero = op_narrow_zero(s, &w->d, b, j), scale = op_narrow_scale(s, &w->d, b, j);
            stop = (b + 1) * s->block < end ? (b + 1) * s->block : end;
            for (int64_t p = i; p < stop; p++)
                out[p - k] = (float)((w->numbers[codes[p - k]] - zero) * scale);
        }
    }
}

static void widen_columns(widening *w, uint32_t t)
{
    const op_narrow_widen_args *a = w->a;
    int64_t first = t * a->width, left = a->s.n - first, n = left < a->width ? left : a->width;
    for (int64_t k = 0; k < a->s.k; k += LONG) {
        int64_t end = k + LONG < a->s.k ? k + LONG : a->s.k;
        for (int64_t j = 0; j < n; j++)
            widen_column(w, first + j, k, end, w->values[j]);
        pack_values(w, 1, LONG, k, end, t, t + 1);
    }
}

/* Columns [first, last) of row k. */
static void widen_row(widening *w, int64_t k, int64_t first, int64_t last, float *out)
{
    const op_narrow *s = &w->a->s;
    int64_t n = last - first, b = k / s->block;
    if (s->kind == OP_NARROW_FLOAT) {
        for (int64_t j = 0; j < n; j++)
            out[j] = (float)op_narrow_value(s, &w->d, k, first + j);
        return;
    }
    if (b != w->block || first != w->first)
        for (int64_t j = 0; j < n; j++) {
            w->scale[j] = op_narrow_scale(s, &w->d, b, first + j);
            w->zero[j] = op_narrow_zero(s, &w->d, b, first + j);
        }
    w->block = b;
    w->first = first;
    op_narrow_line line = op_narrow_line_at(s, &w->d, k);
    uint8_t codes[LONG];
    op_narrow_codes(&line, first, n, codes);
    for (int64_t j = 0; j < n; j++)
        out[j] = (float)((w->numbers[codes[j]] - w->zero[j]) * w->scale[j]);
}

static void widen_rows(widening *w, uint32_t begin, uint32_t end)
{
    const op_narrow_widen_args *a = w->a;
    int64_t first = begin * a->width, last = end * a->width < a->s.n ? end * a->width : a->s.n;
    for (int64_t k = a->k_begin; k < a->k_end; k += LINES) {
        int64_t stop = k + LINES < a->k_end ? k + LINES : a->k_end;
        for (int64_t i = k; i < stop; i++)
            widen_row(w, i, first, last, w->values[i - k]);
        pack_values(w, LONG, 1, k, stop, begin, end);
    }
}

void op_narrow_widen(const void *args, uint32_t begin, uint32_t end)
{
    const op_narrow_widen_args *a = args;
    uint32_t some = (uint32_t)(LONG / a->width);
    widening w;
    _Static_assert(sizeof w < CPU_STACK_SCRATCH, "kernel.h");
    begin_widening(&w, a);
    if (!op_narrow_by_rows(&a->s))
        for (uint32_t t = begin; t < end; t++)
            widen_columns(&w, t);
    else
        for (uint32_t t = begin; t < end; t += some)
            widen_rows(&w, t, end - t < some ? end : t + some);
}
