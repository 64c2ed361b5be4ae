/* SPDX-License-Identifier: Apache-2.0 */
#include "load/wire_write.h"

#include <string.h>

enum { VARINT = 0, BYTES = 2, FIXED32 = 5 };

static size_t encode_varint(uint64_t value, char out[10])
{
    size_t n = 0;
    for (; value > 0x7f; value >>= 7)
        out[n++] = (char)((value & 0x7f) | 0x80);
    out[n++] = (char)value;
    return n;
}

size_t wire_varint_size(uint64_t value)
{
    char bytes[10];
    return encode_varint(value, bytes);
}

void wire_put_varint(sbuf *b, uint64_t value)
{
    char bytes[10];
    sbuf_bytes(b, bytes, encode_varint(value, bytes));
}

static void put_tag(sbuf *b, uint32_t field, uint32_t type)
{
    wire_put_varint(b, (uint64_t)field << 3 | type);
}

void wire_put_int(sbuf *b, uint32_t field, int64_t value)
{
    put_tag(b, field, VARINT);
    wire_put_varint(b, (uint64_t)value);
}

void wire_put_f32(sbuf *b, uint32_t field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    unsigned char bytes[4] = {(unsigned char)bits, (unsigned char)(bits >> 8),
                              (unsigned char)(bits >> 16), (unsigned char)(bits >> 24)};
    put_tag(b, field, FIXED32);
    sbuf_bytes(b, bytes, sizeof bytes);
}

void wire_put_header(sbuf *b, uint32_t field, uint64_t size)
{
    put_tag(b, field, BYTES);
    wire_put_varint(b, size);
}

void wire_put_bytes(sbuf *b, uint32_t field, const void *data, size_t size)
{
    wire_put_header(b, field, size);
    sbuf_bytes(b, data, size);
}

void wire_put_text(sbuf *b, uint32_t field, const char *text)
{
    wire_put_bytes(b, field, text, strlen(text));
}

size_t wire_begin(sbuf *b, uint32_t field)
{
    put_tag(b, field, BYTES);
    return b->length;
}

void wire_end(sbuf *b, size_t start)
{
    char bytes[10];
    size_t size = b->length - start, n = encode_varint(size, bytes);
    sbuf_bytes(b, bytes, n); /* makes room; the contents then move up behind the length */
    if (b->failed)
        return;
    memmove(b->data + start + n, b->data + start, size);
    memcpy(b->data + start, bytes, n);
}
