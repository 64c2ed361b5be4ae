/* SPDX-License-Identifier: Apache-2.0
 * Eval thunks: an op without a kernel for these types runs its reference evaluator on the planned
 * memory. Slow and allocating, but every op with an evaluator runs from the first day. */
#include <string.h>

#include "op/loop.h"
#include "prog/program.h"

/* Pointers follow: inputs, then outputs. */
typedef struct eval_args {
    prog_state *state;
    const ir_node *node;
    const op_operand *in, *out;
    void *pointers[];
} eval_args;

/* A dense copy of a strided operand. */
static tacit_status densify(const op_operand *o, const void *data, arena *memory, ir_tensor *out,
                            tacit_error *err)
{
    ir_tensor *t = ir_tensor_new(memory, o->type.dtype, &o->type.shape);
    if (!t)
        return error_memory(err, "a dense copy");
    op_loop l;
    op_loop_begin(&l, &o->type.shape);
    op_loop_strided(&l, o->strides, 0);
    for (; !op_loop_done(&l); op_loop_next(&l))
        ir_copy_element(t->dtype, t->data, l.linear, data, l.at[0]);
    *out = *t;
    return TACIT_OK;
}

static tacit_status run_graph_refused(op_eval *c, const ir_graph *sub, uint32_t n_args,
                                      const ir_tensor *const *args, uint32_t n_results,
                                      ir_tensor *results)
{
    (void)sub;
    (void)n_args;
    (void)args;
    (void)n_results;
    (void)results;
    return error_set(c->err, TACIT_ERR_INTERNAL, "a subgraph inside an eval thunk");
}

/* An evaluator may have given its output other memory than it was offered. */
static tacit_status settle(const ir_tensor *t, const op_operand *o, void *data, tacit_error *err)
{
    if (t->data == data)
        return TACIT_OK;
    char want[IR_SHAPE_TEXT], got[IR_SHAPE_TEXT];
    size_t bytes = 0;
    if (t->kind != IR_TENSOR || t->dtype != o->type.dtype ||
        !ir_shape_equal(&t->shape, &o->type.shape) || !ir_type_bytes(&o->type, &bytes) ||
        t->bytes != bytes)
        return error_set(err, TACIT_ERR_INTERNAL, "the evaluator made %s where %s was inferred",
                         ir_shape_text(&t->shape, got), ir_shape_text(&o->type.shape, want));
    if (t->bytes)
        memcpy(data, t->data, t->bytes);
    return TACIT_OK;
}

static tacit_status evaluate(const eval_args *a, arena *memory, tacit_error *err)
{
    const ir_node *node = a->node;
    uint32_t n_in = node->n_inputs, n_out = node->n_outputs;
    ir_tensor *tensors = ARENA_ARRAY(memory, (size_t)n_in + n_out + 1u, ir_tensor);
    const ir_tensor **in = ARENA_ARRAY(memory, n_in + 1u, const ir_tensor *);
    ir_tensor **out = ARENA_ARRAY(memory, n_out + 1u, ir_tensor *);
    if (!tensors || !in || !out)
        return error_memory(err, "evaluating a node");
    for (uint32_t i = 0; i < n_in; i++) {
        const op_operand *o = &a->in[i];
        if (!o->value)
            continue;
        in[i] = &tensors[i];
        if (o->dense)
            tensors[i] = ir_tensor_view(o->type.dtype, &o->type.shape, a->pointers[i]);
        else
            TRY(densify(o, a->pointers[i], memory, &tensors[i], err));
    }
    for (uint32_t i = 0; i < n_out; i++) {
        const op_operand *o = &a->out[i];
        if (!o->value)
            continue;
        out[i] = &tensors[n_in + i];
        *out[i] = ir_tensor_view(o->type.dtype, &o->type.shape, a->pointers[n_in + i]);
        bool in_place = false;
        for (uint32_t k = 0; k < n_in; k++)
            in_place |= a->in[k].value && a->pointers[k] == out[i]->data;
        if (tacit_dtype_bits(o->type.dtype) < 8 && !in_place)
            memset(out[i]->data, 0, out[i]->bytes);
    }
    arena scratch;
    arena_init(&scratch, memory->allocator);
    op_eval c = {.node = node,
                 .n_in = n_in,
                 .n_out = n_out,
                 .in = in,
                 .out = out,
                 .memory = memory,
                 .scratch = &scratch,
                 .run_graph = run_graph_refused,
                 .step = a->state->step,
                 .err = err};
    tacit_status status = node->op->eval(&c);
    arena_free(&scratch);
    for (uint32_t i = 0; status == TACIT_OK && i < n_out; i++)
        if (out[i])
            status = settle(out[i], &a->out[i], a->pointers[n_in + i], err);
    return status;
}

static void eval_kernel(const void *args, uint32_t begin, uint32_t end)
{
    const eval_args *a = args;
    arena memory;
    if (begin >= end)
        return;
    tacit_error err = {0};
    arena_init(&memory, a->state->allocator);
    tacit_status status = evaluate(a, &memory, &err);
    arena_free(&memory);
    int32_t none = CPU_FAULT_NONE;
    /* The first failing thunk of a run owns the message. */
    if (status != TACIT_OK &&
        __atomic_compare_exchange_n(&a->state->fault.code, &none, (int32_t)CPU_FAULT_EVAL, 0,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        err.status = status;
        a->state->error = err;
    }
}

tacit_status prog_lower_eval(op_lower *c)
{
    const ir_node *node = c->node;
    if (!node->op->eval)
        return op_no_rule(node, "eval", c->err);
    uint32_t n_in = node->n_inputs, n_out = node->n_outputs;
    size_t size = sizeof(eval_args) + ((size_t)n_in + n_out) * sizeof(void *);
    eval_args *a = op_lower_thunk(c, "eval", eval_kernel, size, 1);
    op_operand *operands = arena_copy(c->memory, c->in, (size_t)n_in * sizeof *c->in);
    op_operand *results = arena_copy(c->memory, c->out, (size_t)n_out * sizeof *c->out);
    if (!a || !operands || !results)
        return error_memory(c->err, "thunk arguments");
    a->node = node;
    a->in = operands;
    a->out = results;
    TRY(op_lower_fault(c, offsetof(eval_args, state)));
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n_in + n_out; i++) {
        bool output = i >= n_in;
        uint32_t k = output ? i - n_in : i;
        size_t field = offsetof(eval_args, pointers) + i * sizeof(void *), more = 0;
        const ir_value *v = output ? node->outputs[k] : node->inputs[k];
        if (!v)
            continue;
        (void)ir_type_bytes(&v->type, &more);
        bytes += more;
        TRY(output ? op_lower_out(c, field, k) : op_lower_in(c, field, k));
    }
    op_lower_cost(c, 0, bytes);
    return TACIT_OK;
}
