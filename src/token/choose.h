/* SPDX-License-Identifier: Apache-2.0
 * Which token comes next, by the model's logits. */
#ifndef TOKEN_CHOOSE_H
#define TOKEN_CHOOSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"

typedef struct token_choice {
    double temperature; /* 0: always the likeliest (of several the first) */
    int64_t top_k;      /* only so many of the likeliest; 0: all */
    double top_p;       /* of these as few as have so much of the probability together; 1: all */
} token_choice;

typedef struct token_weight {
    double weight;
    uint32_t id;
} token_weight;

/* `work` has room for n. -1: no logit is a number. */
int64_t token_choose(const float *logits, uint32_t n, const token_choice *how, rng *random,
                     token_weight *work);

#endif
