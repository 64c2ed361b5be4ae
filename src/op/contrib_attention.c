/* SPDX-License-Identifier: Apache-2.0
 * com.microsoft: Attention, MultiHeadAttention, GroupQueryAttention, RotaryEmbedding. */
#include <math.h>
#include <string.h>

#include "op/attention.h"
#include "op/build.h"
#include "op/rotary.h"
#include "op/values.h"

static const char microsoft[] = "com.microsoft";

/* Copies heads [B, H, S, D], each given by its strides; `at` positions into `to`. */
static void copy_heads(const op_heads *from, const op_heads *to, int64_t at, int64_t batch,
                       int64_t heads, int64_t positions, int64_t d)
{
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < positions; i++)
                memcpy(to->data + b * to->batch + h * to->head + (at + i) * to->position,
                       from->data + b * from->batch + h * from->head + i * from->position,
                       (size_t)d * sizeof(double));
}

/* Every form of integer mask as an additive [B, 1, Sq or 1, Sk]. */
static tacit_status integer_mask(op_eval *c, const ir_tensor *mask, int64_t batch, int64_t sq,
                                 int64_t sk, double filter, op_attention *a)
{
    const ir_shape *s = &mask->shape;
    bool lengths = s->rank == 1 && s->dims[0] == batch;
    bool ranges = s->rank == 1 && s->dims[0] == 2 * batch;
    bool keys = s->rank == 2 && s->dims[0] == batch && s->dims[1] == sk;
    bool pairs = s->rank == 3 && s->dims[0] == batch && s->dims[1] == sq && s->dims[2] == sk;
    bool square = s->rank == 4 && s->dims[0] == batch && s->dims[1] == 1 && s->dims[2] >= sk &&
                  s->dims[3] >= sk;
    char text[IR_SHAPE_TEXT];
    double *bias;
    if (!lengths && !ranges && !keys && !pairs && !square)
        return error_set(c->err, TACIT_ERR_SHAPE, "mask %s does not fit %lld×%lld×%lld",
                         ir_shape_text(s, text), (long long)batch, (long long)sq, (long long)sk);
    TRY(op_scratch_f64(c, batch * sq * sk, &bias));
    for (int64_t at = 0; at < batch * sq * sk; at++) {
        int64_t b = at / (sq * sk), i = at / sk % sq, j = at % sk, seen;
        if (lengths || ranges) {
            seen = j < ir_load_i64(mask->dtype, mask->data, b) &&
                   (lengths || j >= ir_load_i64(mask->dtype, mask->data, batch + b));
        } else {
            int64_t m = square ? s->dims[3] : 0;
            int64_t index = keys    ? b * sk + j
                            : pairs ? at
                                    : (b * s->dims[2] + (sk - sq) + i) * m + j;
            seen = ir_load_i64(mask->dtype, mask->data, index) > 0;
        }
        bias[at] = seen ? 0 : filter;
    }
    a->bias = bias;
    a->bias_stride[0] = sq * sk;
    a->bias_stride[1] = 0;
    a->bias_stride[2] = sk;
    a->bias_stride[3] = 1;
    return TACIT_OK;
}

/* Adds attention_bias ([B or 1, H or 1, Sq, Sk]) on top of what `a` already has. */
static tacit_status add_attention_bias(op_eval *c, const ir_tensor *extra, op_attention *a)
{
    if (!extra)
        return TACIT_OK;
    op_attention other = {0};
    int64_t target[4] = {a->batch, a->heads, a->sq, a->sk};
    TRY(op_attention_mask(c, extra, target, &other));
    if (!a->bias) {
        a->bias = other.bias;
        memcpy(a->bias_stride, other.bias_stride, sizeof a->bias_stride);
        return TACIT_OK;
    }
    double *both;
    TRY(op_scratch_f64(c, a->batch * a->heads * a->sq * a->sk, &both));
    int64_t at = 0;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->sq; i++)
                for (int64_t j = 0; j < a->sk; j++, at++) {
                    const int64_t *p = a->bias_stride, *q = other.bias_stride;
                    both[at] = a->bias[b * p[0] + h * p[1] + i * p[2] + j * p[3]] +
                               other.bias[b * q[0] + h * q[1] + i * q[2] + j * q[3]];
                }
    a->bias = both;
    a->bias_stride[3] = 1;
    a->bias_stride[2] = a->sk;
    a->bias_stride[1] = a->sq * a->sk;
    a->bias_stride[0] = a->heads * a->sq * a->sk;
    return TACIT_OK;
}

/* --- Attention: projections included -----------------------------------------------------------
 */

typedef struct project {
    int64_t batch, length, input, heads, past, hidden[3]; /* widths of Q, K, V */
} project;

static tacit_status project_read(const ir_node *node, const ir_shape *x, const ir_shape *w,
                                 const ir_shape *past, project *p, tacit_error *err)
{
    uint32_t n;
    const int64_t *sizes = ir_attr_ints(node, "qkv_hidden_sizes", &n);
    p->heads = ir_attr_int(node, "num_heads", 0);
    if (x->rank != 3 || w->rank != 2 || w->dims[0] != x->dims[2] || p->heads < 1 ||
        (sizes && n != 3))
        return error_set(err, TACIT_ERR_SHAPE, "input, weights and num_heads do not fit");
    p->batch = x->dims[0];
    p->length = x->dims[1];
    p->input = x->dims[2];
    p->past = past && past->rank == 5 ? past->dims[3] : 0;
    int64_t total = 0;
    for (int i = 0; i < 3; i++) {
        p->hidden[i] = sizes ? sizes[i] : w->dims[1] / 3;
        total += p->hidden[i];
        if (p->hidden[i] < 1 || p->hidden[i] % p->heads)
            return error_set(err, TACIT_ERR_SHAPE, "width %lld does not fit %lld heads",
                             (long long)p->hidden[i], (long long)p->heads);
    }
    if (total != w->dims[1] || p->hidden[0] != p->hidden[1])
        return error_set(err, TACIT_ERR_SHAPE, "the weights have %lld columns, expected %lld",
                         (long long)w->dims[1], (long long)total);
    return TACIT_OK;
}

static tacit_status project_infer(op_infer *c)
{
    project p;
    const ir_type *past = op_in_type(c, 4);
    TRY(op_need_float(c, 0));
    TRY(project_read(c->node, &c->in[0]->shape, &c->in[1]->shape, past ? &past->shape : NULL, &p,
                     c->err));
    int64_t columns = p.hidden[0] + p.hidden[1] + p.hidden[2], d = p.hidden[0] / p.heads;
    TRY(op_need_shape(c, 2, 1, &columns));
    TRY(op_need_shape(c, 4, 5, (int64_t[]){2, p.batch, p.heads, p.past, d}));
    if ((past || c->n_out > 1) && p.hidden[2] != p.hidden[0])
        return error_set(c->err, TACIT_ERR_SHAPE, "past needs equal widths of K and V");
    op_set_out_dims(c, 0, c->in[0]->dtype, 3, (int64_t[]){p.batch, p.length, p.hidden[2]});
    op_set_out_dims(c, 1, c->in[0]->dtype, 5,
                    (int64_t[]){2, p.batch, p.heads, p.past + p.length, d});
    return TACIT_OK;
}

/* Columns [first, first+width) of input·weights + bias, as [B, S, width]. */
static tacit_status projected(op_eval *c, const project *p, int64_t first, int64_t width,
                              const double *x, const double *w, const double *bias, double **out)
{
    int64_t columns = p->hidden[0] + p->hidden[1] + p->hidden[2];
    TRY(op_scratch_f64(c, p->batch * p->length * width, out));
    for (int64_t r = 0; r < p->batch * p->length; r++) {
        double *row = *out + r * width;
        for (int64_t k = 0; k < p->input; k++)
            for (int64_t j = 0; j < width; j++)
                row[j] += x[r * p->input + k] * w[k * columns + first + j];
        for (int64_t j = 0; bias && j < width; j++)
            row[j] += bias[first + j];
    }
    return TACIT_OK;
}

static tacit_status project_eval(op_eval *c)
{
    project p;
    const ir_tensor *past = op_in(c, 4), *mask = op_in(c, 3);
    double *x, *w, *bias, *before, *qkv[3], *joined, *y;
    TRY(project_read(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, past ? &past->shape : NULL,
                     &p, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &w));
    TRY(op_input_f64(c, 2, &bias));
    TRY(op_input_f64(c, 4, &before));
    for (int i = 0, first = 0; i < 3; first += (int)p.hidden[i++])
        TRY(projected(c, &p, first, p.hidden[i], x, w, bias, &qkv[i]));
    int64_t d = p.hidden[0] / p.heads, dv = p.hidden[2] / p.heads, sk = p.past + p.length;
    int64_t k_size = p.batch * p.heads * sk * d, v_size = p.batch * p.heads * sk * dv;
    TRY(op_scratch_f64(c, k_size + v_size, &joined));
    TRY(op_scratch_f64(c, p.batch * p.length * p.hidden[2], &y));
    op_heads k = op_heads_bhsd(joined, p.heads, sk, d);
    op_heads v = op_heads_bhsd(joined + k_size, p.heads, sk, dv);
    op_heads new_k = op_heads_bshd(qkv[1], p.heads, p.length, d);
    op_heads new_v = op_heads_bshd(qkv[2], p.heads, p.length, dv);
    if (before) {
        int64_t half = p.batch * p.heads * p.past * d;
        op_heads old_k = op_heads_bhsd(before, p.heads, p.past, d);
        op_heads old_v = op_heads_bhsd(before + half, p.heads, p.past, d);
        copy_heads(&old_k, &k, 0, p.batch, p.heads, p.past, d);
        copy_heads(&old_v, &v, 0, p.batch, p.heads, p.past, d);
    }
    copy_heads(&new_k, &k, p.past, p.batch, p.heads, p.length, d);
    copy_heads(&new_v, &v, p.past, p.batch, p.heads, p.length, dv);
    double scale = ir_attr_float(c->node, "scale", 0);
    op_attention a = {.batch = p.batch,
                      .heads = p.heads,
                      .kv_heads = p.heads,
                      .sq = p.length,
                      .sk = sk,
                      .d = d,
                      .dv = dv,
                      .q = op_heads_bshd(qkv[0], p.heads, p.length, d),
                      .k = k,
                      .v = v,
                      .y = op_heads_bshd(y, p.heads, p.length, dv),
                      .scale = scale != 0 ? scale : 1 / sqrt((double)d),
                      .causal = ir_attr_int(c->node, "unidirectional", 0) != 0,
                      .offset = p.past};
    if (mask)
        TRY(integer_mask(c, mask, p.batch, p.length, sk,
                         ir_attr_float(c->node, "mask_filter_value", -10000), &a));
    TRY(add_attention_bias(c, op_in(c, 5), &a));
    TRY(op_attention_run(c, &a));
    op_output_f64(c, 0, y);
    op_output_f64(c, 1, joined);
    return TACIT_OK;
}

/* --- MultiHeadAttention ------------------------------------------------------------------------
 */

typedef struct multi {
    int64_t batch, heads, sq, new_keys, past, sk, d, dv;
    bool packed_qkv, packed_kv; /* [B,S,H,3,D], [B,S,H,2,D] */
    bool keys_bhsd;             /* K and V are [B,H,S,D] already */
} multi;

static tacit_status multi_read(const ir_node *node, const ir_shape *const in[8], multi *m,
                               tacit_error *err)
{
    const ir_shape *q = in[0], *k = in[1], *v = in[2], *past = in[6];
    m->heads = ir_attr_int(node, "num_heads", 0);
    m->packed_qkv = q->rank == 5;
    m->packed_kv = k && k->rank == 5;
    m->keys_bhsd = k && k->rank == 4;
    m->batch = q->dims[0];
    m->sq = q->rank > 1 ? q->dims[1] : 0;
    m->past = past && past->rank == 4 ? past->dims[2] : 0;
    bool fits = m->heads > 0;
    if (fits && m->packed_qkv) {
        fits = !k && !v && q->dims[2] == m->heads && q->dims[3] == 3;
        m->d = m->dv = q->dims[4];
        m->new_keys = m->sq;
    } else if (fits) {
        fits = q->rank == 3 && k && q->dims[2] % m->heads == 0 && k->dims[0] == m->batch;
        m->d = fits ? q->dims[2] / m->heads : 0;
        m->dv = m->d;
        if (fits && m->packed_kv) {
            fits = !v && k->dims[2] == m->heads && k->dims[3] == 2 && k->dims[4] == m->d;
            m->new_keys = k->dims[1];
        } else if (fits && m->keys_bhsd) {
            fits = v && v->rank == 4 && k->dims[1] == m->heads && k->dims[3] == m->d &&
                   v->dims[1] == m->heads && v->dims[2] == k->dims[2];
            m->new_keys = k->dims[2];
            m->dv = fits ? v->dims[3] : 0;
        } else if (fits) {
            fits = v && v->rank == 3 && k->rank == 3 && k->dims[2] == q->dims[2] &&
                   v->dims[1] == k->dims[1] && v->dims[2] % m->heads == 0;
            m->new_keys = k->dims[1];
            m->dv = fits ? v->dims[2] / m->heads : 0;
        }
    }
    m->sk = m->past + m->new_keys;
    return fits ? TACIT_OK
                : error_set(err, TACIT_ERR_SHAPE, "query, key, value do not fit %lld heads",
                            (long long)m->heads);
}

static tacit_status multi_infer(op_infer *c)
{
    multi m;
    const ir_shape *in[8];
    for (uint32_t i = 0; i < 8; i++)
        in[i] = op_in_type(c, i) ? &op_in_type(c, i)->shape : NULL;
    TRY(op_need_float(c, 0));
    TRY(multi_read(c->node, in, &m, c->err));
    int64_t widths = m.heads * (2 * m.d + m.dv);
    TRY(op_need_shape(c, 3, 1, &widths));
    TRY(op_need_shape(c, 6, 4, (int64_t[]){m.batch, m.heads, m.past, m.d}));
    TRY(op_need_shape(c, 7, 4, (int64_t[]){m.batch, m.heads, m.past, m.dv}));
    if (!in[6] != !in[7])
        return error_set(c->err, TACIT_ERR_GRAPH, "past_key and past_value go together");
    tacit_dtype dtype = c->in[0]->dtype;
    op_set_out_dims(c, 0, dtype, 3, (int64_t[]){m.batch, m.sq, m.heads * m.dv});
    op_set_out_dims(c, 1, dtype, 4, (int64_t[]){m.batch, m.heads, m.sk, m.d});
    op_set_out_dims(c, 2, dtype, 4, (int64_t[]){m.batch, m.heads, m.sk, m.dv});
    op_set_out_dims(c, 3, dtype, 4, (int64_t[]){m.batch, m.heads, m.sq, m.sk});
    return TACIT_OK;
}

/* Where the three parts lie in the inputs. */
static void multi_parts(const multi *m, double *q, double *k, double *v, op_heads part[3])
{
    if (m->packed_qkv) {
        for (int i = 0; i < 3; i++)
            part[i] = (op_heads){q + i * m->d, m->sq * m->heads * 3 * m->d, 3 * m->d,
                                 m->heads * 3 * m->d};
        return;
    }
    part[0] = op_heads_bshd(q, m->heads, m->sq, m->d);
    if (m->packed_kv) {
        for (int i = 0; i < 2; i++)
            part[i + 1] = (op_heads){k + i * m->d, m->new_keys * m->heads * 2 * m->d, 2 * m->d,
                                     m->heads * 2 * m->d};
        return;
    }
    part[1] = m->keys_bhsd ? op_heads_bhsd(k, m->heads, m->new_keys, m->d)
                           : op_heads_bshd(k, m->heads, m->new_keys, m->d);
    part[2] = m->keys_bhsd ? op_heads_bhsd(v, m->heads, m->new_keys, m->dv)
                           : op_heads_bshd(v, m->heads, m->new_keys, m->dv);
}

static void add_bias(const op_heads *x, const double *bias, int64_t batch, int64_t heads,
                     int64_t positions, int64_t d)
{
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < positions; i++)
                for (int64_t k = 0; k < d; k++)
                    x->data[b * x->batch + h * x->head + i * x->position + k] += bias[h * d + k];
}

static tacit_status multi_eval(op_eval *c)
{
    multi m;
    const ir_shape *in[8];
    double *q, *k, *v, *bias, *old_k, *old_v, *all_k, *all_v, *y, *scores = NULL;
    for (uint32_t i = 0; i < 8; i++)
        in[i] = op_in(c, i) ? &op_in(c, i)->shape : NULL;
    TRY(multi_read(c->node, in, &m, c->err));
    TRY(op_input_f64(c, 0, &q));
    TRY(op_input_f64(c, 1, &k));
    TRY(op_input_f64(c, 2, &v));
    TRY(op_input_f64(c, 3, &bias));
    TRY(op_input_f64(c, 6, &old_k));
    TRY(op_input_f64(c, 7, &old_v));
    TRY(op_scratch_f64(c, m.batch * m.heads * m.sk * m.d, &all_k));
    TRY(op_scratch_f64(c, m.batch * m.heads * m.sk * m.dv, &all_v));
    TRY(op_scratch_f64(c, m.batch * m.sq * m.heads * m.dv, &y));
    if (op_out(c, 3))
        TRY(op_scratch_f64(c, m.batch * m.heads * m.sq * m.sk, &scores));
    op_heads part[3], kk = op_heads_bhsd(all_k, m.heads, m.sk, m.d);
    op_heads vv = op_heads_bhsd(all_v, m.heads, m.sk, m.dv);
    multi_parts(&m, q, k, v, part);
    if (bias) {
        add_bias(&part[0], bias, m.batch, m.heads, m.sq, m.d);
        add_bias(&part[1], bias + m.heads * m.d, m.batch, m.heads, m.new_keys, m.d);
        add_bias(&part[2], bias + 2 * m.heads * m.d, m.batch, m.heads, m.new_keys, m.dv);
    }
    if (old_k) {
        op_heads a = op_heads_bhsd(old_k, m.heads, m.past, m.d);
        op_heads b = op_heads_bhsd(old_v, m.heads, m.past, m.dv);
        copy_heads(&a, &kk, 0, m.batch, m.heads, m.past, m.d);
        copy_heads(&b, &vv, 0, m.batch, m.heads, m.past, m.dv);
    }
    copy_heads(&part[1], &kk, m.past, m.batch, m.heads, m.new_keys, m.d);
    copy_heads(&part[2], &vv, m.past, m.batch, m.heads, m.new_keys, m.dv);
    double scale = ir_attr_float(c->node, "scale", 0);
    op_attention a = {.batch = m.batch,
                      .heads = m.heads,
                      .kv_heads = m.heads,
                      .sq = m.sq,
                      .sk = m.sk,
                      .d = m.d,
                      .dv = m.dv,
                      .q = part[0],
                      .k = kk,
                      .v = vv,
                      .y = op_heads_bshd(y, m.heads, m.sq, m.dv),
                      .scale = scale != 0 ? scale : 1 / sqrt((double)m.d),
                      .causal = ir_attr_int(c->node, "unidirectional", 0) != 0,
                      .offset = m.sk - m.sq,
                      .scores = scores,
                      .stage = OP_SCORES_RAW};
    if (op_in(c, 4))
        TRY(integer_mask(c, op_in(c, 4), m.batch, m.sq, m.sk,
                         ir_attr_float(c->node, "mask_filter_value", -10000), &a));
    TRY(add_attention_bias(c, op_in(c, 5), &a));
    TRY(op_attention_run(c, &a));
    op_output_f64(c, 0, y);
    op_output_f64(c, 1, all_k);
    op_output_f64(c, 2, all_v);
    op_output_f64(c, 3, scores);
    return TACIT_OK;
}

/* --- RotaryEmbedding ---------------------------------------------------------------------------
 */

static tacit_status rotary_sizes(const ir_node *node, const ir_shape *x, const ir_shape *cache,
                                 int64_t *heads, int64_t *d, int64_t *half, tacit_error *err)
{
    int64_t wanted = ir_attr_int(node, "num_heads", 0);
    int64_t part = ir_attr_int(node, "rotary_embedding_dim", 0);
    if (cache->rank != 2 || (x->rank != 3 && x->rank != 4))
        return error_set(err, TACIT_ERR_SHAPE, "input and cache have the wrong rank");
    *half = cache->dims[1];
    if (x->rank == 4) {
        *heads = x->dims[1];
        *d = x->dims[3];
    } else {
        *d = wanted > 0 ? x->dims[2] / wanted : 2 * *half;
        *heads = *d > 0 ? x->dims[2] / *d : 0;
    }
    if ((x->rank == 3 && *heads * *d != x->dims[2]) || 2 * *half > *d ||
        (part > 0 && part != 2 * *half))
        return error_set(err, TACIT_ERR_SHAPE, "heads of %lld do not fit rotating %lld",
                         (long long)*d, (long long)(2 * *half));
    return TACIT_OK;
}

static tacit_status rotary_infer(op_infer *c)
{
    int64_t heads, d, half;
    const ir_shape *cache = &c->in[2]->shape, *x = &c->in[0]->shape, *ids = &c->in[1]->shape;
    TRY(op_need_float(c, 0));
    TRY(rotary_sizes(c->node, x, cache, &heads, &d, &half, c->err));
    TRY(op_need_shape(c, 3, 2, cache->dims));
    int64_t positions = x->rank == 4 ? x->dims[2] : x->dims[1];
    if (ir_shape_size(ids) != 1 &&
        !(ids->rank == 2 && ids->dims[0] == x->dims[0] && ids->dims[1] == positions))
        return error_set(c->err, TACIT_ERR_SHAPE, "position_ids must be [1] or [batch, positions]");
    return op_infer_same(c);
}

static tacit_status rotary_eval(op_eval *c)
{
    int64_t heads, d, half, *ids;
    const ir_shape *s = &op_in(c, 0)->shape, *cache = &op_in(c, 2)->shape;
    bool interleaved = ir_attr_int(c->node, "interleaved", 0) != 0;
    double *x, *cosine, *sine;
    TRY(rotary_sizes(c->node, s, cache, &heads, &d, &half, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_i64(c, 1, &ids));
    TRY(op_input_f64(c, 2, &cosine));
    TRY(op_input_f64(c, 3, &sine));
    bool start = ir_tensor_count(op_in(c, 1)) == 1;
    int64_t positions = s->rank == 4 ? s->dims[2] : s->dims[1];
    op_heads at = s->rank == 4 ? op_heads_bhsd(x, heads, positions, d)
                               : op_heads_bshd(x, heads, positions, d);
    for (int64_t r = 0; r < s->dims[0] * positions; r++) {
        int64_t row = start ? ids[0] + r % positions : ids[r];
        if (row < 0 || row >= cache->dims[0])
            return error_set(c->err, TACIT_ERR_VALUE, "position %lld is outside the cache of %lld",
                             (long long)row, (long long)cache->dims[0]);
        for (int64_t h = 0; h < heads; h++)
            op_rotate(at.data + r / positions * at.batch + h * at.head +
                          r % positions * at.position,
                      half, interleaved, cosine + row * half, sine + row * half);
    }
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

/* ONNX's RotaryEmbedding, which has kernels. */
static tacit_status rotary_decompose(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0], *ids = node->inputs[1];
    const ir_shape *s = &x->type.shape;
    int64_t heads, d, half;
    TRY(rotary_sizes(node, s, &node->inputs[2]->type.shape, &heads, &d, &half, err));
    ir_shape places = ir_shape_of(2, (int64_t[]){s->dims[0], s->dims[s->rank == 4 ? 2 : 1]});
    if (ir_shape_size(&ids->type.shape) == 1 && ir_shape_size(&places) != 1) { /* where to start */
        ir_tensor *steps = ir_tensor_new(g->memory, ids->type.dtype, &places);
        for (int64_t i = 0; steps && i < ir_tensor_count(steps); i++)
            ir_store_i64(steps->dtype, steps->data, i, i % places.dims[1]);
        ids = steps ? op_build2(g, "Add", op_build_reshape(g, ids, 2, (int64_t[]){1, 1}),
                                ir_constant_new(g, "steps", steps))
                    : NULL;
    } else if (ids->type.shape.rank != 2) {
        ids = op_build_reshape(g, ids, 2, places.dims);
    }
    ir_value *in[4] = {x, node->inputs[2], node->inputs[3], ids};
    ir_node *n = ids ? op_node(g, "RotaryEmbedding", NULL, 4, in) : NULL;
    if (!n || !ir_attr_set_int(g, n, "num_heads", heads) ||
        !ir_attr_set_int(g, n, "rotary_embedding_dim", 2 * half) ||
        !ir_attr_set_int(g, n, "interleaved", ir_attr_int(node, "interleaved", 0)))
        return error_memory(err, "decomposing a node");
    TRY(op_build_finish(g, node, 0, n->outputs[0], err));
    ir_node_kill(node);
    return TACIT_OK;
}

const op_def op_rows_contrib_attention[] = {
    {.name = "Attention",
     .domain = microsoft,
     .decompose = op_attention_parts_projected,
     .min_in = 2,
     .max_in = 7,
     .min_out = 1,
     .max_out = 2,
     .infer = project_infer,
     .eval = project_eval},
    {.name = "MultiHeadAttention",
     .domain = microsoft,
     .decompose = op_attention_parts_multi,
     .min_in = 1,
     .max_in = 10,
     .min_out = 1,
     .max_out = 4,
     .infer = multi_infer,
     .eval = multi_eval},
    {.name = "RotaryEmbedding",
     .domain = microsoft,
     .min_in = 4,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = rotary_infer,
     .eval = rotary_eval,
     .decompose = rotary_decompose,
     .inplace = 1},
    {0},
};
