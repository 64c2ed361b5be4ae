/* SPDX-License-Identifier: Apache-2.0
 * Element types, shapes and value types. */
#ifndef IR_TYPE_H
#define IR_TYPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/sbuf.h"
#include "base/status.h"
#include "tacit/types.h"

enum { IR_MAX_RANK = TACIT_MAX_RANK };

typedef enum ir_dtype_class {
    IR_CLASS_NONE,
    IR_CLASS_FLOAT,
    IR_CLASS_SIGNED,
    IR_CLASS_UNSIGNED,
    IR_CLASS_BOOLEAN,
    IR_CLASS_COMPLEX,
    IR_CLASS_STRING,
} ir_dtype_class;

ir_dtype_class ir_dtype_classify(tacit_dtype dtype);
tacit_dtype ir_dtype_from_onnx(int64_t code); /* TACIT_DTYPE_NONE when unknown */
int32_t ir_dtype_to_onnx(tacit_dtype dtype);
tacit_dtype ir_dtype_from_text(const char *text, size_t length);

static inline bool ir_dtype_is_float(tacit_dtype d)
{
    return ir_dtype_classify(d) == IR_CLASS_FLOAT;
}
static inline bool ir_dtype_is_int(tacit_dtype d) /* bool is not one */
{
    ir_dtype_class c = ir_dtype_classify(d);
    return c == IR_CLASS_SIGNED || c == IR_CLASS_UNSIGNED;
}

/* A dimension is its size (≥ 0), a symbol IR_DIM_SYMBOL(k) for graph->symbols[k], or
 * IR_DIM_UNKNOWN where only the data can tell (NonZero, Unique, …). */
#define IR_DIM_UNKNOWN INT64_MIN
#define IR_DIM_SYMBOL(k) (-1 - (int64_t)(k))
static inline bool ir_dim_is_symbol(int64_t d)
{
    return d < 0 && d != IR_DIM_UNKNOWN;
}

typedef struct ir_shape {
    int32_t rank; /* -1: even the rank is unknown */
    int64_t dims[IR_MAX_RANK];
} ir_shape;

ir_shape ir_shape_of(int32_t rank, const int64_t *dims);
bool ir_shape_is_static(const ir_shape *s); /* rank known, every dim ≥ 0 */
bool ir_shape_equal(const ir_shape *a, const ir_shape *b);
/* Product of a static shape's dims; false when it overflows int64. */
bool ir_shape_count(const ir_shape *s, int64_t *count);
/* The same for a shape that was already validated: never overflows there. */
int64_t ir_shape_size(const ir_shape *s);
void ir_shape_strides(const ir_shape *s, int64_t *strides); /* dense row-major, in elements */
/* NumPy broadcasting; the error names both shapes. */
tacit_status ir_shape_broadcast(const ir_shape *a, const ir_shape *b, ir_shape *out,
                                tacit_error *err);
/* "[2,3,N]" into a buffer of at least IR_SHAPE_TEXT bytes; returns it. */
enum { IR_SHAPE_TEXT = 280 };
const char *ir_shape_text(const ir_shape *s, char *buffer);

/* axis in [-rank, rank) → [0, rank); error otherwise. */
tacit_status ir_axis(int64_t axis, int32_t rank, int32_t *out, tacit_error *err);

typedef enum ir_kind {
    IR_TENSOR,
    IR_SEQUENCE,          /* of tensors of one dtype */
    IR_OPTIONAL,          /* of a tensor */
    IR_OPTIONAL_SEQUENCE, /* of a sequence */
    IR_MAP,               /* ai.onnx.ml: keys and values as two equal-length tensors */
} ir_kind;

typedef struct ir_type {
    ir_kind kind;
    tacit_dtype dtype; /* TACIT_DTYPE_NONE: not inferred */
    ir_shape shape;    /* of the tensor, or of each element where they agree */
} ir_type;

ir_type ir_type_tensor(tacit_dtype dtype, int32_t rank, const int64_t *dims);
bool ir_type_is_static(const ir_type *t); /* a tensor with known dtype and static shape */
bool ir_type_equal(const ir_type *a, const ir_type *b);
/* Bytes of a static tensor; false on overflow of what can be addressed. */
bool ir_type_bytes(const ir_type *t, size_t *bytes);
/* Bytes of `count` elements, packed types rounded up. */
size_t ir_dtype_bytes(tacit_dtype dtype, int64_t count);

#endif
