/* SPDX-License-Identifier: Apache-2.0
 * The evaluators' matrix product: accumulates in double (or wrapping i64), column panel by column
 * panel. Where a panel comes from (a matrix, a convolution's windows) is the caller's business. */
#ifndef OP_GEMM_H
#define OP_GEMM_H

#include "op/op.h"

enum { OP_GEMM_PANEL = 8 };

/* Fills panel[k][OP_GEMM_PANEL] with columns [first, first+width) of the right matrix. Entries past
 * `width` may hold anything finite. */
typedef void op_pack_f64(const void *right, int64_t first, int64_t width, double *panel);
typedef void op_pack_i64(const void *right, int64_t first, int64_t width, int64_t *panel);

/* y[m][n] = a[m][k] · right[k][n], all dense. `panel` is workspace of k·OP_GEMM_PANEL elements,
 * zeroed once by the caller. */
void op_gemm_f64(int64_t m, int64_t n, int64_t k, const double *a, op_pack_f64 *pack,
                 const void *right, double *panel, double *y);
void op_gemm_i64(int64_t m, int64_t n, int64_t k, const int64_t *a, op_pack_i64 *pack,
                 const void *right, int64_t *panel, int64_t *y);

/* A matrix product with NumPy's rules: batch axes broadcast, a rank-1 operand gets a unit axis that
 * the result loses again. trans_a/trans_b swap the last two axes (of rank ≥ 2). */
typedef struct op_matmul {
    bool trans_a, trans_b;
    ir_shape batch; /* broadcast batch axes */
    int64_t m, n, k;
    ir_shape y; /* the result's shape */
} op_matmul;
tacit_status op_matmul_plan(op_matmul *p, const ir_shape *a, const ir_shape *b, tacit_error *err);
/* y: all of the result, dense. The operands' dtypes are whatever they are. */
tacit_status op_matmul_f64(op_eval *c, const op_matmul *p, const ir_tensor *a, const ir_tensor *b,
                           double *y);
tacit_status op_matmul_i64(op_eval *c, const op_matmul *p, const ir_tensor *a, const ir_tensor *b,
                           int64_t *y);

#endif
