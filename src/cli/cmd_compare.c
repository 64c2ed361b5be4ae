/* SPDX-License-Identifier: Apache-2.0
 * tacit compare: run two ways, report errors and the first node where they part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/map.h"
#include "base/sbuf.h"
#include "base/vec.h"
#include "cli/ort.h"

/* Values of the trusted run by name, and what the other run showed against them. */
typedef struct comparison {
    arena memory;
    map trusted; /* name → tacit_tensor */
    double tolerance;
    bool failed_memory;
    /* The first value, in running order, that is off. */
    bool parted;
    char node[128], op[64], value[128];
    cli_difference first;
    uint32_t compared;
} comparison;

static void keep(void *context, const char *node, const char *op, const char *value,
                 const tacit_tensor *t)
{
    comparison *c = context;
    (void)node;
    (void)op;
    tacit_tensor *copy = ARENA_NEW(&c->memory, tacit_tensor);
    const char *name = arena_strdup(&c->memory, value);
    if (!copy || !name || t->dtype == TACIT_STRING) {
        c->failed_memory |= !copy || !name;
        return;
    }
    *copy = *t;
    copy->data = arena_copy(&c->memory, t->data, t->bytes);
    if (!copy->data || !map_put(&c->trusted, name, copy))
        c->failed_memory = true;
}

static bool is_off(const comparison *c, const cli_difference *d)
{
    return d->mismatched > 0 || d->max_relative > c->tolerance;
}

static void check(void *context, const char *node, const char *op, const char *value,
                  const tacit_tensor *t)
{
    comparison *c = context;
    const tacit_tensor *trusted = map_get(&c->trusted, value);
    cli_difference d;
    if (!trusted || c->parted)
        return;
    bool comparable = cli_compare_values(t, trusted, &d);
    c->compared++;
    if (comparable && !is_off(c, &d))
        return;
    c->parted = true;
    c->first = d;
    snprintf(c->node, sizeof c->node, "%s", node);
    snprintf(c->op, sizeof c->op, "%s", op);
    snprintf(c->value, sizeof c->value, "%s", value);
}

/* The reference runs the untouched graph, so that every value of the model is there to compare. */
static int run_reference(const cli_job *job, comparison *c, cli_job *reference)
{
    static const char *const all[] = {"all"};
    tacit_compile_options o = job->options;
    o.executor = TACIT_EXEC_REFERENCE;
    o.disabled_passes = all;
    o.n_disabled_passes = 1;
    int code = cli_job_second(job, &o, reference);
    if (code < 0) {
        tacit_session_watch(reference->session, keep, c);
        code = cli_job_run(reference);
    }
    return code;
}

static int run_ort(const cli_job *job, const char *path, comparison *c, tacit_tensor *outputs)
{
    ort_peer peer;
    char why[256] = "";
    uint64_t ns;
    if (!ort_start(&peer, why))
        return cli_fail(job->command, "%s (%s)", why, ort_needs);
    bool ok = ort_open(&peer, path, 1, true, job->inputs, job->n_inputs, NULL, why) &&
              ort_run(&peer, &ns, why);
    uint32_t n = ok ? ort_output_count(&peer, why) : 0;
    for (uint32_t i = 0; ok && i < n; i++) {
        tacit_tensor t;
        ok = ort_output(&peer, i, &c->memory, &t, why);
        tacit_tensor *kept = ok ? arena_copy(&c->memory, &t, sizeof t) : NULL;
        ok = ok && kept && map_put(&c->trusted, t.name, kept);
        for (uint32_t k = 0; ok && k < job->n_outputs; k++)
            if (strcmp(job->outputs[k].name, t.name) == 0)
                outputs[k] = t;
    }
    ort_stop(&peer);
    return ok ? -1 : cli_fail(job->command, "%s", why);
}

static void report(const cli_job *job, const comparison *c, const tacit_tensor *trusted,
                   const char *against, bool json, bool *equal)
{
    sbuf out;
    sbuf_init(&out, NULL);
    *equal = !c->parted;
    if (json)
        sbuf_printf(&out, "{\"vs\":\"%s\",\"tolerance\":%g,\"outputs\":[", against, c->tolerance);
    for (uint32_t i = 0; i < job->n_outputs; i++) {
        cli_difference d;
        bool same_type = trusted[i].data && cli_compare_tensors(&job->outputs[i], &trusted[i], &d);
        bool off = !same_type || is_off(c, &d);
        *equal &= !off;
        if (json) {
            sbuf_text(&out, i ? ",{\"name\":" : "{\"name\":");
            sbuf_json(&out, job->outputs[i].name);
            sbuf_printf(&out, ",\"max_abs\":%g,\"max_rel\":%g,\"equal\":%s}",
                        same_type ? d.max_absolute : -1.0, same_type ? d.max_relative : -1.0,
                        off ? "false" : "true");
        } else if (same_type) {
            sbuf_printf(&out, "%-24s max abs error %.3g, max rel error %.3g%s\n",
                        job->outputs[i].name, d.max_absolute, d.max_relative,
                        off ? "   <-- differs" : "");
        } else {
            sbuf_printf(&out, "%-24s type or shape differs\n", job->outputs[i].name);
        }
    }
    if (json) {
        sbuf_printf(&out,
                    "],\"values_compared\":%u,\"equal\":%s,\"first_difference\":", c->compared,
                    *equal ? "true" : "false");
        if (c->parted) {
            sbuf_text(&out, "{\"node\":");
            sbuf_json(&out, c->node);
            sbuf_text(&out, ",\"op\":");
            sbuf_json(&out, c->op);
            sbuf_text(&out, ",\"value\":");
            sbuf_json(&out, c->value);
            sbuf_printf(&out, ",\"max_rel\":%g}", c->first.max_relative);
        } else {
            sbuf_text(&out, "null");
        }
        sbuf_text(&out, "}\n");
    } else if (c->parted) {
        sbuf_printf(&out,
                    "first difference: node '%s' (%s), value '%s': max rel error %.3g at "
                    "element %lld\n",
                    c->node, c->op, c->value, c->first.max_relative, (long long)c->first.worst);
    } else {
        sbuf_printf(&out, "%s with %s: %u values compared, tolerance %g\n",
                    *equal ? "equal" : "differs", against, c->compared, c->tolerance);
    }
    fputs(sbuf_str(&out) ? sbuf_str(&out) : "", stdout);
    sbuf_free(&out);
}

static int compare(const char *path, const char *against, cli_job *job, comparison *c, bool json)
{
    cli_job reference = {0};
    tacit_tensor *trusted = calloc(job->n_outputs + 1u, sizeof *trusted);
    int code = trusted ? -1 : cli_fail("compare", "out of memory");
    bool ort = strcmp(against, "ort") == 0;
    if (code < 0)
        code = ort ? run_ort(job, path, c, trusted) : run_reference(job, c, &reference);
    if (code < 0 && !ort)
        memcpy(trusted, reference.outputs, job->n_outputs * sizeof *trusted);
    if (code < 0 && c->failed_memory)
        code = cli_fail("compare", "out of memory for the intermediate values");
    if (code < 0) {
        tacit_session_watch(job->session, check, c);
        code = cli_job_run(job);
    }
    if (code < 0) {
        bool equal;
        report(job, c, trusted, against, json, &equal);
        code = equal ? CLI_OK : CLI_FAILURE;
    }
    if (!ort)
        cli_job_close(&reference);
    free(trusted);
    return code;
}

/* Takes the place of a node's kernel: leaves its output as it was. */
static void broken_kernel(const void *args, uint32_t begin, uint32_t end)
{
    (void)args;
    (void)begin;
    (void)end;
}

/* Breaks the kernels of one node in this session, to show that the comparison names it. */
static int break_node(const cli_job *job, const char *name)
{
    const prog_program *program = api_program_prog(job->program);
    prog_session *session = api_session_run(job->session);
    bool found = false;
    for (uint32_t i = 0; i < program->n_thunks; i++)
        if (strcmp(program->thunks[i].made->node->name, name) == 0) {
            session->calls[i].fn = broken_kernel;
            found = true;
        }
    return found ? -1 : cli_fail("compare", "no thunk belongs to a node named '%s'", name);
}

int cmd_compare(int argc, char **argv)
{
    cli_compile compile = {0};
    cli_list inputs = {0};
    const char *path = NULL, *against = "reference", *broken = NULL;
    int64_t seed = 1;
    bool json = false;
    comparison c = {.tolerance = 1e-3};
    const cli_option options[] = {
        {"--vs", CLI_STRING, &against, "WHO", "reference (default) or ort (ONNX Runtime)"},
        CLI_INPUT_OPTIONS(&inputs, &seed),
        {"--tolerance", CLI_FLOAT, &c.tolerance, "X",
         "largest relative error (default 1e-3; models in half precision need more)"},
        {"--break", CLI_STRING, &broken, "NODE",
         "leave this node's kernel out, to see it found (serial executor)"},
        {"--json", CLI_FLAG, &json, NULL, "machine-readable"},
        CLI_COMPILE_OPTIONS(&compile),
    };
    const cli_usage usage = {
        "compare",
        "MODEL --vs reference|ort [options]",
        "Runs the compiled model and another way on the same input, reports the error of every\n"
        "output and the first node where they part. Errors are relative to the larger value, or\n"
        "to 5 % of the tensor's largest value where both are smaller. Exit 1 when they differ.",
        options,
        CLI_COUNT(options),
        1,
        1};
    int code = cli_parse(&usage, argc, argv, &path, NULL);
    if (code >= 0)
        return code;
    if (strcmp(against, "ort") != 0 && strcmp(against, "reference") != 0)
        return cli_usage_error("compare", "--vs is reference or ort, not '%s'", against);
    cli_job job;
    arena_init(&c.memory, NULL);
    map_init(&c.trusted, &c.memory);
    code = cli_job_open(&job, "compare", path, &compile, &inputs, seed);
    if (code < 0 && broken)
        code = break_node(&job, broken);
    if (code < 0)
        code = compare(path, against, &job, &c, json);
    cli_job_close(&job);
    arena_free(&c.memory);
    return code;
}
