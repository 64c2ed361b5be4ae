/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const isa_names[] = {"portable", "avx2", "avx512"};

const char *cpu_isa_name(cpu_isa isa)
{
    return isa_names[isa];
}

#if defined(__x86_64__)
static cpu_features detect_hardware(void)
{
    cpu_features f = {CPU_PORTABLE};
    __builtin_cpu_init();
    f.sse41 = __builtin_cpu_supports("sse4.1");
    f.aes = __builtin_cpu_supports("aes");
    f.pclmul = __builtin_cpu_supports("pclmul");
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return f;
    f.isa = CPU_AVX2;
    f.adds_beside_fma = __builtin_cpu_is("amd");
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
        return f;
    f.isa = CPU_AVX512;
    f.avx512_vnni = __builtin_cpu_supports("avx512vnni");
    f.avx512_bf16 = __builtin_cpu_supports("avx512bf16");
    f.avx512_ifma = __builtin_cpu_supports("avx512ifma");
    f.avx512_vbmi = __builtin_cpu_supports("avx512vbmi");
    f.avx512_vbmi2 = __builtin_cpu_supports("avx512vbmi2");
    unsigned a, b, c, d; /* leaf 7: not every compiler knows the name "vaes" */
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d))
        f.vaes512 = (c >> 9) & 1;
    return f;
}
#else
static cpu_features detect_hardware(void)
{
    return (cpu_features){CPU_PORTABLE};
}
#endif

cpu_features cpu_detect(void)
{
    cpu_features f = detect_hardware();
    const char *limit = getenv("TACIT_ISA");
    if (!limit)
        return f;
    cpu_isa most = f.isa;
    for (int i = CPU_PORTABLE; i <= CPU_AVX512; i++)
        if (strcmp(limit, isa_names[i]) == 0)
            most = (cpu_isa)i;
    if (most < f.isa) {
        f.isa = most;
        f.avx512_vnni = f.avx512_bf16 = f.avx512_ifma = f.avx512_vbmi = false;
        f.avx512_vbmi2 = f.vaes512 = false;
        if (most == CPU_PORTABLE)
            f.aes = f.pclmul = f.sse41 = f.adds_beside_fma = false;
    }
    return f;
}

/* What the system tells of one cache, "KEY"; 0: nothing. */
static uint64_t cache_number(int index, const char *key)
{
    char path[80], unit = 0;
    unsigned long long x = 0;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, key);
    FILE *f = fopen(path, "r");
    if (!f)
        return 0;
    int n = fscanf(f, "%9llu%c", &x, &unit);
    fclose(f);
    return n < 1 ? 0 : unit == 'K' ? x << 10 : unit == 'M' ? x << 20 : x;
}

/* sysconf reads CPUID, which in a virtual machine may tell of all caches of the socket. */
enum { CACHES = 8 };

uint64_t cpu_cache_bytes(void)
{
    uint64_t most = 0;
    for (int i = 0; i < CACHES; i++) {
        uint64_t size = cache_number(i, "size");
        most = size > most ? size : most;
    }
    return most ? most : CPU_CACHE_DEFAULT;
}

uint64_t cpu_core_bytes(void)
{
    for (int i = 0; i < CACHES; i++)
        if (cache_number(i, "level") == 2 && cache_number(i, "size"))
            return cache_number(i, "size");
    return CPU_CORE_DEFAULT;
}

/* Whole CPUs granted by the cgroup v2 quota, rounded up; 0 when there is none. */
static uint32_t cgroup_quota(void)
{
    FILE *f = fopen("/sys/fs/cgroup/cpu.max", "r");
    if (!f)
        return 0;
    unsigned long long quota = 0, period = 0;
    int n = fscanf(f, "%llu %llu", &quota, &period);
    fclose(f);
    return n == 2 && period ? (uint32_t)((quota + period - 1) / period) : 0;
}

uint32_t cpu_count(void)
{
    cpu_set_t set;
    uint32_t count = 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        count = (uint32_t)CPU_COUNT(&set);
    uint32_t quota = cgroup_quota();
    if (quota && quota < count)
        count = quota;
    return count ? count : 1;
}

uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
