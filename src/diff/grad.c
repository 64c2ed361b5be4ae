/* SPDX-License-Identifier: Apache-2.0
 * Reverse mode: one walk from the loss back to the inputs. */
#include <string.h>

#include "diff/diff.h"

typedef struct reverse {
    ir_graph *graph;
    arena scratch;
    bool *reach;     /* by value id: depends on a wrt value */
    ir_value **grad; /* by value id: accumulated cotangent, NULL: zero */
    uint32_t values; /* forward values; younger ones belong to the backward part */
    tacit_error *err;
} reverse;

static bool has_vjp(const op_def *op)
{
    return op->vjp || op->flags & OP_NOT_DIFFERENTIABLE;
}

static tacit_status find_wrt(const ir_graph *g, uint32_t n, const char *const *names,
                             ir_value **out, tacit_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = ir_value_find(g, names[i]);
        if (!out[i] || out[i]->producer)
            return error_set(err, TACIT_ERR_ARGUMENT, "'%s' is not an input or weight of the graph",
                             names[i]);
        ir_dtype_class class = ir_dtype_classify(out[i]->type.dtype);
        if (class != IR_CLASS_FLOAT && class != IR_CLASS_COMPLEX)
            return error_set(err, TACIT_ERR_TYPE,
                             "cannot differentiate with respect to '%s': it is %s", names[i],
                             tacit_dtype_text(out[i]->type.dtype));
    }
    return TACIT_OK;
}

static tacit_status seed(reverse *r, ir_value *loss, const diff_grad_options *o)
{
    ir_value *start;
    if (o->ones_seed) {
        op_diff c = {.graph = r->graph, .node = loss->producer, .err = r->err};
        start = op_diff_expand(&c, op_diff_scalar(&c, loss->type.dtype, o->seed != 0 ? o->seed : 1),
                               &loss->type.shape);
        if (c.status != TACIT_OK)
            return c.status;
    } else {
        if (ir_value_find(r->graph, "d_output"))
            return error_set(r->err, TACIT_ERR_ARGUMENT,
                             "the graph already has a value named d_output: it may be a gradient "
                             "graph; rename its seed first");
        start = ir_input_new(r->graph, "d_output", &loss->type);
    }
    if (!start)
        return error_memory(r->err, "a gradient graph");
    r->grad[loss->id] = start;
    return TACIT_OK;
}

static tacit_status accumulate(reverse *r, op_diff *c, ir_value *v, ir_value *grad)
{
    if (!v || !grad || v->id >= r->values || !r->reach[v->id])
        return TACIT_OK;
    if (!ir_shape_equal(&v->type.shape, &grad->type.shape) || v->type.dtype != grad->type.dtype) {
        char a[IR_SHAPE_TEXT], b[IR_SHAPE_TEXT];
        return error_set(
            r->err, TACIT_ERR_INTERNAL, "the vjp rule of %s gave %s%s for '%s', which is %s%s",
            c->node->type, tacit_dtype_text(grad->type.dtype), ir_shape_text(&grad->type.shape, a),
            v->name, tacit_dtype_text(v->type.dtype), ir_shape_text(&v->type.shape, b));
    }
    r->grad[v->id] = op_diff_add(c, r->grad[v->id], grad);
    return c->status;
}

static tacit_status visit(reverse *r, ir_node *n)
{
    op_diff c = {.graph = r->graph, .node = n, .err = r->err};
    c.out_grad = ARENA_ARRAY(&r->scratch, n->n_outputs + 1u, ir_value *);
    c.in_grad = ARENA_ARRAY(&r->scratch, n->n_inputs + 1u, ir_value *);
    bool *wanted = ARENA_ARRAY(&r->scratch, n->n_inputs + 1u, bool);
    if (!c.out_grad || !c.in_grad || !wanted)
        return error_memory(r->err, "a gradient graph");
    bool any_out = false, any_in = false;
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        c.out_grad[i] = n->outputs[i] ? r->grad[n->outputs[i]->id] : NULL;
        any_out |= c.out_grad[i] != NULL;
    }
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        const ir_value *v = n->inputs[i];
        wanted[i] = v && r->reach[v->id] &&
                    (ir_dtype_is_float(v->type.dtype) ||
                     ir_dtype_classify(v->type.dtype) == IR_CLASS_COMPLEX);
        any_in |= wanted[i];
    }
    if (!any_out || !any_in)
        return TACIT_OK;
    c.wanted = wanted;
    TRY(diff_vjp_node(&c));
    for (uint32_t i = 0; i < n->n_inputs; i++)
        if (wanted[i])
            TRY(accumulate(r, &c, n->inputs[i], c.in_grad[i]));
    return TACIT_OK;
}

static tacit_status set_outputs(reverse *r, ir_value *loss, uint32_t n, ir_value *const *wrt,
                                const char *const *names, const diff_grad_options *o)
{
    ir_graph *g = r->graph;
    g->outputs.count = 0;
    if (o->with_loss && !ir_output_add(g, loss))
        return error_memory(r->err, "a gradient graph");
    for (uint32_t i = 0; i < n; i++) {
        ir_value *grad = r->grad[wrt[i]->id];
        if (!grad) {
            log_line(o->log, TACIT_LOG_WARNING,
                     "'%s' does not reach the loss: its gradient is zero", names[i]);
            op_diff c = {.graph = g, .err = r->err};
            grad = op_diff_zeros(&c, &wrt[i]->type);
            if (c.status != TACIT_OK)
                return c.status;
        }
        if (!ir_output_add(g, grad))
            return error_memory(r->err, "a gradient graph");
    }
    TRY(ir_graph_sort(g, r->err));
    return op_infer_graph(g, r->err);
}

static tacit_status run(reverse *r, uint32_t n, const char *const *names,
                        const diff_grad_options *o)
{
    ir_graph *g = r->graph;
    ir_value **wrt = ARENA_ARRAY(&r->scratch, n + 1u, ir_value *);
    r->reach = ARENA_ARRAY(&r->scratch, g->values.count + 1u, bool);
    /* The seed is one more value, and may be asked for. */
    r->grad = ARENA_ARRAY(&r->scratch, g->values.count + 2u, ir_value *);
    r->values = g->values.count;
    if (!wrt || !r->reach || !r->grad)
        return error_memory(r->err, "a gradient graph");
    TRY(find_wrt(g, n, names, wrt, r->err));
    for (uint32_t i = 0; i < n; i++)
        r->reach[wrt[i]->id] = true;
    diff_reach(g, r->reach);
    ir_value *loss = g->outputs.data[o->output];
    if (!ir_type_is_static(&loss->type))
        return error_set(r->err, TACIT_ERR_SHAPE, "the loss '%s' has no static shape", loss->name);
    if (o->ones_seed && ir_shape_size(&loss->type.shape) != 1)
        return error_set(
            r->err, TACIT_ERR_SHAPE,
            "the loss '%s' is not a single number: give a seed (d_output), or reduce it",
            loss->name);
    uint32_t nodes = g->nodes.count;
    TRY(seed(r, loss, o));
    for (uint32_t i = nodes; i-- > 0;)
        TRY(visit(r, g->nodes.data[i]));
    return set_outputs(r, loss, n, wrt, names, o);
}

tacit_status diff_prepare(ir_graph *g, tacit_error *err)
{
    TRY(diff_inline_functions(g, "vjp", NULL, err));
    TRY(diff_spell_recurrences(g, err));
    TRY(diff_cut_scans(g, err));
    return diff_decompose(g, has_vjp, err);
}

tacit_status diff_reverse(ir_graph *g, uint32_t n_seeds, ir_value *const *outputs,
                          ir_value *const *seeds, uint32_t n_wrt, ir_value *const *wrt,
                          ir_value **grads, tacit_error *err)
{
    reverse r = {.graph = g, .values = g->values.count, .err = err};
    arena_init(&r.scratch, g->memory->allocator);
    r.reach = ARENA_ARRAY(&r.scratch, r.values + 1u, bool);
    r.grad = ARENA_ARRAY(&r.scratch, r.values + 1u, ir_value *);
    tacit_status status = r.reach && r.grad ? TACIT_OK : error_memory(err, "a gradient graph");
    op_diff c = {.graph = g, .err = err};
    for (uint32_t i = 0; status == TACIT_OK && i < n_wrt; i++)
        r.reach[wrt[i]->id] = true;
    if (status == TACIT_OK)
        diff_reach(g, r.reach);
    for (uint32_t i = 0; status == TACIT_OK && i < n_seeds; i++) {
        c.node = outputs[i]->producer;
        r.grad[outputs[i]->id] = op_diff_add(&c, r.grad[outputs[i]->id], seeds[i]);
        status = c.status;
    }
    uint32_t nodes = g->nodes.count;
    for (uint32_t i = nodes; status == TACIT_OK && i-- > 0;)
        status = visit(&r, g->nodes.data[i]);
    for (uint32_t i = 0; status == TACIT_OK && i < n_wrt; i++)
        grads[i] = r.grad[wrt[i]->id];
    arena_free(&r.scratch);
    return status;
}

tacit_status diff_grad(ir_graph *g, uint32_t n, const char *const *wrt,
                       const diff_grad_options *options, tacit_error *err)
{
    if (options->output >= g->outputs.count)
        return error_set(err, TACIT_ERR_ARGUMENT, "the graph has no output %u", options->output);
    TRY(diff_prepare(g, err));
    reverse r = {.graph = g, .err = err};
    arena_init(&r.scratch, g->memory->allocator);
    tacit_status status = run(&r, n, wrt, options);
    arena_free(&r.scratch);
    return status;
}
