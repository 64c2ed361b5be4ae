/* SPDX-License-Identifier: Apache-2.0
 * Element-wise arithmetic with broadcasting: two operands, or any number of them. */
#include <math.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/range.h"
#include "op/vjp.h"

/* Integers wrap: computed unsigned, where overflow is defined. */
#define WRAP(expr) ((int64_t)(expr))
#define U(x) ((uint64_t)(x))

static double add_f64(double a, double b)
{
    return a + b;
}
static int64_t add_i64(int64_t a, int64_t b)
{
    return WRAP(U(a) + U(b));
}
static double complex add_c128(double complex a, double complex b)
{
    return a + b;
}
static const op_binary_rule add_rule = {add_f64, add_i64, NULL, add_c128};

static double sub_f64(double a, double b)
{
    return a - b;
}
static int64_t sub_i64(int64_t a, int64_t b)
{
    return WRAP(U(a) - U(b));
}
static double complex sub_c128(double complex a, double complex b)
{
    return a - b;
}
static const op_binary_rule sub_rule = {sub_f64, sub_i64, NULL, sub_c128};

static double mul_f64(double a, double b)
{
    return a * b;
}
static int64_t mul_i64(int64_t a, int64_t b)
{
    return WRAP(U(a) * U(b));
}
static double complex mul_c128(double complex a, double complex b)
{
    return a * b;
}
static const op_binary_rule mul_rule = {mul_f64, mul_i64, NULL, mul_c128};

static double div_f64(double a, double b)
{
    return a / b;
}
static int64_t div_i64(int64_t a, int64_t b)
{
    return b == -1 ? WRAP(0 - U(a)) : a / b; /* the least integer over -1 wraps */
}
static int64_t div_u64(uint64_t a, uint64_t b)
{
    return WRAP(a / b);
}
static double complex div_c128(double complex a, double complex b)
{
    return a / b;
}
static const op_binary_rule div_rule = {div_f64, div_i64, div_u64, div_c128};

/* fmod 0: the sign of the divisor (floor division's remainder). */
static double mod_floor_f64(double a, double b)
{
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static int64_t mod_floor_i64(int64_t a, int64_t b)
{
    if (b == -1)
        return 0;
    int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static int64_t mod_u64(uint64_t a, uint64_t b)
{
    return WRAP(a % b);
}
static const op_binary_rule mod_floor_rule = {mod_floor_f64, mod_floor_i64, mod_u64, NULL};

static double mod_trunc_f64(double a, double b)
{
    return fmod(a, b);
}
static int64_t mod_trunc_i64(int64_t a, int64_t b)
{
    return b == -1 ? 0 : a % b;
}
static const op_binary_rule mod_trunc_rule = {mod_trunc_f64, mod_trunc_i64, mod_u64, NULL};

/* By squaring, modulo 2^64. A negative exponent gives what truncating 1/x^|n| gives. */
static int64_t pow_i64(int64_t a, int64_t n)
{
    if (n < 0)
        return a == 1 ? 1 : a == -1 ? (n % 2 ? -1 : 1) : 0;
    uint64_t r = 1, x = U(a);
    for (; n; n >>= 1, x *= x)
        if (n & 1)
            r *= x;
    return WRAP(r);
}
static double pow_f64(double a, double b)
{
    return pow(a, b);
}
static double complex pow_c128(double complex a, double complex b)
{
    return cpow(a, b);
}
static const op_binary_rule pow_rule = {pow_f64, pow_i64, NULL, pow_c128};

static int64_t and_i64(int64_t a, int64_t b)
{
    return a & b;
}
static int64_t or_i64(int64_t a, int64_t b)
{
    return a | b;
}
static int64_t xor_i64(int64_t a, int64_t b)
{
    return a ^ b;
}
static const op_binary_rule and_rule = {.i64 = and_i64};
static const op_binary_rule or_rule = {.i64 = or_i64};
static const op_binary_rule xor_rule = {.i64 = xor_i64};

/* Shifting everything out gives zero. */
static int64_t left_i64(int64_t a, int64_t n)
{
    return U(n) > 63 ? 0 : WRAP(U(a) << n);
}
static int64_t right_i64(int64_t a, int64_t n)
{
    return U(n) > 63 ? (a < 0 ? -1 : 0) : a >> n;
}
static int64_t right_u64(uint64_t a, uint64_t n)
{
    return n > 63 ? 0 : WRAP(a >> n);
}
static const op_binary_rule left_rule = {.i64 = left_i64};
static const op_binary_rule right_rule = {.i64 = right_i64, .u64 = right_u64};

/* NaN wins, as in NumPy's maximum and minimum. */
static double max_f64(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}
static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static int64_t max_u64(uint64_t a, uint64_t b)
{
    return WRAP(a > b ? a : b);
}
static double min_f64(double a, double b)
{
    return isnan(a) || a < b ? a : b;
}
static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t min_u64(uint64_t a, uint64_t b)
{
    return WRAP(a < b ? a : b);
}
static const op_binary_rule max_rule = {max_f64, max_i64, max_u64, NULL};
static const op_binary_rule min_rule = {min_f64, min_i64, min_u64, NULL};

static double prelu_f64(double x, double slope)
{
    return x < 0 ? x * slope : x;
}
static int64_t prelu_i64(int64_t x, int64_t slope)
{
    return x < 0 ? mul_i64(x, slope) : x;
}
static int64_t prelu_u64(uint64_t x, uint64_t slope)
{
    (void)slope;
    return WRAP(x);
}
static const op_binary_rule prelu_rule = {prelu_f64, prelu_i64, prelu_u64, NULL};

static tacit_status add_eval(op_eval *c)
{
    return op_eval_binary(c, &add_rule);
}
static tacit_status sub_eval(op_eval *c)
{
    return op_eval_binary(c, &sub_rule);
}
static tacit_status mul_eval(op_eval *c)
{
    return op_eval_binary(c, &mul_rule);
}

/* An integer divisor of zero has no value: refuse it before anything is divided. */
static tacit_status check_divisor(op_eval *c)
{
    const ir_tensor *b = op_in(c, 1);
    if (!ir_dtype_is_int(b->dtype) || ir_tensor_count(op_out(c, 0)) == 0)
        return TACIT_OK;
    for (int64_t i = 0, n = ir_tensor_count(b); i < n; i++)
        if (ir_load_i64(b->dtype, b->data, i) == 0)
            return error_set(c->err, TACIT_ERR_VALUE, "integer division by zero at divisor %lld",
                             (long long)i);
    return TACIT_OK;
}

static tacit_status div_eval(op_eval *c)
{
    TRY(check_divisor(c));
    return op_eval_binary(c, &div_rule);
}

static tacit_status mod_eval(op_eval *c)
{
    TRY(check_divisor(c));
    bool trunc = ir_attr_int(c->node, "fmod", 0) != 0;
    return op_eval_binary(c, trunc ? &mod_trunc_rule : &mod_floor_rule);
}

static tacit_status pow_eval(op_eval *c)
{
    return op_eval_binary(c, &pow_rule);
}
static tacit_status and_eval(op_eval *c)
{
    return op_eval_binary(c, &and_rule);
}
static tacit_status or_eval(op_eval *c)
{
    return op_eval_binary(c, &or_rule);
}
static tacit_status xor_eval(op_eval *c)
{
    return op_eval_binary(c, &xor_rule);
}

static tacit_status shift_eval(op_eval *c)
{
    const char *direction = ir_attr_string(c->node, "direction", "");
    if (strcmp(direction, "LEFT") == 0)
        return op_eval_binary(c, &left_rule);
    if (strcmp(direction, "RIGHT") == 0)
        return op_eval_binary(c, &right_rule);
    return error_set(c->err, TACIT_ERR_VALUE, "direction '%s' is neither LEFT nor RIGHT",
                     direction);
}

static tacit_status max_eval(op_eval *c)
{
    return op_eval_fold(c, &max_rule, 1);
}
static tacit_status min_eval(op_eval *c)
{
    return op_eval_fold(c, &min_rule, 1);
}
static tacit_status sum_eval(op_eval *c)
{
    return op_eval_fold(c, &add_rule, 1);
}
static tacit_status mean_eval(op_eval *c)
{
    return op_eval_fold(c, &add_rule, c->n_in);
}
static tacit_status prelu_eval(op_eval *c)
{
    return op_eval_binary(c, &prelu_rule);
}

/* The exponent may have its own dtype; the base's is the result's. */
static tacit_status pow_infer(op_infer *c)
{
    ir_shape shape;
    TRY(op_check_class(c, 0, OP_NUMBER));
    TRY(op_check_class(c, 1, OP_NUMBER));
    TRY(ir_shape_broadcast(&c->in[0]->shape, &c->in[1]->shape, &shape, c->err));
    c->out[0] = ir_type_tensor(c->in[0]->dtype, shape.rank, shape.dims);
    return TACIT_OK;
}

/* The slope broadcasts to the input, never the other way. */
static tacit_status prelu_infer(op_infer *c)
{
    TRY(op_infer_broadcast_real(c));
    if (ir_shape_equal(&c->out[0].shape, &c->in[0]->shape))
        return TACIT_OK;
    char x[IR_SHAPE_TEXT], slope[IR_SHAPE_TEXT];
    return error_set(c->err, TACIT_ERR_SHAPE, "slope %s does not broadcast to the input's %s",
                     ir_shape_text(&c->in[1]->shape, slope), ir_shape_text(&c->in[0]->shape, x));
}

#define FOLD_ROW(NAME, EVAL, ...)                                                                  \
    {                                                                                              \
        .name = NAME, .min_in = 1, .max_in = -1, .min_out = 1, .max_out = 1,                       \
        .flags = OP_ELEMENTWISE, .infer = op_infer_broadcast_real, .eval = EVAL, .inplace = 1,     \
        .lower = op_lower_map, .accepts = op_accepts_map, __VA_ARGS__                              \
    }

const op_def op_rows_arith[] = {
    OP_BINARY_ROW("Add", OP_COMMUTATIVE, op_infer_broadcast_number, add_eval, 3, .vjp = op_vjp_add,
                  .range = op_bounds_add),
    OP_BINARY_ROW("Sub", 0, op_infer_broadcast_number, sub_eval, 3, .vjp = op_vjp_sub,
                  .range = op_bounds_subtract),
    OP_BINARY_ROW("Mul", OP_COMMUTATIVE, op_infer_broadcast_number, mul_eval, 3, .vjp = op_vjp_mul,
                  .range = op_bounds_multiply),
    OP_BINARY_ROW("Div", 0, op_infer_broadcast_number, div_eval, 3, .vjp = op_vjp_div,
                  .range = op_bounds_divide),
    OP_BINARY_ROW("Mod", 0, op_infer_broadcast_real, mod_eval, 3, .vjp = op_vjp_mod),
    OP_BINARY_ROW("Pow", 0, pow_infer, pow_eval, 1, .vjp = op_vjp_pow),
    OP_BINARY_ROW("PRelu", 0, prelu_infer, prelu_eval, 1, .vjp = op_vjp_prelu),
    OP_BINARY_ROW("BitwiseAnd", OP_COMMUTATIVE, op_infer_broadcast_int, and_eval, 3),
    OP_BINARY_ROW("BitwiseOr", OP_COMMUTATIVE, op_infer_broadcast_int, or_eval, 3),
    OP_BINARY_ROW("BitwiseXor", OP_COMMUTATIVE, op_infer_broadcast_int, xor_eval, 3),
    OP_BINARY_ROW("BitShift", 0, op_infer_broadcast_int, shift_eval, 3),
    FOLD_ROW("Max", max_eval, .vjp = op_vjp_extremum, .range = op_bounds_max),
    FOLD_ROW("Min", min_eval, .vjp = op_vjp_extremum, .range = op_bounds_min),
    FOLD_ROW("Sum", sum_eval, .vjp = op_vjp_sum, .range = op_bounds_total_of),
    FOLD_ROW("Mean", mean_eval, .vjp = op_vjp_mean, .range = op_bounds_mean_of),
    {0},
};
