/* SPDX-License-Identifier: Apache-2.0
 * The executor's overhead and the memory plan.
 * Usage: bench_exec [PREFIX]   only entries whose name begins with PREFIX
 * exec/overhead_per_thunk: a run of 1 000 one-element thunks, per thunk; the peer is the target.
 * plan/NAME: arena bytes of an example model against its largest live set, which no plan can beat;
 * models come from the tacit binary beside this one. With TACIT_BENCH_JSONL set every line is also
 * appended to that file. */
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cpu.h"
#include "lines.h"
#include "tacit/tacit.h"

static const char *prefix = "";
static tacit_error err;

static bool wanted(const char *name)
{
    return bench_wanted(name, prefix);
}

/* Smaller is better for both numbers, so the ratio is peer to ours. */
static void report(const char *name, double ours, double peer, const char *peer_name,
                   const char *unit)
{
    printf("%-32s %14.2f %14.2f  %-18s %-6s %6.2f\n", name, ours, peer, peer_name, unit,
           peer / ours);
    bench_line(name, ours, peer, peer_name, unit, peer / ours);
}

static int complain(const char *what)
{
    fprintf(stderr, "bench_exec: %s: %s\n", what, err.message);
    return 1;
}

enum { CHAIN = 1000 };

static tacit_model *chain(void)
{
    tacit_builder *b;
    tacit_model *m = NULL;
    int64_t one = 1;
    if (tacit_builder_create("chain", NULL, &b, &err) != TACIT_OK)
        return NULL;
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 1, &one, NULL), v = x;
    for (int i = 0; i < CHAIN; i++)
        v = tacit_builder_node(b, "Add", 2, (tacit_value[]){v, x}, 1, NULL);
    tacit_builder_output(b, "y", v);
    if (tacit_builder_finish(b, &m, &err) != TACIT_OK)
        m = NULL;
    tacit_builder_free(b);
    return m;
}

/* Best of many: the machine is shared, and overhead is what the executor adds when undisturbed. */
static int overhead(void)
{
    static const char *const all[] = {"all"};
    tacit_compile_options o = {.disabled_passes = all, .n_disabled_passes = 1};
    tacit_model *m = chain();
    tacit_program *p = NULL;
    tacit_session *s = NULL;
    if (!m || tacit_compile(m, &o, &p, &err) != TACIT_OK ||
        tacit_session_create(p, &s, &err) != TACIT_OK)
        return complain("exec/overhead_per_thunk");
    tacit_memory_report memory;
    tacit_program_memory(p, &memory);
    float x = 1, y = 0;
    tacit_tensor in = {.dtype = TACIT_F32, .rank = 1, .dims = {1}, .data = &x, .bytes = 4};
    tacit_tensor out = in;
    out.data = &y;
    double best = 1e9;
    for (int i = 0; i < 5000; i++) {
        uint64_t start = clock_ns();
        if (tacit_run(s, &in, 1, &out, 1, &err) != TACIT_OK)
            return complain("exec/overhead_per_thunk");
        double ns = (double)(clock_ns() - start) / memory.thunks;
        best = ns < best ? ns : best;
    }
    if (memory.thunks != CHAIN || y != CHAIN + 1)
        return complain("exec/overhead_per_thunk: wrong thunks or result");
    report("exec/overhead_per_thunk", best, 15, "target", "ns");
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(m);
    return 0;
}

static int plan_of(const char *tacit, const char *name, const char *arguments)
{
    char entry[64], path[64], command[5000];
    snprintf(entry, sizeof entry, "plan/%s", name);
    if (!wanted(entry))
        return 0;
    snprintf(path, sizeof path, "/tmp/tacit-bench-%ld.onnx", (long)getpid());
    snprintf(command, sizeof command, "'%s' example %s --out %s >/dev/null", tacit, arguments,
             path);
    if (system(command) != 0) {
        snprintf(err.message, sizeof err.message, "tacit example %s failed", arguments);
        return complain(entry);
    }
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    tacit_status status = tacit_model_load(path, NULL, &m, &err);
    if (status == TACIT_OK)
        status = tacit_compile(m, NULL, &p, &err);
    unlink(path);
    if (status != TACIT_OK) {
        tacit_model_free(m);
        return complain(entry);
    }
    tacit_memory_report r;
    tacit_program_memory(p, &r);
    report(entry, (double)r.arena_bytes / 1024, (double)r.lower_bound_bytes / 1024,
           "largest live set", "KiB");
    tacit_program_free(p);
    tacit_model_free(m);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const models[][2] = {
        {"mlp", "mlp"},
        {"block", "block"},
        {"gpt2-2-layers", "gpt2 --layers 2"},
        {"bert-2-layers", "bert --layers 2"},
        {"minilm", "minilm"},
        {"resnet50", "resnet50"},
        {"mobilenetv2", "mobilenetv2"},
        {"llama-2-layers", "llama --layers 2"},
    };
    prefix = argc > 1 ? argv[1] : "";
    bool any = wanted("exec/overhead_per_thunk");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char entry[64];
        snprintf(entry, sizeof entry, "plan/%s", models[i][0]);
        any |= wanted(entry);
    }
    if (!any)
        return 0;
    printf("%-32s %14s %14s  %-18s %-6s %6s\n", "benchmark", "ours", "peer", "peer", "unit",
           "ratio");
    int failed = wanted("exec/overhead_per_thunk") ? overhead() : 0;
    char self[4096], tacit[4200];
    snprintf(self, sizeof self, "%s", argv[0]);
    snprintf(tacit, sizeof tacit, "%s/tacit", dirname(self));
    for (size_t i = 0; access(tacit, X_OK) == 0 && i < sizeof models / sizeof *models; i++)
        failed |= plan_of(tacit, models[i][0], models[i][1]);
    return failed;
}
