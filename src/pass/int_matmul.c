/* SPDX-License-Identifier: Apache-2.0
 * Products that a model means to compute on bytes become tacit.IntMatMul: MatMulInteger with the
 * scales behind it (dynamic quantisation), and MatMul between two DequantizeLinear (QDQ). */
#include "pass/epilogue.h"

static bool byte(const ir_value *v)
{
    return pass_static(v) && (v->type.dtype == TACIT_U8 || v->type.dtype == TACIT_I8);
}

static bool f32_of(const ir_value *v, int64_t size)
{
    return pass_static(v) && v->type.dtype == TACIT_F32 && ir_shape_size(&v->type.shape) == size;
}

/* The scales of A and B in a factor: Mul of one number and a constant, or a constant alone. */
static tacit_status split_scale(pass_edit *e, ir_value *s, int64_t n, ir_value **a, ir_value **b)
{
    *a = *b = NULL;
    ir_node *m = pass_from(e, s, PASS_MUL);
    for (int i = 0; m && i < 2; i++) {
        ir_value *x = m->inputs[i], *w = m->inputs[1 - i];
        if (f32_of(x, 1) && ir_value_known(w) && (f32_of(w, 1) || f32_of(w, n))) {
            *a = x;
            *b = w;
            return TACIT_OK;
        }
    }
    if (!ir_value_known(s) || !(f32_of(s, 1) || f32_of(s, n)))
        return TACIT_OK;
    *a = ir_constant_f32(e->g, "one", 1);
    *b = s;
    return *a ? TACIT_OK : error_memory(e->c->err, "a scale");
}

static void start(pass_fusion *f, ir_node *root, ir_value *a, ir_value *b)
{
    *f = (pass_fusion){.op = PASS_T_INT_MATMUL,
                       .root = root,
                       .nodes = {.nodes = {root}, .count = 1},
                       .n_inputs = 6,
                       .n_outputs = 1,
                       .inputs = {a, b}};
}

/* MatMulInteger → Cast → Mul(scales) */
static tacit_status from_integer(pass_edit *e, ir_node *n)
{
    ir_value *b = n->inputs[1], *za = n->n_inputs > 2 ? n->inputs[2] : NULL;
    ir_value *zb = n->n_inputs > 3 ? n->inputs[3] : NULL;
    if (!byte(n->inputs[0]) || !byte(b) || b->type.shape.rank != 2 ||
        n->inputs[0]->type.shape.rank < 2 || !ir_value_known(b) || (zb && !ir_value_known(zb)))
        return TACIT_OK;
    ir_node *cast = pass_only_user(e, n->outputs[0]);
    ir_node *mul = pass_is(e, cast, PASS_CAST) && cast->outputs[0]->type.dtype == TACIT_F32
                       ? pass_only_user(e, cast->outputs[0])
                       : NULL;
    ir_value *scale = pass_is(e, mul, PASS_MUL) ? pass_other(mul, cast->outputs[0]) : NULL;
    if (!scale || !pass_same_shape(mul->outputs[0], cast->outputs[0]))
        return TACIT_OK;
    pass_fusion f;
    start(&f, n, n->inputs[0], b);
    pass_set_add(&f.nodes, cast);
    pass_set_add(&f.nodes, mul);
    TRY(split_scale(e, scale, pass_dim(b, 1), &f.inputs[2], &f.inputs[4]));
    if (!f.inputs[2]) {
        pass_near_miss(e, n, "not fused: the factor behind it is not a scale of A times one of B");
        return TACIT_OK;
    }
    f.inputs[3] = za;
    f.inputs[5] = zb;
    f.outputs[0] = mul->outputs[0];
    return pass_fuse(e, &f);
}

/* Both sides of a MatMul dequantised, the right one a weight with one scale a column. */
static tacit_status from_qdq(pass_edit *e, ir_node *n)
{
    pass_product p;
    if (!pass_product_read(e, n, &p) || p.trans_a || p.b->type.shape.rank != 2)
        return TACIT_OK;
    ir_node *a = pass_from(e, p.a, PASS_DEQUANTIZE), *b = pass_from(e, p.b, PASS_DEQUANTIZE);
    if (!a || !b || ir_value_known(a->inputs[0]) || !ir_value_known(b->inputs[0]) ||
        !byte(a->inputs[0]) || !byte(b->inputs[0]) || !f32_of(a->inputs[1], 1))
        return TACIT_OK;
    ir_value *zb = b->n_inputs > 2 ? b->inputs[2] : NULL, *scale = b->inputs[1];
    int64_t columns = pass_dim(p.b, p.trans_b ? 2 : 1), axis = ir_attr_int(b, "axis", 1);
    bool along = scale->type.shape.rank == 1 && f32_of(scale, columns) &&
                 (axis + 2) % 2 == (p.trans_b ? 0 : 1);
    if (!ir_value_known(scale) || (zb && !ir_value_known(zb)) || !(f32_of(scale, 1) || along))
        return TACIT_OK;
    pass_fusion f;
    start(&f, n, a->inputs[0], b->inputs[0]);
    pass_epilogue_write(&p.tail, &f);
    f.inputs[2] = a->inputs[1];
    f.inputs[3] = a->n_inputs > 2 ? a->inputs[2] : NULL;
    f.inputs[4] = scale;
    f.inputs[5] = zb;
    f.inputs[6] = p.tail.bias;
    f.inputs[7] = p.tail.residual;
    f.n_inputs = p.tail.residual ? 8 : p.tail.bias ? 7 : 6;
    f.outputs[0] = n->outputs[0];
    if (p.trans_b)
        pass_fusion_int(&f, "trans_b", 1);
    if (p.alpha != 1)
        pass_fusion_float(&f, "alpha", p.alpha);
    return pass_fuse(e, &f);
}

static tacit_status rewrite(pass_edit *e, ir_node *n)
{
    return pass_is(e, n, PASS_MATMUL_INTEGER) ? from_integer(e, n) : from_qdq(e, n);
}

tacit_status pass_int_matmul(pass_context *c)
{
    return pass_each(c, PASS_T_INT_MATMUL, rewrite);
}
