/* SPDX-License-Identifier: Apache-2.0
 * Look-ups in public tables at a secret index.
 *
 * The tree's point is -r, so that a party's sum of table[(i^ + j)] over its own bits j gives, with
 * alternating signs, shares of s * table[i]. The sign s = +1 or -1 is a secret constant of the key
 * which the dealer knows, so it needs no protocol: v = s * table[i] is opened under a fresh mask,
 * and whatever follows (the table itself, a polynomial, a product) is public words times dealer
 * words. Keys are never redrawn to get s = +1: that would tell party 0 its own bit. */
#include "fss/gate_impl.h"

static tacit_status check_index(const fss_gate *gate, unsigned bits, const uint64_t *table,
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

void table_step_values(const step_ctx *c, unsigned tree, unsigned mask, unsigned row,
                       unsigned count, const uint64_t *table, const uint64_t *index, size_t at,
                       size_t n)
{
    uint64_t words[GATE_TILE], sign = 1 - 2 * c->b;
    step_lookup(c, tree, table, count, index, step_row(c, 0, row, at), c->gate->count, at, n);
    for (unsigned k = 0; k < count; k++) {
        uint64_t *out = step_row(c, 0, row + k, at);
        step_mask(c, mask, row + k, words, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] = fss_low(sign * out[i] + words[i], c->info->inner[0].bits);
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
    TRY(check_index(gate, gate->index_bits, gate->table, err));
    unsigned rows = gate_rows(gate);
    if (gate->out_bits < 1 || rows > FSS_MAX_ROWS)
        return gate_error(gate, err, "%u rows in a ring of %u bits", rows, gate->out_bits);
    info_input(info, gate->index_bits, false);
    info_item(info, FSS_ITEM_TREE, gate->index_bits, 1);
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
static void lut_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    if (step == 0) {
        table_step_values(c, 0, 1, 0, gate_rows(c->gate), c->gate->table, c->io->in[0] + at, at, n);
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

/* ---- SPLINE: with v_k^ = s a_k + rv_k and x = x^ - r,
 *   y = sum_k v_k^ sum_{i<=k} C(k,i) x^^i P_{k-i} + sum_i Q_i x^^i,
 *   P_j = s (-r)^j,  Q_i = - sum_{k>=i} C(k,i) s rv_k (-r)^(k-i); Q_0 goes into the output mask.
 * Items: tree, opening masks, words P, words Q_1.., output mask. ---- */

uint64_t table_binomial(unsigned n, unsigned k)
{
    static const uint8_t table[TABLE_DEGREE + 1][TABLE_DEGREE + 1] = {
        {1, 0, 0, 0}, {1, 1, 0, 0}, {1, 2, 1, 0}, {1, 3, 3, 1}};
    return table[n][k];
}

static tacit_status spline_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    TRY(check_index(gate, gate->index_bits, gate->table, err));
    unsigned l = gate->out_bits ? gate->out_bits : gate->in_bits, d = gate->degree;
    if (d > TABLE_DEGREE || l < 1 || l > gate->in_bits)
        return gate_error(gate, err, "degree %u (at most %d) from ring %u to ring %u", d,
                          TABLE_DEGREE, gate->in_bits, l);
    info_input(info, gate->in_bits, false);
    info_input(info, gate->index_bits, false);
    info_item(info, FSS_ITEM_TREE, gate->index_bits, 1);
    info_item(info, FSS_ITEM_MASK, l, d + 1);
    info_item(info, FSS_ITEM_WORD, l, d + 1);
    info_item(info, FSS_ITEM_WORD, l, d);
    info_item(info, FSS_ITEM_MASK, l, 1);
    info_inner(info, d + 1, l);
    info_out(info, 1, l);
    return TACIT_OK;
}
static void spline_deal(const deal_ctx *c, size_t at, size_t n)
{
    unsigned d = c->gate->degree;
    uint64_t p[TABLE_DEGREE + 1][GATE_TILE], rv[TABLE_DEGREE + 1][GATE_TILE], q[GATE_TILE];
    uint64_t *out = deal_row(c, 0, 0, at);
    table_deal_index(c, 0, c->in[1].r + at, p[0], at, n);
    for (unsigned j = 0; j <= d; j++) {
        for (size_t i = 0; i < n && j; i++)
            p[j][i] = p[j - 1][i] * (0 - c->in[0].r[at + i]);
        deal_word(c, 2, j, p[j], at, n);
        deal_mask(c, 1, j, rv[j], at, n);
    }
    for (unsigned i = 0; i <= d; i++) {
        for (size_t e = 0; e < n; e++) {
            q[e] = 0;
            for (unsigned k = i; k <= d; k++)
                q[e] -= table_binomial(k, i) * rv[k][e] * p[k - i][e];
        }
        if (i) {
            deal_word(c, 3, i - 1, q, at, n);
            continue;
        }
        deal_mask(c, 4, 0, out, at, n);
        for (size_t e = 0; e < n; e++)
            out[e] -= q[e];
    }
    deal_finish(c, out, n);
}
static void spline_combine(const step_ctx *c, size_t at, size_t n)
{
    unsigned d = c->gate->degree;
    uint64_t p[TABLE_DEGREE + 1][GATE_TILE], q[TABLE_DEGREE + 1][GATE_TILE];
    uint64_t *out = step_row(c, 0, 0, at);
    for (unsigned j = 0; j <= d; j++)
        step_word(c, 2, j, p[j], at, n);
    for (unsigned j = 1; j <= d; j++)
        step_word(c, 3, j - 1, q[j], at, n);
    step_mask(c, 4, 0, out, at, n);
    for (size_t e = 0; e < n; e++) {
        uint64_t x = c->io->in[0][at + e], power[TABLE_DEGREE + 1] = {1};
        for (unsigned j = 1; j <= d; j++) {
            power[j] = power[j - 1] * x;
            out[e] += q[j][e] * power[j];
        }
        for (unsigned k = 0; k <= d; k++) {
            uint64_t sum = 0;
            for (unsigned i = 0; i <= k; i++)
                sum += table_binomial(k, i) * power[i] * p[k - i][e];
            out[e] += step_opened(c, 0, k, at)[e] * sum;
        }
        out[e] = fss_low(out[e], c->info->out[0].bits);
    }
}
static void spline_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    if (step == 0)
        table_step_values(c, 0, 1, 0, c->gate->degree + 1u, c->gate->table, c->io->in[1] + at, at,
                          n);
    else
        spline_combine(c, at, n);
}
static void spline_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t e = at; e < at + n; e++) {
        uint64_t sum = 0;
        for (unsigned k = c->gate->degree + 1u; k-- > 0;)
            sum =
                sum * c->x[0][e] + c->gate->table[((size_t)k << c->gate->index_bits) + c->x[1][e]];
        c->y[0][e] = fss_low(sum, c->info->out[0].bits);
    }
}
const gate_row gate_row_SPLINE = {"SPLINE", spline_info, spline_deal, spline_step, spline_sim};

/* ---- LUT2: y = S (v0^ - r0)(v1^ - r1), S = s0 s1.
 * Items: tree 0, tree 1, opening masks, words S, S r1, S r0, output mask. ---- */

static tacit_status lut2_info(const fss_gate *gate, fss_info *info, tacit_error *err)
{
    TRY(check_index(gate, gate->index_bits, gate->table, err));
    TRY(check_index(gate, gate->index2_bits, gate->table2, err));
    if (gate->out_bits < 1)
        return gate_error(gate, err, "no output ring");
    info_input(info, gate->index_bits, false);
    info_input(info, gate->index2_bits, false);
    info_item(info, FSS_ITEM_TREE, gate->index_bits, 1);
    info_item(info, FSS_ITEM_TREE, gate->index2_bits, 1);
    info_item(info, FSS_ITEM_MASK, gate->out_bits, 2);
    info_item(info, FSS_ITEM_WORD, gate->out_bits, 3);
    info_item(info, FSS_ITEM_MASK, gate->out_bits, 1);
    info_inner(info, 2, gate->out_bits);
    info_out(info, 1, gate->out_bits);
    return TACIT_OK;
}
static void lut2_deal(const deal_ctx *c, size_t at, size_t n)
{
    uint64_t s[GATE_TILE], other[GATE_TILE], r0[GATE_TILE], r1[GATE_TILE];
    uint64_t *out = deal_row(c, 0, 0, at);
    table_deal_index(c, 0, c->in[0].r + at, s, at, n);
    table_deal_index(c, 1, c->in[1].r + at, other, at, n);
    deal_mask(c, 2, 0, r0, at, n);
    deal_mask(c, 2, 1, r1, at, n);
    deal_mask(c, 4, 0, out, at, n);
    for (size_t i = 0; i < n; i++) {
        s[i] *= other[i];
        out[i] -= s[i] * r0[i] * r1[i];
        r0[i] *= s[i];
        r1[i] *= s[i];
    }
    deal_word(c, 3, 0, s, at, n);
    deal_word(c, 3, 1, r1, at, n);
    deal_word(c, 3, 2, r0, at, n);
    deal_finish(c, out, n);
}
static void lut2_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    if (step == 0) {
        table_step_values(c, 0, 2, 0, 1, c->gate->table, c->io->in[0] + at, at, n);
        table_step_values(c, 1, 2, 1, 1, c->gate->table2, c->io->in[1] + at, at, n);
        return;
    }
    uint64_t s[GATE_TILE], sr1[GATE_TILE], sr0[GATE_TILE], *out = step_row(c, 0, 0, at);
    const uint64_t *v0 = step_opened(c, 0, 0, at), *v1 = step_opened(c, 0, 1, at);
    step_word(c, 3, 0, s, at, n);
    step_word(c, 3, 1, sr1, at, n);
    step_word(c, 3, 2, sr0, at, n);
    step_mask(c, 4, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] + v0[i] * v1[i] * s[i] - v0[i] * sr1[i] - v1[i] * sr0[i],
                         c->info->out[0].bits);
}
static void lut2_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t i = at; i < at + n; i++)
        c->y[0][i] =
            fss_low(c->gate->table[c->x[0][i]] * c->gate->table2[c->x[1][i]], c->info->out[0].bits);
}
const gate_row gate_row_LUT2 = {"LUT2", lut2_info, lut2_deal, lut2_step, lut2_sim};
