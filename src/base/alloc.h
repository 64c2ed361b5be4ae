/* SPDX-License-Identifier: Apache-2.0
 * The allocator hook, its libc default, and overflow-checked sizes. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tacit/status.h"

enum { MEM_ALIGN = 64 };          /* a cache line, and the widest vector */
enum { MEM_HUGE_PAGE = 2 << 20 }; /* of x86-64 */

/* aligned_alloc/free of libc. */
extern const tacit_allocator alloc_libc;

/* `allocator` or the libc one when NULL. */
const tacit_allocator *alloc_or_default(const tacit_allocator *allocator);

/* NULL when out of memory; a zero size yields a unique non-NULL pointer. */
void *mem_alloc(const tacit_allocator *allocator, size_t size);
void *mem_alloc_zero(const tacit_allocator *allocator, size_t size);
void mem_release(const tacit_allocator *allocator, void *memory, size_t size);

/* false on overflow; *out is then untouched. */
static inline bool size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Round up to a power of two `align`; the caller knows it does not overflow. */
static inline size_t align_up(size_t value, size_t align)
{
    return (value + align - 1) & ~(align - 1);
}

#endif
