/* SPDX-License-Identifier: Apache-2.0
 * Which operator has which secure rule. */
#include <string.h>

#include "secure/rules.h"

typedef struct rule_row {
    const char *domain, *type;
    op_secure_fn *rule;
} rule_row;

static const rule_row table[] = {
    {"", "Abs", rule_abs},
    {"", "Add", rule_add},
    {"", "ArgMax", rule_arg_max},
    {"", "AveragePool", rule_average_pool},
    {"", "Cast", rule_same},
    {"", "Clip", rule_clip},
    {"", "Concat", rule_move},
    {"", "Conv", rule_conv},
    {"", "Div", rule_div},
    {"", "Dropout", rule_same},
    {"", "Expand", rule_move},
    {"", "Flatten", rule_move},
    {"", "Gather", rule_gather},
    {"", "Gelu", rule_gelu},
    {"", "Gemm", rule_gemm},
    {"", "GlobalAveragePool", rule_global_average},
    {"", "Identity", rule_same},
    {"", "LayerNormalization", rule_norm},
    {"", "LeakyRelu", rule_leaky},
    {"", "MatMul", rule_matmul},
    {"", "MaxPool", rule_max_pool},
    {"", "Mul", rule_mul},
    {"", "Neg", rule_neg},
    {"", "RMSNormalization", rule_norm},
    {"", "ReduceMean", rule_reduce_mean},
    {"", "ReduceSum", rule_reduce_mean},
    {"", "Relu", rule_unary},
    {"", "Reshape", rule_move},
    {"", "RotaryEmbedding", rule_rotary},
    {"", "Sigmoid", rule_unary},
    {"", "Slice", rule_move},
    {"", "Softmax", rule_softmax},
    {"", "Split", rule_move},
    {"", "Squeeze", rule_move},
    {"", "Sub", rule_sub},
    {"", "Swish", rule_unary},
    {"", "Tanh", rule_unary},
    {"", "Tile", rule_move},
    {"", "Transpose", rule_move},
    {"", "Unsqueeze", rule_move},
    {"tacit", "Attention", rule_attention},
    {"tacit", "Conv", rule_conv},
    {"tacit", "Gated", rule_gated},
    {"tacit", "MatMul", rule_matmul},
    {"tacit", "Norm", rule_norm},
};

static op_secure_fn *find(const char *domain, const char *type)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (strcmp(table[i].type, type) == 0 && strcmp(table[i].domain, domain) == 0)
            return table[i].rule;
    return NULL;
}

op_secure_fn *sec_rule(const ir_node *node)
{
    return node->op && node->op->secure ? node->op->secure : find(node->domain, node->type);
}

bool sec_has_rule(const op_def *row)
{
    return row->secure || find(row->domain ? row->domain : "", row->name);
}
