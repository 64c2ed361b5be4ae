/* SPDX-License-Identifier: Apache-2.0
 * Peer: OpenMP tasks with depend clauses. Usage: peer SHAPE TASKS THREADS GRAIN_NS
 * Prints nanoseconds per task (forkjoin: per op). */
#include <omp.h>

#include "task_shapes.h"

static uint64_t work;
static inline void body(void)
{
    if (work)
        burn(work);
    else
        __asm__ volatile("");
}

static void run(char shape, uint32_t n, uint32_t width, char *cell)
{
#pragma omp parallel
#pragma omp single
    for (uint32_t i = 0; i < n; i++) {
        uint32_t d[2] = {0, 0};
        int count = shape_deps(shape, i, width, d);
        if (shape == 'i') {
#pragma omp task
            body();
        } else if (count == 0) {
#pragma omp task depend(out : cell[i])
            body();
        } else if (count == 1) {
#pragma omp task depend(in : cell[d[0]]) depend(out : cell[i])
            body();
        } else {
#pragma omp task depend(in : cell[d[0]], cell[d[1]]) depend(out : cell[i])
            body();
        }
    }
}

static void fork_join(void)
{
    for (int i = 0; i < FORK_OPS; i++) {
#pragma omp parallel for schedule(static)
        for (int k = 0; k < omp_get_max_threads(); k++)
            body();
    }
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    char shape = argv[1][0];
    uint32_t n = (uint32_t)atoi(argv[2]);
    double grain = atof(argv[4]);
    omp_set_dynamic(0);
    omp_set_num_threads(atoi(argv[3]));
    work = (uint64_t)(grain * burn_rate());
    char *cell = malloc(n);
    double t[REPEATS];
    int repeats = grain > 0 ? 3 : 5;
    for (int k = -1; k < repeats; k++) {
        double begin = now_ns();
        if (shape == 'f')
            fork_join();
        else
            run(shape, n, grain > 0 ? GRAIN_WIDTH : WAVE_WIDTH, cell);
        if (k >= 0)
            t[k] = (now_ns() - begin) / (shape == 'f' ? FORK_OPS : n);
    }
    printf("%.2f\n", median(t, repeats));
    free(cell);
    return 0;
}
