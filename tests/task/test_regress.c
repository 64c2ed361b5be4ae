/* SPDX-License-Identifier: Apache-2.0
 * One test per bug that task runtimes of this kind are known to have had. */
#include "task/task.h"

#include "task/util.h"

static tacit_status put(const tacit_task_call *call)
{
    *(int64_t *)call->values[0].data = call->values[1].integer;
    return TACIT_OK;
}
static tacit_status sum(const tacit_task_call *call)
{
    uint64_t total = 0; /* may wrap */
    for (uint32_t i = 1; i < call->count; i++)
        total += *(uint64_t *)call->values[i].data;
    *(uint64_t *)call->values[0].data = total;
    return TACIT_OK;
}
static const tacit_task_kernel k_put = {put, "put", TACIT_TASK_CUBE};
static const tacit_task_kernel k_sum = {sum, "sum", TACIT_TASK_VECTOR};

static void drained(tacit_task_runtime *rt)
{
    OK(tacit_task_wait_all(rt, &err));
    tacit_task_stats s;
    tacit_task_stats_get(rt, &s);
    assert_int_equal(s.first_alive, s.next);
    assert_int_equal(s.executed, s.submitted);
    assert_int_equal(s.resource[TACIT_TASK_RING_HEAP].used, 0);
    assert_int_equal(s.resource[TACIT_TASK_RING_DEPENDENCES].used, 0);
    tacit_task_destroy(rt);
}

static void r01_dependence_pool_wraps_over_live_nodes(void **state)
{
    (void)state;
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 2, .window = 64, .dependences = 40, .eager = true});
    gate g = {0};
    _Atomic int ran = 0;
    opener o = {.rt = rt, .gate = &g, .resource = TACIT_TASK_RING_DEPENDENCES};
    tacit_task_id held = enter_gate(rt, &k_gate, &g);
    pthread_create(&o.thread, NULL, opener_main, &o);
    for (int i = 0; i < 60; i++) {
        submit(rt, &k_count, (void *)&ran, NULL, 0, &held, 1);
        atomic_fetch_add(&o.submitted, 1);
    }
    pthread_join(o.thread, NULL);
    assert_int_equal(o.seen, 40); /* full: waits, never overwrites */
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(atomic_load(&ran), 60);
    drained(rt);
}

static void r02_lost_advance_of_a_consumed_head(void **state)
{
    (void)state;
    /* The head is consumed last, by a consumer that completes on another thread. */
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 3, .window = 4, .oversubscribe = true});
    int64_t x = 0;
    tacit_task_buffer b, out = tacit_task_memory(&x, 8);
    for (int i = 0; i < 5000; i++) {
        scope(rt, "s");
        tacit_task_param p[] = {tacit_task_new(&b, 8), tacit_task_scalar(i)};
        tacit_task_id id = submit(rt, &k_put, NULL, p, 2, NULL, 0);
        tacit_task_param q[] = {tacit_task_out(&out), tacit_task_in(&b)};
        submit(rt, &k_sum, NULL, q, 2, NULL, 0);
        OK(tacit_task_free(rt, id, &err));
        end(rt);
    }
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(x, 4999);
    drained(rt);
}

static void r03_premature_consumption_while_a_reference_is_added(void **state)
{
    (void)state;
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 2, .window = 32, .heap_bytes = 256, .eager = true});
    int64_t sums[16], expected = 0, total = 0;
    for (int i = 0; i < 3000; i++) {
        scope(rt, "s");
        tacit_task_buffer b, out = tacit_task_memory(&sums[i % 16], 8);
        tacit_task_buffer t = tacit_task_memory(&total, 8);
        tacit_task_param p[] = {tacit_task_new(&b, 200), tacit_task_scalar(i)};
        submit(rt, &k_put, NULL, p, 2, NULL, 0); /* completes while its consumer is submitted */
        tacit_task_param q[] = {tacit_task_out(&out), tacit_task_in(&b)};
        submit(rt, &k_sum, NULL, q, 2, NULL, 0);
        end(rt);
        tacit_task_param r[] = {tacit_task_inout(&t), tacit_task_in(&t), tacit_task_in(&out)};
        submit(rt, &k_sum, NULL, r, 3, NULL, 0);
        expected += i;
    }
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(total, expected);
    drained(rt);
}

static void r04_claim_of_a_producer_consumed_by_scope_end(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    tacit_task_buffer b;
    tacit_task_param p[] = {tacit_task_new(&b, 8), tacit_task_scalar(1)}, in;
    scope(rt, "outer");
    scope(rt, "inner");
    tacit_task_id id = submit(rt, &k_put, NULL, p, 2, NULL, 0);
    OK(tacit_task_wait(rt, id, &err));
    end(rt);
    in = tacit_task_in(&b);
    /* Refused whether or not the memory happens to be there still. */
    FAILS(TACIT_ERR_STATE, "scope has ended",
          tacit_task_submit(rt,
                            &(tacit_task_desc){.kernel = &k_nop, .params = &in, .param_count = 1},
                            NULL, &err));
    end(rt);
    drained(rt);
}

static void r05_empty_heap_off_its_start_takes_a_whole_span(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 1, .heap_bytes = 640});
    uint64_t sizes[] = {192, 640, 64, 640, 320, 640, 640};
    for (int i = 0; i < 70; i++) {
        scope(rt, "s");
        tacit_task_buffer b;
        tacit_task_param p[] = {tacit_task_new(&b, sizes[i % 7]), tacit_task_scalar(i)};
        submit(rt, &k_put, NULL, p, 2, NULL, 0);
        end(rt);
    }
    drained(rt);
}

static void r06_map_sweep_frees_a_later_tasks_records(void **state)
{
    (void)state;
    /* Few slots and records: every slot's records belong to many tasks in turn. */
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 2, .window = 4, .records = 12, .eager = true});
    int64_t x[4] = {0};
    tacit_task_buffer m = tacit_task_memory(x, sizeof x);
    for (int i = 0; i < 4000; i++) {
        tacit_task_param q[] = {tacit_task_part(TACIT_TASK_INOUT, &m, (uint64_t)(i % 4) * 8, 8),
                                tacit_task_part(TACIT_TASK_IN, &m, (uint64_t)((i + 3) % 4) * 8, 8),
                                tacit_task_part(TACIT_TASK_IN, &m, (uint64_t)(i % 4) * 8, 8)};
        if (i % 50 == 0) {
            tacit_task_param p[] = {q[0], tacit_task_scalar(1)};
            submit(rt, &k_put, NULL, p, 2, NULL, 0);
        } else {
            submit(rt, &k_sum, NULL, q, 3, NULL, 0);
        }
    }
    OK(tacit_task_wait_all(rt, &err));
    int64_t y[4] = {0};
    for (int i = 0; i < 4000; i++)
        y[i % 4] = i % 50 == 0 ? 1 : (int64_t)((uint64_t)y[(i + 3) % 4] + (uint64_t)y[i % 4]);
    assert_memory_equal(x, y, sizeof x);
    drained(rt);
}

static void r07_more_than_sixteen_producers(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .eager = true});
    static int64_t x[200];
    int64_t total = 0;
    gate g = {0};
    tacit_task_id held = enter_gate(rt, &k_gate, &g);
    tacit_task_buffer m = tacit_task_memory(x, sizeof x), t = tacit_task_memory(&total, 8);
    for (int i = 0; i < 200; i++) {
        tacit_task_param p[] = {tacit_task_part(TACIT_TASK_OUT, &m, (uint64_t)i * 8, 8),
                                tacit_task_scalar(i)};
        submit(rt, &k_put, NULL, p, 2, &held, 1);
    }
    tacit_task_stats before, after;
    tacit_task_stats_get(rt, &before);
    tacit_task_param q[] = {tacit_task_out(&t), tacit_task_in(&m)}; /* one region, all of them */
    submit(rt, &k_sum, NULL, q, 2, NULL, 0);
    tacit_task_stats_get(rt, &after);
    assert_int_equal(after.edges - before.edges, 200);
    atomic_store(&g.open, 1);
    drained(rt);
    assert_int_equal(total, 0);
}

static void r08_scope_end_before_the_task_ran(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .eager = true});
    gate g = {0};
    tacit_task_id held = enter_gate(rt, &k_gate, &g);
    scope(rt, "s");
    tacit_task_id id = submit(rt, &k_nop, NULL, NULL, 0, &held, 1);
    end(rt); /* its references must not be reset when it runs later */
    assert_string_equal(tacit_task_state_name(tacit_task_state_of(rt, id)), "PENDING");
    atomic_store(&g.open, 1);
    OK(tacit_task_wait(rt, id, &err));
    drained(rt);
}

static void r09_no_false_deadlocks(void **state)
{
    (void)state;
    /* The window is full of pinned tasks but for one slot, held by a slow task outside. */
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .window = 8, .eager = true});
    gate g = {0};
    opener o = {.rt = rt, .gate = &g, .resource = TACIT_TASK_RING_SLOTS};
    enter_gate(rt, &k_gate, &g);
    pthread_create(&o.thread, NULL, opener_main, &o);
    scope(rt, "almost");
    for (int i = 0; i < 8; i++)
        submit(rt, &k_nop, NULL, NULL, 0, NULL, 0); /* the last has to wait, and may */
    pthread_join(o.thread, NULL);
    FAILS(TACIT_ERR_DEADLOCK, "almost",
          tacit_task_submit(rt, &(tacit_task_desc){.kernel = &k_nop}, NULL, &err));
    end(rt);
    drained(rt);
}

static void r10_long_idle_is_not_a_timeout(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 4});
    usleep(100000);
    _Atomic int ran = 0;
    submit(rt, &k_count, (void *)&ran, NULL, 0, NULL, 0);
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(ran, 1);
    drained(rt);
}

static void r11_destroy_reaches_workers_in_every_state(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        tacit_task_runtime *rt = make((tacit_task_config){.threads = 1 + (uint32_t)i % 5,
                                                          .window = 8,
                                                          .heap_bytes = 4096,
                                                          .oversubscribe = true});
        for (int k = 0; k < i % 20; k++)
            submit(rt, &k_nop, NULL, NULL, 0, NULL, 0);
        if (i % 3 == 0)
            usleep((useconds_t)i);
        if (i % 7 == 0)
            scope(rt, "left open");
        tacit_task_destroy(rt);
    }
}

static void bump(const void *args, uint32_t begin, uint32_t end)
{
    (void)begin;
    (void)end;
    atomic_fetch_add((_Atomic int *)(uintptr_t)args, 1);
}

static void r12_back_to_back_runs_do_not_mix(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 3, .oversubscribe = true});
    tacit_task_graph *g[2];
    static _Atomic int count[2];
    for (int k = 0; k < 2; k++) {
        OK(tacit_task_graph_create(rt, &g[k], &err));
        for (uint32_t i = 0; i < 100; i++) {
            uint32_t dep = i / 3;
            OK(tacit_task_graph_add(g[k],
                                    &(tacit_task_node){.tile = bump,
                                                       .args = (const void *)&count[k],
                                                       .deps = &dep,
                                                       .dep_count = i > 0},
                                    NULL, &err));
        }
        OK(tacit_task_graph_seal(g[k], &err));
    }
    for (int i = 1; i <= 3000; i++) {
        OK(tacit_task_graph_run(rt, g[i & 1], &err));
        assert_int_equal(count[i & 1], 100 * ((i + (i & 1)) / 2));
    }
    tacit_task_graph_destroy(g[0]);
    tacit_task_graph_destroy(g[1]);
    tacit_task_destroy(rt);
}

static void r13_writers_wait_for_readers(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 3, .eager = true});
    int64_t x = 5, y = 0;
    tacit_task_buffer bx = tacit_task_memory(&x, 8), by = tacit_task_memory(&y, 8);
    gate g = {0};
    tacit_task_id held = enter_gate(rt, &k_gate, &g);
    tacit_task_param q[] = {tacit_task_out(&by), tacit_task_in(&bx)};
    tacit_task_id reader = submit(rt, &k_sum, NULL, q, 2, &held, 1);
    tacit_task_param p[] = {tacit_task_out(&bx), tacit_task_scalar(9)};
    tacit_task_id writer = submit(rt, &k_put, NULL, p, 2, NULL, 0);
    usleep(2000);
    assert_string_equal(tacit_task_state_name(tacit_task_state_of(rt, reader)), "PENDING");
    assert_string_equal(tacit_task_state_name(tacit_task_state_of(rt, writer)), "PENDING");
    /* A reader that said nobody need wait for it. */
    int64_t z = 7;
    tacit_task_buffer bz = tacit_task_memory(&z, 8);
    tacit_task_param relaxed = tacit_task_in(&bz);
    relaxed.no_war = true;
    submit(rt, &k_nop, NULL, &relaxed, 1, &held, 1);
    tacit_task_param w[] = {tacit_task_out(&bz), tacit_task_scalar(1)};
    OK(tacit_task_wait(rt, submit(rt, &k_put, NULL, w, 2, NULL, 0), &err));
    assert_int_equal(z, 1);
    atomic_store(&g.open, 1);
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(y, 5);
    assert_int_equal(x, 9);
    drained(rt);
}

static void r14_lap_marks_survive_slot_reuse(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .window = 2, .eager = true});
    _Atomic int ran = 0;
    tacit_task_id last = 0;
    for (int i = 0; i < 3000; i++)
        last = submit(rt, &k_count, (void *)&ran, NULL, 0, &last, i > 0);
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(ran, 3000);
    drained(rt);
}

static void r15_recording_leaves_the_runtimes_own_counts_alone(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .window = 4});
    tacit_task_graph *g;
    submit(rt, &k_nop, NULL, NULL, 0, NULL, 0);
    OK(tacit_task_wait_all(rt, &err));
    OK(tacit_task_record_begin(rt, &err));
    for (int i = 0; i < 100; i++)
        assert_int_equal(submit(rt, &k_nop, NULL, NULL, 0, NULL, 0), i);
    OK(tacit_task_record_end(rt, &g, &err));
    OK(tacit_task_graph_run(rt, g, &err));
    tacit_task_graph_destroy(g);
    assert_int_equal(submit(rt, &k_nop, NULL, NULL, 0, NULL, 0), 1);
    drained(rt);
}

static void r16_retirement_is_not_capped_by_completion_order(void **state)
{
    (void)state;
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 3, .window = 16, .eager = true, .oversubscribe = true});
    gate g = {0};
    enter_gate(rt, &k_gate, &g);
    for (int i = 0; i < 15; i++) /* all complete before the head */
        submit(rt, &k_nop, NULL, NULL, 0, NULL, 0);
    tacit_task_stats s;
    do {
        tacit_task_stats_get(rt, &s);
        sched_yield();
    } while (s.executed < 15);
    assert_int_equal(s.first_alive, 0);
    atomic_store(&g.open, 1);
    for (int i = 0; i < 100; i++)
        submit(rt, &k_nop, NULL, NULL, 0, NULL, 0);
    drained(rt);
}

/* Tasks whose duration is known are held back for a batch, but not by a runtime that is eager. */
static void eager_tasks_start_without_being_waited_for(void **state)
{
    (void)state;
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 2, .window = 64, .eager = true, .oversubscribe = true});
    for (int i = 0; i < 200; i++) /* what one takes is learnt */
        submit(rt, &k_nop, NULL, NULL, 0, NULL, 0);
    OK(tacit_task_wait_all(rt, &err));
    tacit_task_stats s;
    submit(rt, &k_nop, NULL, NULL, 0, NULL, 0);
    uint64_t deadline = clock_ns() + 20000000000u;
    do {
        tacit_task_stats_get(rt, &s);
        sched_yield();
    } while (s.executed < 201 && clock_ns() < deadline);
    assert_int_equal(s.executed, 201);
    drained(rt);
}

/* False sharing of queue fields is a matter of layout. */
static void r17_queue_ends_have_cache_lines_of_their_own(void **state)
{
    (void)state;
    assert_true(offsetof(task_deque, bottom) - offsetof(task_deque, top) >= 64);
    assert_true(offsetof(task_deque, items) - offsetof(task_deque, bottom) >= 64);
    assert_true(offsetof(task_inject, tail) - offsetof(task_inject, head) >= 64);
    assert_true(offsetof(task_inject, items) - offsetof(task_inject, tail) >= 64);
    assert_true(offsetof(task_shared, tail) - offsetof(task_shared, head) >= 64);
    assert_int_equal(sizeof(task_worker) % 64, 0);
    assert_int_equal(offsetof(task_worker, executed) % 64, 0);
    assert_int_equal(sizeof(task_slot), 64);
}

static void map_pool_near_its_limit_does_not_overflow(void **state)
{
    (void)state;
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 2, .window = 64, .records = 32, .eager = true});
    static int64_t x[64];
    gate g = {0};
    opener o = {.rt = rt, .gate = &g, .resource = TACIT_TASK_RING_RECORDS};
    tacit_task_id held = enter_gate(rt, &k_gate, &g);
    pthread_create(&o.thread, NULL, opener_main, &o);
    tacit_task_buffer m = tacit_task_memory(x, sizeof x);
    for (int i = 0; i < 60; i++) {
        tacit_task_param p[] = {tacit_task_part(TACIT_TASK_OUT, &m, (uint64_t)i * 8, 8),
                                tacit_task_scalar(i)};
        submit(rt, &k_put, NULL, p, 2, &held, 1);
        atomic_fetch_add(&o.submitted, 1);
    }
    pthread_join(o.thread, NULL);
    assert_int_equal(o.seen, 32);
    OK(tacit_task_wait_all(rt, &err));
    for (int i = 0; i < 60; i++)
        assert_int_equal(x[i], i);
    drained(rt);
}

int main(void)
{
    unused_helpers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(r01_dependence_pool_wraps_over_live_nodes),
        cmocka_unit_test(r02_lost_advance_of_a_consumed_head),
        cmocka_unit_test(r03_premature_consumption_while_a_reference_is_added),
        cmocka_unit_test(r04_claim_of_a_producer_consumed_by_scope_end),
        cmocka_unit_test(r05_empty_heap_off_its_start_takes_a_whole_span),
        cmocka_unit_test(r06_map_sweep_frees_a_later_tasks_records),
        cmocka_unit_test(r07_more_than_sixteen_producers),
        cmocka_unit_test(r08_scope_end_before_the_task_ran),
        cmocka_unit_test(r09_no_false_deadlocks),
        cmocka_unit_test(r10_long_idle_is_not_a_timeout),
        cmocka_unit_test(r11_destroy_reaches_workers_in_every_state),
        cmocka_unit_test(r12_back_to_back_runs_do_not_mix),
        cmocka_unit_test(r13_writers_wait_for_readers),
        cmocka_unit_test(r14_lap_marks_survive_slot_reuse),
        cmocka_unit_test(r15_recording_leaves_the_runtimes_own_counts_alone),
        cmocka_unit_test(r16_retirement_is_not_capped_by_completion_order),
        cmocka_unit_test(eager_tasks_start_without_being_waited_for),
        cmocka_unit_test(r17_queue_ends_have_cache_lines_of_their_own),
        cmocka_unit_test(map_pool_near_its_limit_does_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
