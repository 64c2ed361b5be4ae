/* SPDX-License-Identifier: Apache-2.0
 * Small models of every kind: two parties equal the simulator bit for bit and the evaluators
 * within rounding, in every mode of weights, comparison and truncation. */
#include "secure/world.h"

static const char mlp[] =
    "tacit 1\ngraph \"mlp\" {\n opset \"\" 22\n in %x : f32[3,10]\n"
    " const %w1 : f32[10,16] = ...\n const %b1 : f32[16] = ...\n const %w2 : f32[16,7] = ...\n"
    " const %b2 : f32[7] = ...\n"
    " %a : f32[3,16] = MatMul(%x, %w1)\n %b : f32[3,16] = Add(%a, %b1)\n"
    " %c : f32[3,16] = Relu(%b)\n %d : f32[3,7] = MatMul(%c, %w2)\n"
    " %y : f32[3,7] = Add(%d, %b2)\n %i : i64[3,1] = ArgMax(%y) axis=1\n out %y\n out %i\n}\n";

static const char conv_net[] =
    "tacit 1\ngraph \"conv\" {\n opset \"\" 22\n in %x : f32[1,2,9,9]\n"
    " const %k1 : f32[4,2,3,3] = ...\n const %b1 : f32[4] = ...\n const %k2 : f32[4,2,3,3] = ...\n"
    " const %w : f32[64,5] = ...\n const %s : i64[2] = [1, -1]\n const %half : f32[] = [0.5]\n"
    " %a : f32[1,4,9,9] = Conv(%x, %k1, %b1) pads=[1,1,1,1]\n %b : f32[1,4,9,9] = Relu(%a)\n"
    " %c : f32[1,4,5,5] = MaxPool(%b) kernel_shape=[3,3] strides=[2,2] pads=[1,1,1,1]\n"
    " %d : f32[1,4,5,5] = Conv(%c, %k2) pads=[1,1,1,1] group=2\n"
    " %e : f32[1,4,5,5] = Add(%c, %d)\n %e2 : f32[1,4,5,5] = Mul(%e, %half)\n"
    " %f : f32[1,4,4,4] = AveragePool(%e2) kernel_shape=[2,2]\n"
    " %g : f32[1,64] = Reshape(%f, %s)\n %y : f32[1,5] = MatMul(%g, %w)\n"
    " %z : f32[1,4,1,1] = GlobalAveragePool(%e)\n out %y\n out %z\n}\n";

static void in_all_modes(const char *text, uint64_t seed, double weights, double inputs,
                         double tolerance)
{
    for (int mode = SEC_PUBLIC; mode <= SEC_SERVER; mode++) {
        sec_mode m = world_mode();
        m.weights = mode;
        world_case(text, seed, weights, inputs, m, tolerance);
        for (int how = SEC_TREES; how < SEC_COMPARES; how++) {
            m.compare = (uint8_t)how;
            world_case(text, seed + 1, weights, inputs, m, tolerance);
        }
        m.dither = true;
        world_case(text, seed + 2, weights, inputs, m, tolerance);
    }
}

static void layers_of_matmul_and_relu(void **state)
{
    (void)state;
    in_all_modes(mlp, 1, 0.4, 1.5, 0.02);
}

static void convolution_and_pooling(void **state)
{
    (void)state;
    in_all_modes(conv_net, 2, 0.3, 1.5, 0.02);
}

/* Ranges from samples: smaller keys, the same numbers inside them, an alarm of the twin outside. */
static void calibrated_ranges(void **state)
{
    (void)state;
    world w;
    double most[64];
    for (int i = 0; i < 64; i++)
        most[i] = 12;
    sec_mode m = world_mode();
    world_graph(&w, mlp, 4, 0.4);
    assert_int_equal(world_compile(&w, m), TACIT_OK);
    uint64_t full = w.p->key_bytes[0] + w.p->key_bytes[1];
    sec_program_free(w.p);
    m.calibrated = true;
    sec_options o = {.mode = m, .calibration = most, .n_calibration = w.graph->values.count};
    assert_true(w.graph->values.count <= 64);
    assert_int_equal(sec_compile(w.graph, &o, NULL, &w.p, &w.err), TACIT_OK);
    assert_true(w.p->key_bytes[0] + w.p->key_bytes[1] < full);
    world_inputs(&w, 1.5);
    world_check(&w, 1, 0.02);
    sec_program_free(w.p);
    for (int i = 0; i < 64; i++)
        most[i] = 0.01;
    assert_int_equal(sec_compile(w.graph, &o, NULL, &w.p, &w.err), TACIT_OK);
    assert_int_equal(sec_simulate(w.p, NULL, 0, (const ir_tensor *const *)w.in, w.sim, &w.err),
                     TACIT_ERR_VALUE);
    assert_non_null(strstr(w.err.message, "calibrate"));
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_matmul_and_relu),
        cmocka_unit_test(convolution_and_pooling),
        cmocka_unit_test(calibrated_ranges),
    };
    return cmocka_run_group_tests_name("secure.models", tests, NULL, NULL);
}
