/* SPDX-License-Identifier: Apache-2.0
 * Rotary embeddings spelled out. x is cut into two parts x₁, x₂ (halves, or even and odd elements)
 * which are turned by an angle: x₁·cos − x₂·sin and x₂·cos + x₁·sin. Four spellings are known:
 *   x·cos + concat(−x₂, x₁)·sin            tables as wide as x (Llama; GPT-J with interleaving)
 *   concat(x₁·cos − x₂·sin, x₂·cos + x₁·sin)  tables of half the width
 * each with halves, or with pairs interleaved by Unsqueeze, Concat, Reshape. */
#include "pass/edit.h"

typedef enum part { WHOLE, LOW, HIGH, EVEN, ODD } part;

typedef struct rotary {
    ir_node *root;
    ir_value *x, *out;
    ir_value *cosine, *sine; /* as the graph has them */
    bool wide;               /* tables as wide as x, each value twice */
    bool interleaved;
    bool bshd; /* x is [B,S,H,D], not [B,H,S,D] */
    pass_set nodes;
} rotary;

/* Which part of which value `v` is. The slicing node is not swallowed: the parts may be shared. */
static part part_of(const pass_edit *e, const ir_value *v, ir_value **x)
{
    ir_node *n = v->producer;
    int64_t start[1], end[1], axis[1], step[1] = {1};
    uint32_t count;
    if (pass_is(e, n, PASS_SPLIT) && pass_static(n->inputs[0])) {
        int64_t a = ir_attr_int(n, "axis", 0);
        bool last = a == -1 || a == n->inputs[0]->type.shape.rank - 1;
        *x = n->inputs[0];
        return last && n->n_outputs == 2 && 2 * pass_dim(v, 1) == pass_dim(*x, 1)
                   ? v->output_index ? HIGH : LOW
                   : WHOLE;
    }
    if (!pass_is(e, n, PASS_SLICE) || n->n_inputs < 4 || !pass_static(n->inputs[0]) ||
        !pass_ints(n->inputs[1], start, 1, &count) || !pass_ints(n->inputs[2], end, 1, &count) ||
        !pass_ints(n->inputs[3], axis, 1, &count) || count != 1 ||
        (n->n_inputs > 4 && n->inputs[4] && !pass_ints(n->inputs[4], step, 1, &count)))
        return WHOLE;
    *x = n->inputs[0];
    int64_t width = pass_dim(*x, 1), half = width / 2;
    if ((axis[0] != -1 && axis[0] != (*x)->type.shape.rank - 1) || 2 * half != width ||
        pass_dim(v, 1) != half)
        return WHOLE;
    if (step[0] == 2)
        return start[0] == 0 ? EVEN : start[0] == 1 ? ODD : WHOLE;
    if (step[0] != 1)
        return WHOLE;
    return start[0] == 0 ? LOW : start[0] == half || start[0] == -half ? HIGH : WHOLE;
}

/* `first` and `second` are the two parts of one value. */
static bool parts_of_one(const pass_edit *e, const ir_value *first, const ir_value *second,
                         rotary *r)
{
    ir_value *a = NULL, *b = NULL;
    part p = part_of(e, first, &a), q = part_of(e, second, &b);
    r->interleaved = p == EVEN;
    r->x = a;
    return ((p == LOW && q == HIGH) || (p == EVEN && q == ODD)) && a == b;
}

/* The two values that `v` puts together, side by side or element by element. */
static bool joined(const pass_edit *e, const ir_value *v, ir_value **first, ir_value **second,
                   bool *interleaved, pass_set *s)
{
    ir_node *reshape = pass_from(e, v, PASS_RESHAPE);
    ir_node *concat = pass_from(e, reshape ? reshape->inputs[0] : v, PASS_CONCAT);
    if (!concat || concat->n_inputs != 2 || !pass_static(concat->outputs[0]) || !pass_static(v))
        return false;
    int32_t rank = concat->outputs[0]->type.shape.rank;
    int64_t axis = ir_attr_int(concat, "axis", 0);
    if (axis != -1 && axis != rank - 1)
        return false;
    pass_set_add(s, concat);
    *first = concat->inputs[0];
    *second = concat->inputs[1];
    *interleaved = reshape != NULL;
    if (!reshape)
        return true;
    pass_set_add(s, reshape);
    for (uint32_t k = 0; k < 2; k++) { /* [..., D/2, 1] of [..., D/2] */
        ir_node *u = concat->inputs[k]->producer;
        if (!(pass_is(e, u, PASS_UNSQUEEZE) || pass_is(e, u, PASS_RESHAPE)) ||
            pass_dim(concat->inputs[k], 1) != 1 || !pass_static(u->inputs[0]) ||
            u->inputs[0]->type.shape.rank != rank - 1 ||
            pass_dim(u->inputs[0], 1) != pass_dim(concat->inputs[k], 2))
            return false;
        pass_set_add(s, u);
        *(k ? second : first) = u->inputs[0];
    }
    return v->type.shape.rank == rank - 1 && pass_dim(v, 1) == 2 * pass_dim(*first, 1);
}

/* n = a·t: gives t. */
static ir_value *factor(const pass_edit *e, ir_value *product, const ir_value *a, pass_set *s)
{
    ir_node *n = pass_from(e, product, PASS_MUL);
    ir_value *t = n ? pass_other(n, a) : NULL;
    if (t)
        pass_set_add(s, n);
    return t;
}

/* x·cos + joined(−x₂, x₁)·sin */
static bool match_wide(const pass_edit *e, ir_node *add, rotary *r)
{
    for (uint32_t k = 0; k < 2; k++) {
        rotary m = {.root = add, .out = add->outputs[0], .wide = true};
        ir_node *turned = pass_from(e, add->inputs[k], PASS_MUL);
        for (uint32_t j = 0; turned && j < 2; j++) {
            ir_value *first, *second;
            bool interleaved;
            m.nodes = (pass_set){.nodes = {add, turned}, .count = 2};
            if (!joined(e, turned->inputs[j], &first, &second, &interleaved, &m.nodes))
                continue;
            ir_node *neg = pass_from(e, first, PASS_NEG);
            if (!neg || !parts_of_one(e, second, neg->inputs[0], &m) ||
                m.interleaved != interleaved)
                continue;
            pass_set_add(&m.nodes, neg);
            m.sine = turned->inputs[1 - j];
            m.cosine = factor(e, add->inputs[1 - k], m.x, &m.nodes);
            if (m.cosine) {
                *r = m;
                return true;
            }
        }
    }
    return false;
}

/* y = a·t₁ ± b·t₂ with the first factors given: gives t₁ and t₂. */
static bool combination(const pass_edit *e, ir_value *y, pass_op op, const ir_value *a,
                        const ir_value *b, ir_value **ta, ir_value **tb, pass_set *s)
{
    ir_node *n = pass_from(e, y, op);
    for (uint32_t k = 0; n && k < (op == PASS_ADD ? 2u : 1u); k++) {
        *ta = factor(e, n->inputs[k], a, s);
        *tb = factor(e, n->inputs[1 - k], b, s);
        if (*ta && *tb) {
            pass_set_add(s, n);
            return true;
        }
    }
    return false;
}

/* joined(x₁·cos − x₂·sin, x₂·cos + x₁·sin) */
static bool match_halves(const pass_edit *e, ir_node *root, rotary *r)
{
    rotary m = {.root = root, .out = root->outputs[0]};
    ir_value *first, *second, *c, *s;
    bool interleaved;
    pass_set_add(&m.nodes, root);
    if (!joined(e, m.out, &first, &second, &interleaved, &m.nodes))
        return false;
    ir_node *sub = pass_from(e, first, PASS_SUB);
    ir_node *left = sub ? pass_from(e, sub->inputs[0], PASS_MUL) : NULL;
    ir_node *right = sub ? pass_from(e, sub->inputs[1], PASS_MUL) : NULL;
    for (uint32_t k = 0; left && right && k < 4; k++) {
        ir_value *x1 = left->inputs[k & 1], *x2 = right->inputs[k >> 1];
        rotary t = m;
        if (!parts_of_one(e, x1, x2, &t) || t.interleaved != interleaved)
            continue;
        if (!combination(e, first, PASS_SUB, x1, x2, &t.cosine, &t.sine, &t.nodes) ||
            !combination(e, second, PASS_ADD, x2, x1, &c, &s, &t.nodes) || c != t.cosine ||
            s != t.sine)
            continue;
        *r = t;
        return true;
    }
    return false;
}

/* --- the tables --------------------------------------------------------------------------------
 */

/* Every row of the known table holds each value twice, half a row or one element apart. */
static bool known_twice(const ir_tensor *t, bool interleaved)
{
    int64_t width = t->shape.dims[t->shape.rank - 1], count = ir_tensor_count(t);
    for (int64_t row = 0; row < count; row += width)
        for (int64_t i = 0; i < width / 2; i++) {
            int64_t a = row + (interleaved ? 2 * i : i), b = interleaved ? a + 1 : a + width / 2;
            if (ir_load_f64(t->dtype, t->data, a) != ir_load_f64(t->dtype, t->data, b))
                return false;
        }
    return true;
}

/* The same by construction, for tables that are computed: concat(f, f) under element-wise ops and
 * gathers of rows. */
static bool holds_twice(const pass_edit *e, const ir_value *v, bool interleaved)
{
    for (int depth = 0; depth < 12; depth++) {
        const ir_tensor *t = ir_value_known(v);
        if (!pass_static(v) || v->type.shape.rank < 1)
            return false;
        if (t)
            return known_twice(t, interleaved);
        ir_node *n = v->producer;
        if (!n || !n->op || !pass_static(n->inputs[0]) || n->inputs[0]->type.shape.rank < 1)
            return false;
        int64_t axis = ir_attr_int(n, "axis", 0);
        bool same_width = pass_dim(n->inputs[0], 1) == pass_dim(v, 1);
        if (pass_is(e, n, PASS_CONCAT) && n->n_inputs == 2 && n->inputs[0] == n->inputs[1] &&
            !interleaved)
            return axis == -1 || axis == v->type.shape.rank - 1;
        ir_value *x;
        double c;
        if (pass_is(e, n, PASS_COS) || pass_is(e, n, PASS_SIN) || pass_is(e, n, PASS_CAST))
            v = n->inputs[0];
        else if (pass_with_scalar(e, n, PASS_MUL, &x, &c))
            v = x;
        else if ((pass_is(e, n, PASS_UNSQUEEZE) || pass_is(e, n, PASS_RESHAPE)) && same_width)
            v = n->inputs[0];
        else if (pass_is(e, n, PASS_GATHER) && axis == 0 && n->inputs[0]->type.shape.rank > 1)
            v = n->inputs[0];
        else
            return false;
    }
    return false;
}

/* Where batch and position of a table lie: it must broadcast over the heads. */
static bool table_fits(const rotary *r, const ir_value *v, bool bshd, int64_t *batch)
{
    const ir_shape *x = &r->x->type.shape, *t = &v->type.shape;
    int64_t d[4] = {1, 1, 1, 1};
    if (!pass_static(v) || t->rank > 4 || t->rank < 2 || v->type.dtype != r->x->type.dtype)
        return false;
    for (int32_t i = 0; i < t->rank; i++)
        d[4 - t->rank + i] = t->dims[i];
    int64_t position = d[bshd ? 1 : 2], head = d[bshd ? 2 : 1];
    *batch = d[0];
    return head == 1 && position == x->dims[bshd ? 1 : 2] && (d[0] == 1 || d[0] == x->dims[0]) &&
           d[3] == (r->wide ? x->dims[3] : x->dims[3] / 2);
}

static tacit_status reshape(pass_edit *e, ir_value *x, int32_t rank, const int64_t *dims,
                            ir_value **out)
{
    tacit_status status = TACIT_OK;
    ir_value *shape = ir_constant_i64(e->g, NULL, 1, rank, dims);
    if (!shape)
        return error_memory(e->c->err, "a shape");
    ir_attr zero = {.name = "allowzero", .kind = IR_ATTR_INT, .i = 1}; /* a 0 is a size here */
    ir_node *n = pass_node(e, PASS_RESHAPE, x->name, 2, (ir_value *[]){x, shape},
                           pass_has_zero(rank, dims), &zero, &status);
    *out = n ? n->outputs[0] : NULL;
    return status;
}

/* The table as [B,S,D/2], or [S,D/2] when the batch shares it. */
static tacit_status narrow(pass_edit *e, const rotary *r, ir_value *t, int64_t batch,
                           int64_t positions, ir_value **out)
{
    tacit_status status = TACIT_OK;
    int64_t width = pass_dim(r->x, 1), half = width / 2;
    *out = t;
    if (r->wide) {
        int64_t bounds[4] = {0, r->interleaved ? width : half, -1, r->interleaved ? 2 : 1};
        ir_value *in[5] = {t};
        for (uint32_t i = 0; i < 4; i++)
            if (!(in[1 + i] = ir_constant_i64(e->g, NULL, 1, 1, &bounds[i])))
                return error_memory(e->c->err, "a rotary table");
        ir_node *n = pass_node(e, PASS_SLICE, t->name, 5, in, 0, NULL, &status);
        if (!n)
            return status;
        *out = n->outputs[0];
    }
    bool shared = r->x->type.shape.dims[0] != batch;
    int64_t dims[3] = {batch, positions, half};
    return reshape(e, *out, shared ? 2 : 3, shared ? dims + 1 : dims, out);
}

/* 0 … positions-1 for every row of the batch. */
static ir_value *position_ids(pass_edit *e, int64_t batch, int64_t positions)
{
    ir_shape shape = ir_shape_of(2, (int64_t[]){batch, positions});
    ir_tensor *t = ir_tensor_new(e->g->memory, TACIT_I64, &shape);
    for (int64_t i = 0; t && i < batch * positions; i++)
        ((int64_t *)t->data)[i] = i % positions;
    return t ? ir_constant_new(e->g, "positions", t) : NULL;
}

static tacit_status write_rotary(pass_edit *e, rotary *r, int64_t batch)
{
    const int64_t *x = r->x->type.shape.dims;
    int64_t positions = x[r->bshd ? 1 : 2], heads = x[r->bshd ? 2 : 1];
    int64_t flat[3] = {x[0], x[1], x[2] * x[3]};
    pass_fusion f = {.op = PASS_ROTARY, .root = r->root, .nodes = r->nodes, .n_outputs = 1};
    f.inputs[0] = r->x;
    TRY(narrow(e, r, r->cosine, batch, positions, &f.inputs[1]));
    TRY(narrow(e, r, r->sine, batch, positions, &f.inputs[2]));
    f.n_inputs = 3;
    if (batch != x[0]) {
        f.n_inputs = 4;
        f.inputs[3] = position_ids(e, x[0], positions);
        if (!f.inputs[3])
            return error_memory(e->c->err, "position ids");
    }
    if (r->interleaved)
        pass_fusion_int(&f, "interleaved", 1);
    f.outputs[0] = r->out;
    if (!r->bshd)
        return pass_fuse(e, &f);
    tacit_status status = TACIT_OK;
    pass_fusion_int(&f, "num_heads", heads);
    TRY(reshape(e, r->x, 3, flat, &f.inputs[0]));
    ir_node *n =
        pass_node(e, PASS_ROTARY, r->root->name, f.n_inputs, f.inputs, f.n_attrs, f.attrs, &status);
    ir_value *dims = n ? ir_constant_i64(e->g, NULL, 1, 4, x) : NULL;
    if (!dims)
        return n ? error_memory(e->c->err, "a shape") : status;
    pass_fusion back = {.op = PASS_RESHAPE,
                        .root = r->root,
                        .nodes = r->nodes,
                        .n_inputs = 2,
                        .n_outputs = 1,
                        .inputs = {n->outputs[0], dims},
                        .outputs = {r->out},
                        .n_attrs = pass_has_zero(4, x),
                        .attrs = {{.name = "allowzero", .kind = IR_ATTR_INT, .i = 1}}};
    return pass_fuse(e, &back);
}

static tacit_status fuse(pass_edit *e, ir_node *n)
{
    rotary r;
    int64_t batch, sine_batch;
    bool matched = pass_is(e, n, PASS_ADD) ? match_wide(e, n, &r)
                   : pass_is(e, n, PASS_CONCAT) || pass_is(e, n, PASS_RESHAPE)
                       ? match_halves(e, n, &r)
                       : false;
    if (!matched || !pass_float(r.x) || r.x->type.shape.rank != 4 || !pass_same_shape(r.x, r.out))
        return TACIT_OK;
    r.bshd = !table_fits(&r, r.cosine, false, &batch);
    if (!table_fits(&r, r.cosine, r.bshd, &batch) || !table_fits(&r, r.sine, r.bshd, &sine_batch) ||
        batch != sine_batch) {
        pass_near_miss(e, n, "not fused: the tables do not run along batch, positions and width");
        return TACIT_OK;
    }
    if (r.wide &&
        (!holds_twice(e, r.cosine, r.interleaved) || !holds_twice(e, r.sine, r.interleaved))) {
        pass_near_miss(e, n, "not fused: cannot tell that the tables hold each angle twice");
        return TACIT_OK;
    }
    if (!pass_set_closed(e, &r.nodes, n, 1, &r.out))
        return TACIT_OK;
    return write_rotary(e, &r, batch);
}

tacit_status pass_fuse_rotary(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    if (!pass_has(&e, PASS_ROTARY))
        return TACIT_OK;
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++)
        TRY(fuse(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}
