/* SPDX-License-Identifier: Apache-2.0
 * The guard of calibrated ranges: every tensor whose interval was seen and not proven is checked
 * during the private run, and both parties learn one bit at the end: did all of them stay inside?
 *
 * An element x should lie in [-q 2^s, q 2^s), q in 4..7. Its word is opened once more, coarsely: y
 * is floor((x + c) / 2^s) in a ring of 32, c the public dither, so it is one of two neighbours and
 * costs no key. Accepted is |y| < q:
 *   accepted  =>  -q 2^s <= x < q 2^s modulo 2^(s + 5): what the gates behind rely on;
 *   |x| < (q - 1) 2^s  =>  accepted, always.
 * The comparison of 5 bits is a table of 32 shared bits. The same once more with steps of 2^(s + 3)
 * in a ring of 16 says |x| < 2^(s + 4) modulo 2^(s + 7); both together leave [-q 2^s, q 2^s) of the
 * ring of s + 7 bits and nothing else. Only values beyond that ring are seen modulo it.
 *
 * The bits "outside" of a large tensor are added up modulo 2 in groups, twice: of neighbours and of
 * strangers, so that two outliers that cancel in one grouping do not in the other. Odd groups
 * become words, the words a count, and the count being zero the verdict. */
#include <math.h>

#include "base/rng.h"
#include "secure/rules.h"

enum {
    FINE_BITS = 5,
    COARSE_BITS = 4,
    REACH = 3 + COARSE_BITS,
    MIN_GROUPS = 4096,
    MOST_IN_GROUP = 31
};

/* ---- where a range is worth a check ---- */

static bool moves(const ir_node *node)
{
    op_secure_fn *rule = sec_rule(node);
    return rule == rule_move || rule == rule_same;
}

/* Bits that a smaller range must save: sums cost what their own range costs, products with weights
 * a little for every bit, everything else much. */
enum { GAIN_GATE = 1, GAIN_PRODUCT = 3, GAIN_SUM = 6 };
static unsigned gain_of(const ir_node *node)
{
    op_secure_fn *rule = sec_rule(node);
    if (rule == rule_add || rule == rule_sub || rule == rule_neg)
        return GAIN_SUM;
    return rule == rule_matmul || rule == rule_gemm || rule == rule_conv ? GAIN_PRODUCT : GAIN_GATE;
}

/* The least of that over whatever reads the value, moved or not. */
static unsigned gain_wanted(const sec_builder *b, const ir_value *v, unsigned depth)
{
    unsigned least = GAIN_SUM;
    for (uint32_t i = 0; i < b->graph->nodes.count && least > GAIN_GATE; i++) {
        const ir_node *n = b->graph->nodes.data[i];
        for (uint32_t k = 0; k < n->n_inputs; k++) {
            if (n->inputs[k] != v)
                continue;
            unsigned here = moves(n) ? GAIN_SUM : gain_of(n);
            for (uint32_t o = 0; o < n->n_outputs && depth < 16 && moves(n); o++)
                if (n->outputs[o]) {
                    unsigned there = gain_wanted(b, n->outputs[o], depth + 1);
                    here = there < here ? there : here;
                }
            least = here < least ? here : least;
        }
    }
    return least;
}

/* ---- the checks ---- */

/* Words of `in` in groups of `size`, each summed up modulo 2. */
static sec_wire_id parities(sec_builder *b, sec_wire_id in, size_t count, size_t size)
{
    size_t groups = (count + size - 1) / size;
    uint32_t *offset = sb_alloc(b, groups + 1, sizeof *offset);
    for (size_t i = 0; offset && i <= groups; i++)
        offset[i] = (uint32_t)(i * size < count ? i * size : count);
    return sb_sum(b, in, groups, offset);
}

/* An order that is the same for everybody and like no order of a tensor. */
static int32_t *shuffled(sec_builder *b, size_t count)
{
    int32_t *order = sb_alloc(b, count, sizeof *order);
    rng r = rng_seed(count);
    for (size_t i = 0; order && i < count; i++) {
        size_t j = (size_t)rng_below(&r, i + 1);
        order[i] = order[j];
        order[j] = (int32_t)i;
    }
    return order;
}

/* The number of groups with an odd count of `bad` bits, over both groupings. Groups have an odd
 * size: where everything is outside, none is even. */
static sec_wire_id count_odd(sec_builder *b, sec_wire_id bad, size_t count)
{
    size_t size = count / MIN_GROUPS < MOST_IN_GROUP ? count / MIN_GROUPS | 1 : MOST_IN_GROUP;
    size_t groups = (count + size - 1) / size, n = size > 1 ? 2 * groups : groups;
    sec_wire_id odd = bad;
    if (size > 1) {
        int32_t *both = sb_alloc(b, n, sizeof *both);
        for (size_t i = 0; both && i < n; i++)
            both[i] = (int32_t)i;
        sec_wire_id far = sb_gather(b, 1, &bad, count, shuffled(b, count));
        sec_wire_id parts[] = {parities(b, bad, count, size), parities(b, far, count, size)};
        odd = sb_gather(b, 2, parts, n, both);
    }
    uint32_t *all = sb_alloc(b, 2, sizeof *all);
    sec_instr *words = sb_gate(b, (fss_gate){.kind = FSS_BIT}, 1, &odd, 0);
    if (b->status != TACIT_OK)
        return 0;
    all[1] = (uint32_t)n;
    sb_keep(b, words, 1, NULL, all);
    b->guard_groups += n;
    return words->out[0];
}

/* Everything appended since `first` belongs to the guard. */
static void mark(sec_builder *b, uint32_t first)
{
    for (uint32_t i = first; i < b->p->instrs.count; i++)
        b->p->instrs.data[i].guard = true;
}

/* Bits 1{|y| >= q} of y = floor((x + c) / 2^s) in a ring of `bits`. */
static sec_wire_id outside(sec_builder *b, sec_wire_id x, unsigned s, int q, unsigned bits)
{
    int64_t *top = sb_alloc(b, 1, sizeof *top), half = (int64_t)1 << (bits - 1);
    if (!top)
        return 0;
    fss_gate coarse = {.kind = FSS_GAP, .shift = (uint8_t)s, .dither = true, .in_bits = 64};
    sec_wire_id y = sb_gate(b, coarse, 1, &x, s + bits)->out[0];
    /* -(q - 1) .. q - 1 becomes the lower end of the signed range */
    sec_wire_id z = sb_linear(b, 1, &y, (int64_t[]){1}, q - 1 - half);
    *top = 2 * q - 1 - half;
    fss_gate less = {
        .kind = FSS_LESS, .eff_bits = (uint8_t)bits, .thresholds = 1, .threshold = top};
    sec_wire_id inside = sb_gate(b, less, 1, &z, bits)->out[0];
    return sb_linear(b, 1, &inside, (int64_t[]){1}, 1);
}

static void check(sec_builder *b, sec_wire_id x, unsigned s, int q)
{
    uint32_t first = b->p->instrs.count;
    size_t count = b->status == TACIT_OK ? sb_wire(b, x)->count : 0;
    int32_t *both = sb_alloc(b, 2 * count, sizeof *both);
    for (size_t i = 0; both && i < 2 * count; i++)
        both[i] = (int32_t)i;
    sec_wire_id bad[2] = {outside(b, x, s, q, FINE_BITS), outside(b, x, s + 3, 2, COARSE_BITS)};
    sec_wire_id odd = count_odd(b, sb_gather(b, 2, bad, 2 * count, both), 2 * count);
    mark(b, first);
    if (b->status != TACIT_OK)
        return;
    sb_wire(b, x)->limit = ldexp(q, (int)s);
    b->p->guarded += count;
    if (!vec_push(&b->p->memory, &b->guards, odd))
        b->status = error_memory(b->err, "the secure program");
}

void sb_calibrated(sec_builder *b, const ir_value *v, sec_tensor *t)
{
    const sec_options *o = b->options;
    double seen = o->calibration && v->id < o->n_calibration ? o->calibration[v->id] : 0;
    double most = ldexp(sb_fact(b, seen), t->frac);
    unsigned proven = sb_bits(st_bound(t)), asked = sb_bits(most);
    int s = ilogb(most) - 2, q = (int)floor(ldexp(most, -s)); /* 4 .. 7 */
    if (b->status != TACIT_OK || s < 1 || s + REACH > 64 || asked >= proven ||
        proven - asked < gain_wanted(b, v, 0))
        return;
    double limit = ldexp(q, s);
    if (limit >= st_bound(t))
        return;
    t->lo = fmax(t->lo, -limit);
    t->hi = fmin(t->hi, limit);
    check(b, t->wire, (unsigned)s, q);
}

/* ---- the verdict ---- */

sec_wire_id sec_verdict(sec_builder *b)
{
    uint32_t n = b->guards.count, first = b->p->instrs.count;
    int32_t *each = sb_alloc(b, n, sizeof *each);
    uint32_t *all = sb_alloc(b, 2, sizeof *all);
    int64_t *one = sb_alloc(b, 1, sizeof *one);
    if (!n || !one)
        return SEC_NONE;
    for (uint32_t i = 0; i < n; i++)
        each[i] = (int32_t)i;
    all[1] = n;
    *one = 1;
    unsigned bits = sb_bits((double)b->guard_groups);
    sec_wire_id counts = sb_gather(b, n, b->guards.data, n, each);
    sec_wire_id total = sb_sum(b, counts, 1, all);
    fss_gate none = {
        .kind = FSS_LESS, .eff_bits = (uint8_t)bits, .thresholds = 1, .threshold = one};
    sec_wire_id well = sb_gate(b, none, 1, &total, bits)->out[0];
    sec_instr tell = {.op = SEC_OUTPUT, .port = SEC_NONE, .node = SEC_NONE, .n_in = 1, .min_in = 1};
    tell.in = sb_alloc(b, 1, sizeof *tell.in);
    if (!tell.in)
        return SEC_NONE;
    tell.in[0] = well;
    if (!vec_push(&b->p->memory, &b->p->instrs, tell))
        b->status = error_memory(b->err, "the secure program");
    mark(b, first);
    return well;
}

tacit_status sec_verdict_check(const sec_program *p, uint64_t word, tacit_error *err)
{
    (void)p;
    if (word & 1)
        return TACIT_OK;
    return error_set(err, TACIT_ERR_VALUE,
                     "a value left the ranges that were calibrated; there is no result. Calibrate "
                     "on more samples, or use the full range");
}
