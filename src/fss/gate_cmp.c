/* SPDX-License-Identifier: Apache-2.0
 * Gates that compare and choose.
 *
 * Sign of x from x^: with y = x^ mod 2^(m-1), the carry of (-r) + x^ into the top bit is one
 * comparison of public y with the secret (-r) mod 2^(m-1).
 * Choice: s x with s = s^ + (1 - 2 s^) r_s expands into public factors times two dealer words,
 * r_s and (2 r_s - 1) r_x; the constant - r_s r_x goes into the output mask. */
#include "fss/gate_impl.h"

static tacit_status check_eff(const fss_gate *gate, tacit_error *err)
{
    if (gate->in_bits < 1 || gate_eff_bits(gate) > gate->in_bits)
        return gate_error(gate, err, "%u effective bits in a ring of %u", gate->eff_bits,
                          gate->in_bits);
    return TACIT_OK;
}

static tacit_status check_same_ring(const fss_gate *gate, tacit_error *err)
{
    if (gate->in_bits < 1 || (gate->out_bits && gate->out_bits != gate->in_bits))
        return gate_error(gate, err, "output ring %u differs from input ring %u", gate->out_bits,
                          gate->in_bits);
    return TACIT_OK;
}

/* ---- sign: items `tree` (m - 1 bits) and `bit` (its mask) ---- */

static void deal_sign(const deal_ctx *c, unsigned tree, unsigned bit, unsigned m, const uint64_t *r,
                      uint64_t *out, size_t at, size_t n)
{
    uint64_t alpha[GATE_TILE] = {0};
    for (size_t i = 0; i < n; i++)
        alpha[i] = fss_low(0 - r[i], m - 1);
    deal_tree(c, tree, alpha, NULL, at, n);
    deal_mask(c, bit, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] ^= (((0 - r[i]) >> (m - 1)) ^ 1) & 1;
}

static void step_sign(const step_ctx *c, unsigned tree, unsigned bit, unsigned m, const uint64_t *x,
                      uint64_t *out, size_t at, size_t n)
{
    uint64_t point[GATE_TILE] = {0}, mask[GATE_TILE];
    for (size_t i = 0; i < n; i++)
        point[i] = fss_low(~x[i], m - 1);
    step_less(c, tree, 0, point, out, at, n);
    step_mask(c, bit, 0, mask, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] ^= mask[i] ^ (c->b & (x[i] >> (m - 1)) & 1);
}

/* ---- choice: items first (r_s), first + 1 ((2 r_s - 1) r_x), first + 2 (output mask) ---- */

static void deal_choice(const deal_ctx *c, unsigned first, const uint64_t *rs, const uint64_t *rx,
                        uint64_t *out, size_t at, size_t n)
{
    uint64_t word[GATE_TILE];
    deal_word(c, first, 0, rs, at, n);
    for (size_t i = 0; i < n; i++)
        word[i] = (2 * rs[i] - 1) * rx[i];
    deal_word(c, first + 1, 0, word, at, n);
    deal_mask(c, first + 2, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] + rs[i] * rx[i], c->info->item[first + 2].bits);
}

static void step_choice(const step_ctx *c, unsigned first, const uint64_t *s, const uint64_t *x,
                        uint64_t *out, size_t at, size_t n)
{
    uint64_t rs[GATE_TILE], word[GATE_TILE];
    step_word(c, first, 0, rs, at, n);
    step_word(c, first + 1, 0, word, at, n);
    step_mask(c, first + 2, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] =
            fss_low(out[i] + c->b * s[i] * x[i] + (1 - 2 * s[i]) * x[i] * rs[i] + s[i] * word[i],
                    c->info->item[first + 2].bits);
}

static void info_choice(fss_info *info, unsigned bits)
{
    info_item(info, FSS_ITEM_WORD, bits, 1);
    info_item(info, FSS_ITEM_WORD, bits, 1);
    info_item(info, FSS_ITEM_MASK, bits, 1);
}

/* ---- SHARE ---- */

static tacit_status share_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    TRY(check_same_ring(gate, err));
    info_input(info, gate->in_bits, false);
    info_item(info, FSS_ITEM_WORD, gate->in_bits, 1);
    info_out(info, 1, gate->in_bits);
    return TACIT_OK;
}
static void share_deal(const deal_ctx *c, size_t at, size_t n)
{
    deal_word(c, 0, 0, c->in[0].r + at, at, n);
    if (!c->out)
        return;
    unsigned heavy = c->gate->heavy;
    uint64_t light[GATE_TILE];
    deal_light(c, 0, 0, light, at, n);
    for (size_t i = 0; i < n; i++) {
        c->out[1 - heavy][at + i] = light[i];
        c->out[heavy][at + i] = fss_low(c->in[0].r[at + i] - light[i], c->gate->in_bits);
    }
}
static void share_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    (void)step;
    step_word(c, 0, 0, step_row(c, 0, 0, at), at, n);
}
static void share_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] = c->masked[0][i] - c->x[0][i];
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] = fss_low(c->y[0][i], c->gate->in_bits);
}
const gate_row gate_row_SHARE = {"SHARE", share_info, share_deal, share_step, share_sim};

/* ---- BIT ---- */

static tacit_status bit_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    if (gate->out_bits < 1)
        return gate_error(gate, err, "no output ring");
    info_input(info, 1, false);
    info_item(info, FSS_ITEM_WORD, gate->out_bits, 1);
    info_item(info, FSS_ITEM_MASK, gate->out_bits, 1);
    info_out(info, 1, gate->out_bits);
    return TACIT_OK;
}
static void bit_deal(const deal_ctx *c, size_t at, size_t n)
{
    deal_word(c, 0, 0, c->in[0].r + at, at, n);
    deal_mask(c, 1, 0, deal_row(c, 0, 0, at), at, n);
}
static void bit_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    uint64_t word[GATE_TILE], *out = step_row(c, 0, 0, at);
    const uint64_t *s = c->io->in[0] + at;
    (void)step;
    step_word(c, 0, 0, word, at, n);
    step_mask(c, 1, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] + c->b * s[i] + (1 - 2 * s[i]) * word[i], c->gate->out_bits);
}
static void bit_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] = c->x[0][i];
}
const gate_row gate_row_BIT = {"BIT", bit_info, bit_deal, bit_step, bit_sim};

/* ---- DRELU ---- */

static tacit_status drelu_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    TRY(check_eff(gate, err));
    info_input(info, gate->in_bits, false);
    info_compare(gate, info, gate_eff_bits(gate) - 1, 1);
    info_item(info, FSS_ITEM_MASK, 1, 1);
    info_out(info, 1, 1);
    return TACIT_OK;
}
static void drelu_deal(const deal_ctx *c, size_t at, size_t n)
{
    deal_sign(c, 0, 1, gate_eff_bits(c->gate), c->in[0].r + at, deal_row(c, 0, 0, at), at, n);
}
static void drelu_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    uint64_t x[GATE_TILE] = {0};
    (void)step;
    for (size_t i = 0; i < n; i++)
        x[i] = c->io->in[0][at + i] - (uint64_t)c->gate->offset;
    step_sign(c, 0, 1, gate_eff_bits(c->gate), x, step_row(c, 0, 0, at), at, n);
}
static void drelu_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] =
            fss_signed(c->x[0][i] - (uint64_t)c->gate->offset, gate_eff_bits(c->gate)) >= 0;
}
const gate_row gate_row_DRELU = {"DRELU", drelu_info, drelu_deal, drelu_step, drelu_sim};

/* ---- SELECT ---- */

static tacit_status select_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    TRY(check_same_ring(gate, err));
    info_input(info, 1, false);
    info_input(info, gate->in_bits, false);
    info_choice(info, gate->in_bits);
    info_out(info, 1, gate->in_bits);
    return TACIT_OK;
}
static void select_deal(const deal_ctx *c, size_t at, size_t n)
{
    deal_choice(c, 0, c->in[0].r + at, c->in[1].r + at, deal_row(c, 0, 0, at), at, n);
}
static void select_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    (void)step;
    step_choice(c, 0, c->io->in[0] + at, c->io->in[1] + at, step_row(c, 0, 0, at), at, n);
}
static void select_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] = c->x[1][i] & fss_mask_of(c->x[0][i]);
}
const gate_row gate_row_SELECT = {"SELECT", select_info, select_deal, select_step, select_sim};

/* ---- RELU ---- */

static tacit_status relu_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    TRY(check_eff(gate, err));
    TRY(check_same_ring(gate, err));
    info_input(info, gate->in_bits, false);
    info_compare(gate, info, gate_eff_bits(gate) - 1, 1);
    info_item(info, FSS_ITEM_MASK, 1, 1);
    info_choice(info, gate->in_bits);
    info_inner(info, 1, 1);
    info_out(info, 1, gate->in_bits);
    return TACIT_OK;
}
static void relu_deal(const deal_ctx *c, size_t at, size_t n)
{
    uint64_t rs[GATE_TILE];
    deal_sign(c, 0, 1, gate_eff_bits(c->gate), c->in[0].r + at, rs, at, n);
    deal_choice(c, 2, rs, c->in[0].r + at, deal_row(c, 0, 0, at), at, n);
}
static void relu_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    const uint64_t *x = c->io->in[0] + at;
    if (step == 0)
        step_sign(c, 0, 1, gate_eff_bits(c->gate), x, step_row(c, 0, 0, at), at, n);
    else
        step_choice(c, 2, step_opened(c, 0, 0, at), x, step_row(c, 0, 0, at), at, n);
}
static void relu_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] = fss_signed(c->x[0][i], gate_eff_bits(c->gate)) >= 0 ? c->x[0][i] : 0;
}
const gate_row gate_row_RELU = {"RELU", relu_info, relu_deal, relu_step, relu_sim};

/* ---- MAX: s = 1{a >= b} of the difference, then b + s (a - b) ---- */

static tacit_status max_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    TRY(check_eff(gate, err));
    TRY(check_same_ring(gate, err));
    if (gate->index_bits > 64)
        return gate_error(gate, err, "an index of %u bits", gate->index_bits);
    unsigned n = gate->in_bits, q = gate->index_bits;
    info_input(info, n, false);
    info_input(info, n, false);
    info_compare(gate, info, gate_eff_bits(gate) - 1, 1);
    info_item(info, FSS_ITEM_MASK, 1, 1);
    info_choice(info, n);
    info_inner(info, 1, 1);
    info_out(info, 1, n);
    if (q) {
        info_input(info, q, false);
        info_input(info, q, false);
        info_choice(info, q);
        info_out(info, 1, q);
    }
    return TACIT_OK;
}
/* Deal the choice between in[k] and in[k + 1] with the items from `first`, into output v. */
static void deal_either(const deal_ctx *c, unsigned k, unsigned first, unsigned v,
                        const uint64_t *rs, size_t at, size_t n)
{
    uint64_t difference[GATE_TILE] = {0}, *out = deal_row(c, v, 0, at);
    for (size_t i = 0; i < n; i++)
        difference[i] = c->in[k].r[at + i] - c->in[k + 1].r[at + i];
    deal_choice(c, first, rs, difference, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] + c->in[k + 1].r[at + i], c->info->out[v].bits);
}
static void max_deal(const deal_ctx *c, size_t at, size_t n)
{
    uint64_t rs[GATE_TILE], difference[GATE_TILE] = {0};
    for (size_t i = 0; i < n; i++)
        difference[i] = c->in[0].r[at + i] - c->in[1].r[at + i];
    deal_sign(c, 0, 1, gate_eff_bits(c->gate), difference, rs, at, n);
    deal_either(c, 0, 2, 0, rs, at, n);
    if (c->gate->index_bits)
        deal_either(c, 2, 5, 1, rs, at, n);
}
static void step_either(const step_ctx *c, unsigned k, unsigned first, unsigned v, size_t at,
                        size_t n)
{
    const uint64_t *p = c->io->in[k] + at, *q = c->io->in[k + 1] + at;
    uint64_t difference[GATE_TILE] = {0}, *out = step_row(c, v, 0, at);
    for (size_t i = 0; i < n; i++)
        difference[i] = p[i] - q[i];
    step_choice(c, first, step_opened(c, 0, 0, at), difference, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] + c->b * q[i], c->info->out[v].bits);
}
static void max_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    if (step == 0) {
        uint64_t difference[GATE_TILE] = {0};
        for (size_t i = 0; i < n; i++)
            difference[i] = c->io->in[0][at + i] - c->io->in[1][at + i];
        step_sign(c, 0, 1, gate_eff_bits(c->gate), difference, step_row(c, 0, 0, at), at, n);
        return;
    }
    step_either(c, 0, 2, 0, at, n);
    if (c->gate->index_bits)
        step_either(c, 2, 5, 1, at, n);
}
static void max_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++) {
        bool first = fss_signed(c->x[0][i] - c->x[1][i], gate_eff_bits(c->gate)) >= 0;
        c->y[0][i] = c->x[first ? 0 : 1][i];
        if (c->gate->index_bits)
            c->y[1][i] = c->x[first ? 2 : 3][i];
    }
}
const gate_row gate_row_MAX = {"MAX", max_info, max_deal, max_step, max_sim};
