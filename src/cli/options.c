/* SPDX-License-Identifier: Apache-2.0
 * Option parsing and messages. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

volatile sig_atomic_t cli_interrupted;
static volatile sig_atomic_t finish_first;

static void on_interrupt(int signal_number)
{
    static const char message[] = "tacit: interrupted\n";
    (void)signal_number;
    /* The second Ctrl-C ends every command at once, for those in a hurry. */
    if (!finish_first || cli_interrupted) {
        ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
        (void)written; /* nobody is left to tell */
        _exit(CLI_INTERRUPTED);
    }
    cli_interrupted = 1;
}

void cli_catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
}

void cli_finish_first(void)
{
    finish_first = 1;
}

void cli_finish_done(void)
{
    finish_first = 0;
}

void cli_complain(bool usage, const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "tacit %s: ", command);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    if (usage)
        fprintf(stderr, "Try 'tacit %s --help'.\n", command);
}

static int print_help(const cli_usage *u)
{
    printf("usage: tacit %s %s\n\n%s\n\noptions:\n", u->command, u->synopsis, u->about);
    for (uint32_t i = 0; i < u->n_options; i++) {
        const cli_option *o = &u->options[i];
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", o->name, o->argument ? " " : "",
                 o->argument ? o->argument : "");
        printf("  %-26s %s\n", left, o->help);
    }
    printf("  %-26s %s\n", "--help", "this text");
    return CLI_OK;
}

/* What option values point to lives until the process ends; it stays reachable, so that leak
 * checkers see only real leaks. */
static void *keep(void *memory)
{
    static struct kept {
        struct kept *next;
        void *memory;
    } * all;
    struct kept *k = memory ? malloc(sizeof *k) : NULL;
    if (!k) {
        free(memory);
        return NULL;
    }
    *k = (struct kept){all, memory};
    all = k;
    return memory;
}

static bool push(cli_list *list, const char *item)
{
    const char **items = keep(calloc(list->count + 1u, sizeof *items));
    if (!items)
        return false;
    if (list->count)
        memcpy(items, list->items, list->count * sizeof *items);
    items[list->count++] = item;
    list->items = items;
    return true;
}

static int store(const cli_usage *u, const cli_option *o, const char *value)
{
    char *end = NULL;
    errno = 0;
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->target = true;
        return -1;
    case CLI_INT:
        *(int64_t *)o->target = strtoll(value, &end, 10);
        break;
    case CLI_FLOAT:
        *(double *)o->target = strtod(value, &end);
        break;
    case CLI_STRING:
        *(const char **)o->target = value;
        return -1;
    case CLI_LIST:
        if (!push(o->target, value))
            return cli_fail(u->command, "out of memory");
        return -1;
    }
    if (errno || end == value || *end)
        return cli_usage_error(u->command, "%s needs a number, not '%s'", o->name, value);
    return -1;
}

/* argv[*i] is an option: "--name value" or "--name=value". */
static int parse_option(const cli_usage *u, int argc, char **argv, int *i)
{
    const char *arg = argv[*i], *equals = strchr(arg, '=');
    size_t length = equals ? (size_t)(equals - arg) : strlen(arg);
    for (uint32_t k = 0; k < u->n_options; k++) {
        const cli_option *o = &u->options[k];
        if (strlen(o->name) != length || memcmp(o->name, arg, length) != 0)
            continue;
        if (o->kind == CLI_FLAG)
            return equals ? cli_usage_error(u->command, "%s takes no value", o->name)
                          : store(u, o, NULL);
        if (equals)
            return store(u, o, equals + 1);
        if (*i + 1 >= argc)
            return cli_usage_error(u->command, "%s needs a value (%s)", o->name, o->argument);
        return store(u, o, argv[++*i]);
    }
    return cli_usage_error(u->command, "unknown option '%s'", arg);
}

int cli_parse(const cli_usage *u, int argc, char **argv, const char **positional,
              uint32_t *n_positional)
{
    uint32_t n = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return print_help(u);
        if (argv[i][0] == '-' && argv[i][1]) {
            int code = parse_option(u, argc, argv, &i);
            if (code >= 0)
                return code;
        } else if (n == u->max_positional) {
            return cli_usage_error(u->command, "unexpected argument '%s'", argv[i]);
        } else {
            positional[n++] = argv[i];
        }
    }
    if (n < u->min_positional)
        return cli_usage_error(u->command, "missing argument: tacit %s %s", u->command,
                               u->synopsis);
    if (n_positional)
        *n_positional = n;
    return -1;
}

const char *cli_bytes(uint64_t bytes, char *buffer)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, 24, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return buffer;
}

int cli_dims(const char *command, const cli_list *list, tacit_dim *dims)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const char *equals = strchr(list->items[i], '=');
        char *end = NULL;
        long long value = equals ? strtoll(equals + 1, &end, 10) : -1;
        if (!equals || equals == list->items[i] || *end || end == equals + 1 || value < 0)
            return cli_usage_error(command, "--dim needs NAME=SIZE, not '%s'", list->items[i]);
        char *name = keep(strndup(list->items[i], (size_t)(equals - list->items[i])));
        if (!name)
            return cli_fail(command, "out of memory");
        dims[i] = (tacit_dim){name, value};
    }
    return -1;
}

/* Index of `word` in a NULL-ended list, or -1. */
static int choose(const char *word, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    return -1;
}

int cli_compile_options(const char *command, const cli_compile *c, tacit_compile_options *out)
{
    static const char *const executors[] = {"serial", "reference", "tasks", NULL};
    static const char *const levels[] = {"normal", "strict", "none", NULL};
    static const char *const goals[] = {"min-memory", "min-time", NULL};
    int exec = choose(c->exec ? c->exec : "serial", executors);
    int level = choose(c->validate ? c->validate : "normal", levels);
    int goal = choose(c->plan ? c->plan : "min-memory", goals);
    if (exec < 0)
        return cli_usage_error(command, "--exec is serial, tasks or reference, not '%s'", c->exec);
    if (level < 0)
        return cli_usage_error(command, "--validate is normal, strict or none, not '%s'",
                               c->validate);
    if (goal < 0)
        return cli_usage_error(command, "--plan is min-memory or min-time, not '%s'", c->plan);
    if (c->threads < 0 || c->threads > 1024)
        return cli_usage_error(command, "--threads is 0 (all) to 1024");
    tacit_dim *dims = keep(calloc(c->dims.count + 1u, sizeof *dims));
    if (!dims)
        return cli_fail(command, "out of memory");
    int code = cli_dims(command, &c->dims, dims);
    *out = (tacit_compile_options){.dims = dims,
                                   .n_dims = c->dims.count,
                                   .executor = (tacit_executor)exec,
                                   .threads = (uint32_t)c->threads,
                                   .validate = (tacit_validate)level,
                                   .plan = (tacit_plan_goal)goal,
                                   .batch_invariant = c->batch_invariant,
                                   .plain_sums = c->plain_sums,
                                   .packed_file = c->packed,
                                   .last_only = c->last.items,
                                   .n_last_only = c->last.count,
                                   .disabled_passes = c->disabled.items,
                                   .n_disabled_passes = c->disabled.count,
                                   .cache_capacity = c->cache,
                                   .start_early = 1};
    return code;
}
