/* SPDX-License-Identifier: Apache-2.0
 * Into MatMul: transposes of the last two axes become flags and constant factors become alpha.
 * What touches weights goes first, before folding, which would otherwise copy them transposed or
 * scaled. Factors of other values wait until the activations that may end in one are recognised.
 * Gemm becomes the same op. */
#include "pass/epilogue.h"

/* Follows `*x` through one transpose of its last two axes. */
static bool absorb_transpose(const pass_edit *e, ir_value **x, bool *flag)
{
    int64_t perm[IR_MAX_RANK];
    const ir_node *t = pass_from(e, *x, PASS_TRANSPOSE);
    if (!t || !pass_permutation(t, perm) || !pass_swaps_last_two(perm, (*x)->type.shape.rank))
        return false;
    *x = t->inputs[0];
    *flag = !*flag;
    return true;
}

/* Follows `*x` through a constant factor. Half precision keeps it: there it guards the product
 * against overflow. */
static bool absorb_factor(const pass_edit *e, ir_value **x, bool weights_only, double *alpha)
{
    double c;
    ir_value *inner;
    ir_node *n = (*x)->producer;
    if ((*x)->type.dtype != TACIT_F32 && (*x)->type.dtype != TACIT_F64)
        return false;
    bool times = pass_with_scalar(e, n, PASS_MUL, &inner, &c);
    if (!times && !(pass_with_scalar(e, n, PASS_DIV, &inner, &c) && c != 0))
        return false;
    if (weights_only && !ir_value_known(inner))
        return false;
    *alpha = times ? *alpha * c : *alpha / c;
    *x = inner;
    return true;
}

static bool absorb_inputs(const pass_edit *e, pass_product *p, bool weights_only)
{
    bool any = false, more = true;
    while (more) {
        more = absorb_transpose(e, &p->a, &p->trans_a);
        more |= absorb_transpose(e, &p->b, &p->trans_b);
        more |= absorb_factor(e, &p->a, weights_only, &p->alpha);
        more |= absorb_factor(e, &p->b, weights_only, &p->alpha);
        any |= more;
    }
    return any;
}

/* A factor on the result, when the result goes nowhere else. */
static ir_node *factor_after(const pass_edit *e, const ir_value *y, double *alpha)
{
    ir_value *x;
    double c;
    ir_node *n = pass_only_user(e, y);
    if (pass_with_scalar(e, n, PASS_MUL, &x, &c) && x == y)
        *alpha *= c;
    else if (pass_with_scalar(e, n, PASS_DIV, &x, &c) && x == y && c != 0)
        *alpha /= c;
    else
        return NULL;
    return n;
}

static tacit_status absorb(pass_edit *e, ir_node *n, bool weights_only)
{
    pass_product p;
    if (!pass_product_read(e, n, &p))
        return TACIT_OK;
    pass_set swallowed = {.nodes = {n}, .count = 1};
    ir_value *y = n->outputs[0];
    bool any = absorb_inputs(e, &p, weights_only);
    while (!weights_only && pass_epilogue_is_empty(&p.tail)) {
        ir_node *after = factor_after(e, y, &p.alpha);
        if (!after)
            break;
        pass_set_add(&swallowed, after);
        y = after->outputs[0];
        any = true;
    }
    if (!any)
        return TACIT_OK;
    pass_fusion f;
    pass_product_write(&p, n, &f);
    f.nodes = swallowed;
    f.outputs[0] = y;
    return pass_fuse(e, &f);
}

static tacit_status absorb_known(pass_edit *e, ir_node *n)
{
    return absorb(e, n, true);
}

static tacit_status absorb_any(pass_edit *e, ir_node *n)
{
    return absorb(e, n, false);
}

tacit_status pass_absorb_transpose(pass_context *c)
{
    return pass_each(c, PASS_T_MATMUL, absorb_known);
}

tacit_status pass_absorb_scale(pass_context *c)
{
    return pass_each(c, PASS_T_MATMUL, absorb_any);
}

/* --- Gemm ------------------------------------------------------------------------------------- */

/* beta·C as a vector constant; C is known and broadcasts along rows only. */
static ir_value *scaled_bias(pass_edit *e, const ir_value *c, double beta)
{
    int64_t count = ir_tensor_count(c->constant);
    ir_shape shape = ir_shape_of(1, &count);
    ir_tensor *t = ir_tensor_new(e->g->memory, c->type.dtype, &shape);
    if (!t)
        return NULL;
    for (int64_t i = 0; i < count; i++)
        ir_store_f64(t->dtype, t->data, i, beta * ir_load_f64(t->dtype, c->constant->data, i));
    return ir_constant_new(e->g, c->name, t);
}

/* Where C goes: a bias of N, a residual of M×N, or nowhere (*fits false). */
static tacit_status place_c(pass_edit *e, const ir_node *n, pass_product *p, bool *fits)
{
    ir_value *c = n->n_inputs > 2 ? n->inputs[2] : NULL;
    const ir_shape *out = &n->outputs[0]->type.shape;
    double beta = ir_attr_float(n, "beta", 1);
    *fits = true;
    if (!c || beta == 0)
        return TACIT_OK;
    const ir_shape *shape = &c->type.shape;
    bool vector = shape->rank >= 1 && shape->dims[shape->rank - 1] == out->dims[1] &&
                  (shape->rank == 1 || shape->dims[0] == 1);
    if (vector && (beta != 1 || shape->rank == 2) && ir_value_known(c)) {
        p->tail.bias = scaled_bias(e, c, beta);
        return p->tail.bias ? TACIT_OK : error_memory(e->c->err, "a bias");
    }
    if (beta == 1 && vector && shape->rank == 1)
        p->tail.bias = c;
    else if (beta == 1 && ir_shape_equal(shape, out))
        p->tail.residual = c;
    else
        *fits = false;
    return TACIT_OK;
}

static tacit_status rewrite_gemm(pass_edit *e, ir_node *n)
{
    if (!pass_is(e, n, PASS_GEMM) || !pass_float(n->inputs[0]) || !pass_float(n->inputs[1]) ||
        !pass_static(n->outputs[0]))
        return TACIT_OK;
    pass_product p = {.a = n->inputs[0],
                      .b = n->inputs[1],
                      .trans_a = ir_attr_int(n, "transA", 0) != 0,
                      .trans_b = ir_attr_int(n, "transB", 0) != 0,
                      .alpha = ir_attr_float(n, "alpha", 1),
                      .tail.activation = "none"};
    bool fits;
    TRY(place_c(e, n, &p, &fits));
    if (!fits) {
        pass_near_miss(e, n, "not rewritten: C is neither a row nor a full matrix with beta 1");
        return TACIT_OK;
    }
    pass_fusion f;
    pass_product_write(&p, n, &f);
    pass_set_add(&f.nodes, n);
    f.outputs[0] = n->outputs[0];
    return pass_fuse(e, &f);
}

tacit_status pass_rewrite_gemm(pass_context *c)
{
    return pass_each(c, PASS_T_MATMUL, rewrite_gemm);
}
