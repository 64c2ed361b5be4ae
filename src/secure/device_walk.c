/* SPDX-License-Identifier: Apache-2.0
 * The walk of a party's program for a device: what sec_party_run does, queued and recorded. */
#include <math.h>
#include <stdlib.h>

#include "secure/device_party.h"

enum { INPUT_SLOT = 3, MATMUL_SLOT = 1, PRODUCT_SLOT = 5 };

static plan_vector zeros(slot *d, uint64_t count)
{
    return (plan_vector){plan_constant(d->w, NULL, count * 8), count, false};
}

static void walk_weight(slot *d, const sec_instr *in, uint32_t at)
{
    plan_walk *w = d->w;
    const weight *have = &d->weights[at];
    uint64_t count = w->p->wires.data[in->out[0]].count;
    w->words[in->out[0]] = (plan_vector){have->words, count, false};
    w->share[0][in->out[0]] = (plan_vector){have->share, count, false};
}

static void walk_const(slot *d, const sec_instr *in)
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

static void walk_public_product(slot *d, const sec_instr *in, uint32_t at)
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

static void walk_share(slot *d, const sec_instr *in, uint32_t at)
{
    plan_walk *w = d->w;
    cuda_gate g = plan_gate(w, in, d->party->index);
    plan_vector v = plan_new(w, in->gate.count);
    cuda_io io = {.key = key_on_device(&d->key, at),
                  .run = w->run,
                  .in = {w->words[in->in[0]].words},
                  .out = {v.words}};
    PLAN_CALL(w, step, &g, &io, 0);
    w->share[0][in->in[0]] = v;
}

static void walk_output(slot *d, const sec_instr *in, uint32_t at)
{
    plan_walk *w = d->w;
    uint64_t count = w->p->wires.data[in->in[0]].count;
    if (!sec_learns(in, d->party->index))
        return;
    bool plain = slot_output_is_plain(w->p, in);
    uint64_t bytes = count * (plain ? 4 : 8);
    plan_vector out = plan_new(w, (bytes + 7) / 8);
    cuda_result r = {.words = w->words[in->in[0]].words,
                     .mask = key_on_device(&d->key, at),
                     .count = count,
                     .bits = w->p->wires.data[in->in[0]].bits,
                     .unit = plain ? ldexp(1, -w->p->outputs.data[in->port].frac) : 1,
                     .out = plain ? NULL : out.words,
                     .plain = plain ? (float *)out.words : NULL};
    PLAN_CALL(w, result, &r);
    d->output_at[at] = d->result_bytes;
    PLAN_CALL(w, copy, CUDA_TO_HOST, d->results + d->result_bytes, out.words, bytes);
    d->result_bytes += (bytes + 7) / 8 * 8;
    plan_drop(w, &out);
}

static void walk_begin(slot *d, const sec_instr *in, uint32_t at)
{
    plan_walk *w = d->w;
    if (sec_steps(in)) {
        flight *f = &d->flights[d->n_flights++];
        *f = (flight){.in = in, .at = at};
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

static void step_gate(slot *d, const flight *f, uint64_t *const out[2])
{
    plan_walk *w = d->w;
    cuda_io io = {.key = key_on_device(&d->key, f->at),
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

static void step_product(slot *d, const sec_instr *in, uint64_t *z)
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

static void walk_step(slot *d, flight *f)
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

/* Steps of a round do not depend on one another, and what they free is only used again in the next
 * one. */
static void walk_steps(slot *d, uint32_t first, uint32_t end)
{
    plan_walk *w = d->w;
    bool apart = end - first > 1 && w->live && w->status == TACIT_OK;
    if (apart)
        w->status = w->ops->fork(w->self, w->err);
    for (uint32_t i = first; i < end; i++) {
        if (apart)
            PLAN_CALL(w, branch, (i - first) % CUDA_BRANCHES);
        walk_step(d, &d->flights[i]);
    }
    tacit_error ignored;
    if (apart) {
        tacit_status status = w->ops->join(w->self, w->status == TACIT_OK ? w->err : &ignored);
        w->status = w->status == TACIT_OK ? status : w->status;
    }
}

static uint64_t opened_bytes(const slot *d, const flight *f)
{
    sec_opening o[2];
    uint64_t size = 0;
    unsigned n = sec_openings(d->p, f->in, f->step, o);
    for (unsigned v = 0; v < n; v++)
        size += fss_pack_bytes(o[v].bits, o[v].count);
    return size;
}

/* Packs what these flights open into the message from byte `at` on, and copies it out. */
static void walk_pack(slot *d, uint32_t first, uint32_t end, uint64_t at, uint64_t size,
                      cuda_string *strings)
{
    plan_walk *w = d->w;
    uint64_t longest = 0, to = at;
    uint32_t used = 0;
    for (uint32_t i = first; i < end; i++) {
        sec_opening o[2];
        unsigned n = sec_openings(w->p, d->flights[i].in, d->flights[i].step, o);
        for (unsigned v = 0; v < n; v++) {
            strings[used++] = (cuda_string){d->flights[i].open[v].words, o[v].count, to, o[v].bits};
            to += fss_pack_bytes(o[v].bits, o[v].count);
            longest = o[v].count > longest ? o[v].count : longest;
        }
    }
    d->n_strings += used;
    d->longest = longest > d->longest ? longest : d->longest;
    if (to == at)
        return;
    const cuda_string *there = plan_constant(w, strings, used * sizeof *strings);
    PLAN_CALL(w, pack, there, used, longest, d->message[0]);
    PLAN_CALL(w, copy, CUDA_TO_HOST, d->sent + d->index * size + at, (uint8_t *)d->message[0] + at,
              to - at);
}

static void graph_begin(slot *d)
{
    if (d->w->live && d->w->status == TACIT_OK)
        d->w->status = d->w->ops->graph_begin(d->w->self, d->w->err);
}
static void graph_end(slot *d, void **graph)
{
    if (!d->w->live)
        return;
    tacit_error ignored;
    tacit_status status =
        d->w->ops->graph_end(d->w->self, graph, d->w->status == TACIT_OK ? d->w->err : &ignored);
    if (d->w->status == TACIT_OK)
        d->w->status = status;
}

/* The steps and the message of a round whose beginning needs so many groups of keys. Long messages
 * are made in parts; the graph of the first is already open. The strings of all parts also say how
 * to add what comes back. */
static void walk_message(slot *d, round_plan *r, uint32_t keys)
{
    plan_walk *w = d->w;
    cuda_string *s = calloc(2 * d->n_flights + 1u, sizeof *s);
    uint64_t at = 0;
    uint32_t next = 0;
    r->size = 0;
    for (uint32_t i = 0; i < d->n_flights; i++)
        r->size += opened_bytes(d, &d->flights[i]);
    uint64_t parts = r->size / d->part_bytes + 1;
    parts = parts < ROUND_PARTS ? parts : ROUND_PARTS;
    d->n_strings = 0;
    d->longest = 0;
    if (!s)
        w->status = error_memory(w->err, "planning for the device");
    r->parts = 0;
    for (uint64_t part = 1; s && part <= parts; part++) {
        uint32_t first = next;
        uint64_t from = at, goal = r->size * part / parts;
        bool last = part == parts;
        for (; next < d->n_flights && (last || at < goal); next++)
            at += opened_bytes(d, &d->flights[next]);
        if (first == next && !(last && r->parts == 0))
            continue;
        if (r->parts)
            graph_begin(d);
        for (uint32_t i = first; i < next; i++) {
            uint32_t own = d->flights[i].at;
            keys = key_size(&d->key, own) && d->key.group[own] > keys ? d->key.group[own] : keys;
        }
        r->keys[r->parts] = keys;
        walk_steps(d, first, next);
        walk_pack(d, first, next, from, r->size, s + d->n_strings);
        graph_end(d, &r->graph[r->parts]);
        r->ready[r->parts++] = at;
    }
    d->strings = plan_constant(w, s, d->n_strings * sizeof *s);
    free(s);
}

/* Where keys come in during the run, other copies would wait for them. */
static cuda_direction way_in(const slot *d, const void *from)
{
    return d->key.home != KEYS_RESIDENT && (uintptr_t)from % 8 == 0 ? CUDA_FETCH : CUDA_TO_DEVICE;
}

static void walk_received(slot *d, uint64_t size, bool add)
{
    if (!size || !d->w->live)
        return;
    const uint8_t *from = d->received + d->index * size;
    PLAN_CALL(d->w, copy, way_in(d, from), d->message[1], from, size);
    PLAN_CALL(d->w, unpack, d->strings, d->n_strings, d->longest, d->message[1], add);
}

static void walk_advance(slot *d)
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
static uint64_t walk_inputs(slot *d, bool client)
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
        uint64_t given = slot_input_words(p, in);
        if (client) {
            if (!slot_input_is_index(p, in)) {
                PLAN_CALL(w, copy, way_in(d, d->encoded), v.words, d->encoded + at, given * 8);
            } else {
                plan_vector index = plan_new(w, given);
                cuda_one_hot rows = {index.words, given, p->inputs.data[in->port].one_hot, v.words};
                PLAN_CALL(w, copy, way_in(d, d->encoded), index.words, d->encoded + at, given * 8);
                PLAN_CALL(w, one_hot, &rows);
                plan_drop(w, &index);
            }
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
        at += given;
        d->longest = v.count > d->longest ? v.count : d->longest;
    }
    d->input_words = at;
    if (!s)
        w->status = error_memory(w->err, "planning for the device");
    d->strings = plan_constant(w, s, d->n_strings * sizeof *s);
    free(s);
    if (client && size) {
        PLAN_CALL(w, pack, d->strings, d->n_strings, d->longest, d->message[0]);
        PLAN_CALL(w, copy, CUDA_TO_HOST, d->sent + d->index * size, d->message[0], size);
    }
    return size;
}

void slot_walk(slot *d)
{
    plan_walk *w = d->w;
    const sec_program *p = w->p;
    bool client = d->party->index == SEC_CLIENT;
    d->n_flights = d->at = 0;
    d->result_bytes = 0;
    graph_begin(d);
    uint64_t size = d->rounds[0].size = walk_inputs(d, client);
    d->rounds[0].parts = 1;
    graph_end(d, &d->rounds[0].graph[0]);
    uint64_t most = size;
    for (uint32_t r = 0; r <= p->rounds && w->status == TACIT_OK; r++) {
        round_plan *here = &d->rounds[r + 1];
        graph_begin(d);
        walk_received(d, r == 0 && client ? 0 : size, r > 0);
        if (r)
            walk_advance(d);
        uint32_t keys = 0;
        for (; d->at < p->instrs.count && p->instrs.data[d->at].start == r; d->at++) {
            walk_begin(d, &p->instrs.data[d->at], d->at);
            if (!sec_steps(&p->instrs.data[d->at]) && key_size(&d->key, d->at))
                keys = d->key.group[d->at];
        }
        walk_message(d, here, keys);
        size = here->size;
        most = size > most ? size : most;
        plan_round(w);
    }
    d->message_bytes = most;
}
