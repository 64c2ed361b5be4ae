/* SPDX-License-Identifier: Apache-2.0
 * Serial elision: random programs over tiny rings must give every task exactly the input bytes it
 * would have had if the tasks had run one after the other in submit order, for any number of
 * workers, and must fail with a deadlock at the same submits.
 *
 * TACIT_FUZZ_TASKS sets how many tasks are run (default 1.1 million), TACIT_FUZZ_SEED the start. */
#include "base/rng.h"
#include "task/util.h"

enum { OPS = 400, PARAMS = 4, STORAGES = 3, BYTES = 512, LIVE = 24 };

typedef struct part {
    tacit_task_access access;
    int storage;     /* external, or -1 */
    int owner;       /* op that made it, or -1 */
    uint64_t offset; /* dense */
    uint64_t bytes;
    bool strided;
    tacit_task_view view;
    unsigned char *shadow; /* of the storage, in the sequential world */
} part;

typedef struct op {
    part parts[PARAMS];
    uint32_t count, spin;
    uint64_t salt, expected, got;
    bool dummy, skipped;
    unsigned char shadow[PARAMS][64]; /* of fresh outputs */
    _Atomic int runs;
} op;

typedef struct foreign {
    pthread_t thread;
    _Atomic uint64_t tail;
    uint64_t head;
    struct {
        tacit_task_value values[PARAMS];
        op *op;
        tacit_task_id token;
    } queue[OPS];
    _Atomic bool ready[OPS], stop, awake;
    tacit_task_runtime *rt;
} foreign;

static foreign away; /* the asynchronous backend */
static int64_t predicates[2] = {0, 1};

/* ---- what a task does --------------------------------------------------------------------- */

static void each_byte(const part *p, unsigned char *first, bool write, uint64_t *hash)
{
    uint64_t rows = 1, columns = p->bytes;
    int64_t stride = 0;
    if (p->strided) {
        rows = p->view.shape[0];
        stride = p->view.stride[0];
        columns = p->view.shape[1] * p->view.element;
    }
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++) {
            unsigned char *b = first + (int64_t)r * stride + (int64_t)c;
            if (write)
                *b = (unsigned char)((*hash >> (c % 57)) + r * 3 + c);
            else
                *hash = (*hash ^ *b) * 0x100000001b3u;
        }
}

static uint64_t work(const op *o, unsigned char *const *data)
{
    uint64_t hash = o->salt;
    for (uint32_t i = 0; i < o->count; i++)
        if (o->parts[i].access == TACIT_TASK_IN || o->parts[i].access == TACIT_TASK_INOUT)
            each_byte(&o->parts[i], data[i], false, &hash);
    uint64_t result = hash;
    for (uint32_t i = 0; i < o->count; i++)
        if (o->parts[i].access != TACIT_TASK_IN && o->parts[i].access != TACIT_TASK_NO_DEP)
            each_byte(&o->parts[i], data[i], true, &hash);
    return result;
}

static void perform(op *o, const tacit_task_value *values)
{
    unsigned char *data[PARAMS];
    for (uint32_t i = 0; i < o->count; i++)
        data[i] = values[i].data;
    for (volatile uint32_t s = 0; s < o->spin % 64; s++)
        ;
    if (o->spin % 61 == 0)
        sched_yield();
    o->got = work(o, data);
    atomic_fetch_add(&o->runs, 1);
}

static tacit_status op_run(const tacit_task_call *call)
{
    perform(call->user, call->values);
    return TACIT_OK;
}

static tacit_status op_launch(const tacit_task_call *call)
{
    op *o = call->user;
    uint64_t at = atomic_fetch_add(&away.tail, 1) % OPS;
    memcpy(away.queue[at].values, call->values, o->count * sizeof *call->values);
    away.queue[at].op = o;
    away.queue[at].token = call->id;
    atomic_store(&away.ready[at], true);
    return TACIT_OK;
}

static void *away_main(void *unused)
{
    (void)unused;
    for (;;) {
        uint64_t at = away.head % OPS;
        if (!atomic_load(&away.ready[at])) {
            if (atomic_load(&away.stop))
                return NULL;
            if (!atomic_load(&away.awake))
                usleep(500); /* rounds without asynchronous tasks */
            sched_yield();
            continue;
        }
        atomic_store(&away.ready[at], false);
        away.head++;
        perform(away.queue[at].op, away.queue[at].values);
        if (tacit_task_complete(away.rt, away.queue[at].token, TACIT_OK, NULL) != TACIT_OK)
            abort();
    }
}

static const tacit_task_kernel kernels[] = {
    {op_run, "cube", TACIT_TASK_CUBE},
    {op_run, "vector", TACIT_TASK_VECTOR},
    {op_run, "cpu", TACIT_TASK_AI_CPU},
    {op_launch, "away", TACIT_TASK_ACCELERATOR},
};

/* ---- programs ----------------------------------------------------------------------------- */

typedef struct world {
    unsigned char real[STORAGES][BYTES], shadow[STORAGES][BYTES];
    op ops[OPS];
    tacit_task_id ids[OPS];
    struct {
        tacit_task_buffer buffer;
        int op, depth;
        unsigned char *shadow;
    } live[LIVE];
    uint32_t live_count, depth, count;
    uint64_t deadlocks; /* hash of the submits that were refused */
    rng r;
} world;

static uint64_t below(world *w, uint64_t n)
{
    return rng_below(&w->r, n);
}

static void random_region(world *w, part *p, uint64_t size)
{
    p->strided = size >= 256 && below(w, 4) == 0;
    if (p->strided) { /* a box of a 16-byte wide, or a 32-byte wide matrix */
        int64_t width = below(w, 2) ? 16 : 32;
        uint64_t rows = 1 + below(w, 4), columns = 1 + below(w, (uint64_t)width / 2);
        uint64_t row = below(w, size / (uint64_t)width - rows + 1);
        uint64_t column = below(w, (uint64_t)width - columns + 1);
        p->view = (tacit_task_view){.offset = row * (uint64_t)width + column,
                                    .rank = 2,
                                    .element = 1,
                                    .shape = {rows, columns},
                                    .stride = {width, 1}};
        if (below(w, 4) == 0) { /* upside down */
            p->view.offset += (rows - 1) * (uint64_t)width;
            p->view.stride[0] = -width;
        }
        return;
    }
    uint64_t grain = below(w, 3) ? 32 : 5;
    p->bytes = (1 + below(w, 2)) * grain;
    if (p->bytes > size)
        p->bytes = size;
    p->offset = below(w, (size - p->bytes) / grain + 1) * grain;
    if (p->offset + p->bytes > size)
        p->offset = size - p->bytes;
}

static tacit_task_param make_part(world *w, op *o, uint32_t i, tacit_task_buffer *fresh,
                                  tacit_task_buffer *storages, tacit_task_view *views)
{
    part *p = &o->parts[i];
    *p = (part){.storage = -1, .owner = -1};
    uint64_t pick = below(w, 10);
    if (pick == 0 && w->depth && w->live_count < LIVE - PARAMS) {
        p->access = TACIT_TASK_NEW;
        p->bytes = 8 + below(w, 56);
        p->shadow = o->shadow[i];
        return tacit_task_new(&fresh[i], p->bytes);
    }
    p->access = pick < 5 ? TACIT_TASK_IN : pick < 8 ? TACIT_TASK_OUT : TACIT_TASK_INOUT;
    tacit_task_buffer *b;
    if (w->live_count && below(w, 3) == 0) {
        uint32_t k = (uint32_t)below(w, w->live_count);
        b = &w->live[k].buffer;
        p->owner = w->live[k].op;
        p->shadow = w->live[k].shadow;
    } else {
        p->storage = (int)below(w, STORAGES);
        b = &storages[p->storage];
        p->shadow = w->shadow[p->storage];
    }
    random_region(w, p, b->bytes);
    if (p->strided) {
        views[i] = p->view;
        return tacit_task_box(p->access, b, &views[i]);
    }
    return tacit_task_part(p->access, b, p->offset, p->bytes);
}

/* What the task computes in the sequential world. */
static void elide(op *o)
{
    unsigned char *data[PARAMS];
    for (uint32_t i = 0; i < o->count; i++)
        data[i] = o->parts[i].shadow +
                  (o->parts[i].strided ? o->parts[i].view.offset : o->parts[i].offset);
    if (!o->dummy && !o->skipped)
        o->expected = work(o, data);
}

static void forget(world *w, uint32_t depth)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->live_count; i++)
        if (w->live[i].depth <= (int)depth)
            w->live[kept++] = w->live[i];
    w->live_count = kept;
}

static void scope_step(world *w, tacit_task_runtime *rt)
{
    uint64_t pick = below(w, 12);
    if (pick == 0 && w->depth < 3) {
        scope(rt, "fuzz");
        w->depth++;
    } else if (pick <= 1 && w->depth) {
        end(rt);
        forget(w, --w->depth);
    } else if (pick == 2 && w->live_count) {
        uint32_t k = (uint32_t)below(w, w->live_count);
        tacit_task_id id = w->live[k].buffer.owner;
        OK(tacit_task_free(rt, id, &err));
        uint32_t kept = 0;
        for (uint32_t i = 0; i < w->live_count; i++)
            if (w->live[i].buffer.owner != id)
                w->live[kept++] = w->live[i];
        w->live_count = kept;
    }
}

static void step(world *w, tacit_task_runtime *rt, tacit_task_buffer *storages, int types)
{
    uint32_t n = w->count;
    op *o = &w->ops[n];
    tacit_task_buffer fresh[PARAMS];
    tacit_task_view views[PARAMS];
    tacit_task_param params[PARAMS];
    tacit_task_id deps[3];
    *o = (op){.count = (uint32_t)below(w, PARAMS + 1),
              .spin = (uint32_t)rng_u64(&w->r),
              .salt = rng_u64(&w->r)};
    for (uint32_t i = 0; i < o->count; i++)
        params[i] = make_part(w, o, i, fresh, storages, views);
    uint32_t dep_count = n ? (uint32_t)below(w, 4) * (below(w, 3) == 0) : 0;
    for (uint32_t i = 0; i < dep_count; i++)
        deps[i] = w->ids[below(w, n)];
    uint64_t pick = below(w, 40);
    bool fresh_output = false;
    for (uint32_t i = 0; i < o->count; i++)
        fresh_output |= o->parts[i].access == TACIT_TASK_NEW;
    o->dummy = pick == 0 && !fresh_output;
    bool predicated = pick < 4 && !o->dummy && !fresh_output;
    o->skipped = predicated && pick < 2;
    tacit_task_desc d = {.kernel = &kernels[below(w, (uint64_t)types)],
                         .user = o,
                         .params = params,
                         .param_count = o->count,
                         .deps = deps,
                         .dep_count = dep_count,
                         .dummy = o->dummy,
                         .predicate = predicated ? &predicates[!o->skipped] : NULL};
    for (;;) {
        tacit_status s = tacit_task_submit(rt, &d, &w->ids[n], &err);
        if (s == TACIT_OK)
            break;
        assert_int_equal(s, TACIT_ERR_DEADLOCK);
        assert_true(w->depth > 0);
        w->deadlocks = w->deadlocks * 1000003 + n + 1;
        end(rt); /* gives back what was pinned */
        forget(w, --w->depth);
        for (uint32_t i = 0; i < o->count; i++) /* its inputs may be gone: a task without any */
            if (o->parts[i].owner >= 0 || (o->parts[i].access == TACIT_TASK_NEW && !w->depth))
                d.param_count = o->count = 0;
    }
    for (uint32_t i = 0; i < o->count; i++)
        if (o->parts[i].access == TACIT_TASK_NEW) {
            uint32_t k = w->live_count++;
            w->live[k].buffer = fresh[i];
            w->live[k].op = (int)n;
            w->live[k].depth = (int)w->depth;
            w->live[k].shadow = o->shadow[i];
        }
    elide(o);
    w->count++;
}

static void verify(world *w)
{
    for (uint32_t i = 0; i < w->count; i++) {
        op *o = &w->ops[i];
        assert_int_equal(atomic_load(&o->runs), !o->dummy && !o->skipped);
        if (!o->dummy && !o->skipped && o->got != o->expected)
            fail_msg("task %u of the program saw other bytes than in sequence", i);
    }
    for (int s = 0; s < STORAGES; s++)
        assert_memory_equal(w->real[s], w->shadow[s], BYTES);
}

/* One runtime, several programs; returns a hash of where deadlocks were reported. */
static uint64_t round_of(world *w, uint64_t seed, uint32_t threads, bool typed, uint32_t programs)
{
    rng r = rng_seed(seed);
    static const uint8_t masks[8] = {0x7, 0xb, 0x3, 0x9, 0xf, 0x1, 0x2, 0xf};
    tacit_task_config c = {.threads = threads,
                           .window =
                               2u << (rng_below(&r, 4) ? 3 + rng_below(&r, 3) : rng_below(&r, 4)),
                           .heap_bytes = 256 + 64 * rng_below(&r, 30),
                           .dependences = (uint32_t)(12 + rng_below(&r, 60)),
                           .records = (uint32_t)(8 + rng_below(&r, 120)),
                           .spare_slot = rng_below(&r, 2),
                           .eager = rng_below(&r, 4) == 0,
                           .oversubscribe = true,
                           .first_id = rng_below(&r, 2) ? ((uint64_t)1 << 32) - 500 : 0};
    uint64_t hash = 0;
    if (typed)
        c.type_mask = masks;
    int types = typed && threads > 1 ? 4 : 3;
    tacit_task_runtime *rt = make(c);
    away.rt = rt;
    atomic_store(&away.awake, types == 4);
    tacit_task_buffer storages[STORAGES];
    for (uint32_t p = 0; p < programs; p++) {
        memset(w->real, 0, sizeof w->real);
        memset(w->shadow, 0, sizeof w->shadow);
        w->live_count = w->depth = w->count = 0;
        w->deadlocks = 0;
        w->r = rng_seed(seed * 1000 + p);
        for (int s = 0; s < STORAGES; s++)
            storages[s] = tacit_task_memory(w->real[s], BYTES);
        while (w->count < OPS) {
            scope_step(w, rt);
            step(w, rt, storages, types);
        }
        while (w->depth) {
            end(rt);
            w->depth--;
        }
        OK(tacit_task_wait_all(rt, &err));
        verify(w);
        tacit_task_stats s;
        tacit_task_stats_get(rt, &s);
        assert_int_equal(s.first_alive, s.next);
        assert_int_equal(s.resource[TACIT_TASK_RING_HEAP].used, 0);
        assert_int_equal(s.resource[TACIT_TASK_RING_DEPENDENCES].used, 0);
        hash = hash * 31 + w->deadlocks;
    }
    tacit_task_destroy(rt);
    return hash;
}

static uint64_t setting(const char *name, uint64_t standard)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : standard;
}

static void programs_equal_their_serial_elision(void **state)
{
    (void)state;
    uint64_t tasks = setting("TACIT_FUZZ_TASKS", 1100000), done = 0, deadlocking = 0;
    uint64_t seed = setting("TACIT_FUZZ_SEED", 1);
    world *w = calloc(1, sizeof *w);
    pthread_create(&away.thread, NULL, away_main, NULL);
    for (; done < tasks; seed++) {
        /* Same seed, so same program and same rings, whatever the number of workers. */
        uint64_t serial = round_of(w, seed, 1, false, 4);
        for (uint32_t k = 0; k < 3; k++) {
            /* Often two workers, which is quick here, and each number up to eight in turn. */
            uint32_t threads = k < 2 ? 2 : 2 + (uint32_t)seed % 7;
            assert_int_equal(round_of(w, seed, threads, false, 4), serial);
        }
        round_of(w, seed, seed % 4 ? 2 : 2 + (uint32_t)seed % 7, true, 4);
        deadlocking += serial != 0;
        done += 5 * 4 * OPS;
    }
    atomic_store(&away.stop, true);
    pthread_join(away.thread, NULL);
    printf("%" PRIu64 " tasks, %" PRIu64 " sets of programs with deadlocks\n", done, deadlocking);
    assert_true(deadlocking > 0);
    free(w);
}

int main(void)
{
    unused_helpers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_equal_their_serial_elision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
