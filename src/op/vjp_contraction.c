/* SPDX-License-Identifier: Apache-2.0
 * Derivatives of products. */
#include "op/vjp.h"

/* ONNX MatMul takes vectors: give them back their second axis, [1,k] or [k,1]. */
static ir_value *as_matrix(op_diff *c, ir_value *x, bool left)
{
    if (x->type.shape.rank != 1)
        return x;
    int64_t k = x->type.shape.dims[0];
    ir_shape s = ir_shape_of(2, left ? (int64_t[]){1, k} : (int64_t[]){k, 1});
    return op_diff_reshape(c, x, &s);
}

/* The output's cotangent as it would be had both inputs been matrices. */
static ir_value *matrix_grad(op_diff *c, const ir_shape *a, const ir_shape *b)
{
    ir_shape s = c->node->outputs[0]->type.shape;
    if (a->rank == 1) { /* [… , n] was [… , 1, n] */
        int32_t at = s.rank - (b->rank > 1);
        for (int32_t i = s.rank; i > at; i--)
            s.dims[i] = s.dims[i - 1];
        s.dims[at] = 1;
        s.rank++;
    }
    if (b->rank == 1)
        s.dims[s.rank++] = 1;
    return op_diff_reshape(c, c->out_grad[0], &s);
}

/* x as [rows, last axis]. */
static ir_value *as_rows(op_diff *c, ir_value *x)
{
    int32_t rank = x->type.shape.rank;
    int64_t last = x->type.shape.dims[rank - 1], rows = 1;
    for (int32_t i = 0; i < rank - 1; i++)
        rows *= x->type.shape.dims[i];
    ir_shape s = ir_shape_of(2, (int64_t[]){rows, last});
    return op_diff_reshape(c, x, &s);
}

/* Aᵀ·G. One matrix B for many A: the sum over them is one product over all their rows. */
static ir_value *right_grad(op_diff *c, ir_value *a, ir_value *g, const ir_shape *b)
{
    if (a && g && b->rank == 2 && a->type.shape.rank > 2) {
        a = as_rows(c, a);
        g = as_rows(c, g);
    }
    return op_diff_sum_to(c, op_diff2(c, "MatMul", op_diff_swap_last(c, a), g), b);
}

tacit_status op_vjp_matmul(op_diff *c)
{
    ir_value *a = c->node->inputs[0], *b = c->node->inputs[1];
    ir_value *ma = as_matrix(c, a, true), *mb = as_matrix(c, b, false);
    ir_value *g = matrix_grad(c, &a->type.shape, &b->type.shape);
    if (c->wanted[0] && ma) {
        ir_value *d = op_diff2(c, "MatMul", g, op_diff_swap_last(c, mb));
        d = op_diff_sum_to(c, d, &ma->type.shape);
        c->in_grad[0] = op_diff_reshape(c, d, &a->type.shape);
    }
    if (c->wanted[1] && mb) {
        ir_value *d = right_grad(c, ma, g, &mb->type.shape);
        c->in_grad[1] = op_diff_reshape(c, d, &b->type.shape);
    }
    return c->status;
}

/* α·op(A)·op(B) + β·C */
tacit_status op_vjp_gemm(op_diff *c)
{
    ir_value *a = c->node->inputs[0], *b = c->node->inputs[1], *g = c->out_grad[0];
    bool ta = ir_attr_int(c->node, "transA", 0), tb = ir_attr_int(c->node, "transB", 0);
    double alpha = ir_attr_float(c->node, "alpha", 1), beta = ir_attr_float(c->node, "beta", 1);
    ir_value *scaled = alpha == 1 ? g : op_diff_scale(c, g, alpha);
    if (c->wanted[0]) {
        ir_value *mb = tb ? b : op_diff_swap_last(c, b);
        ir_value *d = op_diff2(c, "MatMul", scaled, mb);
        c->in_grad[0] = ta ? op_diff_swap_last(c, d) : d;
    }
    if (c->wanted[1]) {
        ir_value *ma = ta ? a : op_diff_swap_last(c, a);
        ir_value *d = op_diff2(c, "MatMul", ma, scaled);
        c->in_grad[1] = tb ? op_diff_swap_last(c, d) : d;
    }
    if (c->node->n_inputs > 2 && c->wanted[2]) {
        ir_value *d = beta == 1 ? g : op_diff_scale(c, g, beta);
        c->in_grad[2] = op_diff_sum_to(c, d, &c->node->inputs[2]->type.shape);
    }
    return c->status;
}
