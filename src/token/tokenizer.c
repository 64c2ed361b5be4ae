/* SPDX-License-Identifier: Apache-2.0 */
#include "token/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/utf8.h"
#include "token/merge.h"

/* --- tables ----------------------------------------------------------------------------------- */

typedef struct token {
    const char *text;  /* its name in the vocabulary; of bytes of words what they stand for */
    const char *piece; /* its bytes in a text */
    uint32_t length, piece_length;
    float score;
    token_kind kind;
} token;

typedef struct pair_slot {
    uint32_t left, right, id, rank; /* rank UINT32_MAX: empty */
} pair_slot;

struct token_tokenizer {
    token *tokens;
    uint32_t count;
    uint32_t *slots, slot_mask; /* by text: token + 1, 0: empty */
    pair_slot *pairs;           /* by both tokens */
    uint32_t pair_mask;
    int64_t bytes[256];             /* the token of one byte, or -1 */
    uint32_t *special, n_special;   /* by first byte of the name, then the longest first */
    uint32_t special_from[256 + 1]; /* where those of a first byte begin */
    token_vocabulary v;             /* without what is only for making it */
};

static const char space_mark[] = "\xe2\x96\x81"; /* U+2581 stands for a space */
enum { MARK = 3 };

static uint32_t table_size(uint64_t count)
{
    uint32_t n = 16;
    while (n < 2 * count)
        n *= 2;
    return n;
}

static int64_t find_text(const token_tokenizer *t, const char *text, size_t length)
{
    uint32_t at = (uint32_t)hash_bytes(text, length, 1) & t->slot_mask;
    for (; t->slots[at]; at = (at + 1) & t->slot_mask) {
        const token *k = &t->tokens[t->slots[at] - 1];
        if (k->length == length && memcmp(k->text, text, length) == 0)
            return t->slots[at] - 1;
    }
    return -1;
}

static uint32_t pair_place(const token_tokenizer *t, uint32_t left, uint32_t right)
{
    uint32_t at = (uint32_t)hash_mix(left, right) & t->pair_mask;
    while (t->pairs[at].rank != UINT32_MAX &&
           (t->pairs[at].left != left || t->pairs[at].right != right))
        at = (at + 1) & t->pair_mask;
    return at;
}

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

/* "<0x0A>" */
static bool byte_name(const token_entry *e, unsigned char *out)
{
    if (e->length != 6 || memcmp(e->text, "<0x", 3) != 0 || e->text[5] != '>')
        return false;
    int high = hex_digit(e->text[3]), low = hex_digit(e->text[4]);
    *out = (unsigned char)(high * 16 + low);
    return high >= 0 && low >= 0;
}

/* Spaces for their marks. */
static size_t unmark(char *text, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length;)
        if (length - i >= MARK && memcmp(text + i, space_mark, MARK) == 0) {
            text[n++] = ' ';
            i += MARK;
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
    *out = (token){text, text, (uint32_t)n, (uint32_t)n, e->score, e->kind};
    bool plain = e->kind == TOKEN_NORMAL || e->kind == TOKEN_UNUSED;
    if (e->kind == TOKEN_CONTROL || e->kind == TOKEN_UNKNOWN) {
        out->piece_length = 0;
    } else if (t->v.by_score && e->kind == TOKEN_BYTE && byte_name(e, &byte)) {
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

/* By its text; of two with one text the first is found. */
static void add_text(token_tokenizer *t, uint32_t id)
{
    const token *k = &t->tokens[id];
    if (find_text(t, k->text, k->length) >= 0)
        return;
    uint32_t at = (uint32_t)hash_bytes(k->text, k->length, 1) & t->slot_mask;
    while (t->slots[at])
        at = (at + 1) & t->slot_mask;
    t->slots[at] = id + 1;
}

static tacit_status make_tokens(token_tokenizer *t, const token_vocabulary *v, arena *memory,
                                tacit_error *err)
{
    int16_t bytes[BYTE_CHARACTERS];
    uint32_t size = table_size(v->count);
    byte_characters(bytes);
    t->tokens = ARENA_ARRAY(memory, v->count, token);
    t->slots = ARENA_ARRAY(memory, size, uint32_t);
    t->slot_mask = size - 1;
    t->count = v->count;
    for (int i = 0; i < 256; i++)
        t->bytes[i] = -1;
    for (uint32_t i = 0; i < v->count; i++) {
        if (!t->tokens || !t->slots || !make_token(t, &v->entries[i], bytes, memory, &t->tokens[i]))
            return error_memory(err, "a tokenizer");
        const token *k = &t->tokens[i];
        if (is_text(k))
            add_text(t, i);
        bool one_byte = v->by_score ? k->kind == TOKEN_BYTE : k->kind == TOKEN_NORMAL;
        if (one_byte && k->piece_length == 1 && t->bytes[(unsigned char)k->piece[0]] < 0)
            t->bytes[(unsigned char)k->piece[0]] = i;
    }
    return TACIT_OK;
}

/* A rule whose tokens are not in the vocabulary is never used. */
static tacit_status make_rules(token_tokenizer *t, const token_vocabulary *v, arena *memory,
                               tacit_error *err)
{
    int16_t bytes[BYTE_CHARACTERS];
    uint32_t size = table_size(v->n_rules);
    size_t room = 0;
    byte_characters(bytes);
    t->pairs = ARENA_ARRAY(memory, size, pair_slot);
    t->pair_mask = size - 1;
    for (uint32_t i = 0; i < v->n_rules; i++)
        room = v->rules[i].length > room ? v->rules[i].length : room;
    char *text = arena_alloc(memory, room + 1);
    if (!t->pairs || !text)
        return error_memory(err, "a tokenizer");
    for (uint32_t i = 0; i < size; i++)
        t->pairs[i].rank = UINT32_MAX;
    for (uint32_t i = 0; i < v->n_rules; i++) {
        const token_rule *r = &v->rules[i];
        const char *cut = r->length > 1 ? memchr(r->text + 1, ' ', r->length - 1) : NULL;
        size_t left = cut ? (size_t)(cut - r->text) : 0, n, m;
        if (!cut)
            return error_set(err, TACIT_ERR_FORMAT,
                             "merge %u is not two texts with a space between", (unsigned)i);
        if (!byte_text(bytes, r->text, left, text, &n) ||
            !byte_text(bytes, cut + 1, r->length - left - 1, text + n, &m))
            continue;
        int64_t a = find_text(t, text, n), b = find_text(t, text + n, m),
                both = find_text(t, text, n + m);
        if (a < 0 || b < 0 || both < 0)
            continue;
        pair_slot *slot = &t->pairs[pair_place(t, (uint32_t)a, (uint32_t)b)];
        if (slot->rank == UINT32_MAX)
            *slot = (pair_slot){(uint32_t)a, (uint32_t)b, (uint32_t)both, i};
    }
    return TACIT_OK;
}

static bool is_special(const token *k)
{
    return k->length > 0 &&
           (k->kind == TOKEN_CONTROL || k->kind == TOKEN_USER || k->kind == TOKEN_UNKNOWN);
}

static int compare_special(const void *a, const void *b, void *context)
{
    const token *tokens = context, *x = &tokens[*(const uint32_t *)a],
                *y = &tokens[*(const uint32_t *)b];
    unsigned char p = (unsigned char)x->text[0], q = (unsigned char)y->text[0];
    if (p != q)
        return p < q ? -1 : 1;
    return x->length != y->length ? (x->length > y->length ? -1 : 1) : x < y ? -1 : x > y;
}

static tacit_status make_special(token_tokenizer *t, arena *memory, tacit_error *err)
{
    for (uint32_t i = 0; i < t->count; i++)
        t->n_special += is_special(&t->tokens[i]);
    t->special = ARENA_ARRAY(memory, t->n_special + 1u, uint32_t);
    if (!t->special)
        return error_memory(err, "a tokenizer");
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->count; i++)
        if (is_special(&t->tokens[i]))
            t->special[n++] = i;
    qsort_r(t->special, n, sizeof *t->special, compare_special, t->tokens);
    for (uint32_t byte = 0, i = 0; byte <= 256; byte++) {
        while (i < n && (unsigned char)t->tokens[t->special[i]].text[0] < byte)
            i++;
        t->special_from[byte] = i;
    }
    return TACIT_OK;
}

static tacit_status check(const token_vocabulary *v, tacit_error *err)
{
    if (v->count == 0 || v->count > INT32_MAX / 4 || v->n_rules > INT32_MAX / 4)
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
    TRY(make_special(t, memory, err));
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

bool token_is_end(const token_tokenizer *t, int64_t id)
{
    for (uint32_t i = 0; i < t->v.n_ends; i++)
        if (t->v.ends[i] == id)
            return true;
    return false;
}

/* --- from text to tokens ---------------------------------------------------------------------- */

typedef struct encoder {
    const token_tokenizer *t;
    const char *text; /* in which the symbols lie */
    merge_work work;
    arena *memory;
    token_ids *out;
    tacit_error *err;
} encoder;

static tacit_status emit(encoder *e, int64_t id)
{
    return vec_push(e->memory, e->out, id) ? TACIT_OK : error_memory(e->err, "tokens");
}

static bool pair_by_rank(const void *context, const merge_symbol *left, const merge_symbol *right,
                         merge_pair *out)
{
    const token_tokenizer *t = ((const encoder *)context)->t;
    const pair_slot *slot = &t->pairs[pair_place(t, (uint32_t)left->id, (uint32_t)right->id)];
    *out = (merge_pair){slot->rank, slot->id};
    return slot->rank != UINT32_MAX;
}

static bool pair_by_score(const void *context, const merge_symbol *left, const merge_symbol *right,
                          merge_pair *out)
{
    const encoder *e = context;
    int64_t id = find_text(e->t, e->text + left->begin, left->length + right->length);
    *out = (merge_pair){id < 0 ? 0 : -(double)e->t->tokens[id].score, id};
    return id >= 0;
}

static tacit_status encode_word(encoder *e, const char *word, size_t length)
{
    const token_tokenizer *t = e->t;
    int64_t whole = t->v.whole_words ? find_text(t, word, length) : -1;
    if (whole >= 0)
        return emit(e, whole);
    merge_clear(&e->work);
    for (size_t i = 0; i < length; i++) {
        int64_t id = t->bytes[(unsigned char)word[i]];
        if (id < 0)
            return error_set(e->err, TACIT_ERR_VALUE, "the vocabulary has no token for byte 0x%02x",
                             (unsigned)(unsigned char)word[i]);
        if (!merge_add(&e->work, (uint32_t)i, 1, id))
            return error_memory(e->err, "tokens");
    }
    e->text = word;
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
        return error_set(e->err, TACIT_ERR_VALUE, "the vocabulary has no token for '%.*s'",
                         (int)s->length, (const char *)bytes);
    if (*unknown)
        return before ? TACIT_OK : emit(e, e->t->v.unknown);
    for (uint32_t i = 0; i < s->length; i++)
        TRY(emit(e, e->t->bytes[bytes[i]]));
    return TACIT_OK;
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
    size_t room = (length + 1) * MARK, n = 0;
    char *marked = arena_alloc(e->memory, room);
    if (!marked)
        return error_memory(e->err, "tokens");
    for (size_t i = 0; i < length + space; i++) {
        const char *c = space && i == 0 ? " " : text + i - space;
        size_t step = *c == ' ' ? MARK : 1;
        memcpy(marked + n, *c == ' ' ? space_mark : c, step);
        n += step;
    }
    merge_clear(&e->work);
    for (size_t i = 0, step; i < n; i += step) {
        step = character(marked + i, n - i);
        if (!merge_add(&e->work, (uint32_t)i, (uint32_t)step, find_text(e->t, marked + i, step)))
            return error_memory(e->err, "tokens");
    }
    e->text = marked;
    if (!merge_all(&e->work, pair_by_score, e))
        return error_memory(e->err, "tokens");
    bool unknown = false; /* the last character */
    for (uint32_t i = 0; i != MERGE_NONE; i = e->work.symbols.data[i].next) {
        const merge_symbol *s = &e->work.symbols.data[i];
        TRY(s->id >= 0 ? emit(e, s->id) : emit_character(e, s, &unknown));
        unknown = unknown && s->id < 0;
    }
    return TACIT_OK;
}

/* Text between special tokens. */
static tacit_status encode_between(encoder *e, const char *text, size_t length)
{
    if (length == 0)
        return TACIT_OK;
    return e->t->v.by_score ? encode_characters(e, text, length) : encode_words(e, text, length);
}

/* The special token whose name the text begins with, or -1. */
static int64_t special_at(const token_tokenizer *t, const char *text, size_t length, bool control)
{
    unsigned char first = (unsigned char)text[0];
    for (uint32_t i = t->special_from[first]; i < t->special_from[first + 1]; i++) {
        const token *k = &t->tokens[t->special[i]];
        if ((control || k->kind == TOKEN_USER) && k->length <= length &&
            memcmp(k->text, text, k->length) == 0)
            return t->special[i];
    }
    return -1;
}

tacit_status token_encode(const token_tokenizer *t, const char *text, size_t length, bool bare,
                          bool special, arena *memory, token_ids *out, tacit_error *err)
{
    if (length > INT32_MAX / 8)
        return error_set(err, TACIT_ERR_LIMIT, "a text of %zu bytes is too long", length);
    arena local;
    arena_init(&local, memory->allocator);
    token_ids all = {0};
    encoder e = {.t = t, .work = {.memory = &local}, .memory = &local, .out = &all, .err = err};
    tacit_status status = TACIT_OK;
    size_t from = 0;
    if (!bare && t->v.first >= 0)
        TRY_GOTO(emit(&e, t->v.first), done);
    for (size_t i = 0; i < length;) {
        int64_t id = special_at(t, text + i, length - i, special);
        if (id < 0) {
            i++;
            continue;
        }
        TRY_GOTO(encode_between(&e, text + from, i - from), done);
        TRY_GOTO(emit(&e, id), done);
        i += t->tokens[id].length;
        from = i;
    }
    TRY_GOTO(encode_between(&e, text + from, length - from), done);
    if (!bare && t->v.last >= 0)
        TRY_GOTO(emit(&e, t->v.last), done);
    if (!vec_reserve(memory, out, all.count))
        status = error_memory(err, "tokens");
    for (uint32_t i = 0; status == TACIT_OK && i < all.count; i++)
        out->data[out->count++] = all.data[i];
done:
    arena_free(&local);
    return status;
}
