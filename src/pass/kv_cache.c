/* SPDX-License-Identifier: Apache-2.0 */
#include "pass/kv_cache.h"

#include <string.h>

static bool is(const ir_node *n, const char *domain, const char *type)
{
    return n && n->type && strcmp(n->type, type) == 0 && strcmp(n->domain, domain) == 0;
}

/* What is behind casts: models in half precision have them around a cache. */
static ir_value *uncast(ir_value *v)
{
    while (v && is(v->producer, "", "Cast"))
        v = v->producer->inputs[0];
    return v;
}

/* The graph input that a Concat makes grow. */
static ir_value *past_of(const ir_node *n)
{
    return uncast(n->inputs[0]);
}

/* `v` is Concat(past, new) where `past` is a graph input: the axis, or -1. */
static int32_t cache_axis(const ir_value *v)
{
    const ir_node *n = v ? v->producer : NULL;
    const ir_value *past = is(n, "", "Concat") && n->n_inputs == 2 ? past_of(n) : NULL;
    int32_t axis;
    if (!past || !past->is_input ||
        ir_axis(ir_attr_int(n, "axis", 0), past->type.shape.rank, &axis, NULL) != TACIT_OK)
        return -1;
    return axis;
}

tacit_status pass_cache_symbols(const ir_graph *g, const char *names[PASS_CACHE_SYMBOLS],
                                uint32_t *count, tacit_error *err)
{
    *count = 0;
    for (uint32_t i = 0; i < g->outputs.count; i++) {
        const ir_value *v = uncast(g->outputs.data[i]);
        int32_t axis = cache_axis(v);
        if (axis < 0)
            continue;
        int64_t dim = past_of(v->producer)->type.shape.dims[axis];
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

/* From the past to the Concat nothing but casts, each read once. */
static bool only_grows(const rewriter *r, const ir_node *concat)
{
    const ir_value *v = concat->inputs[0];
    for (; is(v->producer, "", "Cast"); v = v->producer->inputs[0])
        if (ir_use_count(&r->uses, v) != 1)
            return false;
    return ir_use_count(&r->uses, v) == 1;
}

/* All that read `v` are `attention` and graph outputs, or casts for these. */
static bool only_returned(const rewriter *r, const ir_value *v, const ir_node *attention)
{
    for (uint32_t i = r->uses.start[v->id]; i < r->uses.start[v->id + 1]; i++) {
        const ir_node *n = r->uses.all[i].node;
        if (n && n != attention && (!is(n, "", "Cast") || !only_returned(r, n->outputs[0], NULL)))
            return false;
    }
    return true;
}

/* The Concat behind a key or value operand, when its result is used and the past is read by nothing
 * else. */
static ir_node *cache_of(const rewriter *r, const ir_value *v, const ir_node *attention)
{
    if (cache_axis(v) != 2 || v->type.shape.rank != 4)
        return NULL;
    ir_node *n = v->producer;
    return only_grows(r, n) && past_of(n)->type.shape.dims[2] == r->capacity &&
                   only_returned(r, v, attention)
               ? n
               : NULL;
}

/* The input itself, as attention reads it: its memory is the session's. */
static ir_value *cache_input(const ir_node *concat)
{
    ir_value *past = past_of(concat);
    past->type.dtype = concat->outputs[0]->type.dtype;
    return past;
}

static void kill_casts(ir_value *v, const ir_value *from)
{
    while (v != from) {
        ir_node *n = v->producer;
        v = n->inputs[0];
        ir_node_kill(n);
    }
}

/* A grown cache is no output any more. */
static void drop_grown(rewriter *r, ir_node *concat)
{
    ir_value *whole = concat->outputs[0];
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->g->outputs.count; i++) {
        ir_value *v = r->g->outputs.data[i];
        if (uncast(v) == whole)
            kill_casts(v, whole);
        else
            r->g->outputs.data[kept++] = v;
    }
    r->g->outputs.count = kept;
    kill_casts(concat->inputs[0], past_of(concat));
    ir_node_kill(concat);
}

static tacit_status rewrite(rewriter *r, ir_node *n)
{
    if (!is(n, "tacit", "Attention") || (n->n_inputs > 3 && n->inputs[3]))
        return TACIT_OK;
    ir_node *k = cache_of(r, n->inputs[1], n), *v = cache_of(r, n->inputs[2], n);
    bool aligned = !ir_attr_int(n, "causal", 0) && !ir_attr_int(n, "window", 0);
    if (!k || !v || k == v || (!aligned && ir_attr_int(n, "causal_offset", 0) != r->capacity))
        return TACIT_OK;
    ir_value *in[] = {n->inputs[0],   k->inputs[1],   v->inputs[1],
                      cache_input(k), cache_input(v), r->length};
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
    drop_grown(r, k);
    drop_grown(r, v);
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
        const ir_value *v = uncast(r->g->outputs.data[i]);
        if (cache_axis(v) >= 0)
            return error_set(r->err, TACIT_ERR_UNSUPPORTED,
                             "'%s' cannot be a cache: its keys or values are used by more than one "
                             "attention, or one with a mask that depends on data",
                             past_of(v->producer)->name);
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
