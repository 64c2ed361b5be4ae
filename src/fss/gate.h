/* SPDX-License-Identifier: Apache-2.0
 * Gates: functions of masked wires.
 *
 * A wire element x of a ring Z_2^n travels as the public word x^ = x + r, r known to the dealer
 * alone. A gate turns public words into the parties' additive shares of y + r_out, which a caller
 * may add up and finally *open* (each party sends its share; the sum is the next public word).
 *
 * Output masks are not chosen, they are found: both parties add a pseudo-random word of their own
 * seed, and the dealer works out which mask that makes, absorbing every constant the gate would
 * otherwise have to ship. So a gate's key is only its trees and the words that multiply something.
 *
 * One description, fss_gate, drives three faces: the dealer writes both parties' keys and learns
 * the output masks, a party computes in one or two steps with one opening between, and the
 * simulator computes the same function on cleartext, bit for bit. fss_info says what each face
 * needs.
 *
 * Comparisons come in two forms. By a tree: 16 bytes per bit and party, nothing opened. By digits:
 * the digits of the mask as shared one-hot tables, held by one party only, and one more opening of
 * a few bits (see digits.c): about 7 bytes instead of 2 x 96 for 12 bits, 58 instead of 2 x 480
 * for 36.
 *
 * A gate is a batch of `count` elements; every face works on a range [begin, end) of it, so that
 * ranges can be tasks. `begin` must be a multiple of FSS_RANGE, `end` too unless it is `count`.
 * Vectors of several rows are row-major: element i of row k is at k * count + i. */
#ifndef FSS_GATE_H
#define FSS_GATE_H

#include <stdbool.h>

#include "fss/dpf.h"
#include "fss/pack.h"

enum { FSS_RANGE = 32, FSS_MAX_INPUTS = 4, FSS_MAX_ROWS = 4095, FSS_MAX_THRESHOLDS = 64 };

/*          name      inputs             inner opening      output (masked shares)               */
#define FSS_KIND_MAP(ROW)                                                                          \
    ROW(SHARE)  /* -              -                  the mask of input 0 itself, shared    */      \
    ROW(BIT)    /* s:1            -                  s as a word of out_bits                */     \
    ROW(DRELU)  /* x              -                  1{x >= offset}, one bit                */     \
    ROW(LESS)   /* x              -                  thresholds rows of 1{x < t_k}          */     \
    ROW(SELECT) /* s:1, x         -                  s ? x : 0                              */     \
    ROW(RELU)   /* x              1 bit              max(x, 0)                              */     \
    ROW(PIECES) /* x              thresholds bits    slope_j x + base_j on piece j          */     \
    ROW(MAX)    /* a, b (,ia,ib)  1 bit              max(a, b) (and its index)              */     \
    ROW(TR)     /* x              1 bit              x >> shift in a ring of <= n-shift     */     \
    ROW(ARS)    /* x              1-2 bits           x >> shift, signed, any ring           */     \
    ROW(GAP)    /* x              1 bit or none      as ARS, for |x| < 2^(n-2)              */     \
    ROW(LUT)    /* i              rows words         table_k[i], rows of them               */     \
    ROW(SPLINE) /* x, i           degree+1 words     sum_k table_k[i] x^k                   */     \
    ROW(LUT2)   /* i, j           2 words            table_0[i] * table_1[j]                */     \
    ROW(MUL)    /* x, y           -                  x * y      (needs shares of masks)     */     \
    ROW(SQUARE) /* x              -                  x * x      (needs shares of the mask)  */     \
    ROW(CURVE)  /* x, i, b:1, c:1 degree+1 words     spline; b: line 0, not c: line 1       */

typedef enum fss_kind {
#define FSS_KIND_ENUM(name) FSS_##name,
    FSS_KIND_MAP(FSS_KIND_ENUM)
#undef FSS_KIND_ENUM
        FSS_KINDS
} fss_kind;

typedef struct fss_gate {
    fss_kind kind;
    uint64_t id;        /* never used twice under one pair of seeds */
    size_t count;       /* elements */
    uint8_t in_bits;    /* ring of x (a, b, y); of the shared word for SHARE */
    uint8_t out_bits;   /* ring of the output; 0 means the natural one */
    uint8_t eff_bits;   /* DRELU, LESS, RELU, PIECES, MAX: x (or a - b) is known to fit in this many
                           signed bits; 0 means in_bits */
    uint8_t shift;      /* TR, ARS, GAP: fraction bits dropped, may be 0 for ARS and GAP */
    uint8_t index_bits; /* LUT, SPLINE, LUT2 first index; MAX: ring of the carried index or 0 */
    uint8_t index2_bits;      /* LUT2 second index */
    uint8_t degree;           /* SPLINE, CURVE */
    uint8_t heavy;            /* the party (0 or 1) that stores the explicit words */
    bool digits;              /* compare by digits: smaller keys, one more opening */
    bool wide;                /* TR, GAP: digits whose products are words: larger keys than
                                 digits, their opening is the only inner one */
    bool direct;              /* TR, GAP, RELU, MAX, PIECES: no inner opening, larger keys */
    bool dither;              /* GAP: round by the public low bits of x^ instead of faithfully */
    uint16_t rows;            /* LUT, PIECES: outputs per element; 0 means 1 */
    uint16_t thresholds;      /* LESS, PIECES */
    int64_t offset;           /* DRELU */
    const int64_t *threshold; /* [thresholds], ascending, in the signed range of eff_bits */
    const uint64_t *slope;    /* PIECES: [rows][thresholds + 1] or NULL for all zero; CURVE: [2] */
    const uint64_t *base;     /* PIECES: [rows][thresholds + 1]; CURVE: [2] */
    const uint64_t
        *table; /* LUT, SPLINE, CURVE: [rows or degree + 1][2^index_bits]; LUT2: the first */
    const uint64_t *table2; /* LUT2: [2^index2_bits] */
} fss_gate;

/* Which generator and which tree; the same for dealer and parties, named in key files. */
typedef struct fss_suite {
    fss_prg prg;
    fss_tree tree;
    void (*masked_sum)(const uint64_t *bits, size_t stride, size_t strings, const uint64_t *table,
                       size_t n, uint64_t *out);
} fss_suite;

typedef struct fss_vector {
    uint16_t rows; /* words per element */
    uint8_t bits;
} fss_vector;

/* A stretch of key material: a tree, shared digit tables, or words; per element and repeat. */
enum {
    FSS_ITEM_TREE,
    FSS_ITEM_DIGITS,
    FSS_ITEM_WORD,
    FSS_ITEM_MASK,
    FSS_ITEM_DIRECT,
    FSS_ITEM_TABLES
};
typedef struct fss_item {
    uint8_t type, bits;
    uint8_t leaf;    /* of TREE: bits of a leaf */
    uint16_t repeat; /* of DIGITS: how many points are compared; of TABLES: how many digits */
    uint16_t row;    /* of DIGITS: first row in the opening of step 0; of DIRECT: payload ring */
    size_t at[2];    /* offset in each party's key */
} fss_item;

/* Everything that follows from a gate's description: the one source of truth for the dealer, the
 * parties, the simulator and the planner. */
typedef struct fss_info {
    uint8_t inputs;
    uint8_t in_bits[FSS_MAX_INPUTS];
    bool needs_share[FSS_MAX_INPUTS]; /* shares of that input's mask must be given (FSS_SHARE) */
    uint8_t steps;                    /* 1 to 3, with an opening between each two */
    uint8_t inner_vectors, out_vectors;
    fss_vector digits; /* opened after step 0 by gates that compare by digits; else 0 rows */
    fss_vector inner[2], out[2]; /* what the last step but one opens; what the last step returns */
    uint8_t items;
    fss_item item[10];
    size_t key_bytes[2];
    uint64_t wire_bits; /* each way, inner openings only */
} fss_info;

/* Check the description and fill `info`. Everything below expects a gate that passed. */
tacit_status fss_gate_info(const fss_suite *suite, const fss_gate *gate, fss_info *info,
                           tacit_error *err);
const char *fss_kind_name(fss_kind kind);

/* How many digits a DIGITS item is cut into: the widest first, widths differ by at most one. */
unsigned fss_digits(const fss_item *item);

/* The vectors that step `step` produces, in v; returns how many (1 or 2). All but the last step's
 * are to be opened before the next step. */
unsigned fss_step_vectors(const fss_info *info, unsigned step, fss_vector v[2]);

/* What the planner adds up: bytes and bits are exact, a test holds them to the real ones. */
typedef struct fss_cost {
    uint64_t key_bytes[2];
    uint64_t wire_bits; /* each way, without the opening of the output */
    uint64_t out_bits;  /* of the output, should it be opened */
    unsigned rounds;    /* inner openings */
    uint64_t walks;     /* hash calls on the way, per party */
} fss_cost;
tacit_status fss_gate_cost(const fss_suite *suite, const fss_gate *gate, fss_cost *cost,
                           tacit_error *err);

/* Masks of a wire: one per element, always. A single word is not a mask and does not convert. */
typedef struct fss_mask {
    const uint64_t *r;
    size_t count; /* elements, = gate count */
} fss_mask;

typedef struct fss_dealer {
    const fss_suite *suite;
    fss_prf seed[2];
} fss_dealer;

typedef struct fss_party {
    const fss_suite *suite;
    fss_prf seed;
    unsigned index; /* 0 or 1 */
} fss_party;

/* Write the range's part of both keys (key[b] has info->key_bytes[b] bytes) and the output masks
 * out[v] ([rows][count] words of info->out[v]). SHARE has no output
 * mask: its out, if not NULL, receives each party's share instead. */
tacit_status fss_gate_deal(const fss_dealer *dealer, const fss_gate *gate, const fss_info *info,
                           const fss_mask *in, uint64_t *const *out, uint8_t *const key[2],
                           size_t begin, size_t end, tacit_error *err);

typedef struct fss_io {
    const uint8_t *key;                         /* this party's whole key of the gate */
    const uint64_t *in[FSS_MAX_INPUTS];         /* public words */
    const uint64_t *mask_share[FSS_MAX_INPUTS]; /* where info->needs_share */
    const uint64_t *opened[2];                  /* the opened vectors of the step before */
    uint64_t *out[2];                           /* shares this step produces */
} fss_io;

/* One party's work of one step over a range. Public words must already be below 2^bits. */
void fss_gate_step(const fss_party *party, const fss_gate *gate, const fss_info *info,
                   unsigned step, const fss_io *io, size_t begin, size_t end);

/* The same function on cleartext. `masked` gives the public words and is only read by gates whose
 * rounding depends on them (dither); it may be NULL otherwise. */
void fss_gate_sim(const fss_gate *gate, const fss_info *info, const uint64_t *const *x,
                  const uint64_t *const *masked, uint64_t *const *y, size_t begin, size_t end);

/* Dithered truncate-reduce needs no gate: x^ >> shift is the public word of floor((x + c) /
 * 2^shift) with c = 2^shift - 1 - (x^ mod 2^shift), under the mask r >> shift, in the ring of bits
 * - shift. The simulator's twin: */
static inline uint64_t fss_dither_tr_sim(uint64_t x, uint64_t masked, unsigned bits, unsigned shift)
{
    uint64_t c = ~fss_low(masked, shift);
    return fss_low(fss_low(x + fss_low(c, shift), bits) >> shift, bits - shift);
}

/* Sign-extend the low `bits` of a word, bits in [1, 64]. */
static inline int64_t fss_signed(uint64_t x, unsigned bits)
{
    return (int64_t)(x << (64 - bits)) >> (64 - bits);
}

#endif
