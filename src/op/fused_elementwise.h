/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit.Elementwise(x0 … xn): a chain of element-wise ops as one program over registers.
 *
 * Attributes: `program` (ints), steps of five numbers {op, dst, a, b, c}, and `constants` (floats).
 * dst is a register, 0 … OP_ELEMENTWISE_REGISTERS-1. An operand is a register, input k as
 * OP_ELEMENTWISE_INPUT + k, or constant k as OP_ELEMENTWISE_CONSTANT + k; operands past the op's
 * count are 0. The last step's dst is the output. A register is always written before it is read,
 * and dst may be one of the step's own operands.
 *
 * Everything is f32; bool inputs and truth results are 0 or 1. The output is bool when the last
 * step yields a truth. The output's shape is the broadcast of all inputs (0-d and missing leading
 * axes included). Each step rounds to f32, so the program equals the ops it came from.
 *
 * A kernel runs the steps over strips of a few hundred elements: registers are strip-sized
 * buffers, the interpreter's cost is paid once per strip.
 */
#ifndef OP_FUSED_ELEMENTWISE_H
#define OP_FUSED_ELEMENTWISE_H

#include "op/op.h"

enum {
    OP_ELEMENTWISE_STEP = 5, /* ints a step */
    OP_ELEMENTWISE_STEPS = 48,
    OP_ELEMENTWISE_REGISTERS = 8,
    OP_ELEMENTWISE_INPUTS = 6,
    OP_ELEMENTWISE_CONSTANTS = 24,
    OP_ELEMENTWISE_INPUT = 0x100,
    OP_ELEMENTWISE_CONSTANT = 0x200,
};

/* id, ONNX op, operands, F: a number or B: a truth, meaning over doubles a b c (the result is then
 * rounded to f32). Parameters that are attributes in ONNX are constant operands here. */
#define OP_ELEMENTWISE_MAP(ROW)                                                                    \
    ROW(ADD, "Add", 2, F, a + b)                                                                   \
    ROW(SUB, "Sub", 2, F, a - b)                                                                   \
    ROW(MUL, "Mul", 2, F, a *b)                                                                    \
    ROW(DIV, "Div", 2, F, a / b)                                                                   \
    ROW(POW, "Pow", 2, F, pow(a, b))                                                               \
    ROW(MIN, "Min", 2, F, a < b || a != a ? a : b)                                                 \
    ROW(MAX, "Max", 2, F, a > b || a != a ? a : b)                                                 \
    ROW(LESS, "Less", 2, B, a < b)                                                                 \
    ROW(LESS_EQUAL, "LessOrEqual", 2, B, a <= b)                                                   \
    ROW(GREATER, "Greater", 2, B, a > b)                                                           \
    ROW(GREATER_EQUAL, "GreaterOrEqual", 2, B, a >= b)                                             \
    ROW(EQUAL, "Equal", 2, B, a == b)                                                              \
    ROW(AND, "And", 2, B, a != 0 && b != 0)                                                        \
    ROW(OR, "Or", 2, B, a != 0 || b != 0)                                                          \
    ROW(XOR, "Xor", 2, B, (a != 0) != (b != 0))                                                    \
    ROW(NOT, "Not", 1, B, a == 0)                                                                  \
    ROW(WHERE, "Where", 3, F, a != 0 ? b : c)                                                      \
    ROW(CLIP, "Clip", 3, F, (a < b ? b : a) > c ? c : (a < b ? b : a)) /* low, high */             \
    ROW(ABS, "Abs", 1, F, fabs(a))                                                                 \
    ROW(NEG, "Neg", 1, F, -a)                                                                      \
    ROW(EXP, "Exp", 1, F, exp(a))                                                                  \
    ROW(LOG, "Log", 1, F, log(a))                                                                  \
    ROW(SQRT, "Sqrt", 1, F, sqrt(a))                                                               \
    ROW(RECIPROCAL, "Reciprocal", 1, F, 1 / a)                                                     \
    ROW(TANH, "Tanh", 1, F, tanh(a))                                                               \
    ROW(SIGMOID, "Sigmoid", 1, F, 1 / (1 + exp(-a)))                                               \
    ROW(RELU, "Relu", 1, F, a < 0 ? 0 : a)                                                         \
    ROW(ERF, "Erf", 1, F, erf(a))                                                                  \
    ROW(FLOOR, "Floor", 1, F, floor(a))                                                            \
    ROW(CEIL, "Ceil", 1, F, ceil(a))                                                               \
    ROW(ROUND, "Round", 1, F, nearbyint(a)) /* half to even */                                     \
    ROW(SIGN, "Sign", 1, F, a != a ? a : (a > 0) - (a < 0))                                        \
    ROW(SIN, "Sin", 1, F, sin(a))                                                                  \
    ROW(COS, "Cos", 1, F, cos(a))                                                                  \
    ROW(SOFTPLUS, "Softplus", 1, F, (a > 0 ? a : 0) + log1p(exp(-fabs(a))))                        \
    ROW(SOFTSIGN, "Softsign", 1, F, a / (1 + fabs(a)))                                             \
    ROW(LEAKY_RELU, "LeakyRelu", 2, F, a < 0 ? a * b : a)              /* alpha */                 \
    ROW(ELU, "Elu", 2, F, a < 0 ? b * expm1(a) : a)                    /* alpha */                 \
    ROW(HARD_SIGMOID, "HardSigmoid", 3, F, fmax(0, fmin(1, b *a + c))) /* alpha, beta */           \
    ROW(HARD_SWISH, "HardSwish", 1, F, a *fmax(0, fmin(1, a / 6 + 0.5)))                           \
    ROW(GELU, "Gelu", 1, F, 0.5 * a * (1 + erf(a * 0.70710678118654752440)))                       \
    ROW(GELU_TANH, "Gelu", 1, F,                                                                   \
        0.5 * a * (1 + tanh(0.79788456080286535588 * (a + 0.044715 * a * a * a))))                 \
    ROW(SWISH, "Swish", 2, F, a / (1 + exp(-b * a))) /* alpha */                                   \
    ROW(FLOAT, "Cast", 1, F, a)                      /* bool to f32 */                             \
    ROW(TRUTH, "Cast", 1, B, a != 0)                 /* f32 to bool */                             \
    ROW(TAN, "Tan", 1, F, tan(a))                                                                  \
    ROW(ASIN, "Asin", 1, F, asin(a))                                                               \
    ROW(ACOS, "Acos", 1, F, acos(a))                                                               \
    ROW(ATAN, "Atan", 1, F, atan(a))                                                               \
    ROW(SINH, "Sinh", 1, F, sinh(a))                                                               \
    ROW(COSH, "Cosh", 1, F, cosh(a))                                                               \
    ROW(ASINH, "Asinh", 1, F, asinh(a))                                                            \
    ROW(ACOSH, "Acosh", 1, F, acosh(a))                                                            \
    ROW(ATANH, "Atanh", 1, F, atanh(a))                                                            \
    ROW(CELU, "Celu", 2, F, a < 0 ? b * expm1(a / b) : a) /* alpha */

typedef enum op_elementwise_op {
#define OP_ELEMENTWISE_ENUM(id, onnx, operands, kind, meaning) OP_ELEMENTWISE_##id,
    OP_ELEMENTWISE_MAP(OP_ELEMENTWISE_ENUM)
#undef OP_ELEMENTWISE_ENUM
        OP_ELEMENTWISE_COUNT
} op_elementwise_op;

typedef struct op_elementwise_step {
    uint16_t op;    /* op_elementwise_op */
    uint16_t dst;   /* register */
    uint16_t in[3]; /* operands, encoded as above */
} op_elementwise_step;

/* The node's program, checked: every operand in range, every register written before it is read,
 * so that a kernel need not look again. */
typedef struct op_elementwise_program {
    op_elementwise_step steps[OP_ELEMENTWISE_STEPS];
    uint32_t n_steps, n_registers, n_constants;
    float constants[OP_ELEMENTWISE_CONSTANTS];
    bool truth; /* the output is bool */
} op_elementwise_program;

tacit_status op_elementwise_read(const ir_node *node, op_elementwise_program *out,
                                 tacit_error *err);
uint32_t op_elementwise_operands(op_elementwise_op op);
bool op_elementwise_is_truth(op_elementwise_op op);
const char *op_elementwise_onnx(op_elementwise_op op);

#endif
