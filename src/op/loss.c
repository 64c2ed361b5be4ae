/* SPDX-License-Identifier: Apache-2.0
 * Losses over class scores, and the optimiser steps of ai.onnx.preview.training. */
#include <math.h>
#include <string.h>

#include "op/values.h"
#include "op/vjp.h"

/* --- NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss ----------------------------------------
 */

typedef enum reduction { REDUCE_NONE, REDUCE_SUM, REDUCE_MEAN } reduction;

static tacit_status read_reduction(const ir_node *node, reduction *r, tacit_error *err)
{
    const char *name = ir_attr_string(node, "reduction", "mean");
    static const char *const names[] = {"none", "sum", "mean"};
    for (int i = 0; i < 3; i++)
        if (strcmp(name, names[i]) == 0) {
            *r = (reduction)i;
            return TACIT_OK;
        }
    return error_set(err, TACIT_ERR_VALUE, "unknown reduction '%s'", name);
}

static tacit_status loss_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape, *t = &c->in[1]->shape;
    char xt[IR_SHAPE_TEXT], tt[IR_SHAPE_TEXT];
    reduction r;
    TRY(op_need_float(c, 0));
    TRY(read_reduction(c->node, &r, c->err));
    bool fits = x->rank >= 2 && t->rank == x->rank - 1 && x->dims[0] == t->dims[0];
    for (int32_t i = 1; fits && i < t->rank; i++)
        fits = t->dims[i] == x->dims[i + 1];
    if (!fits || !ir_dtype_is_int(c->in[1]->dtype))
        return error_set(c->err, TACIT_ERR_SHAPE, "scores %s and labels %s do not fit",
                         ir_shape_text(x, xt), ir_shape_text(t, tt));
    TRY(op_need_shape(c, 2, 1, &x->dims[1]));
    op_set_out_dims(c, 0, c->in[0]->dtype, r == REDUCE_NONE ? t->rank : 0, t->dims);
    op_set_out(c, 1, c->in[0]->dtype, x);
    return TACIT_OK;
}

/* `x` holds log-probabilities [N, C, inner]. */
static tacit_status reduce_loss(op_eval *c, const double *x)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    int64_t classes = s->dims[1], samples = ir_tensor_count(op_in(c, 1)), *labels;
    int64_t inner = s->dims[0] ? samples / s->dims[0] : 1;
    const ir_attr *ignore = ir_attr_find(c->node, "ignore_index");
    double *weight, *loss, sum = 0, total = 0;
    reduction r;
    TRY(read_reduction(c->node, &r, c->err));
    TRY(op_input_i64(c, 1, &labels));
    TRY(op_input_f64(c, 2, &weight));
    TRY(op_scratch_f64(c, samples, &loss));
    for (int64_t i = 0; i < samples; i++) {
        int64_t label = labels[i];
        if (ignore && label == ignore->i)
            continue;
        if (label < 0 || label >= classes)
            return error_set(c->err, TACIT_ERR_VALUE, "label %lld is outside 0…%lld",
                             (long long)label, (long long)classes - 1);
        double w = weight ? weight[label] : 1;
        loss[i] = -x[(i / inner * classes + label) * inner + i % inner] * w;
        sum += loss[i];
        total += w;
    }
    if (r != REDUCE_NONE)
        loss[0] = r == REDUCE_MEAN ? sum / total : sum;
    op_output_f64(c, 0, loss);
    return TACIT_OK;
}

static tacit_status nll_eval(op_eval *c)
{
    double *x;
    TRY(op_input_f64(c, 0, &x));
    return reduce_loss(c, x);
}

static tacit_status cross_entropy_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    int64_t classes = s->dims[1], inner = 1;
    double *x;
    TRY(op_input_f64(c, 0, &x));
    for (int32_t i = 2; i < s->rank; i++)
        inner *= s->dims[i];
    for (int64_t i = 0; i < s->dims[0] * inner; i++) {
        double *line = x + i / inner * classes * inner + i % inner, top = -INFINITY, sum = 0;
        for (int64_t k = 0; k < classes; k++)
            top = fmax(top, line[k * inner]);
        for (int64_t k = 0; k < classes; k++)
            sum += exp(line[k * inner] - top);
        for (int64_t k = 0; k < classes; k++)
            line[k * inner] -= top + log(sum);
    }
    op_output_f64(c, 1, x);
    return reduce_loss(c, x);
}

/* --- optimiser steps: inputs R, T, then X…, G…, state… -----------------------------------------
 */

static tacit_status step_infer(op_infer *c, uint32_t kinds)
{
    uint32_t n = c->n_in < 2 ? 0 : (c->n_in - 2) / kinds;
    TRY(op_need_float(c, 0));
    if (n == 0 || n * kinds + 2 != c->n_in || c->n_out > n * (kinds - 1))
        return error_set(c->err, TACIT_ERR_GRAPH, "%u inputs do not make groups of %u", c->n_in,
                         kinds);
    for (uint32_t i = 0; i < 2; i++)
        if (ir_shape_size(&c->in[i]->shape) != 1)
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u must have one element", i);
    for (uint32_t i = 0; i < n * kinds; i++) {
        const ir_type *t = op_in_type(c, 2 + i), *x = op_in_type(c, 2 + i % n);
        if (!t || !ir_type_equal(t, x))
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u differs from its variable", 2 + i);
    }
    for (uint32_t i = 0; i < c->n_out; i++)
        c->out[i] = *c->in[2 + i % n];
    return TACIT_OK;
}

static tacit_status adagrad_infer(op_infer *c)
{
    return step_infer(c, 3);
}
static tacit_status adam_infer(op_infer *c)
{
    return step_infer(c, 4);
}

typedef struct step_scalars {
    double rate, count;
    uint32_t n; /* variables */
} step_scalars;

static step_scalars step_read(const op_eval *c, uint32_t kinds)
{
    const ir_tensor *r = op_in(c, 0), *t = op_in(c, 1);
    return (step_scalars){ir_load_f64(r->dtype, r->data, 0), ir_load_f64(t->dtype, t->data, 0),
                          (c->n_in - 2) / kinds};
}

static tacit_status adagrad_eval(op_eval *c)
{
    step_scalars s = step_read(c, 3);
    double decay = ir_attr_float(c->node, "decay_factor", 0);
    double epsilon = ir_attr_float(c->node, "epsilon", 1e-6);
    double norm = ir_attr_float(c->node, "norm_coefficient", 0);
    double rate = s.rate / (1 + s.count * decay);
    for (uint32_t v = 0; v < s.n; v++) {
        double *x, *g, *h;
        TRY(op_input_f64(c, 2 + v, &x));
        TRY(op_input_f64(c, 2 + s.n + v, &g));
        TRY(op_input_f64(c, 2 + 2 * s.n + v, &h));
        for (int64_t i = 0; i < ir_tensor_count(op_in(c, 2 + v)); i++) {
            double gradient = norm * x[i] + g[i];
            h[i] += gradient * gradient;
            x[i] -= rate * gradient / (sqrt(h[i]) + epsilon);
        }
        op_output_f64(c, v, x);
        op_output_f64(c, s.n + v, h);
    }
    return TACIT_OK;
}

static tacit_status momentum_eval(op_eval *c)
{
    step_scalars s = step_read(c, 3);
    double alpha = ir_attr_float(c->node, "alpha", 0), beta = ir_attr_float(c->node, "beta", 0);
    double norm = ir_attr_float(c->node, "norm_coefficient", 0);
    bool nesterov = strcmp(ir_attr_string(c->node, "mode", "standard"), "nesterov") == 0;
    double factor = s.count > 0 ? beta : 1; /* the first step takes the whole gradient */
    for (uint32_t v = 0; v < s.n; v++) {
        double *x, *g, *m;
        TRY(op_input_f64(c, 2 + v, &x));
        TRY(op_input_f64(c, 2 + s.n + v, &g));
        TRY(op_input_f64(c, 2 + 2 * s.n + v, &m));
        for (int64_t i = 0; i < ir_tensor_count(op_in(c, 2 + v)); i++) {
            double gradient = norm * x[i] + g[i];
            m[i] = alpha * m[i] + factor * gradient;
            x[i] -= s.rate * (nesterov ? gradient + alpha * m[i] : m[i]);
        }
        op_output_f64(c, v, x);
        op_output_f64(c, s.n + v, m);
    }
    return TACIT_OK;
}

static tacit_status adam_eval(op_eval *c)
{
    step_scalars s = step_read(c, 4);
    double alpha = ir_attr_float(c->node, "alpha", 0.9),
           beta = ir_attr_float(c->node, "beta", 0.999);
    double epsilon = ir_attr_float(c->node, "epsilon", 1e-6);
    double norm = ir_attr_float(c->node, "norm_coefficient", 0);
    double after = ir_attr_float(c->node, "norm_coefficient_post", 0), rate = s.rate;
    if (s.count > 0)
        rate *= sqrt(1 - pow(beta, s.count)) / (1 - pow(alpha, s.count));
    for (uint32_t v = 0; v < s.n; v++) {
        double *x, *g, *m, *h;
        TRY(op_input_f64(c, 2 + v, &x));
        TRY(op_input_f64(c, 2 + s.n + v, &g));
        TRY(op_input_f64(c, 2 + 2 * s.n + v, &m));
        TRY(op_input_f64(c, 2 + 3 * s.n + v, &h));
        for (int64_t i = 0; i < ir_tensor_count(op_in(c, 2 + v)); i++) {
            double gradient = norm * x[i] + g[i];
            m[i] = alpha * m[i] + (1 - alpha) * gradient;
            h[i] = beta * h[i] + (1 - beta) * gradient * gradient;
            x[i] = (1 - after) * (x[i] - rate * m[i] / (sqrt(h[i]) + epsilon));
        }
        op_output_f64(c, v, x);
        op_output_f64(c, s.n + v, m);
        op_output_f64(c, 2 * s.n + v, h);
    }
    return TACIT_OK;
}

/* --- Gradient: has no value of its own; compiling replaces it (diff_gradient_nodes)
 * --------------- */

static tacit_status gradient_infer(op_infer *c)
{
    for (uint32_t i = 0; i < c->n_out; i++) {
        if (i >= c->n_in)
            return error_set(c->err, TACIT_ERR_GRAPH, "%u outputs of %u inputs", c->n_out, c->n_in);
        c->out[i] = *c->in[i];
    }
    return TACIT_OK;
}

static const char training[] = "ai.onnx.preview.training";

const op_def op_rows_loss[] = {
    {.name = "NegativeLogLikelihoodLoss",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = loss_infer,
     .eval = nll_eval,
     .vjp = op_vjp_nll},
    {.name = "SoftmaxCrossEntropyLoss",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 2,
     .infer = loss_infer,
     .eval = cross_entropy_eval,
     .vjp = op_vjp_cross_entropy},
    {.name = "Adagrad",
     .domain = training,
     .min_in = 5,
     .max_in = -1,
     .min_out = 2,
     .max_out = -1,
     .infer = adagrad_infer,
     .eval = adagrad_eval},
    {.name = "Momentum",
     .domain = training,
     .min_in = 5,
     .max_in = -1,
     .min_out = 2,
     .max_out = -1,
     .infer = adagrad_infer,
     .eval = momentum_eval},
    {.name = "Adam",
     .domain = training,
     .min_in = 6,
     .max_in = -1,
     .min_out = 3,
     .max_out = -1,
     .infer = adam_infer,
     .eval = adam_eval},
    {.name = "Gradient",
     .domain = training,
     .min_in = 1,
     .max_in = -1,
     .min_out = 1,
     .max_out = -1,
     .infer = gradient_infer},
    {0},
};
