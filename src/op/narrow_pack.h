/* SPDX-License-Identifier: Apache-2.0
 * Weights stored in few bits (op/narrow.h), packed by jobs (op/lower.h): as the byte kernels read
 * them, or widened for f32 products. */
#ifndef OP_NARROW_PACK_H
#define OP_NARROW_PACK_H

#include "cpu/kernel.h"
#include "op/narrow.h"

/* What decides about packing beside kernels and constants, as numbers: others must not be in the
 * key of packed weights that are kept in a file. */
enum { OP_NARROW_FACTS = 8 };
void op_narrow_facts(const op_narrow *s, int64_t facts[OP_NARROW_FACTS]);
/* Bytes of a stored row or column, those that are whole. */
size_t op_narrow_row_bytes(const op_narrow *s, const op_narrow_data *d);

/* Panels for cpu_qdot. Tile t is panel t; of matrices that are stored by rows only groups
 * [g_begin, g_end), of others all. */
typedef struct op_narrow_pack_args {
    const uint8_t *bytes; /* of the weight */
    char *memory;         /* where cpu_qdot_place has laid out the panels */
    int64_t width, g_begin, g_end;
    int64_t facts[OP_NARROW_FACTS];
    /* Not in the key, or following from what is: */
    op_narrow s;
    op_narrow_data d;
    cpu_qdot_weights w;
} op_narrow_pack_args;
void op_narrow_pack(const void *args, uint32_t begin, uint32_t end);

/* Panels for cpu_gemm. Tile t is panel t; of matrices that are stored by rows only rows
 * [k_begin, k_end), of others all. */
typedef struct op_narrow_widen_args {
    const uint8_t *bytes;
    float *packed;
    int64_t width, k_begin, k_end;
    int64_t facts[OP_NARROW_FACTS];
    /* Not in the key: */
    cpu_kernel pack; /* cpu_gemm_pack_f32 of the instruction set that `width` tells */
    op_narrow s;
    op_narrow_data d;
} op_narrow_widen_args;
void op_narrow_widen(const void *args, uint32_t begin, uint32_t end);

#endif
