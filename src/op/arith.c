/* SPDX-License-Identifier: Apache-2.0
 * Element-wise arithmetic with broadcasting. */
#include <math.h>

#include "op/loop.h"
#include "op/op.h"

/* A binary op over two number systems: floats in double, integers in wrapping i64. */
typedef struct binary_rule {
    double (*f64)(double a, double b);
    int64_t (*i64)(int64_t a, int64_t b);
} binary_rule;

static tacit_status eval_binary(op_eval *c, const binary_rule *rule)
{
    const ir_tensor *a = op_in(c, 0), *b = op_in(c, 1);
    ir_tensor *y = op_out(c, 0);
    bool real = ir_dtype_is_float(a->dtype);
    op_loop l;
    op_loop_begin(&l, &y->shape);
    op_loop_broadcast(&l, &a->shape);
    op_loop_broadcast(&l, &b->shape);
    for (; !op_loop_done(&l); op_loop_next(&l)) {
        if (real)
            ir_store_f64(y->dtype, y->data, l.linear,
                         rule->f64(ir_load_f64(a->dtype, a->data, l.at[0]),
                                   ir_load_f64(b->dtype, b->data, l.at[1])));
        else
            ir_store_i64(y->dtype, y->data, l.linear,
                         rule->i64(ir_load_i64(a->dtype, a->data, l.at[0]),
                                   ir_load_i64(b->dtype, b->data, l.at[1])));
    }
    return TACIT_OK;
}

static double add_f64(double a, double b)
{
    return a + b;
}
static int64_t add_i64(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}
static tacit_status add_eval(op_eval *c)
{
    return eval_binary(c, &(binary_rule){add_f64, add_i64});
}

const op_def op_rows_arith[] = {
    {.name = "Add",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_ELEMENTWISE | OP_COMMUTATIVE,
     .infer = op_infer_broadcast,
     .eval = add_eval,
     .inplace = 3},
    {0},
};
