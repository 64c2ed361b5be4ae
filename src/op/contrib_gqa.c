/* SPDX-License-Identifier: Apache-2.0
 * com.microsoft GroupQueryAttention: shared key heads, a growing cache, rotation inside. */
#include <math.h>
#include <string.h>

#include "op/attention.h"
#include "op/rotary.h"
#include "op/values.h"
#include "op/vjp.h"

typedef struct gqa {
    int64_t batch, heads, kv_heads, length, d, past, present;
    bool packed; /* the query holds Q, K and V */
} gqa;

static tacit_status gqa_read(const ir_node *node, const ir_shape *q, const ir_shape *k,
                             const ir_shape *past, const ir_tensor *total, gqa *g, tacit_error *err)
{
    g->heads = ir_attr_int(node, "num_heads", 0);
    g->kv_heads = ir_attr_int(node, "kv_num_heads", 0);
    g->packed = !k;
    if (q->rank != 3 || g->heads < 1 || g->kv_heads < 1 || g->heads % g->kv_heads)
        return error_set(err, TACIT_ERR_SHAPE, "query must be [B,S,H·D] with %lld over %lld heads",
                         (long long)g->heads, (long long)g->kv_heads);
    int64_t slices = g->packed ? g->heads + 2 * g->kv_heads : g->heads;
    g->batch = q->dims[0];
    g->length = q->dims[1];
    g->d = q->dims[2] / slices;
    if (q->dims[2] % slices || (k && (k->rank != 3 || k->dims[2] != g->kv_heads * g->d ||
                                      k->dims[1] != g->length || k->dims[0] != g->batch)))
        return error_set(err, TACIT_ERR_SHAPE, "query and key do not fit the heads");
    g->past = past && past->rank == 4 ? past->dims[2] : 0;
    g->present = IR_DIM_UNKNOWN;
    if (total) {
        int64_t wanted = ir_load_i64(total->dtype, total->data, 0);
        g->present = wanted > g->past ? wanted : g->past;
        if (wanted < g->length || g->present < 1)
            return error_set(err, TACIT_ERR_VALUE, "total_sequence_length is %lld",
                             (long long)wanted);
    }
    return TACIT_OK;
}

static tacit_status gqa_infer(op_infer *c)
{
    gqa g;
    const ir_type *k = op_in_type(c, 1), *past = op_in_type(c, 3);
    TRY(op_need_float(c, 0));
    if (!op_in_type(c, 5) || !op_in_type(c, 6) || ir_shape_size(&c->in[6]->shape) != 1)
        return error_set(c->err, TACIT_ERR_GRAPH, "seqlens_k and total_sequence_length are needed");
    if (!k != !op_in_type(c, 2) || !past != !op_in_type(c, 4))
        return error_set(c->err, TACIT_ERR_GRAPH, "key and value, or past key and value, differ");
    TRY(gqa_read(c->node, &c->in[0]->shape, k ? &k->shape : NULL, past ? &past->shape : NULL,
                 op_in_value(c, 6), &g, c->err));
    if (k)
        TRY(op_need_shape(c, 2, 3, k->shape.dims));
    for (uint32_t i = 3; i < 5; i++)
        TRY(op_need_shape(c, i, 4, (int64_t[]){g.batch, g.kv_heads, g.past, g.d}));
    if (ir_shape_size(&c->in[5]->shape) != g.batch)
        return error_set(c->err, TACIT_ERR_SHAPE, "seqlens_k must have %lld entries",
                         (long long)g.batch);
    int64_t present[4] = {g.batch, g.kv_heads, g.present, g.d};
    op_set_out_dims(c, 0, c->in[0]->dtype, 3, (int64_t[]){g.batch, g.length, g.heads * g.d});
    op_set_out_dims(c, 1, c->in[0]->dtype, 4, present);
    op_set_out_dims(c, 2, c->in[0]->dtype, 4, present);
    return TACIT_OK;
}

/* Rotates positions first[b]… of every head. */
static tacit_status rotate_heads(op_eval *c, const gqa *g, const op_heads *x, int64_t heads,
                                 const int64_t *first)
{
    const ir_tensor *cache = op_in(c, 7), *ids = op_in(c, 9);
    double *cosine, *sine;
    bool interleaved = ir_attr_int(c->node, "rotary_interleaved", 0) != 0;
    if (!cache || !op_in(c, 8) || cache->shape.rank != 2 || 2 * cache->shape.dims[1] > g->d ||
        !ir_shape_equal(&cache->shape, &op_in(c, 8)->shape))
        return error_set(c->err, TACIT_ERR_SHAPE, "do_rotary needs cos_cache and sin_cache");
    if (ids && ir_tensor_count(ids) != g->batch * g->length)
        return error_set(c->err, TACIT_ERR_SHAPE, "position_ids must be [batch, length]");
    int64_t half = cache->shape.dims[1], rows = cache->shape.dims[0];
    TRY(op_input_f64(c, 7, &cosine));
    TRY(op_input_f64(c, 8, &sine));
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t i = 0; i < g->length; i++) {
            int64_t row =
                ids ? ir_load_i64(ids->dtype, ids->data, b * g->length + i) : first[b] + i;
            if (row < 0 || row >= rows)
                return error_set(c->err, TACIT_ERR_VALUE, "position %lld is outside the cache",
                                 (long long)row);
            for (int64_t h = 0; h < heads; h++)
                op_rotate(x->data + b * x->batch + h * x->head + i * x->position, half, interleaved,
                          cosine + row * half, sine + row * half);
        }
    return TACIT_OK;
}

/* The batch's own past rows, the new ones right behind them, zeros after that. */
static void grow_cache(const gqa *g, const double *past, const op_heads *fresh,
                       const int64_t *first, double *present)
{
    size_t row = (size_t)g->d * sizeof(double);
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t h = 0; h < g->kv_heads; h++) {
            double *to = present + (b * g->kv_heads + h) * g->present * g->d;
            for (int64_t i = 0; past && i < g->past && i < first[b]; i++)
                memcpy(to + i * g->d, past + ((b * g->kv_heads + h) * g->past + i) * g->d, row);
            for (int64_t i = 0; i < g->length && first[b] + i < g->present; i++)
                memcpy(to + (first[b] + i) * g->d,
                       fresh->data + b * fresh->batch + h * fresh->head + i * fresh->position, row);
        }
}

static tacit_status gqa_lengths(op_eval *c, const gqa *g, int64_t *first, int64_t *keys)
{
    const ir_tensor *t = op_in(c, 5);
    int64_t total = ir_load_i64(op_in(c, 6)->dtype, op_in(c, 6)->data, 0);
    bool prompt = total == g->length; /* rows may be padded on the right */
    for (int64_t b = 0; b < g->batch; b++) {
        keys[b] = ir_load_i64(t->dtype, t->data, b) + 1;
        first[b] = prompt ? 0 : keys[b] - g->length;
        if (keys[b] < 1 || keys[b] > g->present || first[b] < 0 ||
            first[b] + (prompt ? 0 : g->length) > g->present)
            return error_set(c->err, TACIT_ERR_VALUE, "seqlens_k[%lld] is %lld", (long long)b,
                             (long long)keys[b] - 1);
    }
    return TACIT_OK;
}

static tacit_status gqa_eval(op_eval *c)
{
    gqa g;
    const ir_tensor *kt = op_in(c, 1), *past = op_in(c, 3);
    double *q, *k, *v, *old_k, *old_v, *all_k, *all_v, *y, *sink;
    int64_t *first, *keys;
    TRY(gqa_read(c->node, &op_in(c, 0)->shape, kt ? &kt->shape : NULL, past ? &past->shape : NULL,
                 op_in(c, 6), &g, c->err));
    TRY(op_input_f64(c, 0, &q));
    TRY(op_input_f64(c, 1, &k));
    TRY(op_input_f64(c, 2, &v));
    TRY(op_input_f64(c, 3, &old_k));
    TRY(op_input_f64(c, 4, &old_v));
    TRY(op_input_f64(c, 11, &sink));
    int64_t cache = g.batch * g.kv_heads * g.present * g.d, width = g.heads + 2 * g.kv_heads;
    TRY(op_scratch_f64(c, cache, &all_k));
    TRY(op_scratch_f64(c, cache, &all_v));
    TRY(op_scratch_f64(c, g.batch * g.length * g.heads * g.d, &y));
    TRY(op_scratch_i64(c, g.batch, &first));
    TRY(op_scratch_i64(c, g.batch, &keys));
    TRY(gqa_lengths(c, &g, first, keys));
    op_heads qh = op_heads_bshd(q, g.packed ? width : g.heads, g.length, g.d), kh, vh;
    if (g.packed) { /* each position: query heads, key heads, value heads */
        kh = vh = qh;
        kh.data += g.heads * g.d;
        vh.data += (g.heads + g.kv_heads) * g.d;
    } else {
        kh = op_heads_bshd(k, g.kv_heads, g.length, g.d);
        vh = op_heads_bshd(v, g.kv_heads, g.length, g.d);
    }
    if (ir_attr_int(c->node, "do_rotary", 0)) {
        TRY(rotate_heads(c, &g, &qh, g.heads, first));
        TRY(rotate_heads(c, &g, &kh, g.kv_heads, first));
    }
    grow_cache(&g, old_k, &kh, first, all_k);
    grow_cache(&g, old_v, &vh, first, all_v);
    double scale = ir_attr_float(c->node, "scale", 0);
    int64_t window = ir_attr_int(c->node, "local_window_size", -1);
    op_attention a = {.batch = g.batch,
                      .heads = g.heads,
                      .kv_heads = g.kv_heads,
                      .sq = g.length,
                      .sk = g.present,
                      .d = g.d,
                      .dv = g.d,
                      .q = qh,
                      .k = op_heads_bhsd(all_k, g.kv_heads, g.present, g.d),
                      .v = op_heads_bhsd(all_v, g.kv_heads, g.present, g.d),
                      .y = op_heads_bshd(y, g.heads, g.length, g.d),
                      .scale = scale != 0 ? scale : 1 / sqrt((double)g.d),
                      .softcap = ir_attr_float(c->node, "softcap", 0),
                      .causal = true,
                      .offsets = first,
                      .window = window > 0 ? window : 0,
                      .n_keys = keys,
                      .sink = sink};
    if (sink && ir_tensor_count(op_in(c, 11)) != g.heads)
        return error_set(c->err, TACIT_ERR_SHAPE, "head_sink must have one entry per head");
    if (!sink && ir_attr_int(c->node, "smooth_softmax", 0) > 0) {
        TRY(op_scratch_f64(c, g.heads, &sink)); /* a zero logit in the sum */
        a.sink = sink;
    }
    TRY(op_attention_mask(c, op_in(c, 10), (int64_t[]){g.batch, g.heads, g.length, g.present}, &a));
    TRY(op_attention_run(c, &a));
    ir_shape shape = ir_shape_of(4, (int64_t[]){g.batch, g.kv_heads, g.present, g.d});
    for (uint32_t i = 1; i < 3; i++)
        if (op_out(c, i) && !op_out(c, i)->data)
            TRY(op_eval_alloc(c, i, op_in(c, 0)->dtype, &shape));
    op_output_f64(c, 0, y);
    op_output_f64(c, 1, all_k);
    op_output_f64(c, 2, all_v);
    return TACIT_OK;
}

const op_def op_rows_contrib_gqa[] = {
    {.name = "GroupQueryAttention",
     .domain = "com.microsoft",
     .min_in = 1,
     .max_in = 14,
     .min_out = 1,
     .max_out = 3,
     .infer = gqa_infer,
     .eval = gqa_eval,
     .decompose = op_attention_parts_grouped,
     .spell = op_spell_gqa},
    {0},
};
