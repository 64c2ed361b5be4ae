/* SPDX-License-Identifier: Apache-2.0
 * Scaled dot-product attention, the one evaluator behind every attention op. */
#ifndef OP_ATTENTION_H
#define OP_ATTENTION_H

#include "op/op.h"

typedef enum op_scores_stage { /* which scores to report */
                               OP_SCORES_RAW,
                               OP_SCORES_CAPPED,
                               OP_SCORES_BIASED,
                               OP_SCORES_SOFTMAX,
} op_scores_stage;

/* Where element (batch, head, position, 0) of an operand lies; the last axis is contiguous. */
typedef struct op_heads {
    double *data;
    int64_t batch, head, position; /* strides */
} op_heads;

typedef struct op_attention {
    int64_t batch, heads, kv_heads, sq, sk, d, dv;
    op_heads q, k, v, y;
    double scale, softcap; /* softcap 0: none */
    bool causal;           /* key j is seen by query i when j ≤ i + offset */
    int64_t offset;        /* of every batch, unless `offsets` is given */
    const int64_t *offsets;
    int64_t window;         /* > 0: only keys j > i + offset − window */
    const double *bias;     /* added to the scores; strides, 0 broadcasts */
    int64_t bias_stride[4]; /* batch, head, query, key */
    const int64_t *n_keys;  /* valid keys per batch, NULL: all */
    const double *sink;     /* per head: a score that only enters the softmax's sum; or NULL */
    double *scores;         /* NULL, or [batch, heads, sq, sk] */
    op_scores_stage stage;
} op_attention;

/* heads must be a multiple of kv_heads: query head h reads key head h / (heads / kv_heads). */
tacit_status op_attention_run(op_eval *c, const op_attention *a);
/* An additive or boolean mask as doubles (false becomes −∞) with its strides for bias_stride. It
 * must broadcast to `target`, except that its last axis may be shorter: those keys are masked. */
tacit_status op_attention_mask(op_eval *c, const ir_tensor *mask, const int64_t target[4],
                               op_attention *a);
/* Whether tacit.Attention and tacit.CachedAttention write [B, S, H, D]. */
bool op_attention_bshd(const ir_node *node);
/* What these two nodes ask for: Q is input 0, K and V are the inputs `k` and `v`, all [B, H, S, D];
 * scale, softcap, causality and window as the attributes say, a scratch for the output. */
tacit_status op_attention_of(op_eval *c, uint32_t k, uint32_t v, op_attention *a);
/* Strides of a dense [B, H, S, D] and of a dense [B, S, H·D]. */
op_heads op_heads_bhsd(double *data, int64_t heads, int64_t positions, int64_t d);
op_heads op_heads_bshd(double *data, int64_t heads, int64_t positions, int64_t d);

/* Decompose rules of the attention ops, in terms of tacit.Attention; TACIT_ERR_UNSUPPORTED (and an
 * untouched graph) for the forms that have none. */
op_decompose_fn op_attention_parts, op_attention_parts_projected, op_attention_parts_multi,
    op_attention_parts_grouped;

#endif
