/* SPDX-License-Identifier: Apache-2.0
 * Text to tokens and back: merges by rank and by score against slow ones, bytes that are no text.
 */
#include "token/made.h"

#include "base/rng.h"

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

static void expect_no_token(made *m, const char *text, int flags, const char *message)
{
    tacit_error err = {TACIT_OK, ""};
    token_ids ids = {0};
    assert_int_equal(token_encode(m->t, text, strlen(text), flags, &m->memory, &ids, &err),
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
    assert_int_equal(token_encode(m->t, "a", SIZE_MAX / 2, PLAIN, &m->memory, &ids, &err),
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
        cmocka_unit_test(round_trips),
        cmocka_unit_test(refused_vocabularies),
        cmocka_unit_test(refused_texts),
        cmocka_unit_test(odd_names),
    };
    return cmocka_run_group_tests_name("tokens", tests, NULL, NULL);
}
