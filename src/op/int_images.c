/* SPDX-License-Identifier: Apache-2.0
 * What stands between convolutions of bytes. Results are rounded half to even and saturated to
 * y_zero's type; scales and zero points are one number each.
 *   tacit.IntAdd(A, B, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero): act((A − a_zero)·a_scale
 *       + (B − b_zero)·b_scale), of one shape; attributes of activations
 *   tacit.IntMul(A, B, a_scale, a_zero, b_scale, b_zero, y_scale, y_zero): (A − a_zero)·a_scale
 * times (B − b_zero)·b_scale, of shapes that broadcast; f32 after every step, as DequantizeLinear,
 *       Mul and QuantizeLinear compute it
 *   tacit.IntMean(X, x_scale, x_zero, y_scale, y_zero): the mean of each channel, [N, C, 1, 1];
 *       with inside 1 X is [N, H, W, C]
 *   tacit.IntMaxPool(X): MaxPool of bytes [N, H, W, C] */
#include "op/int_images.h"
#include "op/activation.h"
#include "op/loop.h"
#include "op/lowerings.h"
#include "op/quant.h"
#include "op/values.h"
#include "op/window.h"

static bool is_byte(const ir_type *t)
{
    return t->dtype == TACIT_U8 || t->dtype == TACIT_I8;
}

/* Scale and zero point at `i`; the zero point is of type `like`, where there is one. */
static tacit_status check_pair(op_infer *c, uint32_t i, const ir_type *like)
{
    const ir_type *scale = op_in_type(c, i), *zero = op_in_type(c, i + 1);
    if (!scale || !zero)
        return error_set(c->err, TACIT_ERR_GRAPH, "a scale or a zero point is missing");
    if (scale->dtype != TACIT_F32 || !is_byte(zero) || (like && zero->dtype != like->dtype))
        return error_set(c->err, TACIT_ERR_TYPE, "inputs %u and %u are %s and %s", i, i + 1,
                         tacit_dtype_text(scale->dtype), tacit_dtype_text(zero->dtype));
    if (ir_shape_size(&scale->shape) != 1 || ir_shape_size(&zero->shape) != 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "inputs %u and %u must be one number", i, i + 1);
    return TACIT_OK;
}

static tacit_status add_infer(op_infer *c)
{
    op_activation act;
    if (!is_byte(c->in[0]) || !is_byte(c->in[1]))
        return error_set(c->err, TACIT_ERR_TYPE, "A and B must be bytes");
    if (!ir_shape_equal(&c->in[0]->shape, &c->in[1]->shape))
        return error_set(c->err, TACIT_ERR_SHAPE, "A and B differ in shape");
    TRY(check_pair(c, 2, c->in[0]));
    TRY(check_pair(c, 4, c->in[1]));
    TRY(check_pair(c, 6, NULL));
    TRY(op_activation_read(c->node, &act, c->err));
    op_set_out(c, 0, c->in[7]->dtype, &c->in[0]->shape);
    return TACIT_OK;
}

static tacit_status add_eval(op_eval *c)
{
    op_activation act;
    double *v[8];
    TRY(op_activation_read(c->node, &act, c->err));
    for (uint32_t i = 0; i < 8; i++)
        TRY(op_input_f64(c, i, &v[i]));
    ir_tensor *y = op_out(c, 0);
    for (int64_t i = 0, count = ir_tensor_count(y); i < count; i++) {
        double sum = (v[0][i] - *v[3]) * *v[2] + (v[1][i] - *v[5]) * *v[4];
        sum = op_activation_apply(&act, sum);
        ir_store_f64(y->dtype, y->data, i, op_quantize(y->dtype, sum / *v[6], *v[7], true));
    }
    return TACIT_OK;
}

static tacit_status mul_infer(op_infer *c)
{
    ir_shape shape;
    if (!is_byte(c->in[0]) || !is_byte(c->in[1]))
        return error_set(c->err, TACIT_ERR_TYPE, "A and B must be bytes");
    TRY(ir_shape_broadcast(&c->in[0]->shape, &c->in[1]->shape, &shape, c->err));
    TRY(check_pair(c, 2, c->in[0]));
    TRY(check_pair(c, 4, c->in[1]));
    TRY(check_pair(c, 6, NULL));
    op_set_out(c, 0, c->in[7]->dtype, &shape);
    return TACIT_OK;
}

static tacit_status mul_eval(op_eval *c)
{
    double *v[8];
    for (uint32_t i = 0; i < 8; i++)
        TRY(op_input_f64(c, i, &v[i]));
    ir_tensor *y = op_out(c, 0);
    op_loop l;
    op_loop_begin(&l, &y->shape);
    op_loop_broadcast(&l, &op_in(c, 0)->shape);
    op_loop_broadcast(&l, &op_in(c, 1)->shape);
    for (; !op_loop_done(&l); op_loop_next(&l)) {
        float a = (float)((v[0][l.at[0]] - *v[3]) * *v[2]);
        float b = (float)((v[1][l.at[1]] - *v[5]) * *v[4]);
        float quotient = a * b / (float)*v[6];
        ir_store_f64(y->dtype, y->data, l.linear, op_quantize(y->dtype, quotient, *v[7], true));
    }
    return TACIT_OK;
}

static tacit_status mean_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape;
    if (!is_byte(c->in[0]))
        return error_set(c->err, TACIT_ERR_TYPE, "X must be bytes");
    if (x->rank != 4)
        return error_set(c->err, TACIT_ERR_SHAPE, "X has rank %d", x->rank);
    TRY(check_pair(c, 1, c->in[0]));
    TRY(check_pair(c, 3, NULL));
    int64_t channels = x->dims[ir_attr_int(c->node, "inside", 0) ? 3 : 1];
    op_set_out_dims(c, 0, c->in[4]->dtype, 4, (int64_t[]){x->dims[0], channels, 1, 1});
    return TACIT_OK;
}

static tacit_status mean_eval(op_eval *c)
{
    bool inside = ir_attr_int(c->node, "inside", 0) != 0;
    ir_shape x = op_in(c, 0)->shape;
    double *v[5];
    for (uint32_t i = 0; i < 5; i++)
        TRY(op_input_f64(c, i, &v[i]));
    if (inside)
        x = op_outside(&x);
    ir_tensor *y = op_out(c, 0);
    int64_t plane = x.dims[2] * x.dims[3];
    for (int64_t i = 0, count = ir_tensor_count(y); i < count; i++) {
        double sum = 0;
        for (int64_t k = i * plane; k < (i + 1) * plane; k++)
            sum += v[0][inside ? op_inside_at(k, x.dims[1], plane) : k] - *v[2];
        sum = sum * *v[1] / (double)plane;
        ir_store_f64(y->dtype, y->data, i, op_quantize(y->dtype, sum / *v[3], *v[4], true));
    }
    return TACIT_OK;
}

static tacit_status max_pool_infer(op_infer *c)
{
    op_window w;
    if (!is_byte(c->in[0]))
        return error_set(c->err, TACIT_ERR_TYPE, "X must be bytes");
    if (c->in[0]->shape.rank != 4)
        return error_set(c->err, TACIT_ERR_SHAPE, "X has rank %d", c->in[0]->shape.rank);
    ir_shape x = op_outside(&c->in[0]->shape);
    TRY(op_window_read(c->node, &x, NULL, &w, c->err));
    int64_t dims[4] = {x.dims[0], w.out[0], w.out[1], x.dims[1]};
    op_set_out_dims(c, 0, c->in[0]->dtype, 4, dims);
    return TACIT_OK;
}

static tacit_status max_pool_eval(op_eval *c)
{
    op_window w;
    int64_t *x, *offsets;
    ir_shape shape = op_outside(&op_in(c, 0)->shape);
    TRY(op_window_read(c->node, &shape, NULL, &w, c->err));
    TRY(op_input_i64(c, 0, &x));
    TRY(op_scratch_i64(c, w.taps, &offsets));
    ir_tensor *y = op_out(c, 0);
    int64_t channels = shape.dims[1];
    for (int64_t i = 0, count = ir_tensor_count(y); i < count; i++) {
        int64_t pixel = i / channels, image = pixel / w.out_size;
        int64_t most = y->dtype == TACIT_I8 ? -128 : 0;
        op_window_offsets(&w, pixel % w.out_size, offsets);
        for (int64_t k = 0; k < w.taps; k++) {
            if (offsets[k] < 0)
                continue;
            int64_t v = x[(image * w.in_size + offsets[k]) * channels + i % channels];
            most = v > most ? v : most;
        }
        ir_store_i64(y->dtype, y->data, i, most);
    }
    return TACIT_OK;
}

#define ROW(row, inputs, rule, kernel)                                                             \
    {                                                                                              \
        .name = row, .domain = "tacit", .min_in = inputs, .max_in = inputs, .min_out = 1,          \
        .max_out = 1, .infer = rule##_infer, .eval = rule##_eval, .lower = kernel                  \
    }

const op_def op_rows_int_images[] = {
    ROW("IntAdd", 8, add, op_lower_int_add),
    ROW("IntMul", 8, mul, op_lower_int_mul),
    ROW("IntMean", 5, mean, op_lower_int_mean),
    ROW("IntMaxPool", 1, max_pool, op_lower_int_max_pool),
    {0},
};
