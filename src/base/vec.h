/* SPDX-License-Identifier: Apache-2.0
 * Growable arrays. VEC(T) names the type; the storage belongs to an arena, so there is no free. */
#ifndef BASE_VEC_H
#define BASE_VEC_H

#include <string.h>

#include "base/arena.h"

#define VEC(type)                                                                                  \
    struct {                                                                                       \
        type *data;                                                                                \
        uint32_t count, capacity;                                                                  \
    }

/* Make room for `extra` more elements; false when out of memory. */
#define vec_reserve(a, v, extra)                                                                   \
    vec_grow_((a), (void **)&(v)->data, (v)->count, &(v)->capacity, sizeof *(v)->data, (extra))

/* Append; false when out of memory (the vector is then unchanged). */
#define vec_push(a, v, ...)                                                                        \
    (vec_reserve((a), (v), 1) ? ((v)->data[(v)->count++] = (__VA_ARGS__), true) : false)

static inline bool vec_grow_(arena *a, void **data, uint32_t count, uint32_t *capacity, size_t size,
                             size_t extra)
{
    size_t need = (size_t)count + extra;
    if (need <= *capacity)
        return true;
    if (need > UINT32_MAX / 2)
        return false;
    size_t larger = *capacity ? (size_t)*capacity * 2 : extra > 1 ? extra : 8;
    if (larger < need)
        larger = need;
    void *memory = arena_array(a, larger, size);
    if (!memory)
        return false;
    if (count)
        memcpy(memory, *data, count * size);
    *data = memory;
    *capacity = (uint32_t)larger;
    return true;
}

#endif
