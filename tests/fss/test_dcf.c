/* SPDX-License-Identifier: Apache-2.0
 * Comparison functions with payloads and interval containment against their definitions. */
#include "fss/dcf.h"
#include "fss/world.h"

typedef struct keys {
    fss_dcf d;
    fss_block root[2][FSS_LANES];
    uint64_t alpha[FSS_LANES], beta[FSS_DCF_WORDS * FSS_LANES];
    uint8_t *key;
} keys;

static void keys_make(keys *k, rng *r)
{
    for (unsigned p = 0; p < 2; p++) {
        for (unsigned i = 0; i < k->d.lanes; i++)
            k->root[p][i] = (fss_block){rng_u64(r), rng_u64(r)};
        fss_dpf_roots(FSS_TREE_BGI, p, k->root[p], k->d.lanes);
    }
    size_t size = fss_dcf_bytes(&k->d);
    k->key = malloc(size + 1);
    k->key[size] = 0x77;
    fss_dcf_gen(&k->d, k->root[0], k->root[1], k->alpha, k->beta, k->key);
    assert_int_equal(k->key[size], 0x77);
}

static void check(const keys *k, const uint64_t *x)
{
    uint64_t out[2][FSS_DCF_WORDS * FSS_LANES];
    for (unsigned p = 0; p < 2; p++)
        fss_dcf_eval(&k->d, p, k->root[p], k->key, x, out[p]);
    for (unsigned w = 0; w < k->d.words; w++)
        for (unsigned i = 0; i < k->d.lanes; i++) {
            unsigned at = w * k->d.lanes + i;
            uint64_t want = x[i] < k->alpha[i] ? fss_low(k->beta[at], k->d.ring) : 0;
            assert_true(fss_low(out[0][at] + out[1][at], k->d.ring) == want);
        }
}

static void payload_below_alpha_only(void **state)
{
    (void)state;
    rng r = rng_seed(1);
    for (int id = FSS_PRG_AES; id <= FSS_PRG_CHACHA8; id++) {
        fss_prg prg;
        assert_int_equal(fss_prg_init(&prg, (fss_prg_id)id, NULL, NULL), TACIT_OK);
        for (unsigned bits = 1; bits <= 64; bits += bits < 12 ? 1 : 13) {
            keys k = {.d = {&prg, bits, 1 + (bits * 7) % 64, 1 + bits % FSS_DCF_WORDS,
                            1 + (bits * 5) % FSS_LANES}};
            for (unsigned i = 0; i < k.d.lanes; i++)
                k.alpha[i] = fss_low(i == 0 ? 0 : i == 1 ? ~(uint64_t)0 : rng_u64(&r), bits);
            for (unsigned i = 0; i < FSS_DCF_WORDS * FSS_LANES; i++)
                k.beta[i] = rng_u64(&r);
            keys_make(&k, &r);
            uint64_t x[FSS_LANES];
            size_t points = bits <= 8 ? (size_t)1 << bits : 60;
            for (size_t p = 0; p < points; p++) {
                for (unsigned i = 0; i < k.d.lanes; i++)
                    x[i] = bits <= 8 ? p : fss_low(p < 3 ? k.alpha[i] + p - 1 : rng_u64(&r), bits);
                check(&k, x);
            }
            free(k.key);
        }
    }
}

/* Every interval, every mask, every x of small rings. */
static void containment_exhaustively(void **state)
{
    (void)state;
    rng r = rng_seed(2);
    fss_prg prg;
    assert_int_equal(fss_prg_init(&prg, FSS_PRG_AES, NULL, NULL), TACIT_OK);
    for (unsigned bits = 1; bits <= 5; bits++) {
        uint64_t size = (uint64_t)1 << bits;
        keys k = {.d = {&prg, bits, 16, 1, (unsigned)size}};
        for (unsigned i = 0; i < size; i++) { /* lane i has mask i */
            k.alpha[i] = fss_mic_point(bits, i);
            k.beta[i] = 1;
        }
        keys_make(&k, &r);
        for (uint64_t p = 0; p < size; p++)
            for (uint64_t q = p; q < size; q++)
                for (uint64_t x = 0; x < size; x++) {
                    uint64_t masked[FSS_LANES], y[2][FSS_LANES];
                    for (unsigned i = 0; i < size; i++)
                        masked[i] = fss_low(x + i, bits);
                    for (unsigned b = 0; b < 2; b++)
                        fss_mic_eval(&k.d, b, k.root[b], k.key, masked, p, q, y[b]);
                    for (unsigned i = 0; i < size; i++) {
                        uint64_t sum = y[0][i] + y[1][i] + fss_mic_constant(bits, i, p, q);
                        assert_int_equal(fss_low(sum, 16), p <= x && x <= q);
                    }
                }
        free(k.key);
    }
}

static void containment_in_wide_rings(void **state)
{
    (void)state;
    rng r = rng_seed(3);
    fss_prg prg;
    assert_int_equal(fss_prg_init(&prg, FSS_PRG_AES, NULL, NULL), TACIT_OK);
    for (unsigned bits = 6; bits <= 64; bits += 2) {
        keys k = {.d = {&prg, bits, 40, 1, FSS_LANES}};
        uint64_t mask[FSS_LANES];
        for (unsigned i = 0; i < FSS_LANES; i++) {
            mask[i] = i == 0 ? 0 : fss_low(rng_u64(&r), bits);
            k.alpha[i] = fss_mic_point(bits, mask[i]);
            k.beta[i] = 1;
        }
        keys_make(&k, &r);
        for (int n = 0; n < 40; n++) {
            uint64_t a = fss_low(rng_u64(&r), bits), b = fss_low(rng_u64(&r), bits);
            uint64_t p = n == 0  ? 0
                         : a < b ? a
                                 : b,
                     q = n < 2   ? fss_low(~(uint64_t)0, bits)
                         : a < b ? b
                                 : a;
            uint64_t masked[FSS_LANES], x[FSS_LANES], y[2][FSS_LANES];
            for (unsigned i = 0; i < FSS_LANES; i++) {
                uint64_t edge[] = {p, q, p - 1, q + 1, 0};
                x[i] = fss_low(i < 10 ? edge[i % 5] : rng_u64(&r), bits);
                masked[i] = fss_low(x[i] + mask[i], bits);
            }
            for (unsigned e = 0; e < 2; e++)
                fss_mic_eval(&k.d, e, k.root[e], k.key, masked, p, q, y[e]);
            for (unsigned i = 0; i < FSS_LANES; i++) {
                uint64_t sum = y[0][i] + y[1][i] + fss_mic_constant(bits, mask[i], p, q);
                assert_int_equal(fss_low(sum, 40), p <= x[i] && x[i] <= q);
            }
        }
        free(k.key);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(payload_below_alpha_only),
        cmocka_unit_test(containment_exhaustively),
        cmocka_unit_test(containment_in_wide_rings),
    };
    return cmocka_run_group_tests_name("fss.dcf", tests, NULL, NULL);
}
