/* SPDX-License-Identifier: Apache-2.0
 * A spline between two straight lines: what activations are made of.
 *
 * Given the bits b_1 = 1{x is left of the spline} and b_2 = 1{x is not right of it} as masked
 * wires, b_1 <= b_2, the result is y = (b_2 - b_1) S(x) + b_1 L(x) + (1 - b_2) H(x). Every b is b^
 * + (1 - 2 b^) c for its mask bit c, so y is public factors times shares of S, L, H and of their
 * products with c_1 and c_2. S is the spline's sum of public words times dealer words (see
 * gate_table.c); times c it is the same sum over words multiplied by c. So the two choices cost
 * words and no message: the spline's own opening is the only one.
 *
 * Items: tree, opening masks, words {1, c_1, c_2} x {P_j, Q_i}, words of the lines, output mask. */
#include "fss/gate_impl.h"

enum { ITEM_TREE, ITEM_OPEN, ITEM_SPLINE, ITEM_LINES, ITEM_MASK };
enum { LEFT, RIGHT };

/* Which words the lines need: r; and for either side c and c r. */
typedef struct line_words {
    int r, c[2], cr[2]; /* position, or -1 */
    unsigned count;
} line_words;

static line_words lines_of(const fss_gate *g)
{
    line_words w = {-1, {-1, -1}, {-1, -1}, 0};
    if (g->slope[LEFT] || g->slope[RIGHT])
        w.r = (int)w.count++;
    for (int side = LEFT; side <= RIGHT; side++) {
        if (g->slope[side] || g->base[side])
            w.c[side] = (int)w.count++;
        if (g->slope[side])
            w.cr[side] = (int)w.count++;
    }
    return w;
}

static unsigned set_words(const fss_gate *g)
{
    return 2 * (g->degree + 1u);
}

static tacit_status curve_info(const fss_gate *g, fss_info *info, tacit_error *err)
{
    fss_info spline = {.steps = 1};
    TRY(gate_row_SPLINE.info(g, &spline, err)); /* the same conditions */
    if (!g->slope || !g->base)
        return gate_error(g, err, "no lines beside the spline");
    unsigned l = spline.out[0].bits;
    info_input(info, g->in_bits, false);
    info_input(info, g->index_bits, false);
    info_input(info, 1, false);
    info_input(info, 1, false);
    info_item(info, FSS_ITEM_TREE, g->index_bits, 1);
    info_item(info, FSS_ITEM_MASK, l, g->degree + 1u);
    info_item(info, FSS_ITEM_WORD, l, 3 * set_words(g));
    info_item(info, FSS_ITEM_WORD, l, lines_of(g).count);
    info_item(info, FSS_ITEM_MASK, l, 1);
    info_inner(info, g->degree + 1u, l);
    info_out(info, 1, l);
    return TACIT_OK;
}

/* One word of the spline, alone and times either mask bit. */
static void deal_times_bits(const deal_ctx *c, unsigned word, const uint64_t *value, size_t at,
                            size_t n)
{
    uint64_t product[GATE_TILE] = {0};
    deal_word(c, ITEM_SPLINE, word, value, at, n);
    for (unsigned side = LEFT; side <= RIGHT; side++) {
        for (size_t i = 0; i < n; i++)
            product[i] = value[i] * c->in[2 + side].r[at + i];
        deal_word(c, ITEM_SPLINE, (1 + side) * set_words(c->gate) + word, product, at, n);
    }
}

static void deal_lines(const deal_ctx *c, size_t at, size_t n)
{
    const line_words w = lines_of(c->gate);
    const uint64_t *r = c->in[0].r + at;
    if (w.r >= 0)
        deal_word(c, ITEM_LINES, (unsigned)w.r, r, at, n);
    for (unsigned side = LEFT; side <= RIGHT; side++) {
        const uint64_t *bit = c->in[2 + side].r + at;
        uint64_t product[GATE_TILE] = {0};
        if (w.c[side] >= 0)
            deal_word(c, ITEM_LINES, (unsigned)w.c[side], bit, at, n);
        for (size_t i = 0; i < n; i++)
            product[i] = bit[i] * r[i];
        if (w.cr[side] >= 0)
            deal_word(c, ITEM_LINES, (unsigned)w.cr[side], product, at, n);
    }
}

static void curve_deal(const deal_ctx *c, size_t at, size_t n)
{
    unsigned d = c->gate->degree;
    const uint64_t *r = c->in[0].r + at;
    uint64_t p[TABLE_DEGREE + 1][GATE_TILE], rv[TABLE_DEGREE + 1][GATE_TILE], q[GATE_TILE];
    table_deal_index(c, ITEM_TREE, c->in[1].r + at, p[0], at, n);
    for (unsigned j = 0; j <= d; j++) {
        for (size_t i = 0; i < n && j; i++)
            p[j][i] = p[j - 1][i] * (0 - r[i]);
        deal_times_bits(c, j, p[j], at, n);
        deal_mask(c, ITEM_OPEN, j, rv[j], at, n);
    }
    for (unsigned k = 0; k <= d; k++) {
        for (size_t i = 0; i < n; i++) {
            q[i] = 0;
            for (unsigned j = k; j <= d; j++)
                q[i] -= table_binomial(j, k) * rv[j][i] * p[j - k][i];
        }
        deal_times_bits(c, d + 1 + k, q, at, n);
    }
    deal_lines(c, at, n);
    deal_mask(c, ITEM_MASK, 0, deal_row(c, 0, 0, at), at, n);
}

/* Shares of the spline (set 0) or of the spline times a mask bit. */
static void step_spline(const step_ctx *c, unsigned set, uint64_t *sum, size_t at, size_t n)
{
    unsigned d = c->gate->degree, first = set * set_words(c->gate);
    uint64_t p[TABLE_DEGREE + 1][GATE_TILE], q[TABLE_DEGREE + 1][GATE_TILE];
    for (unsigned j = 0; j <= d; j++) {
        step_word(c, ITEM_SPLINE, first + j, p[j], at, n);
        step_word(c, ITEM_SPLINE, first + d + 1 + j, q[j], at, n);
    }
    for (size_t e = 0; e < n; e++) {
        uint64_t x = c->io->in[0][at + e], power[TABLE_DEGREE + 1] = {1}, total = q[0][e];
        for (unsigned j = 1; j <= d; j++) {
            power[j] = power[j - 1] * x;
            total += q[j][e] * power[j];
        }
        for (unsigned k = 0; k <= d; k++) {
            uint64_t inner = 0;
            for (unsigned j = 0; j <= k; j++)
                inner += table_binomial(k, j) * power[j] * p[k - j][e];
            total += step_opened(c, 0, k, at)[e] * inner;
        }
        sum[e] = total;
    }
}

/* out += b times the line, or (1 - b) times it on the right side. */
static void add_line(const step_ctx *c, unsigned side, uint64_t *out, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    const line_words w = lines_of(g);
    const uint64_t *x = c->io->in[0] + at, *bit = c->io->in[2 + side] + at;
    uint64_t r[GATE_TILE] = {0}, mask[GATE_TILE] = {0}, product[GATE_TILE] = {0};
    if (w.c[side] < 0)
        return;
    if (w.r >= 0)
        step_word(c, ITEM_LINES, (unsigned)w.r, r, at, n);
    step_word(c, ITEM_LINES, (unsigned)w.c[side], mask, at, n);
    if (w.cr[side] >= 0)
        step_word(c, ITEM_LINES, (unsigned)w.cr[side], product, at, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t value = g->base[side] + g->slope[side] * x[i];
        uint64_t line = c->b * value - g->slope[side] * r[i];
        uint64_t turned = value * mask[i] - g->slope[side] * product[i];
        uint64_t open = side == RIGHT ? 1 - bit[i] : bit[i];
        uint64_t sign = side == RIGHT ? 2 * bit[i] - 1 : 1 - 2 * bit[i];
        out[i] += open * line + sign * turned;
    }
}

static void curve_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    if (step == 0) {
        table_step_values(c, ITEM_TREE, ITEM_OPEN, 0, g->degree + 1u, g->table, c->io->in[1] + at,
                          at, n);
        return;
    }
    const uint64_t *left = c->io->in[2] + at, *right = c->io->in[3] + at;
    uint64_t sum[3][GATE_TILE], *out = step_row(c, 0, 0, at);
    for (unsigned set = 0; set < 3; set++)
        step_spline(c, set, sum[set], at, n);
    step_mask(c, ITEM_MASK, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] += (right[i] - left[i]) * sum[0][i] - (1 - 2 * left[i]) * sum[1][i] +
                  (1 - 2 * right[i]) * sum[2][i];
    add_line(c, LEFT, out, at, n);
    add_line(c, RIGHT, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i], c->info->out[0].bits);
}

static void curve_sim(const sim_ctx *c, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    for (size_t e = at; e < at + n; e++) {
        uint64_t x = c->x[0][e], sum = 0;
        for (unsigned k = g->degree + 1u; k-- > 0;)
            sum = sum * x + g->table[((size_t)k << g->index_bits) + c->x[1][e]];
        unsigned side = c->x[2][e] ? LEFT : RIGHT;
        if (c->x[2][e] || !c->x[3][e])
            sum = g->base[side] + g->slope[side] * x;
        c->y[0][e] = fss_low(sum, c->info->out[0].bits);
    }
}
const gate_row gate_row_CURVE = {"CURVE", curve_info, curve_deal, curve_step, curve_sim};
