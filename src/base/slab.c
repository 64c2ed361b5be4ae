/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slab.h"

struct slab_block {
    slab_block *next;
    char *data; /* apart, so that it begins with a page and ends with one */
    size_t size, used;
    bool lent;
};

enum {
    LEAST = 4096,
#if defined(__SANITIZE_ADDRESS__)
    STEP = 0, /* every constant a block of its own, so that reading past its end is seen */
#else
    STEP = 256 << 20,
#endif
};

void slab_init(slab *s, const tacit_allocator *allocator, size_t expected)
{
    *s = (slab){.allocator = alloc_or_default(allocator), .expected = expected};
}

static void drop_newest(slab *s)
{
    slab_block *b = s->blocks;
    s->blocks = b->next;
    if (!b->lent)
        mem_release(s->allocator, b->data, b->size);
    mem_release(s->allocator, b, sizeof *b);
}

void slab_free(slab *s)
{
    while (s->blocks)
        drop_newest(s);
}

/* Room for what is expected but not much more; pages nobody writes cost nothing. */
static bool add_block(slab *s, size_t bytes)
{
    size_t more = s->total < LEAST ? (size_t)LEAST : s->total / 4;
    size_t size = s->expected ? s->expected : more;
    size = size < STEP ? size + size / 16 : STEP;
    if (bytes > SIZE_MAX - MEM_HUGE_PAGE)
        return false;
    size = size > bytes ? size : bytes;
    if (size >= MEM_HUGE_PAGE)
        size = align_up(size, MEM_HUGE_PAGE);
    slab_block *b = mem_alloc(s->allocator, sizeof *b);
    char *data = b ? mem_alloc(s->allocator, size) : NULL;
    if (!data) {
        mem_release(s->allocator, b, sizeof *b);
        return false;
    }
    *b = (slab_block){.next = s->blocks, .data = data, .size = size};
    s->blocks = b;
    s->total += size;
    return true;
}

bool slab_give(slab *s, void *memory, size_t bytes)
{
    slab_block *b = mem_alloc(s->allocator, sizeof *b);
    if (b)
        *b = (slab_block){.next = s->blocks, .data = memory, .size = bytes, .lent = true};
    s->blocks = b ? b : s->blocks;
    return b != NULL;
}

void *slab_alloc(slab *s, size_t bytes)
{
    if (bytes > SIZE_MAX - MEM_ALIGN)
        return NULL;
    size_t room = align_up(bytes ? bytes : 1, MEM_ALIGN);
    slab_block *b = s->blocks;
    if (!b || room > b->size - b->used) {
        if (!add_block(s, room))
            return NULL;
        b = s->blocks;
    }
    void *data = b->data + b->used;
    b->used += room;
    s->expected -= room < s->expected ? room : s->expected;
    return data;
}

slab_mark slab_here(const slab *s)
{
    return (slab_mark){s->blocks, s->blocks ? s->blocks->used : 0};
}

void slab_back(slab *s, slab_mark mark)
{
    while (s->blocks != mark.block)
        drop_newest(s);
    if (s->blocks)
        s->blocks->used = mark.used;
}
