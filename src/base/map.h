/* SPDX-License-Identifier: Apache-2.0
 * String-keyed hash map, insert and look-up only; storage in an arena, keys not copied. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/arena.h"

typedef struct map_slot {
    const char *key; /* NULL: empty */
    uint64_t hash;
    void *value;
} map_slot;

typedef struct map {
    arena *memory;
    map_slot *slots;
    uint32_t count, capacity; /* capacity is zero or a power of two */
} map;

void map_init(map *m, arena *memory);
/* Room for `count` keys in all; false when out of memory. */
bool map_reserve(map *m, uint32_t count);
/* Insert or overwrite; false when out of memory. `key` must outlive the map. */
bool map_put(map *m, const char *key, void *value);
/* The value, or NULL. */
void *map_get(const map *m, const char *key);

uint64_t hash_bytes(const void *data, size_t size, uint64_t seed); /* fast, not cryptographic */
static inline uint64_t hash_mix(uint64_t h, uint64_t v)
{
    h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdu;
    return h ^ (h >> 32);
}

#endif
