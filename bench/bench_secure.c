/* SPDX-License-Identifier: Apache-2.0
 * Private inference: online time over TLS on the loopback with both parties on this machine,
 * dealing, and what plans say of larger models. The mode is printed beside every number.
 * Usage: bench_secure [PREFIX]   only entries whose name begins with PREFIX
 * Peers are the published figures of SIGMA (two A6000 GPUs, full range, faithful) at 128 tokens, or
 * the goal where there is none; with TACIT_BENCH_JSONL set every line is also appended there. */
#include <libgen.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu.h"
#include "lines.h"
#include "tacit/secure.h"

typedef struct bench {
    char tool[512], dir[64];
    const char *prefix;
    tacit_error err;
    bool failed;
} bench;

/* Smaller is better everywhere here, so the ratio is peer / ours. */
static void row(const char *name, double ours, double peer, const char *unit, const char *peer_name,
                const char *mode)
{
    char told[200];
    snprintf(told, sizeof told, "%s [%s]", peer_name, mode);
    printf("%-30s %12.4g %12.4g %-6s %7.2f  %s\n", name, ours, peer, unit, peer / ours, told);
    fflush(stdout);
    bench_line(name, ours, peer, told, unit, peer / ours);
}

static bool wanted(const bench *b, const char *name)
{
    return bench_group_wanted(name, b->prefix);
}

static tacit_secure *prepare(bench *b, const char *example, const tacit_secure_options *o,
                             tacit_model **model)
{
    char path[128], command[800];
    tacit_secure *s = NULL;
    snprintf(path, sizeof path, "%s/%s.onnx", b->dir, example);
    snprintf(command, sizeof command, "'%s' example %s --out %s > /dev/null", b->tool, example,
             path);
    if (access(path, F_OK) != 0 && system(command) != 0)
        fprintf(stderr, "bench_secure: cannot make the example %s\n", example);
    else if (tacit_model_load(path, NULL, model, &b->err) != TACIT_OK ||
             tacit_secure_compile(*model, o, &s, &b->err) != TACIT_OK)
        fprintf(stderr, "bench_secure: %s: %s\n", example, b->err.message);
    b->failed |= !s;
    return s;
}

/* ---- plans ---- */

typedef struct plan_entry {
    const char *example;
    double key_gib, wire_gib; /* SIGMA's */
} plan_entry;

static void plans(bench *b)
{
    static const plan_entry entries[] = {
        {"bert-tiny", 0.33, 0.02}, {"gpt2", 14.29, 0.82}, {"bert", 16.84, 0.99}};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        const plan_entry *e = &entries[i];
        char name[64];
        snprintf(name, sizeof name, "secure/plan/%s", e->example);
        if (!wanted(b, name))
            continue;
        tacit_model *model = NULL;
        tacit_secure *s = prepare(b, e->example, NULL, &model);
        if (s) {
            tacit_secure_costs c;
            tacit_secure_cost(s, &c);
            uint64_t key =
                c.key_bytes_server > c.key_bytes_client ? c.key_bytes_server : c.key_bytes_client;
            snprintf(name, sizeof name, "secure/plan/%s/key", e->example);
            row(name, (double)key / 0x1p30, e->key_gib, "GiB", "SIGMA", c.mode);
            snprintf(name, sizeof name, "secure/plan/%s/wire", e->example);
            row(name, (double)c.wire_bytes / 0x1p30, e->wire_gib, "GiB", "SIGMA", c.mode);
            snprintf(name, sizeof name, "secure/plan/%s/rounds", e->example);
            row(name, c.rounds_per_block, 94, "/block", "SIGMA", c.mode);
        }
        tacit_secure_free(s);
        tacit_model_free(model);
    }
}

/* ---- one query ---- */

typedef struct serving {
    const tacit_secure *s;
    tacit_secure_peer peer;
    tacit_status status;
    tacit_error err;
} serving;

static void *serve(void *context)
{
    serving *v = context;
    v->status = tacit_secure_serve(v->s, &v->peer, NULL, &v->err);
    return NULL;
}

static tacit_tensor tensor_for(const tacit_port *p)
{
    tacit_tensor t = {.name = p->name, .dtype = p->dtype, .rank = p->rank, .bytes = p->bytes};
    memcpy(t.dims, p->dims, sizeof t.dims);
    t.data = calloc(1, p->bytes + 1);
    for (size_t i = 0; t.data && p->dtype == TACIT_I64 && i < p->bytes / 8; i++)
        ((int64_t *)t.data)[i] = 1; /* a token, a segment, a mask: one fits all of them */
    return t;
}

static double query(bench *b, const tacit_secure *s, const char *certs, const char *keys[2], int at)
{
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%d", 21000 + ((int)getpid() + at) % 30000);
    serving v = {
        .s = s,
        .peer = {.key = keys[0], .address = address, .certificates = certs, .timeout_ms = 60000}};
    tacit_secure_peer peer = v.peer;
    peer.key = keys[1];
    tacit_tensor in[8], out[8];
    uint32_t n = tacit_secure_input_count(s), m = tacit_secure_output_count(s);
    tacit_port port;
    for (uint32_t i = 0; i < n && i < 8; i++)
        if (tacit_secure_input(s, i, &port) == TACIT_OK)
            in[i] = tensor_for(&port);
    for (uint32_t i = 0; i < m && i < 8; i++)
        if (tacit_secure_output(s, i, &port) == TACIT_OK)
            out[i] = tensor_for(&port);
    pthread_t thread;
    tacit_secure_report report = {0};
    bool ok = pthread_create(&thread, NULL, serve, &v) == 0;
    if (ok) {
        ok = tacit_secure_query(s, &peer, in, n, out, m, &report, &b->err) == TACIT_OK;
        pthread_join(thread, NULL);
    }
    if (!ok)
        fprintf(stderr, "bench_secure: %s\n", b->err.message);
    b->failed |= !ok;
    for (uint32_t i = 0; i < n && i < 8; i++)
        free(in[i].data);
    for (uint32_t i = 0; i < m && i < 8; i++)
        free(out[i].data);
    return (double)report.online_ns * 1e-9;
}

static void online(bench *b, const char *example, double peer, const char *peer_name)
{
    enum { RUNS = 3 };
    char name[64], server[96], client[96], certs[96];
    snprintf(name, sizeof name, "secure/%s", example);
    if (!wanted(b, name))
        return;
    tacit_model *model = NULL;
    tacit_secure *s = prepare(b, example, NULL, &model);
    tacit_secure_costs c;
    snprintf(server, sizeof server, "%s/%s-s.key", b->dir, example);
    snprintf(client, sizeof client, "%s/%s-c.key", b->dir, example);
    snprintf(certs, sizeof certs, "%s/certs", b->dir);
    tacit_secure_deal_options deal = {.runs = RUNS, .server_key = server, .client_key = client};
    uint64_t start = clock_ns();
    if (s && (tacit_secure_deal(s, &deal, &b->err) != TACIT_OK ||
              tacit_secure_certificates(certs, 1, &b->err) != TACIT_OK)) {
        fprintf(stderr, "bench_secure: %s\n", b->err.message);
        b->failed = true;
    }
    double dealing = (double)(clock_ns() - start) * 1e-9 / RUNS, best = HUGE_VAL;
    for (int i = 0; i < RUNS && s && !b->failed; i++)
        best = fmin(best, query(b, s, certs, (const char *[]){server, client}, i));
    if (s && !b->failed) {
        struct rusage used;
        getrusage(RUSAGE_SELF, &used);
        tacit_secure_cost(s, &c);
        snprintf(name, sizeof name, "secure/%s/online", example);
        row(name, best, peer, "s", peer_name, c.mode);
        snprintf(name, sizeof name, "secure/%s/deal", example);
        row(name, dealing, 1, "s", "goal", c.mode);
        snprintf(name, sizeof name, "secure/%s/memory", example);
        row(name, (double)used.ru_maxrss / 0x1p20, 1, "GiB", "goal, all parties", c.mode);
    }
    tacit_secure_free(s);
    tacit_model_free(model);
}

/* ---- the dealer alone ---- */

/* Deals in a process of its own, which knows the description only. False: it failed. */
static bool deal_apart(bench *b, const char *arch, double *seconds, double *gib)
{
    char server[96], client[96];
    snprintf(server, sizeof server, "%s/d-s.key", b->dir);
    snprintf(client, sizeof client, "%s/d-c.key", b->dir);
    uint64_t start = clock_ns();
    pid_t pid = fork();
    if (pid == 0) {
        tacit_secure *s = NULL;
        tacit_secure_deal_options o = {.server_key = server, .client_key = client};
        bool ok = tacit_secure_load(arch, &s, &b->err) == TACIT_OK &&
                  tacit_secure_deal(s, &o, &b->err) == TACIT_OK;
        _exit(ok ? 0 : 1);
    }
    int status = 0;
    struct rusage used = {0};
    bool ok = pid > 0 && wait4(pid, &status, 0, &used) == pid && WIFEXITED(status) &&
              WEXITSTATUS(status) == 0;
    *seconds = (double)(clock_ns() - start) * 1e-9;
    *gib = (double)used.ru_maxrss / 0x1p20;
    unlink(server);
    unlink(client);
    b->failed |= !ok;
    return ok;
}

/* BERT-base layers at 32 tokens: time per GiB of keys, and memory by the number of layers. */
static void dealer(bench *b)
{
    double first = 0;
    if (!wanted(b, "secure/dealer"))
        return;
    for (int layers = 1; layers <= 4; layers += 3) {
        char name[64], path[128], arch[128], command[1800];
        snprintf(path, sizeof path, "%s/layers.onnx", b->dir);
        snprintf(arch, sizeof arch, "%s/layers.tacit", b->dir);
        snprintf(command, sizeof command,
                 "'%s' example bert --layers %d --seq 32 --vocab 1000 --out %s > /dev/null && "
                 "'%s' secure strip %s --out %s > /dev/null",
                 b->tool, layers, path, b->tool, path, arch);
        tacit_secure *s = NULL;
        tacit_secure_costs c;
        double seconds, gib;
        if (system(command) != 0 || tacit_secure_load(arch, &s, &b->err) != TACIT_OK) {
            fprintf(stderr, "bench_secure: cannot make a model of %d layers\n", layers);
            b->failed = true;
            return;
        }
        tacit_secure_cost(s, &c);
        double keys = (double)(c.key_bytes_server + c.key_bytes_client) / 0x1p30;
        tacit_secure_free(s);
        if (!deal_apart(b, arch, &seconds, &gib))
            return;
        snprintf(name, sizeof name, "secure/dealer/bert-%d/time", layers);
        row(name, seconds / keys, 5, "s/GiB", "goal", c.mode);
        snprintf(name, sizeof name, "secure/dealer/bert-%d/memory", layers);
        first = first > 0 ? first : gib;
        row(name, gib, layers > 1 ? first : 1, "GiB", layers > 1 ? "one layer" : "goal", c.mode);
    }
}

int main(int argc, char **argv)
{
    bench b = {.prefix = argc > 1 ? argv[1] : ""};
    char self[400];
    snprintf(self, sizeof self, "%s", argv[0]);
    snprintf(b.tool, sizeof b.tool, "%s/tacit", dirname(self));
    snprintf(b.dir, sizeof b.dir, "/tmp/tacit-bench-XXXXXX");
    if (!mkdtemp(b.dir) || setenv("TACIT_STATE_HOME", b.dir, 1) != 0)
        return 1;
    printf("%-30s %12s %12s %-6s %7s  %s\n", "bench", "ours", "peer", "unit", "ratio",
           "peer name [mode]");
    online(&b, "mlp", 0.1, "goal");
    online(&b, "bert-tiny", 1.0, "goal (two processor cores)");
    dealer(&b);
    plans(&b);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", b.dir);
    if (system(command) != 0)
        b.failed = true;
    return b.failed;
}
