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
    double uneven; /* alone: a run takes so many times as much… */
    double spread; /* …until neighbours are spread anew over the CPUs, after so many seconds */
    bool neighbours;
} machine;

typedef struct history {
    double time, time_alone; /* of all runs, and of those alone */
    double runs;
    double since;   /* how long runs have been made this way… */
    bool alone;     /* …which is this */
    double changed; /* when the better way last became another */
} history;

static void one_run(task_pace *p, const machine *m, double factor, rng *r, history *h)
{
    enum { UNITS = 1000 }; /* of the clock in a second */
    bool alone = p->alone, better = p->better;
    double took = (alone ? m->alone : m->together) * factor;
    took *= 1 + m->noise * ((double)rng_below(r, 2001) / 1000 - 1);
    if (alone != h->alone) {
        h->since = h->time;
        took += alone ? 0 : m->waking;
    }
    if (alone && h->time - h->since < m->spread)
        took *= m->uneven;
    h->alone = alone;
    h->time += took;
    h->time_alone += alone ? took : 0;
    h->runs++;
    if (task_pace_note(p, took * UNITS, UNITS))
        task_pace_next(p, !m->neighbours, UNITS);
    if (p->better != better)
        h->changed = h->time;
}

static void live(task_pace *p, const machine *m, double seconds, rng *r, history *h)
{
    for (double end = h->time + seconds; h->time < end;)
        one_run(p, m, 1, r, h);
}

static double between(rng *r, double low, double high)
{
    return low + (high - low) * (double)rng_below(r, 1000001) / 1e6;
}

/* Runs of 30 us to 60 ms: the length must not matter. */
static machine any_machine(rng *r, double noise, bool neighbours)
{
    static const double lengths[] = {3e-5, 1e-3, 5e-3, 1.5e-2, 6e-2};
    machine m = {.alone = lengths[rng_below(r, 5)], .noise = noise, .neighbours = neighbours};
    m.together = m.alone * between(r, 0.5, 2);
    return m;
}

/* How long it may take until workers are asked for again that nothing disturbs any more: a turn
 * that began beside neighbours, and all until the next look. Turns end with a run. */
static double back_within(const machine *m)
{
    double turns = (double)TASK_PACE_MOST / TASK_PACE_ALONE + 2;
    return TASK_PACE_LONG * TASK_PACE_TURN + turns * (TASK_PACE_TURN + m->alone);
}

static void undisturbed_runs_are_hardly_ever_alone(void **state)
{
    (void)state;
    rng r = rng_seed(1);
    for (int i = 0; i < 50; i++) {
        machine m = any_machine(&r, 0.1, false);
        m.together = m.alone * between(&r, 0.4, 0.6);
        task_pace p = {0};
        history h = {0};
        live(&p, &m, 1, &r, &h);
        assert_true(h.time_alone > 0 && h.time_alone <= 0.02 + 6 * m.alone);
        double begin = h.time, before = h.time_alone;
        live(&p, &m, 100, &r, &h);
        assert_true(h.time_alone - before <= 0.01 * (h.time - begin));
        assert_true(h.changed == 0);
    }
}

/* Nobody waits for a CPU, but together everything takes longer: for a while, for CPUs that are far
 * from each other. Seen within a fraction of a second, or two runs, and kept. */
static void far_cpus_are_left_alone(void **state)
{
    (void)state;
    rng r = rng_seed(5);
    for (int i = 0; i < 100; i++) {
        machine near = any_machine(&r, 0.1, false), far = near;
        near.together = 0.55 * near.alone;
        far.together = near.alone * between(&r, 1.15, 2);
        task_pace p = {0};
        history h = {0};
        live(&p, &near, i % 3, &r, &h);
        double begin = h.time;
        live(&p, &far, 30, &r, &h);
        assert_true(p.better && h.changed - begin < 0.25 + 5 * far.together);
        double before = h.time_alone, runs = h.runs;
        begin = h.time;
        live(&p, &far, 30, &r, &h);
        assert_true((h.runs - runs) * near.alone > 0.95 * (h.time - begin));
        assert_true(h.time_alone - before > 0.9 * (h.time - begin));
        begin = h.time;
        live(&p, &near, 10, &r, &h);
        assert_true(!p.better && h.changed - begin <= back_within(&near));
    }
}

/* The same for a server that is asked now and then for a while, and whose first runs then take
 * longer because caches have been used by others. */
static void pauses_do_not_confuse(void **state)
{
    (void)state;
    rng r = rng_seed(6);
    for (int i = 0; i < 100; i++) {
        machine near = any_machine(&r, 0.1, false), far = near;
        near.together = 0.6 * near.alone;
        far.together = near.alone * between(&r, 1.15, 2);
        task_pace p = {0};
        history h = {0};
        int wrong = 0;
        for (int turn = 0; turn < 300; turn++) {
            const machine *m = turn / 100 == 1 ? &far : &near;
            double end = h.time + 0.15;
            one_run(&p, m, 1.4, &r, &h);
            one_run(&p, m, 1.1, &r, &h);
            while (h.time < end)
                one_run(&p, m, 1, &r, &h);
            wrong += p.better != (m == &far);
        }
        assert_true(wrong <= 30);
    }
}

/* Beside neighbours as much gets done as the better way alone would do, but for looks at the other;
 * so never clearly less than without workers. */
static void the_better_way_is_found_and_kept(void **state)
{
    (void)state;
    enum { MACHINES = 300 };
    rng r = rng_seed(2);
    double done = 0;
    for (int i = 0; i < MACHINES; i++) {
        machine m = any_machine(&r, i % 3 * (i % 2 ? 0.4 : 0.1), i % 2);
        double best = m.alone < m.together ? m.alone : m.together;
        task_pace p = {0};
        history h = {0};
        live(&p, &m, 60, &r, &h);
        done += h.runs * best / h.time;
        assert_true(h.runs * best > 0.85 * h.time);
        assert_true(h.runs * m.alone > 0.93 * h.time);
        if (m.together < 0.8 * m.alone)
            assert_true(h.time_alone < 0.1 * h.time);
        if (m.alone < 0.8 * m.together)
            assert_true(h.time_alone > 0.9 * h.time);
    }
    assert_true(done > 0.99 * MACHINES);
}

/* Alone the caller shares a CPU with one of two neighbours at first, and has it for himself some of
 * the time later: what counts is what it takes then. */
static void alone_has_time_to_settle(void **state)
{
    (void)state;
    rng r = rng_seed(7);
    for (int i = 0; i < 100; i++) {
        machine m = any_machine(&r, 0.15, true);
        m.together = m.alone * between(&r, 1.2, 1.4);
        m.uneven = 1.33;
        m.spread = 0.1;
        task_pace p = {0};
        history h = {0};
        live(&p, &m, 10, &r, &h);
        double begin = h.time, runs = h.runs;
        live(&p, &m, 60, &r, &h);
        assert_true((h.runs - runs) * m.alone > 0.95 * (h.time - begin));
    }
}

/* The neighbours go: found out in little more than a second, and for good. */
static void workers_come_back_soon(void **state)
{
    (void)state;
    rng r = rng_seed(3);
    for (int i = 0; i < 300; i++) {
        machine m = any_machine(&r, 0.3, true), quiet = m;
        quiet.together = 0.55 * m.alone;
        quiet.neighbours = false;
        task_pace p = {0};
        history h = {0};
        live(&p, &quiet, i % 2, &r, &h);
        live(&p, &m, between(&r, 0.05, 10), &r, &h);
        double gone = h.time;
        live(&p, &quiet, 10, &r, &h);
        assert_true(!p.better && h.changed - gone <= back_within(&m));
    }
}

/* Workers that are asleep after turns alone make the first run long, which is no reason to go on
 * alone. */
static void waking_does_not_count(void **state)
{
    (void)state;
    rng r = rng_seed(4);
    machine m = {.alone = 0.018, .together = 0.012, .waking = 0.015, .neighbours = true};
    task_pace p = {0};
    history h = {0};
    live(&p, &m, 60, &r, &h);
    assert_true(h.time_alone < 0.05 * h.time);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(undisturbed_runs_are_hardly_ever_alone),
        cmocka_unit_test(far_cpus_are_left_alone),
        cmocka_unit_test(pauses_do_not_confuse),
        cmocka_unit_test(the_better_way_is_found_and_kept),
        cmocka_unit_test(alone_has_time_to_settle),
        cmocka_unit_test(workers_come_back_soon),
        cmocka_unit_test(waking_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
