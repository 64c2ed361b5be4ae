/* SPDX-License-Identifier: Apache-2.0
 * tacit integer kernels' definitions: QMatMul and QConv (i8 in, i8 out, i32 inside), FakeQuantize.
 */
#include <math.h>
#include <string.h>

#include "op/conv.h"
#include "op/gemm.h"
#include "op/values.h"
#include "op/vjp.h"

/* Attributes of both: x_zero, w_zero, y_zero (integers) and multiplier = sx·sw/sy (float). */
typedef struct requantise {
    int64_t x_zero, w_zero, y_zero;
    float multiplier;
} requantise;

static requantise requantise_read(const ir_node *node)
{
    return (requantise){ir_attr_int(node, "x_zero", 0), ir_attr_int(node, "w_zero", 0),
                        ir_attr_int(node, "y_zero", 0),
                        (float)ir_attr_float(node, "multiplier", 1)};
}

/* The accumulator is an i32; rounding is half away from zero; clamping comes before the cast. */
static void requantise_store(op_eval *c, const requantise *r, const int64_t *acc, int64_t count)
{
    int8_t *y = op_out(c, 0)->data;
    for (int64_t i = 0; i < count; i++) {
        double v = roundf((float)(int32_t)(uint32_t)acc[i] * r->multiplier) + (double)r->y_zero;
        y[i] = (int8_t)op_clamp_to(TACIT_I8, v);
    }
}

static tacit_status check_bytes(const op_infer *c, int64_t bias)
{
    for (uint32_t i = 0; i < 2; i++)
        if (c->in[i]->dtype != TACIT_I8)
            return error_set(c->err, TACIT_ERR_TYPE, "input %u is %s, expected i8", i,
                             tacit_dtype_text(c->in[i]->dtype));
    const ir_type *b = op_in_type(c, 2);
    if (b && b->dtype != TACIT_I32)
        return error_set(c->err, TACIT_ERR_TYPE, "the bias is %s, expected i32",
                         tacit_dtype_text(b->dtype));
    return op_need_shape(c, 2, 1, &bias);
}

static tacit_status centred(op_eval *c, uint32_t i, int64_t zero, int64_t **out)
{
    TRY(op_input_i64(c, i, out));
    for (int64_t k = 0; k < ir_tensor_count(op_in(c, i)); k++)
        (*out)[k] -= zero;
    return TACIT_OK;
}

static tacit_status qmatmul_infer(op_infer *c)
{
    op_matmul p = {0};
    TRY(op_matmul_plan(&p, &c->in[0]->shape, &c->in[1]->shape, c->err));
    TRY(check_bytes(c, p.n));
    op_set_out(c, 0, TACIT_I8, &p.y);
    return TACIT_OK;
}

static tacit_status qmatmul_eval(op_eval *c)
{
    requantise r = requantise_read(c->node);
    op_matmul p = {0};
    int64_t *x, *w, *bias, *acc;
    TRY(op_matmul_plan(&p, &op_in(c, 0)->shape, &op_in(c, 1)->shape, c->err));
    TRY(centred(c, 0, r.x_zero, &x));
    TRY(centred(c, 1, r.w_zero, &w));
    TRY(op_input_i64(c, 2, &bias));
    int64_t count = ir_shape_size(&p.y);
    TRY(op_scratch_i64(c, count, &acc));
    ir_tensor a = ir_tensor_view(TACIT_I64, &op_in(c, 0)->shape, x);
    ir_tensor b = ir_tensor_view(TACIT_I64, &op_in(c, 1)->shape, w);
    TRY(op_matmul_i64(c, &p, &a, &b, acc));
    for (int64_t i = 0; bias && i < count; i++)
        acc[i] += bias[i % p.n];
    requantise_store(c, &r, acc, count);
    return TACIT_OK;
}

static tacit_status qconv_infer(op_infer *c)
{
    op_conv p;
    TRY(op_conv_plan(c->node, &c->in[0]->shape, &c->in[1]->shape, &p, c->err));
    TRY(check_bytes(c, p.m));
    op_set_out(c, 0, TACIT_I8, &p.y);
    return TACIT_OK;
}

static tacit_status qconv_eval(op_eval *c)
{
    requantise r = requantise_read(c->node);
    op_conv p;
    int64_t *x, *w, *bias, *acc;
    TRY(op_conv_plan(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, &p, c->err));
    TRY(centred(c, 0, r.x_zero, &x)); /* padding is a centred zero: the real value 0 */
    TRY(centred(c, 1, r.w_zero, &w));
    TRY(op_input_i64(c, 2, &bias));
    int64_t count = ir_shape_size(&p.y);
    TRY(op_scratch_i64(c, count, &acc));
    TRY(op_conv_i64(c, &p, x, w, acc));
    for (int64_t i = 0; bias && i < count; i++)
        acc[i] += bias[i / p.w.out_size % p.m];
    requantise_store(c, &r, acc, count);
    return TACIT_OK;
}

/* --- FakeQuantize(x, state? [channels]) → y, state
 * ------------------------------------------------- clamp(round(x/s), −Q, Q)·s with Q = 2^(bits−1)
 * − 1. mode "batch": s = max|x|/Q per channel; "ema": the state moves towards that by 1 − decay and
 * is used at once; "fixed": s is the state. The new state is the second output: nothing is written
 * in place. */

enum { FAKE_BATCH, FAKE_EMA, FAKE_FIXED };

typedef struct fake {
    int mode;
    int64_t channels, inner;
    double limit, decay;
} fake;

static tacit_status fake_read(const ir_node *node, const ir_shape *x, fake *f, tacit_error *err)
{
    const char *mode = ir_attr_string(node, "mode", "batch");
    int64_t bits = ir_attr_int(node, "bits", 8);
    int32_t axis = 0;
    *f = (fake){.channels = 1, .inner = 1, .decay = ir_attr_float(node, "decay", 0.99)};
    f->mode = strcmp(mode, "batch") == 0   ? FAKE_BATCH
              : strcmp(mode, "ema") == 0   ? FAKE_EMA
              : strcmp(mode, "fixed") == 0 ? FAKE_FIXED
                                           : -1;
    if (f->mode < 0 || bits < 2 || bits > 16)
        return error_set(err, TACIT_ERR_VALUE, "mode '%s' with %lld bits", mode, (long long)bits);
    f->limit = (double)((1 << (bits - 1)) - 1);
    if (!ir_attr_find(node, "axis"))
        return TACIT_OK;
    TRY(ir_axis(ir_attr_int(node, "axis", 0), x->rank, &axis, err));
    f->channels = x->dims[axis];
    for (int32_t i = axis + 1; i < x->rank; i++)
        f->inner *= x->dims[i];
    return TACIT_OK;
}

static tacit_status fake_infer(op_infer *c)
{
    fake f;
    TRY(op_need_float(c, 0));
    TRY(fake_read(c->node, &c->in[0]->shape, &f, c->err));
    TRY(op_need_shape(c, 1, 1, &f.channels));
    if (f.mode != FAKE_BATCH && !op_in_type(c, 1))
        return error_set(c->err, TACIT_ERR_GRAPH, "this mode needs a state");
    op_set_out(c, 0, c->in[0]->dtype, &c->in[0]->shape);
    op_set_out_dims(c, 1, c->in[0]->dtype, 1, &f.channels);
    return TACIT_OK;
}

static tacit_status fake_eval(op_eval *c)
{
    fake f;
    double *x, *state, *top;
    TRY(fake_read(c->node, &op_in(c, 0)->shape, &f, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &state));
    TRY(op_scratch_f64(c, f.channels, &top));
    int64_t count = ir_tensor_count(op_in(c, 0));
    for (int64_t i = 0; i < count; i++) {
        int64_t ch = i / f.inner % f.channels;
        top[ch] = fabs(x[i]) > top[ch] ? fabs(x[i]) : top[ch];
    }
    for (int64_t ch = 0; ch < f.channels; ch++) {
        double s = top[ch] / f.limit;
        if (f.mode == FAKE_FIXED)
            s = state[ch];
        else if (f.mode == FAKE_EMA && state[ch] > 0)
            s = f.decay * state[ch] + (1 - f.decay) * s;
        top[ch] = s > 1e-12 ? s : 1e-12;
    }
    for (int64_t i = 0; i < count; i++) {
        double s = top[i / f.inner % f.channels], q = round(x[i] / s);
        x[i] = (q > f.limit ? f.limit : q < -f.limit ? -f.limit : q) * s;
    }
    op_output_f64(c, 0, x);
    op_output_f64(c, 1, top);
    return TACIT_OK;
}

const op_def op_rows_int8[] = {
    {.name = "QMatMul",
     .domain = "tacit",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = qmatmul_infer,
     .eval = qmatmul_eval},
    {.name = "QConv",
     .domain = "tacit",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = qconv_infer,
     .eval = qconv_eval},
    {.name = "FakeQuantize",
     .domain = "tacit",
     .min_in = 1,
     .max_in = 2,
     .min_out = 1,
     .max_out = 2,
     .infer = fake_infer,
     .eval = fake_eval,
     .vjp = op_vjp_fake_quantize},
    {0},
};
