/* SPDX-License-Identifier: Apache-2.0
 * Base64 (RFC 4648, padded). */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include "base/sbuf.h"

void base64_encode(sbuf *out, const void *data, size_t size);
/* Bytes that `length` characters decode to at most. */
static inline size_t base64_room(size_t length)
{
    return length / 4 * 3 + 3;
}
/* Decodes into `out` (base64_room bytes); false on a character outside the alphabet. */
bool base64_decode(const char *text, size_t length, unsigned char *out, size_t *size);

#endif
