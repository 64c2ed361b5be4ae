/* SPDX-License-Identifier: Apache-2.0
 * Private inference on a GPU: primitives, ring products, dealing, and whole models as one party
 * alone and as two processes over TLS. Peers are SIGMA's figures on one H200. The parts are in
 * bench/gpu. The process itself never uses the driver: whoever does must not fork afterwards.
 * Usage: bench_gpu [PREFIX]; with TACIT_BENCH_JSONL every line is also appended there, with
 * TACIT_BENCH_MARKDOWN=FILE a page is written. Without a GPU it says so and ends. */
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpu/bench.h"

static const char page_head[] =
    "# Private inference on a GPU, measured\n"
    "\n"
    "Written by `make bench BENCH=gpu`. Faithful truncation, full range, masks per element,\n"
    "server-owned weights, 128 tokens, random weights and inputs. SIGMA: its figures on one\n"
    "H200. *two-processes*: both parties on one GPU, TLS on the loopback, keys on the device\n"
    "before the query, result compared bit for bit with the twin. *-lan*: 0.5 ms of round\n"
    "trip; *-wan*: 20 ms and 200 Mb/s each way; the parties are in network namespaces of\n"
    "their own, whose packets a process keeps for as long as the line would (where namespaces\n"
    "are not allowed, it does so with the bytes of their connections: *relay*). *-x8*: eight\n"
    "inferences share rounds, messages and weights. *alone*: one party with its messages\n"
    "copied back to it, no network. SIGMA's figures include the upload of keys: so does\n"
    "*alone-streamed*, where a quarter of the key (of a single block: half) is on the device\n"
    "at a time. *deal*: both keys into pinned host memory. *compare38*: long comparisons go\n"
    "by `digits` by default, which opens one message more than a tree. A tree's key is 512\n"
    "bytes (31 levels and a leaf of 16; a leaf twice as large saves one level, so that this\n"
    "is the least), of which the bus brings 108 M/s: no tree of 128-bit nodes can be copied\n"
    "150 M times a second. *lut13*: its trees end in leaves of eight blocks. *gelu*: with its\n"
    "key uploaded meanwhile; by default the bits that choose between its pieces come from\n"
    "short trees, which send a fifth less (`auto`); by `digits` its key is a third. Medians,\n"
    "warm, by wall clock.\n"
    "\n";

static const net loopback = {0}, lan = {"lan", 0.0005, 0}, wan = {"wan", 0.02, 25e6};

/* Everything that one process measures. */
static bool device_part(bench *b)
{
    bool failed = false;
    if (!bench_ok(b, cuda_open(0, 0, &b->d, &b->err)))
        return false;
    printf("device: %s\n", b->d.name);
    micro_all(b);
    failed |= b->failed;
    b->failed = false;
    models_gelu(b, "auto", TACIT_COMPARE_AUTO, NAN);
    models_gelu(b, "digits", TACIT_COMPARE_DIGITS, 250);
    failed |= b->failed;
    b->failed = false;
    for (size_t i = 0; i < BENCH_MODELS; i++)
        models_alone(b, &bench_models[i]);
    cuda_close(&b->d);
    return !failed && !b->failed;
}

static bool in_process(bench *b, bool (*part)(bench *b))
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        bool good = part(b);
        fflush(NULL);
        _exit(good ? 0 : 1);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    return pid > 0 && status == 0;
}
static bool present(bench *b)
{
    char why[200];
    bool there = cuda_present(why, sizeof why);
    if (!there)
        printf("gpu: %s\n", why);
    (void)b;
    return there;
}
/* What it was measured on, and the head of the table. */
static bool headline(bench *b)
{
    char day[32];
    time_t now = time(NULL);
    struct tm date;
    bool shared = getenv("CUDA_MPS_PIPE_DIRECTORY") != NULL;
    if (!b->page || fseek(b->page, 0, SEEK_END) != 0 || ftell(b->page) != 0)
        return true;
    if (!bench_ok(b, cuda_open(0, 0, &b->d, &b->err)))
        return false;
    strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&now, &date));
    fprintf(b->page,
            "%sMeasured %s: one %s, %ld cores of the host%s.\n\n"
            "| entry | ours | SIGMA | ratio | goal | met | |\n|---|---|---|---|---|---|---|\n",
            page_head, day, b->d.name, sysconf(_SC_NPROCESSORS_ONLN),
            shared ? "; processes share it through MPS" : "");
    cuda_close(&b->d);
    return true;
}

int main(int argc, char **argv)
{
    char self[400], command[128];
    bench b = {.prefix = argc > 1 ? argv[1] : ""};
    if (!bench_wanted(&b, "gpu/"))
        return 0;
    snprintf(self, sizeof self, "%s", argv[0]);
    snprintf(b.tool, sizeof b.tool, "%s/tacit", dirname(self));
    if (!in_process(&b, present)) {
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
    bool failed = !in_process(&b, headline);
    /* what takes longest comes last */
    const model_entry *m = bench_models;
    models_two(&b, &m[BENCH_TINY], 5, 1, &loopback);
    models_two(&b, &m[BENCH_TINY], 3, 8, &loopback);
    models_two(&b, &m[BENCH_TINY], 3, 1, &lan);
    models_two(&b, &m[BENCH_TINY], 1, 1, &wan);
    models_two(&b, &m[BENCH_LLAMA], 3, 1, &loopback);
    failed |= b.failed;
    b.failed = false;
    failed |= !in_process(&b, device_part);
    models_two(&b, &m[BENCH_BASE], 2, 1, &loopback);
    models_two(&b, &m[BENCH_GPT2], 2, 1, &loopback);
    models_two(&b, &m[BENCH_LARGE], 1, 1, &loopback);
    snprintf(command, sizeof command, "rm -rf '%s'", b.dir);
    failed |= system(command) != 0;
    return failed || b.failed;
}
