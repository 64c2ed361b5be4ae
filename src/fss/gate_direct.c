/* SPDX-License-Identifier: Apache-2.0
 * Gates whose comparison opens nothing: a distributed comparison function gives additive shares of
 * the bit, and of the bit times a mask, at once. Larger keys, one message less.
 *
 * L(y) below is 1{y < alpha} as additive shares. With the point alpha at the mask r of u,
 *   1{u < c} = L(u^ - c) - L(u^) + 1{u^ < c}
 * holds over the integers, so straight pieces need no correction at all. A sign is one comparison t
 * with s = t ^ top(x^) ^ rho for a dealer bit rho: the key's payload is (1 - 2 rho), so that rho +
 * (1 - 2 rho) t comes out, and the public top bit turns it around. */
#include <string.h>

#include "fss/dcf.h"
#include "fss/gate_impl.h"

static fss_dcf dcf_of(const fss_prg *prg, const fss_item *item, unsigned lanes)
{
    return (fss_dcf){prg, item->bits, item->row, item->repeat, lanes};
}

size_t direct_bytes(const fss_item *item, size_t count)
{
    fss_dcf full = dcf_of(NULL, item, FSS_LANES), rest = dcf_of(NULL, item, count % FSS_LANES);
    return count / FSS_LANES * fss_dcf_bytes(&full) +
           (count % FSS_LANES ? fss_dcf_bytes(&rest) : 0);
}

static unsigned info_direct(fss_info *info, unsigned bits, unsigned ring, unsigned words)
{
    unsigned item = info_item(info, FSS_ITEM_DIRECT, bits, words);
    info->item[item].row = (uint16_t)ring;
    return item;
}

/* beta: rows of GATE_TILE words. */
static void deal_direct(const deal_ctx *c, unsigned item, const uint64_t *alpha,
                        uint64_t (*beta)[GATE_TILE], size_t at, size_t n)
{
    const fss_item *it = &c->info->item[item];
    fss_block root[2][GATE_TILE];
    for (unsigned b = 0; b < 2; b++) {
        fss_prf_blocks(&c->dealer->seed[b], c->gate->id, gate_slot(item, 0), at, root[b], n);
        fss_dpf_roots(FSS_TREE_BGI, b, root[b], n);
    }
    for (size_t i = 0; i < n; i += FSS_LANES) {
        unsigned lanes = n - i < FSS_LANES ? (unsigned)(n - i) : FSS_LANES;
        fss_dcf d = dcf_of(&c->dealer->suite->prg, it, lanes);
        uint64_t payload[FSS_DCF_WORDS * FSS_LANES];
        for (unsigned w = 0; w < it->repeat; w++)
            for (unsigned k = 0; k < lanes; k++)
                payload[w * lanes + k] = fss_low(beta[w][i + k], it->row);
        size_t offset = direct_bytes(it, at + i);
        fss_dcf_gen(&d, root[0] + i, root[1] + i, alpha + i, payload,
                    c->key[0] + it->at[0] + offset);
        memcpy(c->key[1] + it->at[1] + offset, c->key[0] + it->at[0] + offset, fss_dcf_bytes(&d));
    }
}

static void step_direct(const step_ctx *c, unsigned item, const uint64_t *x,
                        uint64_t (*out)[GATE_TILE], size_t at, size_t n)
{
    const fss_item *it = &c->info->item[item];
    fss_block root[GATE_TILE];
    fss_prf_blocks(&c->party->seed, c->gate->id, gate_slot(item, 0), at, root, n);
    fss_dpf_roots(FSS_TREE_BGI, c->party->index, root, n);
    for (size_t i = 0; i < n; i += FSS_LANES) {
        unsigned lanes = n - i < FSS_LANES ? (unsigned)(n - i) : FSS_LANES;
        fss_dcf d = dcf_of(&c->party->suite->prg, it, lanes);
        uint64_t share[FSS_DCF_WORDS * FSS_LANES];
        fss_dcf_eval(&d, c->party->index, root + i,
                     c->io->key + it->at[c->party->index] + direct_bytes(it, at + i), x + i, share);
        for (unsigned w = 0; w < it->repeat; w++)
            for (unsigned k = 0; k < lanes; k++)
                out[w][i + k] = share[w * lanes + k];
    }
}

/* ---- TR and GAP: items comparison(f), word MSB(r) of GAP, mask ---- */

static unsigned gap_extra(const fss_gate *g, unsigned l)
{
    unsigned kept = g->in_bits - g->shift;
    return g->kind == FSS_GAP && l > kept ? l - kept : 0;
}

static tacit_status shift_info(const fss_gate *g, fss_info *info, tacit_error *err)
{
    bool gap = g->kind == FSS_GAP;
    if (g->shift < 1 || g->shift + (gap ? 2u : 1u) > g->in_bits)
        return gate_error(g, err, "a shift by %u in a ring of %u", g->shift, g->in_bits);
    unsigned most = g->in_bits - g->shift, l = g->out_bits ? g->out_bits : gap ? g->in_bits : most;
    if (!gap && l > most)
        return gate_error(g, err, "ring %u after dropping %u of %u bits; use ARS or GAP", l,
                          g->shift, g->in_bits);
    unsigned extra = gap_extra(g, l);
    info_input(info, g->in_bits, false);
    info_direct(info, g->shift, l, 1);
    info_item(info, FSS_ITEM_WORD, extra, extra ? 1 : 0);
    info_item(info, FSS_ITEM_MASK, l, 1);
    info_out(info, 1, l);
    return TACIT_OK;
}

static void shift_deal(const deal_ctx *c, size_t at, size_t n)
{
    const uint64_t *r = c->in[0].r + at;
    uint64_t alpha[GATE_TILE] = {0}, beta[1][GATE_TILE] = {{0}}, *out = deal_row(c, 0, 0, at);
    for (size_t i = 0; i < n; i++) {
        alpha[i] = fss_low(r[i], c->gate->shift);
        beta[0][i] = 1;
    }
    deal_direct(c, 0, alpha, beta, at, n);
    if (c->info->item[1].repeat) {
        for (size_t i = 0; i < n; i++)
            alpha[i] = r[i] >> (c->gate->in_bits - 1) & 1;
        deal_word(c, 1, 0, alpha, at, n);
    }
    deal_mask(c, 2, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] + (r[i] >> c->gate->shift), c->info->out[0].bits);
}

static void shift_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    unsigned bits = g->in_bits, f = g->shift;
    bool gap = g->kind == FSS_GAP;
    uint64_t quarter = gap ? (uint64_t)1 << (bits - 2) : 0;
    uint64_t back = gap ? (uint64_t)1 << (bits - f - 2) : 0;
    uint64_t point[GATE_TILE] = {0}, low[1][GATE_TILE], top[GATE_TILE] = {0};
    uint64_t *out = step_row(c, 0, 0, at);
    (void)step;
    for (size_t i = 0; i < n; i++)
        point[i] = fss_low(c->io->in[0][at + i] + quarter, f);
    step_direct(c, 0, point, low, at, n);
    if (c->info->item[1].repeat)
        step_word(c, 1, 0, top, at, n);
    step_mask(c, 2, 0, out, at, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t u = fss_low(c->io->in[0][at + i] + quarter, bits);
        uint64_t wrap = (top[i] << (bits - f)) & ~fss_mask_of(u >> (bits - 1));
        out[i] =
            fss_low(out[i] + c->b * ((u >> f) - back) - low[0][i] + wrap, c->info->out[0].bits);
    }
}

/* ---- RELU and MAX: items comparison, words rho, rho r, r (and rho i, i), masks ---- */

enum { SIGN_RHO = 1, SIGN_INDEX = 4 };

static tacit_status sign_info(const fss_gate *g, fss_info *info, tacit_error *err)
{
    unsigned n = g->in_bits, q = g->kind == FSS_MAX ? g->index_bits : 0, m = gate_eff_bits(g);
    if (n < 1 || m > n || m < 2 || (g->out_bits && g->out_bits != n) || q > n)
        return gate_error(g, err, "%u effective bits, index of %u, in a ring of %u", m, q, n);
    info_input(info, n, false);
    if (g->kind == FSS_MAX)
        info_input(info, n, false);
    info_direct(info, m - 1, n, q ? 3 : 2);
    for (int i = 0; i < 3; i++)
        info_item(info, FSS_ITEM_WORD, n, 1);
    if (q)
        for (int i = 0; i < 2; i++)
            info_item(info, FSS_ITEM_WORD, q, 1);
    info_item(info, FSS_ITEM_MASK, n, 1);
    info_out(info, 1, n);
    if (q) {
        info_item(info, FSS_ITEM_MASK, q, 1);
        info_input(info, q, false);
        info_input(info, q, false);
        info_out(info, 1, q);
    }
    return TACIT_OK;
}

/* The words and payloads of one choice under the mask r of the difference. */
static void deal_side(const deal_ctx *c, unsigned first, const uint64_t *rho, const uint64_t *r,
                      uint64_t *beta, size_t at, size_t n)
{
    uint64_t word[GATE_TILE] = {0};
    for (size_t i = 0; i < n; i++) {
        word[i] = rho[i] * r[i];
        beta[i] = (1 - 2 * rho[i]) * r[i];
    }
    deal_word(c, first, 0, word, at, n);
    deal_word(c, first + 1, 0, r, at, n);
}

static void sign_deal(const deal_ctx *c, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    bool two = g->kind == FSS_MAX, index = two && g->index_bits;
    unsigned m = gate_eff_bits(g), mask = index ? SIGN_INDEX + 2 : SIGN_INDEX;
    uint64_t alpha[GATE_TILE] = {0}, rho[GATE_TILE] = {0}, r[GATE_TILE] = {0};
    uint64_t beta[3][GATE_TILE] = {{0}};
    for (size_t i = 0; i < n; i++) {
        r[i] = c->in[0].r[at + i] - (two ? c->in[1].r[at + i] : 0);
        alpha[i] = fss_low(0 - r[i], m - 1);
        rho[i] = (((0 - r[i]) >> (m - 1)) ^ 1) & 1;
        beta[0][i] = 1 - 2 * rho[i];
    }
    deal_word(c, SIGN_RHO, 0, rho, at, n);
    deal_side(c, SIGN_RHO + 1, rho, r, beta[1], at, n);
    for (unsigned v = 0; v <= index; v++) {
        uint64_t *out = deal_row(c, v, 0, at);
        deal_mask(c, mask + v, 0, out, at, n);
        for (size_t i = 0; two && i < n; i++)
            out[i] = fss_low(out[i] + c->in[2 * v + 1].r[at + i], c->info->out[v].bits);
    }
    if (index) {
        for (size_t i = 0; i < n; i++)
            r[i] = c->in[2].r[at + i] - c->in[3].r[at + i];
        deal_side(c, SIGN_INDEX, rho, r, beta[2], at, n);
    }
    deal_direct(c, 0, alpha, beta, at, n);
}

/* out = mask + second + s (first - second), s by its shares. */
static void step_side(const step_ctx *c, unsigned v, unsigned first, unsigned mask,
                      const uint64_t *s, const uint64_t *turned, const uint64_t *product, size_t at,
                      size_t n)
{
    bool two = c->gate->kind == FSS_MAX;
    const uint64_t *x = c->io->in[2 * v] + at, *y = two ? c->io->in[2 * v + 1] + at : NULL;
    uint64_t constant[GATE_TILE], r[GATE_TILE], *out = step_row(c, v, 0, at);
    step_word(c, first, 0, constant, at, n);
    step_word(c, first + 1, 0, r, at, n);
    step_mask(c, mask, 0, out, at, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t q = two ? y[i] : 0, sr = constant[i] + product[i];
        uint64_t flip = fss_mask_of(turned[i]);
        sr = ((r[i] - sr) & flip) | (sr & ~flip);
        out[i] = fss_low(out[i] + c->b * q + s[i] * (x[i] - q) - sr, c->info->out[v].bits);
    }
}

static void sign_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    bool two = g->kind == FSS_MAX, index = two && g->index_bits;
    unsigned m = gate_eff_bits(g), mask = index ? SIGN_INDEX + 2 : SIGN_INDEX;
    uint64_t point[GATE_TILE] = {0}, turned[GATE_TILE] = {0}, t[3][GATE_TILE], s[GATE_TILE];
    (void)step;
    for (size_t i = 0; i < n; i++) {
        uint64_t x = c->io->in[0][at + i] - (two ? c->io->in[1][at + i] : 0);
        point[i] = fss_low(~x, m - 1);
        turned[i] = x >> (m - 1) & 1;
    }
    step_direct(c, 0, point, t, at, n);
    step_word(c, SIGN_RHO, 0, s, at, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t flip = fss_mask_of(turned[i]);
        s[i] += t[0][i];
        s[i] = ((c->b - s[i]) & flip) | (s[i] & ~flip);
    }
    step_side(c, 0, SIGN_RHO + 1, mask, s, turned, t[1], at, n);
    if (index)
        step_side(c, 1, SIGN_INDEX, mask + 1, s, turned, t[2], at, n);
}

/* ---- PIECES: items comparison, word r, masks ---- */

static tacit_status pieces_info(const fss_gate *g, fss_info *info, tacit_error *err)
{
    fss_info other = {.steps = 1};
    TRY(gate_row_PIECES.info(g, &other, err)); /* the same conditions */
    unsigned l = other.out[0].bits;
    info_input(info, g->in_bits, false);
    info_direct(info, gate_eff_bits(g), l, g->slope ? 2 : 1);
    info_item(info, FSS_ITEM_WORD, l, g->slope ? 1 : 0);
    info_item(info, FSS_ITEM_MASK, l, gate_rows(g));
    info_out(info, gate_rows(g), l);
    return TACIT_OK;
}

static uint64_t piece_at(const fss_gate *g, const uint64_t *table, unsigned row, unsigned k)
{
    return table ? table[(size_t)row * (g->thresholds + 1u) + k] : 0;
}

static void pieces_deal(const deal_ctx *c, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    const uint64_t *r = c->in[0].r + at;
    uint64_t alpha[GATE_TILE] = {0}, beta[2][GATE_TILE] = {{0}};
    for (size_t i = 0; i < n; i++) {
        alpha[i] = fss_low(r[i], gate_eff_bits(g));
        beta[0][i] = 1;
        beta[1][i] = r[i];
    }
    deal_direct(c, 0, alpha, beta, at, n);
    if (g->slope)
        deal_word(c, 1, 0, r, at, n);
    for (unsigned o = 0; o < gate_rows(g); o++) {
        uint64_t *out = deal_row(c, 0, o, at), slope = piece_at(g, g->slope, o, g->thresholds);
        deal_mask(c, 2, o, out, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] = fss_low(out[i] + slope * r[i], c->info->out[0].bits);
    }
}

/* b_k and b_k x of one threshold into all rows. */
static void add_piece(const step_ctx *c, unsigned k, const uint64_t *u, uint64_t t,
                      uint64_t (*base)[GATE_TILE], const uint64_t *r, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    unsigned m = gate_eff_bits(g);
    uint64_t point[GATE_TILE] = {0}, less[2][GATE_TILE] = {{0}};
    for (size_t i = 0; i < n; i++)
        point[i] = fss_low(u[i] - t, m);
    step_direct(c, 0, point, less, at, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t below = u[i] < t, bit = less[0][i] - base[0][i] + c->b * below;
        uint64_t times_r = less[1][i] - base[1][i] + below * r[i];
        less[0][i] = bit;
        less[1][i] = bit * c->io->in[0][at + i] - times_r;
    }
    for (unsigned o = 0; o < gate_rows(g); o++) {
        uint64_t *out = step_row(c, 0, o, at);
        uint64_t add = piece_at(g, g->base, o, k) - piece_at(g, g->base, o, k + 1);
        uint64_t slope = piece_at(g, g->slope, o, k) - piece_at(g, g->slope, o, k + 1);
        for (size_t i = 0; i < n; i++)
            out[i] += add * less[0][i] + slope * less[1][i];
    }
}

static void pieces_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    unsigned m = gate_eff_bits(g), last = g->thresholds;
    uint64_t half = (uint64_t)1 << (m - 1), u[GATE_TILE] = {0}, r[GATE_TILE] = {0};
    uint64_t base[2][GATE_TILE] = {{0}};
    (void)step;
    for (size_t i = 0; i < n; i++)
        u[i] = fss_low(c->io->in[0][at + i] + half, m);
    step_direct(c, 0, u, base, at, n);
    if (g->slope)
        step_word(c, 1, 0, r, at, n);
    for (unsigned o = 0; o < gate_rows(g); o++) {
        uint64_t *out = step_row(c, 0, o, at);
        step_mask(c, 2, o, out, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] += c->b * (piece_at(g, g->slope, o, last) * c->io->in[0][at + i] +
                              piece_at(g, g->base, o, last));
    }
    for (unsigned k = 0; k < last; k++)
        add_piece(c, k, u, fss_low((uint64_t)g->threshold[k] + half, m), base, r, at, n);
    for (unsigned o = 0; o < gate_rows(g); o++)
        for (size_t i = 0; i < n; i++)
            step_row(c, 0, o, at)[i] = fss_low(step_row(c, 0, o, at)[i], c->info->out[0].bits);
}

static const gate_row shift_row = {"direct shift", shift_info, shift_deal, shift_step, NULL};
static const gate_row sign_row = {"direct sign", sign_info, sign_deal, sign_step, NULL};
static const gate_row pieces_row = {"direct PIECES", pieces_info, pieces_deal, pieces_step, NULL};

const gate_row *direct_row(const fss_gate *gate)
{
    if (!gate->direct)
        return NULL;
    switch (gate->kind) {
    case FSS_TR:
        return &shift_row;
    case FSS_GAP:
        return gate->dither || !gate->shift ? NULL : &shift_row;
    case FSS_RELU:
    case FSS_MAX:
        return gate_eff_bits(gate) < 2 || gate->index_bits > gate->in_bits ? NULL : &sign_row;
    case FSS_PIECES:
        return &pieces_row;
    default:
        return NULL;
    }
}
