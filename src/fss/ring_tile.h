/* SPDX-License-Identifier: Apache-2.0
 * The loop nest of the AVX-512 ring products, included once per multiply instruction; the including
 * file defines RING_NAME and RING_MADD(acc, a, b). A panel of B (RING_KC x 24) is copied next to
 * itself and stays in the first cache while eight rows of A at a time pass over it. */
#include <immintrin.h>

#include "fss/ring.h"

enum { RING_MR = 8, RING_NV = 3, RING_NR = 8 * RING_NV, RING_KC = 128 };

#define RING_INLINE static inline __attribute__((always_inline))

RING_INLINE void ring_store(const fss_gemm_args *g, uint64_t *c, __mmask8 mask, __m512i sum,
                            int first)
{
    __m512i old = _mm512_setzero_si512();
    if (!(first && g->mode == FSS_GEMM_SET))
        old = _mm512_maskz_loadu_epi64(mask, c);
    sum = g->mode == FSS_GEMM_SUB ? _mm512_sub_epi64(old, sum) : _mm512_add_epi64(old, sum);
    _mm512_mask_storeu_epi64(c, mask, sum);
}

/* `rows` rows of C by up to 24 columns from `j`; `rows` is a constant in every instance. */
RING_INLINE void ring_micro(const fss_gemm_args *g, size_t i, size_t j, size_t k0, size_t depth,
                            const uint64_t *panel, int rows)
{
    __m512i acc[RING_MR][RING_NV];
    const uint64_t *a = g->a + i * g->lda + k0;
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < RING_NV; v++)
            acc[r][v] = _mm512_setzero_si512();
    for (size_t k = 0; k < depth; k++) {
        __m512i b[RING_NV];
        for (int v = 0; v < RING_NV; v++)
            b[v] = _mm512_load_si512(panel + k * RING_NR + 8 * v);
        for (int r = 0; r < rows; r++) {
            __m512i x = _mm512_set1_epi64((long long)a[r * g->lda + k]);
            for (int v = 0; v < RING_NV; v++)
                acc[r][v] = RING_MADD(acc[r][v], x, b[v]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < RING_NV && j + 8 * (size_t)v < g->n; v++) {
            size_t left = g->n - j - 8 * (size_t)v;
            __mmask8 mask = left >= 8 ? 0xff : (__mmask8)((1u << left) - 1);
            ring_store(g, g->c + (i + r) * g->ldc + j + 8 * v, mask, acc[r][v], k0 == 0);
        }
}

static void ring_rows(const fss_gemm_args *g, size_t i, size_t j, size_t k0, size_t depth,
                      const uint64_t *panel)
{
    switch (g->m - i) {
    case 1:
        ring_micro(g, i, j, k0, depth, panel, 1);
        break;
    case 2:
        ring_micro(g, i, j, k0, depth, panel, 2);
        break;
    case 3:
        ring_micro(g, i, j, k0, depth, panel, 3);
        break;
    case 4:
        ring_micro(g, i, j, k0, depth, panel, 4);
        break;
    case 5:
        ring_micro(g, i, j, k0, depth, panel, 5);
        break;
    case 6:
        ring_micro(g, i, j, k0, depth, panel, 6);
        break;
    case 7:
        ring_micro(g, i, j, k0, depth, panel, 7);
        break;
    default:
        ring_micro(g, i, j, k0, depth, panel, 8);
        break;
    }
}

static void ring_pack(const fss_gemm_args *g, size_t j, size_t k0, size_t depth, uint64_t *panel)
{
    for (size_t k = 0; k < depth; k++)
        for (int v = 0; v < RING_NV; v++) {
            size_t at = j + 8 * (size_t)v, left = g->n > at ? g->n - at : 0;
            __mmask8 mask = left >= 8 ? 0xff : (__mmask8)((1u << left) - 1);
            __m512i x = _mm512_setzero_si512();
            if (left)
                x = _mm512_maskz_loadu_epi64(mask, g->b + (k0 + k) * g->ldb + at);
            _mm512_store_si512(panel + k * RING_NR + 8 * v, x);
        }
}

static void ring_zero(const fss_gemm_args *g)
{
    for (size_t i = 0; i < g->m; i++)
        for (size_t j = 0; j < g->n; j++)
            g->c[i * g->ldc + j] = 0;
}

void RING_NAME(const fss_gemm_args *g)
{
    uint64_t panel[RING_KC * RING_NR] __attribute__((aligned(64)));
    if (g->k == 0 && g->mode == FSS_GEMM_SET)
        ring_zero(g);
    for (size_t j = 0; j < g->n; j += RING_NR)
        for (size_t k0 = 0; k0 < g->k; k0 += RING_KC) {
            size_t depth = g->k - k0 < RING_KC ? g->k - k0 : RING_KC;
            ring_pack(g, j, k0, depth, panel);
            for (size_t i = 0; i < g->m; i += RING_MR)
                ring_rows(g, i, j, k0, depth, panel);
        }
}
