/* SPDX-License-Identifier: Apache-2.0
 * tacit_tokenizer_*: wrong arguments, counts, and memory that runs out at every place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include <cmocka.h>

#include "support/gguf_writer.h"
#include "tacit/tacit.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

static char path[64];

static void save(const sbuf *b)
{
    snprintf(path, sizeof path, "/tmp/tacit-tokenizer-%ld.gguf", (long)getpid());
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->data, 1, b->length, f), b->length);
    assert_int_equal(fclose(f), 0);
}

static void write_scored(bool add_last)
{
    static const char *const tokens[] = {"<unk>", "<s>",     "</s>", "\u2581", "a",
                                         "b",     "\u2581a", "ab",   "<0x0A>"};
    static const float scores[] = {0, 0, 0, -3, -4, -5, -1, -2, 0};
    static const int32_t kinds[] = {2, 3, 3, 1, 1, 1, 1, 1, 6};
    sbuf b;
    gguf_begin(&b);
    gguf_string(&b, "tokenizer.ggml.model", "llama");
    gguf_strings(&b, "tokenizer.ggml.tokens", tokens, COUNT(tokens));
    gguf_floats(&b, "tokenizer.ggml.scores", scores, COUNT(scores));
    gguf_ints(&b, "tokenizer.ggml.token_type", kinds, COUNT(kinds));
    gguf_flag(&b, "tokenizer.ggml.add_eos_token", add_last);
    save(&b);
    sbuf_free(&b);
}

static void write_bytes(void)
{
    static char names[256][4];
    const char *tokens[258];
    static const char *const merges[] = {"a b", "ab c"};
    sbuf b;
    for (int i = 0; i < 256; i++)
        tokens[i] = gguf_byte_name((unsigned char)i, names[i]);
    tokens[256] = "ab";
    tokens[257] = "abc";
    gguf_begin(&b);
    gguf_string(&b, "tokenizer.ggml.model", "gpt2");
    gguf_string(&b, "tokenizer.ggml.pre", "qwen2");
    gguf_strings(&b, "tokenizer.ggml.tokens", tokens, COUNT(tokens));
    gguf_strings(&b, "tokenizer.ggml.merges", merges, COUNT(merges));
    save(&b);
    sbuf_free(&b);
}

static tacit_tokenizer *load(void)
{
    tacit_error err = {TACIT_OK, ""};
    tacit_tokenizer *t = NULL;
    if (tacit_tokenizer_load(path, NULL, &t, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    unlink(path); /* the file is not needed afterwards */
    return t;
}

static void texts_and_pieces(void **state)
{
    (void)state;
    write_scored(false);
    tacit_tokenizer *t = load();
    tacit_error err = {TACIT_OK, ""};
    int64_t ids[8] = {-7, -7, -7, -7, -7, -7, -7, -7};
    size_t count = 0, n;
    assert_int_equal(tacit_tokenizer_size(t), 9);
    assert_int_equal(tacit_tokenizer_encode(t, "ab\n", 3, 0, ids, 8, &count, &err), TACIT_OK);
    const int64_t want[] = {1, 6, 5, 8};
    assert_int_equal(count, 4);
    assert_memory_equal(ids, want, sizeof want);
    assert_int_equal(ids[4], -7);
    /* the first two only, and none */
    int64_t few[3] = {-7, -7, -7};
    assert_int_equal(tacit_tokenizer_encode(t, "ab\n", 3, 0, few, 2, &count, &err), TACIT_OK);
    assert_int_equal(count, 4);
    assert_true(few[0] == 1 && few[1] == 6 && few[2] == -7);
    assert_int_equal(tacit_tokenizer_encode(t, "ab\n", 3, 0, NULL, 0, &count, &err), TACIT_OK);
    assert_int_equal(count, 4);
    assert_int_equal(tacit_tokenizer_encode(t, NULL, 0, 0, ids, 8, &count, &err), TACIT_OK);
    assert_int_equal(count, 1);
    assert_int_equal(tacit_tokenizer_encode(t, "</s>", 4, TACIT_ENCODE_BARE | TACIT_ENCODE_SPECIAL,
                                            ids, 8, &count, &err),
                     TACIT_OK);
    assert_true(count == 1 && ids[0] == 2);
    assert_memory_equal(tacit_tokenizer_piece(t, 6, &n), " a", 2);
    assert_int_equal(n, 2);
    assert_memory_equal(tacit_tokenizer_piece(t, 8, NULL), "\n", 1);
    assert_string_equal(tacit_tokenizer_piece(t, INT64_MIN, &n), "");
    assert_int_equal(n, 0);
    assert_int_equal(tacit_tokenizer_ends(t, 2), 1);
    assert_int_equal(tacit_tokenizer_ends(t, 1), 0);
    tacit_tokenizer_free(t);
}

static void texts_that_go_on(void **state)
{
    (void)state;
    static const struct {
        int flags;
        size_t count;
        int64_t ids[3];
    } cases[] = {{0, 3, {1, 6, 2}},
                 {TACIT_ENCODE_OPEN, 2, {1, 6}},
                 {TACIT_ENCODE_BARE, 1, {6}},
                 {TACIT_ENCODE_BARE | TACIT_ENCODE_OPEN, 1, {6}},
                 {TACIT_ENCODE_SPECIAL | TACIT_ENCODE_OPEN, 2, {1, 6}}};
    write_scored(true);
    tacit_tokenizer *t = load();
    for (uint32_t i = 0; i < COUNT(cases); i++) {
        tacit_error err = {TACIT_OK, ""};
        int64_t ids[3];
        size_t count;
        assert_int_equal(tacit_tokenizer_encode(t, "a", 1, cases[i].flags, ids, 3, &count, &err),
                         TACIT_OK);
        assert_int_equal(count, cases[i].count);
        assert_memory_equal(ids, cases[i].ids, count * sizeof *ids);
    }
    tacit_tokenizer_free(t);
}

static void wrong_arguments(void **state)
{
    (void)state;
    write_scored(false);
    tacit_tokenizer *t = NULL;
    tacit_error err = {TACIT_OK, ""};
    size_t count, n = 5;
    int64_t id;
    assert_int_equal(tacit_tokenizer_load(NULL, NULL, &t, &err), TACIT_ERR_ARGUMENT);
    assert_int_equal(tacit_tokenizer_load(path, NULL, NULL, &err), TACIT_ERR_ARGUMENT);
    t = load();
    assert_int_equal(tacit_tokenizer_encode(NULL, "a", 1, 0, &id, 1, &count, &err),
                     TACIT_ERR_ARGUMENT);
    assert_int_equal(tacit_tokenizer_encode(t, NULL, 1, 0, &id, 1, &count, &err),
                     TACIT_ERR_ARGUMENT);
    assert_int_equal(tacit_tokenizer_encode(t, "a", 1, 0, NULL, 1, &count, &err),
                     TACIT_ERR_ARGUMENT);
    assert_int_equal(tacit_tokenizer_encode(t, "a", 1, 0, &id, 1, NULL, &err), TACIT_ERR_ARGUMENT);
    assert_int_equal(tacit_tokenizer_encode(t, "a", 1, 8, &id, 1, &count, &err),
                     TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "unknown flags 8"));
    tacit_tokenizer_free(t);
    tacit_tokenizer_free(NULL);
    assert_int_equal(tacit_tokenizer_size(NULL), 0);
    assert_string_equal(tacit_tokenizer_piece(NULL, 0, &n), "");
    assert_int_equal(n, 0);
    assert_string_equal(tacit_tokenizer_piece(NULL, 0, NULL), "");
    assert_int_equal(tacit_tokenizer_ends(NULL, 0), 0);
}

static void wrong_files(void **state)
{
    (void)state;
    tacit_tokenizer *t = (tacit_tokenizer *)&path;
    tacit_error err = {TACIT_OK, ""};
    assert_int_equal(tacit_tokenizer_load("/nowhere/at/all.gguf", NULL, &t, &err), TACIT_ERR_IO);
    assert_null(t);
    sbuf b;
    sbuf_init(&b, NULL);
    sbuf_text(&b, "nothing of the kind");
    save(&b);
    sbuf_free(&b);
    assert_int_equal(tacit_tokenizer_load(path, NULL, &t, &err), TACIT_ERR_FORMAT);
    assert_non_null(strstr(err.message, "no GGUF file"));
    assert_non_null(strstr(err.message, path));
    gguf_begin(&b);
    save(&b);
    sbuf_free(&b);
    assert_int_equal(tacit_tokenizer_load(path, NULL, &t, &err), TACIT_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "the file has no tokenizer"));
    assert_null(t);
    unlink(path);
}

/* --- memory ----------------------------------------------------------------------------------- */

typedef struct scarce {
    uint64_t calls, fail_at; /* 1: the first; 0: never */
    int64_t held;
} scarce;

static void *scarce_alloc(void *context, size_t size, size_t align)
{
    scarce *s = context;
    if (++s->calls == s->fail_at)
        return NULL;
    s->held++;
    return aligned_alloc(align, (size + align - 1) / align * align);
}

static void scarce_release(void *context, void *memory, size_t size)
{
    scarce *s = context;
    (void)size;
    s->held--;
    free(memory);
}

/* A text long enough for its lists to grow out of an arena's first block. */
static tacit_status attempt(scarce *memory, tacit_error *err)
{
    static char text[20000];
    tacit_allocator hook = {scarce_alloc, scarce_release, memory};
    tacit_tokenizer *t = NULL;
    size_t count = 0;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = "ab a"[i % 4];
    tacit_status status =
        tacit_tokenizer_load(path, &(tacit_load_options){.allocator = &hook}, &t, err);
    if (status == TACIT_OK)
        status = tacit_tokenizer_encode(t, text, sizeof text, 0, NULL, 0, &count, err);
    if (status == TACIT_OK)
        assert_true(count > sizeof text / 4);
    tacit_tokenizer_free(t);
    return status;
}

static void starve(void)
{
    tacit_error err = {TACIT_OK, ""};
    scarce plenty = {0};
    if (attempt(&plenty, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_int_equal(plenty.held, 0);
    assert_true(plenty.calls > 4);
    for (uint64_t k = 1; k <= plenty.calls; k++) {
        scarce memory = {.fail_at = k};
        err = (tacit_error){TACIT_OK, ""};
        assert_int_equal(attempt(&memory, &err), TACIT_ERR_MEMORY);
        assert_int_equal(memory.held, 0);
        assert_true(err.status == TACIT_ERR_MEMORY && err.message[0]);
    }
    unlink(path);
}

static void out_of_memory(void **state)
{
    (void)state;
    write_scored(false);
    starve();
    write_bytes();
    starve();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_pieces), cmocka_unit_test(texts_that_go_on),
        cmocka_unit_test(wrong_arguments),  cmocka_unit_test(wrong_files),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests_name("tokenizers", tests, NULL, NULL);
}
