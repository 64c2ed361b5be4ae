/* SPDX-License-Identifier: Apache-2.0
 * RotaryEmbedding, LinearAttention and CausalConvWithState. */
#include "op/rotary.h"
#include "op/range.h"

#include <math.h>
#include <string.h>

#include "op/attention.h"
#include "op/build.h"
#include "op/lowerings.h"
#include "op/values.h"
#include "op/vjp.h"

/* --- RotaryEmbedding -------------------------------------------------------------------------- */

typedef struct rotary_sizes {
    int64_t batch, heads, positions, d, half;
} rotary_sizes;

static tacit_status rotary_read(const ir_node *node, const ir_shape *x, const ir_shape *cache,
                                rotary_sizes *s, tacit_error *err)
{
    int64_t heads = ir_attr_int(node, "num_heads", 0);
    char text[IR_SHAPE_TEXT], with[IR_SHAPE_TEXT];
    if (x->rank == 4)
        *s = (rotary_sizes){x->dims[0], x->dims[1], x->dims[2], x->dims[3], 0};
    else if (x->rank == 3 && heads > 0 && x->dims[2] % heads == 0)
        *s = (rotary_sizes){x->dims[0], heads, x->dims[1], x->dims[2] / heads, 0};
    else
        return error_set(err, TACIT_ERR_SHAPE, "input %s does not fit %lld heads",
                         ir_shape_text(x, text), (long long)heads);
    int64_t rotated = ir_attr_int(node, "rotary_embedding_dim", 0);
    rotated = rotated ? rotated : s->d;
    s->half = rotated / 2;
    if (rotated < 0 || rotated > s->d || rotated % 2 || cache->rank < 2 ||
        cache->dims[cache->rank - 1] != s->half)
        return error_set(err, TACIT_ERR_SHAPE, "input %s and cache %s do not fit rotating %lld",
                         ir_shape_text(x, text), ir_shape_text(cache, with), (long long)rotated);
    return TACIT_OK;
}

static tacit_status rotary_infer(op_infer *c)
{
    rotary_sizes s;
    const ir_shape *cosine = &c->in[1]->shape;
    TRY(op_need_float(c, 0));
    TRY(rotary_read(c->node, &c->in[0]->shape, cosine, &s, c->err));
    TRY(op_need_shape(c, 2, cosine->rank, cosine->dims));
    if (op_in_type(c, 3)) {
        TRY(op_need_rank(c, 1, 2));
        TRY(op_need_shape(c, 3, 2, (int64_t[]){s.batch, s.positions}));
    } else {
        TRY(op_need_shape(c, 1, 3, (int64_t[]){s.batch, s.positions, s.half}));
    }
    return op_infer_same(c);
}

static tacit_status rotary_eval(op_eval *c)
{
    rotary_sizes s;
    const ir_shape *x_shape = &op_in(c, 0)->shape, *cache = &op_in(c, 1)->shape;
    bool interleaved = ir_attr_int(c->node, "interleaved", 0) != 0;
    double *x, *cosine, *sine;
    int64_t *ids;
    TRY(rotary_read(c->node, x_shape, cache, &s, c->err));
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &cosine));
    TRY(op_input_f64(c, 2, &sine));
    TRY(op_input_i64(c, 3, &ids));
    op_heads at = x_shape->rank == 4 ? op_heads_bhsd(x, s.heads, s.positions, s.d)
                                     : op_heads_bshd(x, s.heads, s.positions, s.d);
    for (int64_t r = 0; r < s.batch * s.positions; r++) {
        int64_t row = ids ? ids[r] : r;
        if (ids && (row < 0 || row >= cache->dims[0]))
            return error_set(c->err, TACIT_ERR_VALUE, "position %lld is outside the cache of %lld",
                             (long long)row, (long long)cache->dims[0]);
        for (int64_t h = 0; h < s.heads; h++)
            op_rotate(at.data + r / s.positions * at.batch + h * at.head +
                          r % s.positions * at.position,
                      s.half, interleaved, cosine + row * s.half, sine + row * s.half);
    }
    op_output_f64(c, 0, x);
    return TACIT_OK;
}

/* --- LinearAttention -------------------------------------------------------------------------- */

typedef struct linear_rule {
    bool gated, delta;
    int64_t batch, steps, heads, kv_heads, dk, dv, decay_last, beta_last;
} linear_rule;

static tacit_status linear_read(const ir_node *node, const ir_shape *const in[6], linear_rule *r,
                                tacit_error *err)
{
    const char *rule = ir_attr_string(node, "update_rule", "gated_delta");
    bool known = strcmp(rule, "linear") == 0;
    r->gated = strcmp(rule, "gated") == 0 || strcmp(rule, "gated_delta") == 0;
    r->delta = strcmp(rule, "delta") == 0 || strcmp(rule, "gated_delta") == 0;
    if (!known && !r->gated && !r->delta)
        return error_set(err, TACIT_ERR_VALUE, "unknown update_rule '%s'", rule);
    if (!in[4] != !r->gated || !in[5] != !r->delta)
        return error_set(err, TACIT_ERR_GRAPH, "update_rule '%s' and the inputs disagree", rule);
    r->heads = ir_attr_int(node, "q_num_heads", 0);
    r->kv_heads = ir_attr_int(node, "kv_num_heads", 0);
    const ir_shape *q = in[0], *k = in[1], *v = in[2];
    if (r->heads < 1 || r->kv_heads < 1 || r->heads % r->kv_heads || q->rank != 3 || k->rank != 3 ||
        v->rank != 3 || q->dims[2] % r->heads || v->dims[2] % r->kv_heads)
        return error_set(err, TACIT_ERR_SHAPE, "query, key, value do not fit %lld and %lld heads",
                         (long long)r->heads, (long long)r->kv_heads);
    r->batch = q->dims[0];
    r->steps = q->dims[1];
    r->dk = q->dims[2] / r->heads;
    r->dv = v->dims[2] / r->kv_heads;
    r->decay_last = in[4] && in[4]->rank == 3 ? in[4]->dims[2] : 0;
    r->beta_last = in[5] && in[5]->rank == 3 ? in[5]->dims[2] : 0;
    if (k->dims[2] != r->kv_heads * r->dk ||
        (in[4] && r->decay_last != r->kv_heads && r->decay_last != r->kv_heads * r->dk) ||
        (in[5] && r->beta_last != r->kv_heads && r->beta_last != 1))
        return error_set(err, TACIT_ERR_SHAPE, "key, decay or beta has the wrong last axis");
    for (int i = 0; i < 6; i++)
        if (in[i] && i != 3 && (in[i]->dims[0] != r->batch || in[i]->dims[1] != r->steps))
            return error_set(err, TACIT_ERR_SHAPE, "input %d has another batch or length", i);
    return TACIT_OK;
}

static tacit_status linear_infer(op_infer *c)
{
    linear_rule r;
    const ir_shape *in[6] = {0};
    for (uint32_t i = 0; i < 6; i++)
        in[i] = op_in_type(c, i) ? &op_in_type(c, i)->shape : NULL;
    TRY(op_need_float(c, 0));
    TRY(linear_read(c->node, in, &r, c->err));
    int64_t state[4] = {r.batch, r.kv_heads, r.dk, r.dv};
    TRY(op_need_shape(c, 3, 4, state));
    op_set_out_dims(c, 0, c->in[0]->dtype, 3, (int64_t[]){r.batch, r.steps, r.heads * r.dv});
    op_set_out_dims(c, 1, op_in_type(c, 3) ? c->in[3]->dtype : c->in[0]->dtype, 4, state);
    return TACIT_OK;
}

/* One key head's step: decays and writes its state [dk, dv]. */
static void linear_step(const linear_rule *r, double *state, const double *k, const double *v,
                        const double *decay, bool per_key, double beta, double *write)
{
    for (int64_t i = 0; decay && i < r->dk; i++) {
        double f = exp(decay[per_key ? i : 0]);
        for (int64_t j = 0; j < r->dv; j++)
            state[i * r->dv + j] *= f;
    }
    for (int64_t j = 0; j < r->dv; j++) {
        double seen = 0;
        for (int64_t i = 0; r->delta && i < r->dk; i++)
            seen += state[i * r->dv + j] * k[i];
        write[j] = r->delta ? beta * (v[j] - seen) : v[j];
    }
    for (int64_t i = 0; i < r->dk; i++)
        for (int64_t j = 0; j < r->dv; j++)
            state[i * r->dv + j] += k[i] * write[j];
}

static tacit_status linear_eval(op_eval *c)
{
    linear_rule r;
    const ir_shape *in[6] = {0};
    double *v[6], *y, *write, *state;
    for (uint32_t i = 0; i < 6; i++) {
        in[i] = op_in(c, i) ? &op_in(c, i)->shape : NULL;
        TRY(op_input_f64(c, i, &v[i]));
    }
    TRY(linear_read(c->node, in, &r, c->err));
    TRY(op_scratch_f64(c, r.batch * r.steps * r.heads * r.dv, &y));
    TRY(op_scratch_f64(c, r.dv, &write));
    TRY(op_scratch_f64(c, r.batch * r.kv_heads * r.dk * r.dv, &state));
    if (v[3])
        state = v[3];
    double scale = ir_attr_float(c->node, "scale", 0);
    scale = scale == 0 ? 1 / sqrt((double)r.dk) : scale;
    bool per_key = r.decay_last != r.kv_heads;
    int64_t group = r.heads / r.kv_heads;
    for (int64_t at = 0; at < r.batch * r.steps; at++)
        for (int64_t h = 0; h < r.kv_heads; h++) {
            double *s = state + (at / r.steps * r.kv_heads + h) * r.dk * r.dv;
            linear_step(&r, s, v[1] + (at * r.kv_heads + h) * r.dk,
                        v[2] + (at * r.kv_heads + h) * r.dv,
                        v[4] ? v[4] + at * r.decay_last + h * (per_key ? r.dk : 1) : NULL, per_key,
                        v[5] ? v[5][at * r.beta_last + (r.beta_last == 1 ? 0 : h)] : 0, write);
            for (int64_t g = h * group; g < (h + 1) * group; g++)
                for (int64_t i = 0; i < r.dk; i++)
                    for (int64_t j = 0; j < r.dv; j++)
                        y[(at * r.heads + g) * r.dv + j] +=
                            scale * v[0][(at * r.heads + g) * r.dk + i] * s[i * r.dv + j];
        }
    op_output_f64(c, 0, y);
    op_output_f64(c, 1, state);
    return TACIT_OK;
}

/* --- CausalConvWithState ---------------------------------------------------------------------- */

static tacit_status causal_conv_infer(op_infer *c)
{
    const ir_shape *x = &c->in[0]->shape, *w = &c->in[1]->shape;
    const char *act = ir_attr_string(c->node, "activation", "none");
    TRY(op_need_float(c, 0));
    TRY(op_check_same_dtype(c));
    TRY(op_need_rank(c, 0, 3));
    if (w->rank != 3 || w->dims[0] != x->dims[1] || w->dims[1] != 1 || w->dims[2] < 1)
        return error_set(c->err, TACIT_ERR_SHAPE, "the weight must be [channels, 1, k]");
    if (strcmp(act, "none") != 0 && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        return error_set(c->err, TACIT_ERR_VALUE, "unknown activation '%s'", act);
    int64_t state[3] = {x->dims[0], x->dims[1], w->dims[2] - 1};
    TRY(op_need_shape(c, 2, 1, &x->dims[1]));
    TRY(op_need_shape(c, 3, 3, state));
    op_set_out(c, 0, c->in[0]->dtype, x);
    op_set_out_dims(c, 1, c->in[0]->dtype, 3, state);
    return TACIT_OK;
}

static tacit_status causal_conv_eval(op_eval *c)
{
    const int64_t *d = op_in(c, 0)->shape.dims;
    int64_t rows = d[0] * d[1], length = d[2], k = op_in(c, 1)->shape.dims[2];
    bool silu = strcmp(ir_attr_string(c->node, "activation", "none"), "none") != 0;
    double *x, *w, *bias, *past, *y, *state, *line;
    TRY(op_input_f64(c, 0, &x));
    TRY(op_input_f64(c, 1, &w));
    TRY(op_input_f64(c, 2, &bias));
    TRY(op_input_f64(c, 3, &past));
    TRY(op_scratch_f64(c, rows * length, &y));
    TRY(op_scratch_f64(c, rows * (k - 1), &state));
    TRY(op_scratch_f64(c, length + k - 1, &line));
    for (int64_t r = 0; r < rows; r++) {
        int64_t ch = r % d[1];
        for (int64_t i = 0; i < length + k - 1; i++)
            line[i] = i >= k - 1 ? x[r * length + i - (k - 1)] : past ? past[r * (k - 1) + i] : 0;
        for (int64_t i = 0; i < length; i++) {
            double sum = bias ? bias[ch] : 0;
            for (int64_t t = 0; t < k; t++)
                sum += line[i + t] * w[ch * k + t];
            y[r * length + i] = silu ? sum / (1 + exp(-sum)) : sum;
        }
        for (int64_t i = 0; i < k - 1; i++)
            state[r * (k - 1) + i] = line[length + i];
    }
    op_output_f64(c, 0, y);
    op_output_f64(c, 1, state);
    return TACIT_OK;
}

const op_def op_rows_rotary[] = {
    {.name = "RotaryEmbedding",
     .min_in = 3,
     .max_in = 4,
     .min_out = 1,
     .max_out = 1,
     .infer = rotary_infer,
     .eval = rotary_eval,
     .inplace = 1,
     .lower = op_lower_rotary,
     .accepts = op_accepts_rotary,
     .spell = op_spell_rotary,
     .vjp = op_vjp_rotary,
     .range = op_bounds_rotary},
    {.name = "LinearAttention",
     .min_in = 3,
     .max_in = 6,
     .min_out = 1,
     .max_out = 2,
     .infer = linear_infer,
     .eval = linear_eval,
     .spell = op_spell_linear_attention},
    {.name = "CausalConvWithState",
     .min_in = 2,
     .max_in = 4,
     .min_out = 1,
     .max_out = 2,
     .infer = causal_conv_infer,
     .eval = causal_conv_eval,
     .spell = op_spell_causal_conv},
    {0},
};
