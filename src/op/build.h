/* SPDX-License-Identifier: Apache-2.0
 * Building small subgraphs in decompose rules. Every function returns NULL when out of memory or
 * when one of its inputs is NULL because an earlier step failed: check once, at the end. */
#ifndef OP_BUILD_H
#define OP_BUILD_H

#include "op/op.h"

ir_value *op_build1(ir_graph *g, const char *type, ir_value *x);
ir_value *op_build2(ir_graph *g, const char *type, ir_value *x, ir_value *y);
ir_value *op_build3(ir_graph *g, const char *type, ir_value *x, ir_value *y, ir_value *z);
/* A rank-0 constant of a float or integer dtype. */
ir_value *op_build_scalar(ir_graph *g, tacit_dtype dtype, double value);
/* A rank-1 i64 constant. */
ir_value *op_build_ints(ir_graph *g, int64_t count, const int64_t *values);
ir_value *op_build_reshape(ir_graph *g, ir_value *x, int32_t rank, const int64_t *dims);
ir_value *op_build_transpose(ir_graph *g, ir_value *x, int32_t rank, const int64_t *perm);
ir_value *op_build_cast(ir_graph *g, ir_value *x, tacit_dtype dtype);
/* Mean, sum or maximum over the axes, kept as size 1: type is "ReduceMean" and so on. */
ir_value *op_build_reduce(ir_graph *g, const char *type, ir_value *x, int64_t count,
                          const int64_t *axes);
/* The node's uses of output `i` go to `value`. The error says "out of memory" when it is NULL. */
tacit_status op_build_finish(ir_graph *g, ir_node *node, uint32_t i, ir_value *value,
                             tacit_error *err);

#endif
