/* SPDX-License-Identifier: Apache-2.0
 * Lower rules of the dense ops against their evaluators: element-wise, products, rows, attention.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "op/fused_elementwise.h"
#include "support/lower_check.h"

static void unary_ops(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double low, high;
    } ops[] = {
        {"Abs", -3, 3},       {"Neg", -3, 3},         {"Exp", -5, 5},       {"Log", 0.1, 9},
        {"Sqrt", 0, 9},       {"Reciprocal", 1, 3},   {"Tanh", -4, 4},      {"Sigmoid", -9, 9},
        {"Relu", -3, 3},      {"Erf", -3, 3},         {"Floor", -5, 5},     {"Ceil", -5, 5},
        {"Round", -5, 5},     {"Sign", -2, 2},        {"Sin", -9, 9},       {"Cos", -9, 9},
        {"Softplus", -9, 9},  {"Softsign", -9, 9},    {"LeakyRelu", -2, 2}, {"Elu", -4, 2},
        {"HardSwish", -5, 5}, {"HardSigmoid", -5, 5}, {"Gelu", -4, 4},      {"Swish", -4, 4},
        {"Tan", -9, 9},       {"Asin", -1.1, 1},      {"Acos", -1, 1.1},    {"Atan", -4, 4},
        {"Sinh", -3, 3},      {"Cosh", -3, 3},        {"Asinh", -4, 4},     {"Acosh", 0.9, 5},
        {"Atanh", -1.1, 1},   {"Celu", -4, 2},
    };
    static const tacit_dtype types[] = {TACIT_F32, TACIT_F16, TACIT_BF16};
    rng r = rng_seed(20);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (int t = 0; t < 3; t++) {
            op_case c;
            op_case_begin(&c, "", ops[i].name);
            ir_shape s = random_shape(&r, 4);
            op_case_random(&c, &r, types[t], s, ops[i].low, ops[i].high);
            lower_check(&c, &r, 1, 0, t == 0 ? 2e-6 : t == 1 ? 2e-3 : 1e-2);
            op_case_end(&c);
        }
}

static void celu_with_any_slope(void **state)
{
    (void)state;
    rng r = rng_seed(29);
    const double slopes[] = {0.25, 3, 0, -1};
    for (int i = 0; i < 4; i++) {
        op_case c;
        op_case_begin(&c, "", "Celu");
        op_case_random(&c, &r, TACIT_F32, SHAPE(7, 101), -4, 2);
        op_case_float(&c, "alpha", slopes[i]);
        if (slopes[i] > 0)
            lower_check(&c, &r, 1, 0, 2e-6);
        else
            lower_check_none(&c, 1);
        op_case_end(&c);
    }
}

static void gelu_with_tanh_and_large_dense_operands(void **state)
{
    (void)state;
    rng r = rng_seed(21);
    op_case c;
    op_case_begin(&c, "", "Gelu");
    op_case_random(&c, &r, TACIT_F32, SHAPE(3, 40001), -4, 4);
    op_case_string(&c, "approximate", "tanh");
    lower_check(&c, &r, 1, 0, 2e-6);
    op_case_end(&c);
}

static void binary_ops_broadcast(void **state)
{
    (void)state;
    static const char *const ops[] = {
        "Add",   "Sub",   "Mul", "Div", "Pow", "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
        "Equal", "PRelu", "Max", "Min"};
    rng r = rng_seed(22);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        for (int round = 0; round < 12; round++) {
            op_case c;
            op_case_begin(&c, "", ops[i]);
            ir_shape s = random_shape(&r, 5), a = random_broadcast(&r, &s);
            ir_shape b = random_broadcast(&r, &s);
            bool one_way = strcmp(ops[i], "PRelu") == 0;
            tacit_dtype type = round % 4 == 3 ? TACIT_F16 : TACIT_F32;
            op_case_random(&c, &r, type, one_way || round % 2 ? s : a, 0.5, 2);
            op_case_random(&c, &r, type, b, 0.5, 2);
            lower_check(&c, &r, 1, 0, type == TACIT_F32 ? 1e-6 : 2e-3);
            op_case_end(&c);
        }
}

/* By known divisors, one or many of them, at both ends of every type; what may be divided by zero
 * is left to the evaluator. */
static void divisions_of_integers(void **state)
{
    (void)state;
    static const char *const ops[] = {"Div", "Mod", "Mod"};
    static const tacit_dtype types[] = {TACIT_I8, TACIT_I16, TACIT_I32, TACIT_I64,
                                        TACIT_U8, TACIT_U16, TACIT_U32, TACIT_U64};
    rng r = rng_seed(33);
    for (int i = 0; i < 3 * 8 * 12; i++) {
        op_case c;
        op_case_begin(&c, "", ops[i % 3]);
        int type = i / 3 % 8, round = i / 24;
        int bits = 8 << type % 4;
        bool sign = type < 4;
        int64_t least = sign ? INT64_MIN >> (64 - bits) : 0, a[301], b[301];
        for (int j = 0; j < 301; j++) {
            a[j] = (int64_t)rng_u64(&r) >> rng_below(&r, 64);
            b[j] = (int64_t)rng_u64(&r) >> rng_below(&r, 64);
            a[j] = j % 50 == 0 ? least : j % 50 == 1 ? ~least : j % 50 == 2 ? 0 : a[j];
            b[j] = j % 7 == 0 ? -1 : j % 7 == 1 ? 1 : j % 7 == 2 ? least : b[j];
            if (bits < 64) { /* as the type has them */
                uint64_t mask = (UINT64_C(1) << bits) - 1;
                a[j] = (int64_t)((uint64_t)a[j] & mask);
                b[j] = (int64_t)((uint64_t)b[j] & mask);
                if (sign) {
                    a[j] = (int64_t)((uint64_t)a[j] << (64 - bits)) >> (64 - bits);
                    b[j] = (int64_t)((uint64_t)b[j] << (64 - bits)) >> (64 - bits);
                }
            }
            b[j] = b[j] == 0 ? 3 : b[j];
        }
        op_case_i64(&c, types[type], SHAPE(301), a);
        bool many = round % 3 == 0;
        op_case_i64(&c, types[type], many ? SHAPE(301) : SCALAR, many ? b : b + round);
        op_case_int(&c, "fmod", i % 3 == 2);
        if (round == 11) /* only the run knows the divisor */
            lower_check_none(&c, 1);
        else
            lower_check(&c, &r, 1, 2, 0);
        op_case_end(&c);
    }
}

static void truths_and_choices(void **state)
{
    (void)state;
    static const char *const ops[] = {"And", "Or", "Xor", "Not"};
    rng r = rng_seed(23);
    for (int i = 0; i < 4; i++) {
        op_case c;
        op_case_begin(&c, "", ops[i]);
        op_case_random(&c, &r, TACIT_BOOL, SHAPE(3, 1, 70), 0, 2);
        if (i < 3)
            op_case_random(&c, &r, TACIT_BOOL, SHAPE(5, 70), 0, 2);
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
    }
    op_case c;
    op_case_begin(&c, "", "Where");
    op_case_random(&c, &r, TACIT_BOOL, SHAPE(4, 1), 0, 2);
    op_case_random(&c, &r, TACIT_F32, SHAPE(2, 4, 33), -1, 1);
    op_case_f64(&c, TACIT_F32, SCALAR, (double[]){-INFINITY});
    lower_check(&c, &r, 1, 0, 0);
    op_case_end(&c);
}

static void clip_cast_mean_and_powers(void **state)
{
    (void)state;
    rng r = rng_seed(24);
    op_case c;
    for (int bounds = 0; bounds < 4; bounds++) {
        op_case_begin(&c, "", "Clip");
        op_case_random(&c, &r, TACIT_F32, SHAPE(5, 77), -3, 3);
        if (bounds & 1)
            op_case_f64(&c, TACIT_F32, SCALAR, (double[]){-1});
        else
            op_case_give(&c, NULL);
        if (bounds & 2)
            op_case_f64(&c, TACIT_F32, SCALAR, (double[]){0.5});
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
    }
    const tacit_dtype types[] = {TACIT_F32, TACIT_F16, TACIT_BF16, TACIT_BOOL};
    const int64_t codes[] = {1, 10, 16, 9};
    for (int i = 0; i < 16; i++) {
        op_case_begin(&c, "", "Cast");
        op_case_random(&c, &r, types[i / 4], SHAPE(2, 301), -3, 3);
        op_case_int(&c, "to", codes[i % 4]);
        lower_check(&c, &r, 1, 0, 0);
        op_case_end(&c);
    }
    op_case_begin(&c, "", "Mean");
    for (int i = 0; i < 4; i++)
        op_case_random(&c, &r, TACIT_F32, i % 2 ? SHAPE(3, 1, 19) : SHAPE(8, 19), -3, 3);
    lower_check(&c, &r, 1, 0, 1e-6);
    op_case_end(&c);
    const double exponents[] = {2, 3, 0.5, 1, -1, 2.5};
    for (int i = 0; i < 6; i++) {
        op_case_begin(&c, "", "Pow");
        op_case_random(&c, &r, TACIT_F32, SHAPE(900), 0.1, 3);
        op_case_f64(&c, TACIT_F32, SCALAR, &exponents[i]);
        lower_check(&c, &r, 1, 2, 1e-6);
        op_case_end(&c);
    }
}

static void types_without_kernels_are_left_to_the_evaluator(void **state)
{
    (void)state;
    rng r = rng_seed(25);
    op_case c;
    op_case_begin(&c, "", "Gelu");
    op_case_random(&c, &r, TACIT_F64, SHAPE(9), 0, 50);
    lower_check_none(&c, 1);
    op_case_end(&c);
}

static void fused_programs(void **state)
{
    (void)state;
    rng r = rng_seed(26);
    op_case c;
    op_case_begin(&c, "tacit", "Elementwise");
    op_case_random(&c, &r, TACIT_F32, SHAPE(6, 1, 700), -2, 2);
    op_case_random(&c, &r, TACIT_F32, SHAPE(3, 700), -2, 2);
    op_case_random(&c, &r, TACIT_BOOL, SHAPE(3, 1), 0, 2);
    const int64_t program[] = {OP_ELEMENTWISE_MUL,
                               0,
                               OP_ELEMENTWISE_INPUT,
                               OP_ELEMENTWISE_INPUT + 1,
                               0,
                               OP_ELEMENTWISE_ADD,
                               1,
                               0,
                               OP_ELEMENTWISE_CONSTANT,
                               0,
                               OP_ELEMENTWISE_TANH,
                               1,
                               1,
                               0,
                               0,
                               OP_ELEMENTWISE_WHERE,
                               2,
                               OP_ELEMENTWISE_INPUT + 2,
                               1,
                               0,
                               OP_ELEMENTWISE_CLIP,
                               0,
                               2,
                               OP_ELEMENTWISE_CONSTANT + 1,
                               OP_ELEMENTWISE_CONSTANT};
    op_case_ints(&c, "program", 25, program);
    ir_attr constants = {
        .name = "constants", .kind = IR_ATTR_FLOATS, .count = 2, .floats = (double[]){0.75, -0.5}};
    assert_true(ir_attr_set(c.graph, c.node, &constants));
    lower_check(&c, &r, 1, 0, 1e-6);
    op_case_end(&c);

    static const char *const acts[] = {"silu", "gelu", "gelu_tanh", "sigmoid", "relu", "tanh"};
    for (int i = 0; i < 6; i++) {
        op_case_begin(&c, "tacit", "Gated");
        op_case_random(&c, &r, TACIT_F32, SHAPE(5, 170), -3, 3);
        op_case_random(&c, &r, TACIT_F32, SHAPE(5, 170), -3, 3);
        op_case_string(&c, "activation", acts[i]);
        lower_check(&c, &r, 1, 0, 2e-6);
        op_case_end(&c);
    }
}

static void batch_normalisation(void **state)
{
    (void)state;
    rng r = rng_seed(27);
    for (uint32_t known = 0; known < 2; known++) {
        op_case c;
        op_case_begin(&c, "", "BatchNormalization");
        op_case_random(&c, &r, TACIT_F32, SHAPE(2, 7, 5, 6), -2, 2);
        for (int i = 0; i < 4; i++)
            op_case_random(&c, &r, TACIT_F32, SHAPE(7), 0.5, 2);
        lower_check(&c, &r, 1, known ? 30 : 0, 2e-6);
        op_case_end(&c);
    }
}

static void matrix_products(void **state)
{
    (void)state;
    static const struct {
        ir_shape a, b;
    } shapes[] = {
        {{2, {5, 7}}, {2, {7, 9}}},
        {{1, {7}}, {2, {7, 9}}},
        {{2, {5, 7}}, {1, {7}}},
        {{1, {70}}, {1, {70}}},
        {{3, {4, 5, 7}}, {2, {7, 130}}},
        {{4, {2, 3, 5, 40}}, {4, {2, 3, 40, 33}}},
        {{4, {2, 1, 5, 40}}, {4, {1, 3, 40, 33}}},
        {{2, {5, 40}}, {3, {3, 40, 33}}},
        {{3, {37, 1, 40}}, {2, {40, 33}}},
        {{4, {3, 6, 1, 40}}, {2, {40, 33}}},
        {{2, {0, 40}}, {2, {40, 33}}},
        {{2, {6, 0}}, {2, {0, 33}}},
        {{2, {150, 500}}, {2, {500, 200}}},
        {{2, {1, 900}}, {2, {900, 700}}},
        {{2, {60, 1024}}, {2, {1024, 300}}},
    };
    rng r = rng_seed(28);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t known = 0; known < 2; known++) {
            op_case c;
            op_case_begin(&c, "", "MatMul");
            op_case_random(&c, &r, TACIT_F32, shapes[i].a, -1, 1);
            op_case_random(&c, &r, TACIT_F32, shapes[i].b, -1, 1);
            lower_check(&c, &r, 1, known ? 2 : 0, 3e-5);
            op_case_end(&c);
        }
}

static void gemm_with_every_addend(void **state)
{
    (void)state;
    rng r = rng_seed(29);
    const ir_shape addends[] = {{.rank = -1}, {.rank = 0},  {1, {33}},
                                {2, {1, 33}}, {2, {20, 1}}, {2, {20, 33}}};
    for (int i = 0; i < 6; i++)
        for (int trans = 0; trans < 4; trans++)
            for (uint32_t known = 0; known < 2; known++) {
                op_case c;
                op_case_begin(&c, "", "Gemm");
                op_case_random(&c, &r, TACIT_F32, trans & 1 ? SHAPE(50, 20) : SHAPE(20, 50), -1, 1);
                op_case_random(&c, &r, TACIT_F32, trans & 2 ? SHAPE(33, 50) : SHAPE(50, 33), -1, 1);
                if (addends[i].rank >= 0)
                    op_case_random(&c, &r, TACIT_F32, addends[i], -1, 1);
                op_case_int(&c, "transA", trans & 1);
                op_case_int(&c, "transB", trans >> 1);
                op_case_float(&c, "alpha", trans == 3 ? 0.25 : 1);
                bool scaled = known && i < 5;
                op_case_float(&c, "beta", scaled ? 0.5 : 1);
                bool spread_unknown = i == 1 && !known;
                if (spread_unknown)
                    lower_check_none(&c, 1);
                else
                    lower_check(&c, &r, 1, known ? 6 : 0, 1e-5);
                op_case_end(&c);
            }
}

/* Wide right sides that a core's own cache holds or not, rows in several blocks, long sums, and
 * rows that go by halves where the right side is large. */
static void products_do_not_depend_on_caches(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{230, 256, 1216}, {250, 288, 296}, {130, 1536, 400}};
    rng r = rng_seed(36);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        op_case c;
        op_case_begin(&c, "", "MatMul");
        op_case_random(&c, &r, TACIT_F32, SHAPE(shapes[i][0], shapes[i][1]), -1, 1);
        op_case_random(&c, &r, TACIT_F32, SHAPE(shapes[i][1], shapes[i][2]), -1, 1);
        lower_check_caches(&c, &r, 1, 2, 4e-5);
        op_case_end(&c);
    }
}

static void fused_products(void **state)
{
    (void)state;
    static const char *const acts[] = {"none", "relu",    "gelu", "gelu_tanh",
                                       "silu", "sigmoid", "tanh", "clip"};
    rng r = rng_seed(30);
    for (int i = 0; i < 8; i++)
        for (int variant = 0; variant < 16; variant++) {
            bool trans_a = variant & 1, trans_b = variant & 2;
            int64_t n = rng_below(&r, 2) ? 37 : 109; /* the latter with paired terms, perhaps */
            op_case c;
            op_case_begin(&c, "tacit", "MatMul");
            op_case_random(&c, &r, TACIT_F32, trans_a ? SHAPE(2, 450, 14) : SHAPE(2, 14, 450), -1,
                           1);
            op_case_random(&c, &r, TACIT_F32, trans_b ? SHAPE(n, 450) : SHAPE(450, n), -1, 1);
            if (variant & 4)
                op_case_random(&c, &r, TACIT_F32, SHAPE(n), -1, 1);
            else
                op_case_give(&c, NULL);
            if (variant & 8)
                op_case_random(&c, &r, TACIT_F32, SHAPE(2, 14, n), -1, 1);
            op_case_int(&c, "trans_a", trans_a);
            op_case_int(&c, "trans_b", trans_b);
            op_case_string(&c, "activation", acts[i]);
            op_case_float(&c, "act_min", -0.5);
            op_case_float(&c, "act_max", 0.5);
            op_case_float(&c, "alpha", rng_below(&r, 2) ? 1 : 0.125);
            op_case_int(&c, "activation_last", (int64_t)rng_below(&r, 2));
            lower_check(&c, &r, 1, rng_below(&r, 2) ? 2 : 0, 2e-5);
            op_case_end(&c);
        }
}

/* So many rows that they go by halves where the machine is one for it, with rows and columns that
 * are left over, and K in one block and in two. */
static void large_products(void **state)
{
    (void)state;
    static const char *const acts[] = {"none", "gelu", "clip"};
    rng r = rng_seed(35);
    for (int variant = 0; variant < 6; variant++) {
        int64_t m = 250, n = 296, k = variant == 1 ? 1088 : 256;
        op_case c;
        op_case_begin(&c, "tacit", "MatMul");
        op_case_random(&c, &r, TACIT_F32, SHAPE(m, k), -1, 1);
        op_case_random(&c, &r, TACIT_F32, variant & 1 ? SHAPE(n, k) : SHAPE(k, n), -1, 1);
        op_case_random(&c, &r, TACIT_F32, SHAPE(n), -1, 1);
        if (variant & 2)
            op_case_random(&c, &r, TACIT_F32, SHAPE(m, n), -1, 1);
        op_case_int(&c, "trans_b", variant & 1);
        op_case_string(&c, "activation", acts[variant % 3]);
        op_case_float(&c, "act_min", -0.5);
        op_case_float(&c, "act_max", 0.5);
        op_case_float(&c, "alpha", variant == 4 ? 0.125 : 1);
        op_case_int(&c, "activation_last", variant > 3);
        lower_check(&c, &r, 1, 2, 4e-5);
        op_case_end(&c);
    }
}

/* Lengths that overflow or vanish in f32, zeros, infinities and NaN, too. */
static void lines_divided_by_their_lengths(void **state)
{
    (void)state;
    static const float odd[] = {0, 1e30f, 1e-30f, 1e-42f, INFINITY, NAN};
    rng r = rng_seed(32);
    for (int variant = 0; variant < 3 * 2 * 7; variant++) {
        op_case c;
        op_case_begin(&c, "", "LpNormalization");
        ir_tensor *x = op_case_random(&c, &r, TACIT_F32, SHAPE(5, 70, 33), -5, 5);
        int kind = variant / 6;
        for (int64_t i = 0; kind && i < ir_tensor_count(x); i++) {
            float *v = (float *)x->data + i;
            if (kind >= 5 ? rng_below(&r, 100) == 0 : i / 33 % 3 != 1) /* some lines whole */
                *v = kind >= 5 ? odd[kind - 1] : *v * odd[kind - 1];
        }
        op_case_int(&c, "axis", variant % 3);
        op_case_int(&c, "p", 1 + variant / 3 % 2);
        lower_check(&c, &r, 1, 0, 2e-6);
        op_case_end(&c);
    }
}

static void softmax_and_norms(void **state)
{
    (void)state;
    rng r = rng_seed(31);
    for (int64_t axis = 0; axis < 3; axis++)
        for (int log_of = 0; log_of < 2; log_of++) {
            op_case c;
            op_case_begin(&c, "", log_of ? "LogSoftmax" : "Softmax");
            op_case_random(&c, &r, TACIT_F32, SHAPE(5, 70, 33), -5, 5);
            op_case_int(&c, "axis", axis);
            lower_check(&c, &r, 1, 0, 2e-6);
            op_case_end(&c);
        }
    for (int variant = 0; variant < 6; variant++) {
        op_case c;
        op_case_begin(&c, "", variant & 1 ? "RMSNormalization" : "LayerNormalization");
        int64_t axis = variant / 2;
        op_case_random(&c, &r, TACIT_F32, SHAPE(5, 6, 33), -5, 5);
        ir_shape row = axis == 0 ? SHAPE(5, 6, 33) : axis == 1 ? SHAPE(6, 33) : SHAPE(33);
        op_case_random(&c, &r, TACIT_F32, row, -1, 1);
        if (!(variant & 1))
            op_case_random(&c, &r, TACIT_F32, row, -1, 1);
        op_case_int(&c, "axis", axis);
        lower_check(&c, &r, 1, 0, 5e-6);
        op_case_end(&c);
    }
    for (uint32_t variant = 0; variant < 16; variant++) {
        op_case c;
        op_case_begin(&c, "tacit", "Norm");
        op_case_random(&c, &r, TACIT_F32, SHAPE(7, 130), -5, 5);
        for (int i = 0; i < 3; i++)
            if (variant >> i & 1)
                op_case_random(&c, &r, TACIT_F32, i < 2 ? SHAPE(130) : SHAPE(7, 130), -1, 1);
            else
                op_case_give(&c, NULL);
        op_case_int(&c, "rms", variant & 8);
        lower_check(&c, &r, variant & 4 && variant & 1 ? 2 : 1, 0, 5e-6);
        op_case_end(&c);
    }
}

static void attention(void **state)
{
    (void)state;
    rng r = rng_seed(32);
    for (int round = 0; round < 24; round++) {
        op_case c;
        int64_t sq = round % 3 == 0 ? 1 : 1 + (int64_t)rng_below(&r, 90);
        int64_t sk = sq + (int64_t)rng_below(&r, 150), d = 8 + (int64_t)rng_below(&r, 60);
        int64_t kv = 1 + (int64_t)rng_below(&r, 2), h = kv * (1 + (int64_t)rng_below(&r, 2));
        op_case_begin(&c, "tacit", "Attention");
        op_case_random(&c, &r, TACIT_F32, SHAPE(2, h, sq, d), -1, 1);
        op_case_random(&c, &r, TACIT_F32, SHAPE(2, kv, sk, d), -1, 1);
        op_case_random(&c, &r, TACIT_F32, SHAPE(2, kv, sk, 40), -1, 1);
        if (round % 4 == 1)
            op_case_random(&c, &r, TACIT_F32, SHAPE(2, 1, 1, sk), -1, 1);
        if (round % 4 == 2) { /* every query keeps at least one key */
            ir_tensor *m = op_case_random(&c, &r, TACIT_BOOL, SHAPE(sq, sk), 0, 2);
            for (int64_t i = 0; i < sq; i++)
                ((uint8_t *)m->data)[i * sk] = 1;
        }
        op_case_float(&c, "scale", 0.3);
        op_case_int(&c, "causal", round & 1);
        op_case_int(&c, "causal_offset", sk - sq);
        op_case_float(&c, "softcap", round % 5 == 0 ? 4 : 0);
        op_case_string(&c, "out_layout", round & 2 ? "bshd" : "bhsd");
        lower_check(&c, &r, 1, 0, 5e-6);
        op_case_end(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary_ops),
        cmocka_unit_test(celu_with_any_slope),
        cmocka_unit_test(gelu_with_tanh_and_large_dense_operands),
        cmocka_unit_test(binary_ops_broadcast),
        cmocka_unit_test(divisions_of_integers),
        cmocka_unit_test(truths_and_choices),
        cmocka_unit_test(clip_cast_mean_and_powers),
        cmocka_unit_test(types_without_kernels_are_left_to_the_evaluator),
        cmocka_unit_test(fused_programs),
        cmocka_unit_test(batch_normalisation),
        cmocka_unit_test(matrix_products),
        cmocka_unit_test(products_do_not_depend_on_caches),
        cmocka_unit_test(gemm_with_every_addend),
        cmocka_unit_test(fused_products),
        cmocka_unit_test(large_products),
        cmocka_unit_test(lines_divided_by_their_lengths),
        cmocka_unit_test(softmax_and_norms),
        cmocka_unit_test(attention),
    };
    return cmocka_run_group_tests_name("lowering", tests, NULL, NULL);
}
