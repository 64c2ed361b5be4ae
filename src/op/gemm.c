/* SPDX-License-Identifier: Apache-2.0 */
#include "op/gemm.h"

#include <string.h>

#include "op/loop.h"
#include "op/strip.h"
#include "op/values.h"

enum { PANEL = OP_GEMM_PANEL, ROWS = 2 };

/* One template for both number systems. The accumulators are 64-bit unsigned for integers, so that
 * overflow wraps. */
#define GEMM(suffix, type, sum)                                                                    \
    static void strip_##suffix(int64_t k, const type *a0, const type *a1, const type *panel,       \
                               sum acc[ROWS][PANEL])                                               \
    {                                                                                              \
        sum s0[PANEL] = {0}, s1[PANEL] = {0};                                                      \
        for (int64_t i = 0; i < k; i++) {                                                          \
            const type *b = panel + i * PANEL;                                                     \
            sum x0 = (sum)a0[i], x1 = (sum)a1[i];                                                  \
            for (int j = 0; j < PANEL; j++) {                                                      \
                s0[j] += x0 * (sum)b[j];                                                           \
                s1[j] += x1 * (sum)b[j];                                                           \
            }                                                                                      \
        }                                                                                          \
        memcpy(acc[0], s0, sizeof s0);                                                             \
        memcpy(acc[1], s1, sizeof s1);                                                             \
    }                                                                                              \
    void op_gemm_##suffix(int64_t m, int64_t n, int64_t k, const type *a, op_pack_##suffix *pack,  \
                          const void *right, type *panel, type *y)                                 \
    {                                                                                              \
        for (int64_t first = 0; first < n; first += PANEL) {                                       \
            int64_t width = n - first < PANEL ? n - first : PANEL;                                 \
            pack(right, first, width, panel);                                                      \
            for (int64_t i = 0; i < m; i += ROWS) {                                                \
                sum acc[ROWS][PANEL];                                                              \
                int64_t last = i + 1 < m ? i + 1 : i;                                              \
                strip_##suffix(k, a + i * k, a + last * k, panel, acc);                            \
                for (int64_t r = i; r <= last; r++)                                                \
                    for (int64_t j = 0; j < width; j++)                                            \
                        y[r * n + first + j] = (type)acc[r - i][j];                                \
            }                                                                                      \
        }                                                                                          \
    }

GEMM(f64, double, double)
GEMM(i64, int64_t, uint64_t)

tacit_status op_matmul_plan(op_matmul *p, const ir_shape *a, const ir_shape *b, tacit_error *err)
{
    char at[IR_SHAPE_TEXT], bt[IR_SHAPE_TEXT];
    if (a->rank < 1 || b->rank < 1)
        return error_set(err, TACIT_ERR_SHAPE, "a scalar cannot be multiplied as a matrix: %s, %s",
                         ir_shape_text(a, at), ir_shape_text(b, bt));
    const int64_t *ad = a->dims + a->rank - 2, *bd = b->dims + b->rank - 2;
    int64_t ka = a->rank == 1 ? a->dims[0] : ad[p->trans_a ? 0 : 1];
    int64_t kb = b->rank == 1 ? b->dims[0] : bd[p->trans_b ? 1 : 0];
    if (ka != kb)
        return error_set(err, TACIT_ERR_SHAPE, "inner dimensions differ: %s%s times %s%s",
                         ir_shape_text(a, at), p->trans_a ? " transposed" : "",
                         ir_shape_text(b, bt), p->trans_b ? " transposed" : "");
    p->k = ka;
    p->m = a->rank == 1 ? 1 : ad[p->trans_a ? 1 : 0];
    p->n = b->rank == 1 ? 1 : bd[p->trans_b ? 0 : 1];
    ir_shape left = ir_shape_of(a->rank > 2 ? a->rank - 2 : 0, a->dims);
    ir_shape right = ir_shape_of(b->rank > 2 ? b->rank - 2 : 0, b->dims);
    TRY(ir_shape_broadcast(&left, &right, &p->batch, err));
    p->y = p->batch;
    if (a->rank > 1)
        p->y.dims[p->y.rank++] = p->m;
    if (b->rank > 1)
        p->y.dims[p->y.rank++] = p->n;
    return TACIT_OK;
}

/* A k×n matrix inside a dense tensor. */
typedef struct right_matrix {
    tacit_dtype dtype;
    const void *data;
    int64_t start, row, column, k; /* strides in elements */
} right_matrix;

#define PACK(suffix, type)                                                                         \
    static void pack_##suffix(const void *right, int64_t first, int64_t width, type *panel)        \
    {                                                                                              \
        const right_matrix *b = right;                                                             \
        for (int64_t i = 0; i < b->k; i++)                                                         \
            op_strip_load_##suffix(b->dtype, b->data, b->start + i * b->row + first * b->column,   \
                                   b->column, width, panel + i * PANEL);                           \
    }
PACK(f64, double)
PACK(i64, int64_t)

#define MATMUL(suffix, type)                                                                       \
    tacit_status op_matmul_##suffix(op_eval *c, const op_matmul *p, const ir_tensor *a,            \
                                    const ir_tensor *b, type *y)                                   \
    {                                                                                              \
        type *left, *panel;                                                                        \
        TRY(op_scratch_##suffix(c, p->m * p->k, &left));                                           \
        TRY(op_scratch_##suffix(c, p->k *PANEL, &panel));                                          \
        ir_shape ab = ir_shape_of(a->shape.rank > 2 ? a->shape.rank - 2 : 0, a->shape.dims);       \
        ir_shape bb = ir_shape_of(b->shape.rank > 2 ? b->shape.rank - 2 : 0, b->shape.dims);       \
        int64_t row = p->trans_a && a->shape.rank > 1 ? 1 : p->k;                                  \
        int64_t column = p->trans_a && a->shape.rank > 1 ? p->m : 1;                               \
        bool flip = p->trans_b && b->shape.rank > 1;                                               \
        op_loop l;                                                                                 \
        op_loop_begin(&l, &p->batch);                                                              \
        op_loop_broadcast(&l, &ab);                                                                \
        op_loop_broadcast(&l, &bb);                                                                \
        for (; !op_loop_done(&l); op_loop_next(&l)) {                                              \
            for (int64_t i = 0; i < p->m; i++)                                                     \
                op_strip_load_##suffix(a->dtype, a->data, l.at[0] * p->m * p->k + i * row, column, \
                                       p->k, left + i * p->k);                                     \
            right_matrix r = {b->dtype,        b->data,         l.at[1] * p->k * p->n,             \
                              flip ? 1 : p->n, flip ? p->k : 1, p->k};                             \
            op_gemm_##suffix(p->m, p->n, p->k, left, pack_##suffix, &r, panel,                     \
                             y + l.linear * p->m * p->n);                                          \
        }                                                                                          \
        return TACIT_OK;                                                                           \
    }
MATMUL(f64, double)
MATMUL(i64, int64_t)
