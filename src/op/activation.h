/* SPDX-License-Identifier: Apache-2.0
 * The activations that fused ops carry. */
#ifndef OP_ACTIVATION_H
#define OP_ACTIVATION_H

#include "op/op.h"

typedef enum op_activation_kind {
    OP_ACT_NONE,
    OP_ACT_RELU,
    OP_ACT_GELU,
    OP_ACT_GELU_TANH,
    OP_ACT_SILU,
    OP_ACT_SIGMOID,
    OP_ACT_TANH,
    OP_ACT_CLIP,
} op_activation_kind;

typedef struct op_activation {
    op_activation_kind kind;
    double low, high; /* of clip */
} op_activation;

/* From the attributes activation, act_min and act_max. */
tacit_status op_activation_read(const ir_node *node, op_activation *a, tacit_error *err);
double op_activation_apply(const op_activation *a, double x);
/* The plain ONNX nodes for it, behind `x`; NULL when out of memory. The bounds of a clip take
 * `dtype`. */
ir_value *op_activation_build(ir_graph *g, const op_activation *a, ir_value *x, tacit_dtype dtype);

#endif
