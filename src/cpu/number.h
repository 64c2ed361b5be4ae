/* SPDX-License-Identifier: Apache-2.0
 * Element types that C has by itself, so that loops over them are written once. */
#ifndef CPU_NUMBER_H
#define CPU_NUMBER_H

#include <stdint.h>

#define CPU_INTEGERS(ROW)                                                                          \
    ROW(I8, int8_t)                                                                                \
    ROW(I16, int16_t)                                                                              \
    ROW(I32, int32_t)                                                                              \
    ROW(I64, int64_t)                                                                              \
    ROW(U8, uint8_t)                                                                               \
    ROW(U16, uint16_t)                                                                             \
    ROW(U32, uint32_t)                                                                             \
    ROW(U64, uint64_t)
#define CPU_REALS(ROW)                                                                             \
    ROW(F32, float)                                                                                \
    ROW(F64, double)

typedef enum cpu_number {
#define ROW(id, type) CPU_##id,
    CPU_INTEGERS(ROW) CPU_REALS(ROW)
#undef ROW
        CPU_BOOL,
    CPU_NUMBERS,
} cpu_number;

#endif
