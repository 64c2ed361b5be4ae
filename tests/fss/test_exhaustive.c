/* SPDX-License-Identifier: Apache-2.0
 * Every gate of one argument on every input under every mask, in every form of comparison; gates of
 * two arguments on all four words of tiny rings. Rings of up to 8 bits take seconds;
 * TACIT_EXHAUSTIVE=12 (or any width below) is for those who want all of it. */
#include "fss/world.h"

enum { CHUNK = 1 << 16 };

static unsigned widest(void)
{
    const char *asked = getenv("TACIT_EXHAUSTIVE");
    int n = asked ? atoi(asked) : 8;
    return n < 2 ? 2 : n > 12 ? 12 : (unsigned)n;
}

/* All pairs (x, r) of the ring, in chunks; `gap`: only |x| < 2^(n-2). Every pair is counted. */
static void all_pairs(world *w, fss_gate g, unsigned bits, bool gap)
{
    uint64_t size = (uint64_t)1 << bits, done = 0, *x = words_new(CHUNK), *r = words_new(CHUNK);
    int64_t quarter = bits >= 2 ? (int64_t)1 << (bits - 2) : 1;
    size_t n = 0;
    for (uint64_t mask = 0; mask < size; mask++)
        for (uint64_t i = 0; i < size; i++) {
            int64_t v = fss_signed(i, bits);
            bool last = mask + 1 == size && i + 1 == size;
            if (!gap || (v >= -quarter && v < quarter)) {
                x[n] = i;
                r[n++] = mask;
            }
            if (n == CHUNK || (last && n)) {
                g.count = n;
                world_check1(w, &g, x, r);
                done += n;
                n = 0;
            }
        }
    assert_true(done == (gap ? size * size / 2 : size * size));
    free(x);
    free(r);
}

/* Trees, digits, words of digits, direct; a form that a kind does not have is the one before. */
static void all_forms(world *w, fss_gate g, unsigned bits, bool gap)
{
    for (int form = 0; form < 4; form++) {
        g.digits = form == 1;
        g.wide = form == 2 && (g.kind == FSS_TR || g.kind == FSS_GAP);
        g.direct = form == 3;
        g.heavy = (uint8_t)(form & 1);
        if (form == 2 && !g.wide)
            continue;
        all_pairs(w, g, bits, gap);
    }
}

static void gates_of_one_argument(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 1);
    uint64_t table[3 << 12];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        table[i] = rng_u64(&w.r);
    uint64_t slope[] = {0, 1, 0}, base[] = {7, 0, 3};
    for (unsigned n = 2; n <= widest(); n++) {
        uint8_t bits = (uint8_t)n;
        int64_t t[] = {-1, 1};
        all_forms(&w, (fss_gate){.kind = FSS_DRELU, .in_bits = bits}, n, false);
        all_forms(&w, (fss_gate){.kind = FSS_RELU, .in_bits = bits}, n, false);
        all_forms(&w,
                  (fss_gate){.kind = FSS_LESS, .in_bits = bits, .thresholds = 2, .threshold = t}, n,
                  false);
        all_forms(&w,
                  (fss_gate){.kind = FSS_PIECES,
                             .in_bits = bits,
                             .thresholds = 2,
                             .threshold = t,
                             .slope = slope,
                             .base = base},
                  n, false);
        for (unsigned f = 1; f < n; f += 2) {
            all_forms(&w, (fss_gate){.kind = FSS_TR, .in_bits = bits, .shift = (uint8_t)f}, n,
                      false);
            all_forms(&w, (fss_gate){.kind = FSS_ARS, .in_bits = bits, .shift = (uint8_t)f}, n,
                      false);
        }
        for (unsigned f = 0; f + 2 <= n; f += 2)
            for (int dither = 0; dither < 2; dither++)
                all_forms(&w,
                          (fss_gate){.kind = FSS_GAP,
                                     .in_bits = bits,
                                     .out_bits = (uint8_t)(n + 3),
                                     .shift = (uint8_t)f,
                                     .dither = dither},
                          n, true);
        all_pairs(
            &w,
            (fss_gate){
                .kind = FSS_LUT, .index_bits = bits, .table = table, .rows = 3, .out_bits = 40},
            n, false);
        all_pairs(&w, (fss_gate){.kind = FSS_SQUARE, .in_bits = bits}, n, false);
        all_pairs(&w, (fss_gate){.kind = FSS_SHARE, .in_bits = bits}, n, false);
    }
    all_pairs(&w, (fss_gate){.kind = FSS_BIT, .out_bits = 9}, 1, false);
}

/* x, y and both masks: 2^(4 n) elements. */
static void gates_of_two_arguments(void **state)
{
    (void)state;
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, 2);
    uint64_t table[2 << 3];
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        table[i] = rng_below(&w.r, 1000);
    for (unsigned n = 1; n <= 3; n++) {
        uint64_t mask = ((uint64_t)1 << n) - 1;
        size_t count = (size_t)1 << (4 * n);
        uint64_t *v[4];
        for (int k = 0; k < 4; k++) {
            v[k] = words_new(count);
            for (size_t i = 0; i < count; i++)
                v[k][i] = i >> (k * n) & mask;
        }
        uint8_t bits = (uint8_t)n;
        fss_gate gates[] = {
            {.kind = FSS_MUL, .in_bits = bits},
            {.kind = FSS_MAX, .in_bits = bits},
            {.kind = FSS_MAX, .in_bits = bits, .direct = true},
            {.kind = FSS_LUT2,
             .index_bits = bits,
             .index2_bits = bits,
             .table = table,
             .table2 = table + 8,
             .out_bits = 33},
            {.kind = FSS_SPLINE, .in_bits = 16, .index_bits = bits, .degree = 1, .table = table},
        };
        for (size_t k = 0; k < sizeof gates / sizeof *gates; k++) {
            gates[k].count = count;
            trace t;
            world_run(&w, &gates[k], (const uint64_t *const[]){v[0], v[1]},
                      (const uint64_t *const[]){v[2], v[3]}, &t);
            trace_free(&t);
        }
        for (int k = 0; k < 4; k++)
            free(v[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gates_of_one_argument),
        cmocka_unit_test(gates_of_two_arguments),
    };
    return cmocka_run_group_tests_name("fss.exhaustive", tests, NULL, NULL);
}
