/* SPDX-License-Identifier: Apache-2.0
 * Custom operators: a caller's callbacks behind an ordinary op row. */
#include "api/internal.h"

/* The row comes first, so that a node's op leads to the caller's struct. */
typedef struct custom_row {
    op_def row;
    const tacit_custom_op *op;
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
        r->row = (op_def){.name = op->name,
                          .domain = op->domain,
                          .min_in = (int8_t)op->min_inputs,
                          .max_in = (int8_t)op->max_inputs,
                          .min_out = (int8_t)op->n_outputs,
                          .max_out = (int8_t)op->n_outputs,
                          .infer = custom_infer,
                          .eval = custom_eval};
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
