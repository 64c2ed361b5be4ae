/* SPDX-License-Identifier: Apache-2.0
 * Threads that work on numbered pieces of a stream, a few pieces ahead of whoever gives them out or
 * takes them back, both in order: how key files are encrypted and decrypted, and weights masked and
 * packed, by more than one core. */
#ifndef SECURE_CREW_H
#define SECURE_CREW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct crew_piece {
    uint8_t *data;
    size_t size;
    uint64_t number, offset; /* for the work to use */
    int failed;              /* what the work returned: 0 is good */
    bool done;
} crew_piece;

typedef int (*crew_work)(void *context, crew_piece *p);

/* Threads worth having beside the one that gives and takes; 1: none. */
unsigned crew_threads(void);

typedef struct crew crew;
/* `pieces` buffers of `bytes` each, `threads` that call `work`. */
tacit_status crew_new(unsigned threads, unsigned pieces, size_t bytes, crew_work work,
                      void *context, crew **out, tacit_error *err);
/* The buffer of the next piece, once the piece that had it is done; then crew_give. Whoever takes
 * pieces back must not be more than `pieces` behind. */
crew_piece *crew_next(crew *c);
void crew_give(crew *c);
/* Piece n (counted from 0 by crew_give), once it is done. */
const crew_piece *crew_take(crew *c, uint64_t n);
uint64_t crew_given(const crew *c);
/* Waits until everything given is done: 0, or how the first piece that failed did. */
int crew_finish(crew *c);
void crew_free(crew *c); /* forgets what was given and not begun; buffers are wiped */

#endif
