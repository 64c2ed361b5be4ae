/* SPDX-License-Identifier: Apache-2.0 */
#include "base/cpu.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const isa_names[] = {"portable", "avx2", "avx512"};

const char *cpu_isa_name(cpu_isa isa)
{
    return isa_names[isa];
}

#if defined(__x86_64__)
/* AMD's family 1Ah and later have vector pipes of 64 bytes, but for two of its mobile processors.
 * (They say so in CPUID Fn8000_001A, which virtual machines rarely see.) */
static bool has_wide_pipes(void)
{
    unsigned a, b, c, d;
    __cpuid(1, a, b, c, d);
    unsigned family = ((a >> 8) & 0xf) + ((a >> 20) & 0xff);
    unsigned model = ((a >> 4) & 0xf) | ((a >> 12) & 0xf0);
    bool mobile = (model >= 0x20 && model <= 0x2f) || (model >= 0x60 && model <= 0x6f);
    return __builtin_cpu_is("amd") && family >= 0x1a && !(family == 0x1a && mobile);
}

static cpu_features detect_hardware(void)
{
    cpu_features f = {CPU_PORTABLE};
    __builtin_cpu_init();
    f.sse41 = __builtin_cpu_supports("sse4.1");
    f.aes = __builtin_cpu_supports("aes");
    f.pclmul = __builtin_cpu_supports("pclmul");
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return f;
    unsigned a, b, c, d; /* not every compiler knows the names "sha" and "vaes" */
    __cpuid_count(7, 0, a, b, c, d);
    f.isa = CPU_AVX2;
    f.sha = (b >> 29) & 1;
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
    f.vaes512 = (c >> 9) & 1;
    f.wide_pipes = has_wide_pipes();
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
        f.avx512_vbmi2 = f.vaes512 = f.wide_pipes = false;
        if (most == CPU_PORTABLE)
            f.aes = f.pclmul = f.sse41 = f.sha = f.adds_beside_fma = false;
    }
    return f;
}

/* The beginning of a small file of the system, as text; false where there is none. A stream would
 * take half as long again, and opening a model reads several. */
static bool read_text(const char *path, char *to, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, to, room - 1);
    close(fd);
    to[n > 0 ? n : 0] = '\0';
    return n > 0;
}

/* What the system tells of one cache, "KEY"; 0: nothing. */
static uint64_t cache_number(int index, const char *key)
{
    char path[80], text[32];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, key);
    if (!read_text(path, text, sizeof text))
        return 0;
    char *unit = text;
    uint64_t x = strtoull(text, &unit, 10);
    return *unit == 'K' ? x << 10 : *unit == 'M' ? x << 20 : x;
}

enum { THIRD = 3, CACHES = 8 }; /* there are two caches of the first level, one of others */

static uint64_t told_by_system(int index)
{
    return cache_number(index, "size");
}

/* What the system reads, too, in a quarter of the time that its files take. */
static uint64_t told_by_processor(int index)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    bool amd = __builtin_cpu_is("amd"); /* whose third is the last: each question is a trap */
    if (!__builtin_cpu_supports("avx2") || (amd && index > THIRD))
        return 0; /* before AVX2 not all have these leaves */
    __cpuid_count(amd ? 0x8000001d : 4, (unsigned)index, a, b, c, d);
    uint64_t ways = (b >> 22) + 1, parts = ((b >> 12) & 0x3ff) + 1, line = (b & 0xfff) + 1;
    return a & 0x1f ? ways * parts * line * (c + UINT64_C(1)) : 0;
#else
    (void)index;
    return 0;
#endif
}

static uint64_t largest_cache(uint64_t (*size_of)(int index))
{
    uint64_t most = size_of(THIRD);
    bool higher = most; /* then those before it are smaller */
    for (int i = higher ? THIRD + 1 : 0; i < CACHES; i++) {
        uint64_t size = size_of(i);
        most = size > most ? size : most;
        if (higher && !size)
            break;
    }
    return most;
}

/* Not asked of sysconf, which reads another leaf of CPUID: in a virtual machine that may tell of
 * all caches of the socket. */
uint64_t cpu_cache_bytes(void)
{
    uint64_t most = largest_cache(told_by_processor);
    most = most ? most : largest_cache(told_by_system);
    return most ? most : CPU_CACHE_DEFAULT;
}

/* A core's own is the same to CPUID, whoever shares the socket. */
uint64_t cpu_core_bytes(void)
{
#if defined(_SC_LEVEL2_CACHE_SIZE)
    long known = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (known > 0)
        return (uint64_t)known;
#endif
    for (int i = 0; i < CACHES; i++) {
        uint64_t size = cache_number(i, "level") == 2 ? cache_number(i, "size") : 0;
        if (size)
            return size;
    }
    return CPU_CORE_DEFAULT;
}

/* Whole CPUs granted by the cgroup v2 quota, rounded up; 0 when there is none. */
static uint32_t cgroup_quota(void)
{
    char text[64], *rest = text;
    if (!read_text("/sys/fs/cgroup/cpu.max", text, sizeof text))
        return 0;
    uint64_t quota = strtoull(text, &rest, 10), period = strtoull(rest, NULL, 10);
    return rest != text && period ? (uint32_t)((quota + period - 1) / period) : 0;
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
