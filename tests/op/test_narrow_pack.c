/* SPDX-License-Identifier: Apache-2.0
 * Panels of weights in few bits, packed in pieces: the same bytes as element by element. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "cpu/gemm.h"
#include "op/narrow_pack.h"

enum { FILLED = 0xA5 };

/* A matrix and where it was put. */
typedef struct matrix {
    op_narrow s;
    op_narrow_data d;
    ir_tensor w, scale, zero;
} matrix;

static void *filled(size_t bytes)
{
    void *p = malloc(bytes + 1);
    assert_non_null(p);
    memset(p, FILLED, bytes + 1);
    return p;
}

static ir_tensor tensor(tacit_dtype dtype, int64_t count)
{
    ir_tensor t = {.dtype = dtype, .bytes = (size_t)(count * tacit_dtype_bits(dtype) + 7) / 8};
    t.shape.rank = 1;
    t.shape.dims[0] = count;
    t.data = filled(t.bytes);
    return t;
}

static ir_tensor random_bytes(rng *r, tacit_dtype dtype, int64_t count)
{
    ir_tensor t = tensor(dtype, count);
    for (size_t i = 0; i < t.bytes; i++)
        ((uint8_t *)t.data)[i] = (uint8_t)rng_below(r, 256);
    return t;
}

static ir_tensor random_floats(rng *r, int64_t count, bool halves, double low, double high)
{
    ir_tensor t = tensor(TACIT_F32, count);
    for (int64_t i = 0; i < count; i++) {
        float x = (float)rng_range(r, low, high);
        ((float *)t.data)[i] = halves ? half_to_f32(half_encode(HALF_F16, x, false)) : x;
    }
    return t;
}

static void point(matrix *m)
{
    m->d = (op_narrow_data){&m->w, m->scale.data ? &m->scale : NULL, m->zero.data ? &m->zero : NULL,
                            m->w.data};
}

static void release(matrix *m)
{
    free(m->w.data), free(m->scale.data), free(m->zero.data);
}

/* --- element by element ------------------------------------------------------------------------
 */

static int field(const void *row, int64_t bits, int64_t i)
{
    return ((const uint8_t *)row)[i * bits / 8] >> i * bits % 8 & ((1 << bits) - 1);
}

/* As an unsigned number. */
static int stored(const matrix *m, int64_t p, int64_t j)
{
    const op_narrow *s = &m->s;
    int64_t row = p * s->n + j, column = j * s->k + p;
    switch (m->w.dtype) {
    case TACIT_I8:
        return (int)ir_load_i64(TACIT_I8, m->w.data, s->trans ? column : row) + 128;
    case TACIT_I4:
        return (int)ir_load_i64(TACIT_I4, m->w.data, s->trans ? column : row) + 8;
    case TACIT_U4:
        return (int)ir_load_i64(TACIT_U4, m->w.data, s->trans ? column : row);
    default:
        break;
    }
    if (s->kind == OP_NARROW_INT4)
        return field(m->w.data, 4, row);
    if (s->kind == OP_NARROW_NBITS)
        return field((const uint8_t *)m->w.data + j * s->blocks * (s->block * s->bits / 8), s->bits,
                     p);
    return ((const uint8_t *)m->w.data)[s->trans ? column : row];
}

static int64_t scale_at(const matrix *m, int64_t p, int64_t j)
{
    const op_narrow *s = &m->s;
    if (m->scale.shape.dims[0] == 1)
        return 0;
    return s->kind == OP_NARROW_NBITS || s->trans ? j * s->blocks + p / s->block
                                                  : p / s->block * s->n + j;
}

static double zero_of(const matrix *m, int64_t p, int64_t j)
{
    const op_narrow *s = &m->s;
    if (!m->d.zero)
        return s->kind == OP_NARROW_INT4 ? 8 : s->kind == OP_NARROW_NBITS ? 1 << (s->bits - 1) : 0;
    if (s->kind == OP_NARROW_NBITS && m->zero.dtype == TACIT_U8)
        return field((const uint8_t *)m->zero.data + j * ((s->blocks * s->bits + 7) / 8), s->bits,
                     p / s->block);
    return ir_load_f64(m->zero.dtype, m->zero.data, scale_at(m, p, j));
}

static int lift_of(const matrix *m)
{
    return m->w.dtype == TACIT_I8 ? 128 : m->w.dtype == TACIT_I4 ? 8 : 0;
}

static void check_layout(const matrix *m, const cpu_qdot_weights *w)
{
    bool halves = true, offsets = zero_of(m, 0, 0) != floor(zero_of(m, 0, 0));
    for (int64_t p = 0; p < m->s.k; p++)
        for (int64_t j = 0; j < m->s.n; j++) {
            float x = ((const float *)m->scale.data)[scale_at(m, p, j)];
            halves &= isfinite(x) && half_to_f32(half_encode(HALF_F16, x, false)) == x;
            offsets |= zero_of(m, p, j) != zero_of(m, 0, 0);
        }
    assert_int_equal(w->offsets, offsets);
    assert_int_equal(w->scale_kind, halves && !offsets ? CPU_QSCALE_F16 : CPU_QSCALE_F32);
    assert_int_equal(w->zero, offsets ? 0 : (int)zero_of(m, 0, 0) + lift_of(m));
}

static void put(char *to, const cpu_qdot_weights *w, int64_t at, float x)
{
    uint16_t half = half_encode(HALF_F16, x, false);
    if (w->scale_kind == CPU_QSCALE_F16)
        memcpy(to + 2 * at, &half, 2);
    else
        memcpy(to + 4 * at, &x, 4);
}

static void put_scales(const matrix *m, const cpu_qdot_weights *w, int64_t width, int64_t j,
                       int64_t g, char *to)
{
    for (int h = 0; h < w->subs; h++) {
        int64_t p = g * CPU_QGROUP + h * CPU_QGROUP / 2, at = h * width + j % width;
        float scale = p < m->s.k ? ((const float *)m->scale.data)[scale_at(m, p, j)] : 0;
        put(to, w, at, scale);
        if (w->offsets)
            put(to, w, w->subs * width + at,
                p < m->s.k ? scale * ((float)zero_of(m, p, j) + (float)lift_of(m)) : 0);
    }
}

/* Value i of a group of a column goes to byte i % 4 of a word of it. */
static void put_value(uint8_t *group, int bits, int64_t width, int64_t column, int i, int value)
{
    int word = bits == 8 ? i / 4 : i % 16 / 4;
    uint8_t *at = group + (word * width + column) * 4 + i % 4;
    *at = (uint8_t)(*at | value << (bits == 4 && i >= 16 ? 4 : 0));
}

static void pack_plainly(const matrix *m, const cpu_qdot_weights *w, int64_t width, char *memory)
{
    for (int64_t j = 0; j < m->s.n; j++) {
        int64_t t = j / width, group = cpu_qdot_group_bytes(w->bits, width);
        uint8_t *data = (uint8_t *)memory + ((const char *)w->data - memory) + t * w->data_step;
        char *scales = memory + ((const char *)w->scales - memory) + t * w->scale_step;
        for (int64_t p = 0; p < m->s.k; p++)
            put_value(data + p / CPU_QGROUP * group, w->bits, width, j % width,
                      (int)(p % CPU_QGROUP), stored(m, p, j));
        for (int64_t g = 0; g < w->groups; g++)
            put_scales(m, w, width, j, g, scales + g * cpu_qdot_scale_bytes(w, width));
    }
}

/* --- packed ------------------------------------------------------------------------------------
 */

static char *pack_in_pieces(const matrix *m, cpu_qdot_weights *w, bool super, int64_t width, rng *r,
                            size_t *bytes)
{
    int64_t panels = (m->s.n + width - 1) / width;
    *bytes = cpu_qdot_place(w, width, panels, super, NULL);
    char *memory = filled(*bytes);
    cpu_qdot_place(w, width, panels, super, memory);
    op_narrow_pack_args a = {
        .bytes = m->w.data, .memory = memory, .width = width, .s = m->s, .d = m->d, .w = *w};
    a.d.bytes = NULL; /* as in a job, whose weight may come late */
    bool by_rows = op_narrow_by_rows(&m->s);
    for (a.g_end = w->groups; a.g_end > 0; a.g_end = a.g_begin) {
        a.g_begin = by_rows && a.g_end > 3 ? a.g_end - 1 - (int64_t)rng_below(r, 3) : 0;
        for (int64_t t = panels; t > 0;) {
            int64_t first = t > 2 ? t - 1 - (int64_t)rng_below(r, 2) : 0;
            op_narrow_pack(&a, (uint32_t)first, (uint32_t)t);
            t = first;
        }
    }
    assert_int_equal((uint8_t)memory[*bytes], FILLED);
    return memory;
}

static void check_panels(const matrix *m, rng *r)
{
    for (int64_t width = 8; width <= 32; width *= 2) {
        cpu_qdot_weights w;
        bool super;
        size_t bytes;
        assert_true(op_narrow_layout(&m->s, &m->d, &w, &super));
        assert_false(super);
        if (width == 8)
            check_layout(m, &w);
        char *packed = pack_in_pieces(m, &w, false, width, r, &bytes);
        char *wanted = filled(bytes);
        memset(wanted, 0, bytes);
        cpu_qdot_place(&w, width, (m->s.n + width - 1) / width, false, wanted);
        pack_plainly(m, &w, width, wanted);
        assert_memory_equal(packed, wanted, bytes);
        free(packed), free(wanted);
    }
}

static const int64_t sizes[][2] = {{32, 1},  {64, 33},  {96, 31},  {160, 40}, {61, 17},
                                   {512, 7}, {300, 65}, {33, 600}, {48, 64},  {320, 1030}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static matrix begin(op_narrow_kind kind, int64_t k, int64_t n, int64_t block)
{
    matrix m = {.s = {.kind = kind, .k = k, .n = n, .block = block < k ? block : k}};
    m.s.blocks = (k + m.s.block - 1) / m.s.block;
    return m;
}

/* Zero points: none, one for all, another for each block. */
static ir_tensor zeros(rng *r, int kind, tacit_dtype dtype, int64_t count)
{
    if (kind == 0)
        return (ir_tensor){0};
    ir_tensor t = random_bytes(r, dtype, count);
    if (kind == 1)
        memset(t.data, tacit_dtype_bits(dtype) == 4 ? 0x33 : 0x42, t.bytes);
    return t;
}

static void plain_schemes(void **state)
{
    (void)state;
    rng r = rng_seed(101);
    for (int t = 0; t < 12 * SIZES; t++) {
        int64_t k = sizes[t % SIZES][0], n = sizes[t % SIZES][1];
        int kind = t / SIZES % 3;
        int64_t block = t % 7 == 3 ? 16 : t % 2 ? 32 : k;
        matrix m = begin(kind == 2 ? OP_NARROW_INT4 : OP_NARROW_INT8, k, n, block);
        m.w = kind == 2 ? random_bytes(&r, TACIT_U8, (k * n + 1) / 2)
                        : random_bytes(&r, kind ? TACIT_I8 : TACIT_U8, k * n);
        m.scale = random_floats(&r, m.s.blocks * n, t % 3, -0.02, 0.02);
        m.zero = zeros(&r, t % 4 % 3, m.w.dtype, m.s.blocks * n);
        point(&m);
        check_panels(&m, &r);
        release(&m);
    }
}

static void blocks_of_bits(void **state)
{
    (void)state;
    rng r = rng_seed(102);
    for (int t = 0; t < 12 * SIZES; t++) {
        int64_t k = sizes[t % SIZES][0], n = sizes[t % SIZES][1], bits = 2 << t / SIZES % 3;
        static const int64_t blocks[] = {16, 32, 64, 128};
        matrix m = begin(OP_NARROW_NBITS, k, n, k);
        m.s.block = blocks[t % 4];
        m.s.blocks = (k + m.s.block - 1) / m.s.block;
        m.s.bits = bits;
        m.w = random_bytes(&r, TACIT_U8, n * m.s.blocks * (m.s.block * bits / 8));
        m.scale = random_floats(&r, m.s.blocks * n, t % 3, -1e-4, 1e-4); /* some f16 subnormal */
        if (t % 5 == 4)
            m.zero = random_floats(&r, m.s.blocks * n, false, 0, 15);
        else
            m.zero = zeros(&r, t % 5 % 3, TACIT_U8, n * ((m.s.blocks * bits + 7) / 8));
        point(&m);
        check_panels(&m, &r);
        release(&m);
    }
}

static void linear_schemes(void **state)
{
    (void)state;
    static const tacit_dtype types[] = {TACIT_I8, TACIT_U8, TACIT_I4, TACIT_U4};
    rng r = rng_seed(103);
    for (int t = 0; t < 24 * SIZES; t++) {
        int64_t k = sizes[t % SIZES][0], n = sizes[t % SIZES][1];
        bool one = t % 11 == 5;
        matrix m = begin(OP_NARROW_LINEAR, k, n, one || t % 2 ? k : 64);
        m.s.trans = t / SIZES % 2;
        m.w = random_bytes(&r, types[t / SIZES / 2 % 4], k * n);
        m.scale = random_floats(&r, one ? 1 : m.s.blocks * n, t % 3, -0.02, 0.02);
        m.zero = zeros(&r, t % 4 % 3, m.w.dtype, one ? 1 : m.s.blocks * n);
        point(&m);
        check_panels(&m, &r);
        release(&m);
    }
}

/* --- GGUF: what is packed means what the type says ---------------------------------------------
 */

static double scale_bits(const cpu_qdot_weights *w, const char *scales, int64_t at, double super)
{
    uint16_t half = 0;
    float x = 0;
    if (w->scale_kind == CPU_QSCALE_F32)
        memcpy(&x, scales + 4 * at, 4);
    if (w->scale_kind == CPU_QSCALE_F16)
        memcpy(&half, scales + 2 * at, 2);
    return w->scale_kind == CPU_QSCALE_F32   ? (double)x
           : w->scale_kind == CPU_QSCALE_F16 ? (double)half_to_f32(half)
           : w->scale_kind == CPU_QSCALE_U8  ? super * (uint8_t)scales[at]
                                             : super * (int8_t)scales[at];
}

static int value_in(const uint8_t *group, int bits, int64_t width, int64_t column, int i)
{
    if (bits == 8)
        return group[(i / 4 * width + column) * 4 + i % 4];
    int low = group[(i % 16 / 4 * width + column) * 4 + i % 4] >> i / 16 * 4 & 15;
    if (bits == 4)
        return low;
    int high = group[((4 + i / 16) * width + column) * 4 + i % 4] >> i % 16 / 4 * 2 & 3;
    return low | high << 4;
}

static void check_column(const matrix *m, const cpu_qdot_weights *w, int64_t width, int64_t j)
{
    int64_t t = j / width, c = j % width;
    const uint8_t *data = (const uint8_t *)w->data + t * w->data_step;
    const char *scales = (const char *)w->scales + t * w->scale_step;
    double *wanted = filled((size_t)m->s.k * sizeof *wanted);
    op_narrow_column(&m->s, &m->d, j, wanted);
    for (int64_t p = 0; p < m->s.k; p++) {
        int64_t g = p / CPU_QGROUP, h = w->subs == 2 ? p % CPU_QGROUP / 16 : 0;
        const char *at = scales + g * cpu_qdot_scale_bytes(w, width);
        double super[2] = {1, 1};
        for (int f = 0; w->super && f < 2; f++) {
            uint16_t half;
            memcpy(&half,
                   (const char *)w->super + t * w->super_step +
                       ((g / CPU_QSUPER * 2 + f) * width + c) * 2,
                   2);
            super[f] = half_to_f32(half);
        }
        int q = value_in(data + g * cpu_qdot_group_bytes(w->bits, width), w->bits, width, c,
                         (int)(p % CPU_QGROUP));
        double value = scale_bits(w, at, h * width + c, super[0]) * (q - w->zero);
        if (w->offsets)
            value -= scale_bits(w, at, (w->subs + h) * width + c, super[1]);
        assert_true(fabs(value - wanted[p]) <= 1e-6 * fabs(wanted[p]));
    }
    free(wanted);
}

static void gguf_types(void **state)
{
    (void)state;
    static const char *const names[] = {"Q4_0", "Q4_1", "Q5_0",   "Q5_1",   "Q8_0",
                                        "Q8_1", "Q2_K", "Q3_K",   "Q4_K",   "Q5_K",
                                        "Q6_K", "Q8_K", "IQ4_NL", "IQ4_XS", "MXFP4"};
    rng r = rng_seed(104);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int64_t width = 8; width <= 32; width *= 2) {
            const op_gguf_type *type = op_gguf_by_name(names[i]);
            matrix m = begin(OP_NARROW_GGUF, 3 * 256, 37, 3 * 256);
            cpu_qdot_weights w;
            bool super;
            size_t bytes;
            m.s.gguf = type;
            m.w = random_bytes(&r, TACIT_U8, op_narrow_size(&m.s));
            /* Numbers, not infinities, wherever a type has halves or a float: no high exponent. */
            for (size_t b = 0; b < m.w.bytes; b++)
                ((uint8_t *)m.w.data)[b] &= 0x3b;
            point(&m);
            assert_true(op_narrow_layout(&m.s, &m.d, &w, &super));
            char *packed = pack_in_pieces(&m, &w, super, width, &r, &bytes);
            for (int64_t j = 0; j < m.s.n; j++)
                check_column(&m, &w, width, j);
            free(packed);
            release(&m);
        }
}

/* --- widened -----------------------------------------------------------------------------------
 */

static void check_wide(const matrix *m, cpu_isa isa, rng *r)
{
    int64_t width = cpu_gemm_width(isa), panels = (m->s.n + width - 1) / width, k = m->s.k;
    size_t bytes = (size_t)(panels * width * k) * sizeof(float);
    float *packed = filled(bytes);
    double *column = filled((size_t)k * sizeof *column);
    op_narrow_widen_args a = {.bytes = m->w.data,
                              .packed = packed,
                              .width = width,
                              .pack = CPU_PICK(isa, cpu_gemm_pack_f32),
                              .s = m->s,
                              .d = m->d};
    a.d.bytes = NULL;
    for (a.k_end = k; a.k_end > 0; a.k_end = a.k_begin) {
        bool part = op_narrow_by_rows(&m->s) && a.k_end > 50;
        a.k_begin = part ? a.k_end - 1 - (int64_t)rng_below(r, 50) : 0;
        op_narrow_widen(&a, (uint32_t)(panels / 2), (uint32_t)panels);
        op_narrow_widen(&a, 0, (uint32_t)(panels / 2));
    }
    for (int64_t j = 0; j < m->s.n; j++) {
        op_narrow_column(&m->s, &m->d, j, column);
        for (int64_t p = 0; p < k; p++) {
            int64_t k0 = p / CPU_GEMM_KC * CPU_GEMM_KC;
            int64_t kc = k - k0 < CPU_GEMM_KC ? k - k0 : CPU_GEMM_KC;
            float got =
                packed[k0 * panels * width + j / width * width * kc + (p - k0) * width + j % width];
            assert_true(got == (float)column[p] || (isnan(got) && isnan(column[p])));
        }
    }
    assert_int_equal(((uint8_t *)packed)[bytes], FILLED);
    free(packed), free(column);
}

static void widened(void **state)
{
    (void)state;
    rng r = rng_seed(105);
    cpu_isa most = cpu_detect().isa;
    for (int t = 0; t < 16 * SIZES; t++) {
        int64_t k = sizes[t % SIZES][0], n = sizes[t % SIZES][1];
        int way = t / SIZES % 8;
        op_narrow_kind kind = way < 4    ? (op_narrow_kind)way
                              : way == 4 ? OP_NARROW_GGUF
                              : way == 5 ? OP_NARROW_NBITS
                                         : OP_NARROW_LINEAR;
        if (kind == OP_NARROW_GGUF)
            k = (k + 255) / 256 * 256;
        matrix m = begin(kind, k, n, kind == OP_NARROW_NVFP4 ? 16 : t % 2 ? 32 : k);
        m.s.bits = 4;
        m.s.trans = way == 7;
        m.s.format = t % 3;
        m.s.gguf = op_gguf_by_name(t % 2 ? "Q4_K" : "Q8_0");
        if (kind == OP_NARROW_NBITS) {
            m.s.block = 32;
            m.s.blocks = (k + 31) / 32;
        }
        tacit_dtype dtype = kind == OP_NARROW_LINEAR ? (t % 2 ? TACIT_I4 : TACIT_I8) : TACIT_U8;
        if (kind == OP_NARROW_FP8)
            m.s.block = k, m.s.blocks = 1;
        m.w = random_bytes(&r, dtype, op_narrow_size(&m.s));
        for (size_t b = 0; kind == OP_NARROW_GGUF && b < m.w.bytes; b++)
            ((uint8_t *)m.w.data)[b] &= 0x3b;
        if (kind == OP_NARROW_NVFP4)
            m.scale = random_bytes(&r, TACIT_U8, m.s.blocks * n);
        else if (kind != OP_NARROW_GGUF)
            m.scale = random_floats(&r, m.s.blocks * n, false, -0.02, 0.02);
        if (kind == OP_NARROW_NVFP4)
            m.zero = random_floats(&r, 1, false, 0.1, 1);
        point(&m);
        for (int isa = CPU_PORTABLE; isa <= (int)most; isa++)
            check_wide(&m, (cpu_isa)isa, &r);
        release(&m);
    }
}

/* Every f16 number, and its neighbours among the f32 ones. */
static void halves_are_known(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x10000; h++) {
        float x = half_to_f32((uint16_t)h);
        assert_int_equal(f32_is_f16(x), isfinite(x));
        if (!isfinite(x))
            continue;
        assert_int_equal(f16_of_f32(x), h);
        assert_false(f32_is_f16(nextafterf(x, INFINITY)) && x != 0);
        assert_false(f32_is_f16(x * 0.5f) &&
                     half_to_f32(half_encode(HALF_F16, x * 0.5f, false)) != x * 0.5f);
    }
    assert_false(f32_is_f16(65536.0f));
    assert_false(f32_is_f16(0x1p-25f));
    assert_false(f32_is_f16(0x1p-140f));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_schemes),  cmocka_unit_test(blocks_of_bits),
        cmocka_unit_test(linear_schemes), cmocka_unit_test(gguf_types),
        cmocka_unit_test(widened),        cmocka_unit_test(halves_are_known),
    };
    return cmocka_run_group_tests_name("weights in few bits, packed", tests, NULL, NULL);
}
