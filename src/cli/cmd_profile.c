/* SPDX-License-Identifier: Apache-2.0
 * tacit profile: where the time of a run goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/file.h"
#include "base/sbuf.h"
#include "cli/inputs.h"

typedef struct profile {
    tacit_profile_row *rows;
    uint32_t count;
    uint64_t wall_ns, named_ns;
    int64_t runs;
} profile;

static int by_time(const void *a, const void *b)
{
    uint64_t x = ((const tacit_profile_row *)a)->nanoseconds;
    uint64_t y = ((const tacit_profile_row *)b)->nanoseconds;
    return (x < y) - (x > y);
}

static int collect(cli_job *job, profile *p)
{
    int code = cli_job_run(job); /* warm */
    tacit_session_profile(job->session, 1);
    uint64_t start = clock_ns();
    for (int64_t i = 0; code < 0 && i < p->runs; i++)
        code = cli_job_run(job);
    p->wall_ns = clock_ns() - start;
    p->count = tacit_session_profile_count(job->session);
    p->rows = calloc(p->count + 1u, sizeof *p->rows);
    if (code < 0 && !p->rows)
        code = cli_fail("profile", "out of memory");
    for (uint32_t i = 0; code < 0 && i < p->count; i++) {
        if (tacit_session_profile_row(job->session, i, &p->rows[i]) != TACIT_OK)
            code = cli_fail("profile", "row %u cannot be read", i);
        p->named_ns += p->rows[i].nanoseconds;
    }
    return code;
}

static double share(const profile *p, uint64_t ns)
{
    return p->wall_ns ? 100.0 * (double)ns / (double)p->wall_ns : 0;
}

static double rate(double amount, const tacit_profile_row *r)
{
    return r->nanoseconds ? amount * (double)r->calls / (double)r->nanoseconds
                          : 0; /* per ns: G/s */
}

static void print_text(const profile *p, int64_t top)
{
    printf("%8s %6s %10s %9s %9s  %-22s %s\n", "ms", "share", "calls", "GFLOP/s", "GB/s", "kernel",
           "node");
    for (uint32_t i = 0; i < p->count && (int64_t)i < top; i++) {
        const tacit_profile_row *r = &p->rows[i];
        printf("%8.3f %5.1f%% %10llu %9.1f %9.1f  %-22s %s (%s)\n",
               (double)r->nanoseconds / 1e6 / (double)p->runs, share(p, r->nanoseconds),
               (unsigned long long)r->calls, rate(r->flops, r), rate((double)r->bytes, r),
               r->kernel, r->node, r->op);
    }
    printf("run %.3f ms, %.1f%% of it in named thunks\n",
           (double)p->wall_ns / 1e6 / (double)p->runs, share(p, p->named_ns));
}

static void print_json(const profile *p)
{
    sbuf out;
    sbuf_init(&out, NULL);
    sbuf_printf(&out, "{\"run_ms\":%.4f,\"named_share\":%.4f,\"rows\":[",
                (double)p->wall_ns / 1e6 / (double)p->runs, share(p, p->named_ns) / 100);
    for (uint32_t i = 0; i < p->count; i++) {
        const tacit_profile_row *r = &p->rows[i];
        sbuf_text(&out, i ? ",{\"node\":" : "{\"node\":");
        sbuf_json(&out, r->node);
        sbuf_text(&out, ",\"op\":");
        sbuf_json(&out, r->op);
        sbuf_text(&out, ",\"kernel\":");
        sbuf_json(&out, r->kernel);
        sbuf_printf(&out, ",\"calls\":%llu,\"ns\":%llu,\"bytes\":%llu,\"flops\":%.0f}",
                    (unsigned long long)r->calls, (unsigned long long)r->nanoseconds,
                    (unsigned long long)r->bytes, r->flops);
    }
    sbuf_text(&out, "]}\n");
    fputs(sbuf_str(&out) ? sbuf_str(&out) : "", stdout);
    sbuf_free(&out);
}

/* Chrome/Perfetto trace: the average run, thunks end to end in program order. */
static int write_trace(const profile *p, const char *path)
{
    sbuf out;
    sbuf_init(&out, NULL);
    sbuf_text(&out, "{\"traceEvents\":[");
    double at = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const tacit_profile_row *r = &p->rows[i];
        double us = (double)r->nanoseconds / 1e3 / (double)p->runs;
        sbuf_text(&out, i ? ",\n{\"name\":" : "\n{\"name\":");
        sbuf_json(&out, r->node);
        sbuf_text(&out, ",\"cat\":");
        sbuf_json(&out, r->op);
        sbuf_printf(&out,
                    ",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f,\"args\":{"
                    "\"kernel\":",
                    at, us);
        sbuf_json(&out, r->kernel);
        sbuf_text(&out, "}}");
        at += us;
    }
    sbuf_text(&out, "\n]}\n");
    tacit_error err = {TACIT_OK, ""};
    const char *text = sbuf_str(&out);
    tacit_status status =
        text ? file_write_all(path, text, out.length, &err) : error_memory(&err, "the trace");
    sbuf_free(&out);
    return status == TACIT_OK ? -1 : cli_fail("profile", "%s", err.message);
}

int cmd_profile(int argc, char **argv)
{
    cli_compile compile = {0};
    cli_list inputs = {0};
    const char *path = NULL, *trace = NULL;
    int64_t seed = 1, top = 30;
    bool json = false;
    profile p = {.runs = 10};
    const cli_option options[] = {
        {"--runs", CLI_INT, &p.runs, "N", "runs to add up (default 10)"},
        {"--top", CLI_INT, &top, "N", "rows to print (default 30)"},
        {"--trace", CLI_STRING, &trace, "FILE", "write a Chrome/Perfetto trace"},
        CLI_INPUT_OPTIONS(&inputs, &seed),
        {"--json", CLI_FLAG, &json, NULL, "machine-readable, every row"},
        CLI_COMPILE_OPTIONS(&compile),
    };
    const cli_usage usage = {
        "profile", "MODEL [options]",  "Time, bytes and arithmetic of every thunk, largest first.",
        options,   CLI_COUNT(options), 1,
        1};
    int code = cli_parse(&usage, argc, argv, &path, NULL);
    if (code >= 0)
        return code;
    if (p.runs < 1)
        return cli_usage_error("profile", "--runs must be at least 1");
    cli_job job;
    code = cli_job_open(&job, "profile", path, &compile, &inputs, seed);
    if (code < 0)
        code = collect(&job, &p);
    if (code < 0 && trace)
        code = write_trace(&p, trace);
    if (code < 0) {
        qsort(p.rows, p.count, sizeof *p.rows, by_time);
        if (json)
            print_json(&p);
        else
            print_text(&p, top);
        code = CLI_OK;
    }
    cli_job_close(&job);
    free(p.rows);
    return code;
}
