/* SPDX-License-Identifier: Apache-2.0
 * A bump allocator: objects of a graph, plan or program live in one and die together. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/alloc.h"
#include "base/status.h"

typedef struct arena_block arena_block;

typedef struct arena {
    const tacit_allocator *allocator;
    struct arena *outer; /* its blocks lie there; NULL: they come from the allocator */
    arena_block *blocks; /* newest first */
    size_t total;        /* bytes obtained from either */
    size_t shared;       /* of these in blocks for many objects */
} arena;

void arena_init(arena *a, const tacit_allocator *allocator);
/* One that lies in another, which lives longer and gets back nothing before it ends. */
void arena_init_in(arena *a, arena *outer);
/* So much more is to come. */
void arena_expect(arena *a, size_t bytes);
void arena_free(arena *a); /* releases everything; the arena is then empty and usable again */
/* As if it had been freed, but its newest block stays for what comes next. */
void arena_reset(arena *a);

/* Aligned to 16 bytes; NULL when out of memory. */
void *arena_alloc(arena *a, size_t size);
void *arena_alloc_zero(arena *a, size_t size);
void *arena_alloc_aligned(arena *a, size_t size, size_t align); /* align ≤ 4096, power of two */
void *arena_copy(arena *a, const void *data, size_t size);
/* `count * size` bytes, zeroed; NULL on overflow too. */
void *arena_array(arena *a, size_t count, size_t size);

char *arena_strdup(arena *a, const char *text);
char *arena_strndup(arena *a, const char *text, size_t length); /* always terminated */
char *arena_printf(arena *a, const char *format, ...) PRINTF_LIKE(2, 3);

#define ARENA_NEW(a, type) ((type *)arena_alloc_zero((a), sizeof(type)))
#define ARENA_ARRAY(a, count, type) ((type *)arena_array((a), (count), sizeof(type)))

#endif
