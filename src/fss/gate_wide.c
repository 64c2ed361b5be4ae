/* SPDX-License-Identifier: Apache-2.0
 * Truncation by digits with nothing opened but the digits' own bits.
 *
 * As in digits.c the borrow is w = sum over d of l_d times e_k for all k above d, bits of shared
 * one-hot tables, each opened as v^ = v ^ c. At most one term of that sum is 1, so it holds over
 * the integers, and with v = v^ + (1 - 2 v^) c a term is
 *   sum over subsets S of the digits above d of
 *     F_d[S] (l^_d C[S] + (1 - 2 l^_d) C[S] c_l(d)),   C[S] = product of c_e over S,
 *     F_d[S] = 1 or -1 or 0, a product of public factors.
 * The dealer shares the C[S] and C[S] c_l(d) as words of the output's ring: additive shares of w
 * come out at once, and the next opening is already that of the result. 1.5 2^D - 2 words instead
 * of as many bits, and one message less. */
#include "fss/gate_impl.h"

enum { ITEM_TABLES, ITEM_BITS, ITEM_PRODUCTS, ITEM_TOP, ITEM_MASK };

static unsigned product_words(unsigned digits)
{
    return (3u << digits) / 2 - 2;
}

/* Few digits mean wide tables, many digits many words. */
static unsigned digits_for(unsigned bits, unsigned ring)
{
    unsigned best = 0;
    size_t least = SIZE_MAX;
    for (unsigned count = 2; count <= DIGITS_MAX; count++) {
        digit_plan p = digits_split(bits, count);
        if (p.width[0] > FSS_LEAF_BITS || p.width[count - 1] < 1)
            continue;
        size_t cost = (size_t)product_words(count) * ring + 2 * (size_t)(2 * count - 1);
        for (unsigned d = 0; d < count; d++)
            cost += (size_t)1 << p.width[d];
        if (cost < least) {
            least = cost;
            best = count;
        }
    }
    return best;
}

static unsigned wide_extra(const fss_gate *g, unsigned ring)
{
    unsigned kept = g->in_bits - g->shift;
    return g->kind == FSS_GAP && ring > kept ? ring - kept : 0;
}

static tacit_status wide_info(const fss_gate *g, fss_info *info, tacit_error *err)
{
    fss_gate plain = *g;
    fss_info other = {.steps = 1};
    plain.wide = plain.digits = false;
    TRY((g->kind == FSS_TR ? &gate_row_TR : &gate_row_GAP)->info(&plain, &other, err));
    unsigned ring = other.out[0].bits, digits = digits_for(g->shift, ring);
    unsigned extra = wide_extra(g, ring);
    info_input(info, g->in_bits, false);
    info_item(info, FSS_ITEM_TABLES, g->shift, digits);
    info_item(info, FSS_ITEM_MASK, 2 * digits - 1, 1);
    info_item(info, FSS_ITEM_WORD, ring, product_words(digits));
    info_item(info, FSS_ITEM_WORD, extra, extra ? 1 : 0);
    info_item(info, FSS_ITEM_MASK, ring, 1);
    info_inner(info, 2 * digits - 1, 1);
    info_out(info, 1, ring);
    return TACIT_OK;
}

size_t tables_bytes(const fss_item *item, size_t count)
{
    digit_plan p = digits_split(item->bits, item->repeat);
    return digits_offset(&p, p.count, count);
}

/* Where the words are: C[S] for S = 1 .., then C[S] c_l(d) for d = 0 .. and all S below 2^d. */
static unsigned product_at(unsigned digits, unsigned d, unsigned set)
{
    return (1u << (digits - 1)) - 1 + (1u << d) - 1 + set;
}

static void deal_products(const deal_ctx *c, unsigned digits, const uint64_t *mask, size_t at,
                          size_t n)
{
    uint64_t value[GATE_TILE] = {0};
    /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): there is a digit */
    for (unsigned set = 0; set < 1u << (digits - 1); set++) {
        for (size_t i = 0; i < n; i++)
            value[i] = (((mask[i] >> digits) & set) ^ set) == 0;
        if (set)
            deal_word(c, ITEM_PRODUCTS, set - 1, value, at, n);
        for (unsigned d = 0; d < digits; d++) {
            if (set >> d)
                continue;
            uint64_t both[GATE_TILE] = {0};
            for (size_t i = 0; i < n; i++)
                both[i] = value[i] & (mask[i] >> d);
            deal_word(c, ITEM_PRODUCTS, product_at(digits, d, set), both, at, n);
        }
    }
}

static void wide_deal(const deal_ctx *c, size_t at, size_t n)
{
    const uint64_t *r = c->in[0].r + at;
    const fss_item *tables = &c->info->item[ITEM_TABLES];
    unsigned heavy = c->gate->heavy, bits = c->info->item[ITEM_BITS].bits;
    const digit_plan p = digits_split(tables->bits, tables->repeat);
    fss_block value[GATE_TILE];
    uint64_t mask[2][GATE_TILE], *out = deal_row(c, 0, 0, at);
    for (unsigned d = 0; d < p.count; d++) {
        for (size_t i = 0; i < n; i++)
            value[i] = fss_table_point(fss_low(r[i] >> p.shift[d], p.width[d]));
        deal_string(c, gate_slot(ITEM_TABLES, d),
                    tables->at[heavy] + digits_offset(&p, d, c->gate->count), 1u << p.width[d],
                    value, at, n);
    }
    for (unsigned b = 0; b < 2; b++)
        fss_prf_words(&c->dealer->seed[b], c->gate->id, gate_slot(ITEM_BITS, 0), at, bits, mask[b],
                      n);
    for (size_t i = 0; i < n; i++)
        mask[0][i] ^= mask[1][i];
    deal_products(c, p.count, mask[0], at, n);
    if (c->info->item[ITEM_TOP].repeat) {
        for (size_t i = 0; i < n; i++)
            mask[0][i] = r[i] >> (c->gate->in_bits - 1) & 1;
        deal_word(c, ITEM_TOP, 0, mask[0], at, n);
    }
    deal_mask(c, ITEM_MASK, 0, out, at, n);
    for (size_t i = 0; i < n; i++)
        out[i] = fss_low(out[i] + (r[i] >> c->gate->shift), c->info->out[0].bits);
}

static uint64_t wide_offset(const fss_gate *g)
{
    return g->kind == FSS_GAP ? (uint64_t)1 << (g->in_bits - 2) : 0;
}

/* The masked bits l_0 .. l_(D-1), e_0 .. e_(D-2) of the public digits. */
static void wide_open(const step_ctx *c, size_t at, size_t n)
{
    const fss_item *tables = &c->info->item[ITEM_TABLES];
    const digit_plan p = digits_split(tables->bits, tables->repeat);
    uint64_t mask[GATE_TILE], offset = wide_offset(c->gate);
    fss_block table[GATE_TILE];
    step_mask(c, ITEM_BITS, 0, mask, at, n);
    for (unsigned d = 0; d < p.count; d++) {
        step_string(c, gate_slot(ITEM_TABLES, d),
                    tables->at[c->party->index] + digits_offset(&p, d, c->gate->count),
                    1u << p.width[d], table, at, n);
        uint64_t *less = step_row(c, 0, d, at);
        uint64_t *equal = d + 1 < p.count ? step_row(c, 0, p.count + d, at) : NULL;
        for (size_t i = 0; i < n; i++) {
            uint64_t digit = fss_low((c->io->in[0][at + i] + offset) >> p.shift[d], p.width[d]);
            less[i] = fss_table_less(table[i], digit) ^ (mask[i] >> d & 1);
            if (equal)
                equal[i] = fss_table_bit(table[i], digit) ^ (mask[i] >> (p.count + d) & 1);
        }
    }
}

/* out -= shares of the borrow. */
static void subtract_borrow(const step_ctx *c, unsigned digits, uint64_t *out, size_t at, size_t n)
{
    uint64_t equal[GATE_TILE] = {0}, set_word[GATE_TILE], word[GATE_TILE];
    for (unsigned k = 0; k + 1 < digits; k++)
        for (size_t i = 0; i < n; i++)
            equal[i] |= step_opened(c, 0, digits + k, at)[i] << k;
    /* NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): there is a digit */
    for (unsigned set = 0; set < 1u << (digits - 1); set++) {
        if (set)
            step_word(c, ITEM_PRODUCTS, set - 1, set_word, at, n);
        for (size_t i = 0; i < n && !set; i++)
            set_word[i] = c->b;
        for (unsigned d = 0; d < digits; d++) {
            if (set >> d)
                continue;
            const uint64_t *less = step_opened(c, 0, d, at), all = (1u << d) - 1;
            step_word(c, ITEM_PRODUCTS, product_at(digits, d, set), word, at, n);
            for (size_t i = 0; i < n; i++) {
                uint64_t open = 0 - (uint64_t)(((equal[i] | set) & all) == all);
                uint64_t odd = 0 - (0x6996966996696996u >> (equal[i] & set) & 1);
                uint64_t term = word[i] + ((set_word[i] - 2 * word[i]) & (0 - less[i]));
                out[i] -= ((term ^ odd) - odd) & open;
            }
        }
    }
}

static void wide_step(const step_ctx *c, unsigned step, size_t at, size_t n)
{
    const fss_gate *g = c->gate;
    if (step == 0) {
        wide_open(c, at, n);
        return;
    }
    unsigned bits = g->in_bits, f = g->shift;
    uint64_t offset = wide_offset(g), back = offset >> f, top[GATE_TILE] = {0};
    uint64_t *out = step_row(c, 0, 0, at);
    if (c->info->item[ITEM_TOP].repeat)
        step_word(c, ITEM_TOP, 0, top, at, n);
    step_mask(c, ITEM_MASK, 0, out, at, n);
    subtract_borrow(c, c->info->item[ITEM_TABLES].repeat, out, at, n);
    for (size_t i = 0; i < n; i++) {
        uint64_t u = fss_low(c->io->in[0][at + i] + offset, bits);
        uint64_t wrap = (top[i] << (bits - f)) & ~fss_mask_of(u >> (bits - 1));
        out[i] = fss_low(out[i] + c->b * ((u >> f) - back) + wrap, c->info->out[0].bits);
    }
}

static const gate_row wide_rows = {"wide shift", wide_info, wide_deal, wide_step, NULL};

const gate_row *wide_row(const fss_gate *gate)
{
    bool shifts = gate->kind == FSS_TR || (gate->kind == FSS_GAP && !gate->dither);
    return gate->wide && shifts && gate->shift > FSS_LEAF_BITS && gate->shift <= DIGITS_MAX_BITS
               ? &wide_rows
               : NULL;
}
