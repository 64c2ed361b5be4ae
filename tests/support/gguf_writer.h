/* SPDX-License-Identifier: Apache-2.0
 * Small GGUF files for tests: metadata, whatever it says, then tensors. */
#ifndef SUPPORT_GGUF_WRITER_H
#define SUPPORT_GGUF_WRITER_H

#include "base/sbuf.h"

void gguf_begin(sbuf *b);
void gguf_number(sbuf *b, const char *key, uint32_t v);
void gguf_float(sbuf *b, const char *key, float v);
void gguf_flag(sbuf *b, const char *key, bool v);
void gguf_string(sbuf *b, const char *key, const char *v);
void gguf_strings(sbuf *b, const char *key, const char *const *items, uint32_t n);
void gguf_floats(sbuf *b, const char *key, const float *items, uint32_t n);
void gguf_ints(sbuf *b, const char *key, const int32_t *items, uint32_t n);

/* A tensor whose data begin so many bytes behind what gguf_pad ends; the fastest axis first. */
void gguf_tensor(sbuf *b, const char *name, uint32_t rank, const int64_t *dims, uint32_t type,
                 uint64_t offset);
void gguf_pad(sbuf *b); /* zeros up to where data may begin */

/* The name that a byte has in the vocabularies of GPT-2 and its kin. */
const char *gguf_byte_name(unsigned char byte, char name[4]);

#endif
