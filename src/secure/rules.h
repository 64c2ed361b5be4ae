/* SPDX-License-Identifier: Apache-2.0
 * Secure rules by operator; the table is in rules.c. */
#ifndef SECURE_RULES_H
#define SECURE_RULES_H

#include "secure/build.h"

tacit_status rule_matmul(op_secure *c);
tacit_status rule_gemm(op_secure *c);
tacit_status rule_conv(op_secure *c);
tacit_status rule_add(op_secure *c);
tacit_status rule_sub(op_secure *c);
tacit_status rule_mul(op_secure *c);
tacit_status rule_div(op_secure *c);
tacit_status rule_neg(op_secure *c);
tacit_status rule_unary(op_secure *c);
tacit_status rule_clip(op_secure *c);
tacit_status rule_leaky(op_secure *c);
tacit_status rule_abs(op_secure *c);
tacit_status rule_move(op_secure *c);
tacit_status rule_gather(op_secure *c);
tacit_status rule_max_pool(op_secure *c);
tacit_status rule_average_pool(op_secure *c);
tacit_status rule_global_average(op_secure *c);
tacit_status rule_reduce_mean(op_secure *c);
tacit_status rule_arg_max(op_secure *c);
tacit_status rule_softmax(op_secure *c);
tacit_status rule_norm(op_secure *c);
tacit_status rule_attention(op_secure *c);
tacit_status rule_rotary(op_secure *c);
tacit_status rule_gated(op_secure *c);
tacit_status rule_gelu(op_secure *c);
tacit_status rule_same(op_secure *c);

/* Activation, residual as the fused MatMul and Conv have them. */
sec_tensor rule_epilogue(sec_builder *b, sec_tensor z, uint32_t bias, uint32_t residual);
/* (x rows) times a weight with layout k x n. */
sec_tensor rule_times_weight(sec_builder *b, const sec_tensor *x, const ir_value *w,
                             const uint32_t *layout, size_t rows, size_t k, size_t n,
                             double factor);

#endif
