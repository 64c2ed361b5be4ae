/* SPDX-License-Identifier: Apache-2.0
 * A growing text or byte buffer. Out of memory is sticky: write on, then ask once at the end. */
#ifndef BASE_SBUF_H
#define BASE_SBUF_H

#include "base/alloc.h"
#include "base/status.h"

typedef struct sbuf {
    const tacit_allocator *allocator;
    char *data; /* terminated when not NULL */
    size_t length, capacity;
    bool failed;
} sbuf;

void sbuf_init(sbuf *b, const tacit_allocator *allocator);
void sbuf_free(sbuf *b);
void sbuf_bytes(sbuf *b, const void *data, size_t size);
void sbuf_text(sbuf *b, const char *text);
void sbuf_char(sbuf *b, char c);
void sbuf_printf(sbuf *b, const char *format, ...) PRINTF_LIKE(2, 3);
/* `text` as a JSON string with its quotes; invalid UTF-8 becomes U+FFFD. */
void sbuf_json(sbuf *b, const char *text);
/* The text ("" when empty), or NULL when any write ran out of memory. */
const char *sbuf_str(const sbuf *b);

#endif
