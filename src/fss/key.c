/* SPDX-License-Identifier: Apache-2.0
 * How gates write and read key material. */
#include <string.h>

#include "fss/gate_impl.h"

enum { FULL_WORDS = 1 << (FSS_FULL_BITS - 6) };

/* Where element `at` of an item's packed words begins in party b's key. */
static size_t word_at(const fss_gate *gate, const fss_item *item, unsigned repeat, unsigned b,
                      size_t at)
{
    return item->at[b] + repeat * fss_pack_bytes(item->bits, gate->count) + at / 8 * item->bits;
}

size_t string_bytes(unsigned width, size_t count)
{
    return width <= 64 ? fss_pack_bytes(width, count)
                       : fss_pack_bytes(64, count) + fss_pack_bytes(width - 64, count);
}

static fss_block string_cut(fss_block s, unsigned width)
{
    return (fss_block){fss_low(s.lo, width), width > 64 ? fss_low(s.hi, width - 64) : 0};
}

void deal_string(const deal_ctx *c, uint32_t slot, size_t offset, unsigned width,
                 const fss_block *value, size_t at, size_t n)
{
    unsigned heavy = c->gate->heavy, low = width < 64 ? width : 64;
    uint8_t *key = c->key[heavy] + offset;
    fss_block light[GATE_TILE];
    uint64_t word[2][GATE_TILE];
    fss_prf_blocks(&c->dealer->seed[1 - heavy], c->gate->id, slot, at, light, n);
    for (size_t i = 0; i < n; i++) {
        fss_block rest = fss_block_xor(value[i], light[i]);
        word[0][i] = rest.lo;
        word[1][i] = rest.hi;
    }
    fss_pack(key + at / 8 * low, low, word[0], n);
    if (width > 64)
        fss_pack(key + fss_pack_bytes(64, c->gate->count) + at / 8 * (width - 64), width - 64,
                 word[1], n);
}

void step_string(const step_ctx *c, uint32_t slot, size_t offset, unsigned width, fss_block *out,
                 size_t at, size_t n)
{
    unsigned low = width < 64 ? width : 64;
    if (c->party->index != c->gate->heavy) {
        fss_prf_blocks(&c->party->seed, c->gate->id, slot, at, out, n);
        for (size_t i = 0; i < n; i++)
            out[i] = string_cut(out[i], width);
        return;
    }
    const uint8_t *key = c->io->key + offset;
    uint64_t word[2][GATE_TILE] = {{0}};
    fss_unpack(word[0], low, key + at / 8 * low, n);
    if (width > 64)
        fss_unpack(word[1], width - 64,
                   key + fss_pack_bytes(64, c->gate->count) + at / 8 * (width - 64), n);
    for (size_t i = 0; i < n; i++)
        out[i] = (fss_block){word[0][i], word[1][i]};
}

static void deal_table(const deal_ctx *c, unsigned item, const uint64_t *alpha, uint64_t *leaf0,
                       size_t at, size_t n)
{
    const fss_item *it = &c->info->item[item];
    unsigned heavy = c->gate->heavy;
    fss_block point[GATE_TILE] = {{0, 0}};
    for (size_t i = 0; i < n; i++)
        point[i] = fss_table_point(alpha[i]);
    deal_string(c, gate_slot(item, 0), it->at[heavy], 1u << it->bits, point, at, n);
    if (!leaf0)
        return;
    fss_prf_blocks(&c->dealer->seed[1 - heavy], c->gate->id, gate_slot(item, 0), at, point, n);
    for (size_t i = 0; i < n; i++)
        leaf0[i] = fss_table_bit(point[i], alpha[i]) ^ (heavy == 0);
}

void deal_tree(const deal_ctx *c, unsigned item, const uint64_t *alpha, uint64_t *leaf0, size_t at,
               size_t n)
{
    const fss_item *it = &c->info->item[item];
    if (it->type == FSS_ITEM_DIGITS) {
        deal_digits(c, item, alpha, at, n);
        return;
    }
    if (it->bits <= FSS_LEAF_BITS) {
        deal_table(c, item, alpha, leaf0, at, n);
        return;
    }
    fss_block root[2][GATE_TILE];
    fss_tree tree = c->dealer->suite->tree;
    for (unsigned b = 0; b < 2; b++) {
        fss_prf_blocks(&c->dealer->seed[b], c->gate->id, gate_slot(item, 0), at, root[b], n);
        fss_dpf_roots(tree, b, root[b], n);
    }
    for (size_t i = 0; i < n; i += FSS_LANES) {
        unsigned lanes = n - i < FSS_LANES ? (unsigned)(n - i) : FSS_LANES;
        size_t offset = fss_dpf_bytes(tree, it->bits, it->leaf, at + i);
        uint8_t *words = c->key[0] + it->at[0] + offset;
        fss_dpf_gen(&c->dealer->suite->prg, tree, it->bits, it->leaf, lanes, root[0] + i,
                    root[1] + i, alpha + i, words, leaf0 ? leaf0 + i : NULL);
        memcpy(c->key[1] + it->at[1] + offset, words,
               fss_dpf_bytes(tree, it->bits, it->leaf, lanes));
    }
}

void deal_light(const deal_ctx *c, unsigned item, unsigned repeat, uint64_t *out, size_t at,
                size_t n)
{
    fss_prf_words(&c->dealer->seed[1 - c->gate->heavy], c->gate->id, gate_slot(item, repeat), at,
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
    fss_prf_words(&c->dealer->seed[0], c->gate->id, gate_slot(item, repeat), at, it->bits, sum, n);
    fss_prf_words(&c->dealer->seed[1], c->gate->id, gate_slot(item, repeat), at, it->bits, word, n);
    for (size_t i = 0; i < n; i++)
        sum[i] = fss_low(sum[i] + word[i], it->bits);
}

/* This party's shares of the one-hot tables. */
static void load_tables(const step_ctx *c, unsigned item, fss_block *table, size_t at, size_t n)
{
    const fss_item *it = &c->info->item[item];
    step_string(c, gate_slot(item, 0), it->at[c->party->index], 1u << it->bits, table, at, n);
}

static fss_dpf tree_at(const step_ctx *c, unsigned item, size_t at, size_t n)
{
    const fss_item *it = &c->info->item[item];
    fss_tree tree = c->party->suite->tree;
    unsigned lanes = n < FSS_LANES ? (unsigned)n : FSS_LANES;
    return (fss_dpf){.prg = &c->party->suite->prg,
                     .tree = tree,
                     .bits = it->bits,
                     .leaf = it->leaf,
                     .lanes = lanes,
                     .words = c->io->key + it->at[c->party->index] +
                              fss_dpf_bytes(tree, it->bits, it->leaf, at)};
}

static void load_roots(const step_ctx *c, unsigned item, fss_block *root, size_t at, size_t n)
{
    fss_prf_blocks(&c->party->seed, c->gate->id, gate_slot(item, 0), at, root, n);
    fss_dpf_roots(c->party->suite->tree, c->party->index, root, n);
}

void step_less(const step_ctx *c, unsigned item, unsigned eval, const uint64_t *x, uint64_t *out,
               size_t at, size_t n)
{
    fss_block root[GATE_TILE];
    bool digits = c->info->item[item].type == FSS_ITEM_DIGITS;
    if (c->emit) {
        memset(out, 0, n * sizeof *out);
        if (digits)
            step_digits_open(c, item, eval, x, at, n);
        return;
    }
    if (digits) {
        step_digits_less(c, item, eval, out, at, n);
        return;
    }
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
        fss_prf_words(&c->party->seed, c->gate->id, gate_slot(item, repeat), at, it->bits, out, n);
}

void step_mask(const step_ctx *c, unsigned item, unsigned repeat, uint64_t *out, size_t at,
               size_t n)
{
    fss_prf_words(&c->party->seed, c->gate->id, gate_slot(item, repeat), at,
                  c->info->item[item].bits, out, n);
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
