/* SPDX-License-Identifier: Apache-2.0
 * Reading and writing at places that data names. One kernel reads (Gather, GatherElements,
 * GatherND), one writes (ScatterElements, ScatterND, OneHot): they differ in strides only. */
#ifndef CPU_INDEX_H
#define CPU_INDEX_H

#include <stdbool.h>

#include "base/file.h"
#include "cpu/kernel.h"
#include "cpu/nd.h"
#include "cpu/number.h"

enum { CPU_INDEX_DEPTH = 12 };

/* An entry is `depth` indices that together name a place: Σ index_j·step_j. Negative indices count
 * from the end. One outside is reported, or skipped where there is no fault to report to. */
typedef struct cpu_places {
    const void *index; /* i64, or i32 when narrow */
    cpu_fault *fault;
    bool narrow;
    uint32_t depth;
    int32_t axis; /* of the first index, for the report */
    int64_t limit[CPU_INDEX_DEPTH], step[CPU_INDEX_DEPTH];
} cpu_places;

/* to[…] = from[… + place of entry …], `run` bytes at a time. nd's operands: bytes of `from`,
 * entries, runs of `to`; steps of places are bytes. */
typedef struct cpu_gather_args {
    const char *from;
    char *to;
    cpu_places where;
    int64_t run;
    cpu_nd nd;
    bool apart;      /* `from` is not touched where its file can be read instead */
    file_place file; /* of `from` */
} cpu_gather_args;

void cpu_gather(const void *args, uint32_t begin, uint32_t end);

typedef enum cpu_combine {
    CPU_COMBINE_SET,
    CPU_COMBINE_ADD,
    CPU_COMBINE_MUL,
    CPU_COMBINE_MAX,
    CPU_COMBINE_MIN,
    CPU_COMBINES,
} cpu_combine;

/* n elements, steps in elements: to ∘= from. */
typedef void cpu_combine_fn(char *to, int64_t to_step, const char *from, int64_t from_step,
                            int64_t n);
cpu_combine_fn *cpu_combine_find(cpu_combine how, cpu_number type);
/* The one for CPU_COMBINE_SET, by element size: 1, 2, 4, 8 or 16. */
cpu_combine_fn *cpu_combine_set(uint32_t size);

/* For every position of nd and j = 0, 1, … n − 1 in this order:
 * to[… + place of entry (… + j·entry_step)] ∘= from[… + j·from_step]. Positions are told apart by
 * `to` alone, so that tiles never meet. nd's operands, in elements: to, entries, from. */
typedef struct cpu_scatter_args {
    char *to;
    const char *from;
    cpu_places where;
    int64_t from_at, n, entry_step, from_step;
    uint32_t size;
    cpu_combine_fn *fn;
    cpu_nd nd;
} cpu_scatter_args;

void cpu_scatter(const void *args, uint32_t begin, uint32_t end);

/* MaxUnpool: to[index[i]] = from[i], words of four bytes, in order; zeros where nothing goes. One
 * tile: any index may name any place. */
typedef struct cpu_unpool_args {
    uint32_t *to;
    const uint32_t *from;
    const int64_t *index;
    cpu_fault *fault;
    int64_t count, size; /* of what is read, of the result */
} cpu_unpool_args;

void cpu_unpool(const void *args, uint32_t begin, uint32_t end);

#endif
