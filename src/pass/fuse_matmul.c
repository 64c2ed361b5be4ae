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

/* The same around a product of narrow weights or bytes, whose bias and residual are inputs
 * `bias` and the one behind it. */
static tacit_status fuse_narrow(pass_edit *e, ir_node *n, pass_op op, uint32_t bias)
{
    if (!pass_float(n->outputs[0]))
        return TACIT_OK;
    pass_epilogue tail;
    pass_epilogue_read(&tail, n, true);
    tail.bias = n->n_inputs > bias ? n->inputs[bias] : NULL;
    tail.residual = n->n_inputs > bias + 1 ? n->inputs[bias + 1] : NULL;
    pass_set swallowed = {.nodes = {n}, .count = 1};
    ir_value *y = n->outputs[0];
    bool grew = true;
    while (grew)
        TRY(pass_epilogue_grow(e, &tail, &y, y->type.shape.rank - 1, &swallowed, &grew));
    if (swallowed.count == 1)
        return TACIT_OK;
    pass_fusion f = {.op = op, .root = n, .n_outputs = 1};
    for (uint32_t i = 0; i < n->n_attrs; i++) /* the epilogue's are written anew */
        if (strncmp(n->attrs[i].name, "act", 3) != 0)
            f.attrs[f.n_attrs++] = n->attrs[i];
    pass_epilogue_write(&tail, &f);
    for (uint32_t i = 0; i < bias; i++)
        f.inputs[i] = i < n->n_inputs ? n->inputs[i] : NULL;
    f.inputs[bias] = tail.bias;
    f.inputs[bias + 1] = tail.residual;
    f.n_inputs = bias + (tail.residual ? 2 : tail.bias ? 1 : 0);
    f.nodes = swallowed;
    f.outputs[0] = y;
    return pass_fuse(e, &f);
}

static tacit_status fuse_any(pass_edit *e, ir_node *n)
{
    return pass_is(e, n, PASS_T_DEQUANT_MATMUL) ? fuse_narrow(e, n, PASS_T_DEQUANT_MATMUL, 4)
           : pass_is(e, n, PASS_T_INT_MATMUL)   ? fuse_narrow(e, n, PASS_T_INT_MATMUL, 6)
                                                : fuse(e, n);
}

tacit_status pass_fuse_matmul(pass_context *c)
{
    return pass_each(c, PASS_T_MATMUL, fuse_any);
}
