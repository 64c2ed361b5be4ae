/* SPDX-License-Identifier: Apache-2.0
 * Sums, products and means between DequantizeLinear and QuantizeLinear, as they stand between
 * quantised convolutions: tacit.IntAdd, tacit.IntMul and tacit.IntMean, which run on bytes. */
#include <string.h>

#include "pass/epilogue.h"

static bool byte(const ir_value *v)
{
    return pass_static(v) && (v->type.dtype == TACIT_U8 || v->type.dtype == TACIT_I8);
}

/* The inputs of a fusion: a scale that is one known number, and its zero point. */
static tacit_status take_pair(pass_edit *e, const ir_node *q, const ir_value *bytes, pass_fusion *f,
                              uint32_t at, bool *good)
{
    double scale;
    ir_value *zero = q->n_inputs > 2 ? q->inputs[2] : NULL;
    *good = byte(bytes) && q->inputs[1]->type.dtype == TACIT_F32 &&
            pass_scalar(q->inputs[1], &scale) && scale > 0 &&
            (!zero || (ir_value_known(zero) && ir_shape_size(&zero->type.shape) == 1)) &&
            !ir_attr_int(q, "block_size", 0) && !ir_attr_int(q, "precision", 0);
    if (!*good)
        return TACIT_OK;
    if (!zero) {
        ir_tensor *t = ir_tensor_new(e->g->memory, bytes->type.dtype, &q->inputs[1]->type.shape);
        if (t)
            memset(t->data, 0, t->bytes);
        zero = t ? ir_constant_new(e->g, "zero", t) : NULL;
        if (!zero)
            return error_memory(e->c->err, "a zero point");
    }
    f->inputs[at] = q->inputs[1];
    f->inputs[at + 1] = zero;
    return TACIT_OK;
}

/* What the DequantizeLinear behind input `i` of `n` reads. */
static tacit_status take_input(pass_edit *e, const ir_node *n, uint32_t i, pass_fusion *f,
                               uint32_t at, uint32_t pair, bool *good)
{
    ir_node *d = pass_from(e, n->inputs[i], PASS_DEQUANTIZE);
    *good = d && d->outputs[0]->type.dtype == TACIT_F32 && !ir_value_known(d->inputs[0]);
    if (!*good)
        return TACIT_OK;
    f->inputs[at] = d->inputs[0];
    return take_pair(e, d, d->inputs[0], f, pair, good);
}

/* Both inputs of `n` and what `q` makes of its result. */
static tacit_status take_two(pass_edit *e, ir_node *q, const ir_node *n, pass_fusion *f, bool *good)
{
    *good = true;
    for (uint32_t i = 0; i < 2 && *good; i++)
        TRY(take_input(e, n, i, f, i, 2 + 2 * i, good));
    f->n_inputs = 8;
    return *good ? take_pair(e, q, q->outputs[0], f, 6, good) : TACIT_OK;
}

static tacit_status fuse_mul(pass_edit *e, ir_node *q, ir_node *mul, pass_fusion *f)
{
    bool good;
    TRY(take_two(e, q, mul, f, &good));
    f->op = PASS_T_INT_MUL;
    return good ? pass_fuse(e, f) : TACIT_OK;
}

static tacit_status fuse_add(pass_edit *e, ir_node *q, ir_node *add, const char *act, double low,
                             double high, pass_fusion *f)
{
    bool good;
    if (!pass_same_shape(add->inputs[0], add->inputs[1]))
        return TACIT_OK;
    TRY(take_two(e, q, add, f, &good));
    if (!good)
        return TACIT_OK;
    f->op = PASS_T_INT_ADD;
    if (act)
        pass_fusion_string(f, "activation", act);
    if (act && strcmp(act, "clip") == 0) {
        pass_fusion_float(f, "act_min", low);
        pass_fusion_float(f, "act_max", high);
    }
    return pass_fuse(e, f);
}

static tacit_status fuse_mean(pass_edit *e, ir_node *q, ir_node *mean, pass_fusion *f)
{
    bool good;
    if (mean->inputs[0]->type.shape.rank != 4)
        return TACIT_OK;
    TRY(take_input(e, mean, 0, f, 0, 1, &good));
    if (!good)
        return TACIT_OK;
    TRY(take_pair(e, q, q->outputs[0], f, 3, &good));
    if (!good)
        return TACIT_OK;
    f->op = PASS_T_INT_MEAN;
    f->n_inputs = 5;
    return pass_fuse(e, f);
}

static tacit_status rewrite(pass_edit *e, ir_node *q)
{
    if (!pass_is(e, q, PASS_QUANTIZE) || !pass_static(q->inputs[0]) || !byte(q->outputs[0]))
        return TACIT_OK;
    double low = 0, high = 0;
    ir_node *n = q->inputs[0]->producer;
    pass_fusion f = {
        .root = q, .nodes = {.nodes = {q}, .count = 1}, .n_outputs = 1, .outputs = {q->outputs[0]}};
    const char *act = n ? pass_activation(e, n, &low, &high) : NULL;
    if (act && strcmp(act, "relu") != 0 && strcmp(act, "clip") != 0)
        return TACIT_OK;
    if (act) {
        pass_set_add(&f.nodes, n);
        n = n->inputs[0]->producer;
    }
    bool add = pass_is(e, n, PASS_ADD), mul = !act && pass_is(e, n, PASS_MUL);
    if (!add && !mul && (act || !pass_is(e, n, PASS_GLOBAL_AVERAGE_POOL)))
        return TACIT_OK;
    pass_set_add(&f.nodes, n);
    return add   ? fuse_add(e, q, n, act, low, high, &f)
           : mul ? fuse_mul(e, q, n, &f)
                 : fuse_mean(e, q, n, &f);
}

tacit_status pass_int_images(pass_context *c)
{
    return pass_each(c, PASS_T_INT_ADD, rewrite);
}
