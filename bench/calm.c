/* SPDX-License-Identifier: Apache-2.0
 *
 * Are processors ours alone? For each line of standard input one thread on each processor named
 * runs a loop that keeps its arithmetic units busy, all at the same time; printed is how many
 * nanoseconds the slowest took. It is slower while somebody else, another guest of the same host
 * perhaps, has the other half of a core: no counter of the system tells.
 *
 * Usage: calm CPU...
 */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cpu.h"

enum { STEPS = 1 << 18, CHAINS = 6, MOST = 64 }; /* 0.2 ms; units times their latency; processors */

typedef float four __attribute__((vector_size(16)));

typedef struct processor {
    pthread_t thread;
    uint64_t ns;
} processor;

static pthread_barrier_t begins, ends;
static volatile float one = 1, result;

/* Products and sums that do not wait for one another, of a number no compiler knows. */
static void keep_busy(void)
{
    four unit = {one, one, one, one}, x[CHAINS], y[CHAINS];
    for (int i = 0; i < CHAINS; i++)
        x[i] = y[i] = unit;
    for (int k = 0; k < STEPS; k++) {
#pragma GCC unroll 8
        for (int i = 0; i < CHAINS; i++) {
            x[i] *= unit;
            y[i] += unit;
        }
    }
    for (int i = 0; i < CHAINS; i++)
        result = x[i][0] + y[i][0];
}

static void *work(void *context)
{
    processor *p = context;
    for (;;) {
        pthread_barrier_wait(&begins);
        uint64_t start = clock_ns();
        keep_busy();
        p->ns = clock_ns() - start;
        pthread_barrier_wait(&ends);
    }
    return NULL;
}

static bool start(processor *p, const char *number)
{
    char *end;
    pthread_attr_t attributes;
    cpu_set_t here;
    long n = strtol(number, &end, 10);
    if (end == number || *end || n < 0 || n >= CPU_SETSIZE)
        return false;
    CPU_ZERO(&here);
    CPU_SET((int)n, &here);
    return pthread_attr_init(&attributes) == 0 &&
           pthread_attr_setaffinity_np(&attributes, sizeof here, &here) == 0 &&
           pthread_create(&p->thread, &attributes, work, p) == 0;
}

int main(int argc, char **argv)
{
    static processor all[MOST];
    int count = argc - 1;
    if (count < 1 || count > MOST) {
        fprintf(stderr, "usage: calm CPU...\n");
        return 2;
    }
    pthread_barrier_init(&begins, NULL, (unsigned)count + 1);
    pthread_barrier_init(&ends, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++)
        if (!start(&all[i], argv[i + 1])) {
            fprintf(stderr, "calm: no thread can be had on processor %s\n", argv[i + 1]);
            return 1;
        }
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n')
            continue;
        uint64_t slowest = 0;
        pthread_barrier_wait(&begins);
        pthread_barrier_wait(&ends);
        for (int i = 0; i < count; i++)
            slowest = all[i].ns > slowest ? all[i].ns : slowest;
        printf("%llu\n", (unsigned long long)slowest);
        fflush(stdout);
    }
    return 0;
}
