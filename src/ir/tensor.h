/* SPDX-License-Identifier: Apache-2.0
 * A value's data: dense row-major tensors, sequences and optionals of them, and element access. */
#ifndef IR_TENSOR_H
#define IR_TENSOR_H

#include "base/arena.h"
#include "ir/type.h"

/* Element of a string tensor; the bytes are owned by whoever owns the tensor. */
typedef struct ir_string {
    const char *data;
    uint64_t length;
} ir_string;

typedef struct ir_tensor ir_tensor;
typedef struct ir_recipe ir_recipe; /* ir/recipe.h */
struct ir_tensor {
    ir_kind kind;
    tacit_dtype dtype;
    ir_shape shape;
    void *data;              /* dense; NULL for sequences, empty optionals and elided weights */
    size_t bytes;            /* of data */
    ir_tensor *items;        /* IR_SEQUENCE: its elements; IR_MAP: keys, values */
    uint32_t count;          /* of items */
    bool present;            /* optionals: whether there is a value */
    const ir_recipe *recipe; /* how to make the data where it is NULL; else NULL, or made already */
};

/* A dense tensor over existing bytes. */
ir_tensor ir_tensor_view(tacit_dtype dtype, const ir_shape *shape, const void *data);
/* A tensor with its data (64-byte aligned, uninitialised) in `a`; NULL when out of memory. */
ir_tensor *ir_tensor_new(arena *a, tacit_dtype dtype, const ir_shape *shape);
/* Deep copy into `a`, strings and items included; NULL when out of memory. */
ir_tensor *ir_tensor_copy(arena *a, const ir_tensor *t);
ir_type ir_tensor_type(const ir_tensor *t);
int64_t ir_tensor_count(const ir_tensor *t); /* elements */
/* Same type and same bytes (NaNs by bits, strings by contents; of late ones the same recipe). */
bool ir_tensor_identical(const ir_tensor *a, const ir_tensor *b);

/* Element access for evaluators: any numeric dtype, by linear index. f64 holds every float type
 * exactly; i64 holds every integer (u64 by two's complement). Storing a double into an integer
 * truncates toward zero and wraps; into a small float rounds to nearest even and saturates as
 * ONNX's default (saturate) says. Complex: the real part, see ir_load_complex. */
double ir_load_f64(tacit_dtype dtype, const void *data, int64_t index);
int64_t ir_load_i64(tacit_dtype dtype, const void *data, int64_t index);
void ir_store_f64(tacit_dtype dtype, void *data, int64_t index, double value);
void ir_store_i64(tacit_dtype dtype, void *data, int64_t index, int64_t value);
/* As ir_store_f64 with an explicit choice for f8: saturate, or go to Inf/NaN. */
void ir_store_f64_saturate(tacit_dtype dtype, void *data, int64_t index, double value,
                           bool saturate);
void ir_load_complex(tacit_dtype dtype, const void *data, int64_t index, double out[2]);
void ir_store_complex(tacit_dtype dtype, void *data, int64_t index, const double value[2]);
/* Copy one element of any dtype, sub-byte and string included. */
void ir_copy_element(tacit_dtype dtype, void *to, int64_t to_index, const void *from,
                     int64_t from_index);

#endif
