/* SPDX-License-Identifier: Apache-2.0 */
#include "base/sbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void sbuf_init(sbuf *b, const tacit_allocator *allocator)
{
    *b = (sbuf){.allocator = alloc_or_default(allocator)};
}

void sbuf_free(sbuf *b)
{
    mem_release(b->allocator, b->data, b->capacity);
    sbuf_init(b, b->allocator);
}

static bool reserve(sbuf *b, size_t extra)
{
    size_t need;
    if (b->failed || !size_add(b->length, extra, &need) || !size_add(need, 1, &need))
        return !(b->failed = true);
    if (need <= b->capacity)
        return true;
    size_t larger = b->capacity < 128 ? 256 : b->capacity * 2;
    if (larger < need)
        larger = need;
    char *data = mem_alloc(b->allocator, larger);
    if (!data)
        return !(b->failed = true);
    if (b->length)
        memcpy(data, b->data, b->length);
    mem_release(b->allocator, b->data, b->capacity);
    b->data = data;
    b->capacity = larger;
    return true;
}

void sbuf_bytes(sbuf *b, const void *data, size_t size)
{
    if (!reserve(b, size))
        return;
    if (size)
        memcpy(b->data + b->length, data, size);
    b->length += size;
    b->data[b->length] = '\0';
}

void sbuf_text(sbuf *b, const char *text)
{
    sbuf_bytes(b, text, strlen(text));
}

void sbuf_char(sbuf *b, char c)
{
    sbuf_bytes(b, &c, 1);
}

void sbuf_printf(sbuf *b, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !reserve(b, (size_t)n))
        return;
    va_start(args, format);
    vsnprintf(b->data + b->length, (size_t)n + 1, format, args);
    va_end(args);
    b->length += (size_t)n;
}

/* Length of the valid UTF-8 sequence at `p`, or 0. */
static int utf8_length(const unsigned char *p)
{
    int n = *p < 0x80 ? 1 : *p < 0xC2 ? 0 : *p < 0xE0 ? 2 : *p < 0xF0 ? 3 : *p < 0xF5 ? 4 : 0;
    for (int i = 1; i < n; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    if ((n == 3 && p[0] == 0xE0 && p[1] < 0xA0) || (n == 4 && p[0] == 0xF0 && p[1] < 0x90) ||
        (n == 3 && p[0] == 0xED && p[1] >= 0xA0) || (n == 4 && p[0] == 0xF4 && p[1] >= 0x90))
        return 0;
    return n;
}

void sbuf_json(sbuf *b, const char *text)
{
    sbuf_char(b, '"');
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        int n = utf8_length(p);
        if (*p == '"' || *p == '\\')
            sbuf_printf(b, "\\%c", *p);
        else if (*p < 0x20)
            sbuf_printf(b, "\\u%04x", *p);
        else if (n)
            sbuf_bytes(b, p, (size_t)n);
        else
            sbuf_text(b, "\xEF\xBF\xBD");
        p += n ? n : 1;
    }
    sbuf_char(b, '"');
}

const char *sbuf_str(const sbuf *b)
{
    if (b->failed)
        return NULL;
    return b->data ? b->data : "";
}
