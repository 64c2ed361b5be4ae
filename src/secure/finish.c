/* SPDX-License-Identifier: Apache-2.0
 * From instructions to a schedule: rings from the last instruction back to the first, shares of
 * masks where products need them, rounds, ids and sizes. */
#include <stdlib.h>

#include "secure/build.h"

static void want(sec_builder *b, sec_wire_id w, unsigned bits, const sec_instr *by)
{
    sec_wire *wire = sb_wire(b, w);
    if (bits > 64) {
        const ir_node *n = by->node != SEC_NONE ? b->graph->nodes.data[by->node] : NULL;
        sec_range none = {0, 0, 0}, r = n ? b->p->ranges[n->id] : none;
        sb_fail(b, TACIT_ERR_LIMIT,
                "node '%s' (%s), whose result lies in [%.4g, %.4g], needs a ring of %u bits and "
                "there are 64; lower --frac, bound the inputs (--bound), or take ranges from "
                "samples (--calibrate)",
                n ? n->name : "?", n ? n->type : "?", r.lo, r.hi, bits);
        bits = 64;
    }
    if (wire->bits < bits)
        wire->bits = (uint8_t)bits;
}

static unsigned larger(unsigned a, unsigned b)
{
    return a > b ? a : b;
}

/* The output's ring is known: what must the inputs' be? */
static void gate_rings(sec_builder *b, sec_instr *in)
{
    fss_gate *g = &in->gate;
    unsigned out = sb_wire(b, in->out[0])->bits, need = in->min_in;
    switch (g->kind) {
    case FSS_GAP:
        g->in_bits = (uint8_t)need;
        g->out_bits = (uint8_t)out;
        break;
    case FSS_TR: /* fewer bits than asked for may have been wanted */
        need = g->shift + out;
        g->in_bits = (uint8_t)need;
        g->out_bits = (uint8_t)out;
        break;
    case FSS_BIT:
        g->in_bits = 1;
        g->out_bits = (uint8_t)out;
        need = 1;
        break;
    case FSS_LESS:
        sb_wire(b, in->out[0])->bits = 1;
        g->in_bits = (uint8_t)need;
        break;
    case FSS_PIECES:
        g->in_bits = (uint8_t)larger(need, g->slope ? out : 0);
        g->out_bits = (uint8_t)out;
        need = g->in_bits;
        break;
    case FSS_LUT:
    case FSS_LUT2:
        g->out_bits = (uint8_t)out;
        want(b, in->in[0], g->index_bits, in);
        if (g->kind == FSS_LUT2)
            want(b, in->in[1], g->index2_bits, in);
        return;
    case FSS_MAX:
        if (in->n_out == 2) {
            g->index_bits = (uint8_t)larger(g->index_bits, sb_wire(b, in->out[1])->bits);
            sb_wire(b, in->out[1])->bits = g->index_bits;
            want(b, in->in[2], g->index_bits, in);
            want(b, in->in[3], g->index_bits, in);
        }
        /* fall through */
    default:
        need = larger(need, out);
        g->in_bits = (uint8_t)need;
        sb_wire(b, in->out[0])->bits = (uint8_t)need;
        break;
    }
    want(b, in->in[0], need, in);
    if (g->kind == FSS_MUL || g->kind == FSS_MAX)
        want(b, in->in[1], need, in);
    if (g->kind == FSS_SPLINE || g->kind == FSS_CURVE)
        want(b, in->in[1], g->index_bits, in);
    for (uint32_t k = 2; k < in->n_in && g->kind == FSS_CURVE; k++)
        want(b, in->in[k], 1, in);
}

static void assign_rings(sec_builder *b)
{
    for (uint32_t i = b->p->instrs.count; i-- > 0;) {
        sec_instr *in = &b->p->instrs.data[i];
        if (in->op == SEC_OUTPUT) {
            want(b, in->in[0], in->min_in, in);
            continue;
        }
        if (!in->n_out)
            continue;
        sec_wire *out = sb_wire(b, in->out[0]);
        if (!out->bits)
            out->bits = 1; /* nobody reads it */
        if (in->op == SEC_GATE) {
            gate_rings(b, in);
            continue;
        }
        in->bits = out->bits;
        for (uint32_t k = 0; k < in->n_in; k++)
            want(b, in->in[k], out->bits, in);
    }
}

/* Words of tables are only meant modulo the ring. */
static void reduce_table(sec_builder *b, const uint64_t **table, size_t n, unsigned bits)
{
    uint64_t *to = *table ? sb_alloc(b, n, 8) : NULL;
    for (size_t i = 0; to && i < n; i++)
        to[i] = fss_low((*table)[i], bits);
    if (to)
        *table = to;
}

static void reduce_tables(sec_builder *b, sec_instr *in)
{
    fss_gate *g = &in->gate;
    unsigned bits = g->out_bits ? g->out_bits : g->in_bits;
    size_t rows = g->rows ? g->rows : 1;
    if (g->kind == FSS_PIECES) {
        reduce_table(b, &g->slope, rows * (g->thresholds + 1u), bits);
        reduce_table(b, &g->base, rows * (g->thresholds + 1u), bits);
    } else if (g->table) {
        if (g->kind == FSS_SPLINE || g->kind == FSS_CURVE)
            rows = g->degree + 1u;
        if (g->kind == FSS_CURVE) {
            reduce_table(b, &g->slope, 2, bits);
            reduce_table(b, &g->base, 2, bits);
        }
        reduce_table(b, &g->table, rows << g->index_bits, bits);
        reduce_table(b, &g->table2, (size_t)1 << g->index2_bits, bits);
    }
}

static void want_share(sec_builder *b, sec_wire_id w, unsigned bits)
{
    sec_wire *wire = sb_wire(b, w);
    if (wire->share_bits < bits)
        wire->share_bits = (uint8_t)bits;
}

/* Shares pass through local instructions unless fewer words are needed behind them. */
static void mark_shares(sec_builder *b)
{
    for (uint32_t i = b->p->instrs.count; i-- > 0;) {
        sec_instr *in = &b->p->instrs.data[i];
        if (in->op == SEC_GATE && (in->gate.kind == FSS_MUL || in->gate.kind == FSS_SQUARE))
            for (uint32_t k = 0; k < in->n_in; k++)
                want_share(b, in->in[k], in->gate.in_bits);
        if ((in->op == SEC_MATMUL || in->op == SEC_PRODUCT) && in->owner != SEC_PUBLIC) {
            want_share(b, in->in[0], in->bits);
            if (in->owner == SEC_SHARED)
                want_share(b, in->in[1], in->bits);
        }
        if (!sec_is_local(in) || !sb_wire(b, in->out[0])->share_bits)
            continue;
        size_t fresh = 0;
        for (uint32_t k = 0; k < in->n_in; k++) {
            const sec_wire *from = sb_wire(b, in->in[k]);
            sec_op op = b->p->instrs.data[from->producer].op;
            if (!from->share_bits && op != SEC_INPUT && op != SEC_WEIGHT && op != SEC_CONST)
                fresh += from->count;
        }
        sec_wire *out = sb_wire(b, in->out[0]);
        out->share_derived = fresh <= out->count;
        if (in->op == SEC_MATMUL || in->op == SEC_PRODUCT)
            out->share_derived = false;
        for (uint32_t k = 0; out->share_derived && k < in->n_in; k++)
            want_share(b, in->in[k], out->share_bits);
    }
}

/* Inserts a SHARE gate after every producer of a wire whose shares cannot be derived. */
static void insert_shares(sec_builder *b)
{
    uint32_t n = b->p->instrs.count;
    sec_instr *all = sb_alloc(b, n, sizeof *all);
    if (!all)
        return;
    memcpy(all, b->p->instrs.data, n * sizeof *all);
    b->p->instrs.count = 0;
    for (uint32_t i = 0; i < n && b->status == TACIT_OK; i++) {
        uint32_t at = b->p->instrs.count;
        if (!vec_push(&b->p->memory, &b->p->instrs, all[i]))
            b->status = error_memory(b->err, "the secure program");
        for (uint32_t k = 0; k < all[i].n_out; k++) {
            sec_wire *w = sb_wire(b, all[i].out[k]);
            w->producer = at;
            if (!w->share_bits || w->share_derived || all[i].op == SEC_INPUT ||
                all[i].op == SEC_WEIGHT || all[i].op == SEC_CONST)
                continue;
            sec_instr share = {.op = SEC_GATE, .node = all[i].node, .n_in = 1};
            share.gate = (fss_gate){.kind = FSS_SHARE, .count = w->count, .in_bits = w->share_bits};
            share.in = sb_alloc(b, 1, sizeof *share.in);
            if (share.in)
                share.in[0] = all[i].out[k];
            if (!vec_push(&b->p->memory, &b->p->instrs, share))
                b->status = error_memory(b->err, "the secure program");
        }
    }
}

static int by_start(const void *a, const void *b)
{
    const sec_instr *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id; /* ids follow the original order here */
}

/* Weights and constants come when they are first read, so that nobody holds all of them at once. */
static void delay_leaves(sec_builder *b)
{
    sec_program *p = b->p;
    uint32_t *first = sb_alloc(b, p->wires.count, sizeof *first); /* round + 1; 0: never read */
    for (uint32_t i = 0; i < p->instrs.count && first; i++)
        for (uint32_t k = 0; k < p->instrs.data[i].n_in; k++) {
            uint32_t *at = &first[p->instrs.data[i].in[k]], here = p->instrs.data[i].start + 1;
            *at = *at == 0 || here < *at ? here : *at;
        }
    for (uint32_t i = 0; i < p->instrs.count && first; i++) {
        sec_instr *in = &p->instrs.data[i];
        if ((in->op == SEC_WEIGHT || in->op == SEC_CONST) && first[in->out[0]])
            in->start = first[in->out[0]] - 1;
    }
}

static void sort_by_round(sec_builder *b)
{
    sec_program *p = b->p;
    for (uint32_t i = 0; i < p->instrs.count; i++)
        p->instrs.data[i].id = i;
    qsort(p->instrs.data, p->instrs.count, sizeof *p->instrs.data, by_start);
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        sec_instr *in = &p->instrs.data[i];
        for (uint32_t k = 0; k < in->n_in; k++)
            sb_wire(b, in->in[k])->last = i;
        for (uint32_t k = 0; k < in->n_out; k++) {
            sb_wire(b, in->out[k])->producer = i;
            sb_wire(b, in->out[k])->last = i;
        }
    }
}

static void number(sec_builder *b)
{
    sec_program *p = b->p;
    p->ids = 1;
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        sec_instr *in = &p->instrs.data[i];
        if (in->op == SEC_WEIGHT)
            in->id = ((uint64_t)1 << SEC_WEIGHT_ID) + p->weight_ids++;
        else {
            in->id = p->ids;
            p->ids += in->op == SEC_MATMUL ? in->batch : 1;
        }
        for (unsigned party = 0; party < 2; party++)
            p->key_bytes[party] += sec_key_bytes(p, in, party);
        const sec_wire *w = in->n_out ? &p->wires.data[in->out[0]] : NULL;
        if (in->op == SEC_INPUT)
            p->wire_bytes[SEC_CLIENT] += fss_pack_bytes(w->bits, w->count);
        if (in->op == SEC_WEIGHT && in->owner != SEC_PUBLIC)
            p->weight_bytes +=
                fss_pack_bytes(w->bits, w->count) * (in->owner == SEC_SHARED ? 2 : 1);
        for (unsigned s = 0; s < sec_steps(in); s++) {
            sec_opening o[2];
            unsigned n = sec_openings(p, in, s, o);
            for (unsigned v = 0; v < n; v++)
                for (unsigned party = 0; party < 2; party++)
                    p->wire_bytes[party] += fss_pack_bytes(o[v].bits, o[v].count);
        }
    }
}

/* The largest batch, and the round that needs most key at a time. */
static void measure(sec_builder *b)
{
    sec_program *p = b->p;
    uint64_t *round = sb_alloc(b, 2 * ((size_t)p->rounds + 1), sizeof *round);
    for (uint32_t i = 0; i < p->instrs.count && round; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->op != SEC_GATE || in->gate.kind == FSS_SHARE)
            continue;
        for (unsigned party = 0; party < 2; party++) {
            uint64_t key = sec_key_bytes(p, in, party);
            p->batch_bytes = key > p->batch_bytes ? key : p->batch_bytes;
            for (uint32_t r = in->start; r < in->start + sec_steps(in); r++) {
                uint64_t *sum = &round[2 * r + party];
                *sum += key;
                p->round_bytes = *sum > p->round_bytes ? *sum : p->round_bytes;
            }
        }
        if (sec_key_bytes(p, in, 0) + sec_key_bytes(p, in, 1) && in->gate.count > p->batch_jobs)
            p->batch_jobs = in->gate.count;
    }
}

tacit_status sec_finish(sec_builder *b)
{
    sec_program *p = b->p;
    if (b->status == TACIT_OK)
        assign_rings(b);
    if (b->status == TACIT_OK)
        mark_shares(b);
    insert_shares(b);
    for (uint32_t i = 0; i < p->instrs.count && b->status == TACIT_OK; i++)
        if (p->instrs.data[i].op == SEC_GATE)
            reduce_tables(b, &p->instrs.data[i]);
    sec_schedule(b);
    TRY(b->status);
    delay_leaves(b);
    sort_by_round(b);
    number(b);
    measure(b);
    return b->status;
}
