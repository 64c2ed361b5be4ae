/* SPDX-License-Identifier: Apache-2.0
 * How texts are cut into words: by hand from the patterns in token/split.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/sbuf.h"
#include "token/split.h"

static const struct {
    token_split how;
    const char *words; /* a | stands between two of them */
} cases[] = {
    {TOKEN_GPT2, "Hello| world"},
    {TOKEN_GPT2, "I|'m| you|'re| we|'ll| they|'ve| he|'d| isn|'t| it|'s"},
    {TOKEN_GPT2, "I|'|M"}, /* capitals are no contraction */
    {TOKEN_GPT2, "a| | b"},
    {TOKEN_GPT2, "a|  | b"},
    {TOKEN_GPT2, "a|\n| b"},
    {TOKEN_GPT2, "a| |\n|b"},
    {TOKEN_GPT2, "\t|\t|x"},
    {TOKEN_GPT2, "behind|  "},
    {TOKEN_GPT2, "  "},
    {TOKEN_GPT2, " "},
    {TOKEN_GPT2, "x|=|1234|,| y"},
    {TOKEN_GPT2, "don|'t|!!!| ok"},
    {TOKEN_GPT2, "''|s"},
    {TOKEN_GPT2, "'"},
    {TOKEN_GPT2, "na\u00efve| caf\u00e9"},
    {TOKEN_GPT2, "\u00bd\u00b2\u0663"}, /* a half, squared, an Arabic three: numbers */
    {TOKEN_GPT2, "\u65e5\u672c\u8a9e| \u30c6\u30ad\u30b9\u30c8"},
    {TOKEN_GPT2, "a|\u00a0|b"},        /* a space that does not break, but is no ' ' */
    {TOKEN_GPT2, "a| \x1c|b| \x1f|b"}, /* white space for Python, but not for patterns */
    {TOKEN_GPT2, "e|\u0301"},          /* an accent of its own is no letter */
    {TOKEN_GPT2, "\U0001f600| \U0001f600"},
    {TOKEN_GPT2, "a|\xff\xfe|b"}, /* no UTF-8 */
    {TOKEN_GPT2, "a|\xe2\x96"},
    {TOKEN_DIGITS, "in| |1|9|8|4| ok"},
    {TOKEN_DIGITS, "x|  |1|2"}, /* what is before a digit does not see it */
    {TOKEN_DIGITS, "v|2|.|0|'s"},
    {TOKEN_DIGITS, "\u00b2|x"},
    {TOKEN_DIGITS, "I|'m| a|  | b"},
    {TOKEN_LLAMA3, "Hello| world"},
    {TOKEN_LLAMA3, "I|'M| WE|'LL| it|'s"},
    {TOKEN_LLAMA3, "'t|is"},
    {TOKEN_LLAMA3, "it|'\u017f|x"}, /* a long s */
    {TOKEN_GPT2, "it|'|\u017fx"},
    {TOKEN_LLAMA3, "123|45| |678"},
    {TOKEN_LLAMA3, "1|st"},
    {TOKEN_LLAMA3, "a|.b"},
    {TOKEN_LLAMA3, "foo|(bar|)"},
    {TOKEN_LLAMA3, "a|\U0001f642b"},
    {TOKEN_LLAMA3, "!!!\n\n|x"},
    {TOKEN_LLAMA3, "a| ?!\r\n| b"},
    {TOKEN_LLAMA3, "a|\n\n| b"},
    {TOKEN_LLAMA3, "a|  \n| | b"},
    {TOKEN_LLAMA3, "x| \n"},
    {TOKEN_LLAMA3, "\n|foo"},
    {TOKEN_LLAMA3, "\r\n\r\n"},
    {TOKEN_LLAMA3, "a|\tb"},
    {TOKEN_LLAMA3, " | x"},
    {TOKEN_LLAMA3, "a|   "},
    {TOKEN_LLAMA3, "a|\xff"
                   "b"}, /* what is no UTF-8 is no letter */
    {TOKEN_QWEN2, "1|2|3|4|5"},
    {TOKEN_QWEN2, "a| |1| b|'RE"},
};

static void by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sbuf text, got;
        sbuf_init(&text, NULL);
        sbuf_init(&got, NULL);
        for (const char *p = cases[i].words; *p; p++)
            if (*p != '|')
                sbuf_char(&text, *p);
        const char *at = sbuf_str(&text);
        size_t left = text.length, part = 0;
        for (size_t n; left; at += n, left -= n) {
            n = token_word(cases[i].how, at, left, &part);
            assert_in_range(n, 1, left);
            if (got.length)
                sbuf_char(&got, '|');
            sbuf_bytes(&got, at, n);
        }
        if (strcmp(sbuf_str(&got), cases[i].words) != 0)
            fail_msg("case %zu: '%s', expected '%s'", i, sbuf_str(&got), cases[i].words);
        sbuf_free(&text);
        sbuf_free(&got);
    }
}

/* Any bytes: each word has some, and no word ends behind the text (which lies in memory of its own
 * size, for sanitizers to see). */
static void any_bytes(void **state)
{
    (void)state;
    static const char some[] = "aZ09 \n\r\t'sSlLvV.,\xc2\xa0\xe2\x96\x81\xf0\x9f\x98\x80\xff";
    rng r = rng_seed(5);
    for (int round = 0; round < 4000; round++) {
        size_t length = 1 + rng_below(&r, 24);
        char *text = malloc(length);
        for (size_t i = 0; i < length; i++)
            text[i] = round % 2 ? some[rng_below(&r, sizeof some - 1)] : (char)rng_u64(&r);
        for (int how = TOKEN_GPT2; how <= TOKEN_QWEN2; how++) {
            size_t part = 0;
            for (size_t at = 0; at < length;) {
                size_t n = token_word((token_split)how, text + at, length - at, &part);
                assert_in_range(n, 1, length - at);
                at += n;
            }
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(any_bytes),
    };
    return cmocka_run_group_tests_name("words", tests, NULL, NULL);
}
