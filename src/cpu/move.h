/* SPDX-License-Identifier: Apache-2.0
 * Kernels that only move elements, by their size in bytes: copies between strided views, blocked
 * transposes, fills, gathers. */
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

/* to[o][i][…] = from[o][index[i]][…]: `inner` bytes at a time. Negative indices count from the
 * end; one outside reports CPU_FAULT_INDEX and its row is left zero. */
typedef struct cpu_gather_args {
    const char *from;
    const void *index; /* i64, or i32 when narrow */
    char *to;
    cpu_fault *fault;
    int64_t outer, axis, indices, inner;
    int64_t outer_step; /* bytes between outer slices of `from` */
    int64_t axis_step;  /* bytes between entries of the axis */
    int64_t tile;       /* gathered entries of a tile, over outer × indices */
    bool narrow;
} cpu_gather_args;

void cpu_gather(const void *args, uint32_t begin, uint32_t end);

#endif
