/* SPDX-License-Identifier: Apache-2.0
 * The GEMM kernels against a double oracle: random and edge shapes, strides, batches, epilogues. */
#include "cpu/kernel_test.h"

#include "cpu/gemm.h"
#include "support/epilogue.h"

static double expected(const cpu_gemm_args *p, int64_t batch, int64_t i, int64_t j)
{
    const float *a = p->a + batch * (p->batch_rank ? p->a_batch[0] : 0);
    const float *b = p->b + batch * (p->batch_rank ? p->b_batch[0] : 0);
    double sum = 0;
    for (int64_t k = 0; k < p->k; k++)
        sum += (double)a[i * p->a_row + k * p->a_col] * b[k * p->b_row + j * p->b_col];
    const cpu_epilogue *e = &p->epilogue;
    double bias = 0, residual = 0;
    if (e->bias != CPU_BIAS_NONE)
        bias = p->bias[e->bias == CPU_BIAS_ROW ? i : j];
    if (p->residual)
        residual = p->residual[batch * (p->batch_rank ? p->residual_batch[0] : 0) +
                               i * p->residual_row + j];
    return test_epilogue(e, sum, bias, residual);
}

typedef struct shape {
    int64_t m, n, k, batch;
} shape;

typedef struct problem {
    shape s;
    bool trans_a, trans_b, packed, copy_a, residual, in_place;
    cpu_epilogue e;
    int64_t tile_rows, tile_panels, kc;
} problem;

static void set_operands(cpu_gemm_args *p, const problem *q)
{
    const shape *s = &q->s;
    p->m = s->m, p->n = s->n, p->k = s->k;
    p->a_row = q->trans_a ? 1 : s->k + 3; /* rows padded: strides are honoured */
    p->a_col = q->trans_a ? s->m + 1 : 1;
    p->b_row = q->trans_b ? 1 : s->n + 2;
    p->b_col = q->trans_b ? s->k + 5 : 1;
    p->c_row = s->n + 1;
    p->residual_row = s->n + 4;
    p->batch_rank = 1;
    p->batch_dims[0] = s->batch;
    p->a_batch[0] = (s->m + 1) * (s->k + 3);
    p->b_batch[0] = q->packed ? 0 : (s->n + 2) * (s->k + 5);
    p->c_batch[0] = s->m * (s->n + 1);
    p->residual_batch[0] = s->m * (s->n + 4);
    p->epilogue = q->e;
    p->copy_a = q->copy_a;
    p->tile_rows = q->tile_rows;
    p->row_tiles = (uint32_t)((s->m + q->tile_rows - 1) / q->tile_rows);
    p->kc = q->packed && !q->copy_a ? q->kc : 0;
}

static float *pack(const cpu_gemm_args *p, cpu_isa isa)
{
    int64_t width = cpu_gemm_width(isa), panels = (p->n + width - 1) / width;
    float *packed = aligned_alloc(64, (size_t)((panels * width * p->k + 16) * 4 + 63) / 64 * 64);
    cpu_gemm_pack_args q = {p->b, packed, p->n, p->k, p->b_row, p->b_col, 0, p->k, p->kc};
    for (int64_t k = 0; k < p->k; k = q.k_end) { /* in pieces that are no blocks */
        q.k_begin = k;
        q.k_end = k + 37 < p->k ? k + 37 : p->k;
        CPU_PICK(isa, cpu_gemm_pack_f32)(&q, 0, (uint32_t)panels);
    }
    return packed;
}

static void check(const problem *q, cpu_isa isa, rng *r)
{
    cpu_gemm_args p = {0};
    set_operands(&p, q);
    const shape *s = &q->s;
    int64_t width = cpu_gemm_width(isa);
    p.tile_cols = q->tile_panels * width;
    p.col_tiles = (uint32_t)((s->n + p.tile_cols - 1) / p.tile_cols);
    float *a = test_floats(r, s->batch * p.a_batch[0] + 64, -1, 1);
    float *b = test_floats(r, s->batch * (s->n + 2) * (s->k + 5) + 64, -1, 1);
    float *bias = test_floats(r, s->n + s->m, -2, 2);
    float *residual = test_floats(r, s->batch * p.residual_batch[0], -2, 2);
    float *c = test_floats(r, s->batch * p.c_batch[0], 777, 777);
    float *sums = NULL; /* apart from the result where the kernel asks for it */
    if (cpu_late_residual(&q->e) && (q->residual || q->in_place))
        sums = test_floats(r, s->batch * p.c_batch[0], 777, 777);
    p.a = a, p.b = b, p.y = c, p.bias = bias, p.residual = q->residual ? residual : NULL;
    p.c = sums ? sums : c;
    if (q->in_place) { /* the residual lies where the result goes */
        p.residual_row = p.c_row;
        p.residual_batch[0] = p.c_batch[0];
        for (int64_t i = 0; i < s->batch * p.c_batch[0]; i++)
            c[i] = i % p.c_row == s->n ? 777 : residual[i];
        p.residual = c;
    }
    float *packed = q->packed ? pack(&p, isa) : NULL;
    p.packed = packed;
    uint32_t tiles = p.row_tiles * p.col_tiles * (uint32_t)s->batch;
    for (uint32_t t = tiles; t-- > 0;) /* any order */
        CPU_PICK(isa, cpu_gemm_f32)(&p, t, t + 1);
    if (q->packed && !q->in_place) { /* where B comes from changes no bit */
        size_t bytes = (size_t)(s->batch * p.c_batch[0]) * sizeof *c;
        float *kept = malloc(bytes);
        assert_non_null(kept);
        memcpy(kept, c, bytes);
        p.streamed = true;
        CPU_PICK(isa, cpu_gemm_f32)(&p, 0, tiles);
        assert_memory_equal(c, kept, bytes);
        free(kept);
    }
    if (q->in_place) /* the oracle needs what the kernel wrote over */
        p.residual = residual;
    char what[160];
    snprintf(what, sizeof what,
             "%s %lldx%lldx%lld batch %lld ta%d tb%d packed%d copy%d inplace%d act%d last%d",
             cpu_isa_name(isa), (long long)s->m, (long long)s->n, (long long)s->k,
             (long long)s->batch, q->trans_a, q->trans_b, q->packed, q->copy_a, q->in_place,
             q->e.act, q->e.act_last);
    for (int64_t t = 0; t < s->batch; t++)
        for (int64_t i = 0; i < s->m; i++) {
            for (int64_t j = 0; j < s->n; j++)
                test_close(what, i * s->n + j, c[t * p.c_batch[0] + i * p.c_row + j],
                           expected(&p, t, i, j), 2e-6 * (2 + sqrt((double)s->k)));
            /* The gap between rows is not written. */
            assert_true(c[t * p.c_batch[0] + i * p.c_row + s->n] == 777);
        }
    free(a), free(b), free(bias), free(residual), free(c), free(sums), free(packed);
}

static problem random_problem(rng *r, shape s)
{
    problem q = {.s = s,
                 .trans_a = rng_below(r, 2),
                 .trans_b = rng_below(r, 2),
                 .packed = rng_below(r, 2),
                 .copy_a = rng_below(r, 2),
                 .residual = rng_below(r, 2),
                 .in_place = rng_below(r, 4) == 0,
                 .tile_panels = 1 + (int64_t)rng_below(r, 3)};
    q.e.alpha = rng_below(r, 2) ? 1.0f : 0.125f;
    q.e.act = (cpu_act)rng_below(r, CPU_ACT_CLIP + 1);
    q.e.bias = (cpu_bias)rng_below(r, 3);
    q.e.act_last = rng_below(r, 2);
    q.e.act_min = -0.5f;
    q.e.act_max = 0.75f;
    q.kc = 16 * (int64_t)rng_below(r, 60);
    q.tile_rows = q.copy_a ? CPU_GEMM_ROWS_COPIED : rng_below(r, 2) ? CPU_GEMM_ROWS : 24;
    return q;
}

static void every_small_edge_shape(void **state)
{
    (void)state;
    rng r = rng_seed(3);
    const int64_t sizes[] = {1, 2, 3, 5, 7, 8, 12, 13, 16, 17, 31, 32, 33, 50};
    const int64_t depths[] = {0, 1, 2, 3, 4, 7, 13, 16, 33};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            int64_t k = depths[rng_below(&r, sizeof depths / sizeof *depths)];
            problem q = random_problem(&r, (shape){sizes[i], sizes[j], k, 1});
            check(&q, isa, &r);
        }
}

static void random_larger_shapes(void **state)
{
    (void)state;
    rng r = rng_seed(4);
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 24; i++) {
        shape s = {1 + (int64_t)rng_below(&r, 170), 1 + (int64_t)rng_below(&r, 120),
                   1 + (int64_t)rng_below(&r, 900), 1 + (int64_t)rng_below(&r, 3)};
        problem q = random_problem(&r, s);
        check(&q, isa, &r);
    }
}

/* Dense and packed, no activation, the shapes of models: K at and around the block size. */
static void block_boundaries_of_k(void **state)
{
    (void)state;
    rng r = rng_seed(5);
    const int64_t depths[] = {CPU_GEMM_KC - 1, CPU_GEMM_KC, CPU_GEMM_KC + 1, 2 * CPU_GEMM_KC,
                              2 * CPU_GEMM_KC + 7};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
        for (int packed = 0; packed < 2; packed++)
            for (int64_t m = 1; m <= 25; m += 6) {
                problem q = {.s = {m, 70, depths[i], 1},
                             .packed = packed,
                             .tile_rows = 24,
                             .tile_panels = 2,
                             .e = {.alpha = 1, .act = CPU_ACT_RELU, .bias = CPU_BIAS_COLUMN}};
                check(&q, isa, &r);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_small_edge_shape),
        cmocka_unit_test(random_larger_shapes),
        cmocka_unit_test(block_boundaries_of_k),
    };
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
