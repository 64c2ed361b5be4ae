/* SPDX-License-Identifier: Apache-2.0
 * A matrix product before it is cut into tiles: what the rules for products share. */
#ifndef OP_PRODUCT_H
#define OP_PRODUCT_H

#include "cpu/gemm.h"
#include "cpu/halved.h"
#include "cpu/paired.h"
#include "op/lower.h"

/* A kernel for products of one row alone, whose weights lie in a way of their own. */
typedef struct op_row_kernel {
    cpu_kernel fn; /* NULL: that of cpu/gemm.h */
    const char *name;
    const char *stored; /* how weights are packed, in words */
} op_row_kernel;

typedef struct op_product {
    cpu_gemm_args g;
    int64_t batch;      /* products in all */
    int bias, residual; /* node inputs, or -1 */
    const float *packed_bias;
    op_row_kernel row;
} op_product;

/* Jobs that pack a dense right side whose columns are adjacent in memory: some panels of `width`
 * columns are one range of bytes (found by sizes: the stride of an axis of one entry may be
 * anything). The job has all panels as its tiles. */
tacit_status op_product_columns_later(op_lower *c, op_job *job, const cpu_gemm_args *g,
                                      int64_t width);

/* The same, and where rows are adjacent some of them, a multiple of `whole`, are one range: `begin`
 * and `end` are where the job's arguments say which. */
tacit_status op_product_pack_later(op_lower *c, op_job *job, const cpu_gemm_args *g, int64_t width,
                                   int64_t whole, int64_t *begin, int64_t *end);

/* lower_paired.c: can a product with a constant right side (input 1, dense, strides in `g`) be
 * computed with paired terms, is that faster here, and then */
bool op_paired_can(const op_lower *c, const op_product *p);
bool op_paired_suits(const op_lower *c, const op_product *p);
tacit_status op_lower_paired(op_lower *c, const op_product *p);
/* How they are summed here, in words. */
const char *op_paired_sums_note(cpu_terms terms);

/* lower_slim.c: is it a product of one row whose weights are better read in fewer bits, and then
 * packs them for the kernel of cpu/slim.h. */
bool op_slim_suits(const op_lower *c, const op_product *p);
tacit_status op_slim_pack(op_lower *c, op_product *p);
/* lower_half.c: the same for weights that the model has in 16 bits (cpu/half.h). */
bool op_half_suits(const op_lower *c, const op_product *p);
tacit_status op_half_pack(op_lower *c, op_product *p);

/* … or for other rules: the product's sizes and strides of B are known, `a` gets the cut and what
 * is packed of input 1. */
typedef struct op_paired {
    const op_product *product;
    cpu_paired_args a;
    int64_t padded, blocks; /* columns, blocks of K */
    uint32_t together;      /* tiles that are worth scaling rows for */
    bool whole;             /* tiles have all rows of their block */
    int64_t taps;           /* of each channel of the right side, which is packed run by run */
} op_paired;
tacit_status op_paired_prepare(op_lower *c, op_paired *d);
/* A description of which the cut and what is packed are still missing. */
op_paired op_paired_of(const op_lower *c, const op_product *p);
/* The second half of it, for rules that cut in a way of their own: packs input 1 in blocks of a.kc
 * rows. */
tacit_status op_paired_pack(op_lower *c, op_paired *d);
/* Binds the operands of a product to the newest thunk, whose arguments have a cpu_paired_args at
 * `at`; tile t reads and writes what lies a_run and c_run bytes behind that of tile t - 1, or (0)
 * anything. `sums` is of op_paired_sums. */
tacit_status op_paired_bind(op_lower *c, const op_product *p, size_t at, uint64_t a_run,
                            uint64_t c_run, size_t sums);
/* Scratch where sums wait for a residual that is added late, if there is one. */
size_t op_paired_sums(op_lower *c, const op_product *p);
/* lower_halved.c: can a product whose terms can be paired be made of seven products of halves, is
 * that faster here, and then */
bool op_halved_can(const op_lower *c, const op_product *p);
bool op_halved_suits(const op_lower *c, const op_product *p);
tacit_status op_lower_halved(op_lower *c, const op_product *p);
/* lower_blocked_paired.c: is this a convolution for it, and then */
struct op_conv;
bool op_blocked_paired_suits(op_lower *c, const struct op_conv *conv);
tacit_status op_lower_blocked_paired(op_lower *c, const struct op_conv *conv, const float *bias);

#endif
