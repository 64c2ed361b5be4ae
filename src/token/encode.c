/* SPDX-License-Identifier: Apache-2.0
 * From text to tokens. */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "token/merge.h"
#include "token/table.h"

typedef struct encoder {
    const token_tokenizer *t;
    const char *whole;   /* all of the text */
    const char *between; /* of it what is at hand, by_score: between two special tokens */
    const char *text;    /* in which the symbols lie */
    merge_work work;
    uint32_t *cuts;           /* by unused token: bytes of the left of the two that made it last */
    VEC(merge_symbol) behind; /* of one that is taken apart: what comes behind the part at hand */
    arena *memory;
    token_ids *out;
    tacit_error *err;
} encoder;

static tacit_status emit(encoder *e, int64_t id)
{
    return vec_push(e->memory, e->out, id) ? TACIT_OK : error_memory(e->err, "tokens");
}

/* A text may be anything: its bytes are named, not printed. */
static tacit_status no_token(const encoder *e, const char *at, size_t length)
{
    enum { MOST = 4 };
    char digits[2 * MOST + 1] = "";
    for (size_t i = 0; i < length && i < MOST; i++)
        snprintf(digits + 2 * i, 3, "%02x", (unsigned)(unsigned char)at[i]);
    return error_set(e->err, TACIT_ERR_VALUE,
                     "the vocabulary has no token for byte%s 0x%s, at byte %zu of the text",
                     length > 1 ? "s" : "", digits, (size_t)(at - e->whole));
}

static bool pair_by_rank(const void *context, const merge_symbol *left, const merge_symbol *right,
                         merge_pair *out)
{
    const token_tokenizer *t = ((const encoder *)context)->t;
    const token_pair *p = token_pair_find(t, (uint32_t)left->id, (uint32_t)right->id);
    bool known = p && p->rank != UINT32_MAX;
    *out = known ? (merge_pair){p->rank, p->id} : (merge_pair){0, -1};
    return known;
}

static bool pair_by_score(const void *context, const merge_symbol *left, const merge_symbol *right,
                          merge_pair *out)
{
    const encoder *e = context;
    int64_t id = token_find(e->t, e->text + left->begin, left->length + right->length);
    *out = (merge_pair){id < 0 ? 0 : -(double)e->t->tokens[id].score, id};
    if (id >= 0 && e->t->tokens[id].kind == TOKEN_UNUSED)
        e->cuts[e->t->tokens[id].unused] = left->length;
    return id >= 0;
}

static tacit_status encode_word(encoder *e, const char *word, size_t length)
{
    const token_tokenizer *t = e->t;
    int64_t whole = t->v.whole_words ? token_find(t, word, length) : -1;
    if (whole >= 0)
        return emit(e, whole);
    merge_clear(&e->work);
    for (size_t i = 0; i < length; i++) {
        int64_t id = t->bytes[(unsigned char)word[i]];
        if (id < 0)
            return no_token(e, word + i, 1);
        if (!merge_add(&e->work, (uint32_t)i, 1, id))
            return error_memory(e->err, "tokens");
    }
    if (!merge_all(&e->work, pair_by_rank, e))
        return error_memory(e->err, "tokens");
    for (uint32_t i = 0; i != MERGE_NONE; i = e->work.symbols.data[i].next)
        TRY(emit(e, e->work.symbols.data[i].id));
    return TACIT_OK;
}

static tacit_status encode_words(encoder *e, const char *text, size_t length)
{
    for (size_t n, part = 0; length; text += n, length -= n) {
        n = token_word(e->t->v.split, text, length, &part);
        TRY(encode_word(e, text, n));
    }
    return TACIT_OK;
}

/* A symbol of the marked text, where it came from. */
static tacit_status no_character(const encoder *e, const merge_symbol *s)
{
    const size_t space = e->t->v.leading_space;
    size_t i = 0;
    for (size_t n = 0; n < s->begin; i++)
        n += i < space || e->between[i - space] == ' ' ? TOKEN_MARK : 1;
    if (i < space)
        return error_set(e->err, TACIT_ERR_VALUE,
                         "the vocabulary has no token for the space that it has before a text");
    const char *at = e->between + i - space;
    return no_token(e, at, *at == ' ' ? 1 : s->length);
}

/* A character that is no token: its bytes if all of them are tokens, else the unknown token, once
 * for all such characters in a row. */
static tacit_status emit_character(encoder *e, const merge_symbol *s, bool *unknown)
{
    const unsigned char *bytes = (const unsigned char *)e->text + s->begin;
    bool before = *unknown;
    *unknown = false;
    for (uint32_t i = 0; i < s->length; i++)
        *unknown = *unknown || e->t->bytes[bytes[i]] < 0;
    if (*unknown && e->t->v.unknown < 0)
        return no_character(e, s);
    if (*unknown)
        return before ? TACIT_OK : emit(e, e->t->v.unknown);
    for (uint32_t i = 0; i < s->length; i++)
        TRY(emit(e, e->t->bytes[bytes[i]]));
    return TACIT_OK;
}

static merge_symbol symbol_of(const encoder *e, uint32_t begin, uint32_t length)
{
    return (merge_symbol){
        .begin = begin, .length = length, .id = token_find(e->t, e->text + begin, length)};
}

/* A step of merges that no text becomes is taken apart again, and so are its parts. As
 * SentencePiece has it, not by what made this one, but by what made its text, or would have, the
 * last time. */
static tacit_status emit_symbol(encoder *e, merge_symbol s, bool *unknown)
{
    e->behind.count = 0;
    for (;;) {
        const token *k = s.id >= 0 ? &e->t->tokens[s.id] : NULL;
        uint32_t cut = k && k->kind == TOKEN_UNUSED ? e->cuts[k->unused] : 0;
        if (cut) { /* none: a single character */
            if (!vec_push(e->memory, &e->behind, symbol_of(e, s.begin + cut, s.length - cut)))
                return error_memory(e->err, "tokens");
            s = symbol_of(e, s.begin, cut);
            continue;
        }
        TRY(k ? emit(e, s.id) : emit_character(e, &s, unknown));
        *unknown = *unknown && !k;
        if (e->behind.count == 0)
            return TACIT_OK;
        s = e->behind.data[--e->behind.count];
    }
}

/* Bytes of the character that begins with this one. */
static size_t character(const char *text, size_t left)
{
    uint32_t n;
    (void)utf8_decode(text, left, &n);
    return n;
}

static tacit_status encode_characters(encoder *e, const char *text, size_t length)
{
    const size_t space = e->t->v.leading_space;
    size_t room = (length + 1) * TOKEN_MARK, n = 0;
    char *marked = arena_alloc(e->memory, room);
    if (!marked)
        return error_memory(e->err, "tokens");
    for (size_t i = 0; i < length + space; i++) {
        const char *c = i < space ? " " : text + i - space;
        size_t step = *c == ' ' ? TOKEN_MARK : 1;
        memcpy(marked + n, *c == ' ' ? token_mark : c, step);
        n += step;
    }
    merge_clear(&e->work);
    for (size_t i = 0, step; i < n; i += step) {
        step = character(marked + i, n - i);
        if (!merge_add(&e->work, (uint32_t)i, (uint32_t)step, token_find(e->t, marked + i, step)))
            return error_memory(e->err, "tokens");
    }
    e->between = text;
    e->text = marked;
    if (!merge_all(&e->work, pair_by_score, e))
        return error_memory(e->err, "tokens");
    bool unknown = false; /* the last character */
    for (uint32_t i = 0; i != MERGE_NONE; i = e->work.symbols.data[i].next)
        TRY(emit_symbol(e, e->work.symbols.data[i], &unknown));
    return TACIT_OK;
}

/* Text between special tokens. */
static tacit_status encode_between(encoder *e, const char *text, size_t length)
{
    if (length == 0)
        return TACIT_OK;
    return e->t->v.by_score ? encode_characters(e, text, length) : encode_words(e, text, length);
}

/* Bytes of white space at the beginning. */
static size_t spaces(const char *text, size_t length)
{
    size_t at = 0;
    for (uint32_t n; at < length && token_is_space(utf8_decode(text + at, length - at, &n));
         at += n)
        ;
    return at;
}

tacit_status token_encode(const token_tokenizer *t, const char *text, size_t length, int flags,
                          arena *memory, token_ids *out, tacit_error *err)
{
    const token_names *names = &t->names[(flags & TACIT_ENCODE_SPECIAL) != 0];
    if (length > TOKEN_TEXT_MOST)
        return error_set(err, TACIT_ERR_LIMIT, "a text of %zu bytes is too long", length);
    arena local;
    arena_init(&local, memory->allocator);
    token_ids all = {0};
    encoder e = {.t = t,
                 .whole = text,
                 .work = {.memory = &local},
                 .memory = &local,
                 .out = &all,
                 .err = err};
    tacit_status status = TACIT_OK;
    size_t from = 0;
    e.cuts = ARENA_ARRAY(&local, t->n_unused + 1u, uint32_t);
    TRY_GOTO(e.cuts ? TACIT_OK : error_memory(err, "tokens"), done);
    if (!(flags & TACIT_ENCODE_BARE) && t->v.first >= 0)
        TRY_GOTO(emit(&e, t->v.first), done);
    for (size_t i = 0; i < length;) {
        int64_t id = token_names_find(names, t->tokens, text + i, length - i);
        if (id < 0) {
            i++;
            continue;
        }
        TRY_GOTO(encode_between(&e, text + from, i - from), done);
        TRY_GOTO(emit(&e, id), done);
        i += t->tokens[id].length;
        i += t->tokens[id].strip_after ? spaces(text + i, length - i) : 0;
        from = i;
    }
    TRY_GOTO(encode_between(&e, text + from, length - from), done);
    if (!(flags & (TACIT_ENCODE_BARE | TACIT_ENCODE_OPEN)) && t->v.last >= 0)
        TRY_GOTO(emit(&e, t->v.last), done);
    if (!vec_reserve(memory, out, all.count))
        status = error_memory(err, "tokens");
    for (uint32_t i = 0; status == TACIT_OK && i < all.count; i++)
        out->data[out->count++] = all.data[i];
done:
    arena_free(&local);
    return status;
}
