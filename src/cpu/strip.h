/* SPDX-License-Identifier: Apache-2.0
 * Element-wise operations on strips of f32: the micro-ops of the element-wise kernels. */
#ifndef CPU_STRIP_H
#define CPU_STRIP_H

#include "cpu/isa.h"

/* id, operands, value over vectors a b c (see vec_*.h, vmath.h and vtrig.h). Truth is 1 or 0. */
#define CPU_STRIP_MAP(ROW)                                                                         \
    ROW(COPY, 1, a)                                                                                \
    ROW(ADD, 2, a + b)                                                                             \
    ROW(SUB, 2, a - b)                                                                             \
    ROW(MUL, 2, a *b)                                                                              \
    ROW(DIV, 2, a / b)                                                                             \
    ROW(MIN, 2, vf_select(vf_isnan(b), b, vf_min(b, a)))                                           \
    ROW(MAX, 2, vf_select(vf_isnan(b), b, vf_max(b, a)))                                           \
    ROW(LESS, 2, vf_truth(vf_lt(a, b)))                                                            \
    ROW(LESS_EQUAL, 2, vf_truth(vf_le(a, b)))                                                      \
    ROW(GREATER, 2, vf_truth(vf_lt(b, a)))                                                         \
    ROW(GREATER_EQUAL, 2, vf_truth(vf_le(b, a)))                                                   \
    ROW(EQUAL, 2, vf_truth(vf_eq(a, b)))                                                           \
    ROW(AND, 2, vf_select(vf_eq(a, vf_zero()), vf_zero(), vf_not_zero(b)))                         \
    ROW(OR, 2, vf_select(vf_eq(a, vf_zero()), vf_not_zero(b), vf_set1(1)))                         \
    ROW(XOR, 2, vf_abs(vf_not_zero(a) - vf_not_zero(b)))                                           \
    ROW(NOT, 1, vf_truth(vf_eq(a, vf_zero())))                                                     \
    ROW(TRUTH, 1, vf_not_zero(a))                                                                  \
    ROW(WHERE, 3, vf_select(vf_eq(a, vf_zero()), c, b))                                            \
    ROW(CLIP, 3, vf_min(c, vf_max(b, a)))                                                          \
    ROW(ABS, 1, vf_abs(a))                                                                         \
    ROW(NEG, 1, vf_neg(a))                                                                         \
    ROW(EXP, 1, vf_exp(a))                                                                         \
    ROW(LOG, 1, vf_log(a))                                                                         \
    ROW(SQRT, 1, vf_sqrt(a))                                                                       \
    ROW(RECIPROCAL, 1, vf_set1(1) / a)                                                             \
    ROW(TANH, 1, vf_tanh(a))                                                                       \
    ROW(SIGMOID, 1, vf_sigmoid(a))                                                                 \
    ROW(RELU, 1, vf_max(vf_zero(), a))                                                             \
    ROW(ERF, 1, vf_erf(a))                                                                         \
    ROW(FLOOR, 1, vf_floor(a))                                                                     \
    ROW(CEIL, 1, vf_ceil(a))                                                                       \
    ROW(ROUND, 1, vf_round(a))                                                                     \
    ROW(SIGN, 1, vf_sign(a))                                                                       \
    ROW(SOFTPLUS, 1, vf_softplus(a))                                                               \
    ROW(SOFTSIGN, 1, a / (vf_set1(1) + vf_abs(a)))                                                 \
    ROW(LEAKY_RELU, 2, vf_select(vf_lt(a, vf_zero()), a *b, a))                                    \
    ROW(ELU, 2, vf_select(vf_lt(a, vf_zero()), b *vf_expm1(a), a))                                 \
    ROW(HARD_SIGMOID, 3, vf_max(vf_zero(), vf_min(vf_set1(1), a *b + c)))                          \
    ROW(HARD_SWISH, 1, vf_hard_swish(a))                                                           \
    ROW(GELU, 1, vf_gelu(a))                                                                       \
    ROW(GELU_TANH, 1, vf_gelu_tanh(a))                                                             \
    ROW(SILU, 1, vf_silu(a))                                                                       \
    ROW(SWISH, 2, a / (vf_set1(1) + vf_exp(vf_neg(b * a))))                                        \
    ROW(SIN, 1, vf_sin(a))                                                                         \
    ROW(COS, 1, vf_cos(a))                                                                         \
    ROW(TAN, 1, vf_tan(a))                                                                         \
    ROW(ASIN, 1, vf_asin(a))                                                                       \
    ROW(ACOS, 1, vf_acos(a))                                                                       \
    ROW(ATAN, 1, vf_atan(a))                                                                       \
    ROW(SINH, 1, vf_sinh(a))                                                                       \
    ROW(COSH, 1, vf_cosh(a))                                                                       \
    ROW(ASINH, 1, vf_asinh(a))                                                                     \
    ROW(ACOSH, 1, vf_acosh(a))                                                                     \
    ROW(ATANH, 1, vf_atanh(a))                                                                     \
    ROW(CELU, 2, vf_select(vf_lt(a, vf_zero()), b *vf_expm1(a / b), a)) /* b > 0 */

typedef enum cpu_strip_op {
#define CPU_STRIP_ENUM(id, operands, value) CPU_STRIP_##id,
    CPU_STRIP_MAP(CPU_STRIP_ENUM)
#undef CPU_STRIP_ENUM
    /* Element by element with libm. */
    CPU_STRIP_POW,
    CPU_STRIP_COUNT
} cpu_strip_op;

/* y[i] = op(in[0][i], …) for i < n. Bit k of `scalars`: in[k] is one value for all i. y may be one
 * of the operands. */
typedef void cpu_strip_fn(float *y, const float *const *in, uint32_t scalars, int64_t n);

/* Copies between f32 strips and what lies in memory; `stride` in elements. */
typedef struct cpu_strips {
    cpu_strip_fn *op[CPU_STRIP_COUNT];
    void (*from_f16)(float *y, const uint16_t *x, int64_t n);
    void (*from_bf16)(float *y, const uint16_t *x, int64_t n);
    void (*from_bool)(float *y, const uint8_t *x, int64_t n);
    void (*to_f16)(uint16_t *y, const float *x, int64_t n);
    void (*to_bf16)(uint16_t *y, const float *x, int64_t n);
    void (*to_bool)(uint8_t *y, const float *x, int64_t n); /* any nonzero is true */
} cpu_strips;

const cpu_strips *cpu_strips_for(cpu_isa isa);

#endif
