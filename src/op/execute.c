/* SPDX-License-Identifier: Apache-2.0
 * Running one node's evaluator: infer from the actual inputs, allocate, evaluate. */
#include <string.h>

#include "op/op.h"

tacit_status op_eval_alloc(op_eval *c, uint32_t i, tacit_dtype dtype, const ir_shape *shape)
{
    ir_tensor *t = c->out[i];
    ir_type type = {.kind = IR_TENSOR, .dtype = dtype, .shape = *shape};
    size_t bytes;
    if (!ir_type_bytes(&type, &bytes))
        return error_set(c->err, TACIT_ERR_LIMIT, "output %u is too large", i);
    void *data = arena_alloc_aligned(c->memory, bytes ? bytes : 1, MEM_ALIGN);
    if (!data)
        return error_memory(c->err, "an output tensor");
    if (tacit_dtype_bits(dtype) < 8 || dtype == TACIT_STRING)
        memset(data, 0, bytes);
    *t = ir_tensor_view(dtype, shape, data);
    return TACIT_OK;
}

tacit_status op_eval_sequence(op_eval *c, uint32_t i, tacit_dtype dtype, uint32_t count)
{
    ir_tensor *t = c->out[i];
    ir_tensor *items = ARENA_ARRAY(c->memory, count + 1u, ir_tensor);
    if (!items)
        return error_memory(c->err, "a sequence");
    *t = (ir_tensor){.kind = IR_SEQUENCE, .dtype = dtype, .shape.rank = -1, .present = true};
    t->items = items;
    t->count = count;
    return TACIT_OK;
}

tacit_status op_eval_copy(op_eval *c, ir_tensor *to, const ir_tensor *from)
{
    if (to->data && from->data && to->bytes == from->bytes && from->dtype != TACIT_STRING) {
        if (to->data != from->data)
            memcpy(to->data, from->data, from->bytes); /* the output's own memory */
        return TACIT_OK;
    }
    const ir_tensor *copy = ir_tensor_copy(c->memory, from);
    if (!copy)
        return error_memory(c->err, "a copied tensor");
    *to = *copy;
    return TACIT_OK;
}

void *op_eval_scratch(op_eval *c, size_t bytes)
{
    return arena_alloc_aligned(c->scratch, bytes, MEM_ALIGN);
}

/* Output types from the actual inputs; outputs whose type stays open are left without data. */
static tacit_status prepare_outputs(op_eval *c, ir_type *types)
{
    const ir_node *node = c->node;
    if (!node->op->infer || node->op->flags & OP_CONTROL)
        return TACIT_OK;
    const ir_type **in = ARENA_ARRAY(c->scratch, c->n_in + 1u, const ir_type *);
    ir_type *in_types = ARENA_ARRAY(c->scratch, c->n_in + 1u, ir_type);
    const ir_tensor **known = ARENA_ARRAY(c->scratch, c->n_out + 1u, const ir_tensor *);
    if (!in || !in_types || !known)
        return error_memory(c->err, "evaluating a node");
    for (uint32_t i = 0; i < c->n_in; i++) {
        if (!c->in[i])
            continue;
        if (c->in[i]->kind != IR_TENSOR && !(node->op->flags & OP_ANY_KIND))
            return error_set(c->err, TACIT_ERR_TYPE, "input %u must be a tensor", i);
        in_types[i] = ir_tensor_type(c->in[i]);
        in[i] = &in_types[i];
    }
    op_infer infer = {.node = node,
                      .n_in = c->n_in,
                      .n_out = c->n_out,
                      .in = in,
                      .value = c->in,
                      .out = types,
                      .known = known,
                      .memory = c->scratch,
                      .err = c->err};
    TRY(node->op->infer(&infer));
    for (uint32_t i = 0; i < c->n_out; i++)
        if (c->out[i] && ir_type_is_static(&types[i]))
            TRY(op_eval_alloc(c, i, types[i].dtype, &types[i].shape));
        else if (c->out[i])
            *c->out[i] = (ir_tensor){
                .kind = types[i].kind, .dtype = types[i].dtype, .shape = types[i].shape};
    return TACIT_OK;
}

/* Strings of an output may point into inputs or scratch: give them bytes of their own. */
static tacit_status own_strings(arena *memory, ir_tensor *t, tacit_error *err)
{
    for (uint32_t i = 0; i < t->count; i++)
        TRY(own_strings(memory, &t->items[i], err));
    if (t->dtype != TACIT_STRING || !t->data)
        return TACIT_OK;
    ir_string *s = t->data;
    for (int64_t i = 0, n = ir_tensor_count(t); i < n; i++) {
        s[i].data = arena_strndup(memory, s[i].data ? s[i].data : "", s[i].length);
        if (!s[i].data)
            return error_memory(err, "strings");
    }
    return TACIT_OK;
}

static tacit_status execute_in(arena *scratch, const ir_node *node, const ir_tensor *const *inputs,
                               ir_tensor *results, const op_exec_env *env, tacit_error *err)
{
    ir_tensor **out = ARENA_ARRAY(scratch, node->n_outputs + 1u, ir_tensor *);
    ir_type *types = ARENA_ARRAY(scratch, node->n_outputs + 1u, ir_type);
    if (!out || !types)
        return error_memory(err, "evaluating a node");
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        results[i] = (ir_tensor){0};
        out[i] = node->outputs[i] ? &results[i] : NULL;
        types[i].shape.rank = -1;
    }
    op_eval c = {.node = node,
                 .n_in = node->n_inputs,
                 .n_out = node->n_outputs,
                 .in = inputs,
                 .out = out,
                 .memory = env->memory,
                 .scratch = scratch,
                 .run_graph = env->run_graph,
                 .runner = env->runner,
                 .step = env->step,
                 .err = err};
    TRY(prepare_outputs(&c, types));
    TRY(node->op->eval(&c));
    for (uint32_t i = 0; i < node->n_outputs; i++)
        TRY(own_strings(env->memory, &results[i], err));
    return TACIT_OK;
}

tacit_status op_execute(const ir_node *node, const ir_tensor *const *inputs, ir_tensor *results,
                        const op_exec_env *env, tacit_error *err)
{
    if (!node->op || !node->op->eval)
        return op_no_rule(node, "eval", err);
    tacit_status arity = op_check_arity(node, err); /* nodes of subgraphs were never inferred */
    if (arity != TACIT_OK)
        return op_context(node, arity, err);
    arena scratch;
    arena_init(&scratch, env->memory->allocator);
    tacit_status status = execute_in(&scratch, node, inputs, results, env, err);
    arena_free(&scratch);
    return status == TACIT_OK ? status : op_context(node, status, err);
}
