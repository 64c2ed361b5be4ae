/* SPDX-License-Identifier: Apache-2.0 */
#include "load/json.h"

static void skip_space(json *j)
{
    while (j->at < j->end && (*j->at == ' ' || *j->at == '\n' || *j->at == '\t' || *j->at == '\r'))
        j->at++;
}

static tacit_status unexpected(json *j, const char *wanted)
{
    return error_set(j->err, TACIT_ERR_FORMAT, "header, byte %zu: expected %s",
                     (size_t)(j->at - j->begin), wanted);
}

static bool accept(json *j, char c)
{
    skip_space(j);
    if (j->at == j->end || *j->at != c)
        return false;
    j->at++;
    return true;
}

tacit_status json_open(json *j, char bracket)
{
    if (!accept(j, bracket))
        return unexpected(j, bracket == '{' ? "'{'" : "'['");
    j->first = true;
    return TACIT_OK;
}

tacit_status json_more(json *j, char closing, bool *more)
{
    *more = !accept(j, closing);
    if (*more && !j->first && !accept(j, ','))
        return unexpected(j, "',' or the end of the list");
    j->first = false; /* after a closing bracket, too: the outer list has had an element */
    return TACIT_OK;
}

static bool hex4(json *j, uint32_t *out)
{
    uint32_t value = 0;
    if (j->end - j->at < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = *j->at++;
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit > 15)
            return false;
        value = value << 4 | digit;
    }
    *out = value;
    return true;
}

static bool unicode_escape(json *j, char **to)
{
    uint32_t c, low;
    if (!hex4(j, &c) || c == 0 || (c >= 0xdc00 && c < 0xe000))
        return false;
    if (c >= 0xd800 && c < 0xdc00) {
        if (j->end - j->at < 6 || j->at[0] != '\\' || j->at[1] != 'u')
            return false;
        j->at += 2;
        if (!hex4(j, &low) || low < 0xdc00 || low >= 0xe000)
            return false;
        c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    }
    char *p = *to;
    if (c < 0x80)
        *p++ = (char)c;
    else {
        int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
        *p++ = (char)(lead[more] | c >> (6 * more));
        while (more-- > 0)
            *p++ = (char)(0x80 | (c >> (6 * more) & 0x3f));
    }
    *to = p;
    return true;
}

static bool escape(json *j, char **to)
{
    static const char codes[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    if (j->at == j->end)
        return false;
    char c = *j->at++;
    if (c == 'u')
        return unicode_escape(j, to);
    for (int i = 0; codes[i]; i++)
        if (codes[i] == c) {
            *(*to)++ = values[i];
            return true;
        }
    return false;
}

tacit_status json_string(json *j, const char **out)
{
    if (!accept(j, '"'))
        return unexpected(j, "a string");
    const char *close = j->at;
    while (close < j->end && *close != '"')
        close += *close == '\\' && close + 1 < j->end ? 2 : 1;
    if (close >= j->end)
        return unexpected(j, "the end of a string");
    char *text = arena_alloc(j->memory, (size_t)(close - j->at) + 1), *to = text;
    if (!text)
        return error_memory(j->err, "a string");
    while (j->at < close) {
        char c = *j->at++;
        if (c == '\\') {
            if (!escape(j, &to))
                return unexpected(j, "a valid escape");
        } else if ((unsigned char)c < 0x20)
            return unexpected(j, "no control characters in strings");
        else
            *to++ = c;
    }
    *to = '\0';
    j->at = close + 1;
    *out = text;
    return TACIT_OK;
}

tacit_status json_key(json *j, const char **out)
{
    TRY(json_string(j, out));
    return accept(j, ':') ? TACIT_OK : unexpected(j, "':'");
}

tacit_status json_number(json *j, uint64_t *out)
{
    skip_space(j);
    const char *first = j->at;
    uint64_t value = 0;
    while (j->at < j->end && *j->at >= '0' && *j->at <= '9')
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*j->at++ - '0'), &value))
            return unexpected(j, "a smaller number");
    if (j->at == first)
        return unexpected(j, "a whole number");
    *out = value;
    return TACIT_OK;
}

tacit_status json_end(json *j)
{
    skip_space(j);
    return j->at == j->end ? TACIT_OK : unexpected(j, "the end of the header");
}
