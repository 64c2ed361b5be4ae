/* SPDX-License-Identifier: Apache-2.0
 * One party's walk: in every round all local work and one step of every gate in flight, and one
 * message that opens everything the round produced. Both parties know the exact size of every
 * message beforehand, so it is sent tile by tile while the next tile is computed. */
#include <stdlib.h>
#include <string.h>

#include "secure/run.h"

enum { INPUT_SLOT = 3, PRODUCT_SLOT = 5, SEND_TILE = 1 << 13 };

/* A joint instruction between its first and its last step. */
typedef struct flight {
    const sec_instr *in;
    unsigned step;
    uint8_t *key;
    size_t key_size;
    uint64_t *open[2]; /* shares, then public words, of the step's openings */
} flight;

typedef struct party_state {
    run_state s;
    const fss_party *party;
    uint64_t run;
    const sec_link *link;
    const sec_weights *weights;
    const ir_tensor *const *inputs;
    ir_tensor *const *outputs;
    flight *flights;
    uint32_t n_flights;
    uint32_t at; /* next instruction */
    /* the round's message: what is sent, how much of it is final, what comes back */
    uint8_t *mine, *other;
    size_t size, ready;
} party_state;

/* The next words of the message are final; sends what goes without waiting. */
static tacit_status ship(party_state *s, const uint64_t *words, unsigned bits, size_t count,
                         tacit_error *err)
{
    fss_pack(s->mine + s->ready, bits, words, count);
    s->ready += fss_pack_bytes(bits, count);
    return s->link->push ? s->link->push(s->link->context, s->ready, err) : TACIT_OK;
}

static void flight_free(const sec_program *p, flight *f)
{
    sec_opening o[2];
    unsigned n = sec_openings(p, f->in, f->step, o);
    for (unsigned v = 0; v < n; v++)
        run_release(f->open[v], o[v].count);
    if (f->key)
        explicit_bzero(f->key, f->key_size);
    free(f->key);
    *f = (flight){0};
}

static tacit_status key_for(party_state *s, const sec_instr *in, uint8_t **key, tacit_error *err)
{
    size_t size = sec_key_bytes(s->s.p, in, s->party->index);
    if (!(*key = malloc(size + 1)))
        return error_memory(err, "a key");
    return size ? s->link->key_read(s->link->key_context, *key, size, err) : TACIT_OK;
}

/* ---- what is not joint ---- */

static tacit_status own_share(party_state *s, sec_wire_id w, bool mine, const uint64_t *mask,
                              tacit_error *err)
{
    const sec_wire *wire = &s->s.p->wires.data[w];
    uint64_t **share = s->s.share[s->party->index];
    if (!wire->share_bits)
        return TACIT_OK;
    TRY(run_vector(&s->s, &share, w, err));
    if (mine && mask)
        memcpy(share[w], mask, wire->count * 8);
    else
        memset(share[w], 0, wire->count * 8);
    return TACIT_OK;
}

static tacit_status do_weight(party_state *s, const sec_instr *in, uint32_t at, tacit_error *err)
{
    const sec_program *p = s->s.p;
    sec_wire_id w = in->out[0];
    size_t count = p->wires.data[w].count;
    uint64_t **words = s->s.words, **clear = s->s.clear;
    bool server = s->party->index == SEC_SERVER;
    words[w] = s->weights->words[at];
    if (in->owner == SEC_PUBLIC)
        clear[w] = s->weights->words[at];
    else if (server)
        clear[w] = s->weights->own[at];
    uint64_t *mask = NULL;
    bool mine = server || in->owner == SEC_SHARED;
    if (mine && p->wires.data[w].share_bits && in->owner != SEC_PUBLIC) {
        if (!(mask = run_new(count)))
            return error_memory(err, "masks of weights");
        fss_weight_mask(&s->party->seed, in->id, p->wires.data[w].bits, 0, mask, count);
    }
    tacit_status status = own_share(s, w, mine, mask, err);
    run_release(mask, count);
    return status;
}

static tacit_status do_output(party_state *s, const sec_instr *in, tacit_error *err)
{
    if (!sec_learns(in, s->party->index))
        return TACIT_OK;
    const sec_wire *w = &s->s.p->wires.data[in->in[0]];
    uint8_t *key = NULL;
    uint64_t *x = run_new(w->count);
    tacit_status status = x ? key_for(s, in, &key, err) : error_memory(err, "an output");
    if (status == TACIT_OK) {
        fss_unpack(x, w->bits, key, w->count);
        for (size_t i = 0; i < w->count; i++)
            x[i] = fss_low(s->s.words[in->in[0]][i] - x[i], w->bits);
        if (in->guard)
            status = sec_verdict_check(s->s.p, x[0], err);
        else
            sec_decode(s->s.p, in->port, x, s->outputs[in->port]);
    }
    run_release(x, w->count);
    free(key);
    return status;
}

static tacit_status do_share(party_state *s, const sec_instr *in, tacit_error *err)
{
    uint8_t *key = NULL;
    uint64_t **share = s->s.share[s->party->index], *copy = NULL;
    fss_gate g = run_gate(s->s.p, in, s->run);
    tacit_status status = key_for(s, in, &key, err);
    if (status == TACIT_OK)
        status = run_vector(&s->s, &share, in->in[0], err);
    const uint64_t *x =
        status == TACIT_OK ? run_narrow(&s->s, s->s.words, in->in[0], g.in_bits, &copy) : NULL;
    if (status == TACIT_OK && !x)
        status = error_memory(err, "shares");
    if (status == TACIT_OK) {
        fss_io io = {.key = key, .in = {x}, .out = {share[in->in[0]]}};
        fss_gate_step(s->party, &g, &in->info, 0, &io, 0, g.count);
    }
    run_release(copy, g.count);
    free(key);
    return status;
}

static tacit_status do_local(party_state *s, const sec_instr *in, tacit_error *err)
{
    TRY(run_local(&s->s, in, s->s.words, true, err));
    if (s->s.p->wires.data[in->out[0]].share_derived)
        TRY(run_local(&s->s, in, s->s.share[s->party->index], false, err));
    return TACIT_OK;
}

/* ---- steps ---- */

/* Only one row of words comes out, so tiles can be sent as they are made. */
static bool by_tiles(const sec_instr *in, const sec_opening *o, unsigned n)
{
    return in->op == SEC_GATE && n == 1 && o->count == in->gate.count && !in->keep && !in->keep_sum;
}

static tacit_status step_gate(party_state *s, flight *f, uint64_t *const out[2], unsigned bits,
                              bool tiles, tacit_error *err)
{
    const sec_instr *in = f->in;
    fss_gate g = run_gate(s->s.p, in, s->run);
    fss_io io = {.key = f->key, .opened = {f->open[0], f->open[1]}, .out = {out[0], out[1]}};
    uint64_t *copy[FSS_MAX_INPUTS] = {0};
    tacit_status status = TACIT_OK;
    for (uint32_t k = 0; k < in->n_in && status == TACIT_OK; k++) {
        io.in[k] = run_narrow(&s->s, s->s.words, in->in[k], run_in_bits(in, k), &copy[k]);
        if (in->info.needs_share[k])
            io.mask_share[k] = s->s.share[s->party->index][in->in[k]];
        status = io.in[k] ? TACIT_OK : error_memory(err, "a gate");
    }
    size_t per = tiles ? SEND_TILE : g.count;
    for (size_t at = 0; at < g.count && status == TACIT_OK; at += per) {
        size_t end = g.count - at < per ? g.count : at + per;
        fss_gate_step(s->party, &g, &in->info, f->step, &io, at, end);
        if (tiles)
            status = ship(s, out[0] + at, bits, end - at, err);
    }
    for (uint32_t k = 0; k < in->n_in; k++)
        run_release(copy[k], g.count);
    return status;
}

static tacit_status step_matmul(party_state *s, const sec_instr *in, const uint64_t *x,
                                const uint64_t *rx, const uint64_t *w, const uint64_t *rw,
                                uint64_t *z, tacit_error *err)
{
    const sec_program *p = s->s.p;
    size_t kn = in->k * in->n, mk = in->m * in->k;
    uint64_t *operand = run_new(kn), *scratch = run_new(mk);
    tacit_status status = operand && scratch ? TACIT_OK : error_memory(err, "a product");
    for (uint32_t t = 0; t < in->batch && status == TACIT_OK; t++) {
        fss_matmul mm = {run_id(p, in, s->run) + t, in->bits, in->m, in->n, in->k, in->owner};
        size_t xt = (in->x_at ? in->x_at[t] : t) * mk, wt = (in->w_at ? in->w_at[t] : t) * kn;
        if (in->owner < 0)
            fss_matmul_operand(s->party, &mm, w + wt, rw + wt, operand);
        fss_matmul_step(s->party, &p->gemm, &mm, x + xt, rx + xt, w + wt, operand, scratch,
                        z + t * in->m * in->n, 0, in->m);
    }
    run_release(operand, kn);
    run_release(scratch, mk);
    return status;
}

static void step_elementwise(party_state *s, const sec_instr *in, const uint64_t *x,
                             const uint64_t *rx, const uint64_t *w, uint64_t *z)
{
    size_t count = s->s.p->wires.data[in->in[0]].count;
    fss_prf_words(&s->party->seed, run_id(s->s.p, in, s->run), PRODUCT_SLOT, 0, in->bits, z, count);
    bool owner = in->owner == (int)s->party->index;
    for (size_t i = 0; i < count; i++) {
        uint64_t factor = owner ? x[i] - rx[i] : (uint64_t)0 - rx[i];
        z[i] = fss_low(z[i] + factor * w[i % in->period], in->bits);
    }
}

static tacit_status step_product(party_state *s, const sec_instr *in, uint64_t *z, tacit_error *err)
{
    uint64_t **share = s->s.share[s->party->index];
    const uint64_t *x = s->s.words[in->in[0]], *rx = share[in->in[0]];
    const uint64_t *w =
        in->owner == (int)s->party->index ? s->s.clear[in->in[1]] : s->s.words[in->in[1]];
    if (in->op == SEC_MATMUL)
        return step_matmul(s, in, x, rx, w, share[in->in[1]], z, err);
    step_elementwise(s, in, x, rx, w, z);
    return TACIT_OK;
}

/* Run the flight's current step and ship its shares; they are then in f->open. */
static tacit_status step(party_state *s, flight *f, tacit_error *err)
{
    const sec_program *p = s->s.p;
    const sec_instr *in = f->in;
    sec_opening o[2];
    unsigned n = sec_openings(p, in, f->step, o);
    bool last = f->step + 1 == sec_steps(in), keep = last && (in->keep || in->keep_sum);
    bool tiles = by_tiles(in, o, n);
    size_t full = in->op == SEC_GATE      ? in->info.out[0].rows * in->gate.count
                  : in->op == SEC_PRODUCT ? p->wires.data[in->in[0]].count
                                          : in->batch * in->m * in->n;
    uint64_t *out[2] = {0}, *before[2] = {f->open[0], f->open[1]}, *whole = NULL;
    tacit_status status = TACIT_OK;
    for (unsigned v = 0; v < n; v++)
        if (!(out[v] = run_new(o[v].count)))
            status = error_memory(err, "an opening");
    if (keep && !(whole = run_new(full)))
        status = error_memory(err, "an opening");
    uint64_t *to[2] = {keep ? whole : out[0], out[1]};
    if (status == TACIT_OK)
        status = in->op == SEC_GATE ? step_gate(s, f, to, o[0].bits, tiles, err)
                                    : step_product(s, in, to[0], err);
    if (status == TACIT_OK && keep)
        sec_keep(in, o[0].bits, whole, out[0]);
    for (unsigned v = 0; v < n && status == TACIT_OK && !tiles; v++)
        status = ship(s, out[v], o[v].bits, o[v].count, err);
    run_release(whole, full);
    if (f->step) {
        sec_opening old[2];
        unsigned m = sec_openings(p, in, f->step - 1, old);
        for (unsigned v = 0; v < m; v++)
            run_release(before[v], old[v].count);
    }
    f->open[0] = out[0];
    f->open[1] = out[1];
    return status;
}

/* ---- rounds ---- */

static size_t input_bytes(const sec_program *p)
{
    size_t size = 0;
    for (uint32_t i = 0; i < p->instrs.count; i++)
        if (p->instrs.data[i].op == SEC_INPUT) {
            const sec_wire *w = &p->wires.data[p->instrs.data[i].out[0]];
            size += fss_pack_bytes(w->bits, w->count);
        }
    return size;
}

static tacit_status client_inputs(party_state *s, uint8_t *packed, tacit_error *err)
{
    const sec_program *p = s->s.p;
    uint64_t **words = s->s.words;
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->op != SEC_INPUT)
            continue;
        sec_wire_id w = in->out[0];
        const sec_wire *wire = &p->wires.data[w];
        TRY(run_vector(&s->s, &words, w, err));
        TRY(sec_encode(p, in->port, s->inputs[p->inputs.data[in->port].input], words[w], err));
        uint64_t *mask = run_new(wire->count);
        if (!mask)
            return error_memory(err, "an input");
        fss_prf_words(&s->party->seed, run_id(p, in, s->run), INPUT_SLOT, 0, wire->bits, mask,
                      wire->count);
        for (size_t k = 0; k < wire->count; k++)
            words[w][k] = fss_low(words[w][k] + mask[k], wire->bits);
        tacit_status status = own_share(s, w, true, mask, err);
        run_release(mask, wire->count);
        TRY(status);
        fss_pack(packed, wire->bits, words[w], wire->count);
        packed += fss_pack_bytes(wire->bits, wire->count);
    }
    return TACIT_OK;
}

/* Words come at their true width: what does not fit can only be in the bits behind the last. */
static tacit_status check_width(const uint8_t *packed, unsigned bits, size_t count,
                                tacit_error *err)
{
    return fss_pack_clean(packed, bits, count)
               ? TACIT_OK
               : error_set(err, TACIT_ERR_SECURITY,
                           "the other party opened something wider than its ring");
}

static tacit_status server_inputs(party_state *s, const uint8_t *packed, tacit_error *err)
{
    const sec_program *p = s->s.p;
    uint64_t **words = s->s.words;
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->op != SEC_INPUT)
            continue;
        const sec_wire *wire = &p->wires.data[in->out[0]];
        TRY(check_width(packed, wire->bits, wire->count, err));
        TRY(run_vector(&s->s, &words, in->out[0], err));
        fss_unpack(words[in->out[0]], wire->bits, packed, wire->count);
        packed += fss_pack_bytes(wire->bits, wire->count);
        TRY(own_share(s, in->out[0], false, NULL, err));
    }
    return TACIT_OK;
}

/* Round 0: the client's masked inputs, one way. */
static tacit_status exchange_inputs(party_state *s, tacit_error *err)
{
    size_t size = input_bytes(s->s.p);
    uint8_t *packed = malloc(size + 1);
    if (!packed)
        return error_memory(err, "the inputs");
    tacit_status status = TACIT_OK;
    if (s->party->index == SEC_CLIENT) {
        status = client_inputs(s, packed, err);
        if (status == TACIT_OK)
            status = s->link->exchange(s->link->context, packed, size, NULL, 0, err);
    } else {
        status = s->link->exchange(s->link->context, NULL, 0, packed, size, err);
        if (status == TACIT_OK)
            status = server_inputs(s, packed, err);
    }
    free(packed);
    return status;
}

static tacit_status begin(party_state *s, const sec_instr *in, tacit_error *err)
{
    if (sec_steps(in)) {
        flight *f = &s->flights[s->n_flights++];
        *f = (flight){.in = in, .key_size = sec_key_bytes(s->s.p, in, s->party->index)};
        return in->op == SEC_GATE ? key_for(s, in, &f->key, err) : TACIT_OK;
    }
    tacit_status status = TACIT_OK;
    if (sec_is_local(in) || in->op == SEC_CONST)
        status = do_local(s, in, err);
    else if (in->op == SEC_WEIGHT)
        status = do_weight(s, in, s->at, err);
    else if (in->op == SEC_GATE)
        status = do_share(s, in, err);
    else if (in->op == SEC_OUTPUT)
        status = do_output(s, in, err);
    if (in->op == SEC_CONST && status == TACIT_OK)
        status = own_share(s, in->out[0], false, NULL, err);
    run_done(&s->s, in);
    return status;
}

static size_t message_size(const party_state *s)
{
    sec_opening o[2];
    size_t size = 0;
    for (uint32_t i = 0; i < s->n_flights; i++)
        for (unsigned v = 0, n = sec_openings(s->s.p, s->flights[i].in, s->flights[i].step, o);
             v < n; v++)
            size += fss_pack_bytes(o[v].bits, o[v].count);
    return size;
}

static tacit_status add_shares(party_state *s, tacit_error *err)
{
    sec_opening o[2];
    const uint8_t *q = s->other;
    for (uint32_t i = 0; i < s->n_flights; i++)
        for (unsigned v = 0, n = sec_openings(s->s.p, s->flights[i].in, s->flights[i].step, o);
             v < n; v++) {
            TRY(check_width(q, o[v].bits, o[v].count, err));
            fss_unpack_add(s->flights[i].open[v], o[v].bits, q, o[v].count);
            q += fss_pack_bytes(o[v].bits, o[v].count);
        }
    return TACIT_OK;
}

/* One step of everything in flight, and its opening. */
static tacit_status open_all(party_state *s, tacit_error *err)
{
    const sec_link *l = s->link;
    s->ready = 0;
    s->size = message_size(s);
    if (!s->size)
        return TACIT_OK;
    s->mine = malloc(s->size);
    s->other = malloc(s->size);
    tacit_status status = s->mine && s->other ? TACIT_OK : error_memory(err, "an exchange");
    if (status == TACIT_OK && l->begin)
        status = l->begin(l->context, s->mine, s->size, s->other, s->size, err);
    for (uint32_t i = 0; i < s->n_flights && status == TACIT_OK; i++)
        status = step(s, &s->flights[i], err);
    if (status == TACIT_OK)
        status = l->begin ? l->end(l->context, err)
                          : l->exchange(l->context, s->mine, s->size, s->other, s->size, err);
    if (status == TACIT_OK)
        status = add_shares(s, err);
    free(s->mine);
    free(s->other);
    s->mine = s->other = NULL;
    return status;
}

/* After the exchange: the last steps' openings are wires, the others go on. */
static void advance(party_state *s)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n_flights; i++) {
        flight *f = &s->flights[i];
        if (f->step + 1 < sec_steps(f->in)) {
            f->step++;
            s->flights[kept++] = *f;
            continue;
        }
        for (uint32_t v = 0; v < f->in->n_out; v++) {
            s->s.words[f->in->out[v]] = f->open[v];
            f->open[v] = NULL;
        }
        const sec_instr *in = f->in;
        flight_free(s->s.p, f);
        run_done(&s->s, in);
    }
    s->n_flights = kept;
}

static tacit_status rounds(party_state *s, tacit_error *err)
{
    const sec_program *p = s->s.p;
    TRY(exchange_inputs(s, err));
    for (uint32_t r = 0; r <= p->rounds; r++) {
        for (; s->at < p->instrs.count && p->instrs.data[s->at].start == r; s->at++)
            TRY(begin(s, &p->instrs.data[s->at], err));
        TRY(open_all(s, err));
        advance(s);
    }
    return TACIT_OK;
}

tacit_status sec_party_run(const sec_program *p, const fss_party *party, uint64_t run,
                           const sec_link *link, const sec_weights *weights,
                           const ir_tensor *const *inputs, ir_tensor *const *outputs,
                           tacit_error *err)
{
    party_state s = {.party = party,
                     .run = run,
                     .link = link,
                     .weights = weights,
                     .inputs = inputs,
                     .outputs = outputs};
    TRY(run_init(&s.s, p, err));
    s.s.borrows_weights = true;
    s.flights = calloc(p->instrs.count + 1u, sizeof *s.flights);
    tacit_status status = s.flights ? rounds(&s, err) : error_memory(err, "a secure run");
    for (uint32_t i = 0; i < s.n_flights; i++)
        flight_free(p, &s.flights[i]);
    free(s.flights);
    run_free(&s.s);
    return status;
}
