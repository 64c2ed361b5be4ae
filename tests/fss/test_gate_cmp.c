/* SPDX-License-Identifier: Apache-2.0
 * Comparing and choosing gates: all inputs at small widths, edges and random inputs to 64 bits. */
#include "fss/world.h"

static void grid(world *w, fss_gate g, unsigned all_masks)
{
    uint64_t *x, *r;
    g.count = world_grid(w, g.in_bits, all_masks, &x, &r);
    int forms = g.count <= 20000 ? 6 : 4; /* direct keys take their time */
    for (int form = 0; form < forms; form++) {
        g.heavy = form & 1;
        g.digits = form & 2;
        g.direct = form & 4;
        world_check1(w, &g, x, r);
    }
    free(x);
    free(r);
}

static void random_inputs(world *w, fss_gate g, size_t n)
{
    unsigned fit = g.eff_bits ? g.eff_bits : g.in_bits;
    g.count = n;
    uint64_t *x = world_values(w, n, g.in_bits, fit), *r = world_masks(w, n, g.in_bits);
    world_check1(w, &g, x, r);
    g.digits = true;
    world_check1(w, &g, x, r);
    g.direct = true;
    g.count = n < 65 ? n : 65;
    world_check1(w, &g, x, r);
    free(x);
    free(r);
}

static void drelu_and_relu_exhaustively(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 1);
    for (unsigned n = 1; n <= 12; n++) {
        grid(&w, (fss_gate){.kind = FSS_DRELU, .in_bits = (uint8_t)n}, 9);
        grid(&w, (fss_gate){.kind = FSS_RELU, .in_bits = (uint8_t)n}, 8);
    }
}

static void wide_rings(void **state)
{
    (void)state;
    for (int tree = FSS_TREE_HALF; tree <= FSS_TREE_BGI; tree++) {
        world w;
        world_init(&w, tree == FSS_TREE_HALF ? FSS_PRG_AES : FSS_PRG_CHACHA8, (fss_tree)tree, 2);
        for (unsigned n = 13; n <= 64; n++)
            for (unsigned eff = 0; eff <= n; eff += n / 2) {
                fss_gate g = {.kind = FSS_DRELU, .in_bits = (uint8_t)n, .eff_bits = (uint8_t)eff};
                random_inputs(&w, g, 333);
                g.kind = FSS_RELU;
                random_inputs(&w, g, 100 + n);
                g.heavy = 1;
                random_inputs(&w, g, 64);
            }
    }
}

static void drelu_with_a_public_offset(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 3);
    for (int64_t c = -40; c <= 40; c += 8) {
        fss_gate g = {.kind = FSS_DRELU, .in_bits = 20, .offset = c, .count = 2000};
        uint64_t *x = world_values(&w, g.count, 20, 10), *r = world_masks(&w, g.count, 20);
        trace t;
        world_run(&w, &g, (const uint64_t *const *)&x, (const uint64_t *const *)&r, &t);
        for (size_t i = 0; i < g.count; i++)
            assert_int_equal(t.result[0][i], fss_signed(x[i], 20) >= c);
        trace_free(&t);
        free(x);
        free(r);
    }
}

static void packed_thresholds(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 4);
    for (unsigned n = 3; n <= 12; n++) {
        int64_t half = 1 << (n - 1), t[] = {-half, -half + 1, -1, 0, 1, half - 1};
        if (n == 3)
            t[1] = -3, t[2] = -2, t[3] = -1, t[4] = 1;
        grid(&w,
             (fss_gate){.kind = FSS_LESS, .in_bits = (uint8_t)n, .thresholds = 6, .threshold = t},
             8);
    }
    for (unsigned n = 20; n <= 64; n += 11)
        for (unsigned eff = 0; eff <= n; eff += n - 3) {
            int64_t t[] = {-5000, -1, 0, 77, 8191};
            random_inputs(&w,
                          (fss_gate){.kind = FSS_LESS,
                                     .in_bits = (uint8_t)n,
                                     .eff_bits = (uint8_t)eff,
                                     .thresholds = 5,
                                     .threshold = t},
                          500);
        }
}

/* clip, abs, leaky relu, hard sigmoid and an indicator: all pieces of straight lines. */
static void pieces_make_clip_abs_and_friends(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 5);
    int64_t at_zero[] = {0}, clip_at[] = {-6, 7};
    uint64_t abs_slope[] = {~(uint64_t)0, 1}, zero2[] = {0, 0};
    uint64_t clip_slope[] = {0, 1, 0}, clip_base[] = {0 - (uint64_t)6, 0, 7};
    uint64_t two_slope[] = {0, 1, 0, 3, 0, 5}, two_base[] = {1, 2, 3, 4, 5, 6};
    uint64_t inside[] = {0, 1, 0};
    for (unsigned n = 4; n <= 12; n++) {
        fss_gate g = {.kind = FSS_PIECES,
                      .in_bits = (uint8_t)n,
                      .thresholds = 1,
                      .threshold = at_zero,
                      .slope = abs_slope,
                      .base = zero2};
        grid(&w, g, 7);
        g.thresholds = 2;
        g.threshold = clip_at;
        g.slope = clip_slope;
        g.base = clip_base;
        if (n > 4)
            grid(&w, g, 7);
        g.rows = 2;
        g.slope = two_slope;
        g.base = two_base;
        g.out_bits = 3;
        if (n > 4)
            grid(&w, g, 7);
        g.rows = 1;
        g.slope = NULL;
        g.base = inside;
        g.out_bits = 33;
        if (n > 4)
            grid(&w, g, 7);
    }
    for (unsigned n = 30; n <= 64; n += 17) {
        fss_gate g = {.kind = FSS_PIECES,
                      .in_bits = (uint8_t)n,
                      .thresholds = 2,
                      .threshold = clip_at,
                      .slope = clip_slope,
                      .base = clip_base,
                      .count = 700};
        uint64_t *x = world_values(&w, g.count, n, n > 40 ? 6 : n);
        uint64_t *r = world_masks(&w, g.count, n);
        trace t;
        world_run(&w, &g, (const uint64_t *const *)&x, (const uint64_t *const *)&r, &t);
        for (size_t i = 0; i < g.count; i++) {
            int64_t v = fss_signed(x[i], n), want = v < -6 ? -6 : v > 6 ? 7 : v;
            assert_int_equal(fss_signed(t.result[0][i], n), want);
        }
        trace_free(&t);
        free(x);
        free(r);
    }
}

static void select_bit_and_max(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 6);
    for (unsigned n = 1; n <= 64; n += n < 12 ? 1 : 13) {
        size_t count = 600;
        uint64_t *s = world_values(&w, count, 1, 1), *rs = world_masks(&w, count, 1);
        uint64_t *a = world_values(&w, count, n, n > 1 ? n - 1 : 1);
        uint64_t *ra = world_masks(&w, count, n), *rb = world_masks(&w, count, n);
        uint64_t *b = words_new(count), *ia = words_new(count), *ib = words_new(count);
        uint64_t *ria = world_masks(&w, count, 5), *rib = world_masks(&w, count, 5);
        for (size_t i = 0; i < count; i++) {
            b[i] = i % 5 ? a[(i * 7 + 3) % count] : a[i];
            ia[i] = i % 32;
            ib[i] = (i * 3 + 1) % 32;
        }
        trace t;
        fss_gate g = {.kind = FSS_SELECT, .in_bits = (uint8_t)n, .count = count};
        world_run(&w, &g, (const uint64_t *const[]){s, a}, (const uint64_t *const[]){rs, ra}, &t);
        trace_free(&t);
        g = (fss_gate){.kind = FSS_BIT, .out_bits = (uint8_t)n, .count = count, .heavy = 1};
        world_check1(&w, &g, s, rs);
        if (n > 1) {
            g = (fss_gate){.kind = FSS_MAX,
                           .in_bits = (uint8_t)n,
                           .index_bits = 5,
                           .count = count,
                           .digits = n % 2,
                           .direct = n % 3 == 0};
            world_run(&w, &g, (const uint64_t *const[]){a, b, ia, ib},
                      (const uint64_t *const[]){ra, rb, ria, rib}, &t);
            for (size_t i = 0; i < count; i++) {
                int64_t x = fss_signed(a[i], n), y = fss_signed(b[i], n);
                assert_int_equal(fss_signed(t.result[0][i], n), x > y ? x : y);
                assert_int_equal(t.result[1][i], x >= y ? ia[i] : ib[i]);
            }
            trace_free(&t);
        }
        uint64_t *all[] = {s, rs, a, ra, rb, b, ia, ib, ria, rib};
        for (int k = 0; k < 10; k++)
            free(all[k]);
    }
}

/* Every width digits can have, every digit border on both sides, several points of one key. */
static void digits_agree_with_the_definition(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 8);
    for (unsigned n = 8; n <= 52; n++) {
        size_t count = 700;
        fss_gate g = {.kind = FSS_DRELU, .in_bits = (uint8_t)n, .count = count, .digits = true};
        uint64_t *x = words_new(count), *r = world_masks(&w, count, n);
        for (size_t i = 0; i < count; i++) {
            uint64_t near = (uint64_t)1 << (i % n);
            x[i] = fss_low(i % 3 ? (i % 2 ? near : 0 - near) + i % 5 - 2 : rng_u64(&w.r), n);
        }
        world_check1(&w, &g, x, r);
        int64_t t[] = {-((int64_t)1 << (n - 2)), -1, 0, 1, (int64_t)1 << (n - 3)};
        g = (fss_gate){.kind = FSS_LESS,
                       .in_bits = (uint8_t)n,
                       .count = count,
                       .digits = true,
                       .thresholds = 5,
                       .threshold = t,
                       .heavy = 1};
        world_check1(&w, &g, x, r);
        free(x);
        free(r);
    }
    fss_cost c;
    fss_gate g = {.kind = FSS_DRELU, .in_bits = 37, .count = 8000, .digits = true, .heavy = 1};
    assert_int_equal(fss_gate_cost(&w.suite, &g, &c, NULL), TACIT_OK);
    assert_int_equal(c.key_bytes[0], 0);
    assert_true(c.key_bytes[1] <= 8000 * 60);
    assert_int_equal(c.rounds, 1);
    assert_true(c.wire_bits <= 8000 * 13);
}

static void bad_descriptions_are_refused(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 7);
    int64_t far[] = {100}, down[] = {3, 2};
    uint64_t base[3] = {0};
    fss_gate bad[] = {
        {.kind = FSS_KINDS, .in_bits = 8, .count = 1},
        {.kind = FSS_DRELU, .in_bits = 0, .count = 1},
        {.kind = FSS_DRELU, .in_bits = 65, .count = 1},
        {.kind = FSS_DRELU, .in_bits = 8, .eff_bits = 9, .count = 1},
        {.kind = FSS_DRELU, .in_bits = 8, .heavy = 2, .count = 1},
        {.kind = FSS_RELU, .in_bits = 8, .out_bits = 9, .count = 1},
        {.kind = FSS_LESS, .in_bits = 8, .count = 1},
        {.kind = FSS_LESS, .in_bits = 6, .thresholds = 1, .threshold = far, .count = 1},
        {.kind = FSS_LESS, .in_bits = 8, .thresholds = 2, .threshold = down, .count = 1},
        {.kind = FSS_PIECES, .in_bits = 8, .thresholds = 1, .threshold = far, .count = 1},
        {.kind = FSS_PIECES,
         .in_bits = 8,
         .out_bits = 9,
         .thresholds = 1,
         .threshold = far,
         .base = base,
         .slope = base,
         .count = 1},
        {.kind = FSS_BIT, .count = 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fss_info info;
        tacit_error err = {0};
        assert_int_equal(fss_gate_info(&w.suite, &bad[i], &info, &err), TACIT_ERR_ARGUMENT);
        assert_true(strlen(err.message) > 10);
    }
    /* one mask for many elements is refused even where the type let it through */
    fss_gate g = {.kind = FSS_DRELU, .in_bits = 8, .count = 64};
    fss_info info;
    uint64_t r[64] = {0}, out[64], *outs[1] = {out};
    assert_int_equal(fss_gate_info(&w.suite, &g, &info, NULL), TACIT_OK);
    uint8_t *key[2] = {calloc(1, info.key_bytes[0] + 1), calloc(1, info.key_bytes[1] + 1)};
    fss_mask one = {r, 1}, full = {r, 64};
    assert_int_equal(fss_gate_deal(&w.dealer, &g, &info, &one, outs, key, 0, 64, NULL),
                     TACIT_ERR_ARGUMENT);
    assert_int_equal(fss_gate_deal(&w.dealer, &g, &info, &full, outs, key, 5, 64, NULL),
                     TACIT_ERR_ARGUMENT);
    assert_int_equal(fss_gate_deal(&w.dealer, &g, &info, &full, outs, key, 0, 65, NULL),
                     TACIT_ERR_ARGUMENT);
    free(key[0]);
    free(key[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drelu_and_relu_exhaustively),
        cmocka_unit_test(wide_rings),
        cmocka_unit_test(drelu_with_a_public_offset),
        cmocka_unit_test(packed_thresholds),
        cmocka_unit_test(pieces_make_clip_abs_and_friends),
        cmocka_unit_test(select_bit_and_max),
        cmocka_unit_test(digits_agree_with_the_definition),
        cmocka_unit_test(bad_descriptions_are_refused),
    };
    return cmocka_run_group_tests_name("fss.gate_cmp", tests, NULL, NULL);
}
