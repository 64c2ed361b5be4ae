/* SPDX-License-Identifier: Apache-2.0
 * GGUF blocks taken apart into groups of 32 integers with their scales, for the byte kernels. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "op/narrow.h"

static uint16_t u16_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}
static uint16_t negated(uint16_t half)
{
    return half ^ 0x8000;
}
static uint32_t f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
/* Eight bytes at a time: a field of each, where masks cut off what comes from the neighbour. */
static uint64_t fields(const uint8_t *p, int shift, uint8_t mask)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x >> shift & mask * UINT64_C(0x0101010101010101);
}
static void put_fields(uint8_t *q, uint64_t x)
{
    memcpy(q, &x, sizeof x);
}
/* Nibbles of 16 bytes: the low ones, then the high ones. */
static void nibbles(const uint8_t *b, uint8_t *q)
{
    for (int w = 0; w < 16; w += 8) {
        put_fields(q + w, fields(b + w, 0, 15));
        put_fields(q + 16 + w, fields(b + w, 4, 15));
    }
}
static void flipped(const uint8_t *b, uint8_t *q)
{
    for (int w = 0; w < 32; w += 8)
        put_fields(q + w, fields(b + w, 0, 255) ^ UINT64_C(0x8080808080808080));
}
static int nibble(const uint8_t *q, int j)
{
    return j < 16 ? q[j] & 15 : q[j - 16] >> 4;
}
static int fifth(const uint8_t *bits, int j)
{
    return (bits[j / 8] >> j % 8 & 1) << 4;
}

static void q4_0(const uint8_t *b, int i, op_qgroup *o)
{
    (void)i;
    nibbles(b + 2, o->q);
    o->scale[0] = u16_at(b);
}
static void q4_1(const uint8_t *b, int i, op_qgroup *o)
{
    (void)i;
    nibbles(b + 4, o->q);
    o->scale[0] = u16_at(b);
    o->offset[0] = negated(u16_at(b + 2));
}
static void q5_0(const uint8_t *b, int i, op_qgroup *o)
{
    (void)i;
    for (int j = 0; j < 32; j++)
        o->q[j] = (uint8_t)(nibble(b + 6, j) | fifth(b + 2, j));
    o->scale[0] = u16_at(b);
}
static void q5_1(const uint8_t *b, int i, op_qgroup *o)
{
    (void)i;
    for (int j = 0; j < 32; j++)
        o->q[j] = (uint8_t)(nibble(b + 8, j) | fifth(b + 4, j));
    o->scale[0] = u16_at(b);
    o->offset[0] = negated(u16_at(b + 2));
}
static void q8_0(const uint8_t *b, int i, op_qgroup *o)
{
    (void)i;
    flipped(b + 2, o->q);
    o->scale[0] = u16_at(b);
}
static void q8_1(const uint8_t *b, int i, op_qgroup *o)
{
    (void)i;
    flipped(b + 4, o->q);
    o->scale[0] = u16_at(b);
}

/* Two bits of eight values of group i, from value w on: four groups share 32 bytes. */
static uint64_t plane(const uint8_t *q, int i, int w)
{
    return fields(q + i / 4 * 32 + w, 2 * (i % 4), 3);
}
static void q2_k(const uint8_t *b, int i, op_qgroup *o)
{
    for (int w = 0; w < 32; w += 8)
        put_fields(o->q + w, plane(b + 16, i, w));
    for (int h = 0; h < 2; h++) {
        o->scale[h] = b[2 * i + h] & 15;
        o->offset[h] = b[2 * i + h] >> 4;
    }
    o->super[0] = u16_at(b + 80);
    o->super[1] = u16_at(b + 82);
}
static void q3_k(const uint8_t *b, int i, op_qgroup *o)
{
    const uint8_t *s = b + 96;
    for (int w = 0; w < 32; w += 8)
        put_fields(o->q + w, plane(b + 32, i, w) | fields(b + w, i, 1) << 2);
    for (int h = 0; h < 2; h++) {
        int at = 2 * i + h, low = at < 8 ? s[at] & 15 : s[at - 8] >> 4;
        o->scale[h] = (uint8_t)((low | (s[8 + at % 4] >> 2 * (at / 4) & 3) << 4) - 32);
    }
    o->super[0] = u16_at(b + 108);
}
static void six_bits(const uint8_t *s, int i, op_qgroup *o)
{
    if (i < 4) {
        o->scale[0] = s[i] & 63;
        o->offset[0] = s[i + 4] & 63;
    } else {
        o->scale[0] = (uint32_t)((s[i + 4] & 15) | s[i - 4] >> 6 << 4);
        o->offset[0] = (uint32_t)(s[i + 4] >> 4 | s[i] >> 6 << 4);
    }
}
/* Four bits: two groups share 32 bytes. */
static uint64_t nibble_plane(const uint8_t *q, int i, int w)
{
    return fields(q + i / 2 * 32 + w, i % 2 * 4, 15);
}
static void q4_k(const uint8_t *b, int i, op_qgroup *o)
{
    for (int w = 0; w < 32; w += 8)
        put_fields(o->q + w, nibble_plane(b + 16, i, w));
    six_bits(b + 4, i, o);
    o->super[0] = u16_at(b);
    o->super[1] = u16_at(b + 2);
}
static void q5_k(const uint8_t *b, int i, op_qgroup *o)
{
    for (int w = 0; w < 32; w += 8)
        put_fields(o->q + w, nibble_plane(b + 48, i, w) | fields(b + 16 + w, i, 1) << 4);
    six_bits(b + 4, i, o);
    o->super[0] = u16_at(b);
    o->super[1] = u16_at(b + 2);
}
static void q6_k(const uint8_t *b, int i, op_qgroup *o)
{
    const uint8_t *low = b + i / 4 * 64 + i % 2 * 32; /* groups i and i + 2 share these */
    for (int w = 0; w < 32; w += 8)
        put_fields(o->q + w, fields(low + w, i % 4 / 2 * 4, 15) | plane(b + 128, i, w) << 4);
    o->scale[0] = b[192 + 2 * i];
    o->scale[1] = b[193 + 2 * i];
    o->super[0] = u16_at(b + 208);
}
static void q8_k(const uint8_t *b, int i, op_qgroup *o)
{
    memcpy(&o->scale[0], b, 4);
    flipped(b + 4 + 32 * i, o->q);
}

static const int8_t steps[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
static void iq4_nl(const uint8_t *b, int i, op_qgroup *o)
{
    (void)i;
    for (int j = 0; j < 32; j++)
        o->q[j] = (uint8_t)(steps[nibble(b + 2, j)] + 128);
    o->scale[0] = u16_at(b);
}
static void iq4_xs(const uint8_t *b, int i, op_qgroup *o)
{
    int low = b[4 + i / 2] >> (i % 2 * 4) & 15, high = u16_at(b + 2) >> 2 * i & 3;
    for (int j = 0; j < 32; j++)
        o->q[j] = (uint8_t)(steps[nibble(b + 8 + 16 * i, j)] + 128);
    o->scale[0] = (uint8_t)((low | high << 4) - 32);
    o->super[0] = u16_at(b);
}
static void mxfp4(const uint8_t *b, int i, op_qgroup *o)
{
    (void)i; /* codes are halves of whole numbers */
    for (int j = 0; j < 32; j++)
        o->q[j] = (uint8_t)(128 + 2 * half_decode(HALF_E2M1, (uint16_t)nibble(b + 1, j)));
    o->scale[0] = f32_bits((float)ldexp(0.5, b[0] - 127));
}

static const struct {
    const char *name;
    op_gguf_group_fn *group;
    uint8_t bits, subs;
    uint8_t zero;
    cpu_qscale kind;
    bool offsets, super;
} layouts[] = {
    {"Q4_0", q4_0, 4, 1, 8, CPU_QSCALE_F16, false, false},
    {"Q4_1", q4_1, 4, 1, 0, CPU_QSCALE_F16, true, false},
    {"Q5_0", q5_0, 6, 1, 16, CPU_QSCALE_F16, false, false},
    {"Q5_1", q5_1, 6, 1, 0, CPU_QSCALE_F16, true, false},
    {"Q8_0", q8_0, 8, 1, 128, CPU_QSCALE_F16, false, false},
    {"Q8_1", q8_1, 8, 1, 128, CPU_QSCALE_F16, false, false},
    {"Q2_K", q2_k, 4, 2, 0, CPU_QSCALE_U8, true, true},
    {"Q3_K", q3_k, 4, 2, 4, CPU_QSCALE_I8, false, true},
    {"Q4_K", q4_k, 4, 1, 0, CPU_QSCALE_U8, true, true},
    {"Q5_K", q5_k, 6, 1, 0, CPU_QSCALE_U8, true, true},
    {"Q6_K", q6_k, 6, 2, 32, CPU_QSCALE_I8, false, true},
    {"Q8_K", q8_k, 8, 1, 128, CPU_QSCALE_F32, false, false},
    {"IQ4_NL", iq4_nl, 8, 1, 128, CPU_QSCALE_F16, false, false},
    {"IQ4_XS", iq4_xs, 8, 1, 128, CPU_QSCALE_I8, false, true},
    {"MXFP4", mxfp4, 8, 1, 128, CPU_QSCALE_F32, false, false},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static int find(const op_gguf_type *t)
{
    for (int i = 0; i < LAYOUTS; i++)
        if (strcmp(layouts[i].name, t->name) == 0)
            return i;
    return -1;
}

bool op_gguf_layout(const op_gguf_type *t, cpu_qdot_weights *w, bool *super)
{
    int i = find(t);
    if (i < 0)
        return false;
    w->bits = layouts[i].bits;
    w->subs = layouts[i].subs;
    w->zero = layouts[i].zero;
    w->scale_kind = layouts[i].kind;
    w->offsets = layouts[i].offsets;
    *super = layouts[i].super;
    return true;
}

op_gguf_group_fn *op_gguf_group_of(const op_gguf_type *t)
{
    return layouts[find(t)].group;
}
