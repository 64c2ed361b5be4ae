/* SPDX-License-Identifier: Apache-2.0
 * The dealer's work for one element: the device's twin of fss_gate_deal. Both keys are all zero
 * before; io->in are masks, io->out receives the output masks (of SHARE: both shares). */
#ifndef CUDA_ELEM_DEAL_H
#define CUDA_ELEM_DEAL_H

#include "cuda/elem_step.h"

ELEM unsigned elem_light_seed(const cuda_gate *g)
{
    return g->heavy ? CUDA_SEED : CUDA_SEED_1;
}
ELEM uint8_t *elem_heavy_key(const elem_ctx *c, const cuda_item *it)
{
    return c->io->deal[c->g->heavy] + (c->g->heavy ? it->at_1 : it->at);
}
ELEM uint64_t elem_light(const elem_ctx *c, unsigned item, unsigned repeat)
{
    return elem_prf_word(c->e, elem_light_seed(c->g), c->id, elem_slot(item, repeat), c->i,
                         c->g->item[item].bits);
}
ELEM void elem_deal_word(const elem_ctx *c, unsigned item, unsigned repeat, uint64_t value)
{
    const cuda_item *it = &c->g->item[item];
    elem_write(elem_heavy_key(c, it) + repeat * elem_pack_bytes(it->bits, c->g->count),
               c->i * it->bits, it->bits, value - elem_light(c, item, repeat));
}
/* The sum of both parties' pseudo-random words. */
ELEM uint64_t elem_deal_mask(const elem_ctx *c, unsigned item, unsigned repeat)
{
    unsigned bits = c->g->item[item].bits;
    uint32_t slot = elem_slot(item, repeat);
    return elem_low(elem_prf_word(c->e, CUDA_SEED, c->id, slot, c->i, bits) +
                        elem_prf_word(c->e, CUDA_SEED_1, c->id, slot, c->i, bits),
                    bits);
}
ELEM void elem_deal_string(const elem_ctx *c, uint32_t slot, uint8_t *key, unsigned width,
                           elem_block value)
{
    unsigned low = width < 64 ? width : 64;
    elem_block rest =
        elem_xor(value, elem_prf_block(c->e, elem_light_seed(c->g), c->id, slot, c->i));
    elem_write(key, c->i * low, low, rest.lo);
    if (width > 64)
        elem_write(key + elem_pack_bytes(64, c->g->count), c->i * (width - 64), width - 64,
                   rest.hi);
}

/* ---- trees ---- */

ELEM void elem_deal_block(const elem_ctx *c, const cuda_item *it, uint64_t at, elem_block word)
{
    elem_store(c->io->deal[0] + it->at + at, word);
    elem_store(c->io->deal[1] + it->at_1 + at, word);
}
ELEM void elem_deal_bit(const elem_ctx *c, const cuda_item *it, uint64_t at, unsigned lane,
                        uint64_t bit)
{
    elem_write(c->io->deal[0] + it->at + at, lane, 1, bit);
    elem_write(c->io->deal[1] + it->at_1 + at, lane, 1, bit);
}

typedef struct elem_pair {
    elem_block n[2];
    uint64_t t[2];
} elem_pair;

/* A level of a tree of independent children; returns the right correction bit. */
ELEM uint64_t elem_deal_level(const elem_ctx *c, uint64_t a, elem_pair *s, elem_block *word)
{
    unsigned prg = c->g->prg;
    elem_block l0 = elem_hash(c->e, prg, CUDA_ROLE_TREE, s->n[0]);
    elem_block l1 = elem_hash(c->e, prg, CUDA_ROLE_TREE, s->n[1]);
    elem_block r0 = elem_hash(c->e, prg, CUDA_ROLE_RIGHT, s->n[0]);
    elem_block r1 = elem_hash(c->e, prg, CUDA_ROLE_RIGHT, s->n[1]);
    uint64_t mask = elem_mask(a), tl = (l0.lo ^ l1.lo ^ a ^ 1) & 1, tr = (r0.lo ^ r1.lo ^ a) & 1;
    elem_block lose = elem_xor(elem_and(elem_xor(l0, l1), mask), elem_and(elem_xor(r0, r1), ~mask));
    lose.lo &= ~(uint64_t)1;
    *word = elem_make(lose.lo | tl, lose.hi);
    uint64_t keep_t = (tl & ~mask) | (tr & mask & 1);
    ELEM_LOOP
    for (int p = 0; p < 2; p++) {
        uint64_t on = elem_mask(s->t[p]);
        elem_block keep = elem_xor(elem_and(p ? l1 : l0, ~mask), elem_and(p ? r1 : r0, mask));
        s->t[p] = (keep.lo ^ (keep_t & on)) & 1;
        keep.lo &= ~(uint64_t)1;
        s->n[p] = elem_xor(keep, elem_and(lose, on));
    }
    return tr;
}

ELEM void elem_deal_half(const elem_ctx *c, uint64_t a, elem_block delta, elem_pair *s,
                         elem_block *word)
{
    elem_block h0 = elem_hash(c->e, c->g->prg, CUDA_ROLE_TREE, s->n[0]);
    elem_block h1 = elem_hash(c->e, c->g->prg, CUDA_ROLE_TREE, s->n[1]);
    uint64_t right = elem_mask(a);
    *word = elem_xor(elem_xor(h0, h1), elem_and(delta, ~right));
    elem_block c0 = elem_and(*word, elem_mask(s->n[0].lo));
    elem_block c1 = elem_and(*word, elem_mask(s->n[1].lo));
    s->n[0] = elem_xor(elem_xor(h0, c0), elem_and(s->n[0], right));
    s->n[1] = elem_xor(elem_xor(h1, c1), elem_and(s->n[1], right));
}

ELEM elem_pair elem_deal_roots(const elem_ctx *c, unsigned item, unsigned tree)
{
    elem_pair s;
    ELEM_LOOP
    for (unsigned b = 0; b < 2; b++) {
        s.n[b] = elem_prf_block(c->e, CUDA_SEED + b, c->id, elem_slot(item, 0), c->i);
        s.n[b].lo = (s.n[b].lo & ~(uint64_t)1) | (tree == CUDA_HALF ? b : 0);
        s.t[b] = b;
    }
    return s;
}

/* Returns party 0's bit at alpha. */
ELEM uint64_t elem_deal_walk(const elem_ctx *c, unsigned item, uint64_t alpha)
{
    const cuda_item *it = &c->g->item[item];
    elem_tree t = elem_tree_at(c->g, (const uint8_t *)0, it, 0, c->i);
    uint64_t row = (uint64_t)t.words;
    unsigned half = c->g->tree == CUDA_HALF;
    elem_pair s = elem_deal_roots(c, item, c->g->tree);
    elem_block delta = elem_xor(s.n[0], s.n[1]), word;
    ELEM_NO_UNROLL
    for (unsigned level = it->bits; level > it->leaf; level--, row += t.row) {
        uint64_t a = alpha >> (level - 1) & 1;
        if (half) {
            elem_deal_half(c, a, delta, &s, &word);
        } else {
            uint64_t tr = elem_deal_level(c, a, &s, &word);
            elem_deal_bit(c, it, row + t.lanes * 16, t.lane, tr);
        }
        elem_deal_block(c, it, row + t.lane * 16, word);
    }
    if (half)
        s.t[0] = s.n[0].lo & 1;
    uint64_t position = alpha & 127, blocks = (uint64_t)1 << (it->leaf - 7), mine = 0;
    ELEM_NO_UNROLL
    for (uint64_t k = 0; k < blocks; k++, row += t.lanes * 16) {
        elem_block n0 = elem_make(s.n[0].lo, s.n[0].hi ^ k);
        elem_block n1 = elem_make(s.n[1].lo, s.n[1].hi ^ k);
        elem_block l0 = elem_hash(c->e, c->g->prg, CUDA_ROLE_LEAF, n0);
        elem_block l1 = elem_hash(c->e, c->g->prg, CUDA_ROLE_LEAF, n1);
        uint64_t here = elem_mask((((alpha >> 7 ^ k) & (blocks - 1)) - 1) >> 63);
        word = elem_xor(elem_xor(l0, l1), elem_and(elem_point(position), here));
        elem_deal_block(c, it, row + t.lane * 16, word);
        mine ^= elem_table_bit(elem_xor(l0, elem_and(word, elem_mask(s.t[0]))), position) & here;
    }
    return mine;
}

/* ---- digits ---- */

ELEM elem_block elem_string_shift(uint64_t bits, unsigned by)
{
    return elem_make(by < 64 ? bits << by : 0, by >= 64 ? bits << (by - 64)
                                               : by     ? bits >> (64 - by)
                                                        : 0);
}
ELEM void elem_deal_digits(const elem_ctx *c, unsigned item, uint64_t alpha)
{
    const cuda_item *it = &c->g->item[item];
    unsigned n = it->digits, shift = it->bits;
    uint64_t count = c->g->count;
    uint8_t *base = elem_heavy_key(c, it), *key = base;
    ELEM_NO_UNROLL
    for (unsigned d = 0; d < n; d++) {
        unsigned width = elem_digit_width(it, d);
        shift -= width;
        elem_deal_string(c, elem_slot(item, d), key, 1u << width,
                         elem_point(elem_low(alpha >> shift, width)));
        key += elem_string_bytes(1u << width, count);
    }
    ELEM_NO_UNROLL
    for (unsigned eval = 0; eval < it->repeat; eval++) {
        uint32_t slot = elem_slot(item, ELEM_SLOT_MASK + eval);
        uint64_t mask = elem_prf_word(c->e, CUDA_SEED, c->id, slot, c->i, 2 * n - 1) ^
                        elem_prf_word(c->e, CUDA_SEED_1, c->id, slot, c->i, 2 * n - 1);
        uint64_t e = 1;
        elem_block less = elem_make(0, 0);
        ELEM_NO_UNROLL
        for (unsigned d = 1; d < n; d++) {
            e |= (e & elem_mask(mask >> (n + d - 1))) << (1u << (d - 1));
            less = elem_xor(less, elem_string_shift(e & elem_mask(mask >> d), (1u << d) - 2));
        }
        key = base + elem_eval_at(it, eval, count);
        elem_deal_string(c, elem_slot(item, ELEM_SLOT_EQUAL + eval), key, 1u << (n - 1),
                         elem_make(e, 0));
        elem_deal_string(c, elem_slot(item, ELEM_SLOT_LESS + eval),
                         key + elem_string_bytes(1u << (n - 1), count), (1u << n) - 2, less);
    }
}

/* A comparison with alpha; returns party 0's bit at alpha where there is one. */
ELEM uint64_t elem_deal_tree(const elem_ctx *c, unsigned item, uint64_t alpha)
{
    const cuda_item *it = &c->g->item[item];
    if (it->type == CUDA_DIGITS) {
        elem_deal_digits(c, item, alpha);
        return 0;
    }
    if (it->bits > 7)
        return elem_deal_walk(c, item, alpha);
    elem_deal_string(c, elem_slot(item, 0), elem_heavy_key(c, it), 1u << it->bits,
                     elem_point(alpha));
    elem_block light = elem_prf_block(c->e, elem_light_seed(c->g), c->id, elem_slot(item, 0), c->i);
    return elem_table_bit(light, alpha) ^ (c->g->heavy == 0);
}

/* ---- comparison with a payload ---- */

/* Words of one side of both nodes, party 1's minus party 0's. */
ELEM void elem_dcf_gap(const elem_ctx *c, const cuda_item *it, unsigned role, const elem_pair *s,
                       uint64_t side, uint64_t gap[3])
{
    elem_block h0 = s->n[0], h1 = h0;
    ELEM_LOOP
    for (unsigned w = 0; w < 3; w++) {
        if (w >= it->repeat)
            break;
        if (w % 2 == 0) {
            h0 = elem_hash(c->e, c->g->prg, role,
                           elem_make(s->n[0].lo ^ side, s->n[0].hi ^ (w / 2)));
            h1 = elem_hash(c->e, c->g->prg, role,
                           elem_make(s->n[1].lo ^ side, s->n[1].hi ^ (w / 2)));
        }
        gap[w] =
            elem_low(w % 2 ? h1.hi : h1.lo, it->row) - elem_low(w % 2 ? h0.hi : h0.lo, it->row);
    }
}
ELEM void elem_deal_value(const elem_ctx *c, const cuda_item *it, uint64_t at, uint64_t bit,
                          uint64_t value)
{
    elem_write(c->io->deal[0] + it->at + at, bit, it->row, value);
    elem_write(c->io->deal[1] + it->at_1 + at, bit, it->row, value);
}
ELEM void elem_deal_direct(const elem_ctx *c, unsigned item, uint64_t alpha, const uint64_t beta[3])
{
    const cuda_item *it = &c->g->item[item];
    uint64_t batch = c->i / 32, rest = c->g->count - batch * 32;
    unsigned lanes = rest < 32 ? (unsigned)rest : 32, lane = (unsigned)(c->i % 32);
    uint64_t bits_at = (uint64_t)lanes * 16, values_at = bits_at + (lanes + 7) / 8;
    uint64_t step = elem_pack_bytes(it->row, lanes), row = values_at + it->repeat * step;
    uint64_t at = batch * elem_dcf_bytes(it, 32), left[3] = {0}, right[3] = {0};
    uint64_t value[3] = {0, 0, 0};
    elem_pair s = elem_deal_roots(c, item, CUDA_BGI);
    elem_block word;
    ELEM_NO_UNROLL
    for (unsigned level = it->bits; level-- > 0; at += row) {
        uint64_t bit = alpha >> level & 1, a = elem_mask(bit), sign = 1 - 2 * s.t[1];
        elem_dcf_gap(c, it, CUDA_ROLE_VALUE, &s, 0, left);
        elem_dcf_gap(c, it, CUDA_ROLE_VALUE, &s, 1, right);
        ELEM_LOOP
        for (unsigned w = 0; w < 3; w++) {
            if (w >= it->repeat)
                break;
            uint64_t lose = (left[w] & a) | (right[w] & ~a), keep = (right[w] & a) | (left[w] & ~a);
            uint64_t v = sign * (lose - value[w] + (elem_low(beta[w], it->row) & a));
            value[w] += sign * v - keep;
            elem_deal_value(c, it, at + values_at + w * step, (uint64_t)lane * it->row, v);
        }
        uint64_t tr = elem_deal_level(c, bit, &s, &word);
        elem_deal_block(c, it, at + lane * 16, word);
        elem_deal_bit(c, it, at + bits_at, lane, tr);
    }
    elem_dcf_gap(c, it, CUDA_ROLE_LEAF, &s, 0, left);
    ELEM_LOOP
    for (unsigned w = 0; w < 3; w++)
        if (w < it->repeat)
            elem_deal_value(c, it, at + w * step, (uint64_t)lane * it->row,
                            (1 - 2 * s.t[1]) * (left[w] - value[w]));
}

/* ---- parts of gates ---- */

ELEM uint64_t elem_deal_sign(const elem_ctx *c, unsigned tree, unsigned bit, unsigned m, uint64_t r)
{
    elem_deal_tree(c, tree, elem_low(0 - r, m - 1));
    return elem_deal_mask(c, bit, 0) ^ ((((0 - r) >> (m - 1)) ^ 1) & 1);
}
ELEM uint64_t elem_deal_choice(const elem_ctx *c, unsigned first, uint64_t rs, uint64_t rx)
{
    elem_deal_word(c, first, 0, rs);
    elem_deal_word(c, first + 1, 0, (2 * rs - 1) * rx);
    return elem_low(elem_deal_mask(c, first + 2, 0) + rs * rx, c->g->item[first + 2].bits);
}
ELEM void elem_deal_either(const elem_ctx *c, unsigned k, unsigned first, unsigned v, uint64_t rs,
                           unsigned bits)
{
    uint64_t p = elem_in(c, k), q = elem_in(c, k + 1);
    elem_put(c, v, 0, elem_low(elem_deal_choice(c, first, rs, p - q) + q, bits));
}
ELEM void elem_deal_carry(const elem_ctx *c, unsigned tree, unsigned bit, unsigned repeat,
                          unsigned word, uint64_t r)
{
    elem_deal_tree(c, tree, elem_low(r, c->g->item[tree].bits));
    elem_deal_word(c, word, 0, elem_deal_mask(c, bit, repeat));
}
ELEM void elem_deal_shifted(const elem_ctx *c, unsigned mask, uint64_t r)
{
    elem_put(c, 0, 0, elem_low(elem_deal_mask(c, mask, 0) + (r >> c->g->shift), c->g->out_bits));
}
ELEM void elem_deal_pieces(const elem_ctx *c)
{
    const cuda_gate *g = c->g;
    uint64_t r = elem_in(c, 0), *out = c->io->out[0] + c->i;
    elem_deal_tree(c, 0, elem_low(r, g->eff_bits));
    ELEM_NO_UNROLL
    for (unsigned o = 0; o < g->rows; o++)
        out[o * g->count] = elem_deal_mask(c, 4, o) + elem_piece(g, g->slope, o, g->thresholds) * r;
    ELEM_NO_UNROLL
    for (unsigned k = 0; k < g->thresholds; k++) {
        uint64_t rho = elem_deal_mask(c, 1, k);
        elem_deal_word(c, 2, k, rho);
        if (!g->slope)
            continue;
        elem_deal_word(c, 3, k, (2 * rho - 1) * r);
        for (unsigned o = 0; o < g->rows; o++)
            out[o * g->count] +=
                (elem_piece(g, g->slope, o, k) - elem_piece(g, g->slope, o, k + 1)) * rho * r;
    }
    ELEM_NO_UNROLL
    for (unsigned o = 0; o < g->rows; o++)
        out[o * g->count] = elem_low(out[o * g->count], g->out_bits);
}

ELEM void elem_deal_direct_shift(const elem_ctx *c)
{
    const uint64_t beta[3] = {1, 0, 0};
    uint64_t r = elem_in(c, 0);
    elem_deal_direct(c, 0, elem_low(r, c->g->shift), beta);
    if (c->g->item[1].repeat)
        elem_deal_word(c, 1, 0, r >> (c->g->in_bits - 1) & 1);
    elem_deal_shifted(c, 2, r);
}
ELEM uint64_t elem_deal_side(const elem_ctx *c, unsigned first, uint64_t rho, uint64_t r)
{
    elem_deal_word(c, first, 0, rho * r);
    elem_deal_word(c, first + 1, 0, r);
    return (1 - 2 * rho) * r;
}
ELEM void elem_deal_direct_sign(const elem_ctx *c)
{
    const cuda_gate *g = c->g;
    int two = g->kind == CUDA_MAX, index = two && g->index_bits;
    unsigned m = g->eff_bits, mask = index ? 6 : 4;
    uint64_t q = two ? elem_in(c, 1) : 0, r = elem_in(c, 0) - q, beta[3] = {0, 0, 0};
    uint64_t rho = (((0 - r) >> (m - 1)) ^ 1) & 1;
    beta[0] = 1 - 2 * rho;
    elem_deal_word(c, 1, 0, rho);
    beta[1] = elem_deal_side(c, 2, rho, r);
    elem_put(c, 0, 0, elem_low(elem_deal_mask(c, mask, 0) + q, g->out_bits));
    if (index) {
        uint64_t q2 = elem_in(c, 3);
        beta[2] = elem_deal_side(c, 4, rho, elem_in(c, 2) - q2);
        elem_put(c, 1, 0, elem_low(elem_deal_mask(c, mask + 1, 0) + q2, g->out1_bits));
    }
    elem_deal_direct(c, 0, elem_low(0 - r, m - 1), beta);
}
ELEM void elem_deal_direct_pieces(const elem_ctx *c)
{
    const cuda_gate *g = c->g;
    uint64_t r = elem_in(c, 0);
    const uint64_t beta[3] = {1, r, 0};
    elem_deal_direct(c, 0, elem_low(r, g->eff_bits), beta);
    if (g->slope)
        elem_deal_word(c, 1, 0, r);
    ELEM_NO_UNROLL
    for (unsigned o = 0; o < g->rows; o++)
        elem_put(c, 0, o,
                 elem_low(elem_deal_mask(c, 2, o) + elem_piece(g, g->slope, o, g->thresholds) * r,
                          g->out_bits));
}

/* ---- look-ups ---- */

/* The tree at -r; +1 or -1 as a ring word. */
ELEM uint64_t elem_deal_index(const elem_ctx *c, unsigned tree, uint64_t r)
{
    return 2 * elem_deal_tree(c, tree, elem_low(0 - r, c->g->item[tree].bits)) - 1;
}
ELEM void elem_deal_lut(const elem_ctx *c)
{
    uint64_t s = elem_deal_index(c, 0, elem_in(c, 0));
    elem_deal_word(c, 2, 0, s);
    ELEM_NO_UNROLL
    for (unsigned k = 0; k < c->g->rows; k++)
        elem_put(c, 0, k,
                 elem_low(elem_deal_mask(c, 3, k) + s * elem_deal_mask(c, 1, k), c->g->out_bits));
}
/* A word in all sets: alone and times either mask bit. */
ELEM void elem_deal_sets(const elem_ctx *c, unsigned item, unsigned per_set, unsigned word,
                         uint64_t value)
{
    elem_deal_word(c, item, word, value);
    if (c->g->kind != CUDA_CURVE)
        return;
    elem_deal_word(c, item, per_set + word, value * elem_in(c, 2));
    elem_deal_word(c, item, 2 * per_set + word, value * elem_in(c, 3));
}
ELEM void elem_deal_lines(const elem_ctx *c, uint64_t r)
{
    elem_lines w = elem_lines_of(c->g);
    if (w.r >= 0)
        elem_deal_word(c, SPLINE_LINES, (unsigned)w.r, r);
    ELEM_LOOP
    for (unsigned side = 0; side < 2; side++) {
        uint64_t bit = elem_in(c, 2 + side);
        if (w.c[side] >= 0)
            elem_deal_word(c, SPLINE_LINES, (unsigned)w.c[side], bit);
        if (w.cr[side] >= 0)
            elem_deal_word(c, SPLINE_LINES, (unsigned)w.cr[side], bit * r);
    }
}
ELEM void elem_deal_spline(const elem_ctx *c)
{
    const cuda_gate *g = c->g;
    unsigned d = g->degree, words = elem_spline_words(g), apart = g->inner_vectors == 2;
    uint64_t r = elem_in(c, 0), p[4] = {0}, rv[4] = {0};
    uint64_t out = elem_deal_mask(c, SPLINE_MASK, 0);
    p[0] = elem_deal_index(c, SPLINE_TREE, elem_in(c, 1));
    ELEM_LOOP
    for (unsigned j = 0; j < 4; j++) {
        if (j > d)
            break;
        if (j)
            p[j] = p[j - 1] * (0 - r);
        elem_deal_sets(c, SPLINE_WORDS, words, j, p[j]);
        rv[j] = elem_deal_mask(c, SPLINE_OPEN + (apart ? j : 0), apart ? 0 : j);
    }
    ELEM_LOOP
    for (unsigned k = 0; k < 2; k++) {
        unsigned item = k ? SPLINE_TOP1 : SPLINE_TOP0;
        if (!apart || k > d || !g->item[item].repeat)
            continue;
        uint64_t top = rv[k] >> (g->inner_bits[k] - 1);
        elem_deal_sets(c, item, k + 1, 0, p[0] * top);
        if (k)
            elem_deal_sets(c, item, 2, 1, p[1] * top);
    }
    ELEM_LOOP
    for (unsigned i = 0; i < 4; i++) {
        if (i > d)
            break;
        uint64_t q = 0;
        ELEM_LOOP
        for (unsigned k = 0; k < 4; k++)
            if (k >= i && k <= d)
                q -= elem_binomial(k, i) * rv[k] * p[k - i];
        if (i || g->kind == CUDA_CURVE)
            elem_deal_sets(c, SPLINE_WORDS, words, i ? d + i : 2 * d + 1, q);
        else
            out -= q;
    }
    if (g->kind == CUDA_CURVE)
        elem_deal_lines(c, r);
    elem_put(c, 0, 0, elem_low(out, g->out_bits));
}
ELEM void elem_deal_lut2_top(const elem_ctx *c, unsigned item, uint64_t st, uint64_t other)
{
    if (!c->g->item[item].repeat)
        return;
    elem_deal_word(c, item, 0, st);
    elem_deal_word(c, item, 1, st * other);
}
ELEM void elem_deal_lut2(const elem_ctx *c)
{
    uint64_t s = elem_deal_index(c, 0, elem_in(c, 0));
    s *= elem_deal_index(c, 1, elem_in(c, 1));
    uint64_t r0 = elem_deal_mask(c, LUT2_OPEN, 0), r1 = elem_deal_mask(c, LUT2_OPEN + 1, 0);
    uint64_t t0 = r0 >> (c->g->inner_bits[0] - 1), t1 = r1 >> (c->g->inner_bits[1] - 1);
    elem_put(c, 0, 0, elem_low(elem_deal_mask(c, LUT2_MASK, 0) - s * r0 * r1, c->g->out_bits));
    elem_deal_word(c, LUT2_WORDS, 0, s);
    elem_deal_word(c, LUT2_WORDS, 1, s * r1);
    elem_deal_word(c, LUT2_WORDS, 2, s * r0);
    elem_deal_lut2_top(c, LUT2_TOP0, s * t0, r1);
    elem_deal_lut2_top(c, LUT2_TOP1, s * t1, r0);
    if (c->g->item[LUT2_TOPS].repeat)
        elem_deal_word(c, LUT2_TOPS, 0, s * t0 * t1);
}

/* ---- truncation by digits whose products are words ---- */

ELEM void elem_deal_wide(const elem_ctx *c)
{
    const cuda_item *it = &c->g->item[WIDE_TABLES];
    unsigned n = it->digits, shift = it->bits, bits = c->g->item[WIDE_BITS].bits;
    uint64_t r = elem_in(c, 0);
    uint8_t *key = elem_heavy_key(c, it);
    ELEM_NO_UNROLL
    for (unsigned d = 0; d < n; d++) {
        unsigned width = elem_digit_width(it, d);
        shift -= width;
        elem_deal_string(c, elem_slot(WIDE_TABLES, d), key, 1u << width,
                         elem_point(elem_low(r >> shift, width)));
        key += elem_string_bytes(1u << width, c->g->count);
    }
    uint64_t mask = elem_prf_word(c->e, CUDA_SEED, c->id, elem_slot(WIDE_BITS, 0), c->i, bits) ^
                    elem_prf_word(c->e, CUDA_SEED_1, c->id, elem_slot(WIDE_BITS, 0), c->i, bits);
    ELEM_NO_UNROLL
    for (unsigned set = 0; set < 1u << (n - 1); set++) {
        uint64_t value = (((mask >> n) & set) ^ set) == 0;
        if (set)
            elem_deal_word(c, WIDE_PRODUCTS, set - 1, value);
        ELEM_NO_UNROLL
        for (unsigned d = 0; d < n; d++)
            if (!(set >> d))
                elem_deal_word(c, WIDE_PRODUCTS, elem_product_at(n, d, set), value & (mask >> d));
    }
    if (c->g->item[WIDE_TOP].repeat)
        elem_deal_word(c, WIDE_TOP, 0, r >> (c->g->in_bits - 1) & 1);
    elem_deal_shifted(c, WIDE_MASK, r);
}

ELEM void elem_deal(const elem_env *e, const cuda_gate *g, const cuda_io *io, unsigned kind,
                    unsigned form, uint64_t i)
{
    elem_ctx ctx;
    const elem_ctx *c = &ctx;
    ctx.e = e;
    ctx.g = g;
    ctx.io = io;
    ctx.id = g->id + *io->run;
    ctx.b = 0;
    ctx.i = i;
    ctx.opening = 0;
    switch (kind) {
    case CUDA_SHARE: {
        uint64_t r = elem_in(c, 0), light = elem_light(c, 0, 0);
        elem_deal_word(c, 0, 0, r);
        elem_put(c, 1 - g->heavy, 0, light);
        elem_put(c, g->heavy, 0, elem_low(r - light, g->in_bits));
        break;
    }
    case CUDA_BIT:
        elem_deal_word(c, 0, 0, elem_in(c, 0));
        elem_put(c, 0, 0, elem_deal_mask(c, 1, 0));
        break;
    case CUDA_DRELU:
        elem_put(c, 0, 0, elem_deal_sign(c, 0, 1, g->eff_bits, elem_in(c, 0)));
        break;
    case CUDA_LESS:
        elem_deal_tree(c, 0, elem_low(elem_in(c, 0), g->eff_bits));
        for (unsigned k = 0; k < g->thresholds; k++)
            elem_put(c, 0, k, elem_deal_mask(c, 1, k));
        break;
    case CUDA_SELECT:
        elem_put(c, 0, 0, elem_deal_choice(c, 0, elem_in(c, 0), elem_in(c, 1)));
        break;
    case CUDA_RELU:
        if (form == CUDA_DIRECT)
            elem_deal_direct_sign(c);
        else
            elem_put(c, 0, 0,
                     elem_deal_choice(c, 2, elem_deal_sign(c, 0, 1, g->eff_bits, elem_in(c, 0)),
                                      elem_in(c, 0)));
        break;
    case CUDA_PIECES:
        if (form == CUDA_DIRECT)
            elem_deal_direct_pieces(c);
        else
            elem_deal_pieces(c);
        break;
    case CUDA_MAX:
        if (form == CUDA_DIRECT) {
            elem_deal_direct_sign(c);
        } else {
            uint64_t rs = elem_deal_sign(c, 0, 1, g->eff_bits, elem_in(c, 0) - elem_in(c, 1));
            elem_deal_either(c, 0, 2, 0, rs, g->out_bits);
            if (g->index_bits)
                elem_deal_either(c, 2, 5, 1, rs, g->out1_bits);
        }
        break;
    case CUDA_TR:
        if (form == CUDA_DIRECT) {
            elem_deal_direct_shift(c);
        } else if (form == CUDA_WIDE) {
            elem_deal_wide(c);
        } else {
            elem_deal_carry(c, 0, 1, 0, 2, elem_in(c, 0));
            elem_deal_shifted(c, 3, elem_in(c, 0));
        }
        break;
    case CUDA_ARS:
        elem_deal_carry(c, 0, 2, 0, 3, elem_in(c, 0));
        if (g->shift)
            elem_deal_carry(c, 1, 2, 1, 4, elem_in(c, 0));
        elem_deal_shifted(c, 5, elem_in(c, 0));
        break;
    case CUDA_GAP:
        if (form == CUDA_DIRECT) {
            elem_deal_direct_shift(c);
            break;
        }
        if (form == CUDA_WIDE) {
            elem_deal_wide(c);
            break;
        }
        if (g->faithful)
            elem_deal_carry(c, 0, 1, 0, 2, elem_in(c, 0));
        if (g->item[3].repeat)
            elem_deal_word(c, 3, 0, elem_in(c, 0) >> (g->in_bits - 1) & 1);
        elem_deal_shifted(c, 4, elem_in(c, 0));
        break;
    case CUDA_LUT:
        elem_deal_lut(c);
        break;
    case CUDA_SPLINE:
    case CUDA_CURVE:
        elem_deal_spline(c);
        break;
    case CUDA_LUT2:
        elem_deal_lut2(c);
        break;
    default: {
        uint64_t x = elem_in(c, 0), y = kind == CUDA_SQUARE ? x : elem_in(c, 1);
        elem_put(c, 0, 0, elem_low(elem_deal_mask(c, 0, 0) - x * y, g->out_bits));
        break;
    }
    }
}

#endif
