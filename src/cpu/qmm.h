/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of bytes. The left side is rows of signed bytes, the right side unsigned bytes or
 * smaller fields in panels of `cpu_qmm_width` columns, where four consecutive k of a column are
 * neighbours: what one VNNI instruction eats. Signed weights are stored 128 higher, unsigned
 * activations 128 lower, so that one orientation serves every model.
 *
 * cpu_qdot: every CPU_QGROUP values of k have their own scale (weight-only formats, GGUF); the rows
 *     are quantised by cpu_qdot_rows, group by group.
 * cpu_qgemm: whole sums in 32 bits, zero points and scales applied at the end (QDQ models).
 */
#ifndef CPU_QMM_H
#define CPU_QMM_H

#include <stddef.h>

#include "base/cpu.h"
#include "cpu/epilogue.h"
#include "cpu/kernel.h"

/* Kernels exist as NAME_portable, NAME_avx2 and NAME_vnni (AVX-512 with VNNI). */
#if defined(__x86_64__)
#define CPU_QMM_DECLARE(name)                                                                      \
    void name##_portable(const void *args, uint32_t begin, uint32_t end);                          \
    void name##_avx2(const void *args, uint32_t begin, uint32_t end);                              \
    void name##_vnni(const void *args, uint32_t begin, uint32_t end)
#define CPU_QMM_PICK(cpu, name)                                                                    \
    (cpu_qmm_vnni(cpu) ? name##_vnni : (cpu)->isa >= CPU_AVX2 ? name##_avx2 : name##_portable)
#else
#define CPU_QMM_DECLARE(name) void name##_portable(const void *args, uint32_t begin, uint32_t end)
#define CPU_QMM_PICK(cpu, name) ((void)(cpu), name##_portable)
#endif

static inline bool cpu_qmm_vnni(const cpu_features *cpu)
{
    return cpu->isa == CPU_AVX512 && cpu->avx512_vnni && cpu->avx512_vbmi;
}
static inline const char *cpu_qmm_isa(const cpu_features *cpu)
{
    return cpu_qmm_vnni(cpu) ? "vnni" : cpu->isa >= CPU_AVX2 ? "avx2" : "portable";
}
/* Columns of a panel and rows of a register tile of cpu_qgemm. */
static inline int64_t cpu_qmm_width(const cpu_features *cpu)
{
    return cpu_qmm_vnni(cpu) ? 32 : cpu->isa >= CPU_AVX2 ? 16 : 8;
}
static inline int64_t cpu_qmm_height(const cpu_features *cpu)
{
    return cpu_qmm_vnni(cpu) ? 12 : 4;
}

enum {
    CPU_QGROUP = 32,    /* values of k that share a scale, or two halves that have one each */
    CPU_QSUPER = 8,     /* groups that share a super-scale */
    CPU_QDOT_ROWS = 64, /* most rows of a tile */
};

/* --- rows --------------------------------------------------------------------------------------
 */

/* f32 rows to bytes: q = round(x·127/max|x| of its group). Tile t: rows from t·tile_rows. */
typedef struct cpu_qdot_rows_args {
    const float *x;
    int8_t *q;       /* [m][q_row] */
    float *scale;    /* [m][groups] */
    int32_t *halves; /* [m][2·groups]: sums of q over halves of groups */
    int64_t m, k, x_row, q_row, groups;
    int64_t tile_rows;
} cpu_qdot_rows_args;
CPU_QMM_DECLARE(cpu_qdot_rows);

/* Rows of bytes to what cpu_qgemm reads: signed, padded with zeros to q_row, with their sums. */
typedef struct cpu_qgemm_rows_args {
    const uint8_t *x; /* u8 (flip) or i8 */
    int8_t *q;
    int32_t *sum; /* [m] of the signed bytes */
    int64_t m, k, x_row, q_row;
    int64_t tile_rows;
    bool flip;
} cpu_qgemm_rows_args;
CPU_QMM_DECLARE(cpu_qgemm_rows);

/* --- scales by group ---------------------------------------------------------------------------
 */

typedef enum cpu_qscale {
    CPU_QSCALE_F32,
    CPU_QSCALE_F16,
    CPU_QSCALE_U8, /* times the super-scale, an f16 for CPU_QSUPER groups */
    CPU_QSCALE_I8,
} cpu_qscale;

/* w = scale·(q − zero) − offset. Of every panel there are, groups in order:
 *   super   [2][width] f16 for CPU_QSUPER groups: of scales, of offsets
 *   scales  [subs][width] of `scale_kind`, then the same of offsets where there are any
 *   data    bits 8: 8 rows, bits 4: 4 rows of [width][4] bytes; row r holds k = 4r…4r+3 of the
 *           group, with 4 bits the high nibbles hold 16 more. bits 6: as 4, then 2 rows whose byte
 *           c holds bits 4 and 5 of rows 4h…4h+3 of what bits 8 would be
 *
 * With 4 and 6 bits a panel is one stretch of memory, bytes lie apart from their scales: 34
 * and 27 GB/s from memory the other way, measured once; bench_decode prints what it is so. */
typedef struct cpu_qdot_weights {
    const void *data, *scales; /* of the first panel */
    const void *super;         /* NULL: none */
    int64_t groups;
    int64_t data_step, scale_step, super_step; /* bytes from panel to panel */
    int32_t zero;
    uint8_t bits, subs; /* subs 2: halves of a group have their own scales */
    cpu_qscale scale_kind;
    bool offsets;
} cpu_qdot_weights;

typedef struct cpu_qdot_args {
    const int8_t *q;
    const float *row_scale;
    const int32_t *halves;
    const float *bias, *residual;
    float *y;
    int64_t m, n, q_row;
    cpu_qdot_weights w;
    /* Tile t: row block t % row_tiles, column block t / row_tiles. */
    uint32_t row_tiles, col_tiles;
    int64_t tile_rows, tile_panels;
    cpu_epilogue epilogue;
} cpu_qdot_args;
CPU_QMM_DECLARE(cpu_qdot);

static inline int64_t cpu_qdot_group_bytes(int bits, int64_t width)
{
    return width * 4 * (bits == 8 ? 8 : bits == 6 ? 6 : 4);
}
static inline int64_t cpu_qdot_scale_bytes(const cpu_qdot_weights *w, int64_t width)
{
    int64_t size = w->scale_kind == CPU_QSCALE_F32 ? 4 : w->scale_kind == CPU_QSCALE_F16 ? 2 : 1;
    return width * size * w->subs * (w->offsets ? 2 : 1);
}
/* Lays out `panels` panels from `memory` on; returns how many bytes they take. */
size_t cpu_qdot_place(cpu_qdot_weights *w, int64_t width, int64_t panels, bool super, void *memory);

/* --- whole sums --------------------------------------------------------------------------------
 */

typedef enum cpu_qout { CPU_QOUT_F32, CPU_QOUT_I32, CPU_QOUT_U8, CPU_QOUT_I8 } cpu_qout;

typedef struct cpu_qgemm_args {
    const int8_t *q;
    const int32_t *row_sum;  /* NULL: zeros */
    const uint8_t *packed;   /* panels of [k/4][width][4] */
    const int32_t *col_sum;  /* [n] of the packed bytes */
    const int32_t *col_zero; /* [n]: zero points as packed (signed weights: 128 higher) */
    const uint8_t *a_zero;   /* of the rows as they were given; NULL: 0 */
    const float *a_scale;    /* one; NULL: 1 */
    const float *col_scale;  /* [n] */
    const int32_t *col_add;  /* [n] added to the sums; NULL: none */
    const float *bias, *residual;
    void *y;
    int64_t m, n, k, q_row;
    /* y_row 0: rows are pixels and columns are channels of images, y is [m/plane][channels][plane]
     * from element y_at on; there is no residual then. */
    int64_t y_row, plane, channels, y_at;
    float y_scale;
    int32_t y_zero;
    cpu_qout out;
    bool a_flipped; /* rows were u8: their zero point is too */
    uint32_t row_tiles, col_tiles;
    int64_t tile_rows, tile_panels;
    cpu_epilogue epilogue; /* CPU_QOUT_U8, I8: none, relu or clip only */
} cpu_qgemm_args;
CPU_QMM_DECLARE(cpu_qgemm);

/* --- convolutions ------------------------------------------------------------------------------
 */

/* n images of rows × columns pixels, copied to [height][width][pitch] each, so far from the top and
 * the left; what lies beside them is the zero point. Tile t: `tile` rows. */
typedef struct cpu_qcopy {
    int64_t n, channels, rows, columns;
    int64_t height, width, pitch, top, left;
    int64_t tile;
    bool flip; /* u8 becomes i8, or i8 becomes u8 */
} cpu_qcopy;

/* Images [n][channels][rows][columns] with the channels inside. */
typedef struct cpu_qturn_args {
    const uint8_t *x;
    const uint8_t *zero; /* NULL: 0 */
    int8_t *to;
    cpu_qcopy copy;
} cpu_qturn_args;
CPU_QMM_DECLARE(cpu_qturn);

/* Where the windows lie in turned images: pixel i begins at
 * i / plane · image + i % plane / out_width · row + i % out_width · pixel, in bytes. */
typedef struct cpu_qwindow {
    const int8_t *x;
    const int32_t *offsets; /* of the pieces behind that */
    int64_t pieces, piece;  /* how many, of how many bytes */
    int64_t plane, out_width, image, row, pixel;
} cpu_qwindow;

/* Windows as the rows that cpu_qgemm reads, with their sums. Tile t: `tile_rows` pixels. */
typedef struct cpu_qwindow_rows_args {
    cpu_qwindow w;
    int8_t *q;
    int32_t *sum;
    int64_t m, q_row, tile_rows;
} cpu_qwindow_rows_args;
CPU_QMM_DECLARE(cpu_qwindow_rows);

/* One input channel for each output channel: a piece is one tap of a whole panel. The weights,
 * without their zero point, are [panel][taps][width]; sums stay below 2^24, so that f32 is exact.
 * g has no rows and no right side; its k is the number of taps. */
enum { CPU_QDEPTH_TAPS = 256 };
typedef struct cpu_qdepth_args {
    cpu_qwindow w;
    const float *weights;
    cpu_qgemm_args g;
} cpu_qdepth_args;
CPU_QMM_DECLARE(cpu_qdepth);

/* Bytes from row to row of a left side: vectors, and an odd number of lines so that the rows of a
 * register tile fall in different cache sets. */
static inline int64_t cpu_qmm_row(int64_t k)
{
    int64_t lines = (k + 63) / 64;
    return (lines | 1) * 64;
}

#endif
