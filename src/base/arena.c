/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct arena_block {
    arena_block *next;
    size_t size; /* of the whole block, header included */
    size_t used; /* likewise */
};

/* From HUGE_FROM on a huge page at a time: one fault instead of 512 (base/alloc.c), which takes as
 * long as some 100; from the first on where so much is expected that it pays. */
enum {
    FIRST_BLOCK = 4096,
    HUGE_FROM = 1 << 18,
    HUGE_EXPECTED = 1 << 19,
    LARGE_OBJECT = 1 << 18,
    OUTER_STEP = 1 << 14, /* of blocks in another arena, which cost nothing */
};

void arena_init(arena *a, const tacit_allocator *allocator)
{
    *a = (arena){.allocator = alloc_or_default(allocator)};
}

void arena_init_in(arena *a, arena *outer)
{
    *a = (arena){.allocator = outer->allocator, .outer = outer};
}

void arena_free(arena *a)
{
    for (arena_block *b = a->blocks, *next; b; b = next) {
        next = b->next;
        if (!a->outer)
            mem_release(a->allocator, b, b->size);
    }
    a->blocks = NULL;
    a->total = a->shared = 0;
}

void arena_reset(arena *a)
{
#if !defined(__SANITIZE_ADDRESS__) /* which is to see what is used too long */
    arena_block *kept = a->blocks;
    if (kept && kept->size <= MEM_HUGE_PAGE) {
        a->blocks = kept->next;
        arena_free(a);
        *kept = (arena_block){.size = kept->size, .used = sizeof *kept};
        a->blocks = kept;
        a->total = a->shared = kept->size;
        return;
    }
#endif
    arena_free(a);
}

/* Offset in `b` where `size` bytes aligned to `align` fit, or 0. */
static size_t block_fit(const arena_block *b, size_t size, size_t align)
{
    uintptr_t base = (uintptr_t)b;
    size_t offset = align_up(base + b->used, align) - base;
    return offset <= b->size && size <= b->size - offset ? offset : 0;
}

static arena_block *block_new(arena *a, size_t size, size_t align)
{
    size_t need;
    if (!size_add(size, sizeof(arena_block) + align, &need))
        return NULL;
    /* Grow with the arena so that a large graph takes few blocks and a small one little memory. */
    size_t step = a->shared < FIRST_BLOCK ? FIRST_BLOCK : a->shared;
    if (a->outer)
        step = OUTER_STEP;
    else if (step >= HUGE_FROM)
        step = MEM_HUGE_PAGE;
    size_t block_size = need > step ? need : step;
    arena_block *b = a->outer ? arena_alloc_aligned(a->outer, block_size, MEM_ALIGN)
                              : mem_alloc(a->allocator, block_size);
    if (!b)
        return NULL;
    *b = (arena_block){.size = block_size, .used = sizeof *b};
    a->total += block_size;
    if (need <= LARGE_OBJECT)
        a->shared += block_size;
    /* An oversized object must not hide the current block's free space. */
    if (a->blocks && need > LARGE_OBJECT) {
        b->next = a->blocks->next;
        a->blocks->next = b;
    } else {
        b->next = a->blocks;
        a->blocks = b;
    }
    return b;
}

void arena_expect(arena *a, size_t bytes)
{
    if (bytes < HUGE_EXPECTED || a->outer || (a->blocks && block_fit(a->blocks, bytes, 1)))
        return;
    size_t shared = a->shared;
    a->shared = shared < HUGE_FROM ? HUGE_FROM : shared;
    if (!block_new(a, 0, 1))
        a->shared = shared; /* no matter: whoever wants memory will see */
}

void *arena_alloc_aligned(arena *a, size_t size, size_t align)
{
    arena_block *b = a->blocks;
    size_t offset = b ? block_fit(b, size, align) : 0;
    if (!offset) {
        b = block_new(a, size, align);
        if (!b)
            return NULL;
        offset = block_fit(b, size, align);
    }
    b->used = offset + size;
    return (char *)b + offset;
}

void *arena_alloc(arena *a, size_t size)
{
    return arena_alloc_aligned(a, size, 16);
}

void *arena_alloc_zero(arena *a, size_t size)
{
    void *memory = arena_alloc(a, size);
    if (memory)
        memset(memory, 0, size);
    return memory;
}

void *arena_copy(arena *a, const void *data, size_t size)
{
    void *memory = arena_alloc(a, size);
    if (memory && size)
        memcpy(memory, data, size);
    return memory;
}

void *arena_array(arena *a, size_t count, size_t size)
{
    size_t bytes;
    return size_mul(count, size, &bytes) ? arena_alloc_zero(a, bytes) : NULL;
}

char *arena_strndup(arena *a, const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? arena_alloc_aligned(a, length + 1, 1) : NULL;
    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

char *arena_strdup(arena *a, const char *text)
{
    return arena_strndup(a, text, strlen(text));
}

char *arena_printf(arena *a, const char *format, ...)
{
    char most[256]; /* longer ones are written twice */
    va_list args;
    va_start(args, format);
    int n = vsnprintf(most, sizeof most, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof most)
        return arena_strndup(a, most, (size_t)n);
    char *text = n < 0 ? NULL : arena_alloc_aligned(a, (size_t)n + 1, 1);
    if (!text)
        return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)n + 1, format, args);
    va_end(args);
    return text;
}
