/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(sbuf *out, const void *data, size_t size)
{
    const unsigned char *p = data;
    while (size) {
        size_t n = size < 3 ? size : 3;
        unsigned v = (unsigned)p[0] << 16 | (n > 1 ? (unsigned)p[1] << 8 : 0) | (n > 2 ? p[2] : 0);
        char four[4] = {alphabet[v >> 18], alphabet[v >> 12 & 63],
                        n > 1 ? alphabet[v >> 6 & 63] : '=', n > 2 ? alphabet[v & 63] : '='};
        sbuf_bytes(out, four, 4);
        p += n;
        size -= n;
    }
}

static int digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(const char *text, size_t length, unsigned char *out, size_t *size)
{
    size_t n = 0;
    unsigned bits = 0, held = 0;
    while (length && text[length - 1] == '=')
        length--;
    for (size_t i = 0; i < length; i++) {
        int d = digit(text[i]);
        if (d < 0)
            return false;
        bits = bits << 6 | (unsigned)d;
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[n++] = (unsigned char)(bits >> held);
        }
    }
    *size = n;
    return true;
}
