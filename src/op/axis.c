/* SPDX-License-Identifier: Apache-2.0
 * Ops along one axis: ArgMax, ArgMin, TopK, Hardmax, CumSum, CumProd. */
#include <math.h>
#include <string.h>

#include "op/elementwise.h"
#include "op/index.h"
#include "op/order.h"
#include "op/range.h"
#include "op/strip.h"
#include "op/view.h"
#include "op/vjp.h"

/* --- ArgMax, ArgMin --------------------------------------------------------------------------- */

static tacit_status arg_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_REAL));
    const ir_shape *x = &c->in[0]->shape;
    int32_t axis;
    TRY(ir_axis(ir_attr_int(c->node, "axis", 0), x->rank, &axis, c->err));
    if (x->dims[axis] == 0)
        return error_set(c->err, TACIT_ERR_SHAPE, "axis %d is empty: it has no extremum", axis);
    ir_shape y = {.rank = 0};
    for (int32_t d = 0; d < x->rank; d++)
        if (d != axis)
            y.dims[y.rank++] = x->dims[d];
        else if (ir_attr_int(c->node, "keepdims", 1))
            y.dims[y.rank++] = 1;
    c->out[0] = ir_type_tensor(TACIT_I64, y.rank, y.dims);
    return TACIT_OK;
}

/* Position of the extremum in a strided run. NaN is an extremum in either direction. */
static int64_t find_extreme(const ir_tensor *x, int64_t at, int64_t step, int64_t n, int sign,
                            bool last)
{
    int64_t best = 0;
    bool real = ir_dtype_is_float(x->dtype);
    for (int64_t i = 1; i < n; i++) {
        int order = op_compare(x, at + i * step, at + best * step);
        if (real && sign < 0 && order &&
            (isnan(ir_load_f64(x->dtype, x->data, at + i * step)) ||
             isnan(ir_load_f64(x->dtype, x->data, at + best * step))))
            order = -order; /* op_compare puts NaN last, the minimum wants it first */
        if (order * sign > 0 || (last && order == 0))
            best = i;
    }
    return best;
}

static tacit_status eval_arg(op_eval *c, int sign)
{
    const ir_tensor *x = op_in(c, 0);
    int64_t *y = op_out(c, 0)->data;
    op_split_axis s;
    bool last = ir_attr_int(c->node, "select_last_index", 0) != 0;
    TRY(op_split_at(&x->shape, ir_attr_int(c->node, "axis", 0), &s, c->err));
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.inner; i++)
            *y++ = find_extreme(x, o * s.size * s.inner + i, s.inner, s.size, sign, last);
    return TACIT_OK;
}

static tacit_status arg_max_eval(op_eval *c)
{
    return eval_arg(c, 1);
}
static tacit_status arg_min_eval(op_eval *c)
{
    return eval_arg(c, -1);
}

/* --- Hardmax ---------------------------------------------------------------------------------- */

static tacit_status hardmax_infer(op_infer *c)
{
    int32_t axis;
    TRY(op_check_class(c, 0, OP_FLOAT));
    TRY(ir_axis(ir_attr_int(c->node, "axis", -1), c->in[0]->shape.rank, &axis, c->err));
    return op_infer_same(c);
}

static tacit_status hardmax_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    op_split_axis s;
    TRY(op_split_at(&x->shape, ir_attr_int(c->node, "axis", -1), &s, c->err));
    memset(y->data, 0, y->bytes);
    for (int64_t o = 0; s.size && o < s.outer; o++)
        for (int64_t i = 0; i < s.inner; i++) {
            int64_t at = o * s.size * s.inner + i;
            int64_t k = find_extreme(x, at, s.inner, s.size, 1, false);
            ir_store_f64(y->dtype, y->data, at + k * s.inner, 1);
        }
    return TACIT_OK;
}

/* --- TopK ------------------------------------------------------------------------------------- */

static tacit_status top_k_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_check_class(c, 1, OP_INT));
    const ir_type *x = c->in[0];
    int32_t axis;
    int64_t k = IR_DIM_UNKNOWN;
    TRY(ir_axis(ir_attr_int(c->node, "axis", -1), x->shape.rank, &axis, c->err));
    if (c->value[1]) {
        TRY(op_read_int(c->value[1], &k, c->err));
        if (k < 0 || k > x->shape.dims[axis])
            return error_set(c->err, TACIT_ERR_VALUE, "k is %lld, the axis has %lld elements",
                             (long long)k, (long long)x->shape.dims[axis]);
    }
    for (uint32_t i = 0; i < c->n_out && i < 2; i++) {
        c->out[i] = *x;
        c->out[i].dtype = i ? TACIT_I64 : x->dtype;
        c->out[i].shape.dims[axis] = k;
    }
    return TACIT_OK;
}

typedef struct top_k_run {
    const ir_tensor *x;
    int64_t at, step;
    int sign; /* -1: largest first */
} top_k_run;

/* Equal values keep the order of their indices. */
static int top_k_compare(const void *context, int64_t a, int64_t b)
{
    const top_k_run *r = context;
    int order = r->sign * op_compare(r->x, r->at + a * r->step, r->at + b * r->step);
    return order ? order : (a > b) - (a < b);
}

static tacit_status top_k_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *values = op_out(c, 0), *indices = op_out(c, 1);
    op_split_axis s;
    int64_t k;
    TRY(op_read_int(op_in(c, 1), &k, c->err));
    TRY(op_split_at(&x->shape, ir_attr_int(c->node, "axis", -1), &s, c->err));
    if (k < 0 || k > s.size)
        return error_set(c->err, TACIT_ERR_VALUE, "k is %lld, the axis has %lld elements",
                         (long long)k, (long long)s.size);
    top_k_run run = {.x = x, .step = s.inner};
    run.sign = ir_attr_int(c->node, "largest", 1) ? -1 : 1;
    int64_t *items = op_eval_scratch(c, (size_t)s.size * 16 + 1);
    if (!items)
        return error_memory(c->err, "sorting");
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.inner; i++) {
            run.at = o * s.size * s.inner + i;
            for (int64_t j = 0; j < s.size; j++)
                items[j] = j;
            op_sort(items, items + s.size, s.size, top_k_compare, &run);
            for (int64_t j = 0; j < k; j++) {
                int64_t to = (o * k + j) * s.inner + i;
                if (values)
                    ir_copy_element(x->dtype, values->data, to, x->data,
                                    run.at + items[j] * s.inner);
                if (indices)
                    ((int64_t *)indices->data)[to] = items[j];
            }
        }
    return TACIT_OK;
}

/* --- CumSum, CumProd -------------------------------------------------------------------------- */

static tacit_status cumulate_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_REAL));
    TRY(op_check_class(c, 1, OP_INT));
    if (c->value[1]) {
        int64_t axis;
        int32_t unused;
        TRY(op_read_int(c->value[1], &axis, c->err));
        TRY(ir_axis(axis, c->in[0]->shape.rank, &unused, c->err));
    }
    return op_infer_same(c);
}

/* One run in the order of its walk: `at` is the first element visited, `step` may be negative. */
static void cumulate_run(const ir_tensor *x, ir_tensor *y, int64_t at, int64_t step, int64_t n,
                         bool product, bool exclusive)
{
    tacit_dtype t = x->dtype;
    double f = product;
    uint64_t u = product;
    for (int64_t i = 0; i < n; i++, at += step) {
        if (ir_dtype_is_float(t)) {
            double v = ir_load_f64(t, x->data, at), next = product ? f * v : f + v;
            ir_store_f64(t, y->data, at, exclusive ? f : next);
            f = next;
        } else {
            uint64_t v = (uint64_t)ir_load_i64(t, x->data, at), next = product ? u * v : u + v;
            ir_store_i64(t, y->data, at, (int64_t)(exclusive ? u : next));
            u = next;
        }
    }
}

static tacit_status eval_cumulate(op_eval *c, bool product)
{
    const ir_tensor *x = op_in(c, 0);
    op_split_axis s;
    int64_t axis;
    bool exclusive = ir_attr_int(c->node, "exclusive", 0) != 0;
    bool reverse = ir_attr_int(c->node, "reverse", 0) != 0;
    TRY(op_read_int(op_in(c, 1), &axis, c->err));
    TRY(op_split_at(&x->shape, axis, &s, c->err));
    for (int64_t o = 0; o < s.outer; o++)
        for (int64_t i = 0; i < s.inner; i++) {
            int64_t at = o * s.size * s.inner + i;
            cumulate_run(x, op_out(c, 0), reverse ? at + (s.size - 1) * s.inner : at,
                         reverse ? -s.inner : s.inner, s.size, product, exclusive);
        }
    return TACIT_OK;
}

static tacit_status cum_sum_eval(op_eval *c)
{
    return eval_cumulate(c, false);
}
static tacit_status cum_prod_eval(op_eval *c)
{
    return eval_cumulate(c, true);
}

#define AXIS_ROW(NAME, IN, OUT, FLAGS, INFER, EVAL, INPLACE, LOWER, ...)                           \
    {                                                                                              \
        .name = NAME, .min_in = IN, .max_in = IN, .min_out = 1, .max_out = OUT, .flags = FLAGS,    \
        .infer = INFER, .eval = EVAL, .inplace = INPLACE, .lower = LOWER, __VA_ARGS__              \
    }

const op_def op_rows_axis[] = {
    AXIS_ROW("ArgMax", 1, 1, OP_NOT_DIFFERENTIABLE, arg_infer, arg_max_eval, 0, op_lower_argmax,
             .range = op_bounds_arg),
    AXIS_ROW("ArgMin", 1, 1, OP_NOT_DIFFERENTIABLE, arg_infer, arg_min_eval, 0, op_lower_argmax,
             .range = op_bounds_arg),
    AXIS_ROW("Hardmax", 1, 1, OP_NOT_DIFFERENTIABLE, hardmax_infer, hardmax_eval, 0,
             op_lower_hardmax),
    AXIS_ROW("TopK", 2, 2, 0, top_k_infer, top_k_eval, 0, op_lower_top_k, .vjp = op_vjp_top_k),
    AXIS_ROW("CumSum", 2, 1, 0, cumulate_infer, cum_sum_eval, 1, op_lower_cumulate,
             .vjp = op_vjp_cumsum),
    AXIS_ROW("CumProd", 2, 1, 0, cumulate_infer, cum_prod_eval, 1, op_lower_cumulate,
             .vjp = op_vjp_cum_prod),
    {0},
};
