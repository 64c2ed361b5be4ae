/* SPDX-License-Identifier: Apache-2.0
 * Three products of one input with three weights become one product and a split into views: the
 * input is read once and the GEMM is wide. The weights are put side by side, within the budget. */
#include "pass/epilogue.h"

enum { PARTS = 3 };

typedef struct group {
    ir_node *nodes[PARTS];
    pass_product parts[PARTS];
    uint32_t count;
} group;

static int64_t width_of(const pass_product *p)
{
    return pass_dim(p->b, p->trans_b ? 2 : 1);
}

/* A product whose weight may be merged: constant, of rank 2, nothing but a constant bias after. */
/* What is merged: contents at hand, as they are or to be widened. */
static const ir_tensor *weight_of(const ir_value *v)
{
    const ir_tensor *t = ir_value_weight(v), *from = t ? ir_recipe_source(t) : NULL;
    return from && from->data ? from : NULL;
}

static bool mergeable(const pass_edit *e, ir_node *n, const ir_value *input, pass_product *p)
{
    return pass_product_read(e, n, p) && p->a == input && !p->trans_a &&
           p->b->type.shape.rank == 2 && p->b->is_initializer && weight_of(p->b) &&
           !p->tail.residual && p->tail.activation[0] == 'n' &&
           (!p->tail.bias || ir_value_known(p->tail.bias)) &&
           tacit_dtype_bits(p->b->type.dtype) % 8 == 0;
}

static bool alike(const pass_product *x, const pass_product *y)
{
    return x->trans_b == y->trans_b && x->alpha == y->alpha &&
           x->b->type.dtype == y->b->type.dtype && !x->tail.bias == !y->tail.bias &&
           pass_dim(x->b, x->trans_b ? 1 : 2) == pass_dim(y->b, y->trans_b ? 1 : 2);
}

/* Exactly three readers of `input` are mergeable products, and they are alike. */
static bool find_group(const pass_edit *e, const ir_value *input, group *g)
{
    g->count = 0;
    for (const pass_use *u = pass_first_use(e, input); u; u = pass_next_use(e, u)) {
        pass_product p;
        if (!u->node || u->index != 0 || !mergeable(e, u->node, input, &p))
            continue;
        if (g->count == PARTS)
            return false;
        g->nodes[g->count] = u->node;
        g->parts[g->count++] = p;
    }
    if (g->count != PARTS || !alike(&g->parts[0], &g->parts[1]) ||
        !alike(&g->parts[0], &g->parts[2]))
        return false;
    /* Uses come newest first; the order of the graph reads better. */
    for (uint32_t i = 0; i < PARTS; i++)
        for (uint32_t k = i + 1; k < PARTS; k++)
            if (g->nodes[k]->id < g->nodes[i]->id) {
                ir_node *n = g->nodes[i];
                pass_product p = g->parts[i];
                g->nodes[i] = g->nodes[k];
                g->parts[i] = g->parts[k];
                g->nodes[k] = n;
                g->parts[k] = p;
            }
    return true;
}

/* [K,N] weights side by side, or [N,K] weights one below the other. */
static tacit_status join_weights(pass_edit *e, const group *g, int64_t total, ir_value **out)
{
    const pass_product *p = g->parts;
    const ir_tensor *from[PARTS];
    ir_tensor *t;
    int64_t k = pass_dim(p->b, p->trans_b ? 1 : 2);
    int64_t dims[2] = {p->trans_b ? total : k, p->trans_b ? k : total};
    ir_shape shape = ir_shape_of(2, dims);
    for (uint32_t i = 0; i < PARTS; i++)
        from[i] = weight_of(p[i].b);
    ir_recipe recipe = {.kind = IR_JOINED,
                        .count = PARTS,
                        .from = from,
                        .dtype = p->b->type.dtype,
                        .rows = p->trans_b ? 1 : k};
    TRY(pass_derive(e, &shape, &recipe, &t));
    *out = ir_constant_new(e->g, "qkv", t);
    return *out ? TACIT_OK : error_memory(e->c->err, "merged weights");
}

static ir_value *join_biases(pass_edit *e, const group *g, int64_t total)
{
    ir_shape shape = ir_shape_of(1, &total);
    ir_tensor *t = ir_tensor_new(e->g->memory, g->parts[0].b->type.dtype, &shape);
    if (!t)
        return NULL;
    size_t at = 0;
    for (uint32_t i = 0; i < PARTS; i++) {
        const ir_tensor *b = g->parts[i].tail.bias->constant;
        memcpy((char *)t->data + at, b->data, b->bytes);
        at += b->bytes;
    }
    return ir_constant_new(e->g, "qkv_bias", t);
}

static tacit_status merge(pass_edit *e, const group *g)
{
    int64_t widths[PARTS], total = 0;
    size_t bytes = 0;
    for (uint32_t i = 0; i < PARTS; i++) {
        total += widths[i] = width_of(&g->parts[i]);
        bytes += g->parts[i].b->constant->bytes;
    }
    if (!pass_late(e, bytes) && bytes > *e->c->fold_left) {
        pass_near_miss(e, g->nodes[0], "not merged with %s and %s: %zu bytes are over the budget",
                       g->nodes[1]->name, g->nodes[2]->name, bytes);
        return TACIT_OK;
    }
    pass_product p = g->parts[0];
    tacit_status status = TACIT_OK;
    TRY(join_weights(e, g, total, &p.b));
    if (p.tail.bias)
        p.tail.bias = join_biases(e, g, total);
    ir_value *sizes = ir_constant_i64(e->g, "qkv_sizes", 1, PARTS, widths);
    if (!sizes || (g->parts[0].tail.bias && !p.tail.bias))
        return error_memory(e->c->err, "merged weights");
    pass_fusion product;
    pass_product_write(&p, g->nodes[0], &product);
    ir_node *n = pass_node(e, PASS_T_MATMUL, g->nodes[0]->name, product.n_inputs, product.inputs,
                           product.n_attrs, product.attrs, &status);
    if (!n)
        return status;
    pass_fusion f = {.op = PASS_SPLIT, .root = g->nodes[0], .n_inputs = 2, .n_outputs = PARTS};
    f.inputs[0] = n->outputs[0];
    f.inputs[1] = sizes;
    for (uint32_t i = 0; i < PARTS; i++) {
        f.outputs[i] = g->nodes[i]->outputs[0];
        pass_set_add(&f.nodes, g->nodes[i]);
    }
    pass_fusion_int(&f, "axis", -1);
    TRY(pass_fuse(e, &f));
    if (f.made) {
        *e->c->fold_left -= pass_late(e, bytes) ? 0 : bytes;
        ir_node_inherit_notes(e->g, n, f.made);
    }
    return TACIT_OK;
}

tacit_status pass_fuse_qkv(pass_context *c)
{
    pass_edit e;
    TRY(pass_edit_begin(&e, c));
    if (!pass_has(&e, PASS_T_MATMUL) || !pass_has(&e, PASS_SPLIT))
        return TACIT_OK;
    for (uint32_t i = 0, n = c->graph->values.count; i < n; i++) {
        group g;
        if (pass_uses(&e, c->graph->values.data[i]) >= PARTS &&
            !c->graph->values.data[i]->is_initializer &&
            find_group(&e, c->graph->values.data[i], &g))
            TRY(merge(&e, &g));
    }
    return TACIT_OK;
}
