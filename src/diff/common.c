/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "diff/diff.h"

void diff_reach(const ir_graph *g, bool *reach)
{
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        bool any = false;
        for (uint32_t k = 0; k < n->n_inputs; k++)
            any |= n->inputs[k] && reach[n->inputs[k]->id];
        for (uint32_t k = 0; any && k < n->n_outputs; k++)
            if (n->outputs[k])
                reach[n->outputs[k]->id] = true;
    }
}

bool diff_is_smooth(tacit_dtype dtype)
{
    return ir_dtype_is_float(dtype) || ir_dtype_classify(dtype) == IR_CLASS_COMPLEX;
}

tacit_status diff_find_wrt(const ir_graph *g, uint32_t n, const char *const *names, ir_value **out,
                           tacit_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        out[i] = ir_value_find(g, names[i]);
        if (!out[i] || out[i]->producer)
            return error_set(err, TACIT_ERR_ARGUMENT, "'%s' is not an input or weight of the graph",
                             names[i]);
        if (!diff_is_smooth(out[i]->type.dtype))
            return error_set(err, TACIT_ERR_TYPE,
                             "cannot differentiate with respect to '%s': it is %s", names[i],
                             tacit_dtype_text(out[i]->type.dtype));
    }
    return TACIT_OK;
}

/* Which values depend on what is differentiated. Values made since the marks were set stand for
 * such values. */
typedef struct marks {
    const bool *reach;
    uint32_t values;
} marks;

static bool is_reached(const marks *m, const ir_value *v)
{
    return v && (v->id >= m->values || m->reach[v->id]);
}

/* Puts what the row's spelling built in the place of the node; *done: it built something. */
static tacit_status spell_out(ir_graph *g, ir_node *n, const marks *m, bool *done, tacit_error *err)
{
    op_diff c = {.graph = g, .node = n, .err = err};
    ir_value **out = ARENA_ARRAY(g->memory, n->n_outputs + 1u, ir_value *);
    bool *wanted = ARENA_ARRAY(g->memory, n->n_inputs + 1u, bool);
    if (!out || !wanted)
        return error_memory(err, "a derivative graph");
    for (uint32_t i = 0; i < n->n_inputs; i++)
        wanted[i] = is_reached(m, n->inputs[i]);
    c.wanted = wanted;
    TRY(n->op->spell(&c, out));
    for (uint32_t i = 0; i < n->n_outputs; i++)
        *done |= out[i] != NULL;
    if (c.status == TACIT_OK && !*done && n->op->vjp)
        return TACIT_OK;
    for (uint32_t i = 0; c.status == TACIT_OK && i < n->n_outputs; i++) {
        if (!n->outputs[i])
            continue;
        if (out[i] && !out[i]->producer) /* outputs of a graph keep their names: give them a node */
            out[i] = op_diff1(&c, "Identity", out[i]);
        if (!out[i])
            return op_diff_fail(&c, TACIT_ERR_INTERNAL, "its spelling leaves an output out");
        ir_replace_uses(g, n->outputs[i], out[i]);
    }
    if (c.status == TACIT_OK)
        ir_node_kill(n);
    return c.status;
}

/* Marks what depends on `wrt`; without one, everything. */
static void mark(const ir_graph *g, uint32_t n, ir_value *const *wrt, bool *reach)
{
    memset(reach, !wrt, g->values.count * sizeof *reach);
    for (uint32_t i = 0; wrt && i < n; i++)
        reach[wrt[i]->id] = true;
    if (wrt)
        diff_reach(g, reach);
}

static bool reads_reached(const marks *m, const ir_node *n)
{
    for (uint32_t i = 0; i < n->n_inputs; i++)
        if (is_reached(m, n->inputs[i]))
            return true;
    return false;
}

/* By decomposition or, where the node's form has none, by its spelling. */
static tacit_status simplify(ir_graph *g, ir_node *n, bool has_rule, const marks *m, bool *done,
                             tacit_error *err)
{
    tacit_status status = TACIT_ERR_UNSUPPORTED;
    if (!has_rule && n->op->decompose)
        status = n->op->decompose(g, n, err);
    *done = status == TACIT_OK;
    if (status == TACIT_ERR_UNSUPPORTED && n->op->spell)
        return spell_out(g, n, m, done, err);
    return has_rule || !n->op->decompose ? TACIT_OK : status;
}

tacit_status diff_decompose(ir_graph *g, bool (*has_rule)(const op_def *op), uint32_t n,
                            ir_value *const *wrt, tacit_error *err)
{
    bool changed = true;
    while (changed) {
        changed = false;
        uint32_t count = g->nodes.count; /* nodes added by a decomposition are met next time */
        bool *reach = ARENA_ARRAY(g->memory, g->values.count + 1u, bool);
        if (!reach)
            return error_memory(err, "a derivative graph");
        mark(g, n, wrt, reach);
        marks m = {reach, g->values.count};
        for (uint32_t i = 0; i < count; i++) {
            ir_node *node = g->nodes.data[i];
            if (!node->type || !node->op || !reads_reached(&m, node))
                continue;
            bool done = false;
            tacit_status status = simplify(g, node, has_rule(node->op), &m, &done, err);
            if (status != TACIT_OK) /* builders name the node themselves */
                return strncmp(err->message, "node '", 6) == 0 ? status
                                                               : op_context(node, status, err);
            changed |= done;
        }
        if (changed) {
            TRY(ir_graph_sort(g, err));
            TRY(op_infer_graph(g, err));
        }
    }
    return TACIT_OK;
}

tacit_status diff_vjp_node(op_diff *c)
{
    const op_def *op = c->node->op;
    if (diff_is_scan(c->node))
        return diff_scan_vjp(c);
    if (diff_is_if(c->node))
        return diff_if_vjp(c);
    if (strcmp(c->node->type, "Loop") == 0 && c->node->domain[0] == '\0')
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED,
                            "how many steps it takes is not known when compiling: it has no "
                            "gradient");
    if (!op->vjp && op->flags & OP_NOT_DIFFERENTIABLE)
        return TACIT_OK;
    if (!op->vjp)
        return op_no_rule(c->node, "vjp", c->err);
    tacit_status status = op->vjp(c);
    return status != TACIT_OK ? status : c->status;
}

bool diff_is_function(const ir_node *n)
{
    return n->type && n->op && strcmp(n->type, "Function") == 0 && strcmp(n->domain, "tacit") == 0;
}

tacit_status diff_inline_functions(ir_graph *g, const char *rule, const char *other,
                                   tacit_error *err)
{
    bool any = true;
    while (any) { /* functions inside functions come to light in turn */
        any = false;
        for (uint32_t i = 0, count = g->nodes.count; i < count; i++) {
            ir_node *n = g->nodes.data[i];
            if (!diff_is_function(n) || (rule && ir_attr_graph(n, rule)) ||
                (other && ir_attr_graph(n, other)))
                continue;
            TRY(n->op->decompose(g, n, err));
            any = true;
        }
        if (any) {
            TRY(ir_graph_sort(g, err));
            TRY(op_infer_graph(g, err));
        }
    }
    return TACIT_OK;
}
