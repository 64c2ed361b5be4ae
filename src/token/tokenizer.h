/* SPDX-License-Identifier: Apache-2.0
 *
 * From text to tokens and back, for vocabularies whose tokens are merged from pairs: bytes of words
 * by the rank of a rule (BPE as GPT-2 has it), or characters by the score of the token they become
 * (BPE as SentencePiece has it, with bytes for characters that are no token).
 *
 * A tokenizer does not change once it is made: any number of threads may use it. Names of special
 * tokens in a text are cut out before the rest is split, the leftmost first, of these the longest.
 */
#ifndef TOKEN_TOKENIZER_H
#define TOKEN_TOKENIZER_H

#include "base/arena.h"
#include "base/sbuf.h"
#include "base/vec.h"
#include "tacit/tacit.h"
#include "token/split.h"

typedef enum token_kind {
    TOKEN_NORMAL = 1, /* numbers as in GGUF files */
    TOKEN_UNKNOWN,
    TOKEN_CONTROL, /* its name stands for it only if asked for; it has no text */
    TOKEN_USER,    /* its name always stands for it */
    TOKEN_UNUSED,  /* no text becomes it; by_score a step to those that it may become */
    TOKEN_BYTE,
} token_kind;

typedef struct token_entry {
    const char *text;
    size_t length;
    float score;
    token_kind kind;
    bool strip_after; /* white space behind its name in a text belongs to the name */
} token_entry;

typedef struct token_rule { /* these two become one */
    const char *left, *right;
    size_t left_length, right_length;
} token_rule;

enum {
    TOKEN_MOST = INT32_MAX / 4,      /* tokens or merges; hundreds of thousands are usual */
    TOKEN_TEXT_MOST = INT32_MAX / 8, /* bytes of a text */
};

/* What a tokenizer is made of; texts are copied. */
typedef struct token_vocabulary {
    const token_entry *entries;
    uint32_t count;
    bool by_score;           /* characters, as in SentencePiece; else bytes of words: */
    token_split split;       /* … cut so, … */
    const token_rule *rules; /* … merged by these, the first first, … */
    uint32_t n_rules;
    bool whole_words;    /* … unless a whole word is a token */
    bool leading_space;  /* by_score: one is put before every text between special tokens */
    int64_t first, last; /* token put before a text, behind it; -1: none */
    int64_t unknown;     /* by_score: of characters that not even bytes make; -1: an error */
    const int64_t *ends; /* tokens that end a text */
    uint32_t n_ends;
} token_vocabulary;

typedef struct token_tokenizer token_tokenizer;
typedef VEC(int64_t) token_ids;

/* Names of bytes in vocabularies by_score: "<0x0A>". */
bool token_byte_name(const char *text, size_t length, unsigned char *byte);

/* All of it lies in `memory`. */
tacit_status token_tokenizer_new(const token_vocabulary *v, arena *memory, token_tokenizer **out,
                                 tacit_error *err);
uint32_t token_count(const token_tokenizer *t);
/* Appends the tokens of `text`; flags: TACIT_ENCODE_*. */
tacit_status token_encode(const token_tokenizer *t, const char *text, size_t length, int flags,
                          arena *memory, token_ids *out, tacit_error *err);
/* The bytes a token stands for in a text; none for control tokens and ids that are no token. */
const char *token_piece(const token_tokenizer *t, int64_t id, size_t *length);
bool token_is_end(const token_tokenizer *t, int64_t id);

#endif
