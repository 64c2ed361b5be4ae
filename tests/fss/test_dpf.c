/* SPDX-License-Identifier: Apache-2.0
 * Point functions against their definition: every point, every alpha for small domains; edges and
 * random points to 64 bits; both trees, both generators, specialised kernels and plain ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "fss/dpf.h"

typedef struct batch {
    fss_block root[2][FSS_LANES];
    uint64_t alpha[FSS_LANES], leaf0[FSS_LANES];
    uint8_t *words;
    fss_dpf key;
} batch;

static void batch_make(batch *b, const fss_prg *prg, fss_tree tree, unsigned bits, unsigned leaf,
                       unsigned lanes, rng *r)
{
    for (unsigned i = 0; i < lanes; i++)
        for (int p = 0; p < 2; p++)
            b->root[p][i] = (fss_block){rng_u64(r), rng_u64(r)};
    fss_dpf_roots(tree, 0, b->root[0], lanes);
    fss_dpf_roots(tree, 1, b->root[1], lanes);
    size_t size = fss_dpf_bytes(tree, bits, leaf, lanes);
    b->words = malloc(size + 1);
    b->words[size] = 0x5a;
    fss_dpf_gen(prg, tree, bits, leaf, lanes, b->root[0], b->root[1], b->alpha, b->words, b->leaf0);
    assert_int_equal(b->words[size], 0x5a);
    b->key = (fss_dpf){prg, tree, bits, leaf, lanes, b->words};
}

/* All lanes at points x: equality, and order where leaves are narrow, against the definition. */
static void check_points(const batch *b, const uint64_t *x)
{
    uint64_t e[2][FSS_LANES], l[2][FSS_LANES];
    int narrow = b->key.leaf == FSS_LEAF_BITS;
    for (unsigned p = 0; p < 2; p++) {
        fss_dpf_point(&b->key, p, b->root[p], x, e[p]);
        if (narrow)
            fss_dpf_less(&b->key, p, b->root[p], x, l[p]);
    }
    for (unsigned i = 0; i < b->key.lanes; i++) {
        assert_int_equal(e[0][i] ^ e[1][i], x[i] == b->alpha[i]);
        assert_true(e[0][i] <= 1);
        if (narrow) {
            assert_int_equal(l[0][i] ^ l[1][i], x[i] < b->alpha[i]);
            assert_true(l[0][i] <= 1);
        }
        if (x[i] == b->alpha[i])
            assert_int_equal(e[0][i], b->leaf0[i]);
    }
}

static void check_full(const batch *b)
{
    unsigned bits = b->key.bits, most = fss_dpf_full_lanes(bits);
    size_t words = (size_t)1 << (bits - 6);
    uint64_t *f[2] = {malloc(words * most * 8), malloc(words * most * 8)};
    for (unsigned first = 0; first < b->key.lanes; first += most) {
        unsigned n = b->key.lanes - first < most ? b->key.lanes - first : most;
        for (unsigned p = 0; p < 2; p++)
            fss_dpf_full(&b->key, p, b->root[p], first, n, f[p]);
        for (unsigned i = 0; i < n; i++)
            for (size_t w = 0; w < words; w++) {
                uint64_t alpha = b->alpha[first + i];
                uint64_t want = alpha / 64 == w ? (uint64_t)1 << (alpha % 64) : 0;
                assert_true((f[0][i * words + w] ^ f[1][i * words + w]) == want);
            }
    }
    free(f[0]);
    free(f[1]);
}

static void domain(const fss_prg *prg, fss_tree tree, unsigned bits, unsigned leaf, unsigned lanes,
                   rng *r)
{
    uint64_t top = fss_low(~(uint64_t)0, bits);
    batch b;
    for (unsigned i = 0; i < lanes; i++) {
        /* both ends, leaf-block borders, then anything */
        uint64_t edge[] = {0, top, 127, 128, 63, 64, top - 127, top - 128, 1, top - 1, 1023, 1024};
        b.alpha[i] = i < 12 ? edge[i] & top : rng_u64(r) & top;
    }
    batch_make(&b, prg, tree, bits, leaf, lanes, r);
    uint64_t x[FSS_LANES];
    int64_t near[] = {0, 1, -1, 127, -127, 128, -128, 64, -64};
    for (unsigned k = 0; k < 9; k++) {
        for (unsigned i = 0; i < lanes; i++)
            x[i] = (b.alpha[i] + (uint64_t)near[k]) & top;
        check_points(&b, x);
    }
    for (unsigned k = 0; k < 20; k++) {
        for (unsigned i = 0; i < lanes; i++)
            x[i] = k == 0 ? 0 : k == 1 ? top : rng_u64(r) & top;
        check_points(&b, x);
    }
    if (bits <= 14 || leaf == FSS_WIDE_LEAF_BITS)
        check_full(&b);
    free(b.words);
}

static void each_suite(void (*f)(const fss_prg *, fss_tree))
{
    for (int id = FSS_PRG_AES; id <= FSS_PRG_CHACHA8; id++)
        for (int tree = FSS_TREE_HALF; tree <= FSS_TREE_BGI; tree++) {
            fss_prg prg;
            assert_int_equal(fss_prg_init(&prg, (fss_prg_id)id, NULL, NULL), TACIT_OK);
            f(&prg, (fss_tree)tree);
        }
    fss_prg plain;
    setenv("TACIT_ISA", "portable", 1);
    assert_int_equal(fss_prg_init(&plain, FSS_PRG_AES, NULL, NULL), TACIT_OK);
    assert_string_equal(plain.backend, "portable");
    f(&plain, FSS_TREE_HALF);
    setenv("TACIT_ISA", "avx2", 1);
    assert_int_equal(fss_prg_init(&plain, FSS_PRG_AES, NULL, NULL), TACIT_OK);
    f(&plain, FSS_TREE_HALF);
    unsetenv("TACIT_ISA");
}

static void all_widths(const fss_prg *prg, fss_tree tree)
{
    rng r = rng_seed(11);
    unsigned stride = strcmp(prg->backend, "portable") ? 1 : 8; /* the slow one: fewer widths */
    for (unsigned bits = 8; bits <= 64; bits += stride) {
        domain(prg, tree, bits, FSS_LEAF_BITS, FSS_LANES, &r);
        domain(prg, tree, bits, FSS_LEAF_BITS, 1 + bits % 31, &r);
        if (bits > FSS_WIDE_LEAF_BITS && bits <= FSS_FULL_BITS) {
            domain(prg, tree, bits, FSS_WIDE_LEAF_BITS, FSS_LANES, &r);
            domain(prg, tree, bits, FSS_WIDE_LEAF_BITS, 1 + bits % 31, &r);
        }
    }
}
static void every_width_at_edges_and_random_points(void **state)
{
    (void)state;
    each_suite(all_widths);
}

/* All alphas against all points: 8 bits, and 11 bits with wide leaves (whole trees; single points
 * here and there). 12 bits: all points, 32 alphas. */
static void exhaustive(const fss_prg *prg, fss_tree tree, unsigned bits, unsigned leaf)
{
    rng r = rng_seed(5);
    unsigned stride = strcmp(prg->backend, "portable") ? FSS_LANES : 4 * FSS_LANES;
    if (bits > 8 && (tree == FSS_TREE_BGI || prg->id == FSS_PRG_CHACHA8))
        stride *= 8;
    for (unsigned first = 0; first < 1u << bits; first += stride) {
        batch b;
        for (unsigned i = 0; i < FSS_LANES; i++)
            b.alpha[i] = first + i;
        batch_make(&b, prg, tree, bits, leaf, FSS_LANES, &r);
        for (uint64_t v = 0; v<1u << bits; v += bits> 8 ? 41 : 1) {
            uint64_t x[FSS_LANES];
            for (unsigned i = 0; i < FSS_LANES; i++)
                x[i] = v;
            check_points(&b, x);
        }
        check_full(&b);
        free(b.words);
    }
}
static void small_domains(const fss_prg *prg, fss_tree tree)
{
    exhaustive(prg, tree, 8, FSS_LEAF_BITS);
    exhaustive(prg, tree, 11, FSS_WIDE_LEAF_BITS);
}
static void exhaustive_at_8_and_11_bits(void **state)
{
    (void)state;
    each_suite(small_domains);
}

static void exhaustive_points_at_12_bits(void **state)
{
    (void)state;
    fss_prg prg;
    rng r = rng_seed(6);
    assert_int_equal(fss_prg_init(&prg, FSS_PRG_AES, NULL, NULL), TACIT_OK);
    batch b;
    for (unsigned i = 0; i < FSS_LANES; i++)
        b.alpha[i] = i < 4 ? i * 1365 : rng_below(&r, 4096);
    batch_make(&b, &prg, FSS_TREE_HALF, 12, FSS_LEAF_BITS, FSS_LANES, &r);
    for (uint64_t v = 0; v < 4096; v++) {
        uint64_t x[FSS_LANES];
        for (unsigned i = 0; i < FSS_LANES; i++)
            x[i] = (v + i * 131) & 4095;
        check_points(&b, x);
    }
    free(b.words);
}

static void tables_follow_the_definition(void **state)
{
    (void)state;
    rng r = rng_seed(2);
    for (uint64_t alpha = 0; alpha < 128; alpha++) {
        fss_block a = {rng_u64(&r), rng_u64(&r)}, b = fss_block_xor(a, fss_table_point(alpha));
        for (uint64_t x = 0; x < 128; x++) {
            assert_int_equal(fss_table_bit(a, x) ^ fss_table_bit(b, x), x == alpha);
            assert_int_equal(fss_table_less(a, x) ^ fss_table_less(b, x), x < alpha);
        }
    }
}

static void key_sizes_are_the_published_ones(void **state)
{
    (void)state;
    assert_int_equal(fss_dpf_bytes(FSS_TREE_HALF, 8, FSS_LEAF_BITS, 1), 32);
    assert_int_equal(fss_dpf_bytes(FSS_TREE_HALF, 12, FSS_LEAF_BITS, 1), 96);
    assert_int_equal(fss_dpf_bytes(FSS_TREE_HALF, 16, FSS_LEAF_BITS, 1), 160);
    assert_int_equal(fss_dpf_bytes(FSS_TREE_HALF, 38, FSS_LEAF_BITS, 1), 512);
    assert_int_equal(fss_dpf_bytes(FSS_TREE_HALF, 38, FSS_LEAF_BITS, 1000), 512000);
    assert_int_equal(fss_dpf_bytes(FSS_TREE_BGI, 12, FSS_LEAF_BITS, 32), 32 * 96 + 5 * 4);
    assert_int_equal(fss_dpf_bytes(FSS_TREE_HALF, 13, FSS_WIDE_LEAF_BITS, 1), 176);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_width_at_edges_and_random_points),
        cmocka_unit_test(exhaustive_at_8_and_11_bits),
        cmocka_unit_test(exhaustive_points_at_12_bits),
        cmocka_unit_test(tables_follow_the_definition),
        cmocka_unit_test(key_sizes_are_the_published_ones),
    };
    return cmocka_run_group_tests_name("fss.dpf", tests, NULL, NULL);
}
