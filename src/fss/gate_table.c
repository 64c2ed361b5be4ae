/* SPDX-License-Identifier: Apache-2.0
 * Look-ups in public tables at a secret index.
 *
 * The tree's point is -r, so that a party's sum of table[(i^ + j)] over its own bits j gives, with
 * alternating signs, shares of s * table[i]. The sign s = +1 or -1 is a secret constant of the key
 * which the dealer knows, so it needs no protocol: v = s * table[i] is opened under a fresh mask,
 * and whatever follows (the table itself, a polynomial, a product) is public words times dealer
 * words. Keys are never redrawn to get s = +1: that would tell party 0 its own bit. */
#include "fss/gate_impl.h"

tacit_status table_check_index(const fss_gate *gate, unsigned bits, const uint64_t *table,
                               tacit_error *err)
{
    if (bits < 1 || bits > FSS_FULL_BITS || !table)
        return gate_error(gate, err, "a table over %u index bits; 1 to %d are possible", bits,
                          FSS_FULL_BITS);
    return TACIT_OK;
}

void table_deal_index(const deal_ctx *c, unsigned tree, const uint64_t *r, uint64_t *s, size_t at,
                      size_t n)
{
    uint64_t alpha[GATE_TILE] = {0};
    for (size_t i = 0; i < n; i++)
        alpha[i] = fss_low(0 - r[i], c->info->item[tree].bits);
    deal_tree(c, tree, alpha, s, at, n);
    for (size_t i = 0; i < n; i++)
        s[i] = 2 * s[i] - 1;
}

/* Ring in which s times these words can be opened: the words leave room for a sign and a gap, so
 * that the wrap of the opened word shows in its top bit, as for GAP. */
static unsigned open_bits(const uint64_t *table, size_t n, unsigned ring)
{
    uint64_t most = 0;
    unsigned bits = 2;
    for (size_t i = 0; i < n; i++) {
        int64_t v = fss_signed(fss_low(table[i], ring), ring);
        uint64_t size = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
        most = size > most ? size : most;
    }
    while (bits < ring && most >> (bits - 2))
        bits++;
    return bits;
}

void table_open_info(fss_info *info, const uint64_t *first, size_t n, const uint64_t *second,
                     size_t m, unsigned ring)
{
    unsigned bits[2] = {open_bits(first, n, ring), second ? open_bits(second, m, ring) : ring};
    for (unsigned k = 0; k < 2; k++)
        info_item(info, FSS_ITEM_MASK, bits[k], k == 0 || second ? 1 : 0);
    for (unsigned k = 0; k < (second ? 2u : 1u); k++)
        info_inner(info, 1, bits[k]);
}

void table_step_values(const step_ctx *c, unsigned tree, unsigned mask, unsigned first,
                       unsigned count, const uint64_t *table, const uint64_t *index, size_t at,
                       size_t n)
{
    uint64_t sum[(TABLE_DEGREE + 1) * GATE_TILE], words[GATE_TILE], sign = 1 - 2 * c->b;
    bool apart = c->info->inner_vectors == 2;
    step_lookup(c, tree, table, count, index, sum, GATE_TILE, at, n);
    for (unsigned k = 0; k < count; k++) {
        unsigned row = first + k, vector = apart ? row : 0;
        uint64_t *out = step_row(c, vector, apart ? 0 : row, at);
        step_mask(c, mask + vector, apart ? 0 : row, words, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] = fss_low(sign * sum[k * GATE_TILE + i] + words[i], c->info->inner[vector].bits);
    }
}

void table_lift(const step_ctx *c, unsigned k, uint64_t *value, uint64_t *clear, size_t at,
                size_t n)
{
    bool apart = c->info->inner_vectors == 2;
    unsigned vector = apart ? k : 0, bits = c->info->inner[vector].bits;
    const uint64_t *open = step_opened(c, vector, apart ? 0 : k, at);
    uint64_t quarter = bits < c->info->out[0].bits ? (uint64_t)1 << (bits - 2) : 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t u = fss_low(open[i] + quarter, bits);
        value[i] = u - quarter;
        clear[i] = quarter ? 1 - (u >> (bits - 1)) : 0;
    }
}

static void deal_finish(const deal_ctx *c, uint64_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i], c->info->out[0].bits);
}

/* ---- LUT: items tree, opening masks, word s, output masks ---- */

static tacit_status lut_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    TRY(table_check_index(gate, gate->index_bits, gate->table, err));
    unsigned rows = gate_rows(gate);
    if (gate->out_bits < 1 || rows > FSS_MAX_ROWS)
        return gate_error(gate, err, "%u rows in a ring of %u bits", rows, gate->out_bits);
    info_input(info, gate->index_bits, false);
    info_lookup(info, gate->index_bits);
    info_item(info, FSS_ITEM_MASK, gate->out_bits, rows);
    info_item(info, FSS_ITEM_WORD, gate->out_bits, 1);
    info_item(info, FSS_ITEM_MASK, gate->out_bits, rows);
    info_inner(info, rows, gate->out_bits);
    info_out(info, rows, gate->out_bits);
    return TACIT_OK;
}
static void lut_deal(const deal_ctx *c, size_t at, size_t n)
{
    uint64_t s[GATE_TILE], rv[GATE_TILE];
    table_deal_index(c, 0, c->in[0].r + at, s, at, n);
    deal_word(c, 2, 0, s, at, n);
    for (unsigned k = 0; k < gate_rows(c->gate); k++) {
        uint64_t *out = deal_row(c, 0, k, at);
        deal_mask(c, 1, k, rv, at, n);
        deal_mask(c, 3, k, out, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] += s[i] * rv[i];
        deal_finish(c, out, n);
    }
}
static void lut_values(const step_ctx *c, size_t at, size_t n)
{
    uint64_t words[GATE_TILE], sign = 1 - 2 * c->b;
    step_lookup(c, 0, c->gate->table, gate_rows(c->gate), c->io->in[0] + at, step_row(c, 0, 0, at),
                c->gate->count, at, n);
    for (unsigned k = 0; k < gate_rows(c->gate); k++) {
        uint64_t *out = step_row(c, 0, k, at);
        step_mask(c, 1, k, words, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] = fss_low(sign * out[i] + words[i], c->info->inner[0].bits);
    }
}
static void lut_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    if (step == 0) {
        lut_values(c, at, n);
        return;
    }
    uint64_t s[GATE_TILE];
    step_word(c, 2, 0, s, at, n);
    for (unsigned k = 0; k < gate_rows(c->gate); k++) {
        uint64_t *out = step_row(c, 0, k, at);
        const uint64_t *open = step_opened(c, 0, k, at);
        step_mask(c, 3, k, out, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] = fss_low(out[i] + open[i] * s[i], c->info->out[0].bits);
    }
}
static void lut_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (unsigned k = 0; k < gate_rows(c->gate); k++)
        for (size_t i = at; i < at + n; i++)
            c->y[0][k * c->gate->count + i] =
                fss_low(c->gate->table[((size_t)k << c->gate->index_bits) + c->x[0][i]],
                        c->info->out[0].bits);
}
const gate_row gate_row_LUT = {"LUT", lut_info, lut_deal, lut_step, lut_sim};

uint64_t table_binomial(unsigned n, unsigned k)
{
    static const uint8_t table[TABLE_DEGREE + 1][TABLE_DEGREE + 1] = {
        {1, 0, 0, 0}, {1, 1, 0, 0}, {1, 2, 1, 0}, {1, 3, 3, 1}};
    return table[n][k];
}

/* ---- LUT2: y = S v0 v1, S = s0 s1, v_k = a_k - r_k + 2^m_k h_k t_k: a_k the opened word, h_k
 * public and t_k the top bit of its mask r_k (see table_lift). Everything but public factors is
 * words of the dealer; S r0 r1 goes into the output mask. ---- */

enum {
    LUT2_OPEN = 2,
    LUT2_WORDS = 4, /* S, S r1, S r0 */
    LUT2_TOP0,      /* S t0, S r1 t0, above m0 bits */
    LUT2_TOP1,      /* S t1, S r0 t1, above m1 bits */
    LUT2_TOPS,      /* S t0 t1, above m0 + m1 bits */
    LUT2_MASK
};

static unsigned above(unsigned ring, unsigned bits)
{
    return ring > bits ? ring - bits : 0;
}

static tacit_status lut2_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    TRY(table_check_index(gate, gate->index_bits, gate->table, err));
    TRY(table_check_index(gate, gate->index2_bits, gate->table2, err));
    if (gate->out_bits < 1)
        return gate_error(gate, err, "no output ring");
    unsigned l = gate->out_bits;
    info_input(info, gate->index_bits, false);
    info_input(info, gate->index2_bits, false);
    info_lookup(info, gate->index_bits);
    info_lookup(info, gate->index2_bits);
    table_open_info(info, gate->table, (size_t)1 << gate->index_bits, gate->table2,
                    (size_t)1 << gate->index2_bits, l);
    unsigned m0 = info->inner[0].bits, m1 = info->inner[1].bits;
    unsigned both = m0 < l && m1 < l ? above(l, m0 + m1) : 0;
    info_item(info, FSS_ITEM_WORD, l, 3);
    info_item(info, FSS_ITEM_WORD, l - m0, m0 < l ? 2 : 0);
    info_item(info, FSS_ITEM_WORD, l - m1, m1 < l ? 2 : 0);
    info_item(info, FSS_ITEM_WORD, both, both ? 1 : 0);
    info_item(info, FSS_ITEM_MASK, l, 1);
    info_out(info, 1, l);
    return TACIT_OK;
}

/* S t_k and S r t_k, r the other mask. */
static void lut2_deal_top(const deal_ctx *c, unsigned item, unsigned bits, const uint64_t *s,
                          const uint64_t *mine, const uint64_t *other, size_t at, size_t n)
{
    uint64_t word[GATE_TILE] = {0};
    if (!c->info->item[item].repeat)
        return;
    for (size_t i = 0; i < n; i++)
        word[i] = s[i] * (mine[i] >> (bits - 1));
    deal_word(c, item, 0, word, at, n);
    for (size_t i = 0; i < n; i++)
        word[i] *= other[i];
    deal_word(c, item, 1, word, at, n);
}

static void lut2_deal(const deal_ctx *c, size_t at, size_t n)
{
    uint64_t s[GATE_TILE], word[GATE_TILE], r0[GATE_TILE], r1[GATE_TILE];
    uint64_t *out = deal_row(c, 0, 0, at);
    unsigned m0 = c->info->inner[0].bits, m1 = c->info->inner[1].bits;
    table_deal_index(c, 0, c->in[0].r + at, s, at, n);
    table_deal_index(c, 1, c->in[1].r + at, word, at, n);
    deal_mask(c, LUT2_OPEN, 0, r0, at, n);
    deal_mask(c, LUT2_OPEN + 1, 0, r1, at, n);
    deal_mask(c, LUT2_MASK, 0, out, at, n);
    for (size_t i = 0; i < n; i++) {
        s[i] *= word[i];
        word[i] = s[i] * r1[i];
        out[i] -= word[i] * r0[i];
    }
    deal_word(c, LUT2_WORDS, 0, s, at, n);
    deal_word(c, LUT2_WORDS, 1, word, at, n);
    for (size_t i = 0; i < n; i++)
        word[i] = s[i] * r0[i];
    deal_word(c, LUT2_WORDS, 2, word, at, n);
    lut2_deal_top(c, LUT2_TOP0, m0, s, r0, r1, at, n);
    lut2_deal_top(c, LUT2_TOP1, m1, s, r1, r0, at, n);
    for (size_t i = 0; i < n; i++)
        word[i] = s[i] * (r0[i] >> (m0 - 1)) * (r1[i] >> (m1 - 1));
    if (c->info->item[LUT2_TOPS].repeat)
        deal_word(c, LUT2_TOPS, 0, word, at, n);
    deal_finish(c, out, n);
}

/* out += 2^m h (a S t - S r t), a the other opened word. */
static void lut2_add_top(const step_ctx *c, unsigned item, unsigned bits, const uint64_t *clear,
                         const uint64_t *other, uint64_t *out, size_t at, size_t n)
{
    uint64_t st[GATE_TILE], srt[GATE_TILE];
    if (!c->info->item[item].repeat)
        return;
    step_word(c, item, 0, st, at, n);
    step_word(c, item, 1, srt, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] += ((other[i] * st[i] - srt[i]) << bits) * clear[i];
}

static void lut2_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    if (step == 0) {
        table_step_values(c, 0, LUT2_OPEN, 0, 1, c->gate->table, c->io->in[0] + at, at, n);
        table_step_values(c, 1, LUT2_OPEN, 1, 1, c->gate->table2, c->io->in[1] + at, at, n);
        return;
    }
    uint64_t s[GATE_TILE], sr1[GATE_TILE], sr0[GATE_TILE], *out = step_row(c, 0, 0, at);
    uint64_t v0[GATE_TILE], v1[GATE_TILE], h0[GATE_TILE], h1[GATE_TILE], tops[GATE_TILE] = {0};
    unsigned m0 = c->info->inner[0].bits, m1 = c->info->inner[1].bits;
    table_lift(c, 0, v0, h0, at, n);
    table_lift(c, 1, v1, h1, at, n);
    step_word(c, LUT2_WORDS, 0, s, at, n);
    step_word(c, LUT2_WORDS, 1, sr1, at, n);
    step_word(c, LUT2_WORDS, 2, sr0, at, n);
    step_mask(c, LUT2_MASK, 0, out, at, n);
    if (c->info->item[LUT2_TOPS].repeat)
        step_word(c, LUT2_TOPS, 0, tops, at, n);
    for (size_t i = 0; i < n; i++) {
        out[i] += v0[i] * v1[i] * s[i] - v0[i] * sr1[i] - v1[i] * sr0[i];
        out[i] += m0 + m1 < 64 ? h0[i] * h1[i] * (tops[i] << (m0 + m1)) : 0;
    }
    lut2_add_top(c, LUT2_TOP0, m0, h0, v1, out, at, n);
    lut2_add_top(c, LUT2_TOP1, m1, h1, v0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i], c->info->out[0].bits);
}
static void lut2_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] =
            fss_low(c->gate->table[c->x[0][i]] * c->gate->table2[c->x[1][i]], c->info->out[0].bits);
}
const gate_row gate_row_LUT2 = {"LUT2", lut2_info, lut2_deal, lut2_step, lut2_sim};
