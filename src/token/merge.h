/* SPDX-License-Identifier: Apache-2.0
 * Neighbours become one, the best pair first, until no pair is left that may: a list of symbols and
 * a heap of pairs, n log n for n symbols. */
#ifndef TOKEN_MERGE_H
#define TOKEN_MERGE_H

#include "base/vec.h"

typedef struct merge_symbol {
    uint32_t begin, length; /* bytes of the text */
    int64_t id;             /* -1: no token */
    uint32_t before, next;  /* MERGE_NONE: none. length 0: it has become part of another */
} merge_symbol;
enum { MERGE_NONE = UINT32_MAX };

/* Two neighbours that may become one: their order (the least first; ties: the leftmost), and which
 * token they are then. */
typedef struct merge_pair {
    double order;
    int64_t id;
} merge_pair;
typedef bool (*merge_find)(const void *context, const merge_symbol *left, const merge_symbol *right,
                           merge_pair *out);

typedef struct merge_candidate {
    merge_pair pair;
    uint32_t left, right, length; /* of both: they have not changed since */
} merge_candidate;

/* Room that is used again from word to word. */
typedef struct merge_work {
    arena *memory;
    VEC(merge_symbol) symbols;
    VEC(merge_candidate) heap;
} merge_work;

/* Forgets all symbols; adds one behind the last. False: out of memory. */
void merge_clear(merge_work *w);
bool merge_add(merge_work *w, uint32_t begin, uint32_t length, int64_t id);
/* What is left are the symbols from 0 on by `next`. False: out of memory. */
bool merge_all(merge_work *w, merge_find find, const void *context);

#endif
