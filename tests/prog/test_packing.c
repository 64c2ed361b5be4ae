/* SPDX-License-Identifier: Apache-2.0
 * Packing beside everything else: every job runs once, those of a node are over when it is needed,
 * second ones come after the others of their node, whoever asks and however many ask. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/rng.h"
#include "base/thread.h"
#include "prog/packing.h"

enum { NODES = 60, MOST_JOBS = 9, CALLERS = 3, ELEMENTS = 40000 };

typedef struct ledger {
    atomic_uint done[NODES], early[NODES], runs[NODES * MOST_JOBS];
    atomic_bool wrong;
} ledger;

typedef struct args {
    const float *weight;
    ledger *book;
    uint32_t node, job, early; /* early: jobs that must be done before this one */
} args;

static void note(const void *context, uint32_t begin, uint32_t end)
{
    const args *a = context;
    ledger *l = a->book;
    float sum = 0;
    for (int i = 0; i < ELEMENTS; i++)
        sum += a->weight[i];
    bool right = begin == 3 && end == 5 && sum == (float)ELEMENTS;
    if (!right || (a->early && atomic_load(&l->early[a->node]) != a->early))
        atomic_store(&l->wrong, true);
    atomic_fetch_add(&l->runs[a->job], 1);
    if (!a->early)
        atomic_fetch_add(&l->early[a->node], 1);
    atomic_fetch_add(&l->done[a->node], 1);
}

typedef struct setup {
    arena memory;
    ledger book;
    op_jobs jobs;
    uint32_t first[NODES + 1];
    op_lower lower;
    prog_packing *packing;
} setup;

/* Nodes with none to several jobs; of some the last ones are second. */
static void start(setup *s, uint64_t seed, bool wait)
{
    memset(s, 0, sizeof *s);
    arena_init(&s->memory, NULL);
    rng r = rng_seed(seed);
    ir_shape shape = ir_shape_of(1, (int64_t[]){ELEMENTS});
    ir_tensor *w = ir_tensor_new(&s->memory, TACIT_F32, &shape);
    assert_non_null(w);
    for (int i = 0; i < ELEMENTS; i++)
        ((float *)w->data)[i] = 1;
    for (uint32_t n = 0; n < NODES; n++) {
        s->first[n] = s->jobs.count;
        uint32_t early = (uint32_t)rng_below(&r, 6);
        uint32_t late = early && rng_below(&r, 2) ? (uint32_t)rng_below(&r, 4) : 0;
        bool ahead = rng_below(&r, 5) == 0;
        for (uint32_t i = 0; i < early + late; i++) {
            args a = {NULL, &s->book, n, s->jobs.count, i < early ? 0 : early};
            op_job job = {.fn = note,
                          .args = arena_copy(&s->memory, &a, sizeof a),
                          .args_size = sizeof a,
                          .begin = 3,
                          .end = 5,
                          .weight = w,
                          .field = offsetof(args, weight),
                          .bytes = w->bytes,
                          .second = i >= early,
                          .ahead = ahead};
            assert_true(job.args && vec_push(&s->memory, &s->jobs, job));
        }
    }
    s->first[NODES] = s->jobs.count;
    tacit_error err = {0};
    assert_int_equal(
        prog_packing_start(&s->lower, &s->jobs, s->first, NODES, wait, &s->packing, &err),
        TACIT_OK);
}

static void all_ran_once(setup *s)
{
    assert_false(atomic_load(&s->book.wrong));
    for (uint32_t i = 0; i < s->jobs.count; i++)
        assert_int_equal(atomic_load(&s->book.runs[i]), 1);
}

static void end(setup *s)
{
    prog_packing_free(s->packing);
    arena_free(&s->memory);
}

static bool node_is_done(setup *s, uint32_t n)
{
    return atomic_load(&s->book.done[n]) == s->first[n + 1] - s->first[n];
}

static void a_node_is_there_when_it_is_needed(void **state)
{
    (void)state;
    static setup s;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        start(&s, seed, false);
        rng r = rng_seed(seed + 100);
        for (int i = 0; s.packing && i < NODES; i++) { /* not in their order */
            uint32_t n = (uint32_t)rng_below(&r, NODES);
            prog_packing_need(s.packing, n);
            assert_true(node_is_done(&s, n));
        }
        prog_packing_finish(s.packing);
        assert_false(prog_packing_goes_on(s.packing));
        prog_packing_finish(s.packing); /* again does nothing */
        all_ran_once(&s);
        end(&s);
    }
}

typedef struct caller {
    setup *s;
    atomic_bool wrong;
    pthread_t thread;
} caller;

static void *run_all(void *context)
{
    caller *c = context;
    for (uint32_t n = 0; n < NODES; n++) {
        prog_packing_need(c->s->packing, n);
        if (!node_is_done(c->s, n))
            atomic_store(&c->wrong, true);
    }
    prog_packing_finish(c->s->packing);
    return NULL;
}

static void several_may_need_it_at_a_time(void **state)
{
    (void)state;
    static setup s;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        start(&s, seed, false);
        caller all[CALLERS] = {0};
        for (int i = 0; s.packing && i < CALLERS; i++) {
            all[i].s = &s;
            assert_int_equal(pthread_create(&all[i].thread, NULL, run_all, &all[i]), 0);
        }
        for (int i = 0; s.packing && i < CALLERS; i++) {
            assert_int_equal(pthread_join(all[i].thread, NULL), 0);
            assert_false(atomic_load(&all[i].wrong));
        }
        all_ran_once(&s);
        end(&s);
    }
}

static void it_may_be_waited_for_or_left(void **state)
{
    (void)state;
    static setup s;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        start(&s, seed, true);
        assert_null(s.packing);
        all_ran_once(&s);
        end(&s);
        start(&s, seed, false);
        end(&s); /* at once */
        assert_false(atomic_load(&s.book.wrong));
    }
}

/* Are all pages there, within a minute? */
static bool become_present(void *memory, size_t bytes)
{
    size_t pages = bytes / (size_t)sysconf(_SC_PAGESIZE);
    unsigned char there[4096];
    assert_true(pages <= sizeof there);
    for (int tries = 0; tries < 60000; tries++) {
        size_t count = 0;
        assert_int_equal(mincore(memory, bytes, there), 0);
        for (size_t i = 0; i < pages; i++)
            count += there[i] & 1;
        if (count == pages)
            return true;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return false;
}

static void *fresh(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* Most of what kernels use of the stack, below this frame, page by page. */
static char *stack_pages(size_t *bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), here = (uintptr_t)__builtin_frame_address(0);
    *bytes = 256 << 10;
    return (char *)__builtin_frame_address(0) - here % page - *bytes;
}

static void pages_of_mapped_weights_are_fetched(void **state)
{
    (void)state;
    enum { WEIGHTS = 5 << 20, ARENA = 3 << 20 };
    static op_lower lower;
    for (int leave = 0; leave < 4; leave++) {
        void *weights = fresh(WEIGHTS), *arena_bytes = fresh(ARENA);
        prog_packing *k;
        tacit_error err = {0};
        assert_int_equal(prog_packing_fetch(&lower, weights, WEIGHTS, NODES, &k, &err), TACIT_OK);
        if (k && leave) { /* else it is freed at once */
            assert_true(prog_packing_goes_on(k));
            prog_packing_need(k, NODES - 1);
            prog_packing_touch(k, arena_bytes, ARENA);
        }
#if defined(MADV_POPULATE_READ)
        if (k && leave >= 2)
            assert_true(become_present(arena_bytes, ARENA) && become_present(weights, WEIGHTS));
        size_t stack;
        char *lowest = stack_pages(&stack);
        if (k && leave >= 2 && thread_stack_left() > 4 * stack)
            assert_true(become_present(lowest, stack));
#endif
        if (k && leave == 3)
            prog_packing_forget(k);
        else
            prog_packing_finish(k);
        prog_packing_free(k);
        munmap(weights, WEIGHTS);
        munmap(arena_bytes, ARENA);
    }
}

typedef struct drops {
    const char *begin[8], *end[8];
    uint32_t count;
} drops;

static void note_drop(void *owner, const void *data, size_t bytes)
{
    drops *d = owner;
    assert_true(d->count < 8);
    d->begin[d->count] = data;
    d->end[d->count++] = (const char *)data + bytes;
}

static void nothing(const void *context, uint32_t begin, uint32_t end)
{
    (void)context, (void)begin, (void)end;
}

/* Parts near each other go in one piece, of a megabyte or more; others apart. */
static void what_was_read_goes_in_large_pieces(void **state)
{
    (void)state;
    enum { PART = 200 << 10, ALL = 4 << 20 };
    drops d = {0};
    op_lower lower = {.drop = note_drop, .owner = &d};
    char *bytes = fresh(ALL);
    const void *address = NULL;
    ir_tensor w = {.data = bytes, .bytes = ALL};
    op_room room = {0};
    op_job job = {.fn = nothing, .args = &address, .weight = &w, .bytes = PART};
    static const size_t first[] = {0,
                                   PART,
                                   2 * PART + 30000,
                                   3 * PART + 30000, /* 4 and a gap */
                                   4 * PART + 30000,
                                   3 << 20,
                                   (3 << 20) - 2 * PART};
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        job.first = first[i];
        op_job_run(&lower, &job, &room);
        assert_int_equal(d.count, i < 4 ? 0 : i < 6 ? 1 : 2);
    }
    op_room_close(&lower, &room);
    op_room_close(&lower, &room); /* again does nothing */
    assert_int_equal(d.count, 3);
    assert_true(d.begin[0] == bytes && d.end[0] == bytes + 5 * PART + 30000);
    assert_true(d.begin[1] == bytes + (3 << 20) && d.end[1] == d.begin[1] + PART);
    assert_true(d.begin[2] == bytes + (3 << 20) - 2 * PART && d.end[2] == d.begin[2] + PART);
    munmap(bytes, ALL);
}

typedef struct turn {
    const float *weight;
    uint32_t *count, *turn; /* nodes in the order of their jobs */
    uint32_t node;
} turn;

static void note_turn(const void *context, uint32_t begin, uint32_t end)
{
    const turn *t = context;
    (void)begin, (void)end;
    t->turn[(*t->count)++] = t->node;
}

/* Jobs whose weight stays resident until all of them are done come where others have twice as much
 * to pack behind them, those of a node together, others in their order. */
static void large_weights_come_early(void **state)
{
    (void)state;
    enum { ALL = 12 };
    static const size_t bytes[ALL] = {10, 20, 0, 10, 10, 10, 10, 30, 10, 10, 10, 10};
    static const bool ahead[ALL] = {[1] = true, [7] = true, [11] = true};
    /* Others have 60 bytes from node 4 on, 20 from 9 on; node 1 has more than enough behind it. */
    static const uint32_t want[] = {0, 1, 1, 3, 7, 7, 4, 5, 6, 8, 11, 11, 9, 10};
    uint32_t order[2 * ALL], count = 0, first[ALL + 1];
    arena memory;
    arena_init(&memory, NULL);
    op_jobs jobs = {0};
    float one = 1;
    ir_tensor w = {.data = &one, .bytes = sizeof one};
    for (uint32_t n = 0; n < ALL; n++) {
        first[n] = jobs.count;
        for (uint32_t i = 0; bytes[n] && i <= ahead[n]; i++) {
            turn t = {NULL, &count, order, n};
            op_job job = {.fn = note_turn,
                          .args = arena_copy(&memory, &t, sizeof t),
                          .args_size = sizeof t,
                          .weight = &w,
                          .field = offsetof(turn, weight),
                          .bytes = i == ahead[n] ? bytes[n] : 0,
                          .second = i > 0,
                          .ahead = ahead[n]};
            assert_true(job.args && vec_push(&memory, &jobs, job));
        }
    }
    first[ALL] = jobs.count;
    op_lower lower = {0};
    prog_packing *packing;
    tacit_error err = {0};
    assert_int_equal(prog_packing_start(&lower, &jobs, first, ALL, false, &packing, &err),
                     TACIT_OK);
    assert_null(packing); /* so little is done at once */
    assert_int_equal(count, sizeof want / sizeof *want);
    assert_memory_equal(order, want, sizeof want);
    arena_free(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_is_there_when_it_is_needed),
        cmocka_unit_test(several_may_need_it_at_a_time),
        cmocka_unit_test(it_may_be_waited_for_or_left),
        cmocka_unit_test(pages_of_mapped_weights_are_fetched),
        cmocka_unit_test(what_was_read_goes_in_large_pieces),
        cmocka_unit_test(large_weights_come_early),
    };
    return cmocka_run_group_tests_name("packing", tests, NULL, NULL);
}
