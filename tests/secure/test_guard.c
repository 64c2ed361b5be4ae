/* SPDX-License-Identifier: Apache-2.0
 * The guard of calibrated ranges in private runs: what stays inside passes, what leaves ends the
 * run for both parties without a result, one outlier or many, just outside or far beyond. */
#include "secure/world.h"

static const char shift[] = "tacit 1\ngraph \"g\" {\n opset \"\" 22\n in %x : f32[3,40]\n"
                            " const %b : f32[40] = ...\n %a : f32[3,40] = Add(%x, %b)\n"
                            " %y : f32[3,40] = Relu(%a)\n out %y\n}\n";

static const char net[] = "tacit 1\ngraph \"net\" {\n opset \"\" 22\n in %x : f32[2,16]\n"
                          " const %w1 : f32[16,24] = ...\n const %b1 : f32[24] = ...\n"
                          " const %w2 : f32[24,8] = ...\n const %g : f32[8] = ...\n"
                          " %a : f32[2,24] = MatMul(%x, %w1)\n %b : f32[2,24] = Add(%a, %b1)\n"
                          " %c : f32[2,24] = Gelu(%b)\n %d : f32[2,8] = MatMul(%c, %w2)\n"
                          " %e : f32[2,8] = LayerNormalization(%d, %g) axis=-1\n"
                          " %y : f32[2,8] = Softmax(%e) axis=-1\n out %y\n}\n";

static sec_mode calibrated(bool dither)
{
    sec_mode m = world_mode();
    m.calibrated = true;
    m.dither = dither;
    m.input_bound = 100;
    return m;
}

/* A sum whose range was "seen" to be 0.5, on inputs that are zero but for a few. */
static void world_of(world *w, const char *text, bool dither)
{
    world_graph(w, text, 1, 0);
    world_inputs(w, 0);
    w->seen = ARENA_ARRAY(&w->memory, w->graph->values.count + 1u, double);
    for (uint32_t i = 0; i < w->graph->values.count; i++)
        w->seen[i] = 0.5;
    if (world_compile(w, calibrated(dither)) != TACIT_OK)
        fail_msg("%s", w->err.message);
    assert_int_equal(w->p->guarded, ir_tensor_count(w->in[0]));
}

/* Both parties must say the same; true: there is a result, and it is the twin's. */
static bool passes(world *w, uint64_t run)
{
    side s[2] = {{0}};
    memset(w->out[0]->data, 0xa5, w->out[0]->bytes);
    world_parties(w, run, s);
    assert_int_equal(s[0].status, s[1].status);
    if (s[0].status == TACIT_OK) {
        assert_memory_equal(w->out[0]->data, w->sim[0]->data, w->out[0]->bytes);
        return true;
    }
    for (int b = 0; b < 2; b++) {
        assert_int_equal(s[b].status, TACIT_ERR_VALUE);
        assert_non_null(strstr(s[b].err.message, "left the ranges that were calibrated"));
    }
    for (size_t i = 0; i < w->out[0]->bytes; i++)
        assert_int_equal(((uint8_t *)w->out[0]->data)[i], 0xa5);
    return false;
}

/* 0.5 is 4 steps of 1/8: up to 3 of them pass whatever the masks are, from 4 on nothing does, up to
 * 128 steps less 4, where the ring of the check begins again. */
static void one_outlier_of_any_size(void **state)
{
    (void)state;
    static const double inside[] = {0.01, 0.3, 0.374, -0.01, -0.3, -0.375};
    static const double outside[] = {0.5,  0.51, 0.8,  1.2,  3.6,  3.9,   4,    4.1,
                                     7.99, 8.01, 12,   15.4, -0.6, -1,    -3.5, -4,
                                     -4.2, -8,   -7.5, -12,  -15,  -15.5, 2,    -2};
    for (int dither = 0; dither < 2; dither++) {
        world w;
        world_of(&w, shift, dither);
        float *x = w.in[0]->data;
        uint64_t run = 0;
        for (size_t i = 0; i < sizeof inside / sizeof *inside; i++, run++) {
            x[17 * i] = (float)inside[i];
            assert_true(passes(&w, run));
        }
        memset(x, 0, w.in[0]->bytes);
        for (size_t i = 0; i < sizeof outside / sizeof *outside; i++, run++) {
            x[5 * i] = (float)outside[i];
            if (passes(&w, run))
                fail_msg("%g was let through", outside[i]);
            x[5 * i] = 0;
        }
        world_end(&w);
    }
}

/* Every pair of neighbours, pairs in two rows, everything. */
static void outliers_do_not_cancel(void **state)
{
    (void)state;
    world w;
    world_of(&w, shift, false);
    float *x = w.in[0]->data;
    for (uint64_t run = 0; run < 20; run++) {
        x[2 * run] = x[2 * run + 1] = 1;
        assert_false(passes(&w, run));
        x[40 + 2 * run] = x[40 + 2 * run + 1] = -3;
        assert_false(passes(&w, 100 + run));
        memset(x, 0, w.in[0]->bytes);
    }
    for (int i = 0; i < 120; i++)
        x[i] = 9;
    assert_false(passes(&w, 200));
    world_end(&w);
}

/* Enough elements for groups: a pair of neighbours, every other one, everything. */
static void groups_of_outliers(void **state)
{
    (void)state;
    static const char large[] = "tacit 1\ngraph \"g\" {\n opset \"\" 22\n in %x : f32[100,700]\n"
                                " const %b : f32[700] = ...\n %a : f32[100,700] = Add(%x, %b)\n"
                                " %y : f32[100,700] = Relu(%a)\n out %y\n}\n";
    world w;
    world_of(&w, large, false);
    float *x = w.in[0]->data;
    assert_true(passes(&w, 0));
    for (uint64_t run = 1; run < 4; run++) {
        x[9000 * run] = x[9000 * run + 1] = 1;
        assert_false(passes(&w, run));
        memset(x, 0, w.in[0]->bytes);
    }
    for (int step = 1; step < 5; step++) { /* all, every second, .. */
        for (int i = 0; i < 70000; i++)
            x[i] = i % step == 0 ? 5 : 0;
        assert_false(passes(&w, 10 + (uint64_t)step));
    }
    for (int i = 0; i < 70000; i++)
        x[i] = i % 700 == 13 || i % 700 == 14 ? -5 : 0; /* two channels of every row */
    assert_false(passes(&w, 20));
    world_end(&w);
}

/* Calibrated on its own inputs a network passes in every mode; on inputs twenty times as large it
 * does not, and in the twin neither. */
static void networks(void **state)
{
    (void)state;
    for (int how = 0; how < 2 * SEC_COMPARES; how++)
        for (int weights = SEC_PUBLIC; weights <= SEC_SERVER; weights++) {
            sec_mode m = calibrated(how & 1);
            m.compare = (uint8_t)(how / 2);
            m.weights = weights;
            world w;
            world_graph(&w, net, 3, 0.4);
            world_inputs(&w, 1.5);
            world_calibrate(&w);
            if (world_compile(&w, m) != TACIT_OK)
                fail_msg("%s", w.err.message);
            assert_true(w.p->guarded > 0);
            world_check(&w, 1, 0.02);
            for (int64_t i = 0; i < ir_tensor_count(w.in[0]); i++)
                ((float *)w.in[0]->data)[i] *= 20;
            assert_false(passes(&w, 2));
            uint8_t seed[2][16] = {{1}, {2}};
            fss_dealer dealer;
            fss_dealer_init(&dealer, &w.p->suite, seed[0], seed[1]);
            assert_int_equal(
                sec_simulate(w.p, &dealer, 2, (const ir_tensor *const *)w.in, w.sim, &w.err),
                TACIT_ERR_VALUE);
            assert_non_null(strstr(w.err.message, "node 'n"));
            world_end(&w);
        }
}

/* Proven ranges have no guard and pay for none. */
static void full_range_is_not_checked(void **state)
{
    (void)state;
    world w;
    world_graph(&w, net, 3, 0.4);
    assert_int_equal(world_compile(&w, world_mode()), TACIT_OK);
    assert_int_equal(w.p->guarded, 0);
    for (uint32_t i = 0; i < w.p->instrs.count; i++)
        assert_false(w.p->instrs.data[i].guard);
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_outlier_of_any_size),   cmocka_unit_test(outliers_do_not_cancel),
        cmocka_unit_test(groups_of_outliers),        cmocka_unit_test(networks),
        cmocka_unit_test(full_range_is_not_checked),
    };
    return cmocka_run_group_tests_name("secure.guard", tests, NULL, NULL);
}
