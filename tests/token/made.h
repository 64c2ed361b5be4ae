/* SPDX-License-Identifier: Apache-2.0
 * For tests of tokenizers: vocabularies that grow entry by entry. */
#ifndef TOKEN_MADE_H
#define TOKEN_MADE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/gguf_writer.h"
#include "token/tokenizer.h"

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof *(array)))

/* --- making one ------------------------------------------------------------------------------- */

enum { BYTES = 256, MOST = 600 };

/* A vocabulary that grows: of bytes, or empty. */
typedef struct made {
    token_entry *entries;
    char names[BYTES][8];
    token_rule *rules;
    token_vocabulary v;
    arena memory;
    token_tokenizer *t;
} made;

static inline int64_t add(made *m, const char *text, float score, token_kind kind)
{
    m->entries[m->v.count] = (token_entry){text, strlen(text), score, kind, false};
    return m->v.count++;
}

static inline void rule(made *m, const char *text)
{
    const char *cut = strchr(text, ' ');
    m->rules[m->v.n_rules++] = (token_rule){text, cut + 1, (size_t)(cut - text), strlen(cut + 1)};
}

static inline made *begin_large(bool by_score, size_t most)
{
    made *m = calloc(1, sizeof *m);
    m->entries = calloc(most, sizeof *m->entries);
    m->rules = calloc(most, sizeof *m->rules);
    m->v = (token_vocabulary){.entries = m->entries,
                              .rules = m->rules,
                              .by_score = by_score,
                              .first = -1,
                              .last = -1,
                              .unknown = -1};
    arena_init(&m->memory, NULL);
    for (int b = 0; b < BYTES && !by_score; b++) /* id: the byte */
        add(m, gguf_byte_name((unsigned char)b, m->names[b]), 0, TOKEN_NORMAL);
    return m;
}

static inline made *begin(bool by_score)
{
    return begin_large(by_score, MOST);
}

static inline made *finish(made *m)
{
    tacit_error err = {TACIT_OK, ""};
    if (token_tokenizer_new(&m->v, &m->memory, &m->t, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return m;
}

static inline void end(made *m)
{
    arena_free(&m->memory);
    free(m->entries);
    free(m->rules);
    free(m);
}

#define MARK "\u2581" /* stands for a space, by_score */

/* --- asking it -------------------------------------------------------------------------------- */

enum {
    PLAIN = 0,
    BARE = TACIT_ENCODE_BARE,
    SPECIAL = TACIT_ENCODE_SPECIAL,
    OPEN = TACIT_ENCODE_OPEN,
};

static inline token_ids encode_bytes(made *m, const char *text, size_t length, int flags)
{
    tacit_error err = {TACIT_OK, ""};
    token_ids ids = {0};
    char *own = malloc(length + !length); /* so that sanitizers see its end */
    memcpy(own, text, length);
    if (token_encode(m->t, own, length, flags, &m->memory, &ids, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    free(own);
    return ids;
}

static inline void expect_ids(made *m, const char *text, int flags, uint32_t n, const int64_t *want)
{
    token_ids ids = encode_bytes(m, text, strlen(text), flags);
    for (uint32_t i = 0; i < n && i < ids.count; i++)
        if (ids.data[i] != want[i])
            fail_msg("'%s': token %u is %lld, expected %lld", text, i, (long long)ids.data[i],
                     (long long)want[i]);
    if (ids.count != n)
        fail_msg("'%s': %u tokens, expected %u", text, ids.count, n);
}
#define EXPECT(m, text, flags, ...)                                                                \
    expect_ids(m, text, flags, COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

static inline void expect_refused(made *m, tacit_status status, const char *message)
{
    tacit_error err = {TACIT_OK, ""};
    assert_int_equal(token_tokenizer_new(&m->v, &m->memory, &m->t, &err), status);
    if (!strstr(err.message, message))
        fail_msg("'%s' without '%s'", err.message, message);
    end(m);
}

#endif
