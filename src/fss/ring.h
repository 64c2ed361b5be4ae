/* SPDX-License-Identifier: Apache-2.0
 * Matrix products over Z_2^n. */
#ifndef FSS_RING_H
#define FSS_RING_H

#include <stddef.h>
#include <stdint.h>

typedef enum fss_gemm_mode { FSS_GEMM_SET, FSS_GEMM_ADD, FSS_GEMM_SUB } fss_gemm_mode;

/* C (m x n) = or += or -= A (m x k) B (k x n); row-major, strides in words. Only the low `bits` of
 * the result count for the kernel's class: 52 for the IFMA one, 64 for the others. */
typedef struct fss_gemm_args {
    size_t m, n, k;
    const uint64_t *a, *b;
    uint64_t *c;
    size_t lda, ldb, ldc;
    fss_gemm_mode mode;
} fss_gemm_args;

typedef void (*fss_gemm_fn)(const fss_gemm_args *args);

/* The kernels this processor has: narrow for rings of at most 52 bits, wide for the rest. */
typedef struct fss_gemm_set {
    fss_gemm_fn narrow, wide;
    const char *narrow_name, *wide_name;
} fss_gemm_set;
fss_gemm_set fss_gemm_detect(void);

/* As the kernels, with the result reduced to `bits`. */
void fss_gemm(const fss_gemm_set *set, unsigned bits, const fss_gemm_args *args);

void fss_gemm_portable(const fss_gemm_args *args);
#if defined(__x86_64__)
void fss_gemm_avx512(const fss_gemm_args *args);
void fss_gemm_ifma(const fss_gemm_args *args);
#endif

#endif
