/* SPDX-License-Identifier: Apache-2.0
 * tacit.CachedAttention(Q, K, V [B,H,S,D], cache_k, cache_v [B,H,capacity,D], length): K and V are
 * appended to the caches, in place, behind the `length` positions they hold; Q attends to all
 * length + S of them. Made by compiling with a cache; the caches are memory of the session. */

#include <string.h>

#include "op/attention.h"
#include "op/lowerings.h"
#include "op/values.h"

static tacit_status cached_infer(op_infer *c)
{
    const ir_shape *q = &c->in[0]->shape;
    TRY(op_need_float(c, 0));
    for (uint32_t i = 1; i < 5; i++) {
        const ir_shape *s = &c->in[i]->shape, *k = &c->in[i > 2 ? i - 2 : i]->shape;
        if (c->in[i]->dtype != c->in[0]->dtype || q->rank != 4 || s->rank != 4 ||
            s->dims[0] != q->dims[0] || s->dims[1] != k->dims[1] || s->dims[3] != k->dims[3] ||
            (i < 3 && s->dims[2] != q->dims[2]))
            return error_set(c->err, TACIT_ERR_SHAPE, "input %u does not fit Q", i);
    }
    const int64_t *k = c->in[1]->shape.dims, *v = c->in[2]->shape.dims;
    if (k[1] < 1 || k[1] != v[1] || q->dims[1] % k[1] || k[3] != q->dims[3] ||
        c->in[3]->shape.dims[2] != c->in[4]->shape.dims[2] || c->in[5]->dtype != TACIT_I64 ||
        ir_shape_size(&c->in[5]->shape) != 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "keys, values, caches or length do not fit");
    bool bshd = op_attention_bshd(c->node);
    op_set_out_dims(c, 0, c->in[0]->dtype, 4,
                    (int64_t[]){q->dims[0], q->dims[bshd ? 2 : 1], q->dims[bshd ? 1 : 2], v[3]});
    return TACIT_OK;
}

/* New rows into the cache, which is the caller's own memory. */
static void append(const ir_tensor *rows, const ir_tensor *cache, int64_t length)
{
    const int64_t *d = rows->shape.dims;
    size_t row = ir_dtype_bytes(rows->dtype, d[3]);
    int64_t capacity = cache->shape.dims[2];
    for (int64_t h = 0; h < d[0] * d[1]; h++)
        memcpy((char *)cache->data + (size_t)(h * capacity + length) * row,
               (const char *)rows->data + (size_t)(h * d[2]) * row, (size_t)d[2] * row);
}

static tacit_status cached_eval(op_eval *c)
{
    const int64_t *q = op_in(c, 0)->shape.dims, *k = op_in(c, 3)->shape.dims;
    int64_t length = *(const int64_t *)op_in(c, 5)->data;
    op_attention a;
    if (length < 0 || length > k[2] - q[2])
        return error_set(c->err, TACIT_ERR_VALUE, "a cache of %lld holds %lld: no room for %lld",
                         (long long)k[2], (long long)length, (long long)q[2]);
    append(op_in(c, 1), op_in(c, 3), length);
    append(op_in(c, 2), op_in(c, 4), length);
    TRY(op_attention_of(c, 3, 4, &a));
    a.sk = length + q[2];
    a.offset = length;
    TRY(op_attention_run(c, &a));
    op_output_f64(c, 0, a.y.data);
    return TACIT_OK;
}

const op_def op_rows_cached_attention[] = {
    {.name = "CachedAttention",
     .domain = "tacit",
     .min_in = 6,
     .max_in = 6,
     .min_out = 1,
     .max_out = 1,
     .infer = cached_infer,
     .eval = cached_eval,
     .accepts = op_accepts_cached_attention,
     .lower = op_lower_cached_attention},
    {0},
};
