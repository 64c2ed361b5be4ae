/* SPDX-License-Identifier: Apache-2.0
 * Training. Usage: bench_train [PREFIX]   only entries whose name begins with PREFIX
 * train/checkpoint/…: twelve layers with every layer's input kept, against all values kept.
 * train/compile/gpt2: the gradient of GPT-2 124M made and compiled, against two seconds.
 * train/NET/t2: one step (loss, gradients, AdamW) at batch 32 on two threads; the peer is PyTorch
 * with two threads, timed in turns in the same run. Its Python is TACIT_TORCH_PYTHON, else
 * TACIT_PYTHON, else .venv/bin/python; without PyTorch there, the time stands alone. With
 * TACIT_BENCH_JSONL set every line is also appended to that file. */
#include <libgen.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "bench_train_nets.h"
#include "lines.h"

static const char *prefix = "";
static tacit_error err;

static bool wanted(const char *name)
{
    return bench_wanted(name, prefix);
}

/* Smaller is better for both numbers, so the ratio is peer to ours; peer 0: none. */
static void report(const char *name, double ours, double peer, const char *peer_name,
                   const char *unit)
{
    double ratio = peer / ours;
    if (peer > 0)
        printf("%-32s %14.3f %14.3f  %-18s %-6s %6.2f\n", name, ours, peer, peer_name, unit, ratio);
    else
        printf("%-32s %14.3f %14s  %-18s %-6s %6s\n", name, ours, "-", peer_name, unit, "-");
    bench_line(name, ours, peer, peer_name, unit, ratio);
}

static int complain(const char *what)
{
    fprintf(stderr, "bench_train: %s: %s\n", what, err.message);
    return 1;
}

/* --- the peer --------------------------------------------------------------------------------- */

typedef struct torch_peer {
    pid_t pid;
    FILE *to, *from;
} torch_peer;

static void peer_close(torch_peer *p)
{
    if (p->to)
        fclose(p->to);
    if (p->from)
        fclose(p->from);
    if (p->pid > 0)
        (void)waitpid(p->pid, NULL, 0);
    *p = (torch_peer){0};
}

static const char *peer_python(void)
{
    const char *python = getenv("TACIT_TORCH_PYTHON");
    python = python && *python ? python : getenv("TACIT_PYTHON");
    return python && *python ? python : ".venv/bin/python";
}

/* Starts the peer with one network; false: there is no PyTorch. */
static bool peer_open(torch_peer *p, const char *net)
{
    int in[2], out[2];
    char line[128];
    *p = (torch_peer){0};
    if (pipe(in) != 0 || pipe(out) != 0)
        return false;
    p->pid = fork();
    if (p->pid == 0) {
        (void)dup2(in[0], STDIN_FILENO);
        (void)dup2(out[1], STDOUT_FILENO);
        if (!freopen("/dev/null", "w", stderr))
            _exit(127);
        close(in[1]);
        close(out[0]);
        execlp(peer_python(), peer_python(), "bench/peers/train_torch.py", "2", net, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    p->to = fdopen(in[1], "w");
    p->from = fdopen(out[0], "r");
    bool ok = p->pid > 0 && p->to && p->from && fgets(line, sizeof line, p->from) &&
              strncmp(line, "ready", 5) == 0;
    if (!ok)
        peer_close(p);
    return ok;
}

static double peer_time(torch_peer *p, const char *net, int steps)
{
    char line[128];
    fprintf(p->to, "%s %d\n", net, steps);
    fflush(p->to);
    return fgets(line, sizeof line, p->from) ? atof(line) / steps : 0;
}

/* --- steps ------------------------------------------------------------------------------------ */

enum { ROUNDS = 9 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *times)
{
    qsort(times, ROUNDS, sizeof *times, by_size);
    return times[ROUNDS / 2];
}

static double step_time(bench_step *s, int steps)
{
    uint64_t start = clock_ns();
    for (int i = 0; i < steps; i++)
        if (!bench_step_run(s, &err))
            return 0;
    return (double)(clock_ns() - start) / 1e6 / steps;
}

static int time_net(const char *net, int steps)
{
    char entry[64];
    snprintf(entry, sizeof entry, "train/%s/t2", net);
    if (!wanted(entry))
        return 0;
    torch_peer peer;
    bench_step s;
    double ours[ROUNDS], theirs[ROUNDS] = {0};
    if (!bench_step_open(&s, net, 2, false, 2, &err))
        return complain(entry);
    bool has_peer = peer_open(&peer, net);
    step_time(&s, 3);
    for (int i = 0; i < ROUNDS; i++) {
        if (has_peer)
            theirs[i] = peer_time(&peer, net, steps);
        usleep(20 * 1000); /* threads of the other side go to sleep */
        if ((ours[i] = step_time(&s, steps)) == 0)
            return complain(entry);
    }
    if (has_peer)
        peer_close(&peer);
    report(entry, median(ours), median(theirs), has_peer ? "PyTorch CPU" : "no PyTorch here", "ms");
    bench_step_close(&s);
    return 0;
}

/* Twelve layers with every layer's input kept and the rest computed again, against all kept. */
static int checkpoints(void)
{
    enum { LAYERS = 12 };
    static const char *const entries[] = {"train/checkpoint/memory", "train/checkpoint/time"};
    bench_step all, few;
    if (!wanted(entries[0]) && !wanted(entries[1]))
        return 0;
    if (!bench_step_open(&all, "transformer", LAYERS, false, 2, &err) ||
        !bench_step_open(&few, "transformer", LAYERS, true, 2, &err))
        return complain("train/checkpoint");
    tacit_memory_report a, f;
    tacit_program_memory(all.program, &a);
    tacit_program_memory(few.program, &f);
    if (wanted(entries[0]))
        report(entries[0], (double)f.arena_bytes / 1048576, (double)a.arena_bytes / 1048576,
               "all values kept", "MiB");
    double times[2][ROUNDS];
    for (int i = 0; wanted(entries[1]) && i < ROUNDS; i++)
        if ((times[0][i] = step_time(&all, 1)) == 0 || (times[1][i] = step_time(&few, 1)) == 0)
            return complain(entries[1]);
    if (wanted(entries[1]))
        report(entries[1], median(times[1]), median(times[0]), "all values kept", "ms");
    bench_step_close(&all);
    bench_step_close(&few);
    return 0;
}

/* GPT-2 124M: the gradient of all weights, made and compiled. The model comes from the tacit binary
 * beside this one. */
static int compile_gpt2(const char *self)
{
    static const char entry[] = "train/compile/gpt2";
    static char names[1000][128];
    const char *list[1000];
    char path[64], folder[4096], command[5000];
    uint32_t n = 0;
    if (!wanted(entry))
        return 0;
    snprintf(folder, sizeof folder, "%s", self);
    snprintf(path, sizeof path, "/tmp/tacit-bench-%ld.onnx", (long)getpid());
    snprintf(command, sizeof command, "'%s/tacit' example gpt2 --seq 128 --out %s >/dev/null",
             dirname(folder), path);
    tacit_model *m = NULL, *g = NULL;
    tacit_program *p = NULL;
    snprintf(err.message, sizeof err.message, "tacit example gpt2 failed");
    if (system(command) != 0 || tacit_model_load(path, NULL, &m, &err) != TACIT_OK)
        return complain(entry);
    for (uint32_t i = 0; i < tacit_model_weight_count(m) && n < 1000; i++) {
        tacit_port port;
        if (tacit_model_weight(m, i, &port, NULL) != TACIT_OK || port.dtype != TACIT_F32 ||
            port.rank == 0)
            continue;
        snprintf(names[n], sizeof names[n], "%s", port.name);
        list[n] = names[n];
        n++;
    }
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        uint64_t start = clock_ns();
        if (tacit_grad(m, n, list, NULL, &g, &err) != TACIT_OK ||
            tacit_compile(g, NULL, &p, &err) != TACIT_OK)
            return complain(entry);
        double seconds = (double)(clock_ns() - start) / 1e9;
        best = seconds < best ? seconds : best;
        tacit_program_free(p);
        tacit_model_free(g);
    }
    tacit_model_free(m);
    unlink(path);
    report(entry, best, 2, "target", "s");
    return 0;
}

int main(int argc, char **argv)
{
    prefix = argc > 1 ? argv[1] : "";
    signal(SIGPIPE, SIG_IGN);
    if (strncmp(prefix, "train/", strlen(prefix) < 6 ? strlen(prefix) : 6) != 0)
        return 0;
    printf("%-32s %14s %14s  %-18s %-6s %6s\n", "bench", "tacit", "peer", "peer is", "unit",
           "ratio");
    int failed = time_net("convnet", 60);
    failed |= time_net("transformer", 2);
    failed |= checkpoints();
    failed |= compile_gpt2(argv[0]);
    return failed;
}
