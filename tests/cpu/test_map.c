/* SPDX-License-Identifier: Apache-2.0
 * The element-wise drivers: index spaces, broadcasting, strides, storage types, programs. */
#include "cpu/kernel_test.h"

#include "base/half.h"
#include "cpu/map.h"

enum { SIDE = 24000 };

/* One random space of rank ≤ 4 with two inputs of random broadcasts and permutations. */
typedef struct space {
    int32_t rank;
    int64_t dims[4];
    int64_t strides[3][4];
    int64_t count;
} space;

static space random_space(rng *r)
{
    space s = {.rank = (int32_t)rng_below(r, 5), .count = 1};
    for (int32_t d = 0; d < s.rank; d++) {
        s.dims[d] = 1 + (int64_t)rng_below(r, rng_below(r, 6) ? 7 : 300);
        s.count *= s.dims[d];
    }
    int64_t dense = 1;
    for (int32_t d = s.rank; d-- > 0;) {
        s.strides[2][d] = dense;
        dense *= s.dims[d];
    }
    for (int k = 0; k < 2; k++) {
        bool transposed = rng_below(r, 4) == 0;
        int64_t stride = 1;
        for (int32_t i = 0; i < s.rank; i++) {
            int32_t d = transposed ? i : s.rank - 1 - i;
            bool broadcast = rng_below(r, 4) == 0;
            s.strides[k][d] = broadcast ? 0 : stride;
            stride *= broadcast ? 1 : s.dims[d];
        }
    }
    return s;
}

static int64_t offset_of(const space *s, int k, int64_t linear)
{
    int64_t at = 0;
    for (int32_t d = s->rank; d-- > 0;) {
        at += linear % s->dims[d] * s->strides[k][d];
        linear /= s->dims[d];
    }
    return at;
}

static cpu_map_args *program_of(const space *s, cpu_isa isa, int64_t tile, bool repeats,
                                uint32_t *tiles)
{
    /* y = relu(a·b + 0.5) - a */
    const cpu_strips *strips = cpu_strips_for(isa);
    cpu_map_args *p = calloc(1, sizeof *p + 4 * sizeof *p->steps);
    p->strips = strips;
    p->inputs = 2;
    p->n_steps = 4;
    p->constants[0] = 0.5f;
    p->steps[0] =
        (cpu_map_step){strips->op[CPU_STRIP_MUL], 0, 2, {CPU_MAP_INPUT, CPU_MAP_INPUT + 1, 0}};
    p->steps[1] = (cpu_map_step){strips->op[CPU_STRIP_ADD], 1, 2, {0, CPU_MAP_CONSTANT, 0}};
    p->steps[2] = (cpu_map_step){strips->op[CPU_STRIP_RELU], 1, 1, {1, 0, 0}};
    p->steps[3] = (cpu_map_step){strips->op[CPU_STRIP_SUB], 0, 2, {1, CPU_MAP_INPUT, 0}};
    cpu_nd_begin(&p->nd, s->rank, s->dims);
    for (int k = 0; k < 3; k++)
        cpu_nd_operand(&p->nd, s->strides[k]);
    if (repeats)
        cpu_nd_repeat(&p->nd, CPU_MAP_SHORT);
    *tiles = cpu_nd_ready(&p->nd, tile);
    return p;
}

static void programs_on_any_strides(void **state)
{
    (void)state;
    rng r = rng_seed(6);
    int repeated = 0;
    for (int round = 0; round < 400; round++) {
        space s = random_space(&r);
        if (s.count > 200000)
            continue;
        float *a = test_floats(&r, s.count, -2, 2), *b = test_floats(&r, s.count, -2, 2);
        float *y = test_floats(&r, s.count + 1, 777, 777);
        FOR_EACH_ISA(isa)
        {
            uint32_t tiles;
            cpu_map_args *p =
                program_of(&s, isa, 1 + (int64_t)rng_below(&r, 2000), round % 2, &tiles);
            repeated += p->nd.period[0] || p->nd.period[1];
            p->in[0] = a, p->in[1] = b, p->out = y;
            for (uint32_t t = tiles; t-- > 0;)
                cpu_map(p, t, t + 1);
            for (int64_t i = 0; i < s.count; i++) {
                float x = a[offset_of(&s, 0, i)];
                float want = x * b[offset_of(&s, 1, i)] + 0.5f;
                test_close("program", i, y[i], (want < 0 ? 0 : want) - x, 1e-6);
            }
            assert_true(y[s.count] == 777);
            free(p);
        }
        free(a), free(b), free(y);
    }
    assert_true(repeated > 20);
}

static void small_floats_and_truths_are_converted(void **state)
{
    (void)state;
    enum { N = 1003 };
    uint16_t f16[N], bf16[N], y16[N], z16[N];
    uint8_t truth[N], less[N];
    for (int i = 0; i < N; i++) {
        f16[i] = half_encode(HALF_F16, i * 0.25 - 100, false);
        bf16[i] = f32_to_bf16((float)(i % 50) - 20.0f);
        truth[i] = i % 3 == 0;
    }
    FOR_EACH_ISA(isa)
    {
        const cpu_strips *strips = cpu_strips_for(isa);
        cpu_map_args *p = calloc(1, sizeof *p + sizeof *p->steps);
        int64_t n = N, one = 1;
        cpu_nd_begin(&p->nd, 1, &n);
        for (int k = 0; k < 4; k++)
            cpu_nd_operand(&p->nd, &one);
        (void)cpu_nd_ready(&p->nd, 5000);
        p->strips = strips;
        p->inputs = 3;
        p->in[0] = truth, p->in[1] = f16, p->in[2] = bf16;
        p->in_store[0] = CPU_STORE_BOOL;
        p->in_store[1] = CPU_STORE_F16;
        p->in_store[2] = CPU_STORE_BF16;
        p->n_steps = 1;
        p->steps[0] = (cpu_map_step){strips->op[CPU_STRIP_WHERE],
                                     0,
                                     3,
                                     {CPU_MAP_INPUT, CPU_MAP_INPUT + 1, CPU_MAP_INPUT + 2}};
        p->out = y16, p->out_store = CPU_STORE_F16;
        cpu_map(p, 0, 1);
        p->out = z16, p->out_store = CPU_STORE_BF16;
        cpu_map(p, 0, 1);
        p->steps[0] = (cpu_map_step){
            strips->op[CPU_STRIP_LESS], 0, 2, {CPU_MAP_INPUT + 1, CPU_MAP_INPUT + 2, 0}};
        p->out = less, p->out_store = CPU_STORE_BOOL;
        cpu_map(p, 0, 1);
        for (int i = 0; i < N; i++) {
            float a = half_to_f32(f16[i]), b = bf16_to_f32(bf16[i]), want = truth[i] ? a : b;
            assert_int_equal(y16[i], half_encode(HALF_F16, want, false));
            assert_int_equal(z16[i], f32_to_bf16(want));
            assert_int_equal(less[i], a < b);
        }
        free(p);
    }
}

static void one_operation_in_tiles(void **state)
{
    (void)state;
    rng r = rng_seed(7);
    float *a = test_floats(&r, SIDE, -2, 2), *y = test_floats(&r, SIDE, 0, 0), b = 3;
    FOR_EACH_ISA(isa)
    {
        cpu_map1_args p = {.in = {a, &b, NULL},
                           .out = y,
                           .fn = cpu_strips_for(isa)->op[CPU_STRIP_DIV],
                           .scalars = 2,
                           .count = SIDE,
                           .tile = 7001};
        for (uint32_t t = 4; t-- > 0;)
            cpu_map1(&p, t, t + 1);
        for (int i = 0; i < SIDE; i++)
            assert_true(y[i] == a[i] / 3);
    }
    free(a), free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_on_any_strides),
        cmocka_unit_test(small_floats_and_truths_are_converted),
        cmocka_unit_test(one_operation_in_tiles),
    };
    return cmocka_run_group_tests_name("element-wise", tests, NULL, NULL);
}
