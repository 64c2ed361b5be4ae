/* SPDX-License-Identifier: Apache-2.0
 * A party whose work is done by a device. Preparing walks the program and records every round as a
 * graph; running plays them, with one exchange after each. */
#include <stdlib.h>
#include <string.h>

#include "secure/device_party.h"

enum { WEIGHT_SLOT = 2, STAGE_BYTES = 32 << 20 };

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
        device_walk(d);
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
        device_walk(d);
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
        if (sec_learns(in, party)) {
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
        if (!sec_learns(in, d->party->index))
            continue;
        const sec_wire *w = &p->wires.data[in->in[0]];
        uint64_t *x = run_new(w->count), *words = d->results + d->output_at[i];
        if (!x)
            return error_memory(err, "an output");
        fss_unpack(x, w->bits, d->output_key[i], w->count);
        for (size_t k = 0; k < w->count; k++)
            x[k] = fss_low(words[k] - x[k], w->bits);
        tacit_status status = TACIT_OK;
        if (in->guard)
            status = sec_verdict_check(p, x[0], err);
        else
            sec_decode(p, in->port, x, outputs[in->port]);
        run_release(x, w->count);
        TRY(status);
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
    return decode_outputs(d, outputs, err);
}
