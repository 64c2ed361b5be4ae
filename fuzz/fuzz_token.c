/* SPDX-License-Identifier: Apache-2.0
 * Vocabularies of GGUF files, and texts: the last bytes of the input. Tokens of bytes must give
 * back the text that they were made from. */
#include <stdlib.h>
#include <string.h>

#include "load/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect_text(const token_tokenizer *t, const token_ids *ids, const char *text, size_t n)
{
    size_t at = 0, length;
    for (uint32_t i = 0; i < ids->count; i++, at += length) {
        const char *piece = token_piece(t, ids->data[i], &length);
        if (length > n - at || memcmp(piece, text + at, length) != 0)
            abort();
    }
    if (at != n)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { MOST = 96 };
    arena a;
    load_gguf_file f;
    token_tokenizer *t;
    arena_init(&a, NULL);
    if (load_gguf(data, size, &a, &f, NULL) == TACIT_OK &&
        load_gguf_tokenizer(&f, &a, &t, NULL) == TACIT_OK) {
        size_t n = size < MOST ? size : MOST;
        const char *text = (const char *)data + size - n;
        const load_gguf_pair *model = load_gguf_find(&f, "tokenizer.ggml.model");
        token_ids plain = {0}, special = {0};
        if (token_encode(t, text, n, TACIT_ENCODE_BARE, &a, &plain, NULL) == TACIT_OK &&
            strcmp(model->text, "gpt2") == 0)
            expect_text(t, &plain, text, n);
        (void)token_encode(t, text, n, TACIT_ENCODE_SPECIAL, &a, &special, NULL);
    }
    arena_free(&a);
    return 0;
}
