/* SPDX-License-Identifier: Apache-2.0
 * An n-dimensional index space with strided operands, reduced to the fewest axes, cut into units
 * of work: a unit is a piece of the innermost axis. */
#ifndef CPU_ND_H
#define CPU_ND_H

#include <stdbool.h>
#include <stdint.h>

enum { CPU_ND_RANK = 12, CPU_ND_OPERANDS = 8 };

typedef struct cpu_nd {
    int32_t rank; /* ≥ 1 */
    uint32_t operands;
    int64_t dims[CPU_ND_RANK];
    int64_t strides[CPU_ND_OPERANDS][CPU_ND_RANK]; /* elements */
    /* Not 0: along the innermost axis so many elements, which follow each other, come again and
     * again; the stride there is 0. */
    int64_t period[CPU_ND_OPERANDS];
    int64_t piece;      /* elements of a unit, except a row's last */
    int64_t pieces;     /* units of one innermost row */
    int64_t units;      /* in all */
    int64_t tile_units; /* units of a tile */
} cpu_nd;

/* Starts an index space; add operands with their strides per axis, then call cpu_nd_ready. */
void cpu_nd_begin(cpu_nd *nd, int32_t rank, const int64_t *dims);
void cpu_nd_operand(cpu_nd *nd, const int64_t *strides);
/* Before cpu_nd_ready, by those who know of periods: a short innermost axis becomes one with the
 * next where some operands only repeat theirs. The last operand never does. */
void cpu_nd_repeat(cpu_nd *nd, int64_t shorter);
/* Drops axes of one element, merges axes that are adjacent for every operand, and cuts the space
 * into tiles of about `tile` elements; returns how many. Empty spaces have none. */
uint32_t cpu_nd_ready(cpu_nd *nd, int64_t tile);
/* Is operand k dense over the (merged) space? Then tile t owns elements
 * [t·cpu_nd_tile_elements, …) of it. */
bool cpu_nd_dense(const cpu_nd *nd, uint32_t k);
/* Elements of a tile when tiles are equal runs of the linear index space, else 0. */
int64_t cpu_nd_tile_elements(const cpu_nd *nd);

/* Walks the units of some tiles. */
typedef struct cpu_nd_walk {
    int64_t unit, last;
    int64_t piece;               /* which piece of the row */
    int64_t index[CPU_ND_RANK];  /* of the outer axes */
    int64_t at[CPU_ND_OPERANDS]; /* element offsets of this unit */
    int64_t count;               /* elements of this unit */
} cpu_nd_walk;

void cpu_nd_start(const cpu_nd *nd, cpu_nd_walk *w, uint32_t begin, uint32_t end);
void cpu_nd_next(const cpu_nd *nd, cpu_nd_walk *w);
static inline bool cpu_nd_more(const cpu_nd_walk *w)
{
    return w->unit < w->last;
}

#endif
