/* SPDX-License-Identifier: Apache-2.0
 * From --input NAME=FILE|random|zeros to the tensors a session runs on. */
#ifndef CLI_INPUTS_H
#define CLI_INPUTS_H

#include "base/arena.h"
#include "cli/cli.h"
#include "ir/tensor.h"

/* A loaded and compiled model with a session and all its tensors. Zero it, then open. */
typedef struct cli_job {
    const char *command;
    arena memory;
    tacit_model *model;
    tacit_program *program;
    tacit_session *session;
    tacit_compile_options options; /* with every size that was bound */
    tacit_tensor *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
    uint64_t load_ns, compile_ns;
} cli_job;

/* Loads the model and reads the options; nothing is compiled. -1, or an exit code after a message.
 * Call cli_job_close in every case. */
int cli_job_load(cli_job *job, const char *command, const char *path, const cli_compile *compile);
/* The same, then binds (from --dim and from the shapes of input files), compiles, fills inputs,
 * makes room for outputs. `items` are the --input options; inputs without one are random. */
int cli_job_open(cli_job *job, const char *command, const char *path, const cli_compile *compile,
                 const cli_list *items, int64_t seed);
/* A second program of the same model on the same inputs, with its own outputs. The options: those
 * of the first, changed. */
int cli_job_second(const cli_job *first, const tacit_compile_options *options, cli_job *second);
/* One run; -1 or an exit code after a message. */
int cli_job_run(cli_job *job);
void cli_job_close(cli_job *job);

/* For cli_job_open: a cli_list and an int64_t. */
#define CLI_INPUT_OPTIONS(inputs, seed)                                                            \
    {"--input", CLI_LIST, inputs, "NAME=VALUE",                                                    \
     "FILE.npy, random (default) or zeros; repeatable"},                                           \
    {                                                                                              \
        "--seed", CLI_INT, seed, "N", "seed of random inputs (default 1)"                          \
    }

/* A .npy file, copied into `memory`. */
tacit_status cli_load_npy(const char *path, arena *memory, ir_tensor *out, tacit_error *err);

/* Values as f64 for comparing and printing; index in elements. */
double cli_element(const tacit_tensor *t, int64_t index);
int64_t cli_elements(const tacit_tensor *t);
/* "f32[1,128,768]" into a buffer of 320 bytes. */
const char *cli_tensor_type(const tacit_tensor *t, char *buffer);

typedef struct cli_difference {
    double max_absolute, max_relative; /* relative to the larger magnitude, floored by the scale */
    int64_t worst;                     /* element index */
    int64_t mismatched;                /* NaN against number, or different strings/integers */
} cli_difference;
/* Same shape required, and the same type, but that f32 stands for half precision: false otherwise.
 */
bool cli_compare_values(const tacit_tensor *a, const tacit_tensor *b, cli_difference *out);
/* The same type required. */
bool cli_compare_tensors(const tacit_tensor *a, const tacit_tensor *b, cli_difference *out);

#endif
