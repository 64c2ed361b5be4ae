/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/move.h"

#include <string.h>

typedef struct wide {
    uint64_t part[2];
} wide;

#define COPY_RUN(type)                                                                             \
    {                                                                                              \
        const type *x = (const type *)from;                                                        \
        type *y = (type *)to;                                                                      \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i * to_step] = x[i * from_step];                                                     \
        break;                                                                                     \
    }

static void copy_run(char *to, int64_t to_step, const char *from, int64_t from_step, uint32_t size,
                     int64_t n)
{
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, (size_t)n * size);
        return;
    }
    switch (size) {
    case 1:
        COPY_RUN(uint8_t)
    case 2:
        COPY_RUN(uint16_t)
    case 4:
        COPY_RUN(uint32_t)
    case 8:
        COPY_RUN(uint64_t)
    default:
        COPY_RUN(wide)
    }
}

void cpu_copy(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_copy_args *a = args;
    int32_t inner = a->nd.rank - 1;
    int64_t from_step = a->nd.strides[0][inner], to_step = a->nd.strides[1][inner];
    const char *from = a->from + a->from_at * a->size;
    char *to = a->to + a->to_at * a->size;
    if (from == to) /* planned in place: it is there already */
        return;
    cpu_nd_walk w;
    for (cpu_nd_start(&a->nd, &w, begin, end); cpu_nd_more(&w); cpu_nd_next(&a->nd, &w))
        copy_run(to + w.at[1] * a->size, to_step, from + w.at[0] * a->size, from_step, a->size,
                 w.count);
}

void cpu_fill(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_fill_args *a = args;
    int64_t first = begin * a->tile, last = end * a->tile < a->count ? end * a->tile : a->count;
    unsigned char pattern[256];
    const void *value = a->from ? (const void *)a->from : a->value;
    uint32_t each = sizeof pattern / a->size;
    for (uint32_t i = 0; i < each; i++)
        memcpy(pattern + i * a->size, value, a->size);
    for (int64_t i = first; i < last; i += each) {
        int64_t n = last - i < each ? last - i : each;
        memcpy(a->to + i * a->size, pattern, (size_t)n * a->size);
    }
}

static void copy_blocks(char *to, const char *from, const int64_t *places, int64_t n, int64_t block)
{
    if (block == 4)
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * 4, from + places[i], 4);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * block, from + places[i], (size_t)block);
}

void cpu_border(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_border_args *a = args;
    int64_t last = end * a->tile < a->rows ? end * a->tile : a->rows, behind = a->first + a->count;
    for (int64_t r = begin * a->tile; r < last; r++) {
        const char *from = a->from;
        char *to = a->to + r * a->blocks * a->block;
        int64_t left = r;
        for (int32_t d = a->rank; d-- > 0; left /= a->dims[d])
            from += a->outer[d][left % a->dims[d]];
        copy_blocks(to, from, a->inner, a->first, a->block);
        if (a->count)
            memcpy(to + a->first * a->block, from + a->inner[a->first],
                   (size_t)(a->count * a->block));
        copy_blocks(to + behind * a->block, from, a->inner + behind, a->blocks - behind, a->block);
    }
}

void cpu_trilu(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_trilu_args *a = args;
    int64_t all = a->count * a->rows, n = a->columns, size = a->size, k = a->k ? *a->k : 0;
    int64_t last = end * a->tile < all ? end * a->tile : all;
    k = k > n ? n : k < -a->rows - 1 ? -a->rows - 1 : k; /* sums must not overflow */
    for (int64_t r = begin * a->tile; r < last; r++) {
        int64_t at = r % a->rows + k + !a->upper; /* the first column of the second part */
        at = at < 0 ? 0 : at > n ? n : at;
        const char *from = a->from + r * n * size;
        char *to = a->to + r * n * size;
        memset(to + (a->upper ? 0 : at * size), 0, (size_t)((a->upper ? at : n - at) * size));
        if (from != to)
            memcpy(to + (a->upper ? at * size : 0), from + (a->upper ? at * size : 0),
                   (size_t)((a->upper ? n - at : at) * size));
    }
}
