/* SPDX-License-Identifier: Apache-2.0
 * Products with paired terms, and such by halves: against a double oracle over shapes, strides,
 * blocks of K and epilogues; the same bits for any cut; how far from exact beside the plain kernel;
 * and what cannot be scaled. */
#include "cpu/kernel_test.h"

#include "cpu/gemm.h"
#include "cpu/halved.h"
#include "cpu/paired.h"
#include "support/epilogue.h"

typedef struct problem {
    int64_t m, n, k, kc;
    bool trans_a, trans_b, residual;
    cpu_epilogue e;
    int64_t block_rows, block_panels;
    uint32_t parts;    /* of the rows of a block */
    uint32_t together; /* tiles in one call */
    bool columns_first, parts_last, streamed, far_sums;
    cpu_terms terms;
    bool unscaled;
    bool halved; /* seven products of halves; `parts` are of all rows then */
    bool *mark;  /* by column: is it summed in the plain way? NULL: all are left as they are */
} problem;

/* Operands with gaps between rows, and everything the kernels need. */
typedef struct setup {
    problem q;
    int64_t a_row, a_col, b_row, b_col, c_row;
    float *a, *b, *bias, *residual, *c, *sums;
} setup;

static float *zeros(int64_t count)
{
    float *x = aligned_alloc(64, ((size_t)(count + 1) * sizeof *x + 63) / 64 * 64);
    assert_non_null(x);
    memset(x, 0, ((size_t)(count + 1) * sizeof *x + 63) / 64 * 64);
    return x;
}

static setup begin(const problem *q, rng *r)
{
    setup s = {.q = *q, .c_row = q->n + 3};
    s.a_row = q->trans_a ? 1 : q->k + 5;
    s.a_col = q->trans_a ? q->m + 2 : 1;
    s.b_row = q->trans_b ? 1 : q->n + 1;
    s.b_col = q->trans_b ? q->k + 7 : 1;
    s.a = test_floats(r, (q->m + 2) * (q->k + 5), -1, 1);
    s.b = test_floats(r, (q->n + 1) * (q->k + 7), -1, 1);
    s.bias = test_floats(r, q->n + q->m, -2, 2);
    s.residual = test_floats(r, q->m * s.c_row, -2, 2);
    s.c = test_floats(r, q->m * s.c_row, 777, 777);
    s.sums = test_floats(r, q->m * s.c_row, 777, 777);
    return s;
}

static void end(setup *s)
{
    free(s->a), free(s->b), free(s->bias), free(s->residual), free(s->c), free(s->sums);
}

/* Rows copied in pieces and columns scaled afterwards: the same bytes as in one go. */
static void check_pieces(const cpu_paired_right_args *whole, cpu_isa isa, uint32_t panels,
                         int64_t floats, int64_t columns)
{
    float *packed = zeros(floats), *products = zeros(columns);
    cpu_paired_right_args p = *whole;
    p.packed = packed;
    p.products = products;
    p.back = products + (whole->back - whole->products);
    p.part = CPU_PAIRED_COPY;
    for (int64_t k = 0; k < p.k; k = p.k_end) {
        int64_t block = k / p.kc * p.kc + p.kc, end = k + 5 < block ? k + 5 : block;
        p.k_begin = k;
        p.k_end = end < p.k ? end : p.k;
        CPU_PICK(isa, cpu_paired_right_f32)(&p, 0, panels);
    }
    p.part = CPU_PAIRED_SCALE;
    p.k_begin = 0;
    for (uint32_t t = 0; t < panels; t++)
        CPU_PICK(isa, cpu_paired_right_f32)(&p, t, t + 1);
    assert_memory_equal(packed, whole->packed, (size_t)floats * sizeof(float));
    assert_memory_equal(products, whole->products, (size_t)columns * sizeof(float));
    free(packed), free(products);
}

/* The weights of a window packed are those of a matrix whose rows are its taps, run by run. */
static void windows_are_packed_by_taps(void **state)
{
    (void)state;
    enum { RUN = CPU_PAIRED_RUN };
    const int64_t taps[] = {2, 9, CPU_PAIRED_TAPS}, columns[] = {5, 32, 83};
    rng r = rng_seed(31);
    FOR_EACH_ISA(isa)
    for (int round = 0; round < 9; round++) {
        int64_t t = taps[round % 3], n = columns[round / 3], k = 3 * RUN * t, padded = n + 32;
        float *b = test_floats(&r, n * k, -1, 1), *rows = zeros(n * k);
        for (int64_t i = 0; i < k; i++)
            for (int64_t j = 0; j < n; j++)
                rows[i * n + j] =
                    b[j * k + i / (RUN * t) * RUN * t + i % RUN * t + i % (RUN * t) / RUN];
        float *packed[2], *sums[2];
        for (int way = 0; way < 2; way++) {
            packed[way] = zeros(padded * k), sums[way] = zeros(8 * padded);
            cpu_paired_right_args p = {.b = way ? b : rows,
                                       .packed = packed[way],
                                       .products = sums[way],
                                       .back = sums[way] + 4 * padded,
                                       .n = n,
                                       .k = k,
                                       .b_row = way ? 1 : n,
                                       .b_col = way ? k : 1,
                                       .kc = k / 2 / RUN * RUN, /* within the taps of a run */
                                       .k_end = k,
                                       .taps = way ? t : 0};
            CPU_PICK(isa, cpu_paired_right_f32)
            (&p, 0, (uint32_t)((n + cpu_paired_width(isa) - 1) / cpu_paired_width(isa)));
        }
        assert_memory_equal(packed[0], packed[1], (size_t)(padded * k) * sizeof *b);
        assert_memory_equal(sums[0], sums[1], (size_t)(8 * padded) * sizeof *b);
        for (int way = 0; way < 2; way++)
            free(packed[way]), free(sums[way]);
        free(b), free(rows);
    }
}

static void run_reversed(cpu_kernel kernel, const void *args, uint32_t all, uint32_t together)
{
    for (uint32_t end = all, begin; end > 0; end = begin) {
        begin = end > together ? end - together : 0;
        kernel(args, begin, end);
    }
}

/* Block by block of K, and left sides made as pieces first. */
static void run_halves(const cpu_paired_args *p, const problem *q, cpu_isa isa)
{
    int64_t groups = q->m / cpu_halved_group(isa), pair = 2 * cpu_paired_width(isa);
    cpu_halved_args h = {.p = *p, .left = zeros(groups * cpu_halved_left(isa, q->kc))};
    h.rows = (cpu_halved_rows *)zeros(groups * (int64_t)(sizeof *h.rows / sizeof(float)));
    h.p.block_cols = q->block_panels * pair;
    h.p.col_blocks = (uint32_t)((q->n + h.p.block_cols - 1) / h.p.block_cols);
    h.p.row_blocks = groups > p->parts ? p->parts : 1;
    h.block_groups = groups / h.p.row_blocks;
    for (h.k0 = 0; h.k0 < q->k; h.k0 += q->kc) {
        run_reversed(CPU_PICK(isa, cpu_halved_left_f32), &h, (uint32_t)groups, q->together);
        run_reversed(CPU_PICK(isa, cpu_halved_f32), &h, h.p.row_blocks * h.p.col_blocks,
                     q->together);
    }
    free(h.left), free(h.rows);
}

/* All kernels, tiles in reverse. */
static void run(setup *s, cpu_isa isa)
{
    const problem *q = &s->q;
    int64_t vector = cpu_paired_vector(isa), width = cpu_paired_width(isa);
    int64_t padded = (q->n + vector - 1) / vector * vector, blocks = (q->k + q->kc - 1) / q->kc;
    uint32_t panels = (uint32_t)((q->n + width - 1) / width);
    float *right = zeros(padded * (q->k + 16)), *column = zeros(2 * blocks * padded);
    for (int64_t k = 0; k < q->k; k += q->kc) {
        cpu_paired_right_args p = {.b = s->b,
                                   .packed = right,
                                   .products = column,
                                   .back = column + blocks * padded,
                                   .n = q->n,
                                   .k = q->k,
                                   .b_row = s->b_row,
                                   .b_col = s->b_col,
                                   .kc = q->kc,
                                   .k_begin = k,
                                   .k_end = k + q->kc < q->k ? k + q->kc : q->k,
                                   .unscaled = q->unscaled};
        CPU_PICK(isa, cpu_paired_right_f32)(&p, 0, panels);
        if (p.k_end == q->k)
            check_pieces(&p, isa, panels, padded * (q->k + 16), 2 * blocks * padded);
        if (p.k_end == q->k && q->mark)
            CPU_PICK(isa, cpu_paired_mark_f32)(&p, 0, cpu_paired_marks(q->n));
    }
    for (int64_t j = 0; q->mark && j < q->n; j++)
        q->mark[j] = isnan(column[j]);
    bool apart = q->residual && cpu_late_residual(&q->e);
    cpu_paired_args p = {.a = s->a,
                         .packed = right,
                         .products = column,
                         .back = column + blocks * padded,
                         .bias = s->bias,
                         .residual = q->residual ? s->residual : NULL,
                         .c = apart ? s->sums : s->c,
                         .y = s->c,
                         .m = q->m,
                         .n = q->n,
                         .k = q->k,
                         .kc = q->kc,
                         .a_row = s->a_row,
                         .a_col = s->a_col,
                         .a_run = s->a_col * CPU_PAIRED_RUN,
                         .c_row = s->c_row,
                         .c_vector = cpu_paired_vector(isa),
                         .residual_row = s->c_row,
                         .block_rows = q->block_rows,
                         .parts = q->parts ? q->parts : 1,
                         .columns_first = q->columns_first,
                         .parts_last = q->parts_last,
                         .streamed = q->streamed,
                         .far_sums = q->far_sums,
                         .terms = q->terms,
                         .unscaled = q->unscaled,
                         .block_cols = q->block_panels * width,
                         .epilogue = q->e};
    p.col_blocks = (uint32_t)((q->n + p.block_cols - 1) / p.block_cols);
    p.row_blocks = (uint32_t)((q->m + q->block_rows - 1) / q->block_rows);
    if (q->halved)
        run_halves(&p, q, isa);
    else
        run_reversed(CPU_PICK(isa, cpu_paired_f32), &p, p.row_blocks * p.col_blocks * p.parts,
                     q->together);
    free(right), free(column);
}

/* The product alone, and the lengths of its row and column. */
static double dot(const setup *s, int64_t i, int64_t j, double *lengths)
{
    double sum = 0, xx = 0, yy = 0;
    for (int64_t k = 0; k < s->q.k; k++) {
        double x = s->a[i * s->a_row + k * s->a_col], y = s->b[k * s->b_row + j * s->b_col];
        sum += x * y, xx += x * x, yy += y * y;
    }
    if (lengths)
        *lengths = sqrt(xx) * sqrt(yy);
    return sum;
}

static double expected(const setup *s, int64_t i, int64_t j)
{
    const cpu_epilogue *e = &s->q.e;
    double bias = e->bias != CPU_BIAS_NONE ? s->bias[e->bias == CPU_BIAS_ROW ? i : j] : 0;
    double residual = s->q.residual ? s->residual[i * s->c_row + j] : 0;
    return test_epilogue(e, dot(s, i, j, NULL), bias, residual);
}

static void check(const problem *q, cpu_isa isa, rng *r)
{
    setup s = begin(q, r);
    run(&s, isa);
    char what[160];
    snprintf(what, sizeof what, "%s %lldx%lldx%lld kc %lld ta%d tb%d residual%d act%d last%d%s",
             cpu_isa_name(isa), (long long)q->m, (long long)q->n, (long long)q->k, (long long)q->kc,
             q->trans_a, q->trans_b, q->residual, q->e.act, q->e.act_last,
             q->halved ? " by halves" : "");
    for (int64_t i = 0; i < q->m; i++) {
        for (int64_t j = 0; j < q->n; j++)
            test_close(what, i * q->n + j, s.c[i * s.c_row + j], expected(&s, i, j),
                       2e-6 * (2 + sqrt((double)q->k)));
        for (int64_t j = q->n; j < s.c_row; j++) /* the gap between rows is not written */
            assert_true(s.c[i * s.c_row + j] == 777);
    }
    end(&s);
}

/* Makes it one by halves: adjacent columns of A, blocks of K that have halves. */
static void halve(problem *q)
{
    const int64_t whole = CPU_HALVED_WHOLE;
    q->halved = true;
    q->unscaled = false;
    q->trans_a = false;
    q->k = (q->k + whole - 1) / whole * whole;
    q->kc = (q->kc + whole - 1) / whole * whole;
    q->kc = q->kc < CPU_HALVED_DEPTH ? q->kc : CPU_HALVED_DEPTH;
    int64_t most = CPU_PAIRED_LEFT / q->kc;
    q->block_rows = q->block_rows < most ? q->block_rows : most;
}

static problem random_problem(rng *r, int64_t m, int64_t n, int64_t k)
{
    problem q = {.m = m, .n = n, .k = k};
    q.trans_a = rng_below(r, 2);
    q.trans_b = rng_below(r, 2);
    q.residual = rng_below(r, 2);
    q.kc = 16 * (1 + (int64_t)rng_below(r, 30));
    q.e = (cpu_epilogue){.alpha = rng_below(r, 2) ? 1.0f : 0.125f,
                         .act = (cpu_act)rng_below(r, CPU_ACT_CLIP + 1),
                         .bias = (cpu_bias)rng_below(r, 3),
                         .act_last = rng_below(r, 2),
                         .act_min = -0.5f,
                         .act_max = 0.75f};
    int64_t most =
        CPU_PAIRED_LEFT / q.kc < CPU_PAIRED_ROWS ? CPU_PAIRED_LEFT / q.kc : CPU_PAIRED_ROWS;
    q.block_rows = 1 + (int64_t)rng_below(r, (uint64_t)most);
    q.block_panels = 1 + (int64_t)rng_below(r, 3);
    q.columns_first = rng_below(r, 3) == 0;
    q.parts = q.columns_first ? 1 : 1 + (uint32_t)rng_below(r, 3);
    q.parts_last = q.parts > 1 && rng_below(r, 2);
    q.streamed = rng_below(r, 2);
    q.far_sums = rng_below(r, 2);
    q.terms = (cpu_terms)rng_below(r, 3);
    q.unscaled = q.terms == CPU_TERMS_PLAIN && rng_below(r, 2);
    q.together = 1 + (uint32_t)rng_below(r, 5);
    if (rng_below(r, 3) == 0)
        halve(&q);
    return q;
}

static void every_small_edge_shape(void **state)
{
    (void)state;
    rng r = rng_seed(3);
    const int64_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 15, 22, 24, 49};
    const int64_t columns[] = {1, 3, 4, 5, 8, 9, 15, 16, 17, 24, 31, 32, 33, 47, 48, 49, 65, 100};
    const int64_t depths[] = {1, 2, 3, 4, 7, 15, 16, 17, 33, 50, 100};
    FOR_EACH_ISA(isa)
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++) {
            int64_t k = depths[rng_below(&r, sizeof depths / sizeof *depths)];
            problem q = random_problem(&r, rows[i], columns[j], k);
            check(&q, isa, &r);
        }
}

/* Sixteen rows, or sixteen that are left, are one register tile where sums are short. */
static void sixteen_rows(void **state)
{
    (void)state;
    rng r = rng_seed(10);
    const int64_t columns[] = {1, 16, 17, 32, 48, 64, 100, 128, 192, 256};
    const int64_t depths[] = {5, 16, 32, 48, 64, 70, 80, 256, 257, 300};
    FOR_EACH_ISA(isa)
    for (size_t j = 0; j < sizeof columns / sizeof *columns; j++)
        for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
            problem q = random_problem(&r, d % 2 ? 36 : 16, columns[j], depths[d]);
            q.block_rows = d % 2 ? 20 : 16;
            q.kc = rng_below(&r, 2) ? 304 : 64;
            q.halved = false;
            if (d % 3 == 0)
                q.e.alpha = 1, q.e.act = CPU_ACT_GELU_TANH, q.residual = false;
            check(&q, isa, &r);
        }
}

/* Register tiles of both kinds of pipes, of every size. (Sixteen rows of short sums are cut
 * otherwise.)
 */
static void wide_pipes_give_the_same_bits(void **state)
{
    (void)state;
    rng r = rng_seed(12);
    const int64_t columns[] = {16, 32, 48, 100, 128};
    FOR_EACH_ISA(isa)
    for (int64_t m = 1; m < 52; m++)
        for (size_t j = 0; j < sizeof columns / sizeof *columns; j++) {
            int64_t k = CPU_PAIRED_TALL_DEPTH + 1 + (int64_t)rng_below(&r, 80);
            problem q = random_problem(&r, m, columns[j], k);
            setup s = begin(&q, &r);
            size_t bytes = (size_t)(m * s.c_row) * sizeof *s.c;
            s.q.unscaled = false;
            s.q.terms = CPU_TERMS_PAIRED;
            run(&s, isa);
            float *narrow = s.c;
            s.c = test_floats(&r, m * s.c_row, 777, 777);
            s.q.terms = CPU_TERMS_WIDE;
            run(&s, isa);
            assert_memory_equal(s.c, narrow, bytes);
            free(narrow);
            end(&s);
        }
}

static void random_larger_shapes(void **state)
{
    (void)state;
    rng r = rng_seed(4);
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 30; i++) {
        problem q =
            random_problem(&r, 1 + (int64_t)rng_below(&r, 160), 1 + (int64_t)rng_below(&r, 180),
                           1 + (int64_t)rng_below(&r, 900));
        check(&q, isa, &r);
    }
}

/* Tiles are cut by shape, run by any thread: no cut of columns, or of the work, changes a bit. */
static void bits_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    rng r = rng_seed(5);
    FOR_EACH_ISA(isa)
    for (int i = 0; i < 18; i++) {
        problem q =
            random_problem(&r, 1 + (int64_t)rng_below(&r, 60), 1 + (int64_t)rng_below(&r, 200),
                           1 + (int64_t)rng_below(&r, 300));
        if (i % 3 == 0)
            q.m = q.block_rows = 16;
        setup s = begin(&q, &r);
        run(&s, isa);
        size_t bytes = (size_t)(q.m * s.c_row) * sizeof *s.c;
        float *kept = malloc(bytes);
        assert_non_null(kept);
        memcpy(kept, s.c, bytes);
        s.q.block_panels = 2, s.q.together = 1;
        if (!q.halved) /* whose rest of columns is cut with the rows */
            s.q.parts = 2, s.q.parts_last = i % 2;
        s.q.columns_first = false;
        run(&s, isa);
        assert_memory_equal(s.c, kept, bytes);
        free(kept);
        end(&s);
    }
}

/* Half of the rows in a call of their own or not, columns that do not go by halves among them. */
static void halves_do_not_depend_on_the_cut(void **state)
{
    (void)state;
    rng r = rng_seed(13);
    FOR_EACH_ISA(isa)
    for (int way = 0; way <= CPU_TERMS_WIDE; way++) {
        problem q = {.m = 257, .n = 288, .k = 320, .kc = 320, .e = {.alpha = 1}};
        int64_t group = cpu_halved_group(isa);
        q.halved = true;
        q.terms = (cpu_terms)way;
        q.block_panels = 1, q.parts = 2, q.together = 1;
        q.block_rows = CPU_PAIRED_LEFT_NEAR / q.kc / group * group;
        setup s = begin(&q, &r);
        for (int64_t k = 0; k < q.k; k++) /* too large to be paired */
            s.b[k * s.b_row + 70 * s.b_col] *= 0x1p60f;
        run(&s, isa);
        size_t bytes = (size_t)(q.m * s.c_row) * sizeof *s.c;
        float *kept = malloc(bytes);
        assert_non_null(kept);
        memcpy(kept, s.c, bytes);
        s.q.together = 2;
        run(&s, isa);
        assert_memory_equal(s.c, kept, bytes);
        free(kept);
        end(&s);
    }
}

/* --- exactness -------------------------------------------------------------------------------- */

static float normal(rng *r)
{
    double u = rng_range(r, 1e-12, 1), v = rng_range(r, 0, 1);
    return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

typedef enum kind {
    UNIFORM,  /* [-1, 1] */
    NORMAL,   /* activations normal, weights 0.02 of that */
    POSITIVE, /* after a Relu */
    RANGES,   /* rows and columns 2^-20 … 2^20 of each other */
    OUTLIERS, /* every 50th feature 30 times as large, as in transformers */
    WIDE,     /* elements 10^-4 … 10^4 of each other */
    KINDS
} kind;

static float sample(rng *r, kind what, int64_t line, int64_t k, bool weight)
{
    switch (what) {
    case UNIFORM:
        return (float)rng_range(r, -1, 1);
    case POSITIVE:
        return weight ? 0.05f * normal(r) : fmaxf(0, normal(r));
    case RANGES:
        return ldexpf(normal(r), (int)(line * 7 % 41) - 20);
    case OUTLIERS:
        return weight ? 0.02f * normal(r) : normal(r) * (k % 50 == 7 ? 30.0f : 1.0f);
    case WIDE:
        return normal(r) * (float)pow(10, rng_range(r, -4, 4));
    default:
        return normal(r) * (weight ? 0.02f : 1.0f);
    }
}

/* Root mean square and maximum of |error| / (‖x‖‖y‖), in units of 2^-24. */
static void distances(const setup *s, double *rms, double *most)
{
    double sum = 0;
    *most = 0;
    for (int64_t i = 0; i < s->q.m; i++)
        for (int64_t j = 0; j < s->q.n; j++) {
            double lengths, want = dot(s, i, j, &lengths);
            double d = fabs(s->c[i * s->c_row + j] - want) / lengths * 0x1p24;
            sum += d * d;
            *most = d > *most ? d : *most;
        }
    *rms = sqrt(sum / (double)(s->q.m * s->q.n));
}

static void run_plain(setup *s, cpu_isa isa)
{
    cpu_gemm_args p = {.a = s->a,
                       .b = s->b,
                       .c = s->c,
                       .y = s->c,
                       .m = s->q.m,
                       .n = s->q.n,
                       .k = s->q.k,
                       .a_row = s->a_row,
                       .a_col = s->a_col,
                       .b_row = s->b_row,
                       .b_col = s->b_col,
                       .c_row = s->c_row,
                       .row_tiles = 1,
                       .col_tiles = 1,
                       .tile_rows = s->q.m,
                       .tile_cols = (s->q.n + 31) / 32 * 32,
                       .epilogue = {.alpha = 1}};
    CPU_PICK(isa, cpu_gemm_f32)(&p, 0, 1);
}

/* Each way in which terms are summed, one by one as rows and columns are, but for halves, which are
 * scaled. */
enum { WAYS = CPU_TERMS_WIDE + 1 };
static void sums_as(problem *q, cpu_terms way)
{
    q->terms = way;
    q->unscaled = way == CPU_TERMS_PLAIN && !q->halved;
}

/* The bounds that docs/kernels.md states. */
static void as_exact_as_stated(void **state)
{
    (void)state;
    static const char *const names[KINDS] = {"uniform", "normal",   "positive",
                                             "ranges",  "outliers", "wide"};
    rng each[WAYS] = {rng_seed(60), rng_seed(6), rng_seed(61)};
    const int64_t depths[] = {64, 768, 3072, 64, 256, 64, 256, 768, 3072};
    const int64_t rows[] = {14, 14, 14, 16, 16, 24, 24, 24, 24};
    FOR_EACH_ISA(isa)
    for (int what = 0; what < WAYS * KINDS; what++)
        for (size_t d = 0; d < sizeof depths / sizeof *depths; d++) {
            problem q = {.m = rows[d], .n = 128, .k = depths[d], .kc = 1024, .e = {.alpha = 1}};
            q.block_rows = rows[d], q.block_panels = 8, q.together = 1;
            rng *r = &each[what / KINDS];
            sums_as(&q, (cpu_terms)(what / KINDS));
            if (rows[d] == 24)
                halve(&q);
            setup s = begin(&q, r);
            for (int64_t k = 0; k < q.k; k++) {
                for (int64_t i = 0; i < q.m; i++)
                    s.a[i * s.a_row + k * s.a_col] = sample(r, (kind)(what % KINDS), i, k, false);
                for (int64_t j = 0; j < q.n; j++)
                    s.b[k * s.b_row + j * s.b_col] = sample(r, (kind)(what % KINDS), j, k, true);
            }
            double rms, most, plain_rms, plain_most;
            run(&s, isa);
            distances(&s, &rms, &most);
            run_plain(&s, isa);
            distances(&s, &plain_rms, &plain_most);
            double bound = q.halved && q.terms == CPU_TERMS_PLAIN ? 12 : 8;
            double times = q.halved ? 4 : q.unscaled ? 1.1 : 2;
            if (rms > times * plain_rms || most > bound)
                fail_msg("%s way %d %s K %lld%s: %.3f, at most %.3f; plain %.3f, at most %.3f",
                         cpu_isa_name(isa), (int)q.terms, names[what % KINDS], (long long)q.k,
                         q.halved ? " by halves" : "", rms, most, plain_rms, plain_most);
            end(&s);
        }
}

/* A product whose plain result is known element by element. */
static setup special(rng *r, int64_t m, int64_t n, int64_t k, bool halved, cpu_terms way)
{
    problem q = {.m = m, .n = n, .k = k, .kc = 64, .e = {.alpha = 1}};
    q.block_rows = 21, q.block_panels = 1, q.together = 2;
    sums_as(&q, way);
    if (halved)
        halve(&q);
    return begin(&q, r);
}

/* What is infinite or not a number stays so, where it was, and touches nothing else. */
static void infinities_and_nans(void **state)
{
    (void)state;
    rng r = rng_seed(7);
    const float odd[] = {INFINITY, -INFINITY, NAN};
    FOR_EACH_ISA(isa)
    for (int all = 0; all < 18 * WAYS; all++) {
        int what = all % 18;
        int64_t rows = what < 6 ? 20 : what < 12 ? 16 : 55;
        setup s = special(&r, rows, 110, 150, what >= 12, (cpu_terms)(all / 18));
        if (what % 6 < 3)
            s.a[9 * s.a_row + 77] = odd[what % 3];
        else
            s.b[77 * s.b_row + 50] = odd[what % 3];
        run(&s, isa);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < 110; j++) {
                double want = dot(&s, i, j, NULL), got = s.c[i * s.c_row + j];
                if (isfinite(want))
                    test_close("finite", i * 110 + j, got, want, 1e-5);
                else
                    assert_true(isnan(want) ? isnan(got) : got == want);
            }
        end(&s);
    }
}

/* Columns alike give the same bits wherever they lie, an only element picks what it finds, and no
 * other column is kept from being paired; few columns, and more than are looked at at a time. */
static void columns_alike(void **state)
{
    (void)state;
    enum { M = 25, K = 150 };
    static const int64_t widths[] = {110, 9001};
    rng r = rng_seed(9);
    FOR_EACH_ISA(isa)
    for (int way = 0; way < 4 * WAYS; way++) {
        bool large = way % 2, halved = way / 2 % 2;
        int64_t n = widths[large], twins[] = {5, 17, 64, n / 2, n - 1}, pick = 40, zero = 41;
        bool *mark = calloc((size_t)n, sizeof *mark);
        assert_non_null(mark);
        problem q = {.m = M, .n = n, .k = K, .kc = 64, .e = {.alpha = 1}, .mark = mark};
        q.block_rows = 21, q.block_panels = 1, q.together = 2;
        q.terms = (cpu_terms)(way / 4);
        if (halved)
            halve(&q);
        setup s = begin(&q, &r);
        for (int64_t k = 0; k < q.k; k++) {
            for (size_t i = 1; i < sizeof twins / sizeof *twins; i++)
                s.b[k * s.b_row + twins[i]] = s.b[k * s.b_row + twins[0]];
            s.b[k * s.b_row + pick] = k == 77;
            s.b[k * s.b_row + zero] = 0;
        }
        run(&s, isa);
        for (int64_t j = 0; j < n; j++) {
            bool twin = j == pick;
            for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
                twin |= j == twins[i];
            assert_int_equal(mark[j], twin);
        }
        for (int64_t i = 0; i < M; i++) {
            const float *row = s.c + i * s.c_row;
            for (size_t k = 1; k < sizeof twins / sizeof *twins; k++)
                assert_memory_equal(&row[twins[k]], &row[twins[0]], sizeof *row);
            assert_true(row[pick] == s.a[i * s.a_row + 77] && row[zero] == 0);
            for (int64_t j = 0; j < n; j += 1 + 60 * large)
                test_close("beside", i * n + j, row[j], dot(&s, i, j, NULL), 1e-5);
        }
        end(&s);
        free(mark);
    }
}

/* Rows and columns of zeros give zeros; tiny and huge ones keep their digits. */
static void zeros_and_extremes(void **state)
{
    (void)state;
    rng r = rng_seed(8);
    static const float sizes[] = {0, 1e-38f, 1e-30f, 1e-12f, 1, 1e12f, 1e17f, 1e30f};
    FOR_EACH_ISA(isa)
    for (int64_t i = 0; i < 6 * WAYS; i++) {
        int64_t rows = 16 + i % 6 * 8;
        setup s = special(&r, rows, 144, 100, rows > 24, (cpu_terms)(i / 6));
        for (int64_t k = 0; k < s.q.k; k++) {
            for (int64_t row = 0; row < rows; row++)
                s.a[row * s.a_row + k] *= sizes[row % 8];
            for (int64_t j = 0; j < 144; j++)
                s.b[k * s.b_row + j] *= sizes[j / 18];
        }
        run(&s, isa);
        for (int64_t row = 0; row < rows; row++)
            for (int64_t j = 0; j < 144; j++) {
                double lengths, want = dot(&s, row, j, &lengths), got = s.c[row * s.c_row + j];
                if (lengths == 0)
                    assert_true(got == 0);
                else if (lengths > 1e38)
                    assert_true(!isfinite(got) || fabs(got - want) <= 2e-6 * lengths);
                else
                    assert_true(fabs(got - want) <= 2e-6 * lengths + 1e-43 * 100);
            }
        end(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_are_packed_by_taps),
        cmocka_unit_test(every_small_edge_shape),
        cmocka_unit_test(sixteen_rows),
        cmocka_unit_test(wide_pipes_give_the_same_bits),
        cmocka_unit_test(random_larger_shapes),
        cmocka_unit_test(bits_do_not_depend_on_the_cut),
        cmocka_unit_test(halves_do_not_depend_on_the_cut),
        cmocka_unit_test(as_exact_as_stated),
        cmocka_unit_test(infinities_and_nans),
        cmocka_unit_test(zeros_and_extremes),
        cmocka_unit_test(columns_alike),
    };
    return cmocka_run_group_tests_name("paired", tests, NULL, NULL);
}
