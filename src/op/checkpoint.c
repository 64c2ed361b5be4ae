/* SPDX-License-Identifier: Apache-2.0
 * Marks for gradients that compute parts of the forward pass again. Both give back their input.
 *
 * tacit Checkpoint(x): reverse mode keeps this value; what lies between two such values is computed
 * again when the gradient comes to it (diff/remat.c).
 * tacit Later(x, after…): x, for readers that must not run before `after` is there. Neither merged
 * with x by the passes nor moved: that is what keeps the second computation apart from the first.
 */

#include "op/lowerings.h"
#include "op/vjp.h"

/* What is only waited for may lie anyhow. */
static bool first_accepts(const ir_node *node, uint32_t in, const op_operand *view)
{
    return in > 0 || op_accepts_view(node, in, view);
}

static tacit_status first_eval(op_eval *c)
{
    return op_eval_copy(c, c->out[0], c->in[0]);
}

static tacit_status to_identity(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_node *same = op_node(g, "Identity", node->name, 1, node->inputs);
    if (!same)
        return error_memory(err, "a mark");
    same->outputs[0]->type = node->outputs[0]->type;
    ir_replace_uses(g, node->outputs[0], same->outputs[0]);
    ir_node_kill(node);
    return TACIT_OK;
}

static tacit_status first_batch(op_batch *c)
{
    ir_value *in[32];
    for (uint32_t i = 0; i < c->node->n_inputs && i < 32; i++)
        in[i] = i ? c->in[i] : op_batch_input(c, 0);
    ir_node *n = c->node->n_inputs <= 32 ? op_batch_copy(c, in) : NULL;
    c->out[0] = n ? n->outputs[0] : op_batch_input(c, 0);
    return c->build.status;
}

const op_def op_rows_checkpoint[] = {
    {.name = "Checkpoint",
     .domain = "tacit",
     .min_in = 1,
     .max_in = 1,
     .min_out = 1,
     .max_out = 1,
     .infer = op_infer_same,
     .eval = first_eval,
     .alias = op_alias_first,
     .decompose = to_identity,
     .vjp = op_vjp_identity,
     .batch = first_batch},
    {.name = "Later",
     .domain = "tacit",
     .min_in = 2,
     .max_in = -1,
     .min_out = 1,
     .max_out = 1,
     .infer = op_infer_same,
     .eval = first_eval,
     .alias = op_alias_first,
     .lower = op_lower_view,
     .accepts = first_accepts,
     .decompose = to_identity,
     .vjp = op_vjp_identity,
     .batch = first_batch},
    {0},
};
