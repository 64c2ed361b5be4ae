/* SPDX-License-Identifier: Apache-2.0
 * The heap ring. Offsets are virtual and only grow, so "full" and "empty" never look alike and a
 * tail never has to move back. */
#include <string.h>

#include "task/task.h"

#if defined(__SANITIZE_ADDRESS__)
#define TASK_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TASK_ASAN 1
#endif
#endif
#ifdef TASK_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n) __asan_poison_memory_region((p), (n))
#define UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define POISON(p, n) ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#endif

void task_heap_open(task_heap *h, unsigned char *memory, uint64_t size)
{
    *h = (task_heap){.memory = memory, .size = size};
    POISON(memory, size);
}

void task_heap_close(task_heap *h)
{
    UNPOISON(h->memory, h->size);
}

/* Bytes skipped so that a block of `bytes` does not straddle the end. */
static uint64_t padding(const task_heap *h, uint64_t bytes)
{
    uint64_t place = h->top % h->size;
    return place + bytes > h->size ? h->size - place : 0;
}

bool task_heap_fits(const task_heap *h, uint64_t tail, uint64_t bytes)
{
    if (bytes == 0)
        return true;
    if (bytes > h->size)
        return false;
    /* An empty heap first moves to its start, so that any request up to the whole size fits. */
    return tail == h->top || h->top + padding(h, bytes) + bytes - tail <= h->size;
}

void *task_heap_take(task_heap *h, uint64_t bytes)
{
    if (bytes == 0)
        return NULL;
    uint64_t pad = padding(h, bytes);
    if (h->tail == h->top)
        h->tail += pad;
    h->top += pad;
    unsigned char *block = h->memory + h->top % h->size;
    h->top += bytes;
    UNPOISON(block, bytes);
    return block;
}

/* Everything below virtual offset `tail` is free. Freed bytes are poisoned for the address
 * sanitizer, which finds uses of an output after its scope. */
void task_heap_release(task_heap *h, uint64_t tail)
{
    if (tail <= h->tail)
        return; /* a task without outputs, older than the last move of an empty heap */
#ifdef TASK_ASAN
    for (uint64_t at = h->tail; at < tail;) {
        uint64_t place = at % h->size, run = h->size - place;
        run = run < tail - at ? run : tail - at;
        POISON(h->memory + place, run);
        at += run;
    }
#endif
    h->tail = tail;
}
