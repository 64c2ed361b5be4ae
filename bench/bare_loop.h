/* SPDX-License-Identifier: Apache-2.0
 * A loop that does nothing but kernels, one behind the other, with one thread or two: what a whole
 * program is held against. */
#ifndef BENCH_BARE_LOOP_H
#define BENCH_BARE_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cpu.h"
#include "cpu/kernel.h"

typedef struct bare_step {
    cpu_kernel fn;
    const void *args;
    uint32_t tiles;
    atomic_uint next, done;
} bare_step;

typedef struct bare_loop {
    bare_step *steps;
    uint32_t n_steps, threads;
} bare_loop;

/* Tiles of a step are taken one by one, by one thread all at once; the next step waits until all
 * are done. */
static inline void *bare_turn(void *context)
{
    const bare_loop *loop = context;
    for (uint32_t i = 0; i < loop->n_steps; i++) {
        bare_step *s = &loop->steps[i];
        if (loop->threads == 1) {
            s->fn(s->args, 0, s->tiles);
            continue;
        }
        for (uint32_t t; (t = atomic_fetch_add(&s->next, 1)) < s->tiles;) {
            s->fn(s->args, t, t + 1);
            atomic_fetch_add(&s->done, 1);
        }
        while (atomic_load_explicit(&s->done, memory_order_acquire) < s->tiles)
            __builtin_ia32_pause();
    }
    return NULL;
}

/* All steps once, in milliseconds; below 0: there is no thread. */
static inline double bare_once(bare_loop *loop)
{
    pthread_t other;
    for (uint32_t i = 0; i < loop->n_steps; i++) {
        atomic_store(&loop->steps[i].next, 0);
        atomic_store(&loop->steps[i].done, 0);
    }
    uint64_t start = clock_ns();
    if (loop->threads == 2 && pthread_create(&other, NULL, bare_turn, loop) != 0)
        return -1;
    bare_turn(loop);
    double ms = (double)(clock_ns() - start) / 1e6;
    if (loop->threads == 2)
        pthread_join(other, NULL);
    return ms;
}

#endif
