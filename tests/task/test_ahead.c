/* SPDX-License-Identifier: Apache-2.0
 * Workers that wait ask for what nodes near to them will read: for the right nodes, in the right
 * order, not without end, and nothing that is computed changes. */
#include "task/graph.h"

#include "util.h"

enum { STEPS = 6, PARTS = 2, THREADS = 2, COLUMNS = 4096, LINE = 64 };

typedef struct product {
    const int64_t *weights; /* [PARTS][COLUMNS] */
    const int64_t *x;
    int64_t *y; /* [PARTS] */
} product;

static void multiply(const void *args, uint32_t begin, uint32_t end)
{
    const product *p = args;
    for (uint32_t part = begin; part < end; part++) {
        int64_t sum = 0;
        for (int i = 0; i < COLUMNS; i++)
            sum += p->weights[part * COLUMNS + i] * (i % 7);
        p->y[part] = sum + p->x[0] + p->x[1];
    }
}

static void add_node(tacit_task_graph *g, const product *p, uint32_t part, uint32_t near,
                     const uint32_t *deps, uint32_t dep_count, uint32_t *index)
{
    tacit_task_node n = {.tile = multiply,
                         .args = p,
                         .begin = part,
                         .end = part + 1,
                         .deps = deps,
                         .dep_count = dep_count,
                         .near = near};
    OK(tacit_task_graph_add(g, &n, index, &err));
}

/* Every step has a part for each of two workers. */
static void results_are_the_same(void **state)
{
    (void)state;
    int64_t *weights = malloc(sizeof *weights * STEPS * PARTS * COLUMNS), y[STEPS + 1][PARTS];
    int64_t expected[2] = {3, 4};
    assert_non_null(weights);
    for (int i = 0; i < STEPS * PARTS * COLUMNS; i++)
        weights[i] = (int64_t)i * 2654435761 % 1000;
    product p[STEPS];
    for (int s = 0; s < STEPS; s++)
        p[s] = (product){weights + s * PARTS * COLUMNS, y[s], y[s + 1]};
    for (int s = 0; s < STEPS; s++) {
        product here = p[s];
        int64_t out[PARTS];
        here.x = expected;
        here.y = out;
        multiply(&here, 0, PARTS);
        memcpy(expected, out, sizeof out);
    }
    for (uint32_t threads = 1; threads <= 4; threads++) {
        tacit_task_runtime *rt = make((tacit_task_config){.threads = threads, .window = 8});
        tacit_task_graph *g;
        OK(tacit_task_graph_create(rt, &g, &err));
        uint32_t last[PARTS];
        for (uint32_t s = 0; s < STEPS; s++) {
            uint32_t made[PARTS];
            for (uint32_t k = 0; k < PARTS; k++) {
                add_node(g, &p[s], k, k + 1, last, s ? PARTS : 0, &made[k]);
                task_graph_ahead(g, made[k], p[s].weights + k * COLUMNS, COLUMNS * sizeof *weights);
            }
            memcpy(last, made, sizeof last);
        }
        OK(tacit_task_graph_seal(g, &err));
        for (int run = 0; run < 200; run++) {
            y[0][0] = 3;
            y[0][1] = 4;
            memset(y[STEPS], 0, sizeof y[STEPS]);
            OK(tacit_task_graph_run(rt, g, &err));
            assert_memory_equal(y[STEPS], expected, sizeof expected);
        }
        tacit_task_graph_destroy(g);
        tacit_task_destroy(rt);
    }
    free(weights);
}

/* Asks until nothing more is asked for; returns how many lines that were. */
static uint32_t ask_all(task_worker *w, const tacit_task_graph *g)
{
    uint32_t before;
    do {
        before = w->ahead == TASK_NIL ? 0 : w->asked;
        task_ahead_ask(w, g);
    } while (w->ahead != TASK_NIL && w->asked != before);
    return w->ahead == TASK_NIL ? 0 : w->asked;
}

static void the_next_nodes_of_a_worker_are_asked_for(void **state)
{
    (void)state;
    static const char memory[4 << 20];
    tacit_task_runtime *rt = make((tacit_task_config){.threads = THREADS, .window = 8});
    tacit_task_graph *g;
    OK(tacit_task_graph_create(rt, &g, &err));
    product p[3] = {{0}};
    /* 0: nobody's; 1, 2: of worker 0, 3: of worker 1, one product; 4: worker 1, 5: worker 0. */
    const uint32_t near[6] = {0, 1, 1, 2, 2, 1}, of[6] = {0, 1, 1, 1, 2, 2};
    for (uint32_t i = 0; i < 6; i++) {
        add_node(g, &p[of[i]], 0, near[i], NULL, 0, NULL);
        if (i != 4)
            task_graph_ahead(g, i, memory, i == 5 ? 3 * LINE : sizeof memory);
    }
    OK(tacit_task_graph_seal(g, &err));
    task_worker w = {.index = 0, .ahead = TASK_NIL};
    task_ahead_ask(&w, g);
    assert_int_equal(w.ahead, 1); /* not 0, which is near to nobody */
    assert_true(w.asked > 0 && w.asked <= 64);
    uint32_t most = ask_all(&w, g);
    assert_int_equal(w.ahead, 1);
    assert_true(most * LINE <= 512 << 10); /* L2 has more to hold */
    w.ran = 2;
    task_ahead_ask(&w, g);
    assert_int_equal(w.ahead, 5); /* from the start */
    assert_true(w.asked > 0 && w.asked < most);
    w.ran = 5;
    w.ahead = TASK_NIL;
    task_ahead_ask(&w, g);
    assert_int_equal(w.ahead, TASK_NIL); /* none is left */
    task_worker other = {.index = 1, .ahead = TASK_NIL};
    task_ahead_ask(&other, g);
    assert_int_equal(other.ahead, 3);
    other.ran = 3; /* 4 reads nothing to speak of */
    other.ahead = TASK_NIL;
    task_ahead_ask(&other, g);
    assert_int_equal(other.ahead, TASK_NIL);
    tacit_task_graph_destroy(g);
    tacit_task_destroy(rt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_the_same),
        cmocka_unit_test(the_next_nodes_of_a_worker_are_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
