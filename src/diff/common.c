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

tacit_status diff_decompose(ir_graph *g, bool (*has_rule)(const op_def *op), tacit_error *err)
{
    bool changed = true;
    while (changed) {
        changed = false;
        uint32_t count = g->nodes.count; /* nodes added by a decomposition are met next time */
        for (uint32_t i = 0; i < count; i++) {
            ir_node *n = g->nodes.data[i];
            if (!n->type || !n->op || has_rule(n->op) || !n->op->decompose)
                continue;
            TRY(n->op->decompose(g, n, err));
            changed = true;
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
