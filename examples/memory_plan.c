/* SPDX-License-Identifier: Apache-2.0
 * Says what a model will need before anything is allocated: weights, packed weights, the arena, and
 * the map of the arena over time.
 * Usage: memory_plan MODEL.onnx [NAME=SIZE]... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tacit/tacit.h>

enum { MOST = 32 };

static void print_line(const char *what, uint64_t bytes)
{
    printf("%-16s %12.1f KiB\n", what, (double)bytes / 1024);
}

int main(int argc, char **argv)
{
    tacit_error err;
    tacit_model *model = NULL;
    tacit_program *program = NULL;
    tacit_dim dims[MOST];
    char *text = NULL;
    if (argc < 2 || argc - 2 > MOST) {
        fprintf(stderr, "usage: memory_plan MODEL.onnx [NAME=SIZE]...\n");
        return 2;
    }
    tacit_compile_options options = {.dims = dims};
    for (int i = 2; i < argc; i++) {
        char *equals = strchr(argv[i], '=');
        if (!equals)
            continue;
        *equals = '\0';
        dims[options.n_dims++] = (tacit_dim){argv[i], atoll(equals + 1)};
    }
    if (tacit_model_load(argv[1], NULL, &model, &err) != TACIT_OK ||
        tacit_compile(model, &options, &program, &err) != TACIT_OK ||
        tacit_program_view(program, TACIT_VIEW_PLAN, TACIT_FORMAT_TEXT, NULL, &text, &err) !=
            TACIT_OK) {
        fprintf(stderr, "memory_plan: %s\n", err.message);
        return 1;
    }
    tacit_memory_report r;
    tacit_program_memory(program, &r);
    print_line("weights", r.weight_bytes);
    print_line("packed weights", r.packed_bytes);
    print_line("arena", r.arena_bytes);
    print_line("  lower bound", r.lower_bound_bytes);
    print_line("arguments", r.argument_bytes);
    printf("%u nodes, %u thunks\n\n%s", r.nodes, r.thunks, text);
    tacit_text_free(text);
    tacit_program_free(program);
    tacit_model_free(model);
    return 0;
}
