/* SPDX-License-Identifier: Apache-2.0
 * Private inference on a GPU: primitives, ring products, dealing, and whole models as one party
 * alone and as two processes over TLS on the loopback. Peers are SIGMA's figures on one H200.
 * Usage: bench_gpu [PREFIX]; with TACIT_BENCH_JSONL every line is also appended there, with
 * TACIT_BENCH_MARKDOWN=FILE a page is written. Without a GPU it says so and ends. */
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../src/api/secure_internal.h"
#include "base/cpu.h"
#include "base/rng.h"
#include "fss/suite.h"
#include "secure/device.h"
#include "secure/run.h"
#include "tacit/secure.h"

typedef struct bench {
    char tool[512], dir[64];
    const char *prefix;
    FILE *lines, *page;
    cuda_device d;
    tacit_error err;
    bool failed;
} bench;

/* A number for the page; nothing was measured, or asked for, where it is not one. */
static const char *shown(double x, char text[32])
{
    snprintf(text, 32, isnan(x) ? "-" : "%.4g", x);
    return text;
}

/* `up`: larger is better. */
static void row(bench *b, const char *name, double ours, double peer, double goal, bool up,
                const char *unit, const char *note)
{
    double ratio = up ? ours / peer : peer / ours;
    const char *met = isnan(goal) ? "-" : (up ? ours >= goal : ours <= goal) ? "yes" : "no";
    char p[32], r[32], g[32];
    shown(peer, p);
    shown(ratio, r);
    shown(goal, g);
    printf("%-34s %11.4g %11s %-7s %7s  goal %s met %s  %s\n", name, ours, p, unit, r, g, met,
           note);
    fflush(stdout);
    if (b->lines) {
        fprintf(b->lines, "{\"bench\":\"%s\",\"ours\":%.6g,\"unit\":\"%s\",\"note\":\"%s\"", name,
                ours, unit, note);
        if (!isnan(peer))
            fprintf(b->lines, ",\"peer\":%.6g,\"peer_name\":\"SIGMA\",\"ratio\":%.6g", peer, ratio);
        if (!isnan(goal))
            fprintf(b->lines, ",\"goal\":%.6g", goal);
        fprintf(b->lines, "}\n");
        fflush(b->lines);
    }
    if (b->page) {
        fprintf(b->page, "| %s | %.4g %s | %s | %s | %s | %s | %s |\n", name, ours, unit, p, r, g,
                met, note);
        fflush(b->page);
    }
}
static bool wanted(const bench *b, const char *name)
{
    size_t n = strlen(b->prefix), m = strlen(name);
    return strncmp(name, b->prefix, n < m ? n : m) == 0;
}
static bool ok(bench *b, tacit_status s)
{
    if (s != TACIT_OK) {
        fprintf(stderr, "bench_gpu: %s\n", b->err.message);
        b->failed = true;
    }
    return s == TACIT_OK;
}
static void *device_new(bench *b, size_t size)
{
    void *p = NULL;
    ok(b, b->d.ops->alloc(b->d.self, size + 64, &p, &b->err));
    return p;
}
static void *upload(bench *b, const void *data, size_t size)
{
    void *p = device_new(b, size);
    if (p && size) {
        ok(b, b->d.ops->copy(b->d.self, CUDA_TO_DEVICE, p, data, size, &b->err));
        ok(b, b->d.ops->wait(b->d.self, &b->err));
    }
    return p;
}
static void download(bench *b, void *to, const void *from, size_t size)
{
    ok(b, b->d.ops->copy(b->d.self, CUDA_TO_HOST, to, from, size, &b->err));
    ok(b, b->d.ops->wait(b->d.self, &b->err));
}
static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
/* Median seconds of one replay of a recorded graph. */
static double replay(bench *b, void *graph)
{
    enum { TIMES = 15, EACH = 4 };
    double t[TIMES];
    for (int i = -2; i < TIMES && !b->failed; i++) {
        uint64_t start = clock_ns();
        for (int k = 0; k < EACH; k++)
            ok(b, b->d.ops->graph_run(b->d.self, graph, &b->err));
        ok(b, b->d.ops->wait(b->d.self, &b->err));
        if (i >= 0)
            t[i] = (double)(clock_ns() - start) * 1e-9 / EACH;
    }
    qsort(t, TIMES, sizeof *t, by_value);
    return t[TIMES / 2];
}

/* ---- gates ---- */

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
    ok(b, b->d.ops->keys(b->d.self, words, &b->err));
    ok(b, b->d.ops->wait(b->d.self, &b->err));
}
static void place(bench *b, const fss_gate *g, cuda_gate *to)
{
    size_t rows = g->kind == FSS_SPLINE || g->kind == FSS_CURVE ? g->degree + 1u
                  : g->rows                                     ? g->rows
                                                                : 1;
    if (g->table)
        to->table = upload(b, g->table, (rows << g->index_bits) * 8);
    if (g->slope)
        to->slope = upload(b, g->slope, 16);
    if (g->base)
        to->base = upload(b, g->base, 16);
    if (g->table && g->index_bits > 7) {
        uint32_t *image = malloc((rows << g->index_bits) * 8);
        cuda_fragments(g->table, (unsigned)rows, g->index_bits, image);
        to->fragments = upload(b, image, (rows << g->index_bits) * 8);
        free(image);
    }
    if (g->table2 && g->index2_bits > 7) {
        uint32_t *image = malloc((size_t)8 << g->index2_bits);
        cuda_fragments(g->table2, 1, g->index2_bits, image);
        to->fragments2 = upload(b, image, (size_t)8 << g->index2_bits);
        free(image);
    }
}

/* Deals on the device, runs both parties there, opens on the host; times party 0's steps, and
 * checks the result against the simulator. */
static bool gate_run(bench *b, gate_bench *t, fss_prg_id prg)
{
    const cuda_ops *ops = b->d.ops;
    rng r = rng_seed(3);
    uint64_t zero[2] = {0, 0};
    size_t n = t->g.count;
    uint8_t seed[2][16];
    for (int i = 0; i < 32; i++)
        seed[i / 16][i % 16] = (uint8_t)rng_u64(&r);
    t->g.id = 1;
    if (!ok(b, fss_suite_init(&t->suite, prg, FSS_TREE_HALF, NULL, &b->err)) ||
        !ok(b, fss_gate_info(&t->suite, &t->g, &t->info, &b->err)))
        return false;
    fss_dealer_init(&t->dealer, &t->suite, seed[0], seed[1]);
    t->run = upload(b, zero, sizeof zero);
    cuda_gate dg;
    cuda_io deal = {.run = t->run};
    for (unsigned k = 0; k < t->info.inputs; k++) {
        t->x[k] = malloc(n * 8);
        t->r[k] = malloc(n * 8);
        t->masked[k] = malloc(n * 8);
        for (size_t i = 0; i < n; i++) {
            unsigned bits = t->info.in_bits[k];
            t->x[k][i] =
                fss_low((uint64_t)fss_signed(rng_u64(&r), bits > 2 ? bits - 2 : bits), bits);
            if (t->g.kind == FSS_CURVE && k == 3)
                t->x[3][i] |= t->x[2][i];
            t->r[k][i] = fss_low(rng_u64(&r), bits);
            t->masked[k][i] = fss_low(t->x[k][i] + t->r[k][i], bits);
        }
        deal.in[k] = upload(b, t->r[k], n * 8);
        t->in[k] = upload(b, t->masked[k], n * 8);
    }
    sec_device_gate(&t->suite, &t->g, &t->info, 0, &dg);
    place(b, &t->g, &dg);
    for (unsigned p = 0; p < 2; p++) {
        t->key_bytes[p] = sec_device_key_bytes(&t->suite, &t->g, &t->info, p) + 16;
        deal.deal[p] = t->key[p] = device_new(b, t->key_bytes[p]);
        deal.out[p] = device_new(b, n * 8 * (p ? 1 : t->info.out[0].rows));
    }
    t->mask = malloc(n * 8 * t->info.out[0].rows);
    set_keys(b, t, 0);
    ok(b, ops->deal(b->d.self, &dg, &deal, &b->err));
    download(b, t->mask, deal.out[0], n * 8 * t->info.out[0].rows);
    uint64_t *opened = NULL, *result = NULL;
    void *pinned = NULL;
    ok(b, ops->alloc_host(b->d.self, t->key_bytes[0], &pinned, &b->err));
    download(b, pinned, t->key[0], t->key_bytes[0]);
    void *graphs[3] = {0};
    uint32_t *scratch = device_new(b, cuda_scratch_bytes(&dg));
    for (unsigned step = 0; step < t->info.steps && !b->failed; step++) {
        fss_vector v[2];
        fss_step_vectors(&t->info, step, v);
        size_t words = v[0].rows * n;
        uint64_t *share[2] = {malloc(words * 8), malloc(words * 8)};
        void *there = NULL;
        for (unsigned p = 0; p < 2; p++) {
            cuda_gate pg = dg;
            cuda_gate own;
            sec_device_gate(&t->suite, &t->g, &t->info, p, &own);
            pg.party = (uint8_t)p;
            memcpy(pg.item, own.item, sizeof pg.item);
            cuda_io io = {.run = t->run,
                          .key = t->key[p],
                          .in = {t->in[0], t->in[1], t->in[2], t->in[3]},
                          .opened = {opened},
                          .scratch = scratch,
                          .out = {there = device_new(b, words * 8)}};
            set_keys(b, t, p);
            ok(b, ops->step(b->d.self, &pg, &io, step, &b->err));
            download(b, share[p], there, words * 8);
            if (p)
                continue;
            ok(b, ops->graph_begin(b->d.self, &b->err));
            ok(b, ops->step(b->d.self, &pg, &io, step, &b->err));
            ok(b, ops->graph_end(b->d.self, &graphs[step], &b->err));
            t->seconds[step] = replay(b, graphs[step]);
        }
        for (size_t i = 0; i < words; i++)
            share[0][i] = fss_low(share[0][i] + share[1][i], v[0].bits);
        opened = upload(b, share[0], words * 8);
        free(result);
        result = share[0];
        free(share[1]);
    }
    void *copy = NULL;
    ok(b, ops->graph_begin(b->d.self, &b->err));
    ok(b, ops->copy(b->d.self, CUDA_TO_DEVICE, t->key[0], pinned, t->key_bytes[0], &b->err));
    ok(b, ops->graph_end(b->d.self, &copy, &b->err));
    t->with_key = replay(b, copy);
    for (unsigned k = 0; k < t->info.steps; k++)
        t->with_key += t->seconds[k];
    uint64_t *sim[2] = {malloc(n * 8 * t->info.out[0].rows), malloc(n * 8)};
    fss_gate_sim(&t->g, &t->info, (const uint64_t *const *)t->x, (const uint64_t *const *)t->masked,
                 sim, 0, n);
    size_t wrong = 0;
    for (size_t i = 0; i < n * t->info.out[0].rows && result; i++)
        wrong += fss_low(result[i] - t->mask[i], t->info.out[0].bits) != sim[0][i];
    if (wrong) {
        fprintf(stderr, "bench_gpu: %zu of %zu results are wrong\n", wrong, n);
        b->failed = true;
    }
    for (int k = 0; k < 3; k++)
        if (graphs[k])
            ops->graph_free(b->d.self, graphs[k]);
    ops->graph_free(b->d.self, copy);
    ops->release_host(b->d.self, pinned);
    for (int k = 0; k < 4; k++) {
        free(t->x[k]);
        free(t->r[k]);
        free(t->masked[k]);
    }
    free(sim[0]);
    free(sim[1]);
    free(result);
    free(t->mask);
    return !b->failed;
}

/* The device's memory is given back by opening it anew. */
static void fresh(bench *b)
{
    cuda_close(&b->d);
    ok(b, cuda_open(0, 0, &b->d, &b->err));
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
        if (!wanted(b, list[i].name) || b->failed)
            continue;
        gate_bench t = {.g = list[i].g};
        if (gate_run(b, &t, list[i].prg)) {
            double total = 0;
            char name[80];
            for (unsigned k = 0; k < t.info.steps; k++)
                total += t.seconds[k];
            snprintf(name, sizeof name, "%s/kernel", list[i].name);
            row(b, name, N / total / 1e6, list[i].kernel, list[i].kernel_goal, true, "M/s", "");
            snprintf(name, sizeof name, "%s/with-key", list[i].name);
            row(b, name, N / t.with_key / 1e6, list[i].copy, list[i].copy_goal, true, "M/s", "");
        }
        fresh(b);
    }
    uint64_t *table = malloc(8u << 13);
    rng r = rng_seed(9);
    for (int i = 0; table && i < 1 << 13; i++)
        table[i] = rng_u64(&r);
    for (unsigned bits = 8; table && bits <= 13 && !b->failed; bits += bits == 8 ? 2 : 3) {
        for (int chacha = 0; chacha < 2; chacha++) {
            char name[80];
            snprintf(name, sizeof name, "gpu/lut%u/%s", bits, chacha ? "chacha8" : "aes");
            if (!wanted(b, name))
                continue;
            gate_bench t = {.g = {.kind = FSS_LUT,
                                  .index_bits = (uint8_t)bits,
                                  .out_bits = 40,
                                  .table = table,
                                  .count = 1 << 20}};
            if (gate_run(b, &t, chacha ? FSS_PRG_CHACHA8 : FSS_PRG_AES))
                row(b, name, (1 << 20) / (t.seconds[0] + t.seconds[1]) / 1e6,
                    bits == 8 ? 2065 : 16.5, 330, true, "M/s", bits == 10 ? "peer: 13 bits" : "");
            fresh(b);
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
    if (!wanted(b, name) || b->failed)
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
    sx.x = upload(b, x, m * k * 8);
    sw.x = upload(b, w, k * n * 8);
    sx.out = device_new(b, cuda_split_bytes(m, k, 1, limbs));
    sw.out = device_new(b, cuda_split_bytes(n, k, 1, limbs));
    cuda_gemm g = {m, n, k, 1, limbs, sx.out, sw.out, NULL, NULL, device_new(b, m * n * 8)};
    void *graph = NULL;
    ok(b, ops->split(b->d.self, &sw, &b->err));
    ok(b, ops->split(b->d.self, &sx, &b->err));
    ok(b, ops->gemm(b->d.self, &g, &b->err));
    download(b, z, g.z, m * n * 8);
    size_t wrong = 0;
    for (uint64_t q = 0; q < 2000 && !b->failed; q++) {
        uint64_t i = rng_below(&r, m), j = rng_below(&r, n), sum = 0;
        for (uint64_t e = 0; e < k; e++)
            sum += x[i * k + e] * w[e * n + j];
        wrong += fss_low(sum - z[i * n + j], bits) != 0;
    }
    ok(b, ops->graph_begin(b->d.self, &b->err));
    ok(b, ops->split(b->d.self, &sx, &b->err));
    ok(b, ops->gemm(b->d.self, &g, &b->err));
    ok(b, ops->graph_end(b->d.self, &graph, &b->err));
    double s = replay(b, graph);
    ops->graph_free(b->d.self, graph);
    snprintf(note, sizeof note, "%s, weights split before", wrong ? "WRONG" : "exact");
    b->failed |= wrong > 0;
    row(b, name, (double)m * (double)n * (double)k / s / 1e9, peer, goal, true, "GMAC/s", note);
    free(x);
    free(w);
    free(z);
    fresh(b);
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

/* ---- models ---- */

typedef struct model_entry {
    const char *name, *example, *options;
    double two, alone, deal; /* SIGMA's seconds */
    double two_goal, alone_goal, deal_goal;
} model_entry;

static const model_entry models[] = {
    {"bert-tiny", "bert-tiny", "", 0.091, 0.064, NAN, 0.025, 0.012, NAN},
    {"bert-base", "bert", "", 1.646, 1.010, 0.74, 0.4, 0.2, 0.5},
    {"gpt2", "gpt2", "", 1.445, 0.885, NAN, 0.35, 0.18, NAN},
    {"bert-large", "bert", "--layers 24 --hidden 1024 --heads 16 --ffn 4096", 3.993, 2.749, NAN,
     1.0, 0.5, NAN},
};

static bool make_model(bench *b, const model_entry *e, char *path, size_t size)
{
    char command[1000];
    snprintf(path, size, "%s/%s.onnx", b->dir, e->name);
    snprintf(command, sizeof command, "'%s' example %s %s --out %s > /dev/null", b->tool,
             e->example, e->options, path);
    if (access(path, F_OK) != 0 && system(command) != 0) {
        fprintf(stderr, "bench_gpu: cannot make the example %s\n", e->name);
        b->failed = true;
    }
    return !b->failed;
}

static tacit_tensor tensor_for(const tacit_port *p, uint64_t seed)
{
    tacit_tensor t = {.name = p->name, .dtype = p->dtype, .rank = p->rank, .bytes = p->bytes};
    rng r = rng_seed(seed);
    memcpy(t.dims, p->dims, sizeof t.dims);
    t.data = calloc(1, p->bytes + 1);
    bool tokens = strstr(p->name, "ids") && !strstr(p->name, "type");
    for (size_t i = 0; t.data && p->dtype == TACIT_I64 && i < p->bytes / 8; i++)
        ((int64_t *)t.data)[i] = tokens ? (int64_t)rng_below(&r, 20000) : 1;
    return t;
}

typedef struct outcome {
    double online, prepare;
    int ok;
} outcome;

/* One party of one query, in a process of its own. */
static outcome party_process(const char *path, const tacit_secure_peer *peer, bool server)
{
    tacit_error err = {0};
    tacit_model *model = NULL;
    tacit_secure *s = NULL;
    tacit_secure_report report = {0};
    outcome o = {0};
    if (tacit_model_load(path, NULL, &model, &err) != TACIT_OK ||
        tacit_secure_compile(model, NULL, &s, &err) != TACIT_OK) {
        fprintf(stderr, "bench_gpu: %s\n", err.message);
        return o;
    }
    tacit_tensor in[8], out[8], sim[8];
    uint32_t n = tacit_secure_input_count(s), m = tacit_secure_output_count(s);
    tacit_port port;
    for (uint32_t i = 0; i < n && i < 8; i++)
        if (tacit_secure_input(s, i, &port) == TACIT_OK)
            in[i] = tensor_for(&port, 7);
    for (uint32_t i = 0; i < m && i < 8; i++)
        if (tacit_secure_output(s, i, &port) == TACIT_OK) {
            out[i] = tensor_for(&port, 0);
            sim[i] = tensor_for(&port, 0);
        }
    tacit_status status = server ? tacit_secure_serve(s, peer, &report, &err)
                                 : tacit_secure_query(s, peer, in, n, out, m, &report, &err);
    o = (outcome){(double)report.online_ns * 1e-9, (double)report.prepare_ns * 1e-9,
                  status == TACIT_OK};
    const char *skip = getenv("TACIT_BENCH_UNCHECKED");
    if (o.ok && !server && !skip && tacit_secure_simulate(s, in, n, sim, m, 0, 0, &err) == TACIT_OK)
        for (uint32_t i = 0; i < m && i < 8; i++)
            o.ok &= memcmp(out[i].data, sim[i].data, out[i].bytes) == 0;
    if (!o.ok)
        fprintf(stderr, "bench_gpu: %s: %s\n", server ? "server" : "client",
                status == TACIT_OK ? "parties and twin disagree" : err.message);
    return o;
}

static void in_process(int pipe_to, const char *path, const tacit_secure_peer *peer, bool server)
{
    outcome o = party_process(path, peer, server);
    if (write(pipe_to, &o, sizeof o) != sizeof o)
        _exit(1);
    _exit(0);
}

static outcome start_and_read(const char *path, const tacit_secure_peer peers[2], outcome other[1])
{
    outcome o[2] = {{0}};
    int fd[2][2];
    pid_t pid[2];
    fflush(NULL);
    for (int p = 0; p < 2; p++) {
        if (pipe(fd[p]) != 0)
            return o[0];
        pid[p] = fork();
        if (pid[p] == 0)
            in_process(fd[p][1], path, &peers[p], p == 0);
        close(fd[p][1]);
    }
    for (int p = 0; p < 2; p++) {
        if (read(fd[p][0], &o[p], sizeof o[p]) != sizeof o[p])
            o[p].ok = 0;
        close(fd[p][0]);
        waitpid(pid[p], NULL, 0);
    }
    *other = o[1];
    return o[0];
}

/* Two processes, keys from files, TLS on the loopback. A party's clock starts when it is ready, so
 * the later one's time is that of the query. */
static void online(bench *b, const model_entry *e)
{
    char name[80], path[200], keys[2][100], certs[100], address[64];
    snprintf(name, sizeof name, "gpu/%s/two-processes", e->name);
    if (!wanted(b, name) || b->failed || !make_model(b, e, path, sizeof path))
        return;
    enum { RUNS = 3 };
    int wanted_runs = e->two < 0.1 ? RUNS : 1; /* large models: minutes of keys and twin */
    snprintf(keys[0], sizeof keys[0], "%s/s.key", b->dir);
    snprintf(keys[1], sizeof keys[1], "%s/c.key", b->dir);
    snprintf(certs, sizeof certs, "%s/certs", b->dir);
    double times[RUNS], prepare = 0;
    int runs = 0;
    for (int i = 0; i < wanted_runs && !b->failed; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            tacit_model *model = NULL;
            tacit_secure *s = NULL;
            tacit_secure_deal_options deal = {
                .runs = 1, .server_key = keys[0], .client_key = keys[1], .device = "cuda"};
            bool good = tacit_model_load(path, NULL, &model, &b->err) == TACIT_OK &&
                        tacit_secure_compile(model, NULL, &s, &b->err) == TACIT_OK &&
                        tacit_secure_deal(s, &deal, &b->err) == TACIT_OK &&
                        tacit_secure_certificates(certs, 1, &b->err) == TACIT_OK;
            if (!good)
                fprintf(stderr, "bench_gpu: %s\n", b->err.message);
            _exit(good ? 0 : 1);
        }
        int status = 1;
        waitpid(pid, &status, 0);
        b->failed |= status != 0;
        if (b->failed)
            break;
        snprintf(address, sizeof address, "127.0.0.1:%d", 21000 + ((int)getpid() + i) % 30000);
        tacit_secure_peer peers[2];
        for (int p = 0; p < 2; p++)
            peers[p] = (tacit_secure_peer){.key = keys[p],
                                           .address = address,
                                           .certificates = certs,
                                           .timeout_ms = 120000,
                                           .device = "cuda"};
        if (i)
            setenv("TACIT_BENCH_UNCHECKED", "1", 1);
        outcome client = {0}, server = start_and_read(path, peers, &client);
        unsetenv("TACIT_BENCH_UNCHECKED");
        b->failed |= !server.ok || !client.ok;
        times[runs++] = server.online < client.online ? server.online : client.online;
        prepare = server.prepare;
        char drop[400];
        snprintf(drop, sizeof drop, "rm -f %s/*.key", b->dir);
        b->failed |= system(drop) != 0;
    }
    if (b->failed)
        return;
    qsort(times, (size_t)runs, sizeof *times, by_value);
    char note[120];
    snprintf(note, sizeof note, "TLS, keys resident, bit-exact; prepared in %.2f s", prepare);
    row(b, name, times[runs / 2] * 1e3, e->two * 1e3, e->two_goal * 1e3, false, "ms", note);
}

typedef struct loop {
    uint64_t bytes, exchanges, back;
    double *rounds; /* seconds of each, without the exchange */
} loop;
static tacit_status zero_key(void *context, void *data, size_t size, tacit_error *err)
{
    (void)context, (void)err;
    memset(data, 0x5a, size);
    return TACIT_OK;
}
static tacit_status echo(void *context, const void *out, size_t out_size, void *in, size_t in_size,
                         tacit_error *err)
{
    loop *l = context;
    (void)err;
    if (l->rounds)
        l->rounds[l->exchanges] = (double)(clock_ns() - l->back) * 1e-9;
    if (out && in_size)
        memcpy(in, out, in_size);
    l->bytes += out_size;
    l->exchanges++;
    l->back = clock_ns();
    return TACIT_OK;
}
static tacit_status discard(void *context, unsigned party, const void *data, size_t size,
                            tacit_error *err)
{
    (void)party, (void)data, (void)err;
    *(uint64_t *)context += size;
    return TACIT_OK;
}

static bool opens(const sec_program *p, uint32_t round)
{
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (sec_steps(in) && in->start <= round && in->start + sec_steps(in) > round)
            return true;
    }
    return false;
}

/* Where the time goes: rounds by the largest gate that steps in them. */
static void profile(const sec_program *p, const double *rounds, uint64_t n)
{
    enum { MOST = 64 };
    struct {
        char name[80];
        double seconds;
        int count;
    } sort[MOST] = {{{0}, 0, 0}};
    int used = 0;
    double total = 0;
    for (uint64_t r = 1, round = 0; r < n; r++, round++) {
        while (round <= p->rounds && !opens(p, (uint32_t)round)) /* exchange r ends this round */
            round++;
        char name[80] = "-";
        size_t largest = 0;
        for (uint32_t i = 0; i < p->instrs.count; i++) {
            const sec_instr *in = &p->instrs.data[i];
            unsigned steps = sec_steps(in);
            if (!steps || in->start > round || in->start + steps <= round)
                continue;
            size_t size = in->op == SEC_GATE
                              ? in->gate.count * (1 + in->info.key_bytes[0] / (1 + in->gate.count))
                              : in->batch * in->m * in->n * 8;
            if (size < largest)
                continue;
            largest = size;
            if (in->op == SEC_GATE)
                snprintf(name, sizeof name,
                         "%s%s n=%zu in %u eff %u shift %u idx %u,%u t %u step %u",
                         fss_kind_name(in->gate.kind),
                         in->gate.direct   ? " direct"
                         : in->gate.wide   ? " wide"
                         : in->gate.digits ? " digits"
                                           : "",
                         in->gate.count, in->gate.in_bits, in->gate.eff_bits, in->gate.shift,
                         in->gate.index_bits, in->gate.index2_bits, in->gate.thresholds,
                         (unsigned)(round - in->start));
            else
                snprintf(name, sizeof name, "matmul %zux%zux%zu x%u bits %u", in->m, in->k, in->n,
                         in->batch, in->bits);
        }
        int at = 0;
        while (at < used && strcmp(sort[at].name, name) != 0)
            at++;
        if (at == used && used < MOST - 1)
            used++;
        snprintf(sort[at].name, sizeof sort[at].name, "%s", name);
        sort[at].seconds += rounds[r];
        sort[at].count++;
        total += rounds[r];
    }
    printf("    %.2f ms in %d kinds of rounds, inputs %.2f ms\n", total * 1e3, used,
           rounds[0] * 1e3);
    for (int k = 0; k < 24; k++) {
        int best = -1;
        for (int i = 0; i < used; i++)
            if (sort[i].seconds > 0 && (best < 0 || sort[i].seconds > sort[best].seconds))
                best = i;
        if (best < 0)
            break;
        printf("    %8.3f ms in %3d: %s\n", sort[best].seconds * 1e3, sort[best].count,
               sort[best].name);
        sort[best].seconds = 0;
    }
}

/* One party with its messages looped back: what the device and its rounds cost without a network.
 * The words are meaningless, their number is not. And the dealer, into pinned host memory. */
static void alone(bench *b, const model_entry *e)
{
    char name[80], path[200], deal_name[80];
    snprintf(name, sizeof name, "gpu/%s/alone", e->name);
    snprintf(deal_name, sizeof deal_name, "gpu/%s/deal", e->name);
    if ((!wanted(b, name) && !wanted(b, deal_name)) || b->failed ||
        !make_model(b, e, path, sizeof path))
        return;
    tacit_model *model = NULL;
    tacit_secure *s = NULL;
    if (!ok(b, tacit_model_load(path, NULL, &model, &b->err)) ||
        !ok(b, tacit_secure_compile(model, NULL, &s, &b->err)))
        return;
    const sec_program *p = s->program;
    uint8_t seed[16] = {1, 2, 3};
    fss_party party;
    fss_party_init(&party, &p->suite, SEC_SERVER, seed);
    loop l = {0};
    sec_link link = {.key_read = zero_key, .exchange = echo, .context = &l};
    sec_weights weights = {0};
    sec_device *d = NULL;
    ok(b, sec_weights_exchange(p, &party, &link, &weights, &b->err));
    if (!b->failed)
        ok(b, sec_device_create(p, &party, &b->d, 1, &weights, NULL, &d, &b->err));
    uint64_t start = clock_ns();
    if (!b->failed)
        ok(b, sec_device_load(d, 0, &link, &b->err));
    double load = (double)(clock_ns() - start) * 1e-9, times[7];
    double *by_round = calloc(p->rounds + 3u, sizeof *by_round);
    for (int i = -1; i < 7 && !b->failed; i++) {
        l = (loop){.rounds = i == 6 && getenv("TACIT_BENCH_PROFILE") ? by_round : NULL};
        start = l.back = clock_ns();
        ok(b, sec_device_run(d, 0, &link, NULL, NULL, &b->err));
        if (i >= 0)
            times[i] = (double)(clock_ns() - start) * 1e-9;
    }
    if (!b->failed) {
        char note[160];
        qsort(times, 7, sizeof *times, by_value);
        snprintf(note, sizeof note, "%llu messages, %.0f MB sent; key %.2f GB loaded in %.2f s",
                 (unsigned long long)l.exchanges, (double)l.bytes / 1e6,
                 (double)p->key_bytes[0] / 1e9, load);
        row(b, name, times[3] * 1e3, e->alone * 1e3, e->alone_goal * 1e3, false, "ms", note);
        if (l.rounds)
            profile(p, by_round, l.exchanges);
    }
    free(by_round);
    sec_device_free(d);
    sec_weights_free(p, &weights);
    fss_dealer dealer;
    uint64_t written = 0;
    sec_device_dealer *there = NULL;
    fss_dealer_init(&dealer, &p->suite, seed, seed);
    if (!b->failed)
        ok(b, sec_device_dealer_create(p, &dealer, &b->d, &there, &b->err));
    for (int i = 0; i < 3 && !b->failed; i++) {
        written = 0;
        start = clock_ns();
        ok(b, sec_device_dealer_run(there, (uint64_t)i, discard, &written, &b->err));
        times[i] = (double)(clock_ns() - start) * 1e-9;
    }
    sec_device_dealer_free(there);
    if (!b->failed) {
        char note[120];
        qsort(times, 3, sizeof *times, by_value);
        snprintf(note, sizeof note, "both keys, %.2f GB, to pinned host memory",
                 (double)written / 1e9);
        row(b, deal_name, times[1], e->deal, e->deal_goal, false, "s", note);
    }
    tacit_secure_free(s);
    tacit_model_free(model);
    fresh(b);
}

static const char page_head[] =
    "# Private inference on a GPU, measured\n\n"
    "Written by `make bench BENCH=gpu`. Faithful truncation, full range, masks per element,\n"
    "server-owned weights, 128 tokens, random weights and inputs. SIGMA: its figures on one H200.\n"
    "*alone*: one party with its messages copied back to it, no network. *two-processes*: both\n"
    "parties on one GPU, TLS on the loopback, keys on the device before the query, result "
    "compared\n"
    "bit for bit with the twin; the larger models are asked once. SIGMA's figures include the "
    "upload\n"
    "of keys, ours do not: at 55 GB/s it would add 0.12 s to BERT-base. *deal*: both keys into "
    "pinned\n"
    "host memory. Medians, warm, by wall clock around graph replays.\n\n";

/* A million GELUs of one party: its rounds without the network, and its key over the bus. */
static void gelu(bench *b, const char *how, tacit_secure_compare compare)
{
    enum { N = 1 << 20 };
    char name[80], path[200];
    snprintf(name, sizeof name, "gpu/gelu/%s", how);
    snprintf(path, sizeof path, "%s/gelu.tacit", b->dir);
    if (!wanted(b, name) || b->failed)
        return;
    FILE *f = fopen(path, "w");
    if (!f)
        return;
    fprintf(f, "tacit 1\ngraph \"g\" {\n opset \"\" 22\n in %%x : f32[1024,1024]\n"
               " %%y : f32[1024,1024] = Gelu(%%x) @g\n out %%y\n}\n");
    fclose(f);
    tacit_model *model = NULL;
    tacit_secure *s = NULL;
    tacit_secure_options o = {.compare = compare};
    if (!ok(b, tacit_model_load(path, NULL, &model, &b->err)) ||
        !ok(b, tacit_secure_compile(model, &o, &s, &b->err)))
        return;
    const sec_program *p = s->program;
    uint8_t seed[16] = {4};
    fss_party party;
    fss_party_init(&party, &p->suite, SEC_SERVER, seed);
    loop l = {0};
    sec_link link = {.key_read = zero_key, .exchange = echo, .context = &l};
    sec_weights weights = {0};
    sec_device *d = NULL;
    double times[7] = {0};
    ok(b, sec_weights_exchange(p, &party, &link, &weights, &b->err));
    if (!b->failed)
        ok(b, sec_device_create(p, &party, &b->d, 1, &weights, NULL, &d, &b->err));
    if (!b->failed)
        ok(b, sec_device_load(d, 0, &link, &b->err));
    double *rounds = calloc(p->rounds + 3u, sizeof *rounds);
    for (int i = 0; i < 7 && !b->failed && rounds; i++) {
        l = (loop){.rounds = rounds, .back = clock_ns()};
        ok(b, sec_device_run(d, 0, &link, NULL, NULL, &b->err));
        for (uint64_t r = 1; r < l.exchanges; r++)
            times[i] += rounds[r];
    }
    free(rounds);
    sec_device_free(d);
    sec_weights_free(p, &weights);
    void *pinned = NULL, *there = device_new(b, p->key_bytes[0]), *graph = NULL;
    ok(b, b->d.ops->alloc_host(b->d.self, p->key_bytes[0], &pinned, &b->err));
    if (!b->failed) {
        ok(b, b->d.ops->graph_begin(b->d.self, &b->err));
        ok(b, b->d.ops->copy(b->d.self, CUDA_TO_DEVICE, there, pinned, p->key_bytes[0], &b->err));
        ok(b, b->d.ops->graph_end(b->d.self, &graph, &b->err));
        double copy = replay(b, graph);
        char note[160];
        qsort(times, 7, sizeof *times, by_value);
        snprintf(note, sizeof note, "rounds %.2f ms, key of %.0f bytes each %.2f ms, %u rounds",
                 times[3] * 1e3, (double)p->key_bytes[0] / N, copy * 1e3, p->rounds);
        row(b, name, N / (times[3] + copy) / 1e6, 58, 250, true, "M/s", note);
        b->d.ops->graph_free(b->d.self, graph);
        b->d.ops->release_host(b->d.self, pinned);
    }
    tacit_secure_free(s);
    tacit_model_free(model);
    fresh(b);
}

int main(int argc, char **argv)
{
    char why[200], self[400];
    bench b = {.prefix = argc > 1 ? argv[1] : ""};
    if (!wanted(&b, "gpu/"))
        return 0;
    snprintf(self, sizeof self, "%s", argv[0]);
    snprintf(b.tool, sizeof b.tool, "%s/tacit", dirname(self));
    /* in a process of its own: whoever touches the driver must not fork afterwards */
    pid_t pid = fork();
    if (pid == 0)
        _exit(cuda_present(why, sizeof why) ? 0 : (printf("gpu: %s\n", why), 1));
    int status = 1;
    waitpid(pid, &status, 0);
    if (status != 0) {
        printf("gpu: no device, nothing measured\n");
        return 0;
    }
    snprintf(b.dir, sizeof b.dir, "%s/tacit-gpu-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    if (!mkdtemp(b.dir) || setenv("TACIT_STATE_HOME", b.dir, 1) != 0)
        return 1;
    const char *lines = getenv("TACIT_BENCH_JSONL"), *page = getenv("TACIT_BENCH_MARKDOWN");
    b.lines = lines ? fopen(lines, "a") : NULL;
    b.page = page ? fopen(page, "a") : NULL;
    printf("%-34s %11s %11s\n", "entry", "ours", "SIGMA");
    if (b.page && fseek(b.page, 0, SEEK_END) == 0 && ftell(b.page) == 0)
        fprintf(b.page, "%s%s", page_head,
                "| entry | ours | SIGMA | ratio | goal | met | |\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        online(&b, &models[i]);
    bool failed = b.failed;
    b.failed = false;
    if (ok(&b, cuda_open(0, 0, &b.d, &b.err))) {
        printf("device: %s\n", b.d.name);
        products(&b);
        failed |= b.failed;
        b.failed = false;
        gates(&b);
        failed |= b.failed;
        b.failed = false;
        gelu(&b, "auto", TACIT_COMPARE_AUTO);
        gelu(&b, "digits", TACIT_COMPARE_DIGITS);
        failed |= b.failed;
        b.failed = false;
        for (size_t i = 0; i < sizeof models / sizeof *models; i++)
            alone(&b, &models[i]);
        cuda_close(&b.d);
    }
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", b.dir);
    failed |= system(command) != 0;
    return failed || b.failed;
}
