/* SPDX-License-Identifier: Apache-2.0
 * Submit: check, find producers, reserve, commit. Nothing changes before everything is reserved. */
#include <inttypes.h>
#include <string.h>

#include "task/task.h"

tacit_status task_check_owner(tacit_task_runtime *rt, tacit_error *err)
{
    if (LIKELY(rt->owner == task_thread()))
        return TACIT_OK;
    return error_set(err, TACIT_ERR_STATE,
                     "the task runtime was called from a thread that is not its orchestrator");
}

/* ---- checks ------------------------------------------------------------------------------- */

static tacit_status bad_param(tacit_task_runtime *rt, const tacit_task_desc *desc, uint32_t p,
                              tacit_status status, const char *why, tacit_error *err)
{
    return error_set(err, status, "task %" PRIu64 " (%s), parameter %u: %s", rt->next,
                     desc->kernel && desc->kernel->name ? desc->kernel->name : "unnamed", p, why);
}

/* A buffer the runtime allocated may be named only while its task is in its scope; then the scope's
 * reference keeps it alive and one more can be added without looking. */
static tacit_status check_owner_alive(tacit_task_runtime *rt, const tacit_task_desc *desc,
                                      uint32_t p, tacit_task_id owner, tacit_error *err)
{
    if (!task_alive(rt, owner) || !rt->token[task_index(rt, owner)])
        return bad_param(rt, desc, p, TACIT_ERR_STATE,
                         "the buffer's scope has ended or it was freed", err);
    for (uint32_t i = 0; i < rt->retain_count; i++)
        if (rt->retains[i] == task_index(rt, owner))
            return TACIT_OK;
    rt->retains[rt->retain_count++] = task_index(rt, owner);
    return TACIT_OK;
}

static tacit_status check_new(tacit_task_runtime *rt, const tacit_task_desc *desc, uint32_t p,
                              uint64_t *bytes, tacit_error *err)
{
    uint64_t want = desc->params[p].bytes;
    if (desc->params[p].view)
        return bad_param(rt, desc, p, TACIT_ERR_ARGUMENT, "a new buffer takes no view", err);
    if (want > UINT64_MAX / 2 - *bytes)
        return bad_param(rt, desc, p, TACIT_ERR_LIMIT, "the outputs' sizes overflow", err);
    *bytes += align_up(want, TACIT_TASK_ALIGN);
    return TACIT_OK;
}

static tacit_status check_region(tacit_task_runtime *rt, const tacit_task_desc *desc, uint32_t p,
                                 task_region *r, tacit_error *err)
{
    const tacit_task_param *a = &desc->params[p];
    r->base = a->buffer->data;
    if (UNLIKELY(!r->base && a->buffer->bytes))
        return bad_param(rt, desc, p, TACIT_ERR_ARGUMENT, "the buffer has no data", err);
    if (UNLIKELY(a->view != NULL)) {
        if (!task_region_view(r, a->view, a->buffer->bytes))
            return bad_param(rt, desc, p, TACIT_ERR_ARGUMENT, "the view leaves its storage", err);
        return TACIT_OK;
    }
    if (UNLIKELY(a->offset > a->buffer->bytes || a->bytes > a->buffer->bytes - a->offset))
        return bad_param(rt, desc, p, TACIT_ERR_ARGUMENT, "the region leaves its storage", err);
    r->low = a->offset;
    r->high = a->offset + a->bytes;
    r->dense = true;
    r->box.rank = 0;
    return TACIT_OK;
}

static tacit_status check_params(tacit_task_runtime *rt, const tacit_task_desc *desc,
                                 uint64_t *bytes, uint32_t *records, tacit_error *err)
{
    for (uint32_t p = 0; p < desc->param_count; p++) {
        const tacit_task_param *a = &desc->params[p];
        task_region *r = &rt->regions[p];
        r->base = NULL;
        r->fresh = false;
        if (a->access == TACIT_TASK_SCALAR)
            continue;
        if ((unsigned)a->access > TACIT_TASK_NO_DEP)
            return bad_param(rt, desc, p, TACIT_ERR_ARGUMENT, "unknown kind of access", err);
        if (!a->buffer)
            return bad_param(rt, desc, p, TACIT_ERR_ARGUMENT, "no buffer", err);
        r->reads = a->access == TACIT_TASK_IN || a->access == TACIT_TASK_INOUT;
        r->writes = a->access != TACIT_TASK_IN && a->access != TACIT_TASK_NO_DEP;
        r->no_war = a->no_war;
        *records += a->access != TACIT_TASK_NO_DEP;
        if (a->access == TACIT_TASK_NEW) {
            TRY(check_new(rt, desc, p, bytes, err));
            continue;
        }
        TRY(check_region(rt, desc, p, r, err));
        if (!rt->recorder && a->buffer->owner != TACIT_TASK_NONE)
            TRY(check_owner_alive(rt, desc, p, a->buffer->owner, err));
    }
    return TACIT_OK;
}

tacit_status task_check_desc(tacit_task_runtime *rt, const tacit_task_desc *desc, uint64_t *bytes,
                             uint32_t *records, tacit_error *err)
{
    *bytes = 0;
    *records = 0;
    rt->retain_count = 0;
    if (UNLIKELY(!desc || (!desc->dummy && (!desc->kernel || !desc->kernel->run))))
        return error_set(err, TACIT_ERR_ARGUMENT, "task %" PRIu64 " has no kernel", rt->next);
    if (UNLIKELY(desc->param_count > TACIT_TASK_MAX_PARAMS))
        return error_set(err, TACIT_ERR_LIMIT, "task %" PRIu64 " has %u parameters, the most is %d",
                         rt->next, desc->param_count, TACIT_TASK_MAX_PARAMS);
    if (UNLIKELY((desc->param_count && !desc->params) || (desc->dep_count && !desc->deps)))
        return error_set(err, TACIT_ERR_ARGUMENT, "task %" PRIu64 ": NULL list", rt->next);
    if (desc->kernel) {
        if (UNLIKELY((unsigned)desc->kernel->type >= TACIT_TASK_TYPES ||
                     !rt->served[desc->kernel->type]))
            return error_set(err, TACIT_ERR_UNSUPPORTED,
                             "task %" PRIu64 " (%s): no worker serves its type %d", rt->next,
                             desc->kernel->name ? desc->kernel->name : "unnamed",
                             (int)desc->kernel->type);
    }
    return desc->param_count ? check_params(rt, desc, bytes, records, err) : TACIT_OK;
}

/* ---- commit ------------------------------------------------------------------------------- */

/* A small number for the kernel; durations are kept under it. */
static uint32_t kernel_number(tacit_task_runtime *rt, const tacit_task_kernel *kernel)
{
    if (LIKELY(rt->kernels[rt->kernel_last] == kernel))
        return rt->kernel_last;
    for (uint32_t i = 0; i < rt->kernel_count; i++)
        if (rt->kernels[i] == kernel)
            return rt->kernel_last = i;
    if (rt->kernel_count == TASK_KERNELS - 1)
        return TASK_KERNELS - 1;
    rt->kernels[rt->kernel_count] = kernel;
    return rt->kernel_last = rt->kernel_count++;
}

/* Give outputs their places and parameters their values. */
static void fill_values(tacit_task_runtime *rt, const tacit_task_desc *desc, uint64_t id,
                        unsigned char *block, tacit_task_value *values)
{
    for (uint32_t p = 0; p < desc->param_count; p++) {
        const tacit_task_param *a = &desc->params[p];
        task_region *r = &rt->regions[p];
        if (a->access == TACIT_TASK_SCALAR) {
            values[p] = a->scalar;
        } else if (a->access == TACIT_TASK_NEW) {
            *a->buffer = (tacit_task_buffer){block, a->bytes, id};
            r->base = block;
            r->low = 0;
            r->high = a->bytes;
            r->dense = r->fresh = true;
            r->storage = 0;
            r->box.rank = 0;
            values[p].data = block;
            block += align_up(a->bytes, TACIT_TASK_ALIGN);
        } else {
            values[p].data = (char *)a->buffer->data + (a->view ? a->view->offset : a->offset);
        }
    }
}

static size_t spill_bytes(const tacit_task_runtime *rt, const tacit_task_desc *desc)
{
    if (desc->param_count <= TASK_INLINE_VALUES && rt->retain_count <= TASK_INLINE_RETAINS)
        return 0;
    return align_up(((rt->retain_count + 1) / 2 + desc->param_count) * 8, TACIT_TASK_ALIGN);
}

/* Bytes skipped at the ring's end belong to nobody: tasks without a block that stand right before
 * them begin behind them, so that what a task pins does not depend on when others retired. */
static unsigned char *take_block(tacit_task_runtime *rt, uint64_t id, uint64_t bytes)
{
    task_cold *cold = &rt->cold[task_index(rt, id)];
    if (!bytes) {
        cold->heap_start = rt->heap.top;
        return NULL;
    }
    unsigned char *block = task_heap_take(&rt->heap, bytes);
    uint64_t start = rt->heap.top - bytes;
    cold->heap_start = start;
    uint64_t from = rt->heap_last > rt->fanin.tail ? rt->heap_last : rt->fanin.tail;
    for (uint64_t i = id; i-- > from && rt->cold[task_index(rt, i)].heap_start != start;)
        rt->cold[task_index(rt, i)].heap_start = start;
    rt->heap_last = id + 1;
    return block;
}

static void fill_slot(tacit_task_runtime *rt, const tacit_task_desc *desc, uint64_t id,
                      uint64_t bytes, size_t spill)
{
    uint32_t index = task_index(rt, id);
    task_slot *s = &rt->slots[index];
    task_cold *cold = &rt->cold[index];
    const tacit_task_kernel *k = desc->dummy ? NULL : desc->kernel;
    s->id = id;
    s->user = desc->user;
    s->run = k ? k->run : NULL;
    s->kernel = k ? (uint16_t)kernel_number(rt, k) : TASK_KERNELS - 1;
    s->class = rt->class_of[k ? k->type : rt->dummy_type];
    s->flags = (uint8_t)((desc->predicate ? TASK_PREDICATED : 0) | (spill ? TASK_SPILLED : 0) |
                         (k && k->type == TACIT_TASK_ACCELERATOR ? TASK_ASYNC : 0));
    STORE(&s->poison, rt->fanin.inherited, RELAXED);
    s->status = 0;
    s->value_count = (uint8_t)desc->param_count;
    s->retain_count = (uint8_t)rt->retain_count;
    if (desc->predicate)
        cold->predicate = desc->predicate;
    unsigned char *block = take_block(rt, id, bytes);
    uint32_t *retains = s->retain;
    tacit_task_value *values = cold->values;
    if (UNLIKELY(spill)) {
        cold->spill = block;
        values = (tacit_task_value *)block + (rt->retain_count + 1) / 2;
        if (rt->retain_count > TASK_INLINE_RETAINS)
            retains = (uint32_t *)block;
        block += spill;
    }
    for (uint32_t i = 0; i < rt->retain_count; i++) {
        retains[i] = rt->retains[i];
        /* Relaxed: the scope's reference, which only this thread drops, keeps it above zero. */
        atomic_fetch_add_explicit(&rt->slots[rt->retains[i]].word, 1, RELAXED);
    }
    fill_values(rt, desc, id, block, values);
}

/* Enter the task into its producers' successor lists. True when nothing is left to wait for. */
static bool link_producers(tacit_task_runtime *rt, uint32_t index)
{
    task_fanin *f = &rt->fanin;
    task_slot *s = &rt->slots[index];
    uint32_t waiting = f->count;
    STORE(&s->pending, (int32_t)waiting, RELAXED);
    /* Nobody else knows the slot yet: the first link or the queue publishes all of it. */
    STORE(&s->word, (uint64_t)1 + (rt->depth > 0), RELAXED);
    bool ready = waiting == 0;
    for (uint32_t i = 0; i < waiting; i++) {
        uint32_t p = f->producers[i];
        _Atomic uint64_t *word = &rt->slots[p & ~TASK_DEP_DATA].word;
        uint32_t node = rt->dep_place + 1; /* node 0 means "none" */
        uint64_t old = LOAD(word, MO_LINK_LOST);
        for (;;) {
            if ((uint32_t)(old >> 32) == TASK_SEALED) {
                if (UNLIKELY((uint32_t)old & TASK_FAILED_BIT) && (p & TASK_DEP_DATA))
                    STORE(&s->poison, rt->slots[p & ~TASK_DEP_DATA].status & 0x7f, RELAXED);
                ready |= task_count_down(&s->pending);
                break;
            }
            rt->deps[node] = (task_dep){index | (p & TASK_DEP_DATA), (uint32_t)(old >> 32)};
            if (atomic_compare_exchange_weak_explicit(
                    word, &old, (uint64_t)node << 32 | (uint32_t)old, MO_LINK, MO_LINK_LOST)) {
                rt->dep_top++;
                rt->dep_place = node == rt->dep_capacity ? 0 : node;
                break;
            }
        }
    }
    rt->edges += waiting;
    rt->cold[index].dep_end = rt->dep_top;
    return ready;
}

/* ---- submit ------------------------------------------------------------------------------- */

static tacit_status find_producers(tacit_task_runtime *rt, const tacit_task_desc *desc,
                                   tacit_error *err)
{
    task_fanin_start(&rt->fanin);
    bool manual = rt->depth && rt->scopes[rt->depth - 1].mode == TACIT_TASK_MANUAL;
    for (uint32_t i = 0; i < desc->dep_count; i++) {
        if (UNLIKELY(desc->deps[i] - rt->first_id >= rt->next - rt->first_id))
            return error_set(err, TACIT_ERR_ARGUMENT,
                             "task %" PRIu64 " cannot wait for task %" PRIu64
                             ": only earlier tasks can be named",
                             rt->next, desc->deps[i]);
        task_fanin_add(&rt->fanin, desc->deps[i], true);
    }
    if (!manual) {
        task_map_find(&rt->map, rt->regions, desc->param_count);
        return TACIT_OK;
    }
    for (uint32_t p = 0; p < desc->param_count; p++)
        if (rt->regions[p].base && rt->regions[p].reads &&
            desc->params[p].buffer->owner != TACIT_TASK_NONE)
            task_fanin_add(&rt->fanin, desc->params[p].buffer->owner, true);
    return TACIT_OK;
}

static void trace_submit(tacit_task_runtime *rt, uint64_t id)
{
    task_trace *t = &rt->workers[0].trace;
    uint64_t now = task_ticks();
    task_trace_add(t, now, TASK_EV_SUBMIT, rt->slots[task_index(rt, id)].kernel, id,
                   rt->fanin.count);
    for (uint32_t i = 0; i < rt->fanin.count; i++)
        task_trace_add(t, now, TASK_EV_EDGE, 0, id,
                       (uint32_t)rt->slots[rt->fanin.producers[i] & ~TASK_DEP_DATA].id);
}

static void commit(tacit_task_runtime *rt, const tacit_task_desc *desc, uint64_t bytes,
                   size_t spill)
{
    uint64_t id = rt->next;
    uint32_t index = task_index(rt, id);
    bool manual = rt->depth && rt->scopes[rt->depth - 1].mode == TACIT_TASK_MANUAL;
    fill_slot(rt, desc, id, bytes, spill);
    if (!manual)
        task_map_commit(&rt->map, rt->regions, desc->param_count, (uint32_t)id);
    rt->token[index] = rt->depth > 0;
    if (UNLIKELY(task_tracing(rt) >= 2))
        trace_submit(rt, id);
    rt->next = id + 1;
    STORE(&rt->submitted, rt->next - rt->first_id, RELAXED);
    __builtin_prefetch(&rt->slots[(index + 12) & rt->mask], 1, 3);
    __builtin_prefetch(&rt->cold[(index + 12) & rt->mask], 1, 3);
    if (link_producers(rt, index))
        task_ready(rt, index);
    if (rt->held_count && ++rt->since_publish >= TASK_BATCH)
        task_publish(rt);
}

tacit_status tacit_task_submit(tacit_task_runtime *rt, const tacit_task_desc *desc,
                               tacit_task_id *id, tacit_error *err)
{
    uint64_t bytes;
    uint32_t records;
    TRY(task_check_owner(rt, err));
    TRY(task_check_desc(rt, desc, &bytes, &records, err));
    if (UNLIKELY(rt->recorder != NULL))
        return task_record_submit(rt, desc, id, err);
    TRY(find_producers(rt, desc, err));
    size_t spill = spill_bytes(rt, desc);
    bytes += spill;
    tacit_status status = task_reserve(rt, bytes, records, err);
    if (UNLIKELY(status != TACIT_OK)) {
        task_map_forget_covered(&rt->map);
        return status;
    }
    if (id)
        *id = rt->next;
    commit(rt, desc, bytes, spill);
    return TACIT_OK;
}

tacit_status tacit_task_complete(tacit_task_runtime *rt, tacit_task_id token, tacit_status status,
                                 tacit_error *err)
{
    uint32_t index = task_index(rt, token);
    uint64_t expected = token + 1;
    if ((unsigned)status >= TACIT_STATUS_COUNT)
        return error_set(err, TACIT_ERR_ARGUMENT, "token %" PRIu64 ": no such status", token);
    if (token >> 63)
        return task_async_complete(rt, token, status, err);
    /* Acquire: pairs with the launch, whose slot fields the completion reads. */
    if (!atomic_compare_exchange_strong_explicit(&rt->cold[index].token, &expected, 0, MO_SEAL,
                                                 RELAXED))
        return error_set(err, TACIT_ERR_STATE, "token %" PRIu64 " is not waiting for completion",
                         token);
    /* The task is unfinished, so the runtime still exists; destroy waits until we are out. */
    atomic_fetch_add_explicit(&rt->foreign_inside, 1, RELAXED);
    task_finish_foreign(rt, index, status);
    atomic_fetch_sub_explicit(&rt->foreign_inside, 1, MO_LEAVE);
    return TACIT_OK;
}
