/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"

#include <string.h>

enum { LEAST = 16 }; /* slots of a map that has any */

uint64_t hash_bytes(const void *data, size_t size, uint64_t seed)
{
    const unsigned char *p = data;
    uint64_t h = seed ^ (size * 0x9e3779b97f4a7c15u), second = 0;
    for (; size >= 16; size -= 16, p += 16) { /* two, neither of which waits for the other */
        uint64_t v[2];
        memcpy(v, p, sizeof v);
        h = hash_mix(h, v[0]);
        second = hash_mix(second, v[1]);
    }
    uint64_t tail[2] = {0};
    if (size)
        memcpy(tail, p, size);
    return hash_mix(hash_mix(h, tail[0]), second ^ tail[1]);
}

void map_init(map *m, arena *memory)
{
    *m = (map){.memory = memory};
}

/* The slot that holds `key`, or the empty one where it belongs. */
static map_slot *find_slot(const map *m, const char *key, uint64_t hash)
{
    for (uint64_t i = hash;; i++) {
        map_slot *slot = &m->slots[i & (m->capacity - 1)];
        if (!slot->key || (slot->hash == hash && strcmp(slot->key, key) == 0))
            return slot;
    }
}

static bool grow_to(map *m, uint32_t capacity)
{
    map larger = {.memory = m->memory, .count = m->count, .capacity = capacity};
    larger.slots = ARENA_ARRAY(m->memory, larger.capacity, map_slot);
    if (!larger.slots)
        return false;
    for (uint32_t i = 0; i < m->capacity; i++)
        if (m->slots[i].key)
            *find_slot(&larger, m->slots[i].key, m->slots[i].hash) = m->slots[i];
    *m = larger;
    return true;
}

bool map_reserve(map *m, uint32_t count)
{
    uint32_t capacity = m->capacity ? m->capacity : LEAST;
    while (capacity / 2 < count && capacity <= UINT32_MAX / 2)
        capacity *= 2;
    return capacity == m->capacity || grow_to(m, capacity);
}

bool map_put(map *m, const char *key, void *value)
{
    uint64_t hash = hash_bytes(key, strlen(key), 0);
    map_slot *slot = m->capacity ? find_slot(m, key, hash) : NULL;
    /* Overwriting needs no memory, so it cannot fail. */
    if (!slot || (!slot->key && m->count >= m->capacity / 2)) {
        if (!grow_to(m, m->capacity ? m->capacity * 2 : LEAST))
            return false;
        slot = find_slot(m, key, hash);
    }
    m->count += !slot->key;
    *slot = (map_slot){key, hash, value};
    return true;
}

void *map_get(const map *m, const char *key)
{
    if (!m->capacity)
        return NULL;
    const map_slot *slot = find_slot(m, key, hash_bytes(key, strlen(key), 0));
    return slot->key ? slot->value : NULL;
}
