/* SPDX-License-Identifier: Apache-2.0
 * Only what is asked for: a Slice along rows goes in front of what it cuts, so that products, norms
 * and element-wise ops run on those rows alone. A decoder of which the last position is wanted then
 * has one row in its last layer and in the product with the vocabulary. */
#include "pass/edit.h"

typedef struct cut {
    int32_t axis; /* of the value that is cut */
    int64_t size, start, count;
} cut;

/* A Slice of consecutive entries along one axis. */
static bool read_cut(const pass_edit *e, const ir_node *n, cut *c)
{
    int64_t starts[IR_MAX_RANK], axes[IR_MAX_RANK], steps[IR_MAX_RANK];
    uint32_t n_starts, n_axes = 0, n_steps = 0;
    if (!pass_is(e, n, PASS_SLICE) || !pass_static(n->inputs[0]) || !pass_static(n->outputs[0]) ||
        !pass_ints(n->inputs[1], starts, IR_MAX_RANK, &n_starts))
        return false;
    bool has_axes = n->n_inputs > 3 && n->inputs[3], has_steps = n->n_inputs > 4 && n->inputs[4];
    if ((has_axes && !pass_ints(n->inputs[3], axes, IR_MAX_RANK, &n_axes)) ||
        (has_steps && !pass_ints(n->inputs[4], steps, IR_MAX_RANK, &n_steps)))
        return false;
    const ir_shape *x = &n->inputs[0]->type.shape, *y = &n->outputs[0]->type.shape;
    uint32_t found = 0;
    for (int32_t d = 0; d < x->rank; d++)
        if (x->dims[d] != y->dims[d]) {
            *c = (cut){.axis = d, .size = x->dims[d], .count = y->dims[d]};
            found++;
        }
    if (found != 1 || c->count == 0)
        return false;
    for (uint32_t i = 0; i < n_starts; i++) {
        int64_t axis = has_axes ? axes[i] : (int64_t)i, start = starts[i];
        if (has_steps && steps[i] != 1)
            return false;
        if ((axis < 0 ? axis + x->rank : axis) == c->axis)
            c->start = start < 0 ? start + c->size : start;
    }
    return c->start >= 0 && c->start + c->count <= c->size;
}

/* --- which inputs are cut along which axis, for an op whose output is cut ------------------------
 */

enum { WHOLE = -1, MOST = 8 };

static bool cut_product(const ir_node *p, const cut *c, int32_t *axes, uint32_t residual)
{
    const ir_shape *a = &p->inputs[0]->type.shape, *b = &p->inputs[1]->type.shape;
    int32_t rank = p->outputs[0]->type.shape.rank;
    /* Rows of A are rows of the result; so are its batches where B has none. */
    if (a->rank != rank || c->axis >= rank - 1 || ir_attr_int(p, "trans_a", 0) ||
        (c->axis < rank - 2 && b->rank > 2) || a->dims[c->axis] != c->size)
        return false;
    axes[0] = c->axis;
    if (residual < p->n_inputs && p->inputs[residual])
        axes[residual] = c->axis;
    return true;
}

static bool cut_norm(const pass_edit *e, const ir_node *p, const cut *c, int32_t *axes)
{
    int32_t rank = p->outputs[0]->type.shape.rank;
    int64_t axis = pass_is(e, p, PASS_T_NORM) ? -1 : ir_attr_int(p, "axis", -1);
    if (axis < 0)
        axis += rank;
    /* A norm takes all axes from its own on, a Softmax that one. */
    if (pass_is(e, p, PASS_SOFTMAX) ? c->axis == axis : c->axis >= axis)
        return false;
    axes[0] = c->axis;
    if (pass_is(e, p, PASS_T_NORM) && p->n_inputs > 3 && p->inputs[3])
        axes[3] = c->axis;
    return true;
}

/* Inputs are broadcast to the output. */
static bool cut_elements(const ir_node *p, const cut *c, int32_t *axes)
{
    int32_t rank = p->outputs[0]->type.shape.rank;
    for (uint32_t i = 0; i < p->n_inputs; i++) {
        if (!p->inputs[i])
            continue;
        if (!pass_static(p->inputs[i]))
            return false;
        const ir_shape *x = &p->inputs[i]->type.shape;
        int32_t axis = c->axis - (rank - x->rank);
        if (axis >= 0 && x->dims[axis] == c->size)
            axes[i] = axis;
    }
    return true;
}

/* Queries attend on their own; what they may see is counted from the first of all. */
static bool cut_attention(const ir_node *p, const cut *c, int32_t *axes)
{
    bool turned = strcmp(ir_attr_string(p, "out_layout", "bhsd"), "bshd") == 0;
    const ir_shape *q = &p->inputs[0]->type.shape, *k = &p->inputs[1]->type.shape;
    /* With a past the rows are those of a cache: left alone. */
    if (p->n_inputs > 4 || c->axis != (turned ? 1 : 2) || k->dims[2] != q->dims[2] ||
        ir_attr_int(p, "causal_offset", 0) != 0)
        return false;
    axes[0] = 2;
    if (p->n_inputs > 3 && p->inputs[3]) {
        const ir_shape *mask = &p->inputs[3]->type.shape;
        if (mask->rank < 2)
            return false;
        if (mask->dims[mask->rank - 2] == c->size)
            axes[3] = mask->rank - 2;
    }
    return true;
}

static bool cut_reshape(const ir_node *p, const cut *c, int32_t *axes)
{
    const ir_shape *x = &p->inputs[0]->type.shape, *y = &p->outputs[0]->type.shape;
    if (x->rank <= c->axis || pass_has_zero(y->rank, y->dims))
        return false;
    for (int32_t d = 0; d <= c->axis; d++)
        if (x->dims[d] != y->dims[d])
            return false;
    axes[0] = c->axis;
    return true;
}

static bool cut_transpose(const ir_node *p, const cut *c, int32_t *axes)
{
    int64_t perm[IR_MAX_RANK];
    if (!pass_permutation(p, perm))
        return false;
    axes[0] = (int32_t)perm[c->axis];
    return true;
}

static bool cut_inputs(const pass_edit *e, const ir_node *p, const cut *c, int32_t *axes)
{
    if (pass_is(e, p, PASS_MATMUL) || pass_is(e, p, PASS_T_MATMUL))
        return cut_product(p, c, axes, 3);
    if (pass_is(e, p, PASS_T_DEQUANT_MATMUL))
        return c->axis < p->outputs[0]->type.shape.rank - 1 && cut_product(p, c, axes, 5);
    if (pass_is(e, p, PASS_LAYER_NORM) || pass_is(e, p, PASS_RMS_NORM) ||
        pass_is(e, p, PASS_T_NORM) || pass_is(e, p, PASS_SOFTMAX))
        return cut_norm(e, p, c, axes);
    if (pass_is(e, p, PASS_T_ATTENTION))
        return cut_attention(p, c, axes);
    if (pass_is(e, p, PASS_RESHAPE))
        return cut_reshape(p, c, axes);
    if (pass_is(e, p, PASS_TRANSPOSE))
        return cut_transpose(p, c, axes);
    /* An axis would say where an input lies that is not broadcast. */
    bool plain = p->op->flags & OP_ELEMENTWISE && !ir_attr_find(p, "axis");
    return (plain || pass_is(e, p, PASS_T_GATED)) && cut_elements(p, c, axes);
}

/* --- the rewrite --------------------------------------------------------------------------------
 */

/* Only the cut reads the node, and the node has nothing else to give. */
static bool only_for(const pass_edit *e, const ir_node *p, const ir_node *slice)
{
    if (!p || !p->type || !p->op || p->n_inputs > MOST || ir_node_has_subgraph(p) ||
        p->op->flags & (OP_RANDOM | OP_CONTROL) || pass_only_user(e, slice->inputs[0]) != slice ||
        p->outputs[0] != slice->inputs[0])
        return false;
    for (uint32_t i = 1; i < p->n_outputs; i++)
        if (p->outputs[i] && pass_uses(e, p->outputs[i]))
            return false;
    for (uint32_t i = 0; i < p->n_inputs; i++)
        if (p->inputs[i] && !pass_static(p->inputs[i]))
            return false;
    return true;
}

static tacit_status slice_input(pass_edit *e, ir_node *p, uint32_t i, int32_t axis, const cut *c)
{
    tacit_status status = TACIT_OK;
    int64_t from = c->start, to = c->start + c->count, along = axis;
    ir_value *in[4] = {p->inputs[i], ir_constant_i64(e->g, "start", 1, 1, &from),
                       ir_constant_i64(e->g, "end", 1, 1, &to),
                       ir_constant_i64(e->g, "axis", 1, 1, &along)};
    if (!in[1] || !in[2] || !in[3])
        return error_memory(e->c->err, "a slice");
    ir_node *n = pass_node(e, PASS_SLICE, p->name, 4, in, 0, NULL, &status);
    if (!n)
        return status;
    ir_node_note(e->g, n, e->c->name, "moved in front of %s", p->name);
    pass_set_input(e, p, i, n->outputs[0]);
    return TACIT_OK;
}

static bool adapt(pass_edit *e, ir_node *p, const cut *c)
{
    if (pass_is(e, p, PASS_T_ATTENTION) &&
        (ir_attr_int(p, "causal", 0) || ir_attr_int(p, "window", 0)))
        return ir_attr_set_int(e->g, p, "causal_offset", c->start);
    if (!pass_is(e, p, PASS_RESHAPE))
        return true;
    ir_shape y = p->outputs[0]->type.shape;
    y.dims[c->axis] = c->count;
    ir_value *shape = ir_constant_i64(e->g, "shape", 1, y.rank, y.dims);
    if (shape)
        pass_set_input(e, p, 1, shape);
    return shape != NULL;
}

static tacit_status push(pass_edit *e, ir_node *n)
{
    cut c;
    int32_t axes[MOST];
    ir_node *p = pass_is(e, n, PASS_SLICE) ? n->inputs[0]->producer : NULL;
    p = p && p->op ? p : NULL;
    for (uint32_t i = 0; i < MOST; i++)
        axes[i] = WHOLE;
    /* Less than half is left out: not worth strided inputs. */
    if (!p || !read_cut(e, n, &c) || (2 * c.count > c.size && !p->op->alias) ||
        !only_for(e, p, n) || !cut_inputs(e, p, &c, axes) ||
        !pass_replaceable(e, n->outputs[0], p->outputs[0]))
        return TACIT_OK;
    for (uint32_t i = 0; i < p->n_inputs; i++)
        if (axes[i] != WHOLE)
            TRY(slice_input(e, p, i, axes[i], &c));
    if (!adapt(e, p, &c))
        return error_memory(e->c->err, "a slice");
    TRY(op_infer_node(e->g, p, e->c->err));
    if (!pass_same_shape(p->outputs[0], n->outputs[0]))
        return error_set(e->c->err, TACIT_ERR_INTERNAL, "node '%s' does not follow its slice",
                         p->name);
    ir_node_note(e->g, p, e->c->name, "computes %lld of %lld along axis %d", (long long)c.count,
                 (long long)c.size, (int)c.axis);
    pass_replace(e, n->outputs[0], p->outputs[0]);
    pass_kill(e, n);
    e->c->rewrites++;
    return TACIT_OK;
}

tacit_status pass_push_slice(pass_context *c)
{
    return pass_each(c, PASS_SLICE, push);
}
