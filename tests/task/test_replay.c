/* SPDX-License-Identifier: Apache-2.0
 * Graph runs that do not have the workers to themselves: asynchronous devices inside the graph,
 * other graphs on the same runtime at the same time, costs learnt while running. */
#include "task/backend.h"

enum { CELLS = 6, LAYERS = 12 };

static tacit_status add_value(const tacit_task_call *call)
{
    *(int64_t *)call->values[0].data += call->values[1].integer;
    return TACIT_OK;
}
static tacit_status sum_cells(const tacit_task_call *call)
{
    const int64_t *x = call->values[0].data;
    int64_t sum = 0;
    for (int i = 0; i < CELLS; i++)
        sum += x[i];
    *(int64_t *)call->values[1].data = sum;
    return TACIT_OK;
}
static tacit_status come_back_at_once(const tacit_task_call *call)
{
    *(int64_t *)call->values[0].data *= 2;
    return tacit_task_complete(call->runtime, call->id, TACIT_OK, NULL);
}
static tacit_status stay_home(const tacit_task_call *call)
{
    (void)call;
    return TACIT_ERR_UNSUPPORTED;
}
static const tacit_task_kernel k_add_value = {add_value, "add_value", TACIT_TASK_VECTOR};
static const tacit_task_kernel k_sum = {sum_cells, "sum", TACIT_TASK_CUBE};
static const tacit_task_kernel k_back = {come_back_at_once, "back", TACIT_TASK_ACCELERATOR};
static const tacit_task_kernel k_home = {stay_home, "home", TACIT_TASK_ACCELERATOR};

/* Layers of +i here, *2 on the device, cell by cell; then the sum of all. */
static tacit_task_graph *record_layers(tacit_task_runtime *rt, backend *b, int64_t *x, int64_t *sum,
                                       int layers)
{
    tacit_task_buffer m = tacit_task_memory(x, CELLS * 8), s = tacit_task_memory(sum, 8);
    tacit_task_graph *g;
    OK(tacit_task_record_begin(rt, &err));
    for (int l = 0; l < layers; l++)
        for (int i = 0; i < CELLS; i++) {
            tacit_task_param p[] = {tacit_task_part(TACIT_TASK_INOUT, &m, (uint64_t)i * 8, 8),
                                    tacit_task_scalar(l + i)};
            submit(rt, &k_add_value, NULL, p, 2, NULL, 0);
            submit(rt, (l + i) % 5 == 4 ? &k_back : &k_enqueue, b, p, 1, NULL, 0);
        }
    tacit_task_param p[] = {tacit_task_in(&m), tacit_task_out(&s)};
    submit(rt, &k_sum, NULL, p, 2, NULL, 0);
    OK(tacit_task_record_end(rt, &g, &err));
    return g;
}

static int64_t serial_layers(int64_t *x, int layers)
{
    int64_t sum = 0;
    for (int i = 0; i < CELLS; i++) {
        for (int l = 0; l < layers; l++)
            x[i] = (x[i] + l + i) * 2;
        sum += x[i];
    }
    return sum;
}

static void recorded_accelerator_tasks_complete_by_token(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        tacit_task_runtime *rt = make((tacit_task_config){.threads = threads, .window = 8});
        backend b = {.rt = rt};
        backend_start(&b);
        int64_t x[CELLS], expected[CELLS], sum = 0;
        tacit_task_graph *g = record_layers(rt, &b, x, &sum, LAYERS);
        for (int run = 0; run < 50; run++) {
            for (int i = 0; i < CELLS; i++)
                x[i] = expected[i] = run * 10 + i;
            OK(tacit_task_graph_run(rt, g, &err));
            assert_int_equal(sum, serial_layers(expected, LAYERS));
            assert_memory_equal(x, expected, sizeof x);
        }
        /* Measuring runs launches, too. */
        for (int i = 0; i < CELLS; i++)
            x[i] = expected[i] = i;
        OK(tacit_task_graph_measure(rt, g, &err));
        assert_int_equal(sum, serial_layers(expected, LAYERS));
        /* A failure from the device stops what depends on it, and only that run. */
        backend_result(&b, TACIT_ERR_IO);
        sum = -1;
        FAILS(TACIT_ERR_IO, "(enqueue) failed", tacit_task_graph_run(rt, g, &err));
        assert_int_equal(sum, -1);
        backend_result(&b, TACIT_OK);
        for (int i = 0; i < CELLS; i++)
            x[i] = expected[i] = i;
        OK(tacit_task_graph_run(rt, g, &err));
        assert_int_equal(sum, serial_layers(expected, LAYERS));
        backend_stop(&b); /* whose thread checked that no token works twice */
        FAILS(TACIT_ERR_STATE, "is not waiting",
              tacit_task_complete(rt, (uint64_t)1 << 63 | 1, TACIT_OK, &err));
        tacit_task_graph_destroy(g);
        tacit_task_destroy(rt);
    }
}

static void a_launch_that_fails_is_over(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    int64_t x = 3;
    tacit_task_buffer m = tacit_task_memory(&x, 8);
    tacit_task_param p[] = {tacit_task_inout(&m), tacit_task_scalar(1)};
    tacit_task_graph *g;
    int64_t wanted = 1;
    OK(tacit_task_record_begin(rt, &err));
    OK(tacit_task_submit(
        rt,
        &(tacit_task_desc){.kernel = &k_home, .params = p, .param_count = 1, .predicate = &wanted},
        NULL, &err));
    submit(rt, &k_add_value, NULL, p, 2, NULL, 0);
    OK(tacit_task_record_end(rt, &g, &err));
    FAILS(TACIT_ERR_UNSUPPORTED, "(home) failed", tacit_task_graph_run(rt, g, &err));
    assert_int_equal(x, 3);
    wanted = 0; /* a skipped launch is over as well */
    OK(tacit_task_graph_run(rt, g, &err));
    assert_int_equal(x, 4);
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
}

static void waiting_for_a_recorded_device_uses_no_cpu(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    backend b = {.rt = rt, .delay_us = 120000};
    backend_start(&b);
    int64_t x = 4;
    tacit_task_buffer m = tacit_task_memory(&x, 8);
    tacit_task_param p = tacit_task_inout(&m);
    tacit_task_graph *g;
    OK(tacit_task_record_begin(rt, &err));
    submit(rt, &k_enqueue, &b, &p, 1, NULL, 0);
    OK(tacit_task_record_end(rt, &g, &err));
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    double before = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    OK(tacit_task_graph_run(rt, g, &err)); /* node 0: the backend is in no hurry with it */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    assert_true((double)t.tv_sec + 1e-9 * (double)t.tv_nsec - before < 0.03);
    assert_int_equal(x, 8);
    backend_stop(&b);
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
}

/* ---- several callers ---------------------------------------------------------------------- */

enum { CALLERS = 4, NODES = 60, RUNS = 300 };

typedef struct caller {
    tacit_task_runtime *rt;
    tacit_task_graph *graph;
    uint64_t cells[NODES];
    int64_t wrong;
    pthread_t thread;
} caller;

typedef struct cell_args {
    uint64_t *cells;
    uint32_t index, from[2];
} cell_args;

static void mix(const void *args, uint32_t begin, uint32_t end)
{
    const cell_args *a = args;
    uint64_t x = a->index + begin + end;
    for (int i = 0; i < 200; i++)
        x = x * 6364136223846793005u + a->cells[a->from[0]] + 3 * a->cells[a->from[1]];
    a->cells[a->index] = x;
}

static void build(caller *c, cell_args *args)
{
    OK(tacit_task_graph_create(c->rt, &c->graph, &err));
    for (uint32_t i = 0; i < NODES; i++) {
        uint32_t deps[2] = {i / 2, i * 3 / 4};
        args[i] = (cell_args){c->cells, i, {deps[0], deps[1]}};
        tacit_task_node n = {.tile = mix, .args = &args[i], .deps = deps, .dep_count = i ? 2 : 0};
        OK(tacit_task_graph_add(c->graph, &n, NULL, &err));
    }
    OK(tacit_task_graph_seal(c->graph, &err));
}

static void *call_often(void *argument)
{
    caller *c = argument;
    uint64_t expected[NODES];
    for (int run = 0; run < RUNS; run++) {
        uint64_t start = (uint64_t)run * 77 + 1;
        memset(expected, 0, sizeof expected);
        memset(c->cells, 0, sizeof c->cells);
        expected[0] = c->cells[0] = start;
        for (uint32_t i = 0; i < NODES; i++) {
            cell_args a = {expected, i, {i / 2, i * 3 / 4}};
            mix(&a, 0, 0);
        }
        tacit_error why = {0};
        if (tacit_task_graph_run(c->rt, c->graph, &why) != TACIT_OK)
            c->wrong++;
        c->wrong += memcmp(expected, c->cells, sizeof expected) != 0;
    }
    return NULL;
}

static void graphs_of_one_runtime_run_at_the_same_time(void **state)
{
    (void)state;
    static caller callers[CALLERS];
    static cell_args args[CALLERS][NODES];
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    for (int i = 0; i < CALLERS; i++) {
        callers[i].rt = rt;
        build(&callers[i], args[i]);
        OK(tacit_task_graph_learn(callers[i].graph, (uint32_t)i, &err));
    }
    for (int i = 0; i < CALLERS; i++)
        pthread_create(&callers[i].thread, NULL, call_often, &callers[i]);
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i].thread, NULL);
        assert_int_equal(callers[i].wrong, 0);
        tacit_task_graph_destroy(callers[i].graph);
    }
    tacit_task_destroy(rt);
}

/* A node that tries to run graphs from another thread while its own graph is running. */
typedef struct intruder {
    tacit_task_runtime *rt;
    tacit_task_graph *self, *async;
    tacit_status same, other;
} intruder;

static void *intrude(void *argument)
{
    intruder *i = argument;
    i->same = tacit_task_graph_run(i->rt, i->self, NULL);
    i->other = tacit_task_graph_run(i->rt, i->async, NULL);
    return NULL;
}

static void intruding(const void *args, uint32_t begin, uint32_t end)
{
    (void)begin;
    (void)end;
    pthread_t t;
    pthread_create(&t, NULL, intrude, (void *)(uintptr_t)args);
    pthread_join(t, NULL);
}

static void a_graph_cannot_be_run_twice_at_once(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    intruder i = {.rt = rt};
    OK(tacit_task_graph_create(rt, &i.self, &err));
    tacit_task_node n = {.tile = intruding, .args = &i};
    OK(tacit_task_graph_add(i.self, &n, NULL, &err));
    OK(tacit_task_graph_seal(i.self, &err));
    int64_t x = 1;
    tacit_task_buffer m = tacit_task_memory(&x, 8);
    tacit_task_param p = tacit_task_inout(&m);
    OK(tacit_task_record_begin(rt, &err));
    submit(rt, &k_back, NULL, &p, 1, NULL, 0);
    OK(tacit_task_record_end(rt, &i.async, &err));
    OK(tacit_task_graph_run(rt, i.self, &err));
    assert_int_equal(i.same, TACIT_ERR_STATE);
    assert_int_equal(i.other, TACIT_ERR_STATE); /* its tokens would find the other graph */
    OK(tacit_task_graph_run(rt, i.async, &err));
    assert_int_equal(x, 2);
    tacit_task_graph_destroy(i.self);
    tacit_task_graph_destroy(i.async);
    tacit_task_destroy(rt);
}

/* Learning keeps results and finds out which node is the long one. */
static void sleepy(const void *args, uint32_t begin, uint32_t end)
{
    (void)begin;
    (void)end;
    usleep(*(const uint32_t *)args);
}

static void graphs_learn_what_nodes_cost(void **state)
{
    (void)state;
    static const uint32_t naps[3] = {100, 5000, 100};
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    tacit_task_graph *g;
    OK(tacit_task_graph_create(rt, &g, &err));
    FAILS(TACIT_ERR_STATE, "not sealed", tacit_task_graph_learn(g, 1, &err));
    for (uint32_t i = 0; i < 3; i++) {
        tacit_task_node n = {.tile = sleepy, .args = &naps[i]};
        OK(tacit_task_graph_add(g, &n, NULL, &err));
    }
    OK(tacit_task_graph_seal(g, &err));
    OK(tacit_task_graph_learn(g, 2, &err));
    for (int run = 0; run < 3; run++)
        OK(tacit_task_graph_run(rt, g, &err));
    assert_true(tacit_task_graph_cost(g, 1) >= 5000000);
    assert_true(tacit_task_graph_cost(g, 0) >= 100000);
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
}

int main(void)
{
    unused_helpers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_accelerator_tasks_complete_by_token),
        cmocka_unit_test(a_launch_that_fails_is_over),
        cmocka_unit_test(waiting_for_a_recorded_device_uses_no_cpu),
        cmocka_unit_test(graphs_of_one_runtime_run_at_the_same_time),
        cmocka_unit_test(a_graph_cannot_be_run_twice_at_once),
        cmocka_unit_test(graphs_learn_what_nodes_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
