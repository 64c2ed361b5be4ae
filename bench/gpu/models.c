/* SPDX-License-Identifier: Apache-2.0
 * Whole models as two processes, keys from files, TLS between them. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rng.h"
#include "bench.h"
#include "line.h"

const model_entry bench_models[BENCH_MODELS] = {
    {"bert-tiny", "bert-tiny", "", 0.091, 0.064, NAN, 0.025, 0.012, NAN},
    {"bert-base", "bert", "", 1.646, 1.010, 0.74, 0.4, 0.2, 0.5},
    {"gpt2", "gpt2", "", 1.445, 0.885, NAN, 0.35, 0.18, NAN},
    {"bert-large", "bert", "--layers 24 --hidden 1024 --heads 16 --ffn 4096", 3.993, 2.749, NAN,
     1.0, 0.5, NAN},
    {"llama-block", "llama", "--layers 1", NAN, NAN, NAN, NAN, NAN, NAN},
};

bool models_make(bench *b, const model_entry *e, char *path, size_t size)
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

typedef struct question {
    const char *path;
    const tacit_secure_peer *peer;
    unsigned together;
    bool server, check;
    const spaces *apart;
} question;

/* Inputs and outputs of all inferences; every one has other inputs. */
static tacit_tensor *tensors(const tacit_secure *s, bool inputs, unsigned sets, uint32_t *n)
{
    *n = inputs ? tacit_secure_input_count(s) : tacit_secure_output_count(s);
    tacit_tensor *t = calloc((size_t)*n * sets + 1, sizeof *t);
    for (uint32_t i = 0; t && i < *n * sets; i++) {
        tacit_port port;
        tacit_status status =
            inputs ? tacit_secure_input(s, i % *n, &port) : tacit_secure_output(s, i % *n, &port);
        if (status == TACIT_OK)
            t[i] = tensor_for(&port, inputs ? 7 + i / *n : 0);
    }
    return t;
}

/* One party of one query, in a process of its own. */
static outcome party_process(const question *q)
{
    tacit_error err = {0};
    tacit_model *model = NULL;
    tacit_secure *s = NULL;
    tacit_secure_report report = {0};
    outcome o = {0};
    if (!spaces_enter(q->apart, q->server ? 0 : 1)) {
        fprintf(stderr, "bench_gpu: a namespace cannot be entered\n");
        return o;
    }
    if (tacit_model_load(q->path, NULL, &model, &err) != TACIT_OK ||
        tacit_secure_compile(model, NULL, &s, &err) != TACIT_OK) {
        fprintf(stderr, "bench_gpu: %s\n", err.message);
        return o;
    }
    uint32_t n, m;
    tacit_tensor *in = tensors(s, true, q->together, &n);
    tacit_tensor *out = tensors(s, false, q->together, &m), *sim = tensors(s, false, 1, &m);
    tacit_status status = q->server ? tacit_secure_serve(s, q->peer, &report, &err)
                                    : tacit_secure_query(s, q->peer, in, n, out, m, &report, &err);
    o = (outcome){(double)report.online_ns * 1e-9, (double)report.prepare_ns * 1e-9,
                  status == TACIT_OK};
    for (unsigned k = 0; o.ok && !q->server && q->check && k < q->together; k++) {
        o.ok = tacit_secure_simulate(s, in + k * n, n, sim, m, 0, 0, &err) == TACIT_OK;
        for (uint32_t i = 0; i < m; i++)
            o.ok &= memcmp(out[k * m + i].data, sim[i].data, sim[i].bytes) == 0;
    }
    if (!o.ok)
        fprintf(stderr, "bench_gpu: %s: %s\n", q->server ? "server" : "client",
                status == TACIT_OK ? "parties and twin disagree" : err.message);
    return o;
}

static void start_and_read(question q, const tacit_secure_peer peers[2], outcome o[2])
{
    int fd[2][2];
    pid_t pid[2];
    fflush(NULL);
    for (int p = 0; p < 2; p++) {
        o[p] = (outcome){0};
        if (pipe(fd[p]) != 0)
            return;
        pid[p] = fork();
        if (pid[p] == 0) {
            q.peer = &peers[p];
            q.server = p == 0;
            outcome mine = party_process(&q);
            _exit(write(fd[p][1], &mine, sizeof mine) == sizeof mine ? 0 : 1);
        }
        close(fd[p][1]);
    }
    for (int p = 0; p < 2; p++) {
        if (read(fd[p][0], &o[p], sizeof o[p]) != sizeof o[p])
            o[p].ok = 0;
        close(fd[p][0]);
        waitpid(pid[p], NULL, 0);
    }
}

typedef struct files {
    char path[200], keys[2][100], certs[100];
} files;

static bool deal(bench *b, const files *f, uint32_t runs)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        tacit_model *model = NULL;
        tacit_secure *s = NULL;
        tacit_secure_deal_options deal = {
            .runs = runs, .server_key = f->keys[0], .client_key = f->keys[1], .device = "cuda"};
        bool good = tacit_model_load(f->path, NULL, &model, &b->err) == TACIT_OK &&
                    tacit_secure_compile(model, NULL, &s, &b->err) == TACIT_OK &&
                    tacit_secure_deal(s, &deal, &b->err) == TACIT_OK &&
                    tacit_secure_certificates(f->certs, 1, &b->err) == TACIT_OK;
        if (!good)
            fprintf(stderr, "bench_gpu: %s\n", b->err.message);
        _exit(good ? 0 : 1);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    b->failed |= status != 0;
    return !b->failed;
}

/* One query; a party's clock starts when it is ready, so the later one's time is that of the
 * query. */
static double ask(bench *b, const files *f, unsigned together, const net *over, bool check,
                  double *prepare, bool *spaced)
{
    static int port;
    char address[2][64];
    port = port ? port + 2 : 10000 + (int)getpid() % 20000;
    spaces apart = {.space = {-1, -1}};
    bool joined = over->name && spaces_start(&apart, over);
    int relay = over->name && !joined ? relay_start(port + 1, port, over) : 0;
    for (int p = 0; p < 2; p++)
        snprintf(address[p], sizeof address[p], "%s:%d", joined ? SPACES_SERVER : "127.0.0.1",
                 port + (p && relay ? 1 : 0));
    tacit_secure_peer peers[2];
    for (int p = 0; p < 2; p++)
        peers[p] = (tacit_secure_peer){.key = f->keys[p],
                                       .address = address[p],
                                       .certificates = f->certs,
                                       .timeout_ms = 120000,
                                       .device = "cuda",
                                       .inferences = together};
    outcome o[2];
    question q = {.path = f->path, .together = together, .check = check, .apart = &apart};
    start_and_read(q, peers, o);
    if (relay)
        line_end(relay);
    spaces_stop(&apart);
    *spaced = joined;
    b->failed |= !o[0].ok || !o[1].ok;
    *prepare = o[0].prepare > o[1].prepare ? o[0].prepare : o[1].prepare;
    return o[0].online < o[1].online ? o[0].online : o[1].online;
}

void models_two(bench *b, const model_entry *e, int runs, unsigned together, const net *over)
{
    enum { MOST = 8 };
    char name[80], many[16] = "";
    files f;
    if (together > 1)
        snprintf(many, sizeof many, "-x%u", together);
    snprintf(name, sizeof name, "gpu/%s/two-processes%s%s%s", e->name, many, over->name ? "-" : "",
             over->name ? over->name : "");
    if (!bench_wanted(b, name) || b->failed || !models_make(b, e, f.path, sizeof f.path))
        return;
    snprintf(f.keys[0], sizeof f.keys[0], "%s/s.key", b->dir);
    snprintf(f.keys[1], sizeof f.keys[1], "%s/c.key", b->dir);
    snprintf(f.certs, sizeof f.certs, "%s/certs", b->dir);
    double times[MOST], prepare = 0;
    bool spaced = false;
    runs = runs < MOST ? runs : MOST;
    deal(b, &f, (uint32_t)runs * together);
    for (int i = 0; i < runs && !b->failed; i++) {
        double p = 0;
        times[i] = ask(b, &f, together, over, i == 0, &p, &spaced) / together;
        prepare = i ? prepare : p;
    }
    char drop[400];
    snprintf(drop, sizeof drop, "rm -f %s/*.key", b->dir);
    b->failed |= system(drop) != 0;
    if (b->failed)
        return;
    qsort(times, (size_t)runs, sizeof *times, bench_by_value);
    char note[160];
    bool plain = together == 1 && !over->name;
    snprintf(note, sizeof note, "%s%sTLS, bit-exact; of %d; prepared in %.2f s",
             together > 1 ? "each of so many at once; " : "",
             spaced       ? "two network namespaces; "
             : over->name ? "relay; "
                          : "",
             runs, prepare);
    bench_row(b, name, times[(runs - 1) / 2] * 1e3, plain ? e->two * 1e3 : NAN,
              plain ? e->two_goal * 1e3 : NAN, false, "ms", note);
}
