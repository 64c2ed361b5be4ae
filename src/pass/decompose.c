/* SPDX-License-Identifier: Apache-2.0
 * Ops that only know how to be spelled by simpler ones. */
#include "pass/edit.h"

enum { DEPTH_MOST = 16 }; /* a decomposition that yields itself again must end */

static tacit_status decompose_graph(void *context, ir_graph *g)
{
    pass_context *c = context;
    for (uint32_t depth = 0; depth < DEPTH_MOST; depth++) {
        uint32_t done = 0;
        for (uint32_t i = 0; i < g->nodes.count; i++) {
            ir_node *n = g->nodes.data[i];
            if (!n->type || !n->op)
                continue;
            TRY(ir_node_subgraphs(n, decompose_graph, c));
            if (n->op->eval || !n->op->decompose)
                continue;
            uint32_t before = g->nodes.count;
            TRY(op_context(n, n->op->decompose(g, n, c->err), c->err));
            for (uint32_t k = before; k < g->nodes.count; k++)
                ir_node_note(g, g->nodes.data[k], c->name, "from %s (%s)", n->name, n->op->name);
            done++;
        }
        if (!done)
            return TACIT_OK;
        TRY(ir_graph_sort(g, c->err));
        if (!g->parent) /* subgraphs are inferred when they run */
            TRY(op_infer_graph(g, c->err));
        c->rewrites += done;
    }
    return TACIT_OK;
}

tacit_status pass_decompose(pass_context *c)
{
    return decompose_graph(c, c->graph);
}
