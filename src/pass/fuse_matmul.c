/* SPDX-License-Identifier: Apache-2.0
 * MatMul with what follows it: bias, activation, residual. */
#include <string.h>

#include "pass/epilogue.h"

static tacit_status fuse(pass_edit *e, ir_node *n)
{
    pass_product p;
    if (!pass_product_read(e, n, &p))
        return TACIT_OK;
    pass_set swallowed = {.nodes = {n}, .count = 1};
    ir_value *y = n->outputs[0];
    bool grew = true;
    while (grew)
        TRY(pass_epilogue_grow(e, &p.tail, &y, y->type.shape.rank - 1, &swallowed, &grew));
    if (swallowed.count == 1)
        return TACIT_OK;
    pass_fusion f;
    pass_product_write(&p, n, &f);
    f.nodes = swallowed;
    f.outputs[0] = y;
    return pass_fuse(e, &f);
}

/* The same around a product with narrow weights, whose bias and residual are inputs 4 and 5. */
static tacit_status fuse_narrow(pass_edit *e, ir_node *n)
{
    if (!pass_is(e, n, PASS_T_DEQUANT_MATMUL) || !pass_float(n->outputs[0]))
        return TACIT_OK;
    pass_epilogue tail;
    pass_epilogue_read(&tail, n, true);
    tail.bias = n->n_inputs > 4 ? n->inputs[4] : NULL;
    tail.residual = n->n_inputs > 5 ? n->inputs[5] : NULL;
    pass_set swallowed = {.nodes = {n}, .count = 1};
    ir_value *y = n->outputs[0];
    bool grew = true;
    while (grew)
        TRY(pass_epilogue_grow(e, &tail, &y, y->type.shape.rank - 1, &swallowed, &grew));
    if (swallowed.count == 1)
        return TACIT_OK;
    pass_fusion f = {.op = PASS_T_DEQUANT_MATMUL, .root = n, .n_outputs = 1};
    for (uint32_t i = 0; i < n->n_attrs; i++) /* the epilogue's are written anew */
        if (strncmp(n->attrs[i].name, "act", 3) != 0)
            f.attrs[f.n_attrs++] = n->attrs[i];
    pass_epilogue_write(&tail, &f);
    for (uint32_t i = 0; i < 4; i++)
        f.inputs[i] = i < n->n_inputs ? n->inputs[i] : NULL;
    f.inputs[4] = tail.bias;
    f.inputs[5] = tail.residual;
    f.n_inputs = tail.residual ? 6 : tail.bias ? 5 : 4;
    f.nodes = swallowed;
    f.outputs[0] = y;
    return pass_fuse(e, &f);
}

tacit_status pass_fuse_matmul(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    if (!pass_has(&e, PASS_T_MATMUL))
        return TACIT_OK;
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++)
        TRY(pass_is(&e, c->graph->nodes.data[i], PASS_T_DEQUANT_MATMUL)
                ? fuse_narrow(&e, c->graph->nodes.data[i])
                : fuse(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}
