/* SPDX-License-Identifier: Apache-2.0
 * Appending protobuf fields to a buffer. Memory errors are sticky in the buffer. */
#ifndef LOAD_WIRE_WRITE_H
#define LOAD_WIRE_WRITE_H

#include "base/sbuf.h"

size_t wire_varint_size(uint64_t value);
void wire_put_varint(sbuf *b, uint64_t value);
void wire_put_int(sbuf *b, uint32_t field, int64_t value);
void wire_put_f32(sbuf *b, uint32_t field, float value);
void wire_put_bytes(sbuf *b, uint32_t field, const void *data, size_t size);
void wire_put_text(sbuf *b, uint32_t field, const char *text);
/* A message field: write its contents between the two calls. */
size_t wire_begin(sbuf *b, uint32_t field);
void wire_end(sbuf *b, size_t start);
/* Only the tag and length of a bytes field whose contents follow by other means. */
void wire_put_header(sbuf *b, uint32_t field, uint64_t size);

#endif
