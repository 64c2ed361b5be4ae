/* SPDX-License-Identifier: Apache-2.0
 * Setting up what dealer and parties share, and the kernels behind the gates. */
#ifndef FSS_SUITE_H
#define FSS_SUITE_H

#include "fss/gate.h"

tacit_status fss_suite_init(fss_suite *suite, fss_prg_id prg, fss_tree tree,
                            const uint8_t tweak[16], tacit_error *err);
void fss_dealer_init(fss_dealer *dealer, const fss_suite *suite, const uint8_t seed0[16],
                     const uint8_t seed1[16]);
void fss_party_init(fss_party *party, const fss_suite *suite, unsigned index,
                    const uint8_t seed[16]);

/* For each bit string, `stride` words apart: the sum of table[k] over its set bits k < n; n is a
 * multiple of 64, or below it. */
void fss_masked_sum_portable(const uint64_t *bits, size_t stride, size_t strings,
                             const uint64_t *table, size_t n, uint64_t *out);
#if defined(__x86_64__)
void fss_masked_sum_avx512(const uint64_t *bits, size_t stride, size_t strings,
                           const uint64_t *table, size_t n, uint64_t *out);
#endif

#endif
