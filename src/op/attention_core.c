/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "op/attention.h"
#include "op/loop.h"
#include "op/values.h"

op_heads op_heads_bhsd(double *data, int64_t heads, int64_t positions, int64_t d)
{
    return (op_heads){data, heads * positions * d, positions * d, d};
}

op_heads op_heads_bshd(double *data, int64_t heads, int64_t positions, int64_t d)
{
    return (op_heads){data, heads * positions * d, d, heads * d};
}

bool op_attention_bshd(const ir_node *node)
{
    return strcmp(ir_attr_string(node, "out_layout", "bhsd"), "bshd") == 0;
}

tacit_status op_attention_of(op_eval *c, uint32_t k, uint32_t v, op_attention *a)
{
    const int64_t *q = op_in(c, 0)->shape.dims, *keys = op_in(c, k)->shape.dims;
    int64_t dv = op_in(c, v)->shape.dims[3];
    double *qs, *ks, *vs, *y;
    TRY(op_input_f64(c, 0, &qs));
    TRY(op_input_f64(c, k, &ks));
    TRY(op_input_f64(c, v, &vs));
    TRY(op_scratch_f64(c, q[0] * q[1] * q[2] * dv, &y));
    *a = (op_attention){.batch = q[0],
                        .heads = q[1],
                        .kv_heads = keys[1],
                        .sq = q[2],
                        .sk = keys[2],
                        .d = q[3],
                        .dv = dv,
                        .q = op_heads_bhsd(qs, q[1], q[2], q[3]),
                        .k = op_heads_bhsd(ks, keys[1], keys[2], q[3]),
                        .v = op_heads_bhsd(vs, keys[1], keys[2], dv),
                        .y = op_attention_bshd(c->node) ? op_heads_bshd(y, q[1], q[2], dv)
                                                        : op_heads_bhsd(y, q[1], q[2], dv),
                        .scale = ir_attr_float(c->node, "scale", 1),
                        .softcap = ir_attr_float(c->node, "softcap", 0),
                        .causal = ir_attr_int(c->node, "causal", 0) != 0,
                        .window = ir_attr_int(c->node, "window", 0)};
    return TACIT_OK;
}

static double *head_row(const op_heads *h, int64_t b, int64_t head, int64_t position)
{
    return h->data + b * h->batch + head * h->head + position * h->position;
}

/* Is key j hidden from query i by causality, the window or the batch's length? */
static bool hidden(const op_attention *a, int64_t b, int64_t i, int64_t j)
{
    int64_t last = i + (a->offsets ? a->offsets[b] : a->offset);
    return (a->causal && j > last) || (a->window > 0 && j <= last - a->window) ||
           (a->n_keys && j >= a->n_keys[b]);
}

static void softmax_row(double *s, int64_t n, const double *sink)
{
    double top = sink ? *sink : -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++)
        top = s[j] > top ? s[j] : top;
    for (int64_t j = 0; j < n; j++)
        sum += s[j] = exp(s[j] - top);
    if (sink)
        sum += exp(*sink - top);
    for (int64_t j = 0; j < n; j++)
        s[j] /= sum;
}

static void one_query(const op_attention *a, int64_t b, int64_t h, int64_t i, double *s)
{
    int64_t kv = h / (a->heads / a->kv_heads);
    const double *q = head_row(&a->q, b, h, i);
    double *report = a->scores ? a->scores + ((b * a->heads + h) * a->sq + i) * a->sk : NULL;
    size_t bytes = (size_t)a->sk * sizeof *s;
    for (int64_t j = 0; j < a->sk; j++) {
        const double *k = head_row(&a->k, b, kv, j);
        double dot = 0;
        for (int64_t d = 0; d < a->d; d++)
            dot += q[d] * k[d];
        s[j] = dot * a->scale;
    }
    if (report && a->stage == OP_SCORES_RAW)
        memcpy(report, s, bytes);
    for (int64_t j = 0; a->softcap > 0 && j < a->sk; j++)
        s[j] = tanh(s[j] / a->softcap) * a->softcap;
    if (report && a->stage == OP_SCORES_CAPPED)
        memcpy(report, s, bytes);
    const int64_t *step = a->bias_stride;
    for (int64_t j = 0; j < a->sk; j++) {
        if (a->bias)
            s[j] += a->bias[b * step[0] + h * step[1] + i * step[2] + j * step[3]];
        if (hidden(a, b, i, j))
            s[j] = -INFINITY;
    }
    if (report && a->stage == OP_SCORES_BIASED)
        memcpy(report, s, bytes);
    softmax_row(s, a->sk, a->sink ? a->sink + h : NULL);
    if (report && a->stage == OP_SCORES_SOFTMAX)
        memcpy(report, s, bytes);
    double *y = head_row(&a->y, b, h, i);
    memset(y, 0, (size_t)a->dv * sizeof *y);
    for (int64_t j = 0; j < a->sk; j++) {
        const double *v = head_row(&a->v, b, kv, j);
        for (int64_t d = 0; d < a->dv && s[j] != 0; d++)
            y[d] += s[j] * v[d];
    }
}

tacit_status op_attention_run(op_eval *c, const op_attention *a)
{
    double *s;
    if (a->kv_heads < 1 || a->heads % a->kv_heads)
        return error_set(c->err, TACIT_ERR_SHAPE, "%lld query heads over %lld key heads",
                         (long long)a->heads, (long long)a->kv_heads);
    TRY(op_scratch_f64(c, a->sk, &s));
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->sq; i++)
                one_query(a, b, h, i, s);
    return TACIT_OK;
}

tacit_status op_attention_mask(op_eval *c, const ir_tensor *mask, const int64_t target[4],
                               op_attention *a)
{
    if (!mask)
        return TACIT_OK;
    char text[IR_SHAPE_TEXT];
    ir_shape s = {.rank = 4};
    bool fits = mask->shape.rank <= 4;
    for (int32_t i = 0; fits && i < 4; i++) {
        int32_t from = i - (4 - mask->shape.rank);
        s.dims[i] = from < 0 ? 1 : mask->shape.dims[from];
        fits = s.dims[i] == 1 || s.dims[i] == target[i] || (i == 3 && s.dims[i] < target[i]);
    }
    if (!fits)
        return error_set(c->err, TACIT_ERR_SHAPE, "mask %s does not fit [%lld,%lld,%lld,%lld]",
                         ir_shape_text(&mask->shape, text), (long long)target[0],
                         (long long)target[1], (long long)target[2], (long long)target[3]);
    int64_t have = s.dims[3], keys = have == 1 ? 1 : target[3],
            rows = s.dims[0] * s.dims[1] * s.dims[2];
    double *bias;
    TRY(op_scratch_f64(c, rows * keys, &bias));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < keys; j++) {
            double v = j < have ? ir_load_f64(mask->dtype, mask->data, r * have + j) : -INFINITY;
            bias[r * keys + j] =
                mask->dtype == TACIT_BOOL && j < have ? (v != 0 ? 0 : -INFINITY) : v;
        }
    a->bias = bias;
    s.dims[3] = keys;
    int64_t dense[IR_MAX_RANK];
    ir_shape_strides(&s, dense);
    for (int32_t i = 0; i < 4; i++)
        a->bias_stride[i] = s.dims[i] == 1 ? 0 : dense[i];
    return TACIT_OK;
}
