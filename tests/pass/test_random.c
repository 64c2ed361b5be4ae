/* SPDX-License-Identifier: Apache-2.0
 * Random graphs, rich in the patterns that passes look for and in near misses of them: the
 * optimised graph equals the graph as it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "support/pass_check.h"

enum { ROWS = 4, WIDTH = 6, GRAPHS = 400 };

/* Values of shape [ROWS, WIDTH], all of moderate size. */
typedef struct maker {
    ir_graph *g;
    rng r;
    VEC(ir_value *) pool;
} maker;

typedef ir_value V;

static uint32_t below(maker *m, uint32_t n)
{
    return (uint32_t)rng_below(&m->r, n);
}

static V *pick(maker *m)
{
    /* Recent values more often: chains grow long. */
    uint32_t n = m->pool.count, back = below(m, 3) ? below(m, n < 3 ? n : 3) : below(m, n);
    return m->pool.data[n - 1 - back];
}

static V *op(maker *m, const char *type, uint32_t n, V *const *in)
{
    ir_node *node = op_node(m->g, type, NULL, n, in);
    assert_non_null(node);
    return node->outputs[0];
}
static V *op1(maker *m, const char *type, V *a)
{
    return op(m, type, 1, &a);
}
static V *op2(maker *m, const char *type, V *a, V *b)
{
    /* Commutative ops come in both orders. */
    bool swap = (strcmp(type, "Add") == 0 || strcmp(type, "Mul") == 0) && below(m, 2);
    return op(m, type, 2, swap ? (V *[]){b, a} : (V *[]){a, b});
}
static V *scalar(maker *m, double x)
{
    return ir_constant_f32(m->g, NULL, (float)x);
}
static void set_int(maker *m, V *v, const char *name, int64_t x)
{
    assert_true(ir_attr_set_int(m->g, v->producer, name, x));
}

static V *weight(maker *m, int32_t rank, int64_t rows, int64_t columns)
{
    int64_t dims[2] = {rank == 2 ? rows : columns, columns};
    ir_shape shape = ir_shape_of(rank, dims);
    ir_tensor *t = ir_tensor_new(m->g->memory, TACIT_F32, &shape);
    assert_non_null(t);
    for (int64_t i = 0; i < ir_tensor_count(t); i++)
        ((float *)t->data)[i] = (float)rng_range(&m->r, -0.5, 0.5);
    return ir_constant_new(m->g, NULL, t);
}

static V *axes(maker *m)
{
    return ir_constant_i64(m->g, NULL, 1, 1, &(int64_t){below(m, 2) ? -1 : 1});
}

static V *bounded(maker *m, V *x)
{
    return op1(m, "Tanh", x);
}

static V *gelu(maker *m)
{
    V *x = pick(m), *u;
    if (below(m, 2)) {
        u = below(m, 2) ? op2(m, "Div", x, scalar(m, 1.41421356))
                        : op2(m, "Mul", x, scalar(m, 0.70710678));
        u = op1(m, "Erf", u);
    } else {
        V *cube =
            below(m, 2) ? op2(m, "Pow", x, scalar(m, 3)) : op2(m, "Mul", op2(m, "Mul", x, x), x);
        u = op2(m, "Add", x, op2(m, "Mul", cube, scalar(m, 0.044715)));
        u = op1(m, "Tanh", op2(m, "Mul", u, scalar(m, 0.79788456)));
    }
    if (!below(m, 6))
        assert_true(vec_push(m->g->memory, &m->pool, u)); /* a near miss, perhaps */
    V *a = op2(m, "Add", u, scalar(m, 1));
    return below(m, 2) ? op2(m, "Mul", op2(m, "Mul", x, a), scalar(m, 0.5))
                       : op2(m, "Mul", op2(m, "Mul", x, scalar(m, 0.5)), a);
}

static V *softmax(maker *m, V *x)
{
    V *axis = axes(m);
    V *top = op2(m, "ReduceMax", x, axis);
    V *e = op1(m, "Exp", op2(m, "Sub", x, top));
    return op2(m, "Div", e, op2(m, "ReduceSum", e, axis));
}

static V *norm(maker *m)
{
    V *axis = axes(m), *x = pick(m);
    if (below(m, 2))
        x = op2(m, "Add", x, pick(m));
    bool layer = below(m, 2);
    V *d = layer ? op2(m, "Sub", x, op2(m, "ReduceMean", x, axis)) : x;
    V *square = below(m, 2) ? op2(m, "Pow", d, scalar(m, 2)) : op2(m, "Mul", d, d);
    V *v = op2(m, "Add", op2(m, "ReduceMean", square, axis), scalar(m, 0.01));
    V *y = below(m, 2) ? op2(m, "Div", d, op1(m, "Sqrt", v))
                       : op2(m, "Mul", d, op1(m, "Reciprocal", op1(m, "Sqrt", v)));
    y = op2(m, "Mul", y, weight(m, 1, 1, WIDTH));
    return layer ? op2(m, "Add", y, weight(m, 1, 1, WIDTH)) : y;
}

static V *transposed(maker *m, V *x)
{
    return op1(m, "Transpose", x);
}

static V *product(maker *m)
{
    V *w = weight(m, 2, WIDTH, WIDTH), *x = pick(m);
    if (below(m, 2))
        w = transposed(m, w);
    if (!below(m, 3))
        x = op2(m, "Mul", x, scalar(m, 0.5));
    V *y = op2(m, "MatMul", x, w);
    if (below(m, 2))
        y = op2(m, "Add", y, weight(m, 1, 1, WIDTH));
    if (!below(m, 3))
        assert_true(vec_push(m->g->memory, &m->pool, y));
    switch (below(m, 5)) {
    case 0:
        return op2(m, "Add", op1(m, "Sigmoid", y), pick(m));
    case 1:
        return op1(m, "Relu", op2(m, "Add", y, pick(m)));
    case 2:
        return op2(m, "Div", y, scalar(m, 2));
    default:
        return bounded(m, y);
    }
}

static V *attention(maker *m)
{
    V *q = pick(m), *k = pick(m), *v = pick(m);
    V *s = op2(m, "MatMul", q, transposed(m, k));
    s = op2(m, "Div", s, scalar(m, 2.5));
    if (below(m, 2)) {
        ir_shape shape = ir_shape_of(2, (int64_t[]){ROWS, ROWS});
        ir_tensor *t = ir_tensor_new(m->g->memory, TACIT_F32, &shape);
        assert_non_null(t);
        bool causal = below(m, 2);
        for (int i = 0; i < ROWS * ROWS; i++)
            ((float *)t->data)[i] =
                causal ? (i % ROWS <= i / ROWS ? 0 : -1e9f) : (float)rng_range(&m->r, -1, 1);
        s = op2(m, "Add", s, ir_constant_new(m->g, NULL, t));
    }
    V *p = below(m, 2) ? op1(m, "Softmax", s) : softmax(m, s);
    return op2(m, "MatMul", p, v);
}

static V *views(maker *m)
{
    V *x = pick(m);
    if (below(m, 2))
        return transposed(m, transposed(m, x));
    V *flat = op2(m, "Reshape", x, ir_constant_i64(m->g, NULL, 1, 1, &(int64_t){-1}));
    if (below(m, 2))
        flat = op1(m, "Neg", flat);
    return op2(m, "Reshape", flat, ir_constant_i64(m->g, NULL, 1, 2, (int64_t[]){ROWS, WIDTH}));
}

static V *halves(maker *m)
{
    ir_node *n = ir_node_new(m->g, "Split", "", NULL, 1, (V *[]){pick(m)}, 2, NULL);
    assert_non_null(n);
    op_resolve(NULL, n);
    set_int(m, n->outputs[0], "axis", -1);
    set_int(m, n->outputs[0], "num_outputs", 2);
    V *y = op2(m, "Concat", n->outputs[below(m, 2)], n->outputs[1]);
    set_int(m, y, "axis", -1);
    return y;
}

static V *elementwise(maker *m)
{
    static const char *const unary[] = {"Relu", "Tanh",      "Sigmoid", "Neg",      "Abs",
                                        "Sin",  "Cos",       "Erf",     "Identity", "Elu",
                                        "Gelu", "HardSwish", "Atan",    "Asinh",    "Celu"};
    static const char *const binary[] = {"Add", "Sub", "Max", "Min"};
    V *x = pick(m);
    switch (below(m, 7)) {
    case 0:
        return op2(m, binary[below(m, 4)], bounded(m, x), pick(m));
    case 1:
        return op2(m, "Mul", x, op1(m, "Sigmoid", below(m, 2) ? x : pick(m)));
    case 2:
        return op2(m, below(m, 2) ? "Add" : "Mul", x, scalar(m, below(m, 3) * 0.5));
    case 3:
        return op(m, "Where", 3,
                  (V *[]){op2(m, "Less", op1(m, "Sin", x), scalar(m, 0.3)), x, pick(m)});
    case 4:
        return op2(m, "Add", op2(m, "Mul", x, weight(m, 1, 1, WIDTH)), weight(m, 1, 1, WIDTH));
    default:
        return op1(m, unary[below(m, 15)], x);
    }
}

static ir_graph *make(arena *a, uint64_t seed)
{
    static V *(*const rules[])(maker *) = {elementwise, elementwise, elementwise, gelu,  norm,
                                           product,     product,     attention,   views, halves};
    maker m = {.g = ir_graph_new(a, "random"), .r = rng_seed(seed)};
    ir_type type = ir_type_tensor(TACIT_F32, 2, (int64_t[]){ROWS, WIDTH});
    for (int i = 0; i < 2; i++)
        assert_true(vec_push(a, &m.pool, ir_input_new(m.g, i ? "x" : "y", &type)));
    uint32_t steps = 2 + below(&m, 24);
    for (uint32_t i = 0; i < steps; i++) {
        V *v = rules[below(&m, 10)](&m); /* which may push on its own */
        assert_true(vec_push(a, &m.pool, v));
    }
    assert_true(ir_output_add(m.g, m.pool.data[m.pool.count - 1]));
    for (uint32_t i = 2; i + 1 < m.pool.count; i++)
        if (!below(&m, 8))
            assert_true(ir_output_add(m.g, m.pool.data[i]));
    pass_check_prepare(m.g);
    return m.g;
}

/* --- feature maps ------------------------------------------------------------------------------
 */
enum { CHANNELS = 3, SIDE = 4 };

static V *channel_weights(maker *m, double low, double high)
{
    V *w = weight(m, 1, 1, CHANNELS);
    for (int i = 0; i < CHANNELS; i++)
        ((float *)w->constant->data)[i] = (float)rng_range(&m->r, low, high);
    return w;
}

static V *convolution(maker *m)
{
    ir_shape shape = ir_shape_of(4, (int64_t[]){CHANNELS, CHANNELS, 3, 3});
    ir_tensor *t = ir_tensor_new(m->g->memory, TACIT_F32, &shape);
    assert_non_null(t);
    for (int64_t i = 0; i < ir_tensor_count(t); i++)
        ((float *)t->data)[i] = (float)rng_range(&m->r, -0.3, 0.3);
    V *in[3] = {pick(m), ir_constant_new(m->g, NULL, t), channel_weights(m, -1, 1)};
    V *y = op(m, "Conv", below(m, 2) ? 3 : 2, in);
    if (below(m, 2))
        assert_true(ir_attr_set_string(m->g, y->producer, "auto_pad",
                                       below(m, 2) ? "SAME_UPPER" : "SAME_LOWER"));
    else
        assert_true(ir_attr_set_ints(m->g, y->producer, "pads", 4, (int64_t[]){1, 1, 1, 1}));
    if (below(m, 2)) {
        V *bn[5] = {y, channel_weights(m, 0.5, 2), channel_weights(m, -1, 1),
                    channel_weights(m, -1, 1), channel_weights(m, 0.5, 2)};
        y = op(m, "BatchNormalization", 5, bn);
    }
    if (!below(m, 4))
        assert_true(vec_push(m->g->memory, &m->pool, y));
    if (below(m, 2))
        y = op2(m, "Add", y, pick(m));
    return y;
}

static V *pointwise(maker *m)
{
    static const char *const unary[] = {"Relu", "Sigmoid", "HardSwish", "Tanh"};
    V *x = pick(m);
    switch (below(m, 4)) {
    case 0:
        return op(m, "Clip", 3, (V *[]){x, scalar(m, 0), scalar(m, 1)});
    case 1:
        return op2(m, "Mul", x, op1(m, "Sigmoid", x));
    default:
        return op1(m, unary[below(m, 4)], x);
    }
}

static ir_graph *make_maps(arena *a, uint64_t seed)
{
    maker m = {.g = ir_graph_new(a, "maps"), .r = rng_seed(seed)};
    ir_type type = ir_type_tensor(TACIT_F32, 4, (int64_t[]){1, CHANNELS, SIDE, SIDE});
    assert_true(vec_push(a, &m.pool, ir_input_new(m.g, "x", &type)));
    for (uint32_t i = 0, steps = 2 + below(&m, 10); i < steps; i++) {
        V *v = below(&m, 2) ? convolution(&m) : pointwise(&m);
        assert_true(vec_push(a, &m.pool, v));
    }
    assert_true(ir_output_add(m.g, m.pool.data[m.pool.count - 1]));
    pass_check_prepare(m.g);
    return m.g;
}

static void feature_maps_too(void **state)
{
    (void)state;
    uint32_t fused = 0;
    for (uint64_t seed = 1; seed <= GRAPHS / 4; seed++) {
        arena a;
        arena_init(&a, NULL);
        ir_graph *after = pass_check_run(make_maps(&a, seed), NULL, NULL, 2e-4, NULL);
        fused += pass_check_count(after, "tacit.Conv");
        arena_free(&a);
    }
    assert_true(fused > GRAPHS / 4);
}

static void optimised_equals_unoptimised(void **state)
{
    (void)state;
    const char *one = getenv("TACIT_SEED");
    uint32_t fused = 0, attentions = 0, passes = 0;
    while (pass_at(passes))
        passes++;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        if (one && strtoull(one, NULL, 10) != seed)
            continue;
        arena a;
        arena_init(&a, NULL);
        ir_graph *g = make(&a, seed);
        ir_graph *after = pass_check_run(g, NULL, NULL, 2e-4, NULL);
        fused += pass_check_count(after, "tacit.MatMul") +
                 pass_check_count(after, "tacit.Elementwise") +
                 pass_check_count(after, "tacit.Norm");
        attentions += pass_check_count(after, "tacit.Attention");
        const pass_def *turn = pass_at((uint32_t)(seed % passes));
        const char *alone = turn->name;
        if (!turn->required) {
            pass_check_run(g, alone, NULL, 2e-4, NULL);
            pass_check_run(g, NULL, alone, 2e-4, NULL);
        }
        /* A second run finds nothing more to do. */
        pass_report report;
        pass_check_run(after, NULL, NULL, 2e-4, &report);
        if (report.changes.count)
            fail_msg("seed %llu: not stable, %s has more to do", (unsigned long long)seed,
                     report.changes.data[0].pass);
        arena_free(&a);
    }
    assert_true(one || (fused > GRAPHS && attentions > GRAPHS / 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(optimised_equals_unoptimised),
                                       cmocka_unit_test(feature_maps_too)};
    return cmocka_run_group_tests_name("passes on random graphs", tests, NULL, NULL);
}
