/* SPDX-License-Identifier: Apache-2.0
 * Rewriting nodes while loading. */
#include "load/rewrite.h"

tacit_status rewrite_no_memory(rewrite *u)
{
    return error_memory(u->err, "upgrading a node");
}

ir_value *rewrite_input(const rewrite *u, uint32_t i)
{
    return i < u->node->n_explicit ? u->node->inputs[i] : NULL;
}

tacit_status rewrite_set_input(rewrite *u, uint32_t i, ir_value *v)
{
    ir_node *n = u->node;
    if (i >= n->n_explicit) {
        uint32_t extra = i + 1 - n->n_explicit;
        ir_value **larger = ARENA_ARRAY(u->g->memory, n->n_inputs + extra, ir_value *);
        if (!larger)
            return rewrite_no_memory(u);
        for (uint32_t k = 0; k < n->n_inputs; k++)
            larger[k < n->n_explicit ? k : k + extra] = n->inputs[k];
        n->inputs = larger;
        n->n_inputs += extra;
        n->n_explicit += extra;
    }
    n->inputs[i] = v;
    return TACIT_OK;
}

ir_value *rewrite_add(rewrite *u, const char *type, uint32_t n, ir_value *const *inputs)
{
    ir_node *node = op_node(u->g, type, u->node->name, n, inputs);
    if (node)
        ir_node_inherit_notes(u->g, node, u->node);
    return node ? node->outputs[0] : NULL;
}

ir_value *rewrite_ints(rewrite *u, const char *name, uint32_t count, const int64_t *values)
{
    const char *stem = arena_printf(u->g->memory, "%s_%s", u->node->name, name);
    return stem ? ir_constant_i64(u->g, stem, 1, count, values) : NULL;
}

ir_value *rewrite_scalar(rewrite *u, const char *name, double value, ir_value *like)
{
    const char *stem = arena_printf(u->g->memory, "%s_%s", u->node->name, name);
    tacit_dtype dtype = like->type.dtype;
    bool known = dtype != TACIT_DTYPE_NONE && dtype != TACIT_STRING;
    ir_tensor *t = ir_tensor_new(u->g->memory, known ? dtype : TACIT_F32, &(ir_shape){.rank = 0});
    if (!t || !stem)
        return NULL;
    ir_store_f64(t->dtype, t->data, 0, value);
    ir_value *v = ir_constant_new(u->g, stem, t);
    return !v || known ? v : rewrite_add(u, "CastLike", 2, (ir_value *[]){v, like});
}

ir_value *rewrite_detach_output(rewrite *u, uint32_t k)
{
    ir_value *old = u->node->outputs[k];
    ir_value *fresh = ir_value_new(u->g, old->name, NULL);
    if (!fresh)
        return NULL;
    fresh->producer = u->node;
    fresh->output_index = k;
    u->node->outputs[k] = fresh;
    return old;
}

tacit_status rewrite_attach_output(rewrite *u, const char *type, uint32_t n,
                                   ir_value *const *inputs, ir_value *old)
{
    const char *none[] = {NULL};
    ir_node *node = ir_node_new(u->g, type, "", u->node->name, n, inputs, 1, none);
    if (!node)
        return rewrite_no_memory(u);
    op_resolve(NULL, node);
    node->outputs[0] = old;
    old->producer = node;
    old->output_index = 0;
    ir_node_inherit_notes(u->g, node, u->node);
    return TACIT_OK;
}

tacit_status rewrite_type(rewrite *u, const char *type)
{
    u->node->type = arena_strdup(u->g->memory, type);
    if (!u->node->type)
        return rewrite_no_memory(u);
    op_resolve(NULL, u->node);
    return TACIT_OK;
}
