/* SPDX-License-Identifier: Apache-2.0
 * Reductions over any set of axes: one walk, one small rule per op. */
#include <math.h>

#include "op/elementwise.h"
#include "op/loop.h"
#include "op/range.h"
#include "op/strip.h"
#include "op/view.h"
#include "op/vjp.h"

/* Floats accumulate in double pairs (a running maximum and a sum for LogSumExp), integers in
 * wrapping 64 bits where the op is closed over them. */
typedef struct reduce_rule {
    double start;
    void (*f64)(double acc[2], double x);
    double (*finish)(const double acc[2], int64_t n); /* NULL: acc[0] */
    int64_t i64_start;
    int64_t (*i64)(int64_t acc, int64_t x); /* NULL: integers compute in double */
    int64_t (*i64_finish)(int64_t acc, int64_t n);
} reduce_rule;

static void sum_f64(double *acc, double x)
{
    acc[0] += x;
}
static int64_t sum_i64(int64_t acc, int64_t x)
{
    return (int64_t)((uint64_t)acc + (uint64_t)x);
}
static void l1_f64(double *acc, double x)
{
    acc[0] += fabs(x);
}
static int64_t l1_i64(int64_t acc, int64_t x)
{
    return sum_i64(acc, x < 0 ? (int64_t)(0 - (uint64_t)x) : x);
}
static void square_f64(double *acc, double x)
{
    acc[0] += x * x;
}
static int64_t square_i64(int64_t acc, int64_t x)
{
    return (int64_t)((uint64_t)acc + (uint64_t)x * (uint64_t)x);
}
static void prod_f64(double *acc, double x)
{
    acc[0] *= x;
}
static int64_t prod_i64(int64_t acc, int64_t x)
{
    return (int64_t)((uint64_t)acc * (uint64_t)x);
}
static void max_f64(double *acc, double x)
{
    acc[0] = isnan(acc[0]) || acc[0] > x ? acc[0] : x;
}
static void min_f64(double *acc, double x)
{
    acc[0] = isnan(acc[0]) || acc[0] < x ? acc[0] : x;
}
static int64_t max_i64(int64_t acc, int64_t x)
{
    return acc > x ? acc : x;
}
static int64_t min_i64(int64_t acc, int64_t x)
{
    return acc < x ? acc : x;
}

static double mean_finish(const double *acc, int64_t n)
{
    return acc[0] / (double)n; /* 0/0 is NaN: the mean of nothing */
}
static int64_t mean_i64_finish(int64_t acc, int64_t n)
{
    return n ? acc / n : 0;
}
static double sqrt_finish(const double *acc, int64_t n)
{
    (void)n;
    return sqrt(acc[0]);
}
static double log_finish(const double *acc, int64_t n)
{
    (void)n;
    return log(acc[0]);
}

/* acc[0] = running maximum, acc[1] = Σ exp(x − maximum) */
static void log_sum_exp_f64(double *acc, double x)
{
    if (x == -INFINITY && acc[0] == -INFINITY)
        return; /* adds exp(-inf) = 0 */
    if (x > acc[0]) {
        acc[1] = acc[1] * exp(acc[0] - x) + 1;
        acc[0] = x;
    } else if (x == acc[0]) {
        acc[1] += 1; /* equal infinities have no difference */
    } else {
        acc[1] += exp(x - acc[0]);
    }
}
static double log_sum_exp_finish(const double *acc, int64_t n)
{
    (void)n;
    return acc[0] + log(acc[1]);
}

static const reduce_rule sum_rule = {.f64 = sum_f64, .i64 = sum_i64};
static const reduce_rule mean_rule = {
    .f64 = sum_f64, .finish = mean_finish, .i64 = sum_i64, .i64_finish = mean_i64_finish};
static const reduce_rule prod_rule = {.start = 1, .f64 = prod_f64, .i64_start = 1, .i64 = prod_i64};
static const reduce_rule l1_rule = {.f64 = l1_f64, .i64 = l1_i64};
static const reduce_rule l2_rule = {.f64 = square_f64, .finish = sqrt_finish};
static const reduce_rule square_rule = {.f64 = square_f64, .i64 = square_i64};
static const reduce_rule log_rule = {.f64 = sum_f64, .finish = log_finish};
static const reduce_rule log_sum_exp_rule = {
    .start = -INFINITY, .f64 = log_sum_exp_f64, .finish = log_sum_exp_finish};
static const reduce_rule max_rule = {
    .start = -INFINITY, .f64 = max_f64, .i64_start = INT64_MIN, .i64 = max_i64};
static const reduce_rule min_rule = {
    .start = INFINITY, .f64 = min_f64, .i64_start = INT64_MAX, .i64 = min_i64};

/* No axes means all of them, or with noop_with_empty_axes none: then every element is reduced
 * alone, so that a composite op still applies its function to it. */
static tacit_status reduce_axes(const ir_node *node, const ir_tensor *given, int32_t rank,
                                op_axes *axes, tacit_error *err)
{
    *axes = (op_axes){0};
    if (given)
        TRY(op_read_axes(given, rank, axes, err));
    if (!axes->count && !ir_attr_int(node, "noop_with_empty_axes", 0))
        axes->mask = (1u << rank) - 1;
    return TACIT_OK;
}

static tacit_status reduce_infer_class(op_infer *c, uint32_t classes)
{
    TRY(op_check_class(c, 0, classes));
    const ir_type *x = c->in[0];
    bool keep = ir_attr_int(c->node, "keepdims", 1) != 0;
    if (op_in_type(c, 1) && !op_in_value(c, 1)) {
        int64_t n = ir_shape_size(&c->in[1]->shape);
        if (keep || n == 0)
            return op_infer_open(c, x->dtype, x->shape.rank);
        return op_infer_open(c, x->dtype, x->shape.rank - n);
    }
    op_axes axes;
    TRY(reduce_axes(c->node, op_in_value(c, 1), x->shape.rank, &axes, c->err));
    ir_shape y = {.rank = 0};
    for (int32_t d = 0; d < x->shape.rank; d++) {
        if (!(axes.mask & 1u << d))
            y.dims[y.rank++] = x->shape.dims[d];
        else if (keep)
            y.dims[y.rank++] = 1;
    }
    c->out[0] = ir_type_tensor(x->dtype, y.rank, y.dims);
    return TACIT_OK;
}

static tacit_status reduce_infer(op_infer *c)
{
    return reduce_infer_class(c, OP_REAL);
}
static tacit_status reduce_infer_bool(op_infer *c)
{
    return reduce_infer_class(c, OP_REAL | OP_BOOL);
}

/* The input's axes in two index spaces: kept (one output element each) and reduced. */
typedef struct reduce_plan {
    ir_shape kept, gone;
    int64_t kept_strides[IR_MAX_RANK], gone_strides[IR_MAX_RANK];
} reduce_plan;

static reduce_plan make_plan(const ir_shape *x, uint32_t mask)
{
    reduce_plan p = {0};
    int64_t strides[IR_MAX_RANK];
    ir_shape_strides(x, strides);
    for (int32_t d = 0; d < x->rank; d++) {
        bool gone = mask & 1u << d;
        ir_shape *s = gone ? &p.gone : &p.kept;
        (gone ? p.gone_strides : p.kept_strides)[s->rank] = strides[d];
        s->dims[s->rank++] = x->dims[d];
    }
    return p;
}

static double reduce_f64(const reduce_rule *rule, const ir_tensor *x, const reduce_plan *p,
                         int64_t at)
{
    double acc[2] = {rule->start, 0};
    op_loop l;
    op_loop_begin(&l, &p->gone);
    op_loop_strided(&l, p->gone_strides, at);
    for (; !op_loop_done(&l); op_loop_next(&l))
        rule->f64(acc, ir_load_f64(x->dtype, x->data, l.at[0]));
    return rule->finish ? rule->finish(acc, l.count) : acc[0];
}

static int64_t reduce_i64(const reduce_rule *rule, const ir_tensor *x, const reduce_plan *p,
                          int64_t at)
{
    /* u64 keeps its order under signed comparison when its top bit is flipped. */
    bool ordered = rule->i64 == max_i64 || rule->i64 == min_i64;
    uint64_t flip = x->dtype == TACIT_U64 && ordered ? UINT64_C(1) << 63 : 0;
    int64_t acc = rule->i64_start;
    op_loop l;
    op_loop_begin(&l, &p->gone);
    op_loop_strided(&l, p->gone_strides, at);
    for (; !op_loop_done(&l); op_loop_next(&l))
        acc = rule->i64(acc, (int64_t)((uint64_t)ir_load_i64(x->dtype, x->data, l.at[0]) ^ flip));
    acc = (int64_t)((uint64_t)acc ^ flip);
    return rule->i64_finish ? rule->i64_finish(acc, l.count) : acc;
}

/* The least and greatest value of an integer type, for the extremum of nothing. */
static int64_t extreme(tacit_dtype dtype, bool least)
{
    uint32_t bits = tacit_dtype_bits(dtype);
    if (dtype == TACIT_BOOL)
        return !least;
    if (ir_dtype_classify(dtype) == IR_CLASS_UNSIGNED)
        return least ? 0 : (int64_t)(UINT64_MAX >> (64 - bits));
    return least ? INT64_MIN >> (64 - bits) : INT64_MAX >> (64 - bits);
}

static tacit_status eval_reduce(op_eval *c, const reduce_rule *rule)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    op_axes axes;
    TRY(reduce_axes(c->node, op_in(c, 1), x->shape.rank, &axes, c->err));
    reduce_plan p = make_plan(&x->shape, axes.mask);
    bool real = ir_dtype_is_float(x->dtype) || !rule->i64;
    bool extremum_of_nothing =
        !real && ir_shape_size(&p.gone) == 0 && (rule->i64 == max_i64 || rule->i64 == min_i64);
    op_loop l;
    op_loop_begin(&l, &p.kept);
    op_loop_strided(&l, p.kept_strides, 0);
    for (; !op_loop_done(&l); op_loop_next(&l)) {
        if (extremum_of_nothing)
            ir_store_i64(y->dtype, y->data, l.linear, extreme(x->dtype, rule->i64 == max_i64));
        else if (real)
            ir_store_f64(y->dtype, y->data, l.linear, reduce_f64(rule, x, &p, l.at[0]));
        else
            ir_store_i64(y->dtype, y->data, l.linear, reduce_i64(rule, x, &p, l.at[0]));
    }
    return TACIT_OK;
}

#define REDUCE_EVAL(name)                                                                          \
    static tacit_status name##_eval(op_eval *c)                                                    \
    {                                                                                              \
        return eval_reduce(c, &name##_rule);                                                       \
    }
REDUCE_EVAL(sum)
REDUCE_EVAL(mean)
REDUCE_EVAL(prod)
REDUCE_EVAL(l1)
REDUCE_EVAL(l2)
REDUCE_EVAL(square)
REDUCE_EVAL(log)
REDUCE_EVAL(log_sum_exp)
REDUCE_EVAL(max)
REDUCE_EVAL(min)

#define REDUCE_ROW(NAME, INFER, EVAL, ...)                                                         \
    {                                                                                              \
        .name = NAME, .min_in = 1, .max_in = 2, .min_out = 1, .max_out = 1, .infer = INFER,        \
        .eval = EVAL, .lower = op_lower_reduce, .accepts = op_accepts_reduce, __VA_ARGS__          \
    }

const op_def op_rows_reduce[] = {
    REDUCE_ROW("ReduceSum", reduce_infer, sum_eval, .vjp = op_vjp_reduce, .batch = op_batch_reduce,
               .range = op_bounds_sum),
    REDUCE_ROW("ReduceMean", reduce_infer, mean_eval, .vjp = op_vjp_reduce,
               .batch = op_batch_reduce, .range = op_bounds_mean),
    REDUCE_ROW("ReduceProd", reduce_infer, prod_eval, .vjp = op_vjp_reduce,
               .batch = op_batch_reduce),
    REDUCE_ROW("ReduceL1", reduce_infer, l1_eval, .vjp = op_vjp_reduce, .batch = op_batch_reduce),
    REDUCE_ROW("ReduceL2", reduce_infer, l2_eval, .vjp = op_vjp_reduce, .batch = op_batch_reduce),
    REDUCE_ROW("ReduceSumSquare", reduce_infer, square_eval, .vjp = op_vjp_reduce,
               .batch = op_batch_reduce),
    REDUCE_ROW("ReduceLogSum", reduce_infer, log_eval, .vjp = op_vjp_reduce,
               .batch = op_batch_reduce),
    REDUCE_ROW("ReduceLogSumExp", reduce_infer, log_sum_exp_eval, .vjp = op_vjp_reduce,
               .batch = op_batch_reduce),
    REDUCE_ROW("ReduceMax", reduce_infer_bool, max_eval, .vjp = op_vjp_reduce,
               .batch = op_batch_reduce, .range = op_bounds_mean),
    REDUCE_ROW("ReduceMin", reduce_infer_bool, min_eval, .vjp = op_vjp_reduce,
               .batch = op_batch_reduce, .range = op_bounds_mean),
    {0},
};
