/* SPDX-License-Identifier: Apache-2.0
 * Packing: offsets for items so that no two in conflict overlap. All of them place items one after
 * another into gaps; they differ in the sequence and in which gap. */
#include <stdlib.h>
#include <string.h>

#include "plan/work.h"

/* --- who is in conflict with whom -------------------------------------------------------------
 */

enum { FEW = 64 }; /* neighbours that are sorted for themselves */

typedef struct pairs {
    const plan_pack *k;
    uint32_t *count; /* by item */
    bool listing;    /* else counting */
} pairs;

static void note_pair(const pairs *p, uint32_t a, uint32_t b)
{
    if (p->listing) {
        p->k->near[p->k->near_first[a] + p->count[a]] = b;
        p->k->near[p->k->near_first[b] + p->count[b]] = a;
    }
    p->count[a]++;
    p->count[b]++;
}

/* `sorted`: items by birth. Of those born later only some live at the same time. */
static void note_pairs(const pairs *p, const uint32_t *sorted)
{
    const plan_pack *k = p->k;
    for (uint32_t x = 0; x < k->n; x++)
        for (uint32_t y = x + 1; y < k->n; y++) {
            if (!k->conflicts && k->items[sorted[y]].birth > k->items[sorted[x]].death)
                break;
            if (!k->conflicts || plan_conflict(k, sorted[x], sorted[y]))
                note_pair(p, sorted[x], sorted[y]);
        }
}

tacit_status plan_pack_open(plan_pack *k, arena *scratch, tacit_error *err)
{
    uint32_t steps = 0, total = 0;
    for (uint32_t i = 0; i < k->n; i++)
        steps = k->items[i].birth >= steps ? k->items[i].birth + 1 : steps;
    uint32_t *at = ARENA_ARRAY(scratch, steps + 1u, uint32_t);
    uint32_t *sorted = ARENA_ARRAY(scratch, k->n + 1u, uint32_t);
    pairs p = {.k = k, .count = ARENA_ARRAY(scratch, k->n + 1u, uint32_t)};
    k->near_first = ARENA_ARRAY(scratch, k->n + 1u, uint32_t);
    if (!at || !sorted || !p.count || !k->near_first)
        return error_memory(err, "packing the arena");
    for (uint32_t i = 0; i < k->n; i++)
        at[k->items[i].birth + 1]++;
    for (uint32_t s = 1; s <= steps; s++)
        at[s] += at[s - 1];
    for (uint32_t i = 0; i < k->n; i++)
        sorted[at[k->items[i].birth]++] = i;
    note_pairs(&p, sorted);
    for (uint32_t i = 0; i < k->n; i++) {
        k->crowded |= p.count[i] > FEW;
        k->near_first[i] = total;
        total += p.count[i];
        p.count[i] = 0;
    }
    k->near_first[k->n] = total;
    k->near = ARENA_ARRAY(scratch, total + 1u, uint32_t);
    if (!k->near)
        return error_memory(err, "packing the arena");
    p.listing = true;
    note_pairs(&p, sorted);
    return TACIT_OK;
}

/* --- gaps -------------------------------------------------------------------------------------
 */

/* The neighbours of item `i` that have their place, sorted by offset: copies of a few, or all that
 * are placed. */
static uint32_t find_placed(const plan_pack *k, uint32_t i, const plan_placed *placed,
                            uint32_t count, const bool *is_placed, plan_placed few[FEW],
                            const plan_placed **out)
{
    uint32_t first = k->near_first[i], last = k->near_first[i + 1], n = 0;
    *out = placed;
    if (last - first > FEW)
        return count;
    for (uint32_t x = first; x < last; x++) {
        const plan_item *t = &k->items[k->near[x]];
        if (!is_placed[k->near[x]])
            continue;
        uint32_t at = n++;
        for (; at && few[at - 1].offset > t->offset; at--)
            few[at] = few[at - 1];
        few[at] = (plan_placed){t->offset, t->offset + t->bytes, t->birth, t->death, k->near[x]};
    }
    *out = few;
    return n;
}

/* The offset for item `i` beside the items in placed[0 … count), which are sorted by offset. */
static uint64_t find_gap(const plan_pack *k, uint32_t i, bool tightest, const plan_placed *placed,
                         uint32_t count, const bool *is_placed)
{
    uint64_t end = 0, best = UINT64_MAX, best_size = UINT64_MAX, need = k->items[i].bytes;
    uint32_t birth = k->items[i].birth, death = k->items[i].death;
    plan_placed few[FEW];
    count = find_placed(k, i, placed, count, is_placed, few, &placed);
    for (uint32_t x = 0; x < count; x++) {
        const plan_placed *other = &placed[x];
        if (k->conflicts ? !plan_conflict(k, i, other->item)
                         : birth > other->death || other->birth > death)
            continue;
        if (other->offset > end && other->offset - end >= need) {
            uint64_t size = other->offset - end;
            if (!tightest)
                return end;
            if (size < best_size) {
                best = end;
                best_size = size;
            }
        }
        end = other->end > end ? other->end : end;
    }
    return best != UINT64_MAX ? best : end;
}

uint64_t plan_place_in_sequence(plan_pack *k, const uint32_t *sequence, bool tightest,
                                plan_placed *placed, bool *is_placed)
{
    uint64_t total = 0;
    memset(is_placed, 0, k->n * sizeof *is_placed);
    for (uint32_t count = 0; count < k->n; count++) {
        plan_item *item = &k->items[sequence[count]];
        item->offset = find_gap(k, sequence[count], tightest, placed, count, is_placed);
        is_placed[sequence[count]] = true;
        uint64_t end = item->offset + item->bytes;
        total = end > total ? end : total;
        if (!k->crowded)
            continue; /* nobody looks at all of them */
        uint32_t at = count;
        while (at && placed[at - 1].offset > item->offset)
            at--;
        memmove(placed + at + 1, placed + at, (count - at) * sizeof *placed);
        placed[at] = (plan_placed){item->offset, end, item->birth, item->death, sequence[count]};
    }
    return total;
}

/* qsort has no context, so keys travel with the indices. */
typedef struct keyed {
    uint64_t major, minor; /* larger major first, then smaller minor */
    uint32_t index;
} keyed;

static int by_key(const void *a, const void *b)
{
    const keyed *x = a, *y = b;
    if (x->major != y->major)
        return x->major > y->major ? -1 : 1;
    if (x->minor != y->minor)
        return x->minor < y->minor ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

typedef enum sequence_kind { BY_BIRTH, BY_SIZE, BY_AREA } sequence_kind;

static tacit_status pack_sorted(plan_pack *k, sequence_kind kind, bool tightest, arena *scratch,
                                uint64_t *bytes, tacit_error *err)
{
    keyed *keys = ARENA_ARRAY(scratch, k->n + 1u, keyed);
    uint32_t *sequence = ARENA_ARRAY(scratch, k->n + 1u, uint32_t);
    plan_placed *placed = ARENA_ARRAY(scratch, k->n + 1u, plan_placed);
    bool *is_placed = ARENA_ARRAY(scratch, k->n + 1u, bool);
    if (!keys || !sequence || !placed || !is_placed)
        return error_memory(err, "packing the arena");
    for (uint32_t i = 0; i < k->n; i++) {
        const plan_item *t = &k->items[i];
        uint64_t span = (uint64_t)t->death - t->birth + 1;
        keys[i] = (keyed){.minor = t->birth, .index = i};
        if (kind == BY_SIZE)
            keys[i].major = t->bytes;
        else if (kind == BY_AREA)
            keys[i].major = t->bytes / PLAN_ALIGN * span;
    }
    qsort(keys, k->n, sizeof *keys, by_key);
    for (uint32_t i = 0; i < k->n; i++)
        sequence[i] = keys[i].index;
    *bytes = plan_place_in_sequence(k, sequence, tightest, placed, is_placed);
    return TACIT_OK;
}

static tacit_status pack_first_fit(plan_pack *k, arena *scratch, uint64_t *bytes, tacit_error *err)
{
    return pack_sorted(k, BY_BIRTH, false, scratch, bytes, err);
}

static tacit_status pack_best_fit(plan_pack *k, arena *scratch, uint64_t *bytes, tacit_error *err)
{
    return pack_sorted(k, BY_BIRTH, true, scratch, bytes, err);
}

static tacit_status pack_by_size(plan_pack *k, arena *scratch, uint64_t *bytes, tacit_error *err)
{
    return pack_sorted(k, BY_SIZE, true, scratch, bytes, err);
}

static tacit_status pack_by_area(plan_pack *k, arena *scratch, uint64_t *bytes, tacit_error *err)
{
    return pack_sorted(k, BY_AREA, true, scratch, bytes, err);
}

const plan_pack_def plan_packings[] = {{"first-fit", pack_first_fit},
                                       {"best-fit", pack_best_fit},
                                       {"greedy-by-size", pack_by_size},
                                       {"greedy-by-area", pack_by_area}};
const uint32_t plan_pack_count = sizeof plan_packings / sizeof *plan_packings;
