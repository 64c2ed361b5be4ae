/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#include "cpu/vec_avx512.h"

#undef CPU_NAME
#define CPU_NAME(name) name##_vbmi2

#include "cpu/slim.inc"
#endif
