/* SPDX-License-Identifier: Apache-2.0
 * Whole tensors as doubles or wrapping 64-bit integers: evaluators stage their inputs, compute in
 * the wide type and round once when they store, so no inner loop asks for a dtype. */
#ifndef OP_VALUES_H
#define OP_VALUES_H

#include "op/op.h"

/* Zeroed scratch. */
tacit_status op_scratch_f64(op_eval *c, int64_t count, double **out);
tacit_status op_scratch_i64(op_eval *c, int64_t count, int64_t **out);
/* All elements of a tensor, in scratch; *out is NULL when `t` is. Writable copies. */
tacit_status op_tensor_f64(op_eval *c, const ir_tensor *t, double **out);
tacit_status op_tensor_i64(op_eval *c, const ir_tensor *t, int64_t **out);
/* The same for input i. */
tacit_status op_input_f64(op_eval *c, uint32_t i, double **out);
tacit_status op_input_i64(op_eval *c, uint32_t i, int64_t **out);
/* Rounds `values` into output i; nothing happens when nobody wants it. */
void op_output_f64(op_eval *c, uint32_t i, const double *values);
void op_output_i64(op_eval *c, uint32_t i, const int64_t *values);
/* As op_output_f64, for a tensor. */
void op_write_f64(ir_tensor *t, const double *values);
/* Clamp to what an integer dtype holds (8-bit to 32-bit and the packed ones). */
double op_clamp_to(tacit_dtype dtype, double value);
/* Ties to even, whatever the rounding mode of the caller. */
double op_round_even(double value);

/* --- infer helpers ---------------------------------------------------------------------------- */
/* Input i must be a float tensor (f16, bf16, f32, f64). */
tacit_status op_need_float(const op_infer *c, uint32_t i);
/* Input i, when present, must have this rank. */
tacit_status op_need_rank(const op_infer *c, uint32_t i, int32_t rank);
/* Input i, when present, must have exactly this shape. */
tacit_status op_need_shape(const op_infer *c, uint32_t i, int32_t rank, const int64_t *dims);
/* Output i (when asked for) gets this type. */
void op_set_out(op_infer *c, uint32_t i, tacit_dtype dtype, const ir_shape *shape);
void op_set_out_dims(op_infer *c, uint32_t i, tacit_dtype dtype, int32_t rank, const int64_t *dims);

#endif
