/* SPDX-License-Identifier: Apache-2.0 */
#include "op/gguf.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

static double f16_at(const uint8_t *p)
{
    return half_to_f32((uint16_t)(p[0] | p[1] << 8));
}
static uint32_t u32_at(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static double f32_at(const uint8_t *p)
{
    union {
        uint32_t u;
        float f;
    } v = {u32_at(p)};
    return v.f;
}
/* The low nibble holds element j < 16, the high nibble j + 16. */
static int nibble(const uint8_t *q, int j)
{
    return j < 16 ? q[j] & 15 : q[j - 16] >> 4;
}

static void q4_0(const uint8_t *b, double *y)
{
    for (int j = 0; j < 32; j++)
        y[j] = (nibble(b + 2, j) - 8) * f16_at(b);
}
static void q4_1(const uint8_t *b, double *y)
{
    for (int j = 0; j < 32; j++)
        y[j] = nibble(b + 4, j) * f16_at(b) + f16_at(b + 2);
}
static void q5_0(const uint8_t *b, double *y)
{
    for (int j = 0; j < 32; j++)
        y[j] = ((nibble(b + 6, j) | (int)(u32_at(b + 2) >> j & 1) << 4) - 16) * f16_at(b);
}
static void q5_1(const uint8_t *b, double *y)
{
    for (int j = 0; j < 32; j++)
        y[j] = (nibble(b + 8, j) | (int)(u32_at(b + 4) >> j & 1) << 4) * f16_at(b) + f16_at(b + 2);
}
static void q8_0(const uint8_t *b, double *y)
{
    for (int j = 0; j < 32; j++)
        y[j] = (int8_t)b[2 + j] * f16_at(b);
}
static void q8_1(const uint8_t *b, double *y)
{
    for (int j = 0; j < 32; j++)
        y[j] = (int8_t)b[4 + j] * f16_at(b);
}

/* Super-blocks of 256. Elements come in two halves of 128; inside a half, bit plane j of the 32
 * bytes q holds elements 32j … 32j+31. */
static int plane(const uint8_t *q, int bits, int e)
{
    return q[e / 128 * 32 + e % 32] >> bits * (e % 128 / 32) & ((1 << bits) - 1);
}

static void q2_k(const uint8_t *b, double *y) /* scales 16, q 64, d, dmin */
{
    double d = f16_at(b + 80), m = f16_at(b + 82);
    for (int e = 0; e < 256; e++)
        y[e] = d * (b[e / 16] & 15) * plane(b + 16, 2, e) - m * (b[e / 16] >> 4);
}
static void q3_k(const uint8_t *b, double *y) /* high bits 32, q 64, scales 12, d */
{
    const uint8_t *s = b + 96;
    double d = f16_at(b + 108);
    for (int e = 0; e < 256; e++) {
        int i = e / 16, low = i < 8 ? s[i] & 15 : s[i - 8] >> 4;
        int scale = (low | (s[8 + i % 4] >> 2 * (i / 4) & 3) << 4) - 32;
        int high = b[e % 32] >> e / 32 & 1;
        y[e] = d * scale * (plane(b + 32, 2, e) - (high ? 0 : 4));
    }
}
/* Eight 6-bit scales and minima in 12 bytes. */
static void six_bits(const uint8_t *s, int i, int *scale, int *least)
{
    if (i < 4) {
        *scale = s[i] & 63;
        *least = s[i + 4] & 63;
    } else {
        *scale = (s[i + 4] & 15) | s[i - 4] >> 6 << 4;
        *least = s[i + 4] >> 4 | s[i] >> 6 << 4;
    }
}
/* Each 64 elements share 32 bytes: low nibbles, then high nibbles. */
static int nibble64(const uint8_t *q, int e)
{
    return q[e / 64 * 32 + e % 32] >> (e % 64 / 32 * 4) & 15;
}
static void q4_k(const uint8_t *b, double *y) /* d, dmin, scales 12, q 128 */
{
    for (int e = 0; e < 256; e++) {
        int scale, least;
        six_bits(b + 4, e / 32, &scale, &least);
        y[e] = f16_at(b) * scale * nibble64(b + 16, e) - f16_at(b + 2) * least;
    }
}
static void q5_k(const uint8_t *b, double *y) /* d, dmin, scales 12, high 32, q 128 */
{
    for (int e = 0; e < 256; e++) {
        int scale, least, high = b[16 + e % 32] >> e / 32 & 1;
        six_bits(b + 4, e / 32, &scale, &least);
        y[e] = f16_at(b) * scale * (nibble64(b + 48, e) | high << 4) - f16_at(b + 2) * least;
    }
}
static void q6_k(const uint8_t *b, double *y) /* low 128, high 64, scales 16, d */
{
    double d = f16_at(b + 208);
    for (int e = 0; e < 256; e++) {
        int half = e / 128, k = e % 128;
        int low = b[half * 64 + k % 64] >> (k / 64 * 4) & 15;
        int high = b[128 + half * 32 + k % 32] >> (k / 32 * 2) & 3;
        y[e] = d * (int8_t)b[192 + e / 16] * ((low | high << 4) - 32);
    }
}
static void q8_k(const uint8_t *b, double *y) /* d as f32, q 256, sums */
{
    for (int e = 0; e < 256; e++)
        y[e] = f32_at(b) * (int8_t)b[4 + e];
}

/* A non-linear 4-bit code. */
static const int8_t steps[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
static void iq4_nl(const uint8_t *b, double *y)
{
    for (int j = 0; j < 32; j++)
        y[j] = steps[nibble(b + 2, j)] * f16_at(b);
}
static void iq4_xs(const uint8_t *b, double *y) /* d, high scales 2, low scales 4, q 128 */
{
    for (int e = 0; e < 256; e++) {
        int i = e / 32, low = b[4 + i / 2] >> (i % 2 * 4) & 15;
        int high = (b[2] | b[3] << 8) >> 2 * i & 3;
        y[e] = f16_at(b) * ((low | high << 4) - 32) * steps[nibble(b + 8 + 16 * i, e % 32)];
    }
}
static void mxfp4(const uint8_t *b, double *y) /* a power of two, q 16 */
{
    for (int j = 0; j < 32; j++)
        y[j] = ldexp(half_decode(HALF_E2M1, (uint16_t)nibble(b + 1, j)), b[0] - 127);
}

static const op_gguf_type types[] = {
    {"Q4_0", 2, 32, 18, q4_0},      {"Q4_1", 3, 32, 20, q4_1},        {"Q5_0", 6, 32, 22, q5_0},
    {"Q5_1", 7, 32, 24, q5_1},      {"Q8_0", 8, 32, 34, q8_0},        {"Q8_1", 9, 32, 36, q8_1},
    {"Q2_K", 10, 256, 84, q2_k},    {"Q3_K", 11, 256, 110, q3_k},     {"Q4_K", 12, 256, 144, q4_k},
    {"Q5_K", 13, 256, 176, q5_k},   {"Q6_K", 14, 256, 210, q6_k},     {"Q8_K", 15, 256, 292, q8_k},
    {"IQ4_NL", 20, 32, 18, iq4_nl}, {"IQ4_XS", 23, 256, 136, iq4_xs}, {"MXFP4", 39, 32, 17, mxfp4},
};

const op_gguf_type *op_gguf_by_name(const char *name)
{
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

const op_gguf_type *op_gguf_by_code(uint32_t code)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].code == code)
            return &types[i];
    return NULL;
}
