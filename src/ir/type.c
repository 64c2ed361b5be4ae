/* SPDX-License-Identifier: Apache-2.0 */
#include "ir/type.h"

#include <stdio.h>
#include <string.h>

typedef struct dtype_row {
    const char *text;
    uint8_t bits, onnx;
    ir_dtype_class cls;
} dtype_row;

static const dtype_row dtype_rows[TACIT_DTYPE_COUNT] = {
    [TACIT_DTYPE_NONE] = {"none", 0, 0, IR_CLASS_NONE},
#define DTYPE_ROW(name, text, bits, onnx, cls) [TACIT_##name] = {text, bits, onnx, IR_CLASS_##cls},
    TACIT_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

static const dtype_row *row_of(tacit_dtype dtype)
{
    return &dtype_rows[(unsigned)dtype < TACIT_DTYPE_COUNT ? dtype : TACIT_DTYPE_NONE];
}

const char *tacit_dtype_text(tacit_dtype dtype)
{
    return row_of(dtype)->text;
}

uint32_t tacit_dtype_bits(tacit_dtype dtype)
{
    return row_of(dtype)->bits;
}

ir_dtype_class ir_dtype_classify(tacit_dtype dtype)
{
    return row_of(dtype)->cls;
}

int32_t ir_dtype_to_onnx(tacit_dtype dtype)
{
    return row_of(dtype)->onnx;
}

tacit_dtype ir_dtype_from_onnx(int64_t code)
{
    for (int d = 1; d < TACIT_DTYPE_COUNT; d++)
        if (dtype_rows[d].onnx == code)
            return (tacit_dtype)d;
    return TACIT_DTYPE_NONE;
}

tacit_dtype ir_dtype_from_text(const char *text, size_t length)
{
    for (int d = 1; d < TACIT_DTYPE_COUNT; d++)
        if (strlen(dtype_rows[d].text) == length && memcmp(dtype_rows[d].text, text, length) == 0)
            return (tacit_dtype)d;
    return TACIT_DTYPE_NONE;
}

size_t ir_dtype_bytes(tacit_dtype dtype, int64_t count)
{
    return ((size_t)count * tacit_dtype_bits(dtype) + 7) / 8;
}

ir_shape ir_shape_of(int32_t rank, const int64_t *dims)
{
    ir_shape s = {.rank = rank};
    if (rank > 0)
        memcpy(s.dims, dims, (size_t)rank * sizeof *dims);
    return s;
}

bool ir_shape_is_static(const ir_shape *s)
{
    if (s->rank < 0)
        return false;
    for (int32_t i = 0; i < s->rank; i++)
        if (s->dims[i] < 0)
            return false;
    return true;
}

bool ir_shape_equal(const ir_shape *a, const ir_shape *b)
{
    if (a->rank != b->rank)
        return false;
    return a->rank <= 0 || memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

bool ir_shape_count(const ir_shape *s, int64_t *count)
{
    int64_t n = 1;
    bool empty = false;
    /* A zero dim makes the product zero, but the other dims must still be sane. */
    for (int32_t i = 0; i < s->rank; i++) {
        if (s->dims[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(n, s->dims[i], &n))
            return false;
    }
    *count = empty ? 0 : n;
    return true;
}

int64_t ir_shape_size(const ir_shape *s)
{
    int64_t n = 1;
    for (int32_t i = 0; i < s->rank; i++)
        n *= s->dims[i];
    return n;
}

void ir_shape_strides(const ir_shape *s, int64_t *strides)
{
    int64_t step = 1;
    for (int32_t i = s->rank; i-- > 0;) {
        strides[i] = step;
        step *= s->dims[i];
    }
}

tacit_status ir_shape_broadcast(const ir_shape *a, const ir_shape *b, ir_shape *out,
                                tacit_error *err)
{
    ir_shape r = {.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int32_t i = 0; i < r.rank; i++) {
        int32_t ia = i - (r.rank - a->rank), ib = i - (r.rank - b->rank);
        int64_t da = ia < 0 ? 1 : a->dims[ia], db = ib < 0 ? 1 : b->dims[ib];
        if (da != db && da != 1 && db != 1) {
            char ta[IR_SHAPE_TEXT], tb[IR_SHAPE_TEXT];
            return error_set(err, TACIT_ERR_SHAPE, "shapes %s and %s do not broadcast",
                             ir_shape_text(a, ta), ir_shape_text(b, tb));
        }
        r.dims[i] = da == 1 ? db : da;
    }
    *out = r;
    return TACIT_OK;
}

const char *ir_shape_text(const ir_shape *s, char *buffer)
{
    char *p = buffer, *end = buffer + IR_SHAPE_TEXT;
    if (s->rank < 0) {
        snprintf(buffer, IR_SHAPE_TEXT, "[...]");
        return buffer;
    }
    *p++ = '[';
    for (int32_t i = 0; i < s->rank; i++) {
        int64_t d = s->dims[i];
        const char *comma = i ? "," : "";
        if (d >= 0)
            p += snprintf(p, (size_t)(end - p), "%s%lld", comma, (long long)d);
        else if (d == IR_DIM_UNKNOWN)
            p += snprintf(p, (size_t)(end - p), "%s?", comma);
        else
            p += snprintf(p, (size_t)(end - p), "%s$%lld", comma, (long long)(-1 - d));
    }
    snprintf(p, (size_t)(end - p), "]");
    return buffer;
}

tacit_status ir_axis(int64_t axis, int32_t rank, int32_t *out, tacit_error *err)
{
    if (axis < -(int64_t)rank || axis >= rank)
        return error_set(err, TACIT_ERR_VALUE, "axis %lld is outside [-%d, %d)", (long long)axis,
                         rank, rank);
    *out = (int32_t)(axis < 0 ? axis + rank : axis);
    return TACIT_OK;
}

ir_type ir_type_tensor(tacit_dtype dtype, int32_t rank, const int64_t *dims)
{
    return (ir_type){.kind = IR_TENSOR, .dtype = dtype, .shape = ir_shape_of(rank, dims)};
}

bool ir_type_is_static(const ir_type *t)
{
    return t->kind == IR_TENSOR && t->dtype != TACIT_DTYPE_NONE && ir_shape_is_static(&t->shape);
}

bool ir_type_equal(const ir_type *a, const ir_type *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && ir_shape_equal(&a->shape, &b->shape);
}

bool ir_type_bytes(const ir_type *t, size_t *bytes)
{
    int64_t count;
    if (!ir_type_is_static(t) || !ir_shape_count(&t->shape, &count) || count > INT64_MAX / 256)
        return false;
    *bytes = ir_dtype_bytes(t->dtype, count);
    return true;
}
