/* SPDX-License-Identifier: Apache-2.0
 * Forward mode. A row without a jvp rule but with a vjp gets its tangent by transposing twice: the
 * vjp is linear in the cotangent u, so its own vjp with respect to u, seeded with the input
 * tangents, is the jvp; u itself drops out. */
#include <string.h>

#include "diff/diff.h"

typedef struct forward {
    ir_graph *graph;
    arena scratch;
    VEC(ir_value *) tangents; /* by value id; NULL: zero */
    tacit_error *err;
} forward;

static bool has_jvp(const op_def *op)
{
    return op->jvp || op->vjp || op->flags & OP_NOT_DIFFERENTIABLE;
}

static ir_value *tangent_of(const forward *f, const ir_value *v)
{
    return v && v->id < f->tangents.count ? f->tangents.data[v->id] : NULL;
}

static tacit_status set_tangent(forward *f, const ir_value *v, ir_value *tangent)
{
    while (f->tangents.count <= v->id)
        if (!vec_push(&f->scratch, &f->tangents, NULL))
            return error_memory(f->err, "a tangent graph");
    f->tangents.data[v->id] = tangent;
    return TACIT_OK;
}

/* Tangent of output `out` by transposing the vjp rule. */
static tacit_status transpose_twice(forward *f, op_diff *c, uint32_t out)
{
    ir_graph *g = f->graph;
    ir_node *n = c->node;
    /* u: its contents do not matter, so zeros serve and folding removes them. */
    ir_value *u = op_diff_zeros(c, &n->outputs[out]->type);
    uint32_t first = g->nodes.count;
    c->out_grad = ARENA_ARRAY(&f->scratch, n->n_outputs + 1u, ir_value *);
    c->in_grad = ARENA_ARRAY(&f->scratch, n->n_inputs + 1u, ir_value *);
    bool *wanted = ARENA_ARRAY(&f->scratch, n->n_inputs + 1u, bool);
    if (!u || !c->out_grad || !c->in_grad || !wanted)
        return c->status != TACIT_OK ? c->status : error_memory(f->err, "a tangent graph");
    c->out_grad[out] = u;
    for (uint32_t i = 0; i < n->n_inputs; i++)
        wanted[i] = c->in_tangent[i] != NULL;
    c->wanted = wanted;
    TRY(diff_vjp_node(c));
    uint32_t last = g->nodes.count, values = g->values.count;
    ir_value **grad = ARENA_ARRAY(&f->scratch, values + 1u, ir_value *);
    bool *reach = ARENA_ARRAY(&f->scratch, values + 1u, bool);
    if (!grad || !reach)
        return error_memory(f->err, "a tangent graph");
    reach[u->id] = true;
    for (uint32_t i = first; i < last; i++) {
        const ir_node *k = g->nodes.data[i];
        bool any = false;
        for (uint32_t s = 0; s < k->n_inputs; s++)
            any |= k->inputs[s] && reach[k->inputs[s]->id];
        for (uint32_t s = 0; any && s < k->n_outputs; s++)
            if (k->outputs[s])
                reach[k->outputs[s]->id] = true;
    }
    for (uint32_t i = 0; i < n->n_inputs; i++)
        if (wanted[i] && c->in_grad[i])
            grad[c->in_grad[i]->id] = op_diff_add(c, grad[c->in_grad[i]->id], c->in_tangent[i]);
    diff_sweep s = {.graph = g,
                    .scratch = &f->scratch,
                    .reach = reach,
                    .grad = grad,
                    .values = values,
                    .err = f->err};
    TRY(diff_sweep_back(&s, first, last));
    c->out_tangent[out] = grad[u->id];
    return c->status;
}

static tacit_status visit(forward *f, ir_node *n)
{
    op_diff c = {.graph = f->graph, .node = n, .err = f->err};
    c.in_tangent = ARENA_ARRAY(&f->scratch, n->n_inputs + 1u, ir_value *);
    c.out_tangent = ARENA_ARRAY(&f->scratch, n->n_outputs + 1u, ir_value *);
    if (!c.in_tangent || !c.out_tangent)
        return error_memory(f->err, "a tangent graph");
    bool any = false;
    uint32_t outputs = n->n_outputs; /* a scan gains outputs on the way */
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        c.in_tangent[i] = tangent_of(f, n->inputs[i]);
        any |= c.in_tangent[i] != NULL;
    }
    if (!any || (!n->op->jvp && !n->op->vjp && n->op->flags & OP_NOT_DIFFERENTIABLE))
        return TACIT_OK;
    if (n->op->jvp && (!diff_is_function(n) || ir_attr_graph(n, "jvp"))) {
        tacit_status status = n->op->jvp(&c);
        TRY(status != TACIT_OK ? status : c.status);
    } else {
        if (!n->op->vjp && !diff_is_scan(n) && !diff_is_if(n))
            return op_no_rule(n, "jvp", f->err);
        for (uint32_t i = 0; i < outputs; i++)
            if (n->outputs[i] && diff_is_smooth(n->outputs[i]->type.dtype))
                TRY(transpose_twice(f, &c, i));
    }
    for (uint32_t i = 0; i < outputs; i++)
        if (n->outputs[i] && c.out_tangent[i])
            TRY(set_tangent(f, n->outputs[i], c.out_tangent[i]));
    return TACIT_OK;
}

static tacit_status add_tangent_inputs(forward *f, uint32_t n, ir_value *const *wrt)
{
    for (uint32_t i = 0; i < n; i++) {
        const char *name = arena_printf(f->graph->memory, "tangent_%s", wrt[i]->name);
        ir_value *t = name ? ir_input_new(f->graph, name, &wrt[i]->type) : NULL;
        if (!t)
            return error_memory(f->err, "a tangent graph");
        TRY(set_tangent(f, wrt[i], t));
    }
    return TACIT_OK;
}

static tacit_status run(forward *f, uint32_t n, ir_value *const *wrt)
{
    ir_graph *g = f->graph;
    uint32_t nodes = g->nodes.count, outputs = g->outputs.count;
    TRY(add_tangent_inputs(f, n, wrt));
    for (uint32_t i = 0; i < nodes; i++)
        TRY(visit(f, g->nodes.data[i]));
    for (uint32_t i = 0; i < outputs; i++) {
        ir_value *v = g->outputs.data[i], *t = tangent_of(f, v);
        op_diff c = {.graph = g, .err = f->err};
        if (!t)
            t = op_diff_zeros(&c, &v->type);
        if (c.status != TACIT_OK)
            return c.status;
        if (!ir_output_add(g, t))
            return error_memory(f->err, "a tangent graph");
    }
    TRY(ir_graph_sort(g, f->err));
    return op_infer_graph(g, f->err);
}

static tacit_status prepare(ir_graph *g, uint32_t n, ir_value *const *wrt, tacit_error *err)
{
    TRY(diff_inline_functions(g, "jvp", "vjp", err));
    TRY(diff_spell_control(g, err));
    TRY(diff_spell_recurrences(g, err));
    return diff_decompose(g, has_jvp, n, wrt, err);
}

tacit_status diff_jvp(ir_graph *g, uint32_t n, const char *const *names, tacit_error *err)
{
    forward f = {.graph = g, .err = err};
    arena_init(&f.scratch, g->memory->allocator);
    ir_value **wrt = ARENA_ARRAY(&f.scratch, n + 1u, ir_value *);
    tacit_status status =
        wrt ? diff_find_wrt(g, n, names, wrt, err) : error_memory(err, "a tangent graph");
    if (status == TACIT_OK)
        status = prepare(g, n, wrt, err);
    if (status == TACIT_OK)
        status = run(&f, n, wrt);
    arena_free(&f.scratch);
    return status;
}
