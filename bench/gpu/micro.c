/* SPDX-License-Identifier: Apache-2.0
 * Gates, look-ups and ring products on the device, each checked against the processor. */
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "bench.h"

typedef struct gate_bench {
    fss_suite suite;
    fss_gate g;
    fss_info info;
    fss_dealer dealer;
    uint64_t *x[4], *r[4], *masked[4]; /* host */
    uint64_t *run, *in[4];             /* device */
    uint8_t *key[2];
    uint64_t key_bytes[2], *mask;
    double seconds[3], with_key;
} gate_bench;

static void set_keys(bench *b, gate_bench *t, unsigned first)
{
    uint32_t words[CUDA_KEY_WORDS];
    sec_device_keys(&t->suite, &t->dealer.seed[first], &t->dealer.seed[1], words);
    bench_ok(b, b->d.ops->keys(b->d.self, words, &b->err));
    bench_ok(b, b->d.ops->wait(b->d.self, &b->err));
}
static void place(bench *b, const fss_gate *g, cuda_gate *to)
{
    size_t rows = g->kind == FSS_SPLINE || g->kind == FSS_CURVE ? g->degree + 1u
                  : g->rows                                     ? g->rows
                                                                : 1;
    if (g->table)
        to->table = bench_upload(b, g->table, (rows << g->index_bits) * 8);
    if (g->slope)
        to->slope = bench_upload(b, g->slope, 16);
    if (g->base)
        to->base = bench_upload(b, g->base, 16);
    if (g->table && g->index_bits > 7) {
        uint32_t *image = malloc((rows << g->index_bits) * 8);
        cuda_fragments(g->table, (unsigned)rows, g->index_bits, image);
        to->fragments = bench_upload(b, image, (rows << g->index_bits) * 8);
        free(image);
    }
    if (g->table2 && g->index2_bits > 7) {
        uint32_t *image = malloc((size_t)8 << g->index2_bits);
        cuda_fragments(g->table2, 1, g->index2_bits, image);
        to->fragments2 = bench_upload(b, image, (size_t)8 << g->index2_bits);
        free(image);
    }
}

/* Inputs, their masks and their masked words. */
static void gate_inputs(bench *b, gate_bench *t, cuda_io *deal)
{
    rng r = rng_seed(5);
    size_t n = t->g.count;
    for (unsigned k = 0; k < t->info.inputs; k++) {
        t->x[k] = malloc(n * 8);
        t->r[k] = malloc(n * 8);
        t->masked[k] = malloc(n * 8);
        for (size_t i = 0; i < n; i++) {
            unsigned bits = t->info.in_bits[k];
            t->x[k][i] =
                fss_low((uint64_t)fss_signed(rng_u64(&r), bits > 2 ? bits - 2 : bits), bits);
            t->r[k][i] = fss_low(rng_u64(&r), bits);
            t->masked[k][i] = fss_low(t->x[k][i] + t->r[k][i], bits);
        }
        deal->in[k] = bench_upload(b, t->r[k], n * 8);
        t->in[k] = bench_upload(b, t->masked[k], n * 8);
    }
}

/* Both keys, dealt on the device. */
static void gate_deal(bench *b, gate_bench *t, cuda_gate *dg)
{
    uint64_t zero[2] = {0, 0};
    size_t n = t->g.count, out = n * 8 * t->info.out[0].rows;
    t->run = bench_upload(b, zero, sizeof zero);
    cuda_io deal = {.run = t->run};
    gate_inputs(b, t, &deal);
    sec_device_gate(&t->suite, &t->g, &t->info, 0, dg);
    place(b, &t->g, dg);
    for (unsigned p = 0; p < 2; p++) {
        t->key_bytes[p] = sec_device_key_bytes(&t->suite, &t->g, &t->info, p) + 16;
        deal.deal[p] = t->key[p] = bench_device_new(b, t->key_bytes[p]);
        deal.out[p] = bench_device_new(b, p ? n * 8 : out);
    }
    t->mask = malloc(out);
    set_keys(b, t, 0);
    bench_ok(b, b->d.ops->deal(b->d.self, dg, &deal, &b->err));
    bench_download(b, t->mask, deal.out[0], out);
}

/* One step of both parties; what they open. Party 0's is timed. */
static uint64_t *gate_step(bench *b, gate_bench *t, const cuda_gate *dg, unsigned step,
                           uint64_t *opened, uint32_t *scratch)
{
    const cuda_ops *ops = b->d.ops;
    fss_vector v[2];
    fss_step_vectors(&t->info, step, v);
    size_t words = v[0].rows * t->g.count;
    uint64_t *share[2] = {malloc(words * 8), malloc(words * 8)};
    for (unsigned p = 0; p < 2; p++) {
        cuda_gate pg = *dg, own;
        sec_device_gate(&t->suite, &t->g, &t->info, p, &own);
        pg.party = (uint8_t)p;
        memcpy(pg.item, own.item, sizeof pg.item);
        void *there = bench_device_new(b, words * 8), *graph = NULL;
        cuda_io io = {.run = t->run,
                      .key = t->key[p],
                      .in = {t->in[0], t->in[1], t->in[2], t->in[3]},
                      .opened = {opened},
                      .scratch = scratch,
                      .out = {there}};
        set_keys(b, t, p);
        bench_ok(b, ops->step(b->d.self, &pg, &io, step, &b->err));
        bench_download(b, share[p], there, words * 8);
        if (p)
            continue;
        bench_ok(b, ops->graph_begin(b->d.self, &b->err));
        bench_ok(b, ops->step(b->d.self, &pg, &io, step, &b->err));
        bench_ok(b, ops->graph_end(b->d.self, &graph, &b->err));
        t->seconds[step] = bench_replay(b, graph);
        ops->graph_free(b->d.self, graph);
    }
    for (size_t i = 0; i < words; i++)
        share[0][i] = fss_low(share[0][i] + share[1][i], v[0].bits);
    free(share[1]);
    return share[0];
}

/* Seconds to bring the key from pinned memory. */
static double key_copy(bench *b, gate_bench *t)
{
    const cuda_ops *ops = b->d.ops;
    void *pinned = NULL, *copy = NULL;
    bench_ok(b, ops->alloc_host(b->d.self, t->key_bytes[0], &pinned, &b->err));
    bench_download(b, pinned, t->key[0], t->key_bytes[0]);
    bench_ok(b, ops->graph_begin(b->d.self, &b->err));
    bench_ok(b, ops->copy(b->d.self, CUDA_TO_DEVICE, t->key[0], pinned, t->key_bytes[0], &b->err));
    bench_ok(b, ops->graph_end(b->d.self, &copy, &b->err));
    double s = bench_replay(b, copy);
    ops->graph_free(b->d.self, copy);
    ops->release_host(b->d.self, pinned);
    return s;
}

static void gate_check(bench *b, gate_bench *t, const uint64_t *result)
{
    size_t n = t->g.count, words = n * t->info.out[0].rows, wrong = 0;
    uint64_t *sim[2] = {malloc(words * 8), malloc(n * 8)};
    fss_gate_sim(&t->g, &t->info, (const uint64_t *const *)t->x, (const uint64_t *const *)t->masked,
                 sim, 0, n);
    for (size_t i = 0; i < words && result; i++)
        wrong += fss_low(result[i] - t->mask[i], t->info.out[0].bits) != sim[0][i];
    if (wrong || !result) {
        fprintf(stderr, "bench_gpu: %zu of %zu results are wrong\n", wrong, words);
        b->failed = true;
    }
    free(sim[0]);
    free(sim[1]);
}

/* Deals on the device, runs both parties there, opens on the host; times party 0's steps, and
 * checks the result against the simulator. */
static bool gate_run(bench *b, gate_bench *t, fss_prg_id prg)
{
    static const uint8_t seed[2][16] = {{3, 1, 4}, {1, 5, 9}};
    t->g.id = 1;
    if (!bench_ok(b, fss_suite_init(&t->suite, prg, FSS_TREE_HALF, NULL, &b->err)) ||
        !bench_ok(b, fss_gate_info(&t->suite, &t->g, &t->info, &b->err)))
        return false;
    fss_dealer_init(&t->dealer, &t->suite, seed[0], seed[1]);
    cuda_gate dg;
    gate_deal(b, t, &dg);
    uint32_t *scratch = bench_device_new(b, cuda_scratch_bytes(&dg));
    uint64_t *result = NULL, *opened = NULL;
    t->with_key = key_copy(b, t);
    for (unsigned step = 0; step < t->info.steps && !b->failed; step++) {
        free(result);
        result = gate_step(b, t, &dg, step, opened, scratch);
        fss_vector v[2];
        fss_step_vectors(&t->info, step, v);
        opened = bench_upload(b, result, v[0].rows * t->g.count * 8);
        t->with_key += t->seconds[step];
    }
    gate_check(b, t, result);
    for (int k = 0; k < 4; k++) {
        free(t->x[k]);
        free(t->r[k]);
        free(t->masked[k]);
    }
    free(result);
    free(t->mask);
    return !b->failed;
}

static void gates(bench *b)
{
    enum { N = 1 << 21 };
    const struct {
        const char *name;
        fss_gate g;
        fss_prg_id prg;
        double kernel, kernel_goal, copy, copy_goal;
    } list[] = {
        {"gpu/compare38/tree-aes",
         {.kind = FSS_DRELU, .in_bits = 48, .eff_bits = 39, .count = N},
         FSS_PRG_AES,
         627,
         1200,
         89,
         150},
        {"gpu/compare38/tree-chacha8",
         {.kind = FSS_DRELU, .in_bits = 48, .eff_bits = 39, .count = N},
         FSS_PRG_CHACHA8,
         627,
         1200,
         89,
         150},
        {"gpu/compare38/digits",
         {.kind = FSS_DRELU, .in_bits = 48, .eff_bits = 39, .digits = true, .count = N},
         FSS_PRG_AES,
         627,
         1200,
         89,
         150},
        {"gpu/compare12/tree-aes",
         {.kind = FSS_DRELU, .in_bits = 48, .eff_bits = 13, .count = N},
         FSS_PRG_AES,
         2587,
         2587,
         407,
         407},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        if (!bench_wanted(b, list[i].name) || b->failed)
            continue;
        gate_bench t = {.g = list[i].g};
        if (gate_run(b, &t, list[i].prg)) {
            double total = 0;
            char name[80];
            for (unsigned k = 0; k < t.info.steps; k++)
                total += t.seconds[k];
            snprintf(name, sizeof name, "%s/kernel", list[i].name);
            bench_row(b, name, N / total / 1e6, list[i].kernel, list[i].kernel_goal, true, "M/s",
                      "");
            snprintf(name, sizeof name, "%s/with-key", list[i].name);
            bench_row(b, name, N / t.with_key / 1e6, list[i].copy, list[i].copy_goal, true, "M/s",
                      "");
        }
        bench_fresh(b);
    }
}

static void lookups(bench *b)
{
    uint64_t *table = malloc(8u << 13);
    rng r = rng_seed(9);
    for (int i = 0; table && i < 1 << 13; i++)
        table[i] = rng_u64(&r);
    for (unsigned bits = 8; table && bits <= 13 && !b->failed; bits += bits == 8 ? 2 : 3) {
        for (int chacha = 0; chacha < 2; chacha++) {
            char name[80];
            snprintf(name, sizeof name, "gpu/lut%u/%s", bits, chacha ? "chacha8" : "aes");
            if (!bench_wanted(b, name))
                continue;
            gate_bench t = {.g = {.kind = FSS_LUT,
                                  .index_bits = (uint8_t)bits,
                                  .out_bits = 40,
                                  .table = table,
                                  .count = 1 << 20}};
            if (gate_run(b, &t, chacha ? FSS_PRG_CHACHA8 : FSS_PRG_AES))
                bench_row(b, name, (1 << 20) / (t.seconds[0] + t.seconds[1]) / 1e6,
                          bits == 8 ? 2065 : 16.5, 330, true, "M/s",
                          bits == 10 ? "peer: 13 bits" : "");
            bench_fresh(b);
        }
    }
    free(table);
}

/* ---- ring products ---- */

static void product(bench *b, uint64_t m, uint64_t k, uint64_t n, unsigned bits, double peer,
                    double goal)
{
    char name[80], note[64];
    snprintf(name, sizeof name, "gpu/gemm/%llux%llux%llu/%u", (unsigned long long)m,
             (unsigned long long)k, (unsigned long long)n, bits);
    if (!bench_wanted(b, name) || b->failed)
        return;
    const cuda_ops *ops = b->d.ops;
    rng r = rng_seed(4);
    unsigned limbs = cuda_limbs(bits);
    uint64_t *x = malloc(m * k * 8), *w = malloc(k * n * 8), *z = malloc(m * n * 8);
    for (uint64_t i = 0; i < m * k; i++)
        x[i] = rng_u64(&r);
    for (uint64_t i = 0; i < k * n; i++)
        w[i] = rng_u64(&r);
    cuda_split sx = {.rows = m, .k = k, .batch = 1, .cx = 1, .limbs = limbs};
    cuda_split sw = {.rows = n, .k = k, .batch = 1, .cx = 1, .limbs = limbs, .transposed = true};
    sx.x = bench_upload(b, x, m * k * 8);
    sw.x = bench_upload(b, w, k * n * 8);
    sx.out = bench_device_new(b, cuda_split_bytes(m, k, 1, limbs));
    sw.out = bench_device_new(b, cuda_split_bytes(n, k, 1, limbs));
    cuda_gemm g = {m, n, k, 1, limbs, sx.out, sw.out, NULL, NULL, bench_device_new(b, m * n * 8)};
    void *graph = NULL;
    bench_ok(b, ops->split(b->d.self, &sw, &b->err));
    bench_ok(b, ops->split(b->d.self, &sx, &b->err));
    bench_ok(b, ops->gemm(b->d.self, &g, &b->err));
    bench_download(b, z, g.z, m * n * 8);
    size_t wrong = 0;
    for (uint64_t q = 0; q < 2000 && !b->failed; q++) {
        uint64_t i = rng_below(&r, m), j = rng_below(&r, n), sum = 0;
        for (uint64_t e = 0; e < k; e++)
            sum += x[i * k + e] * w[e * n + j];
        wrong += fss_low(sum - z[i * n + j], bits) != 0;
    }
    bench_ok(b, ops->graph_begin(b->d.self, &b->err));
    bench_ok(b, ops->split(b->d.self, &sx, &b->err));
    bench_ok(b, ops->gemm(b->d.self, &g, &b->err));
    bench_ok(b, ops->graph_end(b->d.self, &graph, &b->err));
    double s = bench_replay(b, graph);
    ops->graph_free(b->d.self, graph);
    snprintf(note, sizeof note, "%s, weights split before", wrong ? "WRONG" : "exact");
    b->failed |= wrong > 0;
    bench_row(b, name, (double)m * (double)n * (double)k / s / 1e9, peer, goal, true, "GMAC/s",
              note);
    free(x);
    free(w);
    free(z);
    bench_fresh(b);
}

static void products(bench *b)
{
    /* SIGMA's best at BERT's shapes */
    product(b, 128, 768, 768, 56, 567, 2500);
    product(b, 128, 768, 3072, 56, 567, 2500);
    product(b, 128, 3072, 768, 56, 567, 2500);
    product(b, 128, 768, 3072, 40, 567, 2500);
    product(b, 128, 1024, 4096, 56, 567, 2500);
    product(b, 4096, 4096, 4096, 56, 3125, 17000);
}

void micro_all(bench *b)
{
    products(b);
    gates(b);
    lookups(b);
}
