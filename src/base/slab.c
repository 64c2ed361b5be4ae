/* SPDX-License-Identifier: Apache-2.0 */
#include "base/slab.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "base/cpu.h"
#include "base/thread.h"

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

struct slab_finder {
    pthread_t thread;
    const slab_block *block;
    size_t found; /* bytes; to be read when the thread has ended */
    atomic_bool stop;
};

/* By writing: a wish to have them found (madvise) would keep the caller from mapping anything. */
static void *find_pages(void *context)
{
    enum { PAGE = 4096 };
    slab_finder *f = context;
    volatile char *data = f->block->data;
    size_t size = f->block->size, at = 0;
    thread_name("tacit-pages");
    for (; at < size && !atomic_load_explicit(&f->stop, memory_order_relaxed); at += PAGE)
        data[at] = 0;
    f->found = at < size ? at : size;
    return NULL;
}

static bool start_finder(slab_finder *f)
{
    pthread_attr_t attributes;
    cpu_set_t allowed;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    bool started = thread_elsewhere(&attributes, &allowed) &&
                   thread_start(&f->thread, &attributes, find_pages, f);
    pthread_attr_destroy(&attributes);
    return started;
}

/* Pages that it found behind what was asked for go back. */
static void stop_finder(slab *s)
{
    slab_finder *f = s->finder;
    const slab_block *b = f->block;
    atomic_store_explicit(&f->stop, true, memory_order_relaxed);
    pthread_join(f->thread, NULL);
    size_t used = align_up(b->used, MEM_HUGE_PAGE), found = align_up(f->found, MEM_HUGE_PAGE);
    found = found < b->size ? found : b->size; /* huge pages come whole */
    if (used < found)
        (void)madvise(b->data + used, found - used, MADV_DONTNEED);
    s->finder = NULL;
    mem_release(s->allocator, f, sizeof *f);
}

static void drop_newest(slab *s)
{
    slab_block *b = s->blocks;
    if (s->finder && s->finder->block == b)
        stop_finder(s);
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

void slab_settle(slab *s)
{
    if (!s->finder)
        return;
    const slab_block *b = s->finder->block;
    stop_finder(s);
    if (s->blocks == b && !b->used)
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

void slab_find_pages(slab *s)
{
    enum { WORTH = 4 << 20 }; /* bytes: half a millisecond */
    if (!STEP || s->blocks || s->expected < WORTH || cpu_count() < 2 || !add_block(s, 0))
        return;
    s->finder = mem_alloc_zero(s->allocator, sizeof *s->finder);
    if (!s->finder)
        return;
    s->finder->block = s->blocks;
    if (!start_finder(s->finder)) {
        mem_release(s->allocator, s->finder, sizeof *s->finder);
        s->finder = NULL;
    }
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
