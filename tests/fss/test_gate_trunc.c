/* SPDX-License-Identifier: Apache-2.0
 * Truncation and extension: all inputs (and all masks, to 8 bits) at small widths against C's own
 * shifts, edges and random inputs to 64 bits, both rounding modes. */
#include "fss/world.h"

/* Keep the elements with |x| < 2^(bits-2): what GAP promises to handle. */
static size_t keep_gap(uint64_t *x, uint64_t *r, size_t n, unsigned bits)
{
    size_t kept = 0;
    int64_t most = (int64_t)1 << (bits - 2);
    for (size_t i = 0; i < n; i++) {
        int64_t v = fss_signed(x[i], bits);
        if (v >= -most && v < most) {
            x[kept] = x[i];
            r[kept++] = r[i];
        }
    }
    return kept;
}

/* Result against the definition written with 128-bit integers, not against the simulator only. */
static void check_form(world *w, fss_gate g, const uint64_t *x, const uint64_t *r)
{
    trace t;
    world_run(w, &g, &x, &r, &t);
    for (size_t i = 0; i < g.count; i++) {
        __int128 v = g.kind == FSS_TR ? (__int128)x[i] : (__int128)fss_signed(x[i], g.in_bits);
        if (g.dither) {
            uint64_t quarter = (uint64_t)1 << (g.in_bits - 2), u = x[i] + r[i] + quarter;
            v += (__int128)(((uint64_t)1 << g.shift) - 1 - (u & (((uint64_t)1 << g.shift) - 1)));
        }
        uint64_t want = fss_low((uint64_t)(v >> g.shift), t.info.out[0].bits);
        assert_true(t.result[0][i] == want);
    }
    trace_free(&t);
}

static void check(world *w, fss_gate g, const uint64_t *x, const uint64_t *r)
{
    check_form(w, g, x, r);
    g.digits = true;
    check_form(w, g, x, r);
    g.wide = true;
    check_form(w, g, x, r);
    g.direct = true;
    if (g.count <= 20000) /* direct keys take their time */
        check_form(w, g, x, r);
}

static void exhaustive_small_rings(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 1);
    for (unsigned n = 2; n <= 12; n++) {
        uint64_t *x, *r;
        size_t all = world_grid(&w, n, 7, &x, &r);
        for (unsigned f = 0; f < n; f += n <= 7 ? 1 : 3) {
            fss_gate g = {.in_bits = (uint8_t)n,
                          .shift = (uint8_t)f,
                          .count = all,
                          .heavy = (uint8_t)(f & 1)};
            g.kind = FSS_TR;
            if (f)
                check(&w, g, x, r);
            g.kind = FSS_ARS;
            if (f)
                check(&w, g, x, r);
            g.out_bits = (uint8_t)(n + 5);
            check(&w, g, x, r);
        }
        size_t gap = keep_gap(x, r, all, n);
        for (unsigned f = 0; f + 2 <= n; f += n <= 7 ? 1 : 2)
            for (int dither = 0; dither < 2; dither++)
                for (unsigned out = n - f; out <= n + 4; out += 2) {
                    fss_gate g = {.kind = FSS_GAP,
                                  .in_bits = (uint8_t)n,
                                  .out_bits = (uint8_t)out,
                                  .shift = (uint8_t)f,
                                  .dither = dither,
                                  .count = gap,
                                  .heavy = (uint8_t)(out & 1)};
                    check(&w, g, x, r);
                }
        free(x);
        free(r);
    }
}

static void wide_rings(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 2);
    for (unsigned n = 13; n <= 64; n++)
        for (unsigned f = 0; f < n; f += 1 + (n + f) % 11) {
            size_t count = 150;
            uint64_t *x = world_values(&w, count, n, n), *r = world_masks(&w, count, n);
            fss_gate g = {.in_bits = (uint8_t)n,
                          .shift = (uint8_t)f,
                          .count = count,
                          .heavy = (uint8_t)(n & 1)};
            if (f) {
                g.kind = FSS_TR;
                check(&w, g, x, r);
                g.kind = FSS_ARS;
                check(&w, g, x, r);
                g.out_bits = 64;
                check(&w, g, x, r);
            } else if (n < 64) {
                g.kind = FSS_ARS;
                g.out_bits = (uint8_t)(n + 1);
                check(&w, g, x, r);
            }
            free(x);
            x = world_values(&w, count, n, n - 1);
            g.kind = FSS_GAP;
            g.out_bits = 0;
            for (int dither = 0; dither < 2 && f <= n - 2; dither++) {
                g.dither = dither;
                check(&w, g, x, r);
            }
            free(x);
            free(r);
        }
}

static void dithered_reduce_is_local_and_unbiased(void **state)
{
    (void)state;
    rng r = rng_seed(3);
    for (unsigned n = 2; n <= 64; n++)
        for (int k = 0; k < 2000; k++) {
            unsigned f = 1 + (unsigned)rng_below(&r, n - 1);
            uint64_t x = fss_low(rng_u64(&r), n), mask = fss_low(rng_u64(&r), n);
            uint64_t masked = fss_low(x + mask, n);
            uint64_t y = fss_low((masked >> f) - (mask >> f), n - f);
            assert_true(y == fss_dither_tr_sim(x, masked, n, f));
        }
    double sum = 0;
    const uint64_t x = 12345;
    for (int k = 0; k < 100000; k++)
        sum += (double)fss_dither_tr_sim(x, x + fss_low(rng_u64(&r), 24), 24, 8);
    assert_true(sum / 1e5 > 12345.0 / 256 - 0.01 && sum / 1e5 < 12345.0 / 256 + 0.01);
}

/* The figures the planner stands on: bytes per element of the cost table in the design notes. */
static void costs_are_as_designed(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 4);
    fss_cost c;
    fss_gate g = {.kind = FSS_GAP, .in_bits = 51, .shift = 12, .count = 8000, .heavy = 1};
    assert_int_equal(fss_gate_cost(&w.suite, &g, &c, NULL), TACIT_OK);
    assert_int_equal(c.key_bytes[0], 8000 * 96);
    assert_int_equal(c.key_bytes[1], 8000 * 96 + 8000 * (51 + 12) / 8);
    assert_int_equal(c.wire_bits, 8000);
    g.dither = true;
    assert_int_equal(fss_gate_cost(&w.suite, &g, &c, NULL), TACIT_OK);
    assert_int_equal(c.key_bytes[0], 0);
    assert_int_equal(c.key_bytes[1], 8000 * 12 / 8);
    assert_int_equal(c.rounds, 0);
    g.dither = false;
    g.digits = true;
    assert_int_equal(fss_gate_cost(&w.suite, &g, &c, NULL), TACIT_OK);
    assert_int_equal(c.key_bytes[0], 0);
    assert_true(c.key_bytes[1] <= 8000 * 16);
    assert_int_equal(c.rounds, 2);
    g = (fss_gate){.kind = FSS_TR, .in_bits = 51, .shift = 12, .count = 8000, .heavy = 1};
    assert_int_equal(fss_gate_cost(&w.suite, &g, &c, NULL), TACIT_OK);
    assert_int_equal(c.key_bytes[1], 8000 * 96 + 8000 * 39 / 8);
    g = (fss_gate){.kind = FSS_RELU, .in_bits = 39, .count = 8000};
    assert_int_equal(fss_gate_cost(&w.suite, &g, &c, NULL), TACIT_OK);
    assert_int_equal(c.key_bytes[1], 8000 * 512);
    assert_int_equal(c.key_bytes[0], 8000 * 512 + 8000 * 2 * 39 / 8);
}

static void bad_descriptions_are_refused(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 5);
    fss_gate bad[] = {
        {.kind = FSS_TR, .in_bits = 8, .shift = 0, .count = 1},
        {.kind = FSS_TR, .in_bits = 8, .shift = 8, .count = 1},
        {.kind = FSS_TR, .in_bits = 8, .shift = 3, .out_bits = 6, .count = 1},
        {.kind = FSS_ARS, .in_bits = 8, .shift = 3, .out_bits = 5, .count = 1},
        {.kind = FSS_ARS, .in_bits = 8, .shift = 8, .count = 1},
        {.kind = FSS_GAP, .in_bits = 8, .shift = 7, .count = 1},
        {.kind = FSS_GAP, .in_bits = 1, .shift = 0, .count = 1},
        {.kind = FSS_GAP, .in_bits = 8, .out_bits = 65, .count = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fss_info info;
        assert_int_equal(fss_gate_info(&w.suite, &bad[i], &info, NULL), TACIT_ERR_ARGUMENT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exhaustive_small_rings),
        cmocka_unit_test(wide_rings),
        cmocka_unit_test(dithered_reduce_is_local_and_unbiased),
        cmocka_unit_test(costs_are_as_designed),
        cmocka_unit_test(bad_descriptions_are_refused),
    };
    return cmocka_run_group_tests_name("fss.gate_trunc", tests, NULL, NULL);
}
