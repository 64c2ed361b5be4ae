/* SPDX-License-Identifier: Apache-2.0
 * Secure rules by operator; the table is in rules.c. */
#ifndef SECURE_RULES_H
#define SECURE_RULES_H

#include "secure/build.h"

#define SEC_RULE_MAP(ROW)                                                                          \
    ROW(matmul)                                                                                    \
    ROW(gemm)                                                                                      \
    ROW(conv)                                                                                      \
    ROW(add)                                                                                       \
    ROW(sub)                                                                                       \
    ROW(mul)                                                                                       \
    ROW(div)                                                                                       \
    ROW(neg)                                                                                       \
    ROW(unary)                                                                                     \
    ROW(clip) ROW(leaky) ROW(abs) ROW(move) ROW(gather) ROW(max_pool) ROW(average_pool)            \
        ROW(global_average) ROW(reduce_mean) ROW(arg_max) ROW(softmax) ROW(norm) ROW(attention)    \
            ROW(rotary) ROW(gated) ROW(gelu) ROW(same)
#define SEC_RULE_DECLARE(name) tacit_status rule_##name(op_secure *c);
SEC_RULE_MAP(SEC_RULE_DECLARE)
#undef SEC_RULE_DECLARE

/* Activation, residual as the fused MatMul and Conv have them. */
sec_tensor rule_epilogue(sec_builder *b, sec_tensor z, uint32_t bias, uint32_t residual);
/* (x rows) times a weight with layout k x n. */
sec_tensor rule_times_weight(sec_builder *b, const sec_tensor *x, const ir_value *w,
                             const uint32_t *layout, size_t rows, size_t k, size_t n,
                             double factor);

#endif
