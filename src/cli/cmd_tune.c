/* SPDX-License-Identifier: Apache-2.0
 * tacit tune: every way a shape can be computed is timed inside the model; the fastest are kept in
 * a file that compiling reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/progress.h"
#include "cli/inputs.h"

enum { MOST_WAYS = 8 };

typedef struct choice {
    tacit_tuning_point point; /* strings are copies */
    uint64_t ns[MOST_WAYS];   /* by way; of all nodes with this key */
} choice;

typedef struct tune {
    cli_job job;
    tacit_tuning *tuning;
    choice *choices;
    uint32_t count;
    int64_t runs;
} tune;

static choice *find_choice(tune *t, const char *key)
{
    for (uint32_t i = 0; i < t->count; i++)
        /* NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): every choice has a key */
        if (strcmp(t->choices[i].point.key, key) == 0)
            return &t->choices[i];
    return NULL;
}

static int list_choices(tune *t)
{
    uint32_t n = tacit_tuning_count(t->tuning);
    t->choices = calloc(n + 1u, sizeof *t->choices);
    if (!t->choices)
        return cli_fail("tune", "out of memory");
    for (uint32_t i = 0; i < n; i++) {
        tacit_tuning_point p;
        if (tacit_tuning_point_at(t->tuning, i, &p) != TACIT_OK || find_choice(t, p.key))
            continue;
        char *key = strdup(p.key);
        if (!key)
            return cli_fail("tune", "out of memory");
        t->choices[t->count++].point =
            (tacit_tuning_point){NULL, key, p.ways < MOST_WAYS ? p.ways : MOST_WAYS - 1};
    }
    return -1;
}

/* Adds the times of the nodes to their choices. */
static int measure(tune *t, cli_job *job, int way)
{
    int code = cli_job_run(job); /* warm */
    tacit_session_profile(job->session, 1);
    for (int64_t i = 0; code < 0 && i < t->runs; i++)
        code = cli_job_run(job);
    uint32_t rows = tacit_session_profile_count(job->session);
    for (uint32_t i = 0; code < 0 && i < tacit_tuning_count(t->tuning); i++) {
        tacit_tuning_point p;
        if (tacit_tuning_point_at(t->tuning, i, &p) != TACIT_OK)
            continue;
        choice *c = find_choice(t, p.key);
        for (uint32_t r = 0; c && r < rows; r++) {
            tacit_profile_row row;
            if (tacit_session_profile_row(job->session, r, &row) == TACIT_OK &&
                strcmp(row.node, p.node) == 0)
                c->ns[way] += row.nanoseconds;
        }
    }
    return code;
}

/* A way must be 3 % faster than the rule's own choice to take its place: timings are not exact. */
static int settle(tune *t)
{
    tacit_error err = {TACIT_OK, ""};
    for (uint32_t i = 0; i < t->count; i++) {
        choice *c = &t->choices[i];
        int best = 0;
        for (uint32_t w = 1; w <= c->point.ways; w++)
            if (c->ns[w] && (double)c->ns[w] < 0.97 * (double)c->ns[best ? best : 0] &&
                c->ns[w] < c->ns[best])
                best = (int)w;
        if (tacit_tuning_set(t->tuning, c->point.key, best, &err) != TACIT_OK)
            return cli_fail("tune", "%s", err.message);
        printf("%-40s", c->point.key);
        for (uint32_t w = 0; w <= c->point.ways; w++)
            printf(" %s%.3f%s", best == (int)w ? "[" : "", (double)c->ns[w] / 1e6 / (double)t->runs,
                   best == (int)w ? "]" : "");
        printf(" ms\n");
    }
    if (tacit_tuning_save(t->tuning, &err) != TACIT_OK)
        return cli_fail("tune", "%s", err.message);
    printf("%u shapes measured; kept in %s\n", t->count, tacit_tuning_path(t->tuning));
    return CLI_OK;
}

static int measure_ways(tune *t)
{
    tacit_compile_options o = t->job.options;
    int code = -1;
    o.tuning = t->tuning;
    uint32_t most = 0;
    progress bar;
    progress_begin(&bar, "tune", MOST_WAYS);
    for (uint32_t way = 0; code < 0 && way <= most; way++) {
        cli_job job;
        tacit_tuning_force(t->tuning, (int)way);
        code = cli_job_second(&t->job, &o, &job);
        if (code < 0 && way == 0)
            code = list_choices(t);
        for (uint32_t i = 0; way == 0 && i < t->count; i++)
            most = t->choices[i].point.ways > most ? t->choices[i].point.ways : most;
        if (code < 0)
            code = measure(t, &job, (int)way);
        cli_job_close(&job);
        progress_update(&bar, way + 1, NULL);
    }
    progress_end(&bar);
    tacit_tuning_force(t->tuning, -1);
    return code;
}

int cmd_tune(int argc, char **argv)
{
    cli_compile compile = {0};
    cli_list inputs = {0};
    const char *path = NULL, *file = NULL;
    int64_t seed = 1;
    tune t = {.runs = 20};
    const cli_option options[] = {
        {"--out", CLI_STRING, &file, "FILE", "where to keep the choices (default: the cache)"},
        {"--runs", CLI_INT, &t.runs, "N", "timed runs of each way (default 20)"},
        CLI_INPUT_OPTIONS(&inputs, &seed),
        CLI_COMPILE_OPTIONS(&compile),
    };
    const cli_usage usage = {"tune",
                             "MODEL [--out FILE] [options]",
                             "Times every way this model's shapes can be computed on this machine "
                             "and keeps the fastest.\nCompiling reads them from TACIT_TUNING or "
                             "the cache folder.",
                             options,
                             CLI_COUNT(options),
                             1,
                             1};
    int code = cli_parse(&usage, argc, argv, &path, NULL);
    if (code >= 0)
        return code;
    if (t.runs < 1 || t.runs > 100000)
        return cli_usage_error("tune", "--runs is 1 to 100000");
    tacit_error err = {TACIT_OK, ""};
    code = cli_job_open(&t.job, "tune", path, &compile, &inputs, seed);
    if (code < 0 && tacit_tuning_open(file, &t.tuning, &err) != TACIT_OK)
        code = cli_fail("tune", "%s", err.message);
    if (code < 0)
        code = measure_ways(&t);
    if (code < 0)
        code = settle(&t);
    for (uint32_t i = 0; i < t.count; i++)
        free((char *)t.choices[i].point.key);
    free(t.choices);
    tacit_tuning_free(t.tuning);
    cli_job_close(&t.job);
    return code;
}
