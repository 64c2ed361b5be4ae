/* SPDX-License-Identifier: Apache-2.0
 * Searching for a better packing. Some sequence of lowest-gap placements yields an optimal packing,
 * so small problems try the sequences by branch and bound; larger ones move the items that make the
 * peak to the front of the sequence, a bounded number of times. */
#include <string.h>

#include "plan/work.h"

enum { EXACT_ITEMS = 12, CLIMB_ATTEMPTS = 400 };

typedef struct search {
    plan_pack *k;
    uint64_t best;
    uint64_t *best_offset;
    uint32_t placed[EXACT_ITEMS];
} search;

static uint64_t lowest_gap(const plan_pack *k, uint32_t i, const uint32_t *placed, uint32_t count)
{
    uint64_t at = 0;
    /* Restart after each bump: at most count² steps, and count is small here. */
    for (uint32_t x = 0; x < count;) {
        const plan_item *o = &k->items[placed[x]];
        bool hit = plan_conflict(k, i, placed[x]) && at < o->offset + o->bytes &&
                   o->offset < at + k->items[i].bytes;
        x = hit ? 0 : x + 1;
        at = hit ? o->offset + o->bytes : at;
    }
    return at;
}

static void branch(search *s, uint32_t count, uint32_t used, uint64_t top)
{
    plan_pack *k = s->k;
    if (top >= s->best || s->best <= k->bound || *k->budget < k->n)
        return;
    *k->budget -= k->n;
    if (count == k->n) {
        s->best = top;
        for (uint32_t i = 0; i < k->n; i++)
            s->best_offset[i] = k->items[i].offset;
        return;
    }
    for (uint32_t i = 0; i < k->n; i++) {
        if (used >> i & 1)
            continue;
        uint64_t offset = lowest_gap(k, i, s->placed, count);
        uint64_t end = offset + k->items[i].bytes;
        k->items[i].offset = offset;
        s->placed[count] = i;
        branch(s, count + 1, used | 1u << i, end > top ? end : top);
    }
}

/* Puts the item that reaches highest first, everything else after it in the old sequence. */
static void peak_to_front(const plan_pack *k, uint32_t *sequence, uint64_t total)
{
    for (uint32_t i = 0; i < k->n; i++) {
        uint32_t item = sequence[i];
        if (k->items[item].offset + k->items[item].bytes != total)
            continue;
        memmove(sequence + 1, sequence, i * sizeof *sequence);
        sequence[0] = item;
        return;
    }
}

static void sort_by_bytes(const plan_pack *k, uint32_t *sequence)
{
    for (uint32_t i = 0; i < k->n; i++) {
        uint32_t at = i;
        for (; at && k->items[sequence[at - 1]].bytes < k->items[i].bytes; at--)
            sequence[at] = sequence[at - 1];
        sequence[at] = i;
    }
}

static tacit_status climb(search *s, arena *scratch, tacit_error *err)
{
    plan_pack *k = s->k;
    uint32_t *sequence = ARENA_ARRAY(scratch, k->n + 1u, uint32_t);
    plan_placed *placed = ARENA_ARRAY(scratch, k->n + 1u, plan_placed);
    bool *is_placed = ARENA_ARRAY(scratch, k->n + 1u, bool);
    if (!sequence || !placed || !is_placed)
        return error_memory(err, "packing the arena");
    sort_by_bytes(k, sequence);
    uint64_t cost = (uint64_t)k->n * k->n;
    for (int i = 0; i < CLIMB_ATTEMPTS && s->best > k->bound && *k->budget >= cost; i++) {
        *k->budget -= cost;
        uint64_t total = plan_place_in_sequence(k, sequence, false, placed, is_placed);
        if (total < s->best) {
            s->best = total;
            for (uint32_t x = 0; x < k->n; x++)
                s->best_offset[x] = k->items[x].offset;
        }
        peak_to_front(k, sequence, total);
    }
    return TACIT_OK;
}

tacit_status plan_pack_search(plan_pack *k, arena *scratch, uint64_t *bytes, tacit_error *err)
{
    search s = {.k = k, .best = k->best};
    s.best_offset = ARENA_ARRAY(scratch, k->n + 1u, uint64_t);
    if (!s.best_offset)
        return error_memory(err, "packing the arena");
    if (k->n <= EXACT_ITEMS)
        branch(&s, 0, 0, 0);
    else
        TRY(climb(&s, scratch, err));
    *bytes = s.best;
    if (s.best < k->best)
        for (uint32_t i = 0; i < k->n; i++)
            k->items[i].offset = s.best_offset[i];
    return TACIT_OK;
}
