/* SPDX-License-Identifier: Apache-2.0
 * ACCELERATOR tasks that a device completes: half of the tiles are computed by it, half by the
 * workers, and a last task needs both. The trace shows both at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "support/host_device.h"
#include "tacit/task.h"

enum { TILES = 8, TILE = 4096 };

typedef struct bed {
    const cuda_device *d;
    uint64_t *there[TILES];
    uint64_t away_first, away_last, here_first, here_last; /* when work began and ended */
} bed;

typedef struct errand {
    tacit_task_runtime *rt;
    tacit_task_id token;
    bed *b;
} errand;

static void tell(void *context)
{
    errand e = *(errand *)context;
    free(context);
    e.b->away_last = clock_ns();
    if (tacit_task_complete(e.rt, e.token, TACIT_OK, NULL) != TACIT_OK)
        abort();
}

/* Queues copy, work, copy and the news of it; the worker is free at once. */
static tacit_status go_away(const tacit_task_call *call)
{
    bed *b = call->user;
    const cuda_ops *ops = b->d->ops;
    uint64_t *x = call->values[0].data, *y = call->values[1].data;
    uint64_t *there = b->there[call->values[2].integer];
    cuda_local l = {.op = CUDA_LINEAR,
                    .n_in = 1,
                    .count = TILE,
                    .mask = UINT64_MAX,
                    .in = {there},
                    .coef = {3},
                    .add = 1,
                    .out = there};
    errand *e = malloc(sizeof *e);
    tacit_error err;
    if (!e)
        return TACIT_ERR_MEMORY;
    *e = (errand){call->runtime, call->id, b};
    if (!b->away_first)
        b->away_first = clock_ns();
    tacit_status s = ops->copy(b->d->self, CUDA_TO_DEVICE, there, x, TILE * 8, &err);
    for (int i = 0; i < 3 && s == TACIT_OK; i++)
        s = ops->local(b->d->self, &l, &err);
    if (s == TACIT_OK)
        s = ops->copy(b->d->self, CUDA_TO_HOST, y, there, TILE * 8, &err);
    if (s == TACIT_OK)
        s = ops->notify(b->d->self, tell, e, &err);
    if (s != TACIT_OK)
        free(e);
    return s;
}
static tacit_status stay_here(const tacit_task_call *call)
{
    bed *b = call->user;
    const uint64_t *x = call->values[0].data;
    uint64_t *y = call->values[1].data, now = clock_ns();
    if (!b->here_first)
        b->here_first = now;
    for (int i = 0; i < TILE; i++)
        y[i] = 3 * (3 * (3 * x[i] + 1) + 1) + 1;
    b->here_last = clock_ns();
    return TACIT_OK;
}
static tacit_status add_up(const tacit_task_call *call)
{
    uint64_t sum = 0;
    for (int t = 0; t < TILES; t++)
        for (int i = 0; i < TILE; i++)
            sum += ((const uint64_t *)call->values[t].data)[i] * (uint64_t)(t + 1);
    *(uint64_t *)call->values[TILES].data = sum;
    return TACIT_OK;
}
static const tacit_task_kernel k_away = {go_away, "away", TACIT_TASK_ACCELERATOR};
static const tacit_task_kernel k_here = {stay_here, "here", TACIT_TASK_VECTOR};
static const tacit_task_kernel k_add = {add_up, "add", TACIT_TASK_VECTOR};

static void mixed_graph(const cuda_device *d)
{
    /* one worker talks to the device: a device object is used by one thread at a time */
    static const uint8_t types[] = {7, 8, 7};
    tacit_task_config config = {.threads = 3, .type_mask = types, .trace_level = 1};
    tacit_task_runtime *rt = NULL;
    tacit_error err = {0};
    bed b = {.d = d};
    uint64_t *x = malloc(TILES * TILE * 8), *y = calloc(TILES * TILE, 8), sum = 0, want = 0;
    assert_int_equal(tacit_task_create(&config, &rt, &err), TACIT_OK);
    for (int i = 0; i < TILES * TILE; i++) {
        x[i] = (uint64_t)i * 0x9e3779b97f4a7c15u;
        want += (27 * x[i] + 13) * (uint64_t)(i / TILE + 1);
    }
    tacit_task_buffer in[TILES], out[TILES], total = tacit_task_memory(&sum, 8);
    tacit_task_param last[TILES + 1];
    assert_int_equal(tacit_task_scope_begin(rt, TACIT_TASK_AUTO, "mixed", &err), TACIT_OK);
    for (int t = 0; t < TILES; t++) {
        assert_int_equal(d->ops->alloc(d->self, TILE * 8, (void **)&b.there[t], &err), TACIT_OK);
        in[t] = tacit_task_memory(x + t * TILE, TILE * 8);
        out[t] = tacit_task_memory(y + t * TILE, TILE * 8);
    }
    for (int t = 0; t < TILES; t++) {
        tacit_task_param p[] = {tacit_task_in(&in[t]), tacit_task_out(&out[t]),
                                tacit_task_scalar(t)};
        tacit_task_desc task = {
            .kernel = t % 2 ? &k_here : &k_away, .user = &b, .params = p, .param_count = 3};
        if (tacit_task_submit(rt, &task, NULL, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        last[t] = tacit_task_in(&out[t]);
    }
    last[TILES] = tacit_task_out(&total);
    tacit_task_desc task = {.kernel = &k_add, .params = last, .param_count = TILES + 1};
    assert_int_equal(tacit_task_submit(rt, &task, NULL, &err), TACIT_OK);
    assert_int_equal(tacit_task_scope_end(rt, &err), TACIT_OK);
    if (tacit_task_wait_all(rt, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    assert_true(sum == want);
    /* the workers' tiles ran while the device's were under way */
    assert_true(b.here_first < b.away_last && b.away_first < b.here_last + 1000000000u);
    char path[] = "/tmp/tacit-mixed-XXXXXX", text[8192];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(tacit_task_trace_chrome(rt, path, &err), TACIT_OK);
    FILE *f = fopen(path, "r");
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = 0;
    fclose(f);
    unlink(path);
    assert_non_null(strstr(text, "away"));
    assert_non_null(strstr(text, "here"));
    tacit_task_destroy(rt);
    for (int t = 0; t < TILES; t++)
        d->ops->release(d->self, b.there[t]);
    free(x);
    free(y);
}

static void tasks_on_the_host(void **state)
{
    (void)state;
    cuda_device d = host_device_open(0, 0);
    mixed_graph(&d);
    host_device_close(&d);
}
static void tasks_on_the_gpu(void **state)
{
    (void)state;
    cuda_device d;
    tacit_error err = {0};
    if (!cuda_present(NULL, 0))
        skip();
    if (cuda_open(0, 0, &d, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    mixed_graph(&d);
    cuda_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_on_the_host),
        cmocka_unit_test(tasks_on_the_gpu),
    };
    return cmocka_run_group_tests_name("cuda.tasks", tests, NULL, NULL);
}
