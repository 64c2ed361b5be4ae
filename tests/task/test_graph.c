/* SPDX-License-Identifier: Apache-2.0
 * Recorded graphs: built by hand and recorded from submits, run again and again. */
#include "base/rng.h"
#include "task/graph.h"
#include "task/util.h"

typedef struct cell {
    const struct cell *in[2];
    uint32_t value, salt;
} cell;

static void mix(const void *args, uint32_t begin, uint32_t end)
{
    cell *c = (cell *)(uintptr_t)args;
    uint32_t v = c->salt + begin * 31 + end;
    for (int i = 0; i < 2; i++)
        if (c->in[i])
            v = v * 1664525u + c->in[i]->value;
    c->value = v;
}

/* A wavefront of w*h cells, in a hand-built graph. */
static tacit_task_graph *wave(tacit_task_runtime *rt, cell *cells, uint32_t w, uint32_t h)
{
    tacit_task_graph *g;
    OK(tacit_task_graph_create(rt, &g, &err));
    for (uint32_t i = 0; i < w * h; i++) {
        uint32_t deps[3], n = 0;
        if (i % w)
            deps[n++] = i - 1;
        if (i >= w)
            deps[n++] = i - w;
        cells[i] = (cell){{i % w ? &cells[i - 1] : NULL, i >= w ? &cells[i - w] : NULL}, 0, i};
        if (n)
            deps[n++] = deps[0]; /* repetitions do no harm */
        uint32_t index;
        OK(tacit_task_graph_add(g,
                                &(tacit_task_node){.tile = mix,
                                                   .args = &cells[i],
                                                   .begin = i,
                                                   .end = i + 3,
                                                   .deps = deps,
                                                   .dep_count = n,
                                                   .home = i % w % 2 + 1},
                                &index, &err));
        assert_int_equal(index, i);
    }
    OK(tacit_task_graph_seal(g, &err));
    return g;
}

static void expect_wave(cell *cells, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = cells[i].value;
        mix(&cells[i], i, i + 3);
        assert_int_equal(cells[i].value, v);
    }
}

static void graphs_run_again_and_again(void **state)
{
    (void)state;
    static cell cells[64 * 50];
    for (uint32_t threads = 1; threads <= 4; threads++) {
        tacit_task_runtime *rt =
            make((tacit_task_config){.threads = threads, .oversubscribe = true});
        tacit_task_graph *g = wave(rt, cells, 64, 50);
        assert_int_equal(tacit_task_graph_nodes(g), 3200);
        assert_int_equal(tacit_task_graph_edges(g), 63 * 50 + 64 * 49);
        for (uint32_t run = 0; run < 30; run++) {
            cells[0].salt = run * 977; /* every value changes with it */
            OK(tacit_task_graph_run(rt, g, &err));
            expect_wave(cells, 3200);
        }
        tacit_task_graph_destroy(g);
        tacit_task_destroy(rt);
    }
}

/* Random graphs, by work stealing and by calendar, against running in order. */
static void random_graphs_equal_their_serial_order(void **state)
{
    (void)state;
    enum { N = 400 };
    static cell cells[N];
    rng r = rng_seed(11);
    for (uint32_t round = 0; round < 60; round++) {
        uint32_t threads = 1 + round % 5;
        tacit_task_runtime *rt =
            make((tacit_task_config){.threads = threads, .oversubscribe = true});
        if (round % 3 == 2)
            rt->stint_ticks = 0; /* CPUs are given away after every look at the time */
        tacit_task_graph *g;
        OK(tacit_task_graph_create(rt, &g, &err));
        for (uint32_t i = 0; i < N; i++) {
            uint32_t deps[2] = {0}, n = 0;
            cells[i] = (cell){{NULL, NULL}, 0, (uint32_t)rng_u64(&r)};
            for (; i && n < rng_below(&r, 3); n++) {
                deps[n] = rng_below(&r, 2) ? i - 1 : (uint32_t)rng_below(&r, i);
                cells[i].in[n] = &cells[deps[n]];
            }
            tacit_task_node node = {.tile = mix,
                                    .args = &cells[i],
                                    .begin = i,
                                    .end = i + 3,
                                    .deps = deps,
                                    .dep_count = n,
                                    .cost_ns = (uint32_t)rng_below(&r, 100),
                                    .home = round % 2 ? 1 + (uint32_t)rng_below(&r, 6) : 0,
                                    .near = round % 4 < 2 ? (uint32_t)rng_below(&r, 7) : 0};
            OK(tacit_task_graph_add(g, &node, NULL, &err));
        }
        OK(tacit_task_graph_seal(g, &err));
        for (uint32_t run = 0; run < 40; run++) {
            for (uint32_t i = 0; i < N; i++) {
                cells[i].value = 0;
                cells[i].salt += run;
            }
            g->in_stints = rt->stint_ticks == 0;
            OK(tacit_task_graph_run(rt, g, &err));
            expect_wave(cells, N);
        }
        tacit_task_graph_destroy(g);
        tacit_task_destroy(rt);
    }
}

/* Whose time on the CPU is over lets others have it before the next node; not before that. */
static void stints_end_between_nodes(void **state)
{
    (void)state;
    static cell cells[64 * 50];
    for (uint32_t threads = 2; threads <= 4; threads++) {
        tacit_task_runtime *rt =
            make((tacit_task_config){.threads = threads,
                                     .oversubscribe = true,
                                     .idle = TACIT_TASK_IDLE_SPIN}); /* who waits yields never */
        tacit_task_graph *g = wave(rt, cells, 64, 50);
        g->calendar.used = threads % 2; /* both executors */
        rt->spin_ticks = UINT64_MAX;    /* however long it takes the caller to begin a run */
        uint32_t ended = 0; /* runs in which the caller gave his CPU away: workers may be faster */
        for (uint32_t run = 0; run < 20 || !ended; run++) {
            uint64_t begin = task_ticks();
            uint32_t before = ended;
            rt->stint_ticks = run % 2 ? 0 : UINT64_MAX;
            rt->workers[0].stint = rt->run_over = begin; /* he has just got his CPU */
            g->pace = (task_pace){0};                    /* not alone */
            g->in_stints = true;                         /* however short nodes are */
            cells[0].salt = run * 977;
            OK(tacit_task_graph_run(rt, g, &err));
            expect_wave(cells, 3200);
            ended += rt->workers[0].stint > begin;
            assert_true(run % 2 || ended == before);
            assert_false(rt->workers[0].tired);
        }
        tacit_task_graph_destroy(g);
        tacit_task_destroy(rt);
    }
}

static void many_successors_and_roots(void **state)
{
    (void)state;
    static cell cells[1 + 2000 + 1];
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 3, .oversubscribe = true});
    tacit_task_graph *g;
    OK(tacit_task_graph_create(rt, &g, &err));
    uint32_t all[2000], zero = 0;
    cells[0] = (cell){{NULL, NULL}, 0, 5};
    OK(tacit_task_graph_add(g, &(tacit_task_node){.tile = mix, .args = cells}, NULL, &err));
    for (uint32_t i = 1; i <= 2000; i++) {
        cells[i] = (cell){{cells, NULL}, 0, i};
        all[i - 1] = i;
        OK(tacit_task_graph_add(
            g,
            &(tacit_task_node){
                .tile = mix, .args = &cells[i], .deps = &zero, .dep_count = 1, .cost_ns = i},
            NULL, &err));
    }
    cells[2001] = (cell){{&cells[1], &cells[2000]}, 0, 9};
    OK(tacit_task_graph_add(
        g, &(tacit_task_node){.tile = mix, .args = &cells[2001], .deps = all, .dep_count = 2000},
        NULL, &err));
    OK(tacit_task_graph_seal(g, &err));
    for (int run = 0; run < 20; run++) {
        for (int i = 0; i <= 2001; i++)
            cells[i].value = 0;
        OK(tacit_task_graph_run(rt, g, &err));
        uint32_t v = cells[2001].value;
        for (int i = 0; i <= 2001; i++)
            mix(&cells[i], 0, 0);
        assert_int_equal(v, cells[2001].value);
    }
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
}

/* Two nodes, each of which ends when both have begun, so that each has a thread of its own. */
typedef struct meeting {
    _Atomic uint32_t begun;
    pthread_t who[2];
} meeting;

static void meet(const void *args, uint32_t begin, uint32_t end)
{
    (void)end;
    meeting *m = (meeting *)(uintptr_t)args;
    m->who[begin] = pthread_self();
    m->begun++;
    while (m->begun < 2)
        sched_yield();
}

static void meet_near(meeting *m, uint32_t first, uint32_t second)
{
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .oversubscribe = true});
    tacit_task_graph *g;
    OK(tacit_task_graph_create(rt, &g, &err));
    const uint32_t near[2] = {first, second};
    for (uint32_t i = 0; i < 2; i++)
        OK(tacit_task_graph_add(
            g,
            &(tacit_task_node){.tile = meet, .args = m, .begin = i, .end = i + 1, .near = near[i]},
            NULL, &err));
    OK(tacit_task_graph_seal(g, &err));
    OK(tacit_task_graph_run(rt, g, &err));
    assert_int_equal(m->begun, 2);
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
}

static void roots_begin_where_their_data_is(void **state)
{
    (void)state;
    for (uint32_t caller = 0; caller < 2; caller++) {
        meeting m = {0};
        meet_near(&m, 2 - caller, 1 + caller);
        assert_true(pthread_equal(m.who[1 - caller], pthread_self()));
        assert_false(pthread_equal(m.who[caller], pthread_self()));
    }
}

/* Whose own roots are done, or who has none, helps with those of others. */
static void roots_do_not_wait_for_their_worker(void **state)
{
    (void)state;
    for (uint32_t near = 0; near < 4; near++) { /* there is no worker 3 */
        meeting m = {0};
        meet_near(&m, near, near);
        assert_false(pthread_equal(m.who[0], m.who[1]));
    }
}

/* out = in + add */
static tacit_status add(const tacit_task_call *call)
{
    *(int64_t *)call->values[1].data = *(int64_t *)call->values[0].data + call->values[2].integer;
    return TACIT_OK;
}
static tacit_status add_checked(const tacit_task_call *call)
{
    if (*(int64_t *)call->values[0].data < 0)
        return TACIT_ERR_VALUE;
    return add(call);
}
static const tacit_task_kernel k_add = {add, "add", TACIT_TASK_VECTOR};
static const tacit_task_kernel k_checked = {add_checked, "checked", TACIT_TASK_VECTOR};

/* y[i] = x + 1 + i through fresh buffers, then y[15] accumulates all. */
static tacit_task_graph *record_sums(tacit_task_runtime *rt, int64_t *x, int64_t *y, int64_t *sum)
{
    tacit_task_buffer bx = tacit_task_memory(x, 8), by = tacit_task_memory(y, 16 * 8);
    tacit_task_buffer bs = tacit_task_memory(sum, 8);
    tacit_task_graph *g;
    OK(tacit_task_record_begin(rt, &err));
    scope(rt, "recorded");
    for (int i = 0; i < 16; i++) {
        tacit_task_buffer t;
        tacit_task_param p[] = {tacit_task_in(&bx), tacit_task_new(&t, 8), tacit_task_scalar(1)};
        tacit_task_id id = submit(rt, &k_checked, NULL, p, 3, NULL, 0);
        assert_int_equal(id, 3 * i);
        tacit_task_param q[] = {tacit_task_in(&t),
                                tacit_task_part(TACIT_TASK_OUT, &by, (uint64_t)i * 8, 8),
                                tacit_task_scalar(i)};
        submit(rt, &k_add, NULL, q, 3, NULL, 0);
        tacit_task_param r[] = {tacit_task_part(TACIT_TASK_IN, &by, (uint64_t)i * 8, 8),
                                tacit_task_inout(&bs), tacit_task_scalar(100)};
        submit(rt, &k_add, NULL, r, 3, NULL, 0);
    }
    end(rt);
    OK(tacit_task_record_end(rt, &g, &err));
    return g;
}

static void recordings_run_with_patched_buffers(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        tacit_task_runtime *rt =
            make((tacit_task_config){.threads = threads, .window = 8, .oversubscribe = true});
        int64_t x = 10, y[16] = {0}, sum = 0;
        tacit_task_graph *g = record_sums(rt, &x, y, &sum);
        assert_int_equal(sum, 0); /* recording runs nothing */
        assert_int_equal(tacit_task_graph_nodes(g), 48);
        OK(tacit_task_graph_run(rt, g, &err));
        for (int i = 0; i < 16; i++)
            assert_int_equal(y[i], 11 + i);
        assert_int_equal(sum, 11 + 15 + 100);
        int64_t x2 = 1000, y2[16] = {0}, x3 = 5;
        OK(tacit_task_graph_patch_buffer(g, &x, &x2, 8, &err));
        OK(tacit_task_graph_patch_buffer(g, y, y2, sizeof y2, &err));
        OK(tacit_task_graph_patch_scalar(g, 1, 2, (tacit_task_value){.integer = 7}, &err));
        OK(tacit_task_graph_run(rt, g, &err));
        assert_int_equal(y2[0], 1001 + 7);
        for (int i = 1; i < 16; i++)
            assert_int_equal(y2[i], 1001 + i);
        assert_int_equal(y[3], 14);
        OK(tacit_task_graph_patch_buffer(g, &x, &x3, 8, &err)); /* named by the recorded address */
        OK(tacit_task_graph_run(rt, g, &err));
        assert_int_equal(y2[15], 6 + 15);
        FAILS(TACIT_ERR_ARGUMENT, "uses 128 bytes",
              tacit_task_graph_patch_buffer(g, y, y2, 100, &err));
        FAILS(TACIT_ERR_ARGUMENT, "does not use",
              tacit_task_graph_patch_buffer(g, &threads, y2, 100, &err));
        tacit_task_graph_destroy(g);
        tacit_task_destroy(rt);
    }
}

static void a_failed_run_drains_and_the_next_works(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++) {
        tacit_task_runtime *rt =
            make((tacit_task_config){.threads = threads, .oversubscribe = true});
        int64_t x = -1, y[16] = {0}, sum = 0;
        tacit_task_graph *g = record_sums(rt, &x, y, &sum);
        for (int k = 0; k < 5; k++) {
            x = -1;
            FAILS(TACIT_ERR_VALUE, "node 0 (checked) failed: invalid value",
                  tacit_task_graph_run(rt, g, &err));
            assert_int_equal(y[0], k ? 4 : 0); /* consumers did not run */
            x = 3;
            OK(tacit_task_graph_run(rt, g, &err));
            assert_int_equal(y[0], 4);
            assert_int_equal(y[15], 19);
        }
        tacit_task_graph_destroy(g);
        tacit_task_destroy(rt);
    }
}

static void running_allocates_nothing_and_predicates_skip(void **state)
{
    (void)state;
    static cell cells[64];
    int64_t predicate = 1;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    tacit_task_graph *g;
    OK(tacit_task_graph_create(rt, &g, &err));
    for (uint32_t i = 0; i < 64; i++) {
        cells[i] = (cell){{i ? &cells[i - 1] : NULL, NULL}, 0, i};
        uint32_t dep = i - 1;
        OK(tacit_task_graph_add(g,
                                &(tacit_task_node){.tile = mix,
                                                   .args = &cells[i],
                                                   .deps = &dep,
                                                   .dep_count = i > 0,
                                                   .predicate = i == 63 ? &predicate : NULL},
                                NULL, &err));
    }
    OK(tacit_task_graph_seal(g, &err));
    OK(tacit_task_graph_run(rt, g, &err));
    assert_int_not_equal(cells[63].value, 0);
    cells[63].value = 0;
    predicate = 0;
    OK(tacit_task_graph_run(rt, g, &err));
    assert_int_equal(cells[63].value, 0);
    cell other = {{NULL, NULL}, 0, 77};
    OK(tacit_task_graph_patch_args(g, 5, &other, &err));
    OK(tacit_task_graph_run(rt, g, &err));
    assert_int_equal(other.value, 77);
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
}

static void slow(const void *args, uint32_t begin, uint32_t end)
{
    (void)args;
    for (volatile uint32_t i = 0; i < (end - begin) * 1000; i++)
        ;
}

static void measured_costs_and_priorities_count(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    tacit_task_graph *g;
    OK(tacit_task_graph_create(rt, &g, &err));
    for (uint32_t i = 0; i < 3; i++)
        OK(tacit_task_graph_add(g, &(tacit_task_node){.tile = slow, .end = i * 100 + 1}, NULL,
                                &err));
    OK(tacit_task_graph_seal(g, &err));
    OK(tacit_task_graph_measure(rt, g, &err));
    assert_true(tacit_task_graph_cost(g, 0) > 0);
    assert_true(tacit_task_graph_cost(g, 2) > 20 * tacit_task_graph_cost(g, 0));
    OK(tacit_task_graph_run(rt, g, &err));
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);

    /* A root releases three nodes; the one on the longest path comes first. */
    rt = make((tacit_task_config){.threads = 2, .idle = TACIT_TASK_IDLE_PARK});
    OK(tacit_task_graph_create(rt, &g, &err));
    uint32_t zero = 0;
    for (uint32_t i = 0; i < 4; i++)
        OK(tacit_task_graph_add(g,
                                &(tacit_task_node){.tile = slow,
                                                   .begin = i,
                                                   .end = i,
                                                   .deps = &zero,
                                                   .dep_count = i > 0,
                                                   .cost_ns = 1000 + i % 3},
                                NULL, &err));
    OK(tacit_task_graph_seal(g, &err));
    const task_node *root = &g->nodes[0];
    assert_int_equal(root->successor_count, 3);
    assert_int_equal(root->successors[2], 2); /* the last one made ready is run next */
    OK(tacit_task_graph_patch_cost(g, 3, 5000, &err));
    OK(tacit_task_graph_prioritise(g, &err));
    assert_int_equal(root->successors[2], 3);
    assert_int_equal(root->successors[0], 1);
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .eager = true});
    tacit_task_graph *g;
    OK(tacit_task_graph_create(rt, &g, &err));
    uint32_t self = 0;
    FAILS(TACIT_ERR_ARGUMENT, "only earlier nodes",
          tacit_task_graph_add(g, &(tacit_task_node){.tile = mix, .deps = &self, .dep_count = 1},
                               NULL, &err));
    FAILS(TACIT_ERR_STATE, "not sealed", tacit_task_graph_run(rt, g, &err));
    OK(tacit_task_graph_seal(g, &err));
    FAILS(TACIT_ERR_STATE, "sealed",
          tacit_task_graph_add(g, &(tacit_task_node){.tile = mix}, NULL, &err));
    FAILS(TACIT_ERR_ARGUMENT, "node 3", tacit_task_graph_patch_args(g, 3, NULL, &err));
    OK(tacit_task_graph_run(rt, g, &err)); /* empty */
    gate door = {0};
    enter_gate(rt, &k_gate, &door);
    FAILS(TACIT_ERR_STATE, "in flight", tacit_task_graph_run(rt, g, &err));
    atomic_store(&door.open, 1);
    OK(tacit_task_wait_all(rt, &err));
    tacit_task_graph_destroy(g);

    tacit_task_graph *none;
    FAILS(TACIT_ERR_STATE, "there is none", tacit_task_record_end(rt, &none, &err));
    OK(tacit_task_record_begin(rt, &err));
    FAILS(TACIT_ERR_STATE, "under way", tacit_task_record_begin(rt, &err));
    FAILS(TACIT_ERR_STATE, "recorded", tacit_task_wait_all(rt, &err));
    tacit_task_buffer t;
    tacit_task_param p = tacit_task_new(&t, 8), in;
    scope(rt, "short");
    submit(rt, &k_nop, NULL, &p, 1, NULL, 0);
    end(rt);
    in = tacit_task_in(&t);
    FAILS(TACIT_ERR_STATE, "scope has ended",
          tacit_task_submit(rt,
                            &(tacit_task_desc){.kernel = &k_nop, .params = &in, .param_count = 1},
                            NULL, &err));
    tacit_task_destroy(rt); /* with the recording under way */
}

/* A recording larger than every first guess. */
static void long_recordings_grow(void **state)
{
    (void)state;
    enum { N = 6000 };
    static int64_t x[N];
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .window = 4});
    tacit_task_buffer b = tacit_task_memory(x, sizeof x);
    OK(tacit_task_record_begin(rt, &err));
    for (int i = 1; i < N; i++) {
        tacit_task_param p[] = {tacit_task_part(TACIT_TASK_IN, &b, (uint64_t)(i - 1) * 8, 8),
                                tacit_task_part(TACIT_TASK_OUT, &b, (uint64_t)i * 8, 8),
                                tacit_task_scalar(i)};
        submit(rt, &k_add, NULL, p, 3, NULL, 0);
    }
    tacit_task_graph *g;
    OK(tacit_task_record_end(rt, &g, &err));
    assert_int_equal(tacit_task_graph_edges(g), N - 2);
    for (int run = 0; run < 3; run++) {
        x[0] = run;
        OK(tacit_task_graph_run(rt, g, &err));
        assert_int_equal(x[N - 1], run + (int64_t)N * (N - 1) / 2);
    }
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
}

int main(void)
{
    unused_helpers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_run_again_and_again),
        cmocka_unit_test(random_graphs_equal_their_serial_order),
        cmocka_unit_test(stints_end_between_nodes),
        cmocka_unit_test(many_successors_and_roots),
        cmocka_unit_test(roots_begin_where_their_data_is),
        cmocka_unit_test(roots_do_not_wait_for_their_worker),
        cmocka_unit_test(recordings_run_with_patched_buffers),
        cmocka_unit_test(a_failed_run_drains_and_the_next_works),
        cmocka_unit_test(running_allocates_nothing_and_predicates_skip),
        cmocka_unit_test(measured_costs_and_priorities_count),
        cmocka_unit_test(misuse_is_refused),
        cmocka_unit_test(long_recordings_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
