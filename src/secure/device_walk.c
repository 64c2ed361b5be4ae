/* SPDX-License-Identifier: Apache-2.0
 * The walk of a party's program for a device: what sec_party_run does, queued and recorded. */
#include <stdlib.h>

#include "secure/device_party.h"

enum { INPUT_SLOT = 3, MATMUL_SLOT = 1, PRODUCT_SLOT = 5 };

static plan_vector zeros(sec_device *d, uint64_t count)
{
    return (plan_vector){plan_constant(d->w, NULL, count * 8), count, false};
}

static void walk_weight(sec_device *d, const sec_instr *in, uint32_t at)
{
    plan_walk *w = d->w;
    const weight *have = &d->weights[at];
    uint64_t count = w->p->wires.data[in->out[0]].count;
    w->words[in->out[0]] = (plan_vector){have->words, count, false};
    w->share[0][in->out[0]] = (plan_vector){have->share, count, false};
}

static void walk_const(sec_device *d, const sec_instr *in)
{
    plan_walk *w = d->w;
    const sec_wire *wire = &w->p->wires.data[in->out[0]];
    uint64_t *words = malloc(((size_t)wire->count + 1) * 8);
    for (size_t i = 0; words && i < wire->count; i++)
        words[i] = fss_low((uint64_t)in->values[i], wire->bits);
    if (!words)
        w->status = error_memory(w->err, "planning for the device");
    else
        w->words[in->out[0]] =
            (plan_vector){plan_constant(w, words, (uint64_t)wire->count * 8), wire->count, false};
    free(words);
    if (wire->share_bits)
        w->share[0][in->out[0]] = zeros(d, wire->count);
}

static void walk_public_product(sec_device *d, const sec_instr *in, uint32_t at)
{
    plan_walk *w = d->w;
    const sec_wire *out = &w->p->wires.data[in->out[0]];
    plan_vector z = plan_new(w, out->count), x = w->words[in->in[0]];
    PLAN_CALL(w, clear, z.words, z.count * 8);
    uint32_t from = w->p->wires.data[in->in[1]].producer;
    if (in->op == SEC_MATMUL) {
        plan_term t = {.cx = 1, .x = x.words, .limbs = d->limbs[at]};
        plan_multiply(w, in, &t, z.words);
        cuda_local reduce = {.op = CUDA_COPY,
                             .n_in = 1,
                             .count = z.count,
                             .mask = plan_mask(out->bits),
                             .in = {z.words},
                             .out = z.words};
        PLAN_CALL(w, local, &reduce);
    } else {
        cuda_product q = {z.count,  in->period, 1, 0, x.words, NULL, d->weights[from].clear,
                          in->bits, z.words};
        PLAN_CALL(w, product, &q);
    }
    w->words[in->out[0]] = z;
}

static void walk_share(sec_device *d, const sec_instr *in, uint32_t at)
{
    plan_walk *w = d->w;
    cuda_gate g = plan_gate(w, in, d->party->index);
    plan_vector v = plan_new(w, in->gate.count);
    cuda_io io = {.key = (uint8_t *)d->keys + d->key_at[at],
                  .run = w->run,
                  .in = {w->words[in->in[0]].words},
                  .out = {v.words}};
    PLAN_CALL(w, step, &g, &io, 0);
    w->share[0][in->in[0]] = v;
}

static void walk_output(sec_device *d, const sec_instr *in, uint32_t at)
{
    plan_walk *w = d->w;
    uint64_t count = w->p->wires.data[in->in[0]].count;
    if (!sec_learns(in, d->party->index))
        return;
    d->output_at[at] = d->result_words;
    PLAN_CALL(w, copy, CUDA_TO_HOST, d->results + d->result_words, w->words[in->in[0]].words,
              count * 8);
    d->result_words += count;
}

static void walk_begin(sec_device *d, const sec_instr *in, uint32_t at)
{
    plan_walk *w = d->w;
    if (sec_steps(in)) {
        flight *f = &d->flights[d->n_flights++];
        *f = (flight){.in = in, .key_at = d->key_at[at]};
        if (in->op == SEC_GATE)
            f->gate = plan_gate(w, in, d->party->index);
        return;
    }
    if (in->op >= SEC_GATHER && in->op <= SEC_LOCALS) {
        plan_local(w, in, w->words, true);
        if (w->p->wires.data[in->out[0]].share_derived)
            plan_local(w, in, w->share[0], false);
    } else if (sec_is_local(in))
        walk_public_product(d, in, at);
    else if (in->op == SEC_CONST)
        walk_const(d, in);
    else if (in->op == SEC_WEIGHT)
        walk_weight(d, in, at);
    else if (in->op == SEC_GATE)
        walk_share(d, in, at);
    else if (in->op == SEC_OUTPUT)
        walk_output(d, in, at);
    plan_done(w, in);
}

static void step_gate(sec_device *d, const flight *f, uint64_t *const out[2])
{
    plan_walk *w = d->w;
    cuda_io io = {.key = (uint8_t *)d->keys + f->key_at,
                  .run = w->run,
                  .opened = {f->open[0].words, f->open[1].words},
                  .out = {out[0], out[1]}};
    for (uint32_t k = 0; k < f->in->n_in; k++) {
        io.in[k] = w->words[f->in->in[k]].words;
        if (f->in->info.needs_share[k])
            io.share[k] = w->share[0][f->in->in[k]].words;
    }
    plan_vector scratch = {0};
    uint64_t bytes = f->step == 0 ? cuda_scratch_bytes(&f->gate) : 0;
    if (bytes)
        scratch = plan_new(w, bytes / 8);
    io.scratch = (uint32_t *)scratch.words;
    PLAN_CALL(w, step, &f->gate, &io, f->step);
    plan_drop(w, &scratch);
}

static void step_product(sec_device *d, const sec_instr *in, uint64_t *z)
{
    plan_walk *w = d->w;
    bool owner = in->owner == (int)d->party->index;
    uint32_t at = (uint32_t)(in - w->p->instrs.data);
    uint64_t minus = ~(uint64_t)0, b = d->party->index;
    sec_wire_id x = in->in[0], y = in->in[1];
    uint32_t from = w->p->wires.data[y].producer;
    cuda_words r = {.id = in->id,
                    .run = w->run,
                    .slot = in->op == SEC_MATMUL ? MATMUL_SLOT : PRODUCT_SLOT,
                    .seed = CUDA_SEED,
                    .bits = in->bits,
                    .rows = 1,
                    .width = w->p->wires.data[x].count,
                    .out = z};
    if (in->op == SEC_PRODUCT) {
        PLAN_CALL(w, words, &r);
        cuda_product q = {.count = r.width,
                          .period = in->period,
                          .cx = owner,
                          .cr = minus,
                          .x = w->words[x].words,
                          .r = w->share[0][x].words,
                          .w = owner ? d->weights[from].clear : w->words[y].words,
                          .bits = in->bits,
                          .out = z};
        PLAN_CALL(w, product, &q);
        return;
    }
    for (uint32_t t = 0; t < in->batch; t++) {
        r.id = in->id + t;
        r.rows = in->m;
        r.width = in->n;
        r.stride = (in->n + 1) & ~(size_t)1;
        r.out = z + (size_t)t * in->m * in->n;
        PLAN_CALL(w, words, &r);
    }
    plan_term t = {.cx = owner,
                   .cr = minus,
                   .bx = 1,
                   .x = w->words[x].words,
                   .r = w->share[0][x].words,
                   .w = w->words[y].words,
                   .limbs = d->limbs[at]};
    if (in->owner == SEC_SHARED) {
        plan_term first = {
            .cx = 1, .bx = b, .br = minus, .x = t.x, .w = t.w, .rw = w->share[0][y].words};
        plan_multiply(w, in, &first, z);
    }
    plan_multiply(w, in, &t, z);
}

static void walk_step(sec_device *d, flight *f)
{
    plan_walk *w = d->w;
    const sec_instr *in = f->in;
    sec_opening o[2];
    unsigned n = sec_openings(w->p, in, f->step, o);
    bool last = f->step + 1 == sec_steps(in), keep = last && (in->keep || in->keep_sum);
    uint64_t full = in->op == SEC_GATE      ? in->info.out[0].rows * in->gate.count
                    : in->op == SEC_PRODUCT ? w->p->wires.data[in->in[0]].count
                                            : in->batch * in->m * in->n;
    plan_vector out[2] = {{0}}, whole = {0};
    for (unsigned v = 0; v < n; v++)
        out[v] = plan_new(w, o[v].count);
    if (keep)
        whole = plan_new(w, full);
    uint64_t *to[2] = {keep ? whole.words : out[0].words, out[1].words};
    if (in->op == SEC_GATE)
        step_gate(d, f, to);
    else
        step_product(d, in, to[0]);
    if (keep)
        plan_keep(w, in, o[0].bits, whole.words, out[0].words);
    plan_drop(w, &whole);
    for (unsigned v = 0; v < 2; v++) {
        plan_drop(w, &f->open[v]);
        f->open[v] = out[v];
    }
}

/* The steps of a round do not depend on one another, and what they free is only used again in the
 * next one. */
static void walk_steps(sec_device *d)
{
    plan_walk *w = d->w;
    bool apart = d->n_flights > 1 && w->live && w->status == TACIT_OK;
    if (apart)
        w->status = w->ops->fork(w->self, w->err);
    for (uint32_t i = 0; i < d->n_flights; i++) {
        if (apart)
            PLAN_CALL(w, branch, i % CUDA_BRANCHES);
        walk_step(d, &d->flights[i]);
    }
    tacit_error ignored;
    if (apart) {
        tacit_status status = w->ops->join(w->self, w->status == TACIT_OK ? w->err : &ignored);
        w->status = w->status == TACIT_OK ? status : w->status;
    }
}

/* Packs what the round opens; the strings also say how to add what comes back. */
static uint64_t walk_message(sec_device *d)
{
    plan_walk *w = d->w;
    cuda_string *s = calloc(2 * d->n_flights + 1u, sizeof *s);
    uint64_t size = 0;
    d->n_strings = 0;
    d->longest = 0;
    for (uint32_t i = 0; s && i < d->n_flights; i++) {
        sec_opening o[2];
        unsigned n = sec_openings(w->p, d->flights[i].in, d->flights[i].step, o);
        for (unsigned v = 0; v < n; v++) {
            s[d->n_strings++] =
                (cuda_string){d->flights[i].open[v].words, o[v].count, size, o[v].bits};
            size += fss_pack_bytes(o[v].bits, o[v].count);
            d->longest = o[v].count > d->longest ? o[v].count : d->longest;
        }
    }
    if (!s)
        w->status = error_memory(w->err, "planning for the device");
    d->strings = plan_constant(w, s, d->n_strings * sizeof *s);
    free(s);
    if (size) {
        PLAN_CALL(w, pack, d->strings, d->n_strings, d->longest, d->message[0]);
        PLAN_CALL(w, copy, CUDA_TO_HOST, d->sent, d->message[0], size);
    }
    return size;
}

static void walk_received(sec_device *d, uint64_t size, bool add)
{
    if (!size)
        return;
    PLAN_CALL(d->w, copy, CUDA_TO_DEVICE, d->message[1], d->received, size);
    PLAN_CALL(d->w, unpack, d->strings, d->n_strings, d->longest, d->message[1], add);
}

static void walk_advance(sec_device *d)
{
    plan_walk *w = d->w;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->n_flights; i++) {
        flight *f = &d->flights[i];
        if (f->step + 1 < sec_steps(f->in)) {
            f->step++;
            d->flights[kept++] = *f;
            continue;
        }
        for (uint32_t v = 0; v < f->in->n_out; v++)
            w->words[f->in->out[v]] = f->open[v];
        plan_done(w, f->in);
    }
    d->n_flights = kept;
}

/* The client's inputs: masked, packed and sent by it, unpacked by the server. Its share of their
 * masks is the mask itself, the server's is zero. */
static uint64_t walk_inputs(sec_device *d, bool client)
{
    plan_walk *w = d->w;
    const sec_program *p = w->p;
    cuda_string *s = calloc(p->inputs.count + 1u, sizeof *s);
    uint64_t size = 0, at = 0;
    d->n_strings = 0;
    d->longest = 0;
    for (uint32_t i = 0; s && i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->op != SEC_INPUT)
            continue;
        const sec_wire *wire = &p->wires.data[in->out[0]];
        plan_vector v = plan_new(w, wire->count);
        w->words[in->out[0]] = v;
        cuda_words mask = {.id = in->id,
                           .run = w->run,
                           .slot = INPUT_SLOT,
                           .seed = CUDA_SEED,
                           .bits = wire->bits,
                           .rows = 1,
                           .width = wire->count,
                           .add = true,
                           .out = v.words};
        if (client) {
            PLAN_CALL(w, copy, CUDA_TO_DEVICE, v.words, d->encoded + at, v.count * 8);
            PLAN_CALL(w, words, &mask);
            cuda_local reduce = {.op = CUDA_COPY,
                                 .n_in = 1,
                                 .count = v.count,
                                 .mask = plan_mask(wire->bits),
                                 .in = {v.words},
                                 .out = v.words};
            PLAN_CALL(w, local, &reduce);
        }
        if (wire->share_bits) {
            plan_vector share = client ? plan_new(w, wire->count) : zeros(d, wire->count);
            mask.add = false;
            mask.out = share.words;
            if (client)
                PLAN_CALL(w, words, &mask);
            w->share[0][in->out[0]] = share;
        }
        s[d->n_strings++] = (cuda_string){v.words, v.count, size, wire->bits};
        size += fss_pack_bytes(wire->bits, wire->count);
        at += v.count;
        d->longest = v.count > d->longest ? v.count : d->longest;
    }
    d->input_words = at;
    if (!s)
        w->status = error_memory(w->err, "planning for the device");
    d->strings = plan_constant(w, s, d->n_strings * sizeof *s);
    free(s);
    if (client && size) {
        PLAN_CALL(w, pack, d->strings, d->n_strings, d->longest, d->message[0]);
        PLAN_CALL(w, copy, CUDA_TO_HOST, d->sent, d->message[0], size);
    }
    return size;
}

static void graph_begin(sec_device *d)
{
    if (d->w->live && d->w->status == TACIT_OK)
        d->w->status = d->w->ops->graph_begin(d->w->self, d->w->err);
}
static void graph_end(sec_device *d, round_plan *r)
{
    if (!d->w->live)
        return;
    tacit_error ignored;
    tacit_status status = d->w->ops->graph_end(d->w->self, &r->graph,
                                               d->w->status == TACIT_OK ? d->w->err : &ignored);
    if (d->w->status == TACIT_OK)
        d->w->status = status;
}

void device_walk(sec_device *d)
{
    plan_walk *w = d->w;
    const sec_program *p = w->p;
    bool client = d->party->index == SEC_CLIENT;
    d->n_flights = d->at = 0;
    d->result_words = 0;
    graph_begin(d);
    uint64_t size = d->rounds[0].size = walk_inputs(d, client);
    graph_end(d, &d->rounds[0]);
    uint64_t most = size;
    for (uint32_t r = 0; r <= p->rounds && w->status == TACIT_OK; r++) {
        graph_begin(d);
        walk_received(d, r == 0 && client ? 0 : size, r > 0);
        if (r)
            walk_advance(d);
        for (; d->at < p->instrs.count && p->instrs.data[d->at].start == r; d->at++)
            walk_begin(d, &p->instrs.data[d->at], d->at);
        walk_steps(d);
        size = d->rounds[r + 1].size = walk_message(d);
        most = size > most ? size : most;
        plan_round(w);
        graph_end(d, &d->rounds[r + 1]);
    }
    d->message_bytes = most;
}
