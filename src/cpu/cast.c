/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cast.h"

bool cpu_cast_knows(cpu_number from, cpu_number to)
{
    bool real = from == CPU_F32 || from == CPU_F64;
    return !real || to == CPU_BOOL || to == CPU_F32 || to == CPU_F64;
}

/* In C a conversion between integers wraps, as the evaluator's does. */
#define LOOP(to_type, value)                                                                       \
    {                                                                                              \
        to_type *y = (to_type *)a->y;                                                              \
        for (int64_t i = first; i < last; i++)                                                     \
            y[i] = (to_type)(value);                                                               \
        break;                                                                                     \
    }
#define CASE(id, type)                                                                             \
    case CPU_##id:                                                                                 \
        LOOP(type, x[i])
/* Spelt out: the lists of number.h cannot be walked inside themselves. */
#define TO_INTEGERS                                                                                \
    CASE(I8, int8_t)                                                                               \
    CASE(I16, int16_t)                                                                             \
    CASE(I32, int32_t)                                                                             \
    CASE(I64, int64_t)                                                                             \
    CASE(U8, uint8_t)                                                                              \
    CASE(U16, uint16_t)                                                                            \
    CASE(U32, uint32_t)                                                                            \
    CASE(U64, uint64_t)
#define TO_OTHERS                                                                                  \
    CASE(F32, float)                                                                               \
    CASE(F64, double)                                                                              \
    case CPU_BOOL:                                                                                 \
        LOOP(uint8_t, x[i] != 0)
#define FROM_INTEGER(id, type)                                                                     \
    static void from_##id(const cpu_cast_args *a, int64_t first, int64_t last)                     \
    {                                                                                              \
        const type *x = (const type *)a->x;                                                        \
        switch (a->to) {                                                                           \
            TO_INTEGERS                                                                            \
            TO_OTHERS                                                                              \
        default:                                                                                   \
            break;                                                                                 \
        }                                                                                          \
    }
#define FROM_REAL(id, type)                                                                        \
    static void from_##id(const cpu_cast_args *a, int64_t first, int64_t last)                     \
    {                                                                                              \
        const type *x = (const type *)a->x;                                                        \
        switch (a->to) {                                                                           \
            TO_OTHERS                                                                              \
        default:                                                                                   \
            break;                                                                                 \
        }                                                                                          \
    }

CPU_INTEGERS(FROM_INTEGER)
CPU_REALS(FROM_REAL)

void cpu_cast(const void *args, uint32_t begin, uint32_t end)
{
    static void (*const by_source[CPU_NUMBERS])(const cpu_cast_args *, int64_t, int64_t) = {
#define ROW(id, type) [CPU_##id] = from_##id,
        CPU_INTEGERS(ROW) CPU_REALS(ROW)
#undef ROW
            [CPU_BOOL] = from_U8};
    const cpu_cast_args *a = args;
    int64_t last = end * a->tile < a->count ? end * a->tile : a->count;
    by_source[a->from](a, begin * a->tile, last);
}
