/* SPDX-License-Identifier: Apache-2.0
 * Weights in half precision stay as they are until they are packed, and are widened then. */
#include "pass/edit.h"

bool pass_widens_weight(const pass_edit *e, const ir_node *n)
{
    static const pass_op takers[] = {PASS_MATMUL, PASS_T_MATMUL, PASS_GEMM, PASS_CONV, PASS_T_CONV};
    if (!pass_is(e, n, PASS_CAST) || !pass_half(n->inputs[0]) || !ir_value_known(n->inputs[0]) ||
        n->outputs[0]->type.dtype != TACIT_F32 || !pass_uses(e, n->outputs[0]))
        return false;
    for (const pass_use *u = pass_first_use(e, n->outputs[0]); u; u = pass_next_use(e, u)) {
        bool takes = false;
        for (size_t i = 0; u->node && u->index == 1 && i < sizeof takers / sizeof *takers; i++)
            takes |= pass_is(e, u->node, takers[i]);
        if (!takes)
            return false;
    }
    return true;
}

/* A weight behind its Cast becomes one that is widened when it is packed. */
static tacit_status make_late(pass_edit *e, ir_node *n)
{
    ir_value *y = n->type && n->op ? n->outputs[0] : NULL;
    size_t bytes;
    if (!y || !pass_widens_weight(e, n) || !ir_type_bytes(&y->type, &bytes) || !pass_late(e, bytes))
        return TACIT_OK;
    const ir_tensor *half = ir_value_known(n->inputs[0]);
    ir_recipe recipe = {
        .kind = IR_JOINED, .count = 1, .from = &half, .dtype = TACIT_F32, .rows = 1};
    ir_tensor *t;
    TRY(pass_derive(e, &y->type.shape, &recipe, &t));
    y->constant = t;
    pass_become_constants(e, n);
    e->c->rewrites++;
    return TACIT_OK;
}

tacit_status pass_late_halves(pass_context *c)
{
    return pass_each(c, PASS_CAST, make_late);
}
