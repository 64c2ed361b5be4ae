/* SPDX-License-Identifier: Apache-2.0
 * Regular expressions: full matches by hand, and patterns that must be refused or stay quick. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/regex.h"

static bool matches(const char *pattern, const char *text)
{
    arena a;
    arena_init(&a, NULL);
    tacit_error err;
    regex *re = NULL;
    if (regex_compile(pattern, strlen(pattern), &a, &re, &err) != TACIT_OK)
        fail_msg("%s: %s", pattern, err.message);
    uint32_t *workspace = regex_workspace(re, &a);
    assert_non_null(workspace);
    bool first = regex_full_match(re, text, strlen(text), workspace);
    bool again = regex_full_match(re, text, strlen(text), workspace);
    assert_int_equal(first, again);
    arena_free(&a);
    return first;
}

static void full_matches(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *text;
        bool match;
    } cases[] = {
        {"", "", true},
        {"", "x", false},
        {"abc", "abc", true},
        {"abc", "abcd", false},
        {"a|bc|", "bc", true},
        {"a|bc|", "", true},
        {"a|bc|d", "ad", false},
        {"(a|b)*c", "ababc", true},
        {"(a*)*", "aaaa", true},
        {"()*(){3}a", "a", true},
        {"a{2,3}", "a", false},
        {"a{2,3}", "aaa", true},
        {"a{2,3}", "aaaa", false},
        {"a{2,}", "aaaaa", true},
        {"a{0}b", "b", true},
        {"a{x}", "a{x}", true},
        {"a+?b?", "aab", true},
        {"[a-c]+", "abcabc", true},
        {"[^a-c]+", "xyz", true},
        {"[^a-c]+", "xaz", false},
        {"[]a]+", "]a]", true},
        {"[a\\-z]+", "a-z", true},
        {"[[:digit:]x]+", "12x", true},
        {"[[:^digit:]]+", "ab", true},
        {"\\d{3}-\\w+", "123-ab_9", true},
        {"\\D\\W\\S", "a-b", true},
        {"\\s+", " \t\n", true},
        {"a.c", "a\nc", false},
        {"(?s)a.c", "a\nc", true},
        {"(?i)HeLLo", "hEllO", true},
        {"(?i:a)b", "AB", false},
        {"(?P<name>a)(?:b)", "ab", true},
        {"^ab$", "ab", true},
        {"\\Aab\\z", "ab", true},
        {"a\\b-\\bb", "a-b", true},
        {"a\\Bb", "ab", true},
        {"a\\bb", "ab", false},
        {"\\x41\\x{e9}", "A\xc3\xa9", true},
        {"\xc3\xa9+", "\xc3\xa9\xc3\xa9", true},
        {".", "\xe2\x82\xac", true},
        {"\\Qa.b\\E", "a.b", true},
        {"\\Qa.b\\E", "axb", false},
        {"(?m)a\n^b$", "a\nb", true},
        {"www\\.[\\w.-]+\\.\\bcom\\b", "www.google.com", true},
        {"www\\.[\\w.-]+\\.\\bcom\\b", "www.facebook.co.uk", false},
        {"(\\W|^)[\\w.\\-]{0,25}@(yahoo|gmail)\\.com(\\W|$)", "account@gmail.com", true},
        {"(\\W|^)[\\w.\\-]{0,25}@(yahoo|gmail)\\.com(\\W|$)", "account@hotmail.com", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (matches(cases[i].pattern, cases[i].text) != cases[i].match)
            fail_msg("'%s' against '%s'", cases[i].pattern, cases[i].text);
}

static void bad_patterns_name_their_place(void **state)
{
    (void)state;
    const char *const bad[] = {"(a",     "a)",         "[a",         "*a",
                               "a{5,2}", "a{2000}",    "[z-a]",      "\\",
                               "(?y)",   "[[:nope:]]", "\\p{Greek}", "((((a{99}){99}){99}){99})"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        arena a;
        arena_init(&a, NULL);
        tacit_error err = {0};
        regex *re = NULL;
        if (regex_compile(bad[i], strlen(bad[i]), &a, &re, &err) != TACIT_ERR_VALUE)
            fail_msg("'%s' was not refused", bad[i]);
        assert_non_null(strstr(err.message, "byte"));
        arena_free(&a);
    }
    char deep[2001];
    memset(deep, '(', 2000);
    deep[2000] = 0;
    arena a;
    arena_init(&a, NULL);
    regex *re = NULL;
    assert_int_equal(regex_compile(deep, 2000, &a, &re, NULL), TACIT_ERR_VALUE);
    arena_free(&a);
}

/* A backtracking matcher needs 2^30 steps here. */
static void no_pattern_runs_away(void **state)
{
    (void)state;
    char text[31];
    memset(text, 'a', 30);
    text[30] = 0;
    uint64_t start = clock_ns();
    assert_false(matches("(a|aa|a*)*b", text));
    assert_true(clock_ns() - start < 1000000000u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_matches),
        cmocka_unit_test(bad_patterns_name_their_place),
        cmocka_unit_test(no_pattern_runs_away),
    };
    return cmocka_run_group_tests_name("regular expressions", tests, NULL, NULL);
}
