/* SPDX-License-Identifier: Apache-2.0
 * Convolutions between DequantizeLinear nodes become tacit.IntConv, with an activation and the
 * QuantizeLinear behind them: bytes in, bytes out. */
#include <string.h>

#include "pass/epilogue.h"

static bool byte(const ir_value *v)
{
    return pass_static(v) && (v->type.dtype == TACIT_U8 || v->type.dtype == TACIT_I8);
}

/* A known f32 of one number, or of one for each of `m` along a single axis. */
static bool scale_of(const ir_value *v, int64_t m)
{
    if (!v || !pass_static(v) || !ir_value_known(v) || v->type.dtype != TACIT_F32)
        return false;
    return ir_shape_size(&v->type.shape) == 1 ||
           (v->type.shape.rank == 1 && v->type.shape.dims[0] == m);
}

static ir_value *optional(const ir_node *n, uint32_t i)
{
    return i < n->n_inputs ? n->inputs[i] : NULL;
}

/* The weights as DequantizeLinear of bytes with one scale, or one for each output channel. */
static bool read_weights(const pass_edit *e, const ir_value *w, pass_fusion *f)
{
    ir_node *d = pass_from(e, w, PASS_DEQUANTIZE);
    int32_t rank = w->type.shape.rank, axis = d ? (int32_t)ir_attr_int(d, "axis", 1) : 0;
    if (!d || !byte(d->inputs[0]) || !ir_value_known(d->inputs[0]) || rank < 3 || rank > 4 ||
        ir_attr_int(d, "block_size", 0))
        return false;
    int64_t m = w->type.shape.dims[0];
    ir_value *zero = optional(d, 2);
    bool one = pass_static(d->inputs[1]) && ir_shape_size(&d->inputs[1]->type.shape) == 1;
    if (!scale_of(d->inputs[1], m) || (!one && axis != 0 && axis != -rank) ||
        (zero && !ir_value_known(zero)))
        return false;
    f->inputs[1] = d->inputs[0];
    f->inputs[4] = d->inputs[1];
    f->inputs[5] = zero;
    return true;
}

/* A bias of integers with its scales, as f32. */
static tacit_status read_bias(pass_edit *e, ir_value *bias, pass_fusion *f, bool *good)
{
    ir_node *d = bias ? pass_from(e, bias, PASS_DEQUANTIZE) : NULL;
    f->inputs[6] = bias;
    *good = !bias || ir_value_known(bias);
    if (*good || !d || !ir_value_known(d->inputs[0]) || bias->type.shape.rank != 1 ||
        !scale_of(d->inputs[1], bias->type.shape.dims[0]) ||
        (optional(d, 2) && !ir_value_known(d->inputs[2])))
        return TACIT_OK;
    const ir_tensor *b = ir_value_known(d->inputs[0]), *s = ir_value_known(d->inputs[1]);
    const ir_tensor *z = optional(d, 2) ? ir_value_known(d->inputs[2]) : NULL;
    ir_tensor *t = ir_tensor_new(e->g->memory, TACIT_F32, &bias->type.shape);
    if (!t)
        return error_memory(e->c->err, "a bias");
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        double zero = z ? ir_load_f64(z->dtype, z->data, ir_tensor_count(z) > 1 ? i : 0) : 0;
        double scale = ir_load_f64(s->dtype, s->data, ir_tensor_count(s) > 1 ? i : 0);
        ((float *)t->data)[i] = (float)((ir_load_f64(b->dtype, b->data, i) - zero) * scale);
    }
    f->inputs[6] = ir_constant_new(e->g, "bias", t);
    *good = f->inputs[6] != NULL;
    return *good ? TACIT_OK : error_memory(e->c->err, "a bias");
}

/* QuantizeLinear to bytes with one known scale: what the kernel ends with. */
static tacit_status read_output(pass_edit *e, ir_node *q, pass_fusion *f)
{
    double scale;
    ir_value *zero = optional(q, 2);
    if (!pass_is(e, q, PASS_QUANTIZE) || !byte(q->outputs[0]) ||
        q->inputs[1]->type.dtype != TACIT_F32 || !pass_scalar(q->inputs[1], &scale) ||
        (zero && !ir_value_known(zero)) || ir_attr_int(q, "block_size", 0) ||
        ir_attr_int(q, "precision", 0))
        return TACIT_OK;
    if (!zero) {
        ir_tensor *t =
            ir_tensor_new(e->g->memory, q->outputs[0]->type.dtype, &q->inputs[1]->type.shape);
        if (t)
            memset(t->data, 0, t->bytes);
        zero = t ? ir_constant_new(e->g, "zero", t) : NULL;
        if (!zero)
            return error_memory(e->c->err, "a zero point");
    }
    f->inputs[7] = q->inputs[1];
    f->inputs[8] = zero;
    f->n_inputs = 9;
    f->outputs[0] = q->outputs[0];
    pass_set_add(&f->nodes, q);
    return TACIT_OK;
}

/* Is there a kernel? In groups that are neither few nor single channels f32 is faster. */
static bool kernel_fits(const ir_node *n)
{
    const int64_t *x = n->inputs[0]->type.shape.dims, *w = n->inputs[1]->type.shape.dims;
    int64_t group = ir_attr_int(n, "group", 1), k = w[1];
    for (int32_t d = 2; d < n->inputs[1]->type.shape.rank; d++)
        k *= w[d];
    bool depth = group == x[1] && w[0] == x[1];
    return k <= (depth ? 256 : 33000) && (group <= 64 || depth);
}

static tacit_status rewrite(pass_edit *e, ir_node *n)
{
    bool fused = pass_is(e, n, PASS_T_CONV), good = true;
    int64_t pads[2 * IR_MAX_RANK];
    if ((!fused && !pass_is(e, n, PASS_CONV)) || !pass_static(n->outputs[0]) ||
        n->outputs[0]->type.dtype != TACIT_F32 || !pass_static(n->inputs[0]) ||
        !pass_static(n->inputs[1]) || !pass_explicit_pads(n, pads))
        return TACIT_OK;
    pass_epilogue tail;
    pass_epilogue_read(&tail, n, fused);
    ir_node *x = pass_from(e, n->inputs[0], PASS_DEQUANTIZE);
    pass_fusion f = {.op = PASS_T_INT_CONV,
                     .root = n,
                     .nodes = {.nodes = {n}, .count = 1},
                     .n_inputs = 7,
                     .n_outputs = 1};
    if (!x || tail.residual || !byte(x->inputs[0]) || ir_value_known(x->inputs[0]) ||
        x->inputs[1]->type.dtype != TACIT_F32 || !pass_static(x->inputs[1]) ||
        ir_shape_size(&x->inputs[1]->type.shape) != 1 || !read_weights(e, n->inputs[1], &f) ||
        !kernel_fits(n))
        return TACIT_OK;
    TRY(read_bias(e, tail.bias, &f, &good));
    if (!good)
        return TACIT_OK;
    f.inputs[0] = x->inputs[0];
    f.inputs[2] = x->inputs[1];
    f.inputs[3] = optional(x, 2);
    f.outputs[0] = n->outputs[0];
    ir_node *next = pass_only_user(e, n->outputs[0]);
    double low = 0, high = 0;
    const char *act =
        tail.activation[0] == 'n' && next ? pass_activation(e, next, &low, &high) : NULL;
    if (act) {
        tail.activation = act;
        tail.act_min = low;
        tail.act_max = high;
        pass_set_add(&f.nodes, next);
        f.outputs[0] = next->outputs[0];
        next = pass_only_user(e, next->outputs[0]);
    }
    bool cut = tail.activation[0] == 'n' || strcmp(tail.activation, "relu") == 0 ||
               strcmp(tail.activation, "clip") == 0;
    if (next && cut)
        TRY(read_output(e, next, &f));
    pass_fusion_conv(&f, n, pads);
    if (tail.activation[0] != 'n')
        pass_fusion_string(&f, "activation", tail.activation);
    if (strcmp(tail.activation, "clip") == 0) {
        pass_fusion_float(&f, "act_min", tail.act_min);
        pass_fusion_float(&f, "act_max", tail.act_max);
    }
    return pass_fuse(e, &f);
}

tacit_status pass_int_conv(pass_context *c)
{
    return pass_each(c, PASS_T_INT_CONV, rewrite);
}
