/* SPDX-License-Identifier: Apache-2.0
 * Loop and If under the transforms. A Loop whose number of steps is known when compiling becomes a
 * Scan over its counter. An If with a known condition becomes its branch; otherwise its gradient is
 * an If of the branches' gradients, so that only the branch that ran is walked back. */
#include <string.h>

#include "diff/diff.h"
#include "op/spell.h"

static bool is_plain(const ir_node *n, const char *type)
{
    return n->type && n->op && n->domain[0] == '\0' && strcmp(n->type, type) == 0;
}

bool diff_is_if(const ir_node *n)
{
    return is_plain(n, "If");
}

static bool known_bool(const ir_value *v, bool *out)
{
    const ir_tensor *t = ir_value_known(v);
    if (!t || t->dtype != TACIT_BOOL || ir_tensor_count(t) != 1)
        return false;
    *out = *(const uint8_t *)t->data != 0;
    return true;
}

/* --- Loop ---------------------------------------------------------------------------------------
 */

/* Does the body's condition stay true whatever happens? */
static bool goes_on(const ir_graph *body)
{
    const ir_value *v = body->outputs.data[0];
    bool value = false;
    while (v->producer && is_plain(v->producer, "Identity"))
        v = v->producer->inputs[0];
    return v == body->inputs.data[1] || (known_bool(v, &value) && value);
}

/* How many steps the loop takes; -1: only running it tells. */
static int64_t step_count(const ir_node *n, const ir_graph *body)
{
    const ir_tensor *most = ir_value_known(n->n_inputs ? n->inputs[0] : NULL);
    const ir_value *condition = n->n_inputs > 1 ? n->inputs[1] : NULL;
    bool start = true;
    if (!most || ir_tensor_count(most) != 1 || (condition && !known_bool(condition, &start)))
        return -1;
    if (condition && start && !goes_on(body))
        return -1;
    return start ? ir_load_i64(most->dtype, most->data, 0) : 0;
}

/* The body with its condition gone and its counter behind the states. */
static ir_graph *scan_body(const ir_graph *from, ir_graph *g)
{
    ir_graph *body = ir_graph_clone(from, g->memory);
    ir_tensor *yes = ir_tensor_new(g->memory, TACIT_BOOL, &(ir_shape){.rank = 0});
    if (!body || !yes)
        return NULL;
    *(uint8_t *)yes->data = 1;
    ir_value *counter = body->inputs.data[0], *condition = body->inputs.data[1];
    condition->is_input = false;
    condition->is_initializer = true;
    condition->constant = yes;
    condition->type = ir_tensor_type(yes);
    uint32_t states = body->inputs.count - 2;
    memmove(body->inputs.data, body->inputs.data + 2, states * sizeof *body->inputs.data);
    body->inputs.data[states] = counter;
    body->inputs.count = states + 1;
    memmove(body->outputs.data, body->outputs.data + 1,
            (body->outputs.count - 1) * sizeof *body->outputs.data);
    body->outputs.count--;
    body->parent = g;
    return body;
}

static tacit_status loop_to_scan(ir_graph *g, ir_node *n, int64_t steps, tacit_error *err)
{
    op_diff c = {.graph = g, .node = n, .err = err};
    uint32_t states = n->n_explicit - 2;
    ir_value **in = ARENA_ARRAY(g->memory, states + 2u, ir_value *);
    int64_t *count = ARENA_ARRAY(g->memory, (size_t)steps + 1, int64_t);
    ir_graph *body = scan_body(ir_attr_graph(n, "body"), g);
    if (!in || !count || !body)
        return error_memory(err, "a scan");
    for (int64_t i = 0; i < steps; i++)
        count[i] = i;
    memcpy(in, n->inputs + 2, states * sizeof *in);
    in[states] = op_spell_ints(&c, 1, &steps, count);
    ir_node *s =
        in[states] ? ir_node_new(g, "Scan", "", n->name, states + 1, in, n->n_outputs, NULL) : NULL;
    bool ok = s && ir_attr_set_int(g, s, "num_scan_inputs", 1) &&
              ir_attr_set(g, s, &(ir_attr){.name = "body", .kind = IR_ATTR_GRAPH, .graph = body});
    for (uint32_t i = n->n_explicit; ok && i < n->n_inputs; i++)
        ok = ir_node_append_capture(g, s, n->inputs[i]);
    if (!ok)
        return error_memory(err, "a scan");
    op_resolve(NULL, s);
    TRY(op_infer_node(g, s, err));
    for (uint32_t i = 0; i < n->n_outputs; i++)
        if (n->outputs[i])
            ir_replace_uses(g, n->outputs[i], s->outputs[i]);
    ir_node_kill(n);
    return TACIT_OK;
}

/* --- If -----------------------------------------------------------------------------------------
 */

static const char *const branches[2] = {"then_branch", "else_branch"};

/* Outer types go into the branch, and it is inferred. */
static tacit_status infer_branch(const ir_node *n, ir_graph *body, tacit_error *err)
{
    for (uint32_t k = 0; k < body->captures.count && n->n_explicit + k < n->n_inputs; k++)
        if (body->captures.data[k] && n->inputs[n->n_explicit + k])
            body->captures.data[k]->type = n->inputs[n->n_explicit + k]->type;
    return op_infer_graph(body, err);
}

/* Where both branches agree, the outputs' types are known. */
static tacit_status infer_if(ir_node *n, tacit_error *err)
{
    const ir_graph *body[2];
    for (int i = 0; i < 2; i++) {
        ir_graph *b = ir_attr_graph(n, branches[i]);
        if (!b || b->outputs.count != n->n_outputs)
            return error_set(err, TACIT_ERR_GRAPH, "node '%s' (If): its branches do not fit",
                             n->name);
        TRY(infer_branch(n, b, err));
        body[i] = b;
    }
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        const ir_type *a = &body[0]->outputs.data[i]->type, *b = &body[1]->outputs.data[i]->type;
        if (n->outputs[i] && ir_type_is_static(a) && a->dtype == b->dtype &&
            ir_shape_equal(&a->shape, &b->shape))
            n->outputs[i]->type = *a;
    }
    return TACIT_OK;
}

static tacit_status inline_branch(ir_graph *g, ir_node *n, const ir_graph *body, tacit_error *err)
{
    ir_value **results = ARENA_ARRAY(g->memory, n->n_outputs + 1u, ir_value *);
    if (!results)
        return error_memory(err, "a branch");
    TRY(op_inline_graph(g, body, n->inputs + n->n_explicit, results, err));
    op_diff c = {.graph = g, .node = n, .err = err};
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        if (!n->outputs[i])
            continue;
        if (!results[i]->producer)
            results[i] = op_diff1(&c, "Identity", results[i]);
        if (!results[i])
            return c.status;
        ir_replace_uses(g, n->outputs[i], results[i]);
    }
    ir_node_kill(n);
    return TACIT_OK;
}

tacit_status diff_spell_control(ir_graph *g, tacit_error *err)
{
    bool changed = false;
    for (uint32_t i = 0, count = g->nodes.count; i < count; i++) {
        ir_node *n = g->nodes.data[i];
        bool loop = n->type && n->op && is_plain(n, "Loop"), which;
        const ir_graph *body = loop ? ir_attr_graph(n, "body") : NULL;
        if (!loop && !diff_is_if(n)) {
            if (changed) /* what lies behind has types now */
                TRY(op_infer_node(g, n, err));
            continue;
        }
        changed = true;
        bool fits = body && n->n_explicit >= 2 && body->inputs.count == n->n_explicit &&
                    body->outputs.count == n->n_outputs + 1;
        int64_t steps = fits ? step_count(n, body) : -1;
        if (steps > 0)
            TRY(loop_to_scan(g, n, steps, err));
        else if (!loop && known_bool(n->inputs[0], &which) && ir_attr_graph(n, branches[!which]))
            TRY(inline_branch(g, n, ir_attr_graph(n, branches[!which]), err));
        else if (!loop)
            TRY(infer_if(n, err));
    }
    if (!changed)
        return TACIT_OK;
    TRY(ir_graph_sort(g, err));
    return op_infer_graph(g, err);
}

/* One branch of the gradient: outputs are the cotangents of the wanted outer values. */
static tacit_status branch_grad(op_diff *c, ir_graph *body, uint32_t n_wrt, const uint32_t *wrt)
{
    const ir_node *n = c->node;
    uint32_t n_seeds = 0, n_real = 0;
    ir_value **seed = ARENA_ARRAY(c->graph->memory, n->n_outputs + 1u, ir_value *);
    ir_value **seeded = ARENA_ARRAY(c->graph->memory, n->n_outputs + 1u, ir_value *);
    ir_value **real = ARENA_ARRAY(c->graph->memory, n_wrt + 1u, ir_value *);
    ir_value **grad = ARENA_ARRAY(c->graph->memory, n_wrt + 1u, ir_value *);
    if (!seed || !seeded || !real || !grad)
        return error_memory(c->err, "a branch");
    for (uint32_t i = 0; i < n_wrt; i++)
        if (body->captures.data[wrt[i]])
            real[n_real++] = body->captures.data[wrt[i]];
    TRY(diff_prepare(body, n_real, real, c->err));
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        if (!c->out_grad[i])
            continue;
        ir_value *v = ir_value_new(body, "d_output", &c->out_grad[i]->type);
        if (!v || !vec_push(body->memory, &body->captures, v))
            return error_memory(c->err, "a branch");
        seeded[n_seeds] = body->outputs.data[i];
        seed[n_seeds++] = v;
    }
    TRY(diff_reverse(body, n_seeds, seeded, seed, n_real, real, grad, c->err));
    op_diff inner = {.graph = body, .node = c->node, .err = c->err};
    body->outputs.count = 0;
    for (uint32_t i = 0, k = 0; i < n_wrt; i++) {
        bool used = body->captures.data[wrt[i]] != NULL;
        ir_value *d = used ? grad[k++] : NULL;
        d = d ? op_diff1(&inner, "Identity", d)
              : op_diff_zeros(&inner, &n->inputs[n->n_explicit + wrt[i]]->type);
        if (!d || !ir_output_add(body, d))
            return inner.status != TACIT_OK ? inner.status : error_memory(c->err, "a branch");
    }
    TRY(ir_graph_sort(body, c->err));
    return op_infer_graph(body, c->err);
}

tacit_status diff_if_vjp(op_diff *c)
{
    ir_node *n = c->node;
    uint32_t outer = n->n_inputs - n->n_explicit, n_wrt = 0;
    uint32_t *wrt = ARENA_ARRAY(c->graph->memory, outer + 1u, uint32_t);
    if (!wrt)
        return error_memory(c->err, "a branch");
    for (uint32_t k = 0; k < outer; k++)
        if (c->wanted[n->n_explicit + k])
            wrt[n_wrt++] = k;
    ir_node *back = ir_node_new(c->graph, "If", "", NULL, 1, n->inputs, n_wrt, NULL);
    bool ok = back != NULL;
    for (uint32_t k = 0; ok && k < outer; k++)
        ok = ir_node_append_capture(c->graph, back, n->inputs[n->n_explicit + k]);
    for (uint32_t i = 0; ok && i < n->n_outputs; i++)
        ok = !c->out_grad[i] || ir_node_append_capture(c->graph, back, c->out_grad[i]);
    for (int i = 0; ok && i < 2; i++) {
        ir_graph *body = ir_graph_clone(ir_attr_graph(n, branches[i]), c->graph->memory);
        ok = body != NULL;
        if (!ok)
            break;
        body->parent = c->graph;
        TRY(infer_branch(n, body, c->err));
        TRY(branch_grad(c, body, n_wrt, wrt));
        ok = ir_attr_set(c->graph, back,
                         &(ir_attr){.name = branches[i], .kind = IR_ATTR_GRAPH, .graph = body});
    }
    if (!ok)
        return error_memory(c->err, "a branch");
    op_resolve(NULL, back);
    for (uint32_t i = 0; i < n_wrt; i++) {
        back->outputs[i]->type = n->inputs[n->n_explicit + wrt[i]]->type;
        c->in_grad[n->n_explicit + wrt[i]] = back->outputs[i];
    }
    return TACIT_OK;
}
