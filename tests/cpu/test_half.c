/* SPDX-License-Identifier: Apache-2.0
 * Weights in 16 bits: whatever they are, a product is the same bits as that of weights widened
 * before. */
#include "cpu/kernel_test.h"
#include "cpu/one_row_test.h"

#include "base/half.h"
#include "cpu/gemm.h"
#include "cpu/half.h"
#include "ir/recipe.h"
#include "op/product.h"
#include "support/lower_check.h"

typedef uint16_t weight_fn(rng *r, tacit_dtype dtype, int64_t i);

static uint16_t encode(tacit_dtype dtype, double x)
{
    return half_encode(dtype == TACIT_F16 ? HALF_F16 : HALF_BF16, x, false);
}

static float decode(tacit_dtype dtype, uint16_t h)
{
    return dtype == TACIT_F16 ? half_to_f32(h) : bf16_to_f32(h);
}

static uint16_t usual(rng *r, tacit_dtype dtype, int64_t i)
{
    (void)i;
    return encode(dtype, rng_range(r, -0.1, 0.1));
}

static uint16_t any_size(rng *r, tacit_dtype dtype, int64_t i)
{
    uint16_t h = (uint16_t)rng_below(r, 1 << 16);
    return isfinite(decode(dtype, h)) ? h : usual(r, dtype, i);
}

static uint16_t subnormal(rng *r, tacit_dtype dtype, int64_t i)
{
    (void)i;
    uint16_t mantissa = dtype == TACIT_F16 ? 0x3ff : 0x7f;
    return (uint16_t)(rng_below(r, 1 << 16) & (0x8000u | mantissa));
}

/* Infinities in some columns, NaN in others. */
static uint16_t extremes(rng *r, tacit_dtype dtype, int64_t i)
{
    static const double some[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0};
    return i % 397 ? usual(r, dtype, i) : encode(dtype, some[i / 397 % 5]);
}

static weight_fn *const kinds[] = {usual, any_size, subnormal, extremes};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct operands {
    tacit_dtype dtype;
    int64_t n, k, b_row, b_col, count;
    uint16_t *b;
    float *a, *wide, *bias;
} operands;

static operands make(rng *r, tacit_dtype dtype, int64_t n, int64_t k, bool turned,
                     weight_fn *weight)
{
    operands o = {
        .dtype = dtype, .n = n, .k = k, .b_row = turned ? 1 : n + 3, .b_col = turned ? k + 5 : 1};
    int64_t count = o.count = turned ? n * o.b_col : k * o.b_row;
    o.a = test_floats(r, k, -1, 1);
    o.bias = test_floats(r, n, -1, 1);
    o.wide = test_floats(r, count, 0, 0);
    o.b = malloc((size_t)count * sizeof *o.b);
    assert_non_null(o.b);
    for (int64_t i = 0; i < count; i++) {
        o.b[i] = weight(r, dtype, i);
        o.wide[i] = decode(dtype, o.b[i]);
    }
    return o;
}

static void release(operands *o)
{
    free(o->a), free(o->b), free(o->wide), free(o->bias);
}

static float *wide_right(const operands *o, cpu_isa isa)
{
    int64_t width = cpu_gemm_width(isa), panels = (o->n + width - 1) / width;
    float *packed = aligned_alloc(64, (size_t)(panels * width * o->k * 4 + 127) / 64 * 64);
    assert_non_null(packed);
    cpu_gemm_pack_args p = {o->wide, packed, o->n, o->k, o->b_row, o->b_col, 0, o->k, o->k};
    CPU_PICK(isa, cpu_gemm_pack_f32)(&p, 0, (uint32_t)panels);
    return packed;
}

static const float *half_right(const operands *o, cpu_isa isa)
{
    enum { ROWS = 37 };
    int64_t width = cpu_gemm_width(isa), panels = (o->n + width - 1) / width;
    size_t bytes = cpu_half_bytes(panels, width, o->k), room = (bytes + 127) / 64 * 64;
    char *packed = aligned_alloc(64, room);
    assert_non_null(packed);
    memset(packed, 0x5a, room);
    size_t odd = (size_t)(o->n % 2), halves = (size_t)o->count * sizeof *o->b;
    char *b = malloc(halves + odd);
    assert_non_null(b);
    memcpy(b + odd, o->b, halves); /* they lie anywhere */
    cpu_half_pack_args p = {b + odd, (void *)packed, o->n, o->k, o->b_row, o->b_col, 0, 0};
    cpu_kernel pack = o->dtype == TACIT_F16 ? CPU_PICK(isa, cpu_half_pack_f16)
                                            : CPU_PICK(isa, cpu_half_pack_bf16);
    for (int64_t k = 0; k < o->k; k = p.k_end) { /* in pieces, the last columns first */
        p.k_begin = k;
        p.k_end = k + ROWS < o->k ? k + ROWS : o->k;
        for (uint32_t t = (uint32_t)panels; t-- > 0;)
            pack(&p, t, t + 1);
    }
    assert_true((uint8_t)packed[bytes] == 0x5a); /* nothing beyond */
    free(b);
    return (const void *)packed;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void same(const operands *o, cpu_isa isa, const float *want, const float *got)
{
    for (int64_t j = 0; j < o->n; j++)
        if (bits_of(want[j]) != bits_of(got[j]) && !(isnan(want[j]) && isnan(got[j])))
            fail_msg("%s on %s, n %lld k %lld: column %lld is %.9g, expected %.9g",
                     o->dtype == TACIT_F16 ? "f16" : "bf16", cpu_isa_name(isa), (long long)o->n,
                     (long long)o->k, (long long)j, got[j], want[j]);
}

/* From caches and from memory, all tiles at once and one by one. */
static void check(const operands *o, cpu_isa isa, cpu_act act)
{
    float *wide = wide_right(o, isa);
    const float *half = half_right(o, isa);
    float *want = calloc((size_t)o->n, sizeof *want), *got = calloc((size_t)o->n, sizeof *got);
    assert_true(want && got);
    cpu_kernel fn =
        o->dtype == TACIT_F16 ? CPU_PICK(isa, cpu_half_f16) : CPU_PICK(isa, cpu_half_bf16);
    cpu_gemm_args p = one_row_args(o->a, o->bias, o->n, o->k, isa, act);
    for (int form = 0; form < 4; form++) {
        p.streamed = form & 1;
        p.packed = wide, p.c = p.y = want;
        CPU_PICK(isa, cpu_gemm_f32)(&p, 0, p.col_tiles);
        memset(got, 0x5a, (size_t)o->n * sizeof *got);
        p.packed = half, p.c = p.y = got;
        if (form & 2)
            fn(&p, 0, p.col_tiles);
        else
            for (uint32_t t = p.col_tiles; t-- > 0;)
                fn(&p, t, t + 1);
        same(o, isa, want, got);
    }
    free(wide), free((void *)half), free(want), free(got);
}

static void same_bits_as_widened_weights(void **state)
{
    (void)state;
    static const int64_t columns[] = {1, 7, 16, 31, 32, 33, 70, 200};
    static const int64_t depths[] = {1, 2, 3, 4, 5, 8, 31, 32, 67, 127, 128, 300, 1029, 4099};
    enum { DEPTHS = sizeof depths / sizeof *depths };
    rng r = rng_seed(91);
    FOR_EACH_ISA(isa)
    for (int kind = 0; kind < 2 * KINDS; kind++)
        for (size_t i = 0; i < 2 * DEPTHS; i++) {
            operands o =
                make(&r, kind % 2 ? TACIT_F16 : TACIT_BF16, columns[(i + (size_t)kind) % 8],
                     depths[i / 2], i % 2, kinds[kind / 2]);
            check(&o, isa, i % 3 ? CPU_ACT_RELU : CPU_ACT_GELU);
            release(&o);
        }
}

/* A late f32 of one or three parts in halves, and what it will be. */
static const ir_tensor *give_late(op_case *c, rng *r, tacit_dtype dtype, int64_t n, int64_t k,
                                  bool turned, int64_t parts)
{
    ir_shape shape = turned ? SHAPE(n * parts, k) : SHAPE(k, n * parts);
    ir_shape part = turned ? SHAPE(n, k) : SHAPE(k, n);
    const ir_tensor *from[3];
    for (int64_t p = 0; p < parts; p++) {
        ir_tensor *t = ir_tensor_new(&c->memory, dtype, &part);
        assert_non_null(t);
        for (int64_t i = 0; i < n * k; i++)
            ((uint16_t *)t->data)[i] = encode(dtype, rng_range(r, -1, 1));
        from[p] = t;
    }
    ir_recipe recipe = {.kind = IR_JOINED,
                        .count = (uint32_t)parts,
                        .from = from,
                        .dtype = TACIT_F32,
                        .rows = turned ? 1 : k};
    ir_tensor *late = ir_tensor_late(&c->memory, &shape, &recipe);
    ir_tensor *made = ir_tensor_new(&c->memory, TACIT_F32, &shape);
    assert_true(late && made);
    ir_recipe_fill(late, 0, late->bytes, made->data);
    c->late[c->n_in] = late;
    op_case_give(c, made);
    return late;
}

/* The rule takes it for one row, with every epilogue. */
static void through_the_rule(void **state)
{
    (void)state;
    static const char *const acts[] = {"none", "relu", "gelu", "silu", "tanh"};
    rng r = rng_seed(92);
    for (int turn = 0; turn < 32; turn++) {
        int64_t n = 1 + (int64_t)rng_below(&r, 150), k = 1 + (int64_t)rng_below(&r, 400);
        int64_t parts = turn % 3 ? 1 : 3;
        op_case c;
        op_case_begin(&c, "tacit", "MatMul");
        op_case_random(&c, &r, TACIT_F32, SHAPE(1, k), -1, 1);
        give_late(&c, &r, turn & 16 ? TACIT_F16 : TACIT_BF16, n, k, turn & 1, parts);
        op_case_int(&c, "trans_b", turn & 1);
        if (turn & 2)
            op_case_random(&c, &r, TACIT_F32, SHAPE(n * parts), -1, 1);
        else
            op_case_give(&c, NULL);
        if (turn & 4)
            op_case_random(&c, &r, TACIT_F32, SHAPE(1, n * parts), -1, 1);
        op_case_string(&c, "activation", acts[turn % 5]);
        op_case_int(&c, "activation_last", turn >> 3 & 1);
        lower_check(&c, &r, 1, 2, 1e-5);
        op_case_end(&c);
    }
}

/* More than the packing of one job. */
static void in_pieces(void **state)
{
    (void)state;
    rng r = rng_seed(93);
    for (int turn = 0; turn < 4; turn++) {
        op_case c;
        op_case_begin(&c, "tacit", "MatMul");
        op_case_random(&c, &r, TACIT_F32, SHAPE(1, 301), -1, 1);
        give_late(&c, &r, turn & 2 ? TACIT_F16 : TACIT_BF16, 1100, 301, turn & 1, turn ? 1 : 3);
        op_case_int(&c, "trans_b", turn & 1);
        lower_check(&c, &r, 1, 2, 1e-5);
        op_case_end(&c);
    }
}

static void what_the_rule_takes(void **state)
{
    (void)state;
    rng r = rng_seed(94);
    op_case e;
    op_case_begin(&e, "tacit", "MatMul");
    for (int parts = 1; parts <= 3; parts += 2) {
        const ir_tensor *late = give_late(&e, &r, TACIT_F16, 8, 8, false, parts);
        op_operand in[2] = {[1] = {.constant = late}};
        op_lower c = {.in = in,
                      .constant_bytes = (size_t)3 << 19,
                      .cpu = {.isa = CPU_AVX2, .core_bytes = 1 << 20}};
        op_product p = {.g = {.m = 1, .n = 8, .k = 8, .a_col = 1}};
        assert_true(op_half_suits(&c, &p));
        c.constant_bytes = 1 << 20; /* in a core's cache */
        assert_false(op_half_suits(&c, &p));
        p.g.streamed = true;
        assert_true(op_half_suits(&c, &p));
        p.g.ordered = true;
        assert_false(op_half_suits(&c, &p));
        p.g.ordered = false, p.g.m = 2;
        assert_false(op_half_suits(&c, &p));
        p.g.m = 1, c.cpu.isa = CPU_PORTABLE;
        assert_false(op_half_suits(&c, &p));
        c.cpu.isa = CPU_AVX512, in[1].constant = e.in[e.n_in - 1]; /* f32 already */
        assert_false(op_half_suits(&c, &p));
        in[1].constant = late;
        late->recipe->from[parts - 1] = e.in[0]; /* a part of it is */
        assert_false(op_half_suits(&c, &p));
    }
    op_case_end(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_widened_weights),
        cmocka_unit_test(through_the_rule),
        cmocka_unit_test(in_pieces),
        cmocka_unit_test(what_the_rule_takes),
    };
    return cmocka_run_group_tests_name("half", tests, NULL, NULL);
}
