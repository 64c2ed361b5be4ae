/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of products with packed weights: x and, where they are blocks, the scales. */
#include <string.h>

#include "op/activation.h"
#include "op/build.h"
#include "op/spell.h"
#include "op/vjp.h"

/* The weights as [k, n]: the node itself on unit vectors, without what comes after the product.
 * `plain`: with all scales one. */
static ir_value *unpacked(op_diff *c, int64_t k, uint32_t inputs, bool plain)
{
    ir_value *in[8];
    memcpy(in, c->node->inputs, inputs * sizeof *in);
    in[0] = op_spell_eye(c, c->node->inputs[0]->type.dtype, k);
    if (plain)
        in[2] = op_diff_expand(c, op_diff_scalar(c, in[2]->type.dtype, 1), &in[2]->type.shape);
    ir_node *n = op_spell_sibling(c, c->node->type, c->node->domain, inputs, in, 1);
    return n ? n->outputs[0] : NULL;
}

/* Σ over each block of dW·(W/scale): the weight is linear in its scale. `by_column`: scales lie as
 * [n, blocks], else as [blocks, n]. */
static ir_value *scale_grad(op_diff *c, ir_value *dw, ir_value *plain, ir_value *scale,
                            int64_t block, bool by_column)
{
    if (!dw || !plain)
        return NULL;
    int64_t k = plain->type.shape.dims[0], n = plain->type.shape.dims[1];
    int64_t blocks = (k + block - 1) / block;
    ir_value *each = op_spell_padded(c, op_spell_mul(c, dw, plain), 0, 0, blocks * block - k);
    each = op_spell_shaped(c, each, 3, (int64_t[]){blocks, block, n});
    each = op_spell_reduce(c, "ReduceSum", each, 1, false);
    if (by_column)
        each = op_diff_swap_last(c, each);
    each = op_diff_reshape(c, each, &scale->type.shape);
    return op_diff_cast(c, each, scale->type.dtype);
}

/* DequantMatMul(x, w, scale?, zero?) and com.microsoft MatMulNBits(x, w, scale, zero?, g_idx?,
 * bias?): y = x·W. */
tacit_status op_vjp_packed_matmul(op_diff *c)
{
    const ir_node *n = c->node;
    ir_value *x = n->inputs[0], *g = c->out_grad[0];
    bool nbits = strcmp(n->type, "MatMulNBits") == 0;
    const char *scheme = ir_attr_string(n, "scheme", "");
    bool blocks = nbits || strcmp(scheme, "int8") == 0 || strcmp(scheme, "int4") == 0;
    uint32_t inputs = nbits && n->n_inputs > 5 ? 5 : n->n_inputs;
    int32_t rank = x->type.shape.rank;
    int64_t k = x->type.shape.dims[rank - 1], width = g->type.shape.dims[rank - 1];
    for (uint32_t i = 1; i < n->n_inputs; i++)
        if (c->wanted[i] && !(i == 2 && blocks) && !(i == 5 && nbits))
            return op_diff_fail(c, TACIT_ERR_UNSUPPORTED,
                                "only x and the scales of integer blocks have a gradient");
    if (c->wanted[2] && nbits && op_spell_input(c, 4))
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED, "with g_idx its scales have no gradient");
    if (c->wanted[0])
        c->in_grad[0] = op_spell_matmul(c, g, op_diff_swap_last(c, unpacked(c, k, inputs, false)));
    int64_t rows = ir_shape_size(&x->type.shape) / (k ? k : 1);
    ir_value *flat = op_spell_shaped(c, g, 2, (int64_t[]){rows, width});
    if (n->n_inputs > 2 && c->wanted[2]) {
        ir_value *dw = op_spell_shaped(c, x, 2, (int64_t[]){rows, k});
        dw = op_spell_matmul(c, op_diff_swap_last(c, dw), flat);
        int64_t block = ir_attr_int(n, nbits ? "block_size" : "block", k);
        ir_value *plain = unpacked(c, k, inputs, true);
        c->in_grad[2] = scale_grad(c, dw, plain, n->inputs[2], block, nbits);
    }
    if (nbits && n->n_inputs > 5 && c->wanted[5])
        c->in_grad[5] = op_spell_reduce(c, "ReduceSum", flat, 0, false);
    return c->status;
}

/* DequantMatMul with what was fused behind it: the bare product, which has the rule above, and
 * plain nodes. Nothing is given where there is nothing behind it. */
tacit_status op_spell_dequant_matmul(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    op_activation act;
    ir_value *bias = op_spell_input(c, 4), *residual = op_spell_input(c, 5);
    double alpha = ir_attr_float(n, "alpha", 1);
    bool last = ir_attr_int(n, "activation_last", 0) != 0;
    TRY(op_activation_read(n, &act, c->err));
    if (!bias && !residual && alpha == 1 && act.kind == OP_ACT_NONE)
        return TACIT_OK;
    ir_node *bare =
        op_spell_sibling(c, n->type, n->domain, n->n_inputs < 4 ? n->n_inputs : 4, n->inputs, 1);
    if (!bare)
        return c->status;
    static const char *const tail[] = {"alpha", "activation", "activation_last", "act_min",
                                       "act_max"};
    for (size_t i = 0; i < sizeof tail / sizeof *tail; i++)
        ir_attr_remove(bare, tail[i]);
    ir_value *y = bare->outputs[0];
    if (alpha != 1)
        y = op_diff_scale(c, y, alpha);
    if (bias)
        y = op_spell_add(c, y, bias);
    if (residual && last)
        y = op_spell_add(c, y, residual);
    y = y ? op_activation_build(c->graph, &act, y, y->type.dtype) : NULL;
    if (residual && !last)
        y = op_build2(c->graph, "Add", y, residual);
    if (!y && c->status == TACIT_OK)
        c->status = error_memory(c->err, "a derivative graph");
    out[0] = y;
    return c->status;
}
