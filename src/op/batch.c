/* SPDX-License-Identifier: Apache-2.0
 * Batching rules that many rows share. */
#include "op/diff.h"

ir_value *op_batch_input(op_batch *c, uint32_t i)
{
    ir_value *x = c->in[i];
    if (!x || c->batched[i])
        return x;
    ir_shape shape = {.rank = x->type.shape.rank + 1};
    shape.dims[0] = c->size;
    for (int32_t d = 0; d < x->type.shape.rank; d++)
        shape.dims[d + 1] = x->type.shape.dims[d];
    return op_diff_expand(&c->build, x, &shape);
}

ir_node *op_batch_copy(op_batch *c, ir_value *const *inputs)
{
    op_diff *b = &c->build;
    const ir_node *from = c->node;
    if (b->status != TACIT_OK)
        return NULL;
    ir_node *n = ir_node_new(b->graph, from->type, from->domain, from->name, from->n_inputs, inputs,
                             from->n_outputs, NULL);
    if (!n || !ir_attr_copy_all(b->graph, n, from)) {
        b->status = error_memory(b->err, "a batched graph");
        return NULL;
    }
    n->op = from->op;
    n->n_explicit = from->n_explicit;
    b->status = op_infer_node(b->graph, n, b->err);
    return b->status == TACIT_OK ? n : NULL;
}

tacit_status op_batch_elementwise(op_batch *c)
{
    ir_value *inputs[16];
    int32_t rank = 0;
    if (c->node->n_inputs > 16)
        return op_batch_unroll(c);
    for (uint32_t i = 0; i < c->node->n_inputs; i++)
        if (c->node->inputs[i] && c->node->inputs[i]->type.shape.rank > rank)
            rank = c->node->inputs[i]->type.shape.rank;
    for (uint32_t i = 0; i < c->node->n_inputs; i++) {
        inputs[i] = c->in[i];
        if (!c->in[i] || !c->batched[i])
            continue;
        /* [B, dims] broadcasts against rank-r operands as [B, 1…1, dims]. */
        const ir_shape *own = &c->in[i]->type.shape;
        ir_shape shape = {.rank = rank + 1};
        int32_t gap = rank + 1 - own->rank;
        shape.dims[0] = c->size;
        for (int32_t d = 1; d <= rank; d++)
            shape.dims[d] = d <= gap ? 1 : own->dims[d - gap];
        inputs[i] = op_diff_reshape(&c->build, c->in[i], &shape);
    }
    ir_node *n = op_batch_copy(c, inputs);
    for (uint32_t i = 0; n && i < n->n_outputs; i++)
        c->out[i] = n->outputs[i];
    return c->build.status;
}

/* Entry `b` of a batched value, without the batch axis. */
static ir_value *entry(op_batch *c, ir_value *x, int64_t b)
{
    return op_diff2(&c->build, "Gather", x, op_diff_scalar(&c->build, TACIT_I64, (double)b));
}

/* Stacks parts[0 … size) along a new leading axis. */
static ir_value *stack(op_batch *c, ir_value **parts)
{
    op_diff *b = &c->build;
    for (int64_t i = 0; i < c->size; i++) {
        parts[i] = op_diff2(b, "Unsqueeze", parts[i], op_diff_ints(b, 1, (int64_t[]){0}));
        if (!parts[i])
            return NULL;
    }
    ir_node *n = op_node(b->graph, "Concat", NULL, (uint32_t)c->size, parts);
    if (!n || !ir_attr_set_int(b->graph, n, "axis", 0)) {
        b->status = error_memory(b->err, "a batched graph");
        return NULL;
    }
    b->status = op_infer_node(b->graph, n, b->err);
    return b->status == TACIT_OK ? n->outputs[0] : NULL;
}

tacit_status op_batch_unroll(op_batch *c)
{
    op_diff *b = &c->build;
    const ir_node *node = c->node;
    arena scratch;
    arena_init(&scratch, b->graph->memory->allocator);
    ir_value **inputs = ARENA_ARRAY(&scratch, node->n_inputs + 1u, ir_value *);
    /* parts[output · size + entry] */
    ir_value **parts =
        ARENA_ARRAY(&scratch, (size_t)node->n_outputs * (size_t)c->size + 1, ir_value *);
    if (!inputs || !parts)
        b->status = error_memory(b->err, "a batched graph");
    for (int64_t k = 0; k < c->size && b->status == TACIT_OK; k++) {
        for (uint32_t i = 0; i < node->n_inputs; i++)
            inputs[i] = c->in[i] && c->batched[i] ? entry(c, c->in[i], k) : c->in[i];
        ir_node *copy = op_batch_copy(c, inputs);
        for (uint32_t i = 0; copy && i < node->n_outputs; i++)
            parts[(int64_t)i * c->size + k] = copy->outputs[i];
    }
    for (uint32_t i = 0; i < node->n_outputs && b->status == TACIT_OK; i++)
        if (node->outputs[i])
            c->out[i] = stack(c, parts + (int64_t)i * c->size);
    arena_free(&scratch);
    return b->status;
}
