/* SPDX-License-Identifier: Apache-2.0
 * Certificates: the interval a secure program claims for a node is what the row's range rule says,
 * a little wider for rounding; no input within the bound leaves it; and whatever has a secure rule
 * has a range rule. */
#include "op/range.h"
#include "secure/world.h"

#define HEAD "tacit 1\ngraph \"t\" {\n opset \"\" 22\n"

static const char mlp[] = HEAD
    " in %x : f32[3,10]\n const %w1 : f32[10,16] = ...\n const %b1 : f32[16] = ...\n"
    " const %w2 : f32[16,7] = ...\n const %c2 : f32[7] = ...\n const %lo : f32[] = [-0.4]\n"
    " const %hi : f32[] = [1.5]\n const %ax : i64[1] = [-1]\n"
    " %a : f32[3,16] = MatMul(%x, %w1)\n %b : f32[3,16] = Add(%a, %b1)\n"
    " %c : f32[3,16] = Relu(%b)\n %d : f32[3,7] = Gemm(%c, %w2, %c2)\n %e : f32[3,7] = Abs(%d)\n"
    " %f : f32[3,7] = LeakyRelu(%d) alpha=0.1\n %g : f32[3,7] = Sub(%e, %f)\n"
    " %h : f32[3,7] = Clip(%g, %lo, %hi)\n %i : f32[3,7] = Neg(%h)\n %j : f32[3,7] = Mul(%i, %c2)\n"
    " %k : f32[3] = ReduceMean(%j, %ax) keepdims=0\n %l : f32[3] = ReduceSum(%j, %ax) keepdims=0\n"
    " %m : f32[3] = Mul(%k, %l)\n %n : i64[3,1] = ArgMax(%d) axis=1\n out %m\n out %n\n}\n";

static const char conv_net[] =
    HEAD " in %x : f32[1,2,9,9]\n const %k1 : f32[4,2,3,3] = ...\n const %b1 : f32[4] = ...\n"
         " const %k2 : f32[4,2,3,3] = ...\n"
         " %a : f32[1,4,9,9] = Conv(%x, %k1, %b1) pads=[1,1,1,1]\n %b : f32[1,4,9,9] = Relu(%a)\n"
         " %c : f32[1,4,5,5] = MaxPool(%b) kernel_shape=[3,3] strides=[2,2] pads=[1,1,1,1]\n"
         " %d : f32[1,4,5,5] = Conv(%c, %k2) pads=[1,1,1,1] group=2\n"
         " %e : f32[1,4,5,5] = Add(%c, %d)\n"
         " %f : f32[1,4,4,4] = AveragePool(%e) kernel_shape=[2,2]\n"
         " %z : f32[1,4,1,1] = GlobalAveragePool(%e)\n out %f\n out %z\n}\n";

static const char block[] = HEAD
    " in %x : f32[1,6,8]\n const %g : f32[8] = ...\n const %b : f32[8] = ...\n"
    " const %wq : f32[8,8] = ...\n const %wk : f32[8,8] = ...\n const %wv : f32[8,8] = ...\n"
    " const %split : i64[4] = [0,0,2,4]\n const %join : i64[3] = [0,0,8]\n"
    " const %w1 : f32[8,12] = ...\n const %w2 : f32[8,12] = ...\n const %w3 : f32[12,8] = ...\n"
    " %n : f32[1,6,8] = LayerNormalization(%x, %g, %b) axis=-1 epsilon=1e-5\n"
    " %q0 : f32[1,6,8] = MatMul(%n, %wq)\n %q1 : f32[1,6,2,4] = Reshape(%q0, %split)\n"
    " %q : f32[1,2,6,4] = Transpose(%q1) perm=[0,2,1,3]\n"
    " %k0 : f32[1,6,8] = MatMul(%n, %wk)\n %k1 : f32[1,6,2,4] = Reshape(%k0, %split)\n"
    " %k : f32[1,2,6,4] = Transpose(%k1) perm=[0,2,1,3]\n"
    " %v0 : f32[1,6,8] = MatMul(%n, %wv)\n %v1 : f32[1,6,2,4] = Reshape(%v0, %split)\n"
    " %v : f32[1,2,6,4] = Transpose(%v1) perm=[0,2,1,3]\n"
    " %a : f32[1,6,2,4] = tacit.Attention(%q, %k, %v) scale=0.5 causal=1 out_layout=\"bshd\"\n"
    " %a1 : f32[1,6,8] = Reshape(%a, %join)\n %r : f32[1,6,8] = Add(%a1, %n)\n"
    " %n2 : f32[1,6,8] = RMSNormalization(%r, %g) axis=-1 epsilon=1e-5\n"
    " %g1 : f32[1,6,12] = MatMul(%n2, %w1)\n %g2 : f32[1,6,12] = MatMul(%n2, %w2)\n"
    " %h : f32[1,6,12] = tacit.Gated(%g1, %g2) activation=\"silu\"\n"
    " %f3 : f32[1,6,8] = MatMul(%h, %w3)\n %s : f32[1,6,8] = Softmax(%f3) axis=-1\n"
    " %t : f32[1,6,8] = Tanh(%f3)\n %u : f32[1,6,8] = Sigmoid(%f3)\n %y : f32[1,6,8] = Gelu(%f3)\n"
    " %o : f32[1,6,32] = Concat(%s, %t, %u, %y) axis=-1\n out %o\n}\n";

static const char *const graphs[] = {mlp, conv_net, block};

static void world_of(world *w, const char *text, uint64_t seed)
{
    world_graph(w, text, seed, 0.5);
    sec_mode m = world_mode();
    m.dither = seed & 1;
    if (world_compile(w, m) != TACIT_OK)
        fail_msg("%s", w->err.message);
}

/* Largest and least of every node's first output, over inputs up to the bound. */
static void no_input_leaves_its_interval(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof graphs / sizeof *graphs; g++)
        for (uint64_t seed = 1; seed < 5; seed++) {
            world w;
            world_of(&w, graphs[g], seed);
            for (int trial = 0; trial < 25; trial++) {
                world_inputs(&w, w.p->mode.input_bound);
                if (trial % 3 == 0) /* corners */
                    for (int64_t i = 0; i < ir_tensor_count(w.in[0]); i++)
                        ((float *)w.in[0]->data)[i] = rng_below(&w.r, 2) ? 4 : -4;
                w.values = ARENA_ARRAY(&w.memory, w.graph->values.count, const ir_tensor *);
                world_plain(&w);
                for (uint32_t i = 0; i < w.graph->nodes.count; i++) {
                    const ir_node *n = w.graph->nodes.data[i];
                    const sec_range *r = &w.p->ranges[n->id];
                    const ir_tensor *t = w.values[n->outputs[0]->id];
                    double off = 0.02 + 0.01 * fmax(fabs(r->lo), fabs(r->hi));
                    assert_true(r->frac >= 0);
                    for (int64_t e = 0; e < ir_tensor_count(t); e++) {
                        double v = ir_load_f64(t->dtype, t->data, e);
                        if (v < r->lo - off || v > r->hi + off)
                            fail_msg("%s '%s': %g is not in [%g, %g]", n->type, n->name, v, r->lo,
                                     r->hi);
                    }
                }
            }
            world_end(&w);
        }
}

/* The worst input of a product behind a normalisation: rows along a column of the weights. Only a
 * bound by norms is close to it, and a norm that were too small would show. */
static void products_of_normalised_rows(void **state)
{
    (void)state;
    static const char text[] = HEAD
        " in %x : f32[8,64]\n const %g : f32[64] = ...\n const %b : f32[64] = ...\n"
        " const %w : f32[64,8] = ...\n %n : f32[8,64] = LayerNormalization(%x, %g, %b) axis=-1\n"
        " %y : f32[8,8] = MatMul(%n, %w)\n out %y\n}\n";
    for (uint64_t seed = 1; seed < 6; seed++) {
        world w;
        world_of(&w, text, seed);
        world_inputs(&w, 4);
        const float *g = ir_value_find(w.graph, "g")->constant->data;
        const float *b = ir_value_find(w.graph, "b")->constant->data;
        const float *m = ir_value_find(w.graph, "w")->constant->data;
        float *x = w.in[0]->data;
        double most = 0;
        for (int j = 0; j < 8; j++) {
            double moved = 0;
            for (int i = 0; i < 64; i++)
                moved += (double)b[i] * m[i * 8 + j];
            for (int i = 0; i < 64; i++)
                x[j * 64 + i] = (moved < 0 ? -4 : 4) * g[i] * m[i * 8 + j];
        }
        world_plain(&w);
        for (int i = 0; i < 64; i++)
            most = fmax(most, fabs(((float *)w.plain[0]->data)[i]));
        const sec_range *r = &w.p->ranges[1];
        assert_true(most <= r->hi && -most >= r->lo);
        assert_true(most > r->hi / 4); /* it is that close */
        world_check(&w, 3, 0.05);
        world_end(&w);
    }
}

/* Sizes of a weight, each rounded up as the description has them. */
static op_interval weight_sizes(const ir_node *n, const ir_tensor *t)
{
    int64_t count = ir_tensor_count(t), k = t->shape.rank ? t->shape.dims[t->shape.rank - 1] : 1;
    bool filters = strcmp(n->type, "Conv") == 0 && t->shape.rank > 1;
    int64_t groups = filters ? t->shape.dims[0] : k, size = count / groups;
    op_interval r = {0};
    double most = 0, all = 0;
    for (int64_t j = 0; j < groups; j++) {
        double one = 0, two = 0;
        for (int64_t i = 0; i < size; i++) {
            double x = ir_load_f64(t->dtype, t->data, filters ? j * size + i : j + i * k);
            one += fabs(x);
            two += x * x;
            most = fmax(most, fabs(x));
        }
        r.l1 = fmax(r.l1, one);
        r.l2 = fmax(r.l2, sqrt(two));
        all += two;
    }
    r.frobenius = sqrt(all);
    r.lo = -most;
    r.hi = most;
    return r;
}

/* The certificate holds the rule's interval, and is at most so much wider: by the rounding of
 * weights' sizes (a quarter of a power of two each) and of values. */
static void certificates_follow_the_rows(void **state)
{
    (void)state;
    for (size_t g = 0; g < sizeof graphs / sizeof *graphs; g++) {
        world w;
        world_of(&w, graphs[g], 2);
        for (uint32_t i = 0; i < w.graph->nodes.count; i++) {
            const ir_node *n = w.graph->nodes.data[i];
            op_interval in[8] = {{0}}, out[4] = {{0}};
            bool weights = false;
            for (uint32_t k = 0; k < n->n_inputs; k++) {
                const ir_value *v = n->inputs[k];
                if (v->constant && ir_tensor_count(v->constant) == 1)
                    in[k].lo = in[k].hi = ir_load_f64(v->constant->dtype, v->constant->data, 0);
                else if (v->constant)
                    in[k] = weight_sizes(n, v->constant);
                else if (v->is_input)
                    in[k] = op_range_of(-4, 4);
                else {
                    const sec_range *r = &w.p->ranges[v->producer->id];
                    in[k] = op_range_of(r->lo, r->hi);
                }
                weights |= v->constant && ir_tensor_count(v->constant) > 1;
            }
            op_range c = {.node = n, .in = in, .out = out, .err = &w.err};
            if (op_range_node(&c) != TACIT_OK)
                fail_msg("%s", w.err.message);
            const sec_range *r = &w.p->ranges[n->id];
            double size = op_magnitude(out[0]), wide = (weights ? 0.20 : 0.06) * size + 0.02;
            if (r->lo < out[0].lo - wide || r->hi > out[0].hi + wide)
                fail_msg("%s '%s': certificate [%g, %g], rule [%g, %g]", n->type, n->name, r->lo,
                         r->hi, out[0].lo, out[0].hi);
        }
        world_end(&w);
    }
}

static void secure_rules_have_range_rules(void **state)
{
    (void)state;
    uint32_t rules = 0;
    for (uint32_t i = 0; op_at(i); i++) {
        const op_def *row = op_at(i);
        if (!sec_has_rule(row))
            continue;
        rules++;
        if (!row->range)
            fail_msg("%s has a secure rule and no range rule", row->name);
    }
    assert_true(rules >= 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(secure_rules_have_range_rules),
        cmocka_unit_test(certificates_follow_the_rows),
        cmocka_unit_test(no_input_leaves_its_interval),
        cmocka_unit_test(products_of_normalised_rows),
    };
    return cmocka_run_group_tests_name("secure.certificates", tests, NULL, NULL);
}
