/* SPDX-License-Identifier: Apache-2.0
 * Programs whose sessions keep past keys and values: see tacit_compile_options.cache_capacity. */
#include <string.h>

#include "api/internal.h"
#include "ir/text.h"
#include "pass/kv_cache.h"

/* The caller's dims and the lengths of the caches. */
static tacit_status bind(const tacit_program *p, const tacit_compile_options *o, int64_t capacity,
                         arena *memory, ir_graph **out, tacit_error *err)
{
    const char *names[PASS_CACHE_SYMBOLS];
    uint32_t n = 0;
    TRY(pass_cache_symbols(p->model->graph, names, &n, err));
    tacit_dim *dims = ARENA_ARRAY(memory, o->n_dims + n + 1u, tacit_dim);
    if (!dims)
        return error_memory(err, "the cache");
    for (uint32_t i = 0; i < o->n_dims; i++) {
        dims[i] = o->dims[i];
        for (uint32_t k = 0; k < n; k++)
            if (dims[i].name && strcmp(dims[i].name, names[k]) == 0)
                return error_set(err, TACIT_ERR_ARGUMENT,
                                 "dimension '%s' is the length of a cache: it is not given",
                                 names[k]);
    }
    for (uint32_t k = 0; k < n; k++)
        dims[o->n_dims + k] = (tacit_dim){names[k], capacity};
    return api_bound_graph(p->model, dims, o->n_dims + n, memory, out, err);
}

tacit_status api_cache_bind(tacit_program *p, const tacit_compile_options *o, tacit_error *err)
{
    if (o->cache_capacity < 2)
        return error_set(err, TACIT_ERR_ARGUMENT, "a cache of %lld positions",
                         (long long)o->cache_capacity);
    if (o->executor == TACIT_EXEC_REFERENCE)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "the reference executor runs the model as it is: without a cache");
    return bind(p, o, o->cache_capacity, &p->memory, &p->graph, err);
}

/* The same for a cache of another size: what differs then, other than the caches, would be wrong
 * for every length but one. */
static tacit_status compare(tacit_program *p, const tacit_compile_options *o, arena *memory,
                            tacit_error *err)
{
    ir_graph *other;
    pass_report report;
    uint32_t hidden = 0;
    int64_t capacity = o->cache_capacity - 1;
    pass_options options = {
        .disabled = o->disabled_passes, .n_disabled = o->n_disabled_passes, .late_weights = true};
    TRY(bind(p, o, capacity, memory, &other, err));
    TRY(api_keep_last(other, o, err));
    TRY(pass_pipeline(other, &options, memory, &report, err));
    TRY(pass_kv_cache(other, capacity, &hidden, err));
    uint32_t first = other->inputs.count - hidden;
    for (uint32_t i = first; i < other->inputs.count; i++)
        if (other->inputs.data[i]->type.shape.rank == 4)
            other->inputs.data[i]->type.shape.dims[2] = o->cache_capacity;
    sbuf why;
    sbuf_init(&why, NULL);
    bool same = ir_graph_equal(p->graph, other, &why);
    tacit_status status =
        same ? TACIT_OK
             : error_set(err, TACIT_ERR_UNSUPPORTED,
                         "the past cannot be a cache: the %s depends on its length",
                         sbuf_str(&why) && *sbuf_str(&why) ? sbuf_str(&why) : "graph");
    sbuf_free(&why);
    return status;
}

tacit_status api_cache_rewrite(tacit_program *p, const tacit_compile_options *o, tacit_error *err)
{
    TRY(pass_kv_cache(p->graph, o->cache_capacity, &p->hidden_inputs, err));
    p->cache_capacity = o->cache_capacity;
    arena memory;
    arena_init(&memory, &p->model->allocator);
    tacit_status status = compare(p, o, &memory, err);
    arena_free(&memory);
    if (status != TACIT_OK)
        return status;
    for (uint32_t i = 0; i < p->graph->nodes.count; i++) { /* how far one run moves */
        const ir_node *n = p->graph->nodes.data[i];
        if (strcmp(n->type, "CachedAttention") == 0)
            p->cache_step = n->inputs[0]->type.shape.dims[2];
    }
    return TACIT_OK;
}

/* --- sessions ----------------------------------------------------------------------------------
 */

/* Bytes of all caches, each from a new line on. */
static bool cache_bytes(const tacit_program *p, size_t *total)
{
    const ir_graph *g = p->graph;
    *total = 0;
    for (uint32_t i = g->inputs.count - p->hidden_inputs; i < g->inputs.count; i++) {
        size_t bytes;
        if (!ir_type_bytes(&g->inputs.data[i]->type, &bytes) ||
            !size_add(*total, align_up(bytes, MEM_ALIGN), total))
            return false;
    }
    return true;
}

tacit_status api_cache_create(tacit_session *s, tacit_error *err)
{
    const tacit_program *p = s->program;
    const ir_graph *g = p->graph;
    size_t total;
    if (!p->hidden_inputs)
        return TACIT_OK;
    /* In one piece: large enough for huge pages, as each of them may not be. */
    char *memory =
        cache_bytes(p, &total) ? arena_alloc_aligned(&s->run->memory, total, MEM_ALIGN) : NULL;
    if (!memory)
        return error_memory(err, "a cache");
    memset(memory, 0, total);
    for (uint32_t i = g->inputs.count - p->hidden_inputs; i < g->inputs.count; i++) {
        const ir_type *type = &g->inputs.data[i]->type;
        ir_tensor t = {.kind = IR_TENSOR, .dtype = type->dtype, .shape = type->shape};
        if (!ir_type_bytes(type, &t.bytes))
            return error_memory(err, "a cache");
        t.present = true;
        t.data = type->shape.rank == 0 ? (void *)&s->cache_length : memory;
        memory += align_up(t.bytes, MEM_ALIGN);
        prog_set_input(s->run, i, &t);
    }
    return TACIT_OK;
}

tacit_status api_cache_room(const tacit_session *s, tacit_error *err)
{
    const tacit_program *p = s->program;
    if (!p->hidden_inputs || s->cache_length + p->cache_step <= p->cache_capacity)
        return TACIT_OK;
    return error_set(
        err, TACIT_ERR_LIMIT, "the cache holds %lld of %lld positions: no room for %lld more",
        (long long)s->cache_length, (long long)p->cache_capacity, (long long)p->cache_step);
}

int64_t tacit_session_cache_length(const tacit_session *session)
{
    return session ? session->cache_length : 0;
}

tacit_status tacit_session_cache_rewind(tacit_session *session, int64_t length, tacit_error *err)
{
    if (!session || !session->program->hidden_inputs)
        return error_set(err, TACIT_ERR_ARGUMENT, "the session has no cache");
    if (length < 0 || length > session->cache_length)
        return error_set(err, TACIT_ERR_ARGUMENT, "the cache holds %lld positions, not %lld",
                         (long long)session->cache_length, (long long)length);
    session->cache_length = length;
    return TACIT_OK;
}

/* Is `t` what a cache of shape `d` can begin with? */
static bool fits_cache(const tacit_tensor *t, const int64_t *d, int64_t length)
{
    bool number = t->dtype == TACIT_F32 || t->dtype == TACIT_F16 || t->dtype == TACIT_BF16;
    return number && t->rank == 4 && t->dims[0] == d[0] && t->dims[1] == d[1] &&
           t->dims[3] == d[3] && t->dims[2] == length && length <= d[2] && t->data &&
           t->bytes >= (size_t)(d[0] * d[1] * length * d[3]) * tacit_dtype_bits(t->dtype) / 8;
}

/* Positions of every head to where its own begin. */
static void fill_cache(const tacit_tensor *t, const int64_t *d, int64_t length, float *to)
{
    int64_t run = length * d[3];
    for (int64_t h = 0; h < d[0] * d[1]; h++, to += d[2] * d[3])
        for (int64_t i = 0; i < run; i++)
            to[i] = (float)ir_load_f64(t->dtype, t->data, h * run + i);
}

tacit_status tacit_session_cache_fill(tacit_session *session, const tacit_tensor *past, uint32_t n,
                                      tacit_error *err)
{
    if (!session || !session->program->hidden_inputs || (n && !past))
        return error_set(err, TACIT_ERR_ARGUMENT, "the session has no cache, or nothing is given");
    const tacit_program *p = session->program;
    const ir_graph *g = p->graph;
    uint32_t first = g->inputs.count - p->hidden_inputs, filled = 0;
    int64_t length = n && past[0].rank == 4 ? past[0].dims[2] : 0;
    for (uint32_t i = 0; i < n; i++) {
        const tacit_tensor *t = &past[i];
        uint32_t at = first;
        while (at < g->inputs.count && (!t->name || strcmp(g->inputs.data[at]->name, t->name) != 0))
            at++;
        if (at == g->inputs.count || g->inputs.data[at]->type.shape.rank != 4)
            return error_set(err, TACIT_ERR_ARGUMENT, "there is no cache named '%s'",
                             t->name ? t->name : "(null)");
        const int64_t *d = g->inputs.data[at]->type.shape.dims;
        if (!fits_cache(t, d, length))
            return error_set(err, TACIT_ERR_SHAPE,
                             "cache '%s' takes f32, f16 or bf16 [%lld,%lld,n,%lld], n at most %lld "
                             "and alike in all",
                             t->name, (long long)d[0], (long long)d[1], (long long)d[3],
                             (long long)p->cache_capacity);
        fill_cache(t, d, length, session->run->given_inputs[at].data);
        filled++;
    }
    if (filled + 1 != p->hidden_inputs)
        return error_set(err, TACIT_ERR_ARGUMENT, "%u caches are given of %u", filled,
                         p->hidden_inputs - 1);
    session->cache_length = length;
    return TACIT_OK;
}
