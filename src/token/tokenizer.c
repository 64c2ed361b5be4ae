/* SPDX-License-Identifier: Apache-2.0 */
#include "token/tokenizer.h"

#include <string.h>

#include "base/map.h"
#include "base/utf8.h"
#include "token/table.h"

/* --- bytes as characters ---------------------------------------------------------------------- */

/* Names of tokens are text: bytes that print stand for themselves, as characters of Latin-1, the
 * others for U+0100 and what follows. */
static bool prints(uint32_t byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* By character below 0x144: its byte, or -1. */
enum { BYTE_CHARACTERS = 0x100 + 68 };
static void byte_characters(int16_t bytes[BYTE_CHARACTERS])
{
    uint32_t next = 0x100;
    for (int i = 0; i < BYTE_CHARACTERS; i++)
        bytes[i] = -1;
    for (uint32_t b = 0; b < 256; b++)
        bytes[prints(b) ? b : next++] = (int16_t)b;
}

/* The bytes that a name stands for; false: it has other characters. `out` has room for them. */
static bool byte_text(const int16_t *bytes, const char *text, size_t length, char *out, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < length;) {
        uint32_t step, c = utf8_decode(text + i, length - i, &step);
        if (c >= BYTE_CHARACTERS || bytes[c] < 0)
            return false;
        out[(*n)++] = (char)bytes[c];
        i += step;
    }
    return true;
}

/* --- making one ------------------------------------------------------------------------------- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool token_byte_name(const char *text, size_t length, unsigned char *byte)
{
    if (length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return false;
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    *byte = (unsigned char)(high * 16 + low);
    return high >= 0 && low >= 0;
}

/* Spaces for their marks. */
static size_t unmark(char *text, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length;)
        if (length - i >= TOKEN_MARK && memcmp(text + i, token_mark, TOKEN_MARK) == 0) {
            text[n++] = ' ';
            i += TOKEN_MARK;
        } else {
            text[n++] = text[i++];
        }
    return n;
}

static bool make_token(token_tokenizer *t, const token_entry *e, const int16_t *bytes,
                       arena *memory, token *out)
{
    char *text = arena_strndup(memory, e->text, e->length);
    unsigned char byte;
    size_t n = e->length;
    if (!text)
        return false;
    *out = (token){.text = text,
                   .piece = text,
                   .score = e->score,
                   .kind = e->kind,
                   .strip_after = e->strip_after};
    out->length = out->piece_length = (uint32_t)n;
    bool plain = e->kind == TOKEN_NORMAL || e->kind == TOKEN_UNUSED;
    if (e->kind == TOKEN_CONTROL || e->kind == TOKEN_UNKNOWN) {
        out->piece_length = 0;
    } else if (t->v.by_score && e->kind == TOKEN_BYTE && token_byte_name(e->text, n, &byte)) {
        out->piece = arena_strndup(memory, (const char *)&byte, 1);
        out->piece_length = 1;
    } else if (t->v.by_score && plain) {
        char *piece = arena_strndup(memory, e->text, n);
        out->piece = piece;
        out->piece_length = piece ? (uint32_t)unmark(piece, n) : 0;
    } else if (!t->v.by_score && plain) {
        if (!byte_text(bytes, e->text, e->length, text, &n)) {
            n = e->length; /* a name in plain text, of which the first bytes were decoded */
            memcpy(text, e->text, n);
        }
        out->length = out->piece_length = (uint32_t)n;
    }
    return out->piece != NULL;
}

/* Tokens that text is merged into. The others would let a text say what only the program around the
 * model may say, or what no text stands for. */
static bool is_text(const token *k)
{
    return k->kind == TOKEN_NORMAL || k->kind == TOKEN_USER;
}

static tacit_status add_text(token_tokenizer *t, uint32_t id, tacit_error *err)
{
    const token *k = &t->tokens[id];
    return token_table_add(&t->texts, t->tokens, id, hash_bytes(k->text, k->length, 0), err);
}

static tacit_status make_tokens(token_tokenizer *t, const token_vocabulary *v, arena *memory,
                                tacit_error *err)
{
    int16_t bytes[BYTE_CHARACTERS];
    byte_characters(bytes);
    t->tokens = ARENA_ARRAY(memory, v->count, token);
    t->count = v->count;
    TRY(token_table_init(&t->texts, v->count, memory, err));
    for (int i = 0; i < 256; i++)
        t->bytes[i] = -1;
    for (uint32_t i = 0; i < v->count; i++) {
        if (!t->tokens || !make_token(t, &v->entries[i], bytes, memory, &t->tokens[i]))
            return error_memory(err, "a tokenizer");
        const token *k = &t->tokens[i];
        if (is_text(k))
            TRY(add_text(t, i, err));
        bool one_byte = v->by_score ? k->kind == TOKEN_BYTE : k->kind == TOKEN_NORMAL;
        if (one_byte && k->piece_length == 1 && t->bytes[(unsigned char)k->piece[0]] < 0)
            t->bytes[(unsigned char)k->piece[0]] = i;
    }
    /* SentencePiece merges through unused pieces; of one text they come behind all others. */
    for (uint32_t i = 0; i < v->count; i++)
        if (v->by_score && t->tokens[i].kind == TOKEN_UNUSED) {
            t->tokens[i].unused = t->n_unused++;
            TRY(add_text(t, i, err));
        }
    return TACIT_OK;
}

/* A rule whose tokens are not in the vocabulary is never used. */
static tacit_status make_rules(token_tokenizer *t, const token_vocabulary *v, arena *memory,
                               tacit_error *err)
{
    int16_t bytes[BYTE_CHARACTERS];
    uint32_t size = token_table_size(v->n_rules);
    size_t room = 0;
    byte_characters(bytes);
    t->pairs = ARENA_ARRAY(memory, size, token_pair);
    t->pair_mask = size - 1;
    for (uint32_t i = 0; i < v->n_rules; i++) {
        size_t both = v->rules[i].left_length + v->rules[i].right_length;
        room = both > room ? both : room;
    }
    char *text = arena_alloc(memory, room + 1);
    if (!t->pairs || !text)
        return error_memory(err, "a tokenizer");
    for (uint32_t i = 0; i < size; i++)
        t->pairs[i].rank = UINT32_MAX;
    for (uint32_t i = 0; i < v->n_rules; i++) {
        const token_rule *r = &v->rules[i];
        size_t n, m;
        if (!byte_text(bytes, r->left, r->left_length, text, &n) ||
            !byte_text(bytes, r->right, r->right_length, text + n, &m))
            continue;
        int64_t a = token_find(t, text, n), b = token_find(t, text + n, m),
                both = token_find(t, text, n + m);
        if (a < 0 || b < 0 || both < 0)
            continue;
        token_pair *p = token_pair_find(t, (uint32_t)a, (uint32_t)b);
        if (!p)
            return token_too_alike("merges", err);
        if (p->rank == UINT32_MAX)
            *p = (token_pair){(uint32_t)a, (uint32_t)b, (uint32_t)both, i};
    }
    return TACIT_OK;
}

static tacit_status check(const token_vocabulary *v, tacit_error *err)
{
    if (v->count == 0 || v->count > TOKEN_MOST || v->n_rules > TOKEN_MOST)
        return error_set(err, TACIT_ERR_FORMAT, "a vocabulary of %u tokens and %u merges",
                         (unsigned)v->count, (unsigned)v->n_rules);
    for (uint32_t i = 0; i < v->count; i++)
        if (v->entries[i].length > INT32_MAX)
            return error_set(err, TACIT_ERR_LIMIT, "token %u is too long", (unsigned)i);
    if (v->first >= v->count || v->last >= v->count || v->unknown >= v->count)
        return error_set(err, TACIT_ERR_VALUE,
                         "tokens %lld (first), %lld (last), %lld (unknown) of a vocabulary of %u",
                         (long long)v->first, (long long)v->last, (long long)v->unknown,
                         (unsigned)v->count);
    return TACIT_OK;
}

tacit_status token_tokenizer_new(const token_vocabulary *v, arena *memory, token_tokenizer **out,
                                 tacit_error *err)
{
    TRY(check(v, err));
    token_tokenizer *t = ARENA_NEW(memory, token_tokenizer);
    if (!t)
        return error_memory(err, "a tokenizer");
    t->v = *v;
    t->v.entries = NULL;
    t->v.rules = NULL;
    t->v.ends = arena_copy(memory, v->ends, v->n_ends * sizeof *v->ends);
    if (v->n_ends && !t->v.ends)
        return error_memory(err, "a tokenizer");
    TRY(make_tokens(t, v, memory, err));
    if (!v->by_score)
        TRY(make_rules(t, v, memory, err));
    for (int control = 0; control < 2; control++)
        TRY(token_names_init(&t->names[control], t->tokens, t->count, control, memory, err));
    *out = t;
    return TACIT_OK;
}

/* --- looking at it ---------------------------------------------------------------------------- */

uint32_t token_count(const token_tokenizer *t)
{
    return t->count;
}

const char *token_piece(const token_tokenizer *t, int64_t id, size_t *length)
{
    bool known = id >= 0 && id < t->count;
    *length = known ? t->tokens[id].piece_length : 0;
    return known ? t->tokens[id].piece : "";
}

int64_t token_find(const token_tokenizer *t, const char *text, size_t length)
{
    return token_table_find(&t->texts, t->tokens, text, length, hash_bytes(text, length, 0));
}

bool token_is_end(const token_tokenizer *t, int64_t id)
{
    for (uint32_t i = 0; i < t->v.n_ends; i++)
        if (t->v.ends[i] == id)
            return true;
    return false;
}
