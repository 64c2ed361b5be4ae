/* SPDX-License-Identifier: Apache-2.0
 * What one party sees must not depend on the secret: its key, its shares and every opened word are
 * collected over many keys for two very different secrets and compared by chi-square, against the
 * uniform distribution and against each other. */
#include <math.h>

#include "fss/catalogue.h"
#include "fss/world.h"

enum { COUNT = 8192 };

typedef struct histogram {
    double n[16][256]; /* by position in a group of 16 bytes */
} histogram;

static void add_bytes(histogram *h, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        h->n[i % 16][bytes[i]]++;
}

/* Words of `bits` as whole bytes of their packed form, so that every bit takes part. */
static void add_words(histogram *h, const uint64_t *words, unsigned bits, size_t n)
{
    uint8_t *packed = malloc(fss_pack_bytes(bits, n) + 1);
    fss_pack(packed, bits, words, n);
    add_bytes(h, packed, n * bits / 8);
    free(packed);
}

/* Normalised distance from the uniform distribution: about N(0, 1) if it is. */
static double from_uniform(const histogram *h)
{
    double sum = 0, dof = 0;
    for (int p = 0; p < 16; p++) {
        double total = 0;
        for (int v = 0; v < 256; v++)
            total += h->n[p][v];
        if (total < 1280)
            continue;
        for (int v = 0; v < 256; v++)
            sum += (h->n[p][v] - total / 256) * (h->n[p][v] - total / 256) / (total / 256);
        dof += 255;
    }
    return dof > 0 ? (sum - dof) / sqrt(2 * dof) : 0;
}

/* The same for two samples of equal size. */
static double between(const histogram *a, const histogram *b)
{
    double sum = 0, dof = 0;
    for (int p = 0; p < 16; p++)
        for (int v = 0; v < 256; v++) {
            double both = a->n[p][v] + b->n[p][v], d = a->n[p][v] - b->n[p][v];
            if (both < 10)
                continue;
            sum += d * d / both;
            dof++;
        }
    return dof > 0 ? (sum - dof) / sqrt(2 * dof) : 0;
}

static void assert_alike(const char *what, const fss_gate *g, unsigned party, const histogram *a,
                         const histogram *b)
{
    double u = from_uniform(a), v = from_uniform(b), w = between(a, b);
    if (fabs(u) > 6 || fabs(v) > 6 || fabs(w) > 6)
        fail_msg("%s of party %u in %s (heavy %u): %.1f and %.1f from uniform, %.1f apart", what,
                 party, fss_kind_name(g->kind), g->heavy, u, v, w);
}

typedef struct view {
    histogram key[2], share[2], opened;
} view;

/* All masks equal to `mask` and all inputs to `x`: the most telling secret there could be. */
static void collect(fss_gate g, uint64_t mask, uint64_t x, uint64_t seed, view *out)
{
    world w;
    world_init(&w, FSS_PRG_AES, FSS_TREE_HALF, seed);
    g.count = COUNT;
    fss_info info;
    assert_int_equal(fss_gate_info(&w.suite, &g, &info, NULL), TACIT_OK);
    uint64_t *xs[4] = {0}, *rs[4] = {0};
    for (unsigned k = 0; k < info.inputs; k++) {
        xs[k] = words_new(COUNT);
        rs[k] = words_new(COUNT);
        for (size_t i = 0; i < COUNT; i++) {
            xs[k][i] = fss_low(x, info.in_bits[k] > 3 ? info.in_bits[k] - 3 : 1);
            rs[k][i] = fss_low(mask, info.in_bits[k]);
        }
    }
    trace t;
    world_run(&w, &g, (const uint64_t *const *)xs, (const uint64_t *const *)rs, &t);
    for (unsigned b = 0; b < 2; b++) {
        add_bytes(&out->key[b], t.key[b], info.key_bytes[b] / 16 * 16);
        add_words(&out->share[b], t.digit_share[b], 1, COUNT * info.digits.rows);
        for (unsigned v = 0; v < info.inner_vectors; v++)
            add_words(&out->share[b], t.inner_share[b][v], info.inner[v].bits,
                      COUNT * info.inner[v].rows);
        for (unsigned v = 0; v < info.out_vectors; v++)
            add_words(&out->share[b], t.out_share[b][v], info.out[v].bits,
                      COUNT * info.out[v].rows);
    }
    add_words(&out->opened, t.digits, 1, COUNT * info.digits.rows);
    for (unsigned v = 0; v < info.inner_vectors; v++)
        add_words(&out->opened, t.opened[v], info.inner[v].bits, COUNT * info.inner[v].rows);
    for (unsigned v = 0; v < info.out_vectors && g.kind != FSS_SHARE; v++) {
        for (size_t i = 0; i < COUNT * info.out[v].rows; i++)
            t.result[v][i] = fss_low(t.out_share[0][v][i] + t.out_share[1][v][i], info.out[v].bits);
        add_words(&out->opened, t.result[v], info.out[v].bits, COUNT * info.out[v].rows);
    }
    trace_free(&t);
    for (unsigned k = 0; k < 4; k++) {
        free(xs[k]);
        free(rs[k]);
    }
}

static void views_do_not_depend_on_the_secret(void **state)
{
    (void)state;
    catalogue_init();
    view *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    for (size_t i = 0; i < CATALOGUE; i++) {
        const fss_gate *g = &catalogue[i];
        memset(a, 0, sizeof *a);
        memset(b, 0, sizeof *b);
        collect(*g, 0, 0, 100 + i, a);
        collect(*g, 0xfedcba9876543210u, 0x0f1e2d3c4b5a6978u, 200 + i, b);
        for (unsigned p = 0; p < 2; p++) {
            assert_alike("key", g, p, &a->key[p], &b->key[p]);
            assert_alike("shares", g, p, &a->share[p], &b->share[p]);
        }
        assert_alike("openings", g, 0, &a->opened, &b->opened);
    }
    free(a);
    free(b);
}

/* The yardstick itself: an index written in the clear into one byte of sixteen must be seen. */
static void a_leaking_key_is_noticed(void **state)
{
    (void)state;
    rng r = rng_seed(1);
    uint8_t *key[2] = {malloc(COUNT * 16), malloc(COUNT * 16)};
    histogram *h = calloc(2, sizeof *h);
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < COUNT * 16; i++)
            key[s][i] = (uint8_t)rng_u64(&r);
        add_bytes(&h[s], key[s], COUNT * 16);
    }
    assert_true(fabs(between(&h[0], &h[1])) < 6 && fabs(from_uniform(&h[0])) < 6);
    memset(h, 0, 2 * sizeof *h);
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; i < COUNT; i++)
            key[s][16 * i + 3] &= s ? 0x7f : 0xff; /* one bit of the secret */
        add_bytes(&h[s], key[s], COUNT * 16);
    }
    assert_true(between(&h[0], &h[1]) > 6 && from_uniform(&h[1]) > 6);
    free(key[0]);
    free(key[1]);
    free(h);
}

/* What a party can compute from its own root and the shared words, step by step down the tree, is
 * uniform for any alpha: nothing but a random-looking node ever comes out. */
static void own_evaluation_does_not_show_alpha(void **state)
{
    (void)state;
    enum { BITS = 12, KEYS = 20000 };
    for (int which = 0; which < 4; which++)
        for (unsigned party = 0; party < 2; party++) {
            fss_tree tree = which & 1 ? FSS_TREE_BGI : FSS_TREE_HALF;
            unsigned leaf = which & 2 ? FSS_WIDE_LEAF_BITS : FSS_LEAF_BITS;
            world w;
            world_init(&w, FSS_PRG_AES, tree, 5);
            histogram *h = calloc(2, sizeof *h);
            double ones[2][4] = {{0}};
            for (int secret = 0; secret < 2; secret++)
                for (size_t n = 0; n < KEYS; n += FSS_LANES) {
                    fss_block root[2][FSS_LANES];
                    uint64_t alpha[FSS_LANES], less[FSS_LANES], full[64];
                    uint8_t words[FSS_LANES * 16 * 11];
                    for (int p = 0; p < 2; p++) {
                        for (int i = 0; i < FSS_LANES; i++)
                            root[p][i] = (fss_block){rng_u64(&w.r), rng_u64(&w.r)};
                        fss_dpf_roots(tree, (unsigned)p, root[p], FSS_LANES);
                    }
                    for (int i = 0; i < FSS_LANES; i++)
                        alpha[i] = secret ? 1234 : 4000;
                    fss_dpf_gen(&w.suite.prg, tree, BITS, leaf, FSS_LANES, root[0], root[1], alpha,
                                words, NULL);
                    fss_dpf key = {&w.suite.prg, tree, BITS, leaf, FSS_LANES, words};
                    uint64_t at[4] = {0, 1234, 4000, 4095};
                    for (int k = 0; k < 4 && leaf == FSS_LEAF_BITS; k++) {
                        uint64_t x[FSS_LANES];
                        for (int i = 0; i < FSS_LANES; i++)
                            x[i] = at[k];
                        fss_dpf_less(&key, party, root[party], x, less);
                        for (int i = 0; i < FSS_LANES; i++)
                            ones[secret][k] += (double)less[i];
                    }
                    fss_dpf_full(&key, party, root[party], 0, 1, full);
                    add_bytes(&h[secret], (uint8_t *)full, sizeof full);
                }
            assert_true(fabs(from_uniform(&h[0])) < 6 && fabs(from_uniform(&h[1])) < 6);
            assert_true(fabs(between(&h[0], &h[1])) < 6);
            /* the last leaf has nothing to its right, so less() there is 0 for both by definition
             */
            for (int k = 0; k < 3 && leaf == FSS_LEAF_BITS; k++)
                for (int secret = 0; secret < 2; secret++)
                    assert_true(fabs(ones[secret][k] - KEYS / 2.0) < 6 * sqrt(KEYS / 4.0));
            assert_true(ones[0][3] == 0 && ones[1][3] == 0);
            free(h);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_do_not_depend_on_the_secret),
        cmocka_unit_test(a_leaking_key_is_noticed),
        cmocka_unit_test(own_evaluation_does_not_show_alpha),
    };
    return cmocka_run_group_tests_name("fss.secrecy", tests, NULL, NULL);
}
