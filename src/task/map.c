/* SPDX-License-Identifier: Apache-2.0 */
#include "task/map.h"

#include <string.h>

enum {
    MIN_GRANULE = 6,
    MAX_SPAN = 8,      /* granules a bucketed record may touch */
    SCAN_LIMIT = 1024, /* granules a query walks before it prefers to scan all records */
};

/* ---- producers ---------------------------------------------------------------------------- */

uint8_t task_failures_find(const task_failures *f, uint64_t id)
{
    for (uint32_t i = 0; i < f->count; i++)
        if (f->kept[i].id == id)
            return f->kept[i].status;
    /* Too many failures to remember each: better a task too many refused than one run on rubbish.
     */
    return id < f->lost ? f->kept[0].status : 0;
}

void task_fanin_start(task_fanin *f)
{
    f->count = 0;
    f->inherited = 0;
    if (++f->stamp == 0) { /* wrapped: old stamps could look new */
        memset(f->seen, 0, ((size_t)f->mask + 1) * sizeof *f->seen);
        f->stamp = 1;
    }
}

void task_fanin_add(task_fanin *f, uint64_t id, bool data)
{
    uint8_t status;
    if (!task_fanin_gone(f, id, &status))
        task_fanin_link(f, (uint32_t)id & f->mask, data);
    else if (status && data)
        f->inherited = status & 0x7f;
}

/* ---- pools -------------------------------------------------------------------------------- */

static inline uint64_t record_id(const task_map *m, const task_record *r)
{
    uint64_t tail = m->fanin->tail;
    return tail + (uint64_t)(int64_t)(int32_t)(r->task - (uint32_t)tail);
}

/* Its task has completed. Writers that failed stay: later readers inherit the failure. */
static inline bool record_gone(const task_map *m, const task_record *r, bool writer,
                               uint8_t *status)
{
    return task_fanin_gone(m->fanin, record_id(m, r), status) && !(*status && writer);
}

/* Neighbouring granules are neighbouring lines, in runs of 64; longer strides are spread. */
static inline uint32_t bucket_of(const task_map *m, uint32_t storage, uint64_t granule)
{
    uint32_t low = (uint32_t)granule, high = (uint32_t)(granule >> 6);
    return (low + high * 0x9e3779b1u + storage * 0x85ebca6bu) & m->bucket_mask;
}

static inline uint32_t base_hash(const task_map *m, const void *base)
{
    return (uint32_t)(((uint64_t)(uintptr_t)base * 0x9e3779b97f4a7c15u) >> 32) & m->base_mask;
}

static inline uint32_t storage_find(task_map *m, const void *base)
{
    if (m->last && m->storages[m->last].base == base)
        return m->last;
    uint32_t i = m->bases[base_hash(m, base)];
    while (i && m->storages[i].base != base)
        i = m->storages[i].next;
    if (i)
        m->last = i;
    return i;
}

static uint32_t storage_make(task_map *m, const void *base)
{
    uint32_t i = m->free_storage;
    task_storage *s = &m->storages[i];
    m->free_storage = s->next;
    uint32_t *head = &m->bases[base_hash(m, base)];
    *s = (task_storage){.base = base, .next = *head, .granule = 63, .span = 1};
    *head = i;
    m->last = i;
    return i;
}

static void storage_drop(task_map *m, uint32_t i)
{
    uint32_t *link = &m->bases[base_hash(m, m->storages[i].base)];
    while (*link != i)
        link = &m->storages[*link].next;
    *link = m->storages[i].next;
    m->storages[i] = (task_storage){.next = m->free_storage};
    m->free_storage = i;
    if (m->last == i)
        m->last = 0;
}

static inline void storage_less(task_map *m, uint32_t i)
{
    if (--m->storages[i].records == 0)
        storage_drop(m, i);
}

static inline void box_free(task_map *m, const task_record *r)
{
    uint32_t box = r->flags & TASK_RECORD_BOX;
    if (__builtin_expect(box, 0)) {
        m->boxes[box].first[0] = m->free_box;
        m->free_box = box;
    }
}

/* Unlink the pool record `*link` points to and put it and its box back. */
static void record_free(task_map *m, uint32_t *link)
{
    uint32_t i = *link;
    task_record *r = &m->records[i];
    *link = r->next;
    box_free(m, r);
    r->next = m->free_record;
    r->flags = TASK_RECORD_DEAD;
    m->free_record = i;
    m->used--;
    storage_less(m, r->storage);
}

/* The same for a record in its bucket. */
static void newest_free(task_map *m, task_record *r)
{
    uint32_t storage = r->storage;
    box_free(m, r);
    r->storage = 0;
    r->flags = 0;
    m->used--;
    storage_less(m, storage);
}

/* ---- queries ------------------------------------------------------------------------------ */

/* A live record (or one whose writer failed, with its status) of the query's storage. */
static inline void record_meet(task_map *m, task_record *r, const task_region *q, bool writer,
                               uint8_t status)
{
    if (q->low >= r->high || r->low >= q->high)
        return;
    bool covered = q->low <= r->low && r->high <= q->high;
    if (__builtin_expect(!q->dense, 0)) {
        uint32_t box = r->flags & TASK_RECORD_BOX;
        task_overlap o = task_region_meet(q, r->low, r->high, box ? &m->boxes[box] : NULL);
        if (o == TASK_APART)
            return;
        covered = o == TASK_COVERED;
    }
    if (__builtin_expect(!status, 1))
        task_fanin_link(m->fanin, r->task & m->fanin->mask, writer && q->reads);
    else if (q->reads)
        m->fanin->inherited = status & 0x7f;
    /* It may be covered by another parameter of the same task already. */
    if (covered && q->writes && !(r->flags & TASK_RECORD_COVERED)) {
        r->flags |= TASK_RECORD_COVERED;
        m->covered[m->covered_count++] = r;
    }
}

/* Walk a chain of the pool: free what is dead, report conflicts, note what the query covers. */
static void chain_scan(task_map *m, uint32_t *link, uint32_t storage, const task_region *q,
                       bool writers)
{
    while (*link) {
        task_record *r = &m->records[*link];
        uint8_t status = 0;
        if ((r->flags & TASK_RECORD_DEAD) || record_gone(m, r, writers, &status)) {
            record_free(m, link);
            continue;
        }
        link = &r->next;
        if (r->storage == storage)
            record_meet(m, r, q, writers, status);
    }
}

/* What lies in the bucket itself is not freed here: insertion writes over it. True when it may: the
 * record's task is over, or covered by the query. */
static inline bool newest_scan(task_map *m, task_record *r, uint32_t storage, const task_region *q,
                               bool writers)
{
    uint8_t status;
    if (r->storage != storage)
        return false;
    if (record_gone(m, r, writers, &status))
        return true;
    record_meet(m, r, q, writers, status);
    return r->flags & TASK_RECORD_COVERED;
}

static inline void bucket_scan(task_map *m, uint32_t bucket, uint32_t storage, const task_region *q)
{
    task_bucket *b = &m->buckets[bucket];
    newest_scan(m, &b->newest[0], storage, q, true);
    if (b->newest[0].next)
        chain_scan(m, &b->newest[0].next, storage, q, true);
    if (!q->writes)
        return;
    newest_scan(m, &b->newest[1], storage, q, false);
    if (b->newest[1].next)
        chain_scan(m, &b->newest[1].next, storage, q, false);
}

static void pool_record(task_map *m, task_record *r, uint32_t storage, const task_region *q)
{
    bool writer = r->flags & TASK_RECORD_WRITER;
    uint8_t status;
    if ((r->flags & (TASK_RECORD_DEAD | TASK_RECORD_WIDE)) || r->storage != storage ||
        (!writer && !q->writes) || record_gone(m, r, writer, &status))
        return;
    record_meet(m, r, q, writer, status);
}

/* Every record of the storage, for queries that would walk more buckets than there are records. */
static void pool_scan(task_map *m, uint32_t storage, const task_region *q)
{
    for (uint32_t i = 1; i <= m->capacity; i++)
        pool_record(m, &m->records[i], storage, q);
    for (uint32_t i = 0; i <= m->bucket_mask; i++) {
        pool_record(m, &m->buckets[i].newest[0], storage, q);
        pool_record(m, &m->buckets[i].newest[1], storage, q);
    }
}

static void wide_scan(task_map *m, uint32_t storage, const task_region *q)
{
    task_storage *s = &m->storages[storage];
    if (s->wide_writers)
        chain_scan(m, &s->wide_writers, storage, q, true);
    if (q->writes && s->wide_readers)
        chain_scan(m, &s->wide_readers, storage, q, false);
}

/* Several buckets, or a storage with larger regions than the query. */
static void query_wide(task_map *m, uint32_t storage, const task_region *q)
{
    task_storage *s = &m->storages[storage];
    uint64_t first = q->low >> s->granule, last = (q->high - 1) >> s->granule;
    uint64_t back = s->span - 1u, end = s->high ? (s->high - 1) >> s->granule : 0;
    first = first > back ? first - back : 0;
    last = last < end ? last : end;
    wide_scan(m, storage, q);
    if (first > last)
        return;
    if (last - first > SCAN_LIMIT && last - first > m->capacity / 4) {
        pool_scan(m, storage, q);
        return;
    }
    for (uint64_t g = first; g <= last; g++)
        bucket_scan(m, bucket_of(m, storage, g), storage, q);
}

/* Find the bucket of a tile, the usual case, and bring it closer: done for all parameters of a task
 * before the first query, this overlaps their cache misses. */
static inline void prepare(task_map *m, task_region *q)
{
    q->storage = 0;
    if (!q->base || q->low == q->high || q->fresh)
        return;
    uint32_t storage = storage_find(m, q->base);
    if (!storage)
        return;
    const task_storage *s = &m->storages[storage];
    q->storage = storage;
    q->granule = s->granule;
    uint64_t first = q->low >> s->granule, last = (q->high - 1) >> s->granule;
    q->tile = first == last && s->span == 1;
    if (!q->tile)
        return;
    q->bucket = bucket_of(m, storage, first);
    __builtin_prefetch(&m->buckets[q->bucket], 1);
}

static void query_slowly(task_map *m, const task_region *q)
{
    uint32_t storage = q->storage;
    m->storages[storage].records++; /* keeps the storage while its last record may go */
    if (!q->tile) {
        query_wide(m, storage, q);
    } else {
        bucket_scan(m, q->bucket, storage, q);
        wide_scan(m, storage, q);
    }
    storage_less(m, storage);
}

static inline void query(task_map *m, task_region *q)
{
    const task_storage *s = &m->storages[q->storage];
    q->over = false;
    if (!q->storage || !(q->reads | q->writes) || s->base != q->base)
        return;
    task_bucket *b = &m->buckets[q->tile ? q->bucket : 0];
    if (__builtin_expect(
            !q->tile || (s->wide_writers | s->wide_readers | b->newest[0].next | b->newest[1].next),
            0)) {
        query_slowly(m, q);
        return;
    }
    q->over = newest_scan(m, &b->newest[0], q->storage, q, true);
    if (q->writes)
        newest_scan(m, &b->newest[1], q->storage, q, false);
}

void task_map_find(task_map *m, task_region *regions, uint32_t count)
{
    if (count == 1) {
        prepare(m, regions);
        query(m, regions);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        prepare(m, &regions[i]);
    for (uint32_t i = 0; i < count; i++)
        query(m, &regions[i]);
}

static void drop_covered(task_map *m)
{
    for (uint32_t i = 0; i < m->covered_count; i++) {
        task_record *r = m->covered[i];
        if (!(r->flags & TASK_RECORD_COVERED))
            continue; /* insertion has put its own in its place */
        if (r->flags & TASK_RECORD_NEWEST)
            newest_free(m, r);
        else
            r->flags |= TASK_RECORD_DEAD;
    }
    m->covered_count = 0;
}

void task_map_forget_covered(task_map *m)
{
    for (uint32_t i = 0; i < m->covered_count; i++)
        m->covered[i]->flags &= ~TASK_RECORD_COVERED;
    m->covered_count = 0;
}

/* ---- insertion ---------------------------------------------------------------------------- */

static inline void record_fill(task_map *m, task_record *r, const task_region *q, uint32_t storage,
                               uint32_t task, uint32_t flags)
{
    uint32_t box = 0;
    if (__builtin_expect(q->box.rank && m->free_box, 0)) {
        box = m->free_box;
        m->free_box = m->boxes[box].first[0];
        m->boxes[box] = q->box;
    }
    r->low = q->low;
    r->high = q->high;
    r->task = task;
    r->storage = storage;
    r->flags = flags | box | (q->writes ? TASK_RECORD_WRITER : 0);
    if (m->storages[storage].high < q->high)
        m->storages[storage].high = q->high;
}

static inline void count_record(task_map *m, uint32_t storage)
{
    m->storages[storage].records++;
    if (++m->used > m->high_used)
        m->high_used = m->used;
}

/* A record in the pool, hung behind `link`. */
static task_record *record_make(task_map *m, const task_region *q, uint32_t storage, uint32_t task,
                                uint32_t *link)
{
    uint32_t i = m->free_record;
    task_record *r = &m->records[i];
    m->free_record = r->next;
    record_fill(m, r, q, storage, task, 0);
    r->next = *link;
    *link = i;
    count_record(m, storage);
    return r;
}

/* In the bucket itself, over a record that is over (the query may have found that already) or that
 * this task covers; otherwise in the pool. */
static inline void bucket_insert(task_map *m, const task_region *q, uint32_t storage,
                                 uint32_t bucket, uint32_t task, bool over)
{
    task_record *r = &m->buckets[bucket].newest[!q->writes];
    uint8_t status;
    if (r->storage == 0) {
        count_record(m, storage);
    } else if ((over && r->task != task) || (r->flags & TASK_RECORD_COVERED) ||
               (r->task != task && record_gone(m, r, q->writes, &status))) {
        /* The task's own slot is not open yet: it would look completed. */
        box_free(m, r);
        if (__builtin_expect(r->storage != storage, 0)) {
            m->storages[storage].records++;
            storage_less(m, r->storage);
        }
    } else {
        record_make(m, q, storage, task, &r->next);
        return;
    }
    record_fill(m, r, q, storage, task, TASK_RECORD_NEWEST);
}

/* Put a pool record where queries of its storage find it. */
static void record_hang(task_map *m, uint32_t i)
{
    task_record *r = &m->records[i];
    task_storage *s = &m->storages[r->storage];
    bool writer = r->flags & TASK_RECORD_WRITER;
    uint64_t first = r->low >> s->granule, last = (r->high - 1) >> s->granule;
    uint32_t *link;
    r->flags &= ~TASK_RECORD_WIDE;
    if (last - first >= MAX_SPAN) {
        r->flags |= TASK_RECORD_WIDE;
        link = writer ? &s->wide_writers : &s->wide_readers;
    } else {
        if (s->span < last - first + 1)
            s->span = (uint8_t)(last - first + 1);
        link = &m->buckets[bucket_of(m, r->storage, first)].newest[!writer].next;
    }
    r->next = *link;
    *link = i;
}

/* Take a storage's records out of one list of a bucket, onto the list `moved` of the pool. What
 * lies in the bucket finds room there: the pool alone could hold all that are in use. */
static void take_out(task_map *m, task_record *newest, uint32_t storage, uint32_t *moved)
{
    if (newest->storage == storage) {
        uint32_t i = m->free_record, next = m->records[i].next;
        m->records[i] = *newest;
        m->records[i].flags &= ~TASK_RECORD_NEWEST;
        if (newest->flags & TASK_RECORD_COVERED) /* the list of covered ones no longer finds it */
            m->records[i].flags |= TASK_RECORD_DEAD;
        m->records[i].next = *moved;
        *moved = i;
        m->free_record = next;
        newest->storage = 0;
        newest->flags = 0;
    }
    uint32_t *link = &newest->next;
    while (*link) {
        task_record *r = &m->records[*link];
        if (r->storage != storage) {
            link = &r->next;
            continue;
        }
        uint32_t i = *link;
        *link = r->next;
        r->next = *moved;
        *moved = i;
    }
}

/* A region much smaller than the storage's granule arrived: hang everything anew, so that tiles
 * do not share one bucket. Happens at most once per power of two. */
static void storage_refine(task_map *m, uint32_t storage, uint8_t granule)
{
    task_storage *s = &m->storages[storage];
    uint64_t end = s->high ? (s->high - 1) >> s->granule : 0;
    uint32_t moved = 0;
    for (uint64_t g = 0; g <= end; g++) {
        task_bucket *b = &m->buckets[bucket_of(m, storage, g)];
        take_out(m, &b->newest[0], storage, &moved);
        take_out(m, &b->newest[1], storage, &moved);
    }
    s->granule = granule;
    s->span = 1;
    while (moved) {
        uint32_t i = moved;
        moved = m->records[i].next;
        record_hang(m, i);
    }
}

static uint8_t granule_for(uint64_t bytes)
{
    if (bytes <= (uint64_t)1 << MIN_GRANULE)
        return MIN_GRANULE;
    return (uint8_t)(64 - __builtin_clzll(bytes - 1));
}

static void insert_slowly(task_map *m, const task_region *q, uint32_t task)
{
    uint32_t storage = storage_find(m, q->base);
    if (!storage)
        storage = storage_make(m, q->base);
    task_storage *s = &m->storages[storage];
    uint8_t granule = granule_for(q->high - q->low);
    if (granule < s->granule) {
        /* Few granules to walk, or few refinements: a granule only shrinks. */
        if (s->records && ((s->high >> s->granule) <= 4 * (uint64_t)s->records + 64))
            storage_refine(m, storage, granule);
        else if (!s->records)
            s->granule = granule;
    }
    uint64_t first = q->low >> s->granule, last = (q->high - 1) >> s->granule;
    if (last - first >= MAX_SPAN) {
        uint32_t *link = q->writes ? &s->wide_writers : &s->wide_readers;
        record_make(m, q, storage, task, link)->flags |= TASK_RECORD_WIDE;
        return;
    }
    if (s->span < last - first + 1)
        s->span = (uint8_t)(last - first + 1);
    bucket_insert(m, q, storage, bucket_of(m, storage, first), task, false);
}

static inline void insert(task_map *m, const task_region *q, uint32_t task)
{
    if (!q->base || q->low == q->high || (!q->writes && (q->no_war || !q->reads)))
        return;
    uint32_t storage = q->storage;
    const task_storage *s = &m->storages[storage];
    if (storage && q->tile && s->base == q->base && s->granule == q->granule &&
        2 * (q->high - q->low) > (uint64_t)1 << q->granule)
        bucket_insert(m, q, storage, q->bucket, task, q->writes && q->over); /* the query's */
    else
        insert_slowly(m, q, task);
}

void task_map_insert(task_map *m, const task_region *q, uint32_t task)
{
    insert(m, q, task);
}

void task_map_commit(task_map *m, const task_region *regions, uint32_t count, uint32_t task)
{
    for (uint32_t i = 0; i < count; i++)
        insert(m, &regions[i], task);
    if (m->covered_count)
        drop_covered(m);
}

/* ---- sweeping ----------------------------------------------------------------------------- */

static void chain_sweep(task_map *m, uint32_t *link)
{
    while (*link) {
        task_record *r = &m->records[*link];
        uint8_t status = 0;
        if ((r->flags & TASK_RECORD_DEAD) || record_gone(m, r, true, &status))
            record_free(m, link);
        else
            link = &r->next;
    }
}

static void bucket_sweep(task_map *m, task_bucket *b)
{
    for (int list = 0; list < 2; list++) {
        task_record *r = &b->newest[list];
        uint8_t status;
        if (r->storage && record_gone(m, r, true, &status))
            newest_free(m, r);
        if (r->next)
            chain_sweep(m, &r->next);
    }
}

static void storage_sweep(task_map *m, uint32_t i)
{
    task_storage *s = &m->storages[i];
    if (!s->base || !(s->wide_writers | s->wide_readers))
        return;
    s->records++;
    chain_sweep(m, &s->wide_writers);
    chain_sweep(m, &s->wide_readers);
    storage_less(m, i);
}

void task_map_sweep(task_map *m, uint32_t buckets)
{
    if (!m->used)
        return;
    for (; buckets; buckets--)
        bucket_sweep(m, &m->buckets[m->sweep++ & m->bucket_mask]);
    storage_sweep(m, 1 + m->sweep % m->capacity); /* the wide lists: one storage per call */
}

void task_map_sweep_all(task_map *m)
{
    task_map_sweep(m, m->bucket_mask + 1);
    for (uint32_t i = 1; i <= m->capacity; i++)
        storage_sweep(m, i);
}
