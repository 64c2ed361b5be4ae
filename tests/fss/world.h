/* SPDX-License-Identifier: Apache-2.0
 * A dealer and two parties in one process: runs a gate as the real ones would, through packed
 * openings, and holds the result to the simulator. */
#ifndef TEST_FSS_WORLD_H
#define TEST_FSS_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "fss/suite.h"

typedef struct world {
    fss_suite suite;
    fss_dealer dealer;
    fss_party party[2];
    rng r;
    uint64_t next_id;
} world;

static inline void world_init(world *w, fss_prg_id prg, fss_tree tree, uint64_t seed)
{
    uint8_t seeds[2][16];
    w->r = rng_seed(seed);
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < 16; i++)
            seeds[b][i] = (uint8_t)rng_u64(&w->r);
    assert_int_equal(fss_suite_init(&w->suite, prg, tree, NULL, NULL), TACIT_OK);
    fss_dealer_init(&w->dealer, &w->suite, seeds[0], seeds[1]);
    fss_party_init(&w->party[0], &w->suite, 0, seeds[0]);
    fss_party_init(&w->party[1], &w->suite, 1, seeds[1]);
    w->next_id = 1;
}

/* Everything that one run of a gate produced. */
typedef struct trace {
    fss_info info;
    uint8_t *key[2];
    uint64_t *digit_share[2], *digits;       /* [party]; only for gates that compare by digits */
    uint64_t *inner_share[2][2], *opened[2]; /* [party][vector] */
    uint64_t *out_share[2][2], *out_mask[2], *result[2], *sim[2];
} trace;

static inline uint64_t *words_new(size_t n)
{
    uint64_t *p = calloc(n ? n : 1, 8);
    assert_non_null(p);
    return p;
}

static inline void trace_free(trace *t)
{
    free(t->digits);
    for (int v = 0; v < 2; v++) {
        free(t->key[v]);
        free(t->digit_share[v]);
        free(t->opened[v]);
        free(t->out_mask[v]);
        free(t->result[v]);
        free(t->sim[v]);
        for (int b = 0; b < 2; b++) {
            free(t->inner_share[b][v]);
            free(t->out_share[b][v]);
        }
    }
}

/* A random multiple of FSS_RANGE in (at, count], or count. */
static inline size_t world_cut(world *w, size_t at, size_t count)
{
    size_t end = at + FSS_RANGE * (1 + rng_below(&w->r, 20));
    return end < count ? end : count;
}

/* Deal into buffers of exactly the stated size; every byte of them must be written. */
static inline void world_deal(world *w, const fss_gate *g, trace *t, const fss_mask *in)
{
    uint8_t *again[2];
    uint64_t *const *out = g->kind == FSS_SHARE ? NULL : t->out_mask;
    for (int b = 0; b < 2; b++) {
        t->key[b] = malloc(t->info.key_bytes[b] + 1);
        again[b] = malloc(t->info.key_bytes[b] + 1);
        memset(t->key[b], 0x00, t->info.key_bytes[b] + 1);
        memset(again[b], 0xff, t->info.key_bytes[b] + 1);
    }
    tacit_error err;
    assert_int_equal(fss_gate_deal(&w->dealer, g, &t->info, in, out, again, 0, g->count, &err),
                     TACIT_OK);
    for (size_t at = 0, end; at < g->count; at = end) {
        end = world_cut(w, at, g->count);
        assert_int_equal(fss_gate_deal(&w->dealer, g, &t->info, in, out, t->key, at, end, &err),
                         TACIT_OK);
    }
    for (int b = 0; b < 2; b++) {
        assert_memory_equal(t->key[b], again[b], t->info.key_bytes[b]);
        assert_int_equal(t->key[b][t->info.key_bytes[b]], 0x00);
        assert_int_equal(again[b][t->info.key_bytes[b]], 0xff);
        free(again[b]);
    }
}

/* Exchange packed shares; checks that both parties see the same words, and counts the bits. */
static inline void world_open(const fss_vector *v, size_t count, uint64_t *share[2], uint64_t *open,
                              uint64_t *bits)
{
    size_t n = v->rows * count, size = fss_pack_bytes(v->bits, n);
    uint8_t *bytes[2] = {malloc(size + 1), malloc(size + 1)};
    uint64_t *other = words_new(n);
    for (int b = 0; b < 2; b++)
        fss_pack(bytes[b], v->bits, share[b], n);
    memcpy(open, share[0], n * 8);
    memcpy(other, share[1], n * 8);
    fss_unpack_add(open, v->bits, bytes[1], n);
    fss_unpack_add(other, v->bits, bytes[0], n);
    assert_memory_equal(open, other, n * 8);
    *bits += (uint64_t)n * v->bits;
    free(bytes[0]);
    free(bytes[1]);
    free(other);
}

static inline void world_step(world *w, const fss_gate *g, trace *t, unsigned step,
                              const uint64_t *const *masked, uint64_t *const share[2][4])
{
    bool last = step + 1u == t->info.steps, digits = t->info.digits.rows && step == 0;
    for (unsigned b = 0; b < 2; b++) {
        fss_io io = {.key = t->key[b]};
        for (unsigned k = 0; k < FSS_MAX_INPUTS; k++) {
            io.in[k] = k < t->info.inputs ? masked[k] : NULL;
            io.mask_share[k] = share[b][k];
        }
        for (unsigned v = 0; v < 2; v++) {
            io.opened[v] = t->info.digits.rows && step == 1 ? t->digits : t->opened[v];
            io.out[v] = digits ? t->digit_share[b]
                        : last ? t->out_share[b][v]
                               : t->inner_share[b][v];
        }
        for (size_t at = 0, end; at < g->count; at = end) {
            end = world_cut(w, at, g->count);
            fss_gate_step(&w->party[b], g, &t->info, step, &io, at, end);
        }
    }
}

static inline void world_alloc(const fss_gate *g, trace *t)
{
    t->digits = words_new(g->count * t->info.digits.rows);
    t->digit_share[0] = words_new(g->count * t->info.digits.rows);
    t->digit_share[1] = words_new(g->count * t->info.digits.rows);
    for (unsigned v = 0; v < 2; v++) {
        size_t n = g->count * t->info.out[v].rows, m = g->count * t->info.inner[v].rows;
        t->opened[v] = words_new(m);
        t->out_mask[v] = words_new(n);
        t->result[v] = words_new(n);
        t->sim[v] = words_new(n);
        for (int b = 0; b < 2; b++) {
            t->inner_share[b][v] = words_new(m);
            t->out_share[b][v] = words_new(n);
        }
    }
}

/* Shares of every mask that the gate needs shares of, by the gate that makes them. */
static inline void world_share(world *w, const fss_gate *g, const trace *t, const fss_mask *in,
                               uint64_t *share[2][4])
{
    for (unsigned k = 0; k < t->info.inputs; k++) {
        if (!t->info.needs_share[k])
            continue;
        fss_gate s = {.kind = FSS_SHARE,
                      .id = w->next_id++,
                      .count = g->count,
                      .in_bits = t->info.in_bits[k],
                      .heavy = g->heavy};
        fss_info info;
        assert_int_equal(fss_gate_info(&w->suite, &s, &info, NULL), TACIT_OK);
        uint8_t *key[2] = {malloc(info.key_bytes[0] + 1), malloc(info.key_bytes[1] + 1)};
        assert_int_equal(fss_gate_deal(&w->dealer, &s, &info, &in[k], NULL, key, 0, g->count, NULL),
                         TACIT_OK);
        for (unsigned b = 0; b < 2; b++) {
            share[b][k] = words_new(g->count);
            fss_io io = {.key = key[b], .out = {share[b][k]}};
            fss_gate_step(&w->party[b], &s, &info, 0, &io, 0, g->count);
        }
        for (size_t i = 0; i < g->count; i++)
            assert_true(fss_low(share[0][k][i] + share[1][k][i], s.in_bits) == in[k].r[i]);
        free(key[0]);
        free(key[1]);
    }
}

/* Run gate g on cleartext x under masks r. Asserts result == simulator for every element and that
 * the planner's numbers are the real ones. The trace stays for further checks. */
static inline void world_run(world *w, fss_gate *g, const uint64_t *const *x,
                             const uint64_t *const *r, trace *t)
{
    tacit_error err = {0};
    memset(t, 0, sizeof *t);
    g->id = w->next_id++;
    if (fss_gate_info(&w->suite, g, &t->info, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    world_alloc(g, t);
    fss_mask in[4];
    uint64_t *masked[4] = {0}, *share[2][4] = {{0}};
    for (unsigned k = 0; k < t->info.inputs; k++) {
        in[k] = (fss_mask){r[k], g->count};
        masked[k] = words_new(g->count);
        for (size_t i = 0; i < g->count; i++)
            masked[k][i] = fss_low(x[k][i] + r[k][i], t->info.in_bits[k]);
    }
    world_deal(w, g, t, in);
    world_share(w, g, t, in, share);
    const uint64_t *const *public = (const uint64_t *const *)masked;
    uint64_t bits = 0, out_bits = 0;
    for (unsigned step = 0; step < t->info.steps; step++) {
        fss_vector made[2];
        world_step(w, g, t, step, public, share);
        unsigned vectors = fss_step_vectors(&t->info, step, made);
        for (unsigned v = 0; v < vectors && step + 1u < t->info.steps; v++) {
            bool digits = t->info.digits.rows && step == 0;
            uint64_t *both[2] = {digits ? t->digit_share[0] : t->inner_share[0][v],
                                 digits ? t->digit_share[1] : t->inner_share[1][v]};
            world_open(&made[v], g->count, both, digits ? t->digits : t->opened[v], &bits);
        }
    }
    fss_gate_sim(g, &t->info, x, public, t->sim, 0, g->count);
    for (unsigned v = 0; v < t->info.out_vectors; v++) {
        uint64_t *both[2] = {t->out_share[0][v], t->out_share[1][v]};
        world_open(&t->info.out[v], g->count, both, t->result[v], &out_bits);
        for (size_t i = 0; i < g->count * t->info.out[v].rows; i++) {
            uint64_t y = fss_low(t->result[v][i] - t->out_mask[v][i], t->info.out[v].bits);
            if (y != t->sim[v][i])
                fail_msg(
                    "%s in %u out %u eff %u shift %u: element %zu x %llx r %llx: %llx, not %llx",
                    fss_kind_name(g->kind), g->in_bits, t->info.out[v].bits, g->eff_bits, g->shift,
                    i, (unsigned long long)x[0][i % g->count],
                    (unsigned long long)r[0][i % g->count], (unsigned long long)y,
                    (unsigned long long)t->sim[v][i]);
            t->result[v][i] = y;
        }
    }
    fss_cost cost;
    assert_int_equal(fss_gate_cost(&w->suite, g, &cost, NULL), TACIT_OK);
    assert_true(cost.wire_bits == bits && cost.out_bits == out_bits);
    assert_int_equal(cost.rounds, t->info.steps - 1);
    assert_true(cost.key_bytes[0] == t->info.key_bytes[0] &&
                cost.key_bytes[1] == t->info.key_bytes[1]);
    for (unsigned k = 0; k < 4; k++) {
        free(masked[k]);
        free(share[0][k]);
        free(share[1][k]);
    }
}

/* As world_run for a gate of one input, and nothing kept. */
static inline void world_check1(world *w, fss_gate *g, const uint64_t *x, const uint64_t *r)
{
    trace t;
    world_run(w, g, &x, &r, &t);
    trace_free(&t);
}

/* x over the whole ring for each of the masks: all of them up to `all_masks` bits, else a sample
 * with the edges 0, 1, -1, 2^(n-1) and all-zero low bits. Returns the number of elements. */
static inline size_t world_grid(world *w, unsigned bits, unsigned all_masks, uint64_t **x,
                                uint64_t **r)
{
    size_t size = (size_t)1 << bits, masks = bits <= all_masks ? size : 16;
    *x = words_new(size * masks);
    *r = words_new(size * masks);
    for (size_t m = 0; m < masks; m++) {
        uint64_t edge[] = {0, 1, size - 1, size / 2, size / 2 - 1, size / 4};
        uint64_t mask = bits <= all_masks ? m
                        : m < 6           ? edge[m]
                        : m < 9           ? rng_below(&w->r, size) & ~(uint64_t)15
                                          : rng_below(&w->r, size);
        for (size_t i = 0; i < size; i++) {
            (*x)[m * size + i] = i;
            (*r)[m * size + i] = mask;
        }
    }
    return size * masks;
}

/* n words of `bits` with the edges of both signs first; |value| < 2^(fit-1) as a signed number. */
static inline uint64_t *world_values(world *w, size_t n, unsigned bits, unsigned fit)
{
    uint64_t *x = words_new(n), half = (uint64_t)1 << (fit - 1);
    uint64_t edge[] = {0,
                       1,
                       ~(uint64_t)0,
                       half - 1,
                       0 - half,
                       half / 2,
                       0 - half / 2,
                       half / 2 - 1,
                       0 - half / 2 - 1,
                       127,
                       128,
                       0 - (uint64_t)128};
    for (size_t i = 0; i < n; i++) {
        uint64_t v = i < 12 ? edge[i] : rng_u64(&w->r);
        x[i] = fss_low((uint64_t)fss_signed(v, fit), bits);
    }
    return x;
}

/* n uniform masks; every eighth has an edge: zero, low part zero, top bit alone. */
static inline uint64_t *world_masks(world *w, size_t n, unsigned bits)
{
    uint64_t *r = words_new(n);
    for (size_t i = 0; i < n; i++) {
        uint64_t v = rng_u64(&w->r);
        if (i % 8 == 7)
            v = i % 32 == 7    ? 0
                : i % 32 == 15 ? v & ~(uint64_t)0xfff
                : i % 32 == 23 ? (uint64_t)1 << (bits - 1)
                               : ~(uint64_t)0;
        r[i] = fss_low(v, bits);
    }
    return r;
}

#endif
