/* SPDX-License-Identifier: Apache-2.0
 * One core: comparison walks, look-ups, key generation, ring products.
 * Usage: bench_fss [PREFIX]   only entries whose name begins with PREFIX
 * Peers are published or previously measured figures, named beside each; with TACIT_BENCH_JSONL set
 * every line is also appended to that file. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "fss/ring.h"
#include "fss/suite.h"
#include "lines.h"

typedef struct entry {
    const char *name;
    double (*run)(void *ctx); /* units per second */
    const char *unit;
    double peer;
    const char *peer_name;
} entry;

typedef struct world {
    fss_suite suite;
    fss_dealer dealer;
    fss_party party;
    rng r;
    bool failed;
} world;

static double seconds_since(uint64_t start)
{
    return (double)(clock_ns() - start) * 1e-9;
}

/* Best of several runs of at least `least` seconds each: the machine is shared. */
typedef void (*work_fn)(void *ctx);
static double best_rate(work_fn work, void *ctx, double units, double least)
{
    double best = 0;
    for (int round = 0; round < 5; round++) {
        uint64_t start = clock_ns();
        long runs = 0;
        do {
            work(ctx);
            runs++;
        } while (seconds_since(start) < least);
        best = fmax(best, units * (double)runs / seconds_since(start));
    }
    return best;
}

typedef struct gate_run {
    world *w;
    fss_gate gate;
    fss_info info;
    uint8_t *key[2];
    uint64_t *in[2], *mask[2], *out;
    fss_io io;
} gate_run;

static bool gate_open(gate_run *g, world *w, fss_gate gate)
{
    tacit_error err;
    memset(g, 0, sizeof *g);
    g->w = w;
    g->gate = gate;
    if (fss_gate_info(&w->suite, &g->gate, &g->info, &err) != TACIT_OK) {
        fprintf(stderr, "bench_fss: %s\n", err.message);
        return false;
    }
    unsigned rows = 1;
    for (unsigned v = 0; v < 2; v++) {
        rows = g->info.out[v].rows > rows ? g->info.out[v].rows : rows;
        rows = g->info.inner[v].rows > rows ? g->info.inner[v].rows : rows;
        g->key[v] = mem_alloc_zero(NULL, g->info.key_bytes[v] + 64);
        g->in[v] = mem_alloc(NULL, gate.count * 8);
        g->mask[v] = mem_alloc(NULL, gate.count * 8);
    }
    /* what step 0 writes, and what step 1 takes as opened */
    rows += 2u * g->info.digits.rows + g->info.inner[0].rows;
    g->out = mem_alloc_zero(NULL, rows * gate.count * 8);
    if (!g->key[0] || !g->key[1] || !g->in[0] || !g->in[1] || !g->mask[0] || !g->mask[1] || !g->out)
        return false;
    for (unsigned v = 0; v < g->info.inputs; v++)
        for (size_t i = 0; i < gate.count; i++) {
            g->in[v][i] = fss_low(rng_u64(&w->r), g->info.in_bits[v]);
            g->mask[v][i] = fss_low(rng_u64(&w->r), g->info.in_bits[v]);
        }
    g->io = (fss_io){.key = g->key[0], .in = {g->in[0], g->in[1]}, .out = {g->out, g->out}};
    return true;
}

static void gate_close(gate_run *g)
{
    for (int v = 0; v < 2; v++) {
        mem_release(NULL, g->key[v], 0);
        mem_release(NULL, g->in[v], 0);
        mem_release(NULL, g->mask[v], 0);
    }
    mem_release(NULL, g->out, 0);
}

static void deal_once(void *ctx)
{
    gate_run *g = ctx;
    fss_mask in[2] = {{g->mask[0], g->gate.count}, {g->mask[1], g->gate.count}};
    uint64_t *out[2] = {g->out, g->out};
    if (fss_gate_deal(&g->w->dealer, &g->gate, &g->info, in, out, g->key, 0, g->gate.count, NULL) !=
        TACIT_OK)
        g->w->failed = true;
}

static void step_once(void *ctx)
{
    gate_run *g = ctx;
    fss_gate_step(&g->w->party, &g->gate, &g->info, 0, &g->io, 0, g->gate.count);
}

static double gate_rate(world *w, fss_gate gate, bool deal)
{
    gate_run g;
    double rate = 0;
    gate.id = 1;
    if (gate_open(&g, w, gate)) {
        deal_once(&g);
        rate = best_rate(deal ? deal_once : step_once, &g, (double)gate.count, 0.05);
    }
    gate_close(&g);
    return rate;
}

/* Keys in memory, far larger than the caches: 2^18 comparisons of 33 bits are 113 MB. */
static double cmp33(void *w)
{
    return gate_rate(w, (fss_gate){.kind = FSS_DRELU, .in_bits = 34, .count = 1 << 18}, false) /
           1e6;
}
static double cmp20(void *w)
{
    return gate_rate(w, (fss_gate){.kind = FSS_DRELU, .in_bits = 21, .count = 1 << 18}, false) /
           1e6;
}
static double cmp33_cache(void *w)
{
    return gate_rate(w, (fss_gate){.kind = FSS_DRELU, .in_bits = 34, .count = 1024}, false) / 1e6;
}
static double cmp12(void *w)
{
    return gate_rate(w, (fss_gate){.kind = FSS_DRELU, .in_bits = 13, .count = 1 << 18}, false) /
           1e6;
}
/* Both steps of a comparison by digits: opening the digits, then combining them. */
static void digits_once(void *ctx)
{
    gate_run *g = ctx;
    for (unsigned step = 0; step < 2; step++)
        fss_gate_step(&g->w->party, &g->gate, &g->info, step, &g->io, 0, g->gate.count);
}
static double digits(world *w, unsigned bits, bool deal)
{
    gate_run g;
    double rate = 0;
    fss_gate gate = {.kind = FSS_DRELU,
                     .id = 1,
                     .in_bits = (uint8_t)(bits + 1),
                     .digits = true,
                     .count = 1 << 15};
    if (gate_open(&g, w, gate)) {
        deal_once(&g);
        memset(g.out, 0, gate.count * g.info.digits.rows * 8);
        g.io.opened[0] = g.out + (size_t)g.info.digits.rows * gate.count;
        rate = best_rate(deal ? deal_once : digits_once, &g, (double)gate.count, 0.05) / 1e6;
    }
    gate_close(&g);
    return rate;
}
static double digits33(void *w)
{
    return digits(w, 33, false);
}
static double digits12(void *w)
{
    return digits(w, 12, false);
}
/* Truncation by 12 of 40 bits, both steps. */
static double wide12(void *world_)
{
    gate_run g;
    double rate = 0;
    fss_gate gate = {
        .kind = FSS_GAP, .id = 1, .in_bits = 40, .shift = 12, .wide = true, .count = 1 << 15};
    if (gate_open(&g, world_, gate)) {
        deal_once(&g);
        memset(g.out, 0, gate.count * g.info.inner[0].rows * 8);
        g.io.opened[0] = g.out + (size_t)g.info.inner[0].rows * gate.count;
        rate = best_rate(digits_once, &g, (double)gate.count, 0.05) / 1e6;
    }
    gate_close(&g);
    return rate;
}
static double keygen_digits33(void *w)
{
    return digits(w, 33, true);
}
static double keygen33(void *w)
{
    return gate_rate(w, (fss_gate){.kind = FSS_DRELU, .in_bits = 34, .count = 1 << 14}, true) / 1e6;
}
static double keygen20(void *w)
{
    return gate_rate(w, (fss_gate){.kind = FSS_DRELU, .in_bits = 21, .count = 1 << 14}, true) / 1e6;
}
static double keygen_gap(void *w)
{
    fss_gate g = {.kind = FSS_GAP, .in_bits = 51, .shift = 12, .count = 1 << 14};
    return gate_rate(w, g, true) / 1e6;
}
static double gap_eval(void *w)
{
    fss_gate g = {.kind = FSS_GAP, .in_bits = 51, .shift = 12, .count = 1 << 16};
    return gate_rate(w, g, false) / 1e6;
}
static double lut(world *w, unsigned bits)
{
    uint64_t *table = mem_alloc_zero(NULL, (size_t)8 << bits);
    if (!table)
        return 0;
    for (size_t i = 0; i < (size_t)1 << bits; i++)
        table[i] = rng_u64(&w->r);
    fss_gate g = {.kind = FSS_LUT,
                  .index_bits = (uint8_t)bits,
                  .out_bits = 50,
                  .table = table,
                  .count = 1 << 13};
    double rate = gate_rate(w, g, false) / 1e6;
    mem_release(NULL, table, (size_t)8 << bits);
    return rate;
}
static double lut8(void *w)
{
    return lut(w, 8);
}
static double lut11(void *w)
{
    return lut(w, 11);
}

typedef struct gemm_run {
    fss_gemm_set set;
    fss_gemm_args args;
    unsigned bits;
} gemm_run;

static void gemm_once(void *ctx)
{
    gemm_run *g = ctx;
    fss_gemm(&g->set, g->bits, &g->args);
}

static double gemm(world *w, unsigned bits)
{
    enum { M = 128, N = 768, K = 768 };
    uint64_t *a = mem_alloc(NULL, M * K * 8), *b = mem_alloc(NULL, K * N * 8);
    uint64_t *c = mem_alloc(NULL, M * N * 8);
    double rate = 0;
    if (a && b && c) {
        for (size_t i = 0; i < M * K; i++)
            a[i] = fss_low(rng_u64(&w->r), bits);
        for (size_t i = 0; i < K * N; i++)
            b[i] = fss_low(rng_u64(&w->r), bits);
        gemm_run g = {fss_gemm_detect(), {M, N, K, a, b, c, K, N, N, FSS_GEMM_SET}, bits};
        rate = best_rate(gemm_once, &g, (double)M * N * K, 0.1) / 1e9;
    }
    mem_release(NULL, a, M * K * 8);
    mem_release(NULL, b, K * N * 8);
    mem_release(NULL, c, M * N * 8);
    return rate;
}
static double gemm52(void *w)
{
    return gemm(w, 52);
}
static double gemm64(void *w)
{
    return gemm(w, 64);
}

static const entry entries[] = {
    {"fss/dpf_cmp33", cmp33, "M/s", 15, "target"},
    {"fss/dpf_cmp20", cmp20, "M/s", 40, "target"},
    {"fss/dpf_cmp33_cache", cmp33_cache, "M/s", 31, "prototype, Ice Lake"},
    {"fss/dpf_cmp12", cmp12, "M/s", 82, "prototype, Ice Lake"},
    {"fss/digits_cmp33", digits33, "M/s", 15, "target of the tree"},
    {"fss/digits_cmp12", digits12, "M/s", 40, "target of the tree at 20 bits"},
    {"fss/gap_wide", wide12, "M/s", 15, "target of the comparison at 33 bits"},
    {"fss/gap_trunc", gap_eval, "M/s", 82, "prototype comparison, Ice Lake"},
    {"fss/keygen_cmp33", keygen33, "M/s", 1, "target"},
    {"fss/keygen_digits33", keygen_digits33, "M/s", 1, "target"},
    {"fss/keygen_cmp20", keygen20, "M/s", 2.16, "myl7/fss 20-bit gen, Ice Lake"},
    {"fss/keygen_gap", keygen_gap, "M/s", 2.16, "myl7/fss 20-bit gen, Ice Lake"},
    {"fss/lut8", lut8, "M/s", 58, "prototype sum alone, Ice Lake"},
    {"fss/lut11", lut11, "M/s", 6.9, "prototype sum alone, Ice Lake"},
    {"fss/ring_gemm_ifma", gemm52, "GMAC/s", 20, "target"},
    {"fss/ring_gemm_64", gemm64, "GMAC/s", 7, "target"},
};

int main(int argc, char **argv)
{
    const char *prefix = argc > 1 ? argv[1] : "";
    static world w;
    uint8_t seed[2][16] = {{1}, {2}};
    tacit_error err;
    if (fss_suite_init(&w.suite, FSS_PRG_AES, FSS_TREE_HALF, NULL, &err) != TACIT_OK) {
        fprintf(stderr, "bench_fss: %s\n", err.message);
        return 1;
    }
    fss_dealer_init(&w.dealer, &w.suite, seed[0], seed[1]);
    fss_party_init(&w.party, &w.suite, 0, seed[0]);
    w.r = rng_seed(1);
    printf("generator %s, products %s / %s\n", w.suite.prg.backend, fss_gemm_detect().narrow_name,
           fss_gemm_detect().wide_name);
    printf("%-24s %10s %10s %-8s %7s  %s\n", "bench", "ours", "peer", "unit", "ratio", "peer name");
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const entry *e = &entries[i];
        if (!bench_wanted(e->name, prefix))
            continue;
        double ours = e->run(&w), ratio = ours / e->peer;
        printf("%-24s %10.2f %10.2f %-8s %7.2f  %s\n", e->name, ours, e->peer, e->unit, ratio,
               e->peer_name);
        bench_line(e->name, ours, e->peer, e->peer_name, e->unit, ratio);
    }
    return w.failed;
}
