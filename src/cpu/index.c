/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/index.h"

#include <stddef.h>
#include <string.h>

static inline bool place(const cpu_places *p, int64_t entry, int64_t *at)
{
    *at = 0;
    for (uint32_t j = 0; j < p->depth; j++) {
        int64_t i = entry * p->depth + j, limit = p->limit[j];
        int64_t given = p->narrow ? ((const int32_t *)p->index)[i] : ((const int64_t *)p->index)[i];
        int64_t k = given < 0 ? given + limit : given;
        if (__builtin_expect(k < 0 || k >= limit, 0)) {
            if (p->fault)
                cpu_report_index(p->fault, given, i, limit, p->axis + (int32_t)j);
            return false;
        }
        *at += k * p->step[j];
    }
    return true;
}

/* One index names the place of one element: nothing but that is done for each. Returns how many
 * were read; the next one's index is outside. */
#define GATHER_ELEMENTS(name, type, index_type)                                                    \
    static int64_t name(const cpu_gather_args *a, const char *from, int64_t entry, char *to,       \
                        const int64_t *steps, int64_t n)                                           \
    {                                                                                              \
        const index_type *index = (const index_type *)a->where.index + entry;                      \
        type *y = (type *)(void *)to;                                                              \
        const int64_t limit = a->where.limit[0], step = a->where.step[0];                          \
        const int64_t from_step = steps[0], entry_step = steps[1], to_step = steps[2];             \
        for (int64_t i = 0; i < n; i++, from += from_step, index += entry_step, y += to_step) {    \
            int64_t k = *index;                                                                    \
            k += k < 0 ? limit : 0;                                                                \
            if (__builtin_expect((uint64_t)k >= (uint64_t)limit, 0))                               \
                return i;                                                                          \
            memcpy(y, from + k * step, sizeof *y); /* which may lie anywhere */                    \
        }                                                                                          \
        return n;                                                                                  \
    }
#define GATHER_BOTH(bytes, type)                                                                   \
    GATHER_ELEMENTS(narrow_##bytes, type, int32_t)                                                 \
    GATHER_ELEMENTS(wide_##bytes, type, int64_t)
GATHER_BOTH(1, uint8_t)
GATHER_BOTH(2, uint16_t)
GATHER_BOTH(4, uint32_t)
GATHER_BOTH(8, uint64_t)

typedef int64_t gather_fn(const cpu_gather_args *a, const char *from, int64_t entry, char *to,
                          const int64_t *steps, int64_t n);
/* NULL: none of these. */
static gather_fn *gather_elements(const cpu_gather_args *a)
{
    if (a->where.depth != 1)
        return NULL;
    switch (a->run) {
    case 1:
        return a->where.narrow ? narrow_1 : wide_1;
    case 2:
        return a->where.narrow ? narrow_2 : wide_2;
    case 4:
        return a->where.narrow ? narrow_4 : wide_4;
    default:
        return a->run != 8 ? NULL : a->where.narrow ? narrow_8 : wide_8;
    }
}

/* Runs of a fixed size are one move each. */
#define GATHER(bytes)                                                                              \
    for (int64_t i = first; i < n; i++) {                                                          \
        if (place(&a->where, entry + i * steps[1], &at))                                           \
            memcpy(to + i * steps[2] * (bytes), from + i * steps[0] + at, (size_t)(bytes));        \
        else                                                                                       \
            memset(to + i * steps[2] * (bytes), 0, (size_t)(bytes));                               \
    }

static void gather_unit(const cpu_gather_args *a, const char *from, int64_t entry, char *to,
                        const int64_t *steps, int64_t n)
{
    int64_t at;
    gather_fn *elements = gather_elements(a);
    int64_t first = elements ? elements(a, from, entry, to, steps, n) : 0;
    switch (a->run) {
    case 1:
        GATHER(1)
        break;
    case 2:
        GATHER(2)
        break;
    case 4:
        GATHER(4)
        break;
    case 8:
        GATHER(8)
        break;
    default:
        GATHER(a->run)
        break;
    }
}

/* The same from the file that `from` is mapped from. */
static void gather_apart(const cpu_gather_args *a, const char *from, int64_t entry, char *to,
                         const int64_t *steps, int64_t n)
{
    int64_t at;
    for (int64_t i = 0; i < n; i++, from += steps[0], to += steps[2] * a->run)
        if (!place(&a->where, entry + i * steps[1], &at))
            memset(to, 0, (size_t)a->run);
        else if (!file_place_read(&a->file, (uint64_t)(from - a->from + at), to, (size_t)a->run))
            memcpy(to, from + at, (size_t)a->run);
}

void cpu_gather(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_gather_args *a = args;
    int32_t inner = a->nd.rank - 1;
    int64_t steps[3];
    for (int k = 0; k < 3; k++)
        steps[k] = a->nd.strides[k][inner];
    bool apart = a->apart && file_place_holds(&a->file);
    cpu_nd_walk w;
    for (cpu_nd_start(&a->nd, &w, begin, end); cpu_nd_more(&w); cpu_nd_next(&a->nd, &w))
        (apart ? gather_apart : gather_unit)(a, a->from + w.at[0], w.at[1],
                                             a->to + w.at[2] * a->run, steps, w.count);
}

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct wide {
    uint64_t part[2];
} wide;

/* Runs have a loop of their own, which becomes vectors. */
#define COMBINE(name, type, value)                                                                 \
    static void name(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n)    \
    {                                                                                              \
        type *y = (type *)(void *)to;                                                              \
        const type *x = (const type *)(const void *)from;                                          \
        if (to_step == 1 && from_step == 1)                                                        \
            for (int64_t i = 0; i < n; i++) {                                                      \
                type a = y[i], b = x[i];                                                           \
                y[i] = (type)(value);                                                              \
            }                                                                                      \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++) {                                                      \
                type a = y[i * to_step], b = x[i * from_step];                                     \
                y[i * to_step] = (type)(value);                                                    \
            }                                                                                      \
    }
#define SET(bytes, type)                                                                           \
    static void set_##bytes(char *to, int64_t to_step, const char *from, int64_t from_step,        \
                            int64_t n)                                                             \
    {                                                                                              \
        type *y = (type *)(void *)to;                                                              \
        const type *x = (const type *)(const void *)from;                                          \
        if (to_step == 1 && from_step == 1 && n > 1)                                               \
            memcpy(to, from, (size_t)n * sizeof *y);                                               \
        else                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                        \
                y[i * to_step] = x[i * from_step];                                                 \
    }
SET(1, uint8_t)
SET(2, uint16_t)
SET(4, uint32_t)
SET(8, uint64_t)
SET(16, wide)

#define OF_INTEGERS(id, type)                                                                      \
    COMBINE(add_##id, type, (uint64_t)a + (uint64_t)b)                                             \
    COMBINE(mul_##id, type, (uint64_t)a *(uint64_t)b)                                              \
    COMBINE(max_##id, type, a < b ? b : a)                                                         \
    COMBINE(min_##id, type, a < b ? a : b)
#define OF_REALS(id, type) /* a NaN stays, and spreads */                                          \
    COMBINE(add_##id, type, a + b)                                                                 \
    COMBINE(mul_##id, type, a *b)                                                                  \
    COMBINE(max_##id, type, a != a || a > b ? a : b)                                               \
    COMBINE(min_##id, type, a != a || a < b ? a : b)
CPU_INTEGERS(OF_INTEGERS)
CPU_REALS(OF_REALS)

cpu_combine_fn *cpu_combine_find(cpu_combine how, cpu_number type)
{
#define ROW(id, type)                                                                              \
    [CPU_##id] = {[CPU_COMBINE_ADD] = add_##id,                                                    \
                  [CPU_COMBINE_MUL] = mul_##id,                                                    \
                  [CPU_COMBINE_MAX] = max_##id,                                                    \
                  [CPU_COMBINE_MIN] = min_##id},
    static cpu_combine_fn *const table[CPU_NUMBERS][CPU_COMBINES] = {CPU_INTEGERS(ROW)
                                                                         CPU_REALS(ROW)};
#undef ROW
    return table[type][how];
}

cpu_combine_fn *cpu_combine_set(uint32_t size)
{
    switch (size) {
    case 1:
        return set_1;
    case 2:
        return set_2;
    case 4:
        return set_4;
    case 8:
        return set_8;
    default:
        return size == 16 ? set_16 : NULL;
    }
}

/* All positions of the unit go to the same place along the axis: runs. */
static void scatter_runs(const cpu_scatter_args *a, char *to, int64_t entry, const char *from,
                         const int64_t *steps, int64_t count)
{
    int64_t at, size = a->size;
    for (int64_t j = 0; j < a->n; j++)
        if (place(&a->where, entry + j * a->entry_step, &at))
            a->fn(to + at * size, steps[0], from + j * a->from_step * size, steps[2], count);
}

static void scatter_each(const cpu_scatter_args *a, char *to, int64_t entry, const char *from,
                         const int64_t *steps, int64_t count)
{
    /* Walk memory in order: along the axis first where entries are neighbours along it. */
    bool lines = a->entry_step == 1;
    int64_t at, size = a->size, outer = lines ? count : a->n, inner = lines ? a->n : count;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            int64_t j = lines ? i : o, k = lines ? o : i;
            if (place(&a->where, entry + k * steps[1] + j * a->entry_step, &at))
                a->fn(to + (k * steps[0] + at) * size, 0,
                      from + (k * steps[2] + j * a->from_step) * size, 0, 1);
        }
}

void cpu_scatter(const void *args, uint32_t begin, uint32_t end)
{
    const cpu_scatter_args *a = args;
    int32_t inner = a->nd.rank - 1;
    int64_t steps[3];
    for (int k = 0; k < 3; k++)
        steps[k] = a->nd.strides[k][inner];
    cpu_nd_walk w;
    for (cpu_nd_start(&a->nd, &w, begin, end); cpu_nd_more(&w); cpu_nd_next(&a->nd, &w)) {
        char *to = a->to + w.at[0] * a->size;
        const char *from = a->from + (a->from_at + w.at[2]) * a->size;
        if (steps[1] == 0 || w.count == 1)
            scatter_runs(a, to, w.at[1], from, steps, w.count);
        else
            scatter_each(a, to, w.at[1], from, steps, w.count);
    }
}

/* Places are cleared a little before they are written, while they go in rising order about. */
void cpu_unpool(const void *args, uint32_t begin, uint32_t end)
{
    enum { AHEAD = 4096 };
    const cpu_unpool_args *a = args;
    int64_t cleared = 0;
    if (begin >= end)
        return;
    for (int64_t i = 0; i < a->count; i++) {
        int64_t at = a->index[i];
        if (__builtin_expect(at < 0 || at >= a->size, 0)) {
            if (cpu_report(a->fault, CPU_FAULT_PLACE, at))
                a->fault->limit = a->size;
            return;
        }
        if (at >= cleared) {
            int64_t to = at + AHEAD < a->size ? at + AHEAD : a->size;
            memset(a->to + cleared, 0, (size_t)(to - cleared) * sizeof *a->to);
            cleared = to;
        }
        a->to[at] = a->from[i];
    }
    memset(a->to + cleared, 0, (size_t)(a->size - cleared) * sizeof *a->to);
}
