/* SPDX-License-Identifier: Apache-2.0
 * Normalisations without parameters: softmaxes, Lp, mean-variance, local response. */
#include <math.h>
#include <string.h>

#include "op/build.h"
#include "op/loop.h"
#include "op/lowerings.h"
#include "op/range.h"
#include "op/values.h"
#include "op/vjp.h"

/* A tensor seen as [outer, length, inner] around one axis. */
typedef struct axis_view {
    int64_t outer, length, inner;
} axis_view;

static tacit_status view_axis(const ir_node *node, int64_t fallback, const ir_shape *s,
                              axis_view *v, tacit_error *err)
{
    int32_t axis;
    *v = (axis_view){1, 1, 1};
    if (s->rank == 0) /* a scalar normalises to itself */
        return TACIT_OK;
    TRY(ir_axis(ir_attr_int(node, "axis", fallback), s->rank, &axis, err));
    v->length = s->dims[axis];
    for (int32_t i = 0; i < axis; i++)
        v->outer *= s->dims[i];
    for (int32_t i = axis + 1; i < s->rank; i++)
        v->inner *= s->dims[i];
    return TACIT_OK;
}

static tacit_status axis_infer(op_infer *c)
{
    axis_view v;
    TRY(op_need_float(c, 0));
    TRY(view_axis(c->node, -1, &c->in[0]->shape, &v, c->err));
    return op_infer_same(c);
}

typedef void line_fn(double *x, int64_t n, int64_t step, int64_t power);

static tacit_status eval_lines(op_eval *c, line_fn *line, int64_t power)
{
    axis_view v;
    double *x;
    TRY(view_axis(c->node, -1, &op_in(c, 0)->shape, &v, c->err));
    TRY(op_input_f64(c, 0, &x));
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t i = 0; i < v.inner; i++)
            line(x + o * v.length * v.inner + i, v.length, v.inner, power);
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

static double line_max(const double *x, int64_t n, int64_t step)
{
    double top = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        top = x[i * step] > top ? x[i * step] : top;
    return top;
}

static void softmax_line(double *x, int64_t n, int64_t step, int64_t power)
{
    (void)power;
    double top = line_max(x, n, step), sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i * step] = exp(x[i * step] - top);
    for (int64_t i = 0; i < n; i++)
        x[i * step] /= sum;
}

static void log_softmax_line(double *x, int64_t n, int64_t step, int64_t power)
{
    (void)power;
    double top = line_max(x, n, step), sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i * step] - top);
    for (int64_t i = 0; i < n; i++)
        x[i * step] = x[i * step] - top - log(sum);
}

static void lp_line(double *x, int64_t n, int64_t step, int64_t power)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += power == 1 ? fabs(x[i * step]) : x[i * step] * x[i * step];
    double norm = power == 1 ? sum : sqrt(sum);
    for (int64_t i = 0; i < n; i++) /* a zero vector stays zero */
        x[i * step] = norm == 0 ? 0 : x[i * step] / norm;
}

static tacit_status softmax_eval(op_eval *c)
{
    return eval_lines(c, softmax_line, 0);
}

static tacit_status log_softmax_eval(op_eval *c)
{
    return eval_lines(c, log_softmax_line, 0);
}

static tacit_status lp_norm_eval(op_eval *c)
{
    int64_t p = ir_attr_int(c->node, "p", 2);
    if (p != 1 && p != 2)
        return error_set(c->err, TACIT_ERR_VALUE, "p is %lld, expected 1 or 2", (long long)p);
    return eval_lines(c, lp_line, p);
}

static tacit_status softmax_decompose_as(ir_graph *g, ir_node *node, bool log, tacit_error *err)
{
    ir_value *x = node->inputs[0];
    int64_t axis = ir_attr_int(node, "axis", -1);
    ir_value *d = op_build2(g, "Sub", x, op_build_reduce(g, "ReduceMax", x, 1, &axis));
    ir_value *e = op_build1(g, "Exp", d);
    ir_value *sum = op_build_reduce(g, "ReduceSum", e, 1, &axis);
    ir_value *y =
        log ? op_build2(g, "Sub", d, op_build1(g, "Log", sum)) : op_build2(g, "Div", e, sum);
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

static tacit_status softmax_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    return softmax_decompose_as(g, node, false, err);
}
static tacit_status log_softmax_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    return softmax_decompose_as(g, node, true, err);
}

/* --- MeanVarianceNormalization ---------------------------------------------------------------- */

static tacit_status mvn_axes(const ir_node *node, const ir_shape *s, bool *reduced,
                             tacit_error *err)
{
    uint32_t count;
    const int64_t *axes = ir_attr_ints(node, "axes", &count), usual[] = {0, 2, 3};
    memset(reduced, 0, IR_MAX_RANK);
    if (!axes) {
        axes = usual;
        count = 3;
    }
    for (uint32_t i = 0; i < count; i++) {
        int32_t axis;
        TRY(ir_axis(axes[i], s->rank, &axis, err));
        reduced[axis] = true;
    }
    return TACIT_OK;
}

static tacit_status mvn_infer(op_infer *c)
{
    bool reduced[IR_MAX_RANK];
    TRY(op_need_float(c, 0));
    TRY(mvn_axes(c->node, &c->in[0]->shape, reduced, c->err));
    return op_infer_same(c);
}

static tacit_status mvn_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    bool reduced[IR_MAX_RANK];
    double *x, *sum, *squares;
    TRY(mvn_axes(c->node, s, reduced, c->err));
    TRY(op_input_f64(c, 0, &x));
    ir_shape kept = *s;
    for (int32_t i = 0; i < s->rank; i++)
        kept.dims[i] = reduced[i] ? 1 : s->dims[i];
    int64_t cells = ir_shape_size(&kept), count = ir_shape_size(s);
    int64_t per_cell = cells ? count / cells : 1;
    double n = (double)per_cell;
    TRY(op_scratch_f64(c, cells, &sum));
    TRY(op_scratch_f64(c, cells, &squares));
    for (int pass = 0; pass < 3; pass++) {
        op_loop l;
        op_loop_begin(&l, s);
        op_loop_broadcast(&l, &kept);
        for (; !op_loop_done(&l); op_loop_next(&l)) {
            double *v = &x[l.linear], d = *v - sum[l.at[0]] / n;
            if (pass == 0)
                sum[l.at[0]] += *v;
            else if (pass == 1)
                squares[l.at[0]] += d * d;
            else /* the function body adds the epsilon outside the root */
                *v = d / (sqrt(squares[l.at[0]] / n) + 1e-9);
        }
    }
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

static tacit_status mvn_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0];
    bool reduced[IR_MAX_RANK];
    int64_t axes[IR_MAX_RANK], count = 0;
    TRY(mvn_axes(node, &x->type.shape, reduced, err));
    for (int32_t i = 0; i < x->type.shape.rank; i++)
        if (reduced[i])
            axes[count++] = i;
    if (count == 0)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "no axes: every element is alone");
    ir_value *d = op_build2(g, "Sub", x, op_build_reduce(g, "ReduceMean", x, count, axes));
    ir_value *var = op_build_reduce(g, "ReduceMean", op_build2(g, "Mul", d, d), count, axes);
    ir_value *eps = op_build_scalar(g, x->type.dtype, 1e-9);
    ir_value *y = op_build2(g, "Div", d, op_build2(g, "Add", op_build1(g, "Sqrt", var), eps));
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- LRN -------------------------------------------------------------------------------------- */

static tacit_status lrn_infer(op_infer *c)
{
    TRY(op_need_float(c, 0));
    if (c->in[0]->shape.rank < 2 || ir_attr_int(c->node, "size", 0) < 1)
        return error_set(c->err, TACIT_ERR_VALUE, "needs a channel axis and a positive size");
    return op_infer_same(c);
}

static tacit_status lrn_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    double alpha = ir_attr_float(c->node, "alpha", 1e-4),
           beta = ir_attr_float(c->node, "beta", 0.75);
    double bias = ir_attr_float(c->node, "bias", 1), *x, *y;
    int64_t size = ir_attr_int(c->node, "size", 1), channels = s->dims[1], inner = 1;
    for (int32_t i = 2; i < s->rank; i++)
        inner *= s->dims[i];
    TRY(op_input_f64(c, 0, &x));
    TRY(op_scratch_f64(c, ir_shape_size(s), &y));
    int64_t below = (size - 1) / 2, above = size - 1 - below;
    for (int64_t at = 0; at < ir_shape_size(s); at++) {
        int64_t ch = at / inner % channels;
        int64_t from = ch < below ? -ch : -below;
        int64_t to = channels - 1 - ch < above ? channels - 1 - ch : above;
        double sum = 0;
        for (int64_t k = from; k <= to; k++)
            sum += x[at + k * inner] * x[at + k * inner];
        y[at] = x[at] / pow(bias + alpha / (double)size * sum, beta);
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

#define ROW(op, infer_rule, eval_rule, decompose_rule, lower_rule, ...)                            \
    {                                                                                              \
        .name = op, .min_in = 1, .max_in = 1, .min_out = 1, .max_out = 1, .infer = infer_rule,     \
        .eval = eval_rule, .decompose = decompose_rule, .inplace = 1, .lower = lower_rule,         \
        __VA_ARGS__                                                                                \
    }

const op_def op_rows_norm_other[] = {
    ROW("Softmax", axis_infer, softmax_eval, softmax_decompose, op_lower_softmax,
        .vjp = op_vjp_softmax, .batch = op_batch_axis, .range = op_bounds_softmax),
    ROW("LogSoftmax", axis_infer, log_softmax_eval, log_softmax_decompose, op_lower_softmax,
        .vjp = op_vjp_log_softmax, .batch = op_batch_axis),
    ROW("LpNormalization", axis_infer, lp_norm_eval, NULL, op_lower_lp_norm, .vjp = op_vjp_lp_norm,
        .batch = op_batch_axis),
    ROW("MeanVarianceNormalization", mvn_infer, mvn_eval, mvn_decompose, NULL),
    ROW("LRN", lrn_infer, lrn_eval, NULL, op_lower_lrn, .spell = op_spell_lrn),
    {0},
};
