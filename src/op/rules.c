/* SPDX-License-Identifier: Apache-2.0
 * Infer rules and small helpers that many rows share. */
#include "op/op.h"

tacit_status op_check_same_dtype(const op_infer *c)
{
    for (uint32_t i = 1; i < c->n_in; i++)
        if (c->in[i] && c->in[0] && c->in[i]->dtype != c->in[0]->dtype)
            return error_set(c->err, TACIT_ERR_TYPE, "input %u is %s, but input 0 is %s", i,
                             tacit_dtype_text(c->in[i]->dtype), tacit_dtype_text(c->in[0]->dtype));
    return TACIT_OK;
}

tacit_status op_infer_same(op_infer *c)
{
    c->out[0] = *c->in[0];
    return TACIT_OK;
}

tacit_status op_infer_broadcast(op_infer *c)
{
    TRY(op_check_same_dtype(c));
    ir_shape shape = c->in[0]->shape;
    for (uint32_t i = 1; i < c->n_in; i++)
        if (c->in[i])
            TRY(ir_shape_broadcast(&shape, &c->in[i]->shape, &shape, c->err));
    c->out[0] = ir_type_tensor(c->in[0]->dtype, shape.rank, shape.dims);
    return TACIT_OK;
}

tacit_status op_infer_compare(op_infer *c)
{
    TRY(op_infer_broadcast(c));
    c->out[0].dtype = TACIT_BOOL;
    return TACIT_OK;
}

tacit_status op_read_ints(const ir_tensor *t, int64_t *out, uint32_t most, uint32_t *count,
                          tacit_error *err)
{
    int64_t n = ir_tensor_count(t);
    if (!ir_dtype_is_int(t->dtype))
        return error_set(err, TACIT_ERR_TYPE, "expected an integer tensor, got %s",
                         tacit_dtype_text(t->dtype));
    if (n > most)
        return error_set(err, TACIT_ERR_LIMIT, "expected at most %u integers, got %lld", most,
                         (long long)n);
    for (int64_t i = 0; i < n; i++)
        out[i] = ir_load_i64(t->dtype, t->data, i);
    *count = (uint32_t)n;
    return TACIT_OK;
}
