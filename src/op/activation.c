/* SPDX-License-Identifier: Apache-2.0 */
#include "op/activation.h"

#include <math.h>
#include <string.h>

#include "op/build.h"

static const char *const names[] = {"none", "relu",    "gelu", "gelu_tanh",
                                    "silu", "sigmoid", "tanh", "clip"};

tacit_status op_activation_read(const ir_node *node, op_activation *a, tacit_error *err)
{
    const char *name = ir_attr_string(node, "activation", "none");
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(name, names[i]) == 0) {
            *a = (op_activation){.kind = (op_activation_kind)i,
                                 .low = ir_attr_float(node, "act_min", -INFINITY),
                                 .high = ir_attr_float(node, "act_max", INFINITY)};
            return TACIT_OK;
        }
    return error_set(err, TACIT_ERR_VALUE, "unknown activation '%s'", name);
}

double op_activation_apply(const op_activation *a, double x)
{
    switch (a->kind) {
    case OP_ACT_RELU:
        return x < 0 ? 0 : x; /* a NaN stays */
    case OP_ACT_GELU:
        return x == -INFINITY ? -0.0 : 0.5 * x * (1 + erf(x * M_SQRT1_2)); /* the limit */
    case OP_ACT_GELU_TANH:
        return x == -INFINITY
                   ? -0.0
                   : 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case OP_ACT_SILU:
        return x / (1 + exp(-x));
    case OP_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case OP_ACT_TANH:
        return tanh(x);
    case OP_ACT_CLIP:
        return x < a->low ? a->low : x > a->high ? a->high : x;
    case OP_ACT_NONE:
        break;
    }
    return x;
}

ir_value *op_activation_build(ir_graph *g, const op_activation *a, ir_value *x, tacit_dtype dtype)
{
    ir_value *y = x;
    switch (a->kind) {
    case OP_ACT_NONE:
        return x;
    case OP_ACT_RELU:
        return op_build1(g, "Relu", x);
    case OP_ACT_GELU:
        return op_build1(g, "Gelu", x);
    case OP_ACT_GELU_TANH:
        y = op_build1(g, "Gelu", x);
        return y && ir_attr_set_string(g, y->producer, "approximate", "tanh") ? y : NULL;
    case OP_ACT_SILU:
        return op_build2(g, "Mul", x, op_build1(g, "Sigmoid", x));
    case OP_ACT_SIGMOID:
        return op_build1(g, "Sigmoid", x);
    case OP_ACT_TANH:
        return op_build1(g, "Tanh", x);
    case OP_ACT_CLIP:
        return op_build3(g, "Clip", x, op_build_scalar(g, dtype, a->low),
                         op_build_scalar(g, dtype, a->high));
    }
    return y;
}
