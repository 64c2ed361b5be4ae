/* SPDX-License-Identifier: Apache-2.0
 * The element-wise engines: a rule gives the scalar function per number system, the engine does
 * broadcasting, dtypes and rounding (once, on the way out). Floats of every width compute in
 * double, integers in wrapping 64 bits. */
#ifndef OP_ELEMENTWISE_H
#define OP_ELEMENTWISE_H

#include <complex.h>

#include "op/lowerings.h"
#include "op/op.h"

/* `p` are the op's parameters, as the evaluator passed them. A NULL function means the number
 * system is not supported: the infer rule must have refused it. */
typedef struct op_unary_rule {
    double (*f64)(double x, const double *p);
    int64_t (*i64)(int64_t x, const double *p); /* unsigned types: values ≥ 0 except u64 */
    double complex (*c128)(double complex x);
} op_unary_rule;

typedef struct op_binary_rule {
    double (*f64)(double a, double b);
    int64_t (*i64)(int64_t a, int64_t b);
    int64_t (*u64)(uint64_t a, uint64_t b); /* for u64 where it differs from i64 */
    double complex (*c128)(double complex a, double complex b);
} op_binary_rule;

/* out 0 = f(in 0); the output may have any numeric dtype (bool for tests). */
tacit_status op_eval_unary(op_eval *c, const op_unary_rule *rule, const double *p);
/* out 0 = f(in 0, in 1), broadcast. Mixed float/integer inputs compute in double. */
tacit_status op_eval_binary(op_eval *c, const op_binary_rule *rule);
/* out 0 = f(…f(f(in 0, in 1), in 2)…), broadcast, divided by `divisor`; rounded once. */
tacit_status op_eval_fold(op_eval *c, const op_binary_rule *rule, double divisor);

/* Classes of dtypes an input may have. */
enum {
    OP_FLOAT = 1,
    OP_INT = 2,
    OP_BOOL = 4,
    OP_COMPLEX = 8,
    OP_STRING = 16,
    OP_REAL = OP_FLOAT | OP_INT,
    OP_NUMBER = OP_FLOAT | OP_INT | OP_COMPLEX,
    OP_ANY = 31,
};
/* Error unless input `i` is a tensor whose dtype is in `classes`. */
tacit_status op_check_class(const op_infer *c, uint32_t i, uint32_t classes);
/* Shape and dtype of input 0, which must be in the named classes. */
tacit_status op_infer_same_float(op_infer *c);  /* float or complex */
tacit_status op_infer_same_real(op_infer *c);   /* float or integer */
tacit_status op_infer_same_number(op_infer *c); /* float, integer or complex */
/* All inputs broadcast, one dtype. */
tacit_status op_infer_broadcast_number(op_infer *c);
tacit_status op_infer_broadcast_real(op_infer *c);
tacit_status op_infer_broadcast_int(op_infer *c);
tacit_status op_infer_broadcast_bool(op_infer *c);

/* One table row of a unary/binary/variadic element-wise op. */
#define OP_UNARY_ROW(NAME, INFER, EVAL, ...)                                                       \
    {                                                                                              \
        .name = NAME, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1,                        \
        .flags = OP_ELEMENTWISE, .infer = INFER, .eval = EVAL, .inplace = 1,                       \
        .lower = op_lower_map, .accepts = op_accepts_map, __VA_ARGS__                              \
    }
#define OP_BINARY_ROW(NAME, FLAGS, INFER, EVAL, INPLACE, ...)                                      \
    {                                                                                              \
        .name = NAME, .min_in = 2, .max_in = 2, .min_out = 1, .max_out = 1,                        \
        .flags = OP_ELEMENTWISE | (FLAGS), .infer = INFER, .eval = EVAL, .inplace = INPLACE,       \
        .lower = op_lower_map, .accepts = op_accepts_map, __VA_ARGS__                              \
    }

#endif
