/* SPDX-License-Identifier: Apache-2.0
 * The tensor map: which live tasks touch which bytes of which storage. Orchestrator only.
 *
 * Records hang in hash buckets by (storage, offset >> granule), writers and readers apart, because
 * a reader never needs to look at other readers. The granule of a storage follows the smallest
 * region seen in it; regions of many granules hang on a list of the storage that every query scans.
 * A record is dead once its task has completed, and goes when next touched or swept. */
#ifndef TASK_MAP_H
#define TASK_MAP_H

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
    uint8_t granule;           /* what the query found, so that insertion need not look again */
    uint32_t storage, bucket;  /* storage 0: several buckets, or nothing known */
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
#define TASK_RECORD_BOX 0x0fffffffu

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

typedef struct task_map {
    const tacit_allocator *allocator;
    task_fanin *fanin;
    task_record *records;
    task_box *boxes;
    task_storage *storages;
    uint32_t *heads;   /* per bucket: writers, readers */
    uint32_t *bases;   /* storage hash */
    uint32_t *covered; /* records this submit replaces, dropped at commit */
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
/* Before the queries of a task, for each of its regions. */
void task_map_prepare(task_map *m, task_region *r);
/* Report every task `r` has to wait for, and remember what it will cover. */
void task_map_query(task_map *m, const task_region *r);
/* After all queries of a task: drop the covered, then insert. Enough records must be free. */
void task_map_drop_covered(task_map *m);
void task_map_forget_covered(task_map *m);
void task_map_insert(task_map *m, const task_region *r, uint32_t task);
/* Free dead records in `buckets` more buckets. */
void task_map_sweep(task_map *m, uint32_t buckets);
void task_map_sweep_all(task_map *m);

#endif
