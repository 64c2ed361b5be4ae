/* SPDX-License-Identifier: Apache-2.0
 * Eight table entries per instruction, chosen by a mask register: no secret-dependent address. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "fss/suite.h"

uint64_t fss_masked_sum_avx512(const uint64_t *bits, const uint64_t *table, size_t n)
{
    if (n < 64)
        return fss_masked_sum_portable(bits, table, n);
    __m512i sum[8];
    for (int k = 0; k < 8; k++)
        sum[k] = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 64) {
        uint64_t word = bits[i / 64];
        for (int k = 0; k < 8; k++)
            sum[k] = _mm512_mask_add_epi64(sum[k], (__mmask8)(word >> (8 * k)), sum[k],
                                           _mm512_loadu_si512(table + i + 8 * k));
    }
    for (int k = 0; k < 4; k++)
        sum[k] = _mm512_add_epi64(sum[k], sum[k + 4]);
    sum[0] = _mm512_add_epi64(_mm512_add_epi64(sum[0], sum[1]), _mm512_add_epi64(sum[2], sum[3]));
    return (uint64_t)_mm512_reduce_add_epi64(sum[0]);
}
#endif
