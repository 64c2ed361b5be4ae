/* SPDX-License-Identifier: Apache-2.0
 * How gates write and read key material. Slot = item and repeat, so no pseudo-random word of a gate
 * is ever used for two things. */
#include <string.h>

#include "fss/gate_impl.h"

enum { FULL_WORDS = 1 << (FSS_FULL_BITS - 6) };

static uint32_t slot(unsigned item, unsigned repeat)
{
    return item << 12 | repeat;
}

static uint64_t table_low(unsigned bits, unsigned half)
{
    return half == 0 ? fss_low(~(uint64_t)0, 1u << bits) : bits == FSS_LEAF_BITS ? ~(uint64_t)0 : 0;
}

/* Where element `at` of an item's packed words begins in party b's key. */
static size_t word_at(const fss_gate *gate, const fss_item *item, unsigned repeat, unsigned b,
                      size_t at)
{
    return item->at[b] + repeat * fss_pack_bytes(item->bits, gate->count) + at / 8 * item->bits;
}

/* As word_at for the halves of a shared table of at most 128 bits. */
static size_t table_at(const fss_gate *gate, const fss_item *item, unsigned half, unsigned b,
                       size_t at)
{
    unsigned bits = item->bits < 6 ? 1u << item->bits : 64;
    return item->at[b] + half * fss_pack_bytes(bits, gate->count) + at / 8 * bits;
}

static unsigned table_halves(unsigned bits)
{
    return bits == FSS_LEAF_BITS ? 2 : 1;
}

static void deal_table(const deal_ctx *c, unsigned item, const uint64_t *alpha, uint64_t *leaf0,
                       size_t at, size_t n)
{
    const fss_item *it = &c->info->item[item];
    unsigned heavy = c->gate->heavy;
    fss_block light[GATE_TILE];
    uint64_t word[GATE_TILE];
    fss_prf_blocks(&c->dealer->seed[1 - heavy], c->gate->id, slot(item, 0), at, light, n);
    for (unsigned half = 0; half < table_halves(it->bits); half++) {
        for (size_t i = 0; i < n; i++) {
            fss_block point = fss_block_xor(fss_table_point(alpha[i]), light[i]);
            word[i] = (half ? point.hi : point.lo) & table_low(it->bits, half);
        }
        fss_pack(c->key[heavy] + table_at(c->gate, it, half, heavy, at),
                 it->bits < 6 ? 1u << it->bits : 64, word, n);
    }
    for (size_t i = 0; i < n && leaf0; i++)
        leaf0[i] = fss_table_bit(light[i], alpha[i]) ^ (heavy == 0);
}

void deal_tree(const deal_ctx *c, unsigned item, const uint64_t *alpha, uint64_t *leaf0, size_t at,
               size_t n)
{
    const fss_item *it = &c->info->item[item];
    if (it->bits <= FSS_LEAF_BITS) {
        deal_table(c, item, alpha, leaf0, at, n);
        return;
    }
    fss_block root[2][GATE_TILE];
    fss_tree tree = c->dealer->suite->tree;
    for (unsigned b = 0; b < 2; b++) {
        fss_prf_blocks(&c->dealer->seed[b], c->gate->id, slot(item, 0), at, root[b], n);
        fss_dpf_roots(tree, b, root[b], n);
    }
    for (size_t i = 0; i < n; i += FSS_LANES) {
        unsigned lanes = n - i < FSS_LANES ? (unsigned)(n - i) : FSS_LANES;
        size_t offset = fss_dpf_bytes(tree, it->bits, at + i);
        uint8_t *words = c->key[0] + it->at[0] + offset;
        fss_dpf_gen(&c->dealer->suite->prg, tree, it->bits, lanes, root[0] + i, root[1] + i,
                    alpha + i, words, leaf0 ? leaf0 + i : NULL);
        memcpy(c->key[1] + it->at[1] + offset, words, fss_dpf_bytes(tree, it->bits, lanes));
    }
}

void deal_light(const deal_ctx *c, unsigned item, unsigned repeat, uint64_t *out, size_t at,
                size_t n)
{
    fss_prf_words(&c->dealer->seed[1 - c->gate->heavy], c->gate->id, slot(item, repeat), at,
                  c->info->item[item].bits, out, n);
}

void deal_word(const deal_ctx *c, unsigned item, unsigned repeat, const uint64_t *value, size_t at,
               size_t n)
{
    const fss_item *it = &c->info->item[item];
    unsigned heavy = c->gate->heavy;
    uint64_t word[GATE_TILE];
    deal_light(c, item, repeat, word, at, n);
    for (size_t i = 0; i < n; i++)
        word[i] = value[i] - word[i];
    fss_pack(c->key[heavy] + word_at(c->gate, it, repeat, heavy, at), it->bits, word, n);
}

void deal_mask(const deal_ctx *c, unsigned item, unsigned repeat, uint64_t *sum, size_t at,
               size_t n)
{
    const fss_item *it = &c->info->item[item];
    uint64_t word[GATE_TILE];
    fss_prf_words(&c->dealer->seed[0], c->gate->id, slot(item, repeat), at, it->bits, sum, n);
    fss_prf_words(&c->dealer->seed[1], c->gate->id, slot(item, repeat), at, it->bits, word, n);
    for (size_t i = 0; i < n; i++)
        sum[i] = fss_low(sum[i] + word[i], it->bits);
}

/* This party's shares of the one-hot tables. */
static void load_tables(const step_ctx *c, unsigned item, fss_block *table, size_t at, size_t n)
{
    const fss_item *it = &c->info->item[item];
    unsigned b = c->party->index;
    if (b != c->gate->heavy) {
        fss_prf_blocks(&c->party->seed, c->gate->id, slot(item, 0), at, table, n);
        for (size_t i = 0; i < n; i++) {
            table[i].lo &= table_low(it->bits, 0);
            table[i].hi &= table_low(it->bits, 1);
        }
        return;
    }
    uint64_t half[2][GATE_TILE] = {{0}};
    for (unsigned h = 0; h < table_halves(it->bits); h++)
        fss_unpack(half[h], it->bits < 6 ? 1u << it->bits : 64,
                   c->io->key + table_at(c->gate, it, h, b, at), n);
    for (size_t i = 0; i < n; i++)
        table[i] = (fss_block){half[0][i], half[1][i]};
}

static fss_dpf tree_at(const step_ctx *c, unsigned item, size_t at, size_t n)
{
    const fss_item *it = &c->info->item[item];
    fss_tree tree = c->party->suite->tree;
    unsigned lanes = n < FSS_LANES ? (unsigned)n : FSS_LANES;
    return (fss_dpf){&c->party->suite->prg, tree, it->bits, lanes,
                     c->io->key + it->at[c->party->index] + fss_dpf_bytes(tree, it->bits, at)};
}

static void load_roots(const step_ctx *c, unsigned item, fss_block *root, size_t at, size_t n)
{
    fss_prf_blocks(&c->party->seed, c->gate->id, slot(item, 0), at, root, n);
    fss_dpf_roots(c->party->suite->tree, c->party->index, root, n);
}

void step_less(const step_ctx *c, unsigned item, const uint64_t *x, uint64_t *out, size_t at,
               size_t n)
{
    fss_block root[GATE_TILE];
    if (c->info->item[item].bits <= FSS_LEAF_BITS) {
        load_tables(c, item, root, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] = fss_table_less(root[i], x[i]);
        return;
    }
    load_roots(c, item, root, at, n);
    for (size_t i = 0; i < n; i += FSS_LANES) {
        fss_dpf key = tree_at(c, item, at + i, n - i);
        fss_dpf_less(&key, c->party->index, root + i, x + i, out + i);
    }
}

void step_word(const step_ctx *c, unsigned item, unsigned repeat, uint64_t *out, size_t at,
               size_t n)
{
    const fss_item *it = &c->info->item[item];
    unsigned b = c->party->index;
    if (b == c->gate->heavy)
        fss_unpack(out, it->bits, c->io->key + word_at(c->gate, it, repeat, b, at), n);
    else
        fss_prf_words(&c->party->seed, c->gate->id, slot(item, repeat), at, it->bits, out, n);
}

void step_mask(const step_ctx *c, unsigned item, unsigned repeat, uint64_t *out, size_t at,
               size_t n)
{
    fss_prf_words(&c->party->seed, c->gate->id, slot(item, repeat), at, c->info->item[item].bits,
                  out, n);
}

/* out[k] = in[(k - by) mod 2^bits]: the bit string turned by a public amount. */
static void rotate_bits(uint64_t *out, const uint64_t *in, unsigned bits, uint64_t by)
{
    if (bits < 6) {
        unsigned size = 1u << bits;
        out[0] = fss_low(in[0] << by | in[0] >> ((size - by) & 63), size);
        return;
    }
    size_t words = (size_t)1 << (bits - 6), skip = by / 64;
    unsigned shift = by % 64;
    for (size_t i = 0; i < words; i++) {
        uint64_t here = in[(i - skip) & (words - 1)], before = in[(i - skip - 1) & (words - 1)];
        out[i] = here << shift | before >> 1 >> (63 - shift);
    }
}

/* Look up elements of a few lanes: their bit strings turned to begin at x, against each table. */
static void lookup_lanes(const step_ctx *c, const uint64_t *bits, size_t stride, unsigned lanes,
                         unsigned domain, const uint64_t *table, unsigned rows, const uint64_t *x,
                         uint64_t *out, size_t out_stride)
{
    uint64_t turned[FULL_WORDS];
    size_t size = (size_t)1 << domain, words = domain < 6 ? 1 : size / 64;
    for (unsigned k = 0; k < lanes; k++)
        rotate_bits(turned + k * words, bits + k * stride, domain, x[k]);
    for (unsigned k = 0; k < rows; k++)
        c->party->suite->masked_sum(turned, words, lanes, table + k * size, size,
                                    out + k * out_stride);
}

void step_lookup(const step_ctx *c, unsigned item, const uint64_t *table, unsigned rows,
                 const uint64_t *x, uint64_t *out, size_t stride, size_t at, size_t n)
{
    unsigned domain = c->info->item[item].bits, most = fss_dpf_full_lanes(domain);
    fss_block root[GATE_TILE];
    if (domain <= FSS_LEAF_BITS) {
        load_tables(c, item, root, at, n);
        for (size_t i = 0; i < n; i += most) {
            unsigned lanes = n - i < most ? (unsigned)(n - i) : most;
            lookup_lanes(c, &root[i].lo, 2, lanes, domain, table, rows, x + i, out + i, stride);
        }
        return;
    }
    uint64_t full[FULL_WORDS];
    size_t words = (size_t)1 << (domain - 6);
    load_roots(c, item, root, at, n);
    for (size_t i = 0; i < n; i += FSS_LANES) {
        fss_dpf key = tree_at(c, item, at + i, n - i);
        for (unsigned first = 0; first < key.lanes; first += most) {
            unsigned lanes = key.lanes - first < most ? key.lanes - first : most;
            fss_dpf_full(&key, c->party->index, root + i, first, lanes, full);
            lookup_lanes(c, full, words, lanes, domain, table, rows, x + i + first, out + i + first,
                         stride);
        }
    }
}
