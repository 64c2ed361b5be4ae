/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu/cast.h"

bool cpu_cast_knows(cpu_number from, cpu_number to)
{
    bool real = from == CPU_F32 || from == CPU_F64;
    return !real || to == CPU_BOOL || to == CPU_F32 || to == CPU_F64;
}

/* In C a conversion between integers wraps, as the evaluator's does. */
#define LOOP(from_type, to_type, value)                                                            \
    {                                                                                              \
        const from_type *x = (const from_type *)a->x;                                              \
        to_type *y = (to_type *)a->y;                                                              \
        for (int64_t i = first; i < last; i++)                                                     \
            y[i] = (to_type)(value);                                                               \
        break;                                                                                     \
    }
#define INTEGERS(from_type)                                                                        \
    case CPU_I8:                                                                                   \
        LOOP(from_type, int8_t, x[i])                                                              \
    case CPU_U8:                                                                                   \
        LOOP(from_type, uint8_t, x[i])                                                             \
    case CPU_I32:                                                                                  \
        LOOP(from_type, int32_t, x[i])                                                             \
    case CPU_I64:                                                                                  \
        LOOP(from_type, int64_t, x[i])
#define OTHERS(from_type)                                                                          \
    case CPU_BOOL:                                                                                 \
        LOOP(from_type, uint8_t, x[i] != 0)                                                        \
    case CPU_F32:                                                                                  \
        LOOP(from_type, float, x[i])                                                               \
    case CPU_F64:                                                                                  \
        LOOP(from_type, double, x[i])
#define WHOLE(name, from_type)                                                                     \
    static void name(const cpu_cast_args *a, int64_t first, int64_t last)                          \
    {                                                                                              \
        switch (a->to) {                                                                           \
            INTEGERS(from_type)                                                                    \
            OTHERS(from_type)                                                                      \
        }                                                                                          \
    }
#define REAL(name, from_type)                                                                      \
    static void name(const cpu_cast_args *a, int64_t first, int64_t last)                          \
    {                                                                                              \
        switch (a->to) {                                                                           \
            OTHERS(from_type)                                                                      \
        default:                                                                                   \
            break;                                                                                 \
        }                                                                                          \
    }

WHOLE(from_i8, int8_t)
WHOLE(from_u8, uint8_t)
WHOLE(from_i32, int32_t)
WHOLE(from_i64, int64_t)
REAL(from_f32, float)
REAL(from_f64, double)

void cpu_cast(const void *args, uint32_t begin, uint32_t end)
{
    static void (*const by_source[])(const cpu_cast_args *, int64_t, int64_t) = {
        [CPU_I8] = from_i8,   [CPU_U8] = from_u8,   [CPU_I32] = from_i32, [CPU_I64] = from_i64,
        [CPU_BOOL] = from_u8, [CPU_F32] = from_f32, [CPU_F64] = from_f64};
    const cpu_cast_args *a = args;
    int64_t last = end * a->tile < a->count ? end * a->tile : a->count;
    by_source[a->from](a, begin * a->tile, last);
}
