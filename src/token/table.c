/* SPDX-License-Identifier: Apache-2.0 */
#include "token/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"

/* --- by text ---------------------------------------------------------------------------------- */

tacit_status token_table_init(token_table *b, uint32_t count, arena *memory, tacit_error *err)
{
    uint32_t size = token_table_size(count);
    b->slots = ARENA_ARRAY(memory, size, uint32_t);
    b->mask = size - 1;
    return b->slots ? TACIT_OK : error_memory(err, "a tokenizer");
}

/* Where the text is, or would be; NULL: it is not there, and nor is there room for it. */
static uint32_t *place(const token_table *b, const token *tokens, const char *text, size_t length,
                       uint64_t hash)
{
    for (uint32_t i = 0; i < TOKEN_STEPS; i++) {
        uint32_t *slot = &b->slots[(uint32_t)(hash + i) & b->mask];
        if (!*slot)
            return slot;
        const token *k = &tokens[*slot - 1];
        if (k->length == length && memcmp(k->text, text, length) == 0)
            return slot;
    }
    return NULL;
}

tacit_status token_table_add(token_table *b, const token *tokens, uint32_t id, uint64_t hash,
                             tacit_error *err)
{
    uint32_t *slot = place(b, tokens, tokens[id].text, tokens[id].length, hash);
    if (!slot)
        return token_too_alike("names", err);
    if (!*slot)
        *slot = id + 1;
    return TACIT_OK;
}

int64_t token_table_find(const token_table *b, const token *tokens, const char *text, size_t length,
                         uint64_t hash)
{
    const uint32_t *slot = place(b, tokens, text, length, hash);
    return slot ? (int64_t)*slot - 1 : -1;
}

/* --- special tokens --------------------------------------------------------------------------- */

/* A name is hashed byte by byte, so that one walk over a text gives the hashes of all lengths. */
enum { MOST_NAME = 1000 }; /* bytes of such a walk; tens are usual */

static uint64_t name_hash(uint64_t h, char byte)
{
    return hash_mix(h, (unsigned char)byte);
}

static bool is_name(const token *k, bool control)
{
    return k->length > 0 && (k->kind == TOKEN_USER ||
                             (control && (k->kind == TOKEN_CONTROL || k->kind == TOKEN_UNKNOWN)));
}

static int compare_keys(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* `keys`: first byte and length of every name, which there are n of. */
static tacit_status add_names(token_names *s, const token *tokens, uint32_t count, bool control,
                              uint64_t *keys, tacit_error *err)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        const token *k = &tokens[i];
        if (!is_name(k, control))
            continue;
        if (k->length > MOST_NAME)
            return error_set(err, TACIT_ERR_LIMIT,
                             "the name of the special token %u has %u bytes, more than %d",
                             (unsigned)i, (unsigned)k->length, (int)MOST_NAME);
        uint64_t h = 0;
        for (uint32_t at = 0; at < k->length; at++)
            h = name_hash(h, k->text[at]);
        TRY(token_table_add(&s->table, tokens, i, h, err));
        keys[n++] = (uint64_t)(unsigned char)k->text[0] << 32 | k->length;
    }
    qsort(keys, n, sizeof *keys, compare_keys);
    for (uint32_t byte = 0, i = 0; byte <= 256; byte++) {
        for (; i < n && keys[i] >> 32 < byte; i++)
            if (i == 0 || keys[i] != keys[i - 1])
                s->lengths[kept++] = (uint32_t)keys[i];
        s->from[byte] = kept;
    }
    return TACIT_OK;
}

tacit_status token_names_init(token_names *s, const token *tokens, uint32_t count, bool control,
                              arena *memory, tacit_error *err)
{
    arena local;
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++)
        n += is_name(&tokens[i], control);
    TRY(token_table_init(&s->table, n, memory, err));
    s->lengths = ARENA_ARRAY(memory, n + 1u, uint32_t);
    arena_init(&local, memory->allocator);
    uint64_t *keys = ARENA_ARRAY(&local, n + 1u, uint64_t);
    tacit_status status = s->lengths && keys ? add_names(s, tokens, count, control, keys, err)
                                             : error_memory(err, "a tokenizer");
    arena_free(&local);
    return status;
}

int64_t token_names_find(const token_names *s, const token *tokens, const char *text, size_t length)
{
    unsigned char first = (unsigned char)text[0];
    int64_t found = -1;
    uint64_t h = 0;
    for (uint32_t i = s->from[first], at = 0; i < s->from[first + 1]; i++) {
        uint32_t n = s->lengths[i];
        if (n > length)
            break;
        for (; at < n; at++)
            h = name_hash(h, text[at]);
        int64_t id = token_table_find(&s->table, tokens, text, n, h);
        found = id >= 0 ? id : found;
    }
    return found;
}

/* --- by pair ---------------------------------------------------------------------------------- */

token_pair *token_pair_find(const token_tokenizer *t, uint32_t left, uint32_t right)
{
    uint64_t hash = hash_mix(0, (uint64_t)left << 32 | right);
    for (uint32_t i = 0; i < TOKEN_STEPS; i++) {
        token_pair *p = &t->pairs[(uint32_t)(hash + i) & t->pair_mask];
        if (p->rank == UINT32_MAX || (p->left == left && p->right == right))
            return p;
    }
    return NULL;
}
