/* SPDX-License-Identifier: Apache-2.0
 * The parts of `tacit train`: architectures, their parameters, and the files a run leaves. */
#ifndef CLI_TRAIN_H
#define CLI_TRAIN_H

#include "base/rng.h"
#include "cli/cli.h"

enum { TRAIN_MAX_PARAMS = 64, TRAIN_STATES = 2 };

typedef struct train_param {
    char name[48];
    int32_t rank;
    int64_t dims[4], count;
    float *now[1 + TRAIN_STATES]; /* value, mean, square */
} train_param;

typedef struct train_net {
    const char *name; /* "convnet", "transformer" */
    train_param params[TRAIN_MAX_PARAMS];
    uint32_t n_params;
    bool failed; /* out of memory or too many parameters */
} train_net;

/* How the parameters stand in the model that train_build makes. */
typedef enum train_form {
    TRAIN_LOSS,  /* inputs image, label and the parameters; output loss */
    TRAIN_SCORE, /* inputs image and the parameters; output scores */
    TRAIN_EXPORT /* input image; parameters are weights; output scores */
} train_form;

/* NULL-terminated names of the architectures. */
extern const char *const train_names[];
/* Adds the parameters with fresh values; false when the name is unknown or memory is out. */
bool train_init(train_net *net, const char *name, uint64_t seed);
void train_free(train_net *net);
/* The batch is symbolic: "batch". */
tacit_status train_build(const train_net *net, train_form form, tacit_model **out,
                         tacit_error *err);

/* Where a run stands. */
typedef struct train_place {
    int64_t epoch, step, seed, batch;
    double rate;
} train_place;
tacit_status train_save(const train_net *net, const train_place *at, const char *path,
                        tacit_error *err);
/* Fails when the file belongs to another architecture, seed or batch size. */
tacit_status train_resume(train_net *net, train_place *at, const char *path, tacit_error *err);
/* The loss of every step as an SVG picture. */
tacit_status train_curve(const char *title, const float *losses, int64_t count, const char *path,
                         tacit_error *err);

#endif
