/* SPDX-License-Identifier: Apache-2.0
 * Files of weights that are not models: a party's share of shared weights, and the masked weights
 * that a client has already been sent.
 *
 * Shares: W = A + B in the ring of each weight; A is uniform, so neither file tells anything. The
 * cache: weights keep their masks as long as a key file lasts, so what was sent once need not be
 * sent again. Both are in the order of the program's WEIGHT instructions, packed. */
#ifndef SECURE_WEIGHTS_H
#define SECURE_WEIGHTS_H

#include "base/file.h"
#include "secure/program.h"

/* Splits the model's weights into two files (mode 0600). */
tacit_status share_write(const sec_program *p, const char *path[2], tacit_error *err);

typedef struct share_reader {
    FILE *file;
    uint8_t hash[32]; /* of the words, once all have been checked */
} share_reader;
/* Opens and checks all of it: for this program, this party, unchanged. */
tacit_status share_open(share_reader *r, const sec_program *p, unsigned party, const char *path,
                        tacit_error *err);
/* Fits sec_link.own_weight. */
tacit_status share_read(void *reader, const sec_program *p, const sec_instr *in, uint64_t *words,
                        tacit_error *err);
void share_close(share_reader *r);

/* A link that takes weights from the cache, or passes them through and keeps a copy. */
typedef struct weight_cache {
    char path[4200];
    uint8_t tag[32]; /* of the weights in the file; zero: there is none */
    FILE *file;
    file_writer writer;
    bool writing, broken;
    uint64_t sum, size;
    const sec_link *line;
} weight_cache;
enum { WEIGHT_TAG = 32 };
/* Looks for KEY.cache: `tag` is set when it holds all of the program's weights, undamaged. */
void cache_find(weight_cache *c, const sec_program *p, const char *key);
/* The link to exchange weights with: `hit` as both parties know it from their greetings. Failing to
 * write a cache is no error. */
sec_link cache_link(weight_cache *c, const sec_link *line, bool hit, const uint8_t tag[WEIGHT_TAG]);
void cache_close(weight_cache *c, bool complete);

#endif
