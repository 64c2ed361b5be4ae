/* SPDX-License-Identifier: Apache-2.0
 * Copies of images of bytes; see qimage.h. */
#include "cpu/qimage.h"

#include <string.h>

void cpu_qborder(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_qborder_args *a = args;
    const cpu_qcopy *c = &a->copy;
    int64_t all = c->n * c->height, last = end * c->tile < all ? end * c->tile : all;
    int64_t room = c->width - c->left, n = c->columns < room ? c->columns : room;
    uint8_t flip = c->flip ? 0x80 : 0;
    for (int64_t r = begin * c->tile; r < last; r++) {
        int64_t y = r % c->height - c->top;
        uint8_t *to = a->to + r * c->width * c->pitch;
        if (y < 0 || y >= c->rows || c->pitch > c->channels) {
            memset(to, a->zero, (size_t)(c->width * c->pitch));
            if (y < 0 || y >= c->rows)
                continue;
        } else {
            memset(to, a->zero, (size_t)(c->left * c->pitch));
            memset(to + (c->left + n) * c->pitch, a->zero,
                   (size_t)((c->width - c->left - n) * c->pitch));
        }
        const uint8_t *from = a->x + (r / c->height * c->rows + y) * c->columns * c->channels;
        to += c->left * c->pitch;
        bool whole = c->pitch == c->channels;
        int64_t times = whole ? 1 : n, bytes = whole ? n * c->channels : c->channels;
        for (int64_t i = 0; i < times; i++, from += c->channels, to += c->pitch) {
            if (!flip)
                memcpy(to, from, (size_t)bytes);
            else
                for (int64_t k = 0; k < bytes; k++)
                    to[k] = from[k] ^ flip;
        }
    }
}

static int32_t sum_weights(const uint8_t *from, int64_t n, uint8_t flip)
{
    int32_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (int8_t)(from[i] ^ flip);
    return sum;
}

/* Four channels of a tap, which lie side by side: a word. */
static void pack_four(const uint8_t *from, int64_t step, uint32_t flip, int8_t *to)
{
    uint8_t four[4] = {from[0], from[step], from[2 * step], from[3 * step]};
    uint32_t word;
    memcpy(&word, four, sizeof word);
    word ^= flip;
    memcpy(to, &word, sizeof word);
}

/* A column of a panel of `columns`: word k / 4 of it is 4 · columns bytes behind the one before.
 * Where taps begin with words the channels of one are packed four at a time. */
static void pack_column(const cpu_qconv_pack_args *a, const uint8_t *from, int8_t *to,
                        int64_t columns)
{
    uint8_t flip = a->flip ? 0x80 : 0;
    for (int64_t t = 0; t < a->taps; t++) {
        int64_t k = t / a->run * a->piece + t % a->run * a->pitch, end = k + a->channels;
        const uint8_t *w = from + t;
        for (; k % 4 == 0 && k + 4 <= end; k += 4, w += 4 * a->taps)
            pack_four(w, a->taps, 0x01010101u * flip, to + k * columns);
        for (; k < end; k++, w += a->taps)
            to[k / 4 * 4 * columns + k % 4] = (int8_t)(*w ^ flip);
    }
}

void cpu_qconv_pack(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_qconv_pack_args *a = args;
    int64_t k = a->taps / a->run * a->piece;
    for (int64_t p = begin; p < end; p++) {
        int64_t left = a->n - p * a->width;
        int64_t columns =
            left < a->width ? (left + a->vector - 1) / a->vector * a->vector : a->width;
        int8_t *to = a->packed + p * a->width * k;
        memset(to, 0, (size_t)(columns * k));
        memset(a->begin + p * a->width, 0, (size_t)columns * sizeof *a->begin);
        for (int64_t c = 0; c < columns && c < left; c++) {
            int64_t m = p * a->width + c, own = a->channels * a->taps;
            pack_column(a, a->w + m * own, to + 4 * c, columns);
            a->begin[m] = -a->zero * sum_weights(a->w + m * own, own, a->flip ? 0x80 : 0);
        }
    }
}
