/* SPDX-License-Identifier: Apache-2.0
 * Attention with its scores spelled out, for the forms that have no plain decomposition. */
#include <math.h>
#include <string.h>

#include "op/spell.h"
#include "op/vjp.h"

typedef struct scores {
    ir_value *q, *k, *v;      /* [B, H, Sq, D], [B, Hk, Sk, D], [B, Hk, Sk, Dv] */
    ir_value *bias, *visible; /* broadcast to [B, H, Sq, Sk], or NULL; visible: bool */
    ir_value *sink;           /* [H], or NULL */
    double scale, cap;
    ir_value *stage[4]; /* out: scaled, capped, masked, softmax */
} scores;

/* [B, Hk, S, D] → [B, H, S, D] */
static ir_value *repeated(op_diff *c, ir_value *x, int64_t heads)
{
    if (!x || x->type.shape.dims[1] == heads)
        return x;
    const int64_t *d = x->type.shape.dims;
    int64_t group = heads / d[1];
    x = op_spell_expanded(c, op_spell_unsqueeze(c, x, 2), 5,
                          (int64_t[]){d[0], d[1], group, d[2], d[3]});
    return op_spell_shaped(c, x, 4, (int64_t[]){d[0], heads, d[2], d[3]});
}

/* softmax with one more score per head that only enters the sum */
static ir_value *softmax(op_diff *c, ir_value *s, ir_value *sink)
{
    if (!s || !sink)
        return op_diff1(c, "Softmax", s);
    const int64_t *d = s->type.shape.dims;
    sink = op_spell_shaped(c, sink, 4, (int64_t[]){1, d[1], 1, 1});
    sink = op_spell_expanded(c, sink, 4, (int64_t[]){d[0], d[1], d[2], 1});
    ir_value *p = op_diff1(c, "Softmax", op_spell_concat(c, 2, (ir_value *[]){s, sink}, 3));
    return op_spell_slice(c, p, 3, 0, d[3]);
}

static ir_value *attend(op_diff *c, scores *a)
{
    if (!a->q || !a->k || !a->v)
        return NULL;
    int64_t heads = a->q->type.shape.dims[1];
    tacit_dtype dtype = a->q->type.dtype;
    ir_value *k = op_diff_swap_last(c, repeated(c, a->k, heads));
    ir_value *s = op_diff_scale(c, op_spell_matmul(c, a->q, k), a->scale);
    a->stage[0] = s;
    if (a->cap > 0)
        s = op_diff_scale(c, op_diff1(c, "Tanh", op_diff_scale(c, s, 1 / a->cap)), a->cap);
    a->stage[1] = s;
    if (a->bias)
        s = op_spell_add(c, s, a->bias);
    if (a->visible)
        s = op_diff3(c, "Where", a->visible, s, op_diff_scalar(c, dtype, -INFINITY));
    a->stage[2] = s;
    a->stage[3] = softmax(c, s, a->sink);
    return op_spell_matmul(c, a->stage[3], repeated(c, a->v, heads));
}

/* [B, S, H·D] → [B, H, S, D] */
static ir_value *to_heads(op_diff *c, ir_value *x, int64_t heads)
{
    if (!x)
        return NULL;
    const int64_t *d = x->type.shape.dims;
    x = op_spell_shaped(c, x, 4, (int64_t[]){d[0], d[1], heads, d[2] / heads});
    return op_diff_transpose(c, x, (int64_t[]){0, 2, 1, 3});
}

static ir_value *from_heads(op_diff *c, ir_value *x)
{
    x = x ? op_diff_transpose(c, x, (int64_t[]){0, 2, 1, 3}) : NULL;
    if (!x)
        return NULL;
    const int64_t *d = x->type.shape.dims;
    return op_spell_shaped(c, x, 3, (int64_t[]){d[0], d[1], d[2] * d[3]});
}

/* An additive or boolean mask: goes to `bias` or `visible`. Keys it does not name are hidden. */
static void set_mask(op_diff *c, ir_value *mask, int64_t sk, scores *a)
{
    if (!mask)
        return;
    int32_t last = mask->type.shape.rank - 1;
    int64_t have = last < 0 ? 1 : mask->type.shape.dims[last];
    bool truth = mask->type.dtype == TACIT_BOOL;
    if (have != 1 && have < sk) {
        int64_t pads[2 * IR_MAX_RANK] = {0};
        pads[2 * last + 1] = sk - have;
        ir_value *in[3] = {truth ? op_diff_cast(c, mask, TACIT_I32) : mask,
                           op_diff_ints(c, 2 * (uint32_t)(last + 1), pads),
                           truth ? NULL : op_diff_scalar(c, mask->type.dtype, -INFINITY)};
        mask = in[0] && in[1] ? op_diff_node(c, "Pad", 3, in) : NULL;
        mask = truth ? op_diff_cast(c, mask, TACIT_BOOL) : mask;
    }
    *(truth ? &a->visible : &a->bias) = mask;
}

static ir_value *both(op_diff *c, ir_value *a, ir_value *b)
{
    return a && b ? op_diff2(c, "And", a, b) : a ? a : b;
}

static ir_value *counting(op_diff *c, int64_t n, int32_t rank, const int64_t *dims)
{
    int64_t *list = op_spell_scratch(c, (size_t)(n + 1) * sizeof *list);
    for (int64_t i = 0; list && i < n; i++)
        list[i] = i;
    return list ? op_spell_ints(c, rank, dims, list) : NULL;
}

/* Key j is seen by query i when j ≤ i + offset; offset is [B, 1, 1, 1] or a number. */
static ir_value *causal(op_diff *c, int64_t sq, int64_t sk, ir_value *offset, int64_t window)
{
    ir_value *i = counting(c, sq, 4, (int64_t[]){1, 1, sq, 1});
    ir_value *j = counting(c, sk, 4, (int64_t[]){1, 1, 1, sk});
    i = op_spell_add(c, i, offset);
    ir_value *seen = op_diff2(c, "LessOrEqual", j, i);
    if (window > 0)
        seen = both(c, seen, op_diff2(c, "Greater", j, op_spell_shift(c, i, -(double)window)));
    return seen;
}

/* Keys before `count` ([B], integers). */
static ir_value *valid(op_diff *c, ir_value *count, int64_t batch, int64_t sk)
{
    ir_value *j = counting(c, sk, 4, (int64_t[]){1, 1, 1, sk});
    count = op_diff_cast(c, count, TACIT_I64);
    return op_diff2(c, "Less", j, op_spell_shaped(c, count, 4, (int64_t[]){batch, 1, 1, 1}));
}

/* --- ONNX Attention ----------------------------------------------------------------------------
 */

tacit_status op_spell_attention(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    bool packed = n->inputs[0]->type.shape.rank == 3;
    scores a = {.q = n->inputs[0], .k = n->inputs[1], .v = n->inputs[2]};
    if (packed) {
        a.q = to_heads(c, a.q, ir_attr_int(n, "q_num_heads", 1));
        a.k = to_heads(c, a.k, ir_attr_int(n, "kv_num_heads", 1));
        a.v = to_heads(c, a.v, ir_attr_int(n, "kv_num_heads", 1));
    }
    int64_t past = 0;
    if (op_spell_input(c, 4)) {
        past = n->inputs[4]->type.shape.dims[2];
        a.k = op_spell_concat(c, 2, (ir_value *[]){n->inputs[4], a.k}, 2);
        a.v = op_spell_concat(c, 2, (ir_value *[]){n->inputs[5], a.v}, 2);
    }
    if (!a.q || !a.k || !a.v)
        return c->status;
    int64_t batch = a.q->type.shape.dims[0], sq = a.q->type.shape.dims[2];
    int64_t sk = a.k->type.shape.dims[2], d = a.q->type.shape.dims[3];
    a.scale = ir_attr_float(n, "scale", 1 / sqrt((double)d));
    a.cap = ir_attr_float(n, "softcap", 0);
    set_mask(c, op_spell_input(c, 3), sk, &a);
    if (ir_attr_int(n, "is_causal", 0))
        a.visible =
            both(c, a.visible, causal(c, sq, sk, op_diff_scalar(c, TACIT_I64, (double)past), 0));
    if (op_spell_input(c, 6))
        a.visible = both(c, a.visible, valid(c, n->inputs[6], batch, sk));
    ir_value *y = attend(c, &a);
    out[0] = packed ? from_heads(c, y) : y;
    int64_t mode = ir_attr_int(n, "qk_matmul_output_mode", 0);
    if (n->n_outputs > 1)
        out[1] = a.k;
    if (n->n_outputs > 2)
        out[2] = a.v;
    if (n->n_outputs > 3)
        out[3] = a.stage[mode >= 0 && mode < 4 ? mode : 0];
    return c->status;
}

/* --- FlexAttention: subgraphs on the scores and on the probabilities ----------------------------
 */

static ir_value *modified(op_diff *c, const char *name, ir_value *x)
{
    const ir_graph *g = ir_attr_graph(c->node, name);
    ir_value *y = NULL;
    if (!g || !x)
        return x;
    if (g->captures.count || g->inputs.count != 1 || g->outputs.count != 1) {
        op_diff_fail(c, TACIT_ERR_UNSUPPORTED,
                     "a modifier that reads outer values has no gradient");
        return NULL;
    }
    c->status = op_inline_graph(c->graph, g, &x, &y, c->err);
    return c->status == TACIT_OK ? y : NULL;
}

tacit_status op_spell_flex_attention(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *q = n->inputs[0], *k = n->inputs[1], *v = n->inputs[2];
    int64_t heads = q->type.shape.dims[1];
    double scale = ir_attr_float(n, "scale", 1 / sqrt((double)q->type.shape.dims[3]));
    tacit_dtype usual = q->type.dtype == TACIT_F64 ? TACIT_F64 : TACIT_F32;
    tacit_dtype wide =
        ir_dtype_from_onnx(ir_attr_int(n, "softmax_precision", ir_dtype_to_onnx(usual)));
    ir_value *s = op_spell_matmul(c, q, op_diff_swap_last(c, repeated(c, k, heads)));
    s = modified(c, "score_mod", op_diff_cast(c, op_diff_scale(c, s, scale), wide));
    ir_value *p = modified(c, "prob_mod", op_diff1(c, "Softmax", s));
    out[0] = op_spell_matmul(c, op_diff_cast(c, p, q->type.dtype), repeated(c, v, heads));
    return c->status;
}

/* --- GroupQueryAttention ------------------------------------------------------------------------
 */

/* x [B, H, S, D] turned by rows [B, 1, S, half] of the tables; what lies behind 2·half stays. */
static ir_value *rotated(op_diff *c, ir_value *x, ir_value *cosine, ir_value *sine, bool pairs)
{
    if (!x || !cosine || !sine)
        return NULL;
    const int64_t *d = x->type.shape.dims;
    int64_t half = cosine->type.shape.dims[3], axis = pairs ? 4 : 3;
    ir_value *head = op_spell_slice(c, x, 3, 0, 2 * half), *a, *b;
    if (pairs) {
        head = op_spell_shaped(c, head, 5, (int64_t[]){d[0], d[1], d[2], half, 2});
        cosine = op_spell_unsqueeze(c, cosine, 4);
        sine = op_spell_unsqueeze(c, sine, 4);
    }
    a = op_spell_slice(c, head, axis, 0, pairs ? 1 : half);
    b = op_spell_slice(c, head, axis, pairs ? 1 : half, pairs ? 2 : 2 * half);
    ir_value *turned[2] = {op_spell_sub(c, op_spell_mul(c, a, cosine), op_spell_mul(c, b, sine)),
                           op_spell_add(c, op_spell_mul(c, b, cosine), op_spell_mul(c, a, sine))};
    ir_value *y = op_spell_concat(c, 2, turned, axis);
    y = pairs ? op_spell_shaped(c, y, 4, (int64_t[]){d[0], d[1], d[2], 2 * half}) : y;
    if (2 * half == d[3])
        return y;
    ir_value *rest = op_spell_slice(c, x, 3, 2 * half, d[3]);
    return op_spell_concat(c, 2, (ir_value *[]){y, rest}, 3);
}

/* RotaryEmbedding where its tables are differentiated; otherwise its own rule serves. */
tacit_status op_spell_rotary(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    ir_value *x = n->inputs[0], *ids = op_spell_input(c, 3);
    bool flat = x->type.shape.rank == 3;
    if (!c->wanted[1] && !c->wanted[2])
        return TACIT_OK;
    ir_value *table[2];
    for (int i = 0; i < 2; i++) {
        table[i] = ids ? op_spell_gather(c, n->inputs[1 + i], ids, 0) : n->inputs[1 + i];
        table[i] = op_spell_unsqueeze(c, table[i], 1);
    }
    if (flat)
        x = to_heads(c, x, ir_attr_int(n, "num_heads", 1));
    x = rotated(c, x, table[0], table[1], ir_attr_int(n, "interleaved", 0) != 0);
    out[0] = flat ? from_heads(c, x) : x;
    return c->status;
}

/* The batch's own past rows (before first[b]), the new ones right behind them, zeros after. */
static ir_value *grown(op_diff *c, ir_value *past, ir_value *fresh, ir_value *first, int64_t size)
{
    if (!fresh)
        return NULL;
    ir_type type = fresh->type;
    int64_t length = type.shape.dims[2];
    type.shape.dims[2] = size;
    ir_value *base;
    if (past) {
        ir_value *at = counting(c, size, 4, (int64_t[]){1, 1, size, 1});
        ir_value *old = op_diff_cast(c, op_diff2(c, "Less", at, first), type.dtype);
        base = op_spell_padded(c, past, 2, 0, size - past->type.shape.dims[2]);
        base = op_spell_mul(c, base, old);
    } else {
        base = op_diff_zeros(c, &type);
    }
    ir_value *to = counting(c, length, 4, (int64_t[]){1, 1, length, 1});
    to = op_diff_expand(c, op_spell_add(c, to, first), &fresh->type.shape);
    ir_value *in[3] = {base, to, fresh};
    return op_diff_attr_int(c, op_diff_open(c, "ScatterElements", 3, in), "axis", 2);
}

static tacit_status rotate_both(op_diff *c, ir_value *first, ir_value **q, ir_value **k)
{
    const ir_node *n = c->node;
    int64_t batch = (*q)->type.shape.dims[0], length = (*q)->type.shape.dims[2];
    if (!op_spell_input(c, 7) || !op_spell_input(c, 8))
        return op_diff_fail(c, TACIT_ERR_GRAPH, "do_rotary needs cos_cache and sin_cache");
    ir_value *row = op_spell_input(c, 9);
    row =
        row ? op_spell_shaped(c, op_diff_cast(c, row, TACIT_I64), 3, (int64_t[]){batch, 1, length})
            : op_spell_add(c, op_spell_shaped(c, first, 3, (int64_t[]){batch, 1, 1}),
                           counting(c, length, 3, (int64_t[]){1, 1, length}));
    bool pairs = ir_attr_int(n, "rotary_interleaved", 0) != 0;
    ir_value *cosine = op_spell_gather(c, n->inputs[7], row, 0);
    ir_value *sine = op_spell_gather(c, n->inputs[8], row, 0);
    *q = rotated(c, *q, cosine, sine, pairs);
    *k = rotated(c, *k, cosine, sine, pairs);
    return c->status;
}

tacit_status op_spell_gqa(op_diff *c, ir_value **out)
{
    const ir_node *n = c->node;
    int64_t heads = ir_attr_int(n, "num_heads", 1), kv = ir_attr_int(n, "kv_num_heads", 1);
    ir_value *x = n->inputs[0], *past = op_spell_input(c, 3);
    const ir_tensor *total = ir_value_known(n->inputs[6]);
    if (!total)
        return op_diff_fail(c, TACIT_ERR_UNSUPPORTED,
                            "its gradient needs total_sequence_length known when compiling");
    int64_t wanted = ir_load_i64(total->dtype, total->data, 0);
    int64_t before = past ? past->type.shape.dims[2] : 0, sk = wanted > before ? wanted : before;
    int64_t batch = x->type.shape.dims[0], length = x->type.shape.dims[1];
    scores a = {.sink = op_spell_input(c, 11), .cap = ir_attr_float(n, "softcap", 0)};
    if (n->inputs[1]) {
        a.q = to_heads(c, x, heads);
        a.k = to_heads(c, n->inputs[1], kv);
        a.v = to_heads(c, n->inputs[2], kv);
    } else {
        ir_value *all = to_heads(c, x, heads + 2 * kv);
        a.q = op_spell_slice(c, all, 1, 0, heads);
        a.k = op_spell_slice(c, all, 1, heads, heads + kv);
        a.v = op_spell_slice(c, all, 1, heads + kv, heads + 2 * kv);
    }
    if (!a.q || !a.k || !a.v)
        return c->status;
    ir_value *keys = op_spell_shift(c, op_diff_cast(c, n->inputs[5], TACIT_I64), 1);
    ir_value *first =
        wanted == length ? op_diff_scale(c, keys, 0) : op_spell_shift(c, keys, -(double)length);
    first = op_spell_shaped(c, first, 4, (int64_t[]){batch, 1, 1, 1});
    if (ir_attr_int(n, "do_rotary", 0))
        TRY(rotate_both(c, first, &a.q, &a.k));
    a.k = grown(c, past, a.k, first, sk);
    a.v = grown(c, op_spell_input(c, 4), a.v, first, sk);
    double scale = ir_attr_float(n, "scale", 0);
    a.scale = scale != 0 ? scale : 1 / sqrt((double)a.q->type.shape.dims[3]);
    if (!a.sink && ir_attr_int(n, "smooth_softmax", 0) > 0) {
        ir_type zero = ir_type_tensor(x->type.dtype, 1, &heads);
        a.sink = op_diff_zeros(c, &zero);
    }
    set_mask(c, op_spell_input(c, 10), sk, &a);
    a.visible =
        both(c, a.visible, causal(c, length, sk, first, ir_attr_int(n, "local_window_size", -1)));
    a.visible = both(c, a.visible, valid(c, keys, batch, sk));
    out[0] = from_heads(c, attend(c, &a));
    if (n->n_outputs > 1)
        out[1] = a.k;
    if (n->n_outputs > 2)
        out[2] = a.v;
    return c->status;
}
