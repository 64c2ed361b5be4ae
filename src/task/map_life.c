/* SPDX-License-Identifier: Apache-2.0
 * Memory of the tensor map. */
#include "task/map.h"

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
    m->buckets = mem_alloc_zero(allocator, buckets * sizeof *m->buckets);
    m->bases = mem_alloc_zero(allocator, buckets * sizeof *m->bases);
    m->covered = mem_alloc_zero(allocator, n * sizeof *m->covered);
    if (!m->records || !m->boxes || !m->storages || !m->buckets || !m->bases || !m->covered) {
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

static void copy_record(task_map *to, const task_map *from, const task_record *old)
{
    uint32_t box = old->flags & TASK_RECORD_BOX;
    task_region r = {.base = from->storages[old->storage].base,
                     .low = old->low,
                     .high = old->high,
                     .reads = !(old->flags & TASK_RECORD_WRITER),
                     .writes = old->flags & TASK_RECORD_WRITER,
                     .dense = !box};
    if (box)
        r.box = from->boxes[box];
    task_map_insert(to, &r, old->task);
}

/* Only for recordings, where nothing dies and records are cheap. */
tacit_status task_map_grow(task_map *m, tacit_error *err)
{
    task_map bigger;
    TRY(task_map_init(&bigger, m->allocator, m->fanin, m->capacity * 2, err));
    for (uint32_t i = 1; i <= m->capacity; i++)
        if (!(m->records[i].flags & TASK_RECORD_DEAD))
            copy_record(&bigger, m, &m->records[i]);
    for (uint32_t i = 0; i <= m->bucket_mask; i++)
        for (int list = 0; list < 2; list++)
            if (m->buckets[i].newest[list].storage)
                copy_record(&bigger, m, &m->buckets[i].newest[list]);
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
    mem_release(a, m->buckets, buckets * sizeof *m->buckets);
    mem_release(a, m->bases, buckets * sizeof *m->bases);
    mem_release(a, m->covered, n * sizeof *m->covered);
    *m = (task_map){0};
}
