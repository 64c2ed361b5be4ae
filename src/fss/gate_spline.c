/* SPDX-License-Identifier: Apache-2.0
 * Splines, alone and between two straight lines.
 *
 * SPLINE: with opened words a_k for s a_k(i), v_k = a_k - rv_k + 2^m h_k t_k (see table_lift) and
 * x = x^ - r,
 *   y = sum_k a_k sum_{i<=k} C(k,i) x^^i P_{k-i} + sum_i Q_i x^^i + sum_k 2^m h_k sum_i .. T_k,
 *   P_j = s (-r)^j,  Q_i = - sum_{k>=i} C(k,i) s rv_k (-r)^(k-i),  T_kj = s t_k (-r)^j.
 * Only lines (degree 1) are opened in narrow rings, so h and T exist for k = 0 and 1.
 *
 * CURVE: given the bits b_1 = 1{x is left of the spline} and b_2 = 1{x is not right of it} as
 * masked wires, b_1 <= b_2, the result is y = (b_2 - b_1) S(x) + b_1 L(x) + (1 - b_2) H(x). Every b
 * is b^ + (1 - 2 b^) c for its mask bit c, so y is public factors times shares of S, L, H and of
 * their products with c_1 and c_2; S times c is the same sum over words multiplied by c. So the two
 * choices cost words and no message: the spline's own opening is the only one. */
#include "fss/gate_impl.h"

enum {
    ITEM_TREE,
    ITEM_OPEN,      /* masks of the opened words: one row each, or all rows */
    ITEM_WORDS = 3, /* by set (1, c_1, c_2): P_0 .., Q_1 .., Q_0 */
    ITEM_TOP0,      /* by set: T_00, above m_0 bits */
    ITEM_TOP1,      /* by set: T_10, T_11, above m_1 bits */
    ITEM_LINES,
    ITEM_MASK
};
enum { LEFT, RIGHT };

static bool is_curve(const fss_gate *g)
{
    return g->kind == FSS_CURVE;
}
static unsigned sets_of(const fss_gate *g)
{
    return is_curve(g) ? 3 : 1;
}
/* A spline alone has its Q_0 in the output mask. */
static unsigned words_of(const fss_gate *g)
{
    return 2 * g->degree + (is_curve(g) ? 2u : 1u);
}

/* Which words the lines need: r; and for either side c and c r. */
typedef struct line_words {
    int r, c[2], cr[2]; /* position, or -1 */
    unsigned count;
} line_words;

static line_words lines_of(const fss_gate *g)
{
    line_words w = {-1, {-1, -1}, {-1, -1}, 0};
    if (!is_curve(g))
        return w;
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

static tacit_status spline_info(const fss_gate *g, fss_info *info, tacit_error *err)
{
    TRY(table_check_index(g, g->index_bits, g->table, err));
    unsigned l = g->out_bits ? g->out_bits : g->in_bits, d = g->degree;
    if (d > TABLE_DEGREE || l < 1 || l > g->in_bits)
        return gate_error(g, err, "degree %u (at most %d) from ring %u to ring %u", d, TABLE_DEGREE,
                          g->in_bits, l);
    if (is_curve(g) && (!g->slope || !g->base))
        return gate_error(g, err, "no lines beside the spline");
    size_t n = (size_t)1 << g->index_bits;
    info_input(info, g->in_bits, false);
    info_input(info, g->index_bits, false);
    for (int k = 0; k < 2 && is_curve(g); k++)
        info_input(info, 1, false);
    info_lookup(info, g->index_bits);
    if (d == 1)
        table_open_info(info, g->table, n, g->table + n, n, l);
    else {
        info_item(info, FSS_ITEM_MASK, l, d + 1);
        info_item(info, FSS_ITEM_MASK, l, 0);
        info_inner(info, d + 1, l);
    }
    unsigned m0 = info->inner[0].bits, m1 = d == 1 ? info->inner[1].bits : l;
    info_item(info, FSS_ITEM_WORD, l, sets_of(g) * words_of(g));
    info_item(info, FSS_ITEM_WORD, l - m0, m0 < l ? sets_of(g) : 0);
    info_item(info, FSS_ITEM_WORD, l - m1, m1 < l ? 2 * sets_of(g) : 0);
    info_item(info, FSS_ITEM_WORD, l, lines_of(g).count);
    info_item(info, FSS_ITEM_MASK, l, 1);
    info_out(info, 1, l);
    return TACIT_OK;
}

/* A word in all sets: alone and times either mask bit. */
static void deal_sets(const deal_ctx *c, unsigned item, unsigned per_set, unsigned word,
                      const uint64_t *value, size_t at, size_t n)
{
    uint64_t product[GATE_TILE] = {0};
    deal_word(c, item, word, value, at, n);
    for (unsigned set = 1; set < sets_of(c->gate); set++) {
        for (size_t i = 0; i < n; i++)
            product[i] = value[i] * c->in[1 + set].r[at + i];
        deal_word(c, item, set * per_set + word, product, at, n);
    }
}

static void deal_lines(const deal_ctx *c, size_t at, size_t n)
{
    const line_words w = lines_of(c->gate);
    const uint64_t *r = c->in[0].r + at;
    if (w.r >= 0)
        deal_word(c, ITEM_LINES, (unsigned)w.r, r, at, n);
    for (unsigned side = LEFT; side <= RIGHT; side++) {
        uint64_t product[GATE_TILE] = {0};
        if (w.c[side] < 0)
            continue;
        const uint64_t *bit = c->in[2 + side].r + at;
        deal_word(c, ITEM_LINES, (unsigned)w.c[side], bit, at, n);
        for (size_t i = 0; i < n; i++)
            product[i] = bit[i] * r[i];
        if (w.cr[side] >= 0)
            deal_word(c, ITEM_LINES, (unsigned)w.cr[side], product, at, n);
    }
}

/* T words of row k from the mask rv of its opening. */
static void deal_tops(const deal_ctx *c, unsigned k, uint64_t (*p)[GATE_TILE], const uint64_t *rv,
                      size_t at, size_t n)
{
    unsigned item = k ? ITEM_TOP1 : ITEM_TOP0, bits = c->info->inner[k].bits;
    uint64_t word[GATE_TILE] = {0};
    for (unsigned j = 0; j <= k && c->info->item[item].repeat; j++) {
        for (size_t i = 0; i < n; i++)
            word[i] = p[j][i] * (rv[i] >> (bits - 1));
        deal_sets(c, item, k + 1, j, word, at, n);
    }
}

static void spline_deal(const deal_ctx *c, size_t at, size_t n)
{
    unsigned d = c->gate->degree, words = words_of(c->gate);
    uint64_t p[TABLE_DEGREE + 1][GATE_TILE], rv[TABLE_DEGREE + 1][GATE_TILE], q[GATE_TILE];
    uint64_t *out = deal_row(c, 0, 0, at);
    bool apart = c->info->inner_vectors == 2;
    table_deal_index(c, ITEM_TREE, c->in[1].r + at, p[0], at, n);
    for (unsigned j = 0; j <= d; j++) {
        for (size_t i = 0; i < n && j; i++)
            p[j][i] = p[j - 1][i] * (0 - c->in[0].r[at + i]);
        deal_sets(c, ITEM_WORDS, words, j, p[j], at, n);
        deal_mask(c, ITEM_OPEN + (apart ? j : 0), apart ? 0 : j, rv[j], at, n);
    }
    for (unsigned k = 0; k <= d && apart; k++)
        deal_tops(c, k, p, rv[k], at, n);
    deal_mask(c, ITEM_MASK, 0, out, at, n);
    for (unsigned i = 0; i <= d; i++) {
        for (size_t e = 0; e < n; e++) {
            q[e] = 0;
            for (unsigned k = i; k <= d; k++)
                q[e] -= table_binomial(k, i) * rv[k][e] * p[k - i][e];
        }
        if (i || is_curve(c->gate))
            deal_sets(c, ITEM_WORDS, words, i ? d + i : 2 * d + 1, q, at, n);
        for (size_t e = 0; e < n && !i && !is_curve(c->gate); e++)
            out[e] -= q[e];
    }
    if (is_curve(c->gate))
        deal_lines(c, at, n);
    for (size_t e = 0; e < n; e++)
        out[e] = fss_low(out[e], c->info->out[0].bits);
}

typedef struct opened_words {
    uint64_t value[TABLE_DEGREE + 1][GATE_TILE], clear[TABLE_DEGREE + 1][GATE_TILE];
} opened_words;

/* sum += 2^m h (T_k0 x^ + T_k1), or 2^m h T_00. */
static void add_tops(const step_ctx *c, unsigned set, unsigned k, const uint64_t *clear,
                     uint64_t *sum, size_t at, size_t n)
{
    unsigned item = k ? ITEM_TOP1 : ITEM_TOP0, bits = c->info->inner[k].bits;
    uint64_t t[2][GATE_TILE] = {{0}};
    if (!c->info->item[item].repeat)
        return;
    for (unsigned j = 0; j <= k; j++)
        step_word(c, item, set * (k + 1) + j, t[j], at, n);
    for (size_t e = 0; e < n; e++) {
        uint64_t value = k ? t[0][e] * c->io->in[0][at + e] + t[1][e] : t[0][e];
        sum[e] += (value << bits) * clear[e];
    }
}

/* Shares of the spline (set 0, up to a constant of the mask) or of it times a mask bit. */
static void step_sum(const step_ctx *c, unsigned set, const opened_words *open, uint64_t *sum,
                     size_t at, size_t n)
{
    unsigned d = c->gate->degree, first = set * words_of(c->gate);
    uint64_t p[TABLE_DEGREE + 1][GATE_TILE], q[TABLE_DEGREE + 1][GATE_TILE] = {{0}};
    for (unsigned j = 0; j <= d; j++)
        step_word(c, ITEM_WORDS, first + j, p[j], at, n);
    for (unsigned j = 1; j <= d; j++)
        step_word(c, ITEM_WORDS, first + d + j, q[j], at, n);
    if (is_curve(c->gate))
        step_word(c, ITEM_WORDS, first + 2 * d + 1, q[0], at, n);
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
            total += open->value[k][e] * inner;
        }
        sum[e] = total;
    }
    for (unsigned k = 0; k <= d && c->info->inner_vectors == 2; k++)
        add_tops(c, set, k, open->clear[k], sum, at, n);
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

static void add_pieces(const step_ctx *c, const opened_words *open, uint64_t *out, size_t at,
                       size_t n)
{
    const uint64_t *left = c->io->in[2] + at, *right = c->io->in[3] + at;
    uint64_t sum[3][GATE_TILE];
    for (unsigned set = 0; set < 3; set++)
        step_sum(c, set, open, sum[set], at, n);
    for (size_t i = 0; i < n; i++)
        out[i] += (right[i] - left[i]) * sum[0][i] - (1 - 2 * left[i]) * sum[1][i] +
                  (1 - 2 * right[i]) * sum[2][i];
    add_line(c, LEFT, out, at, n);
    add_line(c, RIGHT, out, at, n);
}

static void spline_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    if (step == 0) {
        table_step_values(c, ITEM_TREE, ITEM_OPEN, 0, g->degree + 1u, g->table, c->io->in[1] + at,
                          at, n);
        return;
    }
    opened_words open;
    uint64_t sum[GATE_TILE], *out = step_row(c, 0, 0, at);
    for (unsigned k = 0; k <= g->degree; k++)
        table_lift(c, k, open.value[k], open.clear[k], at, n);
    step_mask(c, ITEM_MASK, 0, out, at, n);
    if (is_curve(g))
        add_pieces(c, &open, out, at, n);
    else {
        step_sum(c, 0, &open, sum, at, n);
        for (size_t i = 0; i < n; i++)
            out[i] += sum[i];
    }
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i], c->info->out[0].bits);
}

static uint64_t polynomial(const sim_ctx *c, size_t e)
{
    const fss_gate *g = c->gate;
    uint64_t sum = 0;
    for (unsigned k = g->degree + 1u; k-- > 0;)
        sum = sum * c->x[0][e] + g->table[((size_t)k << g->index_bits) + c->x[1][e]];
    return sum;
}
static void spline_sim(const sim_ctx *c, size_t at, size_t n)
{
    for (size_t e = at; e < at + n; e++)
        c->y[0][e] = fss_low(polynomial(c, e), c->info->out[0].bits);
}
const gate_row gate_row_SPLINE = {"SPLINE", spline_info, spline_deal, spline_step, spline_sim};

static void curve_sim(const sim_ctx *c, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    for (size_t e = at; e < at + n; e++) {
        unsigned side = c->x[2][e] ? LEFT : RIGHT;
        uint64_t y = c->x[2][e] || !c->x[3][e] ? g->base[side] + g->slope[side] * c->x[0][e]
                                               : polynomial(c, e);
        c->y[0][e] = fss_low(y, c->info->out[0].bits);
    }
}
const gate_row gate_row_CURVE = {"CURVE", spline_info, spline_deal, spline_step, curve_sim};
