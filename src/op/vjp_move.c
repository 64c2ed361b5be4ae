/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of ops that move elements: each is the adjoint movement. */
#include <stdlib.h>
#include <string.h>

#include "op/spell.h"
#include "op/vjp.h"

static const ir_type *input_type(const op_diff *c, uint32_t i)
{
    return &c->node->inputs[i]->type;
}

static tacit_status known_ints(op_diff *c, uint32_t i, int64_t *out, uint32_t *n)
{
    const ir_tensor *t = i < c->node->n_inputs ? ir_value_known(c->node->inputs[i]) : NULL;
    if (!t)
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "its sizes are not known when compiling");
    c->status = op_read_ints(t, out, IR_MAX_RANK * 2, n, c->err);
    return c->status;
}

/* [start, start + size) along one axis. */
static ir_value *cut(op_diff *c, ir_value *x, int64_t axis, int64_t start, int64_t size)
{
    ir_value *in[4] = {x, op_diff_ints(c, 1, &start), op_diff_ints(c, 1, (int64_t[]){start + size}),
                       op_diff_ints(c, 1, &axis)};
    return x && in[1] && in[2] && in[3] ? op_diff_node(c, "Slice", 4, in) : NULL;
}

/* Zeros around x: before and after have one entry per axis. */
static ir_value *surround(op_diff *c, ir_value *x, const int64_t *before, const int64_t *after)
{
    int64_t pads[2 * IR_MAX_RANK];
    int32_t rank = x ? x->type.shape.rank : 0;
    for (int32_t i = 0; i < rank; i++) {
        pads[i] = before[i];
        pads[i + rank] = after[i];
    }
    return op_diff2(c, "Pad", x, op_diff_ints(c, (uint32_t)(2 * rank), pads));
}

tacit_status op_vjp_relabel(op_diff *c)
{
    c->in_grad[0] = op_diff_reshape(c, c->out_grad[0], &input_type(c, 0)->shape);
    return c->status;
}

tacit_status op_vjp_transpose(op_diff *c)
{
    int32_t rank = input_type(c, 0)->shape.rank;
    uint32_t n;
    const int64_t *perm = ir_attr_ints(c->node, "perm", &n);
    int64_t back[IR_MAX_RANK];
    for (int32_t i = 0; i < rank; i++)
        back[perm ? perm[i] : rank - 1 - i] = i;
    c->in_grad[0] = op_diff_transpose(c, c->out_grad[0], back);
    return c->status;
}

tacit_status op_vjp_expand(op_diff *c)
{
    c->in_grad[0] = op_diff_sum_to(c, c->out_grad[0], &input_type(c, 0)->shape);
    return c->status;
}

tacit_status op_vjp_concat(op_diff *c)
{
    int64_t axis = ir_attr_int(c->node, "axis", 0), at = 0;
    axis += axis < 0 ? input_type(c, 0)->shape.rank : 0;
    for (uint32_t i = 0; i < c->node->n_inputs; i++) {
        int64_t size = input_type(c, i)->shape.dims[axis];
        if (c->wanted[i])
            c->in_grad[i] = cut(c, c->out_grad[0], axis, at, size);
        at += size;
    }
    return c->status;
}

tacit_status op_vjp_split(op_diff *c)
{
    int64_t axis = ir_attr_int(c->node, "axis", 0);
    axis += axis < 0 ? input_type(c, 0)->shape.rank : 0;
    ir_value **parts = op_spell_scratch(c, (c->node->n_outputs + 1u) * sizeof(ir_value *));
    for (uint32_t i = 0; parts && i < c->node->n_outputs; i++) {
        parts[i] = c->out_grad[i];
        if (!parts[i])
            parts[i] = op_diff_output(c, i);
        if (parts[i] && !c->out_grad[i])
            parts[i] = op_diff_zeros(c, &parts[i]->type);
    }
    if (c->status != TACIT_OK)
        return c->status;
    ir_node *n = op_node(c->graph, "Concat", NULL, c->node->n_outputs, parts);
    if (!n || !ir_attr_set_int(c->graph, n, "axis", axis))
        return c->status = error_memory(c->err, "a gradient graph");
    c->status = op_infer_node(c->graph, n, c->err);
    c->in_grad[0] = n->outputs[0];
    return c->status;
}

/* Element i of g goes to start + i·step along the axis of a zero tensor of size `full`. */
static ir_value *spread_axis(op_diff *c, ir_value *g, int32_t axis, int64_t full, int64_t start,
                             int64_t step)
{
    if (!g)
        return NULL;
    int64_t n = g->type.shape.dims[axis];
    if (step == 1) {
        int64_t before[IR_MAX_RANK] = {0}, after[IR_MAX_RANK] = {0};
        before[axis] = start;
        after[axis] = full - start - n;
        return surround(c, g, before, after);
    }
    ir_tensor *t = ir_tensor_new(c->graph->memory, TACIT_I64, &(ir_shape){.rank = 1, .dims = {n}});
    if (!t) {
        c->status = error_memory(c->err, "a gradient graph");
        return NULL;
    }
    for (int64_t i = 0; i < n; i++)
        ((int64_t *)t->data)[i] = start + i * step;
    ir_shape line = {.rank = g->type.shape.rank};
    for (int32_t i = 0; i < line.rank; i++)
        line.dims[i] = i == axis ? n : 1;
    ir_value *index = ir_constant_new(c->graph, "index", t);
    index = op_diff_expand(c, op_diff_reshape(c, index, &line), &g->type.shape);
    ir_type type = g->type;
    type.shape.dims[axis] = full;
    ir_value *d =
        op_diff_open(c, "ScatterElements", 3, (ir_value *[]){op_diff_zeros(c, &type), index, g});
    return op_diff_attr_int(c, d, "axis", axis);
}

tacit_status op_vjp_slice(op_diff *c)
{
    int64_t starts[2 * IR_MAX_RANK] = {0}, axes[2 * IR_MAX_RANK], steps[2 * IR_MAX_RANK];
    uint32_t n, n_axes, n_steps = 0;
    const ir_shape *s = &input_type(c, 0)->shape;
    TRY(known_ints(c, 1, starts, &n));
    for (uint32_t i = 0; i < n; i++) {
        axes[i] = i;
        steps[i] = 1;
    }
    if (c->node->n_inputs > 3 && c->node->inputs[3])
        TRY(known_ints(c, 3, axes, &n_axes));
    if (c->node->n_inputs > 4 && c->node->inputs[4])
        TRY(known_ints(c, 4, steps, &n_steps));
    ir_value *g = c->out_grad[0];
    for (uint32_t i = 0; i < n && g; i++) {
        int32_t axis = (int32_t)(axes[i] < 0 ? axes[i] + s->rank : axes[i]);
        int64_t full = s->dims[axis], start = starts[i] < 0 ? starts[i] + full : starts[i];
        int64_t most = steps[i] < 0 ? full - 1 : full;
        start = start < 0 ? 0 : start > most ? most : start;
        g = spread_axis(c, g, axis, full, start, steps[i]);
    }
    c->in_grad[0] = g;
    return c->status;
}

/* [r₀·d₀, r₁·d₁, …] seen as [r₀, d₀, r₁, d₁, …]: the repeats are summed. */
tacit_status op_vjp_tile(op_diff *c)
{
    int64_t repeats[2 * IR_MAX_RANK] = {0}, axes[IR_MAX_RANK];
    uint32_t n;
    const ir_shape *s = &input_type(c, 0)->shape;
    TRY(known_ints(c, 1, repeats, &n));
    if (2 * s->rank > IR_MAX_RANK)
        return op_diff_fail(c, TACIT_ERR_LIMIT, "too many axes for its gradient");
    ir_shape split = {.rank = 2 * s->rank};
    for (int32_t i = 0; i < s->rank; i++) {
        split.dims[2 * i] = repeats[i];
        split.dims[2 * i + 1] = s->dims[i];
        axes[i] = 2 * i;
    }
    ir_value *d = op_diff_reshape(c, c->out_grad[0], &split);
    c->in_grad[0] = op_diff_sum(c, d, (uint32_t)s->rank, axes, false);
    return c->status;
}

tacit_status op_vjp_trilu(op_diff *c)
{
    ir_value *k = c->node->n_inputs > 1 ? c->node->inputs[1] : NULL;
    ir_value *d = op_diff_open(c, "Trilu", k ? 2 : 1, (ir_value *[]){c->out_grad[0], k});
    c->in_grad[0] = op_diff_attr_int(c, d, "upper", ir_attr_int(c->node, "upper", 1));
    return c->status;
}

/* Rows go back to where they came from, adding up. The gathered axis is moved to the front, where
 * ScatterND adds whole rows. */
tacit_status op_vjp_gather(op_diff *c)
{
    const ir_shape *s = &input_type(c, 0)->shape, *is = &input_type(c, 1)->shape;
    int64_t axis = ir_attr_int(c->node, "axis", 0);
    axis += axis < 0 ? s->rank : 0;
    /* g is [pre, index, post]; wanted: [index, pre, post] */
    int64_t perm[IR_MAX_RANK], back[IR_MAX_RANK];
    int32_t n = 0, rank = s->rank + is->rank - 1;
    for (int32_t i = 0; i < is->rank; i++)
        perm[n++] = axis + i;
    for (int32_t i = 0; i < rank; i++)
        if (i < axis || i >= axis + is->rank)
            perm[n++] = i;
    ir_value *g = axis ? op_diff_transpose(c, c->out_grad[0], perm) : c->out_grad[0];
    ir_type table = *input_type(c, 0);
    table.shape.dims[0] = s->dims[axis];
    back[axis] = 0;
    for (int32_t i = 0, k = 1; i < s->rank; i++)
        if (i != axis) {
            table.shape.dims[k] = s->dims[i];
            back[i] = k++;
        }
    int64_t last = -1;
    ir_value *index = op_diff2(c, "Unsqueeze", c->node->inputs[1], op_diff_ints(c, 1, &last));
    ir_value *d = op_diff3(c, "ScatterND", op_diff_zeros(c, &table), index, g);
    d = op_spell_attr_string(c, d, "reduction", "add");
    c->in_grad[0] = axis ? op_diff_transpose(c, d, back) : d;
    return c->status;
}

tacit_status op_vjp_gather_elements(op_diff *c)
{
    ir_value *zeros = op_diff_zeros(c, input_type(c, 0));
    ir_value *d = op_diff_open(c, "ScatterElements", 3,
                               (ir_value *[]){zeros, c->node->inputs[1], c->out_grad[0]});
    d = op_diff_attr_int(c, d, "axis", ir_attr_int(c->node, "axis", 0));
    c->in_grad[0] = op_spell_attr_string(c, d, "reduction", "add");
    return c->status;
}
