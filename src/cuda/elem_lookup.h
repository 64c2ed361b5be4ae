/* SPDX-License-Identifier: Apache-2.0
 * First step of look-ups for one element: the whole tree, or one of its equal parts, against public
 * tables. Every entry is read and chosen by a bit: no address depends on a secret. */
#ifndef CUDA_ELEM_LOOKUP_H
#define CUDA_ELEM_LOOKUP_H

#include "cuda/elem_step.h"

enum { ELEM_LEAVES = 64, ELEM_TABLES = 4 }; /* blocks a thread holds; tables read in one pass */

typedef struct elem_lookup {
    unsigned item, mask, row, rows, input; /* tree, opening masks, first output row, index */
    unsigned bits, depth;                  /* index bits; levels expanded by one thread */
    const uint64_t *table;                 /* [rows][2^bits] */
} elem_lookup;

ELEM unsigned elem_parts(const elem_lookup *l)
{
    return l->bits > 7 ? 1u << (l->bits - 7 - l->depth) : 1;
}

/* The leaf blocks of subtree `part`. */
ELEM void elem_expand(const elem_ctx *c, const elem_lookup *l, unsigned part, elem_block *node)
{
    const cuda_item *it = &c->g->item[l->item];
    elem_tree t = elem_tree_at(c->g, c->io->key, it, it->at, c->i);
    elem_block root = elem_root(c, l->item);
    unsigned extra = it->leaf - 7u, depth = l->depth - extra; /* levels; a leaf is 2^extra blocks */
    unsigned above = t.levels - depth, half = c->g->tree == CUDA_HALF;
    uint64_t on = half ? root.lo & 1 : c->b;
    const uint8_t *row = t.words;
    ELEM_NO_UNROLL
    for (unsigned k = 0; k < above; k++, row += t.row)
        elem_down(c, &t, row, part >> (above - 1 - k), &root, &on);
    /* between levels the control bit rides in the lowest bit, which a BGI seed has clear */
    root.lo |= on;
    node[0] = root;
    ELEM_NO_UNROLL
    for (unsigned level = 0; level < depth; level++, row += t.row) {
        elem_block word = elem_load(row + t.lane * 16), right = word;
        if (!half)
            right.lo = (right.lo & ~(uint64_t)1) |
                       (uint64_t)(row[t.lanes * 16 + t.lane / 8] >> (t.lane % 8) & 1);
        ELEM_NO_UNROLL
        for (unsigned k = 1u << level; k-- > 0;) {
            elem_block n = node[k];
            uint64_t mask = elem_mask(n.lo);
            if (!half)
                n.lo &= ~(uint64_t)1;
            elem_block a =
                elem_xor(elem_hash(c->e, c->g->prg, CUDA_ROLE_TREE, n), elem_and(word, mask));
            elem_block b = half ? elem_xor(a, n)
                                : elem_xor(elem_hash(c->e, c->g->prg, CUDA_ROLE_RIGHT, n),
                                           elem_and(right, mask));
            node[2 * k] = a;
            node[2 * k + 1] = b;
        }
    }
    ELEM_NO_UNROLL
    for (unsigned k = 1u << depth; k-- > 0;) {
        elem_block n = node[k];
        uint64_t mask = elem_mask(n.lo);
        if (!half)
            n.lo &= ~(uint64_t)1;
        ELEM_NO_UNROLL
        for (unsigned b = 0; b < 1u << extra; b++) {
            elem_block word = elem_load(row + (b * t.lanes + t.lane) * 16);
            elem_block leaf = elem_hash(c->e, c->g->prg, CUDA_ROLE_LEAF, elem_make(n.lo, n.hi ^ b));
            node[(k << extra) + b] = elem_xor(leaf, elem_and(word, mask));
        }
    }
}

/* sum[k] += the entries of table k from `at` chosen by up to 64 bits. */
ELEM void elem_choose(const elem_lookup *l, unsigned first, uint64_t bits, uint64_t at, unsigned n,
                      uint64_t *sum)
{
    uint64_t size = (uint64_t)1 << l->bits, wrap = size - 1;
    const uint64_t *table = l->table + first * size;
    ELEM_NO_UNROLL
    for (unsigned p = 0; p < n; p += 8) {
        ELEM_LOOP
        for (unsigned q = 0; q < 8; q++) {
            if (p + q >= n)
                break;
            uint64_t mask = elem_mask(bits >> (p + q));
            ELEM_LOOP
            for (unsigned k = 0; k < ELEM_TABLES; k++)
                if (first + k < l->rows)
                    sum[k] += table[k * size + ((at + p + q) & wrap)] & mask;
        }
    }
}

/* 128 bits of a ring of blocks from bit j on. */
ELEM elem_block elem_window(const elem_block *leaf, unsigned blocks, uint64_t j)
{
    elem_block a = leaf[(j >> 7) & (blocks - 1)], b = leaf[((j >> 7) + 1) & (blocks - 1)];
    unsigned s = (unsigned)(j & 127);
    if (s & 64) {
        a = elem_make(a.hi, b.lo);
        b.lo = b.hi; /* the third word */
    }
    s &= 63;
    if (!s)
        return a;
    return elem_make(a.lo >> s | a.hi << (64 - s), a.hi >> s | b.lo << (64 - s));
}

/* This thread's part of the sums for tables first .. first + ELEM_TABLES. `leaf` holds what
 * elem_expand made, or the one string of a small domain. */
ELEM void elem_sums(const elem_ctx *c, const elem_lookup *l, unsigned first, unsigned part,
                    const elem_block *leaf, uint64_t *sum)
{
    uint64_t x = elem_in(c, l->input), size = (uint64_t)1 << l->bits;
    ELEM_LOOP
    for (unsigned k = 0; k < ELEM_TABLES; k++)
        sum[k] = 0;
    if (l->bits < 7) {
        uint64_t s = leaf[0].lo, turned;
        if (l->bits == 6)
            turned = x ? s << x | s >> (64 - x) : s;
        else
            turned = elem_low(s << x | s >> ((size - x) & 63), (unsigned)size);
        elem_choose(l, first, turned, 0, (unsigned)size, sum);
        return;
    }
    unsigned blocks = l->bits == 7 ? 1u : 1u << l->depth;
    if (elem_parts(l) == 1) { /* the same entry for all threads of a warp */
        ELEM_NO_UNROLL
        for (unsigned t = 0; t < blocks; t++) {
            elem_block w = elem_window(leaf, blocks, ((uint64_t)t * 128 - x) & (size - 1));
            elem_choose(l, first, w.lo, (uint64_t)t * 128, 64, sum);
            elem_choose(l, first, w.hi, (uint64_t)t * 128 + 64, 64, sum);
        }
        return;
    }
    ELEM_NO_UNROLL
    for (unsigned t = 0; t < blocks; t++) {
        uint64_t at = x + ((uint64_t)part * blocks + t) * 128;
        elem_choose(l, first, leaf[t].lo, at, 64, sum);
        elem_choose(l, first, leaf[t].hi, at + 64, 64, sum);
    }
}

ELEM void elem_leaves(const elem_ctx *c, const elem_lookup *l, unsigned part, elem_block *leaf)
{
    if (l->bits <= 7)
        leaf[0] = elem_string(c, elem_slot(l->item, 0), c->g->item[l->item].at, 1u << l->bits);
    else
        elem_expand(c, l, part, leaf);
}

/* The share that is opened, from the whole sum: rows of one vector, or vectors of one row. */
ELEM void elem_value(const elem_ctx *c, const elem_lookup *l, unsigned k, uint64_t sum)
{
    unsigned apart = c->g->inner_vectors == 2, row = l->row + k, vector = apart ? row : 0;
    row = apart ? 0 : row;
    uint64_t value = (c->b ? 0 - sum : sum) + elem_own(c, l->mask + vector, row);
    c->io->out[vector][row * c->g->count + c->i] = elem_low(value, c->g->inner_bits[vector]);
}

/* The look-ups of a gate's first step, for whoever starts it: one, or two for LUT2. */
static inline int cuda_looks_up(const cuda_gate *g)
{
    return g->kind == CUDA_LUT || g->kind == CUDA_SPLINE || g->kind == CUDA_LUT2 ||
           g->kind == CUDA_CURVE;
}
static inline unsigned elem_lookups(const cuda_gate *g, elem_lookup l[2])
{
    unsigned two = g->kind == CUDA_LUT2, spline = g->kind == CUDA_SPLINE || g->kind == CUDA_CURVE;
    for (unsigned k = 0; k <= two; k++) {
        l[k].item = k;
        l[k].mask = two ? 2 : 1;
        l[k].row = k;
        l[k].rows = two ? 1 : spline ? g->degree + 1u : g->rows;
        l[k].input = spline ? 1 : k;
        l[k].bits = k ? g->index2_bits : g->index_bits;
        l[k].table = k ? g->table2 : g->table;
        l[k].depth = l[k].bits <= 7 ? 0 : l[k].bits - 7;
        if (l[k].depth > 6)
            l[k].depth = 6;
    }
    return two + 1;
}

#endif
