/* SPDX-License-Identifier: Apache-2.0
 * Special tokens: which names are found, how fast, what is around them; names and merges that were
 * chosen to collide. */
#include "token/made.h"

#include "base/map.h"
#include "base/rng.h"
#include "token/table.h"

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
    EXPECT(m, "x", OPEN, longer, 'x');         /* more follows */
    EXPECT(m, "x", OPEN | BARE, 'x');
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

/* --- hostile vocabularies ------------------------------------------------------------------- */

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_tokens),           cmocka_unit_test(white_space_behind_names),
        cmocka_unit_test(special_tokens_as_slowly), cmocka_unit_test(many_special_tokens),
        cmocka_unit_test(names_that_are_alike),     cmocka_unit_test(merges_that_are_alike),
    };
    return cmocka_run_group_tests_name("special tokens", tests, NULL, NULL);
}
