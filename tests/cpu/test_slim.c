/* SPDX-License-Identifier: Apache-2.0
 * Weights in 28 bits: whatever they are, a product is the same bits as that of plain weights. */
#include "cpu/kernel_test.h"
#include "cpu/one_row_test.h"

#include "cpu/gemm.h"
#include "cpu/slim.h"
#include "op/product.h"
#include "support/lower_check.h"

typedef float weight_fn(rng *r, int64_t i);

static float normal(rng *r, int64_t i)
{
    (void)i;
    double u = rng_range(r, 1e-12, 1), v = rng_range(r, 0, 6.2831853);
    return (float)(0.02 * sqrt(-2 * log(u)) * cos(v));
}

static float sparse(rng *r, int64_t i)
{
    return rng_below(r, 3) ? 0.0f : normal(r, i);
}

static float outliers(rng *r, int64_t i)
{
    return normal(r, i) * (rng_below(r, 200) ? 1.0f : 3000.0f);
}

static float any_size(rng *r, int64_t i)
{
    (void)i;
    return ldexpf((float)rng_range(r, -2, 2), (int)rng_below(r, 80) - 40);
}

/* Blocks of their own size each, some beyond what is made slim. */
static float sizes_by_block(rng *r, int64_t i)
{
    return ldexpf(normal(r, i), (int)(i / 3000 % 12) * 10 - 60);
}

static float extremes(rng *r, int64_t i)
{
    static const float some[] = {0.0f, -0.0f, 0x1p-140f, -0x1p-127f, 3e38f, INFINITY, -INFINITY};
    if (i % 97 == 0)
        return some[i / 97 % 7];
    return i % 1009 == 0 ? NAN : normal(r, i);
}

static float ends_of_range(rng *r, int64_t i)
{
    float x = ldexpf(1.0f, (int)rng_below(r, 2) * 15 - 15);
    return (rng_below(r, 2) ? x : 2 * x - x * 0x1p-23f) * (i % 2 ? 1.0f : -1.0f);
}

static weight_fn *const kinds[] = {normal,         sparse,   outliers,     any_size,
                                   sizes_by_block, extremes, ends_of_range};
enum { KINDS = sizeof kinds / sizeof *kinds };

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

typedef struct operands {
    int64_t n, k, b_row, b_col;
    float *a, *b, *bias;
} operands;

static float *plain_right(const operands *o, cpu_isa isa)
{
    int64_t width = cpu_gemm_width(isa), panels = (o->n + width - 1) / width;
    float *packed = aligned_alloc(64, (size_t)(panels * width * o->k * 4 + 127) / 64 * 64);
    assert_non_null(packed);
    cpu_gemm_pack_args p = {o->b, packed, o->n, o->k, o->b_row, o->b_col, 0, o->k, o->k};
    CPU_PICK(isa, cpu_gemm_pack_f32)(&p, 0, (uint32_t)panels);
    return packed;
}

static float *slim_right_side(const operands *o, cpu_isa isa)
{
    int64_t width = cpu_gemm_width(isa), panels = (o->n + width - 1) / width;
    size_t bytes = cpu_slim_bytes(panels, width, o->k);
    char *packed = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(packed);
    memset(packed, 0x5a, (bytes + 127) / 64 * 64);
    cpu_slim_pack_args p = {o->b, (float *)(void *)packed, o->n, o->k, o->b_row, o->b_col, 0, 0};
    for (int64_t k = 0; k < o->k; k = p.k_end) { /* in pieces, the last first in columns */
        p.k_begin = k;
        p.k_end = k + 2 * CPU_SLIM_ROWS < o->k ? k + 2 * CPU_SLIM_ROWS : o->k;
        for (uint32_t t = (uint32_t)panels; t-- > 0;)
            CPU_PICK(isa, cpu_slim_pack_f32)(&p, t, t + 1);
    }
    assert_true((uint8_t)packed[bytes] == 0x5a); /* nothing beyond */
    return (float *)(void *)packed;
}

static void same(const operands *o, const float *want, const float *got, const char *what,
                 const char *kernel)
{
    for (int64_t j = 0; j < o->n; j++)
        if (bits_of(want[j]) != bits_of(got[j]) && !(isnan(want[j]) && isnan(got[j])))
            fail_msg("%s %s n %lld k %lld: column %lld is %.9g, expected %.9g", what, kernel,
                     (long long)o->n, (long long)o->k, (long long)j, got[j], want[j]);
}

/* Every form of the kernel that this ISA has: from caches and from memory, all tiles at once and
 * one by one. */
static void check_slim(const operands *o, cpu_isa isa, cpu_gemm_args *p, const float *want,
                       float *got, const char *what)
{
    bool more = isa == CPU_AVX512 && cpu_detect().avx512_vbmi2;
    for (int form = 0; form < (more ? 8 : 4); form++) {
        cpu_features cpu = {.isa = isa, .avx512_vbmi2 = form >= 4};
        p->streamed = form & 1;
        p->wide = form & 2;
        memset(got, 0x5a, (size_t)o->n * sizeof *got);
        if (form & 2)
            cpu_slim_kernel (&cpu)(p, 0, p->col_tiles);
        else
            for (uint32_t t = p->col_tiles; t-- > 0;)
                cpu_slim_kernel (&cpu)(p, t, t + 1);
        same(o, want, got, what, cpu_slim_name(&cpu));
    }
}

static void check(const operands *o, cpu_isa isa, cpu_act act, const char *what)
{
    float *plain = plain_right(o, isa), *slim = slim_right_side(o, isa);
    float *want = calloc((size_t)o->n, sizeof *want), *got = calloc((size_t)o->n, sizeof *got);
    cpu_gemm_args p = one_row_args(o->a, o->bias, o->n, o->k, isa, act);
    p.packed = plain, p.c = p.y = want;
    CPU_PICK(isa, cpu_gemm_f32)(&p, 0, p.col_tiles);
    p.c = p.y = got;
    for (uint32_t t = p.col_tiles; t-- > 0;) /* tile by tile: the same */
        CPU_PICK(isa, cpu_gemm_f32)(&p, t, t + 1);
    same(o, want, got, what, cpu_isa_name(isa));
    p.packed = slim, p.c = p.y = got;
    check_slim(o, isa, &p, want, got, what);
    free(plain), free(slim), free(want), free(got);
}

static operands make(rng *r, int64_t n, int64_t k, bool turned, weight_fn *weight)
{
    operands o = {n, k, turned ? 1 : n + 3, turned ? k + 5 : 1, NULL, NULL, NULL};
    int64_t count = turned ? n * o.b_col : k * o.b_row;
    o.a = test_floats(r, k, -1, 1);
    o.bias = test_floats(r, n, -1, 1);
    o.b = test_floats(r, count, 0, 0);
    for (int64_t i = 0; i < count; i++)
        o.b[i] = weight(r, i);
    return o;
}

static void release(operands *o)
{
    free(o->a), free(o->b), free(o->bias);
}

static void same_bits_as_plain_weights(void **state)
{
    (void)state;
    static const int64_t columns[] = {1, 7, 16, 31, 32, 33, 70, 200};
    static const int64_t depths[] = {4, 8, 124, 128, 132, 256, 300, 516, 1024};
    rng r = rng_seed(81);
    FOR_EACH_ISA(isa)
    for (int kind = 0; kind < KINDS; kind++)
        for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
            char what[32];
            snprintf(what, sizeof what, "weights %d", kind);
            operands o = make(&r, columns[(i + (size_t)kind) % 8], depths[i], i % 2, kinds[kind]);
            check(&o, isa, i % 3 ? CPU_ACT_RELU : CPU_ACT_GELU, what);
            release(&o);
        }
}

/* A row longer than what is scaled at a time. */
static void long_rows(void **state)
{
    (void)state;
    rng r = rng_seed(85);
    FOR_EACH_ISA(isa)
    for (int kind = 0; kind < KINDS; kind++) {
        operands o = make(&r, 33 + kind, 8192 + 132, kind & 1, kinds[kind]);
        check(&o, isa, CPU_ACT_NONE, "long");
        release(&o);
    }
}

/* What a row holds: infinities and NaN come out where plain weights have them. */
static void rows_with_extremes(void **state)
{
    (void)state;
    static const float some[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 1e30f, -1e-30f};
    rng r = rng_seed(82);
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        operands o = make(&r, 40, 260, false, i % 2 ? normal : sparse);
        o.a[rng_below(&r, 260)] = some[i];
        check(&o, isa, CPU_ACT_NONE, "row");
        release(&o);
    }
}

/* It must be worth its while: of normal weights hardly any group stays whole, of ranges that end
 * just so none. */
static void most_groups_are_slim(void **state)
{
    (void)state;
    rng r = rng_seed(83);
    FOR_EACH_ISA(isa)
    for (int kind = 0; kind < 2; kind++) {
        operands o = make(&r, 96, 1024, false, kind ? ends_of_range : normal);
        int64_t width = cpu_gemm_width(isa), panels = (o.n + width - 1) / width, whole = 0;
        float *slim = slim_right_side(&o, isa);
        const cpu_slim_head *heads = (const void *)(slim + panels * width * o.k);
        for (int64_t i = 0; i < panels * cpu_slim_blocks(o.k); i++)
            whole += __builtin_popcount(heads[i].whole);
        assert_true(whole * 100 <= (kind ? 0 : 3) * panels * o.k / CPU_SLIM_STEPS);
        free(slim);
        release(&o);
    }
}

/* The rule takes it for one row whose weights no cache holds, with every epilogue. */
static void through_the_rule(void **state)
{
    (void)state;
    static const char *const acts[] = {"none", "relu", "gelu", "silu", "tanh"};
    rng r = rng_seed(84);
    for (int turn = 0; turn < 16; turn++) {
        int64_t n = 1 + (int64_t)rng_below(&r, 150), k = 128 + 4 * (int64_t)rng_below(&r, 100);
        op_case c;
        op_case_begin(&c, "tacit", "MatMul");
        op_case_random(&c, &r, TACIT_F32, SHAPE(1, k), -1, 1);
        if (turn & 1)
            op_case_random(&c, &r, TACIT_F32, SHAPE(n, k), -1, 1);
        else
            op_case_random(&c, &r, TACIT_F32, SHAPE(k, n), -1, 1);
        op_case_int(&c, "trans_b", turn & 1);
        if (turn & 2)
            op_case_random(&c, &r, TACIT_F32, SHAPE(n), -1, 1);
        else
            op_case_give(&c, NULL);
        if (turn & 4)
            op_case_random(&c, &r, TACIT_F32, SHAPE(1, n), -1, 1);
        op_case_string(&c, "activation", acts[turn % 5]);
        op_case_int(&c, "activation_last", turn >> 3 & 1);
        lower_check(&c, &r, 1, 2, 1e-5);
        op_case_end(&c);
    }
}

/* Weights beyond the caches of two cores, where unpacking is faster than reading those. */
static void the_rule_knows_caches(void **state)
{
    (void)state;
    op_lower c = {.constant_bytes = (size_t)3 << 20,
                  .cpu = {.isa = CPU_AVX512, .avx512_vbmi2 = true, .core_bytes = 1 << 20}};
    op_product p = {.g = {.m = 1, .n = 512, .k = 512, .a_col = 1}};
    assert_true(op_slim_suits(&c, &p));
    c.constant_bytes = (size_t)3 << 19;
    assert_false(op_slim_suits(&c, &p));
    p.g.streamed = true;
    assert_true(op_slim_suits(&c, &p));
    p.g.streamed = false, c.constant_bytes = (size_t)3 << 20;
    c.cpu.core_bytes = 2 << 20;
    assert_false(op_slim_suits(&c, &p));
    c.cpu.core_bytes = 0; /* nobody said: CPU_CORE_DEFAULT */
    assert_true(op_slim_suits(&c, &p));
    c.cpu.avx512_vbmi2 = false;
    assert_false(op_slim_suits(&c, &p));
    c.cpu.avx512_vbmi2 = true, p.g.ordered = true;
    assert_false(op_slim_suits(&c, &p));
    p.g.ordered = false, p.g.m = 2;
    assert_false(op_slim_suits(&c, &p));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_as_plain_weights), cmocka_unit_test(long_rows),
        cmocka_unit_test(rows_with_extremes),         cmocka_unit_test(most_groups_are_slim),
        cmocka_unit_test(through_the_rule),           cmocka_unit_test(the_rule_knows_caches),
    };
    return cmocka_run_group_tests_name("slim", tests, NULL, NULL);
}
