/* SPDX-License-Identifier: Apache-2.0
 * Attention in all its spellings ends as one tacit.Attention: ONNX's Attention op, and
 * softmax(Q·Kᵀ·scale + mask)·V with the softmax as one op or by hand. Q, K and V of other layouts
 * are presented through views, so the rewrite never adds a copy. */
#include <math.h>

#include "pass/epilogue.h"
#include "pass/recognise.h"

enum { MASKS = 2 }; /* one of causality and one of padding, say */

/* Q, K or V as it lies in the graph, and as the rank 4 that attention reads. */
typedef struct operand {
    ir_value *value;
    bool swapped;    /* its last two axes are the other way round */
    int64_t heads;   /* not 0: it is [B,S,heads·D] */
    int64_t dims[4]; /* B, H, S, D */
} operand;

typedef struct attention {
    ir_node *root; /* the second product */
    operand q, k, v;
    ir_value *masks[MASKS]; /* boolean or additive */
    double fills[MASKS];    /* what a boolean mask hides with; 0 for an additive one */
    uint32_t n_masks;
    ir_value *out;
    double scale, softcap;
    bool causal;
    bool guarded; /* rows hidden in full become zero */
    int64_t offset, window;
    pass_set nodes;
    const char *why; /* it did not match after all */
} attention;

/* --- views ------------------------------------------------------------------------------------ */
static tacit_status reshape(pass_edit *e, const char *name, ir_value *x, int32_t rank,
                            const int64_t *dims, ir_value **out)
{
    tacit_status status = TACIT_OK;
    ir_value *shape = ir_constant_i64(e->g, NULL, 1, rank, dims);
    if (!shape)
        return error_memory(e->c->err, "a shape");
    ir_attr zero = {.name = "allowzero", .kind = IR_ATTR_INT, .i = 1}; /* a 0 is a size here */
    ir_node *n = pass_node(e, PASS_RESHAPE, name, 2, (ir_value *[]){x, shape},
                           pass_has_zero(rank, dims), &zero, &status);
    *out = n ? n->outputs[0] : NULL;
    return status;
}

static tacit_status transpose(pass_edit *e, const char *name, ir_value *x, const int64_t *perm,
                              ir_value **out)
{
    tacit_status status = TACIT_OK;
    ir_attr a = {
        .name = "perm", .kind = IR_ATTR_INTS, .count = (uint32_t)x->type.shape.rank, .ints = perm};
    ir_node *n = pass_node(e, PASS_TRANSPOSE, name, 1, &x, 1, &a, &status);
    *out = n ? n->outputs[0] : NULL;
    return status;
}

/* Rank 4 by leading ones: [S,D] and [BH,S,D] are attention too. */
static tacit_status to_rank_4(pass_edit *e, ir_value **x)
{
    int64_t dims[4] = {1, 1, 1, 1};
    int32_t rank = (*x)->type.shape.rank;
    if (rank == 4)
        return TACIT_OK;
    for (int32_t i = 0; i < rank; i++)
        dims[4 - rank + i] = (*x)->type.shape.dims[i];
    return reshape(e, (*x)->name, *x, 4, dims, x);
}

static bool operand_set(operand *o, ir_value *value, bool swapped, int64_t heads)
{
    const ir_shape *s = &value->type.shape;
    *o = (operand){.value = value, .swapped = swapped, .heads = heads, .dims = {1, 1, 1, 1}};
    if (heads) {
        if (s->rank != 3 || s->dims[2] % heads)
            return false;
        memcpy(o->dims, (int64_t[]){s->dims[0], heads, s->dims[1], s->dims[2] / heads},
               sizeof o->dims);
        return true;
    }
    if (s->rank < 2 || s->rank > 4)
        return false;
    for (int32_t i = 0; i < s->rank; i++)
        o->dims[4 - s->rank + i] = s->dims[i];
    if (swapped) {
        int64_t last = o->dims[3];
        o->dims[3] = o->dims[2];
        o->dims[2] = last;
    }
    return true;
}

/* The views that make it rank 4, [B,H,S,D]. */
static tacit_status operand_view(pass_edit *e, const operand *o, ir_value **out)
{
    *out = o->value;
    if (o->heads) {
        int64_t dims[4] = {o->dims[0], o->dims[2], o->dims[1], o->dims[3]};
        TRY(reshape(e, o->value->name, *out, 4, dims, out));
        return transpose(e, o->value->name, *out, (int64_t[]){0, 2, 1, 3}, out);
    }
    TRY(to_rank_4(e, out));
    return o->swapped ? transpose(e, o->value->name, *out, (int64_t[]){0, 1, 3, 2}, out) : TACIT_OK;
}

/* --- matching softmax(Q·Kᵀ…)·V -----------------------------------------------------------------
 */

/* A constant that stands for "never": minus infinity or a large negative number. */
static bool is_large_negative(const ir_value *v)
{
    double x;
    return pass_scalar(v, &x) && x <= -1e4;
}

/* Does every row of the known mask admit some key? Then what hides a row in full cannot be seen. */
static bool every_row_open(const ir_value *v)
{
    const ir_tensor *t = ir_value_known(v);
    if (!t || t->shape.rank < 1)
        return false;
    int64_t width = t->shape.dims[t->shape.rank - 1], count = ir_tensor_count(t);
    for (int64_t row = 0; row < count; row += width) {
        bool open = false;
        for (int64_t i = row; i < row + width && !open; i++)
            open = t->dtype == TACIT_BOOL ? ((const uint8_t *)t->data)[i] != 0
                                          : ir_load_f64(t->dtype, t->data, i) > -1e4;
        if (!open)
            return false;
    }
    return count > 0;
}

static bool add_mask(attention *a, ir_value *mask, double fill)
{
    if (a->n_masks == MASKS || !pass_static(mask))
        return false;
    a->masks[a->n_masks] = mask;
    a->fills[a->n_masks++] = fill;
    return true;
}

/* Where(condition, scores, fill): the condition is a mask of keys to keep. A row hidden in full
 * shows its fill: minus infinity does the same in attention; a fill so low that adding a score
 * does not change it can be added; any other must be known never to show. */
static bool peel_where(attention *a, const ir_node *n, ir_value **scores)
{
    double fill;
    if (!is_large_negative(n->inputs[2]) || !pass_scalar(n->inputs[2], &fill))
        return false;
    if (every_row_open(n->inputs[0])) {
        fill = -INFINITY;
    } else if (fill > -1e30) {
        a->why = "a row masked in full would show the finite fill of its Where";
        return false;
    }
    *scores = n->inputs[1];
    return add_mask(a, n->inputs[0], fill);
}

static bool leads_to_scores(const pass_edit *e, const ir_value *v)
{
    for (int depth = 0; depth < 8 && v && v->producer; depth++) {
        const ir_node *n = v->producer;
        if (pass_is(e, n, PASS_MATMUL) || pass_is(e, n, PASS_T_MATMUL))
            return true;
        if (pass_is(e, n, PASS_WHERE))
            v = n->inputs[1];
        else if (pass_is(e, n, PASS_MUL) || pass_is(e, n, PASS_DIV) || pass_is(e, n, PASS_TANH))
            v = ir_value_known(n->inputs[0]) ? n->inputs[1] : n->inputs[0];
        else if (pass_is(e, n, PASS_ADD))
            v = leads_to_scores(e, n->inputs[0]) ? n->inputs[0] : n->inputs[1];
        else
            return false;
    }
    return false;
}

/* Add(scores, mask) in either order. */
static bool peel_add(const pass_edit *e, attention *a, const ir_node *n, ir_value **scores)
{
    uint32_t side =
        leads_to_scores(e, n->inputs[0]) && pass_same_shape(n->inputs[0], n->outputs[0]) ? 0 : 1;
    if (!leads_to_scores(e, n->inputs[side]))
        return false;
    *scores = n->inputs[side];
    return add_mask(a, n->inputs[1 - side], 0);
}

/* softcap·tanh(scores / softcap) */
static bool peel_softcap(const pass_edit *e, attention *a, ir_node *n, double c, ir_value *x,
                         ir_value **scores)
{
    ir_node *tanh_node = pass_from(e, x, PASS_TANH);
    double d;
    ir_value *inner;
    if (!tanh_node || a->softcap != 0 || a->scale != 1)
        return false;
    ir_node *pre = tanh_node->inputs[0]->producer;
    pass_product p;
    pass_set_add(&a->nodes, tanh_node);
    if (pass_with_scalar(e, pre, PASS_DIV, &inner, &d) && fabs(d - c) <= 1e-6 * c) {
        pass_set_add(&a->nodes, pre);
        *scores = inner;
    } else if (pass_with_scalar(e, pre, PASS_MUL, &inner, &d) && fabs(d * c - 1) <= 1e-6) {
        pass_set_add(&a->nodes, pre);
        *scores = inner;
    } else if (pass_product_read(e, pre, &p)) {
        a->scale *= c; /* the division went into the product's alpha */
        *scores = tanh_node->inputs[0];
    } else {
        return false;
    }
    (void)n;
    a->softcap = c;
    return true;
}

/* One step from the softmax's argument towards the first product; false when it is none we know. */
static bool peel(const pass_edit *e, attention *a, ir_value **scores)
{
    ir_node *n = (*scores)->producer;
    ir_value *x;
    double c;
    if (!n)
        return false;
    pass_set_add(&a->nodes, n);
    if (pass_is(e, n, PASS_WHERE))
        return peel_where(a, n, scores);
    if (pass_with_scalar(e, n, PASS_MUL, &x, &c)) {
        if (peel_softcap(e, a, n, c, x, scores))
            return true;
        if (pass_from(e, x, PASS_ADD) || pass_from(e, x, PASS_WHERE))
            return false; /* the mask is scaled too */
        a->scale *= c;
        *scores = x;
        return true;
    }
    if (pass_with_scalar(e, n, PASS_DIV, &x, &c) && c != 0) {
        if (pass_from(e, x, PASS_ADD) || pass_from(e, x, PASS_WHERE))
            return false;
        a->scale /= c;
        *scores = x;
        return true;
    }
    return pass_is(e, n, PASS_ADD) && peel_add(e, a, n, scores);
}

/* K or V repeated over groups of heads: Reshape(Expand(Unsqueeze(x))) gives x. */
static ir_value *peel_repeat(const pass_edit *e, ir_value *v)
{
    ir_node *outer = pass_from(e, v, PASS_RESHAPE);
    ir_node *expand = outer ? pass_from(e, outer->inputs[0], PASS_EXPAND) : NULL;
    ir_node *inner = expand ? expand->inputs[0]->producer : NULL;
    if (!inner || !(pass_is(e, inner, PASS_UNSQUEEZE) || pass_is(e, inner, PASS_RESHAPE)))
        return v;
    ir_value *x = inner->inputs[0];
    if (!pass_static(x) || x->type.shape.rank != 4 || v->type.shape.rank != 4)
        return v;
    const int64_t *xs = x->type.shape.dims, *vs = v->type.shape.dims;
    const ir_shape *wide = &expand->outputs[0]->type.shape, *thin = &inner->outputs[0]->type.shape;
    bool grouped = wide->rank == 5 && thin->rank == 5 && thin->dims[2] == 1 &&
                   thin->dims[0] == xs[0] && thin->dims[1] == xs[1] && wide->dims[0] == xs[0] &&
                   wide->dims[1] == xs[1] && wide->dims[1] * wide->dims[2] == vs[1] &&
                   vs[0] == xs[0] && vs[2] == xs[2] && vs[3] == xs[3];
    return grouped ? x : v;
}

/* Q, K, V, batch, heads and mask fit one attention; otherwise says why not. */
static const char *misfit(const attention *a)
{
    const int64_t *q = a->q.dims, *k = a->k.dims, *v = a->v.dims;
    if (q[0] != k[0] || k[0] != v[0] || k[1] != v[1] || k[1] < 1 || q[1] % k[1] || k[2] != v[2] ||
        q[3] != k[3])
        return "batch, heads or sizes of Q, K and V differ";
    int64_t full[4] = {q[0], q[1], q[2], k[2]};
    for (uint32_t j = 0; j < a->n_masks; j++) {
        const ir_type *m = &a->masks[j]->type;
        bool fits =
            m->shape.rank <= 4 && (m->dtype == TACIT_BOOL || m->dtype == a->q.value->type.dtype);
        for (int32_t i = 0; fits && i < m->shape.rank; i++)
            fits = m->shape.dims[i] == 1 || m->shape.dims[i] == full[4 - m->shape.rank + i];
        if (!fits)
            return "the mask does not broadcast over batch, heads, queries and keys";
    }
    return NULL;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* A scalar of the operands' type. */
static ir_value *scalar(pass_edit *e, const attention *a, double x)
{
    ir_tensor *t = ir_tensor_new(e->g->memory, a->q.value->type.dtype, &(ir_shape){.rank = 0});
    if (!t)
        return NULL;
    ir_store_f64(t->dtype, t->data, 0, x);
    return ir_constant_new(e->g, NULL, t);
}

/* Of two masks, those that are bands become attributes. */
static void take_bands(attention *a)
{
    uint32_t kept = 0, n = a->n_masks;
    for (uint32_t i = 0; i < n; i++) {
        pass_band band;
        bool taken =
            n > 1 && !a->causal && pass_match_band(a->masks[i], a->q.dims[2], a->k.dims[2], &band);
        if (taken && !band.all_open) {
            a->causal = true;
            a->offset = band.offset;
            a->window = band.window;
        }
        if (taken)
            continue;
        a->masks[kept] = a->masks[i];
        a->fills[kept++] = a->fills[i];
    }
    a->n_masks = kept;
}

/* Where(mask, 0, fill): a boolean mask as one that is added. */
static tacit_status additive(pass_edit *e, const attention *a, uint32_t i, ir_value **out)
{
    *out = a->masks[i];
    if (a->masks[i]->type.dtype != TACIT_BOOL)
        return TACIT_OK;
    tacit_status status = TACIT_OK;
    ir_value *in[3] = {a->masks[i], scalar(e, a, 0), scalar(e, a, a->fills[i])};
    if (!in[1] || !in[2])
        return error_memory(e->c->err, "a mask");
    ir_node *n = pass_node(e, PASS_WHERE, a->masks[i]->name, 3, in, 0, NULL, &status);
    *out = n ? n->outputs[0] : NULL;
    return status;
}

/* One mask of rank 4 out of what there is, or NULL. */
static tacit_status join_masks(pass_edit *e, attention *a, ir_value **mask)
{
    *mask = NULL;
    take_bands(a);
    if (a->n_masks == 0)
        return TACIT_OK;
    *mask = a->masks[0];
    if (a->n_masks == 1 && isinf(a->fills[0]))
        return to_rank_4(e, mask);
    TRY(additive(e, a, 0, mask));
    if (a->n_masks == 2) {
        tacit_status status = TACIT_OK;
        ir_value *in[2] = {*mask, NULL};
        TRY(additive(e, a, 1, &in[1]));
        ir_node *n = pass_node(e, PASS_ADD, a->root->name, 2, in, 0, NULL, &status);
        if (!n)
            return status;
        *mask = n->outputs[0];
    }
    return to_rank_4(e, mask);
}

/* A following [B,H,S,D] → [B,S,H,D] transpose is only another way to store the result. */
static ir_node *merge_transpose(const pass_edit *e, const attention *a)
{
    static const int64_t wanted[4] = {0, 2, 1, 3};
    int64_t perm[IR_MAX_RANK];
    ir_node *t = pass_only_user(e, a->out);
    if (!pass_is(e, t, PASS_TRANSPOSE) || !pass_permutation(t, perm))
        return NULL;
    return memcmp(perm, wanted, sizeof wanted) == 0 ? t : NULL;
}

/* The result is not [B,H,S,D]: attention, then the reshape that takes the root's place. */
static tacit_status write_reshaped(pass_edit *e, const attention *a, const pass_fusion *fused)
{
    tacit_status status = TACIT_OK;
    const ir_shape *shape = &a->out->type.shape;
    ir_node *n = pass_node(e, PASS_T_ATTENTION, a->root->name, fused->n_inputs, fused->inputs,
                           fused->n_attrs, fused->attrs, &status);
    if (!n)
        return status;
    ir_value *dims = ir_constant_i64(e->g, NULL, 1, shape->rank, shape->dims);
    if (!dims)
        return error_memory(e->c->err, "a shape");
    pass_fusion f = {.op = PASS_RESHAPE,
                     .root = a->root,
                     .nodes = a->nodes,
                     .n_inputs = 2,
                     .n_outputs = 1,
                     .inputs = {n->outputs[0], dims},
                     .outputs = {a->out},
                     .n_attrs = pass_has_zero(shape->rank, shape->dims),
                     .attrs = {{.name = "allowzero", .kind = IR_ATTR_INT, .i = 1}}};
    TRY(pass_fuse(e, &f));
    if (f.made)
        ir_node_inherit_notes(e->g, n, f.made);
    return TACIT_OK;
}

static tacit_status write_attention(pass_edit *e, attention *a)
{
    pass_fusion f = {.op = PASS_T_ATTENTION, .root = a->root, .nodes = a->nodes, .n_outputs = 1};
    TRY(operand_view(e, &a->q, &f.inputs[0]));
    TRY(operand_view(e, &a->k, &f.inputs[1]));
    TRY(operand_view(e, &a->v, &f.inputs[2]));
    TRY(join_masks(e, a, &f.inputs[3]));
    f.n_inputs = f.inputs[3] ? 4 : 3;
    f.outputs[0] = a->out;
    pass_fusion_float(&f, "scale", a->scale);
    if (a->causal)
        pass_fusion_int(&f, "causal", 1);
    if (a->offset)
        pass_fusion_int(&f, "causal_offset", a->offset);
    if (a->window)
        pass_fusion_int(&f, "window", a->window);
    if (a->softcap != 0)
        pass_fusion_float(&f, "softcap", a->softcap);
    ir_node *t = a->q.value->type.shape.rank == 4 ? merge_transpose(e, a) : NULL;
    if (t) {
        pass_set_add(&f.nodes, t);
        f.outputs[0] = t->outputs[0];
    }
    if (t || a->q.heads)
        pass_fusion_string(&f, "out_layout", "bshd");
    return a->q.value->type.shape.rank == 4 ? pass_fuse(e, &f) : write_reshaped(e, a, &f);
}

/* From the softmax's argument down to the product of Q and K. */
static bool peel_scores(const pass_edit *e, attention *a, ir_value *scores)
{
    pass_product p;
    while (!pass_product_read(e, scores->producer, &p))
        if (!peel(e, a, &scores)) {
            if (!a->why)
                a->why = "the softmax's argument is not a scaled and masked product";
            return false;
        }
    pass_set_add(&a->nodes, scores->producer);
    if (!pass_epilogue_is_empty(&p.tail)) {
        a->why = "the product of Q and K does more than multiply";
        return false;
    }
    a->scale *= p.alpha;
    ir_value *k = p.trans_b ? peel_repeat(e, p.b) : p.b;
    if (!operand_set(&a->q, p.a, p.trans_a, 0) || !operand_set(&a->k, k, !p.trans_b, 0))
        a->why = "Q and K are not of rank 2 to 4";
    return !a->why;
}

/* Exporters guard rows that are hidden in full: Where(IsNaN(p), 0, p). Gives p, or `v` itself. */
static ir_value *peel_guard(const pass_edit *e, ir_value *v, attention *a)
{
    ir_node *where = pass_from(e, v, PASS_WHERE);
    ir_node *test = where ? pass_from(e, where->inputs[0], PASS_IS_NAN) : NULL;
    if (!test || !pass_scalar_is(where->inputs[1], 0) || where->inputs[2] != test->inputs[0])
        return v;
    a->guarded = true;
    pass_set_add(&a->nodes, where);
    pass_set_add(&a->nodes, test);
    return test->inputs[0];
}

/* The guard has nothing to do: at most one mask, and it hides no row in full. */
static bool guard_is_idle(const attention *a)
{
    return a->n_masks == 0 || (a->n_masks == 1 && every_row_open(a->masks[0]));
}

static tacit_status fuse_products(pass_edit *e, ir_node *n)
{
    pass_product second;
    attention a = {.root = n, .out = n->outputs[0], .scale = 1};
    ir_value *scores;
    int32_t axis;
    if (!pass_product_read(e, n, &second) ||
        !pass_match_softmax(e, peel_guard(e, second.a, &a), &scores, &axis, &a.nodes) || axis != 1)
        return TACIT_OK;
    pass_set_add(&a.nodes, n);
    if (!pass_epilogue_is_empty(&second.tail) || second.trans_a || second.alpha != 1)
        a.why = "the product with V does more than multiply";
    ir_value *v = second.trans_b ? second.b : peel_repeat(e, second.b);
    if (!a.why && peel_scores(e, &a, scores))
        a.why = operand_set(&a.v, v, second.trans_b, 0) ? misfit(&a) : "V is not of rank 2 to 4";
    if (!a.why && a.guarded && !guard_is_idle(&a))
        a.why = "rows that the mask may hide in full are set to zero";
    if (a.why) {
        pass_near_miss(e, n, "not fused: %s", a.why);
        return TACIT_OK;
    }
    if (a.q.value->type.shape.rank != n->outputs[0]->type.shape.rank ||
        !pass_set_closed(e, &a.nodes, n, 1, &a.out))
        return TACIT_OK;
    return write_attention(e, &a);
}

/* --- the ONNX op ------------------------------------------------------------------------------ */
static bool plain_onnx_attention(const ir_node *n)
{
    for (uint32_t k = 1; k < n->n_outputs; k++)
        if (n->outputs[k])
            return false; /* somebody wants the cache or the scores */
    for (uint32_t k = 4; k < n->n_inputs; k++)
        if (n->inputs[k])
            return false;
    for (uint32_t k = 0; k < 3; k++)
        if (!pass_float(n->inputs[k]) || n->inputs[k]->type.dtype != n->inputs[0]->type.dtype)
            return false;
    return n->outputs[0] && pass_static(n->outputs[0]);
}

static tacit_status fuse_onnx(pass_edit *e, ir_node *n)
{
    attention a = {.root = n, .out = n->outputs[0], .nodes = {.nodes = {n}, .count = 1}};
    bool flat = n->inputs[0]->type.shape.rank == 3;
    int64_t heads = flat ? ir_attr_int(n, "q_num_heads", 0) : 0;
    int64_t kv_heads = flat ? ir_attr_int(n, "kv_num_heads", 0) : 0;
    if (flat && (heads < 1 || kv_heads < 1))
        return TACIT_OK;
    if (!operand_set(&a.q, n->inputs[0], false, heads) ||
        !operand_set(&a.k, n->inputs[1], false, kv_heads) ||
        !operand_set(&a.v, n->inputs[2], false, kv_heads))
        return TACIT_OK;
    if (n->n_inputs > 3 && n->inputs[3] &&
        !add_mask(&a, n->inputs[3], n->inputs[3]->type.dtype == TACIT_BOOL ? -INFINITY : 0))
        return TACIT_OK;
    a.causal = ir_attr_int(n, "is_causal", 0) != 0;
    a.softcap = ir_attr_float(n, "softcap", 0);
    a.scale = ir_attr_float(n, "scale", 0);
    if (a.scale == 0)
        a.scale = 1 / sqrt((double)a.q.dims[3]);
    a.why = misfit(&a);
    if (a.why) {
        pass_near_miss(e, n, "not fused: %s", a.why);
        return TACIT_OK;
    }
    return write_attention(e, &a);
}

static tacit_status fuse_any(pass_edit *e, ir_node *n)
{
    return pass_is(e, n, PASS_ATTENTION) && plain_onnx_attention(n) ? fuse_onnx(e, n)
                                                                    : fuse_products(e, n);
}

tacit_status pass_fuse_attention(pass_context *c)
{
    return pass_each(c, PASS_T_ATTENTION, fuse_any);
}
