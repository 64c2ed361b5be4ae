/* SPDX-License-Identifier: Apache-2.0
 * Alone or together: the rule of pace.h on machines that are only thought of, with a clock that
 * goes as far as runs take. */
#include "base/rng.h"
#include "task/pace.h"
#include "task/util.h"

/* What a run takes, in seconds. */
typedef struct machine {
    double together, alone;
    double noise;  /* single runs take up to so much more or less, as a part */
    double waking; /* what a run takes in addition that finds the workers asleep */
    double waits;  /* for CPUs that others have, in a second */
} machine;

typedef struct history {
    double time, time_alone; /* of all runs, and of those alone */
    double last_alone;       /* when the last of those ended */
    double runs;
} history;

static void live(task_pace *p, const machine *m, double seconds, rng *r, history *h)
{
    enum { UNITS = 1000 }; /* of the clock in a second */
    double since = 0, end = h->time + seconds;
    bool before = false;
    while (h->time < end) {
        bool alone = task_pace_alone(p);
        double u = (double)rng_below(r, 2001) / 1000 - 1;
        double took = (alone ? m->alone : m->together) * (1 + m->noise * u);
        took += before && !alone ? m->waking : 0;
        before = alone;
        if (task_pace_begins(p))
            since = h->time;
        h->time += took;
        h->runs++;
        if (alone) {
            h->time_alone += took;
            h->last_alone = h->time;
        }
        if (!task_pace_note(p, took * UNITS, UNITS))
            continue;
        task_pace_next(p, m->waits * (h->time - since) * UNITS);
    }
}

static double between(rng *r, double low, double high)
{
    return low + (high - low) * (double)rng_below(r, 1000001) / 1e6;
}

/* Runs of 30 us to 60 ms: the length must not matter. */
static machine any_machine(rng *r, double noise, double waits)
{
    static const double lengths[] = {3e-5, 1e-3, 5e-3, 1.5e-2, 6e-2};
    machine m = {.alone = lengths[rng_below(r, 5)], .noise = noise, .waits = waits};
    m.together = m.alone * between(r, 0.5, 2);
    return m;
}

/* But for the one that tells what it takes. */
static void undisturbed_runs_are_never_alone(void **state)
{
    (void)state;
    rng r = rng_seed(1);
    for (int i = 0; i < 50; i++) {
        machine m = any_machine(&r, 0.2, 0.1); /* what a machine at rest does itself */
        m.together = m.alone * between(&r, 0.4, 0.6);
        task_pace p = {0};
        history h = {0};
        live(&p, &m, 20, &r, &h);
        assert_true(h.time_alone > 0 && h.time_alone <= 1.2 * m.alone);
    }
}

/* Nobody waits for a CPU, but together everything takes longer: for a while, for CPUs that are far
 * from each other. */
static void far_cpus_are_left_alone(void **state)
{
    (void)state;
    rng r = rng_seed(5);
    for (int i = 0; i < 100; i++) {
        machine near = any_machine(&r, 0.1, 0.1), far = near;
        near.together = 0.55 * near.alone;
        far.together = near.alone * between(&r, 1.15, 2);
        task_pace p = {0};
        history h = {0};
        live(&p, i % 2 ? &near : &far, 5, &r, &h);
        double begin = h.time, before = h.time_alone, runs = h.runs;
        live(&p, &far, 30, &r, &h);
        assert_true((h.runs - runs) * near.alone > 0.93 * (h.time - begin));
        assert_true(h.time_alone - before > 0.85 * (h.time - begin));
        begin = h.time;
        live(&p, &near, 10, &r, &h);
        assert_true(h.last_alone - begin <= (TASK_PACE_MOST + 2) * (TASK_PACE_TURN + near.alone));
    }
}

/* Beside neighbours as much gets done as the better way alone would do, but for looks at the other;
 * so never clearly less than without workers. */
static void the_better_way_is_found_and_kept(void **state)
{
    (void)state;
    rng r = rng_seed(2);
    for (int i = 0; i < 300; i++) {
        machine m = any_machine(&r, i % 3 * 0.4, 0.5);
        double best = m.alone < m.together ? m.alone : m.together;
        task_pace p = {0};
        history h = {0};
        live(&p, &m, 60, &r, &h);
        assert_true(h.runs * best > 0.95 * h.time);
        assert_true(h.runs * m.alone > 0.95 * h.time);
        if (m.together < 0.8 * m.alone)
            assert_true(h.time_alone < 0.12 * h.time);
        if (m.alone < 0.8 * m.together)
            assert_true(h.time_alone > 0.9 * h.time);
    }
}

/* The neighbours go: found out in about the time they were there, but within little more than a
 * second, and for good. */
static void workers_come_back_soon(void **state)
{
    (void)state;
    rng r = rng_seed(3);
    for (int i = 0; i < 300; i++) {
        machine m = any_machine(&r, 0.3, 0.5), quiet = m;
        quiet.together = 0.55 * m.alone;
        quiet.waits = 0.05;
        double stayed = between(&r, 0.05, 10);
        double turn = TASK_PACE_TURN + m.alone; /* at most: runs are whole */
        task_pace p = {0};
        history h = {0};
        live(&p, &quiet, 1, &r, &h);
        live(&p, &m, stayed, &r, &h);
        double gone = h.time;
        live(&p, &quiet, 10, &r, &h);
        double after = h.last_alone - gone;
        assert_true(after <= stayed + 2 * turn && after <= (TASK_PACE_MOST + 2) * turn);
        assert_false(task_pace_alone(&p));
    }
}

/* Workers that are asleep after turns alone make the first run long, which is no reason to go on
 * alone. */
static void waking_does_not_count(void **state)
{
    (void)state;
    rng r = rng_seed(4);
    machine m = {.alone = 0.018, .together = 0.012, .waking = 0.015, .waits = 0.5};
    task_pace p = {0};
    history h = {0};
    live(&p, &m, 60, &r, &h);
    assert_true(h.time_alone < 0.1 * h.time);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(undisturbed_runs_are_never_alone),
        cmocka_unit_test(far_cpus_are_left_alone),
        cmocka_unit_test(the_better_way_is_found_and_kept),
        cmocka_unit_test(workers_come_back_soon),
        cmocka_unit_test(waking_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
