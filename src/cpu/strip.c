/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/strip.h"

extern const cpu_strips cpu_strip_table_portable;
#if defined(__x86_64__)
extern const cpu_strips cpu_strip_table_avx2, cpu_strip_table_avx512;
#endif

const cpu_strips *cpu_strips_for(cpu_isa isa)
{
#if defined(__x86_64__)
    if (isa == CPU_AVX512)
        return &cpu_strip_table_avx512;
    if (isa == CPU_AVX2)
        return &cpu_strip_table_avx2;
#endif
    (void)isa;
    return &cpu_strip_table_portable;
}
