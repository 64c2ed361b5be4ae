/* SPDX-License-Identifier: Apache-2.0
 * Element-wise activations with parameters, and Clip. */
#include <math.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/range.h"
#include "op/strip.h"
#include "op/vjp.h"

/* Parameters are read from the attributes in order into p[]. */
typedef struct parameter {
    const char *name;
    double fallback;
} parameter;

static tacit_status eval_with(op_eval *c, const op_unary_rule *rule, uint32_t n,
                              const parameter *parameters)
{
    double p[2] = {0};
    for (uint32_t i = 0; i < n; i++)
        p[i] = ir_attr_float(c->node, parameters[i].name, parameters[i].fallback);
    return op_eval_unary(c, rule, p);
}

#define ACTIVATION(name, expr, ...)                                                                \
    static double name##_f64(double x, const double *p)                                            \
    {                                                                                              \
        return expr;                                                                               \
    }                                                                                              \
    static tacit_status name##_eval(op_eval *c)                                                    \
    {                                                                                              \
        static const parameter list[] = {__VA_ARGS__};                                             \
        return eval_with(c, &(op_unary_rule){.f64 = name##_f64}, sizeof list / sizeof *list,       \
                         list);                                                                    \
    }

static double clamp01(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

ACTIVATION(LeakyRelu, x < 0 ? p[0] * x : x, {"alpha", 0.01f})
ACTIVATION(Elu, x < 0 ? p[0] * expm1(x) : x, {"alpha", 1})
ACTIVATION(Selu, p[1] * (x > 0 ? x : p[0] * expm1(x)), {"alpha", 1.67326319217681884765625},
           {"gamma", 1.05070102214813232421875})
ACTIVATION(Celu, x < 0 ? p[0] * expm1(x / p[0]) : x, {"alpha", 1})
ACTIVATION(ThresholdedRelu, x > p[0] || isnan(x) ? x : 0, {"alpha", 1})
ACTIVATION(HardSigmoid, clamp01(p[0] * x + p[1]), {"alpha", 0.2f}, {"beta", 0.5})
ACTIVATION(Swish, x / (1 + exp(-p[0] * x)), {"alpha", 1})

/* At −∞ the value is the limit, −0, and not ∞·0. */
static double gelu_erf(double x, const double *p)
{
    (void)p;
    if (x == -INFINITY)
        return -0.0;
    return 0.5 * x * erfc(-x * 0.70710678118654752440);
}
static double gelu_tanh(double x, const double *p)
{
    (void)p;
    if (x == -INFINITY)
        return -0.0;
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
static tacit_status gelu_eval(op_eval *c)
{
    const char *how = ir_attr_string(c->node, "approximate", "none");
    if (strcmp(how, "tanh") == 0)
        return op_eval_unary(c, &(op_unary_rule){.f64 = gelu_tanh}, NULL);
    if (strcmp(how, "none") == 0)
        return op_eval_unary(c, &(op_unary_rule){.f64 = gelu_erf}, NULL);
    return error_set(c->err, TACIT_ERR_VALUE, "approximate '%s' is neither none nor tanh", how);
}

/* p[0] = lambd, p[1] = bias */
static double shrink_f64(double x, const double *p)
{
    return x < -p[0] ? x + p[1] : x > p[0] ? x - p[1] : isnan(x) ? x : 0;
}
static int64_t shrink_i64(int64_t x, const double *p)
{
    return (int64_t)shrink_f64((double)x, p);
}
static tacit_status shrink_eval(op_eval *c)
{
    static const parameter list[] = {{"lambd", 0.5}, {"bias", 0}};
    return eval_with(c, &(op_unary_rule){.f64 = shrink_f64, .i64 = shrink_i64}, 2, list);
}

static tacit_status clip_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_REAL));
    for (uint32_t i = 1; i < c->n_in; i++) {
        if (!c->in[i])
            continue;
        TRY(op_check_class(c, i, OP_REAL));
        int64_t n;
        if (!ir_shape_count(&c->in[i]->shape, &n) || n != 1)
            return error_set(c->err, TACIT_ERR_SHAPE, "bound %u must be a scalar", i);
    }
    TRY(op_check_same_dtype(c));
    return op_infer_same(c);
}

static void clip_run_f64(op_eval *c, int64_t at, int64_t n, double low, double high)
{
    const ir_tensor *x = op_in(c, 0);
    double v[OP_STRIP];
    op_strip_load_f64(x->dtype, x->data, at, 1, n, v);
    /* A lower bound above the upper one: the upper wins. */
    for (int64_t i = 0; i < n; i++) {
        double y = v[i] < low ? low : v[i];
        v[i] = y > high ? high : y;
    }
    op_strip_store_f64(x->dtype, op_out(c, 0)->data, at, n, v);
}

static void clip_run_i64(op_eval *c, int64_t at, int64_t n, int64_t low, int64_t high)
{
    const ir_tensor *x = op_in(c, 0);
    int64_t v[OP_STRIP];
    /* Flipping the top bit makes u64 order that of i64. */
    uint64_t flip = x->dtype == TACIT_U64 ? UINT64_C(1) << 63 : 0;
    op_strip_load_i64(x->dtype, x->data, at, 1, n, v);
    low = (int64_t)((uint64_t)low ^ flip);
    high = (int64_t)((uint64_t)high ^ flip);
    for (int64_t i = 0; i < n; i++) {
        int64_t y = (int64_t)((uint64_t)v[i] ^ flip);
        y = y < low ? low : y;
        v[i] = (int64_t)((uint64_t)(y > high ? high : y) ^ flip);
    }
    op_strip_store_i64(x->dtype, op_out(c, 0)->data, at, n, v);
}

static tacit_status clip_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0), *low = op_in(c, 1), *high = op_in(c, 2);
    bool real = ir_dtype_is_float(x->dtype), wide = x->dtype == TACIT_U64;
    double low_f = low ? ir_load_f64(low->dtype, low->data, 0) : -INFINITY;
    double high_f = high ? ir_load_f64(high->dtype, high->data, 0) : INFINITY;
    int64_t low_i = wide ? 0 : INT64_MIN, high_i = wide ? -1 : INT64_MAX;
    if (low && !real)
        low_i = ir_load_i64(low->dtype, low->data, 0);
    if (high && !real)
        high_i = ir_load_i64(high->dtype, high->data, 0);
    for (int64_t at = 0, n = ir_tensor_count(x); at < n; at += OP_STRIP) {
        int64_t m = n - at < OP_STRIP ? n - at : OP_STRIP;
        if (real)
            clip_run_f64(c, at, m, low_f, high_f);
        else
            clip_run_i64(c, at, m, low_i, high_i);
    }
    return TACIT_OK;
}

const op_def op_rows_nonlinear[] = {
    OP_UNARY_ROW("LeakyRelu", op_infer_same_float, LeakyRelu_eval, .vjp = op_vjp_unary,
                 .range = op_bounds_leaky),
    OP_UNARY_ROW("Elu", op_infer_same_float, Elu_eval, .vjp = op_vjp_unary),
    OP_UNARY_ROW("Selu", op_infer_same_float, Selu_eval, .vjp = op_vjp_unary),
    OP_UNARY_ROW("Celu", op_infer_same_float, Celu_eval, .vjp = op_vjp_unary),
    OP_UNARY_ROW("ThresholdedRelu", op_infer_same_float, ThresholdedRelu_eval, .vjp = op_vjp_unary),
    OP_UNARY_ROW("HardSigmoid", op_infer_same_float, HardSigmoid_eval, .vjp = op_vjp_unary),
    OP_UNARY_ROW("Swish", op_infer_same_float, Swish_eval, .vjp = op_vjp_unary,
                 .range = op_bounds_swish),
    OP_UNARY_ROW("Gelu", op_infer_same_float, gelu_eval, .vjp = op_vjp_unary,
                 .range = op_bounds_gelu),
    OP_UNARY_ROW("Shrink", op_infer_same_real, shrink_eval, .vjp = op_vjp_unary),
    {.name = "Clip",
     .min_in = 1,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_ELEMENTWISE,
     .infer = clip_infer,
     .eval = clip_eval,
     .inplace = 1,
     .lower = op_lower_map,
     .accepts = op_accepts_map,
     .vjp = op_vjp_clip,
     .range = op_bounds_clip},
    {0},
};
