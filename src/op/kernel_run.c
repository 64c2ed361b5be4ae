/* SPDX-License-Identifier: Apache-2.0
 * Running one node by the kernels that lowering picks for it, without a program around it. */
#include <string.h>

#include "base/alloc.h"
#include "op/lower.h"

bool op_lower_alone(op_lower *c)
{
    ir_node *n = c->node;
    op_operand *in = ARENA_ARRAY(c->memory, n->n_inputs + 1u, op_operand);
    op_operand *out = ARENA_ARRAY(c->memory, n->n_outputs + 1u, op_operand);
    for (uint32_t i = 0; in && out && i < n->n_inputs + n->n_outputs; i++) {
        const ir_value *v = i < n->n_inputs ? n->inputs[i] : n->outputs[i - n->n_inputs];
        op_operand *o = i < n->n_inputs ? &in[i] : &out[i - n->n_inputs];
        if (!v)
            continue;
        if (!ir_type_is_static(&v->type) || v->type.kind != IR_TENSOR)
            return false;
        *o = (op_operand){.type = v->type, .dense = true, .value = v};
        o->constant = v->is_initializer ? v->constant : NULL;
        ir_shape_strides(&v->type.shape, o->strides);
    }
    c->in = in;
    c->out = out;
    return in && out;
}

/* Where a pointer of a thunk's arguments points to. */
static char *bound(const op_bind *b, const ir_tensor *const *in, const ir_tensor *out,
                   char *scratch, cpu_fault *fault)
{
    char *base = b->kind == OP_BIND_INPUT    ? in[b->index]->data
                 : b->kind == OP_BIND_OUTPUT ? out[b->index].data
                 : b->kind == OP_BIND_FAULT  ? (char *)fault
                                             : scratch;
    return base + b->byte_offset;
}

static tacit_status run_thunks(op_lower *c, const ir_tensor *const *in, const ir_tensor *out)
{
    cpu_fault fault = {0};
    char *scratch = arena_alloc_aligned(c->memory, c->scratch + MEM_ALIGN, MEM_ALIGN);
    if (!scratch)
        return error_memory(c->err, "running a node");
    for (uint32_t i = 0; i < c->thunks.count; i++) {
        const op_thunk *t = c->thunks.data[i];
        for (uint32_t k = 0; k < t->binds.count; k++) {
            char *p = bound(&t->binds.data[k], in, out, scratch, &fault);
            memcpy((char *)t->args + t->binds.data[k].field, &p, sizeof p);
        }
        t->fn(t->args, 0, t->tiles);
        if (fault.code)
            return OP_LOWER_NO_KERNEL; /* the evaluator finds words for it */
    }
    return TACIT_OK;
}

static tacit_status make_outputs(op_lower *c, ir_tensor *out, arena *memory)
{
    for (uint32_t i = 0; i < c->node->n_outputs; i++) {
        const ir_value *v = c->node->outputs[i];
        size_t bytes;
        out[i] = (ir_tensor){0};
        if (!v)
            continue;
        if (!ir_type_bytes(&v->type, &bytes))
            return OP_LOWER_NO_KERNEL;
        void *data = arena_alloc_aligned(memory, bytes + 1, MEM_ALIGN);
        if (!data)
            return error_memory(c->err, "an output tensor");
        out[i] = ir_tensor_view(v->type.dtype, &v->type.shape, data);
    }
    return TACIT_OK;
}

tacit_status op_run_kernels(ir_graph *g, ir_node *node, const ir_tensor *const *in, ir_tensor *out,
                            arena *memory, tacit_error *err)
{
    arena own;
    slab constants;
    if (!node->op || !node->op->lower)
        return OP_LOWER_NO_KERNEL;
    arena_init(&own, memory->allocator);
    slab_init(&constants, memory->allocator, 0);
    op_lower c = {.graph = g,
                  .node = node,
                  .cpu = cpu_detect(),
                  .memory = &own,
                  .allocator = memory->allocator,
                  .constants = &constants,
                  .serial = true,
                  .err = err};
    tacit_status status = OP_LOWER_NO_KERNEL;
    if (op_lower_alone(&c) && (status = node->op->lower(&c)) == TACIT_OK &&
        (status = make_outputs(&c, out, memory)) == TACIT_OK)
        status = run_thunks(&c, in, out);
    slab_free(&constants);
    arena_free(&own);
    return status;
}
