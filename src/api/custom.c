/* SPDX-License-Identifier: Apache-2.0
 * Custom operators: a caller's callbacks behind an ordinary op row. */
#include <string.h>

#include "api/internal.h"
#include "op/diff.h"

/* The row comes first, so that a node's op leads to the caller's struct. */
typedef struct custom_row {
    op_def row;
    const tacit_custom_op *op;
    const op_registry *registry; /* all of the caller's operators: rules may use each other's */
} custom_row;

enum { MOST = 16 }; /* inputs or outputs of one operator */

static const tacit_custom_op *op_of(const ir_node *node)
{
    return ((const custom_row *)node->op)->op;
}

static void as_tensor(const ir_type *type, const void *data, tacit_tensor *out)
{
    *out = (tacit_tensor){.dtype = type->dtype, .rank = type->shape.rank, .data = (void *)data};
    for (int32_t i = 0; i < out->rank; i++)
        out->dims[i] = type->shape.dims[i];
    size_t bytes;
    out->bytes = ir_type_bytes(type, &bytes) ? bytes : 0;
}

static tacit_status custom_infer(op_infer *c)
{
    const tacit_custom_op *op = op_of(c->node);
    tacit_tensor in[MOST], out[MOST] = {{0}};
    for (uint32_t i = 0; i < c->n_in; i++) {
        in[i] = (tacit_tensor){0};
        if (c->in[i])
            as_tensor(c->in[i], c->value[i] ? c->value[i]->data : NULL, &in[i]);
    }
    tacit_custom_call call = {in, c->n_in, out, c->n_out, c->node};
    TRY(op->infer(op->context, &call, c->err));
    for (uint32_t i = 0; i < c->n_out; i++) {
        bool sane =
            tacit_dtype_bits(out[i].dtype) && out[i].rank >= 0 && out[i].rank <= IR_MAX_RANK;
        for (int32_t d = 0; sane && d < out[i].rank; d++)
            sane = out[i].dims[d] >= 0;
        if (!sane)
            return error_set(c->err, TACIT_ERR_SHAPE, "its infer callback left output %u untyped",
                             i);
        c->out[i] = ir_type_tensor(out[i].dtype, out[i].rank, out[i].dims);
    }
    return TACIT_OK;
}

static tacit_status custom_eval(op_eval *c)
{
    const tacit_custom_op *op = op_of(c->node);
    tacit_tensor in[MOST], out[MOST] = {{0}};
    for (uint32_t i = 0; i < c->n_in; i++) {
        in[i] = (tacit_tensor){0};
        if (!c->in[i])
            continue;
        ir_type type = ir_tensor_type(c->in[i]);
        as_tensor(&type, c->in[i]->data, &in[i]);
    }
    for (uint32_t i = 0; i < c->n_out; i++) {
        if (!c->out[i])
            return error_set(c->err, TACIT_ERR_GRAPH, "output %u must have a name", i);
        ir_type type = ir_tensor_type(c->out[i]);
        as_tensor(&type, c->out[i]->data, &out[i]);
    }
    tacit_custom_call call = {in, c->n_in, out, c->n_out, c->node};
    return op->run(op->context, &call, c->err);
}

/* --- rules of the transforms ------------------------------------------------------------------ */

typedef tacit_status rule_fn(void *context, const tacit_custom_rule *rule, tacit_error *err);

/* One call of a rule: a builder on the transformed graph, and numbers for what it may use. */
typedef struct rule_call {
    tacit_model model; /* nothing but the graph and the registry */
    tacit_builder builder;
    tacit_tensor in_types[MOST], out_types[MOST];
    tacit_value inputs[MOST], outputs[MOST], seeds[MOST], results[MOST];
    unsigned char batched[MOST];
    tacit_custom_call call;
    tacit_custom_rule rule;
    uint32_t nodes, ports; /* of the graph, before the rule */
} rule_call;

static tacit_value number(rule_call *r, ir_value *v)
{
    return v ? api_builder_handle(&r->builder, v) : 0;
}

static void open_rule(rule_call *r, ir_graph *g, const ir_node *node)
{
    *r = (rule_call){.nodes = g->nodes.count, .ports = g->inputs.count + g->outputs.count};
    r->model.graph = g;
    r->model.registry = *((const custom_row *)node->op)->registry;
    r->builder.model = &r->model;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i])
            as_tensor(&node->inputs[i]->type, NULL, &r->in_types[i]);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (node->outputs[i])
            as_tensor(&node->outputs[i]->type, NULL, &r->out_types[i]);
    r->call = (tacit_custom_call){r->in_types, node->n_inputs, r->out_types, node->n_outputs, node};
    r->rule = (tacit_custom_rule){.call = &r->call,
                                  .builder = &r->builder,
                                  .inputs = r->inputs,
                                  .outputs = r->outputs,
                                  .seeds = r->seeds,
                                  .results = r->results};
}

/* Calls the rule; what it built is inferred, and result i goes to results[i] (NULL: zero). */
static tacit_status run_rule(rule_call *r, rule_fn *fn, const char *name, uint32_t n,
                             ir_value **results, tacit_error *err)
{
    const ir_node *node = r->call.node;
    const tacit_custom_op *op = op_of(node);
    ir_graph *g = r->model.graph;
    tacit_status status = fn(op->context, &r->rule, err);
    if (status == TACIT_OK && r->builder.status != TACIT_OK) {
        status = r->builder.status;
        if (err)
            *err = r->builder.error;
    }
    if (status == TACIT_OK && g->inputs.count + g->outputs.count != r->ports)
        status = error_set(err, TACIT_ERR_ARGUMENT, "added inputs or outputs to the graph");
    for (uint32_t i = r->nodes; status == TACIT_OK && i < g->nodes.count; i++)
        status = op_infer_node(g, g->nodes.data[i], err);
    for (uint32_t i = 0; status == TACIT_OK && i < n; i++) {
        if (r->results[i] > r->builder.values.count)
            status =
                error_set(err, TACIT_ERR_ARGUMENT, "result %u is not a value of the builder", i);
        else
            results[i] = r->results[i] ? r->builder.values.data[r->results[i] - 1] : NULL;
    }
    if (status == TACIT_OK)
        return TACIT_OK;
    return error_context(err, status, "node '%s' (%s.%s): its %s rule", node->name, op->domain,
                         op->name, name);
}

static tacit_status check_result(const ir_node *node, const char *rule, uint32_t i,
                                 const ir_value *have, const ir_type *want, tacit_error *err)
{
    char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
    if (!have ||
        (have->type.dtype == want->dtype && ir_shape_equal(&have->type.shape, &want->shape)))
        return TACIT_OK;
    return error_set(err, TACIT_ERR_SHAPE,
                     "node '%s': its %s rule gave %s%s for result %u, not %s%s", node->name, rule,
                     tacit_dtype_text(have->type.dtype), ir_shape_text(&have->type.shape, a), i,
                     tacit_dtype_text(want->dtype), ir_shape_text(&want->shape, b));
}

static tacit_status custom_vjp(op_diff *c)
{
    const ir_node *n = c->node;
    rule_call r;
    open_rule(&r, c->graph, n);
    for (uint32_t i = 0; i < n->n_inputs; i++)
        r.inputs[i] = number(&r, n->inputs[i]);
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        r.outputs[i] = number(&r, n->outputs[i]);
        r.seeds[i] = number(&r, c->out_grad[i]);
    }
    c->status = run_rule(&r, op_of(n)->vjp, "vjp", n->n_inputs, c->in_grad, c->err);
    for (uint32_t i = 0; c->status == TACIT_OK && i < n->n_inputs; i++)
        if (n->inputs[i])
            c->status = check_result(n, "vjp", i, c->in_grad[i], &n->inputs[i]->type, c->err);
    return c->status;
}

static tacit_status custom_jvp(op_diff *c)
{
    const ir_node *n = c->node;
    rule_call r;
    open_rule(&r, c->graph, n);
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        r.inputs[i] = number(&r, n->inputs[i]);
        r.seeds[i] = number(&r, c->in_tangent[i]);
    }
    for (uint32_t i = 0; i < n->n_outputs; i++)
        r.outputs[i] = number(&r, n->outputs[i]);
    c->status = run_rule(&r, op_of(n)->jvp, "jvp", n->n_outputs, c->out_tangent, c->err);
    for (uint32_t i = 0; c->status == TACIT_OK && i < n->n_outputs; i++)
        if (n->outputs[i])
            c->status = check_result(n, "jvp", i, c->out_tangent[i], &n->outputs[i]->type, c->err);
    return c->status;
}

static tacit_status custom_batch(op_batch *c)
{
    const ir_node *n = c->node;
    rule_call r;
    open_rule(&r, c->build.graph, n);
    r.rule.outputs = r.rule.seeds = NULL;
    r.rule.batched = r.batched;
    r.rule.batch_size = c->size;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        r.inputs[i] = number(&r, c->in[i]);
        r.batched[i] = c->batched[i];
    }
    tacit_error *err = c->build.err;
    TRY(run_rule(&r, op_of(n)->batch, "batch", n->n_outputs, c->out, err));
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        if (!n->outputs[i])
            continue;
        ir_type want = n->outputs[i]->type;
        memmove(want.shape.dims + 1, want.shape.dims, (size_t)want.shape.rank * sizeof(int64_t));
        want.shape.dims[0] = c->size;
        want.shape.rank++;
        if (!c->out[i])
            return error_set(err, TACIT_ERR_ARGUMENT,
                             "node '%s': its batch rule left output %u out", n->name, i);
        TRY(check_result(n, "batch", i, c->out[i], &want, err));
    }
    return TACIT_OK;
}

static tacit_status check(const tacit_custom_op *op, uint32_t i, tacit_error *err)
{
    if (!op || !op->name || !*op->name || !op->domain || !*op->domain || !op->infer || !op->run)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "custom operator %u needs a domain, a name, infer and run", i);
    if (op->max_inputs > MOST || op->min_inputs > op->max_inputs || op->n_outputs < 1 ||
        op->n_outputs > MOST)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "custom operator '%s.%s' needs at most %d inputs and 1 to %d outputs",
                         op->domain, op->name, MOST, MOST);
    return TACIT_OK;
}

tacit_status api_custom_register(tacit_model *m, const tacit_load_options *options,
                                 tacit_error *err)
{
    uint32_t n = options ? options->n_custom_ops : 0;
    const op_def **rows = ARENA_ARRAY(&m->memory, n + 1u, const op_def *);
    if (!rows)
        return error_memory(err, "custom operators");
    for (uint32_t i = 0; i < n; i++) {
        const tacit_custom_op *op = options->custom_ops[i];
        TRY(check(op, i, err));
        custom_row *r = ARENA_NEW(&m->memory, custom_row);
        if (!r)
            return error_memory(err, "custom operators");
        r->op = op;
        r->registry = &m->registry;
        r->row = (op_def){.name = op->name,
                          .domain = op->domain,
                          .min_in = (int8_t)op->min_inputs,
                          .max_in = (int8_t)op->max_inputs,
                          .min_out = (int8_t)op->n_outputs,
                          .max_out = (int8_t)op->n_outputs,
                          .infer = custom_infer,
                          .eval = custom_eval,
                          .vjp = op->vjp ? custom_vjp : NULL,
                          .jvp = op->jvp ? custom_jvp : NULL,
                          .batch = op->batch ? custom_batch : NULL};
        rows[i] = &r->row;
    }
    m->registry = (op_registry){rows, n};
    return TACIT_OK;
}

int64_t tacit_custom_int(const tacit_custom_call *call, const char *name, int64_t fallback)
{
    return ir_attr_int(call->node, name, fallback);
}

double tacit_custom_float(const tacit_custom_call *call, const char *name, double fallback)
{
    return ir_attr_float(call->node, name, fallback);
}

const char *tacit_custom_string(const tacit_custom_call *call, const char *name,
                                const char *fallback)
{
    return ir_attr_string(call->node, name, fallback);
}

const void *tacit_custom_bytes(const tacit_custom_call *call, const char *name, size_t *size)
{
    const ir_attr *a = ir_attr_find(call->node, name);
    *size = 0;
    if (a && a->kind == IR_ATTR_STRING) {
        *size = a->s.length;
        return a->s.data;
    }
    if (!a || a->kind != IR_ATTR_TENSOR)
        return NULL;
    *size = a->tensor->bytes;
    return a->tensor->data;
}
