/* SPDX-License-Identifier: Apache-2.0
 * Worker types, asynchronous completion, idling. */
#include <sys/resource.h>

#include "task/backend.h"

enum { CUBE = 1, VECTOR = 2, AI_CPU = 4, ACCELERATOR = 8 };

static tacit_status note_worker(const tacit_task_call *call)
{
    *(_Atomic uint32_t *)call->user |= 1u << call->worker;
    return TACIT_OK;
}
static const tacit_task_kernel on[4] = {{note_worker, "cube", TACIT_TASK_CUBE},
                                        {note_worker, "vector", TACIT_TASK_VECTOR},
                                        {note_worker, "ai_cpu", TACIT_TASK_AI_CPU},
                                        {note_worker, "accelerator", TACIT_TASK_ACCELERATOR}};

static void tasks_run_where_their_type_is_served(void **state)
{
    (void)state;
    static const uint8_t masks[] = {AI_CPU, CUBE, CUBE | VECTOR, VECTOR};
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 4, .window = 32, .type_mask = masks});
    _Atomic uint32_t who[3] = {0};
    tacit_task_id ids[3] = {0};
    for (int i = 0; i < 900; i++) /* chains across the types */
        ids[i % 3] = submit(rt, &on[i % 3], (void *)&who[i % 3], NULL, 0, ids, i < 3 ? 0 : 3);
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(who[0] & ~0x6u, 0);
    assert_int_equal(who[1] & ~0xcu, 0);
    assert_int_equal(who[2], 0x1); /* AI_CPU: the orchestrator, while it waits */
    assert_true(who[0] && who[1]);
    FAILS(TACIT_ERR_UNSUPPORTED, "(accelerator): no worker serves its type 3",
          tacit_task_submit(rt, &(tacit_task_desc){.kernel = &on[3]}, NULL, &err));
    tacit_task_destroy(rt);
}

static void ai_cpu_tasks_run_on_the_stalled_orchestrator(void **state)
{
    (void)state;
    static const uint8_t masks[] = {AI_CPU, CUBE};
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 2, .window = 4, .type_mask = masks});
    _Atomic uint32_t who = 0;
    for (int i = 0; i < 100; i++) /* nobody but the submitting thread can free a slot */
        submit(rt, &on[2], (void *)&who, NULL, 0, NULL, 0);
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(who, 1);
    tacit_task_stats s;
    tacit_task_stats_get(rt, &s);
    assert_true(s.resource[TACIT_TASK_RING_SLOTS].stalls > 0);
    tacit_task_destroy(rt);
}

/* ---- an asynchronous backend */

static tacit_status add_one(const tacit_task_call *call)
{
    *(int64_t *)call->values[0].data += 1;
    return TACIT_OK;
}
static const tacit_task_kernel k_add_one = {add_one, "add_one", TACIT_TASK_VECTOR};

static void accelerator_tasks_complete_by_token(void **state)
{
    (void)state;
    static const uint8_t split[] = {CUBE | VECTOR | AI_CPU, ACCELERATOR, CUBE | VECTOR};
    for (int typed = 0; typed < 2; typed++) {
        tacit_task_runtime *rt = make(
            (tacit_task_config){.threads = 3, .window = 64, .type_mask = typed ? split : NULL});
        backend b = {.rt = rt};
        backend_start(&b);
        int64_t x[8] = {0}, expected[8] = {0};
        tacit_task_buffer m = tacit_task_memory(x, sizeof x);
        for (int i = 0; i < 400; i++) {
            tacit_task_param p = tacit_task_part(TACIT_TASK_INOUT, &m, (uint64_t)(i % 8) * 8, 8);
            bool doubles = i % 3 == 1 && i < 100;
            submit(rt, doubles ? &k_enqueue : &k_add_one, &b, &p, 1, NULL, 0);
            expected[i % 8] = doubles ? expected[i % 8] * 2 : expected[i % 8] + 1;
        }
        OK(tacit_task_wait_all(rt, &err));
        assert_memory_equal(x, expected, sizeof x);
        /* A failure reported by the device. */
        backend_result(&b, TACIT_ERR_IO);
        tacit_task_param p = tacit_task_part(TACIT_TASK_INOUT, &m, 0, 8);
        submit(rt, &k_enqueue, &b, &p, 1, NULL, 0);
        submit(rt, &k_add_one, &b, &p, 1, NULL, 0);
        FAILS(TACIT_ERR_IO, "(enqueue) failed", tacit_task_wait_all(rt, &err));
        assert_int_equal(x[0], expected[0] * 2);
        backend_stop(&b);
        tacit_task_destroy(rt);
    }
}

static tacit_status refuse(const tacit_task_call *call)
{
    (void)call;
    return TACIT_ERR_UNSUPPORTED;
}
static tacit_status complete_at_once(const tacit_task_call *call)
{
    return tacit_task_complete(call->runtime, call->id, TACIT_OK, NULL);
}
static const tacit_task_kernel k_refuse = {refuse, "refuse", TACIT_TASK_ACCELERATOR};
static const tacit_task_kernel k_at_once = {complete_at_once, "at_once", TACIT_TASK_ACCELERATOR};

static void launches_may_fail_or_complete_at_once(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    _Atomic int ran = 0;
    tacit_task_id a = submit(rt, &k_at_once, NULL, NULL, 0, NULL, 0);
    submit(rt, &k_count, (void *)&ran, NULL, 0, &a, 1);
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(ran, 1);
    a = submit(rt, &k_refuse, NULL, NULL, 0, NULL, 0);
    submit(rt, &k_count, (void *)&ran, NULL, 0, &a, 1);
    FAILS(TACIT_ERR_UNSUPPORTED, "(refuse) failed", tacit_task_wait_all(rt, &err));
    assert_int_equal(ran, 1);
    tacit_task_destroy(rt);
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec +
           1e-6 * ((double)u.ru_utime.tv_usec + (double)u.ru_stime.tv_usec);
}

static void idle_workers_use_no_cpu(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 8});
    for (int i = 0; i < 1000; i++)
        submit(rt, &k_nop, NULL, NULL, 0, NULL, 0);
    OK(tacit_task_wait_all(rt, &err));
    usleep(20000); /* let everybody fall asleep */
    double before = cpu_seconds();
    usleep(200000);
    double used = cpu_seconds() - before;
    if (used > 0.002)
        fail_msg("idle workers used %.1f ms of 200 ms", used * 1e3);
    /* And they wake up again. */
    _Atomic int ran = 0;
    for (int i = 0; i < 100; i++)
        submit(rt, &k_count, (void *)&ran, NULL, 0, NULL, 0);
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(ran, 100);
    tacit_task_destroy(rt);
}

/* The waiting orchestrator sleeps, too, while a device works. */
static void waiting_for_a_device_uses_no_cpu(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    backend b = {.rt = rt, .delay_us = 150000};
    int64_t x = 4;
    tacit_task_buffer m = tacit_task_memory(&x, 8);
    tacit_task_param p = tacit_task_inout(&m);
    double before = cpu_seconds();
    backend_start(&b);
    submit(rt, &k_enqueue, &b, &p, 1, NULL, 0);
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(x, 8);
    assert_true(cpu_seconds() - before < 0.03);
    backend_stop(&b);
    tacit_task_destroy(rt);
}

int main(void)
{
    unused_helpers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_run_where_their_type_is_served),
        cmocka_unit_test(ai_cpu_tasks_run_on_the_stalled_orchestrator),
        cmocka_unit_test(accelerator_tasks_complete_by_token),
        cmocka_unit_test(launches_may_fail_or_complete_at_once),
        cmocka_unit_test(idle_workers_use_no_cpu),
        cmocka_unit_test(waiting_for_a_device_uses_no_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
