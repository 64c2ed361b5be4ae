/* SPDX-License-Identifier: Apache-2.0 */
#include "token/split.h"

#include <string.h>

#include "base/utf8.h"

typedef struct token_range {
    uint32_t first, last;
} token_range;

#include "token/unicode.inc"

typedef enum class { LETTER, NUMBER, SPACE, OTHER, NOTHING /* behind the end */ } class;

static bool within(const token_range *ranges, size_t n, uint32_t v)
{
    size_t low = 0, high = n; /* of the first range that does not end before v */
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (ranges[middle].last < v)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && ranges[low].first <= v;
}

/* \s of patterns is White_Space of Unicode. The separators 0x1c to 0x1f are not among it: only
 * where strings are split as Python does are they white space, too. */
bool token_is_space(uint32_t v)
{
    return utf8_is_space(v) && !(v >= 0x1c && v <= 0x1f);
}

static class class_of(uint32_t v)
{
    if (v < 0x80) {
        uint32_t letter = v | 0x20;
        return letter >= 'a' && letter <= 'z' ? LETTER
               : v >= '0' && v <= '9'         ? NUMBER
               : token_is_space(v)            ? SPACE
                                              : OTHER;
    }
    if (within(letters, sizeof letters / sizeof *letters, v))
        return LETTER;
    if (within(numbers, sizeof numbers / sizeof *numbers, v))
        return NUMBER;
    return token_is_space(v) ? SPACE : OTHER;
}

/* A text, and the character at a place of it. */
typedef struct view {
    const char *text;
    size_t length;
} view;

static class class_at(const view *t, size_t at, size_t *next)
{
    uint32_t bytes;
    *next = at;
    if (at >= t->length)
        return NOTHING;
    class c = class_of(utf8_decode(t->text + at, t->length - at, &bytes));
    *next = at + bytes;
    return c;
}

/* The end of a run of one class from `at` on, with at most so many characters. */
static size_t run_end(const view *t, size_t at, class c, size_t most)
{
    for (size_t next; most > 0 && class_at(t, at, &next) == c; most--)
        at = next;
    return at;
}

static bool is_newline(const view *t, size_t at)
{
    return at < t->length && (t->text[at] == '\n' || t->text[at] == '\r');
}

/* Bytes of 's and the like at the beginning, or 0. */
static size_t contraction(const view *t, bool capitals)
{
    static const char *const endings[] = {"s", "t", "re", "ve", "m", "ll", "d"};
    if (t->text[0] != '\'')
        return 0;
    if (capitals && t->length > 2 && memcmp(t->text + 1, "\u017f", 2) == 0)
        return 3; /* the long s has the capital S, too */
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]), k = 0;
        for (; k < n && 1 + k < t->length; k++) {
            char c = t->text[1 + k];
            if (capitals && c >= 'A' && c <= 'Z')
                c = (char)(c | 0x20);
            if (c != endings[i][k])
                break;
        }
        if (k == n)
            return 1 + n;
    }
    return 0;
}

/* White space at the beginning: all of it, or all but the last character if a word follows. */
static size_t spaces(const view *t)
{
    size_t end = 0, last = 0, next;
    while (class_at(t, end, &next) == SPACE) {
        last = end;
        end = next;
    }
    return end == t->length || last == 0 ? end : last;
}

static size_t word_gpt2(const view *t)
{
    size_t n = contraction(t, false), next;
    if (n)
        return n;
    size_t begin = t->text[0] == ' ';
    class c = class_at(t, begin, &next);
    if (c == SPACE || c == NOTHING)
        return spaces(t);
    return run_end(t, begin, c, SIZE_MAX);
}

/* The end of white space at the beginning that ends with a newline; 0: there is none in it. */
static size_t lines(const view *t)
{
    size_t end = 0;
    for (size_t at = 0, next; class_at(t, at, &next) == SPACE; at = next)
        if (is_newline(t, at))
            end = next;
    return end;
}

static size_t word_llama3(const view *t, size_t digits)
{
    size_t n = contraction(t, true), next, behind;
    if (n)
        return n;
    class c = class_at(t, 0, &next), d = class_at(t, next, &behind);
    if (c == LETTER || (c != NUMBER && !is_newline(t, 0) && d == LETTER))
        return run_end(t, c == LETTER ? 0 : next, LETTER, SIZE_MAX);
    if (c == NUMBER)
        return run_end(t, 0, NUMBER, digits);
    size_t begin = t->text[0] == ' ';
    size_t end = run_end(t, begin, OTHER, SIZE_MAX);
    if (end > begin) {
        while (is_newline(t, end))
            end++;
        return end;
    }
    end = lines(t);
    return end ? end : spaces(t);
}

size_t token_word(token_split how, const char *text, size_t length, size_t *part)
{
    view t = {text, length};
    if (how == TOKEN_LLAMA3 || how == TOKEN_QWEN2)
        return word_llama3(&t, how == TOKEN_LLAMA3 ? 3 : 1);
    if (how == TOKEN_DIGITS) {
        size_t next;
        if (*part == 0)
            for (; *part < length && class_at(&t, *part, &next) != NUMBER; *part = next)
                ;
        if (*part == 0)
            return run_end(&t, 0, NUMBER, 1);
        t.length = *part;
    }
    size_t n = word_gpt2(&t);
    if (how == TOKEN_DIGITS)
        *part -= n;
    return n;
}
