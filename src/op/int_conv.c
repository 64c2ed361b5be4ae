/* SPDX-License-Identifier: Apache-2.0
 * tacit.IntConv(X, W, x_scale, x_zero?, w_scale, w_zero?, bias?, y_scale?, y_zero?): a convolution
 * of bytes, act((X − x_zero)∗(W − w_zero)·x_scale·w_scale + bias), in f32, or with y_scale and
 * y_zero rounded (half to even) and saturated to y_zero's type. x_scale is one number, w_scale one
 * or [M], bias f32 [M]; attributes of Conv and of activations. With `inside` the channels are the
 * last axis: 1 of X, 2 of Y, 3 of both. */
#include "op/activation.h"
#include "op/conv.h"
#include "op/int_images.h"
#include "op/lowerings.h"
#include "op/quant.h"
#include "op/values.h"

static bool is_byte(const ir_type *t)
{
    return t->dtype == TACIT_U8 || t->dtype == TACIT_I8;
}

/* The convolution and where the channels lie. */
static tacit_status read_conv(const ir_node *n, const ir_shape *x, const ir_shape *w, op_conv *p,
                              int64_t *inside, tacit_error *err)
{
    *inside = ir_attr_int(n, "inside", 0);
    if (*inside < 0 || *inside > 3 || (*inside && x->rank != 4))
        return error_set(err, TACIT_ERR_VALUE, "inside is %lld, X has rank %d", (long long)*inside,
                         x->rank);
    ir_shape turned = *inside & OP_INSIDE_X ? op_outside(x) : *x;
    return op_conv_plan(n, &turned, w, p, err);
}

static tacit_status check_parameters(op_infer *c, int64_t m)
{
    for (uint32_t i = 2; i < 9; i++) {
        const ir_type *t = op_in_type(c, i);
        int64_t size = t ? ir_shape_size(&t->shape) : 0;
        if (!t)
            continue;
        tacit_dtype want = i == 3 ? c->in[0]->dtype : i == 5 ? c->in[1]->dtype : TACIT_F32;
        if (i == 8 ? !is_byte(t) : t->dtype != want)
            return error_set(c->err, TACIT_ERR_TYPE, "input %u is %s", i,
                             tacit_dtype_text(t->dtype));
        bool many = i == 4 || i == 5 || i == 6;
        if (i == 6 ? size != m : size != 1 && !(many && size == m))
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u has %lld elements", i,
                             (long long)size);
    }
    return TACIT_OK;
}

static tacit_status int_conv_infer(op_infer *c)
{
    op_conv p;
    op_activation act;
    int64_t inside;
    if (!is_byte(c->in[0]) || !is_byte(c->in[1]))
        return error_set(c->err, TACIT_ERR_TYPE, "X and W must be bytes");
    if (!op_in_type(c, 4) || !op_in_type(c, 7) != !op_in_type(c, 8))
        return error_set(c->err, TACIT_ERR_GRAPH, "a scale or a zero point is missing");
    TRY(read_conv(c->node, &c->in[0]->shape, &c->in[1]->shape, &p, &inside, c->err));
    TRY(check_parameters(c, p.m));
    TRY(op_activation_read(c->node, &act, c->err));
    ir_shape y = inside & OP_INSIDE_Y ? op_inside(&p.y) : p.y;
    op_set_out(c, 0, op_in_type(c, 8) ? op_in_type(c, 8)->dtype : TACIT_F32, &y);
    return TACIT_OK;
}

static tacit_status centred(op_eval *c, uint32_t x, uint32_t zero, int64_t channels, int64_t **out)
{
    int64_t *z, count = ir_tensor_count(op_in(c, x));
    TRY(op_input_i64(c, x, out));
    TRY(op_input_i64(c, zero, &z));
    bool many = z && ir_tensor_count(op_in(c, zero)) > 1;
    for (int64_t i = 0; z && i < count; i++)
        (*out)[i] -= z[many ? i / (count / channels) : 0];
    return TACIT_OK;
}

static tacit_status turn_out(op_eval *c, const op_conv *p, int64_t **x)
{
    int64_t *to, count = p->n * p->c * p->w.in_size;
    TRY(op_scratch_i64(c, count, &to));
    for (int64_t i = 0; i < count; i++)
        to[i] = (*x)[op_inside_at(i, p->c, p->w.in_size)];
    *x = to;
    return TACIT_OK;
}

static tacit_status int_conv_eval(op_eval *c)
{
    op_conv p;
    op_activation act;
    int64_t *x, *w, *sums, *zero, inside;
    double *xs, *ws, *bias, *ys;
    TRY(read_conv(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, &p, &inside, c->err));
    TRY(op_activation_read(c->node, &act, c->err));
    TRY(centred(c, 0, 3, 1, &x));
    if (inside & OP_INSIDE_X)
        TRY(turn_out(c, &p, &x));
    TRY(centred(c, 1, 5, p.m, &w));
    TRY(op_input_f64(c, 2, &xs));
    TRY(op_input_f64(c, 4, &ws));
    TRY(op_input_f64(c, 6, &bias));
    TRY(op_input_f64(c, 7, &ys));
    TRY(op_input_i64(c, 8, &zero));
    int64_t count = ir_shape_size(&p.y);
    TRY(op_scratch_i64(c, count, &sums));
    TRY(op_conv_i64(c, &p, x, w, sums)); /* padding is a centred zero */
    ir_tensor *y = op_out(c, 0);
    bool many = ir_tensor_count(op_in(c, 4)) > 1;
    for (int64_t i = 0; i < count; i++) {
        int64_t m = i / p.w.out_size % p.m;
        double v = (double)sums[i] * (xs[0] * ws[many ? m : 0]) + (bias ? bias[m] : 0);
        v = op_activation_apply(&act, v);
        int64_t at = inside & OP_INSIDE_Y ? op_inside_at(i, p.m, p.w.out_size) : i;
        ir_store_f64(y->dtype, y->data, at,
                     ys ? op_quantize(y->dtype, v / ys[0], (double)zero[0], true) : v);
    }
    return TACIT_OK;
}

const op_def op_rows_int_conv[] = {
    {.name = "IntConv",
     .domain = "tacit",
     .min_in = 3,
     .max_in = 9,
     .min_out = 1,
     .max_out = 1,
     .infer = int_conv_infer,
     .eval = int_conv_eval,
     .lower = op_lower_int_conv},
    {0},
};
