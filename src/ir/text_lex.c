/* SPDX-License-Identifier: Apache-2.0 */
#include "ir/text_lex.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

tacit_status lex_fail(const lexer *l, const char *what)
{
    return error_set(l->err, TACIT_ERR_FORMAT, "line %u, column %u: %s", l->token.line,
                     l->token.column, what);
}

static bool is_word_char(char c)
{
    return isalnum((unsigned char)c) || (c && strchr("_./:-+", c));
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return -1;
}

/* At the opening quote. */
static tacit_status read_string(lexer *l)
{
    const char *start = ++l->at;
    while (l->at < l->end && *l->at != '"' && *l->at != '\n')
        l->at += *l->at == '\\' && l->at + 1 < l->end ? 2 : 1;
    if (l->at >= l->end || *l->at != '"')
        return lex_fail(l, "string without its closing quote");
    char *text = arena_alloc_aligned(l->memory, (size_t)(l->at - start) + 1, 1);
    if (!text)
        return error_memory(l->err, "parsing text");
    size_t n = 0;
    for (const char *p = start; p < l->at; p++) {
        if (*p != '\\') {
            text[n++] = *p;
            continue;
        }
        p++;
        if (*p == 'x' && l->at - p > 2 && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0) {
            text[n++] = (char)(hex_digit(p[1]) * 16 + hex_digit(p[2]));
            p += 2;
        } else if (*p == '"' || *p == '\\') {
            text[n++] = *p;
        } else {
            return lex_fail(l, "unknown escape in string (\\\", \\\\ and \\xHH are known)");
        }
    }
    text[n] = '\0';
    l->at++;
    l->token.kind = LEX_STRING;
    l->token.text = text;
    l->token.length = n;
    return TACIT_OK;
}

static void read_word(lexer *l, lex_kind kind)
{
    const char *start = l->at;
    while (l->at < l->end && is_word_char(*l->at))
        l->at++;
    l->token.kind = kind;
    l->token.text = start;
    l->token.length = (size_t)(l->at - start);
}

/* %name, %"name", @name, @"name" */
static tacit_status read_name(lexer *l, lex_kind kind)
{
    l->at++;
    if (l->at < l->end && *l->at == '"') {
        TRY(read_string(l));
    } else {
        read_word(l, kind);
        l->token.text = arena_strndup(l->memory, l->token.text, l->token.length);
        if (!l->token.text)
            return error_memory(l->err, "parsing text");
    }
    l->token.kind = kind;
    return l->token.length ? TACIT_OK : lex_fail(l, "a name is missing here");
}

static tacit_status read_base64(lexer *l)
{
    l->at += 4; /* b64" */
    const char *start = l->at;
    l->at = memchr(start, '"', (size_t)(l->end - start));
    if (!l->at) {
        l->at = l->end;
        return lex_fail(l, "b64 data without its closing quote");
    }
    l->token.kind = LEX_BASE64;
    l->token.text = start;
    l->token.length = (size_t)(l->at - start);
    l->at++;
    return TACIT_OK;
}

static void skip_blank(lexer *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t' || *l->at == '\r'))
        l->at++;
    if (l->at < l->end && *l->at == '#')
        while (l->at < l->end && *l->at != '\n')
            l->at++;
}

tacit_status lex_next(lexer *l)
{
    skip_blank(l);
    l->token = (lex_token){.kind = LEX_END, .text = "", .line = l->line};
    l->token.column = (uint32_t)(l->at - l->line_start) + 1;
    if (l->at >= l->end)
        return TACIT_OK;
    size_t left = (size_t)(l->end - l->at);
    char c = *l->at;
    if (c == '\n') {
        l->token.kind = LEX_NEWLINE;
        l->line++;
        l->line_start = ++l->at;
        return TACIT_OK;
    }
    if (c == '%')
        return read_name(l, LEX_VALUE);
    if (c == '@')
        return read_name(l, LEX_NODE);
    if (c == '"')
        return read_string(l);
    if (left > 4 && memcmp(l->at, "b64\"", 4) == 0)
        return read_base64(l);
    if (left >= 3 && memcmp(l->at, "...", 3) == 0) {
        l->token.kind = LEX_ELLIPSIS;
        l->at += 3;
        return TACIT_OK;
    }
    if (strchr("=()[]{},|?", c) || (c == ':' && left > 1 && l->at[1] == ' ')) {
        l->token.kind = LEX_PUNCT;
        l->token.text = l->at++;
        l->token.length = 1;
        return TACIT_OK;
    }
    if (!is_word_char(c))
        return lex_fail(l, "unexpected character");
    read_word(l, LEX_WORD);
    return TACIT_OK;
}

tacit_status lex_begin(lexer *l, const char *text, size_t length, arena *memory, tacit_error *err)
{
    *l = (lexer){.at = text, .end = text + length, .line_start = text, .line = 1};
    l->memory = memory;
    l->err = err;
    return lex_next(l);
}

bool lex_is_punct(const lexer *l, char c)
{
    return l->token.kind == LEX_PUNCT && *l->token.text == c;
}

bool lex_is_word(const lexer *l, const char *word)
{
    return l->token.kind == LEX_WORD && strlen(word) == l->token.length &&
           memcmp(word, l->token.text, l->token.length) == 0;
}

tacit_status lex_expect_punct(lexer *l, char c)
{
    if (!lex_is_punct(l, c)) {
        char what[] = "expected ' '";
        what[10] = c;
        return lex_fail(l, what);
    }
    return lex_next(l);
}

tacit_status lex_skip_newlines(lexer *l)
{
    while (l->token.kind == LEX_NEWLINE)
        TRY(lex_next(l));
    return TACIT_OK;
}

/* The word as a terminated string for strtoX; false when it is not a short word. */
static bool word_text(const lexer *l, char buffer[64])
{
    if (l->token.kind != LEX_WORD || l->token.length >= 64)
        return false;
    memcpy(buffer, l->token.text, l->token.length);
    buffer[l->token.length] = '\0';
    return true;
}

bool lex_int(const lexer *l, int64_t *out)
{
    char text[64], *end;
    if (!word_text(l, text))
        return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0' && end != text;
}

bool lex_u64(const lexer *l, uint64_t *out)
{
    char text[64], *end;
    if (!word_text(l, text) || *text == '-')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && end != text;
}

bool lex_double(const lexer *l, double *out)
{
    char text[64], *end;
    if (!word_text(l, text))
        return false;
    *out = strtod(text, &end);
    return *end == '\0' && end != text;
}
