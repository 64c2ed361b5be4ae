/* SPDX-License-Identifier: Apache-2.0
 * The `tacit` command: finds the subcommand and runs it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"bench", cmd_bench, "time a model, alone or against ONNX Runtime"},
    {"compare", cmd_compare, "run two ways, find the first node where they part"},
    {"conformance", cmd_conformance, "run the ONNX conformance suite"},
    {"example", cmd_example, "write a well-known architecture with seeded weights"},
    {"explain", cmd_explain, "why each node became what it is"},
    {"generate", cmd_generate, "go on with a text: GGUF language models"},
    {"ops", cmd_ops, "print the op table"},
    {"passes", cmd_passes, "list the passes"},
    {"profile", cmd_profile, "where the time of a run goes"},
    {"tune", cmd_tune, "measure kernels on this machine and keep the fastest"},
    {"quantize", cmd_quantize, "store weights in fewer bits, with an accuracy report"},
    {"run", cmd_run, "run a model once"},
    {"secure", cmd_secure,
     "private inference: plan, strip, share, deal, serve, query, sim, demo, certs"},
    {"show", cmd_show, "the graph, the passes, the memory plan, the program"},
    {"train", cmd_train, "train a small network on drawn digits"},
    {"trace", cmd_trace, "the parallel executor at work: lanes, arrows, a report"},
    {"transform", cmd_transform, "gradients, tangents, batches and training steps of a model"},
    {NULL, NULL, NULL}, /* rows in alphabetical order above this one */
};

static int print_help(FILE *out)
{
    fprintf(out, "usage: tacit COMMAND [options]\n\n"
                 "Compile a model graph once; run it serially, on every core, or in secret.\n\n"
                 "commands:\n");
    for (uint32_t i = 0; commands[i].name; i++)
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n'tacit COMMAND --help' tells more. 'tacit --version' prints the version.\n");
    return out == stdout ? CLI_OK : CLI_USAGE;
}

/* The command's exit code, or a failure when its output could not be written whole. */
static int run_command(int (*run)(int argc, char **argv), int argc, char **argv)
{
    cli_catch_interrupt();
    signal(SIGXFSZ, SIG_IGN); /* a file over the limit is an error of the write, with a message */
    int code = run(argc, argv);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        int why = errno;
        return cli_fail(argv[0], "cannot write standard output: %s", strerror(why));
    }
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return print_help(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return print_help(stdout);
    if (strcmp(argv[1], "--version") == 0) {
        printf("tacit %s\n", tacit_version());
        return CLI_OK;
    }
    for (uint32_t i = 0; commands[i].name; i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return run_command(commands[i].run, argc - 1, argv + 1);
    fprintf(stderr, "tacit: unknown command '%s'; 'tacit --help' lists them\n", argv[1]);
    return CLI_USAGE;
}
