/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#include "cpu/vec_avx2.h"

#include "cpu/sample.inc"
#endif
