/* SPDX-License-Identifier: Apache-2.0
 * Every vector kernel exists once per ISA under one stem: NAME_portable, NAME_avx2, NAME_avx512. */
#ifndef CPU_ISA_H
#define CPU_ISA_H

#include "base/cpu.h"
#include "cpu/kernel.h"

#if defined(__x86_64__)
#define CPU_DECLARE(name)                                                                          \
    void name##_portable(const void *args, uint32_t begin, uint32_t end);                          \
    void name##_avx2(const void *args, uint32_t begin, uint32_t end);                              \
    void name##_avx512(const void *args, uint32_t begin, uint32_t end)
#define CPU_PICK(isa, name)                                                                        \
    ((isa) == CPU_AVX512 ? name##_avx512 : (isa) == CPU_AVX2 ? name##_avx2 : name##_portable)
#define CPU_PICK_NAME(isa, name)                                                                   \
    ((isa) == CPU_AVX512 ? #name "_avx512" : (isa) == CPU_AVX2 ? #name "_avx2" : #name "_portable")
#else
#define CPU_DECLARE(name) void name##_portable(const void *args, uint32_t begin, uint32_t end)
#define CPU_PICK(isa, name) ((void)(isa), name##_portable)
#define CPU_PICK_NAME(isa, name) ((void)(isa), #name "_portable")
#endif

#endif
