/* SPDX-License-Identifier: Apache-2.0
 * Distributed point functions with one-bit output and a 128-bit leaf: two keys, each alone
 * pseudo-random, whose evaluations at x differ exactly where x = alpha.
 *
 * Keys are handled FSS_LANES at a time. What both parties hold is the *correction words*: for a
 * batch of n <= FSS_LANES keys, one row of n blocks per tree level and one leaf row, so that a
 * batch is read front to back. Roots are not stored: each party derives its own from its seed.
 *
 * The half tree (a correlated tree: the two nodes on alpha's path always differ by the same secret)
 * is the default; BGI is the conservative construction with two bits more per level.
 * Domains of at most FSS_LEAF_BITS bits have no tree: the leaf itself is shared (fss_table_*).
 *
 * A tree of a large domain that is always expanded as a whole ends three levels earlier, in leaves
 * of eight blocks: block k is the leaf's hash of the node with k in its upper half. That is 7/16
 * fewer calls of the generator for 64 bytes more of key. */
#ifndef FSS_DPF_H
#define FSS_DPF_H

#include "fss/prg.h"

enum { FSS_LANES = 32, FSS_LEAF_BITS = 7, FSS_WIDE_LEAF_BITS = 10, FSS_FULL_BITS = 16 };

/* Bits of a leaf of a tree that is expanded as a whole. */
static inline unsigned fss_dpf_full_leaf(unsigned bits)
{
    return bits > 12 ? FSS_WIDE_LEAF_BITS : FSS_LEAF_BITS;
}

typedef enum fss_tree { FSS_TREE_HALF = 1, FSS_TREE_BGI = 2 } fss_tree;

/* A batch of up to FSS_LANES keys of one domain, as one party (or the dealer) sees it. */
typedef struct fss_dpf {
    const fss_prg *prg;
    fss_tree tree;
    unsigned bits;        /* domain, in (FSS_LEAF_BITS, 64] */
    unsigned leaf;        /* FSS_LEAF_BITS or FSS_WIDE_LEAF_BITS, less than `bits` */
    unsigned lanes;       /* keys in this batch */
    const uint8_t *words; /* fss_dpf_bytes(tree, bits, leaf, lanes) */
} fss_dpf;

/* Bytes of correction words of `count` keys stored as batches of FSS_LANES and one short rest. */
size_t fss_dpf_bytes(fss_tree tree, unsigned bits, unsigned leaf, size_t count);

/* Turn raw pseudo-random blocks into party b's roots, in place. */
void fss_dpf_roots(fss_tree tree, unsigned party, fss_block *roots, size_t n);

/* Write the correction words for the points alpha[lanes]. leaf0[i], if asked for, becomes party 0's
 * output bit at alpha[i] (party 1's is its complement). Constant time in alpha. */
void fss_dpf_gen(const fss_prg *prg, fss_tree tree, unsigned bits, unsigned leaf, unsigned lanes,
                 const fss_block *roots0, const fss_block *roots1, const uint64_t *alpha,
                 uint8_t *words, uint64_t *leaf0);

/* XOR shares of 1{x = alpha} and, of trees with narrow leaves, of 1{x < alpha}; x[i] < 2^bits is
 * public. */
void fss_dpf_point(const fss_dpf *key, unsigned party, const fss_block *roots, const uint64_t *x,
                   uint64_t *out);
void fss_dpf_less(const fss_dpf *key, unsigned party, const fss_block *roots, const uint64_t *x,
                  uint64_t *out);

/* All 2^bits output bits of lanes [first, first + lanes): lane first + i fills out[i * 2^bits/64
 * ..]. bits <= FSS_FULL_BITS, and lanes * 2^bits <= 2^FSS_FULL_BITS (fss_dpf_full_lanes). */
void fss_dpf_full(const fss_dpf *key, unsigned party, const fss_block *roots, unsigned first,
                  unsigned lanes, uint64_t *out);
static inline unsigned fss_dpf_full_lanes(unsigned bits)
{
    unsigned most = 1u << (FSS_FULL_BITS - bits);
    return most < FSS_LANES ? most : FSS_LANES;
}

/* The domain of at most 128 points: a share of the one-hot block itself. */
fss_block fss_table_point(uint64_t alpha);
static inline uint64_t fss_table_bit(fss_block table, uint64_t x)
{
    uint64_t high = fss_mask_of(x >> 6);
    return (((table.lo & ~high) | (table.hi & high)) >> (x & 63)) & 1;
}
/* Parity of the bits above x: the share of 1{x < alpha}. */
uint64_t fss_table_less(fss_block table, uint64_t x);

#endif
