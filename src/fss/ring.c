/* SPDX-License-Identifier: Apache-2.0 */
#include "fss/ring.h"

#include <string.h>

#include "base/cpu.h"
#include "fss/prg.h"

void fss_gemm_portable(const fss_gemm_args *g)
{
    enum { BLOCK = 64 }; /* rows of B kept warm while all rows of A pass by */
    if (g->mode == FSS_GEMM_SET)
        for (size_t i = 0; i < g->m; i++)
            memset(g->c + i * g->ldc, 0, g->n * sizeof *g->c);
    uint64_t sign = g->mode == FSS_GEMM_SUB ? ~(uint64_t)0 : 1;
    for (size_t k0 = 0; k0 < g->k; k0 += BLOCK) {
        size_t k1 = g->k - k0 < BLOCK ? g->k : k0 + BLOCK;
        for (size_t i = 0; i < g->m; i++) {
            uint64_t *c = g->c + i * g->ldc;
            for (size_t k = k0; k < k1; k++) {
                uint64_t a = sign * g->a[i * g->lda + k];
                const uint64_t *b = g->b + k * g->ldb;
                for (size_t j = 0; j < g->n; j++)
                    c[j] += a * b[j];
            }
        }
    }
}

fss_gemm_set fss_gemm_detect(void)
{
    fss_gemm_set set = {fss_gemm_portable, fss_gemm_portable, "portable", "portable"};
#if defined(__x86_64__)
    cpu_features cpu = cpu_detect();
    if (cpu.isa >= CPU_AVX512) {
        set.narrow = set.wide = fss_gemm_avx512;
        set.narrow_name = set.wide_name = "avx512";
    }
    if (cpu.isa >= CPU_AVX512 && cpu.avx512_ifma) {
        set.narrow = fss_gemm_ifma;
        set.narrow_name = "ifma52";
    }
#endif
    return set;
}

void fss_gemm(const fss_gemm_set *set, unsigned bits, const fss_gemm_args *args)
{
    (bits <= 52 ? set->narrow : set->wide)(args);
    for (size_t i = 0; i < args->m && bits < 64; i++)
        for (size_t j = 0; j < args->n; j++)
            args->c[i * args->ldc + j] = fss_low(args->c[i * args->ldc + j], bits);
}
