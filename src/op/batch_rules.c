/* SPDX-License-Identifier: Apache-2.0
 * Batching rules by family. The batch is always the leading axis; a rule that meets operands it
 * does not know how to batch at once makes one node per entry (op_batch_unroll). */
#include <string.h>

#include "op/vjp.h"

/* Is input i, and no other, batched? */
static bool only(const op_batch *c, uint32_t i)
{
    for (uint32_t k = 0; k < c->node->n_inputs; k++)
        if (c->batched[k] != (k == i))
            return false;
    return true;
}

/* [B, shape] */
static ir_shape with_batch(const op_batch *c, const ir_shape *shape)
{
    ir_shape s = {.rank = shape->rank + 1, .dims = {c->size}};
    memcpy(s.dims + 1, shape->dims, (size_t)shape->rank * sizeof *s.dims);
    return s;
}

static const ir_shape *in_shape(const op_batch *c, uint32_t i)
{
    return &c->node->inputs[i]->type.shape;
}

/* Keeps the only output that is wanted, in its batched shape. */
static tacit_status settle(op_batch *c, ir_value *y)
{
    ir_shape s = with_batch(c, &c->node->outputs[0]->type.shape);
    c->out[0] = op_diff_reshape(&c->build, y, &s);
    return c->build.status;
}

static bool more_outputs(const op_batch *c)
{
    for (uint32_t i = 1; i < c->node->n_outputs; i++)
        if (c->node->outputs[i])
            return true;
    return false;
}

/* The node on other inputs with integer attribute `name` set; infers again. */
static ir_node *copy_with(op_batch *c, ir_value *const *inputs, const char *name, int64_t value)
{
    op_diff *b = &c->build;
    ir_node *n = ir_node_new(b->graph, c->node->type, c->node->domain, c->node->name,
                             c->node->n_inputs, inputs, c->node->n_outputs, NULL);
    if (!n || !ir_attr_copy_all(b->graph, n, c->node) ||
        (name && !ir_attr_set_int(b->graph, n, name, value))) {
        b->status = error_memory(b->err, "a batched graph");
        return NULL;
    }
    n->op = c->node->op;
    b->status = op_infer_node(b->graph, n, b->err);
    return b->status == TACIT_OK ? n : NULL;
}

static tacit_status keep_outputs(op_batch *c, const ir_node *n)
{
    for (uint32_t i = 0; n && i < n->n_outputs; i++)
        c->out[i] = n->outputs[i];
    return c->build.status;
}

/* Any op that only says anew what the axes are. */
tacit_status op_batch_relabel(op_batch *c)
{
    return only(c, 0) ? settle(c, c->in[0]) : op_batch_unroll(c);
}

tacit_status op_batch_transpose(op_batch *c)
{
    int64_t perm[IR_MAX_RANK] = {0};
    int32_t rank = in_shape(c, 0)->rank;
    uint32_t n;
    const int64_t *own = ir_attr_ints(c->node, "perm", &n);
    for (int32_t i = 0; i < rank; i++)
        perm[i + 1] = 1 + (own ? own[i] : rank - 1 - i);
    c->out[0] = op_diff_transpose(&c->build, c->in[0], perm);
    return c->build.status;
}

/* An operand as matrices of `rank` axes, the batch in front of them. */
static ir_value *as_matrices(op_batch *c, uint32_t i, int32_t rank)
{
    const ir_shape *own = in_shape(c, i);
    ir_shape s = {.rank = rank};
    int32_t used = own->rank;
    for (int32_t d = 0; d < rank; d++)
        s.dims[d] = 1;
    if (own->rank == 1)
        used = 2;
    for (int32_t d = 0; d < own->rank; d++)
        s.dims[rank - used + d + (own->rank == 1 && i == 0)] = own->dims[d];
    if (!c->batched[i]) /* no axes in front: broadcasting adds them */
        return op_diff_reshape(&c->build, c->in[i], &s);
    s = with_batch(c, &s);
    return op_diff_reshape(&c->build, c->in[i], &s);
}

tacit_status op_batch_matmul(op_batch *c)
{
    int32_t a = in_shape(c, 0)->rank, b = in_shape(c, 1)->rank, rank = a > b ? a : b;
    rank = rank < 2 ? 2 : rank;
    if (rank >= IR_MAX_RANK)
        return op_batch_unroll(c);
    ir_value *y = op_diff2(&c->build, "MatMul", as_matrices(c, 0, rank), as_matrices(c, 1, rank));
    return y ? settle(c, y) : c->build.status;
}

/* Axes move by one. */
tacit_status op_batch_reduce(op_batch *c)
{
    const ir_value *axes = c->node->n_inputs > 1 ? c->node->inputs[1] : NULL;
    const ir_tensor *known = ir_value_known(axes);
    int32_t rank = in_shape(c, 0)->rank;
    int64_t list[IR_MAX_RANK];
    uint32_t n = 0;
    if (!only(c, 0) || (axes && !known))
        return op_batch_unroll(c);
    if (known)
        TRY(op_read_ints(known, list, IR_MAX_RANK, &n, c->build.err));
    if (n == 0 && ir_attr_int(c->node, "noop_with_empty_axes", 0))
        return op_batch_unroll(c);
    if (n == 0)
        for (int32_t i = 0; i < rank; i++)
            list[n++] = i;
    if (n == 0) /* single numbers: nothing to reduce */
        return op_batch_unroll(c);
    for (uint32_t i = 0; i < n; i++)
        list[i] += list[i] < 0 ? rank + 1 : 1;
    ir_value *in[2] = {c->in[0], op_diff_ints(&c->build, n, list)};
    ir_value *y = op_diff_open(&c->build, c->node->type, 2, in);
    c->out[0] = op_diff_attr_int(&c->build, y, "keepdims", ir_attr_int(c->node, "keepdims", 1));
    return c->build.status;
}

/* An attribute "axis" moves by one: Softmax and what else works along one axis of one input. */
tacit_status op_batch_axis(op_batch *c)
{
    int64_t axis = ir_attr_int(c->node, "axis", -1);
    if (!only(c, 0) || in_shape(c, 0)->rank == 0)
        return op_batch_unroll(c);
    return keep_outputs(c, copy_with(c, c->in, "axis", axis < 0 ? axis : axis + 1));
}

tacit_status op_batch_concat(op_batch *c)
{
    int64_t axis = ir_attr_int(c->node, "axis", 0);
    for (uint32_t i = 0; i < c->node->n_inputs; i++)
        c->in[i] = op_batch_input(c, i);
    if (c->build.status != TACIT_OK)
        return c->build.status;
    return keep_outputs(c, copy_with(c, c->in, "axis", axis < 0 ? axis : axis + 1));
}

tacit_status op_batch_gather(op_batch *c)
{
    int64_t axis = ir_attr_int(c->node, "axis", 0);
    int32_t rank = in_shape(c, 0)->rank;
    axis += axis < 0 ? rank : 0;
    if (only(c, 0))
        return keep_outputs(c, copy_with(c, c->in, "axis", axis + 1));
    if (!only(c, 1))
        return op_batch_unroll(c);
    /* data[…, idx[B, …], …]: the batch stands where the axis was and goes to the front. */
    ir_node *n = copy_with(c, c->in, NULL, 0);
    int64_t perm[IR_MAX_RANK] = {axis};
    for (int64_t i = 0; n && i + 1 < n->outputs[0]->type.shape.rank; i++)
        perm[i + 1] = i < axis ? i : i + 1;
    c->out[0] = n && axis ? op_diff_transpose(&c->build, n->outputs[0], perm)
                : n       ? n->outputs[0]
                          : NULL;
    return c->build.status;
}

tacit_status op_batch_slice(op_batch *c)
{
    const ir_node *n = c->node;
    const ir_tensor *starts = ir_value_known(n->inputs[1]);
    const ir_value *axes = n->n_inputs > 3 ? n->inputs[3] : NULL;
    const ir_tensor *known = ir_value_known(axes);
    int64_t list[IR_MAX_RANK];
    uint32_t count = 0;
    if (!only(c, 0) || !starts || (axes && !known))
        return op_batch_unroll(c);
    if (known)
        TRY(op_read_ints(known, list, IR_MAX_RANK, &count, c->build.err));
    else
        for (; (int64_t)count < ir_tensor_count(starts) && count < IR_MAX_RANK; count++)
            list[count] = count;
    for (uint32_t i = 0; i < count; i++)
        list[i] += list[i] < 0 ? 0 : 1;
    ir_value *in[5] = {c->in[0], c->in[1], c->in[2], op_diff_ints(&c->build, count, list),
                       n->n_inputs > 4 ? c->in[4] : NULL};
    c->out[0] = in[3] ? op_diff_node(&c->build, "Slice", n->n_inputs > 4 ? 5 : 4, in) : NULL;
    return c->build.status;
}

tacit_status op_batch_expand(op_batch *c)
{
    const ir_shape *own = in_shape(c, 0), *y = &c->node->outputs[0]->type.shape;
    if (!only(c, 0))
        return op_batch_unroll(c);
    ir_shape aligned = {.rank = y->rank}, to = with_batch(c, y);
    for (int32_t i = 0; i < y->rank; i++)
        aligned.dims[i] = i < y->rank - own->rank ? 1 : own->dims[i - (y->rank - own->rank)];
    aligned = with_batch(c, &aligned);
    ir_value *x = op_diff_reshape(&c->build, c->in[0], &aligned);
    c->out[0] = op_diff_expand(&c->build, x, &to);
    return c->build.status;
}

tacit_status op_batch_solve(op_batch *c)
{
    ir_value *a = op_batch_input(c, 0), *b = op_batch_input(c, 1);
    c->out[0] = op_diff2(&c->build, "tacit.Solve", a, b);
    return c->build.status;
}

/* Ops over [N, …] whose samples do not meet: batch and N become one axis. */
tacit_status op_batch_samples(op_batch *c)
{
    const ir_shape *x = in_shape(c, 0);
    if (!only(c, 0) || more_outputs(c) || x->rank < 1)
        return op_batch_unroll(c);
    ir_shape joined = *x;
    joined.dims[0] *= c->size;
    ir_value *in[8];
    if (c->node->n_inputs > 8)
        return op_batch_unroll(c);
    memcpy(in, c->in, c->node->n_inputs * sizeof *in);
    in[0] = op_diff_reshape(&c->build, c->in[0], &joined);
    ir_node *n = in[0] ? copy_with(c, in, NULL, 0) : NULL;
    return n ? settle(c, n->outputs[0]) : c->build.status;
}
