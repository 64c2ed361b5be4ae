/* SPDX-License-Identifier: Apache-2.0
 * Tacit's own fused ops around a contraction: MatMul and Conv with bias, activation and residual.
 */
#include <string.h>

#include "op/activation.h"
#include "op/build.h"
#include "op/conv.h"
#include "op/gemm.h"
#include "op/lowerings.h"
#include "op/range.h"
#include "op/values.h"

/* y = act(y) + residual, or act(y + residual) when activation_last. */
static tacit_status finish(op_eval *c, double *y, const double *residual, int64_t count)
{
    op_activation act;
    bool last = ir_attr_int(c->node, "activation_last", 0) != 0;
    TRY(op_activation_read(c->node, &act, c->err));
    for (int64_t i = 0; i < count; i++) {
        double r = residual ? residual[i] : 0;
        y[i] = last ? op_activation_apply(&act, y[i] + r) : op_activation_apply(&act, y[i]) + r;
    }
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

static tacit_status check_tail(const op_infer *c, const ir_shape *y, int64_t bias)
{
    op_activation act;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_need_shape(c, 2, 1, &bias));
    TRY(op_need_shape(c, 3, y->rank, y->dims));
    return op_activation_read(c->node, &act, c->err);
}

/* The plain nodes for the tail, behind `y`. */
static tacit_status build_tail(ir_graph *g, ir_node *node, ir_value *y, tacit_error *err)
{
    op_activation act;
    TRY(op_activation_read(node, &act, err));
    tacit_dtype dtype = node->inputs[0]->type.dtype;
    ir_value *residual = node->n_inputs > 3 ? node->inputs[3] : NULL;
    bool last = ir_attr_int(node, "activation_last", 0) != 0;
    if (residual && last)
        y = op_build2(g, "Add", y, residual);
    y = op_activation_build(g, &act, y, dtype);
    if (residual && !last)
        y = op_build2(g, "Add", y, residual);
    TRY(op_build_finish(g, node, 0, y, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- MatMul ----------------------------------------------------------------------------------- */

static op_matmul fused_plan(const ir_node *node)
{
    return (op_matmul){.trans_a = ir_attr_int(node, "trans_a", 0) != 0,
                       .trans_b = ir_attr_int(node, "trans_b", 0) != 0};
}

static tacit_status matmul_infer(op_infer *c)
{
    op_matmul p = fused_plan(c->node);
    TRY(op_matmul_plan(&p, &c->in[0]->shape, &c->in[1]->shape, c->err));
    TRY(check_tail(c, &p.y, p.n));
    op_set_out(c, 0, c->in[0]->dtype, &p.y);
    return TACIT_OK;
}

static tacit_status matmul_eval(op_eval *c)
{
    op_matmul p = fused_plan(c->node);
    double alpha = ir_attr_float(c->node, "alpha", 1), *bias, *residual, *y;
    TRY(op_matmul_plan(&p, &op_in(c, 0)->shape, &op_in(c, 1)->shape, c->err));
    int64_t count = ir_shape_size(&p.y);
    TRY(op_input_f64(c, 2, &bias));
    TRY(op_input_f64(c, 3, &residual));
    TRY(op_scratch_f64(c, count, &y));
    TRY(op_matmul_f64(c, &p, op_in(c, 0), op_in(c, 1), y));
    for (int64_t i = 0; i < count; i++)
        y[i] = alpha * y[i] + (bias ? bias[i % p.n] : 0);
    return finish(c, y, residual, count);
}

/* The operand with its last two axes swapped where asked. */
static ir_value *oriented(ir_graph *g, ir_value *x, bool swap)
{
    int64_t perm[IR_MAX_RANK];
    int32_t rank = x->type.shape.rank;
    if (!swap || rank < 2)
        return x;
    for (int32_t i = 0; i < rank; i++)
        perm[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    return op_build_transpose(g, x, rank, perm);
}

static tacit_status matmul_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    op_matmul p = fused_plan(node);
    double alpha = ir_attr_float(node, "alpha", 1);
    ir_value *y = op_build2(g, "MatMul", oriented(g, node->inputs[0], p.trans_a),
                            oriented(g, node->inputs[1], p.trans_b));
    if (alpha != 1)
        y = op_build2(g, "Mul", y, op_build_scalar(g, node->inputs[0]->type.dtype, alpha));
    if (node->n_inputs > 2 && node->inputs[2])
        y = op_build2(g, "Add", y, node->inputs[2]);
    return build_tail(g, node, y, err);
}

/* --- Conv ------------------------------------------------------------------------------------- */

static tacit_status conv_infer(op_infer *c)
{
    op_conv p;
    TRY(op_conv_plan(c->node, &c->in[0]->shape, &c->in[1]->shape, &p, c->err));
    TRY(check_tail(c, &p.y, p.m));
    op_set_out(c, 0, c->in[0]->dtype, &p.y);
    return TACIT_OK;
}

static tacit_status conv_eval(op_eval *c)
{
    op_conv p;
    double *x, *w, *bias, *residual, *y;
    TRY(op_conv_plan(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, &p, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &w));
    TRY(op_input_f64(c, 2, &bias));
    TRY(op_input_f64(c, 3, &residual));
    int64_t count = ir_shape_size(&p.y);
    TRY(op_scratch_f64(c, count, &y));
    TRY(op_conv_f64(c, &p, x, w, y));
    for (int64_t i = 0; bias && i < count; i++)
        y[i] += bias[i / p.w.out_size % p.m];
    return finish(c, y, residual, count);
}

static tacit_status conv_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    static const char *const kept[] = {"kernel_shape", "strides", "dilations",
                                       "pads",         "group",   "auto_pad"};
    bool bias = node->n_inputs > 2 && node->inputs[2];
    ir_node *conv = op_node(g, "Conv", NULL, bias ? 3 : 2, node->inputs);
    for (size_t i = 0; conv && i < sizeof kept / sizeof *kept; i++) {
        const ir_attr *a = ir_attr_find(node, kept[i]);
        if (a && !ir_attr_set(g, conv, a))
            conv = NULL;
    }
    return conv ? build_tail(g, node, conv->outputs[0], err)
                : error_memory(err, "decomposing a node");
}

/* --- Gated ------------------------------------------------------------------------------------ */

static tacit_status gated_infer(op_infer *c)
{
    op_activation act;
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_need_shape(c, 1, c->in[0]->shape.rank, c->in[0]->shape.dims));
    TRY(op_activation_read(c->node, &act, c->err));
    return op_infer_same(c);
}

static tacit_status gated_eval(op_eval *c)
{
    op_activation act;
    double *gate, *up;
    TRY(op_activation_read(c->node, &act, c->err));
    TRY(op_input_f64(c, 0, &gate));
    TRY(op_input_f64(c, 1, &up));
    for (int64_t i = 0; i < ir_tensor_count(op_in(c, 0)); i++)
        gate[i] = op_activation_apply(&act, gate[i]) * up[i];
    op_output_f64(c, 0, gate);
    return TACIT_OK;
}

static tacit_status gated_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    op_activation act;
    TRY(op_activation_read(node, &act, err));
    ir_value *gate = op_activation_build(g, &act, node->inputs[0], node->inputs[0]->type.dtype);
    TRY(op_build_finish(g, node, 0, op_build2(g, "Mul", gate, node->inputs[1]), err));
    ir_node_kill(node);
    return TACIT_OK;
}

const op_def op_rows_fused[] = {
    {.name = "MatMul",
     .domain = "tacit",
     .min_in = 2,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_LATE_WEIGHTS,
     .infer = matmul_infer,
     .eval = matmul_eval,
     .decompose = matmul_decompose,
     .inplace = 8,
     .lower = op_lower_matmul,
     .accepts = op_accepts_matmul,
     .range = op_bounds_fused_matmul},
    {.name = "Conv",
     .domain = "tacit",
     .min_in = 2,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = conv_infer,
     .eval = conv_eval,
     .decompose = conv_decompose,
     .inplace = 8,
     .lower = op_lower_conv,
     .range = op_bounds_fused_conv},
    {.name = "Gated",
     .domain = "tacit",
     .min_in = 2,
     .max_in = 2,
     .min_out = 1,
     .max_out = 1,
     .infer = gated_infer,
     .eval = gated_eval,
     .decompose = gated_decompose,
     .inplace = 3,
     .lower = op_lower_gated,
     .accepts = op_accepts_any,
     .range = op_bounds_gated},
    {0},
};
