/* SPDX-License-Identifier: Apache-2.0
 * Linear quantisation and the operators that compute on quantised tensors. */
#include "op/quant.h"

#include <math.h>
#include <string.h>

#include "op/conv.h"
#include "op/elementwise.h"
#include "op/gemm.h"
#include "op/loop.h"
#include "op/lowerings.h"
#include "op/values.h"
#include "op/vjp.h"

tacit_status op_granularity_read(const ir_node *node, const ir_shape *x, const ir_shape *scale,
                                 op_granularity *g, tacit_error *err)
{
    char xt[IR_SHAPE_TEXT], st[IR_SHAPE_TEXT];
    int64_t block = ir_attr_int(node, "block_size", 0), dense[IR_MAX_RANK];
    *g = (op_granularity){.block = 1};
    if (ir_shape_size(scale) == 1 && (scale->rank < 2 || scale->rank != x->rank))
        return TACIT_OK;
    TRY(ir_axis(ir_attr_int(node, "axis", 1), x->rank, &g->axis, err));
    ir_shape_strides(scale, dense);
    bool fits = scale->rank == 1 && scale->dims[0] == x->dims[g->axis];
    if (fits) {
        g->strides[g->axis] = 1;
        return TACIT_OK;
    }
    fits = scale->rank == x->rank && block >= 0;
    for (int32_t i = 0; fits && i < x->rank; i++) {
        int64_t b = i != g->axis ? 1 : block ? block : 1;
        fits = scale->dims[i] == (x->dims[i] + b - 1) / b;
        g->strides[i] = dense[i];
    }
    g->block = block ? block : 1;
    if (!fits)
        return error_set(err, TACIT_ERR_SHAPE, "scale %s does not fit %s (axis %d, block %lld)",
                         ir_shape_text(scale, st), ir_shape_text(x, xt), g->axis, (long long)block);
    return TACIT_OK;
}

int64_t op_granularity_at(const op_granularity *g, int32_t rank, const int64_t *index)
{
    int64_t at = 0;
    for (int32_t i = 0; i < rank; i++)
        at += g->strides[i] * (i == g->axis ? index[i] / g->block : index[i]);
    return at;
}

double op_round_to(tacit_dtype dtype, double v)
{
    uint64_t bits = 0;
    ir_store_f64(dtype, &bits, 0, v);
    return ir_load_f64(dtype, &bits, 0);
}

double op_quantize(tacit_dtype dtype, double value, double zero, bool saturate)
{
    if (!ir_dtype_is_float(dtype))
        return op_clamp_to(dtype, op_round_even(value) + zero);
    uint64_t bits = 0;
    ir_store_f64_saturate(dtype, &bits, 0, value + zero, saturate);
    return ir_load_f64(dtype, &bits, 0);
}

/* --- QuantizeLinear, DequantizeLinear ----------------------------------------------------------
 */

static tacit_dtype quantized_type(const ir_node *node, const tacit_dtype *zero)
{
    int64_t wanted = ir_attr_int(node, "output_dtype", 0);
    return zero ? *zero : wanted ? ir_dtype_from_onnx(wanted) : TACIT_U8;
}

static tacit_status check_zero(const op_infer *c)
{
    const ir_type *zero = op_in_type(c, 2), *scale = c->in[1];
    if (zero && !ir_shape_equal(&zero->shape, &scale->shape) &&
        (ir_shape_size(&zero->shape) != 1 || ir_shape_size(&scale->shape) != 1))
        return error_set(c->err, TACIT_ERR_SHAPE, "zero point and scale differ in shape");
    return TACIT_OK;
}

static tacit_status quantize_infer(op_infer *c)
{
    op_granularity g;
    const ir_type *zero = op_in_type(c, 2);
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_check_class(c, 1, OP_REAL));
    TRY(check_zero(c));
    TRY(op_granularity_read(c->node, &c->in[0]->shape, &c->in[1]->shape, &g, c->err));
    tacit_dtype dtype = quantized_type(c->node, zero ? &zero->dtype : NULL);
    if (dtype == TACIT_DTYPE_NONE)
        return error_set(c->err, TACIT_ERR_TYPE, "unknown output_dtype");
    op_set_out(c, 0, dtype, &c->in[0]->shape);
    return TACIT_OK;
}

static tacit_status quantize_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *scale = op_in(c, 1), *zero = op_in(c, 2);
    ir_tensor *y = op_out(c, 0);
    bool saturate = ir_attr_int(c->node, "saturate", 1) != 0;
    int64_t precision = ir_attr_int(c->node, "precision", 0);
    tacit_dtype wide = precision ? ir_dtype_from_onnx(precision) : scale->dtype;
    if (!ir_dtype_is_float(wide) || tacit_dtype_bits(wide) < 16)
        wide = TACIT_F32; /* an f8e8m0 scale still divides in f32 */
    op_granularity g;
    TRY(op_granularity_read(c->node, &x->shape, &scale->shape, &g, c->err));
    op_loop l;
    op_loop_begin(&l, &x->shape);
    for (; !op_loop_done(&l); op_loop_next(&l)) {
        int64_t at = op_granularity_at(&g, x->shape.rank, l.index);
        double s = op_round_to(wide, ir_load_f64(scale->dtype, scale->data, at));
        double v = op_round_to(wide, ir_load_f64(x->dtype, x->data, l.linear));
        double z = zero ? ir_load_f64(zero->dtype, zero->data, at) : 0;
        double q = op_round_to(wide, v / s);
        ir_store_f64_saturate(y->dtype, y->data, l.linear, op_quantize(y->dtype, q, z, saturate),
                              saturate);
    }
    return TACIT_OK;
}

static tacit_status dequantize_infer(op_infer *c)
{
    op_granularity g;
    const ir_type *zero = op_in_type(c, 2);
    int64_t wanted = ir_attr_int(c->node, "output_dtype", 0);
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_check_class(c, 1, OP_FLOAT));
    TRY(check_zero(c));
    if (zero && zero->dtype != c->in[0]->dtype)
        return error_set(c->err, TACIT_ERR_TYPE, "zero point is %s, the input %s",
                         tacit_dtype_text(zero->dtype), tacit_dtype_text(c->in[0]->dtype));
    TRY(op_granularity_read(c->node, &c->in[0]->shape, &c->in[1]->shape, &g, c->err));
    op_set_out(c, 0, wanted ? ir_dtype_from_onnx(wanted) : c->in[1]->dtype, &c->in[0]->shape);
    return TACIT_OK;
}

static tacit_status dequantize_eval(op_eval *c)
{
    const ir_shape *shape = &op_in(c, 0)->shape;
    double *x, *scale, *zero;
    op_granularity g;
    TRY(op_granularity_read(c->node, shape, &op_in(c, 1)->shape, &g, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &scale));
    TRY(op_input_f64(c, 2, &zero));
    op_loop l;
    for (op_loop_begin(&l, shape); !op_loop_done(&l); op_loop_next(&l)) {
        int64_t at = op_granularity_at(&g, shape->rank, l.index);
        x[l.linear] = (x[l.linear] - (zero ? zero[at] : 0)) * scale[at];
    }
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

/* --- DynamicQuantizeLinear: arithmetic in f32, as the definition says ---------------------------
 */

static tacit_status dynamic_infer(op_infer *c)
{
    ir_shape scalar = {0};
    if (c->in[0]->dtype != TACIT_F32)
        return error_set(c->err, TACIT_ERR_TYPE, "the input is %s, expected f32",
                         tacit_dtype_text(c->in[0]->dtype));
    op_set_out(c, 0, TACIT_U8, &c->in[0]->shape);
    op_set_out(c, 1, TACIT_F32, &scalar);
    op_set_out(c, 2, TACIT_U8, &scalar);
    return TACIT_OK;
}

static tacit_status dynamic_eval(op_eval *c)
{
    const float *x = op_in(c, 0)->data;
    int64_t count = ir_tensor_count(op_in(c, 0));
    float low = 0, high = 0;
    for (int64_t i = 0; i < count; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    float scale = (high - low) / 255;
    double zero = scale > 0 ? op_round_even(op_clamp_to(TACIT_U8, (float)(0 - low) / scale)) : 0;
    ir_tensor *y = op_out(c, 0);
    for (int64_t i = 0; y && i < count; i++)
        ((uint8_t *)y->data)[i] =
            (uint8_t)(scale > 0 ? op_quantize(TACIT_U8, x[i] / scale, zero, true) : zero);
    op_output_f64(c, 1, &(double){scale});
    op_output_f64(c, 2, &zero);
    return TACIT_OK;
}

/* --- QLinearMatMul ---------------------------------------------------------------------------- */

static tacit_status qmatmul_infer(op_infer *c)
{
    op_matmul p = {0};
    for (uint32_t i = 0; i < 8; i++)
        TRY(op_check_class(c, i, OP_REAL));
    TRY(op_matmul_plan(&p, &c->in[0]->shape, &c->in[3]->shape, c->err));
    op_set_out(c, 0, c->in[7]->dtype, &p.y);
    return TACIT_OK;
}

/* Scalar, or a vector per row (`by_row`) or column, or broadcast as it stands. */
static tacit_status parameter_loop(op_loop *l, const ir_shape *x, const ir_tensor *parameter,
                                   bool by_row, tacit_error *err)
{
    ir_shape s = parameter->shape, both;
    if (by_row && s.rank == 1 && s.dims[0] != 1 && x->rank > 1)
        s.dims[s.rank++] = 1;
    TRY(ir_shape_broadcast(x, &s, &both, err));
    if (!ir_shape_equal(&both, x))
        return error_set(err, TACIT_ERR_SHAPE, "a scale or zero point does not broadcast");
    op_loop_broadcast(l, &s);
    return TACIT_OK;
}

/* (x − zero) · scale for a whole operand. */
static tacit_status dequantized(op_eval *c, uint32_t first, bool by_row, ir_tensor *out)
{
    const ir_tensor *x = op_in(c, first), *scale = op_in(c, first + 1), *zero = op_in(c, first + 2);
    double *v;
    TRY(op_input_f64(c, first, &v));
    op_loop l;
    op_loop_begin(&l, &x->shape);
    TRY(parameter_loop(&l, &x->shape, scale, by_row, c->err));
    TRY(parameter_loop(&l, &x->shape, zero, by_row, c->err));
    for (; !op_loop_done(&l); op_loop_next(&l))
        v[l.linear] = (v[l.linear] - ir_load_f64(zero->dtype, zero->data, l.at[1])) *
                      ir_load_f64(scale->dtype, scale->data, l.at[0]);
    *out = ir_tensor_view(TACIT_F64, &x->shape, v);
    return TACIT_OK;
}

static tacit_status requantize(op_eval *c, uint32_t first, const double *y, int64_t count)
{
    const ir_tensor *scale = op_in(c, first), *zero = op_in(c, first + 1);
    ir_tensor *out = op_out(c, 0);
    if (ir_tensor_count(scale) != 1 || ir_tensor_count(zero) != 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "the output's scale must be a scalar");
    double s = ir_load_f64(scale->dtype, scale->data, 0);
    double z = ir_load_f64(zero->dtype, zero->data, 0);
    for (int64_t i = 0; i < count; i++)
        ir_store_f64(out->dtype, out->data, i, op_quantize(out->dtype, y[i] / s, z, true));
    return TACIT_OK;
}

static tacit_status qmatmul_eval(op_eval *c)
{
    ir_tensor a, b;
    op_matmul p = {0};
    double *y;
    TRY(dequantized(c, 0, true, &a));
    TRY(dequantized(c, 3, false, &b));
    TRY(op_matmul_plan(&p, &a.shape, &b.shape, c->err));
    TRY(op_scratch_f64(c, ir_shape_size(&p.y), &y));
    TRY(op_matmul_f64(c, &p, &a, &b, y));
    return requantize(c, 6, y, ir_shape_size(&p.y));
}

/* --- QLinearConv ------------------------------------------------------------------------------ */

static tacit_status qconv_infer(op_infer *c)
{
    op_conv p;
    for (uint32_t i = 0; i < 8; i++)
        TRY(op_check_class(c, i, OP_REAL));
    TRY(op_conv_plan(c->node, &c->in[0]->shape, &c->in[3]->shape, &p, c->err));
    TRY(op_need_shape(c, 8, 1, &p.m));
    for (uint32_t i = 4; i < 6; i++)
        if (ir_shape_size(&c->in[i]->shape) != 1)
            TRY(op_need_shape(c, i, 1, &p.m));
    for (uint32_t i = 1; i < 3; i++)
        if (ir_shape_size(&c->in[i]->shape) != 1)
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u must be a scalar", i);
    op_set_out(c, 0, c->in[7]->dtype, &p.y);
    return TACIT_OK;
}

static tacit_status qconv_eval(op_eval *c)
{
    op_conv p;
    double *x, *w, *xs, *xz, *ws, *wz, *bias, *y;
    TRY(op_conv_plan(c->node, &op_in(c, 0)->shape, &op_in(c, 3)->shape, &p, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &xs));
    TRY(op_input_f64(c, 2, &xz));
    TRY(op_input_f64(c, 3, &w));
    TRY(op_input_f64(c, 4, &ws));
    TRY(op_input_f64(c, 5, &wz));
    TRY(op_input_f64(c, 8, &bias));
    int64_t count = ir_shape_size(&p.y), per = p.m ? ir_tensor_count(op_in(c, 3)) / p.m : 0;
    bool scales = ir_tensor_count(op_in(c, 4)) > 1, zeros = ir_tensor_count(op_in(c, 5)) > 1;
    TRY(op_scratch_f64(c, count, &y));
    for (int64_t i = 0; i < ir_tensor_count(op_in(c, 0)); i++)
        x[i] -= xz[0];
    for (int64_t i = 0; i < p.m * per; i++)
        w[i] -= wz[zeros ? i / per : 0];
    TRY(op_conv_f64(c, &p, x, w, y)); /* whole numbers below 2^53: exact */
    for (int64_t i = 0; i < count; i++) {
        int64_t m = i / p.w.out_size % p.m;
        y[i] = (y[i] + (bias ? bias[m] : 0)) * xs[0] * ws[scales ? m : 0];
    }
    return requantize(c, 6, y, count);
}

const op_def op_rows_quant[] = {
    {.name = "QuantizeLinear",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = quantize_infer,
     .eval = quantize_eval,
     .lower = op_lower_quantize},
    {.name = "DequantizeLinear",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = dequantize_infer,
     .eval = dequantize_eval,
     .lower = op_lower_dequantize,
     .spell = op_spell_dequantize},
    {.name = "DynamicQuantizeLinear",
     .min_in = 1,
     .max_in = 1,
     .min_out = 3,
     .max_out = 3,
     .infer = dynamic_infer,
     .eval = dynamic_eval,
     .lower = op_lower_dynamic_quantize},
    {.name = "QLinearMatMul",
     .min_in = 8,
     .max_in = 8,
     .min_out = 1,
     .max_out = 1,
     .infer = qmatmul_infer,
     .eval = qmatmul_eval,
     .lower = op_lower_qlinear_matmul},
    {.name = "QLinearConv",
     .min_in = 8,
     .max_in = 9,
     .min_out = 1,
     .max_out = 1,
     .infer = qconv_infer,
     .eval = qconv_eval,
     .lower = op_lower_qlinear_conv},
    {0},
};
