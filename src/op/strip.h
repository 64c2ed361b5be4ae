/* SPDX-License-Identifier: Apache-2.0
 * Runs of elements of any numeric dtype as doubles or 64-bit integers: the dtype is looked at once
 * per run, not once per element. */
#ifndef OP_STRIP_H
#define OP_STRIP_H

#include "ir/tensor.h"

enum { OP_STRIP = 256 }; /* elements per run in the element-wise engines */

/* Elements at, at+stride, at+2·stride … (n of them). */
void op_strip_load_f64(tacit_dtype dtype, const void *data, int64_t at, int64_t stride, int64_t n,
                       double *to);
void op_strip_load_i64(tacit_dtype dtype, const void *data, int64_t at, int64_t stride, int64_t n,
                       int64_t *to);
/* Consecutive elements, rounded and wrapped as ir_store_f64/ir_store_i64 say. */
void op_strip_store_f64(tacit_dtype dtype, void *data, int64_t at, int64_t n, const double *from);
void op_strip_store_i64(tacit_dtype dtype, void *data, int64_t at, int64_t n, const int64_t *from);
/* Copy n elements between strided runs of the same dtype, sub-byte and strings included. */
void op_strip_copy(tacit_dtype dtype, void *to, int64_t to_at, int64_t to_stride, const void *from,
                   int64_t from_at, int64_t from_stride, int64_t n);

/* Copies a strided source view into consecutive elements of `to`, in row-major order of `shape`.
 * Negative strides are allowed; stride 0 broadcasts. */
void op_copy_view(tacit_dtype dtype, void *to, int64_t to_at, const void *from, int64_t from_at,
                  const ir_shape *shape, const int64_t *strides);

/* n elements of `to` from `at` on become copies of element `from_at` of `from`. */
void op_strip_fill(tacit_dtype dtype, void *to, int64_t at, int64_t n, const void *from,
                   int64_t from_at);

#endif
