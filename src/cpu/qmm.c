/* SPDX-License-Identifier: Apache-2.0
 * Packing of quantised right sides; see qmm.h. */
#include "cpu/qmm.h"

#include <string.h>

#include "base/alloc.h"

size_t cpu_qdot_place(cpu_qdot_weights *w, int64_t width, int64_t panels, bool super, void *memory)
{
    int64_t data = w->groups * cpu_qdot_group_bytes(w->bits, width);
    int64_t scales = w->groups * cpu_qdot_scale_bytes(w, width);
    int64_t supers = super ? (w->groups + CPU_QSUPER - 1) / CPU_QSUPER * 2 * width * 2 : 0;
    bool apart = w->bits == 8;
    size_t scales_at = apart ? (size_t)(panels * data) : (size_t)supers;
    size_t super_at = apart ? scales_at + (size_t)(panels * scales) : 0;
    size_t data_at = apart ? 0 : align_up((size_t)(supers + scales), 64);
    w->data_step = apart ? data : (int64_t)data_at + data;
    w->scale_step = apart ? scales : w->data_step;
    w->super_step = apart ? supers : w->data_step;
    if (memory) {
        w->data = (char *)memory + data_at;
        w->scales = (char *)memory + scales_at;
        w->super = super ? (char *)memory + super_at : NULL;
    }
    return apart ? super_at + (size_t)(panels * supers) : (size_t)(panels * w->data_step);
}

/* Eight rows of eight bytes, exchanged with their columns. */
static void turn_eight(const uint8_t *from, int64_t from_row, int8_t *to, int64_t to_row,
                       uint64_t flip)
{
    static const uint64_t mask[3] = {UINT64_C(0x00FF00FF00FF00FF), UINT64_C(0x0000FFFF0000FFFF),
                                     UINT64_C(0x00000000FFFFFFFF)};
    uint64_t r[8];
    for (int i = 0; i < 8; i++)
        memcpy(&r[i], from + i * from_row, 8);
    for (int level = 0; level < 3; level++) {
        int step = 1 << level, shift = 8 << level;
        for (int i = 0; i < 8; i++) {
            if (i & step)
                continue;
            uint64_t a = r[i], b = r[i + step];
            r[i] = (a & mask[level]) | (b & mask[level]) << shift;
            r[i + step] = (a >> shift & mask[level]) | (b & ~mask[level]);
        }
    }
    for (int i = 0; i < 8; i++) {
        uint64_t v = r[i] ^ flip;
        memcpy(to + i * to_row, &v, 8);
    }
}

/* A row of an image: [channels][columns], planes apart, becomes [columns][pitch]. */
static void turn_row(const cpu_qcopy *a, const uint8_t *from, int8_t *to)
{
    int64_t plane = a->rows * a->columns, room = a->width - a->left;
    int64_t n = a->columns < room ? a->columns : room;
    uint8_t flip = a->flip ? 0x80 : 0;
    int64_t c = 0;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; c + 8 <= a->channels; c += 8) {
        const uint8_t *x = from + c * plane;
        int64_t i = 0;
        for (; i + 8 <= n; i += 8)
            turn_eight(x + i, plane, to + i * a->pitch + c, a->pitch,
                       flip * UINT64_C(0x0101010101010101));
        for (; i < n; i++)
            for (int k = 0; k < 8; k++)
                to[i * a->pitch + c + k] = (int8_t)(x[k * plane + i] ^ flip);
    }
#endif
    for (; c < a->channels; c++)
        for (int64_t i = 0; i < n; i++)
            to[i * a->pitch + c] = (int8_t)(from[c * plane + i] ^ flip);
}

void cpu_qturn(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_qturn_args *a = args;
    const cpu_qcopy *c = &a->copy;
    int64_t all = c->n * c->height, last = end * c->tile < all ? end * c->tile : all;
    uint8_t zero = (uint8_t)((a->zero ? *a->zero : 0) ^ (c->flip ? 0x80 : 0));
    for (int64_t r = begin * c->tile; r < last; r++) {
        int64_t y = r % c->height - c->top;
        int8_t *to = a->to + r * c->width * c->pitch;
        bool inside = y >= 0 && y < c->rows;
        if (!inside || c->left > 0 || c->width > c->columns || c->pitch > c->channels)
            memset(to, zero, (size_t)(c->width * c->pitch));
        if (inside)
            turn_row(c, a->x + r / c->height * c->channels * c->rows * c->columns + y * c->columns,
                     to + c->left * c->pitch);
    }
}
