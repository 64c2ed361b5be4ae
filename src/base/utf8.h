/* SPDX-License-Identifier: Apache-2.0
 * Code points of UTF-8 text. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include <stdbool.h>
#include <stdint.h>

/* The code point at `text` and its length in bytes; a malformed byte is U+FFFD of length 1. */
static inline uint32_t utf8_decode(const char *text, uint64_t left, uint32_t *length)
{
    const unsigned char *s = (const unsigned char *)text;
    uint32_t n = s[0] < 0x80 ? 1 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    *length = 1;
    if (n == 1)
        return s[0];
    if (n == 0 || n > left)
        return 0xfffd;
    uint32_t v = s[0] & (0x7fu >> n);
    for (uint32_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0xfffd;
        v = v << 6 | (s[i] & 0x3fu);
    }
    *length = n;
    return v;
}

/* Writes the code point; returns its length in bytes (at most 4). */
static inline uint32_t utf8_encode(uint32_t v, char *out)
{
    if (v < 0x80) {
        out[0] = (char)v;
        return 1;
    }
    uint32_t n = v < 0x800 ? 2 : v < 0x10000 ? 3 : 4;
    for (uint32_t i = n; i-- > 1; v >>= 6)
        out[i] = (char)(0x80 | (v & 0x3f));
    out[0] = (char)((0xf00u >> n) | v);
    return n;
}

/* Simple case mapping for Latin, Greek and Cyrillic; other code points map to themselves. */
uint32_t utf8_lower(uint32_t v);
uint32_t utf8_upper(uint32_t v);
bool utf8_is_space(uint32_t v);

#endif
