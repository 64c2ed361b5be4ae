/* SPDX-License-Identifier: Apache-2.0
 * Ops that only know how to be spelled by simpler ones, and those whose spelling runs on kernels
 * while they themselves do not. */
#include <string.h>

#include "pass/edit.h"

enum { DEPTH_MOST = 16 }; /* a decomposition that yields itself again must end */

/* Puts the simpler nodes in the place of `n`. */
static tacit_status spell_out(pass_context *c, ir_graph *g, ir_node *n)
{
    uint32_t before = g->nodes.count;
    const op_def *op = n->op;
    tacit_status status = op->decompose(g, n, c->err);
    if (status != TACIT_OK)
        return op_context(n, status, c->err);
    for (uint32_t k = before; k < g->nodes.count; k++)
        ir_node_note(g, g->nodes.data[k], c->name, "from %s (%s)", n->name, op->name);
    return TACIT_OK;
}

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
            TRY(spell_out(c, g, n));
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

static bool gives_strings(const ir_node *n)
{
    return n->n_outputs && n->outputs[0] && n->outputs[0]->type.dtype == TACIT_STRING;
}

static const char no_spelling[] = "this form has no spelling: the evaluator runs it";

static bool was_tried(const ir_node *n)
{
    for (const ir_note *note = n->notes; note; note = note->next)
        if (strcmp(note->text, no_spelling) == 0)
            return true;
    return false;
}

bool pass_unfolds(const ir_node *n)
{
    if (!n->type || !n->op || !n->op->decompose || !n->op->eval ||
        (n->op->lower && !gives_strings(n)) || was_tried(n))
        return false;
    for (uint32_t k = 0; k < n->n_inputs; k++)
        if (n->inputs[k] && !ir_type_is_static(&n->inputs[k]->type))
            return false;
    for (uint32_t k = 0; k < n->n_outputs; k++)
        if (n->outputs[k] && !ir_type_is_static(&n->outputs[k]->type))
            return false;
    /* Classifiers have their scores behind the labels. */
    const ir_value *scores =
        n->outputs[0] && n->outputs[0]->type.dtype != TACIT_F32 && n->n_outputs > 1 ? n->outputs[1]
                                                                                    : n->outputs[0];
    return n->n_inputs && n->inputs[0] && scores && scores->type.dtype == TACIT_F32;
}

tacit_status pass_unfold(pass_context *c)
{
    ir_graph *g = c->graph;
    for (uint32_t i = 0, n = g->nodes.count; i < n; i++)
        if (pass_unfolds(g->nodes.data[i])) {
            ir_node *node = g->nodes.data[i];
            tacit_status status = spell_out(c, g, node);
            if (status == TACIT_ERR_UNSUPPORTED) {
                ir_node_note(g, node, c->name, "%s", no_spelling);
                continue;
            }
            TRY(status);
            c->rewrites++;
        }
    if (!c->rewrites)
        return TACIT_OK;
    TRY(ir_graph_sort(g, c->err));
    return op_infer_graph(g, c->err);
}
