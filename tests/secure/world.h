/* SPDX-License-Identifier: Apache-2.0
 * A dealer, a server and a client in one process: the parties are two threads over a socket pair,
 * the keys lie in memory, the oracle is the simulator (bit for bit) and the evaluators (nearly). */
#ifndef TEST_SECURE_WORLD_H
#define TEST_SECURE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rng.h"
#include "ir/text.h"
#include "op/op.h"
#include "pass/pass.h"
#include "secure/program.h"

typedef struct world {
    arena memory;
    ir_graph *graph;
    sec_program *p;
    rng r;
    ir_tensor *in[8], *out[8], *sim[8], *plain[8];
    const ir_tensor **values; /* not NULL: what every value is in the clear */
    double *seen;             /* by value: largest sizes, for calibrated modes */
    tacit_error err;
} world;

/* The text with a name behind every node, which the grammar wants and these tests do not. */
static inline char *named_nodes(const char *text)
{
    char *out = malloc(2 * strlen(text) + 64), *to = out;
    unsigned n = 0;
    bool node = false;
    for (; *text; text++) {
        if (*text == '\n' && node)
            to += sprintf(to, " @n%u", n++);
        node = *text != '\n' && (node || *text == '(');
        *to++ = *text;
    }
    *to = 0;
    return out;
}

/* A graph from its text; constants written as "..." get random contents of this size. */
static inline void world_graph(world *w, const char *text, uint64_t seed, double size)
{
    memset(w, 0, sizeof *w);
    arena_init(&w->memory, NULL);
    w->r = rng_seed(seed);
    char *named = named_nodes(text);
    if (ir_graph_parse(named, strlen(named), &w->memory, &w->graph, &w->err) != TACIT_OK)
        fail_msg("%s", w->err.message);
    free(named);
    for (uint32_t i = 0; i < w->graph->values.count; i++) {
        ir_value *v = w->graph->values.data[i];
        if (!v->constant || v->constant->data)
            continue;
        ir_tensor *t = ir_tensor_new(&w->memory, v->type.dtype, &v->type.shape);
        for (int64_t k = 0; k < ir_tensor_count(t); k++)
            ir_store_f64(t->dtype, t->data, k, rng_range(&w->r, -size, size));
        v->constant = t;
    }
    for (uint32_t i = 0; i < w->graph->nodes.count; i++)
        op_resolve(NULL, w->graph->nodes.data[i]);
    if (ir_graph_sort(w->graph, &w->err) != TACIT_OK ||
        op_infer_graph(w->graph, &w->err) != TACIT_OK)
        fail_msg("%s", w->err.message);
}

static inline sec_mode world_mode(void)
{
    return (sec_mode){.weights = SEC_SERVER, .frac = 12, .weight_frac = 12, .input_bound = 4};
}

static inline tacit_status world_compile(world *w, sec_mode mode)
{
    sec_options o = {.mode = mode, .calibration = w->seen, .n_calibration = w->graph->values.count};
    return sec_compile(w->graph, &o, NULL, &w->p, &w->err);
}

static inline void world_end(world *w)
{
    sec_program_free(w->p);
    arena_free(&w->memory);
}

static inline void world_inputs(world *w, double size)
{
    for (uint32_t i = 0; i < w->graph->inputs.count; i++) {
        const ir_type *t = &w->graph->inputs.data[i]->type;
        w->in[i] = ir_tensor_new(&w->memory, t->dtype, &t->shape);
        for (int64_t k = 0; k < ir_tensor_count(w->in[i]); k++) {
            if (ir_dtype_is_float(t->dtype))
                ir_store_f64(t->dtype, w->in[i]->data, k, rng_range(&w->r, -size, size));
            else
                ir_store_i64(t->dtype, w->in[i]->data, k,
                             (int64_t)rng_below(&w->r, (uint64_t)size));
        }
    }
    for (uint32_t i = 0; i < w->graph->outputs.count; i++) {
        const ir_type *t = &w->graph->outputs.data[i]->type;
        w->out[i] = ir_tensor_new(&w->memory, t->dtype, &t->shape);
        w->sim[i] = ir_tensor_new(&w->memory, t->dtype, &t->shape);
        memset(w->out[i]->data, 0xa5, w->out[i]->bytes);
    }
}

/* The evaluators' answer. */
static inline void world_plain(world *w)
{
    const ir_graph *g = w->graph;
    const ir_tensor **value = calloc(g->values.count, sizeof *value);
    for (uint32_t i = 0; i < g->values.count; i++)
        value[i] = g->values.data[i]->constant;
    for (uint32_t i = 0; i < g->inputs.count; i++)
        value[g->inputs.data[i]->id] = w->in[i];
    op_exec_env env = {.memory = &w->memory};
    for (uint32_t i = 0; i < g->nodes.count; i++) {
        const ir_node *n = g->nodes.data[i];
        const ir_tensor *in[24] = {0};
        ir_tensor *results = ARENA_ARRAY(&w->memory, n->n_outputs, ir_tensor);
        for (uint32_t k = 0; k < n->n_inputs; k++)
            in[k] = n->inputs[k] ? value[n->inputs[k]->id] : NULL;
        if (op_execute(n, in, results, &env, &w->err) != TACIT_OK)
            fail_msg("%s", w->err.message);
        for (uint32_t k = 0; k < n->n_outputs; k++)
            if (n->outputs[k])
                value[n->outputs[k]->id] = &results[k];
        for (uint32_t k = 0; k < n->n_outputs && w->seen; k++)
            for (int64_t e = 0; n->outputs[k] && e < ir_tensor_count(&results[k]); e++)
                w->seen[n->outputs[k]->id] =
                    fmax(w->seen[n->outputs[k]->id],
                         fabs(ir_load_f64(results[k].dtype, results[k].data, e)));
    }
    for (uint32_t i = 0; i < g->outputs.count; i++)
        w->plain[i] = (ir_tensor *)value[g->outputs.data[i]->id];
    if (w->values)
        memcpy(w->values, value, g->values.count * sizeof *value);
    free(value);
}

/* Sizes of everything on the inputs there are, times two, as calibration takes them. */
static inline void world_calibrate(world *w)
{
    w->seen = ARENA_ARRAY(&w->memory, w->graph->values.count + 1u, double);
    world_plain(w);
    for (uint32_t i = 0; i < w->graph->values.count; i++)
        w->seen[i] *= 2;
}

/* ---- keys in memory, messages through a socket ---- */

typedef struct memory_key {
    uint8_t *data;
    size_t size, at, capacity;
} memory_key;

static inline tacit_status key_append(void *context, unsigned party, const void *data, size_t size,
                                      tacit_error *err)
{
    (void)err;
    memory_key *k = (memory_key *)context + party;
    if (k->size + size > k->capacity) {
        k->capacity = 2 * (k->size + size);
        k->data = realloc(k->data, k->capacity);
    }
    memcpy(k->data + k->size, data, size);
    k->size += size;
    return TACIT_OK;
}

static inline tacit_status key_take(void *context, void *data, size_t size, tacit_error *err)
{
    memory_key *k = context;
    if (k->at + size > k->size)
        return error_set(err, TACIT_ERR_FORMAT, "the key is too short");
    memcpy(data, k->data + k->at, size);
    k->at += size;
    return TACIT_OK;
}

typedef struct side {
    world *w;
    int fd, other;
    fss_party party;
    memory_key *key;
    uint64_t run, messages, stop_after; /* 0: never */
    uint64_t widen;                     /* not 0: this message gets a bit behind its last word */
    uint8_t *sent;                      /* everything it sent */
    size_t sent_size;
    tacit_status status;
    tacit_error err;
} side;

typedef struct sending {
    int fd;
    const uint8_t *data;
    size_t size;
} sending;

static inline void *send_all(void *context)
{
    sending *s = context;
    for (size_t at = 0; at < s->size;) {
        ssize_t n = send(s->fd, s->data + at, s->size - at, MSG_NOSIGNAL);
        if (n <= 0)
            return (void *)1;
        at += (size_t)n;
    }
    return NULL;
}

static inline tacit_status swap_bytes(void *context, const void *out, size_t out_size, void *in,
                                      size_t in_size, tacit_error *err)
{
    side *s = context;
    s->messages++;
    if (s->stop_after && s->messages > s->stop_after) {
        close(s->fd);
        return error_set(err, TACIT_ERR_PEER, "stopped by the test");
    }
    if (s->sent) {
        s->sent = realloc(s->sent, s->sent_size + out_size + 1);
        if (out_size)
            memcpy(s->sent + s->sent_size, out, out_size);
        s->sent_size += out_size;
    }
    uint8_t *changed = s->widen && s->messages == s->widen && out_size ? malloc(out_size) : NULL;
    if (changed) {
        memcpy(changed, out, out_size);
        changed[out_size - 1] |= 0x80;
        out = changed;
    }
    sending job = {s->fd, out, out_size};
    pthread_t sender;
    void *failed = NULL;
    assert_int_equal(pthread_create(&sender, NULL, send_all, &job), 0);
    bool lost = false;
    for (size_t at = 0; at < in_size && !lost;) {
        ssize_t n = recv(s->fd, (uint8_t *)in + at, in_size - at, 0);
        lost = n <= 0;
        at += n > 0 ? (size_t)n : 0;
    }
    if (lost)
        shutdown(s->fd, SHUT_RDWR);
    pthread_join(sender, &failed);
    free(changed);
    return lost || failed ? error_set(err, TACIT_ERR_PEER, "the peer is gone") : TACIT_OK;
}

static inline void *run_side(void *context)
{
    side *s = context;
    sec_link link = {
        .key_read = key_take, .key_context = s->key, .exchange = swap_bytes, .context = s};
    sec_weights weights = {.threads = 1 + (unsigned)s->run % 3};
    s->status = sec_weights_exchange(s->w->p, &s->party, &link, &weights, &s->err);
    if (s->status == TACIT_OK)
        s->status = sec_party_run(s->w->p, &s->party, s->run, &link, &weights,
                                  (const ir_tensor *const *)s->w->in, s->w->out, &s->err);
    if (s->status != TACIT_OK)
        shutdown(s->fd, SHUT_RDWR); /* the other one must not wait */
    sec_weights_free(s->w->p, &weights);
    return NULL;
}

static inline void world_seeds(world *w, uint8_t seed[2][16])
{
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < 16; i++)
            seed[b][i] = (uint8_t)rng_u64(&w->r);
}

/* Both parties at once, joined by a socket: `body` gets one of the sides, which are (or begin with)
 * a side. `key` may be NULL where the sides have keys of their own. */
static inline void world_run_both(world *w, uint64_t run, memory_key *key, uint8_t seed[2][16],
                                  void *(*body)(void *), side *first, side *second)
{
    side *const s[2] = {first, second};
    int fds[2];
    pthread_t thread[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    for (unsigned b = 0; b < 2; b++) {
        s[b]->w = w;
        s[b]->fd = fds[b];
        s[b]->key = key ? &key[b] : NULL;
        s[b]->run = run;
        fss_party_init(&s[b]->party, &w->p->suite, b, seed[b]);
        assert_int_equal(pthread_create(&thread[b], NULL, body, s[b]), 0);
    }
    for (int b = 0; b < 2; b++)
        pthread_join(thread[b], NULL);
    close(fds[0]);
    close(fds[1]);
}

/* Deals, runs both parties, and the twin where both succeed; the sides' results are in `s`. */
static inline void world_deal_and_run(world *w, uint64_t run, side s[2], bool twin)
{
    uint8_t seed[2][16];
    memory_key key[2] = {{0}};
    fss_dealer dealer;
    world_seeds(w, seed);
    fss_dealer_init(&dealer, &w->p->suite, seed[0], seed[1]);
    if (sec_deal(w->p, &dealer, run, key_append, key, &w->err) != TACIT_OK)
        fail_msg("%s", w->err.message);
    for (unsigned b = 0; b < 2; b++)
        assert_int_equal(key[b].size, w->p->key_bytes[b]);
    world_run_both(w, run, key, seed, run_side, &s[0], &s[1]);
    if (s[0].status == TACIT_OK && s[1].status == TACIT_OK && twin) {
        for (int b = 0; b < 2; b++)
            assert_int_equal(key[b].at, key[b].size);
        if (sec_simulate(w->p, &dealer, run, (const ir_tensor *const *)w->in, w->sim, &w->err) !=
            TACIT_OK)
            fail_msg("%s", w->err.message);
    }
    free(key[0].data);
    free(key[1].data);
}

static inline void world_parties(world *w, uint64_t run, side s[2])
{
    world_deal_and_run(w, run, s, true);
}
static inline void world_parties_quietly(world *w, uint64_t run, side s[2])
{
    world_deal_and_run(w, run, s, false);
}

/* Parties equal simulator bit for bit, and the plain answer within `tolerance`. */
static inline void world_check(world *w, uint64_t run, double tolerance)
{
    side s[2] = {{0}};
    world_parties(w, run, s);
    for (int b = 0; b < 2; b++)
        if (s[b].status != TACIT_OK)
            fail_msg("party %d: %s", b, s[b].err.message);
    world_plain(w);
    for (uint32_t i = 0; i < w->graph->outputs.count; i++) {
        assert_memory_equal(w->out[i]->data, w->sim[i]->data, w->out[i]->bytes);
        double worst = 0;
        for (int64_t k = 0; k < ir_tensor_count(w->out[i]); k++)
            worst = fmax(worst, fabs(ir_load_f64(w->out[i]->dtype, w->out[i]->data, k) -
                                     ir_load_f64(w->plain[i]->dtype, w->plain[i]->data, k)));
        if (!(worst <= tolerance))
            fail_msg("output %u is off by %g, not within %g", i, worst, tolerance);
    }
}

/* All of it for one graph in one mode. */
static inline void world_case(const char *text, uint64_t seed, double weights, double inputs,
                              sec_mode mode, double tolerance)
{
    world w;
    world_graph(&w, text, seed, weights);
    if (world_compile(&w, mode) != TACIT_OK)
        fail_msg("%s", w.err.message);
    world_inputs(&w, inputs);
    world_check(&w, 1, tolerance);
    world_end(&w);
}

#endif
