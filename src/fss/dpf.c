/* SPDX-License-Identifier: Apache-2.0 */
#include "fss/dpf.h"

#include <string.h>

/* Bytes of one row: a block per lane, and for BGI a packed bit per lane beside them. */
static size_t row_bytes(fss_tree tree, unsigned lanes)
{
    return (size_t)lanes * 16 + (tree == FSS_TREE_BGI ? (lanes + 7) / 8 : 0);
}

static unsigned leaf_blocks(unsigned leaf)
{
    return 1u << (leaf - FSS_LEAF_BITS);
}

static size_t batch_bytes(fss_tree tree, unsigned bits, unsigned leaf, unsigned lanes)
{
    return (bits - leaf) * row_bytes(tree, lanes) + (size_t)lanes * 16 * leaf_blocks(leaf);
}

size_t fss_dpf_bytes(fss_tree tree, unsigned bits, unsigned leaf, size_t count)
{
    if (bits <= leaf)
        return 0;
    size_t rest = count % FSS_LANES;
    return count / FSS_LANES * batch_bytes(tree, bits, leaf, FSS_LANES) +
           (rest ? batch_bytes(tree, bits, leaf, (unsigned)rest) : 0);
}

void fss_dpf_roots(fss_tree tree, unsigned party, fss_block *roots, size_t n)
{
    uint64_t bit = tree == FSS_TREE_HALF ? party : 0;
    for (size_t i = 0; i < n; i++)
        roots[i].lo = (roots[i].lo & ~(uint64_t)1) | bit;
}

fss_block fss_table_point(uint64_t alpha)
{
    uint64_t bit = (uint64_t)1 << (alpha & 63), high = fss_mask_of(alpha >> 6);
    return (fss_block){bit & ~high, bit & high};
}

uint64_t fss_table_less(fss_block table, uint64_t x)
{
    /* Shifting in two steps keeps a shift by 64 defined. */
    uint64_t above = ~(uint64_t)0 << (x & 63) << 1, high = fss_mask_of(x >> 6);
    uint64_t kept = (table.lo & above & ~high) ^ (table.hi & (~high | above));
    return (uint64_t)__builtin_parityll(kept);
}

static fss_block load_word(const uint8_t *row, unsigned lane)
{
    fss_block b;
    memcpy(&b, row + (size_t)lane * 16, 16);
    return b;
}

/* A row for each block of a leaf; the point is in one of them, which must not show. */
static void gen_leaf(const fss_prg *prg, unsigned leaf, unsigned lanes, const fss_block *node,
                     const uint64_t *t0, const uint64_t *alpha, uint8_t *row, uint64_t *leaf0)
{
    fss_block in[2 * FSS_LANES], out[2 * FSS_LANES];
    uint64_t blocks = leaf_blocks(leaf);
    for (unsigned i = 0; i < lanes && leaf0; i++)
        leaf0[i] = 0;
    for (uint64_t k = 0; k < blocks; k++, row += (size_t)lanes * 16) {
        for (unsigned i = 0; i < 2 * lanes; i++)
            in[i] = (fss_block){node[i].lo, node[i].hi ^ k};
        prg->hash(prg, FSS_ROLE_LEAF, in, out, 2 * lanes);
        for (unsigned i = 0; i < lanes; i++) {
            uint64_t position = alpha[i] & 127;
            uint64_t apart = (alpha[i] >> FSS_LEAF_BITS ^ k) & (blocks - 1);
            uint64_t here = fss_mask_of((apart - 1) >> 63);
            fss_block word = fss_block_xor(fss_block_xor(out[i], out[lanes + i]),
                                           fss_block_and(fss_table_point(position), here));
            memcpy(row + (size_t)i * 16, &word, 16);
            if (leaf0) {
                fss_block mine = fss_block_xor(out[i], fss_block_and(word, fss_mask_of(t0[i])));
                leaf0[i] ^= fss_table_bit(mine, position) & here;
            }
        }
    }
}

static void gen_half(const fss_prg *prg, unsigned bits, unsigned leaf, unsigned lanes,
                     fss_block *node, const uint64_t *alpha, uint8_t *words, uint64_t *leaf0)
{
    fss_block hash[2 * FSS_LANES], delta[FSS_LANES];
    uint64_t t0[FSS_LANES];
    for (unsigned i = 0; i < lanes; i++)
        delta[i] = fss_block_xor(node[i], node[lanes + i]);
    for (unsigned level = bits; level > leaf; level--) {
        prg->hash(prg, FSS_ROLE_TREE, node, hash, 2 * lanes);
        for (unsigned i = 0; i < lanes; i++) {
            uint64_t right = fss_mask_of(alpha[i] >> (level - 1));
            fss_block *n0 = &node[i], *n1 = &node[lanes + i];
            fss_block word = fss_block_xor(fss_block_xor(hash[i], hash[lanes + i]),
                                           fss_block_and(delta[i], ~right));
            memcpy(words + (size_t)i * 16, &word, 16);
            fss_block c0 = fss_block_and(word, fss_mask_of(n0->lo));
            fss_block c1 = fss_block_and(word, fss_mask_of(n1->lo));
            *n0 = fss_block_xor(fss_block_xor(hash[i], c0), fss_block_and(*n0, right));
            *n1 = fss_block_xor(fss_block_xor(hash[lanes + i], c1), fss_block_and(*n1, right));
        }
        words += row_bytes(FSS_TREE_HALF, lanes);
    }
    for (unsigned i = 0; i < lanes; i++)
        t0[i] = node[i].lo & 1;
    gen_leaf(prg, leaf, lanes, node, t0, alpha, words, leaf0);
}

/* One BGI level of lane i: the word's block carries the left control bit in its lowest bit. */
static uint64_t gen_bgi_lane(fss_block *node, uint64_t *t, const fss_block *left,
                             const fss_block *right, unsigned lanes, unsigned i, uint64_t a,
                             uint8_t *row)
{
    uint64_t mask = fss_mask_of(a), tl = (left[i].lo ^ left[lanes + i].lo ^ a ^ 1) & 1;
    uint64_t tr = (right[i].lo ^ right[lanes + i].lo ^ a) & 1;
    fss_block lose = fss_block_xor(fss_block_and(fss_block_xor(left[i], left[lanes + i]), mask),
                                   fss_block_and(fss_block_xor(right[i], right[lanes + i]), ~mask));
    lose.lo &= ~(uint64_t)1;
    fss_block word = {lose.lo | tl, lose.hi};
    memcpy(row + (size_t)i * 16, &word, 16);
    uint64_t keep_t = (tl & ~mask) | (tr & mask & 1);
    for (unsigned p = 0; p < 2; p++) {
        unsigned at = p * lanes + i;
        uint64_t on = fss_mask_of(t[at]);
        fss_block keep =
            fss_block_xor(fss_block_and(left[at], ~mask), fss_block_and(right[at], mask));
        t[at] = (keep.lo & 1) ^ (keep_t & on & 1);
        keep.lo &= ~(uint64_t)1;
        node[at] = fss_block_xor(keep, fss_block_and(lose, on));
    }
    return tr;
}

static void gen_bgi(const fss_prg *prg, unsigned bits, unsigned leaf, unsigned lanes,
                    fss_block *node, const uint64_t *alpha, uint8_t *words, uint64_t *leaf0)
{
    fss_block left[2 * FSS_LANES], right[2 * FSS_LANES];
    uint64_t t[2 * FSS_LANES];
    for (unsigned i = 0; i < 2 * lanes; i++)
        t[i] = i >= lanes;
    for (unsigned level = bits; level > leaf; level--) {
        uint8_t *packed = words + (size_t)lanes * 16;
        memset(packed, 0, (lanes + 7) / 8);
        prg->hash(prg, FSS_ROLE_TREE, node, left, 2 * lanes);
        prg->hash(prg, FSS_ROLE_RIGHT, node, right, 2 * lanes);
        for (unsigned i = 0; i < lanes; i++) {
            uint64_t tr =
                gen_bgi_lane(node, t, left, right, lanes, i, alpha[i] >> (level - 1) & 1, words);
            packed[i / 8] |= (uint8_t)(tr << (i % 8));
        }
        words += row_bytes(FSS_TREE_BGI, lanes);
    }
    gen_leaf(prg, leaf, lanes, node, t, alpha, words, leaf0);
}

void fss_dpf_gen(const fss_prg *prg, fss_tree tree, unsigned bits, unsigned leaf, unsigned lanes,
                 const fss_block *roots0, const fss_block *roots1, const uint64_t *alpha,
                 uint8_t *words, uint64_t *leaf0)
{
    fss_block node[2 * FSS_LANES];
    memcpy(node, roots0, lanes * sizeof *node);
    memcpy(node + lanes, roots1, lanes * sizeof *node);
    if (tree == FSS_TREE_HALF)
        gen_half(prg, bits, leaf, lanes, node, alpha, words, leaf0);
    else
        gen_bgi(prg, bits, leaf, lanes, node, alpha, words, leaf0);
}

/* One level down the public path bits `x >> shift`; returns with new nodes and control bits. */
static void step_half(const fss_dpf *key, const uint8_t *row, const uint64_t *x, unsigned shift,
                      fss_block *node, uint64_t *t)
{
    fss_block hash[FSS_LANES];
    key->prg->hash(key->prg, FSS_ROLE_TREE, node, hash, key->lanes);
    for (unsigned i = 0; i < key->lanes; i++) {
        fss_block left =
            fss_block_xor(hash[i], fss_block_and(load_word(row, i), fss_mask_of(t[i])));
        node[i] = fss_block_xor(left, fss_block_and(node[i], fss_mask_of(x[i] >> shift)));
        t[i] = node[i].lo & 1;
    }
}

static void step_bgi(const fss_dpf *key, const uint8_t *row, const uint64_t *x, unsigned shift,
                     fss_block *node, uint64_t *t)
{
    fss_block left[FSS_LANES], right[FSS_LANES];
    const uint8_t *packed = row + (size_t)key->lanes * 16;
    key->prg->hash(key->prg, FSS_ROLE_TREE, node, left, key->lanes);
    key->prg->hash(key->prg, FSS_ROLE_RIGHT, node, right, key->lanes);
    for (unsigned i = 0; i < key->lanes; i++) {
        uint64_t down = fss_mask_of(x[i] >> shift), on = fss_mask_of(t[i]);
        fss_block word = load_word(row, i);
        uint64_t tl = word.lo & 1, tr = packed[i / 8] >> (i % 8) & 1;
        word.lo &= ~(uint64_t)1;
        fss_block child =
            fss_block_xor(fss_block_and(left[i], ~down), fss_block_and(right[i], down));
        t[i] = (child.lo & 1) ^ (((tl & ~down) | (tr & down)) & on & 1);
        child.lo &= ~(uint64_t)1;
        node[i] = fss_block_xor(child, fss_block_and(word, on));
    }
}

/* Walk to the leaf blocks of x; `parity`, if given, collects the parity of all leaves to the right
 * of the leaf block: a skipped right sibling has parity (parent control ^ child control). */
static void walk(const fss_dpf *key, unsigned party, const fss_block *roots, const uint64_t *x,
                 fss_block *leaf, uint64_t *parity)
{
    fss_block node[FSS_LANES];
    uint64_t t[FSS_LANES], before[FSS_LANES];
    const uint8_t *row = key->words;
    memcpy(node, roots, key->lanes * sizeof *node);
    for (unsigned i = 0; i < key->lanes; i++)
        t[i] = key->tree == FSS_TREE_HALF ? roots[i].lo & 1 : party;
    for (unsigned level = key->bits; level > key->leaf; level--) {
        memcpy(before, t, sizeof before);
        if (key->tree == FSS_TREE_HALF)
            step_half(key, row, x, level - 1, node, t);
        else
            step_bgi(key, row, x, level - 1, node, t);
        for (unsigned i = 0; i < key->lanes && parity; i++)
            parity[i] ^= (before[i] ^ t[i]) & ~(x[i] >> (level - 1)) & 1;
        row += row_bytes(key->tree, key->lanes);
    }
    uint64_t block[FSS_LANES];
    for (unsigned i = 0; i < key->lanes; i++) {
        block[i] = x[i] >> FSS_LEAF_BITS & (leaf_blocks(key->leaf) - 1);
        node[i].hi ^= block[i];
    }
    key->prg->hash(key->prg, FSS_ROLE_LEAF, node, leaf, key->lanes);
    for (unsigned i = 0; i < key->lanes; i++) {
        fss_block word = load_word(row + block[i] * key->lanes * 16, i);
        leaf[i] = fss_block_xor(leaf[i], fss_block_and(word, fss_mask_of(t[i])));
    }
}

void fss_dpf_point(const fss_dpf *key, unsigned party, const fss_block *roots, const uint64_t *x,
                   uint64_t *out)
{
    fss_block leaf[FSS_LANES];
    walk(key, party, roots, x, leaf, NULL);
    for (unsigned i = 0; i < key->lanes; i++)
        out[i] = fss_table_bit(leaf[i], x[i] & 127);
}

void fss_dpf_less(const fss_dpf *key, unsigned party, const fss_block *roots, const uint64_t *x,
                  uint64_t *out)
{
    if (key->tree == FSS_TREE_HALF && key->prg->walk && key->lanes == FSS_LANES) {
        key->prg->walk(key->prg, key->bits, roots, key->words, x, out);
        return;
    }
    fss_block leaf[FSS_LANES];
    uint64_t parity[FSS_LANES] = {0};
    walk(key, party, roots, x, leaf, parity);
    for (unsigned i = 0; i < key->lanes; i++)
        out[i] = parity[i] ^ fss_table_less(leaf[i], x[i] & 127);
}

enum { FULL_NODES = 1 << (FSS_FULL_BITS - FSS_LEAF_BITS) };

/* Every node of one level for `lanes` keys, lane-major, to every node of the next. */
static void expand_half(const fss_dpf *key, const uint8_t *row, unsigned first, unsigned lanes,
                        size_t width, const fss_block *node, fss_block *next)
{
    fss_block hash[FULL_NODES];
    key->prg->hash(key->prg, FSS_ROLE_TREE, node, hash, lanes * width);
    for (unsigned i = 0; i < lanes; i++) {
        fss_block word = load_word(row, first + i);
        for (size_t k = i * width; k < (i + 1) * width; k++) {
            next[2 * k] = fss_block_xor(hash[k], fss_block_and(word, fss_mask_of(node[k].lo)));
            next[2 * k + 1] = fss_block_xor(next[2 * k], node[k]);
        }
    }
}

/* As above for BGI; between levels the control bit rides in the node's lowest bit. */
static void expand_bgi(const fss_dpf *key, const uint8_t *row, unsigned first, unsigned lanes,
                       size_t width, fss_block *node, fss_block *next)
{
    fss_block left[FULL_NODES], right[FULL_NODES];
    uint8_t on[FULL_NODES];
    for (size_t k = 0; k < lanes * width; k++) {
        on[k] = node[k].lo & 1;
        node[k].lo &= ~(uint64_t)1;
    }
    key->prg->hash(key->prg, FSS_ROLE_TREE, node, left, lanes * width);
    key->prg->hash(key->prg, FSS_ROLE_RIGHT, node, right, lanes * width);
    for (unsigned i = 0; i < lanes; i++) {
        fss_block lw = load_word(row, first + i), rw = lw;
        uint64_t tr = row[(size_t)key->lanes * 16 + (first + i) / 8] >> ((first + i) % 8) & 1;
        rw.lo = (rw.lo & ~(uint64_t)1) | tr;
        for (size_t k = i * width; k < (i + 1) * width; k++) {
            next[2 * k] = fss_block_xor(left[k], fss_block_and(lw, fss_mask_of(on[k])));
            next[2 * k + 1] = fss_block_xor(right[k], fss_block_and(rw, fss_mask_of(on[k])));
        }
    }
}

/* The leaves' blocks: `node` becomes their inputs, `next` their hashes. */
static void full_leaves(const fss_dpf *key, const uint8_t *row, unsigned first, unsigned lanes,
                        size_t width, fss_block *node, fss_block *next, uint64_t *out)
{
    uint8_t on[FULL_NODES];
    unsigned blocks = leaf_blocks(key->leaf);
    for (size_t k = lanes * width; k-- > 0;) { /* from the end: they spread over their own array */
        fss_block n = node[k];
        /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): the levels filled them
         */
        on[k] = n.lo & 1;
        if (key->tree == FSS_TREE_BGI)
            n.lo &= ~(uint64_t)1;
        for (unsigned b = 0; b < blocks; b++)
            node[k * blocks + b] = (fss_block){n.lo, n.hi ^ b};
    }
    key->prg->hash(key->prg, FSS_ROLE_LEAF, node, next, lanes * width * blocks);
    for (unsigned i = 0; i < lanes; i++)
        for (unsigned b = 0; b < blocks; b++) {
            fss_block word = load_word(row + (size_t)b * key->lanes * 16, first + i);
            for (size_t k = i * width; k < (i + 1) * width; k++) {
                size_t at = k * blocks + b;
                fss_block leaf = fss_block_xor(next[at], fss_block_and(word, fss_mask_of(on[k])));
                memcpy(out + 2 * at, &leaf, 16);
            }
        }
}

void fss_dpf_full(const fss_dpf *key, unsigned party, const fss_block *roots, unsigned first,
                  unsigned lanes, uint64_t *out)
{
    fss_block store[2][FULL_NODES], *node = store[0], *next = store[1];
    const uint8_t *row = key->words;
    size_t width = 1;
    if (lanes == 0)
        return;
    for (unsigned i = 0; i < lanes; i++) {
        node[i] = roots[first + i];
        if (key->tree == FSS_TREE_BGI)
            node[i].lo |= party;
    }
    for (unsigned level = key->bits; level > key->leaf; level--, width *= 2) {
        if (key->tree == FSS_TREE_HALF)
            expand_half(key, row, first, lanes, width, node, next);
        else
            expand_bgi(key, row, first, lanes, width, node, next);
        fss_block *parents = node;
        node = next;
        next = parents;
        row += row_bytes(key->tree, key->lanes);
    }
    full_leaves(key, row, first, lanes, width, node, next, out);
}
