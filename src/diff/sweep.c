/* SPDX-License-Identifier: Apache-2.0
 * The reverse walk that gradients, scan bodies and forward mode share. */
#include "diff/diff.h"

static tacit_status accumulate(const diff_sweep *s, op_diff *c, ir_value *v, ir_value *grad)
{
    if (!grad || v->id >= s->values)
        return TACIT_OK;
    if (!ir_shape_equal(&v->type.shape, &grad->type.shape) || v->type.dtype != grad->type.dtype) {
        char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
        return error_set(
            s->err, TACIT_ERR_INTERNAL, "the vjp rule of %s gave %s%s for '%s', which is %s%s",
            c->node->type, tacit_dtype_text(grad->type.dtype), ir_shape_text(&grad->type.shape, a),
            v->name, tacit_dtype_text(v->type.dtype), ir_shape_text(&v->type.shape, b));
    }
    s->grad[v->id] = op_diff_add(c, s->grad[v->id], grad);
    return c->status;
}

static tacit_status visit(const diff_sweep *s, ir_node *n)
{
    op_diff c = {.graph = s->graph, .node = n, .err = s->err};
    c.out_grad = ARENA_ARRAY(s->scratch, n->n_outputs + 1u, ir_value *);
    c.in_grad = ARENA_ARRAY(s->scratch, n->n_inputs + 1u, ir_value *);
    bool *wanted = ARENA_ARRAY(s->scratch, n->n_inputs + 1u, bool);
    if (!c.out_grad || !c.in_grad || !wanted)
        return error_memory(s->err, "a derivative graph");
    bool any_out = false, any_in = false;
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        const ir_value *v = n->outputs[i];
        c.out_grad[i] = v && v->id < s->values ? s->grad[v->id] : NULL;
        any_out |= c.out_grad[i] != NULL;
    }
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        const ir_value *v = n->inputs[i];
        wanted[i] = v && v->id < s->values && s->reach[v->id] && diff_is_smooth(v->type.dtype);
        any_in |= wanted[i];
    }
    if (!any_out || !any_in)
        return TACIT_OK;
    c.wanted = wanted;
    if (s->remat) {
        uint32_t k = 0;
        while (!c.out_grad[k])
            k++;
        c.node = ARENA_NEW(s->scratch, ir_node);
        if (!c.node)
            return error_memory(s->err, "a derivative graph");
        TRY(diff_remat_node(s->remat, n, c.out_grad[k], c.node, s->err));
    }
    TRY(diff_vjp_node(&c));
    for (uint32_t i = 0; i < n->n_inputs; i++)
        if (wanted[i])
            TRY(accumulate(s, &c, n->inputs[i], c.in_grad[i]));
    return TACIT_OK;
}

tacit_status diff_sweep_back(const diff_sweep *s, uint32_t first, uint32_t last)
{
    for (uint32_t i = last; i-- > first;)
        TRY(visit(s, s->graph->nodes.data[i]));
    return TACIT_OK;
}
