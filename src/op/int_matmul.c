/* SPDX-License-Identifier: Apache-2.0
 * tacit.IntMatMul(A, B, a_scale, a_zero?, b_scale, b_zero?, bias?, residual?): a product of bytes
 * with an f32 result: act(alpha·(A − a_zero)·(B − b_zero)·a_scale·b_scale + bias) + residual. A is
 * […,k], B [k,n] ([n,k] with trans_b), both u8 or i8; a_scale is one number, b_scale one or [n]. */
#include "op/activation.h"
#include "op/gemm.h"
#include "op/lowerings.h"
#include "op/values.h"

static bool is_byte(const ir_type *t)
{
    return t->dtype == TACIT_U8 || t->dtype == TACIT_I8;
}

static op_matmul plan_of(const ir_node *node)
{
    return (op_matmul){.trans_b = ir_attr_int(node, "trans_b", 0) != 0};
}

static tacit_status int_infer(op_infer *c)
{
    op_matmul p = plan_of(c->node);
    op_activation act;
    if (!is_byte(c->in[0]) || !is_byte(c->in[1]) || c->in[0]->shape.rank < 2 ||
        c->in[1]->shape.rank != 2)
        return error_set(c->err, TACIT_ERR_TYPE, "A and B must be bytes, A […,k] and B a matrix");
    if (!op_in_type(c, 4))
        return error_set(c->err, TACIT_ERR_GRAPH, "the scale of B is missing");
    TRY(op_matmul_plan(&p, &c->in[0]->shape, &c->in[1]->shape, c->err));
    for (uint32_t i = 2; i < 6; i++) {
        const ir_type *t = op_in_type(c, i);
        tacit_dtype want = i == 2 || i == 4 ? TACIT_F32 : c->in[i == 3 ? 0 : 1]->dtype;
        int64_t size = t ? ir_shape_size(&t->shape) : 1;
        if (t && (t->dtype != want || (size != 1 && (i < 4 || size != p.n))))
            return error_set(c->err, TACIT_ERR_SHAPE, "scale or zero point %u does not fit", i);
    }
    TRY(op_need_shape(c, 6, 1, &p.n));
    TRY(op_need_shape(c, 7, p.y.rank, p.y.dims));
    TRY(op_activation_read(c->node, &act, c->err));
    for (uint32_t i = 6; i < 8; i++)
        if (op_in_type(c, i) && op_in_type(c, i)->dtype != TACIT_F32)
            return error_set(c->err, TACIT_ERR_TYPE, "input %u is not f32", i);
    op_set_out(c, 0, TACIT_F32, &p.y);
    return TACIT_OK;
}

static tacit_status centred(op_eval *c, uint32_t x, uint32_t zero, int64_t columns, bool trans,
                            int64_t **out)
{
    int64_t *z;
    TRY(op_input_i64(c, x, out));
    TRY(op_input_i64(c, zero, &z));
    int64_t count = ir_tensor_count(op_in(c, x));
    bool many = z && ir_tensor_count(op_in(c, zero)) > 1;
    int64_t k = columns && count ? count / columns : 1;
    for (int64_t i = 0; z && i < count; i++)
        (*out)[i] -= z[!many ? 0 : trans ? i / k : i % columns];
    return TACIT_OK;
}

static tacit_status int_eval(op_eval *c)
{
    op_matmul p = plan_of(c->node);
    op_activation act;
    int64_t *a, *b, *sums;
    double *sa, *sb, *bias, *residual, *y, alpha = ir_attr_float(c->node, "alpha", 1);
    bool last = ir_attr_int(c->node, "activation_last", 0) != 0;
    TRY(op_activation_read(c->node, &act, c->err));
    TRY(op_matmul_plan(&p, &op_in(c, 0)->shape, &op_in(c, 1)->shape, c->err));
    TRY(centred(c, 0, 3, 0, false, &a));
    TRY(centred(c, 1, 5, p.n, p.trans_b, &b));
    TRY(op_input_f64(c, 2, &sa));
    TRY(op_input_f64(c, 4, &sb));
    TRY(op_input_f64(c, 6, &bias));
    TRY(op_input_f64(c, 7, &residual));
    int64_t count = ir_shape_size(&p.y);
    TRY(op_scratch_i64(c, count, &sums));
    TRY(op_scratch_f64(c, count, &y));
    ir_tensor left = ir_tensor_view(TACIT_I64, &op_in(c, 0)->shape, a);
    ir_tensor right = ir_tensor_view(TACIT_I64, &op_in(c, 1)->shape, b);
    TRY(op_matmul_i64(c, &p, &left, &right, sums));
    bool many = ir_tensor_count(op_in(c, 4)) > 1;
    for (int64_t i = 0; i < count; i++) {
        double v = alpha * (double)sums[i] * sa[0] * sb[many ? i % p.n : 0];
        double r = residual ? residual[i] : 0;
        v += bias ? bias[i % p.n] : 0;
        y[i] = last ? op_activation_apply(&act, v + r) : op_activation_apply(&act, v) + r;
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

const op_def op_rows_int_matmul[] = {
    {.name = "IntMatMul",
     .domain = "tacit",
     .min_in = 3,
     .max_in = 8,
     .min_out = 1,
     .max_out = 1,
     .infer = int_infer,
     .eval = int_eval,
     .lower = op_lower_int_matmul},
    {0},
};
