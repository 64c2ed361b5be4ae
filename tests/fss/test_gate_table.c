/* SPDX-License-Identifier: Apache-2.0
 * Look-ups, splines and products: all indices and masks at small widths, random ones above. */
#include "fss/world.h"

static uint64_t *random_table(world *w, size_t n)
{
    uint64_t *t = words_new(n);
    for (size_t i = 0; i < n; i++)
        t[i] = rng_u64(&w->r);
    return t;
}

/* Words of the first and of all further rows of a table cut to these many bits, with a sign: such
 * tables are opened in narrow rings. 64 leaves a row as it is. */
static void narrow_table(uint64_t *table, size_t row, size_t n, unsigned first, unsigned rest)
{
    for (size_t i = 0; i < n; i++)
        table[i] = (uint64_t)fss_signed(table[i], i < row ? first : rest);
}

static void lut_exhaustively(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 1);
    for (unsigned b = 1; b <= 12; b++) {
        uint64_t *x, *r, *table = random_table(&w, (size_t)3 << b);
        fss_gate g = {.kind = FSS_LUT, .index_bits = (uint8_t)b, .table = table};
        g.count = world_grid(&w, b, 7, &x, &r);
        g.rows = b % 2 ? 1 : 3;
        g.out_bits = (uint8_t)(b == 9 ? 64 : 5 * b);
        g.heavy = b & 1;
        if (g.count > 20000)
            g.count = 20000;
        world_check1(&w, &g, x, r);
        free(x);
        free(r);
        free(table);
    }
}

static void large_tables_and_both_trees(void **state)
{
    (void)state;
    for (int tree = FSS_TREE_HALF; tree <= FSS_TREE_BGI; tree++) {
        world w;
        world_init(&w, FSS_PRG_AES, (fss_tree)tree, 2);
        for (unsigned b = 13; b <= 16; b++) {
            uint64_t *table = random_table(&w, (size_t)2 << b);
            fss_gate g = {.kind = FSS_LUT,
                          .index_bits = (uint8_t)b,
                          .table = table,
                          .rows = 2,
                          .out_bits = 50,
                          .count = 45};
            uint64_t *x = world_values(&w, g.count, b, b), *r = world_masks(&w, g.count, b);
            world_check1(&w, &g, x, r);
            free(x);
            free(r);
            free(table);
        }
    }
}

/* A secret token's embedding: many rows from one tree, one word of correction in all. */
static void embedding_of_a_secret_token(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 3);
    unsigned b = 10, width = 48;
    uint64_t *table = random_table(&w, (size_t)width << b);
    fss_gate g = {.kind = FSS_LUT,
                  .index_bits = (uint8_t)b,
                  .table = table,
                  .rows = (uint16_t)width,
                  .out_bits = 40,
                  .count = 33};
    uint64_t *x = world_values(&w, g.count, b, b), *r = world_masks(&w, g.count, b);
    trace t;
    world_run(&w, &g, (const uint64_t *const *)&x, (const uint64_t *const *)&r, &t);
    for (size_t i = 0; i < g.count; i++)
        for (unsigned k = 0; k < width; k++)
            assert_true(t.result[0][k * g.count + i] == fss_low(table[(k << b) + x[i]], 40));
    assert_int_equal(t.info.key_bytes[1], 33 * 64);
    assert_int_equal(t.info.key_bytes[0], 33 * 64 + 33 * 5);
    trace_free(&t);
    free(x);
    free(r);
    free(table);
}

static void spline_of_every_degree(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 4);
    for (unsigned d = 0; d <= 3; d++)
        for (unsigned b = 1; b <= 11; b += 2) {
            unsigned n = 64 - 7 * d;
            size_t count = 500;
            uint64_t *table = random_table(&w, (size_t)(d + 1) << b);
            fss_gate g = {.kind = FSS_SPLINE,
                          .in_bits = (uint8_t)n,
                          .index_bits = (uint8_t)b,
                          .degree = (uint8_t)d,
                          .table = table,
                          .count = count,
                          .heavy = (uint8_t)(d & 1)};
            if (b == 5)
                g.out_bits = (uint8_t)(n - 9);
            uint64_t *x = world_values(&w, count, n, n), *rx = world_masks(&w, count, n);
            uint64_t *i = world_values(&w, count, b, b), *ri = world_masks(&w, count, b);
            trace t;
            world_run(&w, &g, (const uint64_t *const[]){x, i}, (const uint64_t *const[]){rx, ri},
                      &t);
            assert_int_equal(t.info.wire_bits, count * (d + 1) * t.info.out[0].bits);
            trace_free(&t);
            uint64_t *all[] = {table, x, rx, i, ri};
            for (int k = 0; k < 5; k++)
                free(all[k]);
        }
}

/* Index and argument may share one mask: index = x^ >> shift is the dithered quotient. */
static void spline_indexed_by_its_own_argument(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 5);
    unsigned n = 40, b = 8, s = 8;
    size_t count = 2000;
    uint64_t *table = random_table(&w, (size_t)2 << b);
    fss_gate g = {.kind = FSS_SPLINE,
                  .in_bits = (uint8_t)n,
                  .index_bits = (uint8_t)b,
                  .degree = 1,
                  .table = table,
                  .count = count};
    uint64_t *x = world_values(&w, count, n, 15), *rx = world_masks(&w, count, n);
    uint64_t *i = words_new(count), *ri = words_new(count);
    for (size_t e = 0; e < count; e++) {
        uint64_t masked = fss_low(x[e] + rx[e], n);
        i[e] = fss_low(fss_dither_tr_sim(x[e], masked, n, s), b);
        ri[e] = fss_low(rx[e] >> s, b);
        assert_true(fss_low(i[e] + ri[e], b) == fss_low(masked >> s, b));
    }
    trace t;
    world_run(&w, &g, (const uint64_t *const[]){x, i}, (const uint64_t *const[]){rx, ri}, &t);
    for (size_t e = 0; e < count; e++)
        assert_true(t.result[0][e] ==
                    fss_low(table[i[e]] + table[((size_t)1 << b) + i[e]] * x[e], n));
    trace_free(&t);
    uint64_t *all[] = {table, x, rx, i, ri};
    for (int k = 0; k < 5; k++)
        free(all[k]);
}

static void check_curve(world *w, fss_gate g, const uint64_t *const *x, const uint64_t *const *r)
{
    trace t;
    world_run(w, &g, x, r, &t);
    for (size_t e = 0; e < g.count; e++) {
        uint64_t sum = 0, power = 1;
        for (unsigned k = 0; k <= g.degree; k++, power *= x[0][e])
            sum += g.table[((size_t)k << g.index_bits) + x[1][e]] * power;
        if (x[2][e])
            sum = g.base[0] + g.slope[0] * x[0][e];
        else if (!x[3][e])
            sum = g.base[1] + g.slope[1] * x[0][e];
        assert_true(t.result[0][e] == fss_low(sum, t.info.out[0].bits));
    }
    trace_free(&t);
}

/* Every argument, index, piece and every mask of each in rings of 2 bits; then wide ones. */
static void spline_between_lines(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 16);
    static const uint64_t lines[][2] = {{0, 0}, {0, 1}, {3, 0}, {2, 5}};
    for (unsigned n = 2; n <= 64; n += n < 4 ? 1 : 6) {
        unsigned b = n < 4 ? 2 : 1 + n / 6;
        size_t count = n == 2 ? 3u << 10 : 700, size = (size_t)1 << b;
        for (unsigned d = 0; d <= 3; d++) {
            uint64_t *table = random_table(&w, (d + 1) * size), *x[4], *r[4];
            unsigned bits[4] = {n, b, 1, 1};
            for (int k = 0; k < 4; k++) {
                x[k] = world_values(&w, count, bits[k], bits[k]);
                r[k] = world_masks(&w, count, bits[k]);
            }
            for (size_t e = 0; e < count; e++) {
                size_t piece = e % 3, rest = e / 3;
                x[2][e] = piece == 0;
                x[3][e] = piece != 2;
                if (n > 2)
                    continue;
                x[0][e] = rest & 3, x[1][e] = rest >> 2 & 3, r[0][e] = rest >> 4 & 3;
                r[1][e] = rest >> 6 & 3, r[2][e] = rest >> 8 & 1, r[3][e] = rest >> 9 & 1;
            }
            fss_gate g = {.kind = FSS_CURVE,
                          .in_bits = (uint8_t)n,
                          .out_bits = (uint8_t)(n - n / 7),
                          .index_bits = (uint8_t)b,
                          .degree = (uint8_t)d,
                          .heavy = (uint8_t)(d & 1),
                          .table = table,
                          .slope = lines[d],
                          .base = lines[(d + n) % 4],
                          .count = count};
            check_curve(&w, g, (const uint64_t *const *)x, (const uint64_t *const *)r);
            narrow_table(table, size, (d + 1) * size, 1 + n / 3, 64);
            check_curve(&w, g, (const uint64_t *const *)x, (const uint64_t *const *)r);
            narrow_table(table, size, (d + 1) * size, 1 + n / 4, 1 + n / 8);
            check_curve(&w, g, (const uint64_t *const *)x, (const uint64_t *const *)r);
            g.kind = FSS_SPLINE;
            trace t;
            world_run(&w, &g, (const uint64_t *const *)x, (const uint64_t *const *)r, &t);
            assert_true(d != 1 || n < 20 || t.info.wire_bits <= g.count * (8u + n));
            trace_free(&t);
            for (int k = 0; k < 4; k++) {
                free(x[k]);
                free(r[k]);
            }
            free(table);
        }
    }
}

static void product_of_two_tables(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_CHACHA8, FSS_TREE_HALF, 6);
    for (unsigned b = 1; b <= 10; b += 3) {
        size_t count = 900;
        unsigned b2 = 11 - b;
        uint64_t *t0 = random_table(&w, (size_t)1 << b), *t1 = random_table(&w, (size_t)1 << b2);
        fss_gate g = {.kind = FSS_LUT2,
                      .index_bits = (uint8_t)b,
                      .index2_bits = (uint8_t)b2,
                      .table = t0,
                      .table2 = t1,
                      .out_bits = (uint8_t)(34 + 3 * b),
                      .count = count};
        uint64_t *x = world_values(&w, count, b, b), *rx = world_masks(&w, count, b);
        uint64_t *y = world_values(&w, count, b2, b2), *ry = world_masks(&w, count, b2);
        static const unsigned width[][2] = {{64, 64}, {12, 64}, {11, 9}, {9, 40}, {3, 2}};
        for (size_t k = 0; k < 5; k++) {
            trace t;
            narrow_table(t0, (size_t)1 << b, (size_t)1 << b, width[k][0], 64);
            narrow_table(t1, (size_t)1 << b2, (size_t)1 << b2, width[k][1], 64);
            world_run(&w, &g, (const uint64_t *const[]){x, y}, (const uint64_t *const[]){rx, ry},
                      &t);
            for (size_t e = 0; e < count; e++)
                assert_true(t.result[0][e] == fss_low(t0[x[e]] * t1[y[e]], g.out_bits));
            trace_free(&t);
        }
        uint64_t *all[] = {t0, t1, x, rx, y, ry};
        for (int k = 0; k < 6; k++)
            free(all[k]);
    }
}

static void products_ship_nothing(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 7);
    for (unsigned n = 1; n <= 64; n++) {
        size_t count = n <= 4 ? (size_t)1 << (4 * n) : 300;
        uint64_t *x = world_values(&w, count, n, n), *rx = world_masks(&w, count, n);
        uint64_t *y = world_masks(&w, count, n), *ry = world_masks(&w, count, n);
        for (size_t e = 0; e < count && n <= 4; e++) { /* every operand and every mask */
            x[e] = fss_low(e, n);
            y[e] = fss_low(e >> n, n);
            rx[e] = fss_low(e >> 2 * n, n);
            ry[e] = fss_low(e >> 3 * n, n);
        }
        fss_gate g = {
            .kind = FSS_MUL, .in_bits = (uint8_t)n, .count = count, .heavy = (uint8_t)(n & 1)};
        trace t;
        world_run(&w, &g, (const uint64_t *const[]){x, y}, (const uint64_t *const[]){rx, ry}, &t);
        assert_int_equal(t.info.key_bytes[0] + t.info.key_bytes[1], 0);
        for (size_t e = 0; e < count; e++)
            assert_true(t.result[0][e] == fss_low(x[e] * y[e], n));
        trace_free(&t);
        g.kind = FSS_SQUARE;
        g.out_bits = (uint8_t)(n - n / 3);
        world_check1(&w, &g, x, rx);
        uint64_t *all[] = {x, rx, y, ry};
        for (int k = 0; k < 4; k++)
            free(all[k]);
    }
}

static void bad_descriptions_are_refused(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 8);
    uint64_t table[4] = {0};
    fss_gate bad[] = {
        {.kind = FSS_LUT, .index_bits = 0, .out_bits = 8, .table = table, .count = 1},
        {.kind = FSS_LUT, .index_bits = 17, .out_bits = 8, .table = table, .count = 1},
        {.kind = FSS_LUT, .index_bits = 2, .out_bits = 8, .count = 1},
        {.kind = FSS_LUT, .index_bits = 2, .out_bits = 0, .table = table, .count = 1},
        {.kind = FSS_LUT, .index_bits = 2, .out_bits = 8, .table = table, .rows = 5000, .count = 1},
        {.kind = FSS_SPLINE,
         .index_bits = 2,
         .in_bits = 8,
         .table = table,
         .degree = 4,
         .count = 1},
        {.kind = FSS_SPLINE,
         .index_bits = 2,
         .in_bits = 8,
         .out_bits = 9,
         .table = table,
         .count = 1},
        {.kind = FSS_LUT2, .index_bits = 2, .out_bits = 8, .table = table, .count = 1},
        {.kind = FSS_CURVE, .index_bits = 2, .in_bits = 8, .table = table, .count = 1},
        {.kind = FSS_MUL, .in_bits = 8, .out_bits = 9, .count = 1},
        {.kind = FSS_SQUARE, .in_bits = 0, .count = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fss_info info;
        assert_int_equal(fss_gate_info(&w.suite, &bad[i], &info, NULL), TACIT_ERR_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lut_exhaustively),
        cmocka_unit_test(large_tables_and_both_trees),
        cmocka_unit_test(embedding_of_a_secret_token),
        cmocka_unit_test(spline_of_every_degree),
        cmocka_unit_test(spline_indexed_by_its_own_argument),
        cmocka_unit_test(spline_between_lines),
        cmocka_unit_test(product_of_two_tables),
        cmocka_unit_test(products_ship_nothing),
        cmocka_unit_test(bad_descriptions_are_refused),
    };
    return cmocka_run_group_tests_name("fss.gate_table", tests, NULL, NULL);
}
