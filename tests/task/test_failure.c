/* SPDX-License-Identifier: Apache-2.0
 * A kernel that fails takes its consumers with it, and nobody else. */
#include "task/util.h"

static tacit_status maybe_fail(const tacit_task_call *call)
{
    return (tacit_status)call->values[0].integer;
}
static tacit_status mark(const tacit_task_call *call)
{
    *(int *)call->user = 1;
    return TACIT_OK;
}
static const tacit_task_kernel k_fail = {maybe_fail, "maybe", TACIT_TASK_CUBE};
static const tacit_task_kernel k_mark = {mark, "mark", TACIT_TASK_VECTOR};

static tacit_task_id failing(tacit_task_runtime *rt, tacit_status status, tacit_task_buffer *out)
{
    tacit_task_param p[] = {tacit_task_scalar(status),
                            out ? tacit_task_out(out) : tacit_task_scalar(0)};
    return submit(rt, &k_fail, NULL, p, 2, NULL, 0);
}

static void consumers_are_poisoned_and_others_run(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 3; threads++)
        for (int pause = 0; pause < 2; pause++) {
            tacit_task_runtime *rt =
                make((tacit_task_config){.threads = threads, .window = 64, .oversubscribe = true});
            int64_t x = 0, y = 0;
            tacit_task_buffer bx = tacit_task_memory(&x, 8), by = tacit_task_memory(&y, 8);
            int direct = 0, indirect = 0, other = 0, named = 0, rewriter = 0, after = 0;
            tacit_task_id f = failing(rt, TACIT_ERR_VALUE, &bx);
            if (pause) /* the failure has completed and retired when consumers come */
                FAILS(TACIT_ERR_VALUE, "task 0 (maybe) failed: invalid value",
                      tacit_task_wait(rt, f, &err));
            tacit_task_stats s;
            tacit_task_stats_get(rt, &s);
            tacit_task_param p[] = {tacit_task_in(&bx), tacit_task_out(&by)};
            submit(rt, &k_mark, &direct, p, 2, NULL, 0);
            tacit_task_param q = tacit_task_in(&by);
            tacit_task_id last = submit(rt, &k_mark, &indirect, &q, 1, NULL, 0);
            submit(rt, &k_mark, &other, NULL, 0, NULL, 0);
            submit(rt, &k_mark, &named, NULL, 0, &f, 1);
            /* Overwriting what the failed task wrote makes it good again. */
            tacit_task_param w = tacit_task_out(&bx), r = tacit_task_in(&bx);
            submit(rt, &k_mark, &rewriter, &w, 1, NULL, 0);
            submit(rt, &k_mark, &after, &r, 1, NULL, 0);
            FAILS(TACIT_ERR_VALUE, "was not run: a producer failed",
                  tacit_task_wait(rt, last, &err));
            FAILS(TACIT_ERR_VALUE, "task 0 (maybe) failed: invalid value",
                  tacit_task_wait_all(rt, &err));
            assert_int_equal(direct + indirect + named, 0);
            assert_int_equal(other + rewriter + after, 3);
            tacit_task_stats_get(rt, &s);
            assert_int_equal(s.failed, 4);
            assert_int_equal(s.first_alive, s.next);
            /* Forgotten: the runtime is as good as new. */
            submit(rt, &k_mark, &direct, p, 2, NULL, 0);
            OK(tacit_task_wait_all(rt, &err));
            assert_int_equal(direct, 1);
            tacit_task_destroy(rt);
        }
}

static void the_lowest_failure_is_reported(void **state)
{
    (void)state;
    for (int round = 0; round < 20; round++) {
        tacit_task_runtime *rt =
            make((tacit_task_config){.threads = 3, .oversubscribe = true, .eager = true});
        for (int i = 0; i < 100; i++)
            failing(rt, i < 50 ? TACIT_OK : i % 2 ? TACIT_ERR_IO : TACIT_ERR_SHAPE, NULL);
        FAILS(TACIT_ERR_SHAPE, "task 50 (maybe) failed", tacit_task_wait_all(rt, &err));
        OK(tacit_task_wait_all(rt, &err));
        tacit_task_destroy(rt);
    }
}

static void failures_drain_through_full_rings(void **state)
{
    (void)state;
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 2, .window = 4, .heap_bytes = 512, .records = 16});
    int64_t x = 0;
    tacit_task_buffer bx = tacit_task_memory(&x, 8);
    int ran = 0;
    failing(rt, TACIT_ERR_IO, &bx);
    for (int i = 0; i < 500; i++) { /* one long chain of poison */
        tacit_task_param p = tacit_task_inout(&bx);
        submit(rt, &k_mark, &ran, &p, 1, NULL, 0);
    }
    FAILS(TACIT_ERR_IO, "task 0 ", tacit_task_wait_all(rt, &err));
    assert_int_equal(ran, 0);
    tacit_task_stats s;
    tacit_task_stats_get(rt, &s);
    assert_int_equal(s.failed, 501);
    assert_int_equal(s.first_alive, s.next);
    /* In an open scope the failed output stays failed, also for a later wait. */
    scope(rt, "kept");
    tacit_task_buffer b;
    tacit_task_param p[] = {tacit_task_scalar(TACIT_ERR_VALUE), tacit_task_new(&b, 8)};
    submit(rt, &k_fail, NULL, p, 2, NULL, 0);
    FAILS(TACIT_ERR_VALUE, "(maybe) failed", tacit_task_wait_all(rt, &err));
    tacit_task_param in = tacit_task_in(&b);
    submit(rt, &k_mark, &ran, &in, 1, NULL, 0);
    FAILS(TACIT_ERR_VALUE, "(mark) was not run", tacit_task_wait_all(rt, &err));
    end(rt);
    OK(tacit_task_wait_all(rt, &err));
    tacit_task_destroy(rt);
}

int main(void)
{
    unused_helpers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(consumers_are_poisoned_and_others_run),
        cmocka_unit_test(the_lowest_failure_is_reported),
        cmocka_unit_test(failures_drain_through_full_rings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
