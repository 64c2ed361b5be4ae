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

/* Completed tasks need no edge; one that failed hands its status on instead. Retired and broken
 * tasks are kept in the map by `fanin_gone` until wait_all. */
static bool fanin_gone(const task_fanin *f, uint64_t id, uint8_t *status)
{
    *status = 0;
    if (!f->words)
        return false;
    if ((int64_t)(id - f->tail) < 0) {
        if (f->failures->count)
            *status = task_failures_find(f->failures, id);
        return true;
    }
    /* SEEN: a sealed word is the only thing that orders the producer's writes before us. */
    const _Atomic uint64_t *word = f->words + (((uint32_t)id & f->mask) << 3);
    uint64_t w = LOAD(word, MO_SEEN);
    if ((uint32_t)(w >> 32) != TASK_SEALED)
        return false;
    if (__builtin_expect((uint32_t)w & TASK_FAILED_BIT, 0))
        *status = ((const uint8_t *)word)[TASK_STATUS_OFFSET];
    return true;
}

static inline void fanin_link(task_fanin *f, uint32_t slot, bool data)
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

void task_fanin_add(task_fanin *f, uint64_t id, bool data)
{
    uint8_t status;
    if (!fanin_gone(f, id, &status))
        fanin_link(f, (uint32_t)id & f->mask, data);
    else if (status && data)
        f->inherited = status & 0x7f;
}

/* ---- pools -------------------------------------------------------------------------------- */

static uint64_t record_id(const task_map *m, const task_record *r)
{
    uint64_t tail = m->fanin->tail;
    return tail + (uint64_t)(int64_t)(int32_t)(r->task - (uint32_t)tail);
}

/* Neighbouring granules share cache lines, in runs of 64; longer strides are spread. */
static inline uint32_t bucket_of(const task_map *m, uint32_t storage, uint64_t granule)
{
    uint32_t low = (uint32_t)granule, high = (uint32_t)(granule >> 6);
    return (low + high * 0x9e3779b1u + storage * 0x85ebca6bu) & m->bucket_mask;
}

static inline uint32_t base_hash(const task_map *m, const void *base)
{
    return (uint32_t)(((uint64_t)(uintptr_t)base * 0x9e3779b97f4a7c15u) >> 32) & m->base_mask;
}

static uint32_t storage_find(task_map *m, const void *base)
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

/* Unlink the record `*link` points to and put it and its box back. */
static void record_free(task_map *m, uint32_t *link)
{
    uint32_t i = *link;
    task_record *r = &m->records[i];
    *link = r->next;
    uint32_t box = r->flags & TASK_RECORD_BOX;
    if (box) {
        m->boxes[box].first[0] = m->free_box;
        m->free_box = box;
    }
    r->next = m->free_record;
    r->flags = TASK_RECORD_DEAD;
    m->free_record = i;
    m->used--;
    if (--m->storages[r->storage].records == 0)
        storage_drop(m, r->storage);
}

/* ---- queries ------------------------------------------------------------------------------ */

static void record_cover(task_map *m, uint32_t i)
{
    if (m->records[i].flags & TASK_RECORD_COVERED)
        return; /* by another parameter of the same task */
    m->records[i].flags |= TASK_RECORD_COVERED;
    m->covered[m->covered_count++] = i;
}

/* Walk one chain: free what is dead, report conflicts, note what the query covers. */
static void chain_scan(task_map *m, uint32_t *link, uint32_t storage, const task_region *q,
                       bool writers)
{
    task_fanin *f = m->fanin;
    while (*link) {
        task_record *r = &m->records[*link];
        uint8_t status = 0;
        if ((r->flags & TASK_RECORD_DEAD) ||
            (fanin_gone(f, record_id(m, r), &status) && !(status && writers))) {
            record_free(m, link);
            continue;
        }
        const task_box *box =
            (r->flags & TASK_RECORD_BOX) ? &m->boxes[r->flags & TASK_RECORD_BOX] : NULL;
        link = &r->next;
        if (r->storage != storage)
            continue;
        task_overlap o = task_region_meet(q, r->low, r->high, box);
        if (o == TASK_APART)
            continue;
        if (!status)
            fanin_link(f, r->task & f->mask, writers && q->reads);
        else if (q->reads)
            f->inherited = status & 0x7f;
        if (o == TASK_COVERED && q->writes)
            record_cover(m, (uint32_t)(r - m->records));
    }
}

/* Every record of the storage, for queries that would walk more buckets than there are records. */
static void pool_scan(task_map *m, uint32_t storage, const task_region *q)
{
    task_fanin *f = m->fanin;
    for (uint32_t i = 1; i <= m->capacity; i++) {
        task_record *r = &m->records[i];
        bool writer = r->flags & TASK_RECORD_WRITER;
        if ((r->flags & (TASK_RECORD_DEAD | TASK_RECORD_WIDE)) || r->storage != storage ||
            (!writer && !q->writes))
            continue;
        uint8_t status;
        bool gone = fanin_gone(f, record_id(m, r), &status);
        if (gone && !(status && writer))
            continue;
        const task_box *box =
            (r->flags & TASK_RECORD_BOX) ? &m->boxes[r->flags & TASK_RECORD_BOX] : NULL;
        task_overlap o = task_region_meet(q, r->low, r->high, box);
        if (o == TASK_APART)
            continue;
        if (!status)
            fanin_link(f, r->task & f->mask, writer && q->reads);
        else if (q->reads)
            f->inherited = status & 0x7f;
        if (o == TASK_COVERED && q->writes)
            record_cover(m, i);
    }
}

/* Buckets first..last, which are many. */
static void query_wide(task_map *m, uint32_t storage, const task_region *q, uint64_t first,
                       uint64_t last)
{
    if (last - first > SCAN_LIMIT && last - first > m->capacity / 4) {
        pool_scan(m, storage, q);
        return;
    }
    for (uint64_t g = first; g <= last; g++) {
        uint32_t *heads = &m->heads[2 * (size_t)bucket_of(m, storage, g)];
        if (heads[0])
            chain_scan(m, &heads[0], storage, q, true);
        if (q->writes && heads[1])
            chain_scan(m, &heads[1], storage, q, false);
    }
}

/* Find the bucket of a tile, the usual case, and bring its newest records closer: done for all
 * parameters of a task before the first query, this overlaps their cache misses. */
void task_map_prepare(task_map *m, task_region *q)
{
    q->storage = 0;
    if (!q->base || q->low == q->high || q->fresh)
        return;
    uint32_t storage = storage_find(m, q->base);
    if (!storage)
        return;
    const task_storage *s = &m->storages[storage];
    uint64_t first = q->low >> s->granule, last = (q->high - 1) >> s->granule;
    if (first != last || s->span != 1)
        return;
    q->storage = storage;
    q->granule = s->granule;
    q->bucket = bucket_of(m, storage, first);
    const uint32_t *heads = &m->heads[2 * (size_t)q->bucket];
    __builtin_prefetch(&m->records[heads[0]]);
    if (q->writes)
        __builtin_prefetch(&m->records[heads[1]]);
}

/* One bucket, and the storage's wide regions. The first may take away the storage's last record. */
static void query_tile(task_map *m, uint32_t storage, const task_region *q)
{
    task_storage *s = &m->storages[storage];
    uint32_t *heads = &m->heads[2 * (size_t)q->bucket];
    if (!(s->wide_writers | s->wide_readers | heads[0]) && !(q->writes && heads[1]))
        return;
    s->records++;
    if (heads[0])
        chain_scan(m, &heads[0], storage, q, true);
    if (q->writes && heads[1])
        chain_scan(m, &heads[1], storage, q, false);
    if (s->wide_writers)
        chain_scan(m, &s->wide_writers, storage, q, true);
    if (q->writes && s->wide_readers)
        chain_scan(m, &s->wide_readers, storage, q, false);
    if (--s->records == 0)
        storage_drop(m, storage);
}

void task_map_query(task_map *m, const task_region *q)
{
    if (!q->base || q->low == q->high || q->fresh)
        return;
    if (q->storage && m->storages[q->storage].base == q->base) {
        query_tile(m, q->storage, q);
        return;
    }
    uint32_t storage = storage_find(m, q->base);
    if (!storage)
        return;
    task_storage *s = &m->storages[storage];
    s->records++; /* keeps the storage while its last record may go */
    if (s->wide_writers)
        chain_scan(m, &s->wide_writers, storage, q, true);
    if (q->writes && s->wide_readers)
        chain_scan(m, &s->wide_readers, storage, q, false);
    uint64_t first = q->low >> s->granule, last = (q->high - 1) >> s->granule;
    uint64_t back = s->span - 1u, end = s->high ? (s->high - 1) >> s->granule : 0;
    first = first > back ? first - back : 0;
    last = last < end ? last : end;
    if (first <= last)
        query_wide(m, storage, q, first, last);
    if (--s->records == 0)
        storage_drop(m, storage);
}

void task_map_drop_covered(task_map *m)
{
    for (uint32_t i = 0; i < m->covered_count; i++)
        m->records[m->covered[i]].flags |= TASK_RECORD_DEAD;
    m->covered_count = 0;
}

void task_map_forget_covered(task_map *m)
{
    for (uint32_t i = 0; i < m->covered_count; i++)
        m->records[m->covered[i]].flags &= ~TASK_RECORD_COVERED;
    m->covered_count = 0;
}

/* ---- insertion ---------------------------------------------------------------------------- */

static void record_hang(task_map *m, uint32_t i)
{
    task_record *r = &m->records[i];
    task_storage *s = &m->storages[r->storage];
    bool writer = r->flags & TASK_RECORD_WRITER;
    uint64_t first = r->low >> s->granule, last = (r->high - 1) >> s->granule;
    uint32_t *head;
    if (last - first >= MAX_SPAN) {
        r->flags |= TASK_RECORD_WIDE;
        head = writer ? &s->wide_writers : &s->wide_readers;
    } else {
        if (s->span < last - first + 1)
            s->span = (uint8_t)(last - first + 1);
        head = &m->heads[2 * (size_t)bucket_of(m, r->storage, first) + !writer];
    }
    r->next = *head;
    *head = i;
}

/* A region much smaller than the storage's granule arrived: hang everything anew, so that tiles
 * do not share one bucket. Happens at most once per power of two. */
static void storage_refine(task_map *m, uint32_t storage, uint8_t granule)
{
    task_storage *s = &m->storages[storage];
    uint64_t end = s->high ? (s->high - 1) >> s->granule : 0;
    uint32_t moved = 0; /* list of records taken out */
    for (int list = 0; list < 2; list++)
        for (uint64_t g = 0; g <= end; g++) {
            uint32_t *link = &m->heads[2 * (size_t)bucket_of(m, storage, g) + (size_t)list];
            while (*link) {
                task_record *r = &m->records[*link];
                if (r->storage != storage) {
                    link = &r->next;
                    continue;
                }
                uint32_t i = *link;
                *link = r->next;
                r->next = moved;
                moved = i;
            }
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

/* Take a record from the pool and fill it. */
static uint32_t record_make(task_map *m, const task_region *q, uint32_t storage, uint32_t task)
{
    uint32_t i = m->free_record, box = 0;
    task_record *r = &m->records[i];
    m->free_record = r->next;
    if (__builtin_expect(q->box.rank && m->free_box, 0)) {
        box = m->free_box;
        m->free_box = m->boxes[box].first[0];
        m->boxes[box] = q->box;
    }
    r->low = q->low;
    r->high = q->high;
    r->task = task;
    r->storage = storage;
    r->flags = box | (q->writes ? TASK_RECORD_WRITER : 0);
    m->storages[storage].records++;
    if (m->storages[storage].high < q->high)
        m->storages[storage].high = q->high;
    if (++m->used > m->high_used)
        m->high_used = m->used;
    return i;
}

void task_map_insert(task_map *m, const task_region *q, uint32_t task)
{
    if (!q->base || q->low == q->high || (!q->writes && q->no_war))
        return;
    uint32_t storage = q->storage;
    uint64_t bytes = q->high - q->low;
    if (storage && m->storages[storage].base == q->base &&
        m->storages[storage].granule == q->granule &&
        2 * bytes > (uint64_t)1 << q->granule) { /* where the query looked */
        uint32_t i = record_make(m, q, storage, task);
        uint32_t *head = &m->heads[2 * (size_t)q->bucket + !q->writes];
        m->records[i].next = *head;
        *head = i;
        return;
    }
    storage = storage_find(m, q->base);
    if (!storage)
        storage = storage_make(m, q->base);
    task_storage *s = &m->storages[storage];
    uint8_t granule = granule_for(bytes);
    if (granule < s->granule) {
        /* Few granules to walk, or few refinements: a granule only shrinks. */
        if (s->records && ((s->high >> s->granule) <= 4 * (uint64_t)s->records + 64))
            storage_refine(m, storage, granule);
        else if (!s->records)
            s->granule = granule;
    }
    record_hang(m, record_make(m, q, storage, task));
}

/* ---- sweeping ----------------------------------------------------------------------------- */

static void chain_sweep(task_map *m, uint32_t *link)
{
    while (*link) {
        task_record *r = &m->records[*link];
        uint8_t status = 0;
        if ((r->flags & TASK_RECORD_DEAD) ||
            (fanin_gone(m->fanin, record_id(m, r), &status) && !status))
            record_free(m, link);
        else
            link = &r->next;
    }
}

void task_map_sweep(task_map *m, uint32_t buckets)
{
    if (!m->used)
        return;
    for (; buckets; buckets--) {
        uint32_t b = m->sweep++ & m->bucket_mask;
        if (m->heads[2 * (size_t)b])
            chain_sweep(m, &m->heads[2 * (size_t)b]);
        if (m->heads[2 * (size_t)b + 1])
            chain_sweep(m, &m->heads[2 * (size_t)b + 1]);
    }
    /* The hand of the wide lists: one storage per call. */
    uint32_t i = 1 + m->sweep % m->capacity;
    task_storage *s = &m->storages[i];
    if (s->base) {
        s->records++;
        chain_sweep(m, &s->wide_writers);
        chain_sweep(m, &s->wide_readers);
        if (--s->records == 0)
            storage_drop(m, i);
    }
}

void task_map_sweep_all(task_map *m)
{
    task_map_sweep(m, m->bucket_mask + 1);
    for (uint32_t i = 1; i <= m->capacity; i++) {
        task_storage *s = &m->storages[i];
        if (!s->base)
            continue;
        s->records++;
        chain_sweep(m, &s->wide_writers);
        chain_sweep(m, &s->wide_readers);
        if (--s->records == 0)
            storage_drop(m, i);
    }
}

/* ---- life --------------------------------------------------------------------------------- */

tacit_status task_map_init(task_map *m, const tacit_allocator *allocator, task_fanin *fanin,
                           uint32_t records, tacit_error *err)
{
    uint32_t buckets = 64;
    while (buckets < records / 2 && buckets < (1u << 26))
        buckets *= 2;
    *m = (task_map){.allocator = allocator,
                    .fanin = fanin,
                    .capacity = records,
                    .box_capacity = records / 4 + 16,
                    .bucket_mask = buckets - 1,
                    .base_mask = buckets - 1};
    size_t n = (size_t)records + 1;
    m->records = mem_alloc_zero(allocator, n * sizeof *m->records);
    m->boxes = mem_alloc_zero(allocator, ((size_t)m->box_capacity + 1) * sizeof *m->boxes);
    m->storages = mem_alloc_zero(allocator, n * sizeof *m->storages);
    m->heads = mem_alloc_zero(allocator, 2 * (size_t)buckets * sizeof *m->heads);
    m->bases = mem_alloc_zero(allocator, buckets * sizeof *m->bases);
    m->covered = mem_alloc_zero(allocator, n * sizeof *m->covered);
    if (!m->records || !m->boxes || !m->storages || !m->heads || !m->bases || !m->covered) {
        task_map_free(m);
        return error_memory(err, "the task runtime's tensor map");
    }
    for (uint32_t i = records; i; i--) {
        m->records[i] = (task_record){.next = m->free_record, .flags = TASK_RECORD_DEAD};
        m->storages[i].next = m->free_storage;
        m->free_record = m->free_storage = i;
    }
    for (uint32_t i = m->box_capacity; i; i--) {
        m->boxes[i].first[0] = m->free_box;
        m->free_box = i;
    }
    return TACIT_OK;
}

/* Only for recordings, where nothing dies and records are cheap. */
tacit_status task_map_grow(task_map *m, tacit_error *err)
{
    task_map bigger;
    TRY(task_map_init(&bigger, m->allocator, m->fanin, m->capacity * 2, err));
    task_region r = {0};
    for (uint32_t i = 1; i <= m->capacity; i++) {
        const task_record *old = &m->records[i];
        if (old->flags & TASK_RECORD_DEAD)
            continue;
        uint32_t box = old->flags & TASK_RECORD_BOX;
        r = (task_region){.base = m->storages[old->storage].base,
                          .low = old->low,
                          .high = old->high,
                          .writes = old->flags & TASK_RECORD_WRITER,
                          .dense = !box};
        if (box)
            r.box = m->boxes[box];
        task_map_insert(&bigger, &r, old->task);
    }
    task_map_free(m);
    *m = bigger;
    return TACIT_OK;
}

void task_map_free(task_map *m)
{
    size_t n = (size_t)m->capacity + 1, buckets = (size_t)m->bucket_mask + 1;
    const tacit_allocator *a = m->allocator;
    mem_release(a, m->records, n * sizeof *m->records);
    mem_release(a, m->boxes, ((size_t)m->box_capacity + 1) * sizeof *m->boxes);
    mem_release(a, m->storages, n * sizeof *m->storages);
    mem_release(a, m->heads, 2 * buckets * sizeof *m->heads);
    mem_release(a, m->bases, buckets * sizeof *m->bases);
    mem_release(a, m->covered, n * sizeof *m->covered);
    *m = (task_map){0};
}
