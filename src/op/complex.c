/* SPDX-License-Identifier: Apache-2.0
 * Complex numbers: building, taking apart, conjugates and squared magnitudes. Gradients of real
 * functions follow Wirtinger's ∂/∂z̄: half the gradient of the pair (re, im). */
#include "op/elementwise.h"
#include "op/loop.h"
#include "op/vjp.h"

static tacit_dtype real_of(tacit_dtype dtype)
{
    return dtype == TACIT_C128 ? TACIT_F64 : TACIT_F32;
}

/* --- Complex(re, im) -------------------------------------------------------------------------- */

static tacit_status complex_infer(op_infer *c)
{
    TRY(op_infer_broadcast(c));
    tacit_dtype dtype = c->in[0]->dtype;
    if (dtype != TACIT_F32 && dtype != TACIT_F64)
        return error_set(c->err, TACIT_ERR_TYPE, "parts must be f32 or f64, not %s",
                         tacit_dtype_text(dtype));
    c->out[0].dtype = dtype == TACIT_F64 ? TACIT_C128 : TACIT_C64;
    return TACIT_OK;
}

static tacit_status complex_eval(op_eval *c)
{
    const ir_tensor *re = op_in(c, 0), *im = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    op_loop l;
    op_loop_begin(&l, &y->shape);
    op_loop_broadcast(&l, &re->shape);
    op_loop_broadcast(&l, &im->shape);
    for (; !op_loop_done(&l); op_loop_next(&l)) {
        double v[2] = {ir_load_f64(re->dtype, re->data, l.at[0]),
                       ir_load_f64(im->dtype, im->data, l.at[1])};
        ir_store_complex(y->dtype, y->data, l.linear, v);
    }
    return TACIT_OK;
}

/* --- Real, Imag, NormSq: complex in, real out ------------------------------------------------- */

static tacit_status part_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_COMPLEX));
    c->out[0] = *c->in[0];
    c->out[0].dtype = real_of(c->in[0]->dtype);
    return TACIT_OK;
}

static tacit_status eval_part(op_eval *c, double (*part)(const double z[2]))
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++) {
        double z[2];
        ir_load_complex(x->dtype, x->data, i, z);
        ir_store_f64(y->dtype, y->data, i, part(z));
    }
    return TACIT_OK;
}

static double real_part(const double z[2])
{
    return z[0];
}
static double imag_part(const double z[2])
{
    return z[1];
}
static double norm_sq(const double z[2])
{
    return z[0] * z[0] + z[1] * z[1];
}
static tacit_status real_eval(op_eval *c)
{
    return eval_part(c, real_part);
}
static tacit_status imag_eval(op_eval *c)
{
    return eval_part(c, imag_part);
}
static tacit_status norm_sq_eval(op_eval *c)
{
    return eval_part(c, norm_sq);
}

/* --- Conj ------------------------------------------------------------------------------------- */

static tacit_status conj_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_COMPLEX));
    return op_infer_same(c);
}

static tacit_status conj_eval(op_eval *c)
{
    return op_eval_unary(c, &(op_unary_rule){.c128 = conj}, NULL);
}

/* --- NormSqGrad(z, g) = g·z: the gradient of |z|² --------------------------------------------- */

static tacit_status norm_sq_grad_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_COMPLEX));
    TRY(op_check_class(c, 1, OP_FLOAT));
    if (c->in[1]->dtype != real_of(c->in[0]->dtype) ||
        !ir_shape_equal(&c->in[0]->shape, &c->in[1]->shape))
        return error_set(c->err, TACIT_ERR_SHAPE, "the gradient does not fit the values");
    return op_infer_same(c);
}

static tacit_status norm_sq_grad_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *g = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    for (int64_t i = 0, n = ir_tensor_count(x); i < n; i++) {
        double z[2], scale = ir_load_f64(g->dtype, g->data, i);
        ir_load_complex(x->dtype, x->data, i, z);
        ir_store_complex(y->dtype, y->data, i, (double[2]){scale * z[0], scale * z[1]});
    }
    return TACIT_OK;
}

#define COMPLEX_ROW(NAME, IN, INFER, EVAL, INPLACE, ...)                                           \
    {                                                                                              \
        .name = NAME, .domain = "tacit", .min_in = IN, .max_in = IN, .min_out = 1, .max_out = 1,   \
        .flags = OP_ELEMENTWISE, .infer = INFER, .eval = EVAL, .inplace = INPLACE, __VA_ARGS__     \
    }

const op_def op_rows_complex[] = {
    COMPLEX_ROW("Complex", 2, complex_infer, complex_eval, 0, .vjp = op_vjp_complex),
    COMPLEX_ROW("Real", 1, part_infer, real_eval, 0, .vjp = op_vjp_real),
    COMPLEX_ROW("Imag", 1, part_infer, imag_eval, 0, .vjp = op_vjp_imag),
    COMPLEX_ROW("NormSq", 1, part_infer, norm_sq_eval, 0, .vjp = op_vjp_norm_sq),
    COMPLEX_ROW("Conj", 1, conj_infer, conj_eval, 1, .vjp = op_vjp_conj),
    COMPLEX_ROW("NormSqGrad", 2, norm_sq_grad_infer, norm_sq_grad_eval, 1,
                .vjp = op_vjp_norm_sq_grad),
    {0},
};
