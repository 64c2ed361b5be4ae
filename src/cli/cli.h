/* SPDX-License-Identifier: Apache-2.0
 * What the subcommands share: the command table, option parsing, exit codes, interruption. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "tacit/tacit.h"

enum { CLI_OK = 0, CLI_FAILURE = 1, CLI_USAGE = 2, CLI_INTERRUPTED = 130 };

/* One file per subcommand; argv[0] is the command's name. */
int cmd_bench(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_conformance(int argc, char **argv);
int cmd_example(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_ops(int argc, char **argv);
int cmd_passes(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_tune(int argc, char **argv);
int cmd_quantize(int argc, char **argv);
int cmd_run(int argc, char **argv);
int cmd_secure(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_trace(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_transform(int argc, char **argv);

typedef enum cli_kind {
    CLI_FLAG,   /* bool */
    CLI_INT,    /* int64_t */
    CLI_FLOAT,  /* double */
    CLI_STRING, /* const char * */
    CLI_LIST,   /* cli_list: may be given many times */
} cli_kind;

typedef struct cli_list {
    const char **items;
    uint32_t count;
} cli_list;

typedef struct cli_option {
    const char *name; /* "--runs" */
    cli_kind kind;
    void *target;
    const char *argument; /* "N"; NULL for flags */
    const char *help;
} cli_option;

typedef struct cli_usage {
    const char *command;  /* "run" */
    const char *synopsis; /* "MODEL [options]" */
    const char *about;    /* paragraph(s) for --help */
    const cli_option *options;
    uint32_t n_options;
    uint32_t min_positional, max_positional;
} cli_usage;

/* Fills the options' targets and `positional` (room for max_positional). Returns -1 to go on, or
 * the exit code after --help or a usage error. List storage lives until the process ends. */
int cli_parse(const cli_usage *usage, int argc, char **argv, const char **positional,
              uint32_t *n_positional);
#define CLI_COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

/* "tacit run: message" on standard error; yields CLI_FAILURE. Macros, so that a reader of the code
 * sees which exit code comes back. */
#define cli_fail(...) (cli_complain(false, __VA_ARGS__), (int)CLI_FAILURE)
/* The same with what to try; yields CLI_USAGE. */
#define cli_usage_error(...) (cli_complain(true, __VA_ARGS__), (int)CLI_USAGE)
void cli_complain(bool usage, const char *command, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Ctrl-C ends a command at once with CLI_INTERRUPTED: files appear whole or not at all, so there is
 * nothing to tidy up. A command that has something to finish first (a checkpoint, children) calls
 * cli_finish_first, looks at cli_interrupted between its steps and returns cli_stop. */
extern volatile sig_atomic_t cli_interrupted;
void cli_catch_interrupt(void);
void cli_finish_first(void);
void cli_finish_done(void); /* from here on it ends the command at once again */
#define cli_stop(...) (cli_complain(false, __VA_ARGS__), (int)CLI_INTERRUPTED)

/* "1.5 GiB", "12.0 KiB" into a caller's buffer of 24 bytes; returns it. */
const char *cli_bytes(uint64_t bytes, char *buffer);

/* --dim NAME=SIZE items into dims (room for list->count); -1 or an exit code. */
int cli_dims(const char *command, const cli_list *list, tacit_dim *dims);
/* Standard compile options from --exec, --threads, --disable-pass, --dim. */
typedef struct cli_compile {
    const char *exec;
    bool batch_invariant, plain_sums;
    int64_t threads;
    cli_list disabled, dims, last;
    const char *plan, *validate, *packed;
    int64_t cache;
} cli_compile;
#define CLI_COMPILE_OPTIONS(c)                                                                     \
    {"--exec", CLI_STRING, &(c)->exec, "NAME", "executor: serial (default), tasks or reference"},  \
        {"--threads", CLI_INT, &(c)->threads, "N", "threads for --exec tasks (default: all)"},     \
        {"--dim", CLI_LIST, &(c)->dims, "NAME=SIZE", "size of a symbolic dimension; repeatable"},  \
        {"--disable-pass", CLI_LIST, &(c)->disabled, "NAME",                                       \
         "leave a pass out ('all': every optional one); repeatable"},                              \
        {"--cache", CLI_INT, &(c)->cache, "N",                                                     \
         "keep past keys and values in the session, room for N positions"},                        \
        {"--plan", CLI_STRING, &(c)->plan, "GOAL", "memory plan: min-memory (default), min-time"}, \
        {"--batch-invariant", CLI_FLAG, &(c)->batch_invariant, NULL,                               \
         "rows have the same bits whatever the batch"},                                            \
        {"--last", CLI_LIST, &(c)->last, "OUTPUT",                                                 \
         "of this output only the last position (the axis before the last); repeatable"},          \
        {"--packed", CLI_STRING, &(c)->packed, "FILE",                                             \
         "keep packed weights in FILE ('auto': MODEL.tacit-cache) and map them next time"},        \
        {"--plain-sums", CLI_FLAG, &(c)->plain_sums, NULL,                                         \
         "sum products and convolutions term by term, as written"},                                \
    {                                                                                              \
        "--validate", CLI_STRING, &(c)->validate, "LEVEL",                                         \
            "checks between stages: normal (default), strict, none"                                \
    }
/* Fills `out`; dims storage lives until the process ends. -1 or an exit code. */
int cli_compile_options(const char *command, const cli_compile *c, tacit_compile_options *out);

#endif
