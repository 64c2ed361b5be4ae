/* SPDX-License-Identifier: Apache-2.0
 * The tensor map: which live tasks touch which bytes of which storage. Orchestrator only.
 *
 * Records hang in hash buckets by (storage, offset >> granule), writers and readers apart, because
 * a reader never needs to look at other readers. The granule of a storage follows the smallest
 * region seen in it; regions of many granules hang on a list of the storage that every query scans.
 * A record is dead once its task has completed, and goes when next touched or swept. */
#ifndef TASK_MAP_H
#define TASK_MAP_H

#include <stdalign.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/status.h"
#include "tacit/task.h"
#include "task/order.h"

enum { TASK_BOX_RANK = 4 };

/* Bytes [low, high) of a storage; if `rank` > 0 only the cells of a lattice box inside: the byte
 * offset of a cell is written in mixed radix by the strides, digit d in [first[d], last[d]]. */
typedef struct task_box {
    uint64_t stride[TASK_BOX_RANK]; /* descending, each divides the one before */
    uint32_t first[TASK_BOX_RANK], last[TASK_BOX_RANK];
    uint32_t rank;
    uint32_t rest, element; /* used bytes [rest, rest+element) of the innermost cell */
} task_box;

typedef struct task_region {
    const void *base; /* identity of the storage; NULL: no region */
    uint64_t low, high;
    task_box box;
    bool reads, writes, fresh; /* fresh: nobody else can know this memory */
    bool no_war, dense;        /* dense: every byte of [low, high) is touched */
    bool tile;                 /* all records it can meet, but the wide ones, hang in one bucket */
    bool over;                 /* and the newest writer there is over or covered */
    uint8_t granule;           /* what the query found, so that insertion need not look again */
    uint32_t storage, bucket;  /* storage 0: nothing known */
} task_region;

#define TASK_SEALED 0xffffffffu     /* successor list of a completed task */
#define TASK_FAILED_BIT 0x80000000u /* in the reference half of a slot's word */
#define TASK_STATUS_OFFSET 43       /* of a slot's status byte from its word */
#define TASK_DEP_DATA 0x80000000u   /* beside a slot number: an edge that carries data */

typedef enum task_overlap { TASK_APART, TASK_PARTIAL, TASK_COVERED } task_overlap;

/* Fill low, high, dense and box from a view. False: the view leaves [0, bytes) or overflows. */
bool task_region_view(task_region *r, const tacit_task_view *view, uint64_t bytes);
/* How `query` meets `record`: COVERED when the query touches every byte of the record. */
task_overlap task_region_meet(const task_region *query, uint64_t low, uint64_t high,
                              const task_box *box);

typedef struct task_record {
    uint64_t low, high;
    uint32_t task; /* low half of the id: enough while sweeps keep garbage young */
    uint32_t next;
    uint32_t storage;
    uint32_t flags; /* TASK_RECORD_*, and the box's number (0: the whole interval) */
} task_record;
#define TASK_RECORD_DEAD 0x80000000u
#define TASK_RECORD_WRITER 0x40000000u
#define TASK_RECORD_WIDE 0x20000000u
#define TASK_RECORD_COVERED 0x10000000u /* by the submit under way */
#define TASK_RECORD_NEWEST 0x08000000u  /* lies in its bucket, not in the pool */
#define TASK_RECORD_BOX 0x07ffffffu

/* A tile's usual two records lie in the bucket itself: one cache line answers most queries, and
 * neighbouring tiles are neighbouring lines. More of them hang behind in the pool. */
typedef struct task_bucket {
    alignas(64) task_record newest[2]; /* writer, reader; storage 0: none */
} task_bucket;
_Static_assert(sizeof(task_bucket) == 64, "one cache line");

typedef struct task_storage {
    const void *base;
    uint32_t next; /* in its hash chain, or of the free list */
    uint32_t wide_writers, wide_readers;
    uint32_t records;      /* alive or not yet swept */
    uint64_t high;         /* one past the last byte ever recorded */
    uint8_t granule, span; /* log2 bytes; most granules a bucketed record touches */
} task_storage;

/* The producers one submit has to wait for, each once. */
typedef struct task_fanin {
    struct task_seen {
        uint32_t stamp, position;
    } * seen;            /* per slot (recording: per node) */
    uint32_t *producers; /* slot | TASK_DEP_DATA */
    uint32_t count, stamp;
    uint32_t mask;
    uint8_t inherited;             /* status of a failed producer that has completed already */
    uint64_t tail;                 /* tasks below have retired */
    const _Atomic uint64_t *words; /* of the slots, 64 bytes apart; NULL: nothing ever completes */
    const struct task_failures *failures;
} task_fanin;

/* Tasks that failed and retired since the last wait_all. */
typedef struct task_failures {
    struct {
        uint64_t id;
        uint8_t status;
    } kept[64];
    uint32_t count;
    uint64_t lost; /* one past the newest that did not fit; anything below may have failed */
} task_failures;

uint8_t task_failures_find(const task_failures *f, uint64_t id); /* 0: none known */

void task_fanin_start(task_fanin *f);
/* `data`: the task reads what the producer wrote, and inherits its failure. */
void task_fanin_add(task_fanin *f, uint64_t id, bool data);

/* Completed tasks need no edge; one that failed hands its status on instead. */
static inline bool task_fanin_gone(const task_fanin *f, uint64_t id, uint8_t *status)
{
    *status = 0;
    if ((int64_t)(id - f->tail) < 0) {
        if (__builtin_expect(f->failures->count, 0))
            *status = task_failures_find(f->failures, id);
        return f->words != NULL;
    }
    if (!f->words)
        return false;
    /* SEEN: a sealed word is the only thing that orders the producer's writes before us. */
    const _Atomic uint64_t *word = f->words + (((uint32_t)id & f->mask) << 3);
    uint64_t w = LOAD(word, MO_SEEN);
    if ((uint32_t)(w >> 32) != TASK_SEALED)
        return false;
    if (__builtin_expect((uint32_t)w & TASK_FAILED_BIT, 0))
        *status = ((const uint8_t *)word)[TASK_STATUS_OFFSET];
    return true;
}

static inline void task_fanin_link(task_fanin *f, uint32_t slot, bool data)
{
    struct task_seen *s = &f->seen[slot];
    if (s->stamp == f->stamp) {
        if (data)
            f->producers[s->position] |= TASK_DEP_DATA;
        return;
    }
    *s = (struct task_seen){f->stamp, f->count};
    f->producers[f->count++] = slot | (data ? TASK_DEP_DATA : 0);
}

typedef struct task_map {
    const tacit_allocator *allocator;
    task_fanin *fanin;
    task_record *records;
    task_box *boxes;
    task_storage *storages;
    task_bucket *buckets;
    uint32_t *bases;       /* storage hash */
    task_record **covered; /* what this submit replaces, dropped at commit */
    uint32_t capacity, box_capacity, bucket_mask, base_mask;
    uint32_t free_record, free_box, free_storage;
    uint32_t used, high_used, covered_count;
    uint32_t sweep; /* clock hand */
    uint32_t last;  /* storage of the previous look-up */
} task_map;

/* `records` is the pool's size. */
tacit_status task_map_init(task_map *m, const tacit_allocator *allocator, task_fanin *fanin,
                           uint32_t records, tacit_error *err);
tacit_status task_map_grow(task_map *m, tacit_error *err);
void task_map_free(task_map *m);
/* Report every task that one with these regions has to wait for, and remember what it will cover.
 */
void task_map_find(task_map *m, task_region *regions, uint32_t count);
/* After that: insert the regions and drop what they cover, or forget about it. Enough records must
 * be free. */
void task_map_commit(task_map *m, const task_region *regions, uint32_t count, uint32_t task);
void task_map_forget_covered(task_map *m);
void task_map_insert(task_map *m, const task_region *r, uint32_t task);
/* Free dead records in `buckets` more buckets. */
void task_map_sweep(task_map *m, uint32_t buckets);
void task_map_sweep_all(task_map *m);

#endif
