/* SPDX-License-Identifier: Apache-2.0
 * Products whose weights are stored in few bits: MatMulNBits, and MatMul behind DequantizeLinear,
 * become tacit.DequantMatMul, which reads the weights as they are instead of widening them first.
 */
#include "pass/epilogue.h"

static bool known(const ir_value *v)
{
    return v && ir_value_known(v);
}

/* MatMulNBits without a permutation of k. accuracy_level 4 allows bytes for the rows. */
static tacit_status from_nbits(pass_edit *e, ir_node *n)
{
    ir_value *zero = n->n_inputs > 3 ? n->inputs[3] : NULL;
    ir_value *bias = n->n_inputs > 5 ? n->inputs[5] : NULL;
    if (!pass_float(n->inputs[0]) || !known(n->inputs[1]) || !known(n->inputs[2]) ||
        (zero && !known(zero)) || (n->n_inputs > 4 && n->inputs[4]))
        return TACIT_OK;
    pass_fusion f = {.op = PASS_T_DEQUANT_MATMUL,
                     .root = n,
                     .nodes = {.nodes = {n}, .count = 1},
                     .n_inputs = bias ? 5 : 4,
                     .n_outputs = 1,
                     .inputs = {n->inputs[0], n->inputs[1], n->inputs[2], zero, bias},
                     .outputs = {n->outputs[0]}};
    pass_fusion_string(&f, "scheme", "nbits");
    pass_fusion_int(&f, "n", ir_attr_int(n, "N", 0));
    pass_fusion_int(&f, "bits", ir_attr_int(n, "bits", 4));
    pass_fusion_int(&f, "block", ir_attr_int(n, "block_size", 0));
    if (ir_attr_int(n, "accuracy_level", 0) == 4)
        pass_fusion_int(&f, "int8_activations", 1);
    return pass_fuse(e, &f);
}

/* The product as far as both forms share it; false when DequantMatMul cannot say it. */
static bool start(const pass_product *p, ir_node *n, ir_value *w, pass_fusion *f)
{
    int64_t k = pass_dim(p->b, p->trans_b ? 1 : 2), columns = pass_dim(p->b, p->trans_b ? 2 : 1);
    if (p->trans_a || p->b->type.shape.rank != 2 || !known(w) || k < 1 || columns < 1 ||
        p->a->type.dtype != TACIT_F32)
        return false;
    *f = (pass_fusion){.op = PASS_T_DEQUANT_MATMUL,
                       .root = n,
                       .nodes = {.nodes = {n}, .count = 1},
                       .n_outputs = 1,
                       .outputs = {n->outputs[0]}};
    pass_epilogue_write(&p->tail, f);
    f->n_inputs = p->tail.residual ? 6 : p->tail.bias ? 5 : 4;
    f->inputs[4] = p->tail.bias;
    f->inputs[5] = p->tail.residual;
    f->inputs[0] = p->a;
    f->inputs[1] = w;
    f->inputs[2] = f->inputs[3] = NULL;
    pass_fusion_int(f, "n", columns);
    if (p->trans_b)
        pass_fusion_int(f, "trans_b", 1);
    if (p->alpha != 1)
        pass_fusion_float(f, "alpha", p->alpha);
    return true;
}

/* How many k share a scale; 0 when scales run along k in another way. */
static int64_t block_of(const ir_node *d, const pass_product *p, int64_t k, int64_t columns)
{
    const ir_shape *s = &d->inputs[1]->type.shape;
    int64_t axis = ir_attr_int(d, "axis", 1), block = ir_attr_int(d, "block_size", 0);
    int32_t along_k = p->trans_b ? 1 : 0;
    axis += axis < 0 ? 2 : 0;
    if (ir_shape_size(s) == 1)
        return k;
    if (s->rank == 1)
        return axis != along_k && s->dims[0] == columns ? k : 0;
    return block > 0 && axis == along_k ? block : 0;
}

static tacit_status from_product(pass_edit *e, ir_node *n)
{
    pass_product p;
    pass_fusion f;
    if (!pass_product_read(e, n, &p) || p.b->type.shape.rank != 2)
        return TACIT_OK;
    int64_t k = pass_dim(p.b, p.trans_b ? 1 : 2), columns = pass_dim(p.b, p.trans_b ? 2 : 1);
    ir_node *d = pass_from(e, p.b, PASS_DEQUANTIZE);
    if (!d || !start(&p, n, d->inputs[0], &f))
        return TACIT_OK;
    ir_value *zero = d->n_inputs > 2 ? d->inputs[2] : NULL;
    tacit_dtype t = d->inputs[0]->type.dtype;
    int64_t block = block_of(d, &p, k, columns);
    if (!known(d->inputs[1]) || (zero && !known(zero)) || !block ||
        (t != TACIT_I8 && t != TACIT_U8 && t != TACIT_I4 && t != TACIT_U4))
        return TACIT_OK;
    f.inputs[2] = d->inputs[1];
    f.inputs[3] = zero;
    pass_fusion_string(&f, "scheme", "linear");
    pass_fusion_int(&f, "block", block);
    return pass_fuse(e, &f);
}

static tacit_status rewrite(pass_edit *e, ir_node *n)
{
    return pass_is(e, n, PASS_MATMUL_NBITS) ? from_nbits(e, n) : from_product(e, n);
}

tacit_status pass_narrow_weights(pass_context *c)
{
    return pass_each(c, PASS_T_DEQUANT_MATMUL, rewrite);
}
