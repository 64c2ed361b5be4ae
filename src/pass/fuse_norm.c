/* SPDX-License-Identifier: Apache-2.0
 * A residual sum and the normalisation that reads it, in one sweep over the row; and gated
 * activations (SwiGLU, GeGLU). */
#include "pass/epilogue.h"

/* The normalisation works on the last axis alone and only its first result is wanted. */
static bool plain_norm(const ir_node *n)
{
    if (!pass_float(n->inputs[0]))
        return false;
    int32_t rank = n->inputs[0]->type.shape.rank;
    int64_t axis = ir_attr_int(n, "axis", -1);
    for (uint32_t k = 1; k < n->n_outputs; k++)
        if (n->outputs[k])
            return false;
    return axis == -1 || axis == rank - 1;
}

/* Does not depend on anything computed, so it cannot depend on the sum. */
static bool is_source(const ir_value *v)
{
    return !v || !v->producer;
}

static tacit_status fuse_norm(pass_edit *e, ir_node *n)
{
    bool rms = pass_is(e, n, PASS_RMS_NORM);
    if ((!rms && !pass_is(e, n, PASS_LAYER_NORM)) || !plain_norm(n))
        return TACIT_OK;
    ir_value *sum = n->inputs[0], *scale = n->inputs[1];
    ir_value *shift = n->n_inputs > 2 ? n->inputs[2] : NULL;
    ir_node *add = pass_from(e, sum, PASS_ADD);
    if (!add || !pass_same_shape(add->inputs[0], sum) || !pass_same_shape(add->inputs[1], sum))
        return TACIT_OK;
    if (!is_source(scale) || !is_source(shift)) {
        pass_near_miss(e, n, "not fused with the sum before it: its scale is computed");
        return TACIT_OK;
    }
    bool keep_sum = pass_uses(e, sum) > 1;
    pass_fusion f = {.op = PASS_T_NORM,
                     .root = n,
                     .n_inputs = 4,
                     .n_outputs = keep_sum ? 2 : 1,
                     .inputs = {add->inputs[0], scale, shift, add->inputs[1]},
                     .outputs = {n->outputs[0], keep_sum ? sum : NULL}};
    pass_set_add(&f.nodes, add);
    pass_set_add(&f.nodes, n);
    pass_fusion_float(&f, "epsilon", ir_attr_float(n, "epsilon", 1e-5));
    if (rms)
        pass_fusion_int(&f, "rms", 1);
    return pass_fuse(e, &f);
}

tacit_status pass_fuse_norm(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++)
        TRY(fuse_norm(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}

static tacit_status fuse_gated(pass_edit *e, ir_node *n)
{
    if (!pass_is(e, n, PASS_MUL) || !pass_float(n->outputs[0]))
        return TACIT_OK;
    for (uint32_t k = 0; k < 2; k++) {
        ir_node *act = n->inputs[k]->producer;
        double low, high;
        if (!pass_is(e, act, PASS_SWISH) && !pass_is(e, act, PASS_GELU) &&
            !pass_is(e, act, PASS_RELU))
            continue;
        const char *name = pass_activation(e, act, &low, &high);
        if (!name || !pass_same_shape(n->inputs[0], n->inputs[1]))
            continue;
        pass_fusion f = {.op = PASS_T_GATED,
                         .root = n,
                         .n_inputs = 2,
                         .n_outputs = 1,
                         .inputs = {act->inputs[0], n->inputs[1 - k]},
                         .outputs = {n->outputs[0]}};
        pass_set_add(&f.nodes, act);
        pass_set_add(&f.nodes, n);
        pass_fusion_string(&f, "activation", name);
        return pass_fuse(e, &f);
    }
    return TACIT_OK;
}

tacit_status pass_fuse_gated(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++)
        TRY(fuse_gated(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}
