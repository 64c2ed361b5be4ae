/* SPDX-License-Identifier: Apache-2.0
 * Rings of up to 64 bits by the 64-bit low multiply. */
#if defined(__x86_64__)
#define RING_NAME fss_gemm_avx512
#define RING_MADD(acc, a, b) _mm512_add_epi64(acc, _mm512_mullo_epi64(a, b))
#include "fss/ring_tile.h"
#endif
