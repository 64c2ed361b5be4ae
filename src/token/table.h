/* SPDX-License-Identifier: Apache-2.0
 * What a tokenizer is made of: tokens, and tables that find them by text. */
#ifndef TOKEN_TABLE_H
#define TOKEN_TABLE_H

#include "token/tokenizer.h"

typedef struct token {
    const char *text;  /* its name in the vocabulary; of bytes of words what they stand for */
    const char *piece; /* its bytes in a text */
    uint32_t length, piece_length;
    float score;
    token_kind kind;
    bool strip_after;
    uint32_t unused; /* by_score, of those that no text becomes: which of them */
} token;

/* Nothing lies further than so many places from where it belongs: names that were chosen to meet at
 * one place would make every look-up a walk over all of them. Where names are not chosen so, tens
 * of places are much. */
enum { TOKEN_STEPS = 1000 };
static inline tacit_status token_too_alike(const char *what, tacit_error *err)
{
    return error_set(err, TACIT_ERR_LIMIT,
                     "more than %d %s of the vocabulary have the same place in a table",
                     (int)TOKEN_STEPS, what);
}

/* Room for `count` of them, half of it empty: a power of two. */
static inline uint32_t token_table_size(uint64_t count)
{
    uint32_t n = 16;
    while (n < 2 * count)
        n *= 2;
    return n;
}

/* Tokens by their text. */
typedef struct token_table {
    uint32_t *slots, mask; /* token + 1, 0: empty */
} token_table;

tacit_status token_table_init(token_table *b, uint32_t count, arena *memory, tacit_error *err);
/* Of two with one text the first stays. `hash`: of the text, whichever way. */
tacit_status token_table_add(token_table *b, const token *tokens, uint32_t id, uint64_t hash,
                             tacit_error *err);
/* The token with this text, or -1. */
int64_t token_table_find(const token_table *b, const token *tokens, const char *text, size_t length,
                         uint64_t hash);

/* Special tokens by their names, which are looked for at every place of a text. */
typedef struct token_names {
    token_table table;
    uint32_t *lengths;      /* that names with one first byte have, the shortest first … */
    uint32_t from[256 + 1]; /* … from here on */
} token_names;

/* `control`: control tokens and the unknown one, too, not only those that are always recognised. */
tacit_status token_names_init(token_names *s, const token *tokens, uint32_t count, bool control,
                              arena *memory, tacit_error *err);
/* The token with the longest name that the text begins with, or -1. */
int64_t token_names_find(const token_names *s, const token *tokens, const char *text,
                         size_t length);

typedef struct token_pair {
    uint32_t left, right, id, rank; /* rank UINT32_MAX: empty */
} token_pair;

/* U+2581 stands for a space, by_score. */
static const char token_mark[] = "\xe2\x96\x81";
enum { TOKEN_MARK = sizeof token_mark - 1 };

struct token_tokenizer {
    token *tokens;
    uint32_t count, n_unused;
    token_table texts; /* of tokens that text is merged into */
    token_pair *pairs; /* by both tokens */
    uint32_t pair_mask;
    int64_t bytes[256];   /* the token of one byte, or -1 */
    token_names names[2]; /* those that are always recognised; all */
    token_vocabulary v;   /* without what is only for making it */
};

/* Of tokens that text is merged into, or -1. */
int64_t token_find(const token_tokenizer *t, const char *text, size_t length);
/* The pair, or the empty place where it belongs; NULL: there is none. */
token_pair *token_pair_find(const token_tokenizer *t, uint32_t left, uint32_t right);

#endif
