/* SPDX-License-Identifier: Apache-2.0
 * How each gate compares, and in which round everything happens.
 *
 * A comparison can be had cheaply with more messages or dearly with fewer, and only the longest
 * chain of a program makes its rounds. So every gate first gets a form that is small; then, while a
 * transformer block takes more rounds than it should, the cheapest group of gates that share a
 * place on the longest chain is given the next faster form. */
#include <stdlib.h>

#include "secure/build.h"

enum { FEW = 4096, BLOCK_ROUNDS = 48 };

/* Forms in order of speed: rounds fall, keys grow. */
typedef enum form { FORM_DIGITS, FORM_WIDE, FORM_TREE, FORM_DIRECT, FORMS } form;

static void set_form(fss_gate *g, form f)
{
    g->digits = f == FORM_DIGITS;
    g->wide = f == FORM_WIDE;
    g->direct = f == FORM_DIRECT;
}

static form form_of(const fss_gate *g)
{
    return g->direct ? FORM_DIRECT : g->wide ? FORM_WIDE : g->digits ? FORM_DIGITS : FORM_TREE;
}

static bool truncates(const fss_gate *g)
{
    return g->kind == FSS_TR || g->kind == FSS_GAP;
}

/* Tournaments are chains of comparisons, so each of them is direct; the bits that choose between
 * the pieces of an activation come from trees, because digits would be most of what is sent. */
static form small_form(const fss_gate *g)
{
    if (g->count <= FEW || g->kind == FSS_MAX)
        return FORM_DIRECT;
    if (truncates(g))
        return FORM_WIDE;
    return g->kind == FSS_LESS ? FORM_TREE : FORM_DIGITS;
}

static void settle(sec_builder *b, sec_instr *in)
{
    if (b->status == TACIT_OK)
        b->status = fss_gate_info(&b->p->suite, &in->gate, &in->info, b->err);
    if (b->status != TACIT_OK && in->node != SEC_NONE)
        b->status =
            error_context(b->err, b->status, "node '%s'", b->graph->nodes.data[in->node]->name);
}

/* Everything as early as its inputs allow. */
static void place(sec_builder *b)
{
    sec_program *p = b->p;
    p->rounds = 0;
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        sec_instr *in = &p->instrs.data[i];
        in->start = 0;
        for (uint32_t k = 0; k < in->n_in; k++) {
            uint32_t ready = sb_wire(b, in->in[k])->ready;
            in->start = in->start < ready ? ready : in->start;
        }
        uint32_t end = in->start + (in->op == SEC_INPUT ? 1 : sec_steps(in));
        for (uint32_t k = 0; k < in->n_out; k++)
            sb_wire(b, in->out[k])->ready = end;
        p->rounds = end > p->rounds ? end : p->rounds;
    }
}

/* Marks the instructions of the longest chains. `due` is by wire: the round that must have it. */
static void find_chain(sec_builder *b, uint32_t *due, bool *chain)
{
    sec_program *p = b->p;
    for (uint32_t w = 0; w < p->wires.count; w++)
        due[w] = p->rounds;
    for (uint32_t i = p->instrs.count; i-- > 0;) {
        sec_instr *in = &p->instrs.data[i];
        uint32_t end = p->rounds, steps = in->op == SEC_INPUT ? 1 : sec_steps(in);
        for (uint32_t k = 0; k < in->n_out; k++)
            end = due[in->out[k]] < end ? due[in->out[k]] : end;
        chain[i] = end == in->start + steps;
        for (uint32_t k = 0; k < in->n_in; k++)
            if (due[in->in[k]] > end - steps)
                due[in->in[k]] = end - steps;
    }
}

static uint64_t key_of(const sec_program *p, const sec_instr *in)
{
    return sec_key_bytes(p, in, 0) + sec_key_bytes(p, in, 1);
}

/* The next form that needs fewer rounds; false when there is none. */
static bool faster(sec_builder *b, sec_instr *in)
{
    unsigned steps = sec_steps(in);
    for (form f = form_of(&in->gate) + 1; f < FORMS; f++) {
        if (f == FORM_WIDE && !truncates(&in->gate))
            continue;
        set_form(&in->gate, f);
        settle(b, in);
        if (b->status != TACIT_OK || sec_steps(in) < steps)
            return b->status == TACIT_OK;
    }
    return false;
}

static bool can_be_faster(const sec_instr *in, const bool *frozen, uint32_t i)
{
    return in->op == SEC_GATE && !frozen[i] && sec_steps(in) > 1 &&
           (truncates(&in->gate) || in->gate.kind == FSS_PIECES || in->gate.kind == FSS_RELU) &&
           form_of(&in->gate) != FORM_DIRECT && !in->gate.dither;
}

/* What it would cost to speed up all gates of the chain that begin in `round`; UINT64_MAX where
 * there is none. */
static uint64_t group_cost(sec_builder *b, uint32_t round, const bool *chain, const bool *frozen)
{
    uint64_t cost = 0;
    bool any = false;
    for (uint32_t i = 0; i < b->p->instrs.count; i++) {
        sec_instr *in = &b->p->instrs.data[i], before = *in;
        if (in->start != round || !chain[i] || !can_be_faster(in, frozen, i))
            continue;
        if (faster(b, in)) {
            any = true;
            cost += key_of(b->p, in) - key_of(b->p, &before);
        }
        *in = before;
    }
    return any ? cost : UINT64_MAX;
}

/* Speeds up the group; where that gains nothing it is undone and left alone from then on. */
static void upgrade(sec_builder *b, uint32_t round, const bool *chain, bool *frozen)
{
    sec_program *p = b->p;
    uint32_t before = p->rounds;
    sec_instr *old = malloc(p->instrs.count * sizeof *old);
    if (!old) {
        b->status = error_memory(b->err, "the secure program");
        return;
    }
    memcpy(old, p->instrs.data, p->instrs.count * sizeof *old);
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        sec_instr *in = &p->instrs.data[i];
        if (in->start == round && chain[i] && can_be_faster(in, frozen, i) && !faster(b, in))
            *in = old[i];
    }
    place(b);
    if (p->rounds >= before) {
        for (uint32_t i = 0; i < p->instrs.count; i++)
            frozen[i] |= old[i].start == round && chain[i];
        memcpy(p->instrs.data, old, p->instrs.count * sizeof *old);
        place(b);
    }
    free(old);
}

static void shorten(sec_builder *b)
{
    sec_program *p = b->p;
    uint32_t *due = sb_alloc(b, p->wires.count, sizeof *due);
    bool *chain = sb_alloc(b, p->instrs.count, 1), *frozen = sb_alloc(b, p->instrs.count, 1);
    while (b->status == TACIT_OK && p->blocks && sec_rounds_per_block(p) > BLOCK_ROUNDS) {
        find_chain(b, due, chain);
        uint32_t best = 0;
        uint64_t least = UINT64_MAX;
        for (uint32_t round = 0; round < p->rounds; round++) {
            uint64_t cost = group_cost(b, round, chain, frozen);
            if (cost < least) {
                least = cost;
                best = round;
            }
        }
        if (least == UINT64_MAX)
            return;
        upgrade(b, best, chain, frozen);
    }
}

/* The explicit words of a gate go to whoever has less so far; outputs are the client's anyway. */
static void balance(sec_builder *b)
{
    uint64_t key[2] = {0};
    for (uint32_t i = 0; i < b->p->instrs.count; i++)
        for (unsigned party = 0; party < 2 && b->p->instrs.data[i].op == SEC_OUTPUT; party++)
            key[party] += sec_key_bytes(b->p, &b->p->instrs.data[i], party);
    for (uint32_t i = 0; i < b->p->instrs.count && b->status == TACIT_OK; i++) {
        sec_instr *in = &b->p->instrs.data[i];
        if (in->op == SEC_GATE) {
            in->gate.heavy = key[0] > key[1];
            settle(b, in);
        }
        for (unsigned party = 0; party < 2 && in->op != SEC_OUTPUT; party++)
            key[party] += sec_key_bytes(b->p, in, party);
    }
}

void sec_schedule(sec_builder *b)
{
    static const form asked[SEC_COMPARES] = {
        [SEC_TREES] = FORM_TREE, [SEC_DIGITS] = FORM_DIGITS, [SEC_DIRECT] = FORM_DIRECT};
    sec_compare how = (sec_compare)b->p->mode.compare;
    for (uint32_t i = 0; i < b->p->instrs.count && b->status == TACIT_OK; i++) {
        sec_instr *in = &b->p->instrs.data[i];
        if (in->op != SEC_GATE)
            continue;
        set_form(&in->gate, how == SEC_AUTO ? small_form(&in->gate) : asked[how]);
        settle(b, in);
    }
    if (b->status != TACIT_OK)
        return;
    place(b);
    if (how == SEC_AUTO)
        shorten(b);
    if (b->status == TACIT_OK)
        sec_split(b);
    balance(b);
    place(b);
}
