/* SPDX-License-Identifier: Apache-2.0 */
#include "base/alloc.h"

#include <stdlib.h>
#include <string.h>

static void *libc_alloc(void *context, size_t size, size_t align)
{
    (void)context;
    if (size > SIZE_MAX - align)
        return NULL;
    return aligned_alloc(align, align_up(size ? size : 1, align));
}

static void libc_release(void *context, void *memory, size_t size)
{
    (void)context;
    (void)size;
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
