/* SPDX-License-Identifier: Apache-2.0
 * tacit.GrowCache(past [B,H,P,D], fresh [B,H,S,D], first): the first[b] rows of the past, the fresh
 * ones behind them, zeros up to `size` (P + S). What GroupQueryAttention does to its caches. */
#include <string.h>

#include "op/lowerings.h"
#include "op/values.h"

static tacit_status grow_infer(op_infer *c)
{
    const ir_shape *past = &c->in[0]->shape, *fresh = &c->in[1]->shape;
    TRY(op_need_float(c, 0));
    TRY(op_need_rank(c, 0, 4));
    TRY(op_need_rank(c, 1, 4));
    const int64_t *p = past->dims, *f = fresh->dims;
    int64_t size = ir_attr_int(c->node, "size", p[2] + f[2]);
    if (c->in[1]->dtype != c->in[0]->dtype || c->in[2]->dtype != TACIT_I64 || p[0] != f[0] ||
        p[1] != f[1] || p[3] != f[3] || ir_shape_size(&c->in[2]->shape) != p[0] || size < p[2] ||
        size < f[2])
        return error_set(c->err, TACIT_ERR_SHAPE, "past, new rows, first or size do not fit");
    op_set_out_dims(c, 0, c->in[0]->dtype, 4, (int64_t[]){p[0], p[1], size, p[3]});
    return TACIT_OK;
}

static tacit_status grow_eval(op_eval *c)
{
    const int64_t *p = op_in(c, 0)->shape.dims, *f = op_in(c, 1)->shape.dims;
    const ir_tensor *y = op_out(c, 0);
    int64_t size = y->shape.dims[2];
    size_t row = ir_dtype_bytes(y->dtype, p[3]);
    const char *past = op_in(c, 0)->data, *fresh = op_in(c, 1)->data;
    memset(y->data, 0, ir_dtype_bytes(y->dtype, ir_tensor_count(y)));
    for (int64_t h = 0; h < p[0] * p[1]; h++) {
        int64_t first = ((const int64_t *)op_in(c, 2)->data)[h / p[1]];
        if (first < 0 || first > size - f[2])
            return error_set(c->err, TACIT_ERR_VALUE, "no room for %lld rows behind %lld of %lld",
                             (long long)f[2], (long long)first, (long long)size);
        char *to = (char *)y->data + (size_t)(h * size) * row;
        if (p[2] > 0)
            memcpy(to, past + (size_t)(h * p[2]) * row,
                   (size_t)(first < p[2] ? first : p[2]) * row);
        memcpy(to + (size_t)first * row, fresh + (size_t)(h * f[2]) * row, (size_t)f[2] * row);
    }
    return TACIT_OK;
}

const op_def op_rows_cache_grow[] = {
    {.name = "GrowCache",
     .domain = "tacit",
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .infer = grow_infer,
     .eval = grow_eval,
     .accepts = op_accepts_grow_cache,
     .lower = op_lower_grow_cache},
    {0},
};
