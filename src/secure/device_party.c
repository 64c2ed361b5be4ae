/* SPDX-License-Identifier: Apache-2.0
 * A party whose work is done by a device. Preparing walks the program and records every round as a
 * graph; running plays them, with one exchange after each. */
#include <stdlib.h>
#include <string.h>

#include "secure/device_plan.h"

enum { INPUT_SLOT = 3, WEIGHT_SLOT = 2, MATMUL_SLOT = 1, PRODUCT_SLOT = 5 };
enum { STAGE_BYTES = 32 << 20 };

typedef struct flight {
    const sec_instr *in;
    cuda_gate gate;
    unsigned step;
    uint64_t key_at;
    plan_vector open[2];
} flight;

typedef struct round_plan {
    void *graph;
    uint64_t size; /* of the message that ends it */
} round_plan;

/* One weight as the device holds it, by position of its instruction. */
typedef struct weight {
    uint64_t *words, *clear, *share;
} weight;

struct sec_device {
    const sec_program *p;
    const fss_party *party;
    cuda_device device;
    round_plan *rounds; /* [p->rounds + 2]: inputs, then rounds */
    weight *weights;
    int8_t **limbs;   /* by position of a product: its weight, split */
    uint64_t *key_at; /* by position: offset of its key */
    uint8_t **output_key;
    uint64_t *output_at;         /* by position: words from the start of `results` */
    uint64_t *results, *encoded; /* pinned */
    void *memory, *constants, *keys, *run, *message[2]; /* device */
    uint8_t *sent, *received, *stage[2];                /* pinned */
    uint64_t key_bytes, memory_bytes, input_words, message_bytes;
    /* while walking */
    plan_walk *w;
    flight *flights;
    uint32_t n_flights, at;
    uint64_t result_words;
    const cuda_string *strings; /* of the round before, on the device */
    uint32_t n_strings;
    uint64_t longest;
};

/* ---- weights ---- */

static bool reads_as_product(const sec_instr *in, sec_wire_id w)
{
    return in->op == SEC_MATMUL && in->in[1] == w && in->in[0] != w;
}

/* Does anything but a matrix product read the wire? */
static bool read_elsewhere(const sec_program *p, sec_wire_id w)
{
    for (uint32_t i = 0; i < p->instrs.count; i++)
        for (uint32_t k = 0; k < p->instrs.data[i].n_in; k++)
            if (p->instrs.data[i].in[k] == w && !reads_as_product(&p->instrs.data[i], w))
                return true;
    return false;
}

static tacit_status device_new(sec_device *d, uint64_t bytes, void *out, tacit_error *err)
{
    return d->device.ops->alloc(d->device.self, bytes, out, err);
}

/* Limbs of every product that multiplies with this weight and knows it as it is uploaded. */
static tacit_status split_weight(sec_device *d, sec_wire_id w, const uint64_t *words, bool clear,
                                 tacit_error *err)
{
    const sec_program *p = d->p;
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        bool mine = in->owner == (int)d->party->index || in->owner == SEC_PUBLIC;
        if (!reads_as_product(in, w) || in->owner == SEC_SHARED || mine != clear || d->limbs[i])
            continue;
        unsigned limbs = cuda_limbs(in->bits);
        uint32_t matrices = plan_matrices(in->w_at, in->batch);
        TRY(device_new(d, cuda_split_bytes(in->n, in->k, matrices, limbs), &d->limbs[i], err));
        cuda_split s = {.rows = in->n,
                        .k = in->k,
                        .batch = matrices,
                        .cx = 1,
                        .x = words,
                        .limbs = limbs,
                        .transposed = true,
                        .out = d->limbs[i]};
        TRY(d->device.ops->split(d->device.self, &s, err));
    }
    return TACIT_OK;
}

static tacit_status upload_weight(sec_device *d, uint32_t i, const sec_weights *from,
                                  tacit_error *err)
{
    const sec_program *p = d->p;
    const sec_instr *in = &p->instrs.data[i];
    sec_wire_id w = in->out[0];
    uint64_t bytes = (uint64_t)p->wires.data[w].count * 8;
    bool server = d->party->index == SEC_SERVER, public = in->owner == SEC_PUBLIC;
    bool elsewhere = read_elsewhere(p, w) || in->owner == SEC_SHARED;
    for (int clear = 0; clear < 2; clear++) {
        const uint64_t *words = !clear || public ? from->words[i] : server ? from->own[i] : NULL;
        if (!words || (!clear && public) || (clear && in->owner == SEC_SHARED))
            continue;
        void *to = NULL;
        tacit_status status = device_new(d, bytes, &to, err);
        if (status == TACIT_OK)
            status = d->device.ops->copy(d->device.self, CUDA_TO_DEVICE, to, words, bytes, err);
        if (status == TACIT_OK)
            status = split_weight(d, w, to, clear, err);
        if (status == TACIT_OK)
            status = d->device.ops->wait(d->device.self, err);
        if (status != TACIT_OK || !elsewhere)
            d->device.ops->release(d->device.self, to);
        else if (clear)
            d->weights[i].clear = to;
        else
            d->weights[i].words = to;
        if (public)
            d->weights[i].words = d->weights[i].clear;
        TRY(status);
    }
    if (!p->wires.data[w].share_bits || !elsewhere)
        return TACIT_OK;
    TRY(device_new(d, bytes, &d->weights[i].share, err));
    cuda_words mask = {.id = in->id,
                       .run = (uint64_t *)d->run + 1,
                       .slot = WEIGHT_SLOT,
                       .seed = CUDA_SEED,
                       .bits = p->wires.data[w].bits,
                       .rows = 1,
                       .width = p->wires.data[w].count,
                       .out = d->weights[i].share};
    bool mine = (server && !public) || in->owner == SEC_SHARED;
    return mine ? d->device.ops->words(d->device.self, &mask, err) : TACIT_OK;
}

/* ---- the walk ---- */

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
    if (d->party->index != SEC_CLIENT)
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

static void walk_rounds(sec_device *d)
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

/* ---- preparing ---- */

static uint64_t place_keys(sec_device *d)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < d->p->instrs.count; i++) {
        const sec_instr *in = &d->p->instrs.data[i];
        d->key_at[i] = at;
        if (in->op == SEC_GATE)
            at += sec_device_key_bytes(&d->p->suite, &in->gate, &in->info, d->party->index);
    }
    return at;
}

/* The first walk finds sizes, the second records. */
static tacit_status record(sec_device *d, tacit_error *err)
{
    const cuda_ops *ops = d->device.ops;
    plan_walk w = {0};
    d->w = &w;
    tacit_status status = plan_begin(&w, d->p, &d->device, err);
    w.run = d->run;
    if (status == TACIT_OK) {
        walk_rounds(d);
        status = w.status;
    }
    uint64_t memory = w.pool.most + PLAN_ALIGN, constants = w.constants_at + PLAN_ALIGN;
    plan_end(&w);
    void *self = d->device.self;
    if (status == TACIT_OK)
        status = ops->alloc(self, memory, &d->memory, err);
    if (status == TACIT_OK)
        status = ops->alloc(self, constants, &d->constants, err);
    for (int i = 0; i < 2 && status == TACIT_OK; i++)
        status = ops->alloc(self, d->message_bytes + 64, &d->message[i], err);
    void *pinned[4] = {0};
    uint64_t sizes[] = {d->message_bytes + 64, d->message_bytes + 64, d->result_words * 8 + 8,
                        d->input_words * 8 + 8};
    for (int i = 0; i < 4 && status == TACIT_OK; i++)
        status = ops->alloc_host(self, sizes[i], &pinned[i], err);
    d->sent = pinned[0];
    d->received = pinned[1];
    d->results = pinned[2];
    d->encoded = pinned[3];
    d->memory_bytes = memory;
    uint8_t *image = status == TACIT_OK ? calloc(1, constants) : NULL;
    if (status == TACIT_OK && !image)
        status = error_memory(err, "planning for the device");
    w = (plan_walk){
        .live = true, .fill = true, .memory = d->memory, .constants = d->constants, .image = image};
    if (status == TACIT_OK)
        status = plan_begin(&w, d->p, &d->device, err);
    w.run = d->run;
    if (status == TACIT_OK) {
        walk_rounds(d);
        status = w.status;
    }
    plan_end(&w);
    if (status == TACIT_OK)
        status = ops->copy(self, CUDA_TO_DEVICE, d->constants, image, constants, err);
    if (status == TACIT_OK)
        status = ops->wait(self, err);
    free(image);
    d->w = NULL;
    return status;
}

static tacit_status prepare(sec_device *d, const sec_weights *weights, tacit_error *err)
{
    const sec_program *p = d->p;
    size_t n = p->instrs.count + 1u;
    uint32_t words[CUDA_KEY_WORDS];
    d->rounds = calloc(p->rounds + 2u, sizeof *d->rounds);
    d->weights = calloc(n, sizeof *d->weights);
    d->limbs = calloc(n, sizeof *d->limbs);
    d->key_at = calloc(n, sizeof *d->key_at);
    d->output_key = calloc(n, sizeof *d->output_key);
    d->output_at = calloc(n, sizeof *d->output_at);
    d->flights = calloc(n, sizeof *d->flights);
    if (!d->rounds || !d->weights || !d->limbs || !d->key_at || !d->output_key || !d->output_at ||
        !d->flights)
        return error_memory(err, "planning for the device");
    sec_device_keys(&p->suite, &d->party->seed, NULL, words);
    tacit_status status = d->device.ops->keys(d->device.self, words, err);
    if (status == TACIT_OK)
        status = d->device.ops->wait(d->device.self, err);
    explicit_bzero(words, sizeof words);
    TRY(status);
    TRY(device_new(d, 16, &d->run, err));
    for (uint32_t i = 0; i < p->instrs.count; i++)
        if (p->instrs.data[i].op == SEC_WEIGHT)
            TRY(upload_weight(d, i, weights, err));
    d->key_bytes = place_keys(d);
    TRY(device_new(d, d->key_bytes + 64, &d->keys, err));
    for (int i = 0; i < 2; i++) {
        void *stage = NULL;
        TRY(d->device.ops->alloc_host(d->device.self, STAGE_BYTES, &stage, err));
        d->stage[i] = stage;
    }
    return record(d, err);
}

tacit_status sec_device_create(const sec_program *p, const fss_party *party,
                               const cuda_device *device, const sec_weights *weights,
                               sec_device **out, tacit_error *err)
{
    sec_device *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d)
        return error_memory(err, "a party on a device");
    d->p = p;
    d->party = party;
    d->device = *device;
    tacit_status status = prepare(d, weights, err);
    if (status != TACIT_OK)
        sec_device_free(d);
    else
        *out = d;
    return status;
}

void sec_device_free(sec_device *d)
{
    if (!d)
        return;
    const cuda_ops *ops = d->device.ops;
    void *self = d->device.self;
    for (uint32_t r = 0; d->rounds && r < d->p->rounds + 2u; r++)
        if (d->rounds[r].graph)
            ops->graph_free(self, d->rounds[r].graph);
    tacit_error ignored;
    if (d->keys)
        (void)!ops->clear(self, d->keys, d->key_bytes, &ignored);
    if (d->memory)
        (void)!ops->clear(self, d->memory, d->memory_bytes, &ignored);
    void *device[] = {d->memory, d->constants, d->keys, d->run, d->message[0], d->message[1]};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        ops->release(self, device[i]);
    for (uint32_t i = 0; i < d->p->instrs.count; i++) {
        if (d->weights) {
            if (d->weights[i].clear != d->weights[i].words)
                ops->release(self, d->weights[i].clear);
            ops->release(self, d->weights[i].words);
            ops->release(self, d->weights[i].share);
        }
        if (d->limbs)
            ops->release(self, d->limbs[i]);
        if (d->output_key)
            free(d->output_key[i]);
    }
    if (d->encoded)
        explicit_bzero(d->encoded, d->input_words * 8);
    if (d->results)
        explicit_bzero(d->results, d->result_words * 8);
    void *pinned[] = {d->sent, d->received, d->results, d->encoded, d->stage[0], d->stage[1]};
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++)
        if (pinned[i])
            ops->release_host(self, pinned[i]);
    free(d->rounds);
    free(d->weights);
    free(d->limbs);
    free(d->key_at);
    free(d->output_key);
    free(d->output_at);
    free(d->flights);
    free(d);
}

/* ---- keys ---- */

/* A window of pinned memory over the device's key, moved forward as it fills. */
typedef struct window {
    sec_device *d;
    const sec_link *link;
    uint64_t base, end; /* offsets in the key; end: what is filled */
    int which;
} window;

static tacit_status window_flush(window *w, tacit_error *err)
{
    sec_device *d = w->d;
    const cuda_ops *ops = d->device.ops;
    if (w->end > w->base)
        TRY(ops->copy(d->device.self, CUDA_TO_DEVICE, (uint8_t *)d->keys + w->base,
                      d->stage[w->which], w->end - w->base, err));
    w->base = w->end;
    w->which ^= 1;
    /* the other half may still be on its way */
    return ops->wait(d->device.self, err);
}

static tacit_status window_read(window *w, uint64_t at, uint64_t size, tacit_error *err)
{
    while (size) {
        if (at >= w->base + STAGE_BYTES) {
            TRY(window_flush(w, err));
            w->base = at;
        }
        uint64_t room = w->base + STAGE_BYTES - at, n = size < room ? size : room;
        TRY(w->link->key_read(w->link->key_context, w->d->stage[w->which] + (at - w->base), n,
                              err));
        at += n;
        size -= n;
        w->end = at;
    }
    return TACIT_OK;
}

tacit_status sec_device_load(sec_device *d, const sec_link *link, tacit_error *err)
{
    const sec_program *p = d->p;
    unsigned party = d->party->index;
    window w = {.d = d, .link = link};
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->op == SEC_OUTPUT && party == SEC_CLIENT) {
            size_t size = sec_key_bytes(p, in, party);
            free(d->output_key[i]);
            if (!(d->output_key[i] = malloc(size + 1)))
                return error_memory(err, "a key");
            TRY(link->key_read(link->key_context, d->output_key[i], size, err));
        }
        if (in->op != SEC_GATE)
            continue;
        cuda_gate g;
        sec_device_gate(&p->suite, &in->gate, &in->info, party, &g);
        for (unsigned k = 0; k < in->info.items; k++) {
            size_t end = k + 1u < in->info.items ? in->info.item[k + 1].at[party]
                                                 : in->info.key_bytes[party];
            TRY(window_read(&w, d->key_at[i] + g.item[k].at, end - in->info.item[k].at[party],
                            err));
        }
    }
    TRY(window_flush(&w, err));
    return d->device.ops->wait(d->device.self, err);
}

/* ---- running ---- */

static tacit_status encode_inputs(sec_device *d, const ir_tensor *const *inputs, tacit_error *err)
{
    const sec_program *p = d->p;
    uint64_t at = 0;
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->op != SEC_INPUT)
            continue;
        TRY(sec_encode(p, in->port, inputs[p->inputs.data[in->port].input], d->encoded + at, err));
        at += p->wires.data[in->out[0]].count;
    }
    return TACIT_OK;
}

static tacit_status decode_outputs(sec_device *d, ir_tensor *const *outputs, tacit_error *err)
{
    const sec_program *p = d->p;
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->op != SEC_OUTPUT)
            continue;
        const sec_wire *w = &p->wires.data[in->in[0]];
        uint64_t *x = run_new(w->count), *words = d->results + d->output_at[i];
        if (!x)
            return error_memory(err, "an output");
        fss_unpack(x, w->bits, d->output_key[i], w->count);
        for (size_t k = 0; k < w->count; k++)
            x[k] = fss_low(words[k] - x[k], w->bits);
        sec_decode(p, in->port, x, outputs[in->port]);
        run_release(x, w->count);
    }
    return TACIT_OK;
}

static tacit_status run_inputs(sec_device *d, const sec_link *link, const ir_tensor *const *inputs,
                               tacit_error *err)
{
    const cuda_ops *ops = d->device.ops;
    uint64_t size = d->rounds[0].size;
    if (d->party->index != SEC_CLIENT)
        return link->exchange(link->context, NULL, 0, d->received, size, err);
    TRY(encode_inputs(d, inputs, err));
    TRY(ops->graph_run(d->device.self, d->rounds[0].graph, err));
    TRY(ops->wait(d->device.self, err));
    return link->exchange(link->context, d->sent, size, NULL, 0, err);
}

tacit_status sec_device_run(sec_device *d, uint64_t run, const sec_link *link,
                            const ir_tensor *const *inputs, ir_tensor *const *outputs,
                            tacit_error *err)
{
    const cuda_ops *ops = d->device.ops;
    void *self = d->device.self;
    uint64_t shift[2] = {run * d->p->ids, 0};
    TRY(ops->copy(self, CUDA_TO_DEVICE, d->run, shift, sizeof shift, err));
    TRY(ops->wait(self, err));
    TRY(run_inputs(d, link, inputs, err));
    for (uint32_t r = 1; r < d->p->rounds + 2u; r++) {
        TRY(ops->graph_run(self, d->rounds[r].graph, err));
        if (!d->rounds[r].size)
            continue;
        TRY(ops->wait(self, err));
        TRY(link->exchange(link->context, d->sent, d->rounds[r].size, d->received,
                           d->rounds[r].size, err));
    }
    TRY(ops->wait(self, err));
    return d->party->index == SEC_CLIENT ? decode_outputs(d, outputs, err) : TACIT_OK;
}
