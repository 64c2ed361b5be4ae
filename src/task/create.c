/* SPDX-License-Identifier: Apache-2.0
 * Making and unmaking a runtime. This is the only place that allocates for it. */
#include <string.h>

#include "base/thread.h"
#include "task/task.h"

enum {
    DEFAULT_WINDOW = 4096,
    DEFAULT_TRACE = 65536,
    SPIN_US = 50,
    RUN_SPIN_US = 1000, /* while a graph is being run */
    BATCH_NS = 5000,
    SMALL_NS = 120
};
#define DEFAULT_HEAP ((uint64_t)64 << 20)

typedef tacit_task_runtime runtime;

static bool power_of_two(uint64_t n)
{
    return n && (n & (n - 1)) == 0;
}

static tacit_status check_config(tacit_task_config *c, tacit_error *err)
{
    if (!c->threads)
        c->threads = cpu_count() < TACIT_TASK_MAX_WORKERS ? cpu_count() : TACIT_TASK_MAX_WORKERS;
    if (!c->window)
        c->window = DEFAULT_WINDOW;
    if (!c->heap_bytes)
        c->heap_bytes = DEFAULT_HEAP;
    if (c->threads > TACIT_TASK_MAX_WORKERS)
        return error_set(err, TACIT_ERR_LIMIT, "%u threads asked for, the most is %d", c->threads,
                         TACIT_TASK_MAX_WORKERS);
    if (!power_of_two(c->window) || c->window < 2 || c->window > (1u << 24))
        return error_set(err, TACIT_ERR_ARGUMENT,
                         "window %u: must be a power of two from 2 to 2^24", c->window);
    if (c->heap_bytes > ((uint64_t)1 << 46))
        return error_set(err, TACIT_ERR_LIMIT, "heap of %llu bytes is too large",
                         (unsigned long long)c->heap_bytes);
    if (c->first_id >> 47)
        return error_set(err, TACIT_ERR_LIMIT, "first id must be below 2^47");
    if (c->trace_level > 3)
        return error_set(err, TACIT_ERR_ARGUMENT, "trace level %u: 0 to 3", c->trace_level);
    c->heap_bytes = align_up(c->heap_bytes, TACIT_TASK_ALIGN);
    if (!c->dependences)
        c->dependences = c->window * 8;
    if (!c->records)
        c->records = c->window * 8;
    if (c->dependences > (1u << 30) || c->records > (1u << 27))
        return error_set(err, TACIT_ERR_LIMIT, "%u dependences, %u records: too many",
                         c->dependences, c->records);
    uint32_t trace = 2;
    while (trace < (c->trace_records ? c->trace_records : DEFAULT_TRACE) && trace < (1u << 26))
        trace *= 2;
    c->trace_records = trace;
    return TACIT_OK;
}

/* Types with the same set of servers share queues; in the usual case that leaves one class. */
static void make_classes(runtime *rt, const tacit_task_config *c)
{
    uint64_t servers[TACIT_TASK_TYPES] = {0}, all = 0;
    for (uint32_t w = 0; w < c->threads; w++)
        for (int t = 0; t < TACIT_TASK_TYPES; t++)
            if (!c->type_mask || (c->type_mask[w] >> t & 1))
                servers[t] |= (uint64_t)1 << w;
    for (uint32_t w = 0; w < c->threads; w++)
        all |= (uint64_t)1 << w;
    rt->uniform = true;
    rt->dummy_type = TACIT_TASK_CUBE;
    for (int t = TACIT_TASK_TYPES - 1; t >= 0; t--) {
        rt->served[t] = servers[t] != 0;
        rt->uniform &= servers[t] == all || servers[t] == 0;
        if (servers[t] && (!servers[rt->dummy_type] || t < (int)rt->dummy_type))
            rt->dummy_type = (tacit_task_type)t;
    }
    for (int t = 0; t < TACIT_TASK_TYPES; t++) {
        int same = 0;
        while (same < t && servers[same] != servers[t])
            same++;
        rt->class_of[t] = same < t ? rt->class_of[same] : (uint8_t)rt->class_count++;
        for (uint32_t w = 0; w < c->threads; w++)
            if (servers[t] >> w & 1)
                rt->workers[w].classes |= 1u << rt->class_of[t];
    }
}

static void find_generalists(runtime *rt)
{
    uint32_t all = 0;
    for (int t = 0; t < TACIT_TASK_TYPES; t++)
        if (rt->served[t])
            all |= 1u << rt->class_of[t];
    for (uint32_t w = 0; w < rt->threads; w++)
        rt->workers[w].generalist = (rt->workers[w].classes & all) == all;
}

static void calibrate(runtime *rt)
{
#if defined(__x86_64__) || defined(__aarch64__)
    uint64_t ns = clock_ns(), ticks = task_ticks(), now;
    do {
        now = clock_ns();
    } while (now - ns < 100000);
    rt->ticks_per_ns = (double)(task_ticks() - ticks) / (double)(now - ns);
#else
    rt->ticks_per_ns = 1;
#endif
    rt->spin_ticks = (uint64_t)(SPIN_US * 1000 * rt->ticks_per_ns);
    rt->run_spin_ticks = (uint64_t)(RUN_SPIN_US * 1000 * rt->ticks_per_ns);
    rt->stint_ticks = (uint64_t)((double)task_stint_ns() * rt->ticks_per_ns);
    rt->batch_ticks = rt->eager ? 0 : (uint64_t)(BATCH_NS * rt->ticks_per_ns);
    rt->inline_ticks = (uint32_t)(SMALL_NS * rt->ticks_per_ns);
    rt->inline_below = rt->uniform && !rt->eager ? rt->inline_ticks - 1 : 0;
}

static bool alloc_rings(runtime *rt)
{
    const tacit_allocator *a = rt->allocator;
    size_t w = rt->window;
    rt->slots = mem_alloc_zero(a, w * sizeof *rt->slots);
    rt->cold = mem_alloc_zero(a, w * sizeof *rt->cold);
    rt->flags = mem_alloc_zero(a, w);
    rt->token = mem_alloc_zero(a, w * sizeof *rt->token);
    rt->deps = mem_alloc_zero(a, ((size_t)rt->dep_capacity + 1) * sizeof *rt->deps);
    rt->fanin.seen = mem_alloc_zero(a, w * sizeof *rt->fanin.seen);
    rt->fanin.producers = mem_alloc_zero(a, w * sizeof *rt->fanin.producers);
    unsigned char *heap = mem_alloc(a, rt->heap.size);
    if (heap)
        task_heap_open(&rt->heap, heap, rt->heap.size);
    return rt->slots && rt->cold && rt->flags && rt->token && rt->deps && rt->fanin.seen &&
           rt->fanin.producers && heap;
}

static bool alloc_queues(runtime *rt, const tacit_task_config *c)
{
    const tacit_allocator *a = rt->allocator;
    size_t bytes = rt->window * sizeof(uint32_t);
    bool ok = true;
    for (uint32_t k = 0; k < rt->class_count; k++) {
        rt->inject[k].mask = rt->shared[k].mask = rt->mask;
        ok &= (rt->inject[k].items = mem_alloc_zero(a, bytes)) != NULL;
        ok &= (rt->shared[k].cells = mem_alloc_zero(a, rt->window * sizeof(task_cell))) != NULL;
        for (uint32_t i = 0; ok && i < rt->window; i++)
            STORE(&rt->shared[k].cells[i].turn, i, RELAXED);
        for (uint32_t w = 0; w < rt->threads; w++) {
            rt->workers[w].deque[k].mask = rt->mask;
            ok &= (rt->workers[w].deque[k].items = mem_alloc_zero(a, bytes)) != NULL;
        }
    }
    for (uint32_t w = 0; w < rt->threads; w++) {
        task_trace *t = &rt->workers[w].trace;
        t->mask = c->trace_records - 1;
        ok &= (t->words = mem_alloc(a, c->trace_records * sizeof(task_trace_record))) != NULL;
    }
    return ok;
}

static void release_all(runtime *rt)
{
    const tacit_allocator *a = rt->allocator;
    size_t w = rt->window, bytes = w * sizeof(uint32_t);
    if (rt->heap.memory) {
        task_heap_close(&rt->heap);
        mem_release(a, rt->heap.memory, rt->heap.size);
    }
    for (uint32_t k = 0; k < rt->class_count; k++) {
        mem_release(a, (void *)rt->inject[k].items, bytes);
        mem_release(a, rt->shared[k].cells, w * sizeof(task_cell));
        for (uint32_t i = 0; i < rt->threads; i++)
            mem_release(a, (void *)rt->workers[i].deque[k].items, bytes);
    }
    for (uint32_t i = 0; i < rt->threads; i++) {
        task_trace *t = &rt->workers[i].trace;
        mem_release(a, (void *)t->words, ((size_t)t->mask + 1) * sizeof(task_trace_record));
    }
    if (rt->map.records)
        task_map_free(&rt->map);
    mem_release(a, rt->slots, w * sizeof *rt->slots);
    mem_release(a, rt->cold, w * sizeof *rt->cold);
    mem_release(a, (void *)rt->flags, w);
    mem_release(a, rt->token, w * sizeof *rt->token);
    mem_release(a, rt->deps, ((size_t)rt->dep_capacity + 1) * sizeof *rt->deps);
    mem_release(a, rt->fanin.seen, w * sizeof *rt->fanin.seen);
    mem_release(a, rt->fanin.producers, w * sizeof *rt->fanin.producers);
    mem_release(a, rt->workers, rt->threads * sizeof *rt->workers);
    mem_release(a, rt, sizeof *rt);
}

static void stop_workers(runtime *rt, uint32_t started)
{
    STORE(&rt->stop, true, RELAXED); /* carries nothing; RING shows it to sleepers */
    task_wake_all(rt);
    for (uint32_t i = 1; i < started; i++)
        pthread_join(rt->workers[i].thread, NULL);
}

static tacit_status start_workers(runtime *rt, tacit_error *err)
{
    for (uint32_t i = 1; i < rt->threads; i++) {
        task_worker *w = &rt->workers[i];
        if (!thread_start(&w->thread, NULL, task_worker_main, w)) {
            stop_workers(rt, i);
            return error_set(err, TACIT_ERR_MEMORY, "could not start worker thread %u", i);
        }
    }
    return TACIT_OK;
}

static void init_fields(runtime *rt, const tacit_task_config *c)
{
    rt->window = c->window;
    rt->mask = c->window - 1;
    rt->bits = (uint32_t)__builtin_ctz(c->window);
    rt->capacity = c->window - (c->spare_slot ? 1 : 0);
    rt->dep_capacity = c->dependences;
    rt->heap.size = c->heap_bytes;
    rt->eager = c->eager;
    rt->idle = c->idle;
    STORE(&rt->trace_level, c->trace_level, RELAXED);
    rt->owner = task_thread();
    rt->first_id = rt->next = rt->pin = c->first_id;
    rt->asymmetric = task_park_setup();
    STORE(&rt->first_failure, UINT64_MAX, RELAXED);
    STORE(&rt->stall, TACIT_TASK_RESOURCES, RELAXED);
    for (uint32_t i = 0; i < rt->threads; i++) {
        rt->workers[i].index = i;
        rt->workers[i].victim = i;
        rt->workers[i].rt = rt;
    }
}

static void init_slots(runtime *rt)
{
    rt->fanin.tail = rt->first_id;
    rt->fanin.mask = rt->mask;
    rt->fanin.words = &rt->slots[0].word;
    rt->fanin.failures = &rt->failures;
    /* As if the lap before the first had been consumed. */
    for (uint32_t i = 0; i < rt->window; i++) {
        STORE(&rt->slots[i].word, (uint64_t)TASK_SEALED << 32, RELAXED);
        STORE(&rt->flags[i], 0, RELAXED);
    }
}

tacit_status tacit_task_create(const tacit_task_config *config, tacit_task_runtime **out,
                               tacit_error *err)
{
    tacit_task_config c = config ? *config : (tacit_task_config){0};
    *out = NULL;
    TRY(check_config(&c, err));
    const tacit_allocator *a = alloc_or_default(c.allocator);
    runtime *rt = mem_alloc_zero(a, sizeof *rt);
    if (!rt)
        return error_memory(err, "a task runtime");
    rt->allocator = a;
    rt->workers = mem_alloc_zero(a, c.threads * sizeof *rt->workers);
    if (!rt->workers) {
        mem_release(a, rt, sizeof *rt);
        return error_memory(err, "the task runtime's workers");
    }
    rt->threads = c.threads;
    make_classes(rt, &c);
    find_generalists(rt);
    init_fields(rt, &c);
    uint32_t cpus = cpu_count();
    if (rt->uniform && !c.oversubscribe && rt->threads > cpus)
        rt->surplus = rt->threads - cpus;
    calibrate(rt);
    tacit_status status;
    if (!alloc_rings(rt) || !alloc_queues(rt, &c)) {
        release_all(rt);
        return error_memory(err, "the task runtime's rings");
    }
    init_slots(rt);
    for (uint32_t i = 0; i < rt->threads; i++)
        rt->workers[i].trace.start = task_ticks();
    TRY_GOTO(task_map_init(&rt->map, a, &rt->fanin, c.records, err), fail);
    TRY_GOTO(start_workers(rt, err), fail);
    *out = rt;
    return TACIT_OK;
fail:
    release_all(rt);
    return status;
}

void tacit_task_destroy(tacit_task_runtime *rt)
{
    if (!rt)
        return;
    rt->owner = task_thread();
    task_record_cancel(rt);
    (void)!tacit_task_wait_all(rt, NULL);
    while (LOAD(&rt->foreign_inside, MO_LEFT))
        TASK_PAUSE();
    stop_workers(rt, rt->threads);
    release_all(rt);
}

tacit_status tacit_task_adopt(tacit_task_runtime *rt, tacit_error *err)
{
    if (rt->depth || rt->recorder || task_executed(rt) != rt->next - rt->first_id)
        return error_set(err, TACIT_ERR_STATE, "cannot change the orchestrator: %s",
                         rt->depth ? "a scope is open" : "tasks are in flight");
    rt->owner = task_thread();
    return TACIT_OK;
}

uint32_t tacit_task_threads(const tacit_task_runtime *rt)
{
    return rt->threads;
}
