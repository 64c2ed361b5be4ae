/* SPDX-License-Identifier: Apache-2.0
 * Tokenizers: loading one, text to tokens and back. */
#include <string.h>

#include "api/internal.h"
#include "load/gguf.h"

struct tacit_tokenizer {
    tacit_allocator allocator;
    arena memory;
    token_tokenizer *is;
};

/* What is only for making it lies in `scratch`. */
static tacit_status read_tokenizer(tacit_tokenizer *t, const file_map *file, arena *scratch,
                                   tacit_error *err)
{
    load_gguf_file gguf;
    if (!load_gguf_probe(file->data, file->size))
        return error_set(err, TACIT_ERR_FORMAT,
                         "this is no GGUF file: other formats hold no tokenizer");
    TRY(load_gguf(file->data, file->size, scratch, &gguf, err));
    return load_gguf_tokenizer(&gguf, &t->memory, &t->is, err);
}

tacit_status tacit_tokenizer_load(const char *path, const tacit_load_options *options,
                                  tacit_tokenizer **out, tacit_error *err)
{
    if (!path || !out)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "tacit_tokenizer_load: path and out must not be NULL");
    *out = NULL;
    const tacit_allocator *allocator = alloc_or_default(options ? options->allocator : NULL);
    file_map file;
    arena scratch;
    TRY(file_map_open(&file, path, err));
    tacit_tokenizer *t = mem_alloc_zero(allocator, sizeof *t);
    if (!t) {
        file_map_close(&file);
        return error_memory(err, "a tokenizer");
    }
    t->allocator = *allocator;
    arena_init(&t->memory, &t->allocator);
    arena_init(&scratch, &t->allocator);
    tacit_status status = read_tokenizer(t, &file, &scratch, err);
    arena_free(&scratch);
    file_map_close(&file);
    if (status != TACIT_OK) {
        tacit_tokenizer_free(t);
        return error_context(err, status, "%s", path);
    }
    *out = t;
    return TACIT_OK;
}

void tacit_tokenizer_free(tacit_tokenizer *t)
{
    if (!t)
        return;
    tacit_allocator allocator = t->allocator;
    arena_free(&t->memory);
    mem_release(&allocator, t, sizeof *t);
}

uint32_t tacit_tokenizer_size(const tacit_tokenizer *t)
{
    return t ? token_count(t->is) : 0;
}

tacit_status tacit_tokenizer_encode(const tacit_tokenizer *t, const char *text, size_t length,
                                    int flags, int64_t *ids, size_t capacity, size_t *count,
                                    tacit_error *err)
{
    if (!t || (!text && length) || (!ids && capacity) || !count)
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "tacit_tokenizer_encode: tokenizer, text, ids and count must not be NULL");
    if (flags & ~(TACIT_ENCODE_BARE | TACIT_ENCODE_SPECIAL | TACIT_ENCODE_OPEN))
        return error_set(err, TACIT_ERR_ARGUMENT, "tacit_tokenizer_encode: unknown flags %d",
                         flags);
    arena memory;
    token_ids all = {0};
    arena_init(&memory, &t->allocator);
    tacit_status status = token_encode(t->is, text ? text : "", length, flags, &memory, &all, err);
    if (status == TACIT_OK) {
        *count = all.count;
        size_t n = all.count < capacity ? all.count : capacity;
        if (n)
            memcpy(ids, all.data, n * sizeof *ids);
    }
    arena_free(&memory);
    return status;
}

const char *tacit_tokenizer_piece(const tacit_tokenizer *t, int64_t id, size_t *length)
{
    size_t none;
    length = length ? length : &none;
    *length = 0;
    return t ? token_piece(t->is, id, length) : "";
}

int tacit_tokenizer_ends(const tacit_tokenizer *t, int64_t id)
{
    return t && token_is_end(t->is, id);
}
