/* SPDX-License-Identifier: Apache-2.0
 * Normalisations: by batch, instance, group, layer, root mean square, Lp, and across channels. */
#include <math.h>
#include <string.h>

#include "op/build.h"
#include "op/loop.h"
#include "op/lowerings.h"
#include "op/range.h"
#include "op/values.h"
#include "op/vjp.h"

typedef struct moments {
    double mean, variance;
} moments;

/* Over x[outer·outer_step + inner], inner < length: a channel of a batch when outer > 1. */
static moments moments_of(const double *x, int64_t outer, int64_t outer_step, int64_t length)
{
    double sum = 0, squares = 0, n = (double)(outer * length);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < length; i++)
            sum += x[o * outer_step + i];
    double mean = sum / n;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < length; i++) {
            double d = x[o * outer_step + i] - mean;
            squares += d * d;
        }
    return (moments){mean, squares / n};
}

static int64_t product(const int64_t *dims, int32_t n)
{
    int64_t p = 1;
    for (int32_t i = 0; i < n; i++)
        p *= dims[i];
    return p;
}

/* --- BatchNormalization ----------------------------------------------------------------------- */

static tacit_status batch_norm_infer(op_infer *c)
{
    const ir_type *x = c->in[0];
    int64_t channels = x->shape.rank > 1 ? x->shape.dims[1] : 1;
    bool training = ir_attr_int(c->node, "training_mode", 0) != 0;
    TRY(op_need_float(c, 0));
    for (uint32_t i = 1; i < 5; i++)
        TRY(op_need_shape(c, i, 1, &channels));
    if (c->n_out > 1 && !training)
        return error_set(c->err, TACIT_ERR_GRAPH, "running statistics need training_mode=1");
    op_set_out(c, 0, x->dtype, &x->shape);
    op_set_out_dims(c, 1, c->in[3]->dtype, 1, &channels);
    op_set_out_dims(c, 2, c->in[4]->dtype, 1, &channels);
    return TACIT_OK;
}

static tacit_status batch_norm_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    bool training = ir_attr_int(c->node, "training_mode", 0) != 0;
    double epsilon = ir_attr_float(c->node, "epsilon", 1e-5);
    double momentum = ir_attr_float(c->node, "momentum", 0.9), *x, *scale, *bias, *mean, *variance;
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &scale));
    TRY(op_input_f64(c, 2, &bias));
    TRY(op_input_f64(c, 3, &mean));
    TRY(op_input_f64(c, 4, &variance));
    int64_t batch = s->rank ? s->dims[0] : 1, channels = s->rank > 1 ? s->dims[1] : 1;
    int64_t size = s->rank > 2 ? product(s->dims + 2, s->rank - 2) : 1;
    for (int64_t ch = 0; ch < channels; ch++) {
        moments m = {mean[ch], variance[ch]};
        if (training) {
            m = moments_of(x + ch * size, batch, channels * size, size);
            mean[ch] = mean[ch] * momentum + m.mean * (1 - momentum);
            variance[ch] = variance[ch] * momentum + m.variance * (1 - momentum);
        }
        double f = scale[ch] / sqrt(m.variance + epsilon);
        for (int64_t n = 0; n < batch; n++)
            for (int64_t i = 0; i < size; i++) {
                double *v = x + (n * channels + ch) * size + i;
                *v = (*v - m.mean) * f + bias[ch];
            }
    }
    op_output_f64(c, 0, x);
    op_output_f64(c, 1, mean);
    op_output_f64(c, 2, variance);
    return TACIT_OK;
}

/* --- norms over the trailing axes: LayerNormalization, RMSNormalization ----------------------- */

static tacit_dtype stash_type(const ir_node *node)
{
    return ir_dtype_from_onnx(ir_attr_int(node, "stash_type", 1));
}

static tacit_status trailing_norm_infer(op_infer *c)
{
    const ir_type *x = c->in[0];
    int32_t axis;
    TRY(op_need_float(c, 0));
    TRY(ir_axis(ir_attr_int(c->node, "axis", -1), x->shape.rank, &axis, c->err));
    for (uint32_t i = 1; i < c->n_in; i++) {
        ir_shape both;
        if (!c->in[i])
            continue;
        TRY(ir_shape_broadcast(&x->shape, &c->in[i]->shape, &both, c->err));
        if (!ir_shape_equal(&both, &x->shape))
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u does not broadcast to the data", i);
    }
    ir_shape kept = x->shape;
    for (int32_t i = axis; i < kept.rank; i++)
        kept.dims[i] = 1;
    op_set_out(c, 0, x->dtype, &x->shape);
    op_set_out(c, 1, stash_type(c->node), &kept);
    op_set_out(c, 2, stash_type(c->node), &kept);
    return TACIT_OK;
}

/* x·scale + bias, both optional and broadcast. */
static void scale_and_shift(const ir_shape *s, double *x, const double *scale,
                            const ir_tensor *scale_t, const double *bias, const ir_tensor *bias_t)
{
    op_loop l;
    op_loop_begin(&l, s);
    op_loop_broadcast(&l, scale_t ? &scale_t->shape : s);
    op_loop_broadcast(&l, bias_t ? &bias_t->shape : s);
    for (; !op_loop_done(&l); op_loop_next(&l))
        x[l.linear] = x[l.linear] * (scale ? scale[l.at[0]] : 1) + (bias ? bias[l.at[1]] : 0);
}

static tacit_status trailing_norm_eval(op_eval *c, bool rms)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    double epsilon = ir_attr_float(c->node, "epsilon", 1e-5), *x, *scale, *bias, *mean, *inverse;
    int32_t axis;
    TRY(ir_axis(ir_attr_int(c->node, "axis", -1), s->rank, &axis, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &scale));
    TRY(op_input_f64(c, 2, &bias));
    int64_t rows = product(s->dims, axis), size = product(s->dims + axis, s->rank - axis);
    TRY(op_scratch_f64(c, rows, &mean));
    TRY(op_scratch_f64(c, rows, &inverse));
    for (int64_t r = 0; r < rows; r++) {
        double *row = x + r * size;
        moments m = moments_of(row, 1, 0, size);
        if (rms)
            m = (moments){0, m.variance + m.mean * m.mean};
        mean[r] = m.mean;
        inverse[r] = 1 / sqrt(m.variance + epsilon);
        for (int64_t i = 0; i < size; i++)
            row[i] = (row[i] - m.mean) * inverse[r];
    }
    scale_and_shift(s, x, scale, op_in(c, 1), bias, op_in(c, 2));
    op_output_f64(c, 0, x);
    op_output_f64(c, 1, mean);
    op_output_f64(c, 2, inverse);
    return TACIT_OK;
}

static tacit_status layer_norm_eval(op_eval *c)
{
    return trailing_norm_eval(c, false);
}
static tacit_status rms_norm_eval(op_eval *c)
{
    return trailing_norm_eval(c, true);
}

/* The function body of both, in the stash type. */
static tacit_status trailing_norm_decompose(ir_graph *g, ir_node *node, bool rms, tacit_error *err)
{
    ir_value *x = node->inputs[0];
    tacit_dtype dtype = x->type.dtype, wide = stash_type(node);
    int32_t axis, rank = x->type.shape.rank;
    int64_t axes[IR_MAX_RANK];
    TRY(ir_axis(ir_attr_int(node, "axis", -1), rank, &axis, err));
    for (int32_t i = axis; i < rank; i++)
        axes[i - axis] = i;
    bool alone = true; /* no statistics wanted, whose type the stash type is */
    for (uint32_t i = 1; i < node->n_outputs; i++)
        alone &= !node->outputs[i];
    if (alone && dtype == TACIT_F64) /* doubles stay doubles, as in the evaluator */
        wide = dtype;
    ir_value *xw = dtype == wide ? x : op_build_cast(g, x, wide), *d = xw, *mean = NULL;
    if (!rms) {
        mean = op_build_reduce(g, "ReduceMean", xw, rank - axis, axes);
        d = op_build2(g, "Sub", xw, mean);
    }
    ir_value *var = op_build_reduce(g, "ReduceMean", op_build2(g, "Mul", d, d), rank - axis, axes);
    ir_value *eps = op_build_scalar(g, wide, ir_attr_float(node, "epsilon", 1e-5));
    ir_value *dev = op_build1(g, "Sqrt", op_build2(g, "Add", var, eps));
    ir_value *inverse = op_build1(g, "Reciprocal", dev);
    ir_value *y = op_build2(g, "Mul", d, inverse);
    if (dtype != wide)
        y = op_build_cast(g, y, dtype);
    y = op_build2(g, "Mul", y, node->inputs[1]);
    if (node->n_inputs > 2 && node->inputs[2])
        y = op_build2(g, "Add", y, node->inputs[2]);
    TRY(op_build_finish(g, node, 0, y, err));
    if (!rms) {
        TRY(op_build_finish(g, node, 1, mean, err));
        TRY(op_build_finish(g, node, 2, inverse, err));
    }
    ir_node_kill(node);
    return TACIT_OK;
}

static tacit_status layer_norm_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    return trailing_norm_decompose(g, node, false, err);
}
static tacit_status rms_norm_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    return trailing_norm_decompose(g, node, true, err);
}

/* --- norms over channel groups: InstanceNormalization (one channel each), GroupNormalization ---
 */

static tacit_status group_norm_infer(op_infer *c)
{
    const ir_type *x = c->in[0];
    bool instance = strcmp(c->node->type, "InstanceNormalization") == 0;
    TRY(op_need_float(c, 0));
    if (x->shape.rank < 2)
        return error_set(c->err, TACIT_ERR_SHAPE, "the input needs a batch and a channel axis");
    int64_t channels = x->shape.dims[1];
    int64_t groups = instance ? channels : ir_attr_int(c->node, "num_groups", 0);
    if (channels && (groups < 1 || channels % groups))
        return error_set(c->err, TACIT_ERR_SHAPE, "%lld channels do not divide into %lld groups",
                         (long long)channels, (long long)groups);
    /* Opset 18 scaled by group, 21 by channel; both sizes are unambiguous. */
    int64_t size = instance || c->in[1]->shape.dims[0] != groups ? channels : groups;
    TRY(op_need_shape(c, 1, 1, &size));
    TRY(op_need_shape(c, 2, 1, &size));
    op_set_out(c, 0, x->dtype, &x->shape);
    return TACIT_OK;
}

static tacit_status group_norm_eval(op_eval *c)
{
    const ir_shape *s = &op_in(c, 0)->shape;
    bool instance = strcmp(c->node->type, "InstanceNormalization") == 0;
    int64_t channels = s->dims[1], size = product(s->dims + 2, s->rank - 2);
    int64_t groups = instance ? channels : ir_attr_int(c->node, "num_groups", 0);
    double epsilon = ir_attr_float(c->node, "epsilon", 1e-5), *x, *scale, *bias;
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &scale));
    TRY(op_input_f64(c, 2, &bias));
    int64_t per = channels ? channels / groups : 0;
    bool by_group = ir_tensor_count(op_in(c, 1)) != channels;
    for (int64_t i = 0; i < s->dims[0] * groups; i++) {
        double *row = x + i * per * size;
        moments m = moments_of(row, 1, 0, per * size);
        double f = 1 / sqrt(m.variance + epsilon);
        for (int64_t k = 0; k < per * size; k++) {
            int64_t ch = by_group ? i % groups : i % groups * per + k / size;
            row[k] = (row[k] - m.mean) * f * scale[ch] + bias[ch];
        }
    }
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

static tacit_status group_norm_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0];
    const ir_shape *s = &x->type.shape;
    bool instance = strcmp(node->type, "InstanceNormalization") == 0;
    int64_t groups = instance ? s->dims[1] : ir_attr_int(node, "num_groups", 1);
    int64_t channel[IR_MAX_RANK];
    ir_value *v = op_build_reshape(
        g, x, 3,
        (int64_t[]){s->dims[0], groups, s->dims[1] / groups * product(s->dims + 2, s->rank - 2)});
    /* tacit.Norm has kernels, and needs no scale. */
    ir_node *norm = v ? ir_node_new(g, "Norm", "tacit", NULL, 1, &v, 1, NULL) : NULL;
    if (!norm || !ir_attr_set_float(g, norm, "epsilon", ir_attr_float(node, "epsilon", 1e-5)))
        return error_memory(err, "decomposing a node");
    op_resolve(NULL, norm);
    ir_value *y = norm->outputs[0];
    bool by_group = node->inputs[1]->type.shape.dims[0] != s->dims[1];
    if (by_group) {
        int64_t column[3] = {1, groups, 1};
        y = op_build2(g, "Mul", y, op_build_reshape(g, node->inputs[1], 3, column));
        y = op_build2(g, "Add", y, op_build_reshape(g, node->inputs[2], 3, column));
    }
    y = op_build_reshape(g, y, s->rank, s->dims);
    for (int32_t i = 0; i < s->rank; i++)
        channel[i] = i == 1 ? s->dims[1] : 1;
    if (!by_group) {
        y = op_build2(g, "Mul", y, op_build_reshape(g, node->inputs[1], s->rank, channel));
        y = op_build2(g, "Add", y, op_build_reshape(g, node->inputs[2], s->rank, channel));
    }
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

const op_def op_rows_norm[] = {
    {.name = "BatchNormalization",
     .min_in = 5,
     .max_in = 5,
     .min_out = 1,
     .max_out = 3,
     .infer = batch_norm_infer,
     .eval = batch_norm_eval,
     .inplace = 1,
     .lower = op_lower_batch_norm,
     .vjp = op_vjp_batch_norm},
    {.name = "LayerNormalization",
     .min_in = 2,
     .max_in = 3,
     .min_out = 1,
     .max_out = 3,
     .infer = trailing_norm_infer,
     .eval = layer_norm_eval,
     .decompose = layer_norm_decompose,
     .inplace = 1,
     .lower = op_lower_layer_norm,
     .range = op_bounds_norm},
    {.name = "RMSNormalization",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = trailing_norm_infer,
     .eval = rms_norm_eval,
     .decompose = rms_norm_decompose,
     .inplace = 1,
     .lower = op_lower_layer_norm,
     .range = op_bounds_norm},
    {.name = "InstanceNormalization",
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = group_norm_infer,
     .eval = group_norm_eval,
     .decompose = group_norm_decompose,
     .inplace = 1},
    {.name = "GroupNormalization",
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = group_norm_infer,
     .eval = group_norm_eval,
     .decompose = group_norm_decompose,
     .inplace = 1},
    {0},
};
