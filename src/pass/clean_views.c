/* SPDX-License-Identifier: Apache-2.0
 * Views: those that change nothing go, and a view of a view becomes one. */
#include "pass/edit.h"

/* Ops that keep the elements in order and only re-label the axes. */
static bool relabels(const pass_edit *e, const ir_node *n)
{
    return pass_is(e, n, PASS_RESHAPE) || pass_is(e, n, PASS_SQUEEZE) ||
           pass_is(e, n, PASS_UNSQUEEZE) || pass_is(e, n, PASS_FLATTEN);
}

static bool bypass(pass_edit *e, ir_node *n, ir_value *x)
{
    if (!pass_replaceable(e, n->outputs[0], x))
        return false;
    pass_replace(e, n->outputs[0], x);
    pass_kill(e, n);
    e->c->rewrites++;
    return true;
}

/* n: relabel(relabel(x)) becomes Reshape(x) to the final shape. */
static tacit_status join_reshapes(pass_edit *e, ir_node *n, const ir_node *inner)
{
    ir_value *y = n->outputs[0];
    const ir_shape *shape = &y->type.shape;
    for (int32_t d = 0; d < shape->rank; d++)
        if (shape->dims[d] == 0)
            return TACIT_OK; /* 0 in a Reshape's shape means "copy that axis" */
    ir_value *dims = ir_constant_i64(e->g, NULL, 1, shape->rank, shape->dims);
    if (!dims)
        return error_memory(e->c->err, "a shape");
    pass_fusion f = {.op = PASS_RESHAPE, .root = n, .n_inputs = 2, .n_outputs = 1};
    f.inputs[0] = inner->inputs[0];
    f.inputs[1] = dims;
    f.outputs[0] = y;
    pass_set_add(&f.nodes, n);
    return pass_fuse(e, &f);
}

static tacit_status clean_reshape(pass_edit *e, ir_node *n)
{
    ir_value *x = n->inputs[0], *y = n->outputs[0];
    if (!pass_static(x) || !pass_static(y))
        return TACIT_OK;
    if (pass_same_shape(x, y)) {
        bypass(e, n, x);
        return TACIT_OK;
    }
    ir_node *inner = x->producer;
    if (!relabels(e, inner) || !pass_static(inner->inputs[0]))
        return TACIT_OK;
    if (pass_same_shape(inner->inputs[0], y) && bypass(e, n, inner->inputs[0]))
        return TACIT_OK;
    return join_reshapes(e, n, inner);
}

static bool is_identity(const int64_t *perm, int32_t rank)
{
    for (int32_t i = 0; i < rank; i++)
        if (perm[i] != i)
            return false;
    return true;
}

static tacit_status clean_transpose(pass_edit *e, ir_node *n)
{
    int64_t outer[IR_MAX_RANK], inner[IR_MAX_RANK], both[IR_MAX_RANK];
    if (!pass_permutation(n, outer))
        return TACIT_OK;
    ir_value *x = n->inputs[0];
    int32_t rank = x->type.shape.rank;
    if (is_identity(outer, rank)) {
        bypass(e, n, x);
        return TACIT_OK;
    }
    const ir_node *first = pass_from(e, x, PASS_TRANSPOSE);
    if (!first || !pass_permutation(first, inner))
        return TACIT_OK;
    for (int32_t i = 0; i < rank; i++)
        both[i] = inner[outer[i]];
    if (is_identity(both, rank) && bypass(e, n, first->inputs[0]))
        return TACIT_OK;
    pass_fusion f = {.op = PASS_TRANSPOSE, .root = n, .n_inputs = 1, .n_outputs = 1};
    f.inputs[0] = first->inputs[0];
    f.outputs[0] = n->outputs[0];
    pass_set_add(&f.nodes, n);
    pass_fusion_ints(&f, "perm", (uint32_t)rank, both);
    return pass_fuse(e, &f);
}

tacit_status pass_clean_views(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = 0; i < c->graph->nodes.count; i++) {
        ir_node *n = c->graph->nodes.data[i];
        if (relabels(&e, n))
            TRY(clean_reshape(&e, n));
        else if (pass_is(&e, n, PASS_TRANSPOSE))
            TRY(clean_transpose(&e, n));
    }
    return TACIT_OK;
}
