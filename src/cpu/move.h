/* SPDX-License-Identifier: Apache-2.0
 * Kernels that only move elements, by their size in bytes: copies between strided views, blocked
 * transposes, fills, triangles. */
#ifndef CPU_MOVE_H
#define CPU_MOVE_H

#include <stdbool.h>

#include "cpu/isa.h"
#include "cpu/nd.h"

/* to[…] = from[…] over nd (operands: from, to). Element sizes 1, 2, 4, 8, 16. */
typedef struct cpu_copy_args {
    const char *from;
    char *to;
    int64_t from_at, to_at; /* elements from the pointers to the first element */
    uint32_t size;
    cpu_nd nd;
} cpu_copy_args;

void cpu_copy(const void *args, uint32_t begin, uint32_t end);

/* to[r·to_row + c] = from[r + c·from_column] for every position of nd (operands: from, to; its
 * units are the other axes). A tile is one position and CPU_TRANSPOSE_ROWS rows of it. */
enum { CPU_TRANSPOSE_ROWS = 256 };
typedef struct cpu_transpose_args {
    const char *from;
    char *to;
    int64_t from_at, to_at;
    uint32_t size;
    int64_t rows, columns, to_row, from_column;
    int32_t rank;
    int64_t dims[CPU_ND_RANK], from_stride[CPU_ND_RANK], to_stride[CPU_ND_RANK];
    uint32_t row_tiles;
} cpu_transpose_args;

CPU_DECLARE(cpu_transpose);

/* count elements of `size` bytes at `to` become `value`. */
typedef struct cpu_fill_args {
    char *to;
    int64_t count, tile;
    uint32_t size;
    unsigned char value[16];
    const char *from; /* when set, the value is read here */
} cpu_fill_args;

void cpu_fill(const void *args, uint32_t begin, uint32_t end);

/* Rows with borders that repeat what is in them: row r of `to` is [first blocks][count blocks][the
 * others], those in the middle as they lie in `from`, each other one at its own place. Where a row
 * begins in `from` is the sum of what its index along each axis says. Tile t: `tile` rows. */
typedef struct cpu_border_args {
    const char *from;
    char *to;
    int64_t rows, tile;
    int64_t block; /* bytes */
    int64_t blocks, first, count;
    const int64_t *inner; /* [blocks]: bytes behind the row's begin */
    int32_t rank;
    int64_t dims[CPU_ND_RANK];
    const int64_t *outer[CPU_ND_RANK]; /* [rank][dims]: bytes of `from` */
} cpu_border_args;

void cpu_border(const void *args, uint32_t begin, uint32_t end);

/* A triangle of matrices [count][rows][columns], zeros beside it: the columns from row + k on
 * (upper) or up to it. k NULL: 0. Tile t: `tile` rows, over all matrices. */
typedef struct cpu_trilu_args {
    const char *from;
    char *to;
    const int64_t *k;
    int64_t count, rows, columns, tile;
    uint32_t size;
    bool upper;
} cpu_trilu_args;

void cpu_trilu(const void *args, uint32_t begin, uint32_t end);

#endif
