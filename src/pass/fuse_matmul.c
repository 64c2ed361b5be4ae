/* SPDX-License-Identifier: Apache-2.0
 * MatMul with what follows it: bias, activation, residual. */
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

tacit_status pass_fuse_matmul(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    if (!pass_has(&e, PASS_T_MATMUL))
        return TACIT_OK;
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++)
        TRY(fuse(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}
