/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#include "cpu/vec_avx512.h"

#include "cpu/roi.inc"
#endif
