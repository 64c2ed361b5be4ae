/* SPDX-License-Identifier: Apache-2.0
 * ONNX Attention (opset 24) with every input and output, and FlexAttention. */
#include "op/attention.h"

#include <math.h>
#include <string.h>

#include "op/strip.h"
#include "op/values.h"
#include "op/vjp.h"

/* Sizes of an Attention node, from rank-3 or rank-4 inputs. */
typedef struct sizes {
    bool packed; /* rank 3: [B, S, H·D] */
    int64_t batch, heads, kv_heads, sq, new_keys, past, sk, d, dv;
} sizes;

static tacit_status read_sizes(const ir_node *node, const ir_shape *q, const ir_shape *k,
                               const ir_shape *v, const ir_shape *past, sizes *s, tacit_error *err)
{
    char text[3][IR_SHAPE_TEXT];
    s->packed = q->rank == 3;
    bool fits = (q->rank == 3 || q->rank == 4) && k->rank == q->rank && v->rank == q->rank;
    if (fits && s->packed) {
        s->heads = ir_attr_int(node, "q_num_heads", 0);
        s->kv_heads = ir_attr_int(node, "kv_num_heads", 0);
        if (s->heads < 1 || s->kv_heads < 1)
            return error_set(err, TACIT_ERR_VALUE, "rank-3 inputs need q_num_heads, kv_num_heads");
        fits = q->dims[2] % s->heads == 0 && k->dims[2] % s->kv_heads == 0 &&
               v->dims[2] % s->kv_heads == 0;
        s->d = q->dims[2] / s->heads;
        s->dv = v->dims[2] / s->kv_heads;
        s->sq = q->dims[1];
        s->new_keys = k->dims[1];
        fits = fits && k->dims[2] == s->d * s->kv_heads && v->dims[1] == s->new_keys;
    } else if (fits) {
        s->heads = q->dims[1];
        s->kv_heads = k->dims[1];
        s->d = q->dims[3];
        s->dv = v->dims[3];
        s->sq = q->dims[2];
        s->new_keys = k->dims[2];
        fits = k->dims[3] == s->d && v->dims[1] == s->kv_heads && v->dims[2] == s->new_keys;
    }
    s->batch = q->dims[0];
    s->past = past ? past->dims[2] : 0;
    s->sk = s->past + s->new_keys;
    if (!fits || k->dims[0] != s->batch || v->dims[0] != s->batch || s->kv_heads < 1 ||
        s->heads % s->kv_heads)
        return error_set(err, TACIT_ERR_SHAPE, "Q %s, K %s, V %s do not fit",
                         ir_shape_text(q, text[0]), ir_shape_text(k, text[1]),
                         ir_shape_text(v, text[2]));
    return TACIT_OK;
}

static tacit_status attention_infer(op_infer *c)
{
    sizes s;
    const ir_type *pk = op_in_type(c, 4), *pv = op_in_type(c, 5);
    TRY(op_need_float(c, 0));
    if (!pk != !pv)
        return error_set(c->err, TACIT_ERR_GRAPH, "past_key and past_value go together");
    TRY(op_need_rank(c, 4, 4));
    TRY(op_need_rank(c, 5, 4));
    TRY(read_sizes(c->node, &c->in[0]->shape, &c->in[1]->shape, &c->in[2]->shape,
                   pk ? &pk->shape : NULL, &s, c->err));
    TRY(op_need_shape(c, 4, 4, (int64_t[]){s.batch, s.kv_heads, s.past, s.d}));
    TRY(op_need_shape(c, 5, 4, (int64_t[]){s.batch, s.kv_heads, s.past, s.dv}));
    TRY(op_need_shape(c, 6, 1, &s.batch));
    tacit_dtype dtype = c->in[0]->dtype;
    if (s.packed)
        op_set_out_dims(c, 0, dtype, 3, (int64_t[]){s.batch, s.sq, s.heads * s.dv});
    else
        op_set_out_dims(c, 0, dtype, 4, (int64_t[]){s.batch, s.heads, s.sq, s.dv});
    op_set_out_dims(c, 1, c->in[1]->dtype, 4, (int64_t[]){s.batch, s.kv_heads, s.sk, s.d});
    op_set_out_dims(c, 2, c->in[2]->dtype, 4, (int64_t[]){s.batch, s.kv_heads, s.sk, s.dv});
    op_set_out_dims(c, 3, dtype, 4, (int64_t[]){s.batch, s.heads, s.sq, s.sk});
    return TACIT_OK;
}

/* Past and new keys (or values) as one [B, H, past+new, D]. */
static tacit_status joined(op_eval *c, const sizes *s, uint32_t now, uint32_t before, int64_t d,
                           double **out)
{
    double *fresh, *past;
    TRY(op_input_f64(c, now, &fresh));
    TRY(op_input_f64(c, before, &past));
    TRY(op_scratch_f64(c, s->batch * s->kv_heads * s->sk * d, out));
    op_heads from = s->packed ? op_heads_bshd(fresh, s->kv_heads, s->new_keys, d)
                              : op_heads_bhsd(fresh, s->kv_heads, s->new_keys, d);
    size_t row = (size_t)d * sizeof(double);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t h = 0; h < s->kv_heads; h++) {
            double *to = *out + (b * s->kv_heads + h) * s->sk * d;
            for (int64_t i = 0; past && i < s->past; i++)
                memcpy(to + i * d, past + ((b * s->kv_heads + h) * s->past + i) * d, row);
            for (int64_t i = 0; i < s->new_keys; i++)
                memcpy(to + (s->past + i) * d,
                       from.data + b * from.batch + h * from.head + i * from.position, row);
        }
    return TACIT_OK;
}

static tacit_status attention_eval(op_eval *c)
{
    sizes s;
    const ir_tensor *past = op_in(c, 4);
    double *q, *k, *v, *y, *scores = NULL;
    int64_t *lengths;
    TRY(read_sizes(c->node, &op_in(c, 0)->shape, &op_in(c, 1)->shape, &op_in(c, 2)->shape,
                   past ? &past->shape : NULL, &s, c->err));
    TRY(op_input_f64(c, 0, &q));
    TRY(joined(c, &s, 1, 4, s.d, &k));
    TRY(joined(c, &s, 2, 5, s.dv, &v));
    TRY(op_input_i64(c, 6, &lengths));
    TRY(op_scratch_f64(c, s.batch * s.heads * s.sq * s.dv, &y));
    if (op_out(c, 3))
        TRY(op_scratch_f64(c, s.batch * s.heads * s.sq * s.sk, &scores));
    int64_t mode = ir_attr_int(c->node, "qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3)
        return error_set(c->err, TACIT_ERR_VALUE, "qk_matmul_output_mode is %lld", (long long)mode);
    op_attention a = {
        .batch = s.batch,
        .heads = s.heads,
        .kv_heads = s.kv_heads,
        .sq = s.sq,
        .sk = s.sk,
        .d = s.d,
        .dv = s.dv,
        .q = s.packed ? op_heads_bshd(q, s.heads, s.sq, s.d) : op_heads_bhsd(q, s.heads, s.sq, s.d),
        .k = op_heads_bhsd(k, s.kv_heads, s.sk, s.d),
        .v = op_heads_bhsd(v, s.kv_heads, s.sk, s.dv),
        .y = s.packed ? op_heads_bshd(y, s.heads, s.sq, s.dv)
                      : op_heads_bhsd(y, s.heads, s.sq, s.dv),
        .scale = ir_attr_float(c->node, "scale", 1 / sqrt((double)s.d)),
        .softcap = ir_attr_float(c->node, "softcap", 0),
        .causal = ir_attr_int(c->node, "is_causal", 0) != 0,
        .offset = s.past,
        .n_keys = lengths,
        .scores = scores,
        .stage = (op_scores_stage)mode,
    };
    TRY(op_attention_mask(c, op_in(c, 3), (int64_t[]){s.batch, s.heads, s.sq, s.sk}, &a));
    TRY(op_attention_run(c, &a));
    op_output_f64(c, 0, y);
    op_output_f64(c, 1, k);
    op_output_f64(c, 2, v);
    op_output_f64(c, 3, scores);
    return TACIT_OK;
}

/* --- FlexAttention: subgraphs between the two products ---------------------------------------- */

static tacit_status flex_infer(op_infer *c)
{
    sizes s;
    TRY(op_need_float(c, 0));
    TRY(op_need_rank(c, 0, 4));
    TRY(read_sizes(c->node, &c->in[0]->shape, &c->in[1]->shape, &c->in[2]->shape, NULL, &s,
                   c->err));
    op_set_out_dims(c, 0, c->in[0]->dtype, 4, (int64_t[]){s.batch, s.heads, s.sq, s.dv});
    return TACIT_OK;
}

/* Runs the modifier on [B, H, Sq, Sk] values of `dtype`, in place. */
static tacit_status modify(op_eval *c, const char *name, tacit_dtype dtype, const sizes *s,
                           double *values)
{
    const ir_graph *graph = ir_attr_graph(c->node, name);
    ir_shape shape = ir_shape_of(4, (int64_t[]){s->batch, s->heads, s->sq, s->sk});
    ir_tensor *arg = ir_tensor_new(c->scratch, dtype, &shape), result = {0};
    if (!graph)
        return TACIT_OK;
    if (!arg)
        return error_memory(c->err, "attention scores");
    if (!c->run_graph)
        return error_set(c->err, TACIT_ERR_STATE, "%s cannot run here", name);
    op_write_f64(arg, values);
    TRY(c->run_graph(c, graph, 1, (const ir_tensor *const[]){arg}, 1, &result));
    if (!ir_shape_equal(&result.shape, &shape) || !result.data)
        return error_set(c->err, TACIT_ERR_SHAPE, "%s changed the shape of its input", name);
    op_strip_load_f64(result.dtype, result.data, 0, 1, ir_tensor_count(&result), values);
    return TACIT_OK;
}

static void softmax_rows(double *x, int64_t rows, int64_t n)
{
    for (; rows-- > 0; x += n) {
        double top = -INFINITY, sum = 0;
        for (int64_t i = 0; i < n; i++)
            top = x[i] > top ? x[i] : top;
        for (int64_t i = 0; i < n; i++)
            sum += x[i] = exp(x[i] - top);
        for (int64_t i = 0; i < n; i++)
            x[i] /= sum;
    }
}

static tacit_status flex_eval(op_eval *c)
{
    sizes s;
    ir_tensor *out = op_out(c, 0);
    const ir_tensor *qt = op_in(c, 0);
    double *q, *k, *v, *y, *p;
    TRY(read_sizes(c->node, &qt->shape, &op_in(c, 1)->shape, &op_in(c, 2)->shape, NULL, &s,
                   c->err));
    TRY(op_input_f64(c, 0, &q));
    TRY(op_input_f64(c, 1, &k));
    TRY(op_input_f64(c, 2, &v));
    TRY(op_scratch_f64(c, s.batch * s.heads * s.sq * s.dv, &y));
    TRY(op_scratch_f64(c, s.batch * s.heads * s.sq * s.sk, &p));
    tacit_dtype usual = qt->dtype == TACIT_F64 ? TACIT_F64 : TACIT_F32;
    tacit_dtype wide =
        ir_dtype_from_onnx(ir_attr_int(c->node, "softmax_precision", ir_dtype_to_onnx(usual)));
    double scale = ir_attr_float(c->node, "scale", 1 / sqrt((double)s.d));
    int64_t group = s.heads / s.kv_heads, rows = s.batch * s.heads * s.sq;
    for (int64_t r = 0; r < rows; r++) {
        int64_t kv = (r / s.sq / s.heads) * s.kv_heads + r / s.sq % s.heads / group;
        for (int64_t j = 0; j < s.sk; j++) {
            double dot = 0;
            for (int64_t d = 0; d < s.d; d++)
                dot += q[r * s.d + d] * k[(kv * s.sk + j) * s.d + d];
            p[r * s.sk + j] = dot * scale;
        }
    }
    TRY(modify(c, "score_mod", wide, &s, p));
    softmax_rows(p, rows, s.sk);
    TRY(modify(c, "prob_mod", wide, &s, p));
    for (int64_t r = 0; r < rows; r++) {
        int64_t kv = (r / s.sq / s.heads) * s.kv_heads + r / s.sq % s.heads / group;
        for (int64_t j = 0; j < s.sk; j++)
            for (int64_t d = 0; d < s.dv; d++)
                y[r * s.dv + d] += p[r * s.sk + j] * v[(kv * s.sk + j) * s.dv + d];
    }
    ir_shape shape = ir_shape_of(4, (int64_t[]){s.batch, s.heads, s.sq, s.dv});
    if (out && !out->data)
        TRY(op_eval_alloc(c, 0, qt->dtype, &shape));
    op_output_f64(c, 0, y);
    return TACIT_OK;
}

const op_def op_rows_attention[] = {
    {.name = "Attention",
     .decompose = op_attention_parts,
     .min_in = 3,
     .max_in = 7,
     .min_out = 1,
     .max_out = 4,
     .infer = attention_infer,
     .eval = attention_eval,
     .spell = op_spell_attention},
    {.name = "FlexAttention",
     .domain = "ai.onnx.preview",
     .min_in = 3,
     .max_in = 3,
     .min_out = 1,
     .max_out = 1,
     .flags = OP_CONTROL,
     .infer = flex_infer,
     .eval = flex_eval,
     .spell = op_spell_flex_attention},
    {0},
};
