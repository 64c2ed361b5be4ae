/* SPDX-License-Identifier: Apache-2.0
 * What this processor can do. Kernels are chosen by these levels at compile time of a model. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

/* Levels in order of preference; a level implies the ones before it. */
typedef enum cpu_isa {
    CPU_PORTABLE,
    CPU_AVX2,   /* AVX2 + FMA + F16C */
    CPU_AVX512, /* F, BW, DQ, VL */
} cpu_isa;

typedef struct cpu_features {
    cpu_isa isa;
    bool avx512_vnni, avx512_bf16, avx512_ifma, avx512_vbmi, avx512_vbmi2;
    bool aes, vaes512, pclmul, sse41, sha;
    bool adds_beside_fma; /* units of their own add while all others multiply (AMD since Zen) */
    /* Two vectors of 64 bytes are read, two added and two multiplied in each cycle, and filling one
     * with a number that is read takes none of them (AMD Zen 5, but for small ones). */
    bool wide_pipes;
    uint64_t cache_bytes; /* cpu_cache_bytes where somebody asked, else 0 */
    uint64_t core_bytes;  /* cpu_core_bytes, likewise */
} cpu_features;

/* How products sum that may pair their terms (cpu/paired.h). */
typedef enum cpu_terms {
    CPU_TERMS_PLAIN, /* additions take the units of multiply-adds (Intel): one by one */
    CPU_TERMS_PAIRED,
    CPU_TERMS_WIDE, /* paired, by wide pipes */
} cpu_terms;

static inline cpu_terms cpu_terms_of(const cpu_features *f)
{
    return f->wide_pipes ? CPU_TERMS_WIDE : f->adds_beside_fma ? CPU_TERMS_PAIRED : CPU_TERMS_PLAIN;
}

/* What the processor has, limited by the environment variable TACIT_ISA=portable|avx2|avx512.
 * Reads the environment and CPUID on each call: ask once and keep the answer. */
cpu_features cpu_detect(void);
const char *cpu_isa_name(cpu_isa isa);

/* Of the largest cache of a processor, as the system tells; CPU_CACHE_DEFAULT where it does not. */
#define CPU_CACHE_DEFAULT (UINT64_C(32) << 20)
uint64_t cpu_cache_bytes(void);
/* Of the second-level cache, which a core has for itself. */
#define CPU_CORE_DEFAULT (UINT64_C(1) << 20)
uint64_t cpu_core_bytes(void);

/* Processors this process may use: affinity mask and cgroup quota, at least 1. */
uint32_t cpu_count(void);

/* Monotonic clock. */
uint64_t clock_ns(void);

#endif
