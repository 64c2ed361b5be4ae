/* SPDX-License-Identifier: Apache-2.0
 * Inside the gates: one row per kind, working on tiles that fit the stack, and the few ways in
 * which any gate reads or writes key material. */
#ifndef FSS_GATE_IMPL_H
#define FSS_GATE_IMPL_H

#include "fss/gate.h"
#include "fss/suite.h"

enum { GATE_TILE = 256 };

typedef struct deal_ctx {
    const fss_dealer *dealer;
    const fss_gate *gate;
    const fss_info *info;
    const fss_mask *in;
    uint64_t *const *out;
    uint8_t *const *key;
} deal_ctx;

typedef struct step_ctx {
    const fss_party *party;
    const fss_gate *gate;
    const fss_info *info;
    const fss_io *io;
    uint64_t b;     /* party index, as a factor of public terms */
    uint64_t *emit; /* not NULL while digits are being opened: where all other results go to die */
} step_ctx;

typedef struct sim_ctx {
    const fss_gate *gate;
    const fss_info *info;
    const uint64_t *const *x, *const *masked;
    uint64_t *const *y;
} sim_ctx;

typedef struct gate_row {
    const char *name;
    /* Checks the description; fills inputs, steps, vectors and items (not their offsets). */
    tacit_status (*info)(const fss_gate *gate, fss_info *info, tacit_error *err);
    void (*deal)(const deal_ctx *c, size_t at, size_t n); /* n <= GATE_TILE elements from `at` */
    void (*step)(const step_ctx *c, unsigned step, size_t at, size_t n);
    void (*sim)(const sim_ctx *c, size_t at, size_t n);
} gate_row;

#define GATE_ROW_DECLARE(name) extern const gate_row gate_row_##name;
FSS_KIND_MAP(GATE_ROW_DECLARE)
#undef GATE_ROW_DECLARE

/* The row of a gate that compares without opening, or NULL; its simulator is the kind's own. */
const gate_row *direct_row(const fss_gate *gate);
size_t direct_bytes(const fss_item *item, size_t count);
/* The row of a truncation by digits that opens no bit of its own, or NULL. */
const gate_row *wide_row(const fss_gate *gate);
size_t tables_bytes(const fss_item *item, size_t count);

/* Declarations used by the rows' info functions. */
unsigned info_item(fss_info *info, unsigned type, unsigned bits, unsigned repeat);
/* A tree that is expanded as a whole. */
unsigned info_lookup(fss_info *info, unsigned bits);
/* A comparison of `evals` points with the same secret, by tree, digits or table as the gate says.
 */
unsigned info_compare(const fss_gate *gate, fss_info *info, unsigned bits, unsigned evals);
void info_input(fss_info *info, unsigned bits, bool needs_share);
void info_inner(fss_info *info, unsigned rows, unsigned bits); /* also makes the gate two-step */
void info_out(fss_info *info, unsigned rows, unsigned bits);
tacit_status gate_error(const fss_gate *gate, tacit_error *err, const char *format, ...)
    PRINTF_LIKE(3, 4);
static inline unsigned gate_rows(const fss_gate *gate)
{
    return gate->rows ? gate->rows : 1;
}
static inline unsigned gate_eff_bits(const fss_gate *gate)
{
    return gate->eff_bits ? gate->eff_bits : gate->in_bits;
}

/* Dealer: the trees for points alpha; leaf0 (may be NULL) is party 0's bit there. */
void deal_tree(const deal_ctx *c, unsigned item, const uint64_t *alpha, uint64_t *leaf0, size_t at,
               size_t n);
/* Dealer: share `value`; the light party's share is its seed's, the heavy party stores the rest. */
void deal_word(const deal_ctx *c, unsigned item, unsigned repeat, const uint64_t *value, size_t at,
               size_t n);
/* Dealer: the light party's share of that word. */
void deal_light(const deal_ctx *c, unsigned item, unsigned repeat, uint64_t *out, size_t at,
                size_t n);
/* Dealer: the sum of both parties' pseudo-random words. */
void deal_mask(const deal_ctx *c, unsigned item, unsigned repeat, uint64_t *sum, size_t at,
               size_t n);

/* Party: XOR shares of 1{x < alpha}; `eval` tells apart the points compared by one item. */
void step_less(const step_ctx *c, unsigned item, unsigned eval, const uint64_t *x, uint64_t *out,
               size_t at, size_t n);
/* Party: shares of what deal_word shared. */
void step_word(const step_ctx *c, unsigned item, unsigned repeat, uint64_t *out, size_t at,
               size_t n);
/* Party: this party's pseudo-random words. */
void step_mask(const step_ctx *c, unsigned item, unsigned repeat, uint64_t *out, size_t at,
               size_t n);
/* Party: sums[k] = sum over j of F(j) * table_k[(x + j) mod 2^bits] for element at + i, where F is
 * this party's full evaluation; results go to out[k * stride + i]. */
void step_lookup(const step_ctx *c, unsigned item, const uint64_t *table, unsigned rows,
                 const uint64_t *x, uint64_t *out, size_t stride, size_t at, size_t n);

/* XOR shares of bit strings of at most 128 bits, one per element: the light party's come from its
 * seed, the heavy party's are stored at `offset` of its key. */
size_t string_bytes(unsigned width, size_t count);
void deal_string(const deal_ctx *c, uint32_t slot, size_t offset, unsigned width,
                 const fss_block *value, size_t at, size_t n);
void step_string(const step_ctx *c, uint32_t slot, size_t offset, unsigned width, fss_block *out,
                 size_t at, size_t n);

/* Comparison by digits (digits.c). */
enum { DIGITS_MAX = 7, DIGITS_MAX_BITS = 49 };
typedef struct digit_plan {
    unsigned count, width[DIGITS_MAX], shift[DIGITS_MAX];
} digit_plan;
digit_plan digits_split(unsigned bits, unsigned count);
/* Where table d begins in the heavy party's key; d = count is the end of the tables. */
size_t digits_offset(const digit_plan *p, unsigned d, size_t count);
size_t digits_bytes(const fss_item *item, size_t count);
unsigned digits_rows(const fss_item *item); /* opened bits of all points */
void deal_digits(const deal_ctx *c, unsigned item, const uint64_t *alpha, size_t at, size_t n);
void step_digits_open(const step_ctx *c, unsigned item, unsigned eval, const uint64_t *x, size_t at,
                      size_t n);
void step_digits_less(const step_ctx *c, unsigned item, unsigned eval, uint64_t *out, size_t at,
                      size_t n);

/* Look-ups (gate_table.c). */
enum { TABLE_DEGREE = 3 };
tacit_status table_check_index(const fss_gate *gate, unsigned bits, const uint64_t *table,
                               tacit_error *err);
/* Trees at -r; s becomes +1 or -1 as a ring word. */
void table_deal_index(const deal_ctx *c, unsigned tree, const uint64_t *r, uint64_t *s, size_t at,
                      size_t n);
/* Items and openings for one or two looked-up words, each in a ring as narrow as its table. */
void table_open_info(fss_info *info, const uint64_t *first, size_t n, const uint64_t *second,
                     size_t m, unsigned ring);
/* Shares of s * table_k[i] + mask as opened words first, first + 1 ..; `mask`: the item of the
 * first one's masks. */
void table_step_values(const step_ctx *c, unsigned tree, unsigned mask, unsigned first,
                       unsigned count, const uint64_t *table, const uint64_t *index, size_t at,
                       size_t n);
/* Opened word k of a ring of m bits in the output's ring: s * table_k[i] = value - r + 2^m clear t
 * for its mask r and t the top bit of r. Where m is the output's ring, clear is 0. */
void table_lift(const step_ctx *c, unsigned k, uint64_t *value, uint64_t *clear, size_t at,
                size_t n);
uint64_t table_binomial(unsigned n, unsigned k); /* n, k <= TABLE_DEGREE */

/* Slot = item and repeat, so no pseudo-random word of a gate is ever used for two things. */
static inline uint32_t gate_slot(unsigned item, unsigned repeat)
{
    return item << 12 | repeat;
}

/* Row k of an output vector, at element `at`. */
static inline uint64_t *deal_row(const deal_ctx *c, unsigned vector, unsigned row, size_t at)
{
    return c->out[vector] + row * c->gate->count + at;
}
static inline uint64_t *step_row(const step_ctx *c, unsigned vector, unsigned row, size_t at)
{
    return c->emit ? c->emit : c->io->out[vector] + row * c->gate->count + at;
}
static inline const uint64_t *step_opened(const step_ctx *c, unsigned vector, unsigned row,
                                          size_t at)
{
    return c->io->opened[vector] + row * c->gate->count + at;
}

#endif
