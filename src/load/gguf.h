/* SPDX-License-Identifier: Apache-2.0
 * GGUF files, versions 2 and 3: metadata, and tensors that stay in place in the mapped file. */
#ifndef LOAD_GGUF_H
#define LOAD_GGUF_H

#include "op/op.h"
#include "token/tokenizer.h"

typedef enum load_gguf_kind {
    LOAD_GGUF_NUMBER, /* integers, floats and bool */
    LOAD_GGUF_STRING,
    LOAD_GGUF_ARRAY,
} load_gguf_kind;

typedef struct load_gguf_pair {
    const char *key;
    load_gguf_kind kind;
    double number;        /* of an array: its first element, when that is a number */
    const char *text;     /* NUL-terminated copy; an embedded NUL is refused */
    uint64_t count;       /* of an array */
    uint32_t element;     /* its type, as the file codes it, … */
    const uint8_t *items; /* … and its elements, in place in the file */
} load_gguf_pair;

typedef struct load_gguf_tensor {
    const char *name;
    const char *type; /* "F32", "Q4_K" … */
    uint32_t code;
    ir_shape shape;    /* row-major: the reverse of the file's order */
    tacit_dtype dtype; /* of plain types; U8 for blocks */
    const uint8_t *data;
    size_t bytes;
} load_gguf_tensor;

typedef struct load_gguf_file {
    uint32_t version;
    VEC(load_gguf_pair) pairs;
    VEC(load_gguf_tensor) tensors;
} load_gguf_file;

bool load_gguf_probe(const void *data, size_t size);
/* `data` must outlive the result. Names and texts are copied into `memory`. */
tacit_status load_gguf(const void *data, size_t size, arena *memory, load_gguf_file *out,
                       tacit_error *err);
const load_gguf_pair *load_gguf_find(const load_gguf_file *f, const char *key); /* or NULL */
const load_gguf_tensor *load_gguf_tensor_find(const load_gguf_file *f, const char *name);

bool load_gguf_numbers(const load_gguf_pair *p); /* an array of integers, floats or bool? */
bool load_gguf_strings(const load_gguf_pair *p); /* an array of strings? */
/* Element i < count of an array of numbers. */
double load_gguf_number(const load_gguf_pair *p, uint64_t i);
/* The string at *at, which goes on to the one behind it (the first is at p->items); it is not
 * NUL-terminated. */
const char *load_gguf_next(const uint8_t **at, size_t *length);

/* The language model the file describes (load/gguf_model.h) as a graph that takes
 * tokens, positions and past keys and values, and gives logits and the grown ones. */
tacit_status load_gguf_graph(const load_gguf_file *f, arena *memory, ir_graph **out,
                             tacit_error *err);

/* The tokenizer the file describes ("gpt2" with a known way of splitting, or "llama"), in `memory`.
 */
tacit_status load_gguf_tokenizer(const load_gguf_file *f, arena *memory, token_tokenizer **out,
                                 tacit_error *err);

#endif
