/* SPDX-License-Identifier: Apache-2.0
 * Nodes whose results nobody reads, and single outputs nobody reads. */
#include "pass/edit.h"

static bool node_is_read(const pass_edit *e, const ir_node *n)
{
    for (uint32_t k = 0; k < n->n_outputs; k++)
        if (n->outputs[k] && pass_uses(e, n->outputs[k]))
            return true;
    return false;
}

/* Optional outputs go away one by one; a node with subgraphs keeps them, as its outputs are tied
 * to those of the subgraphs. */
static void drop_outputs(pass_edit *e, ir_node *n)
{
    if (!n->op || n->op->flags & OP_CONTROL || n->op->max_out < 0)
        return;
    for (uint32_t k = (uint32_t)n->op->min_out; k < n->n_outputs; k++)
        if (n->outputs[k] && !pass_uses(e, n->outputs[k])) {
            n->outputs[k]->producer = NULL;
            n->outputs[k] = NULL;
            e->c->rewrites++;
        }
}

tacit_status pass_drop_dead(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = c->graph->nodes.count; i-- > 0;) {
        ir_node *n = c->graph->nodes.data[i];
        if (node_is_read(&e, n)) {
            drop_outputs(&e, n);
            continue;
        }
        pass_kill(&e, n);
        c->rewrites++;
    }
    return TACIT_OK;
}
