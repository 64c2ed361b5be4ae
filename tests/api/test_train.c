/* SPDX-License-Identifier: Apache-2.0
 * Training steps through the public API against the optimisers' formulas in double. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tacit/tacit.h"

/* loss = Σ (w·x)² / 2 with w a weight of two: dw = Σ p·x. */
static const char text[] = "tacit 1\n"
                           "graph \"m\" {\n"
                           "  symbol \"N\"\n"
                           "  in %x : f32[N,2]\n"
                           "  const %w : f32[2] = [3.0, -1.0]\n"
                           "  const %half : f32[] = [0.5]\n"
                           "  %p = MatMul(%x, %w) @p\n"
                           "  %s = Mul(%p, %p) @s\n"
                           "  %t = ReduceSum(%s) keepdims=0 @sum\n"
                           "  %loss = Mul(%t, %half) @half\n"
                           "  out %loss\n"
                           "}\n";
static float x[4] = {1, 2, -1, 1};

static void gradient(const double *w, double *g, double *loss)
{
    g[0] = g[1] = *loss = 0;
    for (int i = 0; i < 2; i++) {
        double p = w[0] * (double)x[2 * i] + w[1] * (double)x[2 * i + 1];
        *loss += p * p / 2;
        g[0] += p * (double)x[2 * i];
        g[1] += p * (double)x[2 * i + 1];
    }
}

typedef struct stepper {
    tacit_program *program;
    tacit_session *session;
    uint32_t states;
    float now[3][2], next[3][2], loss;
    const char *names[3];
} stepper;

static void step_open(stepper *s, const tacit_train_options *options)
{
    static const tacit_dim two = {"N", 2};
    tacit_train_options o = *options;
    tacit_model *m, *step;
    tacit_error err;
    o.dims = &two;
    o.n_dims = 1;
    memset(s, 0, sizeof *s);
    s->now[0][0] = 3, s->now[0][1] = -1;
    s->states = o.optimizer == TACIT_SGD ? o.momentum != 0 : 2;
    s->names[0] = "w";
    s->names[1] = o.optimizer == TACIT_SGD ? "w.momentum" : "w.mean";
    s->names[2] = "w.square";
    if (tacit_model_load_memory(text, strlen(text), NULL, &m, &err) != TACIT_OK ||
        tacit_train_step(m, 1, (const char *[]){"w"}, &o, &step, &err) != TACIT_OK ||
        tacit_compile(step, NULL, &s->program, &err) != TACIT_OK ||
        tacit_session_create(s->program, &s->session, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    tacit_model_free(m);
    tacit_model_free(step);
}

static tacit_tensor tensor(const char *name, float *data, int32_t rank, int64_t a, int64_t b)
{
    tacit_tensor t = {.name = name, .dtype = TACIT_F32, .rank = rank, .dims = {a, b}, .data = data};
    t.bytes = sizeof(float) * (size_t)((rank > 0 ? a : 1) * (rank > 1 ? b : 1));
    return t;
}

static void step_run(stepper *s, float rate, float count)
{
    tacit_tensor in[6] = {tensor("x", x, 2, 2, 2), tensor("learning_rate", &rate, 0, 0, 0)}, out[4];
    uint32_t n = 2;
    tacit_error err;
    if (s->states == 2)
        in[n++] = tensor("step", &count, 0, 0, 0);
    out[0] = tensor("loss", &s->loss, 0, 0, 0);
    for (uint32_t i = 0; i <= s->states; i++) {
        in[n++] = tensor(s->names[i], s->now[i], 1, 2, 0);
        out[1 + i] = tensor(NULL, s->next[i], 1, 2, 0);
    }
    if (tacit_run(s->session, in, n, out, 2 + s->states, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    memcpy(s->now, s->next, sizeof s->now);
}

static void step_close(stepper *s)
{
    tacit_session_free(s->session);
    tacit_program_free(s->program);
}

static void near(double want, float got)
{
    if (fabs(want - (double)got) > 2e-6 * (1 + fabs(want)))
        fail_msg("%.9g, wanted %.9g", (double)got, want);
}

static void sgd_with_momentum_clipping_and_decay(void **state)
{
    (void)state;
    stepper s;
    step_open(&s, &(tacit_train_options){.momentum = 0.9, .clip_norm = 2, .weight_decay = 0.1});
    double w[2] = {3, -1}, m[2] = {0, 0}, g[2], loss;
    for (int t = 1; t <= 4; t++) {
        gradient(w, g, &loss);
        double norm = sqrt(g[0] * g[0] + g[1] * g[1]), f = fmin(1, 2 / (norm + 1e-6));
        for (int i = 0; i < 2; i++) {
            m[i] = 0.9 * m[i] + f * g[i] + 0.1 * w[i];
            w[i] -= 0.05 * m[i];
        }
        step_run(&s, 0.05f, (float)t);
        near(loss, s.loss);
        for (int i = 0; i < 2; i++) {
            near(w[i], s.now[0][i]);
            near(m[i], s.now[1][i]);
        }
    }
    step_close(&s);
}

static void adam_like(tacit_optimizer kind, double decay)
{
    stepper s;
    step_open(&s, &(tacit_train_options){.optimizer = kind, .beta2 = 0.99, .weight_decay = decay});
    double w[2] = {3, -1}, m[2] = {0, 0}, v[2] = {0, 0}, g[2], loss;
    for (int t = 1; t <= 5; t++) {
        gradient(w, g, &loss);
        for (int i = 0; i < 2; i++) {
            double grad = g[i] + (kind == TACIT_ADAM ? decay * w[i] : 0);
            m[i] = 0.9 * m[i] + 0.1 * grad;
            v[i] = 0.99 * v[i] + 0.01 * grad * grad;
            if (kind == TACIT_ADAMW)
                w[i] -= 0.1 * decay * w[i];
            w[i] -= 0.1 * (m[i] / (1 - pow(0.9, t))) / (sqrt(v[i] / (1 - pow(0.99, t))) + 1e-8);
        }
        step_run(&s, 0.1f, (float)t);
        near(loss, s.loss);
        for (int i = 0; i < 2; i++) {
            near(w[i], s.now[0][i]);
            near(m[i], s.now[1][i]);
            near(v[i], s.now[2][i]);
        }
    }
    step_close(&s);
}

static void adam_and_adamw(void **state)
{
    (void)state;
    adam_like(TACIT_ADAM, 0);
    adam_like(TACIT_ADAM, 0.05);
    adam_like(TACIT_ADAMW, 0.05);
}

static void scaled_losses_change_nothing_but_overflow(void **state)
{
    (void)state;
    stepper plain, scaled;
    step_open(&plain, &(tacit_train_options){0});
    step_open(&scaled, &(tacit_train_options){.loss_scale = 1024});
    step_run(&plain, 0.05f, 1);
    step_run(&scaled, 0.05f, 1);
    assert_memory_equal(plain.now[0], scaled.now[0], sizeof plain.now[0]); /* a power of two */
    near((double)plain.loss, scaled.loss);
    float keep[2] = {scaled.now[0][0], scaled.now[0][1]}, was = x[0];
    x[0] = 1e30f; /* overflows in the gradient */
    step_run(&scaled, 0.05f, 2);
    x[0] = was;
    assert_memory_equal(keep, scaled.now[0], sizeof keep);
    step_close(&plain);
    step_close(&scaled);
}

/* Weights in f32, computing in f16: slopes of 1e-6 and less vanish in f16 unless the loss is
 * scaled, or halves are computed in f32. loss = mean((x·w)²)/2 with small x: dw = x·p, both near
 * 1e-3. */
static void train_halves(bool scaled, bool widened)
{
    static const char *const as_written[] = {"widen-halves"};
    static const char half[] = "tacit 1\ngraph \"h\" {\n  in %x : f16[2]\n  in %w : f32[2]\n"
                               "  %h = Cast(%w) to=10 @h\n  %p = MatMul(%x, %h) @p\n"
                               "  %s = Mul(%p, %p) @s\n  %c = Cast(%s) to=1 @c\n"
                               "  %loss = ReduceSum(%c) keepdims=0 @loss\n  out %loss\n}\n";
    uint16_t xs[2] = {0x0400, 0x0c00}; /* 2^-14, 2^-12 */
    tacit_model *m, *step;
    tacit_program *p;
    tacit_session *s;
    tacit_error err;
    tacit_train_options o = {.loss_scale = scaled ? 32768.0 : 0.0};
    tacit_compile_options c = {.disabled_passes = as_written, .n_disabled_passes = !widened};
    if (tacit_model_load_memory(half, strlen(half), NULL, &m, &err) != TACIT_OK ||
        tacit_train_step(m, 1, (const char *[]){"w"}, &o, &step, &err) != TACIT_OK ||
        tacit_compile(step, &c, &p, &err) != TACIT_OK ||
        tacit_session_create(p, &s, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    float w[2] = {0.5f, 0.25f}, next[2], rate = 1e6f, loss;
    tacit_tensor in[3] = {
        {.name = "x", .dtype = TACIT_F16, .rank = 1, .dims = {2}, .data = xs, .bytes = 4},
        tensor("w", w, 1, 2, 0),
        tensor("learning_rate", &rate, 0, 0, 0)};
    tacit_tensor out[2] = {tensor("loss", &loss, 0, 0, 0), tensor("w.next", next, 1, 2, 0)};
    if (tacit_run(s, in, 3, out, 2, &err) != TACIT_OK)
        fail_msg("%s", err.message);
    double a = ldexp(1, -14), b = ldexp(1, -12), q = 0.5 * a + 0.25 * b;
    double change[2] = {2 * q * a * 1e6, 2 * q * b * 1e6};
    for (int i = 0; i < 2; i++) {
        double got = (double)w[i] - (double)next[i];
        if (scaled || widened)
            assert_true(fabs(got - change[i]) < 0.02 * change[i]);
        else /* lost, or rounded to a step of f16 */
            assert_true(fabs(got - change[i]) > 0.05 * change[i]);
    }
    tacit_session_free(s);
    tacit_program_free(p);
    tacit_model_free(step);
    tacit_model_free(m);
}

static void half_precision(void **state)
{
    (void)state;
    train_halves(false, false);
    train_halves(true, false);
    train_halves(false, true);
    train_halves(true, true);
}

static void what_cannot_be_trained(void **state)
{
    (void)state;
    tacit_model *m, *step;
    tacit_error err;
    tacit_dim two = {"N", 2};
    tacit_train_options o = {.dims = &two, .n_dims = 1};
    assert_int_equal(tacit_model_load_memory(text, strlen(text), NULL, &m, &err), TACIT_OK);
    assert_int_equal(tacit_train_step(m, 0, NULL, &o, &step, &err), TACIT_ERR_ARGUMENT);
    assert_int_equal(tacit_train_step(m, 1, (const char *[]){"nobody"}, &o, &step, &err),
                     TACIT_ERR_ARGUMENT);
    assert_non_null(strstr(err.message, "nobody"));
    o.output = 1;
    assert_int_equal(tacit_train_step(m, 1, (const char *[]){"w"}, &o, &step, &err),
                     TACIT_ERR_ARGUMENT);
    o = (tacit_train_options){.optimizer = (tacit_optimizer)9};
    assert_int_equal(tacit_train_step(m, 1, (const char *[]){"w"}, &o, &step, &err),
                     TACIT_ERR_ARGUMENT);
    tacit_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_with_momentum_clipping_and_decay),
        cmocka_unit_test(adam_and_adamw),
        cmocka_unit_test(scaled_losses_change_nothing_but_overflow),
        cmocka_unit_test(half_precision),
        cmocka_unit_test(what_cannot_be_trained),
    };
    return cmocka_run_group_tests_name("training", tests, NULL, NULL);
}
