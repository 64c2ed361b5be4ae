/* SPDX-License-Identifier: Apache-2.0
 * Generators against published vectors, and every backend against the portable one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/rng.h"
#include "fss/pack.h"
#include "fss/prg.h"
#include "fss/rand.h"

static void aes_matches_fips_197(void **state)
{
    (void)state;
    uint8_t key[16], plain[16];
    static const uint8_t cipher[16] = {0x69, 0xc4, 0xe0, 0xd8, 0x6a, 0x7b, 0x04, 0x30,
                                       0xd8, 0xcd, 0xb7, 0x80, 0x70, 0xb4, 0xc5, 0x5a};
    for (int i = 0; i < 16; i++) {
        key[i] = (uint8_t)i;
        plain[i] = (uint8_t)(i * 0x11);
    }
    fss_aes_key schedule;
    fss_block in, out;
    memcpy(&in, plain, 16);
    fss_aes_expand(&schedule, key);
    fss_aes_portable(&schedule, &in, &out, 1);
    assert_memory_equal(&out, cipher, 16);
}

static void chacha8_matches_its_vector(void **state)
{
    (void)state;
    uint32_t in[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, out[16];
    static const uint8_t expected[16] = {0x3e, 0x00, 0xef, 0x2f, 0x89, 0x5f, 0x40, 0xd6,
                                         0x7f, 0x5b, 0xb8, 0xe8, 0x1f, 0x09, 0xa5, 0xa1};
    fss_chacha8_block(out, in);
    assert_memory_equal(out, expected, 16);
}

static void backends_agree(void **state)
{
    (void)state;
    rng r = rng_seed(7);
    fss_prg prg;
    assert_int_equal(fss_prg_init(&prg, FSS_PRG_AES, NULL, NULL), TACIT_OK);
    fss_block in[100], want[100], got[100];
    for (int i = 0; i < 100; i++)
        in[i] = (fss_block){rng_u64(&r), rng_u64(&r)};
    for (size_t n = 0; n <= 100; n += n < 40 ? 1 : 20) {
        for (unsigned role = 0; role < FSS_ROLES; role++) {
            fss_hash_portable(&prg, role, in, want, n);
            memset(got, 0xee, sizeof got);
            prg.hash(&prg, role, in, got, n);
            assert_memory_equal(got, want, n * 16);
            for (size_t k = n; k < 100; k++)
                assert_true(got[k].lo == 0xeeeeeeeeeeeeeeeeu);
        }
        fss_aes_portable(&prg.role[1], in, want, n);
        prg.encrypt(&prg.role[1], in, got, n);
        assert_memory_equal(got, want, n * 16);
#if defined(__x86_64__)
        if (cpu_detect().aes) {
            fss_aes_aesni(&prg.role[1], in, got, n);
            assert_memory_equal(got, want, n * 16);
            fss_hash_portable(&prg, 2, in, want, n);
            fss_hash_aesni(&prg, 2, in, got, n);
            assert_memory_equal(got, want, n * 16);
        }
#endif
    }
}

static void hash_is_sigma_then_mmo(void **state)
{
    (void)state;
    fss_prg prg;
    assert_int_equal(fss_prg_init(&prg, FSS_PRG_AES, NULL, NULL), TACIT_OK);
    fss_block x = {3, 5}, s = {5, 5 ^ 3}, c, h;
    fss_aes_portable(&prg.role[0], &s, &c, 1);
    prg.hash(&prg, 0, &x, &h, 1);
    assert_true(h.lo == (c.lo ^ s.lo) && h.hi == (c.hi ^ s.hi));
}

static void tweak_and_role_change_everything(void **state)
{
    (void)state;
    uint8_t tweak[16] = {1};
    for (int id = FSS_PRG_AES; id <= FSS_PRG_CHACHA8; id++) {
        fss_prg a, b;
        assert_int_equal(fss_prg_init(&a, (fss_prg_id)id, NULL, NULL), TACIT_OK);
        assert_int_equal(fss_prg_init(&b, (fss_prg_id)id, tweak, NULL), TACIT_OK);
        fss_block x = {1, 2}, h[2 * FSS_ROLES];
        for (unsigned role = 0; role < FSS_ROLES; role++) {
            a.hash(&a, role, &x, &h[role], 1);
            b.hash(&b, role, &x, &h[FSS_ROLES + role], 1);
        }
        for (int i = 0; i < 2 * FSS_ROLES; i++)
            for (int k = 0; k < i; k++)
                assert_memory_not_equal(&h[i], &h[k], 16);
    }
    fss_prg bad;
    tacit_error err;
    assert_int_equal(fss_prg_init(&bad, (fss_prg_id)9, NULL, &err), TACIT_ERR_UNSUPPORTED);
}

static void prf_words_do_not_depend_on_the_range(void **state)
{
    (void)state;
    fss_prg prg;
    fss_prf prf;
    uint8_t seed[16] = {9};
    uint64_t all[300], part[300];
    assert_int_equal(fss_prg_init(&prg, FSS_PRG_AES, NULL, NULL), TACIT_OK);
    fss_prf_init(&prf, &prg, seed);
    fss_prf_words(&prf, 5, 3, 0, 51, all, 300);
    for (size_t first = 0; first < 300; first += 7) {
        fss_prf_words(&prf, 5, 3, first, 51, part, 300 - first);
        assert_memory_equal(part, all + first, (300 - first) * 8);
    }
    for (int i = 0; i < 300; i++)
        assert_true(all[i] < (uint64_t)1 << 51);
    uint64_t bit[300], ones = 0;
    fss_prf_words(&prf, 5, 3, 0, 1, bit, 300);
    for (size_t first = 0; first < 300; first += 7) {
        fss_prf_words(&prf, 5, 3, first, 1, part, 300 - first);
        assert_memory_equal(part, bit + first, (300 - first) * 8);
    }
    for (int i = 0; i < 300; i++)
        ones += bit[i];
    assert_true(ones > 100 && ones < 200);
    fss_prf_words(&prf, 5, 4, 0, 51, part, 300);
    assert_memory_not_equal(part, all, 16);
    fss_prf_words(&prf, 6, 3, 0, 51, part, 300);
    assert_memory_not_equal(part, all, 16);
}

static void pack_round_trips_at_every_width(void **state)
{
    (void)state;
    rng r = rng_seed(3);
    for (unsigned bits = 0; bits <= 64; bits++)
        for (size_t n = 0; n < 70; n += n < 20 ? 1 : 13) {
            uint64_t in[70], out[70], sum[70];
            uint8_t bytes[70 * 8 + 1];
            for (size_t i = 0; i < n; i++)
                in[i] = rng_u64(&r);
            memset(bytes, 0xcc, sizeof bytes);
            fss_pack(bytes, bits, in, n);
            assert_int_equal(bytes[fss_pack_bytes(bits, n)], 0xcc);
            assert_int_equal(fss_pack_bytes(bits, n), (bits * n + 7) / 8);
            fss_unpack(out, bits, bytes, n);
            for (size_t i = 0; i < n; i++) {
                assert_true(out[i] == fss_low(in[i], bits));
                for (unsigned k = 0; k < bits; k++) {
                    size_t bit = i * bits + k;
                    assert_int_equal(bytes[bit / 8] >> (bit % 8) & 1, in[i] >> k & 1);
                }
                sum[i] = i * 77;
            }
            if (bits == 0)
                continue;
            fss_unpack_add(sum, bits, bytes, n);
            for (size_t i = 0; i < n; i++)
                assert_true(sum[i] == fss_low(in[i] + i * 77, bits));
        }
}

static void rand_is_fresh_and_insecure_mode_says_so(void **state)
{
    (void)state;
    fss_prg prg;
    fss_rand a, b;
    uint8_t x[40], y[40];
    assert_int_equal(fss_prg_init(&prg, FSS_PRG_AES, NULL, NULL), TACIT_OK);
    assert_int_equal(fss_rand_init(&a, &prg, NULL), TACIT_OK);
    assert_int_equal(fss_rand_init(&b, &prg, NULL), TACIT_OK);
    assert_false(a.predictable);
    fss_rand_bytes(&a, x, sizeof x);
    fss_rand_bytes(&b, y, sizeof y);
    assert_memory_not_equal(x, y, sizeof x);
    fss_rand_init_insecure(&a, &prg, 4);
    fss_rand_init_insecure(&b, &prg, 4);
    assert_true(a.predictable);
    for (int i = 0; i < 70000; i++) /* across a change of key */
        assert_true(fss_rand_word(&a, 60) == fss_rand_word(&b, 60));
    fss_block first = {0}, again;
    fss_rand_bytes(&a, &again, 16);
    assert_memory_not_equal(&first, &again, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aes_matches_fips_197),
        cmocka_unit_test(chacha8_matches_its_vector),
        cmocka_unit_test(backends_agree),
        cmocka_unit_test(hash_is_sigma_then_mmo),
        cmocka_unit_test(tweak_and_role_change_everything),
        cmocka_unit_test(prf_words_do_not_depend_on_the_range),
        cmocka_unit_test(pack_round_trips_at_every_width),
        cmocka_unit_test(rand_is_fresh_and_insecure_mode_says_so),
    };
    return cmocka_run_group_tests_name("fss.prg", tests, NULL, NULL);
}
