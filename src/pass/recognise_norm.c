/* SPDX-License-Identifier: Apache-2.0
 * Layer and RMS normalisation spelled out: mean, sub, pow, mean, add, sqrt, div, then perhaps a
 * scale and a shift. */
#include "pass/epilogue.h"

typedef struct norm {
    ir_value *x; /* what is normalised */
    ir_value *y; /* the result so far */
    double epsilon;
    bool rms;
    ir_value *scale, *shift;
    pass_set nodes;
} norm;

/* v = sqrt(u) as Sqrt or Pow(u, 0.5). */
static ir_value *root_of(const pass_edit *e, const ir_value *v, pass_set *s)
{
    ir_node *n = v->producer;
    ir_value *u;
    double c;
    if (pass_is(e, n, PASS_SQRT))
        u = n->inputs[0];
    else if (!pass_with_scalar(e, n, PASS_POW, &u, &c) || c != 0.5)
        return NULL;
    pass_set_add(s, n);
    return u;
}

/* v = 1/sqrt(u) as Reciprocal(Sqrt), Div(1, Sqrt) or Pow(u, -0.5). */
static ir_value *inverse_root(const pass_edit *e, const ir_value *v, pass_set *s)
{
    ir_node *n = v->producer;
    ir_value *u = NULL;
    double c;
    if (pass_with_scalar(e, n, PASS_POW, &u, &c) && c == -0.5) {
        pass_set_add(s, n);
        return u;
    }
    if (pass_is(e, n, PASS_RECIPROCAL))
        u = root_of(e, n->inputs[0], s);
    else if (pass_is(e, n, PASS_DIV) && pass_scalar_is(n->inputs[0], 1))
        u = root_of(e, n->inputs[1], s);
    if (u)
        pass_set_add(s, n);
    return u;
}

/* v = mean(d²) over the last axis, plus epsilon: gives d. */
static ir_value *mean_square(const pass_edit *e, const ir_value *v, double *epsilon, pass_set *s)
{
    ir_value *mean, *d;
    double c;
    ir_node *add = v->producer;
    if (!pass_with_scalar(e, add, PASS_ADD, &mean, epsilon))
        return NULL;
    ir_node *reduce = pass_from(e, mean, PASS_REDUCE_MEAN);
    if (!reduce || pass_reduced_axis(reduce) != 1)
        return NULL;
    ir_node *square = reduce->inputs[0]->producer;
    if (pass_is(e, square, PASS_MUL) && square->inputs[0] == square->inputs[1])
        d = square->inputs[0];
    else if (!pass_with_scalar(e, square, PASS_POW, &d, &c) || c != 2)
        return NULL;
    pass_set_add(s, add);
    pass_set_add(s, reduce);
    pass_set_add(s, square);
    return d;
}

/* n = d / sqrt(mean(d²) + eps) in one of its spellings. */
static ir_value *match_core(const pass_edit *e, ir_node *n, norm *m)
{
    ir_value *d = NULL, *u = NULL;
    if (pass_is(e, n, PASS_DIV)) {
        d = n->inputs[0];
        u = root_of(e, n->inputs[1], &m->nodes);
    } else if (pass_is(e, n, PASS_MUL)) {
        for (uint32_t k = 0; k < 2 && !u; k++) {
            d = n->inputs[1 - k];
            u = inverse_root(e, n->inputs[k], &m->nodes);
        }
    }
    if (!u || mean_square(e, u, &m->epsilon, &m->nodes) != d)
        return NULL;
    pass_set_add(&m->nodes, n);
    return d;
}

/* d = x - mean(x) makes it a layer norm; otherwise it is an RMS norm of d. */
static void match_mean(const pass_edit *e, ir_value *d, norm *m)
{
    ir_node *sub = pass_from(e, d, PASS_SUB);
    ir_node *mean = sub ? pass_from(e, sub->inputs[1], PASS_REDUCE_MEAN) : NULL;
    m->rms = !mean || mean->inputs[0] != sub->inputs[0] || pass_reduced_axis(mean) != 1;
    m->x = m->rms ? d : sub->inputs[0];
    if (m->rms)
        return;
    pass_set_add(&m->nodes, sub);
    pass_set_add(&m->nodes, mean);
}

/* `v` runs along the last axis of x alone. */
static bool is_row(const ir_value *v, const ir_value *x)
{
    if (!pass_float(v) || v->type.dtype != x->type.dtype || v->type.shape.rank < 1)
        return false;
    for (int32_t d = 0; d + 1 < v->type.shape.rank; d++)
        if (v->type.shape.dims[d] != 1)
            return false;
    return pass_dim(v, 1) == pass_dim(x, 1);
}

/* The row that the only reader of m->y multiplies or adds, as a vector; NULL when there is none. */
static tacit_status match_vector(pass_edit *e, norm *m, pass_op op, ir_value **vector)
{
    ir_node *n = pass_only_user(e, m->y);
    ir_value *v = pass_is(e, n, op) ? pass_other(n, m->y) : NULL;
    *vector = NULL;
    if (!v || !is_row(v, m->x) || !pass_same_shape(m->y, n->outputs[0]))
        return TACIT_OK;
    if (v->type.shape.rank > 1) {
        if (!ir_value_known(v))
            return TACIT_OK;
        v = pass_constant_as(e, v, 1, &m->x->type.shape.dims[m->x->type.shape.rank - 1]);
        if (!v)
            return error_memory(e->c->err, "a scale");
    }
    pass_set_add(&m->nodes, n);
    m->y = n->outputs[0];
    *vector = v;
    return TACIT_OK;
}

static ir_value *ones(pass_edit *e, const ir_value *like)
{
    int64_t count = pass_dim(like, 1);
    ir_shape shape = ir_shape_of(1, &count);
    ir_tensor *t = ir_tensor_new(e->g->memory, like->type.dtype, &shape);
    for (int64_t i = 0; t && i < count; i++)
        ir_store_f64(t->dtype, t->data, i, 1);
    return t ? ir_constant_new(e->g, "ones", t) : NULL;
}

static tacit_status recognise(pass_edit *e, ir_node *n)
{
    norm m = {0};
    if (!(pass_is(e, n, PASS_DIV) || pass_is(e, n, PASS_MUL)) || !pass_float(n->outputs[0]))
        return TACIT_OK;
    ir_value *d = match_core(e, n, &m);
    if (!d || m.epsilon < 0)
        return TACIT_OK;
    match_mean(e, d, &m);
    if (!pass_float(m.x) || !pass_same_shape(m.x, n->outputs[0]))
        return TACIT_OK;
    m.y = n->outputs[0];
    TRY(match_vector(e, &m, PASS_MUL, &m.scale));
    if (!m.rms)
        TRY(match_vector(e, &m, PASS_ADD, &m.shift));
    if (!m.scale && !(m.scale = ones(e, m.x)))
        return error_memory(e->c->err, "a scale of ones");
    pass_fusion f = {.op = m.rms ? PASS_RMS_NORM : PASS_LAYER_NORM,
                     .root = n,
                     .nodes = m.nodes,
                     .n_inputs = m.shift ? 3 : 2,
                     .n_outputs = 1,
                     .inputs = {m.x, m.scale, m.shift},
                     .outputs = {m.y}};
    pass_fusion_int(&f, "axis", -1);
    pass_fusion_float(&f, "epsilon", m.epsilon);
    return pass_fuse(e, &f);
}

tacit_status pass_recognise_norm(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    for (uint32_t i = 0, n = c->graph->nodes.count; i < n; i++)
        TRY(recognise(&e, c->graph->nodes.data[i]));
    return TACIT_OK;
}
