/* SPDX-License-Identifier: Apache-2.0
 * What the kernel tests share: every ISA of this machine, seeded data, distances in ulp. */
#ifndef CPU_KERNEL_TEST_H
#define CPU_KERNEL_TEST_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/rng.h"

/* for (isa: every level this machine has) */
#define FOR_EACH_ISA(isa)                                                                          \
    for (cpu_isa isa = CPU_PORTABLE, last_ = cpu_detect().isa; isa <= last_; isa++)

static inline float *test_floats(rng *r, int64_t count, double low, double high)
{
    float *x = malloc((size_t)(count ? count : 1) * sizeof *x);
    assert_non_null(x);
    for (int64_t i = 0; i < count; i++)
        x[i] = (float)rng_range(r, low, high);
    return x;
}

/* One unit in the last place of the float nearest to `value`. */
static inline double test_ulp(double value)
{
    double m = fabs(value);
    if (m < 0x1p-126)
        return 0x1p-149;
    int e;
    (void)frexp(m, &e);
    return ldexp(1.0, e - 24);
}

/* Fails with the place when |got - want| > tolerance·(1 + |want|). */
static inline void test_close(const char *what, int64_t index, double got, double want,
                              double tolerance)
{
    if (isnan(want) && isnan(got))
        return;
    if (got == want || fabs(got - want) <= tolerance * (1 + fabs(want)))
        return;
    fail_msg("%s: element %lld is %.9g, expected %.9g", what, (long long)index, got, want);
}

#endif
