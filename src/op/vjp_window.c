/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of convolution, pooling and batch normalisation. */
#include <math.h>
#include <string.h>

#include "op/conv.h"
#include "op/spell.h"
#include "op/vjp.h"

/* Sets strides, dilations, pads and group of an open Conv or ConvTranspose; the last one infers. */
static ir_value *conv_attrs(op_diff *c, ir_value *v, int32_t rank, const int64_t *stride,
                            const int64_t *dilation, const int64_t *pads, int64_t group)
{
    if (!v)
        return NULL;
    ir_node *n = v->producer;
    uint32_t r = (uint32_t)rank;
    if (!ir_attr_set_ints(c->graph, n, "strides", r, stride) ||
        !ir_attr_set_ints(c->graph, n, "dilations", r, dilation) ||
        !ir_attr_set_ints(c->graph, n, "pads", 2 * r, pads)) {
        c->status = error_memory(c->err, "a gradient graph");
        return NULL;
    }
    return op_diff_attr_int(c, v, "group", group);
}

/* [G·M, C, k…] ↔ [G·C, M, k…], the kernel turned round. */
static ir_value *turned_weights(op_diff *c, ir_value *w, const op_conv *p)
{
    int32_t rank = p->w.rank;
    int64_t m = p->m / p->group, ch = p->c / p->group, perm[IR_MAX_RANK];
    ir_shape split = {.rank = rank + 3, .dims = {p->group, m, ch}};
    ir_shape joined = {.rank = rank + 2, .dims = {p->c, m}};
    int64_t start[IR_MAX_RANK], end[IR_MAX_RANK], axes[IR_MAX_RANK], step[IR_MAX_RANK];
    for (int32_t i = 0; i < rank; i++) {
        split.dims[i + 3] = joined.dims[i + 2] = p->w.kernel[i];
        perm[i + 3] = i + 3;
        start[i] = -1;
        end[i] = INT64_MIN + 1;
        axes[i] = i + 2;
        step[i] = -1;
    }
    perm[0] = 0;
    perm[1] = 2;
    perm[2] = 1;
    ir_value *t = op_diff_transpose(c, op_diff_reshape(c, w, &split), perm);
    t = op_diff_reshape(c, t, &joined);
    uint32_t r = (uint32_t)rank;
    ir_value *in[5] = {t, op_diff_ints(c, r, start), op_diff_ints(c, r, end),
                       op_diff_ints(c, r, axes), op_diff_ints(c, r, step)};
    return t && in[4] ? op_diff_node(c, "Slice", 5, in) : NULL;
}

/* Stride 1: a convolution of the cotangent with the turned kernel. */
static ir_value *input_grad_dense(op_diff *c, const op_conv *p)
{
    int64_t pads[2 * IR_MAX_RANK];
    for (int32_t i = 0; i < p->w.rank; i++) {
        int64_t reach = p->w.dilation[i] * (p->w.kernel[i] - 1);
        pads[i] = reach - p->w.pad_begin[i];
        pads[i + p->w.rank] = reach - p->w.pad_end[i];
        if (pads[i] < 0 || pads[i + p->w.rank] < 0)
            return NULL;
    }
    ir_value *w = turned_weights(c, c->node->inputs[1], p);
    ir_value *d = op_diff_open(c, "Conv", 2, (ir_value *[]){c->out_grad[0], w});
    return conv_attrs(c, d, p->w.rank, p->w.stride, p->w.dilation, pads, p->group);
}

static ir_value *input_grad(op_diff *c, const op_conv *p)
{
    bool dense = true;
    for (int32_t i = 0; i < p->w.rank; i++)
        dense &= p->w.stride[i] == 1;
    ir_value *d = dense ? input_grad_dense(c, p) : NULL;
    if (d || c->status != TACIT_OK)
        return d;
    int64_t pads[2 * IR_MAX_RANK], extra[IR_MAX_RANK];
    for (int32_t i = 0; i < p->w.rank; i++) {
        pads[i] = p->w.pad_begin[i];
        pads[i + p->w.rank] = p->w.pad_end[i];
        extra[i] = p->w.in[i] -
                   ((p->w.out[i] - 1) * p->w.stride[i] + p->w.dilation[i] * (p->w.kernel[i] - 1) +
                    1 - pads[i] - pads[i + p->w.rank]);
    }
    d = op_diff_open(c, "ConvTranspose", 2, (ir_value *[]){c->out_grad[0], c->node->inputs[1]});
    if (d &&
        !ir_attr_set_ints(c->graph, d->producer, "output_padding", (uint32_t)p->w.rank, extra)) {
        c->status = error_memory(c->err, "a gradient graph");
        return NULL;
    }
    return conv_attrs(c, d, p->w.rank, p->w.stride, p->w.dilation, pads, p->group);
}

/* A convolution again, batch and channels changing places: X as [C, G·N, …] with dy as the kernel
 * [G·M, N, …], strides and dilations swapped. What lies beyond the kernel is cut off. */
static ir_value *weight_grad(op_diff *c, const op_conv *p, ir_value *input, ir_value *grad)
{
    int32_t rank = p->w.rank;
    int64_t ch = p->c / p->group, perm[IR_MAX_RANK], swap[IR_MAX_RANK], pads[2 * IR_MAX_RANK];
    ir_shape split = {.rank = rank + 3, .dims = {p->n, p->group, ch}};
    ir_shape joined = {.rank = rank + 2, .dims = {ch, p->group * p->n}};
    perm[0] = 2;
    perm[1] = 1;
    perm[2] = 0;
    swap[0] = 1;
    swap[1] = 0;
    for (int32_t i = 0; i < rank; i++) {
        split.dims[i + 3] = joined.dims[i + 2] = p->w.in[i];
        perm[i + 3] = i + 3;
        swap[i + 2] = i + 2;
        pads[i] = p->w.pad_begin[i];
        pads[i + rank] = p->w.pad_end[i];
    }
    ir_value *x = op_diff_reshape(c, input, &split);
    x = op_diff_reshape(c, op_diff_transpose(c, x, perm), &joined);
    ir_value *g = op_diff_transpose(c, grad, swap);
    ir_value *d = op_diff_open(c, "Conv", 2, (ir_value *[]){x, g});
    d = conv_attrs(c, d, rank, p->w.dilation, p->w.stride, pads, p->group);
    int64_t start[IR_MAX_RANK] = {0}, axes[IR_MAX_RANK];
    for (int32_t i = 0; i < rank; i++)
        axes[i] = i + 2;
    uint32_t r = (uint32_t)rank;
    ir_value *in[4] = {d, op_diff_ints(c, r, start), op_diff_ints(c, r, p->w.kernel),
                       op_diff_ints(c, r, axes)};
    d = d && in[3] ? op_diff_node(c, "Slice", 4, in) : NULL;
    return op_diff_transpose(c, d, swap);
}

/* Sums over everything but the channels. */
static ir_value *channel_sum(op_diff *c, ir_value *g)
{
    int64_t axes[IR_MAX_RANK];
    uint32_t n = 0;
    for (int32_t i = 0; g && i < g->type.shape.rank; i++)
        if (i != 1)
            axes[n++] = i;
    return op_diff_sum(c, g, n, axes, false);
}

tacit_status op_vjp_conv(op_diff *c)
{
    op_conv p;
    c->status = op_conv_plan(c->node, &c->node->inputs[0]->type.shape,
                             &c->node->inputs[1]->type.shape, &p, c->err);
    if (c->status != TACIT_OK)
        return c->status;
    if (c->wanted[0])
        c->in_grad[0] = input_grad(c, &p);
    if (c->wanted[1])
        c->in_grad[1] = weight_grad(c, &p, c->node->inputs[0], c->out_grad[0]);
    if (c->node->n_inputs > 2 && c->wanted[2])
        c->in_grad[2] = channel_sum(c, c->out_grad[0]);
    return c->status;
}

/* The transposed convolution is the adjoint of Conv with the same weights: its input's cotangent is
 * that Conv, its weights' is Conv's with input and cotangent in each other's place. */
tacit_status op_vjp_conv_transpose(op_diff *c)
{
    ir_value *x = c->node->inputs[0], *w = c->node->inputs[1], *g = c->out_grad[0];
    uint32_t n;
    if (strcmp(ir_attr_string(c->node, "auto_pad", "NOTSET"), "NOTSET") != 0 ||
        ir_attr_ints(c->node, "output_shape", &n))
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "its gradient needs explicit pads");
    op_conv p;
    c->status = op_conv_plan(c->node, &g->type.shape, &w->type.shape, &p, c->err);
    if (c->status != TACIT_OK)
        return c->status;
    int64_t pads[2 * IR_MAX_RANK];
    for (int32_t i = 0; i < p.w.rank; i++) {
        pads[i] = p.w.pad_begin[i];
        pads[i + p.w.rank] = p.w.pad_end[i];
    }
    if (c->wanted[0]) {
        ir_value *d = op_diff_open(c, "Conv", 2, (ir_value *[]){g, w});
        c->in_grad[0] = conv_attrs(c, d, p.w.rank, p.w.stride, p.w.dilation, pads, p.group);
    }
    if (c->wanted[1])
        c->in_grad[1] = weight_grad(c, &p, g, x);
    if (c->node->n_inputs > 2 && c->wanted[2])
        c->in_grad[2] = channel_sum(c, g);
    return c->status;
}

tacit_status op_vjp_max_pool(op_diff *c)
{
    ir_value *in[2] = {c->node->inputs[0], c->out_grad[0]};
    if (!in[1])
        return c->status;
    ir_node *n = op_spell_sibling(c, "MaxPoolGrad", "tacit", 2, in, 1);
    c->in_grad[0] = n ? n->outputs[0] : NULL;
    return c->status;
}

/* Linear in dy: the cotangent of dy is that of dx at the maxima, whose places in the flat x are
 * MaxPool's second output. */
tacit_status op_vjp_max_pool_grad(op_diff *c)
{
    ir_value *x = c->node->inputs[0], *g = c->out_grad[0];
    ir_node *again = op_spell_sibling(c, "MaxPool", "", 1, &x, 2);
    if (again && !op_diff_attr_int(c, again->outputs[1], "storage_order", 0))
        return c->status;
    ir_shape flat = ir_shape_of(1, (int64_t[]){ir_shape_size(&x->type.shape)});
    if (again && c->wanted[1])
        c->in_grad[1] = op_diff2(c, "Gather", op_diff_reshape(c, g, &flat), again->outputs[1]);
    return c->status;
}

tacit_status op_vjp_average_pool(op_diff *c)
{
    ir_value *in[2] = {c->node->inputs[0], c->out_grad[0]};
    ir_node *n = op_spell_sibling(c, "AveragePoolGrad", "tacit", 2, in, 1);
    c->in_grad[0] = n ? n->outputs[0] : NULL;
    return c->status;
}

/* Linear in dy, and x only gives its shape. */
tacit_status op_vjp_average_pool_grad(op_diff *c)
{
    ir_node *n = op_spell_sibling(c, "AveragePool", "", 1, c->out_grad, 1);
    c->in_grad[1] = n ? n->outputs[0] : NULL;
    return c->status;
}

tacit_status op_vjp_global_average(op_diff *c)
{
    const ir_shape *s = &c->node->inputs[0]->type.shape;
    double count = 1;
    for (int32_t i = 2; i < s->rank; i++)
        count *= (double)s->dims[i];
    c->in_grad[0] = op_diff_expand(c, op_diff_scale(c, c->out_grad[0], 1 / count), s);
    return c->status;
}

/* The channel vector v as [1, C, 1…]. */
static ir_value *along_channels(op_diff *c, ir_value *v, int32_t rank)
{
    ir_shape s = {.rank = rank};
    for (int32_t i = 0; i < rank; i++)
        s.dims[i] = i == 1 ? v->type.shape.dims[0] : 1;
    return op_diff_reshape(c, v, &s);
}

/* Training form, with x̂ = (x − μ)·r over each channel's m elements: dx = γ·r·(g − mean g − x̂·mean
 * g·x̂), and what comes through the running statistics. */
static tacit_status batch_norm_training(op_diff *c)
{
    ir_value *const *in = c->node->inputs, *x = in[0], *g = c->out_grad[0];
    int32_t rank = x->type.shape.rank;
    tacit_dtype dtype = x->type.dtype;
    double keep = ir_attr_float(c->node, "momentum", 0.9);
    double m = (double)ir_shape_size(&x->type.shape) / (double)in[1]->type.shape.dims[0];
    ir_value *mean = op_diff_scale(c, channel_sum(c, x), 1 / m);
    if (!mean)
        return c->status;
    ir_value *centred = op_diff2(c, "Sub", x, along_channels(c, mean, rank));
    ir_value *var = op_diff_scale(c, channel_sum(c, op_diff2(c, "Mul", centred, centred)), 1 / m);
    ir_value *epsilon = op_diff_scalar(c, dtype, ir_attr_float(c->node, "epsilon", 1e-5));
    ir_value *r = op_diff1(c, "Reciprocal", op_diff1(c, "Sqrt", op_diff2(c, "Add", var, epsilon)));
    if (!r)
        return c->status;
    ir_value *d = NULL;
    if (g) {
        ir_value *unit = op_diff2(c, "Mul", centred, along_channels(c, r, rank));
        ir_value *sum = channel_sum(c, g), *dot = channel_sum(c, op_diff2(c, "Mul", g, unit));
        c->in_grad[1] = op_diff_cast(c, dot, in[1]->type.dtype);
        c->in_grad[2] = op_diff_cast(c, sum, in[2]->type.dtype);
        ir_value *gain = op_diff2(c, "Mul", op_diff_cast(c, in[1], dtype), r);
        ir_value *share = op_diff_scale(c, sum, 1 / m), *tilt = op_diff_scale(c, dot, 1 / m);
        if (!share || !tilt || !gain)
            return c->status;
        d = op_diff2(c, "Sub", g, along_channels(c, share, rank));
        d = op_diff2(c, "Sub", d, op_diff2(c, "Mul", unit, along_channels(c, tilt, rank)));
        d = op_diff2(c, "Mul", d, along_channels(c, gain, rank));
    }
    for (uint32_t i = 1; i < 3 && i < c->node->n_outputs; i++) {
        ir_value *s = c->out_grad[i];
        if (!s)
            continue;
        c->in_grad[2 + i] = op_diff_scale(c, s, keep);
        ir_value *own = op_diff_scale(c, op_diff_cast(c, s, dtype), (double)i * (1 - keep) / m);
        own = own ? along_channels(c, own, rank) : NULL;
        own = i == 1 ? op_diff_expand(c, own, &x->type.shape) : op_diff2(c, "Mul", own, centred);
        d = op_diff_add(c, d, own);
    }
    c->in_grad[0] = d;
    return c->status;
}

/* Inference form: y = scale·(x − mean)·r + bias with r = 1/√(var + ε). */
tacit_status op_vjp_batch_norm(op_diff *c)
{
    if (ir_attr_int(c->node, "training_mode", 0))
        return batch_norm_training(c);
    ir_value *const *in = c->node->inputs, *g = c->out_grad[0];
    int32_t rank = in[0]->type.shape.rank;
    double epsilon = ir_attr_float(c->node, "epsilon", 1e-5);
    ir_value *root = op_diff2(c, "Add", in[4], op_diff_scalar(c, in[4]->type.dtype, epsilon));
    ir_value *r = op_diff1(c, "Reciprocal", op_diff1(c, "Sqrt", root));
    ir_value *gain = op_diff2(c, "Mul", in[1], r);
    ir_value *sum = channel_sum(c, g);
    if (gain && c->wanted[0])
        c->in_grad[0] = op_diff2(c, "Mul", g, along_channels(c, gain, rank));
    ir_value *centred = op_diff2(c, "Sub", in[0], along_channels(c, in[3], rank));
    ir_value *moment = channel_sum(c, op_diff2(c, "Mul", g, centred)); /* Σ g·(x − mean) */
    if (c->wanted[1])
        c->in_grad[1] = op_diff2(c, "Mul", moment, r);
    if (c->wanted[2])
        c->in_grad[2] = sum;
    if (c->wanted[3])
        c->in_grad[3] = op_diff1(c, "Neg", op_diff2(c, "Mul", sum, gain));
    if (c->wanted[4]) {
        ir_value *cube = op_diff2(c, "Mul", gain, op_diff2(c, "Mul", r, r));
        c->in_grad[4] = op_diff_scale(c, op_diff2(c, "Mul", moment, cube), -0.5);
    }
    return c->status;
}
