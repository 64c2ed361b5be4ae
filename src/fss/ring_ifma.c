/* SPDX-License-Identifier: Apache-2.0
 * Rings of at most 52 bits: the low half of a 52-bit product, accumulated in one instruction. */
#if defined(__x86_64__)
#define RING_NAME fss_gemm_ifma
#define RING_MADD(acc, a, b) _mm512_madd52lo_epu64(acc, a, b)
#include "fss/ring_tile.h"
#endif
