/* SPDX-License-Identifier: Apache-2.0
 *
 * C = epilogue(A·B) in f32 with seven products of halves instead of eight (Strassen, 1969), B
 * constant. Two register tiles of rows, two panels of columns and the two halves of a block of K
 * are quarters
 *
 *     M₁ = (A₁₁ + A₂₂)(B₁₁ + B₂₂)   M₂ = (A₂₁ + A₂₂)B₁₁           M₃ = A₁₁(B₁₂ - B₂₂)
 *     M₄ = (A₂₁ - A₁₁)(B₁₁ + B₁₂)   M₅ = A₂₂(B₂₁ - B₁₁)           M₆ = (A₁₁ + A₁₂)B₂₂
 *     M₇ = (A₁₂ - A₂₂)(B₂₁ + B₂₂)
 *
 *     C₂₂ = M₁ - M₂ + M₃ + M₄   C₂₁ = M₂ + M₅   C₁₂ = M₃ + M₆   C₁₁ = M₁ + M₅ - M₆ + M₇
 *
 * (in the order in which they are made), so what is added to C never leaves L1. Each product pairs
 * its terms (cpu/paired.h) of the same scaled rows and columns: all have a root mean square of
 * about one when they are added, so none is lost beside another. Rows and columns that cannot be
 * scaled or are marked, rows that are no whole group and columns that are no whole pair of panels
 * go the way of cpu/paired.h.
 *
 * One call does one block of K. Its left side is made first, once for all columns: for each group
 * of rows seven pieces, each as a scaled left side of cpu/paired.h. The right side is packed as
 * there; a tile makes the pieces of two panels on its stack, once for all its rows.
 */
#ifndef CPU_HALVED_H
#define CPU_HALVED_H

#include "cpu/paired.h"

enum {
    CPU_HALVED_PIECES = 7,
    CPU_HALVED_DEPTH = 768,                /* most columns of A in a block of K, … */
    CPU_HALVED_WHOLE = 2 * CPU_PAIRED_RUN, /* … which are a multiple of this */
    CPU_HALVED_MOST = CPU_PAIRED_TALL,     /* rows of any register tile */
    /* Floats between pieces: those that are written side by side do not lie in the same sets of a
     * cache. */
    CPU_HALVED_APART = 80,
};

/* What belongs to the rows of a group. */
typedef struct cpu_halved_rows {
    _Alignas(64) float products[CPU_HALVED_PIECES][CPU_HALVED_MOST]; /* by piece: Σ±x₁x₂ */
    float back[2 * CPU_HALVED_MOST];                                 /* undoes the scaling */
    bool alike[2 * CPU_HALVED_MOST]; /* by first row of a register tile: all have one `back` */
    bool odd;                        /* some row cannot be scaled */
} cpu_halved_rows;

typedef struct cpu_halved_args {
    /* As for cpu/paired.h, but for the tiles: tile t is row block t % row_blocks of column block
     * t / row_blocks. A row block has `block_groups` groups, the last one also the rows that are
     * left; block_cols is a multiple of two panels. Columns of A are adjacent in a run. block_rows:
     * so many rows at a time go the way of cpu/paired.h. */
    cpu_paired_args p;
    int64_t k0;            /* where the block of K begins */
    float *left;           /* [group][piece][run][row][CPU_PAIRED_RUN], pieces CPU_HALVED_APART */
    cpu_halved_rows *rows; /* [group] */
    int64_t block_groups;
} cpu_halved_args;

/* Columns of A in the block of K that a call does. */
static inline int64_t cpu_halved_columns(const cpu_halved_args *h)
{
    return h->p.k - h->k0 < h->p.kc ? h->p.k - h->k0 : h->p.kc;
}

CPU_DECLARE(cpu_halved_left_f32); /* tile t: group t */
CPU_DECLARE(cpu_halved_f32);

static inline int64_t cpu_halved_group(cpu_isa isa)
{
    return 2 * cpu_paired_height(isa);
}
/* Floats of the left side of a group, with so many columns in a block of K. */
static inline int64_t cpu_halved_left(cpu_isa isa, int64_t kc)
{
    return CPU_HALVED_PIECES * (cpu_paired_height(isa) * kc / 2 + CPU_HALVED_APART);
}

#endif
