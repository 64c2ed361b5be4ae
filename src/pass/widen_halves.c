/* SPDX-License-Identifier: Apache-2.0
 * Half precision is how numbers are stored, not how they are computed: what a model computes in f16
 * or bf16 is computed in f32, for which there are kernels, and rounded where it leaves the region:
 * at outputs of the graph, and before nodes that stay as they are. Between them nothing is rounded,
 * so results are nearer to the exact ones than those of the model as written. */
#include <string.h>

#include "op/build.h"
#include "pass/edit.h"

static const char widened_note[] = "halves are computed in f32";

typedef struct widening {
    pass_context *c;
    ir_graph *g;
    uint32_t values;   /* that the graph had */
    bool *wanted;      /* by half: it is computed with */
    tacit_dtype *was;  /* by value: the half that it was before its node was widened */
    ir_value **wide;   /* by half: the same in f32, once somebody needs it */
    ir_value **narrow; /* by widened value: the half that it was, likewise */
} widening;

bool pass_was_half(const ir_node *n)
{
    for (const ir_note *note = n->notes; note; note = note->next)
        if (strcmp(note->text, widened_note) == 0)
            return true;
    return false;
}

static bool has_halves(const ir_graph *g)
{
    for (uint32_t i = 0; i < g->values.count; i++)
        if (pass_half(g->values.data[i]))
            return true;
    return false;
}

/* Casts say what they want. What a caller's own operator expects nobody knows. */
static bool may_widen(const widening *w, const ir_node *n)
{
    if (!n->type || !n->op || n->op == w->c->ops[PASS_CAST] || !n->op->infer ||
        n->op->flags & (OP_RANDOM | OP_CONTROL | OP_ANY_KIND) || ir_node_has_subgraph(n) ||
        op_find(NULL, n->domain, n->type) != n->op)
        return false;
    for (uint32_t k = 0; k < n->n_inputs; k++)
        if (n->inputs[k] && !ir_type_is_static(&n->inputs[k]->type))
            return false;
    return true;
}

/* Numbers only change their places: no reason of its own to widen any. */
static bool only_moves(const widening *w, const ir_node *n)
{
    return n->op->alias || n->op->part || n->op == w->c->ops[PASS_GATHER];
}

/* Does the node compute with halves, or move some that are computed with later? */
static bool wants_wide(const widening *w, const ir_node *n)
{
    bool wants = !only_moves(w, n);
    for (uint32_t k = 0; !wants && k < n->n_outputs; k++)
        wants = n->outputs[k] && w->wanted[n->outputs[k]->id];
    return wants;
}

static void find_wanted(const widening *w, uint32_t count)
{
    for (uint32_t i = count; i-- > 0;) { /* readers come before what they read */
        const ir_node *n = w->g->nodes.data[i];
        bool wants = may_widen(w, n) && wants_wide(w, n);
        for (uint32_t k = 0; wants && k < n->n_inputs; k++)
            if (pass_half(n->inputs[k]))
                w->wanted[n->inputs[k]->id] = true;
    }
}

/* Known halves that are only moved are left as they are: a table that rows are gathered from, a
 * weight that is turned. */
static bool is_worth_it(const widening *w, const ir_node *n)
{
    bool wants = wants_wide(w, n), moves = only_moves(w, n);
    for (uint32_t k = 0; k < n->n_inputs; k++) {
        const ir_value *v = n->inputs[k];
        if (v && (w->was[v->id] || (wants && pass_half(v) && !(moves && ir_value_known(v)))))
            return true;
    }
    return false;
}

/* What the node would make of f32 in the place of every half: *fits, if nothing else changes. */
static tacit_status try_types(const widening *w, const ir_node *n, ir_type *out, bool *fits)
{
    arena *a = w->c->scratch;
    ir_type *types = ARENA_ARRAY(a, n->n_inputs + 1u, ir_type);
    const ir_type **in = ARENA_ARRAY(a, n->n_inputs + 1u, const ir_type *);
    const ir_tensor **value = ARENA_ARRAY(a, n->n_inputs + 1u, const ir_tensor *);
    const ir_tensor **known = ARENA_ARRAY(a, n->n_outputs + 1u, const ir_tensor *);
    if (!types || !in || !value || !known)
        return error_memory(w->c->err, "widening halves");
    for (uint32_t k = 0; k < n->n_inputs; k++) {
        const ir_value *v = n->inputs[k];
        if (!v)
            continue;
        types[k] = v->type;
        in[k] = &types[k];
        value[k] = pass_half(v) ? NULL : ir_value_known(v);
        if (pass_half(v))
            types[k].dtype = TACIT_F32;
    }
    tacit_error why = {0};
    op_infer c = {.node = n,
                  .n_in = n->n_inputs,
                  .n_out = n->n_outputs,
                  .in = in,
                  .value = value,
                  .out = out,
                  .known = known,
                  .memory = a,
                  .err = &why};
    tacit_status status = n->op->infer(&c);
    if (status == TACIT_ERR_MEMORY)
        return error_memory(w->c->err, "widening halves");
    *fits = status == TACIT_OK;
    for (uint32_t k = 0; *fits && k < n->n_outputs; k++) {
        const ir_value *v = n->outputs[k];
        ir_type same = out[k];
        if (pass_half(v) && same.dtype == TACIT_F32)
            same.dtype = v->type.dtype;
        *fits = !v || ir_type_equal(&same, &v->type);
    }
    return TACIT_OK;
}

static tacit_status cast(const widening *w, ir_value *v, tacit_dtype to, ir_value **out)
{
    *out = op_build_cast(w->g, v, to);
    if (!*out)
        return error_memory(w->c->err, "widening halves");
    return op_infer_node(w->g, (*out)->producer, w->c->err);
}

/* A half in f32. What was narrowed to be computed with is taken as it was. */
static tacit_status widened(widening *w, ir_value *half, ir_value **out)
{
    *out = w->wide[half->id];
    if (*out)
        return TACIT_OK;
    const ir_node *from = half->producer;
    if (from && from->op == w->c->ops[PASS_CAST] && from->inputs[0]->type.dtype == TACIT_F32)
        *out = from->inputs[0];
    else
        TRY(cast(w, half, TACIT_F32, out));
    w->wide[half->id] = *out;
    return TACIT_OK;
}

static tacit_status widen(widening *w, ir_node *n, const ir_type *out)
{
    for (uint32_t k = 0; k < n->n_inputs; k++)
        if (pass_half(n->inputs[k]))
            TRY(widened(w, n->inputs[k], &n->inputs[k]));
    for (uint32_t k = 0; k < n->n_outputs; k++) {
        ir_value *v = n->outputs[k];
        if (!pass_half(v) || out[k].dtype != TACIT_F32)
            continue;
        w->was[v->id] = v->type.dtype;
        v->type.dtype = TACIT_F32;
        v->constant = NULL; /* what inference knew of it was of halves */
    }
    ir_node_note(w->g, n, w->c->name, "%s", widened_note);
    w->c->rewrites++;
    return TACIT_OK;
}

static tacit_status narrowed(widening *w, ir_value *v, ir_value **out)
{
    ir_value **kept = &w->narrow[v->id];
    if (!*kept)
        TRY(cast(w, v, w->was[v->id], kept));
    *out = *kept;
    return TACIT_OK;
}

/* Whoever was not widened reads halves as before. */
static tacit_status narrow_inputs(widening *w, ir_node *n)
{
    if (!n->type || n->op == w->c->ops[PASS_CAST])
        return TACIT_OK;
    for (uint32_t k = 0; k < n->n_inputs; k++)
        if (n->inputs[k] && w->was[n->inputs[k]->id])
            TRY(narrowed(w, n->inputs[k], &n->inputs[k]));
    return TACIT_OK;
}

/* Names and types of outputs are the model's. */
static tacit_status narrow_outputs(widening *w)
{
    ir_value **outputs = w->g->outputs.data;
    uint32_t count = w->g->outputs.count;
    for (uint32_t i = 0; i < count; i++) {
        ir_value *v = outputs[i], *half;
        if (v->id >= w->values || !w->was[v->id])
            continue;
        TRY(narrowed(w, v, &half));
        for (uint32_t k = i; k < count; k++) /* it may be there twice */
            if (outputs[k] == v)
                outputs[k] = half;
        ir_swap_names(w->g, v, half);
    }
    return TACIT_OK;
}

static tacit_status widen_nodes(widening *w, bool *done, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ir_node *n = w->g->nodes.data[i];
        ir_type *out = ARENA_ARRAY(w->c->scratch, n->n_outputs + 1u, ir_type);
        if (!out)
            return error_memory(w->c->err, "widening halves");
        if (!may_widen(w, n) || !is_worth_it(w, n))
            continue;
        TRY(try_types(w, n, out, &done[i]));
        if (done[i])
            TRY(widen(w, n, out));
    }
    for (uint32_t i = 0; i < count; i++)
        if (!done[i])
            TRY(narrow_inputs(w, w->g->nodes.data[i]));
    return narrow_outputs(w);
}

tacit_status pass_widen_halves(pass_context *c)
{
    ir_graph *g = c->graph;
    if (!has_halves(g))
        return TACIT_OK;
    uint32_t nodes = g->nodes.count;
    widening w = {.c = c, .g = g, .values = g->values.count};
    w.wanted = ARENA_ARRAY(c->scratch, w.values + 1u, bool);
    w.was = ARENA_ARRAY(c->scratch, w.values + 1u, tacit_dtype);
    w.wide = ARENA_ARRAY(c->scratch, w.values + 1u, ir_value *);
    w.narrow = ARENA_ARRAY(c->scratch, w.values + 1u, ir_value *);
    bool *done = ARENA_ARRAY(c->scratch, nodes + 1u, bool);
    if (!w.wanted || !w.was || !w.wide || !w.narrow || !done)
        return error_memory(c->err, "widening halves");
    find_wanted(&w, nodes);
    TRY(widen_nodes(&w, done, nodes));
    g->version += c->rewrites > 0;
    return TACIT_OK;
}
