/* SPDX-License-Identifier: Apache-2.0
 * Products: x y = x^ y^ - x^ r_y - y^ r_x + r_x r_y. Given shares of the operands' masks the
 * products ship nothing: the last term is part of the output mask. */
#include "fss/gate_impl.h"

static tacit_status product_info(const fss_gate *gate, fss_info *info, tacit_error *err,
                                 unsigned inputs)
{
    unsigned l = gate->out_bits ? gate->out_bits : gate->in_bits;
    if (l < 1 || l > gate->in_bits)
        return gate_error(gate, err, "a product in ring %u of operands in ring %u", l,
                          gate->in_bits);
    for (unsigned i = 0; i < inputs; i++)
        info_input(info, gate->in_bits, true);
    info_item(info, FSS_ITEM_MASK, l, 1);
    info_out(info, 1, l);
    return TACIT_OK;
}

static tacit_status mul_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    return product_info(gate, info, err, 2);
}
static void mul_deal(const deal_ctx *c, size_t at, size_t n)
{
    uint64_t *out = deal_row(c, 0, 0, at);
    deal_mask(c, 0, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] - c->in[0].r[at + i] * c->in[1].r[at + i], c->info->out[0].bits);
}
static void mul_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    uint64_t *out = step_row(c, 0, 0, at);
    const uint64_t *x = c->io->in[0] + at, *y = c->io->in[1] + at;
    const uint64_t *rx = c->io->mask_share[0] + at, *ry = c->io->mask_share[1] + at;
    (void)step;
    step_mask(c, 0, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] + c->b * x[i] * y[i] - x[i] * ry[i] - y[i] * rx[i],
                         c->info->out[0].bits);
}
static void mul_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] = fss_low(c->x[0][i] * c->x[1][i], c->info->out[0].bits);
}
const gate_row gate_row_MUL = {"MUL", mul_info, mul_deal, mul_step, mul_sim};

static tacit_status square_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    return product_info(gate, info, err, 1);
}
static void square_deal(const deal_ctx *c, size_t at, size_t n)
{
    uint64_t *out = deal_row(c, 0, 0, at);
    deal_mask(c, 0, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] - c->in[0].r[at + i] * c->in[0].r[at + i], c->info->out[0].bits);
}
static void square_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    uint64_t *out = step_row(c, 0, 0, at);
    const uint64_t *x = c->io->in[0] + at, *rx = c->io->mask_share[0] + at;
    (void)step;
    step_mask(c, 0, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] + c->b * x[i] * x[i] - 2 * x[i] * rx[i], c->info->out[0].bits);
}
static void square_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] = fss_low(c->x[0][i] * c->x[0][i], c->info->out[0].bits);
}
const gate_row gate_row_SQUARE = {"SQUARE", square_info, square_deal, square_step, square_sim};
