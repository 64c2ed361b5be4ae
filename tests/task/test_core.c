/* SPDX-License-Identifier: Apache-2.0
 * Submit, dependences, states, scopes, parameters: what a user of the runtime relies on. */
#include "task/util.h"

static tacit_status record_order(const tacit_task_call *call)
{
    struct {
        _Atomic int next;
        int order[64];
    } *log = call->user;
    log->order[call->values[0].integer] = atomic_fetch_add(&log->next, 1);
    return TACIT_OK;
}
static const tacit_task_kernel k_order = {record_order, "order", TACIT_TASK_VECTOR};

static void explicit_dependences_order_tasks(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        tacit_task_runtime *rt = make((tacit_task_config){.threads = threads, .window = 16});
        struct {
            _Atomic int next;
            int order[64];
        } log = {0};
        tacit_task_id ids[40];
        for (int i = 0; i < 40; i++) {
            tacit_task_param p = tacit_task_scalar(i);
            tacit_task_id deps[2] = {i ? ids[i - 1] : 0, i > 5 ? ids[i - 5] : 0};
            ids[i] = submit(rt, &k_order, &log, &p, 1, deps, i > 5 ? 2 : i > 0);
            assert_int_equal(ids[i], i);
        }
        OK(tacit_task_wait_all(rt, &err));
        for (int i = 0; i < 40; i++)
            assert_int_equal(log.order[i], i);
        tacit_task_destroy(rt);
    }
}

static void diamond_is_consumed_after_scope_end_and_not_before(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    scope(rt, "diamond");
    tacit_task_buffer a, b, c, d;
    tacit_task_param pa[] = {tacit_task_new(&a, 64)};
    tacit_task_id ids[4] = {submit(rt, &k_nop, NULL, pa, 1, NULL, 0)};
    tacit_task_param pb[] = {tacit_task_in(&a), tacit_task_new(&b, 64)};
    ids[1] = submit(rt, &k_nop, NULL, pb, 2, NULL, 0);
    tacit_task_param pc[] = {tacit_task_in(&a), tacit_task_new(&c, 64)};
    ids[2] = submit(rt, &k_nop, NULL, pc, 2, NULL, 0);
    tacit_task_param pd[] = {tacit_task_in(&b), tacit_task_in(&c), tacit_task_new(&d, 64)};
    ids[3] = submit(rt, &k_nop, NULL, pd, 3, NULL, 0);
    assert_int_equal(a.owner, ids[0]);
    OK(tacit_task_wait_all(rt, &err));
    for (int i = 0; i < 4; i++)
        assert_string_equal(tacit_task_state_name(tacit_task_state_of(rt, ids[i])), "COMPLETED");
    end(rt);
    for (int i = 0; i < 4; i++)
        assert_string_equal(tacit_task_state_name(tacit_task_state_of(rt, ids[i])), "CONSUMED");
    tacit_task_stats s;
    tacit_task_stats_get(rt, &s);
    assert_int_equal(s.first_alive, s.next);
    assert_int_equal(s.resource[TACIT_TASK_RING_HEAP].used, 0);
    assert_int_equal(s.resource[TACIT_TASK_RING_DEPENDENCES].used, 0);
    tacit_task_destroy(rt);
}

static void states_pass_in_order(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .eager = true});
    assert_string_equal(tacit_task_state_name(tacit_task_state_of(rt, 0)), "BUILDING");
    scope(rt, "states");
    gate g = {0};
    tacit_task_id first = enter_gate(rt, &k_gate, &g);
    tacit_task_id second = submit(rt, &k_nop, NULL, NULL, 0, &first, 1);
    assert_string_equal(tacit_task_state_name(tacit_task_state_of(rt, first)), "RUNNING");
    assert_string_equal(tacit_task_state_name(tacit_task_state_of(rt, second)), "PENDING");
    atomic_store(&g.open, 1);
    OK(tacit_task_wait(rt, second, &err));
    assert_string_equal(tacit_task_state_name(tacit_task_state_of(rt, second)), "COMPLETED");
    end(rt);
    assert_string_equal(tacit_task_state_name(tacit_task_state_of(rt, first)), "CONSUMED");
    tacit_task_destroy(rt);
}

static void window_8_with_20_tasks_stalls_at_7(void **state)
{
    (void)state;
    for (int spare = 0; spare < 2; spare++) {
        tacit_task_runtime *rt = make(
            (tacit_task_config){.threads = 2, .window = 8, .spare_slot = spare, .eager = true});
        gate g = {0};
        opener o = {.rt = rt, .gate = &g, .resource = TACIT_TASK_RING_SLOTS};
        tacit_task_id first = enter_gate(rt, &k_gate, &g);
        atomic_store(&o.submitted, 1);
        pthread_create(&o.thread, NULL, opener_main, &o);
        for (int i = 1; i < 20; i++) {
            submit(rt, &k_nop, NULL, NULL, 0, &first, 1);
            atomic_fetch_add(&o.submitted, 1);
        }
        pthread_join(o.thread, NULL);
        assert_int_equal(o.seen, spare ? 7 : 8);
        OK(tacit_task_wait_all(rt, &err));
        tacit_task_stats s;
        tacit_task_stats_get(rt, &s);
        assert_int_equal(s.executed, 20);
        assert_true(s.resource[TACIT_TASK_RING_SLOTS].stalls >= 1);
        assert_true(s.resource[TACIT_TASK_RING_SLOTS].stall_ns > 0);
        assert_int_equal(s.resource[TACIT_TASK_RING_SLOTS].high_water, spare ? 7 : 8);
        tacit_task_destroy(rt);
    }
}

static void more_than_512_consumers(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .eager = true});
    gate g = {0};
    _Atomic int ran = 0;
    tacit_task_id first = enter_gate(rt, &k_gate, &g);
    for (int i = 0; i < 1000; i++)
        submit(rt, &k_count, (void *)&ran, NULL, 0, &first, 1);
    usleep(1000);
    assert_int_equal(atomic_load(&ran), 0);
    atomic_store(&g.open, 1);
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(atomic_load(&ran), 1000);
    tacit_task_destroy(rt);
}

static void inner_scope_releases_memory_before_the_outer_ends(void **state)
{
    (void)state;
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 1, .window = 64, .heap_bytes = 1024});
    /* Without innermost ownership the second inner scope would not fit. */
    for (int i = 0; i < 10; i++) {
        scope(rt, "inner");
        tacit_task_buffer b;
        tacit_task_param p = tacit_task_new(&b, 1024);
        submit(rt, &k_nop, NULL, &p, 1, NULL, 0);
        end(rt);
    }
    scope(rt, "outer");
    for (int i = 0; i < 10; i++) {
        scope(rt, "inner");
        tacit_task_buffer b;
        tacit_task_param p = tacit_task_new(&b, 1024);
        submit(rt, &k_nop, NULL, &p, 1, NULL, 0);
        end(rt);
    }
    end(rt);
    OK(tacit_task_wait_all(rt, &err));
    tacit_task_stats s;
    tacit_task_stats_get(rt, &s);
    assert_int_equal(s.first_alive, 20);
    tacit_task_destroy(rt);
}

static void early_free_is_idempotent(void **state)
{
    (void)state;
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 2, .window = 8, .heap_bytes = 512});
    scope(rt, "long");
    for (int i = 0; i < 100; i++) { /* each output fills the heap */
        tacit_task_buffer b;
        tacit_task_param p = tacit_task_new(&b, 512);
        tacit_task_id id = submit(rt, &k_nop, NULL, &p, 1, NULL, 0);
        tacit_task_param in = tacit_task_in(&b);
        tacit_task_id reader = submit(rt, &k_nop, NULL, &in, 1, NULL, 0);
        OK(tacit_task_free(rt, id, &err));
        OK(tacit_task_free(rt, id, &err));
        OK(tacit_task_free(rt, reader, &err));
        FAILS(TACIT_ERR_STATE, "scope has ended or it was freed",
              tacit_task_submit(
                  rt, &(tacit_task_desc){.kernel = &k_nop, .params = &in, .param_count = 1}, NULL,
                  &err));
    }
    end(rt);
    OK(tacit_task_wait_all(rt, &err));
    assert_string_equal(tacit_task_state_name(tacit_task_state_of(rt, 199)), "CONSUMED");
    tacit_task_destroy(rt);
}

/* values: scalar, new a, new b, existing out */
static tacit_status fill(const tacit_task_call *call)
{
    if (call->count != 4 || call->user)
        return TACIT_ERR_INTERNAL;
    memset(call->values[1].data, (int)call->values[0].integer, 100);
    memset(call->values[2].data, (int)call->values[0].integer + 1, 30);
    ((char *)call->values[3].data)[0] = 'x';
    return TACIT_OK;
}
static tacit_status sum(const tacit_task_call *call)
{
    int total = 0;
    for (int i = 0; i < 100; i++)
        total += ((char *)call->values[0].data)[i];
    for (int i = 0; i < 30; i++)
        total += ((char *)call->values[1].data)[i];
    *(int *)call->values[2].data += total;
    return TACIT_OK;
}
static const tacit_task_kernel k_fill = {fill, "fill", TACIT_TASK_CUBE};
static const tacit_task_kernel k_sum = {sum, "sum", TACIT_TASK_VECTOR};

static void outputs_are_packed_aligned_and_alive(void **state)
{
    (void)state;
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 3, .window = 8, .heap_bytes = 1024});
    char mark[8] = {0};
    int total = 0, expected = 0;
    tacit_task_buffer m = tacit_task_memory(mark, sizeof mark);
    tacit_task_buffer t = tacit_task_memory(&total, sizeof total);
    for (int i = 0; i < 200; i++) {
        scope(rt, "pair");
        tacit_task_buffer a, b;
        tacit_task_param p[] = {tacit_task_scalar(i % 50), tacit_task_new(&a, 100),
                                tacit_task_new(&b, 30),
                                tacit_task_part(TACIT_TASK_OUT, &m, (uint64_t)(i % 8), 1)};
        submit(rt, &k_fill, NULL, p, 4, NULL, 0);
        assert_int_equal((uintptr_t)a.data % TACIT_TASK_ALIGN, 0);
        assert_ptr_equal((char *)a.data + 128, b.data);
        assert_int_equal(a.bytes, 100);
        tacit_task_param q[] = {tacit_task_in(&a), tacit_task_in(&b), tacit_task_inout(&t)};
        submit(rt, &k_sum, NULL, q, 3, NULL, 0);
        expected += 100 * (i % 50) + 30 * (i % 50 + 1);
        end(rt);
    }
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(total, expected);
    assert_memory_equal(mark, "xxxxxxxx", 8);
    tacit_task_destroy(rt);
}

static tacit_status sum_many(const tacit_task_call *call)
{
    int64_t total = 0;
    for (uint32_t i = 1; i < call->count; i++)
        total += *(int64_t *)call->values[i].data;
    *(int64_t *)call->values[0].data = total;
    return TACIT_OK;
}
static tacit_status put(const tacit_task_call *call)
{
    *(int64_t *)call->values[0].data = call->values[1].integer;
    return TACIT_OK;
}
static const tacit_task_kernel k_many = {sum_many, "many", TACIT_TASK_CUBE};
static const tacit_task_kernel k_put = {put, "put", TACIT_TASK_CUBE};

static void sixty_four_parameters_from_as_many_owners(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .window = 128});
    int64_t result = 0;
    tacit_task_buffer out = tacit_task_memory(&result, sizeof result), parts[63];
    scope(rt, "wide");
    tacit_task_param p[TACIT_TASK_MAX_PARAMS] = {tacit_task_out(&out)};
    for (int i = 0; i < 63; i++) {
        tacit_task_param q[] = {tacit_task_new(&parts[i], 8), tacit_task_scalar(1 << (i % 20))};
        submit(rt, &k_put, NULL, q, 2, NULL, 0);
        p[i + 1] = tacit_task_in(&parts[i]);
    }
    submit(rt, &k_many, NULL, p, 64, NULL, 0);
    end(rt);
    OK(tacit_task_wait_all(rt, &err));
    int64_t expected = 0;
    for (int i = 0; i < 63; i++)
        expected += 1 << (i % 20);
    assert_int_equal(result, expected);
    tacit_task_stats s;
    tacit_task_stats_get(rt, &s);
    assert_int_equal(s.first_alive, s.next);
    tacit_task_destroy(rt);
}

static void dummies_join_and_predicates_skip(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    _Atomic int ran = 0;
    int64_t flag = 7;
    tacit_task_buffer f = tacit_task_memory(&flag, sizeof flag);
    tacit_task_id ids[10], join;
    for (int i = 0; i < 10; i++)
        ids[i] = submit(rt, &k_count, (void *)&ran, NULL, 0, NULL, 0);
    OK(tacit_task_submit(rt, &(tacit_task_desc){.dummy = true, .deps = ids, .dep_count = 10}, &join,
                         &err));
    /* The predicate is what an earlier task wrote. */
    for (int64_t v = 0; v < 2; v++) {
        tacit_task_param p[] = {tacit_task_out(&f), tacit_task_scalar(v)};
        tacit_task_id writer = submit(rt, &k_put, NULL, p, 2, &join, 1);
        tacit_task_id deps[] = {writer};
        tacit_task_param in = tacit_task_in(&f);
        OK(tacit_task_submit(rt,
                             &(tacit_task_desc){.kernel = &k_count,
                                                .user = (void *)&ran,
                                                .params = &in,
                                                .param_count = 1,
                                                .deps = deps,
                                                .dep_count = 1,
                                                .predicate = &flag},
                             NULL, &err));
    }
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(atomic_load(&ran), 11);
    tacit_task_destroy(rt);
}

static void manual_scopes_ignore_regions(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    int64_t x = 0;
    tacit_task_buffer b = tacit_task_memory(&x, sizeof x), own;
    OK(tacit_task_scope_begin(rt, TACIT_TASK_MANUAL, "manual", &err));
    OK(tacit_task_scope_begin(rt, TACIT_TASK_MANUAL, "nested", &err));
    FAILS(TACIT_ERR_STATE, "inside manual scope \"nested\"",
          tacit_task_scope_begin(rt, TACIT_TASK_AUTO, "auto", &err));
    tacit_task_stats before, after;
    tacit_task_stats_get(rt, &before);
    tacit_task_id last = 0;
    for (int i = 0; i < 50; i++) {
        tacit_task_param p[] = {tacit_task_out(&b), tacit_task_scalar(i)};
        last = submit(rt, &k_put, NULL, p, 2, &last, i > 0);
    }
    tacit_task_param p[] = {tacit_task_new(&own, 8), tacit_task_scalar(1)};
    submit(rt, &k_put, NULL, p, 2, NULL, 0);
    tacit_task_param in = tacit_task_in(&own); /* waits for its creator all the same */
    submit(rt, &k_nop, NULL, &in, 1, NULL, 0);
    tacit_task_stats_get(rt, &after);
    assert_int_equal(after.resource[TACIT_TASK_RING_RECORDS].used,
                     before.resource[TACIT_TASK_RING_RECORDS].used);
    end(rt);
    end(rt);
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(x, 49);
    tacit_task_destroy(rt);
}

static void tiny_heap_wraps(void **state)
{
    (void)state;
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 2, .window = 16, .heap_bytes = 448});
    int64_t total = 0, expected = 0;
    tacit_task_buffer t = tacit_task_memory(&total, sizeof total);
    for (int i = 0; i < 3000; i++) {
        scope(rt, "wrap");
        tacit_task_buffer b;
        /* Sizes that leave every remainder at the end of the ring. */
        tacit_task_param p[] = {tacit_task_new(&b, (uint64_t)(i % 7 + 1) * 60),
                                tacit_task_scalar(i)};
        submit(rt, &k_put, NULL, p, 2, NULL, 0);
        tacit_task_param q[] = {tacit_task_inout(&t), tacit_task_part(TACIT_TASK_IN, &t, 0, 8),
                                tacit_task_in(&b)};
        submit(rt, &k_many, NULL, q, 3, NULL, 0); /* total = total + value */
        expected += i;
        end(rt);
    }
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(total, expected);
    tacit_task_stats s;
    tacit_task_stats_get(rt, &s);
    assert_int_equal(s.resource[TACIT_TASK_RING_HEAP].used, 0);
    tacit_task_destroy(rt);
}

static void slots_have_the_promised_size(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 1});
    tacit_task_stats s;
    tacit_task_stats_get(rt, &s);
    assert_int_equal(s.slot_hot_bytes, 64);
    assert_true(s.slot_cold_bytes <= 128);
    tacit_task_destroy(rt);
}

/* An allocator that counts. */
static void *counted(void *context, size_t size, size_t align)
{
    ++*(long *)context;
    return aligned_alloc(align, (size + align - 1) / align * align);
}
static void uncounted(void *context, void *memory, size_t size)
{
    (void)size;
    --((long *)context)[1];
    free(memory);
}

static void nothing_is_allocated_after_create(void **state)
{
    (void)state;
    long calls[2] = {0};
    tacit_allocator a = {counted, uncounted, calls};
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2, .allocator = &a});
    long after_create = calls[0];
    assert_true(after_create > 0);
    int64_t x[64] = {0};
    tacit_task_buffer b = tacit_task_memory(x, sizeof x);
    for (int i = 0; i < 20000; i++) {
        if (i % 100 == 0)
            scope(rt, "batch");
        tacit_task_buffer own;
        tacit_task_param p[] = {tacit_task_part(TACIT_TASK_INOUT, &b, (uint64_t)(i % 64) * 8, 8),
                                tacit_task_scalar(i), tacit_task_new(&own, 200)};
        submit(rt, &k_put, NULL, p, 3, NULL, 0);
        if (i % 100 == 99)
            end(rt);
    }
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(calls[0], after_create);
    tacit_task_destroy(rt);
    assert_int_equal(calls[0] + calls[1], 0);
}

static void ids_may_start_anywhere(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){
        .threads = 2, .window = 16, .first_id = ((uint64_t)1 << 32) - 37, .records = 64});
    int64_t x = 0, y = 0;
    tacit_task_buffer b = tacit_task_memory(&x, sizeof x), c = tacit_task_memory(&y, sizeof y);
    tacit_task_id last = TACIT_TASK_NONE;
    for (int i = 0; i < 300; i++) {
        tacit_task_param p[] = {tacit_task_out(i & 1 ? &b : &c), tacit_task_scalar(i)};
        last = submit(rt, &k_put, NULL, p, 2, &last, i > 0);
        assert_int_equal(last, ((uint64_t)1 << 32) - 37 + (uint64_t)i);
    }
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(x, 299);
    assert_int_equal(y, 298);
    tacit_task_destroy(rt);
}

int main(void)
{
    unused_helpers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explicit_dependences_order_tasks),
        cmocka_unit_test(diamond_is_consumed_after_scope_end_and_not_before),
        cmocka_unit_test(states_pass_in_order),
        cmocka_unit_test(window_8_with_20_tasks_stalls_at_7),
        cmocka_unit_test(more_than_512_consumers),
        cmocka_unit_test(inner_scope_releases_memory_before_the_outer_ends),
        cmocka_unit_test(early_free_is_idempotent),
        cmocka_unit_test(outputs_are_packed_aligned_and_alive),
        cmocka_unit_test(sixty_four_parameters_from_as_many_owners),
        cmocka_unit_test(dummies_join_and_predicates_skip),
        cmocka_unit_test(manual_scopes_ignore_regions),
        cmocka_unit_test(tiny_heap_wraps),
        cmocka_unit_test(slots_have_the_promised_size),
        cmocka_unit_test(nothing_is_allocated_after_create),
        cmocka_unit_test(ids_may_start_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
