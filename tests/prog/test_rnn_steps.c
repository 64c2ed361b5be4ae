/* SPDX-License-Identifier: Apache-2.0
 * Recurrent layers of few sequences: with tasks every step is shared by processors, and the bits
 * are those of one thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/internal.h"
#include "base/cpu.h"
#include "base/rng.h"

enum { STEPS = 5, INPUT = 24, OUTPUTS = 3, MOST = 400 * STEPS };

typedef struct layer {
    const char *op, *direction;
    int64_t gates, hidden, batch;
    bool states; /* given from outside, and wanted */
} layer;

static tacit_value random_weight(tacit_builder *b, rng *r, int32_t rank, const int64_t *dims)
{
    int64_t count = 1;
    for (int32_t d = 0; d < rank; d++)
        count *= dims[d];
    float *data = malloc((size_t)count * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < count; i++)
        data[i] = (float)rng_range(r, -0.1, 0.1);
    tacit_value v = tacit_builder_constant(b, NULL, TACIT_F32, rank, dims, data);
    free(data);
    return v;
}

static tacit_model *make(const layer *l)
{
    static const char *const names[OUTPUTS] = {"all_h", "last_h", "last_c"};
    tacit_error err = {0};
    tacit_builder *b;
    tacit_model *model = NULL;
    rng r = rng_seed(3);
    bool lstm = strcmp(l->op, "LSTM") == 0;
    int64_t g = l->gates * l->hidden, n = l->hidden;
    assert_int_equal(tacit_builder_create("rnn", NULL, &b, &err), TACIT_OK);
    tacit_value in[7] = {
        tacit_builder_input(b, "x", TACIT_F32, 3, (int64_t[]){STEPS, l->batch, INPUT}, NULL),
        random_weight(b, &r, 3, (int64_t[]){1, g, INPUT}),
        random_weight(b, &r, 3, (int64_t[]){1, g, n}),
        random_weight(b, &r, 2, (int64_t[]){1, 2 * g}),
    };
    uint32_t n_in = 4, n_out = lstm ? 3 : 2;
    if (l->states) {
        in[5] = random_weight(b, &r, 3, (int64_t[]){1, l->batch, n});
        in[6] = random_weight(b, &r, 3, (int64_t[]){1, l->batch, n});
        n_in = lstm ? 7 : 6;
    }
    tacit_value out[OUTPUTS];
    out[0] = tacit_builder_node(b, l->op, n_in, in, n_out, out);
    tacit_builder_attr_int(b, "hidden_size", n);
    tacit_builder_attr_string(b, "direction", l->direction);
    if (strcmp(l->op, "GRU") == 0)
        tacit_builder_attr_int(b, "linear_before_reset", 1);
    for (uint32_t i = 0; i < (l->states ? n_out : 1); i++)
        tacit_builder_output(b, names[i], out[i]);
    if (tacit_builder_finish(b, &model, &err) != TACIT_OK)
        fail_msg("%s: %s", l->op, err.message);
    tacit_builder_free(b);
    return model;
}

/* All outputs behind each other; returns how many numbers. */
static size_t run(const tacit_model *model, const layer *l, tacit_executor executor, float *out,
                  bool *shared)
{
    tacit_error err = {0};
    tacit_program *program = NULL;
    tacit_session *session = NULL;
    float x[STEPS * 4 * INPUT];
    rng r = rng_seed(4);
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)rng_normal(&r);
    tacit_compile_options o = {.executor = executor, .threads = 2};
    tacit_tensor in = {.name = "x",
                       .dtype = TACIT_F32,
                       .rank = 3,
                       .dims = {STEPS, l->batch, INPUT},
                       .data = x,
                       .bytes = (size_t)(STEPS * l->batch * INPUT) * sizeof *x};
    if (tacit_compile(model, &o, &program, &err) != TACIT_OK ||
        tacit_session_create(program, &session, &err) != TACIT_OK)
        fail_msg("%s: %s", l->op, err.message);
    tacit_tensor y[OUTPUTS];
    uint32_t n = tacit_program_output_count(program);
    for (int twice = 0; twice < 2; twice++) {
        memset(y, 0, sizeof y); /* what the last run lent is not given back */
        if (tacit_run(session, &in, 1, y, n, &err) != TACIT_OK)
            fail_msg("%s: %s", l->op, err.message);
    }
    size_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        memcpy(out + at, y[i].data, y[i].bytes);
        at += y[i].bytes / sizeof *out;
    }
    const prog_program *p = api_program_prog(program);
    *shared = false;
    for (uint32_t i = 0; i < p->n_thunks; i++)
        *shared |= strncmp(p->thunks[i].made->kernel, "rnn_step", 8) == 0;
    tacit_session_free(session);
    tacit_program_free(program);
    return at;
}

static void same_bits(void **state)
{
    (void)state;
    static const layer layers[] = {
        {"LSTM", "forward", 4, 200, 1, false}, {"LSTM", "reverse", 4, 200, 3, true},
        {"GRU", "forward", 3, 231, 1, true},   {"GRU", "reverse", 3, 231, 2, false},
        {"RNN", "forward", 1, 400, 1, true},   {"RNN", "reverse", 1, 400, 4, false},
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const layer *l = &layers[i];
        static float want[5 * MOST], got[5 * MOST], reference[5 * MOST];
        bool alone, shared, unused;
        tacit_model *model = make(l);
        size_t n = run(model, l, TACIT_EXEC_SERIAL, want, &alone);
        assert_int_equal(run(model, l, TACIT_EXEC_TASKS, got, &shared), n);
        assert_int_equal(run(model, l, TACIT_EXEC_REFERENCE, reference, &unused), n);
        assert_true(n <= 5 * MOST);
        assert_false(alone);
        assert_true(shared == (cpu_count() > 1));
        assert_memory_equal(want, got, n * sizeof *want);
        for (size_t k = 0; k < n; k++)
            if (!(want[k] - reference[k] < 1e-5f && reference[k] - want[k] < 1e-5f))
                fail_msg("%s: %g at %zu, not %g", l->op, (double)want[k], k, (double)reference[k]);
        tacit_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits)};
    return cmocka_run_group_tests_name("steps of recurrent layers", tests, NULL, NULL);
}
