/* SPDX-License-Identifier: Apache-2.0
 * An If whose condition is known becomes the nodes of the branch it takes, a Loop with a few rounds
 * that are known the nodes of its body, once for each. */
#include "pass/edit.h"

typedef struct moving {
    pass_edit *e;
    ir_graph *sub;
    ir_node *owner;
    ir_value **to; /* by the subgraph's value id */
} moving;

/* Where each value of the subgraph lives in the outer graph. */
static bool map_values(moving *m)
{
    ir_graph *g = m->e->g;
    for (uint32_t k = 0; k < m->sub->captures.count; k++)
        if (m->sub->captures.data[k])
            m->to[m->sub->captures.data[k]->id] = m->owner->inputs[m->owner->n_explicit + k];
    for (uint32_t i = 0; i < m->sub->values.count; i++) {
        const ir_value *old = m->sub->values.data[i];
        if (m->to[i])
            continue;
        ir_value *v = ir_value_new(g, old->name, &old->type);
        if (!v)
            return false;
        v->constant = old->constant;
        v->is_initializer = old->is_initializer;
        v->output_index = old->output_index;
        m->to[i] = v;
    }
    return true;
}

static bool adopt_node(moving *m, ir_node *n)
{
    ir_graph *g = m->e->g;
    for (uint32_t k = 0; k < n->n_inputs; k++)
        if (n->inputs[k])
            n->inputs[k] = m->to[n->inputs[k]->id];
    for (uint32_t k = 0; k < n->n_outputs; k++)
        if (n->outputs[k]) {
            n->outputs[k] = m->to[n->outputs[k]->id];
            n->outputs[k]->producer = n;
        }
    for (uint32_t k = 0; k < n->n_attrs; k++) {
        if (n->attrs[k].kind == IR_ATTR_GRAPH)
            n->attrs[k].graph->parent = g;
        for (uint32_t s = 0; n->attrs[k].kind == IR_ATTR_GRAPHS && s < n->attrs[k].count; s++)
            n->attrs[k].graphs[s]->parent = g;
    }
    n->name = ir_fresh_node_name(g, n->name);
    n->id = g->nodes.count;
    ir_node_note(g, n, m->e->c->name, "from '%s' of %s", m->sub->name, m->owner->name);
    return n->name && map_put(&g->node_names, n->name, n) && vec_push(g->memory, &g->nodes, n);
}

/* The nodes of `sub`, which reads `given` as its inputs, go to the outer graph; `results` are its
 * outputs there. */
static tacit_status move_nodes(pass_edit *e, ir_node *owner, ir_graph *sub, ir_value *const *given,
                               ir_value **results)
{
    TRY(ir_graph_sweep(sub, e->c->err)); /* value ids are then indices */
    moving m = {.e = e, .sub = sub, .owner = owner};
    m.to = ARENA_ARRAY(e->c->scratch, sub->values.count + 1u, ir_value *);
    for (uint32_t k = 0; m.to && k < sub->inputs.count; k++)
        m.to[sub->inputs.data[k]->id] = given[k];
    bool ok = m.to && map_values(&m);
    for (uint32_t i = 0; ok && i < sub->nodes.count; i++)
        ok = adopt_node(&m, sub->nodes.data[i]);
    for (uint32_t k = 0; ok && k < sub->outputs.count; k++)
        results[k] = m.to[sub->outputs.data[k]->id];
    return ok ? TACIT_OK : error_memory(e->c->err, "inlining a subgraph");
}

/* The owner's own output values are produced by Identity nodes, which the clean-up removes: simple,
 * and right for results that are captures, weights or used twice. The owner goes. */
static tacit_status give_outputs(pass_edit *e, ir_node *owner, ir_value *const *results)
{
    for (uint32_t k = 0; k < owner->n_outputs; k++) {
        ir_value *v = owner->outputs[k], *from = results[k];
        if (!v)
            continue;
        ir_node *id = op_node(e->g, "Identity", owner->name, 1, &from);
        if (!id)
            return error_memory(e->c->err, "inlining a subgraph");
        owner->outputs[k] = NULL;
        v->producer = id;
        v->output_index = 0;
        id->outputs[0] = v;
    }
    pass_kill(e, owner);
    e->c->rewrites++;
    return TACIT_OK;
}

static tacit_status inline_branch(pass_edit *e, ir_node *n, ir_graph *sub)
{
    if (sub->outputs.count < n->n_outputs || sub->inputs.count)
        return error_set(e->c->err, TACIT_ERR_GRAPH,
                         "node '%s': the branch has %u outputs and %u inputs, expected %u and 0",
                         n->name, sub->outputs.count, sub->inputs.count, n->n_outputs);
    ir_value **results = ARENA_ARRAY(e->c->scratch, sub->outputs.count + 1u, ir_value *);
    if (!results)
        return error_memory(e->c->err, "inlining a subgraph");
    TRY(move_nodes(e, n, sub, NULL, results));
    return give_outputs(e, n, results);
}

/* --- loops ------------------------------------------------------------------------------------ */

static bool known_true(const ir_value *v)
{
    double x;
    return pass_scalar(v, &x) && x != 0;
}

/* Does the body say in every round that another may come? */
static bool goes_on(const pass_edit *e, const ir_node *n, const ir_graph *body)
{
    const ir_value *v = pass_origin(e, body, body->outputs.data[0]);
    if (v == body->inputs.data[1] || known_true(v))
        return true;
    for (uint32_t k = 0; k < body->captures.count; k++)
        if (body->captures.data[k] == v)
            return known_true(n->inputs[n->n_explicit + k]);
    return false;
}

/* So many rounds, with so many nodes, are written out. */
enum { MOST_ROUNDS = 16, MOST_NODES = 512 };

/* The body of a Loop whose number of rounds is known and small, and which stacks nothing up; else
 * NULL. */
static ir_graph *short_body(const pass_edit *e, const ir_node *n, uint32_t *rounds)
{
    double count;
    if (!pass_is(e, n, PASS_LOOP) || n->n_explicit < PASS_ROUNDS_AND_CONDITION ||
        !pass_scalar(n->inputs[0], &count) || !(count >= 0) || count > MOST_ROUNDS ||
        (n->inputs[1] && !known_true(n->inputs[1])))
        return NULL;
    ir_graph *body = ir_attr_graph(n, "body");
    uint32_t carried = n->n_explicit - PASS_ROUNDS_AND_CONDITION;
    if (!body || body->inputs.count != carried + PASS_ROUNDS_AND_CONDITION ||
        body->outputs.count != carried + PASS_CONDITION || n->n_outputs > carried ||
        count * body->nodes.count > MOST_NODES || !goes_on(e, n, body))
        return NULL;
    for (uint32_t k = 0; k < carried; k++)
        if (!n->inputs[PASS_ROUNDS_AND_CONDITION + k])
            return NULL;
    *rounds = (uint32_t)count;
    return body;
}

static ir_value *round_number(pass_edit *e, const ir_graph *body, int64_t round)
{
    int32_t rank =
        body->inputs.data[0]->type.shape.rank == 1; /* some exporters have a list of one */
    return ir_constant_i64(e->g, "round", rank, 1, &round);
}

static ir_value *always(pass_edit *e, const ir_graph *body)
{
    ir_shape shape = {.rank = body->inputs.data[1]->type.shape.rank == 1, .dims = {1}};
    ir_tensor *t = ir_tensor_new(e->g->memory, TACIT_BOOL, &shape);
    if (!t)
        return NULL;
    *(uint8_t *)t->data = 1;
    return ir_constant_new(e->g, "always", t);
}

static tacit_status write_out(pass_edit *e, ir_node *n, ir_graph *body, uint32_t rounds)
{
    uint32_t carried = n->n_explicit - PASS_ROUNDS_AND_CONDITION;
    ir_value **given =
        ARENA_ARRAY(e->c->scratch, carried + PASS_ROUNDS_AND_CONDITION + 1u, ir_value *);
    ir_value **results = ARENA_ARRAY(e->c->scratch, carried + PASS_CONDITION + 1u, ir_value *);
    if (!given || !results)
        return error_memory(e->c->err, "inlining a loop");
    for (uint32_t k = 0; k < carried; k++)
        results[PASS_CONDITION + k] = n->inputs[PASS_ROUNDS_AND_CONDITION + k];
    for (uint32_t i = 0; i < rounds; i++) {
        ir_graph *copy = i + 1 < rounds ? ir_graph_clone(body, e->g->memory) : body;
        given[0] = copy ? round_number(e, copy, i) : NULL;
        given[1] = copy ? always(e, copy) : NULL;
        if (!given[0] || !given[1])
            return error_memory(e->c->err, "inlining a loop");
        for (uint32_t k = 0; k < carried; k++)
            given[PASS_ROUNDS_AND_CONDITION + k] = results[PASS_CONDITION + k];
        TRY(move_nodes(e, n, copy, given, results));
    }
    return give_outputs(e, n, results + PASS_CONDITION);
}

/* --- the passes ------------------------------------------------------------------------------- */

typedef tacit_status inline_fn(pass_edit *e, ir_node *n, bool *done);

static tacit_status inline_if(pass_edit *e, ir_node *n, bool *done)
{
    double condition;
    if (!pass_is(e, n, PASS_IF) || !pass_scalar(n->inputs[0], &condition))
        return TACIT_OK;
    ir_graph *sub = ir_attr_graph(n, condition != 0 ? "then_branch" : "else_branch");
    *done = sub != NULL;
    return sub ? inline_branch(e, n, sub) : TACIT_OK;
}

static tacit_status inline_loop(pass_edit *e, ir_node *n, bool *done)
{
    uint32_t rounds;
    ir_graph *body = short_body(e, n, &rounds);
    *done = body != NULL;
    return body ? write_out(e, n, body, rounds) : TACIT_OK;
}

/* All that there are, then those that were inside or are known only now. */
static tacit_status inline_all(pass_context *c, inline_fn *try)
{
    for (bool found = true; found;) {
        pass_edit e;
        TRY(pass_edit_begin(&e, c));
        found = false;
        for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++) {
            bool done = false;
            TRY(try(&e, c->graph->nodes.data[i], &done));
            found |= done;
        }
        if (found) {
            TRY(ir_graph_sort(c->graph, c->err));
            TRY(op_infer_graph(c->graph, c->err));
        }
    }
    return TACIT_OK;
}

tacit_status pass_inline_if(pass_context *c)
{
    return inline_all(c, inline_if);
}

tacit_status pass_inline_loop(pass_context *c)
{
    return inline_all(c, inline_loop);
}
