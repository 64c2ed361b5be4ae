/* SPDX-License-Identifier: Apache-2.0
 * Gates that drop fraction bits and widen rings. As integers,
 *   u >> f = (u^ >> f) - (r >> f) - w_low + 2^(n-f) w_all,
 * w_low = 1{u^ mod 2^f < r mod 2^f} the borrow out of the dropped bits and w_all = 1{u^ < r} the
 * wrap of the ring. TR keeps n - f bits, where the wrap vanishes. ARS compares for both. GAP knows
 * that |x| < 2^(n-2), so the wrap is MSB(r) (1 - MSB(u^)): one word and no tree. With dither the
 * borrow is dropped too, which rounds by the public low bits of u^.
 * A compared bit w is opened as w^ = w ^ c and used as w^ + (1 - 2 w^) [c]. */
#include "fss/gate_impl.h"

/* A borrow or wrap bit: tree at the mask's low bits, its mask c, and c as a word. */
static void deal_carry(const deal_ctx *c, unsigned tree, unsigned bit, unsigned repeat,
                       unsigned word, const uint64_t *r, size_t at, size_t n)
{
    uint64_t value[GATE_TILE] = {0};
    for (size_t i = 0; i < n; i++)
        value[i] = fss_low(r[i], c->info->item[tree].bits);
    deal_tree(c, tree, value, NULL, at, n);
    deal_mask(c, bit, repeat, value, at, n);
    deal_word(c, word, 0, value, at, n);
}

static void step_carry(const step_ctx *c, unsigned tree, unsigned bit, unsigned repeat,
                       uint64_t offset, size_t at, size_t n)
{
    uint64_t point[GATE_TILE] = {0}, mask[GATE_TILE], *out = step_row(c, 0, repeat, at);
    for (size_t i = 0; i < n; i++)
        point[i] = fss_low(c->io->in[0][at + i] + offset, c->info->item[tree].bits);
    step_less(c, tree, 0, point, out, at, n);
    step_mask(c, bit, repeat, mask, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] ^= mask[i];
}

/* Share of the opened bit, added to out with the factor `times`. */
static void add_carry(const step_ctx *c, unsigned repeat, unsigned word, uint64_t times,
                      uint64_t *out, size_t at, size_t n)
{
    uint64_t share[GATE_TILE];
    const uint64_t *open = step_opened(c, 0, repeat, at);
    step_word(c, word, 0, share, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] += times * (c->b * open[i] + (1 - 2 * open[i]) * share[i]);
}

/* Output masks: the parties' words plus r >> f. */
static void deal_shifted(const deal_ctx *c, unsigned mask, size_t at, size_t n)
{
    uint64_t *out = deal_row(c, 0, 0, at);
    deal_mask(c, mask, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] + (c->in[0].r[at + i] >> c->gate->shift), c->info->out[0].bits);
}

/* Start of an output: own mask words plus, for party 1, (u^ >> f) - back. */
static void step_shifted(const step_ctx *c, unsigned mask, uint64_t offset, uint64_t back,
                         size_t at, size_t n)
{
    uint64_t *out = step_row(c, 0, 0, at);
    step_mask(c, mask, 0, out, at, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t u = fss_low(c->io->in[0][at + i] + offset, c->gate->in_bits);
        out[i] += c->b * ((u >> c->gate->shift) - back);
    }
}

static void step_reduce(const step_ctx *c, size_t at, size_t n)
{
    uint64_t *out = step_row(c, 0, 0, at);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i], c->info->out[0].bits);
}

/* ---- TR: items tree(f), bit, word c, mask ---- */

static tacit_status tr_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    if (gate->shift < 1 || gate->shift >= gate->in_bits)
        return gate_error(gate, err, "a shift by %u in a ring of %u", gate->shift, gate->in_bits);
    unsigned most = gate->in_bits - gate->shift, l = gate->out_bits ? gate->out_bits : most;
    if (l > most)
        return gate_error(gate, err, "ring %u after dropping %u of %u bits; use ARS or GAP", l,
                          gate->shift, gate->in_bits);
    info_input(info, gate->in_bits, false);
    info_compare(gate, info, gate->shift, 1);
    info_item(info, FSS_ITEM_MASK, 1, 1);
    info_item(info, FSS_ITEM_WORD, l, 1);
    info_item(info, FSS_ITEM_MASK, l, 1);
    info_inner(info, 1, 1);
    info_out(info, 1, l);
    return TACIT_OK;
}
static void tr_deal(const deal_ctx *c, size_t at, size_t n)
{
    deal_carry(c, 0, 1, 0, 2, c->in[0].r + at, at, n);
    deal_shifted(c, 3, at, n);
}
static void tr_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    if (step == 0) {
        step_carry(c, 0, 1, 0, 0, at, n);
        return;
    }
    step_shifted(c, 3, 0, 0, at, n);
    add_carry(c, 0, 2, ~(uint64_t)0, step_row(c, 0, 0, at), at, n);
    step_reduce(c, at, n);
}
static void tr_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] = fss_low(c->x[0][i] >> c->gate->shift, c->info->out[0].bits);
}
const gate_row gate_row_TR = {"TR", tr_info, tr_deal, tr_step, tr_sim};

/* ---- ARS: items tree(n), tree(f), bits, word c_all, word c_low, mask ---- */

static tacit_status ars_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    unsigned n = gate->in_bits, l = gate->out_bits ? gate->out_bits : n;
    if (n < 1 || gate->shift >= n)
        return gate_error(gate, err, "a shift by %u in a ring of %u", gate->shift, n);
    if (l <= n - gate->shift)
        return gate_error(gate, err, "ring %u needs no sign after dropping %u of %u bits; use TR",
                          l, gate->shift, n);
    info_input(info, n, false);
    info_compare(gate, info, n, 1);
    info_compare(gate, info, gate->shift, gate->shift ? 1 : 0);
    info_item(info, FSS_ITEM_MASK, 1, gate->shift ? 2 : 1);
    info_item(info, FSS_ITEM_WORD, l - (n - gate->shift), 1);
    info_item(info, FSS_ITEM_WORD, l, gate->shift ? 1 : 0);
    info_item(info, FSS_ITEM_MASK, l, 1);
    info_inner(info, gate->shift ? 2 : 1, 1);
    info_out(info, 1, l);
    return TACIT_OK;
}
static void ars_deal(const deal_ctx *c, size_t at, size_t n)
{
    deal_carry(c, 0, 2, 0, 3, c->in[0].r + at, at, n);
    if (c->gate->shift)
        deal_carry(c, 1, 2, 1, 4, c->in[0].r + at, at, n);
    deal_shifted(c, 5, at, n);
}
static void ars_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    unsigned kept = c->gate->in_bits - c->gate->shift;
    uint64_t half = (uint64_t)1 << (c->gate->in_bits - 1);
    if (step == 0) {
        step_carry(c, 0, 2, 0, half, at, n);
        if (c->gate->shift)
            step_carry(c, 1, 2, 1, half, at, n);
        return;
    }
    uint64_t *out = step_row(c, 0, 0, at);
    step_shifted(c, 5, half, (uint64_t)1 << (kept - 1), at, n);
    add_carry(c, 0, 3, (uint64_t)1 << kept, out, at, n);
    if (c->gate->shift)
        add_carry(c, 1, 4, ~(uint64_t)0, out, at, n);
    step_reduce(c, at, n);
}
static void ars_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] = fss_low((uint64_t)(fss_signed(c->x[0][i], c->gate->in_bits) >> c->gate->shift),
                             c->info->out[0].bits);
}
const gate_row gate_row_ARS = {"ARS", ars_info, ars_deal, ars_step, ars_sim};

/* ---- GAP: items tree(f), bit, word c_low, word MSB(r), mask ---- */

static bool gap_faithful(const fss_gate *gate)
{
    return gate->shift && !gate->dither;
}

/* Bits of the output above the shifted value: where the wrap still shows. */
static unsigned gap_extra(const fss_gate *gate, unsigned l)
{
    unsigned kept = gate->in_bits - gate->shift;
    return l > kept ? l - kept : 0;
}

static tacit_status gap_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    unsigned n = gate->in_bits, l = gate->out_bits ? gate->out_bits : n;
    if (n < 2 || gate->shift > n - 2)
        return gate_error(gate, err, "a shift by %u in a ring of %u; at most n - 2", gate->shift,
                          n);
    unsigned tree = gap_faithful(gate) ? 1 : 0, extra = gap_extra(gate, l);
    info_input(info, n, false);
    info_compare(gate, info, gate->shift, tree);
    info_item(info, FSS_ITEM_MASK, 1, tree);
    info_item(info, FSS_ITEM_WORD, l, tree);
    info_item(info, FSS_ITEM_WORD, extra, extra ? 1 : 0);
    info_item(info, FSS_ITEM_MASK, l, 1);
    if (tree)
        info_inner(info, 1, 1);
    info_out(info, 1, l);
    return TACIT_OK;
}
static void gap_deal(const deal_ctx *c, size_t at, size_t n)
{
    const uint64_t *r = c->in[0].r + at;
    if (gap_faithful(c->gate))
        deal_carry(c, 0, 1, 0, 2, r, at, n);
    if (c->info->item[3].repeat) {
        uint64_t top[GATE_TILE];
        for (size_t i = 0; i < n; i++)
            top[i] = r[i] >> (c->gate->in_bits - 1) & 1;
        deal_word(c, 3, 0, top, at, n);
    }
    deal_shifted(c, 4, at, n);
}
/* The wrap: 2^(n-f) [MSB(r)] wherever the top bit of u^ is clear. */
static void add_wrap(const step_ctx *c, uint64_t offset, uint64_t *out, size_t at, size_t n)
{
    uint64_t top[GATE_TILE];
    unsigned bits = c->gate->in_bits, kept = bits - c->gate->shift;
    step_word(c, 3, 0, top, at, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t u = c->io->in[0][at + i] + offset;
        out[i] += (top[i] << kept) & ~fss_mask_of(u >> (bits - 1));
    }
}
static void gap_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    uint64_t quarter = (uint64_t)1 << (g->in_bits - 2);
    if (step == 0 && gap_faithful(g)) {
        step_carry(c, 0, 1, 0, quarter, at, n);
        return;
    }
    uint64_t *out = step_row(c, 0, 0, at);
    step_shifted(c, 4, quarter, (uint64_t)1 << (g->in_bits - g->shift - 2), at, n);
    if (c->info->item[3].repeat)
        add_wrap(c, quarter, out, at, n);
    if (gap_faithful(g))
        add_carry(c, 0, 2, ~(uint64_t)0, out, at, n);
    step_reduce(c, at, n);
}
static void gap_sim(const sim_ctx *c, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    for (size_t i = at; i < at + n; i++) {
        int64_t x = fss_signed(c->x[0][i], g->in_bits);
        if (g->dither && g->shift) {
            uint64_t u = c->masked[0][i] + ((uint64_t)1 << (g->in_bits - 2));
            x += (int64_t)fss_low(~u, g->shift);
        }
        c->y[0][i] = fss_low((uint64_t)(x >> g->shift), c->info->out[0].bits);
    }
}
const gate_row gate_row_GAP = {"GAP", gap_info, gap_deal, gap_step, gap_sim};
