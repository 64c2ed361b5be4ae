/* SPDX-License-Identifier: Apache-2.0
 * What ours and the peers' task benchmarks share: work of a given length, clocks, medians. */
#ifndef BENCH_TASK_SHAPES_H
#define BENCH_TASK_SHAPES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WAVE_WIDTH = 512, GRAIN_WIDTH = 128, FORK_OPS = 300, REPEATS = 9 };

static inline double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static uint64_t __attribute__((noinline)) burn(uint64_t iterations)
{
    uint64_t x = iterations | 1;
    for (uint64_t i = 0; i < iterations; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        __asm__ volatile("" ::"r"(x));
    }
    return x;
}

/* Iterations of burn in one nanosecond. */
static inline double burn_rate(void)
{
    double best = 1e30;
    for (int k = 0; k < 5; k++) {
        double begin = now_ns();
        burn(2000000);
        double took = now_ns() - begin;
        best = took < best ? took : best;
    }
    return 2000000 / best;
}

static inline int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static inline double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, compare_doubles);
    return v[n / 2];
}

/* Producers of task i in a shape: "indep", "chain", "wave" (width w) or "tree". */
static inline int shape_deps(char shape, uint32_t i, uint32_t w, uint32_t *deps)
{
    int n = 0;
    if (shape == 'c' && i)
        deps[n++] = i - 1;
    if (shape == 'w') {
        if (i % w)
            deps[n++] = i - 1;
        if (i >= w)
            deps[n++] = i - w;
    }
    if (shape == 't' && i)
        deps[n++] = (i - 1) / 2;
    return n;
}

#endif
