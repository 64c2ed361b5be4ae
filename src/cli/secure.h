/* SPDX-License-Identifier: Apache-2.0
 * What the subcommands of tacit secure share. */
#ifndef CLI_SECURE_H
#define CLI_SECURE_H

#include "cli/inputs.h"
#include "tacit/secure.h"

/* Options of the subcommands that read a model. */
typedef struct secure_how {
    const char *weights, *calibrate;
    const char *compare;
    bool dither;
    int64_t frac;
    double bound;
    cli_list dims, inputs;
    int64_t seed;
} secure_how;

/* Where a party (tacit_secure_peer, or alike) computes. */
#define SECURE_DEVICE_OPTIONS(p)                                                                   \
    {"--device", CLI_STRING, &(p)->device, "DEVICE", "auto, cpu (default), cuda or cuda:N"},       \
        {"--device-bytes", CLI_INT, (int64_t *)&(p)->device_bytes, "N",                            \
         "most memory to use there; keys beyond it are uploaded during the query"},                \
    {                                                                                              \
        "--host-bytes", CLI_INT, (int64_t *)&(p)->host_bytes, "N",                                 \
            "most pinned memory for such keys (default: half of what is free)"                     \
    }
#define SECURE_OPTIONS(h)                                                                          \
    {"--weights", CLI_STRING, &(h)->weights, "MODE", "owned (default), public or shared"},         \
        {"--dither", CLI_FLAG, &(h)->dither, NULL,                                                 \
         "rescale by public dither, not faithfully (marked in the keys)"},                         \
        {"--compare", CLI_STRING, &(h)->compare, "HOW",                                            \
         "auto (default), trees, digits or direct"},                                               \
        {"--frac", CLI_INT, &(h)->frac, "N", "fraction bits (default 12)"},                        \
        {"--bound", CLI_FLOAT, &(h)->bound, "X", "largest |x| of float inputs (default 8)"},       \
        {"--calibrate", CLI_STRING, &(h)->calibrate, "inputs|random",                              \
         "take ranges from a run on --input or random values (marked in the keys)"},               \
        {"--dim", CLI_LIST, &(h)->dims, "NAME=SIZE", "size of a symbolic dimension; repeatable"},  \
        {"--seed", CLI_INT, &(h)->seed, "N", "seed of random inputs (default 1)"},                 \
    {                                                                                              \
        "--input", CLI_LIST, &(h)->inputs, "[NAME=]FILE.npy", "an input; repeatable"               \
    }

/* Loads MODEL and makes it a secure program; the job holds model, inputs, plain outputs. -1 or an
 * exit code. */
int secure_open(const char *command, const char *path, secure_how *h, cli_job *job,
                tacit_secure **out);
/* Tensors for the outputs; NULL: out of memory. */
tacit_tensor *secure_outputs(const tacit_secure *s, arena *memory);
/* How far private outputs are from those in the clear. */
typedef struct secure_match {
    int64_t equal, rows; /* argmaxes along the last axis of the first output */
    double worst;        /* largest difference */
    double off, size;    /* sums of |difference| and of |value| over all outputs */
} secure_match;
void secure_compare(const tacit_tensor *ours, const tacit_tensor *plain, uint32_t n,
                    secure_match *m);
/* Mean error relative to the outputs' mean size. */
static inline double secure_mean_error(const secure_match *m)
{
    return m->off / (m->size > 0 ? m->size : 1);
}
int secure_demo(int argc, char **argv);

#endif
