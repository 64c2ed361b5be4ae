/* SPDX-License-Identifier: Apache-2.0 */
#include "pass/kv_cache.h"

#include <string.h>

static bool is(const ir_node *n, const char *domain, const char *type)
{
    return n && n->type && strcmp(n->type, type) == 0 && strcmp(n->domain, domain) == 0;
}

/* `v` is Concat(past, new) where `past` is a graph input; the axis, or -1. */
static int32_t cache_axis(const ir_value *v)
{
    const ir_node *n = v ? v->producer : NULL;
    int32_t axis;
    if (!is(n, "", "Concat") || n->n_inputs != 2 || !n->inputs[0] || !n->inputs[0]->is_input ||
        ir_axis(ir_attr_int(n, "axis", 0), n->inputs[0]->type.shape.rank, &axis, NULL) != TACIT_OK)
        return -1;
    return axis;
}

tacit_status pass_cache_symbols(const ir_graph *g, const char *names[PASS_CACHE_SYMBOLS],
                                uint32_t *count, tacit_error *err)
{
    *count = 0;
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        const ir_value *v = g->outputs.data[i];
        int32_t axis = cache_axis(v);
        if (axis < 0)
            continue;
        int64_t dim = v->producer->inputs[0]->type.shape.dims[axis];
        if (!ir_dim_is_symbol(dim))
            continue;
        const char *name = g->symbols.data[-1 - dim].name;
        bool seen = false;
        for (uint32_t k = 0; k < *count; k++)
            seen |= strcmp(names[k], name) == 0;
        if (!seen && *count < PASS_CACHE_SYMBOLS)
            names[(*count)++] = name;
    }
    return *count ? TACIT_OK
                  : error_set(err, TACIT_ERR_UNSUPPORTED,
                              "the model has no cache: no output is Concat(input, new) along a "
                              "symbolic dimension of the input");
}

typedef struct rewriter {
    ir_graph *g;
    ir_uses uses;
    int64_t capacity;
    ir_value *length;
    arena scratch;
    tacit_error *err;
} rewriter;

/* The Concat behind a key or value operand, when all that read its result are `attention` and graph
 * outputs, and the past is read by it alone. */
static ir_node *cache_of(const rewriter *r, const ir_value *v, const ir_node *attention)
{
    if (cache_axis(v) != 2 || v->type.shape.rank != 4)
        return NULL;
    ir_node *n = v->producer;
    if (ir_use_count(&r->uses, n->inputs[0]) != 1 ||
        n->inputs[0]->type.shape.dims[2] != r->capacity)
        return NULL;
    for (uint32_t i = r->uses.start[v->id]; i < r->uses.start[v->id + 1]; i++)
        if (r->uses.all[i].node && r->uses.all[i].node != attention)
            return NULL;
    return n;
}

static tacit_status rewrite(rewriter *r, ir_node *n)
{
    if (!is(n, "tacit", "Attention") || (n->n_inputs > 3 && n->inputs[3]))
        return TACIT_OK;
    ir_node *k = cache_of(r, n->inputs[1], n), *v = cache_of(r, n->inputs[2], n);
    bool aligned = !ir_attr_int(n, "causal", 0) && !ir_attr_int(n, "window", 0);
    if (!k || !v || k == v || (!aligned && ir_attr_int(n, "causal_offset", 0) != r->capacity))
        return TACIT_OK;
    ir_value *in[] = {n->inputs[0], k->inputs[1], v->inputs[1],
                      k->inputs[0], v->inputs[0], r->length};
    ir_node *made = ir_node_new(r->g, "CachedAttention", "tacit", n->name, 6, in, 1, NULL);
    if (!made || !ir_attr_copy_all(r->g, made, n))
        return error_memory(r->err, "the cache");
    ir_attr_remove(made, "causal_offset");
    op_resolve(NULL, made);
    TRY(op_infer_node(r->g, made, r->err));
    ir_node_inherit_notes(r->g, made, n);
    ir_node_note(r->g, made, "cache", "keys and values are appended where they lie");
    ir_replace_uses(r->g, n->outputs[0], made->outputs[0]);
    ir_node_kill(n);
    for (int i = 0; i < 2; i++) { /* the grown caches are no outputs any more */
        const ir_value *whole = (i ? v : k)->outputs[0];
        uint32_t kept = 0;
        for (uint32_t o = 0; o < r->g->outputs.count; o++)
            if (r->g->outputs.data[o] != whole)
                r->g->outputs.data[kept++] = r->g->outputs.data[o];
        r->g->outputs.count = kept;
        ir_node_kill(i ? v : k);
    }
    return TACIT_OK;
}

/* Caches and the length go behind the inputs that the caller gives. */
static tacit_status hide(rewriter *r, uint32_t *hidden)
{
    ir_graph *g = r->g;
    ir_value **order = ARENA_ARRAY(&r->scratch, g->inputs.count + 1u, ir_value *);
    bool *cache = ARENA_ARRAY(&r->scratch, g->values.count + 1u, bool);
    if (!order || !cache)
        return error_memory(r->err, "the cache");
    for (uint32_t i = 0; i < g->nodes.count; i++)
        if (is(g->nodes.data[i], "tacit", "CachedAttention"))
            for (uint32_t k = 3; k < 6; k++)
                cache[g->nodes.data[i]->inputs[k]->id] = true;
    uint32_t at = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < g->inputs.count; i++)
            if (cache[g->inputs.data[i]->id] == (pass == 1))
                order[at++] = g->inputs.data[i];
    *hidden = 0;
    for (uint32_t i = 0; i < g->inputs.count; i++) {
        g->inputs.data[i] = order[i];
        *hidden += cache[order[i]->id];
    }
    return TACIT_OK;
}

/* Nothing may be left that grows by hand. */
static tacit_status check_all(const rewriter *r)
{
    for (uint32_t i = 0; i < r->g->outputs.count; i++) {
        const ir_value *v = r->g->outputs.data[i];
        if (cache_axis(v) >= 0)
            return error_set(r->err, TACIT_ERR_UNSUPPORTED,
                             "'%s' cannot be a cache: its keys or values are used by more than one "
                             "attention, or one with a mask that depends on data",
                             v->producer->inputs[0]->name);
    }
    return TACIT_OK;
}

static tacit_status run(rewriter *r, uint32_t *hidden)
{
    ir_type scalar = ir_type_tensor(TACIT_I64, 0, NULL);
    r->length = ir_input_new(r->g, "cache_length", &scalar);
    if (!r->length)
        return error_memory(r->err, "the cache");
    TRY(ir_uses_build(r->g, &r->scratch, &r->uses, r->err));
    for (uint32_t i = 0, n = r->g->nodes.count; i < n; i++)
        TRY(rewrite(r, r->g->nodes.data[i]));
    TRY(check_all(r));
    TRY(ir_graph_sweep(r->g, r->err));
    TRY(ir_graph_sort(r->g, r->err));
    return hide(r, hidden);
}

tacit_status pass_kv_cache(ir_graph *g, int64_t capacity, uint32_t *hidden, tacit_error *err)
{
    rewriter r = {.g = g, .capacity = capacity, .err = err};
    arena_init(&r.scratch, g->memory->allocator);
    tacit_status status = run(&r, hidden);
    arena_free(&r.scratch);
    return status;
}
