/* SPDX-License-Identifier: Apache-2.0
 * A gate as the device sees it: plain words, by value in a kernel's parameters. The caller fills it
 * from its own description; key items have offsets of their own, each a multiple of 16. */
#ifndef CUDA_GATE_H
#define CUDA_GATE_H

#include <stddef.h>
#include <stdint.h>

/* In the order of fss_kind. */
enum {
    CUDA_SHARE,
    CUDA_BIT,
    CUDA_DRELU,
    CUDA_LESS,
    CUDA_SELECT,
    CUDA_RELU,
    CUDA_PIECES,
    CUDA_MAX,
    CUDA_TR,
    CUDA_ARS,
    CUDA_GAP,
    CUDA_LUT,
    CUDA_SPLINE,
    CUDA_LUT2,
    CUDA_MUL,
    CUDA_SQUARE,
    CUDA_CURVE,
    CUDA_GATE_KINDS
};
enum { CUDA_TREE, CUDA_DIGITS, CUDA_WORD, CUDA_MASK, CUDA_DCF, CUDA_TABLES }; /* items */
enum { CUDA_PLAIN, CUDA_DIRECT, CUDA_WIDE };                                  /* forms */
enum { CUDA_AES = 1, CUDA_CHACHA8 = 2 };
enum { CUDA_HALF = 1, CUDA_BGI = 2 };
/* Round keys of the four roles and of two seeds, 44 words each, then the tweak. A party has its own
 * seed in CUDA_SEED, a dealer both. */
enum {
    CUDA_ROLE_TREE,
    CUDA_ROLE_RIGHT,
    CUDA_ROLE_LEAF,
    CUDA_ROLE_VALUE,
    CUDA_SEED,
    CUDA_SEED_1,
    CUDA_KEYS,
    CUDA_TWEAK = CUDA_KEYS * 44,
    CUDA_KEY_WORDS = CUDA_TWEAK + 4
};
enum { CUDA_MAX_IN = 4, CUDA_MAX_ITEMS = 10, CUDA_MAX_DIGITS = 7, CUDA_DCF_WORDS = 8 };

typedef struct cuda_item {
    uint8_t type, bits, digits; /* DIGITS, TABLES: how many */
    uint8_t leaf;               /* TREE: bits of a leaf, 7 or 10 */
    uint16_t repeat, row;
    uint64_t at;     /* in this party's key (party) or in either (dealer, see at_1) */
    uint64_t at_1;   /* dealer: in party 1's key */
    uint64_t tables; /* DIGITS: bytes of the digit tables */
} cuda_item;

typedef struct cuda_gate {
    uint64_t id, count;
    int64_t offset;
    uint8_t kind, party, heavy, prg, tree;
    uint8_t in_bits, out_bits, out1_bits, eff_bits, shift, index_bits, index2_bits;
    uint8_t inner_bits[2], inner_vectors;
    uint8_t degree, faithful, form;
    uint8_t opens; /* step 0 opens digits only */
    uint8_t input_bits[CUDA_MAX_IN];
    uint8_t inputs;
    uint16_t rows, thresholds;
    cuda_item item[CUDA_MAX_ITEMS];
    const int64_t *threshold;
    const uint64_t *slope, *base, *table, *table2;
    const uint32_t *fragments, *fragments2; /* of the tables (cuda_fragments), or NULL */
} cuda_gate;

typedef struct cuda_io {
    const uint8_t *key;
    uint8_t *deal[2];    /* dealer: both keys, all zero */
    const uint64_t *run; /* added to the gate's id */
    const uint64_t *in[CUDA_MAX_IN], *share[CUDA_MAX_IN], *opened[2];
    uint64_t *out[2];
    uint32_t *scratch; /* cuda_scratch_bytes, or NULL */
} cuda_io;

/* Look-ups in tables of more than 7 bits write the elements' bit strings to scratch memory, some at
 * a time, and multiply them with the table's bytes. */
static inline uint64_t cuda_lookup_chunk(uint64_t count, unsigned bits)
{
    uint64_t most = (uint64_t)1 << (30 - bits); /* 128 MB of strings */
    return count < most ? count : most;
}
static inline uint64_t cuda_scratch_bytes(const cuda_gate *g)
{
    unsigned bits = g->index_bits > g->index2_bits ? g->index_bits : g->index2_bits;
    if (!(g->kind == CUDA_LUT || g->kind == CUDA_SPLINE || g->kind == CUDA_LUT2 ||
          g->kind == CUDA_CURVE) ||
        bits <= 7)
        return 0;
    return cuda_lookup_chunk(g->count, bits) << (bits - 3);
}

#endif
