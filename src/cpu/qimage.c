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
