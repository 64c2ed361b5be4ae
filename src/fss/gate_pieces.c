/* SPDX-License-Identifier: Apache-2.0
 * Many thresholds from one key, and functions made of straight pieces between them.
 *
 * With u = x + 2^(m-1) (unsigned order) and the tree's point at u's mask,
 *   1{u < c} = less(u^ - c) ^ less(u^) ^ 1{u^ < c}.
 * The bits b_k = 1{x < t_k} grow with k, so a piecewise function is the last piece plus a sum of
 * b_k times the step between neighbouring pieces: linear in the bits, no one-hot vector needed. */
#include "fss/gate_impl.h"

static tacit_status check_thresholds(const fss_gate *gate, tacit_error *err)
{
    unsigned m = gate_eff_bits(gate);
    if (gate->in_bits < 1 || m > gate->in_bits)
        return gate_error(gate, err, "%u effective bits in a ring of %u", gate->eff_bits,
                          gate->in_bits);
    if (gate->thresholds < 1 || gate->thresholds > FSS_MAX_THRESHOLDS || !gate->threshold)
        return gate_error(gate, err, "%u thresholds; 1 to %d are possible", gate->thresholds,
                          FSS_MAX_THRESHOLDS);
    for (unsigned k = 0; k < gate->thresholds; k++) {
        if (fss_signed((uint64_t)gate->threshold[k], m) != gate->threshold[k])
            return gate_error(gate, err, "threshold %lld does not fit %u signed bits",
                              (long long)gate->threshold[k], m);
        if (k && gate->threshold[k] <= gate->threshold[k - 1])
            return gate_error(gate, err, "thresholds do not ascend at %u", k);
    }
    return TACIT_OK;
}

static uint64_t half_ring(const fss_gate *gate)
{
    return (uint64_t)1 << (gate_eff_bits(gate) - 1);
}

static void deal_bits(const deal_ctx *c, const uint64_t *r, size_t at, size_t n)
{
    uint64_t alpha[GATE_TILE] = {0};
    for (size_t i = 0; i < n; i++)
        alpha[i] = fss_low(r[i], gate_eff_bits(c->gate));
    deal_tree(c, 0, alpha, NULL, at, n);
}

/* All threshold bits, masked, as the rows of output 0. */
static void step_bits(const step_ctx *c, size_t at, size_t n)
{
    unsigned m = gate_eff_bits(c->gate);
    uint64_t u[GATE_TILE], point[GATE_TILE], base[GATE_TILE], mask[GATE_TILE];
    for (size_t i = 0; i < n; i++)
        u[i] = fss_low(c->io->in[0][at + i] + half_ring(c->gate), m);
    step_less(c, 0, 0, u, base, at, n);
    for (unsigned k = 0; k < c->gate->thresholds; k++) {
        uint64_t t = fss_low((uint64_t)c->gate->threshold[k] + half_ring(c->gate), m);
        uint64_t *out = step_row(c, 0, k, at);
        for (size_t i = 0; i < n; i++)
            point[i] = fss_low(u[i] - t, m);
        step_less(c, 0, k + 1, point, out, at, n);
        step_mask(c, 1, k, mask, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] ^= base[i] ^ mask[i] ^ (c->b & (u[i] < t));
    }
}

/* ---- LESS ---- */

static tacit_status less_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    TRY(check_thresholds(gate, err));
    info_input(info, gate->in_bits, false);
    info_compare(gate, info, gate_eff_bits(gate), gate->thresholds + 1u);
    info_item(info, FSS_ITEM_MASK, 1, gate->thresholds);
    info_out(info, gate->thresholds, 1);
    return TACIT_OK;
}
static void less_deal(const deal_ctx *c, size_t at, size_t n)
{
    deal_bits(c, c->in[0].r + at, at, n);
    for (unsigned k = 0; k < c->gate->thresholds; k++)
        deal_mask(c, 1, k, deal_row(c, 0, k, at), at, n);
}
static void less_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    (void)step;
    step_bits(c, at, n);
}
static void less_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (unsigned k = 0; k < c->gate->thresholds; k++)
        for (size_t i = at; i < at + n; i++)
            c->y[0][k * c->gate->count + i] =
                fss_signed(c->x[0][i], gate_eff_bits(c->gate)) < c->gate->threshold[k];
}
const gate_row gate_row_LESS = {"LESS", less_info, less_deal, less_step, less_sim};

/* ---- PIECES: items tree, bit masks, words rho_k, words (2 rho_k - 1) r_x, output masks ---- */

static tacit_status pieces_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    TRY(check_thresholds(gate, err));
    unsigned l = gate->out_bits ? gate->out_bits : gate->in_bits;
    if (!gate->base)
        return gate_error(gate, err, "no constants");
    if (gate->slope && l > gate->in_bits)
        return gate_error(gate, err, "slopes in a ring of %u wider than the input's %u", l,
                          gate->in_bits);
    if (gate_rows(gate) > FSS_MAX_ROWS)
        return gate_error(gate, err, "%u outputs; at most %d", gate_rows(gate), FSS_MAX_ROWS);
    info_input(info, gate->in_bits, false);
    info_compare(gate, info, gate_eff_bits(gate), gate->thresholds + 1u);
    info_item(info, FSS_ITEM_MASK, 1, gate->thresholds);
    info_item(info, FSS_ITEM_WORD, l, gate->thresholds);
    info_item(info, FSS_ITEM_WORD, l, gate->slope ? gate->thresholds : 0);
    info_item(info, FSS_ITEM_MASK, l, gate_rows(gate));
    info_inner(info, gate->thresholds, 1);
    info_out(info, gate_rows(gate), l);
    return TACIT_OK;
}

/* How much piece k lies above piece k + 1, in row `row` of a table. */
static uint64_t piece_step(const fss_gate *gate, const uint64_t *table, unsigned row, unsigned k)
{
    const uint64_t *t = table + (size_t)row * (gate->thresholds + 1u);
    return t[k] - t[k + 1];
}
static uint64_t piece_last(const fss_gate *gate, const uint64_t *table, unsigned row)
{
    return table[(size_t)row * (gate->thresholds + 1u) + gate->thresholds];
}

static void pieces_deal(const deal_ctx *c, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    const uint64_t *r = c->in[0].r + at;
    uint64_t rho[GATE_TILE], word[GATE_TILE];
    unsigned l = c->info->out[0].bits;
    deal_bits(c, r, at, n);
    for (unsigned o = 0; o < gate_rows(g); o++) {
        uint64_t *out = deal_row(c, 0, o, at), slope = g->slope ? piece_last(g, g->slope, o) : 0;
        deal_mask(c, 4, o, out, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] += slope * r[i];
    }
    for (unsigned k = 0; k < g->thresholds; k++) {
        deal_mask(c, 1, k, rho, at, n);
        deal_word(c, 2, k, rho, at, n);
        if (!g->slope)
            continue;
        for (size_t i = 0; i < n; i++)
            word[i] = (2 * rho[i] - 1) * r[i];
        deal_word(c, 3, k, word, at, n);
        for (unsigned o = 0; o < gate_rows(g); o++)
            for (size_t i = 0; i < n; i++)
                deal_row(c, 0, o, at)[i] += piece_step(g, g->slope, o, k) * rho[i] * r[i];
    }
    for (unsigned o = 0; o < gate_rows(g); o++)
        for (size_t i = 0; i < n; i++)
            deal_row(c, 0, o, at)[i] = fss_low(deal_row(c, 0, o, at)[i], l);
}

/* Shares of b_k and of b_k x (up to the constant in the mask) for one threshold, into all rows. */
static void add_piece(const step_ctx *c, unsigned k, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    const uint64_t *x = c->io->in[0] + at, *open = step_opened(c, 0, k, at);
    uint64_t rho[GATE_TILE], word[GATE_TILE] = {0};
    step_word(c, 2, k, rho, at, n);
    if (g->slope)
        step_word(c, 3, k, word, at, n);
    for (size_t i = 0; i < n; i++) {
        rho[i] = c->b * open[i] + (1 - 2 * open[i]) * rho[i];
        word[i] = rho[i] * x[i] + open[i] * word[i];
    }
    for (unsigned o = 0; o < gate_rows(g); o++) {
        uint64_t *out = step_row(c, 0, o, at), base = piece_step(g, g->base, o, k);
        uint64_t slope = g->slope ? piece_step(g, g->slope, o, k) : 0;
        for (size_t i = 0; i < n; i++)
            out[i] += base * rho[i] + slope * word[i];
    }
}

static void pieces_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    if (step == 0) {
        step_bits(c, at, n);
        return;
    }
    for (unsigned o = 0; o < gate_rows(g); o++) {
        uint64_t *out = step_row(c, 0, o, at), slope = g->slope ? piece_last(g, g->slope, o) : 0;
        step_mask(c, 4, o, out, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] += c->b * (slope * c->io->in[0][at + i] + piece_last(g, g->base, o));
    }
    for (unsigned k = 0; k < g->thresholds; k++)
        add_piece(c, k, at, n);
    for (unsigned o = 0; o < gate_rows(g); o++)
        for (size_t i = 0; i < n; i++)
            step_row(c, 0, o, at)[i] = fss_low(step_row(c, 0, o, at)[i], c->info->out[0].bits);
}

static void pieces_sim(const sim_ctx *c, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    for (size_t i = at; i < at + n; i++) {
        int64_t x = fss_signed(c->x[0][i], gate_eff_bits(g));
        unsigned piece = 0;
        while (piece < g->thresholds && x >= g->threshold[piece])
            piece++;
        for (unsigned o = 0; o < gate_rows(g); o++) {
            size_t at_piece = (size_t)o * (g->thresholds + 1u) + piece;
            uint64_t slope = g->slope ? g->slope[at_piece] : 0;
            c->y[0][o * g->count + i] =
                fss_low(slope * c->x[0][i] + g->base[at_piece], c->info->out[0].bits);
        }
    }
}
const gate_row gate_row_PIECES = {"PIECES", pieces_info, pieces_deal, pieces_step, pieces_sim};
