/* SPDX-License-Identifier: Apache-2.0
 * Choosing a token: temperature, top-k, top-p, one draw. */
#ifndef OP_SAMPLING_H
#define OP_SAMPLING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct op_sampler {
    double temperature; /* below 1e-6 counts as 1e-6: nearly greedy */
    int64_t top_k;      /* keep entries no smaller than the k-th largest; 0: off */
    double top_p;       /* keep the likeliest entries up to this mass; 1: off */
} op_sampler;

/* Logits (overwritten) become probabilities that sum to 1. `order` has room for 2n integers. False
 * when a logit is NaN or no entry is possible. */
bool op_sampler_weigh(const op_sampler *s, double *logits, int64_t n, int64_t *order);
/* The first index whose cumulative mass is above r in [0, 1): never one of zero probability. */
int64_t op_sampler_pick(const double *probability, int64_t n, double r);

#endif
