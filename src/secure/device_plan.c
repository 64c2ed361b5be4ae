/* SPDX-License-Identifier: Apache-2.0 */
#include "secure/device_plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- offsets ---- */

static uint64_t rounded(uint64_t size)
{
    return size ? (size + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN : PLAN_ALIGN;
}

bool plan_take(plan_pool *pool, uint64_t size, uint64_t *at)
{
    size = rounded(size);
    size_t best = pool->count;
    for (size_t i = 0; i < pool->count; i++)
        if (pool->gaps[i].size >= size &&
            (best == pool->count || pool->gaps[i].size < pool->gaps[best].size))
            best = i;
    if (best < pool->count) {
        plan_gap *g = &pool->gaps[best];
        *at = g->at;
        g->at += size;
        g->size -= size;
        if (!g->size) {
            memmove(g, g + 1, (pool->count - best - 1) * sizeof *g);
            pool->count--;
        }
        return true;
    }
    *at = pool->end;
    pool->end += size;
    pool->most = pool->end > pool->most ? pool->end : pool->most;
    return true;
}

bool plan_give(plan_pool *pool, uint64_t at, uint64_t size)
{
    size_t i = 0;
    size = rounded(size);
    while (i < pool->count && pool->gaps[i].at < at)
        i++;
    bool joins_next = i < pool->count && at + size == pool->gaps[i].at;
    if (i && pool->gaps[i - 1].at + pool->gaps[i - 1].size == at) {
        pool->gaps[i - 1].size += size;
        if (joins_next) {
            pool->gaps[i - 1].size += pool->gaps[i].size;
            memmove(&pool->gaps[i], &pool->gaps[i + 1], (pool->count - i - 1) * sizeof *pool->gaps);
            pool->count--;
        }
        return true;
    }
    if (joins_next) {
        pool->gaps[i].at = at;
        pool->gaps[i].size += size;
        return true;
    }
    if (pool->count == pool->capacity) {
        size_t capacity = pool->capacity ? 2 * pool->capacity : 64;
        plan_gap *more = realloc(pool->gaps, capacity * sizeof *more);
        if (!more)
            return false;
        pool->gaps = more;
        pool->capacity = capacity;
    }
    memmove(&pool->gaps[i + 1], &pool->gaps[i], (pool->count - i) * sizeof *pool->gaps);
    pool->gaps[i] = (plan_gap){at, size};
    pool->count++;
    return true;
}

void plan_free(plan_pool *pool)
{
    free(pool->gaps);
    *pool = (plan_pool){0};
}

/* ---- walks ---- */

tacit_status plan_begin(plan_walk *w, const sec_program *p, const cuda_device *device,
                        tacit_error *err)
{
    size_t n = p->wires.count ? p->wires.count : 1;
    w->p = p;
    w->ops = device->ops;
    w->self = device->self;
    w->err = err;
    w->status = TACIT_OK;
    w->pool.end = PLAN_ALIGN; /* no vector has the address zero, not even in the first walk */
    w->constants_at = PLAN_ALIGN;
    w->words = calloc(n, sizeof *w->words);
    w->share[0] = calloc(n, sizeof *w->words);
    w->share[1] = calloc(n, sizeof *w->words);
    w->uses = calloc(n, sizeof *w->uses);
    if (!w->words || !w->share[0] || !w->share[1] || !w->uses)
        return error_memory(err, "planning for the device");
    for (uint32_t i = 0; i < p->instrs.count; i++)
        for (uint32_t k = 0; k < p->instrs.data[i].n_in; k++)
            w->uses[p->instrs.data[i].in[k]]++;
    return TACIT_OK;
}

void plan_end(plan_walk *w)
{
    free(w->words);
    free(w->share[0]);
    free(w->share[1]);
    free(w->uses);
    free(w->later);
    plan_free(&w->pool);
    w->words = w->share[0] = w->share[1] = w->later = NULL;
    w->uses = NULL;
}

plan_vector plan_new(plan_walk *w, uint64_t count)
{
    uint64_t at = 0;
    plan_take(&w->pool, count * 8, &at);
    return (plan_vector){(uint64_t *)(w->memory + at), count, true};
}

void plan_drop(plan_walk *w, plan_vector *v)
{
    if (v->pooled && v->words) {
        if (w->n_later == w->later_capacity) {
            size_t capacity = w->later_capacity ? 2 * w->later_capacity : 64;
            plan_vector *more = realloc(w->later, capacity * sizeof *more);
            if (!more) {
                w->status = error_memory(w->err, "planning for the device");
                return;
            }
            w->later = more;
            w->later_capacity = capacity;
        }
        w->later[w->n_later++] = *v;
    }
    *v = (plan_vector){0};
}

void plan_round(plan_walk *w)
{
    for (size_t i = 0; i < w->n_later; i++)
        if (!plan_give(&w->pool, (uint64_t)((uint8_t *)w->later[i].words - w->memory),
                       w->later[i].count * 8))
            w->status = error_memory(w->err, "planning for the device");
    w->n_later = 0;
}

static void drop_wire(plan_walk *w, sec_wire_id wire)
{
    plan_drop(w, &w->words[wire]);
    plan_drop(w, &w->share[0][wire]);
    plan_drop(w, &w->share[1][wire]);
}

void plan_done(plan_walk *w, const sec_instr *in)
{
    for (uint32_t k = 0; k < in->n_in; k++)
        if (--w->uses[in->in[k]] == 0)
            drop_wire(w, in->in[k]);
    for (uint32_t k = 0; k < in->n_out; k++)
        if (w->uses[in->out[k]] == 0)
            drop_wire(w, in->out[k]);
}

void *plan_constant(plan_walk *w, const void *data, uint64_t size)
{
    uint64_t at = w->constants_at;
    w->constants_at += rounded(size + 8);
    if (w->fill && data)
        memcpy(w->image + at, data, size);
    return w->constants + at;
}

/* ---- linear maps ---- */

void plan_local(plan_walk *w, const sec_instr *in, plan_vector *table, bool constants)
{
    const sec_wire *out = &w->p->wires.data[in->out[0]];
    cuda_local l = {.n_in = in->n_in,
                    .count = out->count,
                    .mask = plan_mask(out->bits),
                    .add = constants && in->op == SEC_LINEAR ? (uint64_t)in->add : 0};
    plan_vector v = plan_new(w, out->count);
    l.out = v.words;
    for (uint32_t k = 0; k < in->n_in && k < CUDA_MAX_IN; k++) {
        l.in[k] = table[in->in[k]].words;
        l.coef[k] = (uint64_t)in->coef[k];
    }
    if (in->op == SEC_GATHER) {
        l.op = CUDA_GATHER;
        l.index = plan_constant(w, in->index, (uint64_t)out->count * 4);
        if (in->n_in > 1) {
            cuda_part *parts = calloc(in->n_in, sizeof *parts);
            for (uint32_t k = 0; parts && k < in->n_in; k++)
                parts[k] = (cuda_part){table[in->in[k]].words, w->p->wires.data[in->in[k]].count};
            if (!parts)
                w->status = error_memory(w->err, "planning for the device");
            l.parts = plan_constant(w, parts, in->n_in * sizeof *parts);
            free(parts);
        }
    } else if (in->op == SEC_SUM) {
        l.op = CUDA_SUM;
        l.offset = plan_constant(w, in->offset, ((uint64_t)out->count + 1) * 4);
    } else if (in->op == SEC_SCALE) {
        l.op = CUDA_SCALE;
        l.values = plan_constant(w, in->values, (uint64_t)out->count * 8);
    } else {
        l.op = CUDA_LINEAR;
    }
    PLAN_CALL(w, local, &l);
    table[in->out[0]] = v;
}

void plan_keep(plan_walk *w, const sec_instr *in, unsigned bits, const uint64_t *from, uint64_t *to)
{
    cuda_local l = {.op = in->keep ? CUDA_GATHER : CUDA_SUM,
                    .n_in = 1,
                    .count = in->keep_count,
                    .mask = plan_mask(bits),
                    .in = {from},
                    .out = to};
    if (in->keep)
        l.index = plan_constant(w, in->keep, (uint64_t)in->keep_count * 4);
    else
        l.offset = plan_constant(w, in->keep_sum, ((uint64_t)in->keep_count + 1) * 4);
    PLAN_CALL(w, local, &l);
}

static const uint32_t *plan_fragments(plan_walk *w, const uint64_t *table, unsigned rows,
                                      unsigned bits)
{
    uint64_t size = (uint64_t)rows << (bits + 3);
    uint32_t *image = w->fill ? malloc(size) : NULL;
    if (image)
        cuda_fragments(table, rows, bits, image);
    else if (w->fill)
        w->status = error_memory(w->err, "planning for the device");
    const uint32_t *there = plan_constant(w, image, size);
    free(image);
    return there;
}

cuda_gate plan_gate(plan_walk *w, const sec_instr *in, unsigned party)
{
    const fss_gate *g = &in->gate;
    cuda_gate d;
    sec_device_gate(&w->p->suite, g, &in->info, party, &d);
    d.id = in->id;
    uint64_t rows = g->rows ? g->rows : 1, pieces = rows * (g->thresholds + 1u) * 8;
    if (g->kind == FSS_SPLINE || g->kind == FSS_CURVE)
        rows = g->degree + 1u;
    if (g->kind == FSS_CURVE)
        pieces = 16;
    if (g->threshold)
        d.threshold = plan_constant(w, g->threshold, g->thresholds * 8u);
    if (g->slope)
        d.slope = plan_constant(w, g->slope, pieces);
    if (g->base)
        d.base = plan_constant(w, g->base, pieces);
    if (g->table)
        d.table = plan_constant(w, g->table, (rows << g->index_bits) * 8);
    if (g->table2)
        d.table2 = plan_constant(w, g->table2, (uint64_t)8 << g->index2_bits);
    if (g->table && g->index_bits > 7)
        d.fragments = plan_fragments(w, g->table, (unsigned)rows, g->index_bits);
    if (g->table2 && g->index2_bits > 7)
        d.fragments2 = plan_fragments(w, g->table2, 1, g->index2_bits);
    return d;
}

uint32_t plan_matrices(const uint32_t *at, uint32_t batch)
{
    uint32_t most = batch ? batch - 1 : 0;
    for (uint32_t t = 0; at && t < batch; t++)
        most = t == 0 || at[t] > most ? at[t] : most;
    return most + 1;
}

void plan_multiply(plan_walk *w, const sec_instr *in, const plan_term *t, uint64_t *z)
{
    unsigned limbs = cuda_limbs(in->bits);
    uint32_t xs = plan_matrices(in->x_at, in->batch), ws = plan_matrices(in->w_at, in->batch);
    plan_vector a = plan_new(w, cuda_split_bytes(in->m, in->k, xs, limbs) / 8 + 8), b = {0};
    cuda_split s = {.rows = in->m,
                    .k = in->k,
                    .batch = xs,
                    .cx = t->cx,
                    .cr = t->cr,
                    .x = t->x,
                    .r = t->r,
                    .limbs = limbs,
                    .out = (int8_t *)a.words};
    PLAN_CALL(w, split, &s);
    cuda_gemm g = {in->m, in->n, in->k, in->batch, limbs, s.out, t->limbs, NULL, NULL, z};
    if (!t->limbs) {
        b = plan_new(w, cuda_split_bytes(in->n, in->k, ws, limbs) / 8 + 8);
        s = (cuda_split){.rows = in->n,
                         .k = in->k,
                         .batch = ws,
                         .cx = t->bx,
                         .cr = t->br,
                         .x = t->w,
                         .r = t->rw,
                         .limbs = limbs,
                         .transposed = true,
                         .out = (int8_t *)b.words};
        PLAN_CALL(w, split, &s);
        g.b = s.out;
    }
    if (in->x_at)
        g.a_at = plan_constant(w, in->x_at, (uint64_t)in->batch * 4);
    if (in->w_at)
        g.b_at = plan_constant(w, in->w_at, (uint64_t)in->batch * 4);
    PLAN_CALL(w, gemm, &g);
    plan_drop(w, &a);
    plan_drop(w, &b);
}
