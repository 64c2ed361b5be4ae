/* SPDX-License-Identifier: Apache-2.0
 * tacit run: one inference from files, random or zero inputs. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/cpu.h"
#include "base/sbuf.h"
#include "cli/inputs.h"
#include "load/load.h"

enum { SHOWN = 6 }; /* leading elements printed of each output */

static void print_element(sbuf *out, const tacit_tensor *t, int64_t i, bool json)
{
    if (t->dtype == TACIT_STRING) {
        const tacit_string *s = (const tacit_string *)t->data + i;
        char text[64];
        snprintf(text, sizeof text, "%.*s", (int)(s->length < 60 ? s->length : 60), s->data);
        sbuf_json(out, text);
        return;
    }
    double v = cli_element(t, i);
    if (json && (v != v || v - v != 0)) /* JSON has no NaN or infinity */
        sbuf_text(out, "null");
    else
        sbuf_printf(out, "%.6g", v);
}

static uint64_t peak_resident(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : 0;
}

static void print_outputs(const cli_job *job, uint64_t run_ns, bool json)
{
    sbuf out;
    sbuf_init(&out, NULL);
    if (json)
        sbuf_printf(&out,
                    "{\"load_ms\":%.3f,\"compile_ms\":%.3f,\"run_ms\":%.3f,"
                    "\"peak_resident_bytes\":%llu,\"outputs\":[",
                    (double)job->load_ns / 1e6, (double)job->compile_ns / 1e6, (double)run_ns / 1e6,
                    (unsigned long long)peak_resident());
    for (uint32_t i = 0; i < job->n_outputs; i++) {
        const tacit_tensor *t = &job->outputs[i];
        char type[320];
        cli_tensor_type(t, type);
        if (json) {
            sbuf_text(&out, i ? ",{\"name\":" : "{\"name\":");
            sbuf_json(&out, t->name);
            sbuf_printf(&out, ",\"type\":\"%s\",\"head\":[", type);
        } else {
            sbuf_printf(&out, "%s : %s = [", t->name, type);
        }
        int64_t n = cli_elements(t);
        for (int64_t k = 0; k < n && k < SHOWN; k++) {
            sbuf_text(&out, k ? ", " : "");
            print_element(&out, t, k, json);
        }
        sbuf_text(&out, json ? "]}" : n > SHOWN ? ", ...]\n" : "]\n");
    }
    if (json)
        sbuf_text(&out, "]}\n");
    fputs(sbuf_str(&out) ? sbuf_str(&out) : "", stdout);
    if (!json) {
        char peak[24];
        printf("load %.1f ms, compile %.1f ms, run %.2f ms, peak resident memory %s\n",
               (double)job->load_ns / 1e6, (double)job->compile_ns / 1e6, (double)run_ns / 1e6,
               cli_bytes(peak_resident(), peak));
    }
    sbuf_free(&out);
}

static int write_outputs(const cli_job *job, const char *dir)
{
    if (mkdir(dir, 0777) != 0) {
        struct stat st;
        if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
            return cli_fail("run", "cannot make the folder '%s'", dir);
    }
    for (uint32_t i = 0; i < job->n_outputs; i++) {
        const tacit_tensor *t = &job->outputs[i];
        char path[4096], name[256];
        snprintf(name, sizeof name, "%s", t->name);
        for (char *c = name; *c; c++)
            if (*c == '/' || *c == ':')
                *c = '_';
        snprintf(path, sizeof path, "%s/%s.npy", dir, name);
        ir_shape shape = ir_shape_of(t->rank, t->dims);
        ir_tensor tensor = ir_tensor_view(t->dtype, &shape, t->data);
        tacit_error err = {TACIT_OK, ""};
        if (load_npy_write(&tensor, path, &err) != TACIT_OK)
            return cli_fail("run", "%s", err.message);
    }
    return -1;
}

int cmd_run(int argc, char **argv)
{
    cli_compile compile = {0};
    cli_list inputs = {0};
    const char *path = NULL, *dir = NULL;
    int64_t seed = 1, runs = 1;
    bool json = false;
    const cli_option options[] = {
        CLI_INPUT_OPTIONS(&inputs, &seed),
        {"--output", CLI_STRING, &dir, "DIR", "write every output as DIR/NAME.npy"},
        {"--runs", CLI_INT, &runs, "N", "run N times, report the last (default 1)"},
        {"--json", CLI_FLAG, &json, NULL, "machine-readable result"},
        CLI_COMPILE_OPTIONS(&compile),
    };
    const cli_usage usage = {"run",
                             "MODEL [--input NAME=FILE.npy|random|zeros]... [options]",
                             "Loads, compiles and runs a model once. Symbolic dimensions are taken "
                             "from the input\nfiles' shapes or from --dim.",
                             options,
                             CLI_COUNT(options),
                             1,
                             1};
    int code = cli_parse(&usage, argc, argv, &path, NULL);
    if (code >= 0)
        return code;
    cli_job job;
    code = cli_job_open(&job, "run", path, &compile, &inputs, seed);
    uint64_t ns = 0;
    for (int64_t i = 0; code < 0 && i < runs; i++) {
        uint64_t start = clock_ns();
        code = cli_job_run(&job);
        ns = clock_ns() - start;
    }
    if (code < 0 && dir)
        code = write_outputs(&job, dir);
    if (code < 0) {
        print_outputs(&job, ns, json);
        code = CLI_OK;
    }
    cli_job_close(&job);
    return code;
}
