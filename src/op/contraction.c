/* SPDX-License-Identifier: Apache-2.0
 * MatMul, Gemm, MatMulInteger and Det. Einsum is in einsum.c. */
#include <math.h>

#include "op/gemm.h"
#include "op/loop.h"
#include "op/lowerings.h"
#include "op/range.h"
#include "op/strip.h"
#include "op/values.h"
#include "op/vjp.h"

static tacit_status need_numbers(const op_infer *c)
{
    ir_dtype_class k = ir_dtype_classify(c->in[0]->dtype);
    if (k == IR_CLASS_FLOAT || k == IR_CLASS_SIGNED || k == IR_CLASS_UNSIGNED)
        return op_check_same_dtype(c);
    return error_set(c->err, TACIT_ERR_TYPE, "cannot multiply matrices of %s",
                     tacit_dtype_text(c->in[0]->dtype));
}

static tacit_status matmul_infer(op_infer *c)
{
    op_matmul p = {0};
    TRY(need_numbers(c));
    TRY(op_matmul_plan(&p, &c->in[0]->shape, &c->in[1]->shape, c->err));
    op_set_out(c, 0, c->in[0]->dtype, &p.y);
    return TACIT_OK;
}

static tacit_status matmul_eval(op_eval *c)
{
    const ir_tensor *a = op_in(c, 0), *b = op_in(c, 1);
    op_matmul p = {0};
    TRY(op_matmul_plan(&p, &a->shape, &b->shape, c->err));
    int64_t count = ir_shape_size(&p.y);
    if (ir_dtype_is_float(a->dtype)) {
        double *y;
        TRY(op_scratch_f64(c, count, &y));
        TRY(op_matmul_f64(c, &p, a, b, y));
        op_output_f64(c, 0, y);
    } else {
        int64_t *y;
        TRY(op_scratch_i64(c, count, &y));
        TRY(op_matmul_i64(c, &p, a, b, y));
        op_output_i64(c, 0, y);
    }
    return TACIT_OK;
}

static op_matmul gemm_plan(const ir_node *node)
{
    return (op_matmul){.trans_a = ir_attr_int(node, "transA", 0) != 0,
                       .trans_b = ir_attr_int(node, "transB", 0) != 0};
}

static tacit_status gemm_infer(op_infer *c)
{
    op_matmul p = gemm_plan(c->node);
    TRY(need_numbers(c));
    TRY(op_need_rank(c, 0, 2));
    TRY(op_need_rank(c, 1, 2));
    TRY(op_matmul_plan(&p, &c->in[0]->shape, &c->in[1]->shape, c->err));
    const ir_type *bias = op_in_type(c, 2);
    if (bias) {
        ir_shape both;
        char text[IR_SHAPE_TEXT], to[IR_SHAPE_TEXT];
        TRY(ir_shape_broadcast(&p.y, &bias->shape, &both, c->err));
        if (!ir_shape_equal(&both, &p.y))
            return error_set(c->err, TACIT_ERR_SHAPE, "C %s does not broadcast to %s",
                             ir_shape_text(&bias->shape, text), ir_shape_text(&p.y, to));
    }
    op_set_out(c, 0, c->in[0]->dtype, &p.y);
    return TACIT_OK;
}

static tacit_status gemm_eval(op_eval *c)
{
    const ir_tensor *a = op_in(c, 0), *b = op_in(c, 1), *bias = op_in(c, 2);
    op_matmul p = gemm_plan(c->node);
    double alpha = ir_attr_float(c->node, "alpha", 1), beta = ir_attr_float(c->node, "beta", 1);
    double *y;
    TRY(op_matmul_plan(&p, &a->shape, &b->shape, c->err));
    TRY(op_scratch_f64(c, ir_shape_size(&p.y), &y));
    if (!ir_dtype_is_float(a->dtype)) { /* exact products, then the float factors */
        int64_t *whole;
        TRY(op_scratch_i64(c, ir_shape_size(&p.y), &whole));
        TRY(op_matmul_i64(c, &p, a, b, whole));
        op_strip_load_f64(TACIT_I64, whole, 0, 1, ir_shape_size(&p.y), y);
    } else {
        TRY(op_matmul_f64(c, &p, a, b, y));
    }
    op_loop l;
    op_loop_begin(&l, &p.y);
    op_loop_broadcast(&l, bias ? &bias->shape : &p.y);
    for (; !op_loop_done(&l); op_loop_next(&l))
        y[l.linear] =
            alpha * y[l.linear] +
            (bias && beta != 0 ? beta * ir_load_f64(bias->dtype, bias->data, l.at[0]) : 0);
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

/* --- MatMulInteger: (A − za) · (B − zb) in i32 ------------------------------------------------ */

static tacit_status matmul_integer_infer(op_infer *c)
{
    op_matmul p = {0};
    for (uint32_t i = 0; i < 2; i++)
        if (c->in[i]->dtype != TACIT_I8 && c->in[i]->dtype != TACIT_U8)
            return error_set(c->err, TACIT_ERR_TYPE, "input %u is %s, expected i8 or u8", i,
                             tacit_dtype_text(c->in[i]->dtype));
    TRY(op_matmul_plan(&p, &c->in[0]->shape, &c->in[1]->shape, c->err));
    op_set_out(c, 0, TACIT_I32, &p.y);
    return TACIT_OK;
}

/* Zero points are scalars, per row of A ([M] or [..., M, 1]) or per column of B. Subtracts in
 * place. */
static tacit_status subtract_zero(op_eval *c, const ir_tensor *t, const ir_tensor *zero,
                                  bool by_row, ir_tensor *wide)
{
    int64_t *v;
    TRY(op_tensor_i64(c, t, &v));
    *wide = ir_tensor_view(TACIT_I64, &t->shape, v);
    if (!zero)
        return TACIT_OK;
    ir_shape s = zero->shape;
    if (by_row && s.rank == 1 && s.dims[0] != 1 && t->shape.rank > 1)
        s.dims[s.rank++] = 1; /* a per-row vector stands as a column */
    ir_shape both;
    TRY(ir_shape_broadcast(&t->shape, &s, &both, c->err));
    if (!ir_shape_equal(&both, &t->shape))
        return error_set(c->err, TACIT_ERR_SHAPE, "the zero point does not broadcast");
    op_loop l;
    op_loop_begin(&l, &t->shape);
    op_loop_broadcast(&l, &s);
    for (; !op_loop_done(&l); op_loop_next(&l))
        v[l.linear] -= ir_load_i64(zero->dtype, zero->data, l.at[0]);
    return TACIT_OK;
}

static tacit_status matmul_integer_eval(op_eval *c)
{
    ir_tensor a, b;
    op_matmul p = {0};
    int64_t *y;
    TRY(subtract_zero(c, op_in(c, 0), op_in(c, 2), true, &a));
    TRY(subtract_zero(c, op_in(c, 1), op_in(c, 3), false, &b));
    TRY(op_matmul_plan(&p, &a.shape, &b.shape, c->err));
    TRY(op_scratch_i64(c, ir_shape_size(&p.y), &y));
    TRY(op_matmul_i64(c, &p, &a, &b, y));
    op_output_i64(c, 0, y);
    return TACIT_OK;
}

/* --- Det: Gaussian elimination with partial pivots -------------------------------------------- */

static tacit_status det_infer(op_infer *c)
{
    const ir_shape *s = &c->in[0]->shape;
    char text[IR_SHAPE_TEXT];
    TRY(op_need_float(c, 0));
    if (s->rank < 2 || s->dims[s->rank - 1] != s->dims[s->rank - 2])
        return error_set(c->err, TACIT_ERR_SHAPE, "%s is not a stack of square matrices",
                         ir_shape_text(s, text));
    op_set_out_dims(c, 0, c->in[0]->dtype, s->rank - 2, s->dims);
    return TACIT_OK;
}

static double determinant(int64_t n, double *m)
{
    double det = 1;
    for (int64_t i = 0; i < n; i++) {
        int64_t pivot = i;
        for (int64_t r = i + 1; r < n; r++)
            if (fabs(m[r * n + i]) > fabs(m[pivot * n + i]))
                pivot = r;
        if (m[pivot * n + i] == 0)
            return 0;
        if (pivot != i)
            det = -det;
        for (int64_t k = 0; pivot != i && k < n; k++) {
            double t = m[i * n + k];
            m[i * n + k] = m[pivot * n + k];
            m[pivot * n + k] = t;
        }
        det *= m[i * n + i];
        for (int64_t r = i + 1; r < n; r++) {
            double f = m[r * n + i] / m[i * n + i];
            for (int64_t k = i; k < n; k++)
                m[r * n + k] -= f * m[i * n + k];
        }
    }
    return det;
}

static tacit_status det_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    int64_t n = x->shape.dims[x->shape.rank - 1], count = ir_tensor_count(op_out(c, 0));
    double *m, *y;
    TRY(op_input_f64(c, 0, &m));
    TRY(op_scratch_f64(c, count, &y));
    for (int64_t i = 0; i < count; i++)
        y[i] = determinant(n, m + i * n * n);
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

const op_def op_rows_contraction[] = {
    {.name = "MatMul",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_LATE_WEIGHTS,
     .infer = matmul_infer,
     .eval = matmul_eval,
     .lower = op_lower_matmul,
     .accepts = op_accepts_matmul,
     .vjp = op_vjp_matmul,
     .batch = op_batch_matmul,
     .range = op_bounds_matmul},
    {.name = "Gemm",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_LATE_WEIGHTS,
     .infer = gemm_infer,
     .eval = gemm_eval,
     .lower = op_lower_gemm,
     .accepts = op_accepts_matmul,
     .vjp = op_vjp_gemm,
     .range = op_bounds_gemm},
    {.name = "MatMulInteger",
     .min_in = 2,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = matmul_integer_infer,
     .eval = matmul_integer_eval,
     .lower = op_lower_matmul_integer},
    {.name = "Det",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = det_infer,
     .eval = det_eval,
     .vjp = op_vjp_det},
    {0},
};
