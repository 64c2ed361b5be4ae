/* SPDX-License-Identifier: Apache-2.0
 * What the planner's parts share: the problem as flat tables, one order's lifetimes, packing. */
#ifndef PLAN_WORK_H
#define PLAN_WORK_H

#include "plan/plan.h"

/* A group is a value that owns memory together with its parts and views; numbered 0 … n_groups-1.
 */
typedef struct plan_group {
    const ir_value *value;
    uint64_t bytes;  /* rounded up to the alignment */
    uint64_t exact;  /* not rounded */
    uint32_t maker;  /* position of the node that writes it, or is the last that joins it */
    uint32_t output; /* graph output that it (or a view that covers it) is; else PLAN_NO_SLOT */
    bool stays;      /* read after the last node */
    bool updates;    /* lies where a graph input may lie that is read before */
    uint32_t reads;  /* entries of `readers` */
    uint32_t first;  /* first entry in plan_work.readers */
} plan_group;

typedef struct plan_work {
    const plan_problem *p;
    uint32_t *position; /* by node id: position in p->nodes, or PLAN_NO_SLOT */
    uint32_t *group_of; /* by value id, or PLAN_NO_SLOT */
    plan_group *groups;
    uint32_t n_groups;
    uint32_t *readers; /* positions of nodes that really read a group, each once */
    bool *is_alias;    /* by position: moves no bytes */
    uint64_t *scratch; /* by position, rounded up */
    /* Dependences between positions. */
    uint32_t *next_start, *next; /* followers of i: next[next_start[i] … next_start[i+1]) */
    uint32_t *needs;             /* number of predecessors */
    /* Readers of an input that must come before the writer i of its update:
     * early[early_first[i] … early_first[i + 1]). */
    uint32_t *early, *early_first;
    uint64_t *before; /* parallel: bit j of row i: j is an ancestor of i */
    uint32_t row_words;
} plan_work;

tacit_status plan_work_open(plan_work *w, const plan_problem *p, arena *memory, tacit_error *err);
static inline bool plan_is_before(const plan_work *w, uint32_t early, uint32_t late)
{
    return w->before[(size_t)late * w->row_words + early / 64] >> (early % 64) & 1;
}

/* Orders: fill `order` with the n_nodes positions. */
typedef tacit_status plan_order_fn(const plan_work *w, arena *scratch, uint32_t *order,
                                   tacit_error *err);
typedef struct plan_order_def {
    const char *name;
    plan_order_fn *run;
} plan_order_def;
extern const plan_order_def plan_orders[];
extern const uint32_t plan_order_count;

/* One order's slots, before packing. */
typedef struct plan_life {
    plan_slot *slots;
    uint32_t n_slots;
    uint32_t *slot_of_group;
    uint32_t *scratch_at; /* by step */
    bool *has_parts;      /* by slot: several nodes make what is in it */
    uint64_t live_bytes;  /* largest live set in the arena */
    /* Parallel: positions that touch slot i are touch[touch_first[i] … touch_first[i + 1]). */
    uint32_t *touch, *touch_first;
} plan_life;
tacit_status plan_live(const plan_work *w, const uint32_t *order, bool inplace, arena *memory,
                       plan_life *out, tacit_error *err);

/* Packing: give every item an offset. */
typedef struct plan_item {
    uint64_t bytes, offset;
    uint32_t birth, death, slot;
} plan_item;
typedef struct plan_pack {
    plan_item *items;
    uint32_t n;
    const uint64_t *conflicts; /* parallel: bit matrix over items; NULL: lifetimes decide */
    uint32_t row_words;
    /* Items in conflict with item i: near[near_first[i] … near_first[i + 1]). */
    uint32_t *near, *near_first;
    bool crowded;         /* some item has many of them */
    uint64_t bound, best; /* nothing below `bound` is possible; `best` is what others reached */
    uint64_t *budget;     /* item visits the search may still make */
} plan_pack;
/* Fills the lists of conflicts. */
tacit_status plan_pack_open(plan_pack *k, arena *scratch, tacit_error *err);
/* Returns the arena size. `scratch` is emptied by the caller. 0 with *err set: out of memory. */
typedef tacit_status plan_pack_fn(plan_pack *k, arena *scratch, uint64_t *bytes, tacit_error *err);
typedef struct plan_pack_def {
    const char *name;
    plan_pack_fn *run;
} plan_pack_def;
extern const plan_pack_def plan_packings[];
extern const uint32_t plan_pack_count;
/* A search over placements: small problems exactly, larger ones within a budget of attempts. */
tacit_status plan_pack_search(plan_pack *k, arena *scratch, uint64_t *bytes, tacit_error *err);

static inline bool plan_conflict(const plan_pack *k, uint32_t a, uint32_t b)
{
    if (k->conflicts)
        return k->conflicts[(size_t)a * k->row_words + b / 64] >> (b % 64) & 1;
    return k->items[a].birth <= k->items[b].death && k->items[b].birth <= k->items[a].death;
}

/* An item that has its place, with what is asked of it. */
typedef struct plan_placed {
    uint64_t offset, end;
    uint32_t birth, death, item;
} plan_placed;

/* Places items in the sequence given, each at the lowest gap that fits (`tightest`: the smallest
 * such gap). `placed` and `is_placed` are room for n + 1. */
uint64_t plan_place_in_sequence(plan_pack *k, const uint32_t *sequence, bool tightest,
                                plan_placed *placed, bool *is_placed);

#endif
