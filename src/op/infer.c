/* SPDX-License-Identifier: Apache-2.0
 * Inference over a graph: bind symbols, then types and small known values in order. */
#include <string.h>

#include "op/op.h"

/* Known values larger than this are left to constant folding, which has a budget. */
enum { KNOWN_BYTES = 64 * 1024, KNOWN_NUMBERS = 1024 };

static tacit_status bind_shape(const ir_graph *top, ir_shape *s, const char *what, tacit_error *err)
{
    for (int32_t i = 0; i < s->rank; i++) {
        if (!ir_dim_is_symbol(s->dims[i]))
            continue;
        const ir_symbol *symbol = &top->symbols.data[-1 - s->dims[i]];
        if (symbol->value < 0)
            return error_set(err, TACIT_ERR_ARGUMENT,
                             "dimension '%s' of '%s' has no value: bind it (--dim %s=…)",
                             symbol->name, what, symbol->name);
        s->dims[i] = symbol->value;
    }
    return TACIT_OK;
}

tacit_status op_bind_symbols(ir_graph *g, uint32_t n, const op_binding *bindings, tacit_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        bool found = false;
        for (uint32_t k = 0; k < g->symbols.count; k++)
            if (strcmp(g->symbols.data[k].name, bindings[i].symbol) == 0) {
                g->symbols.data[k].value = bindings[i].value;
                found = true;
            }
        if (!found)
            return error_set(err, TACIT_ERR_ARGUMENT, "the model has no dimension named '%s'",
                             bindings[i].symbol);
        if (bindings[i].value < 0)
            return error_set(err, TACIT_ERR_ARGUMENT, "dimension '%s' must not be negative",
                             bindings[i].symbol);
    }
    for (uint32_t i = 0; i < g->inputs.count; i++)
        TRY(bind_shape(g, &g->inputs.data[i]->type.shape, g->inputs.data[i]->name, err));
    return TACIT_OK;
}

static bool inputs_are_static(const ir_node *node)
{
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] && !ir_type_is_static(&node->inputs[i]->type))
            return false;
    return true;
}

tacit_status op_check_arity(const ir_node *n, tacit_error *err)
{
    const op_def *op = n->op;
    bool in_ok =
        (int)n->n_explicit >= op->min_in && (op->max_in < 0 || (int)n->n_explicit <= op->max_in);
    bool out_ok =
        (int)n->n_outputs >= op->min_out && (op->max_out < 0 || (int)n->n_outputs <= op->max_out);
    if (!in_ok)
        return error_set(err, TACIT_ERR_GRAPH, "%u inputs, expected %d to %d", n->n_explicit,
                         op->min_in, op->max_in);
    if (!out_ok)
        return error_set(err, TACIT_ERR_GRAPH, "%u outputs, expected %d to %d", n->n_outputs,
                         op->min_out, op->max_out);
    /* Of a list of any length every entry counts; control flow has its own optional inputs. */
    int needed = op->max_in < 0 && !(op->flags & OP_CONTROL) ? (int)n->n_explicit : op->min_in;
    for (int i = 0; i < needed; i++)
        if (!n->inputs[i])
            return error_set(err, TACIT_ERR_GRAPH, "required input %d is missing", i);
    return TACIT_OK;
}

/* The rule's answers become the node's output types. */
static tacit_status apply_infer(ir_node *node, arena *scratch, arena *memory, tacit_error *err)
{
    const ir_type **in = ARENA_ARRAY(scratch, node->n_inputs + 1u, const ir_type *);
    const ir_tensor **value = ARENA_ARRAY(scratch, node->n_inputs + 1u, const ir_tensor *);
    const ir_tensor **known = ARENA_ARRAY(scratch, node->n_outputs + 1u, const ir_tensor *);
    ir_type *out = ARENA_ARRAY(scratch, node->n_outputs + 1u, ir_type);
    if (!in || !value || !known || !out)
        return error_memory(err, "inferring types");
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        in[i] = node->inputs[i] ? &node->inputs[i]->type : NULL;
        value[i] = ir_value_known(node->inputs[i]);
        /* What has no elements is known, whoever makes it. */
        int64_t count;
        if (!value[i] && in[i] && ir_type_is_static(in[i]) && in[i]->dtype != TACIT_STRING &&
            ir_shape_count(&in[i]->shape, &count) && count == 0)
            value[i] = ir_tensor_new(memory, in[i]->dtype, &in[i]->shape);
    }
    op_infer c = {.node = node,
                  .n_in = node->n_inputs,
                  .n_out = node->n_outputs,
                  .in = in,
                  .value = value,
                  .out = out,
                  .known = known,
                  .memory = memory,
                  .err = err};
    TRY(node->op->infer(&c));
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        ir_value *v = node->outputs[i];
        if (!v)
            continue;
        size_t bytes;
        if (ir_type_is_static(&out[i]) && !ir_type_bytes(&out[i], &bytes))
            return error_set(err, TACIT_ERR_LIMIT, "output %u is too large to address", i);
        v->type = out[i];
        v->constant = known[i];
    }
    return TACIT_OK;
}

tacit_status op_infer_node(ir_graph *g, ir_node *node, tacit_error *err)
{
    if (!node->op)
        return op_no_rule(node, "infer", err);
    tacit_status status = op_check_arity(node, err);
    bool open = !node->op->infer || !inputs_are_static(node);
    if (status == TACIT_OK && !node->op->infer && !(node->op->flags & (OP_CONTROL | OP_DATA_SHAPE)))
        return op_no_rule(node, "infer", err);
    if (status != TACIT_OK || open)
        return status == TACIT_OK ? status : op_context(node, status, err);
    arena scratch;
    arena_init(&scratch, g->memory->allocator);
    status = apply_infer(node, &scratch, g->memory, err);
    arena_free(&scratch);
    return status == TACIT_OK ? status : op_context(node, status, err);
}

/* Numbers from bytes, and more than a few: weights, of which no shape is computed. */
static bool dequantises(const ir_node *node, size_t bytes)
{
    const ir_value *x = node->n_inputs ? node->inputs[0] : NULL, *y = node->outputs[0];
    return bytes > KNOWN_NUMBERS && x && y && ir_dtype_is_float(y->type.dtype) &&
           tacit_dtype_bits(x->type.dtype) <= 8;
}

/* All inputs known, results small: evaluate now so that shapes computed from them are known. */
static bool worth_evaluating(const ir_node *node)
{
    if (!node->op->eval || node->op->flags & (OP_RANDOM | OP_CONTROL) || node->n_outputs == 0)
        return false;
    size_t total = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] && !ir_value_known(node->inputs[i]))
            return false;
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        size_t bytes = 0;
        const ir_value *v = node->outputs[i];
        if (!v)
            continue;
        if (v->constant || v->type.dtype == TACIT_STRING)
            return false;
        if (v->type.kind != IR_TENSOR)
            return false;
        if (ir_type_is_static(&v->type) && !ir_type_bytes(&v->type, &bytes))
            return false;
        total += bytes;
    }
    return total <= KNOWN_BYTES && !dequantises(node, total);
}

static tacit_status evaluate_known(ir_graph *g, ir_node *node, tacit_error *err)
{
    arena scratch;
    arena_init(&scratch, g->memory->allocator);
    const ir_tensor **in = ARENA_ARRAY(&scratch, node->n_inputs + 1u, const ir_tensor *);
    ir_tensor *out = ARENA_ARRAY(g->memory, node->n_outputs + 1u, ir_tensor);
    tacit_status status = in && out ? TACIT_OK : error_memory(err, "inferring values");
    for (uint32_t i = 0; status == TACIT_OK && i < node->n_inputs; i++)
        in[i] = ir_value_known(node->inputs[i]);
    op_exec_env env = {.memory = g->memory};
    if (status == TACIT_OK)
        status = op_execute(node, in, out, &env, err);
    for (uint32_t i = 0; status == TACIT_OK && i < node->n_outputs; i++) {
        ir_value *v = node->outputs[i];
        if (!v || out[i].kind != IR_TENSOR)
            continue;
        v->constant = &out[i];
        v->type = ir_tensor_type(&out[i]);
    }
    arena_free(&scratch);
    return status;
}

tacit_status op_infer_graph(ir_graph *g, tacit_error *err)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        ir_node *node = g->nodes.data[i];
        TRY(op_infer_node(g, node, err));
        if (worth_evaluating(node))
            TRY(evaluate_known(g, node, err));
    }
    return TACIT_OK;
}
