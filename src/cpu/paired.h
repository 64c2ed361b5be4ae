/* SPDX-License-Identifier: Apache-2.0
 *
 * C = epilogue(A·B) in f32 with fewer multiplications than terms, B constant.
 *
 * Two terms of a sum take one multiplication (Winograd, 1968):
 *
 *     x₁y₁ + x₂y₂ = (x₁ + y₂)(x₂ + y₁) - x₁x₂ - y₁y₂
 *
 * Σx₁x₂ belongs to a row of A and Σy₁y₂ to a column of B, so both are made once. A processor that
 * adds beside its FMAs (cpu_features.adds_beside_fma) then does more terms than it has FMAs: two
 * sums out of three are made so, the third in the plain way, and both kinds of unit are always
 * busy: three terms for the price of two.
 *
 * What keeps it exact (docs/kernels.md): within a block of K every row and every column is scaled
 * by a power of two so that its root mean square is about one, so neither x nor y is lost in
 * x + y; and signs alternate from pair to pair, so Σx₁x₂ and Σy₁y₂ cancel instead of growing. Rows
 * and columns that cannot be scaled (infinite, NaN, or farther than 2^±40 from one) have NaN for
 * their sum of products: their register tiles take the plain way.
 *
 * A tile scales its rows of A onto its stack, block by block of K: register tiles, in each runs of
 * CPU_PAIRED_RUN columns row by row. The scaled B is packed at compile time: blocks of kc rows, in
 * each the panels of two vectors (the last may be one). K is padded with zeros to whole runs.
 */
#ifndef CPU_PAIRED_H
#define CPU_PAIRED_H

#include "cpu/epilogue.h"
#include "cpu/isa.h"

enum {
    CPU_PAIRED_RUN = 16,
    CPU_PAIRED_LEFT = 98304,      /* floats of A that a tile scales at a time, at most */
    CPU_PAIRED_LEFT_NEAR = 32768, /* … where L3 is nearly as fast as L2: CPU_TERMS_PAIRED */
    CPU_PAIRED_ROWS = 216,        /* most rows of a tile */
    CPU_PAIRED_TAPS = 25,         /* most taps of a window */
};

/* Packs B; tile t is panel t of the blocks from k_begin (a multiple of kc) to k_end. `products` and
 * `back` have a value for each column and block of K, [block][columns, whole vectors]: the sum
 * Σ±y₁y₂, scaled (NaN: take the plain way), and what undoes the scaling (0 where all is zero). */
typedef struct cpu_paired_right_args {
    const float *b;
    float *packed, *products, *back;
    int64_t n, k, b_row, b_col, kc;
    int64_t k_begin, k_end;
    /* More than one: B is the weights of a window, columns of runs of channels with so many taps to
     * each (b_row is 1). The rows that are packed are the taps of a run one after the other, in
     * one go (CPU_PAIRED_BOTH). */
    int64_t taps;
    /* CPU_PAIRED_COPY: only the rows from k_begin to k_end, both within a block, are copied;
     * CPU_PAIRED_SCALE: the blocks have been copied. */
    int64_t part;
    int64_t unscaled; /* as in cpu_paired_args: columns are only copied (a word, as the key of kept
                       * weights is made of all bytes) */
} cpu_paired_right_args;
enum { CPU_PAIRED_BOTH, CPU_PAIRED_COPY, CPU_PAIRED_SCALE };

CPU_DECLARE(cpu_paired_right_f32);

/* When all of B is packed (the same arguments; cpu_paired_marks tiles): columns alike, and columns
 * that are almost empty, are to be summed in the plain way, which gives the same bits wherever a
 * column lies and takes what an only element picks as it is. Their sums of products become NaN. */
CPU_DECLARE(cpu_paired_mark_f32);
enum { CPU_PAIRED_MARKS = 1 << 13 }; /* columns that a tile compares with one another, about */
static inline uint32_t cpu_paired_marks(int64_t n)
{
    return (uint32_t)(n / CPU_PAIRED_MARKS) + 1;
}

typedef struct cpu_paired_args {
    const float *a, *packed, *products, *back, *bias, *residual;
    float *c, *y; /* as in cpu_gemm_args */
    int64_t m, n, k, kc, a_row, a_col, c_row, residual_row;
    /* From a run of CPU_PAIRED_RUN columns of A to the next, from a vector of columns of C to the
     * next (and of the residual): what lies beside them unless channels are in blocks. */
    int64_t a_run, c_vector;
    /* Tile t: part t % parts of the register tiles of column block t / parts % col_blocks of row
     * block t / parts / col_blocks; neighbours that are run in one call scale their rows once. With
     * `columns_first` (parts is 1) rows change before columns: a B larger than the caches is read
     * once. A row block has at most CPU_PAIRED_ROWS rows, and with kc columns at most
     * CPU_PAIRED_LEFT elements. */
    uint32_t row_blocks, col_blocks, parts;
    bool columns_first;
    bool parts_last; /* tiles go through all column blocks of a part, then those of the next */
    bool streamed; /* B comes from memory, or from beyond L2 and terms are not paired: ask early */
    bool far_sums; /* C lies beyond the core's own cache: ask for where sums go (wide pipes) */
    cpu_terms terms;
    bool unscaled;      /* A and B are as they were, which CPU_TERMS_PLAIN allows */
    int64_t block_rows; /* of a row block */
    int64_t block_cols; /* a multiple of the panel width */
    cpu_epilogue epilogue;
} cpu_paired_args;

CPU_DECLARE(cpu_paired_f32);

/* A product that is run whole, right behind what makes its left side or before what reads its
 * result: then its rows are normalised, or activated, while they are scaled, and need not be stored
 * between. The bits are the same. */
struct cpu_norm_args;
typedef struct cpu_paired_handed_args {
    const cpu_paired_args *product;
    const struct cpu_norm_args *norm; /* makes its rows; NULL: does not */
    const cpu_paired_args *before;    /* made its rows but left its activation to it, or NULL */
    bool leaves;                      /* leaves its own activation to the next */
} cpu_paired_handed_args;

#if defined(__x86_64__)
void cpu_paired_handed_f32_avx512(const void *args, uint32_t begin, uint32_t end);
#endif

static inline int64_t cpu_paired_vector(cpu_isa isa)
{
    return isa == CPU_AVX512 ? 16 : isa == CPU_AVX2 ? 8 : 4;
}
static inline int64_t cpu_paired_width(cpu_isa isa)
{
    return 2 * cpu_paired_vector(isa);
}
static inline int64_t cpu_paired_height(cpu_isa isa)
{
    return isa == CPU_AVX512 ? 12 : 4;
}

/* Register tiles of m rows: as few as there can be, about equal, the taller ones first. */
static inline int64_t cpu_paired_tiles(int64_t m, int64_t height)
{
    return (m + height - 1) / height;
}
/* Sixteen rows are one register tile of one vector where they stay in L1 and B, of which it reads
 * every other vector, in L2: so deep, so many elements. AVX-512 alone has it. */
enum { CPU_PAIRED_TALL = 16, CPU_PAIRED_TALL_DEPTH = 256, CPU_PAIRED_TALL_PACKED = 1 << 16 };
static inline bool cpu_paired_is_tall(int64_t rows, int64_t n, int64_t k)
{
    return rows == CPU_PAIRED_TALL && k <= CPU_PAIRED_TALL_DEPTH && k * n <= CPU_PAIRED_TALL_PACKED;
}
static inline int64_t cpu_paired_whole(int64_t k)
{
    return (k + CPU_PAIRED_RUN - 1) / CPU_PAIRED_RUN * CPU_PAIRED_RUN;
}

#endif
