/* SPDX-License-Identifier: Apache-2.0 */
#include "op/strip.h"

#include <string.h>

#include "base/half.h"
#include "op/loop.h"

#define LOAD_CASE(DTYPE, TYPE, AS)                                                                 \
    case DTYPE:                                                                                    \
        for (int64_t i = 0; i < n; i++)                                                            \
            to[i] = (AS)((const TYPE *)data)[at + i * stride];                                     \
        return;

#define STORE_CASE(DTYPE, TYPE)                                                                    \
    case DTYPE:                                                                                    \
        for (int64_t i = 0; i < n; i++)                                                            \
            ((TYPE *)data)[at + i] = (TYPE)from[i];                                                \
        return;

void op_strip_load_f64(tacit_dtype dtype, const void *data, int64_t at, int64_t stride, int64_t n,
                       double *to)
{
    switch (dtype) {
        LOAD_CASE(TACIT_F64, double, double)
        LOAD_CASE(TACIT_F32, float, double)
        LOAD_CASE(TACIT_I8, int8_t, double)
        LOAD_CASE(TACIT_I16, int16_t, double)
        LOAD_CASE(TACIT_I32, int32_t, double)
        LOAD_CASE(TACIT_I64, int64_t, double)
        LOAD_CASE(TACIT_U8, uint8_t, double)
        LOAD_CASE(TACIT_U16, uint16_t, double)
        LOAD_CASE(TACIT_U32, uint32_t, double)
        LOAD_CASE(TACIT_U64, uint64_t, double)
    case TACIT_BF16:
        for (int64_t i = 0; i < n; i++)
            to[i] = bf16_to_f32(half_at(data, at + i * stride));
        return;
    default:
        for (int64_t i = 0; i < n; i++)
            to[i] = ir_load_f64(dtype, data, at + i * stride);
    }
}

void op_strip_load_i64(tacit_dtype dtype, const void *data, int64_t at, int64_t stride, int64_t n,
                       int64_t *to)
{
    switch (dtype) {
        LOAD_CASE(TACIT_I8, int8_t, int64_t)
        LOAD_CASE(TACIT_I16, int16_t, int64_t)
        LOAD_CASE(TACIT_I32, int32_t, int64_t)
        LOAD_CASE(TACIT_I64, int64_t, int64_t)
        LOAD_CASE(TACIT_U8, uint8_t, int64_t)
        LOAD_CASE(TACIT_U16, uint16_t, int64_t)
        LOAD_CASE(TACIT_U32, uint32_t, int64_t)
        LOAD_CASE(TACIT_U64, uint64_t, int64_t)
    default:
        for (int64_t i = 0; i < n; i++)
            to[i] = ir_load_i64(dtype, data, at + i * stride);
    }
}

void op_strip_store_f64(tacit_dtype dtype, void *data, int64_t at, int64_t n, const double *from)
{
    switch (dtype) {
        STORE_CASE(TACIT_F64, double)
        STORE_CASE(TACIT_F32, float)
    default:
        for (int64_t i = 0; i < n; i++)
            ir_store_f64(dtype, data, at + i, from[i]);
    }
}

void op_strip_store_i64(tacit_dtype dtype, void *data, int64_t at, int64_t n, const int64_t *from)
{
    switch (dtype) {
        STORE_CASE(TACIT_I8, int8_t)
        STORE_CASE(TACIT_I16, int16_t)
        STORE_CASE(TACIT_I32, int32_t)
        STORE_CASE(TACIT_I64, int64_t)
        STORE_CASE(TACIT_U8, uint8_t)
        STORE_CASE(TACIT_U16, uint16_t)
        STORE_CASE(TACIT_U32, uint32_t)
        STORE_CASE(TACIT_U64, uint64_t)
    default:
        for (int64_t i = 0; i < n; i++)
            ir_store_i64(dtype, data, at + i, from[i]);
    }
}

typedef struct bytes16 {
    uint64_t part[2];
} bytes16;

/* Halves may lie anywhere. */
typedef struct __attribute__((packed)) bytes2 {
    uint16_t all;
} bytes2;

#define COPY_CASE(BYTES, TYPE)                                                                     \
    case BYTES:                                                                                    \
        for (int64_t i = 0; i < n; i++)                                                            \
            ((TYPE *)to)[to_at + i * to_stride] = ((const TYPE *)from)[from_at + i * from_stride]; \
        return;

void op_strip_copy(tacit_dtype dtype, void *to, int64_t to_at, int64_t to_stride, const void *from,
                   int64_t from_at, int64_t from_stride, int64_t n)
{
    uint32_t bits = tacit_dtype_bits(dtype);
    if (bits < 8) {
        for (int64_t i = 0; i < n; i++)
            ir_copy_element(dtype, to, to_at + i * to_stride, from, from_at + i * from_stride);
        return;
    }
    size_t size = bits / 8;
    if (to_stride == 1 && from_stride == 1) {
        if (n > 0)
            memcpy((char *)to + (size_t)to_at * size, (const char *)from + (size_t)from_at * size,
                   (size_t)n * size);
        return;
    }
    switch (size) {
        COPY_CASE(1, uint8_t)
        COPY_CASE(2, bytes2)
        COPY_CASE(4, uint32_t)
        COPY_CASE(8, uint64_t)
        COPY_CASE(16, bytes16)
    default:
        return;
    }
}

/* Axes of size 1 go, neighbours that lie like one axis become one. */
static ir_shape merge_axes(const ir_shape *shape, const int64_t *strides, int64_t *merged)
{
    ir_shape s = {.rank = 0};
    for (int32_t d = 0; d < shape->rank; d++) {
        if (shape->dims[d] == 1)
            continue;
        if (s.rank > 0 && merged[s.rank - 1] == strides[d] * shape->dims[d]) {
            s.dims[s.rank - 1] *= shape->dims[d];
            merged[s.rank - 1] = strides[d];
            continue;
        }
        s.dims[s.rank] = shape->dims[d];
        merged[s.rank++] = strides[d];
    }
    return s;
}

void op_copy_view(tacit_dtype dtype, void *to, int64_t to_at, const void *from, int64_t from_at,
                  const ir_shape *shape, const int64_t *strides)
{
    int64_t merged[IR_MAX_RANK];
    if (ir_shape_size(shape) == 0)
        return;
    ir_shape s = merge_axes(shape, strides, merged);
    int64_t run = s.rank ? s.dims[s.rank - 1] : 1, step = s.rank ? merged[s.rank - 1] : 1;
    if (s.rank)
        s.rank--;
    op_loop l;
    op_loop_begin(&l, &s);
    op_loop_strided(&l, merged, from_at);
    for (; !op_loop_done(&l); op_loop_next(&l), to_at += run)
        op_strip_copy(dtype, to, to_at, 1, from, l.at[0], step, run);
}

void op_strip_fill(tacit_dtype dtype, void *to, int64_t at, int64_t n, const void *from,
                   int64_t from_at)
{
    op_strip_copy(dtype, to, at, 1, from, from_at, 0, n);
}
