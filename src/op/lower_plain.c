/* SPDX-License-Identifier: Apache-2.0
 * Element-wise ops on what the f32 strips do not compute in: integers, f64, and choices between
 * elements of any size (cpu/plain.h). */
#include <string.h>

#include "cpu/plain.h"
#include "op/lowerings.h"

typedef struct plain_rule {
    const char *name;
    cpu_plain_op op;
    uint32_t inputs;
} plain_rule;

static const plain_rule rules[] = {
    {"Add", CPU_PLAIN_ADD, 2},
    {"Sub", CPU_PLAIN_SUB, 2},
    {"Mul", CPU_PLAIN_MUL, 2},
    {"Div", CPU_PLAIN_DIV, 2},
    {"Mod", CPU_PLAIN_MOD, 2},
    {"Min", CPU_PLAIN_MIN, 2},
    {"Max", CPU_PLAIN_MAX, 2},
    {"BitwiseAnd", CPU_PLAIN_AND, 2},
    {"BitwiseOr", CPU_PLAIN_OR, 2},
    {"BitwiseXor", CPU_PLAIN_XOR, 2},
    {"Equal", CPU_PLAIN_EQUAL, 2},
    {"Less", CPU_PLAIN_LESS, 2},
    {"LessOrEqual", CPU_PLAIN_LESS_EQUAL, 2},
    {"Greater", CPU_PLAIN_GREATER, 2},
    {"GreaterOrEqual", CPU_PLAIN_GREATER_EQUAL, 2},
    {"Neg", CPU_PLAIN_NEG, 1},
    {"Abs", CPU_PLAIN_ABS, 1},
    {"Sign", CPU_PLAIN_SIGN, 1},
    {"BitwiseNot", CPU_PLAIN_NOT, 1},
};

/* A divisor of zero is the evaluator's to refuse. */
static bool may_divide(const ir_node *node)
{
    const ir_tensor *divisor = ir_value_known(node->inputs[1]);
    for (int64_t i = 0, n = divisor ? ir_tensor_count(divisor) : 0; i < n; i++)
        if (ir_load_i64(divisor->dtype, divisor->data, i) == 0)
            return false;
    return divisor != NULL;
}

static cpu_plain_fn *find_rule(const ir_node *node, const plain_rule *rule, cpu_number number)
{
    cpu_plain_op op = rule->op;
    if (node->n_inputs != rule->inputs)
        return NULL;
    if ((op == CPU_PLAIN_DIV || op == CPU_PLAIN_MOD) &&
        ir_dtype_is_int(node->inputs[0]->type.dtype) && !may_divide(node))
        return NULL;
    if (op == CPU_PLAIN_MOD && ir_attr_int(node, "fmod", 0) != 0)
        op = CPU_PLAIN_FMOD;
    return cpu_plain_find(op, number);
}

/* The loop for this node; NULL: none. */
static cpu_plain_fn *find(const ir_node *node)
{
    cpu_number number;
    if (*node->domain || node->n_inputs < 1 || !node->inputs[0] || !node->outputs[0])
        return NULL;
    if (strcmp(node->type, "Where") == 0)
        return cpu_plain_choice(op_lower_element(node->outputs[0]->type.dtype));
    if (!op_lower_number(node->inputs[0]->type.dtype, &number))
        return NULL;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strcmp(node->type, rules[i].name) == 0)
            return find_rule(node, &rules[i], number);
    return NULL;
}

bool op_plain_suits(const ir_node *node)
{
    return find(node) != NULL;
}

tacit_status op_lower_plain(op_lower *c)
{
    const ir_shape *shape = &c->out[0].type.shape;
    cpu_plain_args p = {.fn = find(c->node), .inputs = c->node->n_inputs};
    if (!p.fn)
        return OP_LOWER_NO_KERNEL;
    uint64_t bytes = op_lower_bytes(&c->out[0]);
    cpu_nd_begin(&p.nd, shape->rank, shape->dims);
    for (uint32_t k = 0; k < p.inputs; k++) {
        int64_t strides[IR_MAX_RANK];
        op_lower_strides(&c->in[k], shape, strides);
        cpu_nd_operand(&p.nd, strides);
        p.size[k] = op_lower_element(c->in[k].type.dtype);
        bytes += op_lower_bytes(&c->in[k]);
    }
    cpu_nd_operand(&p.nd, c->out[0].strides);
    p.size[p.inputs] = op_lower_element(c->out[0].type.dtype);
    uint32_t tiles = cpu_nd_ready(&p.nd, 32768);
    if (tiles == 0)
        return TACIT_OK;
    cpu_plain_args *a = op_lower_thunk(c, "plain", cpu_plain, sizeof *a, tiles);
    if (!a)
        return TACIT_ERR_MEMORY;
    *a = p;
    for (uint32_t k = 0; k <= p.inputs; k++) {
        uint64_t run = (uint64_t)cpu_nd_tile_elements(&p.nd) * p.size[k];
        if (!cpu_nd_dense(&p.nd, k))
            run = 0;
        TRY(k < p.inputs ? op_lower_in_tiled(c, offsetof(cpu_plain_args, in) + k * sizeof(void *),
                                             k, run, run)
                         : op_lower_out_tiled(c, offsetof(cpu_plain_args, out), 0, run, run));
    }
    op_lower_cost(c, (double)ir_shape_size(shape), bytes);
    op_lower_note(c, "plain loops over %s; the f32 strips know no such type",
                  tacit_dtype_text(c->in[p.inputs - 1].type.dtype));
    return TACIT_OK;
}
