/* SPDX-License-Identifier: Apache-2.0
 * Eight table entries per instruction, chosen by a mask register: no secret-dependent address. Four
 * bit strings at a time share each load of the table. */
#if defined(__x86_64__)
#include <immintrin.h>

#include "fss/suite.h"

static uint64_t total(__m512i v)
{
    uint64_t lane[8], sum = 0;
    _mm512_storeu_si512(lane, v);
    for (int k = 0; k < 8; k++)
        sum += lane[k];
    return sum;
}

static inline __attribute__((always_inline)) void sums(const uint64_t *bits, size_t stride,
                                                       const uint64_t *table, size_t n,
                                                       uint64_t *out, int strings)
{
    __m512i sum[4][4];
    for (int s = 0; s < strings; s++)
        for (int k = 0; k < 4; k++)
            sum[s][k] = _mm512_setzero_si512();
    for (size_t i = 0; i < n; i += 64) {
        uint64_t word[4];
        for (int s = 0; s < strings; s++)
            word[s] = bits[(size_t)s * stride + i / 64];
        for (int k = 0; k < 8; k++) {
            __m512i entry = _mm512_loadu_si512(table + i + 8 * k);
            for (int s = 0; s < strings; s++)
                sum[s][k & 3] = _mm512_mask_add_epi64(sum[s][k & 3], (__mmask8)(word[s] >> (8 * k)),
                                                      sum[s][k & 3], entry);
        }
    }
    for (int s = 0; s < strings; s++)
        out[s] = total(_mm512_add_epi64(_mm512_add_epi64(sum[s][0], sum[s][1]),
                                        _mm512_add_epi64(sum[s][2], sum[s][3])));
}

void fss_masked_sum_avx512(const uint64_t *bits, size_t stride, size_t strings,
                           const uint64_t *table, size_t n, uint64_t *out)
{
    if (n < 64) {
        fss_masked_sum_portable(bits, stride, strings, table, n, out);
        return;
    }
    size_t s = 0;
    for (; s + 4 <= strings; s += 4)
        sums(bits + s * stride, stride, table, n, out + s, 4);
    for (; s < strings; s++)
        sums(bits + s * stride, stride, table, n, out + s, 1);
}
#endif
