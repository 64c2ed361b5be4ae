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

/* --- as the kernels of cpu/qmm.h want it -------------------------------------------------------
 */

/* One group of CPU_QGROUP values of one column; scales and offsets are bits of the kind the layout
 * names. */
typedef struct op_qgroup {
    uint8_t q[CPU_QGROUP];
    uint32_t scale[2], offset[2];
    uint16_t super[2];
} op_qgroup;
/* How the weight would lie; false when groups of 32 cannot hold it. Only bits, subs, zero,
 * scale_kind, offsets, groups and whether there are super-scales (in *super) are set. */
bool op_narrow_layout(const op_narrow *s, const op_narrow_data *d, cpu_qdot_weights *w,
                      bool *super);
/* Group g of column j. */
void op_narrow_group(const op_narrow *s, const op_narrow_data *d, const cpu_qdot_weights *w,
                     int64_t j, int64_t g, op_qgroup *out);

/* The same for GGUF types: layout, and group i of a block. */
bool op_gguf_layout(const op_gguf_type *t, cpu_qdot_weights *w, bool *super);
void op_gguf_group(const op_gguf_type *t, const uint8_t *block, int i, op_qgroup *out);

#endif
