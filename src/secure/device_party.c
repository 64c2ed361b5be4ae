/* SPDX-License-Identifier: Apache-2.0
 * A party whose work is done by a device. Preparing walks the program and records every round as
 * graphs; running plays them, with one exchange after each round for all inferences under way. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "secure/device_party.h"

enum { PART_MARK = 8, PART_BYTES = 512 << 10 };

/* ---- preparing ---- */

static void slot_free(slot *s)
{
    const cuda_ops *ops = s->device.ops;
    void *self = s->device.self;
    if (!ops)
        return;
    key_stop(s);
    for (uint32_t r = 0; s->rounds && r < s->p->rounds + 2u; r++)
        for (unsigned k = 0; k < ROUND_PARTS; k++)
            if (s->rounds[r].graph[k])
                ops->graph_free(self, s->rounds[r].graph[k]);
    tacit_error ignored;
    if (s->memory)
        (void)!ops->clear(self, s->memory, s->memory_bytes, &ignored);
    key_free(&s->key, &s->device);
    void *device[] = {s->memory, s->constants, s->run, s->message[0], s->message[1]};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        ops->release(self, device[i]);
    if (s->encoded) {
        explicit_bzero(s->encoded, s->input_words * 8);
        ops->release_host(self, s->encoded);
    }
    if (s->results) {
        explicit_bzero(s->results, s->result_bytes);
        ops->release_host(self, s->results);
    }
    free(s->rounds);
    free(s->output_at);
    free(s->flights);
}

static tacit_status walk_once(slot *s, plan_walk *w, tacit_error *err)
{
    s->w = w;
    tacit_status status = plan_begin(w, s->p, &s->device, err);
    w->run = s->run;
    if (status == TACIT_OK) {
        slot_walk(s);
        status = w->status;
    }
    s->w = NULL;
    return status;
}

static tacit_status give_seeds(const slot *s, tacit_error *err)
{
    uint32_t words[CUDA_KEY_WORDS];
    sec_device_keys(&s->p->suite, &s->party->seed, NULL, words);
    tacit_status status = s->device.ops->keys(s->device.self, words, err);
    if (status == TACIT_OK)
        status = s->device.ops->wait(s->device.self, err);
    explicit_bzero(words, sizeof words);
    return status;
}

/* The first walk finds sizes. */
static tacit_status slot_size(slot *s, uint64_t *constants, tacit_error *err)
{
    const sec_program *p = s->p;
    const cuda_ops *ops = s->device.ops;
    void *self = s->device.self;
    size_t n = p->instrs.count + 1u;
    s->rounds = calloc(p->rounds + 2u, sizeof *s->rounds);
    s->output_at = calloc(n, sizeof *s->output_at);
    s->flights = calloc(n, sizeof *s->flights);
    if (!s->rounds || !s->output_at || !s->flights)
        return error_memory(err, "planning for the device");
    TRY(ops->alloc(self, 16, &s->run, err));
    TRY(key_plan(&s->key, p, s->party->index, err));
    plan_walk w = {0};
    tacit_status status = walk_once(s, &w, err);
    s->memory_bytes = w.pool.most + PLAN_ALIGN;
    *constants = w.constants_at + PLAN_ALIGN;
    plan_end(&w);
    TRY(status);
    TRY(ops->alloc(self, s->memory_bytes, &s->memory, err));
    TRY(ops->alloc(self, *constants, &s->constants, err));
    for (int i = 0; i < 2; i++)
        TRY(ops->alloc(self, s->message_bytes + 64, &s->message[i], err));
    void *pinned = NULL;
    TRY(ops->alloc_host(self, s->result_bytes + 8, &pinned, err));
    s->results = pinned;
    TRY(ops->alloc_host(self, s->input_words * 8 + 8, &pinned, err));
    s->encoded = pinned;
    return TACIT_OK;
}

/* Chooses where the keys of one of `share` inferences are to be. */
static tacit_status slot_keys(slot *s, const sec_device_options *o, unsigned share,
                              tacit_error *err)
{
    key_store *k = &s->key;
    uint64_t room = s->device.ops->room(s->device.self) / share;
    room = room > 4096 ? room - 4096 : 0; /* rounding of the allocation itself */
    if (o->key_bytes && o->key_bytes < room)
        room = o->key_bytes;
    if (!o->stream && !o->file && k->total <= room)
        return key_place(k, &s->device, KEYS_RESIDENT, k->total, err);
    uint64_t host = o->host_bytes;
    long pages = sysconf(_SC_AVPHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    if (!host && pages > 0 && size > 0)
        host = (uint64_t)pages * (uint64_t)size / 2 / share;
    bool pinned = !o->file && k->total <= host;
    return key_place(k, &s->device, pinned ? KEYS_PINNED : KEYS_FILE, room, err);
}

/* The second walk records. */
static tacit_status slot_record(slot *s, uint64_t constants, tacit_error *err)
{
    const cuda_ops *ops = s->device.ops;
    uint8_t *image = calloc(1, constants);
    if (!image)
        return error_memory(err, "planning for the device");
    plan_walk w = {
        .live = true, .fill = true, .memory = s->memory, .constants = s->constants, .image = image};
    tacit_status status = walk_once(s, &w, err);
    plan_end(&w);
    if (status == TACIT_OK)
        status = ops->copy(s->device.self, CUDA_TO_DEVICE, s->constants, image, constants, err);
    if (status == TACIT_OK)
        status = ops->wait(s->device.self, err);
    free(image);
    return status;
}

static tacit_status prepare(sec_device *d, const cuda_device *devices, const sec_weights *weights,
                            const sec_device_options *o, uint64_t *constants, tacit_error *err)
{
    const cuda_ops *ops = d->device.ops;
    for (unsigned i = 0; i < d->count; i++) {
        slot *s = &d->slots[i];
        *s = (slot){.p = d->p, .party = d->party, .device = devices[i], .index = i};
        s->key.stage_bytes = o->stage_bytes ? o->stage_bytes : STAGE_BYTES;
        s->part_bytes = o->part_bytes ? o->part_bytes : PART_BYTES;
        TRY(give_seeds(s, err));
    }
    TRY(weights_upload(d, weights, err));
    for (unsigned i = 0; i < d->count; i++) {
        d->slots[i].weights = d->weights;
        d->slots[i].limbs = d->limbs;
        TRY(slot_size(&d->slots[i], &constants[i], err));
    }
    d->message_bytes = d->slots[0].message_bytes * d->count;
    void *pinned = NULL;
    TRY(ops->alloc_host(d->device.self, d->message_bytes + 64, &pinned, err));
    d->sent = pinned;
    TRY(ops->alloc_host(d->device.self, d->message_bytes + 64, &pinned, err));
    d->received = pinned;
    for (unsigned i = 0; i < d->count; i++) {
        slot *s = &d->slots[i];
        s->sent = d->sent;
        s->received = d->received;
        TRY(slot_keys(s, o, d->count - i, err));
        TRY(slot_record(s, constants[i], err));
    }
    return TACIT_OK;
}

tacit_status sec_device_create(const sec_program *p, const fss_party *party,
                               const cuda_device *devices, unsigned count,
                               const sec_weights *weights, const sec_device_options *options,
                               sec_device **out, tacit_error *err)
{
    static const sec_device_options usual;
    sec_device *d = calloc(1, sizeof *d);
    uint64_t *constants = calloc(count + 1u, sizeof *constants);
    *out = NULL;
    tacit_status status = d && constants ? TACIT_OK : error_memory(err, "a party on a device");
    if (status == TACIT_OK) {
        d->p = p;
        d->party = party;
        d->device = devices[0];
        d->slots = calloc(count, sizeof *d->slots);
        d->count = d->slots ? count : 0;
        status = d->slots ? prepare(d, devices, weights, options ? options : &usual, constants, err)
                          : error_memory(err, "a party on a device");
    }
    free(constants);
    if (status != TACIT_OK)
        sec_device_free(d);
    else
        *out = d;
    return status;
}

sec_device_sizes sec_device_size(const sec_device *d)
{
    const key_store *k = &d->slots[0].key;
    return (sec_device_sizes){.key_bytes = k->total,
                              .key_held = k->ring,
                              .vectors = d->slots[0].memory_bytes,
                              .streamed = k->home != KEYS_RESIDENT,
                              .from_file = k->home == KEYS_FILE};
}

void sec_device_free(sec_device *d)
{
    if (!d)
        return;
    for (unsigned i = 0; i < d->count; i++)
        slot_free(&d->slots[i]);
    if (d->device.ops) {
        weights_release(d);
        uint8_t *pinned[] = {d->sent, d->received};
        for (int i = 0; i < 2; i++)
            if (pinned[i])
                d->device.ops->release_host(d->device.self, pinned[i]);
    }
    free(d->slots);
    free(d);
}

tacit_status sec_device_load(sec_device *d, unsigned which, const sec_link *link, tacit_error *err)
{
    return key_load(&d->slots[which], link, err);
}

/* ---- running ---- */

static tacit_status encode_inputs(slot *s, const ir_tensor *const *inputs, tacit_error *err)
{
    const sec_program *p = s->p;
    uint64_t at = 0;
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->op != SEC_INPUT)
            continue;
        const ir_tensor *t = inputs[p->inputs.data[in->port].input];
        if (slot_input_is_index(p, in))
            TRY(sec_encode_index(p, in->port, t, s->encoded + at, err));
        else
            TRY(sec_encode(p, in->port, t, s->encoded + at, err));
        at += slot_input_words(p, in);
    }
    return TACIT_OK;
}

/* Nothing is given out before every guard has agreed. */
static tacit_status decode_outputs(slot *s, ir_tensor *const *outputs, tacit_error *err)
{
    const sec_program *p = s->p;
    for (uint32_t i = 0; i < p->instrs.count; i++)
        if (p->instrs.data[i].guard && sec_learns(&p->instrs.data[i], s->party->index))
            TRY(sec_verdict_check(p, *(const uint64_t *)(s->results + s->output_at[i]), err));
    for (uint32_t i = 0; i < p->instrs.count; i++) {
        const sec_instr *in = &p->instrs.data[i];
        if (in->guard || !sec_learns(in, s->party->index))
            continue;
        const uint8_t *from = s->results + s->output_at[i];
        if (slot_output_is_plain(p, in))
            memcpy(outputs[in->port]->data, from, (size_t)p->wires.data[in->in[0]].count * 4);
        else
            sec_decode(p, in->port, (const uint64_t *)from, outputs[in->port]);
    }
    return TACIT_OK;
}

static tacit_status run_inputs(sec_device *d, const sec_link *link, const ir_tensor *const *inputs,
                               tacit_error *err)
{
    uint64_t size = d->slots[0].rounds[0].size * d->count;
    if (d->party->index != SEC_CLIENT)
        return link->exchange(link->context, NULL, 0, d->received, size, err);
    for (unsigned i = 0; i < d->count; i++) {
        slot *s = &d->slots[i];
        TRY(encode_inputs(s, inputs + (size_t)i * d->p->graph->inputs.count, err));
        TRY(s->device.ops->graph_run(s->device.self, s->rounds[0].graph[0], err));
    }
    for (unsigned i = 0; i < d->count; i++)
        TRY(d->slots[i].device.ops->wait(d->slots[i].device.self, err));
    return link->exchange(link->context, d->sent, size, NULL, 0, err);
}

/* Starts round r of one inference, after its keys. */
static tacit_status start_round(slot *s, uint32_t r, tacit_error *err)
{
    const cuda_ops *ops = s->device.ops;
    for (unsigned k = 0; k < s->rounds[r].parts; k++) {
        TRY(key_feed(s, s->rounds[r].keys[k], r - 1, err));
        TRY(ops->graph_run(s->device.self, s->rounds[r].graph[k], err));
        TRY(ops->mark_work(s->device.self, PART_MARK + k, err));
    }
    return TACIT_OK;
}

/* Sends what is ready while the rest is computed. */
static tacit_status exchange_parts(sec_device *d, uint32_t r, const sec_link *link,
                                   tacit_error *err)
{
    const round_plan *plan = &d->slots[0].rounds[r];
    uint64_t size = plan->size;
    TRY(link->begin(link->context, d->sent, size * d->count, d->received, size * d->count, err));
    for (unsigned i = 0; i < d->count; i++)
        for (unsigned k = 0; k < plan->parts; k++) {
            slot *s = &d->slots[i];
            TRY(s->device.ops->wait_mark(s->device.self, PART_MARK + k, err));
            TRY(link->push(link->context, size * i + plan->ready[k], err));
        }
    return link->end(link->context, err);
}

static tacit_status run_round(sec_device *d, uint32_t r, const sec_link *link, tacit_error *err)
{
    const round_plan *plan = &d->slots[0].rounds[r];
    uint64_t size = plan->size * d->count;
    for (unsigned i = 0; i < d->count; i++)
        TRY(start_round(&d->slots[i], r, err));
    if (size && link->begin && plan->parts * d->count > 1)
        return exchange_parts(d, r, link, err);
    for (unsigned i = 0; i < d->count && size; i++)
        TRY(d->slots[i].device.ops->wait(d->slots[i].device.self, err));
    return size ? link->exchange(link->context, d->sent, size, d->received, size, err) : TACIT_OK;
}

static tacit_status run_all(sec_device *d, uint64_t run, const sec_link *link,
                            const ir_tensor *const *inputs, ir_tensor *const *outputs,
                            tacit_error *err)
{
    for (unsigned i = 0; i < d->count; i++) {
        slot *s = &d->slots[i];
        uint64_t shift[2] = {(run + i) * d->p->ids, 0};
        TRY(s->device.ops->copy(s->device.self, CUDA_TO_DEVICE, s->run, shift, sizeof shift, err));
        TRY(s->device.ops->wait(s->device.self, err));
    }
    for (unsigned i = 0; i < d->count; i++)
        TRY(key_feed(&d->slots[i], 0, 0, err));
    TRY(run_inputs(d, link, inputs, err));
    for (uint32_t r = 1; r < d->p->rounds + 2u; r++)
        TRY(run_round(d, r, link, err));
    for (unsigned i = 0; i < d->count; i++)
        TRY(d->slots[i].device.ops->wait(d->slots[i].device.self, err));
    for (unsigned i = 0; i < d->count; i++)
        TRY(decode_outputs(&d->slots[i], outputs ? outputs + i * d->p->outputs.count : NULL, err));
    return TACIT_OK;
}

tacit_status sec_device_run(sec_device *d, uint64_t run, const sec_link *link,
                            const ir_tensor *const *inputs, ir_tensor *const *outputs,
                            tacit_error *err)
{
    tacit_status status = run_all(d, run, link, inputs, outputs, err);
    for (unsigned i = 0; i < d->count; i++)
        key_stop(&d->slots[i]);
    return status;
}
