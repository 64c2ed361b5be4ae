/* SPDX-License-Identifier: Apache-2.0
 * Values that are made where Concat joins them: the results are those of the reference, whatever
 * else reads the parts, and nothing is copied where nothing need be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/internal.h"
#include "base/rng.h"

enum { WIDTH = 16, MOST = 24, LONGEST = 4096 };

/* Tensors [outer, rows, 16]; those of one outer row are joined without copying. */
typedef struct network {
    tacit_builder *b;
    rng r;
    int64_t outer;
    tacit_value made[MOST + 1];
    int64_t rows[MOST + 1];
    uint32_t count;
} network;

static tacit_value node(network *n, const char *op, uint32_t n_in, const tacit_value *in)
{
    return tacit_builder_node(n->b, op, n_in, in, 1, NULL);
}

static void made(network *n, tacit_value v, int64_t rows)
{
    n->made[n->count] = v;
    n->rows[n->count++] = rows;
}

static uint32_t pick(network *n)
{
    return rng_below(&n->r, 2) ? n->count - 1 : (uint32_t)rng_below(&n->r, n->count);
}

static void add_join(network *n)
{
    tacit_value in[3];
    uint32_t n_in = 1 + (uint32_t)rng_below(&n->r, 3);
    int64_t rows = 0;
    for (uint32_t k = 0; k < n_in; k++) {
        uint32_t from = pick(n);
        in[k] = n->made[from];
        rows += n->rows[from];
    }
    if (rows > LONGEST)
        return;
    tacit_value y = node(n, "Concat", n_in, in);
    tacit_builder_attr_int(n->b, "axis", rng_below(&n->r, 2) ? 1 : -2);
    made(n, y, rows);
}

/* The last half of the rows: a view. */
static void add_half(network *n)
{
    uint32_t from = pick(n);
    int64_t rows = n->rows[from], half = rows / 2, one = 1, axis = 1;
    tacit_value in[4] = {n->made[from],
                         tacit_builder_constant(n->b, NULL, TACIT_I64, 1, &one, &half),
                         tacit_builder_constant(n->b, NULL, TACIT_I64, 1, &one, &rows),
                         tacit_builder_constant(n->b, NULL, TACIT_I64, 1, &one, &axis)};
    made(n, node(n, "Slice", 4, in), rows - half);
}

static void add_each(network *n)
{
    static const char *const ops[] = {"Neg", "Abs", "Sigmoid", "Tanh"};
    uint32_t from = pick(n);
    made(n, node(n, ops[rng_below(&n->r, 4)], 1, &n->made[from]), n->rows[from]);
}

static tacit_model *make(uint64_t seed, int64_t *outer)
{
    tacit_error err = {0};
    tacit_model *model = NULL;
    network n = {.r = rng_seed(seed)};
    assert_int_equal(tacit_builder_create("joined", NULL, &n.b, &err), TACIT_OK);
    *outer = n.outer = rng_below(&n.r, 4) ? 1 : 2;
    made(&n, tacit_builder_input(n.b, "x", TACIT_F32, 3, (int64_t[]){n.outer, 3, WIDTH}, NULL), 3);
    while (n.count < MOST) {
        uint64_t kind = rng_below(&n.r, 8);
        if (kind < 3)
            add_join(&n);
        else if (kind < 4)
            add_half(&n);
        else
            add_each(&n);
    }
    tacit_builder_output(n.b, "last", node(&n, "Neg", 1, &n.made[n.count - 1]));
    tacit_builder_output(n.b, "some", n.made[1 + rng_below(&n.r, MOST - 1)]);
    if (tacit_builder_finish(n.b, &model, &err) != TACIT_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
    tacit_builder_free(n.b);
    return model;
}

typedef struct results {
    tacit_tensor out[2];
    uint32_t parts; /* values made where they are joined */
    uint32_t copies;
} results;

static uint32_t count_parts(const prog_program *p)
{
    uint32_t parts = 0;
    for (uint32_t i = 0; i < p->graph->values.count; i++)
        parts += p->views && p->views[i].joiner;
    return parts;
}

static uint32_t count_copies(const prog_program *p)
{
    uint32_t copies = 0;
    for (uint32_t i = 0; i < p->n_thunks; i++)
        copies += strcmp(p->thunks[i].made->kernel, "copy") == 0;
    return copies;
}

static results run(const tacit_model *model, tacit_executor executor, tacit_plan_goal goal,
                   float *x, int64_t outer)
{
    static const char *const names[] = {"last", "some"};
    tacit_error err = {0};
    tacit_program *program = NULL;
    tacit_session *session = NULL;
    tacit_compile_options o = {
        .executor = executor, .plan = goal, .threads = 3, .validate = TACIT_VALIDATE_STRICT};
    tacit_tensor in = {.name = "x",
                       .dtype = TACIT_F32,
                       .rank = 3,
                       .dims = {outer, 3, WIDTH},
                       .data = x,
                       .bytes = (size_t)(outer * 3 * WIDTH) * sizeof *x};
    results r = {.out = {{.name = names[0]}, {.name = names[1]}}};
    if (tacit_compile(model, &o, &program, &err) != TACIT_OK ||
        tacit_session_create(program, &session, &err) != TACIT_OK ||
        tacit_run(session, &in, 1, r.out, 2, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (int i = 0; i < 2; i++) {
        void *copy = malloc(r.out[i].bytes);
        memcpy(copy, r.out[i].data, r.out[i].bytes);
        r.out[i].data = copy;
    }
    r.parts = count_parts(api_program_prog(program));
    r.copies = count_copies(api_program_prog(program));
    tacit_session_free(session);
    tacit_program_free(program);
    return r;
}

static void same(const results *a, const results *b, uint64_t seed)
{
    for (int i = 0; i < 2; i++) {
        const float *x = a->out[i].data, *y = b->out[i].data;
        assert_int_equal(a->out[i].bytes, b->out[i].bytes);
        for (size_t e = 0; e < a->out[i].bytes / sizeof *x; e++)
            if (!(x[e] - y[e] < 1e-5f && y[e] - x[e] < 1e-5f))
                fail_msg("seed %llu, %s: %g at %zu, not %g", (unsigned long long)seed,
                         a->out[i].name, (double)x[e], e, (double)y[e]);
    }
}

static void forget(results *r)
{
    free(r->out[0].data);
    free(r->out[1].data);
}

static void random_networks(void **state)
{
    (void)state;
    uint32_t parts = 0;
    for (uint64_t seed = 0; seed < 150; seed++) {
        int64_t outer;
        float x[2 * 3 * WIDTH];
        tacit_model *model = make(seed, &outer);
        rng r = rng_seed(seed);
        for (int i = 0; i < 2 * 3 * WIDTH; i++)
            x[i] = (float)rng_normal(&r);
        results want = run(model, TACIT_EXEC_REFERENCE, TACIT_PLAN_MIN_MEMORY, x, outer);
        for (int way = 0; way < 4; way++) {
            results got = run(model, way & 1 ? TACIT_EXEC_TASKS : TACIT_EXEC_SERIAL,
                              way & 2 ? TACIT_PLAN_MIN_TIME : TACIT_PLAN_MIN_MEMORY, x, outer);
            same(&want, &got, seed);
            parts += got.parts;
            assert_true(outer == 1 || got.parts == 0);
            forget(&got);
        }
        forget(&want);
        tacit_model_free(model);
    }
    assert_true(parts > 500);
}

/* As DenseNet does it: what there is, and behind it what was made of it. */
static void a_chain_copies_nothing(void **state)
{
    (void)state;
    tacit_error err = {0};
    tacit_model *model = NULL;
    network n = {.r = rng_seed(1), .outer = 1};
    float x[3 * WIDTH] = {1, -2, 3};
    assert_int_equal(tacit_builder_create("chain", NULL, &n.b, &err), TACIT_OK);
    tacit_value in = tacit_builder_input(n.b, "x", TACIT_F32, 3, (int64_t[]){1, 3, WIDTH}, NULL);
    tacit_value all = node(&n, "Abs", 1, &in);
    for (int i = 0; i < 5; i++) {
        all = node(&n, "Concat", 2, (tacit_value[]){all, node(&n, i & 1 ? "Neg" : "Sin", 1, &all)});
        tacit_builder_attr_int(n.b, "axis", 1);
    }
    tacit_builder_output(n.b, "last", all);
    tacit_builder_output(n.b, "some", node(&n, "Neg", 1, &all));
    assert_int_equal(tacit_builder_finish(n.b, &model, &err), TACIT_OK);
    tacit_builder_free(n.b);
    results want = run(model, TACIT_EXEC_REFERENCE, TACIT_PLAN_MIN_MEMORY, x, 1);
    results got = run(model, TACIT_EXEC_SERIAL, TACIT_PLAN_MIN_MEMORY, x, 1);
    same(&want, &got, 0);
    assert_int_equal(got.parts, 10);
    assert_int_equal(got.copies, 0);
    forget(&want);
    forget(&got);
    tacit_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_networks),
        cmocka_unit_test(a_chain_copies_nothing),
    };
    return cmocka_run_group_tests_name("joins", tests, NULL, NULL);
}
