/* SPDX-License-Identifier: Apache-2.0 */
#include "fss/dcf.h"

#include <string.h>

typedef struct dcf_values {
    uint64_t v[FSS_DCF_WORDS][2 * FSS_LANES];
} dcf_values;

static size_t value_bytes(const fss_dcf *d)
{
    return d->words * fss_pack_bytes(d->ring, d->lanes);
}

static size_t row_bytes(const fss_dcf *d)
{
    return (size_t)d->lanes * 16 + fss_pack_bytes(1, d->lanes) + value_bytes(d);
}

size_t fss_dcf_bytes(const fss_dcf *d)
{
    return d->bits * row_bytes(d) + value_bytes(d);
}

/* Payload words of n nodes for one side. A seed's lowest bit is clear, so side and block number can
 * be told apart by low bits. */
static void convert(const fss_dcf *d, unsigned role, const fss_block *node, unsigned side, size_t n,
                    dcf_values *out)
{
    fss_block in[2 * FSS_LANES], block[2 * FSS_LANES];
    for (unsigned w = 0; w < d->words; w++) {
        if (w % 2 == 0) {
            for (size_t i = 0; i < n; i++)
                in[i] = (fss_block){node[i].lo ^ side, node[i].hi ^ (w / 2)};
            d->prg->hash(d->prg, role, in, block, n);
        }
        for (size_t i = 0; i < n; i++)
            out->v[w][i] = fss_low(w % 2 ? block[i].hi : block[i].lo, d->ring);
    }
}

static uint64_t choose(uint64_t mask, uint64_t a, uint64_t b)
{
    return (a & mask) | (b & ~mask);
}

typedef struct gen_state {
    fss_block node[2 * FSS_LANES];
    uint64_t t[2 * FSS_LANES];
    dcf_values value; /* what the path has collected: party 0 minus party 1, in lane i */
} gen_state;

static void gen_values(const fss_dcf *d, gen_state *s, const dcf_values *left,
                       const dcf_values *right, const uint64_t *alpha, unsigned shift,
                       const uint64_t *beta, uint8_t *key)
{
    for (unsigned w = 0; w < d->words; w++) {
        uint64_t word[FSS_LANES];
        for (unsigned i = 0; i < d->lanes; i++) {
            unsigned j = d->lanes + i;
            uint64_t a = fss_mask_of(alpha[i] >> shift), sign = 1 - 2 * s->t[j];
            uint64_t lose =
                choose(a, left->v[w][j] - left->v[w][i], right->v[w][j] - right->v[w][i]);
            uint64_t keep =
                choose(a, right->v[w][j] - right->v[w][i], left->v[w][j] - left->v[w][i]);
            word[i] = sign * (lose - s->value.v[w][i] + (beta[w * d->lanes + i] & a));
            s->value.v[w][i] += sign * word[i] - keep;
        }
        fss_pack(key + w * fss_pack_bytes(d->ring, d->lanes), d->ring, word, d->lanes);
    }
}

static void gen_nodes(const fss_dcf *d, gen_state *s, const fss_block *left, const fss_block *right,
                      const uint64_t *alpha, unsigned shift, uint8_t *key)
{
    uint64_t right_bit[FSS_LANES];
    for (unsigned i = 0; i < d->lanes; i++) {
        unsigned j = d->lanes + i;
        uint64_t a = alpha[i] >> shift & 1, mask = fss_mask_of(a);
        uint64_t tl = (left[i].lo ^ left[j].lo ^ a ^ 1) & 1,
                 tr = (right[i].lo ^ right[j].lo ^ a) & 1;
        fss_block lose = fss_block_xor(fss_block_and(fss_block_xor(left[i], left[j]), mask),
                                       fss_block_and(fss_block_xor(right[i], right[j]), ~mask));
        lose.lo &= ~(uint64_t)1;
        fss_block word = {lose.lo | tl, lose.hi};
        memcpy(key + (size_t)i * 16, &word, 16);
        right_bit[i] = tr;
        for (unsigned at = i; at <= j; at += d->lanes) {
            uint64_t on = fss_mask_of(s->t[at]);
            fss_block keep =
                fss_block_xor(fss_block_and(left[at], ~mask), fss_block_and(right[at], mask));
            s->t[at] = (keep.lo ^ (choose(mask, tr, tl) & on)) & 1;
            keep.lo &= ~(uint64_t)1;
            s->node[at] = fss_block_xor(keep, fss_block_and(lose, on));
        }
    }
    fss_pack(key + (size_t)d->lanes * 16, 1, right_bit, d->lanes);
}

void fss_dcf_gen(const fss_dcf *d, const fss_block *roots0, const fss_block *roots1,
                 const uint64_t *alpha, const uint64_t *beta, uint8_t *key)
{
    gen_state s;
    fss_block left[2 * FSS_LANES], right[2 * FSS_LANES];
    dcf_values vl, vr;
    memset(&s, 0, sizeof s);
    memcpy(s.node, roots0, d->lanes * sizeof *s.node);
    memcpy(s.node + d->lanes, roots1, d->lanes * sizeof *s.node);
    for (unsigned i = 0; i < d->lanes; i++)
        s.t[d->lanes + i] = 1;
    for (unsigned level = d->bits; level-- > 0;) {
        d->prg->hash(d->prg, FSS_ROLE_TREE, s.node, left, 2 * d->lanes);
        d->prg->hash(d->prg, FSS_ROLE_RIGHT, s.node, right, 2 * d->lanes);
        convert(d, FSS_ROLE_VALUE, s.node, 0, 2 * d->lanes, &vl);
        convert(d, FSS_ROLE_VALUE, s.node, 1, 2 * d->lanes, &vr);
        gen_values(d, &s, &vl, &vr, alpha, level, beta,
                   key + (size_t)d->lanes * 16 + fss_pack_bytes(1, d->lanes));
        gen_nodes(d, &s, left, right, alpha, level, key);
        key += row_bytes(d);
    }
    convert(d, FSS_ROLE_LEAF, s.node, 0, 2 * d->lanes, &vl);
    for (unsigned w = 0; w < d->words; w++) {
        uint64_t word[FSS_LANES];
        for (unsigned i = 0; i < d->lanes; i++)
            word[i] = (1 - 2 * s.t[d->lanes + i]) *
                      (vl.v[w][d->lanes + i] - vl.v[w][i] - s.value.v[w][i]);
        fss_pack(key + w * fss_pack_bytes(d->ring, d->lanes), d->ring, word, d->lanes);
    }
}

/* Add this node's payload share: (-1)^party (value + t * correction). */
static void collect(const fss_dcf *d, unsigned party, const dcf_values *value, const uint64_t *t,
                    const uint8_t *words, uint64_t *out)
{
    uint64_t sign = 1 - 2 * (uint64_t)party;
    for (unsigned w = 0; w < d->words; w++) {
        uint64_t word[FSS_LANES];
        fss_unpack(word, d->ring, words + w * fss_pack_bytes(d->ring, d->lanes), d->lanes);
        for (unsigned i = 0; i < d->lanes; i++)
            out[w * d->lanes + i] = fss_low(
                out[w * d->lanes + i] + sign * (value->v[w][i] + (word[i] & fss_mask_of(t[i]))),
                d->ring);
    }
}

static void descend(const fss_dcf *d, const uint8_t *key, const uint64_t *x, unsigned shift,
                    fss_block *node, uint64_t *t)
{
    fss_block left[FSS_LANES], right[FSS_LANES];
    const uint8_t *bits = key + (size_t)d->lanes * 16;
    d->prg->hash(d->prg, FSS_ROLE_TREE, node, left, d->lanes);
    d->prg->hash(d->prg, FSS_ROLE_RIGHT, node, right, d->lanes);
    for (unsigned i = 0; i < d->lanes; i++) {
        uint64_t down = fss_mask_of(x[i] >> shift), on = fss_mask_of(t[i]);
        fss_block word,
            child = fss_block_xor(fss_block_and(left[i], ~down), fss_block_and(right[i], down));
        memcpy(&word, key + (size_t)i * 16, 16);
        uint64_t fix = choose(down, bits[i / 8] >> (i % 8), word.lo) & 1;
        word.lo &= ~(uint64_t)1;
        t[i] = (child.lo & 1) ^ (fix & on);
        child.lo &= ~(uint64_t)1;
        node[i] = fss_block_xor(child, fss_block_and(word, on));
    }
}

void fss_dcf_eval(const fss_dcf *d, unsigned party, const fss_block *roots, const uint8_t *key,
                  const uint64_t *x, uint64_t *out)
{
    fss_block node[FSS_LANES];
    uint64_t t[FSS_LANES];
    dcf_values left, right;
    memcpy(node, roots, d->lanes * sizeof *node);
    for (unsigned i = 0; i < d->lanes; i++)
        t[i] = party;
    memset(out, 0, d->words * d->lanes * sizeof *out);
    for (unsigned level = d->bits; level-- > 0;) {
        convert(d, FSS_ROLE_VALUE, node, 0, d->lanes, &left);
        convert(d, FSS_ROLE_VALUE, node, 1, d->lanes, &right);
        for (unsigned w = 0; w < d->words; w++)
            for (unsigned i = 0; i < d->lanes; i++)
                left.v[w][i] = choose(fss_mask_of(x[i] >> level), right.v[w][i], left.v[w][i]);
        collect(d, party, &left, t, key + (size_t)d->lanes * 16 + fss_pack_bytes(1, d->lanes), out);
        descend(d, key, x, level, node, t);
        key += row_bytes(d);
    }
    convert(d, FSS_ROLE_LEAF, node, 0, d->lanes, &left);
    collect(d, party, &left, t, key, out);
}

uint64_t fss_mic_point(unsigned bits, uint64_t r)
{
    return fss_low(r - 1, bits);
}

static uint64_t above(uint64_t a, uint64_t b)
{
    /* a > b without a branch: the borrow of b - a */
    return ((~b & a) | ((~b | a) & (b - a))) >> 63;
}

uint64_t fss_mic_constant(unsigned bits, uint64_t r, uint64_t p, uint64_t q)
{
    uint64_t next = fss_low(q + 1, bits), pr = fss_low(p + r, bits), qr = fss_low(q + r, bits);
    uint64_t nr = fss_low(q + 1 + r, bits), last = fss_low(~(uint64_t)0, bits);
    uint64_t at_end = 1 ^ (above(qr, last) | above(last, qr));
    return above(pr, qr) - above(pr, p) + above(nr, next) + at_end;
}

void fss_mic_eval(const fss_dcf *d, unsigned party, const fss_block *roots, const uint8_t *key,
                  const uint64_t *masked, uint64_t p, uint64_t q, uint64_t *out)
{
    uint64_t x[FSS_LANES], low[FSS_LANES], next = fss_low(q + 1, d->bits);
    fss_dcf one = *d;
    one.words = 1;
    for (unsigned i = 0; i < d->lanes; i++)
        x[i] = fss_low(masked[i] - 1 - p, d->bits);
    fss_dcf_eval(&one, party, roots, key, x, low);
    for (unsigned i = 0; i < d->lanes; i++)
        x[i] = fss_low(masked[i] - 1 - next, d->bits);
    fss_dcf_eval(&one, party, roots, key, x, out);
    for (unsigned i = 0; i < d->lanes; i++) {
        uint64_t public = (uint64_t)(masked[i] > p) - (uint64_t)(masked[i] > next);
        out[i] = fss_low(out[i] - low[i] + party * public, d->ring);
    }
}
