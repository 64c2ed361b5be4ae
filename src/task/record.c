/* SPDX-License-Identifier: Apache-2.0
 * Recording: submit builds a graph instead of running. The tensor map works as ever, only that no
 * task ever completes, so every dependence of the program shows up. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "task/graph.h"

enum { FIRST_NODES = 1024, FIRST_RECORDS = 8192 };

typedef struct task_recorder {
    tacit_task_graph *graph;
    task_fanin fanin;
    task_failures failures;
    task_map map;
    uint32_t capacity; /* nodes the fan-in tables hold */
    bool *open;        /* per node: its scope has not ended */
} task_recorder;

static void recorder_free(tacit_task_runtime *rt)
{
    task_recorder *r = rt->recorder;
    const tacit_allocator *a = rt->allocator;
    if (r->map.records)
        task_map_free(&r->map);
    mem_release(a, r->fanin.seen, r->capacity * sizeof *r->fanin.seen);
    mem_release(a, r->fanin.producers, r->capacity * sizeof *r->fanin.producers);
    mem_release(a, r->open, r->capacity * sizeof *r->open);
    mem_release(a, r, sizeof *r);
    rt->recorder = NULL;
}

void task_record_cancel(tacit_task_runtime *rt)
{
    if (!rt->recorder)
        return;
    tacit_task_graph_destroy(rt->recorder->graph);
    recorder_free(rt);
}

uint64_t task_record_count(const tacit_task_runtime *rt)
{
    return rt->recorder->graph->info.count;
}

void task_record_scope_end(tacit_task_runtime *rt, uint64_t begin)
{
    task_recorder *r = rt->recorder;
    for (uint64_t i = begin; i < r->graph->info.count; i++)
        r->open[i] = false;
}

static bool grow_nodes(tacit_task_runtime *rt, task_recorder *r, uint32_t capacity)
{
    const tacit_allocator *a = rt->allocator;
    size_t old = r->capacity, new = capacity;
    struct task_seen *seen = mem_alloc_zero(a, new * sizeof *seen);
    uint32_t *producers = mem_alloc_zero(a, new * sizeof *producers);
    bool *open = mem_alloc_zero(a, new * sizeof *open);
    if (!seen || !producers || !open) {
        mem_release(a, seen, new * sizeof *seen);
        mem_release(a, producers, new * sizeof *producers);
        mem_release(a, open, new * sizeof *open);
        return false;
    }
    if (old) {
        memcpy(seen, r->fanin.seen, old * sizeof *seen);
        memcpy(open, r->open, old * sizeof *open);
    }
    mem_release(a, r->fanin.seen, old * sizeof *seen);
    mem_release(a, r->fanin.producers, old * sizeof *producers);
    mem_release(a, r->open, old * sizeof *open);
    r->fanin.seen = seen;
    r->fanin.producers = producers;
    r->open = open;
    r->capacity = capacity;
    r->fanin.mask = capacity - 1;
    return true;
}

tacit_status tacit_task_record_begin(tacit_task_runtime *rt, tacit_error *err)
{
    TRY(task_check_owner(rt, err));
    if (rt->recorder || rt->depth)
        return error_set(err, TACIT_ERR_STATE, "cannot record: %s",
                         rt->recorder ? "a recording is under way" : "a scope is open");
    task_recorder *r = mem_alloc_zero(rt->allocator, sizeof *r);
    if (!r)
        return error_memory(err, "a recording");
    rt->recorder = r;
    r->fanin.failures = &r->failures;
    tacit_status status = TACIT_OK;
    if (!grow_nodes(rt, r, FIRST_NODES))
        status = error_memory(err, "a recording");
    if (status == TACIT_OK)
        status = task_map_init(&r->map, rt->allocator, &r->fanin, FIRST_RECORDS, err);
    if (status == TACIT_OK)
        status = tacit_task_graph_create(rt, &r->graph, err);
    if (status != TACIT_OK)
        recorder_free(rt);
    return status;
}

/* ---- one task ----------------------------------------------------------------------------- */

static tacit_status find_producers(tacit_task_runtime *rt, task_recorder *r,
                                   const tacit_task_desc *desc, tacit_error *err)
{
    uint32_t here = r->graph->info.count;
    bool manual = rt->depth && rt->scopes[rt->depth - 1].mode == TACIT_TASK_MANUAL;
    task_fanin_start(&r->fanin);
    for (uint32_t i = 0; i < desc->dep_count; i++) {
        if (desc->deps[i] >= here)
            return error_set(err, TACIT_ERR_ARGUMENT,
                             "recorded task %u cannot wait for %" PRIu64
                             ": only earlier tasks can be named",
                             here, desc->deps[i]);
        task_fanin_add(&r->fanin, desc->deps[i], true);
    }
    for (uint32_t p = 0; p < desc->param_count; p++) {
        const task_region *region = &rt->regions[p];
        const tacit_task_buffer *b = desc->params[p].buffer;
        if (region->base && b->owner != TACIT_TASK_NONE) {
            if (b->owner >= here || !r->open[b->owner])
                return error_set(err, TACIT_ERR_STATE,
                                 "recorded task %u, parameter %u: the buffer's scope has ended",
                                 here, p);
            if (manual && region->reads)
                task_fanin_add(&r->fanin, b->owner, true);
        }
    }
    if (!manual)
        task_map_find(&r->map, rt->regions, desc->param_count);
    return TACIT_OK;
}

/* Values and places; the caller's memory is noted for patching. */
static bool record_params(tacit_task_runtime *rt, task_recorder *r, const tacit_task_desc *desc,
                          task_recorded *call)
{
    tacit_task_graph *g = r->graph;
    if (!vec_reserve(&g->memory, &g->patches, desc->param_count))
        return false;
    for (uint32_t p = 0; p < desc->param_count; p++) {
        const tacit_task_param *a = &desc->params[p];
        task_region *region = &rt->regions[p];
        tacit_task_value *v = &call->values[p];
        if (a->access == TACIT_TASK_SCALAR) {
            *v = a->scalar;
        } else if (a->access == TACIT_TASK_NEW) {
            v->data = arena_alloc_aligned(&g->memory, a->bytes, TACIT_TASK_ALIGN);
            if (!v->data)
                return false;
            *a->buffer = (tacit_task_buffer){v->data, a->bytes, call->node};
            *region = (task_region){
                .base = v->data, .high = a->bytes, .writes = true, .fresh = true, .dense = true};
        } else {
            uint64_t offset = a->view ? a->view->offset : a->offset;
            v->data = (char *)a->buffer->data + offset;
            if (a->buffer->owner == TACIT_TASK_NONE)
                g->patches.data[g->patches.count++] =
                    (task_patch){a->buffer->data, offset, region->high, v};
        }
    }
    return true;
}

static tacit_status add_node(tacit_task_runtime *rt, task_recorder *r, const tacit_task_desc *desc,
                             task_recorded *call, tacit_error *err)
{
    tacit_task_graph *g = r->graph;
    for (uint32_t i = 0; i < r->fanin.count; i++)
        r->fanin.producers[i] &= ~TASK_DEP_DATA;
    tacit_task_node node = {.args = call,
                            .deps = r->fanin.producers,
                            .dep_count = r->fanin.count,
                            .predicate = desc->predicate,
                            .name = desc->kernel ? desc->kernel->name : "dummy"};
    if (!record_params(rt, r, desc, call))
        return error_memory(err, "a recording");
    TRY(tacit_task_graph_add(g, &node, NULL, err));
    task_node_info *info = &g->info.data[call->node];
    if (desc->dummy)
        return TACIT_OK;
    info->recorded = call;
    info->flags ^= TASK_NODE_JOIN | TASK_NODE_CALL;
    if (desc->kernel->type == TACIT_TASK_ACCELERATOR) {
        info->flags |= TASK_NODE_ASYNC;
        g->async_count++;
    }
    return TACIT_OK;
}

tacit_status task_record_submit(tacit_task_runtime *rt, const tacit_task_desc *desc,
                                tacit_task_id *id, tacit_error *err)
{
    task_recorder *r = rt->recorder;
    tacit_task_graph *g = r->graph;
    uint32_t here = g->info.count;
    if (here == r->capacity && !grow_nodes(rt, r, 2 * r->capacity))
        return error_memory(err, "a recording");
    if (r->map.capacity - r->map.used < desc->param_count)
        TRY(task_map_grow(&r->map, err));
    task_recorded *call = ARENA_NEW(&g->memory, task_recorded);
    tacit_task_value *values = ARENA_ARRAY(&g->memory, desc->param_count, tacit_task_value);
    if (!call || !values)
        return error_memory(err, "a recording");
    *call = (task_recorded){.kernel = desc->kernel,
                            .user = desc->user,
                            .values = values,
                            .count = desc->param_count,
                            .node = here};
    TRY(find_producers(rt, r, desc, err));
    uint32_t patches = g->patches.count;
    tacit_status status = add_node(rt, r, desc, call, err);
    if (status != TACIT_OK) {
        g->patches.count = patches;
        task_map_forget_covered(&r->map);
        return status;
    }
    bool manual = rt->depth && rt->scopes[rt->depth - 1].mode == TACIT_TASK_MANUAL;
    if (!manual)
        task_map_commit(&r->map, rt->regions, desc->param_count, here);
    r->open[here] = true;
    if (id)
        *id = here;
    return TACIT_OK;
}

static int by_storage(const void *a, const void *b)
{
    uintptr_t x = (uintptr_t)((const task_patch *)a)->data;
    uintptr_t y = (uintptr_t)((const task_patch *)b)->data;
    return x < y ? -1 : x > y;
}

tacit_status tacit_task_record_end(tacit_task_runtime *rt, tacit_task_graph **out, tacit_error *err)
{
    *out = NULL;
    TRY(task_check_owner(rt, err));
    if (!rt->recorder || rt->depth)
        return error_set(err, TACIT_ERR_STATE, "cannot end the recording: %s",
                         rt->recorder ? "a scope is open" : "there is none");
    tacit_task_graph *g = rt->recorder->graph;
    recorder_free(rt);
    if (g->patches.count)
        qsort(g->patches.data, g->patches.count, sizeof *g->patches.data, by_storage);
    tacit_status status = tacit_task_graph_seal(g, err);
    if (status != TACIT_OK) {
        tacit_task_graph_destroy(g);
        return status;
    }
    *out = g;
    return TACIT_OK;
}
