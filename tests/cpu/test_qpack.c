/* SPDX-License-Identifier: Apache-2.0
 * Packing of right sides of bytes, against the definition of where each byte belongs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cpu/qpack.h"

enum { FILLED = 0xA5 };

static uint8_t *filled(int64_t bytes)
{
    uint8_t *p = malloc((size_t)bytes + 1);
    assert_non_null(p);
    memset(p, FILLED, (size_t)bytes + 1);
    return p;
}

static uint8_t *random_bytes(rng *r, int64_t count)
{
    uint8_t *p = filled(count);
    for (int64_t i = 0; i < count; i++)
        p[i] = (uint8_t)rng_below(r, 256);
    return p;
}

/* Byte by byte: [k/4][width][4] in each panel, zeros where there is nothing. */
static void pack_plainly(const cpu_qgemm_pack_args *p, uint8_t *packed, int32_t *sums)
{
    int64_t padded = (p->k + 3) / 4 * 4, channels = p->k / p->taps;
    for (int64_t j = 0; j < (p->n + p->width - 1) / p->width * p->width; j++) {
        int32_t sum = 0;
        for (int64_t k = 0; k < padded; k++) {
            int64_t from = k % channels * p->taps + k / channels;
            bool there = j < p->n && k < p->k;
            uint8_t v = there ? (uint8_t)(p->b[from * p->b_row + j * p->b_col] ^ p->flip) : 0;
            packed[j / p->width * p->width * padded + (k / 4 * p->width + j % p->width) * 4 +
                   k % 4] = v;
            sum += v;
        }
        if (j < p->n)
            sums[j] = sum;
    }
}

static void check_right_side(cpu_qgemm_pack_args a, rng *r, int64_t step)
{
    int64_t bytes = cpu_qgemm_pack_bytes(a.k, a.n, a.width), panels = (a.n + a.width - 1) / a.width;
    int64_t pieces = (a.k + step - 1) / step;
    uint8_t *b = random_bytes(r, a.k * a.n), *packed = filled(bytes), *wanted = filled(bytes);
    size_t table = (size_t)a.n * sizeof(int32_t);
    int32_t *parts = malloc((size_t)pieces * table), *sums = malloc(table), *right = malloc(table);
    assert_true(parts && sums && right);
    a.b = b;
    a.packed = packed;
    pack_plainly(&a, wanted, right);
    for (int64_t i = pieces; i-- > 0;) {
        a.col_sum = parts + i * a.n;
        a.k_begin = i * step;
        a.k_end = (i + 1) * step < a.k ? (i + 1) * step : a.k;
        for (int64_t t = panels; t > 0;) { /* in any order, by some panels */
            int64_t first = t > 3 ? t - 1 - rng_below(r, 3) : 0;
            cpu_qgemm_pack(&a, (uint32_t)first, (uint32_t)t);
            t = first;
        }
    }
    cpu_qgemm_sum(
        &(cpu_qgemm_sum_args){.parts = parts, .col_sum = sums, .pieces = pieces, .n = a.n}, 0, 1);
    assert_memory_equal(packed, wanted, (size_t)bytes);
    assert_int_equal(packed[bytes], FILLED);
    assert_memory_equal(sums, right, table);
    free(b), free(packed), free(wanted), free(parts), free(sums), free(right);
}

static const int64_t sizes[][2] = {{1, 1},   {3, 5},    {4, 32},  {5, 33},  {64, 96},   {67, 31},
                                   {130, 7}, {300, 50}, {771, 9}, {20, 70}, {1000, 40}, {9, 2100}};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void right_sides(void **state)
{
    (void)state;
    rng r = rng_seed(91);
    for (int t = 0; t < SIZES * 3 * 2; t++) {
        int64_t k = sizes[t % SIZES][0], n = sizes[t % SIZES][1];
        cpu_qgemm_pack_args a = {.k = k,
                                 .n = n,
                                 .taps = 1,
                                 .width = 8 << t / SIZES % 3,
                                 .flip = t / SIZES / 3 ? 0x80 : 0};
        a.b_row = n, a.b_col = 1;
        check_right_side(a, &r, k);
        check_right_side(a, &r, 4);
        check_right_side(a, &r, (k / 3 + 4) / 4 * 4);
        a.b_row = 1, a.b_col = k;
        check_right_side(a, &r, k);
        for (a.taps = 2; a.taps < 12; a.taps++)
            if (k % a.taps == 0)
                check_right_side(a, &r, k);
    }
}

/* Byte by byte: [pieces][piece/4][columns][4] in each panel, zeros where there is nothing. */
static void check_windows(cpu_qconv_pack_args a, rng *r)
{
    int64_t k = a.taps / a.run * a.piece, own = a.channels * a.taps;
    int64_t all = (a.n + a.vector - 1) / a.vector * a.vector;
    int64_t panels = (a.n + a.width - 1) / a.width;
    uint8_t *w = random_bytes(r, a.n * own), *packed = filled(all * k), *wanted = filled(all * k);
    int32_t *begin = malloc((size_t)(panels * a.width) * sizeof *begin);
    assert_non_null(begin);
    a.w = w, a.packed = (int8_t *)packed, a.begin = begin;
    memset(wanted, 0, (size_t)(all * k));
    cpu_qconv_pack(&a, 0, (uint32_t)panels / 2);
    cpu_qconv_pack(&a, (uint32_t)panels / 2, (uint32_t)panels);
    for (int64_t j = 0; j < a.n; j++) {
        int64_t panel = j / a.width * a.width;
        int64_t columns = all - panel < a.width ? all - panel : a.width;
        int32_t sum = 0;
        for (int64_t i = 0; i < own; i++) {
            int64_t tap = i % a.taps;
            int64_t at = tap / a.run * a.piece + tap % a.run * a.pitch + i / a.taps;
            int8_t v = (int8_t)(w[j * own + i] ^ a.flip);
            wanted[panel * k + (at / 4 * columns + j % a.width) * 4 + at % 4] = (uint8_t)v;
            sum += v;
        }
        assert_int_equal(begin[j], -a.zero * sum);
    }
    for (int64_t j = a.n; j < all; j++)
        assert_int_equal(begin[j], 0);
    assert_memory_equal(packed, wanted, (size_t)(all * k) + 1);
    free(w), free(packed), free(wanted), free(begin);
}

static void windows(void **state)
{
    (void)state;
    static const struct {
        int64_t channels, taps, run, pitch, piece;
    } forms[] = {
        {1, 1, 1, 1, 4},      {3, 49, 7, 3, 24},      {3, 49, 7, 4, 28},     {64, 1, 1, 64, 64},
        {70, 1, 1, 72, 72},   {68, 9, 3, 68, 204},    {64, 9, 3, 64, 192},   {130, 9, 3, 132, 396},
        {5, 9, 1, 8, 8},      {128, 25, 5, 128, 640}, {6, 121, 11, 6, 68},   {65, 8, 2, 68, 136},
        {64, 16, 4, 64, 256}, {4, 1, 1, 8, 8},        {200, 3, 1, 200, 200},
    };
    static const int64_t columns[] = {1, 4, 15, 16, 64, 70, 131};
    rng r = rng_seed(94);
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (size_t i = 0; i < sizeof columns / sizeof *columns * 6; i++) {
            int64_t width = (int64_t)8 << (i % 3 + i % 3 / 2);
            check_windows((cpu_qconv_pack_args){.n = columns[i / 6],
                                                .channels = forms[f].channels,
                                                .taps = forms[f].taps,
                                                .run = forms[f].run,
                                                .pitch = forms[f].pitch,
                                                .piece = forms[f].piece,
                                                .width = width,
                                                .vector = width == 64 ? 16 : width / 2,
                                                .zero = i % 4 == 1 ? 0 : 7 * (int32_t)i - 20,
                                                .flip = i / 3 % 2 ? 0x80 : 0},
                          &r);
        }
}

/* Where cpu_qdot looks for value i of a group: a word of the column, a byte of it, a bit. */
static void groups_of_columns(void **state)
{
    (void)state;
    rng r = rng_seed(92);
    for (int t = 0; t < 200; t++)
        for (int bits = 4; bits <= 8; bits += 2) {
            uint8_t q[32], to[32], nibbles[16], same[16];
            for (int i = 0; i < 32; i++)
                q[i] = (uint8_t)rng_below(&r, 1u << bits);
            cpu_qpack_group(q, bits, to);
            for (int i = 0; i < 32; i++) {
                int got = bits == 8 ? to[i] : to[i % 16] >> i / 16 * 4 & 15;
                if (bits == 6) /* byte i % 4 of a word for each half of the group */
                    got |= (to[16 + i / 16 * 4 + i % 4] >> i % 16 / 4 * 2 & 3) << 4;
                assert_int_equal(got, q[i]);
            }
            for (int i = 0; bits == 4 && i < 16; i++)
                nibbles[i] = (uint8_t)(q[2 * i] | q[2 * i + 1] << 4);
            if (bits == 4) {
                cpu_qpack_nibbles(nibbles, same);
                assert_memory_equal(same, to, sizeof same);
            }
        }
}

static void words_are_turned(void **state)
{
    (void)state;
    rng r = rng_seed(93);
    for (int words = 1; words <= 16; words++) {
        enum { COLUMN = 70, ROW = 48 };
        uint8_t *from = random_bytes(&r, 3 * COLUMN + 4 * words);
        uint8_t *to = filled(ROW * words);
        cpu_qpack_turn(from, COLUMN, words, to, ROW);
        for (int i = 0; i < ROW * words; i++) {
            int column = i % ROW / 4;
            assert_int_equal(to[i],
                             column < 4 ? from[column * COLUMN + i / ROW * 4 + i % 4] : FILLED);
        }
        free(from), free(to);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_sides),
        cmocka_unit_test(windows),
        cmocka_unit_test(groups_of_columns),
        cmocka_unit_test(words_are_turned),
    };
    return cmocka_run_group_tests_name("packing of bytes", tests, NULL, NULL);
}
