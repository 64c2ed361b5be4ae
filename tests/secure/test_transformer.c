/* SPDX-License-Identifier: Apache-2.0
 * The parts of transformers: look-ups, normalisation, attention in its forms, activations, rotary
 * positions, masks. Bit for bit against the simulator, nearly against the evaluators. */
#include "secure/world.h"

#define HEAD "tacit 1\ngraph \"t\" {\n opset \"\" 22\n"

static const char bert[] = HEAD
    " in %ids : i64[1,6]\n in %mask : i64[1,6]\n const %e : f32[11,8] = ...\n"
    " const %g : f32[8] = ...\n const %b : f32[8] = ...\n const %wq : f32[8,8] = ...\n"
    " const %wk : f32[8,8] = ...\n const %wv : f32[8,8] = ...\n const %split : i64[4] = [0,0,2,4]\n"
    " const %one : f32[] = [1.0]\n const %inf : f32[] = [-3.4e38]\n const %u : i64[2] = [1,2]\n"
    " const %join : i64[3] = [0,0,8]\n const %w1 : f32[8,12] = ...\n const %w2 : f32[12,8] = ...\n"
    " %x : f32[1,6,8] = Gather(%e, %ids)\n"
    " %n : f32[1,6,8] = LayerNormalization(%x, %g, %b) axis=-1 epsilon=1e-5\n"
    " %m0 : i64[1,1,1,6] = Unsqueeze(%mask, %u)\n %m1 : f32[1,1,1,6] = Cast(%m0) to=1\n"
    " %m2 : f32[1,1,1,6] = Sub(%one, %m1)\n %m3 : f32[1,1,1,6] = Mul(%m2, %inf)\n"
    " %q0 : f32[1,6,8] = MatMul(%n, %wq)\n %q1 : f32[1,6,2,4] = Reshape(%q0, %split)\n"
    " %q : f32[1,2,6,4] = Transpose(%q1) perm=[0,2,1,3]\n"
    " %k0 : f32[1,6,8] = MatMul(%n, %wk)\n %k1 : f32[1,6,2,4] = Reshape(%k0, %split)\n"
    " %k : f32[1,2,6,4] = Transpose(%k1) perm=[0,2,1,3]\n"
    " %v0 : f32[1,6,8] = MatMul(%n, %wv)\n %v1 : f32[1,6,2,4] = Reshape(%v0, %split)\n"
    " %v : f32[1,2,6,4] = Transpose(%v1) perm=[0,2,1,3]\n"
    " %a : f32[1,6,2,4] = tacit.Attention(%q, %k, %v, %m3) scale=0.5 out_layout=\"bshd\"\n"
    " %a1 : f32[1,6,8] = Reshape(%a, %join)\n %r : f32[1,6,8] = Add(%a1, %n)\n"
    " %f1 : f32[1,6,12] = MatMul(%r, %w1)\n %f2 : f32[1,6,12] = Gelu(%f1)\n"
    " %f3 : f32[1,6,8] = MatMul(%f2, %w2)\n %f4 : f32[1,6,8] = Add(%f3, %r)\n"
    " %y : f32[1,6,8] = LayerNormalization(%f4, %g, %b) axis=-1 epsilon=1e-5\n out %y\n}\n";

static const char llama[] = HEAD
    " in %ids : i64[1,7]\n const %e : f32[9,8] = ...\n const %g : f32[8] = ...\n"
    " const %wq : f32[8,16] = ...\n const %wk : f32[8,8] = ...\n const %wv : f32[8,8] = ...\n"
    " const %cos : f32[1,7,2] = ...\n const %sin : f32[1,7,2] = ...\n"
    " const %s4 : i64[4] = [0,0,4,4]\n const %s2 : i64[4] = [0,0,2,4]\n"
    " const %join : i64[3] = [0,0,16]\n const %wo : f32[16,8] = ...\n"
    " const %w1 : f32[8,12] = ...\n const %w2 : f32[8,12] = ...\n const %w3 : f32[12,9] = ...\n"
    " %x : f32[1,7,8] = Gather(%e, %ids)\n"
    " %n : f32[1,7,8] = RMSNormalization(%x, %g) axis=-1 epsilon=1e-5\n"
    " %q0 : f32[1,7,16] = MatMul(%n, %wq)\n %q1 : f32[1,7,4,4] = Reshape(%q0, %s4)\n"
    " %q2 : f32[1,4,7,4] = Transpose(%q1) perm=[0,2,1,3]\n"
    " %q : f32[1,4,7,4] = RotaryEmbedding(%q2, %cos, %sin)\n"
    " %k0 : f32[1,7,8] = MatMul(%n, %wk)\n %k1 : f32[1,7,2,4] = Reshape(%k0, %s2)\n"
    " %k2 : f32[1,2,7,4] = Transpose(%k1) perm=[0,2,1,3]\n"
    " %k : f32[1,2,7,4] = RotaryEmbedding(%k2, %cos, %sin)\n"
    " %v0 : f32[1,7,8] = MatMul(%n, %wv)\n %v1 : f32[1,7,2,4] = Reshape(%v0, %s2)\n"
    " %v : f32[1,2,7,4] = Transpose(%v1) perm=[0,2,1,3]\n"
    " %a : f32[1,7,4,4] = tacit.Attention(%q, %k, %v) scale=0.5 causal=1 out_layout=\"bshd\"\n"
    " %a1 : f32[1,7,16] = Reshape(%a, %join)\n %a2 : f32[1,7,8] = MatMul(%a1, %wo)\n"
    " %r : f32[1,7,8] = Add(%x, %a2)\n"
    " %n2 : f32[1,7,8] = RMSNormalization(%r, %g) axis=-1 epsilon=1e-5\n"
    " %g1 : f32[1,7,12] = MatMul(%n2, %w1)\n %g2 : f32[1,7,12] = MatMul(%n2, %w2)\n"
    " %h : f32[1,7,12] = tacit.Gated(%g1, %g2) activation=\"silu\"\n"
    " %y : f32[1,7,9] = MatMul(%h, %w3)\n out %y\n}\n";

static const char functions[] =
    HEAD " in %x : f32[4,6]\n const %g : f32[6] = ...\n const %six : f32[] = [1.5]\n"
         " const %zero : f32[] = [0.0]\n const %ax : i64[1] = [-1]\n"
         " %a : f32[4,6] = Sigmoid(%x)\n %b : f32[4,6] = Tanh(%x)\n %c : f32[4,6] = Softmax(%x) "
         "axis=-1\n"
         " %d : f32[4,6] = Gelu(%x) approximate=\"tanh\"\n %e : f32[4,6] = Clip(%x, %zero, %six)\n"
         " %f : f32[4,6] = LeakyRelu(%x) alpha=0.1\n %h : f32[4,6] = Abs(%x)\n"
         " %i : f32[4,6] = Mul(%x, %g)\n %j : f32[4,6] = Mul(%x, %a)\n"
         " %k : f32[4] = ReduceMean(%x, %ax) keepdims=0\n"
         " out %a\n out %b\n out %c\n out %d\n out %e\n out %f\n out %h\n out %k\n}\n";

static void encoder_with_secret_mask(void **state)
{
    (void)state;
    for (int mode = SEC_PUBLIC; mode <= SEC_SERVER; mode++) {
        sec_mode m = world_mode();
        m.weights = mode;
        world w;
        world_graph(&w, bert, 7, 0.6);
        if (world_compile(&w, m) != TACIT_OK)
            fail_msg("%s", w.err.message);
        world_inputs(&w, 2); /* tokens 0 and 1 and a mask of both */
        ((int64_t *)w.in[1]->data)[0] = 1;
        world_check(&w, 3, 0.02);
        world_end(&w);
    }
}

/* The same numbers whatever the budget of a batch is, and the budget is kept. */
static void batches_within_budget(void **state)
{
    (void)state;
    world w;
    world_graph(&w, llama, 21, 0.6);
    sec_options o = {.mode = world_mode(), .batch_jobs = 32, .batch_bytes = 1 << 20};
    assert_int_equal(sec_compile(w.graph, &o, NULL, &w.p, &w.err), TACIT_OK);
    assert_int_equal(w.p->batch_jobs, 32);
    uint32_t rounds = w.p->rounds;
    world_inputs(&w, 9);
    world_check(&w, 2, 0.03);
    sec_program_free(w.p);
    o.batch_jobs = 0;
    o.batch_bytes = 3000;
    assert_int_equal(sec_compile(w.graph, &o, NULL, &w.p, &w.err), TACIT_OK);
    world_check(&w, 3, 0.03);
    assert_int_equal(w.p->rounds, rounds);
    sec_program_free(w.p);
    assert_int_equal(world_compile(&w, world_mode()), TACIT_OK);
    assert_true(w.p->batch_jobs > 32);
    assert_int_equal(w.p->rounds, rounds);
    world_end(&w);
}

static void decoder_with_grouped_heads(void **state)
{
    (void)state;
    sec_mode m = world_mode();
    for (int i = 0; i < 4; i++) {
        m.compare = (uint8_t)(i % SEC_COMPARES);
        m.dither = i & 2;
        world_case(llama, 11, 0.6, 9, m, 0.03);
    }
    m = world_mode();
    m.weights = SEC_PUBLIC;
    world_case(llama, 12, 0.6, 9, m, 0.03);
}

static void functions_of_one_tensor(void **state)
{
    (void)state;
    sec_mode m = world_mode();
    for (int i = 0; i < 4; i++) {
        m.compare = (uint8_t)(i % SEC_COMPARES);
        m.weights = i & 2 ? SEC_PUBLIC : SEC_SERVER;
        world_case(functions, 13, 1, 4, m, 0.004);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_of_one_tensor),
        cmocka_unit_test(encoder_with_secret_mask),
        cmocka_unit_test(decoder_with_grouped_heads),
        cmocka_unit_test(batches_within_budget),
    };
    return cmocka_run_group_tests_name("secure.transformer", tests, NULL, NULL);
}
