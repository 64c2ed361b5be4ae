/* SPDX-License-Identifier: Apache-2.0
 * Attention ops of ONNX and com.microsoft in terms of tacit.Attention, which has kernels. */
#include <math.h>
#include <string.h>

#include "op/attention.h"
#include "op/build.h"

static ir_value *input(const ir_node *n, uint32_t i)
{
    return i < n->n_inputs ? n->inputs[i] : NULL;
}
static bool wants(const ir_node *n, uint32_t i)
{
    return i < n->n_outputs && n->outputs[i];
}
static tacit_status no_parts(const ir_node *n, const char *what, tacit_error *err)
{
    return error_set(err, TACIT_ERR_UNSUPPORTED, "%s with %s has no simpler form", n->type, what);
}

static ir_value *concat2(ir_graph *g, ir_value *a, ir_value *b, int64_t axis)
{
    ir_value *y = op_build2(g, "Concat", a, b);
    return y && ir_attr_set_int(g, y->producer, "axis", axis) ? y : NULL;
}

static ir_value *slice(ir_graph *g, ir_value *x, int64_t axis, int64_t from, int64_t to)
{
    ir_value *in[4] = {x, op_build_ints(g, 1, &from), op_build_ints(g, 1, &to),
                       op_build_ints(g, 1, &axis)};
    ir_node *n = x && in[1] && in[2] && in[3] ? op_node(g, "Slice", NULL, 4, in) : NULL;
    return n ? n->outputs[0] : NULL;
}

/* [B, S, H·D] → [B, H, S, D] */
static ir_value *to_heads(ir_graph *g, ir_value *x, int64_t batch, int64_t positions, int64_t heads,
                          int64_t d)
{
    static const int64_t perm[] = {0, 2, 1, 3};
    x = op_build_reshape(g, x, 4, (int64_t[]){batch, positions, heads, d});
    return op_build_transpose(g, x, 4, perm);
}

typedef struct core {
    ir_value *q, *k, *v, *mask; /* [B,H,S,D]; mask may be NULL */
    double scale, softcap;
    bool causal, bshd;
    int64_t offset, window;
} core;

/* Only what differs from the defaults is written. */
static bool core_attrs(ir_graph *g, ir_node *n, const core *c)
{
    return ir_attr_set_float(g, n, "scale", c->scale) &&
           (c->softcap == 0 || ir_attr_set_float(g, n, "softcap", c->softcap)) &&
           (!c->causal || ir_attr_set_int(g, n, "causal", 1)) &&
           (!c->causal || !c->offset || ir_attr_set_int(g, n, "causal_offset", c->offset)) &&
           (c->window <= 0 || ir_attr_set_int(g, n, "window", c->window)) &&
           (!c->bshd || ir_attr_set_string(g, n, "out_layout", "bshd"));
}

static ir_value *build_core(ir_graph *g, const core *c)
{
    ir_value *in[4] = {c->q, c->k, c->v, c->mask};
    if (!c->q || !c->k || !c->v)
        return NULL;
    ir_node *n = ir_node_new(g, "Attention", "tacit", NULL, c->mask ? 4 : 3, in, 1, NULL);
    if (!n || !core_attrs(g, n, c))
        return NULL;
    op_resolve(NULL, n);
    return n->outputs[0];
}

/* A mask as [B,H,Sq,Sk]; where its last axis is shorter than the keys, the missing ones are hidden.
 */
static ir_value *widened(ir_graph *g, ir_value *mask, int64_t sk)
{
    const ir_type *t = &mask->type;
    ir_shape rest = {.rank = 4};
    for (int32_t i = 0; i < 4; i++) {
        int32_t from = i - (4 - t->shape.rank);
        rest.dims[i] = from < 0 ? 1 : t->shape.dims[from];
    }
    int64_t have = rest.dims[3];
    if (t->shape.rank < 4) /* kernels read masks of four axes */
        mask = op_build_reshape(g, mask, 4, rest.dims);
    if (have == sk || have == 1 || !mask)
        return mask;
    rest.dims[3] = sk - have;
    ir_tensor *hidden = ir_tensor_new(g->memory, t->dtype, &rest);
    for (int64_t i = 0; hidden && i < ir_tensor_count(hidden); i++)
        ir_store_f64(t->dtype, hidden->data, i, t->dtype == TACIT_BOOL ? 0 : -INFINITY);
    return hidden ? concat2(g, mask, ir_constant_new(g, "hidden", hidden), -1) : NULL;
}

tacit_status op_attention_parts(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *q = node->inputs[0], *k = node->inputs[1], *v = node->inputs[2];
    ir_value *mask = input(node, 3), *past_k = input(node, 4), *past_v = input(node, 5);
    if (input(node, 6))
        return no_parts(node, "nonpad_kv_seqlen", err);
    if (wants(node, 3))
        return no_parts(node, "qk_matmul_output", err);
    bool packed = q->type.shape.rank == 3;
    const int64_t *qd = q->type.shape.dims, *kd = k->type.shape.dims, *vd = v->type.shape.dims;
    int64_t batch = qd[0], heads = packed ? ir_attr_int(node, "q_num_heads", 1) : qd[1];
    int64_t kv = packed ? ir_attr_int(node, "kv_num_heads", 1) : kd[1];
    int64_t sq = packed ? qd[1] : qd[2], sk = packed ? kd[1] : kd[2];
    int64_t d = packed ? qd[2] / heads : qd[3], dv = packed ? vd[2] / kv : vd[3];
    int64_t past = past_k ? past_k->type.shape.dims[2] : 0;
    if (mask && mask->type.shape.rank < 1)
        return no_parts(node, "a scalar mask", err);
    if (packed) {
        q = to_heads(g, q, batch, sq, heads, d);
        k = to_heads(g, k, batch, sk, kv, d);
        v = to_heads(g, v, batch, sk, kv, dv);
    }
    if (past_k) {
        k = concat2(g, past_k, k, 2);
        v = concat2(g, past_v, v, 2);
    }
    core c = {.q = q,
              .k = k,
              .v = v,
              .mask = mask ? widened(g, mask, past + sk) : NULL,
              .scale = ir_attr_float(node, "scale", 1 / sqrt((double)d)),
              .softcap = ir_attr_float(node, "softcap", 0),
              .causal = ir_attr_int(node, "is_causal", 0) != 0,
              .bshd = packed,
              .offset = past};
    ir_value *y = build_core(g, &c);
    if (packed)
        y = op_build_reshape(g, y, 3, (int64_t[]){batch, sq, heads * dv});
    TRY(op_build_finish(g, node, 0, y, err));
    TRY(op_build_finish(g, node, 1, k, err));
    TRY(op_build_finish(g, node, 2, v, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- com.microsoft
 * --------------------------------------------------------------------------------- */

/* 0, 1, … along one of four axes. */
static ir_value *counting(ir_graph *g, int64_t n, int32_t axis)
{
    ir_shape s = ir_shape_of(4, (int64_t[]){1, 1, 1, 1});
    s.dims[axis] = n;
    ir_tensor *t = ir_tensor_new(g->memory, TACIT_I64, &s);
    for (int64_t i = 0; t && i < n; i++)
        ir_store_i64(TACIT_I64, t->data, i, i);
    return t ? ir_constant_new(g, "counting", t) : NULL;
}

/* A number of each batch, [B, 1, 1, 1] in i64. */
static ir_value *of_batches(ir_graph *g, ir_value *x, int64_t batch)
{
    return op_build_reshape(g, op_build_cast(g, x, TACIT_I64), 4, (int64_t[]){batch, 1, 1, 1});
}

/* An integer mask of keys [B, Sk] or of pairs [B, Sq, Sk], or the number of keys [B], as an
 * additive one; other forms have none. */
static bool mask_has_parts(const ir_value *mask, int64_t batch, int64_t sq, int64_t sk)
{
    const ir_shape *s = &mask->type.shape;
    return (s->rank == 1 && s->dims[0] == batch) ||
           (s->rank == 2 && s->dims[0] == batch && s->dims[1] == sk) ||
           (s->rank == 3 && s->dims[0] == batch && s->dims[1] == sq && s->dims[2] == sk);
}

static ir_value *additive(ir_graph *g, ir_value *mask, int64_t batch, int64_t sq, int64_t sk,
                          tacit_dtype dtype, double filter)
{
    int64_t rows = mask->type.shape.rank == 3 ? sq : 1;
    ir_value *seen = mask->type.shape.rank == 1
                         ? op_build2(g, "Less", counting(g, sk, 3), of_batches(g, mask, batch))
                         : op_build2(g, "Greater", mask, op_build_scalar(g, mask->type.dtype, 0));
    ir_value *bias = op_build3(g, "Where", seen, op_build_scalar(g, dtype, 0),
                               op_build_scalar(g, dtype, filter));
    return op_build_reshape(g, bias, 4, (int64_t[]){batch, 1, rows, sk});
}

/* Both masks, where there are two. */
static ir_value *summed(ir_graph *g, ir_value *a, ir_value *b)
{
    return a && b ? op_build2(g, "Add", a, b) : a ? a : b;
}

/* What com.microsoft's nodes say, whose queries, [batch, rows, heads·d], are the last of `total`
 * positions. A key counts where `mask` is above 0. */
static void read_core(ir_graph *g, const ir_node *node, ir_value *mask, int64_t d, int64_t total,
                      core *c)
{
    const ir_type *x = &node->inputs[0]->type;
    double scale = ir_attr_float(node, "scale", 0);
    c->scale = scale != 0 ? scale : 1 / sqrt((double)d);
    c->causal = ir_attr_int(node, "unidirectional", 0) != 0;
    c->bshd = true;
    c->offset = total - x->shape.dims[1];
    if (mask)
        c->mask = additive(g, mask, x->shape.dims[0], x->shape.dims[1], total, x->dtype,
                           ir_attr_float(node, "mask_filter_value", -10000));
    c->mask = summed(g, c->mask, input(node, 5));
}

static ir_value *lead(ir_graph *g, ir_value *x)
{
    return op_build2(g, "Unsqueeze", x, op_build_ints(g, 1, (int64_t[]){0}));
}
static ir_value *unlead(ir_graph *g, ir_value *x, int64_t which)
{
    x = slice(g, x, 0, which, which + 1);
    return op_build2(g, "Squeeze", x, op_build_ints(g, 1, (int64_t[]){0}));
}

tacit_status op_attention_parts_projected(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *x = node->inputs[0], *mask = input(node, 3), *past = input(node, 4);
    const int64_t *xd = x->type.shape.dims;
    uint32_t count;
    const int64_t *sizes = ir_attr_ints(node, "qkv_hidden_sizes", &count);
    int64_t heads = ir_attr_int(node, "num_heads", 1), batch = xd[0], s = xd[1];
    int64_t width = node->inputs[1]->type.shape.dims[1] / 3;
    int64_t w[3] = {sizes ? sizes[0] : width, sizes ? sizes[1] : width, sizes ? sizes[2] : width};
    int64_t before = past ? past->type.shape.dims[3] : 0, d = w[0] / heads, dv = w[2] / heads;
    if (mask && !mask_has_parts(mask, batch, s, before + s))
        return no_parts(node, "this form of mask", err);
    ir_value *all = op_build2(g, "MatMul", x, node->inputs[1]);
    if (input(node, 2))
        all = op_build2(g, "Add", all, node->inputs[2]);
    ir_value *q = to_heads(g, slice(g, all, 2, 0, w[0]), batch, s, heads, d);
    ir_value *k = to_heads(g, slice(g, all, 2, w[0], w[0] + w[1]), batch, s, heads, d);
    ir_value *v =
        to_heads(g, slice(g, all, 2, w[0] + w[1], w[0] + w[1] + w[2]), batch, s, heads, dv);
    if (past) {
        k = concat2(g, unlead(g, past, 0), k, 2);
        v = concat2(g, unlead(g, past, 1), v, 2);
    }
    core c = {.q = q, .k = k, .v = v};
    read_core(g, node, mask, d, before + s, &c);
    ir_value *y = op_build_reshape(g, build_core(g, &c), 3, (int64_t[]){batch, s, w[2]});
    TRY(op_build_finish(g, node, 0, y, err));
    if (wants(node, 1))
        TRY(op_build_finish(g, node, 1, concat2(g, lead(g, k), lead(g, v), 0), err));
    ir_node_kill(node);
    return TACIT_OK;
}

tacit_status op_attention_parts_multi(ir_graph *g, ir_node *node, tacit_error *err)
{
    ir_value *q = node->inputs[0], *k = input(node, 1), *v = input(node, 2), *bias = input(node, 3);
    ir_value *mask = input(node, 4), *past_k = input(node, 6), *past_v = input(node, 7);
    if (!k || !v || q->type.shape.rank != 3)
        return no_parts(node, "packed inputs", err);
    if (wants(node, 3))
        return no_parts(node, "its scores as output", err);
    bool flat = k->type.shape.rank == 3;
    const int64_t *qd = q->type.shape.dims, *kd = k->type.shape.dims, *vd = v->type.shape.dims;
    int64_t heads = ir_attr_int(node, "num_heads", 1), batch = qd[0], sq = qd[1];
    int64_t d = qd[2] / heads, sk = flat ? kd[1] : kd[2], dv = flat ? vd[2] / heads : vd[3];
    int64_t past = past_k ? past_k->type.shape.dims[2] : 0, total = past + sk;
    if (bias && !flat)
        return no_parts(node, "a bias on keys by head", err);
    if (mask && !mask_has_parts(mask, batch, sq, total))
        return no_parts(node, "this form of mask", err);
    if (bias) {
        q = op_build2(g, "Add", q, slice(g, bias, 0, 0, heads * d));
        k = op_build2(g, "Add", k, slice(g, bias, 0, heads * d, 2 * heads * d));
        v = op_build2(g, "Add", v, slice(g, bias, 0, 2 * heads * d, heads * (2 * d + dv)));
    }
    q = to_heads(g, q, batch, sq, heads, d);
    if (flat) {
        k = to_heads(g, k, batch, sk, heads, d);
        v = to_heads(g, v, batch, sk, heads, dv);
    }
    if (past_k) {
        k = concat2(g, past_k, k, 2);
        v = concat2(g, past_v, v, 2);
    }
    core c = {.q = q, .k = k, .v = v};
    read_core(g, node, mask, d, total, &c);
    ir_value *y = op_build_reshape(g, build_core(g, &c), 3, (int64_t[]){batch, sq, heads * dv});
    TRY(op_build_finish(g, node, 0, y, err));
    TRY(op_build_finish(g, node, 1, k, err));
    TRY(op_build_finish(g, node, 2, v, err));
    ir_node_kill(node);
    return TACIT_OK;
}

/* --- GroupQueryAttention -----------------------------------------------------------------------
 * How many keys a batch has is data (seqlens_k): tacit.GrowCache reads it, and keys are hidden by
 * comparing positions with it. */

typedef struct grouped {
    int64_t batch, heads, kv, length, d;
    int64_t past, total; /* positions of the past, and of all */
    bool prompt;         /* nothing came before: queries begin at 0, padding is on the right */
    ir_value *keys;      /* what each batch has, [B, 1, 1, 1] */
    ir_value *first;     /* where its queries begin, [B, 1, 1, 1]; NULL for a prompt */
} grouped;

static bool rotary_fits(const ir_node *node, const grouped *s)
{
    const ir_value *x = node->inputs[0], *cosine = input(node, 7), *sine = input(node, 8);
    return cosine && sine && cosine->type.shape.rank == 2 &&
           2 * cosine->type.shape.dims[1] <= s->d && cosine->type.dtype == x->type.dtype &&
           ir_type_equal(&cosine->type, &sine->type);
}

static tacit_status read_grouped(const ir_node *node, grouped *s, tacit_error *err)
{
    const ir_type *x = &node->inputs[0]->type;
    const ir_value *past = input(node, 3);
    const ir_tensor *total = ir_value_known(node->inputs[6]);
    if (!total)
        return no_parts(node, "a total_sequence_length that is data", err);
    if (input(node, 10) || input(node, 11) || input(node, 12) || input(node, 13) ||
        ir_attr_int(node, "smooth_softmax", 0) > 0)
        return no_parts(node, "a bias, sinks or scales", err);
    s->heads = ir_attr_int(node, "num_heads", 1);
    s->kv = ir_attr_int(node, "kv_num_heads", 1);
    s->batch = x->shape.dims[0];
    s->length = x->shape.dims[1];
    s->d = x->shape.dims[2] / (input(node, 1) ? s->heads : s->heads + 2 * s->kv);
    s->past = past ? past->type.shape.dims[2] : 0;
    s->total = ir_load_i64(total->dtype, total->data, 0);
    s->prompt = s->total == s->length;
    if (past && past->type.dtype != x->dtype)
        return no_parts(node, "a cache of another type", err);
    if (!s->prompt && !past)
        return no_parts(node, "later positions, but no past", err);
    if (ir_attr_int(node, "do_rotary", 0) && !rotary_fits(node, s))
        return no_parts(node, "these rotary tables", err);
    return TACIT_OK;
}

/* Positions of the queries, [B, S]. */
static ir_value *query_positions(ir_graph *g, const ir_node *node, const grouped *s)
{
    int64_t dims[2] = {s->batch, s->length};
    if (input(node, 9))
        return op_build_reshape(g, op_build_cast(g, node->inputs[9], TACIT_I64), 2, dims);
    ir_value *steps = counting(g, s->length, 3);
    steps = s->prompt ? op_build2(g, "Expand", steps,
                                  op_build_ints(g, 4, (int64_t[]){s->batch, 1, 1, s->length}))
                      : op_build2(g, "Add", s->first, steps);
    return op_build_reshape(g, steps, 2, dims);
}

static ir_value *rotated(ir_graph *g, const ir_node *node, ir_value *x, ir_value *ids)
{
    ir_value *in[4] = {x, node->inputs[7], node->inputs[8], ids};
    ir_node *n = x && ids ? op_node(g, "RotaryEmbedding", NULL, 4, in) : NULL;
    int64_t half = node->inputs[7]->type.shape.dims[1];
    if (!n || !ir_attr_set_int(g, n, "rotary_embedding_dim", 2 * half) ||
        !ir_attr_set_int(g, n, "interleaved", ir_attr_int(node, "rotary_interleaved", 0)))
        return NULL;
    return n->outputs[0];
}

/* The past rows of each batch, the new ones right behind them, zeros after that. */
static ir_value *grown(ir_graph *g, const grouped *s, ir_value *past, ir_value *fresh)
{
    ir_value *in[3] = {past, fresh, s->first};
    if (!fresh || !s->first)
        return NULL;
    ir_node *n = ir_node_new(g, "GrowCache", "tacit", NULL, 3, in, 1, NULL);
    if (!n || !ir_attr_set_int(g, n, "size", s->past > s->total ? s->past : s->total))
        return NULL;
    op_resolve(NULL, n);
    return n->outputs[0];
}

/* A prompt's rows, zeros up to the size of the past that it replaces. */
static ir_value *begun(ir_graph *g, const grouped *s, tacit_dtype dtype, ir_value *fresh)
{
    if (s->past <= s->length)
        return fresh;
    ir_shape rest = ir_shape_of(4, (int64_t[]){s->batch, s->kv, s->past - s->length, s->d});
    ir_tensor *zeros = ir_tensor_new(g->memory, dtype, &rest);
    for (int64_t i = 0; zeros && i < ir_tensor_count(zeros); i++)
        ir_store_f64(dtype, zeros->data, i, 0);
    return zeros ? concat2(g, fresh, ir_constant_new(g, "zeros", zeros), 2) : NULL;
}

/* Which keys a query of a later step sees, [B, 1, S, total]. */
static ir_value *seen_keys(ir_graph *g, const grouped *s, int64_t window)
{
    ir_value *key = counting(g, s->total, 3);
    ir_value *own = op_build2(g, "Add", s->first, counting(g, s->length, 2));
    ir_value *seen = op_build2(g, "LessOrEqual", key, own);
    if (window <= 0)
        return seen;
    ir_value *hidden = op_build2(g, "Sub", own, op_build_scalar(g, TACIT_I64, (double)window));
    return op_build2(g, "And", seen, op_build2(g, "Greater", key, hidden));
}

static void split_grouped(ir_graph *g, const ir_node *node, const grouped *s, ir_value *x[3])
{
    int64_t heads[3] = {s->heads, s->kv, s->kv}, from = 0;
    for (uint32_t i = 0; i < 3; i++) {
        ir_value *own = input(node, 1) ? node->inputs[i]
                                       : slice(g, node->inputs[0], 2, from, from + heads[i] * s->d);
        x[i] = to_heads(g, own, s->batch, s->length, heads[i], s->d);
        from += heads[i] * s->d;
    }
}

tacit_status op_attention_parts_grouped(ir_graph *g, ir_node *node, tacit_error *err)
{
    grouped s = {0};
    TRY(read_grouped(node, &s, err));
    tacit_dtype dtype = node->inputs[0]->type.dtype;
    int64_t window = ir_attr_int(node, "local_window_size", -1);
    double scale = ir_attr_float(node, "scale", 0);
    ir_value *x[3], *present[2];
    s.keys = op_build2(g, "Add", of_batches(g, node->inputs[5], s.batch),
                       op_build_scalar(g, TACIT_I64, 1));
    s.first = s.prompt
                  ? NULL
                  : op_build2(g, "Sub", s.keys, op_build_scalar(g, TACIT_I64, (double)s.length));
    split_grouped(g, node, &s, x);
    ir_value *ids = ir_attr_int(node, "do_rotary", 0) ? query_positions(g, node, &s) : NULL;
    for (uint32_t i = 0; ids && i < 2; i++)
        x[i] = rotated(g, node, x[i], ids);
    core c = {.q = x[0],
              .scale = scale != 0 ? scale : 1 / sqrt((double)s.d),
              .softcap = ir_attr_float(node, "softcap", 0),
              .bshd = true};
    if (s.prompt) { /* what is padded sees only what is not */
        c.causal = true;
        c.window = window;
        c.k = x[1], c.v = x[2];
        c.mask = op_build2(g, "Less", counting(g, s.length, 3), s.keys);
    } else {
        c.mask = seen_keys(g, &s, window);
    }
    for (uint32_t i = 0; i < 2; i++)
        present[i] =
            s.prompt ? begun(g, &s, dtype, x[1 + i]) : grown(g, &s, node->inputs[3 + i], x[1 + i]);
    if (!s.prompt) { /* a cache may have room for more */
        c.k = s.past > s.total ? slice(g, present[0], 2, 0, s.total) : present[0];
        c.v = s.past > s.total ? slice(g, present[1], 2, 0, s.total) : present[1];
    }
    ir_value *y = c.mask ? build_core(g, &c) : NULL;
    y = op_build_reshape(g, y, 3, (int64_t[]){s.batch, s.length, s.heads * s.d});
    TRY(op_build_finish(g, node, 0, y, err));
    TRY(op_build_finish(g, node, 1, present[0], err));
    TRY(op_build_finish(g, node, 2, present[1], err));
    ir_node_kill(node);
    return TACIT_OK;
}
