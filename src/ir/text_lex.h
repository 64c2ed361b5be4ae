/* SPDX-License-Identifier: Apache-2.0
 * Tokens of the text form. */
#ifndef IR_TEXT_LEX_H
#define IR_TEXT_LEX_H

#include "base/arena.h"

typedef enum lex_kind {
    LEX_END,
    LEX_NEWLINE,
    LEX_WORD,   /* letters, digits and _ . / : - : keywords, op names, dims, numbers */
    LEX_VALUE,  /* %name */
    LEX_NODE,   /* @name */
    LEX_STRING, /* "…", unescaped */
    LEX_BASE64, /* b64"…", still encoded */
    LEX_PUNCT,  /* one character: = ( ) [ ] { } , | ? */
    LEX_ELLIPSIS,
} lex_kind;

typedef struct lex_token {
    lex_kind kind;
    const char *text; /* LEX_WORD, LEX_BASE64: into the source; else terminated in the arena */
    size_t length;
    uint32_t line, column;
} lex_token;

typedef struct lexer {
    const char *at, *end, *line_start;
    uint32_t line;
    arena *memory;
    lex_token token; /* the current one */
    tacit_error *err;
} lexer;

tacit_status lex_begin(lexer *l, const char *text, size_t length, arena *memory, tacit_error *err);
tacit_status lex_next(lexer *l); /* moves to the next token */
/* "line L, column C: …" for the current token. */
tacit_status lex_fail(const lexer *l, const char *what);
bool lex_is_punct(const lexer *l, char c);
bool lex_is_word(const lexer *l, const char *word);
tacit_status lex_expect_punct(lexer *l, char c); /* and move on */
tacit_status lex_skip_newlines(lexer *l);
/* The current LEX_WORD as a whole number; false when it is not one. */
bool lex_int(const lexer *l, int64_t *out);
bool lex_u64(const lexer *l, uint64_t *out);
bool lex_double(const lexer *l, double *out);

#endif
