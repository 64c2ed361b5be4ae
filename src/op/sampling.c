/* SPDX-License-Identifier: Apache-2.0 */
#include "op/sampling.h"

#include <math.h>

#include "op/elementwise.h"
#include "op/order.h"
#include "op/random.h"
#include "op/strip.h"

/* Larger first; equal ones keep their order. */
static int by_size(const void *context, int64_t a, int64_t b)
{
    const double *v = context;
    return v[a] > v[b] ? -1 : v[a] < v[b] ? 1 : (a > b) - (a < b);
}

static void sort_by_size(const double *v, int64_t n, int64_t *order)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    op_sort(order, order + n, n, by_size, v);
}

/* Ties at the cut all stay: which of them goes would be arbitrary. */
static void cut_top_k(double *v, int64_t n, int64_t k, int64_t *order)
{
    sort_by_size(v, n, order);
    double least = v[order[k - 1]];
    for (int64_t i = 0; i < n; i++)
        if (v[i] < least)
            v[i] = -INFINITY;
}

/* The shortest prefix whose mass reaches p, at least one entry. */
static void cut_top_p(double *v, int64_t n, double p, int64_t *order)
{
    sort_by_size(v, n, order);
    double mass = 0, kept = 0;
    for (int64_t i = 0; i < n; i++) {
        double *entry = &v[order[i]];
        if (i > 0 && mass >= p) {
            *entry = 0;
            continue;
        }
        mass += *entry;
        kept = mass;
    }
    for (int64_t i = 0; i < n; i++)
        v[i] /= kept;
}

bool op_sampler_weigh(const op_sampler *s, double *v, int64_t n, int64_t *order)
{
    double t = s->temperature > 1e-6 ? s->temperature : 1e-6, most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(v[i]))
            return false;
        v[i] /= t;
        most = v[i] > most ? v[i] : most;
    }
    if (most == -INFINITY)
        return false;
    if (s->top_k > 0 && s->top_k < n)
        cut_top_k(v, n, s->top_k, order);
    for (int64_t i = 0; i < n; i++) {
        v[i] = v[i] == most ? 1 : exp(v[i] - most); /* equal infinities have no difference */
        sum += v[i];
    }
    for (int64_t i = 0; i < n; i++)
        v[i] /= sum;
    if (s->top_p < 1)
        cut_top_p(v, n, s->top_p, order);
    return true;
}

int64_t op_sampler_pick(const double *p, int64_t n, double r)
{
    double sum = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += p[i];
        if (p[i] > 0)
            last = i;
        if (r < sum)
            return i;
    }
    return last; /* rounding left the sum just below r */
}

/* --- tacit.Sample ----------------------------------------------------------------------------- */

static tacit_status sample_infer(op_infer *c)
{
    TRY(op_check_class(c, 0, OP_FLOAT));
    const ir_shape *x = &c->in[0]->shape;
    if (x->rank < 1 || x->dims[x->rank - 1] < 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "logits need a last axis with entries");
    tacit_dtype dtype = ir_dtype_from_onnx(ir_attr_int(c->node, "dtype", 7));
    if (!ir_dtype_is_int(dtype) && !ir_dtype_is_float(dtype))
        return error_set(c->err, TACIT_ERR_TYPE, "dtype must be a real type");
    int64_t one = 1;
    c->out[0] =
        x->rank == 1 ? ir_type_tensor(dtype, 1, &one) : ir_type_tensor(dtype, x->rank - 1, x->dims);
    return TACIT_OK;
}

static tacit_status sample_eval(op_eval *c)
{
    const ir_tensor *x = op_in(c, 0);
    ir_tensor *y = op_out(c, 0);
    int64_t n = x->shape.dims[x->shape.rank - 1], rows = ir_tensor_count(y);
    op_sampler s = {.temperature = ir_attr_float(c->node, "temperature", 1),
                    .top_k = ir_attr_int(c->node, "top_k", 0),
                    .top_p = ir_attr_float(c->node, "top_p", 1)};
    philox stream = op_random_stream(c);
    double *v = op_eval_scratch(c, (size_t)n * sizeof *v);
    int64_t *order = op_eval_scratch(c, (size_t)n * 2 * sizeof *order);
    if (!v || !order)
        return error_memory(c->err, "Sample");
    if (isnan(s.temperature) || isnan(s.top_p) || s.top_k < 0)
        return error_set(c->err, TACIT_ERR_VALUE, "temperature, top_k or top_p makes no sense");
    for (int64_t row = 0; row < rows; row++) {
        op_strip_load_f64(x->dtype, x->data, row * n, 1, n, v);
        if (!op_sampler_weigh(&s, v, n, order))
            return error_set(c->err, TACIT_ERR_VALUE, "row %lld has a NaN or nothing to choose",
                             (long long)row);
        int64_t token = op_sampler_pick(v, n, philox_uniform(&stream, (uint64_t)row));
        ir_store_i64(y->dtype, y->data, row, token);
    }
    return TACIT_OK;
}

const op_def op_rows_sampling[] = {
    {.name = "Sample",
     .domain = "tacit",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_RANDOM | OP_NOT_DIFFERENTIABLE,
     .infer = sample_infer,
     .eval = sample_eval},
    {0},
};
