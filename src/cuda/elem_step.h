/* SPDX-License-Identifier: Apache-2.0
 * One party's step of a gate for one element: the device's twin of fss_gate_step. */
#ifndef CUDA_ELEM_STEP_H
#define CUDA_ELEM_STEP_H

#include "cuda/elem_key.h"

/* ---- parts of gates ---- */

ELEM uint64_t elem_sign(const elem_ctx *c, unsigned tree, unsigned bit, unsigned m, uint64_t x)
{
    uint64_t less = elem_less(c, tree, 0, elem_low(~x, m - 1));
    return less ^ elem_own(c, bit, 0) ^ (c->b & (x >> (m - 1)) & 1);
}
ELEM uint64_t elem_choice(const elem_ctx *c, unsigned first, uint64_t s, uint64_t x)
{
    uint64_t rs = elem_word(c, first, 0), word = elem_word(c, first + 1, 0);
    uint64_t sum = elem_own(c, first + 2, 0) + c->b * s * x + (1 - 2 * s) * x * rs + s * word;
    return elem_low(sum, c->g->item[first + 2].bits);
}
ELEM void elem_either(const elem_ctx *c, unsigned k, unsigned first, unsigned v, unsigned bits)
{
    uint64_t p = elem_in(c, k), q = elem_in(c, k + 1);
    uint64_t y = elem_choice(c, first, elem_opened(c, 0), p - q);
    elem_put(c, v, 0, elem_low(y + c->b * q, bits));
}
ELEM void elem_carry(const elem_ctx *c, unsigned tree, unsigned bit, unsigned repeat,
                     uint64_t offset)
{
    uint64_t point = elem_low(elem_in(c, 0) + offset, c->g->item[tree].bits);
    uint64_t less = elem_less(c, tree, 0, point);
    elem_put(c, 0, repeat, less ^ elem_own(c, bit, repeat));
}
ELEM uint64_t elem_add_carry(const elem_ctx *c, unsigned repeat, unsigned word, uint64_t times)
{
    uint64_t open = elem_opened(c, repeat), share = elem_word(c, word, 0);
    return times * (c->b * open + (1 - 2 * open) * share);
}
ELEM uint64_t elem_shifted(const elem_ctx *c, unsigned mask, uint64_t offset, uint64_t back)
{
    uint64_t u = elem_low(elem_in(c, 0) + offset, c->g->in_bits);
    return elem_own(c, mask, 0) + c->b * ((u >> c->g->shift) - back);
}

ELEM void elem_ars(const elem_ctx *c, unsigned step)
{
    const cuda_gate *g = c->g;
    unsigned kept = g->in_bits - g->shift;
    uint64_t half = (uint64_t)1 << (g->in_bits - 1);
    if (step == 0) {
        elem_carry(c, 0, 2, 0, half);
        if (g->shift)
            elem_carry(c, 1, 2, 1, half);
        return;
    }
    uint64_t out = elem_shifted(c, 5, half, (uint64_t)1 << (kept - 1));
    out += elem_add_carry(c, 0, 3, (uint64_t)1 << kept);
    if (g->shift)
        out += elem_add_carry(c, 1, 4, ~(uint64_t)0);
    elem_put(c, 0, 0, elem_low(out, g->out_bits));
}
ELEM void elem_gap(const elem_ctx *c, unsigned step)
{
    const cuda_gate *g = c->g;
    unsigned bits = g->in_bits, kept = bits - g->shift;
    uint64_t quarter = (uint64_t)1 << (bits - 2);
    if (step == 0 && g->faithful) {
        elem_carry(c, 0, 1, 0, quarter);
        return;
    }
    uint64_t out = elem_shifted(c, 4, quarter, (uint64_t)1 << (kept - 2));
    if (g->item[3].repeat)
        out += (elem_word(c, 3, 0) << kept) & ~elem_mask((elem_in(c, 0) + quarter) >> (bits - 1));
    if (g->faithful)
        out += elem_add_carry(c, 0, 2, ~(uint64_t)0);
    elem_put(c, 0, 0, elem_low(out, g->out_bits));
}

/* ---- truncation by digits whose products are words ---- */

enum { WIDE_TABLES, WIDE_BITS, WIDE_PRODUCTS, WIDE_TOP, WIDE_MASK };

ELEM uint64_t elem_wide_offset(const cuda_gate *g)
{
    return g->kind == CUDA_GAP ? (uint64_t)1 << (g->in_bits - 2) : 0;
}
ELEM unsigned elem_product_at(unsigned digits, unsigned d, unsigned set)
{
    return (1u << (digits - 1)) - 1 + (1u << d) - 1 + set;
}
ELEM void elem_wide_open(const elem_ctx *c)
{
    const cuda_item *it = &c->g->item[WIDE_TABLES];
    unsigned n = it->digits, shift = it->bits;
    uint64_t mask = elem_own(c, WIDE_BITS, 0), x = elem_in(c, 0) + elem_wide_offset(c->g);
    uint64_t at = it->at;
    ELEM_NO_UNROLL
    for (unsigned d = 0; d < n; d++) {
        unsigned width = elem_digit_width(it, d);
        elem_block table = elem_string(c, elem_slot(WIDE_TABLES, d), at, 1u << width);
        at += elem_string_bytes(1u << width, c->g->count);
        shift -= width;
        uint64_t digit = elem_low(x >> shift, width);
        elem_put(c, 0, d, elem_table_less(table, digit) ^ (mask >> d & 1));
        if (d + 1 < n)
            elem_put(c, 0, n + d, elem_table_bit(table, digit) ^ (mask >> (n + d) & 1));
    }
}
/* Share of the borrow from the opened bits. */
ELEM uint64_t elem_borrow(const elem_ctx *c, unsigned digits)
{
    uint64_t equal = 0, less = 0, sum = 0;
    ELEM_NO_UNROLL
    for (unsigned k = 0; k < digits; k++) {
        less |= elem_opened(c, k) << k;
        if (k + 1 < digits)
            equal |= elem_opened(c, digits + k) << k;
    }
    ELEM_NO_UNROLL
    for (unsigned set = 0; set < 1u << (digits - 1); set++) {
        uint64_t whole = set ? elem_word(c, WIDE_PRODUCTS, set - 1) : c->b;
        uint64_t odd = 0 - elem_parity(equal & set);
        ELEM_NO_UNROLL
        for (unsigned d = 0; d < digits; d++) {
            uint64_t all = (1u << d) - 1;
            if (set >> d || ((equal | set) & all) != all) /* both public */
                continue;
            uint64_t word = elem_word(c, WIDE_PRODUCTS, elem_product_at(digits, d, set));
            uint64_t term = word + ((whole - 2 * word) & elem_mask(less >> d));
            sum += (term ^ odd) - odd;
        }
    }
    return sum;
}
ELEM void elem_wide(const elem_ctx *c, unsigned step)
{
    const cuda_gate *g = c->g;
    unsigned bits = g->in_bits, f = g->shift;
    if (step == 0) {
        elem_wide_open(c);
        return;
    }
    uint64_t offset = elem_wide_offset(g), u = elem_low(elem_in(c, 0) + offset, bits), wrap = 0;
    if (g->item[WIDE_TOP].repeat)
        wrap = (elem_word(c, WIDE_TOP, 0) << (bits - f)) & ~elem_mask(u >> (bits - 1));
    uint64_t out = elem_own(c, WIDE_MASK, 0) - elem_borrow(c, g->item[WIDE_TABLES].digits);
    elem_put(c, 0, 0, elem_low(out + c->b * ((u >> f) - (offset >> f)) + wrap, g->out_bits));
}

/* ---- many thresholds ---- */

ELEM void elem_bits(const elem_ctx *c)
{
    const cuda_gate *g = c->g;
    unsigned m = g->eff_bits;
    uint64_t half = (uint64_t)1 << (m - 1), u = elem_low(elem_in(c, 0) + half, m);
    uint64_t base = elem_less(c, 0, 0, u);
    ELEM_NO_UNROLL
    for (unsigned k = 0; k < g->thresholds; k++) {
        uint64_t t = elem_low((uint64_t)g->threshold[k] + half, m);
        uint64_t less = elem_less(c, 0, k + 1, elem_low(u - t, m));
        elem_put(c, 0, k, less ^ base ^ elem_own(c, 1, k) ^ (c->b & (u < t)));
    }
}
ELEM uint64_t elem_piece(const cuda_gate *g, const uint64_t *table, unsigned row, unsigned k)
{
    return table ? table[row * (g->thresholds + 1u) + k] : 0;
}
enum { ELEM_ROWS = 4 }; /* outputs kept in registers at a time */

ELEM void elem_pieces(const elem_ctx *c)
{
    const cuda_gate *g = c->g;
    uint64_t x = elem_in(c, 0), sum[ELEM_ROWS] = {0};
    ELEM_NO_UNROLL
    for (unsigned first = 0; first < g->rows; first += ELEM_ROWS) {
        ELEM_LOOP
        for (unsigned o = 0; o < ELEM_ROWS; o++)
            if (first + o < g->rows)
                sum[o] = elem_own(c, 4, first + o) +
                         c->b * (elem_piece(g, g->slope, first + o, g->thresholds) * x +
                                 elem_piece(g, g->base, first + o, g->thresholds));
        ELEM_NO_UNROLL
        for (unsigned k = 0; k < g->thresholds; k++) {
            uint64_t open = elem_opened(c, k), rho = elem_word(c, 2, k), word = 0;
            if (g->slope)
                word = elem_word(c, 3, k);
            rho = c->b * open + (1 - 2 * open) * rho;
            word = rho * x + open * word;
            ELEM_LOOP
            for (unsigned o = 0; o < ELEM_ROWS; o++)
                if (first + o < g->rows)
                    sum[o] += (elem_piece(g, g->base, first + o, k) -
                               elem_piece(g, g->base, first + o, k + 1)) *
                                  rho +
                              (elem_piece(g, g->slope, first + o, k) -
                               elem_piece(g, g->slope, first + o, k + 1)) *
                                  word;
        }
        ELEM_LOOP
        for (unsigned o = 0; o < ELEM_ROWS; o++)
            if (first + o < g->rows)
                elem_put(c, 0, first + o, elem_low(sum[o], g->out_bits));
    }
}

/* ---- gates that open nothing ---- */

ELEM void elem_direct_shift(const elem_ctx *c)
{
    const cuda_gate *g = c->g;
    unsigned bits = g->in_bits, f = g->shift;
    int gap = g->kind == CUDA_GAP;
    uint64_t quarter = gap ? (uint64_t)1 << (bits - 2) : 0;
    uint64_t back = gap ? (uint64_t)1 << (bits - f - 2) : 0, low[3], top = 0;
    uint64_t u = elem_low(elem_in(c, 0) + quarter, bits);
    elem_direct(c, 0, elem_low(u, f), low);
    if (g->item[1].repeat)
        top = elem_word(c, 1, 0);
    uint64_t wrap = (top << (bits - f)) & ~elem_mask(u >> (bits - 1));
    elem_put(c, 0, 0,
             elem_low(elem_own(c, 2, 0) + c->b * ((u >> f) - back) - low[0] + wrap, g->out_bits));
}
ELEM void elem_side(const elem_ctx *c, unsigned v, unsigned first, unsigned mask, uint64_t s,
                    uint64_t flip, uint64_t product, unsigned bits)
{
    int two = c->g->kind == CUDA_MAX;
    uint64_t x = elem_in(c, 2 * v), q = two ? elem_in(c, 2 * v + 1) : 0;
    uint64_t sr = elem_word(c, first, 0) + product, r = elem_word(c, first + 1, 0);
    sr = ((r - sr) & flip) | (sr & ~flip);
    elem_put(c, v, 0, elem_low(elem_own(c, mask, 0) + c->b * q + s * (x - q) - sr, bits));
}
ELEM void elem_direct_sign(const elem_ctx *c)
{
    const cuda_gate *g = c->g;
    int two = g->kind == CUDA_MAX, index = two && g->index_bits;
    unsigned m = g->eff_bits, mask = index ? 6 : 4;
    uint64_t x = elem_in(c, 0) - (two ? elem_in(c, 1) : 0), t[3];
    elem_direct(c, 0, elem_low(~x, m - 1), t);
    uint64_t flip = elem_mask(x >> (m - 1)), s = elem_word(c, 1, 0) + t[0];
    s = ((c->b - s) & flip) | (s & ~flip);
    elem_side(c, 0, 2, mask, s, flip, t[1], g->out_bits);
    if (index)
        elem_side(c, 1, 4, mask + 1, s, flip, t[2], g->out1_bits);
}
/* What evaluation k adds to rows first .. + ELEM_ROWS; k = 0 is that of u itself, in `base`. */
ELEM void elem_add_piece(const elem_ctx *c, unsigned k, unsigned first, uint64_t x, uint64_t u,
                         uint64_t r, const uint64_t less[3], const uint64_t base[3], uint64_t *sum)
{
    const cuda_gate *g = c->g;
    uint64_t half = (uint64_t)1 << (g->eff_bits - 1);
    uint64_t t = elem_low((uint64_t)g->threshold[k - 1] + half, g->eff_bits), below = u < t;
    uint64_t bit = less[0] - base[0] + c->b * below;
    uint64_t times = bit * x - (g->slope ? less[1] - base[1] + below * r : 0);
    ELEM_LOOP
    for (unsigned o = 0; o < ELEM_ROWS; o++)
        if (first + o < g->rows)
            sum[o] +=
                (elem_piece(g, g->base, first + o, k - 1) - elem_piece(g, g->base, first + o, k)) *
                    bit +
                (elem_piece(g, g->slope, first + o, k - 1) -
                 elem_piece(g, g->slope, first + o, k)) *
                    times;
}
ELEM void elem_piece_less(const elem_ctx *c, unsigned k, uint64_t u, uint64_t less[3])
{
    unsigned m = c->g->eff_bits;
    uint64_t half = (uint64_t)1 << (m - 1);
    uint64_t t = k ? elem_low((uint64_t)c->g->threshold[k - 1] + half, m) : 0;
    elem_direct(c, 0, elem_low(u - t, m), less);
}
ELEM void elem_put_piece(const elem_ctx *c, unsigned row, uint64_t x, uint64_t sum)
{
    const cuda_gate *g = c->g;
    sum += elem_own(c, 2, row) + c->b * (elem_piece(g, g->slope, row, g->thresholds) * x +
                                         elem_piece(g, g->base, row, g->thresholds));
    elem_put(c, 0, row, elem_low(sum, g->out_bits));
}
ELEM void elem_direct_pieces(const elem_ctx *c)
{
    const cuda_gate *g = c->g;
    uint64_t x = elem_in(c, 0), u = elem_low(x + ((uint64_t)1 << (g->eff_bits - 1)), g->eff_bits);
    uint64_t base[3] = {0}, less[3], r = g->slope ? elem_word(c, 1, 0) : 0;
    ELEM_NO_UNROLL
    for (unsigned first = 0; first < g->rows; first += ELEM_ROWS) {
        uint64_t sum[ELEM_ROWS] = {0};
        ELEM_NO_UNROLL
        for (unsigned k = 0; k <= g->thresholds; k++) {
            elem_piece_less(c, k, u, less);
            if (k)
                elem_add_piece(c, k, first, x, u, r, less, base, sum);
            ELEM_LOOP
            for (unsigned w = 0; w < 3 && !k; w++)
                base[w] = less[w];
        }
        ELEM_LOOP
        for (unsigned o = 0; o < ELEM_ROWS; o++)
            if (first + o < g->rows)
                elem_put_piece(c, first + o, x, sum[o]);
    }
}

/* ---- second steps of look-ups; the first are in elem_lookup.h ---- */

ELEM void elem_lut(const elem_ctx *c)
{
    uint64_t s = elem_word(c, 2, 0);
    ELEM_NO_UNROLL
    for (unsigned k = 0; k < c->g->rows; k++)
        elem_put(c, 0, k, elem_low(elem_own(c, 3, k) + elem_opened(c, k) * s, c->g->out_bits));
}
ELEM uint64_t elem_binomial(unsigned n, unsigned k)
{
    return k == 0 || k == n ? 1 : n; /* n <= 3 */
}

/* An opened word of s times a table: its value, and whether its mask's top bit counts (it was
 * opened in a ring narrower than the output's). */
typedef struct elem_lifted {
    uint64_t value, clear;
} elem_lifted;
ELEM elem_lifted elem_lift(const elem_ctx *c, unsigned k)
{
    const cuda_gate *g = c->g;
    unsigned apart = g->inner_vectors == 2, vector = apart ? k : 0, bits = g->inner_bits[vector];
    uint64_t open = c->io->opened[vector][(apart ? 0 : k) * g->count + c->i];
    uint64_t quarter = bits < g->out_bits ? (uint64_t)1 << (bits - 2) : 0;
    uint64_t u = elem_low(open + quarter, bits);
    elem_lifted l;
    l.value = u - quarter;
    l.clear = quarter ? 1 - (u >> (bits - 1)) : 0;
    return l;
}

/* ---- splines, alone or between two lines ---- */

enum {
    SPLINE_TREE,
    SPLINE_OPEN,
    SPLINE_WORDS = 3,
    SPLINE_TOP0,
    SPLINE_TOP1,
    SPLINE_LINES,
    SPLINE_MASK
};

ELEM unsigned elem_spline_words(const cuda_gate *g)
{
    return 2u * g->degree + (g->kind == CUDA_CURVE ? 2 : 1);
}
/* Where the words of the lines are, or -1: r; c and c r of either side. */
typedef struct elem_lines {
    int r, c[2], cr[2];
} elem_lines;
ELEM elem_lines elem_lines_of(const cuda_gate *g)
{
    elem_lines w;
    int n = 0;
    w.r = g->slope[0] || g->slope[1] ? n++ : -1;
    ELEM_LOOP
    for (int side = 0; side < 2; side++) {
        w.c[side] = g->slope[side] || g->base[side] ? n++ : -1;
        w.cr[side] = g->slope[side] ? n++ : -1;
    }
    return w;
}
/* Shares of the spline (set 0, up to a constant of the mask) or of it times a mask bit. */
ELEM uint64_t elem_spline_sum(const elem_ctx *c, unsigned set, uint64_t x)
{
    const cuda_gate *g = c->g;
    unsigned d = g->degree, first = set * elem_spline_words(g);
    uint64_t p[4] = {0}, power[4] = {1, 0, 0, 0}, total = 0;
    if (g->kind == CUDA_CURVE)
        total = elem_word(c, SPLINE_WORDS, first + 2 * d + 1);
    ELEM_LOOP
    for (unsigned j = 0; j < 4; j++) {
        if (j > d)
            break;
        p[j] = elem_word(c, SPLINE_WORDS, first + j);
        if (j) {
            power[j] = power[j - 1] * x;
            total += elem_word(c, SPLINE_WORDS, first + d + j) * power[j];
        }
    }
    ELEM_LOOP
    for (unsigned k = 0; k < 4; k++) {
        if (k > d)
            break;
        elem_lifted open = elem_lift(c, k);
        uint64_t inner = 0;
        ELEM_LOOP
        for (unsigned j = 0; j < 4; j++)
            if (j <= k)
                inner += elem_binomial(k, j) * power[j] * p[k - j];
        total += open.value * inner;
        unsigned item = k ? SPLINE_TOP1 : SPLINE_TOP0;
        if (k > 1 || g->inner_vectors != 2 || !g->item[item].repeat)
            continue;
        uint64_t top = elem_word(c, item, set * (k + 1));
        if (k)
            top = top * x + elem_word(c, item, set * 2 + 1);
        total += (top << g->inner_bits[k]) * open.clear;
    }
    return total;
}
ELEM uint64_t elem_line(const elem_ctx *c, const elem_lines *w, unsigned side, uint64_t x,
                        uint64_t r)
{
    const cuda_gate *g = c->g;
    if (w->c[side] < 0)
        return 0;
    uint64_t bit = elem_in(c, 2 + side), slope = g->slope[side], product = 0;
    uint64_t value = g->base[side] + slope * x;
    uint64_t mask = elem_word(c, SPLINE_LINES, (unsigned)w->c[side]);
    if (w->cr[side] >= 0)
        product = elem_word(c, SPLINE_LINES, (unsigned)w->cr[side]);
    uint64_t line = c->b * value - slope * r, turned = value * mask - slope * product;
    uint64_t open = side ? 1 - bit : bit, sign = side ? 2 * bit - 1 : 1 - 2 * bit;
    return open * line + sign * turned;
}
ELEM void elem_spline(const elem_ctx *c)
{
    uint64_t x = elem_in(c, 0), out = elem_own(c, SPLINE_MASK, 0);
    if (c->g->kind != CUDA_CURVE) {
        elem_put(c, 0, 0, elem_low(out + elem_spline_sum(c, 0, x), c->g->out_bits));
        return;
    }
    elem_lines w = elem_lines_of(c->g);
    uint64_t left = elem_in(c, 2), right = elem_in(c, 3), r = 0;
    out += (right - left) * elem_spline_sum(c, 0, x) - (1 - 2 * left) * elem_spline_sum(c, 1, x) +
           (1 - 2 * right) * elem_spline_sum(c, 2, x);
    if (w.r >= 0)
        r = elem_word(c, SPLINE_LINES, (unsigned)w.r);
    out += elem_line(c, &w, 0, x, r) + elem_line(c, &w, 1, x, r);
    elem_put(c, 0, 0, elem_low(out, c->g->out_bits));
}

/* ---- a product of two look-ups ---- */

enum { LUT2_OPEN = 2, LUT2_WORDS = 4, LUT2_TOP0, LUT2_TOP1, LUT2_TOPS, LUT2_MASK };

ELEM uint64_t elem_lut2_top(const elem_ctx *c, unsigned item, unsigned bits, uint64_t clear,
                            uint64_t other)
{
    if (!c->g->item[item].repeat)
        return 0;
    return ((other * elem_word(c, item, 0) - elem_word(c, item, 1)) << bits) * clear;
}
ELEM void elem_lut2(const elem_ctx *c)
{
    unsigned m0 = c->g->inner_bits[0], m1 = c->g->inner_bits[1];
    elem_lifted v0 = elem_lift(c, 0), v1 = elem_lift(c, 1);
    uint64_t out = elem_own(c, LUT2_MASK, 0) + v0.value * v1.value * elem_word(c, LUT2_WORDS, 0) -
                   v0.value * elem_word(c, LUT2_WORDS, 1) - v1.value * elem_word(c, LUT2_WORDS, 2);
    if (c->g->item[LUT2_TOPS].repeat && m0 + m1 < 64)
        out += v0.clear * v1.clear * (elem_word(c, LUT2_TOPS, 0) << (m0 + m1));
    out += elem_lut2_top(c, LUT2_TOP0, m0, v0.clear, v1.value) +
           elem_lut2_top(c, LUT2_TOP1, m1, v1.clear, v0.value);
    elem_put(c, 0, 0, elem_low(out, c->g->out_bits));
}

/* ---- products ---- */

ELEM void elem_product(const elem_ctx *c)
{
    int square = c->g->kind == CUDA_SQUARE;
    uint64_t x = elem_in(c, 0), rx = c->io->share[0][c->i];
    uint64_t y = square ? x : elem_in(c, 1), ry = square ? rx : c->io->share[1][c->i];
    elem_put(c, 0, 0, elem_low(elem_own(c, 0, 0) + c->b * x * y - x * ry - y * rx, c->g->out_bits));
}

/* Step `step` of `kind`, which the caller knows at compile time. Look-ups have their first step
 * elsewhere. */
ELEM void elem_step(const elem_env *e, const cuda_gate *g, const cuda_io *io, unsigned kind,
                    unsigned form, unsigned step, uint64_t i)
{
    elem_ctx ctx;
    const elem_ctx *c = &ctx;
    ctx.e = e;
    ctx.g = g;
    ctx.io = io;
    ctx.id = g->id + *io->run;
    ctx.b = g->party;
    ctx.i = i;
    ctx.opening = g->opens && step == 0;
    if (g->opens && step)
        step--;
    switch (kind) {
    case CUDA_SHARE:
        elem_put(c, 0, 0, elem_word(c, 0, 0));
        break;
    case CUDA_BIT: {
        uint64_t s = elem_in(c, 0), word = elem_word(c, 0, 0);
        elem_put(c, 0, 0, elem_low(elem_own(c, 1, 0) + c->b * s + (1 - 2 * s) * word, g->out_bits));
        break;
    }
    case CUDA_DRELU:
        elem_put(c, 0, 0, elem_sign(c, 0, 1, g->eff_bits, elem_in(c, 0) - (uint64_t)g->offset));
        break;
    case CUDA_LESS:
        elem_bits(c);
        break;
    case CUDA_SELECT:
        elem_put(c, 0, 0, elem_choice(c, 0, elem_in(c, 0), elem_in(c, 1)));
        break;
    case CUDA_RELU:
        if (form == CUDA_DIRECT)
            elem_direct_sign(c);
        else if (step == 0)
            elem_put(c, 0, 0, elem_sign(c, 0, 1, g->eff_bits, elem_in(c, 0)));
        else
            elem_put(c, 0, 0, elem_choice(c, 2, elem_opened(c, 0), elem_in(c, 0)));
        break;
    case CUDA_PIECES:
        if (form == CUDA_DIRECT)
            elem_direct_pieces(c);
        else if (step == 0)
            elem_bits(c);
        else
            elem_pieces(c);
        break;
    case CUDA_MAX:
        if (form == CUDA_DIRECT)
            elem_direct_sign(c);
        else if (step == 0)
            elem_put(c, 0, 0, elem_sign(c, 0, 1, g->eff_bits, elem_in(c, 0) - elem_in(c, 1)));
        else {
            elem_either(c, 0, 2, 0, g->out_bits);
            if (g->index_bits)
                elem_either(c, 2, 5, 1, g->out1_bits);
        }
        break;
    case CUDA_TR:
        if (form == CUDA_DIRECT)
            elem_direct_shift(c);
        else if (form == CUDA_WIDE)
            elem_wide(c, step);
        else if (step == 0)
            elem_carry(c, 0, 1, 0, 0);
        else
            elem_put(c, 0, 0,
                     elem_low(elem_shifted(c, 3, 0, 0) + elem_add_carry(c, 0, 2, ~(uint64_t)0),
                              g->out_bits));
        break;
    case CUDA_ARS:
        elem_ars(c, step);
        break;
    case CUDA_GAP:
        if (form == CUDA_DIRECT)
            elem_direct_shift(c);
        else if (form == CUDA_WIDE)
            elem_wide(c, step);
        else
            elem_gap(c, step);
        break;
    case CUDA_LUT:
        elem_lut(c);
        break;
    case CUDA_SPLINE:
    case CUDA_CURVE:
        elem_spline(c);
        break;
    case CUDA_LUT2:
        elem_lut2(c);
        break;
    default:
        elem_product(c);
        break;
    }
}

#endif
