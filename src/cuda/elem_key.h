/* SPDX-License-Identifier: Apache-2.0
 * How one element of a gate reads key material: words, strings, trees, digits, comparisons with a
 * payload. */
#ifndef CUDA_ELEM_KEY_H
#define CUDA_ELEM_KEY_H

#include "cuda/elem.h"

typedef struct elem_ctx {
    const elem_env *e;
    const cuda_gate *g;
    const cuda_io *io;
    uint64_t id; /* of the gate in this run */
    uint64_t b;  /* party, as a factor of public terms */
    uint64_t i;  /* element */
    int opening; /* digits are being opened: other results are dropped */
} elem_ctx;

ELEM uint32_t elem_slot(unsigned item, unsigned repeat)
{
    return item << 12 | repeat;
}
ELEM uint64_t elem_in(const elem_ctx *c, unsigned k)
{
    return elem_low(c->io->in[k][c->i], c->g->input_bits[k]);
}
ELEM uint64_t elem_opened(const elem_ctx *c, unsigned row)
{
    return c->io->opened[0][row * c->g->count + c->i];
}
ELEM void elem_put(const elem_ctx *c, unsigned v, unsigned row, uint64_t value)
{
    if (!c->opening)
        c->io->out[v][row * c->g->count + c->i] = value;
}

/* This party's pseudo-random word; its share of a dealt word. */
ELEM uint64_t elem_own(const elem_ctx *c, unsigned item, unsigned repeat)
{
    return elem_prf_word(c->e, CUDA_SEED, c->id, elem_slot(item, repeat), c->i,
                         c->g->item[item].bits);
}
ELEM uint64_t elem_word(const elem_ctx *c, unsigned item, unsigned repeat)
{
    const cuda_item *it = &c->g->item[item];
    if (c->g->party != c->g->heavy)
        return elem_own(c, item, repeat);
    return elem_read(c->io->key + it->at + repeat * elem_pack_bytes(it->bits, c->g->count),
                     c->i * it->bits, it->bits);
}
/* Its share of a bit string. */
ELEM elem_block elem_string(const elem_ctx *c, uint32_t slot, uint64_t offset, unsigned width)
{
    if (c->g->party != c->g->heavy)
        return elem_cut(elem_prf_block(c->e, CUDA_SEED, c->id, slot, c->i), width);
    const uint8_t *key = c->io->key + offset;
    unsigned low = width < 64 ? width : 64;
    elem_block s = elem_make(elem_read(key, c->i * low, low), 0);
    if (width > 64)
        s.hi = elem_read(key + elem_pack_bytes(64, c->g->count), c->i * (width - 64), width - 64);
    return s;
}
ELEM uint64_t elem_string_bytes(unsigned width, uint64_t count)
{
    return width <= 64 ? elem_pack_bytes(width, count)
                       : elem_pack_bytes(64, count) + elem_pack_bytes(width - 64, count);
}

/* ---- trees ---- */

typedef struct elem_tree {
    const uint8_t *words;
    uint64_t row; /* bytes */
    unsigned lane, lanes, levels;
} elem_tree;

ELEM uint64_t elem_row_bytes(unsigned tree, unsigned lanes)
{
    return (uint64_t)lanes * 16 + (tree == CUDA_BGI ? (lanes + 7) / 8 : 0);
}
ELEM elem_tree elem_tree_at(const cuda_gate *g, const uint8_t *key, const cuda_item *it,
                            uint64_t at, uint64_t i)
{
    elem_tree t;
    uint64_t batch = i / 32, rest = g->count - batch * 32;
    t.levels = (unsigned)it->bits - it->leaf;
    t.lanes = rest < 32 ? (unsigned)rest : 32;
    t.lane = (unsigned)(i % 32);
    t.row = elem_row_bytes(g->tree, t.lanes);
    t.words = key + at + batch * (t.levels * elem_row_bytes(g->tree, 32) + (4u << it->leaf));
    return t;
}
ELEM elem_block elem_root(const elem_ctx *c, unsigned item)
{
    elem_block r = elem_prf_block(c->e, CUDA_SEED, c->id, elem_slot(item, 0), c->i);
    r.lo = (r.lo & ~(uint64_t)1) | (c->g->tree == CUDA_HALF ? c->b : 0);
    return r;
}

/* One level: to the child that the public bit names. */
ELEM void elem_down(const elem_ctx *c, const elem_tree *t, const uint8_t *row, uint64_t bit,
                    elem_block *node, uint64_t *on)
{
    elem_block word = elem_load(row + t->lane * 16);
    if (c->g->tree == CUDA_HALF) {
        elem_block h = elem_hash_inline(c->e, c->g->prg, CUDA_ROLE_TREE, *node);
        h = elem_xor(h, elem_and(word, elem_mask(*on)));
        *node = elem_xor(h, elem_and(*node, elem_mask(bit)));
        *on = node->lo & 1;
        return;
    }
    elem_block child =
        elem_hash(c->e, c->g->prg, (bit & 1) ? CUDA_ROLE_RIGHT : CUDA_ROLE_TREE, *node);
    uint64_t fix =
        (bit & 1) ? (uint64_t)(row[t->lanes * 16 + t->lane / 8] >> (t->lane % 8)) : word.lo;
    word.lo &= ~(uint64_t)1;
    uint64_t mask = elem_mask(*on);
    *on = (child.lo ^ (fix & mask)) & 1;
    child.lo &= ~(uint64_t)1;
    *node = elem_xor(child, elem_and(word, mask));
}
ELEM elem_block elem_leaf(const elem_ctx *c, const elem_tree *t, elem_block node, uint64_t on)
{
    elem_block leaf = elem_hash(c->e, c->g->prg, CUDA_ROLE_LEAF, node);
    return elem_xor(
        leaf, elem_and(elem_load(t->words + t->levels * t->row + t->lane * 16), elem_mask(on)));
}

/* The same in a half tree, whose rows are aligned, with as few instructions a level as there can
 * be: the path's bits leave a word at its top, and of control bits only the lowest is meant. */
ELEM uint64_t elem_walk_half(const elem_ctx *c, unsigned prg, const elem_tree *t, unsigned bits,
                             elem_block node, uint64_t x)
{
    const uint8_t *row = t->words + t->lane * 16;
    uint64_t path = x << (64 - bits);
    uint32_t parity = 0;
    ELEM_NO_UNROLL
    for (unsigned level = t->levels; level; level--, row += t->row, path <<= 1) {
        const elem_block word = elem_load_aligned(row);
        const uint32_t right = (uint32_t)((int32_t)(path >> 32) >> 31), before = (uint32_t)node.lo;
        elem_block h = elem_hash_inline(c->e, prg, CUDA_ROLE_TREE, node);
        h = elem_xor(h, elem_and(word, elem_twice(0 - (before & 1))));
        node = elem_xor(h, elem_and(node, elem_twice(right)));
        parity ^= (before ^ (uint32_t)node.lo) & ~right;
    }
    const elem_block leaf = elem_hash_inline(c->e, prg, CUDA_ROLE_LEAF, node);
    const elem_block last = elem_and(elem_load_aligned(row), elem_mask(node.lo));
    return (parity & 1) ^ elem_table_less(elem_xor(leaf, last), x & 127);
}

ELEM uint64_t elem_walk_less(const elem_ctx *c, unsigned item, uint64_t x)
{
    const cuda_item *it = &c->g->item[item];
    elem_tree t = elem_tree_at(c->g, c->io->key, it, it->at, c->i);
    elem_block node = elem_root(c, item);
    if (c->g->tree == CUDA_HALF)
        return c->g->prg == CUDA_AES ? elem_walk_half(c, CUDA_AES, &t, it->bits, node, x)
                                     : elem_walk_half(c, CUDA_CHACHA8, &t, it->bits, node, x);
    uint64_t on = c->b, parity = 0;
    const uint8_t *row = t.words;
    ELEM_NO_UNROLL
    for (unsigned level = it->bits; level > 7; level--, row += t.row) {
        uint64_t before = on, bit = x >> (level - 1);
        elem_down(c, &t, row, bit, &node, &on);
        parity ^= (before ^ on) & ~bit;
    }
    return (parity & 1) ^ elem_table_less(elem_leaf(c, &t, node, on), x & 127);
}

/* ---- digits ---- */

enum { ELEM_SLOT_MASK = 16, ELEM_SLOT_EQUAL = 128, ELEM_SLOT_LESS = 256 };

ELEM unsigned elem_digit_width(const cuda_item *it, unsigned d)
{
    return it->bits / it->digits + (d < it->bits % it->digits);
}
ELEM uint64_t elem_digits_mask(const elem_ctx *c, unsigned item, unsigned eval)
{
    return elem_prf_word(c->e, CUDA_SEED, c->id, elem_slot(item, ELEM_SLOT_MASK + eval), c->i,
                         2u * c->g->item[item].digits - 1);
}
ELEM uint64_t elem_eval_at(const cuda_item *it, unsigned eval, uint64_t count)
{
    return it->tables + eval * (elem_string_bytes(1u << (it->digits - 1), count) +
                                elem_string_bytes((1u << it->digits) - 2, count));
}
ELEM void elem_digits_open(const elem_ctx *c, unsigned item, unsigned eval, uint64_t x)
{
    const cuda_item *it = &c->g->item[item];
    unsigned n = it->digits, shift = it->bits;
    uint64_t mask = elem_digits_mask(c, item, eval), at = it->at, count = c->g->count;
    uint64_t *out = c->io->out[0] + (it->row + eval * (2 * n - 1)) * count + c->i;
    ELEM_NO_UNROLL
    for (unsigned d = 0; d < n; d++) {
        unsigned width = elem_digit_width(it, d);
        elem_block table = elem_string(c, elem_slot(item, d), at, 1u << width);
        at += elem_string_bytes(1u << width, count);
        shift -= width;
        uint64_t digit = elem_low(x >> shift, width);
        out[d * count] = elem_table_less(table, digit) ^ (mask >> d & 1);
        if (d + 1 < n)
            out[(n + d) * count] = elem_table_bit(table, digit) ^ (mask >> (n + d) & 1);
    }
}
/* 2^width bits from position `by`; width <= 6. */
ELEM uint64_t elem_slice(elem_block s, unsigned by, unsigned width)
{
    uint64_t v = by >= 64 ? s.hi >> (by - 64) : by ? s.lo >> by | s.hi << (64 - by) : s.lo;
    return elem_low(v, 1u << width);
}
ELEM uint64_t elem_digits_less(const elem_ctx *c, unsigned item, unsigned eval)
{
    const cuda_item *it = &c->g->item[item];
    unsigned n = it->digits, first = it->row + eval * (2 * n - 1);
    uint64_t mask = elem_digits_mask(c, item, eval), count = c->g->count;
    uint64_t at = it->at + elem_eval_at(it, eval, count);
    elem_block equal = elem_string(c, elem_slot(item, ELEM_SLOT_EQUAL + eval), at, 1u << (n - 1));
    elem_block less = elem_string(c, elem_slot(item, ELEM_SLOT_LESS + eval),
                                  at + elem_string_bytes(1u << (n - 1), count), (1u << n) - 2);
    uint64_t v = 1, sum = (c->b & elem_opened(c, first)) ^ (mask & 1);
    ELEM_NO_UNROLL
    for (unsigned d = 1; d < n; d++) {
        v = (v & elem_mask(elem_opened(c, first + n + d - 1))) | v << (1u << (d - 1));
        uint64_t bit = elem_opened(c, first + d);
        sum ^= elem_parity(v & elem_slice(less, (1u << d) - 2, d)) ^
               (bit & elem_parity(v & elem_low(equal.lo, 1u << d)));
    }
    return sum & 1;
}

/* XOR share of 1{x < alpha}. */
ELEM uint64_t elem_less(const elem_ctx *c, unsigned item, unsigned eval, uint64_t x)
{
    const cuda_item *it = &c->g->item[item];
    if (it->type == CUDA_DIGITS) {
        if (!c->opening)
            return elem_digits_less(c, item, eval);
        elem_digits_open(c, item, eval, x);
        return 0;
    }
    if (c->opening)
        return 0;
    if (it->bits <= 7)
        return elem_table_less(elem_string(c, elem_slot(item, 0), it->at, 1u << it->bits), x);
    return elem_walk_less(c, item, x);
}

/* ---- comparison with a payload ---- */

ELEM uint64_t elem_dcf_bytes(const cuda_item *it, unsigned lanes)
{
    uint64_t values = it->repeat * elem_pack_bytes(it->row, lanes);
    return it->bits * ((uint64_t)lanes * 16 + (lanes + 7) / 8 + values) + values;
}
/* (-1)^party (value + t * correction) for every payload word of one node; `first` is the hash that
 * gives the first two. */
ELEM void elem_dcf_add(const elem_ctx *c, const cuda_item *it, unsigned role, elem_block node,
                       uint64_t side, elem_block first, const uint8_t *words, uint64_t step,
                       unsigned lane, uint64_t on, uint64_t *out)
{
    elem_block h = first;
    ELEM_LOOP
    for (unsigned w = 0; w < 3; w++) {
        if (w >= it->repeat)
            break;
        if (w == 2)
            h = elem_hash(c->e, c->g->prg, role, elem_make(node.lo ^ side, node.hi ^ 1));
        uint64_t v = elem_low(w == 1 ? h.hi : h.lo, it->row);
        v += elem_read(words + w * step, lane * it->row, it->row) & elem_mask(on);
        out[w] = elem_low(c->b ? out[w] - v : out[w] + v, it->row);
    }
}
/* Shares of beta 1{x < alpha}, at most three words. */
ELEM void elem_direct(const elem_ctx *c, unsigned item, uint64_t x, uint64_t out[3])
{
    const cuda_item *it = &c->g->item[item];
    uint64_t batch = c->i / 32, rest = c->g->count - batch * 32;
    unsigned lanes = rest < 32 ? (unsigned)rest : 32, lane = (unsigned)(c->i % 32);
    uint64_t bits_at = (uint64_t)lanes * 16, values_at = bits_at + (lanes + 7) / 8;
    uint64_t step = elem_pack_bytes(it->row, lanes), row = values_at + it->repeat * step;
    const uint8_t *key = c->io->key + it->at + batch * elem_dcf_bytes(it, 32);
    elem_block node = elem_prf_block(c->e, CUDA_SEED, c->id, elem_slot(item, 0), c->i);
    node.lo &= ~(uint64_t)1;
    uint64_t on = c->b;
    out[0] = out[1] = out[2] = 0;
    ELEM_NO_UNROLL
    for (unsigned level = it->bits; level-- > 0; key += row) {
        uint64_t side = x >> level & 1, mask = elem_mask(on);
        elem_block child = node, value = elem_make(node.lo ^ side, node.hi);
        elem_block word = elem_load(key + lane * 16);
        elem_hash2(c->e, c->g->prg, side ? CUDA_ROLE_RIGHT : CUDA_ROLE_TREE, &child,
                   CUDA_ROLE_VALUE, &value);
        elem_dcf_add(c, it, CUDA_ROLE_VALUE, node, side, value, key + values_at, step, lane, on,
                     out);
        uint64_t fix = side ? (uint64_t)(key[bits_at + lane / 8] >> (lane % 8)) : word.lo;
        word.lo &= ~(uint64_t)1;
        on = (child.lo ^ (fix & mask)) & 1;
        child.lo &= ~(uint64_t)1;
        node = elem_xor(child, elem_and(word, mask));
    }
    elem_dcf_add(c, it, CUDA_ROLE_LEAF, node, 0, elem_hash(c->e, c->g->prg, CUDA_ROLE_LEAF, node),
                 key, step, lane, on, out);
}

#endif
