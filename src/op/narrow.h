/* SPDX-License-Identifier: Apache-2.0
 * Weight matrices [k, n] that are stored in fewer bits than they compute in. */
#ifndef OP_NARROW_H
#define OP_NARROW_H

#include "cpu/qmm.h"
#include "op/gguf.h"
#include "op/op.h"

/* Attribute `scheme`:
 *   int8    i8/u8 [k,n]; scale, zero [ceil(k/block), n]
 *   int4    u8, two to a byte in row-major order, low nibble first; zero 8 where none is given
 *   fp8     u8 [k,n]; format e4m3fn (OCP), e4m3_ieee (with infinities) or e5m2; scale [n] or [1]
 *   nvfp4   as int4 with E2M1 codes; scale u8/f8e4m3fn [ceil(k/16), n], global scale one f32
 *   gguf    packed blocks of `type`, each output's k values contiguous ([n,k])
 *   nbits   as MatMulNBits: u8 [n, blocks, bytes], `bits` 2, 4 or 8; scale [n, blocks]; zero packed
 *           u8 [n, ceil(blocks·bits/8)] or numbers [n, blocks], half of the range where absent
 *   linear  as DequantizeLinear: i8, u8, i4 or u4 [k,n] ([n,k] with trans_b); scale of one element,
 *           [n], or [blocks, n] ([n, blocks]); zero alike
 *   float   f16 or bf16 [k,n] ([n,k] with trans_b), nothing else */
typedef enum op_narrow_kind {
    OP_NARROW_INT8,
    OP_NARROW_INT4,
    OP_NARROW_FP8,
    OP_NARROW_NVFP4,
    OP_NARROW_GGUF,
    OP_NARROW_NBITS,
    OP_NARROW_LINEAR,
    OP_NARROW_FLOAT,
} op_narrow_kind;

typedef struct op_narrow {
    op_narrow_kind kind;
    int64_t k, n, block, blocks, bits;
    const op_gguf_type *gguf;
    int format; /* fp8: 0 e4m3fn, 1 e4m3_ieee, 2 e5m2 */
    bool trans;
    bool int8_rows; /* attribute int8_activations: rows are quantised group by group */
} op_narrow;

/* From the attributes; `k` is x's last axis. */
tacit_status op_narrow_read(const ir_node *node, int64_t k, op_narrow *s, tacit_error *err);
/* Bytes (elements for linear and float) of the weight. */
int64_t op_narrow_size(const op_narrow *s);
/* Checks w, scale, zero (or the global scale) at inputs 1, 2, 3. */
tacit_status op_narrow_check(const op_infer *c, const op_narrow *s);

/* The tensors behind one weight. */
typedef struct op_narrow_data {
    const ir_tensor *w, *scale, *zero;
    const uint8_t *bytes; /* of w, or of one expert in it */
} op_narrow_data;
/* The whole matrix as [k, n]. `row`: k values of workspace (gguf). */
void op_narrow_decode(const op_narrow *s, const op_narrow_data *d, double *row, double *out);
/* One column, k values. */
void op_narrow_column(const op_narrow *s, const op_narrow_data *d, int64_t j, double *out);

/* --- what is stored ----------------------------------------------------------------------------
 */

/* Are rows of the matrix stored one behind the other, and not its columns? */
bool op_narrow_by_rows(const op_narrow *s);
/* A stored row or column, as fields of 2, 4 or 8 bits; not of GGUF types or floats. */
typedef struct op_narrow_line {
    const uint8_t *from;
    int64_t first; /* field */
    int bits;
} op_narrow_line;
op_narrow_line op_narrow_line_at(const op_narrow *s, const op_narrow_data *d, int64_t line);
/* n fields from `at` on. */
void op_narrow_codes(const op_narrow_line *l, int64_t at, int64_t n, uint8_t *out);
/* An element is (number of its code - zero point)·scale, these being of block b of column j. */
double op_narrow_code(const op_narrow *s, const op_narrow_data *d, uint8_t code);
double op_narrow_zero(const op_narrow *s, const op_narrow_data *d, int64_t b, int64_t j);
double op_narrow_scale(const op_narrow *s, const op_narrow_data *d, int64_t b, int64_t j);
int64_t op_narrow_scale_index(const op_narrow *s, const op_narrow_data *d, int64_t b, int64_t j);
/* Element (p, j), not of GGUF types. */
double op_narrow_value(const op_narrow *s, const op_narrow_data *d, int64_t p, int64_t j);

/* --- as the kernels of cpu/qmm.h want it -------------------------------------------------------
 */

/* How the weight would lie; false when groups of 32 cannot hold it. Only bits, subs, zero,
 * scale_kind, offsets, groups and whether there are super-scales (in *super) are set. */
bool op_narrow_layout(const op_narrow *s, const op_narrow_data *d, cpu_qdot_weights *w,
                      bool *super);
/* What is added to a stored integer to make it an unsigned byte. */
int op_narrow_lift(const op_narrow *s, const op_narrow_data *d);

/* One group of CPU_QGROUP values of one column of a GGUF type; scales and offsets are bits of the
 * kind the layout names. */
typedef struct op_qgroup {
    uint8_t q[CPU_QGROUP];
    uint32_t scale[2], offset[2];
    uint16_t super[2];
} op_qgroup;
bool op_gguf_layout(const op_gguf_type *t, cpu_qdot_weights *w, bool *super);
/* Takes group i of a block apart. */
typedef void op_gguf_group_fn(const uint8_t *block, int i, op_qgroup *out);
op_gguf_group_fn *op_gguf_group_of(const op_gguf_type *t);

#endif
