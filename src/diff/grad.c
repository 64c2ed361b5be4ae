/* SPDX-License-Identifier: Apache-2.0
 * Reverse mode: one walk from the loss back to the inputs. */
#include <string.h>

#include "diff/diff.h"

typedef struct reverse {
    ir_graph *graph;
    arena scratch;
    bool *reach;       /* by value id: depends on a wrt value */
    ir_value **grad;   /* by value id: accumulated cotangent, NULL: zero */
    uint32_t values;   /* forward values and the seed; younger ones belong to the backward part */
    diff_remat *remat; /* NULL: nothing is computed again */
    tacit_error *err;
} reverse;

static tacit_status sweep(reverse *r, uint32_t nodes)
{
    diff_sweep s = {.graph = r->graph,
                    .scratch = &r->scratch,
                    .reach = r->reach,
                    .grad = r->grad,
                    .values = r->values,
                    .remat = r->remat,
                    .err = r->err};
    return diff_sweep_back(&s, 0, nodes);
}

static bool has_vjp(const op_def *op)
{
    return op->vjp || op->flags & OP_NOT_DIFFERENTIABLE;
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
    if (r->remat)
        TRY(diff_remat_sweep(r->remat, r->err));
    TRY(ir_graph_sort(g, r->err));
    return op_infer_graph(g, r->err);
}

static tacit_status run(reverse *r, uint32_t n, const char *const *names, ir_value **wrt,
                        const diff_grad_options *o)
{
    ir_graph *g = r->graph;
    /* The seed is one more value, and may be asked for. */
    r->values = g->values.count + 1;
    r->reach = ARENA_ARRAY(&r->scratch, r->values + 1u, bool);
    r->grad = ARENA_ARRAY(&r->scratch, r->values + 1u, ir_value *);
    if (!r->reach || !r->grad)
        return error_memory(r->err, "a gradient graph");
    for (uint32_t i = 0; i < n; i++)
        r->reach[wrt[i]->id] = true;
    diff_reach(g, r->reach);
    TRY(diff_remat_open(g, &r->scratch, &r->remat, r->err));
    ir_value *loss = g->outputs.data[o->output];
    if (!ir_type_is_static(&loss->type))
        return error_set(r->err, TACIT_ERR_SHAPE, "the loss '%s' has no static shape", loss->name);
    if (!diff_is_smooth(loss->type.dtype))
        return error_set(r->err, TACIT_ERR_TYPE, "the loss '%s' is %s: it has no gradient",
                         loss->name, tacit_dtype_text(loss->type.dtype));
    if (o->ones_seed && ir_shape_size(&loss->type.shape) != 1)
        return error_set(
            r->err, TACIT_ERR_SHAPE,
            "the loss '%s' is not a single number: give a seed (d_output), or reduce it",
            loss->name);
    uint32_t nodes = g->nodes.count;
    TRY(seed(r, loss, o));
    TRY(sweep(r, nodes));
    return set_outputs(r, loss, n, wrt, names, o);
}

tacit_status diff_prepare(ir_graph *g, uint32_t n, ir_value *const *wrt, tacit_error *err)
{
    TRY(diff_inline_functions(g, "vjp", NULL, err));
    TRY(diff_spell_control(g, err));
    TRY(diff_spell_recurrences(g, err));
    TRY(diff_cut_scans(g, err));
    return diff_decompose(g, has_vjp, n, wrt, err);
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
    if (status == TACIT_OK)
        status = sweep(&r, g->nodes.count);
    for (uint32_t i = 0; status == TACIT_OK && i < n_wrt; i++)
        grads[i] = r.grad[wrt[i]->id];
    arena_free(&r.scratch);
    return status;
}

tacit_status diff_grad(ir_graph *g, uint32_t n, const char *const *names,
                       const diff_grad_options *options, tacit_error *err)
{
    if (options->output >= g->outputs.count)
        return error_set(err, TACIT_ERR_ARGUMENT, "the graph has no output %u", options->output);
    reverse r = {.graph = g, .err = err};
    arena_init(&r.scratch, g->memory->allocator);
    ir_value **wrt = ARENA_ARRAY(&r.scratch, n + 1u, ir_value *);
    tacit_status status =
        wrt ? diff_find_wrt(g, n, names, wrt, err) : error_memory(err, "a gradient graph");
    if (status == TACIT_OK)
        status = diff_remat_mark(g, options->n_checkpoints, options->checkpoints, err);
    if (status == TACIT_OK)
        status = diff_prepare(g, n, wrt, err);
    if (status == TACIT_OK)
        status = run(&r, n, names, wrt, options);
    arena_free(&r.scratch);
    return status;
}
