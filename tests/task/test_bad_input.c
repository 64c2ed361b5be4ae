/* SPDX-License-Identifier: Apache-2.0
 * Misuse gives a code and a sentence, and the runtime works on. */
#include "task/util.h"

static tacit_status try_submit(tacit_task_runtime *rt, tacit_task_desc d)
{
    return tacit_task_submit(rt, &d, NULL, &err);
}

static void works(tacit_task_runtime *rt)
{
    _Atomic int ran = 0;
    tacit_task_id a = submit(rt, &k_count, (void *)&ran, NULL, 0, NULL, 0);
    submit(rt, &k_count, (void *)&ran, NULL, 0, &a, 1);
    OK(tacit_task_wait_all(rt, &err));
    assert_int_equal(atomic_load(&ran), 2);
}

static void bad_configurations(void **state)
{
    (void)state;
    tacit_task_runtime *rt;
    FAILS(TACIT_ERR_ARGUMENT, "window 12",
          tacit_task_create(&(tacit_task_config){.window = 12}, &rt, &err));
    assert_null(rt);
    FAILS(TACIT_ERR_LIMIT, "65 threads",
          tacit_task_create(&(tacit_task_config){.threads = 65}, &rt, &err));
    FAILS(TACIT_ERR_LIMIT, "heap",
          tacit_task_create(&(tacit_task_config){.heap_bytes = UINT64_MAX / 2}, &rt, &err));
    FAILS(TACIT_ERR_ARGUMENT, "trace level 9",
          tacit_task_create(&(tacit_task_config){.trace_level = 9}, &rt, &err));
    tacit_task_destroy(NULL);
}

/* Every allocation of create may fail. */
typedef struct failing {
    int left, live;
} failing;
static void *failing_alloc(void *context, size_t size, size_t align)
{
    failing *f = context;
    if (f->left-- == 0)
        return NULL;
    f->live++;
    return aligned_alloc(align, (size + align - 1) / align * align);
}
static void failing_release(void *context, void *memory, size_t size)
{
    (void)size;
    ((failing *)context)->live--;
    free(memory);
}

static void create_survives_every_failed_allocation(void **state)
{
    (void)state;
    for (int n = 0;; n++) {
        failing f = {.left = n};
        tacit_allocator a = {failing_alloc, failing_release, &f};
        tacit_task_runtime *rt;
        tacit_status s = tacit_task_create(
            &(tacit_task_config){.threads = 2, .window = 16, .heap_bytes = 4096, .allocator = &a},
            &rt, &err);
        if (s == TACIT_OK) {
            assert_true(n > 10);
            tacit_task_destroy(rt);
            assert_int_equal(f.live, 0);
            return;
        }
        assert_int_equal(s, TACIT_ERR_MEMORY);
        assert_null(rt);
        assert_int_equal(f.live, 0);
    }
}

static void scopes_out_of_balance(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    FAILS(TACIT_ERR_STATE, "without a scope begin", tacit_task_scope_end(rt, &err));
    for (int i = 0; i < TACIT_TASK_MAX_SCOPES; i++)
        scope(rt, "deep");
    FAILS(TACIT_ERR_LIMIT, "\"too deep\": 64 scopes",
          tacit_task_scope_begin(rt, TACIT_TASK_AUTO, "too deep", &err));
    works(rt);
    for (int i = 0; i < TACIT_TASK_MAX_SCOPES; i++)
        end(rt);
    FAILS(TACIT_ERR_STATE, "without a scope begin", tacit_task_scope_end(rt, &err));
    works(rt);
    tacit_task_destroy(rt);
}

static void use_after_scope(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    tacit_task_buffer b;
    tacit_task_param p = tacit_task_new(&b, 64), in;
    scope(rt, "short");
    tacit_task_id id = submit(rt, &k_nop, NULL, &p, 1, NULL, 0);
    end(rt);
    in = tacit_task_in(&b);
    FAILS(TACIT_ERR_STATE, "parameter 0: the buffer's scope has ended",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = &in, .param_count = 1}));
    b.owner = id + 1000; /* nonsense */
    FAILS(TACIT_ERR_STATE, "scope has ended",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = &in, .param_count = 1}));
    /* Outside any scope an output lives as long as its own kernel runs. */
    submit(rt, &k_nop, NULL, &p, 1, NULL, 0);
    in = tacit_task_in(&b);
    FAILS(TACIT_ERR_STATE, "scope has ended",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = &in, .param_count = 1}));
    works(rt);
    tacit_task_destroy(rt);
}

static void regions_outside_their_storage(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    char memory[100];
    tacit_task_buffer b = tacit_task_memory(memory, sizeof memory);
    struct {
        uint64_t offset, bytes;
    } bad[] = {{0, 101}, {100, 1}, {101, 0}, {50, 51}, {UINT64_MAX, 2}, {2, UINT64_MAX}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tacit_task_param p = tacit_task_part(TACIT_TASK_IN, &b, bad[i].offset, bad[i].bytes);
        FAILS(TACIT_ERR_ARGUMENT, "leaves its storage",
              try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = &p, .param_count = 1}));
    }
    tacit_task_view views[] = {
        {.rank = 2, .element = 4, .shape = {5, 5}, .stride = {20, 4}, .offset = 4},
        {.rank = 1, .element = 1, .shape = {2}, .stride = {-1}},
        {.rank = 9, .element = 1},
        {.rank = 1, .element = 1, .shape = {UINT64_MAX}, .stride = {INT64_MAX}},
        {.rank = 2,
         .element = 1,
         .shape = {1ull << 40, 1ull << 40},
         .stride = {1 << 30, -(1 << 30)}},
        {.rank = 0, .element = 1, .offset = 100},
    };
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        tacit_task_param p = tacit_task_box(TACIT_TASK_OUT, &b, &views[i]);
        FAILS(TACIT_ERR_ARGUMENT, "leaves its storage",
              try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = &p, .param_count = 1}));
    }
    tacit_task_view fits = {.rank = 2, .element = 4, .shape = {5, 5}, .stride = {20, 4}};
    tacit_task_param p = tacit_task_box(TACIT_TASK_OUT, &b, &fits);
    submit(rt, &k_nop, NULL, &p, 1, NULL, 0);
    works(rt);
    tacit_task_destroy(rt);
}

static void requests_larger_than_a_ring(void **state)
{
    (void)state;
    tacit_task_runtime *rt =
        make((tacit_task_config){.threads = 2, .window = 16, .heap_bytes = 1024, .records = 4});
    tacit_task_buffer b[6];
    tacit_task_param p[6];
    p[0] = tacit_task_new(&b[0], 1025);
    scope(rt, "s");
    FAILS(TACIT_ERR_LIMIT, "needs 1088 bytes, the whole heap has 1024",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = p, .param_count = 1}));
    p[0] = tacit_task_new(&b[0], UINT64_MAX - 10);
    FAILS(TACIT_ERR_LIMIT, "overflow",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = p, .param_count = 1}));
    p[0] = tacit_task_new(&b[0], UINT64_MAX / 3);
    p[1] = tacit_task_new(&b[1], UINT64_MAX / 3);
    FAILS(TACIT_ERR_LIMIT, "overflow",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = p, .param_count = 2}));
    for (int i = 0; i < 6; i++)
        p[i] = tacit_task_new(&b[i], 1);
    FAILS(TACIT_ERR_LIMIT, "needs 6 access records, there are 4",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = p, .param_count = 6}));
    tacit_task_param many[65];
    for (int i = 0; i < 65; i++)
        many[i] = tacit_task_scalar(i);
    FAILS(TACIT_ERR_LIMIT, "65 parameters",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = many, .param_count = 65}));
    end(rt);
    works(rt);
    tacit_task_destroy(rt);
}

static void malformed_descriptions(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    static const tacit_task_kernel empty = {NULL, "empty", TACIT_TASK_CUBE};
    static const tacit_task_kernel odd = {nop_run, "odd", (tacit_task_type)17};
    tacit_task_param p = {.access = TACIT_TASK_IN};
    tacit_task_id later = 5;
    FAILS(TACIT_ERR_ARGUMENT, "has no kernel", try_submit(rt, (tacit_task_desc){0}));
    FAILS(TACIT_ERR_ARGUMENT, "has no kernel", try_submit(rt, (tacit_task_desc){.kernel = &empty}));
    FAILS(TACIT_ERR_UNSUPPORTED, "(odd)", try_submit(rt, (tacit_task_desc){.kernel = &odd}));
    FAILS(TACIT_ERR_ARGUMENT, "no buffer",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = &p, .param_count = 1}));
    FAILS(TACIT_ERR_ARGUMENT, "NULL list",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .param_count = 1}));
    FAILS(TACIT_ERR_ARGUMENT, "only earlier tasks",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .deps = &later, .dep_count = 1}));
    p.access = (tacit_task_access)99;
    FAILS(TACIT_ERR_ARGUMENT, "unknown kind of access",
          try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = &p, .param_count = 1}));
    FAILS(TACIT_ERR_ARGUMENT, "no task 77", tacit_task_wait(rt, 77, &err));
    FAILS(TACIT_ERR_ARGUMENT, "no task 77", tacit_task_free(rt, 77, &err));
    FAILS(TACIT_ERR_STATE, "not waiting", tacit_task_complete(rt, 3, TACIT_OK, &err));
    works(rt);
    tacit_task_destroy(rt);
}

static void *second_thread(void *argument)
{
    tacit_task_runtime *rt = argument;
    tacit_error e = {0};
    tacit_task_desc d = {.kernel = &k_nop};
    bool refused = tacit_task_submit(rt, &d, NULL, &e) == TACIT_ERR_STATE &&
                   strstr(e.message, "orchestrator") &&
                   tacit_task_scope_begin(rt, TACIT_TASK_AUTO, "x", NULL) == TACIT_ERR_STATE &&
                   tacit_task_scope_end(rt, NULL) == TACIT_ERR_STATE &&
                   tacit_task_free(rt, 0, NULL) == TACIT_ERR_STATE &&
                   tacit_task_flush(rt, NULL) == TACIT_ERR_STATE &&
                   tacit_task_wait(rt, 0, NULL) == TACIT_ERR_STATE &&
                   tacit_task_record_begin(rt, NULL) == TACIT_ERR_STATE &&
                   tacit_task_wait_all(rt, NULL) == TACIT_ERR_STATE;
    return refused ? rt : NULL;
}

static void *adopting_thread(void *argument)
{
    tacit_task_runtime *rt = argument;
    tacit_task_desc d = {.kernel = &k_nop};
    bool ok = tacit_task_adopt(rt, NULL) == TACIT_OK &&
              tacit_task_submit(rt, &d, NULL, NULL) == TACIT_OK &&
              tacit_task_wait_all(rt, NULL) == TACIT_OK;
    return ok ? rt : NULL;
}

static void *run_thread(void *(*f)(void *), tacit_task_runtime *rt)
{
    pthread_t t;
    void *result;
    pthread_create(&t, NULL, f, rt);
    pthread_join(t, &result);
    return result;
}

static void a_second_thread_is_refused(void **state)
{
    (void)state;
    tacit_task_runtime *rt = make((tacit_task_config){.threads = 2});
    assert_ptr_equal(run_thread(second_thread, rt), rt);
    works(rt);
    scope(rt, "open");
    assert_null(run_thread(adopting_thread, rt));
    end(rt);
    assert_ptr_equal(run_thread(adopting_thread, rt), rt);
    assert_int_equal(try_submit(rt, (tacit_task_desc){.kernel = &k_nop}), TACIT_ERR_STATE);
    OK(tacit_task_adopt(rt, &err));
    works(rt);
    tacit_task_destroy(rt);
}

static void deadlocks_name_scope_resource_and_size(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 4; threads++) {
        tacit_task_runtime *rt = make((tacit_task_config){
            .threads = threads, .window = 8, .heap_bytes = 1024, .oversubscribe = true});
        scope(rt, "attention");
        for (int i = 0; i < 8; i++)
            submit(rt, &k_nop, NULL, NULL, 0, NULL, 0);
        for (int k = 0; k < 3; k++)
            FAILS(TACIT_ERR_DEADLOCK,
                  "scope \"attention\" pins task 0 and all 7 tasks after it, and the task ring is "
                  "full: submitting task 8 would wait for ever; 9 slots (window) would be enough",
                  try_submit(rt, (tacit_task_desc){.kernel = &k_nop}));
        end(rt);
        works(rt);
        /* The outer scope is innocent. */
        scope(rt, "outer");
        tacit_task_buffer b;
        tacit_task_param p = tacit_task_new(&b, 640);
        scope(rt, "inner");
        submit(rt, &k_nop, NULL, &p, 1, NULL, 0);
        FAILS(TACIT_ERR_DEADLOCK, "scope \"inner\" pins task 10",
              try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = &p, .param_count = 1}));
        FAILS(TACIT_ERR_DEADLOCK,
              "the heap ring is full: submitting task 11 would wait for ever; "
              "1280 bytes (heap_bytes) would be enough",
              try_submit(rt, (tacit_task_desc){.kernel = &k_nop, .params = &p, .param_count = 1}));
        end(rt);
        submit(rt, &k_nop, NULL, &p, 1, NULL, 0);
        end(rt);
        works(rt);
        tacit_task_destroy(rt);
    }
}

/* What the message calls enough is enough, and one less is not. */
static void the_sufficient_size_suffices(void **state)
{
    (void)state;
    for (uint64_t bytes = 64; bytes <= 1024; bytes += 64) {
        uint64_t enough = 0;
        for (int round = 0; round < 2; round++) {
            tacit_task_runtime *rt = make((tacit_task_config){
                .threads = 1, .window = 64, .heap_bytes = round ? enough : 1024});
            tacit_task_buffer b;
            tacit_task_param p = tacit_task_new(&b, bytes);
            scope(rt, "s");
            int n = 0;
            tacit_task_desc d = {.kernel = &k_nop, .params = &p, .param_count = 1};
            while (n < 60 && tacit_task_submit(rt, &d, NULL, &err) == TACIT_OK)
                n++;
            if (round == 0) {
                assert_int_equal(n, 1024 / bytes);
                const char *at = strstr(err.message, "for ever; ");
                assert_non_null(at);
                enough = strtoull(at + 10, NULL, 10);
            } else {
                assert_int_equal(n, 1024 / bytes + 1);
            }
            end(rt);
            tacit_task_destroy(rt);
        }
    }
}

int main(void)
{
    unused_helpers();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_configurations),
        cmocka_unit_test(create_survives_every_failed_allocation),
        cmocka_unit_test(scopes_out_of_balance),
        cmocka_unit_test(use_after_scope),
        cmocka_unit_test(regions_outside_their_storage),
        cmocka_unit_test(requests_larger_than_a_ring),
        cmocka_unit_test(malformed_descriptions),
        cmocka_unit_test(a_second_thread_is_refused),
        cmocka_unit_test(deadlocks_name_scope_resource_and_size),
        cmocka_unit_test(the_sufficient_size_suffices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
