/* SPDX-License-Identifier: Apache-2.0
 * Element-wise functions of one input without parameters. */
#include <math.h>

#include "op/elementwise.h"
#include "op/range.h"
#include "op/vjp.h"

static double sign_of(double x)
{
    return isnan(x) ? x : (double)((x > 0) - (x < 0));
}

/* The usual two-sided form: exp never overflows. */
static double sigmoid_of(double x)
{
    double e = exp(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

static double relu_of(double x)
{
    return x > 0 || isnan(x) ? x : 0;
}

static double softplus_of(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double hard_swish_of(double x)
{
    double gate = x / 6 + 0.5;
    return x * (gate < 0 ? 0 : gate > 1 ? 1 : gate);
}

/* Float functions: name in the table, value at x. */
#define FLOAT_MAP(F)                                                                               \
    F(Sqrt, sqrt(x))                                                                               \
    F(Reciprocal, 1 / x)                                                                           \
    F(Exp, exp(x))                                                                                 \
    F(Log, log(x))                                                                                 \
    F(Sin, sin(x))                                                                                 \
    F(Cos, cos(x))                                                                                 \
    F(Tan, tan(x))                                                                                 \
    F(Asin, asin(x))                                                                               \
    F(Acos, acos(x))                                                                               \
    F(Atan, atan(x))                                                                               \
    F(Sinh, sinh(x))                                                                               \
    F(Cosh, cosh(x))                                                                               \
    F(Tanh, tanh(x))                                                                               \
    F(Asinh, asinh(x))                                                                             \
    F(Acosh, acosh(x))                                                                             \
    F(Atanh, atanh(x))                                                                             \
    F(Erf, erf(x))                                                                                 \
    F(Sigmoid, sigmoid_of(x))                                                                      \
    F(Softplus, softplus_of(x))                                                                    \
    F(Softsign, x / (1 + fabs(x)))                                                                 \
    F(HardSwish, hard_swish_of(x))                                                                 \
    F(Mish, x *tanh(softplus_of(x)))                                                               \
    F(Ceil, ceil(x))                                                                               \
    F(Floor, floor(x))                                                                             \
    F(Round, nearbyint(x)) /* ties to even */                                                      \
    F(Abs, fabs(x))                                                                                \
    F(Neg, -x)                                                                                     \
    F(Sign, sign_of(x))                                                                            \
    F(Relu, relu_of(x))

#define DEFINE_F64(name, expr)                                                                     \
    static double name##_f64(double x, const double *p)                                            \
    {                                                                                              \
        (void)p;                                                                                   \
        return expr;                                                                               \
    }
FLOAT_MAP(DEFINE_F64)

static int64_t Abs_i64(int64_t x, const double *p)
{
    (void)p;
    return x < 0 ? (int64_t)(0 - (uint64_t)x) : x;
}
static int64_t Neg_i64(int64_t x, const double *p)
{
    (void)p;
    return (int64_t)(0 - (uint64_t)x);
}
static int64_t Sign_i64(int64_t x, const double *p)
{
    (void)p;
    return (x > 0) - (x < 0);
}
static int64_t Relu_i64(int64_t x, const double *p)
{
    (void)p;
    return x > 0 ? x : 0;
}
static int64_t not_i64(int64_t x, const double *p)
{
    (void)p;
    return ~x;
}

static double complex neg_c128(double complex x)
{
    return -x;
}
static double complex reciprocal_c128(double complex x)
{
    return 1 / x;
}

#define FLOAT_EVAL(name, complex_function)                                                         \
    static tacit_status name##_eval(op_eval *c)                                                    \
    {                                                                                              \
        return op_eval_unary(c, &(op_unary_rule){name##_f64, NULL, complex_function}, NULL);       \
    }
#define INT_EVAL(name, complex_function)                                                           \
    static tacit_status name##_eval(op_eval *c)                                                    \
    {                                                                                              \
        return op_eval_unary(c, &(op_unary_rule){name##_f64, name##_i64, complex_function}, NULL); \
    }
FLOAT_EVAL(Sqrt, csqrt)
FLOAT_EVAL(Reciprocal, reciprocal_c128)
FLOAT_EVAL(Exp, cexp)
FLOAT_EVAL(Log, clog)
FLOAT_EVAL(Sin, csin)
FLOAT_EVAL(Cos, ccos)
FLOAT_EVAL(Tan, ctan)
FLOAT_EVAL(Asin, casin)
FLOAT_EVAL(Acos, cacos)
FLOAT_EVAL(Atan, catan)
FLOAT_EVAL(Sinh, csinh)
FLOAT_EVAL(Cosh, ccosh)
FLOAT_EVAL(Tanh, ctanh)
FLOAT_EVAL(Asinh, casinh)
FLOAT_EVAL(Acosh, cacosh)
FLOAT_EVAL(Atanh, catanh)
FLOAT_EVAL(Erf, NULL)
FLOAT_EVAL(Sigmoid, NULL)
FLOAT_EVAL(Softplus, NULL)
FLOAT_EVAL(Softsign, NULL)
FLOAT_EVAL(HardSwish, NULL)
FLOAT_EVAL(Mish, NULL)
FLOAT_EVAL(Ceil, NULL)
FLOAT_EVAL(Floor, NULL)
FLOAT_EVAL(Round, NULL)
INT_EVAL(Abs, NULL)
INT_EVAL(Neg, neg_c128)
INT_EVAL(Sign, NULL)
INT_EVAL(Relu, NULL)

/* u64 has no negative half: what reads as one is large. */
static tacit_status unsigned_or(op_eval *c, op_eval_fn *eval)
{
    if (ir_dtype_classify(op_in(c, 0)->dtype) != IR_CLASS_UNSIGNED)
        return eval(c);
    return op_eval_copy(c, op_out(c, 0), op_in(c, 0));
}
static tacit_status abs_eval(op_eval *c)
{
    return unsigned_or(c, Abs_eval);
}
static tacit_status relu_eval(op_eval *c)
{
    return unsigned_or(c, Relu_eval);
}

static int64_t sign_u64(int64_t x, const double *p)
{
    (void)p;
    return x != 0;
}
static tacit_status sign_eval(op_eval *c)
{
    if (op_in(c, 0)->dtype == TACIT_U64)
        return op_eval_unary(c, &(op_unary_rule){.i64 = sign_u64}, NULL);
    return Sign_eval(c);
}

static tacit_status bitwise_not_eval(op_eval *c)
{
    return op_eval_unary(c, &(op_unary_rule){.i64 = not_i64}, NULL);
}

static tacit_status bitwise_not_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_INT));
    return op_infer_same(c);
}

#define ROW(name, ...) OP_UNARY_ROW(#name, op_infer_same_float, name##_eval, __VA_ARGS__)

const op_def op_rows_math[] = {
    ROW(Sqrt, .vjp = op_vjp_unary),
    ROW(Reciprocal, .vjp = op_vjp_unary),
    ROW(Exp, .vjp = op_vjp_unary),
    ROW(Log, .vjp = op_vjp_unary),
    ROW(Sin, .vjp = op_vjp_unary),
    ROW(Cos, .vjp = op_vjp_unary),
    ROW(Tan, .vjp = op_vjp_unary),
    ROW(Asin, .vjp = op_vjp_unary),
    ROW(Acos, .vjp = op_vjp_unary),
    ROW(Atan, .vjp = op_vjp_unary),
    ROW(Sinh, .vjp = op_vjp_unary),
    ROW(Cosh, .vjp = op_vjp_unary),
    ROW(Tanh, .vjp = op_vjp_unary, .range = op_bounds_tanh),
    ROW(Asinh, .vjp = op_vjp_unary),
    ROW(Acosh, .vjp = op_vjp_unary),
    ROW(Atanh, .vjp = op_vjp_unary),
    ROW(Erf, .vjp = op_vjp_unary),
    ROW(Sigmoid, .vjp = op_vjp_unary, .range = op_bounds_sigmoid),
    ROW(Softplus, .vjp = op_vjp_unary),
    ROW(Softsign, .vjp = op_vjp_unary),
    ROW(HardSwish, .vjp = op_vjp_unary),
    ROW(Mish, .vjp = op_vjp_unary),
    ROW(Ceil, .vjp = op_vjp_zero),
    ROW(Floor, .vjp = op_vjp_zero),
    ROW(Round, .vjp = op_vjp_unary),
    OP_UNARY_ROW("Abs", op_infer_same_real, abs_eval, .vjp = op_vjp_unary,
                 .range = op_bounds_absolute),
    OP_UNARY_ROW("Neg", op_infer_same_number, Neg_eval, .vjp = op_vjp_unary,
                 .range = op_bounds_negate),
    OP_UNARY_ROW("Sign", op_infer_same_real, sign_eval, .vjp = op_vjp_zero),
    OP_UNARY_ROW("Relu", op_infer_same_real, relu_eval, .vjp = op_vjp_unary,
                 .range = op_bounds_relu),
    OP_UNARY_ROW("BitwiseNot", bitwise_not_infer, bitwise_not_eval),
    {0},
};
