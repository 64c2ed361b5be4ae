/* SPDX-License-Identifier: Apache-2.0
 * Comparison by digits, without a tree.
 *
 * The secret alpha is cut into D digits; the parties hold XOR shares of each digit's one-hot table,
 * so that less and equal of the public digits of x are local, shared bits l_d and e_d. Then
 *   1{x < alpha} = sum over d of l_d times e_k for all k above d,
 * a polynomial over bits. Each bit v is opened as v^ = v ^ c under a fresh mask c, and a product of
 * (v^ ^ c)'s is a sum over subsets of public factors times products of masks, which the dealer has
 * shared: E[S] = product of c_e over S, and L_d[S] = c_l(d) E[S]. So one opening of 2D - 1 bits
 * gives shares of the result, whatever D is. One party stores it all, the other's shares are its
 * seed's: D tables of 2^w bits + (1.5 2^D - 2) bits for every point compared.
 *
 * Digit 0 is the highest. Subset index bit k stands for the equality bit of digit k, so the subsets
 * of the digits above d are the low 2^d entries of E. */
#include <string.h>

#include "fss/gate_impl.h"

enum { SLOT_MASK = 16, SLOT_EQUAL = 128, SLOT_LESS = 256 };

digit_plan digits_split(unsigned bits, unsigned count)
{
    digit_plan p = {.count = count};
    unsigned left = bits;
    for (unsigned d = 0; d < count; d++) {
        p.width[d] = bits / count + (d < bits % count);
        left -= p.width[d];
        p.shift[d] = left;
    }
    return p;
}

/* The number of digits that makes key and opening smallest together. */
static digit_plan digits_plan(const fss_item *item)
{
    digit_plan best = {0};
    size_t least = SIZE_MAX;
    for (unsigned count = 2; count <= DIGITS_MAX; count++) {
        digit_plan p = digits_split(item->bits, count);
        if (p.width[0] > FSS_LEAF_BITS || p.width[count - 1] < 1)
            continue;
        size_t cost = item->repeat * ((3u << count) / 2 - 2 + 2 * (2 * count - 1));
        for (unsigned d = 0; d < count; d++)
            cost += (size_t)1 << p.width[d];
        if (cost < least) {
            least = cost;
            best = p;
        }
    }
    return best;
}

unsigned fss_digits(const fss_item *item)
{
    return digits_plan(item).count;
}

static unsigned equal_width(const digit_plan *p)
{
    return 1u << (p->count - 1);
}
/* L_1 .. L_(D-1) one after the other; L_0 is one mask bit, which the parties share already. */
static unsigned less_width(const digit_plan *p)
{
    return (1u << p->count) - 2;
}

size_t digits_bytes(const fss_item *item, size_t count)
{
    digit_plan p = digits_plan(item);
    size_t bytes =
        item->repeat * (string_bytes(equal_width(&p), count) + string_bytes(less_width(&p), count));
    for (unsigned d = 0; d < p.count; d++)
        bytes += string_bytes(1u << p.width[d], count);
    return bytes;
}

unsigned digits_rows(const fss_item *item)
{
    return item->repeat * (2 * digits_plan(item).count - 1);
}

size_t digits_offset(const digit_plan *p, unsigned d, size_t count)
{
    size_t at = 0;
    for (unsigned k = 0; k < d; k++)
        at += string_bytes(1u << p->width[k], count);
    return at;
}
static size_t eval_offset(const digit_plan *p, unsigned eval, size_t count)
{
    return digits_offset(p, p->count, count) +
           eval * (string_bytes(equal_width(p), count) + string_bytes(less_width(p), count));
}

/* The masks of one point's opened bits: l_0 .. l_(D-1) in the low bits, then e_0 .. e_(D-2). */
static unsigned mask_bits(const digit_plan *p)
{
    return 2 * p->count - 1;
}

static fss_block string_shift(uint64_t bits, unsigned by)
{
    return (fss_block){by < 64 ? bits << by : 0, by >= 64 ? bits << (by - 64)
                                                 : by     ? bits >> (64 - by)
                                                          : 0};
}
/* 2^width bits from position `by`; width <= 6. */
static uint64_t string_slice(fss_block s, unsigned by, unsigned width)
{
    uint64_t v = by >= 64 ? s.hi >> (by - 64) : by ? s.lo >> by | s.hi << (64 - by) : s.lo;
    return fss_low(v, 1u << width);
}

/* Products of the mask bits: E over all subsets, and the L's behind one another. */
static void mask_products(const digit_plan *p, uint64_t mask, uint64_t *equal, fss_block *less)
{
    uint64_t e = 1;
    *less = (fss_block){0, 0};
    for (unsigned d = 1; d < p->count; d++) {
        e |= (e & fss_mask_of(mask >> (p->count + d - 1))) << (1u << (d - 1));
        fss_block l = string_shift(e & fss_mask_of(mask >> d), (1u << d) - 2);
        *less = fss_block_xor(*less, l);
    }
    *equal = e;
}

void deal_digits(const deal_ctx *c, unsigned item, const uint64_t *alpha, size_t at, size_t n)
{
    const fss_item *it = &c->info->item[item];
    const digit_plan p = digits_plan(it);
    size_t base = it->at[c->gate->heavy], count = c->gate->count;
    fss_block value[GATE_TILE], less[GATE_TILE];
    for (unsigned d = 0; d < p.count; d++) {
        for (size_t i = 0; i < n; i++)
            value[i] = fss_table_point(fss_low(alpha[i] >> p.shift[d], p.width[d]));
        deal_string(c, gate_slot(item, d), base + digits_offset(&p, d, count), 1u << p.width[d],
                    value, at, n);
    }
    for (unsigned eval = 0; eval < it->repeat; eval++) {
        uint64_t mask[2][GATE_TILE];
        size_t offset = base + eval_offset(&p, eval, count);
        for (unsigned b = 0; b < 2; b++)
            fss_prf_words(&c->dealer->seed[b], c->gate->id, gate_slot(item, SLOT_MASK + eval), at,
                          mask_bits(&p), mask[b], n);
        for (size_t i = 0; i < n; i++) {
            value[i].hi = 0;
            mask_products(&p, mask[0][i] ^ mask[1][i], &value[i].lo, &less[i]);
        }
        deal_string(c, gate_slot(item, SLOT_EQUAL + eval), offset, equal_width(&p), value, at, n);
        deal_string(c, gate_slot(item, SLOT_LESS + eval),
                    offset + string_bytes(equal_width(&p), count), less_width(&p), less, at, n);
    }
}

void step_digits_open(const step_ctx *c, unsigned item, unsigned eval, const uint64_t *x, size_t at,
                      size_t n)
{
    const fss_item *it = &c->info->item[item];
    const digit_plan p = digits_plan(it);
    fss_block table[GATE_TILE];
    uint64_t mask[GATE_TILE];
    uint64_t *rows = c->io->out[0] + (it->row + eval * mask_bits(&p)) * c->gate->count + at;
    fss_prf_words(&c->party->seed, c->gate->id, gate_slot(item, SLOT_MASK + eval), at,
                  mask_bits(&p), mask, n);
    for (unsigned d = 0; d < p.count; d++) {
        step_string(c, gate_slot(item, d),
                    it->at[c->party->index] + digits_offset(&p, d, c->gate->count),
                    1u << p.width[d], table, at, n);
        uint64_t *less = rows + d * c->gate->count, *equal = less + p.count * c->gate->count;
        for (size_t i = 0; i < n; i++) {
            uint64_t digit = fss_low(x[i] >> p.shift[d], p.width[d]);
            less[i] = fss_table_less(table[i], digit) ^ (mask[i] >> d & 1);
            if (d + 1 < p.count)
                equal[i] = fss_table_bit(table[i], digit) ^ (mask[i] >> (p.count + d) & 1);
        }
    }
}

void step_digits_less(const step_ctx *c, unsigned item, unsigned eval, uint64_t *out, size_t at,
                      size_t n)
{
    const fss_item *it = &c->info->item[item];
    const digit_plan p = digits_plan(it);
    size_t offset = it->at[c->party->index] + eval_offset(&p, eval, c->gate->count);
    const uint64_t *rows = step_opened(c, 0, it->row + eval * mask_bits(&p), at);
    fss_block equal[GATE_TILE], less[GATE_TILE];
    uint64_t mask[GATE_TILE];
    fss_prf_words(&c->party->seed, c->gate->id, gate_slot(item, SLOT_MASK + eval), at,
                  mask_bits(&p), mask, n);
    step_string(c, gate_slot(item, SLOT_EQUAL + eval), offset, equal_width(&p), equal, at, n);
    step_string(c, gate_slot(item, SLOT_LESS + eval),
                offset + string_bytes(equal_width(&p), c->gate->count), less_width(&p), less, at,
                n);
    for (size_t i = 0; i < n; i++) {
        /* V[S]: the public factors of the equality bits outside S, for digits above d */
        uint64_t v = 1, bit = rows[i], sum = (c->b & bit) ^ (mask[i] & 1);
        for (unsigned d = 1; d < p.count; d++) {
            uint64_t open = rows[(p.count + d - 1) * c->gate->count + i];
            v = (v & fss_mask_of(open)) | v << (1u << (d - 1));
            bit = rows[d * c->gate->count + i];
            uint64_t l = string_slice(less[i], (1u << d) - 2, d), e = equal[i].lo;
            sum ^= (uint64_t)__builtin_parityll(v & l) ^
                   (bit & (uint64_t)__builtin_parityll(v & fss_low(e, 1u << d)));
        }
        out[i] = sum & 1;
    }
}
