/* SPDX-License-Identifier: Apache-2.0
 * Vectors of 16 bytes whose halves are interleaved: every processor has that, and more would not
 * be faster than memory. */
#include "cpu/qpack.h"

#include <stdbool.h>
#include <string.h>

typedef uint8_t u8x16 __attribute__((vector_size(16)));
typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));
typedef uint64_t u64x2 __attribute__((vector_size(16)));

static inline u8x16 load16(const uint8_t *p)
{
    u8x16 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void store16(uint8_t *p, u8x16 v)
{
    memcpy(p, &v, sizeof v);
}
/* Eight bytes, and zeros. */
static inline u8x16 load8(const uint8_t *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return (u8x16)(u64x2){x, 0};
}
static inline u8x16 low_bytes(u8x16 a, u8x16 b)
{
    return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
static inline u8x16 high_bytes(u8x16 a, u8x16 b)
{
    return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                   31);
}
static inline u8x16 low_pairs(u8x16 a, u8x16 b)
{
    return (u8x16)__builtin_shufflevector((u16x8)a, (u16x8)b, 0, 8, 1, 9, 2, 10, 3, 11);
}
static inline u8x16 high_pairs(u8x16 a, u8x16 b)
{
    return (u8x16)__builtin_shufflevector((u16x8)a, (u16x8)b, 4, 12, 5, 13, 6, 14, 7, 15);
}

/* --- rows --------------------------------------------------------------------------------------
 */

enum {
    CHUNK = 8,      /* columns at a time */
    COLUMNS = 1024, /* whose sums are kept together */
    QUADS = 64,     /* of four rows, whose sums fit 16 bits */
};

/* Four rows of CHUNK bytes. */
static inline void interleave(const uint8_t *const rows[4], int64_t at, u8x16 flip, uint8_t *to)
{
    u8x16 a = low_bytes(load8(rows[0] + at), load8(rows[1] + at));
    u8x16 b = low_bytes(load8(rows[2] + at), load8(rows[3] + at));
    store16(to, low_pairs(a, b) ^ flip);
    store16(to + 16, high_pairs(a, b) ^ flip);
}

/* What there is of a last chunk, the rest being such that flipping it gives zeros. */
typedef struct partial {
    uint8_t bytes[4][CHUNK];
    const uint8_t *rows[4];
} partial;

static void take_partial(partial *t, const uint8_t *const rows[4], int64_t at, int64_t n,
                         uint8_t flip)
{
    memset(t->bytes, flip, sizeof t->bytes);
    for (int i = 0; i < 4; i++) {
        memcpy(t->bytes[i], rows[i] + at, (size_t)n);
        t->rows[i] = t->bytes[i];
    }
}

static inline void pack_quad(const uint8_t *const rows[4], int64_t n, uint8_t flip, int64_t width,
                             uint8_t *to)
{
    u8x16 turn = (u8x16){0} + flip;
    int64_t c = 0, whole = n < width ? n / CHUNK * CHUNK : width;
    for (; c < whole; c += CHUNK)
        interleave(rows, c, turn, to + 4 * c);
    if (c < n && c < width) {
        partial t;
        take_partial(&t, rows, c, n - c, flip);
        interleave(t.rows, 0, turn, to + 4 * c);
        c += CHUNK;
    }
    memset(to + 4 * c, 0, (size_t)(4 * (width - c)));
}

void cpu_qpack_quad(const uint8_t *const rows[4], int64_t n, int64_t width, uint8_t *to)
{
    pack_quad(rows, n, 0, width, to);
}

static inline void add_chunk(const uint8_t *const rows[4], int64_t at, u8x16 flip, uint16_t *sums)
{
    u16x8 sum;
    u8x16 zero = {0};
    memcpy(&sum, sums, sizeof sum);
    for (int i = 0; i < 4; i++)
        sum += (u16x8)low_bytes(load8(rows[i] + at) ^ flip, zero);
    memcpy(sums, &sum, sizeof sum);
}

/* Sums of columns, those of a last chunk beyond n being zeros. */
static void add_quad(const uint8_t *const rows[4], int64_t n, uint8_t flip, uint16_t *sums)
{
    u8x16 turn = (u8x16)(u64x2){UINT64_C(0x0101010101010101) * flip, 0};
    int64_t c = 0;
    for (; c + CHUNK <= n; c += CHUNK)
        add_chunk(rows, c, turn, sums + c);
    if (c < n) {
        partial t;
        take_partial(&t, rows, c, n - c, flip);
        add_chunk(t.rows, 0, turn, sums + c);
    }
}

/* `n` columns from `first` on, a panel's first. */
static void pack_rows(const cpu_qgemm_pack_args *p, int64_t first, int64_t n)
{
    int64_t padded = (p->k + 3) / 4 * 4;
    uint8_t flip = (uint8_t)p->flip, nothing[COLUMNS];
    uint16_t part[COLUMNS];
    uint32_t sums[COLUMNS] = {0};
    memset(nothing, flip, sizeof nothing);
    for (int64_t k = p->k_begin, stop; k < p->k_end; k = stop) {
        stop = k + 4 * QUADS;
        memset(part, 0, sizeof part);
        for (; k < stop && k < p->k_end; k += 4) {
            const uint8_t *rows[4];
            for (int i = 0; i < 4; i++)
                rows[i] = k + i < p->k ? p->b + (k + i) * p->b_row + first : nothing;
            add_quad(rows, n, flip, part);
            for (int64_t c = 0; c < n; c += p->width) {
                pack_quad(rows, n - c, flip, p->width,
                          p->packed + (first + c) * padded + k * p->width);
                for (int i = 0; i < 4; i++)
                    rows[i] += p->width;
            }
        }
        for (int64_t c = 0; c < n; c++)
            sums[c] += part[c];
    }
    memcpy(p->col_sum + first, sums, (size_t)n * sizeof *sums);
}

/* --- columns -----------------------------------------------------------------------------------
 */

void cpu_qpack_turn(const uint8_t *from, int64_t column, int words, uint8_t *to, int64_t row)
{
    int w = 0;
    for (; w + 4 <= words; w += 4) {
        u32x4 a = (u32x4)load16(from + 4 * w), b = (u32x4)load16(from + column + 4 * w);
        u32x4 c = (u32x4)load16(from + 2 * column + 4 * w);
        u32x4 d = (u32x4)load16(from + 3 * column + 4 * w);
        u32x4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
        u32x4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        u32x4 rest_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        u32x4 rest_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        uint8_t *at = to + w * row;
        store16(at, (u8x16)__builtin_shufflevector(ab, cd, 0, 1, 4, 5));
        store16(at + row, (u8x16)__builtin_shufflevector(ab, cd, 2, 3, 6, 7));
        store16(at + 2 * row, (u8x16)__builtin_shufflevector(rest_ab, rest_cd, 0, 1, 4, 5));
        store16(at + 3 * row, (u8x16)__builtin_shufflevector(rest_ab, rest_cd, 2, 3, 6, 7));
    }
    for (; w < words; w++)
        for (int c = 0; c < CPU_QPACK_COLUMNS; c++)
            memcpy(to + w * row + 4 * c, from + c * column + 4 * w, 4);
}

/* The sum of `n` bytes. */
static uint32_t sum_bytes(const uint8_t *x, int64_t n, uint8_t flip)
{
    u8x16 turn = (u8x16){0} + flip;
    uint32_t total = 0;
    int64_t k = 0;
    while (k + 16 <= n) {
        u16x8 sum = {0};
        int64_t stop = k + 16 * QUADS < n ? k + 16 * QUADS : n;
        for (; k + 16 <= stop; k += 16) {
            u16x8 v = (u16x8)(load16(x + k) ^ turn);
            sum += (v & 255) + (v >> 8);
        }
        for (int i = 0; i < 8; i++)
            total += sum[i];
    }
    for (; k < n; k++)
        total += x[k] ^ flip;
    return total;
}

enum { BYTES = 64 }; /* of a column at a time */

/* `n` bytes of a column from k on, in the order they are packed in. */
static void take_some(const cpu_qgemm_pack_args *p, const uint8_t *column, int64_t k, int64_t n,
                      uint8_t *to)
{
    if (p->taps == 1) {
        memcpy(to, column + k, (size_t)n);
        return;
    }
    int64_t channels = p->k / p->taps, tap = k / channels, channel = k % channels;
    for (int64_t i = 0; i < n; i++) {
        to[i] = column[channel * p->taps + tap];
        if (++channel == channels) {
            channel = 0;
            tap++;
        }
    }
}

/* Four columns of a panel, `there` of which exist. */
static void pack_columns(const cpu_qgemm_pack_args *p, const uint8_t *from, int64_t there,
                         uint8_t *to)
{
    uint64_t flip = UINT64_C(0x0101010101010101) * p->flip, x;
    for (int64_t k = 0; k < p->k; k += BYTES) {
        uint8_t some[CPU_QPACK_COLUMNS][BYTES] = {0};
        int64_t left = p->k - k < BYTES ? p->k - k : BYTES;
        for (int64_t c = 0; c < there; c++) {
            take_some(p, from + c * p->b_col, k, left, some[c]);
            for (int i = 0; i < BYTES; i += 8) {
                memcpy(&x, some[c] + i, sizeof x);
                x ^= flip;
                memcpy(some[c] + i, &x, sizeof x);
            }
            memset(some[c] + left, 0, (size_t)(BYTES - left));
        }
        cpu_qpack_turn(some[0], BYTES, (int)(left + 3) / 4, to + k * p->width, 4 * p->width);
    }
}

static void pack_panel(const cpu_qgemm_pack_args *p, int64_t first)
{
    uint8_t *to = p->packed + first * ((p->k + 3) / 4 * 4);
    for (int64_t c = 0; c < p->width; c += CPU_QPACK_COLUMNS) {
        int64_t j = first + c, there = p->n - j < 0 ? 0 : p->n - j;
        const uint8_t *from = p->b + j * p->b_col;
        there = there < CPU_QPACK_COLUMNS ? there : CPU_QPACK_COLUMNS;
        pack_columns(p, from, there, to + 4 * c);
        for (int64_t i = 0; i < there; i++)
            p->col_sum[j + i] = (int32_t)sum_bytes(from + i * p->b_col, p->k, (uint8_t)p->flip);
    }
}

void cpu_qgemm_pack(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_qgemm_pack_args *p = args;
    int64_t first = begin * p->width, last = end * p->width < p->n ? end * p->width : p->n;
    if (p->b_col == 1)
        for (; first < last; first += COLUMNS)
            pack_rows(p, first, last - first < COLUMNS ? last - first : COLUMNS);
    else
        for (; first < last; first += p->width)
            pack_panel(p, first);
}

void cpu_qgemm_sum(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_qgemm_sum_args *p = args;
    (void)begin, (void)end;
    for (int64_t j = 0; j < p->n; j++) {
        int32_t sum = 0;
        for (int64_t i = 0; i < p->pieces; i++)
            sum += p->parts[i * p->n + j];
        p->col_sum[j] = sum;
    }
}

/* --- windows -----------------------------------------------------------------------------------
 */

enum { TAPS = 8 }; /* at a time, of BYTES channels */

/* `taps` of `n` channels of a column as rows of channels; `step` taps lie between channels. */
static void untangle(const uint8_t *from, int64_t step, int64_t taps, int64_t n, uint8_t flip,
                     uint8_t to[TAPS][BYTES])
{
    u8x16 turn = (u8x16){0} + flip;
    int64_t k = 0;
    for (; taps == TAPS && k + 4 <= n; k += 4) {
        const uint8_t *w = from + k * step, *rows[4] = {w, w + step, w + 2 * step, w + 3 * step};
        uint8_t words[TAPS][4];
        interleave(rows, 0, turn, words[0]);
        for (int t = 0; t < TAPS; t++)
            memcpy(to[t] + k, words[t], sizeof words[t]);
    }
    for (int64_t t = 0; t < taps; t++)
        for (int64_t i = k; i < n; i++)
            to[t][i] = from[i * step + t] ^ flip;
}

/* Four columns, `there` of which exist, where taps begin with words. */
static void pack_windows(const cpu_qconv_pack_args *a, const uint8_t *from, int64_t there,
                         uint8_t *to, int64_t columns)
{
    int64_t own = a->channels * a->taps;
    bool whole = there == CPU_QPACK_COLUMNS && a->channels % 4 == 0;
    if (whole && a->taps == 1 && !a->flip) {
        cpu_qpack_turn(from, own, (int)(a->channels / 4), to, 4 * columns);
        return;
    }
    for (int64_t tap = 0; tap < a->taps; tap += TAPS)
        for (int64_t k = 0; k < a->channels; k += BYTES) {
            uint8_t some[CPU_QPACK_COLUMNS][TAPS][BYTES];
            int64_t taps = a->taps - tap < TAPS ? a->taps - tap : TAPS;
            int64_t n = a->channels - k < BYTES ? a->channels - k : BYTES;
            if (!whole)
                memset(some, 0, sizeof some);
            for (int64_t c = 0; c < there; c++)
                untangle(from + c * own + k * a->taps + tap, a->taps, taps, n, (uint8_t)a->flip,
                         some[c]);
            for (int64_t t = 0; t < taps; t++) {
                int64_t piece = (tap + t) / a->run, in_piece = (tap + t) % a->run;
                cpu_qpack_turn(some[0][t], sizeof some[0], (int)(n + 3) / 4,
                               to + (piece * a->piece + in_piece * a->pitch + k) * columns,
                               4 * columns);
            }
        }
}

/* A column whose taps begin anywhere. */
static void pack_window(const cpu_qconv_pack_args *a, const uint8_t *from, uint8_t *to,
                        int64_t columns)
{
    for (int64_t t = 0; t < a->taps; t++) {
        int64_t k = t / a->run * a->piece + t % a->run * a->pitch;
        for (int64_t i = 0; i < a->channels; i++, k++)
            to[k / 4 * 4 * columns + k % 4] = from[i * a->taps + t] ^ (uint8_t)a->flip;
    }
}

void cpu_qconv_pack(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_qconv_pack_args *a = args;
    int64_t k = a->taps / a->run * a->piece, own = a->channels * a->taps;
    bool words = a->pitch % 4 == 0,
         filled = a->pitch == a->channels && a->piece == a->run * a->pitch;
    for (int64_t p = begin; p < end; p++) {
        int64_t first = p * a->width, left = a->n - first;
        int64_t columns =
            left < a->width ? (left + a->vector - 1) / a->vector * a->vector : a->width;
        int64_t there = left < columns ? left : columns;
        uint8_t *to = (uint8_t *)a->packed + first * k;
        const uint8_t *from = a->w + first * own;
        if (!words || !filled || there < columns)
            memset(to, 0, (size_t)(columns * k));
        memset(a->begin + first, 0, (size_t)columns * sizeof *a->begin);
        for (int64_t c = 0, four; c < there; c += four) {
            four = !words ? 1 : there - c < CPU_QPACK_COLUMNS ? there - c : CPU_QPACK_COLUMNS;
            if (words)
                pack_windows(a, from + c * own, four, to + 4 * c, columns);
            else
                pack_window(a, from + c * own, to + 4 * c, columns);
        }
        for (int64_t c = 0; a->zero && c < there; c++) {
            uint32_t sum = sum_bytes(from + c * own, own, (uint8_t)a->flip ^ 0x80);
            a->begin[first + c] = -a->zero * (int32_t)(sum - 128 * (uint32_t)own);
        }
    }
}

/* --- groups ------------------------------------------------------------------------------------
 */

void cpu_qpack_group(const uint8_t q[32], int bits, uint8_t *to)
{
    u8x16 low = load16(q), high = load16(q + 16);
    if (bits == 8) {
        store16(to, low);
        store16(to + 16, high);
        return;
    }
    store16(to, (low & 15) | high << 4);
    for (int h = 0; bits == 6 && h < 2; h++) {
        u32x4 w = (u32x4)((h ? high : low) >> 4 & 3);
        uint32_t word = w[0] | w[1] << 2 | w[2] << 4 | w[3] << 6;
        memcpy(to + 16 + 4 * h, &word, sizeof word);
    }
}

void cpu_qpack_nibbles(const uint8_t from[16], uint8_t to[16])
{
    u8x16 v = load16(from), low = v & 15, high = v >> 4;
    store16(to, low_bytes(low, high) | high_bytes(low, high) << 4);
}

void cpu_qpack_spread(const uint8_t *from, int64_t n, uint8_t *to)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        u8x16 v = load16(from + i), low = v & 15, high = v >> 4;
        store16(to + 2 * i, low_bytes(low, high));
        store16(to + 2 * i + 16, high_bytes(low, high));
    }
    for (; i < n; i++) {
        to[2 * i] = from[i] & 15;
        to[2 * i + 1] = from[i] >> 4;
    }
}
