/* SPDX-License-Identifier: Apache-2.0
 * tacit trace: one parallel run, worker by worker. */
#include <stdio.h>

#include "api/internal.h"
#include "base/cpu.h"
#include "cli/inputs.h"
#include "prog/tasks.h"

static void print_piece(void *context, const char *text, size_t length)
{
    fwrite(text, 1, length, context);
}

/* What is traced shall be like later runs: in the first ones nodes' costs, and so their order, are
 * not known yet (prog/tasks.c), and workers may still be asleep. */
enum { WARM_RUNS = 2 };
static const uint64_t warm_ns = 20000000;

static int warm(cli_job *job)
{
    uint64_t start = clock_ns();
    for (int i = 0; i < WARM_RUNS || clock_ns() - start < warm_ns; i++) {
        int code = cli_job_run(job);
        if (code >= 0)
            return code;
    }
    return -1;
}

static int run_traced(cli_job *job, int64_t level, const char *chrome, const char *html)
{
    tacit_error err = {TACIT_OK, ""};
    tacit_task_runtime *runtime = prog_tasks_runtime(api_session_run(job->session));
    if (!runtime)
        return cli_fail("trace", "this model is too small to run in parallel (or --threads is 1): "
                                 "it runs serially, see 'tacit profile'");
    int code = warm(job);
    if (code >= 0)
        return code;
    tacit_status status = tacit_task_trace_level(runtime, (uint32_t)level, &err);
    if (status == TACIT_OK && (code = cli_job_run(job)) >= 0)
        return code;
    if (status == TACIT_OK)
        status = tacit_task_trace_level(runtime, 0, &err);
    if (status == TACIT_OK)
        status = tacit_task_trace_report(runtime, print_piece, stdout, &err);
    if (status == TACIT_OK && chrome)
        status = tacit_task_trace_chrome(runtime, chrome, &err);
    if (status == TACIT_OK && html)
        status = tacit_task_trace_html(runtime, html, &err);
    return status == TACIT_OK ? CLI_OK : cli_fail("trace", "%s", err.message);
}

int cmd_trace(int argc, char **argv)
{
    cli_compile compile = {.exec = "tasks"};
    cli_list inputs = {0};
    const char *path = NULL, *chrome = NULL, *html = NULL;
    int64_t seed = 1, level = 2;
    const cli_option options[] = {
        {"--chrome", CLI_STRING, &chrome, "FILE", "write a Chrome/Perfetto trace"},
        {"--html", CLI_STRING, &html, "FILE", "write the lanes as one self-contained page"},
        {"--level", CLI_INT, &level, "N", "1 kernels, 2 + steals and sleeps (default), 3 all"},
        {"--threads", CLI_INT, &compile.threads, "N", "threads (default: all)"},
        CLI_INPUT_OPTIONS(&inputs, &seed),
        {"--dim", CLI_LIST, &compile.dims, "NAME=SIZE", "size of a symbolic dimension; repeatable"},
    };
    const cli_usage usage = {
        "trace",
        "MODEL [--chrome FILE] [--html FILE] [options]",
        "Runs the model once as tile tasks and reports busy, idle and overhead "
        "time per worker,\nidle time while work was ready and the critical "
        "path.",
        options,
        CLI_COUNT(options),
        1,
        1};
    int code = cli_parse(&usage, argc, argv, &path, NULL);
    if (code >= 0)
        return code;
    if (level < 1 || level > 3)
        return cli_usage_error("trace", "--level is 1, 2 or 3");
    cli_job job;
    code = cli_job_open(&job, "trace", path, &compile, &inputs, seed);
    if (code < 0)
        code = run_traced(&job, level, chrome, html);
    cli_job_close(&job);
    return code;
}
