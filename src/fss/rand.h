/* SPDX-License-Identifier: Apache-2.0
 * The dealer's source of randomness: AES-128 in counter mode, keyed by the operating system and
 * re-keyed from its own output, so that a later compromise does not reveal earlier seeds. */
#ifndef FSS_RAND_H
#define FSS_RAND_H

#include <stdbool.h>

#include "fss/prg.h"

typedef struct fss_rand {
    fss_prf prf;
    uint64_t used;    /* blocks since the last key */
    bool predictable; /* made by fss_rand_init_insecure: key files must say so */
} fss_rand;

/* Keyed by getrandom(2); fails rather than fall back to anything weaker. */
tacit_status fss_rand_init(fss_rand *rand, const fss_prg *prg, tacit_error *err);
/* INSECURE: the same numbers every time. For tests; sets `predictable`. */
void fss_rand_init_insecure(fss_rand *rand, const fss_prg *prg, uint64_t seed);
void fss_rand_bytes(fss_rand *rand, void *out, size_t size);
uint64_t fss_rand_word(fss_rand *rand, unsigned bits);
void fss_rand_clear(fss_rand *rand);

#endif
