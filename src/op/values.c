/* SPDX-License-Identifier: Apache-2.0 */
#include "op/values.h"

#include <math.h>
#include <string.h>

#include "op/strip.h"

static tacit_status scratch_words(op_eval *c, int64_t count, void **out)
{
    size_t bytes;
    if (count < 0 || !size_mul((size_t)count, 8, &bytes))
        return error_set(c->err, TACIT_ERR_LIMIT, "%lld elements of workspace are too many",
                         (long long)count);
    *out = op_eval_scratch(c, bytes ? bytes : 8);
    return *out ? TACIT_OK : error_memory(c->err, "an evaluator's workspace");
}

tacit_status op_scratch_f64(op_eval *c, int64_t count, double **out)
{
    void *memory;
    TRY(scratch_words(c, count, &memory));
    memset(memory, 0, (size_t)count * 8);
    *out = memory;
    return TACIT_OK;
}

tacit_status op_scratch_i64(op_eval *c, int64_t count, int64_t **out)
{
    void *memory;
    TRY(scratch_words(c, count, &memory));
    memset(memory, 0, (size_t)count * 8);
    *out = memory;
    return TACIT_OK;
}

tacit_status op_tensor_f64(op_eval *c, const ir_tensor *t, double **out)
{
    *out = NULL;
    if (!t)
        return TACIT_OK;
    void *memory;
    int64_t count = ir_tensor_count(t);
    TRY(scratch_words(c, count, &memory));
    op_strip_load_f64(t->dtype, t->data, 0, 1, count, memory);
    *out = memory;
    return TACIT_OK;
}

tacit_status op_tensor_i64(op_eval *c, const ir_tensor *t, int64_t **out)
{
    *out = NULL;
    if (!t)
        return TACIT_OK;
    void *memory;
    int64_t count = ir_tensor_count(t);
    TRY(scratch_words(c, count, &memory));
    op_strip_load_i64(t->dtype, t->data, 0, 1, count, memory);
    *out = memory;
    return TACIT_OK;
}

tacit_status op_input_f64(op_eval *c, uint32_t i, double **out)
{
    return op_tensor_f64(c, op_in(c, i), out);
}

tacit_status op_input_i64(op_eval *c, uint32_t i, int64_t **out)
{
    return op_tensor_i64(c, op_in(c, i), out);
}

void op_write_f64(ir_tensor *t, const double *values)
{
    int64_t count = ir_tensor_count(t);
    if (t->dtype == TACIT_F32) {
        float *to = t->data;
        for (int64_t i = 0; i < count; i++)
            to[i] = (float)values[i];
        return;
    }
    for (int64_t i = 0; i < count; i++)
        ir_store_f64(t->dtype, t->data, i, values[i]);
}

void op_output_f64(op_eval *c, uint32_t i, const double *values)
{
    ir_tensor *t = op_out(c, i);
    if (t)
        op_write_f64(t, values);
}

void op_output_i64(op_eval *c, uint32_t i, const int64_t *values)
{
    ir_tensor *t = op_out(c, i);
    int64_t count = t ? ir_tensor_count(t) : 0;
    for (int64_t k = 0; k < count; k++)
        ir_store_i64(t->dtype, t->data, k, values[k]);
}

double op_clamp_to(tacit_dtype dtype, double value)
{
    int bits = (int)tacit_dtype_bits(dtype);
    bool negative = ir_dtype_classify(dtype) == IR_CLASS_SIGNED;
    double high = ldexp(1, negative ? bits - 1 : bits) - 1;
    double low = negative ? -high - 1 : 0;
    return value != value ? 0 : value < low ? low : value > high ? high : value;
}

double op_round_even(double value)
{
    double down = floor(value), rest = value - down;
    if (rest != 0.5)
        return rest < 0.5 ? down : down + 1;
    return fmod(down, 2) == 0 ? down : down + 1;
}

tacit_status op_need_float(const op_infer *c, uint32_t i)
{
    const ir_type *t = op_in_type(c, i);
    if (!t || t->dtype == TACIT_F32 || t->dtype == TACIT_F64 || t->dtype == TACIT_F16 ||
        t->dtype == TACIT_BF16)
        return TACIT_OK;
    return error_set(c->err, TACIT_ERR_TYPE, "input %u is %s, expected a float type", i,
                     tacit_dtype_text(t->dtype));
}

tacit_status op_need_rank(const op_infer *c, uint32_t i, int32_t rank)
{
    const ir_type *t = op_in_type(c, i);
    char text[IR_SHAPE_TEXT];
    if (!t || t->shape.rank == rank)
        return TACIT_OK;
    return error_set(c->err, TACIT_ERR_SHAPE, "input %u is %s, expected rank %d", i,
                     ir_shape_text(&t->shape, text), rank);
}

tacit_status op_need_shape(const op_infer *c, uint32_t i, int32_t rank, const int64_t *dims)
{
    const ir_type *t = op_in_type(c, i);
    ir_shape want = ir_shape_of(rank, dims);
    char have[IR_SHAPE_TEXT], expected[IR_SHAPE_TEXT];
    if (!t || ir_shape_equal(&t->shape, &want))
        return TACIT_OK;
    return error_set(c->err, TACIT_ERR_SHAPE, "input %u is %s, expected %s", i,
                     ir_shape_text(&t->shape, have), ir_shape_text(&want, expected));
}

void op_set_out(op_infer *c, uint32_t i, tacit_dtype dtype, const ir_shape *shape)
{
    if (i < c->n_out)
        c->out[i] = (ir_type){.kind = IR_TENSOR, .dtype = dtype, .shape = *shape};
}

void op_set_out_dims(op_infer *c, uint32_t i, tacit_dtype dtype, int32_t rank, const int64_t *dims)
{
    ir_shape shape = ir_shape_of(rank, dims);
    op_set_out(c, i, dtype, &shape);
}
