/* SPDX-License-Identifier: Apache-2.0 */
#include "support/gguf_writer.h"

#include <string.h>

#include "base/utf8.h"

enum { TENSORS_AT = 8, PAIRS_AT = 16, ALIGNMENT = 32 }; /* where the head has their numbers */

static void put(sbuf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        sbuf_char(b, (char)(v >> 8 * i));
}

static void put_text(sbuf *b, const char *s)
{
    put(b, strlen(s), 8);
    sbuf_text(b, s);
}

void gguf_begin(sbuf *b)
{
    sbuf_init(b, NULL);
    sbuf_text(b, "GGUF");
    put(b, 3, 4);
    put(b, 0, 8); /* tensors, … */
    put(b, 0, 8); /* … and entries, as they come */
}

static void begin_pair(sbuf *b, const char *key, uint32_t type)
{
    b->data[PAIRS_AT]++;
    put_text(b, key);
    put(b, type, 4);
}

static void begin_array(sbuf *b, const char *key, uint32_t type, uint32_t n)
{
    begin_pair(b, key, 9);
    put(b, type, 4);
    put(b, n, 8);
}

void gguf_number(sbuf *b, const char *key, uint32_t v)
{
    begin_pair(b, key, 4);
    put(b, v, 4);
}

void gguf_float(sbuf *b, const char *key, float v)
{
    begin_pair(b, key, 6);
    sbuf_bytes(b, &v, sizeof v);
}

void gguf_flag(sbuf *b, const char *key, bool v)
{
    begin_pair(b, key, 7);
    put(b, v, 1);
}

void gguf_string(sbuf *b, const char *key, const char *v)
{
    begin_pair(b, key, 8);
    put_text(b, v);
}

void gguf_strings(sbuf *b, const char *key, const char *const *items, uint32_t n)
{
    begin_array(b, key, 8, n);
    for (uint32_t i = 0; i < n; i++)
        put_text(b, items[i]);
}

void gguf_floats(sbuf *b, const char *key, const float *items, uint32_t n)
{
    begin_array(b, key, 6, n);
    sbuf_bytes(b, items, n * sizeof *items);
}

void gguf_ints(sbuf *b, const char *key, const int32_t *items, uint32_t n)
{
    begin_array(b, key, 5, n);
    sbuf_bytes(b, items, n * sizeof *items);
}

void gguf_tensor(sbuf *b, const char *name, uint32_t rank, const int64_t *dims, uint32_t type,
                 uint64_t offset)
{
    b->data[TENSORS_AT]++;
    put_text(b, name);
    put(b, rank, 4);
    for (uint32_t i = 0; i < rank; i++)
        put(b, (uint64_t)dims[i], 8);
    put(b, type, 4);
    put(b, offset, 8);
}

void gguf_pad(sbuf *b)
{
    while (b->length % ALIGNMENT)
        sbuf_char(b, 0);
}

const char *gguf_byte_name(unsigned char byte, char name[4])
{
    uint32_t hidden = 0; /* bytes before this one that do not print */
    bool prints = false;
    for (uint32_t b = 0; b <= byte; b++) {
        prints = (b >= 33 && b <= 126) || (b >= 161 && b != 173);
        hidden += !prints;
    }
    uint32_t n = utf8_encode(prints ? byte : 0x100 + hidden - 1, name);
    name[n] = '\0';
    return name;
}
