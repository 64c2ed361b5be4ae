/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of determinants, one-hot codes and selections. */
#include "op/spell.h"
#include "op/vjp.h"

/* d det = det·tr(A⁻¹dA): g·det·A⁻ᵀ. A singular matrix is refused by the solve. */
tacit_status op_vjp_det(op_diff *c)
{
    ir_value *a = c->node->inputs[0];
    const ir_shape *s = &a->type.shape;
    ir_value *units = op_spell_eye(c, a->type.dtype, s->dims[s->rank - 1]);
    units = op_diff_expand(c, units, s);
    ir_value *inverse = op_diff2(c, "tacit.Solve", op_diff_swap_last(c, a), units);
    ir_value *factor = op_spell_mul(c, c->out_grad[0], c->node->outputs[0]);
    factor = op_spell_unsqueeze(c, op_spell_unsqueeze(c, factor, -1), -1);
    c->in_grad[0] = op_spell_mul(c, inverse, factor);
    return c->status;
}

/* y = off + hot·(on − off): only the pair of values has a derivative. */
tacit_status op_vjp_one_hot(op_diff *c)
{
    const ir_node *n = c->node;
    if (!c->wanted[2])
        return c->status;
    const double pair[2] = {0, 1};
    tacit_dtype dtype = n->inputs[2]->type.dtype;
    ir_value *in[3] = {n->inputs[0], n->inputs[1],
                       op_spell_floats(c, dtype, 1, (int64_t[]){2}, pair)};
    ir_node *again = op_spell_sibling(c, "OneHot", "", 3, in, 1);
    ir_value *g = c->out_grad[0], *hot = again ? again->outputs[0] : NULL;
    int64_t size = ir_shape_size(&g->type.shape);
    ir_value *on = op_spell_reduce(c, "ReduceSum",
                                   op_spell_shaped(c, op_spell_mul(c, g, hot), 1, &size), 0, true);
    ir_value *all = op_spell_reduce(c, "ReduceSum", op_spell_shaped(c, g, 1, &size), 0, true);
    c->in_grad[2] = op_spell_concat(c, 2, (ir_value *[]){op_spell_sub(c, all, on), on}, 0);
    return c->status;
}

/* With a condition known when compiling it is a Gather. */
tacit_status op_spell_compress(op_diff *c, ir_value **out)
{
    ir_value *x = c->node->inputs[0];
    const ir_tensor *keep = ir_value_known(c->node->inputs[1]);
    const ir_attr *axis = ir_attr_find(c->node, "axis");
    if (!keep)
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED,
                            "its gradient needs a condition known when compiling");
    int64_t count = ir_tensor_count(keep), n = 0, size = ir_shape_size(&x->type.shape);
    int32_t at = 0;
    if (axis)
        TRY(ir_axis(axis->i, x->type.shape.rank, &at, c->err));
    int64_t most = axis ? x->type.shape.dims[at] : size;
    count = count < most ? count : most; /* a shorter condition drops the rest */
    int64_t *index = op_spell_scratch(c, (size_t)(count + 1) * sizeof *index);
    for (int64_t i = 0; index && i < count; i++)
        if (((const uint8_t *)keep->data)[i])
            index[n++] = i;
    if (!index)
        return c->status;
    if (!axis)
        x = op_spell_shaped(c, x, 1, &size);
    out[0] = op_spell_gather(c, x, op_spell_ints(c, 1, &n, index), at);
    return c->status;
}
