/* SPDX-License-Identifier: Apache-2.0
 * Parameters updated where they lie: the same bits as with buffers apart, by every executor. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "tacit/tacit.h"

enum { MOST = 40, STEPS = 4 };

static tacit_error err;

/* Three layers; the middle matrix is used twice, so its gradient is a sum. */
static tacit_model *network(void)
{
    static const char text[] =
        "tacit 1\ngraph \"m\" {\n"
        "  in %x : f32[48,40]\n  in %y : i64[48]\n"
        "  in %w1 : f32[40,64]\n  in %b1 : f32[64]\n  in %w2 : f32[64,64]\n  in %w3 : f32[64,10]\n"
        "  %a = MatMul(%x, %w1) @a\n  %b = Add(%a, %b1) @b\n  %c = Relu(%b) @c\n"
        "  %d = MatMul(%c, %w2) @d\n  %e = Tanh(%d) @e\n"
        "  %f = MatMul(%e, %w2) @f\n  %g = Sigmoid(%f) @g\n  %h = MatMul(%g, %w3) @h\n"
        "  %loss = SoftmaxCrossEntropyLoss(%h, %y) @loss\n  out %loss\n}\n";
    tacit_model *m;
    if (tacit_model_load_memory(text, strlen(text), NULL, &m, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    return m;
}

typedef struct run {
    tacit_program *program;
    tacit_session *session;
    tacit_tensor in[MOST], out[MOST];
    uint32_t n_in, n_out;
    void *own[2 * MOST]; /* to be freed */
    uint32_t n_own;
} run;

static void *own(run *r, size_t bytes)
{
    void *p = calloc(1, bytes);
    assert_non_null(p);
    r->own[r->n_own++] = p;
    return p;
}

static void fill(tacit_tensor *t, rng *random)
{
    float *data = t->data;
    for (size_t i = 0; t->dtype == TACIT_I64 && i < t->bytes / 8; i++)
        ((int64_t *)t->data)[i] = (int64_t)rng_below(random, 10);
    for (size_t i = 0; t->dtype == TACIT_F32 && i < t->bytes / 4; i++)
        data[i] = strstr(t->name, ".") ? 0.0f : (float)rng_range(random, -0.4, 0.4);
}

/* Output NAME.next is written over input NAME, or beside it. */
static void open_run(run *r, const tacit_model *m, const tacit_compile_options *o, bool over)
{
    rng random = rng_seed(3);
    memset(r, 0, sizeof *r);
    if (tacit_compile(m, o, &r->program, &err) != TACIT_OK ||
        tacit_session_create(r->program, &r->session, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    r->n_in = tacit_program_input_count(r->program);
    r->n_out = tacit_program_output_count(r->program);
    assert_true(r->n_in <= MOST && r->n_out <= MOST);
    for (uint32_t i = 0; i < r->n_in + r->n_out; i++) {
        bool in = i < r->n_in;
        tacit_tensor *t = in ? &r->in[i] : &r->out[i - r->n_in];
        tacit_port p;
        assert_int_equal(in ? tacit_program_input(r->program, i, &p)
                            : tacit_program_output(r->program, i - r->n_in, &p),
                         TACIT_OK);
        *t = (tacit_tensor){.name = p.name, .dtype = p.dtype, .rank = p.rank, .bytes = p.bytes};
        memcpy(t->dims, p.dims, sizeof p.dims);
        for (uint32_t k = 0; over && !in && k < r->n_in; k++) {
            size_t n = strlen(r->in[k].name);
            if (strncmp(p.name, r->in[k].name, n) == 0 && strcmp(p.name + n, ".next") == 0)
                t->data = r->in[k].data;
        }
        if (!t->data)
            t->data = own(r, p.bytes);
        if (in)
            fill(t, &random);
    }
}

static void *find(tacit_tensor *all, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].data;
    return NULL;
}

static void step(run *r, int count)
{
    *(float *)find(r->in, r->n_in, "learning_rate") = 0.01f;
    float *at = find(r->in, r->n_in, "step");
    if (at)
        *at = (float)count;
    if (tacit_run(r->session, r->in, r->n_in, r->out, r->n_out, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (uint32_t k = 0; k < r->n_in; k++) {
        char name[64];
        snprintf(name, sizeof name, "%s.next", r->in[k].name);
        void *next = find(r->out, r->n_out, name);
        if (next && next != r->in[k].data)
            memcpy(r->in[k].data, next, r->in[k].bytes);
    }
}

static void close_run(run *r)
{
    tacit_session_free(r->session);
    tacit_program_free(r->program);
    for (uint32_t i = 0; i < r->n_own; i++)
        free(r->own[i]);
}

static void same_bits(run *a, run *b, int count)
{
    for (uint32_t i = 0; i < a->n_in; i++)
        if (memcmp(a->in[i].data, b->in[i].data, a->in[i].bytes) != 0)
            fail_msg("'%s' differs after step %d", a->in[i].name, count);
    assert_memory_equal(a->out[0].data, b->out[0].data, 4);
}

static void compare(const tacit_model *m, tacit_executor executor, tacit_plan_goal plan)
{
    tacit_compile_options apart = {.threads = 2}, over = {.executor = executor,
                                                          .plan = plan,
                                                          .threads = 2,
                                                          .validate = TACIT_VALIDATE_NORMAL,
                                                          .update_in_place = 1};
    apart.executor = executor == TACIT_EXEC_REFERENCE ? executor : TACIT_EXEC_SERIAL;
    run a, b;
    open_run(&a, m, &apart, false);
    open_run(&b, m, &over, true);
    float first = 0;
    for (int i = 1; i <= STEPS; i++) {
        step(&a, i);
        step(&b, i);
        same_bits(&a, &b, i);
        first = i == 1 ? *(float *)a.out[0].data : first;
    }
    assert_true(*(float *)a.out[0].data < first);
    close_run(&a);
    close_run(&b);
}

static void all_optimisers(void **state)
{
    (void)state;
    static const tacit_train_options options[] = {
        {.optimizer = TACIT_SGD},
        {.optimizer = TACIT_SGD, .momentum = 0.9, .clip_norm = 0.5, .weight_decay = 0.01},
        {.optimizer = TACIT_ADAM, .weight_decay = 0.01},
        {.optimizer = TACIT_ADAMW, .weight_decay = 0.01, .clip_norm = 0.1},
        {.optimizer = TACIT_ADAMW, .loss_scale = 256},
        {.optimizer = TACIT_SGD, .loss_scale = 256, .momentum = 0.5},
    };
    tacit_model *m = network(), *s;
    const char *params[] = {"w1", "b1", "w2", "w3"};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (tacit_train_step(m, 4, params, &options[i], &s, &err) != TACIT_OK)
            fail_msg("%s", err.message);
        compare(s, TACIT_EXEC_SERIAL, TACIT_PLAN_MIN_MEMORY);
        compare(s, TACIT_EXEC_SERIAL, TACIT_PLAN_MIN_TIME);
        compare(s, TACIT_EXEC_TASKS, TACIT_PLAN_MIN_MEMORY);
        compare(s, TACIT_EXEC_TASKS, TACIT_PLAN_MIN_TIME);
        compare(s, TACIT_EXEC_REFERENCE, TACIT_PLAN_MIN_MEMORY);
        tacit_model_free(s);
    }
    tacit_model_free(m);
}

/* Updates that read each other's old values, readers that want old and new: copies are made. */
static void tangled(void **state)
{
    (void)state;
    tacit_builder *b;
    tacit_model *m;
    int64_t four = 4, rows[2] = {2, 2};
    assert_int_equal(tacit_builder_create("t", NULL, &b, &err), TACIT_OK);
    tacit_value p = tacit_builder_input(b, "p", TACIT_F32, 1, &four, NULL);
    tacit_value q = tacit_builder_input(b, "q", TACIT_F32, 1, &four, NULL);
    tacit_value r = tacit_builder_input(b, "r", TACIT_F32, 2, rows, NULL);
    tacit_value rate = tacit_builder_input(b, "learning_rate", TACIT_F32, 0, NULL, NULL);
    tacit_value p2 = tacit_builder_node(b, "Add", 2, (tacit_value[]){q, rate}, 1, NULL);
    tacit_value q2 = tacit_builder_node(b, "Mul", 2, (tacit_value[]){p, q}, 1, NULL);
    tacit_value both = tacit_builder_node(b, "Sub", 2, (tacit_value[]){p, p2}, 1, NULL);
    tacit_value sum = tacit_builder_node(b, "ReduceSum", 1, &both, 1, NULL);
    tacit_value turned = tacit_builder_node(b, "Transpose", 1, &r, 1, NULL);
    tacit_value r2 = tacit_builder_node(b, "MatMul", 2, (tacit_value[]){r, turned}, 1, NULL);
    tacit_builder_output(b, "sum", sum);
    tacit_builder_output(b, "p.next", p2);
    tacit_builder_output(b, "q.next", q2);
    tacit_builder_output(b, "r.next", r2);
    if (tacit_builder_finish(b, &m, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    for (int k = 0; k < 4; k++) {
        tacit_compile_options apart = {0}, over = {.update_in_place = 1, .threads = 2};
        over.executor = k & 1 ? TACIT_EXEC_TASKS : TACIT_EXEC_SERIAL;
        over.plan = k & 2 ? TACIT_PLAN_MIN_TIME : TACIT_PLAN_MIN_MEMORY;
        run x, y;
        open_run(&x, m, &apart, false);
        open_run(&y, m, &over, true);
        for (int i = 1; i <= STEPS; i++) {
            step(&x, i);
            step(&y, i);
            same_bits(&x, &y, i);
        }
        close_run(&x);
        close_run(&y);
    }
    tacit_model_free(m);
    tacit_builder_free(b);
}

static void overlaps_are_refused(void **state)
{
    (void)state;
    tacit_model *m = network(), *s;
    assert_int_equal(tacit_train_step(m, 1, (const char *[]){"w1"}, NULL, &s, &err), TACIT_OK);
    run r;
    open_run(&r, s, &(tacit_compile_options){0}, true); /* not compiled for it */
    assert_int_equal(tacit_run(r.session, r.in, r.n_in, r.out, r.n_out, &err), TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "overlap"));
    close_run(&r);
    open_run(&r, s, &(tacit_compile_options){.update_in_place = 1}, true);
    for (uint32_t i = 0; i < r.n_out; i++)
        if (strcmp(r.out[i].name, "w1.next") == 0)
            r.out[i].data = find(r.in, r.n_in, "x"); /* another input's buffer */
    for (uint32_t i = 0; i < r.n_out; i++)
        r.out[i].bytes = r.out[i].bytes < 40 * 64 * 4 ? r.out[i].bytes : 40 * 64 * 4;
    assert_int_equal(tacit_run(r.session, r.in, r.n_in, r.out, r.n_out, &err), TACIT_ERR_ARGUMENT);
    close_run(&r);
    tacit_model_free(s);
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_optimisers),
        cmocka_unit_test(tangled),
        cmocka_unit_test(overlaps_are_refused),
    };
    return cmocka_run_group_tests_name("updates in place", tests, NULL, NULL);
}
