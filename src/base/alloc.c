/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

/* One huge page that was released last: the next one who wants one has it without a fault, which
 * clears two megabytes. Arenas take and release several while a model is opened. */
#if !defined(__SANITIZE_ADDRESS__) /* which is to see what is used too long */
static _Atomic(void *) spare;

static void *take_spare(void)
{
    return atomic_exchange_explicit(&spare, NULL, memory_order_acquire);
}
static void release_huge(void *memory)
{
    free(atomic_exchange_explicit(&spare, memory, memory_order_acq_rel));
}
#else
static void *take_spare(void)
{
    return NULL;
}
static void release_huge(void *memory)
{
    free(memory);
}
#endif

/* Packed weights and arenas in huge pages, each of which the system makes at one fault instead of
 * 512. The end of the memory too if it fills half of one. */
static void *alloc_large(size_t size)
{
    if (size > SIZE_MAX - MEM_HUGE_PAGE)
        return NULL;
    void *kept = size == MEM_HUGE_PAGE ? take_spare() : NULL;
    if (kept)
        return kept;
    void *memory = aligned_alloc(MEM_HUGE_PAGE, align_up(size, MEM_HUGE_PAGE));
#if defined(MADV_HUGEPAGE)
    if (memory)
        (void)madvise(memory, (size + MEM_HUGE_PAGE / 2) / MEM_HUGE_PAGE * MEM_HUGE_PAGE,
                      MADV_HUGEPAGE); /* a wish */
#endif
    return memory;
}

static void *libc_alloc(void *context, size_t size, size_t align)
{
    (void)context;
    if (size > SIZE_MAX - align)
        return NULL;
    if (size >= MEM_HUGE_PAGE && align <= MEM_HUGE_PAGE)
        return alloc_large(size);
    return aligned_alloc(align, align_up(size ? size : 1, align));
}

static void libc_release(void *context, void *memory, size_t size)
{
    (void)context;
    if (size == MEM_HUGE_PAGE)
        release_huge(memory);
    else
        free(memory);
}

const tacit_allocator alloc_libc = {libc_alloc, libc_release, NULL};

const tacit_allocator *alloc_or_default(const tacit_allocator *allocator)
{
    return allocator && allocator->alloc ? allocator : &alloc_libc;
}

void *mem_alloc(const tacit_allocator *allocator, size_t size)
{
    const tacit_allocator *a = alloc_or_default(allocator);
    return a->alloc(a->context, size ? size : 1, MEM_ALIGN);
}

void *mem_alloc_zero(const tacit_allocator *allocator, size_t size)
{
    void *memory = mem_alloc(allocator, size);
    if (memory)
        memset(memory, 0, size);
    return memory;
}

void mem_release(const tacit_allocator *allocator, void *memory, size_t size)
{
    if (!memory)
        return;
    const tacit_allocator *a = alloc_or_default(allocator);
    a->release(a->context, memory, size ? size : 1);
}
