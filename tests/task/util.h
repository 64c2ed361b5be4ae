/* SPDX-License-Identifier: Apache-2.0
 * What the task runtime's tests share. */
#ifndef TESTS_TASK_UTIL_H
#define TESTS_TASK_UTIL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* after the above */
#include <cmocka.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tacit/task.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        tacit_error e_ = {0};                                                                      \
        tacit_status s_ = (call);                                                                  \
        if (s_ != TACIT_OK)                                                                        \
            fail_msg("%s: %s: %s", #call, tacit_status_text(s_), err.message);                     \
        (void)e_;                                                                                  \
    } while (0)

/* The call fails with `status` and its message contains `text`. */
#define FAILS(status_, text, call)                                                                 \
    do {                                                                                           \
        err = (tacit_error){0};                                                                    \
        assert_int_equal((call), (status_));                                                       \
        if (!strstr(err.message, (text)))                                                          \
            fail_msg("message \"%s\" does not contain \"%s\"", err.message, (text));               \
    } while (0)

static tacit_error err;

static inline tacit_task_runtime *make(tacit_task_config config)
{
    tacit_task_runtime *rt = NULL;
    OK(tacit_task_create(&config, &rt, &err));
    return rt;
}

static inline tacit_task_id submit(tacit_task_runtime *rt, const tacit_task_kernel *k, void *user,
                                   tacit_task_param *params, uint32_t count,
                                   const tacit_task_id *deps, uint32_t dep_count)
{
    tacit_task_id id = TACIT_TASK_NONE;
    OK(tacit_task_submit(rt,
                         &(tacit_task_desc){.kernel = k,
                                            .user = user,
                                            .params = params,
                                            .param_count = count,
                                            .deps = deps,
                                            .dep_count = dep_count},
                         &id, &err));
    return id;
}

static inline void scope(tacit_task_runtime *rt, const char *site)
{
    OK(tacit_task_scope_begin(rt, TACIT_TASK_AUTO, site, &err));
}
static inline void end(tacit_task_runtime *rt)
{
    OK(tacit_task_scope_end(rt, &err));
}

/* A gate that kernels wait at: shows what is held back while a task runs. */
typedef struct gate {
    _Atomic int open, inside;
} gate;

static inline tacit_status gate_run(const tacit_task_call *call)
{
    gate *g = call->user;
    atomic_fetch_add(&g->inside, 1);
    while (!atomic_load(&g->open))
        sched_yield();
    return TACIT_OK;
}

/* Opens a gate as soon as submit waits for `resource`, and notes how many tasks were in by then. */
typedef struct opener {
    tacit_task_runtime *rt;
    gate *gate;
    tacit_task_resource resource;
    _Atomic uint64_t submitted; /* the test counts here */
    uint64_t seen;
    pthread_t thread;
} opener;

static inline void *opener_main(void *argument)
{
    opener *o = argument;
    while (tacit_task_current_stall(o->rt) != o->resource)
        sched_yield();
    usleep(2000); /* a submit that wrongly went on would show by now */
    o->seen = atomic_load(&o->submitted);
    atomic_store(&o->gate->open, 1);
    return NULL;
}

/* Submits a gate and waits until a worker stands in it. */
static inline tacit_task_id enter_gate(tacit_task_runtime *rt, const tacit_task_kernel *k, gate *g)
{
    tacit_task_id id = TACIT_TASK_NONE;
    tacit_task_desc d = {.kernel = k, .user = g};
    assert_int_equal(tacit_task_submit(rt, &d, &id, &err), TACIT_OK);
    assert_int_equal(tacit_task_flush(rt, &err), TACIT_OK);
    while (!atomic_load(&g->inside))
        sched_yield();
    return id;
}

static inline tacit_status nop_run(const tacit_task_call *call)
{
    (void)call;
    return TACIT_OK;
}

static inline tacit_status count_run(const tacit_task_call *call)
{
    atomic_fetch_add((_Atomic int *)call->user, 1);
    return TACIT_OK;
}

static const tacit_task_kernel k_nop = {nop_run, "nop", TACIT_TASK_CUBE};
static const tacit_task_kernel k_count = {count_run, "count", TACIT_TASK_VECTOR};
static const tacit_task_kernel k_gate = {gate_run, "gate", TACIT_TASK_CUBE};

static inline void unused_helpers(void)
{
    (void)k_nop;
    (void)k_count;
    (void)k_gate;
    (void)end;
    (void)scope;
    (void)submit;
    (void)make;
    (void)opener_main;
    (void)enter_gate;
}

#endif
