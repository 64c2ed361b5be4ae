/* SPDX-License-Identifier: Apache-2.0 */
#include "fss/suite.h"

#include "base/cpu.h"

void fss_masked_sum_portable(const uint64_t *bits, size_t stride, size_t strings,
                             const uint64_t *table, size_t n, uint64_t *out)
{
    for (size_t s = 0; s < strings; s++, bits += stride) {
        out[s] = 0;
        for (size_t i = 0; i < n; i++)
            out[s] += table[i] & fss_mask_of(bits[i / 64] >> (i % 64));
    }
}

tacit_status fss_suite_init(fss_suite *suite, fss_prg_id prg, fss_tree tree,
                            const uint8_t tweak[16], tacit_error *err)
{
    if (tree != FSS_TREE_HALF && tree != FSS_TREE_BGI)
        return error_set(err, TACIT_ERR_UNSUPPORTED, "unknown tree %d", (int)tree);
    TRY(fss_prg_init(&suite->prg, prg, tweak, err));
    suite->tree = tree;
    suite->masked_sum = fss_masked_sum_portable;
#if defined(__x86_64__)
    if (cpu_detect().isa >= CPU_AVX512)
        suite->masked_sum = fss_masked_sum_avx512;
#endif
    return TACIT_OK;
}

void fss_dealer_init(fss_dealer *dealer, const fss_suite *suite, const uint8_t seed0[16],
                     const uint8_t seed1[16])
{
    dealer->suite = suite;
    fss_prf_init(&dealer->seed[0], &suite->prg, seed0);
    fss_prf_init(&dealer->seed[1], &suite->prg, seed1);
}

void fss_party_init(fss_party *party, const fss_suite *suite, unsigned index,
                    const uint8_t seed[16])
{
    party->suite = suite;
    party->index = index;
    fss_prf_init(&party->seed, &suite->prg, seed);
}
