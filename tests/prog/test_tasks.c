/* SPDX-License-Identifier: Apache-2.0
 * The task executor gives the serial executor's bits, whatever the graph, plan and thread count. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/internal.h"
#include "base/rng.h"
#include "prog/tasks.h"

enum { SIDE = 128, BYTES = SIDE * SIDE * 4, OUTPUTS = 4 };

typedef struct stage {
    tacit_model *model;
    float *x;
} stage;

static tacit_value square_constant(tacit_builder *b, rng *r)
{
    int64_t dims[] = {SIDE, SIDE};
    float *data = malloc(BYTES);
    for (int i = 0; i < SIDE * SIDE; i++)
        data[i] = (float)rng_range(r, -0.1, 0.1);
    tacit_value v = tacit_builder_constant(b, NULL, TACIT_F32, 2, dims, data);
    free(data);
    return v;
}

/* A random graph of square matrices: products, element-wise, softmax, transposes, slices. */
static tacit_value random_node(tacit_builder *b, rng *r, const tacit_value *values, uint32_t n)
{
    tacit_value x = values[rng_below(r, n)], y = values[rng_below(r, n)];
    switch (rng_below(r, 7)) {
    case 0:
        return tacit_builder_node(b, "MatMul", 2, (tacit_value[]){x, square_constant(b, r)}, 1,
                                  NULL);
    case 1:
        return tacit_builder_node(b, "MatMul", 2, (tacit_value[]){x, y}, 1, NULL);
    case 2:
        return tacit_builder_node(b, "Softmax", 1, &x, 1, NULL);
    case 3:
        return tacit_builder_node(b, "Transpose", 1, &x, 1, NULL);
    case 4:
        return tacit_builder_node(b, "Tanh", 1, &x, 1, NULL);
    case 5:
        return tacit_builder_node(b, "Mul", 2, (tacit_value[]){x, y}, 1, NULL);
    default:
        return tacit_builder_node(b, "Add", 2, (tacit_value[]){x, y}, 1, NULL);
    }
}

static stage make_stage(uint64_t seed)
{
    rng r = rng_seed(seed);
    tacit_builder *b = NULL;
    stage s = {.x = malloc(BYTES)};
    tacit_error err = {0};
    int64_t dims[] = {SIDE, SIDE};
    assert_int_equal(tacit_builder_create("random", NULL, &b, &err), TACIT_OK);
    tacit_value values[64];
    uint32_t n = 0;
    values[n++] = tacit_builder_input(b, "x", TACIT_F32, 2, dims, NULL);
    for (uint32_t i = 0; i < 30; i++) {
        values[n] = random_node(b, &r, values, n);
        n++;
    }
    static const char *const names[OUTPUTS] = {"y0", "y1", "y2", "y3"};
    for (uint32_t i = 0; i < OUTPUTS; i++)
        tacit_builder_output(b, names[i], values[n - 1 - i * 5]);
    if (tacit_builder_finish(b, &s.model, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_builder_free(b);
    for (int i = 0; i < SIDE * SIDE; i++)
        s.x[i] = (float)rng_range(&r, -1, 1);
    return s;
}

/* Runs `times` times; returns how often the outputs differ from `expected` (filled when NULL). */
static uint32_t run(const stage *s, const tacit_compile_options *o, int times, float *expected,
                    bool fill, uint32_t *tasks)
{
    tacit_program *p = NULL;
    tacit_session *session = NULL;
    tacit_error err = {0};
    if (tacit_compile(s->model, o, &p, &err) != TACIT_OK ||
        tacit_session_create(p, &session, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    *tasks = prog_tasks_count(api_program_prog(p));
    uint32_t wrong = 0;
    float *y = malloc((size_t)OUTPUTS * BYTES);
    for (int i = 0; i < times; i++) {
        tacit_tensor in = {
            .dtype = TACIT_F32, .rank = 2, .dims = {SIDE, SIDE}, .data = s->x, .bytes = BYTES};
        tacit_tensor out[OUTPUTS];
        memset(y, 0xff, (size_t)OUTPUTS * BYTES);
        for (int k = 0; k < OUTPUTS; k++) {
            out[k] = in;
            out[k].data = (char *)y + (size_t)k * BYTES;
        }
        if (tacit_run(session, &in, 1, out, OUTPUTS, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        if (fill)
            memcpy(expected, y, (size_t)OUTPUTS * BYTES);
        wrong += memcmp(expected, y, (size_t)OUTPUTS * BYTES) != 0;
    }
    free(y);
    tacit_session_free(session);
    tacit_program_free(p);
    return wrong;
}

static void tasks_give_the_serial_bits(void **state)
{
    (void)state;
    static const char *const all[] = {"all"};
    float *expected = malloc((size_t)OUTPUTS * BYTES);
    uint32_t busy = 0; /* configurations that really ran as tasks */
    for (uint64_t seed = 0; seed < 12; seed++) {
        stage s = make_stage(seed);
        uint32_t tasks;
        tacit_compile_options o = {.disabled_passes = all, .n_disabled_passes = seed & 1};
        assert_int_equal(run(&s, &o, 1, expected, true, &tasks), 0);
        assert_int_equal(tasks, 0);
        o.executor = TACIT_EXEC_TASKS;
        for (uint32_t threads = 1; threads <= 4; threads++)
            for (int goal = TACIT_PLAN_MIN_MEMORY; goal <= TACIT_PLAN_MIN_TIME; goal++) {
                o.threads = threads;
                o.plan = (tacit_plan_goal)goal;
                assert_int_equal(run(&s, &o, 5, expected, false, &tasks), 0);
                assert_true(threads > 1 || tasks == 0);
                busy += tasks > 20;
            }
        tacit_model_free(s.model);
        free(s.x);
    }
    assert_true(busy >= 40);
    free(expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tasks_give_the_serial_bits),
    };
    return cmocka_run_group_tests_name("task executor", tests, NULL, NULL);
}
