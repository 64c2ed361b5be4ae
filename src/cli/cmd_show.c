/* SPDX-License-Identifier: Apache-2.0
 * tacit show and tacit explain: what the compiler made of a model. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/inputs.h"

static int compile_only(const char *command, const char *path, const cli_compile *compile,
                        tacit_model **model, tacit_program **program)
{
    tacit_error err = {TACIT_OK, ""};
    tacit_compile_options options;
    int code = cli_compile_options(command, compile, &options);
    if (code >= 0)
        return code;
    if (tacit_model_load(path, NULL, model, &err) != TACIT_OK ||
        tacit_compile(*model, &options, program, &err) != TACIT_OK)
        return cli_fail(command, "%s", err.message);
    return -1;
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
        {"--plan-goal", CLI_STRING, &compile.plan, "GOAL", "min-memory (default) or min-time"},
    };
    const cli_usage usage = {
        "show",
        "MODEL --graph | --passes | --plan | --program [--html FILE]",
        "Compiles a model and shows each stage of the road. Nothing is run and "
        "no arena is\nallocated: every byte is known before.",
        options,
        CLI_COUNT(options),
        1,
        1};
    int code = cli_parse(&usage, argc, argv, &path, NULL);
    if (code >= 0)
        return code;
    if (loaded)
        return print_loaded(path, weights);
    tacit_model *model = NULL;
    tacit_program *program = NULL;
    code = compile_only("show", path, &compile, &model, &program);
    if (code < 0 && html)
        code = write_html(program, html);
    bool any = false;
    for (int i = 0; code < 0 && i < 4; i++)
        if (wanted[i]) {
            code = print_view("show", program, (tacit_view_kind)i,
                              json ? TACIT_FORMAT_JSON : TACIT_FORMAT_TEXT, NULL);
            any = true;
        }
    if (code < 0 && !any && !html)
        code = cli_usage_error("show", "say what to show: --graph, --passes, --plan or --program");
    tacit_program_free(program);
    tacit_model_free(model);
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
    tacit_model *model = NULL;
    tacit_program *program = NULL;
    code = compile_only("explain", positional[0], &compile, &model, &program);
    if (code < 0)
        code = print_view("explain", program, TACIT_VIEW_EXPLAIN,
                          json ? TACIT_FORMAT_JSON : TACIT_FORMAT_TEXT, positional[1]);
    tacit_program_free(program);
    tacit_model_free(model);
    return code < 0 ? CLI_OK : code;
}
