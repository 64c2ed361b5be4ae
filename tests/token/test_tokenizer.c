/* SPDX-License-Identifier: Apache-2.0
 * Text to tokens and back: merges by rank and by score against slow ones, special tokens, what is
 * put around a text, bytes that are no text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/map.h"
#include "base/rng.h"
#include "support/gguf_writer.h"
#include "token/table.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

/* --- making one ------------------------------------------------------------------------------- */

enum { BYTES = 256, MOST = 600 };

/* A vocabulary that grows: of bytes, or empty. */
typedef struct made {
    token_entry *entries;
    char names[BYTES][8];
    token_rule *rules;
    token_vocabulary v;
    arena memory;
    token_tokenizer *t;
} made;

static int64_t add(made *m, const char *text, float score, token_kind kind)
{
    m->entries[m->v.count] = (token_entry){text, strlen(text), score, kind, false};
    return m->v.count++;
}

static void rule(made *m, const char *text)
{
    const char *cut = strchr(text, ' ');
    m->rules[m->v.n_rules++] = (token_rule){text, cut + 1, (size_t)(cut - text), strlen(cut + 1)};
}

static made *begin_large(bool by_score, size_t most)
{
    made *m = calloc(1, sizeof *m);
    m->entries = calloc(most, sizeof *m->entries);
    m->rules = calloc(most, sizeof *m->rules);
    m->v = (token_vocabulary){.entries = m->entries,
                              .rules = m->rules,
                              .by_score = by_score,
                              .first = -1,
                              .last = -1,
                              .unknown = -1};
    arena_init(&m->memory, NULL);
    for (int b = 0; b < BYTES && !by_score; b++) /* id: the byte */
        add(m, gguf_byte_name((unsigned char)b, m->names[b]), 0, TOKEN_NORMAL);
    return m;
}

static made *begin(bool by_score)
{
    return begin_large(by_score, MOST);
}

static made *finish(made *m)
{
    tacit_error err = {TACIT_OK, ""};
    if (token_tokenizer_new(&m->v, &m->memory, &m->t, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return m;
}

static void end(made *m)
{
    arena_free(&m->memory);
    free(m->entries);
    free(m->rules);
    free(m);
}

/* --- asking it -------------------------------------------------------------------------------- */

enum { PLAIN = 0, BARE = 1, SPECIAL = 2 };

static token_ids encode_bytes(made *m, const char *text, size_t length, int flags)
{
    tacit_error err = {TACIT_OK, ""};
    token_ids ids = {0};
    char *own = malloc(length + !length); /* so that sanitizers see its end */
    memcpy(own, text, length);
    if (token_encode(m->t, own, length, flags & BARE, flags & SPECIAL, &m->memory, &ids, &err) !=
        TACIT_OK)
        fail_msg("%s", err.message);
    free(own);
    return ids;
}

static void expect_ids(made *m, const char *text, int flags, uint32_t n, const int64_t *want)
{
    token_ids ids = encode_bytes(m, text, strlen(text), flags);
    for (uint32_t i = 0; i < n && i < ids.count; i++)
        if (ids.data[i] != want[i])
            fail_msg("'%s': token %u is %lld, expected %lld", text, i, (long long)ids.data[i],
                     (long long)want[i]);
    if (ids.count != n)
        fail_msg("'%s': %u tokens, expected %u", text, ids.count, n);
}
#define EXPECT(m, text, flags, ...)                                                                \
    expect_ids(m, text, flags, COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

/* The pieces of a text's tokens are the text. */
static void expect_whole(made *m, const char *text, size_t length, const char *before)
{
    token_ids ids = encode_bytes(m, text, length, BARE);
    sbuf got, want;
    sbuf_init(&got, NULL);
    sbuf_init(&want, NULL);
    sbuf_text(&want, length ? before : "");
    sbuf_bytes(&want, text, length);
    for (uint32_t i = 0; i < ids.count; i++) {
        size_t n;
        const char *piece = token_piece(m->t, ids.data[i], &n);
        sbuf_bytes(&got, piece, n);
    }
    assert_int_equal(got.length, want.length);
    if (want.length)
        assert_memory_equal(got.data, want.data, want.length);
    sbuf_free(&got);
    sbuf_free(&want);
}

/* --- bytes, by rank --------------------------------------------------------------------------- */

static void by_rank(void **state)
{
    (void)state;
    made *m = begin(false);
    int64_t er = add(m, "er", 0, TOKEN_NORMAL), lo = add(m, "lo", 0, TOKEN_NORMAL);
    int64_t low = add(m, "low", 0, TOKEN_NORMAL), lower = add(m, "lower", 0, TOKEN_NORMAL);
    int64_t aa = add(m, "aa", 0, TOKEN_NORMAL), spaced = add(m, "\u0120a", 0, TOKEN_NORMAL);
    rule(m, "e r");
    rule(m, "l o");
    rule(m, "lo w");
    rule(m, "low er");
    rule(m, "a a");
    rule(m, "\u0120 a");
    rule(m, "q u");      /* what it makes is no token: never used */
    rule(m, "\u20ac x"); /* no byte has this name: never used */
    rule(m, "e r");      /* again: the first counts */
    finish(m);
    EXPECT(m, "lower", PLAIN, lower);
    EXPECT(m, "lowe", PLAIN, low, 'e');
    EXPECT(m, "lo er", PLAIN, lo, ' ', er);
    EXPECT(m, "aaa", PLAIN, aa, 'a');       /* of equals the left */
    EXPECT(m, " aaa", PLAIN, ' ', aa, 'a'); /* "a a" comes before "Ġ a" */
    EXPECT(m, " a", PLAIN, spaced);
    EXPECT(m, "lo\nwer", PLAIN, lo, '\n', 'w', er); /* words are merged alone */
    EXPECT(m, "qu\xff", PLAIN, 'q', 'u', 0xff);
    EXPECT(m, "\u00e9", PLAIN, 0xc3, 0xa9);
    expect_ids(m, "", PLAIN, 0, NULL);
    assert_int_equal(token_count(m->t), BYTES + 6);
    end(m);
}

/* Rules between whatever tokens there are, against merging the best pair over and over. */
static void by_rank_as_slowly(void **state)
{
    (void)state;
    rng r = rng_seed(9);
    for (int round = 0; round < 150; round++) {
        made *m = begin(false);
        static char texts[40][80], pairs[40][168];
        uint32_t n = 0, left[40], right[40];
        static const char *const letters[] = {"a", "b", "c"};
        for (uint32_t i = 0; i < 40; i++) {
            const char *parts[2];
            for (int side = 0; side < 2; side++) {
                uint64_t k = rng_below(&r, 3 + n);
                parts[side] = k < 3 ? letters[k] : texts[k - 3];
                *(side ? &right[n] : &left[n]) =
                    k < 3 ? 'a' + (uint32_t)k : BYTES + (uint32_t)k - 3;
            }
            snprintf(texts[n], sizeof texts[n], "%s%s", parts[0], parts[1]);
            bool known = strlen(texts[n]) > 30;
            for (uint32_t k = 0; k < n; k++)
                known = known || strcmp(texts[k], texts[n]) == 0;
            if (known)
                continue;
            snprintf(pairs[n], sizeof pairs[n], "%s %s", parts[0], parts[1]);
            rule(m, pairs[n]);
            add(m, texts[n++], 0, TOKEN_NORMAL);
        }
        finish(m);
        for (int k = 0; k < 20; k++) {
            char text[64];
            int64_t slow[64];
            uint32_t count = 1 + (uint32_t)rng_below(&r, 40);
            for (uint32_t i = 0; i < count; i++)
                text[i] = (char)('a' + rng_below(&r, 3));
            text[count] = '\0';
            for (uint32_t i = 0; i < count; i++)
                slow[i] = (unsigned char)text[i];
            for (uint32_t best = 0, at; best < n;) {
                for (at = 0; at + 1 < count; at++)
                    if (slow[at] == left[best] && slow[at + 1] == right[best])
                        break;
                if (at + 1 >= count) {
                    best++;
                    continue;
                }
                slow[at] = BYTES + best;
                memmove(slow + at + 1, slow + at + 2, (count - at - 2) * sizeof *slow);
                count--;
                best = 0;
            }
            expect_ids(m, text, PLAIN, count, slow);
        }
        end(m);
    }
}

static void whole_words(void **state)
{
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        made *m = begin(false);
        int64_t abc = add(m, "abc", 0, TOKEN_NORMAL);
        int64_t stop = add(m, "stop", 0, TOKEN_CONTROL);
        m->v.whole_words = whole;
        finish(m);
        if (whole)
            EXPECT(m, "abc abc", PLAIN, abc, ' ', 'a', 'b', 'c');
        else
            EXPECT(m, "abc", PLAIN, 'a', 'b', 'c');
        /* a control token is no word, even if one is called so */
        EXPECT(m, "stop", PLAIN, 's', 't', 'o', 'p');
        EXPECT(m, "stop", SPECIAL, stop);
        end(m);
    }
}

/* --- characters, by score --------------------------------------------------------------------- */

#define MARK "\u2581"

static void by_score(void **state)
{
    (void)state;
    made *m = begin(true);
    int64_t unknown = add(m, "<unk>", 0, TOKEN_UNKNOWN), first = add(m, "<s>", 0, TOKEN_CONTROL);
    int64_t byte_c3 = add(m, "<0xC3>", 0, TOKEN_BYTE), byte_a9 = add(m, "<0xA9>", 0, TOKEN_BYTE);
    int64_t mark = add(m, MARK, -9, TOKEN_NORMAL), a = add(m, "a", -9, TOKEN_NORMAL);
    int64_t b = add(m, "b", -9, TOKEN_NORMAL), c = add(m, "c", -9, TOKEN_NORMAL);
    int64_t ab = add(m, "ab", -3, TOKEN_NORMAL), bc = add(m, "bc", -2, TOKEN_NORMAL);
    int64_t marked = add(m, MARK "a", -1, TOKEN_NORMAL), abc = add(m, "abc", -4, TOKEN_NORMAL);
    int64_t less = add(m, "<", -9, TOKEN_NORMAL), more = add(m, ">", -9, TOKEN_NORMAL);
    int64_t tag = add(m, "<s", -5, TOKEN_NORMAL);
    add(m, "s", -9, TOKEN_NORMAL);
    add(m, "ca", 9, TOKEN_UNUSED); /* no text becomes it, but it is merged first */
    m->v.first = first;
    m->v.unknown = unknown;
    finish(m);
    EXPECT(m, "abc", BARE, abc); /* by bc, which has a better score than ab */
    EXPECT(m, "abcbab", BARE, abc, b, ab);
    EXPECT(m, "abcab", BARE, ab, c, a, b); /* "ca" comes first, and then is taken apart again */
    EXPECT(m, "abbc", BARE, ab, bc);
    EXPECT(m, " abc", BARE, marked, bc); /* the best of all leaves no a for abc */
    EXPECT(m, "ca", BARE, c, a);
    EXPECT(m, " a b", BARE, marked, mark, b);
    EXPECT(m, "\u00e9", BARE, byte_c3, byte_a9);
    EXPECT(m, "a\u00e8\u4e00zb", BARE, a, unknown, b); /* a run of unknown ones is one */
    EXPECT(m,
           "a\u00e8"
           "a\u00e8",
           BARE, a, unknown, a, unknown);
    EXPECT(m, "a", PLAIN, first, a);
    EXPECT(m, "", PLAIN, first);
    /* names of control tokens are text unless asked for, even where text could be merged to them */
    EXPECT(m, "<s>", BARE, tag, more);
    EXPECT(m, "<s>", BARE | SPECIAL, first);
    EXPECT(m, "<0xC3>", BARE, less, unknown, more);
    end(m);
}

/* What SentencePiece does, as written down: pairs of neighbours by score, and who made an unused
 * piece, as it was last seen. Single characters "a" to "c" are all tokens but "c". */
typedef struct slow_pieces {
    const made *m;
    const char *at[64]; /* where pieces begin, and the end */
    uint32_t count;
    size_t left[MOST]; /* by token: bytes of the left of two */
} slow_pieces;

static int64_t slow_find(const made *m, const char *text, size_t length)
{
    for (uint32_t i = 0; i < m->v.count; i++)
        if (m->entries[i].length == length && memcmp(m->entries[i].text, text, length) == 0 &&
            (m->entries[i].kind == TOKEN_NORMAL || m->entries[i].kind == TOKEN_UNUSED))
            return i;
    return -1;
}

/* The token of a pair, or -1. */
static int64_t slow_pair(slow_pieces *p, int64_t i)
{
    if (i < 0 || i + 1 >= p->count)
        return -1;
    int64_t id = slow_find(p->m, p->at[i], (size_t)(p->at[i + 2] - p->at[i]));
    if (id >= 0)
        p->left[id] = (size_t)(p->at[i + 1] - p->at[i]);
    return id;
}

static void slow_emit(const slow_pieces *p, const char *text, size_t length, token_ids *out)
{
    int64_t id = slow_find(p->m, text, length);
    if (id >= 0 && p->m->entries[id].kind == TOKEN_UNUSED && p->left[id]) {
        slow_emit(p, text, p->left[id], out);
        slow_emit(p, text + p->left[id], length - p->left[id], out);
    } else if (id >= 0 || out->count == 0 || out->data[out->count - 1] != p->m->v.unknown) {
        out->data[out->count++] = id >= 0 ? id : p->m->v.unknown;
    }
}

static void slow_encode(slow_pieces *p, const char *text, token_ids *out)
{
    p->count = (uint32_t)strlen(text);
    memset(p->left, 0, sizeof p->left);
    for (uint32_t i = 0; i <= p->count; i++)
        p->at[i] = text + i;
    for (uint32_t i = 0; i < p->count; i++)
        (void)slow_pair(p, i);
    for (;;) {
        int64_t best = -1, where = 0;
        for (uint32_t i = 0; i + 1 < p->count; i++) {
            int64_t id = slow_find(p->m, p->at[i], (size_t)(p->at[i + 2] - p->at[i]));
            if (id >= 0 && (best < 0 || p->m->entries[id].score > p->m->entries[best].score)) {
                best = id;
                where = i;
            }
        }
        if (best < 0)
            break;
        memmove(&p->at[where + 1], &p->at[where + 2],
                (p->count - (size_t)where - 1) * sizeof *p->at);
        p->count--;
        (void)slow_pair(p, where - 1);
        (void)slow_pair(p, where);
    }
    for (uint32_t i = 0; i < p->count; i++)
        slow_emit(p, p->at[i], (size_t)(p->at[i + 1] - p->at[i]), out);
}

static void by_score_as_slowly(void **state)
{
    (void)state;
    rng r = rng_seed(5);
    uint32_t apart = 0; /* texts in which an unused piece had a part */
    for (int round = 0; round < 300; round++) {
        made *m = begin(true);
        m->v.unknown = add(m, "<unk>", 0, TOKEN_UNKNOWN);
        add(m, "a", -9, TOKEN_NORMAL);
        add(m, "b", -9, round % 2 ? TOKEN_NORMAL : TOKEN_UNUSED); /* nothing to take apart */
        for (int i = 0; i < 40; i++) {
            char name[8];
            size_t n = 2 + rng_below(&r, 4);
            for (size_t k = 0; k < n; k++)
                name[k] = (char)('a' + rng_below(&r, 3));
            if (slow_find(m, name, n) < 0)
                add(m, arena_strndup(&m->memory, name, n), (float)rng_below(&r, 12),
                    rng_below(&r, 2) ? TOKEN_NORMAL : TOKEN_UNUSED);
        }
        finish(m);
        for (int k = 0; k < 20; k++) {
            char text[48];
            int64_t slow[64];
            token_ids ids = {slow, 0, COUNT(slow)};
            slow_pieces p = {.m = m};
            size_t length = rng_below(&r, sizeof text);
            for (size_t i = 0; i < length; i++)
                text[i] = (char)('a' + rng_below(&r, 3));
            text[length] = '\0';
            slow_encode(&p, text, &ids);
            expect_ids(m, text, BARE, ids.count, slow);
            for (uint32_t i = 0; i < p.count; i++) {
                int64_t id = slow_find(m, p.at[i], (size_t)(p.at[i + 1] - p.at[i]));
                if (id >= 0 && m->entries[id].kind == TOKEN_UNUSED && p.left[id]) {
                    apart++;
                    break;
                }
            }
        }
        end(m);
    }
    assert_true(apart > 1000);
}

static void a_leading_space(void **state)
{
    (void)state;
    made *m = begin(true);
    int64_t tag = add(m, "<t>", 0, TOKEN_USER), mark = add(m, MARK, -9, TOKEN_NORMAL);
    int64_t a = add(m, "a", -9, TOKEN_NORMAL), spaced = add(m, MARK "a", -1, TOKEN_NORMAL);
    m->v.leading_space = true;
    finish(m);
    EXPECT(m, "a", PLAIN, spaced);
    EXPECT(m, " a", PLAIN, mark, spaced);
    EXPECT(m, "aa", PLAIN, spaced, a);
    EXPECT(m, "a<t>a", PLAIN, spaced, tag, spaced); /* before every text between special tokens */
    EXPECT(m, "<t><t>", PLAIN, tag, tag);
    expect_ids(m, "", PLAIN, 0, NULL);
    end(m);
}

/* --- both ------------------------------------------------------------------------------------- */

static void special_tokens(void **state)
{
    (void)state;
    made *m = begin(false);
    int64_t start = add(m, "<|im", 0, TOKEN_CONTROL), longer = add(m, "<|im|>", 0, TOKEN_CONTROL);
    int64_t user = add(m, "<u>", 0, TOKEN_USER), spaces = add(m, "   ", 0, TOKEN_USER);
    int64_t ends[] = {start, 3};
    m->v.ends = ends;
    m->v.n_ends = COUNT(ends);
    m->v.first = longer;
    m->v.last = start;
    finish(m);
    EXPECT(m, "a<u>b", BARE, 'a', user, 'b');
    EXPECT(m, "a    b", BARE, 'a', spaces, ' ', 'b');
    EXPECT(m, "<|im", BARE, '<', '|', 'i', 'm');
    EXPECT(m, "<|im", BARE | SPECIAL, start);
    EXPECT(m, "<|im|><|im<u>", BARE | SPECIAL, longer, start, user); /* the longest */
    EXPECT(m, "<|im|", BARE | SPECIAL, start, '|');
    EXPECT(m, "x", PLAIN, longer, 'x', start); /* first and last */
    EXPECT(m, "", PLAIN, longer, start);
    size_t n;
    token_piece(m->t, start, &n);
    assert_int_equal(n, 0); /* control tokens have no text */
    assert_memory_equal(token_piece(m->t, user, &n), "<u>", 3);
    assert_int_equal(n, 3);
    token_piece(m->t, -1, &n);
    assert_int_equal(n, 0);
    token_piece(m->t, token_count(m->t), &n);
    assert_int_equal(n, 0);
    assert_true(token_is_end(m->t, start) && token_is_end(m->t, 3));
    assert_false(token_is_end(m->t, 4) || token_is_end(m->t, -1));
    end(m);
}

static void white_space_behind_names(void **state)
{
    (void)state;
    made *m = begin(true);
    int64_t mark = add(m, MARK, -9, TOKEN_NORMAL), a = add(m, "a", -9, TOKEN_NORMAL);
    int64_t spaced = add(m, MARK "a", -1, TOKEN_NORMAL), newline = add(m, "\n", -1, TOKEN_NORMAL);
    int64_t end_of = add(m, "<e>", 0, TOKEN_CONTROL), user = add(m, "<u>", 0, TOKEN_USER);
    int64_t keeps = add(m, "<k>", 0, TOKEN_CONTROL);
    m->entries[end_of].strip_after = m->entries[user].strip_after = true;
    finish(m);
    EXPECT(m, "a<e> \n\t\u00a0\u2003 a", SPECIAL, a, end_of, a);
    EXPECT(m, "<e>\n<e> <u> \n", SPECIAL, end_of, end_of, user);
    EXPECT(m, "a<u> a", PLAIN, a, user, a);
    EXPECT(m, "a <k> \n", SPECIAL, a, mark, keeps, mark, newline);
    m->v.leading_space = true; /* behind what is gone */
    finish(m);
    EXPECT(m, "a<e>  a<k>a", SPECIAL, spaced, end_of, spaced, keeps, spaced);
    end(m);
}

/* Names that begin with one another and lie in one another, against trying all at every place. */
static void special_tokens_as_slowly(void **state)
{
    (void)state;
    rng r = rng_seed(11);
    for (int round = 0; round < 200; round++) {
        made *m = begin(false);
        for (int i = 0; i < 30; i++) {
            char name[8];
            size_t n = rng_below(&r, sizeof name - 1); /* none, too: a name that is never found */
            for (size_t k = 0; k < n; k++)
                name[k] = "<ab"[rng_below(&r, 3)];
            add(m, arena_strndup(&m->memory, name, n), 0,
                (token_kind[]){TOKEN_CONTROL, TOKEN_USER, TOKEN_UNKNOWN}[rng_below(&r, 3)]);
        }
        finish(m);
        for (int k = 0; k < 20; k++) {
            char text[40];
            int64_t slow[40];
            size_t length = rng_below(&r, sizeof text);
            uint32_t count = 0;
            bool special = rng_below(&r, 2);
            for (size_t i = 0; i < length; i++)
                text[i] = "<ab"[rng_below(&r, 3)];
            text[length] = '\0';
            for (size_t i = 0, step; i < length; i += step) {
                slow[count] = (unsigned char)text[i];
                step = 1;
                for (uint32_t id = BYTES, best = 0; id < m->v.count; id++) {
                    const token_entry *e = &m->entries[id];
                    if ((special || e->kind == TOKEN_USER) && e->length > best &&
                        strncmp(text + i, e->text, e->length) == 0) {
                        slow[count] = id;
                        best = (uint32_t)e->length;
                        step = best;
                    }
                }
                count++;
            }
            expect_ids(m, text, special ? SPECIAL : PLAIN, count, slow);
        }
        end(m);
    }
}

/* Were every name tried at every place, this would take hours. */
static void many_special_tokens(void **state)
{
    (void)state;
    enum { NAMES = 400000, LENGTH = 1000000 };
    made *m = begin_large(false, NAMES + BYTES);
    for (int i = 0; i < NAMES; i++)
        add(m, arena_printf(&m->memory, "<%d>", i), 0, i % 2 ? TOKEN_CONTROL : TOKEN_USER);
    finish(m);
    char *text = malloc(LENGTH);
    memset(text, '<', LENGTH);
    memcpy(text + LENGTH / 2, "<399999><399998><400000>", 24);
    token_ids plain = encode_bytes(m, text, LENGTH, PLAIN);
    assert_int_equal(plain.count, LENGTH - 8 + 1);
    assert_int_equal(plain.data[LENGTH / 2 + 8], BYTES + 399998);
    token_ids special = encode_bytes(m, text, LENGTH, SPECIAL);
    assert_int_equal(special.count, LENGTH - 16 + 2);
    assert_int_equal(special.data[LENGTH / 2], BYTES + 399999);
    free(text);
    end(m);
}

static void round_trips(void **state)
{
    (void)state;
    static const char text[] = "The  cat's \u00e9\u4e00 12 \n\t\xff\xc3 \U0001f600";
    made *bytes = begin(false), *scored = begin(true);
    add(bytes, "he", 0, TOKEN_NORMAL);
    rule(bytes, "h e");
    bytes->v.split = TOKEN_LLAMA3;
    static char names[BYTES][8];
    for (int b = 0; b < BYTES; b++) {
        snprintf(names[b], sizeof names[b], "<0x%02X>", (unsigned)b);
        add(scored, names[b], 0, TOKEN_BYTE);
    }
    add(scored, MARK, -1, TOKEN_NORMAL);
    add(scored, MARK "c", -1, TOKEN_NORMAL);
    scored->v.leading_space = true;
    finish(bytes);
    finish(scored);
    expect_whole(bytes, text, sizeof text, ""); /* with the zero byte behind it */
    expect_whole(scored, text, sizeof text, " ");
    rng r = rng_seed(2);
    for (int round = 0; round < 500; round++) {
        char any[40];
        size_t n = rng_below(&r, sizeof any);
        for (size_t i = 0; i < n; i++)
            any[i] = (char)rng_u64(&r);
        expect_whole(bytes, any, n, "");
        expect_whole(scored, any, n, " ");
    }
    end(bytes);
    end(scored);
}

/* --- what is refused -------------------------------------------------------------------------- */

static void expect_refused(made *m, tacit_status status, const char *message)
{
    tacit_error err = {TACIT_OK, ""};
    assert_int_equal(token_tokenizer_new(&m->v, &m->memory, &m->t, &err), status);
    if (!strstr(err.message, message))
        fail_msg("'%s' without '%s'", err.message, message);
    end(m);
}

static void refused_vocabularies(void **state)
{
    (void)state;
    expect_refused(begin(true), TACIT_ERR_FORMAT, "a vocabulary of 0 tokens");
    made *m = begin(false);
    m->v.first = BYTES;
    expect_refused(m, TACIT_ERR_VALUE, "256 (first)");
    char name[1002];
    memset(name, 'x', sizeof name);
    for (int longer = 0; longer < 2; longer++) {
        m = begin(false);
        name[1000 + longer] = '\0';
        add(m, name, 0, TOKEN_NORMAL); /* of any length */
        int64_t named = add(m, name, 0, TOKEN_USER);
        if (longer) {
            expect_refused(m, TACIT_ERR_LIMIT, "special token 257 has 1001 bytes, more than 1000");
            continue;
        }
        finish(m);
        EXPECT(m, name, PLAIN, named);
        end(m);
        name[1000] = 'x';
    }
}

/* Names whose hashes are the same in every bit: so many that no vocabulary has them by chance. */
static void names_that_are_alike(void **state)
{
    (void)state;
    made *m = begin_large(true, TOKEN_STEPS + 1);
    for (uint64_t i = 0; i <= TOKEN_STEPS; i++) {
        /* what the halves of its words leave behind: of the second i, then whatever undoes it */
        uint64_t x = hash_mix(0, i), words[4] = {5, i, 6, 0};
        words[3] = x - 0x9e3779b97f4a7c15u - (x << 6) - (x >> 2);
        m->entries[i] = (token_entry){arena_copy(&m->memory, words, sizeof words), sizeof words, 0,
                                      TOKEN_NORMAL, false};
        assert_int_equal(hash_bytes(m->entries[i].text, sizeof words, 0),
                         hash_bytes(m->entries[0].text, sizeof words, 0));
    }
    m->v.count = TOKEN_STEPS;
    finish(m);
    for (uint32_t i = 0; i < TOKEN_STEPS; i++)
        assert_int_equal(token_find(m->t, m->entries[i].text, m->entries[i].length), i);
    assert_int_equal(token_find(m->t, m->entries[TOKEN_STEPS].text, 32), -1);
    m->v.count++;
    expect_refused(m, TACIT_ERR_LIMIT, "more than 1000 names of the vocabulary");
}

static void merges_that_are_alike(void **state)
{
    (void)state;
    enum { LETTERS = 12, TOKENS = LETTERS * LETTERS * LETTERS };
    made *m = begin_large(false, BYTES + TOKENS + TOKEN_STEPS + 1);
    for (int i = 0; i < TOKENS; i++)
        add(m,
            arena_printf(&m->memory, "%c%c%c", 'a' + i / LETTERS / LETTERS,
                         'a' + i / LETTERS % LETTERS, 'a' + i % LETTERS),
            0, TOKEN_NORMAL);
    for (uint64_t a = BYTES; a < BYTES + TOKENS; a++)
        for (uint64_t b = BYTES; b < BYTES + TOKENS && m->v.n_rules <= TOKEN_STEPS; b++) {
            if (hash_mix(0, a << 32 | b) % token_table_size(TOKEN_STEPS + 1) != 9)
                continue;
            rule(m, arena_printf(&m->memory, "%s %s", m->entries[a].text, m->entries[b].text));
            add(m, arena_printf(&m->memory, "%s%s", m->entries[a].text, m->entries[b].text), 0,
                TOKEN_NORMAL);
        }
    assert_int_equal(m->v.n_rules, TOKEN_STEPS + 1);
    expect_refused(m, TACIT_ERR_LIMIT, "more than 1000 merges of the vocabulary");
}

static void expect_no_token(made *m, const char *text, int flags, const char *message)
{
    tacit_error err = {TACIT_OK, ""};
    token_ids ids = {0};
    assert_int_equal(token_encode(m->t, text, strlen(text), flags & BARE, flags & SPECIAL,
                                  &m->memory, &ids, &err),
                     TACIT_ERR_VALUE);
    assert_string_equal(err.message, message);
    assert_int_equal(ids.count, 0);
}

static void refused_texts(void **state)
{
    (void)state;
    static const char b_at_1[] = "the vocabulary has no token for byte 0x62, at byte 1 of the text";
    tacit_error err = {TACIT_OK, ""};
    token_ids ids = {0};
    made *m = begin(true);
    add(m, "a", 0, TOKEN_NORMAL);
    add(m, "<u>", 0, TOKEN_USER);
    finish(m);
    expect_no_token(m, "ab", PLAIN, b_at_1);
    expect_no_token(m, "aa<u>a a", PLAIN,
                    "the vocabulary has no token for byte 0x20, at byte 6 of the text");
    m->v.leading_space = true;
    finish(m);
    expect_no_token(m, "a", PLAIN,
                    "the vocabulary has no token for the space that it has before a text");
    add(m, MARK, 0, TOKEN_NORMAL);
    finish(m);
    expect_no_token(m, "  a<u>  \u4e00", PLAIN,
                    "the vocabulary has no token for bytes 0xe4b880, at byte 8 of the text");
    expect_no_token(m, "\x1b[2J", PLAIN,
                    "the vocabulary has no token for byte 0x1b, at byte 0 of the text");
    end(m);
    m = begin(false);
    m->v.count = 'b'; /* bytes below */
    finish(m);
    expect_no_token(m, "ab", PLAIN, b_at_1);
    expect_no_token(m, "a aaa ab", PLAIN,
                    "the vocabulary has no token for byte 0x62, at byte 7 of the text");
    assert_int_equal(token_encode(m->t, "a", SIZE_MAX / 2, false, false, &m->memory, &ids, &err),
                     TACIT_ERR_LIMIT);
    end(m);
}

/* Names that are no bytes' stay as they are. */
static void odd_names(void **state)
{
    (void)state;
    made *m = begin(false);
    int64_t odd = add(m, "\u0120\u20ac", 0, TOKEN_NORMAL);
    for (int i = 0; i < 200; i++)
        add(m, "", 0, TOKEN_NORMAL);
    finish(m);
    size_t n;
    assert_memory_equal(token_piece(m->t, odd, &n), "\u0120\u20ac", 5);
    assert_int_equal(n, 5);
    EXPECT(m, "a", PLAIN, 'a');
    end(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_rank),
        cmocka_unit_test(by_rank_as_slowly),
        cmocka_unit_test(whole_words),
        cmocka_unit_test(by_score),
        cmocka_unit_test(by_score_as_slowly),
        cmocka_unit_test(a_leading_space),
        cmocka_unit_test(special_tokens),
        cmocka_unit_test(white_space_behind_names),
        cmocka_unit_test(special_tokens_as_slowly),
        cmocka_unit_test(many_special_tokens),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(refused_vocabularies),
        cmocka_unit_test(names_that_are_alike),
        cmocka_unit_test(merges_that_are_alike),
        cmocka_unit_test(refused_texts),
        cmocka_unit_test(odd_names),
    };
    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
