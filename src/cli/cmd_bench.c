/* SPDX-License-Identifier: Apache-2.0
 * tacit bench: time a model, alone or interleaved with ONNX Runtime. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/cpu.h"
#include "base/progress.h"
#include "base/rng.h"
#include "cli/ort.h"
#include "ir/tensor.h"

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

typedef struct timing {
    uint64_t *ns;
    uint32_t count;
} timing;

static double quantile_ms(const timing *t, double q)
{
    return (double)t->ns[(uint32_t)(q * (double)(t->count - 1) + 0.5)] / 1e6;
}

static bool timing_init(timing *t, int64_t runs)
{
    t->ns = calloc((size_t)runs, sizeof *t->ns);
    return t->ns != NULL;
}

typedef struct bench {
    cli_job job;
    timing ours, theirs;
    ort_peer peer;
    bool has_peer;
    double our_open, their_open; /* seconds: load + compile */
    int64_t runs;
    int64_t past; /* positions a cache holds before every run */
    bool has_cache;
    tacit_tensor *fed; /* what the peer is given: our inputs, then the past */
    uint32_t n_fed;
} bench;

/* Worker threads spin for a while after a run (ONNX Runtime's for some 40 ms); neither side shall
 * pay for the other's. */
static void settle(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

/* Inputs of the model that the program keeps in its cache: `past` positions of random numbers, for
 * both sides. */
static int make_past(bench *b)
{
    cli_job *job = &b->job;
    uint32_t n = tacit_model_input_count(job->model);
    b->fed = ARENA_ARRAY(&job->memory, n + job->n_inputs + 1u, tacit_tensor);
    if (!b->fed)
        return cli_fail("bench", "out of memory");
    for (uint32_t i = 0; i < job->n_inputs; i++)
        b->fed[b->n_fed++] = job->inputs[i];
    rng r = rng_seed(2);
    for (uint32_t i = 0; b->past > 0 && i < n; i++) {
        tacit_port port;
        bool ours = tacit_model_input(job->model, i, &port) != TACIT_OK;
        for (uint32_t k = 0; !ours && k < job->n_inputs; k++)
            ours = strcmp(job->inputs[k].name, port.name) == 0;
        if (ours)
            continue;
        tacit_tensor *t = &b->fed[b->n_fed++];
        *t = (tacit_tensor){.name = port.name, .dtype = port.dtype, .rank = port.rank};
        int64_t count = 1;
        for (int32_t d = 0; d < port.rank; d++) /* a batch that is symbolic is one */
            count *= t->dims[d] = port.dims[d] >= 0 ? port.dims[d] : d == 0 ? 1 : b->past;
        t->bytes = (size_t)count * tacit_dtype_bits(t->dtype) / 8;
        t->data = arena_alloc_aligned(&job->memory, t->bytes, 64);
        if (!t->data || !ir_dtype_is_float(t->dtype))
            return cli_fail("bench", "no past for input '%s'", port.name);
        for (int64_t k = 0; k < count; k++)
            ir_store_f64(t->dtype, t->data, k, rng_range(&r, -1, 1));
    }
    tacit_error err = {TACIT_OK, ""};
    if (b->past > 0 && tacit_session_cache_fill(job->session, b->fed + job->n_inputs,
                                                b->n_fed - job->n_inputs, &err) != TACIT_OK)
        return cli_fail("bench", "%s", err.message);
    return -1;
}

/* One run of ours; a cache is first put back to where it was. */
static int run_ours(bench *b, uint64_t *ns)
{
    tacit_error err = {TACIT_OK, ""};
    if (b->has_cache && tacit_session_cache_rewind(b->job.session, b->past, &err) != TACIT_OK)
        return cli_fail("bench", "%s", err.message);
    uint64_t start = clock_ns();
    int code = cli_job_run(&b->job);
    *ns = clock_ns() - start;
    return code;
}

static int measure(bench *b)
{
    progress bar;
    progress_begin(&bar, "bench", (uint64_t)b->runs);
    char why[256] = "";
    uint64_t ns;
    int code = run_ours(b, &ns); /* warm */
    if (code < 0 && b->has_peer && !ort_run(&b->peer, &ns, why))
        code = cli_fail("bench", "%s", why);
    for (int64_t i = 0; code < 0 && i < b->runs; i++) {
        if (b->has_peer)
            settle();
        code = run_ours(b, &b->ours.ns[b->ours.count++]);
        if (code < 0 && b->has_peer) {
            settle();
            if (!ort_run(&b->peer, &ns, why))
                code = cli_fail("bench", "%s", why);
            b->theirs.ns[b->theirs.count++] = ns;
        }
        progress_update(&bar, (uint64_t)i + 1, NULL);
    }
    progress_end(&bar);
    return code;
}

static void report(bench *b, bool json)
{
    qsort(b->ours.ns, b->ours.count, sizeof(uint64_t), by_value);
    double ours = quantile_ms(&b->ours, 0.5), theirs = 0;
    if (b->has_peer) {
        qsort(b->theirs.ns, b->theirs.count, sizeof(uint64_t), by_value);
        theirs = quantile_ms(&b->theirs, 0.5);
    }
    if (json) {
        printf("{\"median_ms\":%.4f,\"p10_ms\":%.4f,\"p90_ms\":%.4f,\"open_ms\":%.2f", ours,
               quantile_ms(&b->ours, 0.1), quantile_ms(&b->ours, 0.9), b->our_open * 1e3);
        if (b->has_peer)
            printf(",\"peer\":\"onnxruntime %s\",\"peer_median_ms\":%.4f,\"peer_open_ms\":%.2f,"
                   "\"ratio\":%.3f",
                   b->peer.version, theirs, b->their_open * 1e3, theirs / ours);
        printf("}\n");
        return;
    }
    printf("tacit        median %.3f ms  (p10 %.3f, p90 %.3f, %u runs), open %.1f ms\n", ours,
           quantile_ms(&b->ours, 0.1), quantile_ms(&b->ours, 0.9), b->ours.count,
           b->our_open * 1e3);
    if (b->has_peer)
        printf("onnxruntime  median %.3f ms  (p10 %.3f, p90 %.3f), open %.1f ms  [%s]\n"
               "ratio        %.2fx run, %.2fx open (above 1: tacit is faster)\n",
               theirs, quantile_ms(&b->theirs, 0.1), quantile_ms(&b->theirs, 0.9),
               b->their_open * 1e3, b->peer.version, theirs / ours, b->their_open / b->our_open);
}

/* --- --serve: runs when asked, one line of JSON each time ---------------------------------------
 */

/* "VmHWM:" and the like from /proc/self/status, in KiB; 0 where there is none. */
static long status_kb(const char *field)
{
    char line[256];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            kb = strtol(line + strlen(field), NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

static double cpu_ns(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return ((double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec) * 1e9 +
           ((double)u.ru_utime.tv_usec + (double)u.ru_stime.tv_usec) * 1e3;
}

/* The first answer tells what opening cost; then "run N" is answered by the time of each run. */
static int serve(bench *b, long before_kb)
{
    uint64_t ns;
    int code = run_ours(b, &ns);
    if (code >= 0)
        return code;
    printf("{\"open_ns\":%.0f,\"first_ns\":%" PRIu64 ",\"peak_kb\":%ld}\n", b->our_open * 1e9, ns,
           status_kb("VmHWM:") - before_kb);
    fflush(stdout);
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        long runs = strncmp(line, "run ", 4) == 0 ? strtol(line + 4, NULL, 10) : 0;
        if (runs < 1 || runs > 1000000)
            return cli_usage_error("bench", "--serve understands: run N");
        double cpu = cpu_ns();
        printf("{\"ns\":[");
        for (long i = 0; i < runs; i++) {
            if ((code = run_ours(b, &ns)) >= 0)
                return code;
            printf("%s%" PRIu64, i ? "," : "", ns);
        }
        printf("],\"cpu_ns\":%.0f}\n", cpu_ns() - cpu);
        fflush(stdout);
    }
    return CLI_OK;
}

static int start_peer(bench *b, const char *path, int threads)
{
    char why[256] = "";
    if (!ort_start(&b->peer, why))
        return cli_fail("bench", "%s (%s)", why, ort_needs);
    b->has_peer = true;
    if (!ort_open(&b->peer, path, threads, false, b->fed, b->n_fed, &b->their_open, why))
        return cli_fail("bench", "%s", why);
    return -1;
}

int cmd_bench(int argc, char **argv)
{
    cli_compile compile = {0};
    cli_list inputs = {0};
    const char *path = NULL, *against = NULL;
    int64_t seed = 1;
    bool json = false, served = false;
    bench b = {.runs = 20};
    const cli_option options[] = {
        {"--runs", CLI_INT, &b.runs, "N", "timed runs (default 20)"},
        {"--vs", CLI_STRING, &against, "ort", "also time ONNX Runtime, runs interleaved"},
        CLI_INPUT_OPTIONS(&inputs, &seed),
        {"--past", CLI_INT, &b.past, "N", "with --cache: positions it holds before every run"},
        {"--json", CLI_FLAG, &json, NULL, "machine-readable"},
        {"--serve", CLI_FLAG, &served, NULL, "run when standard input says: run N"},
        CLI_COMPILE_OPTIONS(&compile),
    };
    const cli_usage usage = {"bench",
                             "MODEL [--runs N] [--vs ort] [options]",
                             "Median time of a run, and of opening (load and compile).",
                             options,
                             CLI_COUNT(options),
                             1,
                             1};
    int code = cli_parse(&usage, argc, argv, &path, NULL);
    if (code >= 0)
        return code;
    if (b.runs < 1 || b.runs > 1000000)
        return cli_usage_error("bench", "--runs is 1 to 1000000");
    if (b.past < 0 || (b.past && b.past >= compile.cache))
        return cli_usage_error("bench", "--past is below what --cache N has room for");
    b.has_cache = compile.cache > 0;
    if (against && strcmp(against, "ort") != 0)
        return cli_usage_error("bench", "--vs is ort, not '%s'", against);
    long before_kb = status_kb("VmHWM:");
    code = cli_job_open(&b.job, "bench", path, &compile, &inputs, seed);
    if (code < 0 && (!timing_init(&b.ours, b.runs) || !timing_init(&b.theirs, b.runs)))
        code = cli_fail("bench", "out of memory");
    if (code < 0)
        code = make_past(&b);
    b.our_open = (double)(b.job.load_ns + b.job.compile_ns) / 1e9;
    if (code < 0 && served)
        code = serve(&b, before_kb);
    bool tasks = compile.exec && strcmp(compile.exec, "tasks") == 0;
    int threads = !tasks ? 1 : compile.threads > 0 ? (int)compile.threads : (int)cpu_count();
    if (code < 0 && against)
        code = start_peer(&b, path, threads);
    if (code < 0)
        code = measure(&b);
    if (code < 0) {
        report(&b, json);
        code = CLI_OK;
    }
    ort_stop(&b.peer);
    cli_job_close(&b.job);
    free(b.ours.ns);
    free(b.theirs.ns);
    return code;
}
