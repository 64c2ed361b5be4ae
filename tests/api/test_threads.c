/* SPDX-License-Identifier: Apache-2.0
 * One program, many threads, a session each: results are those of one thread alone. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <dirent.h>
#include <pthread.h>

#include <cmocka.h>

#include "tacit/tacit.h"
#include "tacit/task.h"

enum { N = 96, THREADS = 6, RUNS = 40 };

typedef struct worker {
    const tacit_program *program;
    uint32_t seed;
    tacit_status status;
    uint64_t wrong;
} worker;

static void fill(float *x, uint32_t seed)
{
    for (int i = 0; i < N * N; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)(seed >> 16) / 65536.0f - 0.5f;
    }
}

static tacit_tensor square(float *data)
{
    return (tacit_tensor){
        .dtype = TACIT_F32, .rank = 2, .dims = {N, N}, .data = data, .bytes = N * N * 4};
}

static tacit_status run_one(tacit_session *s, float *x, float *y)
{
    tacit_tensor in = square(x), out = square(y);
    return tacit_run(s, &in, 1, &out, 1, NULL);
}

static void *work(void *context)
{
    worker *w = context;
    float *x = malloc(2 * N * N * 4), *y = x + N * N, *first = malloc(N * N * 4);
    tacit_session *s = NULL;
    fill(x, w->seed);
    w->status = tacit_session_create(w->program, &s, NULL);
    for (int i = 0; w->status == TACIT_OK && i < RUNS; i++) {
        w->status = run_one(s, x, y);
        if (i == 0)
            memcpy(first, y, N * N * 4);
        w->wrong += memcmp(first, y, N * N * 4) != 0;
    }
    tacit_session_free(s);
    /* The same input in a session of its own on the main thread is checked by the caller. */
    memcpy(x, first, N * N * 4);
    free(first);
    return x;
}

/* What the worker found is what `alone` finds. */
static void join_and_check(pthread_t thread, const worker *w, tacit_session *alone)
{
    void *result = NULL;
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_int_equal(w->status, TACIT_OK);
    assert_int_equal(w->wrong, 0);
    float *x = malloc(2 * N * N * 4), *y = x + N * N;
    fill(x, w->seed);
    assert_int_equal(run_one(alone, x, y), TACIT_OK);
    assert_memory_equal(y, result, N * N * 4);
    free(x);
    free(result);
}

static tacit_program *make_program(tacit_executor executor, tacit_task_runtime *shared)
{
    tacit_builder *b = NULL;
    tacit_model *m = NULL;
    tacit_program *p = NULL;
    tacit_error err = {0};
    int64_t dims[] = {N, N};
    float *weights = malloc(N * N * 4);
    fill(weights, 99);
    assert_int_equal(tacit_builder_create("shared", NULL, &b, &err), TACIT_OK);
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 2, dims, NULL);
    tacit_value w = tacit_builder_constant(b, "w", TACIT_F32, 2, dims, weights);
    for (int i = 0; i < 4; i++) {
        x = tacit_builder_node(b, "MatMul", 2, (tacit_value[]){x, w}, 1, NULL);
        x = tacit_builder_node(b, "Softmax", 1, &x, 1, NULL);
        x = tacit_builder_node(b, "Transpose", 1, &x, 1, NULL);
    }
    tacit_builder_output(b, "y", x);
    if (tacit_builder_finish(b, &m, &err) != TACIT_OK ||
        tacit_compile(
            m, &(tacit_compile_options){.executor = executor, .threads = 2, .workers = shared}, &p,
            &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_builder_free(b);
    tacit_model_free(m);
    free(weights);
    return p;
}

static void many_sessions(tacit_executor executor)
{
    tacit_program *p = make_program(executor, NULL);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.program = p, .seed = i % 3};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    tacit_session *s = NULL;
    assert_int_equal(tacit_session_create(p, &s, NULL), TACIT_OK);
    for (uint32_t i = 0; i < THREADS; i++)
        join_and_check(threads[i], &workers[i], s);
    tacit_program_free(p); /* the session keeps it */
    tacit_session_free(s);
}

static void serial_sessions(void **state)
{
    (void)state;
    many_sessions(TACIT_EXEC_SERIAL);
}

static void task_sessions(void **state)
{
    (void)state;
    many_sessions(TACIT_EXEC_TASKS);
}

static int thread_count(void)
{
    int count = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));)
        count += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return count;
}

/* One more thread for all sessions of a program, not one for each. */
static void sessions_of_a_program_share_its_workers(void **state)
{
    (void)state;
    int before = thread_count();
    tacit_program *p = make_program(TACIT_EXEC_TASKS, NULL);
    tacit_session *s[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(tacit_session_create(p, &s[i], NULL), TACIT_OK);
    if (before) /* 0: no /proc */
        assert_int_equal(thread_count(), before + 1);
    tacit_program_free(p);
    for (int i = 0; i < 8; i++)
        tacit_session_free(s[i]);
    assert_int_equal(thread_count(), before);
}

/* How many threads have a name of ours by now; all of them block signals. */
static int blocking_workers(void)
{
    DIR *d = opendir("/proc/self/task");
    int workers = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[300], line[200];
        unsigned long long blocked = 0;
        bool ours = false;
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = fopen(path, "r");
        while (f && fgets(line, sizeof line, f)) {
            ours |= strncmp(line, "Name:\ttacit-", 12) == 0;
            (void)sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (f)
            fclose(f);
        if (!ours)
            continue;
        workers++;
        assert_true(blocked >> (SIGINT - 1) & 1);
        assert_true(blocked >> (SIGUSR1 - 1) & 1);
    }
    if (d)
        closedir(d);
    return d ? workers : -1; /* no /proc */
}

/* Handlers of the program would otherwise run on a worker, in the middle of its work. */
static void workers_block_signals(void **state)
{
    (void)state;
    tacit_task_runtime *rt = NULL;
    assert_int_equal(tacit_task_create(&(tacit_task_config){.threads = 3}, &rt, NULL), TACIT_OK);
    int workers = blocking_workers();
    for (int tries = 0; workers >= 0 && workers < 2 && tries < 60000; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* they name themselves */
        workers = blocking_workers();
    }
    assert_true(workers == 2 || workers == -1);
    tacit_task_destroy(rt);
}

static void programs_share_the_callers_workers(void **state)
{
    (void)state;
    tacit_task_runtime *shared = NULL;
    assert_int_equal(tacit_task_create(&(tacit_task_config){.threads = 2}, &shared, NULL),
                     TACIT_OK);
    int before = thread_count();
    tacit_program *programs[2] = {make_program(TACIT_EXEC_TASKS, shared),
                                  make_program(TACIT_EXEC_TASKS, shared)};
    assert_int_equal(thread_count(), before);
    tacit_program *serial = make_program(TACIT_EXEC_SERIAL, NULL);
    tacit_session *alone = NULL;
    assert_int_equal(tacit_session_create(serial, &alone, NULL), TACIT_OK);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.program = programs[i % 2], .seed = i};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        join_and_check(threads[i], &workers[i], alone);
    tacit_session_free(alone);
    tacit_program_free(serial);
    tacit_program_free(programs[0]);
    tacit_program_free(programs[1]);
    tacit_task_destroy(shared);
}

static void *compile_again(void *context)
{
    tacit_program *p = NULL;
    tacit_status status = tacit_compile(context, NULL, &p, NULL);
    tacit_program_free(p);
    return (void *)(uintptr_t)status;
}

static void compiling_one_model_from_many_threads(void **state)
{
    (void)state;
    tacit_builder *b = NULL;
    tacit_model *m = NULL;
    int64_t dims[] = {4, 4};
    assert_int_equal(tacit_builder_create("shared", NULL, &b, NULL), TACIT_OK);
    tacit_value x = tacit_builder_input(b, "x", TACIT_F32, 2, dims, NULL);
    for (int i = 0; i < 20; i++)
        x = tacit_builder_node(b, i & 1 ? "Relu" : "Softmax", 1, &x, 1, NULL);
    tacit_builder_output(b, "y", x);
    assert_int_equal(tacit_builder_finish(b, &m, NULL), TACIT_OK);
    tacit_builder_free(b);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, compile_again, m), 0);
    for (int i = 0; i < THREADS; i++) {
        void *result = NULL;
        assert_int_equal(pthread_join(threads[i], &result), 0);
        assert_true((uintptr_t)result == TACIT_OK);
    }
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serial_sessions),
        cmocka_unit_test(task_sessions),
        cmocka_unit_test(sessions_of_a_program_share_its_workers),
        cmocka_unit_test(workers_block_signals),
        cmocka_unit_test(programs_share_the_callers_workers),
        cmocka_unit_test(compiling_one_model_from_many_threads),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
