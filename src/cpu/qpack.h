/* SPDX-License-Identifier: Apache-2.0
 * Right sides of the byte products (cpu/qmm.h), made from bytes as models store them: rows [k, n],
 * read in order while many panels are written, or columns one behind the other. */
#ifndef CPU_QPACK_H
#define CPU_QPACK_H

#include <stddef.h>
#include <stdint.h>

/* A right side of cpu_qgemm into panels, with its column sums. Tile t is panel t. Words without
 * gaps: packed weights in a file are known by the arguments that made them. */
typedef struct cpu_qgemm_pack_args {
    const uint8_t *b;
    uint8_t *packed;
    int32_t *col_sum; /* [n], of the rows packed */
    int64_t k, n;
    int64_t b_row, b_col;   /* one of them is 1 */
    int64_t k_begin, k_end; /* only these rows; fewer than all, from a multiple of 4 on, where b_col
                               is 1 */
    int64_t taps; /* columns are [k/taps][taps], of which the taps become the outer ones */
    int64_t width;
    uint64_t flip; /* 0x80 (i8) or 0 (u8): turned in each byte */
} cpu_qgemm_pack_args;
void cpu_qgemm_pack(const void *args, uint32_t begin, uint32_t end);
static inline int64_t cpu_qgemm_pack_bytes(int64_t k, int64_t n, int64_t width)
{
    return (n + width - 1) / width * width * ((k + 3) / 4 * 4);
}

/* Column sums of all rows from those of pieces. One tile. */
typedef struct cpu_qgemm_sum_args {
    const void *b;        /* not read */
    const int32_t *parts; /* [pieces][n] */
    int32_t *col_sum;
    int64_t pieces, n;
} cpu_qgemm_sum_args;
void cpu_qgemm_sum(const void *args, uint32_t begin, uint32_t end);

/* Weights [n][channels][taps] into panels of cpu_qconv (cpu/qimage.h),
 * [pieces][piece/4][columns][4]; what sums begin with, −zero·Σw, into `begin`. The channels of a
 * tap fill `pitch` bytes, `run` taps a piece. Tile t is panel t. */
typedef struct cpu_qconv_pack_args {
    const uint8_t *w;
    int8_t *packed;
    int32_t *begin;
    int64_t n, channels, taps, pitch, run, piece;
    int64_t width, vector; /* multiples of four */
    int32_t zero;
    uint32_t flip; /* 0x80: unsigned, 128 higher; or 0 */
} cpu_qconv_pack_args;
void cpu_qconv_pack(const void *args, uint32_t begin, uint32_t end);

/* Four rows of `n` bytes as [width][4]; columns beyond n are zeros. `width` is a multiple of 8. */
void cpu_qpack_quad(const uint8_t *const rows[4], int64_t n, int64_t width, uint8_t *to);

enum { CPU_QPACK_COLUMNS = 4 };
/* Words of four bytes, `words` of each of four columns which are `column` bytes apart, as rows of
 * four words, `row` bytes apart. */
void cpu_qpack_turn(const uint8_t *from, int64_t column, int words, uint8_t *to, int64_t row);
/* 32 values of a column as the words that cpu_qdot reads of it: bits 8: 8, 6: 6, 4: 4 of them. */
void cpu_qpack_group(const uint8_t q[32], int bits, uint8_t *to);
/* The same from 32 fields of four bits, the low one of a byte first. */
void cpu_qpack_nibbles(const uint8_t from[16], uint8_t to[16]);
/* Both nibbles of n bytes, the low one first. */
void cpu_qpack_spread(const uint8_t *from, int64_t n, uint8_t *to);

#endif
