/* SPDX-License-Identifier: Apache-2.0
 *
 * tacit/types.h: element types, as the graph, the text form and the API name them.
 */
#ifndef TACIT_TYPES_H
#define TACIT_TYPES_H

#include "tacit/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One row per element type: name, text, bits per element as stored, code in ONNX files, class.
 * Types under 8 bits are packed, first element in the low bits. A string element is opaque. */
#define TACIT_DTYPE_MAP(ROW)                                                                       \
    ROW(F64, "f64", 64, 11, FLOAT)                                                                 \
    ROW(F32, "f32", 32, 1, FLOAT)                                                                  \
    ROW(F16, "f16", 16, 10, FLOAT)                                                                 \
    ROW(BF16, "bf16", 16, 16, FLOAT)                                                               \
    ROW(I8, "i8", 8, 3, SIGNED)                                                                    \
    ROW(I16, "i16", 16, 5, SIGNED)                                                                 \
    ROW(I32, "i32", 32, 6, SIGNED)                                                                 \
    ROW(I64, "i64", 64, 7, SIGNED)                                                                 \
    ROW(U8, "u8", 8, 2, UNSIGNED)                                                                  \
    ROW(U16, "u16", 16, 4, UNSIGNED)                                                               \
    ROW(U32, "u32", 32, 12, UNSIGNED)                                                              \
    ROW(U64, "u64", 64, 13, UNSIGNED)                                                              \
    ROW(BOOL, "bool", 8, 9, BOOLEAN)                                                               \
    ROW(C64, "c64", 64, 14, COMPLEX)                                                               \
    ROW(C128, "c128", 128, 15, COMPLEX)                                                            \
    ROW(STRING, "string", 128, 8, STRING)                                                          \
    ROW(F8E4M3FN, "f8e4m3fn", 8, 17, FLOAT)                                                        \
    ROW(F8E4M3FNUZ, "f8e4m3fnuz", 8, 18, FLOAT)                                                    \
    ROW(F8E5M2, "f8e5m2", 8, 19, FLOAT)                                                            \
    ROW(F8E5M2FNUZ, "f8e5m2fnuz", 8, 20, FLOAT)                                                    \
    ROW(F8E8M0, "f8e8m0", 8, 24, FLOAT)                                                            \
    ROW(F4E2M1, "f4e2m1", 4, 23, FLOAT)                                                            \
    ROW(U4, "u4", 4, 21, UNSIGNED)                                                                 \
    ROW(I4, "i4", 4, 22, SIGNED)                                                                   \
    ROW(U2, "u2", 2, 25, UNSIGNED)                                                                 \
    ROW(I2, "i2", 2, 26, SIGNED)

typedef enum tacit_dtype {
    TACIT_DTYPE_NONE,
#define TACIT_DTYPE_ENUM(name, text, bits, onnx, cls) TACIT_##name,
    TACIT_DTYPE_MAP(TACIT_DTYPE_ENUM)
#undef TACIT_DTYPE_ENUM
        TACIT_DTYPE_COUNT
} tacit_dtype;

enum { TACIT_MAX_RANK = 12 };

/* "f32" and so on; "none" for TACIT_DTYPE_NONE and anything out of range. */
TACIT_API const char *tacit_dtype_text(tacit_dtype dtype);
/* Bits of one element as stored; 0 when out of range. */
TACIT_API uint32_t tacit_dtype_bits(tacit_dtype dtype);

#ifdef __cplusplus
}
#endif
#endif
