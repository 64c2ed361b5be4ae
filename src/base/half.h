/* SPDX-License-Identifier: Apache-2.0
 * Small float formats to and from double/float, exact and portable.
 * A format is sign + exponent + mantissa bits; `fmt` names its special values. */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef enum half_format {
    HALF_F16,
    HALF_BF16,
    HALF_E4M3FN,
    HALF_E4M3FNUZ,
    HALF_E5M2,
    HALF_E5M2FNUZ,
    HALF_E8M0,
    HALF_E2M1,
} half_format;

double half_decode(half_format format, uint16_t bits);
/* Round to nearest, ties to even. Beyond the largest finite value: f16/bf16 go to infinity; f8
 * types clamp when `saturate`, else go to Inf (E5M2) or NaN; E2M1 always clamps (and has no NaN:
 * that becomes minus zero); E8M0 clamps. */
uint16_t half_encode(half_format format, double value, bool saturate);

/* Exact, without a branch, so that loops become vectors: the exponent is moved by a product, which
 * also makes small ones normal; the largest one means infinity or NaN in both. */
static inline float half_to_f32(uint16_t h)
{
    uint32_t size = h & 0x7fffu;
    union {
        uint32_t u;
        float f;
    } v = {size << 13};
    v.f *= 0x1p112f;
    v.u |= (size >= 0x7c00u ? 0x7f800000u : 0) | (uint32_t)(h & 0x8000u) << 16;
    return v.f;
}
/* A half at any address. */
static inline uint16_t half_at(const void *halves, int64_t i)
{
    uint16_t h;
    memcpy(&h, (const char *)halves + i * (int64_t)sizeof h, sizeof h);
    return h;
}
/* Many f16 or bf16, at any address, to f32. */
void half_widen(half_format format, const void *from, int64_t n, float *to);
/* Is it an f16 number? */
static inline bool f32_is_f16(float value)
{
    union {
        float f;
        uint32_t u;
    } v = {value};
    uint32_t e = v.u >> 23 & 255, low = e < 113 ? 126 - e : 13; /* bits that an f16 has not */
    if (e < 103)
        return v.u << 1 == 0;
    return e < 143 && ((v.u | 0x800000u) & ((1u << low) - 1)) == 0;
}
/* A number that is one as f16. */
static inline uint16_t f16_of_f32(float value)
{
    union {
        float f;
        uint32_t u;
    } v = {value};
    uint32_t e = v.u >> 23 & 255, sign = v.u >> 16 & 0x8000u;
    if (e >= 113)
        return (uint16_t)(sign | ((v.u >> 13 & 0x3ffffu) - (112u << 10)));
    if (e < 103)
        return (uint16_t)sign;
    return (uint16_t)(sign | ((v.u & 0x7fffffu) | 0x800000u) >> (126 - e));
}
static inline float bf16_to_f32(uint16_t h)
{
    union {
        uint32_t u;
        float f;
    } v = {(uint32_t)h << 16};
    return v.f;
}
static inline uint16_t f32_to_bf16(float value)
{
    union {
        float f;
        uint32_t u;
    } v = {value};
    if ((v.u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((v.u >> 16) | 0x40u); /* quiet NaN */
    return (uint16_t)((v.u + 0x7fffu + ((v.u >> 16) & 1u)) >> 16);
}

#endif
