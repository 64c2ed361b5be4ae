/* SPDX-License-Identifier: Apache-2.0
 * Comparisons, logic and selection. */
#include <math.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/loop.h"
#include "op/strip.h"
#include "op/vjp.h"

#define COMPARISON(name, op)                                                                       \
    static double name##_f64(double a, double b)                                                   \
    {                                                                                              \
        return a op b;                                                                             \
    }                                                                                              \
    static int64_t name##_i64(int64_t a, int64_t b)                                                \
    {                                                                                              \
        return a op b;                                                                             \
    }                                                                                              \
    static int64_t name##_u64(uint64_t a, uint64_t b)                                              \
    {                                                                                              \
        return a op b;                                                                             \
    }                                                                                              \
    static tacit_status name##_eval(op_eval *c)                                                    \
    {                                                                                              \
        return op_eval_binary(c, &(op_binary_rule){name##_f64, name##_i64, name##_u64, NULL});     \
    }
COMPARISON(less, <)
COMPARISON(less_or_equal, <=)
COMPARISON(greater, >)
COMPARISON(greater_or_equal, >=)

static double equal_f64(double a, double b)
{
    return a == b;
}
static int64_t equal_i64(int64_t a, int64_t b)
{
    return a == b;
}
static double complex equal_c128(double complex a, double complex b)
{
    return a == b;
}

static bool strings_equal(const ir_string *a, const ir_string *b)
{
    return a->length == b->length && (!a->length || memcmp(a->data, b->data, a->length) == 0);
}

static tacit_status equal_eval(op_eval *c)
{
    const ir_tensor *a = op_in(c, 0), *b = op_in(c, 1);
    if (a->dtype != TACIT_STRING)
        return op_eval_binary(c, &(op_binary_rule){equal_f64, equal_i64, NULL, equal_c128});
    ir_tensor *y = op_out(c, 0);
    op_loop l;
    op_loop_begin(&l, &y->shape);
    op_loop_broadcast(&l, &a->shape);
    op_loop_broadcast(&l, &b->shape);
    for (; !op_loop_done(&l); op_loop_next(&l))
        ((uint8_t *)y->data)[l.linear] = strings_equal((const ir_string *)a->data + l.at[0],
                                                       (const ir_string *)b->data + l.at[1]);
    return TACIT_OK;
}

static int64_t and_i64(int64_t a, int64_t b)
{
    return a && b;
}
static int64_t or_i64(int64_t a, int64_t b)
{
    return a || b;
}
static int64_t xor_i64(int64_t a, int64_t b)
{
    return !a != !b;
}
static tacit_status and_eval(op_eval *c)
{
    return op_eval_binary(c, &(op_binary_rule){.i64 = and_i64});
}
static tacit_status or_eval(op_eval *c)
{
    return op_eval_binary(c, &(op_binary_rule){.i64 = or_i64});
}
static tacit_status xor_eval(op_eval *c)
{
    return op_eval_binary(c, &(op_binary_rule){.i64 = xor_i64});
}

static int64_t not_i64(int64_t x, const double *p)
{
    (void)p;
    return !x;
}
static tacit_status not_eval(op_eval *c)
{
    return op_eval_unary(c, &(op_unary_rule){.i64 = not_i64}, NULL);
}
static tacit_status not_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_BOOL));
    return op_infer_same(c);
}

static double is_nan_f64(double x, const double *p)
{
    (void)p;
    return isnan(x) != 0;
}
/* p[0]: count −∞; p[1]: count +∞ */
static double is_inf_f64(double x, const double *p)
{
    return isinf(x) && p[x > 0] != 0;
}
static tacit_status is_nan_eval(op_eval *c)
{
    return op_eval_unary(c, &(op_unary_rule){.f64 = is_nan_f64}, NULL);
}
static tacit_status is_inf_eval(op_eval *c)
{
    double p[2] = {(double)ir_attr_int(c->node, "detect_negative", 1),
                   (double)ir_attr_int(c->node, "detect_positive", 1)};
    return op_eval_unary(c, &(op_unary_rule){.f64 = is_inf_f64}, p);
}
static tacit_status test_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_FLOAT));
    c->out[0] = *c->in[0];
    c->out[0].dtype = TACIT_BOOL;
    return TACIT_OK;
}

static tacit_status equal_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_ANY));
    TRY(op_check_class(c, 1, OP_ANY));
    return op_infer_compare(c);
}

static tacit_status order_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_check_class(c, 1, OP_REAL));
    return op_infer_compare(c);
}

static tacit_status where_infer(op_infer *c)
{
    ir_shape shape;
    TRY(op_check_class(c, 0, OP_BOOL));
    TRY(op_check_class(c, 1, OP_ANY));
    TRY(op_check_class(c, 2, OP_ANY));
    if (c->in[1]->dtype != c->in[2]->dtype)
        return error_set(c->err, TACIT_ERR_TYPE, "input 1 is %s, but input 2 is %s",
                         tacit_dtype_text(c->in[1]->dtype), tacit_dtype_text(c->in[2]->dtype));
    TRY(ir_shape_broadcast(&c->in[0]->shape, &c->in[1]->shape, &shape, c->err));
    TRY(ir_shape_broadcast(&shape, &c->in[2]->shape, &shape, c->err));
    c->out[0] = ir_type_tensor(c->in[1]->dtype, shape.rank, shape.dims);
    return TACIT_OK;
}

static tacit_status where_eval(op_eval *c)
{
    const ir_tensor *test = op_in(c, 0), *a = op_in(c, 1), *b = op_in(c, 2);
    ir_tensor *y = op_out(c, 0);
    op_loop l;
    op_loop_begin(&l, &y->shape);
    op_loop_broadcast(&l, &test->shape);
    op_loop_broadcast(&l, &a->shape);
    op_loop_broadcast(&l, &b->shape);
    for (; !op_loop_done(&l); op_loop_next(&l)) {
        bool first = ((const uint8_t *)test->data)[l.at[0]] != 0;
        op_strip_copy(y->dtype, y->data, l.linear, 0, first ? a->data : b->data,
                      l.at[first ? 1 : 2], 0, 1);
    }
    return TACIT_OK;
}

#define COMPARE_ROW(NAME, FLAGS, INFER, EVAL)                                                      \
    OP_BINARY_ROW(NAME, OP_NOT_DIFFERENTIABLE | (FLAGS), INFER, EVAL, 0)

const op_def op_rows_compare[] = {
    COMPARE_ROW("Equal", OP_COMMUTATIVE, equal_infer, equal_eval),
    COMPARE_ROW("Less", 0, order_infer, less_eval),
    COMPARE_ROW("LessOrEqual", 0, order_infer, less_or_equal_eval),
    COMPARE_ROW("Greater", 0, order_infer, greater_eval),
    COMPARE_ROW("GreaterOrEqual", 0, order_infer, greater_or_equal_eval),
    OP_BINARY_ROW("And", OP_COMMUTATIVE | OP_NOT_DIFFERENTIABLE, op_infer_broadcast_bool, and_eval,
                  3),
    OP_BINARY_ROW("Or", OP_COMMUTATIVE | OP_NOT_DIFFERENTIABLE, op_infer_broadcast_bool, or_eval,
                  3),
    OP_BINARY_ROW("Xor", OP_COMMUTATIVE | OP_NOT_DIFFERENTIABLE, op_infer_broadcast_bool, xor_eval,
                  3),
    OP_UNARY_ROW("Not", not_infer, not_eval),
    {.name = "IsNaN",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_ELEMENTWISE | OP_NOT_DIFFERENTIABLE,
     .infer = test_infer,
     .eval = is_nan_eval,
     .accepts = op_accepts_map,
     .lower = op_lower_map},
    {.name = "IsInf",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_ELEMENTWISE | OP_NOT_DIFFERENTIABLE,
     .infer = test_infer,
     .eval = is_inf_eval,
     .accepts = op_accepts_map,
     .lower = op_lower_map},
    {.name = "Where",
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_ELEMENTWISE,
     .infer = where_infer,
     .eval = where_eval,
     .inplace = 6,
     .lower = op_lower_map,
     .accepts = op_accepts_map,
     .vjp = op_vjp_where},
    {0},
};
