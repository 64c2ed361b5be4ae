/* SPDX-License-Identifier: Apache-2.0
 * tacit show and tacit explain: what the compiler made of a model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/internal.h"
#include "base/file.h"
#include "base/sbuf.h"
#include "cli/inputs.h"
#include "load/gguf.h"
#include "prog/tasks.h"

static int compile_only(cli_job *job, const char *command, const char *path,
                        const cli_compile *compile)
{
    tacit_error err = {TACIT_OK, ""};
    int code = cli_job_load(job, command, path, compile);
    if (code < 0 && tacit_compile(job->model, &job->options, &job->program, &err) != TACIT_OK)
        code = cli_fail(command, "%s", err.message);
    return code;
}

static int print_view(const char *command, const tacit_program *program, tacit_view_kind kind,
                      tacit_format format, const char *node)
{
    tacit_error err = {TACIT_OK, ""};
    char *text = NULL;
    if (tacit_program_view(program, kind, format, node, &text, &err) != TACIT_OK)
        return cli_fail(command, "%s", err.message);
    fputs(text, stdout);
    tacit_text_free(text);
    return -1;
}

/* What min-time costs in memory and gains in freedom: memory used again orders tasks that the data
 * does not. */
static int print_trade(const cli_job *job)
{
    printf("\ntrade        %14s %16s %16s %9s\n", "arena bytes", "est. chain", "est. work",
           "at most");
    for (int goal = TACIT_PLAN_MIN_MEMORY; goal <= TACIT_PLAN_MIN_TIME; goal++) {
        tacit_error err = {TACIT_OK, ""};
        tacit_compile_options options = job->options;
        tacit_program *program = NULL;
        options.plan = (tacit_plan_goal)goal;
        if (tacit_compile(job->model, &options, &program, &err) != TACIT_OK)
            return cli_fail("show", "%s", err.message);
        const prog_program *p = api_program_prog(program);
        const char *name = goal == TACIT_PLAN_MIN_TIME ? "min-time" : "min-memory";
        double work, path;
        bool ok = prog_tasks_path(p, &work, &path);
        unsigned long long bytes = p->plan.arena_bytes;
        if (ok && path > 0)
            printf("  %-10s %14llu %13.2f ms %13.2f ms %8.2fx\n", name, bytes, path / 1e6,
                   work / 1e6, work / path);
        else
            printf("  %-10s %14llu   (too small for tasks: runs on one thread)\n", name, bytes);
        tacit_program_free(program);
    }
    return -1;
}

static int write_html(const tacit_program *program, const char *path)
{
    tacit_error err = {TACIT_OK, ""};
    char *text = NULL;
    tacit_status status =
        tacit_program_view(program, TACIT_VIEW_GRAPH, TACIT_FORMAT_HTML, NULL, &text, &err);
    if (status == TACIT_OK)
        status = file_write_all(path, text, strlen(text), &err);
    tacit_text_free(text);
    return status == TACIT_OK ? -1 : cli_fail("show", "%s", err.message);
}

/* The model as loaded: needs no compile, so it also works for models Tacit cannot run. */
static int print_loaded(const char *path, bool weights)
{
    tacit_error err = {TACIT_OK, ""};
    tacit_model *model = NULL;
    char *text = NULL;
    tacit_status status = tacit_model_load(path, NULL, &model, &err);
    if (status == TACIT_OK)
        status = tacit_model_text(model, weights, &text, &err);
    if (status == TACIT_OK)
        fputs(text, stdout);
    tacit_text_free(text);
    tacit_model_free(model);
    return status == TACIT_OK ? CLI_OK : cli_fail("show", "%s", err.message);
}

/* What a GGUF file holds, whether or not a graph can be made of it. */
static int print_gguf(const char *path, bool json)
{
    file_map file;
    load_gguf_file f;
    tacit_error err = {TACIT_OK, ""};
    arena memory;
    sbuf out;
    if (file_map_open(&file, path, &err) != TACIT_OK)
        return cli_fail("show", "%s", err.message);
    arena_init(&memory, NULL);
    sbuf_init(&out, NULL);
    tacit_status status = load_gguf(file.data, file.size, &memory, &f, &err);
    if (status == TACIT_OK && json)
        sbuf_printf(&out, "{\"version\":%u,\"metadata\":{", f.version);
    for (uint32_t i = 0; status == TACIT_OK && i < f.pairs.count; i++) {
        const load_gguf_pair *p = &f.pairs.data[i];
        if (json) {
            sbuf_text(&out, i ? "," : "");
            sbuf_json(&out, p->key);
            sbuf_text(&out, ":");
        } else {
            sbuf_printf(&out, "%s = ", p->key);
        }
        if (p->kind == LOAD_GGUF_STRING)
            sbuf_json(&out, p->text);
        else if (p->kind == LOAD_GGUF_ARRAY)
            sbuf_printf(&out, json ? "{\"count\":%llu}" : "[%llu items]",
                        (unsigned long long)p->count);
        else
            sbuf_printf(&out, isfinite(p->number) ? "%.9g" : "null", p->number);
        sbuf_text(&out, json ? "" : "\n");
    }
    sbuf_text(&out, json ? "},\"tensors\":[" : "");
    for (uint32_t i = 0; status == TACIT_OK && i < f.tensors.count; i++) {
        const load_gguf_tensor *t = &f.tensors.data[i];
        char shape[IR_SHAPE_TEXT];
        ir_shape_text(&t->shape, shape);
        if (json) {
            sbuf_text(&out, i ? ",{\"name\":" : "{\"name\":");
            sbuf_json(&out, t->name);
            sbuf_printf(&out, ",\"type\":\"%s\",\"shape\":%s,\"bytes\":%zu}", t->type, shape,
                        t->bytes);
        } else {
            sbuf_printf(&out, "%s : %s%s, %zu bytes\n", t->name, t->type, shape, t->bytes);
        }
    }
    sbuf_text(&out, json ? "]}\n" : "");
    if (status == TACIT_OK)
        fputs(sbuf_str(&out) ? sbuf_str(&out) : "", stdout);
    sbuf_free(&out);
    arena_free(&memory);
    file_map_close(&file);
    return status == TACIT_OK ? CLI_OK : cli_fail("show", "%s: %s", path, err.message);
}

static bool names_gguf(const char *path)
{
    size_t n = strlen(path);
    return n > 5 && strcmp(path + n - 5, ".gguf") == 0;
}

int cmd_show(int argc, char **argv)
{
    cli_compile compile = {0};
    const char *path = NULL, *html = NULL;
    bool wanted[4] = {false}, loaded = false, weights = false, json = false;
    const cli_option options[] = {
        {"--loaded", CLI_FLAG, &loaded, NULL, "the graph as loaded, before any pass"},
        {"--weights", CLI_FLAG, &weights, NULL, "with --loaded: weights in full, as base64"},
        {"--graph", CLI_FLAG, &wanted[TACIT_VIEW_GRAPH], NULL, "the graph after the passes"},
        {"--passes", CLI_FLAG, &wanted[TACIT_VIEW_PASSES], NULL, "what each pass changed"},
        {"--plan", CLI_FLAG, &wanted[TACIT_VIEW_PLAN], NULL, "the memory map, time by bytes"},
        {"--program", CLI_FLAG, &wanted[TACIT_VIEW_PROGRAM], NULL, "the thunk list"},
        {"--html", CLI_STRING, &html, "FILE", "write all of it as one self-contained page"},
        {"--json", CLI_FLAG, &json, NULL, "machine-readable"},
        {"--exec", CLI_STRING, &compile.exec, "NAME", "executor to compile for (default serial)"},
        {"--dim", CLI_LIST, &compile.dims, "NAME=SIZE", "size of a symbolic dimension; repeatable"},
        {"--disable-pass", CLI_LIST, &compile.disabled, "NAME", "leave a pass out; repeatable"},
        {"--cache", CLI_INT, &compile.cache, "N", "keep past keys and values in the session"},
        {"--plan-goal", CLI_STRING, &compile.plan, "GOAL", "min-memory (default) or min-time"},
    };
    const cli_usage usage = {
        "show",
        "MODEL --graph | --passes | --plan | --program [--html FILE]",
        "Compiles a model and shows each stage of the road. Nothing is run and "
        "no arena is\nallocated: every byte is known before. With --exec tasks, --plan also shows "
        "what the\n"
        "goals min-memory and min-time trade.",
        options,
        CLI_COUNT(options),
        1,
        1};
    int code = cli_parse(&usage, argc, argv, &path, NULL);
    if (code >= 0)
        return code;
    if (loaded)
        return print_loaded(path, weights);
    bool nothing = !html;
    for (int i = 0; i < 4; i++)
        nothing &= !wanted[i];
    if (nothing && names_gguf(path))
        return print_gguf(path, json);
    cli_job job;
    code = compile_only(&job, "show", path, &compile);
    if (code < 0 && html)
        code = write_html(job.program, html);
    bool any = false;
    for (int i = 0; code < 0 && i < 4; i++)
        if (wanted[i]) {
            code = print_view("show", job.program, (tacit_view_kind)i,
                              json ? TACIT_FORMAT_JSON : TACIT_FORMAT_TEXT, NULL);
            any = true;
        }
    bool tasks = job.options.executor == TACIT_EXEC_TASKS;
    if (code < 0 && wanted[TACIT_VIEW_PLAN] && tasks && !json)
        code = print_trade(&job);
    if (code < 0 && !any && !html)
        code = cli_usage_error("show", "say what to show: --graph, --passes, --plan or --program");
    cli_job_close(&job);
    return code < 0 ? CLI_OK : code;
}

int cmd_explain(int argc, char **argv)
{
    cli_compile compile = {0};
    const char *positional[2] = {NULL, NULL};
    bool json = false;
    const cli_option options[] = {
        {"--json", CLI_FLAG, &json, NULL, "machine-readable"},
        CLI_COMPILE_OPTIONS(&compile),
    };
    const cli_usage usage = {
        "explain",
        "MODEL [NODE] [options]",
        "For each node (or the one named): where it came from, which passes rewrote it, which "
        "kernel\nwas chosen and why the next best was not, and why a near-miss fusion did not "
        "happen.",
        options,
        CLI_COUNT(options),
        1,
        2};
    int code = cli_parse(&usage, argc, argv, positional, NULL);
    if (code >= 0)
        return code;
    cli_job job;
    code = compile_only(&job, "explain", positional[0], &compile);
    if (code < 0)
        code = print_view("explain", job.program, TACIT_VIEW_EXPLAIN,
                          json ? TACIT_FORMAT_JSON : TACIT_FORMAT_TEXT, positional[1]);
    cli_job_close(&job);
    return code < 0 ? CLI_OK : code;
}
