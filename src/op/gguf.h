/* SPDX-License-Identifier: Apache-2.0
 * The block formats of GGUF files, decoded to doubles. */
#ifndef OP_GGUF_H
#define OP_GGUF_H

#include <stdint.h>

typedef struct op_gguf_type {
    const char *name; /* "Q4_K" */
    uint32_t code;    /* in GGUF files */
    int32_t elements; /* of one block */
    int32_t bytes;
    void (*decode)(const uint8_t *block, double *out); /* `elements` values */
} op_gguf_type;

/* The row, or NULL. */
const op_gguf_type *op_gguf_by_name(const char *name);
const op_gguf_type *op_gguf_by_code(uint32_t code);

#endif
