/* SPDX-License-Identifier: Apache-2.0 */
#include "support/host_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/aes_table.h"
#include "cuda/elem_deal.h"
#include "cuda/elem_lookup.h"

typedef struct job {
    void (*run)(elem_env *env, const void *args);
    void *args;
} job;

typedef struct record {
    job *jobs;
    size_t count, capacity;
} record;

typedef struct host {
    elem_env env;
    record *recording;
    uint64_t budget, held, fail_after, done;
    bool lost, lazy;
    struct copy_args *later; /* copies aside that nobody has waited for */
    uint64_t n_later, n_copied, marks[CUDA_MARKS];
} host;

/* Memory carries its size in front, so that what is held can be told. */
enum { FRONT = 64 };

static tacit_status host_alloc(void *self, size_t bytes, void **out, tacit_error *err)
{
    host *h = self;
    *out = NULL;
    if (h->budget && h->held + bytes > h->budget)
        return error_set(err, TACIT_ERR_MEMORY, "the device has no %zu bytes left", bytes);
    uint8_t *p = aligned_alloc(64, (bytes + FRONT + 127) / 64 * 64);
    if (!p)
        return error_memory(err, "device memory");
    memset(p, 0, bytes + FRONT);
    memcpy(p, &bytes, sizeof bytes);
    h->held += bytes;
    *out = p + FRONT;
    return TACIT_OK;
}
static uint64_t host_room(void *self)
{
    const host *h = self;
    return !h->budget ? UINT64_MAX : h->budget > h->held ? h->budget - h->held : 0;
}
static void host_release(void *self, void *memory)
{
    host *h = self;
    size_t bytes;
    if (!memory)
        return;
    memcpy(&bytes, (uint8_t *)memory - FRONT, sizeof bytes);
    h->held -= bytes;
    free((uint8_t *)memory - FRONT);
}
static tacit_status host_alloc_host(void *self, size_t bytes, void **out, tacit_error *err)
{
    (void)self;
    *out = malloc(bytes + 1);
    return *out ? TACIT_OK : error_memory(err, "host memory");
}
static void host_release_host(void *self, void *memory)
{
    (void)self;
    free(memory);
}

/* Runs a job now or keeps it for the graph being recorded. */
static tacit_status queue(host *h, void (*run)(elem_env *, const void *), const void *args,
                          size_t size, tacit_error *err)
{
    if (!h->recording) {
        h->lost |= h->fail_after && ++h->done > h->fail_after;
        if (!h->lost)
            run(&h->env, args);
        return TACIT_OK;
    }
    record *r = h->recording;
    if (r->count == r->capacity) {
        r->capacity = r->capacity ? 2 * r->capacity : 16;
        r->jobs = realloc(r->jobs, r->capacity * sizeof *r->jobs);
    }
    void *copy = malloc(size);
    if (!r->jobs || !copy)
        return error_memory(err, "a graph");
    memcpy(copy, args, size);
    r->jobs[r->count++] = (job){run, copy};
    return TACIT_OK;
}

struct copy_args {
    void *to;
    const void *from;
    size_t bytes;
};
typedef struct copy_args copy_args;
static void run_copy(elem_env *env, const void *args)
{
    const copy_args *c = args;
    (void)env;
    if (c->from)
        memcpy(c->to, c->from, c->bytes);
    else
        memset(c->to, 0, c->bytes);
}
static tacit_status host_copy(void *self, cuda_direction way, void *to, const void *from,
                              size_t bytes, tacit_error *err)
{
    host *h = self;
    if (way == CUDA_TO_DEVICE_ASIDE && h->lazy) {
        h->later = realloc(h->later, (h->n_later + 1) * sizeof *h->later);
        if (!h->later)
            return error_memory(err, "a copy");
        h->later[h->n_later++] = (copy_args){to, from, bytes};
        return TACIT_OK;
    }
    return queue(self, run_copy, &(copy_args){to, from, bytes}, sizeof(copy_args), err);
}
static tacit_status host_clear(void *self, void *memory, size_t bytes, tacit_error *err)
{
    return queue(self, run_copy, &(copy_args){memory, NULL, bytes}, sizeof(copy_args), err);
}
static tacit_status host_keys(void *self, const uint32_t *words, tacit_error *err)
{
    (void)err;
    memcpy(((host *)self)->env.keys, words, sizeof((host *)self)->env.keys);
    return TACIT_OK;
}

typedef struct gate_args {
    cuda_gate g;
    cuda_io io;
    unsigned step;
} gate_args;

static void lookup(elem_env *env, const gate_args *a, const elem_lookup *l, uint64_t i)
{
    elem_ctx c = {env, &a->g, &a->io, a->g.id + *a->io.run, a->g.party, i, 0};
    elem_block leaf[ELEM_LEAVES];
    for (unsigned first = 0; first < l->rows; first += ELEM_TABLES) {
        uint64_t sum[ELEM_TABLES] = {0}, mine[ELEM_TABLES];
        for (unsigned part = 0; part < elem_parts(l); part++) {
            elem_leaves(&c, l, part, leaf);
            elem_sums(&c, l, first, part, leaf, mine);
            for (unsigned k = 0; k < ELEM_TABLES; k++)
                sum[k] += mine[k];
        }
        for (unsigned k = 0; k < ELEM_TABLES && first + k < l->rows; k++)
            elem_value(&c, l, first + k, sum[k]);
    }
}
static void run_step(elem_env *env, const void *args)
{
    const gate_args *a = args;
    elem_lookup l[2];
    bool tables = a->step == 0 && cuda_looks_up(&a->g);
    for (uint64_t i = 0; i < a->g.count; i++) {
        for (unsigned k = 0; tables && k < elem_lookups(&a->g, l); k++) {
            if (k == 0 && i % 3 == 0 && l[0].depth > 1) /* the same from smaller parts */
                l[0].depth -= 2;
            lookup(env, a, &l[k], i);
        }
        if (!tables)
            elem_step(env, &a->g, &a->io, a->g.kind, a->g.form, a->step, i);
    }
}
static tacit_status host_step(void *self, const cuda_gate *g, const cuda_io *io, unsigned step,
                              tacit_error *err)
{
    gate_args a = {*g, *io, step};
    return queue(self, run_step, &a, sizeof a, err);
}
static void run_deal(elem_env *env, const void *args)
{
    const gate_args *a = args;
    for (uint64_t i = 0; i < a->g.count; i++)
        elem_deal(env, &a->g, &a->io, a->g.kind, a->g.form, i);
}
static tacit_status host_deal(void *self, const cuda_gate *g, const cuda_io *io, tacit_error *err)
{
    gate_args a = {*g, *io, 0};
    return queue(self, run_deal, &a, sizeof a, err);
}

static uint64_t gathered(const cuda_local *l, int64_t at)
{
    if (at < 0)
        return 0;
    if (l->n_in == 1)
        return l->in[0][at];
    const cuda_part *p = l->parts;
    while ((uint64_t)at >= p->count)
        at -= (int64_t)p++->count;
    return p->words[at];
}
static void run_local(elem_env *env, const void *args)
{
    const cuda_local *l = args;
    (void)env;
    for (uint64_t i = 0; i < l->count; i++) {
        uint64_t v = l->add;
        if (l->op == CUDA_GATHER)
            v = gathered(l, l->index[i]);
        else if (l->op == CUDA_SUM)
            for (uint32_t j = l->offset[i]; j < l->offset[i + 1]; j++)
                v += l->in[0][j];
        else if (l->op == CUDA_LINEAR)
            for (unsigned k = 0; k < l->n_in; k++)
                v += l->coef[k] * l->in[k][i];
        else
            v = l->op == CUDA_SCALE ? l->in[0][i] * l->values[i] : l->in[0][i];
        l->out[i] = v & l->mask;
    }
}
static tacit_status host_local(void *self, const cuda_local *l, tacit_error *err)
{
    return queue(self, run_local, l, sizeof *l, err);
}
static void run_words(elem_env *env, const void *args)
{
    const cuda_words *w = args;
    for (uint64_t r = 0; r < w->rows; r++)
        for (uint64_t j = 0; j < w->width; j++) {
            uint64_t *to = w->out + r * w->width + j;
            uint64_t word =
                elem_prf_word(env, w->seed, w->id + *w->run, w->slot, r * w->stride + j, w->bits);
            *to = w->add ? *to + word : word;
        }
}
static tacit_status host_words(void *self, const cuda_words *w, tacit_error *err)
{
    return queue(self, run_words, w, sizeof *w, err);
}
static void run_product(elem_env *env, const void *args)
{
    const cuda_product *p = args;
    (void)env;
    for (uint64_t i = 0; i < p->count; i++) {
        uint64_t f = p->cx * p->x[i] + (p->r ? p->cr * p->r[i] : 0);
        p->out[i] = elem_low(p->out[i] + f * p->w[i % p->period], p->bits);
    }
}
static tacit_status host_product(void *self, const cuda_product *p, tacit_error *err)
{
    return queue(self, run_product, p, sizeof *p, err);
}

static void run_one_hot(elem_env *env, const void *args)
{
    const cuda_one_hot *o = args;
    (void)env;
    for (uint64_t i = 0; i < o->rows * o->width; i++)
        o->out[i] = o->index[i / o->width] == i % o->width;
}
static tacit_status host_one_hot(void *self, const cuda_one_hot *o, tacit_error *err)
{
    return queue(self, run_one_hot, o, sizeof *o, err);
}
static void run_result(elem_env *env, const void *args)
{
    const cuda_result *r = args;
    (void)env;
    for (uint64_t i = 0; i < r->count; i++) {
        uint64_t x = elem_low(r->words[i] - elem_read(r->mask, i * r->bits, r->bits), r->bits);
        if (r->plain)
            r->plain[i] = elem_number(x, r->bits, r->unit);
        else
            r->out[i] = x;
    }
}
static tacit_status host_result(void *self, const cuda_result *r, tacit_error *err)
{
    return queue(self, run_result, r, sizeof *r, err);
}

static uint64_t limb_at(uint64_t rows, uint64_t k, unsigned limbs, uint64_t t, uint64_t row,
                        uint64_t col, unsigned limb)
{
    uint64_t blocks = (k + CUDA_BLOCK_K - 1) / CUDA_BLOCK_K;
    uint64_t line = t * cuda_split_rows(rows) + row;
    return ((line * blocks + col / CUDA_BLOCK_K) * limbs + limb) * CUDA_BLOCK_K +
           col % CUDA_BLOCK_K;
}
static void run_split(elem_env *env, const void *args)
{
    const cuda_split *s = args;
    (void)env;
    for (uint64_t t = 0; t < s->batch; t++)
        for (uint64_t r = 0; r < s->rows; r++)
            for (uint64_t k = 0; k < s->k; k++) {
                uint64_t at = t * s->rows * s->k + (s->transposed ? k * s->rows + r : r * s->k + k);
                uint64_t v = s->cx * s->x[at] + (s->r ? s->cr * s->r[at] : 0);
                for (unsigned limb = 0; limb < s->limbs; limb++) {
                    int8_t digit = (int8_t)(v & 255);
                    s->out[limb_at(s->rows, s->k, s->limbs, t, r, k, limb)] = digit;
                    v = (v - (uint64_t)(int64_t)digit) >> 8;
                }
            }
}
static tacit_status host_split(void *self, const cuda_split *s, tacit_error *err)
{
    return queue(self, run_split, s, sizeof *s, err);
}
static void run_gemm(elem_env *env, const void *args)
{
    const cuda_gemm *g = args;
    (void)env;
    for (uint64_t t = 0; t < g->batch; t++)
        for (uint64_t i = 0; i < g->m; i++)
            for (uint64_t j = 0; j < g->n; j++) {
                uint64_t sum = 0;
                for (uint64_t k = 0; k < g->k; k++) {
                    uint64_t a = 0, b = 0;
                    for (unsigned l = g->limbs; l-- > 0;) {
                        a = (a << 8) +
                            (uint64_t)(int64_t)g->a[limb_at(g->m, g->k, g->limbs,
                                                            g->a_at ? g->a_at[t] : t, i, k, l)];
                        b = (b << 8) +
                            (uint64_t)(int64_t)g->b[limb_at(g->n, g->k, g->limbs,
                                                            g->b_at ? g->b_at[t] : t, j, k, l)];
                    }
                    sum += a * b;
                }
                g->z[(t * g->m + i) * g->n + j] += sum;
            }
}
static tacit_status host_gemm(void *self, const cuda_gemm *g, tacit_error *err)
{
    return queue(self, run_gemm, g, sizeof *g, err);
}

typedef struct message_args {
    const cuda_string *strings;
    uint32_t n;
    uint8_t *message;
    bool add;
} message_args;
static void run_pack(elem_env *env, const void *args)
{
    const message_args *m = args;
    (void)env;
    for (uint32_t s = 0; s < m->n; s++) {
        const cuda_string *q = &m->strings[s];
        memset(m->message + q->at, 0, elem_pack_bytes(q->bits, q->count));
        for (uint64_t i = 0; i < q->count; i++)
            elem_write(m->message + q->at, i * q->bits, q->bits, q->words[i]);
    }
}
static void run_unpack(elem_env *env, const void *args)
{
    const message_args *m = args;
    (void)env;
    for (uint32_t s = 0; s < m->n; s++) {
        const cuda_string *q = &m->strings[s];
        for (uint64_t i = 0; i < q->count; i++) {
            uint64_t v = elem_read(m->message + q->at, i * q->bits, q->bits);
            q->words[i] = elem_low(v + (m->add ? q->words[i] : 0), q->bits);
        }
    }
}
static tacit_status host_pack(void *self, const cuda_string *strings, uint32_t n, uint64_t most,
                              void *message, tacit_error *err)
{
    message_args a = {strings, n, message, false};
    (void)most;
    return queue(self, run_pack, &a, sizeof a, err);
}
static tacit_status host_unpack(void *self, const cuda_string *strings, uint32_t n, uint64_t most,
                                const void *message, bool add, tacit_error *err)
{
    message_args a = {strings, n, (uint8_t *)message, add};
    (void)most;
    return queue(self, run_unpack, &a, sizeof a, err);
}

static tacit_status host_begin(void *self, tacit_error *err)
{
    host *h = self;
    h->recording = calloc(1, sizeof *h->recording);
    return h->recording ? TACIT_OK : error_memory(err, "a graph");
}
static tacit_status host_end(void *self, void **graph, tacit_error *err)
{
    host *h = self;
    (void)err;
    *graph = h->recording;
    h->recording = NULL;
    return TACIT_OK;
}
static tacit_status host_run(void *self, void *graph, tacit_error *err)
{
    host *h = self;
    record *r = graph;
    for (size_t i = 0; i < r->count; i++)
        TRY(queue(h, r->jobs[i].run, r->jobs[i].args, 0, err));
    return TACIT_OK;
}
static void host_graph_free(void *self, void *graph)
{
    record *r = graph;
    (void)self;
    for (size_t i = 0; r && i < r->count; i++)
        free(r->jobs[i].args);
    if (r)
        free(r->jobs);
    free(r);
}
static tacit_status host_wait(void *self, tacit_error *err)
{
    return ((host *)self)->lost ? error_set(err, TACIT_ERR_IO, "the device was lost") : TACIT_OK;
}

/* Copies aside happen at once, or as late as they may: those before a mark that is waited for. */
static tacit_status host_mark(void *self, unsigned which, tacit_error *err)
{
    host *h = self;
    (void)err;
    h->marks[which] = h->n_later;
    return TACIT_OK;
}
static tacit_status host_mark_work(void *self, unsigned which, tacit_error *err)
{
    (void)self, (void)which, (void)err;
    return TACIT_OK;
}
static tacit_status host_after_mark(void *self, unsigned which, tacit_error *err)
{
    host *h = self;
    for (; h->n_copied < h->marks[which]; h->n_copied++)
        TRY(queue(h, run_copy, &h->later[h->n_copied], sizeof(copy_args), err));
    return TACIT_OK;
}
static tacit_status host_wait_mark(void *self, unsigned which, tacit_error *err)
{
    TRY(host_after_mark(self, which, err));
    return host_wait(self, err);
}

static tacit_status host_order(void *self, tacit_error *err)
{
    (void)self, (void)err;
    return TACIT_OK;
}
static tacit_status host_branch(void *self, unsigned which, tacit_error *err)
{
    (void)self, (void)which, (void)err;
    return TACIT_OK;
}

typedef struct call {
    void (*tell)(void *context);
    void *context;
} call;
static void *call_later(void *context)
{
    call c = *(call *)context;
    free(context);
    usleep(2000); /* as work on a real device would take */
    c.tell(c.context);
    return NULL;
}
static tacit_status host_notify(void *self, void (*tell)(void *), void *context, tacit_error *err)
{
    pthread_t thread;
    call *c = malloc(sizeof *c);
    (void)self;
    if (!c)
        return error_memory(err, "a call");
    *c = (call){tell, context};
    if (pthread_create(&thread, NULL, call_later, c) != 0) {
        free(c);
        return error_memory(err, "a call");
    }
    pthread_detach(thread);
    return TACIT_OK;
}

static const cuda_ops ops = {.alloc = host_alloc,
                             .room = host_room,
                             .release = host_release,
                             .alloc_host = host_alloc_host,
                             .release_host = host_release_host,
                             .copy = host_copy,
                             .clear = host_clear,
                             .keys = host_keys,
                             .step = host_step,
                             .deal = host_deal,
                             .local = host_local,
                             .words = host_words,
                             .product = host_product,
                             .one_hot = host_one_hot,
                             .result = host_result,
                             .split = host_split,
                             .gemm = host_gemm,
                             .pack = host_pack,
                             .unpack = host_unpack,
                             .graph_begin = host_begin,
                             .graph_end = host_end,
                             .graph_run = host_run,
                             .graph_free = host_graph_free,
                             .wait = host_wait,
                             .mark = host_mark,
                             .mark_work = host_mark_work,
                             .wait_mark = host_wait_mark,
                             .after_mark = host_after_mark,
                             .fork = host_order,
                             .branch = host_branch,
                             .join = host_order,
                             .notify = host_notify};

cuda_device host_device_open(uint64_t budget, uint64_t fail_after)
{
    host *h = calloc(1, sizeof *h);
    cuda_device d = {.ops = &ops, .self = h, .memory = budget ? budget : UINT64_MAX};
    snprintf(d.name, sizeof d.name, "host");
    if (h) {
        h->budget = budget;
        h->fail_after = fail_after;
        cuda_fill_table(h->env.table);
    }
    return d;
}
void host_device_lazy(const cuda_device *d)
{
    ((host *)d->self)->lazy = true;
}
uint64_t host_device_held(const cuda_device *d)
{
    return ((const host *)d->self)->held;
}
void host_device_close(cuda_device *d)
{
    free(((host *)d->self)->later);
    free(d->self);
    *d = (cuda_device){0};
}
